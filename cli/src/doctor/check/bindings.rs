//! Bindings and what is recorded on them, and what is left of what is gone.
//!
//! Rule: the contract of the fields in `docs/design.md`. What is younger than the grace may be on its way.

use std::collections::BTreeSet;

use caldera_core::text::count_noun;
use caldera_crds::workload::WorkloadKind;

use super::{components::age, take_visible};
use crate::doctor::{
    facts::{CheckedBinding, Facts, WorkFacts},
    finding::{Check, Finding, join_first_names},
};

const CHECK: Check = Check::Records;

/// One finding for all bindings of which something holds.
fn build_binding_finding<'a>(
    bindings: impl Iterator<Item = &'a CheckedBinding>,
    finding: impl FnOnce(String, String) -> Finding,
    fix: impl FnOnce(&str, &str) -> String,
) -> Option<Finding> {
    let keys: Vec<&str> = bindings.map(|binding| binding.key.as_str()).collect();
    let first = keys.first().copied()?;
    let (namespace, name) = first.split_once('/').unwrap_or(("", first));
    Some(finding(count_noun(keys.len(), "binding"), join_first_names(keys)).fixed_by(fix(namespace, name)))
}

fn format_delete_command(namespace: &str, name: &str) -> String {
    format!("kubectl delete resourcebinding -n {namespace} {name}")
}

/// The webhook closes the gate of whatever is not placed, with any change.
fn format_touch_command(namespace: &str, name: &str) -> String {
    format!("kubectl annotate resourcebinding -n {namespace} {name} --overwrite touched=\"$(date)\"")
}

fn format_show_command(namespace: &str, name: &str) -> String {
    format!("kubectl get resourcebinding -n {namespace} {name} -o yaml")
}

pub(super) fn check_records(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let all = take_visible(&facts.bindings, CHECK, "ResourceBindings", &mut findings);
    let (now, grace) = (facts.now, facts.grace);
    let queued = || all.iter().filter(|binding| binding.queued && !binding.deleting);
    let settled = || queued().filter(move |binding| age(now, binding.created) > grace);
    let is_closed = |binding: &&CheckedBinding| binding.gate.as_deref() == Some("closed");
    let ungated = || queued().filter(|one| one.gate.is_none() && one.has_placement && !one.suspended && !one.admitted);
    findings.extend(build_binding_finding(
        ungated().filter(|one| one.clusters == 0),
        |count, keys| CHECK.error(format!("{count} without a gate, as if made while the webhook was away: {keys}")),
        format_touch_command,
    ));
    // Whoever deletes such a binding deletes its copies.
    findings.extend(build_binding_finding(
        ungated().filter(|one| one.clusters > 0),
        |count, keys| CHECK.warning(format!("{count} placed without a gate, and running on: {keys}")),
        |_, _| "leave them to end by themselves: deleting a binding deletes its copies, which run".to_owned(),
    ));
    findings.extend(build_binding_finding(
        queued().filter(|one| is_closed(one) && !one.suspended),
        |count, keys| CHECK.warning(format!("{count} with a closed gate and not suspended: {keys}")),
        format_show_command,
    ));
    findings.extend(build_binding_finding(
        settled().filter(|one| is_closed(one) && one.clusters > 0),
        |count, keys| CHECK.warning(format!("{count} placed behind a closed gate: {keys}")),
        format_show_command,
    ));
    findings.extend(build_binding_finding(
        settled().filter(|one| one.gate.as_deref() == Some("open") && !one.admitted),
        |count, keys| CHECK.warning(format!("{count} with an open gate and no record of admission: {keys}")),
        format_show_command,
    ));
    for annotation in all.iter().flat_map(|one| one.unreadable.iter().copied()).collect::<BTreeSet<_>>() {
        findings.extend(build_binding_finding(
            all.iter().filter(|one| one.unreadable.contains(&annotation)),
            |count, keys| CHECK.error(format!("annotation {annotation} of {count} can not be read: {keys}")),
            |namespace, name| format!("kubectl annotate resourcebinding -n {namespace} {name} {annotation}-"),
        ));
    }
    let leases: BTreeSet<&str> = facts
        .leases
        .iter()
        .flatten()
        .filter(|one| one.name == "caldera-controller")
        .map(|one| one.epoch.as_str())
        .collect();
    findings.extend(build_binding_finding(
        settled().filter(|one| one.admitted && one.clusters == 0 && one.gate.as_deref() == Some("open")).filter(
            |one| {
                facts.leases.is_ok() && one.epoch.as_deref().map_or(!leases.is_empty(), |epoch| !leases.contains(epoch))
            },
        ),
        |count, keys| {
            CHECK.warning(format!("{count} admitted under a Lease that is over, and placed by nobody: {keys}"))
        },
        |_, _| "caldera controller --kubeconfig karmada.kubeconfig".to_owned(),
    ));
    if let Ok(workloads) = &facts.workloads {
        let is_kind = |one: &&CheckedBinding| {
            WorkloadKind::from_group_and_kind(&one.workload.group, &one.workload.kind).is_some()
        };
        findings.extend(build_binding_finding(
            all.iter()
                .filter(|one| !one.deleting && age(now, one.created) > grace)
                .filter(|one| is_kind(one) && !workloads.contains(&one.workload)),
            |count, keys| CHECK.error(format!("{count} without a workload, which may hold quota: {keys}")),
            format_delete_command,
        ));
    } else if let Err(why) = &facts.workloads {
        findings.push(CHECK.hidden("workloads", why));
    }
    findings
}

