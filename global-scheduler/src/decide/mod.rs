//! What the scheduler decides, without waiting or reading anything.
//!
//! [`placement`] decides about one binding from its object, from what its workload requests, from what other objects
//! say and from the fleet; `applied_placement`, `ended_job` and `rendezvous_gang` are parts of that. [`first_status`]
//! decides when a status is written. [`lease_fence`] decides which grants may be placed: it alone keeps state, the
//! grants that wait for a read of the lease.

pub(crate) mod applied_placement;
mod ended_job;
pub mod first_status;
pub mod lease_fence;
pub mod placement;
mod rendezvous_gang;
pub mod verdict;
