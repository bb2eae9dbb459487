//! The three configurations by which the API server and Karmada find the webhook: mutating (gate, plan, defaults),
//! validating (jobs, CronJobs, HyperJobs, queues), and Karmada's resource interpreter for Volcano Jobs.
//!
//! What an outage stops (`failurePolicy`): jobs, CronJobs, HyperJobs and queues; bindings of Volcano Jobs, and those of
//! other kinds in namespaces that opted in; Works of Volcano Jobs, of what names a queue, and of a workload's binding
//! that carry another kind. Other bindings go on, since they do not tell whether their workload names a queue, and so
//! do other Works, and all of kinds that were told by data since it was registered. Who acts on members, settings and
//! other workloads, and by Commands, is not known then.
//!
//! Who is asked about (`matchConditions`, `namespaceSelector`): only our kinds, and not an update of a job's metadata,
//! nor of a gated binding in which neither spec nor annotations change, nor one of a gated binding by our own
//! controller if its account is trusted: it only ever takes a plan away. The scheduler's updates are asked about: a
//! plan has to be known before its Works come.
//!
//! Order: the name sorts after Karmada's `mutating-config`, so that bindings and Works carry Karmada's ids already;
//! bindings are asked about again (`reinvocationPolicy`) if another webhook rewrites them. All mutations are
//! idempotent.

use std::collections::BTreeSet;

use base64::{Engine, engine::general_purpose::STANDARD};
use caldera_crds::{
    action::{ACTION_STAMPS, SETTINGS, WORKLOAD_ACTIONS},
    names::caldera,
    trusted::{CONTROLLER_ACCOUNT, TrustedWriters},
    workload::{WorkloadKind, kind_names::RESERVED_GROUPS, submission::STAMPS},
};
use serde_json::{Value, json};

/// Where the webhook is, as its callers reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// `https://host:port`.
    Url(String),
    /// A Service of the API server's cluster.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its port.
        port: u16,
    },
}

const VOLCANO_KIND: &str =
    "object.spec.resource.apiVersion == 'batch.volcano.sh/v1alpha1' && object.spec.resource.kind == 'Job'";
const HAS_PLACEMENT: &str = "has(object.spec.placement)";

/// The kinds that can be queued, as CEL tells them from others.
struct KindsInCel {
    /// Those that are queued only where they ask for it: pairs of version and kind.
    others: String,
}

impl KindsInCel {
    fn new() -> Self {
        let others = WorkloadKind::list_all().filter(|kind| *kind != WorkloadKind::VolcanoJob);
        let pairs: Vec<String> = others.map(|kind| format!("['{}', '{}']", kind.api_version(), kind.kind())).collect();
        Self { others: format!("[{}]", pairs.join(", ")) }
    }

    fn match_other_kind(&self) -> String {
        format!(
            "{}.exists(k, k[0] == object.spec.resource.apiVersion && k[1] == object.spec.resource.kind)",
            self.others
        )
    }

    /// Whether a Work carries a Volcano Job, or a workload of another kind that names a queue, on itself or its pods.
    fn match_queued_work(&self) -> String {
        format!(
            "has(object.spec.workload) && has(object.spec.workload.manifests) && \
             object.spec.workload.manifests.exists(m, m.apiVersion == 'batch.volcano.sh/v1alpha1' && \
             m.kind == 'Job' || {}.exists(k, k[0] == m.apiVersion && k[1] == m.kind) && \
             [m.metadata, has(m.spec) && has(m.spec.template) && has(m.spec.template.metadata) ? \
             m.spec.template.metadata : m.metadata].exists(p, {NAMES_QUEUE}))",
            self.others
        )
    }

    /// The others of those kinds. Those of namespaces that opted in are queued, which a Work does not tell.
    fn match_other_work(&self) -> String {
        format!(
            "has(object.spec.workload) && has(object.spec.workload.manifests) && \
             object.spec.workload.manifests.exists(m, {}.exists(k, k[0] == m.apiVersion && k[1] == m.kind))",
            self.others
        )
    }

    /// The Work of a workload's binding, by the name that Karmada gives bindings, which carries none: an override
    /// changed its kind.
    fn match_workload_binding(&self) -> String {
        let endings: BTreeSet<String> =
            WorkloadKind::list_all().map(|kind| format!("'-{}'", kind.kind().to_lowercase())).collect();
        let endings: Vec<String> = endings.into_iter().collect();
        format!(
            "has(object.metadata.annotations) && 'resourcebinding.karmada.io/name' in object.metadata.annotations && \
             [{}].exists(k, object.metadata.annotations['resourcebinding.karmada.io/name'].endsWith(k))",
            endings.join(", ")
        )
    }

