//! Get and list (`etcd3/store.go`, the watch cache's list rules): which state of the world a resourceVersion asks for,
//! and pages.

use std::sync::Arc;

use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use base64::{Engine, alphabet};
use serde_json::{Value, json};

use crate::call::{Call, Payload, Reply};
use crate::error::{Status, go_quote};
use crate::options::{ListOptions, VersionMatch};
use crate::registry_form::view_object;
use crate::resource::Resource;
use crate::store::{Object, OutOfRange};
use crate::syntax::find_syntax_error;

pub fn get_object(call: &Call) -> Result<Reply, Status> {
    let asked = call.query.get("resourceVersion").unwrap_or_default();
    let wanted = parse_version(asked)?.unwrap_or_default();
    let current = call.server.store().revision();
    if wanted > current {
        return Err(too_large(wanted, current));
    }
    let object = call.get(&call.info.name).ok_or_else(|| call.not_found(&call.info.name))?;
    check_readable(&call.resource, &object)?;
    Ok(call.stored(200, &object))
}

/// An object stored in a version that its definition no longer has cannot be shown.
fn check_readable(resource: &Resource, object: &Object) -> Result<(), Status> {
    let Some(custom) = &resource.custom else { return Ok(()) };
    let stored = object.value.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let version = stored.rsplit('/').next().unwrap_or_default();
    if custom.schemas.contains_key(version) {
        return Ok(());
    }
    Err(Status::unknown(format!("request to convert CR from an invalid group/version: {stored}")))
}

/// A resourceVersion of a get or a watch: the error is a bare 500.
pub fn parse_version(text: &str) -> Result<Option<u64>, Status> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| Status::unknown(format!("resourceVersion: {}", not_a_version(text))))
}

fn not_a_version(text: &str) -> String {
    format!("Invalid value: {0}: strconv.ParseUint: parsing {0}: invalid syntax", go_quote(text))
}

/// What a list was computed from.
pub struct Listed {
    pub revision: u64,
    pub items: Vec<Payload>,
    pub next: Option<Next>,
}

/// Where the next page starts.
pub struct Next {
    pub token: String,
    /// How many are left, when no selector hides it.
    pub remaining: Option<usize>,
}

pub fn list_objects(call: &Call) -> Result<Reply, Status> {
    let options = ListOptions::parse(&call.query, &call.resource, false)?;
    let listed = collect_objects(call, &options)?;
    let mut metadata = json!({"resourceVersion": listed.revision.to_string()});
    if call.resource.is_custom() {
        metadata["continue"] = "".into();
    }
    if let Some(next) = listed.next {
        metadata["continue"] = next.token.into();
        if let Some(remaining) = next.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
    }
    Ok(Reply::List { metadata, items: listed.items })
}

pub fn collect_objects(call: &Call, options: &ListOptions) -> Result<Listed, Status> {
    let namespace = Some(call.info.namespace.as_str()).filter(|n| call.resource.namespaced && !n.is_empty());
    let kind = &call.resource.storage;
    let asked = match options.resource_version.as_str() {
        "" => None,
        text => Some(text.parse::<u64>().map_err(|_| {
            Status::bad_request(format!("invalid resource version: resourceVersion: {}", not_a_version(text)))
        })?),
    };
    let mut start_after = None;
    let store = call.server.store();
    let current = store.revision();
    let (revision, objects) = if !options.continue_token.is_empty() {
        if asked.is_some_and(|v| v != 0) {
            return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
        }
        let token = Token::decode(&options.continue_token)?;
        start_after = Some(token.start);
        let revision = u64::try_from(token.revision).unwrap_or(current);
        let objects =
            store.list_at(kind, namespace, revision).map_err(|e| continue_error(e, &options.continue_token))?;
        (revision, objects)
    } else {
        match (asked, options.version_match) {
            (Some(version), _) if version > current => {
                return Err(too_large(version, current));
            }
            (Some(version), Some(VersionMatch::Exact)) => {
                let objects = store.list_at(kind, namespace, version).map_err(|_| too_old())?;
                (version, objects)
            }
            _ => (current, store.list(kind, namespace)),
        }
    };
    drop(store);
    for object in &objects {
        check_readable(&call.resource, object)?;
    }
    let limit = if asked == Some(0) { 0 } else { options.limit };
    Ok(read_page(call, options, revision, objects, start_after.as_deref(), limit))
}

