//! CustomResourceDefinitions as objects: their defaults, and everything outside the schemas that can be wrong with one
//! (`pkg/apis/apiextensions/validation/validation.go`).
//!
//! The server validates an internal form in which parts that all versions share have moved to the top of the spec;
//! error paths follow that form, so a definition of one version reports its schema under `spec.validation`.

use serde_json::{Map, Value, json};

use super::crd_versions::{invalid_versions, validate_parts};
use super::error::{CauseReason, FieldError};
use super::formats::Format;
use super::gotext;
use super::names;
use super::node::Kind;

const APPROVED: &str = "api-approved.kubernetes.io";

/// Fills in the defaults of a CustomResourceDefinition.
pub(super) fn default_spec(crd: &mut Map<String, Value>) {
    let Some(spec) = crd.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let unset =
            |names: &Map<String, Value>, key: &str| names.get(key).and_then(Value::as_str).is_none_or(str::is_empty);
        if !kind.is_empty() && unset(names, "singular") {
            names.insert("singular".to_owned(), kind.to_lowercase().into());
        }
        if !kind.is_empty() && unset(names, "listKind") {
            names.insert("listKind".to_owned(), format!("{kind}List").into());
        }
    }
    if spec.get("conversion").is_none_or(Value::is_null) {
        spec.insert("conversion".to_owned(), json!({"strategy": "None"}));
    }
    // The internal type has the parts of the webhook, and no webhook.
    if let Some(conversion) = spec.get_mut("conversion").and_then(Value::as_object_mut)
        && conversion.get("webhook").is_some_and(|webhook| {
            webhook.get("clientConfig").is_none_or(Value::is_null)
                && list_at(webhook, "/conversionReviewVersions").is_empty()
        })
    {
        conversion.remove("webhook");
    }
    if let Some(service) = spec
        .get_mut("conversion")
        .and_then(|conversion| conversion.pointer_mut("/webhook/clientConfig/service"))
        .and_then(Value::as_object_mut)
    {
        super::defaults::put_default(service, "port", 443);
    }
    let storage = storage_version(spec).map(str::to_owned);
    if let (Some(storage), Some(status)) = (storage, crd.get_mut("status").and_then(Value::as_object_mut))
        && status.get("storedVersions").and_then(Value::as_array).is_none_or(Vec::is_empty)
    {
        status.insert("storedVersions".to_owned(), json!([storage]));
    }
}

fn storage_version(spec: &Map<String, Value>) -> Option<&str> {
    let versions = spec.get("versions").and_then(Value::as_array)?;
    let stored = versions.iter().find(|version| version.get("storage") == Some(&Value::Bool(true)))?;
    stored.get("name").and_then(Value::as_str)
}

/// Collects errors below one field.
pub(super) struct Errors {
    pub list: Vec<FieldError>,
}

impl Errors {
    pub fn new() -> Self {
        Self { list: Vec::new() }
    }

    pub fn required(&mut self, field: impl Into<String>, detail: &str) {
        let message = if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
        self.list.push(FieldError::new(CauseReason::Required, field, message));
    }

    pub fn invalid(&mut self, field: impl Into<String>, value: &Value, detail: &str) {
        let message = format!("Invalid value: {}: {detail}", gotext::write_value(value));
        self.list.push(FieldError::new(CauseReason::Invalid, field, message));
    }

    pub fn forbidden(&mut self, field: impl Into<String>, detail: &str) {
        self.list.push(FieldError::new(CauseReason::Forbidden, field, format!("Forbidden: {detail}")));
    }

    pub fn unsupported(&mut self, field: impl Into<String>, value: &Value, supported: &[&str]) {
        let known: Vec<String> = supported.iter().map(|text| gotext::quote_string(text)).collect();
        let message =
            format!("Unsupported value: {}: supported values: {}", gotext::write_value(value), known.join(", "));
        self.list.push(FieldError::new(CauseReason::NotSupported, field, message));
    }
}

