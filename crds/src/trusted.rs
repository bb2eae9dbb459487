//! Trusted writers: whose word counts on what is admitted and placed.
//!
//! Rule: what the controller, the scheduler and Karmada write on bindings and Works is theirs alone. Stock Karmada lets
//! everybody with role `edit` write both, and their statuses. So the webhook refuses such a write by anybody else, and
//! a ValidatingAdmissionPolicy does while the webhook is away. Both are made of the lists in this file.
//!
//! For every binding of a workload that can be queued, gated or not, only trusted writers say where it is placed, or
//! change the finalizer and the id by which Karmada finds its copies. The binding must be of a workload in its own
//! namespace and have the name that Karmada gives, so that a workload has one binding.
//!
//! What stays the users' is the suspension, but for lifting the one that is ours, and all other labels and annotations.

mod policies;
mod submissions;

use std::{collections::BTreeSet, fmt, str::FromStr};

pub use policies::build_admission_policies;
use serde_json::Value;
pub use submissions::build_submission_policy;

use crate::{
    cel::{list_in_cel, parse_cel_list},
    karmada::work::binding_name,
    names::{
        caldera::{ADMISSION, EPOCH, EVICTION, GATE, GATE_CLOSED, PLAN, PRIORITY, SCHEDULER_NAME},
        karmada::{BINDING_FINALIZER, BINDING_ID},
    },
    object::{annotation_of, read_text_at},
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

/// The account of our controller, as `caldera manifests` makes it.
pub const CONTROLLER_ACCOUNT: &str = "system:serviceaccount:caldera-system:caldera-controller";

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

    /// Names of groups, or of users.
    pub fn names(&self, of_groups: bool) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(move |writer| match writer {
            Writer::Group(name) if of_groups => Some(name.as_str()),
            Writer::User(name) if !of_groups => Some(name.as_str()),
            _ => None,
        })
    }

    /// A CEL expression that is true for everybody else.
    #[must_use]
    pub fn build_untrusted_expression(&self) -> String {
        let (users, groups) = (list_in_cel(self.names(false)), list_in_cel(self.names(true)));
        format!(
            "!(request.userInfo.username in {users}) && !(has(request.userInfo.groups) && \
             request.userInfo.groups.exists(g, g in {groups}))"
        )
    }

    /// Those whom such an expression names; `None` if it is not one that [`Self::build_untrusted_expression`] makes.
    #[must_use]
    pub fn parse_untrusted_expression(expression: &str) -> Option<Self> {
        let (users, rest) = parse_cel_list(expression.strip_prefix("!(request.userInfo.username in ")?)?;
        let (_, rest) = rest.split_once("exists(g, g in ")?;
        let (groups, _) = parse_cel_list(rest)?;
        let all: Self = users.into_iter().map(Writer::User).chain(groups.into_iter().map(Writer::Group)).collect();
        (all.build_untrusted_expression() == expression).then_some(all)
    }
}

/// How each refusal of such a write by anybody else begins to say why, after what it is about.
pub const REFUSED_TO_OTHERS: &str = "is written by Caldera and Karmada alone";

/// Annotations of a binding that say what is admitted and placed.
pub const BINDING_ANNOTATIONS: [&str; 6] = [GATE, ADMISSION, EPOCH, PLAN, PRIORITY, EVICTION];
/// Fields of a binding's spec that decide what runs where. Karmada sends a workload to the clusters in `clusters` and
/// in `requiredBy`, and keeps it where `gracefulEvictionTasks` says; `failover` has it leave copies behind that nobody
/// is charged for (`purgeMode: Never`), `conflictResolution` take a member's own object, `rescheduleTriggeredAt` place
/// anew.
pub const BINDING_SPEC: [&str; 12] = [
    "clusters",
    "components",
    "conflictResolution",
    "failover",
    "gracefulEvictionTasks",
    "placement",
    "replicaRequirements",
    "replicas",
    "requiredBy",
    "rescheduleTriggeredAt",
    "resource",
    "schedulerName",
];
/// Those that nobody else may begin with.
const PLACED_SPEC: [&str; 3] = ["clusters", "gracefulEvictionTasks", "requiredBy"];

