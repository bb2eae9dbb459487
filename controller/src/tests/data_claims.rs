//! Data that workloads claim: where they are released to, what they wait for, what a claim and a source say of
//! themselves; and the defects of the peer that are not ours.

use caldera_runtime::write::{Body, Failure};
use serde_json::{Value, json};

use super::world::World;
use crate::{explain::explain_job, observe::Key};

/// Clusters m1 and m2 of 100 cpus each.
fn world() -> World {
    let mut world = World::new(1000);
    world.cluster("m2", "100");
    world.settle();
    world.writes.clear();
    world
}

pub(super) fn source(world: &mut World, name: &str, clusters: &[&str]) {
    let status = world.get("DataSource", name)["status"].clone();
    world.put(json!({
        "apiVersion": "datadependency.volcano.sh/v1alpha1", "kind": "DataSource", "metadata": {"name": name},
        "spec": {"system": "hive", "type": "table", "name": name, "locality": {"clusterNames": clusters}},
        "status": status,
    }));
}

pub(super) fn claim_of(name: &str, data: &str, job: &str) -> Value {
    json!({
        "apiVersion": "datadependency.volcano.sh/v1alpha1", "kind": "DataSourceClaim",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {
            "system": "hive", "dataSourceType": "table", "dataSourceName": data,
            "workload": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": job},
        },
    })
}

fn claim(world: &mut World, name: &str, data: &str, job: &str) {
    world.put(claim_of(name, data, job));
}

/// Where a job was found a place.
fn found(world: &World, binding: &str) -> Vec<String> {
    let uid = world.get("ResourceBinding", binding)["metadata"]["uid"].as_str().unwrap();
    world.controller.capacity.list_assumed_clusters(uid)
}

