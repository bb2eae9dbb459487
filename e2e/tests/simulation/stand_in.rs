//! A small stand-in for Karmada and for the members' Volcano, for paused time: no sockets, no admission of its own.
//!
//! It knows one policy (Divided, Aggregated) and Volcano Jobs. What it does is what our parts depend on: it makes a
//! binding for each job and rewrites it from the policy now and then, a Work for each target, runs what the Works say
//! as whole gangs for a virtual time, and brings statuses back through our interpreter. It is driven from outside, and
//! all its requests succeed or are made again with the next step.

use std::collections::BTreeMap;

use axum::{Router, body::Body};
use base64::{Engine, engine::general_purpose::STANDARD};
use caldera_crds::names::karmada::BINDING_ID;
use caldera_runtime::{
    watch::api_resource,
    write::{self, Failure, Write},
};
use http_body_util::BodyExt;
use kube::{Client, api::ApiResource};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};
use tower::ServiceExt;

use crate::{history::History, hostile::is_hostile};

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

fn pods() -> ApiResource {
    api_resource("", "v1", "Pod", "pods")
}

/// After a Work that was refused, of a hostile tenant's binding.
const AGAIN: Duration = Duration::from_secs(3);

/// A job's copy in a member.
#[derive(Debug, Default)]
struct Copy {
    manifest: Value,
    /// Pods, and the nodes that they are on.
    pods: BTreeMap<String, (String, u64)>,
    started: Option<Instant>,
    finished: bool,
}

