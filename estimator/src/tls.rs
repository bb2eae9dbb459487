//! TLS as Karmada sets it up for estimators: certificates from files, both ways if asked for, 1.3 on the server.

use std::sync::Arc;

use caldera_runtime::tls::{Identity, TlsError, install_provider};
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::WebPkiClientVerifier,
};

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
    pub const fn is_tls(&self) -> bool {
        self.ca_pem.is_some() || self.insecure
    }
}

/// A server's configuration; with `client_ca` only those that it has signed may ask.
///
/// # Errors
/// If a PEM is unusable.
pub fn server(identity: &Identity, client_ca: Option<&str>) -> Result<Arc<ServerConfig>, TlsError> {
    install_provider();
    let (certs, key) = parsed(identity)?;
    let builder = ServerConfig::builder_with_protocol_versions(&[&rustls::version::TLS13]);
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let verifier = WebPkiClientVerifier::builder(Arc::new(roots(pem)?));
            let unusable =
                |error: &dyn std::fmt::Display| TlsError::Pem { what: "client CA", message: error.to_string() };
            builder.with_client_cert_verifier(verifier.build().map_err(|error| unusable(&error))?)
        }
    };
    let mut config = builder.with_single_cert(certs, key).map_err(|source| TlsError::Config { source })?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

/// A client's configuration.
///
/// # Errors
/// If a PEM is unusable.
pub fn client(trust: &Trust) -> Result<ClientConfig, TlsError> {
    install_provider();
    let builder = ClientConfig::builder();
    let builder = match &trust.ca_pem {
        _ if trust.insecure => builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody::new())),
        Some(pem) => builder.with_root_certificates(roots(pem)?),
        None => builder.with_root_certificates(RootCertStore::empty()),
    };
    match &trust.identity {
        None => Ok(builder.with_no_client_auth()),
        Some(identity) => {
            let (certs, key) = parsed(identity)?;
            builder.with_client_auth_cert(certs, key).map_err(|source| TlsError::Config { source })
        }
    }
}

fn parsed(identity: &Identity) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let certs = certificates("certificate", &identity.cert_pem)?;
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes())
        .map_err(|error| TlsError::Pem { what: "private key", message: error.to_string() })?;
    Ok((certs, key))
}

fn certificates(what: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| TlsError::Pem { what, message: error.to_string() })?;
    if all.is_empty() {
        return Err(TlsError::Pem { what, message: "there is none".to_owned() });
    }
    Ok(all)
}

fn roots(pem: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for cert in certificates("CA", pem)? {
        roots.add(cert).map_err(|error| TlsError::Pem { what: "CA", message: error.to_string() })?;
    }
    Ok(roots)
}

/// Believes everybody, for `--insecure-skip-estimator-verify`.
#[derive(Debug)]
struct Anybody(Vec<SignatureScheme>);

impl Anybody {
    fn new() -> Self {
        let schemes = CryptoProvider::get_default()
            .map(|provider| provider.signature_verification_algorithms.supported_schemes());
        Self(schemes.unwrap_or_default())
    }
}

impl ServerCertVerifier for Anybody {
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
