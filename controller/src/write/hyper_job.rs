//! What is written for a HyperJob: its jobs, their policies, and its status.
//!
//! Jobs and policies that are there already are touched by JSON patches that test their version, or deleted by their
//! UID. Of a job that exists only replicas, minAvailable and priority class are changed. The status is
//! a merge patch: it says the version too, and waits in line with reports, behind every release.

use std::sync::Arc;

use caldera_crds::{
    hyper_job::{ReplicatedJobView, build_job, build_placement, hash_value},
    job_admission::fill_defaults,
    names::volcano::{HYPER_JOB_NAME, POLICY_HASH, REPLICATED_JOB_NAME, TEMPLATE_HASH},
    object::escape_pointer,
    workload::{WorkloadKind, submission::inherit_submitter},
};
use caldera_runtime::{
    watch::api_resource,
    write::{Body, Write},
};
use kube::api::ApiResource;
use serde_json::{Value, json};

use crate::observe::{HyperJobFacts, Key, ObjectKind};

/// What a HyperJob makes for each of its jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChildKind {
    /// Says where the job may go.
    Policy,
    /// The Volcano Job.
    Job,
}

/// One write for a HyperJob.
#[derive(Debug, Clone, PartialEq)]
pub enum HyperJobWrite {
    /// Creates a job or a policy of this name.
    Create(ChildKind, Arc<str>, Value),
    /// JSON patch of one.
    Change(ChildKind, Arc<str>, Value),
    /// Deletes the one with this UID.
    Delete(ChildKind, Arc<str>, Arc<str>),
    /// Merge patch of the status: a report, behind which no decision waits.
    Status(Value),
}

impl HyperJobWrite {
    /// What it is about: a job or a policy, or the status of the HyperJob.
    #[must_use]
    pub fn target(&self) -> Option<(ChildKind, Arc<str>)> {
        match self {
            Self::Create(kind, name, _) | Self::Change(kind, name, _) | Self::Delete(kind, name, _) => {
                Some((*kind, Arc::clone(name)))
            }
            Self::Status(_) => None,
        }
    }
}

/// What to ask the server for.
#[must_use]
pub fn hyper_job_resource() -> ApiResource {
    ObjectKind::HyperJobs.api_resource()
}

/// What to ask the server for.
#[must_use]
pub fn policy_resource() -> ApiResource {
    api_resource("policy.karmada.io", "v1alpha1", "PropagationPolicy", "propagationpolicies")
}

pub(super) fn build_hyper_job_write(key: &Key, write: &HyperJobWrite) -> Write {
    let of = |kind: &ChildKind, name: &str, body: Body| Write {
        resource: match kind {
            ChildKind::Job => WorkloadKind::VolcanoJob.api_resource(),
            ChildKind::Policy => policy_resource(),
        },
        namespace: key.namespace.to_string(),
        name: name.to_owned(),
        subresource: None,
        body,
    };
    match write {
        HyperJobWrite::Create(kind, name, object) => of(kind, name, Body::Create(object.clone())),
        HyperJobWrite::Change(kind, name, patch) => of(kind, name, Body::JsonPatch(patch.clone())),
        HyperJobWrite::Delete(kind, name, uid) => of(kind, name, Body::Delete { uid: Some(uid.to_string()) }),
        HyperJobWrite::Status(patch) => Write {
            resource: hyper_job_resource(),
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            subresource: Some("status"),
            body: Body::MergePatch(patch.clone()),
        },
    }
}

fn build_metadata(
    of: &HyperJobFacts,
    replicated: &ReplicatedJobView<'_>,
    name: &str,
    (label, hash): (&str, String),
) -> Value {
    json!({
        "namespace": &*of.key.namespace, "name": name,
        "labels": {HYPER_JOB_NAME: &*of.key.name, REPLICATED_JOB_NAME: replicated.name, label: hash},
        "ownerReferences": [{
            "apiVersion": "training.volcano.sh/v1alpha1", "kind": "HyperJob", "name": &*of.key.name, "uid": &*of.uid,
            "controller": true,
        }],
    })
}

/// A job of a HyperJob.
#[must_use]
pub fn build_child(of: &HyperJobFacts, replicated: &ReplicatedJobView<'_>, name: &str) -> Value {
    let mut job = build_job(name, replicated.template());
    job["metadata"] = build_metadata(of, replicated, name, (TEMPLATE_HASH, hash_value(replicated.template())));
    if let Some((name, submitter)) = inherit_submitter(&of.object) {
        job["metadata"]["annotations"] = json!({name: submitter});
    }
    job
}

/// Its policy, as the peer makes it, but that the clusters that are named are preferred.
#[must_use]
pub fn build_policy(of: &HyperJobFacts, replicated: &ReplicatedJobView<'_>, name: &str, placement: &Value) -> Value {
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": build_metadata(of, replicated, name, (POLICY_HASH, hash_value(placement))),
        "spec": {
            "propagateDeps": true, "placement": placement,
            "resourceSelectors": [{
                "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": &*of.key.namespace, "name": name,
            }],
        },
    })
}

/// The label of a job that is like its template.
#[must_use]
pub fn hash_template(replicated: &ReplicatedJobView<'_>) -> String {
    hash_value(replicated.template())
}

/// The label of a policy that has this placement.
#[must_use]
pub fn hash_placement(placement: &Value) -> String {
    hash_value(placement)
}

/// Where the jobs of a template may go.
#[must_use]
pub fn placement_of(of: &HyperJobFacts, replicated: &ReplicatedJobView<'_>) -> Value {
    build_placement(&of.object, replicated)
}

fn begin_patch(resource_version: &str, label: &str, hash: String) -> Vec<Value> {
    let path = format!("/metadata/labels/{}", escape_pointer(label));
    vec![
        json!({"op": "test", "path": "/metadata/resourceVersion", "value": resource_version}),
        json!({"op": "add", "path": path, "value": hash}),
    ]
}

/// Brings a job to its template in what Volcano lets change: the pods of its tasks, how many are needed, its priority.
/// What is needed of a task follows from its pods where the template does not say it.
#[must_use]
pub fn patch_child(resource_version: &str, name: &str, template: &Value) -> Value {
    let mut job = build_job(name, template);
    drop(fill_defaults(&mut job));
    let mut steps = begin_patch(resource_version, TEMPLATE_HASH, hash_value(template));
    let spec = &job["spec"];
    for (at, task) in spec["tasks"].as_array().into_iter().flatten().enumerate() {
        for field in ["replicas", "minAvailable"].into_iter().filter(|field| !task[*field].is_null()) {
            let path = format!("/spec/tasks/{at}/{field}");
            steps.push(json!({"op": "add", "path": path, "value": task[field]}));
        }
    }
    steps.push(json!({"op": "add", "path": "/spec/minAvailable", "value": spec["minAvailable"]}));
    let class = spec["priorityClassName"].as_str().unwrap_or_default();
    steps.push(json!({"op": "add", "path": "/spec/priorityClassName", "value": class}));
    steps.into()
}

/// Brings a policy to its placement.
#[must_use]
pub fn patch_policy(resource_version: &str, placement: &Value) -> Value {
    let mut steps = begin_patch(resource_version, POLICY_HASH, hash_value(placement));
    steps.push(json!({"op": "add", "path": "/spec/placement", "value": placement}));
    steps.into()
}
