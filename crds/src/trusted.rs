//! Trusted writers: whose word counts on what is admitted and placed.
//!
//! Rule: what the controller, the scheduler and Karmada write on bindings and Works is theirs alone. Stock Karmada lets
//! everybody with role `edit` write both, and their statuses. So the webhook refuses such a write by anybody else, and
//! a ValidatingAdmissionPolicy does while the webhook is away. Both are made of the lists in this file.
//!
//! What stays the users' is the suspension, but for lifting the one that is ours, and all other labels and annotations.

use std::{collections::BTreeSet, fmt, str::FromStr};

use serde_json::{Value, json};

use crate::{
    names::caldera::{ADMISSION, EPOCH, EVICTION, GATE, GATE_CLOSED, PLAN, PRIORITY, SCHEDULER_NAME},
    workload::WorkloadKind,
};

/// A user or a group of users of the Karmada API.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Writer {
    /// All of a group.
    Group(String),
    /// One user.
    User(String),
}

/// Why a word names no writer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a writer is group:NAME or user:NAME, not {0:?}")]
pub struct ParseWriterError(String);

impl FromStr for Writer {
    type Err = ParseWriterError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            Some(("group", name)) if !name.is_empty() => Ok(Self::Group(name.to_owned())),
            Some(("user", name)) if !name.is_empty() => Ok(Self::User(name.to_owned())),
            _ => Err(ParseWriterError(text.to_owned())),
        }
    }
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(name) => write!(f, "group:{name}"),
            Self::User(name) => write!(f, "user:{name}"),
        }
    }
}

/// All of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedWriters(BTreeSet<Writer>);

impl Default for TrustedWriters {
    /// Those whom nothing could be kept from, our parts by the accounts that `caldera manifests` makes, Karmada's parts
    /// by theirs, and the agents of members that pull.
    fn default() -> Self {
        let groups = ["system:masters", "system:karmada:agents"].map(|name| Writer::Group(name.to_owned()));
        let account = |namespace: &str, name: &str| Writer::User(format!("system:serviceaccount:{namespace}:{name}"));
        let ours = ["controller", "scheduler"].map(|part| account("caldera-system", &format!("caldera-{part}")));
        let karmada = ["controller-manager", "scheduler", "descheduler", "webhook"];
        let karmada = karmada.map(|part| account("karmada-system", &format!("karmada-{part}")));
        Self(groups.into_iter().chain(ours).chain(karmada).collect())
    }
}

impl FromIterator<Writer> for TrustedWriters {
    fn from_iter<I: IntoIterator<Item = Writer>>(writers: I) -> Self {
        Self(writers.into_iter().collect())
    }
}

impl TrustedWriters {
    /// Whether a user with these groups is one of them.
    pub fn trusts<'a>(&self, user: &str, groups: impl IntoIterator<Item = &'a str>) -> bool {
        let mut groups = groups.into_iter();
        self.names(false).any(|name| name == user) || groups.any(|group| self.names(true).any(|name| name == group))
    }

    fn names(&self, of_groups: bool) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(move |writer| match writer {
            Writer::Group(name) if of_groups => Some(name.as_str()),
            Writer::User(name) if !of_groups => Some(name.as_str()),
            _ => None,
        })
    }

    /// A CEL expression that is true for everybody else.
    #[must_use]
    pub fn exclude_in_cel(&self) -> String {
        let (users, groups) = (list_in_cel(self.names(false)), list_in_cel(self.names(true)));
        format!(
            "!(request.userInfo.username in {users}) && !(has(request.userInfo.groups) && \
             request.userInfo.groups.exists(g, g in {groups}))"
        )
    }
}

/// Annotations of a binding that say what is admitted and placed.
pub const BINDING_ANNOTATIONS: [&str; 6] = [GATE, ADMISSION, EPOCH, PLAN, PRIORITY, EVICTION];
/// Fields of a binding's spec that decide what runs where. Karmada sends a workload to the clusters in `clusters` and
/// in `requiredBy`, and keeps it where `gracefulEvictionTasks` says.
pub const BINDING_SPEC: [&str; 9] = [
    "clusters",
    "components",
    "gracefulEvictionTasks",
    "placement",
    "replicaRequirements",
    "replicas",
    "requiredBy",
    "resource",
    "schedulerName",
];
/// Those that nobody else may begin with.
const PLACED_SPEC: [&str; 3] = ["clusters", "gracefulEvictionTasks", "requiredBy"];

