//! What somebody did: one line of the audit trail.

use caldera_crds::action::Action;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::HistoryLine;

/// What somebody did to an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedAction {
    /// When.
    pub at: Timestamp,
    /// Who, as the API server knows them; `caldera` for the controller's own.
    pub by: String,
    /// What.
    pub did: String,
    /// The object's kind.
    pub kind: String,
    /// Its namespace, if it has one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl RecordedAction {
    /// What the stamps of an object say.
    #[must_use]
    pub fn new(action: &Action, kind: &str, namespace: &str, name: &str) -> Self {
        Self {
            at: action.at,
            by: action.by.clone(),
            did: action.did.clone(),
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl HistoryLine for RecordedAction {
    fn key(&self) -> (String, String) {
        (format!("{} {}/{}", self.kind, self.namespace, self.name), self.at.to_string())
    }

    fn at(&self) -> Timestamp {
        self.at
    }
}
