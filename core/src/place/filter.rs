//! Which clusters a binding may go to at all.
//!
//! Rule: karmada-scheduler's in-tree filter plugins (`pkg/scheduler/framework/plugins`): ClusterAffinity,
//! APIEnablement, TaintToleration, SpreadConstraint, ClusterEviction, WorkloadAffinity and WorkloadAntiAffinity (in
//! Karmada behind a feature gate; here wherever a binding has groups), with their messages. Karmada runs them in random
//! order and reports the first that refuses; here the order is fixed. Clusters being deleted are passed over without a
//! reason. Clusters the binding is already in stay although their taints or APIs changed (only eviction takes it away).
//! Beyond Karmada: nothing new goes to a cluster where a maintenance window is in the way of the expected run
//! ([`super::maintenance_windows`]), to one without the data that its claims require, to one that its queue may not
//! use, or to one that its user keeps it out of. A [`Filter`] is made once for a binding and asked for each cluster.

use std::{borrow::Cow, cell::Cell, collections::BTreeMap, fmt};

use super::{Affinity, AffinityTerm, ApiKey, Binding, Cluster, SpreadBy, lookup::Lookup};
use crate::{
    gang::{Operator, Requirement, Taint},
    maintenance::ExpectedRun,
};

/// Why a binding may not go to a cluster; its text is Karmada's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterReason<'a> {
    /// No affinity selects it.
    NotSelected,
    /// The binding is being evicted from it.
    Evicting,
    /// A taint is not tolerated.
    Taint(&'a Taint),
    /// Its API does not serve the kind.
    NoApi,
    /// It lacks the property that a constraint counts.
    Lacks(&'static str),
    /// Another one of the binding's affinity group is placed and not there.
    GroupElsewhere,
    /// One of the binding's anti-affinity group is there.
    GroupThere,
    /// It is not ready and the binding is not in it yet. Karmada leaves that to taints.
    NotReady,
    /// A maintenance window is in the way of its run, and the binding is not in it yet.
    Maintenance,
    /// It lacks data that is required, and the binding is not in it yet.
    NoData,
    /// Its queue may not use it, and the binding is not in it yet.
    NotOfQueue,
    /// Its user does not let it go there, and the binding is not in it yet.
    NotChosen,
}

impl FilterReason<'_> {
    fn message(&self) -> Cow<'static, str> {
        match self {
            Self::NotSelected => "cluster(s) did not match the placement cluster affinity constraint".into(),
            Self::Evicting => "cluster(s) is in the process of eviction".into(),
            Self::Taint(taint) => {
                let value = if taint.value.is_empty() { String::new() } else { format!("={}", taint.value) };
                format!("cluster(s) had untolerated taint {{{}{value}:{}}}", taint.key, taint.effect).into()
            }
            Self::NoApi => "cluster(s) did not have the API resource".into(),
            Self::Lacks(property) => format!("cluster(s) did not have {property} property").into(),
            Self::GroupElsewhere => "ResourceBinding with the same affinity group does not target this cluster".into(),
            Self::GroupThere => "cluster already has workload with the same anti-affinity group".into(),
            Self::NotReady => "cluster(s) is not ready".into(),
            Self::Maintenance => "cluster(s) is kept for maintenance".into(),
            Self::NotOfQueue => "cluster(s) is not for jobs of its queue".into(),
            Self::NoData => "cluster(s) did not have the data of its DataSourceClaims".into(),
            Self::NotChosen => "cluster(s) were not chosen by its user".into(),
        }
    }
}

impl fmt::Display for FilterReason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())
    }
}

/// What is known of a cluster that passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassedCluster {
    /// Its affinity tier.
    pub tier: u32,
    /// The binding's replicas there; `None` where it is not a target.
    pub held: Option<i64>,
}

impl Binding {
    /// Why nothing more of it goes to a cluster, whether it is there or not, that no time ends of itself: data that is
    /// elsewhere, its queue, and what its user chose.
    pub fn lasting_reasons<'b>(&self, cluster: &'b Cluster) -> impl Iterator<Item = FilterReason<'b>> {
        let no_data = !self.has_data_in(&cluster.name);
        let not_of_queue = !self.queue_allows(cluster);
        let not_chosen = !self.is_allowed_by_user(&cluster.name);
        [
            no_data.then_some(FilterReason::NoData),
            not_of_queue.then_some(FilterReason::NotOfQueue),
            not_chosen.then_some(FilterReason::NotChosen),
        ]
        .into_iter()
        .flatten()
    }
}

