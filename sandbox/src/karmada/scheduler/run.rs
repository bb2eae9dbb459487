//! karmada-scheduler at work: one binding at a time, by priority, then by arrival.

use std::{collections::BTreeMap, sync::Arc, sync::Mutex, time::Duration};

use serde_json::{Value, json};

use super::{
    estimate::Demand,
    plan::{self, NotPlaced, Placed, Step},
};
use crate::karmada::{
    api::{ApiError, Change, Writer, lock_state},
    control::{Control, SCHEDULER, binding_kind, cluster_binding_kind, cluster_kind},
    events::About,
    object::{Gvk, ObjectExt, ObjectKey, Shared, set_condition},
    queue::{Failure, Next, Queue},
};

const SOURCE: &str = "default-scheduler";
const UNSCHEDULABLE_AGAIN: Duration = Duration::from_secs(300);
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LAST_BACKOFF: Duration = Duration::from_secs(10);
/// Bindings are looked for in a queue of their own first: two clusters that change at once are seen together.
const AFTER_CLUSTER: Duration = Duration::from_millis(10);

type Key = (Gvk, String, String);

struct Scheduler {
    control: Arc<Control>,
    writer: Writer,
    queue: Arc<Queue<Key>>,
    failures: Mutex<BTreeMap<Key, u32>>,
}

/// Starts to schedule.
pub fn run_scheduler(control: &Arc<Control>) {
    let own = control.clone();
    let rank = move |(gvk, namespace, name): &Key| {
        own.host.cached(gvk, namespace, name).map_or(0, |binding| binding.number("/spec/schedulePriority/priority"))
    };
    let scheduler = Arc::new(Scheduler {
        control: control.clone(),
        writer: control.host.writer(SCHEDULER),
        queue: Queue::ranked("scheduler", rank, control.shutdown.clone()),
        failures: Mutex::default(),
    });
    for gvk in [binding_kind(), cluster_binding_kind()] {
        let (queue, kind) = (scheduler.queue.clone(), gvk.clone());
        control.host.add_handler(
            &gvk,
            Arc::new(move |change: &Change| {
                let Some(new) = change.new.as_ref().filter(|new| plan::is_scheduled_here(new)) else { return };
                let known = change.old.as_ref().filter(|old| plan::is_scheduled_here(old));
                if known.is_none_or(|old| old.generation() != new.generation()) {
                    queue.add((kind.clone(), new.namespace().to_owned(), new.name().to_owned()));
                }
            }),
        );
    }
    let own = scheduler.clone();
    control.host.add_handler(&cluster_kind(), Arc::new(move |change: &Change| own.cluster_changed(change)));
    let own = scheduler.clone();
    scheduler.queue.run(1, move |key| {
        let own = own.clone();
        async move { own.schedule_binding(&key).await }
    });
}

impl Scheduler {
    /// A cluster that came, leaves, or was labelled, tainted or otherwise specified anew concerns the bindings whose
    /// placement could name it.
    fn cluster_changed(&self, change: &Change) {
        let sides: Vec<&Shared> = change.old.iter().chain(change.new.iter()).collect();
        if let [old, new] = sides.as_slice()
            && old.generation() == new.generation()
            && old.labels() == new.labels()
            && old.is_deleting() == new.is_deleting()
        {
            return;
        }
        let clusters = plan::read_clusters(&sides.into_iter().cloned().collect::<Vec<_>>());
        for gvk in [binding_kind(), cluster_binding_kind()] {
            for binding in self.control.host.list(&gvk) {
                let placement = binding.present("/spec/placement");
                if placement.is_none() || !plan::follows_clusters(&binding) || binding.is_deleting() {
                    continue;
                }
                let Ok(read) = plan::read_binding(&binding) else { continue };
                if clusters.iter().any(|(cluster, _)| caldera_core::place::may_select(&read, cluster)) {
                    let key = (gvk.clone(), binding.namespace().to_owned(), binding.name().to_owned());
                    self.queue.add_after(key, AFTER_CLUSTER);
                }
            }
        }
    }

