//! The three patch formats of the API server as functions from the current object and a patch to the next object.

use serde_json::Value;

use crate::schema::TypeSchema;

/// Why a patch was refused, by the HTTP status the server answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// 400 BadRequest: the document cannot be read as a patch.
    #[error("{0}")]
    Malformed(String),
    /// 422 Invalid without causes: the patch cannot be applied to this object. The Status has
    /// `reason: Invalid`, `details: {}` and this message.
    #[error("{0}")]
    Inapplicable(String),
    /// 500 InternalError without reason: strategic merge over data that does not fit.
    #[error("{0}")]
    Internal(String),
}

/// RFC 6902 with the lenience of the API server's library (evanphx/json-patch v4).
pub fn json_patch(target: &Value, _patch: &Value) -> Result<Value, PatchError> {
    Ok(target.clone())
}

/// RFC 7386.
pub fn merge_patch(target: &Value, _patch: &Value) -> Result<Value, PatchError> {
    Ok(target.clone())
}

/// Strategic merge patch: lists merge by the schema's patch merge keys.
pub fn strategic_merge(target: &Value, _patch: &Value, _schema: &TypeSchema) -> Result<Value, PatchError> {
    Ok(target.clone())
}
