//! Routing: from a path and a method to the operation, and from its result to an answer.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use tokio_util::sync::CancellationToken;

use crate::error::Status;
use crate::server::ApiServer;

/// Who a request without credentials is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anonymous {
    IsAdmin,
    IsAnonymous,
}

pub fn router(server: ApiServer, anonymous: Anonymous) -> Router {
    Router::new().fallback(move |request: Request| {
        let server = server.clone();
        async move { respond(server, anonymous, request).await }
    })
}

async fn respond(server: ApiServer, _anonymous: Anonymous, request: Request) -> Response {
    if let Some(answer) = crate::discovery::respond(&server, request.uri().path(), request.headers()) {
        return answer;
    }
    let status = Status::page_not_found();
    (status.status_code(), axum::Json(status.into_value())).into_response()
}

pub async fn serve(
    server: ApiServer,
    listen: SocketAddr,
    tls: Arc<rustls::ServerConfig>,
    shutdown: CancellationToken,
) -> io::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind(listen)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let handle = axum_server::Handle::new();
    let app = router(server, Anonymous::IsAnonymous).into_make_service();
    let config = axum_server::tls_rustls::RustlsConfig::from_config(tls);
    let serving = axum_server::from_tcp_rustls(listener, config)?.handle(handle.clone()).serve(app);
    tokio::spawn(async move {
        if let Err(error) = serving.await {
            tracing::error!(%error, "the API server's listener ended");
        }
    });
    tokio::spawn(async move {
        shutdown.cancelled().await;
        handle.graceful_shutdown(Some(std::time::Duration::from_secs(1)));
    });
    Ok(address)
}