fn read_page(
    call: &Call,
    options: &ListOptions,
    revision: u64,
    objects: Vec<Arc<Object>>,
    start_after: Option<&str>,
    limit: usize,
) -> Listed {
    let prefix = if call.resource.namespaced { call.info.namespace.as_str() } else { "" };
    let position = |object: &Object| token_key(&object.value, prefix);
    let mut rest =
        objects.into_iter().filter(|o| start_after.is_none_or(|start| position(o).as_str() >= start)).peekable();
    let mut items = Vec::new();
    let mut last = None;
    while limit == 0 || items.len() < limit {
        let Some(object) = rest.next() else { break };
        if !options.labels.matches(&object.value) {
            continue;
        }
        let payload = view_object(&call.resource, &object);
        if !options.fields.matches(payload.value()) {
            continue;
        }
        last = Some(position(&object));
        items.push(payload);
    }
    let selecting = !options.labels.is_empty() || !options.fields.is_empty();
    // A list by name cannot have a second page.
    let more = rest.peek().is_some() && options.fields.name().is_none();
    let next = match last {
        Some(last) if limit > 0 && more => {
            let remaining = (!selecting).then(|| rest.count());
            Some(Next { token: Token::encode(revision, &format!("{last}\0")), remaining })
        }
        _ => None,
    };
    Listed { revision, items, next }
}

/// The position of an object below the collection's prefix, as in etcd's keys.
fn token_key(object: &Value, prefix_namespace: &str) -> String {
    let namespace = crate::meta::metadata_text(object, "namespace");
    let name = crate::meta::object_name(object);
    if namespace.is_empty() || !prefix_namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

pub fn too_large(asked: u64, current: u64) -> Status {
    let mut status = Status::too_large_resource_version(asked, current);
    status.message = format!("Timeout: {}", status.message);
    status
}

fn too_old() -> Status {
    Status::expired("The resourceVersion for the provided list is too old.")
}

fn continue_error(error: OutOfRange, token: &str) -> Status {
    let OutOfRange::Compacted { .. } = error else { return too_old() };
    let _ = token;
    Status::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue \
         parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided \
         token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was \
         returned and now may show up in the list.",
    )
}

/// A continue token: `meta.k8s.io/v1`, the list's revision and the key to start at.
struct Token {
    revision: i64,
    start: String,
}

/// As Go reads it: bits after the last byte do not matter.
const TOKENS: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

impl Token {
    fn encode(revision: u64, start: &str) -> String {
        TOKENS.encode(json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start}).to_string())
    }

    fn decode(text: &str) -> Result<Self, Status> {
        let bad =
            |why: String| Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
        let bytes = TOKENS.decode(text).map_err(|_| {
            let alphabet = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
            // A last group of one character is told by where it starts.
            let end = if text.len() % 4 == 1 { text.len() - 1 } else { text.len() };
            let at = text.bytes().position(|b| !alphabet(b)).unwrap_or(end);
            bad(format!("illegal base64 data at input byte {at}"))
        })?;
        let value: Value = serde_json::from_slice(&bytes)
            .map_err(|error| bad(find_syntax_error(&bytes).unwrap_or_else(|| error.to_string())))?;
        let version = value.get("v").and_then(Value::as_str).unwrap_or_default();
        if version != "meta.k8s.io/v1" {
            return Err(bad(format!("server does not recognize this encoded version {version}")));
        }
        let revision = value.get("rv").and_then(Value::as_i64).unwrap_or_default();
        if revision == 0 {
            return Err(bad("incorrect encoded start resourceVersion (version meta.k8s.io/v1)".into()));
        }
        let start = value.get("start").and_then(Value::as_str).unwrap_or_default().to_owned();
        if start.is_empty() {
            return Err(bad("encoded start key is empty (version meta.k8s.io/v1)".into()));
        }
        Ok(Self { revision, start })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_go_reads_it() {
        let token = Token::decode(&Token::encode(7, "/a")).unwrap();
        assert_eq!((token.revision, token.start.as_str()), (7, "/a"));
        let found = |text: &str| Token::decode(text).err().unwrap().message;
        assert!(found("xx").ends_with("invalid character '\u{c7}' looking for beginning of value"), "{}", found("xx"));
        assert!(found("a!").ends_with("illegal base64 data at input byte 1"));
        assert!(found("x").ends_with("illegal base64 data at input byte 0"));
    }
}
