//! Gangs of which no part moves alone, because each copy says of the whole job what nobody can change in it any more.
//!
//! Rule: ranks and hosts of a job over a clusterset are in every copy's template (`caldera.dev/rendezvous`), and a member's
//! Volcano lets nobody change a template. With one part elsewhere the others would go on with hosts that are gone and ranks
//! that are taken twice. So the whole gang leaves all its clusters first, and is placed when Karmada tells of no copy any more:
//! placed sooner, a copy that is still there would be kept, with what it says.

use caldera_core::{
    fleet::Fleet,
    gang::ClusterName,
    place::{Cluster, Decision},
    plan::{Plan, Share},
};

use crate::{
    index::Binding,
    plan::{Step, Verdict, WITHDRAWN},
};

/// What to do about it before anything is placed: it leaves its other clusters too when a part is lost, and waits until its
/// copies are gone.
pub(crate) fn before(binding: &Binding, fleet: &Fleet) -> Option<Verdict> {
    if !binding.place.previous.is_empty() {
        return is_torn(binding, fleet).then(withdrawn);
    }
    // A cluster that is not Ready may never tell that its copy is gone; it takes nothing new either.
    let there = |name: &String| fleet.cluster(name).is_some_and(|cluster: &Cluster| cluster.ready && !cluster.deleting);
    binding.copies.iter().any(there).then_some(Verdict { step: Step::Rest, wants_room: true })
}

/// Whether some cluster of its plan is not its any more, or will not be.
fn is_torn(binding: &Binding, fleet: &Fleet) -> bool {
    let stays = |name: &str| {
        binding.place.targets(name)
            && !binding.place.evicting.iter().any(|evicting| evicting == name)
            && fleet.cluster(name).is_some_and(|cluster| !cluster.deleting)
    };
    parts(binding.plan.as_ref()).any(|(name, _)| !stays(name.as_str()))
}

/// Whether a decision gives some copy that is there something else to say: other clusters, or other numbers in them. In one
/// cluster it says nothing of others.
pub(crate) fn changes(binding: &Binding, decision: &Decision) -> bool {
    if binding.place.previous.is_empty() {
        return false;
    }
    let (before, after) = (|| parts(binding.plan.as_ref()), || parts(decision.plan.as_ref()));
    let stays_alone = before().count() == 1 && before().map(|(name, _)| name).eq(after().map(|(name, _)| name));
    let numbers = |(name, share): (&ClusterName, &Share)| {
        (name.clone(), share.tasks.iter().map(|(task, part)| (task.clone(), part.replicas)).collect::<Vec<_>>())
    };
    !stays_alone && !before().map(numbers).eq(after().map(numbers))
}

/// Clusters with pods.
fn parts(plan: Option<&Plan>) -> impl Iterator<Item = (&ClusterName, &Share)> {
    plan.into_iter().flat_map(|plan| &plan.clusters).filter(|(_, share)| share.replicas() > 0)
}

/// It leaves all its clusters.
pub(crate) fn withdrawn() -> Verdict {
    let message =
        "a part of it must move, and every copy has the ranks and hosts of all: all of it leaves and is placed anew";
    Verdict { step: Step::Refuse { reason: WITHDRAWN, message: message.to_owned(), clear: true }, wants_room: true }
}
