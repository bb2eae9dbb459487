//! The admin port of a process that runs components.

use std::net::SocketAddr;

use caldera_runtime::{
    client::{WriteCounts, credentials::ClientCredentials},
    debug_state::{ComponentStates, ProcessState, debug_route},
    metric::{self, Leaders},
    otlp::register_dropped,
    serve::{self, Ready, SharedRegistry},
};
use kube::Client;
use tokio_util::sync::CancellationToken;

/// What a component shows of itself.
#[derive(Debug, Clone)]
pub(crate) struct AdminServer {
    pub(crate) ready: Ready,
    pub(crate) registry: SharedRegistry,
    pub(crate) leaders: Leaders,
    pub(crate) states: ComponentStates,
    pub(crate) credentials: ClientCredentials,
}

/// Components whose state `/debug/state` shows: their accounts may ask the API server who asks.
const SHOWING_STATE: [&str; 3] = ["webhook", "controller", "scheduler"];

/// The admin port, with what every component shows. `client` asks who wants to see the state.
pub(crate) async fn serve_admin(
    components: &[&str],
    ready: Ready,
    listen: Option<SocketAddr>,
    (client, counts): (&Client, &WriteCounts),
    stop: &CancellationToken,
) -> anyhow::Result<AdminServer> {
    let registry = SharedRegistry::default();
    metric::register_builds(&registry, components);
    register_dropped(&registry);
    let leaders = Leaders::register(&registry);
    counts.metrics().register(&registry);
    let credentials = counts.credentials().clone();
    credentials.register(&registry);
    ready.watch_writes(counts.metrics());
    let states = ComponentStates::default();
    if let Some(listen) = listen {
        let mut routes = serve::admin_router(ready.clone(), registry.clone());
        if components.iter().any(|component| SHOWING_STATE.contains(component)) {
            let process = ProcessState {
                ready: ready.clone(),
                leaders: leaders.clone(),
                writes: counts.metrics().clone(),
                components: states.clone(),
            };
            routes = routes.merge(debug_route(client.clone(), process));
        }
        let bound = serve::start_admin_server(listen, routes, stop.clone()).await?;
        tracing::info!(address = %bound, "serving health and metrics");
    }
    Ok(AdminServer { ready, registry, leaders, states, credentials })
}
