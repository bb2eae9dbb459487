//! When each waiting job is expected to start: the fleet as it is now, played forward under the controller's own
//! policy.
//!
//! Rule: jobs end when they said they would, corrected by how long the last jobs of their queue ran
//! ([`caldera_core::past_runs`]); those that did not say run as long as the last that did not, or to their limit, or
//! for an assumed time; and nothing else arrives. So an instant always comes with what it rests on: how many of the
//! jobs that run now, or start before, gave no estimate or have outrun what is known. Jobs that start together are
//! played forward each for itself, and each is told the start of the last of them: none starts before that. A job that
//! does not start within [`HORIZON`] has no instant, nor has one that starts later than could be looked in the time
//! that there is. Slurm's backfill scheduler tells `squeue --start` by the same means
//! (`src/plugins/sched/backfill/backfill.c`), and rounds how long jobs say they run, as is done here: `bf_resolution`.

use std::{cmp::Ordering, collections::HashMap, sync::Arc};

use crate::{
    live::{RunSource, State, build_world},
    metrics::JobRecord,
    policy::PolicyName,
    run::{Options, simulate_while_there_is_time},
    site::LookOn,
    time::Millis,
    world::{Job, World, WorldError},
};

/// Jobs in line for which starts are worked out, at most.
pub const MOST_WAITING: usize = 20_000;
/// How far ahead is looked.
pub const HORIZON: Millis = Millis::from_secs(90 * 24 * 3600);

/// When a job is expected to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedStart {
    /// When, as far as was looked.
    pub at: StartTime,
    /// What that rests on.
    pub basis: StartBasis,
}

/// When a job starts, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartTime {
    /// Then.
    At(i64),
    /// Not before: nobody looked farther.
    NotBefore(i64),
    /// Not within the horizon, as far as is known.
    Unknown,
}

/// The jobs that an expected start depends on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StartBasis {
    /// Jobs that run now, and jobs that are expected to start before it.
    pub before: usize,
    /// Those of them that do not say how long they run, nor do the last jobs of their queue tell it.
    pub unestimated: usize,
    /// Those of which nothing is known but that they are ended then.
    pub to_limit: usize,
    /// Those that do not say it, and are taken to run as long as the last jobs of their queue.
    pub as_queue: usize,
    /// Those that say it, and are taken to keep to it as the last jobs of their queue did.
    pub corrected: usize,
    /// Those that run longer than they said or may, or said nothing and run longer than all of the last did.
    pub overdue: usize,
    /// Those that are expected to start before it, and wait in members for nodes to come.
    pub for_nodes_before: usize,
    /// Then a maintenance window ends that keeps it out until then.
    pub after_window: bool,
    /// It waits so long in members for nodes to come, or one that it starts together with does.
    pub for_nodes: Option<Millis>,
}

/// Why there are no expected starts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoForecast {
    /// It would take too long.
    #[error("{0} jobs wait: starts are worked out for {MOST_WAITING} at most")]
    TooMany(usize),
    /// The state is none to begin from.
    #[error(transparent)]
    World(#[from] WorldError),
}

