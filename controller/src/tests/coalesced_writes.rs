//! What is written for users, how often and how late.

use caldera_crds::names::caldera::PLACED_CLUSTERS;
use caldera_runtime::write::{Failure, WriteOutcome};
use jiff::SignedDuration;
use serde_json::json;
use std::collections::BTreeMap;

use super::world::World;
use crate::{decide::decide, observe::Key, write::Tag};

#[test]
fn a_whole_life_takes_three_writes_of_ours() {
    let mut world = World::new(10);
    world.job("a", "q", 4);
    world.settle();
    world.place("a-job", 4);
    world.settle();
    world.phase("a", "Running");
    world.pass(3);
    assert_eq!(world.group("a")["status"]["phase"], "Running");
    world.phase("a", "Completed");
    world.pass(3);
    assert_eq!(world.group("a")["status"]["phase"], "Completed");
    assert_eq!(world.says("a"), ("Finished".into(), "ended as Completed; queue q is charged nothing".into()));
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for write in &world.writes {
        *counts.entry(&write.resource.plural).or_default() += 1;
    }
    // Created as Running, Completed; the release.
    counts.remove("queues");
    assert_eq!(counts, [("podgroups", 2), ("resourcebindings", 1)].into());
}

#[test]
fn of_a_job_that_starts_and_ends_at_once_one_write_says_so() {
    let mut world = World::new(10);
    world.job("a", "q", 4);
    world.settle();
    world.place("a-job", 4);
    world.pass(1);
    world.phase("a", "Running");
    world.pass(1);
    world.phase("a", "Completed");
    world.settle();
    assert_eq!(world.says("a"), ("Finished".into(), "ended as Completed; queue q is charged nothing".into()));
    world.pass(60);
    let groups = world.writes.iter().filter(|write| write.resource.plural == "podgroups").count();
    assert_eq!((groups, world.events().len()), (1, 0));
}

#[test]
fn of_a_job_that_waits_for_less_than_a_second_one_write_says_how_it_ended() {
    let mut world = World::new(4);
    world.job("first", "q", 4);
    world.settle();
    world.job("a", "q", 4);
    world.settle();
    assert!(world.group("a").is_null());
    world.delete("ResourceBinding", "first-job");
    assert_eq!(world.settle(), ["a-job"]);
    world.place("a-job", 4);
    world.phase("a", "Completed");
    world.pass(60);
    assert_eq!(world.says("a").0, "Finished");
    let name = world.group("a")["metadata"]["name"].as_str().unwrap();
    let of_a = world.writes.iter().filter(|write| write.resource.plural == "podgroups" && write.name == name);
    assert_eq!((of_a.count(), world.events().len()), (1, 0));
}

/// A host that is slow for its load is not loaded with a word on each job that it makes wait.
#[test]
fn on_a_slow_server_pod_groups_of_waiting_jobs_are_made_in_turn_and_all_once_it_is_quick() {
    let mut world = World::new(4);
    world.job("first", "q", 4);
    world.settle();
    (0..200).for_each(|at| world.job(&format!("w{at:03}"), "q", 4));
    let take = |world: &mut World, millis: i64| {
        let latency = SignedDuration::from_millis(millis);
        (0..100).for_each(|_| world.controller.pod_groups.budget.observe_write(latency));
    };
    let said = |world: &World| (0..200).filter(|at| !world.group(&format!("w{at:03}")).is_null()).count();
    let mut before = 0;
    for second in 0..20 {
        take(&mut world, 60_000);
        world.pass(1);
        let now = said(&world);
        assert!(now - before <= 40, "{} in second {second}", now - before);
        before = now;
    }
    // Forty at once, and then one in a second.
    assert!((45..=80).contains(&before), "{before} of 200");
    world.delete("ResourceBinding", "first-job");
    let released = world.settle();
    let name = released[0].strip_suffix("-job").unwrap();
    assert!(!world.group(name).is_null(), "they are made in the order of the line");
    take(&mut world, 0);
    world.pass(10);
    assert_eq!(said(&world), 200);
}

