//! Amounts that are kept for a time.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    capacity_reservation::{CapacityReservation, MOST_RESERVATIONS},
    maintenance::MaintenanceWindow,
    time::EpochSeconds,
};

/// From when to when, with a notice of 50 seconds.
fn kept(name: &str, units: i64, (start, end): (i64, i64), queues: &[&str]) -> CapacityReservation {
    let window = MaintenanceWindow {
        start: EpochSeconds::new(start),
        end: EpochSeconds::new(end),
        notice: 50,
        reason: String::new(),
        node_groups: vec![],
        queues: queues.iter().map(|queue| (*queue).into()).collect(),
    };
    CapacityReservation { name: name.to_owned(), amounts: cpu(units), window }
}

fn runs_for(seconds: i64, mut job: Job) -> Job {
    Arc::make_mut(&mut job.ask).run_for = Some(seconds);
    job
}

fn elastic(most: u32, mut job: Job) -> Job {
    Arc::make_mut(&mut job.ask).tasks[0].most = most;
    job
}

fn at(engine: &mut Engine, now: i64) -> Vec<String> {
    engine.set_now(EpochSeconds::new(now));
    let released: Vec<_> = std::iter::from_fn(|| engine.release_next_by_fit(|_, _| Fit::Yes)).collect();
    for release in &released {
        // As the controller does, which knows when its run is over.
        engine.charge_job(&release.id, &release.admission.queue, &release.admission.charged);
    }
    released.into_iter().map(|release| release.id.to_string()).collect()
}

fn why(engine: &Engine, id: &str) -> String {
    engine.explain_pending(id).unwrap().to_string()
}

/// Of 10 cores 6 are kept from 100 to 200, for queue `ops` and those below it.
fn for_ops() -> Engine {
    let mut engine = engine([queue("q", 10), queue("ops", 10), child("night", "ops", 10)], 10);
    engine.set_capacity_reservations(vec![kept("upgrade", 6, (100, 200), &["ops"])]);
    engine.set_reservation_after(None);
    engine
}

#[test]
fn who_will_have_ended_when_the_amount_is_kept_starts_and_who_will_not_leaves_it_free() {
    let mut engine = for_ops();
    engine.enqueue_job(runs_for(101, job("late", "q", 1, cpu(5))));
    engine.enqueue_job(runs_for(100, job("in-time", "q", 2, cpu(9))));
    assert_eq!(at(&mut engine, 0), ["in-time"]);
    assert_eq!(token(&engine, "late"), "WaitingForQuota");
    engine.set_expected_end("in-time", Some(EpochSeconds::new(100)));
    // What is free beside the amount is anybody's.
    engine.enqueue_job(runs_for(1000, job("small", "q", 3, cpu(1))));
    assert_eq!(at(&mut engine, 0), ["small"]);
    engine.remove_job("in-time");
    assert!(at(&mut engine, 0).is_empty());
    assert_eq!(
        why(&engine, "late"),
        "waits in queue q, position 1 of 1: there is quota, but reservation upgrade is from 1970-01-01T00:01:40Z to \
         1970-01-01T00:03:20Z for all but jobs of queue ops, and it runs for 1m41s: of cpu 10 in the fleet 1 will \
         still be held then, 6 are kept, and it needs 5"
    );
    engine.remove_job("small");
    assert!(at(&mut engine, 0).is_empty(), "6 and 5 are more than 10");
    assert!(at(&mut engine, 199).is_empty());
    assert!(why(&engine, "late").ends_with("of cpu 10 in the fleet 0 are held, 6 are kept, and it needs 5"));
    assert_eq!(engine.next_due(), Some(EpochSeconds::new(200)));
    assert_eq!(at(&mut engine, 200), ["late"], "the time is over");
}

#[test]
fn who_does_not_say_for_how_long_it_runs_starts_until_the_notice() {
    let mut engine = for_ops();
    engine.enqueue_job(job("before", "q", 1, cpu(2)));
    engine.enqueue_job(job("another", "q", 2, cpu(3)));
    assert_eq!(at(&mut engine, 49), ["before", "another"]);
    engine.enqueue_job(job("after", "q", 3, cpu(1)));
    assert!(at(&mut engine, 50).is_empty(), "4 are left beside the amount, and 5 are held for ever");
    assert!(why(&engine, "after").contains("and it does not say for how long it runs: of cpu 10"));
    engine.remove_job("another");
    assert_eq!(at(&mut engine, 50), ["after"]);
}

