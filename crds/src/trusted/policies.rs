//! The three ValidatingAdmissionPolicies that hold [`super::find_protected_change`] while the webhook is away, each
//! with its binding: of bindings that Caldera has in hand (annotations, spec, status, end of the suspension), of the
//! bindings of all workloads (namespace, name, id, finalizer, clusters), and of Works that carry a workload (anything).
//! A workload is one in whichever version of its kind.
//! Status is protected here alone: the webhook is not asked about it. Trusted writers are exempt by match condition.

use serde_json::{Value, json};

use super::{BINDING_ANNOTATIONS, BINDING_SPEC, PLACED_SPEC, REFUSED_TO_OTHERS, TrustedWriters};
use crate::{
    cel::list_in_cel,
    names::{
        caldera::{ADMISSION, GATE, GATE_CLOSED, SCHEDULER_NAME},
        karmada::{BINDING_FINALIZER, BINDING_ID},
    },
    workload::{WorkloadKind, kind_names::match_kinds_in_cel},
};

/// The policies, with their bindings, that hold the same without the webhook, and for the statuses.
#[must_use]
pub fn build_admission_policies(trusted: &TrustedWriters) -> Vec<Value> {
    let condition = |name: &str, expression: String| json!({"name": name, "expression": expression});
    let others = || condition("others", trusted.build_untrusted_expression());
    let policy = |name: &str, version: &str, plural: &str, matching: Value, variables: Value, rules: Value| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "caldera"}},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": ["work.karmada.io"], "apiVersions": [version], "operations": ["CREATE", "UPDATE"],
                    "resources": [plural, format!("{plural}/status")],
                }]},
                "matchConditions": [others(), matching], "variables": variables, "validations": rules,
            },
        })
    };
    let bound = |name: &str| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "caldera"}},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        })
    };
    let rule = |expression: String, message: &str| {
        let message = format!("{message} {REFUSED_TO_OTHERS}");
        json!({"expression": expression, "message": message, "reason": "Forbidden"})
    };
    let is_status = "(has(request.subResource) && request.subResource == 'status')";
    let variable = |name: &str, expression: String| json!({"name": name, "expression": expression});
    let annotations =
        |of: &str| format!("{of} != null && has({of}.metadata.annotations) ? {of}.metadata.annotations : {{}}");
    let is_managed_by_caldera = |of: &str| {
        format!(
            "({of} != null && ({} || has({of}.metadata.annotations) && ['{GATE}', '{ADMISSION}'].exists(a, a in \
             {of}.metadata.annotations)))",
            match_kinds_in_cel([WorkloadKind::VolcanoJob], &format!("{of}.spec.resource"))
        )
    };
    let unsuspended = "!(has(object.spec.suspension) && has(object.spec.suspension.scheduling) && \
                       object.spec.suspension.scheduling)";
    let mut rules = vec![
        rule(format!("!{is_status}"), "status"),
        rule(
            format!(
                "{}.all(a, (a in variables.now) == (a in variables.before) && (!(a in variables.now) || \
                 variables.now[a] == variables.before[a]) || a == '{GATE}' && variables.closes)",
                list_in_cel(BINDING_ANNOTATIONS)
            ),
            "what is admitted (annotations caldera.dev)",
        ),
        rule(
            format!(
                "!('{GATE}' in variables.before && variables.before['{GATE}'] == '{GATE_CLOSED}' && {unsuspended})"
            ),
            "the end of the suspension that keeps a job in its queue",
        ),
    ];
    rules.extend(BINDING_SPEC.map(|field| {
        let (now, before) = (format!("object.spec.{field}"), format!("oldObject.spec.{field}"));
        let is_empty = |of: &str, value: &str| match field {
            "resource" => "false".to_owned(),
            "clusters" | "components" | "gracefulEvictionTasks" | "requiredBy" => {
                format!("(!has({value}) || size({value}) == 0)")
            }
            _ => format!("(!has({of}.spec.{field}))"),
        };
        let (none_now, none_before) = (is_empty("object", &now), is_empty("oldObject", &before));
        let created = if PLACED_SPEC.contains(&field) { none_now.as_str() } else { "true" };
        let same = format!("({none_now} && {none_before} || !{none_now} && !{none_before} && {now} == {before})");
        let ours = if field == "schedulerName" {
            format!(" || has({now}) && {now} == '{SCHEDULER_NAME}'")
        } else {
            String::new()
        };
        rule(format!("oldObject == null ? {created} : ({same}{ours})"), &format!("spec.{field}"))
    }));
    let bindings = policy(
        "bindings.caldera.dev",
        "v1alpha2",
        "resourcebindings",
        condition("queued", format!("{} || {}", is_managed_by_caldera("object"), is_managed_by_caldera("oldObject"))),
        json!([
            variable("now", annotations("object")),
            variable("before", annotations("oldObject")),
            variable(
                "closes",
                format!(
                    "'{GATE}' in variables.now && variables.now['{GATE}'] == '{GATE_CLOSED}' && \
                     !('{ADMISSION}' in variables.now) && !({unsuspended})"
                )
            ),
        ]),
        rules.into(),
    );
    let is_of_queueable_workload = |of: &str| {
        let of_kinds = match_kinds_in_cel(WorkloadKind::list_all(), &format!("{of}.spec.resource"));
        format!("({of} != null && {of_kinds})")
    };
    let same_id = format!(
        "variables.id == '' || has(object.metadata.labels) && '{BINDING_ID}' in object.metadata.labels && \
         object.metadata.labels['{BINDING_ID}'] == variables.id"
    );
    let holds =
        |of: &str| format!("has({of}.metadata.finalizers) && '{BINDING_FINALIZER}' in {of}.metadata.finalizers");
    let mut kept = vec![
        rule(
            "has(object.spec.resource.namespace) && object.spec.resource.namespace == object.metadata.namespace || \
             oldObject != null && object.spec.resource == oldObject.spec.resource"
                .to_owned(),
            "spec.resource of a workload of another namespace",
        ),
        rule(
            "oldObject != null || has(object.spec.resource.name) && object.metadata.name == \
             (object.spec.resource.name + '-' + object.spec.resource.kind).lowerAscii().replace(':', '.')"
                .to_owned(),
            "metadata.name of a workload's binding",
        ),
        rule(same_id, &format!("metadata.labels[{BINDING_ID}]")),
        rule(
            format!("oldObject == null || !({}) || {}", holds("oldObject"), holds("object")),
            &format!("metadata.finalizers, {BINDING_FINALIZER},"),
        ),
    ];
    kept.extend(PLACED_SPEC.map(|field| {
        let (now, before) = (format!("object.spec.{field}"), format!("oldObject.spec.{field}"));
        let is_empty = |value: &str| format!("(!has({value}) || size({value}) == 0)");
        let (none_now, none_before) = (is_empty(&now), is_empty(&before));
        let same = format!("({none_now} && {none_before} || !{none_now} && !{none_before} && {now} == {before})");
        rule(format!("oldObject == null ? {none_now} : {same}"), &format!("spec.{field}"))
    }));
    let of_workloads = policy(
        "workload-bindings.caldera.dev",
        "v1alpha2",
        "resourcebindings",
        condition(
            "of-a-workload",
            format!("{} || {}", is_of_queueable_workload("object"), is_of_queueable_workload("oldObject")),
        ),
        json!([variable(
            "id",
            format!(
                "oldObject != null && has(oldObject.metadata.labels) && '{BINDING_ID}' in oldObject.metadata.labels ? \
                 oldObject.metadata.labels['{BINDING_ID}'] : ''"
            )
        )]),
        kept.into(),
    );
    let of_kinds = match_kinds_in_cel(WorkloadKind::list_all(), "m");
    let carries = |of: &str| {
        format!(
            "({of} != null && has({of}.spec.workload) && has({of}.spec.workload.manifests) && \
             {of}.spec.workload.manifests.exists(m, {of_kinds}))"
        )
    };
    let kept = |field: &str| {
        let (now, before) = (format!("object.metadata.{field}"), format!("oldObject.metadata.{field}"));
        format!("has({now}) == has({before}) && (!has({now}) || {now} == {before})")
    };
    let works = policy(
        "works.caldera.dev",
        "v1alpha1",
        "works",
        condition("carries-a-workload", format!("{} || {}", carries("object"), carries("oldObject"))),
        json!([]),
        json!([
            rule(format!("!{is_status}"), "the status of a Work"),
            rule(
                format!(
                    "oldObject != null && object.spec == oldObject.spec && {} && {}",
                    kept("annotations"),
                    kept("labels")
                ),
                "a Work that carries a workload",
            ),
        ]),
    );
    let bound_workloads = bound("workload-bindings.caldera.dev");
    vec![bindings, bound("bindings.caldera.dev"), of_workloads, bound_workloads, works, bound("works.caldera.dev")]
}