pub(super) fn text_at<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn list_at<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The errors of a CustomResourceDefinition after defaulting, without those of its metadata except the rule that ties
/// its name to its spec. `old` is the stored one on an update.
pub fn validate_crd(crd: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    if old.is_none() {
        validate_name(crd, &mut errors);
    }
    validate_spec(crd, &mut errors);
    if let Some(old) = old {
        validate_immutable(crd, old, &mut errors);
    }
    names_of(crd.pointer("/status/acceptedNames"), "status.acceptedNames", &mut errors);
    stored_versions(crd, &mut errors);
    validate_approval(crd, old, &mut errors);
    let preserving = |crd: &Value| crd.pointer("/spec/preserveUnknownFields") == Some(&Value::Bool(true));
    if preserving(crd) && !old.is_some_and(preserving) {
        errors.invalid(
            "spec.preserveUnknownFields",
            &Value::Bool(true),
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        );
    }
    errors.list
}

/// Warnings of formats that nobody knows, as far as they are new.
pub fn format_warnings(crd: &Value, old: Option<&Value>) -> Vec<String> {
    let of = |crd: &Value| {
        let mut found = Vec::new();
        for version in list_at(crd, "/spec/versions") {
            unknown_formats(version.pointer("/schema/openAPIV3Schema").unwrap_or(&Value::Null), &mut found);
        }
        found
    };
    let known = old.map(of).unwrap_or_default();
    let new = of(crd).into_iter().filter(|format| !known.contains(format));
    new.map(|format| format!("unrecognized format {}", gotext::quote_string(&format))).collect()
}

fn unknown_formats(schema: &Value, found: &mut Vec<String>) {
    if let Some(format) = schema.get("format").and_then(Value::as_str).filter(|format| !format.is_empty()) {
        let kinds: Vec<Kind> = Kind::parse(text_at(schema, "/type")).into_iter().collect();
        if Format::parse(format, &kinds).is_none() {
            found.push(format.to_owned());
        }
    }
    let members = |key: &str| schema.get(key).and_then(Value::as_object).into_iter().flatten().map(|(_, inner)| inner);
    let parts = |key: &str| schema.get(key).and_then(Value::as_array).into_iter().flatten();
    let single = ["items", "additionalProperties", "not"].into_iter().filter_map(|key| schema.get(key));
    let inner = single.chain(members("properties")).chain(parts("allOf")).chain(parts("anyOf")).chain(parts("oneOf"));
    inner.filter(|inner| inner.is_object()).for_each(|inner| unknown_formats(inner, found));
}

/// What an update of the status must hold to. The main resource asks for more.
pub fn validate_crd_status(crd: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    names_of(crd.pointer("/status/acceptedNames"), "status.acceptedNames", &mut errors);
    if list_at(crd, "/status/storedVersions").is_empty() {
        errors.invalid("status.storedVersions", &Value::Array(Vec::new()), "must have at least one stored version");
    }
    errors.list
}

fn validate_name(crd: &Value, errors: &mut Errors) {
    let wanted = format!("{}.{}", text_at(crd, "/spec/names/plural"), text_at(crd, "/spec/group"));
    for field in ["generateName", "name"] {
        let name = text_at(crd, &format!("/metadata/{field}"));
        if !name.is_empty() && name != wanted {
            errors.invalid(format!("metadata.{field}"), &name.into(), "must be spec.names.plural+\".\"+spec.group");
        }
    }
}

fn validate_immutable(crd: &Value, old: &Value, errors: &mut Errors) {
    let established = list_at(old, "/status/conditions")
        .iter()
        .any(|condition| text_at(condition, "/type") == "Established" && text_at(condition, "/status") == "True");
    let fields = [("scope", true), ("names/kind", true), ("group", false), ("names/plural", false)];
    for (path, only_established) in fields {
        let pointer = format!("/spec/{path}");
        if text_at(crd, &pointer) != text_at(old, &pointer) && (established || !only_established) {
            let field = format!("spec.{}", path.replace('/', "."));
            errors.invalid(field, &text_at(crd, &pointer).into(), "field is immutable");
        }
    }
}

