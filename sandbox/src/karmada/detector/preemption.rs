//! Policies that take templates from policies of lower priority.
//!
//! Rule: Karmada `pkg/detector/preemption.go`, gate `PropagationPolicyPreemption`: only a policy whose `preemption` is
//! `Always`, and only templates that its selectors name. A namespace's policy of higher priority beats one of lower,
//! any of a namespace beats one of the cluster, and that one beats one of lower priority of the cluster.

use std::cmp::Reverse;

use serde_json::Value;

use super::plan::Scope;
use crate::karmada::object::{ObjectExt, Shared};

/// Whether a policy may take what another one has.
#[must_use]
pub fn may_preempt(scope: Scope, policy: &Value, holder_scope: Scope, holder: &Value) -> bool {
    match (scope, holder_scope) {
        (Scope::Namespace, Scope::Cluster) => true,
        (Scope::Cluster, Scope::Namespace) => false,
        _ => priority_of(policy) > priority_of(holder),
    }
}

/// Whether a policy takes templates from others at all.
#[must_use]
pub fn preempts(policy: &Value) -> bool {
    policy.text("/spec/preemption") == "Always"
}

fn priority_of(policy: &Value) -> i64 {
    policy.number("/spec/priority")
}

/// Those that may take something from a policy now that its priority is lower, the highest first.
#[must_use]
pub fn find_preempting(old: &Value, new: &Value, policies: &[Shared]) -> Vec<Shared> {
    let between = |policy: &&Shared| {
        let priority = priority_of(policy);
        preempts(policy) && priority > priority_of(new) && priority < priority_of(old)
    };
    let mut found: Vec<Shared> = policies.iter().filter(between).cloned().collect();
    found.sort_by_key(|policy| Reverse(priority_of(policy)));
    found
}

/// What the event on the template says.
#[must_use]
pub fn describe_preemption(scope: Scope, policy: &Value, holder_scope: Scope, holder: &Value) -> String {
    let named = |scope: Scope, policy: &Value| match scope {
        Scope::Namespace => format!("propagation policy({}/{})", policy.namespace(), policy.name()),
        Scope::Cluster => format!("cluster propagation policy({})", policy.name()),
    };
    let (who, whom) = (named(scope, policy), named(holder_scope, holder));
    let (first, rest) = who.split_at(1);
    format!("{}{rest} preempted {whom} successfully", first.to_uppercase())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn policy(name: &str, priority: i64) -> Shared {
        Arc::new(json!({"metadata": {"namespace": "n", "name": name},
            "spec": {"priority": priority, "preemption": "Always"}}))
    }

    #[test]
    fn a_namespaces_policy_beats_the_clusters_and_otherwise_the_priority_counts() {
        let (low, high) = (policy("low", 1), policy("high", 2));
        assert!(may_preempt(Scope::Namespace, &low, Scope::Cluster, &high));
        assert!(!may_preempt(Scope::Cluster, &high, Scope::Namespace, &low));
        assert!(may_preempt(Scope::Namespace, &high, Scope::Namespace, &low));
        assert!(!may_preempt(Scope::Cluster, &low, Scope::Cluster, &low));
    }

    #[test]
    fn who_is_between_an_old_and_a_lower_priority_tries_again() {
        let all = [policy("a", 3), policy("b", 5), policy("c", 4), policy("d", 2)];
        let found = find_preempting(&policy("x", 5), &policy("x", 2), &all);
        assert_eq!(found.iter().map(|one| one.name()).collect::<Vec<_>>(), ["c", "a"]);
    }

    #[test]
    fn the_event_names_both() {
        let (a, b) = (policy("a", 3), policy("b", 5));
        assert_eq!(
            describe_preemption(Scope::Namespace, &a, Scope::Cluster, &b),
            "Propagation policy(n/a) preempted cluster propagation policy(b) successfully"
        );
    }
}
