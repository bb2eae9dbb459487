//! The client: asks a member's estimator, Karmada's or ours, with a deadline.

use std::time::Duration;

use bytes::Bytes;
use caldera_core::gang::{Gang, Task};
use caldera_runtime::tls::TlsError;
use http::{Request, Uri, header, uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use prost::Message;

use crate::{
    SERVICE,
    grpc::{CONTENT_TYPE, LONGEST, Status, frame, unframe},
    proto::{
        AssumedWorkload, MaxAvailableComponentSetsRequest, MaxAvailableComponentSetsResponse,
        MaxAvailableReplicasRequest, MaxAvailableReplicasResponse,
    },
    read,
    tls::{self, Trust},
};

/// Karmada's default (`--scheduler-estimator-timeout`).
pub const TIMEOUT: Duration = Duration::from_secs(3);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Not `host:port`.
    #[error("{0:?} is no address of an estimator")]
    Address(String),
    /// Certificates that can not be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Nobody there, or not for us.
    #[error("the estimator at {0} can not be reached: {1}")]
    Unreachable(String, String),
    /// Too slow.
    #[error("the estimator at {0} does not answer in time")]
    Deadline(String),
    /// It refuses.
    #[error("the estimator at {0} refuses: {1}")]
    Refused(String, Status),
    /// It does not know either.
    #[error("the estimator at {0} knows nothing of the cluster")]
    Unknown(String),
}

/// A client of one estimator; clones share connections.
#[derive(Debug, Clone)]
pub struct Estimator {
    http: HttpClient<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: Uri,
    name: String,
}

impl Estimator {
    /// A client of the estimator at `host:port`. Nothing is sent yet.
    ///
    /// # Errors
    /// If the address is none, or the certificates are not usable.
    pub fn new(address: &str, trust: &Trust) -> Result<Self, AskError> {
        let scheme = if trust.is_tls() { "https" } else { "http" };
        let base = uri::Builder::new().scheme(scheme).authority(address).path_and_query("/").build();
        let base = base.map_err(|_| AskError::Address(address.to_owned()))?;
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls::client(trust)?)
            .https_or_http()
            .enable_http2()
            .build();
        let http = HttpClient::builder(TokioExecutor::new()).http2_only(true).build(connector);
        Ok(Self { http, base, name: address.to_owned() })
    }

    /// Pods of a task that fit.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn replicas(
        &self,
        cluster: &str,
        namespace: &str,
        task: &Task,
        assumed: Vec<AssumedWorkload>,
    ) -> Result<u32, AskError> {
        let request = MaxAvailableReplicasRequest {
            cluster: cluster.to_owned(),
            replica_requirements: Some(read::write_replica(namespace, task)),
            assumed_workloads: assumed,
        };
        let answer: MaxAvailableReplicasResponse = self.call("MaxAvailableReplicas", &request).await?;
        u32::try_from(answer.max_replicas).map_err(|_| AskError::Unknown(self.name.clone()))
    }

    /// Whole sets that fit, of so many pods of each task.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn sets(
        &self,
        cluster: &str,
        namespace: &str,
        (gang, pods): (&Gang, &[u32]),
        assumed: Vec<AssumedWorkload>,
    ) -> Result<u32, AskError> {
        let request = MaxAvailableComponentSetsRequest {
            cluster: cluster.to_owned(),
            components: read::write_set(gang, pods),
            namespace: namespace.to_owned(),
            assumed_workloads: assumed,
        };
        let answer: MaxAvailableComponentSetsResponse = self.call("MaxAvailableComponentSets", &request).await?;
        u32::try_from(answer.max_sets).map_err(|_| AskError::Unknown(self.name.clone()))
    }

    /// One unary call.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn call<Q: Message, A: Message + Default>(&self, method: &str, request: &Q) -> Result<A, AskError> {
        match tokio::time::timeout(TIMEOUT, self.call_without_deadline(method, request)).await {
            Ok(answer) => answer,
            Err(_) => Err(AskError::Deadline(self.name.clone())),
        }
    }

    async fn call_without_deadline<Q: Message, A: Message + Default>(
        &self,
        method: &str,
        request: &Q,
    ) -> Result<A, AskError> {
        let unreachable = |error: &dyn std::fmt::Display| AskError::Unreachable(self.name.clone(), error.to_string());
        let request = Request::post(format!("{}{SERVICE}/{method}", self.base))
            .header(header::CONTENT_TYPE, CONTENT_TYPE)
            .header(header::TE, "trailers")
            .header("grpc-timeout", format!("{}S", TIMEOUT.as_secs()))
            .body(Full::new(frame(request)))
            .map_err(|error| unreachable(&error))?;
        let response = self.http.request(request).await.map_err(|error| unreachable(&chain(&error)))?;
        let refused = |status| AskError::Refused(self.name.clone(), status);
        let (head, body) = response.into_parts();
        // One without an answer has its status in front.
        if let Some(status) = Status::of(&head.headers).filter(|status| status.code != 0) {
            return Err(refused(status));
        }
        if !head.status.is_success() {
            return Err(unreachable(&head.status));
        }
        let body = Limited::new(body, LONGEST).collect().await.map_err(|error| unreachable(&error))?;
        let trailers = body.trailers().cloned().unwrap_or_default();
        match Status::of(&trailers).or_else(|| Status::of(&head.headers)) {
            Some(status) if status.code == 0 => unframe(&body.to_bytes()).map_err(refused),
            Some(status) => Err(refused(status)),
            None => Err(unreachable(&"its answer is cut")),
        }
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
