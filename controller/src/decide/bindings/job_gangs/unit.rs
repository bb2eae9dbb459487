//! What jobs that start together ask for as one, and what of a grant to all of them is each one's.
//!
//! Rules: they ask for the sum, with the lowest of their priorities and the earliest deadline. Their age is that of the
//! youngest: else one old Pod would sell its age to hundreds of new ones. Each is granted what it asked for, and its
//! record says when the youngest was made: the API server's time alone, which no clock of ours need agree with.

use std::{collections::BTreeMap, mem, sync::Arc};

use caldera_core::{
    admission::Admission,
    gang::TaskName,
    queue::{Ask, Counted, FitClass, Job, TaskAsk},
    resources::{ResourceName, Resources},
};

use crate::observe::{Key, fingerprint};

/// One of those that are released together.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Part {
    /// Its binding.
    pub(crate) key: Key,
    /// As it would wait alone.
    pub(crate) job: Job,
}

impl Part {
    /// The card model that is asked for.
    pub(crate) fn card(&self) -> Option<&ResourceName> {
        self.job.ask.card()
    }
}

/// What those that start together ask for as one job; `None` for fewer than two.
pub(super) fn combine_jobs(parts: &[Part]) -> Option<Job> {
    let first = &parts.first().filter(|_| parts.len() > 1)?.job;
    let jobs = || parts.iter().map(|part| &part.job);
    let tasks = jobs().enumerate().flat_map(|(at, job)| {
        let of_part = move |task: &TaskAsk| TaskAsk { name: name_task(at, task), ..task.clone() };
        job.ask.tasks.iter().filter(|task| task.most > 0).map(of_part)
    });
    let classes: Vec<(u64, Option<&ResourceName>)> = jobs().map(|job| (job.ask.fit.0, job.ask.card())).collect();
    let ask = Ask {
        tasks: tasks.collect(),
        copies: 1,
        fit: FitClass(fingerprint(&("together", classes))),
        run_for: jobs().map(|job| job.ask.run_for).collect::<Option<Vec<i64>>>().and_then(|all| all.into_iter().max()),
        counted: Counted::Jobs(u32::try_from(parts.len()).unwrap_or(u32::MAX), first.ask.counted.tenants().into()),
        card: None,
    };
    Some(Job {
        id: first.id.clone(),
        queue: first.queue.clone(),
        priority: jobs().map(|job| job.priority).min()?,
        created: jobs().map(|job| job.created).max()?,
        deadline: jobs().filter_map(|job| job.deadline).min(),
        ask: Arc::new(ask),
    })
}

/// Tasks of several jobs have one name.
fn name_task(at: usize, task: &TaskAsk) -> TaskName {
    format!("{at}/{}", task.name.as_str()).as_str().into()
}

/// What of a grant to all of them is each one's.
pub(crate) fn split_admission(parts: &[Part], mut all: Admission) -> Vec<Admission> {
    let granted = mem::take(&mut all.tasks);
    all.charged = Resources::new();
    all.together = parts.iter().map(|part| part.job.created.as_time()).max();
    let one = |(at, part): (usize, &Part)| {
        let mut charged = Resources::new();
        let mut tasks = BTreeMap::new();
        for task in &part.job.ask.tasks {
            let pods = granted.get(&name_task(at, task)).copied().unwrap_or(0);
            charged.add(&task.request.times(u64::from(pods)));
            tasks.insert(task.name.clone(), pods);
        }
        Admission { priority: part.job.priority, tasks, charged, card: part.card().cloned(), ..all.clone() }
    };
    parts.iter().enumerate().map(one).collect()
}
