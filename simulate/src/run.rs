//! The simulation: events in the order of virtual time, a decision after each instant.
//!
//! An instant is an arrival, an end, the end of a maintenance window, when nodes come that were asked for, or when the
//! policy asks to be asked again. At one instant jobs end first, then others arrive, then members bind what waits in
//! them, then the policy decides, and nodes are asked for that pods still wait for. The same world and policy give the
//! same history, to the last tie.

use std::cmp::Reverse;

use caldera_core::resources::ResourceName;

use crate::{
    metrics::{JobRecord, Sample, Sums},
    policy::Policy,
    site::{JobState, LookOn, Site},
    time::Millis,
    world::World,
};

/// How to simulate.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Stop here, whatever still waits or runs.
    pub horizon: Option<Millis>,
    /// Stop once nobody waits any more: starts alone are of interest.
    pub until_started: bool,
    /// What to report about; [`World::main_resource`] if not given.
    pub resource: Option<ResourceName>,
}

/// What happened.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// In the order of [`World::jobs`].
    pub jobs: Vec<JobRecord>,
    /// Jobs that wait for more than every cluster together, or their queues' ceilings, could ever give; not looked for
    /// where only starts are asked for, or where nobody looked on to the end.
    pub never: Vec<usize>,
    /// Whenever something changed.
    pub samples: Vec<Sample>,
    /// Queues against their fair shares.
    pub fairness: Sums,
    /// Units of the resource times milliseconds of runs that were cut short.
    pub lost: u128,
    /// Bytes that jobs had to fetch, since their data was not where they were sent; `None` where no job says where its
    /// data is.
    pub fetched: Option<u64>,
    /// The horizon, or when something last happened.
    pub end: Millis,
    /// What was reported about.
    pub resource: ResourceName,
    /// Of it, in all clusters, at the end: nodes may come, and none leaves.
    pub capacity: u64,
    /// Of it, when it began.
    pub first_capacity: u64,
    /// The instant after which nobody looked on, where that was why it ended.
    pub looked_to: Option<Millis>,
}

/// Simulates to the end.
pub fn simulate(world: &World, policy: &mut dyn Policy, options: &Options) -> Outcome {
    simulate_observed(world, policy, options, |_| {})
}

/// The same; `observe` sees the site after every instant.
pub fn simulate_observed(
    world: &World,
    policy: &mut dyn Policy,
    options: &Options,
    mut observe: impl FnMut(&Site<'_>),
) -> Outcome {
    let go_on = |site: &Site<'_>| {
        observe(site);
        true
    };
    simulate_while(world, policy, options, go_on)
}

/// The same, until `go_on` says no after an instant: then that is the end.
pub fn simulate_while(
    world: &World,
    policy: &mut dyn Policy,
    options: &Options,
    go_on: impl FnMut(&Site<'_>) -> bool,
) -> Outcome {
    simulate_while_there_is_time(world, policy, options, LookOn::default(), go_on)
}

/// The same, until there is no more time to `look_on`: what else happens in that instant is left out.
pub(crate) fn simulate_while_there_is_time<'w>(
    world: &'w World,
    policy: &mut dyn Policy,
    options: &Options,
    look_on: LookOn<'w>,
    mut go_on: impl FnMut(&Site<'_>) -> bool,
) -> Outcome {
    let resource = options.resource.clone().unwrap_or_else(|| world.main_resource());
    let horizon = options.horizon.unwrap_or(Millis(u64::MAX));
    let mut site = Site::new(world, &resource, look_on);
    let first_capacity = site.members.tally().capacity;
    resume(&mut site, policy);
    let (mut next, mut looked_to) = (0, None);
    loop {
        while let Some(job) = world.jobs.get(next).filter(|job| job.arrival <= site.now() || job.running.is_some()) {
            if job.running.is_none() {
                site.arrive(next);
                policy.arrived(&mut site, next);
            }
            next += 1;
        }
        site.bind_waiting_parts();
        policy.decide(&mut site);
        site.ask_for_nodes();
        site.recorder.record_instant(site.members.tally());
        if !go_on(&site) {
            break;
        }
        if !site.may_continue() {
            looked_to = Some(site.now());
            break;
        }
        if options.until_started && next == world.jobs.len() && !site.states.iter().any(is_expected) {
            break;
        }
        let arrival = world.jobs.get(next).map(|job| job.arrival);
        // A policy that is never content must not stop time.
        let due = policy.due(site.now()).map(|due| due.max(site.now().plus(Millis(1))));
        let next_times = [arrival, next_end(&mut site), due, site.next_growth()];
        let Some(at) = next_times.into_iter().flatten().min().filter(|at| *at <= horizon) else {
            break;
        };
        site.set_now(at);
        while next_end(&mut site).is_some_and(|end| end <= at) {
            let Some(Reverse((_, job, _))) = site.ends.pop() else { break };
            site.end(job);
            policy.ended(&mut site, job);
        }
    }
    if options.horizon.is_some() && !is_done(&site) {
        site.set_now(horizon);
        site.recorder.add_elapsed();
    }
    let end = site.recorder.last_change();
    let never = if options.until_started || looked_to.is_some() { Vec::new() } else { list_never(&mut site) };
    let (fairness, capacity) = (site.recorder.fairness(), site.members.tally().capacity);
    let fetched = world.jobs.iter().any(|job| job.shape.gang.data.is_some()).then_some(site.recorder.fetched);
    let (jobs, samples, lost) = (site.recorder.jobs, site.recorder.samples, site.recorder.lost);
    Outcome { jobs, never, samples, fairness, lost, fetched, end, resource, capacity, first_capacity, looked_to }
}

/// Each that waits is placed into the empty clusters once.
fn list_never(site: &mut Site<'_>) -> Vec<usize> {
    let waits = |job: &usize| matches!(site.states[*job], JobState::Waiting);
    let waiting: Vec<usize> = (0..site.states.len()).filter(waits).collect();
    waiting.into_iter().filter(|job| site.can_never_start(*job)).collect()
}

const fn is_expected(state: &JobState) -> bool {
    matches!(state, JobState::Waiting | JobState::Sent { .. })
}

fn is_done(site: &Site<'_>) -> bool {
    site.states.iter().all(|state| *state == JobState::Done)
}

/// Takes in what runs already.
fn resume(site: &mut Site<'_>, policy: &mut dyn Policy) {
    for job in 0..site.world().jobs.len() {
        if site.job(job).running.is_some() {
            site.resume(job);
            policy.resumed(site, job);
        }
    }
}

/// When the next job ends; ends of runs that were cut short are forgotten.
fn next_end(site: &mut Site<'_>) -> Option<Millis> {
    while let Some(Reverse((at, job, run))) = site.ends.peek() {
        if site.runs[*job] == *run && matches!(site.states[*job], JobState::Running { .. }) {
            return Some(*at);
        }
        site.ends.pop();
    }
    None
}