fn condition(world: &World, name: &str) -> [String; 4] {
    let status = &world.get("DataSourceClaim", name)["status"];
    let condition = &status["conditions"][0];
    [&status["phase"], &condition["status"], &condition["reason"], &condition["message"]]
        .map(|text| text.as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_job_is_released_to_where_all_its_data_is() {
    let mut world = world();
    source(&mut world, "users", &["m1", "m2"]);
    source(&mut world, "events", &["m2", "m3"]);
    claim(&mut world, "a", "users", "train");
    claim(&mut world, "b", "events", "train");
    world.job("train", "q", 60);
    assert_eq!(world.settle(), ["train-job"]);
    assert_eq!(found(&world, "train-job"), ["m2"]);
    // Another one without claims is not constrained.
    world.job("other", "q", 60);
    assert_eq!(world.settle(), ["other-job"]);
    assert_eq!(found(&world, "other-job"), ["m1"]);
}

#[test]
fn a_job_whose_claim_has_no_source_waits_with_that_reason_and_starts_once_there_is_one() {
    let mut world = world();
    claim(&mut world, "a", "users", "train");
    world.job("train", "q", 4);
    assert!(world.pass(3).is_empty());
    let (reason, message) = world.says("train");
    assert_eq!(reason, "WaitingForData");
    let lacks = "no DataSource has system hive, type table, name users and no attributes";
    assert_eq!(message, format!("waits for DataSourceClaim ns/a: {lacks}"));
    // It keeps nothing from others.
    world.job("other", "q", 1);
    assert_eq!(world.settle(), ["other-job"]);
    source(&mut world, "users", &["m2"]);
    assert_eq!(world.settle(), ["train-job"]);
    assert_eq!(found(&world, "train-job"), ["m2"]);
}

#[test]
fn a_job_that_finds_no_place_where_its_data_is_is_reported_where_that_is() {
    let mut world = world();
    source(&mut world, "users", &["m2"]);
    world.job("first", "q", 60);
    claim(&mut world, "a", "users", "first");
    assert_eq!(world.settle(), ["first-job"]);
    claim(&mut world, "b", "users", "second");
    world.job("second", "q", 60);
    assert!(world.pass(3).is_empty(), "m1 has room, and not the data");
    let (reason, message) = world.says("second");
    assert_eq!(reason, "InsufficientCapacity");
    assert!(message.contains("; its data is in m2"), "{message}");
    // Its data is copied.
    source(&mut world, "users", &["m1", "m2"]);
    assert_eq!(world.settle(), ["second-job"]);
    assert_eq!(found(&world, "second-job"), ["m1"]);
}

#[test]
fn a_job_that_never_fits_where_its_data_is_is_told_so_until_that_changes() {
    let mut world = world();
    source(&mut world, "users", &["gone"]);
    claim(&mut world, "a", "users", "train");
    world.job("train", "q", 4);
    assert!(world.pass(3).is_empty());
    let (reason, message) = world.says("train");
    assert_eq!(reason, "NeverFits");
    assert!(message.ends_with("; its data is in gone"), "{message}");
    source(&mut world, "users", &["m1"]);
    assert_eq!(world.settle(), ["train-job"]);
}

#[test]
fn a_preferred_claim_orders_clusters_and_waits_for_nothing() {
    let mut world = world();
    let mut soft = claim_of("a", "users", "train");
    soft["metadata"]["annotations"] = json!({"caldera.dev/data-locality": "preferred"});
    world.put(soft);
    world.job("train", "q", 4);
    assert_eq!(world.settle(), ["train-job"], "it has no source");
    for (cluster, job) in [("m2", "by-data-2"), ("m1", "by-data-1")] {
        source(&mut world, job, &[cluster]);
        let mut soft = claim_of(job, job, job);
        soft["metadata"]["annotations"] = json!({"caldera.dev/data-locality": "preferred"});
        world.put(soft);
        world.job(job, "q", 4);
        assert_eq!(world.settle(), [format!("{job}-job")]);
        assert_eq!(found(&world, &format!("{job}-job")), [cluster]);
    }
    // There is no room where its data is.
    source(&mut world, "full", &["m2"]);
    let mut soft = claim_of("full", "full", "full");
    soft["metadata"]["annotations"] = json!({"caldera.dev/data-locality": "preferred"});
    world.put(soft);
    world.cluster("m2", "6");
    world.job("full", "q", 50);
    assert_eq!(world.settle(), ["full-job"]);
    assert_eq!(found(&world, "full-job"), ["m1"]);
}

#[test]
fn who_asks_is_told_what_data_costs_where_a_job_may_go_as_placement_counts_it() {
    let mut world = world();
    world.cluster("m3", "100");
    source(&mut world, "users", &["m2"]);
    let mut soft = claim_of("a", "users", "train");
    soft["metadata"]["annotations"] = json!({"caldera.dev/data-locality": "preferred"});
    world.put(soft);
    let mut train = super::world::job("train", "q", 4);
    train["metadata"]["annotations"] = json!({"caldera.dev/data": "cluster=m1:7"});
    let train = world.put(train);
    world.bind(&train, 4, true);
    let only = json!({"spec": {"placement": {"clusterAffinity": {"clusterNames": ["m1", "m2"]}}}});
    world.patch("ResourceBinding", "train-job", &only);
    assert_eq!(world.settle(), ["train-job"]);
    let notes = explain_job(&mut world.controller, &Key::new("ns", "train-job"), world.now).unwrap().notes;
    assert!(notes.contains(&"data that is not there counts by its size: m1 1, m2 7".to_owned()), "{notes:?}");
    assert_eq!(found(&world, "train-job"), ["m1"]);
}

/// A job of 4 pods that runs in m1, where its data is.
fn running() -> World {
    let mut world = world();
    source(&mut world, "users", &["m1"]);
    claim(&mut world, "a", "users", "train");
    world.job("train", "q", 4);
    assert_eq!(world.settle(), ["train-job"]);
    world.place("train-job", 4);
    world.phase("train", "Running");
    world.pass(3);
    world.writes.clear();
    world
}

/// Nothing was written of its binding, and it is where it was.
fn is_undisturbed(world: &mut World) {
    world.pass(90);
    let of_bindings: Vec<_> = world.writes.iter().filter(|write| write.resource.plural == "resourcebindings").collect();
    assert!(of_bindings.is_empty(), "{of_bindings:?}");
    let clusters = &world.get("ResourceBinding", "train-job")["spec"]["clusters"];
    assert_eq!(clusters, &json!([{"name": "m1", "replicas": 4}]));
    assert_eq!(world.says("train").0, "Placed");
    assert_eq!(world.used("q"), "4");
}

#[test]
fn a2_46_a_restart_of_the_controller_disturbs_nothing_that_runs() {
    let mut world = running();
    world.restart();
    is_undisturbed(&mut world);
}

#[test]
fn a2_46_a_change_of_where_data_is_disturbs_nothing_that_runs() {
    let mut world = running();
    source(&mut world, "users", &["m2"]);
    is_undisturbed(&mut world);
    world.restart();
    is_undisturbed(&mut world);
}

#[test]
fn a2_46_the_end_of_a_source_or_a_claim_disturbs_nothing_that_runs() {
    let mut world = running();
    world.delete("DataSource", "users");
    is_undisturbed(&mut world);
    assert_eq!(condition(&world, "a")[0], "Pending");
    let mut world = running();
    world.delete("DataSourceClaim", "a");
    is_undisturbed(&mut world);
}

#[test]
fn a_claim_that_is_made_after_the_start_changes_nothing() {
    let mut world = running();
    source(&mut world, "events", &["m2"]);
    claim(&mut world, "b", "events", "train");
    claim(&mut world, "c", "nowhere", "train");
    is_undisturbed(&mut world);
}

#[test]
fn what_a_job_that_runs_wants_more_of_goes_where_its_claims_say_now() {
    let mut world = running();
    source(&mut world, "users", &["gone"]);
    let more = json!({"spec": {"tasks": [{"name": "worker", "replicas": 6, "template": {"spec": {"containers": [
        {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}},
    ]}}}]}});
    world.patch("Job", "train", &more);
    world.patch("ResourceBinding", "train-job", &json!({"spec": {"replicas": 6}}));
    world.pass(5);
    assert_eq!(world.used("q"), "4", "{:?}", world.says("train"));
    source(&mut world, "users", &["m2"]);
    world.pass(5);
    assert_eq!(world.used("q"), "6", "{:?}", world.says("train"));
}

#[test]
fn a2_48_a_cluster_that_joins_later_takes_no_job_whose_data_is_elsewhere() {
    let mut world = World::new(1000);
    source(&mut world, "users", &["m1"]);
    for (name, pods) in [("first", 90), ("second", 90)] {
        claim(&mut world, name, "users", name);
        world.job(name, "q", pods);
    }
    assert_eq!(world.settle(), ["first-job"]);
    world.cluster("m2", "100");
    assert!(world.pass(5).is_empty(), "{:?}", world.says("second"));
}

#[test]
fn a2_50_the_source_of_one_of_several_claims_is_not_enough() {
    let mut world = world();
    source(&mut world, "users", &["m1"]);
    claim(&mut world, "a", "users", "train");
    claim(&mut world, "b", "events", "train");
    world.job("train", "q", 4);
    assert!(world.pass(3).is_empty());
    assert!(world.says("train").1.starts_with("waits for DataSourceClaim ns/b: "), "{:?}", world.says("train"));
}

#[test]
fn a_claim_for_another_namespace_is_refused_in_words_and_constrains_nothing() {
    let mut world = world();
    source(&mut world, "users", &["m1"]);
    let mut foreign = claim_of("a", "nowhere", "train");
    foreign["metadata"]["namespace"] = "attacker".into();
    foreign["spec"]["workload"]["namespace"] = "ns".into();
    world.put(foreign);
    world.job("train", "q", 4);
    assert_eq!(world.settle(), ["train-job"]);
    let [phase, status, reason, message] = condition(&world, "a");
    assert_eq!([phase, status, reason], ["Pending", "False", "OtherNamespace"]);
    assert!(message.starts_with("it names a workload of namespace ns: "), "{message}");
}

#[test]
fn a_claim_says_whether_it_is_bound_and_its_source_by_whom_it_is_used() {
    let mut world = world();
    claim(&mut world, "a", "users", "train");
    world.settle();
    let [phase, status, reason, message] = condition(&world, "a");
    assert_eq!([phase, status, reason], ["Pending", "False", "NoDataSource"]);
    assert!(message.starts_with("no DataSource has system hive"), "{message}");
    let since = |world: &World| world.get("DataSourceClaim", "a")["status"]["conditions"][0].clone();
    let before = since(&world);
    source(&mut world, "users", &["m1"]);
    world.pass(3);
    assert_eq!(condition(&world, "a"), ["Bound", "True", "BindingSuccessful", "bound to DataSource users"]);
    assert_eq!(world.get("DataSourceClaim", "a")["status"]["boundDataSource"], "users");
    assert_ne!(since(&world)["lastTransitionTime"], before["lastTransitionTime"]);
    let uid = world.get("DataSourceClaim", "a")["metadata"]["uid"].clone();
    let status = &world.get("DataSource", "users")["status"];
    assert_eq!(status["boundClaims"], 1);
    let reference = &status["claimRefs"][0];
    assert_eq!(
        [&reference["kind"], &reference["name"], &reference["uid"]],
        [&json!("DataSourceClaim"), &json!("a"), &uid]
    );
    world.delete("DataSourceClaim", "a");
    world.pass(3);
    let status = &world.get("DataSource", "users")["status"];
    assert_eq!((&status["boundClaims"], &status["claimRefs"]), (&json!(0), &json!([])));
}

fn of_data(world: &World) -> Vec<&caldera_runtime::write::Write> {
    let of = |write: &&caldera_runtime::write::Write| write.resource.group == "datadependency.volcano.sh";
    world.writes.iter().filter(of).collect()
}

#[test]
fn claims_and_sources_that_say_what_they_should_are_not_written() {
    let mut world = running();
    world.pass(90);
    world.restart();
    world.pass(90);
    assert!(of_data(&world).is_empty(), "{:?}", of_data(&world));
    source(&mut world, "idle", &["m1"]);
    world.pass(90);
    assert!(of_data(&world).is_empty(), "{:?}", of_data(&world));
}

#[test]
fn a_source_names_some_of_its_claims_and_counts_all_in_few_writes() {
    let mut world = world();
    source(&mut world, "users", &["m1"]);
    (0..100).for_each(|at| claim(&mut world, &format!("c{at}"), "users", "train"));
    world.pass(5);
    let status = &world.get("DataSource", "users")["status"];
    assert_eq!((&status["boundClaims"], status["claimRefs"].as_array().unwrap().len()), (&json!(100), 64));
    let writes = of_data(&world);
    let of_source = writes.iter().filter(|write| write.resource.plural == "datasources").count();
    assert!(of_source <= 2 && writes.len() - of_source == 100, "{of_source} {}", writes.len());
}

#[test]
fn a_status_that_failed_to_be_written_is_written_again() {
    let mut world = world();
    let refused = Failure::Refused { code: 403, reason: "Forbidden".into(), message: "no".into() };
    world.fail = vec![("datasourceclaims", Failure::Transient("away".into())), ("datasourceclaims", refused)];
    claim(&mut world, "a", "users", "train");
    world.pass(5);
    assert_eq!(condition(&world, "a")[0], "", "the server refuses it: not again for a minute");
    world.pass(60);
    assert_eq!(condition(&world, "a")[0], "Pending");
}

#[test]
fn a_source_that_is_to_be_deleted_goes_with_its_last_claim_and_no_other_does() {
    let mut world = world();
    for (name, policy) in [("kept", "Retain"), ("taken", "Delete"), ("unused", "Delete")] {
        source(&mut world, name, &["m1"]);
        world.patch("DataSource", name, &json!({"spec": {"reclaimPolicy": policy}}));
        if name != "unused" {
            claim(&mut world, name, name, "train");
        }
    }
    world.pass(3);
    world.restart();
    world.pass(3);
    assert_eq!(world.get("DataSource", "taken")["status"]["boundClaims"], 1);
    world.delete("DataSourceClaim", "kept");
    world.delete("DataSourceClaim", "taken");
    world.pass(3);
    let there = |name: &str| world.get("DataSource", name).is_object();
    assert_eq!(["kept", "taken", "unused"].map(there), [true, false, true]);
    let deletes = world.writes.iter().filter(|write| matches!(write.body, Body::DeleteUnchanged { .. })).count();
    assert_eq!(deletes, 1);
}

#[test]
fn a_simulation_starts_with_where_data_is() {
    let mut world = world();
    source(&mut world, "users", &["m2"]);
    claim(&mut world, "a", "users", "train");
    world.job("train", "q", 4);
    world.job("other", "q", 4);
    let snapshot = crate::snapshot::take_snapshot(&world.controller);
    let may_go = |at: usize| ["m1", "m2"].map(|cluster| snapshot.jobs[at].binding.has_data_in(cluster));
    assert_eq!((may_go(0), may_go(1)), ([true, true], [false, true]));
}

#[test]
fn a_record_says_by_which_versions_of_claims_and_sources_a_job_was_admitted() {
    let mut world = world();
    source(&mut world, "users", &["m2"]);
    claim(&mut world, "a", "users", "train");
    world.settle();
    world.job("train", "q", 4);
    world.job("other", "q", 4);
    assert_eq!(world.settle(), ["train-job", "other-job"]);
    let record = |binding: &str| -> Value {
        let annotations = &world.get("ResourceBinding", binding)["metadata"]["annotations"];
        serde_json::from_str(annotations["caldera.dev/admission"].as_str().unwrap()).unwrap()
    };
    let data = record("train-job")["data"].clone();
    for (kind, name, known) in [("DataSourceClaim", "a", "claims"), ("DataSource", "users", "sources")] {
        let version: u64 = world.get(kind, name)["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        // Statuses are written after the release.
        assert!(data[known].as_u64().is_some_and(|known| 0 < known && known <= version), "{data}");
    }
    assert_eq!(record("other-job").get("data"), None);
}

#[test]
fn a_claim_for_what_is_not_propagated_says_that_it_constrains_nothing() {
    let mut world = world();
    source(&mut world, "users", &["m2"]);
    claim(&mut world, "a", "users", "trian");
    world.pass(2);
    assert_eq!(condition(&world, "a"), ["Bound", "True", "BindingSuccessful", "bound to DataSource users"]);
    world.pass(10);
    let alone = "; nothing of Job trian in group \"batch.volcano.sh\" is propagated: the claim constrains nothing";
    assert_eq!(condition(&world, "a")[3], format!("bound to DataSource users{alone}"));
    // It comes after all, and goes.
    world.job("trian", "q", 4);
    assert_eq!(world.settle(), ["trian-job"]);
    world.pass(2);
    assert_eq!(condition(&world, "a")[3], "bound to DataSource users");
    world.delete("ResourceBinding", "trian-job");
    world.pass(2);
    assert_eq!(condition(&world, "a")[3], format!("bound to DataSource users{alone}"));
    // Nothing is written again and again.
    world.writes.clear();
    world.pass(30);
    assert!(world.writes.iter().all(|write| write.resource.kind != "DataSourceClaim"), "{:?}", world.writes);
}

#[test]
fn a_claim_that_says_what_means_nothing_is_told_so_by_status_event_and_job() {
    let mut world = world();
    let mut wrong = claim_of("a", "users", "train");
    wrong["metadata"]["annotations"] = json!({"caldera.dev/data-locality": "prefered"});
    world.put(wrong);
    world.job("train", "q", 4);
    assert!(world.pass(3).is_empty());
    let fault =
        "its annotation caldera.dev/data-locality is neither preferred nor required but prefered: it is required";
    let [phase, .., message] = condition(&world, "a");
    assert!(phase == "Pending" && message.ends_with(&format!("; {fault}")), "{message}");
    assert!(world.says("train").1.ends_with(&format!("; {fault}")), "{:?}", world.says("train"));
    assert!(world.events().contains(&("Warning".to_owned(), "DataClaimFault".to_owned())));
}
