//! How much the pods of a workload may say of nodes.

use std::{cell::Cell, collections::BTreeMap};

use super::*;

/// A Volcano Job of so many tasks, whose pods have this spec but for their container.
fn job(tasks: usize, spec: &Value) -> Value {
    let task = |number: usize| {
        let mut pod = json!({"containers": [{"name": "c", "image": "i"}]});
        pod.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        json!({"name": format!("t{number}"), "replicas": 1, "template": {"spec": pod}})
    };
    let tasks: Vec<Value> = (0..tasks).map(task).collect();
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"minAvailable": 1, "tasks": tasks},
    })
}

fn required(terms: Vec<Value>) -> Value {
    let required = json!({"nodeSelectorTerms": terms});
    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})
}

fn absent(keys: usize) -> Value {
    let one = |number: usize| json!({"key": format!("k{number}"), "operator": "DoesNotExist"});
    json!({"matchExpressions": (0..keys).map(one).collect::<Vec<_>>()})
}

#[test]
fn more_rules_for_nodes_than_a_scheduler_may_be_asked_are_refused_with_both_numbers() {
    let names: Vec<String> = (0..2_000).map(|number| format!("node-{number}")).collect();
    let listed = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": names}]});
    let tolerated: Vec<Value> =
        (0..2_000).map(|number| json!({"key": format!("t{number}"), "operator": "Exists"})).collect();
    let selected: BTreeMap<String, &str> = (0..2_000).map(|number| (format!("l{number}"), "v")).collect();
    for (what, spec) in [
        ("expressions without values", required(vec![absent(38_000)])),
        ("terms", required(vec![absent(1); 1_000])),
        ("values", required(vec![listed])),
        ("tolerations", json!({"tolerations": tolerated})),
        ("labels", json!({"nodeSelector": selected})),
    ] {
        let error = read_gang(&job(1, &spec)).unwrap_err().to_string();
        assert!(
            error.starts_with("spec: its pods say ") && error.ends_with("and 1040 are the most"),
            "{what}: {error}"
        );
    }
    // Nor is it told apart by tasks.
    assert!(read_gang(&job(100, &required(vec![absent(60)]))).is_err());
    let kept_by_name = job(1, &required(vec![absent(38_000)]));
    assert!(read_gang_of_copy(&kept_by_name).is_ok(), "a copy in a member is not placed by us");
}

#[test]
fn what_people_write_is_far_below_the_limit() {
    let spot = json!({"key": "spot", "operator": "Exists", "effect": "NoSchedule"});
    let zones: Vec<String> = (0..20).map(|number| format!("zone-{number}")).collect();
    let term = json!({"matchExpressions": [
        {"key": "zone", "operator": "In", "values": zones[..2]}, {"key": "model", "operator": "NotIn", "values": ["old"]},
    ]});
    let mut spec = required(vec![term]);
    spec["tolerations"] = json!([spot, spot, spot]);
    spec["nodeSelector"] = json!({"arch": "arm64", "disk": "ssd"});
    assert!(read_gang(&job(2_000, &spec)).is_ok(), "a large job of small tasks");
    let hosts: Vec<String> = (0..900).map(|number| format!("node-{number}")).collect();
    let listed = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": hosts}]});
    assert!(read_gang(&job(1, &required(vec![listed]))).is_ok(), "a list of nodes");
}

/// What the costliest job that is taken has each node asked, counted in labels that are looked up.
#[test]
fn the_costliest_claim_asks_a_node_no_more_than_the_limit() {
    let gang = read_gang(&job(1, &required(vec![absent(1_039)]))).unwrap();
    let asked = Cell::new(0_usize);
    for number in 0..1_200 {
        let look = |_: &str| {
            asked.set(asked.get() + 1);
            None
        };
        assert!(gang.tasks[0].node.admits_by(&format!("node-{number}"), look, &[]));
    }
    assert_eq!(asked.get(), 1_200 * 1_039);
}
