//! StatefulSets (`pkg/controller/statefulset`): pods with fixed names, started one after the other unless told
//! otherwise.

use serde_json::{Value, json};

use super::{build_pod, count_pods, generation_of, is_ready, name_suffix, status_change, wanted_replicas};
use crate::member::{
    facts::Phase,
    object::{deleting, name, text, uid},
    world::{Kind, Want, World, want_create, want_delete},
};

pub(super) fn stateful_changes(world: &World, set: &Value) -> Vec<Want> {
    let pods: Vec<&Value> = world.pods_of(uid(set)).collect();
    let template = set.pointer("/spec/template").map(ToString::to_string).unwrap_or_default();
    let revision = format!("{}-{}", name(set), name_suffix(&template, 10));
    let in_order = text(set, "/spec/podManagementPolicy") != "Parallel";
    let wanted = wanted_replicas(set);
    let mut wants = Vec::new();
    for place in 0..wanted {
        let pod_name = format!("{}-{place}", name(set));
        let known = pods.iter().find(|pod| name(pod) == pod_name);
        match known {
            None => wants.push(want_create(Kind::Pod, own_pod(set, &pod_name, place, &revision))),
            Some(pod) if Phase::of(pod).is_finished() && !deleting(pod) => wants.push(want_delete(Kind::Pod, pod)),
            Some(_) => {}
        }
        if in_order && !known.is_some_and(|pod| is_ready(pod)) {
            break;
        }
    }
    let place = |pod: &Value| name(pod).rsplit('-').next().and_then(|place| place.parse::<i64>().ok());
    let surplus = pods.iter().filter(|pod| !deleting(pod) && place(pod).is_none_or(|place| place >= wanted));
    // The last goes first, and the next only when it is gone.
    let mut surplus: Vec<&&Value> = surplus.collect();
    surplus.sort_by_key(|pod| std::cmp::Reverse(place(pod)));
    let leaving = pods.iter().any(|pod| deleting(pod));
    let most = if in_order { usize::from(!leaving) } else { surplus.len() };
    wants.extend(surplus.into_iter().take(most).map(|pod| want_delete(Kind::Pod, pod)));
    let (replicas, ready) = (count_pods(&pods, |pod| !deleting(pod)), count_pods(&pods, is_ready));
    let status = json!({
        "observedGeneration": generation_of(set), "replicas": replicas, "readyReplicas": ready,
        "availableReplicas": ready, "currentReplicas": replicas, "updatedReplicas": replicas,
        "currentRevision": revision, "updateRevision": revision,
    });
    wants.extend(status_change(Kind::StatefulSet, set, status));
    wants
}

fn own_pod(set: &Value, pod_name: &str, place: i64, revision: &str) -> Value {
    let mut pod = build_pod(set, pod_name);
    for (label, value) in [
        ("apps.kubernetes.io/pod-index", place.to_string().as_str()),
        ("statefulset.kubernetes.io/pod-name", pod_name),
        ("controller-revision-hash", revision),
    ] {
        pod["metadata"]["labels"][label] = value.into();
    }
    pod["spec"]["hostname"] = pod_name.into();
    if !text(set, "/spec/serviceName").is_empty() {
        pod["spec"]["subdomain"] = text(set, "/spec/serviceName").into();
    }
    pod
}
