//! Assumed pods: what a decision gives clusters counts as used in the fleet until the pods are seen there. And the
//! clock of the cache: what is over by its time.
//!
//! Rule (kube-scheduler's `AssumePod`; karmada-scheduler `pkg/scheduler/cache/cache.go`): pods of a kind whose template
//! is not read can not be told from others, because a custom resource makes any pods it likes. They are assumed as the
//! binding describes them until the aggregated status says that the workload is healthy in the cluster, but not longer
//! than karmada-scheduler assumes them: five minutes from when they were scheduled. Pods of a kind whose template is
//! read are assumed as long as the binding shows them there and has not ended.
//!
//! The time of the cache is set here ([`Cache::advance_time`]). Three things end by it: such an assumption, then what
//! was unschedulable is due; the wait of a binding for its queue ([`queue_arrival`](super::queue_arrival)), then that
//! is due; a maintenance window, then all bindings are.

use std::{collections::BTreeMap, sync::Arc};

use caldera_core::{fleet::AssumedPods, gang::Gang, place::Target, plan::Plan, time::EpochSeconds};
use jiff::{SignedDuration, Timestamp};

use super::{
    super::binding::{Binding, BindingKey},
    Cache,
};

/// How long pods that can not be seen are assumed.
const ASSUMED_FOR: SignedDuration = SignedDuration::from_mins(5);

/// Until when pods that can not be seen are assumed.
#[derive(Debug, Default)]
pub struct AssumeDeadlines {
    /// The time of the last [`Cache::advance_time`].
    pub(super) now: Timestamp,
    until: BTreeMap<BindingKey, Timestamp>,
}

impl Cache {
    /// Sets the time, forgets the pods that were assumed for too long, lets go what waited for its queue for too long,
    /// and has all looked at again where a maintenance window is over: a duplicated one may go there too.
    pub fn advance_time(&mut self, now: Timestamp) {
        let before = std::mem::replace(&mut self.deadlines.now, now);
        self.arrivals.list_over(before, now).iter().for_each(|key| self.mark_due(key));
        self.data_arrivals.list_over(before, now).iter().for_each(|key| self.mark_due(key));
        let seconds = |at: Timestamp| EpochSeconds::from(at);
        if self.fleet.next_maintenance_end(seconds(before)).is_some_and(|end| end <= seconds(now)) {
            self.requeue_all();
        }
        let expired: Vec<BindingKey> =
            self.deadlines.until.iter().filter(|(_, until)| **until <= now).map(|(key, _)| key.clone()).collect();
        for key in &expired {
            self.forget_assumed(key);
        }
        if !expired.is_empty() {
            self.requeue_unschedulable();
        }
    }

