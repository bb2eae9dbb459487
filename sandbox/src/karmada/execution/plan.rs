//! What a member's object shall be, and what a Work says about it.
//!
//! Rule: Karmada `pkg/controllers/execution/execution_controller.go`, `pkg/util/objectwatcher/objectwatcher.go`,
//! `pkg/util/{labels,annotation}.go`: an object that is not Karmada's is refused unless the Work says overwrite; what
//! the member's own controllers added stays, except what came from the template before and is gone from it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::karmada::{
    detector::plan::{Scope, remove_claim},
    interpreter::prune::prune_template,
    names,
    object::{ObjectExt, set_condition},
};

/// Whether Karmada may write over an object that is there.
///
/// # Errors
/// With Karmada's words, when the object belongs to somebody else.
pub fn may_update(cluster: &str, desired: &Value, observed: &Value) -> Result<(), String> {
    if is_managed(observed) || desired.annotation(names::CONFLICT_RESOLUTION) == "overwrite" {
        return Ok(());
    }
    Err(format!(
        "resource(kind={}, {}/{}) already exists in the cluster {cluster} and the {} strategy value is empty, Karmada will not manage \
         this resource",
        desired.text("/kind"),
        desired.namespace(),
        desired.name(),
        names::CONFLICT_RESOLUTION
    ))
}

/// Whether an object is Karmada's.
#[must_use]
pub fn is_managed(observed: &Value) -> bool {
    observed.label(names::MANAGED) == "true"
}

/// The desired object with what every member's object keeps.
pub fn keep_members_own(desired: &mut Value, observed: &Value) {
    for field in ["resourceVersion", "finalizers", "ownerReferences"] {
        desired.put_or_remove(&["metadata", field], observed.present(&format!("/metadata/{field}")).cloned());
    }
    let from_template = recorded_keys(observed, names::MANAGED_ANNOTATIONS);
    for (key, value) in observed.annotations() {
        if desired.pointer("/metadata/annotations").and_then(|all| all.get(&key)).is_none()
            && !from_template.contains(&key)
        {
            desired.set_annotation(&key, &value);
        }
    }
    let from_template = recorded_keys(observed, names::MANAGED_LABELS);
    for (key, value) in observed.labels() {
        if desired.pointer("/metadata/labels").and_then(|all| all.get(&key)).is_none() && !from_template.contains(&key)
        {
            desired.set_label(&key, &value);
        }
    }
}

fn recorded_keys(observed: &Value, annotation: &str) -> BTreeSet<String> {
    observed.annotation(annotation).split(',').map(str::to_owned).collect()
}

/// Whether writing the desired object would change nothing.
#[must_use]
pub fn is_up_to_date(desired: &Value, observed: &Value) -> bool {
    let mut there = observed.clone();
    prune_template(&mut there);
    keep_members_own(&mut there, observed);
    there == *desired
}

/// Whether a change in a member is one that the Work must answer: not its own write, not only bookkeeping.
#[must_use]
pub fn has_drifted(old: &Value, new: &Value) -> bool {
    let essence = |object: &Value| {
        let mut object = object.clone();
        prune_template(&mut object);
        object
    };
    essence(old) != essence(new)
}

/// A manifest without Karmada's marks, for an object that stays behind; Karmada forgets the conflict resolution, and
/// the marks of a ClusterPropagationPolicy on what is in a namespace.
pub fn remove_marks(manifest: &mut Value) {
    manifest.remove_labels(&[names::MANAGED, names::BINDING_ID, names::WORK_ID]);
    let scope = if manifest.namespace().is_empty() { Scope::Cluster } else { Scope::Namespace };
    remove_claim(manifest, scope);
    manifest.remove_annotations(&[
        names::MANAGED_ANNOTATIONS,
        names::MANAGED_LABELS,
        names::TEMPLATE_UID,
        names::TEMPLATE_GENERATION,
        names::BINDING_NAMESPACE,
        names::BINDING_NAME,
        names::WORK_NAMESPACE,
        names::WORK_NAME,
    ]);
}

