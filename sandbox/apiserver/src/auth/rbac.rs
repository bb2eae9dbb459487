//! What RBAC objects allow (`plugin/pkg/auth/authorizer/rbac`).

use serde_json::{Value, json};

use super::{RequestInfo, User};
use crate::error::{go_quote, qualified_resource};
use crate::server::ApiServer;
use crate::store::Key;

const GROUP: &str = "rbac.authorization.k8s.io";

/// One rule of a role.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    pub verbs: Vec<String>,
    pub groups: Vec<String>,
    pub resources: Vec<String>,
    pub names: Vec<String>,
    pub urls: Vec<String>,
}

/// A rule that applies to a user, and through which binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    pub rule: Rule,
    pub through: String,
}

/// The rules that apply, and what went wrong while looking (bindings to roles that are gone).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants {
    pub granted: Vec<Granted>,
    pub problems: Vec<String>,
}

impl Rule {
    fn read(value: &Value) -> Rule {
        let texts = |key: &str| -> Vec<String> {
            let list = value.get(key).and_then(Value::as_array);
            list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Rule {
            verbs: texts("verbs"),
            groups: texts("apiGroups"),
            resources: texts("resources"),
            names: texts("resourceNames"),
            urls: texts("nonResourceURLs"),
        }
    }

    pub fn allows(&self, request: &RequestInfo) -> bool {
        let any = |list: &[String], wanted: &str| list.iter().any(|x| x == "*" || x == wanted);
        if !any(&self.verbs, &request.verb) {
            return false;
        }
        if !request.is_resource {
            return self.urls.iter().any(|u| url_matches(u, &request.path));
        }
        any(&self.groups, &request.group)
            && self.resources.iter().any(|r| resource_matches(r, request))
            && (self.names.is_empty() || self.names.contains(&request.name))
    }

    /// As in the status of a SelfSubjectRulesReview.
    pub fn to_value(&self) -> Value {
        if self.urls.is_empty() {
            let mut value = json!({"verbs": self.verbs, "apiGroups": self.groups, "resources": self.resources});
            if !self.names.is_empty() {
                value["resourceNames"] = json!(self.names);
            }
            return value;
        }
        json!({"verbs": self.verbs, "nonResourceURLs": self.urls})
    }
}

fn url_matches(pattern: &str, path: &str) -> bool {
    pattern == "*" || pattern == path || pattern.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix))
}

/// `pods`, `pods/status`, `*/status`, `*`.
fn resource_matches(pattern: &str, request: &RequestInfo) -> bool {
    if pattern == "*" {
        return true;
    }
    if request.subresource.is_empty() {
        return pattern == request.resource;
    }
    match pattern.split_once('/') {
        Some((resource, subresource)) => {
            (resource == "*" || resource == request.resource) && subresource == request.subresource
        }
        None => false,
    }
}

/// Everything that cluster bindings, and in a namespace its bindings, give to a user.
pub fn collect_grants(server: &ApiServer, user: &User, namespace: &str) -> Grants {
    let mut all = Grants::default();
    let cluster = server.store().list(&format!("clusterrolebindings.{GROUP}"), None);
    for binding in &cluster {
        all.add(server, user, &binding.value, "");
    }
    if !namespace.is_empty() {
        let local = server.store().list(&format!("rolebindings.{GROUP}"), Some(namespace));
        for binding in &local {
            all.add(server, user, &binding.value, namespace);
        }
    }
    all
}

impl Grants {
    fn add(&mut self, server: &ApiServer, user: &User, binding: &Value, namespace: &str) {
        let subjects = binding.get("subjects").and_then(Value::as_array);
        let Some(subject) = subjects.into_iter().flatten().find(|s| is_subject(user, s, namespace)) else { return };
        let text = |path: &str| binding.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let (kind, role) = (text("/roleRef/kind"), text("/roleRef/name"));
        let Some(rules) = role_rules(server, kind, role, namespace) else {
            let plural = if kind == "ClusterRole" { "clusterrole" } else { "role" };
            self.problems.push(format!("{} {} not found", qualified_resource(plural, GROUP), go_quote(role)));
            return;
        };
        let (binding_kind, binding_name) = match namespace {
            "" => ("ClusterRoleBinding", text("/metadata/name").to_owned()),
            _ => ("RoleBinding", format!("{}/{namespace}", text("/metadata/name"))),
        };
        let to = describe_subject(subject, namespace);
        let through = format!("{binding_kind} {} of {kind} {} to {to}", go_quote(&binding_name), go_quote(role));
        self.granted.extend(rules.into_iter().map(|rule| Granted { rule, through: through.clone() }));
    }
}

