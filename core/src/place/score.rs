//! Ranking clusters as a policy wishes: in-tree plugins and scores from outside, each with a weight.
//!
//! Rule: karmada-scheduler's score plugins (`pkg/scheduler/framework`): 0 to 100 for each cluster, summed by weight.
//! Scores only order what is possible. For replicas that are divided they add to Karmada's own (100 where the binding
//! is already), which spread constraints go by, and Aggregated fills the best clusters first. For a gang they are the
//! declared cost of a cluster: of placements that are equally whole, equally close and in equally few clusters the best
//! scored wins; where the policy says `first`, the gang uses only so many of the best scored clusters as hold it whole.

use std::{collections::BTreeMap, str::FromStr, sync::Arc};

use super::Cluster;
use crate::{
    gang::Gang,
    inventory::{Capacity, NodeShape},
    quantity::Quantity,
};

/// The best score.
pub const BEST: i64 = 100;
/// Weights are at most this, up and down.
pub const HEAVIEST: i64 = 100;
/// So many parts a ranking may have.
pub const MOST_PARTS: usize = 16;
/// Label of a Cluster: what it costs, as a whole number of any unit.
pub const COST_LABEL: &str = "caldera.dev/cost";

/// A cluster that could be used.
#[derive(Debug, Clone, Copy)]
pub struct FeasibleCluster<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// What is free there.
    pub capacity: &'a Capacity,
}

/// A way to rank clusters, which policies name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScorePlugin {
    /// Fullest first, so that whole clusters stay free for gangs that need them.
    Binpack,
    /// Emptiest first.
    Spread,
    /// By label [`COST_LABEL`]: the cheapest has all points, the dearest none, the others in proportion. A cluster that
    /// states no cost counts as the dearest.
    Cheapest,
}

impl ScorePlugin {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Binpack, Self::Spread, Self::Cheapest];

    /// As policies write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Binpack => "binpack",
            Self::Spread => "spread",
            Self::Cheapest => "cheapest",
        }
    }

    /// How good each site is for the gang, from 0 to [`BEST`]. Sites pass every filter; their order does not matter.
    #[must_use]
    pub fn score_sites(self, gang: &Gang, sites: &[FeasibleCluster<'_>]) -> Vec<i64> {
        match self {
            Self::Binpack => sites.iter().map(|site| compute_taken_percent(gang, site.capacity)).collect(),
            Self::Spread => sites.iter().map(|site| BEST - compute_taken_percent(gang, site.capacity)).collect(),
            Self::Cheapest => score_by_cost(sites),
        }
    }
}

fn score_by_cost(sites: &[FeasibleCluster<'_>]) -> Vec<i64> {
    let cost = |site: &FeasibleCluster<'_>| site.cluster.labels.get(COST_LABEL)?.parse::<i64>().ok().map(i128::from);
    let costs: Vec<Option<i128>> = sites.iter().map(cost).collect();
    let stated = || costs.iter().flatten().copied();
    let (Some(least), Some(most)) = (stated().min(), stated().max()) else { return vec![0; sites.len()] };
    let score = |cost: Option<i128>| match cost {
        Some(cost) if most > least => (i128::from(BEST) * (most - cost)) / (most - least),
        // All that state a cost state the same.
        Some(_) => i128::from(BEST),
        None => 0,
    };
    costs.into_iter().map(|cost| i64::try_from(score(cost)).unwrap_or(0)).collect()
}

/// How much of what the gang asks for is taken in the cluster, in hundredths of all there is: the mean over its
/// resources.
fn compute_taken_percent(gang: &Gang, capacity: &Capacity) -> i64 {
    let sum = |name: &str, amount: fn(&NodeShape, &str) -> Option<Quantity>| -> i128 {
        let of = |shape: &NodeShape| amount(shape, name).map_or(0, Quantity::as_nano) * shape.nodes.len() as i128;
        capacity.shapes.iter().map(of).sum()
    };
    let mut names: Vec<&str> =
        gang.tasks.iter().flat_map(|task| task.request.iter()).map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let parts: Vec<i128> = names
        .into_iter()
        .filter_map(|name| {
            let all = sum(name, |shape, name| shape.allocatable.get(name).copied());
            let free = sum(name, |shape, name| shape.free.get(name).copied());
            (all > 0).then(|| (all - free).clamp(0, all) * i128::from(BEST) / all)
        })
        .collect();
    let count = parts.len().max(1) as i128;
    i64::try_from(parts.into_iter().sum::<i128>() / count).unwrap_or(0)
}

/// Scores that somebody outside gives, by cluster: 0 to [`BEST`], 0 where nothing is said.
pub type ExternalScores = Arc<BTreeMap<String, i64>>;

/// The word that puts scores before closeness and few clusters.
const SCORES_FIRST: &str = "first";

/// The weights that a policy gives: `binpack=2,cheapest=1,carbon=-1`. A name is a plugin's or that of scores from
/// outside. The word `first` among them puts a gang where the scores are best before anything but whether it fits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScoreWeights {
    by_name: Vec<(String, i64)>,
    first: bool,
}

