//! How much, how often, how long.

use proptest::prelude::*;

use super::*;

#[test]
fn a_fleet_s_evictions_are_bounded_in_every_stretch_of_time() {
    let world = lent(&[2, 2, 2, 2, 2]);
    let rate = EvictionRate { evictions: 2, seconds: 60 };
    let mut policy = World { now: 60, ..world };
    policy.policy.bounds.rate = rate;
    let plan = |budget: &EvictionBudget, asks| {
        policy.plan_with(&preemptor("a", 0, cpu(asks)), budget, |victims| policy.fits(&cpu(asks), victims))
    };
    let mut budget = EvictionBudget::start_empty(EpochSeconds::new(0));
    assert_eq!(plan(&budget, 4).unwrap().victims.len(), 2);
    budget.take_evictions(rate, 2, EpochSeconds::new(60));
    let why = plan(&budget, 4).unwrap_err();
    assert_eq!(
        why.refused,
        AttemptRefusal::Rate { needs: 2, has: 0, most: 2, enough_at: Some(EpochSeconds::new(120)) }
    );
    assert_eq!(
        why.to_string(),
        "preemption for cpu 4: it takes 2 evictions, and the fleet's budget has 0 left for now"
    );
    assert_eq!(
        (
            budget.count_available_evictions(rate, EpochSeconds::new(89)),
            budget.count_available_evictions(rate, EpochSeconds::new(90))
        ),
        (0, 1)
    );
}

#[test]
fn an_attempt_larger_than_the_bucket_is_made_once_it_is_full_and_paid_back_before_the_next() {
    let world = lent(&[2, 2, 2, 2, 2]);
    let rate = EvictionRate { evictions: 2, seconds: 60 };
    let at = |now: i64, budget: &EvictionBudget| {
        let mut world = World { now, ..world.clone() };
        world.policy.bounds.rate = rate;
        world.plan_with(&preemptor("a", 0, cpu(6)), budget, |victims| world.fits(&cpu(6), victims))
    };
    let mut budget = EvictionBudget::start_empty(EpochSeconds::new(1000));
    let why = at(1059, &budget).unwrap_err();
    assert_eq!(
        why.refused,
        AttemptRefusal::Rate { needs: 3, has: 1, most: 2, enough_at: Some(EpochSeconds::new(1060)) }
    );
    assert_eq!(
        why.to_string(),
        "preemption for cpu 6: it takes 3 evictions, and the fleet's budget has 1 left for now; it holds 2 at most: they are \
         made once it is full, and paid back before any other"
    );
    assert_eq!(at(1060, &budget).unwrap().victims.len(), 3);
    budget.take_evictions(rate, 3, EpochSeconds::new(1060));
    // One more than it held: the half minute that this takes comes first.
    assert_eq!(
        (
            budget.count_available_evictions(rate, EpochSeconds::new(1060)),
            budget.count_available_evictions(rate, EpochSeconds::new(1119)),
            budget.count_available_evictions(rate, EpochSeconds::new(1120))
        ),
        (0, 0, 1)
    );
    assert_eq!(at(1060, &budget).unwrap_err().again_at(), Some(EpochSeconds::new(1150)));
}

#[test]
fn one_attempt_takes_so_many_victims_at_most() {
    let mut world = lent(&[1; 10]);
    world.policy.bounds.victims = 3;
    assert_eq!(world.victims(&preemptor("a", 0, cpu(3))).len(), 3);
    let why = world.refusal(&preemptor("a", 0, cpu(4)));
    assert_eq!(why.to_string(), "preemption for cpu 4: 4 jobs would have to be evicted, and one attempt may evict 3");
}

#[test]
fn a_job_that_was_taken_from_is_left_alone_longer_each_time() {
    let mut world = lent(&[10]);
    let bounds = world.policy.bounds;
    // Never taken from: at once, for there the least is lost.
    world.now = 1;
    assert_eq!(world.victims(&preemptor("a", 0, cpu(6))), ["b0"]);
    for (count, pause) in [(1, 60), (2, 120)] {
        world.running[0].evictions = EvictionHistory { count, last: Some(EpochSeconds::new(500)) };
        world.running[0].started = Some(EpochSeconds::new(550));
        world.now = 549 + pause;
        let why = world.refusal(&preemptor("a", 0, cpu(6)));
        assert_eq!(
            (why.again_at(), why.exempt),
            (Some(EpochSeconds::new(550 + pause)), [(Exemption::CoolsDown, 1)].into())
        );
        world.now = 550 + pause;
        assert_eq!(world.victims(&preemptor("a", 0, cpu(6))), ["b0"]);
    }
    world.running[0].evictions.count = 60;
    assert_eq!(bounds.cools_until(&world.running[0]), Some(EpochSeconds::new(550 + bounds.longest)));
}

