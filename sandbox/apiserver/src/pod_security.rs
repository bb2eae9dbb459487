//! Pod Security Standards: what a namespace's labels let its pods do (admission plugin PodSecurity,
//! `k8s.io/pod-security-admission`).
//!
//! The level `enforce` refuses pods; the level `warn`, which follows `enforce` where it is not given, tells who writes
//! a pod or something that makes pods. A namespace that gets a stricter level is told which of its pods break it. The
//! checks are those of the latest version, but for those that an older one did not have yet.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::Status;
use crate::meta;
use crate::podspec::items_of;
use crate::resource::Resource;
use crate::schema::FieldError;
use crate::server::ApiServer;

mod checks;

const PREFIX: &str = "pod-security.kubernetes.io/";

/// How much a pod may do, from everything to little.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "privileged" => Some(Self::Privileged),
            "baseline" => Some(Self::Baseline),
            "restricted" => Some(Self::Restricted),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

/// A level of a version, as a label says it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Demand {
    level: Level,
    version: String,
}

impl Demand {
    /// What the labels demand in a mode; `None` where they say nothing that could be read.
    fn of(labels: &Value, mode: &str) -> Option<Self> {
        let text = |key: String| labels.get(key).and_then(Value::as_str);
        let level = Level::parse(text(format!("{PREFIX}{mode}"))?)?;
        let version = text(format!("{PREFIX}{mode}-version")).unwrap_or("latest").to_owned();
        Some(Self { level, version })
    }

    fn minor(&self) -> Option<u32> {
        self.version.strip_prefix("v1.").and_then(|minor| minor.parse().ok())
    }

    fn shown(&self) -> String {
        format!("PodSecurity {}", crate::error::go_quote(&format!("{}:{}", self.level.name(), self.version)))
    }
}

/// Refuses a written object, or says what is wrong with it.
pub fn admit_object(
    server: &ApiServer,
    resource: &Resource,
    object: &Value,
    old: Option<&Value>,
) -> Result<Vec<String>, Status> {
    if resource.is_custom() {
        return Ok(Vec::new());
    }
    let kind = (resource.group.as_str(), resource.plural.as_str());
    if kind == ("", "namespaces") {
        return admit_namespace(server, object, old);
    }
    let Some((metadata, spec)) = pod_within(kind, object) else { return Ok(Vec::new()) };
    let namespace =
        server.store().get("namespaces", &crate::store::Key::new("", meta::metadata_text(object, "namespace")));
    let Some(namespace) = namespace else { return Ok(Vec::new()) };
    let labels = namespace.value.pointer("/metadata/labels").unwrap_or(&Value::Null);
    let enforced = Demand::of(labels, "enforce");
    let is_pod = kind == ("", "pods");
    if is_pod && old.is_some_and(|old| !differs_in_containers(object, old)) {
        return Ok(Vec::new());
    }
    if let Some(demand) = enforced.as_ref().filter(|_| is_pod) {
        let broken = checks::violations(metadata, spec, demand.level, demand.minor());
        if !broken.is_empty() {
            let why = format!("violates {}: {}", demand.shown(), broken.join(", "));
            return Err(Status::forbidden("", "pods", meta::object_name(object), &why));
        }
    }
    let Some(demand) = Demand::of(labels, "warn").or(enforced) else { return Ok(Vec::new()) };
    let broken = checks::violations(metadata, spec, demand.level, demand.minor());
    let warning = (!broken.is_empty()).then(|| format!("would violate {}: {}", demand.shown(), broken.join(", ")));
    Ok(warning.into_iter().collect())
}

/// The pod that an object is, or makes: its metadata and its spec.
fn pod_within<'v>(kind: (&str, &str), object: &'v Value) -> Option<(&'v Value, &'v Value)> {
    let at = match kind {
        ("", "pods") => "",
        ("", "podtemplates") => "/template",
        ("", "replicationcontrollers") | ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets") => {
            "/spec/template"
        }
        ("batch", "jobs") => "/spec/template",
        ("batch", "cronjobs") => "/spec/jobTemplate/spec/template",
        _ => return None,
    };
    let pod = object.pointer(at)?;
    Some((pod.get("metadata").unwrap_or(&Value::Null), pod.get("spec")?))
}

fn differs_in_containers(pod: &Value, old: &Value) -> bool {
    let spec = |v: &Value, list: &str| v.pointer(&format!("/spec/{list}")).cloned();
    ["containers", "initContainers", "ephemeralContainers"].iter().any(|list| spec(pod, list) != spec(old, list))
}

