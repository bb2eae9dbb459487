//! Jobs that may use one of several card models: each model is an entry of its own in the line.
//!
//! Rule: [`crate::card_choice`]. The entry for the first model bears the job's name and those for the others names
//! behind it, so that nobody comes between them. Each lacks what it lacks and is requeued for that. The first that is
//! released takes the others along. Of all numbers that people read a job is one; what it waits for is told of each
//! model.

use std::sync::Arc;

use crate::{
    queue::{
        engine::{Engine, Job},
        pending::job_order::JobId,
        quota::admission::Ask,
    },
    reason::{Position, Reason},
    resources::ResourceName,
};

impl Engine {
    /// A job is pending (again), on each of its card models. It keeps its position if nothing about it changed: then
    /// this is false.
    pub fn enqueue_job(&mut self, job: Job) -> bool {
        let others: Vec<Arc<Ask>> = job.ask.list_other_choices().cloned().collect();
        let had = self.jobs.count_choices(job.id.as_str());
        (others.len()..had).for_each(|number| self.remove_entry(job.id.with_choice(number).as_str()));
        self.jobs.set_choices(&job.id, others.len());
        let mut changed = others.len() != had;
        for (number, ask) in others.into_iter().enumerate() {
            changed |= self.enqueue_entry(Job { id: job.id.with_choice(number), ask, ..job.clone() });
        }
        self.enqueue_entry(job) | changed
    }

    /// A job is gone, or not ours to decide about: it neither waits nor holds.
    pub fn remove_job(&mut self, id: &str) {
        for entry in self.jobs.take_other_entries(id) {
            self.remove_entry(entry.as_str());
        }
        self.remove_entry(id);
    }

    /// The entry of a job for the card model that it likes best of those on which it could ever start, as far as is
    /// known; of all, if it can start on none.
    pub(crate) fn find_best_entry(&self, id: &str) -> JobId {
        let entries = self.jobs.list_entries(id);
        let best = entries.iter().position(|entry| !self.is_entry_unsatisfiable(entry)).unwrap_or(0);
        entries.into_iter().nth(best).unwrap_or_else(|| id.into())
    }

    /// The card model that a pending job would like best of those on which it could ever start, where it has a choice.
    #[must_use]
    pub fn pending_card(&self, id: &str) -> Option<&ResourceName> {
        self.pending_ask(self.find_best_entry(id).as_str())?.card()
    }

    /// [`Engine::explain_pending`] for a job whose position is known: of one with a choice, why not on each model.
    #[must_use]
    pub fn explain_pending_at(&self, id: &str, position: Position) -> Option<Reason> {
        let first = self.explain_entry_at(id, position)?;
        let Some(card) = self.pending_ask(id).and_then(|ask| ask.card()).filter(|_| self.jobs.has_choice(id)) else {
            return Some(first);
        };
        let mut each = vec![(card.clone(), first)];
        for entry in self.jobs.list_entries(id).into_iter().skip(1) {
            let card = self.pending_ask(entry.as_str()).and_then(|ask| ask.card()).cloned();
            each.extend(card.zip(self.explain_entry_at(entry.as_str(), position)));
        }
        Some(Reason::of_each_card(each))
    }
}
