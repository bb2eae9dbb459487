//! When a queue lets its blocked jobs reserve.

use super::*;

fn waiting(text: &str, name: &str, parent: Option<&str>, cpu: Option<i64>) -> QueueSpec {
    QueueSpec { reservation_wait: Some(ReservationWait::parse(text).unwrap()), ..queue(name, parent, cpu) }
}

/// Since when a job that came at 0, and declares this run, has a reservation in queue `q`.
fn since(queues: [QueueSpec; 2], run_for: Option<i64>, deadline: Option<i64>) -> Option<i64> {
    let mut engine = engine(queues, 100, 0);
    engine.charge_job(&"runs".into(), &"q".into(), &amounts(6, 0));
    let mut big = Job { deadline: deadline.map(EpochSeconds::new), ..job("big", "q", 0, amounts(8, 0)) };
    Arc::make_mut(&mut big.ask).run_for = run_for;
    engine.enqueue_job(big);
    assert!(at(&mut engine, 0).is_empty());
    // No later than it would be looked at by itself.
    while let Some(due) = engine.next_due() {
        assert!(at(&mut engine, due.as_seconds()).is_empty() && due < EpochSeconds::MAX);
        if let Some(status) = engine.reservation_of("big") {
            return Some(status.since.as_seconds());
        }
    }
    None
}

#[test]
fn a_queue_says_how_long_its_jobs_wait_for_a_reservation_and_those_below_it_follow() {
    let below = |text| [waiting(text, "top", None, None), queue("q", Some("top"), Some(10))];
    assert_eq!(since([queue("top", None, None), queue("q", Some("top"), Some(10))], None, None), Some(60));
    assert_eq!(since(below("5s"), None, None), Some(5));
    assert_eq!(since(below("2h"), None, None), Some(7_200));
    assert_eq!(
        since([waiting("2h", "top", None, None), waiting("5s", "q", Some("top"), Some(10))], None, None),
        Some(5)
    );
    assert_eq!(since(below("never"), None, None), None);
}

#[test]
fn a_job_that_declares_a_long_run_waits_longer_before_it_blocks_others() {
    let below = || [waiting("10%", "top", None, None), queue("q", Some("top"), Some(10))];
    assert_eq!(since(below(), Some(86_400), None), Some(8_640));
    assert_eq!(since(below(), Some(120), None), Some(60));
    assert_eq!(since(below(), None, None), Some(60));
}

#[test]
fn a_deadline_that_is_sooner_counts_whatever_its_queue_says_but_never() {
    let below = |text| [waiting(text, "top", None, None), queue("q", Some("top"), Some(10))];
    assert_eq!(since(below("2h"), None, Some(20)), Some(20));
    assert_eq!(since(below("3h"), None, Some(7_000)), Some(7_000));
    assert_eq!(since(below("never"), None, Some(20)), None);
}
