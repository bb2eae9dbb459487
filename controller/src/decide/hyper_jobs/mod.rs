//! HyperJobs: Volcano Jobs that are one training, made of its templates, one by one admitted and placed.
//!
//! Rules (volcano-global `pkg/reconciler/hyperjob`, without its defects):
//! - A job is named `{hyperjob}-{replicatedjob}-{index}`, and is made once its policy is seen: a policy that is broader
//!   would claim it first.
//! - A job that ended is never made again, whoever deleted it. Only one of an index that was scaled away and back is new.
//! - What has the name of a job or a policy and another owner is left alone, is not placed by us, and is told of in a
//!   condition. Who owns what is told by UIDs.
//! - What the templates have no more is deleted; so is nothing of a HyperJob that ended. The garbage collector takes the
//!   rest with the HyperJob.
//! - What the server refuses is told in a condition, and tried again each minute.
//!
//! A host need not have HyperJobs: nothing waits for the first list of them.

mod status;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use caldera_core::gang::WorkloadRef;
use caldera_crds::{
    hyper_job::{MOST_CHILDREN, Replicated, list_replicated, name_child},
    workload::WorkloadKind,
};
use caldera_runtime::{watch::Event, write::Failure};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use self::status::{ChildState, build_status, find_recorded_end, has_ended, is_ended};
use super::deadlines::after;
use crate::{
    observe::{COUNTS, ChildFacts, HyperJobFacts, Input, Key, Objects, PolicyFacts, Workload},
    write::{
        Decision,
        hyper_job::{
            ChildKind, HyperJobWrite, build_child, build_policy, hash_placement, hash_template, patch_child,
            patch_policy, patch_status, placement_of,
        },
    },
};

/// By then a write has been answered, and its answer seen.
const ANSWERED: SignedDuration = SignedDuration::from_secs(20);
/// After a write that failed.
const AGAIN: SignedDuration = SignedDuration::from_secs(1);
/// After one that the server refuses, and while a name is taken.
const REFUSED: SignedDuration = SignedDuration::from_secs(60);
/// HyperJobs that are looked at in one pass.
const LOOKS: usize = 16;

/// A job or a policy of a HyperJob; its status where there is none.
type Target = Option<(ChildKind, Arc<str>)>;

/// One HyperJob, and what is under way for it.
#[derive(Debug)]
struct Tracked {
    facts: HyperJobFacts,
    /// What is not written again before this time.
    waits: BTreeMap<Target, Timestamp>,
    /// What the server said no to.
    refused: BTreeMap<Target, String>,
    /// Names that were taken when we made something of them.
    taken: BTreeSet<Target>,
}

