//! HyperJobs: Volcano Jobs that are one training, made of its templates. Who of them starts
//! with whom is [`job_gangs`](crate::decide::bindings::job_gangs)'s.
//!
//! Rules (volcano-global `pkg/reconciler/hyperjob`, without its defects):
//! - A job is named `{hyperjob}-{replicatedjob}-{index}`, and is made once its policy is seen: a policy that is broader
//!   would claim it first.
//! - A job that ended is never made again, whoever deleted it. Only one of an index that was scaled away and back is
//!   new.
//! - What has the name of a job or a policy and another owner is left alone, is not placed by us, and is told of in a
//!   condition. Who owns what is told by UIDs.
//! - What the templates have no more is deleted; so is nothing of a HyperJob that ended. The garbage collector takes
//!   the rest with the HyperJob.
//! - What the server refuses is told in a condition, and tried again each minute.
//! - A template may be large and have hundreds of jobs: few are built at once, whoever asks for how many.
//!
//! A host need not have HyperJobs: then their first list is empty.

mod plan;
mod status;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use caldera_core::gang::WorkloadRef;
use caldera_crds::hyper_job::{MOST_CHILDREN, count_needed, list_replicated_jobs, name_child};
use caldera_runtime::{watch::Event, write::Failure};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use self::{
    plan::View,
    status::{find_recorded_end, has_hyper_job_ended, is_final_state},
};
use crate::{
    decide::{bindings::job_gangs::JobGangSpec, deadlines::add_wait},
    observe::{ChildFacts, HyperJobFacts, Input, Key, Objects, PolicyFacts, Workload},
    write::{Decision, hyper_job::ChildKind},
};

/// By then a write has been answered, and its answer seen.
const WRITE_TIMEOUT: SignedDuration = SignedDuration::from_secs(20);
/// After a write that failed.
const RETRY_AFTER_FAILURE: SignedDuration = SignedDuration::from_secs(1);
/// After one that the server refuses, and while a name is taken.
const RETRY_AFTER_REFUSAL: SignedDuration = SignedDuration::from_secs(60);
/// HyperJobs that are looked at in one pass.
const HYPER_JOBS_PER_PASS: usize = 16;
/// Writes for one HyperJob that are under way at most.
const MOST_OF_ONE: usize = 8;
/// Writes for all of them that are under way at most: each may carry a whole template.
const MOST_UNDER_WAY: usize = 16;

/// A job or a policy of a HyperJob; its status where there is none.
type Target = Option<(ChildKind, Arc<str>)>;

/// One HyperJob, and what is under way for it.
#[derive(Debug)]
struct Tracked {
    facts: HyperJobFacts,
    /// What is not written again before this time.
    waits: BTreeMap<Target, Timestamp>,
    /// What was sent and not answered.
    under_way: BTreeSet<Target>,
    /// What the server said no to.
    refused: BTreeMap<Target, String>,
    /// Names that were taken when we made something of them.
    taken: BTreeSet<Target>,
}

/// All that is known of them.
#[derive(Debug, Default)]
pub(crate) struct HyperJobs {
    all: BTreeMap<Key, Tracked>,
    /// Jobs that a HyperJob of this name owns, or did: those that ended stay when they are gone, as long as there
    /// should be one of that name.
    children: BTreeMap<Key, BTreeMap<Arc<str>, Arc<ChildFacts>>>,
    /// The HyperJobs of jobs that are there.
    parents: BTreeMap<Key, Key>,
    /// By HyperJob.
    policies: BTreeMap<Key, BTreeMap<Arc<str>, PolicyFacts>>,
    /// The HyperJobs of policies that are there.
    policy_parents: BTreeMap<Key, Key>,
    /// Without a list of policies nothing is made.
    are_policies_listed: bool,
    /// When to look at one.
    looks: BTreeMap<Key, Timestamp>,
}

/// Events and answers in.
impl HyperJobs {
    pub(crate) fn observe_hyper_jobs(&mut self, event: Event<HyperJobFacts>, now: Timestamp) {
        match event {
            Event::Applied(facts) => self.set_hyper_job(facts, now),
            Event::Deleted(facts) => self.forget(&facts.key),
            Event::Reset(all) => {
                let there: BTreeSet<&Key> = all.iter().map(|facts| &facts.key).collect();
                let gone: Vec<Key> = self.all.keys().filter(|key| !there.contains(key)).cloned().collect();
                gone.iter().for_each(|key| self.forget(key));
                all.into_iter().for_each(|facts| self.set_hyper_job(facts, now));
            }
        }
    }

