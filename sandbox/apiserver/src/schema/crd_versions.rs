//! The versions of a definition: their schemas, subresources, columns and selectable fields, each reported where the
//! internal form has it.

use serde_json::Value;

use super::crd::{Errors, list_at, text_at};
use super::crd_schema;
use super::error::{CauseReason, FieldError};
use super::gotext;
use super::node::{Additional, Kind, Node};
use crate::internal_form::internal_text;

/// What all versions have in common stands at the top of the internal form.
fn shared_part<'a>(versions: &'a [Value], part: &str) -> Option<Option<&'a Value>> {
    let first = versions.first()?.get(part).filter(|value| !value.is_null());
    let same = versions.iter().all(|version| version.get(part).filter(|value| !value.is_null()) == first);
    same.then_some(first)
}

/// The versions as the internal form prints them: what they have in common is not shown.
fn print_versions(versions: &[Value]) -> String {
    let parts = ["schema", "subresources", "additionalPrinterColumns", "selectableFields"];
    let shared: Vec<&str> = parts.into_iter().filter(|part| shared_part(versions, part).is_some()).collect();
    let print = |version: &Value| {
        let mut version = version.clone();
        if let Some(members) = version.as_object_mut() {
            members.retain(|member, _| !shared.contains(&member.as_str()));
        }
        internal_text("CustomResourceDefinitionVersion", &version)
    };
    format!("[{}]", versions.iter().map(print).collect::<Vec<_>>().join(","))
}

pub fn invalid_versions(versions: &[Value], detail: &str, errors: &mut Errors) {
    let shown = print_versions(versions);
    let message = format!("Invalid value: {shown}: {detail}");
    errors.list.push(FieldError::new(CauseReason::Invalid, "spec.versions", message));
}

/// Schemas, subresources, columns and selectable fields, each where the internal form has it.
pub fn validate_parts(versions: &[Value], errors: &mut Errors) {
    let any_status = versions.iter().any(has_status);
    match shared_part(versions, "schema") {
        Some(Some(schema)) => schema_at(schema, "spec.validation", any_status, errors),
        Some(None) => {}
        None => {
            for (index, version) in versions.iter().enumerate() {
                if let Some(schema) = version.get("schema") {
                    schema_at(schema, &format!("spec.versions[{index}].schema"), has_status(version), errors);
                }
            }
        }
    }
    match shared_part(versions, "subresources") {
        Some(subresources) => validate_scale(subresources.and_then(|s| s.get("scale")), "spec.subresources", errors),
        None => {
            for (index, version) in versions.iter().enumerate() {
                validate_scale(
                    version.pointer("/subresources/scale"),
                    &format!("spec.versions[{index}].subresources"),
                    errors,
                );
            }
        }
    }
    match shared_part(versions, "additionalPrinterColumns") {
        Some(columns) => columns_at(columns, "spec.additionalPrinterColumns", errors),
        None => {
            for (index, version) in versions.iter().enumerate() {
                let columns = version.get("additionalPrinterColumns");
                columns_at(columns, &format!("spec.versions[{index}].additionalPrinterColumns"), errors);
            }
        }
    }
    let selectable_at_top = shared_part(versions, "selectableFields").is_some();
    for (index, version) in versions.iter().enumerate() {
        let field = if selectable_at_top {
            "spec.selectableFields".to_owned()
        } else {
            format!("spec.versions[{index}].selectableFields")
        };
        validate_selectable(version, &field, errors);
        if selectable_at_top {
            break;
        }
    }
}

fn has_status(version: &Value) -> bool {
    version.pointer("/subresources/status").is_some_and(|status| !status.is_null())
}

fn schema_at(holder: &Value, field: &str, status: bool, errors: &mut Errors) {
    if let Some(schema) = holder.get("openAPIV3Schema").filter(|schema| !schema.is_null()) {
        crd_schema::validate_schema(schema, &format!("{field}.openAPIV3Schema"), status, errors);
    }
}

fn validate_scale(scale: Option<&Value>, field: &str, errors: &mut Errors) {
    let Some(scale) = scale.filter(|scale| !scale.is_null()) else { return };
    for (key, prefix, where_) in
        [("specReplicasPath", ".spec.", ".spec"), ("statusReplicasPath", ".status.", ".status")]
    {
        let path = text_at(scale, &format!("/{key}"));
        let field = format!("{field}.scale.{key}");
        if path.is_empty() {
            errors.required(field, "");
        } else if !path.starts_with('.') {
            errors.invalid(field, &path.into(), "must be a simple json path starting with .");
        } else if !path.starts_with(prefix) {
            errors.invalid(field, &path.into(), &format!("should be a json path under {where_}"));
        }
    }
    let selector = text_at(scale, "/labelSelectorPath");
    let field = format!("{field}.scale.labelSelectorPath");
    if selector.is_empty() {
        return;
    }
    if !selector.starts_with('.') {
        errors.invalid(field, &selector.into(), "must be a simple json path starting with .");
    } else if !selector.starts_with(".spec.") && !selector.starts_with(".status.") {
        errors.invalid(field, &selector.into(), "should be a json path under either .spec or .status");
    }
}

