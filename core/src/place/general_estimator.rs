//! How many replicas Karmada believes a cluster takes, from what its `status` says: the answer where nothing better is
//! known of a member, and what a stock karmada-scheduler would say.
//!
//! Rule: `GeneralEstimator.MaxAvailableReplicas` (`pkg/estimator/client/general.go`), with its traps: sums over nodes
//! count fragments that no pod fits in, and nodes that are cordoned or not ready; where the cluster has resource
//! models, each free node counts as its grade's lower end and 110 pods, and a resource that is in no model is not
//! there, so that GPUs and `ephemeral-storage` give 0 with the models that Karmada adds to every cluster.
//! [`ClusterSummary::estimate_max_available_replicas`] is Karmada's number;
//! [`ClusterSummary::max_replicas_by_known_models`] is the one to place by: models count only for what they model.

use crate::{quantity::Quantity, resources::Resources};

/// A node of a model has capacity for so many pods.
const PODS_OF_A_MODEL: i64 = 110;
const NANO: i128 = 1_000_000_000;

/// What a Cluster object says of its capacity: `status.resourceSummary` and `spec.resourceModels`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterSummary {
    /// Over all nodes.
    pub allocatable: Resources,
    /// Requests of pods with a node.
    pub allocated: Resources,
    /// Requests of pods without one.
    pub allocating: Resources,
    /// `allocatableModelings`: free nodes by grade; empty where there are no models or no counts.
    pub grades: Vec<Grade>,
}

/// Free nodes of one grade.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grade {
    /// How many.
    pub count: i64,
    /// The lower end of each range in its model; `None` where the cluster has no model of this grade.
    pub least: Option<Resources>,
}

impl ClusterSummary {
    /// Karmada's number. `None` asks for nothing but a place for a pod.
    #[must_use]
    pub fn estimate_max_available_replicas(&self, request: Option<&Resources>) -> i64 {
        self.estimate_replicas(request, |_| true)
    }

    /// The same, but models do not speak for a request that names something which is in none of them.
    #[must_use]
    pub fn max_replicas_by_known_models(&self, request: Option<&Resources>) -> i64 {
        let modelled = |name: &str| self.grades.iter().flat_map(|grade| &grade.least).any(|l| names_resource(l, name));
        self.estimate_replicas(request, |request| {
            request.iter().all(|(name, _)| name.as_str() == "pods" || modelled(name.as_str()))
        })
    }

    fn estimate_replicas(&self, request: Option<&Resources>, models_count: impl Fn(&Resources) -> bool) -> i64 {
        let pods = self.free_units("pods");
        if pods <= 0 {
            return 0;
        }
        let Some(request) = request else { return pods };
        let by_models = if models_count(request) { self.max_replicas_by_models(request) } else { None };
        pods.min(by_models.unwrap_or_else(|| self.max_replicas_by_sums(request))).max(0)
    }

    /// `allocatable - allocated - allocating` in the unit in which Karmada counts: thousandths of cores, else whole
    /// ones.
    fn free_units(&self, name: &str) -> i64 {
        let of = |list: &Resources| to_karmada_units(name, list.get(name));
        of(&self.allocatable).saturating_sub(of(&self.allocated)).saturating_sub(of(&self.allocating))
    }

    fn max_replicas_by_sums(&self, request: &Resources) -> i64 {
        let asked = request.iter().map(|(name, amount)| (name.as_str(), to_karmada_units(name.as_str(), amount)));
        asked
            .filter(|(_, asked)| *asked > 0)
            .map(|(name, asked)| self.free_units(name).max(0) / asked)
            .min()
            .unwrap_or(i64::MAX)
    }

    /// `None` where models can not say.
    fn max_replicas_by_models(&self, request: &Resources) -> Option<i64> {
        if self.grades.is_empty() || self.grades.iter().any(|grade| grade.count < 0) {
            return None;
        }
        let mut total = 0_i64;
        for grade in &self.grades {
            // A grade without a model has no nodes.
            let Some(least) = &grade.least else { continue };
            let fits =
                request.iter().filter(|(name, _)| is_counted_by_models(name.as_str())).filter_map(|(name, amount)| {
                    let (offered, asked) = (
                        to_karmada_units(name.as_str(), least.get(name.as_str())),
                        to_karmada_units(name.as_str(), amount),
                    );
                    (asked > 0).then(|| offered / asked)
                });
            let each = fits.min().unwrap_or(i64::MAX).min(PODS_OF_A_MODEL);
            total = total.saturating_add(each.saturating_mul(grade.count));
        }
        Some(total)
    }
}

