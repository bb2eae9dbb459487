//! An HTTP server that no client can exhaust: connections, handshakes, headers, requests and idle time are bounded.
//!
//! Rules:
//! - There are at most so many connections. One more takes the place of the one that is idle longest; where none is
//!   idle, of the one whose client has kept us waiting longest for the rest of its request, or to take its answer. It
//!   must be longer than an honest one does, and than an API server leaves a connection that it is about to use. Until
//!   then the new one waits. While the answer is ours to make no connection is closed.
//! - TLS must be spoken within a time, a first or begun request must have its headers within a time, an answer must be
//!   taken within a time, and a connection without requests is closed after a time. It is longer than the 90 s after
//!   which Go's clients close theirs, so that no API server loses a request to it.
//! - Bodies are read by [`body`], within bounds of its own.

mod activity;
pub mod body;

use std::{
    collections::BTreeMap,
    convert::Infallible,
    io,
    net::TcpListener,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::Instant,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt;

use self::activity::{Activity, HeldAnswer, Watched};
use crate::tls::ServedTls;

/// What a server allows its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Connections at once.
    pub connections: usize,
    /// For how long a client may keep us waiting, or its connection idle, before it makes room for one more.
    pub spared: Duration,
    /// Requests at once on a connection.
    pub streams: u32,
    /// For the TLS handshake.
    pub handshake: Duration,
    /// For the headers of a request that has begun, and for the first request of a connection.
    pub headers: Duration,
    /// For a request, from its headers until its answer is taken.
    pub request: Duration,
    /// Without any request.
    pub idle: Duration,
    /// For open requests after the stop.
    pub drain: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            // An API server takes 200 writes at once unless it is told otherwise, and dials for each call that finds no
            // stream free, also while the first handshake is on its way. A connection takes some 12 kB.
            connections: 512,
            // A starved API server leaves a connection alone for as long as it may still use it: its calls end after
            // five seconds.
            spared: Duration::from_secs(3),
            // What Go's clients take for granted until they are told.
            streams: 100,
            // As long as Go's clients wait for it.
            handshake: Duration::from_secs(10),
            headers: Duration::from_secs(10),
            request: Duration::from_secs(30),
            idle: Duration::from_secs(120),
            drain: Duration::from_secs(2),
        }
    }
}

/// Bytes that a connection may keep of what it has not read or written yet.
const BUFFER: usize = 64 * 1024;
/// Between two looks for a place while all connections are busy.
const LOOK_FOR_PLACE: Duration = Duration::from_millis(5);
/// Bytes of a request's headers.
const HEADERS: u32 = 8 * 1024;
/// For a client that was told to go, by HTTP/2: it asks elsewhere what we did not begin.
const FAREWELL: Duration = Duration::from_secs(2);

