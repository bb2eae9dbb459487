//! When the credentials end that clients go by, as metrics and for the Lease of who goes by them: with them all that a
//! component does ends at once.
//!
//! Rules:
//! 1. A bearer token that is a JWT (RFC 7519) says in `exp` when it ends, and in `iat`, or else in `nbf`, since when it
//!    serves. It is read and not verified: that is for the API server. A token that is no JWT has no end that anybody
//!    here knows, nor have credentials that a program renews.
//! 2. A file with a token is read when somebody asks, since kube reads it again as well. Of a token and a client
//!    certificate the first that ends counts.
//! 3. Neither a token nor a part of it is kept here or shown.
//! 4. Who renews by hand is told in time ([`Lifetime::is_ending`]); what a machine renews, such as the token of a pod
//!    that lives for an hour, is no news before the last sixth of its time.

use std::{
    collections::BTreeMap,
    fmt::{self, Display},
    fs,
    path::PathBuf,
    str::FromStr,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use kube::{Config, config::AuthInfo};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
};
use serde_json::Value;

use super::kubeconfig::list_source_files;
use crate::{
    metric::{Metric, SharedRegistry},
    tls::read_validity,
};

crate::metrics! { CREDENTIALS:
    CREDENTIALS_EXPIRY = Gauge "caldera_credentials_expiry_timestamp_seconds" ["component", "server"],
        "When the credentials end by which a component reaches an API server, in seconds since 1970; of a token that is no \
         JWT nobody knows";
    CREDENTIALS_ISSUED = Gauge "caldera_credentials_issued_timestamp_seconds" ["component", "server"],
        "Since when they serve, where they say so, in seconds since 1970";
}

/// Of the time of credentials so much is the last part, in which somebody should have renewed them.
pub const LAST_PART: i64 = 6;

/// From when to when credentials serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// Since when, where they say so.
    pub begins: Option<Timestamp>,
    /// Until when.
    pub ends: Timestamp,
}

impl Lifetime {
    /// Of the credentials of a configuration as they are now; none if nobody knows.
    #[must_use]
    pub fn of_config(config: &Config) -> Option<Self> {
        KnownEnd::of_config(config).read_lifetime()
    }

    /// Whether they have ended, or will within so many seconds and are in the last part of their time.
    #[must_use]
    pub fn is_ending(&self, seconds: i64, now: Timestamp) -> bool {
        let left = self.ends.as_second() - now.as_second();
        let all = self.begins.map(|begins| self.ends.as_second() - begins.as_second());
        left <= 0 || left <= seconds && all.is_none_or(|all| left <= all / LAST_PART)
    }
}

/// `BEGIN/END`, or `END` alone.
impl Display for Lifetime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(begins) = self.begins {
            write!(f, "{begins}/")?;
        }
        self.ends.fmt(f)
    }
}

impl FromStr for Lifetime {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (begins, ends) = text.split_once('/').map_or((None, text), |(begins, ends)| (Some(begins), ends));
        Ok(Self { begins: begins.map(str::parse).transpose()?, ends: ends.parse()? })
    }
}

/// When a token ends, if it is a JWT that says so.
#[must_use]
pub fn read_token_lifetime(token: &str) -> Option<Lifetime> {
    let mut parts = token.trim().split('.');
    let (_, claims, _, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next()) else { return None };
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
    // A NumericDate may have a fraction.
    let time = |name: &str| {
        let number = &claims[name];
        #[expect(clippy::cast_possible_truncation, reason = "a time out of range is none")]
        let second = number.as_i64().or_else(|| number.as_f64().map(|second| second as i64))?;
        Timestamp::from_second(second).ok()
    };
    Some(Lifetime { begins: time("iat").or_else(|| time("nbf")), ends: time("exp")? })
}

/// What is known of the end of credentials, without them.
#[derive(Debug, Clone, Default)]
struct KnownEnd {
    fixed: Option<Lifetime>,
    token_file: Option<PathBuf>,
}

