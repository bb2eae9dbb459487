//! Kubernetes Events about an object, as writes.
//!
//! An event's name is a function of what it says and when its first occurrence was, so that a repeated write of the
//! same event is refused by the server (409) rather than stored twice.

use jiff::Timestamp;
use serde_json::json;

use crate::{
    clock::format_time,
    watch::api_resource,
    write::{Body, Write},
};

/// The object an event is about.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Regarding {
    /// `group/version`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

/// The type of an Event, under the name that Kubernetes has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub enum EventType {
    /// For information.
    Normal,
    /// The user should look.
    Warning,
}

/// The write that records an event by `component` on `regarding`; `related` is what else it is about.
#[must_use]
pub fn build_event(
    regarding: &Regarding,
    related: Option<&Regarding>,
    event_type: EventType,
    reason: &str,
    message: &str,
    component: &str,
    now: Timestamp,
) -> Write {
    let namespace = if regarding.namespace.is_empty() { "default" } else { &regarding.namespace };
    let hash = hash_parts([regarding.uid.as_str(), reason, message, component]) ^ now.as_second().unsigned_abs();
    let mut name = regarding.name.clone();
    name.truncate(230);
    let time = format_time(now);
    // Events hold at most 1024 bytes of message.
    let message: String = message.chars().take(1000).collect();
    let name = format!("{name}.{hash:016x}");
    let mut body = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": namespace},
        "involvedObject": regarding,
        "reason": reason, "message": message, "type": event_type,
        "source": {"component": component},
        "firstTimestamp": time, "lastTimestamp": time, "count": 1,
        "reportingComponent": component, "reportingInstance": component,
    });
    if let Some(related) = related {
        body["related"] = json!(related);
    }
    Write {
        resource: api_resource("", "v1", "Event", "events"),
        namespace: namespace.to_owned(),
        name,
        subresource: None,
        body: Body::Create(body),
    }
}

/// FNV-1a over all parts.
fn hash_parts<'a>(parts: impl IntoIterator<Item = &'a str>) -> u64 {
    parts
        .into_iter()
        .flat_map(|part| part.bytes().chain([0]))
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
