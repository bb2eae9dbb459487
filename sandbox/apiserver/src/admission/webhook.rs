//! One webhook of a configuration, read once, and whether it is concerned by a write
//! (`apiserver/pkg/admission/plugin/webhook/{rules,predicates,generic}`).

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::Operation;
use super::condition::Condition;
use super::review::ReviewVersion;
use crate::selector::LabelSelector;

#[derive(Debug)]
pub struct Webhook {
    /// Unique among all configurations: `<configuration>/<position>/<name>`.
    pub uid: String,
    pub name: String,
    pub client: ClientConfig,
    pub rules: Vec<Rule>,
    pub fail_open: bool,
    pub equivalent: bool,
    pub namespace_selector: LabelSelector,
    pub object_selector: LabelSelector,
    pub timeout: Duration,
    pub reinvoke_if_needed: bool,
    pub conditions: Vec<Condition>,
    pub side_effects_on_dry_run: bool,
    pub review_version: ReviewVersion,
}

/// Where the webhook is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientConfig {
    pub address: Address,
    /// PEM, as bytes of the decoded `caBundle`; empty: the system's roots.
    pub ca: Arc<[u8]>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    Url(String),
    Service { namespace: String, name: String, port: u16, path: String },
}

#[derive(Debug, Default)]
pub struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: Scope,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Scope {
    #[default]
    All,
    Namespaced,
    Cluster,
}

/// What a rule is held against.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub operation: Operation,
    pub group: &'a str,
    pub version: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    /// Namespaces count as cluster-scoped.
    pub namespaced: bool,
}

impl Webhook {
    /// The webhooks of a configuration object, in order.
    pub fn of_configuration(configuration: &Value) -> Vec<Arc<Webhook>> {
        let owner = crate::meta::object_name(configuration);
        let list = configuration.get("webhooks").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        list.iter().enumerate().map(|(i, value)| Arc::new(Webhook::read(owner, i, value))).collect()
    }

    fn read(owner: &str, position: usize, value: &Value) -> Webhook {
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
        let selector = |key: &str| value.get(key).and_then(LabelSelector::from_value).unwrap_or_default();
        let list = |key: &str| value.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let seconds = value.get("timeoutSeconds").and_then(Value::as_u64).unwrap_or(10);
        Webhook {
            uid: format!("{owner}/{position}/{}", text("name")),
            name: text("name").to_owned(),
            client: ClientConfig::read(value.get("clientConfig").unwrap_or(&Value::Null)),
            rules: list("rules").iter().map(Rule::read).collect(),
            fail_open: text("failurePolicy") == "Ignore",
            equivalent: text("matchPolicy") != "Exact",
            namespace_selector: selector("namespaceSelector"),
            object_selector: selector("objectSelector"),
            timeout: Duration::from_secs(seconds),
            reinvoke_if_needed: text("reinvocationPolicy") == "IfNeeded",
            conditions: list("matchConditions").iter().map(|c| Condition::read(c, false)).collect(),
            side_effects_on_dry_run: !matches!(text("sideEffects"), "None" | "NoneOnDryRun"),
            review_version: ReviewVersion::read(list("admissionReviewVersions")),
        }
    }
}

impl ClientConfig {
    fn read(value: &Value) -> ClientConfig {
        use base64::Engine;
        let ca = value.get("caBundle").and_then(Value::as_str).unwrap_or_default();
        let ca = base64::engine::general_purpose::STANDARD.decode(ca).unwrap_or_default();
        let address = match value.get("service") {
            Some(service) => {
                let text = |key: &str| service.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
                let port = service.get("port").and_then(Value::as_u64).and_then(|p| u16::try_from(p).ok());
                Address::Service {
                    namespace: text("namespace"),
                    name: text("name"),
                    port: port.unwrap_or(443),
                    path: text("path"),
                }
            }
            None => Address::Url(value.get("url").and_then(Value::as_str).unwrap_or_default().to_owned()),
        };
        ClientConfig { address, ca: ca.into() }
    }
}

impl Rule {
    pub fn read(value: &Value) -> Rule {
        let texts = |key: &str| -> Vec<String> {
            let list = value.get(key).and_then(Value::as_array);
            list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let scope = match value.get("scope").and_then(Value::as_str) {
            Some("Namespaced") => Scope::Namespaced,
            Some("Cluster") => Scope::Cluster,
            _ => Scope::All,
        };
        Rule {
            operations: texts("operations"),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources: texts("resources"),
            scope,
        }
    }

    pub fn matches(&self, subject: &Subject<'_>) -> bool {
        let any = |list: &[String], wanted: &str| list.iter().any(|x| x == "*" || x == wanted);
        let in_scope = match self.scope {
            Scope::All => true,
            Scope::Namespaced => subject.namespaced,
            Scope::Cluster => !subject.namespaced,
        };
        in_scope
            && any(&self.operations, subject.operation.as_str())
            && any(&self.groups, subject.group)
            && any(&self.versions, subject.version)
            && self.resources.iter().any(|r| resource_matches(r, subject))
    }
}

/// `pods`, `pods/status`, `pods/*`, `*`, `*/scale`, `*/*`: without a slash only the object itself.
fn resource_matches(pattern: &str, subject: &Subject<'_>) -> bool {
    let (resource, subresource) = pattern.split_once('/').unwrap_or((pattern, ""));
    (resource == "*" || resource == subject.resource) && (subresource == "*" || subresource == subject.subresource)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn subject<'a>(resource: &'a str, subresource: &'a str) -> Subject<'a> {
        Subject { operation: Operation::Create, group: "", version: "v1", resource, subresource, namespaced: true }
    }

    fn rule(resources: &[&str]) -> Rule {
        Rule::read(&json!({"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": resources}))
    }

    #[test]
    fn a_rule_without_a_slash_leaves_subresources_out() {
        assert!(rule(&["pods"]).matches(&subject("pods", "")));
        assert!(!rule(&["pods"]).matches(&subject("pods", "status")));
        assert!(!rule(&["*"]).matches(&subject("pods", "status")));
        assert!(rule(&["pods/*"]).matches(&subject("pods", "status")));
        assert!(rule(&["*/*"]).matches(&subject("pods", "")));
        assert!(rule(&["*/scale"]).matches(&subject("deployments", "scale")));
        assert!(!rule(&["*/scale"]).matches(&subject("deployments", "")));
    }

    #[test]
    fn the_scope_of_a_rule_is_that_of_the_object() {
        let scoped = |scope: &str| {
            Rule::read(&json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
                "resources": ["*"], "scope": scope}))
        };
        let cluster = Subject { namespaced: false, ..subject("nodes", "") };
        assert!(scoped("Cluster").matches(&cluster) && !scoped("Namespaced").matches(&cluster));
        assert!(scoped("Namespaced").matches(&subject("pods", "")) && !scoped("Cluster").matches(&subject("pods", "")));
        assert!(scoped("*").matches(&cluster));
    }

    #[test]
    fn an_operation_that_is_not_listed_does_not_match() {
        let create = Rule::read(&json!({"operations": ["CREATE"], "apiGroups": ["*"], "apiVersions": ["*"],
            "resources": ["pods"]}));
        assert!(create.matches(&subject("pods", "")));
        assert!(!create.matches(&Subject { operation: Operation::Delete, ..subject("pods", "") }));
    }
}
