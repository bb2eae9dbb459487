//! The rules of clusters that are kept, by name.

use super::*;
use crate::queue::MOST_CLUSTERS_FOR_COPIES;

/// Clusters that keep one of themselves for the first who asks.
struct OneCluster {
    free: bool,
}

impl ClusterCapacity for OneCluster {
    fn fits(&mut self, id: &JobId, _: &Ask, kept: &[&ReservedClusters]) -> Fit {
        let big = id.as_str() == "big";
        if (big && self.free) || (!big && kept.is_empty()) {
            return Fit::Yes;
        }
        Fit::No { never: false, detail: "full".to_owned() }
    }

    fn explain_never_fits(&mut self, _: &JobId, _: &Ask) -> Option<String> {
        None
    }

    fn reserve_clusters(&mut self, _: &JobId, _: &Ask, _: &[ClusterName]) -> Option<ReservedClusters> {
        Some(ReservedClusters { clusters: vec!["m1".into()], resources: vec!["cpu".into()], groups: None })
    }
}

#[test]
fn clusters_are_kept_for_who_lacks_room_and_its_quota_with_them() {
    let mut engine = engine([queue("q", None, Some(10))], 100, 0);
    let mut capacity = OneCluster { free: false };
    let mut big = job("big", "q", 1, amounts(8, 0));
    Arc::make_mut(&mut big.ask).fit = FitClass(1);
    engine.enqueue_job(big);
    engine.enqueue_job(job("s0", "q", 2, amounts(1, 0)));
    engine.set_now(EpochSeconds::new(2));
    assert_eq!(engine.release_next_in_clusters(&mut capacity).unwrap().id.as_str(), "s0");
    engine.set_now(EpochSeconds::new(1 + RESERVATION_AFTER));
    assert_eq!(engine.release_next_in_clusters(&mut capacity), None);
    assert_eq!(engine.reservation_of("big").unwrap().clusters, ["m1".into()]);
    engine.enqueue_job(job("s1", "q", 3, amounts(1, 0)));
    engine.enqueue_job(job("s2", "q", 3, amounts(2, 0)));
    assert_eq!(engine.release_next_in_clusters(&mut capacity), None);
    assert_eq!(engine.explain_pending("s2").unwrap().token(), "BlockedByReservation");
    capacity.free = true;
    engine.requeue_after_capacity_change();
    assert_eq!(engine.release_next_in_clusters(&mut capacity).unwrap().id.as_str(), "big");
    assert_eq!(engine.release_next_in_clusters(&mut capacity).unwrap().id.as_str(), "s1");
}

/// One cluster, which is free or is not, for jobs that are all alike.
struct Alike {
    free: bool,
}

impl ClusterCapacity for Alike {
    fn fits(&mut self, _: &JobId, _: &Ask, kept: &[&ReservedClusters]) -> Fit {
        match self.free && kept.is_empty() {
            true => Fit::Yes,
            false => Fit::No { never: false, detail: "full".to_owned() },
        }
    }

    fn explain_never_fits(&mut self, _: &JobId, _: &Ask) -> Option<String> {
        None
    }

    fn reserve_clusters(&mut self, _: &JobId, _: &Ask, _: &[ClusterName]) -> Option<ReservedClusters> {
        Some(ReservedClusters { clusters: vec!["m1".into()], resources: vec!["cpu".into()], groups: None })
    }
}

/// The cluster is full and kept for `holder`, who waits in queue a, at 100.
fn kept_for_holder() -> (Engine, Alike) {
    let mut engine = engine([deserving("a", None, 50), deserving("b", None, 50)], 100, 0);
    let mut capacity = Alike { free: false };
    engine.charge_job(&"a0".into(), &"a".into(), &amounts(1, 0));
    engine.enqueue_job(job("holder", "a", 0, amounts(10, 0)));
    engine.set_now(EpochSeconds::new(100));
    assert_eq!(engine.release_next_in_clusters(&mut capacity), None);
    assert_eq!(engine.reservation_of("holder").unwrap().clusters, ["m1".into()]);
    (engine, capacity)
}

/// Else the cluster is idle for ever: the answer to who goes first by share would count for the holder too.
#[test]
fn what_is_kept_from_one_is_no_answer_for_the_holder_in_another_queue() {
    let (mut engine, mut capacity) = kept_for_holder();
    engine.enqueue_job(job("alike", "b", 90, amounts(10, 0)));
    assert_eq!(engine.release_next_in_clusters(&mut capacity), None);
    capacity.free = true;
    engine.requeue_after_capacity_change();
    assert_eq!(engine.release_next_in_clusters(&mut capacity).unwrap().id.as_str(), "holder");
}

