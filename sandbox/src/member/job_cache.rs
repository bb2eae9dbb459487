//! Which jobs Volcano's job controller has in its cache: it does nothing for any other.
//!
//! Rule: `pkg/controllers/cache/cache.go`. A deleted job is taken out once its pods are gone. That is tried at its
//! deletion, when its last pod goes, and, if a try comes too early, again after twice the wait: from 5 ms to three
//! minutes, and of all jobs together ten tries a second after the first hundred. A try takes out what has the job's
//! *name* by then, and the last of them may come after the pods are gone. So a job that is made anew a moment later is
//! forgotten, before or after its pods are made, until Volcano is restarted (volcano#3968, volcano#5973). One that is
//! made anew before the old pods are gone takes the old one's place: the tries go on for its whole life, up to three
//! minutes apart, and the next job of that name is the one that is forgotten.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::object::Key;

/// The first wait between two tries, and the longest.
const FIRST_RETRY: SignedDuration = SignedDuration::from_millis(5);
const LONGEST_RETRY: SignedDuration = SignedDuration::from_secs(180);
/// One try of any job takes so long to be made up for, and so much may be owed before they wait.
const PER_RETRY: SignedDuration = SignedDuration::from_millis(100);
const MOST_OWED: SignedDuration = SignedDuration::from_secs(10);

/// Volcano tells them apart by their addresses.
type EntryId = u64;

/// The jobs of one member, by name.
#[derive(Debug, Default)]
pub struct JobCache {
    entries: BTreeMap<EntryId, Entry>,
    named: BTreeMap<Key, EntryId>,
    /// Tries to come.
    retries: BTreeSet<(Timestamp, EntryId)>,
    last_id: EntryId,
    /// When all tries made so far are made up for.
    made_up_at: Timestamp,
}

/// A job and its pods (`JobInfo`).
#[derive(Debug)]
struct Entry {
    key: Key,
    /// Whether its job was ever seen: before that Volcano knows no name of it, and takes nothing out.
    was_seen: bool,
    /// UID of its job; `None` for one that is deleted, or not seen yet.
    job: Option<String>,
    pods: BTreeSet<Key>,
    failed_tries: u32,
    /// When the next try comes.
    retry_at: Option<Timestamp>,
}

impl Entry {
    fn is_terminated(&self) -> bool {
        self.job.is_none() && self.pods.is_empty()
    }
}

impl JobCache {
    /// Whether the job with this name and UID is there.
    #[must_use]
    pub fn has_job(&self, key: &Key, uid: &str) -> bool {
        let entry = self.named.get(key).and_then(|id| self.entries.get(id));
        entry.is_some_and(|entry| entry.job.as_deref() == Some(uid))
    }

    /// Takes in a job that was created (`Add`).
    pub fn add_job(&mut self, key: &Key, uid: &str) {
        let entry = self.entry_of(key);
        if entry.job.is_none() {
            entry.was_seen = true;
            entry.job = Some(uid.to_owned());
        }
    }

    /// Takes in that a job is gone (`Delete`).
    pub fn delete_job(&mut self, key: &Key, now: Timestamp) {
        let Some(id) = self.named.get(key).copied() else { return };
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.job = None;
        }
        self.clean_up(id, now);
    }

    /// Takes in a pod of a job (`AddPod`).
    pub fn add_pod(&mut self, job: &Key, pod: &Key) {
        self.entry_of(job).pods.insert(pod.clone());
    }

    /// Takes in that a pod of a job is gone (`DeletePod`).
    pub fn delete_pod(&mut self, job: &Key, pod: &Key, now: Timestamp) {
        let Some(id) = self.named.get(job).copied() else { return };
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.pods.remove(pod);
        if entry.is_terminated() {
            self.clean_up(id, now);
        }
    }

    /// Makes the tries that are due. To be called before what happened since is taken in.
    pub fn retry_cleanups(&mut self, now: Timestamp) {
        while let Some((at, id)) = self.retries.first().copied().filter(|(at, _)| *at <= now) {
            self.retries.remove(&(at, id));
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.retry_at = None;
            }
            self.clean_up(id, at);
        }
    }

    fn entry_of(&mut self, key: &Key) -> &mut Entry {
        let id = *self.named.entry(key.clone()).or_insert_with(|| {
            self.last_id += 1;
            self.last_id
        });
        self.entries.entry(id).or_insert_with(|| Entry {
            key: key.clone(),
            was_seen: false,
            job: None,
            pods: BTreeSet::new(),
            failed_tries: 0,
            retry_at: None,
        })
    }

    /// One try (`processCleanupJob`).
    fn clean_up(&mut self, id: EntryId, now: Timestamp) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if !entry.is_terminated() {
            self.schedule_retry(id, now);
        } else {
            entry.failed_tries = 0;
            // Whichever job that is by now.
            let taken_out = if entry.was_seen { self.named.remove(&entry.key) } else { None };
            taken_out.into_iter().for_each(|other| self.drop_if_unused(other));
        }
        self.drop_if_unused(id);
    }

    /// The next try (`AddRateLimited`). One that comes sooner stays.
    fn schedule_retry(&mut self, id: EntryId, now: Timestamp) {
        self.made_up_at = add(self.made_up_at.max(now), PER_RETRY);
        let after_others = self.made_up_at.duration_since(now) - MOST_OWED;
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let at = add(now, wait_after(entry.failed_tries).max(after_others));
        entry.failed_tries = entry.failed_tries.saturating_add(1);
        if entry.retry_at.is_none_or(|sooner| at < sooner) {
            if let Some(later) = entry.retry_at.replace(at) {
                self.retries.remove(&(later, id));
            }
            self.retries.insert((at, id));
        }
    }

    /// Forgets an entry that has nothing and is not tried again, or to which nothing leads any more.
    fn drop_if_unused(&mut self, id: EntryId) {
        let Some(entry) = self.entries.get(&id) else { return };
        let is_named = self.named.get(&entry.key) == Some(&id);
        let is_used = if entry.is_terminated() { entry.retry_at.is_some() } else { is_named };
        if is_used {
            return;
        }
        if let Some(retry) = entry.retry_at {
            self.retries.remove(&(retry, id));
        }
        if is_named {
            self.named.remove(&entry.key);
        }
        self.entries.remove(&id);
    }
}

