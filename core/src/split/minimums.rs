//! Dividing a gang's minimums over its parts, so that every member's Volcano accepts and starts its part.
//!
//! Two numbers are divided: each task's minimum by the pods there, then the job's minimum. `minSuccess` is not: it
//! counts over all parts ([`crate::status`]), and no part may end before its pods did or the job has enough.
//!
//! Rule (Volcano's validation, `admit_job.go`, and its default for a zero):
//! - A task's minimum is at most its replicas in that part. All of them sum to the gang's.
//! - A part's job minimum is at most its replicas and at least one: zero is re-defaulted, and a part without a minimum
//!   would be Completed when all its pods fail. All of them sum to the gang's, but for parts that need that one: it is
//!   taken from the part with most to spare, and only added where nobody can give.
//! - Where the gang's task minimums bind (the job's minimum is at least their sum) they bind in every part.
//! - A partitioned task's minimum is in whole partitions, and frozen in a copy that is there, as its size is
//!   (`validateJobUpdate`): the others divide the rest.
//! - A part's `minSuccess` is the job's, or all pods of the part where these are fewer: it ends when all of them
//!   succeeded, when all ended, or when it has enough for the whole job. It is frozen in a copy that is there, too.

use std::collections::BTreeMap;

use crate::{
    gang::{ClusterName, Gang, Task},
    plan::{ClusterShare, Plan, TaskShare},
    webster::{Tie, divide_seats, divide_seats_capped},
};

/// The plan for `pods[site][task]`, with all minimums divided. Sites without pods are left out.
/// `copies` made the copies that are there.
pub(super) fn divide_minimums(
    gang: &Gang,
    names: &[&ClusterName],
    pods: &[Vec<u32>],
    copies: Option<&Plan>,
    tie: Tie,
) -> Plan {
    let (names, pods): (Vec<&ClusterName>, Vec<&Vec<u32>>) =
        names.iter().zip(pods).filter(|(_, pods)| total_pods(pods) > 0).unzip();
    let mut tasks = vec![vec![TaskShare::default(); gang.tasks.len()]; names.len()];
    for (task, minimums) in divide_task_minimums(gang, &names, &pods, copies, tie).into_iter().enumerate() {
        for (site, min_available) in minimums.into_iter().enumerate() {
            tasks[site][task] = TaskShare { replicas: pods[site][task], min_available };
        }
    }
    let jobs = divide_job_minimum(gang, &names, &mut tasks, tie);
    let frozen_success = |site: usize| copies?.clusters.get(names[site])?.min_success;
    let success = |site: usize| gang.min_success.map(|wanted| wanted.min(to_u32(total_pods(pods[site]))));
    let share = |site: usize| ClusterShare {
        tasks: gang.tasks.iter().map(|task| task.name.clone()).zip(tasks[site].iter().copied()).collect(),
        min_available: jobs[site],
        min_success: frozen_success(site).or_else(|| success(site)),
        domain: None,
        parts: BTreeMap::new(),
    };
    Plan { clusters: names.iter().enumerate().map(|(site, name)| ((*name).clone(), share(site))).collect() }
}

fn total_pods(pods: &[u32]) -> u64 {
    pods.iter().copied().map(u64::from).sum()
}

