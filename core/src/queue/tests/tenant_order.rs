//! Tenants of one queue that take turns.

use super::*;
use crate::time::EpochSeconds;

fn turns(order: TenantOrder, capability: i64) -> QueueSpec {
    QueueSpec { tenant_order: Some(order), ..queue("q", capability) }
}

/// A job of a user in a namespace.
fn of(user: &str, namespace: &str, mut job: Job) -> Job {
    let tenants = [Tenant::Namespace(namespace.into()), Tenant::User(user.into())];
    Arc::make_mut(&mut job.ask).counted = Counted::JobOf(tenants.into());
    job
}

fn both(cpu: i64, gpu: i64) -> Resources {
    [("cpu", Quantity::from_units(cpu)), ("gpu", Quantity::from_units(gpu))].into_iter().collect()
}

#[test]
fn who_has_less_of_a_queue_goes_first_whoever_came_first() {
    // All are of one namespace.
    let in_line = ["a0", "a1", "a2", "b0"];
    for (order, expected) in [
        (TenantOrder::Users, ["a0", "b0", "a1", "b1"]),
        (TenantOrder::Namespaces, in_line),
        (TenantOrder::None, in_line),
    ] {
        let mut engine = engine([turns(order, 4)], 100);
        for (created, (id, user)) in
            (0..).zip([("a0", "ada"), ("a1", "ada"), ("a2", "ada"), ("b0", "bob"), ("b1", "bob")])
        {
            engine.enqueue_job(of(user, "ns", job(id, "q", created, cpu(1))));
        }
        assert_eq!(released(&mut engine), expected);
    }
}

/// The example of the paper (Ghodsi et al., NSDI'11, 4.1): 9 cpu and 18 of the other resource.
#[test]
fn shares_of_the_dominant_resource_become_equal() {
    let mut engine = Engine::default();
    let fleet = both(9, 18);
    engine.set_fleet(FleetResources { ready: fleet.clone(), whole: Some(fleet), ready_clusters: 1 });
    engine.set_queue(QueueSpec { tenant_order: Some(TenantOrder::Users), ..QueueSpec::unlimited("q") });
    for i in 0..9 {
        engine.enqueue_job(of("a", "ns", job(&format!("a{i}"), "q", 0, both(1, 4))));
        engine.enqueue_job(of("b", "ns", job(&format!("b{i}"), "q", 0, both(3, 1))));
    }
    let started = released(&mut engine);
    let of_user = |user: &str| started.iter().filter(|id| id.starts_with(user)).count();
    assert_eq!((of_user("a"), of_user("b")), (3, 2), "{started:?}");
    let turn = |id: &str| engine.tenant_turn(id).map(|(tenant, percent)| (tenant.to_string(), percent));
    assert_eq!([turn("a8"), turn("b8")], [Some(("user a".to_owned(), 66)), Some(("user b".to_owned(), 66))]);
}

#[test]
fn priority_goes_before_shares_and_the_line_shows_whose_turn_it_is() {
    let mut engine = engine([turns(TenantOrder::Users, 4)], 100);
    let charged = of("ada", "ns", job("x", "q", 0, cpu(1))).ask.counted.clone();
    engine.charge_job_with_ancestors(&"runs".into(), &"q".into(), &[], &cpu(4), &charged);
    engine.enqueue_job(of("ada", "ns", job("old", "q", 1, cpu(1))));
    engine.enqueue_job(of("bob", "ns", job("new", "q", 2, cpu(1))));
    engine.enqueue_job(of("ada", "ns", Job { priority: 1, ..job("urgent", "q", 3, cpu(1)) }));
    engine.resolve_quota();
    let line: Vec<String> = engine.list_pending_positions().map(|(id, _)| id.to_string()).collect();
    assert_eq!(line, ["urgent", "new", "old"]);
    assert!(says(&engine, "old").contains("position 3 of 3"), "{}", says(&engine, "old"));
    engine.charge_job_with_ancestors(&"runs".into(), &"q".into(), &[], &cpu(2), &charged);
    assert_eq!(released(&mut engine), ["urgent", "new"]);
}

fn says(engine: &Engine, id: &str) -> String {
    engine.explain_pending(id).unwrap().to_string()
}

