//! One API server as the stand-ins use it: discovery, writes under a name, and every kind watched once.
//!
//! Controllers read what the watch brought (as client-go's informers do) and write through a [`Writer`], whose name is
//! the field manager and user agent, so that a server's audit and `managedFields` tell the parts of Karmada apart.

mod error;
mod follow;
mod resource;
mod write;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
};

use kube::Client;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::debug;

pub use error::ApiError;
pub use resource::Resource;
pub use write::{APPLY, Delete, Writer};

use super::object::{Gvk, ObjectExt, Shared};

/// What happened to an object. Neither side: nothing; only `new`: it appeared; only `old`: it went.
#[derive(Debug, Clone)]
pub struct Change {
    /// As it was.
    pub old: Option<Shared>,
    /// As it is.
    pub new: Option<Shared>,
}

impl Change {
    /// The object as it was last seen.
    #[must_use]
    pub fn latest(&self) -> Option<&Shared> {
        self.new.as_ref().or(self.old.as_ref())
    }
}

/// Is told of every change of a kind, in the order of the watch. Must not block.
pub type Handler = Arc<dyn Fn(&Change) + Send + Sync>;

type Name = (String, String);

struct Kind {
    state: Mutex<KindState>,
    synced: watch::Sender<bool>,
}

#[derive(Default)]
struct KindState {
    objects: BTreeMap<Name, Shared>,
    handlers: Vec<Handler>,
}