fn to_u32(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// By task, then site. Votes are the pods there, so that nobody gets a minimum above its pods; a partitioned task's
/// minimum is divided in whole partitions.
fn divide_task_minimums<'n>(
    gang: &Gang,
    names: &[&'n ClusterName],
    pods: &[&Vec<u32>],
    copies: Option<&Plan>,
    tie: Tie,
) -> Vec<Vec<u32>> {
    let frozen = |task: &Task, name: &ClusterName, pods: u32| {
        let share = copies.filter(|_| task.partition.is_some())?.clusters.get(name)?;
        Some(share.tasks.get(&task.name).map_or(0, |share| share.min_available.min(pods)))
    };
    let divide_one = |(index, task): (usize, &Task)| {
        let unit =
            if task.partition.as_ref().is_some_and(|partition| partition.min > 0) { task.partition_size() } else { 1 };
        let known: Vec<Option<u32>> =
            pods.iter().zip(names).map(|(pods, name)| frozen(task, name, pods[index])).collect();
        let vote = |((pods, name), known): ((&&Vec<u32>, &&'n ClusterName), &Option<u32>)| {
            (if known.is_some() { 0 } else { u64::from(pods[index] / unit) }, *name)
        };
        let votes: Vec<(u64, &ClusterName)> = pods.iter().zip(names).zip(&known).map(vote).collect();
        let placed: u64 = votes.iter().map(|(votes, _)| votes).sum();
        let spoken_for = known.iter().flatten().fold(0, |sum: u32, known| sum.saturating_add(*known));
        let house = u64::from(task.min_available.saturating_sub(spoken_for) / unit).min(placed);
        let seats = divide_seats(house, &votes, tie).into_iter().zip(known);
        seats.map(|(units, known)| known.unwrap_or(to_u32(units) * unit)).collect()
    };
    gang.tasks.iter().enumerate().map(divide_one).collect()
}

fn divide_job_minimum(gang: &Gang, names: &[&ClusterName], tasks: &mut [Vec<TaskShare>], tie: Tie) -> Vec<u32> {
    let replicas = |site: &Vec<TaskShare>| site.iter().map(|task| u64::from(task.replicas)).sum::<u64>();
    let minimums = |site: &Vec<TaskShare>| site.iter().map(|task| u64::from(task.min_available)).sum::<u64>();
    let all: u64 = tasks.iter().map(replicas).sum();
    let wanted = u64::from(gang.min_available).min(all);
    if !gang.enforces_task_minimums() {
        let sizes: Vec<u64> = tasks.iter().map(replicas).collect();
        return divide_with_at_least_one(wanted, &sizes, names, tie);
    }
    // What the job needs beyond its tasks' minimums may be any pods.
    let bound: u64 = tasks.iter().map(minimums).sum();
    let spare: Vec<(u64, &ClusterName)> =
        tasks.iter().zip(names).map(|(site, name)| (replicas(site) - minimums(site), *name)).collect();
    let mut extra = divide_seats(wanted.saturating_sub(bound), &spare, tie);
    for site in 0..tasks.len() {
        if extra[site] + minimums(&tasks[site]) > 0 {
            continue;
        }
        // First take an extra pod from where there are most, then a task's minimum, both only from parts with two.
        let size = |site: usize, extra: &[u64], tasks: &[Vec<TaskShare>]| extra[site] + minimums(&tasks[site]);
        let donor = (0..tasks.len())
            .filter(|other| extra[*other] > 0 && size(*other, &extra, tasks) > 1)
            .max_by_key(|other| (extra[*other], std::cmp::Reverse(*other)));
        if let Some(donor) = donor {
            extra[donor] -= 1;
            extra[site] += 1;
        } else if !move_task_minimum(gang, tasks, site) {
            extra[site] += 1;
        }
    }
    tasks.iter().zip(extra).map(|(site, extra)| to_u32(minimums(site) + extra)).collect()
}

/// Moves one pod of some task's minimum to `site`, which has none; false if no task allows it.
fn move_task_minimum(gang: &Gang, tasks: &mut [Vec<TaskShare>], site: usize) -> bool {
    for task in 0..gang.tasks.len() {
        if gang.tasks[task].partition.is_some() || tasks[site][task].replicas == 0 {
            continue;
        }
        let total = |site: &Vec<TaskShare>| site.iter().map(|task| task.min_available).sum::<u32>();
        let donor = (0..tasks.len())
            .filter(|other| tasks[*other][task].min_available > 0 && total(&tasks[*other]) > 1)
            .max_by_key(|other| (tasks[*other][task].min_available, std::cmp::Reverse(*other)));
        if let Some(donor) = donor {
            tasks[donor][task].min_available -= 1;
            tasks[site][task].min_available += 1;
            return true;
        }
    }
    false
}

/// `house` divided by `sizes`, but one for everybody even if that is more than the house.
fn divide_with_at_least_one(house: u64, sizes: &[u64], names: &[&ClusterName], tie: Tie) -> Vec<u32> {
    let parts = sizes.len() as u64;
    let rest: Vec<(u64, u64, &ClusterName)> =
        sizes.iter().zip(names).map(|(size, name)| (*size, size.saturating_sub(1), *name)).collect();
    divide_seats_capped(house.saturating_sub(parts), &rest, tie).into_iter().map(|more| to_u32(more + 1)).collect()
}