#[test]
fn those_that_it_is_for_start_and_what_they_hold_is_a_part_of_it() {
    let mut engine = for_ops();
    engine.enqueue_job(job("tests", "night", 1, cpu(4)));
    assert_eq!(at(&mut engine, 120), ["tests"]);
    engine.enqueue_job(job("much", "q", 2, cpu(5)));
    engine.enqueue_job(job("little", "q", 3, cpu(4)));
    assert_eq!(at(&mut engine, 120), ["little"], "4 of the 6 are held, 2 are kept, 4 are left");
    // Theirs may be more than the amount.
    engine.remove_job("little");
    engine.enqueue_job(job("more", "night", 4, cpu(6)));
    assert_eq!(at(&mut engine, 121), ["more"]);
    engine.remove_job("tests");
    assert!(at(&mut engine, 121).is_empty());
    engine.enqueue_job(job("rest", "q", 5, cpu(4)));
    assert_eq!(at(&mut engine, 122), ["rest"], "6 are held, and none of the amount is left to keep");
}

#[test]
fn an_elastic_job_gets_no_pods_of_what_is_kept() {
    let mut engine = for_ops();
    engine.enqueue_job(elastic(9, job("wide", "q", 1, cpu(1))));
    assert_eq!(at(&mut engine, 60), ["wide"]);
    assert_eq!(engine.charge_of("wide"), Some(cpu(4)));
}

#[test]
fn amounts_of_one_time_add_up_and_those_of_different_times_do_not() {
    let mut engine = engine([queue("q", 10)], 10);
    let apart = vec![kept("a", 6, (100, 200), &[]), kept("b", 6, (200, 300), &[])];
    engine.set_capacity_reservations(apart);
    engine.enqueue_job(runs_for(250, job("long", "q", 1, cpu(4))));
    assert_eq!(at(&mut engine, 0), ["long"]);
    engine.remove_job("long");
    engine.set_capacity_reservations(vec![kept("a", 6, (100, 201), &[]), kept("b", 6, (200, 300), &[])]);
    engine.enqueue_job(runs_for(250, job("again", "q", 2, cpu(4))));
    assert!(at(&mut engine, 0).is_empty(), "at 200 all of it is kept twice");
    let said = why(&engine, "again");
    assert!(
        said.contains("reservation b, with 1 other of that time, is from") && said.contains("12 are kept"),
        "{said}"
    );
    assert!(said.contains(" for nobody, and it runs for 4m10s"), "{said}");
    engine.set_capacity_reservations(vec![]);
    assert_eq!(at(&mut engine, 0), ["again"], "nothing is kept any more");
}

#[test]
fn amounts_of_nested_queues_add_up_and_what_is_held_counts_for_one_of_them() {
    let mut engine = engine([queue("q", 10), queue("ops", 10), child("night", "ops", 10)], 10);
    let both = vec![kept("a", 4, (0, 200), &["ops"]), kept("b", 2, (0, 200), &["night"])];
    engine.set_capacity_reservations(both);
    engine.charge_job(&"n".into(), &"night".into(), &cpu(2));
    engine.enqueue_job(job("five", "q", 1, cpu(5)));
    assert!(at(&mut engine, 0).is_empty(), "2 are held for b, 4 are kept for a");
    engine.enqueue_job(job("four", "q", 2, cpu(4)));
    assert_eq!(at(&mut engine, 0), ["four"]);
    engine.remove_job("four");
    engine.charge_job(&"m".into(), &"night".into(), &cpu(3));
    assert!(at(&mut engine, 0).is_empty(), "5 are held, 2 for b and 3 for a, and 1 is kept: 11 in all");
    engine.charge_job(&"m".into(), &"night".into(), &cpu(2));
    engine.enqueue_job(job("again", "q", 3, cpu(4)));
    assert_eq!(at(&mut engine, 0), ["again"], "4 are held, and 2 are kept");
}

#[test]
fn nobody_is_evicted_and_nothing_reserved_for_one_who_waits_for_the_end_of_the_time() {
    let mut engine = for_ops();
    engine.set_reservation_after(Some(0));
    engine.charge_job(&"runs".into(), &"q".into(), &cpu(9));
    engine.enqueue_job(job("big", "q", 1, cpu(5)));
    assert!(at(&mut engine, 10).is_empty());
    assert!(engine.has_reservation("big") && engine.list_preemption_candidates(9).len() == 1, "it lacks quota alone");
    assert!(at(&mut engine, 60).is_empty(), "it lacks quota still");
    assert!(!engine.has_reservation("big") && engine.list_preemption_candidates(9).is_empty());
    engine.remove_job("runs");
    assert!(at(&mut engine, 61).is_empty());
    assert_eq!(token(&engine, "big"), "CapacityReserved");
    engine.enqueue_job(job("small", "q", 2, cpu(4)));
    assert_eq!(at(&mut engine, 62), ["small"], "nothing is kept for the big one");
}

