//! Deployments and ReplicaSets (`pkg/controller/{deployment,replicaset}`).

use caldera_runtime::clock::format_time;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    build_pod, count_pods, generation_of, is_ready, name_suffix, status_change, wanted_replicas, with_condition,
};
use crate::member::{
    facts::Phase,
    object::{annotation, controller_uid, deleting, list, name, namespace, owned_by, text, uid},
    world::{Kind, Want, World, want_create, want_delete, want_merge},
};

const REVISION: &str = "deployment.kubernetes.io/revision";

pub(super) fn deployment_changes(world: &World, deployment: &Value, now: Timestamp) -> Vec<Want> {
    let template = deployment.pointer("/spec/template").cloned().unwrap_or_else(|| json!({}));
    let hash = name_suffix(&template.to_string(), 10);
    let set_name = format!("{}-{hash}", name(deployment));
    let sets: Vec<&Value> =
        world.of(Kind::ReplicaSet).filter(|set| controller_uid(set) == uid(deployment) && !deleting(set)).collect();
    let newest = sets.iter().filter_map(|set| annotation(set, REVISION).parse::<u64>().ok()).max().unwrap_or(0);
    let set = sets.iter().copied().find(|set| name(set) == set_name);
    let mut wants = Vec::new();
    match set {
        None => {
            wants.push(want_create(Kind::ReplicaSet, replica_set(deployment, &template, &hash, &set_name, newest + 1)));
        }
        Some(set) if wanted_replicas(set) != wanted_replicas(deployment) => {
            wants.push(want_merge(
                Kind::ReplicaSet,
                set,
                None,
                json!({"spec": {"replicas": wanted_replicas(deployment)}}),
            ));
        }
        Some(_) => {}
    }
    for old in sets.iter().filter(|set| name(set) != set_name) {
        wants.extend(world.pods_of(uid(old)).filter(|pod| !deleting(pod)).map(|pod| want_delete(Kind::Pod, pod)));
        wants.push(want_delete(Kind::ReplicaSet, old));
    }
    let revision = set.map_or_else(|| (newest + 1).to_string(), |set| annotation(set, REVISION).to_owned());
    if annotation(deployment, REVISION) != revision {
        let annotations = json!({"metadata": {"annotations": {REVISION: revision}}});
        wants.push(want_merge(Kind::Deployment, deployment, None, annotations));
    }
    let pods: Vec<&Value> = set.into_iter().flat_map(|set| world.pods_of(uid(set))).collect();
    wants.extend(deployment_status(deployment, &set_name, &pods, now));
    wants
}

fn deployment_status(deployment: &Value, set_name: &str, pods: &[&Value], now: Timestamp) -> Option<Want> {
    let wanted = wanted_replicas(deployment);
    let (replicas, ready) = (count_pods(pods, |pod| !deleting(pod)), count_pods(pods, is_ready));
    let available = ready >= wanted - may_miss(deployment, wanted);
    let complete = ready == wanted && replicas == wanted;
    let mut conditions = list(deployment, "/status/conditions").to_vec();
    let time = format_time(now);
    let condition = |kind: &str, met: bool, reason: &str, message: String| {
        json!({
            "type": kind, "status": if met { "True" } else { "False" }, "reason": reason, "message": message,
            "lastUpdateTime": time, "lastTransitionTime": time,
        })
    };
    with_condition(
        &mut conditions,
        if available {
            let message = "Deployment has minimum availability.".to_owned();
            condition("Available", true, "MinimumReplicasAvailable", message)
        } else {
            let message = "Deployment does not have minimum availability.".to_owned();
            condition("Available", false, "MinimumReplicasUnavailable", message)
        },
    );
    // Once a set is there in full, later gaps are no news about its progress.
    let done = conditions.iter().any(|known| {
        text(known, "/reason") == "NewReplicaSetAvailable"
            && text(known, "/message").contains(&format!("\"{set_name}\""))
    });
    with_condition(
        &mut conditions,
        if complete || done {
            let message = format!("ReplicaSet \"{set_name}\" has successfully progressed.");
            condition("Progressing", true, "NewReplicaSetAvailable", message)
        } else {
            let message = format!("ReplicaSet \"{set_name}\" is progressing.");
            condition("Progressing", true, "ReplicaSetUpdated", message)
        },
    );
    let status = json!({
        "observedGeneration": generation_of(deployment),
        "replicas": replicas, "updatedReplicas": replicas, "readyReplicas": ready, "availableReplicas": ready,
        "unavailableReplicas": (wanted - ready).max(0), "conditions": conditions,
    });
    status_change(Kind::Deployment, deployment, status)
}

