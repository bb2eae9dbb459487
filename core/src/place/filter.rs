//! Which clusters a binding may go to at all.
//!
//! Rule: karmada-scheduler's in-tree filter plugins (`pkg/scheduler/framework/plugins`): ClusterAffinity, APIEnablement,
//! TaintToleration, SpreadConstraint and ClusterEviction, with their messages. Karmada runs them in random order and
//! reports the first that refuses; here the order is fixed. Clusters being deleted are passed over without a reason.
//! Clusters the binding is already in stay although their taints or APIs changed (only eviction takes it away).

use std::{collections::BTreeMap, fmt};

use super::{Affinity, Binding, Cluster, SpreadBy};
use crate::gang::{Operator, Requirement};

/// Who refuses a cluster, named as Karmada names its plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Plugin {
    /// The placement's affinity does not select it.
    ClusterAffinity,
    /// The binding is being evicted from it.
    ClusterEviction,
    /// A taint is not tolerated.
    TaintToleration,
    /// Its API does not serve the kind.
    ApiEnablement,
    /// It lacks the property that a constraint counts.
    SpreadConstraint,
}

impl fmt::Display for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClusterAffinity => "ClusterAffinity",
            Self::ClusterEviction => "ClusterEviction",
            Self::TaintToleration => "TaintToleration",
            Self::ApiEnablement => "APIEnablement",
            Self::SpreadConstraint => "SpreadConstraint",
        })
    }
}

/// The first reason why the binding may not go to the cluster; `None` if it may.
#[must_use]
pub fn refusal(binding: &Binding, cluster: &Cluster) -> Option<(Plugin, String)> {
    refusals(binding, cluster).into_iter().next()
}

/// Every reason why the binding may not go to the cluster.
#[must_use]
pub fn refusals(binding: &Binding, cluster: &Cluster) -> Vec<(Plugin, String)> {
    let mut reasons = Vec::new();
    if tier(binding, cluster).is_none() {
        let message = "cluster(s) did not match the placement cluster affinity constraint";
        reasons.push((Plugin::ClusterAffinity, message.to_owned()));
    }
    if binding.evicting.contains(&cluster.name) {
        reasons.push((Plugin::ClusterEviction, "cluster(s) is in the process of eviction".to_owned()));
    }
    if !binding.targets(&cluster.name) {
        let tolerations = &binding.placement.tolerations;
        if let Some(taint) = cluster.taints.iter().find(|taint| taint.forbids() && !taint.tolerated_by(tolerations)) {
            let value = if taint.value.is_empty() { String::new() } else { format!("={}", taint.value) };
            let message = format!("cluster(s) had untolerated taint {{{}{value}:{}}}", taint.key, taint.effect);
            reasons.push((Plugin::TaintToleration, message));
        }
        if !cluster.serves.contains(&(binding.api_version.clone(), binding.kind.clone())) {
            reasons.push((Plugin::ApiEnablement, "cluster(s) did not have the API resource".to_owned()));
        }
    }
    let lacks = |by: SpreadBy| match by {
        SpreadBy::Provider => cluster.provider.is_empty().then_some("provider"),
        SpreadBy::Region => cluster.region.is_empty().then_some("region"),
        SpreadBy::Zone => cluster.zones.is_empty().then_some("zones"),
        SpreadBy::Cluster | SpreadBy::Label => None,
    };
    if let Some(property) = binding.placement.spread.iter().find_map(|spread| lacks(spread.by)) {
        reasons.push((Plugin::SpreadConstraint, format!("cluster(s) did not have {property} property")));
    }
    reasons
}

/// The affinity tier that selects the cluster: 0 for the affinity itself, then the overflow affinities (of workloads
/// only) in order; `None` if nothing selects it.
#[must_use]
pub fn tier(binding: &Binding, cluster: &Cluster) -> Option<u32> {
    if let Some(affinity) = &binding.placement.affinity {
        return selects(affinity, cluster).then_some(0);
    }
    let Some(term) = binding.term() else { return Some(0) };
    if selects(&term.affinity, cluster) {
        return Some(0);
    }
    let overflow = if binding.is_workload { term.overflow.as_slice() } else { &[] };
    let index = overflow.iter().position(|affinity| selects(affinity, cluster))?;
    u32::try_from(index + 1).ok()
}

/// True if the affinity selects the cluster (Karmada's `util.ClusterMatches`).
#[must_use]
pub fn selects(affinity: &Affinity, cluster: &Cluster) -> bool {
    if affinity.invalid || affinity.exclude.contains(&cluster.name) {
        return false;
    }
    affinity.labels.iter().all(|label| label.matches(cluster.labels.get(&label.key).map(String::as_str)))
        && affinity.fields.iter().all(|field| field_matches(field, cluster))
        && (affinity.names.is_empty() || affinity.names.contains(&cluster.name))
}

/// Provider and region are compared as labels are; of a cluster's zones one must be listed (`In`), or none (`NotIn`).
fn field_matches(field: &Requirement, cluster: &Cluster) -> bool {
    let text = |text: &str| if text.is_empty() { None } else { Some(text.to_owned()) };
    match field.key.as_str() {
        "provider" => field.matches(text(&cluster.provider).as_deref()),
        "region" => field.matches(text(&cluster.region).as_deref()),
        "zone" => match field.operator {
            Operator::In => cluster.zones.iter().any(|zone| field.values.contains(zone)),
            Operator::NotIn => !cluster.zones.iter().any(|zone| field.values.contains(zone)),
            Operator::Exists => !cluster.zones.is_empty(),
            Operator::DoesNotExist => cluster.zones.is_empty(),
            Operator::Gt | Operator::Lt => false,
        },
        _ => field.matches(None),
    }
}

/// Karmada's `FitError`: how many clusters were refused, and how many for each reason.
#[must_use]
pub fn fit_error(clusters: usize, reasons: &[String]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in reasons {
        *counts.entry(reason).or_default() += 1;
    }
    let mut sentences: Vec<String> = counts.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    sentences.sort();
    if sentences.is_empty() {
        return format!("0/{clusters} clusters are available: no cluster exists.");
    }
    format!("0/{clusters} clusters are available: {}.", sentences.join(", "))
}
