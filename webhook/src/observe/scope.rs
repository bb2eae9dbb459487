//! The queue that a workload names itself: what puts it in scope where its namespace is not opted in.
//!
//! Volcano Jobs are always queued: one that names none is in the default queue. Any other kind is queued if it names a
//! queue, or if its namespace is opted in, which is asked elsewhere
//! ([`Snapshot::is_opted_in`](super::cache::Snapshot::is_opted_in)).

use caldera_crds::workload::{self, WorkloadKind};
use serde_json::Value;

/// The queue a workload names; a Volcano Job that names none is in the default queue.
#[must_use]
pub fn queue_of(kind: WorkloadKind, object: &Value) -> Option<String> {
    (kind == WorkloadKind::VolcanoJob || workload::names_queue(object))
        .then(|| workload::queue_of(object).as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_volcano_job_is_always_in_a_queue_and_other_kinds_if_they_name_one() {
        let job = |spec: Value| json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "spec": spec});
        assert_eq!(queue_of(WorkloadKind::VolcanoJob, &job(json!({"queue": "q"}))).as_deref(), Some("q"));
        assert_eq!(queue_of(WorkloadKind::VolcanoJob, &job(json!({}))).as_deref(), Some("default"));
        let deployment = |annotations: Value| json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"annotations": annotations}});
        assert_eq!(queue_of(WorkloadKind::Deployment, &deployment(json!({}))), None);
        let named = deployment(json!({"volcano.sh/queue-name": "q"}));
        assert_eq!(queue_of(WorkloadKind::Deployment, &named).as_deref(), Some("q"));
    }
}
