//! `caldera server`: webhook, controller and scheduler in one process.
//!
//! Rules: each part has a client with an account of its own, so that each has its own rights and no others, and a lease
//! of its own, so that they are fenced from each other and from other replicas as processes of their own are. When they
//! are asked to stop, controller and scheduler stop first and give up their leases; the webhook stops last, since the
//! API server asks it about what they still write. A part that ends although nobody asked it to ends the others: what
//! is left of a process is worth nothing to its users, and it starts again from the state in the API.

use std::{process::ExitCode, sync::Arc};

use caldera_runtime::{client::WriteCounts, serve::Ready, shutdown};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    admin::{AdminServer, serve_admin},
    args::{PlacerArgs, ServerArgs},
    components::{connect_client, lead_controller, lead_scheduler, serve_webhook},
};

/// The parts.
const PARTS: [&str; 3] = ["webhook", "controller", "scheduler"];

/// Its own scheduler places.
const OURS: PlacerArgs = PlacerArgs { stock_scheduler: false };

/// Runs all parts until they are asked to stop.
///
/// # Errors
/// If a part can not start, or ends by itself: which, and why.
pub async fn run_server(args: ServerArgs) -> anyhow::Result<ExitCode> {
    let (asked, last) = (shutdown::cancel_on_signal(), CancellationToken::new());
    let counts = WriteCounts::default();
    let of_webhook = connect_client(Some(&args.webhook_kubeconfig), PARTS[0], &counts).await?;
    let of_controller = connect_client(Some(&args.controller_kubeconfig), PARTS[1], &counts).await?;
    let of_scheduler = connect_client(Some(&args.scheduler_kubeconfig), PARTS[2], &counts).await?;
    let ready = PARTS.map(|part| (part, Ready::default()));
    let all = serve_admin(&PARTS, Ready::of_parts(&ready), args.process.admin, (&of_webhook, &counts), &last).await?;
    let [webhook, controller, scheduler] = ready.map(|(_, ready)| AdminServer { ready, ..all.clone() });
    let first = asked.child_token();
    let mut parts = JoinSet::new();
    let mut start = |name: &'static str, part| parts.spawn(async move { (name, part.await) });
    let args = Arc::new(args);
    let (given, stop) = (Arc::clone(&args), last.clone());
    start(
        PARTS[0],
        tokio::spawn(
            async move { serve_webhook(&given.process, (&given.serving, OURS), of_webhook, webhook, stop).await },
        ),
    );
    let (given, stop) = (Arc::clone(&args), first.clone());
    start(
        PARTS[1],
        tokio::spawn(async move {
            lead_controller(&given.process, (&given.rules, OURS), of_controller, controller, stop).await
        }),
    );
    let stop = first.clone();
    start(
        PARTS[2],
        tokio::spawn(async move { lead_scheduler(&args.process, &args.placing, of_scheduler, scheduler, stop).await }),
    );
    let mut failed = None;
    while let Some(ended) = parts.join_next().await {
        let (name, result) = ended?;
        let why = match result {
            Ok(Ok(_)) if asked.is_cancelled() => None,
            Ok(Ok(_)) => Some(anyhow::anyhow!("the {name} ended although nobody asked it to")),
            Ok(Err(error)) => Some(error.context(format!("the {name} ended"))),
            Err(panic) => Some(anyhow::anyhow!("the {name} ended: {panic}")),
        };
        // What ends after it was told to.
        failed = failed.or(why);
        first.cancel();
        if parts.len() <= 1 {
            last.cancel();
        }
    }
    failed.map_or(Ok(ExitCode::SUCCESS), Err)
}
