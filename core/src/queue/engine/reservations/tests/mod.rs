//! The rules of reservations by name; `audit` looks at everything again, `histories` and
//! `full_fleet` hold them against it whatever happens.

mod audit;
mod backoff;
mod clusters;
mod deadlines;
mod expected_ends;
mod full_fleet;
mod histories;
mod restart;
mod unsatisfiable;
mod wait;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use proptest::prelude::*;

use crate::{
    gang::ClusterName,
    quantity::Quantity,
    queue::{
        Ask, CapacityGrowth, CardChoice, ClusterCapacity, Counted, Dequeue, Fit, FitClass, FleetResources, JobId,
        OrderPolicy, PriorityAging, QueueSpec, ReservationWait, ReservedClusters, TaskAsk, TenantOrder,
        engine::{Engine, Job, QueueingState, Release, UnknownStart},
        pending::{inadmissible::Inadmissible, job_order::JobKey, shape_table::ShapeId},
        quota::slot::{QueueIndex, Slot},
        quota::tenant_share::TenantShare,
        reservation::{RESERVATION_AFTER, Reservation, ReservationCause, ReservationId},
    },
    resources::Resources,
    tenant::Tenant,
    time::EpochSeconds,
};

fn amounts(cpu: i64, gpu: i64) -> Resources {
    [("cpu", Quantity::from_units(cpu)), ("gpu", Quantity::from_units(gpu))].into_iter().collect()
}

fn queue(name: &str, parent: Option<&str>, cpu: Option<i64>) -> QueueSpec {
    let capability = cpu.into_iter().map(|cpu| ("cpu".into(), Quantity::from_units(cpu))).collect();
    QueueSpec { parent: parent.map(Into::into), capability, ..QueueSpec::unlimited(name) }
}

fn engine(queues: impl IntoIterator<Item = QueueSpec>, cpu: i64, gpu: i64) -> Engine {
    let mut engine = Engine::default();
    let fleet = amounts(cpu, gpu);
    engine.set_fleet(FleetResources { ready: fleet.clone(), whole: Some(fleet), ready_clusters: 1 });
    queues.into_iter().for_each(|queue| engine.set_queue(queue));
    engine
}

fn job(id: &str, queue: &str, created: i64, request: Resources) -> Job {
    let task = TaskAsk { name: "t".into(), request, min: 1, most: 1, step: 1 };
    let ask = Ask { tasks: vec![task], copies: 1, fit: FitClass(0), run_for: None, counted: Counted::Job, card: None };
    Job { id: id.into(), queue: queue.into(), priority: 0, created: created.into(), deadline: None, ask: Arc::new(ask) }
}

fn known(mut job: Job, run_for: i64) -> Job {
    Arc::make_mut(&mut job.ask).run_for = Some(run_for);
    job
}

fn at(engine: &mut Engine, now: i64) -> Vec<String> {
    engine.set_now(EpochSeconds::new(now));
    engine.audit_requeue();
    let released: Vec<String> = std::iter::from_fn(|| engine.release_next_by_fit(|_, _| Fit::Yes))
        .map(|release| release.id.to_string())
        .collect();
    engine.audit();
    released
}

#[test]
fn small_jobs_pass_a_blocked_one_until_it_has_waited_long_enough() {
    let mut engine = engine([queue("q", None, Some(10))], 100, 0);
    engine.enqueue_job(job("s0", "q", 0, amounts(6, 0)));
    engine.enqueue_job(job("big", "q", 1, amounts(10, 0)));
    assert_eq!(at(&mut engine, 1), ["s0"]);
    engine.enqueue_job(job("s1", "q", 2, amounts(4, 0)));
    assert_eq!(at(&mut engine, 2), ["s1"]);
    assert_eq!(engine.next_due(), Some(EpochSeconds::new(1 + RESERVATION_AFTER)));
    assert!(at(&mut engine, 1 + RESERVATION_AFTER).is_empty());
    engine.enqueue_job(job("s2", "q", 3, amounts(4, 0)));
    engine.remove_job("s1");
    assert!(at(&mut engine, 2 + RESERVATION_AFTER).is_empty(), "4 are free, and kept");
    let kept = engine.reservation_of("big").unwrap();
    assert_eq!((kept.since, kept.start), (EpochSeconds::new(1 + RESERVATION_AFTER), Err(UnknownStart::EndUnknown)));
    engine.remove_job("s0");
    assert_eq!(at(&mut engine, 3 + RESERVATION_AFTER), ["big"]);
    engine.remove_job("big");
    assert_eq!(at(&mut engine, 4 + RESERVATION_AFTER), ["s2"]);
}

