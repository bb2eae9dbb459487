//! `caldera console`: the fleet, its queues and jobs as a web page that changes nothing.
//!
//! Rule: one watch for each kind that is known when it starts, by the console's own account; who looks is asked for his
//! own token, and sees what the API server lets him list ([`access`]). Pages are functions of what is seen and who asks
//! ([`page`]); nothing of them is loaded from elsewhere. Programs are told expected starts alone ([`starts`]). What the
//! console remembers of a day is in memory alone ([`record`]); expected starts, and on which nodes pods are, are read
//! while somebody looks ([`crate::latest_forecast`]), and where that is asked for to measure how wrong they are
//! ([`start_errors`]).

mod access;
mod answers;
mod fleet_pages;
mod html;
mod page;
mod query;
mod record;
mod routes;
pub mod start_errors;
mod starts;
#[cfg(test)]
mod tests;

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    process::ExitCode,
    sync::{Arc, PoisonError},
    time::Duration,
};

use anyhow::Context;
use caldera_runtime::{
    bounded::{Bounds, serve_bounded},
    serve::Ready,
    tls::{RELOAD_EVERY, ServedTls, server_config},
    watch::declare_kinds,
};
use tokio::sync::mpsc;

use self::{
    routes::{Console, STREAM, router},
    start_errors::StartErrors,
    starts::route_starts,
};
use crate::{
    admin::AdminServer,
    args::ConsoleArgs,
    components::prepare_component,
    latest_forecast::ForecastFollower,
    pem_files::read_identity,
    view::{Change, JobKey},
    watch,
};

/// Where it listens.
const PORT: u16 = 8444;
/// Changes taken in at once.
const CHANGES_PER_PASS: usize = 1024;
/// Between two looks at what became of queues and members.
const RECORD_INTERVAL: Duration = Duration::from_secs(2);
/// Between two looks at which jobs were released.
const RELEASE_INTERVAL: Duration = Duration::from_secs(10);
/// So many of these looks pass between two forecasts that are measured, where nobody else wants one: five minutes.
const LOOKS_PER_FORECAST: u32 = 30;

/// Serves until a signal.
///
/// # Errors
/// If the server does not answer, refuses what all pages need, or the port is taken.
pub async fn run_console(args: ConsoleArgs) -> anyhow::Result<ExitCode> {
    let kubeconfig = args.kubeconfig.as_deref();
    let (client, AdminServer { ready, registry, .. }, _, stop) =
        prepare_component("console", kubeconfig, args.admin).await?;
    let tls = match (&args.tls_cert, &args.tls_key) {
        (Some(cert), Some(key)) => {
            let files = vec![cert.clone(), key.clone()];
            Some(ServedTls::from_files(files, RELOAD_EVERY, |pems| server_config(&read_identity(pems)))?)
        }
        _ if args.insecure => None,
        _ => anyhow::bail!(
            "give --tls-cert and --tls-key, or --insecure to speak plain text, on the loopback alone unless \
                            --listen says otherwise"
        ),
    };
    let host = if args.insecure { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
    let listen = args.listen.unwrap_or_else(|| (host, PORT).into());
    let listener = TcpListener::bind(listen).with_context(|| format!("failed to listen on {listen}"))?;
    let address: SocketAddr = listener.local_addr().context("failed to read the address")?;
    let forecast = ForecastFollower::start(client.clone(), None, args.lease_namespace, stop.clone());
    let console = Arc::new(Console::new(client.clone(), tls.is_some(), forecast));
    let (sender, changes) = mpsc::channel(watch::BACKLOG);
    declare_kinds(&client, &stop).await;
    let watches = watch::follow_objects(&client, "", false, sender, &stop).await?;
    for gap in &watches.gaps {
        tracing::warn!(what = gap.what, why = gap.why, "can not be shown");
    }
    tokio::spawn(apply_changes(Arc::clone(&console), changes, watches.lists, ready));
    tokio::spawn(keep_record(Arc::clone(&console), watches.lists));
    if args.measure_starts {
        tokio::spawn(measure_starts(Arc::clone(&console), watches.lists, StartErrors::register(&registry)));
    }
    tracing::info!(%address, tls = tls.is_some(), "the console listens");
    let bounds = Bounds {
        connections: args.connections as usize,
        request: STREAM + Duration::from_secs(20),
        ..Bounds::default()
    };
    serve_bounded(listener, tls, router(console, route_starts()), bounds, stop)
        .await
        .context("failed to serve the console")?;
    Ok(ExitCode::SUCCESS)
}

/// Brings what is seen up to date, until nobody tells of changes any more.
async fn apply_changes(console: Arc<Console>, mut changes: mpsc::Receiver<Change>, lists: usize, ready: Ready) {
    let mut batch = Vec::new();
    while changes.recv_many(&mut batch, CHANGES_PER_PASS).await > 0 {
        let mut seen = console.seen.write().unwrap_or_else(PoisonError::into_inner);
        batch.drain(..).for_each(|change| seen.observe(change));
        if seen.count_lists() >= lists {
            ready.set_ready(true);
        }
        drop(seen);
        console.changed.send_modify(|count| *count += 1);
    }
}

/// Remembers what becomes of the fleet, once all of it is seen.
async fn keep_record(console: Arc<Console>, lists: usize) {
    loop {
        tokio::time::sleep(RECORD_INTERVAL).await;
        let seen = console.seen.read().unwrap_or_else(PoisonError::into_inner);
        if seen.count_lists() >= lists {
            let mut record = console.record.write().unwrap_or_else(PoisonError::into_inner);
            record.observe(&seen, jiff::Timestamp::now());
        }
    }
}

/// Measures how wrong expected starts are, once the fleet is seen.
async fn measure_starts(console: Arc<Console>, lists: usize, mut errors: StartErrors) {
    while console.seen.read().unwrap_or_else(PoisonError::into_inner).count_lists() < lists {
        tokio::time::sleep(RECORD_INTERVAL).await;
    }
    for look in 0_u32.. {
        let forecast = &console.forecast;
        let latest = if look % LOOKS_PER_FORECAST == 0 { forecast.read_latest() } else { forecast.peek_latest() };
        if let Some(latest) = latest {
            errors.note_forecast(&latest);
        }
        {
            let seen = console.seen.read().unwrap_or_else(PoisonError::into_inner);
            let state_of = |key: &JobKey| seen.job(key).map(|job| (job.state, job.queue()));
            errors.observe_states(seen.queue_names(), state_of, jiff::Timestamp::now());
        }
        tokio::time::sleep(RELEASE_INTERVAL).await;
    }
}
