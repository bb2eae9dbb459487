//! What a policy sees and may do: ask where a job would fit, send it to members, take it back.

mod growth;
mod look_on;
mod moves;

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap},
    sync::Arc,
};

use caldera_core::{
    fleet::{ReservableCluster, choose_reserved_clusters, list_clusters_reserved_against},
    gang::{ClusterName, Gang, TaskName},
    inventory::Capacity,
    place::{self, Cluster, Decision},
    queue::{Fit, FitClass, ReservedClusters},
    resources::{ResourceName, Resources},
};

pub use self::growth::Growth;
pub(crate) use self::look_on::LookOn;
use crate::{
    members::{Members, Part},
    metrics::{Books, Recorder},
    time::Millis,
    world::{Hold, Job, Shape, World},
};

/// Where a job stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobState {
    /// Not submitted yet.
    Future,
    /// In line.
    Waiting,
    /// Sent to members; some of its parts are not bound yet.
    Sent {
        /// Parts that wait in members.
        missing: usize,
        /// Where the others are.
        holds: Vec<Hold>,
        /// All its pods.
        pods: u64,
    },
    /// All parts are bound.
    Running {
        /// Where.
        holds: Vec<Hold>,
        /// Since when.
        since: Millis,
        /// Until when.
        ends: Millis,
    },
    /// It ran to its end.
    Done,
}

/// The end of a run: when, whose, and which run of that job it was.
pub(crate) type End = Reverse<(Millis, usize, u32)>;

/// See the module.
#[derive(Debug)]
pub struct Site<'w> {
    world: &'w World,
    now: Millis,
    pub(crate) members: Members,
    pub(crate) states: Vec<JobState>,
    /// Jobs that run.
    active: BTreeSet<usize>,
    /// Runs of each job so far: the end of an earlier one means nothing.
    pub(crate) runs: Vec<u32>,
    pub(crate) ends: BinaryHeap<End>,
    pub(crate) recorder: Recorder,
    /// Of classes that did not fit: whether they never will.
    never: HashMap<FitClass, bool>,
    /// Clusters that a job is to avoid, as far as there are others.
    avoided: HashMap<usize, BTreeSet<ClusterName>>,
    /// What is free in all clusters together; `None` after anything changed.
    free: Option<Resources>,
    /// Something was given back since [`Site::take_growth`] was last asked.
    grew: bool,
    /// A maintenance window ended, or nodes came, since then.
    grew_somewhere: bool,
    look_on: LookOn<'w>,
}

/// Questions.
impl<'w> Site<'w> {
    pub(crate) fn new(world: &'w World, main: &ResourceName, look_on: LookOn<'w>) -> Self {
        Self {
            world,
            now: world.start,
            members: Members::new(world, main),
            states: vec![JobState::Future; world.jobs.len()],
            active: BTreeSet::new(),
            runs: vec![0; world.jobs.len()],
            ends: BinaryHeap::new(),
            recorder: Recorder::new(world, main),
            never: HashMap::new(),
            avoided: HashMap::new(),
            free: None,
            grew: false,
            grew_somewhere: false,
            look_on,
        }
    }

