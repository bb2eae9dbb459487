//! What the hostile tenant does: one attack at random, now and then.

use std::collections::BTreeMap;

use caldera_crds::names::{
    caldera::{ADMISSION, EPOCH, EVICTION, GATE, PLAN, PRIORITY},
    karmada::BINDING_ID,
};
use caldera_runtime::write::{self, Body, Failure, Write};
use kube::{Api, api::DynamicObject};
use serde_json::{Value, json};

use super::{Hostile, PREFIX, QUEUE, annotation, cores_of, term_of, text};
use crate::{
    invariants::Invariants,
    setting::queues,
    stand_in::{self, NAMESPACE, write_to},
    story::job,
    workloads::name_work,
};

impl Hostile {
    /// Now and then something at random.
    pub async fn step(&mut self, invariants: &Invariants) {
        if self.prng.below(14) != 0 {
            return;
        }
        let names: Vec<String> = self.bindings.keys().cloned().collect();
        if names.is_empty() || self.prng.below(10) == 0 {
            return self.submit().await;
        }
        let name = names[usize::try_from(self.prng.below(names.len() as u64)).unwrap()].clone();
        let (what, write) = self.choose_attack(&name, invariants);
        let Some(write) = write else { return };
        let by = if what.starts_with("queue") { &self.queue_admin } else { &self.tenant };
        // A write that changes nothing answers with the version of whoever wrote last.
        let known = Api::<DynamicObject>::namespaced_with(by.clone(), &write.namespace, &write.resource);
        let known = known.get_opt(&write.name).await.ok().flatten().and_then(|object| object.metadata.resource_version);
        let came = match write::execute_write(by, &write).await {
            Ok(object) => {
                assert!(!matches!(what, "id" | "second binding"), "{what}: {object}");
                let version = text(&object["metadata"]["resourceVersion"]);
                let is_new = !version.is_empty() && known.as_deref() != Some(version);
                if write.resource.kind == "ResourceBinding" && is_new {
                    self.by_tenant.insert(version.parse().unwrap());
                }
                "done"
            }
            Err(Failure::Refused { .. }) => "refused",
            Err(_) => "failed",
        };
        self.count(what, came);
    }

    fn count(&mut self, what: &str, came: &str) {
        *self.attacks.entry(format!("{what}: {came}")).or_default() += 1;
    }

    /// A job: some fit the queue, some never do, and one asks for the world.
    async fn submit(&mut self) {
        let name = format!("{PREFIX}{}", self.prng.below(6));
        let (replicas, cores) = match self.prng.below(8) {
            0 => (1_000, 1),
            1 | 2 => (self.prng.between(3, 6), 2),
            _ => (self.prng.between(1, 5), 1),
        };
        let minimum = if self.prng.below(3) == 0 { 1 } else { replicas };
        let seconds = if self.prng.below(4) == 0 { 100 } else { self.prng.between(3, 25) };
        let object = job(&name, QUEUE, &[("t0".into(), replicas, minimum, cores)], seconds, false);
        let write = write_to(stand_in::jobs(), NAMESPACE, &name, Body::Create(object));
        let came = if write::execute_write(&self.tenant, &write).await.is_ok() { "done" } else { "failed" };
        self.count("submit", came);
    }

