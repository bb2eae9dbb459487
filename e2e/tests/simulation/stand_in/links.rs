//! What goes wrong between Karmada and its members.
//!
//! - A create that times out at the member's API server is taken for done (`AppliedSuccessful`), and Karmada looks at
//!   the Work again only when its spec changes.
//! - Copies are applied, and statuses read, late.
//! - A member is cut off for a while: nothing goes there, nothing is deleted there, and its statuses stand still, while
//!   what runs there runs on.

use std::collections::{BTreeMap, BTreeSet};

use caldera_runtime::write::{self, Body, Write};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use super::{Copy, CopyKey, StandIn, text, works, write_to};
use crate::{faults::Faults, prng::Prng};

/// Creates of a hundred that time out, as long as anything goes wrong.
const SWALLOWED: u64 = 25;

/// A Work as Karmada last saw it.
#[derive(Debug)]
struct Seen {
    generation: Value,
    /// It is applied then.
    due: Instant,
    is_done: bool,
    /// Karmada believes that the member has it.
    is_swallowed: bool,
}

/// What Karmada read of a copy.
#[derive(Debug, Default)]
struct Told {
    status: Option<Value>,
    /// What it reads next, and when.
    next: Option<(Value, Instant)>,
}

#[derive(Debug)]
pub struct Links {
    prng: Prng,
    faults: Faults,
    late: BTreeMap<String, Duration>,
    seen: BTreeMap<CopyKey, Seen>,
    told: BTreeMap<CopyKey, Told>,
    cut: BTreeSet<String>,
    /// Copies whose Work is going away.
    leaving: BTreeSet<CopyKey>,
}

impl Links {
    pub fn new(mut prng: Prng, faults: Faults, members: &[&str]) -> Self {
        let late = members.iter().map(|member| {
            let millis = if prng.below(2) == 0 { 0 } else { prng.between(1_000, 15_000) };
            ((*member).to_owned(), Duration::from_millis(millis))
        });
        let late = late.collect();
        let (seen, told, cut, leaving) = Default::default();
        Self { prng, faults, late, seen, told, cut, leaving }
    }

    pub fn is_cut(&self, member: &str) -> bool {
        self.cut.contains(member)
    }

    /// Whether something is to be done that nobody wrote anything about: it is late, or a line came or went.
    pub fn is_due(&mut self) -> bool {
        let (now, cut) = (Instant::now(), self.faults.list_cut());
        let changed = std::mem::replace(&mut self.cut, cut) != self.cut;
        let is_applied = |(key, seen): (&CopyKey, &Seen)| !seen.is_done && seen.due <= now && !self.is_cut(&key.0);
        let is_read = |(key, told): (&CopyKey, &Told)| {
            told.next.as_ref().is_some_and(|(_, due)| *due <= now) && !self.is_cut(&key.0)
        };
        changed || self.seen.iter().any(is_applied) || self.told.iter().any(is_read)
    }

    /// Whether the member has by now what the Work says.
    pub fn pass(&mut self, key: &CopyKey, work: &Value, is_new: bool) -> bool {
        let (now, generation) = (Instant::now(), &work["metadata"]["generation"]);
        let due = now + self.late[&key.0];
        let anew = || Seen { generation: generation.clone(), due, is_done: false, is_swallowed: false };
        let seen = self.seen.entry(key.clone()).or_insert_with(anew);
        if seen.generation != *generation {
            *seen = anew();
        }
        if !seen.is_done && seen.due <= now && !self.cut.contains(&key.0) {
            seen.is_done = true;
            seen.is_swallowed = is_new && self.faults.is_on() && self.prng.below(100) < SWALLOWED;
            if seen.is_swallowed {
                self.faults.count("create swallowed");
            }
        }
        seen.is_done && !seen.is_swallowed
    }

    /// What Karmada knows of a copy's status.
    pub fn read_status(&mut self, key: &CopyKey, status: Value) -> Option<Value> {
        let (now, late) = (Instant::now(), self.late[&key.0]);
        let told = self.told.entry(key.clone()).or_default();
        if !self.cut.contains(&key.0) {
            if told.next.as_ref().is_some_and(|(_, due)| *due <= now) {
                told.status = told.next.take().map(|(status, _)| status);
            }
            if late.is_zero() {
                told.status = Some(status);
            } else if told.next.is_none() && told.status.as_ref() != Some(&status) {
                told.next = Some((status, now + late));
            }
        }
        told.status.clone()
    }

    /// Clusters that Karmada believes to have a copy of this job which they do not have.
    pub fn list_swallowed(&self, uid: &str) -> Vec<String> {
        let swallowed = self.seen.iter().filter(|(key, seen)| key.1 == uid && seen.is_swallowed);
        swallowed.map(|(key, _)| key.0.clone()).collect()
    }

    /// Karmada applies each Work once more. What it reads of copies goes on from what it knows.
    pub fn restart(&mut self) {
        self.seen.clear();
    }

