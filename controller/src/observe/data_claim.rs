//! What the controller keeps of DataSources and DataSourceClaims: what decides, and what their statuses say.
//!
//! Rule: what decides is in the index (`caldera_core::data_source`), which the scheduler has, too. A status decides
//! nothing: whoever may write it could only have it written again.

use std::{collections::BTreeMap, sync::Arc};

use caldera_core::{
    admission::KnownData,
    data_source::{ClaimKey, DataChange, DataClaim, DataIndex, DataSource, MOST_CLAIMS},
    gang::WorkloadRef,
    time::EpochSeconds,
};
use caldera_crds::{
    data_source::{read_claim, read_source},
    volcano::datadependency::{self, ReclaimPolicy},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{fingerprint::fingerprint, resource_version::is_older};

/// The condition of a claim.
pub(crate) const BOUND: &str = "Bound";

/// A DataSource.
#[derive(Debug, Clone, PartialEq)]
pub struct DataSourceFacts {
    pub(crate) source: DataSource,
    pub(crate) status: SourceStatus,
}

/// A DataSourceClaim.
#[derive(Debug, Clone, PartialEq)]
pub struct DataClaimFacts {
    pub(crate) claim: DataClaim,
    pub(crate) status: ClaimStatus,
}

/// What a DataSource says of itself, and what a write of it tests.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SourceStatus {
    pub(crate) uid: Arc<str>,
    pub(crate) resource_version: Arc<str>,
    /// It goes with its last claim.
    pub(crate) is_reclaimed: bool,
    pub(crate) bound_claims: usize,
    /// See [`fingerprint_refs`].
    pub(crate) claim_refs: u64,
}

/// The same of a DataSourceClaim.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClaimStatus {
    pub(crate) uid: Arc<str>,
    pub(crate) resource_version: Arc<str>,
    /// Phase, source, and the condition's status, reason and message (see [`fingerprint`]).
    pub(crate) said: u64,
    /// The condition's status, and since when that is so.
    pub(crate) since: Option<(String, String)>,
    /// When it was made, in seconds since 1970.
    pub(crate) created: EpochSeconds,
}

/// Who a source says is bound to it: namespace, name and UID of each.
pub(crate) fn fingerprint_refs<'a>(refs: impl Iterator<Item = (&'a str, &'a str, &'a str)>) -> u64 {
    fingerprint(&refs.collect::<Vec<_>>())
}

/// What a claim says of itself.
pub(crate) fn fingerprint_claim(phase: &str, source: &str, condition: (&str, &str, &str)) -> u64 {
    fingerprint(&(phase, source, condition))
}

impl DataSourceFacts {
    /// Reads one.
    #[must_use]
    pub fn read(object: &datadependency::DataSource) -> Self {
        let status = object.status.clone().unwrap_or_default();
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let refs: Vec<[String; 3]> =
            status.claim_refs.iter().map(|it| [text(&it.namespace), text(&it.name), text(&it.uid)]).collect();
        let (uid, resource_version) = read_version(&object.metadata);
        let status = SourceStatus {
            uid,
            resource_version,
            is_reclaimed: object.spec.reclaim_policy == Some(ReclaimPolicy::Delete),
            bound_claims: status.bound_claims.and_then(|bound| usize::try_from(bound).ok()).unwrap_or(0),
            claim_refs: fingerprint_refs(refs.iter().map(|[namespace, name, uid]| (&**namespace, &**name, &**uid))),
        };
        Self { source: read_source(object), status }
    }
}

impl DataClaimFacts {
    /// Reads one.
    #[must_use]
    pub fn read(object: &datadependency::DataSourceClaim) -> Self {
        let status = object.status.clone().unwrap_or_default();
        let condition = status.conditions.iter().find(|condition| condition.type_ == BOUND);
        let phase = status.phase.as_ref().map_or("", |phase| phase.as_str());
        let words = condition.map_or(("", "", ""), |it| (it.status.as_str(), it.reason.as_str(), it.message.as_str()));
        let (uid, resource_version) = read_version(&object.metadata);
        let status = ClaimStatus {
            uid,
            resource_version,
            said: fingerprint_claim(phase, status.bound_data_source.as_deref().unwrap_or_default(), words),
            since: condition.map(|it| (it.status.clone(), it.last_transition_time.0.to_string())),
            created: object.metadata.creation_timestamp.as_ref().map(|time| time.0.into()).unwrap_or_default(),
        };
        Self { claim: read_claim(object), status }
    }
}

fn read_version(metadata: &ObjectMeta) -> (Arc<str>, Arc<str>) {
    let text = |text: &Option<String>| Arc::from(text.as_deref().unwrap_or_default());
    (text(&metadata.uid), text(&metadata.resource_version))
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct DataObjects {
    pub(crate) index: DataIndex,
    pub(crate) sources: BTreeMap<String, SourceStatus>,
    pub(crate) claims: BTreeMap<ClaimKey, ClaimStatus>,
}

impl DataObjects {
    /// What it concerns that a binding of a workload came or went: claims say whether there is one.
    pub(crate) fn list_claims_of(&self, workload: &WorkloadRef) -> DataChange {
        let claims = self.index.list_claims_of(workload).map(|claim| claim.key.clone()).collect();
        DataChange { claims, ..DataChange::default() }
    }

    /// What is known of the data that the claims of a workload name; `None` for one without claims. Versions that are
    /// no numbers can not be compared, and count for nothing.
    pub(crate) fn find_known_data(&self, workload: &WorkloadRef) -> Option<KnownData> {
        let parse = |version: &Arc<str>| version.parse().unwrap_or(0);
        let known = |claim: &DataClaim| {
            let version = self.claims.get(&claim.key).map_or(0, |status| parse(&status.resource_version));
            let source = self.index.find_source(&claim.data).and_then(|source| self.sources.get(&source.name));
            KnownData { claims: version, sources: source.map_or(0, |status| parse(&status.resource_version)) }
        };
        self.index
            .list_claims_of(workload)
            .take(MOST_CLAIMS)
            .map(known)
            .reduce(|a, b| KnownData { claims: a.claims.max(b.claims), sources: a.sources.max(b.sources) })
    }

    /// What the answer to a write of a source's status left. One that is gone since then, or was made anew, is another.
    pub(crate) fn store_source_answer(&mut self, facts: DataSourceFacts) {
        let known = self.sources.get_mut(&facts.source.name).filter(|known| known.uid == facts.status.uid);
        if let Some(known) = known.filter(|known| !is_older(&facts.status.resource_version, &known.resource_version)) {
            *known = facts.status;
        }
    }

    /// The same of a claim.
    pub(crate) fn store_claim_answer(&mut self, facts: DataClaimFacts) {
        let known = self.claims.get_mut(&facts.claim.key).filter(|known| known.uid == facts.status.uid);
        if let Some(known) = known.filter(|known| !is_older(&facts.status.resource_version, &known.resource_version)) {
            *known = facts.status;
        }
    }
}
