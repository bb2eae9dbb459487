//! Caldera's policy with load-aware rescheduling beside it, and what clusters really use.

use std::collections::{BTreeMap, BTreeSet};

use caldera_core::{
    gang::ClusterName,
    inventory::MemberLoad,
    load_aware::{JobMove, LoadHistory, LoadInput, LoadPolicy, PlacedJob, plan_moves},
    quantity::Quantity,
    queue::JobId,
    resources::{ResourceName, Resources},
};

use super::{LoadMove, LoadOutcome, LoadedWorld};
use crate::{
    members::Part,
    policy::{Caldera, Policy, caldera::index},
    random::Random,
    run::Outcome,
    site::{JobState, Site},
    time::Millis,
};

/// Between two readings of a cluster, as the controller and collectors make them.
const READING: Millis = Millis::from_secs(30);

/// See the module.
pub(super) struct Rescheduler<'a> {
    loaded: &'a LoadedWorld,
    policy: &'a LoadPolicy,
    caldera: Caldera,
    history: LoadHistory,
    noise: Random,
    next_reading: Millis,
    next_round: Millis,
    /// When each job was moved last, and what it avoids since.
    moved: BTreeMap<usize, (Millis, BTreeSet<ClusterName>)>,
    /// Thousandths of cores that the nodes of each cluster have.
    has: Vec<u64>,
    /// What pods wanted in each when it was last read.
    wanted: Vec<u64>,
    /// Since when each is hot without a break.
    hot_since: Vec<Option<Millis>>,
    moves: Vec<LoadMove>,
    hot: Vec<Millis>,
    longest_hot: Millis,
    wanted_in_vain: u128,
    /// Something waits or runs, or comes.
    is_busy: bool,
}

impl<'a> Rescheduler<'a> {
    pub(super) fn new(loaded: &'a LoadedWorld, policy: &'a LoadPolicy) -> Self {
        let world = &loaded.world;
        let cores = |one: &crate::world::MemberCluster| {
            one.nodes.iter().map(|node| to_millis(node.allocatable.get(ResourceName::CPU))).sum()
        };
        let count = world.clusters.len();
        Self {
            loaded,
            policy,
            caldera: Caldera::new(world),
            history: LoadHistory::default(),
            noise: Random::new(loaded.seed),
            next_reading: world.start,
            next_round: world.start.plus(interval_of(policy)),
            moved: BTreeMap::new(),
            has: world.clusters.iter().map(cores).collect(),
            wanted: vec![0; count],
            hot_since: vec![None; count],
            moves: Vec::new(),
            hot: vec![Millis::ZERO; count],
            longest_hot: Millis::ZERO,
            wanted_in_vain: 0,
            is_busy: true,
        }
    }

    pub(super) fn into_outcome(self, outcome: Outcome) -> LoadOutcome {
        let Self { moves, hot, longest_hot, wanted_in_vain, .. } = self;
        LoadOutcome { outcome, moves, hot, longest_hot, wanted_in_vain }
    }

    /// Reads all clusters, once what pods could not have since the last reading is worked off.
    fn read_clusters(&mut self, site: &mut Site<'_>) {
        let now = site.now();
        self.slow_jobs_down(site);
        self.wanted = self.sum_wanted(site);
        for (at, one) in self.loaded.world.clusters.iter().enumerate() {
            let (has, wanted) = (self.has[at], self.wanted[at]);
            let cores = |millis: u64| -> Resources {
                let amount = Quantity::from_milli(i64::try_from(millis).unwrap_or(i64::MAX));
                std::iter::once((ResourceName::CPU, amount)).collect()
            };
            let load = MemberLoad { used: cores(wanted.min(has)), capacity: cores(has), read_at: now.as_epoch() };
            self.history.observe_load(&one.cluster.name, Some(&load), self.policy, now.as_epoch());
            self.record_heat(at, now);
        }
    }

    /// What pods of each cluster want now, in thousandths of cores.
    fn sum_wanted(&mut self, site: &Site<'_>) -> Vec<u64> {
        let mut wanted = vec![0_u64; self.has.len()];
        for (job, state) in site.charged_jobs() {
            let percent = self.loaded.uses.get(&site.job(job).name).copied().unwrap_or(100);
            for hold in holds_of(state) {
                let asks = to_millis(hold.amount.get(ResourceName::CPU));
                wanted[hold.cluster] += asks * u64::from(percent) / 100;
            }
        }
        let noise = u64::from(self.loaded.noise);
        let stir = |wanted: u64| wanted * (100 - noise + self.noise.below(2 * noise + 1)) / 100;
        wanted.into_iter().map(stir).collect()
    }

    /// Whoever shares too few cores got a part of what it wanted: what it did not do in that time is left to do.
    fn slow_jobs_down(&mut self, site: &mut Site<'_>) {
        let lacks = |at: usize| self.wanted[at].saturating_sub(self.has[at]);
        if (0..self.has.len()).all(|at| lacks(at) == 0) {
            return;
        }
        self.wanted_in_vain +=
            (0..self.has.len()).map(|at| u128::from(lacks(at)) * u128::from(READING.0)).sum::<u128>();
        let late = |state: &JobState| {
            // A gang goes at the pace of its slowest pods.
            let of = |cluster: usize| (READING.0 * lacks(cluster)).checked_div(self.wanted[cluster]).unwrap_or(0);
            holds_of(state).map(|hold| of(hold.cluster)).max().unwrap_or(0)
        };
        let slowed: Vec<(usize, u64)> = site.charged_jobs().map(|(job, state)| (job, late(state))).collect();
        slowed.into_iter().filter(|(_, by)| *by > 0).for_each(|(job, by)| site.delay_end(job, Millis(by)));
    }

