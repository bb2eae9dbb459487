//! Why a job is said to have ended before its pods did.

use caldera_core::{
    reason::Reason,
    status::{ENOUGH_SUCCEEDED, MIN_SUCCESS_REACHED},
};

/// Why a Volcano Job was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndCause {
    /// Its user ended it.
    User,
    /// Its policies restarted it as often as they may.
    MaxRetry,
    /// Enough of its pods succeeded.
    MinSuccess,
    /// It ran for as long as it may.
    RunTime,
}

impl EndCause {
    /// Token and sentence of its status.
    pub(crate) const fn describe(self) -> (&'static str, &'static str) {
        match self {
            Self::User => ("EndedByUser", "ended by its user"),
            Self::MaxRetry => ("MaxRetryReached", "its policies restarted it as often as maxRetry allows"),
            Self::MinSuccess => (MIN_SUCCESS_REACHED, ENOUGH_SUCCEEDED),
            Self::RunTime => (Reason::RUN_TIME_EXCEEDED, "it ran for as long as it may"),
        }
    }
}
