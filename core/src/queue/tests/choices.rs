//! Jobs that may use one of several card models.

use crate::time::EpochSeconds;
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::resources::ResourceName;

const GPU: &str = "x.io/gpu";

fn cards(amounts: &[(&str, i64)]) -> Resources {
    amounts.iter().map(|(model, most)| (ResourceName::from_card(GPU, model), Quantity::from_units(*most))).collect()
}

/// A queue with quotas by model.
fn limited(name: &str, quotas: &[(&str, i64)]) -> QueueSpec {
    QueueSpec {
        capability: quotas
            .iter()
            .map(|(model, most)| (ResourceName::from_card(GPU, model), Quantity::from_units(*most)))
            .collect(),
        ..QueueSpec::unlimited(name)
    }
}

/// A job of so many cards on any of these models.
fn choosing(id: &str, queue: &str, created: i64, models: &[&str], amount: i64) -> Job {
    let mut otherwise = None;
    for (number, model) in models.iter().enumerate().rev() {
        let card = CardChoice { card: ResourceName::from_card(GPU, model), otherwise };
        let plain = job(id, queue, created, cards(&[(model, amount)]));
        let fit = FitClass(u64::try_from(number + models.len() * 10).unwrap());
        otherwise = Some(Arc::new(Ask { card: Some(card), fit, ..Ask::clone(&plain.ask) }));
    }
    Job { ask: otherwise.unwrap(), ..job(id, queue, created, Resources::new()) }
}

fn start(engine: &mut Engine) -> Vec<(String, String)> {
    let next = || engine.release_next_by_fit(|_, _| Fit::Yes);
    std::iter::from_fn(next).map(|release| (release.id.to_string(), release.admission.charged.to_string())).collect()
}

fn said(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(id, charged)| ((*id).to_owned(), (*charged).to_owned())).collect()
}

#[test]
fn a_job_starts_on_the_first_model_that_has_quota_and_is_charged_that() {
    let mut engine = engine([limited("q", &[("A", 4), ("H", 4)])], 10);
    for (created, id) in [(1, "a"), (2, "b"), (3, "c")] {
        engine.enqueue_job(choosing(id, "q", created, &["A", "H"], 3));
    }
    let release = engine.release_next_by_fit(|_, _| Fit::Yes).unwrap();
    assert_eq!((release.id.as_str(), release.admission.card), ("a", Some("x.io/gpu:A".into())));
    assert_eq!(start(&mut engine), said(&[("b", "x.io/gpu:H 3")]));
    let why = engine.explain_pending("c").unwrap();
    assert_eq!(why.token(), "WaitingForQuota");
    assert_eq!(
        why.to_string(),
        "waits in queue q, position 1 of 1: needs x.io/gpu:A 3, used 3 of 4 (the capability of queue q); nor on H: needs \
         x.io/gpu:H 3, used 3 of 4 (the capability of queue q)"
    );
    assert_eq!((engine.usage_of(&"q".into()).waiting, engine.list_pending_positions().count()), (1, 1));
    engine.remove_job("b");
    assert_eq!(start(&mut engine), said(&[("c", "x.io/gpu:H 3")]));
    ["a", "c"].iter().for_each(|id| engine.remove_job(id));
    assert!(engine.usage_of(&"q".into()).used.is_empty() && engine.size() < 16);
}

#[test]
fn a_job_falls_back_for_want_of_room_and_asks_for_each_model_by_its_own_name() {
    let mut engine = engine([limited("q", &[("A", 9), ("H", 9)])], 10);
    engine.enqueue_job(choosing("a", "q", 1, &["A", "H"], 3));
    let fit = |id: &JobId, ask: &Ask| {
        assert_eq!(id.as_str(), "a");
        match ask.card().unwrap().as_str() {
            "x.io/gpu:A" => Fit::No { never: false, detail: "no A is free".into() },
            _ => Fit::Yes,
        }
    };
    assert_eq!(engine.release_next_by_fit(fit).unwrap().admission.card, Some("x.io/gpu:H".into()));
}

#[test]
fn what_can_never_start_on_one_model_waits_for_the_other_and_holds_nobody_up() {
    let fifo = QueueSpec { dequeue: Dequeue::Fifo, ..limited("q", &[("A", 0), ("H", 4), ("V", 4)]) };
    let mut engine = engine([fifo], 10);
    engine.charge_job(&"runs".into(), &"q".into(), &cards(&[("H", 2)]));
    engine.enqueue_job(choosing("a", "q", 1, &["A", "H"], 3));
    engine.enqueue_job(choosing("b", "q", 2, &["V"], 1));
    assert!(start(&mut engine).is_empty());
    assert!(!engine.is_unsatisfiable("a"));
    let why = engine.explain_pending("a").unwrap();
    assert_eq!(why.token(), "WaitingForQuota", "{why}");
    assert!(why.to_string().contains("nor on A: needs x.io/gpu:A 3, more than 0"), "{why}");
    assert_eq!(token(&engine, "b"), "BehindQueueHead");
    engine.remove_job("runs");
    assert_eq!(start(&mut engine), said(&[("a", "x.io/gpu:H 3"), ("b", "x.io/gpu:V 1")]));
}

