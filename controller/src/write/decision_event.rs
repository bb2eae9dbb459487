//! Events as decisions: what is said of an object, beside what is written on it.

use caldera_core::data_source::ClaimKey;
use caldera_runtime::event::{EventType, Regarding};
use serde_json::Value;

use super::Decision;
use crate::observe::{QueueFacts, Workload};

impl Decision {
    /// An event on a workload.
    #[must_use]
    pub fn build_workload_event(workload: &Workload, event_type: EventType, reason: &str, message: String) -> Self {
        let regarding = Regarding {
            api_version: workload.api_version.to_string(),
            kind: workload.reference.kind.clone(),
            namespace: workload.reference.namespace.clone(),
            name: workload.reference.name.clone(),
            uid: workload.uid.to_string(),
        };
        Self::RecordEvent { regarding, event_type, reason: reason.to_owned(), message }
    }

    /// An event on a DataSourceClaim.
    #[must_use]
    pub fn build_claim_event(key: &ClaimKey, uid: &str, event_type: EventType, reason: &str, message: String) -> Self {
        let regarding = Regarding {
            api_version: "datadependency.volcano.sh/v1alpha1".to_owned(),
            kind: "DataSourceClaim".to_owned(),
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            uid: uid.to_owned(),
        };
        Self::RecordEvent { regarding, event_type, reason: reason.to_owned(), message }
    }

    /// An event on the ConfigMap of the settings.
    #[must_use]
    pub fn build_settings_event(map: &Value, event_type: EventType, reason: &str, message: String) -> Self {
        let text = |field: &str| map["metadata"][field].as_str().unwrap_or_default().to_owned();
        let regarding = Regarding {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
        };
        Self::RecordEvent { regarding, event_type, reason: reason.to_owned(), message }
    }

    /// An event on a member cluster.
    #[must_use]
    pub fn build_cluster_event(name: &str, uid: &str, event_type: EventType, reason: &str, message: String) -> Self {
        let regarding = Regarding {
            api_version: "cluster.karmada.io/v1alpha1".to_owned(),
            kind: "Cluster".to_owned(),
            namespace: String::new(),
            name: name.to_owned(),
            uid: uid.to_owned(),
        };
        Self::RecordEvent { regarding, event_type, reason: reason.to_owned(), message }
    }

    /// An event on a queue.
    #[must_use]
    pub fn build_queue_event(queue: &QueueFacts, event_type: EventType, reason: &str, message: String) -> Self {
        let regarding = Regarding {
            api_version: "scheduling.volcano.sh/v1beta1".to_owned(),
            kind: "Queue".to_owned(),
            namespace: String::new(),
            name: queue.spec.name.to_string(),
            uid: queue.uid.to_string(),
        };
        Self::RecordEvent { regarding, event_type, reason: reason.to_owned(), message }
    }
}
