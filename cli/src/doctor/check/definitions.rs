//! CustomResourceDefinitions: there, served in the version that is used, with the fields that are used. And the rights
//! of the components' accounts.
//!
//! Rule: our own definitions have every field that this program knows, else it is older than they should be. Of
//! Karmada's, three fields of ResourceBinding must be there: without them nothing can be gated or handed to our
//! scheduler. What else is missing of Karmada's and Volcano's is a warning: a field that an API server does not know is
//! dropped without a word.

use std::collections::BTreeMap;

use caldera_crds::manifests::{build_federation_crds, build_karmada_crds, build_volcano_crds};
use serde_json::Value;

use super::{fix_commands::build_upgrade_command, kinds::is_of_declared_kind, take_visible};
use crate::{
    doctor::{
        facts::{Facts, Right},
        finding::{Check, Finding, join_first_names},
    },
    objects::{name_of, read_list_at, read_text_at},
};

const CHECK: Check = Check::Definitions;
/// Kinds of Karmada that are read or written.
const KARMADA: [&str; 6] = [
    "propagationpolicies.policy.karmada.io",
    "clusterpropagationpolicies.policy.karmada.io",
    "resourcebindings.work.karmada.io",
    "clusterresourcebindings.work.karmada.io",
    "works.work.karmada.io",
    "resourceinterpreterwebhookconfigurations.config.karmada.io",
];
/// Fields of a ResourceBinding without which there is no queueing.
const NEEDED: [&str; 3] = ["spec.suspension.scheduling", "spec.schedulerName", "spec.schedulePriority.priority"];
/// Members have it; on the host it is for nothing but looking.
const OPTIONAL: &str = "hypernodes.topology.volcano.sh";

pub(super) fn check_definitions(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Ok(found) = &facts.definitions else {
        take_visible(&facts.definitions, CHECK, "CustomResourceDefinitions", &mut findings);
        return findings;
    };
    let apply = "caldera manifests --only crds | kubectl apply --server-side -f -";
    let karmada = build_karmada_crds().into_iter().filter(|crd| KARMADA.contains(&name_of(crd)));
    for wanted in karmada {
        findings.extend(compare_definition(&wanted, found, "Karmada 1.19", false));
    }
    for wanted in build_volcano_crds().into_iter().filter(|crd| name_of(crd) != OPTIONAL) {
        findings.extend(compare_definition(&wanted, found, "Volcano 1.16", false).map(|one| one.fixed_by(apply)));
    }
    for wanted in build_federation_crds() {
        findings.extend(compare_definition(&wanted, found, "this version", true).map(|one| one.fixed_by(apply)));
    }
    findings
}

fn compare_definition(wanted: &Value, found: &[Value], of: &str, ours: bool) -> Option<Finding> {
    let name = name_of(wanted);
    let Some(found) = found.iter().find(|crd| name_of(crd) == name) else {
        return Some(CHECK.error(format!("the API server has no CustomResourceDefinition {name}")));
    };
    let is_true = |kind: &str| {
        read_list_at(found, "/status/conditions").iter().any(|one| one["type"] == kind && one["status"] == "True")
    };
    if !is_true("Established") {
        return Some(CHECK.error(format!("CustomResourceDefinition {name} is not established")));
    }
    let wanted = read_list_at(wanted, "/spec/versions").iter().find(|version| version["storage"] == true)?;
    let version = read_text_at(wanted, "/name");
    let served =
        read_list_at(found, "/spec/versions").iter().find(|one| one["name"] == version && one["served"] == true);
    let Some(served) = served else {
        return Some(CHECK.error(format!("CustomResourceDefinition {name} does not serve version {version}")));
    };
    let mut missing = Vec::new();
    let schema = "/schema/openAPIV3Schema";
    list_missing(wanted.pointer(schema)?, served.pointer(schema).unwrap_or(&Value::Null), "", &mut missing);
    if missing.is_empty() {
        return None;
    }
    let what = format!(
        "CustomResourceDefinition {name} is older than that of {of}: it has no {}",
        join_first_names(missing.iter().map(String::as_str))
    );
    let is_needed = missing.iter().any(|field| {
        NEEDED.contains(&field.as_str()) || NEEDED.iter().any(|one| one.starts_with(&format!("{field}.")))
    });
    let fatal = ours || name == "resourcebindings.work.karmada.io" && is_needed;
    Some(if fatal { CHECK.error(what) } else { CHECK.warning(what) })
}

/// Fields of one schema that another does not have and does not keep either.
fn list_missing(wanted: &Value, found: &Value, path: &str, missing: &mut Vec<String>) {
    if found["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    for inner in ["items", "additionalProperties"] {
        if wanted[inner].is_object() && found[inner].is_object() {
            list_missing(&wanted[inner], &found[inner], path, missing);
        }
    }
    for (name, of) in wanted["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match found["properties"].get(name) {
            Some(there) => list_missing(of, there, &path, missing),
            None => missing.push(path),
        }
    }
}

pub(super) fn check_rights(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut denied: BTreeMap<(&str, bool), Vec<&Right>> = BTreeMap::new();
    for right in take_visible(&facts.rights, Check::Rights, "what the components may do", &mut findings) {
        if !right.allowed {
            denied.entry((right.component.as_str(), is_of_declared_kind(facts, right))).or_default().push(right);
        }
    }
    // What is printed knows no declared kind, and would take the rights to it away.
    let fix = if facts.declared_kinds.is_empty() {
        "caldera manifests --only rbac | kubectl apply --server-side -f -".to_owned()
    } else {
        build_upgrade_command(facts)
    };
    for ((component, is_reported), rights) in denied {
        let shown: Vec<String> = rights.iter().map(|right| describe_right(right)).collect();
        let shown = join_first_names(shown.iter().map(String::as_str));
        let why = if is_reported { ", which a WorkloadKind tells: such jobs wait" } else { "" };
        let what = format!("the account of the {component} may not {shown}{why}");
        findings.push(Check::Rights.error(what).fixed_by(&fix));
    }
    findings
}

fn describe_right(right: &Right) -> String {
    let (plain, sub) =
        right.resource.split_once('/').map_or((right.resource.as_str(), ""), |(plain, sub)| (plain, sub));
    let mut text = format!("{} {plain}", right.verb);
    if !right.group.is_empty() {
        text += &format!(".{}", right.group);
    }
    if !sub.is_empty() {
        text += &format!("/{sub}");
    }
    if let Some(name) = &right.name {
        text += &format!(" {name}");
    }
    if let Some(namespace) = &right.namespace {
        text += &format!(" in namespace {namespace}");
    }
    text
}
