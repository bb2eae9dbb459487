//! `caldera cluster drain`: gangs leave members, a few at a time where their admin says so.
//!
//! Rule: all named members are cordoned first, so that no gang moves from one into another. With `--max-at-once` no
//! more gangs, and with `--budget` no more pods, are on the move at a time; a gang that is larger than the budget moves
//! alone. A gang has moved once it runs again, has ended, or is in line and its old copies are gone: that it has no
//! capacity is no reason to wait. One that does none of these for ten minutes is named, and the next one moves. A look
//! that fails, because the API server restarts or may not be asked for a while, is told once and taken again in that
//! time.
//!
//! Each move is one Command to the controller, which carries it out whole: who interrupts a drain leaves no gang half
//! moved. What is still there is asked of the members each time, so the same command again goes on where it ended.

use std::{
    collections::VecDeque,
    pin::pin,
    process::ExitCode,
    time::{Duration, Instant},
};

use caldera_core::text::count_noun;
use caldera_crds::workload::WorkloadKind;
use kube::Client;
use serde_json::Value;
use tokio::time::sleep;

use super::{connect, cordon_cluster};
use crate::{
    args::{ClusterDrainArgs, JobName},
    change::{print_outcome, to_exit_code},
    job::{change::read_binding, requeue::requeue_all},
    objects::{self, get_object, list_objects, read_list_at, read_text_at},
    output,
    view::{JobKey, State, compute_state_from_objects},
};

/// How long a gang may take to leave and to run again before the next one moves.
const LONGEST_MOVE: Duration = Duration::from_mins(10);
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// What a shell says of a command that was interrupted.
const INTERRUPTED: u8 = 130;

/// How much may be on the move at a time; no limit where nothing is said.
#[derive(Debug, Clone, Copy, Default)]
struct DrainBudget {
    gangs: Option<u32>,
    pods: Option<u32>,
}

impl DrainBudget {
    const fn is_limited(self) -> bool {
        self.gangs.is_some() || self.pods.is_some()
    }

    /// Whether one of so many pods may move beside those that do.
    fn allows(self, next: u32, moving: &[Moving]) -> bool {
        let gangs = u32::try_from(moving.len()).unwrap_or(u32::MAX);
        let pods = moving.iter().fold(next, |sum, one| sum.saturating_add(one.job.pods));
        moving.is_empty() || (self.gangs.is_none_or(|most| gangs < most) && self.pods.is_none_or(|most| pods <= most))
    }
}

/// A workload in a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JobThere {
    namespace: String,
    name: JobName,
    /// In all clusters.
    pods: u32,
}

/// A gang that was asked to go.
#[derive(Debug)]
struct Moving {
    job: JobThere,
    since: Instant,
    /// Whether it was told that it could not be looked at.
    is_failure_reported: bool,
}

/// What follows from a look at a gang.
#[derive(Debug, PartialEq, Eq)]
enum DrainStep {
    Moved,
    /// With what is to be told meanwhile.
    Wait(Option<String>),
    GiveUp(String),
}

impl Moving {
    const fn new(job: JobThere, since: Instant) -> Self {
        Self { job, since, is_failure_reported: false }
    }

    fn judge_look(&mut self, looked: anyhow::Result<bool>, now: Instant) -> DrainStep {
        let name = format!("{}/{}", self.job.namespace, self.job.name);
        let is_late = now.saturating_duration_since(self.since) > LONGEST_MOVE;
        match looked {
            Ok(true) => DrainStep::Moved,
            Ok(false) if is_late => DrainStep::GiveUp(format!("{name} does not run again yet; others move")),
            Ok(false) => {
                self.is_failure_reported = false;
                DrainStep::Wait(None)
            }
            Err(error) if is_late => {
                DrainStep::GiveUp(format!("{name}: whether it runs again could not be read: {error:#}; others move"))
            }
            Err(error) => {
                let is_reported = std::mem::replace(&mut self.is_failure_reported, true);
                DrainStep::Wait(
                    (!is_reported).then(|| format!("{name} could not be read, and is looked at again: {error:#}")),
                )
            }
        }
    }
}

