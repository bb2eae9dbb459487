//! Whether a job that holds quota would be admitted again if it gave that back.
//!
//! Rule: as one that is first in line. Its queue takes jobs, what it asks for at least stays within every ceiling on
//! the way up once its own charge is gone, beside what is kept for a time, and so do the limits of jobs that run.
//! Ceilings may have come down, or others may have been charged more, since it was admitted; who runs keeps what it
//! has, and who waits does not get it.

use crate::{
    gang::QueueName,
    queue::{
        Ask, Engine,
        engine::QueueingState,
        quota::{
            admission::{find_ceiling, free_quota},
            amount::Amount,
            slot::split_counts,
        },
    },
};

impl Engine {
    /// Whether a job that is charged would be admitted again to this queue on some card model that it asks for.
    #[must_use]
    pub fn would_admit_again(&self, id: &str, queue: &QueueName, ask: &Ask) -> bool {
        let asks = std::iter::successors(Some(ask), |ask| ask.card.as_ref()?.otherwise.as_deref());
        self.queue_problem(queue).is_none() && asks.into_iter().any(|ask| self.has_quota_again(id, queue, ask))
    }

    fn has_quota_again(&self, id: &str, queue: &QueueName, ask: &Ask) -> bool {
        let Some(QueueingState::Charged { node: held, charge, .. }) = self.jobs.get(id) else { return false };
        let Some(node) = self.queues.find_node(queue) else { return false };
        let (amounts, counts) = split_counts(charge);
        let minimum = ask.minimum();
        if !self.leaves_kept_free_again(id, node, ask) {
            return false;
        }
        self.queues[node].path.iter().all(|at| {
            let slot = &self.queues[*at];
            let gives_back = self.queues[*held].path.contains(at);
            let fits = |(name, asked): (&crate::resources::ResourceName, crate::quantity::Quantity)| {
                // There is any amount of a card model that no queue limits, and nothing else that nobody names.
                let Some(dim) = self.queues.dims.find_dim(name) else { return name.is_card() || asked.is_zero() };
                let freed = amounts.iter().filter(|(held, _)| gives_back && *held == dim).map(|(_, held)| *held);
                let used = slot.used.get(dim) - freed.sum();
                asked.is_zero() || find_ceiling(slot, dim).is_none_or(|most| used + asked.into() <= most)
            };
            minimum.iter().all(fits)
                && counts.iter().all(|(dim, _)| free_quota(slot, *dim).is_none_or(|free| free >= Amount::ZERO))
        })
    }
}
