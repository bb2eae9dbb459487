//! The ValidatingAdmissionPolicy that nobody submits in another's name, also while the webhook is away, with its
//! binding. The webhook lets kinds other than Volcano's pass in an outage, which who sends large objects can have.
//!
//! Rule ([`crate::workload::submission`]): what is new names as its submitter nobody, or who asks. From then on both
//! stamps are as they were. What the webhook writes is within that, so nothing is refused that passed it. A time is not
//! asked about: whoever reads it holds it against the creation.
//!
//! Kubernetes' own controllers copy the annotations of a template to what they make (`getJobFromTemplate2` of
//! `pkg/controller/cronjob/utils.go`, `GetPodFromTemplate` of `pkg/controller/controller_utils.go`). They may make what
//! has them as its controller; the webhook stamps it with their name. Karmada's API server runs none that does. Other
//! controllers are asked what everybody is; trusted writers say who submitted what they make.

use serde_json::{Value, json};

use super::TrustedWriters;
use crate::{
    cel::list_in_cel,
    names::caldera::SUBMITTER,
    workload::{WorkloadKind, submission::STAMPS},
};

const NAME: &str = "submissions.caldera.dev";

/// The policy, and its binding.
#[must_use]
pub fn build_submission_policy(trusted: &TrustedWriters) -> [Value; 2] {
    let rule = |group: &str, version: &str, plural: &str| {
        json!({
            "apiGroups": [group], "apiVersions": [version], "operations": ["CREATE", "UPDATE"],
            // Who writes a Deployment's status may write its annotations with it.
            "resources": [plural, format!("{plural}/status")],
        })
    };
    let workloads = WorkloadKind::list_all().map(|kind| {
        let resource = kind.api_resource();
        rule(&resource.group, &resource.version, &resource.plural)
    });
    let makers = [
        rule("training.volcano.sh", "v1alpha1", "hyperjobs"),
        rule("batch.volcano.sh", "v1alpha1", "cronjobs"),
        rule("batch", "v1", "cronjobs"),
    ];
    let stamps = list_in_cel(STAMPS);
    let has_one = |of: &str| {
        format!("{of} != null && has({of}.metadata.annotations) && {stamps}.exists(s, s in {of}.metadata.annotations)")
    };
    let annotations =
        |of: &str| format!("{of} != null && has({of}.metadata.annotations) ? {of}.metadata.annotations : {{}}");
    let condition = |name: &str, expression: String| json!({"name": name, "expression": expression});
    let own = format!("!('{SUBMITTER}' in variables.now) || variables.now['{SUBMITTER}'] == request.userInfo.username");
    let is_controller = "(request.userInfo.username == 'system:kube-controller-manager' || \
                         has(request.userInfo.groups) && 'system:serviceaccounts:kube-system' in \
                         request.userInfo.groups) && has(object.metadata.ownerReferences) && \
                         object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller)";
    let same = format!(
        "{stamps}.all(s, (s in variables.now) == (s in variables.before) && (!(s in variables.now) || \
         variables.now[s] == variables.before[s]))"
    );
    let validation = |expression: String, message: String| json!({"expression": expression, "message": message, "reason": "Forbidden"});
    let metadata = json!({"name": NAME, "labels": {"app.kubernetes.io/part-of": "caldera"}});
    [
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": metadata,
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": workloads.chain(makers).collect::<Vec<_>>()},
                "matchConditions": [
                    condition("others", trusted.build_untrusted_expression()),
                    condition("stamped", format!("{} || {}", has_one("object"), has_one("oldObject"))),
                ],
                "variables": [
                    condition("now", annotations("object")),
                    condition("before", annotations("oldObject")),
                ],
                "validations": [
                    validation(
                        format!("oldObject != null || {own} || {is_controller}"),
                        format!("annotation {SUBMITTER} says who submitted this: nobody writes another's name; leave it out"),
                    ),
                    validation(
                        format!("oldObject == null || {same}"),
                        format!(
                            "annotations {} say who submitted this and when: they stay as they are",
                            STAMPS.join(" and ")
                        ),
                    ),
                ],
            },
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata, "spec": {"policyName": NAME, "validationActions": ["Deny"]},
        }),
    ]
}
