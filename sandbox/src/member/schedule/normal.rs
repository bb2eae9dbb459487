//! PodGroups for pods of Volcano's scheduler that come without one (`pkg/controllers/podgroup`): one for all pods of a
//! controller, in the queue that the pods' annotation names.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::VOLCANO;
use crate::member::{
    facts::GROUP,
    object::{annotation, controller_uid, deleting, list, name, namespace, text, uid},
    world::{Kind, Want, World, want_create, want_merge},
};

const QUEUE: &str = "scheduling.volcano.sh/queue-name";
const MIN_MEMBER: &str = "scheduling.volcano.sh/group-min-member";
/// Annotations of the owner with this prefix are the group's too.
const INHERITED: &str = "volcano.sh/";

/// The groups to create, and the pods to mark with theirs.
pub(super) fn missing_groups(world: &World) -> Vec<Want> {
    let mut wants: BTreeMap<(String, String), Want> = BTreeMap::new();
    let mut marks = Vec::new();
    for (key, facts) in world.pods().filter(|(_, pod)| pod.scheduler == VOLCANO && pod.group.is_empty()) {
        let Some(pod) = world.get(Kind::Pod, key).filter(|pod| !deleting(pod) && !facts.phase.is_finished()) else {
            continue;
        };
        let owner = controller_uid(pod);
        let group_name = format!("podgroup-{}", if owner.is_empty() { uid(pod) } else { owner });
        let at = (namespace(pod).to_owned(), group_name.clone());
        if world.get(Kind::PodGroup, &at).is_none() {
            wants.entry(at).or_insert_with(|| want_create(Kind::PodGroup, build_group(world, pod, &group_name)));
        } else {
            marks.push(want_merge(Kind::Pod, pod, None, json!({"metadata": {"annotations": {GROUP: group_name}}})));
        }
    }
    wants.into_values().chain(marks).collect()
}

fn build_group(world: &World, pod: &Value, group_name: &str) -> Value {
    let owner = pod_owner(world, pod);
    let inherited = owner.and_then(|owner| owner.pointer("/metadata/annotations")).and_then(Value::as_object);
    let minimum = owner.map_or("", |owner| annotation(owner, MIN_MEMBER)).parse::<u32>().unwrap_or(1);
    let mut annotations: Map<String, Value> = inherited
        .into_iter()
        .flatten()
        .filter(|(key, _)| key.starts_with(INHERITED))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    for key in ["preemptable", "cooldown-time", "revocable-zone", "jdb-min-available", "jdb-max-unavailable"] {
        let key = format!("{INHERITED}{key}");
        if !annotation(pod, &key).is_empty() {
            annotations.insert(key.clone(), annotation(pod, &key).into());
        }
    }
    let owners = if controller_uid(pod).is_empty() {
        json!([{"apiVersion": "v1", "kind": "Pod", "name": name(pod), "uid": uid(pod), "controller": true,
            "blockOwnerDeletion": true}])
    } else {
        pod["metadata"]["ownerReferences"].clone()
    };
    let mut spec = json!({"minMember": minimum, "minResources": crate::member::job::pod_usage(&pod["spec"], minimum)});
    for (field, value) in
        [("queue", annotation(pod, QUEUE)), ("priorityClassName", text(pod, "/spec/priorityClassName"))]
    {
        if !value.is_empty() {
            spec[field] = value.into();
        }
    }
    json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": {
            "name": group_name, "namespace": namespace(pod), "ownerReferences": owners, "annotations": annotations,
        },
        "spec": spec, "status": {"phase": "Pending"},
    })
}

/// The pod's controller, where it is of a kind that is known here.
fn pod_owner<'a>(world: &'a World, pod: &Value) -> Option<&'a Value> {
    let reference =
        list(pod, "/metadata/ownerReferences").iter().find(|owner| text(owner, "/uid") == controller_uid(pod))?;
    let kind = match text(reference, "/kind") {
        "ReplicaSet" => Kind::ReplicaSet,
        "StatefulSet" => Kind::StatefulSet,
        "Job" => Kind::BatchJob,
        _ => return None,
    };
    world.get(kind, &(namespace(pod).to_owned(), text(reference, "/name").to_owned()))
}