pub(super) async fn drain_clusters(args: ClusterDrainArgs) -> anyhow::Result<ExitCode> {
    let client = connect(args.kubeconfig.as_deref()).await?;
    let budget = DrainBudget { gangs: args.max_at_once, pods: args.budget };
    let (mut all_done, mut cordoned) = (true, Vec::new());
    for name in &args.names {
        let is_cordoned = print_outcome(&format!("cluster {name}"), cordon_cluster(&client, name, true).await);
        all_done &= is_cordoned;
        cordoned.extend(is_cordoned.then_some(name));
    }
    for name in cordoned {
        let drained = pin!(drain_cluster(&client, name, budget));
        let interrupted = pin!(tokio::signal::ctrl_c());
        match futures::future::select(drained, interrupted).await {
            futures::future::Either::Left((drained, _)) => all_done &= drained?,
            futures::future::Either::Right(_) => {
                output::write_warning(&format!(
                    "interrupted: {name} stays cordoned, what was asked to move moves; the same command again goes on"
                ));
                return Ok(ExitCode::from(INTERRUPTED));
            }
        }
    }
    Ok(to_exit_code(all_done))
}

/// Requeues what is in a member. Jobs are gangs: one that has a part there is taken off all its clusters.
async fn drain_cluster(client: &Client, cluster: &str, budget: DrainBudget) -> anyhow::Result<bool> {
    let bindings = list_objects(client, &objects::binding_resource(), None, None).await?.map_err(anyhow::Error::msg)?;
    let mut jobs: VecDeque<JobThere> = bindings.iter().filter_map(|binding| find_job_in(binding, cluster)).collect();
    let (all, mut all_done, mut moving) = (jobs.len(), true, Vec::new());
    loop {
        while jobs.front().is_some_and(|next| budget.allows(next.pods, &moving)) {
            let Some(job) = jobs.pop_front() else { break };
            let one = [(job.namespace.clone(), job.name.clone())];
            let is_done = requeue_all(client, one, &format!("cluster {cluster}")).await;
            all_done &= is_done;
            if is_done && job.name.kind == WorkloadKind::VolcanoJob && budget.is_limited() {
                moving.push(Moving::new(job, Instant::now()));
            }
        }
        if moving.is_empty() {
            if budget.is_limited() {
                output::write_stdout(&format!("cluster {cluster}: {} moved, or staying\n", count_noun(all, "job")));
            }
            return Ok(all_done);
        }
        sleep(POLL_INTERVAL).await;
        let mut still = Vec::new();
        for mut one in moving {
            let looked = is_moved(client, &one.job).await;
            match one.judge_look(looked, Instant::now()) {
                DrainStep::Moved => {}
                DrainStep::Wait(reported) => {
                    reported.iter().for_each(|why| output::write_warning(why));
                    still.push(one);
                }
                DrainStep::GiveUp(why) => {
                    output::write_warning(&why);
                    all_done = false;
                }
            }
        }
        moving = still;
    }
}

async fn is_moved(client: &Client, job: &JobThere) -> anyhow::Result<bool> {
    let resource = job.name.kind.api_resource();
    let found = get_object(client, &resource, Some(&job.namespace), &job.name.name).await?;
    let Some(object) = found.map_err(anyhow::Error::msg)? else { return Ok(true) };
    let binding = read_binding(client, &job.namespace, &object).await?;
    Ok(is_settled(&object, binding.as_ref()))
}

/// Whether a gang moves no more.
fn is_settled(job: &Value, binding: Option<&Value>) -> bool {
    let has_copies = binding.is_some_and(|binding| !read_list_at(binding, "/status/aggregatedStatus").is_empty());
    match compute_state_from_objects(job, binding) {
        State::Starting => read_text_at(job, "/status/state/phase") == "Running",
        State::Admitted => false,
        state if state.is_gate_closed() => !has_copies,
        _ => true,
    }
}

/// The workload in our hands that a binding sends to this cluster.
pub(super) fn find_job_in(binding: &Value, cluster: &str) -> Option<JobThere> {
    let targets = read_list_at(binding, "/spec/clusters");
    let is_there = targets.iter().any(|target| read_text_at(target, "/name") == cluster);
    let key = JobKey::of_binding(binding)?;
    let pods = |target: &Value| target["replicas"].as_u64().and_then(|pods| u32::try_from(pods).ok()).unwrap_or(0);
    (is_there && objects::is_managed_by_caldera(binding)).then(|| JobThere {
        namespace: key.namespace,
        name: JobName { kind: key.kind, name: key.name },
        pods: targets.iter().fold(0, |sum, target| sum.saturating_add(pods(target))),
    })
}

#[cfg(test)]
mod tests {
    use caldera_crds::names::caldera::{ADMISSION, GATE};
    use serde_json::json;

    use super::*;

    fn there(pods: u32) -> JobThere {
        let name = JobName { kind: WorkloadKind::VolcanoJob, name: "j".to_owned() };
        JobThere { namespace: "ns".to_owned(), name, pods }
    }

