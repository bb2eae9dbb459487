//! Which workloads a PropagationPolicy or ClusterPropagationPolicy of Karmada selects.
//!
//! Rule (Karmada `pkg/util/selector.go`, `ResourceSelectorPriority`): a selector names a version and a kind. Where it
//! has a namespace, that is the object's. Where it has a name, that decides; else its labels do; without both it takes
//! all. Labels that Kubernetes would not take select nothing. A PropagationPolicy selects in its own namespace alone,
//! and one that is being deleted selects nothing new.
//!
//! Any tenant writes policies, and a list of values takes many times its text in memory. So of a policy no more is kept
//! than [`MOST_REQUIREMENTS`], [`MOST_VALUES`] and [`MOST_BYTES`] allow, and it is measured before it is copied. One
//! that has more is taken to select all: who asks learns nothing wrong of it.

use std::{mem::size_of, sync::Arc};

use caldera_core::gang::Requirement;
use serde_json::Value;

use crate::{
    object::{name_of, read_list_at, read_text_at},
    selector::label_selector,
    workload::WorkloadKind,
};

/// Labels that a policy's selectors ask for, all together.
const MOST_REQUIREMENTS: usize = 64;
/// Values that these may have.
const MOST_VALUES: usize = 256;
/// Memory that a policy's selectors take, all together.
const MOST_BYTES: usize = 32 << 10;

/// What a policy selects of the kinds that can be queued. A copy shares it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicySelection {
    selectors: Selectors,
    extent: Extent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Selectors {
    /// Any workload: there is more than is kept.
    All,
    These(Arc<[WorkloadSelector]>),
}

impl Default for Selectors {
    fn default() -> Self {
        Self::These(Arc::default())
    }
}

impl PolicySelection {
    /// Of a policy of which nothing is kept: taken to select all.
    pub const ALL: Self = Self { selectors: Selectors::All, extent: Extent::NONE };

    /// Of a PropagationPolicy or ClusterPropagationPolicy.
    #[must_use]
    pub fn of_policy(policy: &Value) -> Self {
        if policy.pointer("/metadata/deletionTimestamp").is_some() {
            return Self::default();
        }
        let (mut extent, mut selectors) = (Extent::NONE, Vec::new());
        for selector in read_list_at(policy, "/spec/resourceSelectors") {
            let Some(kind) = read_kind(selector) else { continue };
            extent.add_selector(selector);
            if extent.is_too_large() {
                return Self::ALL;
            }
            selectors.push(read_selector(kind, selector));
        }
        Self { selectors: Selectors::These(selectors.into()), extent }
    }

    /// Whether it selects this object.
    #[must_use]
    pub fn selects(&self, object: &Value) -> bool {
        match &self.selectors {
            Selectors::All => true,
            Selectors::These(these) => these.iter().any(|selector| selector.selects(object)),
        }
    }

    /// Whether it selects nothing that can be queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(&self.selectors, Selectors::These(these) if these.is_empty())
    }

    /// How much is looked at to tell what it selects: selectors, labels and values.
    #[must_use]
    pub const fn count_parts(&self) -> usize {
        self.extent.selectors + self.extent.requirements + self.extent.values
    }

    /// About what it takes of memory.
    #[must_use]
    pub const fn count_bytes(&self) -> usize {
        self.extent.count_bytes()
    }
}

/// How much there is of a policy's selectors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Extent {
    selectors: usize,
    requirements: usize,
    values: usize,
    /// Bytes of all texts.
    text: usize,
}

impl Extent {
    const NONE: Self = Self { selectors: 0, requirements: 0, values: 0, text: 0 };

