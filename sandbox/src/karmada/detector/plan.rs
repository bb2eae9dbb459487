//! Which policy claims a template, and what its binding says.
//!
//! Rule: Karmada `pkg/detector/{detector,policy,claim,compare}.go`, `pkg/util/selector.go`. On every pass the binding's
//! policy part is written again: a third party keeps `clusters`, `suspension.scheduling`, `requiredBy`, eviction tasks,
//! its labels, annotations and finalizers, and loses `schedulerName`, `schedulePriority`, `placement`, `replicas` and
//! the dispatching part of `suspension`.

use std::cmp::Reverse;

use serde_json::{Map, Value, json};

use crate::karmada::{
    names,
    object::{Gvk, ObjectExt, Shared, selector_matches},
};

/// Which sort of policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// `PropagationPolicy`.
    Namespace,
    /// `ClusterPropagationPolicy`.
    Cluster,
}

impl Scope {
    /// The policy's kind.
    #[must_use]
    pub fn gvk(self) -> Gvk {
        let kind = if self == Self::Namespace { "PropagationPolicy" } else { "ClusterPropagationPolicy" };
        Gvk::new("policy.karmada.io/v1alpha1", kind)
    }

    /// The label that names the claiming policy by id.
    #[must_use]
    pub fn id_label(self) -> &'static str {
        if self == Self::Namespace { names::POLICY_ID } else { names::CLUSTER_POLICY_ID }
    }

    fn claim_annotations(self) -> &'static [&'static str] {
        if self == Self::Namespace {
            &[names::POLICY_NAMESPACE, names::POLICY_NAME]
        } else {
            &[names::CLUSTER_POLICY_NAME]
        }
    }

    /// The finalizer of such a policy.
    #[must_use]
    pub fn finalizer(self) -> &'static str {
        if self == Self::Namespace { names::POLICY_FINALIZER } else { names::CLUSTER_POLICY_FINALIZER }
    }
}

/// How closely selectors name an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Match {
    /// All of a kind.
    All,
    /// By labels.
    Labels,
    /// By name.
    Name,
}

/// How closely the closest selector names the object, `None` if none does.
#[must_use]
pub fn match_selectors(object: &Value, selectors: &[Value]) -> Option<Match> {
    selectors.iter().filter_map(|selector| matches_one(object, selector)).max()
}

fn matches_one(object: &Value, selector: &Value) -> Option<Match> {
    let namespace = selector.text("/namespace");
    if object.text("/apiVersion") != selector.text("/apiVersion")
        || object.text("/kind") != selector.text("/kind")
        || !namespace.is_empty() && object.namespace() != namespace
    {
        return None;
    }
    let name = selector.text("/name");
    if !name.is_empty() {
        return (name == object.name()).then_some(Match::Name);
    }
    match selector.present("/labelSelector") {
        None => Some(Match::All),
        Some(labels) => selector_matches(Some(labels), &object.labels()).then_some(Match::Labels),
    }
}

/// The policy that wins an unclaimed object: explicit priority, then how closely it names the object, then name.
#[must_use]
pub fn choose_policy<'a>(object: &Value, policies: &'a [Shared]) -> Option<&'a Shared> {
    policies
        .iter()
        .filter(|policy| !policy.is_deleting())
        .filter_map(|policy| Some((match_selectors(object, policy.items("/spec/resourceSelectors"))?, policy)))
        .max_by_key(|(how, policy)| (policy.number("/spec/priority"), *how, Reverse(policy.name().to_owned())))
        .map(|(_, policy)| policy)
}

/// Who claims an object, by its own marks.
#[must_use]
pub fn claiming_policy(object: &Value) -> Option<(Scope, String, String)> {
    let annotation = |key: &str| object.annotation(key).to_owned();
    let (namespace, name) = (annotation(names::POLICY_NAMESPACE), annotation(names::POLICY_NAME));
    if !namespace.is_empty() && !name.is_empty() && !object.label(names::POLICY_ID).is_empty() {
        return Some((Scope::Namespace, namespace, name));
    }
    let name = annotation(names::CLUSTER_POLICY_NAME);
    if !name.is_empty() && !object.label(names::CLUSTER_POLICY_ID).is_empty() {
        return Some((Scope::Cluster, String::new(), name));
    }
    None
}

/// Marks an object as the policy's.
pub fn set_claim(object: &mut Value, scope: Scope, policy: &Value) {
    object.set_label(scope.id_label(), policy.label(scope.id_label()));
    if scope == Scope::Namespace {
        object.set_annotation(names::POLICY_NAMESPACE, policy.namespace());
        object.set_annotation(names::POLICY_NAME, policy.name());
        remove_claim(object, Scope::Cluster);
    } else {
        object.set_annotation(names::CLUSTER_POLICY_NAME, policy.name());
    }
}

