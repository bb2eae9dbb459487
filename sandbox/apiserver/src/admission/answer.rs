//! How the body of a webhook's answer is decoded: JSON where it begins like an object, else YAML. And what in it is of
//! another type than its field (`serializer/recognizer`, `serializer/json`, `admission/v1/types.go`).

use base64::engine::general_purpose::STANDARD;
use base64::{DecodeError, Engine};
use serde_json::Value;

use crate::meta::{TYPE_META, json_type};
use crate::syntax::{find_syntax_error, repair_unicode};

/// The answer as a value, or why there is none.
pub fn decode_answer(body: &[u8]) -> Result<Value, String> {
    let unreadable = |why: String| format!("couldn't get version/kind; json parse error: {why}");
    let review = if body.trim_ascii_start().starts_with(b"{") {
        if let Some(why) = find_syntax_error(body) {
            return Err(unreadable(why));
        }
        serde_json::from_slice(&repair_unicode(body)).map_err(|error| unreadable(error.to_string()))?
    } else {
        crate::body::parse_yaml(body)?
    };
    match &review {
        Value::Object(_) | Value::Null => Ok(review),
        other => {
            let found = json_type(other);
            Err(unreadable(format!("json: cannot unmarshal {found} into Go value of type {TYPE_META}")))
        }
    }
}

/// What a field of the review must be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Text,
    Flag,
    Integer,
    Object,
    Texts,
    TextMap,
    Bytes,
}

/// The struct and the path of each field of the answer, its shape and the name of its type.
const FIELDS: [(&str, &[&str], Shape, &str); 11] = [
    ("AdmissionReview", &["response"], Shape::Object, "v1.AdmissionResponse"),
    ("AdmissionResponse", &["response", "uid"], Shape::Text, "types.UID"),
    ("AdmissionResponse", &["response", "allowed"], Shape::Flag, "bool"),
    ("AdmissionResponse", &["response", "status"], Shape::Object, "v1.Status"),
    ("Status", &["response", "status", "message"], Shape::Text, "string"),
    ("Status", &["response", "status", "reason"], Shape::Text, "v1.StatusReason"),
    ("Status", &["response", "status", "code"], Shape::Integer, "int32"),
    ("AdmissionResponse", &["response", "patch"], Shape::Bytes, "[]uint8"),
    ("AdmissionResponse", &["response", "patchType"], Shape::Text, "v1.PatchType"),
    ("AdmissionResponse", &["response", "auditAnnotations"], Shape::TextMap, "map[string]string"),
    ("AdmissionResponse", &["response", "warnings"], Shape::Texts, "[]string"),
];

/// The first field whose value is not of its type, in the words of Go's decoder.
pub fn find_wrong_type(review: &Value, version: &str) -> Option<String> {
    FIELDS.iter().find_map(|(owner, path, shape, wanted)| {
        let value = path.iter().try_fold(review, |value, name| value.get(*name)).filter(|value| !value.is_null())?;
        let unfit = |found: &Value, wanted: &str| {
            let wanted =
                wanted.replace("v1.Adm", &format!("{version}.Adm")).replace("v1.Pat", &format!("{version}.Pat"));
            let (found, path) = (json_type(found), path.join("."));
            format!("json: cannot unmarshal {found} into Go struct field {owner}.{path} of type {wanted}")
        };
        let inner = |parts: Option<Vec<&Value>>| match parts {
            None => Some(unfit(value, wanted)),
            Some(parts) => {
                parts.into_iter().find(|part| !part.is_string() && !part.is_null()).map(|part| unfit(part, "string"))
            }
        };
        match shape {
            Shape::Text => (!value.is_string()).then(|| unfit(value, wanted)),
            Shape::Flag => (!value.is_boolean()).then(|| unfit(value, wanted)),
            Shape::Integer => (!value.is_i64()).then(|| unfit(value, wanted)),
            Shape::Object => (!value.is_object()).then(|| unfit(value, wanted)),
            Shape::Texts => inner(value.as_array().map(|list| list.iter().collect())),
            Shape::TextMap => inner(value.as_object().map(|map| map.values().collect())),
            Shape::Bytes => match patch_bytes(Some(value)) {
                Ok(_) => None,
                Err(Some(why)) => Some(why),
                Err(None) => Some(unfit(value, wanted)),
            },
        }
    })
}

