//! What happens to placed gangs when clusters fail, shrink, go and come back: who can stay is not disturbed.

use super::*;

/// Six pods in two members (m0: 2, m1: 4), and a third member with room for all of them.
fn settled() -> (Cache, Value) {
    let mut world = index(&[2, 4, 0], &[job(6, 6), binding(6)]);
    let object = placed(binding(6), &mut world);
    world.update_binding(Binding::parse_binding(&object).unwrap());
    set_cores(&mut world, 2, 20);
    assert_eq!(clusters_of(&object), [("m0".to_owned(), 2), ("m1".to_owned(), 4)]);
    (world, object)
}

fn clusters_of(object: &Value) -> Vec<(String, i64)> {
    let one = |target: &Value| (target["name"].as_str().unwrap().to_owned(), target["replicas"].as_i64().unwrap());
    object["spec"]["clusters"].as_array().unwrap().iter().map(one).collect()
}

fn change(world: &mut Cache, object: &mut Value, version: &str, edit: impl FnOnce(&mut Value)) {
    edit(object);
    object["metadata"]["resourceVersion"] = version.into();
    world.update_binding(Binding::parse_binding(object).unwrap());
}

fn set_cluster(world: &mut Cache, name: &str, edit: impl FnOnce(&mut Value)) {
    let mut object = cluster(name);
    edit(&mut object);
    world.apply_clusters(Event::Applied(serde_json::from_value(object).unwrap()));
}

/// What an eviction does: the cluster is taken off the list and a task remembers it.
fn evict(world: &mut Cache, object: &mut Value, version: &str, cluster: &str) {
    change(world, object, version, |object| {
        object["spec"]["clusters"].as_array_mut().unwrap().retain(|target| target["name"] != cluster);
        object["spec"]["gracefulEvictionTasks"] =
            json!([{"fromCluster": cluster, "reason": "TaintUntolerated", "producer": "TaintManager"}]);
        object["metadata"]["generation"] = 4.into();
    });
}

#[test]
fn a_gang_stays_while_its_cluster_is_not_ready_tainted_shrunk_or_silent() {
    let (mut world, _) = settled();
    set_cluster(&mut world, "m1", |cluster| cluster["status"]["conditions"][0]["status"] = "False".into());
    assert_eq!(verdict(&mut world).step, Step::Rest);
    set_cluster(&mut world, "m1", |cluster| {
        cluster["spec"]["taints"] = json!([{"key": "cluster.karmada.io/not-ready", "effect": "NoSchedule"}]);
        cluster["status"]["apiEnablements"] = json!([]);
    });
    assert_eq!(verdict(&mut world).step, Step::Rest);
    set_cores(&mut world, 1, 0);
    assert_eq!(verdict(&mut world).step, Step::Rest);
    world.apply_member("m1", Update::Down("no route".into()));
    assert_eq!(verdict(&mut world).step, Step::Rest);
    world.apply_member("m1", Update::Up);
    set_cluster(&mut world, "m1", |_| {});
    assert_eq!(verdict(&mut world), Verdict { step: Step::Rest, awaits_capacity: false });
}

#[test]
fn only_the_part_that_is_evicted_goes_elsewhere_and_does_not_come_back() {
    let (mut world, mut object) = settled();
    evict(&mut world, &mut object, "9", "m0");
    assert_eq!(targets(&verdict(&mut world).step), [("m1".into(), 4), ("m2".into(), 2)]);
    let mut object = placed(object, &mut world);
    change(&mut world, &mut object, "10", |object| object["status"]["schedulerObservedGeneration"] = 3.into());
    // The eviction is over and m0 has its room again.
    change(&mut world, &mut object, "11", |object| object["spec"]["gracefulEvictionTasks"] = json!([]));
    set_cores(&mut world, 0, 30);
    assert_eq!(verdict(&mut world), Verdict { step: Step::Rest, awaits_capacity: false });
}

#[test]
fn a_part_that_finds_no_room_leaves_the_others_where_they_are() {
    let (mut world, mut object) = settled();
    set_cores(&mut world, 2, 1);
    evict(&mut world, &mut object, "9", "m0");
    let now = verdict(&mut world);
    let Step::Refuse { reason: "Unschedulable", clear: false, .. } = &now.step else { panic!("{now:?}") };
    assert!(now.awaits_capacity, "it is looked at again when there is room");
    set_cores(&mut world, 2, 2);
    assert_eq!(targets(&verdict(&mut world).step), [("m1".into(), 4), ("m2".into(), 2)]);
}

/// An elastic gang that is above its minimum without the lost part runs on with what it has.
#[test]
fn an_elastic_gang_goes_on_smaller_and_grows_again() {
    let mut world = index(&[2, 4], &[job(6, 4), binding(6)]);
    let mut object = placed(binding(6), &mut world);
    world.update_binding(Binding::parse_binding(&object).unwrap());
    evict(&mut world, &mut object, "9", "m0");
    let now = verdict(&mut world);
    assert_eq!((targets(&now.step), now.awaits_capacity), (vec![("m1".into(), 4)], true));
    let mut object = placed(object, &mut world);
    change(&mut world, &mut object, "12", |object| object["spec"]["gracefulEvictionTasks"] = json!([]));
    assert_eq!(targets(&verdict(&mut world).step), [("m0".into(), 2), ("m1".into(), 4)]);
}

