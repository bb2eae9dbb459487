//! The controller: decides when a job may start.
//!
//! It watches queues, bindings, workloads and members ([`run`]), knows where every binding stands ([`index`]), plans what
//! is to be written ([`plan`], with the queue engine of `caldera_core::queue`), and writes it ([`effect`]). Only `run` is
//! asynchronous.
#![forbid(unsafe_code)]

mod affinity;
mod doubt;
pub mod effect;
pub mod explain;
pub mod facts;
mod give_back;
pub mod index;
pub mod lifecycle;
mod metrics;
pub mod plan;
pub mod podgroup;
mod queue_note;
mod queue_numbers;
pub mod read;
pub mod regrant;
mod release;
pub mod room;
mod run;
pub mod settings;
pub mod snapshot;
pub mod standing;
#[cfg(test)]
mod tests;
mod unplaced;
mod unstarted;
mod unused;

pub use run::{Config, Error, run};
