//! What a binding is charged, from what the API says about it and nothing else.
//!
//! Rule: an admitted binding is charged what was admitted. A placed one is charged the same (the scheduler may place up
//! to the record at any time without asking again), and what pods beyond the record ask for, if there are any; a copy
//! counts once for each cluster. Pods that ask for more than they were admitted for do not leave the host. As pods
//! finish, what is left is charged; an ended one is charged nothing, unless copies of it are still to come. To hold
//! less, a binding needs a smaller record. A binding that was placed without an admission is charged in the same way,
//! so that the ledger says what the clusters run. Whatever records and clusters say, nothing is charged beyond what the
//! workload can ask for; and that an admitted job has ended is believed only where it is placed.

use std::collections::BTreeMap;

use crate::{
    admission::Admission,
    gang::{ClusterName, Gang, TaskName},
    plan::Plan,
    resources::Resources,
};

/// What the API says about a binding.
#[derive(Debug, Clone, Default)]
pub struct ChargeFacts<'a> {
    /// The workload, where it is known.
    pub gang: Option<&'a Gang>,
    /// What the binding itself says that one replica asks for, for want of a workload.
    pub replica_request: Option<&'a Resources>,
    /// The admission record.
    pub admission: Option<&'a Admission>,
    /// `spec.clusters`; zero replicas mean a whole copy.
    pub clusters: &'a [(ClusterName, u32)],
    /// The plan annotation.
    pub plan: Option<&'a Plan>,
    /// Pods that succeeded or failed, by task, over all clusters.
    pub finished_pods: BTreeMap<TaskName, u32>,
    /// It ended in each of its clusters: Completed, Failed or Terminated.
    pub ended: bool,
    /// The most that the workload can ask for, where that is known.
    pub ceiling: Option<&'a Resources>,
}

/// Where a binding stands with its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdmissionStage {
    /// Neither admitted nor placed.
    Waiting,
    /// Admitted, not placed.
    Admitted,
    /// In clusters.
    Placed,
    /// In clusters without an admission.
    Foreign,
    /// Ended.
    Finished,
}

/// What a binding is charged now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge {
    /// How it stands.
    pub stage: AdmissionStage,
    /// How much.
    pub amount: Resources,
    /// Whether what is placed is more than what was admitted.
    pub over_record: bool,
}

/// See the module.
#[must_use]
pub fn compute_charge(facts: &ChargeFacts<'_>) -> Charge {
    let of = |stage, amount| Charge { stage, amount, over_record: false };
    let bounded = |amount: Resources| facts.ceiling.map_or(amount.clone(), |ceiling| amount.min(ceiling));
    match facts.admission {
        Some(admission) if facts.clusters.is_empty() => {
            of(AdmissionStage::Admitted, bounded(admission.charged.clone()))
        }
        _ if facts.ended && !may_get_more_copies(facts) => of(AdmissionStage::Finished, Resources::new()),
        None if facts.clusters.is_empty() => of(AdmissionStage::Waiting, Resources::new()),
        None => of(AdmissionStage::Foreign, subtract_finished(facts, bounded(sum_placed_amount(facts)))),
        Some(admission) => {
            let beyond = sum_placed_beyond_record(facts, admission);
            let mut most = admission.charged.clone();
            most.add(&beyond);
            let amount = subtract_finished(facts, bounded(most));
            Charge { stage: AdmissionStage::Placed, amount, over_record: !beyond.is_empty() }
        }
    }
}

/// Whether the scheduler may place more copies at any time, although all those that are there have ended.
fn may_get_more_copies(facts: &ChargeFacts<'_>) -> bool {
    facts.admission.is_some_and(|admission| u64::from(admission.copies) > facts.clusters.len() as u64)
}

/// What pods ask for that are in clusters beyond the record.
fn sum_placed_beyond_record(facts: &ChargeFacts<'_>, admission: &Admission) -> Resources {
    let mut beyond = Resources::new();
    for task in facts.gang.iter().flat_map(|gang| &gang.tasks) {
        let granted = u64::from(admission.pods_of(&task.name)).saturating_mul(u64::from(admission.copies.max(1)));
        beyond.add(&task.charge().times(count_placed(facts, &task.name).saturating_sub(granted)));
    }
    beyond
}

/// Pods of a task in all clusters.
fn count_placed(facts: &ChargeFacts<'_>, name: &TaskName) -> u64 {
    let of_gang = |gang| {
        facts.clusters.iter().flat_map(move |(cluster, replicas)| list_pods_in_cluster(facts, gang, cluster, *replicas))
    };
    let placed = facts.gang.into_iter().flat_map(of_gang).filter(|(task, _)| task.name == *name);
    placed.fold(0, |sum, (_, pods)| sum.saturating_add(u64::from(pods)))
}

