//! What happened, written down while it happens: each job's instants, and sums over time.
//!
//! The names GAR (GPU allocation ratio), SOR (scheduling occupancy rate), GFR (GPU node fragmentation ratio) and JWTD
//! (job waiting time distribution) are those of Kant (arXiv 2510.01256); [`crate::report`] says how each is computed.

mod backlog;
pub(crate) mod books;
mod fairness;

use caldera_core::resources::{Limits, ResourceName, Resources};

use self::backlog::{Backlog, Share, WHOLE};
pub use self::{
    books::Books,
    fairness::{MILLION, Sums},
};
use crate::{
    members::Tally,
    time::Millis,
    world::{Hold, World},
};

/// A job's instants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobRecord {
    /// When it was submitted.
    pub arrival: Millis,
    /// It ran already when the simulation began: its wait is nobody's merit.
    pub resumed: bool,
    /// How long it would have waited if all that was there before it had only been worked off.
    pub bound: Millis,
    /// When it was last sent to members.
    pub sent: Option<Millis>,
    /// Then a maintenance window ended that had kept it out there.
    pub after_window: bool,
    /// When its last part was bound, the first time.
    pub started: Option<Millis>,
    /// When it ended.
    pub ended: Option<Millis>,
    /// How often it was taken back.
    pub evictions: u32,
    /// Clusters it was bound in, the last time.
    pub clusters: u32,
}

/// The whole, from one instant to the next change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// Since when.
    pub at: Millis,
    /// Sums over nodes.
    pub tally: Tally,
    /// Of the main resource, held by jobs all of whose parts are bound.
    pub working: u64,
    /// Jobs in line.
    pub waiting: u32,
    /// Jobs in members that do not run yet.
    pub sent: u32,
    /// Jobs that run.
    pub running: u32,
    /// Some queue holds more than its ceiling.
    pub over: bool,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Recorder {
    main: ResourceName,
    pub(crate) jobs: Vec<JobRecord>,
    pub(crate) samples: Vec<Sample>,
    /// As it is since something last changed.
    now: Sample,
    clock: Millis,
    working_nano: i128,
    /// Units of the main resource times milliseconds of runs that were cut short.
    pub(crate) lost: u128,
    /// Bytes that jobs had to fetch, each time that they were sent somewhere.
    pub(crate) fetched: u64,
    books: Books,
    fairness: fairness::Fairness,
    fleet: Backlog,
    queues: Vec<Backlog>,
    facts: Vec<Facts>,
}

/// Of a job, what does not change.
#[derive(Debug, Clone)]
struct Facts {
    queue: caldera_core::gang::QueueName,
    /// Its queue's place in the backlogs.
    line: usize,
    run: Millis,
    /// Of the main resource, at full size.
    wanted: i128,
    of_fleet: Share,
    of_queue: Share,
    /// The part of it that is still asked for.
    asked: i128,
    /// Of the main resource, in clusters now.
    held: i128,
    since: Millis,
    ends: Millis,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Away,
    Waiting,
    Sent,
    Running,
}

impl Recorder {
    pub(crate) fn new(world: &World, main: &ResourceName) -> Self {
        let (total, books) = (world.total(), Books::new(&world.queues));
        let place = |queue: &caldera_core::gang::QueueName| world.queues.iter().position(|one| one.name == *queue);
        let ceilings: Vec<Limits> = world.queues.iter().map(|queue| books.ceilings(&queue.name)).collect();
        let facts: Vec<Facts> = world
            .jobs
            .iter()
            .map(|job| {
                let demand = &job.shape.full;
                let line = place(&job.queue).unwrap_or(0);
                let of = |name: &ResourceName| {
                    let total = total.get(name.as_str());
                    ceilings[line].get(name.as_str()).map_or(total, |ceiling| ceiling.min(total))
                };
                Facts {
                    queue: job.queue.clone(),
                    line,
                    run: job.run,
                    wanted: demand.get(main.as_str()).as_nano(),
                    of_fleet: dominant(demand, |name| total.get(name.as_str()).as_nano()),
                    of_queue: dominant(demand, |name| of(name).as_nano()),
                    asked: 0,
                    held: 0,
                    since: Millis::ZERO,
                    ends: Millis::ZERO,
                    stage: Stage::Away,
                }
            })
            .collect();
        let largest = facts.iter().map(|facts| facts.wanted).max().unwrap_or(0);
        let largest = u128::try_from(largest).unwrap_or(0);
        let records = world.jobs.iter().map(|job| JobRecord { arrival: job.arrival, ..JobRecord::default() });
        Self {
            main: main.clone(),
            jobs: records.collect(),
            samples: Vec::new(),
            now: Sample { at: world.start, ..Sample::default() },
            clock: world.start,
            working_nano: 0,
            lost: 0,
            fetched: 0,
            fairness: fairness::Fairness::new(&world.queues, main, &total, largest),
            books,
            fleet: Backlog::default(),
            queues: vec![Backlog::default(); world.queues.len()],
            facts,
        }
    }

