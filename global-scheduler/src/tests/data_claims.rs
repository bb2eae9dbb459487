//! Data that workloads claim: where their gangs are placed, and that what is placed stays.

use std::sync::Arc;

use caldera_core::data_source::{DataClaim, DataSource};
use caldera_crds::data_source::{read_claim, read_source};
use serde_json::json;

use super::{
    parity::{aggregated, ask, goes, to, widget},
    *,
};
use crate::observe::cache::data_arrival::{DataWait, Versioned};

fn source(clusters: &[&str]) -> DataSource {
    let object = json!({
        "metadata": {"name": "users"},
        "spec": {"system": "hive", "type": "table", "name": "users", "locality": {"clusterNames": clusters}},
    });
    read_source(&serde_json::from_value(object).unwrap())
}

fn claim(locality: &str) -> DataClaim {
    let object = json!({
        "metadata": {"name": "a", "namespace": "ns", "annotations": {"caldera.dev/data-locality": locality}},
        "spec": {
            "system": "hive", "dataSourceType": "table", "dataSourceName": "users",
            "workload": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train"},
        },
    });
    read_claim(&serde_json::from_value(object).unwrap())
}

/// Members of so many cores, and a gang of four.
fn world(cores: &[i64], claim: DataClaim) -> Cache {
    let mut world = index(cores, &[job(4, 4), binding(4)]);
    world.apply_data_claims(Event::Reset(vec![claim]));
    world
}

fn refusal(world: &mut Cache) -> String {
    match verdict(world).step {
        Step::Refuse { message, clear: false, .. } => message,
        step => panic!("{step:?}"),
    }
}

#[test]
fn a_gang_is_placed_where_its_data_is_and_waits_for_a_source_in_words() {
    let mut world = world(&[4, 9, 9], claim("required"));
    let message = refusal(&mut world);
    assert!(message.contains("; waits for DataSourceClaim ns/a: no DataSource has system hive"), "{message}");
    world.add_unschedulable(&key());
    world.take_due_bindings();
    world.apply_data_sources(Event::Applied(source(&["m2", "m7"])));
    assert!(!world.is_idle(), "it is due again");
    assert_eq!(targets(&verdict(&mut world).step), [("m2".into(), 4)]);
    set_cores(&mut world, 2, 3);
    let message = refusal(&mut world);
    assert!(message.ends_with("; its data is in m2, m7"), "{message}");
    // It claims nothing any more.
    world.apply_data_claims(Event::Reset(vec![]));
    assert_eq!(targets(&verdict(&mut world).step), [("m0".into(), 4)]);
}

#[test]
fn a_gang_that_prefers_its_data_goes_there_if_it_can() {
    let soft = || claim("preferred");
    let mut there = world(&[4, 9, 9], soft());
    assert_eq!(targets(&verdict(&mut there).step), [("m0".into(), 4)], "the tightest, while nothing is known");
    there.apply_data_sources(Event::Applied(source(&["m2"])));
    assert_eq!(targets(&verdict(&mut there).step), [("m2".into(), 4)]);
    set_cores(&mut there, 2, 3);
    assert_eq!(targets(&verdict(&mut there).step), [("m0".into(), 4)], "no reason to wait, nor to be split");
}

#[test]
fn a2_46_what_is_placed_stays_whatever_becomes_of_its_data() {
    let mut world = world(&[4, 9], claim("required"));
    world.apply_data_sources(Event::Applied(source(&["m0"])));
    let there = placed(binding(4), &mut world);
    let seen = Binding::parse_binding(&there).unwrap();
    for change in 0..4 {
        match change {
            0 => {}
            1 => world.apply_data_sources(Event::Applied(source(&["m1"]))),
            2 => world.apply_data_sources(Event::Reset(vec![])),
            _ => world.apply_data_claims(Event::Deleted(claim("required"))),
        }
        world.update_binding(seen.clone());
        assert_eq!(verdict(&mut world).step, Step::Rest, "{change}");
    }
    // Nor if it is looked at anew since its policy changed.
    world.apply_data_claims(Event::Applied(claim("required")));
    world.apply_data_sources(Event::Applied(source(&["m1"])));
    let mut edited = there;
    edited["spec"]["placement"]["clusterTolerations"] = json!([{"key": "k", "operator": "Exists"}]);
    edited["metadata"]["resourceVersion"] = "9".into();
    world.update_binding(Binding::parse_binding(&edited).unwrap());
    match verdict(&mut world).step {
        Step::Place(decision) => assert_eq!(targets(&Step::Place(decision)), [("m0".into(), 4)]),
        step => panic!("{step:?}"),
    }
}

