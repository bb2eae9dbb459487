//! What the controller says of its state at `/debug/state`.

use caldera_runtime::write::Failure;
use serde_json::{Value, json};

use super::world::World;
use crate::state::describe_state;

fn describe(world: &World) -> Value {
    describe_state(&world.controller, json!({"inFlight": 7}), Some(world.now))
}

#[test]
fn lines_are_reported_with_the_longest_first() {
    let mut world = World::new(4);
    world.queue("long", &json!({"capability": {"cpu": "1"}}));
    for name in ["a", "b", "c"] {
        world.job(name, "long", 2);
    }
    world.job("d", "q", 4);
    world.pass(2);
    let state = describe(&world);
    assert_eq!(state["bindings"], 4);
    assert_eq!(state["queues"]["count"], 3, "{state}");
    // A job that can never fit is inadmissible, one that was let go is admitted.
    let of = |name: &str| state["queues"]["first"].as_array().unwrap().iter().find(|it| it["name"] == name).unwrap();
    assert_eq!(of("long")["inadmissible"], 3, "{state}");
    assert_eq!(of("q")["admitted"], 1, "{state}");
    world.job("e", "q", 4);
    world.job("f", "q", 4);
    world.pass(2);
    assert_eq!(describe(&world)["queues"]["first"][0]["name"], "q");
    assert_eq!(describe(&world)["queues"]["first"][0]["waiting"], 2);
    assert_eq!(describe(&world)["writes"], json!({"inFlight": 7}));
}

#[test]
fn a_release_without_an_answer_and_one_that_was_refused_are_named() {
    let mut world = World::new(10);
    world.refuse.push(Failure::Refused { code: 422, reason: "Invalid".into(), message: "no".into() });
    world.job("refused", "q", 2);
    world.settle();
    let refused = json!({"binding": "ns/refused-job", "why": "refused (Invalid): no"});
    assert_eq!(describe(&world)["refusedReleases"], json!({"count": 1, "first": [refused]}));
    world.echo = false;
    world.lost = 1;
    world.job("lost", "q", 2);
    world.settle();
    let state = describe(&world);
    assert_eq!(state["unansweredReleases"]["count"], 1, "{state}");
    let first = &state["unansweredReleases"]["first"][0];
    assert_eq!((&first["binding"], &first["triesInVain"]), (&json!("ns/lost-job"), &json!(1)));
}

#[test]
fn a_place_that_is_kept_and_what_is_due_are_reported() {
    let mut world = World::new(4);
    world.job("runs", "q", 4);
    world.settle();
    world.place("runs-job", 4);
    world.phase("runs", "Running");
    world.job("waits", "q", 4);
    world.pass(120);
    let state = describe(&world);
    assert_eq!(state["reservations"]["count"], 1, "{state}");
    let kept = &state["reservations"]["first"][0];
    assert_eq!(kept["binding"], "ns/waits-job");
    assert!(kept["since"].is_string() && kept["lacks"].as_str().unwrap().starts_with("cpu: "), "{kept}");
    assert!(state["deadlines"].as_object().unwrap().contains_key("placement"));
    assert!(state["podGroups"]["due"].is_number() && state["nextDecision"].is_string());
}

#[test]
fn who_pauses_and_what_is_not_listed_is_reported() {
    let world = World::new(1);
    let state = describe(&world);
    assert_eq!((&state["paused"], &state["unlistedKinds"]), (&Value::Null, &json!([])));
    let begun = describe_state(&crate::decide::Controller::default(), json!({}), None);
    assert_eq!(begun["nextDecision"], Value::Null);
    assert_eq!(begun["queues"]["count"], 0);
}
