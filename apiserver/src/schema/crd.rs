//! placeholder
use serde_json::{Value, Map};
use super::error::FieldError;
pub fn default_crd(_crd: &mut Value) {}
pub fn default_spec(_crd: &mut Map<String, Value>) {}
pub fn validate_crd(_crd: &Value, _old: Option<&Value>) -> Vec<FieldError> { Vec::new() }
