//! API servers with our CRDs, and the objects that benchmarks fill them with, written through the API like anybody's.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    time::Duration,
};

use anyhow::Context;
use axum::Router;
use caldera_crds::names::caldera;
use caldera_runtime::tls::{Authority, server_config};
use caldera_sandbox::fleet::Endpoint;
use embedded_apiserver::{ApiServer, Options};
use futures::{StreamExt, TryStreamExt};
use kube::Client;
use serde_json::{Value, json};

pub const JOBS: &str = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs";
pub const BINDINGS: &str = "/apis/work.karmada.io/v1alpha2/namespaces/default/resourcebindings";
pub const QUEUES: &str = "/apis/scheduling.volcano.sh/v1beta1/queues";
pub const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";

/// A host: Karmada's and Volcano's CRDs, nothing that runs. The client needs no socket.
pub async fn start_host() -> anyhow::Result<(ApiServer, Client)> {
    let server = ApiServer::new(Options { name: "host".into(), ..Options::default() });
    let client = Client::new(server.router(), "default");
    let mut crds = caldera_crds::manifests::build_karmada_crds();
    crds.push(caldera_crds::manifests::build_cluster_crd());
    crds.extend(caldera_crds::manifests::build_volcano_crds());
    for crd in crds {
        create_object(&client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await?;
    }
    for path in [JOBS, BINDINGS, QUEUES, CLUSTERS] {
        wait_until_served(&client, path).await?;
    }
    Ok((server, client))
}

pub async fn wait_until_served(client: &Client, path: &str) -> anyhow::Result<()> {
    for _ in 0..500 {
        if get_object(client, &format!("{path}?limit=1")).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    get_object(client, path).await.map(drop).with_context(|| format!("{path} is not served"))
}

/// Serves HTTPS on a free port of the loopback until the process ends.
pub fn serve_router(name: &str, server: &ApiServer, router: Router) -> anyhow::Result<Endpoint> {
    let authority = Authority::new("caldera-bench")?;
    let identity = authority.issue_server_identity(name, &["localhost"], &[Ipv4Addr::LOCALHOST.into()])?;
    let (listener, bound) = open_listener()?;
    let tls = axum_server::tls_rustls::RustlsConfig::from_config(server_config(&identity)?);
    let serving = axum_server::from_tcp_rustls(listener, tls)?
        .map(|tls| tls.acceptor(axum_server::accept::NoDelayAcceptor::new()))
        .serve(router.into_make_service());
    tokio::spawn(serving);
    Ok(Endpoint {
        name: name.to_owned(),
        server: format!("https://{bound}"),
        token: server.admin_token().to_owned(),
        ca_pem: authority.cert_pem,
    })
}

/// A free port.
pub fn open_listener() -> anyhow::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("failed to bind a port")?;
    listener.set_nonblocking(true)?;
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}

pub async fn get_object(client: &Client, path: &str) -> anyhow::Result<Value> {
    let request = http::Request::get(path).body(Vec::new())?;
    client.request(request).await.with_context(|| format!("failed to read {path}"))
}

pub async fn create_object(client: &Client, path: &str, object: &Value) -> anyhow::Result<Value> {
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(serde_json::to_vec(object)?)?;
    client.request(request).await.with_context(|| format!("failed to create {object} in {path}"))
}

/// `kind` is `merge` or `json`.
pub async fn patch_object(client: &Client, path: &str, kind: &str, patch: &Value) -> anyhow::Result<Value> {
    let request = http::Request::patch(path).header("content-type", format!("application/{kind}-patch+json"));
    let request = request.body(serde_json::to_vec(patch)?)?;
    client.request(request).await.with_context(|| format!("failed to patch {path}"))
}

/// Creates many at once; in the order of `objects` as far as it matters to their creation times.
pub async fn create_all(client: &Client, path: &str, objects: impl Iterator<Item = Value>) -> anyhow::Result<()> {
    let creating =
        futures::stream::iter(objects).map(|object| async move { create_object(client, path, &object).await });
    creating.buffered(16).try_for_each(|_| async { Ok(()) }).await
}

/// A Volcano Job of four pods with one core each.
pub fn make_job(i: usize, queue: &str) -> Value {
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"name": format!("job-{i}"), "namespace": "default"},
        "spec": {"queue": queue, "minAvailable": 4, "schedulerName": "volcano", "tasks": [
            {"name": "worker", "replicas": 4, "minAvailable": 4, "template": {"spec": {
                "restartPolicy": "OnFailure",
                "containers": [{
                    "name": "main", "image": "registry.example.com/team/training:2026.11",
                    "command": ["python", "-m", "train", "--epochs", "10"],
                    "env": [{"name": "DATA", "value": "/data/set-17"}, {"name": "SEED", "value": i.to_string()}],
                    "resources": {"requests": {"cpu": "1", "memory": format!("{}Mi", 512 + i % 100)}},
                }],
            }}},
        ]},
    })
}

/// The binding that Karmada makes of it, as the webhook gates it.
pub fn make_binding(i: usize, job_uid: &str) -> Value {
    json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {
            "name": format!("job-{i}-job"), "namespace": "default",
            "annotations": {
                (caldera::GATE): caldera::GATE_CLOSED,
                "propagationpolicy.karmada.io/name": "training", "propagationpolicy.karmada.io/namespace": "default",
            },
            "labels": {"resourcebinding.karmada.io/permanent-id": format!("{i:08}-3333-4000-8000-000000000000")},
        },
        "spec": {
            "resource": {
                "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
                "namespace": "default", "name": format!("job-{i}"), "uid": job_uid,
            },
            "schedulerName": caldera::SCHEDULER_NAME,
            "conflictResolution": "Abort",
            "suspension": {"scheduling": true},
            "placement": {
                "clusterAffinity": {"clusterNames": ["m1", "m2", "m3"]},
                "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"},
            },
            "replicas": 4,
            "replicaRequirements": {"resourceRequest": {"cpu": "1", "memory": format!("{}Mi", 512 + i % 100)}},
        },
    })
}

/// The controller's patch that opens a gate.
pub fn make_release_patch(resource_version: &str) -> Value {
    let record = json!({"queue": "q0", "priority": 0, "copies": 1, "charged": {"cpu": "4", "memory": "2Gi", "pods": "4"}, "tasks": {"worker": 4}});
    json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": resource_version},
        {"op": "add", "path": "/spec/suspension/scheduling", "value": false},
        {"op": "add", "path": "/metadata/annotations/caldera.dev~1gate", "value": caldera::GATE_OPEN},
        {"op": "add", "path": "/metadata/annotations/caldera.dev~1admission", "value": record.to_string()},
        {"op": "add", "path": "/metadata/annotations/caldera.dev~1priority", "value": "0"},
    ])
}

/// A string at a path; empty if there is none.
pub fn read_text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