/// All of them were compared with what they should say every five seconds, as long as one had no word yet.
#[test]
fn on_a_slow_server_a_job_without_a_pod_group_is_looked_at_when_its_turn_comes() {
    let mut world = World::new(4);
    world.job("first", "q", 4);
    world.settle();
    (0..200).for_each(|at| world.job(&format!("w{at:03}"), "q", 4));
    let slow = |world: &mut World| {
        let latency = SignedDuration::from_secs(60);
        (0..100).for_each(|_| world.controller.pod_groups.budget.observe_write(latency));
    };
    let said = |world: &World| (0..200).filter(|at| !world.group(&format!("w{at:03}")).is_null()).count();
    let pass = |world: &mut World, seconds: usize| {
        for _ in 0..seconds {
            slow(world);
            world.pass(1);
        }
    };
    pass(&mut world, 20);
    let (looks, before) = (world.controller.pod_groups.looks, said(&world));
    pass(&mut world, 60);
    let (looks, made) = (world.controller.pod_groups.looks - looks, said(&world) - before);
    assert!((55..=65).contains(&made), "{made}");
    // Each again when its write was answered, and when the watch showed it.
    assert!(looks <= 4 * made, "{looks} looks for {made}");
}

#[test]
fn a_pod_group_that_is_gone_is_forgotten_by_the_name_that_was_written() {
    let mut world = World::new(4);
    world.job("a", "q", 4);
    world.pass(10);
    let there = Key::new("ns", "a-vcjob");
    for (written, is_known) in [(Key::new("ns", "a-uid"), true), (there.clone(), false)] {
        let tag = Tag::PodGroup(Key::new("ns", "a-job"), written);
        let result = Err(Failure::Gone("it is gone".into()));
        world.controller.apply_write_answer(WriteOutcome { tag, result }, world.now);
        assert_eq!(world.controller.objects.pod_groups.get(&there).is_some(), is_known);
    }
}

/// Its user waits for nothing that comes by itself.
#[test]
fn of_a_job_whose_user_has_to_do_something_its_pod_group_says_so_at_once() {
    let mut world = World::new(4);
    world.job("a", "q", 5);
    world.settle();
    assert_eq!(world.says("a").0, "ExceedsCapability");
}

#[test]
fn of_a_long_line_whose_reasons_change_few_are_written_in_a_second_and_each_in_its_turn() {
    let mut world = World::new(10);
    world.cluster("m2", "200");
    let submit = |world: &mut World, name: &str, pods: u32| {
        world.job(name, "q", pods);
        let only = json!({"spec": {"placement": {"clusterAffinity": {"clusterNames": ["m1"]}}}});
        world.patch("ResourceBinding", &format!("{name}-job"), &only);
    };
    submit(&mut world, "first", 10);
    (0..60).for_each(|i| submit(&mut world, &format!("w{i}"), 1));
    world.pass(2);
    let groups = |world: &World| world.writes.iter().filter(|write| write.resource.plural == "podgroups").count();
    let before = groups(&world);
    // There is quota now, and no room.
    world.cluster("m1", "10");
    world.queue("q", &json!({"capability": {"cpu": "100"}}));
    world.pass(2);
    let written = groups(&world) - before;
    assert!((1..=30).contains(&written), "{written} writes");
    world.pass(30);
    (0..60).for_each(|i| assert_eq!(world.says(&format!("w{i}")).0, "InsufficientCapacity"));
}

#[test]
fn that_it_may_start_and_that_it_runs_is_one_write() {
    let mut world = World::new(2);
    world.job("first", "q", 2);
    world.job("a", "q", 2);
    world.pass(5);
    let groups = |world: &World| world.writes.iter().filter(|write| write.resource.plural == "podgroups").count();
    world.delete("ResourceBinding", "first-job");
    let before = groups(&world);
    world.settle();
    world.place("a-job", 2);
    world.pass(2);
    assert_eq!((groups(&world) - before, world.group("a")["status"]["phase"].as_str()), (1, Some("Pending")));
    world.phase("a", "Running");
    world.pass(1);
    assert_eq!((groups(&world) - before, world.group("a")["status"]["phase"].as_str()), (2, Some("Running")));
}

