//! What is done about what there is: stages of writes, in order.
//!
//! Rules:
//! 1. Who decides goes first: without rights controller and scheduler close no gate and place nothing.
//! 2. Then the hooks that close gates, then gates are opened. Nothing of a job that runs is taken away: its clusters
//!    stay, and its scheduler becomes Karmada's, which leaves clusters alone that were chosen for the same placement.
//! 3. A Volcano Job that is split, or kept in a network domain, has copies that our webhook makes at every sync.
//!    Without it Karmada would send the whole job to each of its clusters. So as long as one runs, the hook on Works
//!    (for these jobs alone), the interpreter, what the webhook may read, and their records stay. All else goes, and
//!    what stayed goes when this is done again.
//! 4. While somebody waits behind a gate, nothing is removed unless gates may be opened.
//! 5. A binding is patched with a test of its resourceVersion, and what is deleted is named by its UID.
//! 6. CustomResourceDefinitions of others stay: with Volcano's the jobs would go, here and in all members.

use std::collections::BTreeSet;

use caldera_core::gang::WorkloadRef;
use caldera_crds::{
    action::ACTION_STAMPS,
    binding::{BindingView, parse_binding},
    names::{
        caldera::{GATE, GATE_CLOSED, GATE_OPEN, PRIORITY, QUEUE_STATUS, SCHEDULER_NAME},
        karmada::{BINDING_NAME, BINDING_NAMESPACE},
    },
    trusted::BINDING_ANNOTATIONS,
    workload::WorkloadKind,
};
use caldera_runtime::write::{Body, Write};
use serde_json::{Value, json};

use super::installed::{Installed, InstalledObject};
use crate::{
    change::{build_delete, build_tested_patch, build_write},
    objects::{self, annotation_of, annotation_path, key_of, name_of, read_list_at, read_text_at},
};

/// Karmada's own scheduler.
const DEFAULT_SCHEDULER: &str = "default-scheduler";
/// The hook that makes copies of Volcano Jobs.
const COPIES: &str = "works.plan.caldera.dev";
/// Its condition while only jobs that still run need it.
const STILL_RUNS: &str = "still-runs";

/// What may be done.
#[derive(Debug, Clone, Copy, Default)]
pub struct Allowed {
    /// Jobs that wait may start.
    pub open_gates: bool,
    /// Our CustomResourceDefinitions go.
    pub crds: bool,
}

/// One step, after which is looked again.
#[derive(Debug, Clone, PartialEq)]
pub struct RemovalStage {
    /// What it does.
    pub title: &'static str,
    /// How.
    pub writes: Vec<Write>,
}

/// All steps.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// In this order.
    pub stages: Vec<RemovalStage>,
    /// Bindings behind a closed gate.
    pub waiting: Vec<String>,
    /// Bindings whose jobs run, and need the webhook until they end.
    pub kept: Vec<String>,
    /// The gates of those that wait may not be opened: nothing is done.
    pub is_refused: bool,
}

/// See the module.
pub fn plan_removal(installed: &Installed, allowed: Allowed) -> Plan {
    let is_closed = |binding: &&Value| annotation_of(binding, GATE) == Some(GATE_CLOSED);
    let waiting: Vec<String> = installed.bindings.iter().filter(is_closed).map(key_of).collect();
    let kept: BTreeSet<String> =
        installed.bindings.iter().filter(|one| needs_copies(one, &installed.ended)).map(key_of).collect();
    if !waiting.is_empty() && !allowed.open_gates {
        return Plan { waiting, kept: kept.into_iter().collect(), is_refused: true, ..Plan::default() };
    }
    let is_webhooks = |found: &&InstalledObject| name_of(&found.object) == "caldera-webhook";
    let mut stages = Vec::new();
    let mut stage = |title, writes: Vec<Write>| {
        if !writes.is_empty() {
            stages.push(RemovalStage { title, writes });
        }
    };
    let deciders = installed
        .roles
        .iter()
        .filter(|one| read_text_at(&one.object, "/kind").ends_with("RoleBinding") && !is_webhooks(one));
    stage("take controller, scheduler and collectors their rights", deciders.map(build_found_delete).collect());
    let mut hooks: Vec<Write> = installed.validating.iter().map(build_found_delete).collect();
    hooks.extend(installed.mutating.iter().filter_map(|found| build_hook_reduction(found, &kept)));
    stage("close no more gates", hooks);
    let free = installed.bindings.iter().filter(|binding| !kept.contains(&key_of(binding)));
    stage("open gates, and hand bindings to karmada-scheduler", free.filter_map(build_binding_handback).collect());
    let groups = installed.pod_groups.iter().map(|object| build_delete(&objects::pod_group_resource(), object));
    let queues = installed.queues.iter().filter_map(build_queue_status_removal);
    stage("remove what was told on PodGroups and queues", groups.chain(queues).collect());
    if !kept.is_empty() {
        return Plan { stages, waiting, kept: kept.into_iter().collect(), is_refused: false };
    }
    stage(
        "remove interpreter and policies",
        installed.interpreters.iter().chain(&installed.policies).map(build_found_delete).collect(),
    );
    // Before, a policy held them.
    stage("remove who acted on queues", installed.queues.iter().filter_map(build_action_removal).collect());
    let mut rest: Vec<Write> = installed.state.iter().chain(&installed.roles).map(build_found_delete).collect();
    rest.extend(installed.inventories.iter().map(build_found_delete));
    stage("remove leases, settings, inventories, roles and accounts", rest);
    let definitions = installed.definitions.iter().filter(|_| allowed.crds);
    stage("remove our CustomResourceDefinitions", definitions.map(build_found_delete).collect());
    let is_there = |found: &&InstalledObject| found.object["metadata"]["deletionTimestamp"].is_null();
    stage("remove our namespace", installed.namespaces.iter().filter(is_there).map(build_found_delete).collect());
    Plan { stages, waiting, kept: Vec::new(), is_refused: false }
}

