//! Limits of running jobs.

use super::*;
use crate::time::EpochSeconds;

const GPU: &str = "nvidia.com/gpu";

fn running(all: Option<u32>, of_namespace: Option<u32>) -> RunningLimits {
    RunningLimits { all, of_namespace, of_user: None }
}

fn of_namespace(namespace: &str, mut job: Job) -> Job {
    Arc::make_mut(&mut job.ask).counted = Counted::JobOf([Tenant::Namespace(namespace.into())].into());
    job
}

fn says(engine: &Engine, id: &str) -> String {
    engine.explain_pending(id).unwrap().to_string()
}

#[test]
fn a_job_beyond_a_running_limit_waits_with_the_numbers_and_starts_when_one_ends() {
    let top = QueueSpec { running: running(Some(2), None), ..queue("top", 100) };
    let mut engine = engine([top, child("a", "top", 100), child("b", "top", 100)], 100);
    for (id, name) in [("a1", "a"), ("b1", "b"), ("a2", "a"), ("b2", "b")] {
        engine.enqueue_job(job(id, name, 1, cpu(1)));
    }
    assert_eq!(released(&mut engine), ["a1", "b1"]);
    assert_eq!(token(&engine, "a2"), "WaitingForRunningJobs");
    assert_eq!(
        says(&engine, "a2"),
        "waits in queue a, position 1 of 1: 2 jobs running in queue top and those below it, 2 at most"
    );
    // It is still one job as its pods end, and none when nothing of it is left.
    engine.charge_job(&"a1".into(), &"a".into(), &cpu(0));
    assert_eq!(engine.usage_of(&"top".into()).running, 1);
    assert_eq!(released(&mut engine), ["a2"]);
    assert!(engine.list_preemption_candidates(9).is_empty(), "nobody is evicted for a place among those that run");
}

#[test]
fn jobs_of_another_namespace_pass_one_whose_namespace_runs_as_many_as_it_may() {
    let mut engine = engine([QueueSpec { running: running(None, Some(1)), ..queue("q", 100) }], 100);
    for (id, namespace, created) in [("m1", "ml", 1), ("m2", "ml", 2), ("w1", "web", 3), ("m3", "ml", 4)] {
        engine.enqueue_job(of_namespace(namespace, job(id, "q", created, cpu(1))));
    }
    engine.set_now(EpochSeconds::new(1_000));
    assert_eq!(released(&mut engine), ["m1", "w1"]);
    assert_eq!(
        says(&engine, "m2"),
        "waits in queue q, position 1 of 2: 1 job of namespace ml running in queue q and those below it, 1 at most"
    );
    assert!(!engine.has_reservation("m2"), "what is reserved for it would be kept from other namespaces");
    engine.remove_job("w1");
    assert_eq!(released(&mut engine), [""; 0]);
    engine.remove_job("m1");
    assert_eq!(released(&mut engine), ["m2"]);
}

#[test]
fn a_user_is_limited_in_all_namespaces_together_and_beside_each_of_them() {
    let limits = RunningLimits { all: None, of_namespace: Some(2), of_user: Some(1) };
    let mut engine = engine([QueueSpec { running: limits, ..queue("q", 100) }], 100);
    let all = [("1", "ml", Some("ada")), ("2", "web", Some("ada")), ("3", "ml", Some("bob")), ("4", "ml", None)];
    for (created, (id, namespace, user)) in (0..).zip(all) {
        let mut job = job(id, "q", created, cpu(1));
        let user = user.map(|user: &str| Tenant::User(user.into()));
        let tenants = [Tenant::Namespace(namespace.into())].into_iter().chain(user).collect();
        Arc::make_mut(&mut job.ask).counted = Counted::JobOf(tenants);
        engine.enqueue_job(job);
    }
    assert_eq!(released(&mut engine), ["1", "3"]);
    let most = "running in queue q and those below it,";
    assert_eq!(says(&engine, "2"), format!("waits in queue q, position 1 of 2: 1 job of user ada {most} 1 at most"));
    assert_eq!(
        says(&engine, "4"),
        format!("waits in queue q, position 2 of 2: 2 jobs of namespace ml {most} 2 at most")
    );
    engine.remove_job("1");
    assert_eq!(released(&mut engine), ["2", "4"]);
}

#[test]
fn more_of_a_job_that_runs_is_no_other_job() {
    let mut engine = engine([QueueSpec { running: running(Some(1), None), ..queue("q", 100) }], 100);
    engine.charge_job(&"a".into(), &"q".into(), &cpu(1));
    let mut more = job("a+more", "q", 2, cpu(1));
    Arc::make_mut(&mut more.ask).counted = Counted::More(Box::default());
    engine.enqueue_job(more);
    engine.enqueue_job(job("b", "q", 1, cpu(1)));
    assert_eq!(released(&mut engine), ["a+more"]);
    assert_eq!(engine.usage_of(&"q".into()).running, 1);
}

#[test]
fn limits_count_after_a_restart_and_a_lower_one_ends_nothing() {
    let mut engine = engine([queue("q", 100)], 100);
    let ns = Tenant::Namespace("ns".into());
    for id in ["a", "b"] {
        engine.charge_job_with_ancestors(&id.into(), &"q".into(), &[], &cpu(1), &Counted::JobOf([ns.clone()].into()));
    }
    engine.set_queue(QueueSpec { running: running(Some(1), Some(2)), ..queue("q", 100) });
    engine.enqueue_job(job("c", "q", 1, cpu(1)));
    assert_eq!(released(&mut engine), [""; 0]);
    let usage = engine.usage_of(&"q".into());
    assert_eq!((usage.running, usage.running_of[&ns]), (2, 2));
    engine.remove_job("a");
    assert_eq!(released(&mut engine), [""; 0]);
    engine.set_queue(queue("q", 100));
    assert_eq!(released(&mut engine), ["c"]);
}

#[test]
fn the_place_of_a_job_that_has_a_reservation_is_kept_with_it() {
    let limits = [("cpu".into(), Quantity::from_units(100)), (GPU.into(), Quantity::from_units(1))];
    let q = QueueSpec { running: running(Some(2), None), capability: limits.into_iter().collect(), ..queue("q", 100) };
    let mut engine = engine([q], 100);
    let both: Resources = [("cpu", Quantity::from_units(100)), (GPU, Quantity::from_units(1))].into_iter().collect();
    engine.set_fleet(FleetResources { ready: both.clone(), whole: Some(both), ready_clusters: 1 });
    let gpu = || [(GPU, Quantity::from_units(1))].into_iter().collect::<Resources>();
    engine.enqueue_job(job("runs", "q", 1, gpu()));
    assert_eq!(released(&mut engine), ["runs"]);
    engine.enqueue_job(job("waits", "q", 2, gpu()));
    engine.set_now(EpochSeconds::new(1_000));
    assert_eq!(released(&mut engine), [""; 0]);
    assert!(engine.has_reservation("waits"));
    // It asks for none of what is short there, and would take the place.
    engine.enqueue_job(job("small", "q", 3, cpu(1)));
    assert_eq!(released(&mut engine), [""; 0]);
    assert_eq!(
        says(&engine, "small"),
        "waits in queue q, position 2 of 2: 1 job running in queue q and those below it, 1 more reserved for those \
         that rank before it and have waited long, 2 at most"
    );
    engine.remove_job("runs");
    assert_eq!(released(&mut engine), ["waits", "small"]);
}
