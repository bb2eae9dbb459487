//! From a request body to an object of the kind: what is recognized, what is unknown, and which texts say so
//! (`endpoints/handlers/rest.go`, the codecs' strict decoding).

use super::*;

/// What a decoded body is, and what strict decoding says about it.
pub struct Decoded {
    pub value: Value,
    /// In the order in which the client is told.
    pub strict: Vec<String>,
    /// What the body says it is: the kind and the version without its group.
    said: (String, String),
    /// It is of another version than the path; strict decoding looks at it first.
    refused: Option<Status>,
}

/// `Kind in version "v" cannot be handled as a Kind: why`.
pub(super) fn unhandled_body(resource: &Resource, kind: &str, version: &str, why: &str) -> Status {
    Status::bad_request(format!(
        "{kind} in version {} cannot be handled as a {}: {why}",
        go_quote(version),
        resource.kind
    ))
}

/// How an error of the YAML reader begins; the serializer of built-in kinds leaves that out.
const YAML_TROUBLE: &str = "error converting YAML to JSON: ";

/// Reads the body as an object of the call's kind.
pub(super) fn decode_body(call: &Call) -> Result<Decoded, Status> {
    let resource = &call.resource;
    let format = Format::of(&call.content_type)?;
    let unrecognized = |why: &str| {
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {why} ({})",
            resource.kind,
            summarize_body(&call.body)
        ))
    };
    let document = Document::parse(&call.body, format).map_err(|e| match e.strip_prefix(YAML_TROUBLE) {
        Some(yaml) if !resource.is_custom() => unrecognized(yaml),
        _ => unrecognized(&format!("couldn't get version/kind; json parse error: {e}")),
    })?;
    let mut value = if resource.is_custom() { document.value.clone() } else { document.merged_value() };
    if value.is_null() {
        value = Value::Object(serde_json::Map::new());
    }
    if !value.is_object() {
        let found = meta::json_type(&value);
        return Err(unrecognized(&format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type {}",
            meta::TYPE_META
        )));
    }
    for member in ["kind", "apiVersion"] {
        if let Some(found) = value.get(member).filter(|v| !v.is_string() && !v.is_null()).map(meta::json_type) {
            return Err(unrecognized(&format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go struct field \
                 .{member} of type string"
            )));
        }
    }
    let text = |value: &Value, member: &str| value.get(member).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, api_version) = (text(&value, "kind"), text(&value, "apiVersion"));
    if api_version.matches('/').count() > 1 {
        return Err(unrecognized(&format!("unexpected GroupVersion string: {api_version}")));
    }
    // The core group has no name, with or without a slash.
    let api_version = if resource.is_custom() { &api_version } else { api_version.trim_start_matches('/') }.to_owned();
    if resource.is_custom() && kind.is_empty() {
        return Err(unrecognized(&format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(&call.body))));
    }
    let expected = resource.api_version();
    let version = api_version.rsplit('/').next().unwrap_or_default().to_owned();
    if kind.is_empty() {
        value["kind"] = resource.kind.clone().into();
    } else if !resource.is_custom() && kind != resource.kind {
        let of_version = |kind: &str| {
            let is_it = |r: &Resource| !r.is_custom() && (r.kind == kind || r.list_kind == kind);
            call.server.registry().iter().any(|r| is_it(r) && r.api_version() == api_version)
        };
        let known = of_version(&kind) || (matches!(kind.as_str(), "List" | "Status") && api_version == "v1");
        let why = if known {
            let internal = internal_package(&resource.group);
            format!("converting ({version}.{kind}) to ({internal}.{}): unknown conversion", resource.kind)
        } else {
            not_registered(resource, &kind, &api_version)
        };
        return Err(unhandled_body(resource, &kind, &version, &why));
    }
    if !resource.is_custom() && (api_version.is_empty() || api_version == expected) {
        value["apiVersion"] = expected.into();
    } else if api_version != expected {
        if resource.is_custom() {
            return decode_other_version(resource, &document, value, (&kind, &api_version));
        }
        // Their server's scheme still has the version that is no longer served.
        let kept = is_kept(&api_version, &kind);
        let known = kept
            || call
                .server
                .registry()
                .iter()
                .any(|r| !r.is_custom() && r.api_version() == api_version && r.kind == kind);
        return Err(if known {
            mismatched_version(&api_version, &expected)
        } else {
            unhandled_body(resource, &kind, &version, &not_registered(resource, &kind, &api_version))
        });
    }
    let unknown = tidy_decoded(resource, &mut value)
        .map_err(|why| unhandled_body(resource, &text(&value, "kind"), &resource.version, &why))?;
    let strict = document.strict_errors(&unknown, resource.is_custom());
    Ok(Decoded { strict, said: (text(&value, "kind"), resource.version.clone()), value, refused: None })
}

