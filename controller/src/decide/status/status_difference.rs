//! How the status of a PodGroup differs from what it should be, as far as that decides when it is written.
//!
//! Rule: that its job ended comes before all else, and that it was let go and does not run yet before any other phase,
//! condition or reason. Another reason for which a job waits keeps nobody from anything, and neither does another place
//! or other numbers under the same reason: these are written by budget. Nobody acts on how many are behind a job, nor
//! on a place far back that is another by less than a tenth, nor on the numbers of a job that does not wait. The
//! sentence of such a job begins with its clusters, up to the first semicolon; others there are more than numbers.

use caldera_core::reason::Position;

use super::outdated_texts::FRONT;
use crate::observe::PodGroupStatus;

/// What the sentence of a job that holds something begins with: its clusters. Amounts follow.
fn extract_clusters_text(message: &str) -> &str {
    message.split_once(';').map_or(message, |(clusters, _)| clusters)
}

/// Whether somebody acts on how these two sentences of a job that waits differ.
fn is_notable_difference(there: &str, wanted: &str) -> bool {
    let [was, is] = [there, wanted].map(Position::parse_position);
    let (Some(was), Some(is)) = (was, is) else { return true };
    let rest = |text: &str, position: Position| text.replacen(&position.to_string(), "", 1);
    let by = was.place.abs_diff(is.place);
    rest(there, was) != rest(wanted, is) || (by > 0 && (was.place.min(is.place) <= FRONT || by * 10 >= was.place))
}

/// How a status differs from what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatusDifference {
    None,
    /// Only what nobody acts on.
    Numbers,
    /// It waits on for the same reason, at another place or with other numbers.
    Moved,
    /// It waits on, for another reason.
    Waiting,
    /// It may start; whether it does is seen soon.
    Starting,
    /// Another phase, condition, reason or cluster.
    Word,
    /// It has ended.
    End,
}

impl StatusDifference {
    /// How one differs from what is wanted.
    pub(super) fn compare_statuses(there: &PodGroupStatus, wanted: &PodGroupStatus) -> Self {
        if there == wanted {
            Self::None
        } else if there.phase != wanted.phase && wanted.phase == "Completed" {
            Self::End
        } else if (&there.phase, &there.condition, &there.reason) != (&wanted.phase, &wanted.condition, &wanted.reason)
        {
            match (there.phase.as_str(), wanted.phase.as_str()) {
                _ if Self::is_awaiting_start(wanted) => Self::Starting,
                ("Pending", "Pending") if there.condition == wanted.condition => Self::Waiting,
                _ => Self::Word,
            }
        } else if wanted.phase != "Pending"
            && extract_clusters_text(&there.message) != extract_clusters_text(&wanted.message)
        {
            Self::Word
        } else if wanted.phase == "Pending" && is_notable_difference(&there.message, &wanted.message) {
            Self::Moved
        } else {
            Self::Numbers
        }
    }

    /// It was let go and does not run yet.
    pub(super) fn is_awaiting_start(wanted: &PodGroupStatus) -> bool {
        wanted.phase == "Inqueue" && ["Admitted", "Placed"].contains(&wanted.reason.as_str())
    }

    /// Nobody is kept from anything by what is written there yet.
    pub(super) const fn is_by_budget(self) -> bool {
        matches!(self, Self::Numbers | Self::Moved | Self::Waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(phase: &str, condition: &str, reason: &str, message: &str) -> PodGroupStatus {
        let [phase, condition, reason, message] = [phase, condition, reason, message].map(ToOwned::to_owned);
        PodGroupStatus { phase, condition, reason, message, ..PodGroupStatus::default() }
    }

    #[test]
    fn an_end_and_a_start_come_before_other_words_and_words_before_numbers() {
        let waits = status("Pending", "Unschedulable", "WaitingForQuota", "1 ahead; 2 cpu");
        let starts = status("Inqueue", "Scheduled", "Admitted", "in m1; 2 pods");
        let runs = status("Running", "Scheduled", "Running", "in m1; 2 pods");
        for (there, wanted, difference) in [
            (&waits, waits.clone(), StatusDifference::None),
            (&waits, status("Pending", "Unschedulable", "WaitingForQuota", "2 ahead; 2 cpu"), StatusDifference::Moved),
            (&waits, status("Pending", "Unschedulable", "BehindQueueHead", "no"), StatusDifference::Waiting),
            (&waits, status("Pending", "Scheduled", "BehindQueueHead", "no"), StatusDifference::Word),
            (&waits, starts.clone(), StatusDifference::Starting),
            (&starts, status("Inqueue", "Scheduled", "Placed", "in m1; 2 pods"), StatusDifference::Starting),
            (&starts, status("Inqueue", "Scheduled", "NotPlaced", "no"), StatusDifference::Word),
            (&starts, runs.clone(), StatusDifference::Word),
            (&runs, status("Running", "Scheduled", "Running", "in m1; 1 pod"), StatusDifference::Numbers),
            (&runs, status("Running", "Scheduled", "Running", "in m2; 2 pods"), StatusDifference::Word),
            (&runs, PodGroupStatus { running: 2, ..runs.clone() }, StatusDifference::Numbers),
            (&runs, status("Completed", "Scheduled", "Finished", "in m1"), StatusDifference::End),
            (&waits, status("Completed", "Unschedulable", "Finished", "no"), StatusDifference::End),
        ] {
            assert_eq!(StatusDifference::compare_statuses(there, &wanted), difference, "{there:?} {wanted:?}");
        }
    }
    #[test]
    fn how_many_are_behind_a_job_and_a_small_step_far_back_are_numbers_that_nobody_acts_on() {
        let text =
            |place: usize, of: usize, used: u32| format!("in queue q, position {place} of {of}: used {used} of 9");
        for (was, is, moved) in [
            ((3, 9, 1), (3, 10, 1), false),
            ((3, 9, 1), (2, 9, 1), true),
            ((3, 9, 1), (3, 9, 2), true),
            ((21, 900, 1), (20, 900, 1), true),
            ((500, 900, 1), (499, 900, 1), false),
            ((500, 900, 1), (450, 850, 1), true),
            ((500, 900, 1), (500, 900, 2), true),
        ] {
            let [there, wanted] = [was, is].map(|(place, of, used)| text(place, of, used));
            assert_eq!(is_notable_difference(&there, &wanted), moved, "{there} {wanted}");
        }
        assert!(is_notable_difference("no place", "another text"));
    }
}
