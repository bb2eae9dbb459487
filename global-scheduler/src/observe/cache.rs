//! The scheduler's cache: bindings, what their workloads request, and the fleet; and the queue of bindings to schedule.
//!
//! Rule (kube-scheduler `pkg/scheduler/backend/{cache,queue}`): a binding is due when it changed, most urgent first.
//! One that found no place is unschedulable and is due again when there may be more capacity. Everything is derived
//! from API objects: what a binding was given, by its plan or its clusters, is assumed in the fleet until its pods are
//! seen there ([`assumed`]), so a restart forgets nothing.

pub mod assumed;
pub mod data_arrival;
pub mod queue_arrival;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use caldera_core::{
    data_source::{DataClaim, DataIndex, DataLocality, DataSource},
    fleet::{Fleet, Update},
    gang::{Gang, TaskName, WorkloadRef},
    image_locality::PodImages,
    interning::Interned,
    maintenance::ExpectedRun,
    place::{self, Apis, Groups, Peers, QueueClusters, Target, score::Ranking},
    run_limit::RunLimit,
    time::EpochSeconds,
};
use caldera_crds::{
    karmada::cluster::Cluster,
    links::{FederationTopologies, FederationTopology},
    placement,
    workload::{self, WorkloadKind},
};
use caldera_runtime::watch::Event;
use jiff::Timestamp;
use serde_json::Value;

use self::{assumed::AssumeDeadlines, data_arrival::DataArrivals, queue_arrival::QueueArrivals};
use super::binding::{Binding, BindingKey};
use super::ranking::Rankings;

/// What a workload requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadRequest {
    /// Of two kinds of one name, in two versions of a group, this one.
    pub kind: WorkloadKind,
    /// What it asks for, or why that can not be read.
    pub gang: Result<Arc<Gang>, String>,
    /// It names a queue: without admission it goes nowhere.
    pub queued: bool,
    /// Tasks whose completion completes the job.
    pub completes: BTreeSet<TaskName>,
    /// Its policies restart it when a pod fails, whichever that is, and its own status does not say that it failed.
    pub restarts_when_a_pod_fails: bool,
    /// How many of its pods have succeeded, as its own status says.
    pub successes: NeededSuccesses,
    /// Its own status says that it has ended.
    pub has_ended: bool,
    /// Seconds that it runs at most, where it says so.
    pub run_for: Option<i64>,
    /// The images of its pods, where placement goes by them.
    pub images: Option<Arc<PodImages>>,
}

/// How many pods of a job have succeeded, where enough of them end it (`minSuccess`), by its own status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeededSuccesses {
    /// No number ends it, or it has failed.
    Uncounted,
    /// Not yet enough.
    Awaited,
    /// Enough, over all copies.
    Reached,
}

/// Lists of kinds that are shared between members.
const MAX_API_LISTS: usize = 16;

/// What other objects say about the scheduling of a binding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SchedulingContext {
    /// Where the others of its groups are.
    pub peers: Peers,
    /// Where the data is that its workload claims.
    pub data: Option<Arc<DataLocality>>,
    /// Which clusters its queue may use.
    pub queue: Option<Arc<QueueClusters>>,
    /// How clusters rank for it.
    pub ranking: Ranking,
    /// Clusters that get nothing of it are listed too.
    pub empty_workloads: bool,
    /// When it would run.
    pub run: Option<ExpectedRun>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Cache {
    /// Bindings by key.
    pub bindings: BTreeMap<BindingKey, Binding>,
    /// The members.
    pub fleet: Fleet,
    /// How policies rank clusters.
    pub rankings: Rankings,
    /// Which clusters are declared to be close.
    pub topology: FederationTopologies,
    /// What data workloads claim, and where it is.
    pub data: DataIndex,
    /// Clusters that get nothing of a divided workload are listed too.
    pub empty_workloads: bool,
    /// Lists of kinds that members serve.
    apis: Vec<Apis>,
    requests: BTreeMap<WorkloadRef, WorkloadRequest>,
    /// Gangs and placements that are in use.
    pub(super) gangs: Interned<Gang>,
    images: Interned<PodImages>,
    placements: Interned<str>,
    by_workload: BTreeMap<WorkloadRef, BTreeSet<BindingKey>>,
    groups: Groups<BindingKey>,
    /// Where bindings go whose placement is being written.
    pub(crate) assumed: BTreeMap<BindingKey, Vec<Target>>,
    pub(crate) deadlines: AssumeDeadlines,
    pub(super) arrivals: QueueArrivals,
    pub(super) data_arrivals: DataArrivals,
    /// Bindings to schedule, most urgent first.
    due: BTreeSet<(Reverse<i32>, String, BindingKey)>,
    /// Bindings that may do better when there is more capacity.
    unschedulable: BTreeSet<BindingKey>,
    /// Links or clusters changed since the status of topologies was last derived from them.
    topology_changed: bool,
}

