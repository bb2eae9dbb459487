//! What kube-controller-manager does in a member, as far as a federation can see it: Deployments, ReplicaSets,
//! StatefulSets and batch Jobs get their pods, and tell how many are ready.
//!
//! Left out on purpose: rollout strategies (a changed template replaces the ReplicaSet at once), revision history,
//! volume claims.

use caldera_runtime::clock::rfc3339;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    object::{deleting, list, name, namespace, number, owned_by, text, uid},
    world::{Kind, Want, World, create, delete, merge},
};

/// What to write for all of them now.
#[must_use]
pub fn sync(world: &World, now: Timestamp) -> Vec<Want> {
    let mut wants = Vec::new();
    for deployment in world.of(Kind::Deployment).filter(|object| !deleting(object)) {
        wants.extend(deployment_changes(world, deployment, now));
    }
    for set in world.of(Kind::ReplicaSet).filter(|object| !deleting(object)) {
        wants.extend(replica_changes(world, Kind::ReplicaSet, set, |index| format!("{}-{index}", name(set))));
    }
    for set in world.of(Kind::StatefulSet).filter(|object| !deleting(object)) {
        wants.extend(replica_changes(world, Kind::StatefulSet, set, |index| format!("{}-{index}", name(set))));
    }
    for job in world.of(Kind::BatchJob).filter(|object| !deleting(object)) {
        wants.extend(job_changes(world, job, now));
    }
    wants
}

fn wanted_replicas(object: &Value) -> i64 {
    object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1)
}

fn is_ready(pod: &Value) -> bool {
    text(pod, "/status/phase") == "Running" && !deleting(pod)
}

fn deployment_changes(world: &World, deployment: &Value, now: Timestamp) -> Vec<Want> {
    let template = deployment.pointer("/spec/template").cloned().unwrap_or_else(|| json!({}));
    let hash = template_hash(&template);
    let set_name = format!("{}-{hash}", name(deployment));
    let sets: Vec<&Value> = world
        .of(Kind::ReplicaSet)
        .filter(|set| super::object::controller_uid(set) == uid(deployment) && !deleting(set))
        .collect();
    let mut wants = Vec::new();
    match sets.iter().find(|set| name(set) == set_name) {
        None => wants.push(create(Kind::ReplicaSet, replica_set(deployment, &template, &hash, &set_name))),
        Some(set) if wanted_replicas(set) != wanted_replicas(deployment) => {
            wants.push(merge(Kind::ReplicaSet, set, None, json!({"spec": {"replicas": wanted_replicas(deployment)}})));
        }
        Some(_) => {}
    }
    for old in sets.iter().filter(|set| name(set) != set_name) {
        wants.extend(world.pods_of(uid(old)).filter(|pod| !deleting(pod)).map(|pod| delete(Kind::Pod, pod)));
        wants.push(delete(Kind::ReplicaSet, old));
    }
    let pods: Vec<&Value> =
        sets.iter().filter(|set| name(set) == set_name).flat_map(|set| world.pods_of(uid(set))).collect();
    let replicas = pods.iter().filter(|pod| !deleting(pod)).count();
    let ready = pods.iter().filter(|pod| is_ready(pod)).count();
    let wanted = usize::try_from(wanted_replicas(deployment)).unwrap_or_default();
    let status = json!({
        "observedGeneration": number(deployment, "/metadata/generation"),
        "replicas": replicas, "updatedReplicas": replicas, "readyReplicas": ready, "availableReplicas": ready,
        "unavailableReplicas": wanted.saturating_sub(ready),
    });
    wants.extend(status_change(Kind::Deployment, deployment, status, Some((ready >= wanted, now))));
    wants
}

fn replica_set(deployment: &Value, template: &Value, hash: &str, set_name: &str) -> Value {
    let mut template = template.clone();
    template["metadata"]["labels"]["pod-template-hash"] = hash.into();
    let mut selector = deployment.pointer("/spec/selector").cloned().unwrap_or_else(|| json!({}));
    selector["matchLabels"]["pod-template-hash"] = hash.into();
    let labels = template.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({}));
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": set_name, "namespace": namespace(deployment), "labels": labels, "ownerReferences": owned_by(deployment),
        },
        "spec": {"replicas": wanted_replicas(deployment), "selector": selector, "template": template},
    })
}

/// Ten characters of the alphabet that Kubernetes uses for generated names.
fn template_hash(template: &Value) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let hash = template
        .to_string()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    (0..10)
        .scan(hash, |left, _| {
            let index = usize::try_from(*left % 27).unwrap_or_default();
            *left /= 27;
            ALPHABET.get(index).map(|byte| char::from(*byte))
        })
        .collect()
}

/// Pods `<set>-0..n` of a ReplicaSet or a StatefulSet, and its status.
fn replica_changes(world: &World, kind: Kind, set: &Value, pod_name: impl Fn(i64) -> String) -> Vec<Want> {
    let pods: Vec<&Value> = world.pods_of(uid(set)).collect();
    let wanted = wanted_replicas(set);
    let names: Vec<String> = (0..wanted).map(pod_name).collect();
    let mut wants = Vec::new();
    for pod_name in &names {
        match pods.iter().find(|pod| name(pod) == pod_name) {
            None => wants.push(create(Kind::Pod, pod(set, pod_name))),
            Some(pod) if text(pod, "/status/phase") == "Failed" && !deleting(pod) => wants.push(delete(Kind::Pod, pod)),
            Some(_) => {}
        }
    }
    let surplus = pods.iter().filter(|pod| !deleting(pod) && !names.iter().any(|wanted| wanted == name(pod)));
    wants.extend(surplus.map(|pod| delete(Kind::Pod, pod)));
    let replicas = pods.iter().filter(|pod| !deleting(pod)).count();
    let ready = pods.iter().filter(|pod| is_ready(pod)).count();
    let mut status = json!({
        "observedGeneration": number(set, "/metadata/generation"),
        "replicas": replicas, "readyReplicas": ready, "availableReplicas": ready,
    });
    if kind == Kind::StatefulSet {
        status["currentReplicas"] = replicas.into();
        status["updatedReplicas"] = replicas.into();
    } else {
        status["fullyLabeledReplicas"] = replicas.into();
    }
    wants.extend(status_change(kind, set, status, None));
    wants
}

