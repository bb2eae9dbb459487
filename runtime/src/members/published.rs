//! What collectors publish, member by member, and how long each inventory can be trusted.
//!
//! Rule: a published inventory is trusted for three heartbeats from when its member was last seen. Its age counts by
//! the wall clock when it arrives, and by our own clock from then on: a reader that starts late trusts it for less
//! long, and no wrong clock makes it last.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use caldera_crds::published::{ClusterInventory, MemberObjects, Published, TRUSTED_HEARTBEATS};
use jiff::Timestamp;
use kube::{Api, Client, api::ListParams, core::DeserializeGuard, runtime::watcher};
use tokio::{
    sync::{SetOnce, mpsc, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::SharedClock,
    watch::{Event, Follower},
};

/// Heartbeats after which a collector is late, and others connect to its member themselves.
const LATE_HEARTBEATS: u32 = 2;
/// How long the first list may take before members are connected to without it.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a host that does not have the kind, or does not let us read it, is asked again.
const RETRY_PERIOD: Duration = Duration::from_secs(60);

/// What was published of a member, and until when it counts.
#[derive(Debug, Clone)]
pub(super) struct Trusted {
    /// The objects.
    pub(super) published: Arc<Published>,
    /// From then on its collector is late.
    pub(super) late: Instant,
    /// From then on it is not trusted.
    pub(super) until: Instant,
}

/// How old a heartbeat is when it arrives, and its period; `None` if it is too old or says no time.
#[must_use]
pub(super) fn heartbeat_age(published: &Published, now: Timestamp) -> Option<(Duration, Duration)> {
    let heartbeat = &published.heartbeat;
    heartbeat.is_trusted_at(now).then_some((heartbeat.age_at(now)?, heartbeat.period()))
}

/// How long `published` counts from `now` on. Published again without a newer sight of the member it is not trusted
/// longer.
fn trust_published(before: Option<&Trusted>, published: Published, wall: Timestamp, now: Instant) -> Option<Trusted> {
    let same = before.filter(|before| before.published.heartbeat.seen_at == published.heartbeat.seen_at);
    let (late, until) = match same {
        Some(same) => (same.late, same.until),
        None => {
            let (age, period) = heartbeat_age(&published, wall)?;
            let after = |heartbeats| now + (period * heartbeats).saturating_sub(age);
            (after(LATE_HEARTBEATS), after(TRUSTED_HEARTBEATS))
        }
    };
    Some(Trusted { published: Arc::new(published), late, until })
}

/// A cache of what is published on the host, by member.
#[derive(Clone)]
pub(super) struct PublishedCache {
    members: Arc<Mutex<BTreeMap<String, watch::Sender<Option<Trusted>>>>>,
    /// The first to wait is the first to wake. Of many that wait for one watch channel any is: one history could not
    /// be had twice.
    listed: Arc<SetOnce<()>>,
}

impl PublishedCache {
    /// Follows what is published on `host` until `stop`.
    pub(super) fn start_cache(host: Client, clock: SharedClock, stop: CancellationToken) -> Self {
        let cache = Self { members: Arc::default(), listed: Arc::default() };
        let filled = cache.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = filled.fill_cache(host, clock, &stop) => {}
            }
        });
        cache
    }

    /// What is published of a member, as it changes.
    pub(super) fn subscribe_member(&self, cluster: &str) -> watch::Receiver<Option<Trusted>> {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.entry(cluster.to_owned()).or_insert_with(|| watch::channel(None).0).subscribe()
    }

    /// Waits until it is known what is published, but not longer than [`FIRST_LIST_TIMEOUT`].
    pub(super) async fn wait_for_list(&self) {
        let _ = tokio::time::timeout(FIRST_LIST_TIMEOUT, self.listed.wait()).await;
    }

    async fn fill_cache(&self, host: Client, clock: SharedClock, stop: &CancellationToken) {
        let objects: Api<DeserializeGuard<ClusterInventory>> = Api::all(host.clone());
        while let Err(error) = objects.list(&ListParams::default().limit(1)).await {
            tracing::debug!(%error, "no inventories are published; members are watched");
            let _ = self.listed.set(());
            tokio::time::sleep(RETRY_PERIOD).await;
        }
        let (events, mut arriving) = mpsc::channel(256);
        Follower::new(host, events, stop.clone()).follow_typed::<ClusterInventory, _, _>(
            watcher::Config::default(),
            Some,
            Some,
        );
        let mut sets: BTreeMap<String, MemberObjects> = BTreeMap::new();
        while let Some(event) = arriving.recv().await {
            let is_list = matches!(event, Event::Reset(_));
            for cluster in apply_event(&mut sets, event) {
                self.notify_subscribers(&cluster, sets.get(&cluster), &clock);
            }
            if is_list {
                let _ = self.listed.set(());
            }
        }
    }

    fn notify_subscribers(&self, cluster: &str, set: Option<&MemberObjects>, clock: &SharedClock) {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = members.entry(cluster.to_owned()).or_insert_with(|| watch::channel(None).0);
        let Some(set) = set.filter(|set| !set.is_gone()) else {
            sender.send_replace(None);
            return;
        };
        // While it is divided into other parts, what was there before counts.
        let Some(published) = set.assemble_if_complete() else { return };
        let before = sender.borrow().clone();
        if before.as_ref().is_some_and(|before| *before.published == published) {
            return;
        }
        sender.send_replace(trust_published(before.as_ref(), published, clock.now(), Instant::now()));
    }
}