/// Removes the marks of a sort of policy.
pub fn remove_claim(object: &mut Value, scope: Scope) {
    object.remove_labels(&[scope.id_label()]);
    object.remove_annotations(scope.claim_annotations());
}

/// What the interpreter knows of a template.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Interpreted {
    /// Replicas and what each needs.
    pub replicas: i64,
    /// `replicaRequirements`.
    pub requirements: Option<Value>,
    /// Components, where several templates are scheduled.
    pub components: Vec<Value>,
}

/// The kind of a template's binding.
#[must_use]
pub fn binding_kind(template: &Value) -> Gvk {
    let kind = if template.namespace().is_empty() { "ClusterResourceBinding" } else { "ResourceBinding" };
    Gvk::new("work.karmada.io/v1alpha2", kind)
}

/// A template's binding as the policy wants it; `priority` where the policy names a class that exists.
#[must_use]
pub fn build_binding(
    template: &Value,
    scope: Scope,
    policy: &Value,
    interpreted: &Interpreted,
    priority: Option<i64>,
) -> Value {
    let gvk = binding_kind(template);
    let namespaced = !template.namespace().is_empty();
    let mut spec = Map::new();
    let copied = [
        "propagateDeps",
        "schedulerName",
        "placement",
        "failover",
        "conflictResolution",
        "preserveResourcesOnDeletion",
    ];
    for field in copied {
        let value =
            policy.present(&format!("/spec/{field}")).filter(|value| **value != false || field != "propagateDeps");
        if let Some(value) = value {
            spec.insert(field.to_owned(), value.clone());
        }
    }
    spec.entry("placement").or_insert_with(|| json!({}));
    let mut resource = json!({
        "apiVersion": template.text("/apiVersion"),
        "kind": template.text("/kind"),
        "name": template.name(),
        "uid": template.uid(),
        "resourceVersion": template.resource_version(),
    });
    if namespaced {
        resource.put(&["namespace"], json!(template.namespace()));
    }
    spec.insert("resource".to_owned(), resource);
    if let Some(suspension) = policy.present("/spec/suspension") {
        spec.insert("suspension".to_owned(), suspension.clone());
    }
    if interpreted.replicas != 0 {
        spec.insert("replicas".to_owned(), json!(interpreted.replicas));
    }
    if let Some(requirements) = &interpreted.requirements {
        spec.insert("replicaRequirements".to_owned(), requirements.clone());
    }
    if !interpreted.components.is_empty() {
        spec.insert("components".to_owned(), Value::Array(interpreted.components.clone()));
    }
    if let Some(priority) = priority.filter(|_| namespaced) {
        spec.insert("schedulePriority".to_owned(), json!({"priority": priority}));
    }
    let finalizer = if namespaced { names::BINDING_FINALIZER } else { names::CLUSTER_BINDING_FINALIZER };
    let mut binding = json!({
        "apiVersion": gvk.api_version(),
        "kind": gvk.kind,
        "metadata": {
            "name": names::binding_name(template.text("/kind"), template.name()),
            "finalizers": [finalizer],
            "ownerReferences": [{
                "apiVersion": template.text("/apiVersion"), "kind": template.text("/kind"), "name": template.name(),
                "uid": template.uid(), "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": spec,
    });
    if namespaced {
        binding.put(&["metadata", "namespace"], json!(template.namespace()));
    }
    set_claim(&mut binding, scope, policy);
    binding
}

/// The groups that a template is in by its labels: `key=value` for the keys that the policy names.
#[must_use]
pub fn affinity_groups(template: &Value, policy: &Value) -> Option<Value> {
    let labels = template.labels();
    let group = |term: &str| {
        let key = policy.text(&format!("/spec/placement/workloadAffinity/{term}/groupByLabelKey"));
        labels.get(key).map(|value| json!(format!("{key}={value}")))
    };
    let mut groups = json!({});
    groups.put_or_remove(&["affinityGroup"], group("affinity"));
    groups.put_or_remove(&["antiAffinityGroup"], group("antiAffinity"));
    groups.as_object().is_some_and(|groups| !groups.is_empty()).then_some(groups)
}

/// The binding that exists, with the policy's part written again.
///
/// # Errors
/// When it belongs to another template of the same kind and name.
pub fn merge_binding(existing: &Value, desired: &Value) -> Result<Value, String> {
    let owner = existing.items("/metadata/ownerReferences").iter().find(|owner| owner.flag("/controller"));
    if owner.is_some_and(|owner| owner.text("/uid") != desired.text("/spec/resource/uid")) {
        return Err(
            "failed to update binding due to different owner reference UID, will try again later after binding is \
                    garbage collected, see https://github.com/karmada-io/karmada/issues/2090"
                .to_owned(),
        );
    }
    let mut merged = existing.clone();
    for (key, value) in desired.annotations() {
        merged.set_annotation(&key, &value);
    }
    for (key, value) in desired.labels() {
        merged.set_label(&key, &value);
    }
    for finalizer in desired.items("/metadata/finalizers").iter().filter_map(Value::as_str) {
        merged.add_finalizer(finalizer);
    }
    merged.put(&["metadata", "ownerReferences"], desired["metadata"]["ownerReferences"].clone());
    let namespaced = !desired.namespace().is_empty();
    let mut owned = vec![
        "resource",
        "replicaRequirements",
        "replicas",
        "components",
        "schedulerName",
        "placement",
        "failover",
        "conflictResolution",
        "preserveResourcesOnDeletion",
    ];
    if namespaced {
        owned.extend(["propagateDeps", "schedulePriority", "workloadAffinityGroups"]);
    }
    for field in owned {
        merged.put_or_remove(&["spec", field], desired.present(&format!("/spec/{field}")).cloned());
    }
    let suspension = merge_suspension(existing.present("/spec/suspension"), desired.present("/spec/suspension"));
    merged.put_or_remove(&["spec", "suspension"], suspension);
    if namespaced && !desired.label(names::POLICY_ID).is_empty() {
        remove_claim(&mut merged, Scope::Cluster);
    }
    Ok(merged)
}

/// The policy's dispatching part and the binding's scheduling part; without either, nothing. An explicit
/// `scheduling: false` stays.
fn merge_suspension(existing: Option<&Value>, policy: Option<&Value>) -> Option<Value> {
    let scheduling = existing.and_then(|existing| existing.present("/scheduling"));
    let mut merged = policy.cloned();
    if let Some(scheduling) = scheduling {
        merged.get_or_insert_with(|| json!({})).put(&["scheduling"], scheduling.clone());
    }
    merged
}

/// Whether an update of a template is more than bookkeeping of the API server.
#[must_use]
pub fn is_changed(old: &Value, new: &Value) -> bool {
    let essence = |object: &Value| {
        let mut object = object.clone();
        for field in ["managedFields", "resourceVersion"] {
            object.remove_at(&["metadata", field]);
        }
        object.remove_at(&["status"]);
        object
    };
    essence(old) != essence(new)
}

/// Whether a policy waits, after a change of its own, for its templates to change too (`activationPreference`).
#[must_use]
pub fn is_lazy(policy: &Value) -> bool {
    policy.text("/spec/activationPreference") == "Lazy"
}

/// Whether an update of a template touches only labels and annotations of Karmada's.
#[must_use]
pub fn is_changed_by_karmada(old: &Value, new: &Value) -> bool {
    let of_users = |object: &Value| {
        let mut object = object.clone();
        let labels: Vec<String> = object.labels().into_keys().collect();
        let ours = |key: &&str| key.contains(".karmada.io") && *key != "namespace.karmada.io/skip-auto-propagation";
        object.remove_labels(&labels.iter().map(String::as_str).filter(ours).collect::<Vec<_>>());
        let annotations: Vec<String> = object.annotations().into_keys().collect();
        let ours = |key: &&str| key.contains(".karmada.io");
        object.remove_annotations(&annotations.iter().map(String::as_str).filter(ours).collect::<Vec<_>>());
        object.remove_at(&["metadata", "generation"]);
        object
    };
    !is_changed(&of_users(old), &of_users(new))
}

/// Whether templates of this kind can be propagated at all.
#[must_use]
pub fn is_propagated(gvk: &Gvk) -> bool {
    let skipped = gvk.group.ends_with(".karmada.io")
        || gvk.kind == "Event"
        || matches!(
            gvk.group.as_str(),
            "coordination.k8s.io" | "apiregistration.k8s.io" | "admissionregistration.k8s.io"
        );
    !skipped
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn policy(name: &str, priority: i64, selector: &Value) -> Shared {
        Arc::new(
            json!({"metadata": {"name": name, "namespace": "n", "labels": {"propagationpolicy.karmada.io/permanent-id": "p"}},
            "spec": {"priority": priority, "resourceSelectors": [selector], "schedulerName": "s", "placement": {}}}),
        )
    }

    fn job() -> Value {
        json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"x": "1"}}})
    }

    #[test]
    fn priority_beats_closeness_beats_name() {
        let all = json!({"apiVersion": "batch/v1", "kind": "Job", "namespace": "n"});
        let named = json!({"apiVersion": "batch/v1", "kind": "Job", "namespace": "n", "name": "a"});
        let labels = json!({"apiVersion": "batch/v1", "kind": "Job", "labelSelector": {"matchLabels": {"x": "1"}}});
        let chosen = |policies: &[Shared]| choose_policy(&job(), policies).map(|policy| policy.name().to_owned());
        assert_eq!(chosen(&[policy("b", 0, &all), policy("c", 0, &named)]), Some("c".to_owned()));
        assert_eq!(chosen(&[policy("b", 1, &all), policy("c", 0, &named)]), Some("b".to_owned()));
        assert_eq!(chosen(&[policy("b", 0, &labels), policy("a", 0, &all)]), Some("b".to_owned()));
        assert_eq!(chosen(&[policy("b", 0, &all), policy("a", 0, &all)]), Some("a".to_owned()));
    }

    #[test]
    fn a_claim_is_karmadas_change_and_anything_else_a_users() {
        let mut claimed = job();
        set_claim(&mut claimed, Scope::Namespace, &policy("p", 0, &json!({})));
        claimed.put(&["metadata", "generation"], json!(2));
        assert!(is_changed_by_karmada(&job(), &claimed));
        claimed.set_annotation("touched", "1");
        assert!(!is_changed_by_karmada(&job(), &claimed));
        assert!(is_lazy(&json!({"spec": {"activationPreference": "Lazy"}})));
        assert!(!is_lazy(&policy("p", 0, &json!({}))));
    }

    #[test]
    fn third_party_fields_survive_a_pass_and_the_policys_do_not() {
        let policy = policy("p", 0, &json!({}));
        let desired = build_binding(&job(), Scope::Namespace, &policy, &Interpreted::default(), None);
        let mut existing = desired.clone();
        existing.put(&["spec", "clusters"], json!([{"name": "m1"}]));
        existing.put(&["spec", "suspension"], json!({"scheduling": false, "dispatching": true}));
        existing.put(&["spec", "schedulerName"], json!("mine"));
        existing.put(&["spec", "schedulePriority"], json!({"priority": 7}));
        existing.set_label("third", "party");
        existing.add_finalizer("third/party");
        let merged = merge_binding(&existing, &desired).unwrap();
        assert_eq!(merged["spec"]["clusters"], json!([{"name": "m1"}]));
        assert_eq!(merged["spec"]["suspension"], json!({"scheduling": false}));
        assert_eq!(merged["spec"]["schedulerName"], "s");
        assert!(merged["spec"].get("schedulePriority").is_none());
        assert_eq!(merged.label("third"), "party");
        assert_eq!(merged["metadata"]["finalizers"], json!(["karmada.io/binding-controller", "third/party"]));
    }

    #[test]
    fn a_binding_of_another_template_of_that_name_is_not_touched() {
        let policy = policy("p", 0, &json!({}));
        let desired = build_binding(&job(), Scope::Namespace, &policy, &Interpreted::default(), None);
        let mut other = job();
        other.put(&["metadata", "uid"], json!("v"));
        let theirs = build_binding(&other, Scope::Namespace, &policy, &Interpreted::default(), None);
        assert!(merge_binding(&theirs, &desired).unwrap_err().contains("different owner reference UID"));
    }

    #[test]
    fn a_cluster_wide_binding_is_told_of_dependencies_only_when_it_is_made() {
        let mut template = job();
        template.remove_at(&["metadata", "namespace"]);
        let mut policy = Value::clone(&policy("p", 0, &json!({})));
        let build = |policy: &Value| build_binding(&template, Scope::Cluster, policy, &Interpreted::default(), Some(1));
        let plain = build(&policy);
        policy.put(&["spec", "propagateDeps"], json!(true));
        let made = build(&policy);
        assert_eq!(made["spec"]["propagateDeps"], true);
        assert!(made["spec"].get("schedulePriority").is_none());
        assert_eq!(merge_binding(&plain, &made).unwrap()["spec"].get("propagateDeps"), None);
        assert_eq!(merge_binding(&made, &plain).unwrap()["spec"]["propagateDeps"], true);
    }

    #[test]
    fn a_status_write_is_no_change() {
        let mut new = job();
        new.put(&["status"], json!({"active": 1}));
        new.put(&["metadata", "resourceVersion"], json!("8"));
        assert!(!is_changed(&job(), &new));
        new.set_label("a", "b");
        assert!(is_changed(&job(), &new));
    }

    #[test]
    fn a_template_is_in_the_groups_that_its_labels_name() {
        let mut template = job();
        template.set_label("team", "a");
        let policy = |affinity: Value| json!({"spec": {"placement": {"workloadAffinity": affinity}}});
        let both =
            policy(json!({"affinity": {"groupByLabelKey": "team"}, "antiAffinity": {"groupByLabelKey": "shard"}}));
        assert_eq!(affinity_groups(&template, &both), Some(json!({"affinityGroup": "team=a"})));
        template.set_label("shard", "1");
        let groups = json!({"affinityGroup": "team=a", "antiAffinityGroup": "shard=1"});
        assert_eq!(affinity_groups(&template, &both), Some(groups));
        assert_eq!(affinity_groups(&template, &policy(Value::Null)), None);
    }
}
