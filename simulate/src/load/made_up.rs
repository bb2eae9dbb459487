//! A made-up fleet in which a third of the jobs uses much more than it asks for, and the others less.

use std::collections::HashMap;

use caldera_core::{quantity::Quantity, queue::QueueSpec, resources::Resources};

use super::LoadedWorld;
use crate::{
    random::Random,
    time::Millis,
    world::{Job, JobTerms, Shapes, World, WorldError, cluster, gang, task},
};

/// Clusters, nodes of each, and cores of each node.
const FLEET: (u32, u32, i64) = (4, 10, 32);
/// Milliseconds in which jobs come.
const ARRIVALS: u64 = 24 * 3_600_000;
/// How long a job runs in the mean.
const RUN: Millis = Millis::from_secs(2 * 3_600);
/// Of the fleet's cores, how much is asked for in the mean, in percent.
const ASKED_PERCENT: u64 = 45;
/// What one of three jobs uses of what it asks for, and what the others use.
const USES: (u32, u32) = (220, 40);

/// A day of jobs of one to four pods of four cores. They may be evicted, but for one in eight.
///
/// # Errors
/// Never, unless the world itself is wrong.
pub fn make_up_load(seed: u64) -> Result<LoadedWorld, WorldError> {
    let (mut random, mut shapes) = (Random::new(seed), Shapes::default());
    let (clusters, nodes, cores) = FLEET;
    let cpus = |cores: i64| -> Resources { std::iter::once(("cpu", Quantity::from_units(cores))).collect() };
    let fleet = (0..clusters).map(|i| cluster(&format!("member{i}"), &[(nodes, cpus(cores))])).collect();
    let all = u64::from(clusters * nodes) * u64::try_from(cores).unwrap_or(0);
    // A job asks for ten cores in the mean.
    let gap = Millis(RUN.0 * 10 * 100 / (all * ASKED_PERCENT));
    let (mut jobs, mut uses, mut terms) = (Vec::new(), HashMap::new(), HashMap::new());
    let mut at = random.exponential(gap);
    while at.0 < ARRIVALS {
        let pods = 1 + u32::try_from(random.below(4)).unwrap_or(0);
        let name: std::sync::Arc<str> = format!("job-{:05}", jobs.len()).into();
        uses.insert(name.clone(), if random.below(3) == 0 { USES.0 } else { USES.1 });
        let preemptable = Some(random.below(8) > 0);
        terms.insert(name.clone(), JobTerms { preemptable, ..JobTerms::default() });
        let shape = shapes.gang(gang(vec![task("worker", pods, pods, cpus(4))]));
        let (queue, run) = ("all".into(), random.exponential(RUN));
        jobs.push(Job { name, queue, priority: 0, arrival: at, run, estimate: None, shape, running: None });
        at = at.plus(random.exponential(gap));
    }
    let world = World::new(fleet, vec![QueueSpec::unlimited("all")], jobs, Millis::ZERO)?;
    Ok(LoadedWorld { world: World { terms, ..world }, uses, noise: 3, seed })
}