impl Cache {
    /// Applies an event of bindings; which are gone. `global`: of cluster-scoped templates, which are listed by
    /// themselves.
    pub fn apply_bindings(&mut self, global: bool, event: Event<Binding>) -> BTreeSet<BindingKey> {
        let known = self.bindings.keys().filter(|key| key.is_global() == global).cloned();
        let (stored, gone) = event.split_changes(known, |binding| binding.key.clone());
        gone.iter().for_each(|key| self.remove_binding(key));
        stored.into_iter().for_each(|binding| self.update_binding(binding));
        gone
    }

    /// Stores the newest state of a binding. An older state that arrives later is ignored.
    pub fn update_binding(&mut self, mut binding: Binding) {
        binding.placement = binding.placement.map(|text| self.placements.intern(text));
        binding.applied = binding.applied.map(|text| self.placements.intern(text));
        if let Some(known) = self.bindings.get(&binding.key) {
            let versions = (binding.comparable_version(), known.comparable_version());
            let older = matches!(versions, (Some(new), Some(old)) if new < old);
            if known.uid == binding.uid && (older || *known == binding) {
                return;
            }
            self.due.remove(&due_key(known));
            if known.workload != binding.workload || known.groups != binding.groups {
                self.remove_binding(&binding.key.clone());
            }
        }
        let key = binding.key.clone();
        self.groups.insert(&key.namespace, &binding.groups, &key);
        self.by_workload.entry(binding.workload.clone()).or_default().insert(key.clone());
        let holds =
            |binding: &Binding| (binding.place.previous.clone(), binding.ended.clone(), binding.healthy.clone());
        let moved = self.bindings.get(&key).is_some_and(|old| holds(old) != holds(&binding));
        self.bindings.insert(key.clone(), binding);
        self.update_assumed_pods(&key);
        self.mark_due(&key);
        if moved {
            self.requeue_unschedulable();
        }
    }

    /// Stores the state that a write of ours left. False if the binding is gone since then, or was made anew under its
    /// name: that state says nothing about what is there now.
    pub fn store_written_binding(&mut self, binding: Binding) -> bool {
        let is_current = self.bindings.get(&binding.key).is_some_and(|known| known.uid == binding.uid);
        if is_current {
            self.update_binding(binding);
        }
        is_current
    }

