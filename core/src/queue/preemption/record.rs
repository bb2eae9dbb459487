//! The eviction record: what was last taken from a job, for which preemptor and until when.
//!
//! The controller writes it as the annotation `caldera.dev/eviction` (JSON), in the same patch that evicts, and reads
//! it back. So bounds and hold windows are functions of API objects, and a restart forgets none.

use serde::{Deserialize, Serialize};

use crate::{queue::preemption::EvictionHistory, time::EpochSeconds};

/// An eviction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EvictionRecord {
    /// Evictions since it last made progress.
    pub count: u32,
    /// When it last did, where this record is not of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<EpochSeconds>,
    /// Times that it found no place, or did not start there, since it last made progress: nobody took that from it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub requeues: u32,
    /// Times that its own policies restarted it as a whole.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restarts: u32,
    /// When.
    pub at: EpochSeconds,
    /// Until when who it was for holds what came free, unless it starts before.
    pub until: EpochSeconds,
    /// The binding that it was for: its UID. Of a job that was restarted, that of the Command.
    pub preemptor: String,
    /// By which right: a token.
    pub reason: String,
    /// The same in a sentence.
    pub message: String,
    /// Clusters where it did not start: others come first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub avoid: Vec<String>,
    /// Clusters that it left before that because a part of it had not started there, and has not been in since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unstarted: Vec<String>,
    /// When it last left a hot cluster, where this record is not of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<LastMove>,
}

/// A move off a hot cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastMove {
    /// When.
    pub at: EpochSeconds,
    /// Clusters that were not cold then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub avoid: Vec<String>,
}

impl EvictionRecord {
    /// Reads the annotation.
    ///
    /// # Errors
    /// If the text is not an eviction: then there is none.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The annotation's text.
    #[must_use]
    pub fn to_json(&self) -> String {
        // A struct of numbers and texts always serializes.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// As far as bounds look at it.
    #[must_use]
    pub const fn eviction_history(&self) -> EvictionHistory {
        let last = match (self.count, self.last) {
            (0, _) => None,
            (_, Some(last)) => Some(last),
            (_, None) => Some(self.at),
        };
        EvictionHistory { count: self.count, last }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_and_a_broken_one_is_no_record() {
        let text = r#"{"count":2,"at":10,"until":20,"preemptor":"uid","reason":"Reclaimed","message":"because"}"#;
        let record = EvictionRecord::parse(text).unwrap();
        assert_eq!((record.to_json().as_str(), record.eviction_history().count), (text, 2));
        assert!(EvictionRecord::parse("{}").is_err());
    }

    #[test]
    fn who_was_requeued_was_evicted_no_more_often() {
        let of = |text: &str| EvictionRecord::parse(text).unwrap().eviction_history();
        let rest = r#""until":20,"preemptor":"","reason":"NotPlaced","message":"because""#;
        assert_eq!(of(&format!(r#"{{"count":0,"requeues":3,"at":10,{rest}}}"#)), EvictionHistory::default());
        let before = EvictionHistory { count: 2, last: Some(EpochSeconds::new(5)) };
        assert_eq!(of(&format!(r#"{{"count":2,"last":5,"requeues":3,"at":10,{rest}}}"#)), before);
    }
}
