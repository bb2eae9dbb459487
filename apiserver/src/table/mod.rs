//! The `Table` form of objects (`meta.k8s.io/v1`), which kubectl prints.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::resource::Resource;

/// What a row's `object` holds (`includeObject`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IncludeObject {
    None,
    #[default]
    Metadata,
    Object,
}

/// A table of objects, with `metadata` left empty: the caller fills in the list's metadata. `columns` is false for the
/// second and later events of a watch, which leave the column definitions out.
pub fn to_table(
    objects: &[&Value],
    _resource: &Resource,
    _include: IncludeObject,
    _columns: bool,
    _now: Timestamp,
) -> Value {
    let rows: Vec<Value> = objects.iter().map(|o| json!({"cells": [], "object": o})).collect();
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "columnDefinitions": [], "rows": rows})
}
