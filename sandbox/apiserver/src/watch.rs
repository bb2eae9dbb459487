//! Watches (`storage/cacher`): the initial state where asked for, then every change after a revision, as selectors see
//! it, with bookmarks; ended by the deadline, by falling behind, when the kind goes away, or with the data.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use crate::accept::Transform;
use crate::call::{Call, Payload, Reply};
use crate::error::Status;
use crate::options::ListOptions;
use crate::read::{parse_version, too_large};
use crate::registry_form::view_object;
use crate::resource::Resource;
use crate::server::ApiServer;
use crate::store::{Changes, Event, EventKind, Object, OutOfRange, encode_json};
use crate::table::{IncludeObject, to_table};

const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// A bookmark is due this long before the end.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// How long a streaming list waits for a version that is not there yet.
const FRESHNESS_WAIT: Duration = Duration::from_secs(3);
/// Without timeoutSeconds a watch lives this long (the real server picks 30 to 60 minutes).
const DEFAULT_LIFE: Duration = Duration::from_secs(45 * 60);
const BATCH: usize = 256;

pub fn watch_objects(call: &Call) -> Result<Reply, Status> {
    let mut options = ListOptions::parse(&call.query, &call.resource, true)?;
    let from = parse_version(&options.resource_version)?;
    if !call.info.name.is_empty() {
        // The deprecated path of one object.
        let selector = format!("metadata.name={}", call.info.name);
        options.fields =
            crate::selector::FieldSelector::parse(&selector, &call.resource).map_err(Status::bad_request)?;
    }
    let include = match call.output.transform {
        Transform::Table(_) => crate::http::include_object(call)?,
        _ => IncludeObject::Metadata,
    };
    let (changes, current, life, initial) = {
        let mut store = call.server.store();
        let changes = store.changes(&call.resource.storage);
        let current = store.revision();
        let wants_initial = match options.send_initial_events {
            Some(wanted) => wanted,
            None => from.is_none_or(|v| v == 0),
        };
        let initial = wants_initial.then(|| store.list(&call.resource.storage, None));
        (changes, current, store.life(), initial)
    };
    // One that is over before it starts ends at once.
    let lasts = options.timeout_seconds.filter(|s| *s != 0).map(|s| u64::try_from(s).unwrap_or_default());
    let now = Instant::now();
    let mut stream = Watch {
        server: call.server.clone(),
        form: Form {
            server: call.server.clone(),
            resource: call.resource.clone(),
            transform: call.output.transform.clone(),
            include,
            columns: true,
        },
        namespace: call.info.namespace.clone(),
        cursor: current,
        life,
        ready: VecDeque::new(),
        changes,
        deadline: now + lasts.map_or(DEFAULT_LIFE, Duration::from_secs),
        next_bookmark: now + BOOKMARK_EVERY,
        bookmarks: options.bookmarks,
        waits_for: None,
        ended: false,
        options,
    };
    stream.schedule_bookmark(now);
    match (initial, from) {
        (Some(objects), Some(version)) if version > current => {
            drop(objects);
            stream.waits_for = Some((version, now + FRESHNESS_WAIT));
        }
        (Some(objects), _) => stream.start_with(objects),
        // Without initial events, version 0 is the newest one.
        (None, version) => stream.cursor = version.filter(|version| *version != 0).unwrap_or(current),
    }
    let body = futures::stream::unfold(stream, |mut stream| async move {
        let frame = stream.next().await?;
        Some((Ok::<Bytes, std::convert::Infallible>(frame), stream))
    });
    Ok(Reply::Stream(Body::from_stream(body)))
}

struct Watch {
    server: ApiServer,
    form: Form,
    /// Empty: all.
    namespace: String,
    options: ListOptions,
    /// Everything up to here was sent or does not matter.
    cursor: u64,
    /// Of the store that it began with.
    life: u64,
    ready: VecDeque<Bytes>,
    changes: Arc<Changes>,
    deadline: Instant,
    next_bookmark: Instant,
    bookmarks: bool,
    /// A streaming list of a future version waits for it, but not long.
    waits_for: Option<(u64, Instant)>,
    ended: bool,
}