pub struct StandIn {
    host: Client,
    members: BTreeMap<String, Client>,
    webhook: Router,
    history: History,
    /// By cluster and job (UID and name).
    copies: BTreeMap<(String, String, String), Copy>,
    /// Cores of each node, by cluster.
    pub nodes: BTreeMap<String, BTreeMap<String, u64>>,
    /// The members' and the job's status that the interpreter had nothing to add to, by job.
    aggregated: BTreeMap<String, (Vec<Value>, Value)>,
    seen: u64,
    /// Hostile bindings of which a Work was refused, and when: they are not tried at each step.
    refused: BTreeMap<String, Instant>,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub fn write_to(resource: ApiResource, namespace: &str, name: &str, body: write::Body) -> Write {
    Write { resource, namespace: namespace.to_owned(), name: name.to_owned(), subresource: None, body }
}

fn cores(task: &Value) -> u64 {
    text(&task["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]).parse().unwrap()
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
        }
    }

    /// Does all that is to be done now. `pass`: also what Karmada's detector rewrites at each of its passes.
    pub async fn step(&mut self, pass: bool) {
        let due =
            self.copies.iter().any(|(key, copy)| copy.started.is_some() && !copy.finished && is_over(&key.0, copy));
        let changes = self.history.changes();
        let due = due || self.refused.values().any(|at| at.elapsed() >= AGAIN);
        self.refused.retain(|_, at| at.elapsed() < AGAIN);
        if changes == self.seen && !due && !pass {
            return;
        }
        self.seen = changes;
        let jobs = self.history.all("host", "Job");
        let bindings = self.history.all("host", "ResourceBinding");
        let works = self.history.all("host", "Work");
        let mut failed = self.detect(&jobs, &bindings, pass).await.is_err();
        failed |= self.dispatch(&jobs, &bindings, &works).await.is_err();
        self.run(&works).await;
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
            let name = format!("{}-job", text(&job["metadata"]["name"]));
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
                    let replicas = self.interpret("InterpretReplica", job, json!({})).await;
                    match replicas.map(|answer| answer["replicas"].clone()) {
                        Ok(replicas) if replicas != known["spec"]["replicas"] => spec["replicas"] = replicas,
                        Ok(_) => {}
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
        let metadata = &job["metadata"];
        let mut binding = json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
            "metadata": {
                "name": name, "namespace": NAMESPACE,
                "annotations": {"propagationpolicy.karmada.io/name": "policy"},
                // Karmada throws one.
                "labels": {BINDING_ID: metadata["uid"]},
                "ownerReferences": [{
                    "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": metadata["name"],
                    "uid": metadata["uid"], "controller": true,
                }],
            },
            "spec": {
                "resource": {
                    "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": NAMESPACE,
                    "name": metadata["name"], "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"],
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
                let is_it = |work: &&Value| {
                    work["metadata"]["namespace"] == namespace.as_str() && work["metadata"]["name"] == name.as_str()
                };
                let known = works.iter().find(is_it);
                let replicas = target["replicas"].to_string();
                let is_right =
                    |work: &Value| work["metadata"]["annotations"]["simulation/replicas"] == replicas.as_str();
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
                });
                let mut work = json!({
                    "metadata": {"annotations": annotations}, "spec": {"workload": {"manifests": [copy]}},
                });
                let body = if known.is_some() {
                    write::Body::MergePatch(work)
                } else {
                    work["apiVersion"] = "work.karmada.io/v1alpha1".into();
                    work["kind"] = "Work".into();
                    work["metadata"]["name"] = name.as_str().into();
                    work["metadata"]["namespace"] = namespace.as_str().into();
                    write::Body::Create(work)
                };
                if let Err(failure) =
                    write::execute_write(&self.host, &write_to(self::works(), &namespace, &name, body)).await
                {
                    if is_hostile(&name) {
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
        let answer = self.interpret("ReviseReplica", &copy, json!({"replicas": replicas})).await?;
        Ok(patched(&copy, &answer))
    }

    /// What the members' job controllers, schedulers and kubelets do.
    async fn run(&mut self, works: &[Value]) {
        for work in works {
            let manifest = &work["spec"]["workload"]["manifests"][0];
            let cluster = text(&work["metadata"]["namespace"]).replace("karmada-es-", "");
            let uid = text(&work["metadata"]["annotations"]["simulation/uid"]);
            let copy = self.copies.entry((cluster, uid, text(&manifest["metadata"]["name"]))).or_default();
            copy.manifest = manifest.clone();
        }
        // UIDs are random: their order must not matter.
        let mut keys: Vec<_> = self.copies.keys().cloned().collect();
        keys.sort_by(|a, b| (&a.0, &a.2).cmp(&(&b.0, &b.2)));
        for key in keys {
            if !self.copies[&key].finished {
                self.start_pods(&key).await;
                self.finish(&key).await;
            }
        }
    }

    /// Starts the copy's missing pods if there is room for all of them.
    async fn start_pods(&mut self, key: &(String, String, String)) {
        let copy = &self.copies[key];
        let mut missing = Vec::new();
        let tasks = copy.manifest["spec"]["tasks"].as_array().into_iter().flatten();
        // More than there is room for anywhere: somebody forged it.
        if tasks.filter_map(|task| task["replicas"].as_u64()).sum::<u64>() > 100 {
            return;
        }
        for task in copy.manifest["spec"]["tasks"].as_array().unwrap() {
            for index in 0..task["replicas"].as_u64().unwrap() {
                let name = format!("{}-{}-{index}", key.2, text(&task["name"]));
                if !copy.pods.contains_key(&name) {
                    missing.push((cores(task), name, task.clone()));
                }
            }
        }
        missing.sort_by_key(|(cores, name, _)| (std::cmp::Reverse(*cores), name.clone()));
        let mut free = self.nodes[&key.0].clone();
        for (other, copy) in &self.copies {
            if other.0 == key.0 && !copy.finished {
                for (node, cores) in copy.pods.values() {
                    *free.get_mut(node).unwrap() -= cores;
                }
            }
        }
        let mut placed = Vec::new();
        for (cores, name, task) in missing {
            let Some((node, left)) = free.iter_mut().find(|(_, left)| **left >= cores) else { return };
            *left -= cores;
            placed.push((name, node.clone(), cores, task));
        }
        for (name, node, cores, task) in placed {
            let mut spec = task["template"]["spec"].clone();
            spec["nodeName"] = node.as_str().into();
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": name, "namespace": NAMESPACE, "annotations": {"volcano.sh/task-spec": task["name"]},
                    "ownerReferences": [{
                        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": key.2, "uid": key.1,
                        "controller": true,
                    }],
                },
                "spec": spec,
            });
            self.member(&key.0, &name, None, write::Body::Create(pod)).await;
            self.pod_phase(&key.0, &name, "Running").await;
            let copy = self.copies.get_mut(key).unwrap();
            copy.pods.insert(name, (node, cores));
            copy.started.get_or_insert_with(Instant::now);
        }
    }

