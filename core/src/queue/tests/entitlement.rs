//! What is kept free, what is deserved, and whose mistake it is.

use super::*;

fn amount(resource: &str, units: i64) -> Resources {
    [(resource, Quantity::from_units(units))].into_iter().collect()
}

fn free(name: &str, parent: &str) -> QueueSpec {
    QueueSpec { parent: (!parent.is_empty()).then(|| parent.into()), ..QueueSpec::unlimited(name) }
}

fn guaranteed(name: &str, parent: &str, units: i64) -> QueueSpec {
    QueueSpec { guarantee: cpu(units), ..free(name, parent) }
}

fn deserving(name: &str, parent: &str, units: i64) -> QueueSpec {
    QueueSpec { deserved: limit(units), ..free(name, parent) }
}

fn weighing(name: &str, parent: &str, weight: u32) -> QueueSpec {
    QueueSpec { weight, ..free(name, parent) }
}

fn settled(queues: impl IntoIterator<Item = QueueSpec>, fleet: i64) -> Engine {
    let mut engine = engine(queues, fleet);
    engine.resolve_quota();
    engine
}

/// Whole cpus.
fn of(engine: &Engine, queue: &str, what: fn(&Entitlement) -> &Resources) -> i128 {
    what(&engine.entitlement_of(&queue.into())).get("cpu").units_ceil()
}

fn deserved<const N: usize>(engine: &Engine, queues: [&str; N]) -> [i128; N] {
    queues.map(|queue| of(engine, queue, |entitled| &entitled.deserved))
}

fn real<const N: usize>(engine: &Engine, queues: [&str; N]) -> [i128; N] {
    queues.map(|queue| of(engine, queue, |entitled| &entitled.real))
}

fn faults(engine: &Engine, queue: &str) -> Vec<String> {
    engine.queue_faults(&queue.into()).iter().map(ToString::to_string).collect()
}

#[test]
fn deserved_stays_within_what_it_can_have_and_is_at_least_the_guarantee() {
    let engine = settled(
        [
            QueueSpec { capability: limit(3), ..deserving("capped", "", 50) },
            deserving("greedy", "", 500),
            QueueSpec { guarantee: cpu(20), ..deserving("modest", "", 5) },
        ],
        100,
    );
    assert_eq!(deserved(&engine, ["capped", "greedy", "modest"]), [3, 80, 20]);
}

#[test]
fn weight_divides_what_is_left_where_nothing_is_said() {
    let queues = || {
        vec![
            deserving("says", "", 40),
            weighing("one", "", 1),
            weighing("three", "", 3),
            QueueSpec { capability: limit(6), ..weighing("capped", "", 9) },
            QueueSpec { guarantee: cpu(18), ..weighing("kept", "", 1) },
        ]
    };
    // 60 are left: 6 for the one that can have no more, 18 for the one that is promised so much, the rest by weight.
    let mut orders = Vec::new();
    for backwards in [false, true] {
        let mut all = queues();
        if backwards {
            all.reverse();
        }
        let engine = settled(all, 100);
        orders.push(deserved(&engine, ["says", "one", "three", "capped", "kept", "root"]));
    }
    assert_eq!(orders, [[40, 9, 27, 6, 18, 100]; 2]);
}

#[test]
fn parts_by_weight_divide_what_the_parent_deserves_and_not_what_it_can_have() {
    let engine = settled(
        [deserving("top", "", 12), weighing("a", "top", 1), weighing("b", "top", 2), weighing("other", "", 1)],
        100,
    );
    assert_eq!(deserved(&engine, ["a", "b", "other"]), [4, 8, 88]);
    assert_eq!(real(&engine, ["a", "b"]), [100, 100], "what others leave idle can be borrowed");
    // Of what the parent does not name its children deserve nothing.
    let gpu =
        QueueSpec { deserved: [("gpu".into(), Quantity::from_units(4))].into_iter().collect(), ..free("gpu", "") };
    let mut engine = settled([gpu, weighing("c", "gpu", 1)], 100);
    engine.set_fleet(FleetResources {
        ready: [("cpu", Quantity::from_units(100)), ("gpu", Quantity::from_units(8))].into_iter().collect(),
        whole: None,
        ready_clusters: 1,
    });
    engine.resolve_quota();
    assert_eq!(engine.entitlement_of(&"c".into()).deserved, amount("gpu", 4));
}

