//! The configured webhooks, read when a configuration changes and shared by all requests in between.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use serde_json::Value;

use super::call::Callers;
use super::matching::{Binding, InForce};
use super::mutation::MutatingPolicy;
use super::policy::Policy;
use super::webhook::Webhook;
use super::{Attributes, Operation};
use crate::selector::LabelSelector;
use crate::server::ApiServer;
use crate::store::Changes;

pub const MUTATING: &str = "mutatingwebhookconfigurations.admissionregistration.k8s.io";
pub const VALIDATING: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io";

/// Policies of a kind, and their bindings.
const VALIDATING_POLICIES: [&str; 2] = [
    "validatingadmissionpolicies.admissionregistration.k8s.io",
    "validatingadmissionpolicybindings.admissionregistration.k8s.io",
];
const MUTATING_POLICIES: [&str; 2] = [
    "mutatingadmissionpolicies.admissionregistration.k8s.io",
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
];

/// What the server keeps for admission.
#[derive(Default)]
pub struct Index {
    current: ArcSwap<Webhooks>,
    changes: OnceLock<[Arc<Changes>; 2]>,
    /// Compiled configurations by kind and name, with the version they were compiled from.
    compiled: Mutex<BTreeMap<(bool, String), Compiled>>,
    validating: PolicyCache<Policy>,
    mutating: PolicyCache<MutatingPolicy>,
    pub(super) callers: Callers,
}

/// The policies of one kind, with what they were read from.
struct PolicyCache<P> {
    current: ArcSwap<Policies<P>>,
    changes: OnceLock<[Arc<Changes>; 2]>,
}

struct Policies<P> {
    seen: (u64, u64),
    in_force: Arc<InForce<P>>,
}

impl<P> Default for PolicyCache<P> {
    fn default() -> Self {
        let nothing = Policies { seen: (0, 0), in_force: Arc::default() };
        Self { current: ArcSwap::from_pointee(nothing), changes: OnceLock::new() }
    }
}

impl<P> PolicyCache<P> {
    /// The policies of this moment. They are compiled again whenever one of them or a binding changes.
    fn in_force(&self, server: &ApiServer, kinds: [&str; 2], read: fn(&Value) -> P) -> Arc<InForce<P>> {
        let [policies, bindings] = self.changes.get_or_init(|| {
            let mut store = server.store();
            kinds.map(|kind| store.changes(kind))
        });
        let seen = (policies.last(), bindings.last());
        let current = self.current.load_full();
        if current.seen == seen {
            return current.in_force.clone();
        }
        let [policies, bindings] = {
            let store = server.store();
            kinds.map(|kind| store.list(kind, None))
        };
        let bindings: Vec<Arc<Binding>> = bindings.iter().map(|b| Arc::new(Binding::read(&b.value))).collect();
        let of = |name: &str| bindings.iter().filter(|b| b.policy == name).cloned().collect::<Vec<_>>();
        let bound = policies.iter().map(|p| (p, of(crate::meta::object_name(&p.value))));
        let in_force: InForce<P> = bound
            .filter(|(_, bindings)| !bindings.is_empty())
            .map(|(policy, bindings)| (Arc::new(read(&policy.value)), bindings))
            .collect();
        let fresh = Arc::new(Policies { seen, in_force: Arc::new(in_force) });
        self.current.store(fresh.clone());
        fresh.in_force.clone()
    }
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

    pub fn validating_policies(&self, server: &ApiServer) -> Arc<InForce<Policy>> {
        self.validating.in_force(server, VALIDATING_POLICIES, Policy::read)
    }

    pub fn mutating_policies(&self, server: &ApiServer) -> Arc<InForce<MutatingPolicy>> {
        self.mutating.in_force(server, MUTATING_POLICIES, MutatingPolicy::read)
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
fn namespace_labels(server: &ApiServer, namespace: &str) -> Option<Value> {
    let object = server.store().get("namespaces", &crate::store::Key::new("", namespace))?;
    object.value.get("metadata")?.get("labels").cloned()
}

/// Whether a selector takes in the namespace of the write. A Namespace that is being written is judged as it will be.
pub fn in_namespace(
    server: &ApiServer,
    selector: &LabelSelector,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
) -> bool {
    if selector.is_empty() {
        return true;
    }
    let namespace = super::review::namespace_of(attributes);
    let is_namespace = attributes.resource.group.is_empty() && attributes.resource.plural == "namespaces";
    if namespace.is_empty() && !is_namespace {
        return true;
    }
    let being_written = is_namespace
        && attributes.subresource.is_empty()
        && matches!(attributes.operation, Operation::Create | Operation::Update);
    if being_written {
        return object.is_some_and(|o| selector.matches(o));
    }
    selector.matches_labels(namespace_labels(server, namespace).as_ref())
}
