//! The scheduler against real API servers, in-process: a host with Karmada's kinds, members behind the cluster proxy.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod stage;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};
use tracing_subscriber::{layer::SubscriberExt, util::SubscriberInitExt};

use stage::{PATIENCE, Stage, add_node, binding, bindings, cluster, create, job, resource, until};

/// The names of the spans that were opened.
#[derive(Clone, Default)]
struct SpanNames(Arc<Mutex<Vec<&'static str>>>);

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for SpanNames {
    fn on_new_span(
        &self,
        attributes: &tracing::span::Attributes<'_>,
        _: &tracing::span::Id,
        _: tracing_subscriber::layer::Context<'_, S>,
    ) {
        self.0.lock().unwrap().push(attributes.metadata().name());
    }
}

#[tokio::test]
async fn every_decision_and_every_write_has_a_span() {
    let names = SpanNames::default();
    // For all threads: what a thread without a subscriber registers first stays disabled for the others.
    tracing_subscriber::registry().with(names.clone()).init();
    let stage = Stage::new(&[1]).await;
    stage.submit("train", 1, 1).await;
    stage.scheduled("train", "True").await;
    let names = names.0.lock().unwrap().clone();
    assert!(names.contains(&"decide") && names.contains(&"write"), "{names:?}");
}

#[tokio::test]
async fn a_released_gang_is_placed_with_two_writes_and_no_event() {
    let stage = Stage::new(&[2, 4, 1]).await;
    stage.submit("train", 6, 6).await;
    let object = stage.scheduled("train", "True").await;
    assert_eq!(object["spec"]["clusters"], json!([{"name": "m0", "replicas": 2}, {"name": "m1", "replicas": 4}]));
    let annotations = &object["metadata"]["annotations"];
    let mut applied: Value =
        serde_json::from_str(annotations["policy.karmada.io/applied-placement"].as_str().unwrap()).unwrap();
    let tolerations = applied.as_object_mut().unwrap().remove("clusterTolerations").unwrap();
    assert_eq!(applied, object["spec"]["placement"]);
    let tolerates = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute"});
    let losses = ["cluster.karmada.io/not-ready", "cluster.karmada.io/unreachable"].map(tolerates);
    assert_eq!(tolerations, json!(losses), "a gang leaves a lost cluster whole");
    let plan: Value = serde_json::from_str(annotations["caldera.dev/plan"].as_str().unwrap()).unwrap();
    assert_eq!(plan["clusters"]["m1"]["tasks"]["w"], json!({"replicas": 4, "minAvailable": 4}));
    assert_eq!(object["status"]["schedulerObservedGeneration"], object["metadata"]["generation"]);
    assert!(object["status"]["lastScheduledTime"].is_string());
    // One patch of the spec (generation 2), and nothing written after the status.
    assert_eq!(object["metadata"]["generation"], 2);
    stage.submit("later", 1, 1).await;
    stage.scheduled("later", "True").await;
    let now = bindings(&stage.host).get("train-job").await.unwrap();
    assert_eq!(now.metadata.resource_version.as_deref(), object["metadata"]["resourceVersion"].as_str());
    assert!(stage.events().await.is_empty(), "its PodGroup says where it is");
}

/// The job that comes after it has its status later: by then the first would have had one.
#[tokio::test]
async fn a_job_that_ends_in_a_moment_costs_one_write() {
    let stage = Stage::new(&[2, 4]).await;
    stage.submit("brief", 2, 2).await;
    let is_placed = |object: &Value| object["spec"]["clusters"].is_array();
    let placed = until(&bindings(&stage.host), "brief-job", is_placed).await;
    let ended = json!({"state": {"phase": "Completed"}});
    let clusters = placed["spec"]["clusters"].as_array().unwrap();
    let reported: Vec<Value> = clusters.iter().map(|it| json!({"clusterName": it["name"], "status": ended})).collect();
    let reported = Patch::Merge(json!({"status": {"aggregatedStatus": reported}}));
    bindings(&stage.host).patch_status("brief-job", &PatchParams::default(), &reported).await.unwrap();
    let jobs = resource("batch.volcano.sh/v1alpha1", "Job", "jobs");
    let jobs: Api<DynamicObject> = Api::namespaced_with(stage.host.clone(), "default", &jobs);
    let ended = Patch::Merge(json!({"status": ended}));
    jobs.patch_status("brief", &PatchParams::default(), &ended).await.unwrap();
    stage.submit("later", 1, 1).await;
    stage.scheduled("later", "True").await;
    let now = until(&bindings(&stage.host), "brief-job", |_| true).await;
    assert_eq!(now["status"].get("lastScheduledTime"), None);
    assert_eq!(now["metadata"]["generation"], 2);
}

#[tokio::test]
async fn what_does_not_fit_says_so_and_goes_when_there_is_room() {
    let stage = Stage::new(&[1, 2]).await;
    stage.submit("train", 6, 6).await;
    let object = stage.scheduled("train", "False").await;
    let condition = &object["status"]["conditions"][0];
    assert_eq!(condition["reason"], "Unschedulable");
    let message = condition["message"].as_str().unwrap();
    assert!(message.contains("needs 6 pods at once"), "{message}");
    assert_eq!(object["spec"].get("clusters"), None);
    add_node(&stage.members["m1"], "n1", 3).await;
    let object = stage.scheduled("train", "True").await;
    assert_eq!(object["spec"]["clusters"], json!([{"name": "m0", "replicas": 1}, {"name": "m1", "replicas": 5}]));
    let result = "Binding has been scheduled successfully. Result: {m0:1, m1:5}".to_owned();
    let event = ("Job".to_owned(), "ScheduleBindingSucceed".to_owned(), result);
    let reported = async {
        while !stage.events().await.contains(&event) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, reported).await.expect("that it found a place after all is an event");
}

/// A FederatedResourceQuota is Karmada's to enforce: the denial is told, nothing is placed, and it is tried again.
#[tokio::test]
async fn a_federated_resource_quota_that_denies_is_reported_and_tried_again() {
    let stage = Stage::new(&[9]).await;
    let message = "FederatedResourceQuota(default/q) exceeded for resource cpu: requested sum 2, limit 1.";
    *stage.denial.lock().unwrap() = Some(message);
    stage.submit("train", 2, 2).await;
    let object = stage.scheduled("train", "False").await;
    let condition = &object["status"]["conditions"][0];
    assert_eq!(condition["reason"], "QuotaExceeded");
    assert!(condition["message"].as_str().unwrap().contains(message), "{condition}");
    assert_eq!(object["spec"].get("clusters"), None);
    *stage.denial.lock().unwrap() = None;
    let object = stage.scheduled("train", "True").await;
    assert_eq!(object["spec"]["clusters"], json!([{"name": "m0", "replicas": 2}]));
}

/// A policy that names our scheduler also selects what is not queued.
#[tokio::test]
async fn cluster_scoped_templates_and_config_are_placed_for_a_policy_that_names_us() {
    let stage = Stage::new(&[1]).await;
    let resource = resource("work.karmada.io/v1alpha2", "ClusterResourceBinding", "clusterresourcebindings");
    let api: Api<DynamicObject> = Api::all_with(stage.host.clone(), &resource);
    let object = json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ClusterResourceBinding",
        "metadata": {"name": "train-job", "labels": {"clusterpropagationpolicy.karmada.io/permanent-id": "p"}},
        "spec": {
            "resource": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "JobFlow", "name": "train"},
            "schedulerName": "caldera", "placement": {"clusterAffinity": {"clusterNames": ["m0"]}},
        },
    });
    create(&stage.host, "clusterresourcebindings", object).await;
    let says = |object: &Value| object["status"]["conditions"][0]["reason"] == "NoClusterFit";
    let refused = until(&api, "train-job", says).await;
    let message = "0/1 clusters are available: 1 cluster(s) did not have the API resource.";
    assert_eq!(refused["status"]["conditions"][0]["message"], message);
    serve(&stage.host, "m0", "JobFlow").await;
    let placed = until(&api, "train-job", |object| object["status"]["conditions"][0]["status"] == "True").await;
    assert_eq!(placed["spec"]["clusters"], json!([{"name": "m0"}]));
    assert_eq!(placed["status"]["schedulerObservedGeneration"], placed["metadata"]["generation"]);
}

