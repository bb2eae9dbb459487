//! Create, update, patch and apply: from a request to the one commit (`endpoints/handlers/{create,update,patch}.go`,
//! `registry/generic/registry/store.go`).
//!
//! Every attempt starts from the object as it is now and ends in a commit that insists on that version; when somebody was
//! faster, the attempt is made again. Webhooks are called in between, without a lock.

use std::sync::Arc;

use serde_json::Value;

use crate::admission::{self, Attributes, Operation};
use crate::body::{Document, Format, essence, yaml};
use crate::call::{Call, Payload, Reply};
use crate::clock::seconds;
use crate::error::{Cause, Status, quote};
use crate::fields::{ApplyError, Conflict, Writer};
use crate::meta;
use crate::options::{FieldValidation, WriteOptions};
use crate::patch::PatchError;
use crate::registry_form::{to_storage, view_value};
use crate::resource::{Generation, Resource};
use crate::schema::FieldError;
use crate::store::{Change, Expect, Object, Raced};
use crate::strategy;

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

/// What a decoded body is, and what strict decoding says about it.
pub struct Decoded {
    pub value: Value,
    /// In the order in which the client is told.
    pub strict: Vec<String>,
}

/// `Kind in version "v" cannot be handled as a Kind: why`.
fn unhandled(resource: &Resource, kind: &str, version: &str, why: &str) -> Status {
    Status::bad_request(format!("{kind} in version {} cannot be handled as a {}: {why}", quote(version), resource.kind))
}

/// Reads the body as an object of the call's kind.
fn decode_body(call: &Call) -> Result<Decoded, Status> {
    let resource = &call.resource;
    let format = Format::of(&call.content_type)?;
    let unrecognized = |why: &str| {
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {why} ({})",
            resource.kind,
            summary(&call.body)
        ))
    };
    let document = Document::parse(&call.body, format)
        .map_err(|e| unrecognized(&format!("couldn't get version/kind; json parse error: {e}")))?;
    let mut value = document.value.clone();
    if !value.is_object() {
        let found = meta::json_type(&value);
        return Err(unrecognized(&format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type struct"
        )));
    }
    let text = |value: &Value, member: &str| value.get(member).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, api_version) = (text(&value, "kind"), text(&value, "apiVersion"));
    if resource.is_custom() {
        if kind.is_empty() {
            return Err(unrecognized(&format!(
                "Object 'Kind' is missing in '{}'",
                String::from_utf8_lossy(&call.body)
            )));
        }
        if api_version.is_empty() {
            return Err(unrecognized(&format!(
                "Object 'apiVersion' is missing in '{}'",
                String::from_utf8_lossy(&call.body)
            )));
        }
    }
    let expected = resource.api_version();
    let version = api_version.rsplit('/').next().unwrap_or_default().to_owned();
    if kind.is_empty() {
        value["kind"] = resource.kind.clone().into();
    } else if !resource.is_custom() && kind != resource.kind {
        let known =
            call.server.registry().iter().any(|r| !r.is_custom() && r.kind == kind && r.api_version() == api_version);
        let why = if known {
            format!("converting ({version}.{kind}) to (core.{}): unknown conversion", resource.kind)
        } else {
            not_registered(&kind, &api_version)
        };
        return Err(unhandled(resource, &kind, &version, &why));
    }
    if api_version.is_empty() {
        value["apiVersion"] = expected.into();
    } else if api_version != expected {
        let known = resource.is_custom()
            || call
                .server
                .registry()
                .iter()
                .any(|r| !r.is_custom() && r.api_version() == api_version && r.kind == kind);
        return Err(if known {
            Status::bad_request(format!(
                "the API version in the data ({api_version}) does not match the expected API version ({expected})"
            ))
        } else {
            unhandled(resource, &kind, &version, &not_registered(&kind, &api_version))
        });
    }
    let unknown = tidy_decoded(resource, &mut value)
        .map_err(|why| unhandled(resource, &text(&value, "kind"), &resource.version, &why))?;
    let strict = document.strict_errors(&unknown);
    Ok(Decoded { value, strict })
}

fn not_registered(kind: &str, api_version: &str) -> String {
    format!(
        "no kind {} is registered for version {} in scheme \"k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30\"",
        quote(kind),
        quote(api_version)
    )
}

/// What Go's decoder would make of the object: metadata in shape, unknown members gone, defaults filled in.
fn tidy_decoded(resource: &Resource, value: &mut Value) -> Result<Vec<String>, String> {
    let unknown = shape_decoded(resource, value)?;
    resource.schema.default(value);
    Ok(unknown)
}

