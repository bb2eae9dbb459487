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
//!
//! The run of a grant of which nothing is placed begins when it is granted anew, with the limit of then: whatever its
//! record says.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use caldera_core::{
    admission::Admission,
    gang::QueueName,
    queue::{Counted, Engine, ledger::AdmissionStage},
    resources::Resources,
    tenant::Tenant,
    time::EpochSeconds,
};
use jiff::{SignedDuration, Timestamp};

use super::unused_quota::record_of_placed;
use crate::{
    decide::{
        bindings::{
            eviction::{NOT_PLACED, requeue_binding},
            grant_history::parse_lease_transitions,
            jobs::Jobs,
            run_terms::RunTerms,
        },
        deadlines::{Deadlines, add_wait},
    },
    observe::{Binding, Key, Objects, admitted_gang},
    write::Decision,
};

/// What is said to whom it is taken back from.
const WHY: &str = "another replica of the controller granted it beyond a limit";
const WHY_UNDERSTATED: &str = "another replica of the controller granted it for less than its pods ask for";
/// After a write that may have failed.
const RETRY_AFTER_WRITE: SignedDuration = SignedDuration::from_secs(5);
/// While the last write to the binding was not seen in the watch.
const UNCONFIRMED: SignedDuration = SignedDuration::from_millis(250);

/// Until a replica that lost its lease has noticed: twice the lease's duration.
const STOPPED: SignedDuration = SignedDuration::from_secs(30);

/// Bindings with a stale grant, and when to decide about each.
#[derive(Debug, Default)]
pub(crate) struct StaleGrants(pub(crate) Deadlines<()>);

impl StaleGrants {
    /// Takes in the state of a binding. `epoch` is that of this replica; `is_unused` says that something that was
    /// granted is not placed.
    pub(crate) fn observe_binding(
        &mut self,
        binding: &Binding,
        stage: Option<AdmissionStage>,
        epoch: Option<&str>,
        is_unused: bool,
        now: Timestamp,
    ) {
        // One without an epoch is of a time without leases, or somebody's own words.
        let other = binding.epoch.as_deref() != epoch;
        let unplaced = stage == Some(AdmissionStage::Admitted) || (stage == Some(AdmissionStage::Placed) && is_unused);
        if !(other && unplaced && binding.admission.is_some() && !binding.deleting) {
            self.0.forget(&binding.key);
        } else if !self.0.contains(&binding.key) {
            let is_later = parse_lease_transitions(binding.epoch.as_deref()) >= parse_lease_transitions(epoch);
            let due = if epoch.is_some() && is_later { add_wait(now, STOPPED) } else { now };
            self.0.set(&binding.key, due, ());
        }
    }

