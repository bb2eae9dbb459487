//! Which groups and versions there are, in which order, and their legacy lists (`/api`, `/apis`, `/apis/<g>`,
//! `/apis/<g>/<v>`).

use base64::Engine;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::resource::{Registry, Resource, Subresource};

/// The built-in groups in the aggregator's order; groups of custom kinds follow by name.
const BUILTIN_ORDER: [&str; 21] = [
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
];

/// One group with its versions, the preferred one first.
pub struct Group {
    pub name: String,
    pub versions: Vec<String>,
}

/// All groups but the core one.
pub fn list_groups(registry: &Registry) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for resource in registry.iter().filter(|r| !r.group.is_empty()) {
        match groups.iter_mut().find(|g| g.name == resource.group) {
            Some(group) if group.versions.contains(&resource.version) => {}
            Some(group) => group.versions.push(resource.version.clone()),
            None => groups.push(Group { name: resource.group.clone(), versions: vec![resource.version.clone()] }),
        }
    }
    let rank = |name: &str| BUILTIN_ORDER.iter().position(|b| *b == name).unwrap_or(BUILTIN_ORDER.len());
    groups.sort_by(|a, b| rank(&a.name).cmp(&rank(&b.name)).then_with(|| a.name.cmp(&b.name)));
    for group in &mut groups {
        group.versions.sort_by(|a, b| version_rank(b).cmp(&version_rank(a)).then_with(|| a.cmp(b)));
    }
    groups
}

/// Kubernetes' order of versions: `v2` over `v1` over `v1beta2` over `v1alpha1`; anything else comes last, by name.
fn version_rank(version: &str) -> (u8, u64, u64) {
    let parse = || -> Option<(u8, u64, u64)> {
        let rest = version.strip_prefix('v')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major: u64 = rest.get(..digits)?.parse().ok()?;
        let tail = rest.get(digits..)?;
        let (level, minor) = match (tail, tail.strip_prefix("beta"), tail.strip_prefix("alpha")) {
            ("", _, _) => (3, 0),
            (_, Some(n), _) => (2, n.parse().ok()?),
            (_, _, Some(n)) => (1, n.parse().ok()?),
            _ => return None,
        };
        Some((level, major, minor))
    };
    parse().unwrap_or((0, 0, 0))
}

/// The kinds of one version, by plural.
pub fn kinds_of_version<'r>(registry: &'r Registry, group: &str, version: &str) -> Vec<&'r Resource> {
    registry.iter().filter(|r| r.group == group && r.version == version).map(AsRef::as_ref).collect()
}

fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

pub fn api_versions(server_address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    })
}

pub fn group_list(registry: &Registry) -> Value {
    let groups: Vec<Value> = list_groups(registry).iter().map(group_members).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

pub fn group_document(registry: &Registry, name: &str) -> Option<Value> {
    let found = list_groups(registry).into_iter().find(|g| g.name == name)?;
    let mut value = group_members(&found);
    value["kind"] = "APIGroup".into();
    value["apiVersion"] = "v1".into();
    Some(value)
}

fn group_members(group: &Group) -> Value {
    let version = |v: &String| json!({"groupVersion": format!("{}/{v}", group.name), "version": v});
    let versions: Vec<Value> = group.versions.iter().map(version).collect();
    json!({"name": group.name, "versions": versions, "preferredVersion": versions.first()})
}

/// `/api/v1` and `/apis/<group>/<version>`; `None` when there is no such version.
pub fn resource_list(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let kinds = kinds_of_version(registry, group, version);
    if kinds.is_empty() {
        return None;
    }
    let mut resources: Vec<Value> = kinds.iter().flat_map(|r| resource_entries(r)).collect();
    resources.sort_by_key(|r| r.get("name").and_then(Value::as_str).map(str::to_owned));
    let mut list = json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": api_version(group, version),
        "resources": resources,
    });
    if group.is_empty()
        && let Some(members) = list.as_object_mut()
    {
        // The core group's handler is older than the rule that lists carry an apiVersion.
        members.remove("apiVersion");
    }
    Some(list)
}

fn resource_entries(resource: &Resource) -> Vec<Value> {
    let mut entry = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": supported_verbs(resource),
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    if resource.has_verb("list") && resource.has_verb("create") {
        entry["storageVersionHash"] = storage_version_hash(resource).into();
    }
    let parts = resource.subresources.iter().map(|s| subresource_entry(resource, s));
    std::iter::once(entry).chain(parts).collect()
}

fn subresource_entry(resource: &Resource, subresource: &Subresource) -> Value {
    let mut entry = json!({
        "name": format!("{}/{}", resource.plural, subresource.name),
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": subresource.verbs,
    });
    if let Some((group, version, kind)) = &subresource.kind {
        entry["kind"] = kind.as_str().into();
        if *group != resource.group || *version != resource.version {
            entry["group"] = group.as_str().into();
            entry["version"] = version.as_str().into();
        }
    }
    entry
}

/// Custom kinds list their verbs in an order of their own.
pub fn supported_verbs(resource: &Resource) -> Vec<&'static str> {
    if resource.is_custom() && resource.verbs.len() == 8 {
        return vec!["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
    }
    resource.verbs.clone()
}

/// The first eight bytes of a hash over the form in which objects are stored (`discovery.StorageVersionHash`).
fn storage_version_hash(resource: &Resource) -> String {
    let stored = resource.custom.as_ref().and_then(|c| c.storage.as_deref()).unwrap_or(resource);
    let (group, version) = match resource.plural.as_str() {
        "events" => ("", "v1"),
        "horizontalpodautoscalers" => ("autoscaling", "v2"),
        _ => (stored.group.as_str(), stored.version.as_str()),
    };
    let digest = Sha256::digest(format!("{group}/{version}/{}", stored.kind));
    base64::engine::general_purpose::STANDARD.encode(&digest[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_stability_then_number() {
        let mut versions = vec!["v1alpha1", "foo", "v1", "v2beta1", "v2", "v1beta2"];
        versions.sort_by(|a, b| version_rank(b).cmp(&version_rank(a)).then_with(|| a.cmp(b)));
        assert_eq!(versions, ["v2", "v1", "v2beta1", "v1beta2", "v1alpha1", "foo"]);
    }
}
