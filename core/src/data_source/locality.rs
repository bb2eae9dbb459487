//! What the claims of one workload say of clusters.
//!
//! Rule: a cluster is allowed if every claim that is required is bound to a source that is there. A cluster lacks each
//! preferred claim whose source is not there; one without a source says nothing. So nothing is said of a cluster that
//! joins before a source lists it: what lists clusters to exclude would let it in.

use std::{collections::BTreeSet, fmt, sync::Arc};

use super::{DataClaim, DataIdentity, MOST_CLAIMS};
use crate::text::{name_some, shorten_text};

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct DataLocality {
    /// Clusters with the data of all claims that are required; `None` while none is.
    allowed: Option<Arc<BTreeSet<String>>>,
    /// Of each preferred claim, the clusters that have its data.
    preferred: Vec<Arc<BTreeSet<String>>>,
    /// What there is no source of.
    waits: Option<String>,
    /// Further claims without a source.
    waits_more: usize,
    /// Claims that are required.
    required: usize,
}

impl DataLocality {
    /// Of a workload with more claims than are looked at.
    pub(super) fn of_too_many(claims: usize) -> Self {
        let waits = format!("{claims} DataSourceClaims name it, and {MOST_CLAIMS} are the most");
        Self { allowed: Some(Arc::default()), waits: Some(waits), ..Self::default() }
    }

    /// Takes in a claim and the clusters of its source, if there is one.
    pub(super) fn add_claim(&mut self, claim: &DataClaim, there: Option<&Arc<BTreeSet<String>>>) {
        if claim.preferred {
            self.preferred.extend(there.cloned());
            return;
        }
        self.required += 1;
        self.allowed = Some(match (self.allowed.take(), there) {
            (Some(all), Some(there)) => Arc::new(&*all & &**there),
            (None, Some(there)) => Arc::clone(there),
            (_, None) => Arc::default(),
        });
        if there.is_some() {
            return;
        }
        if self.waits.is_some() {
            self.waits_more += 1;
        } else {
            let lacks = describe_lack(&claim.data);
            let faults: String = claim.faults.iter().map(|fault| format!("; {fault}")).collect();
            self.waits = Some(format!("waits for DataSourceClaim {}: {lacks}{faults}", claim.key));
        }
    }

    /// Whether all that it requires is in a cluster.
    #[must_use]
    pub fn allows(&self, cluster: &str) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| allowed.contains(cluster))
    }

    /// How much of what it prefers is not there.
    #[must_use]
    pub fn count_missing(&self, cluster: &str) -> i64 {
        let missing = self.preferred.iter().filter(|there| !there.contains(cluster)).count();
        i64::try_from(missing).unwrap_or(i64::MAX)
    }

    /// What it waits for, if a claim that it requires has no source.
    #[must_use]
    pub fn describe_wait(&self) -> Option<String> {
        let waits = self.waits.as_deref()?;
        Some(match self.waits_more {
            0 => waits.to_owned(),
            more => format!("{waits}; so do {more} more of its claims"),
        })
    }
}

/// There is no source of the data.
#[must_use]
pub fn describe_lack(data: &DataIdentity) -> String {
    let DataIdentity { system, category, name, attributes } = data;
    let text = format!(
        "no DataSource has system {}, type {}, name {}",
        shorten_text(system),
        shorten_text(category),
        shorten_text(name)
    );
    if attributes.is_empty() {
        return text + " and no attributes";
    }
    let named =
        name_some(attributes.iter().map(|(key, value)| format!("{}={}", shorten_text(key), shorten_text(value))));
    format!("{text} and attributes {named}")
}

/// Where a workload may go, for whoever found no place for it.
impl fmt::Display for DataLocality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(waits) = self.describe_wait() {
            return f.write_str(&waits);
        }
        let Some(allowed) = &self.allowed else { return f.write_str("its data is nowhere required") };
        let whose = if self.required == 1 { "its data" } else { "the data of all its claims" };
        if allowed.is_empty() {
            return write!(f, "{whose} is in no cluster");
        }
        write!(f, "{whose} is in {}", name_some(&**allowed))
    }
}