fn mismatched_version(given: &str, expected: &str) -> Status {
    Status::bad_request(format!(
        "the API version in the data ({given}) does not match the expected API version ({expected})"
    ))
}

/// A custom object of another version than the path's: it is pruned by the schema of the version that it names, or by
/// none at all, before the versions are compared (`schemaCoercingDecoder`, `UpdateResource`).
fn decode_other_version(
    resource: &Resource,
    document: &Document,
    mut value: Value,
    (kind, api_version): (&str, &str),
) -> Result<Decoded, Status> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    settle_numbers(&mut value);
    let mut unknown = meta::decode_metadata(&mut value).map_err(|why| unhandled_body(resource, kind, version, &why))?;
    unknown.sort();
    if group == resource.group && kind == resource.kind {
        match resource.schema_of(api_version) {
            Some(schema) => unknown.extend(schema.prune(&mut value)),
            None => {
                let known = |member: &str| matches!(member, "apiVersion" | "kind" | "metadata");
                unknown.extend(value.as_object().into_iter().flat_map(|m| m.keys()).filter(|m| !known(m)).cloned());
            }
        }
    }
    Ok(Decoded {
        strict: document.strict_errors(&unknown, true),
        said: (kind.to_owned(), version.to_owned()),
        refused: Some(mismatched_version(api_version, &resource.api_version())),
        value,
    })
}

/// The Go package of a group's internal types.
fn internal_package(group: &str) -> &str {
    if group.is_empty() { "core" } else { group.split('.').next().unwrap_or_default() }
}

/// What the decoder of a resource's group says of a kind that it does not have: it names the place where its scheme was
/// made.
pub(super) fn not_registered(resource: &Resource, kind: &str, api_version: &str) -> String {
    let scheme = match resource.group.as_str() {
        "apiextensions.k8s.io" => "k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:55",
        "apiregistration.k8s.io" => "k8s.io/kube-aggregator/pkg/apiserver/scheme/scheme.go:28",
        _ => "k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30",
    };
    let (kind, api_version) = (go_quote(kind), go_quote(api_version));
    format!("no kind {kind} is registered for version {api_version} in scheme \"{scheme}\"")
}

/// Kinds and versions that are served no longer and whose types the server still has.
const KEPT_VERSIONS: &[(&str, &str, &str)] = &[
    ("admissionregistration.k8s.io", "v1beta1", "MutatingWebhookConfiguration ValidatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "v1beta1", "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io", "v1beta1", "MutatingAdmissionPolicy MutatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io", "v1alpha1", "MutatingAdmissionPolicy MutatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io", "v1alpha1", "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding"),
    ("apiextensions.k8s.io", "v1beta1", "CustomResourceDefinition"),
    ("apiregistration.k8s.io", "v1beta1", "APIService"),
    ("apps", "v1beta1", "ControllerRevision Deployment StatefulSet"),
    ("apps", "v1beta2", "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet"),
    ("authentication.k8s.io", "v1beta1", "SelfSubjectReview TokenReview"),
    ("authorization.k8s.io", "v1beta1", "LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview"),
    ("authorization.k8s.io", "v1beta1", "SubjectAccessReview"),
    ("batch", "v1beta1", "CronJob"),
    ("certificates.k8s.io", "v1beta1", "CertificateSigningRequest"),
    ("coordination.k8s.io", "v1beta1", "Lease"),
    ("discovery.k8s.io", "v1beta1", "EndpointSlice"),
    ("events.k8s.io", "v1beta1", "Event"),
    ("extensions", "v1beta1", "DaemonSet Deployment Ingress NetworkPolicy ReplicaSet"),
    ("networking.k8s.io", "v1beta1", "Ingress IngressClass"),
    ("policy", "v1beta1", "Eviction PodDisruptionBudget"),
    ("rbac.authorization.k8s.io", "v1alpha1", "ClusterRole ClusterRoleBinding Role RoleBinding"),
    ("rbac.authorization.k8s.io", "v1beta1", "ClusterRole ClusterRoleBinding Role RoleBinding"),
    ("scheduling.k8s.io", "v1beta1", "PriorityClass"),
    ("storage.k8s.io", "v1beta1", "CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment"),
];

fn is_kept(api_version: &str, kind: &str) -> bool {
    KEPT_VERSIONS.iter().any(|(group, version, kinds)| {
        api_version.split_once('/') == Some((*group, *version)) && kinds.split(' ').any(|kept| kept == kind)
    })
}

/// What Go's decoder would make of the object: metadata in shape, unknown members gone, defaults filled in.
pub(super) fn tidy_decoded(resource: &Resource, value: &mut Value) -> Result<Vec<String>, String> {
    reset_by_nothing(resource, value);
    let unknown = shape_decoded(resource, value)?;
    resource.schema.default(value);
    Ok(unknown)
}

/// An empty list of entries ends the tracking of a built-in kind as one empty entry does (`isResetManagedFields`); the
/// decoder of custom objects drops it.
fn reset_by_nothing(resource: &Resource, object: &mut Value) {
    if let Some(entries) = object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut)
        && entries.is_empty()
        && !resource.is_custom()
    {
        entries.push(serde_json::json!({}));
    }
}

