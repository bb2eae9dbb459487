//! Leader election: one active replica, the one that holds a Kubernetes Lease and renews it.
//!
//! Rule (client-go `tools/leaderelection`): a lease of another replica is judged by when *we* last saw its record
//! change, never by the time that is written in it, so clocks may differ between machines. A leader that could not
//! renew within two thirds of the [`LeaseDuration`] stops before another may take over after all of it. Where replicas
//! are set up with different ones, the longer counts. A leader that stops releases the lease only after its last write
//! was answered.

use std::time::Duration;

use caldera_crds::names::caldera::{CREDENTIALS_LIFETIME, VERSION};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    client::credentials::ComponentCredentials,
    clock::{SharedClock, format_micro_time},
    watch::api_resource,
    write::{self, Body, Failure, Write},
};

/// How long a lease lasts after its record was last seen to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseDuration(Duration);

impl LeaseDuration {
    /// The upper limit: the guarantees about a replica that lost its Lease rely on it.
    pub const LONGEST: Self = Self(Duration::from_secs(15));

    /// Between 3 and 15 seconds; what is beyond is cut.
    #[must_use]
    pub fn from_seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds.clamp(3, Self::LONGEST.0.as_secs())))
    }

    /// A leader that could not renew for this long stops.
    #[must_use]
    pub fn renew_deadline(self) -> Duration {
        self.0 * 2 / 3
    }

    /// Between two attempts to acquire or renew it.
    #[must_use]
    pub fn retry_period(self) -> Duration {
        self.0 * 2 / 15
    }
}

/// A replica that wants to hold a lease.
#[derive(Debug, Clone)]
pub struct LeaseCandidate {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Unique among replicas.
    pub identity: String,
    /// For how long others wait before they take it.
    pub lasts: LeaseDuration,
    /// When the credentials of its kubeconfig end is told in the Lease. It stays there when they have ended and nobody
    /// can write any more, which is when somebody looks for the cause.
    pub credentials: ComponentCredentials,
}

/// A lease's record as far as the rule looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Who holds it; empty if released.
    pub holder: String,
    /// Changes with every renewal.
    pub version: String,
    /// How often it changed hands.
    pub transitions: i64,
    /// What its holder says that it lasts.
    pub lasts: LeaseDuration,
}

/// What to do about a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseAction {
    /// There is none: create it.
    Create,
    /// It is ours: renew it.
    Renew,
    /// Its holder is gone: take it.
    Take,
    /// Somebody holds it.
    Wait,
}

/// Decides by the record, and by how long ago it was last seen to change. `holds` says that it was acquired already: a
/// candidate that finds its own name in it from a life before takes it anew, and so has an epoch of its own.
#[must_use]
pub fn decide_lease_action(
    candidate: &LeaseCandidate,
    holds: bool,
    record: Option<&LeaseRecord>,
    unchanged_for: Duration,
) -> LeaseAction {
    match record {
        None => LeaseAction::Create,
        Some(record) if record.holder == candidate.identity && holds => LeaseAction::Renew,
        Some(record) if record.holder == candidate.identity || record.holder.is_empty() => LeaseAction::Take,
        Some(record) if unchanged_for >= candidate.lasts.max(record.lasts).0 => LeaseAction::Take,
        Some(_) => LeaseAction::Wait,
    }
}

impl LeaseRecord {
    /// Names one term of one holder: no two terms have the same.
    #[must_use]
    pub fn epoch(&self) -> String {
        format!("{}.{}", self.transitions, self.holder)
    }
}

/// A lease that is held; [`HeldLease::lost`] is cancelled when it no longer is.
#[derive(Debug)]
pub struct HeldLease {
    /// [`LeaseRecord::epoch`] of this term; grants carry it.
    pub epoch: String,
    /// Stop writing when this is cancelled.
    pub lost: CancellationToken,
    renewing: tokio::task::JoinHandle<()>,
    giving_up: DropGuard,
}

impl HeldLease {
    /// Gives the lease up, once nothing more is written under it.
    pub async fn release_lease(self) {
        drop(self.giving_up);
        let _ = self.renewing.await;
    }
}

