//! Small worlds whose histories and numbers were worked out by hand.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use caldera_core::{
    card_choice::read_card_models,
    gang::Gang,
    node_groups::{NODE_GROUP, NodeGroupAffinity},
    quantity::Quantity,
    queue::{PriorityAging, QueueSpec, ReservationWait},
    resources::Resources,
};
use caldera_simulate::{
    members::Part,
    policy::{Policy, PolicyName},
    report::{Class, Ratio, Report},
    run::{Options, Outcome, simulate},
    site::Site,
    time::Millis,
    world::{Job, MemberCluster, Shape, Shapes, World, cluster, gang, task},
};

fn gpus(units: i64) -> Resources {
    [("nvidia.com/gpu", Quantity::from_units(units))].into_iter().collect()
}

/// One task of `pods` pods with `each` GPUs, all needed.
fn shape(pods: u32, each: i64) -> Arc<Shape> {
    Shapes::default().gang(gang(vec![task("pod", pods, pods, gpus(each))]))
}

fn job(name: &str, queue: &str, arrival: u64, run: u64, shape: Arc<Shape>) -> Job {
    let (arrival, run) = (Millis(arrival), Millis(run));
    Job { name: name.into(), queue: queue.into(), priority: 0, arrival, run, estimate: None, shape, running: None }
}

fn world(clusters: Vec<MemberCluster>, jobs: Vec<Job>) -> World {
    let mut queues: Vec<QueueSpec> = jobs.iter().map(|job| QueueSpec::unlimited(job.queue.clone())).collect();
    queues.sort_by(|a, b| a.name.cmp(&b.name));
    queues.dedup();
    World::new(clusters, queues, jobs, Millis::ZERO).unwrap()
}

fn outcome(world: &World, policy: PolicyName) -> Outcome {
    simulate(world, policy.start(world).as_mut(), &Options::default())
}

/// Start and end of every job, in milliseconds.
fn history(world: &World, outcome: &Outcome) -> Vec<(String, Option<u64>, Option<u64>)> {
    let millis = |time: Option<Millis>| time.map(|time| time.0);
    let rows = world.jobs.iter().zip(&outcome.jobs);
    rows.map(|(job, record)| (job.name.to_string(), millis(record.started), millis(record.ended))).collect()
}

fn assert_history(world: &World, policy: PolicyName, want: &[(&str, u64, u64)]) {
    let want: Vec<_> = want.iter().map(|(name, start, end)| ((*name).to_owned(), Some(*start), Some(*end))).collect();
    assert_eq!(history(world, &outcome(world, policy)), want, "{policy}");
}

/// Two clusters of a node with four GPUs. `a` fills one of them, `b` needs six GPUs, `c` one.
fn split() -> World {
    let clusters = ["m1", "m2"].map(|name| cluster(name, &[(1, gpus(4))])).to_vec();
    let jobs = vec![
        job("a", "q", 0, 10_000, shape(4, 1)),
        job("b", "q", 1_000, 10_000, shape(6, 1)),
        job("c", "q", 2_500, 5_000, shape(1, 1)),
    ];
    world(clusters, jobs)
}

#[test]
fn caldera_lets_the_small_job_pass_and_splits_the_gang() {
    let world = split();
    assert_history(&world, PolicyName::Caldera, &[("a", 0, 10_000), ("b", 10_000, 20_000), ("c", 2_500, 7_500)]);
    assert_eq!(outcome(&world, PolicyName::Caldera).jobs[1].clusters, 2);
}

#[test]
fn best_effort_fifo_does_the_same_here() {
    let want = [("a", 0, 10_000), ("b", 10_000, 20_000), ("c", 2_500, 7_500)];
    assert_history(&split(), PolicyName::BestEffortFifo, &want);
}

/// `a` deserves 3 GPUs and `b` one of 4. Each has jobs of 1 GPU, those of `b` are older.
fn two_queues() -> World {
    let queue = |name: &str, gpus: i64| {
        let mut queue = QueueSpec::unlimited(name);
        queue.deserved.set("nvidia.com/gpu", Quantity::from_units(gpus));
        queue
    };
    let job_of = |name: &str, queue: &str, arrival| job(name, queue, arrival, 10_000, shape(1, 1));
    let jobs = (0..4)
        .map(|i| job_of(&format!("b{i}"), "b", 1 + i))
        .chain((0..4).map(|i| job_of(&format!("a{i}"), "a", 5 + i)));
    let filler = job("filler", "a", 0, 5_000, shape(1, 4));
    let jobs = std::iter::once(filler).chain(jobs).collect();
    World::new(vec![cluster("m1", &[(1, gpus(4))])], vec![queue("a", 3), queue("b", 1)], jobs, Millis::ZERO).unwrap()
}