    /// Whether a binding is of a kind that may be told by data, and was not when the webhook was registered.
    fn match_undeclared_kind(&self) -> String {
        let of = "object.spec.resource";
        format!("{} && !({}) && !({VOLCANO_KIND})", match_own_group(of), self.match_other_kind())
    }

    /// The same of a Work that carries one.
    fn match_undeclared_work(&self) -> String {
        format!(
            "has(object.spec.workload) && has(object.spec.workload.manifests) && \
             object.spec.workload.manifests.exists(m, {} && !{}.exists(k, k[0] == m.apiVersion && k[1] == m.kind))",
            match_own_group("m"),
            self.others
        )
    }

    fn match_work_without_workload(&self) -> String {
        format!(
            "!(has(object.spec.workload) && has(object.spec.workload.manifests) && \
             object.spec.workload.manifests.exists(m, ([['batch.volcano.sh/v1alpha1', 'Job']] + {}).exists(k, \
             k[0] == m.apiVersion && k[1] == m.kind)))",
            self.others
        )
    }
}

/// Whether an object's group may be that of a kind told by data.
fn match_own_group(of: &str) -> String {
    let reserved = RESERVED_GROUPS.map(|group| format!("'{group}/'")).join(", ");
    format!("{of}.apiVersion.contains('.') && ![{reserved}].exists(g, {of}.apiVersion.contains(g))")
}

/// Whether metadata `p` names a queue.
const NAMES_QUEUE: &str = "['volcano.sh/queue-name', 'scheduling.volcano.sh/queue-name'].exists(q, \
                           has(p.annotations) && q in p.annotations || has(p.labels) && q in p.labels)";

/// Whether a Work carries a CronJob of Volcano, or one whose jobs name a queue, on themselves or their pods.
fn match_queued_cron_job() -> String {
    let template = "m.spec.jobTemplate";
    format!(
        "has(object.spec.workload) && has(object.spec.workload.manifests) && \
         object.spec.workload.manifests.exists(m, m.kind == 'CronJob' && \
         (m.apiVersion.startsWith('batch.volcano.sh/') || m.apiVersion.startsWith('batch/') && has(m.spec) && \
         has({template}) && ((has({template}.metadata) ? [{template}.metadata] : []) + (has({template}.spec) && \
         has({template}.spec.template) && has({template}.spec.template.metadata) ? [{template}.spec.template.metadata] \
         : [])).exists(p, {NAMES_QUEUE})))"
    )
}

/// Whether it carries any of Kubernetes. Those of namespaces that opted in are queued, which a Work does not tell.
const CRON_JOB: &str = "has(object.spec.workload) && has(object.spec.workload.manifests) && \
     object.spec.workload.manifests.exists(m, m.kind == 'CronJob' && m.apiVersion.startsWith('batch/'))";

/// Whether a Work carries a JobFlow of Volcano.
const JOB_FLOW: &str = "has(object.spec.workload) && has(object.spec.workload.manifests) && \
     object.spec.workload.manifests.exists(m, m.kind == 'JobFlow' && m.apiVersion.startsWith('flow.volcano.sh/'))";

/// Whether it carries a PodGroup of Volcano.
const POD_GROUP: &str = "has(object.spec.workload) && has(object.spec.workload.manifests) && \
     object.spec.workload.manifests.exists(m, m.kind == 'PodGroup' && m.apiVersion.startsWith('scheduling.volcano.sh/'))";

/// Of an update with the same spec nothing is filled in, and none is refused.
const NEW_SPEC: &str = "request.operation == 'CREATE' || has(object.spec) != has(oldObject.spec) || \
                        has(object.spec) && object.spec != oldObject.spec";
/// Whether one of these annotations is another one than before.
fn match_changed_annotations<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("'{name}'")).collect();
    let value = |of: &str| {
        format!(
            "({of} != null && has({of}.metadata.annotations) && s in {of}.metadata.annotations ? \
                            {of}.metadata.annotations[s] : '')"
        )
    };
    format!("[{}].exists(s, {} != {})", names.join(", "), value("object"), value("oldObject"))
}

/// Nor is a job changed where its stamps are the same too, and what users act on jobs by.
fn match_new_spec_or_stamps() -> String {
    let stamps = STAMPS.into_iter().chain(ACTION_STAMPS).chain(WORKLOAD_ACTIONS);
    format!("{NEW_SPEC} || {}", match_changed_annotations(stamps))
}

