//! Certificates and TLS server configurations: a private authority that issues certificates for servers and clients,
//! reading certificates and keys from PEM, and server configurations for the webhook, the console and the estimator.
//!
//! The authority serves a webhook that is given no certificate of its own, `caldera install`, and the sandbox. Keys are
//! made by `rcgen` with ring; call [`install_provider`] once per process before any TLS is spoken.

mod expiry;
mod served;
mod validity;

use std::{net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};

pub use expiry::{AUTHORITY, CERTIFICATE_EXPIRY, CertificateExpiry, SERVING};
pub use served::{RELOAD_EVERY, ServedTls, TlsRenewal};
pub use validity::{Validity, have_same_issuer, read_validities, read_validity};

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Making or signing one failed.
    #[error("failed to make a certificate for {subject}: {source}")]
    Make {
        /// For whom.
        subject: String,
        /// What happened.
        source: rcgen::Error,
    },
    /// The PEM holds no usable certificate or key.
    #[error("failed to read the {what} from PEM: {message}")]
    Pem {
        /// `certificate` or `private key`.
        what: &'static str,
        /// What is wrong.
        message: String,
    },
    /// A file can not be read.
    #[error("failed to read {path}: {source}")]
    File {
        /// Which.
        path: String,
        /// What happened.
        source: std::io::Error,
    },
    /// What is in these files can not be used.
    #[error("{files}: {source}")]
    Contents {
        /// Which.
        files: String,
        /// What is wrong.
        source: Box<TlsError>,
    },
    /// Certificate and key do not go together.
    #[error("the certificate and the key can not serve TLS: {source}")]
    Config {
        /// What is wrong.
        source: rustls::Error,
    },
}

impl TlsError {
    /// The same with the files that it is of, of a certificate, its key and the authorities of the other side.
    #[must_use]
    pub fn with_files(self, files: &[PathBuf]) -> Self {
        let of = match &self {
            Self::Make { .. } | Self::File { .. } | Self::Contents { .. } => return self,
            Self::Pem { what: "certificate", .. } => files.get(..1),
            Self::Pem { what: "private key", .. } => files.get(1..2),
            Self::Pem { .. } => files.get(2..3),
            Self::Config { .. } => files.get(..2),
        };
        let names: Vec<String> = of.unwrap_or(files).iter().map(|path| path.display().to_string()).collect();
        Self::Contents { files: names.join(", "), source: Box::new(self) }
    }
}

/// Makes ring the process's crypto provider; later calls change nothing.
pub fn install_provider() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// A certificate chain and its key, both PEM.
#[derive(Clone)]
pub struct Identity {
    /// Leaf first.
    pub cert_pem: String,
    /// PKCS#8.
    pub key_pem: String,
}

/// Never shows the key.
impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("cert_pem", &self.cert_pem).finish_non_exhaustive()
    }
}

/// A private certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    leaves: Option<Validity>,
    /// What clients must trust.
    pub cert_pem: String,
}

impl Authority {
    /// A new authority, which never ends.
    ///
    /// # Errors
    /// If no key can be made.
    pub fn new(name: &str) -> Result<Self, TlsError> {
        Self::make(name, None)
    }

    /// A new authority that ends.
    ///
    /// # Errors
    /// If no key can be made.
    pub fn with_validity(name: &str, validity: Validity) -> Result<Self, TlsError> {
        Self::make(name, Some(validity))
    }

    fn make(name: &str, validity: Option<Validity>) -> Result<Self, TlsError> {
        let failed = |source| TlsError::Make { subject: name.to_owned(), source };
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = authority_params(name);
        set_validity(&mut params, validity);
        let cert = params.self_signed(&key).map_err(failed)?;
        Ok(Self { issuer: Issuer::new(params, key), leaves: None, cert_pem: cert.pem() })
    }

    /// The same; what it signs from now on serves for that time.
    #[must_use]
    pub fn with_leaves_of(self, validity: Validity) -> Self {
        Self { leaves: Some(validity), ..self }
    }

