//! Which jobs leave clusters whose nodes are really hot, or that are too far apart, and when that is decided.
//!
//! Rule: who leaves is decided by `caldera_core::load_aware` and `caldera_core::link_aware`, once an interval, where an
//! admin chose it. This fills in what they look at. Only what has a gang, runs to its end and starts alone is moved: a
//! service would be away for a moment, and a job that starts together with others would leave without them. A job that
//! leaves is taken off its clusters in one patch, as one whose copy was refused: it keeps its age, waits in line until
//! its old copies are gone, and avoids each cluster that may not receive. Clusters that are reserved for a job that
//! waits receive nothing. Nobody leaves while an admin has paused releases, for nobody would start again; nor does who
//! would be refused as one that waits, or whose queue has been charged too much meanwhile.
//!
//! When a job was moved, and what it avoids since, is in its eviction records (`caldera.dev/eviction`), also those that
//! were written later for other reasons, so a restart forgets neither. Readings are kept in memory: after a restart a
//! cluster must be hot as often again.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use caldera_core::{
    cluster_choice::ClusterChoice,
    fleet::EvictedPods,
    gang::ClusterName,
    inventory::MemberLoad,
    link_aware::{DistantGang, LinkHistory, plan_link_moves},
    load_aware::{JobMove, LoadHistory, LoadInput, LoadPolicy, PlacedJob, plan_moves},
    place,
    queue::{JobId, preemption::PreemptionPolicy},
    resources::Resources,
    time::EpochSeconds,
};
use jiff::{SignedDuration, Timestamp};

use super::{attempt::list_bindings, link_aware::list_distant_gangs, placed_job::describe_placed_job};
use crate::{
    decide::{
        admission::assess::{assess_as_waiting, predict_run},
        bindings::{
            eviction::{RESCHEDULED, find_last_move, requeue_without_backoff},
            jobs::{JobPhase, Jobs},
        },
        deadlines::add_wait,
        fleet::{
            affinity::build_unplaced_binding,
            capacity::{Companion, FleetCapacity, PlacementQuestion, PodsByCluster},
        },
    },
    observe::{Binding, Objects},
    write::Decision,
};

/// What the clusters use, and when to look at it next.
#[derive(Debug, Default)]
pub(crate) struct LoadAware {
    policy: LoadPolicy,
    history: LoadHistory,
    links: LinkHistory,
    due: Option<Timestamp>,
}

impl LoadAware {
    /// Goes by this from now on; what was read before was judged otherwise.
    pub(crate) fn set_policy(&mut self, policy: LoadPolicy) {
        if policy != self.policy {
            (self.policy, self.due) = (policy, None);
            self.history.forget_all();
            self.links.forget_all();
        }
    }

    /// Takes in what was read of a cluster last.
    pub(crate) fn observe_load(&mut self, cluster: &str, load: Option<&MemberLoad>, now: Timestamp) {
        if self.policy.enabled {
            self.history.observe_load(cluster, load, &self.policy, EpochSeconds::from(now));
        }
    }

    /// When to decide again if nothing happens.
    pub(crate) const fn next_due(&self) -> Option<Timestamp> {
        self.due
    }

