//! What runs in the members: copies of jobs as whole gangs, for their time.

use std::collections::{BTreeMap, BTreeSet};

use caldera_runtime::write::{self, Failure, Write};
use kube::api::ApiResource;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use super::{Copy, CopyKey, Links, NAMESPACE, StandIn, key_of, links, text, write_to};
use crate::{
    hostile::is_hostile,
    workloads::{Amount, fits, is_service, read_pod},
};

fn pods() -> ApiResource {
    caldera_runtime::watch::api_resource("", "v1", "Pod", "pods")
}

impl StandIn {
    /// What the members' job controllers, schedulers and kubelets do.
    pub(super) async fn run(&mut self, bindings: &[Value], works: &[Value]) {
        for work in works {
            let key = key_of(work);
            let is_new = !self.copies.contains_key(&key);
            // A Work that is being deleted is applied no more.
            let passes = |links: &mut Links| links::is_wanted(&key, bindings) && links.pass(&key, work, is_new);
            if self.links.as_mut().is_none_or(passes) {
                let copy = self.copies.entry(key).or_default();
                copy.manifest = work["spec"]["workload"]["manifests"][0].clone();
                copy.is_known = true;
            }
        }
        // UIDs are random: their order must not matter.
        let mut keys: Vec<_> = self.copies.keys().cloned().collect();
        keys.sort_by(|a, b| (&a.0, &a.2).cmp(&(&b.0, &b.2)));
        for key in keys {
            if is_service(&self.copies[&key].manifest) {
                self.serve(&key).await;
            } else if !self.copies[&key].finished {
                self.start_pods(&key).await;
                self.finish(&key).await;
            }
        }
    }

    /// Ends pods beyond what the copy is by now, and starts its missing ones if there is room for all of them.
    async fn start_pods(&mut self, key: &CopyKey) {
        let copy = &self.copies[key];
        let (mut wanted, mut missing) = (BTreeSet::new(), Vec::new());
        let tasks = copy.manifest["spec"]["tasks"].as_array().into_iter().flatten();
        // More than there is room for anywhere: somebody forged it.
        if tasks.filter_map(|task| task["replicas"].as_u64()).sum::<u64>() > 100 {
            return;
        }
        for task in copy.manifest["spec"]["tasks"].as_array().unwrap() {
            for index in 0..task["replicas"].as_u64().unwrap() {
                let name = format!("{}-{}-{index}", key.2, text(&task["name"]));
                if !copy.pods.contains_key(&name) {
                    missing.push((read_pod(&task["template"]), name.clone(), task.clone()));
                }
                wanted.insert(name);
            }
        }
        let surplus: Vec<String> = copy.pods.keys().filter(|pod| !wanted.contains(*pod)).cloned().collect();
        for pod in surplus {
            self.delete_pod(&key.0, &pod).await;
            self.copies.get_mut(key).unwrap().pods.remove(&pod);
        }
        // Those with cards first: where these are there is less choice.
        missing.sort_by_key(|(each, name, _)| (std::cmp::Reverse((each[1], each[0])), name.clone()));
        let mut free = self.compute_free(&key.0);
        let mut placed = Vec::new();
        for (each, name, task) in missing {
            let Some(node) = take_room(&mut free, each) else { return };
            placed.push((name, node, each, task));
        }
        for (name, node, each, task) in placed {
            let mut spec = task["template"]["spec"].clone();
            spec["nodeName"] = node.as_str().into();
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": name, "namespace": NAMESPACE, "annotations": {"volcano.sh/task-spec": task["name"]},
                    "ownerReferences": [{
                        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": key.2, "uid": key.1,
                        "controller": true,
                    }],
                },
                "spec": spec,
            });
            self.member(&key.0, &name, None, write::Body::Create(pod)).await;
            self.pod_phase(&key.0, &name, "Running").await;
            let copy = self.copies.get_mut(key).unwrap();
            copy.pods.insert(name, (node, each));
            copy.started.get_or_insert_with(Instant::now);
        }
    }

    /// What is left of each node of a member.
    pub(super) fn compute_free(&self, cluster: &str) -> BTreeMap<String, Amount> {
        let mut free = self.nodes[cluster].clone();
        for (_, copy) in self.copies.iter().filter(|(key, copy)| key.0 == cluster && !copy.finished) {
            for (node, taken) in copy.pods.values() {
                let free = free.get_mut(node).unwrap();
                free.iter_mut().zip(taken).for_each(|(free, taken)| *free -= taken);
            }
        }
        free
    }

    async fn finish(&mut self, key: &CopyKey) {
        if is_over(&key.0, &self.copies[key]) {
            let names: Vec<String> = self.copies[key].pods.keys().cloned().collect();
            for name in names {
                self.pod_phase(&key.0, &name, "Succeeded").await;
            }
            self.copies.get_mut(key).unwrap().finished = true;
        }
    }

    pub(super) async fn pod_phase(&self, cluster: &str, name: &str, phase: &str) {
        let status = json!({"status": {"phase": phase}});
        self.member(cluster, name, Some("status"), write::Body::MergePatch(status)).await;
    }

    pub(super) async fn member(&self, cluster: &str, pod: &str, subresource: Option<&'static str>, body: write::Body) {
        let write = Write { subresource, ..write_to(pods(), NAMESPACE, pod, body) };
        match write::execute_write(&self.members[cluster], &write).await {
            Ok(_) | Err(Failure::Gone(_)) => {}
            // Of a job that its tenant made anew while the old one's copy is there.
            Err(Failure::Exists(_)) if is_hostile(pod) => {}
            Err(failure) => panic!("{cluster} {pod}: {failure}"),
        }
    }

    pub(super) async fn delete_pod(&self, cluster: &str, pod: &str) {
        let write = write_to(pods(), NAMESPACE, pod, write::Body::Delete { uid: None });
        let deleted = write::execute_write(&self.members[cluster], &write).await;
        let uid = deleted.ok().map(|pod| text(&pod["metadata"]["uid"])).filter(|uid| !uid.is_empty());
        if let Some(uid) = uid {
            self.member(cluster, pod, None, write::Body::DeleteNow { uid }).await;
        }
    }
}

/// A node with that much room, which is taken: the one with the fewest cards that has it.
pub(super) fn take_room(free: &mut BTreeMap<String, Amount>, each: Amount) -> Option<String> {
    let with_room = free.iter_mut().filter(|(_, left)| fits(each, **left));
    let (node, left) = with_room.min_by_key(|(node, left)| (left[1], (*node).clone()))?;
    left.iter_mut().zip(each).for_each(|(left, each)| *left -= each);
    Some(node.clone())
}

/// Copies of one job do not end together.
pub(super) fn is_over(cluster: &str, copy: &Copy) -> bool {
    let more = if cluster == "m2" { 4 } else { 0 };
    let seconds: u64 = text(&copy.manifest["metadata"]["annotations"]["simulation/seconds"]).parse().unwrap_or(1);
    copy.started.is_some_and(|at| at.elapsed() >= Duration::from_secs(seconds + more))
}
