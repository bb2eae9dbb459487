//! What the server answers when it refuses: a `Status` of `meta/v1`. One constructor for each reason, with the texts of
//! `k8s.io/apimachinery/pkg/api/errors`.

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::schema::{CauseReason, FieldError, aggregate_errors};

/// One cause of a refusal, as in `details.causes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    pub reason: String,
    pub message: String,
    pub field: String,
}

impl CauseReason {
    /// The words that open the message of a field error.
    fn words(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
        }
    }
}

/// The constructors of `field.Error`.
impl FieldError {
    /// `<words>: <detail>` without a value, for instance `Required value: name is required`.
    pub fn plain(reason: CauseReason, field: impl Into<String>, detail: &str) -> Self {
        let message =
            if detail.is_empty() { reason.words().to_owned() } else { format!("{}: {detail}", reason.words()) };
        Self { reason, field: field.into(), message }
    }

    /// `<words>: <value>: <detail>`, the value as Go prints it in field errors.
    pub fn value(reason: CauseReason, field: impl Into<String>, value: &Value, detail: &str) -> Self {
        let shown = show_value(value);
        let message = if detail.is_empty() {
            format!("{}: {shown}", reason.words())
        } else {
            format!("{}: {shown}: {detail}", reason.words())
        };
        Self { reason, field: field.into(), message }
    }

    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::plain(CauseReason::Required, field, detail)
    }

    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::plain(CauseReason::Forbidden, field, detail)
    }

    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::value(CauseReason::Invalid, field, value, detail)
    }

    pub fn invalid_text(field: impl Into<String>, value: &str, detail: &str) -> Self {
        Self::value(CauseReason::Invalid, field, &Value::from(value), detail)
    }

    /// An invalid value in a form of its own, such as that of `go_struct`.
    pub fn invalid_shown(field: impl Into<String>, shown: &str, detail: &str) -> Self {
        let message = format!("{}: {shown}: {detail}", CauseReason::Invalid.words());
        Self { reason: CauseReason::Invalid, field: field.into(), message }
    }

    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::value(CauseReason::Duplicate, field, value, "")
    }

    /// `shown` is how Go prints the value.
    pub fn duplicate_shown(field: impl Into<String>, shown: &str) -> Self {
        let message = format!("Duplicate value: {shown}");
        Self { reason: CauseReason::Duplicate, field: field.into(), message }
    }

    /// `Unsupported value: "x": supported values: "a", "b"`.
    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let list = supported.iter().map(|s| format!("\"{s}\"")).collect::<Vec<_>>().join(", ");
        Self::value(CauseReason::NotSupported, field, value, &format!("supported values: {list}"))
    }

    /// `Too long: may not be more than N bytes`.
    pub fn too_long(field: impl Into<String>, max: usize) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        Self::plain(CauseReason::TooLong, field, &format!("may not be more than {max} {unit}"))
    }
}

/// A value as field errors print it: strings quoted, objects and lists as JSON, null as `null`.
pub fn show_value(value: &Value) -> String {
    match value {
        Value::String(text) => go_quote(text),
        other => other.to_string(),
    }
}

/// An internal type as field errors print it: Go's names, in the order of the struct, absent members as given.
pub fn go_struct(value: &Value, members: &[(&str, &str, &str)]) -> String {
    let shown: Vec<String> = members
        .iter()
        .map(|(name, key, absent)| match value.get(key).filter(|v| !v.is_null()) {
            Some(member) => format!("\"{name}\":{member}"),
            None => format!("\"{name}\":{absent}"),
        })
        .collect();
    format!("{{{}}}", shown.join(","))
}

