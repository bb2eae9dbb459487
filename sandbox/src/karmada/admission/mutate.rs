//! What admission fills in.
//!
//! Rule: Karmada `pkg/webhook/{propagationpolicy,clusterpropagationpolicy,resourcebinding,clusterresourcebinding,work,
//! overridepolicy}/mutating.go`; for Cluster what `pkg/registry/cluster/strategy.go` does.

use serde_json::{Value, json};

use crate::karmada::{
    binding::plan::record_managed, cluster::plan::default_models, interpreter::prune::prune_template, names,
    object::ObjectExt,
};

/// What was asked: `CREATE` or `UPDATE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// A new object.
    Create,
    /// A change of one.
    Update,
}

/// The object as it shall be stored; `id` is used where it has no permanent id yet.
#[must_use]
pub fn mutate_object(object: &Value, verb: Verb, id: &str, now: &str) -> Value {
    let mut object = object.clone();
    match object.text("/kind") {
        "PropagationPolicy" => {
            mutate_policy(&mut object, names::POLICY_ID, names::POLICY_FINALIZER, id);
            default_namespaces(&mut object);
        }
        "ClusterPropagationPolicy" => {
            mutate_policy(&mut object, names::CLUSTER_POLICY_ID, names::CLUSTER_POLICY_FINALIZER, id);
        }
        "OverridePolicy" => {
            default_namespaces(&mut object);
            // The answer is the typed object again, and this one is no pointer.
            if object.pointer("/spec/overriders").is_none() {
                object.put(&["spec", "overriders"], json!({}));
            }
        }
        "ResourceBinding" if verb == Verb::Create => set_permanent_id(&mut object, names::BINDING_ID, id),
        "ClusterResourceBinding" if verb == Verb::Create => {
            set_permanent_id(&mut object, names::CLUSTER_BINDING_ID, id);
        }
        "Work" => mutate_work(&mut object, id),
        "Cluster" => mutate_cluster(&mut object, verb, now),
        _ => {}
    }
    object
}

fn set_permanent_id(object: &mut Value, label: &str, id: &str) {
    if object.label(label).is_empty() {
        object.set_label(label, id);
    }
}

fn mutate_policy(policy: &mut Value, label: &str, finalizer: &str, id: &str) {
    set_permanent_id(policy, label, id);
    if !policy.is_deleting() {
        policy.add_finalizer(finalizer);
    }
    let spread = policy.pointer_mut("/spec/placement/spreadConstraints").and_then(Value::as_array_mut);
    for constraint in spread.into_iter().flatten() {
        if constraint.text("/spreadByLabel").is_empty() && constraint.text("/spreadByField").is_empty() {
            constraint.put(&["spreadByField"], json!("cluster"));
        }
        if constraint.number("/minGroups") == 0 {
            constraint.put(&["minGroups"], json!(1));
        }
    }
    let replicas = "/spec/placement/replicaScheduling";
    let divided = policy.text(&format!("{replicas}/replicaSchedulingType")) == "Divided";
    if divided && policy.text(&format!("{replicas}/replicaDivisionPreference")).is_empty() {
        policy.put(&["spec", "placement", "replicaScheduling", "replicaDivisionPreference"], json!("Weighted"));
    }
    let failover = "/spec/failover/application";
    let gentle = matches!(policy.text(&format!("{failover}/purgeMode")), "Graciously" | "Gracefully");
    if gentle && policy.present(&format!("{failover}/gracePeriodSeconds")).is_none() {
        policy.put(&["spec", "failover", "application", "gracePeriodSeconds"], json!(600));
    }
    // The answer is the typed object again: the placement is no pointer, and what is false is left out.
    for field in ["association", "propagateDeps"] {
        if policy.present(&format!("/spec/{field}")).is_some_and(|set| *set == false) {
            policy.remove_at(&["spec", field]);
        }
    }
    for (field, default) in [
        ("placement", json!({})),
        ("conflictResolution", json!("Abort")),
        ("preemption", json!("Never")),
        ("priority", json!(0)),
        ("schedulerName", json!("default-scheduler")),
    ] {
        if policy.present(&format!("/spec/{field}")).is_none() {
            policy.put(&["spec", field], default);
        }
    }
}