/// Its text had waited for its turn for longer than a start does.
#[test]
fn a_text_that_waited_makes_no_start_more_urgent() {
    let mut world = World::new(2);
    world.job("first", "q", 2);
    world.job("a", "q", 2);
    world.pass(5);
    let groups = |world: &World| world.writes.iter().filter(|write| write.resource.plural == "podgroups").count();
    // Of what it waits for only numbers change.
    world.queue("q", &json!({"capability": {"cpu": "3"}}));
    world.pass(10);
    let before = groups(&world);
    world.delete("ResourceBinding", "first-job");
    world.settle();
    world.place("a-job", 2);
    world.pass(2);
    world.phase("a", "Completed");
    world.settle();
    assert_eq!((groups(&world) - before, world.says("a").0.as_str()), (2, "Finished"), "one deletion, one end");
}

#[test]
fn a_job_that_does_not_run_soon_says_that_it_may_start() {
    let mut world = World::new(2);
    world.job("first", "q", 2);
    world.job("a", "q", 2);
    world.pass(5);
    world.delete("ResourceBinding", "first-job");
    world.pass(4);
    assert_eq!(world.group("a")["status"]["phase"], "Inqueue");
}

#[test]
fn a_queue_s_numbers_are_written_every_ten_seconds_at_most() {
    let mut world = World::new(9);
    world.pass(5);
    let queues = |world: &World| world.writes.iter().filter(|write| write.resource.plural == "queues").count();
    let before = queues(&world);
    for i in 0..9 {
        world.job(&format!("j{i}"), "q", 1);
        world.pass(1);
    }
    world.pass(12);
    let written = queues(&world) - before;
    assert!((2..=3).contains(&written), "{written} writes");
    assert_eq!(world.get("Queue", "q")["status"]["allocated"]["cpu"], "9");
    world.pass(60);
    assert_eq!(queues(&world) - before, written);
}

/// However many change, one in a second. Those that do not change delay nobody.
#[test]
fn of_many_queues_that_change_each_one_s_numbers_are_written_in_as_many_seconds() {
    let written_in_24_seconds = |busy: usize| {
        let mut world = World::new(100);
        (0..40).for_each(|at| world.queue(&format!("q{at}"), &json!({"capability": {"cpu": "100"}})));
        world.pass(70);
        (0..busy).for_each(|at| world.job(&format!("first{at}"), &format!("q{at}"), 1));
        world.pass(5);
        let of_q0 = |world: &World| {
            world.writes.iter().filter(|write| write.resource.plural == "queues" && write.name == "q0").count()
        };
        let before = of_q0(&world);
        for at in 0..8 {
            world.job(&format!("j{at}"), "q0", 1);
            world.pass(3);
        }
        let written = of_q0(&world) - before;
        world.pass(60);
        assert_eq!(world.get("Queue", "q0")["status"]["inqueue"], 9);
        written
    };
    assert!((2..=3).contains(&written_in_24_seconds(1)));
    assert_eq!(written_in_24_seconds(40), 0);
}

#[test]
fn nothing_is_written_while_nothing_changes() {
    let mut world = World::new(4);
    world.job("a", "q", 4);
    world.job("b", "q", 4);
    // After a minute its place is kept, which is told.
    world.pass(120);
    let before = world.writes.len();
    assert!(world.pass(120).is_empty());
    let binding = world.get("ResourceBinding", "b-job").clone();
    world.put(binding);
    world.pass(120);
    assert_eq!(world.writes.len(), before);
}

