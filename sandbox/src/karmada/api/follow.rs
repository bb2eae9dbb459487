//! Following a kind: list, watch, and list again when the watch ends.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::TryStreamExt;
use kube::core::WatchEvent;
use serde_json::{Value, json};
use tracing::debug;

use super::{ApiError, Change, Handler, Kind, Server, lock_state};
use crate::karmada::object::{Gvk, ObjectExt};

impl Server {
    pub(super) async fn follow_kind(&self, gvk: &Gvk, kind: &Kind) {
        let mut pause = Backoff::default();
        loop {
            match self.list_and_watch(gvk, kind, &mut pause).await {
                Ok(()) => debug!(server = self.name, %gvk, "watch ended"),
                Err(error) => {
                    debug!(server = self.name, %gvk, %error, "watch failed");
                    tokio::time::sleep(pause.next_gap()).await;
                }
            }
        }
    }

    async fn list_and_watch(&self, gvk: &Gvk, kind: &Kind, pause: &mut Backoff) -> Result<(), ApiError> {
        let path = self.resource(gvk).await?.path("", "");
        let list = self.get_raw(&path).await?;
        let mut version = list.text("/metadata/resourceVersion").to_owned();
        self.replace_objects(gvk, kind, list);
        loop {
            let query =
                format!("{path}?watch=true&allowWatchBookmarks=true&timeoutSeconds=300&resourceVersion={version}");
            let what = || format!("watch {path} on {}", self.name);
            let request = http::Request::get(&query)
                .body(Vec::new())
                .map_err(|error| ApiError::new(what(), kube::Error::HttpError(error)))?;
            let events =
                self.client.request_events::<Value>(request).await.map_err(|error| ApiError::new(what(), error))?;
            let mut events = std::pin::pin!(events);
            while let Some(event) = events.try_next().await.map_err(|error| ApiError::new(what(), error))? {
                pause.reset();
                match event {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                        version = object.resource_version().to_owned();
                        Self::apply_event(kind, object, true);
                    }
                    WatchEvent::Deleted(object) => {
                        version = object.resource_version().to_owned();
                        Self::apply_event(kind, object, false);
                    }
                    WatchEvent::Bookmark(mark) => version = mark.metadata.resource_version,
                    WatchEvent::Error(status) => return Err(ApiError::new(what(), kube::Error::Api(status))),
                }
            }
        }
    }

    fn replace_objects(&self, gvk: &Gvk, kind: &Kind, mut list: Value) {
        let items = match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        };
        let mut fresh = BTreeMap::new();
        for mut object in items {
            // Items of typed lists come without these.
            object.put(&["apiVersion"], json!(gvk.api_version()));
            object.put(&["kind"], json!(gvk.kind));
            fresh.insert((object.namespace().to_owned(), object.name().to_owned()), Arc::new(object));
        }
        let (changes, handlers) = {
            let mut state = lock_state(&kind.state);
            let old = std::mem::replace(&mut state.objects, fresh);
            let mut changes = Vec::new();
            for (name, new) in &state.objects {
                let before = old.get(name);
                if before.is_none_or(|before| before.resource_version() != new.resource_version()) {
                    changes.push(Change { old: before.cloned(), new: Some(new.clone()) });
                }
            }
            for (name, gone) in old {
                if !state.objects.contains_key(&name) {
                    changes.push(Change { old: Some(gone), new: None });
                }
            }
            (changes, state.handlers.clone())
        };
        call_handlers(&handlers, &changes);
        let _ = kind.synced.send_replace(true);
    }

    fn apply_event(kind: &Kind, object: Value, exists: bool) {
        let name = (object.namespace().to_owned(), object.name().to_owned());
        let (change, handlers) = {
            let mut state = lock_state(&kind.state);
            let change = if exists {
                let new = Arc::new(object);
                Change { old: state.objects.insert(name, new.clone()), new: Some(new) }
            } else {
                state.objects.remove(&name);
                // The last state, which the deletion event carries, is what handlers want to see.
                Change { old: Some(Arc::new(object)), new: None }
            };
            (change, state.handlers.clone())
        };
        call_handlers(&handlers, std::slice::from_ref(&change));
    }
}

fn call_handlers(handlers: &[Handler], changes: &[Change]) {
    for change in changes {
        for handler in handlers {
            handler(change);
        }
    }
}

/// Gaps between attempts to reach a server: doubling from 50 ms to 1 s.
#[derive(Debug, Default)]
struct Backoff(u32);

impl Backoff {
    fn next_gap(&mut self) -> Duration {
        let gap = Duration::from_millis(50 << self.0.min(7)).min(Duration::from_secs(1));
        self.0 += 1;
        gap
    }

    fn reset(&mut self) {
        self.0 = 0;
    }
}
