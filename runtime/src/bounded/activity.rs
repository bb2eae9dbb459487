//! What a connection does, and since when: whether it is overdue.

use std::{
    collections::BTreeMap,
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
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
    /// When each open request began.
    open: BTreeMap<u64, Instant>,
    /// Since when none is open.
    idle: Instant,
    /// When the first bytes of a request came of which the headers are not complete.
    begun: Option<Instant>,
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

    pub(super) async fn closed(&self) {
        self.close.cancelled().await;
    }

    /// Whether a request is open or the first is to come, and since when it is so.
    pub(super) fn busy_since(&self) -> (bool, Instant) {
        let state = self.state();
        match state.open.first_key_value() {
            Some((_, since)) => (true, *since),
            None => (state.asked == 0, state.idle),
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
        state.open.insert(id, Instant::now());
        OpenRequest { id, of: Arc::clone(self) }
    }

    /// What took longer than it may.
    pub(super) fn find_overdue(&self, bounds: &Bounds, now: Instant) -> Option<&'static str> {
        let state = self.state();
        let is_over = |since: Instant, most| now.saturating_duration_since(since) > most;
        match (state.open.first_key_value(), state.begun) {
            (Some((_, since)), _) => is_over(*since, bounds.request).then_some("its request took too long"),
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
const PIECE: usize = 16 * 1024;

impl HeldAnswer {
    pub(super) const fn new(body: Body, open: OpenRequest) -> Self {
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
                    Ok(data) if data.len() > PIECE => self.rest = data,
                    Ok(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                other => return Poll::Ready(other),
            }
        }
        let most = self.rest.len().min(PIECE);
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