/// The same where a growth of known size wakes them.
#[test]
fn what_is_kept_from_one_is_no_answer_for_the_holder_when_some_room_is_freed() {
    let (mut engine, mut capacity) = kept_for_holder();
    engine.enqueue_job(job("alike", "b", 90, amounts(10, 0)));
    assert_eq!(engine.release_next_in_clusters(&mut capacity), None);
    capacity.free = true;
    engine.requeue_after_growth(&CapacityGrowth { free: amounts(10, 0), largest: amounts(10, 0) });
    assert_eq!(engine.release_next_in_clusters(&mut capacity).unwrap().id.as_str(), "holder");
}

/// The cluster has room for small ones, but it is kept for a big one.
struct ForSmall;

impl ClusterCapacity for ForSmall {
    fn fits(&mut self, id: &JobId, _: &Ask, kept: &[&ReservedClusters]) -> Fit {
        match id.as_str() != "big" && kept.is_empty() {
            true => Fit::Yes,
            false => Fit::No { never: false, detail: "full".to_owned() },
        }
    }

    fn explain_never_fits(&mut self, _: &JobId, _: &Ask) -> Option<String> {
        None
    }

    fn reserve_clusters(&mut self, _: &JobId, _: &Ask, _: &[ClusterName]) -> Option<ReservedClusters> {
        Some(ReservedClusters { clusters: vec!["m1".into()], resources: vec!["cpu".into()], groups: None })
    }
}

#[test]
fn who_overrules_the_holder_is_asked_though_one_alike_was_refused() {
    for queue in ["a", "b"] {
        let mut engine = engine([deserving("a", None, 50), deserving("b", None, 50)], 100, 0);
        let mut big = job("big", "a", 0, amounts(10, 0));
        Arc::make_mut(&mut big.ask).fit = FitClass(1);
        engine.enqueue_job(big);
        engine.set_now(EpochSeconds::new(100));
        assert_eq!(engine.release_next_in_clusters(&mut ForSmall), None);
        engine.enqueue_job(job("small", "b", 90, amounts(1, 0)));
        assert_eq!(engine.release_next_in_clusters(&mut ForSmall), None);
        engine.enqueue_job(Job { priority: 1, ..job("urgent", queue, 99, amounts(1, 0)) });
        assert_eq!(engine.release_next_in_clusters(&mut ForSmall).unwrap().id.as_str(), "urgent", "{queue}");
        assert_eq!(engine.release_next_in_clusters(&mut ForSmall), None);
    }
}

/// Two clusters of which neither ever has room for a stuck one, though nobody can tell.
struct Stuck;

impl ClusterCapacity for Stuck {
    fn fits(&mut self, id: &JobId, _: &Ask, kept: &[&ReservedClusters]) -> Fit {
        let barred = |name: &str| kept.iter().any(|kept| kept.clusters.contains(&name.into()));
        match id.as_str() {
            "small" if !barred("m1") => Fit::Yes,
            _ => Fit::No { never: false, detail: "full".to_owned() },
        }
    }

    fn explain_never_fits(&mut self, _: &JobId, _: &Ask) -> Option<String> {
        None
    }

    fn reserve_clusters(&mut self, _: &JobId, _: &Ask, vain: &[ClusterName]) -> Option<ReservedClusters> {
        let cluster = ["m1", "m2"].into_iter().map(ClusterName::from).find(|name| !vain.contains(name))?;
        Some(ReservedClusters { clusters: vec![cluster], resources: vec!["cpu".into()], groups: None })
    }
}

