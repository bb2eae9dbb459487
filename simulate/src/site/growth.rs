//! When there is more capacity without anybody's end: a maintenance window is over, or nodes have come.
//!
//! Rule: windows as `caldera_core::maintenance` has them, in real time; nodes as [`crate::members`] lets them come.

use caldera_core::{
    maintenance::{ExpectedRun, MaintenanceWindow},
    node_groups::have_common_nodes,
    queue::CapacityGrowth,
    time::EpochSeconds,
};

use super::Site;
use crate::{members::Part, time::Millis};

/// How much more capacity there may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Growth {
    /// Pods ended: so much.
    By(CapacityGrowth),
    /// A maintenance window is over, or nodes came.
    Somewhere,
}

impl Site<'_> {
    /// Once after something was given back, a maintenance window ended or nodes came: what there is more of.
    pub fn take_growth(&mut self) -> Option<Growth> {
        let given_back = std::mem::take(&mut self.grew).then(|| Growth::By(self.members.take_growth()));
        if std::mem::take(&mut self.grew_somewhere) { Some(Growth::Somewhere) } else { given_back }
    }

    /// Real time.
    fn epoch(&self, at: Millis) -> EpochSeconds {
        self.world.origin.saturating_add(i64::try_from(at.seconds()).unwrap_or(i64::MAX))
    }

    /// When there is more capacity whoever ends: a maintenance window is over, or nodes come.
    pub(crate) fn next_growth(&self) -> Option<Millis> {
        [self.next_window_end(), self.members.next_nodes()].into_iter().flatten().min()
    }

    pub(super) fn next_window_end(&self) -> Option<Millis> {
        self.virtual_time(self.members.next_maintenance_end(self.epoch(self.now))?)
    }

    /// `None` before the origin.
    fn virtual_time(&self, at: EpochSeconds) -> Option<Millis> {
        u64::try_from(at.seconds_since(self.world.origin)).ok().map(Millis::from_secs)
    }

    /// Whether a maintenance window ends now that kept a job out of the cluster of one of these parts.
    pub(super) fn is_after_window(&self, job: usize, parts: &[Part]) -> bool {
        let shape = &self.job(job).shape;
        let path = shape.binding.queue.as_ref().map(|queue| queue.path.as_slice()).unwrap_or_default();
        let keeps_out = |window: &MaintenanceWindow| {
            let is_about = match (window.nodes(), shape.gang.node_groups()) {
                (Some(theirs), Some(own)) => have_common_nodes(own, &theirs),
                _ => true,
            };
            is_about && !path.iter().any(|queue| window.queues.contains(queue))
        };
        let just_now = self.epoch(self.now).saturating_add(-1);
        let ends_one = |part: &Part| {
            let mut windows = self.world.clusters[part.cluster].cluster.maintenance.list_windows_ending_after(just_now);
            windows.any(|window| self.virtual_time(window.end) == Some(self.now) && keeps_out(window))
        };
        self.now > self.world.start && parts.iter().any(ends_one)
    }

    /// When a job would run that starts now; `None` where neither a maintenance window nor nodes are to come.
    pub(super) fn predict_run(&self, job: usize) -> Option<ExpectedRun> {
        let from = self.epoch(self.now);
        if !self.has_windows() && !self.members.may_grow() {
            return None;
        }
        let after = |seconds| from.saturating_add(seconds);
        let (ends, limit) = (self.job(job).run_for().map(after), self.run_limit(job).map(after));
        Some(ExpectedRun { from, ends, limit, delay: 0 })
    }

    /// After how many seconds a job's run is ended.
    pub(crate) fn run_limit(&self, job: usize) -> Option<i64> {
        self.world.terms.get(&self.job(job).name)?.limit
    }

    /// Whether a maintenance window is to come, so that jobs that are alike but for how long they run differ.
    pub(crate) fn has_windows(&self) -> bool {
        self.members.next_maintenance_end(self.epoch(self.now)).is_some()
    }

    /// Whether nodes may come, so that jobs that are alike but for their limits differ.
    pub(crate) fn may_grow(&self) -> bool {
        self.members.may_grow()
    }
}
