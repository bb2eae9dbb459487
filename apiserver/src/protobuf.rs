//! Kubernetes' protobuf bodies.

use serde_json::Value;

pub fn decode(_bytes: &[u8]) -> Result<Value, String> {
    Err("not known in protobuf".into())
}