#[test]
fn that_a_job_waits_for_another_reason_is_told_on_it() {
    let mut world = World::new(10);
    world.job("s0", "q", 4);
    world.job("big", "q", 10);
    world.pass(40);
    assert_eq!(world.events(), [("Normal".into(), "WaitingForQuota".into())], "the first reason");
    world.queue("q", &json!({"capability": {"cpu": "8"}}));
    world.pass(5);
    assert_eq!((world.events().len(), &world.events()[0]), (2, &("Warning".into(), "ExceedsCapability".into())));
    world.queue("q", &json!({"capability": {"cpu": "12"}}));
    world.pass(5);
    assert_eq!(world.events()[2..], [("Normal".into(), "WaitingForQuota".into())]);
}

/// With the webhook of queues away, each answer was followed by the next try: 21,807 in 54 s.
#[test]
fn a_default_queue_that_can_not_be_created_is_tried_less_and_less_often() {
    let mut world = World::empty();
    let away = || ("queues", Failure::Transient("failed calling webhook".into()));
    world.fail = std::iter::repeat_with(away).take(100_000).collect();
    world.pass(1);
    let tried = |world: &World| 100_000 - world.fail.len();
    assert_eq!(tried(&world), 1);
    world.pass(60);
    assert_eq!(tried(&world), 6, "after 1, 3, 7, 15 and 31 seconds");
    world.pass(3_600);
    assert!((50..70).contains(&tried(&world)), "{}", tried(&world));
    world.fail.clear();
    world.pass(65);
    assert_eq!(world.get("Queue", "default")["status"]["state"], "Open");
}

#[test]
fn a_pod_group_that_can_not_be_written_is_tried_less_and_less_often() {
    let mut world = World::new(10);
    let away = || ("podgroups", Failure::Transient("away".into()));
    world.fail = std::iter::repeat_with(away).take(100_000).collect();
    world.job("a", "q", 4);
    world.pass(600);
    let tried = 100_000 - world.fail.len();
    assert!((5..20).contains(&tried), "{tried}");
    world.fail.clear();
    world.pass(70);
    assert_eq!(world.says("a").0, "Admitted");
}

#[test]
fn an_existing_default_queue_is_left_alone() {
    let mut world = World::empty();
    world.queue("default", &json!({"priority": 7}));
    world.settle();
    assert_eq!(world.get("Queue", "default")["spec"], json!({"priority": 7}));
    assert!(world.writes.iter().all(|write| write.subresource == Some("status")), "{:?}", world.writes);
}

#[test]
fn a_queue_s_status_is_open_and_counts() {
    let mut world = World::new(4);
    assert_eq!(world.get("Queue", "q")["status"]["state"], "Open");
    world.job("a", "q", 4);
    world.job("b", "q", 4);
    world.pass(4);
    let status = &world.get("Queue", "q")["status"];
    assert_eq!(status["allocated"], json!({"cpu": "4", "pods": "4"}));
    assert_eq!((&status["pending"], &status["inqueue"]), (&json!(1), &json!(1)));
    world.delete("ResourceBinding", "a-job");
    world.delete("ResourceBinding", "b-job");
    world.pass(12);
    let status = &world.get("Queue", "q")["status"];
    assert_eq!((&status["allocated"], &status["pending"]), (&json!({"cpu": "0"}), &json!(0)));
}

#[test]
fn a_queue_s_amounts_are_decimals_and_never_milli() {
    let mut world = World::new(4);
    let mut job = super::world::job("a", "q", 3);
    job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "500m".into();
    let job = world.put(job);
    world.bind(&job, 3, true);
    world.pass(6);
    assert_eq!(world.get("Queue", "q")["status"]["allocated"], json!({"cpu": "1.5", "pods": "3"}));
}