/// Karmada copies no annotation of a policy to its bindings: the scheduler reads the policy, and whoever writes scores.
#[tokio::test]
async fn a_policy_ranks_clusters_by_scores_that_anybody_writes() {
    let stage = Stage::new(&[4, 4, 4]).await;
    let measured = "2100-01-01T00:00:00Z";
    let score = |name: &str, measured: Option<&str>| {
        json!({
            "apiVersion": "federation.caldera.dev/v1alpha1", "kind": "ClusterScore", "metadata": {"name": name},
            "spec": {"measuredAt": measured, "scores": [{"cluster": "m1", "score": 80}, {"cluster": "m2", "score": 90}]},
        })
    };
    create(&stage.host, "clusterscores", score("future", Some(measured))).await;
    let policy = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "p", "namespace": "default", "annotations": {"caldera.dev/score-weights": "future=9,now=1"}},
        "spec": {"resourceSelectors": [{"apiVersion": "example.io/v1", "kind": "Widget"}], "placement": {}},
    });
    create(&stage.host, "propagationpolicies", policy).await;
    let place = |name: &str| {
        json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
            "metadata": {
                "name": name, "namespace": "default",
                "labels": {"propagationpolicy.karmada.io/permanent-id": "p"},
                "annotations": {"propagationpolicy.karmada.io/name": "p", "propagationpolicy.karmada.io/namespace": "default"},
            },
            "spec": {
                "resource": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job2", "namespace": "default", "name": name},
                "replicas": 1, "replicaRequirements": {"resourceRequest": {"cpu": "1"}}, "schedulerName": "caldera",
                "placement": {
                    "clusterAffinity": {"clusterNames": ["m0", "m1", "m2"]},
                    "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}],
                    "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"},
                },
            },
        })
    };
    for name in ["m0", "m1", "m2"] {
        serve(&stage.host, name, "Job2").await;
    }
    let api = bindings(&stage.host);
    let done = |object: &Value| object["status"]["conditions"][0]["status"] == "True";
    // Scores of a time that is yet to come do not count.
    create(&stage.host, "resourcebindings", place("first")).await;
    assert_eq!(until(&api, "first", done).await["spec"]["clusters"][0]["name"], "m0");
    create(&stage.host, "clusterscores", score("now", Some(&jiff::Timestamp::now().to_string()))).await;
    // They come by another watch than bindings: until they are known, m0 and then m1 are the roomiest.
    let mut last = Value::Null;
    for attempt in 0..2000 {
        let name = format!("next-{attempt}");
        create(&stage.host, "resourcebindings", place(&name)).await;
        last = until(&api, &name, done).await["spec"]["clusters"][0]["name"].clone();
        if last == "m2" {
            break;
        }
        api.delete(&name, &kube::api::DeleteParams::default()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(last, "m2");
}

/// Links that are declared count at once, and the object says what of it does.
#[tokio::test]
async fn a_gang_waits_for_a_link_between_clusters_and_the_object_says_who_is_near() {
    let stage = Stage::new(&[4, 4]).await;
    let api = bindings(&stage.host);
    let mut job = job("train", 6, 6);
    job["spec"]["networkTopology"] = json!({"mode": "hard", "highestTierName": "campus"});
    create(&stage.host, "jobs", job).await;
    create(&stage.host, "resourcebindings", binding("train", 6)).await;
    let refused = until(&api, "train-job", |object| object["status"]["conditions"][0]["status"] == "False").await;
    let message = refused["status"]["conditions"][0]["message"].as_str().unwrap();
    assert!(message.contains("no cluster has tier campus or lower: the tiers are cluster"), "{message}");
    let links = json!({
        "apiVersion": "federation.caldera.dev/v1alpha1", "kind": "FederationTopology", "metadata": {"name": "links"},
        "spec": {
            "tiers": [{"name": "campus", "maxLatencyMicroseconds": 500}],
            "links": [{"from": ["m0", "m1"], "latencyMicroseconds": 200}, {"from": ["m0"], "to": ["m0"]}, {"from": ["m0", "m9"]}],
        },
    });
    let created = create(&stage.host, "federationtopologies", links).await;
    let placed = until(&api, "train-job", |object| object["status"]["conditions"][0]["status"] == "True").await;
    assert_eq!(placed["spec"]["clusters"].as_array().unwrap().len(), 2);
    let resource = resource("federation.caldera.dev/v1alpha1", "FederationTopology", "federationtopologies");
    let topologies: Api<DynamicObject> = Api::all_with(stage.host.clone(), &resource);
    let says = |object: &Value| object["status"]["conditions"][0]["reason"].is_string();
    let reported = until(&topologies, "links", says).await;
    let condition = &reported["status"]["conditions"][0];
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("Malformed")));
    assert_eq!(condition["message"], "links[1]: a link from m0 to itself; there is no cluster m9; the rest counts");
    assert_eq!(reported["status"]["observedGeneration"], created["metadata"]["generation"]);
    let whole = json!({"spec": {"links": [{"from": ["m0", "m1"], "latencyMicroseconds": 200}]}});
    topologies.patch("links", &PatchParams::default(), &Patch::Merge(whole)).await.unwrap();
    let reported = until(&topologies, "links", |object| object["status"]["conditions"][0]["status"] == "True").await;
    assert_eq!(reported["status"]["conditions"][0]["message"], "campus: m0 m1");
}

