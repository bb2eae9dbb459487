//! One line for each job, from what was written on its binding and its PodGroup.

use std::collections::HashMap;

use caldera_crds::{
    names::caldera::{ADMISSION, GATE, GATE_CLOSED, HOLD, WORKLOAD_KIND, WORKLOAD_NAME},
    workload::{WorkloadKind, queue_of},
};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::clusters_of;
use crate::objects::{annotation, is_queued, items, name_of, text};

/// A job or service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    /// Its namespace.
    pub(super) namespace: String,
    /// As commands take it: the name of a Volcano Job, `kind/name` for others.
    pub(super) job: String,
    /// Its queue.
    pub(super) queue: String,
    /// In one word.
    pub(super) state: &'static str,
    /// Its value, where it is known.
    pub(super) priority: i64,
    /// Seconds since it was made.
    pub(super) age_seconds: i64,
    /// Pods that run.
    pub(super) running: i64,
    /// Pods that must start together.
    pub(super) minimum: Option<i64>,
    /// Where it is.
    pub(super) clusters: Vec<String>,
    /// For machines.
    pub(super) reason: String,
    /// For people.
    pub(super) message: String,
}

/// Volcano Jobs, and what else is in a queue.
pub(super) fn list_rows(workloads: &[Value], bindings: &[Value], groups: &[Value], now: Timestamp) -> Vec<Row> {
    let key = |kind: &str, namespace: &str, name: &str| [kind, namespace, name].join("/");
    let of_binding = |binding: &Value| {
        let resource = &binding["spec"]["resource"];
        let kind = WorkloadKind::parse(text(resource, "/apiVersion"), text(resource, "/kind"))?;
        Some(key(kind.title(), text(resource, "/namespace"), text(resource, "/name")))
    };
    let of_group = |group: &Value| {
        let label = |name: &str| group["metadata"]["labels"][name].as_str();
        let owner = items(group, "/metadata/ownerReferences").first();
        let kind = WorkloadKind::parse(owner.map_or("", |owner| text(owner, "/apiVersion")), label(WORKLOAD_KIND)?)?;
        Some(key(kind.title(), text(group, "/metadata/namespace"), label(WORKLOAD_NAME)?))
    };
    let bindings: HashMap<String, &Value> =
        bindings.iter().filter_map(|binding| Some((of_binding(binding)?, binding))).collect();
    let groups: HashMap<String, &Value> = groups.iter().filter_map(|group| Some((of_group(group)?, group))).collect();
    let row = |workload: &Value| {
        let kind = WorkloadKind::of(workload)?;
        let (namespace, name) = (text(workload, "/metadata/namespace"), name_of(workload));
        let key = key(kind.title(), namespace, name);
        let (binding, group) = (bindings.get(&key).copied(), groups.get(&key).copied());
        let is_listed = kind == WorkloadKind::VolcanoJob || group.is_some() || binding.is_some_and(is_queued);
        is_listed.then(|| make_row(workload, kind, binding, group, now))
    };
    workloads.iter().filter_map(row).collect()
}

fn make_row(
    workload: &Value,
    kind: WorkloadKind,
    binding: Option<&Value>,
    group: Option<&Value>,
    now: Timestamp,
) -> Row {
    let name = name_of(workload);
    let condition = group.and_then(|group| items(group, "/status/conditions").last());
    let said = |field: &str| condition.map_or("", |condition| text(condition, field)).to_owned();
    let created: Option<Timestamp> = text(workload, "/metadata/creationTimestamp").parse().ok();
    let number = |object: Option<&Value>, pointer: &str| object.and_then(|object| object.pointer(pointer)?.as_i64());
    Row {
        namespace: text(workload, "/metadata/namespace").to_owned(),
        job: if kind == WorkloadKind::VolcanoJob { name.to_owned() } else { format!("{}/{name}", kind.aliases()[0]) },
        queue: queue_of(workload).to_string(),
        state: find_state(workload, kind, binding, group),
        priority: number(binding, "/spec/schedulePriority/priority").unwrap_or(0),
        age_seconds: created.map_or(0, |created| now.as_second() - created.as_second()),
        running: number(group, "/status/running").unwrap_or(0),
        minimum: number(group, "/spec/minMember"),
        clusters: binding.map(clusters_of).unwrap_or_default(),
        reason: if binding.is_some() { said("/reason") } else { "NoBinding".to_owned() },
        message: said("/message"),
    }
}