/// The protected field of a binding that a write sets or changes; `None` if the write may be anybody's. What our own
/// webhook sets in somebody's write is no change: it closes gates, and names our scheduler.
#[must_use]
pub fn find_protected_change(old: Option<&Value>, new: &Value) -> Option<String> {
    if !(is_queued(new) || old.is_some_and(is_queued)) {
        return None;
    }
    let annotation = |object: Option<&Value>, name: &str| annotation_of(object?, name).map(str::to_owned);
    let closes = |name: &str| name == GATE && annotation_of(new, name) == Some(GATE_CLOSED) && is_waiting(new);
    let changed = |name: &&&str| annotation(old, name) != annotation(Some(new), name) && !closes(name);
    if let Some(name) = BINDING_ANNOTATIONS.iter().find(changed) {
        return Some(format!("metadata.annotations[{name}]"));
    }
    let field = |object: Option<&Value>, name: &str| match object.and_then(|object| object.get("spec")?.get(name)) {
        Some(Value::Array(all)) if all.is_empty() => Value::Null,
        Some(value) => value.clone(),
        None => Value::Null,
    };
    let spec: &[&str] = if old.is_some() { &BINDING_SPEC } else { &PLACED_SPEC };
    let ours = |name: &str| name == "schedulerName" && field(Some(new), name) == SCHEDULER_NAME;
    let changed = |name: &&&str| field(old, name) != field(Some(new), name) && !ours(name);
    spec.iter().find(changed).map(|name| format!("spec.{name}"))
}

/// Whether a binding is in Caldera's hands: a Volcano Job's, or one with a gate or a record.
fn is_queued(binding: &Value) -> bool {
    let of = |field: &str| binding.pointer(field).and_then(Value::as_str).unwrap_or_default();
    let kind = WorkloadKind::parse(of("/spec/resource/apiVersion"), of("/spec/resource/kind"));
    kind == Some(WorkloadKind::VolcanoJob)
        || [GATE, ADMISSION].into_iter().any(|name| annotation_of(binding, name).is_some())
}

fn annotation_of<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(name)?.as_str()
}

/// Whether it is suspended and has no record.
fn is_waiting(binding: &Value) -> bool {
    annotation_of(binding, ADMISSION).is_none()
        && binding.pointer("/spec/suspension/scheduling") == Some(&Value::Bool(true))
}

