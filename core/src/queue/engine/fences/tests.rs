//! The rules of fences by name, and that nothing is lost, exceeded or starved whatever happens.

use std::{collections::BTreeMap, sync::Arc};

use proptest::prelude::*;

use super::super::{Engine, Job, PATIENCE, Release, Standing};
use crate::{
    quantity::Quantity,
    queue::{
        Ask, Fit, FitClass, Fleet, JobId, Kept, QueueSpec, Room, TaskAsk, admit,
        line::{Bed, ShapeId},
        tree::Node,
    },
    resources::Resources,
};

fn amounts(cpu: i64, gpu: i64) -> Resources {
    [("cpu", Quantity::from_units(cpu)), ("gpu", Quantity::from_units(gpu))].into_iter().collect()
}

fn queue(name: &str, parent: Option<&str>, cpu: Option<i64>) -> QueueSpec {
    let capability = cpu.into_iter().map(|cpu| ("cpu".into(), Quantity::from_units(cpu))).collect();
    QueueSpec { parent: parent.map(Into::into), capability, ..QueueSpec::unlimited(name) }
}

fn engine(queues: impl IntoIterator<Item = QueueSpec>, cpu: i64, gpu: i64) -> Engine {
    let mut engine = Engine::default();
    let fleet = amounts(cpu, gpu);
    engine.set_fleet(Fleet { ready: fleet.clone(), whole: Some(fleet), ready_clusters: 1 });
    queues.into_iter().for_each(|queue| engine.set_queue(queue));
    engine
}

fn job(id: &str, queue: &str, created: i64, request: Resources) -> Job {
    let task = TaskAsk { name: "t".into(), request, min: 1, most: 1 };
    let ask = Ask { tasks: vec![task], copies: 1, fit: FitClass(0), run_for: None };
    Job { id: id.into(), queue: queue.into(), priority: 0, created, deadline: None, ask: Arc::new(ask) }
}

fn known(mut job: Job, run_for: i64) -> Job {
    Arc::make_mut(&mut job.ask).run_for = Some(run_for);
    job
}

fn at(engine: &mut Engine, now: i64) -> Vec<String> {
    engine.set_now(now);
    let released: Vec<String> =
        std::iter::from_fn(|| engine.next(|_, _| Fit::Yes)).map(|release| release.id.to_string()).collect();
    engine.audit();
    released
}

#[test]
fn small_jobs_pass_a_blocked_one_until_it_has_waited_long_enough() {
    let mut engine = engine([queue("q", None, Some(10))], 100, 0);
    engine.wait(job("s0", "q", 0, amounts(6, 0)));
    engine.wait(job("big", "q", 1, amounts(10, 0)));
    assert_eq!(at(&mut engine, 1), ["s0"]);
    engine.wait(job("s1", "q", 2, amounts(4, 0)));
    assert_eq!(at(&mut engine, 2), ["s1"]);
    assert_eq!(engine.due(), Some(1 + PATIENCE));
    assert!(at(&mut engine, 1 + PATIENCE).is_empty());
    engine.wait(job("s2", "q", 3, amounts(4, 0)));
    engine.forget("s1");
    assert!(at(&mut engine, 2 + PATIENCE).is_empty(), "4 are free, and kept");
    let kept = engine.reservation("big").unwrap();
    assert_eq!((kept.since, kept.start), (1 + PATIENCE, None));
    engine.forget("s0");
    assert_eq!(at(&mut engine, 3 + PATIENCE), ["big"]);
    engine.forget("big");
    assert_eq!(at(&mut engine, 4 + PATIENCE), ["s2"]);
}

#[test]
fn who_overrules_the_holder_passes_its_fence() {
    let mut engine = engine([queue("q", None, Some(10)), QueueSpec { priority: 1, ..queue("p", None, None) }], 10, 0);
    engine.wait(job("s0", "q", 0, amounts(6, 0)));
    engine.wait(job("big", "q", 1, amounts(10, 0)));
    assert_eq!(at(&mut engine, 100), ["s0"]);
    engine.wait(job("same", "q", 2, amounts(1, 0)));
    engine.wait(Job { priority: 1, ..job("urgent", "q", 2, amounts(1, 0)) });
    engine.wait(job("prior", "p", 2, amounts(1, 0)));
    assert_eq!(at(&mut engine, 101), ["prior", "urgent"]);
}

