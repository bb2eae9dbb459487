//! Which queue and which job goes first.

use super::*;
use crate::time::EpochSeconds;

#[test]
fn a_queue_s_priority_is_strict_defect_15() {
    let mut engine = engine([queue("low", 100), QueueSpec { priority: 5, ..queue("high", 100) }], 6);
    for i in 0..4 {
        engine.enqueue_job(job(&format!("low{i}"), "low", 0, cpu(1)));
        engine.enqueue_job(job(&format!("high{i}"), "high", 9, cpu(1)));
    }
    assert_eq!(released(&mut engine), ["high0", "high1", "high2", "high3", "low0", "low1"]);
}

#[test]
fn the_order_is_made_anew_after_each_release_defect_15() {
    let deserving = |name: &str| QueueSpec { deserved: limit(10), ..queue(name, 10) };
    let mut engine = engine([deserving("a"), deserving("b")], 100);
    for i in 0..2 {
        engine.enqueue_job(job(&format!("a{i}"), "a", 0, cpu(1)));
        engine.enqueue_job(job(&format!("b{i}"), "b", 9, cpu(1)));
    }
    assert_eq!(released(&mut engine), ["a0", "b0", "a1", "b1"]);
}

#[test]
fn shares_are_compared_just_below_the_common_ancestor_defect_15() {
    let deserving = |name: &str, parent: &str, units| QueueSpec { deserved: limit(units), ..child(name, parent, 100) };
    let top = |name| QueueSpec { deserved: limit(10), ..queue(name, 100) };
    let queues = [top("a"), top("b"), deserving("a1", "a", 5), deserving("a2", "a", 5), deserving("b1", "b", 10)];
    let mut engine = engine(queues, 100);
    engine.charge_job(&"a1 runs".into(), &"a1".into(), &cpu(5));
    engine.charge_job(&"b1 runs".into(), &"b1".into(), &cpu(3));
    for queue in ["a1", "a2", "b1"] {
        engine.enqueue_job(job(queue, queue, 0, cpu(2)));
    }
    // a2 has nothing at all, yet a has half and b less.
    assert_eq!(released(&mut engine), ["b1", "a2", "a1"]);
}

#[test]
fn strict_priority_counts_across_the_whole_tree_defect_15() {
    let leaf = |name: &str, parent: &str, priority| QueueSpec { priority, ..child(name, parent, 100) };
    // What a parent's priority is does not matter: it has no jobs.
    let top = |name, priority| QueueSpec { priority, deserved: limit(10), ..queue(name, 100) };
    let queues = [top("a", 9), top("b", 0), leaf("a1", "a", 1), leaf("b1", "b", 5), leaf("b2", "b", 0)];
    let mut engine = engine(queues, 100);
    engine.charge_job(&"runs".into(), &"b1".into(), &cpu(10));
    for queue in ["a1", "b1", "b2"] {
        engine.enqueue_job(job(queue, queue, 0, cpu(2)));
    }
    assert_eq!(released(&mut engine), ["b1", "a1", "b2"]);
}

#[test]
fn the_policy_decides_what_the_order_looks_at() {
    let deserving = |name: &str, priority| QueueSpec { deserved: limit(10), priority, ..queue(name, 100) };
    let mut start = engine([deserving("a", 1), deserving("b", 1), deserving("low", 0)], 100);
    start.charge_job(&"a runs".into(), &"a".into(), &cpu(5));
    start.enqueue_job(Job { priority: 5, ..job("a5", "a", 3, cpu(1)) });
    start.enqueue_job(Job { deadline: Some(EpochSeconds::new(40)), ..job("a sla", "a", 2, cpu(1)) });
    start.enqueue_job(Job { priority: 4, ..job("b4", "b", 4, cpu(1)) });
    start.enqueue_job(job("b0", "b", 1, cpu(1)));
    start.enqueue_job(job("low0", "low", 0, cpu(1)));
    let order = |policy| {
        let mut engine = start.clone();
        engine.set_order_policy(policy);
        released(&mut engine)
    };
    assert_eq!(order(OrderPolicy::Share), ["b4", "b0", "a5", "a sla", "low0"]);
    assert_eq!(order(OrderPolicy::Strict), ["a5", "b4", "a sla", "b0", "low0"]);
    assert_eq!(order(OrderPolicy::Fifo), ["low0", "b0", "a sla", "a5", "b4"]);
    // And what is admitted keeps its real priority.
    start.set_order_policy(OrderPolicy::Fifo);
    let all = std::iter::from_fn(|| start.release_next_by_fit(|_, _| Fit::Yes));
    let priorities: Vec<i32> = all.map(|release| release.admission.priority).collect();
    assert_eq!(priorities, [0, 0, 0, 5, 4]);
}

