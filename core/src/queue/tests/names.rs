//! Tenants write the names of resources and namespaces: what is gone leaves no name behind, and no name that ever came
//! changes a decision.

use proptest::prelude::*;

use super::*;
use crate::{resources::ResourceName, tenant::Tenant, time::EpochSeconds};

fn one(name: String) -> (ResourceName, Quantity) {
    (name.into(), Quantity::from_units(1))
}

/// Asks for resources that nobody else names.
fn stranger(i: usize, queue: &str) -> Job {
    let mut strange = job("stranger", queue, 0, (0..4).map(|n| one(format!("x.io/strange-{i}-{n}"))).collect());
    Arc::make_mut(&mut strange.ask).counted =
        Counted::JobOf([Tenant::Namespace(format!("namespace-{i}").into())].into());
    strange
}

#[test]
fn names_that_nobody_has_any_more_are_forgotten() {
    let mut engine = engine([queue("q", 8)], 8);
    engine.charge_job(&"runs".into(), &"q".into(), &cpu(1));
    for i in 0..1000 {
        engine.enqueue_job(stranger(i, "q"));
        assert!(released(&mut engine).is_empty());
        assert_eq!(token(&engine, "stranger"), "ExceedsFleet");
        engine.remove_job("stranger");
        // One that was placed by somebody else holds what it asks for.
        let held = Resources::from_iter([one(format!("x.io/foreign-{i}"))]);
        engine.charge_job(&"foreign".into(), &"q".into(), &held);
        engine.resolve_quota();
        let mut both = held.clone();
        both.add(&cpu(1));
        assert_eq!(engine.usage_of(&"q".into()).used, both);
        engine.remove_job("foreign");
    }
    assert!(engine.size() < 40, "{}", engine.size());
    assert_eq!(engine.usage_of(&"root".into()).used, cpu(1));
}

#[test]
fn names_that_no_queue_and_no_cluster_has_cost_no_queue_anything() {
    let tree = |strangers: usize| {
        let queues = (0..100).map(|i| child(&format!("q{i}"), "top", 8)).chain([queue("top", 90)]);
        let mut engine = engine(queues, 100);
        for i in 0..strangers {
            let mut strange = stranger(i, "q0");
            strange.id = format!("stranger-{i}").into();
            engine.enqueue_job(strange);
        }
        // Named after all of theirs.
        engine.set_queue(QueueSpec {
            capability: [("z.io/late".into(), Quantity::from_units(1))].into_iter().collect(),
            ..QueueSpec::unlimited("late")
        });
        engine.resolve_quota();
        engine.count_amounts()
    };
    assert_eq!(tree(500), tree(0));
}

#[derive(Debug, Clone)]
enum Event {
    Arrive(usize, [i64; 3]),
    End(usize),
    Leave(usize),
    Pass(i64),
    Fleet(i64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        5 => (0..3usize, [0..9i64, 0..5i64, 0..3i64]).prop_map(|(queue, asked)| Event::Arrive(queue, asked)),
        3 => (0..40usize).prop_map(Event::End),
        1 => (0..40usize).prop_map(Event::Leave),
        2 => (1..90i64).prop_map(Event::Pass),
        1 => (8..20i64).prop_map(Event::Fleet),
    ]
}

fn amounts(asked: [i64; 3]) -> Resources {
    let named = ["b.io/gpu", "cpu", "memory"].into_iter().zip(asked.map(Quantity::from_units));
    named.filter(|(_, amount)| !amount.is_zero()).collect()
}

fn fleet(engine: &mut Engine, units: i64) {
    let ready = amounts([units, units, units / 2]);
    engine.set_fleet(FleetResources { whole: Some(ready.clone()), ready, ready_clusters: 1 });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_decision_depends_on_names_that_came_before(events in prop::collection::vec(event(), 1..60)) {
        let queues = [queue("top", 12), child("q0", "top", 8), child("q1", "top", 12), queue("q2", 9)];
        let [mut alone, mut among] = [(); 2].map(|()| engine(queues.clone(), 16));
        let (mut now, mut waiting, mut running) = (0, Vec::<String>::new(), Vec::<String>::new());
        for (i, event) in events.into_iter().enumerate() {
            // Before all others, so that every name gets another number.
            for n in 0..3 {
                among.enqueue_job(stranger(3 * i + n, "q2"));
                among.resolve_quota();
            }
            among.remove_job("stranger");
            for engine in [&mut alone, &mut among] {
                match event {
                    Event::Arrive(queue, asked) => {
                        engine.enqueue_job(job(&format!("j{i:02}"), &format!("q{queue}"), now, amounts(asked)));
                    }
                    Event::End(n) if !running.is_empty() => engine.remove_job(&running[n % running.len()]),
                    Event::Leave(n) if !waiting.is_empty() => engine.remove_job(&waiting[n % waiting.len()]),
                    Event::Fleet(units) => fleet(engine, units),
                    Event::Pass(_) | Event::End(_) | Event::Leave(_) => {}
                }
            }
            match event {
                Event::Arrive(..) => waiting.push(format!("j{i:02}")),
                Event::End(n) if !running.is_empty() => drop(running.remove(n % running.len())),
                Event::Leave(n) if !waiting.is_empty() => drop(waiting.remove(n % waiting.len())),
                Event::Pass(seconds) => now += seconds,
                Event::Fleet(_) | Event::End(_) | Event::Leave(_) => {}
            }
            let [first, second] = [&mut alone, &mut among].map(|engine| {
                engine.set_now(EpochSeconds::new(now));
                let started = released(engine);
                let why: Vec<_> = waiting.iter().map(|id| engine.explain_pending(id).map(|why| why.to_string())).collect();
                let used = ["root", "top", "q0", "q1", "q2"].map(|queue| engine.usage_of(&queue.into()).used.to_string());
                (started, why, used)
            });
            prop_assert_eq!(&first, &second);
            waiting.retain(|id| !first.0.contains(id));
            running.extend(first.0);
        }
    }
}