fn pod(owner: &Value, pod_name: &str) -> Value {
    let template = owner.pointer("/spec/template").cloned().unwrap_or_else(|| json!({}));
    let mut metadata = template.get("metadata").filter(|m| m.is_object()).cloned().unwrap_or_else(|| json!({}));
    metadata["name"] = pod_name.into();
    metadata["namespace"] = namespace(owner).into();
    metadata["ownerReferences"] = owned_by(owner);
    if let Some(fields) = metadata.as_object_mut() {
        fields.remove("creationTimestamp");
    }
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": template.get("spec").cloned().unwrap_or_else(|| json!({})),
    })
}

/// `parallelism` pods at a time until `completions` succeeded or `backoffLimit` is exceeded.
fn job_changes(world: &World, job: &Value, now: Timestamp) -> Vec<Want> {
    let pods: Vec<&Value> = world.pods_of(uid(job)).filter(|pod| !deleting(pod)).collect();
    let count = |phase: &str| i64::try_from(pods.iter().filter(|pod| text(pod, "/status/phase") == phase).count());
    let (succeeded, failed) = (count("Succeeded").unwrap_or(0), count("Failed").unwrap_or(0));
    let total = i64::try_from(pods.len()).unwrap_or(i64::MAX);
    let active = total - succeeded - failed;
    let parallelism = job.pointer("/spec/parallelism").and_then(Value::as_i64).unwrap_or(1);
    let completions = job.pointer("/spec/completions").and_then(Value::as_i64).unwrap_or(parallelism);
    let limit = job.pointer("/spec/backoffLimit").and_then(Value::as_i64).unwrap_or(6);
    let finished = list(job, "/status/conditions").iter().any(|condition| {
        matches!(text(condition, "/type"), "Complete" | "Failed") && text(condition, "/status") == "True"
    });
    if finished {
        return Vec::new();
    }
    let mut wants = Vec::new();
    let suspended = job.pointer("/spec/suspend").and_then(Value::as_bool) == Some(true);
    let missing = if suspended { 0 } else { parallelism.min(completions - succeeded) - active };
    for index in total..total + missing.max(0) {
        let mut pod = pod(job, &format!("{}-{index}", name(job)));
        pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] = name(job).into();
        pod["metadata"]["labels"]["job-name"] = name(job).into();
        wants.push(create(Kind::Pod, pod));
    }
    let time = rfc3339(now);
    let start = match text(job, "/status/startTime") {
        "" => time.as_str(),
        start => start,
    };
    let ready = pods.iter().filter(|pod| is_ready(pod)).count();
    let mut status = json!({
        "startTime": start, "active": active + missing.max(0), "ready": ready, "succeeded": succeeded, "failed": failed,
        "terminating": 0, "uncountedTerminatedPods": {},
    });
    let condition = |kind: &str, reason: &str| json!({"type": kind, "status": "True", "reason": reason, "lastProbeTime": time, "lastTransitionTime": time});
    if succeeded >= completions {
        status["completionTime"] = json!(time);
        status["active"] = json!(0);
        let reason = "CompletionsReached";
        status["conditions"] = json!([condition("SuccessCriteriaMet", reason), condition("Complete", reason)]);
    } else if failed > limit {
        let reason = "BackoffLimitExceeded";
        status["active"] = json!(0);
        status["conditions"] = json!([condition("FailureTarget", reason), condition("Failed", reason)]);
        wants.retain(|want| want.about.0 != Kind::Pod);
        wants.extend(pods.iter().filter(|pod| is_ready(pod)).map(|pod| delete(Kind::Pod, pod)));
    }
    wants.extend(status_change(Kind::BatchJob, job, status, None));
    wants
}

/// The status patch, if any counted field differs. `available` adds a Deployment's `Available` condition.
fn status_change(kind: Kind, object: &Value, mut status: Value, available: Option<(bool, Timestamp)>) -> Option<Want> {
    let current = |field: &str| object.pointer("/status").and_then(|status| status.get(field)).cloned();
    let is_default = |value: &Value| matches!(value, Value::Number(n) if n.as_i64() == Some(0)) || *value == json!({});
    let fields = status.as_object()?;
    let differs =
        fields.iter().any(|(field, wanted)| current(field).map_or(!is_default(wanted), |known| known != *wanted));
    if !differs {
        return None;
    }
    if let Some((met, now)) = available {
        let status_text = if met { "True" } else { "False" };
        let known = list(object, "/status/conditions")
            .iter()
            .find(|condition| text(condition, "/type") == "Available" && text(condition, "/status") == status_text);
        let condition = known.cloned().unwrap_or_else(|| {
            let reason = if met { "MinimumReplicasAvailable" } else { "MinimumReplicasUnavailable" };
            let time = rfc3339(now);
            json!({
                "type": "Available", "status": status_text, "reason": reason, "message": "",
                "lastUpdateTime": time, "lastTransitionTime": time,
            })
        });
        status["conditions"] = json!([condition]);
    }
    Some(merge(kind, object, Some("status"), json!({"status": status})))
}