#[test]
fn who_overrules_the_holder_passes_its_fence() {
    let mut engine = engine([queue("q", None, Some(10)), QueueSpec { priority: 1, ..queue("p", None, None) }], 10, 0);
    engine.enqueue_job(job("s0", "q", 0, amounts(6, 0)));
    engine.enqueue_job(job("big", "q", 1, amounts(10, 0)));
    assert_eq!(at(&mut engine, 100), ["s0"]);
    engine.enqueue_job(job("same", "q", 2, amounts(1, 0)));
    engine.enqueue_job(Job { priority: 1, ..job("urgent", "q", 2, amounts(1, 0)) });
    engine.enqueue_job(job("prior", "p", 2, amounts(1, 0)));
    assert_eq!(at(&mut engine, 101), ["prior", "urgent"]);
}

#[test]
fn a_job_that_arrives_with_a_shape_that_a_fence_holds_back_may_overrule_it() {
    let mut engine = engine([queue("q", None, Some(10))], 10, 0);
    engine.enqueue_job(job("s0", "q", 0, amounts(6, 0)));
    engine.enqueue_job(job("big", "q", 1, amounts(10, 0)));
    engine.enqueue_job(job("s1", "q", 2, amounts(5, 0)));
    assert_eq!(at(&mut engine, 100), ["s0"]);
    engine.remove_job("s0");
    engine.charge_job(&"other".into(), &"q".into(), &amounts(1, 0));
    assert!(at(&mut engine, 101).is_empty());
    engine.enqueue_job(Job { priority: 1, ..job("urgent", "q", 3, amounts(5, 0)) });
    assert_eq!(at(&mut engine, 102), ["urgent"]);
}

#[test]
fn who_asks_for_nothing_that_the_holder_needs_passes() {
    let mut engine = engine([queue("q", None, None)], 10, 8);
    engine.enqueue_job(job("s0", "q", 0, amounts(1, 8)));
    engine.enqueue_job(job("big", "q", 1, amounts(4, 8)));
    assert_eq!(at(&mut engine, 100), ["s0"]);
    engine.enqueue_job(job("cpu", "q", 2, amounts(5, 0)));
    engine.enqueue_job(job("more", "q", 3, amounts(1, 0)));
    assert_eq!(at(&mut engine, 101), ["cpu"], "4 of the other 9 are the holder's");
}

#[test]
fn a_fence_reaches_as_high_as_what_is_short() {
    let queues = [queue("top", None, None), queue("a", Some("top"), Some(4)), queue("b", Some("top"), None)];
    let mut engine = engine(queues, 5, 0);
    engine.enqueue_job(job("a0", "a", 0, amounts(1, 0)));
    engine.enqueue_job(job("a1", "a", 1, amounts(4, 0)));
    assert_eq!(at(&mut engine, 100), ["a0"]);
    engine.enqueue_job(job("b0", "b", 2, amounts(4, 0)));
    engine.enqueue_job(job("a2", "a", 3, amounts(1, 0)));
    assert_eq!(at(&mut engine, 101), ["b0"], "queue a is short, and nothing above it");
}

#[test]
fn who_ends_before_the_holder_can_start_passes() {
    let mut engine = engine([queue("q", None, Some(10))], 100, 0);
    engine.enqueue_job(job("s0", "q", 0, amounts(6, 0)));
    engine.enqueue_job(job("big", "q", 1, amounts(10, 0)));
    assert_eq!(at(&mut engine, 100), ["s0"]);
    engine.set_expected_end("s0", Some(EpochSeconds::new(200)));
    assert_eq!(engine.reservation_of("big").unwrap().start, Ok(EpochSeconds::new(200)));
    engine.enqueue_job(known(job("short", "q", 2, amounts(2, 0)), 100));
    engine.enqueue_job(known(job("long", "q", 3, amounts(2, 0)), 101));
    engine.enqueue_job(job("unknown", "q", 4, amounts(2, 0)));
    assert_eq!(at(&mut engine, 100), ["short"]);
    engine.set_expected_end("short", Some(EpochSeconds::new(200)));
    engine.remove_job("s0");
    assert!(at(&mut engine, 200).is_empty());
    engine.remove_job("short");
    assert_eq!(at(&mut engine, 200), ["big"]);
}

