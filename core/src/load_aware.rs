//! Load-aware rescheduling: which jobs leave a cluster whose nodes are really hot.
//!
//! Rule: `LoadAware` of Volcano's descheduler (`pkg/framework/plugins/loadaware`) and `LowNodeUtilization` of the
//! Kubernetes descheduler, with clusters in the place of nodes and jobs in the place of pods. A cluster that uses more
//! than `targetThresholds` of a resource is hot. One that uses at most `thresholds` of each may receive. Jobs leave a
//! hot cluster until it is not hot any more, and nobody leaves unless all of it fits in clusters that may receive and
//! these stay within `targetThresholds`.
//!
//! What a job really uses is not measured. It is taken to use of what its cluster uses the part that it asks for of
//! what all pods there ask for.
//!
//! Who leaves: the order of victims of a preemption, lowest priority and least lost work first, until the cluster is
//! not hot. Whoever is not needed for that is spared, from the last on; of more than `moves` those stay that relieve it
//! least. It goes until nothing is hot, or nobody may leave.
//!
//! Why this does not swing: hot and cold are what a cluster was in `samples` readings in a row, and both count anew for
//! each cluster that a job left or went to. A job that was moved is left alone for `cooldown`, and is never moved to a
//! cluster that it had to avoid then, the hot one among them: a job whose use was taken to be wrong goes on at most. A
//! load that is not known, or was read too long ago, is neither hot nor cold.
//!
//! | module | decides |
//! |---|---|
//! | `thresholds` | from when on a cluster is hot, or cold |
//! | `history` | in how many readings in a row a cluster was hot, or cold |
//! | `moves` | which jobs leave |

mod history;
mod moves;
#[cfg(test)]
mod tests;
mod thresholds;

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};

pub use history::LoadHistory;
pub use moves::{JobMove, LoadInput, PlacedJob, plan_moves};
pub use thresholds::{ParseThresholdsError, Thresholds};

/// What an admin chose. It is off by default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadPolicy {
    /// Jobs are moved off hot clusters.
    pub enabled: bool,
    /// Jobs are moved whose clusters are too far apart ([`crate::link_aware`]), at the same pace.
    pub links: bool,
    /// A cluster that uses at most this of each resource may receive.
    pub thresholds: Thresholds,
    /// A cluster that uses more than this of one is hot.
    pub target_thresholds: Thresholds,
    /// Seconds between two rounds.
    pub interval: i64,
    /// Readings in a row in which a cluster must be hot, or cold; rounds in a row in which clusters must be too far
    /// apart.
    pub samples: u32,
    /// Jobs that leave a cluster in a round at most, and as many for links.
    pub moves: u32,
    /// Seconds that a job is left alone after it was moved.
    pub cooldown: i64,
    /// Jobs of this priority, or a higher one, are never moved.
    pub priority_threshold: Option<i32>,
    /// Namespaces whose jobs are never moved.
    pub excluded_namespaces: BTreeSet<Arc<str>>,
}

impl Default for LoadPolicy {
    /// The thresholds are those that Volcano's descheduler is installed with.
    fn default() -> Self {
        Self {
            enabled: false,
            links: false,
            thresholds: Thresholds { cpu: Some(30), memory: Some(30) },
            target_thresholds: Thresholds { cpu: Some(80), memory: Some(85) },
            interval: 300,
            samples: 3,
            moves: 2,
            cooldown: 3_600,
            priority_threshold: None,
            excluded_namespaces: BTreeSet::new(),
        }
    }
}

impl LoadPolicy {
    /// Whether both thresholds agree.
    ///
    /// # Errors
    /// Why they do not.
    pub fn check_thresholds(&self) -> Result<(), String> {
        let (low, high) = (self.thresholds, self.target_thresholds);
        for ((name, low), (_, high)) in low.list_all().into_iter().zip(high.list_all()) {
            match (low, high) {
                (None, None) => {}
                (Some(low), Some(high)) if low < high => {}
                (Some(low), Some(high)) => {
                    return Err(format!(
                        "the threshold of {name}, {low} %, has to be below its target threshold, {high} %"
                    ));
                }
                _ => return Err(format!("only one of thresholds and target thresholds names {name}")),
            }
        }
        Ok(())
    }
}