    pub fn forget(&mut self, key: &CopyKey) {
        self.seen.remove(key);
        self.told.remove(key);
        self.leaving.remove(key);
    }

    /// Whether the Work of a copy is going away until the member answers. Karmada tells nothing of such a Work
    /// (`assembleWorkStatus` in `pkg/util/helper/workstatus.go`).
    fn is_leaving(&mut self, key: &CopyKey, is_kept: bool) -> bool {
        if is_kept {
            self.leaving.remove(key);
            return false;
        }
        self.leaving.contains(key) || (self.is_cut(&key.0) && self.leaving.insert(key.clone()))
    }

    fn is_applied(&self, key: &CopyKey) -> bool {
        self.seen.get(key).is_some_and(|seen| seen.is_done)
    }
}

impl StandIn {
    /// Karmada says of each Work that it is applied, once it tried.
    pub(super) async fn tell_applied(&self, works: &[Value]) {
        let Some(links) = &self.links else { return };
        for work in works {
            let is_told = work["status"]["conditions"].as_array().is_some_and(|conditions| !conditions.is_empty());
            if is_told || !links.is_applied(&super::key_of(work)) {
                continue;
            }
            let condition = json!({
                "type": "Applied", "status": "True", "reason": "AppliedSuccessful", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            let body = Body::MergePatch(json!({"status": {"conditions": [condition]}}));
            let (namespace, name) = (text(&work["metadata"]["namespace"]), text(&work["metadata"]["name"]));
            let write = Write { subresource: Some("status"), ..write_to(self::works(), &namespace, &name, body) };
            // What was not written is written with the next step.
            let _ = write::execute_write(&self.host, &write).await;
        }
    }

    /// What the binding's status says of each cluster.
    pub(super) fn list_items(&mut self, binding: &Value) -> Vec<Value> {
        let uid = text(&binding["spec"]["resource"]["uid"]);
        let mut items = BTreeMap::new();
        for (key, copy) in self.copies.iter().filter(|(key, copy)| key.1 == uid && copy.is_known) {
            if self.links.as_mut().is_some_and(|links| links.is_leaving(key, is_kept(binding, &key.0))) {
                continue;
            }
            let status = super::report::status(copy);
            let mut item = json!({"clusterName": key.0, "applied": true});
            let status = match &mut self.links {
                Some(links) => links.read_status(key, status),
                None => Some(status),
            };
            if let Some(status) = status {
                item["status"] = status;
            }
            items.insert(key.0.clone(), item);
        }
        for cluster in self.links.iter().flat_map(|links| links.list_swallowed(&uid)) {
            items.entry(cluster.clone()).or_insert_with(|| json!({"clusterName": cluster, "applied": true}));
        }
        items.into_values().collect()
    }

    /// No job runs more pods than it has, wherever they are: no second copy beside an old one.
    pub(super) fn must_not_run_twice(&mut self, jobs: &[Value], bindings: &[Value]) {
        for job in jobs.iter().filter(|job| !crate::workloads::is_service(job)) {
            let (uid, name) = (text(&job["metadata"]["uid"]), text(&job["metadata"]["name"]));
            let binding = bindings.iter().find(|binding| binding["spec"]["resource"]["uid"] == uid.as_str());
            let wanted: u64 = crate::workloads::list_tasks(job).iter().map(|task| task.replicas).sum();
            let most = self.most_pods.entry(uid.clone()).or_default();
            *most = wanted.max(*most);
            let is_exempt = |binding: &Value| {
                let eviction = text(&binding["metadata"]["annotations"]["caldera.dev/eviction"]);
                // The contract takes that risk for what did not start in time (docs/rules/protocol.md).
                eviction.contains("PodsReadyTimeout")
                    || binding["spec"]["placement"]["replicaScheduling"]["replicaSchedulingType"] == "Duplicated"
            };
            if crate::hostile::is_hostile(&name) || binding.is_some_and(is_exempt) {
                continue;
            }
            let running = |(key, copy): &(&CopyKey, &Copy)| key.1 == uid && !copy.finished;
            let pods: usize = self.copies.iter().filter(running).map(|(_, copy)| copy.pods.len()).sum();
            assert!(pods as u64 <= *most, "{name} runs {pods} pods and has {most}: {binding:?}");
        }
    }
}

/// Whether a copy is to be there.
pub(super) fn is_wanted(key: &CopyKey, bindings: &[Value]) -> bool {
    let is_its_own = |binding: &&Value| binding["spec"]["resource"]["uid"] == key.1.as_str();
    bindings.iter().filter(is_its_own).any(|binding| is_kept(binding, &key.0))
}

/// Whether a cluster is to have a copy: it is a target, or is left its copy for now.
fn is_kept(binding: &Value, cluster: &str) -> bool {
    let items = |field: &str| binding["spec"][field].as_array().into_iter().flatten();
    items("clusters").any(|target| target["name"] == cluster)
        || items("gracefulEvictionTasks").any(|task| task["fromCluster"] == cluster)
}