fn started_at(world: &World, policy: PolicyName, at: u64) -> Vec<String> {
    let history = history(world, &outcome(world, policy)).into_iter();
    history.filter(|(_, started, _)| *started == Some(at)).map(|(name, ..)| name).collect()
}

#[test]
fn kueue_looks_at_one_job_of_each_queue_those_within_what_it_deserves_before_those_that_borrow() {
    // First one of each, then a1 before b1, which borrows.
    for policy in [PolicyName::Kueue, PolicyName::KueueFair] {
        assert_eq!(started_at(&two_queues(), policy, 5_000), ["b0", "b1", "a0", "a1"], "{policy}");
    }
    assert_eq!(started_at(&two_queues(), PolicyName::BestEffortFifo, 5_000), ["b0", "b1", "b2", "b3"]);
}

#[test]
fn armada_starts_whose_queue_has_the_least_of_what_it_deserves_with_the_job_started() {
    // With it a would have a third of what it deserves, then two thirds, then all of it, as b.
    assert_eq!(started_at(&two_queues(), PolicyName::Armada, 5_000), ["b0", "a0", "a1", "a2"]);
}

#[test]
fn strict_fifo_makes_the_small_job_wait_behind_the_gang() {
    assert_history(&split(), PolicyName::Fifo, &[("a", 0, 10_000), ("b", 10_000, 20_000), ("c", 10_000, 15_000)]);
}

#[test]
fn volcano_global_decides_at_whole_seconds() {
    assert_history(
        &split(),
        PolicyName::VolcanoGlobal,
        &[("a", 0, 10_000), ("b", 10_000, 20_000), ("c", 3_000, 8_000)],
    );
}

/// One cluster, two nodes of four GPUs: `a` takes three of each; `b` needs two on one node, `c` one.
fn fragments() -> World {
    let jobs = vec![
        job("a", "q", 0, 10_000, shape(2, 3)),
        job("b", "q", 1_000, 10_000, shape(1, 2)),
        job("c", "q", 2_000, 5_000, shape(1, 1)),
    ];
    world(vec![cluster("m1", &[(2, gpus(4))])], jobs)
}

#[test]
fn caldera_does_not_release_into_fragments() {
    let want = [("a", 0, 10_000), ("b", 10_000, 20_000), ("c", 2_000, 7_000)];
    assert_history(&fragments(), PolicyName::Caldera, &want);
}

/// By sums `b` fits. It waits in the member, its queue stays charged, and `c` waits behind it although there is room.
#[test]
fn volcano_global_dispatches_what_does_not_fit_node_by_node_defect_12() {
    let want = [("a", 0, 10_000), ("b", 10_000, 20_000), ("c", 10_000, 15_000)];
    assert_history(&fragments(), PolicyName::VolcanoGlobal, &want);
    let sent = outcome(&fragments(), PolicyName::VolcanoGlobal).jobs[1].sent;
    assert_eq!(sent, Some(Millis(1_000)));
}

#[test]
fn volcano_global_charges_the_first_task_only_defect_2() {
    let mut limited = QueueSpec::unlimited("q");
    limited.capability.set("nvidia.com/gpu", Quantity::from_units(4));
    let launcher = || task("launcher", 1, 1, Resources::new());
    let shape = Shapes::default().gang(gang(vec![launcher(), task("worker", 4, 4, gpus(1))]));
    let jobs = ["a", "b"].map(|name| job(name, "q", 0, 10_000, Arc::clone(&shape))).to_vec();
    let world = World::new(vec![cluster("m1", &[(2, gpus(4))])], vec![limited], jobs, Millis::ZERO).unwrap();
    let over = |policy: PolicyName| Report::new("p", &world, &outcome(&world, policy), 4).over_limit_seconds;
    assert_history(&world, PolicyName::VolcanoGlobal, &[("a", 0, 10_000), ("b", 0, 10_000)]);
    assert_eq!(over(PolicyName::VolcanoGlobal), Millis(10_000));
    assert_history(&world, PolicyName::Caldera, &[("a", 0, 10_000), ("b", 10_000, 20_000)]);
    assert_eq!(over(PolicyName::Caldera), Millis(0));
}

