//! Aggregated discovery (`apidiscovery.k8s.io/v2`): everything about the kinds in one answer.

use serde_json::{Value, json};

use super::groups::{kinds_of_version, list_groups, supported_verbs};
use crate::resource::{Registry, Resource, Subresource};

/// `/api`: the core group, which has no name.
pub fn core_groups(registry: &Registry) -> Value {
    group_list(&[json!({"metadata": {}, "versions": [version_document(registry, "", "v1")]})])
}

/// `/apis`: all other groups.
pub fn named_groups(registry: &Registry) -> Value {
    let group = |g: &super::groups::Group| {
        let versions: Vec<Value> = g.versions.iter().map(|v| version_document(registry, &g.name, v)).collect();
        json!({"metadata": {"name": g.name}, "versions": versions})
    };
    group_list(&list_groups(registry).iter().map(group).collect::<Vec<_>>())
}

fn group_list(items: &[Value]) -> Value {
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn version_document(registry: &Registry, group: &str, version: &str) -> Value {
    let resources: Vec<Value> = kinds_of_version(registry, group, version).into_iter().map(resource_document).collect();
    json!({"version": version, "resources": resources, "freshness": "Current"})
}

fn resource_document(resource: &Resource) -> Value {
    let mut value = json!({
        "resource": resource.plural,
        "responseKind": response_kind(resource),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": supported_verbs(resource),
    });
    if !resource.short_names.is_empty() {
        value["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        value["categories"] = json!(resource.categories);
    }
    if !resource.subresources.is_empty() {
        let parts: Vec<Value> = resource.subresources.iter().map(|s| subresource_document(resource, s)).collect();
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

fn subresource_document(parent: &Resource, subresource: &Subresource) -> Value {
    let kind = match &subresource.kind {
        Some((group, version, kind)) if *group == parent.group && *version == parent.version => {
            json!({"group": "", "version": "", "kind": kind})
        }
        Some((group, version, kind)) => json!({"group": group, "version": version, "kind": kind}),
        None => response_kind(parent),
    };
    json!({"subresource": subresource.name, "responseKind": kind, "verbs": subresource.verbs})
}
