//! Preemption, and who goes first.

use super::*;
use crate::split;

/// One queue that deserves nothing, full of jobs of priority 0 that say yes.
fn queue_of(jobs: &[(&str, i32)]) -> World {
    let world = World::new(cpu(jobs.len() as i64 * 2)).queue("q", "", amounts(&[]));
    jobs.iter().enumerate().fold(world, |world, (i, (id, priority))| {
        let job = candidate(id, "q", i as i64, cpu(2));
        world.runs(RunningJob { priority: *priority, preemptable: Some(true), ..job })
    })
}

#[test]
fn strictly_lower_priorities_give_way_the_lowest_first() {
    let world = queue_of(&[("a", 5), ("b", 0), ("c", 3), ("d", 7)]);
    let plan = world.plan_evictions(&preemptor("q", 5, cpu(3))).unwrap();
    assert_eq!(names(&plan), ["b", "c"]);
    assert_eq!(
        plan.victims[0].why.to_string(),
        "a job of priority 5 in queue q needs its capacity, and its own priority is 0"
    );
    assert_eq!(world.refusal(&preemptor("q", 0, cpu(1))).exempt, [(Exemption::NotLower, 4)].into());
    assert_eq!(world.refusal(&preemptor("q", 5, cpu(5))).token(), "TooFewVictims");
}

#[test]
fn preemption_policy_never_is_honoured() {
    let mut asks = preemptor("q", 5, cpu(1));
    asks.never_preempts = true;
    assert_eq!(queue_of(&[("a", 0)]).refusal(&asks).refused, AttemptRefusal::Never);
}

#[test]
fn within_a_queue_only_who_says_yes_is_preempted_unless_the_policy_says_otherwise() {
    let mut world = queue_of(&[("a", 0)]);
    world.running[0].preemptable = None;
    assert_eq!(world.refusal(&preemptor("q", 5, cpu(1))).exempt, [(Exemption::SaysNothing, 1)].into());
    world.policy.unset.preempt = true;
    assert_eq!(world.victims(&preemptor("q", 5, cpu(1))), ["a"]);
}

/// Queues `x1` and `x2` below `x`, and `y`; none deserves anything.
fn neighbours(scope: RuleScope) -> World {
    let none = || amounts(&[]);
    let world = World::new(cpu(6)).queue("x", "", none()).queue("x1", "x", none()).queue("x2", "x", none());
    let mut world = world.queue("y", "", none());
    for (id, queue) in [("in-x1", "x1"), ("in-x2", "x2"), ("in-y", "y")] {
        world = world.runs(RunningJob { preemptable: Some(true), ..candidate(id, queue, 0, cpu(2)) });
    }
    world.policy.preempt = vec![PreemptionRule { by: JobSelector::ANY, of: JobSelector::ANY, scope }];
    world
}

#[test]
fn a_scope_says_how_far_a_priority_reaches() {
    for (scope, jobs) in [(RuleScope::SameQueue, 1), (RuleScope::SameParent, 2), (RuleScope::AnyQueue, 3)] {
        let world = neighbours(scope);
        let all = world.plan_evictions(&preemptor("x1", 1, cpu(2 * jobs)));
        assert_eq!(all.unwrap().victims.len(), jobs as usize, "{scope:?}");
        assert!(world.plan_evictions(&preemptor("x1", 1, cpu(2 * jobs + 1))).is_err(), "{scope:?}");
    }
    let mut world = neighbours(RuleScope::AnyQueue);
    world.policy.preempt.clear();
    assert_eq!(world.refusal(&preemptor("x1", 1, cpu(2))).refused, AttemptRefusal::Nobody);
}

#[test]
fn a_rule_names_queues_and_priorities_of_both_sides() {
    let mut world = neighbours(RuleScope::AnyQueue);
    let below_x = JobSelector { queue: Some("x".into()), least: 10, most: i32::MAX };
    let cheap_y = JobSelector { queue: Some("y".into()), least: i32::MIN, most: 5 };
    world.policy.preempt = vec![PreemptionRule { by: below_x, of: cheap_y, scope: RuleScope::AnyQueue }];
    assert_eq!(world.victims(&preemptor("x2", 10, cpu(2))), ["in-y"]);
    assert!(world.plan_evictions(&preemptor("x2", 9, cpu(2))).is_err());
    assert!(world.plan_evictions(&preemptor("y", 10, cpu(2))).is_err());
    world.candidate("in-y").priority = 6;
    assert!(world.plan_evictions(&preemptor("x2", 10, cpu(2))).is_err());
}

