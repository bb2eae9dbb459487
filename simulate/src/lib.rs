//! Caldera's queues and placement on virtual time: what would happen to these jobs on that fleet, and under other
//! policies.
//!
//! A discrete-event simulation around the decisions of `caldera_core`: the same queue engine, the same placement, the
//! same view of free capacity as in the controller and the scheduler. No clock, no I/O, no randomness that is not
//! seeded: the same input gives the same report, byte for byte. Start with [`world`] (what is simulated), [`run`]
//! (how), [`policy`] (who decides) and [`report`] (what is told).
#![forbid(unsafe_code)]

pub mod back_test;
pub mod expected_start;
pub mod live;
pub mod load;
pub mod members;
pub mod metrics;
pub mod policy;
pub mod random;
pub mod read;
pub mod report;
pub mod rules;
pub mod run;
pub mod scenario;
pub mod series;
pub mod shards;
pub mod site;
pub mod svg;
pub mod tables;
pub mod time;
pub mod world;
