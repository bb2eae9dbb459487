//! Jobs that fit nowhere, not even in an empty fleet: nothing is kept for them and nobody waits behind them.

use super::*;

/// Clusters with room for all jobs but those of class 9 while these fit nowhere.
struct Fleet {
    never: bool,
    asked: usize,
}

impl Fleet {
    fn new() -> Self {
        Self { never: true, asked: 0 }
    }
}

impl ClusterCapacity for Fleet {
    fn fits(&mut self, id: &JobId, ask: &Ask, _: &[&ReservedClusters]) -> Fit {
        match self.explain_never_fits(id, ask) {
            Some(detail) => Fit::No { never: true, detail },
            None => Fit::Yes,
        }
    }

    fn explain_never_fits(&mut self, _: &JobId, ask: &Ask) -> Option<String> {
        self.asked += 1;
        (self.never && ask.fit == FitClass(9)).then(|| "no node is so large".to_owned())
    }

    fn reserve_clusters(&mut self, _: &JobId, _: &Ask, _: &[ClusterName]) -> Option<ReservedClusters> {
        None
    }
}

fn too_large(id: &str, queue: &str, created: i64, cpu: i64) -> Job {
    let mut job = job(id, queue, created, amounts(cpu, 0));
    Arc::make_mut(&mut job.ask).fit = FitClass(9);
    job
}

fn started(engine: &mut Engine, fleet: &mut Fleet, now: i64) -> Vec<String> {
    engine.set_now(EpochSeconds::new(now));
    let released = std::iter::from_fn(|| engine.release_next_in_clusters(fleet)).map(|release| release.id.to_string());
    let released = released.collect();
    engine.audit();
    released
}

fn token(engine: &Engine, id: &str) -> &'static str {
    engine.explain_pending(id).unwrap().token()
}

#[test]
fn what_fits_nowhere_is_asked_before_quota_is_kept_for_it() {
    let (mut engine, mut fleet) = (engine([queue("q", None, Some(10))], 100, 0), Fleet::new());
    engine.charge_job(&"runs".into(), &"q".into(), &amounts(6, 0));
    engine.enqueue_job(too_large("huge", "q", 1, 8));
    engine.enqueue_job(too_large("huge-too", "q", 2, 8));
    engine.enqueue_job(too_large("larger", "q", 3, 9));
    assert!(started(&mut engine, &mut fleet, 3).is_empty());
    assert_eq!((token(&engine, "huge"), fleet.asked), ("WaitingForQuota", 0), "nobody waits for it yet");
    assert!(started(&mut engine, &mut fleet, 1 + RESERVATION_AFTER).is_empty());
    assert_eq!(engine.reservation_of("huge"), None);
    assert_eq!(["huge", "huge-too"].map(|id| token(&engine, id)), ["NeverFits"; 2]);
    engine.enqueue_job(job("s1", "q", 4, amounts(4, 0)));
    assert_eq!(started(&mut engine, &mut fleet, 100), ["s1"]);
    // All of them are of one class.
    assert_eq!((token(&engine, "larger"), fleet.asked), ("NeverFits", 2));
    assert!(engine.reservation_of("larger").is_none() && engine.is_unsatisfiable("larger"));
    let why = engine.explain_pending("huge").unwrap().to_string();
    assert_eq!(why, "can never start: would not fit even if all ready clusters were empty: no node is so large");
}

#[test]
fn the_next_in_rank_gets_the_reservation_that_one_that_fits_nowhere_does_not_get() {
    let (mut engine, mut fleet) = (engine([queue("q", None, Some(10))], 100, 0), Fleet::new());
    engine.charge_job(&"runs".into(), &"q".into(), &amounts(6, 0));
    engine.enqueue_job(too_large("huge", "q", 1, 8));
    engine.enqueue_job(job("big", "q", 2, amounts(7, 0)));
    engine.enqueue_job(job("small", "q", 3, amounts(5, 0)));
    assert!(started(&mut engine, &mut fleet, 100).is_empty());
    assert!(engine.reservation_of("big").is_some());
    engine.charge_job(&"runs".into(), &"q".into(), &amounts(4, 0));
    assert!(started(&mut engine, &mut fleet, 101).is_empty(), "6 are free, and kept");
}

#[test]
fn nobody_in_a_fifo_queue_waits_behind_what_fits_nowhere_though_it_lacks_quota() {
    let fifo = QueueSpec { dequeue: Dequeue::Fifo, ..queue("q", None, Some(10)) };
    let (mut engine, mut fleet) = (engine([fifo], 100, 0), Fleet::new());
    engine.charge_job(&"runs".into(), &"q".into(), &amounts(6, 0));
    for i in 0..20 {
        engine.enqueue_job(too_large(&format!("huge{i:02}"), "q", i, 5 + i % 5));
    }
    engine.enqueue_job(job("s1", "q", 30, amounts(4, 0)));
    assert_eq!(started(&mut engine, &mut fleet, 31), ["s1"]);
    assert_eq!(token(&engine, "huge00"), "NeverFits");
}

#[test]
fn what_fits_nowhere_is_asked_again_when_clusters_change() {
    let (mut engine, mut fleet) = (engine([queue("q", None, Some(10))], 100, 0), Fleet::new());
    engine.charge_job(&"runs".into(), &"q".into(), &amounts(6, 0));
    engine.enqueue_job(too_large("huge", "q", 1, 8));
    assert!(started(&mut engine, &mut fleet, 100).is_empty());
    fleet.never = false;
    engine.requeue_after_capacity_change();
    assert!(started(&mut engine, &mut fleet, 101).is_empty());
    assert_eq!((token(&engine, "huge"), engine.has_reservation("huge")), ("WaitingForQuota", true));
    engine.enqueue_job(job("s1", "q", 4, amounts(4, 0)));
    assert!(started(&mut engine, &mut fleet, 102).is_empty());
    // The node that it would be on is gone.
    fleet.never = true;
    engine.forget_possible_classes();
    assert_eq!(started(&mut engine, &mut fleet, 103), ["s1"]);
    assert_eq!((token(&engine, "huge"), engine.has_reservation("huge")), ("NeverFits", false));
}

#[test]
fn nobody_waits_for_one_in_backoff_that_fits_nowhere() {
    let (mut engine, mut fleet) = (engine([queue("q", None, Some(10))], 100, 0), Fleet::new());
    engine.back_off_job(Job { priority: 1, ..too_large("huge", "q", 1, 8) }, EpochSeconds::new(100));
    engine.enqueue_job(job("s1", "q", 4, amounts(4, 0)));
    assert_eq!(started(&mut engine, &mut fleet, 101), ["s1"]);
}