#[test]
fn what_can_never_start_is_kept_no_place() {
    let mut guaranteed = queue("g", None, None);
    guaranteed.guarantee = amounts(6, 0);
    let mut engine = engine([queue("q", None, None), guaranteed], 10, 0);
    engine.enqueue_job(job("big", "q", 1, amounts(5, 0)));
    engine.enqueue_job(job("s0", "q", 2, amounts(3, 0)));
    assert_eq!(at(&mut engine, 100), ["s0"]);
    engine.enqueue_job(job("s1", "q", 3, amounts(1, 0)));
    assert_eq!(at(&mut engine, 101), ["s1"]);
    assert_eq!(engine.reservation_of("big"), None);
}

/// It holds 6 of its queue's 10, and wants 5 more.
#[test]
fn what_can_never_come_on_top_of_what_is_held_says_so_with_numbers_and_is_kept_no_place() {
    let mut engine = engine([queue("q", None, Some(10))], 100, 0);
    engine.charge_job(&"web".into(), &"q".into(), &amounts(6, 0));
    engine.enqueue_job(job("web+more", "q", 1, amounts(5, 0)));
    engine.mark_as_resize_of(&"web+more".into(), &"web".into());
    engine.enqueue_job(job("s0", "q", 2, amounts(4, 0)));
    assert_eq!(at(&mut engine, 100), ["s0"]);
    let why = engine.explain_pending("web+more").unwrap();
    assert_eq!((why.token(), why.needs_user_action()), ("ExceedsCapability", true));
    assert_eq!(
        why.to_string(),
        "can never be more in queue q: needs cpu 5 on top of 6 that it holds, more than 10, which is the capability of queue q"
    );
    assert_eq!(engine.reservation_of("web+more"), None);
    // It gives back, and wants the same: that is another matter.
    engine.charge_job(&"web".into(), &"q".into(), &amounts(5, 0));
    assert_eq!(engine.explain_pending("web+more").unwrap().token(), "WaitingForQuota");
    engine.remove_job("s0");
    assert_eq!(at(&mut engine, 101), ["web+more"]);
    engine.remove_job("web+more");
    engine.enqueue_job(job("web+more", "q", 1, amounts(9, 0)));
    assert_eq!(engine.explain_pending("web+more").unwrap().token(), "WaitingForQuota", "forgotten is forgotten");
}

/// Whether it fits at all is only asked once it has quota: it may have been given a reservation before.
#[test]
fn a_holder_that_turns_out_to_fit_nowhere_keeps_no_place() {
    let mut engine = engine([queue("q", None, None)], 10, 0);
    engine.enqueue_job(job("s0", "q", 0, amounts(6, 0)));
    let mut big = job("big", "q", 1, amounts(8, 0));
    Arc::make_mut(&mut big.ask).fit = FitClass(9);
    engine.enqueue_job(big);
    assert_eq!(at(&mut engine, 100), ["s0"]);
    assert!(engine.reservation_of("big").is_some());
    engine.enqueue_job(job("s1", "q", 2, amounts(5, 0)));
    engine.remove_job("s0");
    let fit = |_: &JobId, ask: &Ask| match ask.fit {
        FitClass(9) => Fit::No { never: true, detail: "no node is so large".into() },
        _ => Fit::Yes,
    };
    assert_eq!(engine.release_next_by_fit(fit).map(|release| release.id), Some("s1".into()));
    assert_eq!(engine.reservation_of("big"), None);
}

#[test]
fn who_others_were_evicted_for_has_its_reservation_at_once() {
    let mut engine = engine([queue("q", None, Some(10))], 100, 0);
    engine.charge_job(&"victim".into(), &"q".into(), &amounts(6, 0));
    engine.enqueue_job(job("older", "q", 1, amounts(10, 0)));
    engine.enqueue_job(job("claimant", "q", 2, amounts(8, 0)));
    engine.enqueue_job(job("s0", "q", 3, amounts(2, 0)));
    engine.set_preemptor(Some("claimant".into()));
    assert!(at(&mut engine, 3).is_empty());
    assert_eq!(engine.reservation_of("claimant").map(|kept| kept.since), Some(EpochSeconds::new(2)));
    engine.remove_job("victim");
    assert_eq!(at(&mut engine, 5), ["claimant", "s0"]);
    engine.set_preemptor(None);
    assert!(at(&mut engine, 6).is_empty());
}

