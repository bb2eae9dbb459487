//! The configurations by which the API server and Karmada find the webhook.
//!
//! Rule (`admissionregistration.k8s.io/v1`): `matchConditions` keep out everything that is not ours, so that our outage
//! blocks only our kinds. The name of the configuration sorts after Karmada's `mutating-config`: bindings and Works
//! then carry the ids that Karmada gives them. `reinvocationPolicy` is IfNeeded for bindings: if another webhook
//! rewrites the schedulerName after us, we see the binding once more. All mutations are idempotent.

use base64::{Engine, engine::general_purpose::STANDARD};
use caldera_crds::names::caldera;
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
const OTHER_KIND: &str = "[['apps/v1', 'Deployment'], ['apps/v1', 'StatefulSet'], ['batch/v1', 'Job'], ['v1', 'Pod']]\
                          .exists(k, k[0] == object.spec.resource.apiVersion && k[1] == object.spec.resource.kind)";
const HAS_PLACEMENT: &str = "has(object.spec.placement)";
/// Whether a Work carries a Volcano Job, or a workload of another kind that names a queue, on itself or on its pods.
macro_rules! carries_queued {
    () => {
        "has(object.spec.workload) && has(object.spec.workload.manifests) && object.spec.workload.manifests.exists(m, \
         m.apiVersion == 'batch.volcano.sh/v1alpha1' && m.kind == 'Job' || \
         [['apps/v1', 'Deployment'], ['apps/v1', 'StatefulSet'], ['batch/v1', 'Job'], ['v1', 'Pod']]\
         .exists(k, k[0] == m.apiVersion && k[1] == m.kind) && \
         [m.metadata, has(m.spec) && has(m.spec.template) && has(m.spec.template.metadata) ? m.spec.template.metadata \
         : m.metadata].exists(p, ['volcano.sh/queue-name', 'scheduling.volcano.sh/queue-name'].exists(q, \
         has(p.annotations) && q in p.annotations || has(p.labels) && q in p.labels)))"
    };
}
const QUEUED_MANIFEST: &str = carries_queued!();
/// The others of those kinds. Those of namespaces that opted in are queued, which a Work does not tell.
const OTHER_MANIFEST: &str = "has(object.spec.workload) && has(object.spec.workload.manifests) && \
     object.spec.workload.manifests.exists(m, \
     [['apps/v1', 'Deployment'], ['apps/v1', 'StatefulSet'], ['batch/v1', 'Job'], ['v1', 'Pod']]\
     .exists(k, k[0] == m.apiVersion && k[1] == m.kind))";
const NOT_QUEUED_MANIFEST: &str = concat!("!(", carries_queued!(), ")");

/// Group, version and plural.
type ResourceOf = (&'static str, &'static str, &'static str);
const BINDINGS: ResourceOf = ("work.karmada.io", "v1alpha2", "resourcebindings");
const WORKS: ResourceOf = ("work.karmada.io", "v1alpha1", "works");
const JOBS: ResourceOf = ("batch.volcano.sh", "v1alpha1", "jobs");
const QUEUES: ResourceOf = ("scheduling.volcano.sh", "v1beta1", "queues");

/// Name and CEL expression of a match condition.
type Condition = (&'static str, &'static str);

/// All configurations for a webhook at `endpoint` whose certificate `ca_pem` signed (empty: public roots).
#[must_use]
pub fn configurations(endpoint: &Endpoint, ca_pem: &str) -> Vec<Value> {
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
    let hook = |name: &str, path: &str, (group, version, resource): ResourceOf, conditions: &[Condition]| {
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
            let condition = |(name, expression): &Condition| json!({"name": name, "expression": expression});
            hook["matchConditions"] = conditions.iter().map(condition).collect();
        }
        hook
    };
    let binding_hook = |name: &str, kind: Condition| {
        let mut hook = hook(name, "/mutate-resourcebinding", BINDINGS, &[("has-placement", HAS_PLACEMENT), kind]);
        hook["reinvocationPolicy"] = "IfNeeded".into();
        hook
    };
    let opted_in = |operator: &str| {
        json!({"matchExpressions": [{
            "key": caldera::NAMESPACE_OPT_IN, "operator": operator, "values": [caldera::NAMESPACE_OPT_IN_VALUE],
        }]})
    };
    let mut in_namespace = binding_hook("namespaces.gate.caldera.dev", ("queueable-kind", OTHER_KIND));
    in_namespace["namespaceSelector"] = opted_in("In");
    // Elsewhere only those that name a queue are in scope, which a binding does not tell: an outage must not stop them.
    let mut elsewhere = binding_hook("services.gate.caldera.dev", ("queueable-kind", OTHER_KIND));
    elsewhere["namespaceSelector"] = opted_in("NotIn");
    elsewhere["failurePolicy"] = "Ignore".into();
    let is_other = [("queueable-kind", OTHER_MANIFEST), ("names-no-queue", NOT_QUEUED_MANIFEST)];
    let mut other_works = hook("services.plan.caldera.dev", "/mutate-work", WORKS, &is_other);
    other_works["failurePolicy"] = "Ignore".into();
    let mutating = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "queue.caldera.dev"},
        "webhooks": [
            binding_hook("jobs.gate.caldera.dev", ("volcano-job", VOLCANO_KIND)),
            in_namespace,
            elsewhere,
            hook("works.plan.caldera.dev", "/mutate-work", WORKS, &[("queued", QUEUED_MANIFEST)]),
            other_works,
            hook("jobs.defaults.caldera.dev", "/mutate-job", JOBS, &[]),
            hook("queues.defaults.caldera.dev", "/mutate-queue", QUEUES, &[]),
        ],
    });
    let validating = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "queue.caldera.dev"},
        "webhooks": [
            hook("jobs.rules.caldera.dev", "/validate-job", JOBS, &[]),
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
        let all = configurations(&Endpoint::Url("https://h:1".into()), "");
        for hook in all[0]["webhooks"].as_array().unwrap() {
            if hook["rules"][0]["apiGroups"][0] == "work.karmada.io" {
                assert!(!hook["matchConditions"].as_array().unwrap().is_empty(), "{hook}");
            }
        }
        // Ours is called after Karmada's `mutating-config`.
        assert!(all[0]["metadata"]["name"].as_str().unwrap() > "mutating-config");
    }

    #[test]
    fn a_service_and_a_bundle_are_told() {
        let service = Endpoint::Service { namespace: "ns".into(), name: "s".into(), port: 443 };
        let all = configurations(&service, "PEM");
        assert_eq!(all[2]["webhooks"][0]["clientConfig"]["service"]["path"], "/interpreter");
        assert_eq!(all[2]["webhooks"][0]["clientConfig"]["caBundle"], "UEVN");
    }
}