#[test]
fn clusters_are_kept_for_a_term_then_others_then_none_and_twice_as_long() {
    let mut engine = engine([queue("q", None, None), queue("r", None, None)], 100, 0);
    engine.set_order_policy(OrderPolicy::Strict);
    let mut stuck = |id: &str, queue: &str, fit| {
        let mut job = job(id, queue, 0, amounts(10, 0));
        Arc::make_mut(&mut job.ask).fit = FitClass(fit);
        engine.enqueue_job(job);
    };
    stuck("stuck", "q", 1);
    stuck("too", "r", 2);
    let mut kept = |now: i64| {
        engine.set_now(EpochSeconds::new(now));
        assert_eq!(engine.release_next_in_clusters(&mut Stuck), None);
        let of = |id: &str| engine.reservation_of(id).map(|kept| kept.clusters[0].to_string());
        (of("stuck"), of("too"), engine.next_due().filter(|due| *due > EpochSeconds::new(now)))
    };
    let m = |name: &str| Some(name.to_owned());
    assert_eq!(kept(60), (m("m1"), None, Some(EpochSeconds::new(3660))));
    assert_eq!(kept(3659), (m("m1"), None, Some(EpochSeconds::new(3660))));
    assert_eq!(kept(3660), (m("m2"), None, Some(EpochSeconds::new(7260))));
    // Now another one has its turn.
    assert_eq!(kept(7260), (None, m("m1"), Some(EpochSeconds::new(10860))));
    // And again, twice as long.
    let later = [10860, 18059, 18060, 25259, 25260].map(|now| kept(now).0);
    assert_eq!(later, [m("m1"), m("m1"), m("m2"), m("m2"), None]);
}

#[test]
fn others_pass_while_who_waits_in_vain_rests() {
    let mut engine = engine([queue("q", None, None)], 100, 0);
    let mut stuck = job("stuck", "q", 0, amounts(10, 0));
    Arc::make_mut(&mut stuck.ask).fit = FitClass(1);
    engine.enqueue_job(stuck);
    engine.set_now(EpochSeconds::new(60));
    assert_eq!(engine.release_next_in_clusters(&mut Stuck), None);
    engine.enqueue_job(job("small", "q", 50, amounts(1, 0)));
    assert_eq!(engine.release_next_in_clusters(&mut Stuck), None);
    engine.set_now(EpochSeconds::new(3660));
    assert_eq!(engine.release_next_in_clusters(&mut Stuck).unwrap().id.as_str(), "small");
}

/// A job with copies in many clusters, of which it lacks capacity in six, in others each time.
struct Moving {
    first: usize,
}

impl ClusterCapacity for Moving {
    fn fits(&mut self, id: &JobId, _: &Ask, _: &[&ReservedClusters]) -> Fit {
        match id.as_str() {
            "copies" => Fit::No { never: false, detail: "full".to_owned() },
            _ => Fit::Yes,
        }
    }

    fn explain_never_fits(&mut self, _: &JobId, _: &Ask) -> Option<String> {
        None
    }

    fn reserve_clusters(&mut self, _: &JobId, _: &Ask, vain: &[ClusterName]) -> Option<ReservedClusters> {
        let lacking = self.first..self.first + MOST_CLUSTERS_FOR_COPIES - 2;
        let clusters: Vec<ClusterName> = lacking.map(|at| format!("m{at:02}").as_str().into()).collect();
        let is_new = !clusters.iter().any(|name| vain.contains(name));
        is_new.then(|| ReservedClusters { clusters, resources: vec!["cpu".into()], groups: None })
    }
}

#[test]
fn a_duplicated_job_that_lacks_capacity_elsewhere_each_time_keeps_no_more_clusters_than_one_job_may() {
    let mut engine = engine([queue("q", None, None)], 100, 0);
    let mut capacity = Moving { first: 1 };
    let mut copies = job("copies", "q", 0, amounts(1, 0));
    let ask = Arc::make_mut(&mut copies.ask);
    (ask.fit, ask.copies) = (FitClass(1), 20);
    engine.enqueue_job(copies);
    engine.set_now(EpochSeconds::new(60));
    assert_eq!(engine.release_next_in_clusters(&mut capacity), None);
    let mut kept_after_others_took = |first: usize, now: i64| {
        capacity.first = first;
        engine.set_now(EpochSeconds::new(now));
        engine.enqueue_job(Job { priority: 1, ..job(&format!("other{now}"), "q", now, amounts(1, 0)) });
        assert!(engine.release_next_in_clusters(&mut capacity).is_some());
        assert_eq!(engine.release_next_in_clusters(&mut capacity), None);
        let kept = engine.reservation_of("copies").map(|kept| kept.clusters);
        kept.and_then(|kept| Some((kept.first()?.to_string(), kept.last()?.to_string())))
    };
    let from_to = |first: &str, last: &str| Some((first.to_owned(), last.to_owned()));
    assert_eq!(kept_after_others_took(1, 61), from_to("m01", "m06"));
    assert_eq!(kept_after_others_took(3, 62), from_to("m01", "m08"));
    assert_eq!(kept_after_others_took(9, 63), from_to("m01", "m08"), "fourteen would be too many");
    assert_eq!(kept_after_others_took(9, 3660), from_to("m09", "m14"), "others in their turn");
}