/// Waits until the lease is ours (or `shutdown`: then `None`), and keeps renewing it in the background until it is
/// given up or dropped.
pub async fn acquire_lease(
    client: Client,
    candidate: LeaseCandidate,
    clock: SharedClock,
    shutdown: CancellationToken,
) -> Option<HeldLease> {
    let mut seen: Option<(LeaseRecord, Instant)> = None;
    let mut announced = false;
    loop {
        match try_acquire_or_renew(&client, &candidate, &clock, &mut seen, None).await {
            Ok(true) => break,
            Ok(false) => {
                let holder = seen.as_ref().map(|(record, _)| record.holder.clone()).unwrap_or_default();
                if !std::mem::replace(&mut announced, true) {
                    tracing::info!(lease = candidate.name, holder, "another replica is active; standing by");
                }
            }
            Err(failure) => tracing::warn!(lease = candidate.name, %failure, "failed to acquire the lease"),
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return None,
            () = tokio::time::sleep(candidate.lasts.retry_period()) => {}
        }
    }
    tracing::info!(lease = candidate.name, identity = candidate.identity, "active");
    let epoch = seen.as_ref().map(|(record, _)| record.epoch()).unwrap_or_default();
    let lost = CancellationToken::new();
    let given_up = CancellationToken::new();
    let held = (epoch.clone(), seen);
    let renewing = tokio::spawn(keep_renewing(client, candidate, clock, held, lost.clone(), given_up.clone()));
    Some(HeldLease { epoch, lost, renewing, giving_up: given_up.drop_guard() })
}

async fn keep_renewing(
    client: Client,
    candidate: LeaseCandidate,
    clock: SharedClock,
    (epoch, mut seen): (String, Option<(LeaseRecord, Instant)>),
    lost: CancellationToken,
    given_up: CancellationToken,
) {
    // However this ends, nobody goes on as if the lease was held.
    let _lost = lost.drop_guard();
    let mut renewed = Instant::now();
    loop {
        tokio::select! {
            biased;
            () = given_up.cancelled() => {
                write_release(&client, &candidate, seen.as_ref()).await;
                return;
            }
            () = tokio::time::sleep(candidate.lasts.retry_period()) => {}
        }
        let left = candidate.lasts.renew_deadline().saturating_sub(renewed.elapsed());
        match tokio::time::timeout(left, try_acquire_or_renew(&client, &candidate, &clock, &mut seen, Some(&epoch)))
            .await
        {
            Ok(Ok(true)) => renewed = Instant::now(),
            Ok(Ok(false)) => break,
            Ok(Err(failure)) => tracing::warn!(lease = candidate.name, %failure, "failed to renew the lease"),
            Err(_) => break,
        }
        if renewed.elapsed() >= candidate.lasts.renew_deadline() {
            break;
        }
    }
    tracing::error!(lease = candidate.name, "the lease is lost");
}

/// Reads the lease and creates, renews or takes it where the rule says so; true if it is ours afterwards. Whoever holds
/// an epoch only renews that: what it grants carries it, and would never be placed in another term.
async fn try_acquire_or_renew(
    client: &Client,
    candidate: &LeaseCandidate,
    clock: &SharedClock,
    seen: &mut Option<(LeaseRecord, Instant)>,
    held: Option<&str>,
) -> Result<bool, Failure> {
    let record = read_lease(client, &candidate.namespace, &candidate.name).await?;
    if record.as_ref() != seen.as_ref().map(|(record, _)| record) {
        *seen = record.map(|record| (record, Instant::now()));
    }
    let unchanged = seen.as_ref().map_or(Duration::ZERO, |(_, since)| since.elapsed());
    let record = seen.as_ref().map(|(record, _)| record);
    if held.is_some_and(|held| record.is_none_or(|record| record.epoch() != held)) {
        return Ok(false);
    }
    let write = match decide_lease_action(candidate, held.is_some(), record, unchanged) {
        LeaseAction::Wait => return Ok(false),
        action => build_action_write(action, candidate, record, &format_micro_time(clock.now())),
    };
    match write::execute_write(client, &write).await {
        Ok(stored) => {
            let version = stored["metadata"]["resourceVersion"].as_str().map(str::to_owned);
            *seen = Some((parse_record(version, &stored), Instant::now()));
            Ok(true)
        }
        // Somebody was faster.
        Err(Failure::Conflict(_) | Failure::Exists(_)) => Ok(false),
        Err(failure) => Err(failure),
    }
}

