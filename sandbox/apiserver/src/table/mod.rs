//! The `Table` form of objects (`meta.k8s.io/v1`), which kubectl prints. Custom kinds follow their
//! `additionalPrinterColumns` (apiextensions-apiserver `tableconvertor`), built-in ones the tables in `builtin`.

mod age;
mod builtin;
mod cells;
mod jsonpath;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::resource::Resource;
use builtin::Printer;
use jsonpath::JsonPath;

const NAME_TEXT: &str = "Name must be unique within a namespace. Is required when creating resources, although some \
    resources may allow a client to request the generation of an appropriate name automatically. Name is primarily \
    intended for creation idempotence and configuration definition. Cannot be updated. More info: \
    https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
const CREATION_TEXT: &str = "CreationTimestamp is a timestamp representing the server time when this object was \
    created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set \
    this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for \
    lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

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
    resource: &Resource,
    include: IncludeObject,
    columns: bool,
    now: Timestamp,
) -> Value {
    let layout = Layout::of(resource);
    let rows: Vec<Value> = objects.iter().map(|object| layout.row(object, include, now)).collect();
    // Kinds without a printer of their own have no list of rows when there is nothing to list.
    let rows = if rows.is_empty() && layout.is_plain() { Value::Null } else { rows.into() };
    let definitions = if columns { layout.definitions() } else { Value::Null };
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": definitions,
        "rows": rows,
    })
}

impl Layout {
    fn is_plain(&self) -> bool {
        matches!(self, Self::Builtin(printer) if printer.is_plain())
    }
}

/// How a kind is laid out.
enum Layout {
    Builtin(&'static Printer),
    Custom(Vec<Column>),
}

/// One column of a custom kind.
struct Column {
    definition: Value,
    kind: String,
    path: Option<JsonPath>,
}

impl Layout {
    fn of(resource: &Resource) -> Layout {
        if !resource.is_custom() {
            return Layout::Builtin(builtin::printer_of(&resource.group, &resource.plural));
        }
        let columns = resource.printer_columns();
        if columns.is_empty() {
            let definition = column_definition("Age", "date", "", CREATION_TEXT, 0);
            let path = JsonPath::parse(".metadata.creationTimestamp");
            return Layout::Custom(vec![Column { definition, kind: "date".into(), path }]);
        }
        Layout::Custom(columns.iter().map(Column::read).collect())
    }

    fn definitions(&self) -> Value {
        match self {
            Layout::Builtin(printer) => printer.definitions(),
            Layout::Custom(columns) => {
                let name = column_definition("Name", "string", "name", NAME_TEXT, 0);
                Value::Array(std::iter::once(name).chain(columns.iter().map(|c| c.definition.clone())).collect())
            }
        }
    }

    fn row(&self, object: &Value, include: IncludeObject, now: Timestamp) -> Value {
        let cells = match self {
            Layout::Builtin(printer) => (printer.cells)(object, now),
            Layout::Custom(columns) => {
                let name = crate::meta::object_name(object).into();
                std::iter::once(name).chain(columns.iter().map(|c| c.cell(object, now))).collect()
            }
        };
        let embedded = match include {
            IncludeObject::None => Value::Null,
            IncludeObject::Metadata => json!({
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({})),
            }),
            IncludeObject::Object => object.clone(),
        };
        let mut row = json!({"cells": cells, "object": embedded});
        if let Layout::Builtin(printer) = self
            && let Some(condition) = printer.completed(object)
        {
            row["conditions"] = json!([condition]);
        }
        row
    }
}

impl Column {
    fn read(value: &Value) -> Column {
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
        let path = text("jsonPath");
        let description = match text("description") {
            "" => format!("Custom resource definition column (in JSONPath format): {path}"),
            given => given.to_owned(),
        };
        let priority = value.get("priority").and_then(Value::as_i64).unwrap_or(0);
        Column {
            definition: column_definition(text("name"), text("type"), text("format"), &description, priority),
            kind: text("type").to_owned(),
            path: JsonPath::parse(path),
        }
    }

    fn cell(&self, object: &Value, now: Timestamp) -> Value {
        // Only the first result counts: columns are for single values.
        let found = self.path.as_ref().and_then(|p| p.find(object).into_iter().next());
        let Some(value) = found else { return Value::Null };
        match (self.kind.as_str(), value) {
            ("string", Value::Null) => "<no value>".into(),
            ("string", Value::String(text)) => text.as_str().into(),
            ("string", other) => other.to_string().into(),
            ("integer", Value::Number(n)) => match n.as_i64() {
                Some(i) => i.into(),
                None => n.as_f64().map_or(Value::Null, |f| {
                    #[expect(clippy::cast_possible_truncation, reason = "Go truncates here too")]
                    let whole = f as i64;
                    whole.into()
                }),
            },
            ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
            ("date", Value::String(_)) => age::age_since(Some(value), now).into(),
            _ => Value::Null,
        }
    }
}

fn column_definition(name: &str, kind: &str, format: &str, description: &str, priority: i64) -> Value {
    json!({"name": name, "type": kind, "format": format, "description": description, "priority": priority})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(column: &Value, object: &Value) -> Value {
        let now = "2024-01-01T00:00:10Z".parse().unwrap();
        Column::read(column).cell(object, now)
    }

    #[test]
    fn a_cell_has_the_type_of_its_column() {
        let object = json!({"spec": {"n": 3, "s": "x", "b": true, "t": "2024-01-01T00:00:00Z", "o": {"a": 1}}});
        let at = |kind: &str, path: &str| cell(&json!({"name": "c", "type": kind, "jsonPath": path}), &object);
        assert_eq!(at("integer", ".spec.n"), json!(3));
        assert_eq!(at("string", ".spec.n"), json!("3"));
        assert_eq!(at("string", ".spec.o"), json!("{\"a\":1}"));
        assert_eq!(at("boolean", ".spec.b"), json!(true));
        assert_eq!(at("boolean", ".spec.s"), Value::Null);
        assert_eq!(at("date", ".spec.t"), json!("10s"));
        assert_eq!(at("string", ".spec.missing"), Value::Null);
        assert_eq!(at("string", ".spec['a.b/c','s','n']"), json!("x"), "the first that there is");
        assert_eq!(at("string", ".spec['a.b/c','d']"), Value::Null);
    }
}
