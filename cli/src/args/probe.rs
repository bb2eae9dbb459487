//! Arguments of a collector that measures the way to other members.

use std::{
    collections::BTreeMap,
    net::{Ipv6Addr, SocketAddr},
    path::PathBuf,
};

use caldera_core::quantity::Quantity;
use caldera_crds::dns::is_dns_subdomain;
use caldera_runtime::probe::{MOST_PEERS, Peer};
use clap::{ArgGroup, Args as ClapArgs};

/// The most characters of a cluster's name.
const MOST_NAME: usize = 63;
/// One of the flags without which nothing is measured, and no other of them means anything.
const MEASURES: &str = "probing";

/// How the collector measures the way to other members, if it does.
#[derive(Debug, Clone, ClapArgs)]
#[command(group = ArgGroup::new(MEASURES).args(["probe_listen", "probe_peers"]).multiple(true))]
pub struct ProbeArgs {
    /// Where collectors of other members ask, to measure their way to this one; nowhere if not given.
    #[arg(long, value_name = "ADDRESS")]
    pub probe_listen: Option<SocketAddr>,
    /// Another member, and where its collector listens, as in `member2=203.0.113.7:7950`. Latency and bandwidth to it
    /// are measured and published. The collector's own member is left out, so that all may be given the same list. One
    /// that runs beside the control plane measures the way of the control plane, not that of its member.
    #[arg(long = "probe-peer", value_name = "NAME=HOST:PORT", value_delimiter = ',', value_parser = parse_peer)]
    pub probe_peers: Vec<Peer>,
    /// PEM certificate chain that is shown to other collectors, for the name `caldera-probe`.
    #[arg(long, requires_all = [MEASURES, "probe_key_file", "probe_ca_file"], value_name = "FILE")]
    pub probe_cert_file: Option<PathBuf>,
    /// PEM private key of it.
    #[arg(long, requires = "probe_cert_file", value_name = "FILE")]
    pub probe_key_file: Option<PathBuf>,
    /// PEM bundle: only collectors with a certificate that it has signed are asked, and may ask.
    #[arg(long, requires = "probe_cert_file", value_name = "FILE")]
    pub probe_ca_file: Option<PathBuf>,
    /// Speaks no TLS with other collectors: whoever reaches the port may have bytes taken.
    #[arg(long, requires = MEASURES, conflicts_with = "probe_cert_file")]
    pub probe_insecure: bool,
    /// Seconds between two measurements of latency.
    #[arg(long, requires = "probe_peers", default_value_t = 60, value_name = "SECONDS",
        value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub probe_interval: u32,
    /// Seconds between two measurements of bandwidth.
    #[arg(long, requires = "probe_peers", default_value_t = 3_600, value_name = "SECONDS",
        value_parser = clap::value_parser!(u32).range(60..=86_400))]
    pub probe_bandwidth_interval: u32,
    /// Bytes that are sent in a day at most to measure bandwidth, to all members together, and twice as many that are
    /// taken. With 0 only latency is measured.
    #[arg(long, requires = MEASURES, default_value = "1Gi", value_name = "BYTES", value_parser = parse_bytes)]
    pub probe_bytes_a_day: Quantity,
}

impl ProbeArgs {
    /// Whether anything is asked for.
    #[must_use]
    pub const fn is_used(&self) -> bool {
        self.probe_listen.is_some() || !self.probe_peers.is_empty()
    }

    /// The members that the collector of `cluster` measures the way to.
    #[must_use]
    pub fn list_peers(&self, cluster: &str) -> Vec<Peer> {
        self.probe_peers.iter().filter(|peer| peer.cluster != cluster).cloned().collect()
    }

    /// What flags say together that none says alone, for the collector of `cluster`.
    ///
    /// # Errors
    /// If they do not go together.
    pub fn check_together(&self, cluster: &str) -> Result<(), String> {
        if self.is_used() && !self.probe_insecure && self.probe_cert_file.is_none() {
            return Err(
                "give --probe-cert-file, --probe-key-file and --probe-ca-file, or --probe-insecure to measure \
                        in plain text"
                    .to_owned(),
            );
        }
        if self.probe_listen.is_none() && self.is_used() && self.list_peers(cluster).is_empty() {
            return Err(format!("--probe-peer {cluster}: that is the member of this collector, and there is no other"));
        }
        check_peers(&self.probe_peers)?;
        let (latency, bandwidth) = (self.probe_interval, self.probe_bandwidth_interval);
        if !self.probe_bytes_a_day.is_zero() && bandwidth < latency {
            return Err(format!(
                "--probe-bandwidth-interval {bandwidth} is less than --probe-interval {latency}: bandwidth is measured \
                 after a round of latency, of one member"
            ));
        }
        Ok(())
    }
}

/// That no member is given twice, and not too many are.
pub(crate) fn check_peers(peers: &[Peer]) -> Result<(), String> {
    let mut addresses = BTreeMap::new();
    for Peer { cluster, address } in peers {
        if let Some(other) = addresses.insert(cluster, address) {
            return Err(format!("--probe-peer {cluster} is given twice, at {other} and at {address}"));
        }
    }
    if addresses.len() > MOST_PEERS {
        return Err(format!("--probe-peer: {} are given, and {MOST_PEERS} can be measured", addresses.len()));
    }
    Ok(())
}

fn parse_bytes(text: &str) -> Result<Quantity, String> {
    let bytes: Quantity = text.parse().map_err(|error| format!("{error}"))?;
    if bytes.is_negative() { Err("it can not be less than 0".to_owned()) } else { Ok(bytes) }
}

