//! Aggregated discovery (`apidiscovery.k8s.io/v2`): everything about the kinds in one answer.

use serde_json::{Value, json};

use super::groups::{groups, kinds, verbs};
use crate::resource::{Registry, Resource, Subresource};

/// `/api`: the core group, which has no name.
pub fn core(registry: &Registry) -> Value {
    list(&[json!({"metadata": {}, "versions": [version(registry, "", "v1")]})])
}

/// `/apis`: all other groups.
pub fn named(registry: &Registry) -> Value {
    let group = |g: &super::groups::Group| {
        let versions: Vec<Value> = g.versions.iter().map(|v| version(registry, &g.name, v)).collect();
        json!({"metadata": {"name": g.name}, "versions": versions})
    };
    list(&groups(registry).iter().map(group).collect::<Vec<_>>())
}

fn list(items: &[Value]) -> Value {
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn version(registry: &Registry, group: &str, version: &str) -> Value {
    let resources: Vec<Value> = kinds(registry, group, version).into_iter().map(resource).collect();
    json!({"version": version, "resources": resources, "freshness": "Current"})
}

fn resource(resource: &Resource) -> Value {
    let mut value = json!({
        "resource": resource.plural,
        "responseKind": response_kind(resource),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": verbs(resource),
    });
    if !resource.short_names.is_empty() {
        value["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        value["categories"] = json!(resource.categories);
    }
    if !resource.subresources.is_empty() {
        let mut listed: Vec<&Subresource> = resource.subresources.iter().collect();
        // Custom kinds name their status before their scale.
        listed.sort_by_key(|s| resource.is_custom() && s.name != "status");
        let parts: Vec<Value> = listed.into_iter().map(|s| subresource(resource, s)).collect();
        value["subresources"] = parts.into();
    }
    value
}

/// Built-in kinds leave group and version to the place where they stand.
fn response_kind(resource: &Resource) -> Value {
    if resource.is_custom() {
        return json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
    }
    json!({"group": "", "version": "", "kind": resource.kind})
}

fn subresource(parent: &Resource, subresource: &Subresource) -> Value {
    let kind = match &subresource.kind {
        Some((group, version, kind)) if *group == parent.group && *version == parent.version => {
            json!({"group": "", "version": "", "kind": kind})
        }
        Some((group, version, kind)) => json!({"group": group, "version": version, "kind": kind}),
        None => response_kind(parent),
    };
    json!({"subresource": subresource.name, "responseKind": kind, "verbs": subresource.verbs})
}
