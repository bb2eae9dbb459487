//! What a Volcano Job says of itself while it waits: `status.state`, which `kubectl get vcjob` shows.
//!
//! Rule: it says what its PodGroup says, so that both follow one budget of texts ([`pod_groups`](super::pod_groups)).
//! What has differed for [`COALESCE_TIME`] is written: with the second until its PodGroup is made, a job that starts
//! within a second and a half costs no write. Where writes are slow the first statements on jobs are made in turn, by a
//! budget from their latency, one in a second at least: the PodGroup says it already, and most jobs that start
//! meanwhile need none. The first statement on a job of which nobody has said anything comes with an event, by budget:
//! while more than a few jobs a second begin to wait, the events of those that still wait follow in turn, one in a
//! second at least.
//!
//! The phase is Pending, and Aborted where its user suspended it.
//!
//! Karmada's aggregation writes the same field from what clusters report. So nothing is written here while a cluster
//! has the job or a copy of it, nor over another phase than these two; a write tests the version that it was decided
//! for. An aggregation over no copy keeps what is said here (`caldera_core::status`), and the first one over a copy
//! replaces it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use caldera_core::{queue::ledger::AdmissionStage, reason::Reason};
use caldera_crds::workload::WorkloadKind;
use caldera_runtime::event::EventType;
use jiff::{SignedDuration, Timestamp};

use super::{pod_group_status::find_stage_and_reason, refresh_budget::RefreshBudget};
use crate::{
    decide::{
        bindings::jobs::{JobPhase, Jobs},
        deadlines::add_wait,
    },
    observe::{Key, Objects, PodGroupStatus, SaidState, Workload, fingerprint},
    write::{Decision, pod_group::phase_of},
};

/// From a difference to the write.
const COALESCE_TIME: SignedDuration = SignedDuration::from_millis(500);
/// That are being written at most.
const IN_FLIGHT: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct WaitingStates {
    /// Bindings of jobs that do not say what they should, and when to write it; `None` while it is being written.
    looks: BTreeMap<Key, Option<Timestamp>>,
    due: BTreeSet<(Timestamp, Key)>,
    in_flight: usize,
    /// Jobs that say it and have no event of it yet, in the order of their statements.
    unannounced: VecDeque<Key>,
    is_unannounced: BTreeSet<Key>,
    /// Statements are taken from it, and events.
    budget: RefreshBudget,
    /// First statements on a server that is slow.
    statements: RefreshBudget,
    /// No statement before: there was no budget.
    not_before: Timestamp,
}

impl WaitingStates {
    /// Writes take as long as those that another budget observes.
    pub(crate) const fn set_latency_from(&mut self, other: &RefreshBudget) {
        self.budget.set_latency_from(other);
        self.statements.set_latency_from(other);
    }

