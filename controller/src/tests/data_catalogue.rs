//! A catalogue that is asked where data is.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use serde_json::json;

use super::{
    data_claims::{claim_of, source},
    world::World,
};
use crate::observe::Input;

fn world() -> World {
    let mut world = World::new(1000);
    world.controller.data_catalogue.is_there = true;
    world
}

fn claim(world: &mut World, namespace: &str, name: &str, data: &str) {
    let mut claim = claim_of(name, data, "train");
    claim["metadata"]["namespace"] = namespace.into();
    world.put(claim);
}

/// What the catalogue is asked for now.
fn asked(world: &mut World) -> Option<String> {
    world.controller.take_question(world.now).map(|data| data.name.clone())
}

fn answer(world: &mut World, clusters: Result<&[&str], &str>) {
    let clusters = clusters.map(|all| all.iter().map(|cluster| (*cluster).to_owned()).collect::<BTreeSet<_>>());
    world.controller.observe(Input::Located(clusters.map_err(ToOwned::to_owned)), world.now);
}

#[test]
fn what_a_catalogue_knows_of_claimed_data_becomes_a_source_and_its_job_starts() {
    let mut world = world();
    claim(&mut world, "ns", "a", "users");
    world.job("train", "q", 4);
    assert_eq!(asked(&mut world).as_deref(), Some("users"));
    assert_eq!(asked(&mut world), None, "one question at a time");
    assert!(world.settle().is_empty());
    answer(&mut world, Ok(&["m1", "m9"]));
    assert_eq!(world.settle(), ["train-job"]);
    let source = world.objects.values().find(|object| object["kind"] == "DataSource").unwrap();
    assert!(source["metadata"]["name"].as_str().unwrap().starts_with("catalogue-"), "{source}");
    assert_eq!(source["spec"]["locality"], json!({"clusterNames": ["m1", "m9"]}));
    // It goes with its claim, and is not asked for without one.
    world.pass(3);
    world.delete("DataSourceClaim", "a");
    world.pass(1);
    assert!(world.objects.values().all(|object| object["kind"] != "DataSource"));
    world.controller.observe(Input::Listed(crate::observe::ObjectKind::DataClaims), world.now);
    assert_eq!(asked(&mut world), None);
}

#[test]
fn what_a_catalogue_does_not_know_is_asked_for_again_after_a_wait_that_doubles() {
    let mut world = world();
    claim(&mut world, "ns", "a", "users");
    let start = world.now.as_second();
    let mut times = Vec::new();
    while times.len() < 5 {
        if asked(&mut world).is_some() {
            times.push(world.now.as_second() - start);
            answer(&mut world, if times.len() % 2 == 0 { Ok(&[]) } else { Err("it answers 503") });
        }
        world.now = world.now.saturating_add(SignedDuration::from_secs(1)).unwrap();
    }
    assert_eq!(times, [0, 5, 15, 35, 75]);
    assert!(world.objects.values().all(|object| object["kind"] != "DataSource"));
}

#[test]
fn nothing_is_asked_for_that_has_a_source_or_that_is_not_its_claimants_own() {
    let mut world = world();
    source(&mut world, "known", &["m1"]);
    claim(&mut world, "ns", "a", "known");
    let mut foreign = claim_of("b", "users", "train");
    foreign["spec"]["workload"]["namespace"] = "other".into();
    world.put(foreign);
    assert_eq!(asked(&mut world), None);
    // A source that comes before the question.
    claim(&mut world, "ns", "c", "late");
    source(&mut world, "late", &["m1"]);
    assert_eq!(asked(&mut world), None);
}

#[test]
fn a_thousand_claims_of_one_namespace_delay_anothers_by_one_question() {
    let mut world = world();
    (0..1000).for_each(|at| claim(&mut world, "flood", &format!("c{at}"), &format!("d{at}")));
    assert!(asked(&mut world).is_some_and(|data| data.starts_with('d')));
    claim(&mut world, "ns", "a", "users");
    answer(&mut world, Ok(&[]));
    assert_eq!(asked(&mut world).as_deref(), Some("users"));
    answer(&mut world, Ok(&[]));
    assert!(asked(&mut world).is_some_and(|data| data.starts_with('d')));
}
