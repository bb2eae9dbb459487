//! How many pods of a binding its clusters say have ended.
//!
//! Rule: a pod gives its quota back once two say that it has ended: the status of its workload, and what Karmada
//! aggregated on the binding from the clusters that the workload is in now. The status alone may be of an earlier run,
//! or written by its user. Of a copy that has ended as a whole all pods have ended, whatever it counts: Volcano forgets
//! that (volcano#4616). A batch Job's completions are counted over all copies, and say nothing of one that each cluster
//! runs whole: it keeps its charge until it ends.

use std::collections::BTreeMap;

use caldera_core::{
    admission::Admission,
    gang::{ClusterName, Gang, TaskName},
};
use caldera_crds::{
    binding::BindingView,
    workload::{
        WorkloadKind,
        progress::{has_copy_ended, read_ended_pods},
    },
};

/// Of what was placed without an admission so many tasks of each cluster are looked at.
const MOST_TASKS: usize = 256;

/// Pods that ended, as the clusters of a binding report it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndedPods {
    by_task: BTreeMap<TaskName, u32>,
    /// Of copies that ended as a whole, of which no plan says what they had.
    of_ended_shares: u32,
    /// Copies of the whole workload that ended.
    whole_copies: u32,
}

impl EndedPods {
    /// Counts them, of the tasks that were admitted; of the first [`MOST_TASKS`] where nothing was.
    #[must_use]
    pub fn count(binding: BindingView<'_>, admission: Option<&Admission>) -> Self {
        let mut ended = Self::default();
        let Some(kind) = binding.workload_kind() else { return ended };
        if kind == WorkloadKind::BatchJob && admission.is_some_and(|admission| admission.copies > 1) {
            return ended;
        }
        // Others have one task, whatever it was called when it was admitted.
        let admission = admission.filter(|_| kind == WorkloadKind::VolcanoJob);
        let plan = binding.plan();
        let mut clusters: BTreeMap<ClusterName, u32> = binding.clusters().collect();
        for item in binding.status.into_iter().flat_map(|status| &status.aggregated_status) {
            let Some(status) = &item.status else { continue };
            // Of each cluster one word counts.
            let Some((cluster, replicas)) = clusters.remove_entry(item.cluster_name.as_str()) else { continue };
            let share = plan.as_ref().and_then(|plan| plan.clusters.get(&cluster));
            match (has_copy_ended(kind, status), share, replicas) {
                (false, ..) => ended.add(read_ended_pods(kind, status, replicas), admission),
                (true, Some(share), _) => {
                    let tasks = share.tasks.iter().map(|(task, share)| (task.clone(), share.replicas));
                    ended.add(tasks, admission);
                }
                (true, None, 0) => ended.whole_copies = ended.whole_copies.saturating_add(1),
                (true, None, replicas) => ended.of_ended_shares = ended.of_ended_shares.saturating_add(replicas),
            }
        }
        ended
    }

    /// Members write the names of tasks.
    fn add(&mut self, pods: impl IntoIterator<Item = (TaskName, u32)>, admission: Option<&Admission>) {
        let is_known = |task: &TaskName| admission.is_none_or(|admission| admission.tasks.contains_key(task));
        let most = admission.map_or(MOST_TASKS, |admission| admission.tasks.len());
        for (task, pods) in pods.into_iter().filter(|(task, _)| is_known(task)).take(most) {
            let sum = self.by_task.entry(task).or_default();
            *sum = sum.saturating_add(pods);
        }
    }

    /// What the workload says has ended, as far as the clusters say so too.
    #[must_use]
    pub fn confirm(&self, finished: &BTreeMap<TaskName, u32>, gang: &Gang) -> BTreeMap<TaskName, u32> {
        let count_reported = |task: &TaskName| {
            let whole = gang.tasks.iter().find(|one| one.name == *task).map_or(0, |task| task.replicas);
            let of_whole_copies = whole.saturating_mul(self.whole_copies);
            let by_task = self.by_task.get(task).copied().unwrap_or(0);
            by_task.saturating_add(self.of_ended_shares).saturating_add(of_whole_copies)
        };
        finished.iter().map(|(task, pods)| (task.clone(), count_reported(task).min(*pods))).collect()
    }
}

