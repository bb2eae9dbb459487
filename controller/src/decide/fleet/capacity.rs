//! Where a waiting gang would go now, what the fleet has for it, and what can never fit.
//!
//! Rule: the question goes to `caldera_core::place`, as the scheduler's does. From the release until its pods are seen
//! in the members a job is *assumed* there, as in kube-scheduler's cache: first in the place that was found at the
//! release, then where the written plan says. So the next job is not released into the same capacity.
//!
//! What does not fit even with all of our pods gone never fits (`never_fits`). For the quota of the root a cluster
//! counts in full where jobs may start, by its taints and by who tolerates them; of any other cluster only what jobs
//! hold counts.

mod eviction;
mod found_place;
mod maintenance;
mod never_fits;
mod place_elsewhere;
mod reserved_clusters;
mod seen_pods;
mod together;
mod upcoming;

use std::{
    borrow::Cow,
    cell::Cell,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use caldera_core::{
    fleet::{self, AWAY, AssumedPods, Update, list_clusters_reserved_against, takes_jobs},
    gang::{ClusterName, Gang, Requirement, Taint, Task, Toleration},
    interning::Interned,
    inventory::{Capacity, Change, Pod, Source},
    maintenance::ExpectedRun,
    place::{self, Cluster, Decision, Peers},
    plan::{PinnedDomains, Plan},
    queue::{Ask, CapacityGrowth, Fit, FitClass, FleetResources, JobId, ReservedClusters},
    resources::Resources,
    split::FederationTopology,
    text::count_noun,
    time::EpochSeconds,
};

use self::together::place_together;
pub use self::{found_place::Place, place_elsewhere::PodsByCluster, together::Companion};
use crate::observe::{Binding, ClusterFacts};

/// Taint by which Karmada takes a cluster out for a while.
const CORDON: &str = "cluster.karmada.io/unschedulable";

/// What is to be placed.
#[derive(Debug, Clone, Copy)]
pub struct PlacementQuestion<'a> {
    /// The binding.
    pub binding: &'a place::Binding,
    /// Its gang.
    pub gang: &'a Gang,
    /// All of the minimum or nothing.
    pub whole: bool,
    /// By what plan it holds what it holds already.
    pub previous: Option<&'a Plan>,
    /// When it would run; `None` where no maintenance window counts.
    pub run: Option<ExpectedRun>,
    /// Who must find a place beside it, or none of them does.
    pub with: &'a [Companion<'a>],
}

impl PlacementQuestion<'_> {
    /// The same where nodes that take so many seconds must come first.
    fn with_delay(self, delay: i64) -> Self {
        Self { run: self.run.map(|run| run.with_delay(delay)), ..self }
    }
}

/// How much more capacity there may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FleetGrowth {
    /// Pods ended, or are not to come any more: so much, and nodes are what they were.
    By(CapacityGrowth),
    /// Nodes, labels or clusters are others than they were.
    Somewhere,
}

/// The members and what is assumed in them.
#[derive(Debug, Clone, Default)]
pub struct FleetCapacity {
    fleet: fleet::Fleet,
    assumed: BTreeSet<JobId>,
    /// Gangs that are restricted to some nodes.
    gangs: Interned<Gang>,
    /// Of classes that were asked about: why they never fit, if so.
    never: HashMap<FitClass, Option<Arc<str>>>,
    /// Some class was told so since the clusters changed, whether or not it is remembered.
    was_never_said: bool,
    /// What is free in all clusters together; `None` after anything changed.
    free: Option<Resources>,
    /// There may be more capacity in these clusters, for pods ended there, than when this was last asked.
    grew_in: BTreeSet<String>,
    /// There may be more capacity, nobody knows where or of what.
    grew: bool,
    /// The clusters, or what they have, may have changed since this was last asked.
    changed: bool,
    /// Who waits or holds by the taints of clusters that they tolerate, where they tolerate any.
    tolerations: BTreeMap<Vec<Toleration>, BTreeSet<JobId>>,
    /// Clusters that took no jobs when the total was last worked out.
    closed: BTreeSet<String>,
    /// Clusters that take jobs of some queues alone, always or in a maintenance window.
    exclusive: BTreeSet<String>,
    /// Maintenance windows that ended by then were seen to end.
    maintenance_seen: EpochSeconds,
}