#[test]
fn parts_by_weight_do_not_follow_the_jobs_of_the_moment() {
    let mut engine = settled([weighing("idle", "", 1), weighing("busy", "", 1)], 10);
    for i in 0..10 {
        engine.enqueue_job(job(&format!("j{i}"), "busy", i, cpu(1)));
    }
    assert_eq!(released(&mut engine).len(), 10, "idle parts are borrowed");
    assert_eq!(deserved(&engine, ["idle", "busy"]), [5, 5]);
    assert_eq!(of(&engine, "busy", |entitled| &entitled.borrowed), 5);
}

#[test]
fn a_queue_that_says_nothing_deserves_what_is_deserved_below_it_where_that_is_more() {
    let engine = settled(
        [
            free("top", ""),
            deserving("a", "top", 50),
            deserving("b", "top", 20),
            weighing("c", "top", 1),
            weighing("other", "", 1),
        ],
        100,
    );
    assert_eq!(deserved(&engine, ["top", "a", "b", "c", "other"]), [70, 50, 20, 0, 30]);
}

#[test]
fn nobody_deserves_below_what_is_not_deserved_above() {
    let engine = settled([deserving("top", "", 10), deserving("a", "top", 4), deserving("b", "top", 400)], 100);
    assert_eq!(deserved(&engine, ["top", "a", "b"]), [10, 4, 6], "the largest gives way");
    assert_eq!(
        faults(&engine, "top"),
        [
            "spec.deserved.cpu is 10, less than that of the queues below together, which is 404: the largest of theirs count as less"
        ]
    );
}

#[test]
fn shares_by_weight_decide_the_order_where_nothing_is_deserved() {
    let mut engine = engine([weighing("a", "", 1), weighing("b", "", 3)], 100);
    for i in 0..4 {
        engine.enqueue_job(job(&format!("a{i}"), "a", 0, cpu(3)));
        engine.enqueue_job(job(&format!("b{i}"), "b", 1, cpu(3)));
    }
    assert_eq!(released(&mut engine), ["a0", "b0", "b1", "b2", "a1", "b3", "a2", "a3"]);
}

#[test]
fn a_nested_guarantee_protects_from_uncles_too_where_volcano_s_protects_from_siblings_only() {
    let mut engine =
        engine([free("top", ""), guaranteed("kept", "top", 6), free("sibling", "top"), free("uncle", "")], 10);
    for i in 0..10 {
        engine.enqueue_job(job(&format!("u{i}"), "uncle", i, cpu(1)));
    }
    assert_eq!(released(&mut engine).len(), 4);
    assert_eq!(real(&engine, ["top", "kept", "sibling", "uncle", "root"]), [10, 10, 4, 4, 10]);
    let guarantee = |queue| of(&engine, queue, |entitled| &entitled.guarantee);
    assert_eq!(["kept", "top", "root", "uncle"].map(guarantee), [6, 6, 6, 0]);
    engine.enqueue_job(job("kept", "kept", 99, cpu(6)));
    assert_eq!(released(&mut engine), ["kept"]);
}

#[test]
fn an_inner_guarantee_is_the_larger_of_its_own_and_of_those_below_together() {
    for (own, kept) in [(2, 6), (8, 8)] {
        let queues =
            [guaranteed("top", "", own), guaranteed("a", "top", 4), guaranteed("b", "top", 2), free("uncle", "")];
        let engine = settled(queues, 10);
        assert_eq!(real(&engine, ["uncle", "top", "a", "b"]), [10 - kept, 10, 8, 6]);
        let reported = faults(&engine, "top");
        assert_eq!(!reported.is_empty(), own < 6, "{reported:?}");
    }
}

