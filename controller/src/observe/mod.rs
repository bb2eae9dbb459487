//! Objects in: what the controller keeps of each object on the host, and which of them changed.
//!
//! Each object is read once as it arrives into a small value ([`Binding`], [`Workload`], [`QueueFacts`], ...). Reading
//! never fails: an object that is wrong in one field is kept with that said. [`Objects`] holds them, takes in the
//! events of the watches, and says what changed ([`Change`]). Nothing here decides.

mod binding;
mod cluster;
mod input;
mod interning;
mod job_command;
mod objects;
mod pod_group;
mod queue;
mod workload;

pub use self::{
    binding::{Binding, Key},
    cluster::{ClassFacts, ClusterFacts},
    input::{Input, ObjectKind, read_object},
    job_command::JobCommandFacts,
    pod_group::{PodGroupFacts, PodGroupStatus},
    queue::{CommandFacts, QueueFacts, QueueNumbers},
    workload::Workload,
};
pub(crate) use self::{
    cluster::read_opt_in,
    interning::fingerprint,
    objects::{Change, Objects},
};
