//! Each rule of giving back by name; `volcano` has Volcano's own cases, `search` holds the choice against brute force,
//! `ending` plays rounds until nothing moves.

mod bounds;
mod ending;
mod model;
mod order;
mod search;
mod volcano;

use super::*;
use crate::{gang::ClusterName, quantity::Quantity, split::Strategy, webster::Tie};

/// A fleet of one cluster, where what is free is free everywhere.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) queues: BTreeMap<QueueName, QueueAccount>,
    pub(crate) running: Vec<RunningJob>,
    pub(crate) fleet: Resources,
    pub(crate) policy: PreemptionPolicy,
    pub(crate) now: i64,
}

impl World {
    pub(crate) fn new(fleet: Resources) -> Self {
        let queues = BTreeMap::new();
        Self { queues, running: Vec::new(), fleet, policy: PreemptionPolicy::default(), now: 1000 }
    }

    pub(crate) fn queue(mut self, name: &str, parent: &str, deserved: Resources) -> Self {
        let account = QueueAccount {
            parent: (!parent.is_empty()).then(|| parent.into()),
            deserved: deserved.iter().map(|(name, amount)| (name.clone(), amount)).collect(),
            reclaimable: true,
            ..QueueAccount::default()
        };
        self.queues.insert(name.into(), account);
        self
    }

    pub(crate) fn runs(mut self, candidate: RunningJob) -> Self {
        self.running.push(candidate);
        self.settle();
        self
    }

    pub(crate) fn account(&mut self, name: &str) -> &mut QueueAccount {
        self.queues.get_mut(name).unwrap()
    }

    pub(crate) fn candidate(&mut self, id: &str) -> &mut RunningJob {
        self.running.iter_mut().find(|candidate| candidate.id.as_str() == id).unwrap()
    }

    pub(crate) fn path(&self, queue: &QueueName) -> Vec<QueueName> {
        let above = |name: &QueueName| self.queues.get(name).and_then(|account| account.parent.clone());
        std::iter::successors(Some(queue.clone()), above).collect()
    }

    /// Works out anew what queues use.
    pub(crate) fn settle(&mut self) {
        self.queues.values_mut().for_each(|account| account.used = Resources::new());
        for candidate in &self.running {
            for name in self.path(&candidate.queue) {
                if let Some(account) = self.queues.get_mut(&name) {
                    account.used.add(&candidate.charge);
                }
            }
        }
    }

    pub(crate) fn free(&self) -> Resources {
        let mut free = self.fleet.clone();
        self.running.iter().for_each(|candidate| free.saturating_sub(&candidate.charge));
        free
    }

    pub(crate) fn fits(&self, asks: &Resources, victims: &[&Victim]) -> bool {
        let mut free = self.free();
        victims.iter().for_each(|victim| free.add(&victim.frees));
        asks.fits_in(&free)
    }

    pub(crate) fn plan_evictions(&self, preemptor: &Preemptor) -> Result<EvictionPlan, Box<NoEvictions>> {
        let budget = EvictionBudget::start_full(self.policy.bounds.rate, EpochSeconds::new(self.now));
        self.plan_with(preemptor, &budget, |victims| self.fits(&preemptor.asks, victims))
    }

    pub(crate) fn plan_with(
        &self,
        preemptor: &Preemptor,
        budget: &EvictionBudget,
        fits: impl FnMut(&[&Victim]) -> bool,
    ) -> Result<EvictionPlan, Box<NoEvictions>> {
        let Self { queues, running, fleet, policy, now } = self;
        plan_evictions(
            &PreemptionInput { queues, running, fleet, policy, budget, now: EpochSeconds::new(*now) },
            preemptor,
            fits,
        )
    }

    /// Who gives way, with the pods that a job spares.
    pub(crate) fn victims(&self, preemptor: &Preemptor) -> Vec<String> {
        names(&self.plan_evictions(preemptor).unwrap())
    }

    pub(crate) fn refusal(&self, preemptor: &Preemptor) -> NoEvictions {
        *self.plan_evictions(preemptor).unwrap_err()
    }
}

pub(crate) fn names(plan: &EvictionPlan) -> Vec<String> {
    let name = |victim: &Victim| match &victim.taken {
        EvictedPart::Whole => victim.id.to_string(),
        EvictedPart::Surplus(less) => format!("{}-{}", victim.id, less.tasks.values().sum::<u32>()),
    };
    plan.victims.iter().map(name).collect()
}

pub(crate) fn amounts(all: &[(&str, i64)]) -> Resources {
    all.iter().map(|(name, units)| (*name, Quantity::from_units(*units))).collect()
}

pub(crate) fn cpu(units: i64) -> Resources {
    amounts(&[("cpu", units)])
}