impl Watch {
    fn schedule_bookmark(&mut self, now: Instant) {
        let before_end = self.deadline.checked_sub(BOOKMARK_BEFORE_END).unwrap_or(self.deadline);
        self.next_bookmark = now + BOOKMARK_EVERY;
        if before_end > now && before_end < self.next_bookmark {
            self.next_bookmark = before_end;
        }
    }

    /// Queues the state at `cursor` as additions, and the bookmark that ends them.
    fn start_with(&mut self, objects: Vec<Arc<Object>>) {
        for object in objects {
            if self.concerns(crate::meta::metadata_text(&object.value, "namespace")) {
                let payload = view_object(&self.form.resource, &object);
                if self.selects(payload.value()) {
                    self.ready.push_back(self.form.frame("ADDED", &payload));
                }
            }
        }
        if self.bookmarks {
            let frame = self.form.bookmark(self.cursor, true);
            self.ready.push_back(frame);
        }
    }

    fn concerns(&self, namespace: &str) -> bool {
        self.namespace.is_empty() || !self.form.resource.namespaced || self.namespace == namespace
    }

    fn selects(&self, object: &Value) -> bool {
        self.options.labels.matches(object) && self.options.fields.matches(object)
    }

    async fn next(&mut self) -> Option<Bytes> {
        let changes = Arc::clone(&self.changes);
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            // Asked for before looking, so that no change falls between the two.
            let change = changes.next();
            // A server that came back with a backup has no connection from before.
            if self.ended || self.server.store().life() != self.life {
                return None;
            }
            if let Some((version, until)) = self.waits_for {
                self.wait_for_version(version, until, change).await;
                continue;
            }
            if self.pull() {
                continue;
            }
            if !self.is_served() {
                return None;
            }
            self.sleep(change).await;
        }
    }

    /// Waits for a change, the next bookmark or the end.
    async fn sleep(&mut self, change: Notified<'_>) {
        let bookmark = if self.bookmarks { self.next_bookmark } else { self.deadline };
        tokio::select! {
            biased;
            () = change => {}
            () = tokio::time::sleep_until(self.deadline) => self.ended = true,
            () = tokio::time::sleep_until(bookmark), if self.bookmarks && bookmark < self.deadline => {
                let revision = self.server.store().revision();
                if revision >= self.cursor {
                    self.cursor = revision;
                    let frame = self.form.bookmark(revision, false);
                    self.ready.push_back(frame);
                }
                // The one before the end is the last.
                let now = Instant::now();
                self.schedule_bookmark(now);
                if self.next_bookmark <= now {
                    self.next_bookmark = self.deadline;
                }
            }
        }
    }

    async fn wait_for_version(&mut self, version: u64, until: Instant, change: Notified<'_>) {
        let current = self.server.store().revision();
        if current >= version {
            let objects = self.server.store().list(&self.form.resource.storage, None);
            self.cursor = current;
            self.waits_for = None;
            self.start_with(objects);
            return;
        }
        if Instant::now() >= until {
            self.fail(too_large(version, current));
            return;
        }
        tokio::select! {
            biased;
            () = change => {}
            () = tokio::time::sleep_until(until.min(self.deadline)) => {}
        }
    }

    fn fail(&mut self, status: Status) {
        let frame = encode_json(&json!({"type": "ERROR", "object": status.into_value()}));
        self.ready.push_back(event_line(&frame));
        self.ended = true;
    }

    /// Whether the kind still exists in this form.
    fn is_served(&self) -> bool {
        let resource = &self.form.resource;
        let Some(custom) = &resource.custom else { return true };
        let registry = self.server.registry();
        registry
            .get(&resource.group, &resource.version, &resource.plural)
            .and_then(|r| r.custom.as_ref())
            .is_some_and(|c| c.crd_uid == custom.crd_uid)
    }

    /// Takes the next events from the store; whether there was anything to look at.
    fn pull(&mut self) -> bool {
        let events = self.server.store().events_after(&self.form.resource.storage, self.cursor, BATCH);
        let events = match events {
            Ok(events) => events,
            Err(OutOfRange::Compacted { oldest }) => {
                let asked = self.cursor;
                self.fail(Status::expired(format!("too old resource version: {asked} ({oldest})")));
                return true;
            }
            Err(OutOfRange::Future { .. }) => Vec::new(),
        };
        for event in &events {
            self.cursor = event.revision;
            if let Some(frame) = self.frame_of(event) {
                self.ready.push_back(frame);
            }
        }
        !events.is_empty()
    }

    /// What this watcher sees of a change: leaving the selection is a deletion, entering it an addition.
    fn frame_of(&mut self, event: &Event) -> Option<Bytes> {
        if !self.concerns(&event.key.namespace) {
            return None;
        }
        let now = view_object(&self.form.resource, &event.object);
        if self.options.labels.is_empty() && self.options.fields.is_empty() {
            let kind = match event.kind {
                EventKind::Added => "ADDED",
                EventKind::Modified => "MODIFIED",
                EventKind::Deleted => "DELETED",
            };
            return Some(self.form.frame(kind, &now));
        }
        let before = event.previous.as_ref().map(|o| view_object(&self.form.resource, o));
        let matched = before.as_ref().is_some_and(|b| self.selects(b.value()));
        let matches = event.kind != EventKind::Deleted && self.selects(now.value());
        match (matched, matches) {
            (false, false) => None,
            (false, true) => Some(self.form.frame("ADDED", &now)),
            (true, true) => Some(self.form.frame("MODIFIED", &now)),
            (true, false) => {
                // The previous state, at the version of the change.
                let mut gone = before?.into_value();
                gone["metadata"]["resourceVersion"] = event.revision.to_string().into();
                Some(self.form.frame("DELETED", &Payload::Value(gone)))
            }
        }
    }
}

