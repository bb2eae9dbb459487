//! Versions: each component's against this command's, and those of Kubernetes and Volcano against what was tested; and
//! which of Karmada's feature gates show in its objects.
//!
//! Rule: a component with a Lease says its version there, the webhook in its answer to a dry run. One that says none is
//! older than that. Another version than this command's is a warning: a fleet is meant to run one. A version of
//! Kubernetes or Volcano that nobody ran it on is a note, since most differ in nothing that is used. Karmada tells its
//! version to no client of its API, and no API tells its feature gates: MultiplePodTemplatesScheduling shows in
//! bindings, the others are not examined.

use std::collections::BTreeSet;

use caldera_crds::names::caldera::WEBHOOK_VERSION;

use super::{components::is_alive, fix_commands::build_upgrade_command};
use crate::{
    doctor::{
        facts::Facts,
        finding::{Check, Finding, join_first_names},
    },
    objects::annotation_of,
};

const CHECK: Check = Check::Versions;
/// Minor versions of Kubernetes that host and members had in what `docs/install.md` lists.
pub const TESTED_KUBERNETES: [&str; 1] = ["1.36"];
/// Versions of Volcano in members there.
pub const TESTED_VOLCANO: [&str; 2] = ["latest", "v1.15.1"];

pub(super) fn check_versions(facts: &Facts) -> Vec<Finding> {
    let ours = facts.versions.caldera.as_str();
    let mut findings = Vec::new();
    for lease in facts.leases.iter().flatten().filter(|lease| is_alive(lease, facts.now)) {
        let component = lease.name.trim_start_matches("caldera-");
        findings.extend(compare_version(facts, component, lease.version.as_deref(), ours));
    }
    // One that did not gate it is told by another check.
    if let Ok(probe) = &facts.binding_probe
        && annotation_of(probe, caldera_crds::names::caldera::GATE).is_some()
    {
        findings.extend(compare_version(facts, "webhook", annotation_of(probe, WEBHOOK_VERSION), ours));
    }
    findings.extend(note_untested_kubernetes(facts));
    findings.extend(note_untested_volcano(facts));
    if facts.bindings.iter().flatten().any(|binding| binding.components) {
        let what = "Karmada's feature gate MultiplePodTemplatesScheduling is on: bindings list components. Caldera goes by \
                    its own plan";
        findings.push(CHECK.note(what));
    }
    findings
}

fn compare_version(facts: &Facts, component: &str, theirs: Option<&str>, ours: &str) -> Option<Finding> {
    let what = match theirs {
        Some(theirs) if theirs == ours => return None,
        Some(theirs) => format!("the {component} is Caldera {theirs}, this command {ours}"),
        None => format!("the {component} says no version: it is older than this command, {ours}"),
    };
    Some(CHECK.warning(what).fixed_by(build_upgrade_command(facts)))
}

/// `v1.36.1+k3s1` -> `1.36`.
fn minor_of(version: &str) -> Option<String> {
    let mut parts = version.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next()?, parts.next()?);
    let digits: String = minor.chars().take_while(char::is_ascii_digit).collect();
    (!digits.is_empty()).then(|| format!("{major}.{digits}"))
}

fn note_untested_kubernetes(facts: &Facts) -> Option<Finding> {
    let all = [("the host".to_owned(), facts.versions.host.clone())];
    let untested: Vec<String> = all
        .iter()
        .chain(&facts.versions.members)
        .filter_map(|(name, version)| Some((name, minor_of(version)?)))
        .filter(|(_, minor)| !TESTED_KUBERNETES.contains(&minor.as_str()))
        .map(|(name, minor)| format!("{name} {minor}"))
        .collect();
    (!untested.is_empty()).then(|| {
        CHECK.note(format!(
            "not tested on this Kubernetes: {}; tested: {}",
            join_first_names(untested.iter().map(String::as_str)),
            TESTED_KUBERNETES.join(", ")
        ))
    })
}

fn note_untested_volcano(facts: &Facts) -> Option<Finding> {
    let inside = facts.members.iter().flatten().filter_map(|member| Some((&member.name, member.inside.as_ref().ok()?)));
    let untested: BTreeSet<String> = inside
        .filter_map(|(name, inside)| Some((name, inside.volcano_version.as_deref()?)))
        .filter(|(_, version)| !TESTED_VOLCANO.contains(version))
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    (!untested.is_empty()).then(|| {
        CHECK.note(format!(
            "not tested with this Volcano: {}; tested: {}",
            join_first_names(untested.iter().map(String::as_str)),
            TESTED_VOLCANO.join(", ")
        ))
    })
}
