//! The second half of a creation: ownership, admission, the members the server fills in, validation, commit.

use super::*;

/// The second half of a creation. `applied`: field ownership was settled by an apply.
pub(super) async fn insert_object(
    call: &mut Call,
    options: &WriteOptions,
    mut object: Value,
    applied: bool,
) -> Result<Reply, Status> {
    let resource = call.resource.clone();
    crate::namespace::check_open(call)?;
    crate::crd::refuse_terminating(&call.server, &resource, meta::object_name(&object))?;
    let warnings = meta::metadata_warnings(&mut object, None, resource.is_custom(), false);
    for member in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        meta::metadata_mut(&mut object).remove(member);
    }
    let sent_status = object.get("status").filter(|_| resource.rules.separate_status).cloned();
    let trackable = applied || crate::fields::trackable(&object, &resource.schema);
    strategy::before_create(&resource, &mut object);
    strategy::complete_decoded(&resource, &mut object);
    if resource.storage == "nodes" {
        // The conversion does this, so the list is the writer's.
        crate::node_rules::follow_network(&mut object, None);
    }
    let manager = call.manager(options.field_manager.as_deref());
    let now = write_seconds(call.server.now());
    let api_version = resource.api_version();
    let writer = Writer { manager: &manager, subresource: "", api_version: &api_version, now: &now };
    // Ownership is settled here: what webhooks change belongs to nobody.
    if !trackable {
        crate::fields::untrack(&mut object);
    } else if !applied {
        crate::fields::track_update(None, &mut object, &writer, &resource.schema);
    }
    let body_name = meta::object_name(&object).to_owned();
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
    let webhooks = admission::any_concerned(&call.server, &attributes);
    if webhooks {
        let tidy = |value: &mut Value| tidy_patched(&resource, value);
        strategy::show_to_webhooks(&call.server, &resource, &mut object, sent_status)?;
        admission::run_mutating(&call.server, &attributes, Some(&mut object), &tidy, &mut call.warnings).await?;
        strategy::before_create(&resource, &mut object);
        settle_namespace(call, &mut object)?;
    }
    crate::auth::refuse_escalation(call, &object, None, None)?;
    let sent_version = meta::metadata_text(&object, "resourceVersion").to_owned();
    complete_new(call, &mut object, &now);
    strategy::prepare_create(&call.server, &call.user, &resource, &mut object, options.dry_run)?;
    if resource.storage == "pods" {
        crate::pod_annotations::settle_armor(&mut object).into_iter().for_each(|w| call.warn(w));
    }
    let generated = body_name.is_empty() && !meta::metadata_text(&object, "generateName").is_empty();
    let name = meta::object_name(&object).to_owned();
    let mut errors = kind_errors(&resource, Part::Whole, meta::validate_metadata(&object, &resource), &object, None);
    if resource.storage == "pods" {
        errors.extend(crate::pod_rules::creation_errors(object.get("spec").unwrap_or(&Value::Null)));
        errors.extend(crate::pod_annotations::annotation_errors(&object));
    }
    if resource.storage == "namespaces" {
        errors.extend(strategy::namespace_errors(&object));
    }
    if !errors.is_empty() {
        return Err(invalid_object(&resource, &object, &name, &errors));
    }
    warnings.into_iter().chain(strategy::kind_warnings(&resource, &object, None)).for_each(|w| call.warn(w));
    // An update that creates needs the right to create, and is asked for it when all else is well.
    if call.info.verb != "create" {
        let creation = crate::auth::RequestInfo { verb: "create".into(), ..call.info.clone() };
        crate::auth::authorize_request(&call.server, &call.user, &creation)?;
    }
    crate::runtime_class::check_overhead(&call.server, &resource, &object)?;
    let told = crate::pod_security::admit_object(&call.server, &resource, &object, None)?;
    told.into_iter().for_each(|text| call.warn(text));
    if webhooks {
        let attributes = Attributes { name: &name, ..attributes };
        admission::run_validating(&call.server, &attributes, Some(&object), &mut call.warnings).await?;
        // What a webhook added to a custom object goes when the object is stored.
        if resource.is_custom() {
            resource.schema.prune(&mut object);
        }
    }
    strategy::complete_stored(&resource, &mut object);
    crate::limits::check_limits(&call.server, &resource, &object)?;
    crate::quota::charge_creation(&call.server, &resource, &object, options.dry_run)?;
    if !options.dry_run && sent_version.parse::<u64>().is_ok_and(|v| v != 0) {
        return Err(Status::unknown("resourceVersion should not be set on objects to be created"));
    }
    if options.dry_run {
        if let Some(existing) = call.get(&name) {
            return Err(already_exists(&resource, &name, &existing));
        }
        // The storage of a dry run leaves the version as it was sent.
        if !sent_version.is_empty() {
            meta::metadata_mut(&mut object).insert("resourceVersion".into(), sent_version.into());
        }
        let shown = crate::registry_form::show_dry_run(&resource, object);
        return Ok(Reply::Object { code: 201, payload: Payload::Value(shown) });
    }
    commit_new(call, object, generated)
}

