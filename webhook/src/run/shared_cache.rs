//! What all requests share: the cache as it is now, room for bodies, threads for reviews.
//!
//! Rule: reviews are decided without a lock, from a copy of the cache; one writer at a time makes the next one.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use caldera_runtime::{
    bounded::body::BodyMemory,
    clock::{SharedClock, SystemClock},
    serve::{Ready, SharedRegistry},
    watch::Follower,
};
use kube::Client;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{InspectedRequest, Limits, review_pool::ReviewPool};
use crate::{
    metrics::Metrics,
    observe::{cache::Cache, host_watch::watch_host},
};

/// Reviews that take less memory are decided where they arrive: that is quicker than to change threads.
const SMALL_REVIEW_BYTES: usize = 256 << 10;

/// What all requests share.
#[derive(Clone)]
pub struct SharedCache {
    cache: Arc<Published>,
    pub(super) client: Client,
    pub(super) clock: SharedClock,
    pub(super) metrics: Arc<Metrics>,
    pub(super) bodies: BodyMemory,
    pub(super) memory: usize,
    /// Without it reviews are decided where they arrive: on one thread in one order.
    pub(super) pool: Option<ReviewPool>,
}

/// The cache as it is now, and the right to write the next one.
#[derive(Default)]
struct Published {
    current: RwLock<Arc<Cache>>,
    writing: Mutex<()>,
}

impl SharedCache {
    /// An empty cache; live reads go to `client`.
    #[must_use]
    pub fn new(client: Client, registry: &SharedRegistry) -> Self {
        let metrics = Arc::new(Metrics::register_metrics(registry));
        let limits = Limits::default();
        let (cache, bodies) = (Arc::default(), BodyMemory::new(limits.bodies));
        Self { cache, client, clock: Arc::new(SystemClock), metrics, bodies, memory: limits.memory, pool: None }
    }

    /// The same by another clock.
    #[must_use]
    pub fn with_clock(self, clock: SharedClock) -> Self {
        Self { clock, ..self }
    }

    /// The same with threads of its own for reviews, within `limits`.
    #[must_use]
    pub fn with_threads(self, limits: &Limits) -> Self {
        let at_once = std::thread::available_parallelism().map_or(2, usize::from);
        let (bodies, pool) = (BodyMemory::new(limits.bodies), Some(ReviewPool::new(at_once)));
        Self { bodies, memory: limits.memory, pool, ..self }
    }

    /// The cache as it is now. Nobody waits for who reads it.
    #[must_use]
    pub fn current(&self) -> Arc<Cache> {
        Arc::clone(&self.cache.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn update_cache<T>(&self, update: impl FnOnce(&mut Cache) -> T) -> T {
        let _one = self.cache.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = Cache::clone(&self.current());
        let updated = update(&mut next);
        let mut next = Arc::new(next);
        std::mem::swap(&mut next, &mut self.cache.current.write().unwrap_or_else(PoisonError::into_inner));
        updated
    }

    /// Decides by `rule`; `None` if it panicked.
    pub(super) async fn decide_review<T: Send + 'static>(
        &self,
        asked: &InspectedRequest,
        rule: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        match &self.pool {
            Some(pool) if asked.cost >= SMALL_REVIEW_BYTES => {
                pool.decide_review(asked.line, &asked.namespace, asked.cost, rule).await
            }
            _ => std::panic::catch_unwind(AssertUnwindSafe(rule)).ok(),
        }
    }
}

/// Feeds the cache from watches until `stop`; `ready` is set once it is complete.
pub fn fill_cache(cache: &SharedCache, client: &Client, ready: Ready, stop: &CancellationToken) {
    let (sender, mut events) = mpsc::channel(1024);
    watch_host(&Follower::new(client.clone(), sender, stop.clone()));
    let cache = cache.clone();
    tokio::spawn(async move {
        // What came meanwhile becomes one next cache.
        let mut came = Vec::new();
        while events.recv_many(&mut came, 1024).await > 0 {
            cache.metrics.observe_events(&came, cache.clock.now());
            let is_complete = cache.update_cache(|cache| {
                came.drain(..).for_each(|event| cache.apply_event(event));
                cache.is_complete()
            });
            if is_complete && !ready.is_ready() {
                tracing::info!("the cache is complete");
                ready.set_ready(true);
            }
        }
    });
}
