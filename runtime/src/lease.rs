//! One active replica: a Kubernetes Lease, held by whoever renews it.
//!
//! Rule: client-go's leader election (`tools/leaderelection`). Another's lease is judged by when *we* last saw its
//! record change, never by the time written in it, so clocks may differ between machines. A holder that could not renew
//! within [`RENEW_WITHIN`] stops before anybody else may take over after [`DURATION`]. Who stops gives the lease up only
//! after its last write was answered.

use std::time::Duration;

use kube::Client;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    clock::{SharedClock, rfc3339_micro},
    watch::resource,
    write::{self, Body, Failure, Write},
};

/// How long a lease lasts after its record was last seen to change.
pub const DURATION: Duration = Duration::from_secs(15);
/// A holder that could not renew for this long stops.
pub const RENEW_WITHIN: Duration = Duration::from_secs(10);
/// Between two looks at the lease.
pub const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Which lease, and who asks.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Unique among replicas.
    pub identity: String,
}

/// A lease's record as far as the rule looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Who holds it; empty if released.
    pub holder: String,
    /// Changes with every renewal.
    pub version: String,
    /// How often it changed hands.
    pub transitions: i64,
}

/// What to do about a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// There is none: create it.
    Create,
    /// It is ours: renew it.
    Renew,
    /// Its holder is gone: take it.
    Take,
    /// Somebody holds it.
    Wait,
}

/// Decides by the record, and by how long ago it was last seen to change.
#[must_use]
pub fn decide(identity: &str, record: Option<&Record>, unchanged_for: Duration) -> Action {
    match record {
        None => Action::Create,
        Some(record) if record.holder == identity => Action::Renew,
        Some(record) if record.holder.is_empty() || unchanged_for >= DURATION => Action::Take,
        Some(_) => Action::Wait,
    }
}

impl Record {
    /// Which holder it is, and which time that it holds: no two are alike.
    #[must_use]
    pub fn epoch(&self) -> String {
        format!("{}.{}", self.transitions, self.holder)
    }
}

/// A lease that is held: [`Held::lost`] is cancelled when it no longer is.
#[derive(Debug)]
pub struct Held {
    /// Under which what is written now is written.
    pub epoch: String,
    /// Stop writing when this is cancelled.
    pub lost: CancellationToken,
    renewing: tokio::task::JoinHandle<()>,
    giving_up: DropGuard,
}

impl Held {
    /// Gives the lease up, once nothing more is written under it.
    pub async fn release(self) {
        drop(self.giving_up);
        let _ = self.renewing.await;
    }
}

