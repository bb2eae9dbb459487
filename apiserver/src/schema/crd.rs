//! placeholder
use super::error::FieldError;
use serde_json::{Map, Value};
pub fn default_crd(_crd: &mut Value) {}
pub fn default_spec(_crd: &mut Map<String, Value>) {}
pub fn validate_crd(_crd: &Value, _old: Option<&Value>) -> Vec<FieldError> {
    Vec::new()
}
