//! Which annotations of Clusters count for nothing: told to their admins by an event on the Cluster.
//!
//! Rule ([`caldera_crds::cluster_annotations`]): each fault once, and again where it is back after it was mended. The
//! server of Clusters (karmada-aggregated-apiserver) runs no admission, so nobody refuses one there when it is written.

use std::collections::BTreeMap;

use caldera_runtime::event::EventType;

use crate::{observe::ClusterFacts, write::Decision};

/// Reason of an event on a Cluster: an annotation of it can not be read, and counts for nothing.
const CLUSTER_MISCONFIGURED: &str = "ClusterMisconfigured";

/// What was told of each cluster.
#[derive(Debug, Default)]
pub(crate) struct ClusterFaults(BTreeMap<String, Vec<String>>);

impl ClusterFaults {
    /// Takes in a cluster; what there is to say of it that was not said.
    pub(crate) fn observe_cluster(&mut self, facts: &ClusterFacts) -> Option<Decision> {
        let name = &facts.cluster.name;
        let reported = self.0.remove(name).unwrap_or_default();
        if facts.faults.is_empty() {
            return None;
        }
        let new: Vec<&str> =
            facts.faults.iter().filter(|fault| !reported.contains(fault)).map(String::as_str).collect();
        let message = new.join("; ");
        self.0.insert(name.clone(), facts.faults.clone());
        (!message.is_empty()).then(|| {
            Decision::build_cluster_event(name, &facts.uid, EventType::Warning, CLUSTER_MISCONFIGURED, message)
        })
    }

    /// It is gone.
    pub(crate) fn forget_cluster(&mut self, name: &str) {
        self.0.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use caldera_crds::{
        karmada::cluster::Cluster,
        names::caldera::{FENCED_AT, MAINTENANCE},
    };
    use serde_json::{Value, json};

    use super::*;

    fn facts(annotations: Value) -> ClusterFacts {
        let cluster = json!({"metadata": {"name": "m1", "uid": "u", "annotations": annotations}, "spec": {}});
        ClusterFacts::read(&serde_json::from_value::<Cluster>(cluster).unwrap())
    }

    #[test]
    fn an_annotation_of_a_cluster_that_counts_for_nothing_is_an_event_once() {
        let mut faults = ClusterFaults::default();
        let mut report = |annotations: Value| match faults.observe_cluster(&facts(annotations)) {
            Some(Decision::RecordEvent { regarding, event_type, reason, message }) => {
                assert_eq!((&*regarding.kind, &*regarding.name, &*regarding.uid), ("Cluster", "m1", "u"));
                assert_eq!((event_type, &*reason), (EventType::Warning, CLUSTER_MISCONFIGURED));
                message
            }
            Some(other) => panic!("{other:?}"),
            None => String::new(),
        };
        assert_eq!(report(json!({MAINTENANCE: "[]"})), "");
        let reported = report(json!({MAINTENANCE: "soon"}));
        assert!(reported.contains("metadata.annotations[caldera.dev/maintenance]: it is no JSON list"), "{reported}");
        assert_eq!(report(json!({MAINTENANCE: "soon", "other": "x"})), "", "it was told");
        let reported = report(json!({MAINTENANCE: "soon", FENCED_AT: "now"}));
        assert!(reported.contains("\"now\" is no time") && !reported.contains("maintenance"), "{reported}");
        assert_eq!(report(json!({})), "");
        assert_ne!(report(json!({FENCED_AT: "now"})), "", "it is back");
    }
}
