//! Following a kind of objects: what happens to them as events on a channel, in order, for ever.
//!
//! Rule (`kube::runtime::watcher`, client-go's reflector): list, watch from that version, list again when the watch
//! breaks. A restart (expired version, lost connection, server gone) is one [`Event::Reset`] with all objects of now,
//! so a state machine that takes `Reset` needs no other repair. Objects that do not parse are logged and left out; they
//! never stop the others. A kind that the server does not have yet is asked for again; where it may lack it for good it
//! counts as listed meanwhile, without objects.
//!
//! `kube::runtime` does the watching. Ours is what it leaves open: one event for a whole list, a wait that grows while
//! lists or watches fail (its backoff starts over with each `Init`), one log line for an outage, and [`WatchHealth`].

mod declared_kinds;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

pub use caldera_crds::object::api_resource;
pub use declared_kinds::{declare_kinds, list_kind_faults, read_declared_kinds};
use futures::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DynamicObject, ListParams},
    runtime::watcher::{self, watcher},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::{sync::mpsc, task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{client::describe_error, object::Unread};

/// What happened to a kind's objects.
#[derive(Debug, Clone)]
pub enum Event<K> {
    /// These are all objects now; forget the others.
    Reset(Vec<K>),
    /// One was created or changed.
    Applied(K),
    /// One is gone; its last state.
    Deleted(K),
}

impl<K> Event<K> {
    /// The same event with each object mapped; objects that map to nothing are left out.
    pub fn filter_map<T>(self, mut map: impl FnMut(K) -> Option<T>) -> Option<Event<T>> {
        match self {
            Self::Reset(all) => Some(Event::Reset(all.into_iter().filter_map(map).collect())),
            Self::Applied(one) => map(one).map(Event::Applied),
            Self::Deleted(one) => map(one).map(Event::Deleted),
        }
    }
}

impl<K> Event<K> {
    /// The objects to store, and which of the `known` ones to remove.
    pub fn split_changes<Q: Ord>(
        self,
        known: impl IntoIterator<Item = Q>,
        key_of: impl Fn(&K) -> Q,
    ) -> (Vec<K>, BTreeSet<Q>) {
        match self {
            Self::Reset(all) => {
                let mut gone: BTreeSet<Q> = known.into_iter().collect();
                for one in &all {
                    gone.remove(&key_of(one));
                }
                (all, gone)
            }
            Self::Applied(one) => (vec![one], BTreeSet::new()),
            Self::Deleted(one) => (Vec::new(), BTreeSet::from([key_of(&one)])),
        }
    }
}

impl<K: Ord, V> Event<(K, V)> {
    /// Brings a map of all objects up to date.
    pub fn apply_to(self, objects: &mut BTreeMap<K, V>) {
        match self {
            Self::Reset(all) => *objects = all.into_iter().collect(),
            Self::Applied((key, object)) => drop(objects.insert(key, object)),
            Self::Deleted((key, _)) => drop(objects.remove(&key)),
        }
    }
}

/// Since when a watch has failed again and again; `None` while it does not.
///
/// A watch that resumes is silent until something happens, so a single failure counts for nothing. After the second one
/// in a row everything is listed anew: that this succeeded can be seen. A server that allows the list may still refuse
/// the watch, so it counts as failing until the watch told of a change, or held for some seconds after the list.
#[derive(Debug, Clone, Default)]
pub struct WatchHealth(Arc<Mutex<Option<Instant>>>);

impl WatchHealth {
    /// Of a watch that has failed before: it counts as failing until it was seen to hold.
    #[must_use]
    pub fn failing() -> Self {
        let health = Self::default();
        health.record_failure();
        health
    }

    /// Since when it fails, if it does.
    #[must_use]
    pub fn failing_since(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record_failure(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Instant::now);
    }

    fn record_success(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Whether objects of a kind were listed before, by whoever followed it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListedBefore(Arc<AtomicBool>);

/// Which objects are watched, and who needs to know how well that goes. Made of either alone.
#[derive(Debug, Clone, Default)]
pub struct WatchOptions {
    config: watcher::Config,
    health: Option<WatchHealth>,
    may_be_absent: bool,
    may_be_refused: Option<ListedBefore>,
    namespace: Option<String>,
}

impl From<watcher::Config> for WatchOptions {
    fn from(config: watcher::Config) -> Self {
        Self { config, ..Self::default() }
    }
}

impl From<WatchHealth> for WatchOptions {
    fn from(health: WatchHealth) -> Self {
        Self { health: Some(health), ..Self::default() }
    }
}

impl WatchOptions {
    /// The same, and how it goes is told here.
    #[must_use]
    pub fn with_health(self, health: WatchHealth) -> Self {
        Self { health: Some(health), ..self }
    }

    /// The same in one namespace: of what [`Follower::follow_json`] follows.
    #[must_use]
    pub fn in_namespace(self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..self }
    }

    /// The same, of a kind that the server may lack (`may`): it has no objects then, and is looked for once in
    /// [`ABSENT_RETRY`].
    #[must_use]
    pub fn allow_absent_kind(self, may: bool) -> Self {
        Self { may_be_absent: may, ..self }
    }

    /// The same, of a kind that the server may lack, or may not let us list: it has no objects then either, unless some
    /// were listed before. Those are still taken to be there: a right that lacks for a while ends no job.
    #[must_use]
    pub(crate) fn allow_unlisted_kind(self, before: ListedBefore) -> Self {
        Self { may_be_absent: true, may_be_refused: Some(before), ..self }
    }

    /// Whether this answer to a list says that there is nothing to list.
    fn forgives_answer(&self, code: u16) -> bool {
        code == 404 && self.may_be_absent || code == 403 && self.may_be_refused.is_some()
    }

    fn note_listed(&self) {
        self.may_be_refused.iter().for_each(|before| before.0.store(true, Ordering::Relaxed));
    }

    /// Whether what was listed before this answer is still taken to be there.
    fn keeps_listed(&self, code: u16) -> bool {
        code == 403 && self.may_be_refused.as_ref().is_some_and(|before| before.0.load(Ordering::Relaxed))
    }
}

/// Follows kinds of one server, all into one channel, until it is stopped or nobody receives any more.
#[derive(Clone)]
pub struct Follower<T> {
    client: Client,
    events: mpsc::Sender<T>,
    stop: CancellationToken,
}

impl<T: Send + 'static> Follower<T> {
    /// Follows nothing yet.
    pub const fn new(client: Client, events: mpsc::Sender<T>, stop: CancellationToken) -> Self {
        Self { client, events, stop }
    }

    /// Follows a typed kind in the background. Only what `read` makes of an object is kept, so a long list is never in
    /// memory whole. `convert` makes the message of an event, or none.
    pub fn follow_typed<K, R, O>(
        &self,
        options: impl Into<WatchOptions>,
        mut read: impl FnMut(K) -> Option<R> + Send + 'static,
        convert: impl FnMut(Event<R>) -> O + Send + 'static,
    ) -> JoinHandle<()>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
        R: Send + 'static,
        O: Into<Option<T>>,
    {
        let kind = K::kind(&()).into_owned();
        let named = kind.clone();
        let read_typed = move |unread: Unread<K>| {
            let (name, namespace) = (unread.meta().name.clone(), unread.meta().namespace.clone());
            match serde_json::from_value(unread.into_value()) {
                Ok(object) => read(object),
                Err(error) => {
                    tracing::warn!(kind = named, namespace, name, %error, "left out an object that does not parse");
                    None
                }
            }
        };
        let api: Api<Unread<K>> = Api::all(self.client.clone());
        self.spawn_watch(kind, api, options.into(), read_typed, convert)
    }

    /// [`Self::follow_typed`] in one namespace.
    pub fn follow_namespace<K, R, O>(
        &self,
        namespace: &str,
        mut read: impl FnMut(K) -> Option<R> + Send + 'static,
        convert: impl FnMut(Event<R>) -> O + Send + 'static,
    ) -> JoinHandle<()>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Debug
            + Send
            + 'static,
        R: Send + 'static,
        O: Into<Option<T>>,
    {
        let api: Api<Unread<K>> = Api::namespaced(self.client.clone(), namespace);
        let read_typed = move |unread: Unread<K>| serde_json::from_value(unread.into_value()).ok().and_then(&mut read);
        self.spawn_watch(K::kind(&()).into_owned(), api, WatchOptions::default(), read_typed, convert)
    }

    /// [`Self::follow_typed`] for any kind, as JSON; in one namespace where the options name one.
    pub fn follow_json<R, O>(
        &self,
        resource: ApiResource,
        options: impl Into<WatchOptions>,
        mut read: impl FnMut(Value) -> Option<R> + Send + 'static,
        convert: impl FnMut(Event<R>) -> O + Send + 'static,
    ) -> JoinHandle<()>
    where
        R: Send + 'static,
        O: Into<Option<T>>,
    {
        let (kind, options) = (resource.kind.clone(), options.into());
        let api: Api<Unread<DynamicObject>> = match &options.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        let read_json = move |object: Unread<DynamicObject>| read(add_type_fields(object, &resource)?);
        self.spawn_watch(kind, api, options, read_json, convert)
    }

    fn spawn_watch<K, R, O>(
        &self,
        kind: String,
        api: Api<K>,
        options: WatchOptions,
        read: impl FnMut(K) -> Option<R> + Send + 'static,
        mut convert: impl FnMut(Event<R>) -> O + Send + 'static,
    ) -> JoinHandle<()>
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
        K::DynamicType: Clone,
        R: Send + 'static,
        O: Into<Option<T>>,
    {
        let (events, stop) = (self.events.clone(), self.stop.clone());
        let convert = move |event| convert(event).into();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = watch_objects(&kind, &api, &options, read, convert, &events) => {}
            }
        })
    }
}

