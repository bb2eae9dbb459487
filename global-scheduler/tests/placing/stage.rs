//! A host with Karmada's kinds, members behind the cluster proxy, and a scheduler that runs against them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::Request,
    http::{Method, StatusCode},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::any,
};
use caldera_crds::manifests;
use caldera_global_scheduler::{Config, run};
use embedded_apiserver::{ApiServer, Options};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceExt;

/// How long a condition is waited for: generous, because machines are busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Stage {
    pub host: Client,
    /// While it is set a FederatedResourceQuota denies every placement with it, as Karmada's webhook does.
    pub denial: Arc<Mutex<Option<&'static str>>>,
    pub members: BTreeMap<String, Client>,
    _stop: DropGuard,
}

pub fn resource(api_version: &str, kind: &str, plural: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    caldera_runtime::watch::api_resource(group, version, kind, plural)
}

pub fn bindings(client: &Client) -> Api<DynamicObject> {
    Api::namespaced_with(
        client.clone(),
        "default",
        &resource("work.karmada.io/v1alpha2", "ResourceBinding", "resourcebindings"),
    )
}

pub async fn create(client: &Client, plural: &str, object: Value) -> Value {
    let text = |key: &str| object[key].as_str().unwrap().to_owned();
    let resource = resource(&text("apiVersion"), &text("kind"), plural);
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    let status = object.get("status").cloned();
    let created = api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    match status {
        Some(status) => {
            let patch = Patch::Merge(json!({"status": status}));
            let patched = api.patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
            serde_json::to_value(patched).unwrap()
        }
        None => serde_json::to_value(created).unwrap(),
    }
}

