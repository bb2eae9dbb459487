//! Why a job that had its quota lost it: evicted for another one, or requeued.
//!
//! Rule: an eviction is told by the right that it used, as Kueue's `EvictedByPreemption` reasons are; a requeue by what
//! the job did not find, or by whose word it was. The tokens of evictions are on bindings and in events.

/// By which right a job was evicted for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvictionCause {
    /// It ran and was evicted: a queue took back what it deserves.
    Reclaimed,
    /// It ran and was evicted for a job of higher priority.
    Preempted,
}

impl EvictionCause {
    /// The token of the PodGroup, of the event and of the eviction record.
    #[must_use]
    pub const fn token(self) -> &'static str {
        match self {
            Self::Reclaimed => "Reclaimed",
            Self::Preempted => "Preempted",
        }
    }

    /// Reads the token of an eviction record; `None` for a job that was requeued.
    #[must_use]
    pub fn parse_token(token: &str) -> Option<Self> {
        [Self::Reclaimed, Self::Preempted].into_iter().find(|cause| cause.token() == token)
    }
}

/// Why an admitted job was requeued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequeueCause {
    /// It found no place.
    NotPlaced,
    /// It was placed and its pods were not ready in time.
    NotReady,
    /// No controller granted what its binding said.
    Forged,
    /// Its user moved it to another queue.
    Moved,
    /// Its user suspended it, and wants it to run again.
    Suspended,
    /// Its user restarted it.
    Restarted,
    /// Its own policies restarted it.
    RestartedByPolicy,
    /// A member refused its copy for good.
    CopyRefused,
    /// A cluster that it ran in is lost.
    MemberLost,
    /// It was never admitted: an earlier job of its name was deleted, and members do not know that for good yet.
    MadeAnew,
}
