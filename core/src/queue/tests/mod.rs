//! Each rule of the queue engine by name; the numbers in names are the defects listed for the peer.

mod aging;
mod capacity_reservations;
mod choices;
mod entitlement;
mod last_ancestors;
mod names;
mod order;
mod running;
mod tenant_order;

use std::sync::Arc;

use super::*;
use crate::{
    gang::QueueName,
    quantity::Quantity,
    reason::{Bound, QueueProblem, Reason},
    resources::{Limits, Resources},
    tenant::Tenant,
};

fn cpu(units: i64) -> Resources {
    [("cpu", Quantity::from_units(units))].into_iter().collect()
}

fn limit(units: i64) -> Limits {
    [("cpu".into(), Quantity::from_units(units))].into_iter().collect()
}

fn queue(name: &str, capability: i64) -> QueueSpec {
    QueueSpec { capability: limit(capability), ..QueueSpec::unlimited(name) }
}

fn child(name: &str, parent: &str, capability: i64) -> QueueSpec {
    QueueSpec { parent: Some(parent.into()), ..queue(name, capability) }
}

fn job(id: &str, queue: &str, created: i64, request: Resources) -> Job {
    let task = TaskAsk { name: "t".into(), request, min: 1, most: 1, step: 1 };
    let ask = Ask { tasks: vec![task], copies: 1, fit: FitClass(0), run_for: None, counted: Counted::Job, card: None };
    Job { id: id.into(), queue: queue.into(), priority: 0, created: created.into(), deadline: None, ask: Arc::new(ask) }
}

fn engine(queues: impl IntoIterator<Item = QueueSpec>, fleet: i64) -> Engine {
    let mut engine = Engine::default();
    engine.set_fleet(FleetResources { ready: cpu(fleet), whole: Some(cpu(fleet)), ready_clusters: 1 });
    for queue in queues {
        engine.set_queue(queue);
    }
    engine
}

fn released(engine: &mut Engine) -> Vec<String> {
    std::iter::from_fn(|| engine.release_next_by_fit(|_, _| Fit::Yes)).map(|release| release.id.to_string()).collect()
}

fn token(engine: &Engine, id: &str) -> &'static str {
    engine.explain_pending(id).unwrap().token()
}

#[test]
fn a_pause_releases_nothing_and_ends_where_it_began() {
    let mut engine = engine([queue("q", 5)], 100);
    engine.enqueue_job(job("runs", "q", 1, cpu(4)));
    engine.enqueue_job(job("waits", "q", 2, cpu(2)));
    engine.set_reservation_after(Some(500));
    assert_eq!(released(&mut engine), ["runs"]);
    assert!(engine.next_due().is_some());
    assert!(engine.set_paused(Some("upgrade".into())) && !engine.set_paused(Some("upgrade".into())));
    for (id, created, units) in [("small", 3, 1), ("never", 4, 9)] {
        engine.enqueue_job(job(id, "q", created, cpu(units)));
    }
    assert_eq!(released(&mut engine), [""; 0]);
    assert_eq!((token(&engine, "small"), token(&engine, "never")), ("Paused", "ExceedsCapability"));
    let why = engine.explain_pending("small").unwrap().to_string();
    assert_eq!(why, "waits in queue q, position 2 of 2: an admin paused all releases (upgrade)");
    // Nobody is evicted for one who could not start, and nothing falls due.
    assert!(engine.list_preemption_candidates(9).is_empty() && engine.next_due().is_none());
    assert!(engine.set_paused(None));
    assert_eq!(released(&mut engine), ["small"]);
    assert_eq!(token(&engine, "waits"), "WaitingForQuota");
}

