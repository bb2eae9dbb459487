//! The certificate that a webhook serves with, and what its callers must trust.
//!
//! Rule: who brings a certificate says what signed it; both are read again, and where the webhook registers itself the
//! configurations follow the bundle. Otherwise a certificate is made at start. A webhook that registers itself shares
//! its authority with the other replicas, by a Secret that the first one makes: the configurations name one authority,
//! and whichever replica wrote them last, all are trusted. That authority ends and is replaced before it does, as
//! [`rotation`] says, by whichever replica looks first. At each look the configurations are read, and what somebody
//! overwrote of what callers trust is corrected: without an answer that they trust all webhooks fail closed.

pub mod authority_secret;
pub mod rotation;

use std::{
    collections::BTreeMap,
    fs,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use caldera_crds::trusted::TrustedWriters;
use caldera_runtime::tls::{
    AUTHORITY, Authority, CertificateExpiry, Identity, RELOAD_EVERY, SERVING, ServedTls, TlsRenewal, parse_roots,
    read_validity, server_config_with_client_ca,
};
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use self::{
    authority_secret::{SharedAuthority, share_authority, take_step},
    rotation::{RotationStep, RotationTiming, begin_validity, decide_step, is_leaf_due},
};
use crate::{
    args::ServingArgs,
    manifests::build_apply_write,
    objects::{get_object, read_list_at, read_text_at},
    stack,
};

/// Between two looks at the shared authority: many in an overlap.
pub const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Steps in a look: more than a replacement has.
const MOST_STEPS: usize = 8;

/// Who is told to trust whom: the configurations of the webhook at a URL.
#[derive(Clone)]
pub struct Registration {
    /// Where the Karmada API is, with the webhook's account.
    pub client: Client,
    /// The webhook, as its callers reach it.
    pub url: String,
    /// Who may write what only trusted writers may.
    pub trusted: TrustedWriters,
}

impl Registration {
    /// Applies all configurations with a bundle that is new, else those that do not trust it.
    async fn ensure_bundle(&self, bundle: &str, is_new: bool) -> anyhow::Result<()> {
        let endpoint = caldera_webhook::Endpoint::Url(self.url.trim_end_matches('/').to_owned());
        for object in caldera_webhook::build_configurations_for(&endpoint, bundle, &self.trusted) {
            if is_new || self.is_overwritten(&object).await? {
                stack::apply_object(&self.client, object).await?;
            }
        }
        Ok(())
    }

    /// Whether a configuration is not there, or trusts something else. One that may not be read is taken for right.
    async fn is_overwritten(&self, wanted: &Value) -> anyhow::Result<bool> {
        let write = build_apply_write(wanted.clone(), "caldera-install")?;
        let Ok(found) = get_object(&self.client, &write.resource, None, &write.name).await? else { return Ok(false) };
        let is_overwritten = !trusts_as_wanted(wanted, found.as_ref());
        if is_overwritten {
            let kind = &write.resource.kind;
            tracing::warn!(
                kind,
                name = write.name,
                "somebody removed it or overwrote its caBundle; it is written again"
            );
        }
        Ok(is_overwritten)
    }

    /// Tells callers of a bundle that somebody else wrote.
    async fn report_bundle(&self, bundle: &str, expiry: &CertificateExpiry) -> anyhow::Result<()> {
        parse_roots(bundle)?;
        self.ensure_bundle(bundle, true).await?;
        expiry.show_certificate(AUTHORITY, bundle);
        Ok(())
    }
}

/// Whether each hook that is there has the bundle that is wanted. Which hooks are there is no matter of trust: replicas
/// of two versions would undo each other's.
fn trusts_as_wanted(wanted: &Value, found: Option<&Value>) -> bool {
    let Some(found) = found else { return false };
    let bundle_of = |hook: &Value| read_text_at(hook, "/clientConfig/caBundle").to_owned();
    let name_of = |hook: &Value| read_text_at(hook, "/name").to_owned();
    let all: BTreeMap<_, _> =
        read_list_at(wanted, "/webhooks").iter().map(|hook| (name_of(hook), bundle_of(hook))).collect();
    let mut there = read_list_at(found, "/webhooks").iter();
    there.all(|hook| all.get(&name_of(hook)).is_none_or(|bundle| *bundle == bundle_of(hook)))
}

/// What a webhook serves with, as its flags say, and keeps so until `stop`. Where it registers itself its callers are
/// told before this returns.
///
/// # Errors
/// If a file, the Secret or the configurations can not be used.
pub async fn serve_identity(
    args: &ServingArgs,
    namespace: &str,
    client: &Client,
    expiry: CertificateExpiry,
    stop: &CancellationToken,
) -> anyhow::Result<ServedTls> {
    let registration = args.register_url.as_ref().map(|url| Registration {
        client: client.clone(),
        url: url.clone(),
        trusted: args.trusted.to_writers(),
    });
    if let (Some(cert), Some(key)) = (&args.tls_cert, &args.tls_key) {
        let bundle = args.ca_bundle.as_ref().unwrap_or(cert).clone();
        if let Some(registration) = registration {
            follow_bundle(bundle, registration, RELOAD_EVERY, expiry.clone(), stop).await?;
        }
        let files = [cert, key].into_iter().chain(&args.client_ca).cloned().collect();
        return Ok(ServedTls::from_files(files, RELOAD_EVERY, move |pems| {
            let text = |at: usize| pems.get(at).cloned().unwrap_or_default();
            let identity = Identity { cert_pem: text(0), key_pem: text(1) };
            let config = server_config_with_client_ca(&identity, pems.get(2).map(String::as_str))?;
            expiry.show_certificate(SERVING, &identity.cert_pem);
            Ok(config)
        })?);
    }
    let client_ca = args.client_ca.as_deref().map(read_pem).transpose()?;
    let listen = args.listen.ip();
    let Some(registration) = registration else {
        let identity = issue_identity(&Authority::new(authority_secret::AUTHORITY)?, listen, "")?;
        expiry.show_certificate(SERVING, &identity.cert_pem);
        return Ok(server_config_with_client_ca(&identity, client_ca.as_deref())?.into());
    };
    let namespace = namespace.to_owned();
    let keeper = AuthorityKeeper {
        registration,
        namespace,
        listen,
        client_ca,
        timing: RotationTiming::default(),
        every: LOOK_EVERY,
        expiry,
    };
    keeper.start(stop).await
}

fn read_pem(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))
}