#[test]
fn a_job_that_arrives_with_a_shape_that_a_fence_holds_back_may_overrule_it() {
    let mut engine = engine([queue("q", None, Some(10))], 10, 0);
    engine.wait(job("s0", "q", 0, amounts(6, 0)));
    engine.wait(job("big", "q", 1, amounts(10, 0)));
    engine.wait(job("s1", "q", 2, amounts(5, 0)));
    assert_eq!(at(&mut engine, 100), ["s0"]);
    engine.forget("s0");
    engine.hold(&"other".into(), &"q".into(), &amounts(1, 0));
    assert!(at(&mut engine, 101).is_empty());
    engine.wait(Job { priority: 1, ..job("urgent", "q", 3, amounts(5, 0)) });
    assert_eq!(at(&mut engine, 102), ["urgent"]);
}

#[test]
fn who_asks_for_nothing_that_the_holder_needs_passes() {
    let mut engine = engine([queue("q", None, None)], 10, 8);
    engine.wait(job("s0", "q", 0, amounts(1, 8)));
    engine.wait(job("big", "q", 1, amounts(4, 8)));
    assert_eq!(at(&mut engine, 100), ["s0"]);
    engine.wait(job("cpu", "q", 2, amounts(5, 0)));
    engine.wait(job("more", "q", 3, amounts(1, 0)));
    assert_eq!(at(&mut engine, 101), ["cpu"], "4 of the other 9 are the holder's");
}

#[test]
fn a_fence_reaches_as_high_as_what_is_short() {
    let queues = [queue("top", None, None), queue("a", Some("top"), Some(4)), queue("b", Some("top"), None)];
    let mut engine = engine(queues, 5, 0);
    engine.wait(job("a0", "a", 0, amounts(1, 0)));
    engine.wait(job("a1", "a", 1, amounts(4, 0)));
    assert_eq!(at(&mut engine, 100), ["a0"]);
    engine.wait(job("b0", "b", 2, amounts(4, 0)));
    engine.wait(job("a2", "a", 3, amounts(1, 0)));
    assert_eq!(at(&mut engine, 101), ["b0"], "queue a is short, and nothing above it");
}

#[test]
fn who_ends_before_the_holder_can_start_passes() {
    let mut engine = engine([queue("q", None, Some(10))], 100, 0);
    engine.wait(job("s0", "q", 0, amounts(6, 0)));
    engine.wait(job("big", "q", 1, amounts(10, 0)));
    assert_eq!(at(&mut engine, 100), ["s0"]);
    engine.set_end("s0", Some(200));
    assert_eq!(engine.reservation("big").unwrap().start, Some(200));
    engine.wait(known(job("short", "q", 2, amounts(2, 0)), 100));
    engine.wait(known(job("long", "q", 3, amounts(2, 0)), 101));
    engine.wait(job("unknown", "q", 4, amounts(2, 0)));
    assert_eq!(at(&mut engine, 100), ["short"]);
    engine.set_end("short", Some(200));
    engine.forget("s0");
    assert!(at(&mut engine, 200).is_empty());
    engine.forget("short");
    assert_eq!(at(&mut engine, 200), ["big"]);
}

#[test]
fn what_can_never_start_is_kept_no_place() {
    let mut guaranteed = queue("g", None, None);
    guaranteed.guarantee = amounts(6, 0);
    let mut engine = engine([queue("q", None, None), guaranteed], 10, 0);
    engine.wait(job("big", "q", 1, amounts(5, 0)));
    engine.wait(job("s0", "q", 2, amounts(3, 0)));
    assert_eq!(at(&mut engine, 100), ["s0"]);
    engine.wait(job("s1", "q", 3, amounts(1, 0)));
    assert_eq!(at(&mut engine, 101), ["s1"]);
    assert_eq!(engine.reservation("big"), None);
}

/// Whether it fits at all is only asked once it has quota: it may have been given a fence before.
#[test]
fn a_holder_that_turns_out_to_fit_nowhere_keeps_no_place() {
    let mut engine = engine([queue("q", None, None)], 10, 0);
    engine.wait(job("s0", "q", 0, amounts(6, 0)));
    let mut big = job("big", "q", 1, amounts(8, 0));
    Arc::make_mut(&mut big.ask).fit = FitClass(9);
    engine.wait(big);
    assert_eq!(at(&mut engine, 100), ["s0"]);
    assert!(engine.reservation("big").is_some());
    engine.wait(job("s1", "q", 2, amounts(5, 0)));
    engine.forget("s0");
    let fit = |_: &JobId, ask: &Ask| match ask.fit {
        FitClass(9) => Fit::No { never: true, detail: "no node is so large".into() },
        _ => Fit::Yes,
    };
    assert_eq!(engine.next(fit).map(|release| release.id), Some("s1".into()));
    assert_eq!(engine.reservation("big"), None);
}

