//! Converts Karmada's API objects into the values that placement decides on (`caldera_core::place`).
//!
//! Converting never fails. What an API server should have refused becomes what Karmada makes of it: an invalid selector
//! matches nothing, an unknown strategy is unsupported, and an amount that can not be parsed counts as zero.

use std::sync::Arc;

use caldera_core::{
    autoscaling::{Autoscaling, ParseAutoscalingError},
    gang::{self, QueueName, Requirement},
    inventory::Capacity,
    maintenance::{Maintenance, ParseMaintenanceError},
    place::{self, general_estimator},
    quantity::Quantity,
    resources::Resources,
};
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration};

use crate::{
    cluster_annotations::list_queue_names,
    karmada::{
        cluster::{AllocatableModeling, Cluster, ClusterStatus, READY, ResourceModel},
        policy::{
            ClusterAffinity, ClusterAffinityTerm, Placement, ReplicaDivisionPreference, ReplicaSchedulingStrategy,
            ReplicaSchedulingType, SpreadConstraint, SpreadField, StaticClusterWeight,
        },
        work::{ResourceBindingSpec, ResourceBindingStatus, TargetCluster},
    },
    names::caldera::{AUTOSCALED_GROUPS, CLUSTER_QUEUES, MAINTENANCE},
    selector::{field_requirement, label_requirements, node_requirement},
    wire::ResourceList,
};

/// A cluster as placement sees it.
#[must_use]
pub fn read_cluster(cluster: &Cluster) -> place::Cluster {
    let status = cluster.status.clone().unwrap_or_default();
    let serves = status
        .api_enablements
        .iter()
        .flat_map(|one| one.resources.iter().map(|resource| (one.group_version.clone(), resource.kind.clone())));
    place::Cluster {
        name: cluster.metadata.name.clone().unwrap_or_default(),
        labels: cluster.metadata.labels.clone().unwrap_or_default().into_iter().collect(),
        provider: cluster.spec.provider.clone().unwrap_or_default(),
        region: cluster.spec.region.clone().unwrap_or_default(),
        zones: cluster.spec.zones.clone(),
        taints: cluster.spec.taints.iter().map(read_taint).collect(),
        deleting: cluster.metadata.deletion_timestamp.is_some(),
        maintenance: read_maintenance(cluster).unwrap_or_default(),
        autoscaling: read_autoscaling(cluster).unwrap_or_default(),
        queues: read_queues(cluster),
        ready: status.conditions.iter().any(|condition| condition.type_ == READY && condition.status == "True"),
        serves: serves.collect(),
        bandwidths: Arc::default(),
        images: Arc::default(),
        published: read_general_estimator_input(cluster).map(Arc::new),
    }
}

/// When a cluster is under maintenance, as its annotation says: never, where there is none.
///
/// # Errors
/// Why it can not be read. Then the cluster takes jobs as if there were none.
pub fn read_maintenance(cluster: &Cluster) -> Result<Maintenance, ParseMaintenanceError> {
    let said = cluster.metadata.annotations.as_ref().and_then(|all| all.get(MAINTENANCE));
    said.map_or_else(|| Ok(Maintenance::default()), |text| text.parse())
}

/// Which node groups of a cluster may grow, as its annotation says: none, where there is none.
///
/// # Errors
/// Why it can not be read. Then the cluster has the nodes that are there.
pub fn read_autoscaling(cluster: &Cluster) -> Result<Autoscaling, ParseAutoscalingError> {
    let said = cluster.metadata.annotations.as_ref().and_then(|all| all.get(AUTOSCALED_GROUPS));
    said.map_or_else(|| Ok(Autoscaling::default()), |text| text.parse())
}

/// Of which queues alone a cluster takes jobs; of all where it names none.
fn read_queues(cluster: &Cluster) -> Option<Vec<QueueName>> {
    let said = cluster.metadata.annotations.as_ref()?.get(CLUSTER_QUEUES)?;
    let queues: Vec<QueueName> = list_queue_names(said).map(QueueName::from).collect();
    (!queues.is_empty()).then_some(queues)
}

/// What Karmada's resource summary says is free; nothing where there is none yet.
#[must_use]
pub fn read_summary_capacity(status: Option<&ClusterStatus>) -> Capacity {
    match status.and_then(|status| status.resource_summary.as_ref()) {
        Some(summary) => Capacity::from_summary(
            &read_resource_list(&summary.allocatable),
            &read_resource_list(&summary.allocated),
            &read_resource_list(&summary.allocating),
        ),
        None => Capacity::default(),
    }
}

