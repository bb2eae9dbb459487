//! What the scheduler writes on a binding: `spec.clusters` with two annotations, its own part of the status, Events.
//!
//! Rule (karmada-scheduler `pkg/scheduler/scheduler.go`: `patchScheduleResultForResourceBinding`,
//! `updateBindingScheduledConditionIfNeeded`): the same fields with the same texts, but in one patch with a
//! resourceVersion precondition, and one status patch with the generation that this patch returned.

use caldera_core::place::{Decision, Target};
use caldera_crds::{
    dns::is_dns_subdomain,
    names::{
        caldera::{PLAN, SCHEDULER_NAME},
        karmada::APPLIED_PLACEMENT,
    },
    object::annotation_path,
};
use caldera_runtime::{
    clock::format_time,
    event::{EventType, Regarding, build_event},
    watch::api_resource,
    write::{Body, Write},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    decide::{
        applied_placement::describe_applied_placement,
        placement::{SUCCESS, SUCCESS_MESSAGE},
    },
    observe::{
        binding::{Binding, SCHEDULED},
        ranking::WeightsFault,
    },
};

/// Kind and version of what is written.
const API_VERSION: &str = "work.karmada.io/v1alpha2";
/// Event on a policy or a binding: its score weights are not understood, and count as absent.
const SCORE_WEIGHTS_IGNORED: &str = "ScoreWeightsIgnored";
/// Event on a binding and its workload: clusters were chosen. Not of a queued job that found a place at once.
const SCHEDULE_BINDING_SUCCEED: &str = "ScheduleBindingSucceed";
/// Event on a binding and its workload: no clusters were found, and why.
const SCHEDULE_BINDING_FAILED: &str = "ScheduleBindingFailed";

/// The kind of a binding: cluster-scoped templates have one of their own.
fn kind_of(binding: &Binding) -> &'static str {
    if binding.key.is_global() { "ClusterResourceBinding" } else { "ResourceBinding" }
}

fn build_binding_write(binding: &Binding, subresource: Option<&'static str>, body: Body) -> Write {
    let plural = if binding.key.is_global() { "clusterresourcebindings" } else { "resourcebindings" };
    Write {
        resource: api_resource("work.karmada.io", "v1alpha2", kind_of(binding), plural),
        namespace: binding.key.namespace.clone(),
        name: binding.key.name.clone(),
        subresource,
        body,
    }
}

/// The one patch that places a binding.
#[must_use]
pub fn build_placement_write(binding: &Binding, decision: &Decision) -> Write {
    let target = |target: &Target| match target.replicas {
        0 => json!({"name": target.cluster}),
        replicas => json!({"name": target.cluster, "replicas": replicas}),
    };
    let clusters: Vec<Value> = decision.targets.iter().map(target).collect();
    let plan = decision.plan.as_ref().and_then(|plan| serde_json::to_string(plan).ok());
    patch_clusters(binding, &clusters, plan)
}

/// The patch that takes a binding's clusters away.
#[must_use]
pub fn build_clearing_write(binding: &Binding) -> Write {
    patch_clusters(binding, &[], None)
}

fn patch_clusters(binding: &Binding, clusters: &[Value], plan: Option<String>) -> Write {
    let applied = describe_applied_placement(binding);
    let mut operations = vec![
        json!({"op": "test", "path": "/metadata/resourceVersion", "value": binding.resource_version}),
        json!({"op": "add", "path": "/spec/clusters", "value": clusters}),
    ];
    if !binding.annotated {
        operations.push(json!({"op": "add", "path": "/metadata/annotations", "value": {}}));
    }
    operations.push(json!({"op": "add", "path": annotation_path(APPLIED_PLACEMENT), "value": applied}));
    match plan {
        Some(plan) => operations.push(json!({"op": "add", "path": annotation_path(PLAN), "value": plan})),
        None if binding.plan.is_some() => operations.push(json!({"op": "remove", "path": annotation_path(PLAN)})),
        None => {}
    }
    build_binding_write(binding, None, Body::JsonPatch(Value::Array(operations)))
}