/// Else who asks when to look again would look for ever.
#[test]
fn without_patience_there_is_no_time_to_look_again() {
    let mut engine = engine([queue("q", None, Some(10))], 10, 0);
    engine.set_reservation_after(None);
    engine.enqueue_job(job("s0", "q", 0, amounts(6, 0)));
    engine.enqueue_job(job("claimant", "q", 1, amounts(8, 0)));
    assert_eq!(at(&mut engine, 2), ["s0"]);
    engine.set_preemptor(Some("claimant".into()));
    assert!(at(&mut engine, 3).is_empty());
    assert_eq!((engine.next_due(), engine.reservation_of("claimant")), (None, None));
}

#[test]
fn two_holders_never_wait_for_each_other() {
    let mut engine = engine([queue("q", None, None)], 10, 10);
    engine.charge_job(&"c".into(), &"q".into(), &amounts(6, 0));
    engine.charge_job(&"g".into(), &"q".into(), &amounts(0, 6));
    engine.enqueue_job(job("h1", "q", 1, amounts(8, 4)));
    engine.enqueue_job(job("h2", "q", 2, amounts(4, 8)));
    assert!(at(&mut engine, 100).is_empty());
    assert!(engine.reservation_of("h1").is_some() && engine.reservation_of("h2").is_some());
    engine.remove_job("c");
    assert_eq!(at(&mut engine, 101), ["h1"]);
    engine.remove_job("g");
    assert!(at(&mut engine, 102).is_empty());
    engine.remove_job("h1");
    assert_eq!(at(&mut engine, 103), ["h2"]);
}

#[test]
fn what_a_job_gets_beyond_its_minimum_is_not_what_is_kept() {
    let mut engine = engine([queue("q", None, None)], 10, 8);
    engine.charge_job(&"g".into(), &"q".into(), &amounts(0, 8));
    engine.enqueue_job(job("big", "q", 1, amounts(4, 8)));
    assert!(at(&mut engine, 100).is_empty());
    let mut elastic = job("elastic", "q", 2, amounts(1, 0));
    Arc::make_mut(&mut elastic.ask).tasks[0].most = 9;
    engine.enqueue_job(elastic);
    let release = engine.release_next_by_fit(|_, _| Fit::Yes).unwrap();
    assert_eq!(release.admission.charged, amounts(6, 0));
}

#[test]
fn a_holder_that_lacks_something_else_takes_its_fence_along() {
    let queues = [queue("top", None, Some(10)), queue("a", Some("top"), Some(8)), queue("b", Some("top"), None)];
    let mut engine = engine(queues, 100, 0);
    engine.charge_job(&"a0".into(), &"a".into(), &amounts(4, 0));
    engine.charge_job(&"b0".into(), &"b".into(), &amounts(4, 0));
    engine.enqueue_job(job("big", "a", 1, amounts(8, 0)));
    assert!(at(&mut engine, 100).is_empty());
    engine.enqueue_job(job("b1", "b", 2, amounts(2, 0)));
    engine.remove_job("a0");
    // The share of b is larger: big is looked at first, but a reservation that moved late would let b1 pass.
    assert!(at(&mut engine, 101).is_empty());
    engine.remove_job("b0");
    assert_eq!(at(&mut engine, 102), ["big", "b1"]);
}

fn deserving(name: &str, parent: Option<&str>, cpu: i64) -> QueueSpec {
    let deserved = [("cpu".into(), Quantity::from_units(cpu))].into_iter().collect();
    QueueSpec { deserved, ..queue(name, parent, None) }
}

/// Queue `a` deserves 4 of 10 and has what is given, queue `b` has the rest; in `a` somebody waits for 3.
fn two_queues(of_a: i64) -> Engine {
    let mut engine = engine([deserving("a", None, 4), deserving("b", None, 6)], 10, 0);
    engine.charge_job(&"a0".into(), &"a".into(), &amounts(of_a, 0));
    engine.charge_job(&"b0".into(), &"b".into(), &amounts(10 - of_a, 0));
    engine.enqueue_job(job("big", "a", 0, amounts(3, 0)));
    assert!(at(&mut engine, 100).is_empty());
    engine.enqueue_job(job("a1", "a", 1, amounts(1, 0)));
    engine.enqueue_job(job("b1", "b", 1, amounts(1, 0)));
    engine
}

