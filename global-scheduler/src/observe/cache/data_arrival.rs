//! Data that the controller decided on and that is not seen here yet.
//!
//! A claim may come together with its job, and the watches tell of both in any order. Rule: the admission record says
//! how far the controller had followed claims and sources when it granted ([`KnownData`]), and nothing new of the
//! binding is placed before they are followed here as far. One watch tells changes in the order of their versions:
//! after an event of that version or a later one, of whatever object, none before it is missing. Where that takes
//! longer than [`SILENT`] (the claim was deleted before it was ever listed here, say) the binding is refused, in words;
//! the controller takes the grant back and grants it anew by what it knows then.

use std::collections::BTreeMap;

use caldera_core::{
    admission::KnownData,
    data_source::{DataClaim, DataSource},
    place::Target,
};
use caldera_runtime::watch::Event;
use jiff::{SignedDuration, Timestamp};

use super::{super::binding::BindingKey, Cache};

/// How long nothing is said of a wait that is over in a moment.
const SILENT: SignedDuration = SignedDuration::from_secs(10);

/// An object with its resourceVersion; 0 where that is no number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned<T> {
    /// As of when it is.
    pub version: u64,
    /// What is kept of it.
    pub object: T,
}

/// How far claims and sources are followed, and who waits for more.
#[derive(Debug)]
pub struct DataArrivals {
    seen: KnownData,
    /// Since when.
    waiting: BTreeMap<BindingKey, Timestamp>,
}

impl Default for DataArrivals {
    fn default() -> Self {
        Self { seen: KnownData { claims: 0, sources: 0 }, waiting: BTreeMap::new() }
    }
}

/// Whether a decision rests on all that the controller knew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataWait {
    /// It does, or adds nothing.
    Over,
    /// Not yet.
    Silent,
    /// Not yet, for so long that it is told.
    Reported,
}

impl DataArrivals {
    /// When a wait is to be told next.
    pub(super) fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        self.waiting.values().map(|since| *since + SILENT).filter(|at| *at > now).min()
    }

    /// Those whose wait became one to be told in this time.
    pub(super) fn list_over(&self, after: Timestamp, now: Timestamp) -> Vec<BindingKey> {
        let over = self.waiting.iter().filter(|(_, since)| **since + SILENT > after && **since + SILENT <= now);
        over.map(|(key, _)| key.clone()).collect()
    }

    pub(super) fn forget(&mut self, key: &BindingKey) {
        self.waiting.remove(key);
    }
}

impl Cache {
    /// Applies an event of claims, of this version.
    pub fn apply_versioned_claims(&mut self, event: Event<Versioned<DataClaim>>) {
        let (version, event) = split_version(event);
        self.data_arrivals.seen.claims = self.data_arrivals.seen.claims.max(version);
        self.apply_data_claims(event);
        self.requeue_waiting_for_data();
    }

    /// Applies an event of sources, of this version.
    pub fn apply_versioned_sources(&mut self, event: Event<Versioned<DataSource>>) {
        let (version, event) = split_version(event);
        self.data_arrivals.seen.sources = self.data_arrivals.seen.sources.max(version);
        self.apply_data_sources(event);
        self.requeue_waiting_for_data();
    }

    fn requeue_waiting_for_data(&mut self) {
        let waiting: Vec<BindingKey> = self.data_arrivals.waiting.keys().cloned().collect();
        waiting.iter().for_each(|key| self.mark_due(key));
    }

    /// Whether a decision is not carried out yet, since the controller knew more of the data when it granted.
    pub fn start_or_check_data_wait(&mut self, key: &BindingKey, targets: &[Target]) -> DataWait {
        let now = self.deadlines.now;
        let arrivals = &mut self.data_arrivals;
        let lacks = self.bindings.get(key).is_some_and(|binding| {
            let known = binding.admission.as_ref().and_then(|admission| admission.data);
            let adds = targets.iter().any(|target| !binding.place.is_target(&target.cluster));
            adds && known.is_some_and(|known| !known.is_within(arrivals.seen))
        });
        if !lacks {
            arrivals.forget(key);
            return DataWait::Over;
        }
        let since = *arrivals.waiting.entry(key.clone()).or_insert(now);
        if since + SILENT > now { DataWait::Silent } else { DataWait::Reported }
    }
}

/// The highest version of an event's objects, and the event without them.
fn split_version<T>(event: Event<Versioned<T>>) -> (u64, Event<T>) {
    match event {
        Event::Reset(all) => {
            let version = all.iter().map(|one| one.version).max().unwrap_or(0);
            (version, Event::Reset(all.into_iter().map(|one| one.object).collect()))
        }
        Event::Applied(one) => (one.version, Event::Applied(one.object)),
        Event::Deleted(one) => (one.version, Event::Deleted(one.object)),
    }
}
