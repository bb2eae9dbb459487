//! What is kept for jobs that wait long, in members with nodes; and that who only looks says of it what the controller
//! that runs does.

use std::collections::BTreeMap;

use caldera_core::{
    fleet::Update,
    inventory::{Change, Node},
    quantity::Quantity,
};
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    explain::list_into,
    world::{World, job},
};
use crate::{
    decide::Controller,
    explain::{Verdict, decide_without_writing, explain_job},
    observe::{Input, Key, ObjectKind},
};

/// Members m1, m2... with one node of so many cores each.
struct Fleet(Vec<i64>);

impl Fleet {
    /// A host with these members, and queues below the root.
    fn begin(&self, queues: &[(&str, Value)]) -> World {
        let mut world = World::empty();
        for member in self.names() {
            world.cluster(&member, "100");
        }
        self.report(&mut world.controller, world.now);
        for (name, spec) in queues {
            world.queue(name, spec);
        }
        world.settle();
        world
    }

    fn names(&self) -> Vec<String> {
        (1..=self.0.len()).map(|at| format!("m{at}")).collect()
    }

    fn report(&self, controller: &mut Controller, now: Timestamp) {
        for (member, cores) in self.names().into_iter().zip(&self.0) {
            let amounts = [("cpu", *cores), ("pods", 99)].map(|(name, units)| (name, Quantity::from_units(units)));
            let node =
                Node { name: "n".into(), allocatable: amounts.into_iter().collect(), ready: true, ..Node::default() };
            for update in [Update::Up, Update::Change(Change::Nodes(vec![node])), Update::Change(Change::Pods(vec![]))]
            {
                controller.observe(Input::Member(member.clone(), update), now);
            }
        }
    }

    /// What somebody sees who lists everything and decides nothing.
    fn look(&self, world: &World) -> Controller {
        let mut controller = Controller::default();
        let (bindings, others): (Vec<_>, Vec<_>) =
            ObjectKind::list_all().into_iter().partition(|kind| *kind == ObjectKind::Bindings);
        others.into_iter().for_each(|kind| list_into(&mut controller, world, kind));
        self.report(&mut controller, world.now);
        bindings.into_iter().for_each(|kind| list_into(&mut controller, world, kind));
        decide_without_writing(&mut controller, world.now);
        controller
    }
}

/// One pod of so many cores.
fn submit(world: &mut World, name: &str, queue: &str, cores: i64, placement: &Value) {
    let mut workload = job(name, queue, 1);
    let requests = &mut workload["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"];
    *requests = json!({"requests": {"cpu": cores.to_string()}});
    let workload = world.put(workload);
    world.bind(&workload, 1, true);
    world.patch("ResourceBinding", &binding(name), &json!({"spec": {"placement": placement}}));
}

fn binding(name: &str) -> String {
    format!("{name}-job")
}

/// Decides for so many seconds; what is released is placed where it was found a place, and runs.
fn pass(world: &mut World, seconds: i64) -> Vec<String> {
    let mut started = world.settle();
    place(world, &started);
    for _ in 0..seconds {
        let released = world.pass(1);
        place(world, &released);
        started.extend(released);
    }
    started
}

fn place(world: &mut World, released: &[String]) {
    for name in released {
        let uid = world.get("ResourceBinding", name)["metadata"]["uid"].as_str().unwrap().to_owned();
        let clusters = world.controller.capacity.list_assumed_clusters(&uid);
        let clusters: Vec<Value> = clusters.iter().map(|cluster| json!({"name": cluster, "replicas": 1})).collect();
        world.patch("ResourceBinding", name, &json!({"spec": {"clusters": clusters}}));
        world.phase(name.strip_suffix("-job").unwrap(), "Running");
    }
}

fn end(world: &mut World, name: &str) {
    world.delete("Job", name);
    world.delete("ResourceBinding", &binding(name));
}

fn kept(world: &World, name: &str) -> Option<Vec<String>> {
    let uid = world.get("ResourceBinding", &binding(name))["metadata"]["uid"].as_str().unwrap();
    let kept = world.controller.jobs.engine.reservation_of(uid)?;
    Some(kept.clusters.iter().map(ToString::to_string).collect())
}

fn anywhere() -> Value {
    json!({})
}

fn only(cluster: &str) -> Value {
    json!({"clusterAffinity": {"clusterNames": [cluster]}})
}

