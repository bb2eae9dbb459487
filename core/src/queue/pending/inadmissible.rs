//! Why a shape is inadmissible, and what must be free before it is considered again.
//!
//! Rule: Kueue's inadmissible workloads, which remember nothing; here each remembers what it lacks, so that only those
//! are requeued that what came free may be enough for.

use crate::queue::quota::{amount::Amount, amounts::Dim, slot::QueueIndex};

/// What an inadmissible shape lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inadmissible {
    /// This much of this resource, at this queue.
    Quota(QueueIndex, Dim, Amount),
    /// The same, of which a part is reserved for others.
    Reserved(QueueIndex, Dim, Amount),
    /// Of this resource, what its queue may have beside a reserving job that lacks capacity.
    BehindReservation(Dim),
    /// What is left of the fleet beside amounts that are kept for a time.
    Kept(KeptCause),
    /// Capacity in clusters.
    Capacity,
    /// For clusters that are other than they are: it fits in none of these.
    Never,
}

/// What keeps a shape from what is left beside amounts that are kept for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeptCause {
    /// The amount: it waits until the time is over.
    Amount,
    /// What others hold of this resource beside it.
    Held(Dim),
    /// What is reserved for others beside it.
    Behind,
}

impl Inadmissible {
    /// How much of which resource must be free at which queue.
    pub(crate) const fn find_missing_quota(self) -> Option<(QueueIndex, Dim, Amount)> {
        match self {
            Self::Quota(at, dim, needed) | Self::Reserved(at, dim, needed) => Some((at, dim, needed)),
            Self::BehindReservation(_) | Self::Kept(_) | Self::Capacity | Self::Never => None,
        }
    }
}
