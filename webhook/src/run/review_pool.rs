//! Where reviews are decided: on threads of their own, so that sockets are served meanwhile.
//!
//! Rules:
//! - No more reviews at once than there are processors, two at least, and of one namespace no more than its share: who
//!   sends many waits for his own.
//! - Large reviews, by the memory that they take, go one after the other. They have a line of their own, so that small
//!   ones never wait behind them; it bounds the memory of all, too. One thread decides them all: an allocator keeps
//!   what a thread gave back for that thread, and two that had a large one each would keep twice as much.
//! - Large reviews of bindings have such a line and a thread of their own: nobody's jobs keep his own binding, which an
//!   outage would let through without a gate, waiting until it is late. One may take a quarter of the memory
//!   ([`first_look`](super::first_look)).
//! - The first look at long bodies has a third line, one after the other for all namespaces.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError, Weak, mpsc},
    thread,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// From here on a review is large.
const LARGE_REVIEW_BYTES: usize = 1 << 20;
/// Small reviews of one namespace that are decided at once, beside those that wait.
const OF_ONE_NAMESPACE: usize = 4;

/// Threads and memory for reviews. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct ReviewPool {
    looks: Line,
    small: Line,
    large_bindings: LargeLine,
    large: LargeLine,
}

/// Which reviews wait for each other if they are large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LargeReviews {
    /// Those of bindings.
    OfBindings,
    /// All others.
    OfOthers,
}

/// A line of large reviews, and its one thread.
#[derive(Debug, Clone)]
struct LargeLine {
    line: Line,
    thread: mpsc::Sender<Box<dyn FnOnce() + Send>>,
}

impl LargeLine {
    fn new() -> Self {
        let (thread, reviews) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        // It ends with the last clone of the pool.
        thread::spawn(move || reviews.into_iter().for_each(|review| drop(catch_unwind(AssertUnwindSafe(review)))));
        Self { line: Line::new(1, 1), thread }
    }

    async fn run_in_turn<T: Send + 'static>(
        &self,
        namespace: &str,
        rule: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let turn = self.line.wait_for_turn(namespace).await?;
        let (answer, answered) = oneshot::channel();
        let review = move || {
            let _ = answer.send(rule());
            drop(turn);
        };
        self.thread.send(Box::new(review)).ok()?;
        answered.await.ok()
    }
}

/// A line of reviews.
#[derive(Debug, Clone)]
struct Line {
    at_once: Arc<Semaphore>,
    /// The limit of each namespace that is in the line.
    namespaces: Arc<Mutex<HashMap<String, Weak<Semaphore>>>>,
    of_one: usize,
}

impl Line {
    fn new(at_once: usize, of_one: usize) -> Self {
        Self { at_once: Arc::new(Semaphore::new(at_once)), namespaces: Arc::default(), of_one }
    }

    async fn wait_for_turn(&self, namespace: &str) -> Option<[OwnedSemaphorePermit; 2]> {
        let own = self.namespace_limit(namespace);
        let own = own.acquire_owned().await.ok()?;
        Some([own, Arc::clone(&self.at_once).acquire_owned().await.ok()?])
    }

    async fn run_in_turn<T: Send + 'static>(
        &self,
        namespace: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let turn = self.wait_for_turn(namespace).await?;
        // Whoever asked may be gone before it is done: the thread gives the turn back.
        let done = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(turn);
            done
        });
        done.await.ok()
    }

    fn namespace_limit(&self, namespace: &str) -> Arc<Semaphore> {
        let mut all = self.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(limit) = all.get(namespace).and_then(Weak::upgrade) {
            return limit;
        }
        // Those of namespaces that nobody asks about any more.
        if all.len() >= 1_024 {
            all.retain(|_, limit| limit.strong_count() > 0);
        }
        let limit = Arc::new(Semaphore::new(self.of_one));
        all.insert(namespace.to_owned(), Arc::downgrade(&limit));
        limit
    }
}

impl ReviewPool {
    /// Threads for `at_once` small reviews, and one for each line of large ones.
    pub(super) fn new(at_once: usize) -> Self {
        let at_once = at_once.max(2);
        let small = Line::new(at_once, OF_ONE_NAMESPACE.min(at_once));
        Self { looks: Line::new(1, 1), small, large_bindings: LargeLine::new(), large: LargeLine::new() }
    }