#[test]
fn of_a_new_queue_nothing_is_blank_that_is_zero_and_that_takes_no_further_write() {
    let mut world = World::new(4);
    world.queue("cards", &json!({"capability": {"nvidia.com/gpu": "8"}, "deserved": {"memory": "1Gi"}}));
    world.pass(70);
    let status = &world.get("Queue", "cards")["status"];
    assert_eq!(status["allocated"], json!({"cpu": "0", "memory": "0", "nvidia.com/gpu": "0"}));
    assert_eq!((&status["pending"], &status["running"], &status["state"]), (&json!(0), &json!(0), &json!("Open")));
    let writes = world.writes.iter().filter(|write| write.name == "cards" && write.subresource == Some("status"));
    assert_eq!(writes.count(), 1);
}

#[test]
fn a_binding_that_goes_while_its_workload_stays_takes_the_podgroup_along() {
    let mut world = World::new(0);
    world.job("a", "q", 1);
    world.pass(4);
    assert!(!world.group("a").is_null());
    world.delete("ResourceBinding", "a-job");
    world.settle();
    assert!(world.group("a").is_null());
}

#[test]
fn a_deleted_podgroup_is_made_again() {
    let mut world = World::new(2);
    world.job("a", "q", 2);
    world.job("b", "q", 2);
    world.pass(2);
    let name = world.group("b")["metadata"]["name"].as_str().unwrap().to_owned();
    world.delete("PodGroup", &name);
    world.pass(2);
    assert_eq!(world.says("b").0, "WaitingForQuota");
}

#[test]
fn other_clusters_are_told_at_once() {
    let mut world = World::new(4);
    world.cluster("m2", "100");
    world.job("a", "q", 4);
    world.settle();
    world.place("a-job", 4);
    world.pass(5);
    assert!(world.says("a").1.starts_with("placed on m1"), "{:?}", world.says("a"));
    let placed = |world: &World| world.group("a")["metadata"]["annotations"][PLACED_CLUSTERS].clone();
    assert_eq!(placed(&world), "m1");
    let clusters = json!([{"name": "m1", "replicas": 2}, {"name": "m2", "replicas": 2}]);
    world.patch("ResourceBinding", "a-job", &json!({"spec": {"clusters": clusters}}));
    world.pass(2);
    assert!(world.says("a").1.contains("m2"), "{:?}", world.says("a"));
    assert_eq!(placed(&world), "m1, m2", "with the same write");
}

/// The time of a turn was over while a sweep waited for answers: it was asked for the next turn again and again.
#[test]
fn a_sweep_that_waits_for_answers_does_not_spin() {
    let mut world = World::new(4);
    world.job("first", "q", 4);
    world.settle();
    (0..700).for_each(|at| world.job(&format!("w{at:03}"), "q", 4));
    let set_latency = |world: &mut World, seconds: i64| {
        let latency = SignedDuration::from_secs(seconds);
        (0..100).for_each(|_| world.controller.pod_groups.budget.observe_write(latency));
    };
    let pass_second = |world: &mut World| {
        world.now = world.now.saturating_add(SignedDuration::from_secs(1)).unwrap();
        decide(&mut world.controller, world.now).writes.len()
    };
    // Nobody answers. The server is slow when a sweep gives turns, and quick for the rest of it.
    let mut written = 0;
    let gives_turns = (0..100).any(|_| {
        set_latency(&mut world, 60);
        written += pass_second(&mut world);
        written >= 40 && world.controller.reasons.left.len() > 300
    });
    assert!(gives_turns, "{written} written");
    for _ in 0..4 {
        set_latency(&mut world, 0);
        drop(decide(&mut world.controller, world.now));
    }
    assert!(!world.controller.pod_groups.may_write() && !world.controller.reasons.left.is_empty(), "it waits");
    world.now = world.now.saturating_add(SignedDuration::from_secs(5)).unwrap();
    let is_due = |world: &mut World| decide(&mut world.controller, world.now).next.is_some_and(|at| at <= world.now);
    let passes = (0..100).take_while(|_| is_due(&mut world)).count();
    assert!(passes < 20, "{passes} passes in which nothing can be written");
    let turn = world.controller.pod_groups.next_due(false);
    assert!(turn.is_some_and(|at| at <= world.now), "whose turn it is waits too");
}
