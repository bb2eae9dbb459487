//! Why Go's decoder refuses a value of a built-in kind, in its words: which field of which struct has which type
//! (`encoding/json`, `UnmarshalTypeError`, and the decoders that types of Kubernetes bring along).

use serde_json::Value;

use super::builtin::{JSON_SCHEMA, Wire, type_node};
use super::node::{Additional, Link, Node};
use super::quantity;
use crate::meta::json_type;

const QUANTITY_FORM: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Where the decoder is: the struct that it fills, and the names of the fields down to the value.
struct Place<'a> {
    owner: &'a str,
    path: &'a mut String,
}

/// A type as Go names it: by the field that has it, or by itself.
#[derive(Clone, Copy)]
struct GoType<'a> {
    node: &'a Node,
    /// The named type, such as `core/v1.Pod`.
    named: Option<&'static str>,
    /// What the field says of it.
    declared: Option<&'static str>,
}

/// Why Go's decoder refuses the object, if it does.
pub fn decode_error(value: &Value, node: &Node, type_name: &str) -> Option<String> {
    let ty = GoType { node, named: node.target, declared: None };
    find_error(value, ty, &mut Place { owner: type_name, path: &mut String::new() })
}

/// Why the converter from maps to Go's types refuses the object, if it does.
pub fn restore_error(value: &Value, node: &Node) -> Option<String> {
    let kind = match value {
        Value::Null => return None,
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    };
    match (node.wire, value) {
        (Wire::Struct, Value::Object(map)) => {
            let members = node.members();
            map.iter().find_map(|(key, value)| restore_error(value, members.properties.get(key)?.node()))
        }
        (Wire::Map, Value::Object(map)) => {
            let Additional::Schema(inner) = &node.additional else { return None };
            let text = inner.node().wire == Wire::String;
            map.values().find_map(|value| match value {
                Value::Number(number) if text && number.is_f64() => Some("cannot convert float64 to string".to_owned()),
                Value::Number(_) if text => Some("cannot convert int64 to string".to_owned()),
                Value::Bool(_) if text => Some("cannot convert bool to string".to_owned()),
                _ => restore_error(value, inner.node()),
            })
        }
        (Wire::List, Value::Array(items)) => {
            let inner = node.items.as_ref()?.node();
            items.iter().find_map(|item| restore_error(item, inner))
        }
        (Wire::Struct, _) => Some(format!("cannot restore struct from: {kind}")),
        (Wire::Map, _) => Some(format!("cannot restore map from {kind}")),
        (Wire::List, _) => Some(format!("cannot restore slice from {kind}")),
        (Wire::Any | Wire::SchemaOrList | Wire::SchemaOrBool, _)
        | (Wire::String, Value::String(_))
        | (Wire::Bool, Value::Bool(_))
        | (Wire::Int32 | Wire::Int64 | Wire::Float, Value::Number(_)) => None,
        (Wire::String | Wire::Bool | Wire::Int32 | Wire::Int64 | Wire::Float, _) => {
            Some(format!("unrecognized type: {}", wire_name(node.wire)))
        }
        // These decode themselves.
        _ => decode_error(value, node, ""),
    }
}

fn find_error(value: &Value, ty: GoType<'_>, place: &mut Place<'_>) -> Option<String> {
    match (ty.node.wire, value) {
        (_, Value::Null) | (Wire::Any, _) => None,
        (Wire::String | Wire::IntOrString, Value::String(_))
        | (Wire::Bool, Value::Bool(_))
        | (Wire::Float, Value::Number(_)) => None,
        (Wire::Int32 | Wire::Int64 | Wire::IntOrString, Value::Number(number)) => {
            let long = ty.node.wire == Wire::Int64;
            let fits = number.as_i64().is_some_and(|n| long || i32::try_from(n).is_ok());
            (!fits).then(|| refuse(&format!("number {number}"), ty, place))
        }
        (Wire::Quantity, _) => (!is_quantity(value)).then(|| QUANTITY_FORM.to_owned()),
        (Wire::Bytes, Value::String(text)) => bytes_error(text),
        (Wire::Time | Wire::MicroTime, Value::String(text)) => time_error(text, ty.node.wire),
        (Wire::List, Value::Array(items)) => {
            let inner = ty.inner(ty.node.items.as_ref()?, "[]");
            items.iter().find_map(|item| find_error(item, inner, place))
        }
        (Wire::Map, Value::Object(map)) => {
            let Additional::Schema(link) = &ty.node.additional else { return None };
            let inner = ty.inner(link, "map[string]");
            map.values().find_map(|value| find_error(value, inner, place))
        }
        (Wire::Struct, Value::Object(map)) => {
            let owner = ty.named.and_then(|name| name.split('.').next_back()).unwrap_or(place.owner);
            map.iter().find_map(|(key, value)| find_field_error(key, value, ty, &mut Place { owner, path: place.path }))
        }
        (Wire::SchemaOrList | Wire::SchemaOrBool, Value::Object(_)) => {
            let schema = GoType { node: type_node(JSON_SCHEMA), named: Some(JSON_SCHEMA), declared: None };
            find_error(value, schema, place)
        }
        (Wire::SchemaOrList, _) | (Wire::SchemaOrBool, Value::Bool(_)) => None,
        (Wire::SchemaOrBool, _) => Some("boolean or JSON schema expected".to_owned()),
        _ => Some(refuse(json_type(value), ty, place)),
    }
}