/// Facts in.
impl FleetCapacity {
    /// A cluster was created or changed.
    pub fn set_cluster(&mut self, facts: ClusterFacts) {
        let name = facts.cluster.name.clone();
        let is_exclusive = facts.cluster.queues.is_some() || facts.cluster.maintenance.names_queues();
        let changed = self.fleet.set_cluster(facts.cluster, facts.summary);
        if is_exclusive {
            self.exclusive.insert(name)
        } else {
            self.exclusive.remove(&name)
        };
        self.free = None;
        self.grew |= changed;
        self.changed |= changed;
    }

    /// A cluster is gone.
    pub fn remove_cluster(&mut self, name: &str) {
        self.fleet.remove_cluster(name);
        self.exclusive.remove(name);
        self.free = None;
        self.changed = true;
    }

    /// The links that are declared between clusters.
    pub fn set_federation_topology(&mut self, links: FederationTopology) {
        let changed = self.fleet.set_federation_topology(links);
        self.grew |= changed;
        self.changed |= changed;
    }

    /// Something happened in a member.
    pub fn apply_update(&mut self, cluster: &str, update: Update) {
        // The scheduler asks what the members' own queues let start; what it refuses comes back.
        if matches!(update, Update::Queues(_)) {
            return;
        }
        // A pod that is bound now only takes, unless pods are then assumed elsewhere.
        let binds = matches!(&update, Update::Change(Change::Pod(Pod { node: Some(_), finished: false, .. })));
        let only_takes = binds && !self.fleet.has_unseen_pods(cluster);
        // What NUMA nodes have free changes with the pods, and is part of no sum.
        let pods = matches!(
            &update,
            Update::Change(
                Change::Pod(_) | Change::PodGone(..) | Change::NumaTopology(..) | Change::NumaTopologyGone(_)
            )
        );
        if self.fleet.apply_update(cluster, update) {
            self.free = None;
            self.changed |= !pods;
            match pods {
                true if only_takes => {}
                true => drop(self.grew_in.insert(cluster.to_owned())),
                false => self.grew = true,
            }
        }
    }

    /// A place is kept for what is in clusters already, until its pods are seen there.
    pub fn assume_placed(&mut self, binding: &Binding, gang: &Arc<Gang>, queued: bool) {
        let share = |cluster: &ClusterName| binding.plan.as_ref().and_then(|plan| plan.clusters.get(cluster));
        let in_one = |cluster: &ClusterName, replicas: u32, task: &Task| match share(cluster) {
            Some(share) => share.tasks.get(&task.name).map_or(0, |share| share.replicas),
            None if gang.tasks.len() == 1 && replicas > 0 => replicas,
            None => task.replicas,
        };
        let pods = |(cluster, replicas): &(ClusterName, u32)| {
            let of_task = |task: &Task| in_one(cluster, *replicas, task).min(binding.max_pods_per_cluster(task));
            (cluster.to_string(), gang.tasks.iter().map(of_task).collect())
        };
        let within = binding.plan.as_ref().map(|plan| plan.pinned_domains()).unwrap_or_default();
        self.assume(binding, gang, binding.clusters.iter().map(pods).collect(), within, queued);
    }

    /// A place is kept for a released binding.
    pub fn assume_found(&mut self, binding: &Binding, gang: &Arc<Gang>, place: Place) {
        self.assume(binding, gang, place.pods, place.within, true);
    }

    fn assume(
        &mut self,
        binding: &Binding,
        gang: &Arc<Gang>,
        pods: BTreeMap<String, Vec<u32>>,
        within: BTreeMap<String, PinnedDomains>,
        queued: bool,
    ) {
        self.changed |= pods.keys().any(|cluster| self.closed.contains(cluster)) && !self.assumed.contains(&binding.id);
        let gang = Arc::clone(gang);
        // What a restriction makes of a gang is made for each binding anew.
        let gang = if gang.node_groups().is_some() { self.gangs.intern(gang) } else { gang };
        let assumed = AssumedPods { workload: (*binding.workload).clone(), gang, pods, pinned: within };
        let replaced = if queued {
            self.fleet.assume_pods(binding.id.as_str(), assumed)
        } else {
            self.fleet.assume_unqueued_pods(binding.id.as_str(), assumed)
        };
        self.grew_in.extend(replaced);
        self.free = None;
        self.assumed.insert(binding.id.clone());
    }

