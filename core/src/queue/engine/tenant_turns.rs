//! Which tenant's turn it is in a queue where they take turns. The rule is in [`crate::queue::tenant_order`].
//!
//! A fifo queue goes by its line, whoever's jobs are in it, and so does every queue where age alone counts.

use std::{cmp::Reverse, collections::BTreeMap};

use crate::{
    gang::QueueName,
    queue::{
        engine::{Engine, QueueingState},
        pending::{job_order::JobKey, shape_table::ShapeId},
        quota::{
            amounts::Dim,
            slot::{QueueIndex, Slot},
            tenant_share::{TenantCharge, TenantShare},
        },
        reservation::{ReservationId, ReservationRank},
        tenant_order::TenantOrder,
    },
    tenant::Tenant,
};

impl Engine {
    /// Whose a pending job is where tenants take turns in its queue, and how many percent that tenant has.
    #[must_use]
    pub fn tenant_turn(&self, id: &str) -> Option<(&Tenant, u64)> {
        let Some(QueueingState::Pending { node, shape, .. }) = self.jobs.get(id) else { return None };
        let order = self.find_tenant_order(*node)?;
        let tenant = self.queues.dims.tenant(order.tenant_of(&self.shapes[*shape].tenants)?)?;
        Some((tenant, self.tenant_share(order, *node, *shape).percent()))
    }

    /// Whether tenants of a queue take turns there: a fifo queue says it in vain, and so does each where age counts.
    #[must_use]
    pub fn takes_turns(&self, queue: &QueueName) -> bool {
        self.queues.find_node(queue).is_some_and(|node| self.find_tenant_order(node).is_some())
    }

    /// The users of a queue where they take turns, or else the namespaces, with how many percent of it each has, the
    /// largest first. Where history counts, what each used lately is in it.
    #[must_use]
    pub fn list_tenant_shares(&self, queue: &QueueName) -> Vec<(&Tenant, u64)> {
        let turns = self.queues.find_node(queue).and_then(|node| Some((node, self.find_tenant_order(node)?)));
        let Some((node, order)) = turns else { return Vec::new() };
        let slot = &self.queues[node];
        let takes_turns = |tenant: &Dim| tenant.is_of_user() == (order == TenantOrder::Users);
        let charges = slot.of_tenants.iter().filter(|(tenant, _)| takes_turns(tenant));
        let shares = charges.map(|(tenant, charge)| (*tenant, self.share_of_charge(slot, charge)));
        let named = shares.filter_map(|(tenant, share)| Some((self.queues.dims.tenant(tenant)?, share.percent())));
        let mut named: Vec<_> = named.collect();
        named.sort_by_key(|(tenant, percent)| (Reverse(*percent), *tenant));
        named
    }

    pub(crate) fn find_tenant_order(&self, node: QueueIndex) -> Option<TenantOrder> {
        let said = self.queues.find_setting(node, |spec| spec.tenant_order).filter(|said| *said != TenantOrder::None);
        said.filter(|_| !self.queues[node].is_fifo() && !self.rules.is_fifo())
    }

    /// What the tenant of a shape has of a queue.
    pub(crate) fn tenant_share(&self, order: TenantOrder, node: QueueIndex, shape: ShapeId) -> TenantShare {
        self.share_of_tenants(order, node, &self.shapes[shape].tenants)
    }

    /// The same of the one of these that takes turns.
    pub(crate) fn share_of_tenants(&self, order: TenantOrder, node: QueueIndex, tenants: &[Dim]) -> TenantShare {
        let slot = &self.queues[node];
        let charge = order.tenant_of(tenants).and_then(|tenant| slot.of_tenants.get(&tenant));
        charge.map_or(TenantShare::NOTHING, |charge| self.share_of_charge(slot, charge))
    }

    fn share_of_charge(&self, slot: &Slot, charge: &TenantCharge) -> TenantShare {
        match self.rules.counts_tenant_history() {
            true => charge.share_over_time(&slot.real),
            false => charge.share_now(&slot.real),
        }
    }

