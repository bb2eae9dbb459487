//! Why a gang can not be placed now, in a sentence with numbers.
//!
//! Names what is needed and what fits, the nearest miss (the cluster, and within it the domain, that could take most),
//! each task that falls short of its minimum, and the resource (or the lack of any matching node) that stops it there.

mod shortage;

use std::{collections::BTreeMap, fmt};

use super::{
    SplitSearch, Spot, minimum_pods,
    node_miss::{MOST_TASKS_LOOKED_AT, NodeMiss, find_node_miss},
    node_scope::NodeScope,
    packing::FreeNodes,
    sum_pods, task_minimums,
};
use crate::{
    gang::{ClusterName, TaskName, Topology},
    numa::NumaPolicy,
    quantity::Quantity,
    resources::ResourceName,
    text::{count_noun, name_some},
};

/// Why a gang can not be placed now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GangRefusal {
    /// No cluster is left to choose from.
    #[error("no cluster is left to choose from")]
    NoCandidates,
    /// The gang asks for nothing that could be placed.
    #[error("the workload asks for no pods")]
    NoPods,
    /// Not enough capacity.
    #[error("{0}")]
    Short(Box<Shortage>),
}

/// What is missing where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// Pods needed at once.
    pub needed: u64,
    /// Pods that could be placed now.
    pub placeable: u64,
    /// Clusters that were looked at.
    pub clusters: usize,
    /// Clusters that may be used together, where that is bounded.
    pub most_clusters: Option<usize>,
    /// Why all pods must be in one cluster, where they must.
    pub one_cluster: Option<String>,
    /// The gang is wanted whole in each cluster; `best` is the one where it does not fit.
    pub everywhere: bool,
    /// The cluster that could take most, and how many pods.
    pub best: Option<(ClusterName, u64)>,
    /// What was looked for, where all pods must be in one domain.
    pub domain: Option<DomainMiss>,
    /// What stops each task that could not be placed as far as needed.
    pub tasks: BTreeMap<TaskName, TaskShortage>,
}

/// No domain takes the gang.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainMiss {
    /// `tier 1 or lower`, `tier rack or lower`.
    pub wanted: String,
    /// The tiers that there are, where none of them is the wanted one or lower.
    pub known_tiers: Option<Vec<String>>,
    /// Domains and clusters that are close enough.
    pub candidates: usize,
    /// The one that takes most, where it is smaller than the cluster that [`Shortage::best`] names.
    pub best: Option<String>,
    /// Groups of clusters that are close enough to each other.
    pub groups: usize,
    /// The group that takes most, and how many pods.
    pub group: Option<(Vec<ClusterName>, u64)>,
}

/// What is missing for one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskShortage {
    /// Pods needed: the task's minimum, or all its pods where only the job's minimum counts.
    pub needed: u64,
    /// Pods of this task alone that would fit.
    pub fits: u64,
    /// What stops more.
    pub lack: Lack,
}

/// What stops a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lack {
    /// No usable node satisfies selector, affinity and tolerations, for these reasons.
    NoNodeMatches(Box<NodeMiss>),
    /// Nodes run out, of which each takes so many pods of the task at most.
    Apart {
        /// So many.
        most: i64,
        /// Nodes that satisfy selector, affinity and tolerations.
        nodes: u64,
    },
    /// There is capacity, but the NUMA nodes of the nodes take fewer pods.
    Numa {
        /// The task's policy.
        policy: NumaPolicy,
        /// CPUs that the largest container asks for.
        asked: u32,
        /// The most CPUs that are free in as many NUMA nodes as it may be in, and where, where that is too little.
        most: Option<(i64, ClusterName)>,
        /// Nodes that satisfy selector, affinity, tolerations and policy.
        nodes: u64,
    },
    /// There is capacity, but not for whole partitions that are as close as they must be.
    Partition {
        /// Pods of one.
        size: u32,
        /// As [`DomainMiss::wanted`].
        wanted: String,
        /// Pods that the domain with most of them takes.
        most: u64,
    },
    /// The resource that runs out first.
    Resource {
        /// Its name.
        name: ResourceName,
        /// What one pod asks for.
        each: Quantity,
        /// What is free on matching nodes, in all.
        free: Quantity,
        /// What the largest of them has and where that is, where no node is large enough for one pod.
        largest: Option<(Quantity, ClusterName)>,
    },
}