    /// It is gone: pods of it that are still there are somebody else's.
    pub fn forget_job(&mut self, id: &JobId) {
        self.retire_assumed(id.as_str());
        self.set_tolerations(id, None);
        self.fleet.forget_assumed(id.as_str());
    }

    /// A binding selects nodes as its gang does, and by these labels where it has one, or not any more: what it selects
    /// on is kept at hand.
    pub fn set_selected_labels(&mut self, id: &str, gang: Option<&Gang>, nodes: &[Requirement]) {
        self.fleet.set_restricted_labels(id, gang, nodes);
    }

    /// Its place is not kept any longer.
    pub fn retire_assumed(&mut self, id: &str) {
        if self.assumed.remove(id) {
            let was_in = self.fleet.forget_unbound_assumed(id);
            self.changed |= was_in.iter().any(|cluster| self.closed.contains(cluster));
            self.grew_in.extend(was_in);
            self.free = None;
        }
    }

    /// Who waits or holds tolerates these taints of clusters; or does not wait or hold any more.
    pub fn set_tolerations(&mut self, id: &JobId, tolerations: Option<&[Toleration]>) {
        // Those by which Karmada lets everybody stay where a cluster went away bring nobody in.
        let own = |one: &&Toleration| one.key.is_empty() || !AWAY.contains(&one.key.as_str());
        let own: Vec<Toleration> = tolerations.unwrap_or_default().iter().filter(own).cloned().collect();
        let known = self.tolerations.iter().find(|(_, ids)| ids.contains(id)).map(|(known, _)| known.clone());
        if known.as_ref().map_or(own.is_empty(), |known| *known == own) {
            return;
        }
        if let Some(known) = known
            && let Some(ids) = self.tolerations.get_mut(&known)
        {
            ids.remove(id);
            if ids.is_empty() {
                self.tolerations.remove(&known);
                self.changed = true;
            }
        }
        if !own.is_empty() {
            self.changed |= !self.tolerations.contains_key(&own);
            self.tolerations.entry(own).or_default().insert(id.clone());
        }
    }

    /// True once after pods that are not ours may have come or gone.
    pub fn take_other_pods_changed(&mut self) -> bool {
        self.fleet.take_other_pods_changed()
    }

    /// Whether they may have, without forgetting it.
    pub const fn have_other_pods_changed(&self) -> bool {
        self.fleet.have_other_pods_changed()
    }

    /// Clusters changed, or others left: what could never fit may now. True if there was anything of the kind.
    pub fn forget_unsatisfiable_classes(&mut self) -> bool {
        self.never.clear();
        std::mem::take(&mut self.was_never_said)
    }

    /// Where there may be more capacity than when this was last asked.
    pub fn take_capacity_growth(&mut self) -> Option<FleetGrowth> {
        let clusters = std::mem::take(&mut self.grew_in);
        if std::mem::take(&mut self.grew) {
            return Some(FleetGrowth::Somewhere);
        }
        if clusters.is_empty() {
            return None;
        }
        let free = self.sum_free().clone();
        let mut largest = Resources::new();
        // Which of a cluster's nodes they are follows from where pods were, and from how the rest of what is assumed is
        // packed.
        let nodes = clusters.iter().flat_map(|cluster| self.fleet.list_free_of_nodes(cluster));
        nodes.flat_map(|free| free.iter()).for_each(|(name, amount)| {
            if *amount > largest.get(name.as_str()) {
                largest.set(name.clone(), *amount);
            }
        });
        Some(FleetGrowth::By(CapacityGrowth { free, largest }))
    }

    /// True once after the fleet's total may have changed.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }
}