fn names_resource(list: &Resources, name: &str) -> bool {
    list.iter().any(|(known, _)| known.as_str() == name)
}

/// Names that the model path looks at; it passes over others, such as a bare `storage`.
fn is_counted_by_models(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.contains('/') || name.starts_with("hugepages-")
}

/// As apimachinery's `MilliValue` for cores and `Value` for the rest: rounded up.
fn to_karmada_units(name: &str, amount: Quantity) -> i64 {
    let unit = if name == "cpu" { NANO / 1000 } else { NANO };
    i64::try_from(-(-amount.as_nano()).div_euclid(unit)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(amounts: &[(&str, i64)]) -> Resources {
        amounts.iter().map(|(name, amount)| (*name, Quantity::from_units(*amount))).collect()
    }

    /// One free node of 32 cores, 128 Gi and 8 GPUs, in the grade that begins at 16 cores and 64 Gi.
    fn published(models: bool) -> ClusterSummary {
        let grade = Grade { count: 1, least: Some(list(&[("cpu", 16), ("memory", 64 << 30)])) };
        ClusterSummary {
            allocatable: list(&[("cpu", 32), ("memory", 128 << 30), ("nvidia.com/gpu", 8), ("pods", 110)]),
            grades: if models { vec![grade] } else { Vec::new() },
            ..ClusterSummary::default()
        }
    }

    #[test]
    fn a_node_is_as_small_as_its_grade_allows() {
        let request = list(&[("cpu", 2), ("pods", 1)]);
        assert_eq!(published(true).estimate_max_available_replicas(Some(&request)), 8);
        assert_eq!(published(true).max_replicas_by_known_models(Some(&request)), 8);
        assert_eq!(published(false).estimate_max_available_replicas(Some(&request)), 16);
    }

    /// karmada.md 6.1: the GPU trap.
    #[test]
    fn what_no_model_names_is_taken_from_the_sums_and_not_for_absent() {
        let request = list(&[("cpu", 2), ("nvidia.com/gpu", 1)]);
        assert_eq!(published(true).estimate_max_available_replicas(Some(&request)), 0, "Karmada's answer");
        assert_eq!(published(true).max_replicas_by_known_models(Some(&request)), 8);
    }

    /// karmada.md 14.18: the model path never looks at the sums.
    #[test]
    fn modelled_gpus_that_are_not_allocatable_are_given_by_karmada() {
        let mut published = published(true);
        published.grades[0].least = Some(list(&[("cpu", 16), ("nvidia.com/gpu", 4)]));
        published.allocatable.set("nvidia.com/gpu", Quantity::ZERO);
        let request = list(&[("nvidia.com/gpu", 1)]);
        assert_eq!(published.estimate_max_available_replicas(Some(&request)), 4);
    }

    #[test]
    fn free_pods_bound_every_answer() {
        let mut published = published(false);
        published.allocated = list(&[("pods", 107)]);
        assert_eq!(published.estimate_max_available_replicas(None), 3);
        assert_eq!(published.estimate_max_available_replicas(Some(&list(&[("cpu", 1)]))), 3);
        published.allocating = list(&[("pods", 3)]);
        assert_eq!(published.estimate_max_available_replicas(None), 0);
    }

    #[test]
    fn a_grade_without_a_model_has_no_nodes_and_a_negative_count_leaves_it_to_the_sums() {
        let request = list(&[("cpu", 2)]);
        for (count, least, want) in [(1, None, 8), (-1, Some(list(&[("cpu", 16)])), 16)] {
            let mut published = published(true);
            published.grades.push(Grade { count, least });
            assert_eq!(published.estimate_max_available_replicas(Some(&request)), want);
        }
    }
}