    fn record_heat(&mut self, cluster: usize, now: Millis) {
        let (has, used) = (self.has[cluster], self.wanted[cluster].min(self.has[cluster]));
        let target = self.policy.target_thresholds.cpu.map_or(100, u64::from);
        if used * 100 <= has * target {
            self.hot_since[cluster] = None;
            return;
        }
        match self.hot_since[cluster] {
            None => self.hot_since[cluster] = Some(now),
            Some(since) => {
                self.longest_hot = self.longest_hot.max(now.since(since));
                self.hot[cluster] = self.hot[cluster].plus(READING);
            }
        }
    }

    fn move_jobs(&mut self, site: &mut Site<'_>) {
        let running = self.caldera.list_running_jobs(site);
        let placed: Vec<PlacedJob> = running.into_iter().map(|job| self.describe_placed_job(site, job)).collect();
        let names: Vec<&String> = self.loaded.world.clusters.iter().map(|one| &one.cluster.name).collect();
        let mut asked: BTreeMap<String, Resources> = BTreeMap::new();
        for (name, asks) in placed.iter().flat_map(|one| &one.asks) {
            asked.entry(name.clone()).or_default().add(asks);
        }
        let (closed, fleet) = (self.caldera.list_reserved_clusters(site), site.members().total().ready);
        let input = LoadInput {
            policy: self.policy,
            preemption: &self.loaded.world.rules.preemption,
            history: &self.history,
            asked: &asked,
            closed: &closed,
            jobs: &placed,
            fleet: &fleet,
            now: site.now().as_epoch(),
        };
        let mut found: BTreeMap<JobId, Vec<Part>> = BTreeMap::new();
        let moves = plan_moves(&input, |before, id, open| {
            let before: Vec<Part> = before.iter().filter_map(|id| found.get(*id)).flatten().cloned().collect();
            let parts = site.find_in_clusters(index(id), open, &before)?;
            let pods =
                |part: &Part| (names[part.cluster].clone(), part.pods.iter().copied().map(u64::from).sum::<u64>());
            let by_cluster = parts.iter().map(pods).collect();
            found.insert(id.clone(), parts);
            Some(by_cluster)
        });
        for one in moves {
            self.apply_move(site, &placed, one);
        }
    }

    fn describe_placed_job(&self, site: &Site<'_>, job: caldera_core::queue::preemption::RunningJob) -> PlacedJob {
        let (at, mut asks) = (index(&job.id), BTreeMap::<String, Resources>::new());
        for hold in holds_of(site.state(at)) {
            let name = &self.loaded.world.clusters[hold.cluster].cluster.name;
            asks.entry(name.clone()).or_default().add(&hold.amount);
        }
        let moved = self.moved.get(&at);
        let avoid = moved.map(|(_, avoid)| avoid.iter().map(ToString::to_string).collect()).unwrap_or_default();
        PlacedJob { job, asks, moved_at: moved.map(|(at, _)| at.as_epoch()), avoid }
    }

    fn apply_move(&mut self, site: &mut Site<'_>, placed: &[PlacedJob], one: JobMove) {
        let Some(running) = placed.iter().map(|placed| &placed.job).find(|job| job.id == one.id) else { return };
        one.from.iter().chain(&one.to).for_each(|cluster| self.history.reset_hot_counts(cluster));
        let others = self.loaded.world.clusters.iter().map(|one| &one.cluster.name);
        let job = index(&one.id);
        let was_avoided = |name: &str| self.moved.get(&job).is_some_and(|(_, avoid)| avoid.contains(name));
        let avoid: BTreeSet<ClusterName> = others
            .filter(|name| !one.receivers.contains(*name) || was_avoided(name))
            .map(|name| name.as_str().into())
            .collect();
        self.moved.insert(job, (site.now(), avoid.clone()));
        self.moves.push(LoadMove { at: site.now(), job, why: one.why });
        self.caldera.move_job(site, running, avoid);
    }
}

impl Policy for Rescheduler<'_> {
    fn arrived(&mut self, site: &mut Site<'_>, job: usize) {
        self.caldera.arrived(site, job);
    }

    fn resumed(&mut self, site: &mut Site<'_>, job: usize) {
        self.caldera.resumed(site, job);
    }

    fn ended(&mut self, site: &mut Site<'_>, job: usize) {
        self.caldera.ended(site, job);
    }

    fn decide(&mut self, site: &mut Site<'_>) {
        let now = site.now();
        if self.next_reading <= now {
            self.read_clusters(site);
            self.next_reading = now.plus(READING);
        }
        if self.next_round <= now {
            if self.policy.enabled && self.history.has_hot_cluster(self.policy) {
                self.move_jobs(site);
            }
            self.next_round = now.plus(interval_of(self.policy));
        }
        self.caldera.decide(site);
        self.is_busy = (0..site.world().jobs.len()).any(|job| *site.state(job) != JobState::Done);
    }

    fn due(&self, now: Millis) -> Option<Millis> {
        let reading = self.is_busy.then_some(self.next_reading.min(self.next_round));
        [self.caldera.due(now), reading].into_iter().flatten().min()
    }
}

fn holds_of(state: &JobState) -> impl Iterator<Item = &crate::world::Hold> {
    let holds = match state {
        JobState::Running { holds, .. } => holds.as_slice(),
        _ => &[],
    };
    holds.iter()
}

fn interval_of(policy: &LoadPolicy) -> Millis {
    Millis::from_secs(u64::try_from(policy.interval).unwrap_or(1).max(1))
}

/// Thousandths, of an amount that is not negative.
fn to_millis(amount: Quantity) -> u64 {
    u64::try_from(amount.as_nano() / 1_000_000).unwrap_or(0)
}
