//! Queues as seen, and what of them changed: what they say, how they stand, and who may use them.
//!
//! Rule: what a queue says of node groups or clusters is of concern to all bindings once the first says something.

use std::collections::BTreeSet;

use caldera_core::gang::QueueName;
use caldera_runtime::watch::Event;

use super::{
    super::{
        object_kind::ObjectKind,
        queue::{QueueFacts, Tenancy},
        resource_version::is_older,
    },
    Change, Objects,
};

impl Objects {
    pub(crate) fn apply_queues(&mut self, event: Event<QueueFacts>) -> Vec<Change> {
        let used = !self.naming_groups.is_empty();
        let mut changes = self.apply_queue_event(event);
        // Queues without a word on groups keep off them from now on, or not any more.
        changes.extend((self.naming_groups.is_empty() == used).then_some(Change::AllBindings));
        changes
    }

    fn apply_queue_event(&mut self, event: Event<QueueFacts>) -> Vec<Change> {
        match event {
            Event::Applied(queue) => self.set_queue(queue).into_iter().collect(),
            Event::Deleted(queue) => vec![self.remove_queue(queue.spec.name)],
            Event::Reset(all) => {
                let there: BTreeSet<&QueueName> = all.iter().map(|queue| &queue.spec.name).collect();
                let gone: Vec<QueueName> = self.queues.keys().filter(|name| !there.contains(name)).cloned().collect();
                let mut changes: Vec<Change> = gone.into_iter().map(|name| self.remove_queue(name)).collect();
                changes.extend(all.into_iter().filter_map(|queue| self.set_queue(queue)));
                self.mark_listed(ObjectKind::Queues);
                changes
            }
        }
    }

    fn set_queue(&mut self, queue: QueueFacts) -> Option<Change> {
        let name = queue.spec.name.clone();
        let known = self.queues.get(&name).filter(|known| known.uid == queue.uid);
        if known.is_some_and(|known| is_older(&queue.resource_version, &known.resource_version)) {
            return None;
        }
        let state_of = |queue: &QueueFacts| (queue.state.clone(), queue.closed_by_parent, queue.spec.parent.clone());
        let state = known.is_none_or(|known| state_of(known) != state_of(&queue));
        let said = |queue: &QueueFacts| {
            let of_jobs = (queue.namespaces.clone(), queue.largest_job.clone(), queue.longest_run.clone());
            let of_jobs = (of_jobs, queue.allowed_classes.clone(), queue.evicts_all_jobs);
            let places = (queue.wrong.clone(), queue.wrong_places.clone());
            (queue.spec.clone(), queue.card_quota.clone(), places, of_jobs)
        };
        let spec = known.is_none_or(|known| said(known) != said(&queue));
        let moved = known.is_none_or(|known| known.spec.parent != queue.spec.parent);
        let nothing = Tenancy::default();
        let access = known.map_or(nothing, Tenancy::from_queue) != Tenancy::from_queue(&queue)
            || (moved && self.queues.values().any(|queue| Tenancy::from_queue(queue) != nothing));
        for (names, says) in [
            (&mut self.naming_groups, queue.spec.names_node_groups()),
            (&mut self.selecting_clusters, !queue.spec.clusters.is_empty()),
        ] {
            if says {
                names.insert(name.clone())
            } else {
                names.remove(&name)
            };
        }
        self.queues.insert(name.clone(), queue);
        Some(Change::Queue { name, spec, state, access })
    }

    fn remove_queue(&mut self, name: QueueName) -> Change {
        let gone = self.queues.remove(&name);
        self.naming_groups.remove(&name);
        self.selecting_clusters.remove(&name);
        // Those above it have a word on what is below it only through it.
        let access = self.queues.values().chain(&gone).any(|queue| Tenancy::from_queue(queue) != Tenancy::default());
        Change::QueueGone(name, access)
    }
}
