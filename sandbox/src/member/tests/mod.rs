//! The member's stand-ins together, without a server: wants are applied to the world as an API server would, and time
//! moves when nothing is left to do.

mod commands;
mod examples;
mod gangs;
mod jobs;
mod plugins;
mod properties;
mod queues;
mod speed;
mod topology;
mod workloads;

use std::collections::BTreeMap;

use caldera_runtime::write::Body;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Config, Memory, Plan, admission,
    nodes::NodeGroup,
    object::{deleting, key, list, number, text, uid},
    plan, schedule,
    world::{Kind, Landing, ObjectKey, Want, World},
};

struct Cluster {
    world: World,
    now: Timestamp,
    version: u64,
    config: Config,
    memory: Memory,
    /// Objects of kinds that are not watched.
    made: BTreeMap<ObjectKey, Value>,
    /// Writes that the admission refused.
    refused: Vec<String>,
    writes: usize,
}

impl Cluster {
    fn new(nodes: u32, cpu: &str) -> Self {
        let group = NodeGroup {
            prefix: "node".into(),
            count: nodes,
            allocatable: vec![("cpu".into(), cpu.into()), ("memory".into(), "64Gi".into())],
            labels: Vec::new(),
        };
        let mut cluster = Self {
            world: World::default(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            version: 0,
            config: Config { nodes: vec![group], ..Config::default() },
            memory: Memory::default(),
            made: BTreeMap::new(),
            refused: Vec::new(),
            writes: 0,
        };
        cluster.settle();
        cluster
    }

    fn put(&mut self, kind: Kind, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        if text(&object, "/metadata/uid").is_empty() {
            object["metadata"]["uid"] = format!("uid-{}", self.version).into();
            object["metadata"]["creationTimestamp"] = caldera_runtime::clock::format_time(self.now).into();
        }
        object["kind"] = kind.resource().kind.into();
        if Kind::WATCHED.contains(&kind) {
            self.world.remember(kind, object.clone());
        } else {
            self.made.insert((kind, key(&object)), object.clone());
        }
        object
    }

    /// Somebody creates a job: admission first, as the API server would.
    fn submit(&mut self, mut job: Value) -> Result<(), Vec<String>> {
        caldera_crds::job_admission::fill_job_defaults(&mut job);
        let queues: Vec<Value> = self.world.of(Kind::Queue).cloned().collect();
        let review = json!({"request": {"operation": "CREATE", "object": job}});
        let refusals = admission::job_refusals(&review, &queues);
        if !refusals.is_empty() {
            return Err(refusals);
        }
        self.put(Kind::VolcanoJob, job);
        Ok(())
    }

    fn find(&self, at: &ObjectKey) -> Option<Value> {
        self.world.get(at.0, &at.1).or_else(|| self.made.get(at)).cloned()
    }

    fn carry_out(&mut self, want: Want) {
        let about = want.about.clone();
        if !self.world.take_off(&want) {
            return;
        }
        self.writes += 1;
        let known = self.find(&about);
        let landing = match want.write.body {
            Body::Create(binding) if want.write.subresource == Some("binding") => {
                let mut pod = known.expect("a bound pod is there");
                assert!(text(&pod, "/spec/nodeName").is_empty(), "bound twice");
                assert!(!deleting(&pod), "bound on its way out");
                pod["spec"]["nodeName"] = binding["target"]["name"].clone();
                self.put(about.0, pod);
                Landing::Written(json!({"kind": "Status"}))
            }
            Body::Create(_) if known.is_some() => Landing::Exists,
            Body::Create(object) => self.create(about.0, object),
            Body::MergePatch(patch) => {
                let mut object = known.expect("a patched object is there");
                let before = object.clone();
                json_patch::merge(&mut object, &patch);
                assert_ne!(before, object, "a write that changes nothing: {about:?} {patch}");
                Landing::Written(self.put(about.0, object))
            }
            Body::Delete { uid } => self.delete(&about, uid.as_deref(), false),
            Body::DeleteNow { uid } => self.delete(&about, Some(&uid), true),
            other => panic!("unexpected {other:?}"),
        };
        self.world.land(&about, landing);
    }

    fn create(&mut self, kind: Kind, mut object: Value) -> Landing {
        if kind == Kind::PodGroup {
            if text(&object, "/spec/queue").is_empty() {
                object["spec"]["queue"] = "default".into();
            }
            let queues: Vec<Value> = self.world.of(Kind::Queue).cloned().collect();
            if let Some(refusal) = admission::group_refusal(&object, &queues) {
                self.refused.push(refusal);
                return Landing::Failed;
            }
        }
        Landing::Written(self.put(kind, object))
    }

    /// A pod that runs on a node goes only when its kubelet says so; what an object owns goes with it.
    fn delete(&mut self, about: &ObjectKey, wanted: Option<&str>, at_once: bool) -> Landing {
        let Some(mut object) = self.find(about) else { return Landing::Gone };
        assert!(wanted.is_none_or(|wanted| wanted == uid(&object)), "another object of that name");
        let ended = matches!(text(&object, "/status/phase"), "Succeeded" | "Failed");
        if about.0 == Kind::Pod && !at_once && !ended && !text(&object, "/spec/nodeName").is_empty() {
            object["metadata"]["deletionTimestamp"] = self.now.to_string().into();
            self.put(about.0, object);
            return Landing::Deleted;
        }
        if about.0 != Kind::Command {
            self.world.forget(about.0, &about.1);
        }
        self.made.remove(about);
        let owned: Vec<ObjectKey> = [Kind::Pod, Kind::PodGroup, Kind::PersistentVolumeClaim]
            .into_iter()
            .flat_map(|kind| self.world.of(kind).map(move |owned| (kind, owned)))
            .filter(|(_, owned)| {
                list(owned, "/metadata/ownerReferences").iter().any(|o| text(o, "/uid") == uid(&object))
            })
            .map(|(kind, owned)| (kind, key(owned)))
            .collect();
        for owned in owned {
            self.world.forget(owned.0, &owned.1);
        }
        Landing::Deleted
    }

    /// Carries out what is wanted until nothing is; returns when something is due.
    fn settle(&mut self) -> Option<Timestamp> {
        for _ in 0..10_000 {
            self.world.set_time(self.now);
            let Plan { mut wants, reports, at } = plan(&self.world, &self.config, &mut self.memory, self.now);
            wants.extend(reports);
            let refused = self.refused.len();
            let wanted = wants.len();
            for want in wants {
                // As with a server, the world moves on while a plan is carried out.
                let stale = want.write.subresource.is_some() && self.find(&want.about).is_none();
                if !stale && !self.is_outdated(&want) {
                    self.carry_out(want);
                }
            }
            self.check();
            // What is refused for ever is no progress.
            if wanted == 0 || wanted == self.refused.len() - refused {
                return at;
            }
        }
        panic!("the stand-ins never settle");
    }

    /// A second write to an object in one round was planned without knowing the first: a server's writer would have
    /// dropped it.
    fn is_outdated(&self, want: &Want) -> bool {
        let gone = self.find(&want.about).is_none();
        match &want.write.body {
            Body::MergePatch(patch) => {
                let Some(object) = self.find(&want.about) else { return true };
                let mut after = object.clone();
                json_patch::merge(&mut after, patch);
                after == object
            }
            Body::Create(_) if want.write.subresource.is_some() => {
                gone || self
                    .find(&want.about)
                    .is_some_and(|pod| deleting(&pod) || !text(&pod, "/spec/nodeName").is_empty())
            }
            Body::DeleteNow { uid: wanted } => self.find(&want.about).is_some_and(|object| uid(&object) != wanted),
            Body::Delete { uid: Some(wanted) } => self.find(&want.about).is_some_and(|object| uid(&object) != wanted),
            _ => false,
        }
    }

    /// What must hold at any time: no node carries more than it has.
    fn check(&self) {
        for (name, node) in self.world.nodes() {
            let mut used = caldera_core::resources::Resources::new();
            for (_, pod) in self.world.pods().filter(|(_, pod)| pod.node == **name && pod.holds()) {
                used.add(&pod.claim.request);
            }
            assert!(used.fits_in(&node.allocatable), "node {name} carries {used} of {}", node.allocatable);
        }
    }

    /// Runs until nothing will happen any more.
    fn run(&mut self) {
        for _ in 0..200 {
            match self.settle() {
                None => return,
                Some(due) => self.now = due.max(self.now),
            }
        }
        panic!("something happens for ever");
    }

    fn run_until(&mut self, time: &str) {
        let end: Timestamp = time.parse().unwrap();
        while let Some(due) = self.settle().filter(|due| *due <= end) {
            self.now = due.max(self.now);
        }
        self.now = end;
        self.settle();
    }

    fn job(&self, name: &str) -> &Value {
        self.world.get(Kind::VolcanoJob, &("ns".into(), name.into())).expect("the job is there")
    }

    fn phase(&self, name: &str) -> &str {
        text(self.job(name), "/status/state/phase")
    }

    fn pod(&self, name: &str) -> &Value {
        self.world.get(Kind::Pod, &("ns".into(), name.into())).expect("the pod is there")
    }

    fn pods(&self) -> Vec<&str> {
        self.world.of(Kind::Pod).map(|pod| text(pod, "/metadata/name")).collect()
    }

    fn bound(&self) -> usize {
        self.world.pods().filter(|(_, pod)| pod.holds()).count()
    }

    fn group(&self, job: &str) -> &Value {
        let name = super::job::podgroup_name(self.job(job));
        self.world.get(Kind::PodGroup, &("ns".into(), name)).expect("its group is there")
    }

    fn queue(&self, name: &str) -> &Value {
        self.world.named(Kind::Queue, name).expect("the queue is there")
    }

    #[allow(clippy::needless_pass_by_value)]
    fn add_queue(&mut self, name: &str, spec: Value) {
        self.put(Kind::Queue, json!({"metadata": {"name": name}, "spec": spec}));
        self.settle();
    }

    /// Somebody other than the stand-ins deletes a pod.
    fn evict(&mut self, pod: &str) {
        let at = (Kind::Pod, ("ns".to_owned(), pod.to_owned()));
        self.delete(&at, None, false);
    }
}

fn task(name: &str, replicas: u32, cpu: &str, command: &str) -> Value {
    json!({
        "name": name, "replicas": replicas,
        "template": {"spec": {"restartPolicy": "Never", "containers": [{
            "name": "c", "image": "i", "command": ["sh", "-c", command], "resources": {"requests": {"cpu": cpu}},
        }]}},
    })
}

#[allow(clippy::needless_pass_by_value)]
fn job_of(name: &str, tasks: Vec<Value>) -> Value {
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name, "namespace": "ns"},
        "spec": {"tasks": tasks},
    })
}

fn volcano_job(name: &str, min_available: u32, replicas: u32, cpu: &str, command: &str) -> Value {
    let mut job = job_of(name, vec![task("t", replicas, cpu, command)]);
    job["spec"]["minAvailable"] = min_available.into();
    job
}
