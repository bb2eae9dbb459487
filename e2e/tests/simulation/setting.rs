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
    invariants::Limit,
    stand_in::{NAMESPACE, write_to},
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

pub async fn prepare_host(client: &Client) {
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
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        create(client, namespaces.clone(), "", namespace).await;
    }
    for name in ["m1", "m2"] {
        let enablements = json!([{
            "groupVersion": "batch.volcano.sh/v1alpha1", "resources": [{"name": "jobs", "kind": "Job"}],
        }]);
        let cluster = json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
            "spec": {"syncMode": "Pull"},
            "status": {
                "apiEnablements": enablements,
                "conditions": [ready(true)],
                "resourceSummary": {"allocatable": {"cpu": "8", "memory": "64Gi", "pods": "200"}},
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
    let (status, reason) = if yes { ("True", "ClusterReady") } else { ("False", "ClusterNotReachable") };
    json!({
        "type": "Ready", "status": status, "reason": reason, "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

pub fn queues() -> kube::api::ApiResource {
    api_resource("scheduling.volcano.sh", "v1beta1", "Queue", "queues")
}

/// `lab` is smaller than its children together, and the fleet is smaller than all.
pub fn limits() -> BTreeMap<String, Limit> {
    let limit = |name: &str, parent, cores| (name.to_owned(), Limit { parent, cores });
    BTreeMap::from([
        limit("lab", None, Some(10)),
        limit("vision", Some("lab"), Some(8)),
        limit("speech", Some("lab"), Some(6)),
        limit("open", None, None),
    ])
}

pub const QUEUES: [&str; 4] = ["lab", "vision", "speech", "open"];

pub async fn prepare_queues(client: &Client) {
    // Parents first.
    for name in QUEUES {
        create(client, queues(), "", queue(name)).await;
    }
    for name in CLASSES {
        create(client, classes(), "", class(name)).await;
    }
}

pub fn queue(name: &str) -> Value {
    let limit = &limits()[name];
    let mut spec = json!({"weight": 1, "reclaimable": true});
    if let Some(parent) = limit.parent {
        spec["parent"] = parent.into();
    }
    if let Some(cores) = limit.cores {
        spec["capability"] = json!({"cpu": cores.to_string()});
    }
    // Its user deletes queues in use, and knows it.
    let metadata = json!({"name": name, "annotations": {"caldera.dev/force-delete": "true"}});
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

pub const NODES: [(&str, u64); 2] = [("n1", 4), ("n2", 4)];

pub async fn prepare_member(client: &Client) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    create(client, api_resource("", "v1", "Namespace", "namespaces"), "", namespace).await;
    for (name, cores) in NODES {
        let allocatable = json!({"cpu": cores.to_string(), "memory": "32Gi", "pods": "100"});
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
        write::execute_write(client, &write_to(nodes, "", name, healthy)).await.unwrap();
    }
}
