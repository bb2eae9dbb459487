//! Jobs that are out of line for a while, and strict priority.

use super::*;

/// In queue q, which may have 10, nothing runs; one of priority 5 that asks for 8 was put back at 100.
fn requeued() -> Engine {
    let mut engine = engine([queue("q", None, Some(10)), queue("r", None, None)], 10, 0);
    engine.set_order_policy(OrderPolicy::Strict);
    engine.set_now(EpochSeconds::new(100));
    engine.back_off_job(Job { priority: 5, ..job("aside", "q", 0, amounts(8, 0)) }, EpochSeconds::new(100));
    engine
}

fn low(id: &str, queue: &str, cpu: i64) -> Job {
    job(id, queue, 50, amounts(cpu, 0))
}

#[test]
fn nobody_of_lower_priority_takes_what_one_gave_back_that_is_out_of_line_for_a_while() {
    let mut engine = requeued();
    for queue in ["q", "r"] {
        engine.enqueue_job(low(&format!("low-{queue}"), queue, 3));
    }
    engine.enqueue_job(low("beside", "q", 2));
    assert_eq!(at(&mut engine, 100), ["beside"]);
    assert_eq!(engine.explain_pending("low-q").unwrap().token(), "BlockedByReservation");
    assert_eq!((engine.reservation_of("aside"), engine.is_pending("aside")), (None, false));
    engine.enqueue_job(Job { priority: 5, ..job("aside", "q", 0, amounts(8, 0)) });
    assert_eq!(at(&mut engine, 130), ["aside"]);
}

#[test]
fn it_is_kept_for_a_while_only_and_not_from_its_own_priority() {
    let mut engine = requeued();
    engine.enqueue_job(low("low", "q", 3));
    engine.enqueue_job(Job { priority: 5, ..low("same", "q", 1) });
    assert_eq!(at(&mut engine, 100), ["same"]);
    assert_eq!(engine.next_due(), Some(EpochSeconds::new(100 + RESERVATION_AFTER)));
    assert!(at(&mut engine, 99 + RESERVATION_AFTER).is_empty());
    assert_eq!(at(&mut engine, 100 + RESERVATION_AFTER), ["low"]);
}

#[test]
fn nothing_is_kept_for_who_can_never_start_or_is_gone() {
    let mut engine = requeued();
    engine.back_off_job(Job { priority: 9, ..job("huge", "q", 0, amounts(11, 0)) }, EpochSeconds::new(100));
    engine.enqueue_job(low("low", "q", 3));
    assert!(at(&mut engine, 100).is_empty());
    engine.remove_job("aside");
    assert_eq!(at(&mut engine, 101), ["low"]);
    engine.remove_job("huge");
    engine.remove_job("low");
    engine.remove_queue(&"q".into());
    assert!(at(&mut engine, 102).is_empty());
    assert_eq!(engine.jobs.iter().count(), 0);
}

#[test]
fn of_several_the_first_in_rank_counts_and_then_the_next() {
    let mut engine = requeued();
    engine.back_off_job(Job { priority: 7, ..job("first", "q", 0, amounts(4, 0)) }, EpochSeconds::new(100));
    engine.enqueue_job(low("low", "q", 6));
    assert_eq!(at(&mut engine, 100), ["low"], "of one queue one is enough");
    engine.remove_job("low");
    engine.remove_job("first");
    engine.enqueue_job(low("other", "q", 6));
    assert!(at(&mut engine, 101).is_empty());
}

/// A tree that changes, and another policy, lose nothing.
#[test]
fn it_stays_when_all_is_worked_out_anew() {
    let mut engine = requeued();
    engine.enqueue_job(low("low", "q", 3));
    assert!(at(&mut engine, 100).is_empty());
    engine.set_queue(queue("new", None, None));
    assert!(at(&mut engine, 101).is_empty());
    engine.set_order_policy(OrderPolicy::Fifo);
    assert_eq!(at(&mut engine, 102), ["low"], "there priority does not count");
}

/// Where nothing is reserved, what comes and goes out of line is not remembered.
#[test]
fn without_reservations_nothing_is_left_of_who_backed_off_and_with_them_again_it_counts() {
    let mut engine = requeued();
    engine.set_reservation_after(None);
    for i in 0..500 {
        engine.back_off_job(Job { priority: 5, ..job("aside", "q", 0, amounts(8, 0)) }, EpochSeconds::new(100 + i));
        assert!(at(&mut engine, 100 + i).is_empty());
    }
    assert!(engine.size() < 20, "{}", engine.size());
    engine.enqueue_job(low("low", "q", 3));
    engine.set_reservation_after(Some(RESERVATION_AFTER));
    assert!(at(&mut engine, 600).is_empty());
    engine.set_reservation_after(None);
    assert_eq!(at(&mut engine, 600), ["low"]);
}