/// Waits until the condition holds for an object.
pub async fn until(api: &Api<DynamicObject>, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    let waited = tokio::time::timeout(PATIENCE, async {
        loop {
            if let Ok(object) = api.get(name).await {
                last = serde_json::to_value(object).unwrap();
                if holds(&last) {
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    let reached = waited.await.is_ok();
    assert!(reached, "not in time: {last:#}");
    last
}

impl Stage {
    /// A host, members with one node of so many cores, and the scheduler.
    pub async fn new(cores: &[i64]) -> Self {
        let server = ApiServer::new(Options::default());
        let mut routers: BTreeMap<String, Router> = BTreeMap::new();
        for index in 0..cores.len() {
            routers.insert(format!("m{index}"), ApiServer::new(Options::default()).router());
        }
        let members: BTreeMap<String, Client> =
            routers.iter().map(|(name, router)| (name.clone(), Client::new(router.clone(), "default"))).collect();
        let proxy = move |request: Request| {
            let routers = routers.clone();
            async move { proxied(&routers, request).await }
        };
        let denial = Arc::new(Mutex::new(None));
        let denied = Arc::clone(&denial);
        let judge = move |request: Request, next: Next| {
            let denial = *denied.lock().unwrap();
            async move { judged(denial, request, next).await }
        };
        let router = Router::new()
            .route("/apis/cluster.karmada.io/v1alpha1/clusters/{name}/proxy/{*path}", any(proxy))
            .fallback_service(server.router())
            .layer(from_fn(judge));
        let host = Client::new(router, "default");
        for crd in manifests::build_karmada_crds()
            .into_iter()
            .chain(manifests::build_volcano_crds())
            .chain(manifests::build_federation_crds())
        {
            create(&host, "customresourcedefinitions", crd).await;
        }
        for crd in manifests::build_karmada_crds().into_iter().chain([manifests::build_cluster_crd()]) {
            create_if_new(&host, crd).await;
        }
        let clusters = Api::all_with(host.clone(), &resource("cluster.karmada.io/v1alpha1", "Cluster", "clusters"));
        until_served(&clusters).await;
        for (index, cores) in cores.iter().enumerate() {
            let name = format!("m{index}");
            add_node(&members[&name], "n0", *cores).await;
            create(&host, "clusters", cluster(&name)).await;
        }
        let stop = CancellationToken::new();
        let grants = Some(("default".to_owned(), "caldera-controller".to_owned()));
        let config = Config { grants, ..Config::default() };
        tokio::spawn(run(config, host.clone(), stop.clone()));
        Self { host, denial, members, _stop: stop.drop_guard() }
    }

    pub async fn submit(&self, name: &str, pods: u32, min: u32) {
        create(&self.host, "jobs", job(name, pods, min)).await;
        create(&self.host, "resourcebindings", binding(name, pods)).await;
    }

    /// Until status says what became of it.
    pub async fn scheduled(&self, name: &str, status: &str) -> Value {
        let is = |object: &Value| {
            let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
            conditions.into_iter().flatten().any(|one| one["type"] == "Scheduled" && one["status"] == status)
        };
        until(&bindings(&self.host), &format!("{name}-job"), is).await
    }

    pub async fn events(&self) -> Vec<(String, String, String)> {
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.host.clone(), "default", &resource("v1", "Event", "events"));
        let list = api.list(&kube::api::ListParams::default()).await.unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let read = |event: DynamicObject| {
            let event = serde_json::to_value(event).unwrap();
            (text(&event["involvedObject"]["kind"]), text(&event["reason"]), text(&event["message"]))
        };
        let mut events: Vec<_> = list.into_iter().map(read).collect();
        events.sort();
        events
    }
}

async fn create_if_new(host: &Client, crd: Value) {
    let api: Api<DynamicObject> = Api::all_with(
        host.clone(),
        &resource("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions"),
    );
    if api.get_opt(crd["metadata"]["name"].as_str().unwrap()).await.unwrap().is_none() {
        create(host, "customresourcedefinitions", crd).await;
    }
}

async fn until_served(api: &Api<DynamicObject>) {
    let served = async {
        while api.list(&kube::api::ListParams::default()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, served).await.unwrap();
}

async fn judged(denial: Option<&'static str>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let placement =
        request.method() == Method::PATCH && path.contains("/resourcebindings/") && !path.ends_with("/status");
    match denial {
        Some(message) if placement => {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 403,
                "reason": "QuotaExceeded", "message": message,
            });
            (StatusCode::FORBIDDEN, Json(status)).into_response()
        }
        _ => next.run(request).await,
    }
}

async fn proxied(routers: &BTreeMap<String, Router>, mut request: Request) -> Response {
    let path = request.uri().path_and_query().unwrap().as_str().to_owned();
    let rest = path.strip_prefix("/apis/cluster.karmada.io/v1alpha1/clusters/").unwrap();
    let (name, rest) = rest.split_once("/proxy").unwrap();
    *request.uri_mut() = rest.parse().unwrap();
    routers[name].clone().oneshot(request).await.unwrap()
}

pub fn cluster(name: &str) -> Value {
    json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
        "spec": {"syncMode": "Pull"},
        "status": {
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "ClusterReady", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
            "apiEnablements": [{
                "groupVersion": "batch.volcano.sh/v1alpha1", "resources": [{"name": "jobs", "kind": "Job"}],
            }],
        },
    })
}

pub async fn add_node(member: &Client, name: &str, cores: i64) {
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {
            "allocatable": {"cpu": cores.to_string(), "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    create(member, "nodes", node).await;
    // A new node is tainted until the node controller, which is not here, has seen it ready.
    let nodes: Api<DynamicObject> = Api::all_with(member.clone(), &resource("v1", "Node", "nodes"));
    let untaint = Patch::Merge(json!({"spec": {"taints": null}}));
    nodes.patch(name, &PatchParams::default(), &untaint).await.unwrap();
}

pub fn job(name: &str, pods: u32, min: u32) -> Value {
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minAvailable": min, "schedulerName": "volcano", "tasks": [{
            "name": "w", "replicas": pods, "minAvailable": min,
            "template": {"spec": {"containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}},
            ]}},
        }]},
    })
}

pub fn binding(name: &str, pods: u32) -> Value {
    let admission = json!({"queue": "q", "priority": 0, "copies": 1, "tasks": {"w": pods}, "charged": {}});
    json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {
            "name": format!("{name}-job"), "namespace": "default",
            "annotations": {"caldera.dev/gate": "open", "caldera.dev/admission": admission.to_string()},
        },
        "spec": {
            "resource": {
                "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": "default", "name": name,
                "uid": format!("uid-{name}"),
            },
            "replicas": pods, "schedulerName": "caldera", "suspension": {"scheduling": false},
            "placement": {"replicaScheduling": {
                "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated",
            }},
        },
    })
}
