//! The controllers of evictions at work: the taint manager, graceful eviction, and application failover.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{
    plan::{self, Tolerance, Unhealthy},
    state,
};
use crate::karmada::{
    api::{Change, lock_state},
    control::{Control, binding_kind, cluster_binding_kind, cluster_kind},
    events::About,
    interpreter::Operation,
    object::{Gvk, ObjectExt, Shared},
    queue::{Failure, Next, Queue},
};

/// How often the taint manager looks at a tainted cluster.
const TAINTED_AGAIN: Duration = Duration::from_secs(10);

/// After what graceful eviction saw: in recordings it writes 15 to 20 ms later, and what the members say of a new
/// placement comes first.
const LAG: Duration = Duration::from_millis(20);

type Key = (Gvk, String, String);

fn key_of(gvk: &Gvk, binding: &Value) -> Key {
    (gvk.clone(), binding.namespace().to_owned(), binding.name().to_owned())
}

/// Starts to evict.
pub fn run_controllers(control: &Arc<Control>) {
    run_graceful_eviction(control);
    run_application_failover(control);
    if control.evictions.by_taints {
        run_taint_manager(control);
    }
}

fn until(end: Option<Timestamp>, now: Timestamp) -> Next {
    // A deadline is over only when it is past, and times are written in whole seconds.
    let gap = |end: Timestamp| Duration::try_from(end.duration_since(now)).unwrap_or_default();
    end.map_or(Next::Done, |end| Next::After(gap(end) + Duration::from_millis(1)))
}

fn run_taint_manager(control: &Arc<Control>) {
    let clusters: Arc<Queue<String>> = Queue::new("taints", control.shutdown.clone());
    let bindings: Arc<Queue<(String, Key)>> = Queue::new("taint-evictions", control.shutdown.clone());
    let changed = clusters.clone();
    control.host.add_handler(
        &cluster_kind(),
        Arc::new(move |change: &Change| {
            if let Some(cluster) = change.new.as_ref().filter(|one| !plan::driving_taints(one).is_empty()) {
                changed.add(cluster.name().to_owned());
            }
        }),
    );
    let (own, found) = (control.clone(), bindings.clone());
    clusters.run(1, move |name| {
        let (own, found) = (own.clone(), found.clone());
        async move {
            let tainted = own.cluster(&name).is_some_and(|cluster| !plan::driving_taints(&cluster).is_empty());
            if !tainted {
                return Ok(Next::Done);
            }
            for gvk in [binding_kind(), cluster_binding_kind()] {
                for binding in own.host.list(&gvk).iter().filter(|binding| targets(binding, &name)) {
                    found.add((name.clone(), key_of(&gvk, binding)));
                }
            }
            Ok(Next::After(TAINTED_AGAIN))
        }
    });
    let own = control.clone();
    bindings.run(3, move |(cluster, key)| {
        let own = own.clone();
        async move { leave_tainted(&own, &cluster, &key).await }
    });
}

fn targets(binding: &Value, cluster: &str) -> bool {
    !binding.is_deleting() && binding.items("/spec/clusters").iter().any(|one| one.text("/name") == cluster)
}

async fn leave_tainted(control: &Control, name: &str, (gvk, namespace, binding): &Key) -> Result<Next, Failure> {
    let Some(binding) = control.host.cached(gvk, namespace, binding) else { return Ok(Next::Done) };
    let Some(cluster) = control.cluster(name) else { return Ok(Next::Done) };
    let taints = plan::driving_taints(&cluster);
    if taints.is_empty() || !targets(&binding, name) {
        return Ok(Next::Done);
    }
    let now = control.clock.now();
    match plan::tolerance_of_binding(&binding, &taints, now) {
        Some(Tolerance::Over) => {
            let mut task = plan::task_of_taint(&binding, control.evictions);
            if control.gates.stateful_failover {
                let kept = state::read_preserved(&binding["spec"]["failover"]["cluster"], &binding, name)?;
                task.put_or_remove(&["preservedLabelState"], kept);
            }
            let evict = |binding: &mut Value| plan::evict_cluster(binding, name, task.clone());
            control.writer.modify(&binding, "", evict).await?;
            Ok(Next::Done)
        }
        Some(Tolerance::Until(end)) => Ok(until(Some(end), now)),
        // Without an applied placement Karmada logs an error, and meets the binding again with the cluster.
        Some(Tolerance::Endless) | None => Ok(Next::Done),
    }
}

fn run_graceful_eviction(control: &Arc<Control>) {
    let queue: Arc<Queue<Key>> = Queue::new("graceful-eviction", control.shutdown.clone());
    let left = |binding: &Value| !binding.items("/spec/gracefulEvictionTasks").is_empty();
    follow_bindings(control, &queue, LAG, move |change| change.new.as_ref().is_some_and(|new| left(new)));
    let own = control.clone();
    queue.run(2, move |key| {
        let own = own.clone();
        async move { finish_evictions(&own, &key).await }
    });
}