    /// Copies nothing.
    fn add_selector(&mut self, selector: &Value) {
        self.selectors += 1;
        let name = read_text_at(selector, "/name");
        self.text += name.len() + read_text_at(selector, "/namespace").len();
        if !name.is_empty() {
            return;
        }
        let length = |value: &Value| value.as_str().map_or(0, str::len);
        let labels = selector.pointer("/labelSelector/matchLabels").and_then(Value::as_object);
        for (key, value) in labels.into_iter().flatten() {
            self.requirements += 1;
            self.values += 1;
            self.text += key.len() + length(value);
        }
        for expression in read_list_at(selector, "/labelSelector/matchExpressions") {
            let values = read_list_at(expression, "/values");
            self.requirements += 1;
            self.values += values.len();
            self.text += read_text_at(expression, "/key").len() + values.iter().map(length).sum::<usize>();
        }
    }

    const fn count_bytes(&self) -> usize {
        self.selectors * size_of::<WorkloadSelector>()
            + self.requirements * size_of::<Requirement>()
            + self.values * size_of::<String>()
            + self.text
    }

    const fn is_too_large(&self) -> bool {
        self.requirements > MOST_REQUIREMENTS || self.values > MOST_VALUES || self.count_bytes() > MOST_BYTES
    }
}

/// A selector of a policy, of a kind that can be queued.
#[derive(Debug, Clone, PartialEq, Eq)]
struct WorkloadSelector {
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

fn read_kind(selector: &Value) -> Option<WorkloadKind> {
    WorkloadKind::parse(read_text_at(selector, "/apiVersion"), read_text_at(selector, "/kind"))
}

fn read_selector(kind: WorkloadKind, selector: &Value) -> WorkloadSelector {
    let namespace = Some(read_text_at(selector, "/namespace")).filter(|text| !text.is_empty()).map(str::to_owned);
    let labels = selector.get("labelSelector").filter(|labels| !labels.is_null());
    let objects = match (read_text_at(selector, "/name"), labels) {
        ("", None) => SelectedObjects::All,
        ("", Some(labels)) => label_selector(labels).map_or(SelectedObjects::None, SelectedObjects::Labelled),
        (name, _) => SelectedObjects::Named(name.to_owned()),
    };
    WorkloadSelector { kind, namespace, objects }
}

impl WorkloadSelector {
    fn selects(&self, object: &Value) -> bool {
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
        PolicySelection::of_policy(&policy).selects(&job)
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
        assert_eq!(PolicySelection::of_policy(&policy).count_parts(), 1);
        policy["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert!(PolicySelection::of_policy(&policy).is_empty());
    }

    /// Twenty policies of 1.4 MB each, which took 20 MB each, ended the webhook again and again.
    #[test]
    fn of_a_policy_with_more_than_is_kept_nothing_is_kept_and_it_selects_all() {
        let job = || json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"});
        let read =
            |selectors: Vec<Value>| PolicySelection::of_policy(&json!({"spec": {"resourceSelectors": selectors}}));
        let with = |labels: Value| {
            let mut selector = job();
            selector["labelSelector"] = labels;
            selector
        };
        let among = |values: usize| {
            with(json!({"matchExpressions": [{"key": "team", "operator": "In", "values": vec!["a"; values]}]}))
        };
        let labels = |count: usize| {
            let all: Value = (0..count).map(|at| (format!("l{at}"), json!("v"))).collect();
            with(json!({"matchLabels": all}))
        };
        let named = |bytes: usize| {
            let mut selector = job();
            selector["name"] = "n".repeat(bytes).into();
            selector
        };
        for kept in [vec![among(256)], vec![labels(64)], vec![named(253); 50]] {
            let selection = read(kept);
            assert!(!selection.selects(&job()) && selection.count_bytes() <= MOST_BYTES, "{selection:?}");
        }
        let halves = vec![among(200), among(200)];
        for large in [vec![among(350_000)], vec![labels(65)], vec![named(40_000)], vec![job(); 2_000], halves] {
            let selection = read(large);
            assert!(selection.selects(&job()) && selection == PolicySelection::ALL, "{selection:?}");
            assert_eq!((selection.count_bytes(), selection.count_parts()), (0, 0));
        }
    }
}