#[test]
fn who_others_gave_way_for_is_kept_its_place_at_once() {
    let mut engine = engine([queue("q", None, Some(10))], 100, 0);
    engine.hold(&"victim".into(), &"q".into(), &amounts(6, 0));
    engine.wait(job("older", "q", 1, amounts(10, 0)));
    engine.wait(job("claimant", "q", 2, amounts(8, 0)));
    engine.wait(job("s0", "q", 3, amounts(2, 0)));
    engine.set_claim(Some("claimant".into()));
    assert_eq!(at(&mut engine, 3), ["s0"], "nothing is kept before it is known to be blocked");
    assert_eq!(engine.reservation("claimant").map(|kept| kept.since), Some(2));
    engine.forget("s0");
    engine.wait(job("s1", "q", 4, amounts(2, 0)));
    assert!(at(&mut engine, 4).is_empty());
    engine.forget("victim");
    assert_eq!(at(&mut engine, 5), ["claimant", "s1"]);
    engine.set_claim(None);
    assert!(at(&mut engine, 6).is_empty());
}

/// Else who asks when to look again would look for ever.
#[test]
fn without_patience_there_is_no_time_to_look_again() {
    let mut engine = engine([queue("q", None, Some(10))], 10, 0);
    engine.set_patience(None);
    engine.wait(job("s0", "q", 0, amounts(6, 0)));
    engine.wait(job("claimant", "q", 1, amounts(8, 0)));
    assert_eq!(at(&mut engine, 2), ["s0"]);
    engine.set_claim(Some("claimant".into()));
    assert!(at(&mut engine, 3).is_empty());
    assert_eq!((engine.due(), engine.reservation("claimant")), (None, None));
}

#[test]
fn two_holders_never_wait_for_each_other() {
    let mut engine = engine([queue("q", None, None)], 10, 10);
    engine.hold(&"c".into(), &"q".into(), &amounts(6, 0));
    engine.hold(&"g".into(), &"q".into(), &amounts(0, 6));
    engine.wait(job("h1", "q", 1, amounts(8, 4)));
    engine.wait(job("h2", "q", 2, amounts(4, 8)));
    assert!(at(&mut engine, 100).is_empty());
    assert!(engine.reservation("h1").is_some() && engine.reservation("h2").is_some());
    engine.forget("c");
    assert_eq!(at(&mut engine, 101), ["h1"]);
    engine.forget("g");
    assert!(at(&mut engine, 102).is_empty());
    engine.forget("h1");
    assert_eq!(at(&mut engine, 103), ["h2"]);
}

#[test]
fn what_a_job_gets_beyond_its_minimum_is_not_what_is_kept() {
    let mut engine = engine([queue("q", None, None)], 10, 8);
    engine.hold(&"g".into(), &"q".into(), &amounts(0, 8));
    engine.wait(job("big", "q", 1, amounts(4, 8)));
    assert!(at(&mut engine, 100).is_empty());
    let mut elastic = job("elastic", "q", 2, amounts(1, 0));
    Arc::make_mut(&mut elastic.ask).tasks[0].most = 9;
    engine.wait(elastic);
    let release = engine.next(|_, _| Fit::Yes).unwrap();
    assert_eq!(release.admission.charged, amounts(6, 0));
}

#[test]
fn a_holder_that_lacks_something_else_takes_its_fence_along() {
    let queues = [queue("top", None, Some(10)), queue("a", Some("top"), Some(8)), queue("b", Some("top"), None)];
    let mut engine = engine(queues, 100, 0);
    engine.hold(&"a0".into(), &"a".into(), &amounts(4, 0));
    engine.hold(&"b0".into(), &"b".into(), &amounts(4, 0));
    engine.wait(job("big", "a", 1, amounts(8, 0)));
    assert!(at(&mut engine, 100).is_empty());
    engine.wait(job("b1", "b", 2, amounts(2, 0)));
    engine.forget("a0");
    // The share of b is larger: big is looked at first, but a fence that moved late would let b1 pass.
    assert!(at(&mut engine, 101).is_empty());
    engine.forget("b0");
    assert_eq!(at(&mut engine, 102), ["big", "b1"]);
}

/// Clusters that keep one of themselves for the first who asks.
struct OneCluster {
    free: bool,
}

impl Room for OneCluster {
    fn fits(&mut self, id: &JobId, _: &Ask, kept: &[&Kept]) -> Fit {
        let big = id.as_str() == "big";
        if (big && self.free) || (!big && kept.is_empty()) {
            return Fit::Yes;
        }
        Fit::No { never: false, detail: "full".to_owned() }
    }

