//! Why a gang can not be placed now, in a sentence with numbers.
//!
//! Names what is needed and what fits, the cluster that could take most, each task that falls short of its minimum, and
//! the resource (or the lack of any matching node) that stops it.

use std::{collections::BTreeMap, fmt};

use super::{
    minimum_pods, missing, needs,
    pack::ORDERS,
    spread::{Search, total},
};
use crate::{
    gang::{ClusterName, TaskName},
    quantity::Quantity,
    resources::ResourceName,
};

/// Why a gang can not be placed now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No cluster is left to choose from.
    #[error("no cluster is left to choose from")]
    NoCandidates,
    /// The gang asks for nothing that could be placed.
    #[error("the workload asks for no pods")]
    NoPods,
    /// Not enough room.
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
    /// What stops each task that could not be placed as far as needed.
    pub tasks: BTreeMap<TaskName, TaskShortage>,
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
    /// No usable node satisfies selector, affinity and tolerations.
    NoNodeMatches,
    /// The resource that runs out first.
    Resource {
        /// Its name.
        name: ResourceName,
        /// What one pod asks for.
        each: Quantity,
        /// What is free on matching nodes, in all.
        free: Quantity,
    },
}

impl Refusal {
    pub(super) fn everywhere(self) -> Self {
        match self {
            Self::Short(mut shortage) => {
                shortage.everywhere = true;
                Self::Short(shortage)
            }
            other => other,
        }
    }
}

/// The numbers of a search that found nothing.
pub(super) fn refuse(search: &Search<'_>, want: &[u32]) -> Refusal {
    let gang = search.kit.gang;
    let held: u64 = search.kept.iter().map(|pods| total(pods)).sum();
    let sites = search.usable();
    let takes = |site: usize| {
        ORDERS
            .iter()
            .map(|order| {
                let order = search.kit.order(&search.rooms[site..=site], *order);
                total(&search.rooms[site].clone().fill(&search.kit, want, &order))
            })
            .max()
            .unwrap_or(0)
    };
    let mut by_site: Vec<(u64, usize)> = sites.iter().map(|site| (takes(*site), *site)).collect();
    by_site.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| search.tie.order(search.names[a.1], search.names[b.1])));
    let mut placed = vec![vec![0; want.len()]; search.names.len()];
    search.grow(want, &mut placed, &mut search.rooms.clone(), ORDERS[0]);
    let best = by_site.first().map(|(pods, site)| (search.names[*site].clone(), *pods));
    let in_one = best.as_ref().map_or(0, |(_, pods)| *pods);
    let together =
        if search.limit == 1 { in_one } else { placed.iter().map(|pods| total(pods)).sum::<u64>().max(in_one) };
    let need = missing(&needs(gang), &search.kept);
    let rooms: Vec<_> = sites.iter().map(|site| (search.names[*site], search.rooms[*site].clone())).collect();
    let mut tasks = BTreeMap::new();
    for (index, task) in gang.tasks.iter().enumerate() {
        let needed = if gang.task_minimums_bind() { need[index] } else { want[index] };
        let each = rooms.iter().map(|(_, room)| room.most(&search.kit, index));
        let fits = if search.limit == 1 { each.max().unwrap_or(0) } else { each.fold(0, u64::saturating_add) };
        if fits < u64::from(needed) {
            let lack = search.kit.lack(index, &rooms);
            tasks.insert(task.name.clone(), TaskShortage { needed: u64::from(needed), fits, lack });
        }
    }
    Refusal::Short(Box::new(Shortage {
        needed: minimum_pods(gang),
        placeable: held + together,
        clusters: search.names.len(),
        most_clusters: (search.limit < search.names.len()).then_some(search.limit),
        one_cluster: gang.one_cluster.clone(),
        everywhere: false,
        best: best.filter(|(_, pods)| *pods > 0),
        tasks,
    }))
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |n: usize| if n == 1 { "" } else { "s" };
        write!(f, "needs {} pods at once", self.needed)?;
        if self.everywhere {
            write!(f, " in every selected cluster")?;
        }
        write!(f, "; {} fit now in {} cluster{}", self.placeable, self.clusters, plural(self.clusters))?;
        match (self.most_clusters, &self.one_cluster) {
            (Some(_), Some(why)) => write!(f, " (all must be in one: {why})")?,
            (Some(most), None) => write!(f, " (at most {most} together)")?,
            _ => {}
        }
        if let Some((cluster, pods)) = &self.best {
            write!(f, "; best cluster {cluster} takes {pods}")?;
        }
        for (task, short) in &self.tasks {
            write!(f, "; task {task}: {} of {} fit", short.fits, short.needed)?;
            match &short.lack {
                Lack::NoNodeMatches => write!(f, ", no node matches its selector and tolerations")?,
                Lack::Resource { name, each, free } => {
                    write!(f, ", each pod asks for {name} {each} and {free} is free")?;
                }
            }
        }
        Ok(())
    }
}
