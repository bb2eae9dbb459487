//! The accounts that the loop saves every few minutes, of what has happened: what was used, how jobs ended, who did
//! what. Nothing here decides about a job.
//!
//! | module | keeps |
//! |---|---|
//! | [`usage_accounts`] | what each queue, namespace and user was charged, and for how long, by month |
//! | [`ended_jobs`] | what is left of jobs that ended |
//! | [`recorded_actions`] | what was done to jobs, queues, clusters and settings, and by whom |

pub(super) mod ended_jobs;
pub(super) mod recorded_actions;
pub(super) mod usage_accounts;