impl GangRefusal {
    pub(super) fn mark_every_cluster(self) -> Self {
        match self {
            Self::Short(mut shortage) => {
                shortage.everywhere = true;
                Self::Short(shortage)
            }
            other => other,
        }
    }
}

/// Spots that are looked at closely for the nearest miss.
const MOST_SPOTS: usize = 32;
/// Groups of close clusters that are.
const MOST_GROUPS: usize = 8;

/// The numbers of a search that found nothing.
pub(super) fn explain_refusal(search: &SplitSearch<'_>, want: &[u32]) -> GangRefusal {
    let gang = search.requests.gang;
    let held = search.kept_pods();
    let hard = gang.topology.as_ref().filter(|topology| topology.hard);
    let spots: Vec<Spot> = search.list_candidate_spots().map(|(_, spot)| spot).collect();
    let best = find_spot_for_most_pods(search, want, &spots);
    let in_one = best.map_or(0, |(pods, _)| pods);
    let bound_to_one = search.limit == 1 || (hard.is_some() && search.levels.is_empty());
    let group = find_group_for_most_pods(search, want).filter(|_| !bound_to_one);
    let together = match &group {
        _ if bound_to_one => in_one,
        Some((pods, _)) => in_one.max(*pods),
        None if !search.far => in_one,
        None => search.count_pods_that_fit_together(&search.usable_sites(), want).max(in_one),
    };
    // Where one spot must hold all, the spot that takes most says what is short; else all clusters do.
    let free_by_cluster: Vec<(&ClusterName, FreeNodes)> = match best {
        Some((_, spot)) if hard.is_some() && bound_to_one => {
            vec![(search.sites[spot.site].name, nodes_of_spot(search, spot))]
        }
        _ => {
            let sites = group.as_ref().map_or_else(|| search.usable_sites(), |(_, sites)| sites.clone());
            sites.into_iter().map(|site| (search.sites[site].name, search.free_nodes_of_site(site).clone())).collect()
        }
    };
    let miss = hard.map(|topology| DomainMiss {
        wanted: describe_tier(topology),
        known_tiers: search.list_tiers_if_none_is_allowed(),
        candidates: spots.len(),
        best: best.and_then(|(_, spot)| search.planned_domain(spot)).map(|domain| domain.name),
        groups: if bound_to_one { 0 } else { search.levels.iter().map(Vec::len).sum() },
        group: group
            .map(|(pods, sites)| (sites.into_iter().map(|site| search.sites[site].name.clone()).collect(), pods)),
    });
    GangRefusal::Short(Box::new(Shortage {
        needed: minimum_pods(gang),
        placeable: held + together,
        clusters: search.sites.len(),
        most_clusters: (search.limit < search.sites.len()).then_some(search.limit),
        one_cluster: gang.one_cluster.clone(),
        everywhere: false,
        best: best.filter(|(pods, _)| *pods > 0).map(|(pods, spot)| (search.sites[spot.site].name.clone(), pods)),
        domain: miss,
        tasks: list_task_shortages(search, want, &free_by_cluster),
    }))
}

fn list_task_shortages(
    search: &SplitSearch<'_>,
    want: &[u32],
    free_by_cluster: &[(&ClusterName, FreeNodes)],
) -> BTreeMap<TaskName, TaskShortage> {
    let gang = search.requests.gang;
    let need = search.count_missing_pods(&task_minimums(gang));
    let (mut tasks, mut looked_at) = (BTreeMap::new(), 0);
    for (index, task) in gang.tasks.iter().enumerate() {
        let needed = if gang.enforces_task_minimums() { need[index] } else { want[index] };
        let each = free_by_cluster.iter().map(|(_, free_nodes)| free_nodes.max_pods(&search.requests, index));
        let fits = if search.limit == 1 { each.max().unwrap_or(0) } else { each.fold(0, u64::saturating_add) };
        if fits < u64::from(needed) {
            let lack = partition_shortage(search, index, needed, free_by_cluster)
                .or_else(|| search.requests.find_shortage(index, free_by_cluster))
                .unwrap_or_else(|| {
                    looked_at += 1;
                    let is_named = looked_at <= MOST_TASKS_LOOKED_AT;
                    let miss =
                        if is_named { find_node_miss(search, index, free_by_cluster) } else { NodeMiss::default() };
                    Lack::NoNodeMatches(Box::new(miss))
                });
            tasks.insert(task.name.clone(), TaskShortage { needed: u64::from(needed), fits, lack });
        }
    }
    tasks
}

