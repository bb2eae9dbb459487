//! Preemption: which jobs leave the clusters where they run although nothing is wrong with them.
//!
//! They leave for a job that waits, since nodes are hot, or since clusters are too far apart. Each keeps its age and is
//! back in line. Who leaves is decided by the core: here is filled in what that looks at, and said what is written.
//!
//! | module | decides |
//! |---|---|
//! | [`attempt`] | which jobs are evicted for a pending one, by reclaim or by priority, and when they are back in line |
//! | [`load_aware`] | which jobs leave clusters whose nodes are really hot, or that are too far apart |
//! | [`link_aware`] | which gangs run in clusters that are too far apart |
//! | [`placed_job`] | which jobs might be moved |

pub(super) mod attempt;
mod link_aware;
pub(crate) mod load_aware;
mod placed_job;
