//! Kinds that WorkloadKinds tell: whether they count, and what was registered before they were told.
//!
//! Rule: webhook and controller know such a kind from the moment at which it is told. Webhook configurations and
//! admission policies name the kinds that were known when they were made, as roles do: `caldera upgrade` makes them
//! anew. `caldera manifests` and the charts know none, so what they print takes a kind out again.

use serde_json::Value;

use super::{
    CHECK_WEBHOOKS,
    fix_commands::build_upgrade_command,
    printed::{build_printed_configurations, list_printed_policies},
};
use crate::{
    doctor::{
        facts::{DeclaredKind, Facts, Right},
        finding::{Check, Finding},
    },
    objects::{name_of, read_text_at},
};

/// Jobs of a kind that does not count are queued by nobody.
pub(super) fn check_declared_kinds(facts: &Facts) -> Vec<Finding> {
    let report = |(name, why): (&String, &String)| {
        let finding = Check::Definitions.error(format!("WorkloadKind {name} does not count: {why}"));
        finding.fixed_by(format!("kubectl edit workloadkind {name}"))
    };
    facts.kind_faults.iter().map(report).collect()
}

/// What was made before a kind was told, one finding for each kind.
pub(super) fn check_registrations(facts: &Facts) -> Vec<Finding> {
    if facts.declared_kinds.is_empty() {
        return Vec::new();
    }
    let mut printed = Vec::from(build_printed_configurations(facts));
    printed.extend(list_printed_policies(facts));
    let find = |printed: &Value| {
        let of_kind = match read_text_at(printed, "/kind") {
            "MutatingWebhookConfiguration" => &facts.mutating,
            "ValidatingAdmissionPolicy" => &facts.policies,
            // No other names kinds.
            _ => return None,
        };
        of_kind.iter().flatten().find(|one| name_of(one) == name_of(printed))
    };
    let report = |kind: &DeclaredKind| {
        let lacking = printed.iter().filter(|one| find(one).is_some_and(|found| is_unknown(kind, one, found)));
        let lacking: Vec<String> =
            lacking.map(|one| format!("{} {}", read_text_at(one, "/kind"), name_of(one))).collect();
        let what = format!(
            "{} is told by a WorkloadKind and unknown to {}: while the webhook is away its jobs pass without a gate",
            name_kind(kind),
            lacking.join(", ")
        );
        (!lacking.is_empty()).then(|| CHECK_WEBHOOKS.warning(what).fixed_by(build_upgrade_command(facts)))
    };
    facts.declared_kinds.iter().filter_map(report).collect()
}

/// Whether an object that was found was made before some kind was told.
pub(super) fn lacks_declared_kind(facts: &Facts, wanted: &Value, found: &Value) -> bool {
    facts.declared_kinds.iter().any(|kind| is_unknown(kind, wanted, found))
}

fn is_unknown(kind: &DeclaredKind, wanted: &Value, found: &Value) -> bool {
    let names = |object: &Value| {
        let text = object.to_string();
        text.contains(&kind.group) && (text.contains(&kind.kind) || text.contains(&kind.plural))
    };
    names(wanted) && !names(found)
}

/// Whether a right is about the objects of such a kind.
pub(super) fn is_of_declared_kind(facts: &Facts, right: &Right) -> bool {
    facts.declared_kinds.iter().any(|kind| (&kind.group, &kind.plural) == (&right.group, &right.resource))
}

fn name_kind(kind: &DeclaredKind) -> String {
    format!("{}.{}", kind.plural, kind.group)
}