/// What makes jobs is changed only where its stamps are.
fn match_new_stamps() -> String {
    format!("request.operation == 'CREATE' || {}", match_changed_annotations(STAMPS))
}

/// Whether a user acts on a workload, or makes one that has stamps already.
fn match_new_actions() -> String {
    let acts = match_changed_annotations(ACTION_STAMPS.into_iter().chain(WORKLOAD_ACTIONS));
    let stamps = ACTION_STAMPS.map(|name| format!("'{name}' in object.metadata.annotations"));
    let is_stamped = format!("has(object.metadata.annotations) && ({})", stamps.join(" || "));
    format!("request.operation == 'CREATE' ? {is_stamped} : {acts}")
}

/// Whether an admin acts on a member: by its taints, or by an annotation. A new one may have stamps already.
const NEW_CLUSTER: &str = "request.operation == 'CREATE' || \
     has(object.spec.taints) != has(oldObject.spec.taints) || \
     has(object.spec.taints) && object.spec.taints != oldObject.spec.taints || \
     has(object.metadata.annotations) != has(oldObject.metadata.annotations) || \
     has(object.metadata.annotations) && object.metadata.annotations != oldObject.metadata.annotations";
/// Nor is one refused, where its annotations are the same too.
const NEW_SPEC_OR_ANNOTATIONS: &str = "request.operation == 'CREATE' || \
     has(object.spec) != has(oldObject.spec) || has(object.spec) && object.spec != oldObject.spec || \
     has(object.metadata.annotations) != has(oldObject.metadata.annotations) || \
     has(object.metadata.annotations) && object.metadata.annotations != oldObject.metadata.annotations";
/// What is protected of a binding, and what its gate depends on, is in its spec and its annotations. One that has no
/// gate yet gets it at any update.
const NEW_BINDING: &str = "request.operation == 'CREATE' || object.spec != oldObject.spec || \
     !has(object.metadata.annotations) || !('caldera.dev/gate' in object.metadata.annotations) || \
     !has(oldObject.metadata.annotations) || object.metadata.annotations != oldObject.metadata.annotations";

/// Not an update of a gated binding by our controller that has a record or is suspended. Nobody else has the account's
/// name: the API server says it. Without a record its gate would be closed again, whoever opened it.
const BY_OTHERS: &str = "request.operation == 'CREATE' || \
     request.userInfo.username != 'system:serviceaccount:caldera-system:caldera-controller' || \
     ![object, oldObject].all(b, has(b.metadata.annotations) && 'caldera.dev/gate' in b.metadata.annotations) || \
     !('caldera.dev/admission' in object.metadata.annotations || has(object.spec.suspension) && \
     has(object.spec.suspension.scheduling) && object.spec.suspension.scheduling)";

