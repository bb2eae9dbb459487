//! What override policies change in one cluster's copy.
//!
//! Rule: Karmada `pkg/util/overridemanager`: cluster-wide policies first, then the namespace's; within each, from the
//! loosest match to the closest, then by name; per rule: images, commands, arguments, labels, annotations,
//! texts, values.

use serde::Serialize;
use serde_json::{Value, json};

use crate::karmada::{
    detector::plan::{Match, match_selectors},
    object::{ObjectExt, Shared},
    select::cluster_matches,
};

/// A policy's rule that applies to an object in a cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    /// The policy.
    pub policy: String,
    /// What it changes.
    pub overriders: Value,
}

/// The rules of these policies (of one scope) for an object in a cluster, in order.
#[must_use]
pub fn matching_rules(policies: &[Shared], object: &Value, cluster: &Value) -> Vec<Applied> {
    let mut matching: Vec<(Match, &Shared)> = policies
        .iter()
        .filter_map(|policy| match policy.items("/spec/resourceSelectors") {
            [] => Some((Match::All, policy)),
            selectors => Some((match_selectors(object, selectors)?, policy)),
        })
        .collect();
    matching.sort_by(|a, b| (a.0, a.1.name()).cmp(&(b.0, b.1.name())));
    let mut found = Vec::new();
    for (_, policy) in matching {
        let rules = match policy.items("/spec/overrideRules") {
            [] => std::slice::from_ref(&policy["spec"]),
            rules => rules,
        };
        for rule in rules {
            if rule.present("/targetCluster").is_none_or(|affinity| cluster_matches(cluster, affinity)) {
                let overriders = rule.get("overriders").cloned().unwrap_or_else(|| json!({}));
                found.push(Applied { policy: policy.name().to_owned(), overriders });
            }
        }
    }
    found
}

/// What a Work's annotation says was applied; `None` when nothing was.
#[must_use]
pub fn record_applied(applied: &[Applied]) -> Option<String> {
    #[derive(Serialize)]
    struct Item<'a> {
        #[serde(rename = "policyName")]
        policy: &'a str,
        overriders: &'a Value,
    }
    let items: Vec<Item<'_>> =
        applied.iter().map(|one| Item { policy: &one.policy, overriders: &one.overriders }).collect();
    if items.is_empty() { None } else { serde_json::to_string(&items).ok() }
}

/// Applies one rule.
///
/// # Errors
/// When it names something that is not there.
pub fn apply_overriders(object: &mut Value, overriders: &Value) -> Result<(), String> {
    for one in overriders.items("/imageOverrider") {
        override_images(object, one)?;
    }
    for (list, field) in [("/commandOverrider", "command"), ("/argsOverrider", "args")] {
        for one in overriders.items(list) {
            override_arguments(object, one, field);
        }
    }
    for (list, field) in [("/labelsOverrider", "labels"), ("/annotationsOverrider", "annotations")] {
        for one in overriders.items(list) {
            override_entries(object, one, field);
        }
    }
    for one in overriders.items("/fieldOverrider") {
        override_text(object, one)?;
    }
    patch_at(object, overriders.items("/plaintext"), "/path")
}

/// JSON inside of a text, as in a ConfigMap; YAML inside of one is refused, for want of Go's way to write it.
fn override_text(object: &mut Value, rule: &Value) -> Result<(), String> {
    let path = rule.text("/fieldPath");
    let field = object.pointer_mut(path).ok_or_else(|| format!("Object has no key at {path:?}"))?;
    let text = field.as_str().ok_or_else(|| format!("Get object's value by overrider's path({path}) is not string"))?;
    if !rule.items("/yaml").is_empty() {
        return Err(format!("the stand-in changes no YAML inside of a text, as at {path}"));
    }
    let mut inner: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    patch_at(&mut inner, rule.items("/json"), "/subPath")?;
    *field = json!(inner.to_string());
    Ok(())
}

fn patch_at(object: &mut Value, operations: &[Value], path: &str) -> Result<(), String> {
    let steps = operations.iter().map(|one| {
        let mut step = json!({"op": one.text("/operator"), "path": one.text(path)});
        step.put_or_remove(&["value"], one.get("value").cloned());
        step
    });
    let patch: json_patch::Patch = serde_json::from_value(steps.collect()).map_err(|error| error.to_string())?;
    json_patch::patch(object, &patch).map_err(|error| error.to_string())
}