#[test]
fn no_priority_takes_from_another_queue_what_that_one_deserves() {
    let mut world = neighbours(RuleScope::AnyQueue);
    world.account("y").deserved = [("cpu".into(), Quantity::from_units(2))].into_iter().collect();
    let why = world.refusal(&preemptor("x1", 9, cpu(6)));
    assert_eq!((why.token(), why.exempt), ("TooFewVictims", [(Exemption::WithinDeserved, 1)].into()));
}

#[test]
fn who_would_borrow_does_not_push_out_of_its_queue_who_is_covered() {
    // Else another queue would take back from it, the one pushed out would start again, and so for ever.
    let job = RunningJob { preemptable: Some(true), ..candidate("own", "q", 0, cpu(5)) };
    let world = World::new(cpu(6)).queue("q", "", cpu(5)).runs(job);
    assert_eq!(world.refusal(&preemptor("q", 9, cpu(6))).exempt, [(Exemption::WithinDeserved, 1)].into());
    // Who takes its seat may.
    assert_eq!(world.victims(&preemptor("q", 9, cpu(5))), ["own"]);
}

#[test]
fn surplus_goes_before_whole_gangs_and_no_more_of_it_than_is_needed() {
    let world = World::new(cpu(16)).queue("a", "", cpu(8)).queue("b", "", amounts(&[]));
    let world = world.runs(elastic("b0", "b", 0, &[5, 2], 3)).runs(candidate("b1", "b", 9, cpu(9)));
    let plan = world.plan_evictions(&preemptor("a", 0, cpu(3))).unwrap();
    assert_eq!(names(&plan), ["b0-3"]);
    // As the scheduler shrinks: the smallest part first.
    let EvictedPart::Surplus(less) = &plan.victims[0].taken else { panic!() };
    let clusters: Vec<_> = less.clusters.iter().map(|(name, tasks)| (name.as_str(), tasks["w"])).collect();
    assert_eq!(clusters, [("a", 1), ("b", 2)]);
    assert_eq!(plan.frees, cpu(3));
    // Where surplus alone is not enough the gang that is needed goes, and the other keeps its surplus.
    assert_eq!(world.victims(&preemptor("a", 0, cpu(5))), ["b0"]);
    assert_eq!(world.victims(&preemptor("a", 0, cpu(8))), ["b1"]);
}

#[test]
fn surplus_keeps_every_task_its_minimum_and_leaves_partitions_alone() {
    let placed = |pods: u32| -> BTreeMap<ClusterName, u32> { [("a".into(), pods)].into() };
    let task = |name: &str, pods, min, fixed, priority| PlacedTask {
        name: name.into(),
        request: cpu(1),
        priority,
        min,
        fixed,
        placed: placed(pods),
    };
    let tasks = vec![task("master", 3, 1, false, 9), task("worker", 6, 2, false, 5), task("eval", 6, 2, true, 0)];
    let gang = ElasticGang { tasks, min_available: 9, strategy: Strategy::Aggregated, tie: Tie::Ascending };
    let job = RunningJob { elastic: Some(gang), ..candidate("b0", "b", 0, cpu(15)) };
    let world = World::new(cpu(15)).queue("a", "", cpu(15)).queue("b", "", amounts(&[])).runs(job);
    let taken = |asks| match &world.plan_evictions(&preemptor("a", 0, cpu(asks))).unwrap().victims[0].taken {
        EvictedPart::Surplus(less) => less.tasks.iter().map(|(name, pods)| (name.to_string(), *pods)).collect(),
        EvictedPart::Whole => Vec::new(),
    };
    let less = |all: &[(&str, u32)]| all.iter().map(|(name, pods)| ((*name).to_owned(), *pods)).collect::<Vec<_>>();
    // Six can be spared: four workers, then the masters that are left; the partitions of eval count, and none of them
    // goes.
    assert_eq!(taken(1), less(&[("worker", 1)]));
    assert_eq!(taken(4), less(&[("worker", 4)]));
    assert_eq!(taken(6), less(&[("master", 2), ("worker", 4)]));
    assert_eq!(taken(7), []);
}

