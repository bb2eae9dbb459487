//! NUMA policies: whether the CPUs of a pod lie in the NUMA nodes of a node as its task's `topologyPolicy` wants.
//!
//! Rule (Volcano `pkg/scheduler/plugins/numaaware`): a policy counts for Guaranteed pods alone. Such a pod goes only to
//! nodes whose CPU manager is `static` and whose topology manager has the same policy. Its containers with whole CPUs
//! come one after the other. Each takes as few NUMA nodes as could hold it if they were empty, and of these the ones
//! with the lowest numbers that hold it now. With `single-numa-node` that must be one, with `restricted` it is refused
//! where none hold it, and `best-effort` never refuses. Other containers take no CPUs for themselves.
//!
//! The plugin is not in Volcano's default configuration. Where no node of a cluster has a Numatopology the cluster is
//! judged without all this, as its own Volcano judges it.
//!
//! What is approximated:
//! - A Guaranteed pod without a policy is aligned by its node's where that has one, by Volcano and the kubelet. Here it
//!   counts by amounts alone.
//! - `best-effort` is not refused where the set of free CPUs is empty. A kubelet whose CPU manager is `static` always
//!   reserves some, which stay in that set.
//! - Of several NUMA nodes for one container the lowest are filled first; Volcano goes by sockets and cores.
//! - Assumed pods with a policy take CPUs of NUMA nodes until they are seen. From then until the node reports them
//!   itself they count by all CPUs of the node alone, and so do pods without a policy.
//! - Which NUMA nodes get CPUs back from pods that go nobody knows. If they are evicted, the one that has just so many
//!   taken. Where the question is whether a job can ever start, each of them does.
//! - A node that may come reports nothing. In a cluster where others report it counts for no task with a policy.

use serde::{Deserialize, Serialize};

/// NUMA nodes of a node that are looked at; a node with more reports nothing.
pub const MOST_NUMA_NODES: usize = 16;
/// The same of its CPUs.
pub const MOST_CPUS: usize = 2048;
/// Containers with whole CPUs of a pod that are looked at; a pod with more counts by amounts alone.
pub const MOST_CONTAINERS: usize = 8;
/// Columns that [`FreeCpus`] takes in a row of numbers.
pub(crate) const COLUMNS: usize = 2 * MOST_NUMA_NODES;

/// A policy of the kubelet's topology manager, by which it refuses or aligns pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NumaPolicy {
    /// Aligned if possible.
    BestEffort,
    /// Each container in as few NUMA nodes as could hold it.
    Restricted,
    /// Each container in one NUMA node.
    SingleNumaNode,
}

impl NumaPolicy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::BestEffort, Self::Restricted, Self::SingleNumaNode];

    /// Reads Kubernetes' word for it; `None` for another, such as `none`.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.as_str() == word)
    }

    /// Kubernetes' word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BestEffort => "best-effort",
            Self::Restricted => "restricted",
            Self::SingleNumaNode => "single-numa-node",
        }
    }
}

/// What a task's Guaranteed pods want of NUMA nodes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NumaClaim {
    /// The policy that a node must have.
    pub policy: NumaPolicy,
    /// The whole CPUs of each container that has some, in order; at most [`MOST_CONTAINERS`].
    pub cpus: Vec<u32>,
}

impl NumaClaim {
    /// Whether a node that aligns pods may refuse one for it.
    pub(crate) fn may_be_refused(&self) -> bool {
        self.policy != NumaPolicy::BestEffort && self.cpus.iter().any(|cpus| *cpus > 0)
    }
}

/// The CPUs of a NUMA node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NumaNode {
    /// In all.
    pub cpus: u16,
    /// Without those that are reserved for the system; at most `cpus`.
    pub allocatable: u16,
    /// Of these what no container has for itself; at most `allocatable`.
    pub free: u16,
}

/// What a node reports of its NUMA nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NumaTopology {
    /// By which it aligns pods; `None` where it aligns none.
    policy: Option<NumaPolicy>,
    /// By number.
    nodes: Box<[NumaNode]>,
}