/// Weights that can not be read are told where they are written: once for each text, however often the object changes.
#[tokio::test]
async fn whoever_writes_weights_that_can_not_be_read_is_reported_once() {
    let stage = Stage::new(&[4]).await;
    let policy = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "p", "namespace": "default", "annotations": {"caldera.dev/score-weights": "cheapest=lots"}},
        "spec": {"resourceSelectors": [{"apiVersion": "example.io/v1", "kind": "Widget"}], "placement": {}},
    });
    let created = create(&stage.host, "propagationpolicies", policy).await;
    let events: Api<DynamicObject> =
        Api::namespaced_with(stage.host.clone(), "default", &resource("v1", "Event", "events"));
    let reported = async |count: usize| {
        for _ in 0..3000 {
            let all: Vec<Value> = events
                .list(&kube::api::ListParams::default())
                .await
                .unwrap()
                .into_iter()
                .map(|event| serde_json::to_value(event).unwrap())
                .filter(|event| event["reason"] == "ScoreWeightsIgnored")
                .collect();
            if all.len() >= count {
                return all;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("it was not told");
    };
    let first = reported(1).await;
    assert_eq!(first[0]["involvedObject"]["uid"], created["metadata"]["uid"]);
    assert!(first[0]["message"].as_str().unwrap().contains("cheapest=lots"), "{}", first[0]);
    let policies: Api<DynamicObject> = Api::namespaced_with(
        stage.host.clone(),
        "default",
        &resource("policy.karmada.io/v1alpha1", "PropagationPolicy", "propagationpolicies"),
    );
    for metadata in [
        json!({"labels": {"a": "b"}}),
        json!({"labels": {"a": "c"}}),
        json!({"annotations": {"caldera.dev/score-weights": "cheapest=more"}}),
    ] {
        let patch = Patch::Merge(json!({"metadata": metadata}));
        policies.patch("p", &PatchParams::default(), &patch).await.unwrap();
    }
    // The text that is new comes after whatever the labels would have brought.
    assert_eq!(reported(2).await.len(), 2);
}

async fn serve(host: &Client, cluster: &str, kind: &str) {
    let clusters: Api<DynamicObject> =
        Api::all_with(host.clone(), &resource("cluster.karmada.io/v1alpha1", "Cluster", "clusters"));
    let serves = json!({"status": {"apiEnablements": [{
        "groupVersion": "batch.volcano.sh/v1alpha1",
        "resources": [{"name": kind.to_lowercase() + "s", "kind": kind}],
    }]}});
    clusters.patch_status(cluster, &PatchParams::default(), &Patch::Merge(serves)).await.unwrap();
}

#[tokio::test]
async fn a_users_hold_is_honoured_and_lifted_only_by_the_user() {
    let stage = Stage::new(&[9]).await;
    create(&stage.host, "jobs", job("held", 2, 2)).await;
    let mut held = binding("held", 2);
    held["spec"]["suspension"]["scheduling"] = true.into();
    create(&stage.host, "resourcebindings", held).await;
    stage.submit("free", 2, 2).await;
    stage.scheduled("free", "True").await;
    let api = bindings(&stage.host);
    let object = serde_json::to_value(api.get("held-job").await.unwrap()).unwrap();
    assert_eq!((object["spec"].get("clusters"), object.get("status")), (None, None));
    let lift = Patch::Merge(json!({"spec": {"suspension": {"scheduling": false}}}));
    api.patch("held-job", &PatchParams::default(), &lift).await.unwrap();
    stage.scheduled("held", "True").await;
}

#[tokio::test]
async fn a_member_that_does_not_answer_degrades_only_itself() {
    let stage = Stage::new(&[4]).await;
    // Its secret does not exist, and nobody listens at its address.
    let mut gone = cluster("gone");
    gone["spec"] = json!({
        "syncMode": "Push", "apiEndpoint": "https://127.0.0.1:1",
        "secretRef": {"namespace": "default", "name": "gone"},
    });
    gone["status"]["resourceSummary"] = json!({"allocatable": {"cpu": "2", "pods": "10"}});
    create(&stage.host, "clusters", gone).await;
    stage.submit("train", 4, 4).await;
    let object = stage.scheduled("train", "True").await;
    assert_eq!(object["spec"]["clusters"], json!([{"name": "m0", "replicas": 4}]));
    // Of the member that can not be read Karmada's summary is taken.
    stage.submit("more", 2, 2).await;
    let object = stage.scheduled("more", "True").await;
    assert_eq!(object["spec"]["clusters"], json!([{"name": "gone", "replicas": 2}]));
    stage.submit("last", 1, 1).await;
    let object = stage.scheduled("last", "False").await;
    let message = object["status"]["conditions"][0]["message"].as_str().unwrap();
    assert!(
        message.contains("gone: its resource summary is used: failed to read its secret default/gone"),
        "{message}"
    );
}

#[tokio::test]
async fn running_pods_take_the_place_of_what_was_assumed() {
    let stage = Stage::new(&[4]).await;
    stage.submit("first", 3, 3).await;
    stage.scheduled("first", "True").await;
    // A pod of somebody else, and the first of the job's own: four cores are taken, not five.
    let pod = |name: &str, owner: Value| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "default", "ownerReferences": owner,
                "annotations": {"volcano.sh/task-spec": "w"},
            },
            "spec": {"nodeName": "n0", "containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}},
            ]},
        })
    };
    let owner = json!([{
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "first", "uid": "u", "controller": true,
    }]);
    create(&stage.members["m0"], "pods", pod("first-w-0", owner)).await;
    stage.submit("second", 1, 1).await;
    let object = stage.scheduled("second", "True").await;
    assert_eq!(object["spec"]["clusters"], json!([{"name": "m0", "replicas": 1}]));
    stage.submit("third", 1, 1).await;
    let object = stage.scheduled("third", "False").await;
    let message = object["status"]["conditions"][0]["message"].as_str().unwrap();
    assert!(message.contains("0 fit now"), "{message}");
}