#[test]
fn the_head_of_a_fifo_queue_starts_on_another_model_before_anybody_passes() {
    let fifo = QueueSpec { dequeue: Dequeue::Fifo, ..limited("q", &[("A", 2), ("H", 2)]) };
    let mut engine = engine([fifo], 10);
    for (created, id) in [(1, "a"), (2, "b"), (3, "c")] {
        engine.enqueue_job(choosing(id, "q", created, &["A", "H"], 2));
    }
    assert_eq!(start(&mut engine), said(&[("a", "x.io/gpu:A 2"), ("b", "x.io/gpu:H 2")]));
    engine.remove_job("a");
    assert_eq!(start(&mut engine), said(&[("c", "x.io/gpu:A 2")]));
}

#[test]
fn what_is_kept_for_a_job_on_one_model_does_not_keep_it_from_another() {
    let mut engine = engine([limited("q", &[("A", 4), ("H", 4), ("all", 8)])], 10);
    let both = |mut asked: Job| {
        let ask = Arc::make_mut(&mut asked.ask);
        ask.tasks[0].request.add(&cards(&[("all", 3)]));
        let choice = ask.card.as_mut().unwrap();
        if let Some(other) = choice.otherwise.as_mut() {
            Arc::make_mut(other).tasks[0].request.add(&cards(&[("all", 3)]));
        }
        asked
    };
    engine.charge_job(&"holds A".into(), &"q".into(), &cards(&[("A", 4), ("all", 4)]));
    engine.charge_job(&"holds H".into(), &"q".into(), &cards(&[("H", 4), ("all", 1)]));
    engine.enqueue_job(both(choosing("big", "q", 1, &["A", "H"], 3)));
    engine.enqueue_job(both(choosing("late", "q", 2, &["H"], 3)));
    engine.set_now(EpochSeconds::new(1000));
    assert!(start(&mut engine).is_empty());
    assert!(engine.has_reservation("big"));
    engine.remove_job("holds H");
    assert_eq!(start(&mut engine), said(&[("big", "x.io/gpu:H 3, x.io/gpu:all 3")]));
    assert!(!engine.has_reservation("big"));
}

/// It was passed over, and whoever waited behind it in a fifo queue with it.
#[test]
fn others_are_evicted_for_a_job_on_the_first_model_on_which_it_could_ever_start() {
    for dequeue in [Dequeue::Fifo, Dequeue::Traverse] {
        let quotas = [("A", 0), ("H", 4), ("V", 4)];
        let mut engine = engine([QueueSpec { dequeue, ..limited("q", &quotas) }], 10);
        engine.charge_job(&"runs".into(), &"q".into(), &cards(&[("H", 4), ("V", 4)]));
        engine.enqueue_job(choosing("a", "q", 1, &["A", "H", "V"], 3));
        engine.enqueue_job(choosing("b", "q", 2, &["V"], 1));
        assert!(start(&mut engine).is_empty());
        let all = engine.list_preemption_candidates(9);
        let first = all.first().map(|job| (job.id.as_str(), job.asks.to_string()));
        assert_eq!(first, Some(("a", "x.io/gpu:H 3".to_owned())), "{dequeue:?}");
        assert_eq!(all.len(), if dequeue == Dequeue::Fifo { 1 } else { 2 }, "each job once");
        assert_eq!(engine.pending_card("a"), Some(&"x.io/gpu:H".into()));
        // What it is evicted for is kept for it at once.
        engine.set_preemptor(Some("a".into()));
        assert!(start(&mut engine).is_empty() && engine.has_reservation("a"));
        engine.enqueue_job(choosing("late", "q", 3, &["H"], 1));
        engine.charge_job(&"runs".into(), &"q".into(), &cards(&[("H", 2), ("V", 4)]));
        assert!(start(&mut engine).is_empty(), "{dequeue:?}");
        engine.charge_job(&"runs".into(), &"q".into(), &cards(&[("V", 4)]));
        assert_eq!(start(&mut engine)[0], ("a".to_owned(), "x.io/gpu:H 3".to_owned()));
        // Its first model is back.
        engine.remove_job("a");
        engine.enqueue_job(choosing("c", "q", 0, &["A", "H"], 4));
        engine.set_queue(QueueSpec { dequeue, ..limited("q", &[("A", 4), ("H", 4), ("V", 4)]) });
        assert_eq!(start(&mut engine)[0], ("c".to_owned(), "x.io/gpu:A 4".to_owned()));
    }
}

