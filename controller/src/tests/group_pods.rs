//! Plain Pods of one group.

use serde_json::{Value, json};

use super::world::World;
use crate::observe::Key;

/// Pod `name` of one cpu in group `g`, of which so many start together, and its gated binding.
fn pod(world: &mut World, name: &str, needed: &str) {
    let pod = world.put(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "ns", "labels": {"volcano.sh/queue-name": "q"},
            "annotations": {
                "scheduling.k8s.io/group-name": "g", "scheduling.volcano.sh/group-min-member": needed,
            },
        },
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
    }));
    world.bind(&pod, 1, true);
}

fn says(world: &World, pod: &str) -> (String, String) {
    let state = world.says(pod);
    assert_ne!(state.0, "", "{:?}", world.group(pod));
    state
}

#[test]
fn pods_of_one_group_are_admitted_together_and_charged_once_each() {
    let mut world = World::new(3);
    world.cluster("m1", "100");
    for (at, name) in ["a", "b", "c"].into_iter().enumerate() {
        assert_eq!(world.pass(2), Vec::<String>::new(), "{at} of 3 are there");
        pod(&mut world, name, "3");
    }
    assert_eq!(world.pass(2), ["a-pod", "b-pod", "c-pod"]);
    assert_eq!(world.used("q"), "3");
    let record = &world.get("ResourceBinding", "b-pod")["metadata"]["annotations"]["caldera.dev/admission"];
    let record: Value = serde_json::from_str(record.as_str().unwrap()).unwrap();
    assert_eq!(record["charged"]["cpu"], "1");
}

#[test]
fn pods_of_a_group_that_does_not_fit_wait_as_one() {
    let mut world = World::new(2);
    world.cluster("m1", "100");
    pod(&mut world, "a", "3");
    world.pass(3);
    let (reason, message) = says(&world, "a");
    assert_eq!(reason, "WaitingForJobs");
    assert!(message.ends_with("of 3 that are still needed 1 are in line"), "{message}");
    ["b", "c"].iter().for_each(|name| pod(&mut world, name, "3"));
    assert_eq!(world.pass(3), Vec::<String>::new());
    let (reason, message) = says(&world, "c");
    assert_eq!(reason, "ExceedsCapability");
    assert!(message.contains("it is one of 3 Pods of group g that start together or not at all"), "{message}");
    world.queue("q", &json!({"capability": {"cpu": "3"}}));
    assert_eq!(world.pass(3), ["a-pod", "b-pod", "c-pod"]);
}

#[test]
fn of_a_group_no_more_pods_are_looked_at_than_may_start_together() {
    let mut world = World::new(1);
    // None fits, so that all wait.
    for at in 0..=500 {
        pod(&mut world, &format!("p{at:03}"), "500");
    }
    world.settle();
    let snapshot = crate::snapshot::take_snapshot(&world.controller);
    assert_eq!(snapshot.jobs.len(), 500);
    let phase = |world: &World| format!("{:?}", world.controller.jobs.states[&Key::new("ns", "p500-pod")].phase);
    let waits = phase(&world);
    assert!(waits.contains("500 of one gang are looked at, and there are more"), "{waits}");
    // It takes the place of one that goes.
    world.delete("ResourceBinding", "p000-pod");
    world.settle();
    assert_eq!(phase(&world), "Pending");
}
