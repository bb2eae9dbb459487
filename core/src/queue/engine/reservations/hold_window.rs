//! Holds clusters for one job, and others in their turn. The rule is in
//! [`crate::queue::reservation::cluster_hold`].

use crate::queue::{
    capacity::{ClusterCapacity, ReservedClusters},
    engine::{
        Engine,
        reservations::{ReservationCause, ReservationId},
    },
    pending::job_order::JobId,
    quota::{admission::Ask, slot::QueueIndex},
    reservation::cluster_hold::ClusterHold,
};

impl Engine {
    /// Whether no clusters are kept for a job because they were in vain.
    pub(crate) fn is_between_holds(&self, id: &JobId) -> bool {
        let rests = |hold: &ClusterHold| hold.rests && hold.until > self.now;
        !self.is_preemptor(id) && self.reservations.holds.get(id).is_some_and(rests)
    }

    /// The clusters that are kept for a job: those that it `had`, while its hold lasts.
    pub(crate) fn choose_held_clusters(
        &mut self,
        id: &JobId,
        node: QueueIndex,
        ask: &Ask,
        had: Option<ReservedClusters>,
        capacity: &mut impl ClusterCapacity,
    ) -> Option<ReservedClusters> {
        let hold = self.reservations.holds.get(id).filter(|hold| !hold.rests && !self.is_preemptor(id));
        let Some(over) = hold.filter(|hold| hold.until <= self.now) else {
            let vain = hold.map_or(&[][..], |hold| &hold.vain);
            return match had {
                // The copies of a duplicated job need all clusters that it lacks capacity in: those that others took
                // meanwhile too. What it waits for once it keeps until it has all.
                Some(had) if ask.copies > 1 => Some(match capacity.reserve_clusters(&id.job(), ask, vain) {
                    Some(more) => had.merge(more),
                    None => had,
                }),
                had => had.or_else(|| capacity.reserve_clusters(&id.job(), ask, vain)),
            };
        };
        let mut hold = over.clone();
        hold.vain.extend(had.into_iter().flat_map(|had| had.clusters));
        let others = capacity.reserve_clusters(&id.job(), ask, &hold.vain);
        hold.rests = others.is_none();
        hold.until = self.now.saturating_add(hold.window_length());
        self.set_hold(id, node, hold);
        others
    }

    /// Clusters are kept for a job from now on, if they were not before.
    pub(crate) fn begin_hold(&mut self, id: &JobId, node: QueueIndex) {
        let mut hold = match self.reservations.holds.get(id) {
            Some(hold) if hold.rests => ClusterHold { rounds: hold.rounds + 1, ..ClusterHold::default() },
            Some(_) => return,
            None => ClusterHold::default(),
        };
        hold.until = self.now.saturating_add(hold.window_length());
        self.set_hold(id, node, hold);
    }

    fn set_hold(&mut self, id: &JobId, node: QueueIndex, hold: ClusterHold) {
        self.reservations
            .schedule_update(hold.until, ReservationId { cause: ReservationCause::Capacity(0), queue: node });
        self.reservations.holds.insert(id.clone(), hold);
    }
}
