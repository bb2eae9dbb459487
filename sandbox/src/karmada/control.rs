//! What all of Karmada's controllers share: the host, its members, the interpreter, events and the clock.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use caldera_runtime::clock::{SharedClock, format_time};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    api::{Handler, Server, Writer, lock_state},
    events::Recorder,
    eviction::Evictions,
    interpreter::Interpreter,
    object::{Gvk, ObjectExt, condition_status},
};

/// The writer that all of karmada-controller-manager's controllers are.
pub const MANAGER: &str = "karmada-controller-manager";
/// The writer of placements.
pub const SCHEDULER: &str = "karmada-scheduler";

/// `Work`.
#[must_use]
pub fn work_kind() -> Gvk {
    Gvk::new("work.karmada.io/v1alpha1", "Work")
}
/// `ResourceBinding`.
#[must_use]
pub fn binding_kind() -> Gvk {
    Gvk::new("work.karmada.io/v1alpha2", "ResourceBinding")
}
/// `ClusterResourceBinding`.
#[must_use]
pub fn cluster_binding_kind() -> Gvk {
    Gvk::new("work.karmada.io/v1alpha2", "ClusterResourceBinding")
}
/// `Cluster`.
#[must_use]
pub fn cluster_kind() -> Gvk {
    Gvk::new("cluster.karmada.io/v1alpha1", "Cluster")
}

/// Karmada's feature gates that its default deployment leaves off.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gates {
    /// `FederatedQuotaEnforcement`.
    pub federated_quota: bool,
    /// `MultiplePodTemplatesScheduling`.
    pub multiple_templates: bool,
    /// `PropagationPolicyPreemption`.
    pub policy_preemption: bool,
    /// `StatefulFailoverInjection`.
    pub stateful_failover: bool,
    /// `WorkloadAffinity`.
    pub workload_affinity: bool,
}

/// What the controllers are told at the start.
#[derive(Debug)]
pub struct Settings {
    /// The time.
    pub clock: SharedClock,
    /// Gates that are on.
    pub gates: Gates,
    /// What is evicted, and how.
    pub evictions: Evictions,
    /// How long the binding controllers take to see a change of a binding.
    pub binding_lag: Lag,
}

/// A time by which what is done for some names is late; it may change while Karmada runs.
#[derive(Debug, Clone, Default)]
pub struct Lag(Arc<Mutex<(Duration, BTreeSet<Named>)>>);

impl Lag {
    /// Makes some names late, and no others.
    pub fn set(&self, lag: Duration, late: BTreeSet<Named>) {
        *lock_state(&self.0) = (lag, late);
    }

    /// How late a name is.
    #[must_use]
    pub fn of(&self, namespace: &str, name: &str) -> Duration {
        let (lag, late) = &*lock_state(&self.0);
        if late.contains(&(namespace.to_owned(), name.to_owned())) { *lag } else { Duration::ZERO }
    }
}

/// A namespace and a name.
pub type Named = (String, String);

/// Makes a handler for a member's name.
type Hook = Arc<dyn Fn(&str) -> Handler + Send + Sync>;

/// See the module.
pub struct Control {
    /// The Karmada API server.
    pub host: Arc<Server>,
    /// Writes as karmada-controller-manager.
    pub writer: Writer,
    /// Who knows about kinds.
    pub interpreter: Interpreter,
    /// Events on the host.
    pub events: Recorder,
    /// The time.
    pub clock: SharedClock,
    /// Gates that are on.
    pub gates: Gates,
    /// What is evicted, and how.
    pub evictions: Evictions,
    /// How long the binding controllers take to see a change of a binding.
    pub binding_lag: Lag,
    /// The end.
    pub shutdown: CancellationToken,
    members: Mutex<BTreeMap<String, Arc<Server>>>,
    hooks: Mutex<Vec<(Gvk, Hook)>>,
    any_kind: Mutex<Vec<Hook>>,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("host", &self.host).finish_non_exhaustive()
    }
}

impl Control {
    /// Of a host, with no members yet.
    #[must_use]
    pub fn new(
        host: Arc<Server>,
        interpreter: Interpreter,
        settings: Settings,
        shutdown: CancellationToken,
    ) -> Arc<Self> {
        let Settings { clock, gates, evictions, binding_lag } = settings;
        Arc::new(Self {
            writer: host.writer(MANAGER),
            interpreter,
            events: Recorder::start(&host, clock.clone()),
            host,
            clock,
            gates,
            evictions,
            binding_lag,
            shutdown,
            members: Mutex::default(),
            hooks: Mutex::default(),
            any_kind: Mutex::default(),
        })
    }

    /// The time as Kubernetes writes it.
    #[must_use]
    pub fn now(&self) -> String {
        format_time(self.clock.now())
    }

    /// A member that Karmada has access to.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<Arc<Server>> {
        lock_state(&self.members).get(name).cloned()
    }

    /// Gives access to a member, or takes it away. What was watched there ends.
    pub fn set_member(&self, name: &str, server: Option<Arc<Server>>) {
        if let Some(server) = &server {
            for (gvk, hook) in lock_state(&self.hooks).iter() {
                server.add_handler(gvk, hook(name));
            }
        }
        let mut members = lock_state(&self.members);
        let old = match server {
            Some(server) => members.insert(name.to_owned(), server),
            None => members.remove(name),
        };
        if let Some(old) = old {
            old.shutdown().cancel();
        }
    }

    /// Tells of every change of a kind in any member, present or future. `hook` makes a handler for a member's name.
    pub fn on_members(&self, gvk: &Gvk, hook: impl Fn(&str) -> Handler + Send + Sync + 'static) {
        let hook: Hook = Arc::new(hook);
        lock_state(&self.hooks).push((gvk.clone(), hook.clone()));
        let members = lock_state(&self.members).clone();
        for (name, server) in members {
            server.add_handler(gvk, hook(&name));
        }
    }

    /// Wants to be told of every propagated kind in every member, from when [`Self::watch_in_member`] is called for it.
    pub fn on_propagated(&self, hook: impl Fn(&str) -> Handler + Send + Sync + 'static) {
        lock_state(&self.any_kind).push(Arc::new(hook));
    }

    /// Begins to watch a propagated kind in a member, once.
    pub fn watch_in_member(&self, server: &Arc<Server>, gvk: &Gvk) {
        if server.begin_following(gvk) {
            let hooks = lock_state(&self.any_kind).clone();
            for hook in hooks {
                server.add_handler(gvk, hook(&server.name));
            }
        }
    }

    /// The Cluster object, as the watch saw it last.
    #[must_use]
    pub fn cluster(&self, name: &str) -> Option<Arc<Value>> {
        self.host.cached(&cluster_kind(), "", name)
    }

    /// The template of a binding or `None` when it is gone.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn template(&self, reference: &Value) -> Result<Option<Arc<Value>>, super::api::ApiError> {
        match self
            .host
            .get_cached_or_live(&reference.gvk(), reference.text("/namespace"), reference.text("/name"))
            .await
        {
            Err(error) if error.is_not_found() => Ok(None),
            other => other,
        }
    }
}

/// Whether a cluster's `Ready` condition is true.
#[must_use]
pub fn is_ready(cluster: &Value) -> bool {
    condition_status(cluster, "Ready") == "True"
}