/// All of that but the defaults.
fn shape_decoded(resource: &Resource, value: &mut Value) -> Result<Vec<String>, String> {
    if let Some(why) = resource.schema.decode_error(value) {
        return Err(why);
    }
    let mut unknown = meta::decode(value)?;
    unknown.extend(resource.schema.prune(value));
    unknown.sort();
    unknown.dedup();
    Ok(unknown)
}

/// The body in an error text: the beginning, in hex if it is no JSON.
fn summary(body: &[u8]) -> String {
    const MAX: usize = 30;
    match body.first() {
        None => "<empty>".into(),
        Some(b'{') if body.len() > MAX => {
            format!("{} ...", String::from_utf8_lossy(body.get(..MAX).unwrap_or_default()))
        }
        Some(b'{') => String::from_utf8_lossy(body).into_owned(),
        Some(_) => {
            let hex: String = body.iter().take(MAX).map(|b| format!("{b:02x}")).collect();
            if body.len() > MAX { format!("{hex} ...") } else { hex }
        }
    }
}

/// Refuses, warns about or ignores what strict decoding found.
fn enforce_strict(call: &mut Call, options: &WriteOptions, decoded: &Decoded) -> Result<(), Status> {
    if decoded.strict.is_empty() {
        return Ok(());
    }
    match options.validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => decoded.strict.iter().for_each(|text| call.warn(text.clone())),
        FieldValidation::Strict => {
            let why = format!("strict decoding error: {}", decoded.strict.join(", "));
            return Err(unhandled(&call.resource, &call.resource.kind, &call.resource.version, &why));
        }
    }
    Ok(())
}

/// The body's namespace must be the path's; the path's is filled in.
fn settle_namespace(call: &Call, value: &mut Value) -> Result<(), Status> {
    let given = meta::text(value, "namespace");
    if !call.resource.namespaced {
        if !given.is_empty() {
            meta::metadata_mut(value).remove("namespace");
        }
        return Ok(());
    }
    if !given.is_empty() && given != call.info.namespace {
        return Err(mismatched_namespace());
    }
    let namespace = call.info.namespace.clone();
    meta::metadata_mut(value).insert("namespace".into(), namespace.into());
    Ok(())
}

fn mismatched_namespace() -> Status {
    Status::bad_request("the namespace of the provided object does not match the namespace sent on the request")
}

/// The body's name must be the path's.
fn check_name(call: &Call, value: &Value) -> Result<(), Status> {
    let name = meta::name(value);
    let wanted = &call.info.name;
    if name.is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({wanted} based on URL) was undeterminable: name must be provided"
        )));
    }
    if name != wanted {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({wanted})"
        )));
    }
    Ok(())
}

pub async fn create(call: &mut Call) -> Result<Reply, Status> {
    let options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
    if call.resource.namespaced && call.info.namespace.is_empty() {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    let decoded = decode_body(call)?;
    enforce_strict(call, &options, &decoded)?;
    let mut object = decoded.value;
    settle_namespace(call, &mut object)?;
    insert(call, &options, object, false).await
}

/// The second half of a creation. `applied`: field ownership was settled by an apply.
async fn insert(call: &mut Call, options: &WriteOptions, mut object: Value, applied: bool) -> Result<Reply, Status> {
    let resource = call.resource.clone();
    crate::namespace::check_open(call)?;
    let warnings = meta::warnings(&mut object, None, resource.is_custom());
    warnings.into_iter().for_each(|w| call.warn(w));
    for member in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        meta::metadata_mut(&mut object).remove(member);
    }
    let trackable = applied || crate::fields::trackable(&object, &resource.schema);
    strategy::before_create(&resource, &mut object);
    let manager = call.manager(options.field_manager.as_deref());
    let now = seconds(call.server.now());
    let api_version = resource.api_version();
    let writer = Writer { manager: &manager, subresource: "", api_version: &api_version, now: &now };
    // Ownership is settled here: what webhooks change belongs to nobody.
    if !trackable {
        crate::fields::untrack(&mut object);
    } else if !applied {
        crate::fields::track_update(None, &mut object, &writer, &resource.schema);
    }
    let body_name = meta::name(&object).to_owned();
    let namespace = call.namespace().to_owned();
    let user = call.user.clone();
    let admitted = admitted_options(&options.value, "CreateOptions");
    let attributes = Attributes {
        operation: Operation::Create,
        resource: &resource,
        subresource: "",
        subresource_kind: None,
        namespace: &namespace,
        name: &body_name,
        old_object: None,
        options: &admitted,
        dry_run: options.dry_run,
        user: &user,
    };
    let webhooks = admission::any(&call.server, &attributes);
    if webhooks {
        let before = object.clone();
        let tidy = |value: &mut Value| {
            let _ = tidy_decoded(&resource, value);
        };
        admission::mutate(&call.server, &attributes, Some(&mut object), &tidy, &mut call.warnings).await?;
        if object != before {
            tidy(&mut object);
        }
    }
    let sent_version = meta::text(&object, "resourceVersion").to_owned();
    complete_new(call, &mut object, &now);
    strategy::prepare_create(&call.server, &resource, &mut object, &mut call.warnings)?;
    let generated = body_name.is_empty() && !meta::text(&object, "generateName").is_empty();
    let name = meta::name(&object).to_owned();
    let errors = kind_errors(&resource, Part::Whole, meta::validate(&object, &resource), &object, None);
    if !errors.is_empty() {
        return Err(invalid(&resource, &object, &name, &errors));
    }
    if webhooks {
        let attributes = Attributes { name: &name, ..attributes };
        admission::validate(&call.server, &attributes, Some(&object), &mut call.warnings).await?;
    }
    if sent_version.parse::<u64>().is_ok_and(|v| v != 0) {
        return Err(Status::unknown("resourceVersion should not be set on objects to be created"));
    }
    if options.dry_run {
        if let Some(existing) = call.get(&name) {
            return Err(already_exists(&resource, &name, &existing));
        }
        return Ok(Reply::Object { code: 201, payload: Payload::Value(object) });
    }
    commit_new(call, object, generated)
}