/// First wait after a failed watch; doubles up to [`MAX_BACKOFF`].
const INITIAL_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// A watch that holds for so long after a list works again. Until then lists are as rare as attempts that fail.
const HELD_WATCH: Duration = Duration::from_secs(5);
/// How often a kind that may be absent is looked for while it is.
pub const ABSENT_RETRY: Duration = Duration::from_secs(30);

/// What a watch failed at, in the server's own sentence where it has one.
fn describe_watch_error(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(cause) => format!("can not list: {}", describe_error(cause)),
        watcher::Error::WatchStartFailed(cause) | watcher::Error::WatchFailed(cause) => describe_error(cause),
        watcher::Error::WatchError(status) => status.message.clone(),
        watcher::Error::NoResourceVersion => error.to_string(),
    }
}

/// Watches until nobody receives any more.
async fn watch_objects<K, R, T>(
    kind: &str,
    api: &Api<K>,
    options: &WatchOptions,
    mut read: impl FnMut(K) -> Option<R> + Send,
    mut convert: impl FnMut(Event<R>) -> Option<T> + Send,
    events: &mpsc::Sender<T>,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    K::DynamicType: Clone,
    R: Send,
    T: Send,
{
    let list_and_watch = || Box::pin(watcher(api.clone(), options.config.clone()));
    let mut stream = list_and_watch();
    let mut listed = Vec::new();
    let mut backoff = INITIAL_BACKOFF;
    let mut failing = options.health.as_ref().is_some_and(|health| health.failing_since().is_some());
    let mut is_listed = false;
    let mut absent = None;
    loop {
        // Only after a list silence says that the watch holds: a server that is gone is silent too.
        let next = if failing && is_listed {
            tokio::time::timeout(HELD_WATCH, stream.next()).await.ok()
        } else {
            Some(stream.next().await)
        };
        if failing && matches!(next, None | Some(Some(Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_))))) {
            tracing::info!(kind, "watching again");
            (failing, backoff) = (false, INITIAL_BACKOFF);
            options.health.iter().for_each(WatchHealth::record_success);
        }
        let Some(next) = next else { continue };
        let Some(next) = next else { return };
        let event = match next {
            Ok(event) => event,
            // A kube-apiserver that has not read its CRDs yet answers 503.
            Err(watcher::Error::InitialListFailed(kube::Error::Api(status)))
                if options.forgives_answer(status.code) =>
            {
                if absent != Some(status.code) {
                    let (why, keeps) = (&status.message, options.keeps_listed(status.code));
                    tracing::info!(kind, why, keeps, "the server shows no such kind; it is looked for now and then");
                    absent = Some(status.code);
                    (failing, backoff) = (false, INITIAL_BACKOFF);
                    options.health.iter().for_each(WatchHealth::record_success);
                    listed.clear();
                    if !keeps
                        && let Some(message) = convert(Event::Reset(Vec::new()))
                        && events.send(message).await.is_err()
                    {
                        return;
                    }
                }
                tokio::time::sleep(ABSENT_RETRY).await;
                continue;
            }
            Err(error) => {
                let error = describe_watch_error(&error);
                is_listed = false;
                if failing {
                    tracing::debug!(kind, error, "still can not watch");
                    if let Some(health) = &options.health {
                        health.record_failure();
                        stream = list_and_watch();
                    }
                } else {
                    tracing::warn!(kind, error, "can not watch; trying again until it works");
                }
                failing = true;
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(MAX_BACKOFF);
                continue;
            }
        };
        is_listed = !matches!(event, watcher::Event::Init | watcher::Event::InitApply(_));
        absent = absent.filter(|_| matches!(event, watcher::Event::Init));
        let event = match event {
            watcher::Event::Init => {
                listed.clear();
                continue;
            }
            watcher::Event::InitApply(object) => {
                listed.extend(read(object));
                continue;
            }
            watcher::Event::InitDone => {
                options.note_listed();
                Some(Event::Reset(std::mem::take(&mut listed)))
            }
            watcher::Event::Apply(object) => read(object).map(Event::Applied),
            watcher::Event::Delete(object) => read(object).map(Event::Deleted),
        };
        if let Some(message) = event.and_then(&mut convert)
            && events.send(message).await.is_err()
        {
            return;
        }
    }
}

