//! Observes what one connection does: bytes that arrive, requests that are open, and answers that are taken. From that
//! it tells whether the connection is overdue, and since when its client keeps us waiting.
//!
//! Rule: a request is open from its complete headers until its answer was taken. Until a first request, and between
//! requests, the connection is idle. On HTTP/2 bytes alone are no sign of a request, because they may be a ping.

use std::{
    collections::BTreeMap,
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::Bounds;

/// What one connection does.
#[derive(Debug)]
pub(super) struct Activity {
    state: Mutex<State>,
    close: CancellationToken,
}

#[derive(Debug)]
struct State {
    is_http2: bool,
    /// Requests so far.
    asked: u64,
    open: BTreeMap<u64, OpenRequestState>,
    /// Since when none is open.
    idle: Instant,
    /// When the first bytes of a request came of which the headers are not complete.
    begun: Option<Instant>,
}

/// An open request.
#[derive(Debug)]
struct OpenRequestState {
    began: Instant,
    /// Since when the client is to send more of it or to take the answer; `None` while the answer is ours to make.
    stalls: Option<Instant>,
}

impl Activity {
    pub(super) fn begin_at(now: Instant) -> Self {
        let state = State { is_http2: false, asked: 0, open: BTreeMap::new(), idle: now, begun: None };
        Self { state: Mutex::new(state), close: CancellationToken::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of HTTP/2 bytes do not tell whether a request began: they may be a ping.
    pub(super) fn set_http2(&self, is_http2: bool) {
        self.state().is_http2 = is_http2;
    }

    pub(super) fn close(&self) {
        self.close.cancel();
    }

    pub(super) async fn wait_until_closed(&self) {
        self.close.cancelled().await;
    }

    /// Whether its client is in the midst of a request or is to send its first, and since when it does nothing; `None`
    /// while the next word is ours.
    pub(super) fn stalled_since(&self) -> Option<(bool, Instant)> {
        let state = self.state();
        match state.open.is_empty() {
            true => Some((state.asked == 0, state.idle)),
            false => state.open.values().filter_map(|asked| asked.stalls).min().map(|since| (true, since)),
        }
    }

    fn set_stalls(&self, id: u64, stalls: Option<Instant>) {
        if let Some(asked) = self.state().open.get_mut(&id) {
            asked.stalls = stalls;
        }
    }

    fn observe_bytes(&self, now: Instant) {
        let mut state = self.state();
        if !state.is_http2 && state.open.is_empty() {
            state.begun.get_or_insert(now);
        }
    }

    /// A request's headers are complete.
    pub(super) fn open_request(self: &Arc<Self>) -> OpenRequest {
        let mut state = self.state();
        state.asked += 1;
        state.begun = None;
        let id = state.asked;
        let now = Instant::now();
        state.open.insert(id, OpenRequestState { began: now, stalls: Some(now) });
        OpenRequest { id, of: Arc::clone(self) }
    }

    /// What took longer than it may.
    pub(super) fn describe_overdue(&self, bounds: &Bounds, now: Instant) -> Option<&'static str> {
        let state = self.state();
        let is_over = |since: Instant, most| now.saturating_duration_since(since) > most;
        match (state.open.first_key_value(), state.begun) {
            (Some((_, asked)), _) => is_over(asked.began, bounds.request).then_some("its request took too long"),
            (None, Some(since)) => is_over(since, bounds.headers).then_some("its headers took too long"),
            (None, None) if state.asked == 0 => is_over(state.idle, bounds.headers).then_some("it never asked"),
            (None, None) => is_over(state.idle, bounds.idle).then_some("it was idle"),
        }
    }
}

/// A request that is open until this is dropped.
#[derive(Debug)]
pub(super) struct OpenRequest {
    id: u64,
    of: Arc<Activity>,
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut state = self.of.state();
        state.open.remove(&self.id);
        state.idle = Instant::now();
    }
}

impl OpenRequest {
    /// The request's body, which tells when all of it is here.
    pub(super) fn watch_body(&self, body: Incoming) -> AskedBody {
        let body = AskedBody { body, id: self.id, of: Arc::clone(&self.of) };
        body.observe_end();
        body
    }
}

/// See [`OpenRequest::watch_body`].
#[derive(Debug)]
pub(super) struct AskedBody {
    body: Incoming,
    id: u64,
    of: Arc<Activity>,
}

impl AskedBody {
    fn observe_end(&self) {
        if self.body.is_end_stream() {
            self.of.set_stalls(self.id, None);
        }
    }
}

impl http_body::Body for AskedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            Some(Ok(_)) => self.observe_end(),
            _ => self.of.set_stalls(self.id, None),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream that tells when bytes arrive.
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    activity: Arc<Activity>,
}

impl<S> Watched<S> {
    pub(super) const fn new(stream: S, activity: Arc<Activity>) -> Self {
        Self { stream, activity }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, into))?;
        if into.filled().len() > before {
            self.activity.observe_bytes(Instant::now());
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        all: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, all)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The body of an answer, whose request is open until it is taken. It goes out in small pieces, so that who does not
/// read it lets no more than one of them wait behind its back.
#[derive(Debug)]
pub(super) struct HeldAnswer {
    body: Body,
    rest: Bytes,
    _open: OpenRequest,
}

/// What goes out at once.
const WRITE_BYTES: usize = 16 * 1024;

impl HeldAnswer {
    pub(super) fn new(body: Body, open: OpenRequest) -> Self {
        open.of.set_stalls(open.id, Some(Instant::now()));
        Self { body, rest: Bytes::new(), _open: open }
    }
}

impl http_body::Body for HeldAnswer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if data.len() > WRITE_BYTES => self.rest = data,
                    Ok(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                other => return Poll::Ready(other),
            }
        }
        let most = self.rest.len().min(WRITE_BYTES);
        // A copy: a piece that waits must not keep the whole.
        let piece = Bytes::copy_from_slice(&self.rest.split_to(most));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let inner = self.body.size_hint();
        let mut hint = SizeHint::new();
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(inner.lower().saturating_add(rest));
        hint
    }
}
