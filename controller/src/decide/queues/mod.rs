//! Queues as objects: what is written on them, and when they open and close. Who gets their quota is decided by the
//! engine.
//!
//! | module | decides |
//! |---|---|
//! | [`queue_lifecycle`] | which queues open and close |
//! | [`queue_numbers`] | which numbers are written in a queue's status, and when |
//! | [`phase_counts`] | how many jobs of a queue are in each phase |
//! | [`queue_annotations`] | what is said on queues: their faults, and the amounts that count |

pub(super) mod phase_counts;
pub(super) mod queue_annotations;
pub(super) mod queue_lifecycle;
pub(super) mod queue_numbers;