impl NumaTopology {
    /// What a node reports; `None` if that can not be: no NUMA node for a policy, more of them or of CPUs than are
    /// looked at, one without CPUs, or more CPUs free than there are.
    #[must_use]
    pub fn new(policy: Option<NumaPolicy>, nodes: Vec<NumaNode>) -> Option<Self> {
        let is_possible =
            |node: &NumaNode| node.cpus > 0 && node.free <= node.allocatable && node.allocatable <= node.cpus;
        let cpus: usize = nodes.iter().map(|node| usize::from(node.cpus)).sum();
        let is_one = nodes.len() <= MOST_NUMA_NODES && cpus <= MOST_CPUS && nodes.iter().all(is_possible);
        (is_one && nodes.is_empty() == policy.is_none()).then(|| Self { policy, nodes: nodes.into() })
    }

    /// By which it aligns pods; `None` where it aligns none.
    #[must_use]
    pub const fn policy(&self) -> Option<NumaPolicy> {
        self.policy
    }

    /// By number; none where it aligns no pods.
    #[must_use]
    pub fn nodes(&self) -> &[NumaNode] {
        &self.nodes
    }

    /// The same with no pod on the node.
    #[must_use]
    pub fn emptied(&self) -> Self {
        self.with_free(|_, node| node.allocatable)
    }

    /// The same after pods went that had so many CPUs, for themselves or not: the NUMA node that has just so many taken
    /// gets them back, else the one with the fewest more, else those with most.
    #[must_use]
    pub(crate) fn with_returned_cpus(&self, cpus: u16) -> Self {
        let (mut left, mut free) = (cpus, self.nodes.iter().map(|node| node.free).collect::<Vec<_>>());
        let taken = |free: &[u16], at: usize| self.nodes[at].allocatable - free[at];
        while left > 0 {
            let open = || (0..free.len()).filter(|at| taken(&free, *at) > 0);
            let enough = open().filter(|at| taken(&free, *at) >= left).min_by_key(|at| taken(&free, *at));
            let Some(at) = enough.or_else(|| open().max_by_key(|at| taken(&free, *at))) else { break };
            let back = taken(&free, at).min(left);
            (free[at], left) = (free[at] + back, left - back);
        }
        self.with_free(|at, _| free[at])
    }

    /// The same after such pods went, for who asks whether anything is ever possible: each NUMA node gets them back.
    #[must_use]
    pub(crate) fn with_cpus_returned_anywhere(&self, cpus: u16) -> Self {
        self.with_free(|_, node| node.free.saturating_add(cpus).min(node.allocatable))
    }

    /// The same with so much free as is left of it.
    #[must_use]
    pub(crate) fn with_free_cpus(&self, left: &FreeCpus) -> Self {
        self.with_free(|at, node| u16::try_from(left.free[at]).unwrap_or(0).min(node.allocatable))
    }

    fn with_free(&self, free: impl Fn(usize, &NumaNode) -> u16) -> Self {
        let nodes = self.nodes.iter().enumerate().map(|(at, node)| NumaNode { free: free(at, node), ..*node });
        Self { policy: self.policy, nodes: nodes.collect() }
    }
}

/// CPUs by NUMA node while pods are put on the node. Without any, nothing is known of NUMA nodes and all pods fit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FreeCpus {
    cpus: [i64; MOST_NUMA_NODES],
    free: [i64; MOST_NUMA_NODES],
}

impl FreeCpus {
    pub(crate) fn of_topology(topology: Option<&NumaTopology>) -> Self {
        let mut all = Self::default();
        for (at, node) in topology.into_iter().flat_map(|topology| &topology.nodes).enumerate() {
            (all.cpus[at], all.free[at]) = (node.cpus.into(), node.free.into());
        }
        all
    }

    /// From a row of [`COLUMNS`] numbers.
    pub(crate) fn from_columns(columns: &[i64]) -> Self {
        let mut all = Self::default();
        for (at, column) in columns.iter().enumerate().take(COLUMNS) {
            let of = if at < MOST_NUMA_NODES { &mut all.cpus } else { &mut all.free };
            of[at % MOST_NUMA_NODES] = *column;
        }
        all
    }