/// `schemaHasDefaults`.
fn has_defaults(schema: Option<&Value>) -> bool {
    let Some(Value::Object(schema)) = schema else { return false };
    let of_each = ["properties", "patternProperties", "definitions"].into_iter().filter_map(|key| schema.get(key));
    let of_all = ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|key| schema.get(key));
    schema.get("default").is_some_and(|default| !default.is_null())
        || ["items", "not", "additionalProperties"].into_iter().any(|key| has_defaults(schema.get(key)))
        || of_each.filter_map(Value::as_object).any(|all| all.values().any(|schema| has_defaults(Some(schema))))
        || of_all.filter_map(Value::as_array).flatten().any(|schema| has_defaults(Some(schema)))
}

fn validate_spec(crd: &Value, errors: &mut Errors) {
    let versions = list_at(crd, "/spec/versions");
    validate_group(text_at(crd, "/spec/group"), errors);
    let scope = text_at(crd, "/spec/scope");
    match scope {
        "" => errors.required("spec.scope", ""),
        "Cluster" | "Namespaced" => {}
        other => errors.unsupported("spec.scope", &other.into(), &["Cluster", "Namespaced"]),
    }
    let preserves = crd.pointer("/spec/preserveUnknownFields") == Some(&Value::Bool(true));
    if preserves && versions.iter().any(|version| has_defaults(version.pointer("/schema/openAPIV3Schema"))) {
        let why = "must be false in order to use defaults in the schema";
        errors.invalid("spec.preserveUnknownFields", &Value::Bool(true), why);
    }
    for (index, version) in versions.iter().enumerate() {
        if version.pointer("/schema/openAPIV3Schema").is_none_or(Value::is_null) {
            errors.required(format!("spec.versions[{index}].schema.openAPIV3Schema"), "");
        }
    }
    for (index, version) in versions.iter().enumerate() {
        let name = text_at(version, "/name");
        if let Some(problem) = names::dns1035_label(name) {
            errors.invalid(format!("spec.versions[{index}].name"), &name.into(), &problem);
        }
        validate_deprecation(version, index, errors);
    }
    validate_parts(versions, errors);
    let mut seen: Vec<&str> = versions.iter().map(|version| text_at(version, "/name")).collect();
    seen.sort_unstable();
    if seen.windows(2).any(|pair| pair[0] == pair[1]) {
        invalid_versions(versions, "must contain unique version names", errors);
    }
    if crd.pointer("/spec/versions").is_none_or(Value::is_null) {
        errors.invalid("spec.versions", &Value::Null, "must have exactly one version marked as storage version");
    } else if versions.iter().filter(|version| version.get("storage") == Some(&Value::Bool(true))).count() != 1 {
        invalid_versions(versions, "must have exactly one version marked as storage version", errors);
    }
    if let Some(problem) =
        versions.first().map(|v| text_at(v, "/name")).filter(|n| !n.is_empty()).and_then(names::dns1035_label)
    {
        errors.invalid("spec.version", &text_at(&versions[0], "/name").into(), &problem);
    }
    for key in ["plural", "singular", "kind", "listKind"] {
        if text_at(crd, &format!("/spec/names/{key}")).is_empty() {
            errors.required(format!("spec.names.{key}"), "");
        }
    }
    names_of(crd.pointer("/spec/names"), "spec.names", errors);
    validate_conversion(crd, errors);
}

fn validate_group(group: &str, errors: &mut Errors) {
    let problems = names::dns1123_subdomain(group);
    if group.is_empty() {
        errors.required("spec.group", "");
    } else if !problems.is_empty() {
        errors.invalid("spec.group", &group.into(), &problems.join(","));
    } else if !group.contains('.') {
        errors.invalid("spec.group", &group.into(), "should be a domain with at least one dot");
    }
}

