//! How the record of a binding that holds quota follows what its workload wants: fewer pods at once, more through the
//! queue.
//!
//! Rule: what is placed never exceeds the record. The scheduler sees to that. So a workload that was scaled up runs as
//! before until the difference is admitted like any other demand: within the quota of each queue on its path, in order,
//! and with capacity for it in the clusters. Pods that it can not do without wait with the job's priority, and so do
//! more copies of a duplicated job, and larger requests of the pods that it has. Elastic pods of a gang that runs wait
//! behind everybody else in their queue. A record that is larger than what is wanted shrinks at once; until the pods
//! are gone the charge is what is placed. Requests that became smaller are charged as such only once no other of them
//! is larger than its charge: until then the pods that were admitted run on. Larger requests come first, then pods,
//! then copies: one increase at a time.

use std::collections::BTreeMap;

use caldera_core::{
    admission::Admission,
    gang::{Gang, SOLE_TASK, Task},
    queue::{Ask, Counted, FitClass, TaskAsk},
    resources::Resources,
};

/// What should become of a record.
#[derive(Debug, Clone, PartialEq)]
pub enum Resize {
    /// It grants more than is wanted: this is enough.
    Shrink(Admission),
    /// It grants less than is wanted: ask for the difference.
    Grow(Increase),
}

/// The difference between what is wanted and what was granted.
#[derive(Debug, Clone, PartialEq)]
pub struct Increase {
    /// Of what.
    pub kind: IncreaseKind,
    /// The difference alone, of no class yet. Of copies: so many more of all that one copy was granted.
    pub ask: Ask,
}

/// What there should be more of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IncreaseKind {
    /// Pods that it cannot do without: it is a gang whose minimum grew, or all of its replicas count.
    Needed,
    /// Pods beyond what a gang that runs needs.
    Surplus,
    /// Clusters that run all of it.
    Copies,
    /// No pod, but more for each: its requests changed. Until then the webhook on Works keeps them on the host.
    Requests,
}

/// What a workload wants, beside its gang.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The gang.
    pub gang: &'a Gang,
    /// It may run with fewer pods than it wants.
    pub elastic: bool,
    /// Pods of each task within the minimum, in the gang's order.
    pub minimum: &'a [u32],
    /// Clusters that each run all of it.
    pub copies: u32,
}

/// Decides what should become of a record; `None` where it is as it should be.
#[must_use]
pub fn decide_resize(wanted: Wanted<'_>, record: &Admission) -> Option<Resize> {
    let shrink = || shrink_record(wanted.gang, record).map(Resize::Shrink);
    shrink().or_else(|| compute_increase(wanted, record).map(Resize::Grow))
}

/// The record with what was granted on top.
#[must_use]
pub fn add_grant(record: &Admission, kind: IncreaseKind, granted: &Admission) -> Admission {
    let mut sum = record.clone();
    sum.charged.add(&granted.charged);
    sum.data = granted.data;
    match kind {
        IncreaseKind::Copies => sum.copies = sum.copies.saturating_add(granted.copies),
        IncreaseKind::Requests => {}
        IncreaseKind::Needed | IncreaseKind::Surplus => {
            // A workload without tasks has one name from now on, whatever it was recorded under.
            if granted.tasks.contains_key(SOLE_TASK) {
                sum.tasks.clear();
            }
            let more = granted.tasks.iter();
            sum.tasks.extend(more.map(|(task, pods)| (task.clone(), record.pods_of(task).saturating_add(*pods))));
        }
    }
    sum
}