/// Both queues may have all of the fleet by its books; the second job's placement is tried again after five minutes.
#[test]
fn volcano_global_bounds_queues_one_by_one_defect_5() {
    let jobs = vec![job("a", "q1", 0, 10_000, shape(4, 1)), job("b", "q2", 0, 10_000, shape(4, 1))];
    let world = world(vec![cluster("m1", &[(1, gpus(4))])], jobs);
    assert_history(&world, PolicyName::VolcanoGlobal, &[("a", 0, 10_000), ("b", 300_000, 310_000)]);
    assert_history(&world, PolicyName::Caldera, &[("a", 0, 10_000), ("b", 10_000, 20_000)]);
}

#[test]
fn priority_goes_first_except_under_fifo() {
    let mut jobs = vec![
        job("a", "q", 0, 10_000, shape(4, 1)),
        job("b", "q", 1_000, 10_000, shape(4, 1)),
        job("c", "q", 2_000, 10_000, shape(4, 1)),
    ];
    jobs[2].priority = 5;
    let world = world(vec![cluster("m1", &[(1, gpus(4))])], jobs);
    let by_priority = [("a", 0, 10_000), ("b", 20_000, 30_000), ("c", 10_000, 20_000)];
    let by_age = [("a", 0, 10_000), ("b", 10_000, 20_000), ("c", 20_000, 30_000)];
    for policy in PolicyName::ALL {
        let fifo = matches!(policy, PolicyName::Fifo | PolicyName::BestEffortFifo);
        assert_history(&world, policy, if fifo { &by_age } else { &by_priority });
    }
}

#[test]
fn a_gang_that_gets_fewer_pods_runs_longer() {
    let shape = Shapes::default().gang(gang(vec![task("pod", 8, 2, gpus(1))]));
    let world = world(vec![cluster("m1", &[(1, gpus(4))])], vec![job("a", "q", 0, 10_000, shape)]);
    assert_history(&world, PolicyName::Caldera, &[("a", 0, 20_000)]);
}

#[test]
fn what_can_never_start_is_reported_and_stops_nobody() {
    let mut limited = QueueSpec::unlimited("q");
    limited.capability.set("nvidia.com/gpu", Quantity::from_units(6));
    let jobs = vec![
        job("huge", "q", 0, 1_000, shape(1, 5)),
        job("over", "q", 0, 1_000, shape(7, 1)),
        job("small", "q", 1_000, 1_000, shape(1, 1)),
    ];
    let world = World::new(vec![cluster("m1", &[(2, gpus(4))])], vec![limited], jobs, Millis::ZERO).unwrap();
    for policy in [PolicyName::Caldera, PolicyName::Fifo, PolicyName::BestEffortFifo] {
        let outcome = outcome(&world, policy);
        let rows = history(&world, &outcome);
        assert_eq!(rows[2], ("small".to_owned(), Some(1_000), Some(2_000)), "{policy}");
        let report = Report::new(policy.as_str(), &world, &outcome, 4);
        assert_eq!((report.never_fit, report.unstarted, report.finished), (2, 0, 1), "{policy}");
    }
}

#[test]
fn rates_are_those_worked_out_by_hand() {
    let world = fragments();
    let report = Report::new("caldera", &world, &outcome(&world, PolicyName::Caldera), 4);
    // Six GPUs to 2 s, seven to 7 s, six to 10 s, two to 20 s, of eight.
    assert_eq!(report.sor, Ratio::of(85, 160));
    // The last arrives at 2 s.
    assert_eq!(report.sor_while_arriving, Ratio::of(12, 16));
    // `b` waits from 1 s to 10 s.
    assert_eq!(report.sor_while_waiting, Ratio::of(6 + 35 + 18, 72));
    assert_eq!((report.gar_median, report.gar_most), (Ratio::of(2, 8), Ratio::of(7, 8)));
    // Nodes in pieces: two, one, two, one; nodes with some free: two, one, two, two.
    assert_eq!(report.gfr, Ratio::of(4 + 5 + 6 + 10, 40));
    assert_eq!(report.gfr_of_open, Ratio::of(25, 4 + 5 + 6 + 20));
    assert_eq!((report.held_idle, report.makespan_seconds), (Ratio(0), Millis(20_000)));
    let waits = report.wait_seconds;
    assert_eq!((waits.jobs, waits.p50, waits.p90, waits.max), (3, Millis(0), Millis(9_000), Millis(9_000)));
    let classes: Vec<(&str, Millis)> =
        report.wait_seconds_by_class.iter().map(|(class, waits)| (class.as_str(), waits.max)).collect();
    assert_eq!(classes, [("1", Millis(0)), ("2-8", Millis(9_000))]);
    assert_eq!(report.over_limit_seconds, Millis(0));
}

