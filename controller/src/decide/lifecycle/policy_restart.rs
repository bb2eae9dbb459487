//! Split jobs of which a copy restarted by its own policies: the whole job restarts, or fails once that was tried often
//! enough.
//!
//! Rule: Volcano's `RestartJob` (`pkg/controllers/job/state`) restarts all pods of a job, counts that in `retryCount`,
//! and fails the job when the count reaches `maxRetry`. A member knows its own copy only: the others would run on
//! beside one that begins anew. So a split job of which a copy restarted is taken off all its clusters in one patch, as
//! by Command `RestartJob`, and is in line with its age. Restarts are counted in the record on the binding
//! (`caldera.dev/eviction`), since copies made anew begin at 0; the merged `retryCount` is never below it. At
//! `maxRetry` the job ends as Failed (`caldera.dev/end-as`).
//!
//! Volcano raises a copy's `version` only where it kills the whole copy (`killPods`): so `RestartPod`, `RestartTask`
//! and `RestartPartition`, which raise `retryCount` too, stay what they are: the matter of one cluster. So does what a
//! copy counted while it was the whole job, before the job grew into a second cluster.
//!
//! A copy whose pods all failed has failed, for its Volcano, before the policy of the first failed pod is looked at. As
//! one job it would have restarted: so it does where every pod that fails restarts the job.

use std::{collections::BTreeMap, sync::Arc};

use caldera_core::{gang::ClusterName, queue::ledger::AdmissionStage, text::count_noun};
use caldera_crds::names::caldera::END_AS;
use caldera_runtime::event::EventType;
use jiff::{SignedDuration, Timestamp};

use super::withdrawal::is_suspended_by_another;
use crate::{
    decide::{
        bindings::{eviction::restart_by_policy, jobs::Jobs},
        deadlines::{Deadlines, add_wait},
    },
    observe::{Binding, Key, Objects, Workload},
    write::Decision,
};

/// After a write that may have failed.
const RETRY_AFTER_WRITE: SignedDuration = SignedDuration::from_secs(5);
/// Event on a split job: its own policies restarted it `maxRetry` times, and it failed.
const MAX_RETRY_REACHED: &str = "MaxRetryReached";

/// Jobs that are to restart, or to fail.
#[derive(Debug, Default)]
pub(crate) struct PolicyRestarts {
    /// The bindings, and the version that each is at.
    due: Deadlines<Arc<str>>,
    /// How often copies restarted while each was its whole job. Lost with the process: then one restart too many.
    alone: BTreeMap<Key, Vec<(ClusterName, u64)>>,
}

/// What is to be done about a job.
#[derive(Debug, PartialEq, Eq)]
enum RestartStep {
    /// Take it off its clusters, because this copy restarted.
    Restart(ClusterName),
    /// It restarted so often.
    Fail(u32),
}

impl PolicyRestarts {
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.due.next_due()
    }

    pub(crate) fn forget(&mut self, key: &Key) {
        self.due.forget(key);
        self.alone.remove(key);
    }

    /// Takes in the state of a binding.
    pub(crate) fn observe_binding(
        &mut self,
        binding: &Binding,
        workload: Option<&Workload>,
        stage: Option<AdmissionStage>,
        now: Timestamp,
    ) {
        match is_split(binding) {
            false if binding.restarted_copies.is_empty() => drop(self.alone.remove(&binding.key)),
            false => drop(self.alone.insert(binding.key.clone(), binding.restarted_copies.clone())),
            true => {}
        }
        if workload.and_then(|workload| self.decide_next_step(binding, workload, stage)).is_none() {
            return self.due.forget(&binding.key);
        }
        if self.due.get_mut(&binding.key).is_none_or(|(_, version)| *version != binding.resource_version) {
            self.due.set(&binding.key, now, Arc::clone(&binding.resource_version));
        }
    }

    /// Takes the next step of each.
    pub(crate) fn restart_or_fail_jobs(&mut self, objects: &Objects, jobs: &Jobs, now: Timestamp) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for key in self.due.list_due(now) {
            self.due.postpone(&key, add_wait(now, RETRY_AFTER_WRITE));
            let Some(binding) = jobs.find_confirmed(objects, &key) else { continue };
            let Some(workload) = objects.workload_of(binding) else { continue };
            let stage = jobs.states.get(&key).and_then(|state| state.stage());
            match self.decide_next_step(binding, workload, stage) {
                Some(RestartStep::Restart(cluster)) => {
                    let times = binding.count_policy_restarts().saturating_add(1);
                    let why = format!(
                        "its part in {cluster} was restarted by the job's policies, and so is all of it: {times} of at most \
                         {}",
                        count_noun(workload.max_retry, "time")
                    );
                    decisions.push(restart_by_policy(binding, why, now));
                }
                Some(RestartStep::Fail(times)) => {
                    let why = format!(
                        "its policies restarted it {}, which is its maxRetry: it fails",
                        count_noun(times, "time")
                    );
                    decisions.push(Decision::build_workload_event(
                        workload,
                        EventType::Warning,
                        MAX_RETRY_REACHED,
                        why,
                    ));
                    decisions.push(Decision::AnnotateJob {
                        key: Key::new(&workload.reference.namespace, &workload.reference.name),
                        resource_version: Arc::clone(&workload.resource_version),
                        name: END_AS,
                        value: Some("Failed"),
                    });
                }
                None => {}
            }
        }
        decisions
    }

    fn decide_next_step(
        &self,
        binding: &Binding,
        workload: &Workload,
        stage: Option<AdmissionStage>,
    ) -> Option<RestartStep> {
        let is_over = workload.deleting || workload.progress.ended.is_some() || workload.is_withdrawn();
        if binding.deleting || is_over || is_suspended_by_another(binding) {
            return None;
        }
        if binding.count_policy_restarts() >= workload.max_retry {
            return Some(RestartStep::Fail(binding.count_policy_restarts()));
        }
        let alone = self.alone.get(&binding.key).into_iter().flatten();
        let is_known = |copy: &(ClusterName, u64)| alone.clone().any(|known| known.0 == copy.0 && known.1 >= copy.1);
        let restarted = binding.restarted_copies.iter().find(|copy| !is_known(copy)).map(|(cluster, _)| cluster);
        let tries = |times: u64| u64::from(binding.count_policy_restarts()).saturating_add(times);
        let fails_for_good = |copy: &&(ClusterName, u64)| tries(copy.1) >= u64::from(workload.max_retry);
        // As the job's merged status has it.
        let fails =
            !workload.restarts_when_a_pod_fails || binding.failed_copies.iter().any(|copy| fails_for_good(&copy));
        let failed = binding.failed_copies.first().filter(|_| !fails).map(|(cluster, _)| cluster);
        let cluster = restarted.or(failed)?;
        (stage == Some(AdmissionStage::Placed) && is_split(binding)).then(|| RestartStep::Restart(cluster.clone()))
    }
}

/// Each copy of a duplicated job is a job of its own, with policies of its own.
fn is_split(binding: &Binding) -> bool {
    let is_duplicated = binding.admission.as_ref().is_some_and(|record| record.copies > 1);
    !is_duplicated && binding.plan.as_ref().is_some_and(|plan| plan.is_split())
}