    /// What every queue holds.
    #[must_use]
    pub const fn books(&self) -> &Books {
        &self.books
    }

    pub(crate) const fn fairness(&self) -> Sums {
        self.fairness.sums
    }

    pub(crate) fn arrived(&mut self, job: usize) {
        let (line, now) = (self.facts[job].line, self.clock);
        self.jobs[job].bound = self.fleet.estimate_wait(now).max(self.queues[line].estimate_wait(now));
        self.record_waiting(job);
    }

    pub(crate) fn resumed(&mut self, job: usize) {
        self.record_waiting(job);
        self.jobs[job].resumed = true;
        self.sent(job, false);
    }

    pub(crate) fn sent(&mut self, job: usize, after_window: bool) {
        self.add_elapsed();
        (self.jobs[job].sent, self.jobs[job].after_window) = (Some(self.clock), after_window);
        self.jobs[job].clusters = 0;
        self.facts[job].stage = Stage::Sent;
        (self.now.waiting, self.now.sent) = (self.now.waiting - 1, self.now.sent + 1);
    }

    /// What is not there where a job was sent.
    pub(crate) const fn fetched(&mut self, bytes: u64) {
        self.fetched = self.fetched.saturating_add(bytes);
    }

    /// Parts were bound.
    pub(crate) fn bound(&mut self, job: usize, holds: &[Hold]) {
        self.add_elapsed();
        let held = sum(holds);
        let amount = held.get(self.main.as_str()).as_nano();
        let facts = &mut self.facts[job];
        facts.held += amount;
        self.jobs[job].clusters += clusters(holds);
        self.books.add(&facts.queue, &held);
        self.fairness.change_used(&facts.queue, amount);
        // What is bound is not waited for; copies may be more than was asked.
        let met = amount.min(facts.asked);
        facts.asked -= met;
        self.fairness.change_waiting(&facts.queue, -met);
    }

    pub(crate) fn started(&mut self, job: usize, ends: Millis) {
        self.add_elapsed();
        self.jobs[job].started.get_or_insert(self.clock);
        let facts = &mut self.facts[job];
        (facts.stage, facts.since, facts.ends) = (Stage::Running, self.clock, ends);
        self.fairness.change_waiting(&facts.queue, -std::mem::take(&mut facts.asked));
        self.working_nano += facts.held;
        (self.now.sent, self.now.running) = (self.now.sent - 1, self.now.running + 1);
        for (backlog, share) in [(&mut self.fleet, facts.of_fleet), (&mut self.queues[facts.line], facts.of_queue)] {
            backlog.remove_waiting(share, facts.run);
            backlog.add_running(share, ends);
        }
    }

    /// A run ends later than was thought.
    pub(crate) fn delayed(&mut self, job: usize, ends: Millis) {
        let facts = &mut self.facts[job];
        let before = std::mem::replace(&mut facts.ends, ends);
        for (backlog, share) in [(&mut self.fleet, facts.of_fleet), (&mut self.queues[facts.line], facts.of_queue)] {
            backlog.remove_running(share, before);
            backlog.add_running(share, ends);
        }
    }

