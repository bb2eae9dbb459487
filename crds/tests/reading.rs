//! Reading: recorded objects of real systems go through our types unchanged, and strange ones are still read.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use caldera_crds::{
    karmada::{apps, cluster, config, policy, work},
    manifests,
    volcano::{batch, bus, scheduling, topology},
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

fn read<T: DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).expect("an object")
}

#[test]
fn an_object_without_spec_is_read() {
    let queue: scheduling::Queue = read(json!({ "metadata": { "name": "q" } }));
    assert_eq!(queue.metadata.name.as_deref(), Some("q"));
    assert_eq!(queue.spec, scheduling::QueueSpec::default());
}

#[test]
fn null_is_as_good_as_absent() {
    let binding: work::ResourceBinding = read(json!({
        "metadata": {}, "status": null,
        "spec": { "resource": { "apiVersion": "v1", "kind": "Pod", "name": "p" }, "clusters": null, "replicas": null },
    }));
    assert!(binding.spec.clusters.is_empty() && binding.spec.replicas.is_none() && binding.status.is_none());
}

#[test]
fn an_integer_is_as_good_as_a_quantitys_text() {
    let queue: scheduling::Queue = read(json!({ "spec": { "capability": { "cpu": 4, "memory": "8Gi" } } }));
    assert_eq!(queue.spec.capability["cpu"].0, "4");
}

#[test]
fn an_unknown_word_or_field_is_read_and_the_word_is_kept() {
    let object = json!({ "spec": {}, "status": { "phase": "Dreaming", "mood": 1 } });
    let group: scheduling::PodGroup = read(object);
    let phase = group.status.and_then(|status| status.phase).expect("a phase");
    assert_eq!(phase, scheduling::PodGroupPhase::Other("Dreaming".into()));
    assert_eq!(serde_json::to_value(phase).expect("JSON"), json!("Dreaming"));
}

#[test]
fn what_is_written_names_its_kind_and_leaves_out_what_is_absent() {
    let command = bus::Command { action: Some("AbortJob".into()), ..bus::Command::new("c") };
    assert_eq!(
        serde_json::to_value(command).expect("JSON"),
        json!({
            "apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command",
            "metadata": { "name": "c" }, "action": "AbortJob",
        })
    );
}

#[test]
fn every_definition_is_one_for_kubernetes() {
    let mut all = manifests::build_karmada_crds();
    all.extend(manifests::build_member_volcano_crds());
    all.push(manifests::build_cluster_crd());
    for definition in all {
        let name = definition["metadata"]["name"].clone();
        let typed: CustomResourceDefinition = read(definition);
        let stored = typed.spec.versions.iter().filter(|version| version.storage).count();
        assert_eq!(stored, 1, "{name} has one stored version");
    }
}

/// Objects of one kind: how many there were, and what our type changes in them.
#[derive(Default)]
struct Seen {
    objects: usize,
    changes: Vec<String>,
}

fn round_trip<T: DeserializeOwned + Serialize>(object: &Value, seen: &mut Seen) {
    seen.objects += 1;
    let mut object = object.clone();
    unmask(&mut object);
    match serde_json::from_value::<T>(object.clone()) {
        Ok(typed) => {
            let written = serde_json::to_value(typed).expect("JSON");
            let (mut before, mut after) = (object, written);
            for value in [&mut before, &mut after] {
                if let Some(value) = value.as_object_mut() {
                    value.remove("metadata");
                }
                without_empty(value);
            }
            changes("", &before, &after, &mut seen.changes);
        }
        Err(error) => seen.changes.push(error.to_string()),
    }
}

/// Recordings have `<...>` in the place of times and of some long lists.
fn unmask(value: &mut Value) {
    match value {
        Value::String(text) if text.starts_with("<t+") || text.starts_with("<t-") => {
            *text = "2026-01-01T00:00:00Z".to_owned();
        }
        Value::String(text) if text.ends_with("grades>") || text.ends_with("groups>") => *value = json!([]),
        Value::Object(object) => object.values_mut().for_each(unmask),
        Value::Array(items) => items.iter_mut().for_each(unmask),
        _ => {}
    }
}

/// Nothing and an empty list or map are the same to Go's `omitempty`.
fn without_empty(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.values_mut().for_each(without_empty);
            object.retain(|_, value| {
                !value.is_null()
                    && value.as_object().is_none_or(|o| !o.is_empty())
                    && value.as_array().is_none_or(|a| !a.is_empty())
            });
        }
        Value::Array(items) => items.iter_mut().for_each(without_empty),
        _ => {}
    }
}