    fn set_hyper_job(&mut self, facts: HyperJobFacts, now: Timestamp) {
        self.looks.insert(facts.key.clone(), now);
        match self.all.get_mut(&facts.key) {
            // Another one of its name has nothing under way.
            Some(known) if known.facts.uid == facts.uid => known.facts = facts,
            _ => {
                let tracked = Tracked {
                    facts,
                    waits: BTreeMap::new(),
                    under_way: BTreeSet::new(),
                    refused: BTreeMap::new(),
                    taken: BTreeSet::new(),
                };
                self.all.insert(tracked.facts.key.clone(), tracked);
            }
        }
    }

    fn forget(&mut self, key: &Key) {
        self.all.remove(key);
        self.looks.remove(key);
        self.children.remove(key);
    }

    pub(crate) fn observe_policies(&mut self, event: Event<PolicyFacts>, now: Timestamp) {
        match event {
            Event::Applied(policy) => self.set_policy(policy, now),
            Event::Deleted(policy) => {
                let reported = Key::new(&policy.key.namespace, &policy.hyper_job);
                let of = self.policy_parents.remove(&policy.key).unwrap_or(reported);
                self.forget_policy(&of, &policy.key);
                self.schedule_check(&of, now);
            }
            Event::Reset(all) => {
                self.are_policies_listed = true;
                self.policies.clear();
                self.policy_parents.clear();
                all.into_iter().for_each(|policy| self.set_policy(policy, now));
                self.looks.extend(self.all.keys().map(|key| (key.clone(), now)));
            }
        }
    }

    fn set_policy(&mut self, policy: PolicyFacts, now: Timestamp) {
        let of = Key::new(&policy.key.namespace, &policy.hyper_job);
        let before = self.policy_parents.insert(policy.key.clone(), of.clone());
        if let Some(before) = before.filter(|before| *before != of) {
            self.forget_policy(&before, &policy.key);
            self.schedule_check(&before, now);
        }
        self.policies.entry(of.clone()).or_default().insert(Arc::clone(&policy.key.name), policy);
        self.schedule_check(&of, now);
    }

    fn forget_policy(&mut self, of: &Key, policy: &Key) {
        let Some(all) = self.policies.get_mut(of) else { return };
        all.remove(&policy.name);
        if all.is_empty() {
            self.policies.remove(of);
        }
    }

    /// Takes in that a Volcano Job is new, changed or gone.
    pub(crate) fn observe_job(&mut self, reference: &WorkloadRef, job: Option<&Workload>, now: Timestamp) {
        let key = Key::new(&reference.namespace, &reference.name);
        let before = self.parents.remove(&key);
        let child = job.and_then(|job| job.child.as_ref());
        let of = child.map(|child| Key::new(&reference.namespace, &child.hyper_job));
        if let Some(before) = before.filter(|before| of.as_ref() != Some(before)) {
            self.remove_child(&before, &key);
            self.schedule_check(&before, now);
        }
        if let (Some(child), Some(of)) = (child, &of) {
            self.children.entry(of.clone()).or_default().insert(Arc::clone(&key.name), Arc::clone(child));
            self.parents.insert(key, of.clone());
        }
        if let Some(of) = of.or_else(|| self.find_parent(reference)) {
            self.schedule_check(&of, now);
        }
    }

    /// Takes in that the PodGroup of a Volcano Job says something else.
    pub(crate) fn observe_pod_group(&mut self, reference: &WorkloadRef, now: Timestamp) {
        let of = self.parents.get(&Key::new(&reference.namespace, &reference.name)).cloned();
        of.iter().for_each(|of| self.schedule_check(of, now));
    }

    /// A job is gone, or another's.
    fn remove_child(&mut self, of: &Key, job: &Key) {
        let is_needed = self.all.contains_key(of);
        let Some(known) = self.children.get_mut(of) else { return };
        if known.get(&job.name).is_some_and(|child| !is_needed || !is_final_state(&child.state)) {
            known.remove(&job.name);
        }
        if known.is_empty() {
            self.children.remove(of);
        }
    }

