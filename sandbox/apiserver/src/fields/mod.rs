//! Field ownership: `metadata.managedFields`, server-side apply and the tracking of plain writes
//! (structured-merge-diff v6 `merge/update.go` and apimachinery `managedfields`).

mod compare;
mod managed;
mod merge;
mod set;
#[cfg(test)]
mod tests;
mod typed;

use serde_json::Value;

use self::compare::compare_objects;
pub use self::managed::disown;
use self::managed::{Managed, Manager, Owned};
use self::set::{Set, path_text};
use self::typed::Type;
use crate::schema::TypeSchema;

/// Owns what an object had that nobody owned.
pub const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Who writes, through which subresource (empty for the main resource), in which API version, and when
/// (RFC 3339 in UTC, whole seconds).
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    pub manager: &'a str,
    pub subresource: &'a str,
    pub api_version: &'a str,
    pub now: &'a str,
}

/// One field another manager owns with a different value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// `conflict with "x" using v1` as it stands in the cause.
    pub message: String,
    /// `.spec.replicas`
    pub field: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// 409 Conflict, one FieldManagerConflict cause for each entry, sorted by manager and field.
    #[error("apply failed with {} conflicts", .0.len())]
    Conflicts(Vec<Conflict>),
    /// 400 BadRequest.
    #[error("{0}")]
    BadRequest(String),
    /// 500 without a reason.
    #[error("{0}")]
    Internal(String),
}

/// How many plain writers are kept apart; the oldest beyond that are merged.
const MOST_WRITERS: usize = 10;