#[test]
fn a_job_that_runs_is_admitted_again_only_where_the_ceilings_still_hold_it() {
    let mut engine = engine([queue("top", 6), child("a", "top", 5), child("b", "top", 5)], 100);
    let runs = job("a1", "a", 1, cpu(4));
    let again = |engine: &mut Engine| {
        engine.resolve_quota();
        engine.would_admit_again("a1", &"a".into(), &runs.ask)
    };
    assert!(!again(&mut engine), "it holds nothing");
    engine.enqueue_job(runs.clone());
    assert_eq!(released(&mut engine), ["a1"]);
    engine.charge_job(&"b1".into(), &"b".into(), &cpu(2));
    assert!(again(&mut engine));
    engine.charge_job(&"b1".into(), &"b".into(), &cpu(3));
    assert!(!again(&mut engine), "its sibling took what its parent may have");
    engine.charge_job(&"b1".into(), &"b".into(), &cpu(2));
    engine.set_queue(child("a", "top", 3));
    assert!(!again(&mut engine), "its queue may have less now");
    engine.set_queue(QueueSpec { state: QueueState::Closed, ..child("a", "top", 5) });
    assert!(!again(&mut engine), "its queue takes nobody");
}

#[test]
fn every_ancestor_s_ceiling_holds_defect_5() {
    let mut engine = engine([queue("top", 6), child("a", "top", 5), child("b", "top", 5)], 100);
    engine.enqueue_job(job("a1", "a", 1, cpu(4)));
    engine.enqueue_job(job("b1", "b", 2, cpu(4)));
    assert_eq!(released(&mut engine), ["a1"]);
    let why = engine.explain_pending("b1").unwrap();
    assert_eq!(
        why.to_string(),
        "waits in queue b, position 1 of 1: needs cpu 4, used 4 of 6 (the capability of queue top)"
    );
    assert_eq!(engine.usage_of(&"top".into()).used, cpu(4));
}

#[test]
fn queues_without_a_ceiling_share_the_fleet_defect_5() {
    let mut engine = engine((0..10).map(|i| QueueSpec::unlimited(format!("q{i}"))), 10);
    for i in 0..10 {
        engine.enqueue_job(job(&format!("j{i}"), &format!("q{i}"), i, cpu(4)));
    }
    assert_eq!(released(&mut engine), ["j0", "j1"]);
    let Some(Reason::Quota { bound: Bound::Fleet, .. }) = engine.explain_pending("j2") else {
        panic!("{:?}", engine.explain_pending("j2"))
    };
}

#[test]
fn a_fleet_without_a_resource_has_none_of_it_defect_7() {
    let mut engine = engine([QueueSpec::unlimited("q")], 10);
    engine.enqueue_job(job("gpu", "q", 1, [("nvidia.com/gpu", Quantity::from_units(1))].into_iter().collect()));
    assert!(released(&mut engine).is_empty());
    assert_eq!(token(&engine, "gpu"), "ExceedsFleet");
    // While a cluster is unknown nobody says never.
    engine.set_fleet(FleetResources { ready: cpu(10), whole: None, ready_clusters: 1 });
    engine.resolve_quota();
    assert_eq!(token(&engine, "gpu"), "WaitingForQuota");
    engine.set_fleet(FleetResources::default());
    engine.resolve_quota();
    assert_eq!(token(&engine, "gpu"), "NoReadyCluster");
}

/// Tenants write the names of models, so that nothing is worked out anew for one that no queue limits.
#[test]
fn a_card_model_that_nobody_named_before_has_no_ceiling_at_once() {
    let mut engine = engine([QueueSpec::unlimited("q")], 10);
    engine.resolve_quota();
    let request = [("cpu", 4), ("x.io/gpu:a", 8)].map(|(name, units)| (name, Quantity::from_units(units)));
    engine.enqueue_job(job("a", "q", 1, request.into_iter().collect()));
    engine.charge_job(&"b".into(), &"q".into(), &[("x.io/gpu:b", Quantity::from_units(8))].into_iter().collect());
    assert_eq!(released(&mut engine), ["a"]);
    let used = engine.usage_of(&"q".into()).used;
    assert_eq!(used.to_string(), "cpu 4, x.io/gpu:a 8, x.io/gpu:b 8");
}

