//! Gangs that are placed and do not start: all parts start together, or the whole gang is requeued.
//!
//! Rule: Kueue's `waitForPodsReady`, for a gang in several clusters. A member's Volcano starts a part once the part's
//! own minimum can run, and knows nothing of the other parts. Where one part finds no capacity after all, the others
//! would hold theirs for nothing. So a gang of which some part has not had its minimum on nodes in time is taken from
//! all clusters in one patch, and requeued with its age after a backoff. The record names the clusters that held it up:
//! the scheduler tries others first. Where nodes may have to come for a part first, it may be later by as long as they
//! take. A part that ran is left alone: one that its member restarts takes nothing from the
//! gang. A job whose own controller makes its pods in its own order, such as a RayJob's submitter once all others run,
//! is late only while none of its pods is on a node. If it names a PriorityClass that does not exist, that is told too:
//! members may have made none of its pods for that.

use caldera_core::{
    gang::ClusterName, plan::ClusterShare, queue::ledger::AdmissionStage, text::count_noun, time::EpochSeconds,
};
use caldera_crds::workload::WorkloadKind;
use caldera_runtime::event::EventType;
use jiff::{SignedDuration, Timestamp};

use crate::{
    decide::{
        bindings::{
            eviction::{JOBS_MISSING, PODS_READY_TIMEOUT, requeue_binding},
            job_gangs::{IncompleteGang, MissingJob},
            jobs::Jobs,
        },
        deadlines::{Deadlines, add_wait},
        fleet::capacity::FleetCapacity,
    },
    observe::{Binding, Key, Objects, Workload},
    write::Decision,
};

/// From the placement on, where the member's pods can be seen.
pub(crate) const DEFAULT_TIMEOUT: SignedDuration = SignedDuration::from_secs(300);
/// So many times as long where only the job's phase is known, which says nothing of pods that pull their images.
const UNSEEN_PODS_FACTOR: u8 = 6;
/// Looked at again after so long at most.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(60);

/// A gang of jobs of which one could not be given up is looked at again after so long.
const GIVE_UP_AGAIN: SignedDuration = SignedDuration::from_secs(5);

/// Gangs that are placed and were not seen to start, and when to look.
#[derive(Debug)]
pub(crate) struct StartDeadlines {
    looks: Deadlines<()>,
    timeout: SignedDuration,
}

impl Default for StartDeadlines {
    fn default() -> Self {
        Self { looks: Deadlines::default(), timeout: DEFAULT_TIMEOUT }
    }
}

impl StartDeadlines {
    /// A part has so long to start from now on.
    pub(crate) fn set_timeout(&mut self, timeout: SignedDuration) {
        self.timeout = timeout;
    }

    #[cfg(test)]
    pub(crate) fn timeout(&self) -> SignedDuration {
        self.timeout
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.looks.next_due()
    }

    pub(crate) fn forget(&mut self, key: &Key) {
        self.looks.forget(key);
    }

    /// Takes in the state of a binding.
    pub(crate) fn observe_binding(
        &mut self,
        binding: &Binding,
        workload: Option<&Workload>,
        stage: Option<AdmissionStage>,
        now: Timestamp,
    ) {
        let may_be_late = stage == Some(AdmissionStage::Placed) && !binding.suspended && binding.plan.is_some();
        if !may_be_late || workload.is_none_or(has_started) {
            self.looks.forget(&binding.key);
        } else if !self.looks.contains(&binding.key) {
            let look = add_wait(placed_at(binding).unwrap_or(now), self.timeout);
            // A restart gives another minute: nothing was seen yet.
            self.looks.set(&binding.key, look.max(self.next_look(now)), ());
        }
    }

    fn next_look(&self, now: Timestamp) -> Timestamp {
        add_wait(now, self.timeout.min(LOOK_AGAIN))
    }