fn find_field_error(key: &str, value: &Value, ty: GoType<'_>, place: &mut Place<'_>) -> Option<String> {
    let link = ty.node.members().properties.get(key)?;
    let node = link.node();
    let length = place.path.len();
    for name in node.go_embedded.into_iter().chain([key]) {
        if !place.path.is_empty() {
            place.path.push('.');
        }
        place.path.push_str(name);
    }
    let error = find_error(value, GoType { node, named: name_of(link), declared: node.go_type }, place);
    place.path.truncate(length);
    error
}

fn refuse(found: &str, ty: GoType<'_>, place: &Place<'_>) -> String {
    let wanted = match ty.node.wire {
        Wire::Struct if ty.named.is_none() => format!("v1.{}", place.owner),
        _ => ty.name(),
    };
    let at =
        if place.path.is_empty() { "value".to_owned() } else { format!("struct field {}.{}", place.owner, place.path) };
    format!("json: cannot unmarshal {found} into Go {at} of type {wanted}")
}

impl GoType<'_> {
    fn inner<'a>(&self, link: &'a Link, outer: &str) -> GoType<'a> {
        let declared = self.declared.and_then(|name| name.strip_prefix(outer));
        GoType { node: link.node(), named: name_of(link), declared }
    }

    fn name(&self) -> String {
        if let Some(name) = self.declared {
            return name.to_owned();
        }
        let inner = |link: &Link| GoType { node: link.node(), named: name_of(link), declared: None }.name();
        match (self.node.wire, &self.node.items, &self.node.additional) {
            (Wire::Struct, ..) => {
                self.named.and_then(|name| name.split('/').next_back()).unwrap_or("struct").to_owned()
            }
            (Wire::List, Some(link), _) => format!("[]{}", inner(link)),
            (Wire::Map, _, Additional::Schema(link)) => format!("map[string]{}", inner(link)),
            (wire, ..) => wire_name(wire).to_owned(),
        }
    }
}

fn name_of(link: &Link) -> Option<&'static str> {
    match link {
        Link::Named(name) => Some(name),
        Link::Here(node) => node.target,
    }
}

/// The type that the decoder of such a value asks for: times are read as strings, int-or-string as a number.
fn wire_name(wire: Wire) -> &'static str {
    match wire {
        Wire::Any | Wire::SchemaOrList | Wire::SchemaOrBool => "interface {}",
        Wire::String | Wire::Time | Wire::MicroTime => "string",
        Wire::Bool => "bool",
        Wire::Int32 | Wire::IntOrString => "int32",
        Wire::Int64 => "int64",
        Wire::Float => "float64",
        Wire::Quantity => "resource.Quantity",
        Wire::Bytes => "[]uint8",
        Wire::List => "[]interface {}",
        Wire::Map => "map[string]string",
        Wire::Struct => "struct",
    }
}

fn is_quantity(value: &Value) -> bool {
    match value {
        Value::String(text) => quantity::canonical_quantity(text).is_some(),
        Value::Number(_) => true,
        _ => false,
    }
}

fn bytes_error(text: &str) -> Option<String> {
    use base64::Engine as _;
    let error = base64::engine::general_purpose::STANDARD.decode(text).err()?;
    let at = match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
        // Go names the beginning of the group that is not complete.
        base64::DecodeError::InvalidLength(length) => length - length % 4,
        base64::DecodeError::InvalidPadding if text.contains('=') => text.len(),
        base64::DecodeError::InvalidPadding => text.len() - text.len() % 4,
    };
    Some(format!("illegal base64 data at input byte {at}"))
}