#[cfg(test)]
mod tests {
    use caldera_crds::karmada::work::ResourceBinding;
    use serde_json::{Value, json};

    use super::*;

    /// Of a workload that is in these clusters, with what Karmada aggregated from each, and a plan by cluster and task.
    fn count(kind: &str, copies: u32, clusters: &[(&str, u32, Value)], plan: &Value) -> EndedPods {
        let group = if kind == "VolcanoJob" { "batch.volcano.sh/v1alpha1" } else { "batch/v1" };
        let admission = json!({"queue": "q", "priority": 0, "copies": copies, "charged": {}, "tasks": match kind {
            "VolcanoJob" => json!({"a": 4, "b": 4}),
            _ => json!({"pods": 4}),
        }});
        let targets: Vec<Value> =
            clusters.iter().map(|(name, replicas, _)| json!({"name": name, "replicas": replicas})).collect();
        let items: Vec<Value> =
            clusters.iter().map(|(name, _, status)| json!({"clusterName": name, "status": status})).collect();
        let annotations = json!({
            "caldera.dev/admission": admission.to_string(), "caldera.dev/plan": json!({"clusters": plan}).to_string(),
        });
        let binding: ResourceBinding = serde_json::from_value(json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
            "metadata": {"name": "x", "namespace": "team", "annotations": annotations},
            "spec": {
                "resource": {"apiVersion": group, "kind": "Job", "name": "x", "namespace": "team"},
                "clusters": targets,
            },
            "status": {"aggregatedStatus": items},
        }))
        .unwrap();
        let view = BindingView::from(&binding);
        EndedPods::count(view, view.admission().as_ref())
    }

    fn volcano(phase: &str, succeeded: &Value) -> Value {
        let tasks = succeeded.as_object().unwrap();
        let counts: Value =
            tasks.iter().map(|(task, pods)| (task.clone(), json!({"phase": {"Succeeded": pods}}))).collect();
        json!({"state": {"phase": phase}, "taskStatusCount": counts})
    }

    fn batch(active: u32, succeeded: u32) -> Value {
        json!({"active": active, "succeeded": succeeded, "startTime": "2026-01-01T00:00:00Z"})
    }

    #[test]
    fn a_copy_that_ended_says_nothing_of_the_tasks_of_another() {
        let plan = json!({
            "m1": {"tasks": {"a": {"replicas": 4, "minAvailable": 4}}, "minAvailable": 4},
            "m2": {"tasks": {"b": {"replicas": 4, "minAvailable": 4}}, "minAvailable": 4},
        });
        let clusters = [
            ("m1", 4, volcano("Completed", &json!({}))),
            ("m2", 4, volcano("Running", &json!({"b": 1, "nobody's": 9}))),
        ];
        let ended = count("VolcanoJob", 1, &clusters, &plan);
        assert_eq!(ended.by_task, [("a".into(), 4), ("b".into(), 1)].into());
        assert_eq!((ended.of_ended_shares, ended.whole_copies), (0, 0));
        let said = [("a".into(), 4), ("b".into(), 4)].into();
        assert_eq!(ended.confirm(&said, &Gang::new(Vec::new(), 0)), [("a".into(), 4), ("b".into(), 1)].into());
    }

    #[test]
    fn of_a_batch_job_what_succeeded_and_does_not_run_any_more_has_ended() {
        let ended = |active, succeeded| count("Job", 1, &[("m1", 4, batch(active, succeeded))], &json!({})).by_task;
        // Of 100 completions 10 are done: all four pods run.
        assert!(ended(4, 10).values().all(|pods| *pods == 0));
        assert_eq!(ended(1, 10).into_values().collect::<Vec<_>>(), [3]);
        // It has just begun.
        assert!(ended(0, 0).values().all(|pods| *pods == 0));
    }

    #[test]
    fn a_batch_job_that_each_cluster_runs_whole_keeps_its_charge_until_it_ends() {
        let clusters = [("m1", 4, batch(0, 4)), ("m2", 4, batch(0, 4))];
        assert_eq!(count("Job", 2, &clusters, &json!({})), EndedPods::default());
    }
}
