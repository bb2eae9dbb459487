//! Gangs over clusters that are near each other by declared links, and what is said about the links.

use caldera_crds::links::FederationTopology;
use caldera_runtime::write::Write;

use super::*;
use crate::write::topology_status::TopologyStatusWriter;

fn declared(name: &str, spec: &Value) -> FederationTopology {
    let object = json!({"metadata": {"name": name, "generation": 1}, "spec": spec});
    serde_json::from_value(object).unwrap()
}

fn campus() -> FederationTopology {
    let spec = json!({
        "tiers": [{"name": "campus", "tier": 10, "maxLatencyMicroseconds": 500}],
        "links": [
            {"from": ["m0", "m2"], "latencyMicroseconds": 200}, {"from": ["m1", "m2"], "latencyMicroseconds": 900},
        ],
    });
    declared("links", &spec)
}

fn near(replicas: u32, topology: &Value) -> Value {
    let mut object = job(replicas, replicas);
    object["spec"]["networkTopology"] = topology.clone();
    object
}

/// Members of three, four and three cores; the first and the last are near.
fn asks(replicas: u32, topology: &Value) -> Cache {
    let mut index = index(&[3, 4, 3], &[near(replicas, topology), binding(replicas)]);
    index.apply_topologies(Event::Reset(vec![campus()]));
    index
}

fn refusal(index: &mut Cache) -> String {
    let Step::Refuse { message, .. } = verdict(index).step else { panic!("it goes somewhere") };
    message
}

#[test]
fn a_hard_gang_too_large_for_one_cluster_goes_to_clusters_with_a_near_link_or_waits_with_numbers() {
    for topology in
        [json!({"mode": "hard", "highestTierName": "campus"}), json!({"mode": "hard", "highestTierAllowed": 10})]
    {
        let goes = targets(&verdict(&mut asks(6, &topology)).step);
        assert_eq!(goes, [("m0".into(), 3), ("m2".into(), 3)], "{topology}");
        // One cluster that holds it is closer than two.
        assert_eq!(targets(&verdict(&mut asks(4, &topology)).step), [("m1".into(), 4)]);
        // All clusters together would hold it.
        let message = refusal(&mut asks(7, &topology));
        let wanted = topology["highestTierName"].as_str().unwrap_or("10");
        let reported = format!(
            "needs 7 pods at once; 6 fit now in 3 clusters; of 3 domains and 1 group of close clusters of tier {wanted} or lower \
             none holds it; best cluster m1 takes 4; best close clusters m0, m2 take 6; task w: 6 of 7 fit, \
             each pod asks for cpu 1 and 6 is free"
        );
        assert_eq!(message, reported);
    }
}

#[test]
fn a_soft_gang_prefers_near_clusters_to_better_fitting_ones_and_full_size_to_both() {
    let soft = json!({"mode": "soft", "highestTierName": "campus"});
    assert_eq!(targets(&verdict(&mut asks(5, &soft)).step), [("m0".into(), 2), ("m2".into(), 3)]);
    assert_eq!(targets(&verdict(&mut asks(10, &soft)).step).len(), 3);
}

#[test]
fn who_waits_is_looked_at_again_when_a_link_is_declared_or_its_cluster_comes() {
    let hard = json!({"mode": "hard", "highestTierName": "campus"});
    let mut world = index(&[3, 4, 3], &[near(6, &hard), binding(6)]);
    assert!(refusal(&mut world).contains("no cluster has tier campus"));
    let wakes = |world: &mut Cache, event| {
        world.take_due_bindings();
        world.add_unschedulable(&key());
        world.apply_topologies(event);
        world.take_due_bindings() == [key()]
    };
    assert!(wakes(&mut world, Event::Applied(campus())));
    assert!(!wakes(&mut world, Event::Applied(campus())), "the same again");
    assert_eq!(targets(&verdict(&mut world).step).len(), 2);
    world.apply_clusters(Event::Deleted(serde_json::from_value(cluster("m2")).unwrap()));
    assert!(refusal(&mut world).contains("best cluster m1 takes 4"));
    world.apply_clusters(Event::Applied(serde_json::from_value(cluster("m2")).unwrap()));
    set_cores(&mut world, 2, 3);
    world.apply_member("m2", Update::Change(Change::Pods(vec![])));
    assert_eq!(targets(&verdict(&mut world).step).len(), 2);
    assert!(wakes(&mut world, Event::Deleted(campus())));
    assert!(refusal(&mut world).contains("no cluster has tier campus"));
}

fn said(writes: &[(String, Write)]) -> Vec<(&str, &str)> {
    let condition = |(_, write): &(String, Write)| {
        let Body::MergePatch(patch) = &write.body else { panic!() };
        let condition = &patch["status"]["conditions"][0];
        let text = |key: &str| condition[key].as_str().unwrap().to_owned();
        (text("status"), text("message"))
    };
    writes.iter().map(condition).map(|(a, b)| (&*a.leak(), &*b.leak())).collect()
}

/// What is wrong breaks nothing: the rest counts, and the object says so, once.
#[test]
fn what_is_wrong_with_links_is_said_once_and_the_rest_counts() {
    let mut world = asks(6, &json!({"mode": "hard", "highestTierName": "campus"}));
    let wrong = json!({"links": [
        {"from": ["m1"], "to": ["m1"]}, {"from": ["m1"], "to": ["m0"], "latencyMicroseconds": -5}, {"from": ["m1"], "to": ["moon"]},
    ]});
    world.apply_topologies(Event::Applied(declared("wrong", &wrong)));
    assert_eq!(targets(&verdict(&mut world).step).len(), 2);
    let mut reported = TopologyStatusWriter::default();
    let writes = reported.take_status_writes(&world.topology, &world.fleet, now());
    assert_eq!(
        said(&writes),
        [
            ("True", "campus: m0 m2"),
            (
                "False",
                "links[0]: a link from m1 to itself; links[1]: latencyMicroseconds -5 is below 0; there is no cluster moon; \
                 the rest counts"
            ),
        ]
    );
    assert!(
        reported.take_status_writes(&world.topology, &world.fleet, now()).is_empty(),
        "its echo is still on the way"
    );
    reported.forget_status("wrong");
    assert_eq!(reported.take_status_writes(&world.topology, &world.fleet, now()).len(), 1);
    // As the server has them now: nothing is left to say, not after a restart either.
    for (name, write) in writes {
        let Body::MergePatch(patch) = write.body else { panic!() };
        let mut object = world.topology.objects().find(|(known, _)| *known == name).unwrap().1.clone();
        object.status = serde_json::from_value(patch["status"].clone()).unwrap();
        world.apply_topologies(Event::Applied(object));
    }
    assert!(TopologyStatusWriter::default().take_status_writes(&world.topology, &world.fleet, now()).is_empty());
}