    fn choose_attack(&mut self, binding: &str, invariants: &Invariants) -> (&'static str, Option<Write>) {
        let name = binding.trim_end_matches("-job").to_owned();
        let to = |body: Value| write_to(stand_in::bindings(), NAMESPACE, binding, Body::MergePatch(body));
        let status = |write: Write| Write { subresource: Some("status"), ..write };
        // What promises nothing without policies is left out of the siege: statuses, Works, requests.
        // Without policies nothing keeps these from it (docs/security.md), so they are left to guarded worlds.
        if self.guarded && self.prng.below(6) == 0 {
            return self.hide_copies(&to);
        }
        match self.prng.below(if self.besieges { 17 } else { 27 }) {
            0..=6 => ("record", Some(to(self.forge_record(binding, invariants)))),
            7 => {
                let open =
                    json!({"metadata": {"annotations": {GATE: "open"}}, "spec": {"suspension": {"scheduling": false}}});
                ("gate", Some(to(open)))
            }
            8 => ("suspension", Some(to(json!({"spec": {"suspension": {"scheduling": self.prng.below(2) == 0}}})))),
            9 | 10 => {
                let (clusters, plan) = self.forge_clusters(binding);
                let annotations = if self.prng.below(2) == 0 { json!({PLAN: plan}) } else { json!({}) };
                let patch = json!({"metadata": {"annotations": annotations}, "spec": {"clusters": clusters}});
                ("clusters", Some(to(patch)))
            }
            11 => {
                let (clusters, plan) = self.forge_clusters(binding);
                let annotations = json!({GATE: null, ADMISSION: null, EPOCH: null, PLAN: plan});
                let spec = json!({"clusters": clusters, "suspension": {"scheduling": false}});
                ("no gate", Some(to(json!({"metadata": {"annotations": annotations}, "spec": spec}))))
            }
            12 => {
                let (_, plan) = self.forge_clusters(binding);
                let plan = if self.prng.below(2) == 0 { plan } else { "{\"clusters\": 7}".into() };
                ("plan", Some(to(json!({"metadata": {"annotations": {PLAN: plan}}}))))
            }
            13 => {
                let now = i64::MAX - i64::try_from(self.prng.below(3)).unwrap();
                let eviction = json!({
                    "count": u32::MAX, "requeues": u32::MAX, "at": -now, "until": now, "last": -now,
                    "preemptor": "evil", "reason": "Forged", "message": "", "avoid": ["m1", "m2"],
                });
                let eviction = if self.prng.below(2) == 0 { Value::Null } else { eviction.to_string().into() };
                (
                    "eviction",
                    Some(to(json!({"metadata": {"annotations": {EVICTION: eviction, PRIORITY: "2147483647"}}}))),
                )
            }
            14 => ("PodGroup", self.find_group(&name)),
            15 => ("binding", Some(write_to(stand_in::bindings(), NAMESPACE, binding, Body::Delete { uid: None }))),
            16 => ("job", Some(write_to(stand_in::jobs(), NAMESPACE, &name, Body::Delete { uid: None }))),
            17 | 18 => {
                let phase = ["Completed", "Failed", "Running"][usize::try_from(self.prng.below(3)).unwrap()];
                let ended = json!({
                    "state": {"phase": phase}, "succeeded": 9, "taskStatusCount": {"t0": {"phase": {"Succeeded": 9}}},
                });
                if self.prng.below(2) == 0 {
                    let write =
                        write_to(stand_in::jobs(), NAMESPACE, &name, Body::MergePatch(json!({"status": ended})));
                    return ("job's status", Some(status(write)));
                }
                let items = ["m1", "m2"].map(|it| json!({"clusterName": it, "applied": true, "status": ended}));
                ("binding's status", Some(status(to(json!({"status": {"aggregatedStatus": items}})))))
            }
            19 | 20 => {
                let Some((namespace, work)) = self.works.iter().find(|(_, work)| *work == name_work(binding)).cloned()
                else {
                    return ("Work", None);
                };
                let body = if self.prng.below(2) == 0 {
                    Body::Delete { uid: None }
                } else {
                    let replicas = self.prng.between(1, 50);
                    Body::JsonPatch(json!([{
                        "op": "replace", "path": "/spec/workload/manifests/0/spec/tasks/0/replicas", "value": replicas,
                    }]))
                };
                ("Work", Some(write_to(stand_in::works(), &namespace, &work, body)))
            }
            21 | 22 => {
                self.edited.insert(name.clone());
                let cpu = "/spec/tasks/0/template/spec/containers/0/resources/requests/cpu";
                let patch = json!([
                    {"op": "replace", "path": cpu, "value": self.prng.between(1, 4).to_string()},
                    {"op": "replace", "path": "/spec/tasks/0/replicas", "value": self.prng.between(1, 9)},
                    {"op": "replace", "path": "/spec/tasks/0/minAvailable", "value": 1},
                    {"op": "replace", "path": "/spec/minAvailable", "value": 1},
                ]);
                ("template", Some(write_to(stand_in::jobs(), NAMESPACE, &name, Body::JsonPatch(patch))))
            }
            23..=25 => {
                let cores = [json!("2"), json!("7"), json!("100"), Value::Null]
                    [usize::try_from(self.prng.below(4)).unwrap()]
                .clone();
                let of = ["lab", "vision", "speech", QUEUE][usize::try_from(self.prng.below(4)).unwrap()];
                let patch = json!({"spec": {"capability": {"cpu": cores}}});
                ("queue's capability", Some(write_to(queues(), "", of, Body::MergePatch(patch))))
            }
            _ => ("queue with children", Some(write_to(queues(), "", "lab", Body::Delete { uid: None }))),
        }
    }

