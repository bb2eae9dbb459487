//! OpenAPI v3: an index, and per version a document with the paths of its kinds and, for custom kinds, their schemas. That is what
//! kubectl reads: whether PATCH knows `fieldValidation`, and what `explain` prints.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha512};

use super::groups::{groups, kinds};
use crate::resource::{Registry, Resource};

/// `/openapi/v3`: where each document is, with a hash that changes with it.
pub fn index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    for (path, group, version) in versions(registry) {
        let document = document(registry, &group, &version).unwrap_or_default();
        let url = format!("/openapi/v3/{path}?hash={}", hash(&document.to_string()));
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    json!({ "paths": paths })
}

fn versions(registry: &Registry) -> Vec<(String, String, String)> {
    let mut all = vec![("api/v1".to_owned(), String::new(), "v1".to_owned())];
    for group in groups(registry) {
        for version in group.versions {
            all.push((format!("apis/{}/{version}", group.name), group.name.clone(), version));
        }
    }
    all
}

pub fn hash(text: &str) -> String {
    Sha512::digest(text).iter().map(|b| format!("{b:02X}")).collect()
}

/// The document of one version; `None` when there is no such version.
pub fn document(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let kinds = kinds(registry, group, version);
    if kinds.is_empty() {
        return None;
    }
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    for resource in kinds {
        add_paths(&mut paths, resource);
        let gvk = json!([gvk(resource)]);
        schemas.insert(schema_name(resource), schema(resource, &gvk));
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": super::VERSION},
        "paths": paths,
        "components": {"schemas": schemas},
    }))
}

fn gvk(resource: &Resource) -> Value {
    json!({"group": resource.group, "kind": resource.kind, "version": resource.version})
}

/// `io.example.conf.v1.Widget`.
fn schema_name(resource: &Resource) -> String {
    let group = match resource.group.as_str() {
        "" => "io.k8s.api.core".to_owned(),
        group if !group.contains('.') => format!("io.k8s.api.{group}"),
        group => group.rsplit('.').collect::<Vec<_>>().join("."),
    };
    format!("{group}.{}.{}", resource.version, resource.kind)
}

fn schema(resource: &Resource, gvk: &Value) -> Value {
    let declared = resource.custom.as_ref().and_then(|c| c.definition.pointer("/schema/openAPIV3Schema")).cloned();
    let mut schema = declared.unwrap_or_else(|| json!({"type": "object"}));
    if let Some(members) = schema.as_object_mut() {
        if resource.is_custom()
            && let Some(properties) = members.entry("properties").or_insert_with(|| json!({})).as_object_mut()
        {
            properties.insert("apiVersion".into(), json!({"type": "string", "description": API_VERSION_TEXT}));
            properties.insert("kind".into(), json!({"type": "string", "description": KIND_TEXT}));
            properties.insert("metadata".into(), json!({"type": "object", "description": METADATA_TEXT}));
        }
        members.insert("x-kubernetes-group-version-kind".into(), gvk.clone());
    }
    schema
}

const API_VERSION_TEXT: &str = "APIVersion defines the versioned schema of this representation of an object. Servers \
    should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND_TEXT: &str = "Kind is a string value representing the REST resource this object represents. Servers may \
    infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const METADATA_TEXT: &str = "Standard object's metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

fn add_paths(paths: &mut Map<String, Value>, resource: &Resource) {
    let root = if resource.group.is_empty() {
        format!("/api/{}", resource.version)
    } else {
        format!("/apis/{}/{}", resource.group, resource.version)
    };
    let collection = match resource.namespaced {
        true => format!("{root}/namespaces/{{namespace}}/{}", resource.plural),
        false => format!("{root}/{}", resource.plural),
    };
    let methods = |table: &[(&str, &str, &str)]| -> Value {
        let listed = table.iter().filter(|(verb, _, _)| resource.has_verb(verb));
        listed.map(|(verb, method, action)| ((*method).to_owned(), operation(resource, verb, action))).collect()
    };
    let on_all =
        [("list", "get", "list"), ("create", "post", "post"), ("deletecollection", "delete", "deletecollection")];
    let on_one =
        [("get", "get", "get"), ("update", "put", "put"), ("patch", "patch", "patch"), ("delete", "delete", "delete")];
    paths.insert(collection.clone(), methods(&on_all));
    if resource.has_verb("get") {
        paths.insert(format!("{collection}/{{name}}"), methods(&on_one));
    }
}

fn operation(resource: &Resource, verb: &str, action: &str) -> Value {
    let writes = matches!(verb, "create" | "update" | "patch");
    let parameter =
        |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    let parameters: Vec<Value> = match verb {
        "delete" | "deletecollection" => vec![parameter("dryRun")],
        _ if writes => ["dryRun", "fieldManager", "fieldValidation"].into_iter().map(parameter).collect(),
        _ => Vec::new(),
    };
    let reference = json!({"$ref": format!("#/components/schemas/{}", schema_name(resource))});
    let mut operation = json!({
        "operationId": format!("{verb}{}", resource.kind),
        "parameters": parameters,
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": reference}}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": gvk(resource),
    });
    if writes {
        // Strategic merge is not offered here: kubectl then computes it from the types it was built with.
        let kinds: &[&str] = if verb == "patch" {
            &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"]
        } else {
            &["application/json"]
        };
        let content: Map<String, Value> =
            kinds.iter().map(|kind| ((*kind).to_owned(), json!({"schema": {"type": "object"}}))).collect();
        operation["requestBody"] = json!({"content": content, "required": true});
    }
    operation
}
