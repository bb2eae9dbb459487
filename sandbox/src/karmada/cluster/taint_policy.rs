//! Taints of clusters by ClusterTaintPolicies.
//!
//! Rule: Karmada `pkg/controllers/taint`: policies in the order of their creation; the conditions of a policy must all
//! hold, none is never; a policy that goes leaves its taints.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::karmada::{
    api::Change,
    control::{Control, cluster_kind},
    events::About,
    object::{Gvk, ObjectExt, Shared},
    queue::{Next, Queue},
    select::cluster_matches,
};

fn policy_kind() -> Gvk {
    Gvk::new("policy.karmada.io/v1alpha1", "ClusterTaintPolicy")
}

/// Starts to taint clusters.
pub fn run_controller(control: &Arc<Control>) {
    let queue: Arc<Queue<String>> = Queue::new("cluster-taint-policy", control.shutdown.clone());
    let clusters = queue.clone();
    control.host.add_handler(
        &cluster_kind(),
        Arc::new(move |change: &Change| {
            let conditions = |one: &Option<Shared>| one.as_ref().map(|one| one.items("/status/conditions").to_vec());
            if let Some(cluster) = &change.new
                && (change.old.is_none() || conditions(&change.old) != conditions(&change.new))
            {
                clusters.add(cluster.name().to_owned());
            }
        }),
    );
    let (named, own) = (queue.clone(), control.clone());
    control.host.add_handler(
        &policy_kind(),
        Arc::new(move |change: &Change| {
            let Some(policy) = &change.new else { return };
            if change.old.as_ref().is_some_and(|old| old["spec"] == policy["spec"]) {
                return;
            }
            for cluster in own.host.list(&cluster_kind()).iter().filter(|cluster| is_target(cluster, policy)) {
                named.add(cluster.name().to_owned());
            }
        }),
    );
    let own = control.clone();
    queue.run(1, move |name| {
        let own = own.clone();
        async move {
            let Some(cluster) = own.cluster(&name) else { return Ok(Next::Done) };
            let (policies, now) = (own.host.list(&policy_kind()), own.now());
            let written = own.writer.modify(&cluster, "", |cluster| {
                let taints = taints_of_policies(cluster, &policies, &now);
                if taints != cluster.items("/spec/taints") {
                    cluster.put_or_remove(&["spec", "taints"], (!taints.is_empty()).then(|| json!(taints)));
                }
            });
            if let Some(written) = written.await?
                && written["spec"]["taints"] != cluster["spec"]["taints"]
            {
                let told = describe_taints(written.items("/spec/taints"));
                let message = format!("Update Cluster({name}) with taints({told}) succeed");
                let source = "cluster-taint-policy-controller";
                own.events.normal(source, About::object(&written), "TaintClusterSucceed", message);
            }
            Ok(Next::Done)
        }
    });
}

/// `GenerateTaintsMessage`.
fn describe_taints(taints: &[Value]) -> String {
    if taints.is_empty() {
        return "cluster now does not have taints".to_owned();
    }
    let one = |taint: &Value| {
        let value = taint.text("/value");
        let value = if value.is_empty() { String::new() } else { format!("Value:{value},") };
        format!("{{Key:{},{value}Effect:{}}}", taint.text("/key"), taint.text("/effect"))
    };
    format!("cluster now has taints([{}])", taints.iter().map(one).collect::<Vec<_>>().join(","))
}

fn is_target(cluster: &Value, policy: &Value) -> bool {
    policy.present("/spec/targetClusters").is_none_or(|affinity| cluster_matches(cluster, affinity))
}

/// The taints that a cluster should have.
fn taints_of_policies(cluster: &Value, policies: &[Shared], now: &str) -> Vec<Value> {
    let mut taints = cluster.items("/spec/taints").to_vec();
    let same = |one: &Value, other: &Value| one["key"] == other["key"] && one["effect"] == other["effect"];
    let mut policies: Vec<&Shared> = policies.iter().filter(|policy| is_target(cluster, policy)).collect();
    policies.sort_by(|a, b| a.text("/metadata/creationTimestamp").cmp(b.text("/metadata/creationTimestamp")));
    for policy in policies {
        let named = policy.items("/spec/taints");
        if conditions_match(cluster, policy.items("/spec/addOnConditions")) {
            for one in named {
                if !taints.iter().any(|taint| same(taint, one)) {
                    let mut taint = one.clone();
                    taint.put(&["timeAdded"], json!(now));
                    taints.push(taint);
                }
            }
        }
        if conditions_match(cluster, policy.items("/spec/removeOnConditions")) {
            taints.retain(|taint| !named.iter().any(|one| same(taint, one)));
        }
    }
    taints
}

fn conditions_match(cluster: &Value, wanted: &[Value]) -> bool {
    let holds = |wanted: &Value| {
        let conditions = cluster.items("/status/conditions");
        let Some(condition) = conditions.iter().rfind(|one| one["type"] == wanted["conditionType"]) else {
            return false;
        };
        let listed = wanted.items("/statusValues").contains(&condition["status"]);
        match wanted.text("/operator") {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        }
    };
    !wanted.is_empty() && wanted.iter().all(holds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(name: &str, created: &str, add: &Value, remove: &Value) -> Shared {
        Arc::new(json!({
            "metadata": {"name": name, "creationTimestamp": created},
            "spec": {
                "targetClusters": {"clusterNames": ["m2"]},
                "addOnConditions": add,
                "removeOnConditions": remove,
                "taints": [{"key": "dirty", "effect": "NoSchedule"}],
            },
        }))
    }

    #[test]
    fn a_cluster_is_tainted_while_all_conditions_of_a_policy_hold() {
        let cluster = |name: &str, ready: &str| json!({"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}});
        let ready = json!([{"conditionType": "Ready", "operator": "In", "statusValues": ["True"]}]);
        let unready = json!([{"conditionType": "Ready", "operator": "NotIn", "statusValues": ["True"]}]);
        let all = [policy("p", "1", &ready, &unready)];
        let tainted = taints_of_policies(&cluster("m2", "True"), &all, "now");
        assert_eq!(tainted, [json!({"key": "dirty", "effect": "NoSchedule", "timeAdded": "now"})]);
        assert!(taints_of_policies(&cluster("m1", "True"), &all, "now").is_empty());
        let mut failed = cluster("m2", "False");
        failed["spec"] = json!({"taints": tainted});
        assert!(taints_of_policies(&failed, &all, "now").is_empty());
        // No condition at all is none that holds, and what nobody takes away stays.
        assert_eq!(taints_of_policies(&failed, &[policy("p", "1", &json!([]), &json!([]))], "now").len(), 1);
    }

    #[test]
    fn a_later_policy_has_the_last_word() {
        let cluster =
            json!({"metadata": {"name": "m2"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let ready = json!([{"conditionType": "Ready", "operator": "In", "statusValues": ["True"]}]);
        let (adds, removes) = (policy("a", "1", &ready, &json!([])), policy("b", "2", &json!([]), &ready));
        assert!(taints_of_policies(&cluster, &[removes.clone(), adds.clone()], "now").is_empty());
        let late = policy("c", "3", &ready, &json!([]));
        assert_eq!(taints_of_policies(&cluster, &[late, removes, adds], "now").len(), 1);
    }
}