/// Of 20 cores 10 are kept for `ops`, which has nothing.
fn half_is_kept() -> Engine {
    let mut engine = engine([queue("q", 20), queue("r", 20), queue("ops", 20)], 20);
    engine.set_capacity_reservations(vec![kept("upgrade", 10, (0, 10_000), &["ops"])]);
    engine.set_reservation_after(Some(60));
    engine.set_order_policy(OrderPolicy::Strict);
    engine
}

#[test]
fn a_large_job_that_fits_beside_what_is_kept_is_not_passed_by_small_ones_for_ever() {
    let mut engine = half_is_kept();
    (0..5).for_each(|i| engine.charge_job(&format!("s{i}").into(), &"q".into(), &cpu(2)));
    engine.enqueue_job(job("large", "q", 1, cpu(8)));
    for i in 0..20 {
        engine.enqueue_job(job(&format!("t{i:02}"), "q", 100 + i, cpu(2)));
    }
    assert!(at(&mut engine, 10).is_empty());
    assert_eq!(token(&engine, "large"), "CapacityReserved");
    assert!(at(&mut engine, 70).is_empty());
    assert!(engine.has_reservation("large"), "it waited for a minute");
    for i in 0..3 {
        engine.remove_job(&format!("s{i}"));
        assert!(at(&mut engine, 80 + i).is_empty(), "what comes free is reserved for it");
    }
    let said = why(&engine, "t00");
    assert!(said.contains("are kept, 8 are reserved for jobs that rank before it, and it needs 2"), "{said}");
    engine.remove_job("s3");
    assert_eq!(at(&mut engine, 90), ["large"]);
}

/// Found by a user: what the queues of a reservation held counted as what others hold.
#[test]
fn nothing_is_reserved_for_one_who_fits_beside_the_amount_only_while_it_is_used() {
    let mut engine = half_is_kept();
    engine.charge_job(&"theirs".into(), &"ops".into(), &cpu(6));
    engine.enqueue_job(job("large", "q", 1, cpu(11)));
    assert!(at(&mut engine, 100).is_empty());
    assert_eq!(token(&engine, "large"), "CapacityReserved");
    assert!(!engine.has_reservation("large") && engine.list_preemption_candidates(9).is_empty());
    engine.enqueue_job(job("small", "q", 2, cpu(10)));
    assert_eq!(at(&mut engine, 101), ["small"]);
}

/// Found by a user: of two thirds of the fleet that were free nobody got anything for hours.
#[test]
fn who_ends_before_a_job_can_start_that_waits_for_what_is_held_passes_it() {
    let mut engine = half_is_kept();
    engine.charge_job(&"runs".into(), &"q".into(), &cpu(4));
    engine.set_expected_end("runs", Some(EpochSeconds::new(5_000)));
    engine.enqueue_job(job("large", "q", 1, cpu(8)));
    assert!(at(&mut engine, 70).is_empty());
    let start = |engine: &Engine| engine.reservation_of("large").unwrap().start;
    assert_eq!(start(&engine), Ok(EpochSeconds::new(5_000)));
    engine.enqueue_job(runs_for(4_931, job("late", "r", 2, cpu(1))));
    engine.enqueue_job(runs_for(4_900, job("soon", "r", 3, cpu(1))));
    assert_eq!(at(&mut engine, 70), ["soon"]);
    engine.set_expected_end("runs", None);
    assert_eq!(start(&engine), Ok(EpochSeconds::new(10_000)), "the time is over then");
    // What is kept for its own queue is in nobody's way there, however long.
    let own = kept("own", 1, (0, 50_000), &["q"]);
    engine.set_capacity_reservations(vec![kept("upgrade", 10, (0, 10_000), &["ops"]), own]);
    assert_eq!(at(&mut engine, 70), ["late"], "it ends before that");
    assert_eq!(start(&engine), Ok(EpochSeconds::new(10_000)));
}