/// How long the next try waits after so many.
fn wait_after(failed_tries: u32) -> SignedDuration {
    let factor = 1_i32.checked_shl(failed_tries).filter(|factor| *factor > 0);
    factor.and_then(|factor| FIRST_RETRY.checked_mul(factor)).map_or(LONGEST_RETRY, |wait| wait.min(LONGEST_RETRY))
}

fn add(time: Timestamp, wait: SignedDuration) -> Timestamp {
    time.checked_add(wait).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: i64) -> Timestamp {
        Timestamp::from_millisecond(milliseconds).unwrap()
    }

    fn name(name: &str) -> Key {
        ("ns".to_owned(), name.to_owned())
    }

    /// Job `j` with a pod, deleted at zero; the pod goes then.
    fn deleted(pod_goes_at: i64) -> JobCache {
        let mut cache = JobCache::default();
        cache.add_job(&name("j"), "old");
        cache.add_pod(&name("j"), &name("j-t-0"));
        cache.delete_job(&name("j"), at(0));
        cache.retry_cleanups(at(pod_goes_at));
        cache.delete_pod(&name("j"), &name("j-t-0"), at(pod_goes_at));
        cache
    }

    /// Whether `j` is known for good if it is made anew then.
    fn survives(mut cache: JobCache, made_at: i64) -> bool {
        cache.retry_cleanups(at(made_at));
        cache.add_job(&name("j"), "new");
        assert!(cache.has_job(&name("j"), "new"));
        cache.retry_cleanups(at(made_at + 1_000_000));
        cache.has_job(&name("j"), "new")
    }

    #[test]
    fn a_job_made_anew_between_the_end_of_the_old_pods_and_the_last_try_is_forgotten() {
        // Tries at 5, 15, 35 ... 2555 and 5115 ms.
        assert!(!survives(deleted(3000), 3001));
        assert!(!survives(deleted(3000), 5114));
        assert!(survives(deleted(3000), 5115));
    }

    #[test]
    fn the_old_ones_name_is_free_at_once_where_it_had_no_pods() {
        let mut cache = JobCache::default();
        cache.add_job(&name("j"), "old");
        cache.delete_job(&name("j"), at(0));
        assert!(survives(cache, 0));
    }

    /// What Caldera waits for (`copy_cleanup` of the controller).
    #[test]
    fn no_try_comes_later_than_twice_the_time_that_the_pods_took_or_three_minutes_after_them() {
        for took in (0..200).map(|step| 3 + step * step * 37) {
            let wait = (took + 1000).min(180_000);
            assert!(survives(deleted(took), took + wait), "{took} ms");
        }
    }

    #[test]
    fn one_made_anew_before_the_old_pods_are_gone_stays_and_the_third_of_that_name_is_forgotten() {
        let mut cache = JobCache::default();
        cache.add_job(&name("j"), "old");
        cache.add_pod(&name("j"), &name("j-t-0"));
        cache.delete_job(&name("j"), at(0));
        cache.retry_cleanups(at(1000));
        cache.add_job(&name("j"), "second");
        cache.delete_pod(&name("j"), &name("j-t-0"), at(2000));
        cache.add_pod(&name("j"), &name("j-t-0"));
        cache.retry_cleanups(at(600_000));
        assert!(cache.has_job(&name("j"), "second"));
        cache.delete_job(&name("j"), at(600_000));
        cache.delete_pod(&name("j"), &name("j-t-0"), at(600_001));
        assert!(!survives(cache, 610_000), "its tries were minutes apart");
    }

    #[test]
    fn tries_of_all_jobs_together_are_ten_in_a_second() {
        let mut cache = JobCache::default();
        let names: Vec<Key> = (0..400).map(|index| name(&format!("j{index}"))).collect();
        for job in &names {
            cache.add_job(job, "old");
            cache.add_pod(job, &name("p"));
            cache.delete_job(job, at(0));
        }
        cache.retry_cleanups(at(100));
        for job in &names {
            cache.delete_pod(job, &name("p"), at(100));
            cache.add_job(job, "new");
        }
        let known = |cache: &JobCache| names.iter().filter(|job| cache.has_job(job, "new")).count();
        cache.retry_cleanups(at(10_000));
        assert!((250..350).contains(&known(&cache)), "{}", known(&cache));
        cache.retry_cleanups(at(60_000));
        assert_eq!(known(&cache), 0);
    }

    #[test]
    fn nothing_is_kept_of_what_is_gone() {
        let mut cache = deleted(3000);
        // Its pods outlive it: nobody knows whose they are.
        cache.add_pod(&name("k"), &name("k-t-0"));
        cache.delete_pod(&name("k"), &name("k-t-0"), at(3001));
        cache.add_job(&name("j"), "new");
        cache.retry_cleanups(at(6000));
        cache.delete_job(&name("j"), at(6001));
        assert!(cache.entries.is_empty() && cache.named.is_empty() && cache.retries.is_empty(), "{cache:?}");
    }
}