    /// The authority of this name that was made before, from its certificate and its key.
    ///
    /// # Errors
    /// If the key is unusable.
    pub fn from_pem(name: &str, pem: &Identity) -> Result<Self, TlsError> {
        let unusable = |error: rcgen::Error| TlsError::Pem { what: "private key", message: error.to_string() };
        let key = KeyPair::from_pem(&pem.key_pem).map_err(unusable)?;
        parse_roots(&pem.cert_pem)?;
        Ok(Self { issuer: Issuer::new(authority_params(name), key), leaves: None, cert_pem: pem.cert_pem.clone() })
    }

    /// Its certificate and its key.
    #[must_use]
    pub fn to_pem(&self) -> Identity {
        Identity { cert_pem: self.cert_pem.clone(), key_pem: self.issuer.key().serialize_pem() }
    }

    /// A server's certificate for these names and addresses.
    ///
    /// # Errors
    /// If a name is not a DNS name or no key can be made.
    pub fn issue_server_identity(&self, name: &str, dns: &[&str], addresses: &[IpAddr]) -> Result<Identity, TlsError> {
        self.issue_leaf(name, dns, addresses, vec![ExtendedKeyUsagePurpose::ServerAuth])
    }

    /// A client's certificate for this name.
    ///
    /// # Errors
    /// If no key can be made.
    pub fn issue_client_identity(&self, name: &str) -> Result<Identity, TlsError> {
        self.issue_leaf(name, &[], &[], vec![ExtendedKeyUsagePurpose::ClientAuth])
    }

    /// A certificate of one that is server and client to others of its kind.
    ///
    /// # Errors
    /// If the name is not a DNS name or no key can be made.
    pub fn issue_peer_identity(&self, name: &str) -> Result<Identity, TlsError> {
        let usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        self.issue_leaf(name, &[name], &[], usages)
    }

    fn issue_leaf(
        &self,
        name: &str,
        dns: &[&str],
        addresses: &[IpAddr],
        usages: Vec<ExtendedKeyUsagePurpose>,
    ) -> Result<Identity, TlsError> {
        let failed = |source| TlsError::Make { subject: name.to_owned(), source };
        let key = KeyPair::generate().map_err(failed)?;
        let mut params =
            CertificateParams::new(dns.iter().map(|dns| (*dns).to_owned()).collect::<Vec<_>>()).map_err(failed)?;
        params.distinguished_name = common_name(name);
        params.subject_alt_names.extend(addresses.iter().map(|address| SanType::IpAddress(*address)));
        params.extended_key_usages = usages;
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, self.leaves);
        let cert = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(Identity { cert_pem: cert.pem(), key_pem: key.serialize_pem() })
    }
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    params
}

/// Without one it stays what a certificate has that never ends.
fn set_validity(params: &mut CertificateParams, validity: Option<Validity>) {
    let Some(Validity { begins, ends }) = validity else { return };
    let since_1970 = |time: jiff::Timestamp| Duration::from_secs(time.as_second().try_into().unwrap_or(0));
    params.not_before = rcgen::date_time_ymd(1970, 1, 1) + since_1970(begins);
    params.not_after = rcgen::date_time_ymd(1970, 1, 1) + since_1970(ends);
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// A server configuration that speaks HTTP/2 and HTTP/1.1 with this identity.
///
/// # Errors
/// If the PEM is unusable.
pub fn server_config(identity: &Identity) -> Result<Arc<rustls::ServerConfig>, TlsError> {
    server_config_with_client_ca(identity, None)
}

/// The same; with `client_ca` for clients alone that it has signed.
///
/// # Errors
/// If a PEM is unusable.
pub fn server_config_with_client_ca(
    identity: &Identity,
    client_ca: Option<&str>,
) -> Result<Arc<rustls::ServerConfig>, TlsError> {
    build_config(identity, client_ca, rustls::DEFAULT_VERSIONS, &["h2", "http/1.1"])
}

/// The same by TLS 1.3 and HTTP/2 alone, as Karmada sets up its estimators.
///
/// # Errors
/// If a PEM is unusable.
pub fn estimator_server_config(
    identity: &Identity,
    client_ca: Option<&str>,
) -> Result<Arc<rustls::ServerConfig>, TlsError> {
    build_config(identity, client_ca, &[&rustls::version::TLS13], &["h2"])
}

fn build_config(
    identity: &Identity,
    client_ca: Option<&str>,
    versions: &[&'static rustls::SupportedProtocolVersion],
    protocols: &[&str],
) -> Result<Arc<rustls::ServerConfig>, TlsError> {
    install_provider();
    let (certs, key) = parse_identity(identity)?;
    let builder = rustls::ServerConfig::builder_with_protocol_versions(versions);
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(pem) => builder.with_client_cert_verifier(client_verifier(pem)?),
    };
    let mut config = builder.with_single_cert(certs, key).map_err(|source| TlsError::Config { source })?;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Ok(Arc::new(config))
}

/// A client configuration that shows this identity, and believes servers whose certificate this authority has signed.
///
/// # Errors
/// If a PEM is unusable.
pub fn peer_client_config(identity: &Identity, ca: &str) -> Result<rustls::ClientConfig, TlsError> {
    install_provider();
    let (certs, key) = parse_identity(identity)?;
    let builder = rustls::ClientConfig::builder().with_root_certificates(parse_roots(ca)?);
    builder.with_client_auth_cert(certs, key).map_err(|source| TlsError::Config { source })
}

/// Takes clients whose certificate one of these authorities has signed.
fn client_verifier(pem: &str) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let verifier = WebPkiClientVerifier::builder(Arc::new(parse_roots(pem)?)).build();
    verifier.map_err(|error| TlsError::Pem { what: "client CA", message: error.to_string() })
}

