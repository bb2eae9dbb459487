//! What is there when a history begins: the host, its queues and classes, and the members.

use std::collections::BTreeMap;

use caldera_runtime::{
    watch::api_resource,
    write::{self, Body},
};
use caldera_webhook as webhook;
use kube::Client;
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use crate::{
    actors::{Actor, Actors},
    invariants::Limit,
    stand_in::{NAMESPACE, write_to},
    workloads::{Amount, CARDS, RESOURCES, add, times},
};

pub async fn create(client: &Client, of: kube::api::ApiResource, namespace: &str, object: Value) {
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    let status = object["status"].clone();
    write::execute_write(client, &write_to(of.clone(), namespace, &name, Body::Create(object))).await.unwrap();
    if status.is_object() {
        let body = Body::MergePatch(json!({"status": status}));
        let write = write::Write { subresource: Some("status"), ..write_to(of, namespace, &name, body) };
        write::execute_write(client, &write).await.unwrap();
    }
}

pub async fn prepare_host(client: &Client, actors: &Actors) {
    let definitions =
        api_resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");
    let mut crds = caldera_crds::manifests::build_karmada_crds();
    crds.push(caldera_crds::manifests::build_cluster_crd());
    crds.extend(caldera_crds::manifests::build_volcano_crds());
    for mut crd in crds {
        crd.as_object_mut().unwrap().remove("status");
        create(client, definitions.clone(), "", crd).await;
    }
    sleep(Duration::from_secs(1)).await;
    let namespaces = api_resource("", "v1", "Namespace", "namespaces");
    for name in [NAMESPACE, "karmada-es-m1", "karmada-es-m2"] {
        let mut namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        if actors.has(Actor::Services) && name == NAMESPACE {
            namespace["metadata"]["labels"] = json!({"caldera.dev/queueing": "enabled"});
        }
        create(client, namespaces.clone(), "", namespace).await;
    }
    for name in MEMBERS {
        let mut enablements = json!([{
            "groupVersion": "batch.volcano.sh/v1alpha1", "resources": [{"name": "jobs", "kind": "Job"}],
        }]);
        if actors.has(Actor::Services) {
            let apps = json!({"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]});
            enablements.as_array_mut().unwrap().push(apps);
        }
        let mut allocatable = json!({"cpu": "8", "memory": "64Gi", "pods": "200"});
        if actors.has(Actor::Cards) {
            allocatable[CARDS] = CARDS_OF_NODE.to_string().into();
        }
        let cluster = json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
            "spec": {"syncMode": "Pull"},
            "status": {
                "apiEnablements": enablements,
                "conditions": [ready(true)],
                "resourceSummary": {"allocatable": allocatable},
            },
        });
        create(client, clusters(), "", cluster).await;
    }
    // Karmada has an interpreter's configuration, which only the stand-in would read.
    for configuration in webhook::build_configurations(&webhook::Endpoint::Url(format!("https://{WEBHOOK}")), "") {
        let kind = configuration["kind"].as_str().unwrap();
        if kind != "ResourceInterpreterWebhookConfiguration" {
            let plural = format!("{}s", kind.to_lowercase());
            create(client, api_resource("admissionregistration.k8s.io", "v1", kind, &plural), "", configuration).await;
        }
    }
}

pub const WEBHOOK: &str = "webhook.simulation:443";

pub fn clusters() -> kube::api::ApiResource {
    api_resource("cluster.karmada.io", "v1alpha1", "Cluster", "clusters")
}

pub fn ready(yes: bool) -> Value {
    ready_since(yes, "2026-01-01T00:00:00Z")
}

pub fn ready_since(yes: bool, since: &str) -> Value {
    let (status, reason) = if yes { ("True", "ClusterReady") } else { ("False", "ClusterNotReachable") };
    json!({
        "type": "Ready", "status": status, "reason": reason, "message": "",
        "lastTransitionTime": since,
    })
}

pub fn queues() -> kube::api::ApiResource {
    api_resource("scheduling.volcano.sh", "v1beta1", "Queue", "queues")
}

