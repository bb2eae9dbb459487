//! Who decides: each policy in a file of its own, all on the same [`Site`].

mod best_effort;
pub(crate) mod caldera;
mod fifo;
mod preemption;
mod queue_heads;
mod volcano_global;

use std::{fmt, str::FromStr};

pub use best_effort::BestEffortFifo;
pub use caldera::Caldera;
pub use fifo::Fifo;
pub use queue_heads::{HeadOrder, QueueHeads};
pub use volcano_global::VolcanoGlobal;

use crate::{site::Site, time::Millis, world::World};

/// A policy is told what happens and starts (or takes back) jobs through [`Site::send_job`] and [`Site::evict`].
pub trait Policy {
    /// A job is in line.
    fn arrived(&mut self, site: &mut Site<'_>, job: usize);

    /// A job runs already when the simulation starts.
    fn resumed(&mut self, site: &mut Site<'_>, job: usize);

    /// A job has ended: what it held is free.
    fn ended(&mut self, site: &mut Site<'_>, job: usize);

    /// Something happened, or the time that [`Policy::due`] named has come.
    fn decide(&mut self, site: &mut Site<'_>);

    /// When to decide next even if nothing happens.
    fn due(&self, now: Millis) -> Option<Millis> {
        let _ = now;
        None
    }
}

/// The policies there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyName {
    /// [`Caldera`].
    Caldera,
    /// [`VolcanoGlobal`].
    VolcanoGlobal,
    /// [`Fifo`].
    Fifo,
    /// [`BestEffortFifo`].
    BestEffortFifo,
    /// [`QueueHeads`] in Kueue's order.
    Kueue,
    /// The same with fair sharing.
    KueueFair,
    /// [`QueueHeads`] in Armada's order.
    Armada,
}

impl PolicyName {
    /// All.
    pub const ALL: [Self; 7] = [
        Self::Caldera,
        Self::VolcanoGlobal,
        Self::Fifo,
        Self::BestEffortFifo,
        Self::Kueue,
        Self::KueueFair,
        Self::Armada,
    ];

    /// As it is written on the command line and in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Caldera => "caldera",
            Self::VolcanoGlobal => "volcano-global",
            Self::Fifo => "fifo",
            Self::BestEffortFifo => "best-effort-fifo",
            Self::Kueue => "kueue",
            Self::KueueFair => "kueue-fair",
            Self::Armada => "armada",
        }
    }

    /// A fresh one for this world.
    #[must_use]
    pub fn start(self, world: &World) -> Box<dyn Policy> {
        match self {
            Self::Caldera => Box::new(Caldera::new(world)),
            Self::VolcanoGlobal => Box::new(VolcanoGlobal::new(world)),
            Self::Fifo => Box::new(Fifo::new(world)),
            Self::BestEffortFifo => Box::new(BestEffortFifo::new(world)),
            Self::Kueue => Box::new(QueueHeads::new(world, HeadOrder::Kueue)),
            Self::KueueFair => Box::new(QueueHeads::new(world, HeadOrder::KueueFair)),
            Self::Armada => Box::new(QueueHeads::new(world, HeadOrder::Armada)),
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Not a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no policy; the policies are caldera, volcano-global, fifo, best-effort-fifo, kueue, kueue-fair, armada"
)]
pub struct UnknownPolicy(String);

impl FromStr for PolicyName {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|name| name.as_str() == text).ok_or_else(|| UnknownPolicy(text.to_owned()))
    }
}
