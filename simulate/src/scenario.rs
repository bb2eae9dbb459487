//! Built-in workloads whose outcome says something about any policy (reference benchmarks B9 and B10).

use std::{fmt, str::FromStr};

use caldera_core::{quantity::Quantity, queue::QueueSpec, resources::Resources};

use crate::{
    random::Random,
    read::Estimates,
    time::Millis,
    world::{Job, MemberCluster, Shapes, World, WorldError, cluster, gang, task},
};

/// The scenarios.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scenario {
    /// A gang of four fifths of the fleet among endless small jobs that ask for 95 % of it: does it ever start?
    Starvation,
    /// Three tenants of weights 1, 2 and 3, who come one after another: how fast does each get its share?
    Fairness,
}

impl Scenario {
    /// All.
    pub const ALL: [Self; 2] = [Self::Starvation, Self::Fairness];

    /// As it is written on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starvation => "starvation",
            Self::Fairness => "fairness",
        }
    }

    /// Where it ends, whatever still waits.
    #[must_use]
    pub const fn horizon(self) -> Millis {
        Millis::from_secs(3_600)
    }

    /// Its world, by the seed.
    ///
    /// # Errors
    /// Never, unless the scenario itself is wrong.
    pub fn world(self, seed: u64, estimates: Estimates) -> Result<World, WorldError> {
        let mut world = match self {
            Self::Starvation => starvation(seed),
            Self::Fairness => fairness(seed),
        }?;
        estimates.apply(&mut world.jobs, seed);
        Ok(world)
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Scenario {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|one| one.as_str() == text);
        found.ok_or_else(|| format!("{text:?} is no scenario; there are starvation, fairness"))
    }
}

/// Nodes of eight GPUs.
fn fleet(clusters: u32, nodes: u32) -> Vec<MemberCluster> {
    let node: Resources =
        [("cpu", 64), ("nvidia.com/gpu", 8)].map(|(n, a)| (n, Quantity::from_units(a))).into_iter().collect();
    (1..=clusters).map(|i| cluster(&format!("member{i:02}"), &[(nodes, node.clone())])).collect()
}

fn gpus(each: i64) -> Resources {
    [("cpu", each), ("nvidia.com/gpu", each)].map(|(n, a)| (n, Quantity::from_units(a))).into_iter().collect()
}

/// The name of the large gang.
pub const LARGE: &str = "large";

/// B9: 128 GPUs in two clusters. For an hour jobs of 1, 2 or 4 GPUs arrive at random and run for a minute in the mean,
/// which is 95 % of what there is; after five minutes a gang of 102 single-GPU pods arrives that runs for a minute.
fn starvation(seed: u64) -> Result<World, WorldError> {
    const LOAD_PERCENT: u64 = 95;
    const HOUR: u64 = 3_600_000;
    let (clusters, mut random, mut shapes) = (fleet(2, 8), Random::new(seed), Shapes::default());
    let capacity: u64 = 2 * 8 * 8;
    let run = Millis::from_secs(60);
    // A job asks for (1 + 2 + 4) / 3 GPUs in the mean.
    let gap = Millis(run.0 * 7 * 100 / (3 * capacity * LOAD_PERCENT));
    let mut jobs = Vec::new();
    let mut at = Millis::ZERO;
    loop {
        at = at.plus(random.exponential(gap));
        if at.0 > HOUR {
            break;
        }
        let size = [1, 2, 4][usize::try_from(random.below(3)).unwrap_or(0)];
        let run = random.exponential(run);
        let shape = shapes.gang(gang(vec![task("pod", 1, 1, gpus(size))]));
        jobs.push(job(&format!("small-{:05}", jobs.len()), "small", at, run, shape));
    }
    let shape = shapes.gang(gang(vec![task("worker", 102, 102, gpus(1))]));
    jobs.push(job(LARGE, "large", Millis::from_secs(300), run, shape));
    World::new(clusters, ["large", "small"].map(QueueSpec::unlimited).to_vec(), jobs, Millis::ZERO)
}

/// B10: 96 GPUs in three clusters; tenants of weights 1, 2 and 3 (deserving 16, 32 and 48 GPUs) arrive at 0, 15 and 30
/// minutes, each with more jobs of 2 GPUs and three minutes in the mean than all clusters could run in the hour.
fn fairness(seed: u64) -> Result<World, WorldError> {
    let (clusters, mut random, mut shapes) = (fleet(3, 4), Random::new(seed), Shapes::default());
    let (mut queues, mut jobs) = (Vec::new(), Vec::new());
    for (i, name) in ["bronze", "silver", "gold"].into_iter().enumerate() {
        let weight = u32::try_from(i).unwrap_or(0) + 1;
        let mut queue = QueueSpec { weight, ..QueueSpec::unlimited(name) };
        queue.deserved.set("nvidia.com/gpu", Quantity::from_units(16 * i64::from(weight)));
        queues.push(queue);
        let first = Millis::from_secs(900 * u64::from(weight - 1));
        for n in 0..1_000 {
            let run = random.exponential(Millis::from_secs(180));
            let shape = shapes.gang(gang(vec![task("worker", 2, 2, gpus(1))]));
            jobs.push(job(&format!("{name}-{n:04}"), name, first, run, shape));
        }
    }
    World::new(clusters, queues, jobs, Millis::ZERO)
}

fn job(name: &str, queue: &str, arrival: Millis, run: Millis, shape: std::sync::Arc<crate::world::Shape>) -> Job {
    Job { name: name.into(), queue: queue.into(), priority: 0, arrival, run, estimate: None, shape, running: None }
}