/// Whether a job runs with copies that Karmada alone does not make.
fn needs_copies(binding: &Value, ended: &BTreeSet<String>) -> bool {
    let Some(parsed) = parse_binding(binding) else { return false };
    let view = BindingView::from(&parsed);
    let WorkloadRef { namespace, name, .. } = view.workload();
    view.workload_kind() == Some(WorkloadKind::VolcanoJob)
        && !parsed.spec.clusters.is_empty()
        && !ended.contains(&format!("{namespace}/{name}"))
        && view.plan().is_some_and(|plan| plan.clusters.len() > 1 || !plan.pinned_domains().is_empty())
}

fn build_found_delete(found: &InstalledObject) -> Write {
    build_delete(&found.resource, &found.object)
}

/// Takes our annotations off, lifts the suspension that is ours, and names Karmada's scheduler; nothing else changes.
fn build_binding_handback(binding: &Value) -> Option<Write> {
    let remove = |path: String| json!({"op": "remove", "path": path});
    let mut steps = Vec::new();
    let suspension = binding.pointer("/spec/suspension");
    let is_ours = match annotation_of(binding, GATE) {
        Some(GATE_CLOSED) => suspension.is_some_and(|one| one["scheduling"] == true),
        Some(GATE_OPEN) => suspension.is_some_and(|one| one["scheduling"] == false),
        _ => false,
    };
    if is_ours {
        let is_alone = suspension.and_then(Value::as_object).is_some_and(|fields| fields.len() == 1);
        steps.push(remove(if is_alone { "/spec/suspension" } else { "/spec/suspension/scheduling" }.to_owned()));
    }
    let priority = binding.pointer("/spec/schedulePriority/priority").and_then(Value::as_i64);
    if priority.is_some() && annotation_of(binding, PRIORITY).and_then(|text| text.parse().ok()) == priority {
        steps.push(remove("/spec/schedulePriority".to_owned()));
    }
    if read_text_at(binding, "/spec/schedulerName") == SCHEDULER_NAME {
        steps.push(json!({"op": "replace", "path": "/spec/schedulerName", "value": DEFAULT_SCHEDULER}));
    }
    let there = BINDING_ANNOTATIONS.iter().filter(|name| annotation_of(binding, name).is_some());
    steps.extend(there.map(|name| remove(annotation_path(name))));
    (!steps.is_empty()).then(|| build_write(&objects::binding_resource(), binding, build_tested_patch(binding, steps)))
}

fn build_queue_status_removal(queue: &Value) -> Option<Write> {
    build_annotation_removal(queue, &[QUEUE_STATUS])
}

fn build_action_removal(queue: &Value) -> Option<Write> {
    build_annotation_removal(queue, &ACTION_STAMPS)
}

/// Takes these off a queue as they are; `None` where it has none of them.
fn build_annotation_removal(queue: &Value, names: &[&str]) -> Option<Write> {
    let take = |name: &&str| {
        let (reported, path) = (annotation_of(queue, name)?, annotation_path(name));
        Some([json!({"op": "test", "path": path, "value": reported}), json!({"op": "remove", "path": path})])
    };
    let steps: Vec<Value> = names.iter().filter_map(take).flatten().collect();
    (!steps.is_empty()).then(|| build_write(&objects::queue_resource(), queue, Body::JsonPatch(json!(steps))))
}

/// Leaves the hook on Works for the jobs that need it; nothing to do if it is so already.
fn build_hook_reduction(found: &InstalledObject, kept: &BTreeSet<String>) -> Option<Write> {
    if kept.is_empty() {
        return Some(build_found_delete(found));
    }
    let hooks = read_list_at(&found.object, "/webhooks");
    let mut copies = hooks.iter().find(|hook| read_text_at(hook, "/name") == COPIES)?.clone();
    let mut conditions: Vec<Value> =
        read_list_at(&copies, "/matchConditions").iter().filter(|one| one["name"] != STILL_RUNS).cloned().collect();
    conditions.push(json!({"name": STILL_RUNS, "expression": build_work_expression(kept)}));
    copies["matchConditions"] = Value::Array(conditions);
    let wanted = json!([copies]);
    (found.object.pointer("/webhooks") != Some(&wanted)).then(|| {
        let replace = json!({"op": "replace", "path": "/webhooks", "value": wanted});
        build_write(&found.resource, &found.object, build_tested_patch(&found.object, [replace]))
    })
}

/// A CEL expression: the Work is of one of these bindings. Names of Kubernetes have neither quotes nor backslashes.
fn build_work_expression(bindings: &BTreeSet<String>) -> String {
    let is_name = |key: &&String| key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-./:".contains(&b));
    let names: Vec<String> = bindings.iter().filter(is_name).map(|key| format!("'{key}'")).collect();
    let of = |name: &str| format!("object.metadata.annotations['{name}']");
    format!(
        "has(object.metadata.annotations) && '{BINDING_NAMESPACE}' in object.metadata.annotations && '{BINDING_NAME}' in \
         object.metadata.annotations && ({} + '/' + {}) in [{}]",
        of(BINDING_NAMESPACE),
        of(BINDING_NAME),
        names.join(", ")
    )
}

#[cfg(test)]
mod tests;
