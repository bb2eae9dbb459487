//! A small stand-in for Karmada and for the members' Volcano, for paused time: no sockets, no admission of its own.
//!
//! It knows one policy (Divided, Aggregated), Volcano Jobs and Deployments (`services`). What it does is what our parts
//! depend on: it makes a binding for each workload and rewrites it from the policy now and then, a Work for each
//! target, runs what the Works say as whole gangs for a virtual time (`members`), and brings statuses back through our
//! interpreter. It is driven from outside, and all its requests succeed or are made again with the next step. In some
//! worlds its way to the members has faults (`links`).

use std::collections::BTreeMap;

use axum::{Router, body::Body};
use base64::{Engine, engine::general_purpose::STANDARD};
use caldera_crds::names::karmada::BINDING_ID;
use caldera_runtime::{
    watch::api_resource,
    write::{self, Write},
};
use http_body_util::BodyExt;
use kube::{Client, api::ApiResource};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};
use tower::ServiceExt;

use crate::{
    history::History,
    hostile::is_hostile,
    workloads::{Amount, is_service, name_binding, name_work},
};

mod links;
mod members;
mod services;

pub use links::Links;

pub const NAMESPACE: &str = "team";

pub fn jobs() -> ApiResource {
    api_resource("batch.volcano.sh", "v1alpha1", "Job", "jobs")
}

pub fn commands() -> ApiResource {
    api_resource("bus.volcano.sh", "v1alpha1", "Command", "commands")
}

pub fn bindings() -> ApiResource {
    api_resource("work.karmada.io", "v1alpha2", "ResourceBinding", "resourcebindings")
}

pub fn works() -> ApiResource {
    api_resource("work.karmada.io", "v1alpha1", "Work", "works")
}

pub fn pod_groups() -> ApiResource {
    api_resource("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups")
}

/// After a Work that was refused.
const AGAIN: Duration = Duration::from_secs(3);

/// Cluster, and UID and name of the job.
type CopyKey = (String, String, String);

/// A job's copy in a member.
#[derive(Debug, Default)]
struct Copy {
    manifest: Value,
    /// Pods, the nodes that they are on, and what they take there.
    pods: BTreeMap<String, (String, Amount)>,
    started: Option<Instant>,
    finished: bool,
}

pub struct StandIn {
    host: Client,
    members: BTreeMap<String, Client>,
    webhook: Router,
    history: History,
    copies: BTreeMap<CopyKey, Copy>,
    /// What goes wrong on the way to members, if anything does.
    pub links: Option<Links>,
    /// The most pods that each job ever had, by UID.
    most_pods: BTreeMap<String, u64>,
    /// What each node has, by cluster.
    pub nodes: BTreeMap<String, BTreeMap<String, Amount>>,
    /// The members' and the job's status that the interpreter had nothing to add to, by job.
    aggregated: BTreeMap<String, (Vec<Value>, Value)>,
    seen: u64,
    /// Bindings of which a Work was refused, and when: those of the hostile, and of Deployments whose new template is
    /// not granted. They are not tried at each step.
    refused: BTreeMap<String, Instant>,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub fn write_to(resource: ApiResource, namespace: &str, name: &str, body: write::Body) -> Write {
    Write { resource, namespace: namespace.to_owned(), name: name.to_owned(), subresource: None, body }
}

impl StandIn {
    pub fn new(host: Client, members: BTreeMap<String, Client>, webhook: Router, history: History) -> Self {
        let (copies, nodes) = (BTreeMap::new(), BTreeMap::new());
        Self {
            host,
            members,
            webhook,
            history,
            copies,
            nodes,
            aggregated: BTreeMap::new(),
            seen: 0,
            refused: BTreeMap::new(),
            links: None,
            most_pods: BTreeMap::new(),
        }
    }