impl KnownEnd {
    fn of_config(config: &Config) -> Self {
        let auth = &config.auth_info;
        let of_token = read_token(auth).and_then(|token| read_token_lifetime(&token));
        let of_certificate = read_certificate(auth).and_then(|pem| read_validity(&pem).ok());
        let of_certificate = of_certificate.map(|it| Lifetime { begins: Some(it.begins), ends: it.ends });
        Self {
            fixed: [of_token, of_certificate].into_iter().flatten().min_by_key(|one| one.ends),
            token_file: auth.token_file.as_ref().filter(|_| auth.token.is_none()).map(PathBuf::from),
        }
    }

    fn read_lifetime(&self) -> Option<Lifetime> {
        let of_file = || read_token_lifetime(&fs::read_to_string(self.token_file.as_ref()?).ok()?);
        [self.fixed, of_file()].into_iter().flatten().min_by_key(|one| one.ends)
    }
}

/// Its own serialization is what shows a token of kube's; its crate for secrets is not one of ours.
pub(super) fn read_token(auth: &AuthInfo) -> Option<String> {
    let Some(Value::String(token)) = serde_json::to_value(auth).ok()?.get_mut("token").map(Value::take) else {
        return None;
    };
    Some(token)
}

fn read_certificate(auth: &AuthInfo) -> Option<String> {
    match (&auth.client_certificate_data, &auth.client_certificate) {
        (Some(data), _) => {
            let pem = base64::engine::general_purpose::STANDARD.decode(data.trim()).ok()?;
            String::from_utf8(pem).ok()
        }
        (None, Some(path)) => fs::read_to_string(path).ok(),
        (None, None) => None,
    }
}

/// What one client shows, for as long as it is there.
#[derive(Debug)]
pub(crate) struct ShownCredentials {
    component: String,
    server: String,
    /// Of a kubeconfig, and not of the Secret of a member.
    is_own: bool,
    end: Mutex<KnownEnd>,
}

impl ShownCredentials {
    /// From now on it is those of this configuration.
    pub(super) fn replace_config(&self, config: &Config) {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = KnownEnd::of_config(config);
    }

    fn read_lifetime(&self) -> Option<Lifetime> {
        // A file is read without the lock.
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner).clone();
        end.read_lifetime()
    }
}

/// When the credentials of the clients of a process end. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct ClientCredentials(Arc<Mutex<Vec<Weak<ShownCredentials>>>>);

impl ClientCredentials {
    /// A client that is there for as long as somebody has what is answered.
    pub(super) fn add_client(&self, component: &str, config: &Config) -> Arc<ShownCredentials> {
        let shown = Arc::new(ShownCredentials {
            component: component.to_owned(),
            server: describe_server(&config.cluster_url),
            is_own: list_source_files(config).is_some(),
            end: Mutex::new(KnownEnd::of_config(config)),
        });
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&shown));
        shown
    }

    fn list_clients(&self) -> Vec<Arc<ShownCredentials>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect()
    }

    /// Those of one component.
    #[must_use]
    pub fn of_component(&self, component: &str) -> ComponentCredentials {
        ComponentCredentials { all: self.clone(), component: component.to_owned() }
    }

    /// Shows them, the metrics of [`CREDENTIALS`].
    pub fn register(&self, registry: &SharedRegistry) {
        let mut registry = registry.lock().unwrap_or_else(PoisonError::into_inner);
        registry.register_collector(Box::new(self.clone()));
    }
}

/// When the credentials of a component end. Without one nobody knows.
#[derive(Debug, Clone, Default)]
pub struct ComponentCredentials {
    all: ClientCredentials,
    component: String,
}

impl ComponentCredentials {
    /// When those of its kubeconfig end, the first where it has two; none if nobody knows.
    #[must_use]
    pub fn find_lifetime(&self) -> Option<Lifetime> {
        let own = self.all.list_clients().into_iter().filter(|one| one.is_own && one.component == self.component);
        own.filter_map(|one| one.read_lifetime()).min_by_key(|lifetime| lifetime.ends)
    }
}