/// Where containers of this kind are, by kind alone.
fn containers_path(object: &Value) -> Option<&'static str> {
    match object.text("/kind") {
        "Pod" => Some("/spec/containers"),
        "ReplicaSet" | "Deployment" | "DaemonSet" | "StatefulSet" | "Job" => Some("/spec/template/spec/containers"),
        _ => None,
    }
}

fn override_images(object: &mut Value, rule: &Value) -> Result<(), String> {
    let paths: Vec<String> = match rule.present("/predicate") {
        Some(predicate) => vec![predicate.text("/path").to_owned()],
        None => containers_path(object)
            .map(|at| (0..object.items(at).len()).map(|index| format!("{at}/{index}/image")).collect())
            .unwrap_or_default(),
    };
    for path in paths {
        let image = object
            .pointer_mut(&path)
            .ok_or_else(|| format!("failed to obtain imageValue with predicate path({path})"))?;
        let new = Image::parse(image.as_str().unwrap_or_default()).changed(rule).written();
        *image = json!(new);
    }
    Ok(())
}

/// `[host/]repository[:tag|@digest]`; of an image with both Karmada forgets the digest (`pkg/util/imageparser`).
struct Image {
    host: String,
    repository: String,
    version: String,
}

impl Image {
    fn parse(image: &str) -> Self {
        let (named, digest) = image.split_once('@').unwrap_or((image, ""));
        let (rest, version) = match named.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')) {
            Some((rest, tag)) => (rest, tag),
            None => (named, digest),
        };
        let is_host = |part: &str| part.contains('.') || part.contains(':') || part == "localhost";
        let (host, repository) = match rest.split_once('/').filter(|(first, _)| is_host(first)) {
            Some((host, repository)) => (host, repository),
            None => ("", rest),
        };
        Self { host: host.to_owned(), repository: repository.to_owned(), version: version.to_owned() }
    }

    fn changed(mut self, rule: &Value) -> Self {
        let is_version = rule.text("/component") == "Tag";
        let part = match rule.text("/component") {
            "Registry" => &mut self.host,
            "Repository" => &mut self.repository,
            "Tag" => &mut self.version,
            _ => return self,
        };
        let new = match rule.text("/operator") {
            "add" => format!("{part}{}", rule.text("/value")),
            "replace" => rule.text("/value").to_owned(),
            "remove" => String::new(),
            _ => return self,
        };
        // What is neither a tag nor a digest changes nothing.
        if !is_version || rule.text("/operator") == "remove" || is_tag(&new) || is_digest(&new) {
            *part = new;
        }
        self
    }

    fn written(&self) -> String {
        let mut text = self.repository.clone();
        if !self.host.is_empty() {
            text = format!("{}/{text}", self.host);
        }
        if !self.version.is_empty() {
            text.push(if is_digest(&self.version) { '@' } else { ':' });
            text += &self.version;
        }
        text
    }
}

fn is_tag(text: &str) -> bool {
    let word = |one: char| one.is_ascii_alphanumeric() || one == '_';
    text.starts_with(word) && text.len() <= 128 && text.chars().all(|one| word(one) || matches!(one, '.' | '-'))
}

/// An algorithm and at least 32 hexadecimal digits.
fn is_digest(text: &str) -> bool {
    let Some((algorithm, hex)) = text.split_once(':') else { return false };
    let named = |part: &str| {
        part.starts_with(|one: char| one.is_ascii_alphabetic()) && part.chars().all(|one| one.is_ascii_alphanumeric())
    };
    algorithm.split(['-', '_', '+', '.']).all(named)
        && hex.len() >= 32
        && hex.chars().all(|one| one.is_ascii_hexdigit())
}

fn override_arguments(object: &mut Value, rule: &Value, field: &str) {
    let Some(at) = containers_path(object) else { return };
    let Some(containers) = object.pointer_mut(at).and_then(Value::as_array_mut) else { return };
    for container in containers.iter_mut().filter(|one| one.text("/name") == rule.text("/containerName")) {
        let mut all = container.items(&format!("/{field}")).to_vec();
        let named = rule.items("/value");
        match rule.text("/operator") {
            "add" => all.extend(named.iter().cloned()),
            "remove" => all.retain(|one| !named.contains(one)),
            _ => {}
        }
        container.put(&[field], Value::Array(all));
    }
}

