//! Whether a binding is scheduled now, and where to.
//!
//! Rule: Karmada `pkg/scheduler/{scheduler,helper,event_handler}.go`, `core/generic_scheduler.go`.

use caldera_core::place::{
    self, Target,
    filter::{Filter, fit_error},
    replica_division::{self, DivideError},
    spread_constraints::{ScoredCluster, is_duplicated, select_clusters},
};
use caldera_crds::karmada::{
    cluster::Cluster,
    work::{ResourceBindingSpec, ResourceBindingStatus},
};
use serde_json::{Value, json};

use super::estimate::Demand;
use crate::karmada::{
    control::Gates,
    names,
    object::{ObjectExt, Shared},
};

const NAME: &str = "default-scheduler";
/// What is free for something without replicas (`calAvailableReplicas` of `core/util.go`).
const UNLIMITED: i64 = i32::MAX as i64;

/// Whether the scheduler looks at a binding at all.
#[must_use]
pub fn is_scheduled_here(binding: &Value) -> bool {
    let claimed = [names::POLICY_ID, names::CLUSTER_POLICY_ID, names::BINDING_MANAGED_BY];
    let has = |label: &&str| binding.pointer("/metadata/labels").and_then(|labels| labels.get(*label)).is_some();
    follows_clusters(binding) && claimed.iter().any(has)
}

/// Whether a change of a cluster makes the scheduler look at a binding: also one that no policy claims any more
/// (`enqueueAffectedBindings`).
#[must_use]
pub fn follows_clusters(binding: &Value) -> bool {
    matches!(binding.text("/spec/schedulerName"), "" | NAME) && !binding.flag("/spec/suspension/scheduling")
}

/// What to do about a binding that the scheduler was told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Schedule it.
    Schedule,
    /// Only note its generation.
    Observe,
    /// Nothing.
    Nothing,
}

/// Karmada's `doScheduleBinding`, in its order.
#[must_use]
pub fn next_step(binding: &Value, gates: Gates, leaving: impl Fn(&str) -> bool) -> Step {
    let replicas = binding.number("/spec/replicas");
    let workload = replicas > 0
        || binding.present("/spec/replicaRequirements").is_some()
        || !binding.items("/spec/components").is_empty();
    let scheduling = binding.present("/spec/placement/replicaScheduling");
    let kind = scheduling.map_or("Duplicated", |one| match one.text("/replicaSchedulingType") {
        "" => "Duplicated",
        kind => kind,
    });
    if placement_changed(binding)
        || replicas_changed(binding, scheduling.is_some(), kind, gates)
        || reschedule_required(binding)
        || !workload
        || kind == "Duplicated"
        || binding.items("/spec/clusters").iter().any(|one| leaving(one.text("/name")))
    {
        return Step::Schedule;
    }
    if binding.number("/status/schedulerObservedGeneration") == binding.generation() {
        Step::Nothing
    } else {
        Step::Observe
    }
}

fn placement_changed(binding: &Value) -> bool {
    let applied = binding.annotation(names::APPLIED_PLACEMENT);
    if applied.is_empty() {
        return true;
    }
    let Ok(applied) = serde_json::from_str::<Value>(applied) else { return false };
    let placement = &binding["spec"]["placement"];
    let differs = |field: &str| applied.present(field) != placement.present(field);
    if differs("/clusterAffinity")
        || differs("/clusterTolerations")
        || differs("/spreadConstraints")
        || differs("/replicaScheduling")
    {
        return true;
    }
    let observed = binding.text("/status/schedulerObservingAffinityName");
    let term = |placement: &Value| {
        placement.items("/clusterAffinities").iter().find(|term| term.text("/affinityName") == observed).cloned()
    };
    let has_terms = !placement.items("/clusterAffinities").is_empty();
    has_terms && (observed.is_empty() || term(&applied) != term(placement))
        || has_terms == applied.items("/clusterAffinities").is_empty()
}

fn replicas_changed(binding: &Value, has_strategy: bool, kind: &str, gates: Gates) -> bool {
    if !has_strategy {
        return false;
    }
    let (clusters, replicas) = (binding.items("/spec/clusters"), binding.number("/spec/replicas"));
    if gates.multiple_templates && !binding.items("/spec/components").is_empty() && clusters.is_empty() {
        return true;
    }
    if kind == "Duplicated" {
        return clusters.iter().any(|one| one.number("/replicas") != replicas);
    }
    clusters.iter().map(|one| one.number("/replicas")).sum::<i64>() != replicas
}

