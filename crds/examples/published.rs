//! What published inventories cost: 200 members of 1,000 nodes in 8 shapes, 8 pods of jobs and 6 of others on each
//! node.
//!
//! `cargo run --profile bench -p caldera-crds --example published`: bytes of the objects, what the collector and the
//! readers work for them, and what a process holds that knows them all. With `shared` or `own` only the last is
//! measured, where nodes have no label of their own or one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a measurement fails by panicking")]

use std::{
    collections::BTreeMap,
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use caldera_core::{
    inventory::{Change, Inventory, Node, Owner, Pod},
    quantity::Quantity,
    resources::Resources,
};
use caldera_crds::published::{Contents, Heartbeat, Part, Published, divide_contents};

const MEMBERS: usize = 200;
const NODES: usize = 1000;

fn amounts(cpu: i64, memory: i64, gpu: i64, pods: i64) -> Resources {
    let gib = memory * 1024 * 1024 * 1024;
    let all = [("cpu", cpu), ("memory", gib), ("nvidia.com/gpu", gpu), ("pods", pods)];
    all.into_iter().map(|(name, amount)| (name, Quantity::from_units(amount))).collect()
}

fn member(jobs: usize, each: usize, own_labels: bool) -> Contents {
    let mut contents = Contents::default();
    for at in 0..NODES {
        // Names as clouds give them: nothing to fold.
        let name = format!("ip-10-{}-{}-{}.eu-west-1.compute.internal", at % 7, at / 250, (at * 37) % 251);
        let labels = [
            ("kubernetes.io/hostname", name.clone()),
            ("kubernetes.io/arch", "amd64".to_owned()),
            ("kubernetes.io/os", "linux".to_owned()),
            ("node.kubernetes.io/instance-type", format!("type-{}", at % 8)),
            ("topology.kubernetes.io/zone", format!("zone-{}", at % 8 % 3)),
            ("example.com/instance-id", format!("i-{:016x}", at * 2_654_435_761)),
        ];
        // What many clouds do: a label whose value no other node has.
        let labels = labels.into_iter().filter(|(key, _)| own_labels || *key != "example.com/instance-id");
        let labels: BTreeMap<String, String> = labels.map(|(key, value)| (key.to_owned(), value)).collect();
        let node =
            Node { name: name.clone(), labels, allocatable: amounts(96, 1024, 8, 110), ready: true, ..Node::default() };
        contents.nodes.insert(name.clone(), node);
        for number in 0..each {
            let pod = at * each + number;
            let job = format!("train-{}", pod * jobs / (NODES * each));
            add(&mut contents, job_pod(&job, pod, &name));
        }
        for other in 0..6 {
            let request = amounts(0, (at % 5) as i64, 0, 1);
            let name = (format!("agent-{at}-{other}"), name.clone());
            add(
                &mut contents,
                Pod { namespace: "kube-system".into(), name: name.0, node: Some(name.1), request, ..Pod::default() },
            );
        }
    }
    contents
}

fn job_pod(job: &str, number: usize, node: &str) -> Pod {
    let (group, kind, task) = ("batch.volcano.sh".into(), "Job".into(), Some("worker".into()));
    Pod {
        namespace: "team".into(),
        name: format!("{job}-worker-{number}"),
        node: Some(node.to_owned()),
        request: amounts(8, 64, 1, 1),
        finished: false,
        owner: Some(Owner { group, kind, name: job.to_owned(), task }),
    }
}

fn add(contents: &mut Contents, pod: Pod) {
    contents.pods.insert((pod.namespace.clone(), pod.name.clone()), pod);
}

fn published(parts: Vec<Part>) -> Published {
    let heartbeat = Heartbeat { parts: u32::try_from(parts.len()).unwrap(), ..Heartbeat::default() };
    Published { heartbeat, parts: parts.into_iter().map(Arc::new).collect() }
}

fn bytes(published: &Published) -> usize {
    published.parts.iter().map(|part| serde_json::to_vec(&**part).unwrap().len()).sum()
}

/// The middle of nine runs.
fn measured<T>(mut run: impl FnMut() -> T) -> (Duration, T) {
    let mut once = || {
        let began = Instant::now();
        let result = run();
        (began.elapsed(), result)
    };
    let mut times = Vec::new();
    let mut last = once();
    for _ in 0..9 {
        times.push(last.0);
        last = once();
    }
    times.sort();
    (times[4], last.1)
}

fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0) * 4096
}