/// The controller's lease, as its holder has it.
async fn lease(stage: &Stage, holder: &str, transitions: i64) {
    let leases = resource("coordination.k8s.io/v1", "Lease", "leases");
    let api: Api<DynamicObject> = Api::namespaced_with(stage.host.clone(), "default", &leases);
    let spec = json!({"holderIdentity": holder, "leaseTransitions": transitions});
    let object = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": "default", "name": "caldera-controller"}, "spec": spec,
    });
    if api.get_opt("caldera-controller").await.unwrap().is_none() {
        create(&stage.host, "leases", object).await;
        return;
    }
    let patch = Patch::Merge(json!({"spec": spec}));
    api.patch("caldera-controller", &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn a_grant_under_a_lease_that_is_not_held_any_more_waits_until_its_holder_grants_it_anew() {
    let stage = Stage::new(&[4]).await;
    lease(&stage, "b", 2).await;
    let granted = |epoch: &str| Patch::Merge(json!({"metadata": {"annotations": {"caldera.dev/epoch": epoch}}}));
    for (name, epoch) in [("stale", "1.a"), ("fresh", "2.b")] {
        create(&stage.host, "jobs", job(name, 1, 1)).await;
        let mut binding = binding(name, 1);
        binding["metadata"]["annotations"]["caldera.dev/epoch"] = epoch.into();
        create(&stage.host, "resourcebindings", binding).await;
    }
    let is_placed = |object: &Value| object["spec"]["clusters"].as_array().is_some_and(|targets| !targets.is_empty());
    let api = bindings(&stage.host);
    until(&api, "fresh-job", is_placed).await;
    let stale = serde_json::to_value(api.get("stale-job").await.unwrap()).unwrap();
    assert!(!is_placed(&stale), "{stale}");
    api.patch("stale-job", &PatchParams::default(), &granted("2.b")).await.unwrap();
    until(&api, "stale-job", is_placed).await;
}
