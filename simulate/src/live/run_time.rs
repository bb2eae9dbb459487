//! How long a job goes on from now, and what that is taken from.
//!
//! Rule: what the last jobs of its queue tell ([`caldera_core::past_runs`]) goes before what it says, and that before
//! its limit and what is assumed of who says nothing. Where it ran for longer than all of the last did, its word counts
//! again; one that gave none should have ended by now. None runs beyond its limit.

use std::{collections::HashMap, sync::Arc};

use caldera_core::{gang::QueueName, past_runs::PastRuns, text::count_noun};

use crate::time::Millis;

/// What is left of a job that should have ended.
const OVERDUE: Millis = Millis::from_secs(60);

/// What is known of a job's run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StatedRun {
    /// How long it takes, as it says.
    pub(crate) said: Option<Millis>,
    /// After which time it is ended.
    pub(crate) limit: Option<Millis>,
    /// How long it has run, if it runs.
    pub(crate) ran: Option<Millis>,
}

/// How long a job goes on from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunTime {
    /// As it is expected.
    pub(crate) run: Millis,
    /// As it says, or until it is ended: what decisions go by.
    pub(crate) estimate: Option<Millis>,
    /// What the expected run is taken from.
    pub(crate) source: RunSource,
}

/// What an expected run is taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunSource {
    /// What the job says.
    Said,
    /// That, and how much of it the last jobs of its queue took.
    Corrected,
    /// It says nothing: how long the last jobs of its queue ran that said nothing.
    AsQueue,
    /// It says nothing, and ran for longer than all of those.
    Outran,
    /// It says nothing, nor do they: when it is ended.
    Limit,
    /// Nothing.
    Assumed,
}

/// That of each job, by its name.
pub(crate) type RunSources = HashMap<Arc<str>, RunSource>;

/// What is left of the run of a job of a queue.
pub(crate) fn expect_run(past: &PastRuns, queue: &QueueName, reported: StatedRun, assume: Millis) -> RunTime {
    let StatedRun { said, limit, ran } = reported;
    let left_of = |whole: Millis| {
        let whole = limit.map_or(whole, |limit| whole.min(limit));
        match (ran, whole.since(ran.unwrap_or_default())) {
            (Some(_), Millis::ZERO) => OVERDUE,
            (_, left) => left,
        }
    };
    let expected = past.expect_run(queue, said.map(Millis::seconds), ran.map(Millis::seconds)).map(Millis::from_secs);
    let (whole, source) = match (expected, said, ran.filter(|_| past.has_runs(queue, false)), limit) {
        (Some(whole), Some(_), ..) => (whole, RunSource::Corrected),
        (Some(whole), None, ..) => (whole, RunSource::AsQueue),
        (None, Some(said), ..) => (said, RunSource::Said),
        (None, None, Some(ran), _) => (ran, RunSource::Outran),
        (None, None, None, Some(limit)) => (limit, RunSource::Limit),
        (None, None, None, None) => (assume, RunSource::Assumed),
    };
    RunTime { run: left_of(whole), estimate: said.or(limit).map(left_of), source }
}

/// What was assumed, for people.
pub(super) fn list_run_notes(sources: &RunSources, assume: Millis) -> Vec<String> {
    let count = |is_of: fn(&RunSource) -> bool| sources.values().filter(|source| is_of(source)).count();
    let notes = [
        (count(|source| *source == RunSource::Assumed), format!("without an estimate, taken for {assume}")),
        (count(|source| *source == RunSource::Limit), "without an estimate, taken to the limit".to_owned()),
        (count(RunSource::is_of_queue), "taken to run as the last of the same queue did".to_owned()),
        (
            count(|source| *source == RunSource::Outran),
            format!("running for longer than the last of the same queue, taken for {OVERDUE} more"),
        ),
    ];
    let noted = notes.into_iter().filter(|(count, _)| *count > 0);
    noted.map(|(count, note)| format!("{} {note}", count_noun(count, "job"))).collect()
}