fn main() {
    // What one fleet took is not given back to measure another.
    if let Some(which) = std::env::args().nth(1) {
        return fleet(which == "own");
    }
    for jobs in [100, 8000] {
        let contents = member(jobs, 8, true);
        let (dividing, parts) = measured(|| divide_contents(&contents, 1));
        let before = published(parts);
        println!(
            "{jobs} jobs in a member: {} parts, {} bytes; divided in {dividing:?}",
            before.parts.len(),
            bytes(&before)
        );
        let json: Vec<Vec<u8>> = before.parts.iter().map(|part| serde_json::to_vec(&**part).unwrap()).collect();
        let (parsing, _) = measured(|| -> usize {
            json.iter().map(|json| serde_json::from_slice::<Part>(json).unwrap().shapes.len()).sum()
        });
        let (reading, changes) = measured(|| before.changes_since(None).unwrap());
        let mut inventory = Inventory::default();
        let began = Instant::now();
        changes.into_iter().for_each(|change| _ = inventory.apply_change(change));
        println!("  a start: parsed in {parsing:?}, read in {reading:?}, applied in {:?}", began.elapsed());
        for moved in [1, 100, 2000] {
            let mut after = contents.clone();
            let gone: Vec<_> =
                after.pods.keys().filter(|(namespace, _)| namespace == "team").take(moved).cloned().collect();
            gone.iter().for_each(|key| drop(after.pods.remove(key)));
            let after = published(divide_contents(&after, u32::try_from(before.parts.len()).unwrap()));
            let (comparing, changes) = measured(|| after.changes_since(Some(&before)).unwrap());
            let (count, mut copy) = (changes.len(), inventory.clone());
            let began = Instant::now();
            changes.into_iter().for_each(|change: Change| _ = copy.apply_change(change));
            let applying = began.elapsed();
            let began = Instant::now();
            let shapes = copy.capacity().shapes.len();
            println!(
                "  {moved} pods ended: {count} changes, compared in {comparing:?}, applied in {applying:?}; capacity of {shapes} shapes in {:?}",
                began.elapsed()
            );
        }
    }
    fleet(true);
}

/// Memory of a process that knows all members.
fn fleet(own_labels: bool) {
    let at_first = resident();
    let mut all = Vec::new();
    for _ in 0..MEMBERS {
        // As it arrives: parsed, and nothing shared with another member's.
        let published = published(divide_contents(&member(100, 2, own_labels), 1));
        let json: Vec<Vec<u8>> = published.parts.iter().map(|part| serde_json::to_vec(&**part).unwrap()).collect();
        let parts = json.iter().map(|json| Arc::new(serde_json::from_slice::<Part>(json).unwrap())).collect();
        all.push(Published { heartbeat: published.heartbeat, parts });
    }
    let objects = resident();
    let began = Instant::now();
    let inventories: Vec<Inventory> = all
        .iter()
        .map(|published| {
            let mut inventory = Inventory::default();
            published.changes_since(None).unwrap().into_iter().for_each(|change| _ = inventory.apply_change(change));
            inventory
        })
        .collect();
    println!(
        "{MEMBERS} members, 2 pods of jobs and 6 of others a node, labels of their own: {own_labels}: {} bytes each; \
         objects {} MB, with {} inventories {} MB; all read and applied in {:?}",
        bytes(&all[0]),
        objects.saturating_sub(at_first) / 1_000_000,
        inventories.len(),
        resident().saturating_sub(at_first) / 1_000_000,
        began.elapsed()
    );
}