/// A binding's demands on clusters, ready to be asked of many.
#[derive(Debug, Clone)]
pub struct Filter<'a> {
    pub(super) binding: &'a Binding,
    /// `None` where no maintenance window counts.
    pub(super) run: Option<ExpectedRun>,
    /// The node groups that its pods are kept to, if they are.
    pub(super) groups: Option<&'a Requirement>,
    /// It can be kept off some nodes of a cluster.
    pub(super) keeps_off_nodes: bool,
    /// By tier; `None` where every cluster is selected.
    tiers: Option<Vec<Selector<'a>>>,
    held: Lookup<'a, i64>,
    evicting: Lookup<'a, ()>,
    api: ApiKey,
    /// The answer for the list of APIs (by its address) that was last looked at: most clusters share one.
    last_api: Cell<(usize, bool)>,
}

impl<'a> Filter<'a> {
    /// For the binding as it is, with the affinity term that is in use.
    #[must_use]
    pub fn new(binding: &'a Binding) -> Self {
        let targets = binding.previous.iter().map(|target| (target.cluster.as_str(), target.replicas));
        Self {
            binding,
            run: None,
            groups: None,
            keeps_off_nodes: false,
            tiers: list_tier_selectors(binding),
            held: Lookup::new(targets),
            evicting: Lookup::names(&binding.evicting),
            api: (binding.api_version.clone(), binding.kind.clone()),
            last_api: Cell::new((0, false)),
        }
    }

    /// Whether the binding is in the cluster.
    pub(super) fn is_held_in(&self, cluster: &Cluster) -> bool {
        self.held.get(&cluster.name).is_some()
    }

    /// What is known of the cluster, or the first reason why the binding may not go there.
    ///
    /// # Errors
    /// The reason.
    pub fn check<'b>(&self, cluster: &'b Cluster) -> Result<PassedCluster, FilterReason<'b>> {
        let tier = self.affinity_tier_of(cluster).ok_or(FilterReason::NotSelected)?;
        let held = self.held.get(&cluster.name);
        match self.reasons_beyond_affinity(cluster, held.is_some()).next() {
            Some(reason) => Err(reason),
            None => Ok(PassedCluster { tier, held }),
        }
    }

    /// Every reason why the binding may not go to the cluster.
    pub fn reasons<'b>(&self, cluster: &'b Cluster) -> impl Iterator<Item = FilterReason<'b>> {
        let selected = self.affinity_tier_of(cluster).is_some();
        let held = self.held.get(&cluster.name).is_some();
        (!selected).then_some(FilterReason::NotSelected).into_iter().chain(self.reasons_beyond_affinity(cluster, held))
    }

    fn reasons_beyond_affinity<'b>(&self, cluster: &'b Cluster, held: bool) -> impl Iterator<Item = FilterReason<'b>> {
        let tolerations = &self.binding.placement.tolerations;
        let evicting = self.evicting.contains(&cluster.name).then_some(FilterReason::Evicting);
        let taint = || cluster.taints.iter().find(|taint| taint.forbids() && !taint.tolerated_by(tolerations));
        let taint = if held { None } else { taint().map(FilterReason::Taint) };
        let api = (!held && !self.is_served(cluster)).then_some(FilterReason::NoApi);
        let lacks = self.binding.placement.spread.iter().find_map(|spread| find_missing_property(spread.by, cluster));
        let peers = &self.binding.peers;
        let elsewhere = !held && peers.together.as_ref().is_some_and(|together| !together.contains(&cluster.name));
        let kept = !held && self.has_maintenance_conflict(cluster);
        let there = !held && peers.apart.contains(&cluster.name);
        [
            evicting,
            taint,
            api,
            lacks.map(FilterReason::Lacks),
            elsewhere.then_some(FilterReason::GroupElsewhere),
            there.then_some(FilterReason::GroupThere),
            kept.then_some(FilterReason::Maintenance),
        ]
        .into_iter()
        .flatten()
        .chain((!held).then(|| self.binding.lasting_reasons(cluster)).into_iter().flatten())
    }

    fn is_served(&self, cluster: &Cluster) -> bool {
        let (known, answer) = self.last_api.get();
        if known == cluster.serves.address() {
            return answer;
        }
        let answer = cluster.serves.contains(&self.api);
        self.last_api.set((cluster.serves.address(), answer));
        answer
    }

    /// The affinity tier that selects the cluster: 0 for the affinity itself, then the overflow affinities (of
    /// workloads only) in order; `None` if nothing selects it.
    #[must_use]
    pub fn affinity_tier_of(&self, cluster: &Cluster) -> Option<u32> {
        let Some(tiers) = &self.tiers else { return Some(0) };
        let tier = tiers.iter().position(|selector| selector.selects(cluster))?;
        u32::try_from(tier).ok()
    }
}

