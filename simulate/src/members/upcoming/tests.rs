//! Nodes that come, by the starts that they make possible.

use caldera_core::{
    autoscaling::Autoscaling,
    gang::Gang,
    maintenance::{Maintenance, MaintenanceWindow},
    quantity::Quantity,
    queue::QueueSpec,
    resources::Resources,
    time::EpochSeconds,
};

use crate::{
    metrics::Sample,
    policy::PolicyName,
    report::{Ratio, Report},
    run::{Options, Outcome, simulate},
    series::time_csv,
    site::{LookOn, Site},
    time::Millis,
    world::{Job, MemberCluster, Shapes, World, gang, node, ready_cluster, task},
};

fn cpu(units: i64) -> Resources {
    [("cpu", Quantity::from_units(units))].into_iter().collect()
}

/// One pod of so many cores.
fn pod_of(cores: i64) -> Gang {
    gang(vec![task("t", 1, 1, cpu(cores))])
}

/// Pods of four cores each, all of which start together.
fn pods_of_four(pods: u32) -> Gang {
    gang(vec![task("t", pods, pods, cpu(4))])
}

/// A member with a node of four cores, and a group that gets at most so many such nodes, each after five minutes.
fn growing(name: &str, most: u32) -> MemberCluster {
    let mut cluster = ready_cluster(name);
    cluster.autoscaling = group(most, 4, "5m");
    MemberCluster { cluster, nodes: vec![node(format!("{name}-n0"), cpu(4))], ..MemberCluster::default() }
}

/// A group of at most so many nodes with so many cores.
fn group(most: u32, cores: u32, delay: &str) -> Autoscaling {
    let group = r#"[{"name":"g","nodes":{"pool":"g"},"max":MOST,"resources":{"cpu":"CORES"},"delay":"DELAY"}]"#;
    let group = group.replace("MOST", &most.to_string()).replace("CORES", &cores.to_string());
    group.replace("DELAY", delay).parse().unwrap()
}

/// A member with a node of 16 cores, and a group that gets at most so many nodes of 64, each after five minutes.
fn growing_by_large_nodes(most: u32) -> MemberCluster {
    let mut cluster = ready_cluster("m");
    cluster.autoscaling = group(most, 64, "5m");
    MemberCluster { cluster, nodes: vec![node("n0".to_owned(), cpu(16))], ..MemberCluster::default() }
}

/// Jobs that arrive at once, by name, and run for a thousand seconds.
fn play(clusters: Vec<MemberCluster>, jobs: &[(&str, Gang)]) -> Outcome {
    let jobs: Vec<(u64, &str, Gang)> = jobs.iter().map(|(name, gang)| (0, *name, gang.clone())).collect();
    play_arrivals(clusters, &jobs)
}

/// The same of jobs that arrive at those seconds.
fn play_arrivals(clusters: Vec<MemberCluster>, jobs: &[(u64, &str, Gang)]) -> Outcome {
    play_with(&Options::default(), clusters, jobs)
}

fn play_with(options: &Options, clusters: Vec<MemberCluster>, jobs: &[(u64, &str, Gang)]) -> Outcome {
    let world = world(clusters, jobs);
    simulate(&world, PolicyName::Caldera.start(&world).as_mut(), options)
}

fn world(clusters: Vec<MemberCluster>, jobs: &[(u64, &str, Gang)]) -> World {
    let mut shapes = Shapes::default();
    let job = |(arrival, name, gang): &(u64, &str, Gang)| Job {
        name: (*name).into(),
        queue: "q".into(),
        priority: 0,
        arrival: Millis::from_secs(*arrival),
        run: Millis::from_secs(1_000),
        estimate: None,
        shape: shapes.gang(gang.clone()),
        running: None,
    };
    let jobs = jobs.iter().map(job).collect();
    World::new(clusters, vec![QueueSpec::unlimited("q")], jobs, Millis::ZERO).unwrap()
}

fn starts(outcome: &Outcome) -> Vec<Option<u64>> {
    outcome.jobs.iter().map(|job| job.started.map(|at| at.seconds())).collect()
}

#[test]
fn what_fits_only_on_nodes_that_may_come_starts_when_they_have_come() {
    let outcome = play(vec![growing("m", 3)], &[("a", pods_of_four(1)), ("b", pods_of_four(2))]);
    assert_eq!(starts(&outcome), [Some(0), Some(300)]);
    assert_eq!(outcome.capacity, 12, "no more nodes come than somebody waits for");
}

#[test]
fn a_node_that_may_come_is_given_to_one_gang_alone() {
    let jobs = [("a", pods_of_four(1)), ("b", pods_of_four(1)), ("c", pods_of_four(1))];
    let outcome = play(vec![growing("m", 1)], &jobs);
    assert_eq!(starts(&outcome), [Some(0), Some(300), Some(1_000)]);
}

#[test]
fn a_gang_that_is_larger_than_its_groups_may_become_never_starts() {
    let outcome = play(vec![growing("m", 1)], &[("a", pods_of_four(3)), ("b", pods_of_four(2))]);
    assert_eq!(starts(&outcome), [None, Some(300)], "one is there, and one may come");
    assert_eq!(outcome.never, [0]);
}

#[test]
fn a_gang_waits_for_nodes_in_several_members_at_once() {
    let outcome = play(vec![growing("m", 1), growing("n", 1)], &[("a", pods_of_four(4))]);
    assert_eq!(starts(&outcome), [Some(300)]);
}