/// Tells callers to trust what is in this file, now and each time that it changes.
///
/// # Errors
/// If it can not be read or told now. Later that is logged, and tried again.
pub async fn follow_bundle(
    path: PathBuf,
    registration: Registration,
    every: Duration,
    expiry: CertificateExpiry,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let mut known = read_pem(&path)?;
    registration.report_bundle(&known, &expiry).await?;
    let stop = stop.clone();
    tokio::spawn(async move {
        let mut failures = Failures::default();
        while wait_for_look(every, &stop).await {
            let looked = async {
                let now = read_pem(&path)?;
                if now != known {
                    registration.report_bundle(&now, &expiry).await?;
                    tracing::info!(path = %path.display(), "the webhook configurations trust what is in the file now");
                    known = now;
                } else {
                    registration.ensure_bundle(&known, false).await?;
                }
                anyhow::Ok(())
            };
            failures.log_result(looked.await);
        }
    });
    Ok(())
}

/// Whether another look is due; no longer once it is stopped.
async fn wait_for_look(every: Duration, stop: &CancellationToken) -> bool {
    tokio::select! {
        biased;
        () = stop.cancelled() => false,
        () = tokio::time::sleep(every) => true,
    }
}

/// What failed last: it is logged once.
#[derive(Default)]
struct Failures(Option<String>);

impl Failures {
    fn log_result(&mut self, result: anyhow::Result<()>) {
        let why = result.err().map(|error| format!("{error:#}"));
        if let Some(why) = why.as_ref().filter(|why| self.0.as_ref() != Some(*why)) {
            tracing::warn!(why, "the certificates of the webhook stay as they are for now");
        }
        self.0 = why;
    }
}

/// Keeps the authority that replicas share, what callers trust, and this replica's own certificate.
pub struct AuthorityKeeper {
    /// Who is told.
    pub registration: Registration,
    /// Namespace of the Secret.
    pub namespace: String,
    /// An address that the certificate is for, beside the URL's host.
    pub listen: IpAddr,
    /// PEM of who signed the certificates of clients, if they need one.
    pub client_ca: Option<String>,
    /// How long things take.
    pub timing: RotationTiming,
    /// Between two looks.
    pub every: Duration,
    /// Where the ends of certificates are shown.
    pub expiry: CertificateExpiry,
}

/// What a look left.
struct Kept {
    identity: Arc<Identity>,
    /// Signed it.
    signer: String,
    /// What callers were told to trust.
    reported: String,
}