fn find_state(workload: &Value, kind: WorkloadKind, binding: Option<&Value>, group: Option<&Value>) -> &'static str {
    const ENDED: [&str; 4] = ["Completed", "Failed", "Terminated", "Aborted"];
    let phase = if kind == WorkloadKind::VolcanoJob { text(workload, "/status/state/phase") } else { "" };
    if let Some(ended) = ENDED.into_iter().find(|ended| *ended == phase) {
        return ended;
    }
    let phase = group.map_or("", |group| text(group, "/status/phase"));
    if phase == "Completed" {
        return "Completed";
    }
    let Some(binding) = binding else { return "NotPropagated" };
    let is_placed = !items(binding, "/spec/clusters").is_empty();
    match (annotation(binding, GATE), is_placed) {
        (Some(GATE_CLOSED), _) if annotation(workload, HOLD) == Some("true") => "Held",
        (Some(GATE_CLOSED), _) => "Waiting",
        (_, true) if phase == "Running" => "Running",
        (_, true) => "Starting",
        _ if annotation(binding, ADMISSION).is_some() => "Admitted",
        _ => "NotGated",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(name: &str) -> Value {
        json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
            "metadata": {"namespace": "ns", "name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"queue": "q"},
        })
    }

    fn binding(name: &str, annotations: Value, clusters: Value) -> Value {
        json!({"metadata": {"annotations": annotations}, "spec": {"clusters": clusters, "resource": {
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": "ns", "name": name,
        }}})
    }

    fn group(name: &str, phase: &str) -> Value {
        json!({
            "metadata": {
                "namespace": "ns",
                "labels": {"caldera.dev/workload-kind": "Job", "caldera.dev/workload-name": name},
                "ownerReferences": [{"apiVersion": "batch.volcano.sh/v1alpha1"}],
            },
            "spec": {"minMember": 3},
            "status": {"phase": phase, "running": 2, "conditions": [{"reason": "R", "message": "M"}]},
        })
    }

    fn now() -> Timestamp {
        "2026-01-01T00:01:00Z".parse().unwrap()
    }

    #[test]
    fn a_jobs_state_is_where_its_binding_stands() {
        let closed = || json!({"caldera.dev/gate": "closed"});
        let open = || json!({"caldera.dev/gate": "open", "caldera.dev/admission": "{}"});
        let m1 = || json!([{"name": "m1"}]);
        let state = |job: Value, binding: Option<Value>, phase: &str| {
            let bindings: Vec<Value> = binding.into_iter().collect();
            list_rows(&[job], &bindings, &[group("j", phase)], now())[0].state
        };
        let mut held = job("j");
        held["metadata"]["annotations"] = json!({"caldera.dev/hold": "true"});
        let mut failed = job("j");
        failed["status"] = json!({"state": {"phase": "Failed"}});
        assert_eq!(state(job("j"), None, "Pending"), "NotPropagated");
        assert_eq!(state(job("j"), Some(binding("j", closed(), json!([]))), "Pending"), "Waiting");
        assert_eq!(state(held.clone(), Some(binding("j", closed(), json!([]))), "Pending"), "Held");
        assert_eq!(state(job("j"), Some(binding("j", open(), json!([]))), "Inqueue"), "Admitted");
        assert_eq!(state(job("j"), Some(binding("j", open(), m1())), "Inqueue"), "Starting");
        // A hold counts where it waits.
        assert_eq!(state(held, Some(binding("j", open(), m1())), "Running"), "Running");
        assert_eq!(state(job("j"), Some(binding("j", open(), m1())), "Completed"), "Completed");
        assert_eq!(state(failed, Some(binding("j", open(), m1())), "Running"), "Failed");
        assert_eq!(state(job("j"), Some(binding("j", json!({}), json!([]))), "Pending"), "NotGated");
    }

    #[test]
    fn a_row_tells_what_the_pod_group_says() {
        let rows = list_rows(
            &[job("j")],
            &[binding("j", json!({"caldera.dev/gate": "open"}), json!([{"name": "m1"}, {"name": "m2"}]))],
            &[group("j", "Running")],
            now(),
        );
        let row = &rows[0];
        assert_eq!((row.job.as_str(), row.queue.as_str(), row.age_seconds), ("j", "q", 60));
        assert_eq!((row.running, row.minimum, row.clusters.join("+")), (2, Some(3), "m1+m2".to_owned()));
        assert_eq!((row.reason.as_str(), row.message.as_str()), ("R", "M"));
    }

    #[test]
    fn a_service_is_listed_where_it_is_in_a_queue_and_named_by_its_kind() {
        let service = |name: &str| json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "ns", "name": name}});
        let mut queued = binding("web", json!({"caldera.dev/gate": "closed"}), json!([]));
        queued["spec"]["resource"]["apiVersion"] = json!("apps/v1");
        queued["spec"]["resource"]["kind"] = json!("Deployment");
        let rows = list_rows(&[service("web"), service("plain")], &[queued], &[], now());
        assert_eq!(rows.iter().map(|row| row.job.as_str()).collect::<Vec<_>>(), ["deployment/web"]);
    }
}