#[test]
fn pods_leave_where_the_scheduler_would_cut_them() {
    for strategy in [Strategy::Aggregated, Strategy::StaticWeight, Strategy::DynamicWeight] {
        let mut job = elastic("b0", "b", 0, &[6, 1, 4], 2);
        let gang = job.elastic.as_mut().unwrap();
        gang.strategy = strategy;
        let names: Vec<ClusterName> = gang.tasks[0].placed.keys().cloned().collect();
        let mut cut: Vec<Vec<u32>> = gang.tasks[0].placed.values().map(|pods| vec![*pods]).collect();
        let before = cut.clone();
        split::scale_down(strategy, Tie::Ascending, &names.iter().collect::<Vec<_>>(), &[7], &mut cut);
        let world = World::new(cpu(11)).queue("a", "", cpu(11)).queue("b", "", amounts(&[])).runs(job);
        let plan = world.plan_evictions(&preemptor("a", 0, cpu(4))).unwrap();
        let EvictedPart::Surplus(less) = &plan.victims[0].taken else { panic!() };
        for (site, name) in names.iter().enumerate() {
            let gone = less.clusters.get(name).and_then(|tasks| tasks.get("w")).copied().unwrap_or(0);
            assert_eq!(gone, before[site][0] - cut[site][0], "{strategy:?} {name}");
        }
    }
}

#[test]
fn the_queue_that_is_most_over_at_that_point_gives_next() {
    let mut world = World::new(cpu(24)).queue("a", "", cpu(12)).queue("b", "", cpu(4)).queue("c", "", cpu(4));
    for (i, queue) in ["b", "b", "b", "b", "b", "b", "c", "c", "c", "c", "c", "c"].into_iter().enumerate() {
        world = world.runs(candidate(&format!("{queue}{i}"), queue, i as i64, cpu(2)));
    }
    let queues: Vec<char> =
        world.victims(&preemptor("a", 0, cpu(8))).iter().filter_map(|id| id.chars().next()).collect();
    assert_eq!(queues, ['b', 'c', 'b', 'c']);
    // A queue of low priority gives first whatever its share, and one that is nearer before that.
    world.account("b").priority = 1;
    assert_eq!(world.victims(&preemptor("a", 0, cpu(8))), ["c11", "c10", "c9", "c8"]);
}

#[test]
fn near_queues_give_before_far_ones() {
    let world = departments().runs(candidate("x2a", "x2", 0, cpu(2))).runs(candidate("y1a", "y1", 1, cpu(8)));
    assert_eq!(world.victims(&preemptor("x1", 0, cpu(2))), ["x2a"]);
}

#[test]
fn in_a_queue_low_priority_then_least_lost_work_then_the_newest_goes_first() {
    let world = lent(&[]);
    let job = |id, started, size, priority| RunningJob { priority, ..candidate(id, "b", started, cpu(size)) };
    let world = world
        .runs(job("old-low", 0, 2, -1))
        .runs(job("new-big", 600, 4, 0))
        .runs(job("new-small", 600, 2, 0))
        .runs(job("newest", 999, 2, 1));
    // Covered: the newest, of the highest priority, and then the small one.
    assert_eq!(world.victims(&preemptor("a", 0, cpu(2))), ["old-low"]);
    assert_eq!(world.victims(&preemptor("a", 0, cpu(6))), ["old-low", "new-big"]);
    let mut world = queue_of(&[("long", 0), ("short", 0), ("twin", 0)]);
    world.candidate("short").started = Some(EpochSeconds::new(900));
    world.candidate("twin").started = Some(EpochSeconds::new(900));
    assert_eq!(world.victims(&preemptor("q", 5, cpu(4))), ["twin", "short"]);
    // Who is only admitted loses nothing.
    world.candidate("long").started = None;
    assert_eq!(world.victims(&preemptor("q", 5, cpu(2))), ["long"]);
    assert_eq!(world.plan_evictions(&preemptor("q", 5, cpu(2))).unwrap().lost_work, 0);
}

#[test]
fn who_saves_its_work_loses_no_more_than_since_it_last_saved() {
    let mut world = queue_of(&[("long", 0), ("short", 0), ("twin", 0)]);
    world.candidate("short").started = Some(EpochSeconds::new(900));
    world.candidate("twin").started = Some(EpochSeconds::new(950));
    assert_eq!(world.victims(&preemptor("q", 5, cpu(2))), ["twin"]);
    world.candidate("long").checkpoint_interval = Some(30);
    assert_eq!(world.victims(&preemptor("q", 5, cpu(2))), ["long"]);
    // It has run for less than that: nothing is saved yet.
    world.candidate("twin").checkpoint_interval = Some(600);
    assert_eq!(world.victims(&preemptor("q", 5, cpu(4))), ["long", "twin"]);
    let lost = |world: &World, size| world.plan_evictions(&preemptor("q", 5, cpu(size))).unwrap().lost_work;
    assert_eq!(lost(&world, 4) / lost(&world, 2), (30 + 50) / 30);
}