    fn keep(&mut self, _: &JobId, _: &Ask) -> Option<Kept> {
        Some(Kept { clusters: vec!["m1".into()], resources: vec!["cpu".into()] })
    }
}

#[test]
fn clusters_are_kept_for_who_lacks_room_and_its_quota_with_them() {
    let mut engine = engine([queue("q", None, Some(10))], 100, 0);
    let mut room = OneCluster { free: false };
    let mut big = job("big", "q", 1, amounts(8, 0));
    Arc::make_mut(&mut big.ask).fit = FitClass(1);
    engine.wait(big);
    engine.wait(job("s0", "q", 2, amounts(1, 0)));
    engine.set_now(2);
    assert_eq!(engine.next_in(&mut room).unwrap().id.as_str(), "s0");
    engine.set_now(1 + PATIENCE);
    assert_eq!(engine.next_in(&mut room), None);
    assert_eq!(engine.reservation("big").unwrap().clusters, ["m1".into()]);
    engine.wait(job("s1", "q", 3, amounts(1, 0)));
    engine.wait(job("s2", "q", 3, amounts(2, 0)));
    assert_eq!(engine.next_in(&mut room), None);
    assert_eq!(engine.why("s2").unwrap().token(), "HeldBack");
    room.free = true;
    engine.room_grew();
    assert_eq!(engine.next_in(&mut room).unwrap().id.as_str(), "big");
    assert_eq!(engine.next_in(&mut room).unwrap().id.as_str(), "s1");
}

#[test]
fn a_restart_makes_the_same_fences() {
    let mut old = engine([queue("q", None, Some(10)), queue("r", None, None)], 12, 0);
    let mut new = old.clone();
    let jobs = [job("x", "q", 1, amounts(10, 0)), job("y", "q", 2, amounts(9, 0)), job("z", "r", 3, amounts(12, 0))];
    for engine in [&mut old, &mut new] {
        engine.hold(&"h".into(), &"q".into(), &amounts(4, 0));
    }
    for job in jobs.iter().rev() {
        old.wait(job.clone());
        at(&mut old, 500);
    }
    jobs.into_iter().for_each(|job| new.wait(job));
    at(&mut new, 500);
    for id in ["x", "y", "z"] {
        assert_eq!(old.reservation(id), new.reservation(id), "{id}");
    }
}

impl Engine {
    /// Every sleeper still has a reason to sleep, and the books are within every ceiling.
    fn audit(&self) {
        for node in self.index.values() {
            let slot = &self.slots[node.index()];
            for shape in slot.line.shapes() {
                let asked = &self.shape(shape).sparse;
                let short = admit::first_short(&self.slots, &slot.path, asked);
                match slot.line.bed(shape) {
                    Some(Bed::Quota(..)) => assert!(short.is_some(), "{shape:?} sleeps on nothing"),
                    Some(Bed::Fenced(at, dim, needed)) => {
                        assert!(self.is_bound(*node, shape), "{shape:?} is held back by nobody");
                        let room = admit::headroom(&self.slots[at.index()], dim).unwrap();
                        assert!(needed > room, "{shape:?} has what it needs");
                    }
                    Some(Bed::Room | Bed::Never) | None => {}
                }
            }
        }
    }

    fn is_bound(&self, node: Node, shape: ShapeId) -> bool {
        self.fences.iter().any(|(_, fence)| fence.bound.contains(&(node, shape)))
    }

    fn within_ceilings(&self) -> bool {
        self.slots.iter().all(|slot| {
            self.dims.all().all(|dim| slot.capability.get(dim).is_none_or(|ceiling| slot.used.get(dim) <= ceiling))
        })
    }
}

#[derive(Debug, Clone)]
enum Event {
    Arrive { queue: usize, priority: i32, cpu: i64, gpu: i64, known: Option<i64> },
    End(usize),
    Leave(usize),
    Pass(i64),
    Room,
    Fleet(i64),
    Priority(usize, i32),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        5 => (0..3usize, 0..2i32, 0..9i64, 0..3i64, prop::option::of(1..200i64))
            .prop_map(|(queue, priority, cpu, gpu, known)| Event::Arrive { queue, priority, cpu, gpu, known }),
        3 => (0..40usize).prop_map(Event::End),
        1 => (0..40usize).prop_map(Event::Leave),
        2 => (1..90i64).prop_map(Event::Pass),
        1 => Just(Event::Room),
        1 => (8..20i64).prop_map(Event::Fleet),
        1 => (0..3usize, 0..2i32).prop_map(|(queue, priority)| Event::Priority(queue, priority)),
    ]
}