/// The members the server fills in on creation.
pub(super) fn complete_new(call: &Call, object: &mut Value, now: &str) {
    let resource = &call.resource;
    let metadata = meta::metadata_mut(object);
    // What a webhook says of the deletion stays: it was wiped before (`WipeObjectMetaSystemFields`).
    for member in ["resourceVersion", "selfLink"] {
        metadata.remove(member);
    }
    metadata.insert("uid".into(), call.server.new_id().to_string().into());
    metadata.insert("creationTimestamp".into(), now.into());
    if resource.rules.generation != Generation::Never {
        metadata.insert("generation".into(), 1.into());
    }
    let named = metadata.get("name").and_then(Value::as_str).is_some_and(|n| !n.is_empty());
    if !named && let Some(prefix) = metadata.get("generateName").and_then(Value::as_str) {
        let name = generate_name(prefix, call.server.new_id());
        metadata.insert("name".into(), name.into());
    }
}

/// `names.SimpleNameGenerator`: at most 58 characters of the prefix and five random ones.
pub(super) fn generate_name(prefix: &str, random: uuid::Uuid) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let base: String = prefix.chars().take(58).collect();
    let suffix = random.as_bytes().iter().take(5).map(|b| {
        let index = usize::from(*b) % ALPHABET.len();
        char::from(ALPHABET.get(index).copied().unwrap_or(b'x'))
    });
    base.chars().chain(suffix).collect()
}

pub(super) fn already_exists(resource: &Resource, name: &str, existing: &Object) -> Status {
    let mut status = Status::already_exists(&resource.group, &resource.plural, name);
    if meta::is_deleting(&existing.value) {
        status.message = format!("object is being deleted: {}", status.message);
    }
    status
}

/// What etcd takes in one request; only a large body makes a large object.
pub(super) fn refuse_too_large(call: &Call, object: &Value) -> Result<(), Status> {
    const LARGEST: usize = 1_572_864;
    const SUSPICIOUS: usize = 1_000_000;
    if call.body.len() > SUSPICIOUS && object.to_string().len() > LARGEST {
        return Err(Status::unknown("etcdserver: request is too large"));
    }
    Ok(())
}

pub(super) fn commit_new(call: &Call, mut object: Value, generated: bool) -> Result<Reply, Status> {
    let resource = &call.resource;
    refuse_too_large(call, &object)?;
    for attempt in 0.. {
        let name = meta::object_name(&object).to_owned();
        let (value, form) = to_storage(resource, object.clone());
        let key = call.key(&name);
        let committed = call.server.store().commit(&resource.storage, &key, Expect::Absent, Change::Put(value, form));
        match committed {
            Ok(stored) => {
                crate::crd::after_commit(&call.server, resource, &stored);
                return Ok(call.stored(201, &stored));
            }
            Err(Raced(Some(_))) if generated && attempt < 8 => {
                let prefix = meta::metadata_text(&object, "generateName").to_owned();
                meta::metadata_mut(&mut object)
                    .insert("name".into(), generate_name(&prefix, call.server.new_id()).into());
            }
            Err(Raced(Some(existing))) => return Err(already_exists(resource, &name, &existing)),
            Err(Raced(None)) => break,
        }
    }
    Err(Status::internal("a creation lost its race against nobody"))
}

/// 422 about the object, under the kind that it says it has.
pub(super) fn invalid_object(resource: &Resource, object: &Value, name: &str, errors: &[FieldError]) -> Status {
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
pub(super) fn kind_errors(
    resource: &Resource,
    part: Part,
    before: Vec<FieldError>,
    object: &Value,
    old: Option<&Value>,
) -> Vec<FieldError> {
    let Some(custom) = &resource.custom else {
        let mut errors = resource.schema.validate_after(before, object, old);
        if part == Part::Status && resource.storage == crate::crd::STORAGE {
            errors.extend(crate::schema::validate_crd_status(object));
            return errors;
        }
        // A binding, a resize and the like are how a fixed field changes.
        let fixed = old.filter(|_| !matches!(part, Part::Named(_)));
        let own = strategy::validate_strategy(resource, object, fixed);
        // The strategy of old events does not look at metadata, which is looked at when it has nothing to say.
        if resource.storage == "events" && resource.group.is_empty() && !own.is_empty() {
            return own;
        }
        errors.extend(own);
        // `ValidateJobUpdate` looks at the whole spec once more.
        if resource.storage == "jobs.batch" && old.is_some() {
            let once = ["field is immutable", "not auto-generated"];
            let again =
                |e: &&FieldError| e.field.starts_with("spec.") && !once.iter().any(|text| e.message.ends_with(text));
            errors.extend(errors.clone().iter().filter(again).cloned());
        }
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
