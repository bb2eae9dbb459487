//! Spans for a collector of traces: OTLP over HTTP with JSON, `POST /v1/traces`.
//!
//! Rules:
//! 1. Only spans about a binding are exported: those with the field [`WORKLOAD`], and what is within them. The trace's
//!    id is that UID, so webhook, controller and scheduler write one trace for one workload and tell each other
//!    nothing.
//! 2. Nothing waits for a collector: what finds the queue full is dropped and counted
//!    (`caldera_otlp_dropped_spans_total`), and so is a batch that it does not take twice.
//! 3. The form is that of opentelemetry-proto's `trace/v1/trace.proto` in its JSON mapping: ids are hexadecimal, 64-bit
//!    numbers are texts, enums are numbers.

mod dropped;
mod endpoint;
mod export;
mod layer;

use serde_json::{Value, json};

pub use self::{
    dropped::register_dropped,
    endpoint::{CollectorEndpoint, choose_endpoint},
    export::{OtlpError, start_span_exporter},
    layer::OtlpLayer,
};

/// The field of a span with the UID of the workload that it is about.
pub const WORKLOAD: &str = "workload_uid";
/// The field of a span with why what it is about failed.
const ERROR: &str = "error";
/// Characters of an attribute's value at most.
const MOST_OF_VALUE: usize = 256;
/// `SPAN_KIND_INTERNAL`.
const INTERNAL: u8 = 1;
/// `STATUS_CODE_ERROR`.
const FAILED: u8 = 2;

/// Which trace: the 16 bytes of a UID.
type TraceId = u128;

/// A value of an attribute.
#[derive(Debug, Clone, PartialEq)]
enum AttributeValue {
    Text(String),
    Bool(bool),
    Integer(i64),
    Float(f64),
}

impl AttributeValue {
    fn from_text(text: &str) -> Self {
        Self::Text(text.chars().take(MOST_OF_VALUE).collect())
    }

    fn encode(&self) -> Value {
        match self {
            Self::Text(text) => json!({"stringValue": text}),
            Self::Bool(value) => json!({"boolValue": value}),
            Self::Integer(value) => json!({"intValue": value.to_string()}),
            Self::Float(value) => json!({"doubleValue": value}),
        }
    }
}

/// A span that has ended.
#[derive(Debug, Clone, PartialEq)]
struct FinishedSpan {
    trace: TraceId,
    id: u64,
    parent: Option<u64>,
    name: &'static str,
    /// The module that it is of.
    scope: &'static str,
    /// Nanoseconds since 1970.
    began: u64,
    ended: u64,
    attributes: Vec<(&'static str, AttributeValue)>,
    error: Option<String>,
}

impl FinishedSpan {
    fn encode(&self) -> Value {
        let mut span = json!({
            "traceId": format!("{:032x}", self.trace),
            "spanId": format!("{:016x}", self.id),
            "name": self.name,
            "kind": INTERNAL,
            "startTimeUnixNano": self.began.to_string(),
            "endTimeUnixNano": self.ended.to_string(),
            "attributes": self.attributes.iter().map(|(key, value)| encode_attribute(key, value)).collect::<Vec<_>>(),
        });
        if let Some(parent) = self.parent {
            span["parentSpanId"] = format!("{parent:016x}").into();
        }
        if let Some(error) = &self.error {
            span["status"] = json!({"code": FAILED, "message": error});
        }
        span
    }
}

fn encode_attribute(key: &str, value: &AttributeValue) -> Value {
    json!({"key": key, "value": value.encode()})
}

/// An ExportTraceServiceRequest.
fn encode_request(service: &str, spans: &[FinishedSpan]) -> Value {
    let text = |key: &str, value: &str| encode_attribute(key, &AttributeValue::from_text(value));
    let mut scopes: Vec<&str> = spans.iter().map(|span| span.scope).collect();
    scopes.sort_unstable();
    scopes.dedup();
    let version = env!("CARGO_PKG_VERSION");
    let of_scope = |scope: &str| {
        let own = spans.iter().filter(|span| span.scope == scope).map(FinishedSpan::encode);
        json!({"scope": {"name": scope, "version": version}, "spans": own.collect::<Vec<_>>()})
    };
    json!({"resourceSpans": [{
        "resource": {"attributes": [text("service.name", service), text("service.version", version)]},
        "scopeSpans": scopes.into_iter().map(of_scope).collect::<Vec<_>>(),
    }]})
}

/// The trace of a workload; `None` of what is no UID.
fn parse_trace_id(uid: &str) -> Option<TraceId> {
    let digits: String = uid.chars().filter(|digit| *digit != '-').take(33).collect();
    (digits.len() == 32).then(|| TraceId::from_str_radix(&digits, 16).ok()).flatten().filter(|id| *id != 0)
}

#[cfg(test)]
mod tests;
