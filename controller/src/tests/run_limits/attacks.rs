//! The attacks of a tenant with every right of an editor, and no policy that keeps the record from him.

use super::*;

#[test]
fn neither_a_resize_nor_an_edited_annotation_gains_time() {
    let mut world = world("100s");
    run(&mut world, "a", 2);
    let run = run_of(&world, "a");
    limit_job(&mut world, "a", "90h");
    world.pass(50);
    for pods in [4, 3] {
        let tasks = json!([{
            "name": "worker", "replicas": pods,
            "template": {"spec": {"containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}},
            ]}},
        }]);
        world.patch("Job", "a", &json!({"spec": {"minAvailable": pods, "tasks": tasks}}));
        world.pass(3);
        let tasks = record(&world, "a", ADMISSION)["tasks"].clone();
        assert_eq!((run_of(&world, "a"), tasks), (run.clone(), json!({"worker": pods})));
    }
    world.begin_anew();
    world.pass(45);
    assert_ended_by_its_limit(&world, "a");
}

#[test]
fn a_record_with_more_time_a_later_begin_or_no_limit_is_taken_away_whatever_lease_it_names() {
    let runs = [
        json!(null),
        json!({"from": 1_000_001, "seconds": 101}),
        json!({"from": 1_000_002, "seconds": 100}),
        json!({"from": 9_999_999, "seconds": 1}),
        json!({"from": i64::MAX, "seconds": i64::MAX}),
        json!({"from": 1_000_001, "seconds": 0}),
        json!({"from": i64::MIN, "seconds": -1}),
    ];
    for (run, epoch) in runs.iter().flat_map(|run| [US, "2.other", "99.other", "what"].map(|epoch| (run, epoch))) {
        let mut world = world("100s");
        super::run(&mut world, "a", 4);
        let mut forged = record(&world, "a", ADMISSION);
        assert_eq!(forged["run"], json!({"from": 1_000_001, "seconds": 100}));
        json_patch::merge(&mut forged, &json!({"run": run}));
        let annotations = json!({ADMISSION: forged.to_string(), "caldera.dev/epoch": epoch});
        world.patch("ResourceBinding", "a-job", &json!({"metadata": {"annotations": annotations}}));
        // What names a later lease has a minute.
        world.pass(if epoch == "99.other" { 62 } else { 1 });
        assert_eq!(clusters(&world, "a"), 0, "{run} under {epoch}");
        assert_eq!(record(&world, "a", EVICTION)["reason"], "ForgedRecord", "{run} under {epoch}");
    }
}

#[test]
fn less_time_is_ones_own_and_no_more_comes_back() {
    let mut world = world("100s");
    run(&mut world, "a", 4);
    let granted = record(&world, "a", ADMISSION);
    let mut less = granted.clone();
    less["run"]["seconds"] = json!(20);
    let write = |world: &mut World, record: &Value| {
        let annotations = json!({ADMISSION: record.to_string()});
        world.patch("ResourceBinding", "a-job", &json!({"metadata": {"annotations": annotations}}));
        world.settle();
    };
    write(&mut world, &less);
    assert_eq!(clusters(&world, "a"), 1);
    write(&mut world, &granted);
    assert_eq!(record(&world, "a", EVICTION)["reason"], "ForgedRecord");
}

#[test]
fn a_run_that_begins_later_than_now_in_the_first_list_is_taken_away_and_clocks_may_differ_a_little() {
    for (ahead, stays) in [(30, true), (3_600, false)] {
        let mut world = world("100s");
        run(&mut world, "a", 4);
        let mut forged = record(&world, "a", ADMISSION);
        forged["run"]["from"] = json!(world.now.as_second() + ahead);
        let annotations = json!({ADMISSION: forged.to_string()});
        // While no controller runs.
        let mut binding = world.get("ResourceBinding", "a-job").clone();
        json_patch::merge(&mut binding, &json!({"metadata": {"annotations": annotations}}));
        let key = ("ResourceBinding".to_owned(), "ns".to_owned(), "a-job".to_owned());
        world.objects.insert(key, binding);
        world.begin_anew();
        world.settle();
        assert_eq!(clusters(&world, "a") == 1, stays, "{ahead} s ahead");
    }
}

#[test]
fn a_grant_of_another_lease_of_which_nothing_is_placed_gets_the_limit_of_now() {
    for run in [json!(null), json!({"from": 0, "seconds": 999_999_999})] {
        let mut world = world("100s");
        world.job("a", "q", 4);
        let mut forged = json!({
            "queue": "q", "priority": 0, "copies": 1, "tasks": {"worker": 4}, "charged": {"cpu": "4", "pods": "4"},
        });
        json_patch::merge(&mut forged, &json!({"run": run}));
        let annotations = json!({GATE: "open", ADMISSION: forged.to_string(), "caldera.dev/epoch": "2.other"});
        let spec = json!({"suspension": {"scheduling": false}});
        world.patch("ResourceBinding", "a-job", &json!({"metadata": {"annotations": annotations}, "spec": spec}));
        world.pass(1);
        assert_eq!(annotation(&world, "a", "caldera.dev/epoch"), US);
        assert_eq!(run_of(&world, "a"), json!({"from": world.now.as_second(), "seconds": 100}), "{run}");
    }
}

#[test]
fn whoever_changes_his_binding_all_the_time_is_ended_as_soon_as_one_write_meets_none_of_his() {
    let mut world = world("10s");
    run(&mut world, "a", 4);
    world.refuse_evictions = vec![Failure::Conflict("changed".into()); 20];
    world.pass(10);
    for edit in 0..20 {
        assert_eq!(clusters(&world, "a"), 1, "{edit}");
        let annotations = json!({"mine": edit.to_string()});
        world.patch("ResourceBinding", "a-job", &json!({"metadata": {"annotations": annotations}}));
        world.settle();
    }
    assert_ended_by_its_limit(&world, "a");
}

#[test]
fn neither_a_status_nor_a_suspension_of_ones_own_keeps_a_run_from_its_end() {
    for patch in [
        ("Job", json!({"status": {"state": {"phase": "Completed"}}})),
        ("Job", json!({"metadata": {"annotations": {"caldera.dev/hold": "true"}}})),
        ("ResourceBinding", json!({"spec": {"suspension": {"scheduling": true}}})),
        ("ResourceBinding", json!({"spec": {"suspension": {"dispatching": true}}})),
    ] {
        let mut world = world("20s");
        run(&mut world, "a", 4);
        let name = if patch.0 == "Job" { "a" } else { "a-job" };
        world.patch(patch.0, name, &patch.1);
        world.pass(22);
        assert_ended_by_its_limit(&world, "a");
    }
}
