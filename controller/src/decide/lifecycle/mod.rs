//! The lifecycle of a job after its release: when it is suspended, restarted, ended and deleted.
//!
//! Its user says so by an annotation or a Command, or its own policies and limits do. A job that leaves its clusters is
//! evicted with a reason of its own, and does not start before its old copies are gone.
//!
//! | module | decides |
//! |---|---|
//! | [`job_commands`] | what Commands for jobs do |
//! | [`withdrawal`] | which jobs leave their clusters since their users suspend or end them, or since they failed |
//! | [`run_limits`] | which jobs are warned and ended since they ran for as long as they may |
//! | [`policy_restart`] | which split jobs restart, or fail, as a whole since a copy restarted |
//! | [`min_success`] | which split jobs end since enough of their pods succeeded over all clusters |
//! | [`failed_job`] | which batch Jobs are told that they failed |
//! | [`ttl`] | which jobs that ended are deleted |

pub(super) mod failed_job;
pub(super) mod job_commands;
pub(super) mod min_success;
pub(super) mod policy_restart;
pub(crate) mod run_limits;
pub(super) mod ttl;
pub(super) mod withdrawal;
