//! Decisions out: every write that there is, and what a PodGroup should say.

pub mod cron_job;
mod decision;
pub mod hyper_job;
mod patch;
pub mod pod_group;
mod tag;

pub use self::{
    decision::{Decision, EndCause},
    tag::Tag,
};