/// The labels themselves, and the pods that are there already.
fn admit_namespace(server: &ApiServer, namespace: &Value, old: Option<&Value>) -> Result<Vec<String>, Status> {
    let labels = namespace.pointer("/metadata/labels").unwrap_or(&Value::Null);
    let before = old.map(|old| old.pointer("/metadata/labels").unwrap_or(&Value::Null));
    let errors = label_errors(labels);
    let name = meta::object_name(namespace);
    if !errors.is_empty() && before.is_none_or(|before| label_errors(before) != errors) {
        return Err(Status::invalid("", "Namespace", name, &errors));
    }
    let (Some(demand), Some(before)) = (Demand::of(labels, "enforce"), before) else { return Ok(Vec::new()) };
    if Some(&demand) == Demand::of(before, "enforce").as_ref() {
        return Ok(Vec::new());
    }
    let pods = server.store().list("pods", Some(name));
    let broken = pods.iter().map(|pod| (meta::object_name(&pod.value), broken_reasons(&pod.value, &demand)));
    Ok(existing_warnings(name, &demand, broken.collect()))
}

fn broken_reasons(pod: &Value, demand: &Demand) -> Vec<String> {
    let part = |key: &str| pod.get(key).unwrap_or(&Value::Null);
    let texts = checks::violations(part("metadata"), part("spec"), demand.level, demand.minor());
    texts.iter().map(|text| text.split(" (").next().unwrap_or_default().to_owned()).collect()
}

/// One line for all pods that break the same checks.
fn existing_warnings(namespace: &str, demand: &Demand, pods: Vec<(&str, Vec<String>)>) -> Vec<String> {
    let mut groups: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (pod, reasons) in pods.into_iter().filter(|(_, reasons)| !reasons.is_empty()) {
        groups.entry(reasons.join(", ")).or_default().push(pod);
    }
    if groups.is_empty() {
        return Vec::new();
    }
    let quote = crate::error::go_quote;
    let level = quote(&format!("{}:{}", demand.level.name(), demand.version));
    let head =
        format!("existing pods in namespace {} violate the new PodSecurity enforce level {level}", quote(namespace));
    let mut lines: Vec<String> = groups
        .into_iter()
        .map(|(reasons, pods)| {
            let first = pods.first().copied().unwrap_or_default();
            let others = match pods.len() {
                1 => String::new(),
                2 => " (and 1 other pod)".to_owned(),
                many => format!(" (and {} other pods)", many - 1),
            };
            format!("{first}{others}: {reasons}")
        })
        .collect();
    lines.sort();
    lines.insert(0, head);
    lines
}

/// Levels and versions that are none.
fn label_errors(labels: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for mode in ["enforce", "audit", "warn"] {
        for (key, is_level) in [(format!("{PREFIX}{mode}"), true), (format!("{PREFIX}{mode}-version"), false)] {
            let Some(text) = labels.get(&key).and_then(Value::as_str) else { continue };
            let fits = if is_level { Level::parse(text).is_some() } else { is_version(text) };
            let why = if is_level {
                "must be one of privileged, baseline, restricted"
            } else {
                "must be \"latest\" or \"v1.x\""
            };
            if !fits {
                errors.push(FieldError::invalid_text(format!("metadata.labels[{key}]"), text, why));
            }
        }
    }
    errors
}

fn is_version(text: &str) -> bool {
    let minor = text.strip_prefix("v1.");
    text == "latest"
        || minor.is_some_and(|n| {
            n == "0" || (!n.starts_with('0') && !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        })
}

/// The containers of a pod, of each sort.
fn containers_of(spec: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(|list| items_of(spec, list))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn labels_name_a_level_and_a_version() {
        let labels = json!({"pod-security.kubernetes.io/enforce": "strict",
            "pod-security.kubernetes.io/warn-version": "1.30", "pod-security.kubernetes.io/audit-version": "v1.30"});
        let fields: Vec<String> = label_errors(&labels).into_iter().map(|e| e.field).collect();
        assert_eq!(
            fields,
            [
                "metadata.labels[pod-security.kubernetes.io/enforce]",
                "metadata.labels[pod-security.kubernetes.io/warn-version]"
            ]
        );
    }

    #[test]
    fn pods_that_break_the_same_checks_share_a_line() {
        let demand = Demand { level: Level::Baseline, version: "latest".into() };
        let broken = || vec!["host namespaces".to_owned()];
        let lines = existing_warnings("n", &demand, vec![("a", broken()), ("b", vec![]), ("c", broken())]);
        assert_eq!(lines[1], "a (and 1 other pod): host namespaces");
        assert!(lines[0].ends_with("violate the new PodSecurity enforce level \"baseline:latest\""));
    }

    #[test]
    fn a_change_of_labels_alone_is_not_looked_at() {
        let pod = |image: &str| json!({"metadata": {}, "spec": {"containers": [{"image": image}]}});
        assert!(differs_in_containers(&pod("a"), &pod("b")));
        assert!(!differs_in_containers(&pod("a"), &pod("a")));
    }
}