fn shrink_record(gang: &Gang, record: &Admission) -> Option<Admission> {
    let mut cut = Admission { tasks: BTreeMap::new(), ..record.clone() };
    let mut dropped = false;
    let mut left = Resources::new();
    for task in &gang.tasks {
        let had = record.pods_of(&task.name);
        let over = had.saturating_sub(task.replicas);
        let freed = task.charge().times(u64::from(over).saturating_mul(u64::from(record.copies)));
        cut.charged.saturating_sub(&freed);
        let stays = task.charge().times(u64::from(had - over).saturating_mul(u64::from(record.copies)));
        left.add(&stays);
        cut.tasks.insert(task.name.clone(), had - over);
        dropped |= over > 0;
    }
    // Pods that ask for more than when they were admitted keep what they need of what was charged.
    for (name, needed) in left.iter() {
        let keeps = needed.min(record.charged.get(name.as_str()));
        if keeps > cut.charged.get(name.as_str()) {
            cut.charged.set(name.clone(), keeps);
        }
    }
    // Those that ask for less need no more than that. Until what they ask for beside that is granted they do not go
    // out, and those run on that were admitted.
    if left.fits_in(&record.charged) {
        dropped |= !cut.charged.fits_in(&left);
        cut.charged = cut.charged.min(&left);
    }
    dropped.then_some(cut)
}

fn compute_increase(wanted: Wanted<'_>, record: &Admission) -> Option<Increase> {
    let Wanted { gang, elastic, minimum, copies } = wanted;
    if let Some(ask) = compute_request_increase(gang, record) {
        return Some(Increase { kind: IncreaseKind::Requests, ask });
    }
    let lacking = |task: &Task| task.replicas.saturating_sub(record.pods_of(&task.name));
    let short = |task: &Task, min: u32| match elastic {
        true => {
            min.next_multiple_of(task.partition_size()).min(task.replicas).saturating_sub(record.pods_of(&task.name))
        }
        false => lacking(task),
    };
    let mut min: Vec<u32> = gang.tasks.iter().zip(minimum).map(|(task, min)| short(task, *min)).collect();
    let mut kind = IncreaseKind::Needed;
    if !(needs_more(gang, elastic, record) && min.iter().any(|pods| *pods > 0)) {
        if gang.tasks.iter().all(|task| lacking(task) == 0) {
            return compute_copy_increase(wanted, record, copies);
        }
        kind = IncreaseKind::Surplus;
        // As little as can start: members take the rest as it comes.
        let first = gang.tasks.iter().position(|task| lacking(task) > 0)?;
        min = vec![0; gang.tasks.len()];
        min[first] = gang.tasks[first].partition_size().min(lacking(&gang.tasks[first]));
    }
    let tasks = gang.tasks.iter().zip(min).map(|(task, min)| TaskAsk {
        name: task.name.clone(),
        request: task.charge().into_owned(),
        min,
        most: lacking(task),
        step: task.partition_size(),
    });
    let tasks = tasks.filter(|task| task.most > 0).collect();
    let ask = Ask {
        tasks,
        copies: record.copies.max(1),
        fit: FitClass::default(),
        run_for: None,
        counted: Counted::More(Box::default()),
        card: None,
    };
    Some(Increase { kind, ask })
}

/// What the pods of a record ask for by now, as far as that is more than was charged.
fn compute_request_increase(gang: &Gang, record: &Admission) -> Option<Ask> {
    let mut request = record.sum_pod_requests(gang);
    request.saturating_sub(&record.charged);
    let name = gang.tasks.first().filter(|_| !request.is_empty())?.name.clone();
    let tasks = vec![TaskAsk { name, request, min: 1, most: 1, step: 1 }];
    Some(Ask {
        tasks,
        copies: 1,
        fit: FitClass::default(),
        run_for: None,
        counted: Counted::More(Box::default()),
        card: None,
    })
}

fn compute_copy_increase(wanted: Wanted<'_>, record: &Admission, copies: u32) -> Option<Increase> {
    let more = copies.checked_sub(record.copies.max(1)).filter(|more| *more > 0)?;
    let tasks = wanted.gang.tasks.iter().map(|task| {
        let pods = record.pods_of(&task.name);
        TaskAsk { name: task.name.clone(), request: task.charge().into_owned(), min: pods, most: pods, step: 1 }
    });
    let ask = Ask {
        tasks: tasks.collect(),
        copies: more,
        fit: FitClass::default(),
        run_for: None,
        counted: Counted::More(Box::default()),
        card: None,
    };
    Some(Increase { kind: IncreaseKind::Copies, ask })
}

