//! In which order victims are taken.
//!
//! Rule: best-effort jobs before all others, as the agent of a node evicts them first, unless it takes too many then.
//! Of each, surplus pods before whole gangs, and of these, reclaim before preempt. Among queues that borrow: near ones
//! first (Volcano's `VictimQueueOrder`), then those of low priority, then the one that is most over what it deserves at
//! that point. Within a queue, and among jobs that are preempted: low priority, least lost work, newest. Of who saves
//! its work at intervals no more than one of these is lost.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, VecDeque},
};

use crate::{
    gang::QueueName,
    queue::{
        preemption::{
            Exemption, RunningJob,
            eligibility::{Eligibility, EvictionRight, JobPart},
            within_deserved::AccountIndex,
        },
        quota::{
            amount::Amount,
            amounts::{Dim, DimAmounts},
        },
    },
    resources::{ResourceName, Resources},
    time::EpochSeconds,
};

/// A part of a job that may be taken; of surplus, at most so many steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EvictionCandidate {
    pub(crate) job: usize,
    pub(crate) part: JobPart,
    pub(crate) right: EvictionRight,
    pub(crate) steps: u32,
}

/// Whether best-effort jobs go before all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VictimRank {
    /// The rule.
    BestEffortFirst,
    /// Where these alone would be more than an attempt may evict.
    AllAlike,
}

/// Who is next, one after the other; what is taken counts for who comes after.
pub(crate) struct VictimOrder<'a> {
    eligibility: &'a Eligibility<'a>,
    /// Reclaimed and preempted surplus, then the same of whole jobs: of best-effort jobs, and of others.
    stages: VecDeque<EvictionStage>,
    /// By queue, what was taken so far.
    taken: Vec<DimAmounts>,
    /// By job, steps of surplus that were taken.
    shrunk: Vec<u32>,
    /// Jobs that are left alone.
    pub(crate) exempt: BTreeMap<Exemption, usize>,
}

enum EvictionStage {
    Reclaim(Borrowers),
    Preempt(VecDeque<EvictionCandidate>),
}

/// Jobs of queues that borrow.
#[derive(Default)]
struct Borrowers {
    /// By queue, each in its own order.
    steps: BTreeMap<AccountIndex, VecDeque<EvictionCandidate>>,
    /// The queues that have some, the one that gives next first.
    queues: BTreeSet<(Urgency, AccountIndex)>,
    urgencies: BTreeMap<AccountIndex, Urgency>,
    /// Queues by the one that is farthest up on the way to where they meet the preemptor: their shares move together.
    kin: BTreeMap<Option<AccountIndex>, Vec<AccountIndex>>,
}

/// Which queue gives first: the least.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Urgency {
    /// Levels from the preemptor up to where they meet.
    distance: usize,
    queue_priority: i32,
    /// Of the queue farthest up that is not the preemptor's.
    share: Reverse<i128>,
    own_share: Reverse<i128>,
    job_priority: i32,
    name: QueueName,
}

impl<'a> VictimOrder<'a> {
    pub(crate) fn new(eligibility: &'a Eligibility<'a>, rank: VictimRank) -> Self {
        let jobs = eligibility.input.running.len();
        let mut line = Self {
            eligibility,
            stages: VecDeque::new(),
            taken: vec![DimAmounts::default(); eligibility.accounts.nodes.len()],
            shrunk: vec![0; jobs],
            exempt: BTreeMap::new(),
        };
        let mut found: BTreeMap<(bool, JobPart, EvictionRight), Vec<EvictionCandidate>> = BTreeMap::new();
        for job in 0..jobs {
            let whole = eligibility.find_eviction_right(job, JobPart::Whole);
            let elastic = !eligibility.parts[job].surplus.is_empty();
            let surplus =
                if elastic { eligibility.find_eviction_right(job, JobPart::Surplus) } else { Err(Exemption::NoHelp) };
            for (part, right) in [(JobPart::Surplus, surplus), (JobPart::Whole, whole)] {
                if let Ok((right, steps)) = right {
                    let last = rank == VictimRank::AllAlike || !eligibility.input.running[job].best_effort;
                    found.entry((last, part, right)).or_default().push(EvictionCandidate { job, part, right, steps });
                }
            }
            if let (Err(_), Err(why)) = (surplus, whole) {
                *line.exempt.entry(why).or_default() += 1;
            }
        }
        for ((.., right), mut steps) in found {
            steps.sort_by_cached_key(|step| line.victim_rank(*step));
            let stage = match right {
                EvictionRight::Preempt => EvictionStage::Preempt(steps.into()),
                EvictionRight::Reclaim => EvictionStage::Reclaim(line.group_candidates_by_queue(steps)),
            };
            line.stages.push_back(stage);
        }
        line
    }

    /// The next one; it counts as taken for those after it.
    pub(crate) fn take_next(&mut self) -> Option<EvictionCandidate> {
        loop {
            let step = match self.stages.front_mut()? {
                EvictionStage::Preempt(steps) => steps.pop_front(),
                EvictionStage::Reclaim(borrowers) => borrowers.pop_first(),
            };
            if let Some(step) = step {
                self.record_taken(step);
                return Some(step);
            }
            self.stages.pop_front();
            // What was taken before moved the shares.
            self.refresh_queues(None);
        }
    }

