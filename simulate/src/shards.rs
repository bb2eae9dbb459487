//! Several engines on one fleet, second by second: shards with leased slices of clusters, an allocator, and both lost
//! for a while.
//!
//! Rule: [`caldera_core::queue::shard`]. Each shard is Caldera's own engine over the nodes that it holds, made anew
//! from what there is when it comes back. The allocator reads in one second and writes in the next, so that shards come
//! in between. After each second what the rules promise is checked, and what stands idle while somebody waits is
//! counted: that is what shards cost.

mod allocator;
mod engine;
mod fleet;
mod made_up;

use caldera_core::{gang::QueueName, queue::QueueSpec, time::EpochSeconds};

pub use made_up::make_up_shards;

use self::{allocator::Allocator, engine::ShardEngine, fleet::SharedFleet};

/// Seconds that a lease holds.
const LEASE: i64 = 60;
/// Seconds between renewals of a shard.
const RENEWAL: i64 = 20;
/// Seconds between looks of the allocator.
const DIVISION: i64 = 5;

/// What is simulated. All amounts are cpus.
#[derive(Debug, Clone)]
pub struct ShardedWorld {
    /// Nodes in each cluster.
    pub clusters: Vec<usize>,
    /// Of each node.
    pub node_cpus: u32,
    /// Each shard's top-level queue first, then all below it.
    pub shards: Vec<Vec<QueueSpec>>,
    /// In the order of their arrivals.
    pub jobs: Vec<ShardedJob>,
    /// Who is lost when.
    pub outages: Vec<Outage>,
    /// Whoever still waits or runs then is told so.
    pub horizon: i64,
}

/// A gang of equal pods.
#[derive(Debug, Clone)]
pub struct ShardedJob {
    /// Its queue, in one of the shards.
    pub queue: QueueName,
    /// How many, all of which start together.
    pub pods: u32,
    /// Of each.
    pub cpus: u32,
    /// When it comes.
    pub arrival: i64,
    /// Seconds that it runs, and says so.
    pub run: i64,
    /// It may be evicted, and runs again from its beginning.
    pub preemptable: bool,
}

/// Who can be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// Who divides the fleet.
    Allocator,
    /// The engine of one shard; its pods run on.
    Shard(usize),
}

/// Somebody is lost from a second until another.
#[derive(Debug, Clone, Copy)]
pub struct Outage {
    /// Who.
    pub who: Component,
    /// First second.
    pub from: i64,
    /// First second after it.
    pub until: i64,
}

/// What happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShardedOutcome {
    /// Seconds from arrival to the last start of each job; `None` if it never started.
    pub waits: Vec<Option<i64>>,
    /// Jobs that ended.
    pub ended: usize,
    /// When the last of them did.
    pub makespan: i64,
    /// Cpus times seconds that nobody used while somebody waited who would have fitted into them.
    pub idle_while_waited_for: u64,
    /// Cpus times seconds that were used.
    pub used: u64,
    /// Jobs that were evicted, since their shard was asked for nodes.
    pub evicted: usize,
    /// Cpus times seconds of runs that were cut short by that.
    pub lost: u64,
    /// Starts of each shard while the allocator was lost.
    pub starts_without_allocator: Vec<usize>,
    /// Changes of leases that were made of an older version, and refused.
    pub refused_changes: usize,
    /// Promises that were broken: none.
    pub broken: Vec<String>,
}

impl ShardedWorld {
    fn is_lost(&self, who: Component, now: i64) -> bool {
        self.outages.iter().any(|outage| outage.who == who && (outage.from..outage.until).contains(&now))
    }

    /// The shard of a queue, by its place.
    fn find_shard(&self, queue: &QueueName) -> Option<usize> {
        self.shards.iter().position(|queues| queues.iter().any(|spec| spec.name == *queue))
    }
}

/// Simulates until all jobs have ended, or to the horizon.
#[must_use]
pub fn simulate_shards(world: &ShardedWorld) -> ShardedOutcome {
    let mut fleet = SharedFleet::new(world);
    let mut allocator = Allocator::new(world);
    let mut engines: Vec<ShardEngine<'_>> =
        (0..world.shards.len()).map(|shard| ShardEngine::new(world, shard)).collect();
    let mut outcome = ShardedOutcome {
        waits: vec![None; world.jobs.len()],
        starts_without_allocator: vec![0; world.shards.len()],
        ..ShardedOutcome::default()
    };
    for now in 0..world.horizon {
        let ended = fleet.end_jobs(now);
        outcome.ended += ended.len();
        if !ended.is_empty() {
            outcome.makespan = now;
        }
        let allocates = !world.is_lost(Component::Allocator, now);
        // It writes what it read a second ago.
        outcome.refused_changes += allocator.write_changes(&mut fleet, EpochSeconds::new(now));
        if allocates {
            allocator.read_and_divide(&fleet, now);
        }
        for (shard, engine) in engines.iter_mut().enumerate() {
            if world.is_lost(Component::Shard(shard), now) {
                engine.lose_state();
                continue;
            }
            let acted = engine.act(&mut fleet, now, &ended);
            outcome.evicted += acted.evicted;
            outcome.lost += acted.lost;
            outcome.starts_without_allocator[shard] += if allocates { 0 } else { acted.started.len() };
            for job in acted.started {
                outcome.waits[job] = Some(now - world.jobs[job].arrival);
            }
        }
        outcome.broken.extend(fleet.list_broken_promises(now));
        let (used, idle) = fleet.count_cpus(now);
        outcome.used += used;
        outcome.idle_while_waited_for += idle;
        if outcome.ended == world.jobs.len() {
            break;
        }
    }
    outcome
}

/// The same fleet and jobs with one engine that holds all nodes: what there is to lose.
#[must_use]
pub fn simulate_one_engine(world: &ShardedWorld) -> ShardedOutcome {
    let queues: Vec<QueueSpec> = world.shards.iter().flatten().cloned().collect();
    let mut one = ShardedWorld { shards: vec![queues], outages: Vec::new(), ..world.clone() };
    // The only shard is entitled to everything.
    let root = QueueSpec::unlimited("all");
    for spec in one.shards.iter_mut().flatten().filter(|spec| spec.parent.is_none()) {
        spec.parent = Some(root.name.clone());
    }
    one.shards[0].insert(0, root);
    simulate_shards(&one)
}