    /// Jobs that leave now.
    pub(crate) fn move_jobs(
        &mut self,
        objects: &Objects,
        jobs: &Jobs,
        capacity: &mut FleetCapacity,
        preemption: &PreemptionPolicy,
        now: Timestamp,
    ) -> Vec<Decision> {
        if !self.policy.enabled && !self.policy.links {
            return Vec::new();
        }
        let is_due = self.due.is_some_and(|due| due <= now);
        if is_due || self.due.is_none() {
            self.due = Some(add_wait(now, SignedDuration::from_secs(self.policy.interval)));
        }
        // karmada-scheduler does not know what a job is to avoid, and might send it back.
        let may_move = !objects.admits_whole_gangs && jobs.engine.pause_reason().is_none();
        if !may_move {
            self.links.forget_all();
        }
        if !is_due || !may_move {
            return Vec::new();
        }
        let mut moves = Vec::new();
        if self.policy.enabled && self.history.has_hot_cluster(&self.policy) {
            moves = self.plan_round(objects, jobs, capacity, preemption, now);
        }
        if self.policy.links {
            let distant = list_distant_gangs(objects, jobs, capacity, now);
            self.links.observe_round(&distant);
            // Whoever leaves a hot cluster takes places that gangs would be promised: they go in the next round.
            if moves.is_empty() {
                moves = self.plan_link_round(objects, jobs, capacity, preemption, &distant, now);
            }
        }
        for cluster in moves.iter().flat_map(|one| one.from.iter().chain(&one.to)) {
            self.history.reset_hot_counts(cluster);
        }
        let known = capacity.list_cluster_names();
        moves.into_iter().filter_map(|one| write_move(objects, jobs, &known, one, now)).collect()
    }

    fn plan_round(
        &self,
        objects: &Objects,
        jobs: &Jobs,
        capacity: &mut FleetCapacity,
        preemption: &PreemptionPolicy,
        now: Timestamp,
    ) -> Vec<JobMove> {
        let fleet = capacity.sum_fleet().ready;
        let placed: Vec<PlacedJob> = list_bindings(objects, jobs)
            .filter_map(|(binding, state)| describe_placed_job(objects, jobs, capacity, binding, state, now))
            .collect();
        let asked = sum_asked(capacity);
        let closed = list_reserved_clusters(objects, jobs).iter().map(ToString::to_string).collect();
        let input = LoadInput {
            policy: &self.policy,
            preemption,
            history: &self.history,
            asked: &asked,
            closed: &closed,
            jobs: &placed,
            fleet: &fleet,
            now: EpochSeconds::from(now),
        };
        let mut places = Places { objects, jobs, capacity, found: BTreeMap::new(), now };
        plan_moves(&input, |before, id, open| places.find_place(before, id, open))
    }

    fn plan_link_round(
        &mut self,
        objects: &Objects,
        jobs: &Jobs,
        capacity: &mut FleetCapacity,
        preemption: &PreemptionPolicy,
        distant: &[DistantGang],
        now: Timestamp,
    ) -> Vec<JobMove> {
        let closed = list_reserved_clusters(objects, jobs);
        let known = capacity.list_cluster_names().into_iter();
        let is_hot = |name: &str| self.policy.enabled && self.history.is_hot(name, &self.policy);
        let open = known.filter(|name| !closed.contains(name.as_str()) && !is_hot(name)).collect();
        let mut places = Places { objects, jobs, capacity, found: BTreeMap::new(), now };
        let (rules, now) = ((&self.policy, preemption), EpochSeconds::from(now));
        let find_place = |before: &[&JobId], id: &JobId, open: &BTreeSet<String>| places.find_place(before, id, open);
        plan_link_moves(rules, &mut self.links, distant, &open, now, find_place)
    }
}

/// What all pods in each cluster ask for, those that are assumed there among them.
fn sum_asked(capacity: &FleetCapacity) -> BTreeMap<String, Resources> {
    let asked = |(cluster, capacity): (&place::Cluster, &caldera_core::inventory::Capacity)| {
        let mut asked = capacity.sum_allocatable();
        asked.saturating_sub(&capacity.sum_free());
        (cluster.name.clone(), asked)
    };
    capacity.fleet().clusters().map(asked).collect()
}

/// Clusters that are reserved for jobs that wait.
fn list_reserved_clusters(objects: &Objects, jobs: &Jobs) -> BTreeSet<ClusterName> {
    list_cluster_reservations(objects, jobs).flat_map(|(_, clusters)| clusters).collect()
}

