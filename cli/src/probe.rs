//! Starts what measures the way to other members, beside a collector.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context;
use caldera_crds::published::PeerLink;
use caldera_runtime::{
    clock::SystemClock,
    metric::SharedRegistry,
    probe::{ProbeConfig, ProbePace, ProbeServer, run_probe_server, run_prober},
    tls::{RELOAD_EVERY, ServedTls, peer_client_config, server_config_with_client_ca},
};
use rustls::ClientConfig;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    args::ProbeArgs,
    pem_files::{read_file, read_identity},
};

/// Loads that others send are twice as many bytes as are sent: both ends measure.
const TAKEN_FOR_SENT: u64 = 2;

/// Listens for other collectors until `stop`, if it is to. A replica without the lease does so too.
///
/// # Errors
/// If it can not listen there, a certificate can not be used, or flags do not go together.
pub fn start_probe_server(
    args: &ProbeArgs,
    cluster: &str,
    registry: &SharedRegistry,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    args.check_together(cluster).map_err(anyhow::Error::msg)?;
    let Some(address) = args.probe_listen else { return Ok(()) };
    let tls = match list_tls_files(args) {
        None => None,
        Some(files) => Some(ServedTls::from_files(files.map(ToOwned::to_owned).to_vec(), RELOAD_EVERY, |pems| {
            server_config_with_client_ca(&read_identity(pems), pems.get(2).map(String::as_str))
        })?),
    };
    let listener = std::net::TcpListener::bind(address).with_context(|| format!("failed to listen on {address}"))?;
    let bytes_a_day = read_budget(args).saturating_mul(TAKEN_FOR_SENT);
    let (cluster, registry) = (cluster.to_owned(), registry.clone());
    let (server, stop) = (ProbeServer { cluster, listener, tls, bytes_a_day, registry }, stop.clone());
    tokio::spawn(async move {
        if let Err(error) = run_probe_server(server, stop).await {
            tracing::error!(%error, "other members can not measure their way to this one any more");
        }
    });
    Ok(())
}

/// Asks other collectors until `stop`; what counts of it is what the collector publishes.
#[must_use]
pub fn start_prober(
    args: &ProbeArgs,
    cluster: &str,
    registry: &SharedRegistry,
    stop: CancellationToken,
) -> watch::Receiver<Option<Vec<PeerLink>>> {
    let peers = args.list_peers(cluster);
    if peers.is_empty() {
        return watch::channel(Some(Vec::new())).1;
    }
    let (links, measured) = watch::channel(None);
    let pace = ProbePace {
        latency: Duration::from_secs(args.probe_interval.into()),
        bandwidth: Duration::from_secs(args.probe_bandwidth_interval.into()),
        bytes_a_day: read_budget(args),
    };
    if pace.bytes_a_day > 0 && pace.load_bytes(peers.len()).is_none() {
        tracing::warn!("--probe-bytes-a-day is too little for --probe-bandwidth-interval: only latency is measured");
    }
    let files = list_tls_files(args).map(|files| files.map(ToOwned::to_owned));
    let tls = Box::new(move || read_client_config(files.as_ref()).map_err(|error| format!("{error:#}")));
    let config = ProbeConfig {
        cluster: cluster.to_owned(),
        peers,
        pace,
        tls,
        clock: Arc::new(SystemClock),
        registry: registry.clone(),
    };
    tokio::spawn(run_prober(config, links, stop));
    measured
}

fn read_client_config(files: Option<&[PathBuf; 3]>) -> anyhow::Result<Option<Arc<ClientConfig>>> {
    let Some(files) = files else { return Ok(None) };
    let pems = files.iter().map(|path| read_file(path)).collect::<anyhow::Result<Vec<String>>>()?;
    let config = peer_client_config(&read_identity(&pems), &pems[2]).map_err(|error| error.with_files(files))?;
    Ok(Some(Arc::new(config)))
}

/// Certificate, key and authority.
fn list_tls_files(args: &ProbeArgs) -> Option<[&PathBuf; 3]> {
    Some([args.probe_cert_file.as_ref()?, args.probe_key_file.as_ref()?, args.probe_ca_file.as_ref()?])
}

fn read_budget(args: &ProbeArgs) -> u64 {
    u64::try_from(args.probe_bytes_a_day.units_ceil().max(0)).unwrap_or(u64::MAX)
}
