//! Clients of Kubernetes APIs: from a kubeconfig, from the pod's service account, or from a server and a token.
//!
//! There is no fixed client-side rate: [`crate::write::Writer`] adapts to what the server takes. Every write is counted
//! by component, so that "writes per job" is a number one can look up.
//!
//! The tower stack is ours and not `ClientBuilder::try_from`: kube's own retries requests by itself and logs each
//! failed one as an error, while here the caller decides again from fresh state and logs an outage once.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioExecutor};
use kube::{
    Client, Config,
    client::{ClientBuilder, ConfigExt},
    config::{KubeConfigOptions, Kubeconfig},
};

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The file is missing, unreadable or not a kubeconfig.
    #[error("failed to read the kubeconfig {path:?}: {source}")]
    Kubeconfig {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<kube::config::KubeconfigError>,
    },
    /// No file was named, and neither `KUBECONFIG`, `~/.kube/config` nor a service account gave a configuration.
    #[error("no kubeconfig was given and none was found in the environment: {source}")]
    Infer {
        /// What was tried.
        source: Box<kube::config::InferConfigError>,
    },
    /// The configuration does not make a client (bad URL, bad certificate).
    #[error("failed to build a client for {server}: {source}")]
    Build {
        /// The server's URL.
        server: String,
        /// What is wrong.
        source: Box<kube::Error>,
    },
    /// The server did not answer a first request.
    #[error("the Kubernetes API at {server} does not answer: {source}")]
    Unreachable {
        /// The server's URL.
        server: String,
        /// What happened.
        source: Box<kube::Error>,
    },
    /// The server's address is not a URL.
    #[error("{server:?} is not the URL of a Kubernetes API: {source}")]
    Address {
        /// What was given.
        server: String,
        /// What is wrong.
        source: http::uri::InvalidUri,
    },
}

/// Counts writes (every request that is not a read) by component, verb and resource. Clones share the counts.
#[derive(Debug, Clone, Default)]
pub struct WriteCounts(Arc<Mutex<BTreeMap<WriteKey, u64>>>);

/// What one count is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriteKey {
    /// Who wrote: the name given to [`from_config`].
    pub component: String,
    /// `create`, `update`, `patch` or `delete`.
    pub verb: &'static str,
    /// Plural name, with `/subresource` where there is one.
    pub resource: String,
}

impl WriteCounts {
    /// The counts so far.
    #[must_use]
    pub fn read_counts(&self) -> BTreeMap<WriteKey, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn count_request(&self, component: &str, method: &http::Method, path: &str) {
        let verb = match *method {
            http::Method::POST => "create",
            http::Method::PUT => "update",
            http::Method::PATCH => "patch",
            http::Method::DELETE => "delete",
            _ => return,
        };
        let key = WriteKey { component: component.to_owned(), verb, resource: resource_of(path) };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default() += 1;
    }
}

/// `/apis/g/v/namespaces/ns/things/name/status` -> `things/status`.
fn resource_of(path: &str) -> String {
    let mut parts = path.trim_matches('/').split('/');
    match parts.next() {
        Some("api") => drop(parts.next()),
        _ => drop((parts.next(), parts.next())),
    }
    let rest: Vec<&str> = parts.collect();
    let rest = match rest.as_slice() {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
        all => all,
    };
    match rest {
        [plural, _, subresource, ..] => format!("{plural}/{subresource}"),
        [plural, ..] => (*plural).to_owned(),
        [] => String::new(),
    }
}

/// Reads `path`, or infers the configuration from `KUBECONFIG`, `~/.kube/config` or the pod's service account.
///
/// # Errors
/// If the file is not a usable kubeconfig, or nothing was found.
pub async fn load_config(path: Option<&Path>) -> Result<Config, ClientError> {
    match path {
        Some(path) => {
            let failed = |source| ClientError::Kubeconfig { path: path.to_owned(), source: Box::new(source) };
            let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(failed)
        }
        None => Config::infer().await.map_err(|source| ClientError::Infer { source: Box::new(source) }),
    }
}

/// A configuration from a server's URL, a bearer token and the PEM of the CA that signed the server's certificate.
///
/// # Errors
/// If `server` is not a URL.
pub fn config_for(server: &str, token: &str, ca_pem: Option<&[u8]>, insecure: bool) -> Result<Config, ClientError> {
    let url = server.parse().map_err(|source| ClientError::Address { server: server.to_owned(), source })?;
    let mut config = Config::new(url);
    config.root_cert = ca_pem.map(pem_to_der);
    config.accept_invalid_certs = insecure;
    config.auth_info.token = Some(token.to_owned().into());
    Ok(config)
}

fn pem_to_der(pem: &[u8]) -> Vec<Vec<u8>> {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).map(|cert| cert.to_vec()).collect()
}

/// How long a TCP connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A client that says it is `component` (user agent `caldera-<component>/<version>`) and counts its writes in `counts`.
///
/// # Errors
/// If the configuration does not make a client.
pub fn from_config(mut config: Config, component: &str, counts: &WriteCounts) -> Result<Client, ClientError> {
    let agent = format!("caldera-{component}/{}", env!("CARGO_PKG_VERSION"));
    if let Ok(value) = agent.parse() {
        config.headers.push((http::header::USER_AGENT, value));
    }
    let server = config.cluster_url.to_string();
    let namespace = config.default_namespace.clone();
    let failed = |source| ClientError::Build { server: server.clone(), source: Box::new(source) };
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let connector = config.rustls_https_connector_with_connector(tcp).map_err(failed)?;
    let auth = config.auth_layer().map_err(failed)?;
    let headers = config.extra_headers_layer().map_err(failed)?;
    let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector);
    let (component, counts) = (component.to_owned(), counts.clone());
    let stack = tower::ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(auth)
        .layer(headers)
        .map_request(move |request: http::Request<kube::client::Body>| {
            counts.count_request(&component, request.method(), request.uri().path());
            request
        })
        .map_err(tower::BoxError::from)
        .service(http);
    Ok(ClientBuilder::new(stack, namespace).build())
}

/// Asks the server for its version, so that a wrong address is reported at once.
///
/// # Errors
/// [`ClientError::Unreachable`] with the server's URL.
pub async fn check_server(client: &Client, server: &str) -> Result<(), ClientError> {
    let unreachable = |source| ClientError::Unreachable { server: server.to_owned(), source: Box::new(source) };
    client.apiserver_version().await.map(drop).map_err(unreachable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_counted_by_resource_and_subresource() {
        for (path, want) in [
            ("/api/v1/namespaces/ns/events", "events"),
            ("/api/v1/namespaces/ns", "namespaces"),
            ("/apis/work.karmada.io/v1alpha2/namespaces/ns/resourcebindings/x", "resourcebindings"),
            ("/apis/work.karmada.io/v1alpha2/namespaces/ns/resourcebindings/x/status", "resourcebindings/status"),
            ("/apis/scheduling.volcano.sh/v1beta1/queues/q/status", "queues/status"),
        ] {
            assert_eq!(resource_of(path), want, "{path}");
        }
    }

    #[tokio::test]
    async fn a_wrong_kubeconfig_is_told_with_its_path() {
        let error = load_config(Some(Path::new("no/such/file"))).await.unwrap_err().to_string();
        assert!(error.contains("no/such/file"), "{error}");
    }

    #[test]
    fn an_address_that_is_no_url_is_told() {
        let error = config_for("not a url", "t", None, false).unwrap_err().to_string();
        assert!(error.contains("not a url"), "{error}");
    }
}