fn reschedule_required(binding: &Value) -> bool {
    let (triggered, last) = (binding.text("/spec/rescheduleTriggeredAt"), binding.text("/status/lastScheduledTime"));
    let parsed = |text: &str| text.parse::<jiff::Timestamp>().ok();
    matches!((parsed(triggered), parsed(last)), (Some(triggered), Some(last)) if triggered > last)
}

/// Where a binding goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// `spec.clusters`.
    pub targets: Vec<Target>,
    /// The affinity term used, with `clusterAffinities`.
    pub affinity: Option<String>,
}

/// Why it goes nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotPlaced {
    /// No cluster passes the filters: what it has is taken away.
    NoClusterFit(String),
    /// Not enough room.
    Unschedulable(String),
    /// Anything else.
    Failed(String),
}

impl NotPlaced {
    /// For people.
    #[must_use]
    pub fn message(&self) -> &str {
        match self {
            Self::NoClusterFit(message) | Self::Unschedulable(message) | Self::Failed(message) => message,
        }
    }

    /// The reason of the condition.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoClusterFit(_) => "NoClusterFit",
            Self::Unschedulable(_) => "Unschedulable",
            Self::Failed(_) => "SchedulerError",
        }
    }
}

/// A binding with what placement needs of it.
///
/// # Errors
/// When its spec is not one.
pub fn read_binding(binding: &Value) -> Result<place::Binding, NotPlaced> {
    let failed = |error: serde_json::Error| NotPlaced::Failed(format!("the binding can not be read: {error}"));
    let spec: ResourceBindingSpec = serde_json::from_value(binding["spec"].clone()).map_err(failed)?;
    let status: Option<ResourceBindingStatus> =
        binding.present("/status").map(|status| serde_json::from_value(status.clone())).transpose().map_err(failed)?;
    Ok(caldera_crds::placement::read_binding(&spec, status.as_ref()))
}

/// Where the others of a binding's affinity groups are, among the bindings of its namespace.
#[must_use]
pub fn find_peers(binding: &Value, all: &[Shared]) -> place::Peers {
    let groups_of = |one: &Value| {
        let spec: Option<ResourceBindingSpec> = serde_json::from_value(one["spec"].clone()).ok();
        spec.map(|spec| caldera_crds::placement::read_affinity_groups(&spec)).unwrap_or_default()
    };
    let mut groups = place::Groups::default();
    for one in all {
        groups.insert(one.namespace(), &groups_of(one), &one.name().to_owned());
    }
    groups.find_peers(binding.namespace(), &groups_of(binding), &binding.name().to_owned(), |name| {
        let other = all.iter().find(|one| one.name() == name);
        let clusters = other.map(|other| other.items("/spec/clusters")).unwrap_or_default();
        clusters.iter().map(|cluster| cluster.text("/name").to_owned()).collect()
    })
}

/// Clusters as placement sees them; what cannot be read is left out.
#[must_use]
pub fn read_clusters(clusters: &[Shared]) -> Vec<(place::Cluster, Shared)> {
    clusters
        .iter()
        .filter_map(|value| {
            let cluster: Cluster = serde_json::from_value(Value::clone(value)).ok()?;
            Some((caldera_crds::placement::read_cluster(&cluster), value.clone()))
        })
        .collect()
}

/// What a binding asks of one cluster. Components are looked for as whole sets only where they may go to one cluster
/// alone (gate `MultiplePodTemplatesScheduling`); else every cluster gets all of them, with no look at its room.
#[must_use]
pub fn demand_of_binding(binding: &Value, gates: Gates) -> Demand<'_> {
    let components = binding.items("/spec/components");
    let one = |spread: &Value| {
        spread.text("/spreadByField") == "cluster"
            && spread.number("/minGroups") == 1
            && spread.number("/maxGroups") == 1
    };
    let alone = binding.items("/spec/placement/spreadConstraints").iter().any(one);
    if gates.multiple_templates && alone && !components.is_empty() {
        return Demand::Sets(components);
    }
    Demand::Replicas(binding.present("/spec/replicaRequirements"))
}