/// The expected start of every job that waits, by the name of its binding; jobs that do not say how long they run are
/// taken to run for `assume`. It is asked after each instant, and
/// before each job that is released, whether to `look_on`.
///
/// # Errors
/// [`NoForecast`].
pub fn expect_starts(
    state: &State,
    assume: Millis,
    look_on: impl FnMut() -> bool,
) -> Result<HashMap<Arc<str>, ExpectedStart>, NoForecast> {
    let waiting = state.jobs.iter().filter(|job| !job.placed).count();
    if waiting > MOST_WAITING {
        return Err(NoForecast::TooMany(waiting));
    }
    if waiting == 0 {
        return Ok(HashMap::new());
    }
    let (mut world, sources, _) = build_world(state, assume)?;
    round_estimates(&mut world);
    let horizon = Some(world.start.plus(HORIZON));
    let options = Options { horizon, until_started: true, ..Options::default() };
    let (mut policy, look_on) = (PolicyName::Caldera.start(&world), LookOn::while_true(look_on));
    let outcome = simulate_while_there_is_time(&world, policy.as_mut(), &options, look_on, |_| true);
    let second = |at: Millis| {
        state.now.as_seconds().saturating_add(i64::try_from(at.since(world.start).seconds()).unwrap_or(i64::MAX))
    };
    let not_yet = outcome.looked_to.map_or(StartTime::Unknown, |at| StartTime::NotBefore(second(at)));
    let mut basis = StartBasis::default();
    let mut expected = Vec::with_capacity(waiting);
    let overdue: HashMap<&str, bool> = state.jobs.iter().map(|job| (&*job.name, job.is_overdue(state.now))).collect();
    let source = |job: &Job| sources.get(&job.name).copied().unwrap_or(RunSource::Assumed);
    for (job, record) in world.jobs.iter().zip(&outcome.jobs) {
        if job.running.is_some() {
            basis.count(source(job), overdue.get(&*job.name) == Some(&true));
        } else {
            expected.push(PlayedStart::of_record(job, record));
        }
    }
    hold_for_last_of_unit(state, &mut expected);
    expected.sort_by_key(|start| start.at);
    let mut starts = HashMap::with_capacity(waiting);
    // Those of one instant do not wait for each other.
    for together in expected.chunk_by(|a, b| a.at == b.at) {
        for PlayedStart { job, at, after_window, for_nodes } in together {
            let at = if *at < Millis(u64::MAX) { StartTime::At(second(*at)) } else { not_yet };
            let basis = StartBasis { after_window: *after_window, for_nodes: *for_nodes, ..basis };
            starts.insert(Arc::clone(&job.name), ExpectedStart { at, basis });
        }
        for start in together {
            basis.count(source(start.job), false);
            basis.for_nodes_before += usize::from(start.for_nodes.is_some());
        }
    }
    Ok(starts)
}

/// Lets jobs that wait say a little more than they do, an eighth at most: those that ask for the same and say nearly
/// the same are one question to the queues then, where each would be one of its own.
pub(crate) fn round_estimates(world: &mut World) {
    for job in world.jobs.iter_mut().filter(|job| job.running.is_none()) {
        job.estimate = job.estimate.map(|said| Millis(round_up(said.0)));
    }
}

/// To four significant binary digits.
const fn round_up(value: u64) -> u64 {
    let rest = (u64::BITS - value.leading_zeros()).saturating_sub(4);
    let mask = (1 << rest) - 1;
    match value.checked_add(mask) {
        Some(sum) => sum & !mask,
        None => value,
    }
}

/// When a job started as the fleet was played forward, and after what.
#[derive(Debug, Clone, Copy)]
struct PlayedStart<'a> {
    job: &'a Job,
    /// The end of time for one that did not.
    at: Millis,
    after_window: bool,
    for_nodes: Option<Millis>,
}

impl<'a> PlayedStart<'a> {
    fn of_record(job: &'a Job, record: &JobRecord) -> Self {
        let waited = record.sent.zip(record.started).filter(|(sent, started)| started > sent);
        let for_nodes = waited.map(|(sent, started)| started.since(sent));
        let (at, after_window) = (record.started.unwrap_or(Millis(u64::MAX)), record.after_window);
        Self { job, at, after_window, for_nodes }
    }

    /// One with which it starts together.
    fn wait_for(&mut self, other: &Self) {
        self.after_window = match self.at.cmp(&other.at) {
            Ordering::Less => other.after_window,
            Ordering::Equal => self.after_window || other.after_window,
            Ordering::Greater => self.after_window,
        };
        self.at = self.at.max(other.at);
        self.for_nodes = self.for_nodes.max(other.for_nodes);
    }
}

