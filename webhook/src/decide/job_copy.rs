//! A Volcano Job as one cluster gets it: with the numbers of its share.
//!
//! Rules:
//! - Tasks are never dropped: they keep their order and their `dependsOn`, and may grow later. Replicas and minimums
//!   are those of the share. A partitioned task keeps its partition size.
//! - What Volcano would make of zeros is avoided (`pkg/webhooks/admission/jobs/mutate`). It fills a job minimum of 0
//!   with the sum of the tasks' minimums, so these are 0 as well where the share needs none. A partition policy allows
//!   no 0 partitions, so a task without pods here has no policy. `minSuccess` begins at 1.
//! - Where the share has a domain, every task is pinned to its nodes (`node_affinity`), so that the member's scheduler
//!   can not choose another one; also a task without pods here, because a template can not be changed when it gets
//!   some. A domain that is only preferred becomes a preference of every task. A task whose partitions are kept in
//!   domains is pinned to all of these together: its pods share one template, and the member puts each partition in one
//!   domain.
//! - A split job that declares a rendezvous gets it for the whole job (`rendezvous`).
//! - Who submitted it and when stays on the host: a member, whose admins and tenants may be others, needs neither.

mod rendezvous;

use std::collections::BTreeSet;

use caldera_core::{
    gang::ClusterName,
    plan::{ClusterShare, Plan, PlannedDomain, TaskShare},
    text::count_noun,
};
use caldera_crds::{
    action::ACTION_STAMPS,
    job_admission::default_task_name,
    names::caldera,
    workload::{WorkloadKind, submission::STAMPS},
};
use serde_json::{Map, Value};

use super::node_affinity;

/// Why a manifest can not be made a cluster's copy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// The plan has nothing for the cluster.
    #[error("the binding's plan has no share for cluster {0}")]
    NoShare(String),
    /// The plan was made for another template.
    #[error("the plan has no share for task {0:?}: it was made for another version of the job")]
    Task(String),
    /// The plan was made for another template.
    #[error("the job has no task {0:?}, which the plan has: it was made for another version of the job")]
    NoTask(String),
    /// The plan was made for other numbers than Karmada revised the manifest to.
    #[error("the plan gives this cluster {}, the manifest was revised to {revised}", count_noun(*.planned, "replica"))]
    Replicas {
        /// By the plan.
        planned: u32,
        /// By ReviseReplica.
        revised: u32,
    },
    /// The plan cuts a partition.
    #[error("the plan gives task {task:?} {} here, not whole partitions of {size}", count_noun(*.pods, "pod"))]
    Partition {
        /// Which task.
        task: String,
        /// Replicas or minimum.
        pods: u32,
        /// Pods of one partition.
        size: u32,
    },
    /// Not shaped like a job.
    #[error("the manifest's spec.tasks is not a list of objects")]
    Shape,
}

/// The replicas that ReviseReplica gave this copy.
#[must_use]
pub fn revised_replicas(manifest: &Value) -> Option<u32> {
    manifest.pointer("/metadata/annotations")?.get(caldera::REVISED)?.as_str()?.parse().ok()
}

/// Whether a manifest is a Volcano Job, in whichever version.
#[must_use]
pub fn is_volcano_job(manifest: &Value) -> bool {
    WorkloadKind::of_object(manifest) == Some(WorkloadKind::VolcanoJob)
}

/// The manifest as this cluster gets it: the numbers of its share, and its part in the whole job.
///
/// # Errors
/// If the plan was not made for this manifest, or has nothing for this cluster.
pub fn make_copy(manifest: &Value, plan: &Plan, cluster: &ClusterName) -> Result<Value, Mismatch> {
    let share = plan.clusters.get(cluster).ok_or_else(|| Mismatch::NoShare(cluster.to_string()))?;
    let mut copy = copy_with_share(manifest, share)?;
    if let Some(annotations) = copy.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.retain(|name, _| !STAMPS.iter().chain(&ACTION_STAMPS).any(|stamp| name == stamp));
    }
    let _unchanged = rendezvous::add_rendezvous(&mut copy, plan, cluster);
    Ok(copy)
}

