//! What a HyperJob is made of: the Volcano Jobs that are made of its templates, and their policies.
//!
//! Rule: volcano-global `pkg/reconciler/hyperjob`: a job is named `{hyperjob}-{replicatedjob}-{index}`, and its policy
//! is named as it. Everything is read from the object as it is written: what our types do not know goes into the jobs,
//! too.

mod accelerators;
mod admission;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use crate::{names::volcano::DEFAULT_QUEUE, published::hash_fnv1a};

pub use admission::{
    MOST_CHILDREN, MOST_REPLICATED_JOBS, list_creation_refusals, list_ignored_fields, list_update_refusals,
};

/// A replicated job as its HyperJob has it.
#[derive(Debug, Clone, Copy)]
pub struct ReplicatedJobView<'a> {
    /// Unique in the HyperJob.
    pub name: &'a str,
    /// Jobs; 1 where nothing is said.
    pub replicas: i64,
    /// The whole of it.
    object: &'a Value,
}

impl<'a> ReplicatedJobView<'a> {
    /// The spec of its jobs.
    #[must_use]
    pub fn template(&self) -> &'a Value {
        &self.object["templateSpec"]
    }

    /// The queue that its jobs name; nothing where that is the default's.
    #[must_use]
    pub fn queue(&self) -> &'a str {
        self.template()["queue"].as_str().filter(|queue| *queue != DEFAULT_QUEUE).unwrap_or_default()
    }

    /// Clusters that are preferred.
    #[must_use]
    pub fn list_preferred_clusters(&self) -> Vec<&'a str> {
        self.object["clusterNames"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// Clusters that each of its jobs may be split over: one, as the peer has it, unless its mode is `auto`.
    fn max_clusters_per_job(&self, max_domains: Option<i64>) -> Option<i64> {
        if self.object["splitPolicy"]["mode"] == "auto" { max_domains } else { Some(1) }
    }
}

/// What a HyperJob replicates.
pub fn list_replicated_jobs(hyper_job: &Value) -> impl Iterator<Item = ReplicatedJobView<'_>> {
    hyper_job["spec"]["replicatedJobs"].as_array().into_iter().flatten().map(|object| ReplicatedJobView {
        name: object["name"].as_str().unwrap_or_default(),
        replicas: object["replicas"].as_i64().unwrap_or(1),
        object,
    })
}

/// Jobs that are needed: all, unless it says fewer.
#[must_use]
pub fn count_needed(hyper_job: &Value, children: i64) -> i64 {
    let said = hyper_job["spec"]["minAvailable"].as_i64().filter(|least| *least > 0);
    said.unwrap_or(children).min(children)
}

/// The name of a job, and of its policy.
#[must_use]
pub fn name_child(hyper_job: &str, replicated: &str, index: i64) -> String {
    format!("{hyper_job}-{replicated}-{index}")
}

/// The job of this name, without who owns it.
#[must_use]
pub fn build_job(name: &str, template: &Value) -> Value {
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name}, "spec": template,
    })
}

/// Where the jobs of a template may go. Karmada tries the terms of `clusterAffinities` one after the other: the
/// clusters that are named are preferred, and no job waits for them where others have room.
#[must_use]
pub fn build_placement(hyper_job: &Value, replicated: &ReplicatedJobView<'_>) -> Value {
    let mut placement = json!({
        "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"},
    });
    let names = replicated.list_preferred_clusters();
    if !names.is_empty() {
        placement["clusterAffinities"] =
            json!([{"affinityName": "preferred", "clusterNames": names}, {"affinityName": "any"}]);
    }
    let max_domains = hyper_job["spec"]["maxDomains"].as_i64().filter(|most| *most > 0);
    if let Some(most) = replicated.max_clusters_per_job(max_domains) {
        placement["spreadConstraints"] = json!([{"spreadByField": "cluster", "minGroups": 1, "maxGroups": most}]);
    }
    placement
}

/// A label's value that is the same for the same template, today and tomorrow.
#[must_use]
pub fn hash_value(value: &Value) -> String {
    format!("{:016x}", hash_fnv1a(value.to_string().bytes()))
}