/// True if a task, or the whole gang, needs more pods than were admitted, or more for those that were. Of an elastic
/// gang each task's own minimum counts only where Volcano counts it.
#[must_use]
pub fn needs_more(gang: &Gang, elastic: bool, record: &Admission) -> bool {
    let of = |task: &Task| record.pods_of(&task.name);
    let binds = gang.enforces_task_minimums();
    if !record.sum_pod_requests(gang).fits_in(&record.charged) {
        return true;
    }
    let all = gang.tasks.iter().fold(0_u32, |sum, task| sum.saturating_add(of(task).min(task.replicas)));
    let short = |task: &Task| match (elastic, binds) {
        (false, _) => of(task) < task.replicas,
        (true, true) => of(task) < task.min_available,
        (true, false) => false,
    };
    gang.tasks.iter().any(short) || (elastic && all < gang.min_available)
}

#[cfg(test)]
mod tests {
    use caldera_core::{
        gang::{NodeClaim, Partition},
        quantity::Quantity,
    };

    use super::*;

    fn cpu(units: i64) -> Resources {
        [("cpu", Quantity::from_units(units))].into_iter().collect()
    }

    fn gang(min_available: u32, tasks: &[(&str, u32, u32)]) -> Gang {
        let task = |(name, replicas, min): &(&str, u32, u32)| Task {
            name: (*name).into(),
            replicas: *replicas,
            min_available: *min,
            request: cpu(2),
            node: NodeClaim::default(),
            priority_class: String::new(),
            partition: None,
        };
        let tasks = tasks.iter().map(task).collect();
        Gang::new(tasks, min_available)
    }

    fn record(copies: u32, tasks: &[(&str, u32)], charged: i64) -> Admission {
        let tasks = tasks.iter().map(|(name, pods)| ((*name).into(), *pods)).collect();
        Admission {
            queue: "q".into(),
            above: Vec::new(),
            priority: 3,
            copies,
            tasks,
            charged: cpu(charged),
            run: None,
            data: None,
            nodes: caldera_core::node_groups::NodeRestriction::default(),
            clusters: Vec::new(),
            card: None,
            together: None,
        }
    }

    fn of(gang: &Gang, elastic: bool, copies: u32, record: &Admission) -> Option<Resize> {
        let minimum: Vec<u32> = gang.tasks.iter().map(|task| task.min_available).collect();
        decide_resize(Wanted { gang, elastic, minimum: &minimum, copies }, record)
    }

    fn pods(more: &Increase) -> Vec<(&str, u32, u32)> {
        more.ask.tasks.iter().map(|task| (task.name.as_str(), task.min, task.most)).collect()
    }

    #[test]
    fn a_record_that_grants_what_is_wanted_stays() {
        assert_eq!(of(&gang(2, &[("w", 4, 2)]), true, 1, &record(1, &[("w", 4)], 8)), None);
        assert_eq!(of(&gang(2, &[(SOLE_TASK, 4, 4)]), false, 1, &record(1, &[("any", 4)], 8)), None);
    }

    #[test]
    fn who_wants_less_is_granted_less_in_every_copy() {
        let cut = of(&gang(1, &[("a", 1, 1), ("w", 3, 1)]), true, 2, &record(2, &[("a", 1), ("w", 8)], 36));
        assert_eq!(cut, Some(Resize::Shrink(record(2, &[("a", 1), ("w", 3)], 16))));
    }

    /// Four pods were admitted for one cpu each; each asks for two now, and there are three.
    #[test]
    fn who_wants_fewer_and_larger_pods_keeps_what_they_need_of_what_was_charged() {
        let cut = of(&gang(1, &[(SOLE_TASK, 3, 1)]), false, 1, &record(1, &[(SOLE_TASK, 4)], 4));
        assert_eq!(cut, Some(Resize::Shrink(record(1, &[(SOLE_TASK, 3)], 4))));
        let cut = of(&gang(1, &[(SOLE_TASK, 1, 1)]), false, 1, &record(1, &[(SOLE_TASK, 4)], 4));
        assert_eq!(cut, Some(Resize::Shrink(record(1, &[(SOLE_TASK, 1)], 2))));
    }