/// The policies, with their bindings, that hold the same without the webhook, and for the statuses.
#[must_use]
pub fn admission_policies(trusted: &TrustedWriters) -> Vec<Value> {
    let condition = |name: &str, expression: String| json!({"name": name, "expression": expression});
    let others = || condition("others", trusted.exclude_in_cel());
    let policy = |name: &str, version: &str, plural: &str, matching: Value, variables: Value, rules: Value| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "caldera"}},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": ["work.karmada.io"], "apiVersions": [version], "operations": ["CREATE", "UPDATE"],
                    "resources": [plural, format!("{plural}/status")],
                }]},
                "matchConditions": [others(), matching], "variables": variables, "validations": rules,
            },
        })
    };
    let bound = |name: &str| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "caldera"}},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        })
    };
    let rule = |expression: String, message: &str| {
        let message = format!("{message} is written by Caldera and Karmada alone");
        json!({"expression": expression, "message": message, "reason": "Forbidden"})
    };
    let is_status = "(has(request.subResource) && request.subResource == 'status')";
    let variable = |name: &str, expression: String| json!({"name": name, "expression": expression});
    let annotations =
        |of: &str| format!("{of} != null && has({of}.metadata.annotations) ? {of}.metadata.annotations : {{}}");
    let volcano = WorkloadKind::VolcanoJob;
    let is_queued = |of: &str| {
        format!(
            "({of} != null && ({of}.spec.resource.apiVersion == '{}' && {of}.spec.resource.kind == '{}' || \
             has({of}.metadata.annotations) && ['{GATE}', '{ADMISSION}'].exists(a, a in {of}.metadata.annotations)))",
            volcano.api_version(),
            volcano.kind()
        )
    };
    let unsuspended = "!(has(object.spec.suspension) && has(object.spec.suspension.scheduling) && \
                       object.spec.suspension.scheduling)";
    let mut rules = vec![
        rule(format!("!{is_status}"), "status"),
        rule(
            format!(
                "{}.all(a, (a in variables.now) == (a in variables.before) && (!(a in variables.now) || \
                 variables.now[a] == variables.before[a]) || a == '{GATE}' && variables.closes)",
                list_in_cel(BINDING_ANNOTATIONS)
            ),
            "what is admitted (annotations caldera.dev)",
        ),
        rule(
            format!(
                "!('{GATE}' in variables.before && variables.before['{GATE}'] == '{GATE_CLOSED}' && {unsuspended})"
            ),
            "the end of the suspension that keeps a job in its queue",
        ),
    ];
    rules.extend(BINDING_SPEC.map(|field| {
        let (now, before) = (format!("object.spec.{field}"), format!("oldObject.spec.{field}"));
        let is_empty = |of: &str, value: &str| match field {
            "resource" => "false".to_owned(),
            "clusters" | "components" | "gracefulEvictionTasks" | "requiredBy" => {
                format!("(!has({value}) || size({value}) == 0)")
            }
            _ => format!("(!has({of}.spec.{field}))"),
        };
        let (none_now, none_before) = (is_empty("object", &now), is_empty("oldObject", &before));
        let created = if PLACED_SPEC.contains(&field) { none_now.as_str() } else { "true" };
        let same = format!("({none_now} && {none_before} || !{none_now} && !{none_before} && {now} == {before})");
        let ours = if field == "schedulerName" {
            format!(" || has({now}) && {now} == '{SCHEDULER_NAME}'")
        } else {
            String::new()
        };
        rule(format!("oldObject == null ? {created} : ({same}{ours})"), &format!("spec.{field}"))
    }));
    let bindings = policy(
        "bindings.caldera.dev",
        "v1alpha2",
        "resourcebindings",
        condition("queued", format!("{} || {}", is_queued("object"), is_queued("oldObject"))),
        json!([
            variable("now", annotations("object")),
            variable("before", annotations("oldObject")),
            variable(
                "closes",
                format!(
                    "'{GATE}' in variables.now && variables.now['{GATE}'] == '{GATE_CLOSED}' && \
                     !('{ADMISSION}' in variables.now) && !({unsuspended})"
                )
            ),
        ]),
        rules.into(),
    );
    let kinds: Vec<String> =
        WorkloadKind::ALL.iter().map(|kind| format!("['{}', '{}']", kind.api_version(), kind.kind())).collect();
    let carries = |of: &str| {
        format!(
            "({of} != null && has({of}.spec.workload) && has({of}.spec.workload.manifests) && \
             {of}.spec.workload.manifests.exists(m, [{}].exists(k, k[0] == m.apiVersion && k[1] == m.kind)))",
            kinds.join(", ")
        )
    };
    let kept = |field: &str| {
        let (now, before) = (format!("object.metadata.{field}"), format!("oldObject.metadata.{field}"));
        format!("has({now}) == has({before}) && (!has({now}) || {now} == {before})")
    };
    let works = policy(
        "works.caldera.dev",
        "v1alpha1",
        "works",
        condition("carries-a-workload", format!("{} || {}", carries("object"), carries("oldObject"))),
        json!([]),
        json!([
            rule(format!("!{is_status}"), "the status of a Work"),
            rule(
                format!(
                    "oldObject != null && object.spec == oldObject.spec && {} && {}",
                    kept("annotations"),
                    kept("labels")
                ),
                "a Work that carries a workload",
            ),
        ]),
    );
    vec![bindings, bound("bindings.caldera.dev"), works, bound("works.caldera.dev")]
}

/// Whether a Work carries a workload that can be queued.
#[must_use]
pub fn carries_workload(work: &Value) -> bool {
    let manifests = work.pointer("/spec/workload/manifests").and_then(Value::as_array);
    manifests.into_iter().flatten().any(|manifest| WorkloadKind::of(manifest).is_some())
}