    /// As a row of [`COLUMNS`] numbers.
    pub(crate) fn columns(&self) -> impl Iterator<Item = i64> + '_ {
        self.cpus.iter().chain(&self.free).copied()
    }

    /// So many pods fit, at most `most`.
    pub(crate) fn count_pods(&self, claim: &NumaClaim, most: u64) -> u64 {
        if self.fits_any(claim) {
            return most;
        }
        if let [asked] = claim.cpus[..]
            && self.width_of(claim.policy, asked) == 1
        {
            let on_each = self.free.iter().map(|free| free / i64::from(asked));
            return on_each.sum::<i64>().unsigned_abs().min(most);
        }
        self.take_most_pods(claim, most).1
    }

    /// What is left beside so many pods, or as many of them as fit.
    pub(crate) fn take_pods(&self, claim: &NumaClaim, pods: u64) -> Self {
        if self.fits_any(claim) { *self } else { self.take_most_pods(claim, pods).0 }
    }

    /// What is left beside so many pods, or as many as fit, and how many that are. One after the other, since it is not
    /// said how several containers fill NUMA nodes.
    fn take_most_pods(&self, claim: &NumaClaim, most: u64) -> (Self, u64) {
        let mut widths = [0; MOST_CONTAINERS];
        for (width, asked) in widths.iter_mut().zip(&claim.cpus) {
            *width = self.width_of(claim.policy, *asked);
        }
        let containers = || claim.cpus.iter().map(|asked| i64::from(*asked)).zip(widths);
        let (mut left, mut pods) = (*self, 0);
        while pods < most {
            let mut next = left;
            if !containers().all(|(asked, width)| next.take_container(asked, width)) {
                break;
            }
            (left, pods) = (next, pods + 1);
        }
        (left, pods)
    }

    /// The most CPUs that a container of this size finds free in as many NUMA nodes as it may be in.
    pub(crate) fn most_for_container(&self, policy: NumaPolicy, asked: u32) -> i64 {
        sum_largest(&self.free, self.width_of(policy, asked))
    }

    /// Whether alignment refuses none of these pods.
    fn fits_any(&self, claim: &NumaClaim) -> bool {
        self.cpus[0] == 0 || !claim.may_be_refused()
    }

    /// False if it does not fit.
    fn take_container(&mut self, asked: i64, width: usize) -> bool {
        let Some(chosen) = self.choose_numa_nodes(asked, width) else { return false };
        let mut rest = asked;
        for (free, _) in self.free.iter_mut().zip(chosen).filter(|(_, is_chosen)| *is_chosen) {
            let taken = rest.min(*free);
            (*free, rest) = (*free - taken, rest - taken);
        }
        true
    }

    /// In how many NUMA nodes a container of this size must be: the fewest that could hold it.
    fn width_of(&self, policy: NumaPolicy, asked: u32) -> usize {
        let there = self.cpus.iter().filter(|cpus| **cpus > 0).count();
        let holds = |width: &usize| sum_largest(&self.cpus, *width) >= i64::from(asked);
        if policy == NumaPolicy::SingleNumaNode { 1 } else { (1..there).find(holds).unwrap_or(there) }
    }

    /// So many NUMA nodes with so many CPUs free, of lower numbers first; `None` if there are none. Of two such sets
    /// the one is first whose highest number is lower, then the next to it, as masks of bits are compared.
    fn choose_numa_nodes(&self, asked: i64, width: usize) -> Option<[bool; MOST_NUMA_NODES]> {
        let (mut chosen, mut rest, mut below) = ([false; MOST_NUMA_NODES], asked, MOST_NUMA_NODES);
        for width in (0..width).rev() {
            let is_enough =
                |at: &usize| self.cpus[*at] > 0 && self.free[*at] + sum_largest(&self.free[..*at], width) >= rest;
            let highest = (width..below).find(is_enough)?;
            (chosen[highest], rest, below) = (true, rest - self.free[highest], highest);
        }
        Some(chosen)
    }
}

/// The sum of so many of the amounts, the largest.
fn sum_largest(amounts: &[i64], count: usize) -> i64 {
    if count == 0 {
        return 0;
    }
    let mut sorted = [0; MOST_NUMA_NODES];
    sorted[..amounts.len()].copy_from_slice(amounts);
    sorted.sort_unstable_by_key(|amount| std::cmp::Reverse(*amount));
    sorted[..count.min(MOST_NUMA_NODES)].iter().sum()
}

#[cfg(test)]
mod tests;