fn sum_placed_amount(facts: &ChargeFacts<'_>) -> Resources {
    let mut sum = Resources::new();
    let Some(gang) = facts.gang else {
        // Without the workload: what the binding says.
        let replicas = facts.clusters.iter().map(|(_, replicas)| u64::from((*replicas).max(1))).sum();
        return facts.replica_request.map(|request| request.times(replicas)).unwrap_or_default();
    };
    for (cluster, replicas) in facts.clusters {
        for (task, pods) in list_pods_in_cluster(facts, gang, cluster, *replicas) {
            sum.add(&task.charge().times(u64::from(pods)));
        }
    }
    sum
}

/// Pods of each task in one cluster: as planned; without a plan, one task's pods are the replicas and several tasks are
/// there whole (Karmada divides nothing that it does not understand).
fn list_pods_in_cluster<'a>(
    facts: &'a ChargeFacts<'_>,
    gang: &'a Gang,
    cluster: &ClusterName,
    replicas: u32,
) -> impl Iterator<Item = (&'a crate::gang::Task, u32)> {
    let share = facts.plan.and_then(|plan| plan.clusters.get(cluster));
    let single = gang.tasks.len() == 1 && replicas > 0;
    gang.tasks.iter().map(move |task| {
        let pods = match share {
            Some(share) => share.tasks.get(&task.name).map_or(0, |share| share.replicas),
            None if single => replicas,
            None => task.replicas,
        };
        (task, pods)
    })
}

