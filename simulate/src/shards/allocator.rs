//! The allocator: it reads leases, nodes and what shards ask for, and writes what follows a second later.

use caldera_core::{
    queue::{
        Engine, FleetResources,
        shard::{
            division::{Shard, SharedCluster, SharedNode, divide_nodes},
            lease::LeaseChange,
        },
    },
    resources::Resources,
    time::EpochSeconds,
};

use super::{
    DIVISION, LEASE, ShardedWorld,
    fleet::{SharedFleet, cpus, name_cluster},
};

/// See the module.
pub(super) struct Allocator {
    /// The top-level queues alone: what each is entitled to.
    quota: Engine,
    /// By cluster, what was decided of which version.
    decided: Vec<(usize, u64, Vec<LeaseChange>)>,
}

impl Allocator {
    pub(super) fn new(world: &ShardedWorld) -> Self {
        let mut quota = Engine::default();
        for queues in &world.shards {
            quota.set_queue(queues[0].clone());
        }
        let nodes: usize = world.clusters.iter().sum();
        let ready = cpus(nodes as u64 * u64::from(world.node_cpus));
        let whole = Some(ready.clone());
        quota.set_fleet(FleetResources { ready, whole, ready_clusters: world.clusters.len() });
        quota.resolve_quota();
        Self { quota, decided: Vec::new() }
    }

    /// Writes what was decided; how many changes were made of leases that have changed since.
    pub(super) fn write_changes(&mut self, fleet: &mut SharedFleet<'_>, now: EpochSeconds) -> usize {
        let decided = std::mem::take(&mut self.decided).into_iter();
        let mut write = |(cluster, version, changes): (usize, u64, Vec<LeaseChange>)| {
            fleet.leases[cluster].apply(version, now, &changes).is_err()
        };
        decided.filter_map(|one| write(one).then_some(())).count()
    }

    /// Decides now and then, and when it comes back.
    pub(super) fn read_and_divide(&mut self, fleet: &SharedFleet<'_>, now: i64) {
        if now % DIVISION != 0 {
            return;
        }
        let mut nodes: Vec<Vec<SharedNode>> = vec![Vec::new(); fleet.leases.len()];
        for place in fleet.list_nodes() {
            let allocatable = cpus(u64::from(fleet.world.node_cpus));
            nodes[place.0].push(SharedNode {
                name: fleet.name_of(place).clone(),
                allocatable,
                in_use: fleet.is_in_use(place),
            });
        }
        let clusters: Vec<SharedCluster<'_>> = (nodes.into_iter().zip(&fleet.leases).enumerate())
            .map(|(cluster, (nodes, leases))| SharedCluster { name: name_cluster(cluster), nodes, leases })
            .collect();
        let shards: Vec<Shard> =
            (0..fleet.world.shards.len()).map(|shard| self.read_shard(fleet, shard, now)).collect();
        let [now, until] = [now, now + LEASE].map(EpochSeconds::new);
        let mut changes = divide_nodes(&clusters, &shards, now, until);
        let decided = clusters
            .iter()
            .enumerate()
            .filter_map(|(cluster, of)| Some((cluster, of.leases.version(), changes.remove(&of.name)?)));
        self.decided = decided.collect();
    }

    fn read_shard(&self, fleet: &SharedFleet<'_>, shard: usize, now: i64) -> Shard {
        let top = &fleet.world.shards[shard][0];
        let entitlement = self.quota.entitlement_of(&top.name);
        let (demand, said) = &fleet.demands[shard];
        // Of a shard that is lost nobody knows what it asks for.
        let demand = if now < said.saturating_add(LEASE) { demand.clone() } else { Resources::new() };
        let (guarantee, deserved, real) = (entitlement.guarantee, entitlement.deserved, entitlement.real);
        Shard { name: top.name.clone(), weight: top.weight, guarantee, deserved, real, demand }
    }
}