/// `x` and `y` take one GPU of each node of m2, so that `b` (three pods of two GPUs) fits two pods in m1 and, by sums
/// alone, one in m2. Under the peer its part in m1 is bound, and idle until `x` ends.
#[test]
fn what_is_bound_and_can_not_run_is_held_idle() {
    let with_fast = |gpu, fast| -> Resources {
        [("nvidia.com/gpu", gpu), ("fast", fast)].map(|(n, a)| (n, Quantity::from_units(a))).into_iter().collect()
    };
    let fast = Shapes::default().gang(gang(vec![task("pod", 1, 1, with_fast(1, 1))]));
    let clusters = vec![cluster("m1", &[(1, gpus(4))]), cluster("m2", &[(2, with_fast(2, 1))])];
    let jobs = vec![
        job("x", "q", 0, 20_000, Arc::clone(&fast)),
        job("y", "q", 0, 30_000, fast),
        job("b", "q", 1_000, 10_000, shape(3, 2)),
    ];
    let world = world(clusters, jobs);
    let want = [("x", 0, 20_000), ("y", 0, 30_000), ("b", 20_000, 30_000)];
    let held = |policy| Report::new("p", &world, &outcome(&world, policy), 4).held_idle;
    assert_history(&world, PolicyName::VolcanoGlobal, &want);
    assert_eq!(held(PolicyName::VolcanoGlobal), Ratio::of(4 * 19, 8 * 30));
    assert_history(&world, PolicyName::Caldera, &want);
    assert_eq!(held(PolicyName::Caldera), Ratio(0));
}

#[test]
fn classes_have_the_bounds_that_their_names_say() {
    let named = |units| Class::of(units).as_str();
    assert_eq!(
        [0, 1, 2, 8, 9, 64, 65, 512, 513].map(named),
        ["0", "1", "2-8", "2-8", "9-64", "9-64", "65-512", "65-512", "513+"]
    );
}

/// Starts everything at once, and takes the first job back at five seconds.
#[derive(Default)]
struct Impatient {
    waiting: Vec<usize>,
    evicted: bool,
}

