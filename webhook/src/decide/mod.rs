//! What the webhook decides: plain functions of a request and of the cache, one file for each kind that is reviewed.

pub mod binding_gate;
mod charged_copy;
pub mod cron_job;
pub mod hyper_job;
pub mod interpreter;
pub mod job;
pub mod job_copy;
pub mod job_defaults;
pub mod namespace_access;
pub mod patch;
pub mod protected_fields;
pub mod queue;
pub mod queue_limits;
mod ssh_keys;
pub mod verdict;
pub mod waiting_limits;
pub mod work_copy;
