//! Strict FIFO: the oldest job of all starts, or nobody does. Queues' ceilings hold. A job that can never start is
//! passed over, or nothing would ever start again.

use std::collections::BTreeSet;

use super::{BestEffortFifo, Policy};
use crate::{
    site::{JobState, Site},
    world::World,
};

/// An engine that is shown the oldest job only.
#[derive(Debug)]
pub struct Fifo {
    engine: BestEffortFifo,
    /// By arrival: jobs are numbered so.
    line: BTreeSet<usize>,
    /// The oldest, once the engine was told of it.
    shown: Option<usize>,
}

impl Fifo {
    /// With the world's ceilings.
    #[must_use]
    pub fn new(world: &World) -> Self {
        Self { engine: BestEffortFifo::new(world), line: BTreeSet::new(), shown: None }
    }
}

impl Policy for Fifo {
    fn arrived(&mut self, _: &mut Site<'_>, job: usize) {
        self.line.insert(job);
    }

    fn resumed(&mut self, site: &mut Site<'_>, job: usize) {
        self.engine.resumed(site, job);
    }

    fn ended(&mut self, site: &mut Site<'_>, job: usize) {
        self.engine.ended(site, job);
    }

    fn decide(&mut self, site: &mut Site<'_>) {
        loop {
            let Some(head) = self.shown.or_else(|| self.line.pop_first()) else { return };
            if self.shown.replace(head).is_none() {
                self.engine.arrived(site, head);
            }
            self.engine.decide(site);
            if *site.state(head) == JobState::Waiting && !self.engine.can_never_start(head) {
                return;
            }
            self.shown = None;
        }
    }
}
