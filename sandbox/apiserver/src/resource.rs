//! Which kinds the server has, and the rules in which they differ: one row per kind. Built-in kinds come from the table
//! in `builtin.rs`, custom ones from CustomResourceDefinitions (`crd.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::schema::TypeSchema;

/// How the name of an object is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// RFC 1123 subdomain, the usual rule.
    Subdomain,
    /// RFC 1123 label.
    Label,
    /// Anything that is one path segment (RBAC).
    PathSegment,
    /// The kind's own rule elsewhere.
    Free,
}

/// When `metadata.generation` grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// The kind has none.
    Never,
    /// When `spec` changes.
    Spec,
    /// When `spec` or an annotation changes (Deployment).
    SpecOrAnnotations,
    /// Set to 1 on creation, then kept.
    Constant,
    /// When anything but `metadata` changes.
    NotMetadata,
    /// When anything but `metadata` and `status` changes.
    NotMetadataOrStatus,
}

/// The rules in which kinds differ (`rest.RESTCreateStrategy` and its sisters).
#[derive(Debug, Clone)]
pub struct Rules {
    pub name: NameRule,
    pub generation: Generation,
    /// PUT on a missing object creates it.
    pub create_on_update: bool,
    /// PUT without a resourceVersion is taken.
    pub unconditional_update: bool,
    /// Deleting without a policy orphans the dependents (batch Jobs, ReplicationControllers).
    pub orphan_by_default: bool,
    /// Only the `/status` path writes `status`, and the main path keeps it.
    pub separate_status: bool,
}

/// A part of an object that has a path of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subresource {
    pub name: String,
    /// The kind of its bodies when it is not the parent's (`autoscaling/v1 Scale`); group and version too.
    pub kind: Option<(String, String, String)>,
    pub verbs: Vec<&'static str>,
}

/// One kind in one version, as served.
#[derive(Clone, Debug)]
pub struct Resource {
    pub group: String,
    pub version: String,
    pub plural: String,
    pub singular: String,
    pub kind: String,
    pub list_kind: String,
    pub namespaced: bool,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    /// In discovery's (alphabetical) order. Empty for kinds that only answer reviews (`create`).
    pub verbs: Vec<&'static str>,
    pub subresources: Vec<Subresource>,
    /// Which collection of the store holds the objects: `plural.group` of the storing group. Both Event groups share
    /// one.
    pub storage: String,
    /// Identifies the form in which this version holds objects; changes with the schema.
    pub form: u64,
    pub rules: Rules,
    pub schema: Arc<TypeSchema>,
    /// The parts that only custom resources have.
    pub custom: Option<CustomResource>,
}

/// What a CRD version adds to a kind.
#[derive(Debug, Clone)]
pub struct CustomResource {
    pub crd_name: String,
    pub crd_uid: String,
    /// The version in which objects are stored, when it is not this one.
    pub storage: Option<Arc<Resource>>,
    /// The schemas of all versions, by name: objects are read with the one they were stored in.
    pub schemas: Arc<BTreeMap<String, Arc<TypeSchema>>>,
    /// `spec.versions[]` element of this version.
    pub definition: Value,
    /// JSON paths of `/scale` (spec, status, selector), when there is one.
    pub scale: Option<ScalePaths>,
    /// JSON paths usable in field selectors.
    pub selectable_fields: Vec<String>,
    /// Warning sent with every answer in this version.
    pub deprecation_warning: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalePaths {
    pub spec_replicas: String,
    pub status_replicas: String,
    pub label_selector: Option<String>,
}

impl Resource {
    /// The schema of another version of a custom resource.
    pub fn schema_of(&self, api_version: &str) -> Option<Arc<TypeSchema>> {
        let (group, version) = api_version.split_once('/')?;
        self.custom.as_ref().filter(|_| group == self.group)?.schemas.get(version).cloned()
    }

    /// `group/version`, or just `version` in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    pub fn is_custom(&self) -> bool {
        self.custom.is_some()
    }

    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }

    /// `additionalPrinterColumns` of a custom resource.
    pub fn printer_columns(&self) -> &[Value] {
        self.custom
            .as_ref()
            .and_then(|c| c.definition.get("additionalPrinterColumns"))
            .and_then(Value::as_array)
            .map_or(&[], Vec::as_slice)
    }
}

/// All kinds that are served now. A new value replaces it when a CRD changes.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    resources: BTreeMap<(String, String, String), Arc<Resource>>,
}

impl Registry {
    pub fn insert(&mut self, resource: Arc<Resource>) {
        let key = (resource.group.clone(), resource.version.clone(), resource.plural.clone());
        self.resources.insert(key, resource);
    }

    /// Removes every version of a custom kind.
    pub fn remove_custom(&mut self, crd_name: &str) {
        self.resources.retain(|_, r| r.custom.as_ref().is_none_or(|c| c.crd_name != crd_name));
    }

    pub fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        // The map's key is owned; a lookup by parts costs three small allocations.
        self.resources.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.values()
    }

    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.resources.values().find(|r| r.group == group && r.version == version && r.kind == kind)
    }
}
