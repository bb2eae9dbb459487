//! What was written, by whom, and how objects are now: all clients of a scenario are tapped for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use caldera_sandbox::karmada::object::{Gvk, ObjectExt};
use embedded_apiserver::ApiServer;
use http_body_util::BodyExt;
use kube::Client;
use serde_json::Value;
use tokio::time::Instant;
use tower::ServiceExt;

use crate::{
    compare,
    recording::{Subject, Written},
};

/// One version of an object, and who made it; `None` when it went.
type Version = (String, Option<Value>);

/// What was written, and how objects are now.
#[derive(Default)]
pub struct Log {
    pub states: BTreeMap<Subject, Value>,
    /// Versions of each object and uid. Answers come in any order; versions do not.
    history: BTreeMap<(Subject, String), BTreeMap<u64, Version>>,
    pub lines: Vec<String>,
    pub last: Option<Instant>,
}

impl Log {
    /// Forgets what was written so far, not what is there.
    pub fn begin(&mut self) {
        self.lines.clear();
        for versions in self.history.values_mut() {
            if let Some((version, (_, value))) = versions.pop_last() {
                *versions = BTreeMap::from([(version, (String::new(), value))]);
            }
        }
    }

    /// Fields that were written, by object and writer.
    pub fn written(&self) -> Written {
        let mut written = Written::new();
        for ((subject, _), versions) in &self.history {
            let mut before: Option<&Value> = None;
            for (writer, value) in versions.values() {
                let fields = match (before, value) {
                    (_, None) => BTreeSet::from(["(gone)".to_owned()]),
                    (None, Some(_)) => BTreeSet::from(["(created)".to_owned()]),
                    (Some(old), Some(new)) => compare::changed_fields(old, new),
                };
                before = value.as_ref();
                if !writer.is_empty() && !fields.is_empty() {
                    written.entry((subject.clone(), writer.clone())).or_default().extend(fields);
                }
            }
        }
        written
    }
}

pub type SharedLog = Arc<Mutex<Log>>;

/// `Kind/namespace/name`, with the group where kinds are ambiguous.
pub fn subject_name(object: &Value) -> String {
    let gvk = object.gvk();
    let kind = if gvk.kind == "Job" { format!("Job.{}", gvk.group) } else { gvk.kind };
    match object.namespace() {
        "" => format!("{kind}/{}", object.name()),
        namespace => format!("{kind}/{namespace}/{}", object.name()),
    }
}

/// The kind that a subject's name stands for.
pub fn kind_of(subject: &str) -> Gvk {
    let kind = subject.split('/').next().unwrap();
    let api_version = match kind {
        "Job.batch.volcano.sh" => return Gvk::new("batch.volcano.sh/v1alpha1", "Job"),
        "Job.batch" => return Gvk::new("batch/v1", "Job"),
        "CronJob" => "batch/v1",
        "Ingress" | "NetworkPolicy" => "networking.k8s.io/v1",
        "PodDisruptionBudget" => "policy/v1",
        "HorizontalPodAutoscaler" => "autoscaling/v2",
        "StorageClass" => "storage.k8s.io/v1",
        "CustomResourceDefinition" => "apiextensions.k8s.io/v1",
        "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" => "apps/v1",
        "PropagationPolicy"
        | "ClusterPropagationPolicy"
        | "OverridePolicy"
        | "ClusterOverridePolicy"
        | "ClusterTaintPolicy"
        | "FederatedResourceQuota" => "policy.karmada.io/v1alpha1",
        "ResourceBinding" | "ClusterResourceBinding" => "work.karmada.io/v1alpha2",
        "Work" => "work.karmada.io/v1alpha1",
        "Cluster" => "cluster.karmada.io/v1alpha1",
        "WorkloadRebalancer" => "apps.karmada.io/v1alpha1",
        "MultiClusterService" | "MultiClusterIngress" => "networking.karmada.io/v1alpha1",
        "FederatedHPA" | "CronFederatedHPA" => "autoscaling.karmada.io/v1alpha1",
        "ServiceExport" | "ServiceImport" => "multicluster.x-k8s.io/v1alpha1",
        "Remedy" => "remedy.karmada.io/v1alpha1",
        "EndpointSlice" => "discovery.k8s.io/v1",
        "Lease" => "coordination.k8s.io/v1",
        "Command" => "bus.volcano.sh/v1alpha1",
        "JobFlow" | "JobTemplate" => "flow.volcano.sh/v1alpha1",
        "HyperJob" => "training.volcano.sh/v1alpha1",
        "Queue" | "PodGroup" => "scheduling.volcano.sh/v1beta1",
        "PriorityClass" => "scheduling.k8s.io/v1",
        "ResourceInterpreterWebhookConfiguration" | "ResourceInterpreterCustomization" => "config.karmada.io/v1alpha1",
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => "admissionregistration.k8s.io/v1",
        "Role" | "RoleBinding" | "ClusterRole" | "ClusterRoleBinding" => "rbac.authorization.k8s.io/v1",
        _ => "v1",
    };
    Gvk::new(api_version, kind)
}

