//! How the API server and Karmada find the webhook.
//!
//! Rule: `matchConditions` keep everything out of reach that is not ours, so that our outage blocks only our kinds.
//! The configuration's name sorts after Karmada's `mutating-config`: bindings and Works then carry the ids that Karmada
//! gives them. `reinvocationPolicy` is IfNeeded for bindings: should another webhook rewrite the schedulerName after us,
//! we see it once more; all mutations are idempotent.

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

impl Endpoint {
    fn client_config(&self, path: &str, ca_pem: &str) -> Value {
        let mut config = match self {
            Self::Url(url) => json!({"url": format!("{url}{path}")}),
            Self::Service { namespace, name, port } => {
                json!({"service": {"namespace": namespace, "name": name, "port": port, "path": path}})
            }
        };
        if !ca_pem.is_empty() {
            config["caBundle"] = STANDARD.encode(ca_pem).into();
        }
        config
    }
}

const VOLCANO_KIND: &str =
    "object.spec.resource.apiVersion == 'batch.volcano.sh/v1alpha1' && object.spec.resource.kind == 'Job'";
const OTHER_KIND: &str = "[['apps/v1', 'Deployment'], ['apps/v1', 'StatefulSet'], ['batch/v1', 'Job'], ['v1', 'Pod']]\
                          .exists(k, k[0] == object.spec.resource.apiVersion && k[1] == object.spec.resource.kind)";
const HAS_PLACEMENT: &str = "has(object.spec.placement)";
const VOLCANO_MANIFEST: &str = "has(object.spec.workload) && has(object.spec.workload.manifests) && \
     object.spec.workload.manifests.exists(m, m.apiVersion == 'batch.volcano.sh/v1alpha1' && m.kind == 'Job')";

/// All configurations for a webhook at `endpoint` whose certificate `ca_pem` signed (empty: public roots).
#[must_use]
pub fn configurations(endpoint: &Endpoint, ca_pem: &str) -> Vec<Value> {
    vec![mutating(endpoint, ca_pem), validating(endpoint, ca_pem), interpreter(endpoint, ca_pem)]
}

struct Hook<'a> {
    name: &'a str,
    path: &'a str,
    operations: &'a [&'a str],
    group: &'a str,
    version: &'a str,
    resource: &'a str,
    failure_policy: &'a str,
    conditions: &'a [(&'a str, &'a str)],
}

impl Hook<'_> {
    fn build(&self, endpoint: &Endpoint, ca_pem: &str) -> Value {
        let conditions: Vec<Value> =
            self.conditions.iter().map(|(name, expression)| json!({"name": name, "expression": expression})).collect();
        let mut hook = json!({
            "name": self.name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 5,
            "failurePolicy": self.failure_policy, "matchPolicy": "Equivalent",
            "clientConfig": endpoint.client_config(self.path, ca_pem),
            "rules": [{
                "operations": self.operations, "apiGroups": [self.group], "apiVersions": [self.version],
                "resources": [self.resource], "scope": "*",
            }],
        });
        if !conditions.is_empty() {
            hook["matchConditions"] = conditions.into();
        }
        hook
    }
}

fn mutating(endpoint: &Endpoint, ca_pem: &str) -> Value {
    let binding = |name, failure_policy, conditions| {
        let mut hook = Hook {
            name,
            path: "/mutate-resourcebinding",
            operations: &["CREATE", "UPDATE"],
            group: "work.karmada.io",
            version: "v1alpha2",
            resource: "resourcebindings",
            failure_policy,
            conditions,
        }
        .build(endpoint, ca_pem);
        hook["reinvocationPolicy"] = "IfNeeded".into();
        hook
    };
    let opted_in = |operator: &str| {
        json!({"matchExpressions": [{
            "key": caldera::NAMESPACE_OPT_IN, "operator": operator, "values": [caldera::NAMESPACE_OPT_IN_VALUE],
        }]})
    };
    let volcano = &[("has-placement", HAS_PLACEMENT), ("volcano-job", VOLCANO_KIND)];
    let others = &[("has-placement", HAS_PLACEMENT), ("queueable-kind", OTHER_KIND)];
    let mut in_namespace = binding("namespaces.gate.caldera.dev", "Fail", others);
    in_namespace["namespaceSelector"] = opted_in("In");
    // Elsewhere only those that name a queue are in scope, which a binding does not tell: an outage must not stop them.
    let mut elsewhere = binding("services.gate.caldera.dev", "Ignore", others);
    elsewhere["namespaceSelector"] = opted_in("NotIn");
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "queue.caldera.dev"},
        "webhooks": [
            binding("jobs.gate.caldera.dev", "Fail", volcano),
            in_namespace,
            elsewhere,
            Hook {
                name: "works.plan.caldera.dev", path: "/mutate-work", operations: &["CREATE", "UPDATE"],
                group: "work.karmada.io", version: "v1alpha1", resource: "works", failure_policy: "Fail",
                conditions: &[("volcano-job", VOLCANO_MANIFEST)],
            }.build(endpoint, ca_pem),
            Hook {
                name: "jobs.defaults.caldera.dev", path: "/mutate-job", operations: &["CREATE", "UPDATE"],
                group: "batch.volcano.sh", version: "v1alpha1", resource: "jobs", failure_policy: "Fail",
                conditions: &[],
            }.build(endpoint, ca_pem),
            Hook {
                name: "queues.defaults.caldera.dev", path: "/mutate-queue", operations: &["CREATE", "UPDATE"],
                group: "scheduling.volcano.sh", version: "v1beta1", resource: "queues", failure_policy: "Fail",
                conditions: &[],
            }.build(endpoint, ca_pem),
        ],
    })
}

fn validating(endpoint: &Endpoint, ca_pem: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "queue.caldera.dev"},
        "webhooks": [
            Hook {
                name: "jobs.rules.caldera.dev", path: "/validate-job", operations: &["CREATE", "UPDATE"],
                group: "batch.volcano.sh", version: "v1alpha1", resource: "jobs", failure_policy: "Fail",
                conditions: &[],
            }.build(endpoint, ca_pem),
            Hook {
                name: "queues.rules.caldera.dev", path: "/validate-queue", operations: &["CREATE", "UPDATE", "DELETE"],
                group: "scheduling.volcano.sh", version: "v1beta1", resource: "queues", failure_policy: "Fail",
                conditions: &[],
            }.build(endpoint, ca_pem),
        ],
    })
}

fn interpreter(endpoint: &Endpoint, ca_pem: &str) -> Value {
    json!({
        "apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterWebhookConfiguration",
        "metadata": {"name": "caldera"},
        "webhooks": [{
            "name": "volcano-jobs.caldera.dev",
            "clientConfig": endpoint.client_config("/interpreter", ca_pem),
            "interpreterContextVersions": ["v1alpha1"],
            "timeoutSeconds": 5,
            "rules": [{
                "operations": [
                    "InterpretReplica", "InterpretComponent", "ReviseReplica", "Retain", "AggregateStatus",
                    "InterpretStatus", "InterpretHealth", "InterpretDependency",
                ],
                "apiGroups": ["batch.volcano.sh"], "apiVersions": ["v1alpha1"], "kinds": ["Job"],
            }],
        }],
    })
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
