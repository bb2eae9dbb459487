//! How long the expected starts of many waiting jobs take: 1,000 nodes of 8 GPUs in eight clusters, full of jobs, and a
//! line of so many others, of 1 to 64 GPUs in ten queues. With `growing`: so many jobs of one pod that come at once to
//! a cluster which gets a node for each.
//!
//! `cargo run --profile bench -p caldera-simulate --example expected_starts -- [growing] [JOBS...]`

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a measurement fails by panicking")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use caldera_core::{
    gang::{Gang, WorkloadRef},
    inventory::{Owner, Pod},
    live_job::LiveJob,
    quantity::Quantity,
    queue::QueueSpec,
    resources::Resources,
    time::EpochSeconds,
};
use caldera_simulate::{
    expected_start::{StartTime, expect_starts},
    live::{Member, State},
    random::Random,
    time::Millis,
    world::{Shapes, cluster, gang, task},
};

const NOW: i64 = 1_000_000;
/// As long as the command line looks.
const MOST: Duration = Duration::from_secs(10);

fn main() {
    let (grows, counts): (Vec<String>, _) = std::env::args().skip(1).partition(|text| text == "growing");
    let counts: Vec<usize> = counts.iter().map(|text| text.parse().unwrap()).collect();
    for count in if counts.is_empty() { vec![1_000, 10_000, 20_000] } else { counts } {
        let state = if grows.is_empty() { full_fleet(count) } else { growing_fleet(count) };
        let began = Instant::now();
        let starts = expect_starts(&state, Millis::from_secs(3600), || began.elapsed() < MOST).unwrap();
        let found = starts.values().filter(|start| matches!(start.at, StartTime::At(_))).count();
        println!("{count} wait: {found} starts in {:.2} s", began.elapsed().as_secs_f64());
    }
}

/// A thousand jobs of eight pods run, one on each node; half of all jobs say how long they run.
fn full_fleet(waiting: usize) -> State {
    let node: Resources =
        [("cpu", 96), ("nvidia.com/gpu", 8)].map(|(n, a)| (n, Quantity::from_units(a))).into_iter().collect();
    let mut members: Vec<Member> = (1..=8)
        .map(|i| cluster(&format!("member{i}"), &[(125, node.clone())]))
        .map(|one| Member { cluster: one.cluster, nodes: one.nodes, ..Member::default() })
        .collect();
    let mut random = Random::new(1);
    let mut jobs = Vec::new();
    for (i, place) in (0..8).flat_map(|member| (0..125).map(move |node| (member, node))).enumerate() {
        let job = LiveJob { placed: true, ..job(&format!("runs-{i}"), 8, &mut random) };
        let node = members[place.0].nodes[place.1].name.clone();
        let owner = Owner { group: "g".into(), kind: "Job".into(), name: job.workload.name.clone(), task: None };
        let pod = |pod: u32| Pod {
            namespace: "ns".into(),
            name: format!("runs-{i}-{pod}"),
            node: Some(node.as_str().into()),
            request: one_pod(),
            finished: false,
            owner: Some(owner.clone()),
        };
        members[place.0].pods.extend((0..8).map(pod));
        jobs.push(job);
    }
    for i in 0..waiting {
        let pods = 1 << (6 - (random.below(127) + 1).ilog2());
        jobs.push(job(&format!("waits-{i}"), pods, &mut random));
    }
    let queues = (0..10).map(|i| QueueSpec::unlimited(format!("queue-{i}").as_str())).collect();
    State { now: EpochSeconds::new(NOW), members, queues, jobs, ..State::default() }
}

/// A node that is too small for all, and 5,000 that may come.
fn growing_fleet(waiting: usize) -> State {
    let node = |cpu: i64| -> Resources { [("cpu", Quantity::from_units(cpu))].into_iter().collect() };
    let mut one = cluster("member", &[(1, node(16))]);
    let group = r#"[{"name":"g","nodes":{"pool":"g"},"max":5000,"resources":{"cpu":"64"},"delay":"5m"}]"#;
    one.cluster.autoscaling = group.parse().unwrap();
    let gang: Arc<Gang> = Arc::new(gang(vec![task("worker", 1, 1, node(40))]));
    let of = |i| LiveJob {
        gang: Arc::clone(&gang),
        run_for: Some(1_000),
        ..job(&format!("waits-{i}"), 1, &mut Random::new(1))
    };
    let jobs = (0..waiting).map(of).collect();
    let queues = (0..10).map(|i| QueueSpec::unlimited(format!("queue-{i}").as_str())).collect();
    let members = vec![Member { cluster: one.cluster, nodes: one.nodes, ..Member::default() }];
    State { now: EpochSeconds::new(NOW), members, queues, jobs, ..State::default() }
}

fn one_pod() -> Resources {
    [("cpu", 8), ("nvidia.com/gpu", 1)].map(|(n, a)| (n, Quantity::from_units(a))).into_iter().collect()
}

fn job(name: &str, pods: u32, random: &mut Random) -> LiveJob {
    let gang: Gang = gang(vec![task("worker", pods, pods, one_pod())]);
    let binding = Shapes::default().gang(gang.clone()).binding.clone();
    let age = i64::try_from(random.below(7_000)).unwrap();
    let run_for = i64::try_from(random.exponential(Millis::from_secs(3600)).seconds()).unwrap() + age + 1;
    LiveJob {
        name: name.into(),
        workload: WorkloadRef { group: "g".into(), kind: "Job".into(), namespace: "ns".into(), name: name.into() },
        queue: format!("queue-{}", random.below(10)).as_str().into(),
        priority: 0,
        created: (NOW - age).into(),
        began: Some(EpochSeconds::new(NOW - age)),
        placed: false,
        run_for: (random.below(2) == 0).then_some(run_for),
        limit: None,
        gang: Arc::new(gang),
        binding: Arc::new(binding),
        whole: true,
        submitter: None,
        checkpoint_interval: None,
        preemptable: None,
        best_effort: false,
        never_preempts: false,
        starts_with: None,
    }
}
