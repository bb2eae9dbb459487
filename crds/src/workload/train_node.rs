//! What a node of a TrainJob asks for.
//!
//! Rule (Kubeflow trainer `pkg/runtime/core/trainingruntime.go`, `pkg/runtime/framework/plugins/jobset`, read as Kueue
//! does in `pkg/controller/jobs/trainjob`): a TrainJob is a JobSet of its name, made of the runtime that it names.
//! `spec.trainer` says how many nodes there are and what each takes; `spec.runtimePatches` may say where they run. What
//! else a runtime makes is in another object, which its namespace may change: only runtimes that the project ships and
//! that make nothing but nodes are known ([`RUNTIMES`], from its `manifests/base/runtimes`).

use serde_json::{Map, Value, json};

use super::{GangError, field::Field};

/// The ClusterTrainingRuntimes that make one pod for each node, with the resources of the TrainJob alone.
pub(super) const RUNTIMES: &[&str] = &["jax-distributed", "torch-distributed", "xgboost-distributed"];
/// The replicated job of these runtimes.
pub(super) const NODE: &str = "node";

/// The pod of a node, as far as placing it goes.
pub(super) fn build_pod(_: &Field<'_>, spec: &Field<'_>) -> Result<Value, GangError> {
    let mut pod = Map::new();
    let mut selector = Map::new();
    for patch in spec.list("runtimePatches")? {
        let Some(jobs) = patch.at(&["trainingRuntimeSpec", "template", "spec"]) else { continue };
        for job in jobs.list("replicatedJobs")?.into_iter().filter(|job| job.value["name"] == NODE) {
            let Some(patched) = job.at(&["template", "spec", "template", "spec"]) else { continue };
            for (label, value) in patched.entries(&["nodeSelector"])? {
                selector.insert(label.to_owned(), value.value.clone());
            }
            for field in ["affinity", "tolerations"] {
                pod.extend(patched.at(&[field]).map(|place| (field.to_owned(), place.value.clone())));
            }
        }
    }
    let resources = spec.at(&["trainer", "resourcesPerNode"]).map(|place| place.value.clone());
    pod.insert("nodeSelector".to_owned(), selector.into());
    pod.insert("containers".to_owned(), json!([{"resources": resources}]));
    Ok(json!({"spec": pod}))
}