    /// Does all that is to be done now. `pass`: also what Karmada's detector rewrites at each of its passes.
    pub async fn step(&mut self, pass: bool) {
        let due = self
            .copies
            .iter()
            .any(|(key, copy)| copy.started.is_some() && !copy.finished && members::is_over(&key.0, copy));
        let changes = self.history.changes();
        let due = due || self.refused.values().any(|at| at.elapsed() >= AGAIN);
        self.refused.retain(|_, at| at.elapsed() < AGAIN);
        let due = self.links.as_mut().is_some_and(Links::is_due) || due;
        if changes == self.seen && !due && !pass {
            return;
        }
        self.seen = changes;
        let mut jobs = self.history.all("host", "Job");
        jobs.extend(self.history.all("host", "Deployment"));
        let bindings = self.history.all("host", "ResourceBinding");
        let works = self.history.all("host", "Work");
        let mut failed = self.detect(&jobs, &bindings, pass).await.is_err();
        failed |= self.dispatch(&jobs, &bindings, &works).await.is_err();
        self.run(&bindings, &works).await;
        self.tell_applied(&works).await;
        self.must_not_run_twice(&jobs, &bindings);
        failed |= self.report(&jobs, &bindings).await.is_err();
        self.collect(&jobs, &bindings, &works).await;
        if failed {
            self.seen = 0;
        }
    }

    /// A binding for each job; it is rewritten from the policy at each pass.
    async fn detect(&self, jobs: &[Value], bindings: &[Value], pass: bool) -> Result<(), String> {
        let mut failed = Ok(());
        for job in jobs {
            let name = name_binding(job);
            let known = bindings.iter().find(|binding| binding["metadata"]["name"] == name.as_str());
            let body = match known {
                None => match self.binding(job, &name).await {
                    Ok(binding) => write::Body::Create(binding),
                    Err(error) => {
                        failed = Err(error);
                        continue;
                    }
                },
                Some(known) => {
                    let mut spec = json!({});
                    if pass {
                        spec["schedulerName"] = "default-scheduler".into();
                    }
                    match self.interpret("InterpretReplica", job, json!({})).await {
                        Ok(answer) => {
                            for field in ["replicas", "replicaRequirements"] {
                                // Of a job that changes with a policy alone.
                                let follows = field == "replicas" || is_service(job);
                                if follows && answer[field] != known["spec"][field] {
                                    spec[field] = answer[field].clone();
                                }
                            }
                        }
                        Err(error) => failed = Err(error),
                    }
                    if spec == json!({}) {
                        continue;
                    }
                    write::Body::MergePatch(json!({"spec": spec}))
                }
            };
            if let Err(failure) =
                write::execute_write(&self.host, &write_to(self::bindings(), NAMESPACE, &name, body)).await
            {
                failed = Err(failure.to_string());
            }
        }
        failed
    }

