//! Best-effort FIFO: jobs in the order of their arrivals, whoever's they are; those that do not fit are passed over
//! (Kueue's `BestEffortFIFO` over all queues). Queues' ceilings and guarantees hold; nothing else about queues counts.

use caldera_core::{
    queue::{Dequeue, QueueSpec},
    resources::Limits,
};

use super::{Caldera, Policy};
use crate::{site::Site, time::Millis, world::World};

/// The engine with queues and jobs that are all equal: what is left of its order is age.
#[derive(Debug)]
pub struct BestEffortFifo(Caldera);

impl BestEffortFifo {
    /// With the world's ceilings.
    #[must_use]
    pub fn new(world: &World) -> Self {
        let alike = |queue: &QueueSpec| QueueSpec {
            priority: 0,
            deserved: Limits::unlimited(),
            dequeue: Dequeue::Traverse,
            ..queue.clone()
        };
        Self(Caldera::with_queues(world.queues.iter().map(alike), false))
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
