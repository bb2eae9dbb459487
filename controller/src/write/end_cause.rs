//! Why a job is said to have ended before its pods did.

use caldera_core::reason::Reason;

/// Why a Volcano Job was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndCause {
    /// Its user ended it.
    User,
    /// Its policies restarted it as often as they may.
    MaxRetry,
    /// It ran for as long as it may.
    RunTime,
}

impl EndCause {
    /// Token and sentence of its status.
    pub(crate) const fn describe(self) -> (&'static str, &'static str) {
        match self {
            Self::User => ("EndedByUser", "ended by its user"),
            Self::MaxRetry => ("MaxRetryReached", "its policies restarted it as often as maxRetry allows"),
            Self::RunTime => (Reason::RUN_TIME_EXCEEDED, "it ran for as long as it may"),
        }
    }
}
