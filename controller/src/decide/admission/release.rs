//! Which jobs are released now: in the engine's order, each within the capacity that the ones before it left.
//!
//! Rule: quota and order are `caldera_core::queue`'s; whether a gang fits is `caldera_core::place`'s, the function that
//! the scheduler places with. A release is one patch of one binding; so is a larger record for one that runs and wants
//! more. From the decision until the watch shows it the binding is assumed to be admitted, and assumed in the place
//! that was found.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use caldera_core::{
    gang::ClusterName,
    queue::{Ask, Fit, JobId, Release, ReservedClusters},
    resources::ResourceName,
    text::count_noun,
    time::EpochSeconds,
};
use jiff::Timestamp;

use super::assess::{estimate_run, predict_remaining_run, predict_run};
use crate::{
    decide::{
        bindings::{
            job_gangs::{JobGangs, Part},
            jobs::{JobState, Jobs},
            resize::{Increase, IncreaseKind},
            run_terms::RunTerms,
        },
        fleet::{
            affinity::build_binding_to_place,
            capacity::{Companion, FleetCapacity, Place, PlacementQuestion},
        },
    },
    observe::{Binding, Key, Objects},
    write::Decision,
};

/// Releases of one pass, so that new events are never far behind.
const RELEASES: usize = 256;

/// The clusters, as the engine asks about them for the jobs of this host.
struct Clusters<'a> {
    capacity: &'a mut FleetCapacity,
    objects: &'a Objects,
    states: &'a BTreeMap<Key, Box<JobState>>,
    keys: &'a BTreeMap<JobId, Key>,
    gangs: &'a JobGangs,
    now: Timestamp,
    /// The place of the job that was last found to fit, and of those that start with it.
    found: Vec<Place>,
    /// Placements of jobs that start together that may still be asked for.
    budget: usize,
}

/// A job that starts together with another one, as placement sees it.
pub(crate) fn build_companion<'a>(
    objects: &'a Objects,
    capacity: &FleetCapacity,
    part: &Part,
    now: Timestamp,
) -> Option<Companion<'a>> {
    let binding = objects.bindings.get(&part.key)?;
    let workload = objects.workloads.get(&binding.workload)?;
    let gang = objects.gang_to_place(binding, workload)?.keep_to_card(part.card()).into_owned();
    Some(Companion {
        binding: build_binding_to_place(objects, capacity, binding)?,
        gang: Cow::Owned(gang),
        whole: workload.kind.has_tasks(),
        run: predict_run(objects, workload, now),
    })
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
        let placement = build_binding_to_place(objects, self.capacity, binding)?;
        let whole = workload.kind.has_tasks();
        let previous = binding.plan.as_deref().filter(|_| whole && increases);
        let gang = objects.gang_to_place(binding, workload)?;
        let unit = self.gangs.parts_of_leader(id);
        self.budget = self.budget.saturating_sub(unit.len());
        let gang = gang.keep_to_card(unit.first().map_or(card, Part::card));
        let with = unit.iter().skip(1).map(|part| build_companion(objects, self.capacity, part, self.now));
        let with: Vec<Companion<'_>> = with.collect::<Option<_>>()?;
        let run = match increases {
            true => predict_remaining_run(binding, workload, self.now),
            false => predict_run(objects, workload, self.now),
        };
        let question =
            PlacementQuestion { binding: &placement, gang: &gang, whole, previous, run: Some(run), with: &with };
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
            self.found.clear();
            return Fit::Yes;
        }
        let mut placements = 0;
        let answer = self.ask_capacity(id, ask.card(), |capacity, question| {
            let gangs = std::iter::once(question.gang).chain(question.with.iter().map(|one| &*one.gang));
            let found = capacity.find_place(question, ask, kept, &mut placements);
            found
                .map(|decisions| decisions.iter().zip(gangs).map(|(it, gang)| Place::from_decision(it, gang)).collect())
        });
        // The first is counted already.
        let more = placements.saturating_sub(1);
        self.budget = self.budget.saturating_sub(self.gangs.parts_of_leader(id).len().saturating_mul(more));
        let places: Vec<Place> = match answer {
            None => return Fit::No { never: false, detail: "its workload is gone".to_owned() },
            Some(Err(no)) => return self.append_nodes(id, no),
            Some(Ok(places)) => places,
        };
        let found = places.iter().map(Place::count_pods).sum::<u64>();
        if let Some(needs) = self.count_needed_pods(id).filter(|needs| found < *needs) {
            let needs = count_noun(needs, "pod");
            let detail = format!("it needs a place for {needs}, what runs included, and finds {found}");
            return Fit::No { never: false, detail };
        }
        self.found = places;
        Fit::Yes
    }

    fn explain_never_fits(&mut self, id: &JobId, ask: &Ask) -> Option<String> {
        // What runs fitted once; whether more of it does is asked when it has quota.
        if self.find_job(id).is_none_or(|(_, increase)| increase.is_some()) {
            return None;
        }
        let never = self
            .ask_capacity(id, ask.card(), |capacity, question| capacity.find_final_refusal(question, ask))
            .flatten();
        never.map(|never| never.to_string())
    }

    fn reserve_clusters(&mut self, id: &JobId, ask: &Ask, vain: &[ClusterName]) -> Option<ReservedClusters> {
        if self.count_needed_pods(id).is_some() {
            return None;
        }
        self.ask_capacity(id, ask.card(), |capacity, question| capacity.choose_reserved_clusters(question, ask, vain))
            .flatten()
    }

    fn is_exhausted(&self) -> bool {
        self.budget == 0
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
    let Jobs { engine, states, keys, gangs, .. } = jobs;
    let (found, budget) = (Vec::new(), usize::MAX);
    engine.ask_whether_it_fits(id, &mut Clusters { capacity, objects, states, keys, gangs, now, found, budget });
}