/// Brings the sets up to date; the clusters whose objects changed.
fn apply_event(sets: &mut BTreeMap<String, MemberObjects>, event: Event<ClusterInventory>) -> Vec<String> {
    match event {
        Event::Reset(all) => {
            let mut touched: Vec<String> = std::mem::take(sets).into_keys().collect();
            for object in all {
                touched.extend(apply_event(sets, Event::Applied(object)));
            }
            touched.sort_unstable();
            touched.dedup();
            touched
        }
        Event::Applied(object) => {
            let Some(cluster) = object.cluster().map(ToOwned::to_owned) else {
                tracing::warn!(name = object.metadata.name, "left out an inventory whose name is not its cluster's");
                return Vec::new();
            };
            sets.entry(cluster.clone()).or_default().apply(object);
            vec![cluster]
        }
        Event::Deleted(object) => {
            let Some(cluster) = object.cluster().map(ToOwned::to_owned) else { return Vec::new() };
            sets.entry(cluster.clone()).or_default().remove(&object);
            vec![cluster]
        }
    }
}

#[cfg(test)]
mod tests {
    use caldera_crds::published::{Heartbeat, Part};

    use super::*;

    fn published(seen_at: &str, every_seconds: u32) -> Published {
        let heartbeat = Heartbeat { seen_at: seen_at.to_owned(), every_seconds, parts: 1, ..Heartbeat::default() };
        Published { heartbeat, parts: vec![Arc::new(Part { of: 1, ..Part::default() })] }
    }

    fn lasts(seen_at: &str, every: u32) -> Option<(u64, u64)> {
        let wall = "2026-01-01T00:01:00Z".parse().unwrap();
        let now = Instant::now();
        let trusted = trust_published(None, published(seen_at, every), wall, now)?;
        Some(((trusted.late - now).as_secs(), (trusted.until - now).as_secs()))
    }

    #[test]
    fn it_is_trusted_for_three_heartbeats_from_when_the_member_was_seen() {
        assert_eq!(lasts("2026-01-01T00:01:00Z", 30), Some((60, 90)));
        assert_eq!(lasts("2026-01-01T00:00:10Z", 30), Some((10, 40)));
        assert_eq!(lasts("2025-12-31T23:59:45Z", 30), Some((0, 15)));
        assert_eq!(lasts("2025-12-31T23:59:30Z", 30), None);
    }

    #[test]
    fn neither_a_wrong_clock_nor_a_wild_claim_makes_it_last() {
        assert_eq!(lasts("2027-01-01T00:00:00Z", 30), Some((60, 90)));
        assert_eq!(lasts("2026-01-01T00:01:00Z", 1_000_000), Some((200, 300)));
        assert_eq!(lasts("2026-01-01T00:01:00Z", 0), Some((2, 3)));
        assert_eq!(lasts("yesterday", 30), None);
    }

    #[test]
    fn the_same_sight_told_again_lasts_no_longer() {
        let wall: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let now = Instant::now();
        let first = trust_published(None, published("2026-01-01T00:01:00Z", 30), wall, now).unwrap();
        let now = now + Duration::from_secs(50);
        let mut again = published("2026-01-01T00:01:00Z", 30);
        again.heartbeat.fault = Some("gone".into());
        let again = trust_published(Some(&first), again, wall, now).unwrap();
        assert_eq!((again.late, again.until), (first.late, first.until));
        let newer = trust_published(Some(&first), published("2026-01-01T00:01:50Z", 30), wall, now).unwrap();
        assert!(newer.until > first.until);
    }
}