/// Why a text is no table of weights.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseWeightsError {
    /// Not `name=number`.
    #[error("{0:?} is not name=weight with a whole number from -{HEAVIEST} to {HEAVIEST}, nor {SCORES_FIRST}")]
    Malformed(String),
    /// A name is there twice.
    #[error("{0} has two weights")]
    Twice(String),
    /// Too long.
    #[error("more than {MOST_PARTS} weights")]
    TooMany,
}

impl FromStr for ScoreWeights {
    type Err = ParseWeightsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut weights: Vec<(String, i64)> = Vec::new();
        let mut first = false;
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            if part == SCORES_FIRST {
                first = true;
                continue;
            }
            let malformed = || ParseWeightsError::Malformed(part.to_owned());
            let (name, weight) = part.split_once('=').ok_or_else(malformed)?;
            let (name, weight) = (name.trim(), weight.trim().parse::<i64>().map_err(|_| malformed())?);
            if name.is_empty() || !(-HEAVIEST..=HEAVIEST).contains(&weight) {
                return Err(malformed());
            }
            if weights.iter().any(|(known, _)| known == name) {
                return Err(ParseWeightsError::Twice(name.to_owned()));
            }
            if weights.len() == MOST_PARTS {
                return Err(ParseWeightsError::TooMany);
            }
            weights.push((name.to_owned(), weight));
        }
        Ok(Self { by_name: weights, first })
    }
}

impl ScoreWeights {
    /// The names that have a weight.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.iter().map(|(name, _)| name.as_str())
    }

    /// Whether scores come before closeness and few clusters.
    #[must_use]
    pub fn puts_scores_first(&self) -> bool {
        self.first && !self.by_name.is_empty()
    }
}

/// How a binding's policy ranks clusters; empty where it does not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranking {
    /// The weights.
    pub weights: ScoreWeights,
    /// What is known from outside, of the names that have a weight. Plugins come before it.
    pub external: BTreeMap<String, ExternalScores>,
}