    /// When assumed pods expire next, or a wait for a queue or a maintenance window is over.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let expiry = self.deadlines.until.values().min().copied();
        let now = self.deadlines.now;
        let window = self.fleet.next_maintenance_end(EpochSeconds::from(now));
        let window = window.and_then(EpochSeconds::to_timestamp);
        let arrivals = [self.arrivals.next_deadline(now), self.data_arrivals.next_deadline(now)];
        expiry.into_iter().chain(arrivals.into_iter().flatten()).chain(window).min()
    }

    /// Assumes the pods of a decision, until the binding itself shows it.
    pub fn assume_decision(&mut self, key: &BindingKey, targets: &[Target], plan: Option<&Plan>) {
        let found = self.gang_of(key);
        let Some(binding) = self.bindings.get(key) else { return };
        if !binding.groups.is_empty() {
            self.assumed.insert(key.clone(), targets.to_vec());
        }
        let Some((gang, is_read)) = found else { return };
        if !is_read {
            self.deadlines.until.insert(key.clone(), self.deadlines.now + ASSUMED_FOR);
        }
        let assumed = assumed_pods(binding, &gang, targets, plan, |_| true);
        self.fleet.assume_pods(&key.to_string(), assumed);
    }

    /// Assumes the pods that the binding itself shows, also after a decision could not be written.
    pub fn update_assumed_pods(&mut self, key: &BindingKey) {
        self.assumed.remove(key);
        let found = self.gang_of(key);
        self.follow_selected_nodes(key, found.as_ref().map(|(gang, _)| &**gang));
        let placed = self.bindings.get(key).filter(|binding| binding.ours && !binding.place.previous.is_empty());
        let (Some(binding), Some((gang, is_read))) = (placed, found) else {
            self.forget_assumed(key);
            return;
        };
        if is_read {
            self.deadlines.until.remove(key);
        } else {
            let scheduled = binding.status.last_scheduled.map(|at| at + ASSUMED_FOR);
            let until = scheduled.max(self.deadlines.until.get(key).copied());
            let Some(until) = until.filter(|until| *until > self.deadlines.now) else {
                self.forget_assumed(key);
                return;
            };
            self.deadlines.until.insert(key.clone(), until);
        }
        let (targets, plan) = (&binding.place.previous, binding.plan.as_ref());
        let holds =
            |cluster: &str| !binding.ended.contains_key(cluster) && (is_read || !binding.healthy.contains(cluster));
        let assumed = assumed_pods(binding, &gang, targets, plan, holds);
        self.fleet.assume_pods(&key.to_string(), assumed);
    }

    pub(crate) fn forget_assumed(&mut self, key: &BindingKey) {
        self.deadlines.until.remove(key);
        self.fleet.forget_assumed(&key.to_string());
    }

    /// Has members' shapes carry the labels that the admission of a binding keeps its pods to.
    fn follow_selected_nodes(&mut self, key: &BindingKey, gang: Option<&Gang>) {
        let is_kept = self.bindings.get(key).is_some_and(is_restricted);
        self.fleet.set_selected_labels(&key.to_string(), gang.filter(|_| is_kept));
    }

    /// What a binding's pods request, on the nodes that they may use, and whether that is read from its template.
    pub(crate) fn gang_of(&mut self, key: &BindingKey) -> Option<(Arc<Gang>, bool)> {
        let binding = self.bindings.get(key)?;
        let Some(Ok(gang)) = self.request_of(binding).map(|request| &request.gang) else {
            return Some((binding.replica.clone().filter(|replica| replica.replicas() > 0)?, false));
        };
        let Some(record) = binding.admission.as_ref().filter(|_| is_restricted(binding)) else {
            return Some((Arc::clone(gang), true));
        };
        // It is made anew for each event of each binding.
        let restricted = Arc::new(gang.keep_to_card(record.card.as_ref()).restrict_to_nodes(&record.nodes));
        Some((self.gangs.intern(restricted), true))
    }
}

/// Whether the admission of a binding keeps its pods to some nodes, or has them prefer some.
fn is_restricted(binding: &Binding) -> bool {
    binding.admission.as_ref().is_some_and(|record| !record.nodes.is_empty() || record.card.is_some())
}

/// The pods of each task in each cluster that `holds` them: by the plan, or by the targets for kinds without a plan.
fn assumed_pods(
    binding: &Binding,
    gang: &Arc<Gang>,
    targets: &[Target],
    plan: Option<&Plan>,
    holds: impl Fn(&str) -> bool,
) -> AssumedPods {
    let share = |target: &Target| -> Vec<u32> {
        match plan.and_then(|plan| plan.clusters.get(target.cluster.as_str())) {
            Some(share) => {
                gang.tasks.iter().map(|task| share.tasks.get(&task.name).map_or(0, |share| share.replicas)).collect()
            }
            None if gang.tasks.len() == 1 => vec![u32::try_from(target.replicas).unwrap_or(0)],
            None => gang.tasks.iter().map(|task| task.replicas).collect(),
        }
    };
    let held = targets.iter().filter(|target| holds(&target.cluster));
    AssumedPods {
        workload: binding.workload.clone(),
        gang: Arc::clone(gang),
        pods: held.map(|target| (target.cluster.clone(), share(target))).collect(),
        pinned: plan.map(Plan::pinned_domains).unwrap_or_default(),
    }
}
