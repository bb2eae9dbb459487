//! A made-up fleet of three shards, each of which is the busy one for a third of the time.

use caldera_core::{quantity::Quantity, queue::QueueSpec, resources::ResourceName};

use super::{ShardedJob, ShardedWorld};
use crate::random::Random;

/// Seconds in which jobs come.
const ARRIVALS: i64 = 5_400;
/// Cpus that a shard deserves: a third of 60 nodes of 16.
const DESERVED: i64 = 320;

/// Three shards of two queues each, on three clusters of 20 nodes. Two of three jobs are of the busy shard, and one in
/// four is a gang of up to so many pods; a quarter may not be evicted.
#[must_use]
pub fn make_up_shards(seed: u64, largest_gang: u32) -> ShardedWorld {
    let mut random = Random::new(seed);
    let mut draw = |below: u32| u32::try_from(random.below(below.into())).unwrap_or(0);
    let mut jobs = Vec::new();
    let mut arrival = 0;
    while arrival < ARRIVALS {
        let busy = arrival * 3 / ARRIVALS;
        let shard = if draw(3) > 0 { busy } else { i64::from(draw(3)) };
        let is_gang = draw(4) == 0;
        let pods = if is_gang { largest_gang / 3 + 1 + draw(largest_gang * 2 / 3) } else { 1 + draw(8) };
        let run = i64::from(if is_gang { 300 + draw(600) } else { 60 + draw(120) });
        jobs.push(ShardedJob {
            queue: name_queue(shard, if is_gang { "gangs" } else { "small" }).into(),
            pods,
            cpus: [2, 4, 8][draw(3) as usize],
            arrival,
            run,
            preemptable: draw(4) > 0,
        });
        // What comes is about what the fleet does, whatever the size of gangs.
        arrival += i64::from(5 + draw(2 + largest_gang));
    }
    let shards = (0..3).map(make_queues).collect();
    ShardedWorld { clusters: vec![20; 3], node_cpus: 16, shards, jobs, outages: Vec::new(), horizon: 40_000 }
}

fn name_queue(shard: i64, name: &str) -> String {
    format!("shard{shard}-{name}")
}

fn make_queues(shard: i64) -> Vec<QueueSpec> {
    let mut top = QueueSpec::unlimited(format!("shard{shard}"));
    top.deserved.set(ResourceName::CPU, Quantity::from_units(DESERVED));
    let below = |(name, most): (&str, i64)| {
        let mut queue = QueueSpec::unlimited(name_queue(shard, name));
        queue.parent = Some(top.name.clone());
        queue.capability.set(ResourceName::CPU, Quantity::from_units(most));
        queue
    };
    let queues: Vec<QueueSpec> = [("gangs", 800), ("small", 300)].map(below).into();
    std::iter::once(top.clone()).chain(queues).collect()
}