/// Group, version and plural.
type ResourceOf = (&'static str, &'static str, &'static str);
const BINDINGS: ResourceOf = ("work.karmada.io", "v1alpha2", "resourcebindings");
const WORKS: ResourceOf = ("work.karmada.io", "v1alpha1", "works");
const JOBS: ResourceOf = ("batch.volcano.sh", "v1alpha1", "jobs");
const HYPER_JOBS: ResourceOf = ("training.volcano.sh", "v1alpha1", "hyperjobs");
const CRON_JOBS: ResourceOf = ("batch.volcano.sh", "v1alpha1", "cronjobs");
const QUEUES: ResourceOf = ("scheduling.volcano.sh", "v1beta1", "queues");
const COMMANDS: ResourceOf = ("bus.volcano.sh", "v1alpha1", "commands");
const CLUSTERS: ResourceOf = ("cluster.karmada.io", "v1alpha1", "clusters");
const CONFIG_MAPS: ResourceOf = ("", "v1", "configmaps");

/// Name and CEL expression of a match condition.
type Condition<'a> = (&'static str, &'a str);

/// All configurations for a webhook at `endpoint` whose certificate `ca_pem` signed (empty: public roots), where the
/// trusted writers are the default.
#[must_use]
pub fn build_configurations(endpoint: &Endpoint, ca_pem: &str) -> Vec<Value> {
    build_configurations_for(endpoint, ca_pem, &TrustedWriters::default())
}

/// The same where they are others.
#[must_use]
pub fn build_configurations_for(endpoint: &Endpoint, ca_pem: &str, trusted: &TrustedWriters) -> Vec<Value> {
    let is_controller_trusted = trusted.trusts(CONTROLLER_ACCOUNT, []);
    let client_config = |path: &str| {
        let mut config = match endpoint {
            Endpoint::Url(url) => json!({"url": format!("{url}{path}")}),
            Endpoint::Service { namespace, name, port } => {
                json!({"service": {"namespace": namespace, "name": name, "port": port, "path": path}})
            }
        };
        if !ca_pem.is_empty() {
            config["caBundle"] = STANDARD.encode(ca_pem).into();
        }
        config
    };
    let hook = |name: &str, path: &str, (group, version, resource): ResourceOf, conditions: &[Condition<'_>]| {
        let operations: &[&str] =
            if path == "/validate-queue" { &["CREATE", "UPDATE", "DELETE"] } else { &["CREATE", "UPDATE"] };
        let mut hook = json!({
            "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 5,
            "failurePolicy": "Fail", "matchPolicy": "Equivalent", "clientConfig": client_config(path),
            "rules": [{
                "operations": operations, "apiGroups": [group], "apiVersions": [version], "resources": [resource],
                "scope": "*",
            }],
        });
        if !conditions.is_empty() {
            let condition = |(name, expression): &Condition<'_>| json!({"name": name, "expression": expression});
            hook["matchConditions"] = conditions.iter().map(condition).collect();
        }
        hook
    };
    let binding_hook = |name: &str, kind: Condition<'_>| {
        let mut conditions = vec![("has-placement", HAS_PLACEMENT), ("changed", NEW_BINDING), kind];
        conditions.extend(is_controller_trusted.then_some(("by-others", BY_OTHERS)));
        let mut hook = hook(name, "/mutate-resourcebinding", BINDINGS, &conditions);
        hook["reinvocationPolicy"] = "IfNeeded".into();
        hook
    };
    let opted_in = |operator: &str| {
        json!({"matchExpressions": [{
            "key": caldera::NAMESPACE_OPT_IN, "operator": operator, "values": [caldera::NAMESPACE_OPT_IN_VALUE],
        }]})
    };
    let kinds = KindsInCel::new();
    let other_kind = kinds.match_other_kind();
    let mut in_namespace = binding_hook("namespaces.gate.caldera.dev", ("queueable-kind", &other_kind));
    in_namespace["namespaceSelector"] = opted_in("In");
    // Elsewhere only those that name a queue are in scope, which a binding does not tell: an outage must not stop them.
    let mut elsewhere = binding_hook("services.gate.caldera.dev", ("queueable-kind", &other_kind));
    elsewhere["namespaceSelector"] = opted_in("NotIn");
    elsewhere["failurePolicy"] = "Ignore".into();
    let (carries_queued, carries_other) = (kinds.match_queued_work(), kinds.match_other_work());
    let names_none = format!("!({carries_queued})");
    let is_other = [("queueable-kind", carries_other.as_str()), ("names-no-queue", names_none.as_str())];
    let mut other_works = hook("services.plan.caldera.dev", "/mutate-work", WORKS, &is_other);
    other_works["failurePolicy"] = "Ignore".into();
    // Kinds that are told later are known to the webhook alone: an outage stops no object of a kind that is not ours.
    let (undeclared, carries_undeclared) = (kinds.match_undeclared_kind(), kinds.match_undeclared_work());
    let mut undeclared = binding_hook("declared.gate.caldera.dev", ("custom-resource", &undeclared));
    let mut undeclared_works =
        hook("declared.plan.caldera.dev", "/mutate-work", WORKS, &[("custom-resource", &carries_undeclared)]);
    undeclared["failurePolicy"] = "Ignore".into();
    undeclared_works["failurePolicy"] = "Ignore".into();
    let queued_cron_job = match_queued_cron_job();
    let names_none = format!("!({queued_cron_job})");
    let is_other = [("cron-job", CRON_JOB), ("names-no-queue", names_none.as_str())];
    let mut cron_jobs = hook("namespaces.plan.caldera.dev", "/mutate-work", WORKS, &is_other);
    cron_jobs["failurePolicy"] = "Ignore".into();
    // Who acts is not known of what an outage lets through, and nothing waits for it.
    let action_hook = |name: &str, resource: ResourceOf, condition: Option<Condition<'_>>| {
        let mut hook = hook(
            &format!("{name}.actions.caldera.dev"),
            "/stamp-action",
            resource,
            &condition.into_iter().collect::<Vec<_>>(),
        );
        (hook["failurePolicy"], hook["timeoutSeconds"]) = ("Ignore".into(), 2.into());
        hook
    };
    let is_settings = format!("object.metadata.name == '{SETTINGS}'");
    let acts = match_new_actions();
    let mut services = action_hook("services", JOBS, Some(("changed", &acts)));
    let others = WorkloadKind::list_all().filter(|kind| *kind != WorkloadKind::VolcanoJob).map(|kind| {
        let resource = kind.api_resource();
        json!({
            "operations": ["CREATE", "UPDATE"], "apiGroups": [resource.group], "apiVersions": [resource.version],
            "resources": [resource.plural], "scope": "*",
        })
    });
    services["rules"] = others.collect();
    let mutating = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "queue.caldera.dev"},
        "webhooks": [
            binding_hook("jobs.gate.caldera.dev", ("volcano-job", VOLCANO_KIND)),
            in_namespace,
            elsewhere,
            undeclared,
            hook("works.plan.caldera.dev", "/mutate-work", WORKS, &[("queued", &carries_queued)]),
            other_works,
            undeclared_works,
            hook("cronjobs.plan.caldera.dev", "/mutate-work", WORKS, &[("queued", &queued_cron_job)]),
            cron_jobs,
            hook("jobflows.plan.caldera.dev", "/mutate-work", WORKS, &[("job-flow", JOB_FLOW)]),
            hook("podgroups.plan.caldera.dev", "/mutate-work", WORKS, &[("pod-group", POD_GROUP)]),
            hook(
                "overridden.plan.caldera.dev",
                "/mutate-work",
                WORKS,
                &[("of-a-workload", &kinds.match_workload_binding()), ("carries-none", &kinds.match_work_without_workload())],
            ),
            hook("jobs.defaults.caldera.dev", "/mutate-job", JOBS, &[("changed", &match_new_spec_or_stamps())]),
            hook("hyperjobs.submission.caldera.dev", "/stamp-submission", HYPER_JOBS, &[("changed", &match_new_stamps())]),
            hook("cronjobs.submission.caldera.dev", "/stamp-submission", CRON_JOBS, &[("changed", &match_new_stamps())]),
            hook("queues.defaults.caldera.dev", "/mutate-queue", QUEUES, &[]),
            action_hook("commands", COMMANDS, None),
            action_hook("clusters", CLUSTERS, Some(("changed", NEW_CLUSTER))),
            action_hook("settings", CONFIG_MAPS, Some(("settings", &is_settings))),
            services,
        ],
    });
    let validating = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "queue.caldera.dev"},
        "webhooks": [
            hook("jobs.rules.caldera.dev", "/validate-job", JOBS, &[("changed", NEW_SPEC_OR_ANNOTATIONS)]),
            hook("cronjobs.rules.caldera.dev", "/validate-cronjob", CRON_JOBS, &[("changed", NEW_SPEC)]),
            hook("hyperjobs.rules.caldera.dev", "/validate-hyperjob", HYPER_JOBS, &[("changed", NEW_SPEC)]),
            hook("queues.rules.caldera.dev", "/validate-queue", QUEUES, &[]),
        ],
    });
    let interpreter = json!({
        "apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterWebhookConfiguration",
        "metadata": {"name": "caldera"},
        "webhooks": [{
            "name": "volcano-jobs.caldera.dev", "clientConfig": client_config("/interpreter"),
            "interpreterContextVersions": ["v1alpha1"], "timeoutSeconds": 5,
            "rules": [{
                "operations": [
                    "InterpretReplica", "InterpretComponent", "ReviseReplica", "Retain", "AggregateStatus",
                    "InterpretStatus", "InterpretHealth", "InterpretDependency",
                ],
                "apiGroups": ["batch.volcano.sh"], "apiVersions": ["v1alpha1"], "kinds": ["Job"],
            }],
        }],
    });
    vec![mutating, validating, interpreter]
}

