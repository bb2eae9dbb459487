//! A bounded cache of answers that expire after a time.
//!
//! Rule: whoever asks for a key that is being looked up waits for that answer. Where there is no room for another key,
//! an answer that is not worth keeping is dropped before one that is, and the oldest of its kind first. A key that
//! somebody waits for is never dropped. A failure is not kept.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

type Slot<V> = Arc<tokio::sync::Mutex<Option<(Instant, V)>>>;

/// See the module.
pub struct AnswerCache<K, V> {
    slots: Mutex<BTreeMap<K, Slot<V>>>,
    counts_for: Duration,
    most: usize,
    is_worth: fn(&V) -> bool,
}

impl<K: Ord + Clone, V: Clone> AnswerCache<K, V> {
    pub fn new(counts_for: Duration, most: usize, is_worth: fn(&V) -> bool) -> Self {
        Self { slots: Mutex::default(), counts_for, most, is_worth }
    }

    /// What is known, or what is found; that is told whether the last answer was worth keeping. A failure is not kept.
    pub async fn get_or_find<E>(&self, key: &K, find: impl AsyncFnOnce(bool) -> Result<V, E>) -> Result<V, E> {
        let slot = self.take_slot(key);
        let mut slot = slot.lock().await;
        match &*slot {
            Some((until, value)) if *until > Instant::now() => return Ok(value.clone()),
            _ => {}
        }
        let was_worth = slot.as_ref().is_some_and(|(_, value)| (self.is_worth)(value));
        let value = find(was_worth).await?;
        *slot = Some((Instant::now() + self.counts_for, value.clone()));
        Ok(value)
    }

    fn take_slot(&self, key: &K) -> Slot<V> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.get(key) {
            return Arc::clone(slot);
        }
        while slots.len() >= self.most {
            let idle = slots.iter().filter(|(_, slot)| Arc::strong_count(slot) == 1);
            let ranked = idle.filter_map(|(key, slot)| {
                let slot = slot.try_lock().ok()?;
                let rank = slot.as_ref().map(|(until, value)| ((self.is_worth)(value), *until));
                Some((rank, key))
            });
            let Some(key) = ranked.min_by_key(|(rank, _)| *rank).map(|(_, key)| key.clone()) else { break };
            slots.remove(&key);
        }
        Arc::clone(slots.entry(key.clone()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn answers(counts_for: Duration) -> AnswerCache<u32, bool> {
        AnswerCache::new(counts_for, 4, |good| *good)
    }

    async fn ask(answers: &AnswerCache<u32, bool>, key: u32, value: bool, asked: &AtomicU32) -> bool {
        let find = async |_| {
            asked.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            Ok::<_, ()>(value)
        };
        answers.get_or_find(&key, find).await.unwrap()
    }

    #[tokio::test]
    async fn many_who_ask_at_once_ask_once_and_again_when_it_counts_no_more() {
        for (counts_for, times) in [(LONG, 1), (Duration::ZERO, 9)] {
            let (answers, asked) = (answers(counts_for), AtomicU32::new(0));
            futures::future::join_all((0..9).map(|_| ask(&answers, 1, true, &asked))).await;
            assert_eq!(asked.load(Ordering::Relaxed), times);
        }
    }

    #[tokio::test]
    async fn what_is_not_worth_keeping_crowds_out_nothing_that_is() {
        let (answers, asked) = (answers(LONG), AtomicU32::new(0));
        for key in 0..3 {
            ask(&answers, key, true, &asked).await;
        }
        for key in 10..30 {
            ask(&answers, key, false, &asked).await;
        }
        let before = asked.load(Ordering::Relaxed);
        for key in 0..3 {
            ask(&answers, key, true, &asked).await;
        }
        assert_eq!(asked.load(Ordering::Relaxed), before);
        assert_eq!(answers.slots.lock().unwrap().len(), 4);
        // Where all are worth it, the oldest goes.
        for key in 40..43 {
            ask(&answers, key, true, &asked).await;
        }
        let kept: Vec<u32> = answers.slots.lock().unwrap().keys().copied().collect();
        assert_eq!(kept, [2, 40, 41, 42]);
    }

    #[tokio::test]
    async fn a_failure_is_not_kept() {
        let answers = answers(LONG);
        assert_eq!(answers.get_or_find(&1, async |_| Err("away")).await, Err("away"));
        assert_eq!(answers.get_or_find(&1, async |_| Ok::<_, ()>(true)).await, Ok(true));
    }
}
