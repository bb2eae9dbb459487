//! Nobody hands out rights that they do not have (`pkg/registry/rbac/*/policybased`, `rbac/validation/rule.go`).

use std::collections::BTreeSet;

use serde_json::Value;

use super::rbac::{self, Rule};
use super::{RequestInfo, User, decide_access};
use crate::call::Call;
use crate::error::{Status, go_quote};
use crate::meta;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Refuses a role or binding that grants more than its writer has. Whoever may `escalate` roles, or `bind` the role, may.
pub fn refuse_escalation(call: &Call, object: &Value, old: Option<&Value>) -> Result<(), Status> {
    let resource = &call.resource;
    if resource.group != GROUP || call.user.groups.iter().any(|g| g == "system:masters") {
        return Ok(());
    }
    let wanted = match resource.plural.as_str() {
        "roles" | "clusterroles" => {
            let same = |key: &str| old.is_some_and(|o| o.get(key) == object.get(key));
            if (same("rules") && same("aggregationRule")) || may(call, "escalate", &resource.plural, &call.info.name) {
                return Ok(());
            }
            let mut rules = rbac::read_rules(object);
            if object.get("aggregationRule").is_some_and(Value::is_object) {
                // It can gather anything.
                rules.extend(rbac::every_rule());
            }
            rules
        }
        "rolebindings" | "clusterrolebindings" => {
            let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
            let (kind, name) = (text("/roleRef/kind"), text("/roleRef/name"));
            let plural = if kind == "ClusterRole" { "clusterroles" } else { "roles" };
            if may(call, "bind", plural, name) {
                return Ok(());
            }
            rbac::role_rules(&call.server, kind, name, call.namespace())
                // Whatever is missing, the store reports it as of the kind that is written.
                .ok_or_else(|| Status::not_found(GROUP, &resource.plural, name))?
        }
        _ => return Ok(()),
    };
    let held = rbac::collect_grants(&call.server, &call.user, call.namespace());
    let missing: Vec<Rule> = wanted
        .iter()
        .flat_map(break_down)
        .filter(|part| !held.granted.iter().any(|granted| covers(&granted.rule, part)))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let shown: BTreeSet<String> = compact_rules(missing).iter().map(show_rule).collect();
    let shown: Vec<String> = shown.into_iter().collect();
    let why = format!(
        "{} is attempting to grant RBAC permissions not currently held:\n{}",
        show_user(&call.user),
        shown.join("\n")
    );
    Err(Status::forbidden(GROUP, &resource.plural, meta::object_name(object), &why))
}

fn may(call: &Call, verb: &str, plural: &str, name: &str) -> bool {
    let request = RequestInfo {
        verb: verb.into(),
        is_resource: true,
        group: GROUP.into(),
        version: "*".into(),
        namespace: call.namespace().to_owned(),
        resource: plural.into(),
        name: name.into(),
        ..RequestInfo::default()
    };
    decide_access(&call.server, &call.user, &request).allowed
}

/// One rule for each group, resource, verb and name, or each URL and verb.
fn break_down(rule: &Rule) -> Vec<Rule> {
    let mut parts = Vec::new();
    let names: Vec<Vec<String>> =
        if rule.names.is_empty() { vec![Vec::new()] } else { rule.names.iter().map(|n| vec![n.clone()]).collect() };
    for group in &rule.groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                for names in &names {
                    parts.push(Rule {
                        verbs: vec![verb.clone()],
                        groups: vec![group.clone()],
                        resources: vec![resource.clone()],
                        names: names.clone(),
                        urls: Vec::new(),
                    });
                }
            }
        }
    }
    for url in &rule.urls {
        for verb in &rule.verbs {
            parts.push(Rule { verbs: vec![verb.clone()], urls: vec![url.clone()], ..Rule::default() });
        }
    }
    parts
}

fn covers(held: &Rule, part: &Rule) -> bool {
    let all =
        |held: &[String], wanted: &[String]| held.iter().any(|h| h == "*") || wanted.iter().all(|w| held.contains(w));
    let resource = |wanted: &String| {
        let everywhere = wanted.split_once('/').map(|(_, sub)| format!("*/{sub}"));
        held.resources.contains(wanted) || everywhere.is_some_and(|e| held.resources.contains(&e))
    };
    let url = |wanted: &String| {
        held.urls.iter().any(|h| h == wanted || h.strip_suffix('*').is_some_and(|prefix| wanted.starts_with(prefix)))
    };
    let named = held.names.is_empty() || (!part.names.is_empty() && part.names.iter().all(|n| held.names.contains(n)));
    all(&held.verbs, &part.verbs)
        && all(&held.groups, &part.groups)
        && (held.resources.iter().any(|r| r == "*") || part.resources.iter().all(resource))
        && part.urls.iter().all(url)
        && named
}

/// Rules about the same resource become one with all their verbs.
fn compact_rules(rules: Vec<Rule>) -> Vec<Rule> {
    let mut compact: Vec<Rule> = Vec::new();
    for rule in rules {
        let same = |other: &&mut Rule| {
            rule.urls.is_empty()
                && (&other.groups, &other.resources, &other.names) == (&rule.groups, &rule.resources, &rule.names)
        };
        match compact.iter_mut().find(same) {
            Some(other) => other.verbs.extend(rule.verbs),
            None => compact.push(rule),
        }
    }
    compact
}

fn show_texts(texts: &[String]) -> String {
    format!("[{}]", texts.iter().map(|t| go_quote(t)).collect::<Vec<_>>().join(" "))
}

fn show_rule(rule: &Rule) -> String {
    let members = [
        ("APIGroups", &rule.groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.urls),
        ("ResourceNames", &rule.names),
        ("Verbs", &rule.verbs),
    ];
    let shown =
        members.iter().filter(|(_, list)| !list.is_empty()).map(|(key, list)| format!("{key}:{}", show_texts(list)));
    format!("{{{}}}", shown.collect::<Vec<_>>().join(", "))
}

fn show_user(user: &User) -> String {
    format!("user {} (groups={})", go_quote(&user.name), show_texts(&user.groups))
}
