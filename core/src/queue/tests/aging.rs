//! Priorities that rise with the time in line.

use super::*;
use crate::time::EpochSeconds;

fn aging(text: &str, name: &str) -> QueueSpec {
    QueueSpec { aging: Some(PriorityAging::parse(text).unwrap()), ..queue(name, 4) }
}

fn urgent(id: &str, created: i64) -> Job {
    Job { priority: 10, ..job(id, "q", created, cpu(4)) }
}

/// Queue q, full, with a job in line since 0.
fn full(aging: QueueSpec) -> Engine {
    let mut engine = engine([aging], 100);
    engine.set_reservation_after(None);
    engine.charge_job(&"runs".into(), &"q".into(), &cpu(4));
    engine.enqueue_job(job("old", "q", 0, cpu(4)));
    engine
}

/// Who starts next if the queue is empty then.
fn first_at(engine: &Engine, now: i64) -> String {
    let mut engine = engine.clone();
    engine.set_now(EpochSeconds::new(now));
    engine.remove_job("runs");
    released(&mut engine).remove(0)
}

#[test]
fn who_waited_long_enough_goes_before_a_higher_priority_that_came_later() {
    let mut engine = full(aging("10/100s", "q"));
    assert!(released(&mut engine).is_empty());
    assert_eq!(engine.next_due(), Some(EpochSeconds::new(10)), "a tenth of it after a tenth of the time");
    engine.enqueue_job(urgent("urgent", 95));
    assert_eq!([99, 100, 104].map(|now| first_at(&engine, now)), ["urgent", "old", "old"]);
    // The other one rises too.
    assert_eq!([105, 1_000].map(|now| first_at(&engine, now)), ["urgent", "urgent"]);
    engine.set_now(EpochSeconds::new(1_000));
    assert_eq!((engine.priority_gained("old"), engine.next_due()), (10, None));
}

#[test]
fn it_rises_no_further_than_its_queue_says_and_not_where_age_alone_counts() {
    let mut engine = full(aging("9/100s", "q"));
    engine.set_now(EpochSeconds::new(1_000_000));
    engine.enqueue_job(urgent("urgent", 1_000_000));
    assert_eq!(first_at(&engine, 1_000_000), "urgent");
    engine.set_order_policy(OrderPolicy::Fifo);
    engine.resolve_quota();
    assert_eq!((engine.priority_gained("old"), engine.next_due()), (0, None));
    assert_eq!(first_at(&engine, 1_000_000), "old");
}

#[test]
fn a_queue_below_says_otherwise_and_a_change_counts_at_once() {
    let top = QueueSpec { name: "top".into(), ..aging("10/100s", "top") };
    let below = |aging: Option<&str>| {
        let aging = aging.map(|text| PriorityAging::parse(text).unwrap());
        QueueSpec { aging, ..child("q", "top", 4) }
    };
    let mut engine = full(below(None));
    engine.set_queue(top);
    engine.set_now(EpochSeconds::new(100));
    engine.resolve_quota();
    assert_eq!(engine.priority_gained("old"), 10);
    engine.set_queue(below(Some("none")));
    engine.resolve_quota();
    assert_eq!((engine.priority_gained("old"), engine.next_due()), (0, None));
    engine.set_queue(below(Some("2/200s")));
    engine.resolve_quota();
    assert_eq!((engine.priority_gained("old"), engine.next_due()), (1, Some(EpochSeconds::new(200))));
}

#[test]
fn what_a_job_is_admitted_with_is_its_own_priority_so_that_age_evicts_nobody() {
    let mut engine = full(aging("10/100s", "q"));
    engine.set_now(EpochSeconds::new(1_000));
    engine.remove_job("runs");
    let release = engine.release_next_by_fit(|_, _| Fit::Yes).unwrap();
    assert_eq!((release.id.as_str(), release.admission.priority), ("old", 0));
}

#[test]
fn a_job_keeps_its_reservation_when_its_priority_rises_and_one_that_overtakes_it_takes_it_over() {
    let mut engine = full(aging("10/100s", "q"));
    engine.set_reservation_after(Some(5));
    engine.set_now(EpochSeconds::new(6));
    assert!(released(&mut engine).is_empty() && engine.has_reservation("old"));
    let since = engine.reservation_of("old").unwrap().since;
    engine.enqueue_job(Job { priority: 8, ..job("urgent", "q", 6, cpu(4)) });
    for now in 7..10 {
        engine.set_now(EpochSeconds::new(now));
        assert!(released(&mut engine).is_empty() && engine.has_reservation("old"));
    }
    engine.set_now(EpochSeconds::new(11));
    assert!(released(&mut engine).is_empty() && engine.has_reservation("urgent"));
    for now in 12..=105 {
        engine.set_now(EpochSeconds::new(now));
        assert!(released(&mut engine).is_empty());
    }
    assert!(engine.has_reservation("urgent"), "both have waited");
    engine.remove_job("urgent");
    assert!(released(&mut engine).is_empty());
    assert_eq!(engine.reservation_of("old").unwrap().since, since);
}

#[test]
fn nobody_wakes_for_a_job_that_is_gone_or_started() {
    let mut engine = full(aging("10/100s", "q"));
    engine.resolve_quota();
    engine.set_now(EpochSeconds::new(42));
    engine.enqueue_job(urgent("urgent", 30));
    assert_eq!(engine.next_due(), Some(EpochSeconds::new(50)));
    engine.remove_job("urgent");
    engine.remove_job("old");
    assert_eq!(engine.next_due(), None);
    engine.enqueue_job(job("next", "q", 40, cpu(4)));
    assert_eq!(engine.next_due(), Some(EpochSeconds::new(50)));
    engine.remove_job("runs");
    assert_eq!((released(&mut engine), engine.next_due()), (vec!["next".to_owned()], None));
}
