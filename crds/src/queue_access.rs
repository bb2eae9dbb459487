//! Who may use a queue, where the admin asks for that: `caldera manifests --require-queue-access`. And who may open and
//! close one, or suspend, restart and end a job, by a Command, always.
//!
//! Rule: whoever names a queue in a new workload, or another one than before, needs verb `use` on that Queue. The API
//! server asks its own authorizer (`authorizer` of a ValidatingAdmissionPolicy, as a SubjectAccessReview would), so
//! this holds for every kind that can be queued, and without the webhook. A workload that names none is in queue
//! `default`, which is everybody's. Whoever creates a Command that targets a Queue needs verb `update` on that Queue,
//! as if he had changed it himself: Volcano carries out Commands of every namespace
//! (`pkg/controllers/queue/queue_controller.go`). So does whoever creates one that targets a Job need verb `update` on
//! that Job of its namespace. The jobs of a HyperJob or a CronJob are made by the controller, which may: so whoever
//! writes one needs verb `create` on Jobs of its namespace, always, and `use` on the queues that its templates name,
//! where that is asked for.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    names::volcano::{QUEUE, QUEUE_OLD},
    workload::WorkloadKind,
};

const NAME: &str = "queue-access.caldera.dev";
const COMMANDS: &str = "commands.caldera.dev";
const HYPER_JOBS: &str = "hyperjobs.caldera.dev";

/// The policies and their bindings.
#[must_use]
pub fn build_queue_access_policies() -> Vec<Value> {
    let (jobs, others): (Vec<_>, Vec<_>) = WorkloadKind::list_all().partition(|kind| *kind == WorkloadKind::VolcanoJob);
    let rules = |kinds: &[WorkloadKind]| -> Vec<Value> {
        let rule = |kind: &WorkloadKind| {
            let resource = kind.api_resource();
            build_rule(&resource.group, &resource.version, &resource.plural)
        };
        kinds.iter().map(rule).collect()
    };
    let mut objects = Vec::from(build_queue_use_policy(&format!("jobs.{NAME}"), &rules(&jobs), &|of| {
        format!("{of} != null && has({of}.spec.queue) && {of}.spec.queue != '' ? [{of}.spec.queue] : []")
    }));
    let fields: BTreeSet<_> = others.iter().flat_map(|kind| kind.list_queue_fields()).collect();
    objects.extend(build_queue_use_policy(&format!("services.{NAME}"), &rules(&others), &|of| {
        let metadata = name_in_metadata(&format!(
            "({of} == null ? [] : [{of}.metadata]) + ({of} != null && has({of}.spec.template) && \
             has({of}.spec.template.metadata) ? [{of}.spec.template.metadata] : [])"
        ));
        fields.iter().fold(metadata, |names, field| format!("{names} + {}", name_in_field(of, field)))
    }));
    objects.extend(build_queue_use_policy(&format!("hyperjobs.{NAME}"), &[hyper_job_rule()], &|of| {
        format!(
            "{of} == null || !has({of}.spec) || !has({of}.spec.replicatedJobs) ? [] : {of}.spec.replicatedJobs.filter(r, \
             has(r.templateSpec) && has(r.templateSpec.queue)).map(r, r.templateSpec.queue)"
        )
    }));
    objects.extend(build_queue_use_policy(&format!("cronjobs.{NAME}"), &[cron_job_rule()], &|of| {
        let spec = format!("{of}.spec.jobTemplate.spec");
        format!(
            "{of} != null && has({of}.spec) && has({of}.spec.jobTemplate) && has({spec}) && has({spec}.queue) ? \
             [{spec}.queue] : []"
        )
    }));
    objects.extend(build_queue_use_policy(&format!("batchcronjobs.{NAME}"), &[build_rule("batch", "v1", "cronjobs")], &|of| {
        name_in_metadata(&format!(
            "({of} == null || !has({of}.spec.jobTemplate.metadata) ? [] : [{of}.spec.jobTemplate.metadata]) + ({of} != \
             null && has({of}.spec.jobTemplate.spec.template.metadata) ? [{of}.spec.jobTemplate.spec.template.metadata] \
             : [])"
        ))
    }));
    objects
}

/// The queues that metadata names, as [`queue_of`](crate::workload::queue_of) reads them.
fn name_in_metadata(metadata: &str) -> String {
    let named = |place: &str, key: &str| {
        format!("({metadata}).filter(m, has(m.{place}) && '{key}' in m.{place}).map(m, m.{place}['{key}'])")
    };
    [named("annotations", QUEUE_OLD), named("labels", QUEUE), named("annotations", QUEUE)].join(" + ")
}

/// The queue that a field of a workload's own kind names, where it is there.
fn name_in_field(of: &str, field: &[&str]) -> String {
    let (mut place, mut is_there) = (of.to_owned(), format!("{of} != null"));
    for part in field {
        place = format!("{place}.{part}");
        is_there = format!("{is_there} && has({place})");
    }
    format!("({is_there} ? [{place}] : [])")
}

