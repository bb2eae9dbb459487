//! A member's stand-ins against a real API server (the embedded one): what they write must be accepted, and what
//! Volcano refuses must be refused.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use caldera_runtime::{
    client::WriteCounts,
    write::{self, Body, Failure, Write},
};
use caldera_sandbox::{
    fleet::{Config, Fleet},
    member::{
        kinds::Kind,
        object::{number, text},
    },
};
use kube::Client;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

struct Member {
    client: Client,
    stop: CancellationToken,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Member {
    async fn start() -> Self {
        let stop = CancellationToken::new();
        let fleet = Fleet::start(Config::with_members(1), &stop).await.expect("a fleet of one member");
        let client = fleet.members[0].client("test", &WriteCounts::default()).expect("a client");
        let member = Self { client, stop };
        member.until(Kind::Queue, "", "default", |queue| text(queue, "/status/state") == "Open").await;
        member
    }

    async fn write(
        &self,
        kind: Kind,
        name: &str,
        subresource: Option<&'static str>,
        body: Body,
    ) -> Result<Value, Failure> {
        let namespace = if matches!(kind, Kind::Queue | Kind::Node) { "" } else { "default" };
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        write::execute_write(&self.client, &Write { resource: kind.resource(), namespace, name, subresource, body })
            .await
    }

    async fn create(&self, kind: Kind, mut object: Value) -> Result<Value, Failure> {
        object["apiVersion"] = kind.resource().api_version.into();
        object["kind"] = kind.resource().kind.into();
        let name = text(&object, "/metadata/name").to_owned();
        self.write(kind, &name, None, Body::Create(object)).await
    }

    async fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<Value> {
        let resource = kind.resource();
        let api = if namespace.is_empty() {
            kube::Api::<kube::api::DynamicObject>::all_with(self.client.clone(), &resource)
        } else {
            kube::Api::namespaced_with(self.client.clone(), namespace, &resource)
        };
        let found = api.get_opt(name).await.expect("an answer")?;
        Some(serde_json::to_value(found).expect("JSON"))
    }

    /// Waits until the object is as wanted.
    async fn until(&self, kind: Kind, namespace: &str, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let found = self.get(kind, namespace, name).await;
            if let Some(found) = found.as_ref().filter(|found| wanted(found)) {
                return found.clone();
            }
            assert!(start.elapsed() < Duration::from_secs(120), "{kind:?} {name}: {found:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn until_gone(&self, kind: Kind, name: &str) {
        let start = Instant::now();
        while self.get(kind, "default", name).await.is_some() {
            assert!(start.elapsed() < Duration::from_secs(120), "{kind:?} {name} stays");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn pod(command: &str) -> Value {
    json!({"restartPolicy": "Never", "containers": [{
        "name": "c", "image": "i", "command": ["sh", "-c", command], "resources": {"requests": {"cpu": "1"}},
    }]})
}

fn job(name: &str, replicas: u32, command: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"tasks": [{"name": "t", "replicas": replicas, "template": {"spec": pod(command)}}]},
    })
}

fn phase(wanted: &str) -> impl Fn(&Value) -> bool {
    let wanted = wanted.to_owned();
    move |job| text(job, "/status/state/phase") == wanted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_does_its_work_through_the_api() {
    let member = Member::start().await;
    // A job with plugins runs, and what its plugins made goes when it ends.
    let mut plugged = job("plugged", 2, "sleep 2");
    plugged["spec"]["plugins"] = json!({"env": [], "ssh": [], "svc": []});
    plugged["spec"]["ttlSecondsAfterFinished"] = 10.into();
    member.create(Kind::VolcanoJob, plugged).await.expect("a valid job");
    member.until(Kind::VolcanoJob, "default", "plugged", phase("Running")).await;
    for (kind, name) in [
        (Kind::Service, "plugged"),
        (Kind::ConfigMap, "plugged-svc"),
        (Kind::NetworkPolicy, "plugged"),
        (Kind::Secret, "plugged-ssh"),
    ] {
        member.until(kind, "default", name, |_| true).await;
    }
    let running = member.get(Kind::Pod, "default", "plugged-t-0").await.expect("its pod");
    assert!(text(&running, "/status/podIP").starts_with("100."));
    // The pass that completes a job still counts its pods; the next one forgets them.
    let forgotten = |job: &Value| phase("Completed")(job) && job.pointer("/status/taskStatusCount").is_none();
    member.until(Kind::VolcanoJob, "default", "plugged", forgotten).await;
    member.until_gone(Kind::Secret, "plugged-ssh").await;
    member.until_gone(Kind::Service, "plugged").await;
    member.until_gone(Kind::VolcanoJob, "plugged").await;
    member.until_gone(Kind::Pod, "plugged-t-0").await;

    // A running pod that is deleted is stopped by its kubelet; a policy restarts the job; a command aborts it.
    let mut restarted = job("restarted", 1, "sleep 600");
    restarted["spec"]["policies"] = json!([{"event": "PodEvicted", "action": "RestartJob"}]);
    member.create(Kind::VolcanoJob, restarted).await.expect("a valid job");
    member.until(Kind::Pod, "default", "restarted-t-0", |pod| text(pod, "/status/phase") == "Running").await;
    member.until(Kind::VolcanoJob, "default", "restarted", phase("Running")).await;
    member.write(Kind::Pod, "restarted-t-0", None, Body::Delete { uid: None }).await.expect("a deletion");
    let again = |job: &Value| phase("Running")(job) && number(job, "/status/retryCount") == 1;
    let again = member.until(Kind::VolcanoJob, "default", "restarted", again).await;
    let target = json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "restarted", "uid": again["metadata"]["uid"],
    });
    let abort = json!({"metadata": {"name": "abort", "namespace": "default"}, "action": "AbortJob", "target": target});
    member.create(Kind::Command, abort).await.expect("a command");
    member.until(Kind::VolcanoJob, "default", "restarted", phase("Aborted")).await;
    member.until_gone(Kind::Command, "abort").await;

    // Kubernetes' own workloads.
    let batch = json!({
        "metadata": {"name": "batch", "namespace": "default"},
        "spec": {"completions": 2, "parallelism": 1, "template": {"spec": pod("sleep 1")}},
    });
    member.create(Kind::BatchJob, batch).await.expect("a valid job");
    let failing = json!({
        "metadata": {"name": "failing", "namespace": "default"},
        "spec": {"backoffLimit": 0, "parallelism": 2, "completions": 2, "template": {"spec": pod("sleep 1; exit 1")}},
    });
    member.create(Kind::BatchJob, failing).await.expect("a valid job");
    let deployment = json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"schedulerName": "volcano", "containers": [{"name": "c", "image": "i"}]},
        }},
    });
    member.create(Kind::Deployment, deployment).await.expect("a valid deployment");
    member.until(Kind::BatchJob, "default", "batch", |job| job["status"].to_string().contains("\"Complete\"")).await;
    member.until(Kind::BatchJob, "default", "failing", |job| job["status"].to_string().contains("\"Failed\"")).await;
    member.until(Kind::Deployment, "default", "web", |web| number(web, "/status/availableReplicas") == 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_refuses_what_volcano_refuses() {
    let member = Member::start().await;
    let refused = |result: Result<Value, Failure>| match result {
        Err(Failure::Refused { message, .. }) => message,
        other => panic!("not refused: {other:?}"),
    };
    let mut nowhere = job("nowhere", 1, "true");
    nowhere["spec"]["queue"] = "nowhere".into();
    let message = refused(member.create(Kind::VolcanoJob, nowhere).await);
    assert!(message.contains("unable to find job queue"), "{message}");
    let queue = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
    let message = refused(
        member.create(Kind::Queue, queue("q", json!({"deserved": {"cpu": "2"}, "capability": {"cpu": "1"}}))).await,
    );
    assert!(message.contains("deserved[cpu]=2 must be <= capability[cpu]=1"), "{message}");
    let message = refused(member.create(Kind::Queue, queue("q", json!({"parent": "nobody"}))).await);
    assert!(message.contains("failed to get parent queue nobody of queue q"), "{message}");
    let message = refused(member.write(Kind::Queue, "default", None, Body::Delete { uid: None }).await);
    assert!(message.contains("`default` queue can not be deleted"), "{message}");
    // Queues get Volcano's defaults.
    let made = member.create(Kind::Queue, queue("q", json!({}))).await.expect("a valid queue");
    assert_eq!((made["spec"]["weight"].clone(), made["spec"]["reclaimable"].clone()), (json!(1), json!(true)));
    member.until(Kind::Queue, "", "q", |queue| text(queue, "/spec/parent") == "root").await;
    // A job may not change but in its numbers.
    member.create(Kind::VolcanoJob, job("fixed", 1, "sleep 600")).await.expect("a valid job");
    let change = json!({"spec": {"queue": "q"}});
    let message = refused(member.write(Kind::VolcanoJob, "fixed", None, Body::MergePatch(change)).await);
    assert!(message.contains("job updates may not change fields other than"), "{message}");
}
