//! Our placement gives the answers that Karmada's own scheduler code gave to recorded questions.
//!
//! The recordings are in `fixtures/vectors`, or in the folder that `CALDERA_VECTORS_DIR` names. Each group prints
//! `vectors <group>: P of N`. The one deliberate difference is told apart by its tag: sums that wrap at 2^31 in Karmada
//! do not wrap here (docs/parity.md).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use caldera_core::place::{
    self,
    filter::{self, Filter, FilterReason},
    replica_division,
    spread_constraints::{self, ScoredCluster},
};
use caldera_crds::{karmada::cluster::Cluster, karmada::work, placement, wire::ResourceList};
use serde_json::{Value, json};

fn read_vectors(group: &str) -> Vec<Value> {
    let folder = caldera_fixtures::find_folder("CALDERA_VECTORS_DIR", "vectors");
    let text = caldera_fixtures::read_text(&folder.join(format!("{group}.jsonl")));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn binding(input: &Value) -> place::Binding {
    let spec: work::ResourceBindingSpec = serde_json::from_value(input["spec"].clone()).unwrap();
    let status: work::ResourceBindingStatus = serde_json::from_value(input["status"].clone()).unwrap_or_default();
    placement::read_binding(&spec, Some(&status))
}

fn cluster(object: &Value) -> place::Cluster {
    placement::read_cluster(&serde_json::from_value::<Cluster>(object.clone()).unwrap())
}

fn tagged(vector: &Value, tag: &str) -> bool {
    vector["tags"].as_array().is_some_and(|tags| tags.iter().any(|one| one == tag))
}

/// Prints the score; fails on any difference that is not deliberate.
fn report(group: &str, vectors: &[Value], deliberate: &[&str], check: impl Fn(&Value) -> Result<(), String>) {
    let (mut passed, mut surprises) = (0, Vec::new());
    for vector in vectors {
        match check(vector) {
            Ok(()) => passed += 1,
            Err(why) if deliberate.iter().any(|tag| tagged(vector, tag)) => {
                println!("  differs on purpose: {} {why}", vector["id"]);
            }
            Err(why) => surprises.push(format!("{} {}: {why}", vector["id"], vector["tags"])),
        }
    }
    println!("vectors {group}: {passed} of {}", vectors.len());
    for surprise in surprises.iter().take(12) {
        println!("  {surprise}");
    }
    assert!(surprises.is_empty(), "{} surprises in {group}, first {}", surprises.len(), surprises[0]);
}

fn same(vector: &Value, ours: &Result<Value, String>) -> Result<(), String> {
    let accepted = || std::iter::once(&vector["want"]).chain(vector["acceptAlso"].as_array().into_iter().flatten());
    match (ours, vector["error"].as_str()) {
        (Err(ours), Some(wanted)) if ours.starts_with(wanted) || wanted.starts_with(ours.as_str()) => Ok(()),
        (Ok(ours), None) if accepted().any(|want| want == ours) => Ok(()),
        (ours, Some(wanted)) => Err(format!("got {ours:?}, want the error {wanted}")),
        (ours, None) => Err(format!("got {ours:?}, want {}", vector["want"])),
    }
}

#[test]
fn division() {
    let vectors = read_vectors("division");
    let check = |vector: &Value| {
        let input = &vector["input"];
        let clusters: Vec<place::Cluster> = input["candidates"]
            .as_array()
            .unwrap()
            .iter()
            .map(|candidate| {
                let object = json!({
                    "metadata": {"name": candidate["name"], "labels": candidate["labels"]},
                    "spec": {
                        "provider": candidate["provider"], "region": candidate["region"], "zones": candidate["zones"],
                    },
                });
                cluster(&object)
            })
            .collect();
        let number = |candidate: &Value, key: &str| candidate[key].as_i64().unwrap_or(0);
        let candidates: Vec<ScoredCluster<'_>> = input["candidates"]
            .as_array()
            .unwrap()
            .iter()
            .zip(&clusters)
            .map(|(candidate, cluster)| ScoredCluster {
                cluster,
                score: number(candidate, "score"),
                tier: u32::try_from(number(candidate, "overflowOrder")).unwrap(),
                allocatable: number(candidate, "allocatableReplicas"),
                available: number(candidate, "availableReplicas"),
            })
            .collect();
        let empty = input["enableEmptyWorkloadPropagation"] == true;
        let ours = replica_division::assign_replicas(&binding(input), &candidates, empty)
            .map(|targets| {
                let one = |target: &place::Target| json!({"name": target.cluster, "replicas": target.replicas});
                json!({"clusters": targets.iter().map(one).collect::<Vec<_>>()})
            })
            .map_err(|error| error.to_string());
        same(vector, &ours)
    };
    report("division", &vectors, &["int32-overflow"], check);
}

#[test]
fn selection() {
    let vectors = read_vectors("selection");
    let check = |vector: &Value| {
        let input = &vector["input"];
        let binding = binding(input);
        let listed = input["clusters"].as_array().cloned().unwrap_or_default();
        let clusters: Vec<place::Cluster> = listed.iter().map(|listed| cluster(&listed["cluster"])).collect();
        let assigned =
            |name: &str| binding.previous.iter().find(|one| one.cluster == name).map_or(0, |one| one.replicas);
        let candidates = listed.iter().zip(&clusters).map(|(listed, cluster)| {
            let estimated = listed["estimatedReplicas"].as_i64().unwrap_or(binding.replicas);
            let allocatable = if binding.replicas == 0 { 0 } else { estimated };
            ScoredCluster {
                cluster,
                score: listed["score"].as_i64().unwrap_or(0),
                tier: Filter::new(&binding).affinity_tier_of(cluster).unwrap_or(0),
                allocatable,
                available: allocatable + assigned(&cluster.name),
            }
        });
        let names = |value: &Value| -> Vec<String> {
            let names = value["clusters"].as_array().into_iter().flatten();
            names.map(|cluster| cluster["name"].as_str().unwrap_or_default().to_owned()).collect()
        };
        let ours = spread_constraints::select_clusters(&binding, candidates.collect());
        match (ours, vector["error"].as_str()) {
            (Err(ours), Some(wanted)) if ours == wanted => Ok(()),
            (Ok(ours), None) => {
                let ours: Vec<String> = ours.iter().map(|one| one.cluster.name.clone()).collect();
                let wanted = names(&vector["want"]);
                if ours == wanted { Ok(()) } else { Err(format!("got {ours:?}, want {wanted:?}")) }
            }
            (ours, wanted) => {
                let ours = ours.map(|ours| ours.into_iter().map(|one| one.cluster.name.clone()).collect::<Vec<_>>());
                Err(format!("got {ours:?}, want {wanted:?} or {:?}", names(&vector["want"])))
            }
        }
    };
    report("selection", &vectors, &["int32-overflow"], check);
}

/// The plugin of Karmada that gives a reason.
fn plugin_of(reason: &FilterReason<'_>) -> &'static str {
    match reason {
        FilterReason::NotSelected => "ClusterAffinity",
        FilterReason::Evicting => "ClusterEviction",
        FilterReason::Taint(_) => "TaintToleration",
        FilterReason::NoApi => "APIEnablement",
        FilterReason::Lacks(_) => "SpreadConstraint",
        FilterReason::GroupElsewhere => "WorkloadAffinity",
        FilterReason::GroupThere => "WorkloadAntiAffinity",
        FilterReason::NotReady
        | FilterReason::Maintenance
        | FilterReason::NoData
        | FilterReason::NotOfQueue
        | FilterReason::NotChosen => {
            panic!("not a reason of Karmada's")
        }
    }
}

#[test]
fn filters() {
    let vectors = read_vectors("filters");
    let check = |vector: &Value| {
        let input = &vector["input"];
        let binding = binding(input);
        let (mut fit, mut skipped, mut unfit, mut scores) = (BTreeSet::new(), BTreeSet::new(), Vec::new(), Vec::new());
        let mut first = Vec::new();
        let clusters: Vec<place::Cluster> = input["clusters"].as_array().into_iter().flatten().map(cluster).collect();
        let filter = Filter::new(&binding);
        for cluster in &clusters {
            let reasons: Vec<_> = filter.reasons(cluster).collect();
            if cluster.deleting {
                skipped.insert(cluster.name.clone());
            } else if reasons.is_empty() {
                scores.push((cluster.name.clone(), if binding.is_target(&cluster.name) { 100 } else { 0 }));
                fit.insert(cluster.name.clone());
            } else {
                first.push(reasons[0]);
                let named = |reason: &FilterReason<'_>| (plugin_of(reason).to_owned(), reason.to_string());
                unfit.push((cluster.name.clone(), reasons.iter().map(named).collect()));
            }
        }
        unfit.sort();
        let want = &vector["want"];
        let set = |key: &str| -> BTreeSet<String> {
            want[key].as_array().into_iter().flatten().map(|name| name.as_str().unwrap().to_owned()).collect()
        };
        let mut wanted: Vec<(String, BTreeSet<(String, String)>)> = Vec::new();
        for one in want["unfit"].as_array().into_iter().flatten() {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let reasons = one["reasons"].as_array().unwrap().iter();
            wanted.push((text(&one["name"]), reasons.map(|r| (text(&r["plugin"]), text(&r["message"]))).collect()));
        }
        wanted.sort();
        if (&fit, &skipped, &unfit) != (&set("fit"), &set("skipped"), &wanted) {
            return Err(format!("got {fit:?} {skipped:?} {unfit:?}, want {want}"));
        }
        if let Some((name, score)) = scores.iter().find(|(name, score)| want["scores"][name] != json!(*score)) {
            return Err(format!("got score {score} for {name}, want {}", want["scores"]));
        }
        match want["fitError"].as_str() {
            Some(wanted) => {
                let ours = filter::fit_error(clusters.len(), first);
                if ours == wanted { Ok(()) } else { Err(format!("got {ours:?}, want {wanted:?}")) }
            }
            None => Ok(()),
        }
    };
    report("filters", &vectors, &[], check);
}

#[test]
fn estimator() {
    let vectors = read_vectors("estimator");
    let check = |vector: &Value| {
        let input = &vector["input"];
        let request =
            input.get("replicaRequirements").filter(|requirements| !requirements.is_null()).map(|requirements| {
                let list: Option<ResourceList> =
                    serde_json::from_value(requirements["resourceRequest"].clone()).unwrap();
                placement::read_resource_list(&list.unwrap_or_default())
            });
        let listed = input["clusters"].as_array().into_iter().flatten();
        let ours: BTreeSet<(String, i64)> = listed
            .map(|object| {
                let cluster: Cluster = serde_json::from_value(object.clone()).unwrap();
                let replicas = placement::read_general_estimator_input(&cluster)
                    .map_or(0, |one| one.estimate_max_available_replicas(request.as_ref()));
                (cluster.metadata.name.unwrap_or_default(), replicas)
            })
            .collect();
        let wanted = vector["want"]["clusters"].as_array().into_iter().flatten();
        let wanted: BTreeSet<(String, i64)> = wanted
            .map(|one| (one["name"].as_str().unwrap().to_owned(), one["replicas"].as_i64().unwrap_or(0)))
            .collect();
        if ours == wanted { Ok(()) } else { Err(format!("got {ours:?}, want {wanted:?}")) }
    };
    report("estimator", &vectors, &[], check);
}
