//! What is told about a simulation, and how each number is computed.
//!
//! | number | is |
//! |---|---|
//! | wait | from arrival until the last pod of the gang is bound; a job that never started counts with its wait so far |
//! | class (JWTD) | what the whole gang asks for of the main resource, of bytes in Gi: 0, 1, 2-8, 9-64, 65-512, 513+ |
//! | GAR | allocated / capacity at an instant: median and most over time |
//! | SOR | allocated x time / capacity x time: over all, until the last arrival, and only while some job waited |
//! | held idle | the part of capacity x time that is bound to jobs which can not run yet |
//! | lost | the part of allocated x time of runs that were cut short |
//! | data fetched | bytes of data that were not where jobs were sent, each time; sizes in other units do not count |
//! | GFR | nodes of which some but not all is free / nodes that have any, over time; of open: / nodes with some free |
//! | deviation, Jain | see `metrics::fairness`: only while some queue wants more than it has |
//! | starved | waited more than so many times the bound of `metrics::backlog` (and a minute) |
//! | over limit | time in which some queue really held more in clusters than its `capability` or one above |

use std::collections::BTreeMap;

use caldera_core::gang::QueueName;
use serde::{Serialize, Serializer};

use crate::{
    metrics::{JobRecord, MILLION, Sample},
    run::Outcome,
    time::Millis,
    world::World,
};

/// A fraction, in millionths. Written to JSON as a number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ratio(pub u64);

impl Ratio {
    /// `part / whole`; 0 of nothing.
    #[must_use]
    pub fn of(part: u128, whole: u128) -> Self {
        let millionths = part.saturating_mul(MILLION).checked_div(whole).unwrap_or(0);
        Self(u64::try_from(millionths).unwrap_or(u64::MAX))
    }

    /// `12.3 %`.
    #[must_use]
    pub fn percent(self) -> String {
        let tenths = (self.0 + 500) / 1_000;
        format!("{}.{} %", tenths / 10, tenths % 10)
    }
}

impl Serialize for Ratio {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0 as f64 / 1e6)
    }
}

/// How long jobs waited, by nearest rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Waits {
    /// Jobs.
    pub jobs: usize,
    /// Of them, those that never started.
    pub unstarted: usize,
    /// The shortest wait so far of one that never started: from here on the numbers are lower bounds.
    pub exact_below: Option<Millis>,
    /// Half of them waited no longer.
    pub p50: Millis,
    /// Nine of ten.
    pub p90: Millis,
    /// Ninety-nine of a hundred.
    pub p99: Millis,
    /// All.
    pub max: Millis,
}

/// How queues fared against their fair shares.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Shares {
    /// Time in which some queue wanted more than it had.
    pub contended_seconds: Millis,
    /// Over that time: the largest distance from a fair share, as a part of the capacity.
    pub mean_deviation: Ratio,
    /// The largest ever.
    pub max_deviation: Ratio,
    /// Over that time: Jain's index of used by fair.
    pub jain: Ratio,
    /// Time in which some queue was short of its share by more than the largest job.
    pub short_by_a_job_seconds: Millis,
    /// The longest such stretch.
    pub longest_short_seconds: Millis,
}

/// One policy's report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Who decided.
    pub policy: String,
    /// What the shares below are of.
    pub resource: String,
    /// Of it, in all clusters at the end: the most there was.
    pub capacity: u64,
    /// Of it, when it began.
    pub first_capacity: u64,
    /// All jobs.
    pub jobs: usize,
    /// Ended.
    pub finished: usize,
    /// Never started, though they could.
    pub unstarted: usize,
    /// Ask for more than an empty fleet, or their queues' ceilings, would give.
    pub never_fit: usize,
    /// Waited out of all proportion.
    pub starved: usize,
    /// Were sent to members where a part of them had to wait.
    pub waited_in_members: usize,
    /// Times that a job was taken back.
    pub preemptions: u64,
    /// From the first arrival to the last end.
    pub makespan_seconds: Millis,
    /// Of all jobs.
    pub wait_seconds: Waits,
    /// By what the gang asks for of the resource.
    pub wait_seconds_by_class: BTreeMap<Class, Waits>,
    /// By queue.
    pub wait_seconds_by_queue: BTreeMap<QueueName, Waits>,
    /// See the module.
    pub gar_median: Ratio,
    /// See the module.
    pub gar_most: Ratio,
    /// See the module.
    pub sor: Ratio,
    /// See the module.
    pub sor_while_arriving: Ratio,
    /// See the module.
    pub sor_while_waiting: Ratio,
    /// See the module.
    pub held_idle: Ratio,
    /// See the module.
    pub lost: Ratio,
    /// See the module; `None` where no job says where its data is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetched_bytes: Option<u64>,
    /// See the module.
    pub gfr: Ratio,
    /// See the module.
    pub gfr_of_open: Ratio,
    /// See the module.
    pub shares: Shares,
    /// See the module.
    pub over_limit_seconds: Millis,
}