    /// Requeues those whose time is over.
    pub(crate) fn requeue_unstarted(
        &mut self,
        objects: &Objects,
        jobs: &Jobs,
        capacity: &FleetCapacity,
        now: Timestamp,
    ) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for key in self.looks.list_due(now) {
            // It may yet become late, and a write may fail.
            self.looks.postpone(&key, self.next_look(now));
            let Some(binding) = jobs.find_confirmed(objects, &key) else { continue };
            let late = self.list_late_parts(binding, capacity, now);
            if late.is_empty() {
                continue;
            }
            let waited = binding.scheduled.map_or(0, |at| EpochSeconds::from(now).seconds_since(at));
            let missing: Vec<&str> = late.iter().map(|(_, what)| what.as_str()).collect();
            let mut message = format!("{} after {waited} s", missing.join(", "));
            let unknown_class = objects.workload_of(binding).and_then(|it| objects.describe_unknown_class(it));
            unknown_class.iter().for_each(|why| message += &format!("; {why}"));
            decisions.extend(objects.workload_of(binding).map(|workload| {
                let said = format!("withdrawn from all clusters: {message}");
                Decision::build_workload_event(workload, EventType::Warning, PODS_READY_TIMEOUT, said)
            }));
            let avoid = late.iter().map(|(cluster, _)| cluster.to_string()).collect();
            decisions.push(requeue_binding(binding, PODS_READY_TIMEOUT, message, avoid, now));
        }
        decisions
    }

    /// When the first gang of jobs is given up that is not whole.
    pub(crate) fn next_incomplete_gang(&self, jobs: &Jobs) -> Option<Timestamp> {
        jobs.gangs.next_due(self.timeout)
    }

    /// Requeues what holds of gangs of jobs that were not whole for as long as a part may take to start, or of which
    /// one was evicted for another job. Only a job that one decision granted beside others is useless without them: one
    /// that was admitted by itself, as by a controller that knew of no gangs, runs on. So does one of which another is
    /// missing that was not there yet.
    pub(crate) fn give_up_incomplete_gangs(&self, objects: &Objects, jobs: &mut Jobs, now: Timestamp) -> Vec<Decision> {
        let since = now.checked_sub(self.timeout).unwrap_or(Timestamp::MIN);
        let mut decisions = Vec::new();
        for IncompleteGang { gang, holding, missing } in jobs.gangs.take_incomplete_gangs(since, now) {
            // What is written of one right now hides how it stands: the rest of the gang does not stay for a whole
            // timeout because of that.
            if holding.iter().any(|key| jobs.find_confirmed(objects, key).is_none()) {
                jobs.gangs.set_incomplete_since(&gang, add_wait(since, GIVE_UP_AGAIN));
            }
            let created = |key: &Key| objects.bindings.get(key).map(|binding| binding.created);
            let missing: Vec<(EpochSeconds, MissingJob)> =
                missing.into_iter().filter_map(|job| Some((created(&job.binding)?, job))).collect();
            for key in holding {
                let stage = jobs.states.get(&key).and_then(|state| state.stage());
                let Some(binding) = jobs.find_confirmed(objects, &key) else { continue };
                let granted = binding.admission.as_ref().and_then(|record| record.together);
                let was_there = |(created, _): &&(EpochSeconds, MissingJob)| granted.is_some_and(|at| *created <= at);
                let mut waited = missing.iter().filter(was_there);
                let waited = waited.clone().find(|(_, job)| job.is_evicted).or_else(|| waited.next());
                let holds = matches!(stage, Some(AdmissionStage::Admitted | AdmissionStage::Placed));
                let Some((_, job)) = waited.filter(|_| holds && !binding.suspended) else { continue };
                let what = match job.is_evicted {
                    true => "was evicted".to_owned(),
                    false => format!("has waited for {} s", self.timeout.as_secs()),
                };
                let message = format!("{}, without which it is not to run, {what}", job.name);
                decisions.push(requeue_binding(binding, JOBS_MISSING, message, Vec::new(), now));
            }
        }
        decisions
    }

    /// When a gang is given up of which a part is not on nodes; `None` where all parts are, have begun, or are not
    /// seen.
    pub(crate) fn find_deadline(&self, binding: &Binding, capacity: &FleetCapacity) -> Option<Timestamp> {
        let placed = placed_at(binding)?;
        let seen = list_pending_parts(binding, capacity).filter(|part| part.on_nodes.is_some());
        seen.map(|part| add_wait(placed, self.timeout.saturating_add(part.delay))).min()
    }

    /// The parts that have not started, with what is missing; empty where all is well.
    fn list_late_parts(
        &self,
        binding: &Binding,
        capacity: &FleetCapacity,
        now: Timestamp,
    ) -> Vec<(ClusterName, String)> {
        let long = SignedDuration::from_secs(self.timeout.as_secs().saturating_mul(UNSEEN_PODS_FACTOR.into()));
        let is_over = |after: SignedDuration| placed_at(binding).is_none_or(|since| add_wait(since, after) <= now);
        let late = list_pending_parts(binding, capacity).filter_map(|part| {
            let PendingPart { cluster, needs, on_nodes, delay } = part;
            if !delay.is_zero() && !is_over(self.timeout.saturating_add(delay)) {
                return None;
            }
            let unseen_too_long = placed_at(binding).is_some() && is_over(long.saturating_add(delay));
            match on_nodes {
                Some(pods) => {
                    let needs = count_noun(needs, "pod");
                    Some((cluster.clone(), format!("{pods} of the {needs} needed in {cluster} are on nodes")))
                }
                None if unseen_too_long => Some((cluster.clone(), format!("the part in {cluster} is still pending"))),
                None => None,
            }
        });
        late.collect()
    }
}

/// A part that has not begun and that has too few pods on nodes, as far as they are seen.
struct PendingPart<'a> {
    cluster: &'a ClusterName,
    needs: u32,
    on_nodes: Option<u32>,
    /// Of the nodes that its pods may have to wait for.
    delay: SignedDuration,
}

fn list_pending_parts<'a>(binding: &'a Binding, capacity: &'a FleetCapacity) -> impl Iterator<Item = PendingPart<'a>> {
    let parts = binding.plan.iter().flat_map(|plan| &plan.clusters);
    parts.filter(|(cluster, _)| !binding.begun.contains(*cluster)).filter_map(|(cluster, share)| {
        let needs = count_needed(binding, share);
        let on_nodes = capacity.count_pods_on_nodes(cluster.as_str(), &binding.workload);
        if on_nodes.is_some_and(|pods| pods >= needs) {
            return None;
        }
        let delay = capacity.delay_of_nodes(cluster.as_str(), binding.id.as_str());
        Some(PendingPart { cluster, needs, on_nodes, delay })
    })
}

/// Pods of a part that must be on nodes for it to have started.
fn count_needed(binding: &Binding, share: &ClusterShare) -> u32 {
    let kind = WorkloadKind::from_group_and_kind(&binding.workload.group, &binding.workload.kind);
    let starts_in_order = kind.is_some_and(WorkloadKind::starts_in_own_order);
    if starts_in_order { share.min_available.min(1) } else { share.min_available }
}

fn placed_at(binding: &Binding) -> Option<Timestamp> {
    binding.scheduled.and_then(EpochSeconds::to_timestamp)
}

/// Enough of it runs, ran or ended.
pub(crate) fn has_started(workload: &Workload) -> bool {
    let progress = &workload.progress;
    let needs = workload.gang.as_ref().map_or(0, |gang| gang.min_available);
    progress.ended.is_some() || workload.count_running_pods().saturating_add(progress.succeeded) >= needs.max(1)
}