/// Base64, or, as some libraries write it, a list of bytes. `Err(None)`: neither.
pub fn patch_bytes(value: Option<&Value>) -> Result<Vec<u8>, Option<String>> {
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(text)) => STANDARD.decode(text).map_err(|error| {
            let at = match error {
                DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => at,
                // Go names the beginning of the group that is not complete.
                DecodeError::InvalidLength(length) => length - length % 4,
                DecodeError::InvalidPadding if text.contains('=') => text.len(),
                DecodeError::InvalidPadding => text.len() - text.len() % 4,
            };
            Some(format!("illegal base64 data at input byte {at}"))
        }),
        Some(Value::Array(list)) => {
            list.iter().map(|byte| byte.as_u64().and_then(|byte| u8::try_from(byte).ok()).ok_or(None)).collect()
        }
        Some(_) => Err(None),
    }
}

/// The operations of a JSON patch (`jsonpatch.DecodePatch`); `null` has none.
pub fn decode_patch(bytes: &[u8]) -> Result<Vec<Value>, String> {
    if let Some(why) = find_syntax_error(bytes) {
        return Err(why);
    }
    let patch = serde_json::from_slice(&repair_unicode(bytes)).map_err(|error| error.to_string())?;
    let unfit = |found: &Value, wanted: &str| {
        format!("json: cannot unmarshal {} into Go value of type jsonpatch.{wanted}", json_type(found))
    };
    match patch {
        Value::Null => Ok(Vec::new()),
        Value::Array(operations) => match operations.iter().find(|operation| !operation.is_object()) {
            Some(other) if !other.is_null() => Err(unfit(other, "Operation")),
            _ => Ok(operations),
        },
        other => Err(unfit(&other, "Patch")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_is_json_or_yaml() {
        assert_eq!(decode_answer(b"kind: AdmissionReview"), Ok(json!({"kind": "AdmissionReview"})));
        assert_eq!(decode_answer(b" {\"a\": 1}"), Ok(json!({"a": 1})));
        let why = decode_answer(b"hello").unwrap_err();
        assert!(why.starts_with("couldn't get version/kind; json parse error: json: cannot unmarshal string into Go"));
        assert!(decode_answer(b"{\"a\"").unwrap_err().ends_with("unexpected end of JSON input"));
    }

    #[test]
    fn a_field_of_another_type_is_told() {
        let found = |response: Value| find_wrong_type(&json!({"response": response}), "v1");
        let wanted = "json: cannot unmarshal string into Go struct field AdmissionReview.response of type \
                      v1.AdmissionResponse";
        assert_eq!(found(json!("x")).as_deref(), Some(wanted));
        let wanted =
            "json: cannot unmarshal number into Go struct field AdmissionResponse.response.uid of type types.UID";
        assert_eq!(found(json!({"uid": 1})).as_deref(), Some(wanted));
        assert!(found(json!({"warnings": [1]})).unwrap().ends_with("response.warnings of type string"));
        assert_eq!(found(json!({"patch": "!"})).as_deref(), Some("illegal base64 data at input byte 0"));
        assert_eq!(found(json!({"uid": "u", "allowed": true, "patch": [91, 93], "warnings": ["w"]})), None);
    }

    #[test]
    fn a_patch_is_a_list_or_nothing() {
        assert_eq!(decode_patch(b"null"), Ok(Vec::new()));
        assert_eq!(decode_patch(b"[]"), Ok(Vec::new()));
        let why = decode_patch(b"{}").unwrap_err();
        assert_eq!(why, "json: cannot unmarshal object into Go value of type jsonpatch.Patch");
        assert_eq!(decode_patch(b"not").unwrap_err(), "invalid character 'o' in literal null (expecting 'u')");
    }
}