fn build_action_write(
    action: LeaseAction,
    candidate: &LeaseCandidate,
    record: Option<&LeaseRecord>,
    now: &str,
) -> Write {
    let mut spec = json!({
        "holderIdentity": candidate.identity, "leaseDurationSeconds": candidate.lasts.0.as_secs(), "renewTime": now,
    });
    if action != LeaseAction::Renew {
        let transitions = record.map_or(0, |record| record.transitions + 1);
        spec["acquireTime"] = now.into();
        spec["leaseTransitions"] = transitions.into();
    }
    let lifetime = candidate.credentials.find_lifetime().map(|lifetime| lifetime.to_string());
    let mut metadata = json!({"annotations": {VERSION: env!("CARGO_PKG_VERSION")}});
    // What an earlier holder said of its own is not left there.
    if lifetime.is_some() || record.is_some() {
        metadata["annotations"][CREDENTIALS_LIFETIME] = lifetime.into();
    }
    let body = match record {
        None => {
            metadata["name"] = candidate.name.as_str().into();
            metadata["namespace"] = candidate.namespace.as_str().into();
            Body::Create(json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec,
            }))
        }
        // The resourceVersion makes it a compare-and-set.
        Some(record) => {
            metadata["resourceVersion"] = record.version.as_str().into();
            Body::MergePatch(json!({"metadata": metadata, "spec": spec}))
        }
    };
    build_lease_write(candidate, body)
}

async fn write_release(client: &Client, candidate: &LeaseCandidate, seen: Option<&(LeaseRecord, Instant)>) {
    let Some((record, _)) = seen.filter(|(record, _)| record.holder == candidate.identity) else { return };
    let body = json!({"metadata": {"resourceVersion": record.version}, "spec": {"holderIdentity": ""}});
    let _ = write::execute_write(client, &build_lease_write(candidate, Body::MergePatch(body))).await;
}

fn build_lease_write(candidate: &LeaseCandidate, body: Body) -> Write {
    Write {
        resource: lease_resource(),
        namespace: candidate.namespace.clone(),
        name: candidate.name.clone(),
        subresource: None,
        body,
    }
}

/// A lease's record as it is at some time after this was called; `None` if there is no such lease.
///
/// # Errors
/// If it can not be read.
pub async fn read_lease(client: &Client, namespace: &str, name: &str) -> Result<Option<LeaseRecord>, Failure> {
    let resource = lease_resource();
    let leases: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let lease = leases.get_opt(name).await.map_err(write::classify_error)?;
    Ok(lease.map(|lease| parse_record(lease.metadata.resource_version, &lease.data)))
}

fn lease_resource() -> ApiResource {
    api_resource("coordination.k8s.io", "v1", "Lease", "leases")
}

