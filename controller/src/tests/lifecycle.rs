//! Queues that open and close: by Commands, with their parents, across crashes.

use caldera_crds::volcano::bus::Command;
use caldera_runtime::{
    watch::Event,
    write::{Body, Failure},
};
use serde_json::{Value, json};

use super::world::World;
use crate::observe::{CommandFacts, Input};

fn child(world: &mut World, name: &str, parent: &str) {
    world.queue(name, &json!({"parent": parent}));
}

/// Writes about queues' states and marks, in words.
fn steps(world: &World) -> Vec<String> {
    let words = |write: &caldera_runtime::write::Write| {
        let Body::MergePatch(patch) = &write.body else { return None };
        let mark = &patch["metadata"]["annotations"]["volcano.sh/closed-by-parent"];
        let (state, mark) = (patch["status"]["state"].as_str(), mark.as_str().map(|mark| format!("mark {mark}")));
        let what = state.map(str::to_owned).or(mark)?;
        assert!(patch["metadata"]["resourceVersion"].is_string(), "unfenced: {patch}");
        Some(format!("{} {what}", write.name))
    };
    world.writes.iter().filter_map(words).collect()
}

fn reported(world: &World) -> Vec<(String, String)> {
    let events = world.objects.values().filter(|object| object["kind"] == "Event");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    events.map(|event| (text(&event["involvedObject"]["kind"]), text(&event["message"]))).collect()
}

#[test]
fn a_command_closes_a_queue_and_another_opens_it() {
    let mut world = World::new(2);
    world.job("runs", "q", 2);
    world.job("waits", "q", 2);
    world.pass(5);
    world.command("CloseQueue", "q");
    assert!(world.pass(3).is_empty());
    assert_eq!(world.state("q").0, "Closing");
    assert_eq!(world.says("waits").0, "QueueNotOpen");
    assert!(world.get("Command", "closequeue-q").is_null());
    assert_eq!(world.used("q"), "2", "what runs goes on");
    world.delete("ResourceBinding", "runs-job");
    world.pass(3);
    assert_eq!(world.state("q").0, "Closed", "what waits holds nothing");
    world.command("OpenQueue", "q");
    assert_eq!(world.pass(2), ["waits-job"]);
    assert_eq!(world.state("q").0, "Open");
    assert_eq!(steps(&world), ["q Closing", "q Closed", "q Open"]);
    for said in ["Command default/closequeue-q: the queue is Closing", "Command default/openqueue-q: the queue is Open"]
    {
        assert!(reported(&world).contains(&("Queue".into(), said.into())), "{:?}", reported(&world));
    }
    let before = world.writes.len();
    world.pass(120);
    assert!(world.writes.len() <= before + 3, "numbers of the job that started: {:?}", &world.writes[before..]);
}

#[test]
fn commands_for_one_queue_are_carried_out_in_their_order() {
    let mut world = World::new(2);
    world.command("CloseQueue", "q");
    world.command("OpenQueue", "q");
    world.settle();
    assert_eq!(steps(&world), ["q Closed", "q Open"]);
    assert!(!world.objects.keys().any(|key| key.0 == "Command"));
}

#[test]
fn children_close_and_open_with_their_parent_but_who_was_closed_before_stays_closed() {
    let mut world = World::new(2);
    for (name, parent) in [("p", "root"), ("c", "p"), ("d", "c"), ("shut", "p")] {
        child(&mut world, name, parent);
    }
    world.command("CloseQueue", "shut");
    world.settle();
    world.command("CloseQueue", "p");
    world.settle();
    child(&mut world, "late", "d");
    world.settle();
    let states = |world: &World| {
        ["p", "c", "d", "late", "shut"].map(|name| {
            let (state, mark) = world.state(name);
            format!("{state} {mark}")
        })
    };
    assert_eq!(states(&world), ["Closed ", "Closed true", "Closed true", "Closed true", "Closed "]);
    world.command("OpenQueue", "p");
    world.settle();
    assert_eq!(states(&world), ["Open ", "Open false", "Open false", "Open false", "Closed "]);
}

