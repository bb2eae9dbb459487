//! How far expected starts are from the real ones: a trace is simulated, and at the submission of every so many-th job
//! its start is worked out from what is known then.
//!
//! Rule: known are who waits, who runs and since when, what users said, and how long those ran that ended; not how long
//! the others really run, nor what arrives later. Beside it stands the guess that needs no simulation: the mean wait of
//! the jobs of the queue that started so far.

use caldera_core::{gang::QueueName, past_runs::PastRuns};

use crate::{
    expected_start::round_estimates,
    live::{RunTime, StatedRun, expect_run},
    policy::PolicyName,
    run::{Options, simulate_observed, simulate_while},
    site::{JobState, Site},
    time::Millis,
    world::{Job, World},
};

/// An expected start beside the real one; all from the submission on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checked {
    /// How long the job really waited.
    pub wait: Millis,
    /// How long it was expected to wait; `None` if no start was found.
    pub expected: Option<Millis>,
    /// The mean wait of its queue's jobs until then.
    pub guess: Millis,
}

/// What a back-test found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BackTest {
    /// Jobs that started at their submission: nothing was to be expected.
    pub at_once: usize,
    /// Those that waited, and started some time.
    pub checked: Vec<Checked>,
}

/// Simulates the world, and works out the start of every `every`-th job that waits; jobs that do not say how long they
/// run are taken to run for `assume`.
#[must_use]
pub fn back_test(world: &World, every: usize, assume: Millis) -> BackTest {
    let mut asked: Vec<(usize, Option<Millis>, Millis)> = Vec::new();
    let mut tested = BackTest::default();
    let (mut next, mut open, mut past) = (0, Vec::new(), PastRuns::default());
    let outcome = simulate_observed(world, PolicyName::Caldera.start(world).as_mut(), &Options::default(), |site| {
        record_ended(site, &mut open, &mut past);
        while world.jobs.get(next).is_some_and(|job| job.arrival <= site.now()) {
            let job = next;
            next += 1;
            open.push(job);
            if job % every.max(1) != 0 {
                continue;
            }
            match site.state(job) {
                JobState::Waiting => asked.push((job, expect_start(site, job, &past, assume), mean_wait(site, job))),
                _ => tested.at_once += 1,
            }
        }
    });
    for (job, expected, guess) in asked {
        let record = &outcome.jobs[job];
        if let Some(started) = record.started {
            tested.checked.push(Checked { wait: started.since(record.arrival), expected, guess });
        }
    }
    tested
}

/// Remembers how long those ran that have ended.
fn record_ended(site: &Site<'_>, open: &mut Vec<usize>, past: &mut PastRuns) {
    open.retain(|index| {
        let record = &site.recorder.jobs[*index];
        let (Some(started), Some(ended)) = (record.started, record.ended) else { return true };
        let job = site.job(*index);
        past.record_run(&job.queue, ended.since(started).seconds(), job.estimate.map(Millis::seconds));
        false
    });
}

/// How long a job will wait from now on, by what is known now.
fn expect_start(site: &Site<'_>, job: usize, past: &PastRuns, assume: Millis) -> Option<Millis> {
    let name = &site.job(job).name;
    let mut world = known_world(site, past, assume).ok()?;
    round_estimates(&mut world);
    let place = world.jobs.iter().position(|one| one.name == *name)?;
    let waits = |site: &Site<'_>| site.recorder.jobs[place].started.is_none();
    let options = Options { until_started: true, ..Options::default() };
    let outcome = simulate_while(&world, PolicyName::Caldera.start(&world).as_mut(), &options, waits);
    Some(outcome.jobs[place].started?.since(site.now()))
}

/// What is known now, as a world of its own.
fn known_world(site: &Site<'_>, past: &PastRuns, assume: Millis) -> Result<World, crate::world::WorldError> {
    let (world, now) = (site.world(), site.now());
    let known = |index: usize| {
        let job = site.job(index);
        let (running, ran) = match site.state(index) {
            JobState::Future | JobState::Done => return None,
            JobState::Waiting | JobState::Sent { .. } => (None, None),
            JobState::Running { holds, since, .. } => (Some(holds.clone()), Some(now.since(*since))),
        };
        let reported = StatedRun { said: job.estimate, limit: None, ran };
        let RunTime { run, estimate, .. } = expect_run(past, &job.queue, reported, assume);
        Some(Job { run, estimate, running, ..job.clone() })
    };
    let jobs = (0..world.jobs.len()).filter_map(known).collect();
    let (links, rules, terms) = (world.links.clone(), world.rules.clone(), world.terms.clone());
    let fresh = World::new(world.clusters.clone(), world.queues.clone(), jobs, now)?;
    Ok(World { links, rules, terms, ..fresh })
}

/// The mean wait of those of the job's queue that started so far.
fn mean_wait(site: &Site<'_>, job: usize) -> Millis {
    let queue: &QueueName = &site.job(job).queue;
    let jobs = site.world().jobs.iter().zip(&site.recorder.jobs);
    let waits = jobs.filter(|(job, _)| job.queue == *queue);
    let waits = waits.filter_map(|(_, record)| Some(record.started?.since(record.arrival).0));
    let (sum, count) = waits.fold((0_u64, 0_u64), |(sum, count), wait| (sum.saturating_add(wait), count + 1));
    Millis(sum.checked_div(count).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use caldera_core::{quantity::Quantity, queue::QueueSpec, resources::Resources};

    use super::*;
    use crate::world::{Shapes, cluster, gang, task};

    /// Two cores; three jobs of two cores arrive at 0, 10 and 20 s, run for 100 s and say 100, 200 and 100 s.
    #[test]
    fn an_expected_start_knows_what_was_said_and_not_what_was_true() {
        let cores: Resources = [("cpu", Quantity::from_units(2))].into_iter().collect();
        let shape = Shapes::default().gang(gang(vec![task("t", 1, 1, cores.clone())]));
        let job = |(name, arrival, said): (&str, u64, u64)| Job {
            name: name.into(),
            queue: "q".into(),
            priority: 0,
            arrival: Millis::from_secs(arrival),
            run: Millis::from_secs(100),
            estimate: Some(Millis::from_secs(said)),
            shape: std::sync::Arc::clone(&shape),
            running: None,
        };
        let jobs = [("a", 0, 100), ("b", 10, 200), ("c", 20, 100)].map(job).to_vec();
        let queues = vec![QueueSpec::unlimited("q")];
        let world = World::new(vec![cluster("m", &[(1, cores)])], queues, jobs, Millis::ZERO).unwrap();
        let found = back_test(&world, 1, Millis::from_secs(3600));
        let secs = Millis::from_secs;
        let b = Checked { wait: secs(90), expected: Some(secs(90)), guess: Millis::ZERO };
        let c = Checked { wait: secs(180), expected: Some(secs(280)), guess: Millis::ZERO };
        assert_eq!(found, BackTest { at_once: 1, checked: vec![b, c] });
    }
}