fn duplicated(clusters: &[&str]) -> Value {
    json!({
        "clusterAffinity": {"clusterNames": clusters},
        "replicaScheduling": {"replicaSchedulingType": "Duplicated", "replicaDivisionPreference": null},
    })
}

#[test]
fn a_job_that_fits_no_node_keeps_no_quota_and_blocks_nobody() {
    let fleet = Fleet(vec![4, 4]);
    let mut world = fleet.begin(&[("q", json!({"capability": {"cpu": "6"}}))]);
    submit(&mut world, "runs", "q", 3, &anywhere());
    assert_eq!(pass(&mut world, 1), ["runs-job"]);
    submit(&mut world, "huge", "q", 5, &anywhere());
    pass(&mut world, 62);
    let (reason, message) = world.says("huge");
    assert_eq!((reason.as_str(), kept(&world, "huge")), ("NeverFits", None), "{message}");
    submit(&mut world, "small", "q", 2, &anywhere());
    assert_eq!(pass(&mut world, 1), ["small-job"]);
    // A node that is large enough comes: it is asked again, and waits for quota as anybody does.
    let larger = Fleet(vec![4, 8]);
    larger.report(&mut world.controller, world.now);
    pass(&mut world, 3);
    assert_eq!((world.says("huge").0.as_str(), kept(&world, "huge").is_some()), ("WaitingForQuota", true));
}

#[test]
fn who_looks_is_told_at_once_that_a_job_fits_no_node() {
    let fleet = Fleet(vec![4, 4]);
    let mut world = fleet.begin(&[("q", json!({"capability": {"cpu": "6"}}))]);
    submit(&mut world, "runs", "q", 3, &anywhere());
    pass(&mut world, 1);
    submit(&mut world, "huge", "q", 5, &anywhere());
    pass(&mut world, 2);
    assert_eq!(world.says("huge").0, "WaitingForQuota", "nobody waits for it yet");
    let seen = explain_job(&mut fleet.look(&world), &Key::new("ns", "huge-job"), world.now).unwrap();
    assert_eq!((seen.verdict, seen.token.as_str(), seen.reservation), (Verdict::CanNeverStart, "NeverFits", None));
}

#[test]
fn a_duplicated_job_keeps_only_the_clusters_in_which_it_lacks_capacity() {
    let fleet = Fleet(vec![8, 4, 9]);
    let mut world = fleet.begin(&[("q", json!({}))]);
    submit(&mut world, "holder", "q", 3, &only("m2"));
    pass(&mut world, 1);
    submit(&mut world, "both", "q", 2, &duplicated(&["m1", "m2"]));
    pass(&mut world, 62);
    assert_eq!(kept(&world, "both").unwrap(), ["m2"]);
    submit(&mut world, "other", "q", 6, &only("m1"));
    assert_eq!(pass(&mut world, 1), ["other-job"], "a copy would fit beside it");
    submit(&mut world, "last", "q", 1, &only("m1"));
    assert_eq!(pass(&mut world, 1), ["last-job"]);
    // Now it lacks capacity there too.
    pass(&mut world, 1);
    assert_eq!(kept(&world, "both").unwrap(), ["m1", "m2"]);
    end(&mut world, "holder");
    submit(&mut world, "late", "q", 1, &only("m2"));
    assert!(pass(&mut world, 2).is_empty(), "what it waits for once it keeps until it has all");
    end(&mut world, "last");
    assert_eq!(pass(&mut world, 2), ["both-job", "late-job"]);
}

/// The large one has quota and fits on no node now; the small one would fit, where the large one waits for capacity.
#[test]
fn who_only_looks_sees_that_a_reservation_of_another_job_blocks() {
    let fleet = Fleet(vec![4, 4]);
    let mut world = fleet.begin(&[("q0", json!({})), ("q1", json!({}))]);
    for (name, cluster) in [("runs", "m1"), ("runs-too", "m2")] {
        submit(&mut world, name, "q1", 2, &only(cluster));
    }
    pass(&mut world, 1);
    submit(&mut world, "large", "q0", 4, &anywhere());
    pass(&mut world, 62);
    assert_eq!(kept(&world, "large").unwrap(), ["m1"]);
    submit(&mut world, "small", "q1", 1, &only("m1"));
    assert!(pass(&mut world, 2).is_empty());
    let seen = explain_job(&mut fleet.look(&world), &Key::new("ns", "small-job"), world.now).unwrap();
    assert_eq!((seen.verdict, (seen.token, seen.sentence)), (Verdict::Waiting, world.says("small")));
}