#[test]
fn opening_below_a_closed_parent_is_refused_with_an_event_on_the_queue() {
    let mut world = World::new(2);
    child(&mut world, "p", "root");
    child(&mut world, "c", "p");
    world.command("CloseQueue", "p");
    world.settle();
    world.command("OpenQueue", "c");
    world.settle();
    assert_eq!(world.state("c").0, "Closed");
    assert!(world.get("Command", "openqueue-c").is_null());
    let said = "Command default/openqueue-c was not carried out: its parent p is not open; open that first";
    assert!(reported(&world).contains(&("Queue".into(), said.into())), "{:?}", reported(&world));
    assert!(world.events().contains(&("Warning".into(), "OpenQueue".into())));
}

#[test]
fn a_tree_that_is_opened_from_the_top_down_in_one_go_opens() {
    let mut world = World::new(2);
    for (name, parent) in [("p", "root"), ("c", "p"), ("a", "p")] {
        child(&mut world, name, parent);
    }
    for name in ["a", "c", "p"] {
        world.command("CloseQueue", name);
    }
    world.settle();
    for name in ["p", "c", "a"] {
        world.command("OpenQueue", name);
    }
    world.settle();
    assert_eq!(["p", "c", "a"].map(|name| world.state(name).0), ["Open"; 3]);
    assert!(!world.events().contains(&("Warning".into(), "OpenQueue".into())));
}

#[test]
fn the_root_can_not_be_closed() {
    let mut world = World::new(2);
    world.queue("root", &json!({}));
    world.settle();
    world.command("CloseQueue", "root");
    world.settle();
    assert_eq!(world.state("root").0, "Open");
    let said = "Command default/closequeue-root was not carried out: the root can not be closed";
    assert!(reported(&world).contains(&("Queue".into(), said.into())));
}

#[test]
fn a_state_that_there_is_none_becomes_unknown_and_starts_nothing() {
    let mut world = World::new(2);
    world.patch("Queue", "q", &json!({"status": {"state": "Ajar"}}));
    world.job("a", "q", 2);
    assert!(world.pass(2).is_empty());
    assert_eq!(world.state("q").0, "Unknown");
    assert_eq!(world.says("a"), ("QueueNotOpen".into(), "queue q is Unknown: it starts no jobs".into()));
    world.command("OpenQueue", "q");
    assert_eq!(world.settle(), ["a-job"]);
}

#[test]
fn an_action_that_queues_do_not_have_is_reported_and_taken_away() {
    let mut world = World::new(2);
    world.command("AbortJob", "q");
    world.settle();
    assert_eq!(world.state("q").0, "Open");
    assert!(world.get("Command", "abortjob-q").is_null());
    assert_eq!(world.events(), [("Warning".into(), "UnknownCommand".into())]);
}

#[test]
fn a_command_may_come_before_its_queue_but_does_not_wait_for_ever() {
    let mut world = World::new(2);
    world.command("CloseQueue", "late");
    world.command("CloseQueue", "never");
    world.pass(30);
    world.queue("late", &json!({}));
    world.pass(1);
    assert_eq!(world.state("late").0, "Closed");
    world.pass(30);
    assert!(!world.objects.keys().any(|key| key.0 == "Command"));
    let said = "queue never does not exist, or is another one by now: nothing was done";
    assert!(reported(&world).contains(&("Command".into(), said.into())));
}

#[test]
fn a_command_for_an_earlier_queue_of_the_name_is_not_for_this_one() {
    let mut world = World::new(2);
    world.command("CloseQueue", "q");
    let mut command = world.get("Command", "closequeue-q").clone();
    command["metadata"]["uid"] = "other".into();
    command["target"]["uid"] = "gone".into();
    world.delete("Command", "closequeue-q");
    world.put(command);
    world.pass(61);
    assert_eq!(world.state("q").0, "Open");
    assert!(world.get("Command", "closequeue-q").is_null());
}