#[test]
fn a_cluster_that_goes_takes_its_capacity_along_defect_6() {
    let mut engine = engine([QueueSpec::unlimited("q")], 10);
    engine.enqueue_job(job("a", "q", 1, cpu(6)));
    engine.set_fleet(FleetResources { ready: cpu(5), whole: Some(cpu(10)), ready_clusters: 1 });
    assert!(released(&mut engine).is_empty());
    assert_eq!(token(&engine, "a"), "WaitingForQuota");
}

#[test]
fn freed_quota_starts_the_next_job_defect_1() {
    let mut engine = engine([queue("q", 4)], 100);
    for (created, id) in ["a", "b", "c"].into_iter().enumerate() {
        engine.enqueue_job(job(id, "q", created as i64, cpu(4)));
    }
    assert_eq!(released(&mut engine), ["a"]);
    // Finished, not deleted: the charge is nothing.
    engine.charge_job(&"a".into(), &"q".into(), &Resources::new());
    assert_eq!(released(&mut engine), ["b"]);
    // Deleted.
    engine.remove_job("b");
    assert_eq!(released(&mut engine), ["c"]);
}

#[test]
fn a_cycle_drains_everything_that_fits() {
    let mut engine = engine([queue("q", 100)], 100);
    for i in 0..100 {
        engine.enqueue_job(job(&format!("j{i:02}"), "q", i, cpu(1)));
    }
    assert_eq!(released(&mut engine).len(), 100);
}

#[test]
fn nobody_waits_behind_who_can_never_start() {
    let fifo = |queue: QueueSpec| QueueSpec { dequeue: Dequeue::Fifo, ..queue };
    let guaranteed = QueueSpec { guarantee: cpu(30), ..queue("g", 100) };
    let mut engine = engine([fifo(queue("q", 90)), guaranteed], 100);
    for (i, (id, asked)) in
        [("limit", 91), ("left", 75), ("room", 7), ("big", 65), ("small", 5)].into_iter().enumerate()
    {
        let mut job = job(id, "q", i as i64, cpu(asked));
        Arc::make_mut(&mut job.ask).fit = FitClass(i as u64);
        engine.enqueue_job(job);
    }
    engine.charge_job(&"runs".into(), &"q".into(), &cpu(16));
    let fit = |_: &JobId, ask: &Ask| match ask.fit {
        FitClass(2) => Fit::No { never: true, detail: "no node is so large".into() },
        _ => Fit::Yes,
    };
    assert!(engine.release_next_by_fit(fit).is_none());
    let tokens = ["limit", "left", "room", "big", "small"].map(|id| token(&engine, id));
    assert_eq!(tokens, ["ExceedsCapability", "ExceedsCapability", "NeverFits", "WaitingForQuota", "BehindQueueHead"]);
    assert_eq!(
        engine.explain_pending("left").unwrap().to_string(),
        "can never start in queue q: needs cpu 75, more than 70, which is what other queues' guarantees leave to queue q"
    );
    let heads = |engine: &Engine| engine.queue_heads(4).map(|(id, at)| (id.to_string(), at.place)).collect::<Vec<_>>();
    assert_eq!(heads(&engine), [("big".to_owned(), 1)], "who may claim");
    // Once it can, it is the first again.
    engine.set_queue(queue("g", 100));
    assert!(engine.release_next_by_fit(fit).is_none());
    assert_eq!([token(&engine, "left"), token(&engine, "big")], ["WaitingForQuota", "BehindQueueHead"]);
    engine.remove_job("runs");
    assert_eq!(engine.release_next_by_fit(fit).unwrap().id.as_str(), "left");
}