pub(super) fn check_garbage(facts: &Facts) -> Vec<Finding> {
    const CHECK: Check = Check::Garbage;
    let mut findings = Vec::new();
    let groups = take_visible(&facts.pod_groups, CHECK, "PodGroups", &mut findings);
    if let Ok(workloads) = &facts.workloads {
        let left: Vec<&str> = groups
            .iter()
            .filter(|group| age(facts.now, group.created) > facts.grace && !workloads.contains(&group.workload))
            .map(|group| group.key.as_str())
            .collect();
        if let Some(first) = left.first() {
            let (namespace, name) = first.split_once('/').unwrap_or(("", first));
            let what = format!(
                "{} of ours without a workload: does garbage collection run on the host? {}",
                count_noun(left.len(), "PodGroup"),
                join_first_names(left.iter().copied())
            );
            findings.push(CHECK.warning(what).fixed_by(format!("kubectl delete podgroup -n {namespace} {name}")));
        }
    }
    let works = take_visible(&facts.works, CHECK, "Works", &mut findings);
    if let Ok(bindings) = &facts.bindings {
        let there: BTreeSet<&str> = bindings.iter().map(|binding| binding.key.as_str()).collect();
        let is_left =
            |work: &&WorkFacts| age(facts.now, work.created) > facts.grace && !there.contains(work.binding.as_str());
        let (running, refused): (Vec<_>, Vec<_>) = works.iter().filter(is_left).partition(|work| work.may_run);
        let report = |left: Vec<&WorkFacts>, what: &str| {
            let (namespace, name) = left.first()?.key.split_once('/')?;
            let (number, names) = (left.len(), join_first_names(left.iter().map(|work| work.key.as_str())));
            let what = format!("Works are left of bindings that are not there ({number}){what}: {names}");
            Some((what, format!("kubectl delete work -n {namespace} {name}")))
        };
        if let Some((what, fix)) = report(running, ": what they sent to members may run on") {
            findings.push(CHECK.error(what).fixed_by(fix));
        }
        // Karmada makes one now and then while its binding is deleted with its namespace.
        if let Some((what, fix)) = report(refused, ", and no member has what they send") {
            findings.push(CHECK.warning(what).fixed_by(fix));
        }
    }
    findings
}