#[test]
fn a_workload_that_is_not_queued_goes_where_its_data_is_too() {
    let object = widget(2, &aggregated(&json!({})));
    let mut world = parity::world(&[9, 9], |_, _| {});
    assert_eq!(goes(&mut world, &object), to(&[("m0", 2)]));
    let bound = Binding::parse_binding(&object).unwrap();
    let workload = Arc::new(bound.workload.clone());
    world.apply_data_claims(Event::Applied(DataClaim { workload, ..claim("required") }));
    let Step::Refuse { message, .. } = ask(&mut world, &object).step else { panic!("it is placed") };
    assert!(message.contains("waits for DataSourceClaim ns/a"), "{message}");
    world.apply_data_sources(Event::Applied(source(&["m1"])));
    assert_eq!(goes(&mut world, &object), to(&[("m1", 2)]));
}

/// A claim for m1 came with the job. The binding was admitted by its version 5 and by version 4 of its source.
fn admitted_by_claim(cores: &[i64]) -> Cache {
    let mut admitted = binding(4);
    let record = admitted["metadata"]["annotations"]["caldera.dev/admission"].as_str().unwrap();
    let mut record: Value = serde_json::from_str(record).unwrap();
    record["data"] = json!({"claims": 5, "sources": 4});
    admitted["metadata"]["annotations"]["caldera.dev/admission"] = record.to_string().into();
    let mut world = index(cores, &[job(4, 4), admitted]);
    world.advance_time(now());
    world.apply_versioned_claims(Event::Reset(vec![]));
    world.apply_versioned_sources(Event::Reset(vec![Versioned { version: 4, object: source(&["m1"]) }]));
    world
}

/// Whether the decision about it may be carried out, and where it goes.
fn carried_out(world: &mut Cache) -> (DataWait, Vec<(String, i64)>) {
    let Step::Place(decision) = verdict(world).step else { panic!("no place") };
    let targets = decision.targets.clone();
    (world.start_or_check_data_wait(&key(), &targets), self::targets(&Step::Place(decision)))
}

#[test]
fn a_gang_whose_claim_is_not_seen_yet_is_not_placed_without_it() {
    let mut world = admitted_by_claim(&[4, 9]);
    world.take_due_bindings();
    assert_eq!(carried_out(&mut world), (DataWait::Silent, vec![("m0".to_owned(), 4)]));
    // Older news of something else is not it.
    let mut workload = (*claim("required").workload).clone();
    workload.name = "other".to_owned();
    let other = DataClaim { workload: Arc::new(workload), ..claim("required") };
    world.apply_versioned_claims(Event::Applied(Versioned { version: 3, object: other }));
    assert_eq!(carried_out(&mut world).0, DataWait::Silent);
    world.take_due_bindings();
    world.apply_versioned_claims(Event::Applied(Versioned { version: 5, object: claim("required") }));
    assert!(!world.is_idle(), "it is due again");
    assert_eq!(carried_out(&mut world), (DataWait::Over, vec![("m1".to_owned(), 4)]));
}

#[test]
fn a_gang_whose_claim_is_seen_before_its_gate_opens_is_placed_at_once() {
    let mut world = admitted_by_claim(&[4, 9]);
    world.apply_versioned_claims(Event::Reset(vec![Versioned { version: 5, object: claim("required") }]));
    assert_eq!(carried_out(&mut world), (DataWait::Over, vec![("m1".to_owned(), 4)]));
    // The controller saw its data in other clusters since.
    world.apply_versioned_sources(Event::Applied(Versioned { version: 6, object: source(&["m0"]) }));
    assert_eq!(carried_out(&mut world), (DataWait::Over, vec![("m0".to_owned(), 4)]));
}

#[test]
fn a_source_that_is_not_seen_as_the_controller_saw_it_is_waited_for_too() {
    let mut world = admitted_by_claim(&[4, 9]);
    world.apply_versioned_claims(Event::Applied(Versioned { version: 5, object: claim("required") }));
    let mut later = world.bindings[&key()].clone();
    later.admission.as_mut().unwrap().data = Some(caldera_core::admission::KnownData { claims: 5, sources: 8 });
    later.resource_version = "9".to_owned();
    world.update_binding(later);
    assert_eq!(carried_out(&mut world), (DataWait::Silent, vec![("m1".to_owned(), 4)]));
    world.apply_versioned_sources(Event::Applied(Versioned { version: 8, object: source(&["m0"]) }));
    assert_eq!(carried_out(&mut world), (DataWait::Over, vec![("m0".to_owned(), 4)]));
}

/// The claim was deleted before it was listed here: the controller, who takes the grant back, knows that it is gone.
#[test]
fn a_claim_that_never_comes_is_told_after_a_while_and_a_deletion_is_as_good_as_its_news() {
    let mut world = admitted_by_claim(&[4, 9]);
    assert_eq!(carried_out(&mut world).0, DataWait::Silent);
    assert_eq!(world.next_deadline(), Some(now() + jiff::SignedDuration::from_secs(10)));
    world.advance_time(now() + jiff::SignedDuration::from_secs(10));
    assert_eq!(carried_out(&mut world).0, DataWait::Reported);
    world.apply_versioned_claims(Event::Deleted(Versioned { version: 6, object: claim("required") }));
    assert_eq!(carried_out(&mut world), (DataWait::Over, vec![("m0".to_owned(), 4)]));
}
