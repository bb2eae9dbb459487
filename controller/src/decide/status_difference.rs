//! How the status of a PodGroup differs from what it should be, as far as that decides when it is written.

use crate::observe::PodGroupStatus;

/// What the sentence of a job that holds something begins with: its clusters. Amounts follow.
fn extract_clusters_text(message: &str) -> &str {
    message.split_once(';').map_or(message, |(clusters, _)| clusters)
}

/// How a status differs from what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatusDifference {
    None,
    /// Only numbers of what it waits for.
    Numbers,
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
                _ if Self::is_start(wanted) => Self::Starting,
                ("Pending", "Pending") if there.condition == wanted.condition => Self::Waiting,
                _ => Self::Word,
            }
        } else if wanted.phase != "Pending"
            && extract_clusters_text(&there.message) != extract_clusters_text(&wanted.message)
        {
            Self::Word
        } else {
            Self::Numbers
        }
    }

    /// It was let go and does not run yet.
    pub(super) fn is_start(wanted: &PodGroupStatus) -> bool {
        wanted.phase == "Inqueue" && ["Admitted", "Placed"].contains(&wanted.reason.as_str())
    }

    /// Nobody is kept from anything by what is written there yet.
    pub(super) const fn is_by_budget(self) -> bool {
        matches!(self, Self::Numbers | Self::Waiting)
    }
}