/// Where the binding goes. With several affinity terms the first that works from the observed one on; the first
/// failure counts.
///
/// # Errors
/// With Karmada's words.
pub fn schedule_binding(
    binding: &place::Binding,
    demand: Demand<'_>,
    clusters: &[(place::Cluster, Shared)],
) -> Result<Placed, NotPlaced> {
    let terms = &binding.placement.affinities;
    if binding.placement.affinity.is_some() || terms.is_empty() {
        return schedule_by_affinity(binding, demand, clusters).map(|targets| Placed { targets, affinity: None });
    }
    let observed = terms.iter().position(|term| term.name == binding.observed_affinity);
    let start = if binding.fresh { 0 } else { observed.unwrap_or(0) };
    let mut first = None;
    for term in terms.iter().skip(start) {
        let binding = place::Binding { observed_affinity: term.name.clone(), ..binding.clone() };
        match schedule_by_affinity(&binding, demand, clusters) {
            Ok(targets) => return Ok(Placed { targets, affinity: Some(term.name.clone()) }),
            Err(error) => {
                first.get_or_insert(error);
            }
        }
    }
    Err(first.unwrap_or_else(|| NotPlaced::Failed("no affinity term to try".to_owned())))
}

/// What is not divided goes to the selected clusters in their order: who has most, then by name (`AssignReplicas` of
/// `core/common.go`).
fn schedule_by_affinity(
    binding: &place::Binding,
    demand: Demand<'_>,
    clusters: &[(place::Cluster, Shared)],
) -> Result<Vec<Target>, NotPlaced> {
    let filter = Filter::new(binding);
    let nothing_asked = binding.replicas == 0 && binding.components == 0;
    let mut reasons = Vec::new();
    let mut candidates = Vec::new();
    for (cluster, value) in clusters.iter().filter(|(cluster, _)| !cluster.deleting) {
        let passed = match filter.check(cluster) {
            Ok(passed) => passed,
            Err(reason) => {
                reasons.push(reason);
                continue;
            }
        };
        let allocatable = if nothing_asked { UNLIMITED } else { demand.estimate_cluster(value) };
        candidates.push(ScoredCluster {
            cluster,
            score: if passed.held.is_some() { 100 } else { 0 },
            tier: passed.tier,
            allocatable,
            available: allocatable + passed.held.unwrap_or(0),
        });
    }
    if candidates.is_empty() {
        return Err(NotPlaced::NoClusterFit(fit_error(clusters.len(), reasons)));
    }
    // Of components one set is looked for, and what has no replicas is not divided.
    let wanted = match demand {
        Demand::Sets(_) => place::Binding { replicas: 1, ..binding.clone() },
        Demand::Replicas(_) => binding.clone(),
    };
    let selected = select_clusters(&wanted, candidates)
        .map_err(|why| NotPlaced::Failed(format!("failed to select clusters: {why}")))?;
    let assigned = replica_division::assign_replicas(binding, &selected, false);
    let mut targets = assigned.map_err(|error| match error {
        DivideError::Unschedulable(why) => NotPlaced::Unschedulable(format!("failed to assign replicas: {why}")),
        DivideError::Other(why) => NotPlaced::Failed(format!("failed to assign replicas: {why}")),
    })?;
    if !binding.divisible || is_duplicated(binding.placement.division.as_ref()) {
        let place = |target: &Target| selected.iter().position(|one| one.cluster.name == target.cluster);
        targets.sort_by_key(place);
    }
    Ok(targets)
}

/// `spec.clusters` as it is written: no `replicas` where there are none, and what one set of several components is.
#[must_use]
pub fn clusters_value(targets: &[Target], demand: Demand<'_>) -> Vec<Value> {
    let copy = |one: &Value| json!({"name": one["name"], "replicas": one["replicas"]});
    let components: Vec<Value> = match demand {
        Demand::Sets(components) if components.len() > 1 => components.iter().map(copy).collect(),
        _ => Vec::new(),
    };
    targets
        .iter()
        .map(|target| {
            let mut value = json!({"name": target.cluster});
            if target.replicas != 0 {
                value["replicas"] = json!(target.replicas);
            }
            if !components.is_empty() {
                value["components"] = json!(components);
            }
            value
        })
        .collect()
}

/// Merge patch of the binding; `None` when nothing changes.
#[must_use]
pub fn placement_patch(binding: &Value, clusters: Option<&[Value]>) -> Option<Value> {
    let placement = binding["spec"]["placement"].to_string();
    let mut patch = json!({});
    if binding.annotation(names::APPLIED_PLACEMENT) != placement {
        patch.put(&["metadata", "annotations", names::APPLIED_PLACEMENT], json!(placement));
    }
    let current = binding.items("/spec/clusters");
    match clusters.filter(|clusters| !clusters.is_empty()) {
        Some(clusters) if clusters != current => patch.put(&["spec", "clusters"], json!(clusters)),
        None if !current.is_empty() => patch.put(&["spec", "clusters"], Value::Null),
        _ => {}
    }
    patch.as_object().is_some_and(|patch| !patch.is_empty()).then_some(patch)
}

