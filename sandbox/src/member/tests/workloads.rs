//! Deployments, StatefulSets and batch Jobs.

use super::*;

fn deployment(replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "ns", "uid": "d", "generation": 1},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
        }},
    })
}

fn at(cluster: &Cluster, kind: Kind, name: &str) -> Value {
    cluster.world.get(kind, &("ns".into(), name.into())).expect("it is there").clone()
}

fn condition(object: &Value, kind: &str) -> String {
    let found = list(object, "/status/conditions").iter().find(|condition| text(condition, "/type") == kind);
    found.map(|found| format!("{} {}", text(found, "/status"), text(found, "/reason"))).unwrap_or_default()
}

#[test]
fn a_deployment_gets_ready_and_scales() {
    let mut cluster = Cluster::new(1, "3");
    cluster.put(Kind::Deployment, deployment(3));
    cluster.settle();
    let web = at(&cluster, Kind::Deployment, "web");
    let counts = ["replicas", "readyReplicas", "availableReplicas", "updatedReplicas", "observedGeneration"];
    assert_eq!(counts.map(|count| number(&web, &format!("/status/{count}"))), [3, 3, 3, 3, 1]);
    assert_eq!(condition(&web, "Available"), "True MinimumReplicasAvailable");
    assert_eq!(condition(&web, "Progressing"), "True NewReplicaSetAvailable");
    let set = cluster.world.of(Kind::ReplicaSet).next().unwrap();
    assert_eq!(set["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");
    assert_eq!(web["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");
    let hash = text(set, "/metadata/labels/pod-template-hash").to_owned();
    assert_eq!(text(set, "/metadata/name"), format!("web-{hash}"));
    assert!(cluster.pods().iter().all(|pod| pod.len() == "web-".len() + 10 + 1 + 5), "{:?}", cluster.pods());

    let mut scaled = at(&cluster, Kind::Deployment, "web");
    scaled["spec"]["replicas"] = 5.into();
    cluster.put(Kind::Deployment, scaled);
    cluster.run();
    let web = at(&cluster, Kind::Deployment, "web");
    assert_eq!((number(&web, "/status/readyReplicas"), number(&web, "/status/unavailableReplicas")), (3, 2));
    assert_eq!(condition(&web, "Available"), "False MinimumReplicasUnavailable");
    let mut scaled = at(&cluster, Kind::Deployment, "web");
    scaled["spec"]["replicas"] = 1.into();
    cluster.put(Kind::Deployment, scaled);
    cluster.settle();
    assert_eq!(number(&at(&cluster, Kind::Deployment, "web"), "/status/readyReplicas"), 1);
    assert_eq!(cluster.pods().len(), 1);
}

#[test]
fn a_changed_template_is_a_new_revision() {
    let mut cluster = Cluster::new(1, "8");
    cluster.put(Kind::Deployment, deployment(1));
    cluster.settle();
    let mut changed = at(&cluster, Kind::Deployment, "web");
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = "newer".into();
    cluster.put(Kind::Deployment, changed);
    cluster.settle();
    assert_eq!(cluster.world.of(Kind::ReplicaSet).count(), 1);
    let web = at(&cluster, Kind::Deployment, "web");
    assert_eq!(web["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "2");
    assert_eq!(number(&web, "/status/readyReplicas"), 1);
}

#[test]
fn a_stateful_set_starts_in_order() {
    let mut cluster = Cluster::new(1, "1");
    let set = json!({
        "apiVersion": "apps/v1", "metadata": {"name": "db", "namespace": "ns"},
        "spec": {"replicas": 3, "serviceName": "db", "template": {
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        }},
    });
    cluster.put(Kind::StatefulSet, set);
    cluster.run();
    assert_eq!(cluster.pods(), ["db-0", "db-1"], "the second does not fit, so there is no third");
    let db = at(&cluster, Kind::StatefulSet, "db");
    assert_eq!((number(&db, "/status/replicas"), number(&db, "/status/readyReplicas")), (2, 1));
    assert_eq!(db["status"]["currentRevision"], db["status"]["updateRevision"]);
    assert_eq!(cluster.pod("db-0")["metadata"]["labels"]["apps.kubernetes.io/pod-index"], "0");
}

fn batch(parallelism: u32, completions: u32, command: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "b", "namespace": "ns", "uid": "b"},
        "spec": {"parallelism": parallelism, "completions": completions, "backoffLimit": 1, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "i", "command": ["sh", "-c", command]}],
        }}},
    })
}

