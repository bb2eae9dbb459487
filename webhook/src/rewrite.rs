//! A Volcano Job as one cluster gets it: the numbers of its share.
//!
//! Rule: volcano.md E: tasks are never dropped (they keep their order, `dependsOn` and room to grow), replicas and
//! minimums are the share's, a partitioned task keeps its partition size. The job's minimum is never 0: Volcano would
//! fill in the sum.

use caldera_core::plan::Share;
use caldera_crds::{job_admission::default_task_name, names::caldera};
use serde_json::Value;

/// Why a manifest can not be made a cluster's copy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// The plan was made for another template.
    #[error("the plan has no share for task {0:?}: it was made for another version of the job")]
    Task(String),
    /// The plan was made for other numbers than Karmada revised the manifest to.
    #[error("the plan gives this cluster {planned} replicas, the manifest was revised to {revised}")]
    Replicas {
        /// By the plan.
        planned: u32,
        /// By ReviseReplica.
        revised: u32,
    },
}

/// The replicas that ReviseReplica gave this copy.
#[must_use]
pub fn revised(manifest: &Value) -> Option<u32> {
    manifest.pointer("/metadata/annotations")?.get(caldera::REVISED)?.as_str()?.parse().ok()
}

/// Whether a manifest is a Volcano Job.
#[must_use]
pub fn is_volcano_job(manifest: &Value) -> bool {
    manifest.get("apiVersion").and_then(Value::as_str) == Some("batch.volcano.sh/v1alpha1")
        && manifest.get("kind").and_then(Value::as_str) == Some("Job")
}

/// The manifest with the numbers of `share`.
///
/// # Errors
/// If the share was not made for this manifest.
pub fn copy_for(manifest: &Value, share: &Share) -> Result<Value, Mismatch> {
    if let Some(revised) = revised(manifest).filter(|revised| *revised != share.replicas()) {
        return Err(Mismatch::Replicas { planned: share.replicas(), revised });
    }
    let mut copy = manifest.clone();
    for (index, task) in copy.pointer_mut("/spec/tasks").and_then(Value::as_array_mut).into_iter().flatten().enumerate()
    {
        let name = match task.get("name").and_then(Value::as_str) {
            None | Some("") => default_task_name(index),
            Some(name) => name.to_owned(),
        };
        let part = share.tasks.get(name.as_str()).ok_or(Mismatch::Task(name))?;
        task["replicas"] = part.replicas.into();
        task["minAvailable"] = part.min_available.into();
        if let Some(policy) = task.get_mut("partitionPolicy").filter(|policy| policy.is_object()) {
            let size = policy.get("partitionSize").and_then(Value::as_u64).and_then(|size| u32::try_from(size).ok());
            if let Some(size) = size.filter(|size| *size > 0) {
                policy["totalPartitions"] = (part.replicas / size).into();
                if policy.get("minPartitions").and_then(Value::as_u64).unwrap_or(0) > 0 {
                    policy["minPartitions"] = (part.min_available / size).into();
                }
            }
        }
    }
    if let Some(spec) = copy.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("minAvailable".into(), share.min_available.into());
        match share.min_success {
            Some(min_success) => drop(spec.insert("minSuccess".into(), min_success.into())),
            None => drop(spec.remove("minSuccess")),
        }
    }
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use caldera_core::plan::TaskShare;
    use serde_json::json;

    use super::*;

    fn job() -> Value {
        json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
            "metadata": {"name": "j", "annotations": {"caldera.dev/revised-replicas": "5"}},
            "spec": {"minAvailable": 10, "minSuccess": 4, "queue": "q", "tasks": [
                {"name": "master", "replicas": 1, "minAvailable": 1},
                {"replicas": 9, "minAvailable": 9, "partitionPolicy": {"totalPartitions": 3, "partitionSize": 3}},
            ]},
        })
    }

    fn share(master: u32, worker: u32) -> Share {
        let task = |replicas| TaskShare { replicas, min_available: replicas };
        Share {
            tasks: [("master".into(), task(master)), ("default1".into(), task(worker))].into(),
            min_available: master + worker,
            min_success: Some(2),
        }
    }

    #[test]
    fn a2_30_minimums_are_the_shares_like_the_replicas() {
        let mut manifest = job();
        manifest["metadata"]["annotations"] = json!({});
        let copy = copy_for(&manifest, &share(0, 6)).unwrap();
        assert_eq!(copy["spec"]["minAvailable"], 6);
        assert_eq!(copy["spec"]["minSuccess"], 2);
        assert_eq!(copy["spec"]["tasks"][0], json!({"name": "master", "replicas": 0, "minAvailable": 0}));
        assert_eq!(copy["spec"]["tasks"][1]["replicas"], 6);
        assert_eq!(copy["spec"]["tasks"][1]["partitionPolicy"], json!({"totalPartitions": 2, "partitionSize": 3}));
        assert_eq!(copy["spec"]["queue"], "q");
    }

    #[test]
    fn a_copy_made_twice_is_the_same() {
        let mut manifest = job();
        manifest["metadata"]["annotations"] = json!({"caldera.dev/revised-replicas": "7"});
        let once = copy_for(&manifest, &share(1, 6)).unwrap();
        assert_eq!(copy_for(&once, &share(1, 6)).unwrap(), once);
    }

    #[test]
    fn a_plan_for_other_numbers_is_noticed() {
        assert_eq!(copy_for(&job(), &share(1, 6)), Err(Mismatch::Replicas { planned: 7, revised: 5 }));
        let mut manifest = job();
        manifest["metadata"]["annotations"] = json!({});
        manifest["spec"]["tasks"][0]["name"] = "renamed".into();
        assert_eq!(copy_for(&manifest, &share(1, 6)), Err(Mismatch::Task("renamed".into())));
    }
}
