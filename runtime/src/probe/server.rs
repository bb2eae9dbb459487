//! The other side: answers at once, and takes loads within a day's budget.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Json, Router,
    body::Body,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use caldera_core::token_bucket::{Refill, TokenBucket};
use http_body_util::BodyExt;
use prometheus_client::metrics::counter::Counter;
use tokio::{sync::Semaphore, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{MOST_LOAD, ProbeServer, exchange::LoadAnswer, metrics::register_taken_bytes};
use crate::bounded::{Bounds, serve_bounded};

/// Seconds of a day: the ticks in which a budget is filled.
const DAY: u64 = 86_400;

/// Loads at once: more would measure each other.
const LOADS: usize = 2;
/// A part of a day's budget that is there at the start.
const FIRST_PART: u64 = 24;

/// What may still be taken.
struct DailyBudget {
    began: Instant,
    refill: Refill,
    bucket: Mutex<TokenBucket>,
    loads: Semaphore,
    taken: Counter,
}

impl DailyBudget {
    fn new(bytes_a_day: u64, taken: Counter) -> Self {
        let count = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let refill = Refill { each_tick: count(bytes_a_day / DAY), most: count(bytes_a_day) };
        let bucket = Mutex::new(TokenBucket::new(count(bytes_a_day / FIRST_PART), 0));
        Self { began: Instant::now(), refill, bucket, loads: Semaphore::new(LOADS), taken }
    }

    /// Whether more may be taken.
    fn has_any(&self) -> bool {
        self.lock_bucket().level_at(self.refill, self.now()) > 0
    }

    fn take_bytes(&self, bytes: usize) {
        self.taken.inc_by(bytes as u64);
        let (bytes, now) = (i64::try_from(bytes).unwrap_or(i64::MAX), self.now());
        self.lock_bucket().take_parts(self.refill, bytes, now);
    }

    fn now(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_secs()).unwrap_or(i64::MAX)
    }

    fn lock_bucket(&self) -> std::sync::MutexGuard<'_, TokenBucket> {
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers peers until `stop`.
///
/// # Errors
/// If the socket fails.
pub async fn run_probe_server(server: ProbeServer, stop: CancellationToken) -> io::Result<()> {
    let taken = register_taken_bytes(&server.cluster, &server.registry);
    let budget = Arc::new(DailyBudget::new(server.bytes_a_day, taken));
    let routes = Router::new().route("/probe", get(async || StatusCode::NO_CONTENT).post(take_load)).with_state(budget);
    // Each peer has a connection for some seconds a minute.
    let bounds = Bounds { connections: 64, idle: Duration::from_secs(30), ..Bounds::default() };
    serve_bounded(server.listener, server.tls, routes, bounds, stop).await
}

/// Counts what comes, and at which rate the last three quarters came.
async fn take_load(State(budget): State<Arc<DailyBudget>>, body: Body) -> Response {
    let Ok(_load) = budget.loads.try_acquire() else { return StatusCode::TOO_MANY_REQUESTS.into_response() };
    let mut arrivals = Arrivals::default();
    let mut body = body;
    while let Some(frame) = body.frame().await {
        if !budget.has_any() {
            return StatusCode::TOO_MANY_REQUESTS.into_response();
        }
        let Ok(frame) = frame else { return StatusCode::BAD_REQUEST.into_response() };
        let bytes = frame.data_ref().map_or(0, bytes::Bytes::len);
        budget.take_bytes(bytes);
        arrivals.add(bytes as u64, Instant::now());
        if arrivals.bytes > MOST_LOAD {
            return StatusCode::PAYLOAD_TOO_LARGE.into_response();
        }
    }
    match arrivals.megabits() {
        Some(megabits) => Json(LoadAnswer { megabits }).into_response(),
        None => (StatusCode::BAD_REQUEST, "that was too little to tell a rate").into_response(),
    }
}

/// When which byte came, as far as a rate needs it: each doubling from the first frame on.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    bytes: u64,
    /// Bytes that had come by then, and when.
    marks: Vec<(u64, Instant)>,
    last: Option<Instant>,
}

impl Arrivals {
    pub(super) fn add(&mut self, bytes: u64, now: Instant) {
        if bytes == 0 {
            return;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.last = Some(now);
        // Marks are no closer than an eighth of what has come.
        if self.marks.last().is_none_or(|(mark, _)| self.bytes - mark >= mark / 8) {
            self.marks.push((self.bytes, now));
        }
    }

    /// The rate from about the first quarter on, in megabits a second; `None` where all came at once.
    pub(super) fn megabits(&self) -> Option<u64> {
        let quarter = self.bytes / 4;
        let (mark, at) = self.marks.iter().find(|(mark, _)| *mark >= quarter)?;
        let micros = u64::try_from(self.last?.duration_since(*at).as_micros()).ok().filter(|micros| *micros > 0)?;
        let bits = self.bytes.saturating_sub(*mark).saturating_mul(8);
        (bits > 0).then(|| (bits / micros).max(1))
    }
}
