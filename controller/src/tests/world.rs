//! A host in a few lines: objects with versions, the controller's writes carried out on them, and their echoes.

use std::{collections::BTreeMap, sync::Arc};

use caldera_core::fleet::Update;
use caldera_crds::{
    karmada::{cluster::Cluster, work::ResourceBinding},
    volcano::{
        bus::Command,
        scheduling::{PodGroup, Queue},
    },
    workload::WorkloadKind,
};
use caldera_runtime::{
    watch::Event,
    write::{Body, Failure, Write, WriteOutcome},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde_json::{Value, json};

use crate::{
    decide::{Controller, Shadow, decide},
    history::JobHistory,
    observe::{
        Binding, ClassFacts, ClusterFacts, CommandFacts, CronJobFacts, DataClaimFacts, DataSourceFacts, HyperJobFacts,
        Input, ObjectKind, PodGroupFacts, PolicyFacts, QueueFacts, Workload,
    },
    run::decision_log::{log_decision, open_decision_span},
    write::Decision,
};

type Name = (String, String, String);

pub struct World {
    pub controller: Controller,
    pub now: Timestamp,
    pub objects: BTreeMap<Name, Value>,
    /// Every write that was carried out.
    pub writes: Vec<Write>,
    version: u64,
    /// Writes that are still carried out; the process that sends the next one is gone before it arrives.
    pub budget: Option<usize>,
    /// Answers to writes of these kinds, in order, instead of carrying them out.
    pub fail: Vec<(&'static str, Failure)>,
    /// Answers to releases, in order, instead of carrying them out.
    pub refuse: Vec<Failure>,
    /// Releases that are carried out and whose answers are lost.
    pub lost: usize,
    /// Answers to evictions, in order, instead of carrying them out.
    pub refuse_evictions: Vec<Failure>,
    /// Whether the writes' echoes come by the watch too.
    pub echo: bool,
    /// Set where the controller decides beside another scheduler.
    pub shadow: Option<Shadow>,
}

impl World {
    /// With one cluster of 100 cpus, and queue `q` of `quota` cpus.
    pub fn new(quota: i64) -> Self {
        let mut world = Self::empty();
        world.cluster("m1", "100");
        world.queue("q", &json!({"capability": {"cpu": quota.to_string()}}));
        world.settle();
        world.writes.clear();
        world
    }

    /// With everything listed, and empty.
    pub fn empty() -> Self {
        let mut world = Self {
            controller: Controller::default(),
            now: Timestamp::from_second(1_000_000).unwrap(),
            objects: BTreeMap::new(),
            writes: Vec::new(),
            version: 0,
            budget: None,
            fail: Vec::new(),
            refuse: Vec::new(),
            refuse_evictions: Vec::new(),
            lost: 0,
            echo: true,
            shadow: None,
        };
        world.controller.preemption.schedule.policy.bounds.patience = 2;
        world.list();
        world
    }

    /// Tells that all kinds are listed.
    fn list(&mut self) {
        for input in [
            Input::Queues(Event::Reset(vec![])),
            Input::Bindings(Event::Reset(vec![])),
            Input::PodGroups(Event::Reset(vec![])),
            Input::Classes(Event::Reset(vec![])),
            Input::Clusters(Event::Reset(vec![])),
            Input::Namespaces(Event::Reset(vec![])),
            Input::DataSources(Event::Reset(vec![])),
            Input::DataClaims(Event::Reset(vec![])),
            Input::HyperJobs(Event::Reset(vec![])),
            Input::CapacityReservations(Event::Reset(vec![])),
            Input::Policies(Event::Reset(vec![])),
        ] {
            self.controller.observe(input, self.now);
        }
        for kind in WorkloadKind::ALL {
            self.controller.observe(Input::Workloads(kind, Event::Reset(vec![])), self.now);
        }
    }

    /// Tells the bindings that there are as the first list of a controller does.
    pub fn list_bindings(&mut self) {
        let is_binding = |object: &&Value| object["kind"] == "ResourceBinding";
        let read = |object: &Value| Binding::read(&serde_json::from_value::<ResourceBinding>(object.clone()).unwrap());
        let all = self.objects.values().filter(is_binding).map(read).collect();
        self.controller.objects.forget_listed(ObjectKind::Bindings);
        self.controller.observe(Input::Bindings(Event::Reset(all)), self.now);
    }

    /// Tells these clusters as the first list of a controller does.
    pub fn list_clusters(&mut self, clusters: Vec<Value>) {
        let read = |object: Value| ClusterFacts::read(&serde_json::from_value::<Cluster>(object).unwrap());
        self.controller.objects.forget_listed(ObjectKind::Clusters);
        self.controller.observe(Input::Clusters(Event::Reset(clusters.into_iter().map(read).collect())), self.now);
    }

    /// The same under the next lease, as each life of a controller has its own.
    pub fn begin_anew(&mut self) {
        self.restart_under(self.next_epoch(), None);
    }

    /// As [`begin_anew`](Self::begin_anew), and what was kept is read before the first lists are complete.
    pub fn begin_anew_with(&mut self, kept: JobHistory) {
        self.restart_under(self.next_epoch(), Some(kept));
    }

    fn next_epoch(&self) -> Option<Arc<str>> {
        let term: u64 = self.controller.jobs.epoch.as_deref()?.split_once('.')?.0.parse().ok()?;
        Some(format!("{}.me", term + 1).into())
    }

    /// Stores an object (creating or replacing it) and tells the index.
    pub fn put(&mut self, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let name = name_of(&object);
        if object["metadata"]["uid"].is_null() {
            let old = self.objects.get(&name).map(|old| old["metadata"]["uid"].clone());
            object["metadata"]["uid"] = old.unwrap_or_else(|| format!("uid-{}", self.version).into());
        }
        if object["metadata"]["creationTimestamp"].is_null() {
            object["metadata"]["creationTimestamp"] = caldera_runtime::clock::format_time(self.now).into();
        }
        self.objects.insert(name, object.clone());
        self.report(&object, false);
        object
    }

    pub fn delete(&mut self, kind: &str, name: &str) {
        let key = self.objects.keys().find(|key| key.0 == kind && key.2 == name).cloned().unwrap();
        let object = self.objects.remove(&key).unwrap();
        self.report(&object, true);
    }

    pub fn get(&self, kind: &str, name: &str) -> &Value {
        let found = self.objects.iter().find(|(key, _)| key.0 == kind && key.2 == name);
        found.map_or(&Value::Null, |(_, object)| object)
    }

    pub fn report(&mut self, object: &Value, gone: bool) {
        if object["kind"] == "Event" {
            return;
        }
        match (input(object, gone), &mut self.shadow) {
            (Input::Bindings(event), Some(shadow)) => shadow.observe_bindings(&mut self.controller, event, self.now),
            (input, _) => self.controller.observe(input, self.now),
        }
    }

    pub fn cluster(&mut self, name: &str, cpu: &str) {
        let serves = json!([
            {"groupVersion": "batch.volcano.sh/v1alpha1", "resources": [{"name": "jobs", "kind": "Job"}]},
            {"groupVersion": "batch/v1", "resources": [{"name": "jobs", "kind": "Job"}]},
            {"groupVersion": "v1", "resources": [{"name": "pods", "kind": "Pod"}]},
            {"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]},
        ]);
        self.put(json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
            "spec": {"syncMode": "Push"},
            "status": {
                "apiEnablements": serves,
                "conditions": [{"type": "Ready", "status": "True", "reason": "r", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                "resourceSummary": {"allocatable": {"cpu": cpu, "memory": "1Ti", "pods": "1000"}},
            },
        }));
        // Its summary is all there is.
        let down = Update::Down("not reached in this test".into());
        self.controller.observe(Input::Member(name.to_owned(), down), self.now);
    }

    pub fn queue(&mut self, name: &str, spec: &Value) {
        let status = self.get("Queue", name)["status"].clone();
        self.put(json!({
            "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name},
            "spec": spec, "status": status,
        }));
    }

    /// A Command for a queue.
    pub fn command(&mut self, action: &str, queue: &str) {
        self.put(json!({
            "apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command",
            "metadata": {"namespace": "default", "name": format!("{}-{queue}", action.to_lowercase())},
            "action": action,
            "target": {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "name": queue, "uid": ""},
        }));
    }

    /// State of a queue, and its mark.
    pub fn state(&self, queue: &str) -> (&str, &str) {
        let queue = self.get("Queue", queue);
        let mark = &queue["metadata"]["annotations"]["volcano.sh/closed-by-parent"];
        (queue["status"]["state"].as_str().unwrap_or(""), mark.as_str().unwrap_or(""))
    }

    /// The controller starts anew, and lists what there is.
    pub fn restart(&mut self) {
        self.restart_under(None, None);
    }

    fn restart_under(&mut self, epoch: Option<Arc<str>>, kept: Option<JobHistory>) {
        let now = self.now;
        let mut new = Self::empty();
        std::mem::swap(&mut self.controller, &mut new.controller);
        self.controller.jobs.epoch = epoch;
        self.now = now;
        kept.into_iter().for_each(|kept| self.controller.observe(Input::JobHistory(kept), now));
        let objects: Vec<Value> = self.objects.values().cloned().collect();
        self.list_bindings();
        objects.iter().for_each(|object| self.report(object, false));
        for cluster in objects.iter().filter(|object| object["kind"] == "Cluster") {
            let name = cluster["metadata"]["name"].as_str().unwrap().to_owned();
            self.controller.observe(Input::Member(name, Update::Down("not reached in this test".into())), now);
        }
    }

    /// A Volcano Job of `pods` pods of one cpu, and its gated binding.
    pub fn job(&mut self, name: &str, queue: &str, pods: u32) {
        self.now = self.now.saturating_add(SignedDuration::from_secs(1)).unwrap();
        let job = self.put(job(name, queue, pods));
        self.bind(&job, pods, true);
    }

    pub fn bind(&mut self, workload: &Value, replicas: u32, gated: bool) {
        let metadata = &workload["metadata"];
        let kind = workload["kind"].as_str().unwrap();
        let mut binding = json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
            "metadata": {"name": format!("{}-{}", metadata["name"].as_str().unwrap(), kind.to_lowercase()), "namespace": "ns"},
            "spec": {
                "resource": {
                    "apiVersion": workload["apiVersion"], "kind": kind, "namespace": "ns",
                    "name": metadata["name"], "uid": metadata["uid"],
                },
                "replicas": replicas,
                "placement": {"replicaScheduling": {
                    "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated",
                }},
            },
        });
        if gated {
            binding["metadata"]["annotations"] = json!({"caldera.dev/gate": "closed"});
            binding["spec"]["suspension"] = json!({"scheduling": true});
        }
        self.put(binding);
    }

    /// Changes an object by a merge patch, as somebody else would.
    pub fn patch(&mut self, kind: &str, name: &str, patch: &Value) {
        let mut object = self.get(kind, name).clone();
        json_patch::merge(&mut object, patch);
        self.put(object);
    }

    /// What the scheduler does.
    pub fn place(&mut self, binding: &str, replicas: u32) {
        self.patch("ResourceBinding", binding, &json!({"spec": {"clusters": [{"name": "m1", "replicas": replicas}]}}));
    }

    /// What its clusters say of a job, and so the job itself.
    pub fn phase(&mut self, job: &str, phase: &str) {
        let binding = format!("{job}-job");
        let clusters = self.get("ResourceBinding", &binding)["spec"]["clusters"].clone();
        let reported = |cluster: &Value| json!({"clusterName": cluster["name"], "status": {"state": {"phase": phase}}});
        let reported: Vec<Value> = clusters.as_array().into_iter().flatten().map(reported).collect();
        self.patch("ResourceBinding", &binding, &json!({"status": {"aggregatedStatus": reported}}));
        let running = u32::from(phase == "Running") * 1000;
        self.patch("Job", job, &json!({"status": {"state": {"phase": phase}, "running": running}}));
    }

    /// Plans and carries out until nothing more is to be done now; returns what was released, in order.
    pub fn settle(&mut self) -> Vec<String> {
        let mut released = Vec::new();
        for _ in 0..50 {
            let decisions = decide(&mut self.controller, self.now);
            let more = decisions.next.is_some_and(|at| at <= self.now);
            if decisions.writes.is_empty() && !more {
                return released;
            }
            for decision in decisions.writes {
                let span = open_decision_span(&self.controller, &decision);
                span.in_scope(|| log_decision(&self.controller, &decision));
                match &mut self.budget {
                    Some(0) => return released,
                    Some(left) => *left -= 1,
                    None => {}
                }
                if let Decision::Release { key, .. } = &decision {
                    released.push(key.name.to_string());
                }
                let result = match (&decision, self.refuse.is_empty()) {
                    (Decision::Release { .. }, _) if self.lost > 0 => {
                        self.lost -= 1;
                        let _ = self.carry_out(&decision.to_write(self.now));
                        Err(Failure::Transient("its answer is lost".into()))
                    }
                    (Decision::Release { .. }, false) => Err(self.refuse.remove(0)),
                    (Decision::Evict { .. }, _) if !self.refuse_evictions.is_empty() => {
                        Err(self.refuse_evictions.remove(0))
                    }
                    _ => self.carry_out(&decision.to_write(self.now)),
                };
                self.controller.apply_write_answer(WriteOutcome { tag: decision.tag(), result }, self.now);
            }
        }
        panic!("it never comes to rest");
    }

    /// Lets time pass.
    pub fn pass(&mut self, seconds: i64) -> Vec<String> {
        let mut released = Vec::new();
        for _ in 0..seconds {
            self.now = self.now.saturating_add(SignedDuration::from_secs(1)).unwrap();
            released.extend(self.settle());
        }
        released
    }

    pub fn carry_out(&mut self, write: &Write) -> Result<Value, Failure> {
        if let Some(at) = self.fail.iter().position(|(plural, _)| *plural == write.resource.plural) {
            return Err(self.fail.remove(at).1);
        }
        self.writes.push(write.clone());
        let name = (write.resource.kind.clone(), write.namespace.clone(), write.name.clone());
        let mut object = match (&write.body, self.objects.get(&name)) {
            (Body::Create(_), Some(_)) => return Err(Failure::Exists(write.name.clone())),
            (Body::Create(object), None) => object.clone(),
            (_, None) => return Err(Failure::Gone(write.name.clone())),
            (_, Some(object)) => object.clone(),
        };
        match &write.body {
            Body::JsonPatch(patch) => {
                let patch: json_patch::Patch = serde_json::from_value(patch.clone()).unwrap();
                json_patch::patch(&mut object, &patch).map_err(|error| Failure::Conflict(error.to_string()))?;
            }
            Body::MergePatch(patch) => {
                let version = &patch["metadata"]["resourceVersion"];
                if version.is_string() && *version != object["metadata"]["resourceVersion"] {
                    return Err(Failure::Conflict("changed".into()));
                }
                json_patch::merge(&mut object, patch);
            }
            Body::DeleteUnchanged { uid, resource_version } => {
                let metadata = &object["metadata"];
                if metadata["uid"] != **uid || metadata["resourceVersion"] != **resource_version {
                    return Err(Failure::Conflict("changed".into()));
                }
                self.objects.remove(&name);
                self.report(&object, true);
                return Ok(object);
            }
            Body::Delete { .. } => {
                self.objects.remove(&name);
                self.report(&object, true);
                return Ok(object);
            }
            _ => {}
        }
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = format!("uid-{}", self.version).into();
        }
        self.objects.insert(name, object.clone());
        if self.echo {
            self.report(&object, false);
        }
        Ok(object)
    }

    /// The PodGroup of a job.
    pub fn group(&self, job: &str) -> &Value {
        let found = self.objects.iter().find(|(key, object)| {
            key.0 == "PodGroup" && object["metadata"]["labels"]["caldera.dev/workload-name"] == job
        });
        found.map_or(&Value::Null, |(_, object)| object)
    }

    pub fn says(&self, job: &str) -> (String, String) {
        let condition = &self.group(job)["status"]["conditions"][0];
        let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        (text("reason"), text("message"))
    }

    pub fn events(&self) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let events = self.objects.iter().filter(|(key, _)| key.0 == "Event");
        events.map(|(_, event)| (text(&event["type"]), text(&event["reason"]))).collect()
    }

    pub fn used(&self, queue: &str) -> String {
        self.controller.jobs.engine.usage_of(&queue.into()).used.get("cpu").to_string()
    }
}