    /// Looks through a body on another thread; `None` if that panicked.
    pub(super) async fn run_inspection<T: Send + 'static>(
        &self,
        look: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        self.looks.run_in_turn("", look).await
    }

    /// Decides on another thread when it is its turn; `None` if the rule panicked.
    pub(super) async fn decide_review<T: Send + 'static>(
        &self,
        line: LargeReviews,
        namespace: &str,
        cost: usize,
        rule: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        match line {
            _ if cost < LARGE_REVIEW_BYTES => self.small.run_in_turn(namespace, rule).await,
            LargeReviews::OfBindings => self.large_bindings.run_in_turn(namespace, rule).await,
            LargeReviews::OfOthers => self.large.run_in_turn(namespace, rule).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::{LargeReviews::*, *};

    const AT_LAST: Duration = Duration::from_secs(30);

    async fn soon<T>(future: impl Future<Output = T>) -> T {
        tokio::time::timeout(AT_LAST, future).await.expect("it waits for ever")
    }

    /// A review that is decided when the sender is dropped.
    fn held(pool: &ReviewPool, namespace: &'static str, cost: usize) -> (mpsc::Sender<()>, mpsc::Receiver<()>) {
        held_in(pool, OfOthers, namespace, cost)
    }

    fn held_in(
        pool: &ReviewPool,
        line: LargeReviews,
        namespace: &'static str,
        cost: usize,
    ) -> (mpsc::Sender<()>, mpsc::Receiver<()>) {
        let (release, wait) = mpsc::channel::<()>();
        let (begun, has_begun) = mpsc::channel();
        let pool = pool.clone();
        tokio::spawn(async move {
            let rule = move || {
                let _ = begun.send(());
                let _ = wait.recv();
            };
            pool.decide_review(line, namespace, cost, rule).await
        });
        (release, has_begun)
    }

    fn begins(begun: &mpsc::Receiver<()>) {
        begun.recv_timeout(AT_LAST).expect("it never begins");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn small_reviews_do_not_wait_behind_large_ones() {
        let pool = ReviewPool::new(2);
        let (first, begun) = held(&pool, "a", LARGE_REVIEW_BYTES);
        begins(&begun);
        let (second, later) = held(&pool, "b", LARGE_REVIEW_BYTES);
        assert_eq!(soon(pool.decide_review(OfOthers, "a", 10, || 7)).await, Some(7));
        assert!(later.try_recv().is_err(), "two large ones at once");
        drop(first);
        begins(&later);
        drop(second);
    }

    /// Else whoever sends large jobs has his own binding let through without a gate.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_large_binding_does_not_wait_behind_large_jobs_of_its_namespace_or_another() {
        let pool = ReviewPool::new(2);
        let (release, begun) = held(&pool, "a", LARGE_REVIEW_BYTES);
        let waiting = held(&pool, "b", LARGE_REVIEW_BYTES);
        begins(&begun);
        for namespace in ["a", "b"] {
            let review = pool.decide_review(OfBindings, namespace, LARGE_REVIEW_BYTES, || 7);
            assert_eq!(soon(review).await, Some(7));
        }
        let (binding, begun) = held_in(&pool, OfBindings, "a", LARGE_REVIEW_BYTES);
        begins(&begun);
        let (second, later) = held_in(&pool, OfBindings, "b", LARGE_REVIEW_BYTES);
        assert!(later.try_recv().is_err(), "two large bindings at once");
        drop((release, waiting, binding));
        begins(&later);
        drop(second);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_sends_many_waits_for_his_own() {
        let pool = ReviewPool::new(8);
        let many: Vec<_> = (0..OF_ONE_NAMESPACE).map(|_| held(&pool, "many", 10)).collect();
        many.iter().for_each(|(_, begun)| begins(begun));
        let (release, waits) = held(&pool, "many", 10);
        assert_eq!(soon(pool.decide_review(OfOthers, "other", 10, || 7)).await, Some(7));
        assert!(waits.try_recv().is_err());
        drop(many);
        begins(&waits);
        drop(release);
    }

    #[tokio::test]
    async fn a_rule_that_panics_gives_its_turn_back() {
        let pool = ReviewPool::new(1);
        for _ in 0..5 {
            let panics = pool.decide_review::<()>(OfOthers, "a", LARGE_REVIEW_BYTES, || panic!("on purpose"));
            assert_eq!(soon(panics).await, None);
        }
        assert_eq!(soon(pool.decide_review(OfOthers, "a", LARGE_REVIEW_BYTES, || 7)).await, Some(7));
    }

    #[tokio::test]
    async fn namespaces_that_are_gone_are_forgotten() {
        let pool = ReviewPool::new(2);
        for at in 0..5_000 {
            soon(pool.decide_review(OfOthers, &format!("n{at}"), 10, || ())).await;
        }
        assert!(pool.small.namespaces.lock().unwrap().len() <= 1_024);
    }
}
