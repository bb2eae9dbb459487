//! TLS of the server as Karmada sets it up for estimators: version 1.3, and client certificates where an authority for
//! them is given.

use std::sync::Arc;

use caldera_runtime::tls::{Identity, TlsError, client_verifier, install_provider, parse_identity};
use rustls::ServerConfig;

/// A server's configuration; with `client_ca` only clients that it has signed may ask.
///
/// # Errors
/// If a PEM is unusable.
pub fn server_config(identity: &Identity, client_ca: Option<&str>) -> Result<Arc<ServerConfig>, TlsError> {
    install_provider();
    let (certs, key) = parse_identity(identity)?;
    let builder = ServerConfig::builder_with_protocol_versions(&[&rustls::version::TLS13]);
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(pem) => builder.with_client_cert_verifier(client_verifier(pem)?),
    };
    let mut config = builder.with_single_cert(certs, key).map_err(|source| TlsError::Config { source })?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}