#[test]
fn a_job_that_was_taken_from_too_often_is_left_alone_until_it_makes_progress_l4() {
    let mut world = lent(&[10]);
    let bounds = world.policy.bounds;
    world.now = 3000;
    world.running[0].started = Some(EpochSeconds::new(0));
    world.running[0].evictions = EvictionHistory { count: 3, last: Some(EpochSeconds::new(-9000)) };
    let why = world.refusal(&preemptor("a", 0, cpu(6)));
    assert_eq!((why.again_at(), why.exempt), (Some(EpochSeconds::new(3600)), [(Exemption::TooOften, 1)].into()));
    assert_eq!(EvictionHistory::after_eviction(&world.running[0], &bounds, EpochSeconds::new(3000)).count, 4);
    for progress in [|world: &mut World| world.now = 3600, |world: &mut World| world.running[0].progressed = true] {
        let mut world = world.clone();
        progress(&mut world);
        assert_eq!(world.victims(&preemptor("a", 0, cpu(6))), ["b0"]);
        let next = EvictionHistory::after_eviction(&world.running[0], &bounds, EpochSeconds::new(world.now));
        assert_eq!(next, EvictionHistory { count: 1, last: Some(EpochSeconds::new(world.now)) });
    }
}

#[test]
fn a_preemptor_whose_attempts_come_to_nothing_waits_longer_each_time() {
    let world = lent(&[10]);
    let mut asks = preemptor("a", 0, cpu(6));
    let plan = world.plan_evictions(&asks).unwrap();
    assert_eq!(plan.hold.what, cpu(6));
    assert_eq!((plan.hold.since, plan.hold.until), (EpochSeconds::new(1000), EpochSeconds::new(1300)));
    for pause in [30, 60, 120] {
        asks.attempts = asks.attempts.with_failure_at(EpochSeconds::new(1000));
        let mut world = world.clone();
        world.now = 999 + pause;
        let why = world.refusal(&asks);
        assert_eq!((why.token(), why.again_at()), ("PreemptionBackoff", Some(EpochSeconds::new(1000 + pause))));
        world.now += 1;
        assert!(world.plan_evictions(&asks).is_ok());
    }
}

#[test]
fn who_fits_already_preempts_nothing() {
    assert_eq!(lent(&[2]).refusal(&preemptor("a", 0, cpu(6))).refused, AttemptRefusal::Unneeded);
}

proptest! {
    #[test]
    fn a_bucket_never_lets_more_through_than_its_rate(
        asks in prop::collection::vec((0_i64..50, 0_u32..6), 1..40), evictions in 1_u32..6, seconds in 1_u32..60,
    ) {
        let rate = EvictionRate { evictions, seconds };
        let (mut budget, mut now, mut let_through) = (EvictionBudget::start_empty(EpochSeconds::new(0)), 0, Vec::new());
        for (wait, wanted) in asks {
            now += wait;
            if budget.can_afford(rate, wanted, EpochSeconds::new(now)) {
                budget.take_evictions(rate, wanted as usize, EpochSeconds::new(now));
                let_through.extend(std::iter::repeat_n(now, wanted as usize));
            } else if let Some(at) = budget.find_time_of_enough(rate, wanted, EpochSeconds::new(now)) {
                prop_assert!(budget.can_afford(rate, wanted, at) && !budget.can_afford(rate, wanted, at.saturating_sub(1)));
            }
        }
        // In any stretch at most what the time refills and what a full budget holds, or one attempt takes.
        let most = i64::from(evictions).max(5);
        for (i, from) in let_through.iter().enumerate() {
            for (j, to) in let_through.iter().enumerate().skip(i) {
                let refilled = (to - from) * i64::from(evictions) / i64::from(seconds);
                prop_assert!((j - i) as i64 <= refilled + most);
            }
        }
    }
}