    /// Grants anew, or takes back, the newest first.
    pub(crate) fn regrant_or_take_back(&mut self, objects: &Objects, jobs: &mut Jobs, now: Timestamp) -> Vec<Decision> {
        let (due, unconfirmed): (Vec<Key>, Vec<Key>) =
            self.0.list_due(now).into_iter().partition(|key| jobs.is_confirmed(key));
        // A write of ours is under way there. A deadline that stayed in the past would be asked about without end.
        unconfirmed.iter().for_each(|key| self.0.postpone(key, add_wait(now, UNCONFIRMED)));
        let due: BTreeSet<(Reverse<EpochSeconds>, Key)> =
            due.into_iter().filter_map(|key| Some((Reverse(objects.bindings.get(&key)?.created), key))).collect();
        if due.is_empty() {
            return Vec::new();
        }
        jobs.engine.resolve_quota();
        let mut decisions = Vec::new();
        let mut taken: BTreeMap<QueueName, Taken> = BTreeMap::new();
        for (_, key) in due {
            self.0.postpone(&key, add_wait(now, RETRY_AFTER_WRITE));
            let Some(binding) = objects.bindings.get(&key) else { continue };
            let Some(record) = binding.admission.as_deref() else { continue };
            let path = objects.queue_path(&record.queue);
            let counted = objects.classify_for_running_limits(&record.queue, binding);
            let exceeds = |without: &BTreeMap<QueueName, Taken>| {
                let of = |name: &QueueName| without.get(name).cloned().unwrap_or_default();
                let over = |name: &QueueName| exceeds_limit(&jobs.engine, name, &of(name).amounts);
                // What runs already counts whatever becomes of its record.
                let too_many = |name: &QueueName| {
                    binding.clusters.is_empty() && exceeds_running(&jobs.engine, name, &counted, &of(name))
                };
                path.iter().any(|name| over(name) || too_many(name))
            };
            let is_understated = binding.clusters.is_empty() && is_understated(objects, binding, record);
            if !is_understated && !exceeds(&BTreeMap::new()) {
                let anew = renew_record_terms(objects, binding, record, now);
                decisions.extend(jobs.assume_record(binding, anew, true));
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
                decisions.push(requeue_binding(binding, NOT_PLACED, why.to_owned(), Vec::new(), now));
            } else if let Some(less) = record_of_placed(objects, binding) {
                // It keeps what it has.
                freed.saturating_sub(&less.charged);
                decisions.extend(jobs.assume_record(binding, less, true));
            }
            for name in path {
                let taken = taken.entry(name).or_default();
                taken.amounts.add(&freed);
                taken.jobs.extend(binding.clusters.is_empty().then(|| counted.clone()));
            }
        }
        decisions
    }
}

/// The record with the limit that counts where it is granted anew, with the nodes and clusters that its queue has now,
/// and what is known of its data.
fn renew_record_terms(objects: &Objects, binding: &Binding, record: &Admission, now: Timestamp) -> Admission {
    match objects.workload_of(binding).filter(|_| binding.clusters.is_empty()) {
        Some(workload) => {
            let RunTerms { run, nodes, clusters, data } = RunTerms::build_terms(objects, binding, workload, now);
            Admission { run, nodes, clusters, data, ..record.clone() }
        }
        None => Admission { data: objects.data.find_known_data(&binding.workload), ..record.clone() },
    }
}

/// Whether what a record grants asks for more than it charges: then it is not granted anew as it is.
fn is_understated(objects: &Objects, binding: &Binding, record: &Admission) -> bool {
    let gang = objects.workload_of(binding).and_then(|workload| admitted_gang(binding, workload));
    gang.is_some_and(|gang| record.find_uncharged(&gang).is_some())
}

/// What was taken back just now from below a queue.
#[derive(Debug, Clone, Default)]
struct Taken {
    amounts: Resources,
    /// As what the jobs counted that nothing is left of.
    jobs: Vec<Counted>,
}

/// Whether more is charged than a queue may have, without what was taken back just now.
fn exceeds_limit(engine: &Engine, queue: &QueueName, taken: &Resources) -> bool {
    let is = engine.entitlement_of(queue);
    is.real.iter().any(|(name, most)| is.used.get(name.as_str()).signed_sub(taken.get(name.as_str())) > most)
}

/// Whether more jobs run than a queue allows, or more of those whose this one is, without those that were taken back
/// just now.
fn exceeds_running(engine: &Engine, queue: &QueueName, counted: &Counted, taken: &Taken) -> bool {
    let Some(limits) = engine.queue_spec(queue).map(|spec| spec.running) else { return false };
    let usage = engine.usage_of(queue);
    let is_over = |limit: Option<u32>, running: u64, taken: usize| {
        limit.is_some_and(|limit| running.saturating_sub(taken as u64) > u64::from(limit))
    };
    let too_many_of = |tenant: &Tenant| {
        let limit = if tenant.user().is_some() { limits.of_user } else { limits.of_namespace };
        let running = usage.running_of.get(tenant).copied().unwrap_or(0);
        is_over(limit, running, taken.jobs.iter().filter(|job| job.tenants().contains(tenant)).count())
    };
    is_over(limits.all, usage.running, taken.jobs.len()) || counted.tenants().iter().any(too_many_of)
}