#[test]
fn a_part_whose_node_has_come_does_not_wait_for_those_of_others() {
    let jobs = [(0, "a", pod_of(40)), (100, "b", pod_of(40))];
    let outcome = play_arrivals(vec![growing_by_large_nodes(3)], &jobs);
    assert_eq!(starts(&outcome), [Some(300), Some(400)]);
}

#[test]
fn jobs_that_share_a_node_wait_for_one() {
    let outcome = play(vec![growing_by_large_nodes(5)], &[("a", pod_of(32)), ("b", pod_of(32))]);
    assert_eq!((starts(&outcome), outcome.capacity), (vec![Some(300), Some(300)], 16 + 64));
}

/// `first` has the node that is there until 1,000 s. `gang` gets it then, with that which came after 300.
/// The last comes after 1,200, for nobody.
#[test]
fn what_is_allocated_is_held_against_what_is_there_at_that_time() {
    let mut member = growing("m", 1);
    let groups = |name: &str, delay: &str| {
        let (name, nodes) = (format!(r#""name":"{name}""#), format!(r#""nodes":{{"pool":"{name}"}}"#));
        format!(r#"{{{name},{nodes},"max":1,"resources":{{"cpu":"4"}},"delay":"{delay}"}}"#)
    };
    member.cluster.autoscaling = format!("[{},{}]", groups("g", "5m"), groups("h", "20m")).parse().unwrap();
    let world = world(vec![member], &[(0, "first", pods_of_four(1)), (0, "gang", pods_of_four(2))]);
    let outcome = simulate(&world, PolicyName::Caldera.start(&world).as_mut(), &Options::default());
    assert_eq!(starts(&outcome), [Some(0), Some(1_000)]);
    let capacity = |sample: &Sample| (sample.at.seconds(), sample.tally.capacity);
    let capacities: Vec<(u64, u64)> = outcome.samples.iter().map(capacity).collect();
    assert_eq!(capacities, [(0, 4), (300, 8), (1_000, 8), (1_200, 12), (2_000, 12)]);
    let report = Report::new("p", &world, &outcome, 4);
    assert_eq!((report.first_capacity, report.capacity), (4, 12));
    let two_thirds = Ratio::of(2, 3);
    assert_eq!((report.gar_median, report.gar_most, report.sor), (two_thirds, Ratio::of(1, 1), two_thirds));
    assert!(time_csv(&outcome).lines().nth(1).unwrap().starts_with("0,4.000,4.000,4,"));
}

#[test]
fn no_more_nodes_come_than_a_group_may_have() {
    let jobs = [(0, "a", pod_of(20)), (10, "b", pod_of(20)), (20, "c", pod_of(20)), (30, "d", pod_of(20))];
    let outcome = play_arrivals(vec![growing_by_large_nodes(1)], &jobs);
    assert_eq!((starts(&outcome), outcome.capacity), (vec![Some(300), Some(300), Some(300), Some(1_300)], 16 + 64));
}

/// `large` fits on the nodes of `slow` alone, once both have come and `first` has ended.
#[test]
fn what_fits_on_the_nodes_that_come_latest_alone_is_not_said_never_to_start() {
    let mut slow = growing("slow", 2);
    slow.cluster.autoscaling = group(2, 4, "20m");
    let clusters = || vec![growing("fast", 1), slow.clone()];
    let outcome = play(clusters(), &[("first", pods_of_four(5)), ("large", pods_of_four(4))]);
    assert_eq!((starts(&outcome), outcome.never), (vec![Some(1_200), Some(2_200)], vec![]));
    // It still waits at the end.
    let jobs = [("first", pods_of_four(5)), ("large", pods_of_four(4))].map(|(name, gang)| (0, name, gang));
    let options = Options { horizon: Some(Millis::from_secs(1_000)), ..Options::default() };
    let outcome = play_with(&options, clusters(), &jobs);
    assert_eq!((starts(&outcome), outcome.never), (vec![None, None], vec![]));
}

/// Its node would come after 300 s, and a window begins after 400: what runs for 100 s at most waits for the node.
#[test]
fn what_would_run_into_a_window_once_its_node_has_come_waits_for_the_end_of_the_window() {
    let start_of = |runs: u64| {
        let mut member = growing_by_large_nodes(1);
        let (start, end) = (EpochSeconds::new(400), EpochSeconds::new(1_000));
        let (reason, node_groups, queues) = (String::new(), vec![], vec![]);
        member.cluster.maintenance =
            Maintenance::new(vec![MaintenanceWindow { start, end, notice: 60, reason, node_groups, queues }]);
        let mut world = world(vec![member], &[(0, "a", pod_of(40))]);
        world.jobs[0].run = Millis::from_secs(runs);
        world.jobs[0].estimate = Some(Millis::from_secs(runs));
        starts(&simulate(&world, PolicyName::Caldera.start(&world).as_mut(), &Options::default()))[0]
    };
    assert_eq!((start_of(100), start_of(101)), (Some(300), Some(1_300)));
}

#[test]
fn a_cluster_is_kept_for_what_fits_there_once_nodes_have_come() {
    let world = world(vec![growing("m", 1)], &[(0, "a", pods_of_four(2)), (0, "b", pods_of_four(3))]);
    let mut site = Site::new(&world, &world.main_resource(), LookOn::default());
    let mut keep = |job| site.reserve_clusters(job, None, &[]).map(|kept| kept.clusters);
    assert_eq!((keep(0), keep(1)), (Some(vec!["m".into()]), None));
}