/// Questions.
impl FleetCapacity {
    /// Names of the clusters, for finding those that are gone.
    pub fn list_cluster_names(&self) -> Vec<String> {
        self.fleet.clusters().map(|(cluster, _)| cluster.name.clone()).collect()
    }

    /// Whether there is a cluster of that name.
    pub(crate) fn knows(&self, cluster: &str) -> bool {
        self.fleet.cluster(cluster).is_some()
    }

    /// Whether some cluster takes jobs of some queues alone.
    pub(crate) fn has_exclusive_clusters(&self) -> bool {
        !self.exclusive.is_empty()
    }

    pub(crate) fn count_clusters(&self) -> usize {
        self.fleet.clusters().count()
    }

    /// The members, for those who print them; [`Self::sum_fleet`] brings them up to date.
    pub(crate) fn fleet(&self) -> &fleet::Fleet {
        &self.fleet
    }

    /// Works out what is free in clusters that changed.
    pub(crate) fn refresh(&mut self) {
        self.fleet.refresh_capacities();
    }

    /// The clusters, by name.
    #[must_use]
    pub fn list_clusters(&self) -> Vec<Cluster> {
        self.fleet.clusters().map(|(cluster, _)| cluster.clone()).collect()
    }

    /// What all clusters have together for jobs of queues, less what others use there. A cluster counts in full if jobs
    /// may start there; a taint prevents that unless a pending or charged job tolerates it. Of any other cluster, only
    /// what jobs hold counts.
    pub fn sum_fleet(&mut self) -> FleetResources {
        self.fleet.refresh_capacities();
        let mut total = FleetResources { whole: Some(Resources::new()), ..FleetResources::default() };
        let mut clusters = 0;
        let tolerated = |taint: &Taint| self.tolerations.keys().any(|tolerations| taint.tolerated_by(tolerations));
        let mut closed = BTreeSet::new();
        for (name, cluster) in self.fleet.list_known_and_assumed_clusters() {
            let open = cluster.is_some_and(|cluster| takes_jobs(cluster, tolerated));
            total.ready.add(&self.fleet.compute_capacity_for_queues(name, open));
            total.ready_clusters += usize::from(open);
            if !open {
                closed.insert(name.to_owned());
            }
        }
        for (cluster, capacity) in self.fleet.clusters().filter(|(cluster, _)| !cluster.deleting) {
            clusters += 1;
            // Who is away comes back, with what it has.
            let is_there = takes_jobs(cluster, |taint| taint.key != CORDON);
            let mut has = if is_there {
                self.fleet.compute_capacity_for_queues(&cluster.name, true)
            } else {
                capacity.sum_allocatable()
            };
            // Nodes may come there some day, whether or not that can be counted on now.
            if !is_there || self.fleet.inventory_origin(&cluster.name).is_none() {
                has.add(&self.fleet.sum_upcoming(&cluster.name));
            }
            match &mut total.whole {
                Some(whole) if capacity.source != Source::Unknown => whole.add(&has),
                whole => *whole = None,
            }
        }
        self.closed = closed;
        // Without any cluster nothing is known, rather than nothing possible.
        total.whole = total.whole.filter(|_| clusters > 0);
        total
    }

    /// Clusters that something of a binding is assumed in.
    #[must_use]
    pub fn list_assumed_clusters(&self, id: &str) -> Vec<String> {
        self.fleet.list_clusters_with_assumed_pods(id)
    }

    /// Clusters that a duplicated job would run in; 1 for a divided one.
    #[must_use]
    pub fn count_copies(&self, binding: &place::Binding) -> u32 {
        if !place::spread_constraints::is_duplicated(binding.placement.division.as_ref()) {
            return 1;
        }
        let copies = place::count_copies(binding, self.fleet.clusters().map(|(cluster, _)| cluster));
        copies.and_then(|copies| u32::try_from(copies).ok()).unwrap_or(1)
    }