#[test]
fn others_are_evicted_for_one_who_fits_beside_what_is_kept_and_not_those_that_it_is_kept_for() {
    let mut engine = half_is_kept();
    engine.charge_job(&"borrows".into(), &"r".into(), &cpu(10));
    engine.enqueue_job(job("mine", "q", 1, cpu(6)));
    assert!(at(&mut engine, 10).is_empty());
    assert_eq!(token(&engine, "mine"), "CapacityReserved");
    let candidates = engine.list_preemption_candidates(9);
    assert_eq!(candidates.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["mine"]);
    let lacks = engine.list_missing_resources(&"q".into(), &cpu(6), &cpu(20));
    assert_eq!(lacks.iter().map(|name| name.as_str()).collect::<Vec<_>>(), ["cpu"]);
}

#[test]
fn who_would_take_what_is_kept_would_not_be_admitted_again() {
    let mut engine = engine([queue("q", 10), queue("ops", 10)], 10);
    let runs = job("runs", "q", 1, cpu(5));
    engine.enqueue_job(runs.clone());
    assert_eq!(at(&mut engine, 0), ["runs"]);
    let mut again = |units| {
        engine.set_capacity_reservations(vec![kept("upgrade", units, (0, 200), &["ops"])]);
        engine.resolve_quota();
        engine.would_admit_again("runs", &"q".into(), &runs.ask)
    };
    assert!(again(5) && !again(6));
}

#[test]
fn of_too_many_reservations_the_first_count() {
    let mut engine = engine([queue("q", 10)], 10);
    let small = |many: usize| (0..).take(many).map(|i| kept(&format!("r{i}"), 0, (100 + i, 2000), &[]));
    let last = || [kept("last", 10, (1000, 2000), &[])];
    engine.set_capacity_reservations(small(MOST_RESERVATIONS).chain(last()).collect());
    engine.enqueue_job(runs_for(5000, job("first", "q", 1, cpu(1))));
    assert_eq!(at(&mut engine, 49), ["first"]);
    engine.set_capacity_reservations(small(MOST_RESERVATIONS - 1).chain(last()).collect());
    engine.enqueue_job(runs_for(5000, job("second", "q", 2, cpu(1))));
    assert!(at(&mut engine, 49).is_empty());
}

/// Whether a job may start beside what is kept, from all that is known, looked at anew.
struct Naive<'a> {
    reservations: &'a [CapacityReservation],
    /// What runs: its queue, cores, and when it ends.
    running: &'a BTreeMap<String, (String, i64, Option<i64>)>,
    now: i64,
}

const PARENTS: [(&str, &[&str]); 4] = [("q", &["q"]), ("ops", &["ops"]), ("night", &["night", "ops"]), ("r", &["r"])];
const FLEET: i64 = 10;

impl Naive<'_> {
    fn path(queue: &str) -> &'static [&'static str] {
        PARENTS.iter().find(|(name, _)| *name == queue).unwrap().1
    }

    fn is_for(one: &CapacityReservation, queue: &str) -> bool {
        Self::path(queue).iter().any(|name| one.window.queues.iter().any(|of| of.as_str() == *name))
    }

    fn held(&self, at: i64, counts: impl Fn(&str) -> bool) -> i64 {
        let runs = |end: &Option<i64>| end.is_none_or(|end| end <= self.now || end > at);
        self.running.values().filter(|(queue, _, end)| runs(end) && counts(queue)).map(|(_, units, _)| units).sum()
    }

    fn may_start(&self, queue: &str, units: i64, run_for: Option<i64>) -> bool {
        let binds = |one: &&CapacityReservation| {
            let (start, end) = (one.window.start.as_seconds(), one.window.end.as_seconds());
            let reaches = run_for.map_or(self.now >= start - 50, |seconds| self.now + seconds > start);
            self.now < end && (self.now >= start || reaches) && !Self::is_for(one, queue)
        };
        let all: Vec<_> = self.reservations.iter().filter(binds).collect();
        all.iter().filter(|one| !one.amounts.is_empty()).all(|one| {
            let at = one.window.start.as_seconds().max(self.now);
            let then = all.iter().filter(|it| it.window.start.as_seconds() <= at && at < it.window.end.as_seconds());
            self.held(at, |_| true) + self.kept(then.copied().collect(), at) + units <= FLEET
        })
    }

    /// Each takes what jobs of its queues will hold that no other took, those for the lowest queues first.
    fn kept(&self, mut then: Vec<&CapacityReservation>, at: i64) -> i64 {
        let depth = |one: &CapacityReservation| PARENTS.iter().filter(|(name, _)| Self::is_for(one, name)).count();
        then.sort_by_key(|one| depth(one));
        let runs = |end: &Option<i64>| end.is_none_or(|end| end <= self.now || end > at);
        let held = self.running.values().filter(|(.., end)| runs(end));
        let mut untaken: Vec<(&str, i64)> = held.map(|(queue, units, _)| (queue.as_str(), *units)).collect();
        let mut kept = 0;
        for one in then {
            let mut units = i64::try_from(one.amounts.get("cpu").as_nano() / 1_000_000_000).unwrap();
            for (_, left) in untaken.iter_mut().filter(|(queue, _)| Self::is_for(one, queue)) {
                let taken = units.min(*left);
                (units, *left) = (units - taken, *left - taken);
            }
            kept += units;
        }
        kept
    }
}

