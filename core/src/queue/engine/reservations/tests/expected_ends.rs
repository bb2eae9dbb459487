//! When a holder can start, and who may pass until then.

use super::*;

/// Queue q, below `top`, may have 10, of which 6 are held; `top` may have 12, of which 11 are held. One waits for 8.
fn both_short() -> Engine {
    let queues = [queue("top", None, Some(12)), queue("q", Some("top"), Some(10)), queue("r", Some("top"), None)];
    let mut engine = engine(queues, 100, 0);
    engine.set_order_policy(OrderPolicy::Strict);
    engine.charge_job(&"q0".into(), &"q".into(), &amounts(6, 0));
    engine.charge_job(&"r0".into(), &"r".into(), &amounts(5, 0));
    engine.enqueue_job(job("big", "q", 1, amounts(8, 0)));
    engine.set_now(EpochSeconds::new(100));
    assert!(at(&mut engine, 100).is_empty());
    engine
}

fn start(engine: &Engine, id: &str) -> Result<EpochSeconds, UnknownStart> {
    engine.reservation_of(id).unwrap().start
}

#[test]
fn every_ceiling_that_is_short_counts_and_not_the_nearest_alone() {
    let mut engine = both_short();
    engine.set_expected_end("q0", Some(EpochSeconds::new(200)));
    assert_eq!(start(&engine, "big"), Err(UnknownStart::EndUnknown), "of 12 another 5 are held");
    engine.set_expected_end("r0", Some(EpochSeconds::new(300)));
    assert_eq!(start(&engine, "big"), Ok(EpochSeconds::new(300)));
    engine.set_expected_end("r0", Some(EpochSeconds::new(150)));
    assert_eq!(start(&engine, "big"), Ok(EpochSeconds::new(200)));
}

#[test]
fn who_should_have_ended_by_now_has_not_said_when() {
    let mut engine = both_short();
    engine.set_expected_end("q0", Some(EpochSeconds::new(200)));
    engine.set_expected_end("r0", Some(EpochSeconds::new(150)));
    assert!(at(&mut engine, 150).is_empty());
    assert_eq!(start(&engine, "big"), Err(UnknownStart::EndUnknown));
}

#[test]
fn who_goes_before_counts_as_started() {
    let mut engine = engine([queue("q", None, None), queue("r", None, None)], 10, 0);
    engine.set_order_policy(OrderPolicy::Strict);
    for (id, end) in [("x", 200), ("y", 300), ("z", 400)] {
        engine.charge_job(&id.into(), &"q".into(), &amounts(3, 0));
        engine.set_expected_end(id, Some(EpochSeconds::new(end)));
    }
    engine.enqueue_job(job("first", "q", 1, amounts(5, 0)));
    engine.enqueue_job(job("second", "r", 2, amounts(3, 0)));
    assert!(at(&mut engine, 100).is_empty());
    assert_eq!(
        (start(&engine, "first"), start(&engine, "second")),
        (Ok(EpochSeconds::new(300)), Ok(EpochSeconds::new(400)))
    );
}

#[test]
fn above_its_share_nobody_can_say_when_it_starts() {
    let mut engine = engine([deserving("a", None, 4), deserving("b", None, 6)], 10, 0);
    engine.charge_job(&"a0".into(), &"a".into(), &amounts(3, 0));
    engine.charge_job(&"b0".into(), &"b".into(), &amounts(7, 0));
    engine.set_expected_end("b0", Some(EpochSeconds::new(200)));
    engine.enqueue_job(job("big", "a", 0, amounts(3, 0)));
    assert!(at(&mut engine, 100).is_empty());
    assert_eq!(start(&engine, "big"), Err(UnknownStart::SharedQuota));
}

/// Else they sleep until something else happens.
#[test]
fn who_ends_before_the_holder_starts_passes_once_that_is_said_to_be_later() {
    let mut engine = engine([queue("q", None, Some(10))], 100, 0);
    engine.charge_job(&"runs".into(), &"q".into(), &amounts(6, 0));
    engine.set_expected_end("runs", Some(EpochSeconds::new(150)));
    engine.enqueue_job(job("big", "q", 1, amounts(10, 0)));
    engine.enqueue_job(known(job("short", "q", 2, amounts(2, 0)), 100));
    engine.enqueue_job(known(job("long", "q", 2, amounts(2, 0)), 200));
    assert!(at(&mut engine, 100).is_empty());
    engine.set_expected_end("runs", Some(EpochSeconds::new(200)));
    assert_eq!(at(&mut engine, 100), ["short"]);
    engine.set_expected_end("short", Some(EpochSeconds::new(200)));
    assert!(at(&mut engine, 100).is_empty());
}

#[test]
fn a_queue_that_moves_takes_along_what_ends_in_it() {
    let mut engine = both_short();
    engine.set_expected_end("q0", Some(EpochSeconds::new(200)));
    engine.set_queue(queue("q", None, Some(10)));
    assert!(at(&mut engine, 101).is_empty());
    assert_eq!(start(&engine, "big"), Ok(EpochSeconds::new(200)));
    engine.set_queue(queue("q", Some("top"), Some(10)));
    assert!(at(&mut engine, 102).is_empty());
    assert_eq!(start(&engine, "big"), Err(UnknownStart::EndUnknown));
    engine.remove_job("r0");
    assert_eq!(start(&engine, "big"), Ok(EpochSeconds::new(200)));
}