impl AuthorityKeeper {
    /// What is served; it is replaced as it has to be until `stop`.
    ///
    /// # Errors
    /// If the Secret or the configurations can not be used now. Later that is logged, and tried again.
    pub async fn start(self, stop: &CancellationToken) -> anyhow::Result<ServedTls> {
        let mut kept = self.look(None).await?;
        let config = server_config_with_client_ca(&kept.identity, self.client_ca.as_deref())?;
        let (renewal, served) = ServedTls::with_renewal(config);
        let stop = stop.clone();
        tokio::spawn(async move {
            let mut failures = Failures::default();
            while wait_for_look(self.every, &stop).await {
                failures.log_result(self.look_again(&mut kept, &renewal).await);
            }
        });
        Ok(served)
    }

    async fn look_again(&self, kept: &mut Kept, renewal: &TlsRenewal) -> anyhow::Result<()> {
        let now = self.look(Some(kept)).await?;
        if !Arc::ptr_eq(&now.identity, &kept.identity) {
            renewal.replace_config(server_config_with_client_ca(&now.identity, self.client_ca.as_deref())?);
            tracing::info!("serving with a new certificate");
        }
        *kept = now;
        Ok(())
    }

    /// Takes the steps that are due, and tells callers what is trusted after each.
    async fn look(&self, kept: Option<&Kept>) -> anyhow::Result<Kept> {
        let client = &self.registration.client;
        let mut reported = kept.map(|kept| kept.reported.clone());
        for _ in 0..MOST_STEPS {
            let now = Timestamp::now();
            let validity = begin_validity(now, self.timing.authority_lasts);
            let shared = share_authority(client, &self.namespace, Some(validity)).await?;
            let bundle = shared.bundle();
            let is_new = reported.as_ref() != Some(&bundle) || shared.is_replaced();
            self.registration.ensure_bundle(&bundle, is_new).await?;
            reported = Some(bundle.clone());
            let step = decide_step(&shared.to_state()?, &self.timing, now);
            if step == RotationStep::Keep {
                let identity = self.choose_identity(kept, &shared, now)?;
                self.expiry.show_certificate(SERVING, &identity.cert_pem);
                self.expiry.show_certificate(AUTHORITY, &shared.current.cert_pem);
                return Ok(Kept { identity, signer: shared.current.cert_pem, reported: bundle });
            }
            take_step(client, &self.namespace, &shared, step, (validity, now)).await?;
        }
        anyhow::bail!("the shared authority changes all the time")
    }

    /// The certificate of this replica, while who signed it signs and it is not due.
    fn choose_identity(
        &self,
        kept: Option<&Kept>,
        shared: &SharedAuthority,
        now: Timestamp,
    ) -> anyhow::Result<Arc<Identity>> {
        if let Some(kept) = kept.filter(|kept| kept.signer == shared.current.cert_pem)
            && !is_leaf_due(read_validity(&kept.identity.cert_pem)?, now)
        {
            return Ok(Arc::clone(&kept.identity));
        }
        let mut validity = begin_validity(now, self.timing.leaf_lasts);
        validity.ends = validity.ends.min(read_validity(&shared.current.cert_pem)?.ends);
        let authority = shared.to_authority()?.with_leaves_of(validity);
        Ok(Arc::new(issue_identity(&authority, self.listen, host_of(&self.registration.url))?))
    }
}

fn issue_identity(authority: &Authority, listen: IpAddr, host: &str) -> anyhow::Result<Identity> {
    let mut names = vec!["localhost", "caldera-webhook", "caldera-webhook.caldera-system.svc"];
    let mut addresses: Vec<IpAddr> = vec![Ipv4Addr::LOCALHOST.into(), listen];
    match host.parse() {
        Ok(address) => addresses.push(address),
        Err(_) if host.is_empty() => {}
        Err(_) => names.push(host),
    }
    Ok(authority.issue_server_identity("caldera-webhook", &names, &addresses)?)
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
    use serde_json::json;

    use super::*;

    #[test]
    fn a_bundle_that_somebody_overwrote_is_noticed_and_hooks_of_another_version_are_let_alone() {
        let of = |hooks: &[(&str, &str)]| {
            let hook = |(name, bundle): &(&str, &str)| json!({"name": name, "clientConfig": {"caBundle": bundle}});
            json!({"webhooks": hooks.iter().map(hook).collect::<Vec<_>>()})
        };
        let wanted = of(&[("a", "ours"), ("b", "ours")]);
        assert!(trusts_as_wanted(&wanted, Some(&wanted)));
        assert!(!trusts_as_wanted(&wanted, Some(&of(&[("a", "ours"), ("b", "others")]))));
        assert!(!trusts_as_wanted(&wanted, Some(&json!({"webhooks": [{"name": "a", "clientConfig": {}}]}))));
        assert!(!trusts_as_wanted(&wanted, None));
        assert!(trusts_as_wanted(&wanted, Some(&of(&[("a", "ours"), ("c", "others")]))));
    }

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
}
