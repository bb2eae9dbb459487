//! A job's pods: which to create (where `dependsOn` lets them) and which a smaller job no longer wants (`createJobPod`,
//! `waitDependsOnTaskMeetCondition`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{plugins, pod_name, podgroup, queue_of, task_named, volumes};
use crate::member::{
    facts::{GROUP, JOB_VERSION, Phase, TASK_SPEC},
    kubelet,
    object::{deleting, list, name, namespace, number, owned_by, text, uid},
    world::{Kind, PARTITION, Want, want_create, want_delete},
};

/// Annotations of the job that its pods get too.
const COPIED: [&str; 3] = ["volcano.sh/preemptable", "volcano.sh/cooldown-time", "volcano.sh/revocable-zone"];

/// The pods to create and to delete, or why a plugin lets no pod be created.
pub(super) fn pod_changes(
    world: &crate::member::world::World,
    job: &Value,
    pods: &[&Value],
) -> Result<Vec<Want>, plugins::Broken> {
    let there: BTreeMap<&str, &Value> = pods.iter().map(|pod| (name(pod), *pod)).collect();
    let mut wants = Vec::new();
    let mut wanted = BTreeSet::new();
    for task in list(job, "/spec/tasks") {
        let free = dependencies_met(job, task, &there);
        for index in 0..number(task, "/replicas") {
            let pod_name = pod_name(job, task, index);
            if !there.contains_key(pod_name.as_str()) {
                // Volcano makes the pod with its plugins first and looks at dependsOn then.
                let pod = build_pod(job, task, index, &pod_name)?;
                if free {
                    wants.push(want_create(Kind::Pod, pod));
                }
            }
            wanted.insert(pod_name);
        }
    }
    let surplus = pods.iter().filter(|pod| !deleting(pod) && !world.is_killed(pod) && !wanted.contains(name(pod)));
    wants.extend(surplus.map(|pod| want_delete(Kind::Pod, pod)));
    Ok(wants)
}

fn dependencies_met(job: &Value, task: &Value, there: &BTreeMap<&str, &Value>) -> bool {
    let names = list(task, "/dependsOn/name");
    let met = |name: &Value| is_up(job, name.as_str().unwrap_or_default(), there);
    if names.len() > 1 && text(task, "/dependsOn/iteration") == "any" {
        names.iter().any(met)
    } else {
        names.iter().all(met)
    }
}

/// Whether the task has its minimum of pods that have succeeded, or run with all containers ready.
fn is_up(job: &Value, task: &str, there: &BTreeMap<&str, &Value>) -> bool {
    let Some(task) = task_named(job, task) else { return false };
    let Some(minimum) = task.pointer("/minAvailable").and_then(Value::as_i64) else { return true };
    let up = (0..number(task, "/replicas")).filter(|index| {
        there.get(pod_name(job, task, *index).as_str()).is_some_and(|pod| match Phase::of(pod) {
            Phase::Succeeded => true,
            Phase::Running => list(pod, "/status/containerStatuses")
                .iter()
                .all(|container| container.get("ready").and_then(Value::as_bool) == Some(true)),
            _ => false,
        })
    });
    i64::try_from(up.count()).is_ok_and(|up| up >= minimum)
}

fn build_pod(job: &Value, task: &Value, index: i64, pod_name: &str) -> Result<Value, plugins::Broken> {
    let template = |what: &str| {
        let found = task.pointer(&format!("/template/{what}")).filter(|value| value.is_object());
        found.cloned().unwrap_or_else(|| json!({}))
    };
    let (mut labels, mut annotations) = (template("metadata/labels"), template("metadata/annotations"));
    let (task_name, index_text) = (text(task, "/name"), index.to_string());
    for (key, value) in [
        ("volcano.sh/task-index", index_text.as_str()),
        (TASK_SPEC, task_name),
        ("volcano.sh/job-name", name(job)),
        ("volcano.sh/queue-name", queue_of(job)),
    ] {
        labels[key] = value.into();
        annotations[key] = value.into();
    }
    labels["volcano.sh/job-namespace"] = namespace(job).into();
    annotations[GROUP] = podgroup::podgroup_name(job).into();
    annotations[JOB_VERSION] = number(job, "/status/version").to_string().into();
    annotations["volcano.sh/template-uid"] = format!("{}-{task_name}", name(job)).into();
    annotations["volcano.sh/job-retry-count"] = number(job, "/status/retryCount").to_string().into();
    if !text(task, "/topologyPolicy").is_empty() {
        annotations["volcano.sh/numa-topology-policy"] = text(task, "/topologyPolicy").into();
    }
    if let Some(policy) = task.get("partitionPolicy").filter(|policy| policy.is_object()) {
        let size = number(policy, "/partitionSize").max(1);
        labels[PARTITION] = (index / size).to_string().into();
    }
    inherit_metadata(job, &mut labels, &mut annotations);
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": pod_name, "namespace": namespace(job), "labels": labels, "annotations": annotations,
            "ownerReferences": owned_by(job),
        },
        "spec": template("spec"),
    });
    for (field, from) in [("schedulerName", "/spec/schedulerName"), ("priorityClassName", "/spec/priorityClassName")] {
        if text(&pod["spec"], &format!("/{field}")).is_empty() && !text(job, from).is_empty() {
            pod["spec"][field] = text(job, from).into();
        }
    }
    mount_volumes(job, &mut pod);
    plugins::on_pod(job, task, index, &mut pod)?;
    Ok(pod)
}

/// What the job's own annotations and labels give to its pods; those of the simulation besides Volcano's.
fn inherit_metadata(job: &Value, labels: &mut Value, annotations: &mut Value) {
    let from = |kind: &str| job.pointer(&format!("/metadata/{kind}")).and_then(Value::as_object).into_iter().flatten();
    let mut disruption: Option<(&String, &Value)> = None;
    for (key, value) in from("annotations") {
        let simulation = key.starts_with(kubelet::PREFIX) && annotations.get(key).is_none();
        if simulation || COPIED.contains(&key.as_str()) {
            annotations[key.as_str()] = value.clone();
        }
        // The minimum comes before the maximum, where both are given.
        let is_minimum = key == "volcano.sh/jdb-min-available";
        if is_minimum || (key == "volcano.sh/jdb-max-unavailable" && disruption.is_none()) {
            disruption = Some((key, value));
        }
    }
    if let Some((key, value)) = disruption {
        annotations[key.as_str()] = value.clone();
    }
    for (key, value) in from("labels").filter(|(key, _)| COPIED[..2].contains(&key.as_str())) {
        labels[key.as_str()] = value.clone();
    }
}

fn mount_volumes(job: &Value, pod: &mut Value) {
    let mut named: BTreeSet<&str> = BTreeSet::new();
    for (index, volume) in list(job, "/spec/volumes").iter().enumerate() {
        let claim = text(volume, "/volumeClaimName");
        if claim.is_empty() || !named.insert(claim) {
            continue;
        }
        let volume_name = format!("{}-{}", name(job), volumes::scramble_text(&format!("{}/v{index}", uid(job)), 12));
        plugins::push_item(
            &mut pod["spec"],
            "volumes",
            json!({"name": volume_name, "persistentVolumeClaim": {"claimName": claim}}),
        );
        for container in pod["spec"]["containers"].as_array_mut().into_iter().flatten() {
            let mount = json!({"name": volume_name, "mountPath": text(volume, "/mountPath")});
            plugins::push_item(container, "volumeMounts", mount);
        }
    }
}
