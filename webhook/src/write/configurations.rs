//! The three configurations by which the API server and Karmada find the webhook: mutating (gate, plan, defaults),
//! validating (jobs, CronJobs, HyperJobs, queues), and Karmada's resource interpreter for Volcano Jobs.
//!
//! What an outage stops (`failurePolicy`): jobs, CronJobs, HyperJobs and queues; bindings of Volcano Jobs, and those of
//! other kinds in namespaces that opted in; Works of Volcano Jobs, of what names a queue where CEL can see it, and of a
//! workload's binding that carry another kind. Other bindings go on, since they do not tell whether their workload
//! names a queue, and so do other Works, and all of kinds that were declared since it was registered. Who acts on
//! members, settings and other workloads, by Commands, and who submits these workloads and CronJobs of Kubernetes, is
//! not known then; nor are wrong annotations of members and wrong settings refused.
//!
//! Who is asked about (`matchConditions`, `namespaceSelector`): only our kinds, and not an update of a job's metadata,
//! nor of a gated binding in which neither spec nor annotations change, nor one of a gated binding by our own
//! controller if its account is trusted: it only ever takes a plan away. The scheduler's updates are asked about: a
//! plan has to be known before its Works come.
//!
//! Order: the name sorts after Karmada's `mutating-config`, so that bindings and Works carry Karmada's ids already;
//! bindings are asked about again (`reinvocationPolicy`) if another webhook rewrites them. All mutations are
//! idempotent.

use base64::{Engine, engine::general_purpose::STANDARD};
use caldera_crds::{
    action::SETTINGS,
    names::caldera,
    trusted::{CONTROLLER_ACCOUNT, TrustedWriters},
    workload::WorkloadKind,
};
use serde_json::{Value, json};

use super::match_conditions::{
    BY_OTHERS, CLAIMS_DEVICES, HAS_PLACEMENT, JOB_CLAIMS_DEVICES, KindsInCel, NEW_BINDING, NEW_CLUSTER, NEW_SPEC,
    NEW_SPEC_OR_ANNOTATIONS, VOLCANO_KIND, match_claim_template, match_cron_job, match_job_flow, match_new_actions,
    match_new_actions_in_namespace, match_new_spec_or_stamps, match_new_spec_or_submission, match_new_stamps,
    match_pod_group, match_queued_cron_job,
};

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