/// `lab` is smaller than its children together, and the fleet is smaller than all.
pub fn limits(actors: &Actors) -> BTreeMap<String, Limit> {
    let limit = |name: &str, parent, cores, cards: Option<u64>| {
        (name.to_owned(), Limit { parent, most: [cores, cards.filter(|_| actors.has(Actor::Cards))] })
    };
    let mut limits = BTreeMap::from([
        limit("lab", None, Some(10), Some(3)),
        limit("vision", Some("lab"), Some(8), Some(2)),
        limit("speech", Some("lab"), Some(6), None),
        limit("open", None, None, None),
    ]);
    if actors.has(Actor::Limits) {
        limits.extend([limit(GUEST, Some("lab"), Some(4), None)]);
    }
    if actors.has(Actor::Trees) {
        limits.extend(TREE.map(|(name, parent, cores)| limit(name, parent, cores, None)));
    }
    limits
}

pub const QUEUES: [&str; 4] = ["lab", "vision", "speech", "open"];

/// One more, where an admin changes limits: it is deleted when it is empty, and made anew.
pub const GUEST: &str = "guest";

/// Name, parent and cores of more queues, parents first, where an admin changes the tree.
pub const TREE: [(&str, Option<&str>, Option<u64>); 5] = [
    ("org", None, Some(8)),
    ("ml", Some("org"), Some(6)),
    ("nlp", Some("ml"), Some(4)),
    ("cv", Some("ml"), None),
    ("ops", Some("org"), Some(5)),
];

pub async fn prepare_queues(client: &Client, actors: &Actors) {
    // Parents first.
    let tree = TREE.map(|(name, ..)| name).into_iter().filter(|_| actors.has(Actor::Trees));
    for name in QUEUES.into_iter().chain(actors.has(Actor::Limits).then_some(GUEST)).chain(tree) {
        create(client, queues(), "", queue(name, actors)).await;
    }
    for name in CLASSES {
        create(client, classes(), "", class(name)).await;
    }
}

pub fn queue(name: &str, actors: &Actors) -> Value {
    let limit = &limits(actors)[name];
    let mut spec = json!({"weight": 1, "reclaimable": true});
    if let Some(parent) = limit.parent {
        spec["parent"] = parent.into();
    }
    for (resource, most) in RESOURCES.into_iter().zip(limit.most) {
        if let Some(most) = most {
            spec["capability"][resource] = most.to_string().into();
        }
    }
    let mut metadata = json!({"name": name});
    if QUEUES.contains(&name) {
        // Its user deletes queues in use, and knows it.
        metadata["annotations"] = json!({"caldera.dev/force-delete": "true"});
    }
    json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": metadata, "spec": spec})
}

pub const CLASSES: [&str; 2] = ["urgent", "idle"];

pub fn classes() -> kube::api::ApiResource {
    api_resource("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses")
}

pub fn class(name: &str) -> Value {
    let value = if name == "urgent" { 1000 } else { -1000 };
    json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value})
}

pub const MEMBERS: [&str; 2] = ["m1", "m2"];

/// Where there are any.
const CARDS_OF_NODE: u64 = 3;

/// The nodes of each member. The cards are on one of them.
pub fn nodes(actors: &Actors) -> BTreeMap<String, Amount> {
    let cards = if actors.has(Actor::Cards) { CARDS_OF_NODE } else { 0 };
    BTreeMap::from([("n1".to_owned(), [4, 0]), ("n2".to_owned(), [4, cards])])
}

/// What all members have together.
pub fn fleet(actors: &Actors) -> Amount {
    let mut all = Amount::default();
    nodes(actors).into_values().for_each(|node| add(&mut all, node));
    times(all, MEMBERS.len() as u64)
}

pub async fn prepare_member(client: &Client, actors: &Actors) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    create(client, api_resource("", "v1", "Namespace", "namespaces"), "", namespace).await;
    for (name, [cores, cards]) in nodes(actors) {
        let mut allocatable = json!({"cpu": cores.to_string(), "memory": "32Gi", "pods": "100"});
        if cards > 0 {
            allocatable[CARDS] = cards.to_string().into();
        }
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "status": {
                "allocatable": allocatable, "capacity": allocatable,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        let nodes = api_resource("", "v1", "Node", "nodes");
        create(client, nodes.clone(), "", node).await;
        // Every node is born with a not-ready taint, which a kube-controller-manager would take away.
        let healthy = Body::MergePatch(json!({"spec": {"taints": null}}));
        write::execute_write(client, &write_to(nodes, "", &name, healthy)).await.unwrap();
    }
}