fn override_entries(object: &mut Value, rule: &Value, field: &str) {
    let add = rule.text("/operator") == "add";
    for (key, value) in rule.get("value").and_then(Value::as_object).into_iter().flatten() {
        let present = object.get("metadata").and_then(|meta| meta.get(field)).is_some_and(|map| map.get(key).is_some());
        if rule.text("/operator") == "remove" {
            object.remove_at(&["metadata", field, key]);
        } else if add || present {
            object.put(&["metadata", field, key], value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn rules_apply_from_the_loosest_to_the_closest() {
        let policy = |name: &str, selector: Value| -> Shared {
            Arc::new(json!({"metadata": {"name": name}, "spec": {"resourceSelectors": [selector], "overrideRules": [
                {"targetCluster": {"clusterNames": ["m1"]}, "overriders": {"plaintext": []}}]}}))
        };
        let kind = json!({"apiVersion": "v1", "kind": "Pod"});
        let named = json!({"apiVersion": "v1", "kind": "Pod", "name": "a"});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}});
        let policies = [policy("a", named), policy("z", kind)];
        let names = |cluster: &str| -> Vec<String> {
            matching_rules(&policies, &pod, &json!({"metadata": {"name": cluster}}))
                .into_iter()
                .map(|one| one.policy)
                .collect()
        };
        assert_eq!(names("m1"), ["z", "a"]);
        assert!(names("m2").is_empty());
    }

    #[test]
    fn parts_of_an_image_change_alone() {
        let with = |image: &str, component: &str, operator: &str, value: &str| {
            let rule = json!({"component": component, "operator": operator, "value": value});
            Image::parse(image).changed(&rule).written()
        };
        assert_eq!(with("nginx", "Registry", "add", "r.io"), "r.io/nginx");
        assert_eq!(with("r.io:5000/a/b:1", "Tag", "replace", "2"), "r.io:5000/a/b:2");
        let digest = format!("sha256:{}", "0a".repeat(32));
        assert_eq!(with(&format!("a/b@{digest}"), "Repository", "replace", "x"), format!("x@{digest}"));
        assert_eq!(with("a/b:1", "Tag", "replace", &digest), format!("a/b@{digest}"));
        assert_eq!(with(&format!("a/b@{digest}"), "Tag", "replace", "2"), "a/b:2");
        assert_eq!(with(&format!("a/b:1@{digest}"), "Registry", "add", "r.io"), "r.io/a/b:1");
        assert_eq!(with("a/b:1", "Tag", "replace", "no tag"), "a/b:1");
        assert_eq!(with("a/b", "Tag", "add", "v1"), "a/b:v1");
        assert_eq!(with("a/b:1", "Tag", "remove", ""), "a/b");
    }

    #[test]
    fn plain_text_is_a_json_patch() {
        let mut object = json!({"spec": {"minAvailable": 10}});
        apply_overriders(
            &mut object,
            &json!({"plaintext": [{"path": "/spec/minAvailable", "operator": "replace", "value": 6}]}),
        )
        .unwrap();
        assert_eq!(object["spec"]["minAvailable"], 6);
        assert!(
            apply_overriders(
                &mut object,
                &json!({"plaintext": [{"path": "/spec/x", "operator": "replace", "value": 6}]})
            )
            .is_err()
        );
    }

    #[test]
    fn json_inside_of_a_text_is_patched_and_other_texts_are_refused() {
        let map = json!({"kind": "ConfigMap", "data": {"a.json": "{\"db\":{\"host\":\"x\"}}", "b": "text"}});
        let rule = |path: &str| {
            json!({"fieldOverrider": [{"fieldPath": path,
                "json": [{"subPath": "/db/host", "operator": "replace", "value": "y"}]}]})
        };
        let mut changed = map.clone();
        apply_overriders(&mut changed, &rule("/data/a.json")).unwrap();
        assert_eq!(changed["data"]["a.json"], "{\"db\":{\"host\":\"y\"}}");
        for path in ["/data/b", "/data/none", "/data"] {
            assert!(apply_overriders(&mut map.clone(), &rule(path)).is_err(), "{path}");
        }
    }
}