/// The manifest with the numbers of `share`.
///
/// # Errors
/// If the share was not made for this manifest.
fn copy_with_share(manifest: &Value, share: &ClusterShare) -> Result<Value, Mismatch> {
    if let Some(revised) = revised_replicas(manifest).filter(|revised| *revised != share.replicas()) {
        return Err(Mismatch::Replicas { planned: share.replicas(), revised });
    }
    let mut copy = manifest.clone();
    let spec = copy.get_mut("spec").and_then(Value::as_object_mut).ok_or(Mismatch::Shape)?;
    let tasks = spec.get_mut("tasks").and_then(Value::as_array_mut).ok_or(Mismatch::Shape)?;
    let mut missing: BTreeSet<&str> = share.tasks.keys().map(|name| name.as_str()).collect();
    for (index, task) in tasks.iter_mut().enumerate() {
        let task = task.as_object_mut().ok_or(Mismatch::Shape)?;
        let name = match task.get("name").and_then(Value::as_str) {
            None | Some("") => default_task_name(index),
            Some(name) => name.to_owned(),
        };
        let mut part = *share.tasks.get(name.as_str()).ok_or_else(|| Mismatch::Task(name.clone()))?;
        missing.remove(name.as_str());
        if share.min_available == 0 {
            part.min_available = 0;
        }
        resize_task(task, &name, part)?;
        for domain in domains_of(share, &name) {
            let pods = task.get_mut("template").and_then(|template| template.get_mut("spec"));
            node_affinity::add_domain_affinity(pods.ok_or(Mismatch::Shape)?, &domain).ok_or(Mismatch::Shape)?;
        }
    }
    if let Some(name) = missing.first() {
        return Err(Mismatch::NoTask((*name).to_owned()));
    }
    spec.insert("minAvailable".into(), share.min_available.into());
    match share.min_success.filter(|minimum| *minimum > 0) {
        Some(minimum) => drop(spec.insert("minSuccess".into(), minimum.into())),
        None => drop(spec.remove("minSuccess")),
    }
    Ok(copy)
}

/// The domains that a task's pods must or should run in: the share's, and those of the task's partitions together.
fn domains_of(share: &ClusterShare, task: &str) -> impl Iterator<Item = PlannedDomain> {
    let parts = share.parts.get(task).map(Vec::as_slice).unwrap_or_default();
    let pinned = parts.iter().all(|part| !part.domain.nodes.is_empty());
    let nodes = parts.iter().filter(|_| pinned).flat_map(|part| part.domain.nodes.clone()).collect();
    let domains = share.domain.clone().into_iter().chain([PlannedDomain { nodes, ..PlannedDomain::default() }]);
    domains.filter(|domain| !(domain.nodes.is_empty() && domain.preferred.is_empty()))
}