/// After every number of writes: the controller stops, starts anew, and all ends as if it had not.
#[test]
fn whoever_stops_anywhere_goes_on_from_the_objects() {
    let finish = |stop: Option<usize>| {
        let mut world = World::new(2);
        for (name, parent) in [("p", "root"), ("c", "p"), ("d", "c")] {
            child(&mut world, name, parent);
        }
        world.settle();
        world.writes.clear();
        world.command("CloseQueue", "p");
        world.budget = stop;
        world.settle();
        world.budget = None;
        world.restart();
        world.pass(3);
        let closed = ["p", "c", "d"].map(|name| (world.state(name).0.to_owned(), world.state(name).1.to_owned()));
        let writes = steps(&world);
        world.command("OpenQueue", "p");
        world.budget = stop;
        world.settle();
        world.budget = None;
        world.restart();
        world.pass(3);
        let open = ["p", "c", "d"].map(|name| (world.state(name).0.to_owned(), world.state(name).1.to_owned()));
        assert!(!world.objects.keys().any(|key| key.0 == "Command"));
        (closed, open, writes, steps(&world))
    };
    let undisturbed = finish(None);
    for stop in 0..12 {
        assert_eq!(finish(Some(stop)), undisturbed, "stopped after {stop} writes");
    }
}

#[test]
fn a_command_that_was_carried_out_is_not_carried_out_again_while_it_can_not_be_deleted() {
    let mut world = World::new(2);
    world.fail = vec![("commands", Failure::Transient("busy".into())); 3];
    world.command("CloseQueue", "q");
    world.settle();
    assert_eq!(world.state("q").0, "Closed");
    world.patch("Queue", "q", &json!({"status": {"state": "Open"}}));
    world.settle();
    assert_eq!(world.state("q").0, "Open", "the edit is the last word");
    world.pass(8);
    assert!(world.get("Command", "closequeue-q").is_null());
    assert_eq!(world.state("q").0, "Open");
}

#[test]
fn a_write_that_fails_is_decided_again_from_what_is_there() {
    for failure in [Failure::Conflict("changed".into()), Failure::Transient("busy".into())] {
        let mut world = World::new(2);
        world.fail = vec![("queues", failure)];
        world.command("CloseQueue", "q");
        world.settle();
        assert_eq!(world.state("q").0, "Open");
        world.pass(5);
        assert_eq!(world.state("q").0, "Closed");
        assert!(world.get("Command", "closequeue-q").is_null());
    }
}

#[test]
fn a_conflict_that_the_watch_explains_is_not_waited_out() {
    let mut world = World::new(2);
    world.fail = vec![("queues", Failure::Conflict("changed".into()))];
    world.command("CloseQueue", "q");
    world.settle();
    world.patch("Queue", "q", &json!({"spec": {"priority": 3}}));
    world.settle();
    assert_eq!(world.state("q").0, "Closed");
}

#[test]
fn queues_in_a_circle_follow_nobody() {
    let mut world = World::new(2);
    child(&mut world, "a", "b");
    child(&mut world, "b", "a");
    world.settle();
    world.command("CloseQueue", "a");
    world.settle();
    assert_eq!((world.state("a").0, world.state("b").0), ("Closed", "Open"));
}

#[test]
fn a_list_from_before_the_deletion_does_not_carry_a_command_out_again() {
    let mut world = World::new(2);
    world.fail = vec![("commands", Failure::Transient("busy".into()))];
    world.command("CloseQueue", "q");
    world.settle();
    let listed: Command = serde_json::from_value(world.get("Command", "closequeue-q").clone()).unwrap();
    world.patch("Queue", "q", &json!({"status": {"state": "Open"}}));
    let all = CommandFacts::read(&listed).into_iter().collect();
    world.controller.observe(Input::Commands(Event::Reset(all)), world.now);
    world.pass(3);
    assert_eq!(world.state("q").0, "Open");
    assert!(world.get("Command", "closequeue-q").is_null());
}

#[test]
fn what_the_watch_brings_late_changes_nothing() {
    let mut world = World::new(2);
    let old = world.get("Queue", "q").clone();
    world.command("CloseQueue", "q");
    world.pass(5);
    let before = world.writes.len();
    world.report(&old, false);
    world.pass(10);
    assert_eq!(world.state("q").0, "Closed");
    assert_eq!(world.writes.len(), before);
}

#[test]
fn a_command_for_something_else_is_not_ours() {
    for target in [
        json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "u"}),
        json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "name": "q", "uid": "u"}),
        Value::Null,
    ] {
        let command = json!({"metadata": {"name": "c"}, "action": "CloseQueue", "target": target});
        let read = CommandFacts::read(&serde_json::from_value::<Command>(command).unwrap());
        assert_eq!(read.and_then(CommandFacts::for_queue), None);
    }
}
