//! WorkloadRebalancer: somebody agrees that workloads be placed afresh.
//!
//! Rule: Karmada `pkg/controllers/workloadrebalancer`: each named workload's binding gets `rescheduleTriggeredAt`, the
//! rebalancer's creation time; then the result is written down, and the rebalancer goes after its TTL. What failed is
//! not tried again, and what succeeded stays in the status when it is named no more.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::{
    api::{Change, Delete},
    control::{Control, binding_kind, cluster_binding_kind},
    names,
    object::{Gvk, ObjectExt, ObjectKey},
    queue::{Failure, Next, Queue},
};

fn rebalancer_kind() -> Gvk {
    Gvk::new("apps.karmada.io/v1alpha1", "WorkloadRebalancer")
}

/// Starts to look after rebalancers.
pub fn run_controller(control: &Arc<Control>) {
    let queue: Arc<Queue<String>> = Queue::new("rebalancer", control.shutdown.clone());
    let rebalancers = queue.clone();
    control.host.add_handler(
        &rebalancer_kind(),
        Arc::new(move |change: &Change| {
            let Some(new) = &change.new else { return };
            if change.old.as_ref().is_none_or(|old| old.generation() != new.generation()) {
                rebalancers.add(new.name().to_owned());
            }
        }),
    );
    let own = control.clone();
    queue.run(1, move |name| {
        let own = own.clone();
        async move { sync_rebalancer(&own, &name).await }
    });
}

async fn sync_rebalancer(control: &Control, name: &str) -> Result<Next, Failure> {
    let Some(rebalancer) = control.host.get_live(&rebalancer_kind(), "", name).await? else { return Ok(Next::Done) };
    if rebalancer.is_deleting() {
        return Ok(Next::Done);
    }
    let mut observed = observe_workloads(&rebalancer);
    let mut again = false;
    for one in observed.iter_mut().filter(|one| one.text("/result").is_empty()) {
        match trigger_rescheduling(control, &one["workload"], rebalancer.text("/metadata/creationTimestamp")).await {
            Ok(true) => one.put(&["result"], json!("Successful")),
            Ok(false) => {
                one.put(&["result"], json!("Failed"));
                one.put(&["reason"], json!("ReferencedBindingNotFound"));
            }
            Err(_) => again = true,
        }
    }
    let finish = rebalancer.present("/status/finishTime").cloned();
    let mut status = json!({"observedGeneration": rebalancer.generation(), "observedWorkloads": observed});
    status.put_or_remove(&["finishTime"], finish);
    if rebalancer.get("status") != Some(&status) {
        if !again {
            status.put(&["finishTime"], json!(control.now()));
        }
        control.writer.merge(&ObjectKey::of(&rebalancer), "status", &json!({"status": status})).await?;
    }
    let finish = status.text("/finishTime");
    if again {
        return Err(Failure("some bindings could not be written".to_owned()));
    }
    let Some(ttl) = rebalancer.pointer("/spec/ttlSecondsAfterFinished").and_then(Value::as_i64) else {
        return Ok(Next::Done);
    };
    let finished: jiff::Timestamp =
        finish.parse().map_err(|error| Failure(format!("finishTime {finish:?}: {error}")))?;
    let left = finished.as_second() + ttl - control.clock.now().as_second();
    match u64::try_from(left) {
        Ok(left) if left > 0 => Ok(Next::After(Duration::from_secs(left))),
        _ => {
            control.writer.delete(&ObjectKey::of(&rebalancer), &Delete::default()).await?;
            Ok(Next::Done)
        }
    }
}

/// Whether the workload has a binding, which then is to be scheduled afresh.
async fn trigger_rescheduling(control: &Control, workload: &Value, at: &str) -> Result<bool, Failure> {
    let namespace = workload.text("/namespace");
    let kind = if namespace.is_empty() { cluster_binding_kind() } else { binding_kind() };
    let name = names::binding_name(workload.text("/kind"), workload.text("/name"));
    let Some(binding) = control.host.get_cached_or_live(&kind, namespace, &name).await? else { return Ok(false) };
    let set = |binding: &mut Value| {
        if binding.text("/spec/rescheduleTriggeredAt") < at {
            binding.put(&["spec", "rescheduleTriggeredAt"], json!(at));
        }
    };
    Ok(control.writer.modify(&binding, "", set).await?.is_some())
}

/// What was observed of the workloads, and those that are new; one that is named no more stays if it succeeded.
fn observe_workloads(rebalancer: &Value) -> Vec<Value> {
    let (named, known) = (rebalancer.items("/spec/workloads"), rebalancer.items("/status/observedWorkloads"));
    let stays = |one: &&Value| named.contains(&one["workload"]) || one.text("/result") == "Successful";
    let mut observed: Vec<Value> = known.iter().filter(stays).cloned().collect();
    for workload in named {
        if observed.iter().all(|one| one["workload"] != *workload) {
            observed.push(json!({"workload": workload}));
        }
    }
    sort_workloads(&mut observed);
    observed
}

fn sort_workloads(observed: &mut [Value]) {
    let key = |one: &Value| -> [String; 5] {
        let of = |at: &str| one.text(at).to_owned();
        [
            of("/workload/apiVersion"),
            of("/workload/kind"),
            of("/workload/namespace"),
            of("/workload/name"),
            of("/result"),
        ]
    };
    observed.sort_by_key(key);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_succeeded_stays_though_it_is_named_no_more_and_what_failed_is_not_tried_again() {
        let one = |name: &str| json!({"kind": "K", "name": name});
        let rebalancer = json!({"spec": {"workloads": [one("c"), one("d")]}, "status": {"observedWorkloads": [
            {"workload": one("a"), "result": "Successful"}, {"workload": one("b"), "result": "Failed"},
            {"workload": one("c"), "result": "Failed"}]}});
        let told: Vec<(String, String)> = observe_workloads(&rebalancer)
            .iter()
            .map(|one| (one.text("/workload/name").to_owned(), one.text("/result").to_owned()))
            .collect();
        let expected = [("a", "Successful"), ("c", "Failed"), ("d", "")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(told, expected);
    }

    #[test]
    fn workloads_are_listed_by_kind_and_name() {
        let one = |version: &str, name: &str| json!({"workload": {"apiVersion": version, "kind": "K", "name": name}});
        let mut all = [one("batch.volcano.sh/v1alpha1", "a"), one("apps/v1", "z"), one("apps/v1", "b")];
        sort_workloads(&mut all);
        let names: Vec<&str> = all.iter().map(|one| one.text("/workload/name")).collect();
        assert_eq!(names, ["b", "z", "a"]);
    }
}