fn tree() -> Engine {
    let queues = [queue("top", None, Some(12)), queue("q0", Some("top"), Some(8)), queue("q1", Some("top"), None)];
    engine(queues.into_iter().chain([queue("q2", None, Some(9))]), 16, 4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_sleeper_is_forgotten_and_no_ceiling_broken(events in prop::collection::vec(event(), 1..80)) {
        let mut engine = tree();
        let (mut now, mut waiting, mut running) = (0, Vec::new(), Vec::<String>::new());
        for (i, event) in events.into_iter().enumerate() {
            match event {
                Event::Arrive { queue, priority, cpu, gpu, known } => {
                    let mut arrived = job(&format!("j{i:02}"), &format!("q{queue}"), now, amounts(cpu, gpu));
                    let ask = Arc::make_mut(&mut arrived.ask);
                    (arrived.priority, ask.run_for) = (priority, known);
                    waiting.push(arrived.id.to_string());
                    engine.wait(arrived);
                }
                Event::End(n) if !running.is_empty() => engine.forget(&running.remove(n % running.len())),
                Event::Leave(n) if !waiting.is_empty() => engine.forget(&waiting.remove(n % waiting.len())),
                Event::Pass(seconds) => now += seconds,
                Event::Room => engine.room_grew(),
                Event::Fleet(cpu) => {
                    let fleet = amounts(cpu, 4);
                    engine.set_fleet(Fleet { ready: fleet.clone(), whole: Some(fleet), ready_clusters: 1 });
                }
                Event::Priority(n, priority) => {
                    let spec = engine.queues().find(|spec| spec.name == format!("q{n}").into()).unwrap().clone();
                    engine.set_queue(QueueSpec { priority, ..spec });
                }
                Event::End(_) | Event::Leave(_) => {}
            }
            for id in at(&mut engine, now) {
                waiting.retain(|other| *other != id);
                running.push(id);
            }
            prop_assert!(engine.within_ceilings());
            let holding = engine.jobs.values().filter(|job| matches!(job, Standing::Holding { .. })).count();
            prop_assert_eq!(holding, running.len());
        }
    }

    /// Small jobs never stop coming, in every queue, and each runs for at most 50 seconds. A big one that came first starts within its
    /// patience and 50 seconds for each ceiling on its way up: a ceiling that is not short when it gets its fence may
    /// become so until the one below is free.
    #[test]
    fn a_big_job_starts_within_the_stated_bound_among_endless_small_ones(
        sizes in prop::collection::vec((0..3usize, 1..4i64, 1..50i64), 200),
        big in 5..9i64,
    ) {
        let mut engine = tree();
        let mut ends: BTreeMap<String, i64> = BTreeMap::new();
        engine.wait(job("big", "q0", -1, amounts(big, 0)));
        let mut started = None;
        for (i, (queue, cpu, run)) in sizes.into_iter().cycle().take(400).enumerate() {
            let now = i as i64;
            let over: Vec<String> = ends.iter().filter(|(_, end)| **end <= now).map(|(id, _)| id.clone()).collect();
            for id in over {
                ends.remove(&id);
                engine.forget(&id);
            }
            // As many as would fill everything again at once.
            for copy in 0..6 {
                engine.wait(job(&format!("s{i:03}-{copy}"), &format!("q{queue}"), now, amounts(cpu, 0)));
            }
            for id in at(&mut engine, now) {
                if id == "big" {
                    started = started.or(Some(now));
                }
                ends.insert(id, now + run);
            }
            if started.is_some() {
                break;
            }
        }
        let started = started.expect("it starts");
        prop_assert!(started <= PATIENCE + 3 * 50, "{started}");
    }
}

#[test]
fn releases_are_the_same_whatever_the_order_of_arrival() {
    let jobs: Vec<Job> = (0..12)
        .map(|i| job(&format!("j{i:02}"), ["q0", "q1", "q2"][i % 3], i as i64 % 4, amounts(1 + i as i64 % 5, 0)))
        .collect();
    let play = |order: &[usize]| -> Vec<Release> {
        let mut engine = tree();
        order.iter().for_each(|i| engine.wait(jobs[*i].clone()));
        engine.set_now(1000);
        std::iter::from_fn(|| engine.next(|_, _| Fit::Yes)).collect()
    };
    let forward: Vec<usize> = (0..12).collect();
    let backward: Vec<usize> = (0..12).rev().collect();
    assert_eq!(play(&forward), play(&backward));
}
