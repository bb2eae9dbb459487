//! The certificate that a webhook serves with, and what its callers must trust.
//!
//! Rule: who brings a certificate says what signed it. Otherwise one is made at start. A webhook that registers itself
//! shares its authority with the other replicas, by a Secret that the first one makes: the configurations name one
//! authority, and whichever replica wrote them last, all are trusted.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
};

use anyhow::Context;
use caldera_runtime::tls::{Authority, Identity};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};

use crate::args::ServingArgs;

/// Secret with the authority of webhooks that register themselves.
pub const AUTHORITY_SECRET: &str = "caldera-webhook-authority";
const AUTHORITY: &str = "caldera-webhook";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// The certificate to serve, and what clients must trust.
///
/// # Errors
/// If a file or the Secret can not be used.
pub async fn webhook_identity(
    args: &ServingArgs,
    namespace: &str,
    client: &Client,
) -> anyhow::Result<(Identity, String)> {
    let read = |path: &PathBuf| fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()));
    if let (Some(cert), Some(key)) = (&args.tls_cert, &args.tls_key) {
        let identity = Identity { cert_pem: read(cert)?, key_pem: read(key)? };
        let trusted = args.ca_bundle.as_ref().map(read).transpose()?;
        let trusted = trusted.unwrap_or_else(|| identity.cert_pem.clone());
        return Ok((identity, trusted));
    }
    let Some(url) = &args.register_url else { return issue_identity(&Authority::new(AUTHORITY)?, args, "") };
    let authority = share_authority(client, namespace).await?;
    issue_identity(&authority, args, host_of(url))
}

fn issue_identity(authority: &Authority, args: &ServingArgs, host: &str) -> anyhow::Result<(Identity, String)> {
    let mut names = vec!["localhost", "caldera-webhook", "caldera-webhook.caldera-system.svc"];
    let mut addresses: Vec<IpAddr> = vec![Ipv4Addr::LOCALHOST.into(), args.listen.ip()];
    match host.parse() {
        Ok(address) => addresses.push(address),
        Err(_) if host.is_empty() => {}
        Err(_) => names.push(host),
    }
    let identity = authority.issue_server_identity("caldera-webhook", &names, &addresses)?;
    Ok((identity, authority.cert_pem.clone()))
}

/// The authority of the Secret; a new one where there is no Secret, and this replica is the first to write it.
///
/// # Errors
/// If the Secret can be neither made nor used.
pub async fn share_authority(client: &Client, namespace: &str) -> anyhow::Result<Authority> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let failed = || format!("failed to share the authority in Secret {namespace}/{AUTHORITY_SECRET}");
    let new = Authority::new(AUTHORITY)?;
    let pem = new.to_pem();
    let data = [(CERTIFICATE, pem.cert_pem), (KEY, pem.key_pem)];
    let secret = Secret {
        metadata: ObjectMeta { name: Some(AUTHORITY_SECRET.to_owned()), ..ObjectMeta::default() },
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(data.map(|(name, text)| (name.to_owned(), ByteString(text.into_bytes()))).into()),
        ..Secret::default()
    };
    match secrets.create(&PostParams::default(), &secret).await {
        Ok(_) => return Ok(new),
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => return Err(error).with_context(failed),
    }
    let mut data = secrets.get(AUTHORITY_SECRET).await.with_context(failed)?.data.unwrap_or_default();
    let mut text = |name: &str| {
        let bytes = data.remove(name).with_context(|| format!("it has no {name}"))?;
        String::from_utf8(bytes.0).with_context(|| format!("its {name} is no text"))
    };
    let pem = text(CERTIFICATE).and_then(|cert_pem| Ok(Identity { cert_pem, key_pem: text(KEY)? }));
    Ok(Authority::from_pem(AUTHORITY, &pem.with_context(failed)?)?)
}

/// `https://host:port/path` -> `host`.
pub fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
    }
}

#[cfg(test)]
mod tests {
    use caldera_runtime::client::WriteCounts;
    use caldera_sandbox::fleet::{Config, Fleet};
    use clap::Parser;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::args::{Args, Command};

    #[test]
    fn the_host_of_a_url_is_found() {
        for (url, host) in [
            ("https://10.0.0.1:8443/x", "10.0.0.1"),
            ("https://webhook.example.com", "webhook.example.com"),
            ("https://[::1]:8443", "::1"),
        ] {
            assert_eq!(host_of(url), host);
        }
    }

    #[tokio::test]
    async fn two_replicas_that_register_themselves_share_one_authority() {
        caldera_runtime::tls::install_provider();
        let stop = CancellationToken::new();
        let fleet = Fleet::start(Config::with_members(0), &stop).await.unwrap();
        let client = fleet.host.client("test", &WriteCounts::default()).unwrap();
        let words = ["caldera", "webhook", "--register-url", "https://webhook.example.com:8443"];
        let Command::Webhook(args) = Args::try_parse_from(words).unwrap().command else { panic!() };
        let (one, trusted) =
            webhook_identity(&args.serving, &args.component.process.lease_namespace, &client).await.unwrap();
        let (other, same) =
            webhook_identity(&args.serving, &args.component.process.lease_namespace, &client).await.unwrap();
        assert_eq!(trusted, same);
        assert_ne!(one.cert_pem, other.cert_pem);
        // The one that the second issued is trusted by who trusts the first.
        use rustls::{
            client::danger::ServerCertVerifier as _,
            pki_types::{CertificateDer, ServerName, pem::PemObject},
        };
        let roots = caldera_runtime::tls::parse_roots(&trusted).unwrap();
        let verifier = rustls::client::WebPkiServerVerifier::builder(roots.into()).build().unwrap();
        let leaf = CertificateDer::from_pem_slice(other.cert_pem.as_bytes()).unwrap();
        let name = ServerName::try_from("webhook.example.com").unwrap();
        let now = rustls::pki_types::UnixTime::now();
        verifier.verify_server_cert(&leaf, &[], &name, &[], now).unwrap();
        stop.cancel();
    }
}
