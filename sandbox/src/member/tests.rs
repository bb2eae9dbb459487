//! The member's stand-ins together, without a server: wants are applied to the world as an API server would, and time
//! moves when nothing is left to do.

use std::time::Duration;

use caldera_runtime::write::Body;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    job, kubelet,
    nodes::{self, NodeGroup},
    object::{key, number, text},
    schedule,
    world::{Kind, Want, World},
};

struct Cluster {
    world: World,
    now: Timestamp,
    version: u64,
    nodes: Vec<NodeGroup>,
}

impl Cluster {
    fn new(nodes: u32, cpu: &str) -> Self {
        let group = NodeGroup {
            prefix: "node".into(),
            count: nodes,
            allocatable: vec![("cpu".into(), cpu.into()), ("memory".into(), "8Gi".into())],
            labels: Vec::new(),
        };
        let mut cluster = Self {
            world: World::default(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            version: 0,
            nodes: vec![group],
        };
        cluster.settle();
        cluster
    }

    fn put(&mut self, kind: Kind, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        if text(&object, "/metadata/uid").is_empty() {
            object["metadata"]["uid"] = format!("uid-{}", self.version).into();
            object["metadata"]["creationTimestamp"] = self.now.to_string().into();
        }
        object["kind"] = kind.resource().kind.into();
        self.world.remember(kind, object);
    }

    fn carry_out(&mut self, want: Want) {
        let (kind, at) = want.about;
        let known = self.world.get(kind, &at).cloned();
        match want.write.body {
            Body::Create(binding) if want.write.subresource == Some("binding") => {
                let mut pod = known.expect("a bound pod is there");
                assert!(text(&pod, "/spec/nodeName").is_empty(), "bound twice");
                pod["spec"]["nodeName"] = binding["target"]["name"].clone();
                self.put(kind, pod);
            }
            Body::Create(object) => {
                assert!(known.is_none(), "created twice: {at:?}");
                self.put(kind, object);
            }
            Body::MergePatch(patch) => {
                let mut object = known.expect("a patched object is there");
                json_patch::merge(&mut object, &patch);
                self.put(kind, object);
            }
            Body::Delete { .. } => self.world.forget(kind, &at),
            other => panic!("unexpected {other:?}"),
        }
    }

    /// Carries out what is wanted until nothing is; returns when the next pod is due.
    fn settle(&mut self) -> Option<Timestamp> {
        for _ in 0..10_000 {
            let mut due = None;
            let mut wants = nodes::sync(&self.world, &self.nodes, self.now);
            wants.extend(nodes::queues(&self.world));
            wants.extend(super::workloads::sync(&self.world, self.now));
            for job in self.world.of(Kind::VolcanoJob) {
                wants.extend(job::sync(&self.world, job, self.now));
            }
            wants.extend(schedule::cycle(&self.world, self.now));
            for pod in self.world.of(Kind::Pod) {
                match kubelet::sync(&self.world, pod, Duration::from_secs(2), self.now) {
                    kubelet::Next::Settled => {}
                    kubelet::Next::At(at) => due = Some(due.map_or(at, |known: Timestamp| known.min(at))),
                    kubelet::Next::Write(want) => wants.push(*want),
                }
            }
            let mut seen = std::collections::BTreeSet::new();
            wants.retain(|want| seen.insert(want.about.clone()));
            if wants.is_empty() {
                return due;
            }
            for want in wants {
                self.carry_out(want);
            }
        }
        panic!("the stand-ins never settle");
    }

    /// Runs until nothing will happen any more.
    fn run(&mut self) {
        for _ in 0..100 {
            match self.settle() {
                None => return,
                Some(due) => self.now = due,
            }
        }
        panic!("something happens for ever");
    }

    fn job(&self, name: &str) -> &Value {
        self.world.get(Kind::VolcanoJob, &("ns".into(), name.into())).expect("the job is there")
    }

    fn phase(&self, name: &str) -> &str {
        text(self.job(name), "/status/state/phase")
    }
}

fn volcano_job(name: &str, min_available: u32, replicas: u32, cpu: &str, command: &str) -> Value {
    let mut job = json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name, "namespace": "ns"},
        "spec": {"queue": "default", "minAvailable": min_available, "tasks": [{
            "name": "t", "replicas": replicas,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{
                "name": "c", "image": "i", "command": ["sh", "-c", command],
                "resources": {"requests": {"cpu": cpu}},
            }]}},
        }]},
    });
    caldera_crds::job_admission::default_job(&mut job);
    job
}

#[test]
fn a_gang_runs_and_completes() {
    let mut cluster = Cluster::new(2, "4");
    cluster.put(Kind::VolcanoJob, volcano_job("j", 4, 4, "2", "sleep 3"));
    cluster.settle();
    assert_eq!(cluster.phase("j"), "Running");
    assert_eq!(number(cluster.job("j"), "/status/running"), 4);
    cluster.run();
    assert_eq!(cluster.phase("j"), "Completed");
    assert_eq!(cluster.job("j").pointer("/status/taskStatusCount/t/phase"), Some(&json!({"Succeeded": 4})));
    let group = cluster.world.of(Kind::PodGroup).next().unwrap();
    assert_eq!(text(group, "/status/phase"), "Completed");
}

