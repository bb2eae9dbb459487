//! The server as a value: options in, router or HTTPS listener out.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;

use crate::auth::User;
use crate::clock::{Clock, SystemClock};
use crate::ids::{Ids, RandomIds};
use crate::resource::Registry;
use crate::store::Store;

/// What a server is started with.
#[derive(Clone)]
pub struct Options {
    /// Tells servers apart in logs.
    pub name: String,
    /// Gives the times in objects and tells when a token is no longer taken. It does not move timeouts and waits.
    pub clock: Arc<dyn Clock>,
    /// Where UIDs, the suffixes of generated names and the tokens of service accounts come from.
    pub ids: Arc<dyn Ids>,
    /// Bearer token of the administrator (`system:masters`); random when not given.
    pub admin_token: Option<String>,
    /// More users, by bearer token. The administrator's token stays the administrator's.
    pub users: BTreeMap<String, User>,
    /// Events kept per kind: how far back a watch or a list at an exact version can reach.
    pub history: usize,
    /// Webhook servers in this process, by `namespace/service` or by `host:port` of the URL: called without a socket.
    pub webhooks: BTreeMap<String, axum::Router>,
    /// Is told of each request that RBAC allowed; nobody is of those of `system:masters`.
    pub granted: Option<GrantObserver>,
}

/// Looks at requests that RBAC allowed.
pub type GrantObserver = Arc<dyn Fn(&GrantedRequest<'_>) + Send + Sync>;

/// What somebody was allowed to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantedRequest<'a> {
    /// Who asked.
    pub user: &'a str,
    /// For what.
    pub verb: &'a str,
    /// The API group; empty for the core's, and for what is no resource.
    pub group: &'a str,
    /// The plural; empty for what is no resource.
    pub resource: &'a str,
    /// Empty for the resource itself.
    pub subresource: &'a str,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "apiserver".into(),
            clock: Arc::new(SystemClock),
            ids: Arc::new(RandomIds),
            admin_token: None,
            users: BTreeMap::new(),
            history: 8192,
            webhooks: BTreeMap::new(),
            granted: None,
        }
    }
}

/// An embedded Kubernetes API server. Clones share one state.
#[derive(Clone)]
pub struct ApiServer(Arc<State>);

pub(crate) struct State {
    pub(crate) options: Options,
    pub(crate) admin_token: String,
    pub(crate) users: BTreeMap<String, User>,
    pub(crate) registry: ArcSwap<Registry>,
    pub(crate) admission: crate::admission::Index,
    pub(crate) impersonations: crate::auth::Impersonations,
    pub(crate) tokens: crate::auth::token::Tokens,
    pub(crate) openapi: crate::discovery::Cache,
    store: Mutex<Store>,
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer").field("name", &self.0.options.name).finish_non_exhaustive()
    }
}

impl ApiServer {
    /// A server with the namespaces `default`, `kube-system`, `kube-public` and `kube-node-lease`.
    pub fn new(options: Options) -> Self {
        let admin_token = options.admin_token.clone().unwrap_or_else(|| uuid::Uuid::new_v4().simple().to_string());
        let mut users = options.users.clone();
        users.insert(admin_token.clone(), User::admin());
        let store = Store::new(options.history);
        let state = State {
            admin_token,
            users,
            registry: ArcSwap::from_pointee(crate::builtin::builtin_registry()),
            admission: crate::admission::Index::default(),
            impersonations: crate::auth::Impersonations::default(),
            tokens: crate::auth::token::Tokens::default(),
            openapi: crate::discovery::Cache::default(),
            store: Mutex::new(store),
            options,
        };
        let server = Self(Arc::new(state));
        crate::namespace::create_initial(&server);
        crate::priority::create_initial(&server);
        crate::auth::initial::create_initial(&server);
        crate::service::create_initial(&server);
        server
    }

    /// The HTTP interface, for use in-process: requests without credentials count as the administrator's.
    pub fn router(&self) -> axum::Router {
        self.router_as(User::admin())
    }

    /// The HTTP interface as `user` has it: requests without credentials count as theirs, under RBAC and admission.
    pub fn router_as(&self, user: User) -> axum::Router {
        crate::http::build_router(self.clone(), crate::http::Anonymous::Is(user))
    }

    /// Serves HTTPS (HTTP/1.1 and HTTP/2) in the background until `shutdown`; returns the bound address. A request
    /// without credentials is [`User::anonymous`]'s. The ALPN protocols of `tls` are replaced by `h2` and `http/1.1`.
    ///
    /// # Errors
    ///
    /// When the address cannot be bound. What ends the listener later is only logged.
    pub async fn serve(
        &self,
        listen: SocketAddr,
        tls: Arc<rustls::ServerConfig>,
        shutdown: CancellationToken,
    ) -> io::Result<SocketAddr> {
        crate::http::serve_https(self.clone(), listen, tls, shutdown).await
    }

    /// The bearer token of the administrator for [`Self::serve`]: that of [`Options::admin_token`], else a random one.
    pub fn admin_token(&self) -> &str {
        &self.0.admin_token
    }

    /// Makes every version before now unusable for exact and continued lists (not for watches).
    pub fn compact(&self) {
        self.store().compact();
    }

    pub(crate) fn state(&self) -> &State {
        &self.0
    }

    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        // A panic under the lock would be a defect of ours; the data is still consistent (commit is all or nothing).
        self.0.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn registry(&self) -> Arc<Registry> {
        self.0.registry.load_full()
    }

    pub(crate) fn grant_observer(&self) -> Option<&GrantObserver> {
        self.0.options.granted.as_ref()
    }

    pub(crate) fn new_id(&self) -> uuid::Uuid {
        self.0.options.ids.next()
    }

    pub(crate) fn now(&self) -> jiff::Timestamp {
        self.0.options.clock.now()
    }
}
