//! What users and members do in a history, and when, as a seed says.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    prng::Prng,
    setting::{CLASSES, QUEUES},
    stand_in::NAMESPACE,
};

pub mod actors;

#[derive(Debug, Clone)]
pub enum Action {
    Submit(Value),
    Delete(String),
    Suspend(String),
    Resume(String),
    /// A Command of this name takes the job off its clusters.
    Restart(String, String),
    /// Fields of a binding that are none of our business.
    Edit(String),
    /// A member is out of reach, or back.
    Reach(&'static str, bool),
    /// A member is cut off, from Karmada too, or back.
    Cut(&'static str, bool),
    /// Karmada says so, as of now.
    Lost(&'static str, bool),
    /// Karmada says of a cluster whether it is ready.
    Ready(&'static str, bool),
    /// A job's first task has so many replicas from now on.
    Scale(String, u64),
    /// A Deployment has so many replicas of so many cores from now on.
    Reshape(String, u64, u64),
    /// Its policy wants all of it in every cluster.
    Duplicate(String),
    /// Something of a queue but its limits.
    Retune(&'static str, Value),
    /// A queue's limits, and its parent. Those that are refused are no more tried, but for those that `must` count in
    /// the end.
    Limit {
        queue: &'static str,
        spec: Value,
        must: bool,
    },
    /// A queue is deleted, or made anew, while its jobs wait and run.
    Queue(&'static str, bool),
    /// The same of a queue in a tree; who may not delete it leaves it, and who may not make it tries again.
    Branch(&'static str, bool),
    /// A Command opens a queue, or closes it. One that `must` be open is told so until it is.
    Turn {
        queue: &'static str,
        open: bool,
        must: bool,
    },
    /// A PriorityClass is there, or not.
    Class(&'static str, bool),
    /// What the host has now is what it will come back with.
    BackUp,
    /// It comes back with that.
    Restore,
}

impl Action {
    /// The job or service that it is about.
    pub fn workload(&self) -> Option<&str> {
        match self {
            Self::Submit(job) => job["metadata"]["name"].as_str(),
            Self::Delete(name)
            | Self::Suspend(name)
            | Self::Resume(name)
            | Self::Restart(name, _)
            | Self::Edit(name)
            | Self::Scale(name, _)
            | Self::Reshape(name, ..)
            | Self::Duplicate(name) => Some(name),
            _ => None,
        }
    }
}

/// What users will do, by when.
pub struct Story {
    pub actions: Vec<(u64, Action)>,
    /// Jobs that must be done in the end.
    pub finish: BTreeSet<String>,
    /// Jobs that never fit and must wait for ever.
    pub wait: BTreeSet<String>,
}

pub fn story(prng: &mut Prng) -> Story {
    let mut story = Story { actions: Vec::new(), finish: BTreeSet::new(), wait: BTreeSet::new() };
    let jobs = prng.between(10, 16);
    for index in 0..jobs {
        let name = format!("j{index}");
        let at = prng.below(90_000);
        let queue = ["vision", "speech", "open"][usize::try_from(prng.below(3)).unwrap()];
        let suspended = prng.below(8) == 0;
        let tasks = (0..prng.between(1, 3)).map(|task| {
            let replicas = prng.between(1, 4);
            let minimum = if prng.below(3) == 0 { prng.between(1, replicas + 1) } else { replicas };
            (format!("t{task}"), replicas, minimum, prng.between(1, 3))
        });
        let mut tasks: Vec<_> = tasks.collect();
        // It must fit the smallest queue.
        while tasks.iter().map(|(_, replicas, _, cores)| replicas * cores).sum::<u64>() > 6 {
            tasks.pop();
            if tasks.is_empty() {
                tasks.push(("t0".into(), 3, 3, 1));
            }
        }
        let seconds = prng.between(3, 25);
        let mut submitted = job(&name, queue, &tasks, seconds, suspended);
        // Less than some of them run. No draw, so that each seed draws what it did.
        if index % 4 == 3 {
            submitted["metadata"]["annotations"]["caldera.dev/max-run-time"] = "15s".into();
        }
        if prng.below(3) == 0 {
            submitted["spec"]["priorityClassName"] = CLASSES[usize::try_from(prng.below(2)).unwrap()].into();
        }
        story.actions.push((at, Action::Submit(submitted)));
        story.finish.insert(name.clone());
        if suspended {
            story.actions.push((at + prng.between(20_000, 100_000), Action::Resume(name.clone())));
            continue;
        }
        let cores: u64 = tasks.iter().map(|(_, replicas, _, cores)| replicas * cores).sum();
        let change = at + prng.between(1, 40_000);
        match prng.below(10) {
            // Its minimum stays what it was; nobody wants more than fits its queue.
            8 if cores + tasks[0].3 <= 6 => story.actions.push((change, Action::Scale(name.clone(), tasks[0].1 + 1))),
            8 if tasks[0].1 > tasks[0].2 => story.actions.push((change, Action::Scale(name.clone(), tasks[0].1 - 1))),
            9 if cores <= 3 => story.actions.push((change, Action::Duplicate(name.clone()))),
            _ => {}
        }
        // Soon after one another, and soon after it starts, so that nobody has seen its pods yet.
        if index % 4 == 1 {
            let restart = |wait: u64| (at + wait, Action::Restart(name.clone(), format!("{name}-{wait}")));
            story.actions.extend([2_500, 4_000, 9_000].map(restart));
        }
        match prng.below(8) {
            0 => {
                story.actions.push((at + prng.between(1, 40_000), Action::Delete(name.clone())));
                story.finish.remove(&name);
            }
            1 | 2 => {
                let from = at + prng.between(1, 20_000);
                story.actions.push((from, Action::Suspend(name.clone())));
                story.actions.push((from + prng.between(10_000, 60_000), Action::Resume(name)));
            }
            3 => story.actions.push((at + prng.between(1, 40_000), Action::Edit(name))),
            _ => {}
        }
    }
    for member in ["m1", "m2"] {
        if prng.below(3) == 0 {
            let from = prng.between(10_000, 90_000);
            let until = from + prng.between(1_000, 60_000);
            story.actions.push((from, Action::Reach(member, false)));
            story.actions.push((until, Action::Reach(member, true)));
            if prng.below(2) == 0 {
                // Told late, but before it is told that it is back: in the end every member is ready.
                story.actions.push((until.min(from + prng.below(10_000)), Action::Ready(member, false)));
                story.actions.push((until + 1 + prng.below(10_000), Action::Ready(member, true)));
            }
        }
    }
    for _ in 0..prng.below(4) {
        let tuned = json!({"weight": prng.between(1, 9), "priority": prng.below(3)});
        story
            .actions
            .push((prng.below(100_000), Action::Retune(QUEUES[usize::try_from(prng.below(4)).unwrap()], tuned)));
    }
    if prng.below(2) == 0 {
        let from = prng.between(10_000, 80_000);
        story.actions.push((from, Action::Queue("open", false)));
        story.actions.push((from + prng.between(1_000, 40_000), Action::Queue("open", true)));
    }
    for name in CLASSES {
        if prng.below(2) == 0 {
            let from = prng.below(80_000);
            story.actions.push((from, Action::Class(name, false)));
            if prng.below(2) == 0 {
                story.actions.push((from + prng.between(1_000, 40_000), Action::Class(name, true)));
            }
        }
    }
    let giant = job("giant", "open", &[("t0".into(), 10, 10, 2)], 5, false);
    story.actions.push((prng.below(60_000), Action::Submit(giant)));
    story.wait.insert("giant".into());
    story.actions.sort_by_key(|(at, _)| *at);
    story
}

pub fn job(name: &str, queue: &str, tasks: &[(String, u64, u64, u64)], seconds: u64, suspended: bool) -> Value {
    let minimum: u64 = tasks.iter().map(|(_, _, minimum, _)| minimum).sum();
    let task = |(name, replicas, minimum, cores): &(String, u64, u64, u64)| {
        let container = json!({
            "name": "c", "image": "i", "resources": {"requests": {"cpu": cores.to_string(), "memory": "16Mi"}},
        });
        json!({
            "name": name, "replicas": replicas, "minAvailable": minimum,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        })
    };
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {
            "name": name, "namespace": NAMESPACE,
            "annotations": {"simulation/seconds": seconds.to_string(), "simulation/suspended": suspended.to_string()},
        },
        "spec": {
            "schedulerName": "volcano", "queue": queue, "minAvailable": minimum,
            "tasks": tasks.iter().map(task).collect::<Vec<_>>(),
        },
    })
}