pub(crate) fn candidate(id: &str, queue: &str, started: i64, charge: Resources) -> RunningJob {
    RunningJob {
        id: id.into(),
        queue: queue.into(),
        namespace: "ns".into(),
        name: id.into(),
        priority: 0,
        preemptable: None,
        best_effort: false,
        ours: true,
        created: started.into(),
        started: Some(EpochSeconds::new(started)),
        checkpoint_interval: None,
        charge,
        elastic: None,
        evictions: EvictionHistory::default(),
        progressed: false,
    }
}

/// A gang of one task, `pods` of one cpu each in clusters `a`, `b`, ..., of which it needs `min`.
pub(crate) fn elastic(id: &str, queue: &str, started: i64, pods: &[u32], min: u32) -> RunningJob {
    let placed = pods.iter().zip('a'..).map(|(pods, name)| (ClusterName::from(name.to_string()), *pods)).collect();
    let task = PlacedTask { name: "w".into(), request: cpu(1), priority: 0, min: 0, fixed: false, placed };
    let gang =
        ElasticGang { tasks: vec![task], min_available: min, strategy: Strategy::Aggregated, tie: Tie::Ascending };
    RunningJob { elastic: Some(gang), ..candidate(id, queue, started, cpu(pods.iter().copied().map(i64::from).sum())) }
}

pub(crate) fn preemptor(queue: &str, priority: i32, asks: Resources) -> Preemptor {
    Preemptor {
        id: "preemptor".into(),
        queue: queue.into(),
        priority,
        best_effort: false,
        never_preempts: false,
        asks,
        lacks: BTreeSet::new(),
        attempts: FailedAttempts::default(),
    }
}

/// Queue `a` deserves 6 of 10 and uses none, `b` deserves 4 and uses all.
fn lent(sizes: &[i64]) -> World {
    let world = World::new(cpu(10)).queue("a", "", cpu(6)).queue("b", "", cpu(4));
    sizes
        .iter()
        .enumerate()
        .fold(world, |world, (i, size)| world.runs(candidate(&format!("b{i}"), "b", i as i64, cpu(*size))))
}

#[test]
fn lent_capacity_comes_back_defect_13() {
    let plan = lent(&[2, 2, 2, 2, 2]).plan_evictions(&preemptor("a", 0, cpu(4))).unwrap();
    assert_eq!(names(&plan), ["b4", "b3"]);
    assert_eq!(plan.frees, cpu(4));
    let said = plan.victims[0].why.to_string();
    assert_eq!(said, "queue a reclaims what it deserves: queue b used cpu 10 and deserves 4");
}

#[test]
fn what_a_queue_deserves_covers_its_oldest_jobs_and_nobody_takes_them() {
    let world = lent(&[2, 2, 2, 2, 2]);
    assert_eq!(world.victims(&preemptor("a", 0, cpu(6))), ["b4", "b3", "b2"]);
    let why = world.refusal(&preemptor("a", 0, cpu(7)));
    assert_eq!(
        why.to_string(),
        "preemption for cpu 7: no job may be evicted for it: queue a would use cpu 7 and deserves 6; left alone: 5 out of reach of \
         the job's priority"
    );
    // Also where that is not enough: b0 and b1 stay.
    let mut world = world;
    world.account("a").deserved = [("cpu".into(), Quantity::from_units(9))].into_iter().collect();
    let why = world.refusal(&preemptor("a", 0, cpu(7)));
    assert_eq!(why.token(), "TooFewVictims");
    assert_eq!(
        why.to_string(),
        "preemption for cpu 7: not even without the 3 jobs that may be evicted (cpu 6) would it fit; left alone: 2 within what \
         its queue deserves"
    );
}

#[test]
fn a_job_larger_than_what_is_left_borrows_and_takes_no_seat_from_those_after_it() {
    let world = lent(&[2, 6, 2]);
    // b0 and b2 are covered: together they are what b deserves. b1 is not, though it came before b2.
    assert_eq!(world.victims(&preemptor("a", 0, cpu(2))), ["b1"]);
    let mut world = world;
    world.candidate("b1").preemptable = Some(false);
    assert_eq!(
        world.refusal(&preemptor("a", 0, cpu(2))).exempt,
        [(Exemption::WithinDeserved, 2), (Exemption::SaysNo, 1)].into()
    );
}