/// One API server.
pub struct Server {
    /// `host`, or the member's name.
    pub name: String,
    client: Client,
    resources: RwLock<BTreeMap<Gvk, Resource>>,
    kinds: Mutex<BTreeMap<Gvk, Arc<Kind>>>,
    followed: Mutex<BTreeSet<Gvk>>,
    shutdown: CancellationToken,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A poisoned lock means that a handler panicked; the map itself is whole.
pub(super) fn lock_state<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// A server behind a client. Its watches end with `shutdown`.
    #[must_use]
    pub fn new(name: &str, client: Client, shutdown: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            client,
            resources: RwLock::default(),
            kinds: Mutex::default(),
            followed: Mutex::default(),
            shutdown,
        })
    }

    /// The client, for what this type does not do.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Ends when the server is no longer looked at.
    #[must_use]
    pub fn shutdown(&self) -> &CancellationToken {
        &self.shutdown
    }

    /// Writes under a name.
    #[must_use]
    pub fn writer(self: &Arc<Self>, name: &'static str) -> Writer {
        Writer { server: self.clone(), name }
    }

    /// GET of any path.
    pub async fn get_raw(&self, path: &str) -> Result<Value, ApiError> {
        self.send_request("GET", path, "", None).await
    }

    async fn send_request(
        &self,
        verb: &str,
        path: &str,
        agent: &str,
        body: Option<(&str, &Value)>,
    ) -> Result<Value, ApiError> {
        let what = || format!("{verb} {path} on {}", self.name);
        let mut request = http::Request::builder().method(verb).uri(path).header("accept", "application/json");
        if !agent.is_empty() {
            request = request.header("user-agent", agent);
        }
        let bytes = match body {
            Some((content, value)) => {
                request = request.header("content-type", content);
                serde_json::to_vec(value).map_err(|error| ApiError::new(what(), kube::Error::SerdeError(error)))?
            }
            None => Vec::new(),
        };
        let request = request.body(bytes).map_err(|error| ApiError::new(what(), kube::Error::HttpError(error)))?;
        self.client.request::<Value>(request).await.map_err(|error| ApiError::new(what(), error))
    }

    /// How a kind is served, asking the server the first time.
    pub async fn resource(&self, gvk: &Gvk) -> Result<Resource, ApiError> {
        if let Some(known) = self.known_resource(gvk) {
            return Ok(known);
        }
        self.discover_version(&gvk.api_version()).await?;
        self.known_resource(gvk).ok_or_else(|| {
            let message = format!("no matches for kind \"{}\" in version \"{}\"", gvk.kind, gvk.api_version());
            let status = serde_json::from_value(json!({"code": 404, "reason": "NotFound", "message": message}));
            ApiError::new("mapping a kind", kube::Error::Api(Box::new(status.unwrap_or_default())))
        })
    }

    fn known_resource(&self, gvk: &Gvk) -> Option<Resource> {
        self.resources.read().unwrap_or_else(PoisonError::into_inner).get(gvk).cloned()
    }

    async fn discover_version(&self, api_version: &str) -> Result<Vec<Resource>, ApiError> {
        let root = if api_version.contains('/') { "/apis" } else { "/api" };
        let list = self.get_raw(&format!("{root}/{api_version}")).await?;
        let found: Vec<Resource> = list
            .items("/resources")
            .iter()
            .filter(|one| !one.text("/name").contains('/'))
            .map(|one| Resource {
                gvk: Gvk::new(api_version, one.text("/kind")),
                plural: one.text("/name").to_owned(),
                namespaced: one.flag("/namespaced"),
                verbs: one.items("/verbs").iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            })
            .collect();
        let mut known = self.resources.write().unwrap_or_else(PoisonError::into_inner);
        for resource in &found {
            known.insert(resource.gvk.clone(), resource.clone());
        }
        Ok(found)
    }

    /// Everything the server serves, each resource in its group's preferred version, or the first that has it. A
    /// version that cannot answer is left out.
    pub async fn discover_all(&self) -> Result<Vec<Resource>, ApiError> {
        let mut found = self.discover_version("v1").await?;
        for group in self.get_raw("/apis").await?.items("/groups") {
            let preferred = group.text("/preferredVersion/groupVersion");
            let others = group.items("/versions").iter().map(|version| version.text("/groupVersion"));
            let mut known: BTreeSet<String> = BTreeSet::new();
            for version in std::iter::once(preferred).chain(others.filter(|version| *version != preferred)) {
                match self.discover_version(version).await {
                    Ok(resources) => {
                        found.extend(resources.into_iter().filter(|resource| known.insert(resource.plural.clone())));
                    }
                    Err(error) => debug!(server = self.name, %error, "a version is not served now"),
                }
            }
        }
        Ok(found)
    }

    /// Notes that handlers are being put on a kind; false when they were before.
    pub(super) fn begin_following(&self, gvk: &Gvk) -> bool {
        lock_state(&self.followed).insert(gvk.clone())
    }

    fn kind(&self, gvk: &Gvk) -> Option<Arc<Kind>> {
        lock_state(&self.kinds).get(gvk).cloned()
    }

    /// Starts to watch a kind, once, however often it is asked for.
    pub fn watch_kind(self: &Arc<Self>, gvk: &Gvk) {
        let kind = {
            let mut kinds = lock_state(&self.kinds);
            if kinds.contains_key(gvk) {
                return;
            }
            let kind = Arc::new(Kind { state: Mutex::default(), synced: watch::Sender::new(false) });
            kinds.insert(gvk.clone(), kind.clone());
            kind
        };
        let (server, gvk) = (self.clone(), gvk.clone());
        tokio::spawn(async move {
            let shutdown = server.shutdown.clone();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {}
                () = server.follow_kind(&gvk, &kind) => {}
            }
        });
    }

    /// Watches a kind and tells a handler, first of all objects already there.
    pub fn add_handler(self: &Arc<Self>, gvk: &Gvk, handler: Handler) {
        self.watch_kind(gvk);
        let Some(kind) = self.kind(gvk) else { return };
        let present: Vec<Shared> = {
            let mut state = lock_state(&kind.state);
            state.handlers.push(handler.clone());
            state.objects.values().cloned().collect()
        };
        let tell = handler;
        for object in present {
            tell(&Change { old: None, new: Some(object) });
        }
    }

    /// Waits until a watched kind has been listed once.
    pub async fn until_synced(&self, gvk: &Gvk) {
        if let Some(kind) = self.kind(gvk) {
            let mut synced = kind.synced.subscribe();
            // An error means that the watch is gone, with the server.
            let _ = synced.wait_for(|synced| *synced).await;
        }
    }

    /// Whether a kind is watched and was listed.
    #[must_use]
    pub fn is_synced(&self, gvk: &Gvk) -> bool {
        self.kind(gvk).is_some_and(|kind| *kind.synced.borrow())
    }

    /// An object as the watch saw it last.
    #[must_use]
    pub fn cached(&self, gvk: &Gvk, namespace: &str, name: &str) -> Option<Shared> {
        lock_state(&self.kind(gvk)?.state).objects.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// All objects of a kind as the watch saw them last.
    #[must_use]
    pub fn list(&self, gvk: &Gvk) -> Vec<Shared> {
        self.kind(gvk).map(|kind| lock_state(&kind.state).objects.values().cloned().collect()).unwrap_or_default()
    }

    /// All objects of a kind in a namespace, as the watch saw them last.
    #[must_use]
    pub fn list_in(&self, gvk: &Gvk, namespace: &str) -> Vec<Shared> {
        let Some(kind) = self.kind(gvk) else { return Vec::new() };
        let state = lock_state(&kind.state);
        let from = (namespace.to_owned(), String::new());
        state
            .objects
            .range(from..)
            .take_while(|((at, _), _)| at == namespace)
            .map(|(_, object)| object.clone())
            .collect()
    }

    /// GET of an object, `None` when there is none.
    pub async fn get_live(&self, gvk: &Gvk, namespace: &str, name: &str) -> Result<Option<Value>, ApiError> {
        let path = self.resource(gvk).await?.path(namespace, name);
        match self.get_raw(&path).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All objects of a kind in a namespace, as the server has them now.
    pub async fn live_in(&self, resource: &Resource, namespace: &str) -> Result<Vec<Value>, ApiError> {
        Ok(self.get_raw(&resource.path(namespace, "")).await?.items("/items").to_vec())
    }

    /// All objects of a kind with a label, in all namespaces, as the server has them now.
    pub async fn live_labelled(&self, gvk: &Gvk, label: &str, value: &str) -> Result<Vec<Shared>, ApiError> {
        let path = self.resource(gvk).await?.path("", "");
        let list = self.get_raw(&format!("{path}?labelSelector={label}%3D{value}")).await?;
        Ok(list.items("/items").iter().cloned().map(Arc::new).collect())
    }

    /// The object from the watch, or live when the watch does not have it.
    pub async fn get_cached_or_live(&self, gvk: &Gvk, namespace: &str, name: &str) -> Result<Option<Shared>, ApiError> {
        match self.cached(gvk, namespace, name) {
            Some(object) => Ok(Some(object)),
            None => Ok(self.get_live(gvk, namespace, name).await?.map(Arc::new)),
        }
    }
}
