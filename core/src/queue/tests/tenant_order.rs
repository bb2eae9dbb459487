//! Tenants of one queue that take turns.

use std::collections::BTreeMap;

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

#[test]
fn by_fair_history_what_a_tenant_used_lately_counts_as_much_as_what_it_has() {
    let start = engine([turns(TenantOrder::Users, 10)], 100);
    let charged = of("ada", "ns", job("x", "q", 0, cpu(1))).ask.counted.clone();
    let begin = |policy| {
        let mut engine = start.clone();
        engine.set_history_half_life(100);
        engine.set_order_policy(policy);
        engine.set_now(EpochSeconds::new(1000));
        engine.charge_job_with_ancestors(&"ran".into(), &"q".into(), &[], &cpu(8), &charged);
        engine.resolve_quota();
        // A mean of 6.
        engine.set_now(EpochSeconds::new(1200));
        engine.remove_job("ran");
        for i in 0..9 {
            engine.enqueue_job(of("ada", "ns", job(&format!("a{i}"), "q", 0, cpu(1))));
            engine.enqueue_job(of("bob", "ns", job(&format!("b{i}"), "q", 1, cpu(1))));
        }
        engine
    };
    let share = |engine: &Engine, id: &str| engine.tenant_turn(id).map(|(_, percent)| percent);
    let mut engine = begin(OrderPolicy::FairHistory);
    engine.resolve_quota();
    assert_eq!([share(&engine, "a0"), share(&engine, "b0")], [Some(30), Some(0)]);
    let first = released(&mut engine);
    // Eight cores and a mean of nothing, and two and a mean of six.
    assert_eq!(first.iter().filter(|id| id.starts_with('b')).count(), 8, "{first:?}");
    assert!(first[..6].iter().all(|id| id.starts_with('b')), "{first:?}");
    let without = released(&mut begin(OrderPolicy::Share));
    assert_eq!(without.iter().filter(|id| id.starts_with('b')).count(), 5, "{without:?}");
}

fn told(engine: &Engine) -> FairHistory {
    engine.fair_history(|_, _, _| true)
}

#[test]
fn the_history_of_tenants_is_told_taken_over_and_forgotten() {
    let fair = || {
        let mut engine = engine([turns(TenantOrder::Users, 10)], 100);
        engine.set_history_half_life(100);
        engine.set_order_policy(OrderPolicy::FairHistory);
        engine.set_now(EpochSeconds::new(1000));
        engine
    };
    let charged = of("ada", "ns", job("x", "q", 0, cpu(1))).ask.counted.clone();
    let mut first = fair();
    first.charge_job_with_ancestors(&"ran".into(), &"q".into(), &[], &cpu(8), &charged);
    first.resolve_quota();
    first.set_now(EpochSeconds::new(1100));
    first.remove_job("ran");
    first.resolve_quota();
    let history = told(&first);
    let of_users = [Tenant::Namespace("ns".into()), Tenant::User("ada".into())].map(|tenant| (tenant, cpu(4)));
    assert_eq!((history.at.as_seconds(), &history.tenants), (1100, &[("q".into(), of_users.into())].into()));
    let take_over = |now| {
        let mut second = fair();
        second.set_now(EpochSeconds::new(now));
        second.add_fair_history(&history);
        second.enqueue_job(of("ada", "ns", job("a", "q", 0, cpu(1))));
        second.resolve_quota();
        second
    };
    let percent = |engine: &Engine| engine.tenant_turn("a").map(|(_, percent)| percent);
    let mut second = take_over(1100);
    assert_eq!((told(&second), percent(&second)), (history.clone(), Some(20)));
    second.set_now(EpochSeconds::new(1200));
    assert_eq!(percent(&second), Some(10));
    let later = take_over(1200);
    assert_eq!((told(&later).queues, percent(&later)), (told(&second).queues, Some(10)), "nobody used anything since");
    second.ignore_tenant_history();
    second.remove_queue(&"q".into());
    second.set_queue(turns(TenantOrder::Users, 10));
    second.resolve_quota();
    assert_eq!(told(&second).tenants, BTreeMap::new(), "a queue made anew begins with nothing");
    first.set_now(EpochSeconds::new(1000 + 33 * 100));
    assert_eq!(told(&first).tenants, BTreeMap::new(), "what was used long ago is nothing");
}

#[test]
fn what_was_used_before_another_order_counted_is_as_old_as_it_is() {
    let mut engine = engine([turns(TenantOrder::Users, 10)], 100);
    engine.set_history_half_life(100);
    engine.set_order_policy(OrderPolicy::FairHistory);
    engine.set_now(EpochSeconds::new(1000));
    let counted = of("ada", "ns", job("x", "q", 0, cpu(1))).ask.counted.clone();
    engine.charge_job_with_ancestors(&"ran".into(), &"q".into(), &[], &cpu(8), &counted);
    engine.resolve_quota();
    engine.set_now(EpochSeconds::new(1100));
    engine.set_order_policy(OrderPolicy::Share);
    engine.set_now(EpochSeconds::new(1300));
    engine.set_order_policy(OrderPolicy::FairHistory);
    engine.resolve_quota();
    assert_eq!(told(&engine).tenants["q"][&Tenant::User("ada".into())], cpu(1), "a quarter of four");
}

#[test]
fn without_the_history_of_tenants_their_shares_are_of_what_they_have() {
    let mut engine = engine([turns(TenantOrder::Users, 10)], 100);
    engine.set_order_policy(OrderPolicy::FairHistory);
    let counted = of("ada", "ns", job("x", "q", 0, cpu(1))).ask.counted.clone();
    engine.charge_job_with_ancestors(&"runs".into(), &"q".into(), &[], &cpu(6), &counted);
    engine.resolve_quota();
    let percent = |engine: &Engine| engine.list_tenant_shares(&"q".into())[0].1;
    assert_eq!((engine.counts_tenant_history(), percent(&engine)), (true, 30));
    engine.ignore_tenant_history();
    assert_eq!((engine.counts_tenant_history(), percent(&engine)), (false, 60));
}

