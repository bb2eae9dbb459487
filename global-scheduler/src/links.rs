//! What is said on FederationTopology objects: whether all of it counts, and who is near whom by it.

use std::collections::{BTreeMap, BTreeSet};

use caldera_core::fleet::Fleet;
use caldera_crds::links::{ACCEPTED, FederationTopology, Links, Said};
use caldera_runtime::{
    clock::rfc3339,
    watch::resource,
    write::{Body, Write},
};
use jiff::Timestamp;
use serde_json::json;

/// What was written, so that it is written once.
#[derive(Debug, Default)]
pub struct Told {
    by_name: BTreeMap<String, (Option<i64>, Said)>,
}

impl Told {
    /// The statuses to write now, by name.
    pub fn writes(&mut self, links: &Links, fleet: &Fleet, now: Timestamp) -> Vec<(String, Write)> {
        let clusters: BTreeSet<&str> = fleet.clusters().map(|(cluster, _)| cluster.name.as_str()).collect();
        let said = links.said(&clusters, fleet.near());
        self.by_name.retain(|name, _| said.contains_key(name));
        let mut writes = Vec::new();
        for (name, object) in links.objects() {
            let Some(said) = said.get(name) else { continue };
            let telling = (object.metadata.generation, said.clone());
            if is_said(object, said) || self.by_name.get(name) == Some(&telling) {
                continue;
            }
            self.by_name.insert(name.to_owned(), telling);
            writes.push((name.to_owned(), status(name, object, said, now)));
        }
        writes
    }

    /// A status was not written: it is to be looked at again.
    pub fn failed(&mut self, name: &str) {
        self.by_name.remove(name);
    }
}

fn is_said(object: &FederationTopology, said: &Said) -> bool {
    let Some(status) = &object.status else { return false };
    let same = |condition: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| {
        (condition.status == "True") == said.accepted
            && condition.reason == said.reason
            && condition.message == said.message
    };
    status.observed_generation == object.metadata.generation
        && status.conditions.iter().find(|condition| condition.type_ == ACCEPTED).is_some_and(same)
}

fn status(name: &str, object: &FederationTopology, said: &Said, now: Timestamp) -> Write {
    let word = if said.accepted { "True" } else { "False" };
    let conditions = object.status.iter().flat_map(|status| &status.conditions);
    let before = conditions.filter(|condition| condition.type_ == ACCEPTED && condition.status == word);
    let since = before.map(|condition| condition.last_transition_time.0).next().unwrap_or(now);
    let generation = object.metadata.generation;
    let condition = json!({
        "type": ACCEPTED, "status": word, "reason": said.reason, "message": said.message,
        "lastTransitionTime": rfc3339(since), "observedGeneration": generation,
    });
    Write {
        resource: resource("federation.caldera.dev", "v1alpha1", "FederationTopology", "federationtopologies"),
        namespace: String::new(),
        name: name.to_owned(),
        subresource: Some("status"),
        body: Body::MergePatch(json!({"status": {"observedGeneration": generation, "conditions": [condition]}})),
    }
}