fn validate_deprecation(version: &Value, index: usize, errors: &mut Errors) {
    let Some(warning) = version.get("deprecationWarning").filter(|warning| !warning.is_null()) else { return };
    let field = format!("spec.versions[{index}].deprecationWarning");
    let text = warning.as_str().unwrap_or_default();
    if version.get("deprecated") != Some(&Value::Bool(true)) {
        errors.invalid(field, warning, "can only be set for deprecated versions");
        return;
    }
    if text.len() > 256 {
        errors.invalid(&field, warning, "must be <= 256 characters long");
    }
    if text.is_empty() {
        errors.invalid(&field, warning, "must not be an empty string");
    }
    if let Some((at, _)) = text.char_indices().find(|(_, c)| c.is_control()) {
        let detail =
            format!("must only contain printable UTF-8 characters; non-printable character found at index {at}");
        errors.invalid(&field, warning, &detail);
    }
}

fn names_of(names: Option<&Value>, field: &str, errors: &mut Errors) {
    let Some(names) = names else { return };
    let get = |key: &str| names.get(key).and_then(Value::as_str).unwrap_or_default();
    for key in ["plural", "singular"] {
        let name = get(key);
        if let Some(problem) = Some(name).filter(|name| !name.is_empty()).and_then(names::dns1035_label) {
            errors.invalid(format!("{field}.{key}"), &name.into(), &problem);
        }
    }
    for key in ["kind", "listKind"] {
        let name = get(key);
        if let Some(problem) =
            Some(name.to_lowercase()).filter(|n| !n.is_empty()).and_then(|n| names::dns1035_label(&n))
        {
            let detail = format!("may have mixed case, but should otherwise match: {problem}");
            errors.invalid(format!("{field}.{key}"), &name.into(), &detail);
        }
    }
    if !get("kind").is_empty() && get("kind") == get("listKind") {
        errors.invalid(format!("{field}.listKind"), &get("listKind").into(), "kind and listKind may not be the same");
    }
    for key in ["shortNames", "categories"] {
        for (index, name) in names.get(key).and_then(Value::as_array).into_iter().flatten().enumerate() {
            if let Some(problem) = names::dns1035_label(name.as_str().unwrap_or_default()) {
                errors.invalid(format!("{field}.{key}[{index}]"), name, &problem);
            }
        }
    }
}

fn validate_conversion(crd: &Value, errors: &mut Errors) {
    let Some(conversion) = crd.pointer("/spec/conversion").filter(|conversion| !conversion.is_null()) else { return };
    let field = "spec.conversion";
    let strategy = text_at(conversion, "/strategy");
    match strategy {
        "" => errors.required(format!("{field}.strategy"), ""),
        "None" | "Webhook" => {}
        other => errors.unsupported(format!("{field}.strategy"), &other.into(), &["None", "Webhook"]),
    }
    if strategy != "None" && crd.pointer("/spec/preserveUnknownFields") == Some(&Value::Bool(true)) {
        let why = "must be None if spec.preserveUnknownFields is true";
        errors.invalid(format!("{field}.strategy"), &strategy.into(), why);
    }
    let config = conversion.pointer("/webhook/clientConfig").filter(|config| !config.is_null());
    let reviews = list_at(conversion, "/webhook/conversionReviewVersions");
    if strategy != "Webhook" {
        if config.is_some() {
            errors.forbidden(
                format!("{field}.webhookClientConfig"),
                "should not be set when strategy is not set to Webhook",
            );
        }
        if !reviews.is_empty() {
            let field = format!("{field}.conversionReviewVersions");
            errors.forbidden(field, "should not be set when strategy is not set to Webhook");
        }
        return;
    }
    match config {
        None => errors.required(format!("{field}.webhookClientConfig"), "required when strategy is set to Webhook"),
        Some(config) => {
            errors.list.extend(crate::admission::client_errors(&format!("{field}.webhookClientConfig"), config));
        }
    }
    let field = format!("{field}.conversionReviewVersions");
    if reviews.is_empty() {
        errors.required(field, "");
        return;
    }
    for (index, version) in reviews.iter().enumerate() {
        if reviews[..index].contains(version) {
            errors.invalid(format!("{field}[{index}]"), version, "duplicate version");
        } else if let Some(problem) = names::dns1035_label(version.as_str().unwrap_or_default()) {
            errors.invalid(format!("{field}[{index}]"), version, &problem);
        }
    }
    if !reviews.iter().any(|version| version == "v1" || version == "v1beta1") {
        errors.invalid(field, &Value::from(reviews.to_vec()), "must include at least one of v1, v1beta1");
    }
}