#[test]
fn a_guarantee_of_more_than_there_can_be_keeps_nothing_free_and_stops_nobody() {
    let queues = || [guaranteed("typo", "", 1000), guaranteed("fine", "", 4), free("other", "")];
    let mut engine = settled(queues(), 10);
    assert_eq!(real(&engine, ["typo", "fine", "other"]), [6, 10, 6]);
    assert_eq!(
        faults(&engine, "typo"),
        ["a guarantee of cpu 1k is more than 10, all that there is above the queue: nothing is kept free for it"]
    );
    // The same below a capability.
    let engine_below = settled([queue("top", 5), guaranteed("typo", "top", 6), free("other", "top")], 100);
    assert_eq!(real(&engine_below, ["typo", "other"]), [5, 5]);
    // While clusters are away a promise is a promise, and while nobody knows it may be one.
    for whole in [Some(cpu(1000)), None] {
        engine.set_fleet(FleetResources { ready: cpu(10), whole, ready_clusters: 1 });
        engine.resolve_quota();
        assert_eq!(real(&engine, ["typo", "fine", "other"]), [6, 4, 0]);
        assert!(faults(&engine, "typo").is_empty());
    }
}

#[test]
fn guarantees_that_are_too_much_together_are_cut_from_the_largest_down() {
    let engine = settled([guaranteed("a", "", 9), guaranteed("b", "", 7), guaranteed("c", "", 2), free("d", "")], 10);
    assert_eq!(real(&engine, ["a", "b", "c", "d"]), [4, 4, 2, 0]);
    assert_eq!(
        faults(&engine, "root"),
        [
            "the queues below are guaranteed cpu 18 together, more than 10, all that there is: the largest guarantees count as \
          less"
        ]
    );
}

#[test]
fn a_guarantee_above_its_own_capability_counts_as_that() {
    let own = QueueSpec { capability: limit(3), ..guaranteed("own", "", 8) };
    let mut none = guaranteed("none", "", 0);
    none.guarantee = amount("gpu", 2);
    none.capability.set("gpu", Quantity::ZERO);
    let mut engine = settled([own, none, free("other", "")], 10);
    assert_eq!(real(&engine, ["own", "other"]), [3, 7]);
    assert_eq!(
        faults(&engine, "own"),
        ["spec.guarantee.resource.cpu is 8, more than spec.capability.cpu, which is 3: it counts as 3"]
    );
    engine.set_fleet(FleetResources { ready: amount("gpu", 4), whole: None, ready_clusters: 1 });
    engine.resolve_quota();
    assert_eq!(engine.entitlement_of(&"other".into()).real, amount("gpu", 4));
}

#[test]
fn what_is_negative_counts_as_nothing_and_is_reported() {
    let mut spec = QueueSpec { weight: 0, guarantee: cpu(-5), ..deserving("q", "", -3) };
    spec.capability =
        [("cpu".into(), Quantity::from_units(-1)), ("gpu".into(), Quantity::from_units(-2))].into_iter().collect();
    let engine = settled([spec, free("other", "")], 10);
    assert_eq!((real(&engine, ["q", "other"]), deserved(&engine, ["q", "other"])), ([10, 10], [0, 10]));
    assert_eq!(
        faults(&engine, "q"),
        [
            "spec.weight is 0, not 1 to 65535: it counts as 1",
            "spec.capability.cpu is -1, below 0: it counts as no limit",
            "spec.capability.gpu is -2, below 0: it counts as 0",
            "spec.deserved.cpu is -3, below 0: it counts as 0",
            "spec.guarantee.resource.cpu is -5, below 0: it counts as 0",
        ]
    );
}

#[test]
fn a_ceiling_that_nobody_can_read_is_nothing_and_not_no_limit() {
    let mut spec = queue("q", 0);
    assert_eq!(real(&settled([spec.clone(), free("other", "")], 10), ["q", "other"]), [10, 10]);
    spec.unreadable = vec!["cpu".into()];
    let mut engine = settled([spec, free("other", "")], 10);
    assert_eq!(real(&engine, ["q", "other"]), [0, 10]);
    engine.enqueue_job(job("a", "q", 1, cpu(1)));
    assert!(released(&mut engine).is_empty());
    assert_eq!(token(&engine, "a"), "ExceedsCapability");
}

