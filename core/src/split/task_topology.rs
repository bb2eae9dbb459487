//! Which cluster gets which pods of a gang whose tasks want to be together or apart.
//!
//! Rule: of all divisions of the same pods over the same clusters that fit node by node, one with fewest pairs unmet
//! ([`TaskTopology`](crate::task_topology::TaskTopology)). Up to [`FEW_DIVISIONS`] every one is looked at, and a brute
//! force confirms the choice. Beyond, pods are moved and swapped between two clusters as long as that leaves fewer
//! pairs unmet. One decision looks at [`MOST_PAIRS`] clusters of divisions at most. Partitioned tasks stay as they are.

use std::collections::BTreeMap;

use super::{Assignment, ObjectiveKey, Pods, SplitSearch, Spot, upper_bounds::TotalDemand};

/// Up to so many divisions every one is looked at.
const FEW_DIVISIONS: u64 = 4096;
/// Clusters of divisions that are looked at in one decision.
pub(super) const MOST_PAIRS: u32 = 1 << 18;

/// The search for a division of one gang's pods over some spots.
struct DivisionSearch<'s, 'a> {
    search: &'s SplitSearch<'a>,
    spots: &'s [Spot],
    /// By spot: sizes of which it is known whether they fit.
    known: Vec<BTreeMap<Vec<u32>, bool>>,
    best: Pods,
    unmet: u64,
}

impl SplitSearch<'_> {
    /// The key of a choice with so many pods missing.
    pub(super) fn key_of_choice(&self, choice: &Assignment, missing: u64) -> ObjectiveKey {
        let unmet = self.count_unmet_pairs(&choice.spots, &choice.pods);
        ObjectiveKey { unmet, ..self.objective_key(&choice.spots, missing) }
    }

    /// Pairs of pods that are not as their tasks want, with the pods that stay.
    pub(super) fn count_unmet_pairs(&self, spots: &[Spot], pods: &Pods) -> u64 {
        let topology = &self.requests.gang.task_topology;
        if topology.is_empty() {
            return 0;
        }
        let kept = |spot: &Spot| self.kept.iter().find(|(site, _)| *site == spot.site).map(|(_, pods)| pods);
        let whole = |(spot, pods): (&Spot, &Vec<u32>)| match kept(spot) {
            Some(kept) => pods.iter().zip(kept).map(|(pods, kept)| pods.saturating_add(*kept)).collect(),
            None => pods.clone(),
        };
        topology.count_unmet(&spots.iter().zip(pods).map(whole).collect::<Pods>())
    }

    /// The same pods over the same spots, with as few pairs unmet as is found.
    pub(super) fn reduce_unmet_pairs(&self, spots: &[Spot], pods: Pods) -> Pods {
        let gang = self.requests.gang;
        if spots.len() < 2 || gang.task_topology.is_empty() || gang.tasks.iter().any(|task| task.partition.is_some()) {
            return pods;
        }
        let unmet = self.count_unmet_pairs(spots, &pods);
        let known = vec![BTreeMap::new(); spots.len()];
        let mut division = DivisionSearch { search: self, spots, known, best: pods, unmet };
        let all: Vec<u32> =
            (0..gang.tasks.len()).map(|task| division.best.iter().map(|spot| spot[task]).sum()).collect();
        if count_divisions(&all, spots.len()) <= FEW_DIVISIONS {
            division.try_all_divisions(&mut Vec::new(), &all);
        } else {
            division.exchange_pods();
        }
        division.best
    }
}

/// In how many ways so many pods of each task can be divided over so many clusters; a bound of it where it is large.
fn count_divisions(pods: &[u32], clusters: usize) -> u64 {
    let ways = |pods: u32| {
        (1..clusters as u64).try_fold(1_u64, |ways, cluster| {
            Some(ways.checked_mul(u64::from(pods) + cluster)? / cluster).filter(|ways| *ways <= FEW_DIVISIONS)
        })
    };
    let all =
        pods.iter().try_fold(1_u64, |all, pods| all.checked_mul(ways(*pods)?).filter(|all| *all <= FEW_DIVISIONS));
    all.unwrap_or(u64::MAX)
}

