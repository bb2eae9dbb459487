//! How the priority of a job rises while it waits, as its queue's admin says.
//!
//! Rule: Slurm's multifactor priority (`PriorityWeightAge` and `PriorityMaxAge`), by queue and bounded: `1000/24h`
//! raises it by 1000 in 24 hours, in steps of equal length, [`MOST_STEPS`] at most, and no further. It decides who goes
//! first among those that wait, and nothing else: what is admitted has the job's own priority, and so has whoever is
//! evicted for it. The nearest queue on the way to the root that says something counts.
//!
//! At each moment all jobs have one number each, so the order is one order; it changes at steps alone.

use std::fmt;

use crate::{run_limit::RunTime, status::duration::parse_whole_seconds};

/// Steps in which a priority rises at most: at each the job is put in line anew.
const MOST_STEPS: i64 = 20;
/// Characters of a wrong text that are said again.
const SAID_AGAIN: usize = 40;

/// A queue's word on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PriorityAging {
    /// How much it rises in all; none at zero.
    points: u32,
    /// Within so many seconds.
    within: i64,
}

impl PriorityAging {
    /// Of the annotation's text.
    ///
    /// # Errors
    /// With why it can not be read.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::default());
        }
        let read = text.split_once('/').and_then(|(points, within)| {
            let points = points.trim().parse().ok().filter(|points| *points > 0)?;
            Some(Self { points, within: parse_whole_seconds(within.trim())? })
        });
        read.ok_or_else(|| {
            let said: String = text.chars().take(SAID_AGAIN).collect();
            format!("{said:?} is no aging: 1000/24h raises a priority by 1000 within a day, none raises it by nothing")
        })
    }

    /// By how much the priority of a job has risen that waited so many seconds.
    pub(crate) fn points_after(self, waited: i64) -> i32 {
        let (points, steps) = (i128::from(self.points), self.count_steps());
        let step = (i128::from(waited.max(0)) * steps / i128::from(self.within.max(1))).min(steps);
        i32::try_from(points * step / steps.max(1)).unwrap_or(i32::MAX)
    }

    /// After how many seconds it rises next, of a job that waited so many; `None` if it does not any more.
    pub(crate) fn next_step_after(self, waited: i64) -> Option<i64> {
        let (steps, within) = (self.count_steps(), i128::from(self.within));
        let next = i128::from(waited.max(0)) * steps / within.max(1) + 1;
        (next <= steps).then(|| i64::try_from((next * within + steps - 1) / steps.max(1)).unwrap_or(i64::MAX))
    }

    fn count_steps(self) -> i128 {
        i128::from(self.points).min(MOST_STEPS.into()).min(self.within.into())
    }
}

impl fmt::Display for PriorityAging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.points == 0 { f.write_str("none") } else { write!(f, "{}/{}", self.points, RunTime(self.within)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_rises_in_steps_of_equal_length_and_no_further() {
        let aging = PriorityAging::parse("1000/100m").unwrap();
        let minutes = |minutes: i64| aging.points_after(minutes * 60);
        assert_eq!([-5, 0, 4, 5, 9, 10, 99, 100, 10_000].map(minutes), [0, 0, 0, 50, 50, 100, 950, 1_000, 1_000]);
        assert_eq!(PriorityAging::parse("2/90s").unwrap().points_after(44), 0);
        assert_eq!(PriorityAging::parse("none").unwrap().points_after(i64::MAX), 0);
        assert_eq!([aging.to_string(), PriorityAging::default().to_string()], ["1000/1h40m", "none"]);
        assert_eq!(PriorityAging::parse("4294967295/1s").unwrap().points_after(i64::MAX), i32::MAX);
    }

    #[test]
    fn between_two_steps_nothing_changes() {
        for text in ["1000/100m", "3/10s", "7/2s", "1/1s", "20/19s", "none"] {
            let aging = PriorityAging::parse(text).unwrap();
            let (mut waited, mut steps) = (0, 0);
            while let Some(next) = aging.next_step_after(waited) {
                assert!(next > waited && aging.points_after(next) > aging.points_after(next - 1), "{text} {next}");
                assert_eq!(aging.points_after(next - 1), aging.points_after(waited), "{text}");
                (waited, steps) = (next, steps + 1);
            }
            assert!(steps <= MOST_STEPS && aging.points_after(waited) == aging.points_after(i64::MAX), "{text}");
        }
    }

    #[test]
    fn what_is_no_aging_is_told_in_words() {
        for wrong in ["", "1000", "0/1h", "-5/1h", "1000/0s", "1000/soon", "1000/h", "/", "1.5/1h", "None"] {
            let problem = PriorityAging::parse(wrong).unwrap_err();
            assert!(problem.starts_with(&format!("{wrong:?} is no aging: ")), "{problem}");
        }
        assert!(PriorityAging::parse(&"9".repeat(4_000)).unwrap_err().len() < 200);
    }
}