    pub(crate) fn ended(&mut self, job: usize) {
        self.jobs[job].ended = Some(self.clock);
    }

    pub(crate) fn evicted(&mut self, job: usize) {
        let facts = &self.facts[job];
        if facts.stage == Stage::Running {
            let units = u128::try_from(facts.held / 1_000_000_000).unwrap_or(0);
            self.lost += units * u128::from(self.clock.since(facts.since).0);
        }
        self.jobs[job].evictions += 1;
    }

    /// A job that was sent is not in members any longer: it ended, or waits again.
    pub(crate) fn unbound(&mut self, job: usize, holds: &[Hold], waits_again: bool) {
        self.add_elapsed();
        let held = sum(holds);
        let amount = held.get(self.main.as_str()).as_nano();
        let facts = &mut self.facts[job];
        self.books.sub(&facts.queue, &held);
        self.fairness.change_used(&facts.queue, -amount);
        self.fairness.change_waiting(&facts.queue, -std::mem::take(&mut facts.asked));
        if facts.stage == Stage::Running {
            self.working_nano -= amount;
            self.now.running -= 1;
            self.fleet.remove_running(facts.of_fleet, facts.ends);
            self.queues[facts.line].remove_running(facts.of_queue, facts.ends);
        } else {
            self.now.sent -= 1;
            self.fleet.remove_waiting(facts.of_fleet, facts.run);
            self.queues[facts.line].remove_waiting(facts.of_queue, facts.run);
        }
        (facts.held, facts.stage) = (0, Stage::Away);
        if waits_again {
            self.record_waiting(job);
        }
    }

    fn record_waiting(&mut self, job: usize) {
        self.add_elapsed();
        let facts = &mut self.facts[job];
        facts.stage = Stage::Waiting;
        self.now.waiting += 1;
        facts.asked = facts.wanted;
        self.fairness.change_waiting(&facts.queue, facts.wanted);
        self.fleet.add_waiting(facts.of_fleet, facts.run);
        self.queues[facts.line].add_waiting(facts.of_queue, facts.run);
    }

    /// It is `now`. What passed counts once something changes.
    pub(crate) const fn set_clock(&mut self, now: Millis) {
        self.clock = now;
    }

    /// Until now everything was as noted last.
    pub(crate) fn add_elapsed(&mut self) {
        self.fairness.add_elapsed(self.clock.since(self.now.at));
        self.now.at = self.clock;
    }

    /// When something last changed.
    pub(crate) const fn last_change(&self) -> Millis {
        self.now.at
    }

    /// Notes how everything is, now that all of this instant has happened.
    pub(crate) fn record_instant(&mut self, tally: Tally) {
        if self.now.at != self.clock {
            return;
        }
        self.fairness.measure_shares();
        self.now.tally = tally;
        self.now.working = u64::try_from(self.working_nano / 1_000_000_000).unwrap_or(0);
        self.now.over = self.books.list_queues_over_ceiling().next().is_some();
        let same = |last: &Sample| Sample { at: self.now.at, ..*last } == self.now;
        if self.samples.last().is_none_or(|last| !same(last)) {
            self.samples.push(self.now);
        }
    }
}

fn sum(holds: &[Hold]) -> Resources {
    let mut sum = Resources::new();
    holds.iter().for_each(|hold| sum.add(&hold.amount));
    sum
}

fn clusters(holds: &[Hold]) -> u32 {
    let mut clusters: Vec<usize> = holds.iter().map(|hold| hold.cluster).collect();
    clusters.sort_unstable();
    clusters.dedup();
    u32::try_from(clusters.len()).unwrap_or(u32::MAX)
}

/// The largest part of any resource that a demand is, in billionths; of what there is nothing of, all.
fn dominant(demand: &Resources, of: impl Fn(&ResourceName) -> i128) -> Share {
    let share = |(name, asked): (&ResourceName, caldera_core::quantity::Quantity)| match of(name) {
        0 => WHOLE,
        of => asked.as_nano().saturating_mul(WHOLE) / of,
    };
    demand.iter().map(share).max().unwrap_or(0).min(WHOLE)
}
