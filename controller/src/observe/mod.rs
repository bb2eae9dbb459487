//! Objects in: what the controller keeps of each object on the host, and which of them changed.
//!
//! Each object is read once as it arrives into a small value ([`Binding`], [`Workload`], [`QueueFacts`], ...). Reading
//! never fails: an object that is wrong in one field is kept with that said. [`Objects`] holds them, takes in the
//! events of the watches, and says what changed ([`Change`]). Nothing here decides.

mod binding;
mod capacity_reservations;
mod cluster;
mod command;
mod cron_job;
mod data_claim;
mod ended_pods;
mod fingerprint;
mod hyper_job;
mod input;
mod losses;
mod node_groups;
mod object_kind;
mod objects;
mod pod_group;
mod queue;
mod resource_version;
mod tenancy;
mod workload;

pub use self::{
    binding::{Binding, Key},
    cluster::{ClassFacts, ClusterFacts},
    command::{CommandFacts, CommandTarget},
    cron_job::{CronJobFacts, CronKey, CronOwner},
    data_claim::{DataClaimFacts, DataSourceFacts},
    ended_pods::EndedPods,
    hyper_job::{COUNTS, ChildFacts, HyperJobFacts, PolicyFacts},
    input::{Input, read_object},
    losses::WorkFacts,
    object_kind::ObjectKind,
    pod_group::{PodGroupFacts, PodGroupStatus},
    queue::{QueueFacts, QueueNumbers},
    workload::{SaidState, Workload},
};
pub(crate) use self::{
    cluster::read_namespace,
    data_claim::{BOUND, DataObjects, fingerprint_claim, fingerprint_refs},
    fingerprint::fingerprint,
    losses::{MEMBER_LOST, Presence},
    node_groups::admitted_gang,
    objects::{Change, Objects},
};