/// What a success says: `{m1:2, m2:1}`.
#[must_use]
pub fn result_text(targets: &[Target]) -> String {
    let all: Vec<String> = targets.iter().map(|target| format!("{}:{}", target.cluster, target.replicas)).collect();
    format!("{{{}}}", all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding() -> Value {
        json!({"metadata": {"generation": 2, "labels": {"propagationpolicy.karmada.io/permanent-id": "p"},
                "annotations": {"policy.karmada.io/applied-placement": "{\"replicaScheduling\":{\"replicaSchedulingType\":\"Divided\"}}"}},
            "spec": {"replicas": 3, "clusters": [{"name": "m1", "replicas": 3}],
                "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}}},
            "status": {"schedulerObservedGeneration": 1}})
    }

    #[test]
    fn a_suspended_or_foreign_binding_is_not_looked_at() {
        assert!(is_scheduled_here(&binding()));
        let mut suspended = binding();
        suspended.put(&["spec", "suspension"], json!({"scheduling": true}));
        assert!(!is_scheduled_here(&suspended));
        let mut foreign = binding();
        foreign.put(&["spec", "schedulerName"], json!("caldera"));
        assert!(!is_scheduled_here(&foreign));
        let mut attached = binding();
        attached.remove_labels(&["propagationpolicy.karmada.io/permanent-id"]);
        assert!(!is_scheduled_here(&attached));
    }

    #[test]
    fn what_fits_is_only_noted_and_what_changed_is_scheduled() {
        let step = |binding: &Value, leaving: fn(&str) -> bool| next_step(binding, Gates::default(), leaving);
        assert_eq!(step(&binding(), |_| false), Step::Observe);
        assert_eq!(step(&binding(), |name| name == "m1"), Step::Schedule);
        let mut scaled = binding();
        scaled.put(&["spec", "replicas"], json!(4));
        assert_eq!(step(&scaled, |_| false), Step::Schedule);
        let mut edited = binding();
        edited.put(&["spec", "placement", "clusterAffinity"], json!({"clusterNames": ["m2"]}));
        assert_eq!(step(&edited, |_| false), Step::Schedule);
    }

    #[test]
    fn components_are_looked_for_as_a_set_where_they_may_go_to_one_cluster_alone() {
        let components = json!([{"name": "a", "replicas": 1}, {"name": "b", "replicas": 2, "replicaRequirements": {}}]);
        let mut binding = json!({"spec": {"components": components}});
        let on = Gates { multiple_templates: true, ..Gates::default() };
        let targets = [Target { cluster: "m1".into(), replicas: 0 }];
        assert_eq!(clusters_value(&targets, demand_of_binding(&binding, on)), [json!({"name": "m1"})]);
        let one = json!([{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]);
        binding.put(&["spec", "placement", "spreadConstraints"], one);
        let written = json!({"name": "m1", "components": [{"name": "a", "replicas": 1}, {"name": "b", "replicas": 2}]});
        assert_eq!(clusters_value(&targets, demand_of_binding(&binding, on)), [written]);
        assert_eq!(clusters_value(&targets, demand_of_binding(&binding, Gates::default())), [json!({"name": "m1"})]);
    }

    #[test]
    fn peers_are_the_others_of_its_groups_where_they_are() {
        let one = |name: &str, groups: Value, clusters: Value| -> Shared {
            std::sync::Arc::new(json!({"metadata": {"namespace": "ns", "name": name}, "spec": {
                "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "workloadAffinityGroups": groups, "clusters": clusters}}))
        };
        let (with, apart) = (json!({"affinityGroup": "team=a"}), json!({"antiAffinityGroup": "team=a"}));
        let all = [
            one("first", with.clone(), json!([{"name": "m1"}])),
            one("second", with, Value::Null),
            one("third", apart.clone(), json!([{"name": "m2"}])),
        ];
        assert_eq!(find_peers(&all[1], &all).together, Some(["m1".to_owned()].into()));
        assert!(find_peers(&all[0], &all).is_empty());
        let fourth = one("fourth", apart, Value::Null);
        assert_eq!(find_peers(&fourth, &all).apart, ["m2".to_owned()].into());
    }
}
