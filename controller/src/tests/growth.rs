//! Capacity that comes free where pods end: who looks again, against asking everybody.

use caldera_core::{
    fleet::Update,
    inventory::{Change, Node, Pod},
    numa::{NumaNode, NumaPolicy, NumaTopology},
    quantity::Quantity,
    resources::Resources,
};
use proptest::prelude::*;
use serde_json::json;

use super::world::{World, job};
use crate::{
    decide::fleet::capacity::{FleetCapacity, FleetGrowth},
    observe::Input,
};

const NODES: [(&str, &str); 4] = [("m1", "n1"), ("m1", "n2"), ("m2", "n1"), ("m2", "n2")];

fn cpus(cpus: i64) -> Resources {
    [("cpu", Quantity::from_units(cpus)), ("pods", Quantity::from_units(1))].into_iter().collect()
}

fn node(name: &str, unschedulable: bool) -> Node {
    let allocatable = [("cpu", Quantity::from_units(4)), ("pods", Quantity::from_units(9))].into_iter().collect();
    Node { name: name.into(), allocatable, ready: true, unschedulable, ..Node::default() }
}

fn pod(name: &str, node: &str, cpu: i64, finished: bool) -> Change {
    Change::Pod(Pod {
        namespace: "other".into(),
        name: name.into(),
        node: Some(node.into()),
        request: cpus(cpu),
        finished,
        owner: None,
    })
}

/// Two members of two nodes of four cpus, and a queue that has more than they.
fn world() -> World {
    let mut world = World::new(1_000);
    world.cluster("m2", "100");
    world.controller.jobs.engine.set_reservation_after(None);
    for member in ["m1", "m2"] {
        let nodes = vec![node("n1", false), node("n2", false)];
        for update in [Update::Up, Update::Change(Change::Nodes(nodes)), Update::Change(Change::Pods(vec![]))] {
            report(&mut world, member, update);
        }
    }
    world.settle();
    world
}

fn report(world: &mut World, member: &str, update: Update) {
    world.controller.observe(Input::Member(member.into(), update), world.now);
}

#[derive(Debug, Clone)]
enum Event {
    /// So many pods of so many cpus.
    Arrive(u32, u32),
    /// The workload and the binding of a job are deleted.
    Delete(usize),
    /// A pod of somebody else is bound.
    Bound(usize, i64),
    /// It ends, or is deleted.
    Ends(usize, bool),
    Cordon(usize, bool),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (1..5u32, 1..5u32).prop_map(|(pods, cpu)| Event::Arrive(pods, cpu)),
        3 => (0..30usize).prop_map(Event::Delete),
        2 => (0..4usize, 1..4i64).prop_map(|(node, cpu)| Event::Bound(node, cpu)),
        3 => (0..30usize, any::<bool>()).prop_map(|(pod, deleted)| Event::Ends(pod, deleted)),
        1 => (0..4usize, any::<bool>()).prop_map(|(node, cordoned)| Event::Cordon(node, cordoned)),
    ]
}