/// The protected field of a binding that a write sets or changes; `None` if the write may be anybody's. What our own
/// webhook sets in somebody's write is no change: it closes gates, and names our scheduler.
#[must_use]
pub fn find_protected_change(old: Option<&Value>, new: &Value) -> Option<String> {
    if (is_of_queueable_workload(new) || old.is_some_and(is_of_queueable_workload))
        && let Some(field) = find_workload_binding_change(old, new)
    {
        return Some(field);
    }
    if !(is_managed_by_caldera(new) || old.is_some_and(is_managed_by_caldera)) {
        return None;
    }
    let annotation = |object: Option<&Value>, name: &str| annotation_of(object?, name).map(str::to_owned);
    let closes =
        |name: &str| name == GATE && annotation_of(new, name) == Some(GATE_CLOSED) && is_suspended_without_record(new);
    let changed = |name: &&&str| annotation(old, name) != annotation(Some(new), name) && !closes(name);
    if let Some(name) = BINDING_ANNOTATIONS.iter().find(changed) {
        return Some(format!("metadata.annotations[{name}]"));
    }
    let field = spec_field;
    let spec: &[&str] = if old.is_some() { &BINDING_SPEC } else { &PLACED_SPEC };
    let ours = |name: &str| name == "schedulerName" && field(Some(new), name) == SCHEDULER_NAME;
    let changed = |name: &&&str| field(old, name) != field(Some(new), name) && !ours(name);
    spec.iter().find(changed).map(|name| format!("spec.{name}"))
}

/// A field of a binding's spec; an empty list is none.
fn spec_field(binding: Option<&Value>, name: &str) -> Value {
    match binding.and_then(|binding| binding.get("spec")?.get(name)) {
        Some(Value::Array(all)) if all.is_empty() => Value::Null,
        Some(value) => value.clone(),
        None => Value::Null,
    }
}

/// What nobody else changes of a binding of a workload, gated or not.
fn find_workload_binding_change(old: Option<&Value>, new: &Value) -> Option<String> {
    let resource = |binding: &Value| binding.pointer("/spec/resource").cloned();
    let is_foreign = new.pointer("/spec/resource/namespace") != new.pointer("/metadata/namespace");
    if is_foreign && old.is_none_or(|old| resource(old) != resource(new)) {
        return Some("spec.resource of a workload of another namespace".to_owned());
    }
    let changed = |name: &&&str| spec_field(old, name) != spec_field(Some(new), name);
    if let Some(name) = PLACED_SPEC.iter().find(changed) {
        return Some(format!("spec.{name}"));
    }
    let Some(old) = old else {
        return (!has_karmada_name(new)).then(|| "metadata.name of a workload's binding".to_owned());
    };
    let id = |binding: &Value| binding.pointer("/metadata/labels").and_then(|labels| labels.get(BINDING_ID)).cloned();
    if id(old).is_some() && id(old) != id(new) {
        return Some(format!("metadata.labels[{BINDING_ID}]"));
    }
    let holds = |binding: &Value| {
        let finalizers = binding.pointer("/metadata/finalizers").and_then(Value::as_array);
        finalizers.is_some_and(|all| all.iter().any(|one| one == BINDING_FINALIZER))
    };
    (holds(old) && !holds(new)).then(|| format!("metadata.finalizers, {BINDING_FINALIZER},"))
}

/// Whether a binding has the name that Karmada gives it: a second one of its workload would have another.
fn has_karmada_name(binding: &Value) -> bool {
    let of = |field: &str| binding.pointer(field).and_then(Value::as_str).unwrap_or_default();
    of("/metadata/name") == binding_name(of("/spec/resource/kind"), of("/spec/resource/name"))
}

/// Whether a binding is of a workload that could be queued.
fn is_of_queueable_workload(binding: &Value) -> bool {
    let of = |field: &str| binding.pointer(field).and_then(Value::as_str).unwrap_or_default();
    WorkloadKind::parse(of("/spec/resource/apiVersion"), of("/spec/resource/kind")).is_some()
}

/// Whether a binding is in Caldera's hands: a Volcano Job's, or one with a gate or a record.
#[must_use]
pub fn is_managed_by_caldera(binding: &Value) -> bool {
    let kind = WorkloadKind::parse(
        read_text_at(binding, "/spec/resource/apiVersion"),
        read_text_at(binding, "/spec/resource/kind"),
    );
    kind == Some(WorkloadKind::VolcanoJob)
        || [GATE, ADMISSION].into_iter().any(|name| annotation_of(binding, name).is_some())
}

/// Whether it is suspended and has no record.
fn is_suspended_without_record(binding: &Value) -> bool {
    annotation_of(binding, ADMISSION).is_none()
        && binding.pointer("/spec/suspension/scheduling") == Some(&Value::Bool(true))
}

