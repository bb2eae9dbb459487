//! The three patch formats of the API server as functions from the current object and a patch to the next object.

mod json;
mod merge;
mod strategic;
mod strategic_order;
#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::meta::json_type;
use crate::schema::TypeSchema;

pub use json::{json_patch, unknown_members};

/// What the Status of a 422 for `PatchError::Inapplicable` says: the reason stays on the server.
pub const REFUSAL: &str = "the server rejected our request due to an error in our request";

/// Why a patch was refused, by the HTTP status the server answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// 400 BadRequest: the document cannot be read as a patch.
    #[error("{0}")]
    Malformed(String),
    /// 413 RequestEntityTooLarge: too many operations.
    #[error("{0}")]
    TooLarge(String),
    /// 422 Invalid with `details: {}`, no causes and the message `REFUSAL`: the patch cannot be applied to this object.
    /// The text here is the library's, which webhook errors show.
    #[error("{0}")]
    Inapplicable(String),
    /// 422 Invalid about the group kind "" with one cause on the field `patch`: the merged object has no longer the
    /// shape of its type. `patch` is the bad value as text.
    #[error("{detail}")]
    Mismatch { patch: String, detail: String },
    /// 500 without a reason: strategic merge over data that does not fit.
    #[error("{0}")]
    Internal(String),
}

/// RFC 7386, with nulls in added objects dropped and nulls in lists kept.
pub fn merge_patch(target: &Value, patch: &Value) -> Result<Value, PatchError> {
    match patch {
        Value::Object(_) => Ok(merge::apply_merge_patch(target, patch)),
        Value::Null => Err(PatchError::Malformed("Invalid JSON Patch".to_owned())),
        other => Err(PatchError::Malformed(format!("error decoding patch: {}", not_a_map(other)))),
    }
}

/// Strategic merge patch: lists merge by the schema's patch merge keys. The result may have unknown fields and lacks
/// defaults, like a body that was just read.
pub fn strategic_merge(target: &Value, patch: &Value, schema: &TypeSchema) -> Result<Value, PatchError> {
    match patch {
        Value::Object(map) => strategic::apply_strategic_patch(target, map, schema.node()),
        // An absent document changes nothing.
        Value::Null => Ok(target.clone()),
        other => Err(PatchError::Malformed(not_a_map(other))),
    }
}

fn not_a_map(value: &Value) -> String {
    format!("json: cannot unmarshal {} into Go value of type map[string]interface {{}}", json_type(value))
}