fn columns_at(columns: Option<&Value>, field: &str, errors: &mut Errors) {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    for (index, column) in columns.and_then(Value::as_array).into_iter().flatten().enumerate() {
        let at = |key: &str| format!("{field}[{index}].{key}");
        if text_at(column, "/name").is_empty() {
            errors.required(at("name"), "");
        }
        let must = format!("must be one of {}", TYPES.join(","));
        match text_at(column, "/type") {
            "" => errors.required(at("type"), &must),
            kind if !TYPES.contains(&kind) => errors.invalid(at("type"), &kind.into(), &must),
            _ => {}
        }
        let format = text_at(column, "/format");
        if !format.is_empty() && !FORMATS.contains(&format) {
            errors.invalid(at("format"), &format.into(), &format!("must be one of {}", FORMATS.join(",")));
        }
        match text_at(column, "/jsonPath") {
            "" => errors.required(at("JSONPath"), ""),
            path if !path.starts_with('.') => {
                errors.invalid(at("JSONPath"), &path.into(), "must be a simple json path starting with .");
            }
            _ => {}
        }
    }
}

fn validate_selectable(version: &Value, field: &str, errors: &mut Errors) {
    const MOST: usize = 8;
    let has_fields = !list_at(version, "/selectableFields").is_empty();
    if has_fields && version.pointer("/schema/openAPIV3Schema").is_none_or(Value::is_null) {
        errors.invalid(field, &"".into(), "may only be set when validations.schema is included");
        return;
    }
    let schema = Node::parse(version.pointer("/schema/openAPIV3Schema").unwrap_or(&Value::Null));
    let mut seen: Vec<String> = Vec::new();
    for (index, selectable) in list_at(version, "/selectableFields").iter().enumerate() {
        let at = format!("{field}[{index}].jsonPath");
        let path = text_at(selectable, "/jsonPath");
        if path.is_empty() {
            errors.required(at, "");
            continue;
        }
        let shown = Value::from(path);
        let found = match field_path(path, &schema) {
            Ok(found) => found,
            Err(problem) => {
                errors.invalid(at, &shown, &format!("is an invalid path: {problem}"));
                continue;
            }
        };
        if path.starts_with(".metadata") {
            errors.invalid(&at, &shown, "must not point to fields in metadata");
        }
        if !matches!(found.types.as_slice(), [Kind::String | Kind::Boolean | Kind::Integer]) {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings \
                          with formats are allowed.";
            errors.invalid(&at, &shown, detail);
        }
        if seen.iter().any(|other| other == path) {
            let message = format!("Duplicate value: {}", gotext::quote_string(path));
            errors.list.push(FieldError::new(CauseReason::Duplicate, at, message));
        } else {
            seen.push(path.to_owned());
        }
    }
    if seen.len() > MOST {
        let message = format!("Too many: {}: must have at most {MOST} items", seen.len());
        errors.list.push(FieldError::new(CauseReason::TooMany, field, message));
    }
}

/// The schema that a path of plain fields leads to.
fn field_path<'a>(path: &str, schema: &'a Node) -> Result<&'a Node, String> {
    let mut node = schema;
    const IN_LIST: &str = "array notation is not allowed";
    let Some(rest) = path.strip_prefix('.') else {
        if path.starts_with('[') {
            return Err(IN_LIST.to_owned());
        }
        return Err(format!("expected [ or . but got: {}", path.split(['.', '[', ']']).next().unwrap_or(path)));
    };
    let mut parts = rest.split('.').peekable();
    while let Some(part) = parts.next() {
        if part.is_empty() && parts.peek().is_none() {
            return Err("unexpected end of JSON path".to_owned());
        }
        if part.find('[').is_some_and(|at| at > 0) {
            return Err(IN_LIST.to_owned());
        }
        node = match (node.properties.get(part), &node.additional) {
            (Some(link), _) => link.node(),
            (None, Additional::Schema(link)) if node.properties.is_empty() => link.node(),
            _ => return Err("does not refer to a valid field".to_owned()),
        };
    }
    Ok(node)
}