#[test]
fn a_reservation_blocks_nobody_who_has_less_and_goes_to_whose_turn_it_is() {
    let mut engine = engine([turns(TenantOrder::Users, 4)], 100);
    engine.set_reservation_after(Some(5));
    let charged = |user| of(user, "ns", job("x", "q", 0, cpu(1))).ask.counted.clone();
    engine.charge_job_with_ancestors(&"a".into(), &"q".into(), &[], &cpu(2), &charged("ada"));
    engine.enqueue_job(of("ada", "ns", job("large", "q", 0, cpu(4))));
    engine.set_now(EpochSeconds::new(10));
    assert!(released(&mut engine).is_empty() && engine.has_reservation("large"));
    engine.enqueue_job(of("ada", "ns", job("small", "q", 10, cpu(1))));
    engine.enqueue_job(of("bob", "ns", job("other", "q", 10, cpu(1))));
    assert_eq!(released(&mut engine), ["other"], "ada has half of the queue");
    engine.enqueue_job(of("bob", "ns", job("big", "q", 10, cpu(3))));
    engine.set_now(EpochSeconds::new(20));
    assert!(released(&mut engine).is_empty() && engine.has_reservation("big") && !engine.has_reservation("large"));
    engine.remove_job("a");
    assert!(released(&mut engine).is_empty(), "its own large one is before it");
    assert!(engine.has_reservation("large") && !engine.has_reservation("big"), "now ada has less");
    engine.remove_job("other");
    assert_eq!(released(&mut engine), ["large"]);
}

#[test]
fn a_fifo_queue_goes_by_its_line() {
    let fifo = QueueSpec { dequeue: Dequeue::Fifo, ..turns(TenantOrder::Users, 4) };
    let mut engine = engine([fifo], 100);
    for (created, (id, user)) in (0..).zip([("a0", "ada"), ("a1", "ada"), ("b0", "bob")]) {
        engine.enqueue_job(of(user, "ns", job(id, "q", created, cpu(2))));
    }
    assert_eq!(released(&mut engine), ["a0", "a1"]);
    assert_eq!(engine.tenant_turn("b0"), None);
}

#[test]
fn a_share_is_of_what_the_queue_may_have_now() {
    let mut engine = engine([turns(TenantOrder::Users, 4)], 100);
    let charged = of("ada", "ns", job("x", "q", 0, cpu(1))).ask.counted.clone();
    engine.charge_job_with_ancestors(&"runs".into(), &"q".into(), &[], &cpu(2), &charged);
    engine.enqueue_job(of("ada", "ns", job("waits", "q", 1, cpu(1))));
    let mut percent = |capability| {
        engine.set_queue(turns(TenantOrder::Users, capability));
        engine.resolve_quota();
        engine.tenant_turn("waits").map(|(_, percent)| percent)
    };
    assert_eq!([4, 8, 2].map(&mut percent), [Some(50), Some(25), Some(100)]);
}

#[test]
fn each_job_is_told_the_place_that_the_line_shows() {
    let mut engine = engine([turns(TenantOrder::Users, 8)], 100);
    for (user, has) in [("ada", 3), ("bob", 1), ("eve", 1)] {
        let charged = of(user, "ns", job("x", "q", 0, cpu(1))).ask.counted.clone();
        engine.charge_job_with_ancestors(&user.into(), &"q".into(), &[], &cpu(has), &charged);
    }
    for i in 0..40 {
        let user = ["ada", "bob", "eve", "ida"][i as usize * 7 % 4];
        let job = Job { priority: (i % 3) as i32, ..job(&format!("{user}{i}"), "q", i * 11 % 17, cpu(5 + i % 2)) };
        engine.enqueue_job(of(user, "ns", job));
    }
    engine.resolve_quota();
    let line: Vec<_> = engine.list_pending_positions().map(|(id, at)| (id.clone(), at)).collect();
    assert_eq!(line.len(), 40);
    for (id, at) in line {
        let reported = says(&engine, id.as_str());
        assert!(reported.contains(" of 40"), "{reported}");
        assert_eq!(engine.explain_pending_at(id.as_str(), at).unwrap().to_string(), reported);
    }
}
