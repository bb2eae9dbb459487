//! How long one run of a job may take, from its release on.
//!
//! Rule: Slurm's time limit (`src/slurmctld/job_mgr.c`, `job_time_limit`). The limit is the job's own, or the smallest
//! that its queue and those above it set (`MaxTime` of a partition, `MaxWall` of a QOS). It is fixed when the run
//! begins, and stands in the admission record: what the job or a queue says later counts for later runs. A job that is
//! put back in line begins a new run, as one that Slurm requeues does. One whose time is over is ended, and does not
//! start again by itself.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time::EpochSeconds;

/// The warning comes so many seconds before the end, or at nine tenths of the time, whichever is later.
const LAST_WARNING: i64 = 600;

/// The limit of a run, as it was admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunLimit {
    /// When the run began: its release. Records that follow in the same run keep it.
    pub from: EpochSeconds,
    /// How long it may take: a second at least.
    pub seconds: i64,
}

impl RunLimit {
    /// When its time is over.
    #[must_use]
    pub const fn ends_at(self) -> EpochSeconds {
        self.from.saturating_add(self.seconds)
    }

    /// When its user is warned.
    #[must_use]
    pub fn warns_at(self) -> EpochSeconds {
        let nine_tenths = self.seconds / 10 * 9 + self.seconds % 10 * 9 / 10;
        self.from.saturating_add(nine_tenths).max(self.ends_at().saturating_sub(LAST_WARNING))
    }

    /// Whether it ends no later than another limit of the same run.
    #[must_use]
    pub fn is_within(self, other: Self) -> bool {
        self.from == other.from && self.seconds <= other.seconds
    }
}

/// Seconds as Go writes a duration: `1h30m`, `45s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunTime(pub i64);

impl fmt::Display for RunTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.max(0);
        if seconds == 0 {
            return f.write_str("0s");
        }
        let parts = [(seconds / 3600, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')];
        parts.iter().filter(|(count, _)| *count > 0).try_for_each(|(count, unit)| write!(f, "{count}{unit}"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limit(from: i64, seconds: i64) -> RunLimit {
        RunLimit { from: EpochSeconds::new(from), seconds }
    }

    #[test]
    fn a_warning_comes_at_nine_tenths_or_ten_minutes_before_the_end_whichever_is_later() {
        assert_eq!(limit(100, 36_000).warns_at(), EpochSeconds::new(100 + 35_400));
        assert_eq!(limit(100, 1_000).warns_at(), EpochSeconds::new(1_000));
        assert_eq!(limit(100, 5).warns_at(), EpochSeconds::new(104));
        assert_eq!(limit(100, 5).ends_at(), EpochSeconds::new(105));
    }

    #[test]
    fn a_limit_is_within_another_of_the_same_run_if_it_ends_no_later() {
        assert!(limit(5, 60).is_within(limit(5, 60)) && limit(5, 59).is_within(limit(5, 60)));
        assert!(!limit(5, 61).is_within(limit(5, 60)));
        assert!(!limit(6, 10).is_within(limit(5, 60)) && !limit(4, 60).is_within(limit(5, 60)));
    }

    #[test]
    fn run_times_are_written_as_go_writes_them() {
        let texts = [0, 5, 60, 5_400, 7_325].map(|seconds| RunTime(seconds).to_string());
        assert_eq!(texts, ["0s", "5s", "1m", "1h30m", "2h2m5s"]);
    }

    proptest! {
        #[test]
        fn nobody_is_warned_before_the_run_begins_or_after_it_ends(from: i64, seconds in 1..=i64::MAX) {
            let limit = limit(from, seconds);
            prop_assert!(limit.from <= limit.warns_at() && limit.warns_at() <= limit.ends_at());
        }

        #[test]
        fn what_is_written_of_a_run_time_is_read_as_the_same(seconds in 1..=1_000_000_000_i64) {
            prop_assert_eq!(crate::status::duration::parse_whole_seconds(&RunTime(seconds).to_string()), Some(seconds));
        }
    }
}