/// `maxUnavailable`, rounded down; a quarter where it is not given.
fn may_miss(deployment: &Value, wanted: i64) -> i64 {
    match deployment.pointer("/spec/strategy/rollingUpdate/maxUnavailable") {
        Some(Value::Number(count)) => count.as_i64().unwrap_or_default(),
        Some(Value::String(percent)) => wanted * percent.trim_end_matches('%').parse::<i64>().unwrap_or_default() / 100,
        _ if text(deployment, "/spec/strategy/type") == "Recreate" => 0,
        _ => wanted / 4,
    }
}

fn replica_set(deployment: &Value, template: &Value, hash: &str, set_name: &str, revision: u64) -> Value {
    let mut template = template.clone();
    template["metadata"]["labels"]["pod-template-hash"] = hash.into();
    let mut selector = deployment.pointer("/spec/selector").cloned().unwrap_or_else(|| json!({}));
    selector["matchLabels"]["pod-template-hash"] = hash.into();
    let labels = template.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({}));
    let own = deployment.pointer("/metadata/annotations").and_then(Value::as_object);
    let mut annotations = own.cloned().unwrap_or_default();
    annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    annotations.insert(REVISION.to_owned(), revision.to_string().into());
    let wanted = wanted_replicas(deployment);
    annotations.insert("deployment.kubernetes.io/desired-replicas".to_owned(), wanted.to_string().into());
    annotations
        .insert("deployment.kubernetes.io/max-replicas".to_owned(), (wanted + (wanted + 3) / 4).to_string().into());
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": set_name, "namespace": namespace(deployment), "labels": labels, "annotations": annotations,
            "ownerReferences": owned_by(deployment),
        },
        "spec": {"replicas": wanted, "selector": selector, "template": template},
    })
}

/// The pods of a ReplicaSet, each in a place of its own, and its status.
pub(super) fn replica_changes(world: &World, set: &Value) -> Vec<Want> {
    let pods: Vec<&Value> = world.pods_of(uid(set)).collect();
    let wanted = wanted_replicas(set);
    let names: Vec<String> = (0..wanted)
        .map(|place| format!("{}-{}", name(set), name_suffix(&format!("{}/{place}", uid(set)), 5)))
        .collect();
    let mut wants = Vec::new();
    for pod_name in &names {
        match pods.iter().find(|pod| name(pod) == pod_name) {
            None => wants.push(want_create(Kind::Pod, build_pod(set, pod_name))),
            Some(pod) if Phase::of(pod).is_finished() && !deleting(pod) => wants.push(want_delete(Kind::Pod, pod)),
            Some(_) => {}
        }
    }
    let surplus = pods.iter().filter(|pod| !deleting(pod) && !names.iter().any(|wanted| wanted == name(pod)));
    wants.extend(surplus.map(|pod| want_delete(Kind::Pod, pod)));
    let (replicas, ready) = (count_pods(&pods, |pod| !deleting(pod)), count_pods(&pods, is_ready));
    let status = json!({
        "observedGeneration": generation_of(set), "replicas": replicas, "fullyLabeledReplicas": replicas,
        "readyReplicas": ready, "availableReplicas": ready,
    });
    wants.extend(status_change(Kind::ReplicaSet, set, status));
    wants
}