#[cfg(test)]
mod tests {
    use kube_cel::{
        KubeCelExt,
        cel::{Context, Program, Value as CelValue, to_value},
    };

    use super::*;

    #[test]
    fn a2_22_every_hook_on_bindings_and_works_is_limited_to_our_kinds() {
        let all = build_configurations(&Endpoint::Url("https://h:1".into()), "");
        for hook in all[0]["webhooks"].as_array().unwrap() {
            if hook["rules"][0]["apiGroups"][0] == "work.karmada.io" {
                assert!(!hook["matchConditions"].as_array().unwrap().is_empty(), "{hook}");
            }
        }
        // Ours is called after Karmada's `mutating-config`.
        assert!(all[0]["metadata"]["name"].as_str().unwrap() > "mutating-config");
    }

    fn holds(expression: &str, old: Option<&Value>, new: &Value) -> bool {
        let request = json!({"operation": if old.is_some() { "UPDATE" } else { "CREATE" }});
        holds_for(expression, &request, old, new)
    }

    fn holds_for(expression: &str, request: &Value, old: Option<&Value>, new: &Value) -> bool {
        let mut context = Context::default().with_all();
        for (name, value) in [("object", Some(new)), ("oldObject", old), ("request", Some(request))] {
            context.add_variable_from_value(name, to_value(value).unwrap());
        }
        Program::compile(expression).unwrap().execute(&context).unwrap() == CelValue::Bool(true)
    }