/// Found by a user: position 5, behind four that can never start.
#[test]
fn who_can_never_start_is_in_nobodys_position() {
    for (dequeue, paused) in [(Dequeue::Traverse, false), (Dequeue::Fifo, false), (Dequeue::Traverse, true)] {
        let mut engine = engine([QueueSpec { dequeue, ..queue("q", 10) }], 100);
        engine.set_paused(paused.then(|| "upgrade".into()));
        engine.charge_job(&"runs".into(), &"q".into(), &cpu(8));
        assert!(released(&mut engine).is_empty());
        for (i, (id, asked)) in [("n1", 11), ("a", 5), ("n2", 12), ("n3", 12), ("b", 6)].into_iter().enumerate() {
            engine.enqueue_job(job(id, "q", i as i64, cpu(asked)));
        }
        assert!(released(&mut engine).is_empty());
        let says = |id: &str| engine.explain_pending(id).unwrap().to_string();
        assert!(says("a").contains("position 1 of 2") && says("b").contains("position 2 of 2"), "{}", says("b"));
        let line: Vec<_> = engine.list_pending_positions().collect();
        assert_eq!(
            line.iter().map(|(id, at)| (id.as_str(), at.place)).collect::<Vec<_>>(),
            [("n1", 1), ("a", 1), ("n2", 2), ("n3", 2), ("b", 2)]
        );
        for (id, at) in line {
            let reason = engine.explain_pending_at(id.as_str(), at).unwrap();
            assert_eq!(reason.to_string(), says(id.as_str()));
            assert_eq!(reason.is_unsatisfiable(), engine.is_unsatisfiable(id.as_str()), "{id} {dequeue:?} {paused}");
        }
        // They are in line again once their queue may have so much.
        engine.set_queue(QueueSpec { dequeue, ..queue("q", 12) });
        assert!(released(&mut engine).is_empty());
        assert!(engine.explain_pending("b").unwrap().to_string().contains("position 5 of 5"));
    }
}

/// While a cluster is away, or one is unknown, more may come.
#[test]
fn what_guarantees_leave_is_of_all_that_may_come_back() {
    let guaranteed = QueueSpec { guarantee: cpu(30), ..QueueSpec::unlimited("g") };
    let mut engine = engine([QueueSpec::unlimited("q"), guaranteed], 100);
    engine.enqueue_job(job("a", "q", 1, cpu(75)));
    for (whole, want) in [(Some(100), "ExceedsCapability"), (Some(105), "WaitingForQuota"), (None, "WaitingForQuota")] {
        engine.set_fleet(FleetResources { ready: cpu(100), whole: whole.map(cpu), ready_clusters: 1 });
        assert!(released(&mut engine).is_empty());
        assert_eq!(token(&engine, "a"), want);
    }
}

#[test]
fn only_open_queues_start_jobs_and_running_ones_stay_charged_defect_11() {
    let mut engine = engine([queue("q", 10)], 100);
    engine.charge_job(&"runs".into(), &"q".into(), &cpu(3));
    engine.enqueue_job(job("a", "q", 1, cpu(1)));
    engine.set_queue(QueueSpec { state: QueueState::Closing, ..queue("q", 10) });
    assert!(released(&mut engine).is_empty());
    assert_eq!(engine.explain_pending("a").unwrap().to_string(), "queue q is Closing: it starts no jobs");
    engine.remove_queue(&"q".into());
    assert!(released(&mut engine).is_empty());
    assert_eq!(engine.explain_pending("a").unwrap().to_string(), "queue q does not exist");
    assert_eq!((engine.usage_of(&"q".into()).used, engine.usage_of(&"root".into()).used), (cpu(3), cpu(3)));
    engine.set_queue(queue("q", 10));
    assert_eq!(released(&mut engine), ["a"]);
    assert_eq!(engine.usage_of(&"q".into()).used, cpu(4));
}

#[test]
fn one_queue_s_mistake_stops_only_its_own_jobs() {
    let mut engine = engine(
        [
            child("orphan", "nowhere", 10),
            child("x", "y", 10),
            child("y", "x", 10),
            queue("parent", 10),
            child("leaf", "parent", 10),
            queue("closed", 10),
            child("below", "closed", 10),
            queue("fine", 10),
        ],
        100,
    );
    engine.set_queue(QueueSpec { state: QueueState::Closed, ..queue("closed", 10) });
    for queue in ["orphan", "x", "parent", "leaf", "below", "root", "fine"] {
        engine.enqueue_job(job(queue, queue, 1, cpu(1)));
    }
    assert_eq!(released(&mut engine), ["fine", "leaf"]);
    let problem = |queue: &str| engine.queue_problem(&QueueName::from(queue)).unwrap();
    assert_eq!(problem("orphan"), QueueProblem::ParentMissing("nowhere".into()));
    assert_eq!(problem("x"), QueueProblem::Cycle);
    assert_eq!(problem("parent"), QueueProblem::NotLeaf("leaf".into()));
    assert_eq!(problem("below"), QueueProblem::NotOpen { queue: "closed".into(), state: "Closed" });
    assert_eq!(problem("root"), QueueProblem::Root);
    assert_eq!(token(&engine, "x"), "QueueMisconfigured");
}