/// The certificate chain and the key of an identity.
///
/// # Errors
/// If the PEM is unusable.
pub fn parse_identity(identity: &Identity) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let certificates = parse_certificates("certificate", &identity.cert_pem)?;
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes())
        .map_err(|error| TlsError::Pem { what: "private key", message: error.to_string() })?;
    Ok((certificates, key))
}

/// The authorities in a PEM bundle.
///
/// # Errors
/// If the PEM is unusable.
pub fn parse_roots(pem: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for cert in parse_certificates("CA", pem)? {
        roots.add(cert).map_err(|error| TlsError::Pem { what: "CA", message: error.to_string() })?;
    }
    Ok(roots)
}

fn parse_certificates(what: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| TlsError::Pem { what, message: error.to_string() })?;
    if all.is_empty() {
        return Err(TlsError::Pem { what, message: "there is none".to_owned() });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_makes_a_usable_server_identity() {
        let authority = Authority::new("test").unwrap();
        let identity =
            authority.issue_server_identity("localhost", &["localhost"], &["127.0.0.1".parse().unwrap()]).unwrap();
        assert!(server_config(&identity).is_ok());
    }

    #[test]
    fn what_can_not_be_used_is_reported_with_its_file() {
        let (authority, other) = (Authority::new("a").unwrap(), Authority::new("b").unwrap());
        let good = authority.issue_peer_identity("n").unwrap();
        let key_pem = other.issue_peer_identity("n").unwrap().key_pem;
        let files = ["tls.crt", "tls.key", "ca.crt"].map(PathBuf::from);
        let refuse = |identity: &Identity, ca: &str| {
            let client = peer_client_config(identity, ca).err().map(|error| error.with_files(&files).to_string());
            let server = server_config_with_client_ca(identity, Some(ca)).err();
            assert_eq!(client, server.map(|error| error.with_files(&files).to_string()));
            client.unwrap().split(": ").next().unwrap().to_owned()
        };
        assert_eq!(refuse(&Identity { cert_pem: "x".into(), ..good.clone() }, &authority.cert_pem), "tls.crt");
        assert_eq!(refuse(&Identity { key_pem: "x".into(), ..good.clone() }, &authority.cert_pem), "tls.key");
        assert_eq!(refuse(&Identity { key_pem, ..good.clone() }, &authority.cert_pem), "tls.crt, tls.key");
        assert_eq!(refuse(&good, ""), "ca.crt");
    }

    #[test]
    fn garbage_pem_is_reported() {
        let identity = Identity { cert_pem: "x".into(), key_pem: "y".into() };
        assert!(server_config(&identity).unwrap_err().to_string().contains("certificate"));
    }
}
