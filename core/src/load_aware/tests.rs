//! A small fleet on virtual time: what jobs really use is known here, and what the rule sees is what nodes measure.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::{
    inventory::MemberLoad,
    quantity::Quantity,
    queue::{
        JobId,
        preemption::{PreemptionPolicy, RunningJob, tests::candidate},
    },
    resources::Resources,
    time::EpochSeconds,
};

const CAPACITY: i64 = 100;

fn cpu(cores: i64) -> Resources {
    [("cpu", Quantity::from_units(cores)), ("memory", Quantity::from_units(cores))].into_iter().collect()
}

/// A job of one pod.
#[derive(Debug, Clone)]
struct Job {
    cluster: Option<&'static str>,
    asks: i64,
    /// What it really uses.
    uses: i64,
    running: RunningJob,
    moved_at: Option<i64>,
    avoid: BTreeSet<String>,
    /// It starts anew then.
    starts_at: i64,
}

struct World {
    now: i64,
    policy: LoadPolicy,
    preemption: PreemptionPolicy,
    history: LoadHistory,
    clusters: Vec<&'static str>,
    jobs: BTreeMap<String, Job>,
    /// What a member says instead of what is true.
    lies: BTreeMap<&'static str, Option<MemberLoad>>,
    closed: BTreeSet<String>,
    moves: Vec<(i64, String, JobMove)>,
}

