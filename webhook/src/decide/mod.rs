//! What the webhook decides: functions of a request and of the cache that neither wait nor read anything else.
//!
//! By what is reviewed:
//! - ResourceBindings: [`binding_gate`], and [`protected_fields`] before it; where karmada-scheduler places,
//!   [`stock_placement`].
//! - Works: [`work_copy`], with [`job_copy`], `charged_copy`, [`priority_classes`], `node_affinity`, `unadmitted_copy`,
//!   `grace_period` and `member_job_maker`, and [`protected_fields`] before it.
//! - Volcano Jobs: [`job_defaults`] with `ssh_keys`; [`job`], [`namespace_access`], [`queue_limits`],
//!   [`priority_classes`], [`waiting_limits`].
//! - What claims devices: [`device_claims`]. Queues: [`queue`]. HyperJobs: [`hyper_job`].
//! - Other workloads: [`workload_warnings`]. Clusters: [`cluster_annotations`]. ConfigMap `caldera-settings`:
//!   [`settings`].
//! - Of all that users act on: [`action`], who it was; of all that is queued: [`submission`].
//! - What Karmada asks of a Volcano Job: [`interpreter`].
//!
//! [`verdict`] is what they answer with, [`patch`] how a change is told.

pub mod action;
pub mod binding_gate;
mod charged_copy;
pub mod cluster_annotations;
pub mod cron_job;
pub mod device_claims;
mod grace_period;
pub mod hyper_job;
pub mod interpreter;
pub mod job;
pub mod job_copy;
pub mod job_defaults;
mod member_job_maker;
pub mod namespace_access;
mod node_affinity;
pub mod patch;
pub mod policy_coverage;
pub mod priority_classes;
pub mod protected_fields;
pub mod queue;
pub mod queue_limits;
pub mod settings;
mod ssh_keys;
pub mod stamps;
pub mod stock_placement;
pub mod submission;
mod unadmitted_copy;
pub mod verdict;
pub mod waiting_limits;
pub mod work_copy;
pub mod workload_warnings;
