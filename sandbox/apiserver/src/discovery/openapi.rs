//! OpenAPI v3: an index, and per version a document with the paths of its kinds and, for custom kinds, their schemas.
//! That is what kubectl reads: whether PATCH knows `fieldValidation`, and what `explain` prints.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha512};

use super::groups::{kinds_of_version, list_groups};
use crate::resource::{Registry, Resource};
use crate::schema::{Additional, Link, ListKind, Node, Wire};

/// The documents, each made when it is first asked for and kept while its kinds stay what they are.
#[derive(Default)]
pub struct Cache(Mutex<BTreeMap<(String, String), Arc<Document>>>);

/// The document of one version.
pub struct Document {
    of: Vec<Arc<Resource>>,
    pub text: String,
    hash: String,
}

impl Cache {
    /// The document of a version; `None` when there is no such version.
    pub fn document(&self, registry: &Registry, group: &str, version: &str) -> Option<Arc<Document>> {
        let of: Vec<Arc<Resource>> =
            registry.iter().filter(|r| r.group == group && r.version == version).cloned().collect();
        if of.is_empty() {
            return None;
        }
        let key = (group.to_owned(), version.to_owned());
        let mut documents = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let unchanged = |d: &Document| d.of.len() == of.len() && d.of.iter().zip(&of).all(|(a, b)| Arc::ptr_eq(a, b));
        if let Some(known) = documents.get(&key).filter(|d| unchanged(d)) {
            return Some(known.clone());
        }
        let text = build_document(registry, group, version).to_string();
        let made = Arc::new(Document { of, hash: hash_document(text.as_bytes()), text });
        documents.insert(key, made.clone());
        Some(made)
    }

    /// `/openapi/v3`: where each document is, with a hash that changes with it.
    pub fn index(&self, registry: &Registry) -> Value {
        let located = list_versions(registry).into_iter().filter_map(|(path, group, version)| {
            let document = self.document(registry, &group, &version)?;
            let url = format!("/openapi/v3/{path}?hash={}", document.hash);
            Some((path, json!({"serverRelativeURL": url})))
        });
        json!({ "paths": located.collect::<Map<_, _>>() })
    }
}

fn list_versions(registry: &Registry) -> Vec<(String, String, String)> {
    let mut all = vec![("api/v1".to_owned(), String::new(), "v1".to_owned())];
    for group in list_groups(registry) {
        for version in group.versions {
            all.push((format!("apis/{}/{version}", group.name), group.name.clone(), version));
        }
    }
    all
}

pub fn hash_document(text: &[u8]) -> String {
    Sha512::digest(text).iter().map(|b| format!("{b:02X}")).collect()
}