fn changes(path: &str, before: &Value, after: &Value, into: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for key in before.keys().chain(after.keys()) {
                let nothing = Value::Null;
                let (before, after) = (before.get(key).unwrap_or(&nothing), after.get(key).unwrap_or(&nothing));
                changes(&format!("{path}/{key}"), before, after, into);
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (index, (before, after)) in before.iter().zip(after).enumerate() {
                changes(&format!("{path}/{index}"), before, after, into);
            }
        }
        _ if before != after => into.push(format!("{path}: {before} became {after}")),
        _ => {}
    }
}

fn visit(value: &Value, seen: &mut BTreeMap<String, Seen>) {
    if let Value::Object(object) = value
        && let (Some(version), Some(kind)) =
            (object.get("apiVersion").and_then(Value::as_str), object.get("kind").and_then(Value::as_str))
        && object.contains_key("metadata")
        && (object.contains_key("spec") || object.contains_key("webhooks"))
    {
        let seen = seen.entry(format!("{kind}.{version}")).or_default();
        match (version, kind) {
            ("work.karmada.io/v1alpha2", "ResourceBinding") => round_trip::<work::ResourceBinding>(value, seen),
            ("work.karmada.io/v1alpha2", "ClusterResourceBinding") => {
                round_trip::<work::ClusterResourceBinding>(value, seen);
            }
            ("work.karmada.io/v1alpha1", "Work") => round_trip::<work::Work>(value, seen),
            ("cluster.karmada.io/v1alpha1", "Cluster") => round_trip::<cluster::Cluster>(value, seen),
            ("policy.karmada.io/v1alpha1", "PropagationPolicy") => round_trip::<policy::PropagationPolicy>(value, seen),
            ("policy.karmada.io/v1alpha1", "ClusterPropagationPolicy") => {
                round_trip::<policy::ClusterPropagationPolicy>(value, seen);
            }
            ("policy.karmada.io/v1alpha1", "OverridePolicy") => round_trip::<policy::OverridePolicy>(value, seen),
            ("policy.karmada.io/v1alpha1", "FederatedResourceQuota") => {
                round_trip::<policy::FederatedResourceQuota>(value, seen);
            }
            ("config.karmada.io/v1alpha1", "ResourceInterpreterCustomization") => {
                round_trip::<config::ResourceInterpreterCustomization>(value, seen);
            }
            ("config.karmada.io/v1alpha1", "ResourceInterpreterWebhookConfiguration") => {
                round_trip::<config::ResourceInterpreterWebhookConfiguration>(value, seen);
            }
            ("apps.karmada.io/v1alpha1", "WorkloadRebalancer") => round_trip::<apps::WorkloadRebalancer>(value, seen),
            ("batch.volcano.sh/v1alpha1", "Job") => round_trip::<batch::Job>(value, seen),
            ("scheduling.volcano.sh/v1beta1", "Queue") => round_trip::<scheduling::Queue>(value, seen),
            ("scheduling.volcano.sh/v1beta1", "PodGroup") => round_trip::<scheduling::PodGroup>(value, seen),
            ("topology.volcano.sh/v1alpha1", "HyperNode") => round_trip::<topology::HyperNode>(value, seen),
            _ => {}
        }
    }
    match value {
        Value::Object(object) => object.values().for_each(|value| visit(value, seen)),
        Value::Array(items) => items.iter().for_each(|value| visit(value, seen)),
        _ => {}
    }
}

#[test]
fn recorded_objects_pass_through_our_types_unchanged() {
    let folder = caldera_fixtures::find_folder("CALDERA_TRANSCRIPTS_DIR", "transcripts");
    let mut seen = BTreeMap::new();
    for file in caldera_fixtures::list_files(&folder, "json") {
        visit(&serde_json::from_str(&caldera_fixtures::read_text(&file)).expect("JSON"), &mut seen);
    }
    seen.retain(|_, seen| seen.objects > 0);
    for (kind, seen) in &seen {
        println!("objects {kind}: {} read, {} changes", seen.objects, seen.changes.len());
    }
    let changed: Vec<_> = seen.iter().flat_map(|(kind, seen)| seen.changes.iter().map(move |c| (kind, c))).collect();
    assert!(changed.is_empty(), "{} changes: {:#?}", changed.len(), &changed[..changed.len().min(40)]);
    assert!(seen.len() > 4, "only {:?}", seen.keys());
}
