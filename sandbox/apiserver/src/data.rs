//! What ConfigMaps and Secrets hold (`ValidateConfigMap`, `ValidateSecret` of `pkg/apis/core/validation`).

use base64::Engine;
use serde_json::Value;

use crate::resource::Resource;
use crate::schema::FieldError;

/// `WarningsForSecret`: a certificate that is none.
pub fn secret_warning(secret: &Value) -> Option<String> {
    let text = |path: &str| secret.pointer(path).and_then(Value::as_str);
    if text("/type") != Some("kubernetes.io/tls") {
        return None;
    }
    let bytes = base64::engine::general_purpose::STANDARD.decode(text("/data/tls.crt").unwrap_or_default()).ok()?;
    let found = String::from_utf8_lossy(&bytes).contains("-----BEGIN ");
    (!found).then(|| "tls: failed to find any PEM data in certificate input".to_owned())
}

/// ConfigMaps and Secrets: names of keys, size, and what `immutable` and `type` forbid.
pub fn data_errors(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    const LIMIT: usize = 1024 * 1024;
    let mut errors = Vec::new();
    let mut size = 0;
    for member in ["data", "binaryData"] {
        for (key, value) in object.get(member).and_then(Value::as_object).into_iter().flatten() {
            for problem in data_key_problems(key) {
                errors.push(FieldError::invalid_text(format!("{member}[{key}]"), key, &problem));
            }
            if member == "data" && object.get("binaryData").is_some_and(|bag| bag.get(key).is_some()) {
                let why = "duplicate of key present in binaryData";
                errors.push(FieldError::invalid_text(format!("data[{key}]"), key, why));
            }
            let text = value.as_str().map_or(0, str::len);
            // Encoded bytes count decoded.
            size += if member == "data" && resource.plural == "configmaps" { text } else { text / 4 * 3 };
        }
    }
    if size > LIMIT {
        let field = if resource.plural == "configmaps" { "[]" } else { "data" };
        errors.push(FieldError::too_long(field, LIMIT));
    }
    if resource.plural == "secrets" {
        errors.extend(secret_errors(object));
    }
    let Some(old) = old else { return errors };
    if resource.plural == "secrets" && old.get("type") != object.get("type") {
        let value = object.get("type").cloned().unwrap_or_else(|| "".into());
        errors.push(FieldError::invalid("type", &value, "field is immutable"));
    }
    if old.get("immutable") == Some(&Value::Bool(true)) {
        for member in ["immutable", "data", "binaryData"] {
            if old.get(member) != object.get(member) {
                errors.push(FieldError::forbidden(member, "field is immutable when `immutable` is set"));
            }
        }
    }
    errors
}

fn data_key_problems(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if key.len() > 253 {
        problems.push("must be no more than 253 characters".to_owned());
    }
    let ok = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if !ok {
        problems.push(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or \
             'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                .to_owned(),
        );
    }
    if key == "." {
        problems.push("must not be '.'".to_owned());
    } else if key == ".." {
        problems.push("must not be '..'".to_owned());
    } else if key.starts_with("..") {
        problems.push("must not start with '..'".to_owned());
    }
    problems
}

/// What the type of a Secret asks for.
fn secret_errors(secret: &Value) -> Vec<FieldError> {
    let data = |key: &str| secret.get("data").and_then(|d| d.get(key)).and_then(Value::as_str);
    let required = |key: &str| FieldError::required(format!("data[{key}]"), "");
    match secret.get("type").and_then(Value::as_str).unwrap_or_default() {
        "kubernetes.io/service-account-token" => {
            const NAME: &str = "kubernetes.io/service-account.name";
            let annotations = secret.get("metadata").and_then(|m| m.get("annotations"));
            let named = annotations.and_then(|a| a.get(NAME)).and_then(Value::as_str).is_some_and(|n| !n.is_empty());
            let missing = || FieldError::required(format!("metadata.annotations[{NAME}]"), "");
            if named { Vec::new() } else { vec![missing()] }
        }
        "kubernetes.io/dockercfg" => docker_error(".dockercfg", data(".dockercfg")),
        "kubernetes.io/dockerconfigjson" => docker_error(".dockerconfigjson", data(".dockerconfigjson")),
        "kubernetes.io/basic-auth" if data("username").is_none() && data("password").is_none() => {
            vec![required("username"), required("password")]
        }
        "kubernetes.io/ssh-auth" if data("ssh-privatekey").is_none_or(str::is_empty) => {
            vec![required("ssh-privatekey")]
        }
        "kubernetes.io/tls" => {
            ["tls.crt", "tls.key"].into_iter().filter(|key| data(key).is_none()).map(required).collect()
        }
        _ => Vec::new(),
    }
}

/// The content must be a JSON object.
fn docker_error(key: &str, encoded: Option<&str>) -> Vec<FieldError> {
    let Some(encoded) = encoded else { return vec![FieldError::required(format!("data[{key}]"), "")] };
    let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap_or_default();
    let why = match serde_json::from_slice::<Value>(&bytes) {
        Ok(Value::Object(_) | Value::Null) => return Vec::new(),
        Ok(other) => {
            let found = crate::meta::json_type(&other);
            format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}")
        }
        Err(_) if bytes.is_empty() => "unexpected end of JSON input".to_owned(),
        Err(_) => {
            let first = bytes.iter().copied().find(|b| !b.is_ascii_whitespace()).map_or(' ', char::from);
            format!("invalid character '{first}' looking for beginning of value")
        }
    };
    vec![FieldError::invalid_text(format!("data[{key}]"), "<secret contents redacted>", &why)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(secret: &Value) -> Vec<String> {
        secret_errors(secret).iter().map(|e| format!("{}: {}", e.field, e.message)).collect()
    }

    #[test]
    fn the_type_of_a_secret_asks_for_its_keys() {
        let of = |kind: &str, data: Value| shown(&json!({"type": format!("kubernetes.io/{kind}"), "data": data}));
        assert_eq!(of("tls", json!({"tls.crt": ""})), ["data[tls.key]: Required value"]);
        assert_eq!(of("basic-auth", json!({})), ["data[username]: Required value", "data[password]: Required value"]);
        assert_eq!(of("basic-auth", json!({"username": ""})), Vec::<String>::new());
        assert_eq!(of("ssh-auth", json!({"ssh-privatekey": ""})), ["data[ssh-privatekey]: Required value"]);
        assert_eq!(
            of("service-account-token", json!({})),
            ["metadata.annotations[kubernetes.io/service-account.name]: Required value"]
        );
        assert_eq!(of("dockerconfigjson", json!({".dockerconfigjson": "e30="})), Vec::<String>::new());
        assert_eq!(
            of("dockerconfigjson", json!({".dockerconfigjson": "eA=="})),
            [
                "data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\": invalid character 'x' looking for \
                beginning of value"
            ]
        );
    }
}