/// The status of a binding that is placed. `scheduled`: when, unless the status says that already.
#[must_use]
pub fn build_scheduled_status_write(
    binding: &Binding,
    affinity: Option<&str>,
    scheduled: Option<Timestamp>,
    now: Timestamp,
) -> Write {
    let mut status = json!({
        "conditions": merge_scheduled_condition(binding, ("True", SUCCESS, SUCCESS_MESSAGE), now),
        "schedulerObservedGeneration": binding.generation,
    });
    if let Some(scheduled) = scheduled {
        status["lastScheduledTime"] = format_time(scheduled).into();
    }
    if let Some(affinity) = affinity {
        status["schedulerObservingAffinityName"] = affinity.into();
    }
    build_status_patch(binding, &status)
}

/// The status of a binding that can not be placed.
#[must_use]
pub fn build_refused_status_write(binding: &Binding, reason: &str, message: &str, now: Timestamp) -> Write {
    build_status_patch(
        binding,
        &json!({"conditions": merge_scheduled_condition(binding, ("False", reason, message), now)}),
    )
}

/// Lists are replaced whole by a merge patch, so the others' conditions are sent along and the version is a
/// precondition.
fn build_status_patch(binding: &Binding, status: &Value) -> Write {
    let metadata = json!({"resourceVersion": binding.resource_version});
    build_binding_write(binding, Some("status"), Body::MergePatch(json!({"metadata": metadata, "status": status})))
}

fn merge_scheduled_condition(
    binding: &Binding,
    (status, reason, message): (&str, &str, &str),
    now: Timestamp,
) -> Vec<Value> {
    let mut conditions = binding.status.conditions.clone();
    let at = conditions.iter().position(|condition| condition["type"] == SCHEDULED);
    let same_status = at.map(|at| &conditions[at]).filter(|before| before["status"] == status);
    let since = same_status.and_then(|before| before["lastTransitionTime"].as_str().map(ToOwned::to_owned));
    let condition = json!({
        "type": SCHEDULED, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": since.unwrap_or_else(|| format_time(now)),
    });
    match at {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
    conditions
}

/// `Binding has been scheduled successfully. Result: {member1:2, member2:1}`.
#[must_use]
pub fn describe_success(targets: &[Target]) -> String {
    let targets: Vec<String> = targets.iter().map(|target| format!("{}:{}", target.cluster, target.replicas)).collect();
    format!("{SUCCESS_MESSAGE} Result: {{{}}}", targets.join(", "))
}

/// The Event about weights that can not be read.
#[must_use]
pub fn ignored_weights_event(fault: &WeightsFault, now: Timestamp) -> Write {
    build_event(&fault.on, None, EventType::Warning, SCORE_WEIGHTS_IGNORED, &fault.why, SCHEDULER_NAME, now)
}

/// Events on the binding and on its template, as karmada-scheduler writes them. A success is recorded on the template
/// only, with the binding as the related object: the condition of the binding says the same, and the writes of a job
/// bound the throughput of a host. Of a queued job that was placed at once none is recorded. Who may write bindings
/// writes any text for the template's name and namespace: none is recorded on what can not be a template of this
/// binding, for its namespace is part of the path of the write.
#[must_use]
pub fn build_schedule_events(binding: &Binding, success: bool, message: &str, now: Timestamp) -> Vec<Write> {
    let on_binding = Regarding {
        api_version: API_VERSION.to_owned(),
        kind: kind_of(binding).to_owned(),
        namespace: binding.key.namespace.clone(),
        name: binding.key.name.clone(),
        uid: binding.uid.clone(),
    };
    let on_template = Regarding {
        api_version: binding.api_version.clone(),
        kind: binding.workload.kind.clone(),
        namespace: binding.workload.namespace.clone(),
        name: binding.workload.name.clone(),
        uid: binding.place.uid.clone(),
    };
    let on_template = may_be_template(&on_binding, &on_template).then_some(on_template);
    if success {
        let succeeded = |regarding: Regarding| {
            let (related, reason) = (Some(&on_binding), SCHEDULE_BINDING_SUCCEED);
            build_event(&regarding, related, EventType::Normal, reason, message, SCHEDULER_NAME, now)
        };
        return on_template.map(succeeded).into_iter().collect();
    }
    let failed = |regarding: Regarding| {
        build_event(&regarding, None, EventType::Warning, SCHEDULE_BINDING_FAILED, message, SCHEDULER_NAME, now)
    };
    [Some(on_binding), on_template].into_iter().flatten().map(failed).collect()
}

/// Karmada makes a binding beside its template.
fn may_be_template(binding: &Regarding, template: &Regarding) -> bool {
    template.namespace == binding.namespace && is_dns_subdomain(&template.name)
}
