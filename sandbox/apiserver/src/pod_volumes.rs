//! What the volumes of a pod need to say (`validateVolumeSource` of `pkg/apis/core/validation`).

use std::collections::BTreeSet;

use serde_json::Value;

use crate::limits::Amount;
use crate::meta::subdomain_problems;
use crate::podspec::{items_of, text_of};
use crate::schema::FieldError;

const ABSOLUTE: &str = "must be an absolute path";

/// Sources that need nothing but some texts: each with the members that may not be empty.
const NEEDED: [(&str, &[&str]); 15] = [
    ("hostPath", &["path"]),
    ("configMap", &["name"]),
    ("secret", &["secretName"]),
    ("persistentVolumeClaim", &["claimName"]),
    ("nfs", &["server", "path"]),
    ("iscsi", &["targetPortal", "iqn"]),
    ("csi", &["driver"]),
    ("image", &["reference"]),
    ("gitRepo", &["repository"]),
    ("glusterfs", &["endpoints", "path"]),
    ("awsElasticBlockStore", &["volumeID"]),
    ("gcePersistentDisk", &["pdName"]),
    ("azureFile", &["secretName", "shareName"]),
    ("cinder", &["volumeID"]),
    ("local", &["path"]),
];

/// `at` is the volume.
pub fn source_errors(volume: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some((kind, source)) = volume.as_object().and_then(|v| v.iter().find(|(k, _)| *k != "name")) else {
        return errors;
    };
    let at = format!("{at}.{kind}");
    let needed = NEEDED.iter().find(|(of, _)| of == kind).map_or(&[][..], |(_, members)| members);
    let missing = needed.iter().filter(|member| text_of(source, member).is_empty());
    errors.extend(missing.map(|member| FieldError::required(format!("{at}.{member}"), "")));
    match kind.as_str() {
        "emptyDir" if source.get("sizeLimit").and_then(Amount::parse).is_some_and(Amount::is_negative) => {
            let why = "SizeLimit field must be a valid resource quantity";
            errors.push(FieldError::forbidden(format!("{at}.sizeLimit"), why));
        }
        "hostPath" => errors.extend(host_path_errors(source, &at)),
        "nfs" if !text_of(source, "path").starts_with('/') => {
            errors.push(FieldError::invalid_text(format!("{at}.path"), text_of(source, "path"), ABSOLUTE));
        }
        "secret" | "configMap" => {
            errors.extend(mode_error(source, "defaultMode", &at));
            errors.extend(items_errors(source, &at));
        }
        "downwardAPI" => errors.extend(downward_errors(source, &at)),
        "projected" => errors.extend(projected_errors(source, &at)),
        "rbd" | "cephfs" => {
            if items_of(source, "monitors").is_empty() {
                errors.push(FieldError::required(format!("{at}.monitors"), ""));
            }
            if kind == "rbd" && text_of(source, "image").is_empty() {
                errors.push(FieldError::required(format!("{at}.image"), ""));
            }
        }
        "csi" if !text_of(source, "driver").is_empty() => {
            let driver = text_of(source, "driver");
            let problems = crate::meta::subdomain_problems(&driver.to_lowercase());
            errors.extend(problems.iter().map(|why| FieldError::invalid_text(format!("{at}.driver"), driver, why)));
        }
        "gitRepo" => {
            let field = format!("{at}.directory");
            errors.extend(crate::mount_rules::descending_errors(text_of(source, "directory"), &field));
        }
        "image" => {
            let (policy, known) = (text_of(source, "pullPolicy"), ["Always", "IfNotPresent", "Never"]);
            if !policy.is_empty() && !known.contains(&policy) {
                errors.push(FieldError::not_supported(format!("{at}.pullPolicy"), &policy.into(), &known));
            }
        }
        "fc" if items_of(source, "targetWWNs").is_empty() == items_of(source, "wwids").is_empty() => {
            let why = "must specify either targetWWNs or wwids, but not both";
            errors.push(FieldError::required(format!("{at}.targetWWNs"), why));
        }
        "ephemeral" => errors.extend(ephemeral_errors(source, &at)),
        _ => {}
    }
    errors
}

fn host_path_errors(source: &Value, at: &str) -> Vec<FieldError> {
    const KINDS: [&str; 8] =
        ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    let mut errors = Vec::new();
    let (path, kind) = (text_of(source, "path"), text_of(source, "type"));
    if path.split('/').any(|part| part == "..") {
        errors.push(FieldError::invalid_text(format!("{at}.path"), path, "must not contain '..'"));
    }
    if !KINDS.contains(&kind) {
        errors.push(FieldError::not_supported(format!("{at}.type"), &kind.into(), &KINDS));
    }
    errors
}

