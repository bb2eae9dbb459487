//! Nobody hands out rights that they do not have (`pkg/registry/rbac/*/policybased`, `rbac/validation/rule.go`).

use std::collections::BTreeSet;

use serde_json::Value;

use super::rbac::{self, Rule};
use super::{RequestInfo, User, decide_access};
use crate::call::Call;
use crate::error::{Status, go_quote, qualified_resource};
use crate::meta;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Refuses a role or binding that grants more than its writer has. Whoever may `escalate` roles, or `bind` the role,
/// may; and so may whoever changes only what the garbage collector has to.
///
/// `kept` is the old object when the new one was sent with all that the server keeps.
pub fn refuse_escalation(call: &Call, object: &Value, old: Option<&Value>, kept: Option<&Value>) -> Result<(), Status> {
    let resource = &call.resource;
    let collected = kept.is_some_and(|old| without_collection(old) == without_collection(object));
    if resource.group != GROUP || collected || call.user.groups.iter().any(|g| g == "system:masters") {
        return Ok(());
    }
    match resource.plural.as_str() {
        "roles" | "clusterroles" => {
            if may(call, "escalate", &resource.plural, &call.info.name) {
                return Ok(());
            }
            refuse_missing(call, object, &rbac::read_rules(object))?;
            let gathers = |role: &Value| {
                let selectors = role.pointer("/aggregationRule/clusterRoleSelectors").and_then(Value::as_array);
                selectors.is_some_and(|list| !list.is_empty())
            };
            // It can gather anything.
            if (gathers(object) || old.is_some_and(gathers)) && !missing_rules(call, &rbac::every_rule()).0.is_empty() {
                let why = "must have cluster-admin privileges to use the aggregationRule";
                return Err(Status::forbidden(GROUP, &resource.plural, meta::object_name(object), why));
            }
            Ok(())
        }
        "rolebindings" | "clusterrolebindings" => {
            let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
            let (kind, name) = (text("/roleRef/kind"), text("/roleRef/name"));
            if !matches!(kind, "Role" | "ClusterRole") {
                return Err(Status::unknown(format!("unsupported role reference kind: {}", go_quote(kind))));
            }
            let plural = if kind == "ClusterRole" { "clusterroles" } else { "roles" };
            if may(call, "bind", plural, name) {
                return Ok(());
            }
            if plural == "roles" && call.namespace().is_empty() {
                return Err(Status::bad_request("Namespace parameter required."));
            }
            let rules = rbac::role_rules(&call.server, kind, name, call.namespace())
                // Whatever is missing, the store reports it as of the kind that is written.
                .ok_or_else(|| Status::not_found(GROUP, &resource.plural, name))?;
            refuse_missing(call, object, &rules)
        }
        _ => Ok(()),
    }
}

/// `IsOnlyMutatingGCFields`: the object without what the garbage collector changes, and without its version.
fn without_collection(object: &Value) -> Value {
    let mut rest = object.clone();
    for member in ["ownerReferences", "finalizers", "selfLink", "managedFields", "resourceVersion"] {
        meta::metadata_mut(&mut rest).remove(member);
    }
    rest
}

/// The parts of the rules that the user does not have, and the roles that are bound and gone.
fn missing_rules(call: &Call, wanted: &[Rule]) -> (Vec<Rule>, Vec<String>) {
    let held = rbac::collect_grants(&call.server, &call.user, call.namespace());
    let covered = |part: &Rule| held.granted.iter().any(|granted| covers(&granted.rule, part));
    let missing = wanted.iter().flat_map(break_down).filter(|part| !covered(part)).collect();
    // Whatever is missing, the store reports it as of the kind that is written.
    let kind = qualified_resource(&call.resource.plural, GROUP);
    let gone = held.problems.iter().filter_map(|problem| problem.split_once(' '));
    // An aggregate says each thing once.
    let gone: BTreeSet<String> = gone.map(|(_, rest)| format!("{kind} {rest}")).collect();
    (missing, gone.into_iter().collect())
}

fn refuse_missing(call: &Call, object: &Value, wanted: &[Rule]) -> Result<(), Status> {
    let (missing, gone) = missing_rules(call, wanted);
    if missing.is_empty() {
        return Ok(());
    }
    let shown: BTreeSet<String> = compact_rules(missing).iter().map(show_rule).collect();
    let shown: Vec<String> = shown.into_iter().collect();
    let unresolved = match gone.as_slice() {
        [] => String::new(),
        [one] => format!("; resolution errors: [{one}]"),
        many => format!("; resolution errors: [[{}]]", many.join(", ")),
    };
    let why = format!(
        "{} is attempting to grant RBAC permissions not currently held:\n{}{unresolved}",
        show_user(&call.user),
        shown.join("\n")
    );
    Err(Status::forbidden(GROUP, &call.resource.plural, meta::object_name(object), &why))
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
