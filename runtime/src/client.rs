//! Clients of Kubernetes APIs: from a kubeconfig, from the pod's service account, or from a server and a token.
//!
//! There is no fixed client-side rate: [`crate::write::Writer`] adapts to what the server takes. Every write is counted
//! by component, so that "writes per job" is a number one can look up: metric `caldera_api_writes_total`.
//!
//! What a kubeconfig says is used anew when it is replaced ([`renewal`]), and when its credentials end is a metric
//! ([`credentials`]).
//!
//! The tower stack is ours and not `ClientBuilder::try_from`: kube's own retries requests by itself and logs each
//! failed one as an error, while here the caller decides again from fresh state and logs an outage once.

pub mod credentials;
mod kubeconfig;
mod renewal;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use kube::{Client, Config, client::ClientBuilder};
use tokio::time::Instant;

pub use self::kubeconfig::load_config;
use self::{credentials::ClientCredentials, renewal::RenewedStack};
use crate::{
    list_pages::SmallPages,
    tls::RELOAD_EVERY,
    write_metrics::{Outcome, WriteMetrics},
};

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The file is missing, unreadable or not a kubeconfig.
    #[error("the kubeconfig {path:?} can not be used: {why}")]
    Kubeconfig {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it, without anything that is in it.
        why: String,
    },
    /// No file was named, and neither `KUBECONFIG`, `~/.kube/config` nor a service account gave a configuration.
    #[error("no --kubeconfig was given, and that of KUBECONFIG or ~/.kube/config can not be used: {why}")]
    Infer {
        /// What is wrong with it, without anything that is in it.
        why: String,
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
    #[error("the Kubernetes API at {server} does not answer: {}", describe_error(source))]
    Unreachable {
        /// The server's URL.
        server: String,
        /// What happened.
        source: Box<kube::Error>,
    },
    /// The server does not know who asks.
    #[error("your credentials were refused by the Kubernetes API at {server}: get new ones, or another kubeconfig")]
    Credentials {
        /// The server's URL.
        server: String,
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

/// Counts writes (every request that is neither a read nor a review) by component, verb and resource, and tells how
/// they go; also when the credentials end that the clients go by. Clones share all of it.
#[derive(Debug, Clone, Default)]
pub struct WriteCounts {
    counts: Arc<Mutex<BTreeMap<WriteKey, u64>>>,
    metrics: WriteMetrics,
    credentials: ClientCredentials,
}

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
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How they go.
    #[must_use]
    pub const fn metrics(&self) -> &WriteMetrics {
        &self.metrics
    }

    /// When the credentials end of the clients whose writes are counted here.
    #[must_use]
    pub const fn credentials(&self) -> &ClientCredentials {
        &self.credentials
    }

    /// A write begins. None for a read or a review.
    fn begin_counted_write(&self, component: &str, method: &http::Method, path: &str) -> Option<WriteUnderWay> {
        if is_review(path) {
            return None;
        }
        let verb = match *method {
            http::Method::POST => "create",
            http::Method::PUT => "update",
            http::Method::PATCH => "patch",
            http::Method::DELETE => "delete",
            _ => return None,
        };
        let key = WriteKey { component: component.to_owned(), verb, resource: resource_of(path) };
        self.metrics.count_sent(&key.component, key.verb, &key.resource);
        let write = WriteUnderWay {
            metrics: self.metrics.clone(),
            created_in: namespace_of_create(&key, path).map(ToOwned::to_owned),
            kind: key.resource.clone(),
            began: Instant::now(),
            status: None,
        };
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default() += 1;
        Some(write)
    }
}

/// Tells how a write went when it is dropped; one that was given up had no answer.
struct WriteUnderWay {
    metrics: WriteMetrics,
    kind: String,
    created_in: Option<String>,
    began: Instant,
    status: Option<u16>,
}

impl Drop for WriteUnderWay {
    fn drop(&mut self) {
        let now = Instant::now();
        let took = now.duration_since(self.began);
        self.metrics.observe_outcome(
            &self.kind,
            self.created_in.as_deref(),
            Outcome::of_status(self.status),
            took,
            now,
        );
    }
}

/// Whether a request is a TokenReview, a SubjectAccessReview or the like. It asks the API server something, which keeps
/// nothing of it, whatever its method. What becomes of it depends on who asks us: it does not say how our writes go.
fn is_review(path: &str) -> bool {
    ["/apis/authentication.k8s.io/", "/apis/authorization.k8s.io/"].iter().any(|group| path.starts_with(group))
}

/// The namespace that a write creates something in for a user; a Lease is our own.
fn namespace_of_create<'a>(write: &WriteKey, path: &'a str) -> Option<&'a str> {
    let is_new = write.verb == "create" && write.resource != "leases";
    let (_, rest) = path.split_once("/namespaces/").filter(|_| is_new)?;
    rest.split_once('/').map(|(namespace, _)| namespace)
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

/// A configuration from a server's URL, a bearer token and the PEM of the CA that signed the server's certificate.
///
/// # Errors
/// If `server` is not a URL.
pub fn build_token_config(
    server: &str,
    token: &str,
    ca_pem: Option<&[u8]>,
    insecure: bool,
) -> Result<Config, ClientError> {
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
    let shown = counts.credentials.add_client(component, &config);
    let stack = RenewedStack::of_config(config, shown, RELOAD_EVERY)
        .map_err(|source| ClientError::Build { server, source: Box::new(source) })?;
    let stack = CountedWrites { inner: stack, component: component.to_owned(), counts: counts.clone() };
    Ok(ClientBuilder::new(SmallPages::new(stack), namespace).build())
}