/// What the cluster says of its capacity, for Karmada's estimates; `None` where it says nothing yet.
#[must_use]
pub fn read_general_estimator_input(cluster: &Cluster) -> Option<general_estimator::ClusterSummary> {
    let summary = cluster.status.as_ref()?.resource_summary.as_ref()?;
    let models = &cluster.spec.resource_models;
    let grade = |counted: &AllocatableModeling| general_estimator::Grade {
        count: counted.count,
        least: models.iter().find(|model| model.grade == counted.grade).map(lower_ends),
    };
    let counts: &[_] = if models.is_empty() { &[] } else { &summary.allocatable_modelings };
    Some(general_estimator::ClusterSummary {
        allocatable: read_resource_list(&summary.allocatable),
        allocated: read_resource_list(&summary.allocated),
        allocating: read_resource_list(&summary.allocating),
        grades: counts.iter().map(grade).collect(),
    })
}

fn lower_ends(model: &ResourceModel) -> Resources {
    let ends = model.ranges.iter().map(|range| (range.name.as_str(), range.min.0.parse().unwrap_or(Quantity::ZERO)));
    ends.collect()
}

/// A binding as placement sees it.
#[must_use]
pub fn read_binding(spec: &ResourceBindingSpec, status: Option<&ResourceBindingStatus>) -> place::Binding {
    let last = status.and_then(|status| status.last_scheduled_time.as_ref());
    let replicas = i64::from(spec.replicas.unwrap_or(0));
    let divisible = replicas > 0 || spec.replica_requirements.is_some();
    let previous = |target: &TargetCluster| place::Target {
        cluster: target.name.clone(),
        replicas: i64::from(target.replicas.unwrap_or(0)),
    };
    place::Binding {
        uid: spec.resource.uid.clone().unwrap_or_default(),
        api_version: spec.resource.api_version.clone(),
        kind: spec.resource.kind.clone(),
        replicas,
        is_workload: divisible || !spec.components.is_empty(),
        divisible,
        components: spec.components.len(),
        previous: spec.clusters.iter().map(previous).collect(),
        evicting: spec.graceful_eviction_tasks.iter().map(|task| task.from_cluster.clone()).collect(),
        placement: spec.placement.as_ref().map(read_placement).unwrap_or_default(),
        observed_affinity: status.and_then(|s| s.scheduler_observing_affinity_name.clone()).unwrap_or_default(),
        fresh: matches!((&spec.reschedule_triggered_at, last), (Some(asked), Some(last)) if asked.0 > last.0),
        // These depend on other objects, and the caller fills them in.
        peers: place::Peers::default(),
        data: None,
        queue: None,
        choice: None,
        images: None,
        ranking: place::score::Ranking::default(),
        empty_workloads: false,
    }
}

/// The workload affinity groups that a binding is in.
#[must_use]
pub fn read_affinity_groups(spec: &ResourceBindingSpec) -> Vec<place::AffinityGroup> {
    let named = spec.workload_affinity_groups.clone().unwrap_or_default();
    let some = |name: Option<String>| name.filter(|name| !name.is_empty());
    let together = some(named.affinity_group).map(place::AffinityGroup::Together);
    together.into_iter().chain(some(named.anti_affinity_group).map(place::AffinityGroup::Apart)).collect()
}

/// A gang of one task from `spec.replicaRequirements`, for kinds whose template is not read.
#[must_use]
pub fn read_replica_gang(spec: &ResourceBindingSpec) -> gang::Gang {
    let requirements = spec.replica_requirements.clone().unwrap_or_default();
    let claim = requirements.node_claim.unwrap_or_default();
    let terms = claim.hard_node_affinity.into_iter().flat_map(|affinity| affinity.node_selector_terms);
    let term = |term: NodeSelectorTerm| {
        let read = |list: Option<Vec<NodeSelectorRequirement>>| {
            list.into_iter().flatten().map(|one| node_requirement(&one)).collect::<Option<Vec<_>>>()
        };
        // A term that can not be parsed counts as an empty one, which matches no node.
        match (read(term.match_expressions), read(term.match_fields)) {
            (Some(labels), Some(fields)) => gang::NodeTerm { labels, fields },
            _ => gang::NodeTerm::default(),
        }
    };
    let mut request = read_resource_list(&requirements.resource_request);
    request.set("pods", Quantity::from_units(1));
    let replicas = u32::try_from(spec.replicas.unwrap_or(0)).unwrap_or(0);
    let task = gang::Task {
        name: gang::SOLE_TASK.into(),
        replicas,
        min_available: replicas,
        request,
        node: gang::NodeClaim {
            selector: claim.node_selector,
            affinity: terms.map(term).collect(),
            tolerations: claim.tolerations.iter().map(read_toleration).collect(),
            // A binding does not say how many pods fit on a node, nor which they prefer.
            most_per_node: None,
            numa: None,
            preferred: Vec::new(),
            cards: Vec::new(),
        },
        priority_class: requirements.priority_class_name.unwrap_or_default(),
        partition: None,
    };
    gang::Gang::new(vec![task], replicas)
}