/// All that is known of them.
#[derive(Debug, Default)]
pub(crate) struct HyperJobs {
    all: BTreeMap<Key, Tracked>,
    /// Jobs that a HyperJob of this name owns, or did: those that ended stay when they are gone, as long as there should
    /// be one of that name.
    children: BTreeMap<Key, BTreeMap<Arc<str>, Arc<ChildFacts>>>,
    /// The HyperJobs of jobs that are there.
    parents: BTreeMap<Key, Key>,
    /// By HyperJob.
    policies: BTreeMap<Key, BTreeMap<Arc<str>, PolicyFacts>>,
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
                let tracked =
                    Tracked { facts, waits: BTreeMap::new(), refused: BTreeMap::new(), taken: BTreeSet::new() };
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
                let of = Key::new(&policy.key.namespace, &policy.hyper_job);
                if let Some(all) = self.policies.get_mut(&of) {
                    all.remove(&policy.key.name);
                }
                self.look_at(&of, now);
            }
            Event::Reset(all) => {
                self.are_policies_listed = true;
                self.policies.clear();
                all.into_iter().for_each(|policy| self.set_policy(policy, now));
                self.looks.extend(self.all.keys().map(|key| (key.clone(), now)));
            }
        }
    }

    fn set_policy(&mut self, policy: PolicyFacts, now: Timestamp) {
        let of = Key::new(&policy.key.namespace, &policy.hyper_job);
        self.policies.entry(of.clone()).or_default().insert(Arc::clone(&policy.key.name), policy);
        self.look_at(&of, now);
    }

    /// Takes in that a Volcano Job is new, changed or gone.
    pub(crate) fn observe_job(&mut self, reference: &WorkloadRef, job: Option<&Workload>, now: Timestamp) {
        let key = Key::new(&reference.namespace, &reference.name);
        let before = self.parents.remove(&key);
        let child = job.and_then(|job| job.child.as_ref());
        let of = child.map(|child| Key::new(&reference.namespace, &child.hyper_job));
        if let Some(before) = before.filter(|before| of.as_ref() != Some(before)) {
            self.remove_child(&before, &key);
            self.look_at(&before, now);
        }
        if let (Some(child), Some(of)) = (child, &of) {
            self.children.entry(of.clone()).or_default().insert(Arc::clone(&key.name), Arc::clone(child));
            self.parents.insert(key, of.clone());
        }
        if let Some(of) = of.or_else(|| self.find_parent(reference)) {
            self.look_at(&of, now);
        }
    }

    /// A job is gone, or another's.
    fn remove_child(&mut self, of: &Key, job: &Key) {
        let is_needed = self.all.contains_key(of);
        let Some(known) = self.children.get_mut(of) else { return };
        if known.get(&job.name).is_some_and(|child| !is_needed || !is_ended(&child.state)) {
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
    pub(crate) fn lacks_end(&self, job: &Key, child: &ChildFacts) -> bool {
        let parent = self.all.get(&Key::new(&job.namespace, &child.hyper_job));
        parent.filter(|parent| parent.facts.uid == child.owner && !has_ended(&parent.facts.object)).is_some_and(
            |parent| {
                self.should_be(&parent.facts, &job.name) && find_recorded_end(&parent.facts.object, &job.name).is_none()
            },
        )
    }

    fn should_be(&self, facts: &HyperJobFacts, job: &str) -> bool {
        list_replicated(&facts.object).any(|replicated| {
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

    fn look_at(&mut self, key: &Key, now: Timestamp) {
        if self.all.contains_key(key) {
            self.looks.insert(key.clone(), now);
        }
    }

    /// Takes in the answer to a write.
    pub(crate) fn follow_answer(&mut self, key: &Key, target: Target, failure: Option<&Failure>, now: Timestamp) {
        let Some(tracked) = self.all.get_mut(key) else { return };
        let wait = match failure {
            None => None,
            Some(Failure::Refused { message, .. }) => {
                tracing::warn!(hyper_job = %key, ?target, error = message, "a write for a HyperJob is refused");
                tracked.refused.insert(target.clone(), message.clone());
                Some(REFUSED)
            }
            // By us and not seen yet, or by another and not with our label, so that it is never seen.
            Some(Failure::Exists(_)) if tracked.taken.insert(target.clone()) => Some(AGAIN),
            Some(Failure::Exists(_)) => {
                let name = target.as_ref().map_or("", |(_, name)| name);
                let what = format!("an object {name:?} that this HyperJob does not own has the name of one of its own");
                tracked.refused.insert(target.clone(), what);
                Some(REFUSED)
            }
            Some(failure) => {
                tracing::debug!(hyper_job = %key, ?target, %failure, "a write for a HyperJob failed");
                Some(AGAIN)
            }
        };
        match wait {
            Some(wait) => drop(tracked.waits.insert(target, after(now, wait))),
            None => {
                tracked.refused.remove(&target);
                tracked.waits.remove(&target);
            }
        }
        self.looks.insert(key.clone(), now);
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.looks.values().min().copied()
    }
}

/// Decisions.
impl HyperJobs {
    /// What is to be written for the HyperJobs that are to be looked at.
    pub(crate) fn advance(&mut self, objects: &Objects, now: Timestamp) -> Vec<Decision> {
        if !self.are_policies_listed {
            return Vec::new();
        }
        let due = self.looks.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone());
        let due: Vec<Key> = due.take(LOOKS).collect();
        let mut decisions = Vec::new();
        for key in due {
            self.looks.remove(&key);
            let Some(tracked) = self.all.get_mut(&key) else { continue };
            if tracked.facts.is_deleting() || has_ended(&tracked.facts.object) {
                continue;
            }
            tracked.waits.retain(|_, until| *until > now);
            let none = BTreeMap::new();
            let view = View {
                facts: &tracked.facts,
                objects,
                children: self.children.get(&key).unwrap_or(&none),
                policies: self.policies.get(&key),
            };
            let mut plan = view.plan_children();
            let should_be: BTreeSet<&str> = plan.children.iter().map(|child| child.name.as_str()).collect();
            let forgotten: Vec<Arc<str>> =
                view.list_gone().filter(|name| !should_be.contains(&***name)).cloned().collect();
            let wanted: BTreeSet<Target> = plan.writes.iter().map(HyperJobWrite::target).collect();
            tracked.refused.retain(|target, _| target.is_none() || wanted.contains(target));
            tracked.taken.retain(|target| wanted.contains(target));
            let said = tracked.refused.values().next().cloned();
            let problem = plan.taken.first().cloned().or(said);
            plan.writes.extend(view.write_status(&plan.children, problem.as_deref(), now));
            for write in plan.writes {
                let target = write.target();
                if tracked.waits.contains_key(&target) {
                    continue;
                }
                tracked.waits.insert(target, after(now, ANSWERED));
                decisions.push(Decision::HyperJob { key: key.clone(), write });
            }
            // One of an index that is scaled away and back is new.
            if let Some(known) = self.children.get_mut(&key) {
                known.retain(|name, _| !forgotten.contains(name));
            }
            let taken = (!plan.taken.is_empty()).then(|| after(now, REFUSED));
            let next = tracked.waits.values().copied().chain(taken).min();
            self.looks.extend(next.map(|at| (key, at)));
        }
        decisions
    }
}

/// One HyperJob and what there is of it.
struct View<'a> {
    facts: &'a HyperJobFacts,
    objects: &'a Objects,
    children: &'a BTreeMap<Arc<str>, Arc<ChildFacts>>,
    policies: Option<&'a BTreeMap<Arc<str>, PolicyFacts>>,
}

/// What comes of it.
#[derive(Default)]
struct Plan {
    writes: Vec<HyperJobWrite>,
    children: Vec<ChildState>,
    /// Names that others have, each as a sentence.
    taken: Vec<String>,
}

impl View<'_> {
    fn find_job(&self, name: &str) -> Option<&Workload> {
        let kind = WorkloadKind::VolcanoJob;
        let reference = WorkloadRef {
            group: kind.api_resource().group,
            kind: kind.kind().to_owned(),
            namespace: self.facts.key.namespace.to_string(),
            name: name.to_owned(),
        };
        self.objects.workloads.get(&reference).map(|job| &**job)
    }

    fn find_policy(&self, name: &str) -> Option<&PolicyFacts> {
        self.policies?.get(name)
    }

    fn owns(&self, owner: Option<&Arc<str>>) -> bool {
        owner.is_some_and(|owner| *owner == self.facts.uid)
    }

    /// Jobs that ended and are not there any more.
    fn list_gone(&self) -> impl Iterator<Item = &Arc<str>> {
        self.children.keys().filter(|name| self.find_job(name).is_none())
    }

    /// What of its jobs and policies is to be made, changed and deleted.
    fn plan_children(&self) -> Plan {
        let mut plan = Plan::default();
        let replicas = list_replicated(&self.facts.object).map(|replicated| replicated.replicas.max(0));
        let asked = replicas.fold(0_i64, i64::saturating_add);
        if asked > MOST_CHILDREN {
            // It was there before the webhook.
            plan.taken.push(format!("it asks for {asked} jobs and may have {MOST_CHILDREN}: nothing is made of it"));
            return plan;
        }
        let mut wanted = BTreeSet::new();
        for (at, replicated) in list_replicated(&self.facts.object).enumerate() {
            let placement = placement_of(self.facts, &replicated);
            for index in 0..replicated.replicas {
                let name = name_child(&self.facts.key.name, replicated.name, index);
                self.plan_child(&mut plan, (at, &replicated), &name, &placement);
                wanted.insert(name);
            }
        }
        let stale = |name: &&Arc<str>| !wanted.contains(&***name);
        for name in self.children.keys().filter(stale) {
            let job = self.find_job(name).filter(|job| !job.deleting);
            let ours = job.filter(|job| self.owns(job.child.as_ref().map(|child| &child.owner)));
            let delete = |job: &Workload| HyperJobWrite::Delete(ChildKind::Job, Arc::clone(name), Arc::clone(&job.uid));
            plan.writes.extend(ours.map(delete));
        }
        let policies = self.policies.into_iter().flatten().filter(|(name, _)| stale(name));
        plan.writes.extend(policies.filter_map(|(_, policy)| self.delete_policy(policy)));
        plan
    }

    /// Only its own.
    fn delete_policy(&self, policy: &PolicyFacts) -> Option<HyperJobWrite> {
        let is_ours = self.owns(policy.owner.as_ref()) && !policy.deleting;
        is_ours.then(|| HyperJobWrite::Delete(ChildKind::Policy, Arc::clone(&policy.key.name), Arc::clone(&policy.uid)))
    }

    fn plan_child(&self, plan: &mut Plan, (at, replicated): (usize, &Replicated<'_>), name: &str, placement: &Value) {
        let mut child = ChildState {
            name: name.to_owned(),
            replicated: at,
            is_made: false,
            state: Value::Null,
            counts: [0; COUNTS.len()],
        };
        let job = self.find_job(name);
        let policy = self.find_policy(name);
        let is_foreign = job.is_some_and(|job| !self.owns(job.child.as_ref().map(|child| &child.owner)));
        if let Some(end) = self.find_end(name) {
            child.state = end;
        } else if is_foreign {
            plan.taken.push(format!("a job {name:?} that this HyperJob does not own is there; it is left alone"));
            // It would place what is another's.
            plan.writes.extend(policy.and_then(|policy| self.delete_policy(policy)));
        } else if policy.is_some_and(|policy| !self.owns(policy.owner.as_ref())) {
            plan.taken.push(format!("a PropagationPolicy {name:?} that this HyperJob does not own is there"));
        } else {
            plan.writes.extend(self.write_child(job, policy, (name, replicated), placement));
        }
        // One that ended keeps its counts when it is gone.
        let ended = || self.children.get(name).filter(|child| child.owner == self.facts.uid && is_ended(&child.state));
        let facts = match job.filter(|_| !is_foreign) {
            Some(job) => job.child.as_ref(),
            None => ended(),
        };
        child.is_made = facts.is_some() || child.state.is_object();
        if let Some(facts) = facts {
            child.counts = facts.counts;
            if child.state.is_null() {
                child.state = facts.state.clone();
            }
        }
        plan.children.push(child);
    }

    /// As what a job ended, whether it is there yet or not.
    fn find_end(&self, name: &str) -> Option<Value> {
        let seen = self.children.get(name).filter(|child| child.owner == self.facts.uid);
        let seen = seen.map(|child| &child.state).filter(|state| is_ended(state));
        seen.or_else(|| find_recorded_end(&self.facts.object, name)).cloned()
    }

    fn write_child(
        &self,
        job: Option<&Workload>,
        policy: Option<&PolicyFacts>,
        (name, replicated): (&str, &Replicated<'_>),
        placement: &Value,
    ) -> Option<HyperJobWrite> {
        let Some(policy) = policy else {
            let policy = build_policy(self.facts, replicated, name, placement);
            return Some(HyperJobWrite::Create(ChildKind::Policy, name.into(), policy));
        };
        if policy.deleting {
            return None;
        }
        if *policy.hash != *hash_placement(placement) {
            let patch = patch_policy(&policy.resource_version, placement);
            return Some(HyperJobWrite::Change(ChildKind::Policy, name.into(), patch));
        }
        let Some(job) = job else {
            let job = build_child(self.facts, replicated, name);
            return Some(HyperJobWrite::Create(ChildKind::Job, name.into(), job));
        };
        let is_old = job.child.as_ref().is_some_and(|child| *child.hash != *hash_template(replicated));
        (is_old && !job.deleting).then(|| {
            let patch = patch_child(&job.resource_version, name, replicated.template());
            HyperJobWrite::Change(ChildKind::Job, name.into(), patch)
        })
    }

    fn write_status(&self, children: &[ChildState], problem: Option<&str>, now: Timestamp) -> Option<HyperJobWrite> {
        let status = build_status(self.facts, children, problem, now);
        let is_new = self.facts.object["status"] != status;
        is_new.then(|| HyperJobWrite::Status(patch_status(&self.facts.resource_version, &status)))
    }
}

/// Tells the next decision what a write left.
pub(super) fn read_written(target: &Target, object: Value) -> Option<Input> {
    match target {
        None => HyperJobFacts::read(object).map(|facts| Input::HyperJobs(Event::Applied(facts))),
        Some((ChildKind::Policy, _)) => PolicyFacts::read(&object).map(|facts| Input::Policies(Event::Applied(facts))),
        Some((ChildKind::Job, _)) => Workload::read(&object).map(|job| Input::Workloads(job.kind, Event::Applied(job))),
    }
}
