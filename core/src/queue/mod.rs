//! Queues: who may start, in which order, within which limits, and why not.
//!
//! Rule: Volcano's hierarchical capacity semantics at the level of the fleet (`pkg/scheduler/plugins/capacity`). The
//! parts, each a rule of its own: [`spec`] (a queue), `tree` (who is above whom), `entitled` (what holds where), [`fault`]
//! (what is wrong with a queue), [`lifecycle`] (whether it starts jobs), [`ledger`] (what a binding is charged), `order`
//! and `tournament` (who goes first), [`admit`] (who fits), `sleepers` (who looks again), `fence` (whose place is kept),
//! [`engine`] (all together, by events), [`give_back`] (who makes room).

pub mod admit;
mod blocked;
mod dense;
pub mod engine;
mod entitled;
pub mod fault;
mod fence;
mod fill;
pub mod give_back;
pub mod ledger;
pub mod lifecycle;
mod line;
mod order;
pub mod room;
mod sleepers;
pub mod spec;
#[cfg(test)]
mod tests;
mod tournament;
mod tree;

pub use admit::{Ask, FitClass, TaskAsk};
pub use engine::{Engine, Entitlement, Job, NoEta, PATIENCE, Release, Reservation, Usage};
pub use fault::{QueueFault, QueueField};
pub use order::{JobId, OrderPolicy};
pub use room::{Fit, Growth, Kept, Room};
pub use spec::{Dequeue, Fleet, QueueSpec, QueueState};
