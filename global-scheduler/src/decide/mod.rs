//! What the scheduler decides: plain functions of a binding, of its workload's request and of the fleet.

mod ended_job;
pub mod first_status;
pub mod lease_fence;
pub mod placement;
mod rendezvous_gang;
