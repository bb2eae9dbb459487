//! Grants of another replica, under another lease.

use caldera_runtime::write::Failure;
use serde_json::{Value, json};

use super::world::World;

fn annotation(world: &World, job: &str, name: &str) -> Value {
    world.get("ResourceBinding", &format!("{job}-job"))["metadata"]["annotations"][name].clone()
}

/// A release that another replica made, seen only now.
fn granted_elsewhere(world: &mut World, job: &str, pods: u32, epoch: &str) {
    let record = json!({
        "queue": "q", "priority": 0, "copies": 1, "tasks": {"worker": pods},
        "charged": {"cpu": pods.to_string(), "pods": pods.to_string()},
    });
    let annotations =
        json!({"caldera.dev/gate": "open", "caldera.dev/admission": record.to_string(), "caldera.dev/epoch": epoch});
    let patch = json!({"metadata": {"annotations": annotations}, "spec": {"suspension": {"scheduling": false}}});
    world.patch("ResourceBinding", &format!("{job}-job"), &patch);
}

#[test]
fn a_grant_says_under_which_lease_it_is() {
    let mut world = World::new(4);
    world.controller.jobs.epoch = Some("3.me".into());
    world.job("a", "q", 4);
    assert_eq!(world.settle(), ["a-job"]);
    assert_eq!(annotation(&world, "a", "caldera.dev/epoch"), "3.me");
}

#[test]
fn what_another_replica_granted_within_all_limits_is_granted_anew_once() {
    let mut world = World::new(8);
    world.controller.jobs.epoch = Some("4.me".into());
    world.queue("q", &json!({"capability": {"cpu": "4"}}));
    world.job("b", "q", 4);
    granted_elsewhere(&mut world, "b", 4, "3.other");
    let before = world.writes.len();
    world.settle();
    assert_eq!(annotation(&world, "b", "caldera.dev/epoch"), "4.me");
    world.pass(30);
    let records = world.writes[before..].iter().filter(|write| write.resource.plural == "resourcebindings").count();
    assert_eq!((records, world.used("q").as_str()), (1, "4"));
    // What is placed already needs no word.
    world.place("b-job", 4);
    world.controller.jobs.epoch = Some("5.me".into());
    world.restart();
    world.controller.jobs.epoch = Some("5.me".into());
    world.pass(30);
    assert_eq!(annotation(&world, "b", "caldera.dev/epoch"), "4.me");
}

#[test]
fn a_controller_without_a_lease_wipes_out_the_epoch_of_an_earlier_one() {
    let mut world = World::new(4);
    world.job("b", "q", 4);
    granted_elsewhere(&mut world, "b", 4, "3.other");
    world.settle();
    assert_eq!((annotation(&world, "b", "caldera.dev/epoch"), world.used("q").as_str()), (json!(""), "4"));
    let before = world.writes.len();
    world.pass(5);
    assert!(world.writes[before..].iter().all(|write| write.resource.plural != "resourcebindings"));
}

#[test]
fn what_two_replicas_granted_beyond_a_limit_is_taken_back_newest_first() {
    let mut world = World::new(8);
    world.controller.jobs.epoch = Some("4.me".into());
    for name in ["old", "young", "youngest"] {
        world.queue("q", &json!({"capability": {"cpu": "0"}}));
        world.job(name, "q", 4);
    }
    world.queue("q", &json!({"capability": {"cpu": "8"}}));
    world.settle();
    // Two were granted here; that the third was granted too is seen late.
    let granted = |world: &World| -> Vec<&str> {
        let is_granted = |name: &&str| annotation(world, name, "caldera.dev/admission").is_string();
        ["old", "young", "youngest"].into_iter().filter(is_granted).collect()
    };
    assert_eq!(granted(&world), ["old", "young"]);
    granted_elsewhere(&mut world, "youngest", 4, "3.other");
    assert_eq!(world.used("q"), "12");
    assert!(world.pass(2).is_empty());
    assert_eq!((granted(&world), world.used("q").as_str()), (vec!["old", "young"], "8"));
    assert_eq!(annotation(&world, "youngest", "caldera.dev/gate"), "closed");
    assert_eq!(world.says("youngest").0, "Requeued", "{:?}", world.says("youngest"));
    // Both of the other replica's: the older stays.
    let mut world = World::new(4);
    world.controller.jobs.epoch = Some("4.me".into());
    world.queue("q", &json!({"capability": {"cpu": "0"}}));
    for name in ["old", "young"] {
        world.job(name, "q", 4);
    }
    world.settle();
    world.queue("q", &json!({"capability": {"cpu": "4"}}));
    granted_elsewhere(&mut world, "young", 4, "3.other");
    granted_elsewhere(&mut world, "old", 4, "3.other");
    world.pass(2);
    assert!(annotation(&world, "old", "caldera.dev/admission").is_string());
    assert!(annotation(&world, "young", "caldera.dev/admission").is_null());
    assert_eq!(world.used("q"), "4");
}

/// The scheduler may have read the lease before we took it: what is taken back may be placed before that is stored. The
/// model in `model` found a history of that.
#[test]
fn nothing_is_granted_anew_in_the_place_of_a_grant_that_is_not_taken_back_yet() {
    let mut world = World::new(4);
    world.controller.jobs.epoch = Some("5.me".into());
    world.queue("q", &json!({"capability": {"cpu": "0"}}));
    for name in ["old", "young"] {
        world.job(name, "q", 4);
    }
    world.settle();
    world.queue("q", &json!({"capability": {"cpu": "4"}}));
    granted_elsewhere(&mut world, "young", 4, "4.other");
    granted_elsewhere(&mut world, "old", 4, "3.other");
    // The scheduler was faster: it had read lease 4.
    world.refuse_evictions = vec![Failure::Conflict("it was placed".into())];
    world.settle();
    assert!(world.refuse_evictions.is_empty());
    assert_eq!(annotation(&world, "old", "caldera.dev/epoch"), "3.other");
    world.place("young-job", 4);
    world.pass(10);
    assert_eq!(annotation(&world, "old", "caldera.dev/admission"), Value::Null);
    assert_eq!(world.used("q"), "4");
}

/// Two replicas that each grant anew what the other granted would write without end at one instant.
#[test]
fn a_grant_of_a_later_lease_is_left_to_its_holder_until_a_lost_lease_was_noticed() {
    let mut world = World::new(8);
    world.controller.jobs.epoch = Some("6.me".into());
    world.queue("q", &json!({"capability": {"cpu": "4"}}));
    world.job("b", "q", 4);
    granted_elsewhere(&mut world, "b", 4, "7.other");
    world.settle();
    world.pass(15);
    assert_eq!(annotation(&world, "b", "caldera.dev/epoch"), "7.other");
    assert_eq!(world.used("q"), "4");
    // The lease was made anew, and counts from the beginning: whoever still decides after that long holds it.
    world.pass(30);
    assert_eq!(annotation(&world, "b", "caldera.dev/epoch"), "6.me");
}