#[test]
fn the_preemptor_s_queue_stays_within_what_it_deserves_with_all_of_the_gang() {
    let world = lent(&[2, 2, 2, 2, 2]).runs(candidate("a0", "a", 0, cpu(3)));
    let why = world.refusal(&preemptor("a", 0, cpu(4))).entitled.unwrap_err();
    assert_eq!(why.to_string(), "queue a would use cpu 7 and deserves 6");
    // On every resource that it states, not only the one that is short: on the others it would borrow, and be taken
    // from in turn.
    let world = World::new(amounts(&[("cpu", 9), ("gpu", 2)]))
        .queue("a", "", amounts(&[("cpu", 1), ("gpu", 2)]))
        .queue("b", "", amounts(&[("cpu", 8)]))
        .runs(candidate("b0", "b", 0, amounts(&[("gpu", 2)])));
    let mut asks = preemptor("a", 0, amounts(&[("cpu", 2), ("gpu", 1)]));
    asks.lacks = ["gpu".into()].into();
    assert_eq!(world.refusal(&asks).entitled.unwrap_err().to_string(), "queue a would use cpu 2 and deserves 1");
    asks.asks = amounts(&[("cpu", 1), ("gpu", 1)]);
    assert_eq!(world.victims(&asks), ["b0"]);
}

#[test]
fn a_queue_takes_back_only_resources_that_it_states() {
    let world = World::new(cpu(4)).queue("a", "", amounts(&[("gpu", 8)])).queue("b", "", amounts(&[]));
    let world = world.runs(candidate("b0", "b", 0, cpu(4)));
    let why = world.refusal(&preemptor("a", 0, cpu(2)));
    assert_eq!(why.entitled.unwrap_err().to_string(), "queue a deserves no cpu");
}

/// `x` deserves 6, with leaves `x1` (4) and `x2` (nothing); `y` deserves 4, with leaf `y1` (nothing).
fn departments() -> World {
    World::new(cpu(10))
        .queue("x", "", cpu(6))
        .queue("x1", "x", cpu(4))
        .queue("x2", "x", amounts(&[]))
        .queue("y", "", cpu(4))
        .queue("y1", "y", amounts(&[]))
}

#[test]
fn a_leaf_without_a_word_of_its_own_takes_back_what_its_department_deserves() {
    let world = departments().runs(candidate("x2a", "x2", 0, cpu(6))).runs(candidate("x2b", "x2", 1, cpu(4)));
    assert_eq!(world.victims(&preemptor("y1", 0, cpu(4))), ["x2b"]);
    // Not from its own department: there it deserves nothing.
    let world = departments().runs(candidate("x1a", "x1", 0, cpu(10)));
    assert_eq!(world.refusal(&preemptor("x2", 0, cpu(2))).refused, AttemptRefusal::Nobody);
}

#[test]
fn a_department_covers_its_jobs_against_others_and_a_leaf_against_its_siblings() {
    // x2 borrows within x; x as a whole does not.
    let world = departments().runs(candidate("x2a", "x2", 0, cpu(6))).runs(candidate("y1a", "y1", 1, cpu(4)));
    assert_eq!(world.victims(&preemptor("x1", 0, cpu(4))), ["x2a"]);
    let mut world = world;
    world.account("y").deserved = [("cpu".into(), Quantity::from_units(8))].into_iter().collect();
    let why = world.refusal(&preemptor("y1", 0, cpu(2)));
    assert_eq!(why.exempt, [(Exemption::WithinDeserved, 1), (Exemption::NotLower, 1)].into());
    // What a leaf covers sits down first in the department, however late it came.
    let world = departments().runs(candidate("x2a", "x2", 0, cpu(6))).runs(candidate("x1a", "x1", 1, cpu(4)));
    assert_eq!(world.victims(&preemptor("y1", 0, cpu(4))), ["x2a"]);
}

#[test]
fn every_queue_on_the_way_must_be_reclaimable() {
    for queue in ["x2", "x"] {
        let mut world = departments().runs(candidate("x2a", "x2", 0, cpu(10)));
        world.account(queue).reclaimable = false;
        assert_eq!(
            world.refusal(&preemptor("y1", 0, cpu(4))).exempt,
            [(Exemption::NotReclaimable, 1)].into(),
            "{queue}"
        );
    }
    // The common one is not on the way.
    let mut world = departments().runs(candidate("x2a", "x2", 0, cpu(10)));
    world.account("x").reclaimable = false;
    assert_eq!(world.victims(&preemptor("x1", 0, cpu(4))), ["x2a"]);
}

#[test]
fn no_queue_falls_below_its_guarantee() {
    for queue in ["x2", "x"] {
        let mut world = departments().runs(candidate("x2a", "x2", 0, cpu(7))).runs(candidate("x2b", "x2", 1, cpu(3)));
        world.account(queue).guarantee = amounts(&[("cpu", 6), ("gpu", 9)]);
        world.account(queue).deserved = Limits::unlimited();
        // The first one is larger than the guarantee, which is all that is deserved, but fills it.
        assert_eq!(
            world.refusal(&preemptor("y1", 0, cpu(4))).exempt,
            [(Exemption::WithinDeserved, 1)].into(),
            "{queue}"
        );
        assert_eq!(world.victims(&preemptor("y1", 0, cpu(3))), ["x2b"], "{queue}");
    }
}

