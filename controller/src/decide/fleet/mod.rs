//! The fleet: what the members have for jobs, and where a gang would go now.
//!
//! It knows nothing of quota. It asks the functions that the scheduler places with, so a job that is released finds the
//! place that was found here.
//!
//! | module | decides |
//! |---|---|
//! | [`capacity`] | where a gang would go now, what the fleet has for it, and what never fits |
//! | [`affinity`] | which clusters are open to a binding: by its affinity groups, its data, its user and its queue |
//! | [`cluster_faults`] | which annotations of Clusters count for nothing |

pub(crate) mod affinity;
pub(crate) mod capacity;
pub(super) mod cluster_faults;
