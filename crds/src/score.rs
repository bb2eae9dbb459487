//! `federation.caldera.dev/v1alpha1` ClusterScore: scores that something outside Caldera gives to clusters.
//!
//! Anybody may write one, for instance a cron job with energy prices, or an operator who drains a region slowly. A
//! policy whose score weights name the object ranks clusters by it (`caldera_core::place::score`).
//!
//! Rule: scores are cut to their bounds when they are read. They are ignored when they have no time of measurement, are
//! older than the object's `validForSeconds`, of at most a day, or were measured more than five minutes in the future.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use caldera_core::place::score::{BEST, ExternalScores};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use crate::wire::{api_types, object};

/// Clusters that one object may score at most; further ones are ignored.
pub const MOST_CLUSTERS: usize = 5000;
/// How long scores are valid if the object does not say.
pub const LASTS: Duration = Duration::from_secs(600);
/// How long scores are valid at most.
pub const LASTS_AT_MOST: Duration = Duration::from_secs(24 * 3600);
/// How far the clock of a writer may be ahead.
const MOST_CLOCK_SKEW: Duration = Duration::from_secs(300);

object! {
    /// Scores that something outside Caldera gives to clusters.
    ClusterScore, "federation.caldera.dev", "v1alpha1", "clusterscores", ClusterResourceScope
    { spec: ClusterScoreSpec } {}
}

api_types! {
    /// Scores, and for how long they are good.
    pub struct ClusterScoreSpec {
        /// When the scores were measured. Without it they are ignored.
        pub measured_at: Option<Time>,
        /// How long the scores are valid: 600 seconds if absent, a day at most.
        #[schemars(extend("minimum" = 1, "maximum" = 86400))]
        pub valid_for_seconds: Option<i32>,
        /// By cluster. One that is not listed has score 0.
        #[schemars(extend("maxItems" = 5000))]
        pub scores: Vec<ScoreOfCluster>,
    }

    /// One cluster's score.
    pub struct ScoreOfCluster {
        /// Which cluster.
        #[schemars(extend("minLength" = 1, "maxLength" = 253))]
        pub cluster: String,
        /// From 0, the worst, to 100.
        #[schemars(extend("minimum" = 0, "maximum" = 100, "format" = null))]
        pub score: i64,
    }
}

/// The scores of an object, within their bounds, with the time when they were measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scores {
    /// The object's name, which policies give a weight.
    pub name: String,
    measured: Option<Timestamp>,
    lasts: Duration,
    /// By cluster, 0 to 100.
    pub by_cluster: ExternalScores,
}

impl Scores {
    /// Whether the scores are still valid.
    #[must_use]
    pub fn are_fresh(&self, now: Timestamp) -> bool {
        let Some(measured) = self.measured else { return false };
        let age = now.duration_since(measured);
        match Duration::try_from(age) {
            Ok(age) => age < self.lasts,
            Err(_) => age.unsigned_abs() <= MOST_CLOCK_SKEW,
        }
    }
}

impl From<&ClusterScore> for Scores {
    fn from(object: &ClusterScore) -> Self {
        let spec = &object.spec;
        let lasts =
            spec.valid_for_seconds.map_or(LASTS, |seconds| Duration::from_secs(u64::from(seconds.max(0) as u32)));
        let listed = spec.scores.iter().take(MOST_CLUSTERS);
        let by_cluster: BTreeMap<String, i64> =
            listed.map(|one| (one.cluster.clone(), one.score.clamp(0, BEST))).collect();
        Self {
            name: object.metadata.name.clone().unwrap_or_default(),
            measured: spec.measured_at.as_ref().map(|time| time.0),
            lasts: lasts.min(LASTS_AT_MOST),
            by_cluster: Arc::new(by_cluster),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn scores(spec: serde_json::Value) -> Scores {
        let object = json!({"metadata": {"name": "carbon"}, "spec": spec});
        Scores::from(&serde_json::from_value::<ClusterScore>(object).unwrap())
    }

    fn at(time: &str) -> Timestamp {
        time.parse().unwrap()
    }

    #[test]
    fn scores_are_bounded_and_count_as_long_as_they_say() {
        let ours = scores(json!({
            "measuredAt": "2026-01-01T00:00:00Z", "validForSeconds": 60,
            "scores": [{"cluster": "a", "score": 700}, {"cluster": "b", "score": -3}],
        }));
        assert_eq!(*ours.by_cluster, [("a".to_owned(), 100), ("b".to_owned(), 0)].into());
        assert!(ours.are_fresh(at("2026-01-01T00:00:59Z")) && !ours.are_fresh(at("2026-01-01T00:01:00Z")));
        // A clock that is a little ahead is accepted.
        assert!(ours.are_fresh(at("2025-12-31T23:55:00Z")) && !ours.are_fresh(at("2025-12-31T23:54:59Z")));
    }

    #[test]
    fn scores_without_a_time_never_count_and_none_for_longer_than_a_day() {
        assert!(!scores(json!({})).are_fresh(at("2026-01-01T00:00:00Z")));
        let ours = scores(json!({"measuredAt": "2026-01-01T00:00:00Z", "validForSeconds": 9_999_999}));
        assert!(ours.are_fresh(at("2026-01-01T23:59:59Z")) && !ours.are_fresh(at("2026-01-02T00:00:00Z")));
    }
}