/// Counts what passes, and sees the answers.
#[derive(Clone)]
struct CountedWrites<S> {
    inner: S,
    component: String,
    counts: WriteCounts,
}

impl<S, B> tower::Service<http::Request<kube::client::Body>> for CountedWrites<S>
where
    S: tower::Service<http::Request<kube::client::Body>, Response = http::Response<B>>,
    S::Future: Send + 'static,
    S::Error: 'static,
    B: 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<kube::client::Body>) -> Self::Future {
        let write = self.counts.begin_counted_write(&self.component, request.method(), request.uri().path());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            if let (Some(mut write), Ok(answer)) = (write, &answer) {
                write.status = Some(answer.status().as_u16());
            }
            answer
        })
    }
}

/// What an error says, for people: of a server's refusal its own sentence, where kube's text shows all of its status.
#[must_use]
pub fn describe_error(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        kube::Error::Api(status) => format!("{} ({})", status.reason, status.code),
        other => other.to_string(),
    }
}

/// Asks the server for its version, so that a wrong address is reported at once.
///
/// # Errors
/// [`ClientError::Unreachable`] with the server's URL.
pub async fn check_server(client: &Client, server: &str) -> Result<(), ClientError> {
    let server = server.to_owned();
    client.apiserver_version().await.map(drop).map_err(|error| match error {
        kube::Error::Api(status) if status.code == 401 => ClientError::Credentials { server },
        error => ClientError::Unreachable { server, source: Box::new(error) },
    })
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::Duration};

    use super::*;

    #[tokio::test]
    async fn a_kubeconfig_that_can_not_be_used_is_reported_without_what_is_in_it() {
        let dir = std::env::temp_dir().join(format!("caldera-kubeconfig-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("config");
        let reported = async || {
            let error = load_config(Some(&path)).await.unwrap_err();
            assert!(std::error::Error::source(&error).is_none(), "a cause would be printed after it");
            error.to_string()
        };
        assert!(reported().await.contains("there is no file"), "{}", reported().await);
        let secret = "hunter2-very-secret";
        for broken in [
            format!("users:\n- name: u\n  user: {{token: {secret}}}\n  : [\n"),
            format!("apiVersion: v1\nkind: Config\nclusters: {secret}\n"),
            secret.to_owned(),
            format!("users: [{{name: u, user: {{token: [{secret}]}}}}]"),
            format!("contexts: [{{name: a, context: {{cluster: {secret}, user: u}}}}]\ncurrent-context: a\n"),
        ] {
            std::fs::write(&path, &broken).unwrap();
            let reported = reported().await;
            assert!(!reported.contains(secret), "{reported}");
        }
        for (second, why) in [("kind: Other", "not all of one kind"), ("apiVersion: v2", "not all of one API version")]
        {
            std::fs::write(&path, format!("apiVersion: v1\nkind: Config\n---\n{second}\n")).unwrap();
            assert!(reported().await.contains(why), "{}", reported().await);
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }

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
    async fn counts_are_shown_as_a_metric() {
        let (counts, registry) = (WriteCounts::default(), crate::metric::SharedRegistry::default());
        counts.metrics().register(&registry);
        drop(counts.begin_counted_write("controller", &http::Method::POST, "/api/v1/namespaces/ns/events"));
        drop(counts.begin_counted_write("controller", &http::Method::GET, "/api/v1/namespaces/ns/events"));
        let text = crate::metric::encode(&registry).unwrap();
        let line = r#"caldera_api_writes_total{component="controller",verb="create",resource="events"} 1"#;
        assert!(text.lines().any(|shown| shown == line), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_review_that_is_refused_or_that_nobody_waits_for_is_no_failing_write() {
        let service = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
            let body = request.into_body().collect_bytes().await.map_err(tower::BoxError::from)?;
            if String::from_utf8_lossy(&body).contains("stuck") {
                std::future::pending::<()>().await;
            }
            let refused = http::Response::builder().status(403).body(kube::client::Body::empty());
            refused.map_err(tower::BoxError::from)
        });
        let counts = WriteCounts::default();
        let counted = CountedWrites { inner: service, component: "controller".to_owned(), counts: counts.clone() };
        let client = Client::new(counted, "ns");
        let user = k8s_openapi::api::authentication::v1::UserInfo::default();
        for _ in 0..3 {
            crate::access::review_token(&client, "refused").await.unwrap_err();
            crate::access::review_access(&client, &user, Default::default()).await.unwrap_err();
            let second = Duration::from_secs(1);
            tokio::time::timeout(second, crate::access::review_token(&client, "stuck")).await.unwrap_err();
            tokio::time::advance(crate::write_metrics::FAILING_AFTER).await;
        }
        let now = Instant::now();
        assert_eq!(counts.metrics().describe_failing(now), None);
        assert!(counts.metrics().list_last_failures(now).is_empty());
        assert!(counts.read_counts().is_empty());
    }

    #[tokio::test]
    async fn a_wrong_kubeconfig_is_reported_with_its_path() {
        let error = load_config(Some(Path::new("no/such/file"))).await.unwrap_err().to_string();
        assert!(error.contains("no/such/file"), "{error}");
    }

    #[test]
    fn an_address_that_is_no_url_is_reported() {
        let error = build_token_config("not a url", "t", None, false).unwrap_err().to_string();
        assert!(error.contains("not a url"), "{error}");
    }
}
