//! Following a kind: its objects as events on a channel, in order, for ever.
//!
//! A restart of the watch (expired version, lost connection, server gone) shows as [`Event::Reset`] with everything
//! there is now: state machines that take `Reset` need no other repair. Objects that do not parse are logged and left
//! out; they never stop the others. A kind that the server does not have (yet) is asked for again.

use std::{
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::StreamExt;
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DynamicObject, ListParams},
    core::DeserializeGuard,
    runtime::watcher::{self, watcher},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

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
    /// The same with each object mapped; objects that map to nothing are left out (a single one yields no event).
    pub fn filter_map<T>(self, mut f: impl FnMut(K) -> Option<T>) -> Option<Event<T>> {
        match self {
            Self::Reset(all) => Some(Event::Reset(all.into_iter().filter_map(f).collect())),
            Self::Applied(one) => f(one).map(Event::Applied),
            Self::Deleted(one) => f(one).map(Event::Deleted),
        }
    }
}

/// Since when a watch has failed again and again, for those who must know; `None` while it does not.
///
/// A watch that resumes says nothing before something happens, so a single failure counts for nothing. After the second in
/// a row all is listed anew: that this came through is seen.
#[derive(Debug, Clone, Default)]
pub struct Failing(Arc<Mutex<Option<Instant>>>);

impl Failing {
    /// Since when, if it does.
    #[must_use]
    pub fn since(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fails(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Instant::now);
    }

