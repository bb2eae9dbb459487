//! Kinds of objects beside jobs and queues, most of them Volcano's: what is made of each object, and what it says of
//! itself.
//!
//! HyperJobs and CronJobs make jobs, which then wait in line as all others do. DataSourceClaims and DataSources say
//! which clusters have the data of a job.
//!
//! | module | decides |
//! |---|---|
//! | [`hyper_jobs`] | which jobs and policies HyperJobs make, change and delete |
//! | [`cron_jobs`] | which runs of CronJobs are due, and which of their jobs are made and deleted |
//! | [`data_catalogue`] | which data a catalogue is asked for |
//! | [`data_claims`] | what DataSourceClaims and DataSources say of themselves |

pub(super) mod cron_jobs;
pub(super) mod data_catalogue;
pub(super) mod data_claims;
pub(crate) mod hyper_jobs;
