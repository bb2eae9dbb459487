//! From "a job ended" seen by the controller until the release of the next one is out as a write, with many waiting.
//!
//! `cargo bench -p caldera-controller --bench release`; prints percentiles, since a mean hides what a user waits for.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use caldera_controller::{
    decide::{Controller, Decisions, decide},
    observe::{Binding, ClusterFacts, Input, QueueFacts, Workload},
    write::Decision,
};
use caldera_core::{
    fleet::Update,
    inventory::{Change, Node, Owner, Pod},
    quantity::Quantity,
};
use caldera_crds::workload::WorkloadKind;
use caldera_runtime::{watch::Event, write::WriteOutcome};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

fn main() {
    // `cargo test --benches` only wants to know that it runs.
    let small = !std::env::args().any(|argument| argument == "--bench");
    let (waiting, rounds) = if small { (200, 20) } else { (10_000, 3_000) };
    for queues in [1, 30, 1_000] {
        measure(queues, waiting, rounds);
    }
}

struct Host {
    controller: Controller,
    now: Timestamp,
    version: u64,
    running: Vec<usize>,
    queues: usize,
}

fn measure(queues: usize, waiting: usize, rounds: usize) {
    let slots = 100_usize.div_ceil(queues) * queues;
    let total = waiting + slots + rounds;
    let (jobs, bindings): (Vec<Workload>, Vec<Binding>) =
        (0..total).map(|i| (Workload::read(&job(i, queues, None)).unwrap(), binding(i, 1))).unzip();
    let before = read_resident_memory();
    let began = Instant::now();
    let mut host = build_host(queues, slots, jobs, bindings);
    let (first, _) = host.decide_and_answer();
    let until_first = began.elapsed();
    let mut released = Host::releases(&first);
    while released.len() < slots {
        let (more, _) = host.decide_and_answer();
        let more = Host::releases(&more);
        assert!(!more.is_empty(), "{} of {slots} slots filled", released.len());
        released.extend(more);
    }
    host.place_released(&released);
    // Until everybody has a PodGroup and a reason.
    while host.decide_and_answer().0.next.is_some_and(|at| at <= host.now) {}
    let after = read_resident_memory();
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        host.now = host.now.saturating_add(SignedDuration::from_millis(20)).unwrap();
        // Whatever was put off until now is not part of the answer.
        host.decide_and_answer();
        let ended = host.running.remove(0);
        host.pods(ended, true);
        let ended = Workload::read(&job(ended, host.queues, Some("Completed"))).unwrap();
        let began = Instant::now();
        host.controller.observe(Input::Workloads(WorkloadKind::VolcanoJob, Event::Applied(ended)), host.now);
        let decided = decide(&mut host.controller, host.now);
        let released = Host::releases(&decided);
        let writes: Vec<_> = decided.writes.iter().map(|decision| decision.to_write(host.now)).collect();
        times.push(began.elapsed());
        assert!(!released.is_empty() && !writes.is_empty());
        host.answer(decided);
        host.place_released(&released);
    }
    times.sort();
    let at = |per_mille: usize| times[(times.len() - 1) * per_mille / 1000];
    println!(
        "{queues:>5} queues, {waiting} waiting: freed to release p50 {:?} p99 {:?} max {:?}; first decision {:?}; {} KiB",
        at(500),
        at(990),
        at(1000),
        until_first,
        after.saturating_sub(before),
    );
}