/// Server-side apply: the object after `applied` was merged into `live`, with its managedFields brought up to date.
/// `live` is `None` for an apply that creates. The result may hold nulls; it still has to be defaulted with
/// `TypeSchema::default_applied`. When nothing but ownership changed, the entry of the applier keeps its time (a new
/// entry has none), so that an apply that repeats itself is no change.
pub fn apply(
    live: Option<&Value>,
    applied: &Value,
    writer: &Writer<'_>,
    force: bool,
    schema: &TypeSchema,
) -> Result<Value, ApplyError> {
    if applied.pointer("/metadata/managedFields").is_some_and(|fields| !fields.is_null()) {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    check_applied(applied, schema)?;
    let ty = Type::root(schema.node());
    let empty = empty_object(schema, applied);
    let live = live.map_or_else(|| empty.clone(), without_managed);
    let mut managed = managed_of(&live.1);
    let live = live.0;
    if managed.is_empty() {
        let earlier = Manager {
            name: BEFORE_FIRST_APPLY.to_owned(),
            applies: false,
            version: writer.api_version.to_owned(),
            subresource: writer.subresource.to_owned(),
        };
        update(&empty.0, &live, &mut managed, &earlier, writer, ty);
    }
    let me = Manager {
        name: named(writer.manager),
        applies: true,
        version: String::new(),
        subresource: writer.subresource.to_owned(),
    };
    let last = managed.get(&me).cloned();
    let set = typed::field_set(applied, ty);
    let time = last.as_ref().and_then(|last| last.time.clone());
    managed.insert(me.clone(), Owned { set, version: writer.api_version.to_owned(), time });
    let merged = merge::merge_applied(&live, applied, ty);
    let next = pruned(merged, &managed, last.as_ref(), ty);
    let conflicts = settle(&live, &next, &mut managed, &me, ty);
    if !force && !conflicts.is_empty() {
        return Err(ApplyError::Conflicts(conflicts));
    }
    strip(&mut managed, &me);
    let mut next = next;
    if next != live
        && let Some(mine) = managed.get_mut(&me)
    {
        mine.time = Some(writer.now.to_owned());
    }
    managed::write_managed(&mut next, &managed);
    Ok(next)
}

/// What is applied must be of its type, also in the parts that the applier does not get to write.
pub fn check_applied(applied: &Value, schema: &TypeSchema) -> Result<(), ApplyError> {
    let problems = typed::find_problems(applied, Type::root(schema.node()));
    if problems.is_empty() { Ok(()) } else { Err(ApplyError::Internal(untyped(applied, &problems))) }
}

/// The object after a policy laid `over` over it. Nobody owns what it sets (`policy/mutating/patch/smd.go`).
pub fn lay_over(live: &Value, over: &Value, schema: &TypeSchema) -> Result<Value, String> {
    let ty = Type::root(schema.node());
    let problems = typed::find_problems(over, ty);
    if !problems.is_empty() {
        let shown = show_problems(&problems);
        return Err(format!("failed to convert patch object to typed object: {shown}"));
    }
    let mut atomics = Vec::new();
    typed::find_atomics(over, ty, "", &mut atomics);
    if !atomics.is_empty() {
        let shown = atomics.join(", ");
        return Err(format!("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {shown}"));
    }
    Ok(merge::merge_applied(live, over, ty))
}

/// Create, update or patch by a plain writer: `new` gets the managedFields that follow from the difference to `live`.
/// Entries in `new` that differ from the stored ones are taken as the writer's wish: `[{}]` ends the tracking.
pub fn track_update(live: Option<&Value>, new: &mut Value, writer: &Writer<'_>, schema: &TypeSchema) {
    let ty = Type::root(schema.node());
    let sent = new.pointer("/metadata/managedFields").cloned();
    let (before, stored) = live.map_or_else(|| empty_object(schema, new), without_managed);
    let reset = sent.as_ref().is_some_and(is_reset);
    let wish = sent.as_ref().filter(|_| !reset && writer.subresource.is_empty());
    let mut managed = match wish.and_then(|sent| managed::decode_managed(Some(sent))) {
        _ if reset && writer.subresource.is_empty() => Managed::new(),
        Some(managed) if !managed.is_empty() => managed,
        _ => managed_of(&stored),
    };
    let (after, _) = without_managed(new);
    let created = before.pointer("/metadata/uid").and_then(Value::as_str).is_none_or(str::is_empty);
    if !managed.is_empty() || created {
        let me = Manager {
            name: named(writer.manager),
            applies: false,
            version: writer.api_version.to_owned(),
            subresource: writer.subresource.to_owned(),
        };
        update(&before, &after, &mut managed, &me, writer, ty);
        // Writes through a scale carry no time.
        if let Some(mine) = managed.get_mut(&me).filter(|_| writer.subresource == "scale") {
            mine.time = None;
        }
        cap(&mut managed);
    }
    managed::write_managed(new, &managed);
}

/// Whether ownership of a decoded object can be tracked at all: a value that does not fit its type (which validation
/// may never see, because it stands in a part that is reset) ends the tracking, and the object loses its entries.
pub fn trackable(object: &Value, schema: &TypeSchema) -> bool {
    let ty = Type::root(schema.node());
    typed::find_problems(object, ty).iter().all(|problem| problem.contains("duplicate entries for key"))
}

/// What of an object the version of another entry does not have, and that version. Every entry is compared in its own
/// version, to which the object is converted; without a conversion of its own that fails on a field that only one
/// version has (`reconcileManagedFieldsWithSchemaChanges`, `merge.Updater`). `but` is an entry that is not looked at.
pub fn undeclared_in_versions(
    value: &Value,
    owners: &Value,
    writer: &Writer<'_>,
    but: Option<bool>,
    schema_of: &dyn Fn(&str) -> Option<std::sync::Arc<TypeSchema>>,
) -> Option<(String, String)> {
    let managed = managed_of(owners.pointer("/metadata/managedFields").unwrap_or(&Value::Null));
    let is_own = |manager: &Manager| {
        but == Some(manager.applies)
            && manager.name == named(writer.manager)
            && manager.subresource == writer.subresource
            && (manager.applies || manager.version == writer.api_version)
    };
    let others = managed.iter().filter(|(manager, owned)| owned.version != writer.api_version && !is_own(manager));
    let (value, _) = without_managed(value);
    others.into_iter().find_map(|(_, owned)| {
        let schema = schema_of(&owned.version)?;
        let problem = typed::find_problems(&value, Type::root(schema.node())).into_iter().next()?;
        Some((owned.version.clone(), problem))
    })
}

/// Removes all entries of an object.
pub fn untrack(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

/// After all is decided about a write: when nothing but the times in managedFields differs from what is stored, the
/// stored ones are kept, and the write is no change.
pub fn keep_times(old: &Value, new: &mut Value) {
    let timeless = |object: &Value| {
        let mut managed = managed_of(&object.pointer("/metadata/managedFields").cloned().unwrap_or_default());
        managed.values_mut().for_each(|owned| owned.time = None);
        managed
    };
    let plain = |object: &Value| {
        let (mut object, _) = without_managed(object);
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("resourceVersion");
        }
        object
    };
    let Some(stored) = old.pointer("/metadata/managedFields") else { return };
    if plain(old) == plain(new)
        && timeless(old) == timeless(new)
        && let Some(fields) = new.pointer_mut("/metadata/managedFields")
    {
        fields.clone_from(stored);
    }
}

fn named(manager: &str) -> String {
    if manager.is_empty() { "unknown".to_owned() } else { manager.to_owned() }
}

fn is_reset(sent: &Value) -> bool {
    matches!(sent.as_array().map(Vec::as_slice), Some([entry]) if entry.as_object().is_some_and(|map| map.is_empty()))
}

fn managed_of(list: &Value) -> Managed {
    managed::decode_managed(Some(list)).unwrap_or_default()
}

/// The object and its managedFields apart.
fn without_managed(object: &Value) -> (Value, Value) {
    let mut object = object.clone();
    let fields = object.get_mut("metadata").and_then(Value::as_object_mut).and_then(|m| m.remove("managedFields"));
    (object, fields.unwrap_or(Value::Null))
}

/// What a new object of the kind is compared with: Go's zero value has the structs that are always there.
fn empty_object(schema: &TypeSchema, like: &Value) -> (Value, Value) {
    let mut empty = schema.zero();
    for key in ["apiVersion", "kind"] {
        if let (Some(map), Some(value)) = (empty.as_object_mut(), like.get(key)) {
            map.insert(key.to_owned(), value.clone());
        }
    }
    (empty, Value::Null)
}

fn show_problems(problems: &[String]) -> String {
    match problems {
        [one] => one.clone(),
        many => format!("errors:\n{}", many.iter().map(|text| format!("  {text}")).collect::<Vec<_>>().join("\n")),
    }
}

fn untyped(applied: &Value, problems: &[String]) -> String {
    let text = |pointer: &str| applied.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let version = text("/apiVersion");
    let version = if version.contains('/') { version.to_owned() } else { format!("/{version}") };
    let shown = show_problems(problems);
    format!(
        "failed to create typed patch object ({}/{}; {version}, Kind={}): {shown}",
        text("/metadata/namespace"),
        text("/metadata/name"),
        text("/kind")
    )
}

/// Takes from the merged object what the applier applied last time, not this time, and nobody else owns.
fn pruned(merged: Value, managed: &Managed, last: Option<&Owned>, ty: Type<'_>) -> Value {
    let Some(last) = last.map(|last| &last.set).filter(|set| !set.is_empty()) else { return merged };
    let last = merge::with_named_fields(last, ty);
    let all = merge::with_named_fields(&typed::field_set(&merged, ty), ty);
    let named_set = |value: &Value| merge::with_named_fields(&typed::field_set(value, ty), ty);
    let owned = managed.values().fold(Set::default(), |all, owned| all.union(&owned.set));
    let owned = merge::with_named_fields(&owned, ty);
    let bare = merge::remove_fields(&merged, &last, ty);
    // Back with what anyone still owns,
    let kept = merge::remove_fields(&merged, &all.difference(&named_set(&bare).union(&owned)), ty);
    // and with what was not the applier's to begin with.
    merge::remove_fields(&merged, &all.difference(&named_set(&kept)).intersection(&last), ty)
}

/// Takes fields that changed from their other owners; returns what those were.
fn settle(old: &Value, new: &Value, managed: &mut Managed, me: &Manager, ty: Type<'_>) -> Vec<Conflict> {
    let comparison = compare_objects(old, new, ty);
    take(&comparison, managed, me)
}

fn take(comparison: &compare::Comparison, managed: &mut Managed, me: &Manager) -> Vec<Conflict> {
    let changed = comparison.modified.union(&comparison.added);
    let mut conflicts = Vec::new();
    let mut others: Vec<_> = managed.iter_mut().filter(|(manager, _)| *manager != me).collect();
    others.sort_by_cached_key(|(manager, _)| manager.identifier());
    for (manager, owned) in others {
        let lost = owned.set.intersection(&changed);
        let message = format!("conflict with {}", manager.text());
        conflicts.extend(lost.paths().iter().map(|path| Conflict { message: message.clone(), field: path_text(path) }));
        owned.set = owned.set.difference(&lost).difference(&comparison.removed);
    }
    managed.retain(|manager, owned| manager == me || !owned.set.is_empty());
    conflicts
}

/// A plain write: the writer owns what it changed.
fn update(old: &Value, new: &Value, managed: &mut Managed, me: &Manager, writer: &Writer<'_>, ty: Type<'_>) {
    let comparison = compare_objects(old, new, ty);
    // The writer's own earlier fields are treated like those of others first: what it changed comes back below.
    let operation = Manager { name: String::new(), ..me.clone() };
    take(&comparison, managed, &operation);
    let fresh = comparison.modified.union(&comparison.added).difference(&managed::strip_set());
    if fresh.is_empty() {
        return;
    }
    let set = managed.get(me).map_or_else(|| fresh.clone(), |kept| kept.set.union(&fresh));
    let owned = Owned { set, version: writer.api_version.to_owned(), time: Some(writer.now.to_owned()) };
    managed.insert(me.clone(), owned);
}

fn strip(managed: &mut Managed, me: &Manager) {
    if let Some(mine) = managed.get_mut(me) {
        mine.set = mine.set.difference(&managed::strip_set());
    }
    managed.retain(|_, owned| !owned.set.is_empty());
}

/// Merges the oldest plain writers of a version into one (`capManagersManager`).
fn cap(managed: &mut Managed) {
    let mut writers: Vec<Manager> = managed.keys().filter(|manager| !manager.applies).cloned().collect();
    if writers.len() <= MOST_WRITERS {
        return;
    }
    writers.sort_by_key(|writer| managed.get(writer).and_then(|owned| owned.time.clone()));
    let mut left = writers.len();
    let mut first: std::collections::BTreeMap<String, Option<Manager>> = Default::default();
    for writer in writers {
        if left <= MOST_WRITERS {
            break;
        }
        let bucket = Manager {
            name: "ancient-changes".to_owned(),
            applies: false,
            version: writer.version.clone(),
            subresource: String::new(),
        };
        let Some(owned) = managed.get(&writer).cloned() else { continue };
        if let Some(existing) = managed.get_mut(&bucket).filter(|_| bucket != writer) {
            existing.set = existing.set.union(&owned.set);
            existing.time = owned.time;
            managed.remove(&writer);
            left -= 1;
        } else if let Some(Some(other)) = first.insert(writer.version.clone(), None) {
            let earlier = managed.remove(&other).map(|owned| owned.set).unwrap_or_default();
            managed.remove(&writer);
            managed.insert(bucket, Owned { set: earlier.union(&owned.set), ..owned });
            left -= 1;
        } else {
            first.insert(writer.version.clone(), Some(writer));
        }
    }
}