/// Which model fits nowhere is told only when somebody would have to wait for it.
#[test]
fn the_preemptor_gets_its_reservation_on_the_next_model_once_one_is_known_to_fit_nowhere() {
    struct OnlyH;
    impl ClusterCapacity for OnlyH {
        fn fits(&mut self, _: &JobId, _: &Ask, _: &[&ReservedClusters]) -> Fit {
            Fit::Yes
        }
        fn explain_never_fits(&mut self, _: &JobId, ask: &Ask) -> Option<String> {
            (ask.card()?.as_str() != "x.io/gpu:H").then(|| "no node is so large".to_owned())
        }
        fn reserve_clusters(&mut self, _: &JobId, _: &Ask, _: &[crate::gang::ClusterName]) -> Option<ReservedClusters> {
            None
        }
    }
    let mut engine = engine([limited("q", &[("A", 4), ("H", 4)])], 10);
    engine.charge_job(&"runs".into(), &"q".into(), &cards(&[("A", 4), ("H", 4)]));
    engine.enqueue_job(choosing("a", "q", 1, &["A", "H"], 3));
    assert!(engine.release_next_in_clusters(&mut OnlyH).is_none());
    assert_eq!(engine.pending_card("a"), Some(&"x.io/gpu:A".into()));
    engine.set_preemptor(Some("a".into()));
    assert!(engine.release_next_in_clusters(&mut OnlyH).is_none());
    assert_eq!(engine.pending_card("a"), Some(&"x.io/gpu:H".into()));
    let short = engine.reservation_of("a").and_then(|kept| kept.short);
    assert_eq!(short.map(|(_, name)| name), Some("x.io/gpu:H".into()));
}

#[test]
fn a_job_holds_one_reservation_at_most_on_the_first_model_that_it_gets_one_on() {
    let models = ["A", "B", "C", "D", "E", "F", "G", "H"];
    let quotas = models.map(|model| (model, 4));
    let mut engine = engine([limited("q", &quotas)], 10);
    let runs = |of: &[&str]| cards(&of.iter().map(|model| (*model, 4)).collect::<Vec<_>>());
    engine.charge_job(&"runs".into(), &"q".into(), &runs(&models));
    engine.enqueue_job(choosing("greedy", "q", 1, &models, 3));
    engine.set_now(EpochSeconds::new(1000));
    assert!(start(&mut engine).is_empty());
    let reserved = |engine: &Engine, id: &str| engine.reservation_of(id)?.short.map(|(_, name)| name.to_string());
    assert_eq!(reserved(&engine, "greedy").as_deref(), Some("x.io/gpu:A"));
    // Of the others nothing is kept from a job that ranks behind it.
    engine.enqueue_job(choosing("small", "q", 2, &["H"], 2));
    engine.enqueue_job(choosing("other", "q", 3, &["B"], 4));
    engine.charge_job(
        &"runs".into(),
        &"q".into(),
        &cards(&models.map(|model| (model, if model == "H" { 2 } else { 4 }))),
    );
    assert_eq!(start(&mut engine), said(&[("small", "x.io/gpu:H 2")]));
    assert_eq!(reserved(&engine, "other").as_deref(), Some("x.io/gpu:B"));
    // Once it can not start on the first, it holds the next, before whoever ranks behind it.
    engine.set_queue(limited("q", &quotas.map(|(model, most)| (model, if model == "A" { 0 } else { most }))));
    assert!(start(&mut engine).is_empty());
    assert_eq!(reserved(&engine, "greedy").as_deref(), Some("x.io/gpu:B"));
    assert_eq!(reserved(&engine, "other"), None);
    engine.remove_job("greedy");
    assert!(start(&mut engine).is_empty());
    assert_eq!(reserved(&engine, "other").as_deref(), Some("x.io/gpu:B"));
}

#[test]
fn a_job_that_has_no_choice_any_more_is_one_entry_again() {
    let mut engine = engine([limited("q", &[("A", 0), ("H", 4)])], 10);
    assert!(engine.enqueue_job(choosing("a", "q", 1, &["A", "H"], 3)));
    assert!(!engine.enqueue_job(choosing("a", "q", 1, &["A", "H"], 3)));
    assert!(engine.enqueue_job(choosing("a", "q", 1, &["A"], 3)));
    assert!(start(&mut engine).is_empty());
    assert!(engine.is_unsatisfiable("a"));
}

