//! When running jobs are expected to end, as they say.

use crate::{queue::engine::Engine, time::EpochSeconds};

impl Engine {
    /// When a job that holds something will have ended, if that is known. It counts while the
    /// job holds something.
    pub fn set_expected_end(&mut self, id: &str, end: Option<EpochSeconds>) {
        let Some((node, charge, known)) = self.jobs.charge_mut(id) else { return };
        if *known == end {
            return;
        }
        if let Some(known) = *known {
            self.queues.replace_ending_amount(node, known, charge, &[]);
        }
        if let Some(end) = end {
            self.queues.replace_ending_amount(node, end, &[], charge);
        }
        *known = end;
        self.kept_capacity.note_freed();
    }

    /// Queues are elsewhere in the tree than they were.
    pub(crate) fn rebuild_expected_ends(&mut self) {
        self.queues.forget_expected_ends();
        for (node, charge, end) in self.jobs.list_charges() {
            if let Some(end) = end {
                self.queues.replace_ending_amount(node, end, &[], charge);
            }
        }
    }
}
