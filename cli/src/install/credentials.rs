//! The webhook's certificate and a kubeconfig for each account: made once, and kept while they serve.
//!
//! Rules:
//! 1. The authority is made once, in a Secret on the Karmada API, and shared by all that comes later. A certificate is
//!    kept while that authority signed it for the webhook's name. One that somebody else signed is never replaced. One
//!    of an authority of ours that an uninstall removed is moved aside, with its key.
//!    Certificate and key belong together, also after a stop between the two: the certificate goes first and comes
//!    last.
//! 2. A kubeconfig is kept while it leads to the same server with the same trust, the API server takes its token for
//!    that account, and half of the token's time is left. Its times are in an extension of the kubeconfig.
//! 3. Nobody but their owner reads the files.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context;
use base64::{Engine, engine::general_purpose::STANDARD};
use caldera_runtime::{
    tls::{Authority, Identity, have_same_issuer, parse_roots},
    watch::api_resource,
    write::{Body, Write, execute_write},
};
use jiff::Timestamp;
use kube::Client;
use rustls::{
    client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
};
use serde_json::{Value, json};

use crate::{
    objects::read_text_at,
    roles::{NAMESPACE, name_account},
};

/// What the webhook serves with.
pub const CERTIFICATE_FILES: [&str; 2] = ["tls.crt", "tls.key"];
/// A year; the API server may grant less.
const TOKEN_SECONDS: i64 = 365 * 86_400;
/// In a kubeconfig: when its token was made, and when it ends.
const TOKEN_TIMES: &str = "token-times";

/// Where the kubeconfig of an account is.
#[must_use]
pub fn locate_kubeconfig(dir: &Path, account: &str) -> PathBuf {
    dir.join(format!("{account}.kubeconfig"))
}

/// What is in a file; none if there is none.
fn read_if_exists(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("failed to read {}", path.display())),
    }
}

fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Writes a file that its owner alone may read, whole or not at all.
fn write_private_file(path: &Path, text: &str) -> anyhow::Result<()> {
    let write = || {
        let new = path.with_extension("new");
        remove_if_exists(&new)?;
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&new)?;
        io::Write::write_all(&mut file, text.as_bytes())?;
        file.sync_all()?;
        fs::rename(new, path)
    };
    write().with_context(|| format!("failed to write {}", path.display()))
}

/// How the components reach the Karmada API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostAccess {
    /// URL.
    pub server: String,
    /// PEM of what signed its certificate; none where everybody trusts it.
    pub ca_pem: Option<String>,
}

/// A kubeconfig for an account.
fn make_kubeconfig(access: &HostAccess, account: &str, token: &str, times: (Timestamp, Timestamp)) -> Value {
    let mut cluster = json!({"server": access.server});
    if let Some(pem) = &access.ca_pem {
        cluster["certificate-authority-data"] = STANDARD.encode(pem).into();
    }
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "karmada",
        "clusters": [{"name": "karmada", "cluster": cluster}],
        "users": [{"name": account, "user": {"token": token}}],
        "contexts": [{"name": "karmada", "context": {"cluster": "karmada", "user": account, "namespace": NAMESPACE}}],
        "extensions": [{
            "name": TOKEN_TIMES,
            "extension": {"issued": times.0.to_string(), "expires": times.1.to_string()},
        }],
    })
}

/// The token of a kubeconfig that would be made the same, while half of its time is left.
fn find_kept_token(found: &Value, access: &HostAccess, account: &str, now: Timestamp) -> Option<String> {
    let time = |name: &str| read_text_at(found, &format!("/extensions/0/extension/{name}")).parse::<Timestamp>().ok();
    let (issued, expires) = (time("issued")?, time("expires")?);
    let token = read_text_at(found, "/users/0/user/token");
    let is_same = *found == make_kubeconfig(access, account, token, (issued, expires));
    let has_half = now.as_second() - issued.as_second() <= expires.as_second() - now.as_second();
    (is_same && has_half).then(|| token.to_owned())
}

/// Whether the API server takes a token for this account of ours.
async fn is_token_accepted(host: &Client, token: &str, account: &str) -> anyhow::Result<bool> {
    let review = Write {
        resource: api_resource("authentication.k8s.io", "v1", "TokenReview", "tokenreviews"),
        namespace: String::new(),
        name: String::new(),
        subresource: None,
        body: Body::Create(json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token},
        })),
    };
    let answer = execute_write(host, &review).await.context("failed to ask whether a token is taken")?;
    let component = account.strip_prefix("caldera-").unwrap_or(account);
    Ok(answer["status"]["authenticated"] == true
        && read_text_at(&answer, "/status/user/username") == name_account(component))
}

