//! What the annotation `applied-placement` says, and what of it counts as a change.

use super::*;

const APPLIED: &str = "policy.karmada.io/applied-placement";
const LOSSES: [&str; 2] = ["cluster.karmada.io/not-ready", "cluster.karmada.io/unreachable"];

fn tolerate(keys: &[&str]) -> Vec<Value> {
    keys.iter().map(|key| json!({"key": key, "operator": "Exists", "effect": "NoExecute"})).collect()
}

/// The binding after the patch that places it.
fn place(world: &mut Cache, mut object: Value) -> Value {
    world.update_binding(Binding::parse_binding(&object).unwrap());
    let Step::Place(decision) = verdict(world).step else { panic!("not placed") };
    let Body::JsonPatch(patch) = binding_writes::build_placement_write(&world.bindings[&key()], &decision).body else {
        panic!("no patch")
    };
    let operations: json_patch::Patch = serde_json::from_value(patch).unwrap();
    json_patch::patch(&mut object, &operations).unwrap();
    object["metadata"]["resourceVersion"] = "8".into();
    object
}

fn applied(object: &Value) -> Value {
    serde_json::from_str(object["metadata"]["annotations"][APPLIED].as_str().unwrap()).unwrap()
}

#[test]
fn a_gang_tolerates_the_loss_of_its_clusters_before_what_its_policy_says_of_it() {
    let mut object = binding(6);
    let own = json!([
        {"key": "cluster.karmada.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
        {"key": "gpu", "operator": "Exists"},
    ]);
    object["spec"]["placement"]["clusterTolerations"] = own.clone();
    let mut world = index(&[2, 4], &[job(6, 6), object.clone()]);
    let placed = place(&mut world, object.clone());
    let mut wanted = object["spec"]["placement"].clone();
    wanted["clusterTolerations"] = [tolerate(&LOSSES), own.as_array().unwrap().clone()].concat().into();
    assert_eq!(applied(&placed), wanted);
    world.update_binding(Binding::parse_binding(&placed).unwrap());
    assert!(matches!(verdict(&mut world).step, Step::Confirm { .. }), "its placement is the one that it has");
}

#[test]
fn a_gang_is_placed_anew_for_each_change_of_its_own_tolerations() {
    let object = binding(6);
    let mut world = index(&[2, 4], &[job(6, 6), object.clone()]);
    let mut placed = place(&mut world, object);
    for (version, own) in [("9", tolerate(&["gpu"])), ("10", tolerate(&LOSSES)), ("11", tolerate(&LOSSES[..1]))] {
        placed["spec"]["placement"]["clusterTolerations"] = own.into();
        placed["metadata"]["resourceVersion"] = version.into();
        placed = place(&mut world, placed);
    }
}

/// By an earlier version, or by karmada-scheduler.
#[test]
fn a_gang_that_was_placed_without_these_tolerations_is_not_placed_anew_for_them() {
    let object = binding(6);
    let mut world = index(&[2, 4], &[job(6, 6), object.clone()]);
    let mut placed = place(&mut world, object);
    placed["metadata"]["annotations"][APPLIED] = placed["spec"]["placement"].to_string().into();
    placed["metadata"]["resourceVersion"] = "9".into();
    world.update_binding(Binding::parse_binding(&placed).unwrap());
    assert!(matches!(verdict(&mut world).step, Step::Confirm { .. }));
}

/// Its other copies serve on, and Karmada's failover is for it.
#[test]
fn what_is_duplicated_is_placed_by_its_policy_to_the_letter() {
    let mut object = binding(2);
    let admission = json!({"queue": "q", "priority": 0, "copies": 2, "tasks": {"w": 2}, "charged": {}});
    object["metadata"]["annotations"]["caldera.dev/admission"] = admission.to_string().into();
    object["spec"]["placement"] = json!({"replicaScheduling": {"replicaSchedulingType": "Duplicated"}});
    let mut world = index(&[2, 4], &[job(2, 2), object.clone()]);
    let placed = place(&mut world, object);
    assert_eq!(applied(&placed), placed["spec"]["placement"]);
}
