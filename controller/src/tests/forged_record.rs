//! Attacks with an editor's rights: records, gates, clusters and epochs that no controller wrote.

use caldera_crds::workload::declared::declare_kind;
use caldera_runtime::watch::Event;
use serde_json::{Value, json};

use super::world::{World, job};
use crate::observe::{Input, ObjectKind};

const US: &str = "3.me";

/// Queue `q` may have 2 cpus, `other` 100, and the controller holds the lease.
pub(super) fn world() -> World {
    let mut world = World::new(2);
    world.queue("other", &json!({"capability": {"cpu": "100"}}));
    world.controller.jobs.epoch = Some(US.into());
    world.settle();
    world
}

pub(super) fn record(queue: &str, pods: u32, cpu: &str) -> String {
    json!({
        "queue": queue, "priority": 0, "copies": 1, "tasks": {"worker": pods},
        "charged": {"cpu": cpu, "pods": pods.to_string()},
    })
    .to_string()
}

/// One patch of a binding, as the attack has it.
pub(super) fn forge(world: &mut World, name: &str, record: &str, epoch: Option<&str>, clusters: &Value) {
    let annotations = json!({"caldera.dev/gate": "open", "caldera.dev/admission": record, "caldera.dev/epoch": epoch});
    let spec = json!({"suspension": {"scheduling": false}, "clusters": clusters});
    world.patch("ResourceBinding", name, &json!({"metadata": {"annotations": annotations}, "spec": spec}));
}

pub(super) fn annotation<'a>(world: &'a World, name: &str, key: &str) -> &'a Value {
    &world.get("ResourceBinding", name)["metadata"]["annotations"][key]
}

/// Whether a binding has this record.
pub(super) fn assert_record(world: &World, name: &str, expected: &str) {
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(read(annotation(world, name, "caldera.dev/admission").as_str().unwrap()), read(expected));
}

/// Nothing is left of what was forged, in one write, and its user is told.
fn assert_taken_away(world: &World, name: &str, writes_before: usize) {
    let binding = world.get("ResourceBinding", name);
    assert!(annotation(world, name, "caldera.dev/admission").is_null(), "{binding}");
    assert_eq!(annotation(world, name, "caldera.dev/gate"), "closed");
    assert_eq!(
        (&binding["spec"]["clusters"], &binding["spec"]["suspension"]["scheduling"]),
        (&json!([]), &json!(true))
    );
    let writes = world.writes[writes_before..].iter().filter(|write| write.name == name);
    assert_eq!(writes.filter(|write| write.resource.plural == "resourcebindings").count(), 1);
    assert!(world.events().contains(&("Warning".into(), "ForgedRecord".into())), "{:?}", world.events());
}

fn on_m1(pods: u32) -> Value {
    json!([{"name": "m1", "replicas": pods}])
}

#[test]
fn a_forged_record_of_the_lease_that_is_held_is_taken_away() {
    let mut world = world();
    world.job("first", "q", 2);
    assert_eq!(world.settle(), ["first-job"]);
    world.job("six", "q", 6);
    world.settle();
    let before = world.writes.len();
    forge(&mut world, "six-job", &record("q", 6, "6"), Some(US), &json!([]));
    assert!(world.settle().is_empty());
    assert_taken_away(&world, "six-job", before);
    assert_eq!(world.used("q"), "2");
}

/// Told as what it is, and no grant of another replica: while a lease is held nobody grants without one.
#[test]
fn a_record_of_no_lease_is_forged_where_leases_are_in_use() {
    for clusters in [json!([]), on_m1(6)] {
        let mut world = world();
        world.job("a", "q", 2);
        world.job("six", "q", 6);
        world.settle();
        let before = world.writes.len();
        forge(&mut world, "six-job", &record("q", 6, "6"), None, &clusters);
        assert!(world.settle().is_empty());
        assert_taken_away(&world, "six-job", before);
        assert_eq!(world.used("q"), "2");
    }
}