/// What is released in one pass.
#[derive(Debug, Default)]
pub(crate) struct Releases {
    /// Each binding and what is written for it.
    pub(crate) writes: Vec<(Key, Decision)>,
    /// More may be admissible.
    pub(crate) is_unfinished: bool,
}

/// Releases what is admissible now, as much as one pass may.
pub(crate) fn release_admissible_jobs(
    jobs: &mut Jobs,
    objects: &Objects,
    capacity: &mut FleetCapacity,
    now: Timestamp,
) -> Releases {
    jobs.engine.set_now(EpochSeconds::from(now));
    let mut releases = Vec::new();
    let mut budget = jobs.gangs.budget.placements();
    while releases.len() < RELEASES {
        let Jobs { engine, states, keys, gangs, .. } = jobs;
        let mut clusters = Clusters { capacity, objects, states, keys, gangs, now, found: Vec::new(), budget };
        let release = engine.release_next_in_clusters(&mut clusters);
        budget = clusters.budget;
        let Some(release) = release else { break };
        let mut found = clusters.found.into_iter();
        for (key, release) in jobs.split_release(release) {
            let place = found.next();
            let Some(binding) = objects.bindings.get(&key) else { continue };
            let decision = assume_release_in_place(jobs, objects, capacity, (binding, place), release, now);
            releases.extend(decision.map(|decision| (key, decision)));
        }
    }
    jobs.gangs.budget.end_pass(budget == 0);
    Releases { is_unfinished: budget == 0 || releases.len() >= RELEASES, writes: releases }
}

fn assume_release_in_place(
    jobs: &mut Jobs,
    objects: &Objects,
    capacity: &mut FleetCapacity,
    (binding, place): (&Binding, Option<Place>),
    release: Release,
    now: Timestamp,
) -> Option<Decision> {
    let workload = objects.workload_of(binding);
    let terms = workload.map(|workload| RunTerms::build_terms(objects, binding, workload, now)).unwrap_or_default();
    let card = release.admission.card.clone();
    let decision = jobs.assume_release(binding, release, terms)?;
    // Others of this pass may have to leave free what it will have given back; what runs says when it ends itself.
    if let Some(seconds) = workload.filter(|_| binding.admission.is_none()).and_then(|it| estimate_run(objects, it)) {
        jobs.engine.set_expected_end(binding.id.as_str(), Some(EpochSeconds::from(now).saturating_add(seconds)));
    }
    jobs.changed = true;
    let gang = workload.and_then(|workload| objects.gang_to_place(binding, workload));
    if let (Some(gang), Some(place)) = (gang, place) {
        let gang = card.map_or(Arc::clone(&gang), |card| Arc::new(gang.keep_to_card(Some(&card)).into_owned()));
        capacity.assume_found(binding, &gang, place);
    }
    Some(decision)
}
