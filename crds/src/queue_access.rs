//! Who may use a queue, where the admin asks for that: `caldera manifests --require-queue-access`.
//!
//! Rule: whoever names a queue in a new workload, or another one than before, needs verb `use` on that Queue. The API
//! server asks its own authorizer (`authorizer` of a ValidatingAdmissionPolicy, as a SubjectAccessReview would), so
//! this holds for every kind that can be queued, and without the webhook. A workload that names none is in queue
//! `default`, which is everybody's.

use serde_json::{Value, json};

use crate::{
    names::volcano::{QUEUE, QUEUE_OLD},
    workload::WorkloadKind,
};

const NAME: &str = "queue-access.caldera.dev";

/// The policies and their bindings.
#[must_use]
pub fn queue_access_policies() -> Vec<Value> {
    let (jobs, others): (Vec<_>, Vec<_>) =
        WorkloadKind::ALL.into_iter().partition(|kind| *kind == WorkloadKind::VolcanoJob);
    let mut objects = policy(&format!("jobs.{NAME}"), &jobs, &|of| {
        format!("{of} != null && has({of}.spec.queue) && {of}.spec.queue != '' ? [{of}.spec.queue] : []")
    });
    objects.extend(policy(&format!("services.{NAME}"), &others, &|of| {
        let metadata = format!(
            "({of} == null ? [] : [{of}.metadata]) + ({of} != null && has({of}.spec.template) && \
             has({of}.spec.template.metadata) ? [{of}.spec.template.metadata] : [])"
        );
        let named = |place: &str, key: &str| {
            format!("({metadata}).filter(m, has(m.{place}) && '{key}' in m.{place}).map(m, m.{place}['{key}'])")
        };
        [named("annotations", QUEUE_OLD), named("labels", QUEUE), named("annotations", QUEUE)].join(" + ")
    }));
    objects
}

/// One policy for kinds that name queues alike: `names` lists those that `object` or `oldObject` names.
fn policy(name: &str, kinds: &[WorkloadKind], names: &dyn Fn(&str) -> String) -> Vec<Value> {
    let rule = |kind: &WorkloadKind| {
        let resource = kind.api_resource();
        json!({
            "apiGroups": [resource.group], "apiVersions": [resource.version], "resources": [resource.plural],
            "operations": ["CREATE", "UPDATE"],
        })
    };
    let labels = json!({"app.kubernetes.io/part-of": "caldera"});
    let may_use = "authorizer.group('scheduling.volcano.sh').resource('queues').name(q).check('use').allowed()";
    let wanted = "variables.names.filter(n, n != '' && !(n in variables.before))";
    vec![
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": kinds.iter().map(rule).collect::<Vec<_>>()},
                "variables": [
                    {"name": "names", "expression": names("object")},
                    {"name": "before", "expression": names("oldObject")},
                ],
                "validations": [{
                    "expression": format!("{wanted}.all(q, {may_use})"), "reason": "Forbidden",
                    "message": "the queue that is named needs verb use on queues.scheduling.volcano.sh",
                    // An API server lets no message ask its authorizer: of several queues it can not say which.
                    "messageExpression": format!(
                        "'user ' + request.userInfo.username + ' needs verb use on each queue that is named, such as ' + \
                         {wanted}[0]"
                    ),
                }],
            },
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name, "labels": labels},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        }),
    ]
}