/// None of those that start together starts before the last of them, and each rests on what any of them waits for.
fn hold_for_last_of_unit(state: &State, expected: &mut [PlayedStart<'_>]) {
    let units = state.jobs.iter().filter_map(|job| Some((&*job.name, job.starts_with.as_deref()?)));
    let units: HashMap<&str, &str> = units.collect();
    let mut whole: HashMap<&str, PlayedStart<'_>> = HashMap::new();
    for start in expected.iter() {
        if let Some(unit) = units.get(&*start.job.name) {
            whole.entry(unit).or_insert(*start).wait_for(start);
        }
    }
    for start in expected {
        if let Some(whole) = units.get(&*start.job.name).and_then(|unit| whole.get(unit)) {
            *start = PlayedStart { job: start.job, ..*whole };
        }
    }
}

impl StartBasis {
    fn count(&mut self, source: RunSource, overdue: bool) {
        self.before += 1;
        self.overdue += usize::from(overdue || source == RunSource::Outran);
        let counted = match source {
            RunSource::Said | RunSource::Outran => return,
            RunSource::Corrected => &mut self.corrected,
            RunSource::AsQueue => &mut self.as_queue,
            RunSource::Limit => &mut self.to_limit,
            RunSource::Assumed => &mut self.unestimated,
        };
        *counted += 1;
    }

    /// Every job that it depends on said how long it runs, and keeps to it so far; and no node has to come first, for
    /// it or for them.
    #[must_use]
    pub const fn is_sure(&self) -> bool {
        self.for_nodes.is_none()
            && self.for_nodes_before == 0
            && self.unestimated == 0
            && self.to_limit == 0
            && self.as_queue == 0
            && self.overdue == 0
    }

    /// In words, with the time that was assumed.
    #[must_use]
    pub fn describe(&self, assume: Millis) -> String {
        let jobs = |count: usize| match self.before {
            1 => "the job before it".to_owned(),
            before => format!("{count} of the {before} jobs before it"),
        };
        let mut parts = Vec::new();
        let give = |count: usize| if count == 1 { "gives" } else { "give" };
        if self.unestimated > 0 {
            let (jobs, give) = (jobs(self.unestimated), give(self.unestimated));
            parts.push(format!("{jobs} {give} no estimate; assumed {assume}"));
        }
        if self.to_limit > 0 {
            let (jobs, give) = (jobs(self.to_limit), give(self.to_limit));
            parts.push(format!("{jobs} {give} no estimate; assumed to run for as long as they may"));
        }
        if self.as_queue > 0 {
            let (jobs, give) = (jobs(self.as_queue), give(self.as_queue));
            parts.push(format!("{jobs} {give} no estimate; assumed to run as the last of their queues did"));
        }
        if self.overdue > 0 {
            parts.push(format!("{} should have ended by now", jobs(self.overdue)));
        }
        if self.for_nodes_before > 0 {
            let wait = if self.for_nodes_before == 1 { "waits" } else { "wait" };
            parts.push(format!("{} {wait} for nodes to come", jobs(self.for_nodes_before)));
        }
        let of_others = match (parts.is_empty(), self.before) {
            (false, _) => Some(parts.join("; ")),
            (true, 0) => None,
            (true, 1) if self.corrected > 0 => {
                Some("if the job before it keeps to what it says as the last of its queue did".to_owned())
            }
            (true, 1) => Some("if the job before it ends as it says".to_owned()),
            (true, before) if self.corrected > 0 => {
                Some(format!("if the {before} jobs before it keep to what they say as the last of their queues did"))
            }
            (true, before) => Some(format!("if the {before} jobs before it end as they say")),
        };
        let window = self.after_window.then(|| "once the maintenance window ends".to_owned());
        let nodes = self.for_nodes.map(|delay| format!("if new nodes come within {delay}"));
        let all: Vec<String> = window.into_iter().chain(nodes).chain(of_others).collect();
        if all.is_empty() { "nothing runs or starts before it".to_owned() } else { all.join("; ") }
    }
}

#[cfg(test)]
mod tests;