/// Serves `routes` until `stop`, then lets open requests end.
///
/// # Errors
/// If the listener can not be used.
pub async fn serve_bounded(
    listener: TcpListener,
    tls: Option<ServedTls>,
    routes: Router,
    bounds: Bounds,
    stop: CancellationToken,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let connections = Arc::new(Connections { bounds, ..Connections::default() });
    let (tasks, end) = (TaskTracker::new(), CancellationToken::new());
    let _end = end.clone().drop_guard();
    loop {
        let tcp = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((tcp, _)) => tcp,
                // Out of file descriptors, for instance.
                Err(error) => {
                    tracing::debug!(%error, "failed to accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        let place = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            place = Connections::wait_for_connection_slot(&connections) => place,
        };
        let (tls, routes, stop, end) = (tls.clone(), routes.clone(), stop.clone(), end.clone());
        tasks.spawn(async move {
            tokio::select! {
                biased;
                () = end.cancelled() => {}
                () = serve_socket(tcp, tls, routes, &place, bounds, stop) => {}
            }
        });
    }
    drop(listener);
    tasks.close();
    if tokio::time::timeout(bounds.drain, tasks.wait()).await.is_err() {
        tracing::debug!("stopped with open requests");
    }
    Ok(())
}

async fn serve_socket(
    tcp: TcpStream,
    tls: Option<ServedTls>,
    routes: Router,
    place: &ConnectionSlot,
    bounds: Bounds,
    stop: CancellationToken,
) {
    let _ = tcp.set_nodelay(true);
    let Some(tls) = tls else { return serve_stream(tcp, routes, place, bounds, stop).await };
    let shaken = TlsAcceptor::from(tls.current_config()).accept(tcp);
    let shaken = tokio::select! {
        biased;
        () = place.activity.wait_until_closed() => return tracing::debug!("a handshake made room for another"),
        shaken = tokio::time::timeout(bounds.handshake, shaken) => shaken,
    };
    match shaken {
        Ok(Ok(stream)) => {
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            place.activity.set_http2(is_http2);
            serve_stream(stream, routes, place, bounds, stop).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

async fn serve_stream<S>(stream: S, routes: Router, place: &ConnectionSlot, bounds: Bounds, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let activity = &place.activity;
    let service = hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| {
        let open = activity.open_request();
        let answer = routes.clone().oneshot(request.map(|body| Body::new(open.watch_body(body))));
        async move {
            let answer = answer.await.unwrap_or_else(|never: Infallible| match never {});
            Ok::<_, Infallible>(answer.map(|body| HeldAnswer::new(body, open)))
        }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(BUFFER);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(bounds.streams)
        .max_header_list_size(HEADERS)
        .initial_stream_window_size(2 * BUFFER as u32)
        .initial_connection_window_size(4 * BUFFER as u32)
        .max_send_buf_size(BUFFER);
    let io = TokioIo::new(Watched::new(stream, Arc::clone(activity)));
    let mut serving = std::pin::pin!(builder.serve_connection(io, service));
    let mut look = tokio::time::interval(bounds.headers.min(bounds.idle).min(bounds.request) / 8);
    let (mut is_stopped, mut leave) = (false, None);
    loop {
        tokio::select! {
            biased;
            _ = serving.as_mut() => return,
            now = look.tick(), if leave.is_none() => if let Some(why) = activity.describe_overdue(&bounds, now) {
                tracing::debug!(why, "a connection is closed");
                activity.close();
            },
            () = activity.wait_until_closed(), if leave.is_none() => {
                leave = Some(Instant::now() + FAREWELL);
                serving.as_mut().graceful_shutdown();
            }
            () = tokio::time::sleep_until(leave.unwrap_or_else(Instant::now)), if leave.is_some() => {
                tracing::debug!("a connection that was told to go is dropped");
                return;
            }
            () = stop.cancelled(), if !is_stopped => {
                is_stopped = true;
                serving.as_mut().graceful_shutdown();
            }
        }
    }
}

/// The connections that are open.
#[derive(Debug, Default)]
struct Connections {
    bounds: Bounds,
    next: AtomicU64,
    open: Mutex<BTreeMap<u64, Arc<Activity>>>,
}

/// A connection's place among those that may be; free again when it is dropped.
#[derive(Debug)]
struct ConnectionSlot {
    id: u64,
    activity: Arc<Activity>,
    among: Arc<Connections>,
}

impl Connections {
    async fn wait_for_connection_slot(self: &Arc<Self>) -> ConnectionSlot {
        loop {
            if let Some(place) = self.take_connection_slot(Instant::now()) {
                return place;
            }
            tokio::time::sleep(LOOK_FOR_PLACE).await;
        }
    }

    fn take_connection_slot(self: &Arc<Self>, now: Instant) -> Option<ConnectionSlot> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= self.bounds.connections {
            let stalled = open.iter().filter_map(|(id, activity)| Some((activity.stalled_since()?, *id)));
            let ((_, since), id) = stalled.min()?;
            if now.saturating_duration_since(since) < self.bounds.spared {
                return None;
            }
            let waited_ms = u64::try_from(now.saturating_duration_since(since).as_millis()).unwrap_or(u64::MAX);
            tracing::debug!(waited_ms, "a connection makes room for another");
            open.remove(&id).iter().for_each(|activity| activity.close());
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let activity = Arc::new(Activity::begin_at(Instant::now()));
        open.insert(id, Arc::clone(&activity));
        Some(ConnectionSlot { id, activity, among: Arc::clone(self) })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.among.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

#[cfg(test)]
mod tests;