/// Namespace and name of a subject.
pub fn place_of(subject: &str) -> (String, String) {
    let mut parts: Vec<&str> = subject.split('/').skip(1).collect();
    let name = parts.pop().unwrap_or_default().to_owned();
    (parts.pop().unwrap_or_default().to_owned(), name)
}

/// A client whose writes are noted. `writer` overrides what the request says of itself.
pub fn tapped(
    server: &ApiServer,
    at: &'static str,
    writer: Option<String>,
    log: SharedLog,
    down: Arc<AtomicBool>,
) -> Client {
    let router = server.router();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (router, log, writer, down) = (router.clone(), log.clone(), writer.clone(), down.clone());
        async move {
            if down.load(Ordering::SeqCst) {
                return Err("connection refused".into());
            }
            let is_write = request.method() != http::Method::GET;
            let (method, uri) = (request.method().clone(), request.uri().clone());
            let agent = request
                .headers()
                .get("user-agent")
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
                .to_owned();
            let (parts, body) = request.into_parts();
            let bytes = body.collect().await.map_err(tower::BoxError::from)?.to_bytes();
            let request = http::Request::from_parts(parts, axum::body::Body::from(bytes));
            let response = router.oneshot(request).await.map_err(tower::BoxError::from)?;
            if !is_write {
                return Ok::<_, tower::BoxError>(response);
            }
            let (parts, body) = response.into_parts();
            let bytes = body.collect().await.map_err(tower::BoxError::from)?.to_bytes();
            let answer: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
            note(&log, at, &writer.unwrap_or(agent), &method, uri.path(), parts.status.as_u16(), &answer);
            Ok(http::Response::from_parts(parts, axum::body::Body::from(bytes)))
        }
    });
    Client::new(service, "default")
}

fn note(log: &SharedLog, at: &str, writer: &str, method: &http::Method, path: &str, code: u16, answer: &Value) {
    let mut log = log.lock().unwrap();
    if answer["kind"] == "Event" {
        return;
    }
    log.lines.push(format!(
        "{at} {writer} {method} {path} {code} {}",
        if code >= 400 { answer["message"].to_string() } else { String::new() }
    ));
    log.last = Some(Instant::now());
    if code >= 400 {
        return;
    }
    let deleted_name = || {
        // A deletion that ends an object answers with a Status about it.
        let details = &answer["details"];
        let mut parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let name = parts.pop()?;
        let _plural = parts.pop();
        let namespace =
            parts.iter().position(|part| *part == "namespaces").and_then(|index| parts.get(index + 1)).copied();
        let found = log.states.iter().find(|((server, _), state)| {
            server == at && state.uid() == details["uid"].as_str().unwrap_or("-")
                || server == at
                    && state.name() == name
                    && namespace.is_none_or(|one| state.namespace() == one)
                    && details["uid"].is_null()
        });
        found.map(|(subject, _)| subject.clone())
    };
    let subject = if answer["kind"] == "Status" {
        match deleted_name() {
            Some(subject) => subject,
            None => return,
        }
    } else {
        (at.to_owned(), subject_name(answer))
    };
    let ended = method == http::Method::DELETE && (answer["kind"] == "Status" || !answer.is_deleting())
        || answer.is_deleting()
            && answer.items("/metadata/finalizers").is_empty()
            && answer.items("/spec/finalizers").is_empty();
    let known = log.states.get(&subject).cloned();
    let uid = match answer["kind"].as_str() {
        Some("Status") => known.as_ref().map(|one| one.uid().to_owned()).unwrap_or_default(),
        _ => answer.uid().to_owned(),
    };
    let version = if ended { u64::MAX } else { answer.resource_version().parse().unwrap_or(u64::MAX) };
    let newest =
        known.as_ref().is_none_or(|one| one.uid() != uid || one.resource_version().parse().unwrap_or(0) <= version);
    if ended {
        log.states.remove(&subject);
    } else if newest {
        log.states.insert(subject.clone(), answer.clone());
    }
    let value = (!ended).then(|| answer.clone());
    let versions = log.history.entry((subject, uid)).or_default();
    // A write that changed nothing answers with the version that is there.
    versions.entry(version).or_insert_with(|| (writer.to_owned(), value));
}