#[test]
fn of_jobs_that_started_in_the_same_second_the_older_is_within_deserved_and_then_the_names_decide() {
    // Half of what `b` has is deserved; the UIDs sort against age, and against the names.
    let job = |uid: &str, name: &str, created: i64| RunningJob {
        name: name.into(),
        created: created.into(),
        ..candidate(uid, "b", 7, cpu(1))
    };
    let victim = |jobs: [RunningJob; 2]| {
        let world = World::new(cpu(2)).queue("a", "", cpu(1)).queue("b", "", cpu(1));
        jobs.into_iter().fold(world, World::runs).victims(&preemptor("a", 0, cpu(1)))
    };
    assert_eq!(victim([job("u2", "older", 5), job("u1", "newer", 6)]), ["u1"]);
    assert_eq!(victim([job("u2", "kept", 5), job("u1", "lent", 5)]), ["u1"]);
}

#[test]
fn who_is_not_needed_after_all_stays() {
    // The least that is lost comes first, and is not needed once the next one goes.
    let world = lent(&[]).runs(candidate("b-old", "b", 0, cpu(4))).runs(candidate("b-big", "b", 1, cpu(5)));
    let world = world.runs(candidate("b-small", "b", 2, cpu(1)));
    assert_eq!(world.victims(&preemptor("a", 0, cpu(5))), ["b-big"]);
}

#[test]
fn where_the_preemptor_needs_one_cluster_only_jobs_there_go() {
    let world = lent(&[4, 2, 2, 2]);
    let budget = EvictionBudget::start_full(world.policy.bounds.rate, EpochSeconds::new(world.now));
    let here = |victims: &[&Victim]| victims.iter().any(|victim| victim.id.as_str() == "b1");
    assert_eq!(names(&world.plan_with(&preemptor("a", 0, cpu(2)), &budget, here).unwrap()), ["b1"]);
}

#[test]
fn best_effort_jobs_give_way_before_all_others_whatever_their_priority() {
    let mut world = queue_of(&[("a", 0), ("b", 3), ("c", 1)]);
    world.candidate("b").best_effort = true;
    assert_eq!(world.victims(&preemptor("q", 5, cpu(1))), ["b"]);
    assert_eq!(world.victims(&preemptor("q", 5, cpu(3))), ["b", "a"]);
}

/// Whole, before a pod of another job that could be spared, and in a queue that is farther away.
#[test]
fn best_effort_jobs_of_a_far_queue_give_way_before_others_of_a_near_one() {
    let mut world = neighbours(RuleScope::AnyQueue);
    world.candidate("in-y").best_effort = true;
    assert_eq!(world.victims(&preemptor("x1", 1, cpu(2))), ["in-y"]);
    world.candidate("in-y").priority = 1;
    assert_ne!(world.victims(&preemptor("x1", 1, cpu(2))), ["in-y"], "it adds no right to evict");
}

/// Else what gave way first would take the place of a job of lower priority at once, and two jobs were evicted for one.
#[test]
fn a_best_effort_job_preempts_only_others_that_are() {
    let mut world = queue_of(&[("a", 0), ("b", 1)]);
    let mut asks = preemptor("q", 5, cpu(1));
    asks.best_effort = true;
    assert_eq!(world.refusal(&asks).exempt, [(Exemption::NotBestEffort, 2)].into());
    world.candidate("b").best_effort = true;
    assert_eq!(world.victims(&asks), ["b"]);
}

#[test]
fn a_queues_best_effort_job_still_takes_back_what_its_queue_deserves() {
    let world =
        World::new(cpu(10)).queue("a", "", cpu(6)).queue("b", "", cpu(4)).runs(candidate("lent", "b", 0, cpu(10)));
    let mut asks = preemptor("a", 0, cpu(6));
    asks.best_effort = true;
    assert_eq!(world.victims(&asks), ["lent"]);
}

#[test]
fn many_small_best_effort_jobs_shield_nobody_who_is_large() {
    let mut world = World::new(cpu(200)).queue("q", "", amounts(&[]));
    for number in 0..100 {
        let job = candidate(&format!("be-{number:03}"), "q", number, cpu(1));
        world = world.runs(RunningJob { priority: 3, preemptable: Some(true), best_effort: true, ..job });
    }
    world = world.runs(RunningJob { preemptable: Some(true), ..candidate("large", "q", 0, cpu(100)) });
    assert_eq!(world.victims(&preemptor("q", 5, cpu(3))).len(), 3);
    // 80 of them would be more than an attempt may evict.
    let asks = preemptor("q", 5, cpu(80));
    assert_eq!(world.victims(&asks), ["large"]);
}