/// The members the server fills in on creation.
fn complete_new(call: &Call, object: &mut Value, now: &str) {
    let resource = &call.resource;
    let metadata = meta::metadata_mut(object);
    for member in ["resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        metadata.remove(member);
    }
    metadata.insert("uid".into(), uuid::Uuid::new_v4().to_string().into());
    metadata.insert("creationTimestamp".into(), now.into());
    if resource.rules.generation != Generation::Never {
        metadata.insert("generation".into(), 1.into());
    }
    let named = metadata.get("name").and_then(Value::as_str).is_some_and(|n| !n.is_empty());
    if !named && let Some(prefix) = metadata.get("generateName").and_then(Value::as_str) {
        let name = generate_name(prefix);
        metadata.insert("name".into(), name.into());
    }
}

/// `names.SimpleNameGenerator`: at most 58 characters of the prefix and five random ones.
fn generate_name(prefix: &str) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let random = uuid::Uuid::new_v4();
    let base: String = prefix.chars().take(58).collect();
    let suffix = random.as_bytes().iter().take(5).map(|b| {
        let index = usize::from(*b) % ALPHABET.len();
        char::from(ALPHABET.get(index).copied().unwrap_or(b'x'))
    });
    base.chars().chain(suffix).collect()
}

fn already_exists(resource: &Resource, name: &str, existing: &Object) -> Status {
    let mut status = Status::already_exists(&resource.group, &resource.plural, name);
    if meta::is_deleting(&existing.value) {
        status.message = format!("object is being deleted: {}", status.message);
    }
    status
}

fn commit_new(call: &Call, mut object: Value, generated: bool) -> Result<Reply, Status> {
    let resource = &call.resource;
    for attempt in 0.. {
        let name = meta::name(&object).to_owned();
        let (value, form) = to_storage(resource, object.clone());
        let key = call.key(&name);
        let committed = call.server.store().commit(&resource.storage, &key, Expect::Absent, Change::Put(value, form));
        match committed {
            Ok(stored) => {
                crate::crd::after_commit(&call.server, resource, &stored);
                return Ok(call.stored(201, &stored));
            }
            Err(Raced(Some(_))) if generated && attempt < 8 => {
                let prefix = meta::text(&object, "generateName").to_owned();
                meta::metadata_mut(&mut object).insert("name".into(), generate_name(&prefix).into());
            }
            Err(Raced(Some(existing))) => return Err(already_exists(resource, &name, &existing)),
            Err(Raced(None)) => break,
        }
    }
    Err(Status::internal("a creation lost its race against nobody"))
}

