//! Create, update, patch and apply: from a request to the one commit (`endpoints/handlers/{create,update,patch}.go`,
//! `registry/generic/registry/store.go`).
//!
//! Every attempt starts from the object as it is now and ends in a commit that insists on that version; when somebody
//! was faster, the attempt is made again. Webhooks are called in between, without a lock.

mod decode;
mod insert;
mod patching;
mod replace;

use std::sync::Arc;

use serde_json::Value;

use crate::admission::{self, Attributes, Operation};
use crate::body::{Document, Format, find_repeats, media_type, parse_yaml, split_repeats};
use crate::call::{Call, Payload, Reply};
use crate::clock::write_seconds;
use crate::error::{Cause, Status, go_quote};
use crate::fields::{ApplyError, Conflict, Writer};
use crate::meta;
use crate::options::{FieldValidation, WriteOptions};
use crate::patch::PatchError;
use crate::registry_form::{to_storage, view_value};
use crate::resource::{Generation, Resource};
use crate::schema::FieldError;
use crate::store::{Change, Expect, Object, Raced};
use crate::strategy;

use decode::*;
use insert::{insert_object, invalid_object, kind_errors};
use patching::*;
use replace::*;

pub use decode::{check_name, mismatched_namespace, summarize_body};
pub use patching::{apply_status, patch_invalid, patch_status};
pub use replace::{admitted_options, modify_object};

/// How often a write that raced is tried again.
const ATTEMPTS: usize = 64;

/// Which part of an object a path writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Whole,
    Status,
    /// Another subresource whose body is the whole object (`finalize`, `resize`, `approval`, `ephemeralcontainers`).
    Named(&'static str),
    /// The object through its `scale`: the body was translated already.
    Scale,
}

impl Part {
    pub fn name(self) -> &'static str {
        match self {
            Self::Whole => "",
            Self::Status => "status",
            Self::Named(name) => name,
            Self::Scale => "scale",
        }
    }
}

