//! Which jobs leave which hot cluster, in one round. The rule is at the head of [`super`].

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::{LoadHistory, LoadPolicy, thresholds::share_of};
use crate::{
    inventory::{MEASURED, MemberLoad},
    quantity::Quantity,
    queue::{
        JobId,
        preemption::{PreemptionPolicy, RunningJob, compute_lost_work},
    },
    resources::Resources,
    time::EpochSeconds,
};

/// Jobs of one cluster that are looked at in a round. Each costs a question about a place.
const MOST_CANDIDATES: usize = 64;
/// Places that are asked for, for one job: each without the clusters that would be too warm with it.
const MOST_PLACES: usize = 4;
const MILLIONTHS: i128 = 1_000_000;

/// A job, and what its pods ask for in each cluster.
#[derive(Debug, Clone)]
pub struct PlacedJob {
    /// The job.
    pub job: RunningJob,
    /// By cluster.
    pub asks: BTreeMap<String, Resources>,
    /// When it was last moved.
    pub moved_at: Option<EpochSeconds>,
    /// Clusters that it was told to avoid when it was moved before.
    pub avoid: BTreeSet<String>,
}

impl PlacedJob {
    /// Whether it may be evicted, and is not to be left alone.
    pub(crate) fn may_leave(&self, policy: &LoadPolicy, preemption: &PreemptionPolicy, now: EpochSeconds) -> bool {
        let Self { job, moved_at, .. } = self;
        let is_protected =
            preemption.protected.contains(&job.namespace) || policy.excluded_namespaces.contains(&job.namespace);
        let bounds = &preemption.bounds;
        job.ours
            && job.started.is_some()
            && job.preemptable.unwrap_or(preemption.unset.preempt)
            && !is_protected
            && policy.priority_threshold.is_none_or(|threshold| job.priority < threshold)
            && moved_at.is_none_or(|at| at.saturating_add(policy.cooldown) <= now)
            && bounds.cools_until(job).is_none_or(|until| until <= now)
            && !bounds.is_evicted_too_often(job, now)
    }
}

/// Everything that a round is decided on.
#[derive(Debug, Clone, Copy)]
pub struct LoadInput<'a> {
    /// What the admin chose.
    pub policy: &'a LoadPolicy,
    /// Who may be evicted at all.
    pub preemption: &'a PreemptionPolicy,
    /// The loads.
    pub history: &'a LoadHistory,
    /// What all pods in each cluster ask for.
    pub asked: &'a BTreeMap<String, Resources>,
    /// Clusters that receive nothing, however cold they are.
    pub closed: &'a BTreeSet<String>,
    /// Jobs that are placed; their order does not matter.
    pub jobs: &'a [PlacedJob],
    /// What the fleet has, to weigh lost work by.
    pub fleet: &'a Resources,
    /// The time.
    pub now: EpochSeconds,
}

/// A job that leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobMove {
    /// Who.
    pub id: JobId,
    /// The clusters that it is in.
    pub from: BTreeSet<String>,
    /// Where there is capacity for it.
    pub to: BTreeSet<String>,
    /// Clusters that may receive; it is to avoid all others.
    pub receivers: BTreeSet<String>,
    /// Which cluster is hot, by how much, and where there is capacity.
    pub why: String,
}

/// Plans a round. `find_place` says where a job would go beside those that leave before it, if it may go to these
/// clusters alone: pods by cluster.
pub fn plan_moves(
    input: &LoadInput<'_>,
    mut find_place: impl FnMut(&[&JobId], &JobId, &BTreeSet<String>) -> Option<BTreeMap<String, u64>>,
) -> Vec<JobMove> {
    let now = input.now;
    let mut round = Round {
        input,
        used: input.history.list_loads(now).map(|(name, load)| (name.as_str(), load.used.clone())).collect(),
        loads: input.history.list_loads(now).map(|(name, load)| (name.as_str(), load)).collect(),
        leaving: Vec::new(),
    };
    let is_open = |name: &&str| input.history.is_cold(name, input.policy) && !input.closed.contains(*name);
    let receivers: BTreeSet<String> =
        round.loads.keys().filter(|name| is_open(name)).map(|one| (*one).into()).collect();
    if receivers.is_empty() {
        return Vec::new();
    }
    for hot in round.list_hot_clusters() {
        round.choose_jobs_to_move(hot, &receivers, &mut find_place);
    }
    round.leaving.into_iter().map(|leaving| leaving.job_move).collect()
}

/// Who leaves, and what the clusters are taken to use then.
struct Round<'a> {
    input: &'a LoadInput<'a>,
    loads: BTreeMap<&'a str, &'a MemberLoad>,
    used: BTreeMap<&'a str, Resources>,
    leaving: Vec<Leaving>,
}