#[derive(Debug, Clone)]
enum Event {
    /// A job of so many cores in a queue.
    Arrive(usize, i64, Option<u8>),
    End(usize),
    Pass(i64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        5 => (0..3usize, 1..6i64, prop::option::weighted(0.3, 1..4u8))
            .prop_map(|(queue, cores, cluster)| Event::Arrive(queue, cores, cluster)),
        2 => (0..20usize).prop_map(Event::End),
        3 => (1..40i64).prop_map(Event::Pass),
    ]
}

type Answers = BTreeMap<String, (Verdict, String, String)>;

fn answers(controller: &mut Controller, world: &World, waiting: &[String]) -> Answers {
    let answer = |name: &String| {
        let seen = explain_job(controller, &Key::new("ns", &binding(name)), world.now)?;
        Some((name.clone(), (seen.verdict, seen.token, seen.sentence)))
    };
    waiting.iter().filter_map(answer).collect()
}

/// What can never start counts in the places of others until somebody asks about it: each job is asked about twice.
fn answer_settled(controller: &mut Controller, world: &World, waiting: &[String]) -> Answers {
    answers(controller, world, waiting);
    answers(controller, world, waiting)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// For each job that waits, `caldera why` says what the controller says, at any time of any history. Which of
    /// several clusters are kept only the controller knows: there the verdict is the same, in its words.
    #[test]
    fn who_only_looks_says_of_each_job_what_the_controller_says(
        events in prop::collection::vec(event(), 1..16),
        deserved in [prop::option::of(0..9i64), prop::option::of(0..9i64)],
        capability in prop::option::of(3..9i64),
        is_one in any::<bool>(),
    ) {
        let fleet = Fleet(if is_one { vec![8] } else { vec![4, 4, 4] });
        let cpu = |name: &str, cores: Option<i64>| match cores {
            Some(cores) => json!({name: {"cpu": cores.to_string()}}),
            None => json!({}),
        };
        let queue = |parent: &str, spec: Value| {
            let mut queue = spec;
            queue["parent"] = parent.into();
            queue["reclaimable"] = false.into();
            queue
        };
        let mut world = fleet.begin(&[
            ("top", cpu("capability", capability)),
            ("q0", queue("top", cpu("deserved", deserved[0]))),
            ("q1", queue("top", cpu("deserved", deserved[1]))),
            ("q2", queue("root", json!({}))),
        ]);
        let (mut waiting, mut running) = (Vec::<String>::new(), Vec::<String>::new());
        for (i, event) in events.iter().enumerate() {
            match event {
                Event::Arrive(at, cores, cluster) => {
                    let name = format!("j{i:02}");
                    let placement = cluster.map_or_else(anywhere, |cluster| only(&format!("m{cluster}")));
                    submit(&mut world, &name, &format!("q{at}"), *cores, &placement);
                    waiting.push(name);
                }
                Event::End(n) if !running.is_empty() => {
                    let name = running.remove(n % running.len());
                    end(&mut world, &name);
                }
                Event::End(_) => {}
                Event::Pass(seconds) => {
                    let started = pass(&mut world, *seconds);
                    settle_started(&mut waiting, &mut running, &started);
                }
            }
            let started = pass(&mut world, 2);
            settle_started(&mut waiting, &mut running, &started);
            let seen = answer_settled(&mut fleet.look(&world), &world, &waiting);
            let mut controller = std::mem::take(&mut world.controller);
            let said = answer_settled(&mut controller, &world, &waiting);
            world.controller = controller;
            let verdicts = |all: &Answers| all.values().map(|(verdict, ..)| *verdict).collect::<Vec<_>>();
            prop_assert_eq!(verdicts(&seen), verdicts(&said), "after {:?}: {:?}, {:?}", event, &seen, &said);
            if is_one {
                prop_assert_eq!(seen, said, "after {:?}", event);
            }
        }
    }
}

fn settle_started(waiting: &mut Vec<String>, running: &mut Vec<String>, started: &[String]) {
    for name in started.iter().filter_map(|name| name.strip_suffix("-job")) {
        waiting.retain(|other| other != name);
        running.push(name.to_owned());
    }
}
