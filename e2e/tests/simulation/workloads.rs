//! Volcano Jobs and Deployments, read alike, and what their pods ask for.

use caldera_core::gang::SOLE_TASK;
use caldera_crds::karmada::work::work_name;
use caldera_runtime::watch::api_resource;
use kube::api::ApiResource;
use serde_json::Value;

use crate::stand_in::NAMESPACE;

/// What is counted, in the order of an [`Amount`].
pub const RESOURCES: [&str; 2] = ["cpu", CARDS];

pub const CARDS: &str = "nvidia.com/gpu";

/// Whole cores, and whole cards.
pub type Amount = [u64; RESOURCES.len()];

/// `None`: no limit.
pub type Ceiling = [Option<u64>; RESOURCES.len()];

pub fn add(sum: &mut Amount, more: Amount) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}

pub fn times(amount: Amount, count: u64) -> Amount {
    amount.map(|amount| amount * count)
}

pub fn fits(amount: Amount, room: Amount) -> bool {
    amount.iter().zip(room).all(|(amount, room)| *amount <= room)
}

/// Of a map from names of resources to amounts.
pub fn read_amount(amounts: &Value) -> Amount {
    RESOURCES.map(|name| amounts[name].as_str().and_then(|text| text.parse().ok()).unwrap_or(0))
}

/// Of a template of pods.
pub fn read_pod(template: &Value) -> Amount {
    read_amount(&template["spec"]["containers"][0]["resources"]["requests"])
}

/// A task, and the one of a Deployment.
#[derive(Debug, Clone)]
pub struct Task {
    pub name: String,
    pub replicas: u64,
    pub each: Amount,
}

/// Whether this is a Deployment.
pub fn is_service(workload: &Value) -> bool {
    workload["spec"]["template"].is_object()
}

pub fn list_tasks(workload: &Value) -> Vec<Task> {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    if is_service(workload) {
        let replicas = number(&workload["spec"]["replicas"]);
        let each = read_pod(&workload["spec"]["template"]);
        return vec![Task { name: SOLE_TASK.into(), replicas, each }];
    }
    let read = |task: &Value| Task {
        name: task["name"].as_str().unwrap().to_owned(),
        replicas: number(&task["replicas"]),
        each: read_pod(&task["template"]),
    };
    workload["spec"]["tasks"].as_array().unwrap().iter().map(read).collect()
}

pub fn deployments() -> ApiResource {
    api_resource("apps", "v1", "Deployment", "deployments")
}

/// The ResourceBinding of a workload.
pub fn name_binding(workload: &Value) -> String {
    let suffix = if is_service(workload) { "deployment" } else { "job" };
    format!("{}-{suffix}", workload["metadata"]["name"].as_str().unwrap())
}

/// The Works of a ResourceBinding, one in each cluster's namespace.
pub fn name_work(binding: &str) -> String {
    let kind = if binding.ends_with("-deployment") { "Deployment" } else { "Job" };
    work_name(kind, name_workload(binding), NAMESPACE)
}

/// The ResourceBinding of a Work.
pub fn read_binding(work: &Value) -> &str {
    work["metadata"]["annotations"]["resourcebinding.karmada.io/name"].as_str().unwrap_or_default()
}

/// The workload of a ResourceBinding.
pub fn name_workload(binding: &str) -> &str {
    binding.strip_suffix("-job").or_else(|| binding.strip_suffix("-deployment")).unwrap_or(binding)
}