#[test]
fn names_that_nothing_asks_for_count_nowhere_and_are_reported() {
    let mut spec = QueueSpec { guarantee: amount("count/pods", 2), ..queue("q", 5) };
    for name in ["requests.cpu", "limits.nvidia.com/gpu"] {
        spec.capability.set(name, Quantity::from_units(1));
        spec.deserved.set(name, Quantity::from_units(1));
    }
    let engine = settled([spec, free("other", "")], 10);
    assert_eq!(deserved(&engine, ["q", "other"]), [5, 5], "by weight, for it says nothing that counts");
    let reported = |field: &str, name: &str| {
        format!("{field}.{name} counts for nothing: pods ask for resources by their own name, as cpu")
    };
    assert_eq!(
        faults(&engine, "q"),
        [
            reported("spec.capability", "limits.nvidia.com/gpu"),
            reported("spec.capability", "requests.cpu"),
            reported("spec.deserved", "limits.nvidia.com/gpu"),
            reported("spec.deserved", "requests.cpu"),
            reported("spec.guarantee.resource", "count/pods"),
        ]
    );
    assert_eq!(engine.entitlement_of(&"q".into()).real, cpu(5));
}

#[test]
fn nothing_of_one_card_model_is_deserved_or_guaranteed_and_that_is_reported() {
    let mut spec = QueueSpec { guarantee: amount("x.io/gpu:a", 2), ..free("q", "") };
    spec.deserved.set("x.io/gpu:a", Quantity::from_units(3));
    spec.capability.set("x.io/gpu:a", Quantity::from_units(4));
    let mut engine = settled([spec, free("other", "")], 10);
    assert_eq!(deserved(&engine, ["q", "other"]), [5, 5], "by weight, for it says nothing that counts");
    let reported = |field: &str| {
        format!("{field}.x.io/gpu:a counts for nothing: pods ask for resources by their own name, as cpu")
    };
    assert_eq!(faults(&engine, "q"), [reported("spec.deserved"), reported("spec.guarantee.resource")]);
    // Nothing is kept free of it, and its ceiling counts: the annotation's is one.
    for (queue, units) in [("other", 100), ("q", 4), ("q", 1)] {
        engine.enqueue_job(job(&format!("{queue}{units}"), queue, 1, amount("x.io/gpu:a", units)));
    }
    let mut started = released(&mut engine);
    started.sort();
    assert_eq!(started.len(), 2, "{started:?}");
    assert_eq!(started[0], "other100");
}

#[test]
fn every_rule_of_the_webhook_that_an_old_queue_breaks_is_reported() {
    let mut inner = QueueSpec { deserved: limit(9), guarantee: cpu(5), ..child("inner", "top", 8) };
    inner.guarantee.set("gpu", Quantity::from_units(1));
    let engine =
        settled([queue("top", 6), inner, QueueSpec { guarantee: cpu(6), ..deserving("leaf", "inner", 1) }], 100);
    assert_eq!(
        faults(&engine, "inner"),
        [
            "spec.deserved.cpu is 9, more than spec.capability.cpu, which is 8: it counts as 8",
            "spec.guarantee.resource.gpu is 1, more than spec.deserved.gpu, which is 0: spec.deserved.gpu counts as that",
            "spec.capability.cpu is 8, more than that of queue top, which is 6: it counts as 6",
            "spec.guarantee.resource.cpu is 5, less than that of the queues below together, which is 6: 6 is kept free",
            "a guarantee of gpu 1 is more than 0, all that there is above the queue: nothing is kept free for it",
        ]
    );
    assert_eq!(
        faults(&engine, "leaf"),
        ["spec.guarantee.resource.cpu is 6, more than spec.deserved.cpu, which is 1: spec.deserved.cpu counts as that"]
    );
    assert!(faults(&engine, "top").is_empty() && faults(&engine, "nowhere").is_empty());
}

#[test]
fn borrowed_is_what_is_used_beyond_what_is_deserved_of_the_same() {
    let mut engine = engine([deserving("says", "", 3), queue("nothing", 10), deserving("all", "", 7)], 10);
    let mut held = cpu(5);
    held.set("memory", Quantity::from_units(9));
    engine.charge_job(&"a".into(), &"says".into(), &held);
    engine.charge_job(&"b".into(), &"nothing".into(), &held);
    engine.resolve_quota();
    let borrowed = |queue: &str| engine.entitlement_of(&queue.into()).borrowed;
    assert_eq!(borrowed("says"), cpu(2));
    assert_eq!(borrowed("nothing"), held, "who deserves nothing borrows all of it");
    assert_eq!(borrowed("all"), Resources::new());
}
