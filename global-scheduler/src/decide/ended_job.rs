//! Which clusters a split job leaves because it has ended as a whole.
//!
//! A member carries out the policies of a job for its own copy only: `TaskCompleted -> CompleteJob` ends the copy whose
//! task is complete, and a failure fails its copy. The other copies would run on and hold quota. Rule (Volcano
//! `pkg/controllers/job/state`, applied to all copies): the job is complete when, for a task whose completion completes
//! it, every copy with pods of that task is Completed, or when its own status says that enough of its pods succeeded
//! over all copies (`minSuccess`). It has failed, or was terminated or aborted, when a copy that the gang needs has.
//! Then the job leaves the clusters where it has not ended. Copies that have ended stay, and their status with them;
//! where none has, the controller ends the job. A copy that failed alone has not failed the job where its policies
//! restart it for each pod that fails, which is the controller's matter, nor where `minSuccess` counts over all copies,
//! until the job itself says that it has failed, or has ended.

use caldera_core::{
    gang::TaskName,
    place::{Decision, Target},
    plan::{ClusterShare, Plan},
};

use crate::observe::{
    binding::{Binding, End},
    cache::{NeededSuccesses, WorkloadRequest},
};

/// The clusters that a job keeps because it has ended as a whole; `None` if it has not, or has ended in all of them.
#[must_use]
pub fn decide_kept_clusters(binding: &Binding, request: &WorkloadRequest) -> Option<Decision> {
    let plan = binding.plan.as_ref()?;
    let targets = &binding.place.previous;
    let goes_on = |target: &&Target| !binding.ended.contains_key(&target.cluster);
    if binding.ended.is_empty() || !targets.iter().any(|target| goes_on(&target)) {
        return None;
    }
    let restarts = request.restarts_when_a_pod_fails && !request.has_ended;
    let goes_by_the_job = restarts || request.successes != NeededSuccesses::Uncounted;
    let is_done = request.successes == NeededSuccesses::Reached
        || request.completes.iter().any(|task| is_complete(binding, plan, task));
    if !is_done && !has_failed(binding, plan, goes_by_the_job) {
        return None;
    }
    let kept: Vec<Target> = targets.iter().filter(|target| !goes_on(target)).cloned().collect();
    let mut plan = plan.clone();
    plan.clusters.retain(|cluster, _| kept.iter().any(|target| target.cluster == cluster.as_str()));
    Some(Decision { targets: kept, plan: Some(plan), affinity: None })
}

/// `goes_by_the_job`: a copy that failed alone has not failed the job.
fn has_failed(binding: &Binding, plan: &Plan, goes_by_the_job: bool) -> bool {
    let needs = |share: &ClusterShare| share.min_available > 0;
    let broken = |cluster: &str| match binding.ended.get(cluster) {
        Some(End::Failed) => !goes_by_the_job,
        Some(End::Stopped) => true,
        Some(End::Completed) | None => false,
    };
    plan.clusters.iter().any(|(cluster, share)| needs(share) && broken(cluster.as_str()))
}

fn is_complete(binding: &Binding, plan: &Plan, task: &TaskName) -> bool {
    let has = |share: &ClusterShare| share.tasks.get(task).is_some_and(|part| part.replicas > 0);
    let mut copies = plan.clusters.iter().filter(|(_, share)| has(share)).peekable();
    copies.peek().is_some() && copies.all(|(cluster, _)| binding.ended.get(cluster.as_str()) == Some(&End::Completed))
}