fn default_namespaces(policy: &mut Value) {
    let namespace = policy.namespace().to_owned();
    let selectors = policy.pointer_mut("/spec/resourceSelectors").and_then(Value::as_array_mut);
    for selector in selectors.into_iter().flatten() {
        if selector.text("/namespace").is_empty() {
            selector.put(&["namespace"], json!(namespace));
        }
    }
}

fn mutate_work(work: &mut Value, id: &str) {
    set_permanent_id(work, names::WORK_ID, id);
    if work.is_deleting() {
        return;
    }
    let manifests = work.pointer_mut("/spec/workload/manifests").and_then(Value::as_array_mut);
    for manifest in manifests.into_iter().flatten() {
        prune_template(manifest);
    }
    record_managed(work);
}

fn mutate_cluster(cluster: &mut Value, verb: Verb, now: &str) {
    if verb == Verb::Create && cluster.items("/spec/resourceModels").is_empty() {
        cluster.put(&["spec", "resourceModels"], Value::Array(default_models()));
    }
    let zone = cluster.text("/spec/zone").to_owned();
    if !zone.is_empty() && cluster.items("/spec/zones").is_empty() {
        cluster.put(&["spec", "zones"], json!([zone]));
        cluster.remove_at(&["spec", "zone"]);
    }
    let taints = cluster.pointer_mut("/spec/taints").and_then(Value::as_array_mut);
    for taint in taints.into_iter().flatten() {
        if taint.text("/effect") == "NoExecute" && taint.present("/timeAdded").is_none() {
            taint.put(&["timeAdded"], json!(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_gets_an_id_a_finalizer_and_its_selectors_namespace() {
        let policy = json!({"kind": "PropagationPolicy", "metadata": {"name": "p", "namespace": "n"},
            "spec": {"resourceSelectors": [{"kind": "Job"}], "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}}}});
        let policy = mutate_object(&policy, Verb::Create, "id", "now");
        assert_eq!(policy.label(names::POLICY_ID), "id");
        assert!(policy.has_finalizer(names::POLICY_FINALIZER));
        assert_eq!(policy["spec"]["resourceSelectors"][0]["namespace"], "n");
        assert_eq!(policy["spec"]["placement"]["replicaScheduling"]["replicaDivisionPreference"], "Weighted");
        assert_eq!(mutate_object(&policy, Verb::Update, "other", "now"), policy);
    }

    #[test]
    fn a_policy_is_stored_as_go_writes_it() {
        let policy = json!({"kind": "ClusterPropagationPolicy", "metadata": {"name": "p"}, "spec": {
            "propagateDeps": false, "preserveResourcesOnDeletion": false}});
        let stored = mutate_object(&policy, Verb::Create, "id", "now");
        assert_eq!(stored["spec"]["placement"], json!({}));
        assert!(stored["spec"].get("propagateDeps").is_none());
        assert_eq!(stored["spec"]["preserveResourcesOnDeletion"], false, "a pointer");
    }

    #[test]
    fn an_override_policy_gets_the_empty_struct_that_go_writes() {
        let policy = json!({"kind": "OverridePolicy", "metadata": {"namespace": "n"}, "spec": {"overrideRules": []}});
        let mutated = mutate_object(&policy, Verb::Create, "id", "now");
        assert_eq!(mutated["spec"], json!({"overrideRules": [], "overriders": {}}));
    }

    #[test]
    fn a_binding_gets_its_id_only_at_creation() {
        let binding = json!({"kind": "ResourceBinding", "metadata": {"name": "b"}});
        assert_eq!(mutate_object(&binding, Verb::Create, "id", "now").label(names::BINDING_ID), "id");
        assert_eq!(mutate_object(&binding, Verb::Update, "id", "now"), binding);
    }

    #[test]
    fn a_new_cluster_gets_nine_grades_and_an_emptied_one_keeps_none() {
        let cluster = json!({"kind": "Cluster", "metadata": {"name": "m"}, "spec": {}});
        assert_eq!(mutate_object(&cluster, Verb::Create, "", "now").items("/spec/resourceModels").len(), 9);
        assert_eq!(mutate_object(&cluster, Verb::Update, "", "now"), cluster);
    }
}
