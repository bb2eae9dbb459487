//! Rounds of starts and preemptions, until nothing moves: that there is an end, and who takes whom on the way.

use proptest::{prelude::*, strategy::Strategy};

use super::*;
use crate::queue::preemption::tests::{
    model::Model,
    search::{job, jobs, queues, world},
};

/// Jobs that wait and run in clusters that each job is bound to one of, or free of.
struct Game {
    world: World,
    waiting: Vec<RunningJob>,
    /// What each cluster has; a job that is bound needs room there, the others room in the sum.
    capacities: [Resources; 2],
    bound: BTreeMap<JobId, Option<usize>>,
    draws: Vec<u8>,
    /// Who took whom, in order.
    taken: Vec<(JobId, JobId)>,
    preemptions: usize,
    starts: usize,
}

impl Game {
    fn draw(&mut self, among: usize) -> usize {
        let draw = self.draws.pop().unwrap_or(0);
        self.draws.insert(0, draw.rotate_left(3).wrapping_add(17));
        usize::from(draw) % among.max(1)
    }

    fn free(&self, at: usize, victims: &[&Victim]) -> Resources {
        let mut free = self.capacities[at].clone();
        for candidate in self.world.running.iter().filter(|candidate| self.bound[&candidate.id] == Some(at)) {
            let gone = victims.iter().find(|victim| victim.id == candidate.id);
            let mut stays = candidate.charge.clone();
            gone.iter().for_each(|gone| stays.saturating_sub(&gone.frees));
            free.saturating_sub(&stays);
        }
        free
    }

    fn fits(&self, id: &JobId, asks: &Resources, victims: &[&Victim]) -> bool {
        let here = self.bound[id].is_none_or(|at| asks.fits_in(&self.free(at, victims)));
        here && self.world.fits(asks, victims)
    }

    /// Starts a job with its minimum, and as much more as there is room for.
    fn start(&mut self, at: usize) {
        let mut job = self.waiting.remove(at);
        self.world.now += 1;
        job.started = Some(EpochSeconds::new(self.world.now));
        if let Some(gang) = &mut job.elastic {
            let minimum = gang.tasks[0].request.times(u64::from(gang.min_available));
            let more = gang.tasks[0].request.count_fits_in(&{
                let mut free = self.world.free();
                free.saturating_sub(&minimum);
                free
            });
            let bound = self.bound[&job.id].is_some();
            let more = if bound { 0 } else { u32::try_from(more.unwrap_or(0).min(2)).unwrap() };
            let pods = gang.min_available + more;
            gang.tasks[0].placed = [("a".into(), pods)].into();
            job.charge = gang.tasks[0].request.times(u64::from(pods));
        }
        self.starts += 1;
        self.world.running.push(job);
        self.world.settle();
    }

    fn minimum(job: &RunningJob) -> Resources {
        job.elastic
            .as_ref()
            .map_or_else(|| job.charge.clone(), |gang| gang.tasks[0].request.times(u64::from(gang.min_available)))
    }

    fn preemptor_of(&self, job: &RunningJob) -> Preemptor {
        let asks = Self::minimum(job);
        let frees = [Some(self.world.free()), self.bound[&job.id].map(|at| self.free(at, &[]))];
        let short = |(name, asked): &(&ResourceName, Quantity)| {
            frees.iter().flatten().any(|free| free.get(name.as_str()) < *asked)
        };
        let lacks = asks.iter().filter(short).map(|(name, _)| name.clone()).collect();
        Preemptor { id: job.id.clone(), lacks, ..super::preemptor(job.queue.as_str(), job.priority, asks) }
    }

    /// One start or one preemption, drawn among all that can be; false if none can.
    fn step(&mut self) -> bool {
        let first = self.draw(self.waiting.len());
        let order: Vec<usize> = (0..self.waiting.len()).map(|i| (i + first) % self.waiting.len()).collect();
        let preempts_first = self.draw(3) == 0;
        if preempts_first && self.preempt(&order) {
            return true;
        }
        for at in &order {
            let job = &self.waiting[*at];
            if self.fits(&job.id, &Self::minimum(job), &[]) {
                self.start(*at);
                return true;
            }
        }
        self.preempt(&order)
    }

    /// The first in this order for whom there are victims starts.
    fn preempt(&mut self, order: &[usize]) -> bool {
        for at in order.iter().copied() {
            let preemptor = self.preemptor_of(&self.waiting[at]);
            let budget = EvictionBudget::start_full(self.world.policy.bounds.rate, EpochSeconds::new(self.world.now));
            let plan =
                self.world.plan_with(&preemptor, &budget, |victims| self.fits(&preemptor.id, &preemptor.asks, victims));
            let Ok(plan) = plan else { continue };
            for victim in &plan.victims {
                self.evict(victim, &preemptor.id);
            }
            self.preemptions += 1;
            let at = self.waiting.iter().position(|job| job.id == preemptor.id).unwrap();
            self.start(at);
            return true;
        }
        false
    }

    fn evict(&mut self, victim: &Victim, by: &JobId) {
        let at = self.world.running.iter().position(|candidate| candidate.id == victim.id).unwrap();
        match &victim.taken {
            EvictedPart::Whole => {
                let job = self.world.running.remove(at);
                self.waiting.push(job);
                self.taken.push((by.clone(), victim.id.clone()));
            }
            EvictedPart::Surplus(less) => {
                let candidate = &mut self.world.running[at];
                let gang = candidate.elastic.as_mut().unwrap();
                *gang.tasks[0].placed.get_mut("a").unwrap() -= less.tasks["w"];
                candidate.charge.saturating_sub(&victim.frees);
            }
        }
        self.world.settle();
    }