    #[cfg(test)]
    pub(crate) fn count_children(&self) -> usize {
        self.children.values().map(BTreeMap::len).sum::<usize>() + self.parents.len()
    }

    /// Whether a job ended and its HyperJob does not say so yet: gone, it would be made again after a crash.
    pub(crate) fn is_end_unrecorded(&self, job: &Key, child: &ChildFacts) -> bool {
        let parent = self.all.get(&Key::new(&job.namespace, &child.hyper_job));
        parent
            .filter(|parent| parent.facts.uid == child.owner && !has_hyper_job_ended(&parent.facts.object))
            .is_some_and(|parent| {
                self.should_exist(&parent.facts, &job.name)
                    && find_recorded_end(&parent.facts.object, &job.name).is_none()
            })
    }

    /// Which jobs there should be of the HyperJob with this UID; `None` while that is not seen.
    pub(crate) fn find_gang_spec(&self, key: &Key, uid: &str) -> Option<JobGangSpec> {
        let object = &self.all.get(key).filter(|known| *known.facts.uid == *uid)?.facts.object;
        let all = list_replicated_jobs(object).flat_map(|replicated| {
            (0..replicated.replicas).map(move |index| name_child(&key.name, replicated.name, index))
        });
        let names: Vec<String> = all.take(usize::try_from(MOST_CHILDREN).unwrap_or(usize::MAX)).collect();
        let needed = count_needed(object, i64::try_from(names.len()).unwrap_or(i64::MAX));
        let seen = self.children.get(key);
        let ended = |name: &&String| {
            let seen = seen.and_then(|seen| seen.get(name.as_str())).filter(|child| *child.owner == *uid);
            seen.is_some_and(|child| is_final_state(&child.state)) || find_recorded_end(object, name).is_some()
        };
        let ended = names.iter().filter(ended).cloned().collect();
        Some(JobGangSpec { needed: usize::try_from(needed).unwrap_or(0), ended, names })
    }

    fn should_exist(&self, facts: &HyperJobFacts, job: &str) -> bool {
        list_replicated_jobs(&facts.object).any(|replicated| {
            let index = job.strip_prefix(&format!("{}-{}-", facts.key.name, replicated.name));
            let index = index.and_then(|index| index.parse::<i64>().ok());
            index.is_some_and(|index| {
                index < replicated.replicas && *job == *name_child(&facts.key.name, replicated.name, index)
            })
        })
    }

    /// The HyperJob whose names a job takes, or took.
    fn find_parent(&self, reference: &WorkloadRef) -> Option<Key> {
        let ends = reference.name.match_indices('-').map(|(at, _)| &reference.name[..at]);
        ends.map(|name| Key::new(&reference.namespace, name)).find(|key| self.all.contains_key(key))
    }

    fn schedule_check(&mut self, key: &Key, now: Timestamp) {
        if self.all.contains_key(key) {
            self.looks.insert(key.clone(), now);
        }
    }

    /// Takes in the answer to a write.
    pub(crate) fn apply_write_answer(&mut self, key: &Key, target: Target, failure: Option<&Failure>, now: Timestamp) {
        let Some(tracked) = self.all.get_mut(key) else { return };
        tracked.under_way.remove(&target);
        let wait = match failure {
            None => None,
            Some(Failure::Refused { message, .. }) => {
                tracing::warn!(hyper_job = %key, ?target, error = message, "a write for a HyperJob is refused");
                tracked.refused.insert(target.clone(), message.clone());
                Some(RETRY_AFTER_REFUSAL)
            }
            // By us and not seen yet, or by another and not with our label, so that it is never seen.
            Some(Failure::Exists(_)) if tracked.taken.insert(target.clone()) => Some(RETRY_AFTER_FAILURE),
            Some(Failure::Exists(_)) => {
                let name = target.as_ref().map_or("", |(_, name)| name);
                let what = format!("an object {name:?} that this HyperJob does not own has the name of one of its own");
                tracked.refused.insert(target.clone(), what);
                Some(RETRY_AFTER_REFUSAL)
            }
            Some(failure) => {
                tracing::debug!(hyper_job = %key, ?target, %failure, "a write for a HyperJob failed");
                Some(RETRY_AFTER_FAILURE)
            }
        };
        match wait {
            Some(wait) => drop(tracked.waits.insert(target, add_wait(now, wait))),
            None => {
                tracked.refused.remove(&target);
                tracked.waits.remove(&target);
            }
        }
        self.looks.insert(key.clone(), now);
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        // Their list has each of them looked at.
        self.looks.values().min().copied().filter(|_| self.are_policies_listed)
    }
}