/// A job that leaves, and what it takes with it.
struct Leaving {
    job_move: JobMove,
    /// What it is taken to use, by cluster.
    uses: BTreeMap<String, Resources>,
    /// The same where it goes.
    brings: BTreeMap<String, Resources>,
}

impl<'a> Round<'a> {
    /// The hottest first.
    fn list_hot_clusters(&self) -> Vec<&'a str> {
        let is_hot = |name: &str| self.input.history.is_hot(name, self.input.policy);
        let hot = self.loads.keys().filter(|name| is_hot(name));
        let mut hot: Vec<(i128, &str)> = hot.filter_map(|name| Some((self.find_exceeded(name)?.1, *name))).collect();
        hot.sort_by_key(|(over, name)| (Reverse(*over), *name));
        hot.into_iter().map(|(_, name)| name).collect()
    }

    /// The resource of which a cluster is taken to use too much, and by how much.
    fn find_exceeded(&self, cluster: &str) -> Option<(&'static str, i128)> {
        let (used, load) = (self.used.get(cluster)?, self.loads.get(cluster)?);
        self.input.policy.target_thresholds.find_exceeded(used, &load.capacity)
    }

    fn choose_jobs_to_move(
        &mut self,
        hot: &str,
        receivers: &BTreeSet<String>,
        find_place: &mut impl FnMut(&[&JobId], &JobId, &BTreeSet<String>) -> Option<BTreeMap<String, u64>>,
    ) {
        let first = self.leaving.len();
        for candidate in self.list_candidates(hot).into_iter().take(MOST_CANDIDATES) {
            let Some((resource, _)) = self.find_exceeded(hot) else { break };
            let uses = self.estimate_use(candidate);
            if uses.get(hot).is_none_or(|uses| uses.get(resource).is_zero()) {
                continue;
            }
            let Some(brings) = self.find_place_below_thresholds(candidate, &uses, receivers, find_place) else {
                continue;
            };
            let job_move = self.describe_move(candidate, hot, &brings, receivers);
            let leaving = Leaving { job_move, uses, brings };
            self.apply_move(&leaving);
            self.leaving.push(leaving);
        }
        self.drop_unneeded_moves(hot, first);
        self.drop_moves_above_limit(hot, first);
    }

    /// Who may leave a cluster, in the order of victims.
    fn list_candidates(&self, hot: &str) -> Vec<&'a PlacedJob> {
        let LoadInput { policy, preemption, jobs, fleet, now, .. } = *self.input;
        let leaves = |job: &JobId| self.leaving.iter().any(|leaving| leaving.job_move.id == *job);
        let mut all: Vec<&PlacedJob> = jobs
            .iter()
            .filter(|one| one.asks.contains_key(hot) && one.may_leave(policy, preemption, now) && !leaves(&one.job.id))
            .collect();
        all.sort_by_cached_key(|one: &&'a PlacedJob| {
            let lost = compute_lost_work((fleet, now), &one.job, one.job.charge.iter());
            (!one.job.best_effort, one.job.priority, lost, Reverse(one.job.start_order()))
        });
        all
    }

    /// What a job is taken to use, in each cluster that it is in.
    fn estimate_use(&self, one: &PlacedJob) -> BTreeMap<String, Resources> {
        let of_cluster = |(cluster, asks): (&String, &Resources)| {
            let load = self.loads.get(cluster.as_str());
            let all = self.input.asked.get(cluster);
            let amount = |name: &&'static str| {
                let (asks, used) = (asks.get(name), load.map_or(asks.get(name), |load| load.used.get(name)));
                let all = all.map_or(Quantity::ZERO, |all| all.get(name)).max(asks);
                (*name, scale_amount(used, asks, all))
            };
            (cluster.clone(), MEASURED.iter().map(amount).collect())
        };
        one.asks.iter().map(of_cluster).collect()
    }

    /// Where it would go so that nothing gets too warm: what it brings there.
    fn find_place_below_thresholds(
        &self,
        one: &PlacedJob,
        uses: &BTreeMap<String, Resources>,
        receivers: &BTreeSet<String>,
        find_place: &mut impl FnMut(&[&JobId], &JobId, &BTreeSet<String>) -> Option<BTreeMap<String, u64>>,
    ) -> Option<BTreeMap<String, Resources>> {
        let before: Vec<&JobId> = self.leaving.iter().map(|leaving| &leaving.job_move.id).collect();
        let mut all = Resources::new();
        uses.values().for_each(|uses| all.add(uses));
        let mut open: BTreeSet<String> = receivers
            .iter()
            .filter(|name| !one.asks.contains_key(*name) && !one.avoid.contains(*name))
            .cloned()
            .collect();
        for _ in 0..MOST_PLACES {
            if open.is_empty() {
                return None;
            }
            let pods = find_place(&before, &one.job.id, &open)?;
            let of = pods.values().fold(0_u64, |sum, pods| sum.saturating_add(*pods));
            let part = |amount: Quantity, pods: u64| {
                scale_amount(amount, Quantity::from_nano(pods.into()), Quantity::from_nano(of.into()))
            };
            let brings: BTreeMap<String, Resources> = pods
                .iter()
                .filter(|(_, pods)| **pods > 0)
                .map(|(name, pods)| {
                    (name.clone(), all.iter().map(|(name, amount)| (name.clone(), part(amount, *pods))).collect())
                })
                .collect();
            let warm: BTreeSet<&String> = brings
                .iter()
                .filter(|(name, brings)| !self.stays_below_thresholds(name, brings))
                .map(|(name, _)| name)
                .collect();
            if warm.is_empty() {
                return Some(brings).filter(|brings| !brings.is_empty());
            }
            open.retain(|name| !warm.contains(name));
        }
        None
    }

    fn stays_below_thresholds(&self, cluster: &str, brings: &Resources) -> bool {
        let (Some(load), Some(used)) = (self.loads.get(cluster), self.used.get(cluster)) else { return false };
        let mut after = used.clone();
        after.add(brings);
        self.input.policy.target_thresholds.find_exceeded(&after, &load.capacity).is_none()
    }

    fn apply_move(&mut self, leaving: &Leaving) {
        self.change_use(&leaving.uses, Resources::saturating_sub);
        self.change_use(&leaving.brings, Resources::add);
    }

    fn undo_move(&mut self, leaving: &Leaving) {
        self.change_use(&leaving.brings, Resources::saturating_sub);
        self.change_use(&leaving.uses, Resources::add);
    }

    fn change_use(&mut self, by: &BTreeMap<String, Resources>, change: fn(&mut Resources, &Resources)) {
        for (cluster, amounts) in by {
            if let Some(used) = self.used.get_mut(cluster.as_str()) {
                change(used, amounts);
            }
        }
    }

    /// Spares those without whom a cluster is not hot either, from the last on.
    fn drop_unneeded_moves(&mut self, hot: &str, first: usize) {
        if self.find_exceeded(hot).is_some() {
            return;
        }
        for at in (first..self.leaving.len()).rev() {
            let one = self.leaving.remove(at);
            self.undo_move(&one);
            if self.find_exceeded(hot).is_some() {
                self.apply_move(&one);
                self.leaving.insert(at, one);
            }
        }
    }

    /// Spares those that relieve it least, while there are too many.
    fn drop_moves_above_limit(&mut self, hot: &str, first: usize) {
        let most = self.input.policy.moves as usize;
        let load = self.loads.get(hot).copied();
        let relief = |leaving: &Leaving| {
            let share = |name: &&str| {
                let uses = leaving.uses.get(hot).map_or(Quantity::ZERO, |uses| uses.get(name));
                share_of(uses, load.map_or(Quantity::ZERO, |load| load.capacity.get(name))).unwrap_or(0)
            };
            MEASURED.iter().map(share).max().unwrap_or(0)
        };
        while self.leaving.len() - first > most {
            let least = (first..self.leaving.len()).min_by_key(|at| (relief(&self.leaving[*at]), Reverse(*at)));
            let Some(at) = least else { return };
            let one = self.leaving.remove(at);
            self.undo_move(&one);
        }
    }

    fn describe_move(
        &self,
        one: &PlacedJob,
        hot: &str,
        brings: &BTreeMap<String, Resources>,
        receivers: &BTreeSet<String>,
    ) -> JobMove {
        let to: BTreeSet<String> = brings.keys().cloned().collect();
        let load = self.loads.get(hot).copied();
        let exceeded = load.and_then(|load| {
            let target = self.input.policy.target_thresholds;
            let (resource, over) = target.find_exceeded(&load.used, &load.capacity)?;
            let share = share_of(load.used.get(resource), load.capacity.get(resource))?;
            Some(format!("really uses {} % of its {resource}, and {} % is hot", share / 100, (share - over) / 100))
        });
        let places = to.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let why = format!("cluster {hot} {}; there is room in {places}", exceeded.as_deref().unwrap_or("is hot"));
        let from = one.asks.keys().cloned().collect();
        JobMove { id: one.job.id.clone(), from, to, receivers: receivers.clone(), why }
    }
}

/// Of an amount, `part` of `whole`: all of it at most, and nothing of nothing.
fn scale_amount(amount: Quantity, part: Quantity, whole: Quantity) -> Quantity {
    let (part, whole) = (part.as_nano().max(0), whole.as_nano());
    if whole <= 0 {
        return Quantity::ZERO;
    }
    let share = (part.min(whole)).saturating_mul(MILLIONTHS) / whole;
    Quantity::from_nano(amount.as_nano().max(0).saturating_mul(share) / MILLIONTHS)
}