fn stored_versions(crd: &Value, errors: &mut Errors) {
    let field = "status.storedVersions";
    let stored: Vec<Value> = list_at(crd, "/status/storedVersions").to_vec();
    if stored.is_empty() {
        errors.invalid(field, &Value::Null, "must have at least one stored version");
        return;
    }
    let versions = list_at(crd, "/spec/versions");
    // Each stored version is found once: a version that is listed twice is missed the second time.
    let mut unseen: Vec<&str> = stored.iter().filter_map(Value::as_str).collect();
    for version in versions {
        let name = text_at(version, "/name");
        let found = unseen.contains(&name);
        unseen.retain(|other| *other != name);
        if !found && version.get("storage") == Some(&Value::Bool(true)) {
            errors.invalid(field, &Value::from(stored.clone()), &format!("must have the storage version {name}"));
        }
    }
    for (index, version) in stored.iter().enumerate() {
        let name = version.as_str().unwrap_or_default();
        if !versions.iter().any(|other| text_at(other, "/name") == name) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in \
                 spec.versions until a storage migration ensures no data remains persisted in {name} and removes \
                 {name} from status.storedVersions"
            );
            errors.invalid(format!("{field}[{index}]"), version, &detail);
        }
    }
}

/// Groups of the Kubernetes community need the word of a reviewer, or an excuse.
fn validate_approval(crd: &Value, old: Option<&Value>, errors: &mut Errors) {
    #[derive(PartialEq)]
    enum State {
        Missing,
        Bypassed,
        Approved,
        Bad,
    }
    fn annotation(crd: &Value) -> &str {
        crd.pointer("/metadata/annotations").and_then(|a| a.get(APPROVED)).and_then(Value::as_str).unwrap_or_default()
    }
    let state = |crd: &Value| match annotation(crd) {
        "" => State::Missing,
        text if text.starts_with("unapproved") => State::Bypassed,
        text if text.split_once("://").is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty()) => {
            State::Approved
        }
        _ => State::Bad,
    };
    let group = text_at(crd, "/spec/group");
    let protected = [".k8s.io", ".kubernetes.io"].iter().any(|end| group.ends_with(end))
        || matches!(group, "k8s.io" | "kubernetes.io");
    let now = state(crd);
    if !protected || old.is_some_and(|old| state(old) == now) {
        return;
    }
    let field = format!("metadata.annotations[{APPROVED}]");
    let link = "see https://github.com/kubernetes/enhancements/pull/1111";
    match now {
        State::Missing => {
            errors.required(field, &format!("protected groups must have approval annotation \"{APPROVED}\", {link}"));
        }
        State::Bad => {
            let detail = format!(
                "protected groups must have approval annotation \"{APPROVED}\" with either a URL or a reason starting \
                 with \"unapproved\", {link}"
            );
            errors.invalid(field, &annotation(crd).into(), &detail);
        }
        State::Bypassed | State::Approved => {}
    }
}
