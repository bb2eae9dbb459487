//! What can never fit.
//!
//! Rule: what does not fit even with all of our pods gone, and with all nodes that may come, never fits. That is asked
//! of what does not fit now, and of what quota would be reserved for; it is remembered by class until clusters, or what
//! others use there, change.

use std::sync::Arc;

use caldera_core::{
    fleet::takes_jobs,
    gang::Gang,
    inventory::{Capacity, Source},
    place::{self, Cluster, Peers},
    queue::{Ask, FitClass},
};

use super::{CORDON, FleetCapacity, PlacementQuestion, build_placement_request, place_together, with_peers};

/// Classes that are remembered: tenants make them. Most fleets have fewer kinds of jobs.
const MOST_CLASSES: usize = 65_536;

impl FleetCapacity {
    /// Why it fits nowhere, not even with all of our pods gone, if that is so.
    pub fn find_final_refusal(&mut self, question: PlacementQuestion<'_>, ask: &Ask) -> Option<Arc<str>> {
        if let Some(known) = self.never.get(&ask.fit) {
            return known.clone();
        }
        self.fleet.refresh_capacities();
        let never = self.explain_never_fits(question);
        self.remember_final_refusal(ask.fit, never.clone());
        never
    }

    fn remember_final_refusal(&mut self, class: FitClass, never: Option<Arc<str>>) {
        if self.never.len() >= MOST_CLASSES {
            self.never.clear();
        }
        self.was_never_said |= never.is_some();
        self.never.insert(class, never);
    }

    /// Why not even with all of our pods gone. What others use stays; if it goes, this is asked again.
    pub(super) fn explain_never_fits(&mut self, question: PlacementQuestion<'_>) -> Option<Arc<str>> {
        // The others of its groups may go.
        let alone = with_peers(question.binding, Peers::default());
        let question = PlacementQuestion { binding: &alone, run: None, ..question };
        // A cluster that is away for a while comes back.
        let certain = |(cluster, capacity): (&Cluster, &Capacity)| {
            takes_jobs(cluster, |taint| taint.key != CORDON) && capacity.source != Source::Unknown
        };
        if !self.fleet.clusters().all(certain) {
            return None;
        }
        self.fleet.refresh_clusters_without_queued();
        let emptied: Vec<(&Cluster, &Capacity)> =
            self.fleet.list_capacities_without_queued().map(|(cluster, emptied, _)| (cluster, emptied)).collect();
        // Which network domain a node will be in that may come is not known.
        let anywhere = without_topology(question.gang).filter(|_| self.fleet.has_autoscaled_groups());
        if let Some(gang) = &anywhere
            && place_together(PlacementQuestion { gang, ..question }, &self.fleet, emptied.clone()).is_ok()
        {
            return None;
        }
        let refusal = (!emptied.is_empty()).then(|| place_together(question, &self.fleet, emptied).err()).flatten()?;
        // It is not about now.
        let never = refusal.to_string().replacen(" fit now in ", " fit in ", 1);
        let request = build_placement_request(question, &self.fleet, self.fleet.clusters().collect());
        let lasting = place::describe_lasting_reasons(&request);
        Some(lasting.into_iter().fold(never, |never, reason| format!("{never}; {reason}")).into())
    }
}

/// The gang with its pods wherever they fit; `None` where they are already.
fn without_topology(gang: &Gang) -> Option<Gang> {
    let has_any = gang.topology.is_some() || gang.has_close_partitions();
    has_any.then(|| {
        let mut gang = Gang { topology: None, ..gang.clone() };
        gang.tasks
            .iter_mut()
            .filter_map(|task| task.partition.as_mut())
            .for_each(|partition| partition.topology = None);
        gang
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is forgotten is asked again, and who was told is still considered again when the clusters change.
    #[test]
    fn of_however_many_classes_that_never_fit_so_many_are_remembered() {
        let mut capacity = FleetCapacity::default();
        assert!(!capacity.forget_unsatisfiable_classes());
        capacity.remember_final_refusal(FitClass(0), Some("too large".into()));
        for class in 1..=MOST_CLASSES {
            capacity.remember_final_refusal(FitClass(class as u64), None);
            assert!(capacity.never.len() <= MOST_CLASSES);
        }
        assert!(capacity.forget_unsatisfiable_classes());
        assert!(!capacity.forget_unsatisfiable_classes());
    }
}