/// Reads a Lease, of this resourceVersion.
#[must_use]
pub fn parse_record(version: Option<String>, lease: &Value) -> LeaseRecord {
    let spec = &lease["spec"];
    LeaseRecord {
        holder: spec["holderIdentity"].as_str().unwrap_or_default().to_owned(),
        version: version.unwrap_or_default(),
        transitions: spec["leaseTransitions"].as_i64().unwrap_or_default(),
        lasts: LeaseDuration::from_seconds(spec["leaseDurationSeconds"].as_u64().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::client::{WriteCounts, from_config, load_config};

    fn record(holder: &str) -> LeaseRecord {
        LeaseRecord { holder: holder.into(), version: "7".into(), transitions: 1, lasts: LeaseDuration::LONGEST }
    }

    fn candidate() -> LeaseCandidate {
        LeaseCandidate {
            namespace: "ns".into(),
            name: "l".into(),
            identity: "a".into(),
            lasts: LeaseDuration::LONGEST,
            credentials: ComponentCredentials::default(),
        }
    }

    #[test]
    fn a_lease_is_taken_only_when_free_or_unchanged_for_its_duration() {
        let decide =
            |record: Option<&LeaseRecord>, unchanged| decide_lease_action(&candidate(), true, record, unchanged);
        let lasts = LeaseDuration::LONGEST.0;
        assert_eq!(decide(None, Duration::ZERO), LeaseAction::Create);
        assert_eq!(decide(Some(&record("a")), Duration::ZERO), LeaseAction::Renew);
        assert_eq!(decide(Some(&record("")), Duration::ZERO), LeaseAction::Take);
        assert_eq!(decide(Some(&record("b")), lasts - Duration::from_millis(1)), LeaseAction::Wait);
        assert_eq!(decide(Some(&record("b")), lasts), LeaseAction::Take);
    }

    #[test]
    fn each_life_of_a_candidate_has_an_epoch_of_its_own() {
        let (candidate, ours) = (candidate(), record("a"));
        assert_eq!(decide_lease_action(&candidate, true, Some(&ours), Duration::ZERO), LeaseAction::Renew);
        assert_eq!(decide_lease_action(&candidate, false, Some(&ours), Duration::ZERO), LeaseAction::Take);
        let Body::MergePatch(patch) = build_action_write(LeaseAction::Take, &candidate, Some(&ours), "now").body else {
            panic!("a take is a patch")
        };
        assert_eq!(patch["spec"]["leaseTransitions"], 2);
    }

    #[test]
    fn of_two_replicas_with_different_durations_the_longer_counts() {
        let (short, five) = (LeaseDuration::from_seconds(5), Duration::from_secs(5));
        let mut hasty = candidate();
        hasty.lasts = short;
        assert_eq!(decide_lease_action(&hasty, false, Some(&record("b")), five), LeaseAction::Wait);
        let mut brief = record("b");
        brief.lasts = short;
        assert_eq!(decide_lease_action(&candidate(), false, Some(&brief), five), LeaseAction::Wait);
        assert_eq!(decide_lease_action(&hasty, false, Some(&brief), five), LeaseAction::Take);
    }

    #[test]
    fn a_holder_stops_before_another_may_take_over() {
        for seconds in 0..20 {
            let lasts = LeaseDuration::from_seconds(seconds);
            assert!(lasts.renew_deadline() + lasts.retry_period() < lasts.0, "{lasts:?}");
        }
    }

    #[test]
    fn taking_a_lease_is_a_compare_and_set() {
        let candidate = candidate();
        let write = build_action_write(LeaseAction::Take, &candidate, Some(&record("b")), "now");
        let Body::MergePatch(patch) = write.body else { panic!("a take is a patch") };
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        assert_eq!(patch["spec"]["leaseTransitions"], 2);
    }

    #[tokio::test]
    async fn a_lease_tells_when_its_holders_credentials_end_and_not_what_another_said() {
        crate::tls::install_provider();
        let reported = |candidate: &LeaseCandidate, record: Option<&LeaseRecord>| {
            let (Body::Create(body) | Body::MergePatch(body)) =
                build_action_write(LeaseAction::Take, candidate, record, "now").body
            else {
                panic!("neither made nor patched")
            };
            body["metadata"]["annotations"].get(CREDENTIALS_LIFETIME).cloned()
        };
        assert_eq!(reported(&candidate(), None), None);
        assert_eq!(reported(&candidate(), Some(&record("b"))), Some(Value::Null), "it is taken away");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        // {"exp":1700000000,"iat":1600000000}
        let token = "e30.eyJleHAiOjE3MDAwMDAwMDAsImlhdCI6MTYwMDAwMDAwMH0.e30";
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": "https://h"}}], "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        let (config, counts) = (load_config(Some(&path)).await.unwrap(), WriteCounts::default());
        let _client = from_config(config, "a", &counts).unwrap();
        let candidate = LeaseCandidate { credentials: counts.credentials().of_component("a"), ..candidate() };
        for record in [None, Some(&record("b"))] {
            assert_eq!(reported(&candidate, record), Some("2020-09-13T12:26:40Z/2023-11-14T22:13:20Z".into()));
        }
    }

    fn set_spec(lease: &mut Value, changes: &Value) {
        for (field, value) in changes.as_object().unwrap() {
            lease["spec"][field] = value.clone();
        }
    }

    /// Found by the model: what it grants carries the epoch of the term that it lost, and would never be placed.
    #[tokio::test(start_paused = true)]
    async fn whoever_held_a_lease_that_was_taken_and_given_up_meanwhile_has_lost_it() {
        let lease = Arc::new(Mutex::new(Value::Null));
        let stored = lease.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let stored = stored.clone();
            async move {
                let is_read = request.method() == http::Method::GET;
                let body = request.into_body().collect_bytes().await.unwrap();
                let mut lease = stored.lock().unwrap();
                if !is_read {
                    let written: Value = serde_json::from_slice(&body).unwrap();
                    set_spec(&mut lease, &written["spec"]);
                    lease["metadata"]["resourceVersion"] = "1".into();
                }
                let status = if lease.is_null() { 404 } else { 200 };
                let absent = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404,
                    "reason": "NotFound", "message": ""});
                let reported = if lease.is_null() { absent } else { lease.clone() };
                let answer = http::Response::builder().status(status);
                Ok::<_, std::convert::Infallible>(
                    answer.body(kube::client::Body::from(reported.to_string().into_bytes())).unwrap(),
                )
            }
        });
        let candidate = candidate();
        let clock: SharedClock = Arc::new(crate::clock::SystemClock);
        let client = Client::new(service, "default");
        let held = acquire_lease(client, candidate, clock, CancellationToken::new()).await.unwrap();
        assert_eq!(held.epoch, "0.a");
        set_spec(&mut lease.lock().unwrap(), &json!({"holderIdentity": "", "leaseTransitions": 1}));
        tokio::time::timeout(LeaseDuration::LONGEST.0, held.lost.cancelled()).await.unwrap();
        assert_eq!(lease.lock().unwrap()["spec"]["holderIdentity"], "", "it is not taken a second time");
    }
}
