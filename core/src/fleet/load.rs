//! What the nodes of each cluster really use.
//!
//! Rule: it is known where the member's nodes are, and was reported since they were listed. It says nothing of what is
//! free, so no decision about a place follows from a change of it.

use super::{Fleet, FleetMember};
use crate::{
    inventory::{MemberLoad, NodeUse},
    time::EpochSeconds,
};

impl FleetMember {
    /// Takes in what nodes measured; no decision about a place depends on it.
    pub(super) fn update_measured_load(&mut self, measured: &[NodeUse], read_at: EpochSeconds) -> bool {
        self.set_load(self.inventory.sum_node_use(measured, read_at))
    }

    /// The same, summed up already.
    pub(super) fn set_load(&mut self, load: Option<MemberLoad>) -> bool {
        self.load = load;
        false
    }
}

impl Fleet {
    /// What the nodes of a cluster really use, where that is known; how old it is the caller has to ask.
    #[must_use]
    pub fn member_load(&self, cluster: &str) -> Option<&MemberLoad> {
        let member = self.members.get(cluster).filter(|member| member.down.is_none())?;
        member.load.as_ref().filter(|_| member.inventory.is_complete())
    }
}
