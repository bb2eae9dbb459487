//! What must hold of Deployments: their pods are useful one by one and never end, and their templates change.

use serde_json::Value;

use super::{Invariants, LATE, number, record, targets};
use crate::workloads::{
    self, Amount, fits, list_tasks, name_binding, name_work, name_workload, read_amount, read_binding, times,
};

/// Pods that a record grants, whatever it calls their task.
fn count_granted(record: &Value) -> u64 {
    record["tasks"].as_object().unwrap().values().map(number).sum()
}

impl Invariants {
    /// What is granted until it is placed, and then what is placed of it: at the requests that were granted, whatever
    /// the template says by now. Pods beyond a record that was cut go, and are as they were sent.
    pub(super) fn compute_held_by_service(&self, name: &str, binding: &Value, record: &Value) -> Amount {
        let (granted, charged) = (count_granted(record), read_amount(&record["charged"]));
        let placed: u64 = targets(binding).values().sum();
        if placed == 0 || granted == 0 {
            return charged;
        }
        let held = charged.map(|charged| (charged * placed).div_ceil(granted));
        if placed <= granted {
            return held;
        }
        let (mut sent, work) = (Amount::default(), name_work(name));
        for (_, amount) in self.sent.iter().filter(|((of, _), _)| *of == work) {
            workloads::add(&mut sent, *amount);
        }
        std::array::from_fn(|at| charged[at].max(held[at].min(sent[at])))
    }

    /// No more pods are placed than were granted; of those that were placed when less was granted none is added.
    pub(super) fn service_is_within_its_record(&mut self, now: u128, name: &str, old: Option<&Value>, binding: &Value) {
        let charged = record(binding).map_or_else(Amount::default, |record| read_amount(&record["charged"]));
        let charges = self.charges.entry(name.to_owned()).or_default();
        if charges.last().is_none_or(|(_, last)| *last != charged) {
            charges.push((now, charged));
        }
        let placed: u64 = targets(binding).values().sum();
        let before: u64 = old.map(|old| targets(old).values().sum()).unwrap_or_default();
        let granted = record(binding).map_or(0, |record| count_granted(&record));
        assert!(placed <= granted.max(before), "{name}: {placed} pods are placed, and {granted} granted: {binding}");
    }

    /// What a member is sent was charged as a whole: a template that asks for more waits on the host.
    pub(super) fn copy_was_charged(&mut self, now: u128, name: &str, namespace: &str, work: &Value) {
        let task = &list_tasks(&work["spec"]["workload"]["manifests"][0])[0];
        let asked = times(task.each, task.replicas);
        self.sent.insert((name.to_owned(), namespace.to_owned()), asked);
        let charges = self.charges.get(read_binding(work)).map(Vec::as_slice).unwrap_or_default();
        let ends = charges.iter().skip(1).map(|(from, _)| *from).chain([now]);
        let mut counting = charges.iter().zip(ends).filter(|(_, end)| end + LATE >= now);
        let was_charged = counting.any(|((_, charged), _)| fits(asked, *charged));
        assert!(was_charged, "{name}: a member is sent {asked:?}, and charged were {charges:?}: {work}");
    }

    /// Whether a Deployment runs as its user wants it, and is charged for that and no more.
    pub fn is_served(&self, service: &str) -> bool {
        let Some(workload) = self.jobs.get(service) else { return false };
        let Some(binding) = self.bindings.get(&name_binding(workload)) else { return false };
        let task = &list_tasks(workload)[0];
        let charged = record(binding).map(|record| read_amount(&record["charged"]));
        targets(binding).values().sum::<u64>() == task.replicas
            && workload["status"]["readyReplicas"] == task.replicas
            && charged == Some(times(task.each, task.replicas))
    }

    /// Names of Deployments.
    pub fn services(&self) -> Vec<String> {
        let bindings = self.bindings.keys().filter(|name| name.ends_with("-deployment"));
        bindings.map(|name| name_workload(name).to_owned()).collect()
    }
}