#[test]
fn more_than_any_limit_is_never_and_not_waiting_defect_12() {
    let mut engine = engine([queue("q", 8)], 100);
    engine.charge_job(&"runs".into(), &"q".into(), &cpu(5));
    engine.enqueue_job(job("never", "q", 1, cpu(9)));
    engine.enqueue_job(job("later", "q", 2, cpu(8)));
    assert!(released(&mut engine).is_empty());
    assert_eq!(
        engine.explain_pending("never").unwrap().to_string(),
        "can never start in queue q: needs cpu 9, more than 8, which is the capability of queue q"
    );
    assert_eq!(token(&engine, "later"), "WaitingForQuota");
}

#[test]
fn no_room_is_asked_once_a_class_and_again_when_room_grew_defect_12() {
    let mut engine = engine([queue("q", 100)], 100);
    for i in 0..1000 {
        engine.enqueue_job(job(&format!("j{i}"), "q", i, cpu(1)));
    }
    let mut asked = 0;
    let full = |_: &JobId, _: &Ask| {
        asked += 1;
        Fit::No { never: false, detail: "3 of 8 pods fit".into() }
    };
    assert!(engine.release_next_by_fit(full).is_none());
    assert_eq!(asked, 1);
    assert_eq!(
        engine.explain_pending("j0").unwrap().to_string(),
        "waits in queue q, position 1 of 1000: there is quota, but insufficient capacity: 3 of 8 pods fit"
    );
    assert!(engine.release_next_by_fit(|_, _| Fit::Yes).is_none(), "nothing grew");
    engine.requeue_after_capacity_change();
    assert_eq!(released(&mut engine).len(), 100);
}

#[test]
fn all_tasks_and_all_copies_are_charged_defects_2_and_10() {
    let mut engine = engine([queue("q", 100)], 100);
    let tasks = vec![
        TaskAsk { name: "launcher".into(), request: cpu(1), min: 1, most: 1, step: 1 },
        TaskAsk { name: "worker".into(), request: cpu(4), min: 4, most: 4, step: 1 },
    ];
    let ask = Arc::new(Ask { tasks, copies: 3, fit: FitClass(0), run_for: None, counted: Counted::Job, card: None });
    engine.enqueue_job(Job { ask, ..job("a", "q", 1, cpu(0)) });
    let release = engine.release_next_by_fit(|_, _| Fit::Yes).unwrap();
    assert_eq!(release.admission.charged, cpu(51));
    assert_eq!(release.admission.copies, 3);
    assert_eq!(engine.usage_of(&"q".into()).used, cpu(51));
}

#[test]
fn what_is_beyond_the_minimum_is_granted_as_far_as_it_fits() {
    let mut engine = engine([queue("q", 10)], 100);
    let tasks = vec![TaskAsk { name: "worker".into(), request: cpu(3), min: 2, most: 8, step: 1 }];
    let ask = Arc::new(Ask { tasks, copies: 1, fit: FitClass(0), run_for: None, counted: Counted::Job, card: None });
    engine.enqueue_job(Job { ask, ..job("a", "q", 1, cpu(0)) });
    let admission = engine.release_next_by_fit(|_, _| Fit::Yes).unwrap().admission;
    assert_eq!(admission.tasks, [("worker".into(), 3)].into());
    assert_eq!(admission.charged, cpu(9));
}