impl RunSource {
    const fn is_of_queue(&self) -> bool {
        matches!(self, Self::Corrected | Self::AsQueue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: fn(u64) -> Millis = Millis::from_secs;
    const ASSUME: Millis = Millis::from_secs(3_600);

    fn of_runs(ran: u64, said: Option<u64>) -> PastRuns {
        let mut past = PastRuns::default();
        (0..5).for_each(|_| past.record_run(&"q".into(), ran, said));
        past
    }

    /// Seconds that it goes on, and what it is decided by.
    fn expect(
        past: &PastRuns,
        said: Option<u64>,
        limit: Option<u64>,
        ran: Option<u64>,
    ) -> (u64, Option<u64>, RunSource) {
        let reported = StatedRun { said: said.map(SECOND), limit: limit.map(SECOND), ran: ran.map(SECOND) };
        let RunTime { run, estimate, source } = expect_run(past, &"q".into(), reported, ASSUME);
        (run.seconds(), estimate.map(Millis::seconds), source)
    }

    #[test]
    fn where_the_past_says_nothing_the_word_counts_then_the_limit_then_what_is_assumed() {
        let past = PastRuns::default();
        assert_eq!(expect(&past, Some(100), Some(500), None), (100, Some(100), RunSource::Said));
        assert_eq!(expect(&past, Some(900), Some(500), None), (500, Some(500), RunSource::Said));
        assert_eq!(expect(&past, None, Some(500), Some(200)), (300, Some(300), RunSource::Limit));
        assert_eq!(expect(&past, None, None, None), (3_600, None, RunSource::Assumed));
    }

    #[test]
    fn none_is_expected_to_run_beyond_its_limit_and_decisions_go_by_that() {
        let week = 7 * 24 * 3_600;
        let short = of_runs(300, None);
        assert_eq!(expect(&short, None, Some(week), None), (300, Some(week), RunSource::AsQueue));
        assert_eq!(expect(&short, None, Some(200), None), (200, Some(200), RunSource::AsQueue));
        let late = of_runs(200, Some(100));
        assert_eq!(expect(&late, Some(1_000), Some(1_500), None), (1_500, Some(1_000), RunSource::Corrected));
        assert_eq!(expect(&late, Some(1_000), Some(1_500), Some(1_500)), (60, Some(60), RunSource::Corrected));
    }

    #[test]
    fn what_ran_for_longer_than_all_of_the_last_goes_by_its_word_or_should_have_ended() {
        let past = of_runs(100, Some(1_000));
        assert_eq!(expect(&past, Some(1_000), None, Some(99)), (1, Some(901), RunSource::Corrected));
        assert_eq!(expect(&past, Some(1_000), None, Some(100)), (900, Some(900), RunSource::Said));
        let past = of_runs(100, None);
        assert_eq!(expect(&past, None, None, Some(99)), (1, None, RunSource::AsQueue));
        assert_eq!(expect(&past, None, None, Some(100)), (60, None, RunSource::Outran));
        assert_eq!(expect(&past, None, Some(500), Some(100)), (60, Some(400), RunSource::Outran));
    }

    #[test]
    fn a_report_says_how_many_jobs_are_taken_to_run_for_what_they_did_not_say() {
        let all = [
            RunSource::Corrected,
            RunSource::AsQueue,
            RunSource::Limit,
            RunSource::Assumed,
            RunSource::Said,
            RunSource::Outran,
        ];
        let sources = all.iter().enumerate().map(|(i, source)| (i.to_string().into(), *source)).collect();
        assert_eq!(
            list_run_notes(&sources, ASSUME),
            [
                "1 job without an estimate, taken for 1 h",
                "1 job without an estimate, taken to the limit",
                "2 jobs taken to run as the last of the same queue did",
                "1 job running for longer than the last of the same queue, taken for 1 min more",
            ]
        );
    }
}
