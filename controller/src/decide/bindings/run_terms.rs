//! Terms of a run: the time limit, nodes and clusters of its queue, and what is known of its data.
//!
//! Rule: they are taken when the run begins and kept in the admission record. Later changes of the queue count for the
//! next admission.

use caldera_core::{admission::KnownData, gang::Requirement, node_groups::NodeRestriction, run_limit::RunLimit};
use jiff::Timestamp;

use crate::observe::{Binding, Objects, Workload};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct RunTerms {
    /// As [`Admission::run`].
    pub(crate) run: Option<RunLimit>,
    /// As [`Admission::nodes`].
    pub(crate) nodes: NodeRestriction,
    /// As [`Admission::clusters`].
    pub(crate) clusters: Vec<Requirement>,
    /// As [`Admission::data`].
    pub(crate) data: Option<KnownData>,
}

impl RunTerms {
    /// Of a run that begins now.
    pub(crate) fn build_terms(objects: &Objects, binding: &Binding, workload: &Workload, now: Timestamp) -> Self {
        Self {
            run: objects.build_run_limit(workload, now),
            nodes: objects.nodes_of_queue(&workload.queue),
            clusters: objects.clusters_of_queue(&workload.queue),
            data: objects.data.find_known_data(&binding.workload),
        }
    }
}