fn resize_task(task: &mut Map<String, Value>, name: &str, part: TaskShare) -> Result<(), Mismatch> {
    task.insert("replicas".into(), part.replicas.into());
    task.insert("minAvailable".into(), part.min_available.into());
    let Some(policy) = task.get_mut("partitionPolicy").and_then(Value::as_object_mut) else { return Ok(()) };
    if part.replicas == 0 {
        task.remove("partitionPolicy");
        return Ok(());
    }
    let size = policy.get("partitionSize").and_then(Value::as_u64).and_then(|size| u32::try_from(size).ok());
    // Without a size there are no partitions to count; the member says what is wrong.
    let Some(size) = size.filter(|size| *size > 0) else { return Ok(()) };
    let whole = |pods: u32| {
        let cut = || Mismatch::Partition { task: name.to_owned(), pods, size };
        if pods.is_multiple_of(size) { Ok(pods / size) } else { Err(cut()) }
    };
    policy.insert("totalPartitions".into(), whole(part.replicas)?.into());
    if policy.get("minPartitions").and_then(Value::as_u64).unwrap_or(0) > 0 {
        policy.insert("minPartitions".into(), whole(part.min_available)?.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use caldera_core::{
        gang::{Operator, Requirement},
        plan::Part,
    };
    use proptest::prelude::*;
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

    fn share(master: u32, worker: u32) -> ClusterShare {
        let task = |replicas| TaskShare { replicas, min_available: replicas };
        ClusterShare {
            tasks: [("master".into(), task(master)), ("default1".into(), task(worker))].into(),
            min_available: master + worker,
            min_success: Some(2),
            ..ClusterShare::default()
        }
    }

    #[test]
    fn a2_30_minimums_are_the_shares_like_the_replicas() {
        let mut manifest = job();
        manifest["metadata"]["annotations"] = json!({});
        let copy = copy_with_share(&manifest, &share(0, 6)).unwrap();
        assert_eq!(copy["spec"]["minAvailable"], 6);
        assert_eq!(copy["spec"]["minSuccess"], 2);
        assert_eq!(copy["spec"]["tasks"][0], json!({"name": "master", "replicas": 0, "minAvailable": 0}));
        assert_eq!(copy["spec"]["tasks"][1]["replicas"], 6);
        assert_eq!(copy["spec"]["tasks"][1]["partitionPolicy"], json!({"totalPartitions": 2, "partitionSize": 3}));
        assert_eq!(copy["spec"]["queue"], "q");
    }

    #[test]
    fn who_submitted_a_job_and_when_stays_on_the_host() {
        let mut manifest = job();
        let all = json!({
            caldera::SUBMITTER: "ada", caldera::SUBMITTED: "2026-11-27T08:00:00.000000Z", caldera::ACTED_BY: "ada",
            caldera::ACTION: "{}", "own": "kept",
        });
        manifest["metadata"]["annotations"] = all;
        let cluster = ClusterName::from("m1");
        let plan = Plan { clusters: [(cluster.clone(), share(1, 6))].into() };
        let copy = make_copy(&manifest, &plan, &cluster).unwrap();
        assert_eq!(copy["metadata"]["annotations"], json!({"own": "kept"}));
        assert_eq!(make_copy(&copy, &plan, &cluster).unwrap(), copy);
    }

    #[test]
    fn a_copy_made_twice_is_the_same() {
        let mut manifest = job();
        manifest["metadata"]["annotations"] = json!({"caldera.dev/revised-replicas": "7"});
        let once = copy_with_share(&manifest, &share(1, 6)).unwrap();
        assert_eq!(copy_with_share(&once, &share(1, 6)).unwrap(), once);
    }

    #[test]
    fn a_plan_for_other_numbers_is_noticed() {
        assert_eq!(copy_with_share(&job(), &share(1, 6)), Err(Mismatch::Replicas { planned: 7, revised: 5 }));
        let mut manifest = job();
        manifest["metadata"]["annotations"] = json!({});
        manifest["spec"]["tasks"][0]["name"] = "renamed".into();
        assert_eq!(copy_with_share(&manifest, &share(1, 6)), Err(Mismatch::Task("renamed".into())));
    }

    fn plain(tasks: &Value) -> Value {
        json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "j"},
            "spec": {"minAvailable": 2, "minSuccess": 2, "tasks": tasks}})
    }

    /// What a member makes of a copy.
    fn in_the_member(mut copy: Value) -> Value {
        for task in copy["spec"]["tasks"].as_array_mut().unwrap() {
            task["template"] = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
        }
        caldera_crds::job_admission::fill_job_defaults(&mut copy);
        assert_eq!(caldera_crds::job_admission::validate_create(&copy), Vec::<String>::new());
        copy
    }

    fn of(tasks: &[(&str, u32, u32)], min_available: u32, min_success: Option<u32>) -> ClusterShare {
        let tasks = tasks.iter().map(|(name, replicas, min_available)| {
            ((*name).into(), TaskShare { replicas: *replicas, min_available: *min_available })
        });
        ClusterShare { tasks: tasks.collect(), min_available, min_success, ..ClusterShare::default() }
    }

    #[test]
    fn a_cluster_that_the_gang_does_not_need_stays_without_a_minimum_in_the_member() {
        let copy =
            copy_with_share(&plain(&json!([{"name": "w", "replicas": 9}])), &of(&[("w", 3, 2)], 0, Some(0))).unwrap();
        let member = in_the_member(copy);
        assert_eq!(member["spec"]["minAvailable"], 0);
        assert_eq!(member["spec"].get("minSuccess"), None);
        assert_eq!(member["spec"]["tasks"][0]["replicas"], 3);
    }

    #[test]
    fn a_partitioned_task_without_pods_here_is_admitted() {
        let tasks = json!([
            {"name": "m", "replicas": 1},
            {"name": "w", "replicas": 6, "partitionPolicy": {"totalPartitions": 3, "partitionSize": 2, "minPartitions": 1}},
        ]);
        let copy = copy_with_share(&plain(&tasks), &of(&[("m", 1, 1), ("w", 0, 0)], 1, None)).unwrap();
        assert_eq!(in_the_member(copy)["spec"]["tasks"].as_array().unwrap().len(), 2);
        let copy = copy_with_share(&plain(&tasks), &of(&[("m", 1, 1), ("w", 4, 2)], 3, None)).unwrap();
        let policy = in_the_member(copy)["spec"]["tasks"][1]["partitionPolicy"].clone();
        assert_eq!(policy, json!({"totalPartitions": 2, "partitionSize": 2, "minPartitions": 1}));
        let cut = copy_with_share(&plain(&tasks), &of(&[("m", 1, 1), ("w", 3, 2)], 3, None));
        assert_eq!(cut, Err(Mismatch::Partition { task: "w".into(), pods: 3, size: 2 }));
    }

    #[test]
    fn every_task_of_a_copy_is_pinned_to_the_shares_domain_and_made_twice_it_is_the_same() {
        let tasks = json!([
            {"name": "m", "replicas": 1, "template": {"spec": {"containers": []}}},
            {"name": "w", "replicas": 4, "template": {"spec": {"containers": []}}},
        ]);
        let rack = Requirement { key: "rack".into(), operator: Operator::In, values: vec!["r1".into()] };
        let domain = PlannedDomain { name: "rack-1".into(), tier: 1, nodes: vec![vec![rack]], preferred: vec![] };
        let share = ClusterShare { domain: Some(domain), ..of(&[("m", 0, 0), ("w", 3, 3)], 3, None) };
        let copy = copy_with_share(&plain(&tasks), &share).unwrap();
        for task in copy["spec"]["tasks"].as_array().unwrap() {
            let terms = &task["template"]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
                ["nodeSelectorTerms"];
            assert_eq!(terms[0]["matchExpressions"][0]["values"], json!(["r1"]));
        }
        assert_eq!(copy_with_share(&copy, &share).unwrap(), copy);
        let bare = plain(&json!([{"name": "m", "replicas": 1}, {"name": "w", "replicas": 4}]));
        assert_eq!(copy_with_share(&bare, &share), Err(Mismatch::Shape));
    }

    #[test]
    fn a_task_with_partitions_in_domains_is_pinned_to_those_and_no_other_task_is() {
        let policy = json!({"totalPartitions": 3, "partitionSize": 2, "networkTopology": {"highestTierAllowed": 1}});
        let tasks = json!([
            {"name": "m", "replicas": 1, "template": {"spec": {"containers": []}}},
            {"name": "w", "replicas": 6, "partitionPolicy": policy, "template": {"spec": {"containers": []}}},
        ]);
        let part = |rack: &str, partitions| {
            let label = Requirement { key: "rack".into(), operator: Operator::In, values: vec![rack.into()] };
            Part {
                domain: PlannedDomain {
                    name: rack.into(),
                    tier: 1,
                    nodes: vec![vec![label]],
                    ..PlannedDomain::default()
                },
                partitions,
            }
        };
        let parts = [("w".into(), vec![part("r1", 1), part("r2", 1)])].into();
        let mut share = ClusterShare { parts, ..of(&[("m", 1, 1), ("w", 4, 4)], 5, None) };
        let copy = copy_with_share(&plain(&tasks), &share).unwrap();
        let terms = |copy: &Value, task: usize| {
            let spec = &copy["spec"]["tasks"][task]["template"]["spec"];
            spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
                .clone()
        };
        let racks: Vec<Value> = terms(&copy, 1)
            .as_array()
            .unwrap()
            .iter()
            .map(|term| term["matchExpressions"][0]["values"][0].clone())
            .collect();
        assert_eq!((terms(&copy, 0), racks), (Value::Null, vec![json!("r1"), json!("r2")]));
        assert_eq!(copy["spec"]["tasks"][1]["partitionPolicy"]["totalPartitions"], 2);
        assert_eq!(copy_with_share(&copy, &share).unwrap(), copy);
        // Within a domain of the whole job both count.
        share.domain = Some(PlannedDomain { name: "spine".into(), tier: 2, ..part("s", 1).domain });
        let copy = copy_with_share(&plain(&tasks), &share).unwrap();
        assert_eq!(terms(&copy, 1)[1]["matchExpressions"].as_array().unwrap().len(), 2);
        assert_eq!(copy_with_share(&copy, &share).unwrap(), copy);
    }

    #[test]
    fn a_plan_for_more_tasks_is_noticed() {
        let extra =
            copy_with_share(&plain(&json!([{"name": "w", "replicas": 1}])), &of(&[("w", 1, 1), ("x", 1, 1)], 2, None));
        assert_eq!(extra, Err(Mismatch::NoTask("x".into())));
    }

    #[test]
    fn a_manifest_of_another_shape_is_an_error_not_a_panic() {
        for tasks in [json!([5]), json!("x"), json!(null)] {
            assert_eq!(copy_with_share(&plain(&tasks), &of(&[], 0, None)), Err(Mismatch::Shape), "{tasks}");
        }
        assert_eq!(copy_with_share(&json!({"spec": 5}), &of(&[], 0, None)), Err(Mismatch::Shape));
    }

    fn any_share() -> impl Strategy<Value = (Vec<(String, u32)>, ClusterShare)> {
        let task = (0u32..5, 0u32..3, prop::sample::select(vec![0u32, 1, 2]));
        (prop::collection::vec(task, 1..4), any::<bool>(), prop::option::of(0u32..4)).prop_map(
            |(tasks, needed, success)| {
                let mut share = ClusterShare { min_success: success, ..ClusterShare::default() };
                let mut sizes = Vec::new();
                for (i, (count, minimum, size)) in tasks.into_iter().enumerate() {
                    let unit = size.max(1);
                    let part = TaskShare { replicas: count * unit, min_available: minimum.min(count) * unit };
                    share.min_available += if needed { part.min_available } else { 0 };
                    share.tasks.insert(format!("t{i}").into(), part);
                    sizes.push((format!("t{i}"), size));
                }
                (sizes, share)
            },
        )
    }

    proptest! {
        #[test]
        fn every_copy_is_admitted_by_volcano_and_keeps_the_shares_numbers((sizes, share) in any_share()) {
            let tasks: Vec<Value> = sizes.iter().map(|(name, size)| {
                let mut task = json!({"name": name, "replicas": 12, "minAvailable": 12});
                if *size > 0 {
                    task["partitionPolicy"] = json!({"totalPartitions": 12 / size, "partitionSize": size, "minPartitions": 0});
                }
                task
            }).collect();
            let manifest = plain(&Value::from(tasks));
            let copy = copy_with_share(&manifest, &share).unwrap();
            prop_assert_eq!(&copy_with_share(&copy, &share).unwrap(), &copy);
            let member = in_the_member(copy);
            prop_assert_eq!(&member["spec"]["minAvailable"], &json!(share.min_available));
            for task in member["spec"]["tasks"].as_array().unwrap() {
                prop_assert_eq!(&task["replicas"], &json!(share.tasks[task["name"].as_str().unwrap()].replicas));
            }
        }
    }
}
