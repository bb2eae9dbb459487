//! What of other objects bears on where a binding may go: in which clusters the others of its workload affinity groups
//! are, which have the data that its workload claims, which its user chose, and which its queue may use; and which
//! images its pods would pull.
//!
//! Rule: as the scheduler sees it: the clusters of those that are placed, and for those that are released the place
//! that was found. So a job that is released finds the clusters open that the scheduler will find open. Data is where
//! its sources say.

use std::{borrow::Cow, sync::Arc};

use caldera_core::{
    cluster_choice::ClusterChoice,
    data_source::DataLocality,
    place::{self, Peers},
};

use super::capacity::{FleetCapacity, with_peers};
use crate::observe::{Binding, Objects};

/// A binding as placement sees it, with the others of its groups, its data and its user's choice; `None` for one
/// without a placement.
pub(crate) fn build_binding_with_peers<'a>(
    objects: &Objects,
    capacity: &FleetCapacity,
    binding: &'a Binding,
) -> Option<Cow<'a, place::Binding>> {
    let placement = binding.placement.as_deref()?;
    let placement = with_peers(placement, list_peers(objects, capacity, binding));
    let queue = objects.clusters_of_binding(binding, capacity.has_exclusive_clusters()).map(Arc::new);
    Some(match (find_data_and_choice(objects, binding), queue) {
        ((None, None), None) => placement,
        ((data, choice), queue) => Cow::Owned(place::Binding { data, choice, queue, ..placement.into_owned() }),
    })
}

/// [`build_binding_with_peers`] with the images that its pods would pull: to say where it goes, not only whether.
/// Nearly every job has some, so this copies the binding.
pub(crate) fn build_binding_to_place<'a>(
    objects: &Objects,
    capacity: &FleetCapacity,
    binding: &'a Binding,
) -> Option<Cow<'a, place::Binding>> {
    let placement = build_binding_with_peers(objects, capacity, binding)?;
    let images = objects.workload_of(binding).and_then(|workload| workload.images.clone());
    Some(match images {
        None => placement,
        Some(_) => Cow::Owned(place::Binding { images, ..placement.into_owned() }),
    })
}

/// A binding as placement would see it if it were in no cluster, and admitted anew.
pub(crate) fn build_unplaced_binding(
    objects: &Objects,
    capacity: &FleetCapacity,
    binding: &Binding,
) -> Option<place::Binding> {
    let placement = build_binding_to_place(objects, capacity, binding)?.into_owned();
    let queue = objects.clusters_of_next_run(binding, capacity.has_exclusive_clusters()).map(Arc::new);
    Some(place::Binding { queue, previous: Vec::new(), ..placement })
}

/// Where the data of its claims is, and which clusters its user chose.
pub(crate) fn find_data_and_choice(
    objects: &Objects,
    binding: &Binding,
) -> (Option<Arc<DataLocality>>, Option<Arc<ClusterChoice>>) {
    let gang = objects.workload_of(binding).and_then(|workload| workload.gang.as_ref().ok());
    (objects.data.index.find_locality(&binding.workload), gang.and_then(|gang| gang.clusters.clone()))
}

fn list_peers(objects: &Objects, capacity: &FleetCapacity, binding: &Binding) -> Peers {
    if binding.groups.is_empty() {
        return Peers::default();
    }
    let clusters_of = |other: &_| match objects.bindings.get(other) {
        Some(other) if other.clusters.is_empty() => capacity.list_assumed_clusters(other.id.as_str()),
        Some(other) => other.clusters.iter().map(|(cluster, _)| cluster.to_string()).collect(),
        None => Vec::new(),
    };
    objects.affinity_groups.find_peers(&binding.key.namespace, &binding.groups, &binding.key, clusters_of)
}