fn mode_error(holder: &Value, key: &str, at: &str) -> Option<FieldError> {
    let mode = holder.get(key).and_then(Value::as_i64).filter(|mode| !(0..=0o777).contains(mode))?;
    let why = "must be a number between 0 and 0777 (octal), both inclusive";
    Some(FieldError::invalid(format!("{at}.{key}"), &mode.into(), why))
}

/// Keys of a map as files.
fn items_errors(source: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, item) in items_of(source, "items").iter().enumerate() {
        errors.extend(key_errors(item, &format!("{at}.items[{index}]")));
    }
    errors
}

fn key_errors(item: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if text_of(item, "key").is_empty() {
        errors.push(FieldError::required(format!("{at}.key"), ""));
    }
    errors.extend(path_errors(text_of(item, "path"), &format!("{at}.path")));
    errors.extend(mode_error(item, "mode", at));
    errors
}

/// A path of a file within the volume.
fn path_errors(path: &str, at: &str) -> Vec<FieldError> {
    if path.is_empty() {
        return vec![FieldError::required(at, "")];
    }
    let mut errors = Vec::new();
    if path.starts_with('/') {
        errors.push(FieldError::invalid_text(at, path, "must be a relative path"));
    }
    if path.split('/').any(|part| part == "..") {
        errors.push(FieldError::invalid_text(at, path, "must not contain '..'"));
    } else if path.starts_with("..") {
        errors.push(FieldError::invalid_text(at, path, "must not start with '..'"));
    }
    errors
}

fn downward_errors(source: &Value, at: &str) -> Vec<FieldError> {
    let files = items_of(source, "items").iter().flat_map(|file| file_errors(file, at));
    mode_error(source, "defaultMode", at).into_iter().chain(files).collect()
}

fn file_errors(file: &Value, at: &str) -> Vec<FieldError> {
    const FIELDS: [&str; 5] =
        ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
    let mut errors = Vec::new();
    errors.extend(path_errors(text_of(file, "path"), &format!("{at}.path")));
    let (field, resource) = (file.get("fieldRef"), file.get("resourceFieldRef"));
    match (field, resource) {
        (None, None) => {
            errors.push(FieldError::required(at, "one of fieldRef and resourceFieldRef is required"));
        }
        (Some(_), Some(_)) => {
            let why = "fieldRef and resourceFieldRef can not be specified simultaneously";
            errors.push(FieldError::invalid_text(at, "resource", why));
        }
        (Some(field), None) => {
            let path = text_of(field, "fieldPath");
            let entry = path.starts_with("metadata.annotations['") || path.starts_with("metadata.labels['");
            if path.is_empty() {
                errors.push(FieldError::required(format!("{at}.fieldRef.fieldPath"), ""));
            } else if !entry && !FIELDS.contains(&path) {
                let field = format!("{at}.fieldRef.fieldPath");
                // A path of a pod that has no place in a file, or none of a pod at all.
                if path.starts_with("spec.") || path.starts_with("status.") {
                    errors.push(FieldError::not_supported(field, &path.into(), &FIELDS));
                } else {
                    let why = format!("error converting fieldPath: field label not supported: {path}");
                    errors.push(FieldError::invalid_text(field, path, &why));
                }
            }
        }
        (None, Some(_)) => {}
    }
    errors.extend(mode_error(file, "mode", at));
    errors
}

fn projected_errors(source: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    errors.extend(mode_error(source, "defaultMode", at));
    let mut paths = BTreeSet::new();
    let mut collision = |path, shown: &str| {
        let taken = !paths.insert(path);
        taken.then(|| FieldError::invalid_text(at, shown, "conflicting duplicate paths"))
    };
    for (index, part) in items_of(source, "sources").iter().enumerate() {
        let here = format!("{at}.sources[{index}]");
        for (kind, source) in part.as_object().into_iter().flatten() {
            let here = format!("{here}.{kind}");
            match kind.as_str() {
                "secret" | "configMap" => {
                    let name = text_of(source, "name");
                    if name.is_empty() {
                        errors.push(FieldError::required(format!("{here}.name"), ""));
                    }
                    for (index, item) in items_of(source, "items").iter().enumerate() {
                        errors.extend(key_errors(item, &format!("{here}.items[{index}]")));
                        let path = Some(text_of(item, "path")).filter(|path| !path.is_empty());
                        errors.extend(path.and_then(|path| collision(path, name)));
                    }
                }
                "downwardAPI" => {
                    for file in items_of(source, "items") {
                        errors.extend(file_errors(file, &here));
                        let path = Some(text_of(file, "path")).filter(|path| !path.is_empty());
                        errors.extend(path.and_then(|path| collision(path, path)));
                    }
                }
                "clusterTrustBundle" => {
                    let path = text_of(source, "path");
                    errors.extend(path_errors(path, &format!("{here}.path")));
                    errors.extend(collision(path, path));
                }
                "serviceAccountToken" => errors.extend(token_errors(source, at, &here)),
                _ => {}
            }
        }
    }
    errors
}

