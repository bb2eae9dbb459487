//! Deadlines (`volcano.sh/sla-waiting-time`) and whose place is kept.

use super::*;

/// A job that should start within `sla` seconds.
fn hurried(id: &str, queue: &str, created: i64, sla: i64, request: Resources) -> Job {
    Job { deadline: Some(EpochSeconds::new(created + sla)), ..job(id, queue, created, request) }
}

/// Queue q may have 10, of which 6 are held, at 0.
fn busy() -> Engine {
    let mut engine = engine([queue("q", None, Some(10))], 100, 0);
    engine.charge_job(&"runs".into(), &"q".into(), &amounts(6, 0));
    engine
}

#[test]
fn a_place_is_kept_from_a_deadline_on_that_is_sooner_than_all_patience() {
    let mut engine = busy();
    engine.enqueue_job(hurried("big", "q", 0, 20, amounts(8, 0)));
    assert!(at(&mut engine, 19).is_empty());
    assert_eq!((engine.reservation_of("big"), engine.next_due()), (None, Some(EpochSeconds::new(20))));
    assert!(at(&mut engine, 20).is_empty());
    assert_eq!(engine.reservation_of("big").unwrap().since, EpochSeconds::new(20));
}

#[test]
fn who_is_behind_its_deadline_ranks_before_who_came_a_little_earlier_without_one() {
    let mut engine = busy();
    engine.enqueue_job(job("old", "q", 0, amounts(9, 0)));
    engine.enqueue_job(hurried("late", "q", 500, 600, amounts(8, 0)));
    assert!(at(&mut engine, 1200).is_empty());
    assert!(engine.reservation_of("late").is_some() && engine.reservation_of("old").is_none());
    // One that is much older does not wait longer because of that.
    let mut engine = busy();
    engine.enqueue_job(job("old", "q", 0, amounts(9, 0)));
    engine.enqueue_job(hurried("late", "q", 3500, 600, amounts(8, 0)));
    assert!(at(&mut engine, 5000).is_empty());
    assert!(engine.reservation_of("old").is_some() && engine.reservation_of("late").is_none());
}

/// It goes before it in line, and would be told no because of it, and it would wait for ever.
#[test]
fn a_holder_goes_before_who_asks_for_the_same_with_a_deadline() {
    for far in [10, 10_000] {
        let mut engine = busy();
        engine.enqueue_job(job("old", "q", -3600, amounts(8, 0)));
        assert!(at(&mut engine, 100).is_empty());
        engine.enqueue_job(hurried("hurried", "q", 90, far, amounts(8, 0)));
        engine.enqueue_job(job("small", "q", 100, amounts(4, 0)));
        assert!(at(&mut engine, 101).is_empty(), "the place is still kept");
        assert!(engine.reservation_of("old").is_some());
        engine.remove_job("runs");
        assert_eq!(at(&mut engine, 102), ["old"]);
        engine.remove_job("old");
        assert_eq!(at(&mut engine, 103), ["hurried"]);
    }
}

#[test]
fn a_young_one_of_higher_priority_that_asks_for_the_same_takes_nobody_s_fence() {
    let mut engine = busy();
    engine.enqueue_job(job("old", "q", 0, amounts(8, 0)));
    assert!(at(&mut engine, 100).is_empty());
    engine.enqueue_job(Job { priority: 1, ..job("urgent", "q", 99, amounts(8, 0)) });
    engine.enqueue_job(job("small", "q", 100, amounts(4, 0)));
    assert!(at(&mut engine, 101).is_empty());
    assert!(engine.reservation_of("old").is_some());
    engine.remove_job("runs");
    assert_eq!(at(&mut engine, 102), ["urgent"]);
}

/// Else the two wait for each other: one is not the first in line, the other heeds its reservation.
#[test]
fn in_a_fifo_queue_only_the_first_in_line_holds_a_fence() {
    let mut fifo = queue("q", None, Some(10));
    fifo.dequeue = crate::queue::Dequeue::Fifo;
    let mut engine = engine([fifo], 100, 0);
    engine.charge_job(&"runs".into(), &"q".into(), &amounts(6, 0));
    engine.enqueue_job(job("old", "q", 0, amounts(8, 0)));
    assert!(at(&mut engine, 100).is_empty());
    assert!(engine.reservation_of("old").is_some());
    engine.enqueue_job(hurried("hurried", "q", 90, 9_000, amounts(7, 0)));
    assert!(at(&mut engine, 101).is_empty());
    assert!(engine.reservation_of("old").is_none());
    engine.remove_job("runs");
    assert_eq!(at(&mut engine, 102), ["hurried"]);
    engine.remove_job("hurried");
    assert_eq!(at(&mut engine, 103), ["old"]);
}

/// A fifth more than the queue can hold keeps coming, all with the shortest of deadlines: who came within an hour ranks
/// before, and nobody else.
#[test]
fn endless_jobs_with_deadlines_starve_nobody_without() {
    let mut engine = engine([queue("q", None, Some(10))], 100, 0);
    engine.enqueue_job(job("big", "q", 1, amounts(9, 0)));
    let mut ends: BTreeMap<String, i64> = BTreeMap::new();
    let mut started = None;
    for now in 0..6000 {
        let over: Vec<String> = ends.iter().filter(|(_, end)| **end <= now).map(|(id, _)| id.clone()).collect();
        for id in over {
            ends.remove(&id);
            engine.remove_job(&id);
        }
        if now % 20 == 0 {
            for i in 0..6 {
                engine.enqueue_job(hurried(&format!("s{now:04}-{i}"), "q", now, 1, amounts(2, 0)));
            }
        }
        engine.set_now(EpochSeconds::new(now));
        while let Some(release) = engine.release_next_by_fit(|_, _| Fit::Yes) {
            ends.insert(release.id.to_string(), now + 20);
            if release.id.as_str() == "big" {
                started = Some(now);
            }
        }
        if started.is_some() {
            break;
        }
    }
    let started = started.expect("it starts");
    assert!(started <= 3600 * 12 / 10 + RESERVATION_AFTER + 40, "{started}");
}