/// Says in a Work's status whether it is dispatched.
pub fn set_dispatching(work: &mut Value, now: &str) {
    let condition = if work.flag("/spec/suspendDispatching") {
        json!({"type": "Dispatching", "status": "False", "reason": "SuspendDispatching",
            "message": "Work dispatching is in a suspended state."})
    } else {
        json!({"type": "Dispatching", "status": "True", "reason": "Dispatching",
            "message": "Work is being dispatched to member clusters."})
    };
    let same = work
        .items("/status/conditions")
        .iter()
        .any(|old| old["type"] == "Dispatching" && old["status"] == condition["status"]);
    if !same {
        set_work_condition(work, condition, now);
    }
}

/// Says in a Work's status whether its manifests were applied, or why not.
pub fn set_applied(work: &mut Value, errors: &[String], total: usize, now: &str) {
    let condition = if errors.is_empty() {
        json!({"type": "Applied", "status": "True", "reason": "AppliedSuccessful",
            "message": "Manifest has been successfully applied"})
    } else {
        let why = if let [only] = errors { only.clone() } else { format!("[{}]", errors.join(", ")) };
        let message = format!("Failed to apply all manifests ({}/{total}): {why}", total - errors.len());
        json!({"type": "Applied", "status": "False", "reason": "AppliedFailed", "message": message})
    };
    set_work_condition(work, condition, now);
}

fn set_work_condition(work: &mut Value, condition: Value, now: &str) {
    let mut conditions = work.items("/status/conditions").to_vec();
    if set_condition(&mut conditions, condition, now) {
        work.put(&["status", "conditions"], Value::Array(conditions));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_of_somebody_else_is_refused_unless_told_to_overwrite() {
        let mut desired = json!({"kind": "Job", "metadata": {"name": "a", "namespace": "n"}});
        let theirs = json!({"kind": "Job", "metadata": {"name": "a", "namespace": "n"}});
        let error = may_update("m1", &desired, &theirs).unwrap_err();
        assert!(error.starts_with("resource(kind=Job, n/a) already exists in the cluster m1"));
        desired.set_annotation(names::CONFLICT_RESOLUTION, "overwrite");
        assert!(may_update("m1", &desired, &theirs).is_ok());
    }

    #[test]
    fn what_left_the_template_leaves_the_member_and_the_members_own_stays() {
        let mut desired = json!({"metadata": {"annotations": {"a": "1"}}});
        let observed = json!({"metadata": {"resourceVersion": "5", "annotations": {
            "a": "0", "gone": "x", "own": "y", "resourcetemplate.karmada.io/managed-annotations": "a,gone"}}});
        keep_members_own(&mut desired, &observed);
        assert_eq!(desired.annotation("a"), "1");
        assert_eq!(desired.annotation("gone"), "");
        assert_eq!(desired.annotation("own"), "y");
        assert_eq!(desired.resource_version(), "5");
    }

    #[test]
    fn what_stays_behind_keeps_only_the_marks_of_the_other_sort_of_policy() {
        let mut object = json!({"metadata": {"name": "a", "namespace": "n", "labels": {"own": "1"}}});
        for label in [names::MANAGED, names::BINDING_ID, names::WORK_ID, names::POLICY_ID, names::CLUSTER_POLICY_ID] {
            object.set_label(label, "x");
        }
        for annotation in [names::WORK_NAME, names::POLICY_NAME, names::CLUSTER_POLICY_NAME] {
            object.set_annotation(annotation, "x");
        }
        let mut wide = object.clone();
        wide.remove_at(&["metadata", "namespace"]);
        remove_marks(&mut object);
        assert_eq!(object["metadata"]["labels"], json!({"own": "1", names::CLUSTER_POLICY_ID: "x"}));
        assert_eq!(object["metadata"]["annotations"], json!({names::CLUSTER_POLICY_NAME: "x"}));
        remove_marks(&mut wide);
        assert_eq!(wide["metadata"]["labels"], json!({"own": "1", names::POLICY_ID: "x"}));
    }

    #[test]
    fn a_failure_is_counted_in_the_condition() {
        let mut work = json!({});
        set_applied(&mut work, &["no".to_owned()], 1, "t0");
        assert_eq!(work["status"]["conditions"][0]["message"], "Failed to apply all manifests (0/1): no");
        set_applied(&mut work, &[], 1, "t1");
        assert_eq!(work["status"]["conditions"][0]["lastTransitionTime"], "t1");
    }
}
