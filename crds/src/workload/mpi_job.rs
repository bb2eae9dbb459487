//! MPIJobs of the training operator: the container that it adds to a launcher.
//!
//! Rule (Kubeflow training-operator release 1.9, `pkg/controller.v1/mpi/{mpijob_controller,mpijob}.go`, `newLauncher`):
//! an init container brings `kubectl`, and asks for more than a small launcher does. Its amounts are constants there.

use serde_json::{Value, json};

use super::{GangError, field::Field, layout::Path};

pub(super) const LAUNCHER: Path = &["spec", "mpiReplicaSpecs", "Launcher"];

/// A pod of one pod set, as the operator makes it, as far as placing it goes.
pub(super) fn build_pod(root: &Field<'_>, set: &Field<'_>) -> Result<Value, GangError> {
    let Some(template) = set.at(&["template"]) else {
        return Err(set.absent_field(&["template"]).wrong("a job needs the template of its pods"));
    };
    let mut pod = template.value.clone();
    let is_launcher = root.at(LAUNCHER).is_some_and(|launcher| std::ptr::eq(launcher.value, set.value));
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut).filter(|_| is_launcher)
        && let Some(containers) = spec.entry("initContainers").or_insert_with(|| json!([])).as_array_mut()
    {
        containers.push(json!({"name": "kubectl-delivery", "resources": {
            "requests": {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"},
        }}));
    }
    Ok(pod)
}