#[derive(Debug, Clone)]
enum Step {
    Submit { queue: usize, units: i64, run_for: Option<i64> },
    End(usize),
    Keep(Vec<(i64, i64, i64, usize)>),
    Wait(i64),
}

fn step() -> impl Strategy<Value = Step> {
    let run_for = prop_oneof![Just(None), (1..120i64).prop_map(Some)];
    prop_oneof![
        4 => (0..4usize, 1..6i64, run_for).prop_map(|(queue, units, run_for)| Step::Submit { queue, units, run_for }),
        2 => (0..20usize).prop_map(Step::End),
        1 => prop::collection::vec((0..9i64, 0..200i64, 1..100i64, 0..5usize), 0..4).prop_map(Step::Keep),
        3 => (1..60i64).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn whoever_leaves_free_what_is_kept_starts_and_nobody_else(steps in prop::collection::vec(step(), 1..50)) {
        let mut engine = engine([queue("q", 10), queue("ops", 10), child("night", "ops", 10), queue("r", 10)], FLEET);
        engine.set_reservation_after(None);
        let mut waiting = BTreeMap::new();
        let mut running: BTreeMap<String, (String, i64, Option<i64>)> = BTreeMap::new();
        let (mut reservations, mut now) = (Vec::new(), 0);
        for (i, step) in steps.into_iter().enumerate() {
            match step {
                Step::Submit { queue, units, run_for } => {
                    // Only leaves run jobs.
                    let (name, id) = (["q", "night", "r", "q"][queue], format!("j{i:02}"));
                    let mut one = job(&id, name, i64::try_from(i).unwrap(), cpu(units));
                    Arc::make_mut(&mut one.ask).run_for = run_for;
                    engine.enqueue_job(one);
                    waiting.insert(id, (name, units, run_for));
                }
                Step::End(which) => {
                    if let Some(id) = running.keys().nth(which).cloned() {
                        running.remove(&id);
                        engine.remove_job(&id);
                    }
                }
                Step::Keep(all) => {
                    let of = |(k, (units, start, length, queue)): (usize, (i64, i64, i64, usize))| {
                        let queues: &[&str] = [&[][..], &["ops"], &["ops", "night"], &["r"], &["gone"]][queue];
                        kept(&format!("k{k}"), units, (now + start, now + start + length), queues)
                    };
                    reservations = all.into_iter().enumerate().map(of).collect();
                    engine.set_capacity_reservations(reservations.clone());
                }
                Step::Wait(seconds) => now += seconds,
            }
            engine.set_now(EpochSeconds::new(now));
            while let Some(release) = engine.release_next_by_fit(|_, _| Fit::Yes) {
                let id = release.id.to_string();
                let (name, units, run_for): (&str, i64, Option<i64>) = waiting.remove(&id).unwrap();
                let naive = Naive { reservations: &reservations, running: &running, now };
                prop_assert!(naive.may_start(name, units, run_for), "{} took what is kept", id);
                let end = run_for.map(|seconds| now + seconds);
                engine.set_expected_end(&id, end.map(EpochSeconds::new));
                running.insert(id, (name.to_owned(), units, end));
            }
            let naive = Naive { reservations: &reservations, running: &running, now };
            for (id, (name, units, run_for)) in &waiting {
                let has_quota = naive.held(now, |_| true) + units <= FLEET;
                let may = has_quota && naive.may_start(name, *units, *run_for);
                prop_assert!(!may, "{} could start: {:?}", id, engine.explain_pending(id));
                let reserved = token(&engine, id) == "CapacityReserved";
                prop_assert_eq!(reserved, has_quota, "{}", why(&engine, id));
            }
        }
    }
}