impl DivisionSearch<'_, '_> {
    /// Whether so many pods of each task fit a spot.
    fn fits(&mut self, spot: usize, pods: &[u32]) -> bool {
        if let Some(known) = self.known[spot].get(pods) {
            return *known;
        }
        let (search, place) = (self.search, self.spots[spot]);
        let ask = TotalDemand::of_pods(&search.requests, pods);
        let fits = super::sum_pods(pods) == 0
            || (search.bounds.might_take(place, &ask) && search.pack_into(&[place], pods).is_some());
        self.known[spot].insert(pods.to_vec(), fits);
        fits
    }

    /// Counts a look; false once there were too many.
    fn spend_search_step(&self) -> bool {
        let clusters = u32::try_from(self.spots.len()).unwrap_or(u32::MAX);
        let left = self.search.looks.get().checked_sub(clusters);
        self.search.looks.set(left.unwrap_or(0));
        left.is_some()
    }

    /// Takes a division if it is better than the best that is known.
    fn keep_if_better(&mut self, pods: &Pods) {
        let unmet = self.search.count_unmet_pairs(self.spots, pods);
        if unmet < self.unmet {
            (self.best, self.unmet) = (pods.clone(), unmet);
        }
    }

    /// Every division of what is left over the spots that have nothing yet.
    fn try_all_divisions(&mut self, given: &mut Pods, left: &[u32]) {
        let spot = given.len();
        if self.unmet == 0 || !self.spend_search_step() {
            return;
        }
        if spot + 1 == self.spots.len() {
            if self.fits(spot, left) {
                given.push(left.to_vec());
                self.keep_if_better(given);
                given.pop();
            }
            return;
        }
        let mut size = vec![0; left.len()];
        loop {
            if self.fits(spot, &size) {
                let rest: Vec<u32> = left.iter().zip(&size).map(|(left, size)| left - size).collect();
                given.push(size.clone());
                self.try_all_divisions(given, &rest);
                given.pop();
            }
            let Some(task) = (0..left.len()).find(|task| size[*task] < left[*task]) else { return };
            size[task] += 1;
            size[..task].fill(0);
        }
    }

    /// Moves and swaps pods between two spots, pair by pair, until a round helps nowhere.
    fn exchange_pods(&mut self) {
        let spots = self.spots.len();
        let mut helped = true;
        while helped && self.unmet > 0 {
            helped = false;
            for (from, to) in (0..spots).flat_map(|from| (0..spots).map(move |to| (from, to))) {
                while from != to && self.make_helpful_exchange(from, to) {
                    helped = true;
                }
            }
        }
    }

    /// One exchange that helps and fits: pods of one task there, pods of another or none back.
    fn make_helpful_exchange(&mut self, from: usize, to: usize) -> bool {
        let tasks = self.best[from].len();
        for (there, back) in (0..tasks).flat_map(|there| (0..tasks).map(move |back| (there, back))) {
            for pods in list_halvings(self.best[from][there]) {
                let most_back = if there == back { 0 } else { self.best[to][back] };
                let as_many = std::iter::once(pods).filter(|pods| *pods <= most_back);
                for returned in std::iter::once(0).chain(as_many).chain(list_halvings(most_back)) {
                    if !self.spend_search_step() {
                        return false;
                    }
                    let mut tried = self.best.clone();
                    tried[from][there] -= pods;
                    tried[to][there] += pods;
                    tried[to][back] -= returned;
                    tried[from][back] += returned;
                    let unmet = self.search.count_unmet_pairs(self.spots, &tried);
                    if unmet < self.unmet && self.fits(from, &tried[from]) && self.fits(to, &tried[to]) {
                        (self.best, self.unmet) = (tried, unmet);
                        return true;
                    }
                }
            }
        }
        false
    }
}

/// All of these pods, half of them, half of that and so on to one.
fn list_halvings(pods: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(pods), |pods| Some(pods / 2)).take_while(|pods| *pods > 0)
}