/// A size class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Asks for none of the resource.
    None,
    /// For at most so much.
    UpTo(u64),
    /// For more than any.
    Beyond,
}

const CLASSES: [(u64, &str); 5] = [(1, "1"), (8, "2-8"), (64, "9-64"), (512, "65-512"), (u64::MAX, "513+")];

impl Class {
    /// Of a gang that asks for so many units.
    #[must_use]
    pub fn of(units: u64) -> Self {
        match CLASSES.into_iter().find(|(most, _)| units <= *most) {
            _ if units == 0 => Self::None,
            Some((u64::MAX, _)) | None => Self::Beyond,
            Some((most, _)) => Self::UpTo(most),
        }
    }

    /// As reports write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        let most = match self {
            Self::None => return "0",
            Self::UpTo(most) => most,
            Self::Beyond => u64::MAX,
        };
        CLASSES.into_iter().find(|(class, _)| *class == most).map_or("", |(_, name)| name)
    }
}

impl Serialize for Class {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A job's size class.
#[must_use]
pub fn class_of(world: &World, outcome: &Outcome, job: usize) -> Class {
    let units = u64::try_from(world.jobs[job].shape.full.get(outcome.resource.as_str()).units_ceil()).unwrap_or(0);
    Class::of(if outcome.resource.counts_bytes() { units.div_ceil(1 << 30) } else { units })
}

/// How long a job waited, or has waited so far.
#[must_use]
pub fn wait_of(outcome: &Outcome, job: &JobRecord) -> Millis {
    job.started.unwrap_or(outcome.end).since(job.arrival)
}

/// True if a job waited more than `times` its bound, and more than so many minutes.
#[must_use]
pub fn is_starved(outcome: &Outcome, job: &JobRecord, times: u32) -> bool {
    let bound = job.bound.max(Millis::from_secs(60));
    !job.resumed && wait_of(outcome, job).0 > bound.0.saturating_mul(times.into())
}

fn waited_in_member(job: &JobRecord) -> bool {
    // After an eviction the last sending is later than the first start.
    job.sent.is_some_and(|sent| job.started.is_none_or(|started| started > sent))
}

impl Report {
    /// The report of an outcome; `starved_after`: how many times its bound a job may wait before it counts as starved.
    #[must_use]
    pub fn new(policy: &str, world: &World, outcome: &Outcome, starved_after: u32) -> Self {
        let arrived = |job: &JobRecord| job.arrival <= outcome.end;
        let reported: Vec<usize> = (0..world.jobs.len())
            .filter(|i| {
                arrived(&outcome.jobs[*i]) && !outcome.jobs[*i].resumed && outcome.never.binary_search(i).is_err()
            })
            .collect();
        let mut by_class: BTreeMap<Class, Vec<usize>> = BTreeMap::new();
        let mut by_queue: BTreeMap<QueueName, Vec<usize>> = BTreeMap::new();
        for job in &reported {
            by_class.entry(class_of(world, outcome, *job)).or_default().push(*job);
            by_queue.entry(world.jobs[*job].queue.clone()).or_default().push(*job);
        }
        let first = outcome.jobs.iter().map(|job| job.arrival).min().unwrap_or_default().max(world.start);
        let last = outcome.jobs.iter().filter_map(|job| job.ended).max().unwrap_or(outcome.end);
        let last_arrival = outcome.jobs.iter().map(|job| job.arrival).max().unwrap_or_default();
        let times = Times::of(outcome, last_arrival);
        let fairness = outcome.fairness;
        let contended = u128::from(fairness.contended.0);
        Self {
            policy: policy.to_owned(),
            resource: outcome.resource.to_string(),
            capacity: outcome.capacity,
            first_capacity: outcome.first_capacity,
            jobs: world.jobs.len(),
            finished: outcome.jobs.iter().filter(|job| job.ended.is_some()).count(),
            unstarted: reported.iter().filter(|job| outcome.jobs[**job].started.is_none()).count(),
            never_fit: outcome.never.len(),
            starved: reported.iter().filter(|job| is_starved(outcome, &outcome.jobs[**job], starved_after)).count(),
            waited_in_members: outcome.jobs.iter().filter(|job| waited_in_member(job)).count(),
            preemptions: outcome.jobs.iter().map(|job| u64::from(job.evictions)).sum(),
            makespan_seconds: last.since(first),
            wait_seconds: summarize_waits(outcome, &reported),
            wait_seconds_by_class: by_class
                .into_iter()
                .map(|(class, jobs)| (class, summarize_waits(outcome, &jobs)))
                .collect(),
            wait_seconds_by_queue: by_queue
                .into_iter()
                .map(|(queue, jobs)| (queue, summarize_waits(outcome, &jobs)))
                .collect(),
            gar_median: times.median,
            gar_most: times.most,
            sor: Ratio::of(times.allocated, times.capacity),
            sor_while_arriving: Ratio::of(times.allocated_arriving, times.capacity_arriving),
            sor_while_waiting: Ratio::of(times.allocated_waiting, times.capacity_waiting),
            held_idle: Ratio::of(times.allocated.saturating_sub(times.working), times.capacity),
            lost: Ratio::of(outcome.lost, times.allocated),
            fetched_bytes: outcome.fetched,
            gfr: Ratio::of(times.fragmented, times.nodes),
            gfr_of_open: Ratio::of(times.fragmented, times.open),
            shares: Shares {
                contended_seconds: fairness.contended,
                mean_deviation: Ratio::of(fairness.deviation, contended * MILLION),
                max_deviation: Ratio(u64::try_from(fairness.worst).unwrap_or(u64::MAX)),
                jain: Ratio::of(fairness.jain, contended * MILLION),
                short_by_a_job_seconds: fairness.beyond_one_job,
                longest_short_seconds: fairness.longest,
            },
            over_limit_seconds: times.over,
        }
    }
}

fn summarize_waits(outcome: &Outcome, jobs: &[usize]) -> Waits {
    let mut waits: Vec<Millis> = jobs.iter().map(|job| wait_of(outcome, &outcome.jobs[*job])).collect();
    waits.sort_unstable();
    let rank = |percent: usize| waits.get((waits.len() * percent).div_ceil(100).saturating_sub(1)).copied();
    let unstarted = || jobs.iter().map(|job| &outcome.jobs[*job]).filter(|job| job.started.is_none());
    let exact_below = unstarted().map(|job| wait_of(outcome, job)).min();
    let unstarted = unstarted().count();
    let [p50, p90, p99, max] = [50, 90, 99, 100].map(|percent| rank(percent).unwrap_or_default());
    Waits { jobs: jobs.len(), unstarted, exact_below, p50, p90, p99, max }
}

/// Each sample with how long it held.
pub(crate) fn list_samples_with_durations(outcome: &Outcome) -> impl Iterator<Item = (&Sample, Millis)> {
    let next = outcome.samples.iter().skip(1).map(|sample| sample.at).chain([outcome.end]);
    outcome.samples.iter().zip(next).map(|(sample, next)| (sample, next.since(sample.at)))
}

/// Sums of units times milliseconds.
#[derive(Default)]
struct Times {
    capacity: u128,
    allocated: u128,
    working: u128,
    capacity_arriving: u128,
    allocated_arriving: u128,
    capacity_waiting: u128,
    allocated_waiting: u128,
    nodes: u128,
    open: u128,
    fragmented: u128,
    median: Ratio,
    most: Ratio,
    over: Millis,
}

impl Times {
    fn of(outcome: &Outcome, last_arrival: Millis) -> Self {
        let mut times = Self::default();
        let mut levels: BTreeMap<Ratio, u128> = BTreeMap::new();
        for (sample, time) in list_samples_with_durations(outcome) {
            let (millis, tally) = (u128::from(time.0), sample.tally);
            if millis == 0 {
                continue;
            }
            times.capacity += u128::from(tally.capacity) * millis;
            times.allocated += u128::from(tally.allocated) * millis;
            times.working += u128::from(sample.working) * millis;
            let arriving = u128::from(time.min(last_arrival.since(sample.at)).0);
            times.capacity_arriving += u128::from(tally.capacity) * arriving;
            times.allocated_arriving += u128::from(tally.allocated) * arriving;
            if sample.waiting > 0 {
                times.capacity_waiting += u128::from(tally.capacity) * millis;
                times.allocated_waiting += u128::from(tally.allocated) * millis;
            }
            times.nodes += u128::from(tally.nodes) * millis;
            times.open += u128::from(tally.open) * millis;
            times.fragmented += u128::from(tally.fragmented) * millis;
            let level = Ratio::of(tally.allocated.into(), tally.capacity.into());
            times.most = times.most.max(level);
            *levels.entry(level).or_default() += millis;
            if sample.over {
                times.over = times.over.plus(time);
            }
        }
        let all: u128 = levels.values().sum();
        let mut below = 0;
        let reached = |(_, time): &(&Ratio, &u128)| {
            below += **time;
            below * 2 >= all
        };
        times.median = levels.iter().find(reached).map_or(Ratio(0), |(level, _)| *level);
        times
    }
}
