//! Which jobs that lack capacity get clusters reserved.
//!
//! Rule: of each queue the first in rank that has lacked capacity for long enough is considered, the preemptor before
//! all. At most three get clusters reserved at once, and only jobs that ask for none of the resources that are reserved
//! for one before them. A job keeps the clusters that it had while its hold window lasts. A job whose reservation does
//! not reach all the way up gets no clusters: the first such job only makes its own queue wait. Where the answer is
//! another one than before, all classes that did not fit are considered again.

use crate::{
    queue::{
        capacity::{ClusterCapacity, ReservedClusters},
        engine::{
            Engine,
            reservations::{
                MOST_CLUSTER_RESERVATIONS, MOST_CONSIDERED_JOBS, Reservation, ReservationCause, ReservationId,
                ReservationRank,
            },
        },
        pending::shape_table::ShapeId,
        quota::{amounts::Dim, slot::QueueIndex},
    },
    resources::ResourceName,
    time::EpochSeconds,
};

impl Engine {
    /// Clusters are reserved for the first in rank that lack capacity and are within, as long as they do not lack the
    /// same; the first of the others makes its own queue wait.
    pub(crate) fn update_cluster_reservations(&mut self, capacity: &mut impl ClusterCapacity) -> bool {
        let wanted = self.plan_cluster_reservations(capacity);
        let has = |reservation: &Reservation| {
            (reservation.rank.clone(), reservation.shape, reservation.preempts, reservation.kept.clone())
        };
        let had: Vec<_> = self
            .reservations
            .list_cluster_reservations()
            .into_iter()
            .filter_map(|id| Some((id, has(self.reservations.get(id)?))))
            .collect();
        if had == wanted.iter().map(|(id, reservation)| (*id, has(reservation))).collect::<Vec<_>>() {
            return wanted.into_iter().fold(false, |requeued, (id, _)| self.recompute_reach(id) | requeued);
        }
        for (id, _) in had {
            self.remove_reservation(id);
        }
        for (id, reservation) in wanted {
            if let Some((_, other)) = self.reservations.held_by_job(&reservation.rank.id) {
                self.remove_reservation(other);
            }
            self.add_reservation(id, reservation);
        }
        // Other clusters are kept than when the rest were told no.
        self.requeue_after_capacity_change();
        true
    }

    /// Somebody took capacity: a duplicated job that has clusters reserved may lack it in others too now.
    pub(crate) fn recheck_clusters_of_copies(&mut self) {
        for id in self.reservations.list_cluster_reservations() {
            let shape = self.reservations.get(id).map(|reservation| reservation.shape);
            if shape.is_some_and(|shape| self.shapes[shape].ask.copies > 1) {
                self.reservations.dirty.insert(id);
            }
        }
    }

    pub(crate) fn plan_cluster_reservations(
        &mut self,
        capacity: &mut impl ClusterCapacity,
    ) -> Vec<(ReservationId, Reservation)> {
        let mut wanted: Vec<Reservation> = Vec::new();
        let mut beyond: Option<Reservation> = None;
        let mut looks = 0;
        for (rank, node, shape, since) in self.list_first_jobs_short_of_capacity() {
            if self.is_between_holds(&rank.id) {
                continue;
            }
            // The same one keeps the same clusters for a while: a drain that moves never ends.
            let had =
                self.reservations.held_by(rank.id.as_str()).and_then(|id| self.reservations.get(id)?.kept.clone());
            let asks = |name: &ResourceName| !self.shapes[shape].minimum.get(name.as_str()).is_zero();
            let behind =
                wanted.iter().flat_map(|reservation| &reservation.kept).any(|kept| kept.resources.iter().any(asks));
            let all: Vec<Dim> = self.shapes[shape].sparse.iter().map(|(dim, _)| *dim).collect();
            let draft = self.draft_reservation(rank.clone(), node, shape, since, QueueIndex::ROOT, &all);
            let draft = Reservation { kept: Some(ReservedClusters::default()), ..draft };
            let likely = self.compute_reach(&draft) + 1 == draft.nodes.len();
            let useless = if likely {
                behind || wanted.len() >= usize::from(MOST_CLUSTER_RESERVATIONS)
            } else {
                beyond.is_some()
            };
            if had.is_none() && (useless || looks >= MOST_CONSIDERED_JOBS) {
                continue;
            }
            looks += usize::from(had.is_none());
            let ask = std::sync::Arc::clone(&self.shapes[shape].ask);
            let Some(kept) = self.choose_held_clusters(&rank.id, node, &ask, had, capacity) else { continue };
            let scarce: Vec<Dim> = kept.resources.iter().filter_map(|name| self.queues.dims.find_dim(name)).collect();
            // Its quota is there now, and has to be when there is capacity.
            let reservation = self.draft_reservation(rank, node, shape, since, QueueIndex::ROOT, &scarce);
            let reservation = Reservation { kept: Some(kept), scarce: scarce.into(), ..reservation };
            let reservation = Reservation { reach: self.compute_reach(&reservation), ..reservation };
            match reservation.has_full_reach() {
                true if !behind && wanted.len() < usize::from(MOST_CLUSTER_RESERVATIONS) => {
                    self.begin_hold(&reservation.rank.id, node);
                    wanted.push(reservation);
                }
                false if beyond.is_none() => beyond = Some(reservation),
                _ => {}
            }
        }
        let slots = (0..MOST_CLUSTER_RESERVATIONS)
            .zip(wanted)
            .chain(beyond.map(|reservation| (MOST_CLUSTER_RESERVATIONS, reservation)));
        slots
            .map(|(i, reservation)| {
                (ReservationId { cause: ReservationCause::Capacity(i), queue: reservation.nodes[0] }, reservation)
            })
            .collect()
    }

    /// The first of each queue that lack capacity for long enough, in rank; the preemptor before all.
    pub(crate) fn list_first_jobs_short_of_capacity(
        &mut self,
    ) -> Vec<(ReservationRank, QueueIndex, ShapeId, EpochSeconds)> {
        let mut firsts = Vec::new();
        let open = |id: &ReservationId| self.queues[id.queue].problem.is_none();
        for id in self.reservations.list_capacity_shortages().into_iter().filter(open).collect::<Vec<_>>() {
            self.reservations.promote_due_blocked(id, self.now);
            let first = self.list_due_in_turn(id).find(|(rank, shape)| {
                !self.has_reservation_on_better_card(&rank.id) && !self.takes_kept_amount(id.queue, *shape)
            });
            if let Some((rank, shape)) = first {
                let since = self.reserved_since(id.queue, shape, &rank);
                firsts.push((!self.is_preemptor(&rank.id), rank, id.queue, shape, since));
            }
        }
        let of_claimant = self.find_pending_preemptor().filter(|(_, node, shape)| {
            let id = ReservationId { cause: ReservationCause::Capacity(0), queue: *node };
            self.reservations.is_blocked_by(id, *shape) && !self.takes_kept_amount(*node, *shape)
        });
        if let Some((rank, node, shape)) = of_claimant {
            firsts.retain(|(_, _, queue, ..)| *queue != node);
            let since = self.reserved_since(node, shape, &rank);
            firsts.push((false, rank, node, shape, since));
        }
        firsts.sort();
        firsts.into_iter().map(|(_, rank, node, shape, since)| (rank, node, shape, since)).collect()
    }
}
