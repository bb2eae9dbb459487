//! How a member is reached.
//!
//! Rule (Karmada `pkg/util/membercluster_client.go`): a Push member by `spec.apiEndpoint` with the token and CA of
//! `spec.secretRef`, any other through the cluster proxy (`clusters/<name>/proxy`). A collector that runs inside the
//! member brings a client of its own.

use caldera_crds::karmada::cluster::{Cluster, SyncMode};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use serde_json::Value;

use super::PROBE_TIMEOUT;
use crate::client::{ClientError, WriteCounts, build_token_config, describe_error, from_config};

/// By which way a member is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    /// By its endpoint, with the token and CA of a Secret on the host.
    Direct { endpoint: String, namespace: String, secret: String, insecure: bool },
    /// Through Karmada's cluster proxy.
    Proxy,
    /// By a client that we were given: we run in the member.
    Agent,
}

impl Route {
    /// Push members directly, others through the proxy.
    pub(super) fn of_cluster(cluster: &Cluster) -> Self {
        let spec = &cluster.spec;
        let direct = spec.sync_mode != Some(SyncMode::Pull) && spec.proxy_url.as_ref().is_none_or(String::is_empty);
        match (&spec.api_endpoint, &spec.secret_ref) {
            (Some(endpoint), Some(secret)) if direct && !endpoint.is_empty() => Self::Direct {
                endpoint: endpoint.clone(),
                namespace: secret.namespace.clone(),
                secret: secret.name.clone(),
                insecure: spec.insecure_skip_tls_verification.unwrap_or(false),
            },
            _ => Self::Proxy,
        }
    }
}

/// Why a member can not be reached.
#[derive(Debug, thiserror::Error)]
pub(super) enum MemberError {
    #[error("failed to read its secret {namespace}/{name} on the host: {}", describe_error(source))]
    Secret { namespace: String, name: String, source: Box<kube::Error> },
    #[error("its secret {namespace}/{name} has no token")]
    NoToken { namespace: String, name: String },
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("its API does not answer: {}", describe_error(.0))]
    Probe(Box<kube::Error>),
    #[error("its API answers {0} with something else than a list")]
    NoList(&'static str),
    #[error("its API does not answer within {} s", PROBE_TIMEOUT.as_secs())]
    Timeout,
}

/// All that is needed to connect to a member.
#[derive(Clone)]
pub(super) struct Access {
    pub(super) host: Client,
    pub(super) cluster: String,
    pub(super) route: Route,
    /// For [`Route::Agent`].
    pub(super) given: Option<Client>,
    pub(super) component: String,
    pub(super) counts: WriteCounts,
}

/// A member that has answered.
pub(super) struct Connection {
    pub(super) client: Client,
    credentials: Credentials,
}

/// What a client is made of, to notice a rotated secret.
#[derive(PartialEq, Eq)]
enum Credentials {
    Token { token: String, ca: Option<Vec<u8>> },
    NotNeeded,
}

impl Access {
    /// A client of the member, which has answered a probe.
    pub(super) async fn connect_member(&self) -> Result<Connection, MemberError> {
        let credentials = self.read_credentials().await?;
        let client = match (&self.route, &credentials, &self.given) {
            (Route::Agent, _, Some(client)) => client.clone(),
            (Route::Direct { endpoint, insecure, .. }, Credentials::Token { token, ca }, _) => {
                let config = build_token_config(endpoint, token, ca.as_deref(), *insecure)?;
                from_config(config, &self.component, &self.counts)?
            }
            _ => proxy_client(&self.host, &self.cluster),
        };
        probe_member(&client).await?;
        Ok(Connection { client, credentials })
    }

    /// The same for callers that may not read the member's secret but may use the proxy.
    pub(super) async fn connect_or_proxy(&self) -> Result<Client, MemberError> {
        match self.connect_member().await {
            Err(error @ MemberError::Secret { .. }) => {
                let client = proxy_client(&self.host, &self.cluster);
                probe_member(&client).await.map(|()| client).map_err(|_| error)
            }
            connected => connected.map(|connection| connection.client),
        }
    }

    /// Whether the member's secret is another than the one that this connection was made with.
    pub(super) async fn is_rotated(&self, connection: &Connection) -> bool {
        self.read_credentials().await.is_ok_and(|now| now != connection.credentials)
    }

    async fn read_credentials(&self) -> Result<Credentials, MemberError> {
        let Route::Direct { namespace, secret: name, .. } = &self.route else { return Ok(Credentials::NotNeeded) };
        let (namespace, name) = (namespace.clone(), name.clone());
        let secrets: Api<Secret> = Api::namespaced(self.host.clone(), &namespace);
        let secret = match tokio::time::timeout(PROBE_TIMEOUT, secrets.get(&name)).await {
            Ok(Ok(secret)) => secret,
            Ok(Err(source)) => return Err(MemberError::Secret { namespace, name, source: Box::new(source) }),
            Err(_) => return Err(MemberError::Timeout),
        };
        let mut data = secret.data.unwrap_or_default();
        let token = data.remove("token").and_then(|token| String::from_utf8(token.0).ok()).unwrap_or_default();
        if token.trim().is_empty() {
            return Err(MemberError::NoToken { namespace, name });
        }
        Ok(Credentials::Token { token: token.trim().to_owned(), ca: data.remove("caBundle").map(|ca| ca.0) })
    }
}

/// Asks for what is going to be watched: `/version` would say nothing about the token or its permissions.
pub(super) async fn probe_member(client: &Client) -> Result<(), MemberError> {
    for path in ["/api/v1/nodes?limit=1", "/api/v1/pods?limit=1"] {
        let Ok(request) = http::Request::get(path).body(Vec::new()) else { continue };
        match tokio::time::timeout(PROBE_TIMEOUT, client.request::<Value>(request)).await {
            Ok(Ok(list)) if list["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) => {}
            Ok(Ok(_)) => return Err(MemberError::NoList(path)),
            Ok(Err(error)) => return Err(MemberError::Probe(Box::new(error))),
            Err(_) => return Err(MemberError::Timeout),
        }
    }
    Ok(())
}

/// A client that sends every request through Karmada's cluster proxy.
pub(super) fn proxy_client(host: &Client, cluster: &str) -> Client {
    let prefix = format!("/apis/cluster.karmada.io/v1alpha1/clusters/{cluster}/proxy");
    let host = host.clone();
    let service = tower::service_fn(move |mut request: http::Request<kube::client::Body>| {
        let host = host.clone();
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let uri = format!("{prefix}{path}").parse::<http::Uri>();
        async move {
            *request.uri_mut() = uri?;
            Ok::<_, tower::BoxError>(host.send(request).await?)
        }
    });
    Client::new(service, "default")
}
