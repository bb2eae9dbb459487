//! A small stand-in for Karmada and for the members' Volcano, for paused time: no sockets, no admission of its own.
//!
//! It knows one policy (Divided, Aggregated), Volcano Jobs and Deployments (`services`). What it does is what our parts
//! depend on: it makes a binding for each workload and rewrites it from the policy now and then, a Work for each
//! target (`dispatch`), runs what the Works say as whole gangs for a virtual time (`members`), and brings statuses back
//! through our interpreter (`report`). It is driven from outside, and all its requests succeed or are made again with
//! the next step. In some worlds its way to the members has faults (`links`), or its host comes back from a backup
//! (`restart`).

use std::collections::BTreeMap;

use axum::Router;
use caldera_runtime::{
    watch::api_resource,
    write::{self, Write},
};
use kube::{Client, api::ApiResource};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use crate::{
    history::History,
    workloads::{Amount, is_service, name_binding},
};

mod dispatch;
mod interpreter;
mod links;
mod members;
mod report;
mod restart;
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
    /// Karmada applied a Work of it, and reads its status.
    is_known: bool,
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
            self.delete_copy(&key).await;
        }
    }

    async fn delete(&self, resource: ApiResource, object: &Value) {
        let metadata = &object["metadata"];
        let body = write::Body::Delete { uid: metadata["uid"].as_str().map(ToOwned::to_owned) };
        let write = write_to(resource, &text(&metadata["namespace"]), &text(&metadata["name"]), body);
        let _ = write::execute_write(&self.host, &write).await;
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