    fn score(&self) -> Vec<usize> {
        let preemptor = super::preemptor("q0", 0, Resources::new());
        Model::new(&self.world, &preemptor).score()
    }

    fn has_pair(&self) -> bool {
        self.taken.iter().any(|(by, of)| self.taken.contains(&(of.clone(), by.clone())))
    }
}

fn game(one_priority: bool) -> impl Strategy<Value = Game> {
    let scope = prop_oneof![Just(RuleScope::SameQueue), Just(RuleScope::SameParent), Just(RuleScope::AnyQueue)];
    let bound = prop::collection::vec(prop::option::weighted(0.4, 0_usize..2), 14);
    let capacity = (3_i64..9, 1_i64..5);
    let draws = prop::collection::vec(any::<u8>(), 8);
    (queues(7), jobs(6, 14), scope, bound, [capacity.clone(), capacity], draws).prop_map(
        move |(queues, jobs, scope, bound, capacities, draws)| {
            let mut world = world(&queues);
            world.policy.preempt[0].scope = scope;
            world.policy.bounds.evictions = u32::MAX;
            world.fleet = Resources::new();
            let capacities = capacities.map(|(cpu, gpu)| amounts(&[("cpu", cpu), ("gpu", gpu)]));
            capacities.iter().for_each(|capacity| world.fleet.add(capacity));
            let mut waiting: Vec<RunningJob> =
                jobs.iter().enumerate().map(|(i, draw)| job(&world, i, draw).0).collect();
            for job in &mut waiting {
                job.preemptable = job.preemptable.filter(|says| *says || job.id.as_str() == "j0");
                job.priority = if one_priority { 0 } else { job.priority };
            }
            let bound = waiting.iter().zip(bound).map(|(job, bound)| (job.id.clone(), bound)).collect();
            Game { world, waiting, capacities, bound, draws, taken: Vec::new(), preemptions: 0, starts: 0 }
        },
    )
}

impl std::fmt::Debug for Game {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (name, account) in &self.world.queues {
            let QueueAccount { parent, guarantee, deserved, reclaimable, .. } = account;
            writeln!(f, "{name} below {parent:?}: {deserved:?}, at least {guarantee}, reclaimable {reclaimable}")?;
        }
        for job in &self.waiting {
            let RunningJob { id, queue, priority, preemptable, charge, .. } = job;
            let pods = job.elastic.as_ref().map(|gang| gang.min_available);
            writeln!(f, "{id} in {queue}: {priority}, {preemptable:?}, {charge}, {pods:?}, {:?}", self.bound[id])?;
        }
        writeln!(f, "rooms {:?}, scope {:?}", self.capacities, self.world.policy.preempt[0].scope)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_preemption_and_every_start_makes_the_standing_greater_so_there_is_a_last_l4(mut game in game(false)) {
        let mut before = game.score();
        while game.step() {
            let now = game.score();
            prop_assert!(now > before, "{:?}", game.taken);
            before = now;
        }
    }

    #[test]
    fn of_one_priority_a_job_preempts_once_and_no_two_jobs_take_each_other(mut game in game(true)) {
        let jobs = game.waiting.len();
        while game.step() {
            prop_assert!(game.preemptions <= jobs, "{:?}", game.taken);
        }
        prop_assert!(!game.has_pair(), "{:?}", game.taken);
    }
}

/// What the same rounds cost: `cargo test -- --ignored --nocapture rounds`.
#[test]
#[ignore = "a measurement"]
fn how_many_rounds() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};

    for one_priority in [true, false] {
        let mut runner = TestRunner::deterministic();
        let (mut jobs, mut preemptions, mut starts, mut most, mut pairs, mut games) = (0, 0, 0, 0, 0, 0);
        for _ in 0..3000 {
            let tree = game(one_priority).new_tree(&mut runner).unwrap();
            let mut game = tree.current();
            jobs += game.waiting.len();
            while game.step() {}
            preemptions += game.preemptions;
            starts += game.starts;
            most = most.max(game.preemptions);
            pairs += usize::from(game.has_pair());
            games += 1;
        }
        println!(
            "one priority {one_priority}: {games} games, {jobs} jobs, {starts} starts, {preemptions} preemptions, at most {most} \
             in a game; in {pairs} games two took each other"
        );
    }
}

/// Volcano's rule, and Kueue's, let these two take turns: each preempts within its queue while it borrows, and each
/// queue takes back from the other.
#[test]
fn preemption_and_reclaim_do_not_take_turns() {
    let big = |id: &str, queue: &str| RunningJob { priority: 9, ..job_of(id, queue, 6) };
    let small = |id: &str, queue: &str| job_of(id, queue, 5);
    fn job_of(id: &str, queue: &str, size: i64) -> RunningJob {
        RunningJob { preemptable: Some(true), ..candidate(id, queue, 0, cpu(size)) }
    }
    let world = World::new(cpu(6)).queue("a", "", cpu(5)).queue("b", "", cpu(5));
    let waiting = vec![small("a-small", "a"), big("a-big", "a"), small("b-small", "b"), big("b-big", "b")];
    let bound = waiting.iter().map(|job| (job.id.clone(), None)).collect();
    let capacities = [cpu(6), cpu(0)];
    let mut game =
        Game { world, waiting, capacities, bound, draws: vec![0], taken: Vec::new(), preemptions: 0, starts: 0 };
    let mut steps = 0;
    while game.step() {
        steps += 1;
        assert!(steps < 20, "{:?}", game.taken);
    }
}