/// Go's `%q` for the texts that occur here.
pub fn go_quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => out.push_str(&format!("\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A refusal. `into_value` gives the JSON body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    pub code: u16,
    /// Empty: the member is left out.
    pub reason: String,
    pub message: String,
    pub details: Option<Box<Details>>,
    /// The list metadata of a Status that came from a webhook.
    pub metadata: Option<Box<serde_json::Map<String, Value>>>,
    /// A bare text answer instead of a Status (`404 page not found`).
    pub plain: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    pub name: String,
    pub group: String,
    pub kind: String,
    pub uid: String,
    pub causes: Vec<Cause>,
    pub retry_after_seconds: u32,
}

impl Status {
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), message: message.into(), details: None, metadata: None, plain: false }
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        let details = self.details.get_or_insert_default();
        details.group = group.into();
        details.kind = kind.into();
        details.name = name.into();
        self
    }

    pub fn with_causes(mut self, causes: Vec<Cause>) -> Self {
        self.details.get_or_insert_default().causes = causes;
        self
    }

    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    /// The text answer of Go's `http.NotFound`.
    pub fn page_not_found() -> Self {
        Self { plain: true, ..Self::new(404, "", "404 page not found\n") }
    }

    pub fn not_found(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} {} not found", qualified_resource(plural, group), go_quote(name));
        Self::new(404, "NotFound", message).about(group, plural, name)
    }

    /// The answer when a resource does not exist at all.
    pub fn no_such_resource() -> Self {
        let mut status = Self::new(404, "NotFound", "the server could not find the requested resource");
        status.details = Some(Box::default());
        status
    }

    pub fn already_exists(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} {} already exists", qualified_resource(plural, group), go_quote(name));
        Self::new(409, "AlreadyExists", message).about(group, plural, name)
    }

    pub fn conflict(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} {}: {why}", qualified_resource(plural, group), go_quote(name));
        Self::new(409, "Conflict", message).about(group, plural, name)
    }

    /// The optimistic lock failed.
    pub fn modified(group: &str, plural: &str, name: &str) -> Self {
        Self::conflict(
            group,
            plural,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub fn internal(message: impl AsRef<str>) -> Self {
        let text = message.as_ref();
        Self::new(500, "InternalError", format!("Internal error occurred: {text}")).with_causes(vec![Cause {
            reason: String::new(),
            message: text.into(),
            field: String::new(),
        }])
    }

    /// A 500 that carries the error's text and nothing else (`apierrors` did not know the error).
    pub fn unknown(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    pub fn forbidden(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let what = qualified_resource(plural, group);
        let message = match (plural.is_empty(), name.is_empty()) {
            (true, _) => format!("forbidden: {why}"),
            (false, true) => format!("{what} is forbidden: {why}"),
            (false, false) => format!("{what} {} is forbidden: {why}", go_quote(name)),
        };
        Self::new(403, "Forbidden", message).about(group, plural, name)
    }

    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    pub fn method_not_allowed(group: &str, plural: &str, action: &str) -> Self {
        let message =
            format!("{action} is not supported on resources of kind {}", go_quote(&qualified_resource(plural, group)));
        Self::new(405, "MethodNotAllowed", message).about(group, plural, "")
    }

    /// The answer of the router for a verb that the path does not know.
    pub fn verb_not_allowed() -> Self {
        let mut status =
            Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource");
        status.details = Some(Box::default());
        status
    }

    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        Self::new(
            415,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {}",
                accepted.join(", ")
            ),
        )
    }

    pub fn not_acceptable(accepted: &[&str]) -> Self {
        Self::new(406, "NotAcceptable", format!("only the following media types are accepted: {}", accepted.join(", ")))
    }

    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 422: `Kind.group "name" is invalid: [...]`.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let what = qualified_resource(kind, group);
        let list = if errors.is_empty() { String::new() } else { format!(": {}", aggregate_errors(errors)) };
        let causes = errors
            .iter()
            .map(|e| Cause { reason: e.reason.as_str().into(), message: e.message.clone(), field: e.field.clone() })
            .collect();
        Self::new(422, "Invalid", format!("{what} {} is invalid{list}", go_quote(name)))
            .about(group, kind, name)
            .with_causes(causes)
    }

    pub fn too_large_resource_version(requested: u64, current: u64) -> Self {
        Self::new(504, "Timeout", format!("Too large resource version: {requested}, current: {current}"))
            .with_causes(vec![Cause {
                reason: "ResourceVersionTooLarge".into(),
                message: "Too large resource version".into(),
                field: String::new(),
            }])
            .with_retry_after(1)
    }

    pub fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    pub fn into_value(self) -> Value {
        let mut body = Map::new();
        body.insert("kind".into(), "Status".into());
        body.insert("apiVersion".into(), "v1".into());
        body.insert("metadata".into(), self.metadata.map_or_else(|| json!({}), |metadata| Value::Object(*metadata)));
        body.insert("status".into(), "Failure".into());
        if !self.message.is_empty() {
            body.insert("message".into(), self.message.into());
        }
        if !self.reason.is_empty() {
            body.insert("reason".into(), self.reason.into());
        }
        if let Some(details) = self.details {
            body.insert("details".into(), details.into_value());
        }
        body.insert("code".into(), self.code.into());
        Value::Object(body)
    }
}

impl Details {
    fn into_value(self) -> Value {
        let mut out = Map::new();
        for (key, text) in [("name", self.name), ("group", self.group), ("kind", self.kind), ("uid", self.uid)] {
            if !text.is_empty() {
                out.insert(key.into(), text.into());
            }
        }
        if !self.causes.is_empty() {
            let causes = self.causes.into_iter().map(Cause::into_value).collect();
            out.insert("causes".into(), Value::Array(causes));
        }
        if self.retry_after_seconds > 0 {
            out.insert("retryAfterSeconds".into(), self.retry_after_seconds.into());
        }
        Value::Object(out)
    }
}

impl Cause {
    fn into_value(self) -> Value {
        let mut out = Map::new();
        for (key, text) in [("reason", self.reason), ("message", self.message), ("field", self.field)] {
            if !text.is_empty() {
                out.insert(key.into(), text.into());
            }
        }
        Value::Object(out)
    }
}

/// `plural.group`, or just `plural` in the core group.
pub fn qualified_resource(plural: &str, group: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}