pub(super) fn parse_peer(text: &str) -> Result<Peer, String> {
    let wanted = || format!("{text:?} is no NAME=HOST:PORT");
    let (cluster, address) = text.split_once('=').ok_or_else(wanted)?;
    let (host, port) = address.rsplit_once(':').ok_or_else(wanted)?;
    let is_name = (1..=MOST_NAME).contains(&cluster.len())
        && cluster.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
    if host.contains(':') && !is_ipv6_in_brackets(host) {
        return Err(format!("{text:?}: an IPv6 address is in brackets, as in {cluster}=[2001:db8::1]:{port}"));
    }
    let is_host = !host.is_empty() && !host.contains(char::is_whitespace);
    let peer = || Peer { cluster: cluster.to_owned(), address: address.to_owned() };
    (is_name && is_host && is_port).then(peer).ok_or_else(wanted)
}

fn is_ipv6_in_brackets(host: &str) -> bool {
    let inside = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    inside.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
}

/// The name of a Secret.
pub(super) fn parse_secret_name(text: &str) -> Result<String, String> {
    let is_name = is_dns_subdomain(text);
    is_name.then(|| text.to_owned()).ok_or_else(|| format!("{text:?} is no name of a Secret (a DNS subdomain)"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Args, Command};

    #[test]
    fn a_budget_is_no_less_than_nothing() {
        assert!(parse_bytes("0").is_ok() && parse_bytes("10Mi").is_ok());
        assert!(parse_bytes("-5").is_err() && parse_bytes("much").is_err());
    }

    /// Some were taken without a word, and did nothing.
    #[test]
    fn flags_that_mean_nothing_together_are_refused_in_words() {
        let parse = |words: &str| {
            let words = "caldera inventory --cluster m1 ".to_owned() + words;
            match Args::try_parse_from(words.split_whitespace()).map_err(|error| error.to_string())?.command {
                Command::Inventory(args) => args.probe.check_together("m1"),
                _ => Err("another command".to_owned()),
            }
        };
        let insecure = "--probe-peer m2=h:1 --probe-insecure ";
        for (words, wanted) in [
            ("--probe-insecure", "--probe-peer"),
            ("--probe-cert-file a --probe-key-file b --probe-ca-file c", "--probe-peer"),
            ("--probe-bytes-a-day 1Gi", "--probe-peer"),
            ("--probe-listen 127.0.0.1:1 --probe-insecure --probe-interval 60", "--probe-peer"),
            ("--probe-listen 127.0.0.1:1 --probe-insecure --probe-bandwidth-interval 60", "--probe-peer"),
            ("--probe-peer m2=h:1", "--probe-insecure"),
            ("--probe-peer m1=h:1 --probe-insecure", "that is the member of this collector"),
            (&format!("{insecure} --probe-peer m2=h:2"), "is given twice, at h:1 and at h:2"),
            (&format!("{insecure} --probe-interval 7200"), "less than --probe-interval 7200"),
            (&format!("{insecure} --probe-cert-file a --probe-key-file b --probe-ca-file c"), "cannot be used with"),
        ] {
            let refused = parse(words).unwrap_err();
            assert!(refused.contains(wanted), "{words}: {refused}");
        }
        for words in [
            "",
            "--probe-listen 127.0.0.1:1 --probe-insecure --probe-bytes-a-day 0",
            "--probe-listen 127.0.0.1:1 --probe-cert-file a --probe-key-file b --probe-ca-file c",
            "--probe-peer m2=h:1,m3=h:1 --probe-cert-file a --probe-key-file b --probe-ca-file c --probe-interval 9",
            "--probe-peer m2=h:1 --probe-insecure --probe-interval 7200 --probe-bytes-a-day 0",
            "--probe-peer m1=h:1,m2=h:1 --probe-insecure",
            "--probe-peer m1=h:1 --probe-listen 127.0.0.1:1 --probe-insecure",
        ] {
            assert_eq!(parse(words), Ok(()), "{words}");
        }
    }

    #[test]
    fn a_peer_is_a_name_and_an_address() {
        let peer = parse_peer("member2=203.0.113.7:7950").unwrap();
        assert_eq!((peer.cluster.as_str(), peer.address.as_str()), ("member2", "203.0.113.7:7950"));
        assert_eq!(parse_peer("m-3=[2001:db8::1]:80").unwrap().address, "[2001:db8::1]:80");
        for wrong in ["member2", "=a:1", "m=a", "m=:1", "m=a:0", "m=a:70000", "M=a:1", "m=a b:1", ""] {
            assert!(parse_peer(wrong).is_err(), "{wrong}");
        }
        for bare in ["m=2001:db8::1:80", "m=::1:80", "m=[2001:db8::1:80", "m=[member]:80:80", "m=[h:1]:80"] {
            let refused = parse_peer(bare).unwrap_err();
            assert!(refused.contains("an IPv6 address is in brackets, as in m=[2001:db8::1]:80"), "{refused}");
        }
    }

    #[test]
    fn a_secret_is_named_as_kubernetes_names_one() {
        assert_eq!(parse_secret_name("caldera-probe.tls").as_deref(), Ok("caldera-probe.tls"));
        for wrong in ["S B", "", "Secret", "a/b", "-a", "a_b"] {
            let refused = parse_secret_name(wrong).unwrap_err();
            assert!(refused.contains(&format!("{wrong:?} is no name of a Secret")), "{refused}");
        }
    }
}