pub async fn create_object(call: &mut Call) -> Result<Reply, Status> {
    let options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
    if call.resource.namespaced && call.info.namespace.is_empty() {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    let object = read_object(call, &options)?;
    insert_object(call, &options, object, false).await
}

/// The body as an object of the call's kind in the call's namespace.
pub fn read_object(call: &mut Call, options: &WriteOptions) -> Result<Value, Status> {
    let decoded = decode_body(call)?;
    enforce_strict(call, options, &decoded)?;
    let mut object = decoded.value;
    settle_namespace(call, &mut object)?;
    Ok(object)
}

/// What an update makes of the object that is there now.
enum Edit {
    Put(Decoded),
    Patch(PatchKind, Vec<u8>),
    Apply(Value),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatchKind {
    Json,
    Merge,
    Strategic,
}

pub async fn update_object(call: &mut Call) -> Result<Reply, Status> {
    update_part(call, Part::Whole).await
}

pub async fn update_part(call: &mut Call, part: Part) -> Result<Reply, Status> {
    let options = WriteOptions::parse(&call.query, "UpdateOptions", false)?;
    if call.info.name.is_empty() {
        return Err(Status::bad_request("name must be provided"));
    }
    let mut decoded = decode_body(call)?;
    enforce_strict(call, &options, &decoded)?;
    settle_namespace(call, &mut decoded.value)?;
    check_name(call, &decoded.value)?;
    edit_object(call, &options, part, Edit::Put(decoded)).await
}

pub async fn patch_object(call: &mut Call) -> Result<Reply, Status> {
    patch_part(call, Part::Whole).await
}

pub async fn patch_part(call: &mut Call, part: Part) -> Result<Reply, Status> {
    const CUSTOM: [&str; 3] =
        ["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];
    let custom = call.resource.is_custom();
    let kind = match media_type(&call.content_type) {
        "application/json-patch+json" => Some(PatchKind::Json),
        "application/merge-patch+json" => Some(PatchKind::Merge),
        "application/strategic-merge-patch+json" if !custom => Some(PatchKind::Strategic),
        "application/apply-patch+yaml" => None,
        _ if custom => return Err(Status::unsupported_media_type(&CUSTOM)),
        _ => {
            // The router of built-in kinds refuses before the handler does.
            let mut status = Status::new(415, "UnsupportedMediaType", "415: Unsupported Media Type");
            status.details = Some(Box::default());
            return Err(status);
        }
    };
    let options = WriteOptions::parse(&call.query, "PatchOptions", kind.is_none())?;
    if call.info.name.is_empty() {
        return Err(Status::bad_request("name must be provided"));
    }
    let change = match kind {
        Some(kind) => Edit::Patch(kind, call.body.to_vec()),
        None => {
            let applied = applied_object(call)?;
            refuse_repeats(call, &options)?;
            Edit::Apply(applied)
        }
    };
    edit_object(call, &options, part, change).await
}

/// The object after the change, decoded and defaulted.
struct Candidate {
    object: Value,
    /// An apply has settled field ownership.
    applied: bool,
}

async fn edit_object(call: &mut Call, options: &WriteOptions, part: Part, change: Edit) -> Result<Reply, Status> {
    let name = call.info.name.clone();
    for _ in 0..ATTEMPTS {
        let live = call.get(&name);
        let Some(live) = live else {
            return create_instead(call, options, part, &change).await;
        };
        let live_value = view_value(&call.resource, &live);
        if let Edit::Put(decoded) = &change {
            check_uid(call, &decoded.value, &live_value)?;
        }
        let candidate = build_candidate(call, options, part, &change, &live_value)?;
        match replace_object(call, options, part, &live, &live_value, candidate).await? {
            Outcome::Done(reply) => return Ok(reply),
            Outcome::Raced => {}
        }
    }
    Err(Status::modified(&call.resource.group, &call.resource.plural, &name))
}

/// An update of an object that is not there.
async fn create_instead(call: &mut Call, options: &WriteOptions, part: Part, change: &Edit) -> Result<Reply, Status> {
    let name = call.info.name.clone();
    match change {
        Edit::Put(decoded) if part == Part::Whole && call.resource.rules.create_on_update => {
            let mut object = decoded.value.clone();
            check_uid(call, &object, &Value::Null)?;
            meta::metadata_mut(&mut object).remove("resourceVersion");
            insert_object(call, options, object, false).await
        }
        Edit::Apply(applied) if part == Part::Whole => {
            refuse_missing_uid(call, applied)?;
            let mut object = apply_configuration(call, options, part, None, applied)?;
            meta::metadata_mut(&mut object).remove("resourceVersion");
            tidy_or_500(call, &mut object)?;
            settle_namespace(call, &mut object)?;
            insert_object(call, options, object, true).await
        }
        _ => Err(call.not_found(&name)),
    }
}

/// The uid in a PUT is a precondition of the storage.
fn check_uid(call: &Call, sent: &Value, live: &Value) -> Result<(), Status> {
    let (sent, live) = (meta::metadata_text(sent, "uid"), meta::metadata_text(live, "uid"));
    if sent.is_empty() || sent == live {
        return Ok(());
    }
    Err(uid_precondition(call, &call.info.name, sent, live))
}

/// An apply that names the uid of an object means that one, and not a new one.
fn refuse_missing_uid(call: &Call, applied: &Value) -> Result<(), Status> {
    let uid = meta::metadata_text(applied, "uid");
    if uid.is_empty() {
        return Ok(());
    }
    let why = format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
    Err(Status::conflict(&call.resource.group, &call.resource.plural, &call.info.name, &why))
}

/// The text of a failed uid precondition, with the key in etcd that the real server prints.
pub fn uid_precondition(call: &Call, name: &str, sent: &str, live: &str) -> Status {
    let resource = &call.resource;
    let mut key = "/registry".to_owned();
    let group = if resource.is_custom() { resource.group.as_str() } else { "" };
    let plural = strategy::storage_name(resource);
    for part in [group, plural, call.namespace(), name] {
        if !part.is_empty() {
            key = format!("{key}/{part}");
        }
    }
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in \
         precondition: {sent}, UID in object meta: {live}"
    );
    Status::conflict(&resource.group, &resource.plural, name, &why)
}

fn build_candidate(
    call: &mut Call,
    options: &WriteOptions,
    part: Part,
    change: &Edit,
    live: &Value,
) -> Result<Candidate, Status> {
    match change {
        Edit::Put(decoded) => Ok(Candidate { object: decoded.value.clone(), applied: false }),
        Edit::Patch(kind, bytes) => {
            let Patched { mut object, shown, strict } = apply_patch(&call.resource, *kind, bytes, live)?;
            enforce_patch_strict(call, options, *kind, bytes, &shown, &strict)?;
            settle_namespace(call, &mut object)?;
            check_name(call, &object)?;
            Ok(Candidate { object, applied: false })
        }
        Edit::Apply(applied) => {
            let mut object = apply_configuration(call, options, part, Some(live), applied)?;
            tidy_or_500(call, &mut object)?;
            Ok(Candidate { object, applied: true })
        }
    }
}

/// The result of an apply: nulls that were applied stay, and fail validation where they are not allowed.
fn tidy_or_500(call: &Call, object: &mut Value) -> Result<(), Status> {
    shape_decoded(&call.resource, object)
        .map_err(|why| unhandled_body(&call.resource, &call.resource.kind, &call.resource.version, &why))?;
    call.resource.schema.default_applied(object);
    Ok(())
}