    #[test]
    fn who_asks_for_more_in_each_pod_asks_for_the_difference_and_for_no_pod() {
        let old = record(2, &[(SOLE_TASK, 3)], 6);
        let Some(Resize::Grow(more)) = of(&gang(1, &[(SOLE_TASK, 3, 1)]), false, 2, &old) else {
            panic!("nothing is asked for");
        };
        assert_eq!((more.kind, more.ask.minimum()), (IncreaseKind::Requests, cpu(6)));
        let granted = record(1, &[(SOLE_TASK, 1)], 6);
        assert_eq!(add_grant(&old, more.kind, &granted), record(2, &[(SOLE_TASK, 3)], 12));
    }

    #[test]
    fn who_asks_for_less_in_each_pod_is_granted_less_at_once() {
        let cut = of(&gang(1, &[(SOLE_TASK, 3, 1)]), false, 1, &record(1, &[(SOLE_TASK, 3)], 1_000_000));
        assert_eq!(cut, Some(Resize::Shrink(record(1, &[(SOLE_TASK, 3)], 6))));
    }

    #[test]
    fn replicas_that_all_count_are_asked_for_together() {
        let Some(Resize::Grow(more)) = of(&gang(1, &[(SOLE_TASK, 10, 1)]), false, 1, &record(1, &[("any", 4)], 8))
        else {
            panic!("nothing is asked for");
        };
        assert_eq!((more.kind, pods(&more)), (IncreaseKind::Needed, vec![(SOLE_TASK, 6, 6)]));
        assert_eq!(more.ask.minimum(), cpu(12));
        let grown = add_grant(&record(1, &[("any", 4)], 8), more.kind, &record(1, &[(SOLE_TASK, 6)], 12));
        assert_eq!(grown, record(1, &[(SOLE_TASK, 10)], 20));
    }

    #[test]
    fn a_gang_whose_minimum_grew_needs_the_difference() {
        let Some(Resize::Grow(more)) = of(&gang(6, &[("w", 8, 6)]), true, 1, &record(1, &[("w", 4)], 8)) else {
            panic!("nothing is asked for");
        };
        assert_eq!((more.kind, pods(&more)), (IncreaseKind::Needed, vec![("w", 2, 4)]));
    }

    #[test]
    fn a_gang_that_runs_would_like_the_rest_pod_by_pod_and_partition_by_partition() {
        let mut gang = gang(2, &[("a", 2, 1), ("w", 8, 1)]);
        let record = record(1, &[("a", 2), ("w", 4)], 12);
        let Some(Resize::Grow(more)) = of(&gang, true, 1, &record) else { panic!("nothing is asked for") };
        assert_eq!((more.kind, pods(&more)), (IncreaseKind::Surplus, vec![("w", 1, 4)]));
        gang.tasks[1].partition = Some(Partition { total: 4, size: 2, min: 1, topology: None });
        let Some(Resize::Grow(more)) = of(&gang, true, 1, &record) else { panic!("nothing is asked for") };
        assert_eq!((pods(&more), more.ask.tasks[0].step), (vec![("w", 2, 4)], 2));
    }

    #[test]
    fn a_cluster_more_for_a_duplicated_job_is_asked_for_as_a_copy() {
        let gang = gang(3, &[("w", 3, 3)]);
        let Some(Resize::Grow(more)) = of(&gang, true, 3, &record(1, &[("w", 3)], 6)) else {
            panic!("nothing is asked for");
        };
        assert_eq!((more.kind, more.ask.copies, pods(&more)), (IncreaseKind::Copies, 2, vec![("w", 3, 3)]));
        let grown = add_grant(&record(1, &[("w", 3)], 6), more.kind, &record(2, &[("w", 3)], 12));
        assert_eq!(grown, record(3, &[("w", 3)], 18));
        // A cluster that is away for a while takes nothing away.
        assert_eq!(of(&gang, true, 1, &record(3, &[("w", 3)], 18)), None);
    }
}
