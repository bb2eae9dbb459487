//! placeholder
use serde_json::Value;
pub fn default(_object: &mut Value, _group: &str, _kind: &str) {}
