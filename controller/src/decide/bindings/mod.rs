//! What each ResourceBinding waits for or holds, and what the queue engine is told of it.
//!
//! Whatever decides about jobs asks here first. A binding waits, holds the quota that its record says, or is left to
//! others. An eviction takes the quota and the clusters away, and its record says why, and until when the job does not
//! wait again.
//!
//! | module | decides |
//! |---|---|
//! | [`binding_state`] | what a binding waits for or holds, by its own objects |
//! | [`resize`] | whether its record follows what is wanted now: more, or less |
//! | [`run_terms`] | what its record says beside its charge |
//! | [`grant_history`] | whether a controller made its admission, and the scheduler its placement |
//! | [`eviction`] | what takes its quota and clusters away, and what each reason for that means |
//! | [`eviction_wait`] | why it does not wait in its queue again yet |
//! | [`copy_cleanup`] | until when a member would forget a new copy together with the old one |
//! | [`job_gangs`] | which jobs start together, and under whose name they are in line |
//! | [`jobs`] | what the queue engine is told of each, and what is assumed until the watch shows it |

pub(crate) mod binding_state;
mod copy_cleanup;
pub(super) mod eviction;
pub(super) mod eviction_wait;
pub(super) mod grant_history;
pub(crate) mod job_gangs;
pub(crate) mod jobs;
pub(super) mod resize;
pub(super) mod run_terms;