/// As `tidy_decoded`, for what a webhook made of an object (`mutating/dispatcher.go`). A built-in kind knows what it is
/// without being told.
pub(super) fn tidy_patched(resource: &Resource, value: &mut Value) -> Result<(), Status> {
    if resource.is_custom() {
        return tidy_patched_custom(resource, value);
    }
    if !value.is_object() {
        let found = meta::json_type(value);
        return Err(Status::internal(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value"
        )));
    }
    let text = |value: &Value, member: &str| value.get(member).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, api_version) = (text(value, "kind"), text(value, "apiVersion"));
    let expected = resource.api_version();
    let kind = if kind.is_empty() { resource.kind.clone() } else { kind };
    let version_fits = api_version.is_empty() || api_version == expected;
    if kind != resource.kind || !version_fits {
        let is_it = |r: &Resource| r.kind == kind && r.api_version() == api_version;
        let registry = crate::builtin::builtin_registry();
        let Some(other) = registry.iter().find(|r| is_it(r)) else {
            return Err(Status::internal(not_registered(resource, &kind, &api_version)));
        };
        // It is decoded as what it says it is before it is found to be no such object.
        if let Some(why) = other.schema.decode_error(value) {
            return Err(Status::internal(why));
        }
        let version = api_version.rsplit('/').next().unwrap_or_default();
        let internal = internal_package(&resource.group);
        return Err(Status::unknown(format!(
            "converting ({version}.{kind}) to ({internal}.{}): unknown conversion",
            resource.kind
        )));
    }
    value["kind"] = resource.kind.clone().into();
    value["apiVersion"] = expected.into();
    tidy_decoded(resource, value).map(drop).map_err(Status::internal)
}

/// A custom object keeps what its schema does not know until it is stored, and loses metadata of the wrong type.
fn tidy_patched_custom(resource: &Resource, value: &mut Value) -> Result<(), Status> {
    let text = |member: &str| value.get(member).and_then(Value::as_str).unwrap_or_default();
    let (kind, api_version) = (text("kind"), text("apiVersion"));
    if kind.is_empty() {
        return Err(Status::internal(format!("Object 'Kind' is missing in '{value}'")));
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let known = resource.custom.as_ref().is_some_and(|custom| custom.schemas.contains_key(version));
    if group != resource.group || !known {
        return Err(Status::unknown(format!("request to convert CR from an invalid group/version: {api_version}")));
    }
    if version != resource.version {
        value["apiVersion"] = resource.api_version().into();
    }
    settle_numbers(value);
    meta::drop_undecodable(value);
    meta::decode_metadata(value).map_err(Status::internal)?;
    resource.schema.default(value);
    Ok(())
}

/// All of that but the defaults.
pub(super) fn shape_decoded(resource: &Resource, value: &mut Value) -> Result<Vec<String>, String> {
    if resource.is_custom() {
        settle_numbers(value);
    }
    if let Some(why) = resource.schema.decode_error(value) {
        return Err(why);
    }
    let mut unknown = meta::decode_metadata(value)?;
    unknown.sort();
    unknown.extend(resource.schema.prune(value));
    if !resource.is_custom() {
        unknown.sort();
    }
    unknown.dedup();
    Ok(unknown)
}

/// The largest float that a schema takes for an integer (`IsFloat64AJSONInteger` of go-openapi).
const LARGEST_WHOLE: f64 = 9_007_199_254_740_991.0;

/// Numbers of a custom object as they are kept: a whole one that fits is an integer however it was written, and what no
/// integer holds is a float (`sigs.k8s.io/json`, and Go's way to write a float).
fn settle_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if !number.is_i64() => {
            let float = number.as_f64().unwrap_or_default();
            let whole = number.is_f64() && float.fract() == 0.0 && float.abs() <= LARGEST_WHOLE;
            *value = if whole { Value::from(float as i64) } else { Value::from(float) };
        }
        Value::Array(items) => items.iter_mut().for_each(settle_numbers),
        Value::Object(map) => map.values_mut().for_each(settle_numbers),
        _ => {}
    }
}