    fn remove_binding(&mut self, key: &BindingKey) {
        let Some(binding) = self.bindings.remove(key) else { return };
        if let Some(keys) = self.by_workload.get_mut(&binding.workload) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_workload.remove(&binding.workload);
            }
        }
        self.groups.remove(&key.namespace, &binding.groups, key);
        self.assumed.remove(key);
        self.fleet.set_selected_labels(&key.to_string(), None);
        self.due.remove(&due_key(&binding));
        self.unschedulable.remove(key);
        self.forget_assumed(key);
        self.arrivals.forget(key);
        self.data_arrivals.forget(key);
        self.requeue_unschedulable();
    }

    /// Applies an event of workloads of one kind: each with what it requests.
    pub fn apply_workloads(&mut self, kind: WorkloadKind, event: Event<(WorkloadRef, WorkloadRequest)>) {
        let of_kind = self.requests.iter().filter(|(_, request)| request.kind == kind);
        let known = of_kind.map(|(workload, _)| workload.clone());
        let (stored, gone) = event.split_changes(known, |(workload, _)| workload.clone());
        gone.iter().for_each(|workload| self.forget_request(workload));
        stored.into_iter().for_each(|(workload, request)| self.update_request(&workload, request));
    }

    fn forget_request(&mut self, workload: &WorkloadRef) {
        self.requests.remove(workload);
        self.fleet.set_selected_labels(&selector_key(workload), None);
    }

    fn update_request(&mut self, workload: &WorkloadRef, mut request: WorkloadRequest) {
        request.gang = request.gang.map(|gang| self.gangs.intern(gang));
        request.images = request.images.map(|images| self.images.intern(images));
        if self.requests.get(workload) == Some(&request) {
            return;
        }
        self.fleet.set_selected_labels(&selector_key(workload), request.gang.as_deref().ok());
        self.requests.insert(workload.clone(), request);
        for key in self.by_workload.get(workload).cloned().unwrap_or_default() {
            self.update_assumed_pods(&key);
            self.mark_due(&key);
        }
    }

    /// Applies an event of clusters.
    pub fn apply_clusters(&mut self, event: Event<Cluster>) {
        let known = self.fleet.clusters().map(|(cluster, _)| cluster.name.clone());
        let name_of = |cluster: &Cluster| cluster.metadata.name.clone().unwrap_or_default();
        let is_list = matches!(event, Event::Reset(_));
        let (stored, gone) = event.split_changes(known, name_of);
        let mut changed = is_list || !gone.is_empty();
        gone.iter().for_each(|name| self.fleet.remove_cluster(name));
        for cluster in &stored {
            changed |= self.set_cluster(cluster);
        }
        if changed {
            self.topology_changed = true;
            // Labels, taints or readiness may matter to anybody, placed or not.
            self.requeue_all();
        }
    }

    fn set_cluster(&mut self, object: &Cluster) -> bool {
        let mut cluster = placement::read_cluster(object);
        // Most members serve the same kinds: one list for all of them.
        match self.apis.iter().find(|known| **known == cluster.serves) {
            Some(known) => cluster.serves = known.clone(),
            None => {
                self.apis.push(cluster.serves.clone());
                // The oldest may be of versions that are gone.
                self.apis.drain(..self.apis.len().saturating_sub(MAX_API_LISTS));
            }
        }
        self.fleet.set_cluster(cluster, placement::read_summary_capacity(object.status.as_ref()))
    }

    /// Applies an event of FederationTopologies.
    pub fn apply_topologies(&mut self, event: Event<FederationTopology>) {
        self.topology_changed = true;
        match event {
            Event::Reset(all) => self.topology.replace(all),
            Event::Applied(object) => self.topology.set(object),
            Event::Deleted(object) => self.topology.remove(object.metadata.name.as_deref().unwrap_or_default()),
        }
        // A waiting gang may fit where clusters are near each other now; what is placed stays.
        if self.fleet.set_federation_topology(self.topology.merge_topology()) {
            self.requeue_unschedulable();
        }
    }

    /// Applies an event of DataSources.
    pub fn apply_data_sources(&mut self, event: Event<DataSource>) {
        let known = self.data.list_sources().map(|source| source.name.clone());
        let (stored, gone) = event.split_changes(known, |source| source.name.clone());
        gone.iter().for_each(|name| self.data.remove_source(name));
        stored.into_iter().for_each(|source| self.data.set_source(source));
        self.mark_due_by_data_change();
    }

    /// Applies an event of DataSourceClaims.
    pub fn apply_data_claims(&mut self, event: Event<DataClaim>) {
        let known = self.data.list_claims().map(|claim| claim.key.clone());
        let (stored, gone) = event.split_changes(known, |claim| claim.key.clone());
        gone.iter().for_each(|key| self.data.remove_claim(key));
        stored.into_iter().for_each(|claim| self.data.set_claim(claim));
        self.mark_due_by_data_change();
    }

    /// What claims data that is elsewhere now may go elsewhere; what is placed stays.
    fn mark_due_by_data_change(&mut self) {
        for workload in self.data.take_changed().workloads {
            for key in self.by_workload.get(&*workload).cloned().unwrap_or_default() {
                self.mark_due(&key);
            }
        }
    }

    /// The status of topologies may not have been written.
    pub fn mark_topology_changed(&mut self) {
        self.topology_changed = true;
    }

    /// True once after links or clusters changed.
    pub fn take_topology_change(&mut self) -> bool {
        std::mem::take(&mut self.topology_changed)
    }

    /// Applies an update of a member.
    pub fn apply_member(&mut self, cluster: &str, update: Update) {
        let may_move_links = matches!(update, Update::Links(_) | Update::From(_) | Update::Down(_));
        if self.fleet.apply_update(cluster, update) {
            self.topology_changed |= may_move_links;
            self.requeue_unschedulable();
        }
    }

    /// There may be more capacity: all unschedulable bindings are due again.
    pub fn requeue_unschedulable(&mut self) {
        for key in std::mem::take(&mut self.unschedulable) {
            self.mark_due(&key);
        }
    }

    /// All bindings are due, placed or not.
    pub(super) fn requeue_all(&mut self) {
        let keys: Vec<BindingKey> = self.bindings.keys().cloned().collect();
        keys.iter().for_each(|key| self.mark_due(key));
    }

    /// A binding is to be scheduled, if it is ours to schedule now.
    pub fn mark_due(&mut self, key: &BindingKey) {
        if let Some(binding) = self.bindings.get(key) {
            if binding.is_ours_to_place() {
                self.due.insert(due_key(binding));
            } else {
                self.due.remove(&due_key(binding));
            }
        }
    }

    /// A binding is due again as soon as there may be more capacity.
    pub fn add_unschedulable(&mut self, key: &BindingKey) {
        self.unschedulable.insert(key.clone());
    }

    /// The bindings that are due, most urgent first; they are not due any more.
    pub fn take_due_bindings(&mut self) -> Vec<BindingKey> {
        std::mem::take(&mut self.due).into_iter().map(|(_, _, key)| key).collect()
    }

    /// Whether nothing is due.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.due.is_empty()
    }

    /// How many bindings are due.
    #[must_use]
    pub fn count_due(&self) -> usize {
        self.due.len()
    }

    /// How many bindings are unschedulable.
    #[must_use]
    pub fn count_unschedulable(&self) -> usize {
        self.unschedulable.len()
    }

    /// What a binding's workload requests; `None` while the workload was not seen.
    #[must_use]
    pub fn request_of(&self, binding: &Binding) -> Option<&WorkloadRequest> {
        self.requests.get(&binding.workload)
    }

    /// What other objects say about the scheduling of a binding now.
    #[must_use]
    pub fn context_of(&self, binding: &Binding, now: Timestamp) -> SchedulingContext {
        let own = binding.weights.as_ref().and_then(|stated| stated.as_ref().ok());
        let ranking = self.rankings.ranking_for(own, binding.policy.as_ref(), now);
        let run = Some(self.predict_run(binding, now));
        let data = self.data.find_locality(&binding.workload);
        let (peers, queue) = (self.peers_of(binding), self.clusters_of_queue(binding).map(Arc::new));
        SchedulingContext { peers, data, queue, ranking, empty_workloads: self.empty_workloads, run }
    }

    /// What its queues said of clusters when it was admitted.
    fn clusters_of_queue(&self, binding: &Binding) -> Option<QueueClusters> {
        let record = binding.admission.as_ref()?;
        let names_queues = |cluster: &place::Cluster| cluster.queues.is_some() || cluster.maintenance.names_queues();
        let any = || !record.clusters.is_empty() || self.fleet.clusters().any(|(cluster, _)| names_queues(cluster));
        let path = || std::iter::once(&record.queue).chain(&record.above).cloned().collect();
        any().then(|| QueueClusters { path: path(), selector: record.clusters.clone() })
    }

    /// When pods would run that start now: until its workload says, and not beyond the end that was granted.
    fn predict_run(&self, binding: &Binding, now: Timestamp) -> ExpectedRun {
        let from = EpochSeconds::from(now);
        let limit = binding.admission.as_ref().and_then(|admission| admission.run);
        let began = limit.map_or(from, |limit| limit.from);
        let said = self.request_of(binding).and_then(|request| request.run_for);
        let ends = said.map(|seconds| began.saturating_add(seconds));
        ExpectedRun { from, ends, limit: limit.map(RunLimit::ends_at), delay: 0 }
    }

    /// Where the others of the binding's groups are, or will be once it is written.
    fn peers_of(&self, binding: &Binding) -> Peers {
        self.groups.find_peers(&binding.key.namespace, &binding.groups, &binding.key, |other| {
            let placed = self.bindings.get(other).map(|other| other.place.previous.as_slice());
            let targets = self.assumed.get(other).map(Vec::as_slice).or(placed).unwrap_or_default();
            targets.iter().map(|target| target.cluster.clone()).collect()
        })
    }
}