#[test]
fn partitions_beyond_the_minimum_are_granted_whole() {
    let mut engine = engine([queue("q", 45)], 100);
    let tasks = vec![
        TaskAsk { name: "worker".into(), request: cpu(3), min: 8, most: 16, step: 4 },
        TaskAsk { name: "eval".into(), request: cpu(1), min: 0, most: 20, step: 1 },
    ];
    let ask = Arc::new(Ask { tasks, copies: 1, fit: FitClass(0), run_for: None, counted: Counted::Job, card: None });
    engine.enqueue_job(Job { ask, ..job("a", "q", 1, cpu(0)) });
    // 45 cores are 15 workers: 12 in whole partitions, and 9 of the others.
    let admission = engine.release_next_by_fit(|_, _| Fit::Yes).unwrap().admission;
    assert_eq!(admission.tasks, [("worker".into(), 12), ("eval".into(), 9)].into());
    assert_eq!(admission.charged, cpu(45));
}

#[test]
fn a_ceiling_that_is_already_broken_blocks_only_those_who_ask_for_it() {
    let mut engine = engine([queue("q", 4)], 100);
    engine.charge_job(&"foreign".into(), &"q".into(), &cpu(9));
    engine.set_fleet(FleetResources {
        ready: [("cpu", Quantity::from_units(100)), ("gpu", Quantity::from_units(1))].into_iter().collect(),
        whole: None,
        ready_clusters: 1,
    });
    engine.enqueue_job(job("gpu", "q", 1, [("gpu", Quantity::from_units(1))].into_iter().collect()));
    engine.enqueue_job(job("cpu", "q", 2, cpu(1)));
    assert_eq!(released(&mut engine), ["gpu"]);
}

#[test]
fn a_guarantee_is_kept_free_for_its_queue() {
    let guaranteed = QueueSpec { guarantee: cpu(6), ..QueueSpec::unlimited("ml") };
    let mut engine = engine([guaranteed, QueueSpec::unlimited("web")], 10);
    engine.enqueue_job(job("web1", "web", 1, cpu(4)));
    engine.enqueue_job(job("web2", "web", 2, cpu(1)));
    engine.enqueue_job(job("ml1", "ml", 3, cpu(6)));
    assert_eq!(released(&mut engine), ["web1", "ml1"]);
    assert_eq!(
        engine.explain_pending("web2").unwrap().to_string(),
        "waits in queue web, position 1 of 1: needs cpu 1, used 4 of 4 (what other queues' guarantees leave to queue web)"
    );
}

#[test]
fn zero_cpu_is_no_limit_and_zero_of_anything_else_is() {
    let mut spec = queue("q", 0);
    spec.capability.set("gpu", Quantity::ZERO);
    let mut engine = engine([spec], 10);
    engine.enqueue_job(job("cpu", "q", 1, cpu(10)));
    engine.enqueue_job(job("gpu", "q", 2, [("gpu", Quantity::from_units(1))].into_iter().collect()));
    assert_eq!(released(&mut engine), ["cpu"]);
    assert_eq!(token(&engine, "gpu"), "ExceedsCapability");
}

#[test]
fn a_job_keeps_its_age_when_it_comes_back() {
    let mut engine = engine([queue("q", 4)], 100);
    engine.enqueue_job(job("old", "q", 1, cpu(4)));
    engine.enqueue_job(job("new", "q", 2, cpu(4)));
    assert_eq!(released(&mut engine), ["old"]);
    engine.enqueue_job(job("old", "q", 1, cpu(4)));
    assert_eq!(released(&mut engine), ["old"]);
}

#[test]
fn many_queues_come_and_go_without_leaving_anything() {
    let mut engine = engine([queue("q", 4)], 100);
    engine.charge_job(&"runs".into(), &"q".into(), &cpu(1));
    for i in 0..2000 {
        let name = format!("temporary{i}");
        engine.set_queue(queue(&name, 1));
        engine.enqueue_job(job(&name, &name, 1, cpu(1)));
        engine.resolve_quota();
        engine.remove_job(&name);
        engine.remove_queue(&name.as_str().into());
    }
    engine.resolve_quota();
    assert!(engine.size() < 8, "{}", engine.size());
    assert_eq!(engine.usage_of(&"root".into()).used, cpu(1));
}