fn build_host(queues: usize, slots: usize, mut jobs: Vec<Workload>, bindings: Vec<Binding>) -> Host {
    let now = Timestamp::from_second(2_000_000_000).unwrap();
    let mut controller = Controller::default();
    let each = 4 * slots / queues;
    let queue = |i: usize| {
        QueueFacts::read(
            &serde_json::from_value(json!({
                "metadata": {"name": format!("q{i}")}, "spec": {"capability": {"cpu": each.to_string()}},
                "status": {"state": "Open"},
            }))
            .unwrap(),
        )
    };
    let cluster = |name: &str| {
        ClusterFacts::read(
            &serde_json::from_value(json!({
                "metadata": {"name": name}, "spec": {},
                "status": {
                    "apiEnablements": [{"groupVersion": "batch.volcano.sh/v1alpha1", "resources": [{"name": "jobs", "kind": "Job"}]}],
                    "conditions": [{"type": "Ready", "status": "True", "reason": "", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                },
            }))
            .unwrap(),
        )
    };
    let members = ["m1", "m2", "m3"];
    controller.observe(Input::Clusters(Event::Reset(members.iter().map(|name| cluster(name)).collect())), now);
    for member in members {
        let amount = |units: i64| Quantity::from_units(units);
        let node = |i: usize| Node {
            name: format!("n{i}"),
            allocatable: [("cpu", amount(96)), ("memory", amount(1 << 40)), ("pods", amount(250))]
                .into_iter()
                .collect(),
            ready: true,
            ..Node::default()
        };
        for change in [Change::Nodes((0..100).map(node).collect()), Change::Pods(vec![])] {
            controller.observe(Input::Member(member.to_owned(), Update::Change(change)), now);
        }
    }
    controller.observe(Input::Queues(Event::Reset((0..queues).map(queue).collect())), now);
    controller.observe(Input::PodGroups(Event::Reset(vec![])), now);
    controller.observe(Input::Classes(Event::Reset(vec![])), now);
    controller.observe(Input::Namespaces(Event::Reset(vec![])), now);
    controller.observe(Input::DataSources(Event::Reset(vec![])), now);
    controller.observe(Input::DataClaims(Event::Reset(vec![])), now);
    controller.observe(Input::HyperJobs(Event::Reset(vec![])), now);
    controller.observe(Input::CapacityReservations(Event::Reset(vec![])), now);
    for kind in WorkloadKind::ALL {
        let jobs = if kind == WorkloadKind::VolcanoJob { std::mem::take(&mut jobs) } else { vec![] };
        controller.observe(Input::Workloads(kind, Event::Reset(jobs)), now);
    }
    controller.observe(Input::Bindings(Event::Reset(bindings)), now);
    Host { controller, now, version: 1_000_000, running: Vec::new(), queues }
}

impl Host {
    fn decide_and_answer(&mut self) -> (Decisions, Duration) {
        let began = Instant::now();
        let decided = decide(&mut self.controller, self.now);
        let took = began.elapsed();
        let kept = Decisions { writes: decided.writes.clone(), ..decided };
        self.answer(decided);
        (kept, took)
    }

    fn releases(decided: &Decisions) -> Vec<(usize, String)> {
        let release = |decision: &Decision| match decision {
            Decision::Release { key, admission, .. } => Some((number(&key.name), admission.to_json())),
            _ => None,
        };
        decided.writes.iter().filter_map(release).collect()
    }

    /// Every write succeeds; PodGroups and queues come back as they were written.
    fn answer(&mut self, decided: Decisions) {
        for decision in decided.writes {
            self.version += 1;
            let result = match &decision {
                Decision::Release { key, admission, .. } => {
                    admitted(number(&key.name), self.version, &admission.to_json(), false)
                }
                Decision::WritePodGroup { exists: false, body, .. } => body.clone(),
                Decision::WritePodGroup { .. }
                | Decision::QueueNumbers { .. }
                | Decision::QueueState { .. }
                | Decision::QueueAnnotation { .. } => continue,
                _ => json!({}),
            };
            self.controller.apply_write_answer(WriteOutcome { tag: decision.tag(), result: Ok(result) }, self.now);
        }
    }

    /// The job's pods are on nodes of the first member, or have succeeded there.
    fn pods(&mut self, i: usize, finished: bool) {
        for pod in 0..4 {
            let amount = |units: i64| Quantity::from_units(units);
            let owner = Owner {
                group: "batch.volcano.sh".to_owned(),
                kind: "Job".to_owned(),
                name: format!("job-{i}"),
                task: Some("worker".into()),
            };
            let pod = Pod {
                namespace: "ns".to_owned(),
                name: format!("job-{i}-worker-{pod}"),
                node: Some(format!("n{}", (4 * i + pod) % 100)),
                request: [("cpu", amount(1)), ("memory", amount(1 << 27)), ("pods", amount(1))].into_iter().collect(),
                finished,
                owner: Some(owner),
            };
            self.controller.observe(Input::Member("m1".to_owned(), Update::Change(Change::Pod(pod))), self.now);
        }
    }

    fn place_released(&mut self, released: &[(usize, String)]) {
        for (i, record) in released {
            self.version += 1;
            let placed = admitted(*i, self.version, record, true);
            let placed = Binding::read(&serde_json::from_value(placed).unwrap());
            self.controller.observe(Input::Bindings(Event::Applied(placed)), self.now);
            self.pods(*i, false);
            self.running.push(*i);
        }
    }
}

fn number(name: &str) -> usize {
    name.trim_start_matches("job-").trim_end_matches("-job").parse().unwrap()
}

fn job(i: usize, queues: usize, phase: Option<&str>) -> Value {
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"name": format!("job-{i}"), "namespace": "ns", "uid": format!("{i:08}-1111-4000-8000-000000000000")},
        "spec": {"queue": format!("q{}", i % queues), "minAvailable": 4, "tasks": [
            {"name": "worker", "replicas": 4, "template": {"spec": {"containers": [{"name": "c", "image": "i", "resources": {
                "requests": {"cpu": "1", "memory": format!("{}Mi", 1 + i / queues % 100)},
            }}]}}},
        ]},
        "status": {"state": {"phase": phase}},
    })
}

fn bare(i: usize, version: u64) -> Value {
    json!({
        "metadata": {
            "name": format!("job-{i}-job"), "namespace": "ns", "uid": format!("{i:08}-2222-4000-8000-000000000000"),
            "resourceVersion": version.to_string(), "annotations": {"caldera.dev/gate": "closed"},
            "creationTimestamp": Timestamp::from_second(1_900_000_000 + i as i64).unwrap().to_string(),
        },
        "spec": {
            "resource": {
                "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": "ns", "name": format!("job-{i}"),
                "uid": format!("{i:08}-1111-4000-8000-000000000000"),
            },
            "suspension": {"scheduling": true},
            "placement": {
                "clusterAffinity": {"clusterNames": ["m1", "m2", "m3"]},
                "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"},
            },
        },
    })
}

fn binding(i: usize, version: u64) -> Binding {
    Binding::read(&serde_json::from_value(bare(i, version)).unwrap())
}

fn admitted(i: usize, version: u64, record: &str, placed: bool) -> Value {
    let mut object = bare(i, version);
    object["metadata"]["annotations"] = json!({"caldera.dev/gate": "open", "caldera.dev/admission": record});
    object["spec"]["suspension"] = json!({"scheduling": false});
    if placed {
        object["spec"]["clusters"] = json!([{"name": "m1", "replicas": 4}]);
    }
    object
}

/// KiB of memory in use by this process.
fn read_resident_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}