/// Waits until the lease is ours (or `shutdown`: then `None`), and keeps renewing it in the background until it is given
/// up or dropped.
pub async fn hold(
    client: Client,
    candidate: Candidate,
    clock: SharedClock,
    shutdown: CancellationToken,
) -> Option<Held> {
    let mut seen: Option<(Record, Instant)> = None;
    let mut told = false;
    loop {
        match look(&client, &candidate, &clock, &mut seen).await {
            Ok(true) => break,
            Ok(false) => {
                let holder = seen.as_ref().map(|(record, _)| record.holder.clone()).unwrap_or_default();
                if !std::mem::replace(&mut told, true) {
                    tracing::info!(lease = candidate.name, holder, "another replica is active; standing by");
                }
            }
            Err(failure) => tracing::warn!(lease = candidate.name, %failure, "failed to look at the lease"),
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return None,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
    tracing::info!(lease = candidate.name, identity = candidate.identity, "active");
    let epoch = seen.as_ref().map(|(record, _)| record.epoch()).unwrap_or_default();
    let lost = CancellationToken::new();
    let given_up = CancellationToken::new();
    let renewing = tokio::spawn(renew(client, candidate, clock, seen, lost.clone(), given_up.clone()));
    Some(Held { epoch, lost, renewing, giving_up: given_up.drop_guard() })
}

async fn renew(
    client: Client,
    candidate: Candidate,
    clock: SharedClock,
    mut seen: Option<(Record, Instant)>,
    lost: CancellationToken,
    given_up: CancellationToken,
) {
    let mut renewed = Instant::now();
    loop {
        tokio::select! {
            biased;
            () = given_up.cancelled() => {
                release(&client, &candidate, seen.as_ref()).await;
                return;
            }
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        let left = RENEW_WITHIN.saturating_sub(renewed.elapsed());
        match tokio::time::timeout(left, look(&client, &candidate, &clock, &mut seen)).await {
            Ok(Ok(true)) => renewed = Instant::now(),
            Ok(Ok(false)) => break,
            Ok(Err(failure)) => tracing::warn!(lease = candidate.name, %failure, "failed to renew the lease"),
            Err(_) => break,
        }
        if renewed.elapsed() >= RENEW_WITHIN {
            break;
        }
    }
    tracing::error!(lease = candidate.name, "the lease is lost");
    lost.cancel();
}

/// One look at the lease, and what follows from it; true if it is ours afterwards.
async fn look(
    client: &Client,
    candidate: &Candidate,
    clock: &SharedClock,
    seen: &mut Option<(Record, Instant)>,
) -> Result<bool, Failure> {
    let record = read(client, candidate).await?;
    if record.as_ref() != seen.as_ref().map(|(record, _)| record) {
        *seen = record.map(|record| (record, Instant::now()));
    }
    let unchanged = seen.as_ref().map_or(Duration::ZERO, |(_, since)| since.elapsed());
    let record = seen.as_ref().map(|(record, _)| record);
    let write = match decide(&candidate.identity, record, unchanged) {
        Action::Wait => return Ok(false),
        action => write_for(action, candidate, record, &rfc3339_micro(clock.now())),
    };
    match write::execute(client, &write).await {
        Ok(stored) => {
            *seen = Some((parse(&stored), Instant::now()));
            Ok(true)
        }
        // Somebody was faster.
        Err(Failure::Conflict(_) | Failure::Exists(_)) => Ok(false),
        Err(failure) => Err(failure),
    }
}

fn write_for(action: Action, candidate: &Candidate, record: Option<&Record>, now: &str) -> Write {
    let mut spec = json!({
        "holderIdentity": candidate.identity, "leaseDurationSeconds": DURATION.as_secs(), "renewTime": now,
    });
    if action != Action::Renew {
        let transitions = record.map_or(0, |record| record.transitions + 1);
        spec["acquireTime"] = now.into();
        spec["leaseTransitions"] = transitions.into();
    }
    let metadata = json!({"name": candidate.name, "namespace": candidate.namespace});
    let body = match record {
        None => Body::Create(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec,
        })),
        // The version makes it a compare-and-set.
        Some(record) => Body::MergePatch(json!({"metadata": {"resourceVersion": record.version}, "spec": spec})),
    };
    lease(candidate, body)
}

async fn release(client: &Client, candidate: &Candidate, seen: Option<&(Record, Instant)>) {
    let Some((record, _)) = seen.filter(|(record, _)| record.holder == candidate.identity) else { return };
    let body = json!({"metadata": {"resourceVersion": record.version}, "spec": {"holderIdentity": ""}});
    let _ = write::execute(client, &lease(candidate, Body::MergePatch(body))).await;
}

fn lease(candidate: &Candidate, body: Body) -> Write {
    Write {
        resource: resource("coordination.k8s.io", "v1", "Lease", "leases"),
        namespace: candidate.namespace.clone(),
        name: candidate.name.clone(),
        subresource: None,
        body,
    }
}

async fn read(client: &Client, candidate: &Candidate) -> Result<Option<Record>, Failure> {
    current(client, &candidate.namespace, &candidate.name).await
}

/// A lease's record as it is at some time after this was called; `None` if there is no such lease.
///
/// # Errors
/// [`Failure::Transient`] if it can not be read now.
pub async fn current(client: &Client, namespace: &str, name: &str) -> Result<Option<Record>, Failure> {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}");
    let request = http::Request::get(path).body(Vec::new()).map_err(|error| Failure::Transient(error.to_string()))?;
    match client.request::<Value>(request).await {
        Ok(object) => Ok(Some(parse(&object))),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(Failure::Transient(error.to_string())),
    }
}

fn parse(object: &Value) -> Record {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    Record {
        holder: text("/spec/holderIdentity"),
        version: text("/metadata/resourceVersion"),
        transitions: object.pointer("/spec/leaseTransitions").and_then(Value::as_i64).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(holder: &str) -> Record {
        Record { holder: holder.into(), version: "7".into(), transitions: 1 }
    }

    #[test]
    fn a_lease_is_taken_only_when_free_or_unchanged_for_its_duration() {
        assert_eq!(decide("a", None, Duration::ZERO), Action::Create);
        assert_eq!(decide("a", Some(&record("a")), Duration::ZERO), Action::Renew);
        assert_eq!(decide("a", Some(&record("")), Duration::ZERO), Action::Take);
        assert_eq!(decide("a", Some(&record("b")), DURATION - Duration::from_millis(1)), Action::Wait);
        assert_eq!(decide("a", Some(&record("b")), DURATION), Action::Take);
    }

    #[test]
    fn a_holder_stops_before_another_may_take_over() {
        assert!(RENEW_WITHIN + LOOK_EVERY < DURATION);
    }

    #[test]
    fn taking_a_lease_is_a_compare_and_set() {
        let candidate = Candidate { namespace: "ns".into(), name: "l".into(), identity: "a".into() };
        let write = write_for(Action::Take, &candidate, Some(&record("b")), "now");
        let Body::MergePatch(patch) = write.body else { panic!("a take is a patch") };
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        assert_eq!(patch["spec"]["leaseTransitions"], 2);
    }
}