/// Items of a list carry no type of their own.
fn add_type_fields(object: Unread<DynamicObject>, resource: &ApiResource) -> Option<Value> {
    let mut value = object.into_value();
    let map = value.as_object_mut()?;
    map.insert("apiVersion".into(), resource.api_version.clone().into());
    map.insert("kind".into(), resource.kind.clone().into());
    Some(value)
}

/// Objects asked for at once, as kube's watcher does.
pub(crate) const PAGE: u32 = 500;

/// All objects of a kind as they are now (in one namespace, or everywhere), keeping of each what `read` makes of it.
///
/// # Errors
/// If the server does not answer, or refuses.
pub async fn list_json<R>(
    client: Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    labels: Option<&str>,
    mut read: impl FnMut(Value) -> Option<R> + Send,
) -> Result<Vec<R>, kube::Error> {
    let api: Api<Unread<DynamicObject>> = match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, resource),
        None => Api::all_with(client, resource),
    };
    let mut params = ListParams::default().limit(PAGE);
    params.label_selector = labels.map(str::to_owned);
    let mut all = Vec::new();
    loop {
        let page = api.list(&params).await?;
        all.extend(page.items.into_iter().filter_map(|object| read(add_type_fields(object, resource)?)));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(all),
        }
    }
}

#[cfg(test)]
mod tests;
