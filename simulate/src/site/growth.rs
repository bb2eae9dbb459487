//! When there is more capacity without anybody's end: a maintenance window is over, or nodes have come.
//!
//! Rule: windows as `caldera_core::maintenance` has them, in real time; nodes as [`crate::members`] lets them come.

use caldera_core::{maintenance::ExpectedRun, queue::CapacityGrowth, time::EpochSeconds};

use super::Site;
use crate::time::Millis;

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
        let end = self.members.next_maintenance_end(self.epoch(self.now))?;
        let since = end.as_seconds().saturating_sub(self.world.origin.as_seconds());
        u64::try_from(since).ok().map(Millis::from_secs)
    }

    /// When a job would run that starts now; `None` where no maintenance window is to come.
    pub(super) fn predict_run(&self, job: usize) -> Option<ExpectedRun> {
        let from = self.epoch(self.now);
        self.members.next_maintenance_end(from)?;
        let ends = self.job(job).run_for().map(|run_for| from.saturating_add(run_for));
        Some(ExpectedRun { from, ends, limit: None, delay: 0 })
    }

    /// Whether a maintenance window is to come, so that jobs that are alike but for how long they run differ.
    pub(crate) fn has_windows(&self) -> bool {
        self.members.next_maintenance_end(self.epoch(self.now)).is_some()
    }
}