    async fn finish(&mut self, key: &(String, String, String)) {
        if is_over(&key.0, &self.copies[key]) {
            let names: Vec<String> = self.copies[key].pods.keys().cloned().collect();
            for name in names {
                self.pod_phase(&key.0, &name, "Succeeded").await;
            }
            self.copies.get_mut(key).unwrap().finished = true;
        }
    }

    async fn pod_phase(&self, cluster: &str, name: &str, phase: &str) {
        let status = json!({"status": {"phase": phase}});
        self.member(cluster, name, Some("status"), write::Body::MergePatch(status)).await;
    }

    async fn member(&self, cluster: &str, pod: &str, subresource: Option<&'static str>, body: write::Body) {
        let write = Write { subresource, ..write_to(pods(), NAMESPACE, pod, body) };
        match write::execute_write(&self.members[cluster], &write).await {
            Ok(_) | Err(Failure::Gone(_)) => {}
            // Of a job that its tenant made anew while the old one's copy is there.
            Err(Failure::Exists(_)) if is_hostile(pod) => {}
            Err(failure) => panic!("{cluster} {pod}: {failure}"),
        }
    }

    /// Statuses: from the copies to the binding, and through the interpreter to the job.
    async fn report(&mut self, jobs: &[Value], bindings: &[Value]) -> Result<(), String> {
        let mut failed = Ok(());
        for binding in bindings {
            let uid = text(&binding["spec"]["resource"]["uid"]);
            let Some(job) = jobs.iter().find(|job| job["metadata"]["uid"] == uid.as_str()) else { continue };
            let of_it = self.copies.iter().filter(|(key, _)| key.1 == uid);
            let items: Vec<Value> = of_it
                .map(|(key, copy)| json!({"clusterName": key.0, "applied": true, "status": status(copy)}))
                .collect();
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
            let cluster = text(&work["metadata"]["namespace"]).replace("karmada-es-", "");
            let uid = &work["metadata"]["annotations"]["simulation/uid"];
            let is_target = |binding: &&Value| {
                let mut targets = binding["spec"]["clusters"].as_array().into_iter().flatten();
                binding["spec"]["resource"]["uid"] == *uid && targets.any(|target| target["name"] == cluster.as_str())
            };
            if bindings.iter().any(|binding| is_target(&binding)) {
                continue;
            }
            self.delete(self::works(), work).await;
            let key = (cluster, text(uid), text(&work["spec"]["workload"]["manifests"][0]["metadata"]["name"]));
            if let Some(copy) = self.copies.remove(&key) {
                for pod in copy.pods.keys() {
                    let write = write_to(pods(), NAMESPACE, pod, write::Body::Delete { uid: None });
                    let deleted = write::execute_write(&self.members[&key.0], &write).await;
                    let uid = deleted.ok().map(|pod| text(&pod["metadata"]["uid"])).filter(|uid| !uid.is_empty());
                    if let Some(uid) = uid {
                        self.member(&key.0, pod, None, write::Body::DeleteNow { uid }).await;
                    }
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

    async fn interpret(&self, operation: &str, job: &Value, more: Value) -> Result<Value, String> {
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

/// Copies of one job do not end together.
fn is_over(cluster: &str, copy: &Copy) -> bool {
    let more = if cluster == "m2" { 4 } else { 0 };
    let seconds: u64 = text(&copy.manifest["metadata"]["annotations"]["simulation/seconds"]).parse().unwrap_or(1);
    copy.started.is_some_and(|at| at.elapsed() >= Duration::from_secs(seconds + more))
}

fn status(copy: &Copy) -> Value {
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
