//! The admin port of a component: `/healthz` (the process answers), `/readyz` (its view is complete), `/metrics`.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{Router, http::StatusCode, routing::get};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Whether a component is ready; clones share the flag.
#[derive(Debug, Clone, Default)]
pub struct Ready(Arc<AtomicBool>);

impl Ready {
    /// From now on the component is ready (or not).
    pub fn set_ready(&self, ready: bool) {
        self.0.store(ready, Ordering::Release);
    }

    /// Whether it is.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Metrics that several tasks share.
pub type SharedRegistry = Arc<Mutex<Registry>>;

/// Routes of the admin port.
pub fn admin_router(ready: Ready, registry: SharedRegistry) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route(
            "/readyz",
            get(move || async move {
                if ready.is_ready() { (StatusCode::OK, "ok") } else { (StatusCode::SERVICE_UNAVAILABLE, "not yet") }
            }),
        )
        .route(
            "/metrics",
            get(move || async move {
                let mut text = String::new();
                let registry = registry.lock().unwrap_or_else(PoisonError::into_inner);
                match prometheus_client::encoding::text::encode(&mut text, &registry) {
                    Ok(()) => (StatusCode::OK, text),
                    Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
                }
            }),
        )
}

/// Serves the admin port in the background; returns the bound address.
///
/// # Errors
/// If the address can not be bound: the error names it.
pub async fn start_admin_server(
    listen: SocketAddr,
    ready: Ready,
    registry: SharedRegistry,
    shutdown: CancellationToken,
) -> io::Result<SocketAddr> {
    let listener = bind_listener(listen).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        let served =
            axum::serve(listener, admin_router(ready, registry)).with_graceful_shutdown(shutdown.cancelled_owned());
        if let Err(error) = served.await {
            tracing::error!(%error, "the admin port stopped");
        }
    });
    Ok(address)
}

/// Binds `listen`; the error says which address is taken.
///
/// # Errors
/// As [`TcpListener::bind`], with the address in its text.
pub async fn bind_listener(listen: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(listen)
        .await
        .map_err(|error| io::Error::new(error.kind(), format!("failed to listen on {listen}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_taken_port_is_named() {
        let first = bind_listener("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = first.local_addr().unwrap();
        let error = bind_listener(address).await.unwrap_err().to_string();
        assert!(error.contains(&address.to_string()), "{error}");
    }
}