impl Ranking {
    /// True where the policy does not rank clusters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.weights.by_name.is_empty()
    }

    /// Each site's sum; more is better. Who has no scores yet counts for nothing.
    #[must_use]
    pub fn scores(&self, gang: &Gang, sites: &[FeasibleCluster<'_>]) -> Vec<i64> {
        let mut sums = vec![0; sites.len()];
        for (name, weight) in &self.weights.by_name {
            let plugin = ScorePlugin::ALL.into_iter().find(|plugin| plugin.name() == name);
            let scores = match (plugin, self.external.get(name)) {
                (Some(plugin), _) => plugin.score_sites(gang, sites),
                (None, Some(scores)) => {
                    sites.iter().map(|site| scores.get(&site.cluster.name).copied().unwrap_or(0)).collect()
                }
                (None, None) => continue,
            };
            for (sum, score) in sums.iter_mut().zip(scores) {
                *sum += weight * score.clamp(0, BEST);
            }
        }
        sums
    }

    /// The same as costs, of which less is better and none is below zero, so that a further cluster is never a gain.
    #[must_use]
    pub fn costs(&self, gang: &Gang, sites: &[FeasibleCluster<'_>]) -> Vec<i64> {
        let best: i64 = self.weights.by_name.iter().map(|(_, weight)| weight.max(&0) * BEST).sum();
        self.scores(gang, sites).into_iter().map(|score| best - score).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{gang::NodeClaim, gang::Task, resources::Resources};

    fn gang(names: &[&str]) -> Gang {
        let task = Task {
            name: "pods".into(),
            replicas: 1,
            min_available: 1,
            request: names.iter().map(|name| (*name, Quantity::from_units(1))).collect(),
            node: NodeClaim::default(),
            priority_class: String::new(),
            partition: None,
        };
        Gang::new(vec![task], 1)
    }

    fn capacity(all: &[(&str, i64)], used: &[(&str, i64)]) -> Capacity {
        let list = |list: &[(&str, i64)]| -> Resources {
            list.iter().map(|(name, amount)| (*name, Quantity::from_units(*amount))).collect()
        };
        Capacity::from_summary(&list(all), &list(used), &Resources::new())
    }

    fn cluster(name: &str, cost: Option<&str>) -> Cluster {
        let labels = cost.into_iter().map(|cost| (COST_LABEL.to_owned(), cost.to_owned())).collect();
        Cluster { name: name.to_owned(), labels, ..Cluster::default() }
    }

    #[test]
    fn binpack_prefers_the_fuller_and_spread_the_emptier_by_what_is_asked_for() {
        let (full, empty) = (
            capacity(&[("cpu", 10), ("gpu", 4)], &[("cpu", 8), ("gpu", 1)]),
            capacity(&[("cpu", 10), ("gpu", 4)], &[]),
        );
        let (a, b) = (cluster("a", None), cluster("b", None));
        let sites =
            [FeasibleCluster { cluster: &a, capacity: &full }, FeasibleCluster { cluster: &b, capacity: &empty }];
        assert_eq!(ScorePlugin::Binpack.score_sites(&gang(&["cpu"]), &sites), [80, 0]);
        assert_eq!(ScorePlugin::Spread.score_sites(&gang(&["cpu"]), &sites), [20, 100]);
        assert_eq!(ScorePlugin::Binpack.score_sites(&gang(&["cpu", "gpu"]), &sites), [(80 + 25) / 2, 0]);
        assert_eq!(ScorePlugin::Binpack.score_sites(&gang(&["absent"]), &sites), [0, 0]);
    }

    #[test]
    fn cheapest_goes_by_the_stated_cost_and_who_states_none_is_dear() {
        let available = Capacity::default();
        let clusters =
            [cluster("a", Some("10")), cluster("b", Some("20")), cluster("c", Some("40")), cluster("d", None)];
        let sites: Vec<FeasibleCluster<'_>> =
            clusters.iter().map(|cluster| FeasibleCluster { cluster, capacity: &available }).collect();
        assert_eq!(ScorePlugin::Cheapest.score_sites(&gang(&[]), &sites), [100, 66, 0, 0]);
        assert_eq!(ScorePlugin::Cheapest.score_sites(&gang(&[]), &sites[..1]), [100]);
        let garbage = cluster("e", Some("much"));
        assert_eq!(
            ScorePlugin::Cheapest
                .score_sites(&gang(&[]), &[FeasibleCluster { cluster: &garbage, capacity: &available }]),
            [0]
        );
    }

    #[test]
    fn weights_are_read_and_what_makes_no_sense_is_refused_in_words() {
        let weights: ScoreWeights = " binpack=2, cheapest = 1,carbon=-1, ".parse().unwrap();
        assert_eq!(weights.by_name, [("binpack".to_owned(), 2), ("cheapest".into(), 1), ("carbon".into(), -1)]);
        assert!(
            !weights.puts_scores_first() && "cheapest=1,first".parse::<ScoreWeights>().unwrap().puts_scores_first()
        );
        assert_eq!("".parse(), Ok(ScoreWeights::default()));
        for bad in
            ["binpack", "binpack=much", "=2", "binpack=101", "binpack=9223372036854775808", "cost=-9223372036854775808"]
        {
            assert_eq!(bad.parse::<ScoreWeights>(), Err(ParseWeightsError::Malformed(bad.to_owned())));
        }
        assert_eq!("a=1,a=2".parse::<ScoreWeights>(), Err(ParseWeightsError::Twice("a".into())));
        let many: Vec<String> = (0..=MOST_PARTS).map(|i| format!("p{i}=1")).collect();
        assert_eq!(many.join(",").parse::<ScoreWeights>(), Err(ParseWeightsError::TooMany));
    }

    #[test]
    fn scores_are_summed_by_weight_and_those_that_are_not_there_count_for_nothing() {
        let available = Capacity::default();
        let clusters = [cluster("a", Some("1")), cluster("b", Some("3"))];
        let sites: Vec<FeasibleCluster<'_>> =
            clusters.iter().map(|cluster| FeasibleCluster { cluster, capacity: &available }).collect();
        let outside: ExternalScores = Arc::new([("b".to_owned(), 40)].into());
        let ranking = Ranking {
            weights: "cheapest=1,carbon=3,absent=9".parse().unwrap(),
            external: [("carbon".to_owned(), outside)].into(),
        };
        assert_eq!(ranking.scores(&gang(&[]), &sites), [100, 120]);
        assert_eq!(ranking.costs(&gang(&[]), &sites), [1300 - 100, 1300 - 120]);
    }

    proptest! {
        #[test]
        fn every_plugin_stays_in_bounds_and_the_order_of_sites_does_not_matter(
            given in prop::collection::vec((0..50i64, 0..80i64, prop::option::of(any::<i64>())), 0..6),
        ) {
            let clusters: Vec<Cluster> =
                given.iter().map(|(_, _, cost)| cluster("m", cost.map(|cost| cost.to_string()).as_deref())).collect();
            let capacities: Vec<Capacity> =
                given.iter().map(|(all, used, _)| capacity(&[("cpu", *all)], &[("cpu", *used)])).collect();
            let mut sites: Vec<FeasibleCluster<'_>> =
                clusters.iter().zip(&capacities).map(|(cluster, capacity)| FeasibleCluster { cluster, capacity }).collect();
            for plugin in ScorePlugin::ALL {
                let scores = plugin.score_sites(&gang(&["cpu"]), &sites);
                prop_assert_eq!(scores.len(), sites.len());
                prop_assert!(scores.iter().all(|score| (0..=BEST).contains(score)), "{:?} {:?}", plugin, scores);
                sites.reverse();
                let mut reversed = plugin.score_sites(&gang(&["cpu"]), &sites);
                reversed.reverse();
                sites.reverse();
                prop_assert_eq!(scores, reversed);
            }
        }

        #[test]
        fn a_further_cluster_never_costs_less_than_nothing(weights in prop::collection::vec(-HEAVIEST..=HEAVIEST, 3)) {
            let text = format!("binpack={},spread={},cheapest={}", weights[0], weights[1], weights[2]);
            let ranking = Ranking { weights: text.parse().unwrap(), ..Ranking::default() };
            let (available, one) = (capacity(&[("cpu", 10)], &[("cpu", 3)]), cluster("a", Some("2")));
            let costs = ranking.costs(&gang(&["cpu"]), &[FeasibleCluster { cluster: &one, capacity: &available }]);
            prop_assert!(costs[0] >= 0);
        }
    }
}