/// Decisions.
impl HyperJobs {
    /// What is to be written for the HyperJobs that are to be looked at.
    pub(crate) fn advance_hyper_jobs(&mut self, objects: &Objects, now: Timestamp) -> Vec<Decision> {
        if !self.are_policies_listed {
            return Vec::new();
        }
        // Whoever waits longest goes first, whatever its name.
        let mut due: Vec<(Timestamp, Key)> =
            self.looks.iter().filter(|(_, at)| **at <= now).map(|(key, at)| (*at, key.clone())).collect();
        if due.is_empty() {
            return Vec::new();
        }
        due.sort_unstable();
        let under_way: usize = self.all.values().map(|tracked| tracked.under_way.len()).sum();
        let mut left = MOST_UNDER_WAY.saturating_sub(under_way);
        let mut decisions = Vec::new();
        for (_, key) in due.into_iter().take(HYPER_JOBS_PER_PASS) {
            // Nothing is planned that could not be written.
            if left == 0 {
                self.looks.insert(key, add_wait(now, RETRY_AFTER_FAILURE));
                continue;
            }
            self.looks.remove(&key);
            let Some(tracked) = self.all.get_mut(&key) else { continue };
            if tracked.facts.is_deleting() || has_hyper_job_ended(&tracked.facts.object) {
                continue;
            }
            tracked.waits.retain(|_, until| *until > now);
            let waits = &tracked.waits;
            tracked.under_way.retain(|target| waits.contains_key(target));
            let most = left.min(MOST_OF_ONE.saturating_sub(tracked.under_way.len()));
            let none = BTreeMap::new();
            let view = View {
                facts: &tracked.facts,
                objects,
                children: self.children.get(&key).unwrap_or(&none),
                policies: self.policies.get(&key),
                waits,
            };
            let mut plan = view.plan_children(most);
            let should_be: BTreeSet<&str> = plan.children.iter().map(|child| child.name.as_str()).collect();
            let forgotten: Vec<Arc<str>> =
                view.list_gone().filter(|name| !should_be.contains(&***name)).cloned().collect();
            left -= plan.writes.len();
            tracked.refused.retain(|target, _| target.is_none() || plan.wanted.contains(target));
            tracked.taken.retain(|target| plan.wanted.contains(target));
            let said = tracked.refused.values().next().cloned();
            let problem = plan.taken.first().cloned().or(said);
            let status = view.build_status_write(&plan.children, problem.as_deref(), now);
            plan.writes.extend(status.filter(|write| !waits.contains_key(&write.target())));
            for write in plan.writes {
                let target = write.target();
                tracked.waits.insert(target.clone(), add_wait(now, WRITE_TIMEOUT));
                tracked.under_way.extend(target.is_some().then_some(target));
                decisions.push(Decision::HyperJob { key: key.clone(), write });
            }
            // One of an index that is scaled away and back is new.
            if let Some(known) = self.children.get_mut(&key) {
                known.retain(|name, _| !forgotten.contains(name));
            }
            let taken = (!plan.taken.is_empty()).then(|| add_wait(now, RETRY_AFTER_REFUSAL));
            let more = plan.is_cut.then(|| add_wait(now, RETRY_AFTER_FAILURE));
            let next = tracked.waits.values().copied().chain(taken).chain(more).min();
            self.looks.extend(next.map(|at| (key, at)));
        }
        decisions
    }
}

/// Tells the next decision what a write left.
pub(in crate::decide) fn convert_written_object(target: &Target, object: Value) -> Option<Input> {
    match target {
        None => HyperJobFacts::read(object).map(|facts| Input::HyperJobs(Event::Applied(facts))),
        Some((ChildKind::Policy, _)) => PolicyFacts::read(&object).map(|facts| Input::Policies(Event::Applied(facts))),
        Some((ChildKind::Job, _)) => Workload::read(&object).map(|job| Input::Workloads(job.kind, Event::Applied(job))),
    }
}
