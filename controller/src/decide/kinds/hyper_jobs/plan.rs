//! What is to be written for one HyperJob: its policies and jobs, and its status.
//!
//! Rule: a policy comes before its job; a job that ended is not made again; what others own is left alone. No more is
//! built than may be under way: a template may be large and have hundreds of jobs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use caldera_core::gang::WorkloadRef;
use caldera_crds::{
    hyper_job::{MOST_CHILDREN, ReplicatedJobView, list_replicated_jobs, name_child},
    workload::WorkloadKind,
};
use jiff::Timestamp;
use serde_json::Value;

use super::{
    Target,
    status::{ChildState, build_status, find_recorded_end, is_final_state},
};
use crate::{
    observe::{COUNTS, ChildFacts, HyperJobFacts, Objects, PolicyFacts, Workload},
    write::{
        hyper_job::{
            ChildKind, HyperJobWrite, build_child, build_policy, hash_placement, hash_template, patch_child,
            patch_policy, placement_of,
        },
        merge_status,
    },
};

/// One HyperJob and what there is of it.
pub(super) struct View<'a> {
    pub(super) facts: &'a HyperJobFacts,
    pub(super) objects: &'a Objects,
    pub(super) children: &'a BTreeMap<Arc<str>, Arc<ChildFacts>>,
    pub(super) policies: Option<&'a BTreeMap<Arc<str>, PolicyFacts>>,
    pub(super) waits: &'a BTreeMap<Target, Timestamp>,
}

/// One of its replicated jobs, with what is the same for all jobs of it.
struct Template<'a> {
    at: usize,
    replicated: &'a ReplicatedJobView<'a>,
    placement: Value,
    placement_hash: String,
    hash: String,
}

/// What comes of it.
#[derive(Default)]
pub(super) struct HyperJobPlan {
    /// No more than `left` was at first.
    pub(super) writes: Vec<HyperJobWrite>,
    left: usize,
    /// There are more to be written.
    pub(super) is_cut: bool,
    /// Of all writes that are to be made, waiting ones too.
    pub(super) wanted: BTreeSet<Target>,
    pub(super) children: Vec<ChildState>,
    /// Names that others have, each as a sentence.
    pub(super) taken: Vec<String>,
}

impl HyperJobPlan {
    /// A write that is built only when it is its turn.
    fn add(&mut self, view: &View<'_>, target: (ChildKind, Arc<str>), build: impl FnOnce() -> HyperJobWrite) {
        let target = Some(target);
        let is_waiting = view.waits.contains_key(&target);
        self.wanted.insert(target);
        if is_waiting {
            return;
        }
        match self.left.checked_sub(1) {
            None => self.is_cut = true,
            Some(left) => {
                self.left = left;
                self.writes.push(build());
            }
        }
    }
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
    pub(super) fn list_gone(&self) -> impl Iterator<Item = &Arc<str>> {
        self.children.keys().filter(|name| self.find_job(name).is_none())
    }

    /// What of its jobs and policies is to be made, changed and deleted: so many writes at most.
    pub(super) fn plan_children(&self, most: usize) -> HyperJobPlan {
        let mut plan = HyperJobPlan { left: most, ..HyperJobPlan::default() };
        let replicas = list_replicated_jobs(&self.facts.object).map(|replicated| replicated.replicas.max(0));
        let asked = replicas.fold(0_i64, i64::saturating_add);
        if asked > MOST_CHILDREN {
            // It was there before the webhook.
            plan.taken.push(format!("it asks for {asked} jobs and may have {MOST_CHILDREN}: nothing is made of it"));
            return plan;
        }
        let mut names = BTreeSet::new();
        for (at, replicated) in list_replicated_jobs(&self.facts.object).enumerate() {
            let placement = placement_of(self.facts, &replicated);
            let template = Template {
                at,
                replicated: &replicated,
                placement_hash: hash_placement(&placement),
                placement,
                hash: hash_template(&replicated),
            };
            for index in 0..replicated.replicas {
                let name = name_child(&self.facts.key.name, replicated.name, index);
                self.plan_child(&mut plan, &template, &name);
                names.insert(name);
            }
        }
        let stale = |name: &&Arc<str>| !names.contains(&***name);
        for name in self.children.keys().filter(stale) {
            let job = self.find_job(name).filter(|job| !job.deleting);
            let ours = job.filter(|job| self.owns(job.child.as_ref().map(|child| &child.owner)));
            if let Some(job) = ours {
                let delete = || HyperJobWrite::Delete(ChildKind::Job, Arc::clone(name), Arc::clone(&job.uid));
                plan.add(self, (ChildKind::Job, Arc::clone(name)), delete);
            }
        }
        let policies = self.policies.into_iter().flatten().filter(|(name, _)| stale(name));
        policies.for_each(|(_, policy)| self.plan_policy_deletion(&mut plan, policy));
        plan
    }

