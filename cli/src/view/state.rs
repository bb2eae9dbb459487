//! Where a job stands, in one word.

use clap::ValueEnum;

/// Karmada may not have looked at a job that is younger.
pub const YOUNG_SECONDS: i64 = 10;

/// What is said of such a job while it has no binding.
pub const NOT_LOOKED_AT: &str = "Karmada has not looked at it yet";

/// Where a job stands, in one word. In the order in which people want to see them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
#[value(rename_all = "verbatim")]
pub enum State {
    /// In line.
    Waiting,
    /// Can not be admitted until somebody changes something.
    Inadmissible,
    /// Its user holds it.
    Held,
    /// Its user suspended it.
    Suspended,
    /// No binding was made from it.
    NotPropagated,
    /// Released, not placed yet.
    Admitted,
    /// In clusters, its minimum does not run yet.
    Starting,
    /// Its minimum runs.
    Running,
    /// Somebody else suspended or placed it.
    NotGated,
    /// Ended well.
    Completed,
    /// Ended.
    Failed,
    /// Ended by its user, or by its time limit.
    Terminated,
    /// Ended by its user.
    Aborted,
}

impl State {
    pub(super) const ENDED: [Self; 4] = [Self::Completed, Self::Failed, Self::Terminated, Self::Aborted];

    /// The word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Waiting => "Waiting",
            Self::Inadmissible => "Inadmissible",
            Self::Held => "Held",
            Self::Suspended => "Suspended",
            Self::NotPropagated => "NotPropagated",
            Self::Admitted => "Admitted",
            Self::Starting => "Starting",
            Self::Running => "Running",
            Self::NotGated => "NotGated",
            Self::Completed => "Completed",
            Self::Failed => "Failed",
            Self::Terminated => "Terminated",
            Self::Aborted => "Aborted",
        }
    }

    /// Whether it holds nothing any more.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Terminated | Self::Aborted)
    }

    /// Whether its gate is closed.
    #[must_use]
    pub const fn is_gate_closed(self) -> bool {
        matches!(self, Self::Waiting | Self::Inadmissible | Self::Held | Self::Suspended)
    }
}