/// Jobs that wait and have clusters reserved, each with these.
pub(crate) fn list_cluster_reservations<'a>(
    objects: &'a Objects,
    jobs: &'a Jobs,
) -> impl Iterator<Item = (&'a Binding, Vec<ClusterName>)> {
    let pending = list_bindings(objects, jobs).filter(|(_, state)| state.phase == JobPhase::Pending);
    pending.filter_map(move |(binding, _)| Some((binding, jobs.engine.reservation_of(binding.id.as_str())?.clusters)))
}

/// Where jobs would go that leave in one round, each beside those before it.
struct Places<'a> {
    objects: &'a Objects,
    jobs: &'a Jobs,
    capacity: &'a mut FleetCapacity,
    /// Those for which a place was found.
    found: BTreeMap<JobId, Companion<'a>>,
    now: Timestamp,
}

impl<'a> Places<'a> {
    fn find_place(&mut self, before: &[&JobId], id: &JobId, open: &BTreeSet<String>) -> Option<PodsByCluster> {
        if !self.would_start_again(id) {
            return None;
        }
        let one = self.build_mover(id, open)?;
        let with: Vec<Companion<'a>> = before.iter().filter_map(|id| self.found.get(*id).cloned()).collect();
        let gone = before.iter().copied().chain([id]).map(|id| (id.to_string(), EvictedPods::All)).collect();
        let question = PlacementQuestion {
            binding: &one.binding,
            gang: &one.gang,
            whole: one.whole,
            previous: None,
            run: Some(one.run),
            with: &with,
        };
        let pods = self.capacity.find_place_without(question, &gone)?;
        self.found.insert(id.clone(), one);
        Some(pods)
    }

    /// Whether its queue would take it and its quota would do if it stood first in line: who runs keeps what is refused
    /// to who waits.
    fn would_start_again(&self, id: &JobId) -> bool {
        let binding = self.jobs.keys.get(id).and_then(|key| self.objects.bindings.get(key));
        let job = binding.and_then(|binding| assess_as_waiting(self.objects, self.jobs, self.capacity, binding));
        job.is_some_and(|job| self.jobs.engine.would_admit_again(id.as_str(), &job.queue, &job.ask))
    }

    /// A job as if it was in no cluster, and may go to these alone.
    fn build_mover(&self, id: &JobId, open: &BTreeSet<String>) -> Option<Companion<'a>> {
        let binding = self.objects.bindings.get(self.jobs.keys.get(id)?)?;
        let workload = self.objects.workload_of(binding)?;
        let gang = workload.gang.as_ref().ok()?;
        let placement = build_unplaced_binding(self.objects, self.capacity, binding)?;
        let own = placement.choice.as_deref().cloned().unwrap_or_default();
        let only: BTreeSet<String> = open.iter().filter(|cluster| own.allows(cluster)).cloned().collect();
        if only.is_empty() {
            return None;
        }
        let choice = Some(Arc::new(ClusterChoice { only, exclude: BTreeSet::new() }));
        Some(Companion {
            binding: Cow::Owned(place::Binding { choice, fresh: true, ..placement }),
            gang: Cow::Owned(gang.restrict_to_nodes(&self.objects.nodes_of_queue(&workload.queue))),
            whole: workload.kind.has_tasks(),
            run: predict_run(self.objects, workload, self.now),
        })
    }
}

/// The patch that takes a job off its clusters. It avoids all that may not receive, and what it avoided before.
fn write_move(objects: &Objects, jobs: &Jobs, known: &[String], one: JobMove, now: Timestamp) -> Option<Decision> {
    let binding = jobs.find_confirmed(objects, jobs.keys.get(&one.id)?)?;
    let before = binding.eviction.as_deref().and_then(find_last_move);
    let was_avoided = |name: &String| before.as_ref().is_some_and(|moved| moved.avoid.contains(name));
    let avoid = known.iter().filter(|name| !one.receivers.contains(*name) || was_avoided(name)).cloned().collect();
    Some(requeue_without_backoff(binding, RESCHEDULED, one.why, avoid, now))
}
