//! What a client is warned of in a pod or a template of pods (`pkg/api/pod/warnings.go`): fields that are deprecated,
//! that say a thing twice, or that mean nothing.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::error::go_quote;
use crate::limits::Amount;
use crate::podspec::{NULL, items_of, text_of};

const NO_SELECTOR: &str = "labelSelector: a null labelSelector results in matching no pod";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Labels of nodes that have other names now, and since when.
const OLD_LABELS: [(&str, &str, &str); 5] = [
    ("beta.kubernetes.io/arch", "v1.14", "kubernetes.io/arch"),
    ("beta.kubernetes.io/os", "v1.14", "kubernetes.io/os"),
    ("failure-domain.beta.kubernetes.io/region", "v1.17", "topology.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "v1.17", "topology.kubernetes.io/zone"),
    ("beta.kubernetes.io/instance-type", "v1.17", "node.kubernetes.io/instance-type"),
];

/// Volumes of drivers that are no longer there.
const OLD_VOLUMES: [(&str, &str); 8] = [
    ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
];

/// `at` is the spec of the pod; `template` says that it is one to make pods of.
pub fn spec_warnings(spec: &Value, at: &str, template: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    for key in spec.get("nodeSelector").and_then(Value::as_object).into_iter().flat_map(|map| map.keys()) {
        if let Some((_, since, now)) = OLD_LABELS.iter().find(|(old, ..)| old == key) {
            warnings.push(format!("{at}.nodeSelector[{key}]: deprecated since {since}; use {} instead", go_quote(now)));
        }
    }
    warnings.extend(affinity_warnings(spec.get("affinity").unwrap_or(&NULL), &format!("{at}.affinity")));
    for (index, constraint) in items_of(spec, "topologySpreadConstraints").iter().enumerate() {
        let at = format!("{at}.topologySpreadConstraints[{index}]");
        warnings.extend(old_label(text_of(constraint, "topologyKey"), &format!("{at}.topologyKey")));
        if constraint.get("labelSelector").is_none() {
            warnings.push(format!("{at}.{NO_SELECTOR}"));
        }
    }
    let mut secrets = BTreeSet::new();
    for (index, secret) in items_of(spec, "imagePullSecrets").iter().enumerate() {
        let (field, name) = (format!("{at}.imagePullSecrets[{index}].name"), text_of(secret, "name"));
        if name.is_empty() {
            warnings.push(format!("{field}: invalid empty name \"\""));
        } else if !secrets.insert(name) {
            warnings.push(format!("{field}: duplicate name {}", go_quote(name)));
        }
    }
    for (index, volume) in items_of(spec, "volumes").iter().enumerate() {
        for (kind, why) in OLD_VOLUMES.iter().filter(|(kind, _)| volume.get(*kind).is_some()) {
            warnings.push(format!("{at}.volumes[{index}].{kind}: {why}"));
        }
        if volume.get("projected").is_some_and(|projected| {
            items_of(projected, "sources").iter().all(|source| source.as_object().is_none_or(serde_json::Map::is_empty))
        }) {
            let name = go_quote(text_of(volume, "name"));
            warnings.push(format!("volume {name} (Projected) has no sources provided"));
        }
    }
    let grace = spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64);
    if template && grace.is_some_and(|seconds| seconds < 0) {
        let why = "must be >= 0; negative values are invalid and will be treated as 1";
        warnings.push(format!("{at}.terminationGracePeriodSeconds: {why}"));
    }
    warnings.extend(container_warnings(spec, at));
    warnings
}

fn old_label(key: &str, field: &str) -> Option<String> {
    let (_, since, now) = OLD_LABELS.iter().find(|(old, ..)| *old == key)?;
    Some(format!("{field}: {key} is deprecated since {since}; use {} instead", go_quote(now)))
}

