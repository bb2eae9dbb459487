//! The options of requests: `ListOptions`, the write options and `DeleteOptions`, with their validation
//! (`apimachinery/pkg/apis/meta/v1/validation`, `internalversion/validation`).

use serde_json::{Value, json};

use crate::error::{Status, go_quote};
use crate::request::Query;
use crate::resource::Resource;
use crate::schema::{CauseReason, FieldError};
use crate::selector::{FieldSelector, LabelSelector};

fn invalid_options(kind: &str, errors: &[FieldError]) -> Status {
    Status::invalid("meta.k8s.io", kind, "", errors)
}

/// A number of the query; an empty text is not one.
pub fn integer_option(query: &Query, name: &str) -> Result<Option<i64>, Status> {
    match query.get(name) {
        None => Ok(None),
        Some(text) => text
            .parse()
            .map(Some)
            .map_err(|_| Status::bad_request(format!("strconv.ParseInt: parsing {}: invalid syntax", go_quote(text)))),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionMatch {
    Exact,
    NotOlderThan,
}

#[derive(Debug, Clone, Default)]
pub struct ListOptions {
    pub labels: LabelSelector,
    pub fields: FieldSelector,
    pub watch: bool,
    pub bookmarks: bool,
    /// Verbatim; empty when absent.
    pub resource_version: String,
    pub version_match: Option<VersionMatch>,
    pub timeout_seconds: Option<i64>,
    /// Zero: no limit.
    pub limit: usize,
    pub continue_token: String,
    pub send_initial_events: Option<bool>,
}

impl ListOptions {
    pub fn parse(query: &Query, resource: &Resource, watch: bool) -> Result<Self, Status> {
        let labels =
            LabelSelector::parse(query.get("labelSelector").unwrap_or_default()).map_err(Status::bad_request)?;
        let timeout_seconds = integer_option(query, "timeoutSeconds")?;
        let limit = integer_option(query, "limit")?.unwrap_or(0);
        let fields = FieldSelector::parse(query.get("fieldSelector").unwrap_or_default(), resource)
            .map_err(Status::bad_request)?;
        let options = Self {
            labels,
            fields,
            watch,
            bookmarks: query.flag("allowWatchBookmarks"),
            resource_version: query.get("resourceVersion").unwrap_or_default().to_owned(),
            version_match: match query.get("resourceVersionMatch") {
                Some("Exact") => Some(VersionMatch::Exact),
                Some("NotOlderThan") => Some(VersionMatch::NotOlderThan),
                _ => None,
            },
            timeout_seconds,
            limit: usize::try_from(limit).unwrap_or(0),
            continue_token: query.get("continue").unwrap_or_default().to_owned(),
            send_initial_events: query.optional_flag("sendInitialEvents"),
        };
        let errors = options.errors(query.get("resourceVersionMatch").unwrap_or_default());
        if errors.is_empty() { Ok(options) } else { Err(invalid_options("ListOptions", &errors)) }
    }

    /// `ValidateListOptions`.
    fn errors(&self, version_match: &str) -> Vec<FieldError> {
        let forbidden = |field: &str, why: &str| FieldError::forbidden(field, why);
        if self.watch {
            return self.watch_errors(version_match);
        }
        let mut errors = Vec::new();
        if !version_match.is_empty() {
            if self.resource_version.is_empty() {
                let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                errors.push(forbidden("resourceVersionMatch", why));
            }
            if !self.continue_token.is_empty() {
                let why = "resourceVersionMatch is forbidden when continue is provided";
                errors.push(forbidden("resourceVersionMatch", why));
            }
            if !matches!(version_match, "Exact" | "NotOlderThan") {
                let supported = ["Exact", "NotOlderThan", ""];
                errors.push(FieldError::not_supported("resourceVersionMatch", &version_match.into(), &supported));
            }
            if version_match == "Exact" && self.resource_version == "0" {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                errors.push(forbidden("resourceVersionMatch", why));
            }
        }
        if self.send_initial_events.is_some() {
            errors.push(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        errors
    }

    fn watch_errors(&self, version_match: &str) -> Vec<FieldError> {
        let mut forbidden = Vec::new();
        let mut errors = Vec::new();
        let continued = !self.continue_token.is_empty();
        if self.send_initial_events.is_some() && version_match != "NotOlderThan" {
            forbidden.push("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
        }
        if self.send_initial_events.is_none() && !version_match.is_empty() {
            forbidden.push("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
        }
        if continued && (self.send_initial_events.is_none() || !version_match.is_empty()) {
            forbidden.push("resourceVersionMatch is forbidden when continue is provided");
        }
        let field = "resourceVersionMatch";
        errors.extend(forbidden.into_iter().map(|why| FieldError::forbidden(field, why)));
        if !matches!(version_match, "" | "NotOlderThan") {
            errors.push(FieldError::not_supported(field, &version_match.into(), &["NotOlderThan"]));
        }
        errors
    }
}

/// How unknown and repeated fields in a body are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

/// `CreateOptions`, `UpdateOptions` and `PatchOptions` in one.
#[derive(Debug, Clone)]
pub struct WriteOptions {
    pub dry_run: bool,
    pub field_manager: Option<String>,
    pub validation: FieldValidation,
    pub force: Option<bool>,
    /// As webhooks see them.
    pub value: Value,
}

impl WriteOptions {
    /// `kind` is the options' kind, `apply` whether the patch is a server-side apply.
    pub fn parse(query: &Query, kind: &str, apply: bool) -> Result<Self, Status> {
        let dry_run: Vec<&str> = query.all("dryRun");
        let field_manager = query.get("fieldManager").filter(|m| !m.is_empty());
        let force = query.optional_flag("force");
        let validation = query.get("fieldValidation").unwrap_or_default();
        let mut errors = Vec::new();
        if kind == "PatchOptions" {
            if apply {
                if field_manager.is_none() {
                    errors.push(FieldError::required("fieldManager", "is required for apply patch"));
                }
            } else if force.is_some() {
                errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
            }
        }
        errors.extend(field_manager.map(manager_errors).unwrap_or_default());
        errors.extend(dry_run_errors(&dry_run));
        if !matches!(validation, "" | "Ignore" | "Warn" | "Strict") {
            let supported = ["", "Ignore", "Strict", "Warn"];
            errors.push(FieldError::not_supported("fieldValidation", &validation.into(), &supported));
        }
        if !errors.is_empty() {
            return Err(invalid_options(kind, &errors));
        }
        let mut value = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
        if let Some(manager) = field_manager {
            value["fieldManager"] = manager.into();
        }
        if !dry_run.is_empty() {
            value["dryRun"] = json!(dry_run);
        }
        if !validation.is_empty() {
            value["fieldValidation"] = validation.into();
        }
        if let Some(force) = force {
            value["force"] = force.into();
        }
        Ok(Self {
            dry_run: !dry_run.is_empty(),
            field_manager: field_manager.map(Into::into),
            validation: match validation {
                "Ignore" => FieldValidation::Ignore,
                "Strict" => FieldValidation::Strict,
                _ => FieldValidation::Warn,
            },
            force,
            value,
        })
    }
}

fn manager_errors(manager: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if manager.len() > 128 {
        errors.push(FieldError::too_long("fieldManager", 128));
    }
    if let Some((index, bad)) = manager.char_indices().find(|(_, c)| c.is_control()) {
        let why = format!("invalid character U+{:04X} (at position {index})", bad as u32);
        errors.push(FieldError::invalid_text("fieldManager", manager, &why));
    }
    errors
}

fn dry_run_errors(values: &[&str]) -> Option<FieldError> {
    let ok = values.is_empty() || values.iter().all(|v| *v == "All");
    (!ok).then(|| FieldError::not_supported("dryRun", &json!(values), &["All"]))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    Orphan,
    Background,
    Foreground,
}

#[derive(Debug, Clone, Default)]
pub struct DeleteOptions {
    pub dry_run: bool,
    pub grace_period_seconds: Option<i64>,
    /// `propagationPolicy`, or what `orphanDependents` means; `None` when neither was given.
    pub propagation: Option<Propagation>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    /// As webhooks see them.
    pub value: Value,
}

impl DeleteOptions {
    /// A body, even `{}`, makes the query's options ignored.
    pub fn parse(query: &Query, body: Option<Value>) -> Result<Self, Status> {
        let value = match body {
            Some(body) => body_options(body)?,
            None => query_options(query)?,
        };
        Self::from_value(value)
    }

    pub fn from_value(mut value: Value) -> Result<Self, Status> {
        let texts = |name: &str| -> Vec<String> {
            let list = value.get(name).and_then(Value::as_array);
            list.into_iter().flatten().filter_map(|v| v.as_str().map(Into::into)).collect()
        };
        let dry_run = texts("dryRun");
        let policy = value.get("propagationPolicy").and_then(Value::as_str);
        let orphan = value.get("orphanDependents").and_then(Value::as_bool);
        let mut errors = Vec::new();
        if let (Some(policy), Some(_)) = (policy, orphan) {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid_text("propagationPolicy", policy, why));
        }
        let propagation = match policy {
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Background") => Some(Propagation::Background),
            Some("Orphan") => Some(Propagation::Orphan),
            Some(other) => {
                errors.push(FieldError {
                    reason: CauseReason::NotSupported,
                    field: "propagationPolicy".into(),
                    message: format!(
                        "Unsupported value: {}: supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"",
                        go_quote(other)
                    ),
                });
                None
            }
            None => orphan.map(|orphan| if orphan { Propagation::Orphan } else { Propagation::Background }),
        };
        errors.extend(dry_run_errors(&dry_run.iter().map(String::as_str).collect::<Vec<_>>()));
        if !errors.is_empty() {
            return Err(invalid_options("DeleteOptions", &errors));
        }
        let precondition = |name: &str| {
            value.get("preconditions").and_then(|p| p.get(name)).and_then(Value::as_str).map(str::to_owned)
        };
        let mut options = Self {
            dry_run: !dry_run.is_empty(),
            grace_period_seconds: value.get("gracePeriodSeconds").and_then(Value::as_i64),
            propagation,
            uid: precondition("uid"),
            resource_version: precondition("resourceVersion"),
            value: Value::Null,
        };
        value["kind"] = "DeleteOptions".into();
        value["apiVersion"] = "meta.k8s.io/v1".into();
        options.value = value;
        Ok(options)
    }
}

/// Members a DeleteOptions body may have, with what Go decodes them into.
fn body_options(body: Value) -> Result<Value, Status> {
    let Value::Object(map) = body else {
        let found = crate::meta::json_type(&body);
        return Err(Status::bad_request(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type {}",
            crate::meta::TYPE_META
        )));
    };
    let kind = map.get("kind").and_then(Value::as_str).unwrap_or("DeleteOptions");
    let api_version = map.get("apiVersion").and_then(Value::as_str).unwrap_or("v1");
    if api_version.matches('/').count() > 1 {
        return Err(Status::bad_request(format!("unexpected GroupVersion string: {api_version}")));
    }
    // Options of any group and version are taken for those of this server.
    if kind != "DeleteOptions" {
        return Err(Status::bad_request(format!(
            "no kind {} is registered for version {} in scheme \"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27\"",
            go_quote(kind),
            go_quote(api_version)
        )));
    }
    let mut out = serde_json::Map::new();
    for (key, value) in map {
        let fits = match key.as_str() {
            "dryRun" => value.is_array(),
            "gracePeriodSeconds" => value.is_i64(),
            "propagationPolicy" => value.is_string(),
            "orphanDependents" => value.is_boolean(),
            "preconditions" => value.is_object(),
            _ => continue,
        };
        for (member, of) in [("resourceVersion", "string"), ("uid", "types.UID")] {
            let found = value.get(member).filter(|found| !found.is_string() && !found.is_null());
            if let Some(found) = found.filter(|_| key == "preconditions") {
                return Err(Status::bad_request(format!(
                    "json: cannot unmarshal {} into Go struct field Preconditions.preconditions.{member} of type {of}",
                    crate::meta::json_type(found)
                )));
            }
        }
        if value.is_null() {
            continue;
        }
        if !fits {
            return Err(Status::bad_request(format!(
                "json: cannot unmarshal {} into Go struct field DeleteOptions.{key}",
                crate::meta::json_type(&value)
            )));
        }
        out.insert(key, value);
    }
    Ok(Value::Object(out))
}

fn query_options(query: &Query) -> Result<Value, Status> {
    let mut value = json!({});
    if let Some(grace) = integer_option(query, "gracePeriodSeconds")? {
        value["gracePeriodSeconds"] = grace.into();
    }
    if let Some(policy) = query.get("propagationPolicy") {
        value["propagationPolicy"] = policy.into();
    }
    if let Some(orphan) = query.optional_flag("orphanDependents") {
        value["orphanDependents"] = orphan.into();
    }
    let dry_run = query.all("dryRun");
    if !dry_run.is_empty() {
        value["dryRun"] = json!(dry_run);
    }
    // The members of `preconditions` are members of the query too: even the resourceVersion of a deletecollection's
    // list.
    for member in ["uid", "resourceVersion"] {
        if let Some(text) = query.get(member).filter(|t| !t.is_empty()) {
            value["preconditions"][member] = text.into();
        }
    }
    Ok(value)
}