fn describe_tier(topology: &Topology) -> String {
    match (topology.highest_tier, &topology.highest_tier_name) {
        (Some(tier), _) => format!("tier {tier} or lower"),
        (None, name) => format!("tier {} or lower", name.as_deref().unwrap_or("?")),
    }
}

/// Whether it is only that partitions must be close which stops a task.
fn partition_shortage(
    search: &SplitSearch<'_>,
    index: usize,
    needed: u32,
    free_by_cluster: &[(&ClusterName, FreeNodes)],
) -> Option<Lack> {
    let requests = &search.requests;
    let (topology, _) = requests.closeness(index)?;
    let size = requests.partition_size_of(index);
    let most = free_by_cluster
        .iter()
        .map(|(_, free_nodes)| free_nodes.max_pods_in_one_block(requests, index))
        .max()
        .unwrap_or(0);
    let in_all = |free_nodes: &FreeNodes| {
        (0..free_nodes.classes_and_sizes().len())
            .map(|group| free_nodes.pods_in_group(requests, group, index))
            .sum::<u64>()
    };
    let loose: u64 = free_by_cluster.iter().map(|(_, free_nodes)| in_all(free_nodes)).sum();
    let is_it = most < u64::from(size) || loose >= u64::from(needed);
    is_it.then(|| Lack::Partition { size, wanted: describe_tier(topology), most })
}

fn nodes_of_spot(search: &SplitSearch<'_>, spot: Spot) -> FreeNodes {
    match spot.domain {
        Some(domain) => search.requests.free_nodes(search.sites[spot.site].capacity, NodeScope::Domain(domain)),
        None => search.free_nodes_of_site(spot.site).clone(),
    }
}

/// The spot that takes most pods, and how many: of those that could by their profile, so many are looked at.
fn find_spot_for_most_pods(search: &SplitSearch<'_>, want: &[u32], spots: &[Spot]) -> Option<(u64, Spot)> {
    let takes = |spot: Spot| {
        let free_nodes = nodes_of_spot(search, spot);
        let by = |order: Vec<usize>| sum_pods(&free_nodes.clone().fill_in_order(&search.requests, want, &order));
        search.requests.list_task_orders(&[&free_nodes]).map(by).max().unwrap_or(0)
    };
    let mut best: Option<(u64, Spot)> = None;
    for (most, spot) in list_promising_spots(search, want, spots) {
        if best.is_some_and(|(pods, _)| pods >= most) {
            break;
        }
        let pods = takes(spot);
        if best.is_none_or(|(known, _)| pods > known) {
            best = Some((pods, spot));
        }
    }
    best
}

/// So many spots that could take most by their profiles, best first. They are looked at in the order in which equals
/// win, so that of most of them one task says enough.
fn list_promising_spots(search: &SplitSearch<'_>, want: &[u32], spots: &[Spot]) -> Vec<(u64, Spot)> {
    let mut tasks: Vec<usize> = (0..want.len()).collect();
    tasks.sort_by_key(|task| std::cmp::Reverse(want[*task]));
    let mut sites: Vec<&[Spot]> = spots.chunk_by(|a, b| a.site == b.site).collect();
    if search.compare_names(0, 1).is_gt() {
        sites.reverse();
    }
    let in_order = |a: Spot, b: Spot| search.compare_names(a.site, b.site).then(a.domain.cmp(&b.domain));
    let mut best: Vec<(u64, Spot)> = Vec::with_capacity(MOST_SPOTS + 1);
    for spot in sites.into_iter().flatten().copied() {
        // A whole cluster comes after its domains, and wins.
        let least = best.get(MOST_SPOTS - 1).map_or(0, |last| last.0 + u64::from(spot.domain.is_some()));
        let most = search.bounds.max_pods_at_least(&search.requests, spot, want, tasks.iter().copied(), least);
        if let Some(most) = most {
            let better = |a: &(u64, Spot)| a.0 > most || (a.0 == most && in_order(a.1, spot).is_lt());
            best.insert(best.partition_point(better), (most, spot));
            best.truncate(MOST_SPOTS);
        }
    }
    best
}