/// The name under which the fleet knows the node selectors of a workload.
fn selector_key(workload: &WorkloadRef) -> String {
    let WorkloadRef { group, kind, namespace, name } = workload;
    format!("{group}/{kind}/{namespace}/{name}")
}

fn due_key(binding: &Binding) -> (Reverse<i32>, String, BindingKey) {
    (Reverse(binding.priority), binding.created.clone(), binding.key.clone())
}

fn read_needed_successes(kind: WorkloadKind, object: &Value) -> NeededSuccesses {
    let has_failed = object["status"]["state"]["phase"] == "Failed";
    if kind != WorkloadKind::VolcanoJob || !object["spec"]["minSuccess"].is_u64() || has_failed {
        NeededSuccesses::Uncounted
    } else if workload::progress::has_enough_successes(object) {
        NeededSuccesses::Reached
    } else {
        NeededSuccesses::Awaited
    }
}

/// Reads a workload; `None` if it is of no kind in scope.
#[must_use]
pub fn read_workload(object: &Value) -> Option<(WorkloadRef, WorkloadRequest)> {
    let reference = workload::reference_of(object)?;
    let gang = workload::read_gang(object).map(Arc::new).map_err(|error| error.to_string());
    let completes = workload::list_completing_tasks(object);
    let kind = WorkloadKind::of_object(object)?;
    let has_ended = workload::progress::has_copy_ended(kind, &object["status"]);
    let (queued, run_for) = (workload::names_queue(object), workload::running_estimate(object));
    // Said while copies of it run: these are to go, and until then it has not ended.
    let has_failed = object["status"]["state"]["phase"] == "Failed";
    let restarts_when_a_pod_fails =
        kind == WorkloadKind::VolcanoJob && !has_failed && workload::restarts_when_a_pod_fails(object);
    let successes = read_needed_successes(kind, object);
    let images = workload::read_pod_images(object).map(Arc::new);
    let request = WorkloadRequest {
        kind,
        gang,
        queued,
        completes,
        restarts_when_a_pod_fails,
        successes,
        has_ended,
        run_for,
        images,
    };
    Some((reference, request))
}
