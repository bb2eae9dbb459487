//! What people look at, as values: jobs, queues and members, each from what the system wrote on its objects.
//!
//! Rule: one model for `caldera job list`, `caldera top` and `caldera console`, a function of the objects and the time.
//! It costs a lookup where `caldera why` costs a decision, so that it can follow a hundred thousand jobs; position and
//! reason are those that the controller wrote.

mod amount;
mod cluster;
mod end_words;
mod facts;
mod fleet;
mod job;
mod queue;
mod seen;
mod state;
mod state_reasons;
mod timeline;

pub use self::{
    amount::{compute_fraction, format_amount},
    cluster::{CORDON, MeasuredLinks, Member, PlacedJob, RealUse, find_cordon, read_member, read_placed},
    end_words::{list_container_ends, list_end_words},
    facts::{BindingFacts, GroupFacts, JobKey, WorkloadFacts},
    fleet::{FleetAmount, JobCounts, count_jobs, sum_members},
    job::{Job, JobView, compute_state_from_objects},
    queue::{Amount, QueueLine, QueueObject},
    seen::{Change, Seen},
    state::{NOT_LOOKED_AT, State, YOUNG_SECONDS},
    timeline::{Step, list_steps},
};
