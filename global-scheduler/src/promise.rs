//! What bindings are promised: the pods that a decision gives clusters, held in the fleet until they are seen there.
//!
//! Pods of a kind whose template is not read can not be told from others: a custom resource makes them by whatever it
//! likes. They are held as the binding describes them until the aggregated status says that the workload is healthy in the
//! cluster, but no longer than karmada-scheduler assumes them: five minutes from when it was scheduled.

use std::{collections::BTreeMap, sync::Arc};

use caldera_core::{fleet::Promise, gang::Gang, place::Target, plan::Plan};
use jiff::{SignedDuration, Timestamp};

use crate::{
    binding::{Binding, Key},
    index::Index,
};

/// How long pods that can not be seen are held.
const UNSEEN_FOR: SignedDuration = SignedDuration::from_mins(5);

/// Until when pods that can not be seen are held.
#[derive(Debug, Default)]
pub struct Deadlines {
    /// The time, as it was last told.
    now: Timestamp,
    until: BTreeMap<Key, Timestamp>,
}

impl Index {
    /// Tells the time: what can not be seen is not held for ever.
    pub fn set_now(&mut self, now: Timestamp) {
        self.deadlines.now = now;
        let over: Vec<Key> =
            self.deadlines.until.iter().filter(|(_, until)| **until <= now).map(|(key, _)| key.clone()).collect();
        for key in &over {
            self.withdraw(key);
        }
        if !over.is_empty() {
            self.more_room();
        }
    }

    /// When a promise ends next because of the time.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.until.values().min().copied()
    }

    /// Holds what a decision promises, until the binding itself says it.
    pub fn assume(&mut self, key: &Key, targets: &[Target], plan: Option<&Plan>) {
        let Some(binding) = self.bindings.get(key) else { return };
        if !binding.groups.is_empty() {
            self.assumed.insert(key.clone(), targets.to_vec());
        }
        let Some((gang, is_read)) = self.gang(binding) else { return };
        if !is_read {
            self.deadlines.until.insert(key.clone(), self.deadlines.now + UNSEEN_FOR);
        }
        let promise = promise(binding, &gang, targets, plan, |_| true);
        self.fleet.promise(&key.to_string(), promise);
    }

    /// Holds what the binding itself says (after a decision could not be written, too).
    pub fn promise(&mut self, key: &Key) {
        self.assumed.remove(key);
        let found = self.bindings.get(key).filter(|binding| binding.ours && !binding.place.previous.is_empty());
        let Some((binding, (gang, is_read))) = found.and_then(|binding| Some((binding, self.gang(binding)?))) else {
            self.withdraw(key);
            return;
        };
        if is_read {
            self.deadlines.until.remove(key);
        } else {
            let scheduled = binding.status.last_scheduled.map(|at| at + UNSEEN_FOR);
            let until = scheduled.max(self.deadlines.until.get(key).copied());
            let Some(until) = until.filter(|until| *until > self.deadlines.now) else {
                self.withdraw(key);
                return;
            };
            self.deadlines.until.insert(key.clone(), until);
        }
        let (targets, plan) = (&binding.place.previous, binding.plan.as_ref());
        let holds =
            |cluster: &str| !binding.ended.contains_key(cluster) && (is_read || !binding.healthy.contains(cluster));
        let promise = promise(binding, &gang, targets, plan, holds);
        self.fleet.promise(&key.to_string(), promise);
    }

    pub(crate) fn withdraw(&mut self, key: &Key) {
        self.deadlines.until.remove(key);
        self.fleet.withdraw(&key.to_string());
    }

    /// What a binding's pods ask for, and whether its template says so.
    fn gang(&self, binding: &Binding) -> Option<(Arc<Gang>, bool)> {
        match self.asked(binding).map(|asked| &asked.gang) {
            Some(Ok(gang)) => Some((Arc::clone(gang), true)),
            _ => Some((binding.replica.clone().filter(|replica| replica.replicas() > 0)?, false)),
        }
    }
}

/// The pods of each task that a plan (or, for kinds without one, the targets) gives each cluster that `holds` them.
fn promise(
    binding: &Binding,
    gang: &Arc<Gang>,
    targets: &[Target],
    plan: Option<&Plan>,
    holds: impl Fn(&str) -> bool,
) -> Promise {
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
    Promise {
        workload: binding.workload.clone(),
        gang: Arc::clone(gang),
        pods: held.map(|target| (target.cluster.clone(), share(target))).collect(),
        within: plan.map(Plan::within).unwrap_or_default(),
    }
}
