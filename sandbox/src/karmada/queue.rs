//! A controller's queue of keys: each key at most once at a time, retried with doubling gaps when it fails.
//!
//! Rule: client-go's `workqueue` with controller-runtime's default item limiter (5 ms, doubling, at most 1000 s).

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::api::lock_state;

const FIRST_GAP: Duration = Duration::from_millis(5);
const LAST_GAP: Duration = Duration::from_secs(1000);

/// Why a key could not be handled; it is tried again.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);

impl From<super::api::ApiError> for Failure {
    fn from(error: super::api::ApiError) -> Self {
        Self(error.to_string())
    }
}
impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self(message)
    }
}

/// What a handled key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing, until somebody adds it again.
    Done,
    /// Once more after a while.
    After(Duration),
}

struct State<K> {
    ready: VecDeque<K>,
    waiting: BTreeSet<K>,
    busy: BTreeSet<K>,
    failures: BTreeMap<K, u32>,
}

/// Which of two waiting keys goes first: the one with more.
type Rank<K> = Box<dyn Fn(&K) -> i64 + Send + Sync>;

/// See the module.
pub struct Queue<K> {
    name: &'static str,
    rank: Option<Rank<K>>,
    state: Mutex<State<K>>,
    added: Notify,
    shutdown: CancellationToken,
}

impl<K> fmt::Debug for Queue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<K: Clone + Ord + Send + fmt::Debug + 'static> Queue<K> {
    /// An empty queue of a controller.
    #[must_use]
    pub fn new(name: &'static str, shutdown: CancellationToken) -> Arc<Self> {
        Self::build(name, None, shutdown)
    }

    /// An empty queue that hands out keys of a higher rank first, in order of arrival among equals.
    #[must_use]
    pub fn ranked(
        name: &'static str,
        rank: impl Fn(&K) -> i64 + Send + Sync + 'static,
        shutdown: CancellationToken,
    ) -> Arc<Self> {
        Self::build(name, Some(Box::new(rank)), shutdown)
    }

    fn build(name: &'static str, rank: Option<Rank<K>>, shutdown: CancellationToken) -> Arc<Self> {
        let state = State {
            ready: VecDeque::new(),
            waiting: BTreeSet::new(),
            busy: BTreeSet::new(),
            failures: BTreeMap::new(),
        };
        Arc::new(Self { name, rank, state: Mutex::new(state), added: Notify::new(), shutdown })
    }

    /// Wants a key handled. While it is being handled, it will be once more.
    pub fn add(&self, key: K) {
        let mut state = lock_state(&self.state);
        if !state.waiting.insert(key.clone()) || state.busy.contains(&key) {
            return;
        }
        state.ready.push_back(key);
        drop(state);
        self.added.notify_one();
    }

    /// Wants a key handled after a while.
    pub fn add_after(self: &Arc<Self>, key: K, gap: Duration) {
        if gap.is_zero() {
            return self.add(key);
        }
        let queue = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = queue.shutdown.cancelled() => {}
                () = tokio::time::sleep(gap) => queue.add(key),
            }
        });
    }

    async fn next_key(&self) -> K {
        loop {
            {
                let mut state = lock_state(&self.state);
                let first = match &self.rank {
                    Some(rank) => {
                        // The first of those with the highest rank.
                        let ranks = state.ready.iter().map(rank).enumerate();
                        let best = ranks.max_by_key(|(index, rank)| (*rank, std::cmp::Reverse(*index)));
                        best.and_then(|(index, _)| state.ready.remove(index))
                    }
                    None => state.ready.pop_front(),
                };
                if let Some(key) = first {
                    state.waiting.remove(&key);
                    state.busy.insert(key.clone());
                    if !state.ready.is_empty() {
                        self.added.notify_one();
                    }
                    return key;
                }
            }
            self.added.notified().await;
        }
    }

    fn finish_key(self: &Arc<Self>, key: K, outcome: Result<Next, Failure>) {
        let mut state = lock_state(&self.state);
        state.busy.remove(&key);
        if state.waiting.contains(&key) {
            state.ready.push_back(key.clone());
            self.added.notify_one();
        }
        match outcome {
            Ok(next) => {
                state.failures.remove(&key);
                drop(state);
                if let Next::After(gap) = next {
                    self.add_after(key, gap);
                }
            }
            Err(error) => {
                let failures = state.failures.entry(key.clone()).or_default();
                let gap = gap_after(*failures);
                *failures += 1;
                drop(state);
                debug!(queue = self.name, ?key, %error, ?gap, "failed, to be tried again");
                self.add_after(key, gap);
            }
        }
    }

    /// Handles keys with so many at a time, until the shutdown.
    pub fn run<F, Fut>(self: &Arc<Self>, workers: usize, handle: F)
    where
        F: Fn(K) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Next, Failure>> + Send + 'static,
    {
        let handle = Arc::new(handle);
        for _ in 0..workers {
            let (queue, handle) = (self.clone(), handle.clone());
            tokio::spawn(async move {
                let work = async {
                    loop {
                        let key = queue.next_key().await;
                        let outcome = handle(key.clone()).await;
                        queue.finish_key(key, outcome);
                    }
                };
                tokio::select! {
                    biased;
                    () = queue.shutdown.cancelled() => {}
                    () = work => {}
                }
            });
        }
    }
}

fn gap_after(failures: u32) -> Duration {
    FIRST_GAP.saturating_mul(1 << failures.min(20)).min(LAST_GAP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_double_up_to_a_limit() {
        assert_eq!(gap_after(0), Duration::from_millis(5));
        assert_eq!(gap_after(3), Duration::from_millis(40));
        assert_eq!(gap_after(31), LAST_GAP);
    }

    #[tokio::test]
    async fn higher_ranks_go_first_and_equals_in_order() {
        let queue = Queue::ranked("test", |key: &&str| i64::from(key.starts_with("high")), CancellationToken::new());
        for key in ["low1", "high1", "low2", "high2"] {
            queue.add(key);
        }
        let order = [queue.next_key().await, queue.next_key().await, queue.next_key().await, queue.next_key().await];
        assert_eq!(order, ["high1", "high2", "low1", "low2"]);
    }

    #[tokio::test]
    async fn a_key_added_while_it_is_handled_is_handled_once_more() {
        let shutdown = CancellationToken::new();
        let queue = Queue::new("test", shutdown.clone());
        queue.add("a");
        queue.add("a");
        let key = queue.next_key().await;
        queue.add("a");
        queue.add("a");
        assert!(lock_state(&queue.state).ready.is_empty(), "not twice at a time");
        queue.finish_key(key, Ok(Next::Done));
        assert_eq!(queue.next_key().await, "a");
        assert!(lock_state(&queue.state).ready.is_empty());
        shutdown.cancel();
    }
}