fn affinity_warnings(affinity: &Value, at: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    let node = affinity.get("nodeAffinity").unwrap_or(&NULL);
    let required = node.get(REQUIRED).map_or(&[][..], |required| items_of(required, "nodeSelectorTerms")).iter();
    let required = required.enumerate().map(|(i, term)| (format!("{REQUIRED}.nodeSelectorTerms[{i}]"), term));
    let preferred = items_of(node, PREFERRED).iter().enumerate();
    let preferred =
        preferred.map(|(i, p)| (format!("{PREFERRED}[{i}].preference"), p.get("preference").unwrap_or(&NULL)));
    for (place, term) in required.chain(preferred) {
        for (index, expression) in items_of(term, "matchExpressions").iter().enumerate() {
            let field = format!("{at}.nodeAffinity.{place}.matchExpressions[{index}].key");
            warnings.extend(old_label(text_of(expression, "key"), &field));
        }
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let terms = affinity.get(kind).unwrap_or(&NULL);
        let required = items_of(terms, REQUIRED).iter().enumerate().map(|(i, t)| (format!("{REQUIRED}[{i}]"), t));
        let preferred = items_of(terms, PREFERRED).iter().enumerate();
        let preferred = preferred
            .map(|(i, t)| (format!("{PREFERRED}[{i}].podAffinityTerm"), t.get("podAffinityTerm").unwrap_or(&NULL)));
        for (place, term) in required.chain(preferred) {
            if term.get("labelSelector").is_none() {
                warnings.push(format!("{at}.{kind}.{place}.{NO_SELECTOR}"));
            }
        }
    }
    warnings
}

/// Ports that two have, variables that hide others, and parts of bytes.
fn container_warnings(spec: &Value, at: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut ports: Vec<(&Value, String, usize)> = Vec::new();
    let lists = ["initContainers", "containers"].into_iter();
    let containers = lists.flat_map(|list| items_of(spec, list).iter().enumerate().map(move |(i, c)| (list, i, c)));
    for (number, (list, index, container)) in containers.enumerate() {
        let at = format!("{at}.{list}[{index}]");
        for (place, port) in items_of(container, "ports").iter().enumerate() {
            let field = format!("{at}.ports[{place}]");
            let socket = |p: &Value| ["containerPort", "protocol", "hostIP", "hostPort"].map(|key| p.get(key).cloned());
            if let Some((_, first, _)) = ports.iter().find(|(other, ..)| socket(other) == socket(port)) {
                warnings.push(format!("{field}: duplicate port definition with {first}"));
            }
            let name = text_of(port, "name");
            let named = ports.iter().find(|(other, _, of)| *of != number && text_of(other, "name") == name);
            if let Some((_, first, _)) = named.filter(|_| !name.is_empty()) {
                let name = go_quote(name);
                warnings.push(format!(
                    "{field}: duplicate port name {name} with {first}, services and probes that select ports by name will \
                     use {first}"
                ));
            }
            ports.push((port, field, number));
        }
        warnings.extend(variable_warnings(container, &at));
        for list in ["limits", "requests"] {
            let amounts = container.pointer(&format!("/resources/{list}")).and_then(Value::as_object);
            for (name, amount) in amounts.into_iter().flatten() {
                let in_bytes = matches!(name.as_str(), "memory" | "ephemeral-storage");
                if in_bytes && Amount::parse(amount).is_some_and(|amount| !amount.is_whole()) {
                    let shown = go_quote(amount.as_str().unwrap_or_default());
                    let why = "is invalid, must be an integer";
                    warnings.push(format!("{at}.resources.{list}[{name}]: fractional byte value {shown} {why}"));
                }
            }
        }
    }
    warnings
}

/// A later variable of the same name hides the earlier one, unless it is made of it.
fn variable_warnings(container: &Value, at: &str) -> Vec<String> {
    let variables = items_of(container, "env");
    let hides = |(index, variable): (usize, &Value)| {
        let (name, value) = (text_of(variable, "name"), text_of(variable, "value"));
        let twice = variables.iter().take(index).any(|other| text_of(other, "name") == name);
        (twice && !value.contains(&format!("$({name})"))).then(|| {
            let name = go_quote(name);
            format!("{at}.env[{index}]: hides previous definition of {name}, which may be dropped when using apply")
        })
    };
    variables.iter().enumerate().filter_map(hides).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_said_twice_is_told() {
        let port = json!({"containerPort": 80, "name": "a"});
        let spec = json!({"imagePullSecrets": [{"name": "s"}, {"name": "s"}], "containers": [{"ports": [port]},
            {"ports": [port], "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}]}]});
        let warnings = spec_warnings(&spec, "spec", false);
        assert_eq!(warnings.len(), 3, "{warnings:?}");
        assert_eq!(warnings[0], "spec.imagePullSecrets[1].name: duplicate name \"s\"");
    }

    #[test]
    fn a_spread_without_a_selector_counts_nobody() {
        let spec = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "k"}],
            "nodeSelector": {"beta.kubernetes.io/os": "linux"}});
        assert_eq!(
            spec_warnings(&spec, "s", true),
            [
                "s.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
                "s.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod"
            ]
        );
    }
}