    fn moving(pods: &[u32]) -> Vec<Moving> {
        pods.iter().map(|pods| Moving::new(there(*pods), Instant::now())).collect()
    }

    #[test]
    fn no_more_moves_at_a_time_than_the_admin_allows_and_a_large_gang_moves_alone() {
        let gangs = DrainBudget { gangs: Some(2), pods: None };
        assert!(gangs.allows(100, &moving(&[50])) && !gangs.allows(1, &moving(&[1, 1])));
        let pods = DrainBudget { gangs: None, pods: Some(10) };
        assert!(pods.allows(4, &moving(&[6])) && !pods.allows(5, &moving(&[6])));
        assert!(pods.allows(50, &[]), "it would never move");
        assert!(!pods.allows(1, &moving(&[50])));
        let both = DrainBudget { gangs: Some(1), pods: Some(10) };
        assert!(!both.allows(1, &moving(&[1])));
        assert!(DrainBudget::default().allows(1, &moving(&[1, 2, 3])));
    }

    #[test]
    fn a_look_that_fails_is_reported_once_and_taken_again_until_the_gang_is_late() {
        let began = Instant::now();
        let mut one = Moving::new(there(1), began);
        let failed = || Err(anyhow::anyhow!("connection refused"));
        let soon = began + POLL_INTERVAL;
        let DrainStep::Wait(Some(reported)) = one.judge_look(failed(), soon) else { panic!("it ends the drain") };
        assert!(reported.contains("ns/") && reported.contains("connection refused"), "{reported}");
        assert_eq!(one.judge_look(failed(), soon), DrainStep::Wait(None), "it is told once");
        assert_eq!(one.judge_look(Ok(false), soon), DrainStep::Wait(None));
        assert!(matches!(one.judge_look(failed(), soon), DrainStep::Wait(Some(_))), "another failure is told");
        assert_eq!(one.judge_look(Ok(true), soon), DrainStep::Moved);
        let late = began + LONGEST_MOVE + POLL_INTERVAL;
        assert!(matches!(one.judge_look(failed(), late), DrainStep::GiveUp(why) if why.contains("connection refused")));
        assert!(matches!(one.judge_look(Ok(false), late), DrainStep::GiveUp(_)));
        assert_eq!(one.judge_look(Ok(true), late), DrainStep::Moved);
    }

    #[test]
    fn a_gang_has_moved_once_it_runs_ended_or_waits_without_copies() {
        let job = |phase: &str| {
            json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"namespace": "ns", "name": "j"},
                "status": {"state": {"phase": phase}}})
        };
        let binding = |gate: &str, clusters: Value, copies: Value| {
            json!({
                "metadata": {"namespace": "ns", "name": "j-job", "annotations": {GATE: gate, ADMISSION: "{}"}},
                "spec": {"suspension": {"scheduling": gate == "closed"}, "clusters": clusters, "resource": {
                    "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": "ns", "name": "j"}},
                "status": {"aggregatedStatus": copies},
            })
        };
        let there = json!([{"name": "m2", "replicas": 2}]);
        let copy = json!([{"clusterName": "m1"}]);
        let settled = |phase: &str, binding: Value| is_settled(&job(phase), Some(&binding));
        assert!(!settled("Running", binding("closed", json!([]), copy.clone())), "its old copies go");
        assert!(settled("Pending", binding("closed", json!([]), json!([]))), "it is in line");
        assert!(!settled("Pending", binding("open", there.clone(), json!([]))));
        assert!(settled("Running", binding("open", there.clone(), copy.clone())));
        assert!(settled("Completed", binding("open", there, copy)));
    }

    #[test]
    fn what_is_drained_is_what_is_there_and_ours() {
        let binding = |kind: &str, clusters: Value| {
            json!({"metadata": {"namespace": "ns"}, "spec": {"clusters": clusters, "resource": {
                "apiVersion": "batch.volcano.sh/v1alpha1", "kind": kind, "namespace": "ns", "name": "j",
            }}})
        };
        let split = json!([{"name": "m1", "replicas": 2}, {"name": "m2", "replicas": 3}]);
        assert_eq!(find_job_in(&binding("Job", split), "m2"), Some(there(5)));
        assert_eq!(find_job_in(&binding("Job", json!([{"name": "m1"}])), "m2"), None);
        assert_eq!(find_job_in(&binding("Other", json!([{"name": "m2"}])), "m2"), None);
    }
}
