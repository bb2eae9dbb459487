//! What kube-controller-manager does in a member, as far as a federation can see it: Deployments, ReplicaSets,
//! StatefulSets and batch Jobs get their pods, and tell how they stand.
//!
//! Left out on purpose: rollout strategies (a changed template replaces the ReplicaSet at once), revision history,
//! volume claims, pod failure policies.

mod batch;
mod deployment;
mod stateful;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    object::{deleting, list, namespace, number, owned_by, text},
    world::{Kind, Want, World, want_merge},
};

/// What to write for all of them now, and when the next is due.
#[derive(Debug, Default)]
pub struct Plan {
    /// Writes.
    pub wants: Vec<Want>,
    /// The next time something is due.
    pub at: Option<Timestamp>,
}

/// What to write for all of them now.
#[must_use]
pub fn sync_workloads(world: &World, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let live = |kind| world.of(kind).filter(|object| !deleting(object));
    for deployment in live(Kind::Deployment) {
        plan.wants.extend(deployment::deployment_changes(world, deployment, now));
    }
    for set in live(Kind::ReplicaSet) {
        plan.wants.extend(deployment::replica_changes(world, set));
    }
    for set in live(Kind::StatefulSet) {
        plan.wants.extend(stateful::stateful_changes(world, set));
    }
    for job in live(Kind::BatchJob) {
        let (wants, at) = batch::job_changes(world, job, now);
        plan.wants.extend(wants);
        plan.at = [plan.at, at].into_iter().flatten().min();
    }
    plan
}

fn wanted_replicas(object: &Value) -> i64 {
    object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1)
}

fn is_ready(pod: &Value) -> bool {
    let ready = |condition: &Value| text(condition, "/type") == "Ready" && text(condition, "/status") == "True";
    !deleting(pod) && list(pod, "/status/conditions").iter().any(ready)
}

fn count_pods<'a>(pods: &[&'a Value], which: impl Fn(&'a Value) -> bool) -> i64 {
    i64::try_from(pods.iter().filter(|pod| which(pod)).count()).unwrap_or(i64::MAX)
}

/// Characters of the alphabet that Kubernetes uses for generated names.
fn name_suffix(seed: &str, length: usize) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let mut hash = seed.bytes().fold(0xcbf2_9ce4_8422_2325_u64, fold);
    let mut text = String::with_capacity(length);
    for _ in 0..length {
        hash = fold(hash.rotate_left(23), 0x5b);
        let index = usize::try_from(hash % 27).unwrap_or_default();
        text.extend(ALPHABET.get(index).map(|byte| char::from(*byte)));
    }
    text
}

/// A pod of `owner`'s template.
fn build_pod(owner: &Value, pod_name: &str) -> Value {
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

/// The patch that makes the named fields of the status what they should be; a count of zero is an absent field.
fn status_change(kind: Kind, object: &Value, wanted: Value) -> Option<Want> {
    let Value::Object(wanted) = wanted else { return None };
    let current = object.get("status").and_then(Value::as_object);
    let mut patch = Map::new();
    for (field, value) in wanted {
        let known = current.and_then(|status| status.get(&field)).filter(|known| !known.is_null());
        let absent = value.is_null() || value == json!(0) || value == json!([]);
        match known {
            Some(known) if *known == value => {}
            None if absent => {}
            _ if absent => drop(patch.insert(field, Value::Null)),
            _ => drop(patch.insert(field, value)),
        }
    }
    (!patch.is_empty()).then(|| want_merge(kind, object, Some("status"), json!({"status": patch})))
}

/// `conditions` with this one: its transition time is kept while its status is the same.
fn with_condition(conditions: &mut Vec<Value>, mut new: Value) {
    let kind = text(&new, "/type").to_owned();
    match conditions.iter_mut().find(|known| text(known, "/type") == kind) {
        None => conditions.push(new),
        Some(known) => {
            let unchanged =
                ["/status", "/reason", "/message"].iter().all(|field| text(known, field) == text(&new, field));
            if unchanged {
                return;
            }
            if text(known, "/status") == text(&new, "/status") {
                new["lastTransitionTime"] = known["lastTransitionTime"].clone();
            }
            *known = new;
        }
    }
}

fn generation_of(object: &Value) -> i64 {
    number(object, "/metadata/generation")
}