#[test]
fn a_record_that_nobody_can_read_is_taken_away_and_its_job_waits_in_line() {
    let mut world = world();
    world.job("full", "q", 2);
    world.settle();
    world.job("a", "q", 1);
    world.settle();
    let before = world.writes.len();
    forge(&mut world, "a-job", r#"{"queue": 7}"#, Some("99999999999999999999.?"), &json!([]));
    world.settle();
    assert_taken_away(&world, "a-job", before);
}

#[test]
fn clusters_that_come_with_one_more_later_lease_are_taken_away_and_not_cut_into_a_grant_of_ours() {
    let mut world = world();
    world.job("a", "q", 9);
    world.settle();
    // Nobody believes the first, and so it speaks for nothing that the second has placed.
    forge(&mut world, "a-job", &record("q", 1_000_000, "1000000"), Some("93.me"), &json!([]));
    world.settle();
    let before = world.writes.len();
    forge(&mut world, "a-job", &record("q", 1_000_000, "1000000"), Some("94.me"), &on_m1(9));
    world.pass(70);
    assert_taken_away(&world, "a-job", before);
}

#[test]
fn clusters_that_come_after_a_later_lease_are_not_cut_into_a_grant_of_ours() {
    let mut world = world();
    world.job("a", "q", 9);
    world.settle();
    let absurd = record("q", 1_000_000, "1000000");
    forge(&mut world, "a-job", &absurd, Some("98.me"), &json!([]));
    world.pass(20);
    let before = world.writes.len();
    forge(&mut world, "a-job", &absurd, Some("98.me"), &on_m1(9));
    world.pass(20);
    assert_ne!(annotation(&world, "a-job", "caldera.dev/epoch"), US, "nobody asked whether it is within a limit");
    world.pass(50);
    assert_taken_away(&world, "a-job", before);
}

#[test]
fn a_binding_for_a_workload_of_another_namespace_is_given_nothing_and_takes_nothing() {
    let mut world = world();
    world.job("a", "other", 2);
    assert_eq!(world.settle(), ["a-job"]);
    world.place("a-job", 2);
    world.settle();
    let mut evil = world.get("ResourceBinding", "a-job").clone();
    evil["metadata"] = json!({
        "name": "evil", "namespace": "mine", "uid": "evil", "annotations": {"caldera.dev/gate": "closed"},
    });
    evil["spec"]["clusters"] = json!([]);
    evil["spec"]["suspension"] = json!({"scheduling": true});
    for uid in [evil["spec"]["resource"]["uid"].clone(), json!("")] {
        evil["spec"]["resource"]["uid"] = uid;
        world.put(evil.clone());
        assert!(world.pass(10).is_empty());
        assert_eq!(world.used("other"), "2");
    }
    assert_eq!(world.get("ResourceBinding", "a-job")["spec"]["clusters"], on_m1(2), "the honest one is as it was");
}

#[test]
fn a_later_lease_on_a_job_that_runs_is_taken_away_with_what_it_runs() {
    // With leases, and without.
    for (ours, within) in [(Some(US), 70), (None, 5)] {
        let mut world = world();
        world.controller.jobs.epoch = ours.map(Into::into);
        world.job("a", "q", 2);
        assert_eq!(world.settle(), ["a-job"]);
        world.place("a-job", 2);
        world.settle();
        let before = world.writes.len();
        let many = r#"{"queue":"q","priority":0,"copies":4294967295,"tasks":{"worker":1},"charged":{"cpu":"0"}}"#;
        forge(&mut world, "a-job", many, Some("92.me"), &on_m1(1));
        world.pass(within);
        assert_taken_away(&world, "a-job", before);
    }
}

#[test]
fn a_record_of_our_lease_that_the_first_list_has_was_not_granted_by_us() {
    let mut world = world();
    world.job("a", "q", 1);
    world.queue("q", &json!({"capability": {"cpu": "0"}}));
    world.settle();
    // Read from the Lease, and written before its new holder has listed anything.
    forge(&mut world, "a-job", &record("q", 1, "1"), Some("4.me"), &json!([]));
    let before = world.writes.len();
    world.begin_anew();
    world.settle();
    assert_taken_away(&world, "a-job", before);
}

#[test]
fn a_forged_placement_is_taken_away_whichever_lease_it_names() {
    for epoch in [Some(US), Some("2.other"), None] {
        let mut world = world();
        world.job("six", "q", 6);
        world.settle();
        let before = world.writes.len();
        forge(&mut world, "six-job", &record("q", 6, "6"), epoch, &on_m1(6));
        world.settle();
        assert_taken_away(&world, "six-job", before);
        assert_eq!(world.used("q"), "0", "{epoch:?}");
    }
}

#[test]
fn a_later_lease_is_believed_only_until_we_would_know_of_it() {
    let mut world = world();
    world.job("six", "q", 6);
    world.settle();
    let before = world.writes.len();
    forge(&mut world, "six-job", &record("q", 6, "6"), Some("99.other"), &on_m1(6));
    world.pass(50);
    assert!(annotation(&world, "six-job", "caldera.dev/admission").is_string());
    world.pass(15);
    assert_taken_away(&world, "six-job", before);
}

#[test]
fn a_record_that_names_another_queue_charges_its_own_and_no_more_than_its_template() {
    let mut world = world();
    let mut pinned = job("pinned", "q", 1);
    pinned["metadata"]["annotations"]["volcano.sh/preemptable"] = "false".into();
    let pinned = world.put(pinned);
    world.bind(&pinned, 1, true);
    world.settle();
    // Forged while no controller runs, on a job that nobody would preempt.
    let absurd = record("other", 1_000_000, "1000000");
    forge(&mut world, "pinned-job", &absurd, Some("2.other"), &json!([]));
    world.begin_anew();
    assert_eq!((world.used("other").as_str(), world.used("q").as_str()), ("0", "1"));
    world.job("others", "other", 40);
    let before = world.writes.len();
    assert_eq!(world.settle(), ["others-job"], "the fleet goes on");
    assert_taken_away(&world, "pinned-job", before);
}

#[test]
fn a_record_beyond_its_template_that_was_forged_while_no_controller_ran_is_cut_to_it() {
    let mut world = world();
    world.job("a", "q", 2);
    world.settle();
    world.place("a-job", 2);
    forge(&mut world, "a-job", &record("q", 1_000_000, "1000000"), Some(US), &on_m1(2));
    world.begin_anew();
    world.settle();
    assert_record(&world, "a-job", &record("q", 2, "2"));
    assert_eq!(world.used("q"), "2");
    world.job("others", "other", 40);
    assert_eq!(world.settle(), ["others-job"], "one write later the fleet goes on");
}

#[test]
fn clusters_that_nobody_chose_charge_no_more_than_the_template() {
    let mut world = world();
    world.job("a", "q", 1);
    world.job("b", "other", 3);
    world.settle();
    world.place("a-job", 1);
    world.settle();
    let before = world.writes.len();
    let absurd = json!([{"name": "nowhere", "replicas": 2_147_483_647}, {"name": "m1", "replicas": 2_147_483_647}]);
    world.patch("ResourceBinding", "a-job", &json!({"spec": {"clusters": absurd}}));
    assert_eq!(world.used("q"), "1");
    world.settle();
    assert_taken_away(&world, "a-job", before);
    // The same without a record, seen first by a new controller: it is somebody's, and charged as such.
    let foreign = world.put(job("foreign", "q", 2));
    world.bind(&foreign, 2, false);
    world.patch("ResourceBinding", "foreign-job", &json!({"spec": {"clusters": absurd}}));
    world.begin_anew();
    assert_eq!(world.used("q"), "2");
}

#[test]
fn clusters_behind_a_closed_gate_are_taken_away() {
    let mut world = world();
    world.job("a", "q", 2);
    world.queue("q", &json!({"capability": {"cpu": "1"}}));
    world.settle();
    let before = world.writes.len();
    world.patch("ResourceBinding", "a-job", &json!({"spec": {"clusters": on_m1(2)}}));
    world.settle();
    assert_taken_away(&world, "a-job", before);
}

#[test]
fn a_record_of_another_lease_that_charges_too_little_is_not_granted_anew() {
    let mut world = world();
    world.job("six", "q", 6);
    world.settle();
    forge(&mut world, "six-job", &record("q", 6, "0"), Some("2.other"), &json!([]));
    world.pass(2);
    assert!(annotation(&world, "six-job", "caldera.dev/admission").is_null());
    assert_eq!(world.used("q"), "0");
}

#[test]
fn a_record_of_a_later_lease_beyond_its_template_is_not_cut_into_a_grant_of_ours() {
    let mut world = world();
    world.job("six", "q", 6);
    world.settle();
    forge(&mut world, "six-job", &record("q", 1_000_000, "1000000"), Some("99.other"), &json!([]));
    world.pass(2);
    assert_ne!(annotation(&world, "six-job", "caldera.dev/epoch"), US);
    world.pass(40);
    assert!(annotation(&world, "six-job", "caldera.dev/admission").is_null());
    assert_eq!(world.used("q"), "0");
}

#[test]
fn a_record_that_names_another_queue_is_taken_away_at_once_whichever_lease_it_names() {
    let mut world = world();
    world.job("six", "q", 6);
    world.settle();
    let before = world.writes.len();
    forge(&mut world, "six-job", &record("other", 6, "6"), Some("99.other"), &on_m1(6));
    world.settle();
    assert_taken_away(&world, "six-job", before);
}

#[test]
fn no_lease_is_later_than_none() {
    let mut world = world();
    world.controller.jobs.epoch = None;
    world.job("six", "q", 6);
    world.settle();
    let before = world.writes.len();
    forge(&mut world, "six-job", &record("q", 6, "6"), Some("99.other"), &on_m1(6));
    world.settle();
    assert_taken_away(&world, "six-job", before);
}

#[test]
fn clusters_whose_gate_was_taken_off_are_taken_away() {
    let mut world = world();
    world.job("six", "q", 6);
    world.settle();
    let before = world.writes.len();
    let annotations = json!({"caldera.dev/gate": null});
    let spec = json!({"suspension": {"scheduling": false}, "clusters": on_m1(6)});
    world.patch("ResourceBinding", "six-job", &json!({"metadata": {"annotations": annotations}, "spec": spec}));
    world.settle();
    assert_taken_away(&world, "six-job", before);
    assert_eq!(world.used("q"), "0");
}

#[test]
fn a_smaller_record_with_clusters_beyond_it_is_taken_away() {
    let mut world = world();
    world.job("a", "q", 2);
    assert_eq!(world.settle(), ["a-job"]);
    let before = world.writes.len();
    forge(&mut world, "a-job", &record("q", 1, "0"), Some(US), &on_m1(2));
    world.settle();
    assert_taken_away(&world, "a-job", before);
}

#[test]
fn a_record_that_is_taken_off_or_changed_by_hand_gives_nothing_back() {
    let mut world = world();
    world.job("a", "q", 2);
    world.settle();
    world.place("a-job", 2);
    world.settle();
    let before = world.writes.len();
    world.patch("ResourceBinding", "a-job", &json!({"metadata": {"annotations": {"caldera.dev/admission": null}}}));
    assert_eq!(world.used("q"), "2", "what runs is charged");
    world.settle();
    assert_taken_away(&world, "a-job", before);
    // What it was granted once does not count again.
    let old = record("q", 2, "2");
    let before = world.writes.len();
    forge(&mut world, "a-job", &old, Some(US), &json!([]));
    world.settle();
    assert_taken_away(&world, "a-job", before);
}

#[test]
fn a_record_that_is_made_larger_by_hand_is_taken_away() {
    let mut world = world();
    let mut elastic = job("e", "q", 4);
    elastic["spec"]["minAvailable"] = 1.into();
    let elastic = world.put(elastic);
    world.bind(&elastic, 4, true);
    assert_eq!(world.settle(), ["e-job"]);
    assert_record(&world, "e-job", &record("q", 2, "2"));
    let before = world.writes.len();
    forge(&mut world, "e-job", &record("q", 4, "4"), Some(US), &json!([]));
    world.settle();
    assert_taken_away(&world, "e-job", before);
}

#[test]
fn what_was_taken_from_a_record_is_not_had_again_by_writing_the_old_one() {
    let mut world = world();
    world.job("a", "q", 2);
    world.settle();
    let before = world.writes.len();
    forge(&mut world, "a-job", &record("q", 1, "1"), Some(US), &json!([]));
    forge(&mut world, "a-job", &record("q", 2, "2"), Some(US), &json!([]));
    world.settle();
    assert_taken_away(&world, "a-job", before);
}

/// The whole fleet ran for a queue of 4 cores: the record was cut to its template under the lease that was held.
#[test]
fn a_placed_record_that_was_made_larger_under_another_lease_is_not_cut_into_a_grant_of_ours() {
    let mut world = world();
    let mut elastic = job("e", "q", 4);
    elastic["spec"]["minAvailable"] = 1.into();
    let elastic = world.put(elastic);
    world.bind(&elastic, 4, true);
    assert_eq!(world.settle(), ["e-job"]);
    world.place("e-job", 2);
    world.settle();
    forge(&mut world, "e-job", &record("q", u32::MAX, "1000000"), Some("2.other"), &on_m1(2));
    world.pass(2);
    assert_record(&world, "e-job", &record("q", 2, "2"));
    assert_eq!(world.used("q"), "2");
}

/// A CRD whose conversion fails can not be listed. It holds up nobody for long, and its jobs keep what they hold.
#[test]
fn a_kind_told_by_data_that_can_not_be_listed_is_waited_for_a_while_and_its_grants_stand() {
    let spec = json!({"group": "unlisted.example.com", "version": "v1", "kind": "UnlistedRun", "plural": "unlistedruns",
        "podSets": [{"path": "spec", "template": "template"}], "status": {}, "pods": {"jobLabel": "run"}});
    let kind = declare_kind(&serde_json::from_value(spec).unwrap()).unwrap();
    assert!(
        !ObjectKind::list_required().contains(&ObjectKind::Workloads(kind)),
        "a process may know more than is followed"
    );
    let mut world = world();
    let object = json!({"apiVersion": "unlisted.example.com/v1", "kind": "UnlistedRun",
        "metadata": {"name": "r", "namespace": "ns", "uid": "of-r"}});
    world.bind(&object, 2, true);
    let held = record("q", 2, "2");
    forge(&mut world, "r-unlistedrun", &held, Some(US), &json!([]));
    world.begin_anew();
    world.controller.require_declared_kinds([kind]);
    let until = world.controller.give_up_overdue_lists(world.now).unwrap();
    assert!(!world.controller.is_complete() && world.settle().is_empty());
    assert!(world.controller.list_unlisted_kinds().contains(&ObjectKind::Workloads(kind)));
    world.now = until;
    assert_eq!(world.controller.give_up_overdue_lists(world.now), None);
    assert!(world.controller.is_complete());
    world.job("j", "q", 1);
    assert!(world.pass(70).is_empty(), "the quota is held by its record");
    assert_eq!(world.used("q"), "2");
    // Its list came, and nothing of it is there.
    world.controller.observe(Input::Workloads(kind, Event::Reset(Vec::new())), world.now);
    assert_eq!(world.pass(70), ["j-job"]);
}