    fn group_candidates_by_queue(&self, steps: Vec<EvictionCandidate>) -> Borrowers {
        let mut borrowers = Borrowers::default();
        for step in steps {
            let candidate = &self.eligibility.input.running[step.job];
            let spot = self.eligibility.accounts.index_of(&candidate.queue).unwrap_or(0);
            let steps = borrowers.steps.entry(spot).or_default();
            if steps.is_empty() {
                let below = &self.eligibility.accounts.nodes[spot].path
                    [..self.eligibility.find_common_queue(candidate).candidate];
                borrowers.kin.entry(below.last().copied()).or_default().push(spot);
            }
            steps.push_back(step);
        }
        for (spot, steps) in &borrowers.steps {
            if let Some(step) = steps.front() {
                let urgency = self.queue_urgency(*spot, step.job);
                borrowers.queues.insert((urgency.clone(), *spot));
                borrowers.urgencies.insert(*spot, urgency);
            }
        }
        borrowers
    }

    /// Among the jobs of one queue, or of lower priority.
    fn victim_rank(&self, step: EvictionCandidate) -> impl Ord + use<'a> {
        let candidate = &self.eligibility.input.running[step.job];
        let (amount, dims) =
            (self.eligibility.amount_of(step.job, step.part, step.steps), &self.eligibility.accounts.dims);
        let lost = compute_lost_work(
            (self.eligibility.input.fleet, self.eligibility.input.now),
            candidate,
            amount.iter().map(|(dim, amount)| (dims.resource_of(dim), amount)),
        );
        (candidate.priority, lost, Reverse(candidate.start_order()))
    }

    fn queue_urgency(&self, spot: AccountIndex, job: usize) -> Urgency {
        let accounts = &self.eligibility.accounts;
        let candidate = &self.eligibility.input.running[job];
        let meeting = self.eligibility.find_common_queue(candidate);
        let below = &accounts.nodes[spot].path[..meeting.candidate];
        let matters = self.eligibility.reclaimable_resources(meeting.preemptor);
        let share =
            |spot: Option<&AccountIndex>| Reverse(spot.map_or(i128::MAX, |spot| self.deserved_share(*spot, matters)));
        Urgency {
            distance: meeting.preemptor,
            queue_priority: accounts.nodes[spot].priority,
            share: share(below.last()),
            own_share: share(below.first()),
            job_priority: candidate.priority,
            name: accounts.nodes[spot].name.clone(),
        }
    }

    /// What the queue has of what it deserves, in billionths, on the resource of which it has most.
    fn deserved_share(&self, spot: AccountIndex, matters: &[Dim]) -> i128 {
        let node = &self.eligibility.accounts.nodes[spot];
        let share = |dim: &Dim| {
            let used = node.used.get(*dim) - self.taken[spot].get(*dim);
            match node.deserved.get(*dim) {
                _ if !used.is_positive() => 0,
                Some(deserved) if deserved.is_positive() => used.billionths_of(deserved),
                _ => i128::MAX,
            }
        };
        matters.iter().map(share).max().unwrap_or(0)
    }

    fn record_taken(&mut self, EvictionCandidate { job, part, steps, .. }: EvictionCandidate) {
        let before = self.eligibility.parts[job].sum_first_surplus_steps(self.shrunk[job]);
        let amount = self.eligibility.amount_of(job, part, steps).zip(&before, |after, before| after - before);
        let path = self.eligibility.accounts.path_of(&self.eligibility.input.running[job].queue);
        path.iter().for_each(|spot| self.taken[*spot].add_all(&amount));
        self.shrunk[job] = steps;
        self.refresh_queues(Some(job));
    }

    /// Orders anew the queues whose shares the taking of this job moved; all of them for none.
    fn refresh_queues(&mut self, job: Option<usize>) {
        let Some(EvictionStage::Reclaim(mut borrowers)) =
            self.stages.pop_front_if(|stage| matches!(stage, EvictionStage::Reclaim(_)))
        else {
            return;
        };
        let moved: Vec<AccountIndex> = match job {
            None => borrowers.steps.keys().copied().collect(),
            Some(job) => {
                let candidate = &self.eligibility.input.running[job];
                let path = self.eligibility.accounts.path_of(&candidate.queue);
                let farthest = path[..self.eligibility.find_common_queue(candidate).candidate].last().copied();
                borrowers.kin.get(&farthest).cloned().unwrap_or_default()
            }
        };
        for spot in moved {
            let next = borrowers.steps.get(&spot).and_then(|steps| steps.front()).map(|step| step.job);
            borrowers.set_urgency(spot, next.map(|job| self.queue_urgency(spot, job)));
        }
        self.stages.push_front(EvictionStage::Reclaim(borrowers));
    }
}

impl Borrowers {
    fn pop_first(&mut self) -> Option<EvictionCandidate> {
        let (_, spot) = self.queues.first()?;
        self.steps.get_mut(spot)?.pop_front()
    }

    fn set_urgency(&mut self, spot: AccountIndex, urgency: Option<Urgency>) {
        let old = match &urgency {
            Some(urgency) => self.urgencies.insert(spot, urgency.clone()),
            None => self.urgencies.remove(&spot),
        };
        if let Some(old) = old {
            self.queues.remove(&(old, spot));
        }
        self.queues.extend(urgency.map(|urgency| (urgency, spot)));
    }
}

/// What it costs: the part of the fleet it held, resource by resource, times how long it ran since it last saved.
pub(crate) fn compute_lost_work<'a>(
    (fleet, now): (&Resources, EpochSeconds),
    candidate: &RunningJob,
    amounts: impl Iterator<Item = (&'a ResourceName, impl Into<Amount>)>,
) -> i128 {
    let lost = i128::from(candidate.count_lost_seconds(now));
    let shares = amounts.map(|(name, amount)| {
        let fleet = Amount::from(fleet.get(name.as_str()));
        if fleet.is_positive() { amount.into().max(Amount::ZERO).billionths_of(fleet) } else { Amount::WHOLE }
    });
    shares.fold(0_i128, i128::saturating_add).saturating_mul(lost)
}