    /// What tenants of a queue have changed: it may be another one's turn.
    pub(crate) fn update_after_tenant_change(&mut self, node: QueueIndex) {
        let Some(order) = self.find_tenant_order(node) else { return };
        self.pending.schedule_search(node);
        for id in self.reservations.of_queue(node) {
            self.requeue_earlier_turns(order, id);
        }
        // Who would get one may be another job.
        self.reservations.schedule_updates_of(|queue| queue == node);
    }

    /// The same after what all tenants used lately was brought up to date.
    pub(crate) fn update_after_tenant_decay(&mut self, turns: &BTreeMap<QueueIndex, TenantOrder>) {
        turns.keys().for_each(|node| self.pending.schedule_search(*node));
        let ids: Vec<ReservationId> = self.reservations.iter().map(|(id, _)| *id).collect();
        for (id, order) in ids.into_iter().filter_map(|id| Some((id, turns.get(&id.queue)?))) {
            self.requeue_earlier_turns(*order, id);
        }
        self.reservations.schedule_updates_of(|queue| turns.contains_key(&queue));
    }

    /// Has jobs looked at again that a reservation of their queue blocked, and whose turn comes before it by now.
    fn requeue_earlier_turns(&mut self, order: TenantOrder, id: ReservationId) {
        let (node, Some(reservation)) = (id.queue, self.reservations.get(id)) else { return };
        let reserving = self.tenant_share(order, node, reservation.shape);
        // Whoever has as much as before, or more, stays blocked.
        let has_less = |shape: &ShapeId| self.tenant_share(order, node, *shape) < reserving;
        let earlier: Vec<ShapeId> = reservation.list_blocked_shapes_at(node).filter(has_less).collect();
        earlier.into_iter().for_each(|shape| self.requeue_shape(node, shape));
    }

    /// The jobs that a shortage blocks for long enough, in the order in which they get a reservation. Only where
    /// tenants take turns all of them are looked at.
    pub(crate) fn list_due_in_turn(&self, id: ReservationId) -> impl Iterator<Item = (ReservationRank, ShapeId)> {
        let due = self.list_due_blocked(id);
        let (sorted, due) = match self.find_tenant_order(id.queue) {
            Some(order) => {
                let mut all: Vec<_> = due.collect();
                all.sort_by_cached_key(|(rank, shape)| {
                    (rank.priority, self.tenant_share(order, id.queue, *shape), rank.clone())
                });
                (all, None)
            }
            None => (Vec::new(), Some(due)),
        };
        sorted.into_iter().chain(due.into_iter().flatten())
    }

    /// Whether the tenant of a shape has less than that of a reserving job of the same queue, where they take turns: it
    /// is not blocked.
    pub(crate) fn has_earlier_turn(&self, node: QueueIndex, shape: ShapeId, id: ReservationId) -> bool {
        let order = self.find_tenant_order(node).filter(|_| id.queue == node);
        let reserving = self.reservations.get(id).map(|reservation| reservation.shape);
        order.zip(reserving).is_some_and(|(order, reserving)| {
            self.tenant_share(order, node, shape) < self.tenant_share(order, node, reserving)
        })
    }

    /// The jobs of a queue in the order in which they would go now.
    pub(crate) fn list_in_turn(&self, node: QueueIndex) -> Vec<&JobKey> {
        let line = &self.pending[node];
        let Some(order) = self.find_tenant_order(node) else { return line.keys().collect() };
        let turn = |key: &JobKey, shape| (key.priority, self.tenant_share(order, node, shape));
        let mut keys: Vec<_> = line.iter().map(|(key, shape)| (turn(key, shape), key)).collect();
        // Those of one turn stay in line.
        keys.sort_by_key(|(turn, _)| *turn);
        keys.into_iter().map(|(_, key)| key).collect()
    }

    /// How many jobs of a queue go before one.
    pub(crate) fn count_in_turn_before(&self, node: QueueIndex, key: &JobKey) -> usize {
        let line = &self.pending[node];
        let Some((order, shape)) = self.find_tenant_order(node).zip(line.shape_of(key)) else {
            return line.count_before(key);
        };
        let mine = self.tenant_share(order, node, shape);
        line.count_before_by_share(key, |tenants| self.share_of_tenants(order, node, tenants).cmp(&mine))
    }
}