/// Has a kubeconfig for an account, with a new token where there is none that serves; whether it is new.
///
/// # Errors
/// If no token is given, or the kubeconfig can not be kept.
pub async fn ensure_kubeconfig(host: &Client, dir: &Path, access: &HostAccess, account: &str) -> anyhow::Result<bool> {
    let path = locate_kubeconfig(dir, account);
    if let Some(yaml) = read_if_exists(&path)? {
        let found: Value = serde_saphyr::from_str(&yaml).unwrap_or_default();
        let token = find_kept_token(&found, access, account, Timestamp::now());
        if let Some(token) = token
            && is_token_accepted(host, &token, account).await?
        {
            return Ok(false);
        }
    }
    let write = Write {
        resource: api_resource("", "v1", "ServiceAccount", "serviceaccounts"),
        namespace: NAMESPACE.to_owned(),
        name: account.to_owned(),
        subresource: Some("token"),
        body: Body::Create(json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": [], "expirationSeconds": TOKEN_SECONDS},
        })),
    };
    let issued = Timestamp::now();
    let failed = || format!("failed to have a token for account {NAMESPACE}/{account}");
    let answer = execute_write(host, &write).await.with_context(failed)?;
    let expires = read_text_at(&answer, "/status/expirationTimestamp").parse().with_context(failed)?;
    let kubeconfig = make_kubeconfig(access, account, read_text_at(&answer, "/status/token"), (issued, expires));
    let yaml = serde_saphyr::to_string(&kubeconfig).context("failed to write YAML")?;
    write_private_file(&path, &yaml)?;
    Ok(true)
}

/// Has a certificate for the webhook's host, signed by the authority; whether it is new.
///
/// # Errors
/// If there is one that somebody else signed, or it can not be kept.
pub fn ensure_certificate(dir: &Path, authority: &Authority, host: &str) -> anyhow::Result<bool> {
    let [cert, key] = CERTIFICATE_FILES.map(|file| dir.join(file));
    if let Some(pem) = read_if_exists(&cert)? {
        match check_certificate(&pem, &authority.cert_pem, host) {
            CertificateCheck::Serves if key.exists() => return Ok(false),
            CertificateCheck::Serves | CertificateCheck::OtherName => {}
            CertificateCheck::OurEarlierSigner => {
                for file in [&key, &cert] {
                    rename_old_file(file)?;
                }
            }
            CertificateCheck::OtherSigner(why) => anyhow::bail!(
                "{} is a certificate that our authority did not sign ({why}). For one that our authority signs:  mv {} \
                 {} SOMEWHERE-ELSE  and install again. To serve with this one install with `caldera manifests \
                 --ca-bundle`",
                cert.display(),
                cert.display(),
                key.display()
            ),
        }
        remove_if_exists(&cert).with_context(|| format!("failed to remove {}", cert.display()))?;
    }
    let (names, addresses) = match host.parse() {
        Ok(address) => (vec!["localhost"], vec![address]),
        Err(_) => (vec![host, "localhost"], Vec::new()),
    };
    let Identity { cert_pem, key_pem } = authority.issue_server_identity("caldera-webhook", &names, &addresses)?;
    write_private_file(&key, &key_pem)?;
    write_private_file(&cert, &cert_pem)?;
    Ok(true)
}

/// The file is not read any more, and not lost.
fn rename_old_file(file: &Path) -> anyhow::Result<()> {
    let mut old_file = file.as_os_str().to_owned();
    old_file.push(".of-an-earlier-install");
    match fs::rename(file, &old_file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("failed to move {} aside", file.display()))
        }
        _ => Ok(()),
    }
}

/// Whether a certificate serves.
enum CertificateCheck {
    Serves,
    OtherName,
    /// An authority of ours, which is not the one that signs now.
    OurEarlierSigner,
    OtherSigner(String),
}

