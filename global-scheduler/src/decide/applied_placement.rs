//! The placement that a binding is placed by, as its annotation says it, and whether it has changed since.
//!
//! Rule: karmada-scheduler writes `spec.placement` (`patchScheduleResultForResourceBinding`) and schedules again what
//! has another by now (`placementChanged`, `pkg/scheduler/helper.go`). Karmada's taint manager reads the annotation for
//! the taints that a binding tolerates (`needEviction`, `pkg/controllers/cluster/taint_manager.go`), and evicts the
//! part of a lost cluster, which would then run a second time elsewhere. So a gang tolerates the `NoExecute` taints
//! that say that its cluster is lost, for as long as they are there and before what its policy says of them: the
//! controller takes it from lost clusters whole, and knows when it may run again.

use std::borrow::Cow;

use caldera_core::fleet::AWAY;
use caldera_crds::{
    karmada::policy::{ClusterAffinityTerm, Placement},
    workload::WorkloadKind,
};
use k8s_openapi::api::core::v1::Toleration;
use serde_json::{Value, json};

use crate::observe::binding::Binding;

/// What the annotation is to say.
pub(crate) fn describe_applied_placement(binding: &Binding) -> Cow<'_, str> {
    let text = binding.placement.as_deref().unwrap_or_default();
    if !leaves_lost_clusters_whole(binding) {
        return text.into();
    }
    let Ok(mut placement) = serde_json::from_str::<Value>(text) else { return text.into() };
    let own = placement["clusterTolerations"].as_array().cloned().unwrap_or_default();
    placement["clusterTolerations"] = list_loss_tolerations().iter().map(|one| json!(one)).chain(own).collect();
    placement.to_string().into()
}

/// Whether a binding has another placement than its clusters were chosen for. Of several affinity terms only the one in
/// use counts. A record that can not be read counts as unchanged.
pub(super) fn has_placement_changed(binding: &Binding) -> bool {
    let Some(applied) = binding.applied.as_deref().filter(|applied| !applied.is_empty()) else { return true };
    let read = |text| serde_json::from_str::<Placement>(text).ok();
    let (Some(now), Some(then)) = (binding.placement.as_deref().and_then(read), read(applied)) else { return false };
    let find_observed_term = |placement: &Placement| -> Option<ClusterAffinityTerm> {
        let mut terms = placement.cluster_affinities.iter();
        terms.find(|term| term.affinity_name == binding.place.observed_affinity).cloned()
    };
    let same_terms = match (now.cluster_affinities.is_empty(), then.cluster_affinities.is_empty()) {
        (true, true) => true,
        (false, false) => find_observed_term(&now).is_some() && find_observed_term(&now) == find_observed_term(&then),
        _ => false,
    };
    !same_terms
        || now.cluster_affinity != then.cluster_affinity
        || !has_same_tolerations(binding, &now, &then)
        || now.spread_constraints != then.spread_constraints
        || now.replica_scheduling != then.replica_scheduling
}

/// A gang that was placed before gangs tolerated the loss of their clusters stays as it is.
fn has_same_tolerations(binding: &Binding, now: &Placement, then: &Placement) -> bool {
    let with_losses = || list_loss_tolerations().iter().chain(&now.cluster_tolerations).eq(&then.cluster_tolerations);
    now.cluster_tolerations == then.cluster_tolerations || (leaves_lost_clusters_whole(binding) && with_losses())
}

/// One gang, of a kind that runs to its end.
fn leaves_lost_clusters_whole(binding: &Binding) -> bool {
    let kind = WorkloadKind::parse(&binding.api_version, &binding.workload.kind);
    kind.is_some_and(WorkloadKind::runs_to_its_end)
        && binding.admission.as_ref().is_some_and(|record| record.copies <= 1)
}

fn list_loss_tolerations() -> [Toleration; 2] {
    AWAY.map(|key| Toleration {
        key: Some(key.to_owned()),
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        ..Toleration::default()
    })
}