impl Collector for ClientCredentials {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut all: BTreeMap<(String, String), Lifetime> = BTreeMap::new();
        for client in self.list_clients() {
            let Some(lifetime) = client.read_lifetime() else { continue };
            let key = (client.component.clone(), client.server.clone());
            all.entry(key)
                .and_modify(|known| {
                    if lifetime.ends < known.ends {
                        *known = lifetime;
                    }
                })
                .or_insert(lifetime);
        }
        let mut show = |metric: &Metric, time: fn(&Lifetime) -> Option<Timestamp>| {
            let mut known = all.iter().filter_map(|(key, lifetime)| Some((key, time(lifetime)?))).peekable();
            if known.peek().is_none() {
                return Ok(());
            }
            let help = format!("{}.", metric.help);
            let mut encoder = encoder.encode_descriptor(metric.name, &help, None, MetricType::Gauge)?;
            for ((component, server), time) in known {
                let labels = metric.build_labels([component, server]);
                ConstGauge::new(time.as_second()).encode(encoder.encode_family(&labels)?)?;
            }
            Ok(())
        };
        show(&CREDENTIALS_EXPIRY, |lifetime| Some(lifetime.ends))?;
        show(&CREDENTIALS_ISSUED, |lifetime| lifetime.begins)
    }
}