    async fn binding(&self, job: &Value, name: &str) -> Result<Value, String> {
        let answer = self.interpret("InterpretReplica", job, json!({})).await?;
        let (metadata, (api_version, kind)) = (&job["metadata"], kind_of(job));
        let mut binding = json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
            "metadata": {
                "name": name, "namespace": NAMESPACE,
                "annotations": {"propagationpolicy.karmada.io/name": "policy"},
                // Karmada throws one.
                "labels": {BINDING_ID: metadata["uid"]},
                "ownerReferences": [{
                    "apiVersion": api_version, "kind": kind, "name": metadata["name"], "uid": metadata["uid"],
                    "controller": true,
                }],
            },
            "spec": {
                "resource": {
                    "apiVersion": api_version, "kind": kind, "namespace": NAMESPACE, "name": metadata["name"],
                    "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"],
                },
                "replicas": answer["replicas"], "schedulerName": "default-scheduler",
                "placement": {"replicaScheduling": {
                    "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated",
                }},
            },
        });
        if answer["replicaRequirements"].is_object() {
            binding["spec"]["replicaRequirements"] = answer["replicaRequirements"].clone();
        }
        // The policy of these is suspended by its owner.
        if metadata["annotations"]["simulation/suspended"] == "true" {
            binding["spec"]["suspension"] = json!({"scheduling": true});
        }
        Ok(binding)
    }

    /// A Work for each target, as ReviseReplica makes it.
    async fn dispatch(&mut self, jobs: &[Value], bindings: &[Value], works: &[Value]) -> Result<(), String> {
        let mut failed = Ok(());
        for binding in bindings {
            let Some(job) = jobs.iter().find(|job| job["metadata"]["uid"] == binding["spec"]["resource"]["uid"]) else {
                continue;
            };
            let name = text(&binding["metadata"]["name"]);
            if self.refused.get(&name).is_some_and(|at| at.elapsed() < AGAIN) {
                continue;
            }
            let targets = binding["spec"]["clusters"].as_array().cloned().unwrap_or_default();
            for target in &targets {
                let namespace = format!("karmada-es-{}", text(&target["name"]));
                let work_name = name_work(&name);
                let is_it = |work: &&Value| {
                    let metadata = &work["metadata"];
                    metadata["namespace"] == namespace.as_str() && metadata["name"] == work_name.as_str()
                };
                let known = works.iter().find(is_it);
                let replicas = target["replicas"].to_string();
                // A Volcano Job's does not change.
                let template = if is_service(job) { job["spec"]["template"].to_string() } else { String::new() };
                let is_right = |work: &Value| {
                    let annotations = &work["metadata"]["annotations"];
                    annotations["simulation/replicas"] == replicas.as_str()
                        && annotations["simulation/template"] == template.as_str()
                };
                if known.is_some_and(is_right) {
                    continue;
                }
                let copy = match self.revised(job, &target["replicas"]).await {
                    Ok(copy) => copy,
                    Err(error) => {
                        failed = Err(error);
                        continue;
                    }
                };
                let annotations = json!({
                    "resourcebinding.karmada.io/namespace": NAMESPACE, "resourcebinding.karmada.io/name": name,
                    "simulation/replicas": replicas, "simulation/uid": job["metadata"]["uid"],
                    "simulation/template": template,
                });
                let mut work = json!({
                    "metadata": {"annotations": annotations}, "spec": {"workload": {"manifests": [copy]}},
                });
                let body = if known.is_some() {
                    write::Body::MergePatch(work)
                } else {
                    work["apiVersion"] = "work.karmada.io/v1alpha1".into();
                    work["kind"] = "Work".into();
                    work["metadata"]["name"] = work_name.as_str().into();
                    work["metadata"]["namespace"] = namespace.as_str().into();
                    write::Body::Create(work)
                };
                if let Err(failure) =
                    write::execute_write(&self.host, &write_to(self::works(), &namespace, &work_name, body)).await
                {
                    if is_hostile(&name) || is_service(job) {
                        self.refused.insert(name.clone(), Instant::now());
                    } else {
                        failed = Err(failure.to_string());
                    }
                }
            }
        }
        failed
    }

    async fn revised(&self, job: &Value, replicas: &Value) -> Result<Value, String> {
        let mut copy = job.clone();
        copy.as_object_mut().unwrap().remove("status");
        let metadata = copy["metadata"].as_object_mut().unwrap();
        for field in ["resourceVersion", "uid", "creationTimestamp", "generation"] {
            metadata.remove(field);
        }
        if is_service(job) {
            copy["spec"]["replicas"] = replicas.clone();
            return Ok(copy);
        }
        let answer = self.interpret("ReviseReplica", &copy, json!({"replicas": replicas})).await?;
        Ok(patched(&copy, &answer))
    }

    /// Statuses: from the copies to the binding, and through the interpreter to the job.
    async fn report(&mut self, jobs: &[Value], bindings: &[Value]) -> Result<(), String> {
        let mut failed = Ok(());
        for binding in bindings {
            let uid = text(&binding["spec"]["resource"]["uid"]);
            let Some(job) = jobs.iter().find(|job| job["metadata"]["uid"] == uid.as_str()) else { continue };
            let items = self.list_items(binding);
            // Of what has no copy any more Karmada says that once.
            if items.is_empty() && binding["status"]["aggregatedStatus"].as_array().is_none_or(Vec::is_empty) {
                continue;
            }
            if binding["status"]["aggregatedStatus"] != json!(items) {
                let name = text(&binding["metadata"]["name"]);
                let body = write::Body::MergePatch(json!({"status": {"aggregatedStatus": items}}));
                let write = Write { subresource: Some("status"), ..write_to(self::bindings(), NAMESPACE, &name, body) };
                if let Err(failure) = write::execute_write(&self.host, &write).await {
                    failed = Err(failure.to_string());
                }
            }
            let known = (items.clone(), job["status"].clone());
            if self.aggregated.get(&uid) == Some(&known) {
                continue;
            }
            if is_service(job) {
                if self.report_service(job, &items).await.is_err() {
                    failed = Err("a Deployment's status was not written".into());
                }
                continue;
            }
            let answer = match self.interpret("AggregateStatus", job, json!({"aggregatedStatus": items})).await {
                Ok(answer) => answer,
                Err(error) => {
                    failed = Err(error);
                    continue;
                }
            };
            let new = patched(job, &answer)["status"].clone();
            if new == job["status"] {
                self.aggregated.insert(uid, known);
                continue;
            }
            // What the hostile say of their own clusters is not so.
            if new["state"]["phase"] == "Completed" && !is_hostile(text(&job["metadata"]["name"]).as_str()) {
                self.must_be_complete(binding);
            }
            let name = text(&job["metadata"]["name"]);
            let version = &job["metadata"]["resourceVersion"];
            let patch = json!([
                {"op": "test", "path": "/metadata/resourceVersion", "value": version},
                {"op": "add", "path": "/status", "value": new},
            ]);
            let write = Write {
                subresource: Some("status"),
                ..write_to(self::jobs(), NAMESPACE, &name, write::Body::JsonPatch(patch))
            };
            if let Err(failure) = write::execute_write(&self.host, &write).await {
                failed = Err(failure.to_string());
            }
        }
        failed
    }

    /// Never Completed while a member runs.
    fn must_be_complete(&self, binding: &Value) {
        for target in binding["spec"]["clusters"].as_array().into_iter().flatten() {
            let key = (
                text(&target["name"]),
                text(&binding["spec"]["resource"]["uid"]),
                text(&binding["spec"]["resource"]["name"]),
            );
            let finished = self.copies.get(&key).is_some_and(|copy| copy.finished);
            assert!(finished, "{} is called Completed while {} is not done: {binding}", key.2, key.0);
        }
    }

    /// What a garbage collector and Karmada's finalizers do: bindings of deleted jobs, Works of deleted bindings or of
    /// former targets, and what these ran.
    async fn collect(&mut self, jobs: &[Value], bindings: &[Value], works: &[Value]) {
        let job_there = |uid: &Value| jobs.iter().any(|job| job["metadata"]["uid"] == *uid);
        for binding in bindings.iter().filter(|binding| !job_there(&binding["spec"]["resource"]["uid"])) {
            self.delete(self::bindings(), binding).await;
        }
        for group in self.history.all("host", "PodGroup") {
            if !job_there(&group["metadata"]["ownerReferences"][0]["uid"]) {
                self.delete(pod_groups(), &group).await;
            }
        }
        for work in works {
            let key = key_of(work);
            // Karmada deletes the copy before the Work.
            if links::is_wanted(&key, bindings) || self.links.as_ref().is_some_and(|links| links.is_cut(&key.0)) {
                continue;
            }
            self.delete(self::works(), work).await;
            if let Some(links) = &mut self.links {
                links.forget(&key);
            }
            if let Some(copy) = self.copies.remove(&key) {
                for pod in copy.pods.keys() {
                    self.delete_pod(&key.0, pod).await;
                }
            }
        }
    }

    async fn delete(&self, resource: ApiResource, object: &Value) {
        let metadata = &object["metadata"];
        let body = write::Body::Delete { uid: metadata["uid"].as_str().map(ToOwned::to_owned) };
        let write = write_to(resource, &text(&metadata["namespace"]), &text(&metadata["name"]), body);
        let _ = write::execute_write(&self.host, &write).await;
    }

    /// Karmada knows Deployments by itself, and asks our interpreter of Volcano Jobs.
    async fn interpret(&self, operation: &str, job: &Value, more: Value) -> Result<Value, String> {
        if is_service(job) {
            return Ok(services::interpret(operation, job));
        }
        let mut object = job.clone();
        object["apiVersion"] = "batch.volcano.sh/v1alpha1".into();
        object["kind"] = "Job".into();
        let mut request = json!({
            "uid": "u", "kind": {"group": "batch.volcano.sh", "version": "v1alpha1", "kind": "Job"},
            "name": job["metadata"]["name"], "namespace": NAMESPACE, "operation": operation, "object": object,
        });
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let body = Body::from(json!({"request": request}).to_string());
        let request = http::Request::post("/interpreter").body(body).unwrap();
        let answer = self.webhook.clone().oneshot(request).await.map_err(|error| error.to_string())?;
        let status = answer.status();
        let body = answer.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
        let answer: Value = serde_json::from_slice(&body).map_err(|_| format!("the interpreter says {status}"))?;
        let response = answer["response"].clone();
        if response["successful"] == true { Ok(response) } else { Err(response.to_string()) }
    }
}