fn token_errors(source: &Value, volume: &str, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(seconds) = source.get("expirationSeconds").and_then(Value::as_i64) {
        let why = match seconds {
            ..600 => "may not specify a duration less than 10 minutes",
            4_294_967_297.. => "may not specify a duration larger than 2^32 seconds",
            _ => "",
        };
        if !why.is_empty() {
            errors.push(FieldError::invalid(format!("{at}.expirationSeconds"), &seconds.into(), why));
        }
    }
    errors.extend(path_errors(text_of(source, "path"), &format!("{volume}.path")));
    errors
}

/// The token is that of an account, which the pod `spec` names; `at` is the volume.
pub fn account_errors(volume: &Value, spec: &Value, at: &str) -> Vec<FieldError> {
    let sources = volume.get("projected").map_or(&[][..], |projected| items_of(projected, "sources"));
    let tokens = sources.iter().enumerate().filter(|(_, source)| source["serviceAccountToken"].is_object());
    let nameless = tokens.filter(|_| text_of(spec, "serviceAccountName").is_empty());
    let why = "must not be specified when serviceAccountName is not set";
    let field = |index: usize| format!("{at}.projected.sources[{index}].serviceAccountToken");
    nameless.map(|(index, _)| FieldError::forbidden(field(index), why)).collect()
}

fn ephemeral_errors(source: &Value, at: &str) -> Vec<FieldError> {
    let at = format!("{at}.volumeClaimTemplate");
    let Some(template) = source.get("volumeClaimTemplate").filter(|t| t.is_object()) else {
        return vec![FieldError::required(at, "")];
    };
    let spec = template.get("spec").unwrap_or(&Value::Null);
    let mut errors = Vec::new();
    if items_of(spec, "accessModes").is_empty() {
        let why = "at least 1 access mode is required";
        errors.push(FieldError::required(format!("{at}.spec.accessModes"), why));
    }
    if spec.pointer("/resources/requests/storage").is_none() {
        errors.push(FieldError::required(format!("{at}.spec.resources[storage]"), ""));
    }
    errors
}

/// Names that volumes and pull secrets give to other objects.
pub fn reference_errors(name: &str, at: &str) -> Vec<FieldError> {
    let problems = subdomain_problems(name);
    problems.iter().map(|why| FieldError::invalid_text(at, name, why)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(volume: Value) -> Vec<String> {
        source_errors(&volume, "v").into_iter().map(|e| e.field).collect()
    }

    #[test]
    fn a_source_names_what_it_mounts() {
        assert_eq!(fields(json!({"name": "v", "nfs": {"path": "/"}})), ["v.nfs.server"]);
        assert_eq!(fields(json!({"name": "v", "persistentVolumeClaim": {}})), ["v.persistentVolumeClaim.claimName"]);
        assert!(fields(json!({"name": "v", "secret": {"secretName": "s"}})).is_empty());
    }

    #[test]
    fn a_file_stays_within_its_volume() {
        let at = |path: &str| fields(json!({"configMap": {"name": "c", "items": [{"key": "k", "path": path}]}})).len();
        assert_eq!((at("a/b"), at("../b"), at("/b"), at("..b")), (0, 1, 1, 1));
    }

    #[test]
    fn projected_files_do_not_collide_but_for_a_token() {
        let map = json!({"configMap": {"name": "c", "items": [{"key": "k", "path": "x"}]}});
        let field = json!({"fieldPath": "metadata.name"});
        let downward = json!({"downwardAPI": {"items": [{"path": "x", "fieldRef": field}]}});
        let bundle = json!({"clusterTrustBundle": {"name": "b", "path": "x"}});
        let token = json!({"serviceAccountToken": {"path": "x"}});
        let told = |sources: [&Value; 3]| {
            let errors = source_errors(&json!({"projected": {"sources": sources}}), "v");
            errors.into_iter().map(|e| e.message).collect::<Vec<_>>()
        };
        let why = "Invalid value: \"x\": conflicting duplicate paths";
        assert_eq!(told([&map, &downward, &bundle]), [why, why]);
        assert!(told([&map, &token, &token]).is_empty());
    }

    #[test]
    fn modes_are_permissions() {
        let of = |mode: i64| fields(json!({"secret": {"secretName": "s", "defaultMode": mode}})).len();
        assert_eq!((of(0o644), of(0o1000)), (0, 1));
    }
}