/// Its address, without what else a URL may have in front of it.
fn describe_server(url: &http::Uri) -> String {
    let host = url.authority().map_or("", |authority| authority.as_str().rsplit('@').next().unwrap_or_default());
    format!("{}://{host}{}", url.scheme_str().unwrap_or_default(), url.path().trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        client::{WriteCounts, build_token_config, from_config, load_config},
        metric::{encode, find_undeclared},
        tls::{Authority, Validity, install_provider},
    };

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn make_token(claims: &Value) -> String {
        format!("e30.{}.c2lnbmF0dXJl", URL_SAFE_NO_PAD.encode(claims.to_string()))
    }

    #[test]
    fn a_token_that_is_a_jwt_says_when_it_ends_and_any_other_does_not() {
        let read = |claims: Value| read_token_lifetime(&make_token(&claims));
        let lifetime = |begins: Option<i64>, ends| Some(Lifetime { begins: begins.map(second), ends: second(ends) });
        assert_eq!(read(json!({"exp": 200, "iat": 100, "nbf": 90})), lifetime(Some(100), 200));
        assert_eq!(read(json!({"exp": 200.5, "nbf": 90})), lifetime(Some(90), 200));
        assert_eq!(read(json!({"exp": 200})), lifetime(None, 200));
        for ends in [json!(null), json!("200"), json!(i64::MAX), json!(1e300)] {
            assert_eq!(read(json!({"exp": ends, "iat": 1})), None);
        }
        let token = make_token(&json!({"exp": 200}));
        assert_eq!(read_token_lifetime(&format!("{token}\n")), lifetime(None, 200), "as a file has it");
        for token in ["", "secret", "a.b.c", "..", "e30.e30.c", &format!("{token}.d"), "e30.bnVsbA.c"] {
            assert_eq!(read_token_lifetime(token), None, "{token}");
        }
    }

    #[test]
    fn what_ends_is_told_in_time_and_what_a_machine_renews_is_not() {
        let day = 86_400;
        let is_ending = |all: Option<i64>, left: i64| {
            let begins = all.map(|all| second(1_000_000_000 + left - all));
            Lifetime { begins, ends: second(1_000_000_000 + left) }.is_ending(14 * day, second(1_000_000_000))
        };
        assert!(is_ending(Some(365 * day), 14 * day) && !is_ending(Some(365 * day), 14 * day + 1));
        assert!(is_ending(None, 14 * day) && !is_ending(None, 14 * day + 1));
        // A token of an hour is renewed when a fifth of it is left.
        assert!(!is_ending(Some(3600), 700) && is_ending(Some(3600), 600));
        assert!(is_ending(Some(3600), 0) && is_ending(Some(365 * day), -day));
    }

    #[test]
    fn a_lifetime_is_written_and_read() {
        for begins in [Some(second(100)), None] {
            let lifetime = Lifetime { begins, ends: second(200) };
            assert_eq!(lifetime.to_string().parse::<Lifetime>().unwrap(), lifetime);
        }
        assert!("soon".parse::<Lifetime>().is_err() && "/".parse::<Lifetime>().is_err());
    }

    #[tokio::test]
    async fn each_client_shows_when_its_credentials_end_and_none_shows_them() {
        install_provider();
        let (counts, registry) = (WriteCounts::default(), SharedRegistry::default());
        counts.credentials().register(&registry);
        assert_eq!(encode(&registry).unwrap(), "# EOF\n");
        let dir = tempfile::tempdir().unwrap();
        let (path, token_file) = (dir.path().join("kubeconfig"), dir.path().join("token"));
        let [token, soon] = [200, 150].map(|ends| make_token(&json!({"exp": ends, "iat": 100})));
        let write = |user: &str| {
            let text = format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
                 clusters: [{{name: c, cluster: {{server: 'https://h:1/'}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n\
                 contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
            );
            fs::write(&path, text).unwrap();
        };
        let connect = async || from_config(load_config(Some(&path)).await.unwrap(), "scheduler", &counts).unwrap();
        let scheduler = counts.credentials().of_component("scheduler");
        let ends = || scheduler.find_lifetime().map(|lifetime| lifetime.ends.as_second());
        write(&format!("token: {token}"));
        let client = connect().await;
        let text = encode(&registry).unwrap();
        let line = "caldera_credentials_expiry_timestamp_seconds{component=\"scheduler\",server=\"https://h:1\"} 200\n";
        assert!(text.contains(line) && !text.contains(&token[..8]), "{text}");
        assert_eq!(find_undeclared(&text, &CREDENTIALS), [""; 0]);
        assert!(!format!("{:?}", counts.credentials()).contains(&token));
        // A second client of the same: the first that ends counts.
        fs::write(&token_file, &soon).unwrap();
        write("tokenFile: token");
        let other = connect().await;
        assert_eq!(ends(), Some(150));
        assert_eq!(encode(&registry).unwrap().matches("expiry_timestamp_seconds{").count(), 1);
        fs::write(&token_file, make_token(&json!({"exp": 300}))).unwrap();
        assert_eq!(ends(), Some(200), "the file was renewed");
        drop(client);
        tokio::task::yield_now().await;
        assert_eq!(ends(), Some(300), "a client that is gone shows nothing");
        drop(other);
        tokio::task::yield_now().await;
        assert_eq!((ends(), encode(&registry).unwrap().as_str()), (None, "# EOF\n"));
        // Of a member's Secret the metric tells, and no Lease.
        let of_member = build_token_config("https://u:p@m", &token, None, false).unwrap();
        let _client = from_config(of_member, "scheduler", &counts).unwrap();
        assert!(encode(&registry).unwrap().contains("server=\"https://m\"} 200\n") && ends().is_none());
    }

    #[test]
    fn of_a_certificate_and_a_token_the_first_that_ends_counts() {
        let validity = Validity { begins: second(1_000_000_000), ends: second(1_500_000_000) };
        let authority = Authority::new("test").unwrap().with_leaves_of(validity);
        let identity = authority.issue_client_identity("scheduler").unwrap();
        let mut config = Config::new("https://h".parse().unwrap());
        let data = base64::engine::general_purpose::STANDARD.encode(&identity.cert_pem);
        config.auth_info.client_certificate_data = Some(data);
        let lifetime = Lifetime { begins: Some(validity.begins), ends: validity.ends };
        assert_eq!(KnownEnd::of_config(&config).read_lifetime(), Some(lifetime));
        for (ends, wanted) in [(1_400_000_000, 1_400_000_000), (1_600_000_000, 1_500_000_000)] {
            config.auth_info.token = Some(make_token(&json!({"exp": ends})).into());
            assert_eq!(KnownEnd::of_config(&config).read_lifetime().unwrap().ends, second(wanted));
        }
    }
}