fn check_certificate(pem: &str, authority_pem: &str, host: &str) -> CertificateCheck {
    let verified = || -> anyhow::Result<Result<(), rustls::Error>> {
        let roots = parse_roots(authority_pem)?;
        let verifier = WebPkiServerVerifier::builder(Arc::new(roots)).build()?;
        let leaf = CertificateDer::from_pem_slice(pem.as_bytes())?;
        let name = ServerName::try_from(host)?;
        Ok(verifier.verify_server_cert(&leaf, &[], &name, &[], UnixTime::now()).map(|_| ()))
    };
    use rustls::CertificateError::{NotValidForName, NotValidForNameContext};
    match verified() {
        Ok(Ok(())) => CertificateCheck::Serves,
        Ok(Err(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }))) => {
            CertificateCheck::OtherName
        }
        Ok(Err(_)) if have_same_issuer(pem, authority_pem).unwrap_or(false) => CertificateCheck::OurEarlierSigner,
        Ok(Err(error)) => CertificateCheck::OtherSigner(error.to_string()),
        Err(error) => CertificateCheck::OtherSigner(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_is_kept_for_the_same_server_and_account_while_half_of_its_time_is_left() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let access = HostAccess { server: "https://host:5443".to_owned(), ca_pem: Some("pem".to_owned()) };
        let made = make_kubeconfig(&access, "caldera-webhook", "secret", (at(100), at(300)));
        let kept = |access: &HostAccess, account: &str, now: i64| {
            let yaml = serde_saphyr::to_string(&made).unwrap();
            find_kept_token(&serde_saphyr::from_str(&yaml).unwrap(), access, account, at(now))
        };
        assert_eq!(kept(&access, "caldera-webhook", 200).as_deref(), Some("secret"));
        assert_eq!(kept(&access, "caldera-webhook", 201), None);
        assert_eq!(kept(&access, "caldera-scheduler", 150), None);
        let other = HostAccess { ca_pem: None, ..access.clone() };
        assert_eq!(kept(&other, "caldera-webhook", 150), None);
        let other = HostAccess { server: "https://other:5443".to_owned(), ..access };
        assert_eq!(kept(&other, "caldera-webhook", 150), None);
        // One that was made by hand says no times.
        let by_hand = json!({"users": [{"user": {"token": "secret"}}]});
        assert_eq!(find_kept_token(&by_hand, &other, "caldera-webhook", at(150)), None);
    }

    #[test]
    fn a_certificate_is_kept_made_for_another_name_and_never_taken_from_somebody_else() {
        caldera_runtime::tls::install_provider();
        let dir = tempfile::tempdir().unwrap();
        let (ours, others) = (Authority::new("ours").unwrap(), Authority::new("others").unwrap());
        assert!(ensure_certificate(dir.path(), &ours, "webhook.svc").unwrap());
        assert!(!ensure_certificate(dir.path(), &ours, "webhook.svc").unwrap());
        assert!(ensure_certificate(dir.path(), &ours, "127.0.0.1").unwrap());
        assert!(!ensure_certificate(dir.path(), &ours, "127.0.0.1").unwrap());
        let refused = ensure_certificate(dir.path(), &others, "127.0.0.1").unwrap_err().to_string();
        let [cert, key] = CERTIFICATE_FILES.map(|name| dir.path().join(name));
        assert!(refused.contains(&format!("mv {} {} ", cert.display(), key.display())), "{refused}");
        // Stopped before the certificate was written: the key alone is replaced.
        fs::remove_file(dir.path().join("tls.crt")).unwrap();
        assert!(ensure_certificate(dir.path(), &ours, "127.0.0.1").unwrap());
        // Uninstalled and installed again: the authority is a new one of the same name.
        let [old_cert, old_key] = [&cert, &key].map(|path| fs::read_to_string(path).unwrap());
        let again = Authority::new("ours").unwrap();
        assert!(ensure_certificate(dir.path(), &again, "127.0.0.1").unwrap());
        assert!(!ensure_certificate(dir.path(), &again, "127.0.0.1").unwrap());
        for (name, old) in CERTIFICATE_FILES.into_iter().zip([old_cert, old_key]) {
            let old_file = dir.path().join(format!("{name}.of-an-earlier-install"));
            assert_eq!(fs::read_to_string(old_file).unwrap(), old, "it is not lost");
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let key = fs::metadata(dir.path().join("tls.key")).unwrap();
            assert_eq!(key.permissions().mode() & 0o777, 0o600);
        }
    }
}