#[test]
fn who_stays_within_what_its_queue_deserves_holds_back_everybody() {
    let mut engine = two_queues(1);
    engine.charge_job(&"b0".into(), &"b".into(), &amounts(8, 0));
    assert!(at(&mut engine, 101).is_empty());
    engine.charge_job(&"b0".into(), &"b".into(), &amounts(6, 0));
    assert_eq!(at(&mut engine, 102), ["big"]);
}

#[test]
fn who_would_have_more_than_its_queue_deserves_holds_back_its_own_queue_alone() {
    let mut engine = two_queues(2);
    engine.charge_job(&"b0".into(), &"b".into(), &amounts(7, 0));
    assert_eq!(at(&mut engine, 101), ["b1"]);
    assert_eq!(engine.explain_pending("a1").unwrap().token(), "WaitingForQuota");
    engine.charge_job(&"a0".into(), &"a".into(), &amounts(1, 0));
    engine.enqueue_job(job("b2", "b", 2, amounts(1, 0)));
    // Its queue is within what it deserves now: what comes free next is kept for it.
    assert_eq!(at(&mut engine, 102), ["b2"]);
    engine.remove_job("b2");
    engine.enqueue_job(job("b3", "b", 3, amounts(1, 0)));
    assert!(at(&mut engine, 103).is_empty());
    assert_eq!(engine.explain_pending("a1").unwrap().token(), "BlockedByReservation");
}

#[test]
fn who_asks_for_more_than_its_queue_deserves_has_its_turn_when_its_queue_has_nothing_else() {
    let mut engine = engine([deserving("a", None, 4), deserving("b", None, 6)], 10, 0);
    engine.charge_job(&"a0".into(), &"a".into(), &amounts(1, 0));
    engine.charge_job(&"b0".into(), &"b".into(), &amounts(9, 0));
    engine.enqueue_job(job("big", "a", 0, amounts(8, 0)));
    assert!(at(&mut engine, 100).is_empty());
    engine.enqueue_job(job("b1", "b", 1, amounts(1, 0)));
    engine.charge_job(&"b0".into(), &"b".into(), &amounts(8, 0));
    assert_eq!(at(&mut engine, 101), ["b1"]);
    engine.enqueue_job(job("b2", "b", 2, amounts(1, 0)));
    engine.remove_job("a0");
    assert_eq!(at(&mut engine, 102), ["b2"], "it fits beside what was known of queue a before");
    engine.remove_job("b1");
    engine.enqueue_job(job("b3", "b", 3, amounts(1, 0)));
    assert!(at(&mut engine, 103).is_empty());
    engine.remove_job("b0");
    assert_eq!(at(&mut engine, 104), ["big", "b3"]);
}

/// Nothing else would look at them again.
#[test]
fn who_was_held_back_wakes_when_the_holder_s_queue_has_its_share_otherwise() {
    let mut engine = two_queues(1);
    engine.charge_job(&"b0".into(), &"b".into(), &amounts(7, 0));
    assert!(at(&mut engine, 101).is_empty());
    assert_eq!(engine.explain_pending("b1").unwrap().token(), "BlockedByReservation");
    engine.enqueue_job(Job { priority: 1, ..job("urgent", "a", 2, amounts(1, 0)) });
    assert_eq!(at(&mut engine, 102), ["urgent", "b1"]);
}

#[test]
fn each_queue_above_must_be_within_too() {
    let queues = [
        deserving("top", None, 4),
        deserving("a", Some("top"), 4),
        deserving("c", Some("top"), 0),
        deserving("b", None, 6),
    ];
    let mut engine = engine(queues, 10, 0);
    engine.charge_job(&"c0".into(), &"c".into(), &amounts(2, 0));
    engine.charge_job(&"b0".into(), &"b".into(), &amounts(8, 0));
    engine.enqueue_job(job("big", "a", 0, amounts(3, 0)));
    assert!(at(&mut engine, 100).is_empty());
    engine.enqueue_job(job("b1", "b", 1, amounts(1, 0)));
    engine.enqueue_job(job("c1", "c", 1, amounts(1, 0)));
    engine.charge_job(&"b0".into(), &"b".into(), &amounts(6, 0));
    assert_eq!(at(&mut engine, 101), ["b1"], "queue c owes it to queue a, queue b does not");
    engine.charge_job(&"c0".into(), &"c".into(), &amounts(1, 0));
    assert_eq!(at(&mut engine, 102), Vec::<String>::new());
    engine.charge_job(&"c0".into(), &"c".into(), &amounts(0, 0));
    assert_eq!(at(&mut engine, 103), ["big"]);
}