fn build_document(registry: &Registry, group: &str, version: &str) -> Value {
    let (mut paths, mut schemas) = (Map::new(), BTreeMap::new());
    for resource in kinds_of_version(registry, group, version) {
        add_paths(&mut paths, resource);
        let schema = resource_schema(resource, &mut schemas);
        schemas.insert(schema_name(resource), schema);
        if resource.is_custom() {
            let list = list_schema(resource, &mut schemas);
            schemas.insert(format!("{}List", schema_name(resource)), list);
        }
    }
    let custom = registry.iter().any(|r| r.is_custom() && r.group == group && r.version == version);
    let (title, made) = if custom { ("Kubernetes CRD Swagger", "v0.1.0") } else { ("Kubernetes", super::VERSION) };
    json!({
        "openapi": "3.0.0",
        "info": {"title": title, "version": made},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

fn gvk_extension(resource: &Resource) -> Value {
    json!({"group": resource.group, "kind": resource.kind, "version": resource.version})
}

/// `io.example.conf.v1.Widget`; built-in kinds go by the Go package of their types.
fn schema_name(resource: &Resource) -> String {
    let group = match (resource.group.as_str(), resource.group.split('.').next().unwrap_or_default()) {
        (group, _) if resource.is_custom() => group.rsplit('.').collect::<Vec<_>>().join("."),
        ("", _) => "io.k8s.api.core".to_owned(),
        (_, "apiextensions") => "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions".to_owned(),
        (_, "apiregistration") => "io.k8s.kube-aggregator.pkg.apis.apiregistration".to_owned(),
        (_, first) => format!("io.k8s.api.{first}"),
    };
    format!("{group}.{}.{}", resource.version, resource.kind)
}

/// The list of a custom kind.
fn list_schema(resource: &Resource, components: &mut Components) -> Value {
    let item = json!({"$ref": format!("#/components/schemas/{}", schema_name(resource))});
    let metadata = named_schema("meta/v1.ListMeta", components);
    json!({
        "description": format!("{} is a list of {}", resource.list_kind, resource.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string", "description": API_VERSION_TEXT},
            "kind": {"type": "string", "description": KIND_TEXT},
            "metadata": {"allOf": [metadata], "description": LIST_METADATA_TEXT},
            "items": {
                "type": "array",
                "items": item,
                "description": format!("List of {}. More info: {CONVENTIONS}", resource.plural),
            },
        },
        "x-kubernetes-group-version-kind": [
            {"group": resource.group, "kind": resource.list_kind, "version": resource.version}
        ],
    })
}

/// Custom kinds have the schema that was written for them, built-in ones that of their Go types.
fn resource_schema(resource: &Resource, components: &mut Components) -> Value {
    let declared = resource.custom.as_ref().and_then(|c| c.definition.pointer("/schema/openAPIV3Schema")).cloned();
    let mut schema = match declared {
        Some(schema) => schema,
        None if resource.is_custom() => json!({"type": "object"}),
        None => node_schema(resource.schema.node(), components),
    };
    if let Some(members) = schema.as_object_mut() {
        members.entry("type").or_insert_with(|| "object".into());
        if let Some(properties) = members.entry("properties").or_insert_with(|| json!({})).as_object_mut() {
            properties.insert("apiVersion".into(), json!({"type": "string", "description": API_VERSION_TEXT}));
            properties.insert("kind".into(), json!({"type": "string", "description": KIND_TEXT}));
            let metadata = named_schema("meta/v1.ObjectMeta", components);
            properties.insert("metadata".into(), json!({"allOf": [metadata], "description": METADATA_TEXT}));
        }
        members.insert("x-kubernetes-group-version-kind".into(), json!([gvk_extension(resource)]));
    }
    schema
}

type Components = BTreeMap<String, Value>;

/// A reference to a built-in type, which comes among the components with all that it refers to.
fn named_schema(target: &'static str, components: &mut Components) -> Value {
    let name = match target.strip_prefix("meta/") {
        Some(meta) => format!("io.k8s.apimachinery.pkg.apis.meta.{meta}"),
        None => format!("io.k8s.api.{}", target.replace('/', ".")),
    };
    if !components.contains_key(&name) {
        // Types may contain themselves.
        components.insert(name.clone(), Value::Null);
        let schema = node_schema(Link::Named(target).node(), components);
        components.insert(name.clone(), schema);
    }
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn linked_schema(link: &Link, components: &mut Components) -> Value {
    match link {
        Link::Named(target) => named_schema(target, components),
        Link::Here(node) => match node.target {
            // Only a single reference in allOf may have neighbours.
            Some(target) => json!({"allOf": [named_schema(target, components)]}),
            None => node_schema(node, components),
        },
    }
}

/// The OpenAPI type of a Go value.
fn wire_type(wire: Wire) -> (&'static str, &'static str) {
    match wire {
        Wire::String | Wire::Quantity => ("string", ""),
        Wire::Time | Wire::MicroTime => ("string", "date-time"),
        Wire::Bytes => ("string", "byte"),
        Wire::IntOrString => ("string", "int-or-string"),
        Wire::Bool => ("boolean", ""),
        Wire::Int32 => ("integer", "int32"),
        Wire::Int64 => ("integer", "int64"),
        Wire::Float => ("number", "double"),
        Wire::List => ("array", ""),
        Wire::Any | Wire::Map | Wire::Struct | Wire::SchemaOrList | Wire::SchemaOrBool => ("object", ""),
    }
}

fn node_schema(node: &Node, components: &mut Components) -> Value {
    let mut schema = Map::new();
    if node.int_or_string {
        schema.insert("x-kubernetes-int-or-string".into(), true.into());
    } else if let [kind] = node.types.as_slice() {
        schema.insert("type".into(), kind.as_str().into());
    } else {
        let (kind, format) = wire_type(node.wire);
        schema.insert("type".into(), kind.into());
        if !format.is_empty() {
            schema.insert("format".into(), format.into());
        }
    }
    if !node.properties.is_empty() {
        let properties: Map<String, Value> =
            node.properties.iter().map(|(name, link)| (name.clone(), linked_schema(link, components))).collect();
        schema.insert("type".into(), "object".into());
        schema.insert("properties".into(), properties.into());
    }
    if let Some(items) = &node.items {
        schema.insert("type".into(), "array".into());
        schema.insert("items".into(), linked_schema(items, components));
    }
    if let Additional::Schema(values) = &node.additional {
        schema.insert("type".into(), "object".into());
        schema.insert("additionalProperties".into(), linked_schema(values, components));
    }
    match &node.list {
        ListKind::Unspecified => {}
        ListKind::Atomic => drop(schema.insert("x-kubernetes-list-type".into(), "atomic".into())),
        ListKind::Set => drop(schema.insert("x-kubernetes-list-type".into(), "set".into())),
        ListKind::Map(keys) => {
            schema.insert("x-kubernetes-list-type".into(), "map".into());
            schema.insert("x-kubernetes-list-map-keys".into(), json!(keys));
        }
    }
    Value::Object(schema)
}

const API_VERSION_TEXT: &str = "APIVersion defines the versioned schema of this representation of an object. Servers \
    should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND_TEXT: &str = "Kind is a string value representing the REST resource this object represents. Servers may \
    infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const METADATA_TEXT: &str = "Standard object's metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

const LIST_METADATA_TEXT: &str = "Standard list metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const CONVENTIONS: &str = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";

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
        listed.map(|(verb, method, action)| ((*method).to_owned(), build_operation(resource, verb, action))).collect()
    };
    let on_all =
        [("list", "get", "list"), ("create", "post", "post"), ("deletecollection", "delete", "deletecollection")];
    let on_one =
        [("get", "get", "get"), ("update", "put", "put"), ("patch", "patch", "patch"), ("delete", "delete", "delete")];
    if resource.namespaced && resource.has_verb("list") {
        paths.insert(format!("{root}/{}", resource.plural), methods(&on_all[..1]));
    }
    paths.insert(collection.clone(), methods(&on_all));
    if resource.has_verb("get") {
        paths.insert(format!("{collection}/{{name}}"), methods(&on_one));
    }
    for part in resource.subresources.iter().filter(|part| ["status", "scale"].contains(&part.name.as_str())) {
        paths.insert(format!("{collection}/{{name}}/{}", part.name), methods(&on_one[..3]));
    }
}

fn build_operation(resource: &Resource, verb: &str, action: &str) -> Value {
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
        "x-kubernetes-group-version-kind": gvk_extension(resource),
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