#[test]
fn a_cluster_that_is_deleted_or_gone_loses_its_part_alone() {
    let (mut world, _) = settled();
    set_cluster(&mut world, "m0", |cluster| {
        cluster["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    });
    assert_eq!(targets(&verdict(&mut world).step), [("m1".into(), 4), ("m2".into(), 2)]);
    let (mut world, _) = settled();
    world.apply_clusters(Event::Deleted(serde_json::from_value(cluster("m0")).unwrap()));
    assert_eq!(targets(&verdict(&mut world).step), [("m1".into(), 4), ("m2".into(), 2)]);
}

#[test]
fn a_gang_that_loses_its_only_cluster_moves_whole_or_not_at_all() {
    let mut world = index(&[6, 5], &[job(6, 6), binding(6)]);
    let mut object = placed(binding(6), &mut world);
    world.update_binding(Binding::parse_binding(&object).unwrap());
    assert_eq!(clusters_of(&object), [("m0".to_owned(), 6)]);
    evict(&mut world, &mut object, "9", "m0");
    let Step::Refuse { reason: "Unschedulable", clear: false, .. } = verdict(&mut world).step else { panic!() };
    set_cores(&mut world, 1, 6);
    assert_eq!(targets(&verdict(&mut world).step), [("m1".into(), 6)]);
}

/// Better places do not pull a gang away: only a triggered reschedule asks for that.
#[test]
fn a_gang_in_two_clusters_stays_when_one_alone_would_do() {
    let (mut world, mut object) = settled();
    assert_eq!(verdict(&mut world).step, Step::Rest);
    change(&mut world, &mut object, "9", |object| {
        object["spec"]["rescheduleTriggeredAt"] = "2026-01-02T00:00:00Z".into();
    });
    assert_eq!(targets(&verdict(&mut world).step), [("m2".into(), 6)]);
}

/// [`settled`], of a job whose copies have the ranks and hosts of all of them.
fn settled_over_a_clusterset() -> (Cache, Value) {
    let mut workload = job(6, 6);
    workload["metadata"]["annotations"] = json!({"caldera.dev/rendezvous": "clusterset"});
    workload["spec"]["plugins"] = json!({"pytorch": []});
    workload["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["command"] = json!(["python"]);
    let mut world = index(&[2, 4, 0], &[workload, binding(6)]);
    let mut object = placed(binding(6), &mut world);
    object["status"]["aggregatedStatus"] = json!([{"clusterName": "m0"}, {"clusterName": "m1"}]);
    world.update_binding(Binding::parse_binding(&object).unwrap());
    assert_eq!(clusters_of(&object), [("m0".to_owned(), 2), ("m1".to_owned(), 4)]);
    (world, object)
}

fn is_withdrawn(step: &Step) -> bool {
    matches!(step, Step::Refuse { reason: "Withdrawn", clear: true, .. })
}

/// What Karmada and the scheduler write when it leaves its clusters, and the copies being told of.
fn leave(world: &mut Cache, object: &mut Value, version: &str, copies: Value) {
    change(world, object, version, |object| {
        object["spec"]["clusters"] = json!([]);
        object["metadata"]["annotations"].as_object_mut().unwrap().remove("caldera.dev/plan");
        object["status"]["aggregatedStatus"] = copies;
    });
}

#[test]
fn a_gang_over_a_clusterset_that_loses_a_part_leaves_all_its_clusters_and_is_placed_when_its_copies_are_gone() {
    let (mut world, mut object) = settled_over_a_clusterset();
    assert_eq!(verdict(&mut world).step, Step::Rest);
    set_cores(&mut world, 2, 2);
    evict(&mut world, &mut object, "9", "m0");
    assert!(is_withdrawn(&verdict(&mut world).step), "m2 has room for the part, and m1 says that it is in m0");
    leave(&mut world, &mut object, "10", json!([{"clusterName": "m1"}]));
    assert_eq!(verdict(&mut world), Verdict { step: Step::Rest, awaits_capacity: true }, "m1 would keep its copy");
    leave(&mut world, &mut object, "11", json!([]));
    assert_eq!(targets(&verdict(&mut world).step), [("m1".into(), 4), ("m2".into(), 2)]);
}

#[test]
fn a_gang_over_a_clusterset_leaves_what_it_has_also_where_nothing_has_room_for_the_rest() {
    let (mut world, _) = settled_over_a_clusterset();
    world.apply_clusters(Event::Deleted(serde_json::from_value(cluster("m0")).unwrap()));
    assert!(is_withdrawn(&verdict(&mut world).step));
    // Whose copy can not be told of is not waited for: a cluster that is not Ready takes nothing.
    let (mut world, mut object) = settled_over_a_clusterset();
    set_cluster(&mut world, "m0", |cluster| cluster["status"]["conditions"][0]["status"] = "False".into());
    leave(&mut world, &mut object, "9", json!([{"clusterName": "m0"}]));
    assert!(matches!(verdict(&mut world).step, Step::Refuse { reason: "Unschedulable", .. }));
    set_cores(&mut world, 2, 2);
    assert_eq!(targets(&verdict(&mut world).step), [("m1".into(), 4), ("m2".into(), 2)]);
}

#[test]
fn a_gang_over_a_clusterset_that_would_go_elsewhere_leaves_first() {
    let (mut world, mut object) = settled_over_a_clusterset();
    set_cores(&mut world, 2, 20);
    assert_eq!(verdict(&mut world).step, Step::Rest);
    change(&mut world, &mut object, "9", |object| {
        object["spec"]["rescheduleTriggeredAt"] = "2026-01-02T00:00:00Z".into();
    });
    assert!(is_withdrawn(&verdict(&mut world).step));
}
