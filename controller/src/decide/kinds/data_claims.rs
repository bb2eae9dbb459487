//! What DataSourceClaims and DataSources say of themselves: whether a claim is bound and why not, and who uses a
//! source.
//!
//! Rule (volcano-global `pkg/controller/datadependency/reconciler.go`): a claim is Bound to its source, or Pending;
//! condition `Bound` says why. A source counts the claims that are bound to it and names the first of them; one with
//! `reclaimPolicy: Delete` goes with its last claim, as its own status still counts it. No finalizers: nothing is to be
//! cleaned up, and what runs is not asked (the peer takes the clusters of a job whose source or claim is deleted).
//!
//! A claim that means nothing where it could is told so: in the condition's message if nothing of the workload that it
//! names is propagated some seconds after it was made, so that it constrains nothing; and for annotations of ours that
//! mean nothing on a claim, by a Warning beside it.
//!
//! A status decides nothing, so that all of it is derived anew after a restart. What is as it should be is not written.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use caldera_core::{
    data_source::{ClaimKey, DataChange, DataClaim, describe_lack},
    text::shorten_text,
};
use caldera_runtime::{clock::format_time, event::EventType, write::Failure};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    decide::deadlines::{add_wait, earliest},
    observe::{BOUND, DataObjects, Objects, fingerprint_claim, fingerprint_refs},
    write::{
        Decision,
        data_claim::{DataTarget, DataWrite, DataWriteKind},
    },
};

/// Claims that a source names.
const MOST_NAMED_CLAIMS: usize = 64;
/// Statuses that are written with one decision.
const STATUSES_PER_PASS: usize = 64;
/// By then a write has been answered.
const WRITE_TIMEOUT: SignedDuration = SignedDuration::from_secs(20);
/// Between two writes of one object: claims of a source come and go.
const WRITE_INTERVAL: SignedDuration = SignedDuration::from_secs(1);
/// Event on a DataSourceClaim: it says what means nothing on a claim.
const DATA_CLAIM_FAULT: &str = "DataClaimFault";
/// Claims come before their workloads, and Karmada makes a binding a moment after these.
const UNBOUND_CLAIM_WAIT: SignedDuration = SignedDuration::from_secs(10);
/// After one that the server refuses.
const RETRY_AFTER_REFUSAL: SignedDuration = SignedDuration::from_secs(60);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct DataClaims {
    /// Those that may not say what they should.
    due: BTreeSet<DataTarget>,
    /// Those of which nothing is written before a time.
    waits: BTreeMap<DataTarget, Timestamp>,
    /// The same, by time.
    looks: BTreeSet<(Timestamp, DataTarget)>,
}

impl DataClaims {
    /// Takes in that these may not say what they should.
    pub(crate) fn observe(&mut self, change: DataChange) {
        self.due.extend(change.claims.into_iter().map(DataTarget::Claim));
        self.due.extend(change.sources.into_iter().map(DataTarget::Source));
    }

    /// When something is to be looked at again.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        let now = (!self.due.is_empty()).then_some(Timestamp::MIN);
        earliest(now, self.looks.first().map(|(at, _)| *at))
    }

    /// Writes what does not say what it should, a limited number at once.
    pub(crate) fn write_due(&mut self, objects: &Objects, now: Timestamp) -> Vec<Decision> {
        let data = &objects.data;
        while let Some((at, target)) = self.looks.pop_first() {
            if at > now {
                self.looks.insert((at, target));
                break;
            }
            self.due.insert(target);
        }
        let mut decisions = Vec::new();
        while decisions.len() < STATUSES_PER_PASS
            && let Some(target) = self.due.pop_first()
        {
            if let Some(at) = self.waits.get(&target).filter(|at| **at > now) {
                self.looks.insert((*at, target));
                continue;
            }
            self.waits.remove(&target);
            let write = match &target {
                DataTarget::Claim(key) => {
                    self.looks.extend(find_end_of_grace(objects, key, now).map(|at| (at, target.clone())));
                    let write = write_claim(objects, key, now);
                    decisions.extend(write.as_ref().and_then(|_| warn_of_faults(data, key)));
                    write
                }
                DataTarget::Source(name) => write_source(data, name),
            };
            if let Some(write) = write {
                self.wait_until(add_wait(now, WRITE_TIMEOUT), &target);
                decisions.push(Decision::Data(write));
            }
        }
        decisions
    }

    /// Takes in the answer to a write.
    pub(crate) fn apply_write_answer(&mut self, target: &DataTarget, failure: Option<&Failure>, now: Timestamp) {
        let wait = match failure {
            Some(Failure::Refused { message, .. }) => {
                tracing::warn!(?target, error = message, "failed to write what a claim or a source says");
                RETRY_AFTER_REFUSAL
            }
            _ => WRITE_INTERVAL,
        };
        self.wait_until(add_wait(now, wait), target);
    }

    fn wait_until(&mut self, at: Timestamp, target: &DataTarget) {
        if let Some(before) = self.waits.insert(target.clone(), at) {
            self.looks.remove(&(before, target.clone()));
        }
        self.looks.insert((at, target.clone()));
    }
}