    async fn schedule_binding(&self, key: &Key) -> Result<Next, Failure> {
        let (gvk, namespace, name) = key;
        let Some(binding) = self.control.host.cached(gvk, namespace, name) else { return Ok(Next::Done) };
        let what = if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") };
        if binding.is_deleting() {
            let kind = if namespace.is_empty() { "clusterResourceBinding" } else { "resourceBinding" };
            self.record_events(&binding, true, &format!("skip schedule deleting {kind}: {what}"));
            return Ok(Next::Done);
        }
        let leaving = |cluster: &str| self.control.cluster(cluster).is_some_and(|cluster| cluster.is_deleting());
        match plan::next_step(&binding, self.control.gates, leaving) {
            Step::Nothing => return Ok(Next::Done),
            Step::Observe => {
                let patch = json!({"status": {"schedulerObservedGeneration": binding.generation()}});
                return match self.writer.merge(&ObjectKey::of(&binding), "status", &patch).await {
                    Err(error) if !error.is_not_found() => Err(error.into()),
                    _ => Ok(Next::Done),
                };
            }
            Step::Schedule => {}
        }
        let clusters = plan::read_clusters(&self.control.host.list(&cluster_kind()));
        let demand = plan::demand_of_binding(&binding, self.control.gates);
        let outcome = plan::read_binding(&binding).and_then(|mut read| {
            if self.control.gates.workload_affinity && !namespace.is_empty() {
                read.peers = plan::find_peers(&binding, &self.control.host.list_in(gvk, namespace));
            }
            plan::schedule_binding(&read, demand, &clusters)
        });
        let (written, refused) = match outcome {
            Ok(placed) => (self.write_placement(&binding, &placed, demand).await, None),
            Err(why) => (self.write_refusal(&binding, &why).await, Some(why)),
        };
        match (written, refused) {
            (Ok(()), None) => {
                lock_state(&self.failures).remove(key);
                Ok(Next::Done)
            }
            (Ok(()), Some(NotPlaced::NoClusterFit(_))) => Ok(Next::Done),
            (Ok(()), Some(NotPlaced::Unschedulable(_))) => Ok(Next::After(UNSCHEDULABLE_AGAIN)),
            (Ok(()), Some(NotPlaced::Failed(_))) => Ok(Next::After(self.next_backoff(key))),
            (Err(error), _) if error.is_not_found() => Ok(Next::Done),
            (Err(error), _) => {
                let reason = if error.reason() == "QuotaExceeded" { "QuotaExceeded" } else { "SchedulerError" };
                let message = error.message();
                self.write_condition(&binding, "False", reason, &message, None).await.map_err(Failure::from)?;
                self.record_events(&binding, true, &message);
                Ok(Next::After(self.next_backoff(key)))
            }
        }
    }

    fn next_backoff(&self, key: &Key) -> Duration {
        let mut failures = lock_state(&self.failures);
        let count = failures.entry(key.clone()).or_default();
        let gap = FIRST_BACKOFF.saturating_mul(1 << (*count).min(8)).min(LAST_BACKOFF);
        *count += 1;
        gap
    }

    async fn write_placement(&self, binding: &Value, placed: &Placed, demand: Demand<'_>) -> Result<(), ApiError> {
        let key = ObjectKey::of(binding);
        let clusters = plan::clusters_value(&placed.targets, demand);
        if let Some(patch) = plan::placement_patch(binding, Some(&clusters)) {
            self.writer.merge(&key, "", &patch).await?;
        }
        let observed = binding.text("/status/schedulerObservingAffinityName");
        if let Some(affinity) = placed.affinity.as_ref().filter(|affinity| *affinity != observed) {
            self.writer.merge(&key, "status", &json!({"status": {"schedulerObservingAffinityName": affinity}})).await?;
        }
        let message = "Binding has been scheduled successfully.";
        self.write_condition(binding, "True", "Success", message, Some(binding.generation())).await?;
        self.record_events(binding, false, &format!("{message} Result: {}", plan::result_text(&placed.targets)));
        Ok(())
    }

    async fn write_refusal(&self, binding: &Value, why: &NotPlaced) -> Result<(), ApiError> {
        if let (NotPlaced::NoClusterFit(_), Some(patch)) = (why, plan::placement_patch(binding, None)) {
            self.writer.merge(&ObjectKey::of(binding), "", &patch).await?;
        }
        self.write_condition(binding, "False", why.reason(), why.message(), None).await?;
        self.record_events(binding, true, why.message());
        Ok(())
    }

    /// A merge patch of the whole list of conditions, as it was read: somebody else's entry of the same moment is lost.
    async fn write_condition(
        &self,
        binding: &Value,
        status: &str,
        reason: &str,
        message: &str,
        observed: Option<i64>,
    ) -> Result<(), ApiError> {
        let now = self.control.now();
        let mut conditions = binding.items("/status/conditions").to_vec();
        let condition = json!({"type": "Scheduled", "status": status, "reason": reason, "message": message});
        let mut patch = json!({"status": {}});
        if set_condition(&mut conditions, condition, &now) {
            patch.put(&["status", "conditions"], Value::Array(conditions));
        }
        if let Some(generation) = observed {
            patch.put(&["status", "schedulerObservedGeneration"], json!(generation));
            patch.put(&["status", "lastScheduledTime"], json!(now));
        }
        if patch["status"].as_object().is_some_and(|status| !status.is_empty()) {
            self.writer.merge(&ObjectKey::of(binding), "status", &patch).await?;
        }
        Ok(())
    }

    fn record_events(&self, binding: &Value, warning: bool, message: &str) {
        for about in [About::object(binding), About::template(binding)] {
            if warning {
                self.control.events.warning(SOURCE, about, "ScheduleBindingFailed", message);
            } else {
                self.control.events.normal(SOURCE, about, "ScheduleBindingSucceed", message);
            }
        }
    }
}