#[test]
fn a_batch_job_completes() {
    let mut cluster = Cluster::new(1, "8");
    cluster.put(Kind::BatchJob, batch(2, 4, "sleep 1"));
    cluster.settle();
    let job = at(&cluster, Kind::BatchJob, "b");
    assert_eq!((number(&job, "/status/active"), number(&job, "/status/ready")), (2, 2));
    let start = text(&job, "/status/startTime").to_owned();
    cluster.run();
    let job = at(&cluster, Kind::BatchJob, "b");
    assert_eq!(number(&job, "/status/succeeded"), 4);
    assert_eq!(condition(&job, "SuccessCriteriaMet"), "True CompletionsReached");
    assert_eq!(condition(&job, "Complete"), "True CompletionsReached");
    assert_eq!(text(&job, "/status/startTime"), start);
    assert_eq!(text(&job, "/status/completionTime"), "2026-01-01T00:00:02Z");
    assert_eq!((job.pointer("/status/active"), job.pointer("/status/ready")), (None, None));
    assert_eq!(job["status"]["uncountedTerminatedPods"], json!({}));
}

#[test]
fn a_batch_job_fails_only_when_no_pod_is_left() {
    let mut cluster = Cluster::new(1, "8");
    cluster.put(Kind::BatchJob, batch(2, 4, "exit 1"));
    let mut seen = Vec::new();
    for _ in 0..50 {
        let wants = plan(&cluster.world, &cluster.config, &mut cluster.memory, cluster.now).wants;
        for want in wants {
            if !cluster.is_outdated(&want) {
                cluster.carry_out(want);
            }
        }
        let job = at(&cluster, Kind::BatchJob, "b");
        if !condition(&job, "Failed").is_empty() {
            assert_eq!((number(&job, "/status/active"), number(&job, "/status/terminating")), (0, 0));
        }
        seen.push((condition(&job, "FailureTarget"), condition(&job, "Failed")));
    }
    cluster.run();
    let job = at(&cluster, Kind::BatchJob, "b");
    assert_eq!(condition(&job, "Failed"), "True BackoffLimitExceeded");
    assert!(seen.iter().all(|(target, failed)| failed.is_empty() || !target.is_empty()));
}

#[test]
fn a_suspended_batch_job_has_no_start_and_an_indexed_one_has_every_index() {
    let mut cluster = Cluster::new(1, "8");
    let mut job = batch(3, 3, "sleep 1");
    job["spec"]["suspend"] = true.into();
    job["spec"]["completionMode"] = "Indexed".into();
    cluster.put(Kind::BatchJob, job);
    cluster.run();
    let mut job = at(&cluster, Kind::BatchJob, "b");
    assert_eq!(condition(&job, "Suspended"), "True JobSuspended");
    assert_eq!(job.pointer("/status/startTime"), None);
    job["spec"]["suspend"] = false.into();
    cluster.put(Kind::BatchJob, job);
    cluster.settle();
    let indices: Vec<&str> = cluster
        .world
        .of(Kind::Pod)
        .map(|pod| text(pod, "/metadata/annotations/batch.kubernetes.io~1job-completion-index"))
        .collect();
    assert_eq!(indices, ["0", "1", "2"]);
    cluster.run();
    assert_eq!(condition(&at(&cluster, Kind::BatchJob, "b"), "Complete"), "True CompletionsReached");
}