/// The copy that a Work makes.
fn key_of(work: &Value) -> CopyKey {
    let (metadata, manifest) = (&work["metadata"], &work["spec"]["workload"]["manifests"][0]);
    let cluster = text(&metadata["namespace"]).replace("karmada-es-", "");
    (cluster, text(&metadata["annotations"]["simulation/uid"]), text(&manifest["metadata"]["name"]))
}

fn kind_of(workload: &Value) -> (&'static str, &'static str) {
    if is_service(workload) { ("apps/v1", "Deployment") } else { ("batch.volcano.sh/v1alpha1", "Job") }
}

fn status(copy: &Copy) -> Value {
    if is_service(&copy.manifest) {
        return services::status(copy);
    }
    let pods = copy.pods.len();
    let phase = match (copy.started, copy.finished) {
        (_, true) => "Completed",
        (Some(_), false) => "Running",
        (None, false) => "Pending",
    };
    let count = |is: bool| if is { pods } else { 0 };
    let mut tasks: BTreeMap<String, Value> = BTreeMap::new();
    for task in copy.manifest["spec"]["tasks"].as_array().unwrap() {
        let phase = if copy.finished { "Succeeded" } else { "Running" };
        let prefix = format!("{}-{}-", text(&copy.manifest["metadata"]["name"]), text(&task["name"]));
        let pods = copy.pods.keys().filter(|pod| pod.starts_with(&prefix)).count();
        if pods > 0 {
            tasks.insert(text(&task["name"]), json!({"phase": {phase: pods}}));
        }
    }
    json!({
        "state": {"phase": phase, "lastTransitionTime": "2026-01-01T00:00:00Z"},
        "minAvailable": copy.manifest["spec"]["minAvailable"],
        "running": count(!copy.finished), "succeeded": count(copy.finished), "taskStatusCount": tasks,
    })
}

fn patched(object: &Value, answer: &Value) -> Value {
    let mut object = object.clone();
    if let Some(patch) = answer["patch"].as_str() {
        let patch: json_patch::Patch = serde_json::from_slice(&STANDARD.decode(patch).unwrap()).unwrap();
        json_patch::patch(&mut object, &patch).unwrap();
    }
    object
}