fn list_in_cel<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let quoted = |word: &str| format!("'{}'", word.replace('\\', "\\\\").replace('\'', "\\'"));
    format!("[{}]", words.into_iter().map(quoted).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(annotations: Value, spec: Value) -> Value {
        let mut object = json!({
            "metadata": {"annotations": annotations},
            "spec": {"resource": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "x"}},
        });
        object["spec"].as_object_mut().unwrap().extend(spec.as_object().cloned().unwrap_or_default());
        object
    }

    #[test]
    fn who_is_trusted_is_a_setting_and_by_default_masters_agents_and_named_accounts() {
        let trusted = TrustedWriters::default();
        assert!(trusted.trusts("anybody", ["system:masters"]));
        assert!(trusted.trusts("system:karmada:agent:m1", ["system:karmada:agents"]));
        assert!(trusted.trusts("system:serviceaccount:caldera-system:caldera-controller", []));
        for stranger in ["system:serviceaccount:team:caldera-controller", "system:masters", ""] {
            assert!(!trusted.trusts(stranger, ["system:authenticated", "edit"]), "{stranger}");
        }
        let own: TrustedWriters =
            ["user:ops", "group:platform"].map(|word| word.parse().unwrap()).into_iter().collect();
        assert!(own.trusts("ops", []) && own.trusts("x", ["platform"]) && !own.trusts("x", ["system:masters"]));
        for word in ["ops", "user:", "role:x", ""] {
            assert!(word.parse::<Writer>().is_err(), "{word}");
        }
        assert!("user:a:b".parse::<Writer>() == Ok(Writer::User("a:b".into())));
    }

    #[test]
    fn a_name_with_a_quote_stays_inside_its_expression() {
        let own: TrustedWriters = [Writer::User("a' || true || '".into())].into_iter().collect();
        assert!(own.exclude_in_cel().starts_with(r"!(request.userInfo.username in ['a\' || true || \''])"));
    }

    #[test]
    fn every_field_that_says_what_is_admitted_or_placed_is_protected() {
        let waiting = json!({"suspension": {"scheduling": true}});
        let old = binding(json!({GATE: "closed"}), waiting.clone());
        for name in BINDING_ANNOTATIONS {
            let mut new = old.clone();
            new["metadata"]["annotations"][name] = "forged".into();
            assert_eq!(find_protected_change(Some(&old), &new), Some(format!("metadata.annotations[{name}]")));
            assert!(find_protected_change(Some(&new), &old).is_some() || name == GATE, "{name} taken away");
            assert!(find_protected_change(None, &new).is_some(), "{name} at the creation");
        }
        for name in BINDING_SPEC {
            let mut new = old.clone();
            new["spec"][name] = json!([{"name": "m1", "replicas": 6}]);
            assert_eq!(find_protected_change(Some(&old), &new), Some(format!("spec.{name}")));
            let is_refused = find_protected_change(None, &new).is_some();
            assert_eq!(is_refused, PLACED_SPEC.contains(&name), "{name} at the creation");
        }
    }

    #[test]
    fn a_users_own_words_and_what_our_webhook_adds_to_them_are_no_forgery() {
        let old = binding(json!({GATE: "open", ADMISSION: "{}"}), json!({"suspension": {"scheduling": false}}));
        let mut new = old.clone();
        new["spec"]["suspension"] = json!({"scheduling": true, "dispatching": true});
        new["metadata"]["annotations"]["user"] = "own".into();
        new["metadata"]["finalizers"] = json!(["x/y"]);
        new["spec"]["clusters"] = json!([]);
        assert_eq!(find_protected_change(Some(&old), &new), None);
        // The webhook gates what nobody had gated, and names our scheduler.
        let held = binding(json!({}), json!({"schedulerName": "default-scheduler"}));
        let gated =
            binding(json!({GATE: "closed"}), json!({"schedulerName": "caldera", "suspension": {"scheduling": true}}));
        assert_eq!(find_protected_change(Some(&held), &gated), None);
        assert_eq!(find_protected_change(None, &gated), None);
        // To say so without waiting is another thing.
        let mut said = gated;
        said["spec"]["suspension"]["scheduling"] = false.into();
        assert!(find_protected_change(Some(&held), &said).is_some());
    }

    #[test]
    fn what_is_not_queued_is_not_ours_to_protect() {
        let mut old = binding(json!({}), json!({}));
        old["spec"]["resource"] = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"});
        let mut new = old.clone();
        new["spec"]["clusters"] = json!([{"name": "m1", "replicas": 1}]);
        assert_eq!(find_protected_change(Some(&old), &new), None);
        old["metadata"]["annotations"][GATE] = "closed".into();
        assert!(find_protected_change(Some(&old), &new).is_some());
    }
}