    /// What a condition keeps from us is what the rules leave alone.
    #[test]
    fn a_job_is_reviewed_when_it_is_made_and_when_its_spec_or_its_annotations_change() {
        let new_spec_or_stamps = match_new_spec_or_stamps();
        let annotations = json!({"a": "1", "caldera.dev/submitted": "1"});
        let job = json!({"metadata": {"name": "j", "annotations": annotations}, "spec": {"minAvailable": 1}});
        let with = |pointer: &str, value: Value| {
            let mut changed = job.clone();
            *changed.pointer_mut(pointer).unwrap() = value;
            changed
        };
        let finalized = with("/metadata", json!({"name": "j", "annotations": annotations, "finalizers": ["f"]}));
        for (new, told) in [
            (&job, [false, false, false]),
            (&finalized, [false, false, false]),
            (&with("/spec/minAvailable", json!(2)), [true, true, true]),
            (&with("/metadata/annotations/a", json!("2")), [false, false, true]),
            (&with("/metadata/annotations/caldera.dev~1submitted", json!("2")), [false, true, true]),
            (&with("/metadata/annotations", json!({"a": "1"})), [false, true, true]),
            (&with("/metadata", json!({"name": "j"})), [false, true, true]),
            (
                &with(
                    "/metadata/annotations",
                    json!({"a": "1", "caldera.dev/submitted": "1", "caldera.dev/hold": "true"}),
                ),
                [false, true, true],
            ),
        ] {
            let is_told = [NEW_SPEC, &new_spec_or_stamps, NEW_SPEC_OR_ANNOTATIONS]
                .map(|condition| holds(condition, Some(&job), new));
            assert_eq!(is_told, told, "{new}");
        }
        assert!([NEW_SPEC, &new_spec_or_stamps, NEW_SPEC_OR_ANNOTATIONS].iter().all(|one| holds(one, None, &job)));
        let new_stamps = match_new_stamps();
        let stamped_anew = with("/metadata/annotations/caldera.dev~1submitted", json!("2"));
        assert!(holds(&new_stamps, None, &job) && holds(&new_stamps, Some(&job), &stamped_anew));
        assert!(!holds(&new_stamps, Some(&job), &with("/spec/minAvailable", json!(2))));
        let bare = json!({"metadata": {"name": "j"}, "spec": {}});
        assert!(!holds(&new_spec_or_stamps, Some(&bare), &bare) && holds(&new_spec_or_stamps, Some(&bare), &job));
    }

    #[test]
    fn a_member_is_reviewed_when_its_taints_or_annotations_change_and_an_outage_lets_that_pass() {
        let member = |annotations: Value, taints: Value| json!({"metadata": {"name": "m1", "annotations": annotations}, "spec": {"taints": taints}});
        let old = member(json!({"a": "1"}), json!([]));
        let mut labelled = old.clone();
        labelled["metadata"]["labels"] = json!({"l": "v"});
        assert!(!holds(NEW_CLUSTER, Some(&old), &labelled));
        assert!(holds(NEW_CLUSTER, None, &labelled));
        assert!(holds(NEW_CLUSTER, Some(&old), &member(json!({"a": "2"}), json!([]))));
        assert!(holds(NEW_CLUSTER, Some(&old), &member(json!({"a": "1"}), json!([{"key": "k"}]))));
        let all = build_configurations(&Endpoint::Url("https://h:1".into()), "");
        let hooks = all[0]["webhooks"].as_array().unwrap().iter();
        let stamping: Vec<&Value> = hooks.filter(|hook| hook["name"].as_str().unwrap().contains("actions.")).collect();
        assert_eq!(stamping.len(), 4);
        for hook in stamping {
            assert_eq!((&hook["failurePolicy"], &hook["sideEffects"]), (&json!("Ignore"), &json!("None")), "{hook}");
            let rules = hook["rules"].as_array().unwrap();
            assert!(rules.iter().all(|rule| rule["operations"] == json!(["CREATE", "UPDATE"])), "{hook}");
            let is_of_jobs = |rule: &Value| rule["apiGroups"][0] == "batch.volcano.sh";
            assert!(!rules.iter().any(is_of_jobs), "jobs have a hook that no outage lets pass");
        }
    }