impl Policy for Impatient {
    fn arrived(&mut self, _: &mut Site<'_>, job: usize) {
        self.waiting.push(job);
    }
    fn resumed(&mut self, _: &mut Site<'_>, _: usize) {}
    fn ended(&mut self, _: &mut Site<'_>, _: usize) {}
    fn decide(&mut self, site: &mut Site<'_>) {
        if site.now() == Millis(5_000) && !std::mem::replace(&mut self.evicted, true) {
            site.evict(0);
            self.waiting.push(0);
            return;
        }
        for job in std::mem::take(&mut self.waiting) {
            match site.find(job, None, &[]) {
                Ok(parts) => {
                    assert!(parts.iter().map(|part: &Part| part.pods[0]).sum::<u32>() > 0);
                    site.send_job(job, parts);
                }
                Err(_) => self.waiting.push(job),
            }
        }
    }
    fn due(&self, now: Millis) -> Option<Millis> {
        Some(now.plus(Millis(1)).up_to(Millis(1_000))).filter(|at| *at <= Millis(8_000))
    }
}

#[test]
fn an_evicted_job_gives_back_and_runs_anew() {
    let jobs = vec![job("a", "q", 0, 10_000, shape(4, 1)), job("b", "q", 1_000, 1_000, shape(4, 1))];
    let world = world(vec![cluster("m1", &[(1, gpus(4))])], jobs);
    let outcome = simulate(&world, &mut Impatient::default(), &Options::default());
    // At 6 s both wait; `b` was first in this policy's line.
    let rows = history(&world, &outcome);
    assert_eq!(rows, [("a".to_owned(), Some(0), Some(17_000)), ("b".to_owned(), Some(6_000), Some(7_000))]);
    let report = Report::new("p", &world, &outcome, 4);
    assert_eq!((report.preemptions, report.finished, report.sor), (1, 2, Ratio::of(5 + 1 + 10, 17)));
    assert_eq!(report.lost, Ratio::of(5, 16));
}

#[test]
fn small_jobs_pass_a_blocked_one_for_as_long_as_its_queue_says() {
    let jobs = || {
        let mut shapes = Shapes::default();
        let mut shape = |each| shapes.gang(gang(vec![task("pod", 1, 1, gpus(each))]));
        let big = Job { estimate: Some(Millis(3_600_000)), ..job("big", "q", 1_000, 10_000, shape(8)) };
        let [a, s] = [shape(6), shape(2)];
        let small = |name, arrival| job(name, "q", arrival, 40_000, Arc::clone(&s));
        vec![job("a", "q", 0, 30_000, a), big, small("s0", 10_000), small("s1", 40_000)]
    };
    let started = |wait: &str| {
        let mut world = world(vec![cluster("m1", &[(1, gpus(8))])], jobs());
        world.queues[0].reservation_wait = Some(ReservationWait::parse(wait).unwrap());
        let history = history(&world, &outcome(&world, PolicyName::Caldera));
        history.into_iter().map(|(_, started, _)| started.unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(started("5s"), [0, 30_000, 40_000, 40_000]);
    assert_eq!(started("5s,1%"), [0, 50_000, 10_000, 60_000], "after 36 s, of the hour that it declares");
    assert_eq!(started("never"), [0, 80_000, 10_000, 40_000]);
}

#[test]
fn a_job_that_waits_long_enough_goes_before_those_of_a_higher_priority_that_come_later() {
    let started = |aging: Option<&str>| {
        let urgent = |name, arrival| Job { priority: 1, ..job(name, "q", arrival, 10_000, shape(1, 4)) };
        let jobs = vec![
            urgent("a", 0),
            job("old", "q", 1_000, 10_000, shape(1, 4)),
            urgent("b", 2_000),
            urgent("c", 12_000),
            urgent("d", 22_000),
        ];
        let mut world = world(vec![cluster("m1", &[(1, gpus(4))])], jobs);
        world.queues[0].aging = aging.map(|text| PriorityAging::parse(text).unwrap());
        history(&world, &outcome(&world, PolicyName::Caldera))[1].1
    };
    assert_eq!([None, Some("none"), Some("1/1h")].map(started), [Some(40_000); 3]);
    assert_eq!(started(Some("1/15s")), Some(20_000), "it is as urgent after 15 s, and older");
}

/// A node with a card of each of two models; jobs that may use both start on the second where the first is taken, or is
/// none of their queue's.
#[test]
fn a_job_starts_on_the_first_of_its_card_models_that_has_quota_and_room() {
    let mut cluster = cluster("m1", &[(2, gpus(1))]);
    for (node, model) in cluster.nodes.iter_mut().zip(["A100", "H100"]) {
        node.labels.insert("nvidia.com/gpu.product".to_owned(), model.to_owned());
    }
    let mut either = task("pod", 1, 1, gpus(1));
    either.node.cards = read_card_models("A100|H100");
    let either = Shapes::default().gang(gang(vec![either]));
    let jobs = ["a", "b", "c"].map(|name| job(name, "q", 0, 10_000, Arc::clone(&either))).to_vec();
    let mut world = world(vec![cluster], jobs);
    assert_history(&world, PolicyName::Caldera, &[("a", 0, 10_000), ("b", 0, 10_000), ("c", 10_000, 20_000)]);
    world.queues[0].capability.set("nvidia.com/gpu:H100", Quantity::from_units(8));
    assert_history(&world, PolicyName::Caldera, &[("a", 0, 10_000), ("b", 10_000, 20_000), ("c", 20_000, 30_000)]);
}

#[test]
fn no_more_jobs_run_than_a_queue_allows() {
    let mut limited = QueueSpec::unlimited("q");
    limited.running.all = Some(1);
    let jobs = ["a", "b"].map(|name| job(name, "q", 0, 10_000, shape(1, 1))).to_vec();
    let world = World::new(vec![cluster("m1", &[(1, gpus(4))])], vec![limited], jobs, Millis::ZERO).unwrap();
    assert_history(&world, PolicyName::Caldera, &[("a", 0, 10_000), ("b", 10_000, 20_000)]);
}

/// Of each model there are four idle cards; the queue may have two of one and any number of the other.
#[test]
fn a_queue_has_no_more_cards_of_a_model_than_its_quota() {
    let mut place = cluster("m1", &[(1, gpus(4)), (1, gpus(4))]);
    let label = |model: &str| [("nvidia.com/gpu.product".to_owned(), model.to_owned())].into();
    (place.nodes[0].labels, place.nodes[1].labels) = (label("A100"), label("H100"));
    let on = |model: &str| {
        let mut pods = task("pod", 1, 1, gpus(2));
        pods.node.selector = label(model);
        Shapes::default().gang(gang(vec![pods]))
    };
    let mut queue = QueueSpec::unlimited("q");
    queue.capability.set("nvidia.com/gpu:A100", Quantity::from_units(2));
    let jobs = vec![
        job("first", "q", 0, 10_000, on("A100")),
        job("second", "q", 1_000, 5_000, on("A100")),
        job("third", "q", 2_000, 5_000, on("H100")),
        job("fourth", "q", 2_500, 5_000, on("H100")),
    ];
    let world = World::new(vec![place], vec![queue], jobs, Millis::ZERO).unwrap();
    let want = [("first", 0, 10_000), ("second", 10_000, 15_000), ("third", 2_000, 7_000), ("fourth", 2_500, 7_500)];
    assert_history(&world, PolicyName::Caldera, &want);
}

/// Queue `q` uses group `a` alone, `r` names no group. Each has a node of four GPUs, whatever the policy.
#[test]
fn jobs_use_the_nodes_of_their_queues_groups_by_every_policy() {
    let mut place = cluster("m1", &[(1, gpus(4)), (1, gpus(4))]);
    place.nodes[0].labels = [(NODE_GROUP.to_owned(), "a".to_owned())].into();
    let jobs = vec![
        job("first", "q", 0, 10_000, shape(2, 2)),
        job("second", "q", 1_000, 5_000, shape(1, 1)),
        job("third", "r", 2_000, 5_000, shape(2, 2)),
        job("fourth", "r", 3_000, 5_000, shape(1, 1)),
    ];
    let groups = NodeGroupAffinity { required: ["a".to_owned()].into(), ..NodeGroupAffinity::default() };
    let queues = vec![QueueSpec { affinity: Some(groups), ..QueueSpec::unlimited("q") }, QueueSpec::unlimited("r")];
    let world = World::new(vec![place], queues, jobs, Millis::ZERO).unwrap();
    let early = [("first", 0, 10_000), ("second", 10_000, 15_000), ("third", 2_000, 7_000), ("fourth", 7_000, 12_000)];
    for policy in [PolicyName::Caldera, PolicyName::BestEffortFifo] {
        assert_history(&world, policy, &early);
    }
    // One line for all: nobody passes the second.
    let late =
        [("first", 0, 10_000), ("second", 10_000, 15_000), ("third", 10_000, 15_000), ("fourth", 15_000, 20_000)];
    assert_history(&world, PolicyName::Fifo, &late);
}

#[test]
fn a_job_goes_where_its_data_is_and_what_it_has_to_fetch_is_counted() {
    let with_data = |data: &str| {
        let gang = gang(vec![task("pod", 1, 1, gpus(1))]);
        Shapes::default().gang(Gang { data: Some(Arc::new(data.parse().unwrap())), ..gang })
    };
    let fleet = || vec![cluster("m1", &[(1, gpus(1))]), cluster("m2", &[(1, gpus(4))])];
    let fetched = |data: &str, policy: PolicyName| {
        let jobs = vec![job("a", "q", 0, 1_000, with_data(data)), job("b", "q", 0, 1_000, with_data(data))];
        let world = world(fleet(), jobs);
        Report::new("", &world, &outcome(&world, policy), 4).fetched_bytes
    };
    // Only one of them finds a place in m1; the other has it all to fetch. By best fit both would go there.
    assert_eq!(fetched("cluster=m1:2Gi", PolicyName::Caldera), Some(2 << 30));
    assert_eq!(fetched("cluster=m2:2Gi", PolicyName::Caldera), Some(0));
    assert_eq!(fetched("cluster=m2:2Gi,cluster=m1:1Gi", PolicyName::Caldera), Some(2 << 30));
    assert_eq!(fetched("cluster=m1:7", PolicyName::Caldera), Some(0), "it is not said how much that is");
    let plain = world(fleet(), vec![job("a", "q", 0, 1_000, shape(1, 1))]);
    assert_eq!(Report::new("", &plain, &outcome(&plain, PolicyName::Caldera), 4).fetched_bytes, None);
}