/// What the engine decides, by looking at every job and every model again after each event.
#[derive(Default)]
struct Naive {
    fifo: bool,
    quota: BTreeMap<&'static str, i64>,
    room: BTreeMap<&'static str, i64>,
    waiting: Vec<(i32, usize, Vec<&'static str>, i64)>,
    runs: BTreeMap<usize, (&'static str, i64)>,
}

impl Naive {
    fn used(&self, model: &str) -> i64 {
        self.runs.values().filter(|(of, _)| *of == model).map(|(_, amount)| amount).sum()
    }

    fn start_next(&mut self) -> Option<(usize, &'static str)> {
        self.waiting.sort_by_key(|(priority, id, ..)| (-priority, *id));
        for (at, (_, id, models, amount)) in self.waiting.iter().enumerate() {
            let has = |model: &&&'static str| {
                let used = self.used(model) + amount;
                used <= self.quota[**model] && used <= self.room[**model]
            };
            if let Some(model) = models.iter().find(has) {
                let started = (*id, *model);
                self.runs.insert(*id, (model, *amount));
                self.waiting.remove(at);
                return Some(started);
            }
            if self.fifo && models.iter().any(|model| *amount <= self.quota[model]) {
                return None;
            }
        }
        None
    }
}

#[derive(Debug, Clone)]
enum Event {
    Arrive(i32, Vec<&'static str>, i64),
    End(usize),
    Leave(usize),
}

const MODELS: [&str; 3] = ["A", "B", "C"];

fn event() -> impl Strategy<Value = Event> {
    let models = prop::sample::subsequence(MODELS.to_vec(), 1..=3).prop_shuffle();
    prop_oneof![
        4 => (0..2i32, models, 1..5i64).prop_map(|(priority, models, amount)| Event::Arrive(priority, models, amount)),
        3 => (0..20usize).prop_map(Event::End),
        1 => (0..20usize).prop_map(Event::Leave),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn each_job_starts_on_the_first_model_that_a_naive_look_at_all_finds(
        quota in prop::collection::vec(0..9i64, 3),
        room in prop::collection::vec(0..9i64, 3),
        fifo in any::<bool>(),
        events in prop::collection::vec(event(), 1..50),
    ) {
        let quotas: Vec<(&'static str, i64)> = MODELS.into_iter().zip(quota).collect();
        let dequeue = if fifo { Dequeue::Fifo } else { Dequeue::Traverse };
        let mut engine = engine([QueueSpec { dequeue, ..limited("q", &quotas) }], 10);
        engine.set_reservation_after(None);
        let room = MODELS.into_iter().zip(room).collect();
        let mut naive = Naive { fifo, quota: quotas.into_iter().collect(), room, ..Naive::default() };
        for (id, event) in events.into_iter().enumerate() {
            match event {
                Event::Arrive(priority, models, amount) => {
                    let mut arrived = choosing(&format!("j{id:02}"), "q", 1, &models, amount);
                    arrived.priority = priority;
                    // Of one class are jobs that ask for the same alone.
                    let mut ask = Some(&mut arrived.ask);
                    while let Some(one) = ask {
                        let one = Arc::make_mut(one);
                        let model = one.card().unwrap().as_card().unwrap().1.as_bytes()[0];
                        one.fit = FitClass(u64::from(model) * 10 + u64::try_from(amount).unwrap());
                        ask = one.card.as_mut().and_then(|choice| choice.otherwise.as_mut());
                    }
                    prop_assert!(engine.enqueue_job(arrived));
                    naive.waiting.push((priority, id, models, amount));
                }
                Event::End(n) if !naive.runs.is_empty() => {
                    let id = *naive.runs.keys().nth(n % naive.runs.len()).unwrap();
                    naive.runs.remove(&id);
                    engine.remove_job(&format!("j{id:02}"));
                    engine.requeue_after_capacity_change();
                }
                Event::Leave(n) if !naive.waiting.is_empty() => {
                    let (_, id, ..) = naive.waiting.remove(n % naive.waiting.len());
                    engine.remove_job(&format!("j{id:02}"));
                }
                Event::End(_) | Event::Leave(_) => {}
            }
            loop {
                let taken: BTreeMap<&str, i64> = MODELS.iter().map(|model| (*model, naive.used(model))).collect();
                let fit = |_: &JobId, ask: &Ask| {
                    let model = ask.card().unwrap().as_card().unwrap().1;
                    let asked = ask.minimum().get(ask.card().unwrap().as_str()).units_ceil();
                    match i64::try_from(asked).unwrap() + taken[model] <= naive.room[model] {
                        true => Fit::Yes,
                        false => Fit::No { never: false, detail: String::new() },
                    }
                };
                let release = engine.release_next_by_fit(fit);
                let started = release.map(|one| (one.id.to_string(), one.admission.card.unwrap().to_string()));
                let want = naive.start_next().map(|(id, model)| (format!("j{id:02}"), format!("{GPU}:{model}")));
                prop_assert_eq!(&started, &want);
                if want.is_none() {
                    break;
                }
            }
            prop_assert_eq!(engine.usage_of(&"q".into()).waiting, naive.waiting.len());
        }
    }
}
