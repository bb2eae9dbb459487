//! Which jobs are released now: in the engine's order, each within the capacity that the ones before it left.
//!
//! Rule: quota and order are `caldera_core::queue`'s; whether a gang fits is `caldera_core::place`'s, the function that
//! the scheduler places with. A release is one patch of one binding; so is a larger record for one that runs and wants
//! more. From the decision until the watch shows it the binding is assumed to be admitted, and assumed in the place
//! that was found.

use std::{collections::BTreeMap, sync::Arc};

use caldera_core::{
    gang::ClusterName,
    queue::{Ask, Fit, JobId, ReservedClusters},
    resources::ResourceName,
};
use jiff::Timestamp;

use super::{
    affinity::build_binding_with_peers,
    assess::{predict_remaining_run, predict_run},
    capacity::{FleetCapacity, Place, PlacementQuestion},
    jobs::{JobState, Jobs},
    resize::{Increase, IncreaseKind},
    run_terms::RunTerms,
};
use crate::{
    observe::{Binding, Key, Objects},
    write::Decision,
};

/// Releases of one pass, so that new events are never far behind.
pub(crate) const RELEASES: usize = 256;

/// The clusters, as the engine asks about them for the jobs of this host.
struct Clusters<'a> {
    capacity: &'a mut FleetCapacity,
    objects: &'a Objects,
    states: &'a BTreeMap<Key, Box<JobState>>,
    keys: &'a BTreeMap<JobId, Key>,
    now: Timestamp,
    /// The place of the job that was last found to fit.
    found: Option<Place>,
}

impl Clusters<'_> {
    fn find_job(&self, id: &JobId) -> Option<(&Binding, Option<&Increase>)> {
        let key = self.keys.get(id)?;
        Some((self.objects.bindings.get(key)?, self.states.get(key)?.increase_named(id)))
    }

    /// Every pending job has a placement, a workload and a gang: its state says so.
    fn ask_capacity<T>(
        &mut self,
        id: &JobId,
        card: Option<&ResourceName>,
        ask: impl FnOnce(&mut FleetCapacity, PlacementQuestion<'_>) -> T,
    ) -> Option<T> {
        let objects = self.objects;
        let key = self.keys.get(id)?;
        let binding = objects.bindings.get(key)?;
        let increases = self.states.get(key)?.increase_named(id).is_some();
        let workload = objects.workloads.get(&binding.workload)?;
        let placement = build_binding_with_peers(objects, self.capacity, binding)?;
        let whole = workload.kind.has_tasks();
        let previous = binding.plan.as_deref().filter(|_| whole && increases);
        let gang = objects.gang_to_place(binding, workload)?;
        let gang = gang.keep_to_card(card);
        let run = match increases {
            true => predict_remaining_run(binding, workload, self.now),
            false => predict_run(objects, workload, self.now),
        };
        let question = PlacementQuestion { binding: &placement, gang: &gang, whole, previous, run: Some(run) };
        Some(ask(self.capacity, question))
    }

    /// Adds which nodes its queue keeps it on.
    fn append_nodes(&self, id: &JobId, fit: Fit) -> Fit {
        let objects = self.objects;
        let find = || {
            let (binding, _) = self.find_job(id)?;
            let workload = objects.workloads.get(&binding.workload)?;
            objects.nodes_of_binding(binding, workload).describe(&workload.queue)
        };
        match (fit, find()) {
            (Fit::No { never, detail }, Some(nodes)) => Fit::No { never, detail: format!("{detail}; {nodes}") },
            (Fit::Reserved { detail }, Some(nodes)) => Fit::Reserved { detail: format!("{detail}; {nodes}") },
            (fit, _) => fit,
        }
    }

    /// Pods that must find a place where this is an increase: what was granted, and the least that is asked for on top.
    fn count_needed_pods(&self, id: &JobId) -> Option<u64> {
        let (binding, increase) = self.find_job(id)?;
        let (ask, record) = (&increase?.ask, binding.admission.as_deref()?);
        let more: u64 = ask.tasks.iter().map(|task| u64::from(task.min)).sum();
        Some(record.count_pods().saturating_add(more.saturating_mul(u64::from(ask.copies))))
    }
}

