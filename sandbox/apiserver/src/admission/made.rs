//! What an expression of a mutating policy made, as JSON (`apiserver/pkg/cel/mutation/dynamic/objects.go`).

use base64::Engine as _;
use kube_cel::cel::Value as CelValue;
use kube_cel::cel::objects::Key;
use serde_json::{Map, Value};

use crate::schema::TYPE_NAME;

/// An object that was made with `Object{}`.
pub fn read_object(made: &CelValue) -> Result<Value, String> {
    let read = read_value(made)?;
    if type_name(made).is_none() { Err("unsupported return type".to_owned()) } else { Ok(read) }
}

/// A value; an object within it must be named after the path to it.
pub fn read_value(made: &CelValue) -> Result<Value, String> {
    let mut misnamed = Vec::new();
    let value = convert_value(made, type_name(made).unwrap_or_default(), &mut misnamed)?;
    match misnamed.is_empty() {
        true => Ok(value),
        false => Err(format!("type mismatch: {}", misnamed.join("\n"))),
    }
}

fn type_name(made: &CelValue) -> Option<&str> {
    let CelValue::Map(map) = made else { return None };
    match map.map.get(&Key::from(TYPE_NAME)) {
        Some(CelValue::String(name)) => Some(name.as_str()),
        _ => None,
    }
}

fn convert_value(made: &CelValue, path: &str, misnamed: &mut Vec<String>) -> Result<Value, String> {
    Ok(match made {
        CelValue::Null => Value::Null,
        CelValue::Bool(flag) => Value::from(*flag),
        CelValue::Int(number) => Value::from(*number),
        CelValue::UInt(number) => Value::from(*number),
        CelValue::Float(number) => Value::from(*number),
        CelValue::String(text) => Value::from(text.as_str()),
        CelValue::Bytes(bytes) => Value::from(base64::engine::general_purpose::STANDARD.encode(bytes.as_slice())),
        CelValue::List(list) => {
            Value::Array(list.iter().map(|item| convert_value(item, path, misnamed)).collect::<Result<_, _>>()?)
        }
        CelValue::Map(map) => {
            let name = type_name(made);
            // An operation is no part of an object: its value begins a path of its own.
            let start = name == Some("JSONPatch") || path == "JSONPatch";
            let expected = if start { name.unwrap_or_default() } else { path };
            if let Some(name) = name.filter(|name| *name != expected) {
                misnamed.push(format!(
                    "unexpected type name \"{name}\", expected \"{expected}\", which matches field name path from \
                     root Object type"
                ));
            }
            let mut members = Map::new();
            for (key, value) in map.map.iter() {
                let Key::String(key) = key else { return Err(format!("map key {key} is not a string")) };
                if key.as_str() == TYPE_NAME {
                    continue;
                }
                let below = match name {
                    Some("JSONPatch") => "JSONPatch".to_owned(),
                    Some(_) => format!("{expected}.{key}"),
                    None => expected.to_owned(),
                };
                members.insert(key.to_string(), convert_value(value, &below, misnamed)?);
            }
            Value::Object(members)
        }
        other => return Err(format!("unsupported type {:?}", other.type_of())),
    })
}