    /// What is simulated.
    #[must_use]
    pub const fn world(&self) -> &'w World {
        self.world
    }

    /// Whether to look on, as whoever simulates says: also within one instant, of which the rest is left out else.
    pub fn may_continue(&mut self) -> bool {
        self.look_on.ask()
    }

    /// Virtual now.
    #[must_use]
    pub const fn now(&self) -> Millis {
        self.now
    }

    /// A job.
    #[must_use]
    pub fn job(&self, job: usize) -> &'w Job {
        &self.world.jobs[job]
    }

    /// Where a job stands.
    #[must_use]
    pub fn state(&self, job: usize) -> &JobState {
        &self.states[job]
    }

    /// Jobs that run.
    pub fn charged_jobs(&self) -> impl Iterator<Item = (usize, &JobState)> {
        self.active.iter().map(|job| (*job, &self.states[*job]))
    }

    /// The clusters.
    #[must_use]
    pub const fn members(&self) -> &Members {
        &self.members
    }

    /// What every queue really holds.
    #[must_use]
    pub const fn books(&self) -> &Books {
        self.recorder.books()
    }

    /// Clusters that a duplicated job would run in; 1 for a divided one.
    pub fn copies(&mut self, job: usize) -> u32 {
        let binding = &self.world.jobs[job].shape.binding;
        if !place::spread_constraints::is_duplicated(binding.placement.division.as_ref()) {
            return 1;
        }
        let copies = place::count_copies(binding, self.world.clusters.iter().map(|one| &one.cluster));
        copies.and_then(|copies| u32::try_from(copies).ok()).unwrap_or(1)
    }

    /// What a job asks for on a card model.
    fn shape_on(&self, job: usize, card: Option<&ResourceName>) -> &'w Shape {
        self.world.jobs[job].shape.on_card(card)
    }

    /// Where all of a job would go now on a card model, where it has a choice, without what is kept for others: as the
    /// controller asks it. A class that did
    /// not fit before is first held against the sum of what is free.
    ///
    /// # Errors
    /// [`Fit::No`], with what is short.
    pub fn find(
        &mut self,
        job: usize,
        card: Option<&ResourceName>,
        kept: &[&ReservedClusters],
    ) -> Result<Vec<Part>, Fit> {
        let shape = self.shape_on(job, card);
        if let Some(never) = self.never.get(&shape.class).copied()
            && let Some(detail) = self.find_short_resource(job)
        {
            return Err(Fit::No { never, detail });
        }
        let refusal = match self.place(job, shape, &shape.gang, kept) {
            Ok(parts) => return Ok(parts),
            Err(refusal) => refusal,
        };
        Err(Fit::No { never: self.can_never_fit(job, card), detail: refusal.to_string() })
    }

    /// Whether a job would not fit even if all clusters were empty.
    pub fn can_never_fit(&mut self, job: usize, card: Option<&ResourceName>) -> bool {
        let shape = self.shape_on(job, card);
        let class = shape.class;
        if let Some(never) = self.never.get(&class) {
            return *never;
        }
        let never = self.never_fits(shape);
        self.never.insert(class, never);
        never
    }

    /// Where a job would go now with no more pods of each task than were granted.
    ///
    /// # Errors
    /// [`place::NotPlaced`], with what is short.
    pub fn find_granted(
        &mut self,
        job: usize,
        card: Option<&ResourceName>,
        granted: &BTreeMap<TaskName, u32>,
    ) -> Result<Vec<Part>, place::NotPlaced> {
        let shape = self.shape_on(job, card);
        let mut gang = Gang::clone(&shape.gang);
        for task in &mut gang.tasks {
            task.replicas = task.replicas.min(granted.get(&task.name).copied().unwrap_or(0));
            task.min_available = task.min_available.min(task.replicas);
        }
        self.place(job, shape, &Arc::new(gang), &[])
    }

    /// Whether a job would fit on a card model, where it has a choice, with what these jobs hold free.
    pub fn fits_after(&mut self, job: usize, card: Option<&ResourceName>, gone: &[usize]) -> bool {
        let (shape, run) = (self.shape_on(job, card), self.predict_run(job));
        let mut holds: BTreeMap<usize, Vec<&Hold>> = BTreeMap::new();
        for job in gone {
            if let JobState::Sent { holds: held, .. } | JobState::Running { holds: held, .. } = &self.states[*job] {
                held.iter().for_each(|hold| holds.entry(hold.cluster).or_default().push(hold));
            }
        }
        let clusters = self.members.clusters();
        let after: Vec<(&Cluster, Cow<'_, Capacity>)> = clusters
            .into_iter()
            .enumerate()
            .map(|(i, (cluster, capacity))| match holds.get(&i) {
                Some(holds) => (cluster, Cow::Owned(moves::with_freed_holds(capacity, holds))),
                None => (cluster, Cow::Borrowed(capacity)),
            })
            .collect();
        let clusters = after.iter().map(|(cluster, capacity)| (*cluster, capacity.as_ref())).collect();
        place::place_binding(&place::Request { run, ..question(shape, &shape.gang, clusters) }).is_ok()
    }

    /// The clusters to keep for a job that does not fit now, and what it lacks there, as the controller finds them.
    pub fn reserve_clusters(
        &mut self,
        job: usize,
        card: Option<&ResourceName>,
        vain: &[ClusterName],
    ) -> Option<ReservedClusters> {
        let shape = self.shape_on(job, card);
        self.members.refresh();
        let (all, largest) = (self.members.view().0, self.members.largest());
        let emptied = |i: usize, now: &Capacity| match largest {
            Some(all) => Cow::Borrowed(&all[i].1),
            None => Cow::Owned(now.emptied()),
        };
        let all = all.into_iter().enumerate();
        choose_reserved_clusters(
            &shape.binding,
            (&shape.gang, &shape.least),
            vain,
            all.map(|(i, (cluster, now))| ReservableCluster { cluster, emptied: emptied(i, now), now }),
            |binding, clusters| {
                let request = question(shape, &shape.gang, clusters);
                place::place_binding(&place::Request { binding, ..request }).ok()
            },
        )
    }

    fn place(
        &mut self,
        job: usize,
        shape: &Shape,
        gang: &Arc<Gang>,
        kept: &[&ReservedClusters],
    ) -> Result<Vec<Part>, place::NotPlaced> {
        let barred = list_clusters_reserved_against((gang, &shape.least), kept);
        let (queue, run) = (self.world.jobs[job].queue.as_str(), self.predict_run(job));
        self.members.refresh();
        let (all, linked, queues) = self.members.view();
        let index: HashMap<&str, usize> = all.iter().enumerate().map(|(i, (one, _))| (one.name.as_str(), i)).collect();
        let allowed = all.iter().filter(|(cluster, _)| !barred.contains(cluster.name.as_str())).copied().collect();
        let request = place::Request { linked, run, ..question(shape, gang, allowed) };
        // Other kinds are not scheduled by the members' Volcano.
        let own = |cluster: &str| queues[*index.get(cluster)?].get(queue).filter(|_| shape.whole);
        let others = self.avoided.get(&job).map(|avoided| moves::leave_out_avoided(&request, avoided));
        let first = others.and_then(|others| place::place_within_queues(&others, own).ok()).ok_or(());
        let anywhere = || place::place_within_queues(&request, own);
        let decision = first.or_else(|()| anywhere()).or_else(|(refusal, _)| {
            let with_upcoming = |clusters: Vec<(&Cluster, &Capacity)>, delay| {
                let clusters = clusters.into_iter().filter(|(it, _)| !barred.contains(it.name.as_str())).collect();
                let run = run.map(|run| run.with_delay(delay));
                place::place_within_queues(&place::Request { clusters, run, ..request.clone() }, own).ok()
            };
            self.members.find_with_upcoming_nodes(with_upcoming).ok_or(refusal)
        })?;
        Ok(self.list_parts(job, gang, &decision))
    }

    /// A decision's parts.
    #[must_use]
    pub fn list_parts(&self, job: usize, gang: &Arc<Gang>, decision: &Decision) -> Vec<Part> {
        let mut pods = decision.count_pods_by_cluster(gang);
        let domains = decision.plan.as_ref().map(|plan| plan.pinned_domains()).unwrap_or_default();
        let pinned = |cluster: &str| domains.get(cluster).cloned().unwrap_or_default();
        let part = |target: &place::Target| {
            let pods = pods.remove(&target.cluster)?;
            let cluster = self.members.index(&target.cluster)?;
            Some(Part { job, cluster, pods, gang: Arc::clone(gang), within: pinned(&target.cluster) })
        };
        decision.targets.iter().filter_map(part).collect()
    }

    /// The resource of which all clusters together have not enough free, if there is one.
    fn find_short_resource(&mut self, job: usize) -> Option<String> {
        let members = &mut self.members;
        let free = self.free.get_or_insert_with(|| {
            members.refresh();
            members.free()
        });
        let least = &self.world.jobs[job].shape.least;
        let (name, asked) = least.iter().find(|(name, asked)| *asked > free.get(name.as_str()))?;
        let free = free.get(name.as_str()).with_suffixes_of(asked);
        Some(format!("needs {name} {asked}, free {free} in all clusters together"))
    }

    /// True if it would not fit even if all clusters were empty, or asks for more than a queue above it may have.
    pub(crate) fn can_never_start(&mut self, job: usize) -> bool {
        let ceilings = self.recorder.books().ceilings(&self.world.jobs[job].queue);
        let shape = self.shape_on(job, None);
        ceilings.iter().any(|(name, ceiling)| shape.least.get(name.as_str()) > ceiling) || self.never_fits(shape)
    }

    fn never_fits(&mut self, shape: &Shape) -> bool {
        let empty = |(cluster, capacity): (&Cluster, &Capacity)| (cluster.clone(), capacity.emptied());
        self.members.refresh();
        let (all, linked, _) = self.members.view();
        let emptied = || all.into_iter().map(empty).collect();
        let emptied: Cow<'_, [(Cluster, Capacity)]> =
            self.members.largest().map_or_else(|| Cow::Owned(emptied()), Cow::Borrowed);
        let clusters = emptied.iter().map(|(cluster, capacity)| (cluster, capacity)).collect();
        let request = place::Request { linked, ..question(shape, &shape.gang, clusters) };
        place::place_binding(&request).is_err()
    }
}

