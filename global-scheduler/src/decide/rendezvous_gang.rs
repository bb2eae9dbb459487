//! Gangs with a rendezvous over clusters: no part of them moves alone.
//!
//! Rule: the ranks and hosts of the whole job are in the template of every copy (`caldera.dev/rendezvous`), and a
//! member's Volcano lets nobody change a template. If one part moved, the others would go on with hosts that are gone
//! and ranks that are taken twice. So the whole gang leaves all its clusters first, and is placed again when the
//! aggregated status has no copy any more: placed sooner, a copy that is still there would be kept with its old ranks.

use caldera_core::{
    fleet::Fleet,
    gang::ClusterName,
    place::{Cluster, Decision},
    plan::{ClusterShare, Plan},
};

use super::verdict::{Step, Verdict, WITHDRAWN};
use crate::observe::binding::Binding;

/// What to do before anything is placed: the gang leaves its other clusters too when a part is lost, and waits until
/// its copies are gone.
pub(crate) fn withdraw_or_wait(binding: &Binding, fleet: &Fleet) -> Option<Verdict> {
    if !binding.place.previous.is_empty() {
        return loses_cluster(binding, fleet).then(withdraw_gang);
    }
    // A cluster that is not Ready may never report that its copy is gone; it takes nothing new either.
    let there = |name: &String| fleet.cluster(name).is_some_and(|cluster: &Cluster| cluster.ready && !cluster.deleting);
    binding.copies.iter().any(there).then_some(Verdict { step: Step::Rest, awaits_capacity: true })
}

/// Whether the gang has lost, or will lose, some cluster of its plan.
fn loses_cluster(binding: &Binding, fleet: &Fleet) -> bool {
    let stays = |name: &str| {
        binding.place.is_target(name)
            && !binding.place.evicting.iter().any(|evicting| evicting == name)
            && fleet.cluster(name).is_some_and(|cluster| !cluster.deleting)
    };
    shares_with_pods(binding.plan.as_ref()).any(|(name, _)| !stays(name.as_str()))
}

/// Whether a decision changes the ranks or hosts in some copy that is there: other clusters, or other numbers in them.
/// A gang that is and stays in one cluster has none of others.
pub(crate) fn changes_rendezvous(binding: &Binding, decision: &Decision) -> bool {
    if binding.place.previous.is_empty() {
        return false;
    }
    let (before, after) = (|| shares_with_pods(binding.plan.as_ref()), || shares_with_pods(decision.plan.as_ref()));
    let stays_alone = before().count() == 1 && before().map(|(name, _)| name).eq(after().map(|(name, _)| name));
    let numbers = |(name, share): (&ClusterName, &ClusterShare)| {
        (name.clone(), share.tasks.iter().map(|(task, part)| (task.clone(), part.replicas)).collect::<Vec<_>>())
    };
    !stays_alone && !before().map(numbers).eq(after().map(numbers))
}

/// The shares with pods, by cluster.
fn shares_with_pods(plan: Option<&Plan>) -> impl Iterator<Item = (&ClusterName, &ClusterShare)> {
    plan.into_iter().flat_map(|plan| &plan.clusters).filter(|(_, share)| share.replicas() > 0)
}

/// The gang leaves all its clusters.
pub(crate) fn withdraw_gang() -> Verdict {
    let message =
        "a part of it must move, and every copy has the ranks and hosts of all: all of it leaves and is placed anew";
    Verdict {
        step: Step::Refuse { reason: WITHDRAWN, message: message.to_owned(), clear: true },
        awaits_capacity: true,
    }
}