/// Whether a Work carries a workload that can be queued.
#[must_use]
pub fn carries_workload(work: &Value) -> bool {
    let manifests = work.pointer("/spec/workload/manifests").and_then(Value::as_array);
    manifests.into_iter().flatten().any(|manifest| WorkloadKind::of_object(manifest).is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn binding(annotations: Value, spec: Value) -> Value {
        let mut object = json!({
            "metadata": {"name": "x-job", "annotations": annotations},
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
        assert!(own.build_untrusted_expression().starts_with(r"!(request.userInfo.username in ['a\' || true || \''])"));
    }

    #[test]
    fn the_writers_are_read_back_from_their_expression_and_from_no_other() {
        let odd = ["user:a' || true || '", "user:b\\", "group:c, d]"].map(|word| word.parse().unwrap());
        for writers in [TrustedWriters::default(), odd.into_iter().collect(), [].into_iter().collect()] {
            let expression = writers.build_untrusted_expression();
            assert_eq!(TrustedWriters::parse_untrusted_expression(&expression), Some(writers), "{expression}");
            assert_eq!(TrustedWriters::parse_untrusted_expression(&format!("{expression} && false")), None);
        }
        for other in ["", "true", "!(request.userInfo.username in [", "!(request.userInfo.username in ['a"] {
            assert_eq!(TrustedWriters::parse_untrusted_expression(other), None, "{other}");
        }
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
    fn of_any_workloads_binding_nobody_else_says_where_it_is_or_leaves_its_copies_to_nobody() {
        let mut old = binding(json!({}), json!({}));
        old["metadata"]["namespace"] = "team".into();
        old["metadata"]["name"] = "x-deployment".into();
        old["metadata"]["labels"] = json!({BINDING_ID: "1"});
        old["metadata"]["finalizers"] = json!([BINDING_FINALIZER]);
        old["spec"]["resource"] =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "x", "namespace": "team"});
        let change = |pointer: &str, value: Value| {
            let mut new = old.clone();
            *new.pointer_mut(pointer).unwrap() = value;
            find_protected_change(Some(&old), &new)
        };
        assert_eq!(find_protected_change(None, &old), None);
        assert_eq!(find_protected_change(Some(&old), &old), None);
        assert!(change("/spec/resource/namespace", "other".into()).unwrap().contains("another namespace"));
        assert!(change("/metadata/labels", json!({})).unwrap().contains(BINDING_ID));
        assert!(change("/metadata/labels", json!({BINDING_ID: "2"})).is_some());
        assert!(change("/metadata/finalizers", json!([])).unwrap().contains(BINDING_FINALIZER));
        assert_eq!(change("/metadata/finalizers", json!(["x/y", BINDING_FINALIZER])), None);
        for field in PLACED_SPEC {
            let mut new = old.clone();
            new["spec"][field] = json!([{"name": "m1"}]);
            assert_eq!(find_protected_change(Some(&old), &new), Some(format!("spec.{field}")));
            assert_eq!(find_protected_change(None, &new), Some(format!("spec.{field}")));
        }
        let mut second = old.clone();
        second["metadata"]["name"] = "y".into();
        assert!(find_protected_change(None, &second).unwrap().contains("metadata.name"));
        assert_eq!(find_protected_change(Some(&second), &second), None);
        // A forged one that is there already stays deletable and suspendable.
        let mut foreign = old.clone();
        foreign["spec"]["resource"]["namespace"] = "other".into();
        assert!(find_protected_change(None, &foreign).is_some());
        assert_eq!(find_protected_change(Some(&foreign), &foreign), None);
    }

    #[test]
    fn what_is_no_workload_is_not_ours_to_protect() {
        let mut old = binding(json!({}), json!({}));
        old["spec"]["resource"] = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x"});
        let mut new = old.clone();
        new["spec"]["clusters"] = json!([{"name": "m1", "replicas": 1}]);
        assert_eq!(find_protected_change(Some(&old), &new), None);
        old["metadata"]["annotations"][GATE] = "closed".into();
        assert!(find_protected_change(Some(&old), &new).is_some());
    }

    #[test]
    fn a_volcano_job_and_whatever_has_a_gate_is_queued() {
        let of = |api_version: &str, kind: &str, annotations: Value| {
            is_managed_by_caldera(&json!({
                "metadata": {"annotations": annotations},
                "spec": {"resource": {"apiVersion": api_version, "kind": kind}},
            }))
        };
        assert!(of("batch.volcano.sh/v1alpha1", "Job", Value::Null));
        assert!(!of("apps/v1", "Deployment", json!({})));
        assert!(of("apps/v1", "Deployment", json!({GATE: "open"})));
    }
}