    /// Where it would go now, and then its companions, without what is `kept` for others; where nowhere, where it would
    /// go once nodes have come that may. A class that did not fit before is first held against the sum of what is free,
    /// so that the many that do not fit a full fleet cost next to nothing. The answer is counted in `placements`: as
    /// one, and as one more for each time that it was asked with nodes that may come.
    ///
    /// # Errors
    /// [`Fit::No`], with what is short.
    pub fn find_place(
        &mut self,
        question: PlacementQuestion<'_>,
        ask: &Ask,
        kept: &[&ReservedClusters],
        placements: &mut usize,
    ) -> Result<Vec<Decision>, Fit> {
        self.fleet.refresh_capacities();
        *placements += 1;
        if let Some(never) = self.never.get(&ask.fit).cloned()
            && let Some(detail) = self.describe_fleet_shortage(ask)
        {
            let detail = never.as_deref().map_or(detail, str::to_owned);
            return Err(Fit::No { never: never.is_some(), detail });
        }
        let reserved = list_clusters_reserved_against((question.gang, &ask.minimum()), kept);
        let open = |(cluster, _): &(&Cluster, &Capacity)| !reserved.contains(cluster.name.as_str());
        let refusal = match place_together(question, &self.fleet, self.fleet.clusters().filter(open).collect()) {
            Ok(decisions) => return Ok(decisions),
            Err(refusal) => refusal,
        };
        let more = Cell::new(0);
        let with_upcoming = |clusters: Vec<(&Cluster, &Capacity)>, delay| {
            more.set(more.get() + 1);
            let question = question.with_delay(delay);
            place_together(question, &self.fleet, clusters.into_iter().filter(open).collect()).ok()
        };
        let found = self.fleet.find_with_upcoming_nodes(with_upcoming);
        *placements += more.get();
        if let Some(decisions) = found {
            return Ok(decisions);
        }
        if let Some(detail) = self.find_final_refusal(question, ask) {
            return Err(Fit::No { never: true, detail: detail.to_string() });
        }
        let detail = match reserved.len() {
            0 if question.binding.peers.is_empty() => refusal.to_string(),
            0 => format!("{refusal}; {}", question.binding.peers),
            kept => {
                let kept = count_noun(kept, "cluster");
                format!("{refusal}; {kept} reserved for a job that ranks before it and has waited long")
            }
        };
        let is_reserved = !reserved.is_empty();
        let request = build_placement_request(question, &self.fleet, self.fleet.clusters().collect());
        let detail = place::append_reasons(detail, &request, self.fleet.list_soonest_nodes());
        Err(if is_reserved { Fit::Reserved { detail } } else { Fit::No { never: false, detail } })
    }

    /// What is free in all clusters together, and the nodes that may come there and that nobody waits for.
    pub fn sum_free(&mut self) -> &Resources {
        self.fleet.refresh_capacities();
        let fleet = &self.fleet;
        self.free.get_or_insert_with(|| fleet.sum_free_with_upcoming())
    }

    /// The resource of which all clusters together have not enough free, if there is one.
    fn describe_fleet_shortage(&mut self, ask: &Ask) -> Option<String> {
        let free = self.sum_free();
        let minimum = ask.minimum().without_cards();
        let (name, asked) = minimum.iter().find(|(name, asked)| *asked > free.get(name.as_str()))?;
        let free = free.get(name.as_str()).with_suffixes_of(asked);
        Some(format!("needs {name} {}, free {} in all clusters together", asked.plain(), free.plain()))
    }
}

fn build_placement_request<'a>(
    question: PlacementQuestion<'a>,
    fleet: &'a fleet::Fleet,
    clusters: Vec<(&'a Cluster, &'a Capacity)>,
) -> place::Request<'a> {
    let PlacementQuestion { binding, gang, whole, previous, run, with: _ } = question;
    place::Request { binding, gang, whole, previous, clusters, linked: fleet.linked_groups(), run }
}

/// A binding as placement sees it, with the others of its affinity groups in these clusters.
pub(crate) fn with_peers(placement: &place::Binding, peers: Peers) -> Cow<'_, place::Binding> {
    if peers == placement.peers {
        return Cow::Borrowed(placement);
    }
    Cow::Owned(place::Binding { peers, ..placement.clone() })
}