impl caldera_core::queue::ClusterCapacity for Clusters<'_> {
    fn fits(&mut self, id: &JobId, ask: &Ask, kept: &[&ReservedClusters]) -> Fit {
        // Its pods stay where they are, or are replaced one by one: that is the members' own matter.
        if self.find_job(id).and_then(|(_, increase)| increase).is_some_and(|it| it.kind == IncreaseKind::Requests) {
            self.found = None;
            return Fit::Yes;
        }
        let answer = self.ask_capacity(id, ask.card(), |capacity, question| {
            let found = capacity.find_place(question, ask, kept);
            found.map(|decision| Place::from_decision(&decision, question.gang))
        });
        let place = match answer {
            None => return Fit::No { never: false, detail: "its workload is gone".to_owned() },
            Some(Err(no)) => return self.append_nodes(id, no),
            Some(Ok(place)) => place,
        };
        let found = place.count_pods();
        if let Some(needs) = self.count_needed_pods(id).filter(|needs| found < *needs) {
            let detail = format!("{needs} pods need a place, what runs included, and {found} find one");
            return Fit::No { never: false, detail };
        }
        self.found = Some(place);
        Fit::Yes
    }

    fn explain_never_fits(&mut self, id: &JobId, ask: &Ask) -> Option<String> {
        // What runs fitted once; whether more of it does is asked when it has quota.
        if self.find_job(id).is_none_or(|(_, increase)| increase.is_some()) {
            return None;
        }
        let never =
            self.ask_capacity(id, ask.card(), |capacity, question| capacity.find_never(question, ask)).flatten();
        never.map(|never| never.to_string())
    }

    fn keep(&mut self, id: &JobId, ask: &Ask, vain: &[ClusterName]) -> Option<ReservedClusters> {
        if self.count_needed_pods(id).is_some() {
            return None;
        }
        self.ask_capacity(id, ask.card(), |capacity, question| capacity.choose_reserved_clusters(question, ask, vain))
            .flatten()
    }
}

/// Asks whether a job that waits for something else fits anywhere, for who explains it.
pub(crate) fn ask_whether_it_fits(
    jobs: &mut Jobs,
    objects: &Objects,
    capacity: &mut FleetCapacity,
    id: &JobId,
    now: Timestamp,
) {
    let Jobs { engine, states, keys, .. } = jobs;
    engine.ask_whether_it_fits(id, &mut Clusters { capacity, objects, states, keys, now, found: None });
}

/// Releases what is admissible now, a limited number in one pass: each binding and what is written for it.
pub(crate) fn release_admissible_jobs(
    jobs: &mut Jobs,
    objects: &Objects,
    capacity: &mut FleetCapacity,
    now: Timestamp,
) -> Vec<(Key, Decision)> {
    jobs.engine.set_now(now.as_second());
    let mut releases = Vec::new();
    while releases.len() < RELEASES {
        let Jobs { engine, states, keys, .. } = jobs;
        let mut clusters = Clusters { capacity, objects, states, keys, now, found: None };
        let Some(release) = engine.release_next_or_reserve(&mut clusters) else { break };
        let found = clusters.found;
        let Some(binding) = jobs.keys.get(&release.id).and_then(|key| objects.bindings.get(key)) else { continue };
        let workload = objects.workload_of(binding);
        let terms = workload.map(|workload| RunTerms::build_terms(objects, binding, workload, now)).unwrap_or_default();
        let card = release.admission.card.clone();
        let Some(decision) = jobs.assume_release(binding, release, terms) else { continue };
        jobs.changed = true;
        let gang = workload.and_then(|workload| objects.gang_to_place(binding, workload));
        if let (Some(gang), Some(place)) = (gang, found) {
            let gang = card.map_or(Arc::clone(&gang), |card| Arc::new(gang.keep_to_card(Some(&card)).into_owned()));
            capacity.assume_found(binding, &gang, place);
        }
        releases.push((binding.key.clone(), decision));
    }
    releases
}