/// Where pods may not be farther apart than close clusters: the group of them that takes most pods, and how many.
/// Of groups that could by their profiles, so many are looked at.
fn find_group_for_most_pods(search: &SplitSearch<'_>, want: &[u32]) -> Option<(u64, Vec<usize>)> {
    if search.far {
        return None;
    }
    let usable = search.usable_sites();
    let held = search.sites_in_use();
    let groups = search.levels.iter().flatten();
    let around = groups.filter(|group| held.iter().all(|site| group.binary_search(site).is_ok()));
    let most = |site: &usize| search.bounds.max_pods(&search.requests, Spot { site: *site, domain: None }, want);
    let mut bounded: Vec<(u64, Vec<usize>)> = around
        .map(|group| {
            let sites: Vec<usize> = group.iter().copied().filter(|site| usable.binary_search(site).is_ok()).collect();
            (sites.iter().map(most).fold(0, u64::saturating_add), sites)
        })
        .collect();
    bounded.sort_by_key(|(most, _)| std::cmp::Reverse(*most));
    let takes = |(_, sites): (u64, Vec<usize>)| (search.count_pods_that_fit_together(&sites, want), sites);
    // Of those that take as many the first, which is the closest.
    bounded.into_iter().take(MOST_GROUPS).map(takes).rev().max_by_key(|(pods, _)| *pods)
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "needs {} at once", count_noun(self.needed, "pod"))?;
        if self.everywhere {
            write!(f, " in every selected cluster")?;
        }
        write!(f, "; {} fit now in {}", self.placeable, count_noun(self.clusters, "cluster"))?;
        match (self.most_clusters, &self.one_cluster) {
            (Some(_), Some(why)) => write!(f, " (all must be in one: {why})")?,
            (Some(most), None) => write!(f, " (at most {most} together)")?,
            _ => {}
        }
        if let Some(domain) = &self.domain {
            let (candidates, wanted) = (count_noun(domain.candidates, "domain"), &domain.wanted);
            let groups = match domain.groups {
                0 => String::new(),
                groups => format!(" and {} of close clusters", count_noun(groups, "group")),
            };
            match &domain.known_tiers {
                Some(tiers) => write!(f, "; no cluster has {wanted}: the tiers are {}", name_some(tiers))?,
                None => write!(f, "; of {candidates}{groups} of {wanted} none holds it")?,
            }
        }
        match (&self.best, self.domain.as_ref().and_then(|domain| domain.best.as_ref())) {
            (Some((cluster, pods)), Some(domain)) => write!(f, "; best domain {domain} of {cluster} takes {pods}")?,
            (Some((cluster, pods)), None) => write!(f, "; best cluster {cluster} takes {pods}")?,
            (None, _) => {}
        }
        if let Some((clusters, pods)) = self.domain.as_ref().and_then(|domain| domain.group.as_ref()) {
            write!(f, "; best close clusters {} take {pods}", name_some(clusters))?;
        }
        for (task, short) in &self.tasks {
            write!(f, "; task {task}: {} of {} fit", short.fits, short.needed)?;
            match &short.lack {
                Lack::NoNodeMatches(why) => write!(f, ", no node matches its selector and tolerations{why}")?,
                Lack::Apart { most, nodes } => write!(f, ", a node takes {most} at most and {nodes} match")?,
                Lack::Numa { policy, asked, most, nodes } => {
                    write!(f, ", {}", describe_numa_shortage(*policy, *asked, most.as_ref(), *nodes))?;
                }
                Lack::Partition { size, wanted, most } => write!(
                    f,
                    ", each partition of {size} must be in one domain of {wanted} and the roomiest takes {}",
                    count_noun(*most, "pod")
                )?,
                Lack::Resource { name, each, largest: Some((most, cluster)), .. } => {
                    let (each, most) = (each.plain(), most.plain());
                    write!(
                        f,
                        ", each pod asks for {each} {name} on one node; the largest has {most} free in {cluster}"
                    )?;
                }
                Lack::Resource { name, each, free, largest: None } => {
                    write!(f, ", each pod asks for {name} {} and {} is free", each.plain(), free.plain())?;
                }
            }
        }
        Ok(())
    }
}

fn describe_numa_shortage(policy: NumaPolicy, asked: u32, most: Option<&(i64, ClusterName)>, nodes: u64) -> String {
    let policy = format!("topologyPolicy {}", policy.as_str());
    match most {
        Some((most, cluster)) => {
            format!(
                "each pod asks for {asked} cpu aligned by {policy}; at most {most} are free so on a node of {cluster}"
            )
        }
        None => format!("{policy} aligns each pod, and the NUMA nodes of the nodes that match ({nodes}) take no more"),
    }
}