    #[test]
    fn a_workload_is_stamped_when_a_user_acts_on_it_and_asked_about_when_it_is_made_with_stamps() {
        let with = |annotations: Value| json!({"metadata": {"name": "d", "annotations": annotations}});
        let (bare, queued) =
            (json!({"metadata": {"name": "d"}}), with(json!({"scheduling.volcano.sh/queue-name": "q"})));
        let acts = match_new_actions();
        for stamp in ACTION_STAMPS {
            for value in ["ada", ""] {
                assert!(holds(&acts, None, &with(json!({stamp: value}))), "{stamp}={value}");
            }
        }
        assert!(!holds(&acts, None, &bare) && !holds(&acts, None, &queued), "most are made so");
        assert!(holds(&acts, Some(&queued), &with(json!({"caldera.dev/hold": "true"}))));
        assert!(!holds(&acts, Some(&queued), &queued) && !holds(&acts, Some(&bare), &bare));
    }

    #[test]
    fn a_binding_is_reviewed_unless_it_has_a_gate_and_keeps_spec_and_annotations() {
        let gated = json!({
            "metadata": {"name": "j-job", "annotations": {"caldera.dev/gate": "closed"}},
            "spec": {"suspension": {"scheduling": true}},
        });
        let mut finalized = gated.clone();
        finalized["metadata"]["finalizers"] = json!(["f"]);
        finalized["metadata"]["labels"] = json!({"l": "v"});
        assert!(!holds(NEW_BINDING, Some(&gated), &finalized));
        let mut lifted = gated.clone();
        lifted["spec"]["suspension"]["scheduling"] = false.into();
        let mut forged = gated.clone();
        forged["metadata"]["annotations"]["caldera.dev/admission"] = "{}".into();
        let mut stripped = gated.clone();
        stripped["metadata"] = json!({"name": "j-job"});
        for (old, new) in [(&gated, &lifted), (&gated, &forged), (&gated, &stripped), (&stripped, &gated)] {
            assert!(holds(NEW_BINDING, Some(old), new), "{new}");
        }
        assert!(holds(NEW_BINDING, Some(&stripped), &stripped), "its next update gates it");
        assert!(holds(NEW_BINDING, None, &gated));
    }

    /// Who can not have that name, and what changes whether a binding is gated, is told.
    #[test]
    fn of_gated_bindings_the_controllers_own_updates_alone_are_not_told() {
        let open = json!({"metadata": {"annotations": {"caldera.dev/gate": "open"}}, "spec": {}});
        let mut closed = open.clone();
        closed["spec"] = json!({"suspension": {"scheduling": true}});
        let mut gated = open.clone();
        gated["metadata"]["annotations"]["caldera.dev/admission"] = "{}".into();
        let (bare, other) = (json!({"metadata": {}}), json!({"metadata": {"annotations": {"a": "b"}}}));
        let is_told = |user: &str, old: Option<&Value>, new: &Value| {
            let request = json!({
                "operation": if old.is_some() { "UPDATE" } else { "CREATE" }, "userInfo": {"username": user},
            });
            holds_for(BY_OTHERS, &request, old, new)
        };
        assert!(!is_told(CONTROLLER_ACCOUNT, Some(&closed), &gated), "a release");
        assert!(!is_told(CONTROLLER_ACCOUNT, Some(&gated), &closed), "an eviction");
        assert!(is_told(CONTROLLER_ACCOUNT, Some(&closed), &open), "a gate opened without a record");
        assert!(is_told(CONTROLLER_ACCOUNT, None, &gated));
        for (old, new) in [(&gated, &bare), (&bare, &gated), (&other, &gated), (&gated, &other)] {
            assert!(is_told(CONTROLLER_ACCOUNT, Some(old), new), "{new}");
        }
        for user in ["tenant", "caldera-controller", "system:serviceaccount:ns:caldera-controller", ""] {
            assert!(is_told(user, Some(&gated), &gated), "{user}");
        }
    }

