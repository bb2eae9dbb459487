//! Which workloads a PropagationPolicy or ClusterPropagationPolicy of Karmada selects.
//!
//! Rule (Karmada `pkg/util/selector.go`, `ResourceSelectorPriority`): a selector names a version and a kind. Where it
//! has a namespace, that is the object's. Where it has a name, that decides; else its labels do; without both it takes
//! all. Labels that Kubernetes would not take select nothing. A PropagationPolicy selects in its own namespace alone,
//! and one that is being deleted selects nothing new.

use caldera_core::gang::Requirement;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use crate::{
    object::{name_of, read_list_at, read_text_at},
    selector::label_requirements,
    workload::WorkloadKind,
};

/// A selector of a policy, of a kind that can be queued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadSelector {
    kind: WorkloadKind,
    /// Without one, any.
    namespace: Option<String>,
    objects: SelectedObjects,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum SelectedObjects {
    All,
    Named(String),
    /// All of these hold.
    Labelled(Vec<Requirement>),
    None,
}

/// The selectors of a policy for kinds that can be queued.
#[must_use]
pub fn read_workload_selectors(policy: &Value) -> Vec<WorkloadSelector> {
    if policy.pointer("/metadata/deletionTimestamp").is_some() {
        return Vec::new();
    }
    read_list_at(policy, "/spec/resourceSelectors").iter().filter_map(read_selector).collect()
}

fn read_selector(selector: &Value) -> Option<WorkloadSelector> {
    let kind = WorkloadKind::parse(read_text_at(selector, "/apiVersion"), read_text_at(selector, "/kind"))?;
    let namespace = Some(read_text_at(selector, "/namespace")).filter(|text| !text.is_empty()).map(str::to_owned);
    let labels = selector.get("labelSelector").filter(|labels| !labels.is_null());
    let objects = match (read_text_at(selector, "/name"), labels) {
        ("", None) => SelectedObjects::All,
        ("", Some(labels)) => serde_json::from_value::<LabelSelector>(labels.clone())
            .ok()
            .and_then(|labels| label_requirements(&labels))
            .map_or(SelectedObjects::None, SelectedObjects::Labelled),
        (name, _) => SelectedObjects::Named(name.to_owned()),
    };
    Some(WorkloadSelector { kind, namespace, objects })
}

impl WorkloadSelector {
    /// Whether it selects this object.
    #[must_use]
    pub fn selects(&self, object: &Value) -> bool {
        let is_there = |namespace: &String| namespace == read_text_at(object, "/metadata/namespace");
        let label = |key: &str| object.pointer("/metadata/labels")?.get(key)?.as_str();
        WorkloadKind::of_object(object) == Some(self.kind)
            && self.namespace.as_ref().is_none_or(is_there)
            && match &self.objects {
                SelectedObjects::All => true,
                SelectedObjects::Named(name) => name == name_of(object),
                SelectedObjects::Labelled(all) => all.iter().all(|one| one.matches(label(&one.key))),
                SelectedObjects::None => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selects(selector: Value) -> bool {
        let mut whole = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"});
        whole.as_object_mut().unwrap().extend(selector.as_object().unwrap().clone());
        let job = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
            "metadata": {"namespace": "ns", "name": "train", "labels": {"team": "ml"}}});
        let policy = json!({"spec": {"resourceSelectors": [
            {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}, whole,
        ]}});
        read_workload_selectors(&policy).iter().any(|selector| selector.selects(&job))
    }

    #[test]
    fn a_policy_selects_by_kind_namespace_and_name_or_labels_as_karmada_does() {
        assert!(selects(json!({})));
        assert!(!selects(json!({"apiVersion": "batch/v1"})), "a Job of Kubernetes");
        assert!(selects(json!({"namespace": "ns"})) && !selects(json!({"namespace": "other"})));
        assert!(selects(json!({"name": "train"})) && !selects(json!({"name": "other"})));
        let labelled = |value: &str| json!({"labelSelector": {"matchLabels": {"team": value}}});
        assert!(selects(labelled("ml")) && !selects(labelled("bio")));
        let among =
            |operator: &str| json!({"labelSelector": {"matchExpressions": [{"key": "team", "operator": operator}]}});
        assert!(selects(among("Exists")) && !selects(among("DoesNotExist")) && !selects(among("Nonsense")));
        // A name decides, whatever the labels.
        let mut both = labelled("bio");
        both["name"] = "train".into();
        assert!(selects(both));
        assert!(selects(json!({"labelSelector": {}})), "an empty one asks for nothing");
    }

    #[test]
    fn a_policy_that_is_being_deleted_selects_nothing_and_garbage_is_none() {
        let all = json!([{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}, 5, {"kind": 7}]);
        let mut policy = json!({"metadata": {}, "spec": {"resourceSelectors": all}});
        assert_eq!(read_workload_selectors(&policy).len(), 1);
        policy["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert!(read_workload_selectors(&policy).is_empty());
    }
}
