//! Attacks with an editor's rights: records, gates, clusters and epochs that no controller wrote.

use serde_json::{Value, json};

use super::world::{World, job};

const US: &str = "3.me";

/// Queue `q` may have 2 cpus, `other` 100, and the controller holds the lease.
fn world() -> World {
    let mut world = World::new(2);
    world.queue("other", &json!({"capability": {"cpu": "100"}}));
    world.controller.jobs.epoch = Some(US.into());
    world.settle();
    world
}

fn record(queue: &str, pods: u32, cpu: &str) -> String {
    json!({
        "queue": queue, "priority": 0, "copies": 1, "tasks": {"worker": pods},
        "charged": {"cpu": cpu, "pods": pods.to_string()},
    })
    .to_string()
}

/// One patch of a binding, as the attack has it.
fn forge(world: &mut World, name: &str, record: &str, epoch: Option<&str>, clusters: &Value) {
    let annotations = json!({"caldera.dev/gate": "open", "caldera.dev/admission": record, "caldera.dev/epoch": epoch});
    let spec = json!({"suspension": {"scheduling": false}, "clusters": clusters});
    world.patch("ResourceBinding", name, &json!({"metadata": {"annotations": annotations}, "spec": spec}));
}

fn annotation<'a>(world: &'a World, name: &str, key: &str) -> &'a Value {
    &world.get("ResourceBinding", name)["metadata"]["annotations"][key]
}

/// Whether a binding has this record.
fn assert_record(world: &World, name: &str, expected: &str) {
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

#[test]
fn a_grant_without_an_epoch_is_granted_anew_or_taken_back_as_a_stale_one() {
    let mut world = world();
    world.job("first", "q", 2);
    world.settle();
    world.job("a", "q", 2);
    world.settle();
    forge(&mut world, "a-job", &record("q", 2, "2"), None, &json!([]));
    world.pass(2);
    assert!(annotation(&world, "a-job", "caldera.dev/admission").is_null(), "the queue is full");
    assert_eq!(world.used("q"), "2");
}

#[test]
fn a_status_that_says_the_end_of_what_is_nowhere_frees_nothing() {
    let mut world = world();
    world.job("a", "q", 2);
    world.settle();
    world.phase("a", "Completed");
    world.job("b", "q", 2);
    assert!(world.pass(3).is_empty());
    assert_eq!(world.used("q"), "2");
}

/// Found by the simulation: a second copy began when the first had completed, and others had its quota.
#[test]
fn the_end_is_not_believed_before_a_cluster_that_was_added_has_told_a_status() {
    let mut world = world();
    world.job("a", "q", 2);
    world.settle();
    world.place("a-job", 2);
    world.phase("a", "Completed");
    assert_eq!(world.used("q"), "0");
    let both = json!([{"name": "m1", "replicas": 1}, {"name": "m2", "replicas": 1}]);
    world.patch("ResourceBinding", "a-job", &json!({"spec": {"clusters": both}}));
    assert_eq!(world.used("q"), "2");
    // Karmada writes what the copies say into the binding first.
    let told = |phase: &str| json!({"state": {"phase": phase}});
    let items = json!([
        {"clusterName": "m1", "status": told("Completed")},
        {"clusterName": "m2", "status": told("Running")},
    ]);
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": items}}));
    assert_eq!(world.used("q"), "2");
    world.phase("a", "Completed");
    assert_eq!(world.used("q"), "0");
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

#[test]
fn a_granted_job_that_is_not_seen_for_a_while_keeps_its_charge() {
    let mut world = world();
    world.job("a", "q", 2);
    assert_eq!(world.settle(), ["a-job"]);
    // A list of jobs that is older than the one of bindings: the scheduler may place it at any time.
    world.delete("Job", "a");
    world.job("b", "q", 2);
    assert!(world.pass(3).is_empty());
    assert_eq!(world.used("q"), "2");
}

#[test]
fn a_granted_job_that_was_never_seen_keeps_its_charge_until_its_grant_is_taken_back() {
    let mut world = world();
    world.job("a", "q", 2);
    assert_eq!(world.settle(), ["a-job"]);
    world.delete("Job", "a");
    world.job("b", "q", 2);
    world.begin_anew();
    assert!(world.pass(59).is_empty());
    assert_eq!(world.used("q"), "2", "a list of jobs may be older than the one of bindings");
    assert!(!annotation(&world, "a-job", "caldera.dev/admission").is_null());
    assert_eq!(world.pass(3), ["b-job"]);
    assert!(annotation(&world, "a-job", "caldera.dev/admission").is_null());
    // One that comes in time keeps what it was granted.
    let seen_late = world.get("Job", "b").clone();
    world.delete("Job", "b");
    world.begin_anew();
    world.pass(30);
    world.put(seen_late);
    world.pass(60);
    assert_eq!(world.used("q"), "2");
}

#[test]
fn a_granted_job_that_is_scaled_down_keeps_its_charge_until_a_smaller_record_is_stored() {
    let mut world = world();
    world.job("a", "q", 2);
    assert_eq!(world.settle(), ["a-job"]);
    // Its user suspends it before it is placed.
    world.patch("ResourceBinding", "a-job", &json!({"spec": {"suspension": {"scheduling": true}}}));
    world.settle();
    world.job("b", "q", 1);
    world.patch("Job", "a", &job("a", "q", 1));
    assert_eq!(world.used("q"), "2", "it may be scaled up again");
    assert_eq!(world.settle(), ["b-job"]);
    assert_record(&world, "a-job", &record("q", 1, "1"));
    world.patch("Job", "a", &job("a", "q", 2));
    world.settle();
    assert_eq!(world.used("q"), "2");
}

#[test]
fn a_granted_job_that_was_scaled_down_while_no_controller_ran_keeps_its_charge_until_its_record_is_cut() {
    let mut world = world();
    world.job("a", "q", 2);
    assert_eq!(world.settle(), ["a-job"]);
    world.patch("Job", "a", &job("a", "q", 1));
    world.begin_anew();
    assert_eq!(world.used("q"), "2");
    world.settle();
    assert_eq!(world.used("q"), "1");
    assert_record(&world, "a-job", &record("q", 1, "1"));
}

#[test]
fn a_grant_whose_answer_is_lost_is_no_forgery() {
    let mut world = world();
    world.lost = 2;
    world.job("a", "q", 2);
    world.pass(20);
    assert!(annotation(&world, "a-job", "caldera.dev/admission").is_string());
    world.begin_anew();
    world.pass(20);
    assert!(annotation(&world, "a-job", "caldera.dev/admission").is_string());
    assert!(!world.events().contains(&("Warning".into(), "ForgedRecord".into())));
}

#[test]
fn who_names_another_queue_while_it_runs_waits_in_that() {
    let mut world = world();
    let web = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "ns", "annotations": {"scheduling.volcano.sh/queue-name": "q"}},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
        }},
    });
    let web = world.put(web);
    world.bind(&web, 2, true);
    assert_eq!(world.settle(), ["web-deployment"]);
    world.place("web-deployment", 2);
    world.settle();
    let queue = json!({"metadata": {"annotations": {"scheduling.volcano.sh/queue-name": "other"}}});
    world.patch("Deployment", "web", &queue);
    assert_eq!(world.used("q"), "0");
    assert_eq!(world.pass(2), ["web-deployment"]);
    assert_eq!((world.used("other").as_str(), world.used("q").as_str()), ("2", "0"));
    assert!(world.events().contains(&("Normal".into(), "QueueChanged".into())), "{:?}", world.events());
    assert!(!world.events().contains(&("Warning".into(), "ForgedRecord".into())));
}