    pub(crate) fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        let event = self.unannounced.front().map(|_| self.budget.next_at(now));
        self.next_statement().into_iter().chain(event).min()
    }

    fn next_statement(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| self.not_before.max(*at)).filter(|_| self.in_flight < IN_FLIGHT)
    }

    /// Takes in that a binding, its workload or its PodGroup changed, or is gone.
    pub(crate) fn observe_binding(&mut self, objects: &Objects, jobs: &Jobs, key: &Key, now: Timestamp) {
        let known = self.looks.get(key).copied();
        match (find_outdated_state(objects, jobs, key), known) {
            (_, Some(None)) | (Some(_), Some(Some(_))) | (None, None) => {}
            (Some(_), None) => self.schedule_check(key, add_wait(now, COALESCE_TIME)),
            (None, Some(Some(at))) => {
                self.looks.remove(key);
                self.due.remove(&(at, key.clone()));
            }
        }
    }

    fn schedule_check(&mut self, key: &Key, at: Timestamp) {
        self.looks.insert(key.clone(), Some(at));
        self.due.insert((at, key.clone()));
    }

    /// What is to be written now, and how much of it are texts that follow another.
    pub(crate) fn write_due(&mut self, objects: &Objects, jobs: &Jobs, now: Timestamp) -> (Vec<Decision>, usize) {
        let (mut writes, mut texts) = (Vec::new(), 0);
        while self.next_statement().is_some_and(|at| at <= now) {
            let Some((at, key)) = self.due.pop_first() else { break };
            let Some((workload, status)) = find_outdated_state(objects, jobs, &key) else {
                self.looks.remove(&key);
                continue;
            };
            let is_first = workload.said == SaidState::Nothing;
            if is_first
                && !self.statements.is_server_quick()
                && let Err(later) = self.statements.take_one(now)
            {
                self.due.insert((at, key));
                self.not_before = later;
                break;
            }
            self.budget.take_for_other_write(now);
            writes.push(Decision::StateWaiting {
                key: Key::new(&workload.reference.namespace, &workload.reference.name),
                binding: key.clone(),
                resource_version: workload.resource_version.clone(),
                phase: if is_suspended(status) { "Aborted" } else { "Pending" },
                reason: status.reason.clone(),
                message: status.message.clone(),
                begins: is_first || is_suspended(status) != matches!(workload.said, SaidState::Suspended(_)),
            });
            if !is_first {
                texts += 1;
            } else if self.is_unannounced.insert(key.clone()) {
                self.unannounced.push_back(key.clone());
            }
            self.in_flight += 1;
            self.looks.insert(key, None);
        }
        writes.extend(self.announce_waits(objects, jobs, now));
        (writes, texts)
    }

    /// The events for which there is a budget.
    fn announce_waits(&mut self, objects: &Objects, jobs: &Jobs, now: Timestamp) -> Vec<Decision> {
        let mut events = Vec::new();
        while let Some(key) = self.unannounced.front() {
            if let Some(event) = build_wait_event(objects, jobs, key) {
                if self.budget.take_one(now).is_err() {
                    break;
                }
                events.push(event);
            }
            self.is_unannounced.remove(key);
            self.unannounced.pop_front();
        }
        events
    }

    /// Takes in that a write was answered; after a failure the binding is looked at again after `wait` seconds.
    pub(crate) fn apply_write_answer(
        &mut self,
        objects: &Objects,
        jobs: &Jobs,
        key: &Key,
        wait: Option<i64>,
        now: Timestamp,
    ) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.looks.remove(key);
        match wait {
            Some(wait) => self.schedule_check(key, add_wait(now, SignedDuration::from_secs(wait))),
            None => self.observe_binding(objects, jobs, key, now),
        }
    }
}

/// Whether a job waits because its user suspended it: Volcano's word for that is Aborted.
fn is_suspended(status: &PodGroupStatus) -> bool {
    status.reason == Reason::SUSPENDED_BY_USER
}

/// The event on a job that waits for nothing that somebody has to do; where somebody has, it was recorded with the
/// PodGroup.
fn build_wait_event(objects: &Objects, jobs: &Jobs, key: &Key) -> Option<Decision> {
    let workload = objects.bindings.get(key).and_then(|binding| objects.workload_of(binding))?;
    find_stage_and_reason(jobs, key, None).filter(|(stage, reason)| stage.is_none() && !reason.needs_user_action())?;
    let status = &objects.pod_groups.find(workload)?.status;
    Some(Decision::build_workload_event(workload, EventType::Normal, &status.reason, status.message.clone()))
}

/// A job that does not say what its PodGroup says, where it is ours to say, and what that is.
fn find_outdated_state<'a>(objects: &'a Objects, jobs: &Jobs, key: &Key) -> Option<(&'a Workload, &'a PodGroupStatus)> {
    let (binding, state) = (objects.bindings.get(key)?, jobs.states.get(key)?);
    if binding.deleting || binding.has_copies || !binding.clusters.is_empty() || state.assumed.is_some() {
        return None;
    }
    let workload = objects.workload_of(binding)?;
    if workload.deleting || workload.kind != WorkloadKind::VolcanoJob || workload.end_as.is_some() {
        return None;
    }
    let stage = match state.stage() {
        None if state.phase == JobPhase::OutOfScope => return None,
        stage @ (None | Some(AdmissionStage::Waiting | AdmissionStage::Admitted)) => stage,
        Some(_) => return None,
    };
    let status = &objects.pod_groups.find(workload)?.status;
    let is_of_now = status.phase == phase_of(workload, stage) && !status.reason.is_empty();
    let says_other = |said: u64| said != fingerprint(&(&status.reason, &status.message));
    let differs = match workload.said {
        SaidState::Nothing => true,
        SaidState::Pending(said) => is_suspended(status) || says_other(said),
        SaidState::Suspended(said) => says_other(said),
        SaidState::Other => false,
    };
    (is_of_now && differs).then_some((workload, status))
}