/// Deeds.
impl Site<'_> {
    /// Sends a waiting job to members. It runs once all its parts are bound; those that do not fit wait where they are.
    pub fn send_job(&mut self, job: usize, parts: Vec<Part>) {
        if self.states[job] != JobState::Waiting || parts.is_empty() {
            return;
        }
        self.free = None;
        let after_window = self.is_after_window(job, &parts);
        self.recorder.sent(job, after_window);
        self.recorder.fetched(self.count_missing_bytes(job, &parts));
        let pods = parts.iter().flat_map(|part| &part.pods).map(|pods| u64::from(*pods)).sum();
        let (mut missing, mut holds) = (0, Vec::new());
        for part in parts {
            match self.members.bind_or_queue_part(part) {
                Some(bound) => {
                    self.recorder.bound(job, &bound);
                    holds.extend(bound);
                }
                None => missing += 1,
            }
        }
        self.states[job] = JobState::Sent { missing, holds, pods };
        self.start_if_all_bound(job);
    }

    /// Takes a job back from members, into the line; what it did is lost. Its policy must let it wait again.
    pub fn evict(&mut self, job: usize) {
        if matches!(self.states[job], JobState::Sent { .. } | JobState::Running { .. }) {
            self.recorder.evicted(job);
            self.release_holds(job, JobState::Waiting);
        }
    }

    /// Bytes of a job's data that are not in the clusters that its parts go to.
    fn count_missing_bytes(&self, job: usize, parts: &[Part]) -> u64 {
        let Some(data) = &self.world.jobs[job].shape.gang.data else { return 0 };
        let of = |part: &Part| {
            let cluster = &self.world.clusters[part.cluster].cluster;
            let missing = data.list_missing(|place| cluster.has_data(place)).filter(|piece| piece.in_bytes);
            missing.map(|piece| piece.size.unsigned_abs()).fold(0, u64::saturating_add)
        };
        parts.iter().map(of).fold(0, u64::saturating_add)
    }

    pub(crate) fn set_now(&mut self, now: Millis) {
        self.grew_somewhere |= self.next_window_end().is_some_and(|end| end <= now);
        self.now = now;
        self.recorder.set_clock(now);
        if self.members.add_nodes_due(now) {
            self.recorder.add_elapsed();
            (self.free, self.grew_somewhere) = (None, true);
        }
    }

    pub(crate) fn arrive(&mut self, job: usize) {
        self.states[job] = JobState::Waiting;
        self.recorder.arrived(job);
    }

    /// A job that runs at the start.
    pub(crate) fn resume(&mut self, job: usize) {
        let Some(holds) = &self.world.jobs[job].running else { return };
        holds.iter().for_each(|hold| self.members.add_hold(job, hold));
        self.recorder.resumed(job);
        self.recorder.bound(job, holds);
        self.states[job] = JobState::Sent { missing: 0, holds: holds.clone(), pods: u64::MAX };
        self.start_if_all_bound(job);
    }

    pub(crate) fn end(&mut self, job: usize) {
        self.recorder.ended(job);
        self.release_holds(job, JobState::Done);
    }

    /// Binds what waited in members and fits now.
    pub(crate) fn bind_waiting_parts(&mut self) {
        for (part, bound) in self.members.bind_waiting_parts() {
            self.free = None;
            self.recorder.bound(part.job, &bound);
            if let JobState::Sent { missing, holds, .. } = &mut self.states[part.job] {
                *missing -= 1;
                holds.extend(bound);
            }
            self.start_if_all_bound(part.job);
        }
    }

    /// Asks for the nodes that pods wait for in members and that are not on their way.
    pub(crate) fn ask_for_nodes(&mut self) {
        self.members.ask_for_nodes(self.now);
    }

    fn start_if_all_bound(&mut self, job: usize) {
        let JobState::Sent { missing: 0, holds, pods } = &mut self.states[job] else { return };
        let (holds, pods) = (std::mem::take(holds), *pods);
        let ends = self.now.plus(run_time(&self.world.jobs[job], pods));
        self.runs[job] += 1;
        self.ends.push(Reverse((ends, job, self.runs[job])));
        self.recorder.started(job, ends);
        self.states[job] = JobState::Running { holds, since: self.now, ends };
        self.active.insert(job);
    }

    fn release_holds(&mut self, job: usize, then: JobState) {
        let (JobState::Sent { holds, .. } | JobState::Running { holds, .. }) =
            std::mem::replace(&mut self.states[job], then)
        else {
            return;
        };
        self.active.remove(&job);
        self.recorder.unbound(job, &holds, self.states[job] == JobState::Waiting);
        self.members.release(job, &holds);
        (self.free, self.grew) = (None, true);
    }
}

fn question<'a>(shape: &'a Shape, gang: &'a Gang, clusters: Vec<(&'a Cluster, &'a Capacity)>) -> place::Request<'a> {
    place::Request {
        binding: &shape.binding,
        gang,
        whole: shape.whole,
        previous: None,
        clusters,
        linked: &[],
        run: None,
    }
}

/// A job with fewer pods than it wants runs longer, in proportion; more pods (copies) are no faster.
fn run_time(job: &Job, pods: u64) -> Millis {
    let wanted = u64::from(job.shape.gang.replicas());
    if pods >= wanted || pods == 0 {
        return job.run;
    }
    let longer = (u128::from(job.run.0) * u128::from(wanted)).div_ceil(u128::from(pods));
    Millis(u64::try_from(longer).unwrap_or(u64::MAX))
}
