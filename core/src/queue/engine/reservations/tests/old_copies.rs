//! Jobs that wait for nothing but their own old copies, and who comes after them.

use super::*;

/// Until when what left its clusters at 100 keeps its place.
const UNTIL: i64 = 880;

fn leave(engine: &mut Engine, job: Job) {
    engine.keep_place_of_job(job, EpochSeconds::new(100), EpochSeconds::new(UNTIL));
}

/// Queue q may have 20; a job of 18 was taken off its clusters at 100.
fn moved() -> Engine {
    let mut engine = engine([queue("q", None, Some(20)), queue("r", None, None)], 100, 0);
    engine.set_now(EpochSeconds::new(100));
    leave(&mut engine, job("old", "q", 10, amounts(18, 0)));
    engine
}

#[test]
fn nobody_younger_takes_what_a_job_needs_that_waits_for_its_own_old_copies() {
    let mut engine = moved();
    engine.enqueue_job(job("young", "q", 20, amounts(10, 0)));
    assert!(at(&mut engine, 101).is_empty());
    assert_eq!(engine.explain_pending("young").unwrap().token(), "BlockedByReservation");
    assert!(!engine.has_reservation("old") && engine.reservation_of("old").is_none() && !engine.is_pending("old"));
    engine.enqueue_job(job("old", "q", 10, amounts(18, 0)));
    assert_eq!(at(&mut engine, 130), ["old"]);
    engine.remove_job("old");
    assert_eq!(at(&mut engine, 131), ["young"]);
}

#[test]
fn what_is_free_beside_it_is_for_everybody_and_who_ranks_before_it_passes() {
    let mut engine = moved();
    engine.enqueue_job(job("beside", "q", 20, amounts(2, 0)));
    engine.enqueue_job(job("elsewhere", "r", 20, amounts(80, 0)));
    assert_eq!(at(&mut engine, 101), ["beside", "elsewhere"]);
    engine.remove_job("beside");
    engine.enqueue_job(job("older", "q", 5, amounts(10, 0)));
    assert_eq!(at(&mut engine, 102), ["older"]);
    engine.remove_job("older");
    engine.enqueue_job(Job { priority: 1, ..job("urgent", "q", 20, amounts(10, 0)) });
    assert_eq!(at(&mut engine, 103), ["urgent"]);
}

#[test]
fn nothing_is_kept_longer_than_was_said_nor_for_who_is_gone() {
    let mut engine = moved();
    engine.enqueue_job(job("young", "q", 20, amounts(10, 0)));
    assert!(at(&mut engine, UNTIL - 1).is_empty());
    assert_eq!(engine.next_due(), Some(EpochSeconds::new(UNTIL)));
    assert_eq!(at(&mut engine, UNTIL), ["young"]);
    let mut engine = moved();
    engine.enqueue_job(job("young", "q", 20, amounts(10, 0)));
    assert!(at(&mut engine, 101).is_empty());
    engine.remove_job("old");
    assert_eq!(at(&mut engine, 102), ["young"]);
}

/// A drained cluster had many.
#[test]
fn several_of_a_queue_keep_their_places_together() {
    let mut engine = engine([queue("q", None, Some(20))], 100, 0);
    engine.set_now(EpochSeconds::new(100));
    for (id, priority) in [("a", 0), ("b", 0), ("c", 3)] {
        leave(&mut engine, Job { priority, ..job(id, "q", 10, amounts(6, 0)) });
    }
    engine.enqueue_job(job("young", "q", 20, amounts(3, 0)));
    assert!(at(&mut engine, 101).is_empty(), "18 of 20 are kept");
    engine.enqueue_job(Job { priority: 2, ..job("middle", "q", 20, amounts(14, 0)) });
    assert_eq!(at(&mut engine, 102), ["middle"], "it ranks before two of them");
    engine.remove_job("middle");
    engine.remove_job("c");
    assert_eq!(at(&mut engine, 103), ["young"], "12 are kept");
    engine.remove_job("young");
    engine.remove_job("a");
    engine.enqueue_job(job("b", "q", 10, amounts(6, 0)));
    assert_eq!(at(&mut engine, 104), ["b"]);
}

#[test]
fn nothing_is_kept_for_who_can_never_start_nor_without_reservations() {
    let mut engine = moved();
    engine.remove_job("old");
    leave(&mut engine, job("huge", "q", 10, amounts(21, 0)));
    engine.enqueue_job(job("young", "q", 20, amounts(10, 0)));
    assert_eq!(at(&mut engine, 101), ["young"]);
    let mut engine = moved();
    engine.set_reservation_after(None);
    engine.enqueue_job(job("young", "q", 20, amounts(10, 0)));
    assert_eq!(at(&mut engine, 101), ["young"]);
}

/// Another tree, and an engine that knows the same and is new, decide the same.
#[test]
fn it_stays_when_all_is_worked_out_anew() {
    let mut engine = moved();
    engine.enqueue_job(job("young", "q", 20, amounts(10, 0)));
    assert!(at(&mut engine, 101).is_empty());
    engine.set_queue(queue("new", None, None));
    assert!(at(&mut engine, 102).is_empty());
    engine.set_order_policy(OrderPolicy::Fifo);
    assert!(at(&mut engine, 103).is_empty());
    engine.remove_job("old");
    engine.remove_job("young");
    engine.remove_queue(&"q".into());
    assert!(at(&mut engine, 104).is_empty());
    assert_eq!(engine.jobs.iter().count(), 0);
}

/// Whoever is evicted for takes what came free for it.
#[test]
fn the_preemptor_does_not_wait_for_it() {
    let mut engine = moved();
    engine.enqueue_job(job("victims-place", "q", 20, amounts(10, 0)));
    assert!(at(&mut engine, 101).is_empty());
    engine.set_preemptor(Some("victims-place".into()));
    engine.charge_job(&"other".into(), &"q".into(), &amounts(15, 0));
    assert!(at(&mut engine, 102).is_empty());
    engine.remove_job("other");
    assert_eq!(at(&mut engine, 103), ["victims-place"]);
}
