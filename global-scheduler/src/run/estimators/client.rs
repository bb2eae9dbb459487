//! The client of one member's estimator, Karmada's or ours: unary gRPC calls with a deadline.

use std::{error::Error, sync::Arc, time::Duration};

use caldera_core::gang::{Gang, Task};
use caldera_crds::estimator::{
    SERVICE, convert,
    messages::{
        AssumedWorkload, MaxAvailableComponentSetsRequest, MaxAvailableComponentSetsResponse,
        MaxAvailableReplicasRequest, MaxAvailableReplicasResponse,
    },
};
use caldera_runtime::tls::{Identity, TlsError, install_provider, parse_identity, parse_roots};
use http::{Uri, uri};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use prost::Message;
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tonic::{Status, client::Grpc};
use tonic_prost::ProstCodec;

/// Karmada's default (`--scheduler-estimator-timeout`).
pub const TIMEOUT: Duration = Duration::from_secs(3);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum EstimatorError {
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
    #[error("the estimator at {0} refuses: {message} (gRPC status {code})", message = .1.message(), code = .1.code() as i32)]
    Refused(String, Status),
    /// It does not know either.
    #[error("the estimator at {0} knows nothing of the cluster")]
    Unknown(String),
}

/// What a client trusts and shows.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// PEM of who signed the server's certificate.
    pub ca_pem: Option<String>,
    /// Shown to servers that want to know who asks.
    pub identity: Option<Identity>,
    /// Any certificate is good.
    pub insecure: bool,
}

impl Trust {
    /// Whether TLS is spoken at all: as Karmada has it, not without something to check or not to check.
    #[must_use]
    pub const fn uses_tls(&self) -> bool {
        self.ca_pem.is_some() || self.insecure
    }

    /// The configuration of a TLS client.
    ///
    /// # Errors
    /// If a PEM is unusable.
    pub fn client_config(&self) -> Result<ClientConfig, TlsError> {
        install_provider();
        let builder = ClientConfig::builder();
        let builder = match &self.ca_pem {
            _ if self.insecure => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAnyServer::new()))
            }
            Some(pem) => builder.with_root_certificates(parse_roots(pem)?),
            None => builder.with_root_certificates(RootCertStore::empty()),
        };
        match &self.identity {
            None => Ok(builder.with_no_client_auth()),
            Some(identity) => {
                let (certs, key) = parse_identity(identity)?;
                builder.with_client_auth_cert(certs, key).map_err(|source| TlsError::Config { source })
            }
        }
    }
}

/// A client of one estimator; clones share connections.
#[derive(Debug, Clone)]
pub struct EstimatorClient {
    grpc: Grpc<HttpClient<HttpsConnector<HttpConnector>, tonic::body::Body>>,
    address: String,
}

impl EstimatorClient {
    /// A client of the estimator at `host:port`. Nothing is sent yet.
    ///
    /// # Errors
    /// If the address is none, or the certificates are not usable.
    pub fn new(address: &str, trust: &Trust) -> Result<Self, EstimatorError> {
        let scheme = if trust.uses_tls() { "https" } else { "http" };
        let origin = Uri::builder().scheme(scheme).authority(address).path_and_query("/").build();
        let origin = origin.map_err(|_| EstimatorError::Address(address.to_owned()))?;
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(trust.client_config()?)
            .https_or_http()
            .enable_http2()
            .build();
        let http = HttpClient::builder(TokioExecutor::new()).http2_only(true).build(connector);
        Ok(Self { grpc: Grpc::with_origin(http, origin), address: address.to_owned() })
    }

    /// Pods of a task that fit.
    ///
    /// # Errors
    /// [`EstimatorError`].
    pub async fn request_max_available_replicas(
        &self,
        cluster: &str,
        namespace: &str,
        task: &Task,
        assumed_workloads: Vec<AssumedWorkload>,
    ) -> Result<u32, EstimatorError> {
        let replica_requirements = Some(convert::write_task(namespace, task));
        let request =
            MaxAvailableReplicasRequest { cluster: cluster.to_owned(), replica_requirements, assumed_workloads };
        let answer: MaxAvailableReplicasResponse = self.call_method("MaxAvailableReplicas", request).await?;
        u32::try_from(answer.max_replicas).map_err(|_| EstimatorError::Unknown(self.address.clone()))
    }

    /// Whole sets that fit, of so many pods of each task.
    ///
    /// # Errors
    /// [`EstimatorError`].
    pub async fn request_max_available_sets(
        &self,
        cluster: &str,
        namespace: &str,
        (gang, pods): (&Gang, &[u32]),
        assumed_workloads: Vec<AssumedWorkload>,
    ) -> Result<u32, EstimatorError> {
        let request = MaxAvailableComponentSetsRequest {
            cluster: cluster.to_owned(),
            components: convert::write_components(gang, pods),
            namespace: namespace.to_owned(),
            assumed_workloads,
        };
        let answer: MaxAvailableComponentSetsResponse = self.call_method("MaxAvailableComponentSets", request).await?;
        u32::try_from(answer.max_sets).map_err(|_| EstimatorError::Unknown(self.address.clone()))
    }

    /// One unary call.
    ///
    /// # Errors
    /// [`EstimatorError`].
    pub async fn call_method<Q: Message + 'static, A: Message + Default + 'static>(
        &self,
        method: &str,
        request: Q,
    ) -> Result<A, EstimatorError> {
        let path = uri::PathAndQuery::try_from(format!("/{SERVICE}/{method}"));
        let path = path.map_err(|_| EstimatorError::Address(self.address.clone()))?;
        let mut request = tonic::Request::new(request);
        request.set_timeout(TIMEOUT);
        let mut grpc = self.grpc.clone();
        let call = grpc.unary(request, path, ProstCodec::<Q, A>::default());
        match tokio::time::timeout(TIMEOUT, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(match status.source() {
                Some(cause) => EstimatorError::Unreachable(self.address.clone(), with_causes(cause)),
                None => EstimatorError::Refused(self.address.clone(), status),
            }),
            Err(_) => Err(EstimatorError::Deadline(self.address.clone())),
        }
    }
}

/// An error with its causes.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Accepts every server's certificate, for `--insecure-skip-estimator-verify`.
#[derive(Debug)]
struct AcceptAnyServer(Vec<SignatureScheme>);

impl AcceptAnyServer {
    fn new() -> Self {
        let schemes = CryptoProvider::get_default()
            .map(|provider| provider.signature_verification_algorithms.supported_schemes());
        Self(schemes.unwrap_or_default())
    }
}

impl ServerCertVerifier for AcceptAnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}