impl World {
    fn new(clusters: &[&'static str]) -> Self {
        let policy = LoadPolicy { enabled: true, ..LoadPolicy::default() };
        Self {
            now: 999_900,
            policy,
            preemption: PreemptionPolicy::default(),
            history: LoadHistory::default(),
            clusters: clusters.to_vec(),
            jobs: BTreeMap::new(),
            lies: BTreeMap::new(),
            closed: BTreeSet::new(),
            moves: Vec::new(),
        }
    }

    fn job(&mut self, name: &str, cluster: &'static str, asks: i64, uses: i64) -> &mut Job {
        let running = RunningJob {
            preemptable: Some(true),
            created: self.now.into(),
            ..candidate(name, "q", self.now - 600, cpu(asks))
        };
        let job =
            Job { cluster: Some(cluster), asks, uses, running, moved_at: None, avoid: BTreeSet::new(), starts_at: 0 };
        self.jobs.entry(name.to_owned()).or_insert(job)
    }

    fn sum(&self, cluster: &str, of: impl Fn(&Job) -> i64) -> i64 {
        self.jobs.values().filter(|job| job.cluster == Some(cluster)).map(of).sum()
    }

    /// What is really used, of 100.
    fn used(&self, cluster: &str) -> i64 {
        self.sum(cluster, |job| if job.starts_at <= self.now { job.uses } else { 0 }).min(CAPACITY)
    }

    fn measure(&mut self) {
        for cluster in self.clusters.clone() {
            let true_load = MemberLoad {
                used: cpu(self.used(cluster)),
                capacity: cpu(CAPACITY),
                read_at: EpochSeconds::new(self.now),
            };
            let reported = self.lies.get(cluster).cloned().unwrap_or(Some(true_load));
            self.history.observe_load(cluster, reported.as_ref(), &self.policy, EpochSeconds::new(self.now));
        }
    }

    /// Plans a round; first fit by what is asked for, in the order of the names.
    fn plan(&self) -> Vec<JobMove> {
        let asked =
            self.clusters.iter().map(|name| ((*name).to_owned(), cpu(self.sum(name, |job| job.asks)))).collect();
        let jobs: Vec<PlacedJob> = self
            .jobs
            .values()
            .filter_map(|job| {
                let asks = [(job.cluster?.to_owned(), cpu(job.asks))].into();
                Some(PlacedJob {
                    job: job.running.clone(),
                    asks,
                    moved_at: job.moved_at.map(EpochSeconds::new),
                    avoid: job.avoid.clone(),
                })
            })
            .collect();
        let mut taken: BTreeMap<String, i64> = BTreeMap::new();
        let input = LoadInput {
            policy: &self.policy,
            preemption: &self.preemption,
            history: &self.history,
            asked: &asked,
            closed: &self.closed,
            jobs: &jobs,
            fleet: &cpu(CAPACITY * i64::try_from(self.clusters.len()).unwrap()),
            now: EpochSeconds::new(self.now),
        };
        plan_moves(&input, |_, id: &JobId, open| {
            let asks = self.jobs[id.as_str()].asks;
            let fits = |name: &&String| {
                self.sum(name, |job| job.asks) + taken.get(*name).copied().unwrap_or(0) + asks <= CAPACITY
            };
            let name = open.iter().find(fits)?.clone();
            *taken.entry(name.clone()).or_default() += asks;
            Some([(name, 1)].into())
        })
    }

    /// Carries a round out: each job starts anew a minute later.
    fn round(&mut self) {
        for one in self.plan() {
            let job = self.jobs.get_mut(one.id.as_str()).unwrap();
            let others = self.clusters.iter().filter(|name| !one.receivers.contains(**name));
            job.avoid.extend(others.map(|name| (*name).to_owned()));
            let to = one.to.iter().next().unwrap().clone();
            job.cluster = self.clusters.iter().find(|name| **name == to).copied();
            (job.moved_at, job.starts_at, job.running.started) =
                (Some(self.now), self.now + 60, Some(EpochSeconds::new(self.now + 60)));
            one.from.iter().chain(&one.to).for_each(|name| self.history.reset_hot_counts(name));
            self.moves.push((self.now, one.id.to_string(), one));
        }
    }

    /// Goes on for so many seconds: a reading each half minute, a round each interval.
    fn run(&mut self, seconds: i64) {
        let end = self.now + seconds;
        while self.now < end {
            self.now += 30;
            self.measure();
            if self.now % self.policy.interval == 0 {
                self.round();
            }
        }
    }

    fn moved(&self) -> Vec<&str> {
        self.moves.iter().map(|(_, name, _)| name.as_str()).collect()
    }
}

#[test]
fn a_fleet_at_rest_moves_nothing_in_a_day() {
    let mut world = World::new(&["a", "b", "c"]);
    for (at, cluster) in ["a", "b", "c"].into_iter().enumerate() {
        for number in 0..8 {
            // Up to the target threshold, and down to nothing.
            world.job(
                &format!("{cluster}{number}"),
                cluster,
                10,
                if at == 0 { 10 } else { i64::try_from(at).unwrap() },
            );
        }
    }
    assert_eq!((world.used("a"), world.used("b")), (80, 8));
    world.run(24 * 3_600);
    assert_eq!(world.moved(), [""; 0]);
}

#[test]
fn a_hot_cluster_is_cool_within_two_intervals() {
    let mut world = World::new(&["a", "b", "c"]);
    for number in 0..9 {
        world.job(&format!("j{number}"), "a", 10, 11);
    }
    assert_eq!(world.used("a"), 99);
    world.run(2 * world.policy.interval + 90);
    assert!(world.used("a") <= 80, "{}", world.used("a"));
    assert_eq!(world.moved().len(), 2, "{:?}", world.moves);
    let (_, _, first) = &world.moves[0];
    assert_eq!(first.why, "cluster a really uses 99 % of its cpu, and 80 % is hot; there is room in b");
    world.run(24 * 3_600);
    assert_eq!(world.moved().len(), 2, "and that was all");
}

#[test]
fn the_least_lost_work_goes_first_and_whoever_is_not_needed_stays() {
    let mut world = World::new(&["a", "b"]);
    world.job("important", "a", 10, 15).running.priority = 5;
    world.job("old", "a", 10, 25).running.started = Some(EpochSeconds::new(900_000));
    world.job("small", "a", 10, 5).running.started = Some(EpochSeconds::new(999_890));
    world.job("young", "a", 10, 20).running.started = Some(EpochSeconds::new(999_800));
    world.job("older", "a", 10, 30).running.started = Some(EpochSeconds::new(1));
    assert_eq!(world.used("a"), 95);
    world.run(300);
    // By what it asks for each is taken to use 19 of 95: one is enough, and the youngest loses least.
    assert_eq!(world.moved(), ["small"]);
}

#[test]
fn of_more_than_may_leave_those_that_relieve_most_do() {
    let mut world = World::new(&["a", "b"]);
    world.policy.moves = 1;
    world.policy.target_thresholds = Thresholds { cpu: Some(46), memory: None };
    world.policy.thresholds = Thresholds { cpu: Some(30), memory: None };
    for (name, asks) in [("s1", 2), ("s2", 3), ("large", 40), ("s3", 45)] {
        world.job(name, "a", asks, asks).running.started = Some(EpochSeconds::new(999_900 - asks));
    }
    assert_eq!(world.used("a"), 90);
    world.run(300);
    assert_eq!(world.moved(), ["large"]);
}

#[test]
fn nothing_swings_between_two_clusters() {
    // What it uses is far from what it asks for, so that each estimate is wrong.
    for uses in [5, 40, 60, 79, 81, 95] {
        for others in [0, 10, 25, 29, 31, 60] {
            let mut world = World::new(&["a", "b"]);
            world.job("wild", "a", 10, uses);
            world.job("steady", "a", 50, 90 - uses.min(89));
            world.job("there", "b", 20, others);
            world.run(24 * 3_600);
            let mut by_job: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
            for (at, name, _) in &world.moves {
                by_job.entry(name).or_default().push(*at);
            }
            for times in by_job.values() {
                let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
                assert!(gaps.clone().all(|gap| gap >= world.policy.cooldown), "{times:?}");
            }
            assert!(world.moves.len() <= 2, "{uses} {others}: {:?}", world.moves);
        }
    }
}

#[test]
fn a_load_that_is_stale_or_absent_moves_nothing() {
    let hot = |read_at: i64| MemberLoad { used: cpu(95), capacity: cpu(100), read_at: EpochSeconds::new(read_at) };
    let stale = |world: &mut World| {
        world.job("j", "a", 10, 95);
        world.lies.insert("a", Some(hot(1_000_000)));
    };
    let mut world = World::new(&["a", "b"]);
    stale(&mut world);
    world.run(3_600);
    assert_eq!(world.moved(), [""; 0], "the same reading again is one reading");
    let mut world = World::new(&["a", "b"]);
    world.job("j", "a", 10, 95);
    world.lies.insert("b", None);
    world.run(3_600);
    assert_eq!(world.moved(), [""; 0], "nobody goes where nobody knows the load");
    world.lies.insert("b", Some(MemberLoad { used: cpu(0), ..hot(2_000_000_000) }));
    world.run(3_600);
    assert_eq!(world.moved(), [""; 0], "a clock that is ahead makes no reading last");
    world.lies.clear();
    world.lies.insert("a", None);
    world.run(3_600);
    assert_eq!(world.moved(), [""; 0]);
    // Hot once in a while is not hot.
    for _ in 0..100 {
        world.lies.clear();
        world.run(60);
        world.lies.insert("a", None);
        world.run(60);
    }
    assert_eq!(world.moved(), [""; 0]);
}

#[test]
fn a_member_that_lies_about_its_load_has_few_jobs_moved_and_none_twice_in_a_cooldown() {
    let mut world = World::new(&["a", "b", "c"]);
    for number in 0..40 {
        world.job(&format!("j{number:02}"), "a", 2, 1);
    }
    for hours in 1..=4 {
        let end = world.now + 3_600;
        while world.now < end {
            let read_at = EpochSeconds::new(world.now + 30);
            world.lies.insert("a", Some(MemberLoad { used: cpu(100), capacity: cpu(100), read_at }));
            world.run(30);
        }
        let most = usize::try_from(i64::from(world.policy.moves) * 3_600 / world.policy.interval).unwrap();
        assert!(world.moves.len() <= hours * most, "{}", world.moves.len());
    }
    let names = world.moved();
    let unique: BTreeSet<&&str> = names.iter().collect();
    assert_eq!(names.len(), unique.len(), "nobody comes back to be moved again");
    assert!(!names.is_empty());
    // More than it has, which what is read never says: nobody would be cool with what such a job is taken to use.
    let wild = [("cpu", Quantity::from_units(i64::MAX)), ("memory", Quantity::ZERO)].into_iter().collect();
    let mut world = World::new(&["a", "b"]);
    world.job("j", "a", 2, 1);
    for reading in 0..40 {
        let read_at = EpochSeconds::new(world.now + 30);
        let load = MemberLoad { used: Resources::clone(&wild), capacity: cpu(100), read_at };
        world.lies.insert("a", Some(load));
        world.run(30);
        assert_eq!(world.moved(), [""; 0], "{reading}");
    }
    // One that says that it has nothing is neither hot nor cold.
    let mut world = World::new(&["a", "b"]);
    world.job("j", "b", 10, 95);
    world.lies.insert("a", Some(MemberLoad { read_at: EpochSeconds::new(0), ..MemberLoad::default() }));
    world.run(3_600);
    assert_eq!(world.moved(), [""; 0]);
}

#[test]
fn one_that_tells_more_often_says_no_more() {
    let mut history = LoadHistory::default();
    let policy = LoadPolicy { samples: 3, ..LoadPolicy::default() };
    for second in 0..29 {
        let at = EpochSeconds::new(second);
        let load = MemberLoad { used: cpu(95), capacity: cpu(100), read_at: at };
        history.observe_load("a", Some(&load), &policy, at);
    }
    assert!(!history.is_hot("a", &policy), "two readings count of those within half a minute");
    let at = EpochSeconds::new(30);
    history.observe_load("a", Some(&MemberLoad { used: cpu(95), capacity: cpu(100), read_at: at }), &policy, at);
    assert!(history.is_hot("a", &policy));
    history.reset_hot_counts("a");
    assert!(!history.is_hot("a", &policy));
}

fn each(world: &mut World, change: fn(&mut RunningJob)) {
    world.jobs.values_mut().for_each(|job| change(&mut job.running));
}

#[test]
fn who_may_not_be_evicted_or_is_too_important_stays() {
    let run = |change: fn(&mut World)| {
        let mut world = World::new(&["a", "b"]);
        for name in ["x", "y"] {
            world.job(name, "a", 40, 45);
        }
        change(&mut world);
        world.run(600);
        world.moved().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(run(|_| {}).len(), 1);
    assert_eq!(run(|world| each(world, |job| job.preemptable = Some(false))), [""; 0]);
    assert_eq!(run(|world| each(world, |job| job.preemptable = None)), [""; 0]);
    let unset = run(|world| {
        each(world, |job| job.preemptable = None);
        world.preemption.unset.preempt = true;
    });
    assert_eq!(unset.len(), 1);
    assert_eq!(run(|world| each(world, |job| job.namespace = "kube-system".into())), [""; 0]);
    assert_eq!(run(|world| each(world, |job| job.ours = false)), [""; 0]);
    assert_eq!(run(|world| each(world, |job| job.started = None)), [""; 0]);
    let excluded = run(|world| {
        world.policy.excluded_namespaces.insert("ns".into());
    });
    assert_eq!(excluded, [""; 0]);
    assert_eq!(run(|world| world.policy.priority_threshold = Some(0)), [""; 0]);
    assert_eq!(run(|world| world.policy.priority_threshold = Some(1)).len(), 1);
    let kept = run(|world| {
        world.closed.insert("b".into());
    });
    assert_eq!(kept, [""; 0], "it is kept for somebody");
    let full = run(|world| {
        world.job("full", "b", 90, 5);
    });
    assert_eq!(full, [""; 0], "nobody leaves that fits nowhere else");
    let warm = run(|world| {
        world.job("warm", "b", 5, 31);
    });
    assert_eq!(warm, [""; 0], "it is no cold cluster");
}

#[test]
fn thresholds_are_read_as_they_are_written_and_have_to_agree() {
    let read = |text: &str| text.parse::<Thresholds>();
    let both = Thresholds { cpu: Some(30), memory: Some(100) };
    assert_eq!(read("cpu=30,memory=100"), Ok(both));
    assert_eq!(read(" memory=100 , cpu=30"), Ok(both));
    assert_eq!(both.to_string(), "cpu=30,memory=100");
    for wrong in ["", "cpu", "cpu=101", "cpu=-1", "cpu=1,cpu=2", "pods=3", "cpu=NaN", "cpu=1,"] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
    let check = |low: &str, high: &str| {
        let (thresholds, target_thresholds) = (read(low).unwrap(), read(high).unwrap());
        LoadPolicy { thresholds, target_thresholds, ..LoadPolicy::default() }.check_thresholds()
    };
    assert_eq!(check("cpu=30", "cpu=31"), Ok(()));
    assert_eq!(
        check("cpu=80", "cpu=80").unwrap_err(),
        "the threshold of cpu, 80 %, has to be below its target threshold, 80 %"
    );
    assert!(check("cpu=30", "cpu=80,memory=80").unwrap_err().contains("names memory"));
    assert_eq!(LoadPolicy::default().check_thresholds(), Ok(()));
}

#[test]
fn best_effort_jobs_leave_a_hot_cluster_first() {
    let mut world = World::new(&["a", "b"]);
    for name in ["w", "x", "y", "z"] {
        world.job(name, "a", 20, 22);
    }
    for (name, priority, best_effort) in [("w", 0, false), ("x", 0, false), ("y", 0, false), ("z", 9, true)] {
        if let Some(job) = world.jobs.get_mut(name) {
            (job.running.priority, job.running.best_effort) = (priority, best_effort);
        }
    }
    world.run(600);
    assert_eq!(world.moved(), ["z"]);
}
