//! What was last taken from a job, as it stands on its binding.
//!
//! Written by the controller as the annotation `caldera.dev/eviction` (JSON), in the same patch that takes it; read by the
//! controller itself, so that bounds and holds are functions of API objects: a restart forgets none.

use serde::{Deserialize, Serialize};

use super::Evictions;

/// An eviction. Times are seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Eviction {
    /// Times that it was taken from since it last made progress, this one included.
    pub count: u32,
    /// When.
    pub at: i64,
    /// Until when who it was for holds what came free, unless it starts before.
    pub until: i64,
    /// The binding that it was for: its UID.
    pub claimant: String,
    /// By which right: a token.
    pub reason: String,
    /// The same in a sentence.
    pub message: String,
    /// Clusters where it did not start: others come first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub avoid: Vec<String>,
}

impl Eviction {
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
    pub const fn evictions(&self) -> Evictions {
        Evictions { count: self.count, last: Some(self.at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_and_a_broken_one_is_no_record() {
        let text = r#"{"count":2,"at":10,"until":20,"claimant":"uid","reason":"Reclaimed","message":"because"}"#;
        let record = Eviction::parse(text).unwrap();
        assert_eq!((record.to_json().as_str(), record.evictions().count), (text, 2));
        assert!(Eviction::parse("{}").is_err());
    }
}
