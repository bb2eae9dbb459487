//! Everything that was committed, in the order of its commits, and what there is now. Watches without faults record it.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex},
};

use futures::StreamExt;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams, WatchEvent, WatchParams},
};
use serde_json::Value;
use tokio::{task::JoinHandle, time::Instant};

/// Server, kind, namespace, name.
pub type Name = (String, String, String, String);

#[derive(Debug, Clone)]
pub struct Commit {
    pub version: u64,
    pub millis: u128,
    pub name: Name,
    /// `None`: deleted.
    pub object: Option<Value>,
}

#[derive(Debug, Default)]
struct Log {
    new: Vec<Commit>,
    now: BTreeMap<Name, Value>,
    changes: u64,
}

#[derive(Clone)]
pub struct History {
    log: Arc<Mutex<Log>>,
    watches: Arc<Mutex<Vec<JoinHandle<()>>>>,
    /// Servers and kinds.
    followed: Arc<Mutex<Vec<(String, Client, ApiResource)>>>,
    began: Instant,
}

impl History {
    pub fn new() -> Self {
        Self { log: Arc::default(), watches: Arc::default(), followed: Arc::default(), began: Instant::now() }
    }

    /// Begins to watch a kind, from what there is.
    pub fn follow(&self, server: &str, client: Client, resource: ApiResource) {
        self.followed.lock().unwrap().push((server.to_owned(), client.clone(), resource.clone()));
        self.watch(server.to_owned(), client, resource, None);
    }

    /// The servers went back to what they had at a version, and everybody's watches are over.
    pub fn go_back(&self, past: BTreeMap<Name, Value>, version: u64) {
        self.watches.lock().unwrap().drain(..).for_each(|watch| watch.abort());
        let mut log = self.log.lock().unwrap();
        (log.now, log.new) = (past, Vec::new());
        log.changes += 1;
        drop(log);
        let followed = self.followed.lock().unwrap().clone();
        for (server, client, resource) in followed {
            self.watch(server, client, resource, Some(version));
        }
    }

    fn watch(&self, server: String, client: Client, resource: ApiResource, from: Option<u64>) {
        let history = self.clone();
        let watch = tokio::spawn(async move {
            let api: Api<DynamicObject> = Api::all_with(client, &resource);
            let mut version = match from {
                Some(version) => version.to_string(),
                None => {
                    let list = api.list(&ListParams::default()).await.unwrap();
                    let version = list.metadata.resource_version.clone().unwrap();
                    list.into_iter().for_each(|object| history.commit(&server, &resource.kind, object, true));
                    version
                }
            };
            loop {
                let mut events = api.watch(&WatchParams::default(), &version).await.unwrap().boxed();
                while let Some(event) = events.next().await {
                    let (object, there) = match event.unwrap() {
                        WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, true),
                        WatchEvent::Deleted(object) => (object, false),
                        WatchEvent::Bookmark(_) => continue,
                        WatchEvent::Error(status) => panic!("the history is not complete: {status:?}"),
                    };
                    version = object.metadata.resource_version.clone().unwrap();
                    history.commit(&server, &resource.kind, object, there);
                }
            }
        });
        self.watches.lock().unwrap().push(watch);
    }

    /// A watch that ended has missed something since.
    pub fn must_be_complete(&self) {
        assert!(!self.watches.lock().unwrap().iter().any(JoinHandle::is_finished), "the history is not complete");
    }

    fn commit(&self, server: &str, kind: &str, object: DynamicObject, there: bool) {
        let metadata = &object.metadata;
        let name = (
            server.to_owned(),
            kind.to_owned(),
            metadata.namespace.clone().unwrap_or_default(),
            metadata.name.clone().unwrap_or_default(),
        );
        let version = metadata.resource_version.as_deref().unwrap().parse().unwrap();
        let mut value = serde_json::to_value(object).unwrap();
        value["metadata"].as_object_mut().unwrap().remove("managedFields");
        let mut log = self.log.lock().unwrap();
        log.changes += 1;
        if there {
            log.now.insert(name.clone(), value.clone());
        } else {
            log.now.remove(&name);
        }
        let object = there.then_some(value);
        log.new.push(Commit { version, millis: self.began.elapsed().as_millis(), name, object });
    }

    /// What was committed since this was last asked.
    pub fn take(&self) -> Vec<Commit> {
        let mut new = std::mem::take(&mut self.log.lock().unwrap().new);
        new.sort_by_key(|commit| (commit.millis, commit.name.0.clone(), commit.version));
        new
    }

    /// Since it began.
    pub fn millis(&self) -> u128 {
        self.began.elapsed().as_millis()
    }

    pub fn changes(&self) -> u64 {
        self.log.lock().unwrap().changes
    }

    /// All that there is.
    pub fn list_now(&self) -> BTreeMap<Name, Value> {
        self.log.lock().unwrap().now.clone()
    }

    pub fn all(&self, server: &str, kind: &str) -> Vec<Value> {
        let log = self.log.lock().unwrap();
        log.now.iter().filter(|(name, _)| name.0 == server && name.1 == kind).map(|(_, value)| value.clone()).collect()
    }
}

/// A whole history, to the last byte: as a number, and where it is asked for as text.
#[derive(Debug, Default)]
pub struct Trace {
    hash: DefaultHasher,
    /// One for each commit, if it is kept.
    pub lines: Option<Vec<String>>,
}

impl Trace {
    pub fn new(keep: bool) -> Self {
        Self { hash: DefaultHasher::new(), lines: keep.then(Vec::new) }
    }

    pub fn add(&mut self, commit: &Commit) {
        let (server, kind, namespace, name) = &commit.name;
        let object = commit.object.as_ref().map_or_else(|| "deleted".to_owned(), ToString::to_string);
        let line = format!("{} ms {server} {kind} {namespace}/{name} {}: {object}", commit.millis, commit.version);
        line.hash(&mut self.hash);
        if let Some(lines) = &mut self.lines {
            lines.push(line);
        }
    }

    pub fn number(&self) -> u64 {
        self.hash.finish()
    }
}