    #[test]
    fn of_a_cron_job_that_is_queued_whatever_its_namespace_no_outage_lets_one_pass() {
        let work = |api_version: &str, kind: &str, template: Value| {
            let manifest = json!({"apiVersion": api_version, "kind": kind, "spec": {"jobTemplate": template}});
            json!({"spec": {"workload": {"manifests": [manifest]}}})
        };
        let named = json!({"labels": {"volcano.sh/queue-name": "q"}});
        let by_pods = json!({"spec": {"template": {"metadata": {"annotations": {
            "scheduling.volcano.sh/queue-name": "q",
        }}}}});
        let queued = match_queued_cron_job();
        for (work, is_queued, is_cron_job) in [
            (work("batch.volcano.sh/v1alpha1", "CronJob", json!({})), true, false),
            (work("batch/v1", "CronJob", json!({"metadata": named})), true, true),
            (work("batch/v1", "CronJob", by_pods), true, true),
            (work("batch/v1", "CronJob", json!({"metadata": {}, "spec": {"template": {}}})), false, true),
            (work("batch/v1", "CronJob", json!({})), false, true),
            (work("batch/v1", "Job", json!({"metadata": named})), false, false),
            (json!({"spec": {}}), false, false),
        ] {
            assert_eq!(holds(&queued, None, &work), is_queued, "{work}");
            assert_eq!(holds(CRON_JOB, None, &work), is_cron_job, "{work}");
        }
    }

    #[test]
    fn a_job_flow_and_a_pod_group_reach_the_webhook_and_a_job_template_does_not() {
        let work = |api_version: &str, kind: &str| {
            let manifest = json!({"apiVersion": api_version, "kind": kind});
            json!({"spec": {"workload": {"manifests": [manifest]}}})
        };
        assert!(holds(JOB_FLOW, None, &work("flow.volcano.sh/v1alpha1", "JobFlow")));
        assert!(!holds(JOB_FLOW, None, &work("flow.volcano.sh/v1alpha1", "JobTemplate")));
        assert!(!holds(JOB_FLOW, None, &work("example.com/v1", "JobFlow")));
        assert!(!holds(JOB_FLOW, None, &json!({"spec": {}})));
        assert!(holds(POD_GROUP, None, &work("scheduling.volcano.sh/v1beta1", "PodGroup")));
        assert!(!holds(POD_GROUP, None, &work("scheduling.x-k8s.io/v1alpha1", "PodGroup")));
        assert!(!holds(POD_GROUP, None, &json!({"spec": {}})));
    }

    /// What was told before is among the kinds that the others are, and an outage stops it in namespaces that opted in.
    #[test]
    fn objects_of_kinds_that_are_told_later_reach_the_webhook_and_no_outage_stops_them() {
        let kinds = KindsInCel::new();
        let (of_binding, of_work) = (kinds.match_undeclared_kind(), kinds.match_undeclared_work());
        for (version, kind, is_told) in [
            ("training.example.com/v1", "TrainRun", true),
            ("ray.io/v1", "RayJob", false),
            ("batch.volcano.sh/v1alpha1", "Job", false),
            ("scheduling.volcano.sh/v1beta1", "Queue", false),
            ("rbac.authorization.k8s.io/v1", "Role", false),
            ("apps/v1", "Deployment", false),
            ("v1", "ConfigMap", false),
        ] {
            let binding = json!({"spec": {"resource": {"apiVersion": version, "kind": kind}}});
            let manifest = json!({"apiVersion": version, "kind": kind});
            let work = json!({"spec": {"workload": {"manifests": [{"apiVersion": "v1", "kind": "Secret"}, manifest]}}});
            assert_eq!(holds(&of_binding, None, &binding), is_told, "{version} {kind}");
            assert_eq!(holds(&of_work, None, &work), is_told, "{version} {kind}");
        }
        let all = build_configurations(&Endpoint::Url("https://h:1".into()), "");
        let declared = all[0]["webhooks"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|hook| hook["name"].as_str().unwrap().starts_with("declared."));
        assert_eq!(declared.map(|hook| &hook["failurePolicy"]).collect::<Vec<_>>(), ["Ignore", "Ignore"]);
    }

    #[test]
    fn a_controller_whose_word_does_not_count_is_told_of() {
        let has_condition = |trusted: &TrustedWriters| {
            let all = build_configurations_for(&Endpoint::Url("https://h:1".into()), "", trusted);
            all[0]["webhooks"][0]["matchConditions"].to_string().contains("by-others")
        };
        assert!(has_condition(&TrustedWriters::default()));
        assert!(!has_condition(&["group:system:masters".parse().unwrap()].into_iter().collect()));
    }

    #[test]
    fn a_service_and_a_bundle_are_told() {
        let service = Endpoint::Service { namespace: "ns".into(), name: "s".into(), port: 443 };
        let all = build_configurations(&service, "PEM");
        assert_eq!(all[2]["webhooks"][0]["clientConfig"]["service"]["path"], "/interpreter");
        assert_eq!(all[2]["webhooks"][0]["clientConfig"]["caBundle"], "UEVN");
    }
}