    fn works(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// What is followed.
struct Followed<K> {
    api: Api<K>,
    config: watcher::Config,
    failing: Option<Failing>,
}

impl<K> Followed<K> {
    const fn new(api: Api<K>, config: watcher::Config) -> Self {
        Self { api, config, failing: None }
    }
}

/// First wait after a failed watch; doubles up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Follows `api`, sending `convert(event)` for each event, until `shutdown` or until the receiver is gone.
///
/// `what` names the kind in logs. A failing watch is retried for ever, with growing waits, and logged on its first
/// failure.
pub async fn follow<K, T>(
    what: &str,
    api: Api<K>,
    config: watcher::Config,
    events: mpsc::Sender<T>,
    convert: impl FnMut(Event<K>) -> Option<T> + Send,
    shutdown: CancellationToken,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    K::DynamicType: Clone,
    T: Send,
{
    follow_as(what, Followed::new(api, config), events, Some, convert, shutdown).await;
}

/// [`follow`], keeping of each object only what `read` makes of it: a long list is never in memory whole.
async fn follow_as<K, R, T>(
    what: &str,
    followed: Followed<K>,
    events: mpsc::Sender<T>,
    mut read: impl FnMut(K) -> Option<R> + Send,
    mut convert: impl FnMut(Event<R>) -> Option<T> + Send,
    shutdown: CancellationToken,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    K::DynamicType: Clone,
    R: Send,
    T: Send,
{
    let Followed { api, config, failing: told } = followed;
    let anew = || Box::pin(watcher(api.clone(), config.clone()));
    let mut stream = anew();
    let mut listed = Vec::new();
    let mut wait = FIRST_WAIT;
    let mut failing = false;
    loop {
        let next = tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            next = stream.next() => next,
        };
        let event = match next {
            None => return,
            Some(Err(error)) => {
                if failing {
                    tracing::debug!(kind = what, %error, "still can not watch");
                    if let Some(told) = &told {
                        told.fails();
                        stream = anew();
                    }
                } else {
                    tracing::warn!(kind = what, %error, "can not watch; trying again until it works");
                }
                failing = true;
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return,
                    () = tokio::time::sleep(wait) => {}
                }
                wait = (wait * 2).min(LONGEST_WAIT);
                continue;
            }
            Some(Ok(event)) => event,
        };
        if failing && !matches!(event, watcher::Event::Init | watcher::Event::InitApply(_)) {
            tracing::info!(kind = what, "watching again");
            (failing, wait) = (false, FIRST_WAIT);
            told.iter().for_each(Failing::works);
        }
        let event = match event {
            watcher::Event::Init => {
                listed.clear();
                continue;
            }
            watcher::Event::InitApply(object) => {
                listed.extend(read(object));
                continue;
            }
            watcher::Event::InitDone => Some(Event::Reset(std::mem::take(&mut listed))),
            watcher::Event::Apply(object) => read(object).map(Event::Applied),
            watcher::Event::Delete(object) => read(object).map(Event::Deleted),
        };
        if let Some(event) = event.and_then(&mut convert)
            && events.send(event).await.is_err()
        {
            return;
        }
    }
}

/// [`follow`] for a typed kind, leaving out (and logging) objects that do not parse.
pub async fn follow_typed<K, T>(
    api: Api<DeserializeGuard<K>>,
    config: watcher::Config,
    events: mpsc::Sender<T>,
    convert: impl FnMut(Event<K>) -> Option<T> + Send,
    shutdown: CancellationToken,
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    T: Send,
{
    follow_typed_as(api, config, events, Some, convert, shutdown).await;
}

/// [`follow_typed`], keeping of each object only what `read` makes of it: a long list is never in memory whole.
pub async fn follow_typed_as<K, R, T>(
    api: Api<DeserializeGuard<K>>,
    config: watcher::Config,
    events: mpsc::Sender<T>,
    mut read: impl FnMut(K) -> Option<R> + Send,
    convert: impl FnMut(Event<R>) -> Option<T> + Send,
    shutdown: CancellationToken,
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    R: Send,
    T: Send,
{
    let kind = K::kind(&()).into_owned();
    let parsed = |guard: DeserializeGuard<K>| match guard.0 {
        Ok(object) => read(object),
        Err(invalid) => {
            let name = invalid.metadata.name.as_deref().unwrap_or_default();
            let namespace = invalid.metadata.namespace.as_deref().unwrap_or_default();
            tracing::warn!(kind, namespace, name, error = invalid.error, "left out an object that does not parse");
            None
        }
    };
    follow_as(&kind, Followed::new(api, config), events, parsed, convert, shutdown).await;
}

/// [`follow`] for any kind, as JSON.
pub async fn follow_json<T>(
    client: Client,
    resource: ApiResource,
    config: watcher::Config,
    events: mpsc::Sender<T>,
    convert: impl FnMut(Event<Value>) -> Option<T> + Send,
    shutdown: CancellationToken,
) where
    T: Send,
{
    follow_json_as(client, resource, config, events, Some, convert, shutdown).await;
}

/// [`follow_json`], keeping of each object only what `read` makes of it: a long list is never in memory whole.
pub async fn follow_json_as<R, T>(
    client: Client,
    resource: ApiResource,
    config: watcher::Config,
    events: mpsc::Sender<T>,
    mut read: impl FnMut(Value) -> Option<R> + Send,
    convert: impl FnMut(Event<R>) -> Option<T> + Send,
    shutdown: CancellationToken,
) where
    R: Send,
    T: Send,
{
    let followed = Followed::new(Api::all_with(client, &resource), config);
    let to_read = |object: DynamicObject| read(with_type(object, &resource)?);
    follow_as(&resource.kind, followed, events, to_read, convert, shutdown).await;
}

/// [`follow_json_as`] everything of a kind, telling when that fails.
pub async fn follow_json_telling<R, T>(
    client: Client,
    resource: ApiResource,
    failing: Failing,
    events: mpsc::Sender<T>,
    mut read: impl FnMut(Value) -> Option<R> + Send,
    convert: impl FnMut(Event<R>) -> Option<T> + Send,
    shutdown: CancellationToken,
) where
    R: Send,
    T: Send,
{
    let api: Api<DynamicObject> = Api::all_with(client, &resource);
    let followed = Followed { api, config: watcher::Config::default(), failing: Some(failing) };
    let to_read = |object: DynamicObject| read(with_type(object, &resource)?);
    follow_as(&resource.kind, followed, events, to_read, convert, shutdown).await;
}

/// Items of a list carry no type of their own.
fn with_type(object: DynamicObject, resource: &ApiResource) -> Option<Value> {
    let mut value = serde_json::to_value(object).ok()?;
    let map = value.as_object_mut()?;
    map.insert("apiVersion".into(), resource.api_version.clone().into());
    map.insert("kind".into(), resource.kind.clone().into());
    Some(value)
}

/// Objects asked for at once by [`list_json_as`].
const PAGE: u32 = 500;

/// All objects of a kind as they are now (in one namespace, or everywhere), keeping of each what `read` makes of it.
///
/// # Errors
/// If the server does not answer, or refuses.
pub async fn list_json_as<R>(
    client: Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    labels: Option<&str>,
    mut read: impl FnMut(Value) -> Option<R> + Send,
) -> Result<Vec<R>, kube::Error> {
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, resource),
        None => Api::all_with(client, resource),
    };
    let mut params = ListParams::default().limit(PAGE);
    params.label_selector = labels.map(str::to_owned);
    let mut all = Vec::new();
    loop {
        let page = api.list(&params).await?;
        all.extend(page.items.into_iter().filter_map(|object| read(with_type(object, resource)?)));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(all),
        }
    }
}

/// The resource of a kind, by its parts.
#[must_use]
pub fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version,
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}
