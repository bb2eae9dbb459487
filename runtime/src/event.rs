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

/// Bytes of an object's name that the name of its event begins with.
const LONGEST_NAME_PART: usize = 230;
/// Bytes of a message: events of `events.k8s.io` hold at most 1024.
const LONGEST_MESSAGE: usize = 1000;

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
    let name = format!("{}.{hash:016x}", cut_text(&regarding.name, LONGEST_NAME_PART));
    let message = cut_text(message, LONGEST_MESSAGE);
    let time = format_time(now);
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

/// As many of the first characters as fit into so many bytes: users write in any language, in names too.
fn cut_text(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// FNV-1a over all parts.
fn hash_parts<'a>(parts: impl IntoIterator<Item = &'a str>) -> u64 {
    parts
        .into_iter()
        .flat_map(|part| part.bytes().chain([0]))
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_about_a_name_of_any_letters_is_cut_between_two_of_them() {
        let name = format!("a{}", "\u{e9}".repeat(115));
        assert!(!name.is_char_boundary(LONGEST_NAME_PART));
        let regarding = Regarding {
            api_version: "v1".into(),
            kind: "Job".into(),
            namespace: "ns".into(),
            name: name.clone(),
            uid: "u".into(),
        };
        let message = "\u{20ac}".repeat(LONGEST_MESSAGE);
        let now = Timestamp::UNIX_EPOCH;
        let write = build_event(&regarding, None, EventType::Warning, "Reason", &message, "test", now);
        let Body::Create(body) = &write.body else { panic!("{write:?}") };
        let begins = format!("a{}.", "\u{e9}".repeat(114));
        assert!(write.name.starts_with(&begins) && write.name.len() < 253, "{}", write.name);
        assert_eq!(body["message"].as_str().unwrap().len(), 999);
        assert_eq!(body["involvedObject"]["name"], name);
    }
}