#[test]
fn surplus_is_covered_as_far_as_it_goes() {
    let world = World::new(cpu(10)).queue("a", "", cpu(9)).queue("b", "", cpu(3));
    let mut world = world.runs(elastic("b0", "b", 0, &[10], 1));
    assert_eq!(world.victims(&preemptor("a", 0, cpu(7))), ["b0-7"]);
    assert_eq!(world.refusal(&preemptor("a", 0, cpu(8))).token(), "TooFewVictims");
    world.account("b").guarantee = cpu(5);
    assert_eq!(world.victims(&preemptor("a", 0, cpu(5))), ["b0-5"]);
    assert_eq!(world.refusal(&preemptor("a", 0, cpu(6))).token(), "TooFewVictims");
}

#[test]
fn who_says_no_is_protected_or_not_ours_is_left_alone() {
    let spare = |change: fn(&mut World)| {
        let mut world = lent(&[10]);
        change(&mut world);
        world.refusal(&preemptor("a", 0, cpu(6))).exempt
    };
    assert_eq!(spare(|world| world.running[0].preemptable = Some(false)), [(Exemption::SaysNo, 1)].into());
    assert_eq!(spare(|world| world.running[0].namespace = "kube-system".into()), [(Exemption::Protected, 1)].into());
    assert_eq!(spare(|world| world.running[0].ours = false), [(Exemption::NotOurs, 1)].into());
    assert_eq!(spare(|world| world.policy.unset.reclaim = false), [(Exemption::SaysNothing, 1)].into());
    assert_eq!(spare(|world| world.policy.reclaim = false), [(Exemption::NotLower, 1)].into());
}

#[test]
fn who_borrows_other_resources_or_holds_nothing_that_is_lacking_is_left_alone() {
    let world = World::new(amounts(&[("cpu", 8), ("gpu", 4)]))
        .queue("a", "", amounts(&[("cpu", 4), ("gpu", 4)]))
        .queue("b", "", amounts(&[("cpu", 1), ("gpu", 2)]))
        .runs(candidate("gpus", "b", 0, amounts(&[("cpu", 4), ("gpu", 2)])))
        .runs(candidate("cpus", "b", 1, cpu(4)));
    let mut asks = preemptor("a", 0, amounts(&[("cpu", 2), ("gpu", 4)]));
    asks.lacks = ["gpu".into()].into();
    assert_eq!(world.refusal(&asks).exempt, [(Exemption::OverElsewhere, 1), (Exemption::NoHelp, 1)].into());
}

#[test]
fn jobs_of_a_queue_that_is_gone_may_be_taken_back() {
    let world = World::new(cpu(4)).queue("a", "", cpu(4)).runs(candidate("lost", "deleted", 0, cpu(4)));
    let plan = world.plan_evictions(&preemptor("a", 0, cpu(1))).unwrap();
    assert_eq!(names(&plan), ["lost"]);
    let said = plan.victims[0].why.to_string();
    assert_eq!(said, "queue a reclaims what it deserves: queue deleted used cpu 4 and deserves none");
}

/// Two queues that deserve 4 and 6 of 10, and a gang of 8 in the first that came at 0 and started at 300.
fn turn(other: i64) -> World {
    let big = RunningJob { created: 0.into(), ..candidate("big", "a", 300, cpu(8)) };
    let world = World::new(cpu(10)).queue("a", "", cpu(4)).queue("b", "", cpu(6)).runs(big);
    let mut world = if other > 0 { world.runs(candidate("other", "a", 300, cpu(other))) } else { world };
    world.now = 599;
    world
}

#[test]
fn who_alone_has_more_than_its_queue_deserves_has_a_turn_as_long_as_its_queue_did_without() {
    let preemptor = preemptor("b", 0, cpu(4));
    let mut world = turn(0);
    let refused = world.refusal(&preemptor);
    assert_eq!(refused.exempt, [(Exemption::Turn, 1)].into());
    // 4 for 300 seconds are 4 more than deserved for 300 seconds.
    assert_eq!(refused.again_at(), Some(EpochSeconds::new(600)));
    world.now = 600;
    assert_eq!(world.victims(&preemptor), ["big"]);
}

#[test]
fn who_did_not_wait_or_is_not_alone_has_no_turn() {
    let preemptor = preemptor("b", 0, cpu(4));
    let mut idle = turn(0);
    idle.candidate("big").created = 300.into();
    assert_eq!(idle.victims(&preemptor), ["big"]);
    assert_eq!(turn(1).victims(&preemptor), ["big"]);
    let mut evicted = turn(0);
    evicted.candidate("big").evictions = EvictionHistory { count: 1, last: Some(EpochSeconds::new(200)) };
    evicted.now = 400;
    assert_eq!(evicted.victims(&preemptor), ["big"], "100 seconds, since it last gave way");
}