/// The body in an error text: the beginning, in hex if it is no JSON.
pub fn summarize_body(body: &[u8]) -> String {
    const MAX: usize = 30;
    match body.first() {
        None => "<empty>".into(),
        Some(b'{') if body.len() > MAX => {
            format!("{} ...", String::from_utf8_lossy(body.get(..MAX).unwrap_or_default()))
        }
        Some(b'{') => String::from_utf8_lossy(body).into_owned(),
        Some(_) => {
            let hex: String = body.iter().take(MAX).map(|b| format!("{b:02x}")).collect();
            if body.len() > MAX { format!("{hex} ...") } else { hex }
        }
    }
}

/// Refuses, warns about or ignores what strict decoding found, then refuses another version than the path's.
pub(super) fn enforce_strict(call: &mut Call, options: &WriteOptions, decoded: &Decoded) -> Result<(), Status> {
    match options.validation {
        _ if decoded.strict.is_empty() => {}
        FieldValidation::Ignore => {}
        FieldValidation::Warn => {
            decoded.strict.iter().flat_map(|text| split_repeats(text)).for_each(|text| call.warn(text));
        }
        FieldValidation::Strict => {
            let why = format!("strict decoding error: {}", decoded.strict.join(", "));
            let (kind, version) = &decoded.said;
            let version = go_quote(version);
            return Err(Status::bad_request(format!(
                "{kind} in version {version} cannot be handled as a {kind}: {why}"
            )));
        }
    }
    decoded.refused.clone().map_or(Ok(()), Err)
}

/// The body's namespace must be the path's; the path's is filled in.
pub(super) fn settle_namespace(call: &Call, value: &mut Value) -> Result<(), Status> {
    let given = meta::metadata_text(value, "namespace");
    if !call.resource.namespaced {
        if !given.is_empty() {
            meta::metadata_mut(value).remove("namespace");
        }
        return Ok(());
    }
    if !given.is_empty() && given != call.info.namespace {
        return Err(mismatched_namespace());
    }
    let namespace = call.info.namespace.clone();
    meta::metadata_mut(value).insert("namespace".into(), namespace.into());
    Ok(())
}

/// The answer to a body of another namespace.
pub fn mismatched_namespace() -> Status {
    Status::bad_request("the namespace of the provided object does not match the namespace sent on the request")
}

/// The body's name must be the path's.
pub fn check_name(call: &Call, value: &Value) -> Result<(), Status> {
    let name = meta::object_name(value);
    let wanted = &call.info.name;
    if name.is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({wanted} based on URL) was undeterminable: name must be provided"
        )));
    }
    if name != wanted {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({wanted})"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_webhook_makes_of_an_object_is_still_of_its_kind() {
        let registry = crate::builtin::builtin_registry();
        let maps = registry.get("", "v1", "configmaps").unwrap();
        let tidied = |mut value: Value| tidy_patched(maps, &mut value).map(|()| value);
        assert_eq!(
            tidied(json!({"metadata": {}})),
            Ok(json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {}}))
        );
        let other = tidied(json!({"kind": "Secret", "apiVersion": "v1"})).unwrap_err();
        assert_eq!(other.message, "converting (v1.Secret) to (core.ConfigMap): unknown conversion");
        assert!(other.details.is_none());
        let unknown = tidied(json!({"kind": "ConfigMap", "apiVersion": "v2"})).unwrap_err();
        assert!(unknown.message.ends_with("legacyscheme/scheme.go:30\""), "{}", unknown.message);
    }

    #[test]
    fn versions_that_are_no_longer_served_are_still_known() {
        assert!(is_kept("apps/v1beta2", "DaemonSet") && is_kept("policy/v1beta1", "PodDisruptionBudget"));
        assert!(!is_kept("apps/v1beta1", "DaemonSet") && !is_kept("batch/v1beta1", "Job"));
    }

    #[test]
    fn a_whole_number_of_a_custom_object_is_an_integer_however_it_was_written() {
        let mut value: Value =
            serde_json::from_str(r#"{"a":[1.0,3e0,1e2,-2.0],"b":2.5,"c":9223372036854775808,"d":1e18}"#).unwrap();
        settle_numbers(&mut value);
        assert_eq!(value, json!({"a": [1, 3, 100, -2], "b": 2.5, "c": 9_223_372_036_854_775_808.0, "d": 1e18}));
    }
}
