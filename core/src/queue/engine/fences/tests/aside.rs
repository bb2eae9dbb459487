//! Jobs that are out of line for a while, and strict priority.

use super::*;

/// In queue q, which may have 10, nothing runs; one of priority 5 that asks for 8 was put back at 100.
fn put_back() -> Engine {
    let mut engine = engine([queue("q", None, Some(10)), queue("r", None, None)], 10, 0);
    engine.set_policy(OrderPolicy::Strict);
    engine.set_now(100);
    engine.step_aside(Job { priority: 5, ..job("aside", "q", 0, amounts(8, 0)) }, 100);
    engine
}

fn low(id: &str, queue: &str, cpu: i64) -> Job {
    job(id, queue, 50, amounts(cpu, 0))
}

#[test]
fn nobody_of_lower_priority_takes_what_one_gave_back_that_is_out_of_line_for_a_while() {
    let mut engine = put_back();
    for queue in ["q", "r"] {
        engine.wait(low(&format!("low-{queue}"), queue, 3));
    }
    engine.wait(low("beside", "q", 2));
    assert_eq!(at(&mut engine, 100), ["beside"]);
    assert_eq!(engine.why("low-q").unwrap().token(), "BlockedByReservation");
    assert_eq!((engine.reservation("aside"), engine.is_waiting("aside")), (None, false));
    engine.wait(Job { priority: 5, ..job("aside", "q", 0, amounts(8, 0)) });
    assert_eq!(at(&mut engine, 130), ["aside"]);
}

#[test]
fn it_is_kept_for_a_while_only_and_not_from_its_own_priority() {
    let mut engine = put_back();
    engine.wait(low("low", "q", 3));
    engine.wait(Job { priority: 5, ..low("same", "q", 1) });
    assert_eq!(at(&mut engine, 100), ["same"]);
    assert_eq!(engine.due(), Some(100 + PATIENCE));
    assert!(at(&mut engine, 99 + PATIENCE).is_empty());
    assert_eq!(at(&mut engine, 100 + PATIENCE), ["low"]);
}

#[test]
fn nothing_is_kept_for_who_can_never_start_or_is_gone() {
    let mut engine = put_back();
    engine.step_aside(Job { priority: 9, ..job("huge", "q", 0, amounts(11, 0)) }, 100);
    engine.wait(low("low", "q", 3));
    assert!(at(&mut engine, 100).is_empty());
    engine.forget("aside");
    assert_eq!(at(&mut engine, 101), ["low"]);
    engine.forget("huge");
    engine.forget("low");
    engine.remove_queue(&"q".into());
    assert!(at(&mut engine, 102).is_empty());
    assert_eq!(engine.jobs.len(), 0);
}

#[test]
fn of_several_the_first_in_rank_counts_and_then_the_next() {
    let mut engine = put_back();
    engine.step_aside(Job { priority: 7, ..job("first", "q", 0, amounts(4, 0)) }, 100);
    engine.wait(low("low", "q", 6));
    assert_eq!(at(&mut engine, 100), ["low"], "of one queue one is enough");
    engine.forget("low");
    engine.forget("first");
    engine.wait(low("other", "q", 6));
    assert!(at(&mut engine, 101).is_empty());
}

/// A tree that changes, and another policy, lose nothing.
#[test]
fn it_stays_when_all_is_worked_out_anew() {
    let mut engine = put_back();
    engine.wait(low("low", "q", 3));
    assert!(at(&mut engine, 100).is_empty());
    engine.set_queue(queue("new", None, None));
    assert!(at(&mut engine, 101).is_empty());
    engine.set_policy(OrderPolicy::Fifo);
    assert_eq!(at(&mut engine, 102), ["low"], "there priority does not count");
}
