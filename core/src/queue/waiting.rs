//! How long a blocked job of a queue waits before it gets a reservation, as its admin says.
//!
//! Rule: Slurm's `bf_min_age_reserve`, by queue, and by how long the job says that it runs: what blocks others for the
//! run time of those before it should have waited in proportion. The nearest queue on the way to the root that says
//! something counts; `10m`, `50%` of the run that the job declares, the longer of both (`10m,50%`), or `never`. Where
//! no time is said, or the job declares none, the fleet's counts ([`super::RESERVATION_AFTER`]).

use crate::status::duration::parse_whole_seconds;

/// Percent of a declared run at most.
const MOST_PERCENT: u32 = 1_000;
/// Seconds that a job waits at most, unless it never gets a reservation: a year.
const LONGEST_WAIT: i64 = 365 * 24 * 3600;
/// Characters of a wrong text that are said again.
const SAID_AGAIN: usize = 40;

/// A queue's word on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReservationWait {
    /// Its jobs get none.
    Never,
    /// After this.
    After {
        /// At least; the fleet's where it says none.
        seconds: Option<i64>,
        /// Of the run that a job declares.
        percent: u32,
    },
}

impl ReservationWait {
    /// Of the annotation's text.
    ///
    /// # Errors
    /// With why it can not be read.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            let said: String = text.chars().take(SAID_AGAIN).collect();
            format!("{said:?} is no wait: it is a time as 10m, a part of the declared run as 50%, 10m,50%, or never")
        };
        if text == "never" {
            return Ok(Self::Never);
        }
        let (mut seconds, mut percent) = (None, None);
        for part in text.split(',').map(str::trim) {
            let new = match part.strip_suffix('%') {
                Some(number) => {
                    let read = number.parse().ok().filter(|read| (1..=MOST_PERCENT).contains(read));
                    percent.replace(read.ok_or_else(wrong)?).is_none()
                }
                None => seconds.replace(parse_whole_seconds(part).ok_or_else(wrong)?).is_none(),
            };
            if !new {
                return Err(wrong());
            }
        }
        Ok(Self::After { seconds, percent: percent.unwrap_or(0) })
    }

    /// How long a job that declares this run waits; `None`: it gets no reservation.
    pub(crate) fn seconds_for_run(self, fleet: i64, run_for: Option<i64>) -> Option<i64> {
        let Self::After { seconds, percent } = self else { return None };
        let part = i128::from(run_for.unwrap_or(0)) * i128::from(percent) / 100;
        let part = i64::try_from(part).unwrap_or(i64::MAX);
        Some(seconds.unwrap_or(fleet).max(part).min(LONGEST_WAIT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_of_a_time_and_a_part_of_the_declared_run_counts() {
        let wait = |text: &str, run_for| ReservationWait::parse(text).unwrap().seconds_for_run(60, run_for);
        assert_eq!([wait("10m", None), wait("10m", Some(86_400))], [Some(600); 2]);
        assert_eq!([wait("10%", None), wait("10%", Some(60))], [Some(60); 2], "the fleet's");
        assert_eq!(wait("10%", Some(86_400)), Some(8_640));
        assert_eq!([wait("10s, 10%", Some(90)), wait("10%,10s", Some(200))], [Some(10), Some(20)]);
        assert_eq!(wait("never", Some(1)), None);
        assert_eq!(wait("1000%", Some(i64::MAX)), Some(LONGEST_WAIT));
    }

    #[test]
    fn what_is_no_wait_is_told_in_words() {
        for wrong in ["", "soon", "0s", "-1m", "0%", "1001%", "1.5%", "10m,5m", "10%,5%", "never,5m", "10m,", "90"] {
            let problem = ReservationWait::parse(wrong).unwrap_err();
            assert!(problem.starts_with(&format!("{wrong:?} is no wait: ")), "{problem}");
        }
        assert!(ReservationWait::parse(&"9".repeat(4_000)).unwrap_err().len() < 200);
    }
}