#[test]
fn a_gang_that_does_not_fit_binds_nothing() {
    let mut cluster = Cluster::new(2, "3");
    // The sums fit (8 below 1.2 times 6 is false for 5 pods of 2; 4 pods of 2 pass enqueue but not the nodes).
    cluster.put(Kind::VolcanoJob, volcano_job("j", 3, 3, "2", "sleep 3"));
    cluster.run();
    assert_eq!(cluster.phase("j"), "Pending");
    assert!(cluster.world.of(Kind::Pod).all(|pod| text(pod, "/spec/nodeName").is_empty()));
    let group = cluster.world.of(Kind::PodGroup).next().unwrap();
    assert_eq!(text(group, "/status/conditions/0/type"), "Unschedulable");
}

#[test]
fn no_pods_before_the_podgroup_is_enqueued() {
    let mut cluster = Cluster::new(1, "2");
    cluster.put(Kind::VolcanoJob, volcano_job("j", 10, 10, "1", "sleep 1"));
    cluster.run();
    assert_eq!(cluster.world.of(Kind::Pod).count(), 0);
}

#[test]
fn a_failing_pod_fails_the_job_unless_a_policy_restarts_it() {
    let mut cluster = Cluster::new(1, "4");
    cluster.put(Kind::VolcanoJob, volcano_job("plain", 1, 1, "1", "exit 1"));
    let mut restarting = volcano_job("restarting", 1, 1, "1", "exit 1");
    restarting["spec"]["policies"] = json!([{"event": "PodFailed", "action": "RestartJob"}]);
    cluster.put(Kind::VolcanoJob, restarting);
    cluster.run();
    assert_eq!(cluster.phase("plain"), "Failed");
    assert_eq!(cluster.phase("restarting"), "Failed");
    assert_eq!(number(cluster.job("restarting"), "/status/retryCount"), 3);
}

#[test]
fn task_completed_completes_the_job() {
    let mut cluster = Cluster::new(1, "8");
    let mut job = volcano_job("mpi", 2, 1, "1", "sleep 2");
    let mut worker = job["spec"]["tasks"][0].clone();
    worker["name"] = "worker".into();
    worker["template"]["spec"]["containers"][0]["command"] = json!(["sh", "-c", "sleep 1000"]);
    job["spec"]["tasks"].as_array_mut().unwrap().push(worker);
    job["spec"]["tasks"][0]["policies"] = json!([{"event": "TaskCompleted", "action": "CompleteJob"}]);
    cluster.put(Kind::VolcanoJob, job);
    cluster.run();
    assert_eq!(cluster.phase("mpi"), "Completed");
    assert!(cluster.now < "2026-01-01T00:01:00Z".parse::<Timestamp>().unwrap());
}

#[test]
fn dependent_tasks_start_after_what_they_depend_on() {
    let mut cluster = Cluster::new(1, "8");
    let mut job = volcano_job("chain", 1, 1, "1", "sleep 2");
    let mut second = job["spec"]["tasks"][0].clone();
    second["name"] = "second".into();
    second["dependsOn"] = json!({"name": ["t"]});
    job["spec"]["tasks"].as_array_mut().unwrap().push(second);
    cluster.put(Kind::VolcanoJob, job);
    cluster.run();
    assert_eq!(cluster.phase("chain"), "Completed");
    let start = |pod: &str| {
        let pod = cluster.world.get(Kind::Pod, &("ns".into(), pod.into())).unwrap();
        text(pod, "/metadata/creationTimestamp").to_owned()
    };
    assert!(start("chain-t-0") <= start("chain-second-0"));
}

#[test]
fn a_closed_queue_enqueues_nothing() {
    let mut cluster = Cluster::new(1, "8");
    let mut queue = cluster.world.get(Kind::Queue, &(String::new(), "default".into())).unwrap().clone();
    queue["status"]["state"] = "Closed".into();
    cluster.put(Kind::Queue, queue);
    cluster.put(Kind::VolcanoJob, volcano_job("j", 1, 1, "1", "sleep 1"));
    cluster.run();
    assert_eq!(cluster.phase("j"), "Pending");
}

#[test]
fn a_deployment_gets_ready_and_scales() {
    let mut cluster = Cluster::new(1, "8");
    let deployment = |replicas: u32| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "ns", "uid": "d", "generation": 1},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "i", "command": ["sleep", "9000"]}], "restartPolicy": "Always"},
            }},
        })
    };
    cluster.put(Kind::Deployment, deployment(3));
    cluster.settle();
    let web = |cluster: &Cluster| cluster.world.get(Kind::Deployment, &("ns".into(), "web".into())).unwrap().clone();
    assert_eq!(number(&web(&cluster), "/status/readyReplicas"), 3);
    let mut scaled = web(&cluster);
    scaled["spec"]["replicas"] = 1.into();
    cluster.put(Kind::Deployment, scaled);
    cluster.settle();
    assert_eq!(number(&web(&cluster), "/status/readyReplicas"), 1);
    assert_eq!(cluster.world.of(Kind::Pod).count(), 1);
}

#[test]
fn a_batch_job_completes() {
    let mut cluster = Cluster::new(1, "8");
    cluster.put(
        Kind::BatchJob,
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "b", "namespace": "ns", "uid": "b"},
            "spec": {"parallelism": 2, "completions": 4, "template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "c", "image": "i", "command": ["sleep", "1"]}],
            }}},
        }),
    );
    cluster.run();
    let job = cluster.world.get(Kind::BatchJob, &("ns".into(), "b".into())).unwrap();
    assert_eq!(number(job, "/status/succeeded"), 4);
    assert!(job.pointer("/status/conditions").unwrap().to_string().contains("Complete"));
    assert_eq!(key(job).1, "b");
}
