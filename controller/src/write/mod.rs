//! Decisions out: every write that is decided, how its patch looks, what a PodGroup should say, and the tag that its
//! answer comes back with.

pub mod cron_job;
pub mod data_claim;
mod decision;
mod decision_event;
mod end_cause;
pub mod hyper_job;
mod patch;
pub mod pod_group;
mod tag;

pub use self::{decision::Decision, end_cause::EndCause, patch::merge_status, tag::Tag};
