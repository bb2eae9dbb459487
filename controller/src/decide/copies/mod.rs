//! The copies of admitted jobs in the members: what is done where one is not placed, not started, not seen, refused or
//! lost.
//!
//! A copy that Karmada lost track of is applied once more, or looked at once more. A gang whose copies can not run, or
//! not all of them, is taken off all its clusters, and is back in line with its age. `docs/rules/protocol.md` tells how
//! the cases are told apart.
//!
//! | module | decides |
//! |---|---|
//! | [`placement_deadlines`] | which admitted jobs are requeued since they are not placed |
//! | [`pods_ready`] | which placed jobs are requeued since they did not start |
//! | [`silent_copy`] | which Works Karmada is asked to apply again |
//! | [`orphan_copy`] | which bindings Karmada is asked to look at again |
//! | [`unreported_copy`] | which bindings Karmada is asked to aggregate the status of |
//! | [`refused_copy`] | which jobs go elsewhere since a member will not have their copy |
//! | [`member_loss`] | which gangs are withdrawn from clusters that are lost |
//! | [`held_copy`] | which copies in lost clusters are kept until it is known whether they ended |

pub(super) mod held_copy;
pub(super) mod member_loss;
pub(super) mod orphan_copy;
pub(super) mod placement_deadlines;
pub(super) mod pods_ready;
pub(super) mod refused_copy;
pub(super) mod silent_copy;
pub(super) mod unreported_copy;
