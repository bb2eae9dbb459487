//! Stale grants: admissions that an earlier lease holder wrote, and of which something is not placed yet.
//!
//! A release is one patch of one binding, and the API has nothing that ties it to what other bindings hold. So a
//! replica that lost its lease without noticing can grant what another has given away meanwhile. Rule: lease fencing.
//! Each grant says under which lease it was made (`caldera.dev/epoch`). The scheduler places nothing more of a grant
//! unless it read, after it had seen the grant, that this lease was still held: whoever takes the lease later lists the
//! grant and charges it. The one replica that holds the lease now decides here about grants of other leases: it grants
//! them anew where each queue on the path is within its limit, and takes the others back, the newest first. What is
//! taken back may be placed yet, by a look at the lease that began before this replica took it. So it counts until that
//! is stored, and nothing is granted anew in its place before. One that charges less than its pods ask for now is taken
//! back too: it is of another template, or forged.
//!
//! A grant of a *later* lease says that this replica lost its own and has not noticed yet: deciding about it would only
//! undo what the new holder does, and be undone. It is left alone until a replica that lost its lease has stopped.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use caldera_core::{
    admission::Admission,
    gang::QueueName,
    queue::{Engine, ledger::Stage},
    resources::Resources,
};
use jiff::{SignedDuration, Timestamp};

use super::{
    deadlines::{Deadlines, after},
    eviction::NOT_PLACED,
    forged_record::term_of,
    jobs::Jobs,
    requeue::requeue,
    unused_quota::record_of_placed,
};
use crate::{
    observe::{Binding, Key, Objects},
    write::Decision,
};

/// What is said to whom it is taken back from.
const WHY: &str = "another replica of the controller granted it beyond a limit";
const WHY_UNDERSTATED: &str = "another replica of the controller granted it for less than its pods ask for";
/// After a write that may have failed.
const AGAIN: SignedDuration = SignedDuration::from_secs(5);
/// While the last write to the binding was not seen in the watch.
const UNCONFIRMED: SignedDuration = SignedDuration::from_millis(250);

/// Until a replica that lost its lease has noticed: twice the lease's duration.
const STOPPED: SignedDuration = SignedDuration::from_secs(30);

/// Bindings with a stale grant, and when to decide about each.
#[derive(Debug, Default)]
pub(crate) struct StaleGrants(Deadlines<()>);

impl StaleGrants {
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.0.next_due()
    }

    pub(crate) fn forget(&mut self, key: &Key) {
        self.0.forget(key);
    }

    /// Takes in the state of a binding. `epoch` is that of this replica; `is_unused` says that something that was
    /// granted is not placed.
    pub(crate) fn observe_binding(
        &mut self,
        binding: &Binding,
        stage: Option<Stage>,
        epoch: Option<&str>,
        is_unused: bool,
        now: Timestamp,
    ) {
        // One without an epoch is of a time without leases, or somebody's own words.
        let other = binding.epoch.as_deref() != epoch;
        let unplaced = stage == Some(Stage::Admitted) || (stage == Some(Stage::Placed) && is_unused);
        if !(other && unplaced && binding.admission.is_some() && !binding.deleting) {
            self.0.forget(&binding.key);
        } else if !self.0.contains(&binding.key) {
            let is_later = term_of(binding.epoch.as_deref()) >= term_of(epoch);
            let due = if epoch.is_some() && is_later { after(now, STOPPED) } else { now };
            self.0.set(&binding.key, due, ());
        }
    }

    /// Grants anew, or takes back, the newest first.
    pub(crate) fn settle_grants(&mut self, objects: &Objects, jobs: &mut Jobs, now: Timestamp) -> Vec<Decision> {
        let (due, unconfirmed): (Vec<Key>, Vec<Key>) =
            self.0.list_due(now).into_iter().partition(|key| jobs.is_confirmed(key));
        // A write of ours is under way there. A deadline that stayed in the past would be asked about without end.
        unconfirmed.iter().for_each(|key| self.0.postpone(key, after(now, UNCONFIRMED)));
        let due: BTreeSet<(Reverse<i64>, Key)> =
            due.into_iter().filter_map(|key| Some((Reverse(objects.bindings.get(&key)?.created), key))).collect();
        if due.is_empty() {
            return Vec::new();
        }
        jobs.engine.resolve_quota();
        let mut decisions = Vec::new();
        let mut taken: BTreeMap<QueueName, Resources> = BTreeMap::new();
        for (_, key) in due {
            self.0.postpone(&key, after(now, AGAIN));
            let Some(binding) = objects.bindings.get(&key) else { continue };
            let Some(record) = binding.admission.as_deref() else { continue };
            let path = objects.queue_path(&record.queue);
            let exceeds = |without: &BTreeMap<QueueName, Resources>| {
                path.iter().any(|name| exceeds_limit(&jobs.engine, name, without.get(name)))
            };
            let is_understated = binding.clusters.is_empty() && is_understated(objects, binding, record);
            if !is_understated && !exceeds(&BTreeMap::new()) {
                decisions.extend(jobs.assume_record(binding, record.clone(), true));
                continue;
            }
            let is_beyond = exceeds(&taken);
            if !is_beyond && !is_understated {
                continue;
            }
            tracing::warn!(binding = %key, queue = %record.queue, is_beyond, "a grant of another replica is taken back");
            let mut freed = jobs.engine.charge_of(binding.id.as_str()).unwrap_or_default();
            if binding.clusters.is_empty() {
                let why = if is_beyond { WHY } else { WHY_UNDERSTATED };
                decisions.push(requeue(binding, NOT_PLACED, why.to_owned(), Vec::new(), now));
            } else if let Some(less) = record_of_placed(objects, binding) {
                // It keeps what it has.
                freed.saturating_sub(&less.charged);
                decisions.extend(jobs.assume_record(binding, less, true));
            }
            path.into_iter().for_each(|name| taken.entry(name).or_default().add(&freed));
        }
        decisions
    }
}

/// Whether what a record grants asks for more than it charges: then it is not granted anew as it is.
fn is_understated(objects: &Objects, binding: &Binding, record: &Admission) -> bool {
    let Some(Ok(gang)) = objects.workload_of(binding).map(|workload| workload.gang.as_ref()) else { return false };
    !record.price_at(gang).fits_in(&record.charged)
}

/// Whether more is charged than a queue may have, without what was taken back just now.
fn exceeds_limit(engine: &Engine, queue: &QueueName, taken: Option<&Resources>) -> bool {
    let is = engine.entitlement_of(queue);
    let taken = |name: &str| taken.map(|taken| taken.get(name)).unwrap_or_default();
    is.real.iter().any(|(name, most)| is.used.get(name.as_str()).minus(taken(name.as_str())) > most)
}