fn subtract_finished(facts: &ChargeFacts<'_>, mut placed: Resources) -> Resources {
    let Some(gang) = facts.gang else { return placed };
    for task in &gang.tasks {
        let finished = u64::from(facts.finished_pods.get(&task.name).copied().unwrap_or(0));
        placed.saturating_sub(&task.charge().times(finished.min(count_placed(facts, &task.name))));
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        gang::{NodeClaim, Task},
        plan::{ClusterShare, TaskShare},
        quantity::Quantity,
    };

    fn cpu(units: i64) -> Resources {
        [("cpu", Quantity::from_units(units))].into_iter().collect()
    }

    fn gang(tasks: &[(&str, u32, i64)]) -> Gang {
        let task = |(name, replicas, units): &(&str, u32, i64)| Task {
            name: (*name).into(),
            replicas: *replicas,
            min_available: *replicas,
            request: cpu(*units),
            node: NodeClaim::default(),
            priority_class: String::new(),
            partition: None,
        };
        let min_available = tasks.iter().map(|(_, replicas, _)| replicas).sum();
        let tasks = tasks.iter().map(task).collect();
        Gang::new(tasks, min_available)
    }

    /// Of pods of the tasks that the tests have.
    fn admission(units: i64) -> Admission {
        Admission {
            queue: "q".into(),
            above: Vec::new(),
            priority: 0,
            copies: 1,
            tasks: [("launcher".into(), 1), ("worker".into(), 8)].into(),
            charged: cpu(units),
            run: None,
            data: None,
            nodes: crate::node_groups::NodeRestriction::default(),
            clusters: Vec::new(),
            card: None,
            together: None,
        }
    }

    fn clusters(replicas: &[(&str, u32)]) -> Vec<(ClusterName, u32)> {
        replicas.iter().map(|(name, replicas)| ((*name).into(), *replicas)).collect()
    }

    fn plan(shares: &[(&str, &[(&str, u32)])]) -> Plan {
        let share = |tasks: &[(&str, u32)]| ClusterShare {
            tasks: tasks.iter().map(|(n, r)| ((*n).into(), TaskShare { replicas: *r, min_available: *r })).collect(),
            ..ClusterShare::default()
        };
        Plan { clusters: shares.iter().map(|(cluster, tasks)| ((*cluster).into(), share(tasks))).collect() }
    }

    #[test]
    fn what_was_admitted_is_charged_however_much_of_it_is_placed() {
        let (gang, admission) = (gang(&[("launcher", 1, 1), ("worker", 8, 2)]), admission(17));
        let mut facts = ChargeFacts { gang: Some(&gang), admission: Some(&admission), ..ChargeFacts::default() };
        assert_eq!(
            compute_charge(&facts),
            Charge { stage: AdmissionStage::Admitted, amount: cpu(17), over_record: false }
        );
        let clusters = clusters(&[("a", 4), ("b", 3)]);
        let plan = plan(&[("a", &[("launcher", 1), ("worker", 3)]), ("b", &[("launcher", 0), ("worker", 3)])]);
        (facts.clusters, facts.plan) = (&clusters, Some(&plan));
        // Six of eight workers found room; the other two may at any time.
        assert_eq!(
            compute_charge(&facts),
            Charge { stage: AdmissionStage::Placed, amount: cpu(17), over_record: false }
        );
        facts.finished_pods = [("worker".into(), 2)].into();
        assert_eq!(compute_charge(&facts).amount, cpu(13));
    }

    #[test]
    fn pods_that_finished_give_back_and_the_end_gives_all_back_defect_1() {
        let (gang, admission, clusters) = (gang(&[("worker", 8, 2)]), admission(16), clusters(&[("a", 5), ("b", 3)]));
        let mut facts = ChargeFacts {
            gang: Some(&gang),
            admission: Some(&admission),
            clusters: &clusters,
            ..ChargeFacts::default()
        };
        facts.finished_pods = [("worker".into(), 3)].into();
        assert_eq!(compute_charge(&facts).amount, cpu(10));
        facts.finished_pods = [("worker".into(), 99)].into();
        assert_eq!(compute_charge(&facts).amount, cpu(0));
        facts.finished_pods.clear();
        facts.ended = true;
        assert_eq!(
            compute_charge(&facts),
            Charge { stage: AdmissionStage::Finished, amount: cpu(0), over_record: false }
        );
    }

    #[test]
    fn every_copy_is_charged_defect_10() {
        let (gang, clusters) = (gang(&[("a", 1, 1), ("b", 2, 2)]), clusters(&[("x", 3), ("y", 3)]));
        let facts = ChargeFacts { gang: Some(&gang), clusters: &clusters, ..ChargeFacts::default() };
        assert_eq!(compute_charge(&facts).amount, cpu(10));
    }

    #[test]
    fn the_end_of_the_copies_that_are_placed_gives_nothing_back_of_those_to_come() {
        let (gang, mut admission, one) = (gang(&[("worker", 2, 1)]), admission(4), clusters(&[("x", 2)]));
        (admission.copies, admission.tasks) = (2, [("worker".into(), 2)].into());
        let mut facts = ChargeFacts {
            gang: Some(&gang),
            admission: Some(&admission),
            clusters: &one,
            finished_pods: [("worker".into(), 2)].into(),
            ended: true,
            ..ChargeFacts::default()
        };
        assert_eq!(
            compute_charge(&facts),
            Charge { stage: AdmissionStage::Placed, amount: cpu(2), over_record: false }
        );
        let both = clusters(&[("x", 2), ("y", 2)]);
        facts.clusters = &both;
        assert_eq!(compute_charge(&facts).stage, AdmissionStage::Finished);
    }

    #[test]
    fn a_foreign_binding_is_charged_even_without_its_workload_defect_3() {
        let (request, clusters) = (cpu(2), clusters(&[("x", 3)]));
        let facts = ChargeFacts { replica_request: Some(&request), clusters: &clusters, ..ChargeFacts::default() };
        assert_eq!(
            compute_charge(&facts),
            Charge { stage: AdmissionStage::Foreign, amount: cpu(6), over_record: false }
        );
    }

    #[test]
    fn nothing_is_charged_beyond_what_the_workload_can_ask_for() {
        let (gang, forged, ceiling) = (gang(&[("worker", 2, 1)]), admission(1_000_000), cpu(2));
        let mut facts = ChargeFacts {
            gang: Some(&gang),
            admission: Some(&forged),
            ceiling: Some(&ceiling),
            ..ChargeFacts::default()
        };
        assert_eq!(compute_charge(&facts).amount, cpu(2));
        let clusters = clusters(&[("nowhere", u32::MAX), ("too", u32::MAX)]);
        facts.clusters = &clusters;
        assert_eq!(compute_charge(&facts).amount, cpu(2));
        facts.admission = None;
        assert_eq!(
            compute_charge(&facts),
            Charge { stage: AdmissionStage::Foreign, amount: cpu(2), over_record: false }
        );
    }

    #[test]
    fn the_end_of_a_job_that_is_nowhere_gives_nothing_back() {
        let (gang, admission) = (gang(&[("worker", 2, 1)]), admission(2));
        let facts =
            ChargeFacts { gang: Some(&gang), admission: Some(&admission), ended: true, ..ChargeFacts::default() };
        assert_eq!(
            compute_charge(&facts),
            Charge { stage: AdmissionStage::Admitted, amount: cpu(2), over_record: false }
        );
    }

    #[test]
    fn more_than_was_admitted_is_charged_and_told_defect_9() {
        let (gang, mut admission, clusters) = (gang(&[("worker", 9, 2)]), admission(8), clusters(&[("a", 9)]));
        admission.tasks = [("worker".into(), 4)].into();
        let facts = ChargeFacts {
            gang: Some(&gang),
            admission: Some(&admission),
            clusters: &clusters,
            ..ChargeFacts::default()
        };
        assert_eq!(
            compute_charge(&facts),
            Charge { stage: AdmissionStage::Placed, amount: cpu(18), over_record: true }
        );
    }

    #[test]
    fn requests_that_changed_after_the_admission_are_not_charged_before_they_are_admitted() {
        let (gang, admission, clusters) =
            (gang(&[("worker", 8, 1_000_000)]), admission(16), clusters(&[("a", 5), ("b", 3)]));
        let facts = ChargeFacts {
            gang: Some(&gang),
            admission: Some(&admission),
            clusters: &clusters,
            ..ChargeFacts::default()
        };
        assert_eq!(
            compute_charge(&facts),
            Charge { stage: AdmissionStage::Placed, amount: cpu(16), over_record: false }
        );
    }
}