fn member_of<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn is_subject(user: &User, subject: &Value, namespace: &str) -> bool {
    let name = member_of(subject, "name");
    match member_of(subject, "kind") {
        "User" => user.name == name,
        "Group" => user.groups.iter().any(|g| g == name),
        "ServiceAccount" => {
            let home = Some(member_of(subject, "namespace")).filter(|n| !n.is_empty()).unwrap_or(namespace);
            user.name.strip_prefix("system:serviceaccount:") == Some(format!("{home}:{name}").as_str())
        }
        _ => false,
    }
}

fn describe_subject(subject: &Value, namespace: &str) -> String {
    let (kind, name) = (member_of(subject, "kind"), member_of(subject, "name"));
    if kind != "ServiceAccount" {
        return format!("{kind} {}", go_quote(name));
    }
    let home = Some(member_of(subject, "namespace")).filter(|n| !n.is_empty()).unwrap_or(namespace);
    format!("{kind} {}", go_quote(&format!("{name}/{home}")))
}

pub fn role_rules(server: &ApiServer, kind: &str, name: &str, namespace: &str) -> Option<Vec<Rule>> {
    let (collection, key) = match kind {
        "ClusterRole" => (format!("clusterroles.{GROUP}"), Key::new("", name)),
        _ => (format!("roles.{GROUP}"), Key::new(namespace, name)),
    };
    let stored = server.store().get(&collection, &key);
    stored.map(|role| read_rules(&role.value))
}

pub fn read_rules(role: &Value) -> Vec<Rule> {
    role.get("rules").and_then(Value::as_array).into_iter().flatten().map(Rule::read).collect()
}

/// What the administrator's role says.
pub fn every_rule() -> Vec<Rule> {
    let any = || vec!["*".to_owned()];
    let resources = Rule { verbs: any(), groups: any(), resources: any(), ..Rule::default() };
    vec![resources, Rule { verbs: any(), urls: any(), ..Rule::default() }]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(verb: &str, resource: &str, subresource: &str) -> RequestInfo {
        RequestInfo {
            verb: verb.into(),
            is_resource: true,
            resource: resource.into(),
            subresource: subresource.into(),
            name: "a".into(),
            ..RequestInfo::default()
        }
    }

    #[test]
    fn a_rule_on_a_resource_leaves_its_subresources_out() {
        let rule = |r: &str| Rule::read(&json!({"verbs": ["get"], "apiGroups": [""], "resources": [r]}));
        assert!(rule("pods").allows(&request("get", "pods", "")));
        assert!(!rule("pods").allows(&request("get", "pods", "status")));
        assert!(rule("pods/status").allows(&request("get", "pods", "status")));
        assert!(rule("*/status").allows(&request("get", "pods", "status")));
        assert!(rule("*").allows(&request("get", "pods", "status")));
        assert!(!rule("pods").allows(&request("list", "pods", "")));
    }

    #[test]
    fn resource_names_narrow_a_rule() {
        let rule =
            Rule::read(&json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["b"]}));
        assert!(!rule.allows(&request("get", "pods", "")));
    }

    #[test]
    fn a_url_rule_may_end_in_a_wildcard() {
        let rule = Rule::read(&json!({"verbs": ["get"], "nonResourceURLs": ["/api", "/apis/*", "/openapi/*"]}));
        let get = |path: &str| {
            let info = RequestInfo { path: path.into(), verb: "get".into(), ..RequestInfo::default() };
            rule.allows(&info)
        };
        assert!(get("/api") && get("/apis/apps/v1") && get("/openapi/v3"));
        assert!(!get("/metrics") && !get("/nope"));
    }
}
