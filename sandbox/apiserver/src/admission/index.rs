//! The configured webhooks, read when a configuration changes and shared by all requests in between.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use serde_json::Value;

use super::call::Callers;
use super::webhook::Webhook;
use crate::server::ApiServer;
use crate::store::Changes;

pub const MUTATING: &str = "mutatingwebhookconfigurations.admissionregistration.k8s.io";
pub const VALIDATING: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io";

/// What the server keeps for admission.
#[derive(Default)]
pub struct Index {
    current: ArcSwap<Webhooks>,
    changes: OnceLock<[Arc<Changes>; 2]>,
    /// Compiled configurations by kind and name, with the version they were compiled from.
    compiled: Mutex<BTreeMap<(bool, String), Compiled>>,
    pub(super) callers: Callers,
}

type Compiled = (u64, Vec<Arc<Webhook>>);

/// Mutating webhooks by configuration name, then list order; validating ones likewise.
#[derive(Debug, Default)]
pub struct Webhooks {
    seen: (u64, u64),
    pub mutating: Vec<Arc<Webhook>>,
    pub validating: Vec<Arc<Webhook>>,
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index").field("current", &self.current).finish_non_exhaustive()
    }
}

impl Index {
    /// The webhooks of this moment: a configuration that was written is in force for the next request.
    pub fn webhooks(&self, server: &ApiServer) -> Arc<Webhooks> {
        let [mutating, validating] = self.changes.get_or_init(|| {
            let mut store = server.store();
            [store.changes(MUTATING), store.changes(VALIDATING)]
        });
        let seen = (mutating.last(), validating.last());
        let current = self.current.load_full();
        // The first reading has seen nothing yet, even when no configuration was ever written.
        if current.seen == seen && seen != (0, 0) {
            return current;
        }
        let fresh = Arc::new(Webhooks {
            seen,
            mutating: self.read(server, MUTATING, true),
            validating: self.read(server, VALIDATING, false),
        });
        self.current.store(fresh.clone());
        fresh
    }

    fn read(&self, server: &ApiServer, kind: &str, mutating: bool) -> Vec<Arc<Webhook>> {
        let objects = server.store().list(kind, None);
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = Vec::new();
        for object in &objects {
            let name = crate::meta::object_name(&object.value).to_owned();
            let entry = compiled.entry((mutating, name)).or_insert((0, Vec::new()));
            if entry.0 != object.revision {
                *entry = (object.revision, Webhook::of_configuration(&object.value));
            }
            all.extend(entry.1.iter().cloned());
        }
        let known = |name: &str| objects.iter().any(|o| crate::meta::object_name(&o.value) == name);
        compiled.retain(|(m, name), _| *m != mutating || known(name));
        all
    }
}

/// Labels of a namespace, for namespace selectors.
pub fn namespace_labels(server: &ApiServer, namespace: &str) -> Option<Value> {
    let object = server.store().get("namespaces", &crate::store::Key::new("", namespace))?;
    object.value.get("metadata")?.get("labels").cloned()
}