#[test]
fn of_tenants_without_jobs_a_thousand_who_used_most_are_remembered() {
    let mut engine = engine([turns(TenantOrder::Users, 10)], 100);
    engine.set_history_half_life(1000);
    engine.set_order_policy(OrderPolicy::FairHistory);
    engine.set_now(EpochSeconds::new(1000));
    engine.resolve_quota();
    let mean = |at: i64| [("cpu", Quantity::from_milli(at + 1))].into_iter().collect();
    let user = |at: i64| Tenant::User(format!("{at:04}").into());
    let means = (0..1200).map(|at| (user(at), mean(at))).collect();
    let at = EpochSeconds::new(1000);
    engine.add_fair_history(&FairHistory { at, tenants: [("q".into(), means)].into(), ..FairHistory::default() });
    engine.set_now(EpochSeconds::new(1010));
    let kept = &told(&engine).tenants["q"];
    assert!(kept.keys().eq((200..1200).map(user).collect::<Vec<_>>().iter()), "{}", kept.len());
}

#[test]
fn of_the_history_of_tenants_the_largest_shares_are_kept_first() {
    let mut engine = engine(
        [turns(TenantOrder::Users, 10), QueueSpec { name: "r".into(), ..turns(TenantOrder::Namespaces, 100) }],
        1000,
    );
    engine.set_history_half_life(100);
    engine.set_order_policy(OrderPolicy::FairHistory);
    engine.set_now(EpochSeconds::new(1000));
    for (id, queue, user, amount) in [("a", "q", "ada", 1), ("b", "q", "bob", 2), ("c", "r", "ada", 15)] {
        let counted = of(user, "ns", job(id, queue, 0, cpu(1))).ask.counted.clone();
        engine.charge_job_with_ancestors(&id.into(), &queue.into(), &[], &cpu(amount), &counted);
    }
    engine.resolve_quota();
    engine.set_now(EpochSeconds::new(2000));
    let mut asked = Vec::new();
    let history = engine.fair_history(|queue, tenant, _| {
        asked.push(format!("{queue} {tenant}"));
        asked.len() <= 2
    });
    assert_eq!(asked, ["q namespace ns", "q user bob", "r namespace ns", "q user ada"]);
    assert_eq!(history.tenants.len(), 1);
}

#[test]
fn who_used_less_passes_a_reserving_job_until_it_had_as_much() {
    let mut engine = engine([turns(TenantOrder::Users, 10)], 100);
    engine.set_history_half_life(1000);
    engine.set_order_policy(OrderPolicy::FairHistory);
    engine.set_reservation_after(Some(60));
    engine.set_now(EpochSeconds::new(1000));
    let charge = |engine: &mut Engine, user: &str, cores: i64| {
        let counted = of(user, "ns", job("x", "q", 0, cpu(1))).ask.counted.clone();
        engine.charge_job_with_ancestors(&user.into(), &"q".into(), &[], &cpu(cores), &counted);
    };
    charge(&mut engine, "ada", 8);
    charge(&mut engine, "eve", 2);
    engine.resolve_quota();
    // Means of 4 and 1.
    engine.set_now(EpochSeconds::new(2000));
    engine.remove_job("ada");
    engine.enqueue_job(of("ada", "ns", job("large", "q", 2000, cpu(9))));
    assert!(released(&mut engine).is_empty());
    engine.set_now(EpochSeconds::new(2100));
    assert!(released(&mut engine).is_empty() && engine.has_reservation("large"));
    for i in 0..6 {
        engine.enqueue_job(of("bob", "ns", job(&format!("b{i}"), "q", 2100, cpu(1))));
    }
    assert_eq!(released(&mut engine), ["b0", "b1", "b2", "b3"]);
    // He has four now, and used more every second; what she used counts less.
    engine.set_now(EpochSeconds::new(2400));
    assert!(released(&mut engine).is_empty());
    ["b0", "b1", "b2", "b3"].iter().for_each(|id| engine.remove_job(id));
    engine.set_now(EpochSeconds::new(2500));
    let more = released(&mut engine);
    assert!(more.iter().all(|id| id.starts_with('b')) && more.len() < 4, "{more:?}");
}

#[test]
fn while_nothing_is_released_no_updates_pile_up() {
    let mut engine = engine([turns(TenantOrder::Users, 10)], 100);
    engine.set_order_policy(OrderPolicy::FairHistory);
    engine.set_reservation_after(Some(60));
    let counted = of("ada", "ns", job("x", "q", 0, cpu(1))).ask.counted.clone();
    engine.enqueue_job(of("bob", "ns", job("large", "q", 0, cpu(9))));
    engine.charge_job_with_ancestors(&"runs".into(), &"q".into(), &[], &cpu(8), &counted);
    engine.set_now(EpochSeconds::new(1000));
    assert!(released(&mut engine).is_empty());
    assert!(engine.has_reservation("large"));
    engine.set_paused(Some("maintenance".into()));
    let mut count = |at: i64| {
        engine.set_now(EpochSeconds::new(1000 + 10 * at));
        engine.charge_job(&"runs".into(), &"q".into(), &cpu(7 - at % 2));
        engine.release_next_by_fit(|_, _| Fit::Yes);
        engine.size()
    };
    let first = count(1);
    assert!((2..100).all(|at| count(at) <= first + 1));
}