fn list_tier_selectors(binding: &Binding) -> Option<Vec<Selector<'_>>> {
    if let Some(affinity) = &binding.placement.affinity {
        return Some(vec![Selector::new(affinity)]);
    }
    let AffinityTerm { affinity, overflow, .. } = binding.current_affinity_term()?;
    let overflow = if binding.is_workload { overflow.as_slice() } else { &[] };
    Some(std::iter::once(affinity).chain(overflow).map(Selector::new).collect())
}

fn find_missing_property(by: SpreadBy, cluster: &Cluster) -> Option<&'static str> {
    match by {
        SpreadBy::Provider => cluster.provider.is_empty().then_some("provider"),
        SpreadBy::Region => cluster.region.is_empty().then_some("region"),
        SpreadBy::Zone => cluster.zones.is_empty().then_some("zones"),
        SpreadBy::Cluster | SpreadBy::Label => None,
    }
}

/// The first reason why the binding may not go to the cluster; `None` if it may.
#[must_use]
pub fn find_first_refusal<'b>(binding: &Binding, cluster: &'b Cluster) -> Option<FilterReason<'b>> {
    Filter::new(binding).check(cluster).err()
}

/// An affinity, ready to be asked of many clusters (Karmada's `util.ClusterMatches`).
#[derive(Debug, Clone)]
pub struct Selector<'a> {
    affinity: &'a Affinity,
    names: Lookup<'a, ()>,
    exclude: Lookup<'a, ()>,
}

impl<'a> Selector<'a> {
    /// For the affinity.
    #[must_use]
    pub fn new(affinity: &'a Affinity) -> Self {
        Self { affinity, names: Lookup::names(&affinity.names), exclude: Lookup::names(&affinity.exclude) }
    }

    /// True if the affinity selects the cluster.
    #[must_use]
    pub fn selects(&self, cluster: &Cluster) -> bool {
        let affinity = self.affinity;
        !affinity.invalid
            && !self.exclude.contains(&cluster.name)
            && affinity.labels.iter().all(|label| label.matches(cluster.labels.get(&label.key).map(String::as_str)))
            && affinity.fields.iter().all(|field| field_matches(field, cluster))
            && (self.names.is_empty() || self.names.contains(&cluster.name))
    }
}

/// True if the affinity selects the cluster ([`Selector`]).
#[must_use]
pub fn selects(affinity: &Affinity, cluster: &Cluster) -> bool {
    Selector::new(affinity).selects(cluster)
}

/// Provider and region are compared as labels are; of a cluster's zones one must be listed (`In`), or none (`NotIn`).
fn field_matches(field: &Requirement, cluster: &Cluster) -> bool {
    let text = |text: &str| field.matches(Some(text).filter(|text| !text.is_empty()));
    match field.key.as_str() {
        "provider" => text(&cluster.provider),
        "region" => text(&cluster.region),
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
pub fn fit_error<'a>(clusters: usize, reasons: impl IntoIterator<Item = FilterReason<'a>>) -> String {
    let mut counts: BTreeMap<Cow<'static, str>, usize> = BTreeMap::new();
    for reason in reasons {
        *counts.entry(reason.message()).or_default() += 1;
    }
    let mut sentences: Vec<String> = counts.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    sentences.sort();
    if sentences.is_empty() {
        return format!("0/{clusters} clusters are available: no cluster exists.");
    }
    format!("0/{clusters} clusters are available: {}.", sentences.join(", "))
}
