//! Best-effort FIFO: jobs in the order of their arrivals, whoever's they are; those that do not fit are passed over
//! (Kueue's `BestEffortFIFO` over all queues), and nothing is kept for them. Queues' ceilings and guarantees hold.

use caldera_core::queue::{Dequeue, OrderPolicy, QueueSpec};

use super::{Caldera, Policy};
use crate::{site::Site, time::Millis, world::World};

/// The engine by age alone, without patience.
#[derive(Debug)]
pub struct BestEffortFifo(Caldera);

impl BestEffortFifo {
    /// With the world's ceilings.
    #[must_use]
    pub fn new(world: &World) -> Self {
        let traversed = |queue: &QueueSpec| QueueSpec { dequeue: Dequeue::Traverse, ..queue.clone() };
        Self(Caldera::with(world.queues.iter().map(traversed), OrderPolicy::Fifo, None))
    }

    /// Whether a job in line waits for more than there could ever be.
    pub(super) fn can_never_start(&self, job: usize) -> bool {
        self.0.can_never_start(job)
    }
}

impl Policy for BestEffortFifo {
    fn arrived(&mut self, site: &mut Site<'_>, job: usize) {
        self.0.arrived(site, job);
    }
    fn resumed(&mut self, site: &mut Site<'_>, job: usize) {
        self.0.resumed(site, job);
    }
    fn ended(&mut self, site: &mut Site<'_>, job: usize) {
        self.0.ended(site, job);
    }
    fn decide(&mut self, site: &mut Site<'_>) {
        self.0.decide(site);
    }
    fn due(&self, now: Millis) -> Option<Millis> {
        self.0.due(now)
    }
}
