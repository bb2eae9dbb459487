//! Kubernetes' TTL-after-finished controller, which Karmada's control plane runs for templates: a finished `batch/v1
//! Job` with `ttlSecondsAfterFinished` goes when its time has come. Volcano's Jobs it does not know.
//!
//! Rule: kubernetes `pkg/controller/ttlafterfinished`.

use std::{sync::Arc, time::Duration};

use serde_json::Value;

use super::{
    api::{Change, Delete, Server},
    control::{Control, Named},
    object::{Gvk, ObjectExt, ObjectKey},
    queue::{Failure, Next, Queue},
};

/// The writer's name.
pub const TTL: &str = "kube-controller-manager(ttl-after-finished)";

fn job_kind() -> Gvk {
    Gvk::new("batch/v1", "Job")
}

/// Starts to look after finished Jobs of the host.
pub fn run_controller(control: &Arc<Control>) {
    let queue: Arc<Queue<Named>> = Queue::new("ttl", control.shutdown.clone());
    let jobs = queue.clone();
    control.host.add_handler(
        &job_kind(),
        Arc::new(move |change: &Change| {
            if let Some(job) = change.new.as_ref().filter(|job| expires_at(job).is_some()) {
                jobs.add((job.namespace().to_owned(), job.name().to_owned()));
            }
        }),
    );
    let own = control.clone();
    queue.run(1, move |(namespace, name)| {
        let own = own.clone();
        async move { delete_expired(&own.host, own.clock.now(), &namespace, &name).await }
    });
}

/// When a job goes, if it is finished and has a TTL.
fn expires_at(job: &Value) -> Option<jiff::Timestamp> {
    if job.is_deleting() {
        return None;
    }
    let ttl = job.pointer("/spec/ttlSecondsAfterFinished")?.as_i64()?;
    let finished = job
        .items("/status/conditions")
        .iter()
        .find(|one| matches!(one.text("/type"), "Complete" | "Failed") && one.text("/status") == "True")?;
    let at: jiff::Timestamp = finished.text("/lastTransitionTime").parse().ok()?;
    at.checked_add(jiff::SignedDuration::from_secs(ttl)).ok()
}

async fn delete_expired(
    host: &Arc<Server>,
    now: jiff::Timestamp,
    namespace: &str,
    name: &str,
) -> Result<Next, Failure> {
    let Some(job) = host.get_live(&job_kind(), namespace, name).await? else { return Ok(Next::Done) };
    let Some(expiry) = expires_at(&job) else { return Ok(Next::Done) };
    let left = expiry.duration_since(now);
    if let Ok(left) = Duration::try_from(left)
        && !left.is_zero()
    {
        return Ok(Next::After(left));
    }
    let how = Delete { propagation: Some("Foreground"), uid: Some(job.uid().to_owned()), ..Delete::default() };
    host.writer(TTL).delete(&ObjectKey::of(&job), &how).await?;
    Ok(Next::Done)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_finished_job_with_a_ttl_expires() {
        let mut job = json!({"metadata": {}, "spec": {"ttlSecondsAfterFinished": 5}, "status": {"conditions": [
            {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        assert_eq!(expires_at(&job).map(|at| at.to_string()), Some("2026-01-01T00:00:05Z".to_owned()));
        job.put(&["status"], json!({}));
        assert_eq!(expires_at(&job), None);
    }
}