fn happen(world: &mut World, i: usize, event: &Event, jobs: &mut Vec<String>, pods: &mut Vec<(usize, String)>) {
    match event {
        Event::Arrive(count, cpu) => {
            let name = format!("j{i:02}");
            let mut workload = job(&name, "q", *count);
            let requests = &mut workload["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"];
            *requests = json!({"requests": {"cpu": cpu.to_string()}});
            let workload = world.put(workload);
            world.bind(&workload, *count, true);
            jobs.push(name);
        }
        Event::Delete(n) if !jobs.is_empty() => {
            let name = jobs.remove(n % jobs.len());
            world.delete("Job", &name);
            world.delete("ResourceBinding", &format!("{name}-job"));
        }
        Event::Bound(n, cpu) => {
            let (member, node) = NODES[*n];
            let name = format!("p{i:02}");
            report(world, member, Update::Change(pod(&name, node, *cpu, false)));
            pods.push((*n, name));
        }
        Event::Ends(n, deleted) if !pods.is_empty() => {
            let (at, name) = pods.remove(n % pods.len());
            let (member, node) = NODES[at];
            let gone = Change::PodGone("other".into(), name.clone());
            report(world, member, Update::Change(if *deleted { gone } else { pod(&name, node, 1, true) }));
        }
        Event::Cordon(n, cordoned) => {
            let (member, name) = NODES[*n];
            report(world, member, Update::Change(Change::Node(node(name, *cordoned))));
        }
        Event::Delete(_) | Event::Ends(..) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Who is released, after each event, is the same as if everybody who fitted nowhere were asked again.
    #[test]
    fn room_that_came_free_releases_whom_asking_everybody_releases(
        events in prop::collection::vec(event(), 1..40)
    ) {
        let mut worlds = [world(), world()];
        let mut reported = [(Vec::new(), Vec::new()), (Vec::new(), Vec::new())];
        for (i, event) in events.iter().enumerate() {
            let [some, all] = [0, 1].map(|which| {
                let (world, (jobs, pods)) = (&mut worlds[which], &mut reported[which]);
                happen(world, i, event, jobs, pods);
                if which == 1 {
                    world.controller.jobs.engine.requeue_after_capacity_change();
                }
                // What others use is counted once a second at most.
                world.pass(2)
            });
            prop_assert_eq!(some, all, "after {:?}", event);
        }
    }
}

/// Says what a room grew by.
fn grown(fleet: &mut FleetCapacity) -> Option<(i64, i64)> {
    match fleet.take_capacity_growth()? {
        FleetGrowth::Somewhere => None,
        FleetGrowth::By(growth) => {
            let units = |of: &Resources| i64::try_from(of.get("cpu").units_ceil()).unwrap();
            Some((units(&growth.free), units(&growth.largest)))
        }
    }
}

#[test]
fn where_only_pods_ended_it_is_reported_by_how_much() {
    let mut world = world();
    let fleet = &mut world.controller.capacity;
    fleet.take_capacity_growth();
    fleet.apply_update("m1", Update::Change(pod("a", "n1", 3, false)));
    fleet.apply_update("m2", Update::Change(pod("b", "n1", 4, false)));
    fleet.apply_update("m2", Update::Change(pod("c", "n2", 3, false)));
    assert_eq!(fleet.take_capacity_growth(), None, "a pod that is bound only takes");
    fleet.apply_update("m2", Update::Change(Change::PodGone("other".into(), "c".into())));
    assert_eq!(grown(fleet), Some((9, 4)));
    fleet.apply_update("m1", Update::Change(pod("a", "n1", 3, true)));
    fleet.apply_update("m1", Update::Change(Change::Node(node("n2", true))));
    assert_eq!(fleet.take_capacity_growth(), Some(FleetGrowth::Somewhere), "nodes are others");
}

/// A member's exporter writes a report with each pod that has CPUs for itself.
#[test]
fn what_numa_nodes_have_free_is_asked_for_as_what_pods_leave_and_changes_no_sum() {
    let mut world = world();
    let fleet = &mut world.controller.capacity;
    let report = |free| {
        let node = NumaNode { cpus: 4, allocatable: 4, free };
        let topology = NumaTopology::new(Some(NumaPolicy::SingleNumaNode), vec![node]).unwrap();
        Update::Change(Change::NumaTopology("n1".into(), topology))
    };
    fleet.take_capacity_growth();
    fleet.take_changed();
    for update in [report(4), report(1), Update::Change(Change::NumaTopologyGone("n1".into()))] {
        fleet.apply_update("m1", update);
        assert!(!fleet.take_changed());
        assert!(matches!(fleet.take_capacity_growth(), Some(FleetGrowth::By(_))));
        assert!(fleet.have_other_pods_changed(), "what could never fit is asked again, once a second");
    }
}