/// 422 about the object, under the kind that it says it has.
fn invalid(resource: &Resource, object: &Value, name: &str, errors: &[FieldError]) -> Status {
    let member = |member: &str| object.get(member).and_then(Value::as_str).unwrap_or_default();
    // Events of both groups are checked as the internal one, which has none.
    let group = if resource.storage == "events" {
        ""
    } else {
        member("apiVersion").split_once('/').map(|(group, _)| group).unwrap_or_default()
    };
    Status::invalid(group, member("kind"), name, errors)
}

/// All violations: those of metadata found before, the kind's schema's, then what only the strategy knows.
fn kind_errors(
    resource: &Resource,
    part: Part,
    before: Vec<FieldError>,
    object: &Value,
    old: Option<&Value>,
) -> Vec<FieldError> {
    let Some(custom) = &resource.custom else {
        let mut errors = resource.schema.validate_after(before, object, old);
        errors.extend(strategy::validate(resource, object, old));
        return errors;
    };
    let member = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let api_version = resource.api_version();
    let mut errors = Vec::new();
    for (name, wanted) in [("kind", resource.kind.as_str()), ("apiVersion", api_version.as_str())] {
        if member(name) != wanted {
            errors.push(FieldError::invalid_text(name, member(name), &format!("must be {wanted}")));
        }
    }
    if !errors.is_empty() {
        return errors;
    }
    let mut before = before;
    if let Some(scale) = custom.definition.pointer("/subresources/scale") {
        before.extend(crate::schema::scale_errors(object, scale, part != Part::Status));
    }
    if part == Part::Status {
        return resource.schema.validate_status(before, object, old);
    }
    resource.schema.validate_after(before, object, old)
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

pub async fn update(call: &mut Call) -> Result<Reply, Status> {
    update_part(call, Part::Whole).await
}

pub async fn update_part(call: &mut Call, part: Part) -> Result<Reply, Status> {
    let options = WriteOptions::parse(&call.query, "UpdateOptions", false)?;
    let mut decoded = decode_body(call)?;
    enforce_strict(call, &options, &decoded)?;
    if call.info.name.is_empty() {
        return Err(Status::bad_request("name must be provided"));
    }
    check_name(call, &decoded.value)?;
    settle_namespace(call, &mut decoded.value)?;
    edit(call, &options, part, Edit::Put(decoded)).await
}

pub async fn patch(call: &mut Call) -> Result<Reply, Status> {
    patch_part(call, Part::Whole).await
}

pub async fn patch_part(call: &mut Call, part: Part) -> Result<Reply, Status> {
    const CUSTOM: [&str; 3] =
        ["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];
    let custom = call.resource.is_custom();
    let kind = match essence(&call.content_type) {
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
        None => Edit::Apply(applied_object(call)?),
    };
    edit(call, &options, part, change).await
}

/// Reads and checks an apply's body.
fn applied_object(call: &Call) -> Result<Value, Status> {
    let mut value = yaml(&call.body).map_err(|e| Status::bad_request(format!("error decoding YAML: {e}")))?;
    // An empty document is an object without anything.
    if value.is_null() {
        value = Value::Object(serde_json::Map::new());
    }
    if !value.is_object() {
        let found = meta::json_type(&value);
        return Err(Status::bad_request(format!(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go value of type \
             map[string]interface {{}}"
        )));
    }
    let member = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let (kind, api_version) = (member("kind"), member("apiVersion"));
    if value.get("metadata").and_then(|m| m.get("managedFields")).is_some_and(|m| !m.is_null()) {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    if kind != call.resource.kind || api_version != call.resource.api_version() {
        let qualified = if api_version.contains('/') { api_version.to_owned() } else { format!("/{api_version}") };
        return Err(Status::bad_request(format!("invalid object type: {qualified}, Kind={kind}")));
    }
    check_name(call, &value)?;
    let namespace = meta::text(&value, "namespace");
    if call.resource.namespaced && !namespace.is_empty() && namespace != call.info.namespace {
        return Err(mismatched_namespace());
    }
    Ok(value)
}

/// The object after the change, decoded and defaulted.
struct Candidate {
    object: Value,
    /// An apply has settled field ownership.
    applied: bool,
}

async fn edit(call: &mut Call, options: &WriteOptions, part: Part, change: Edit) -> Result<Reply, Status> {
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
        let candidate = candidate(call, options, part, &change, &live_value)?;
        match replace(call, options, part, &live, &live_value, candidate).await? {
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
            meta::metadata_mut(&mut object).remove("resourceVersion");
            insert(call, options, object, false).await
        }
        Edit::Apply(applied) if part == Part::Whole => {
            let mut object = apply(call, options, part, None, applied)?;
            meta::metadata_mut(&mut object).remove("resourceVersion");
            tidy_or_500(call, &mut object)?;
            settle_namespace(call, &mut object)?;
            insert(call, options, object, true).await
        }
        _ => Err(call.not_found(&name)),
    }
}

/// The uid in a PUT is a precondition of the storage.
fn check_uid(call: &Call, sent: &Value, live: &Value) -> Result<(), Status> {
    let (sent, live) = (meta::text(sent, "uid"), meta::text(live, "uid"));
    if sent.is_empty() || sent == live {
        return Ok(());
    }
    Err(uid_precondition(call, &call.info.name, sent, live))
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

fn candidate(
    call: &mut Call,
    options: &WriteOptions,
    part: Part,
    change: &Edit,
    live: &Value,
) -> Result<Candidate, Status> {
    match change {
        Edit::Put(decoded) => Ok(Candidate { object: decoded.value.clone(), applied: false }),
        Edit::Patch(kind, bytes) => {
            let Patched { mut object, shown, strict } = patched(&call.resource, *kind, bytes, live)?;
            enforce_patch_strict(call, options, *kind, bytes, &shown, &strict)?;
            check_name(call, &object)?;
            settle_namespace(call, &mut object)?;
            Ok(Candidate { object, applied: false })
        }
        Edit::Apply(applied) => {
            let mut object = apply(call, options, part, Some(live), applied)?;
            tidy_or_500(call, &mut object)?;
            Ok(Candidate { object, applied: true })
        }
    }
}

/// The result of an apply: nulls that were applied stay, and fail validation where they are not allowed.
fn tidy_or_500(call: &Call, object: &mut Value) -> Result<(), Status> {
    shape_decoded(&call.resource, object)
        .map_err(|why| unhandled(&call.resource, &call.resource.kind, &call.resource.version, &why))?;
    call.resource.schema.default_applied(object);
    Ok(())
}

/// `patch: Invalid value: "...": why`, the 422 of a patch whose result cannot be decoded.
pub fn patch_invalid(shown: &str, why: &str) -> Status {
    let error = FieldError::invalid_text("patch", shown, why);
    let mut status = Status::invalid("", "", "", &[error]);
    if let Some(details) = &mut status.details {
        details.name.clear();
    }
    status
}

struct Patched {
    object: Value,
    /// The result before decoding, as messages show it.
    shown: String,
    strict: Vec<String>,
}

fn patched(resource: &Resource, kind: PatchKind, bytes: &[u8], live: &Value) -> Result<Patched, Status> {
    let mut object = run_patch(resource, kind, bytes, live)?;
    let shown = if resource.is_custom() { object.to_string() } else { go_text(&object, kind, bytes) };
    let mistyped = ["kind", "apiVersion"].iter().any(|m| object.get(*m).is_some_and(|v| !v.is_string()));
    if !object.is_object() || mistyped {
        return Err(patch_invalid(&shown, "json: cannot unmarshal the patched object"));
    }
    if !resource.is_custom() {
        for (member, wanted) in [("kind", resource.kind.clone()), ("apiVersion", resource.api_version())] {
            if object.get(member).and_then(Value::as_str).unwrap_or_default().is_empty() {
                object[member] = wanted.into();
            }
        }
        let member = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
        let (kind, api_version) = (member("kind"), member("apiVersion"));
        if kind != resource.kind || api_version != resource.api_version() {
            return Err(patch_invalid(&shown, &not_registered(kind, api_version)));
        }
    }
    let unknown = tidy_decoded(resource, &mut object).map_err(|why| patch_invalid(&shown, &why))?;
    let strict = unknown.iter().map(|path| format!("unknown field {}", quote(path))).collect();
    Ok(Patched { object, shown, strict })
}

fn run_patch(resource: &Resource, kind: PatchKind, bytes: &[u8], live: &Value) -> Result<Value, Status> {
    let document = serde_json::from_slice::<Value>(bytes).map_err(|e| {
        let why =
            if e.is_eof() { "unexpected end of JSON input".to_owned() } else { format!("invalid character: {e}") };
        match kind {
            PatchKind::Json | PatchKind::Merge => Status::bad_request(format!("error decoding patch: {why}")),
            PatchKind::Strategic => Status::bad_request(why),
        }
    })?;
    let result = match kind {
        PatchKind::Json => crate::patch::json_patch(live, &document),
        PatchKind::Merge => crate::patch::merge_patch(live, &document),
        PatchKind::Strategic => crate::patch::strategic_merge(live, &document, &resource.schema),
    };
    result.map_err(patch_status)
}

pub fn patch_status(error: PatchError) -> Status {
    match error {
        PatchError::Malformed(why) => Status::bad_request(why),
        PatchError::TooLarge(why) => Status::new(413, "RequestEntityTooLarge", why),
        PatchError::Inapplicable(_) => {
            let mut status = Status::new(422, "Invalid", crate::patch::REFUSAL);
            status.details = Some(Box::default());
            status
        }
        PatchError::Mismatch { patch, detail } => patch_invalid(&patch, &detail),
        PatchError::Internal(why) => Status::unknown(why),
    }
}

/// Strict decoding of a patch's result: its own error, 422.
fn enforce_patch_strict(
    call: &mut Call,
    options: &WriteOptions,
    kind: PatchKind,
    bytes: &[u8],
    shown: &str,
    strict: &[String],
) -> Result<(), Status> {
    if strict.is_empty() || options.validation == FieldValidation::Ignore {
        return Ok(());
    }
    if options.validation == FieldValidation::Warn {
        strict.iter().for_each(|text| call.warn(text.clone()));
        return Ok(());
    }
    let shown = match kind {
        PatchKind::Strategic => go_print(&serde_json::from_slice(bytes).unwrap_or_default()),
        PatchKind::Json | PatchKind::Merge => shown.to_owned(),
    };
    Err(patch_invalid(&shown, &format!("strict decoding error: {}", strict.join(", "))))
}

/// A patched built-in object as messages show it: what the patch touched has sorted members, the rest those of the struct.
fn go_text(object: &Value, kind: PatchKind, bytes: &[u8]) -> String {
    let patch: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let mut metadata_touched = kind != PatchKind::Json && patch.get("metadata").is_some();
    for operation in patch.as_array().into_iter().flatten() {
        let path = operation.get("path").and_then(Value::as_str).unwrap_or_default();
        metadata_touched |= path.starts_with("/metadata/");
    }
    let members = object.as_object().into_iter().flatten().map(|(key, value)| {
        let text = if key == "metadata" { meta::go_text(value, metadata_touched) } else { value.to_string() };
        format!("{}:{text}", quote(key))
    });
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

/// Go's `%v` of decoded JSON.
pub fn go_print(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Array(list) => format!("[{}]", list.iter().map(go_print).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let entries: Vec<String> = map.iter().map(|(k, v)| format!("{k}:{}", go_print(v))).collect();
            format!("map[{}]", entries.join(" "))
        }
        other => other.to_string(),
    }
}

fn apply(
    call: &Call,
    options: &WriteOptions,
    part: Part,
    live: Option<&Value>,
    applied: &Value,
) -> Result<Value, Status> {
    let manager = options.field_manager.clone().unwrap_or_default();
    let now = seconds(call.server.now());
    let api_version = call.resource.api_version();
    let writer = Writer { manager: &manager, subresource: part.name(), api_version: &api_version, now: &now };
    let mut applied = applied.clone();
    strategy::strip_for_part(&call.resource, part, &mut applied);
    crate::fields::apply(live, &applied, &writer, options.force.unwrap_or(false), &call.resource.schema)
        .map_err(|error| apply_status(call, error))
}

fn apply_status(call: &Call, error: ApplyError) -> Status {
    match error {
        ApplyError::Conflicts(conflicts) => apply_conflicts(&conflicts),
        ApplyError::Invalid(errors) => {
            Status::invalid(&call.resource.group, &call.resource.kind, &call.info.name, &errors)
        }
        ApplyError::BadRequest(why) => Status::bad_request(why),
        ApplyError::Internal(why) => Status::unknown(why),
    }
}

/// 409 of an apply: every foreign field, grouped by who owns it.
fn apply_conflicts(conflicts: &[Conflict]) -> Status {
    let message = match conflicts {
        [one] => format!("Apply failed with 1 conflict: {}: {}", one.message, one.field),
        many => {
            let mut text = format!("Apply failed with {} conflicts: ", many.len());
            let mut lines: Vec<String> = Vec::new();
            let mut owner = "";
            for conflict in many {
                if conflict.message != owner {
                    owner = &conflict.message;
                    lines.push(format!("{}:", owner.replacen("conflict with", "conflicts with", 1)));
                }
                lines.push(format!("- {}", conflict.field));
            }
            text.push_str(&lines.join("\n"));
            text
        }
    };
    let causes = conflicts
        .iter()
        .map(|c| Cause { reason: "FieldManagerConflict".into(), message: c.message.clone(), field: c.field.clone() })
        .collect();
    Status::new(409, "Conflict", message).with_causes(causes)
}

enum Outcome {
    Done(Reply),
    Raced,
}

/// The options that admission is told about for an update or the creation in its place.
pub fn admitted_options(options: &Value, kind: &str) -> Value {
    let mut value = options.clone();
    value["kind"] = kind.into();
    if let Some(map) = value.as_object_mut() {
        map.remove("force");
    }
    value
}

/// Replaces `live` through a function of it: for writes that are not bodies of the object itself (scale, binding).
pub async fn modify(
    call: &mut Call,
    options: &WriteOptions,
    part: Part,
    name: &str,
    change: &(dyn Fn(&mut Call, &Value) -> Result<Value, Status> + Send + Sync),
) -> Result<Reply, Status> {
    for _ in 0..ATTEMPTS {
        let live = call.get(name).ok_or_else(|| call.not_found(name))?;
        let live_value = view_value(&call.resource, &live);
        let object = change(call, &live_value)?;
        let candidate = Candidate { object, applied: false };
        match replace(call, options, part, &live, &live_value, candidate).await? {
            Outcome::Done(reply) => return Ok(reply),
            Outcome::Raced => {}
        }
    }
    Err(Status::modified(&call.resource.group, &call.resource.plural, name))
}

/// The second half of an update.
async fn replace(
    call: &mut Call,
    options: &WriteOptions,
    part: Part,
    live: &Arc<Object>,
    old: &Value,
    candidate: Candidate,
) -> Result<Outcome, Status> {
    let resource = call.resource.clone();
    let Candidate { mut object, applied } = candidate;
    let name = meta::name(old).to_owned();
    let sent_version = meta::text(&object, "resourceVersion").to_owned();
    let warnings = meta::warnings(&mut object, Some(old), resource.is_custom());
    warnings.into_iter().for_each(|w| call.warn(w));
    let fits = |value: &Value| crate::fields::trackable(value, &resource.schema);
    let trackable = applied || (fits(&object) && fits(old));
    meta::keep_server_members(&mut object, old, resource.namespaced);
    strategy::restore_parts(&resource, part, &mut object, old);
    let manager = call.manager(options.field_manager.as_deref());
    let now = seconds(call.server.now());
    let api_version = resource.api_version();
    let writer = Writer { manager: &manager, subresource: part.name(), api_version: &api_version, now: &now };
    if !trackable {
        crate::fields::untrack(&mut object);
    } else if !applied && part != Part::Named("binding") {
        crate::fields::track_update(Some(old), &mut object, &writer, &resource.schema);
    }
    let namespace = call.namespace().to_owned();
    let user = call.user.clone();
    let admitted = admitted_options(&options.value, "UpdateOptions");
    let attributes = Attributes {
        operation: Operation::Update,
        resource: &resource,
        subresource: part.name(),
        subresource_kind: None,
        namespace: &namespace,
        name: &name,
        old_object: Some(old),
        options: &admitted,
        dry_run: options.dry_run,
        user: &user,
    };
    // A binding or a scale was reviewed as what it is.
    let webhooks = !matches!(part, Part::Named("binding") | Part::Scale) && admission::any(&call.server, &attributes);
    if webhooks {
        let before = object.clone();
        let tidy = |value: &mut Value| {
            let _ = tidy_decoded(&resource, value);
        };
        admission::mutate(&call.server, &attributes, Some(&mut object), &tidy, &mut call.warnings).await?;
        if object != before {
            let _ = tidy_decoded(&resource, &mut object);
            strategy::restore_parts(&resource, part, &mut object, old);
        }
    }
    check_version(call, &name, &sent_version, live)?;
    meta::metadata_mut(&mut object).insert("resourceVersion".into(), live.revision.to_string().into());
    strategy::prepare_update(&resource, part, &mut object, old)?;
    if part != Part::Named("binding") {
        advance_generation(&resource, &mut object, old);
    }
    let mut errors = kind_errors(&resource, part, meta::validate_update(&object, old, &resource), &object, Some(old));
    errors.extend(strategy::validate_part(&resource, part, &object));
    if !errors.is_empty() {
        return Err(invalid(&resource, &object, &name, &errors));
    }
    if webhooks {
        admission::validate(&call.server, &attributes, Some(&object), &mut call.warnings).await?;
    }
    finish(call, options, part, live, old, object)
}

/// The version the client sent must be the one that is stored; some kinds insist on being sent one.
fn check_version(call: &Call, name: &str, sent: &str, live: &Object) -> Result<(), Status> {
    let resource = &call.resource;
    let version = match sent {
        "" => 0,
        text => text
            .parse::<u64>()
            .map_err(|_| Status::unknown(format!("strconv.ParseUint: parsing {}: invalid syntax", quote(text))))?,
    };
    if version == 0 {
        if resource.rules.unconditional_update {
            return Ok(());
        }
        let error = FieldError::invalid("metadata.resourceVersion", &0.into(), "must be specified for an update");
        return Err(Status::invalid(&resource.group, &resource.plural, name, &[error]));
    }
    if version == live.revision { Ok(()) } else { Err(Status::modified(&resource.group, &resource.plural, name)) }
}

fn advance_generation(resource: &Resource, object: &mut Value, old: &Value) {
    let differs = |member: &str| {
        let empty = |v: Option<&Value>| v.is_none_or(Value::is_null);
        let (a, b) = (object.get(member), old.get(member));
        a != b && !(empty(a) && empty(b))
    };
    let outside = |skip: &[&str]| {
        let members = object.as_object().into_iter().chain(old.as_object()).flat_map(|m| m.keys());
        members.into_iter().any(|k| !skip.contains(&k.as_str()) && differs(k))
    };
    let annotations = |v: &Value| v.get("metadata").and_then(|m| m.get("annotations")).cloned();
    let changed = match resource.rules.generation {
        Generation::Never | Generation::Constant => false,
        Generation::Spec => differs("spec"),
        Generation::SpecOrAnnotations => differs("spec") || annotations(object) != annotations(old),
        Generation::NotMetadata => outside(&["metadata", "kind", "apiVersion"]),
        Generation::NotMetadataOrStatus => outside(&["metadata", "kind", "apiVersion", "status"]),
    };
    if changed {
        let generation = old.get("metadata").and_then(|m| m.get("generation")).and_then(Value::as_i64).unwrap_or(0);
        meta::metadata_mut(object).insert("generation".into(), (generation + 1).into());
    }
}

/// Equal but for the times in managedFields, which a write without an effect does not move.
fn same(new: &Value, old: &Value) -> bool {
    if new == old {
        return true;
    }
    let entries = |v: &Value| {
        let list = v.get("metadata").and_then(|m| m.get("managedFields")).and_then(Value::as_array);
        list.into_iter()
            .flatten()
            .cloned()
            .map(|mut entry| {
                if let Some(map) = entry.as_object_mut() {
                    map.remove("time");
                }
                entry
            })
            .collect::<Vec<_>>()
    };
    let without = |v: &Value| {
        let mut v = v.clone();
        meta::metadata_mut(&mut v).remove("managedFields");
        v
    };
    entries(new) == entries(old) && without(new) == without(old)
}

fn finish(
    call: &Call,
    options: &WriteOptions,
    part: Part,
    live: &Arc<Object>,
    old: &Value,
    mut object: Value,
) -> Result<Outcome, Status> {
    let resource = &call.resource;
    let key = call.key(meta::name(old));
    crate::fields::keep_times(old, &mut object);
    // An object that was only waiting for its finalizers goes with the last one.
    if crate::delete::is_complete(resource, &object, old) {
        if !options.dry_run {
            let removed =
                call.server.store().commit(&resource.storage, &key, Expect::Revision(live.revision), Change::Remove);
            match removed {
                Ok(gone) => crate::crd::after_removal(&call.server, resource, &gone),
                Err(_) => return Ok(Outcome::Raced),
            }
        }
        return Ok(Outcome::Done(Reply::Object { code: 200, payload: Payload::Value(object) }));
    }
    let _ = part;
    let stored_form = resource.custom.as_ref().and_then(|c| c.storage.as_ref()).map_or(resource.form, |s| s.form);
    if same(&object, old) && (live.form == stored_form || !resource.is_custom()) {
        return Ok(Outcome::Done(call.stored(200, live)));
    }
    if options.dry_run {
        return Ok(Outcome::Done(Reply::Object { code: 200, payload: Payload::Value(object) }));
    }
    let (value, form) = to_storage(resource, object);
    let committed =
        call.server.store().commit(&resource.storage, &key, Expect::Revision(live.revision), Change::Put(value, form));
    match committed {
        Ok(stored) => {
            crate::crd::after_commit(&call.server, resource, &stored);
            Ok(Outcome::Done(call.stored(200, &stored)))
        }
        Err(_) => Ok(Outcome::Raced),
    }
}