fn time_error(text: &str, wire: Wire) -> Option<String> {
    let layout = if wire == Wire::Time { "2006-01-02T15:04:05Z07:00" } else { "2006-01-02T15:04:05.000000Z07:00" };
    let six_digits = || {
        let fraction = text.split_once('.').map(|(_, rest)| rest.bytes().take_while(u8::is_ascii_digit).count());
        fraction == Some(6)
    };
    let good = text.parse::<jiff::Timestamp>().is_ok() && (wire == Wire::Time || six_digits());
    (!good).then(|| format!("parsing time \"{text}\" as \"{layout}\": cannot parse \"{text}\" as \"2006\""))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::builtin::type_node;
    use super::*;

    fn why(kind: &str, value: &Value) -> String {
        let name = kind.split('.').next_back().unwrap_or_default();
        decode_error(value, type_node(kind), name).unwrap_or_default()
    }

    #[test]
    fn a_value_of_another_type_is_refused() {
        assert_eq!(why("core/v1.ConfigMap", &json!({"data": {"a": "b"}})), "");
        let error = why("core/v1.ConfigMap", &json!({"data": {"a": 1}}));
        assert_eq!(error, "json: cannot unmarshal number into Go struct field ConfigMap.data of type string");
    }

    #[test]
    fn the_struct_is_the_innermost_one_and_types_are_named_as_in_go() {
        for (spec, wanted) in [
            (json!({"containers": {}}), "object into Go struct field PodSpec.spec.containers of type []v1.Container"),
            (json!({"containers": ["x"]}), "string into Go struct field PodSpec.spec.containers of type v1.Container"),
            (
                json!({"containers": [{"image": 5}]}),
                "number into Go struct field Container.spec.containers.image of type string",
            ),
            (
                json!({"containers": [{"args": "x"}]}),
                "string into Go struct field Container.spec.containers.args of type []string",
            ),
            (
                json!({"containers": [{"resources": {"limits": []}}]}),
                "array into Go struct field ResourceRequirements.spec.containers.resources.limits of type \
                 v1.ResourceList",
            ),
            (
                json!({"restartPolicy": 5}),
                "number into Go struct field PodSpec.spec.restartPolicy of type \
                 v1.RestartPolicy",
            ),
            (
                json!({"containers": [{"imagePullPolicy": true}]}),
                "bool into Go struct field Container.spec.containers.imagePullPolicy of type v1.PullPolicy",
            ),
        ] {
            assert_eq!(why("core/v1.Pod", &json!({ "spec": spec })), format!("json: cannot unmarshal {wanted}"));
        }
        let claim = json!({"spec": {"accessModes": "x"}});
        assert_eq!(
            why("core/v1.PersistentVolumeClaim", &claim),
            "json: cannot unmarshal string into Go struct field PersistentVolumeClaimSpec.spec.accessModes of type \
             []v1.PersistentVolumeAccessMode"
        );
    }

    #[test]
    fn embedded_structs_are_part_of_the_path() {
        let volume = json!({"spec": {"volumes": [{"secret": {"defaultMode": "x"}}]}});
        assert_eq!(
            why("core/v1.Pod", &volume),
            "json: cannot unmarshal string into Go struct field \
             SecretVolumeSource.spec.volumes.VolumeSource.secret.defaultMode of type int32"
        );
    }

    /// The answers of kube-apiserver 1.36 to definitions with such schemas.
    #[test]
    fn schemas_of_items_and_of_values_are_decoded_too() {
        let of = |part: &str, schema: Value| why(JSON_SCHEMA, &json!({"properties": {"a": {part: schema}}}));
        for part in ["items", "additionalProperties"] {
            let wanted = format!(
                "json: cannot unmarshal number into Go struct field JSONSchemaProps.properties.{part}.type of type \
                 string"
            );
            assert_eq!(of(part, json!({"type": 5})), wanted);
        }
        assert_eq!(of("additionalProperties", json!(5)), "boolean or JSON schema expected");
        assert_eq!(of("additionalProperties", json!([])), "boolean or JSON schema expected");
        assert_eq!(of("additionalProperties", json!(true)) + &of("items", json!(5)), "");
    }

    #[test]
    fn types_that_decode_themselves_say_what_they_asked_for() {
        let probe = json!({"spec": {"containers": [{"livenessProbe": {"httpGet": {"port": {}}}}]}});
        assert_eq!(
            why("core/v1.Pod", &probe),
            "json: cannot unmarshal object into Go struct field \
             HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port of type int32"
        );
        let time = json!({"metadata": {"creationTimestamp": 5}});
        assert_eq!(
            why("core/v1.Pod", &time),
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.creationTimestamp of type string"
        );
        let limits = json!({"spec": {"containers": [{"resources": {"limits": {"cpu": true}}}]}});
        assert_eq!(why("core/v1.Pod", &limits), QUANTITY_FORM);
    }
}