/// Until when nothing is said of a claim of whose workload nothing is propagated.
fn find_end_of_grace(objects: &Objects, key: &ClaimKey, now: Timestamp) -> Option<Timestamp> {
    let (claim, status) = (objects.data.index.find_claim(key)?, objects.data.claims.get(key)?);
    let end = add_wait(status.created.to_timestamp()?, UNBOUND_CLAIM_WAIT);
    (end > now && objects.key_of_workload(&claim.workload).is_none()).then_some(end)
}

/// What is wrong with what a claim says, as an event beside its status.
fn warn_of_faults(data: &DataObjects, key: &ClaimKey) -> Option<Decision> {
    let (claim, status) = (data.index.find_claim(key)?, data.claims.get(key)?);
    let faults = Some(claim.faults.join("; ")).filter(|faults| !faults.is_empty())?;
    Some(Decision::build_claim_event(key, &status.uid, EventType::Warning, DATA_CLAIM_FAULT, faults))
}

fn write_claim(objects: &Objects, key: &ClaimKey, now: Timestamp) -> Option<DataWrite> {
    let data = &objects.data;
    let (claim, status) = (data.index.find_claim(key)?, data.claims.get(key)?);
    let source = data.index.find_source(&claim.data).filter(|_| claim.is_of_its_namespace());
    let source = source.map(|source| source.name.as_str());
    let phase = if source.is_some() { "Bound" } else { "Pending" };
    let (is_true, reason, mut message) = describe_claim(claim, source);
    let is_alone = claim.is_of_its_namespace()
        && objects.key_of_workload(&claim.workload).is_none()
        && find_end_of_grace(objects, key, now).is_none();
    if is_alone {
        let workload = &claim.workload;
        message.push_str(&format!(
            "; nothing of {} {} in group {:?} is propagated: the claim constrains nothing",
            shorten_text(&workload.kind),
            shorten_text(&workload.name),
            shorten_text(&workload.group),
        ));
    }
    claim.faults.iter().for_each(|fault| message.push_str(&format!("; {fault}")));
    if status.said == fingerprint_claim(phase, source.unwrap_or_default(), (is_true, reason, &message)) {
        return None;
    }
    let since = status.since.as_ref().filter(|(was, _)| was == is_true).map(|(_, since)| since.clone());
    let since = since.unwrap_or_else(|| format_time(now));
    let patch = json!({
        "phase": phase,
        "boundDataSource": source,
        "conditions": [{
            "type": BOUND, "status": is_true, "reason": reason, "message": message, "lastTransitionTime": since,
        }],
    });
    Some(write_status(DataTarget::Claim(key.clone()), &status.resource_version, patch))
}

/// Status, reason and message of its condition.
fn describe_claim(claim: &DataClaim, source: Option<&str>) -> (&'static str, &'static str, String) {
    let namespace = &claim.workload.namespace;
    match source {
        Some(source) => ("True", "BindingSuccessful", format!("bound to DataSource {source}")),
        None if !claim.is_of_its_namespace() => {
            let message = format!(
                "it names a workload of namespace {namespace}: a claim is for workloads of its own namespace alone"
            );
            ("False", "OtherNamespace", message)
        }
        None => ("False", "NoDataSource", describe_lack(&claim.data)),
    }
}

fn write_source(data: &DataObjects, name: &str) -> Option<DataWrite> {
    let status = data.sources.get(name)?;
    if data.index.find_source_named(name)?.deleting {
        return None;
    }
    let bound = data.index.list_bound(name).count();
    let named = data.index.list_bound(name).take(MOST_NAMED_CLAIMS);
    let refs: Vec<(&str, &str, &str)> = named
        .map(|claim| {
            let uid = data.claims.get(&claim.key).map_or("", |known| &*known.uid);
            (&*claim.key.namespace, &*claim.key.name, uid)
        })
        .collect();
    if status.bound_claims == bound && status.claim_refs == fingerprint_refs(refs.iter().copied()) {
        return None;
    }
    let target = DataTarget::Source(name.to_owned());
    if bound == 0 && status.is_reclaimed {
        let change = DataWriteKind::Delete(Arc::clone(&status.uid));
        return Some(DataWrite { target, resource_version: Arc::clone(&status.resource_version), change });
    }
    let reference = |(namespace, name, uid): (&str, &str, &str)| {
        json!({
            "apiVersion": "datadependency.volcano.sh/v1alpha1", "kind": "DataSourceClaim",
            "namespace": namespace, "name": name, "uid": uid,
        })
    };
    let refs: Vec<Value> = refs.into_iter().map(reference).collect();
    let patch = json!({"boundClaims": bound, "claimRefs": refs});
    Some(write_status(target, &status.resource_version, patch))
}

fn write_status(target: DataTarget, resource_version: &Arc<str>, status: Value) -> DataWrite {
    DataWrite { target, resource_version: Arc::clone(resource_version), change: DataWriteKind::Status(status) }
}
