//! Whether what jobs name gets to the members: queues and priority classes.
//!
//! Rule (Karmada `pkg/util/selector.go`): a ClusterPropagationPolicy selects all objects of a kind if a selector of it
//! has that version and kind, and neither a name nor labels. Who made the policy does not matter.

use serde_json::Value;

use super::{fix_commands::APPLY_PROPAGATION, take_visible};
use crate::{
    doctor::{
        facts::Facts,
        finding::{Check, Finding},
    },
    manifests::build_propagation_policies,
    objects::{read_list_at, read_text_at},
};

const CHECK: Check = Check::Queues;

pub(super) fn check_propagation(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    if facts.propagation_policies.is_err() {
        take_visible(&facts.propagation_policies, CHECK, "ClusterPropagationPolicies", &mut findings);
        return findings;
    }
    let printed = build_propagation_policies();
    for wanted in printed.iter().flat_map(list_selectors) {
        if facts.propagation_policies.iter().flatten().flat_map(list_selectors).any(|one| selects_all(one, wanted)) {
            continue;
        }
        let kind = read_text_at(wanted, "/kind");
        let harm = if kind == "Queue" { "jobs of a new queue run nowhere" } else { "pods of a new class run nowhere" };
        let what =
            format!("no ClusterPropagationPolicy selects every {kind}: they do not reach the members, and {harm}");
        findings.push(CHECK.warning(what).fixed_by(APPLY_PROPAGATION));
    }
    findings
}

fn list_selectors(policy: &Value) -> impl Iterator<Item = &Value> {
    let is_deleted = policy.pointer("/metadata/deletionTimestamp").is_some();
    read_list_at(policy, "/spec/resourceSelectors").iter().filter(move |_| !is_deleted)
}

fn selects_all(selector: &Value, wanted: &Value) -> bool {
    let is_same = |field: &str| selector[field] == wanted[field];
    is_same("apiVersion")
        && is_same("kind")
        && ["/name", "/namespace"].iter().all(|field| read_text_at(selector, field).is_empty())
        && selector["labelSelector"].is_null()
}