#[test]
fn without_shares_every_fence_reaches_all_the_way() {
    let mut engine = two_queues(2);
    engine.set_order_policy(OrderPolicy::Fifo);
    engine.charge_job(&"b0".into(), &"b".into(), &amounts(7, 0));
    assert!(at(&mut engine, 101).is_empty());
}

#[test]
fn a_restart_makes_the_same_fences() {
    let mut old = engine([queue("q", None, Some(10)), queue("r", None, None)], 12, 0);
    let mut new = old.clone();
    let jobs = [job("x", "q", 1, amounts(10, 0)), job("y", "q", 2, amounts(9, 0)), job("z", "r", 3, amounts(12, 0))];
    for engine in [&mut old, &mut new] {
        engine.charge_job(&"h".into(), &"q".into(), &amounts(4, 0));
    }
    for job in jobs.iter().rev() {
        old.enqueue_job(job.clone());
        at(&mut old, 500);
    }
    for job in jobs {
        new.enqueue_job(job);
    }
    at(&mut new, 500);
    for id in ["x", "y", "z"] {
        assert_eq!(old.reservation_of(id), new.reservation_of(id), "{id}");
    }
}

#[test]
fn releases_are_the_same_whatever_the_order_of_arrival() {
    let jobs: Vec<Job> = (0..12)
        .map(|i| job(&format!("j{i:02}"), ["q0", "q1", "q2"][i % 3], i as i64 % 4, amounts(1 + i as i64 % 5, 0)))
        .collect();
    let play = |order: &[usize]| -> Vec<Release> {
        let mut engine = histories::tree();
        for i in order {
            engine.enqueue_job(jobs[*i].clone());
        }
        engine.set_now(EpochSeconds::new(1000));
        std::iter::from_fn(|| engine.release_next_by_fit(|_, _| Fit::Yes)).collect()
    };
    let forward: Vec<usize> = (0..12).collect();
    let backward: Vec<usize> = (0..12).rev().collect();
    assert_eq!(play(&forward), play(&backward));
}

#[test]
fn of_those_whom_a_reservation_blocks_a_charge_requeues_those_alone_who_go_before_it_now() {
    let turns = QueueSpec { tenant_order: Some(TenantOrder::Users), ..queue("q", None, Some(10)) };
    let mut engine = engine([turns], 100, 0);
    let counted = |user: &str| Counted::JobOf([Tenant::User(user.into())].into());
    let of = |user: &str, mut job: Job| {
        Arc::make_mut(&mut job.ask).counted = counted(user);
        job
    };
    let charge = |engine: &mut Engine, id: &str, user: &str, cpu: i64| {
        engine.charge_job_with_ancestors(&id.into(), &"q".into(), &[], &amounts(cpu, 0), &counted(user));
    };
    charge(&mut engine, "a", "ada", 3);
    charge(&mut engine, "b", "bob", 3);
    engine.enqueue_job(of("ada", job("large", "q", 0, amounts(10, 0))));
    assert!(at(&mut engine, 100).is_empty() && engine.has_reservation("large"));
    engine.enqueue_job(of("ada", job("her", "q", 100, amounts(1, 0))));
    engine.enqueue_job(of("bob", job("his", "q", 100, amounts(1, 0))));
    assert!(at(&mut engine, 101).is_empty(), "both have as much as who reserves");
    let [node, her, his] =
        ["large", "her", "his"].map(|id| engine.pending_job(id).unwrap()).map(|(_, at, of)| (at, of));
    let admissible = |engine: &Engine| engine.pending[node.0].admissible_shapes().collect::<Vec<_>>();
    charge(&mut engine, "e", "eve", 1);
    assert_eq!(admissible(&engine), []);
    charge(&mut engine, "a1", "ada", 1);
    assert_eq!(admissible(&engine), [his.1], "not {her:?}");
    assert_eq!(at(&mut engine, 102), ["his"]);
}