    /// So that Karmada does not find the copies of a binding, or runs them by another one.
    fn hide_copies(&mut self, to: &impl Fn(Value) -> Write) -> (&'static str, Option<Write>) {
        if self.prng.below(2) == 0 {
            return ("id", Some(to(json!({"metadata": {"labels": {BINDING_ID: "forged"}}}))));
        }
        let mut second = self.bindings.values().next().cloned();
        if let Some(second) = &mut second {
            second["metadata"] = json!({"name": "evil-second", "namespace": NAMESPACE});
            second["spec"].as_object_mut().unwrap().remove("clusters");
            second["status"].take();
        }
        let second = second.map(Body::Create);
        ("second binding", second.map(|body| write_to(stand_in::bindings(), NAMESPACE, "evil-second", body)))
    }

    fn find_group(&self, name: &str) -> Option<Write> {
        let group = self.jobs.contains_key(name).then(|| format!("{name}-vcjob"))?;
        Some(write_to(stand_in::pod_groups(), NAMESPACE, &group, Body::Delete { uid: None }))
    }

    /// A record, its lease, the open gate, and perhaps clusters.
    fn forge_record(&mut self, binding: &str, invariants: &Invariants) -> Value {
        let all = invariants.bindings().values().chain(self.bindings.values());
        let epochs =
            all.map(|binding| annotation(binding, EPOCH)).filter(|epoch| term_of(epoch).is_some_and(|it| it < 90));
        let newest = epochs.max_by_key(|epoch| term_of(epoch)).cloned().unwrap_or_default();
        let term = term_of(&newest).unwrap_or(0);
        let epoch = match self.prng.below(8) {
            0..=2 => newest,
            3 => format!("{}.controller-1", term.saturating_sub(1)).into(),
            4 => Value::Null,
            5 | 6 => format!("{}.me", 90 + self.prng.below(9)).into(),
            _ => "99999999999999999999.?".into(),
        };
        let job = self.jobs.get(binding.trim_end_matches("-job")).cloned().unwrap_or_default();
        let own = job["spec"]["tasks"][0]["replicas"].as_u64().unwrap_or(1);
        let queue = [QUEUE, QUEUE, QUEUE, "vision", "lab", "nobody's"][usize::try_from(self.prng.below(6)).unwrap()];
        let (pods, cpu) = match self.prng.below(4) {
            0 => (u64::from(u32::MAX), "1000000000".to_owned()),
            1 => (1, "0".to_owned()),
            2 => (1, "-1".to_owned()),
            _ => (own, (own * cores_of(&job)).to_string()),
        };
        let copies = if self.prng.below(8) == 0 { u32::MAX } else { 1 };
        let from = [i64::MIN, 0, 1_000_000_000, i64::MAX][usize::try_from(self.prng.below(4)).unwrap()];
        let seconds = [-1, 0, 1, i64::MAX][usize::try_from(self.prng.below(4)).unwrap()];
        let run = if self.prng.below(2) == 0 { Value::Null } else { json!({"from": from, "seconds": seconds}) };
        let record = match self.prng.below(12) {
            0 => "{\"queue\": 7}".to_owned(),
            _ => json!({
                "queue": queue, "priority": i32::MAX, "copies": copies, "tasks": {"t0": pods},
                "charged": {"cpu": cpu, "pods": pods.to_string()}, "run": run,
            })
            .to_string(),
        };
        let mut annotations = json!({GATE: "open", ADMISSION: record, EPOCH: epoch});
        let mut spec = json!({"suspension": {"scheduling": false}});
        if self.prng.below(2) == 0 {
            let (clusters, plan) = self.forge_clusters(binding);
            spec["clusters"] = clusters;
            annotations[PLAN] = plan;
        }
        json!({"metadata": {"annotations": annotations}, "spec": spec})
    }

    /// Clusters and a plan of them.
    fn forge_clusters(&mut self, binding: &str) -> (Value, Value) {
        let job = self.jobs.get(binding.trim_end_matches("-job")).cloned().unwrap_or_default();
        let own = job["spec"]["tasks"][0]["replicas"].as_u64().unwrap_or(1);
        let targets: &[(&str, u64)] = match self.prng.below(7) {
            0 => &[],
            1 => &[("nowhere", 2_147_483_647)],
            2 => &[("m1", 2_147_483_647), ("nowhere", 0)],
            3 => &[("m1", own), ("m2", own)],
            4 => &[("m2", own)],
            _ => &[("m1", own)],
        };
        let share = |pods: u64| {
            let minimum = pods.clamp(1, u64::from(u32::MAX));
            json!({"tasks": {"t0": {"replicas": pods, "minAvailable": pods}}, "minAvailable": minimum})
        };
        let shares: BTreeMap<&str, Value> = targets.iter().map(|(name, pods)| (*name, share(*pods))).collect();
        let clusters = targets.iter().map(|(name, pods)| json!({"name": name, "replicas": pods}));
        (clusters.collect(), json!({"clusters": shares}).to_string().into())
    }
}