/// `spec.placement`.
#[must_use]
pub fn read_placement(placement: &Placement) -> place::Placement {
    let term = |term: &ClusterAffinityTerm| place::AffinityTerm {
        name: term.affinity_name.clone(),
        affinity: read_affinity(&term.affinity),
        overflow: term.overflow_affinities.iter().map(|overflow| read_affinity(&overflow.affinity)).collect(),
    };
    place::Placement {
        affinity: placement.cluster_affinity.as_ref().map(read_affinity),
        affinities: placement.cluster_affinities.iter().map(term).collect(),
        tolerations: placement.cluster_tolerations.iter().map(read_toleration).collect(),
        spread: placement.spread_constraints.iter().map(read_spread).collect(),
        division: placement.replica_scheduling.as_ref().map(read_division),
    }
}

fn read_spread(constraint: &SpreadConstraint) -> place::Spread {
    let by = match &constraint.spread_by_field {
        Some(SpreadField::Cluster) => place::SpreadBy::Cluster,
        Some(SpreadField::Region) => place::SpreadBy::Region,
        Some(SpreadField::Zone) => place::SpreadBy::Zone,
        Some(SpreadField::Provider) => place::SpreadBy::Provider,
        Some(SpreadField::Other(_)) | None => place::SpreadBy::Label,
    };
    place::Spread { by, max: constraint.max_groups.unwrap_or(0), min: constraint.min_groups.unwrap_or(0) }
}

fn read_division(strategy: &ReplicaSchedulingStrategy) -> place::Division {
    // The API's default is Divided.
    if strategy.replica_scheduling_type == Some(ReplicaSchedulingType::Duplicated) {
        return place::Division::Duplicated;
    }
    let preference = strategy.weight_preference.as_ref();
    match &strategy.replica_division_preference {
        Some(ReplicaDivisionPreference::Aggregated) => place::Division::Aggregated,
        Some(ReplicaDivisionPreference::Weighted)
            if preference.is_some_and(|preference| preference.dynamic_weight.is_some()) =>
        {
            place::Division::DynamicWeight
        }
        Some(ReplicaDivisionPreference::Weighted) => place::Division::StaticWeight {
            rules: preference
                .map(|preference| &preference.static_weight_list)
                .into_iter()
                .flatten()
                .map(read_weight_rule)
                .collect(),
            preference: preference.is_some(),
        },
        Some(ReplicaDivisionPreference::Other(_)) | None => place::Division::Unsupported,
    }
}

fn read_weight_rule(rule: &StaticClusterWeight) -> place::WeightRule {
    place::WeightRule { clusters: read_affinity(&rule.target_cluster), weight: rule.weight }
}

fn read_affinity(affinity: &ClusterAffinity) -> place::Affinity {
    let labels = affinity.label_selector.as_ref().map_or(Some(Vec::new()), label_requirements);
    let fields = affinity.field_selector.iter().flat_map(|selector| &selector.match_expressions);
    let fields: Option<Vec<Requirement>> = fields.map(field_requirement).collect();
    place::Affinity {
        invalid: labels.is_none() || fields.is_none(),
        labels: labels.unwrap_or_default(),
        fields: fields.unwrap_or_default(),
        names: affinity.cluster_names.clone(),
        exclude: affinity.exclude.clone(),
    }
}

/// A taint of a node or a cluster.
#[must_use]
pub fn read_taint(taint: &Taint) -> gang::Taint {
    gang::Taint { key: taint.key.clone(), value: taint.value.clone().unwrap_or_default(), effect: taint.effect.clone() }
}

/// A toleration. One with an unknown operator tolerates nothing.
#[must_use]
pub fn read_toleration(toleration: &Toleration) -> gang::Toleration {
    let operator = toleration.operator.as_deref().unwrap_or_default();
    let mut effect = toleration.effect.clone().unwrap_or_default();
    if !matches!(operator, "" | "Equal" | "Exists") {
        // No taint has this effect.
        effect = format!("operator {operator}");
    }
    gang::Toleration {
        key: toleration.key.clone().unwrap_or_default(),
        exists: operator == "Exists",
        value: toleration.value.clone().unwrap_or_default(),
        effect,
    }
}

/// Exact amounts. An amount that can not be parsed counts as zero.
#[must_use]
pub fn read_resource_list(list: &ResourceList) -> Resources {
    list.iter().map(|(name, amount)| (name.as_str(), amount.0.parse().unwrap_or(Quantity::ZERO))).collect()
}
