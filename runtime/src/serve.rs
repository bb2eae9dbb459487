//! The admin port of a component: `/healthz` (the process answers), `/readyz` (its view is complete, and its writes get
//! through), `/metrics`, and what is added to these ([`debug_state`](crate::debug_state)).

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    Router,
    http::{StatusCode, header::CONTENT_TYPE},
    routing::get,
};
use tokio::{net::TcpListener, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{metric, write_metrics::WriteMetrics};

/// What is written is this and nothing else, whatever is asked for.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Whether a component is ready; clones share the flag.
#[derive(Debug, Clone, Default)]
pub struct Ready {
    flag: Arc<AtomicBool>,
    writes: Arc<OnceLock<WriteMetrics>>,
    parts: Arc<[(&'static str, Self)]>,
}

impl Ready {
    /// Of a process with several parts: ready while all of them are.
    #[must_use]
    pub fn of_parts(parts: &[(&'static str, Self)]) -> Self {
        let all = Self { parts: parts.into(), ..Self::default() };
        all.set_ready(true);
        all
    }

    /// From now on the component is ready (or not).
    pub fn set_ready(&self, ready: bool) {
        self.flag.store(ready, Ordering::Release);
    }

    /// Nor is it ready while these writes have failed for a minute. What is watched first is watched for good.
    pub fn watch_writes(&self, writes: &WriteMetrics) {
        let _ = self.writes.set(writes.clone());
    }

    /// Why it is not ready, in words for `/readyz`.
    pub(crate) fn find_unready_reason(&self) -> Option<String> {
        if !self.is_ready() {
            return Some("not yet".to_owned());
        }
        let of_part = |(name, part): &(&str, Self)| Some(format!("{name}: {}", part.find_unready_reason()?));
        if let Some(obstacle) = self.parts.iter().find_map(of_part) {
            return Some(obstacle);
        }
        self.writes.get()?.describe_failing(Instant::now())
    }

    /// Whether its view is complete.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }
}

pub use crate::metric::SharedRegistry;

/// Routes of the admin port.
pub fn admin_router(ready: Ready, registry: SharedRegistry) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route(
            "/readyz",
            get(move || async move {
                match ready.find_unready_reason() {
                    None => (StatusCode::OK, "ok".to_owned()),
                    Some(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
                }
            }),
        )
        .route(
            "/metrics",
            get(move || async move {
                match metric::encode(&registry) {
                    Ok(text) => (StatusCode::OK, [(CONTENT_TYPE, OPEN_METRICS)], text),
                    Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, [(CONTENT_TYPE, "text/plain")], String::new()),
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
    routes: Router,
    shutdown: CancellationToken,
) -> io::Result<SocketAddr> {
    let listener = bind_listener(listen).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        let served = axum::serve(listener, routes).with_graceful_shutdown(shutdown.cancelled_owned());
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
    async fn it_is_not_ready_while_its_writes_fail_and_says_which() {
        use tower::ServiceExt as _;
        let ready = Ready::default();
        let writes = WriteMetrics::default();
        ready.watch_writes(&writes);
        let ask = |path: &'static str| {
            let router = admin_router(ready.clone(), SharedRegistry::default());
            async move {
                let request = axum::http::Request::get(path).body(axum::body::Body::empty()).unwrap();
                let answer = router.oneshot(request).await.unwrap();
                let (status, kind) = (answer.status().as_u16(), answer.headers()[CONTENT_TYPE].clone());
                let body = axum::body::to_bytes(answer.into_body(), 4096).await.unwrap();
                (status, kind.to_str().unwrap().to_owned(), String::from_utf8(body.to_vec()).unwrap())
            }
        };
        assert_eq!(ask("/readyz").await.2, "not yet");
        ready.set_ready(true);
        assert_eq!(ask("/readyz").await.0, 200);
        let (now, minute) = (Instant::now(), std::time::Duration::from_secs(60));
        for at in [now, now + minute] {
            writes.observe_outcome("queues", None, crate::write_metrics::Outcome::Refused, minute, at);
        }
        let (status, _, why) = ask("/readyz").await;
        assert!(status == 503 && why.starts_with("all writes of queues have failed for"), "{status} {why}");
        assert_eq!(ask("/healthz").await.0, 200);
        let (_, kind, text) = ask("/metrics").await;
        assert!(kind == OPEN_METRICS && text.ends_with("# EOF\n"), "{kind} {text}");
    }

    #[test]
    fn a_process_is_ready_once_all_its_parts_are_and_says_who_is_not() {
        let parts = ["webhook", "controller"].map(|name| (name, Ready::default()));
        let all = Ready::of_parts(&parts);
        parts[0].1.set_ready(true);
        assert_eq!(all.find_unready_reason().as_deref(), Some("controller: not yet"));
        parts[1].1.set_ready(true);
        assert_eq!(all.find_unready_reason(), None);
    }

    #[tokio::test]
    async fn a_taken_port_is_named() {
        let first = bind_listener("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = first.local_addr().unwrap();
        let error = bind_listener(address).await.unwrap_err().to_string();
        assert!(error.contains(&address.to_string()), "{error}");
    }
}
