//! The status of FederationTopology objects: whether all of the spec counts, and which clusters are near each other by
//! it.
//!
//! Rule: one condition `Accepted` for the generation that was read. Each status is written once; one that the object
//! shows already is not written, and one whose write failed is written again with the next recheck.

use std::collections::{BTreeMap, BTreeSet};

use caldera_core::fleet::Fleet;
use caldera_crds::links::{ACCEPTED, AcceptedCondition, FederationTopologies, FederationTopology};
use caldera_runtime::{
    clock::format_time,
    watch::api_resource,
    write::{Body, Write},
};
use jiff::Timestamp;
use serde_json::json;

/// The statuses that were written, so that each is written once.
#[derive(Debug, Default)]
pub struct TopologyStatusWriter {
    written: BTreeMap<String, (Option<i64>, AcceptedCondition)>,
}

impl TopologyStatusWriter {
    /// The statuses to write now, by name.
    pub fn take_status_writes(
        &mut self,
        links: &FederationTopologies,
        fleet: &Fleet,
        now: Timestamp,
    ) -> Vec<(String, Write)> {
        let clusters: BTreeSet<&str> = fleet.clusters().map(|(cluster, _)| cluster.name.as_str()).collect();
        let said = links.accepted_conditions(&clusters, fleet.linked_groups());
        self.written.retain(|name, _| said.contains_key(name));
        let mut writes = Vec::new();
        for (name, object) in links.objects() {
            let Some(said) = said.get(name) else { continue };
            let status = (object.metadata.generation, said.clone());
            if has_status(object, said) || self.written.get(name) == Some(&status) {
                continue;
            }
            self.written.insert(name.to_owned(), status);
            writes.push((name.to_owned(), build_status_write(name, object, said, now)));
        }
        writes
    }

    /// A status was not written: it is to be written again.
    pub fn forget_status(&mut self, name: &str) {
        self.written.remove(name);
    }
}

fn has_status(object: &FederationTopology, said: &AcceptedCondition) -> bool {
    let Some(status) = &object.status else { return false };
    let same = |condition: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| {
        (condition.status == "True") == said.accepted
            && condition.reason == said.reason
            && condition.message == said.message
    };
    status.observed_generation == object.metadata.generation
        && status.conditions.iter().find(|condition| condition.type_ == ACCEPTED).is_some_and(same)
}

fn build_status_write(name: &str, object: &FederationTopology, said: &AcceptedCondition, now: Timestamp) -> Write {
    let word = if said.accepted { "True" } else { "False" };
    let conditions = object.status.iter().flat_map(|status| &status.conditions);
    let before = conditions.filter(|condition| condition.type_ == ACCEPTED && condition.status == word);
    let since = before.map(|condition| condition.last_transition_time.0).next().unwrap_or(now);
    let generation = object.metadata.generation;
    let condition = json!({
        "type": ACCEPTED, "status": word, "reason": said.reason, "message": said.message,
        "lastTransitionTime": format_time(since), "observedGeneration": generation,
    });
    Write {
        resource: api_resource("federation.caldera.dev", "v1alpha1", "FederationTopology", "federationtopologies"),
        namespace: String::new(),
        name: name.to_owned(),
        subresource: Some("status"),
        body: Body::MergePatch(json!({"status": {"observedGeneration": generation, "conditions": [condition]}})),
    }
}