/// The policy on Commands, and its binding.
#[must_use]
pub fn build_command_policy() -> [Value; 2] {
    let target = |kind: &str, may_update: &str, message: &str| {
        json!({
            "expression": format!(
                "object.target.kind != '{kind}' || has(object.target.name) && object.target.name != '' && {may_update}"
            ),
            "reason": "Forbidden",
            "message": message,
        })
    };
    let job = "authorizer.group('batch.volcano.sh').resource('jobs').namespace(object.metadata.namespace)\
               .name(object.target.name).check('update').allowed()";
    build_policy_with_binding(
        COMMANDS,
        json!({
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["bus.volcano.sh"], "apiVersions": ["v1alpha1"], "resources": ["commands"],
                "operations": ["CREATE", "UPDATE"],
            }]},
            "matchConditions": [{
                "name": "targets-a-queue-or-a-job",
                "expression":
                    "has(object.target) && has(object.target.kind) && object.target.kind in ['Queue', 'Job']",
            }],
            "variables": [],
            "validations": [
                target(
                    "Queue",
                    &build_permission_expression("object.target.name", "update"),
                    "a Command that targets a Queue needs verb update on that queue",
                ),
                target("Job", job, "a Command that targets a Job needs verb update on that job"),
            ],
        }),
    )
}

/// The policy on HyperJobs and CronJobs, and its binding.
#[must_use]
pub fn build_hyper_job_policy() -> [Value; 2] {
    build_policy_with_binding(
        HYPER_JOBS,
        json!({
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [hyper_job_rule(), cron_job_rule()]},
            "matchConditions": [{
                "name": "changed",
                "expression": "request.operation == 'CREATE' || has(object.spec) != has(oldObject.spec) || \
                               has(object.spec) && object.spec != oldObject.spec",
            }],
            "variables": [],
            "validations": [{
                "expression": "authorizer.group('batch.volcano.sh').resource('jobs')\
                               .namespace(object.metadata.namespace).check('create').allowed()",
                "reason": "Forbidden",
                "message": "Jobs are made of it: it needs verb create on jobs.batch.volcano.sh of its namespace",
            }],
        }),
    )
}

fn hyper_job_rule() -> Value {
    build_rule("training.volcano.sh", "v1alpha1", "hyperjobs")
}

fn cron_job_rule() -> Value {
    build_rule("batch.volcano.sh", "v1alpha1", "cronjobs")
}

fn build_rule(group: &str, version: &str, plural: &str) -> Value {
    json!({"apiGroups": [group], "apiVersions": [version], "resources": [plural], "operations": ["CREATE", "UPDATE"]})
}

fn build_permission_expression(queue: &str, verb: &str) -> String {
    format!("authorizer.group('scheduling.volcano.sh').resource('queues').name({queue}).check('{verb}').allowed()")
}

/// A policy that denies, and its binding.
fn build_policy_with_binding(name: &str, spec: Value) -> [Value; 2] {
    let metadata = json!({"name": name, "labels": {"app.kubernetes.io/part-of": "caldera"}});
    [
        ("ValidatingAdmissionPolicy", spec),
        ("ValidatingAdmissionPolicyBinding", json!({"policyName": name, "validationActions": ["Deny"]})),
    ]
    .map(|(kind, spec)| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec,
        })
    })
}

/// One policy for kinds that name queues alike: `names` lists those that `object` or `oldObject` names.
fn build_queue_use_policy(name: &str, rules: &[Value], names: &dyn Fn(&str) -> String) -> [Value; 2] {
    let may_use = build_permission_expression("q", "use");
    let wanted = "variables.names.filter(n, n != '' && !(n in variables.before))";
    build_policy_with_binding(
        name,
        json!({
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": rules},
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
        }),
    )
}

#[cfg(test)]
mod tests {
    use kube_cel::{
        KubeCelExt,
        cel::{Context, Program, Value as CelValue, to_value},
    };

    use super::*;

    #[test]
    fn a_queue_in_a_field_of_another_projects_job_is_asked_about() {
        let policies = build_queue_access_policies();
        let services = policies.iter().find(|policy| policy["metadata"]["name"] == "services.queue-access.caldera.dev");
        let names = services.unwrap()["spec"]["variables"][0]["expression"].as_str().unwrap();
        let named = |spec: Value| {
            let mut context = Context::default().with_all();
            context.add_variable_from_value("object", to_value(json!({"metadata": {}, "spec": spec})).unwrap());
            match Program::compile(names).unwrap().execute(&context).unwrap() {
                CelValue::List(all) => all.len(),
                other => panic!("{other:?} is no list"),
            }
        };
        assert_eq!(named(json!({"runPolicy": {"schedulingPolicy": {"queue": "q"}}})), 1);
        assert_eq!(named(json!({"batchSchedulerOptions": {"queue": "q"}})), 1);
        for none in [json!({}), json!({"runPolicy": {}}), json!({"runPolicy": {"schedulingPolicy": {}}})] {
            assert_eq!(named(none), 0);
        }
    }
}
