//! The server under test: one that the runner starts, or an external one named by environment variables.
//!
//! External: `CALDERA_CONFORMANCE_SERVER=https://host:port`, `CALDERA_CONFORMANCE_TOKEN` (admin) and, for the auth
//! area, `CALDERA_CONFORMANCE_ALICE_TOKEN`.

use std::collections::BTreeMap;
use std::sync::Arc;

use embedded_apiserver::auth::User;
use embedded_apiserver::{ApiServer, Options};
use tokio_util::sync::CancellationToken;

pub struct Target {
    pub url: String,
    pub admin: String,
    pub alice: String,
    /// Set when the server is ours: it acts at once, and history can be forgotten on request.
    pub embedded: Option<ApiServer>,
    stop: CancellationToken,
}

impl Drop for Target {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Target {
    pub async fn start() -> Target {
        let stop = CancellationToken::new();
        if let Ok(url) = std::env::var("CALDERA_CONFORMANCE_SERVER") {
            let token = |name: &str| std::env::var(name).unwrap_or_default();
            let admin = token("CALDERA_CONFORMANCE_TOKEN");
            return Target { url, admin, alice: token("CALDERA_CONFORMANCE_ALICE_TOKEN"), embedded: None, stop };
        }
        let alice = User {
            name: "alice".into(),
            uid: "alice".into(),
            groups: vec!["devs".into(), "system:authenticated".into()],
            ..User::default()
        };
        let options = Options {
            admin_token: Some("admin-token".into()),
            users: BTreeMap::from([("alice-token".to_owned(), alice)]),
            ..Options::default()
        };
        let server = ApiServer::new(options);
        let tls = Arc::new(self_signed());
        let address = server.serve(([127, 0, 0, 1], 0).into(), tls, stop.clone()).await.unwrap();
        Target {
            url: format!("https://{address}"),
            admin: "admin-token".into(),
            alice: "alice-token".into(),
            embedded: Some(server),
            stop,
        }
    }

    /// Makes every version up to now unusable for exact and continued lists; false when the server has no such hook.
    pub fn compact(&self) -> bool {
        match &self.embedded {
            Some(server) => {
                server.compact();
                true
            }
            None => false,
        }
    }
}

/// A throw-away authority and a server certificate for this machine.
pub fn authority() -> (String, rustls::ServerConfig) {
    let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, "conformance-ca");
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let ca = params.self_signed(&ca_key).unwrap();
    let issuer = rcgen::Issuer::new(params, ca_key);
    let leaf_params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
    let leaf_key = rcgen::KeyPair::generate().unwrap();
    let leaf = leaf_params.signed_by(&leaf_key, &issuer).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(leaf_key.serialize_der()).unwrap();
    let mut config =
        rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(vec![leaf.der().clone()], key).unwrap();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    (ca.pem(), config)
}

pub fn self_signed() -> rustls::ServerConfig {
    authority().1
}
