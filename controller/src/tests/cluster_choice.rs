//! Clusters that the user of a job chose: where it is released to, what it is told, and whether it could be moved.

use caldera_core::cluster_choice::ClusterChoice;
use serde_json::{Value, json};

use super::world::World;
use crate::{
    explain::{MoveAnswer, explain_move, explain_refusals},
    observe::Key,
};

/// Clusters m1 and m2 of 100 cpus each.
fn world() -> World {
    let mut world = World::new(1000);
    world.cluster("m2", "100");
    world.settle();
    world
}

fn choose(world: &mut World, job: &str, annotations: &Value) {
    world.patch("Job", job, &json!({"metadata": {"annotations": annotations}}));
}

fn key(job: &str) -> Key {
    Key::new("ns", &format!("{job}-job"))
}

/// Where a job was found a place.
fn found(world: &World, job: &str) -> Vec<String> {
    let uid = world.get("ResourceBinding", &format!("{job}-job"))["metadata"]["uid"].as_str().unwrap();
    world.controller.capacity.list_assumed_clusters(uid)
}

fn only(names: &[&str]) -> ClusterChoice {
    ClusterChoice { only: names.iter().map(|name| (*name).to_owned()).collect(), ..ClusterChoice::default() }
}

fn move_to(world: &mut World, job: &str, choice: ClusterChoice) -> MoveAnswer {
    explain_move(&mut world.controller, &key(job), choice).unwrap()
}

#[test]
fn a_job_is_released_to_the_clusters_that_its_user_chose_or_waits_and_is_reported() {
    let mut world = world();
    world.job("first", "q", 60);
    choose(&mut world, "first", &json!({"caldera.dev/clusters": "m2"}));
    assert_eq!(world.settle(), ["first-job"]);
    assert_eq!(found(&world, "first"), ["m2"]);
    world.job("second", "q", 60);
    choose(&mut world, "second", &json!({"caldera.dev/exclude-clusters": "m1"}));
    assert!(world.pass(3).is_empty(), "m1 has room, and is excluded");
    let (reason, message) = world.says("second");
    assert_eq!(reason, "InsufficientCapacity");
    assert!(message.contains("; its user keeps it out of m1"), "{message}");
    // It may go anywhere again.
    choose(&mut world, "second", &json!({"caldera.dev/exclude-clusters": null}));
    assert_eq!(world.settle(), ["second-job"]);
    assert_eq!(found(&world, "second"), ["m1"]);
}

/// Who did not fit where he chose says nothing of who asks for as much and chose nothing.
#[test]
fn a_choice_that_can_never_hold_a_job_keeps_no_other_job_of_its_kind_waiting() {
    let mut world = world();
    world.cluster("small", "4");
    world.job("chosen", "q", 60);
    choose(&mut world, "chosen", &json!({"caldera.dev/clusters": "small"}));
    assert!(world.settle().is_empty());
    world.job("free", "q", 60);
    assert_eq!(world.settle(), ["free-job"]);
}

#[test]
fn whether_a_job_could_be_moved_is_asked_of_placement_with_what_it_holds_itself() {
    let mut world = world();
    world.job("runs", "q", 60);
    assert_eq!(world.settle(), ["runs-job"]);
    world.place("runs-job", 60);
    world.settle();
    let fits = |cluster: &str| MoveAnswer::Fits([(cluster.to_owned(), 60)].into());
    assert_eq!(move_to(&mut world, "runs", only(&["m2"])), fits("m2"));
    assert_eq!(move_to(&mut world, "runs", only(&["m1"])), fits("m1"), "its own pods are not in its way");
    world.job("other", "q", 60);
    assert_eq!(world.settle(), ["other-job"]);
    match move_to(&mut world, "runs", only(&["m2"])) {
        MoveAnswer::Waits(why) => assert!(why.contains("its user lets it go only to m2"), "{why}"),
        answer => panic!("{answer:?}"),
    }
    let nowhere = ClusterChoice { exclude: ["m1", "m2"].map(str::to_owned).into(), ..ClusterChoice::default() };
    let never = MoveAnswer::Never("its policy selects none of the clusters that are left".to_owned());
    assert_eq!(move_to(&mut world, "runs", nowhere), never);
}

#[test]
fn a_cluster_that_its_policy_does_not_select_is_no_place_to_move_to() {
    let mut world = world();
    world.job("bound", "q", 60);
    let affinity = json!({"spec": {"placement": {"clusterAffinity": {"clusterNames": ["m1"]}}}});
    world.patch("ResourceBinding", "bound-job", &affinity);
    world.settle();
    let answer = move_to(&mut world, "bound", only(&["m2"]));
    assert!(matches!(&answer, MoveAnswer::Never(why) if why.contains("its policy selects none")), "{answer:?}");
    let refusals = explain_refusals(&world.controller, &key("bound"), &only(&["m1", "m2"]).only);
    assert_eq!(refusals, ["m2: cluster(s) did not match the placement cluster affinity constraint"]);
}
