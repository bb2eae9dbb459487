//! For how long clusters are reserved for one job.
//!
//! What runs there may never end, or may not be what the job lacks. So clusters are reserved for a window; then others
//! where the job could run, each in its turn; then the job rests for as long, while other jobs have theirs. Each round
//! is twice as long as the one before. So a job that only has to wait for others to end starts once a window is longer
//! than they run, and one that can not start there keeps clusters from others half of the time at most. A restart
//! begins anew.

use crate::{gang::ClusterName, time::EpochSeconds};

/// The first hold, in seconds.
const TERM: i64 = 3600;
/// Terms grow no more after so many.
const DOUBLINGS: u32 = 8;

/// How a job stands with the clusters that are kept for it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClusterHold {
    /// Rounds before this one.
    pub(crate) rounds: u32,
    /// None are kept until then.
    pub(crate) rests: bool,
    pub(crate) until: EpochSeconds,
    /// Those that were kept in this round before.
    pub(crate) vain: Vec<ClusterName>,
}

impl ClusterHold {
    pub(crate) fn window_length(&self) -> i64 {
        TERM << self.rounds.min(DOUBLINGS)
    }
}