/// What a watch tells of an object.
pub fn input(object: &Value, gone: bool) -> Input {
    fn event<T>(value: T, gone: bool) -> Event<T> {
        if gone { Event::Deleted(value) } else { Event::Applied(value) }
    }
    let object = object.clone();
    match object["kind"].as_str().unwrap() {
        "Queue" => Input::Queues(event(QueueFacts::read(&serde_json::from_value::<Queue>(object).unwrap()), gone)),
        "ResourceBinding" => {
            Input::Bindings(event(Binding::read(&serde_json::from_value::<ResourceBinding>(object).unwrap()), gone))
        }
        "PodGroup" => {
            Input::PodGroups(event(PodGroupFacts::read(&serde_json::from_value::<PodGroup>(object).unwrap()), gone))
        }
        "PriorityClass" => {
            Input::Classes(event(ClassFacts::read(&serde_json::from_value::<PriorityClass>(object).unwrap()), gone))
        }
        "Cluster" => {
            Input::Clusters(event(ClusterFacts::read(&serde_json::from_value::<Cluster>(object).unwrap()), gone))
        }
        "Command" => {
            let command = serde_json::from_value::<Command>(object).unwrap();
            Input::Commands(event(CommandFacts::read(&command).unwrap(), gone))
        }
        "CronJob" => {
            let facts = CronJobFacts::read(object).unwrap();
            Input::CronJobs(facts.key.0, event(facts, gone))
        }
        "DataSource" => {
            Input::DataSources(event(DataSourceFacts::read(&serde_json::from_value(object).unwrap()), gone))
        }
        "DataSourceClaim" => {
            Input::DataClaims(event(DataClaimFacts::read(&serde_json::from_value(object).unwrap()), gone))
        }
        "HyperJob" => Input::HyperJobs(event(HyperJobFacts::read(object).unwrap(), gone)),
        "PropagationPolicy" => Input::Policies(event(PolicyFacts::read(&object).unwrap(), gone)),
        "CapacityReservation" => Input::CapacityReservations(event(serde_json::from_value(object).unwrap(), gone)),
        "FederationTopology" => Input::Links(event(serde_json::from_value(object).unwrap(), gone)),
        _ => {
            let workload = Workload::read(&object).unwrap();
            Input::Workloads(workload.kind, event(workload, gone))
        }
    }
}

fn name_of(object: &Value) -> Name {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&object["kind"]), text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]))
}

pub fn job(name: &str, queue: &str, pods: u32) -> Value {
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name, "namespace": "ns"},
        "spec": {"queue": queue, "minAvailable": pods, "tasks": [{
            "name": "worker", "replicas": pods,
            "template": {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}},
        }]},
    })
}

/// For matching on what a write was.
pub fn is_release(write: &Decision) -> bool {
    matches!(write, Decision::Release { .. } | Decision::Resize { .. })
}