/// How events look on the wire.
struct Form {
    server: ApiServer,
    resource: Arc<Resource>,
    transform: Transform,
    include: IncludeObject,
    /// Whether the next table carries the column definitions.
    columns: bool,
}

impl Form {
    fn frame(&mut self, kind: &str, payload: &Payload) -> Bytes {
        match &self.transform {
            Transform::None => match payload {
                Payload::Stored(object) => wrap_event(kind, &object.encoded()),
                Payload::Value(value) => wrap_event(kind, &encode_json(value)),
            },
            Transform::Table(version) => {
                let mut table =
                    to_table(&[payload.value()], &self.resource, self.include, self.columns, self.server.now());
                table["apiVersion"] = format!("meta.k8s.io/{version}").into();
                table["metadata"]["resourceVersion"] =
                    crate::meta::metadata_text(payload.value(), "resourceVersion").into();
                self.columns = false;
                wrap_event(kind, &encode_json(&table))
            }
            Transform::PartialObject(version) | Transform::PartialList(version) => {
                wrap_event(kind, &encode_json(&partial_metadata(payload.value(), version)))
            }
        }
    }

    fn bookmark(&mut self, revision: u64, end_of_initial: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if end_of_initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let mut object = json!({
            "kind": self.resource.kind,
            "apiVersion": self.resource.api_version(),
            "metadata": metadata,
        });
        crate::strategy::bookmark_shape(&self.resource, &mut object);
        self.frame("BOOKMARK", &Payload::Value(object))
    }
}

/// `PartialObjectMetadata` of an object.
pub fn partial_metadata(object: &Value, version: &str) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({})),
    })
}

fn wrap_event(kind: &str, object: &[u8]) -> Bytes {
    let mut frame = Vec::with_capacity(object.len() + 40);
    frame.extend_from_slice(b"{\"type\":\"");
    frame.extend_from_slice(kind.as_bytes());
    frame.extend_from_slice(b"\",\"object\":");
    frame.extend_from_slice(object);
    frame.extend_from_slice(b"}\n");
    frame.into()
}

fn event_line(json: &Bytes) -> Bytes {
    let mut frame = json.to_vec();
    frame.push(b'\n');
    frame.into()
}
