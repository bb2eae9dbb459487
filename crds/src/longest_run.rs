//! How long a job may run in a queue, as its admin says.
//!
//! Rule: Slurm's `MaxTime` of a partition and `MaxWall` of a QOS. A Queue's annotation [`MAX_RUN_TIME`], `4h`, is the
//! most that a job may ask for in the queue and in those below it, and counts for jobs that say nothing. The smallest
//! on the way to the root counts. One that can not be read takes no job: not knowing is no leave to start. What a job
//! says of itself is read by [`max_run_time`]; where that can not be read, the queues' word counts alone.
//!
//! [`max_run_time`]: crate::workload::annotations::max_run_time

use caldera_core::{gang::QueueName, reason::Reason, status::duration::parse_whole_seconds};
use serde_json::Value;

use crate::names::caldera::MAX_RUN_TIME;

/// Characters of a wrong text that are said again.
const SAID_AGAIN: usize = 40;

/// A queue's word on how long jobs run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LongestRun(Result<i64, String>);

impl LongestRun {
    /// Of the annotation's text.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        Self(parse_whole_seconds(text).ok_or_else(|| {
            let said: String = text.chars().take(SAID_AGAIN).collect();
            format!("{said:?} is no time that a job may run: it is a second at least, as 90s, 45m or 1h30m")
        }))
    }

    /// Of a Queue; `None` where it says nothing.
    #[must_use]
    pub fn of_queue(queue: &Value) -> Option<Self> {
        queue.pointer("/metadata/annotations")?.get(MAX_RUN_TIME)?.as_str().map(Self::parse)
    }

    /// In seconds, where it can be read.
    #[must_use]
    pub fn seconds(&self) -> Option<i64> {
        self.0.as_ref().ok().copied()
    }

    /// Why it can not be read, if so.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        self.0.as_ref().err().map(String::as_str)
    }

    /// Why a job of `queue` that asks for so many seconds is not taken by `by`, which says so; `None` if it is.
    #[must_use]
    pub fn refuse(&self, queue: &QueueName, by: &QueueName, asked: Option<i64>) -> Option<Reason> {
        let asked = match self.seconds() {
            Some(limit) => Some((asked.filter(|asked| *asked > limit)?, limit)),
            None => None,
        };
        Some(Reason::ExceedsMaxRunTime { queue: queue.clone(), by: by.clone(), asked })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(text: &str, asked: Option<i64>) -> Option<String> {
        LongestRun::parse(text).refuse(&"q".into(), &"top".into(), asked).map(|reason| reason.to_string())
    }

    #[test]
    fn a_job_that_asks_for_longer_is_not_taken_and_both_times_are_said() {
        assert_eq!(says("2h", None), None);
        assert_eq!(says("2h", Some(7_200)), None);
        assert_eq!(
            says("2h", Some(9_000)).as_deref(),
            Some("asks to run for 2h30m, longer than the 2h that queue top, above queue q, allows")
        );
    }

    #[test]
    fn what_can_not_be_read_takes_no_job_and_says_why() {
        for wrong in ["", "0", "0s", "soon", "-1h", "90", "2d", &"9".repeat(4_000)] {
            let problem = LongestRun::parse(wrong).problem().map(str::to_owned);
            assert!(problem.is_some_and(|problem| problem.len() < 200), "{wrong:?}");
            assert_eq!(
                says(wrong, None).as_deref(),
                Some("queue top, above queue q, takes no job: how long one may run can not be read")
            );
        }
    }
}
