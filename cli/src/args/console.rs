//! `caldera console`, and which console other commands ask.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use clap::Args as ClapArgs;
use http::Uri;

#[derive(Debug, ClapArgs)]
pub struct ConsoleArgs {
    /// Kubeconfig of the Karmada API; without it KUBECONFIG, ~/.kube/config or the service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Where /healthz, /readyz and /metrics listen; none if not given.
    #[arg(long, value_name = "ADDRESS")]
    pub admin: Option<SocketAddr>,
    /// Where it listens; without it port 8444 of all addresses, with --insecure of the loopback.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// PEM certificate chain to serve; read again as it is renewed.
    #[arg(long, requires = "tls_key", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// PEM private key for it.
    #[arg(long, requires = "tls_cert", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Speaks plain text: behind a proxy that speaks TLS, or on this machine alone.
    #[arg(long, conflicts_with = "tls_cert")]
    pub insecure: bool,
    /// Namespace of the controller's lease, where its settings are; without it caldera-system, then default.
    #[arg(long, value_name = "NAMESPACE")]
    pub lease_namespace: Option<String>,
    /// Works expected starts out every five minutes, also while nobody looks, and shows at --admin how wrong the first
    /// was that was told of each job: caldera_expected_start_error_seconds.
    #[arg(long, requires = "admin")]
    pub measure_starts: bool,
    /// Connections at once.
    #[arg(long, default_value_t = 256, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(16..=65_536))]
    pub connections: u32,
}

/// Which console is asked where the caller's own credentials do not show everything.
#[derive(Debug, Clone, Default, ClapArgs)]
pub struct ConsoleSourceArgs {
    /// URL of the console, or environment CALDERA_CONSOLE: where your credentials do not show everything that decides,
    /// it is asked for expected starts with the token of your kubeconfig. It assumes 1h for jobs that do not say how
    /// long they run.
    #[arg(long, env = "CALDERA_CONSOLE", hide_env = true, value_name = "URL", value_parser = ConsoleUrl::parse)]
    pub console: Option<ConsoleUrl>,
    /// PEM certificates of who may vouch for the console, or environment CALDERA_CONSOLE_CA; without it the system's.
    #[arg(long, env = "CALDERA_CONSOLE_CA", hide_env = true, value_name = "FILE")]
    pub console_ca: Option<PathBuf>,
}

/// Where a console is. A token goes there: over TLS, or to this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsoleUrl(String);

impl ConsoleUrl {
    /// Reads `https://HOST[:PORT][/PATH]`, and `http` of the loopback. An empty one is none: so is a variable of the
    /// environment taken back.
    ///
    /// # Errors
    /// If it is something else.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self(String::new()));
        }
        let form = "want a URL as https://HOST[:PORT]";
        let uri: Uri = text.parse().map_err(|_| form.to_owned())?;
        let (Some(scheme), Some(host)) = (uri.scheme_str(), uri.host()) else { return Err(form.to_owned()) };
        let has_more = uri.query().is_some() || uri.authority().is_some_and(|it| it.as_str().contains('@'));
        match scheme {
            _ if has_more || host.is_empty() => Err(form.to_owned()),
            "http" if !is_loopback(host) => {
                Err(format!("your token would go to {host} in plain text: want https, http only to this machine"))
            }
            "http" | "https" => Ok(Self(text.trim_end_matches('/').to_owned())),
            _ => Err(form.to_owned()),
        }
    }
}

impl ConsoleSourceArgs {
    /// The URL, where one is named.
    #[must_use]
    pub fn find_url(&self) -> Option<&ConsoleUrl> {
        self.console.as_ref().filter(|url| !url.0.is_empty())
    }
}

impl fmt::Display for ConsoleUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_over_tls_or_to_this_machine() {
        for good in [
            "https://console.example.com",
            "https://console:8444",
            "https://example.com/caldera/",
            "http://127.0.0.1:8444",
            "http://localhost:1/",
            "http://[::1]:8444",
        ] {
            assert_eq!(ConsoleUrl::parse(good).map(|url| url.to_string()).as_deref(), Ok(good.trim_end_matches('/')));
        }
        for bad in [
            "http://console.example.com",
            "http://127.0.0.1.example.com",
            "http://localhost@example.com",
            "https://user:word@example.com",
            "http://10.0.0.1",
            "https://example.com/?q=1",
            "ftp://localhost",
            "console.example.com",
            "/path",
            "https://",
        ] {
            assert!(ConsoleUrl::parse(bad).is_err(), "{bad}");
        }
        // A variable of the environment that is empty names none.
        let none = ConsoleSourceArgs { console: Some(ConsoleUrl::parse("").unwrap()), ..ConsoleSourceArgs::default() };
        assert_eq!(none.find_url(), None);
    }
}