#[test]
fn by_fair_history_whoever_used_less_lately_goes_first_until_both_have_had_as_much() {
    let deserving = |name: &str| QueueSpec { deserved: limit(10), ..queue(name, 100) };
    let mut engine = engine([deserving("was idle"), deserving("was busy")], 20);
    engine.set_history_half_life(100);
    engine.set_order_policy(OrderPolicy::FairHistory);
    engine.set_now(EpochSeconds::new(1000));
    engine.charge_job(&"ran".into(), &"was busy".into(), &cpu(20));
    // 15 cores of 20, in the mean.
    engine.set_now(EpochSeconds::new(1200));
    engine.remove_job("ran");
    for i in 0..20 {
        engine.enqueue_job(job(&format!("b{i:02}"), "was busy", 0, cpu(1)));
        engine.enqueue_job(job(&format!("i{i:02}"), "was idle", 1, cpu(1)));
    }
    let first = released(&mut engine);
    // What it has now counts as much as what it had: 17 cores and a mean of 0, and 3 and a mean of 15.
    let of = |queue: char| first.iter().filter(|id| id.starts_with(queue)).count();
    assert_eq!((of('i'), of('b')), (17, 3), "{first:?}");
    assert!(first[..15].iter().all(|id| id.starts_with('i')), "{first:?}");
}

#[test]
fn a_change_of_policy_keeps_what_is_known_about_quota() {
    let mut engine = engine([queue("q", 4)], 100);
    engine.charge_job(&"runs".into(), &"q".into(), &cpu(3));
    engine.enqueue_job(Job { priority: 1, ..job("big", "q", 2, cpu(4)) });
    engine.enqueue_job(job("big too", "q", 1, cpu(4)));
    assert!(released(&mut engine).is_empty());
    engine.set_order_policy(OrderPolicy::Fifo);
    assert!(released(&mut engine).is_empty());
    engine.remove_job("runs");
    assert_eq!(released(&mut engine), ["big too"]);
}

#[test]
fn traverse_passes_a_blocked_head_and_fifo_does_not_defect_14() {
    for (dequeue, want) in [(Dequeue::Traverse, vec!["small"]), (Dequeue::Fifo, vec![])] {
        let mut engine = engine([QueueSpec { dequeue, ..queue("q", 4) }, queue("other", 4)], 100);
        engine.charge_job(&"runs".into(), &"q".into(), &cpu(3));
        engine.enqueue_job(job("big", "q", 1, cpu(4)));
        engine.enqueue_job(job("small", "q", 2, cpu(1)));
        assert_eq!(released(&mut engine), want);
        if dequeue == Dequeue::Fifo {
            assert_eq!(token(&engine, "small"), "BehindQueueHead");
            // Only its own queue waits.
            engine.enqueue_job(job("elsewhere", "other", 3, cpu(1)));
            assert_eq!(released(&mut engine), ["elsewhere"]);
            engine.remove_job("runs");
            assert_eq!(released(&mut engine), ["big"]);
        }
    }
}

/// Clusters that answer so many questions.
struct Patience(usize);

impl crate::queue::ClusterCapacity for Patience {
    fn fits(&mut self, _: &JobId, _: &Ask, _: &[&crate::queue::ReservedClusters]) -> Fit {
        self.0 -= 1;
        Fit::No { never: false, detail: "full".to_owned() }
    }

    fn explain_never_fits(&mut self, _: &JobId, _: &Ask) -> Option<String> {
        None
    }

    fn reserve_clusters(
        &mut self,
        _: &JobId,
        _: &Ask,
        _: &[crate::gang::ClusterName],
    ) -> Option<crate::queue::ReservedClusters> {
        None
    }

    fn is_exhausted(&self) -> bool {
        self.0 == 0
    }
}

#[test]
fn who_asks_clusters_that_are_exhausted_goes_on_where_it_stopped() {
    let mut engine = engine([queue("q", 9)], 9);
    for i in 0..5_i64 {
        let mut other = job(&format!("j{i}"), "q", i, cpu(1));
        Arc::make_mut(&mut other.ask).fit = FitClass(i.unsigned_abs());
        engine.enqueue_job(other);
    }
    let answered =
        |engine: &Engine| (0..5).filter(|i| token(engine, &format!("j{i}")) == "InsufficientCapacity").count();
    for (patience, in_all) in [(2, 2), (2, 4), (2, 5)] {
        assert!(engine.release_next_in_clusters(&mut Patience(patience)).is_none());
        assert_eq!(answered(&engine), in_all);
    }
}
