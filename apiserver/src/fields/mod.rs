//! Field ownership: `metadata.managedFields`, server-side apply and the tracking of plain writes
//! (structured-merge-diff v6 and apimachinery `managedfields`).

use serde_json::Value;

use crate::schema::{FieldError, TypeSchema};

/// Who writes, through which subresource (empty for the main resource), in which API version, and when
/// (RFC 3339 in UTC, whole seconds).
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    pub manager: &'a str,
    pub subresource: &'a str,
    pub api_version: &'a str,
    pub now: &'a str,
}

/// One field another manager owns with a different value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// `conflict with "x" using v1` as it stands in the cause.
    pub message: String,
    /// `.spec.replicas`
    pub field: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// 409 Conflict, one FieldManagerConflict cause for each entry.
    #[error("apply failed with {} conflicts", .0.len())]
    Conflicts(Vec<Conflict>),
    /// 422 Invalid.
    #[error("the applied object is invalid")]
    Invalid(Vec<FieldError>),
    /// 400 BadRequest.
    #[error("{0}")]
    BadRequest(String),
    /// 500 without a reason.
    #[error("{0}")]
    Internal(String),
}

/// Server-side apply: the object after `applied` was merged into `live`, with its managedFields brought up to date.
/// Defaulting and pruning of the result are the caller's; `live` is `None` for an apply that creates.
pub fn apply(
    _live: Option<&Value>,
    applied: &Value,
    _writer: &Writer<'_>,
    _force: bool,
    _schema: &TypeSchema,
) -> Result<Value, ApplyError> {
    Ok(applied.clone())
}

/// Create, update or patch by a plain writer: `new` gets the managedFields that follow from the difference to `live`.
pub fn track_update(_live: Option<&Value>, _new: &mut Value, _writer: &Writer<'_>, _schema: &TypeSchema) {}