    /// Only its own.
    fn plan_policy_deletion(&self, plan: &mut HyperJobPlan, policy: &PolicyFacts) {
        if self.owns(policy.owner.as_ref()) && !policy.deleting {
            let name = Arc::clone(&policy.key.name);
            let delete = || HyperJobWrite::Delete(ChildKind::Policy, Arc::clone(&name), Arc::clone(&policy.uid));
            plan.add(self, (ChildKind::Policy, Arc::clone(&name)), delete);
        }
    }

    fn plan_child(&self, plan: &mut HyperJobPlan, template: &Template<'_>, name: &str) {
        let mut child = ChildState {
            name: name.to_owned(),
            replicated: template.at,
            is_made: false,
            waits: None,
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
            policy.into_iter().for_each(|policy| self.plan_policy_deletion(plan, policy));
        } else if policy.is_some_and(|policy| !self.owns(policy.owner.as_ref())) {
            plan.taken.push(format!("a PropagationPolicy {name:?} that this HyperJob does not own is there"));
        } else {
            self.plan_child_write(plan, (job, policy), name, template);
        }
        // One that ended keeps its counts when it is gone.
        let ended =
            || self.children.get(name).filter(|child| child.owner == self.facts.uid && is_final_state(&child.state));
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
        if !is_final_state(&child.state) {
            child.waits = self.find_wait(job.filter(|_| !is_foreign));
        }
        plan.children.push(child);
    }

    /// Why a job that did not end holds no quota, by its PodGroup; nothing if it holds some.
    fn find_wait(&self, job: Option<&Workload>) -> Option<String> {
        let status = job.and_then(|job| self.objects.pod_groups.find(job)).map(|group| &group.status);
        match status {
            Some(status) if !["", "Pending"].contains(&status.phase.as_str()) => None,
            Some(status) => Some(status.message.clone()),
            None => Some(String::new()),
        }
    }

    /// As what a job ended, whether it is there yet or not.
    fn find_end(&self, name: &str) -> Option<Value> {
        let seen = self.children.get(name).filter(|child| child.owner == self.facts.uid);
        let seen = seen.map(|child| &child.state).filter(|state| is_final_state(state));
        seen.or_else(|| find_recorded_end(&self.facts.object, name)).cloned()
    }

    fn plan_child_write(
        &self,
        plan: &mut HyperJobPlan,
        (job, policy): (Option<&Workload>, Option<&PolicyFacts>),
        name: &str,
        template: &Template<'_>,
    ) {
        let (replicated, placement) = (template.replicated, &template.placement);
        let target = |kind: ChildKind| (kind, Arc::from(name));
        let Some(policy) = policy else {
            return plan.add(self, target(ChildKind::Policy), || {
                let policy = build_policy(self.facts, replicated, name, placement);
                HyperJobWrite::Create(ChildKind::Policy, name.into(), policy)
            });
        };
        if policy.deleting {
            return;
        }
        if *policy.hash != *template.placement_hash {
            return plan.add(self, target(ChildKind::Policy), || {
                let patch = patch_policy(&policy.resource_version, placement);
                HyperJobWrite::Change(ChildKind::Policy, name.into(), patch)
            });
        }
        let Some(job) = job else {
            return plan.add(self, target(ChildKind::Job), || {
                let job = build_child(self.facts, replicated, name);
                HyperJobWrite::Create(ChildKind::Job, name.into(), job)
            });
        };
        if job.child.as_ref().is_some_and(|child| *child.hash != *template.hash) && !job.deleting {
            plan.add(self, target(ChildKind::Job), || {
                let patch = patch_child(&job.resource_version, name, replicated.template());
                HyperJobWrite::Change(ChildKind::Job, name.into(), patch)
            });
        }
    }

    pub(super) fn build_status_write(
        &self,
        children: &[ChildState],
        problem: Option<&str>,
        now: Timestamp,
    ) -> Option<HyperJobWrite> {
        let status = build_status(self.facts, children, problem, now);
        let before = &self.facts.object["status"];
        let is_new = *before != status;
        is_new.then(|| HyperJobWrite::Status(merge_status(&self.facts.resource_version, before, &status)))
    }
}