fn follow_bindings(
    control: &Control,
    queue: &Arc<Queue<Key>>,
    lag: Duration,
    concerns: impl Fn(&Change) -> bool + Clone + Send + Sync + 'static,
) {
    for gvk in [binding_kind(), cluster_binding_kind()] {
        let (queue, kind, concerns) = (queue.clone(), gvk.clone(), concerns.clone());
        control.host.add_handler(
            &gvk,
            Arc::new(move |change: &Change| {
                if let Some(binding) = change.latest().filter(|_| concerns(change)) {
                    queue.add_after(key_of(&kind, binding), lag);
                }
            }),
        );
    }
}

async fn finish_evictions(control: &Control, (gvk, namespace, name): &Key) -> Result<Next, Failure> {
    let Some(binding) = control.host.cached(gvk, namespace, name) else { return Ok(Next::Done) };
    if binding.is_deleting() {
        return Ok(Next::Done);
    }
    let (now, timeout) = (control.clock.now(), SignedDuration::try_from(control.evictions.timeout).unwrap_or_default());
    let (kept, evicted) = plan::assess_tasks(&binding, timeout, now);
    if kept != binding.items("/spec/gracefulEvictionTasks") {
        let tasks = (!kept.is_empty()).then(|| json!(kept));
        let mut next = Value::clone(&binding);
        next.put_or_remove(&["spec", "gracefulEvictionTasks"], tasks);
        match control.writer.update(&next).await {
            Err(error) if error.is_not_found() => return Ok(Next::Done),
            outcome => drop(outcome?),
        }
        for cluster in evicted {
            let source = match gvk.kind.as_str() {
                "ResourceBinding" => "resource-binding-graceful-eviction-controller",
                _ => "cluster-resource-binding-graceful-eviction-controller",
            };
            for about in [About::object(&binding), About::template(&binding)] {
                let message = format!("Evict from cluster {cluster} succeed.");
                control.events.normal(source, about, "EvictWorkloadFromClusterSucceed", message);
            }
        }
    }
    Ok(until(plan::next_deadline(&kept, timeout), now))
}

fn run_application_failover(control: &Arc<Control>) {
    let queue: Arc<Queue<Key>> = Queue::new("application-failover", control.shutdown.clone());
    let wanted = |one: &Option<Shared>| one.as_ref().is_some_and(|one| fails_over(one));
    follow_bindings(control, &queue, Duration::ZERO, move |change| wanted(&change.old) || wanted(&change.new));
    let (own, since) = (control.clone(), Arc::new(Mutex::new(BTreeMap::new())));
    queue.run(2, move |key| {
        let (own, since) = (own.clone(), since.clone());
        async move { leave_failed(&own, &since, key).await }
    });
}

fn fails_over(binding: &Value) -> bool {
    binding.present("/spec/failover/application").is_some()
}

async fn leave_failed(control: &Control, all: &Mutex<BTreeMap<Key, Unhealthy>>, key: Key) -> Result<Next, Failure> {
    let (gvk, namespace, name) = &key;
    // Karmada looks only at what takes its dependencies along.
    let concerned = |binding: &Shared| {
        fails_over(binding)
            && !binding.items("/status/aggregatedStatus").is_empty()
            && binding.flag("/spec/propagateDeps")
            && control.interpreter.is_enabled(&binding["spec"]["resource"].gvk(), Operation::InterpretHealth)
    };
    let Some(binding) = control.host.cached(gvk, namespace, name).filter(concerned) else {
        lock_state(all).remove(&key);
        return Ok(Next::Done);
    };
    let now = control.clock.now();
    let mut since = lock_state(all).get(&key).cloned().unwrap_or_default();
    let (failed, next) = plan::detect_failures(&binding, &mut since, now);
    if !failed.is_empty() {
        let producer = match gvk.kind.as_str() {
            "ResourceBinding" => "resource-binding-application-failover-controller",
            _ => "cluster-resource-binding-application-failover-controller",
        };
        let mut left = Value::clone(&binding);
        for cluster in &failed {
            let mut task = plan::task_of_failure(&binding, producer);
            if control.gates.stateful_failover
                && let Some(kept) =
                    state::read_preserved(&binding["spec"]["failover"]["application"], &binding, cluster)?
            {
                task.put(&["preservedLabelState"], kept);
                let before = binding.items("/spec/clusters").iter().map(|one| one["name"].clone()).collect();
                task.put(&["clustersBeforeFailover"], before);
            }
            plan::evict_cluster(&mut left, cluster, task);
        }
        if left != *binding {
            control.writer.update(&left).await?;
        }
    }
    lock_state(all).insert(key, since);
    Ok(until(next, now))
}