/// Group, version and plural.
type ResourceOf = (&'static str, &'static str, &'static str);
const BINDINGS: ResourceOf = ("work.karmada.io", "v1alpha2", "resourcebindings");
const WORKS: ResourceOf = ("work.karmada.io", "v1alpha1", "works");
const JOBS: ResourceOf = ("batch.volcano.sh", "v1alpha1", "jobs");
const HYPER_JOBS: ResourceOf = ("training.volcano.sh", "v1alpha1", "hyperjobs");
const CRON_JOBS: ResourceOf = ("batch.volcano.sh", "v1alpha1", "cronjobs");
const BATCH_CRON_JOBS: ResourceOf = ("batch", "v1", "cronjobs");
const QUEUES: ResourceOf = ("scheduling.volcano.sh", "v1beta1", "queues");
const COMMANDS: ResourceOf = ("bus.volcano.sh", "v1alpha1", "commands");
const CLUSTERS: ResourceOf = ("cluster.karmada.io", "v1alpha1", "clusters");
const CAPACITY_RESERVATIONS: ResourceOf = ("federation.caldera.dev", "v1alpha1", "capacityreservations");
const CONFIG_MAPS: ResourceOf = ("", "v1", "configmaps");

/// Name and CEL expression of a match condition.
type Condition<'a> = (&'static str, &'a str);

/// The hook without which, in an outage, objects go on as they are.
fn pass_in_outage(mut hook: Value) -> Value {
    hook["failurePolicy"] = "Ignore".into();
    hook
}

/// Objects of a kind that are made or changed.
fn rule_of_kind(kind: WorkloadKind) -> Value {
    let resource = kind.api_resource();
    json!({
        "operations": ["CREATE", "UPDATE"], "apiGroups": [resource.group], "apiVersions": [resource.version],
        "resources": [resource.plural], "scope": "*",
    })
}

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
    let mut elsewhere = pass_in_outage(binding_hook("services.gate.caldera.dev", ("queueable-kind", &other_kind)));
    elsewhere["namespaceSelector"] = opted_in("NotIn");
    let (carries_queued, carries_other) = (kinds.match_queued_work(), kinds.match_other_work());
    let names_none = format!("!({carries_queued})");
    let is_other = [("queueable-kind", carries_other.as_str()), ("names-no-queue", names_none.as_str())];
    let other_works = pass_in_outage(hook("services.plan.caldera.dev", "/mutate-work", WORKS, &is_other));
    // Kinds that are told later are known to the webhook alone: an outage stops no object of a kind that is not ours.
    let (undeclared, carries_undeclared) = (kinds.match_undeclared_kind(), kinds.match_undeclared_work());
    let undeclared = pass_in_outage(binding_hook("declared.gate.caldera.dev", ("custom-resource", &undeclared)));
    let is_undeclared = [("custom-resource", carries_undeclared.as_str()), is_other[1]];
    let undeclared_works = pass_in_outage(hook("declared.plan.caldera.dev", "/mutate-work", WORKS, &is_undeclared));
    let (queued_cron_job, any_cron_job) = (match_queued_cron_job(), match_cron_job());
    let names_none = format!("!({queued_cron_job})");
    let is_other = [("cron-job", any_cron_job.as_str()), ("names-no-queue", names_none.as_str())];
    let cron_jobs = pass_in_outage(hook("namespaces.plan.caldera.dev", "/mutate-work", WORKS, &is_other));
    // Who acts is not known of what an outage lets through, and nothing waits for it.
    let stamping_hook = |name: &str, path: &str, resource: ResourceOf, conditions: &[Condition<'_>]| {
        let mut hook = pass_in_outage(hook(name, path, resource, conditions));
        hook["timeoutSeconds"] = 2.into();
        hook
    };
    let action_hook = |name: &str, resource: ResourceOf, condition: Option<Condition<'_>>| {
        let conditions: Vec<Condition<'_>> = condition.into_iter().collect();
        stamping_hook(&format!("{name}.actions.caldera.dev"), "/stamp-action", resource, &conditions)
    };
    let is_settings = format!("object.metadata.name == '{SETTINGS}'");
    // In the namespaces that opted in each new workload is queued.
    let mut services = action_hook("services", JOBS, Some(("changed", &match_new_actions())));
    let mut of_namespaces = action_hook("namespaces", JOBS, Some(("changed", &match_new_actions_in_namespace())));
    services["namespaceSelector"] = opted_in("NotIn");
    of_namespaces["namespaceSelector"] = opted_in("In");
    let others = WorkloadKind::list_all().filter(|kind| *kind != WorkloadKind::VolcanoJob);
    services["rules"] = others.map(rule_of_kind).collect();
    of_namespaces["rules"] = services["rules"].clone();
    let new_stamps = match_new_stamps();
    let batch_cron_jobs = stamping_hook(
        "batch-cronjobs.submission.caldera.dev",
        "/stamp-submission",
        BATCH_CRON_JOBS,
        &[("changed", &match_new_spec_or_submission())],
    );
    // A workload without what it claims waits, and says why: an outage stops none.
    let mut other_devices = pass_in_outage(hook(
        "services.devices.caldera.dev",
        "/write-device-claims",
        JOBS,
        // It is written down in a Pod's own annotations.
        &[("changed", NEW_SPEC_OR_ANNOTATIONS), ("claims-devices", CLAIMS_DEVICES)],
    ));
    let kinds_of_kubernetes =
        [WorkloadKind::Deployment, WorkloadKind::StatefulSet, WorkloadKind::BatchJob, WorkloadKind::Pod];
    other_devices["rules"] = kinds_of_kubernetes.into_iter().map(rule_of_kind).collect();
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
            hook("jobflows.plan.caldera.dev", "/mutate-work", WORKS, &[("job-flow", &match_job_flow())]),
            hook("devices.plan.caldera.dev", "/mutate-work", WORKS, &[("claim-template", &match_claim_template())]),
            hook("podgroups.plan.caldera.dev", "/mutate-work", WORKS, &[("pod-group", &match_pod_group())]),
            hook(
                "overridden.plan.caldera.dev",
                "/mutate-work",
                WORKS,
                &[("of-a-workload", &kinds.match_workload_binding()), ("carries-none", &kinds.match_work_without_workload())],
            ),
            hook("jobs.devices.caldera.dev", "/write-device-claims", JOBS, &[
                ("changed", NEW_SPEC),
                ("claims-devices", JOB_CLAIMS_DEVICES),
            ]),
            other_devices,
            hook("jobs.defaults.caldera.dev", "/mutate-job", JOBS, &[("changed", &match_new_spec_or_stamps())]),
            hook("hyperjobs.submission.caldera.dev", "/stamp-submission", HYPER_JOBS, &[("changed", &new_stamps)]),
            hook("cronjobs.submission.caldera.dev", "/stamp-submission", CRON_JOBS, &[("changed", &new_stamps)]),
            batch_cron_jobs,
            hook("queues.defaults.caldera.dev", "/mutate-queue", QUEUES, &[]),
            action_hook("commands", COMMANDS, None),
            action_hook("clusters", CLUSTERS, Some(("changed", NEW_CLUSTER))),
            action_hook("reservations", CAPACITY_RESERVATIONS, None),
            action_hook("settings", CONFIG_MAPS, Some(("settings", &is_settings))),
            services,
            of_namespaces,
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

    #[test]
    fn what_is_only_stamped_no_outage_stops() {
        let all = build_configurations(&Endpoint::Url("https://h:1".into()), "");
        let hooks = all[0]["webhooks"].as_array().unwrap().iter();
        let stamping: Vec<&Value> = hooks.filter(|hook| hook["name"].as_str().unwrap().contains("actions.")).collect();
        assert_eq!(stamping.len(), 6);
        for hook in stamping {
            assert_eq!((&hook["failurePolicy"], &hook["sideEffects"]), (&json!("Ignore"), &json!("None")), "{hook}");
            let rules = hook["rules"].as_array().unwrap();
            assert!(rules.iter().all(|rule| rule["operations"] == json!(["CREATE", "UPDATE"])), "{hook}");
            let is_of_jobs = |rule: &Value| rule["apiGroups"][0] == "batch.volcano.sh";
            assert!(!rules.iter().any(is_of_jobs), "jobs have a hook that no outage lets pass");
        }
    }

    #[test]
    fn no_outage_stops_objects_of_kinds_that_are_told_later() {
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
    fn a_service_and_a_bundle_are_reported() {
        let service = Endpoint::Service { namespace: "ns".into(), name: "s".into(), port: 443 };
        let all = build_configurations(&service, "PEM");
        assert_eq!(all[2]["webhooks"][0]["clientConfig"]["service"]["path"], "/interpreter");
        assert_eq!(all[2]["webhooks"][0]["clientConfig"]["caBundle"], "UEVN");
    }
}
