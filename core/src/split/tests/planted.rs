//! Gangs too large to be packed by trying (`exact`): how often one that fits is refused. Each is planted: pods are put
//! on nodes first, and the gang is what was put, so that it fits for certain and leaves of each cluster what it leaves.

use proptest::{
    prop_oneof,
    strategy::{Strategy as Generate, ValueTree},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use super::{Strategy, *};

/// Of each kind; docs/benchmarks.md has the numbers of 60.
const GANGS: usize = 8;

/// What a node has and what is left of it: cores, GPUs.
type Node = (i64, i64);

/// Nodes by cluster, and the pods of each task that were put on them: up to so many hundredths of every node's cores.
fn planted(requests: &[Node], nodes: &[Vec<Node>], choices: &[usize], full: i64) -> Vec<u32> {
    let mut pods = vec![0; requests.len()];
    let mut choices = choices.iter().cycle();
    for (cpu, gpu) in nodes.iter().flatten() {
        let (mut cores, mut gpus) = (cpu * full / 100, *gpu);
        let mut misses = 0;
        while misses < requests.len() {
            let task = choices.next().unwrap() % requests.len();
            let (asks, asks_gpus) = requests[task];
            if asks <= cores && asks_gpus <= gpus {
                (cores, gpus, misses) = (cores - asks, gpus - asks_gpus, 0);
                pods[task] += 1;
            } else {
                misses += 1;
            }
        }
    }
    pods
}

/// Of so many planted gangs of two to four tasks: those that are refused, and the most that is not held of a part.
fn tried(count: usize, clusters: usize, full: i64, strategy: Strategy) -> (usize, i128) {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let node = (prop_oneof![8..17i64, 16..33i64, 32..65i64], proptest::sample::select(vec![0, 0, 4, 8]));
    let nodes = proptest::collection::vec(proptest::collection::vec(node, 20..40), clusters);
    let request = (1..13i64, proptest::sample::select(vec![0, 0, 1, 2, 4]));
    let requests = proptest::collection::vec(request, 2..5);
    let choices = proptest::collection::vec(0..60usize, 97);
    let case = (requests, nodes, choices);
    let (mut refused, mut lost, mut asked) = (0, 0, 0);
    while asked < count {
        let (requests, nodes, choices) = case.new_tree(&mut runner).unwrap().current();
        let pods = planted(&requests, &nodes, &choices, full);
        if sum_pods(&pods) <= 24 {
            continue;
        }
        asked += 1;
        let tasks = requests.iter().zip(&pods).enumerate();
        let tasks = tasks.map(|(at, ((cpu, gpu), pods))| task(&format!("t{at}"), *pods, *pods, *cpu, *gpu));
        let mut gang = gang(tasks.collect(), 0);
        gang.tasks.iter_mut().for_each(|task| {
            let request = task.request.iter().filter(|(name, _)| name.as_str() != "pods");
            task.request = request.map(|(name, amount)| (name.clone(), amount)).collect();
        });
        gang.min_available = gang.replicas();
        match split(&gang, &nodes, strategy) {
            Err(_) => refused += 1,
            Ok(plan) => {
                let parts = plan.clusters.iter().map(|(name, share)| missing(&gang, &nodes, name, share));
                lost = parts.fold(lost, i128::max);
            }
        }
    }
    (refused, lost)
}

/// What is not held of a share's promise, in hundredths of what it asks for.
fn missing(gang: &Gang, nodes: &[Vec<Node>], name: &ClusterName, share: &ClusterShare) -> i128 {
    let at: usize = name.as_str()[1..].parse().unwrap();
    let before = capacity(at, &nodes[at]);
    let pods = pods_of_share(gang, Some(share));
    let after = without(&before, gang, &pods);
    assert!(after.shapes.iter().all(|shape| shape.free.iter().all(|(_, amount)| !amount.is_negative())));
    let asks = |resource: &str| {
        let of = |(task, pods): (&Task, &u32)| task.request.times(u64::from(*pods)).get(resource).units_ceil();
        gang.tasks.iter().zip(&pods).map(of).sum::<i128>()
    };
    let held = |resource| (before.sum_free().get(resource).units_ceil()) - after.sum_free().get(resource).units_ceil();
    ["cpu", "gpu"].into_iter().map(|one| (asks(one) - held(one)) * 100 / asks(one).max(1)).max().unwrap()
}

#[test]
fn large_gangs_that_fit_are_rarely_refused_and_held_whole() {
    let kinds = [(Strategy::Aggregated, 1), (Strategy::Aggregated, 4), (Strategy::DynamicWeight, 4)];
    for (full, (strategy, clusters)) in [100, 95, 90, 80].into_iter().flat_map(|full| kinds.map(|kind| (full, kind))) {
        let (refused, lost) = tried(GANGS, clusters, full, strategy);
        println!(
            "nodes full to {full} %, {clusters} clusters, {strategy:?}: of {GANGS} {refused} refused, {lost} % not held"
        );
        assert!(refused <= 1 && lost == 0, "{full} {strategy:?}: {refused} of {GANGS}, {lost} %");
    }
}
