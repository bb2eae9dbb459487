//! The second half of an update: what the path may not touch, admission, versions, generation, commit.

use super::*;

pub(super) enum Outcome {
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
/// `applied` says that the function settles field ownership.
pub async fn modify_object(
    call: &mut Call,
    options: &WriteOptions,
    part: Part,
    name: &str,
    applied: bool,
    change: &(dyn Fn(&mut Call, &Value) -> Result<Value, Status> + Send + Sync),
) -> Result<Reply, Status> {
    for _ in 0..ATTEMPTS {
        let live = call.get(name).ok_or_else(|| call.not_found(name))?;
        let live_value = view_value(&call.resource, &live);
        let object = change(call, &live_value)?;
        let candidate = Candidate { object, applied };
        match replace_object(call, options, part, &live, &live_value, candidate).await? {
            Outcome::Done(reply) => return Ok(reply),
            Outcome::Raced => {}
        }
    }
    Err(Status::modified(&call.resource.group, &call.resource.plural, name))
}

/// The second half of an update.
pub(super) async fn replace_object(
    call: &mut Call,
    options: &WriteOptions,
    part: Part,
    live: &Arc<Object>,
    old: &Value,
    candidate: Candidate,
) -> Result<Outcome, Status> {
    let resource = call.resource.clone();
    let Candidate { mut object, applied } = candidate;
    let name = meta::object_name(old).to_owned();
    let mut sent_version = meta::metadata_text(&object, "resourceVersion").to_owned();
    let warnings = meta::metadata_warnings(&mut object, Some(old), resource.is_custom(), call.info.verb == "patch");
    let unsent = meta::unsent_members(&object);
    let fits = |value: &Value| crate::fields::trackable(value, &resource.schema);
    let trackable = applied || (fits(&object) && fits(old));
    meta::keep_server_members(&mut object, old, resource.namespaced);
    if part == Part::Whole {
        strategy::complete_decoded(&resource, &mut object);
    }
    let sent = admission::has_mutating(&call.server).then(|| object.clone());
    strategy::restore_parts(&resource, part, &mut object, old);
    let manager = call.manager(options.field_manager.as_deref());
    let now = write_seconds(call.server.now());
    let api_version = resource.api_version();
    let writer = Writer { manager: &manager, subresource: part.name(), api_version: &api_version, now: &now };
    let schema_of = |version: &str| resource.schema_of(version);
    let lost = |value: &Value, but: Option<bool>| {
        crate::fields::undeclared_in_versions(value, old, &writer, but, &schema_of).is_some()
    };
    if !trackable || (!applied && (lost(old, None) || lost(&object, Some(false)))) {
        crate::fields::untrack(&mut object);
    } else if !applied && part != Part::Named("binding") {
        crate::fields::track_update(Some(old), &mut object, &writer, &resource.schema);
    }
    if resource.plural == "events" {
        crate::event::drop_foreign_owners(&mut object, &api_version);
    }
    strategy::restore_owned(&resource, part, &mut object, old);
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
    let webhooks =
        !matches!(part, Part::Named("binding") | Part::Scale) && admission::any_concerned(&call.server, &attributes);
    if let Some(sent) = sent.filter(|_| webhooks) {
        object = shown_to_webhooks(&resource, part, sent, &object);
        // They see what was sent: what the server keeps is put in afterwards.
        unsent.iter().for_each(|member| drop(meta::metadata_mut(&mut object).remove(*member)));
        let tidy = |value: &mut Value| tidy_patched(&resource, value);
        admission::run_mutating(&call.server, &attributes, Some(&mut object), &tidy, &mut call.warnings).await?;
        // A webhook may ask for a version, as the client may.
        let asked = meta::metadata_text(&object, "resourceVersion");
        if !asked.is_empty() && asked != live.revision.to_string() {
            asked.clone_into(&mut sent_version);
        }
        meta::keep_server_members(&mut object, old, resource.namespaced);
        settle_namespace(call, &mut object)?;
        strategy::restore_parts(&resource, part, &mut object, old);
        strategy::restore_owned(&resource, part, &mut object, old);
    }
    // What leaves out members that the server keeps differs in them when rights are looked at.
    let kept = Some(old)
        .filter(|old| unsent.iter().all(|member| old.pointer("/metadata").and_then(|m| m.get(*member)).is_none()));
    crate::auth::refuse_escalation(call, &object, Some(old), kept)?;
    check_version(call, &name, &sent_version, live)?;
    meta::metadata_mut(&mut object).insert("resourceVersion".into(), live.revision.to_string().into());
    strategy::prepare_update(&call.server, &resource, part, &mut object, old, options.dry_run)?;
    // The status of a built-in kind is none of its generations, whatever comes with it.
    if part != Part::Named("binding") && (part != Part::Status || resource.is_custom()) {
        advance_generation(&resource, &mut object, old);
    }
    let mut errors = kind_errors(&resource, part, meta::validate_update(&object, old, &resource), &object, Some(old));
    errors.extend(strategy::validate_part(&resource, part, &object, old));
    if !errors.is_empty() {
        // A webhook may have named it otherwise.
        return Err(invalid_object(&resource, &object, meta::object_name(&object), &errors));
    }
    warnings.into_iter().chain(strategy::kind_warnings(&resource, &object, Some(old))).for_each(|w| call.warn(w));
    if matches!(part, Part::Whole | Part::Named("ephemeralcontainers")) {
        let told = crate::pod_security::admit_object(&call.server, &resource, &object, Some(old))?;
        told.into_iter().for_each(|text| call.warn(text));
    }
    if part == Part::Whole {
        crate::default_classes::check_growth(&call.server, &resource, &object, old)?;
    }
    if webhooks {
        admission::run_validating(&call.server, &attributes, Some(&object), &mut call.warnings).await?;
        // What a webhook added to a custom object goes when the object is stored.
        if resource.is_custom() {
            resource.schema.prune(&mut object);
        }
    }
    finish_write(call, options, part, live, old, object)
}

/// The object as it was sent, with the owners of its fields: what this path may not write is put back after admission.
fn shown_to_webhooks(resource: &Resource, part: Part, mut sent: Value, settled: &Value) -> Value {
    match settled.get("metadata").and_then(|m| m.get("managedFields")).cloned() {
        Some(managed) => meta::metadata_mut(&mut sent).insert("managedFields".into(), managed),
        None => meta::metadata_mut(&mut sent).remove("managedFields"),
    };
    if part == Part::Whole && !resource.is_custom() {
        strategy::empty_status(resource, &mut sent);
    }
    sent
}

/// The version the client sent must be the one that is stored; some kinds insist on being sent one.
pub(super) fn check_version(call: &Call, name: &str, sent: &str, live: &Object) -> Result<(), Status> {
    let resource = &call.resource;
    let version = match sent {
        "" => 0,
        text => text
            .parse::<u64>()
            .map_err(|_| Status::unknown(format!("strconv.ParseUint: parsing {}: invalid syntax", go_quote(text))))?,
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

pub(super) fn advance_generation(resource: &Resource, object: &mut Value, old: &Value) {
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
    let labels = |v: &Value| v.get("metadata").and_then(|m| m.get("labels")).cloned();
    let changed = match resource.rules.generation {
        Generation::Never | Generation::Constant => false,
        Generation::Spec => differs("spec"),
        Generation::SpecOrAnnotations => differs("spec") || annotations(object) != annotations(old),
        // Of the metadata the labels count (`endpointslice/strategy.go`).
        Generation::NotMetadata if resource.storage.starts_with("endpointslices") => {
            outside(&["metadata", "kind", "apiVersion"]) || labels(object) != labels(old)
        }
        Generation::NotMetadata => outside(&["metadata", "kind", "apiVersion"]),
        Generation::NotMetadataOrStatus => outside(&["metadata", "kind", "apiVersion", "status"]),
    };
    if changed {
        let generation = old.get("metadata").and_then(|m| m.get("generation")).and_then(Value::as_i64).unwrap_or(0);
        meta::metadata_mut(object).insert("generation".into(), (generation + 1).into());
    }
}

/// Equal but for the times in managedFields, which a write without an effect does not move.
pub(super) fn is_unchanged(new: &Value, old: &Value) -> bool {
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

pub(super) fn finish_write(
    call: &Call,
    options: &WriteOptions,
    part: Part,
    live: &Arc<Object>,
    old: &Value,
    mut object: Value,
) -> Result<Outcome, Status> {
    let resource = &call.resource;
    let key = call.key(meta::object_name(old));
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
    if is_unchanged(&object, old) && (live.form == stored_form || !resource.is_custom()) {
        return Ok(Outcome::Done(call.stored(200, live)));
    }
    if options.dry_run {
        let shown = crate::registry_form::show_dry_run(resource, object);
        return Ok(Outcome::Done(Reply::Object { code: 200, payload: Payload::Value(shown) }));
    }
    super::insert::refuse_too_large(call, &object)?;
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
