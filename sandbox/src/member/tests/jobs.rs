//! The job controller: phases, policies, retries, volumes, what is kept and what goes.

use super::*;

fn with_policies(mut job: Value, policies: Value) -> Value {
    job["spec"]["policies"] = policies;
    job
}

#[test]
fn admission_refuses_what_a_member_can_not_take() {
    let mut cluster = Cluster::new(1, "4");
    let refusal = |cluster: &mut Cluster, change: &dyn Fn(&mut Value)| {
        let mut job = volcano_job("j", 1, 1, "1", "true");
        change(&mut job);
        cluster.submit(job).unwrap_err().join(" ")
    };
    let text = refusal(&mut cluster, &|job| job["spec"]["queue"] = "nowhere".into());
    assert!(text.contains("unable to find job queue: queue.scheduling.volcano.sh \"nowhere\" not found"), "{text}");
    let text = refusal(&mut cluster, &|job| job["spec"]["queue"] = "root".into());
    assert!(text.contains("can not submit job to root queue"), "{text}");
    let text = refusal(&mut cluster, &|job| job["spec"]["minAvailable"] = 2.into());
    assert!(text.contains("should not be greater than total replicas"), "{text}");
    // A copy of an MPI job with its workers alone.
    let text = refusal(&mut cluster, &|job| job["spec"]["plugins"] = json!({"mpi": ["--master=mpimaster"]}));
    assert!(text.contains("The specified mpi master task was not found"), "{text}");
}

#[test]
fn the_podgroup_is_what_volcano_makes_it() {
    let mut cluster = Cluster::new(1, "1");
    let mut job = job_of("j", vec![task("a", 4, "1", "sleep 1"), task("b", 1, "2", "sleep 1")]);
    job["metadata"]["annotations"] = json!({"volcano.sh/sla-waiting-time": "1h"});
    job["metadata"]["labels"] = json!({"team": "x"});
    job["spec"]["tasks"][0]["partitionPolicy"] = json!({"totalPartitions": 2, "partitionSize": 2, "minPartitions": 1});
    job["spec"]["tasks"][1]["template"]["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "2", "example.com/gpu": "1"}, "limits": {"cpu": "3", "example.com/gpu": "1"}});
    job["spec"]["networkTopology"] = json!({"mode": "hard", "highestTierAllowed": 1});
    cluster.submit(job).unwrap();
    cluster.settle();
    let group = cluster.group("j").clone();
    assert_eq!(
        group["spec"],
        json!({
            "minMember": 3, "minTaskMember": {"a": 2, "b": 1}, "queue": "default",
            "minResources": {
                "count/pods": "3", "pods": "3", "cpu": "4", "requests.cpu": "4", "limits.cpu": "3",
                "example.com/gpu": "1", "requests.example.com/gpu": "1",
            },
            "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
            "subGroupPolicy": [{
                "name": "a", "subGroupSize": 2, "minSubGroups": 1,
                "labelSelector": {"matchLabels": {"volcano.sh/task-spec": "a"}},
                "matchLabelKeys": ["volcano.sh/partition-id"],
            }],
        })
    );
    assert_eq!(group["metadata"]["annotations"], json!({"volcano.sh/sla-waiting-time": "1h"}));
    assert_eq!(group["metadata"]["labels"], json!({"team": "x"}));
    assert_eq!(text(&group, "/metadata/name"), format!("j-{}", uid(cluster.job("j"))));
    // A job that shrinks takes its group along.
    let mut job = cluster.job("j").clone();
    job["spec"]["minAvailable"] = 2.into();
    cluster.put(Kind::VolcanoJob, job);
    cluster.settle();
    // Below the sum of the tasks' minimums: the first two pods, of the first task.
    let group = cluster.group("j");
    assert_eq!(number(group, "/spec/minMember"), 2);
    assert_eq!(group["spec"]["minResources"], json!({"count/pods": "2", "pods": "2", "cpu": "2", "requests.cpu": "2"}));
}

#[test]
fn a_limit_without_a_request_is_no_request_of_the_podgroup() {
    let mut cluster = Cluster::new(1, "1");
    let mut job = volcano_job("j", 1, 1, "1", "sleep 1");
    job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "1"}});
    cluster.submit(job).unwrap();
    cluster.settle();
    let resources = &cluster.group("j")["spec"]["minResources"];
    assert_eq!(*resources, json!({"count/pods": "1", "pods": "1", "limits.cpu": "1"}));
}

#[test]
fn pods_carry_volcano_s_labels_and_annotations() {
    let mut cluster = Cluster::new(1, "9");
    let mut job = volcano_job("j", 4, 4, "1", "sleep 9");
    job["metadata"]["annotations"] = json!({"volcano.sh/preemptable": "true", "unrelated": "x"});
    job["spec"]["priorityClassName"] = "high".into();
    job["spec"]["tasks"][0]["partitionPolicy"] = json!({"totalPartitions": 2, "partitionSize": 2});
    cluster.submit(job).unwrap();
    cluster.settle();
    let pod = cluster.pod("j-t-3");
    let group = format!("j-{}", uid(cluster.job("j")));
    assert_eq!(
        pod["metadata"]["labels"],
        json!({
            "volcano.sh/job-name": "j", "volcano.sh/job-namespace": "ns", "volcano.sh/queue-name": "default",
            "volcano.sh/task-spec": "t", "volcano.sh/task-index": "3", "volcano.sh/partition-id": "1",
        })
    );
    let mut annotations = pod["metadata"]["annotations"].clone();
    annotations.as_object_mut().unwrap().remove("sim.caldera.dev/started");
    assert_eq!(
        annotations,
        json!({
            "volcano.sh/job-name": "j", "volcano.sh/queue-name": "default", "volcano.sh/task-spec": "t",
            "volcano.sh/task-index": "3", "volcano.sh/job-version": "0", "volcano.sh/job-retry-count": "0",
            "volcano.sh/template-uid": "j-t", "scheduling.k8s.io/group-name": group, "volcano.sh/preemptable": "true",
        })
    );
    assert_eq!((text(pod, "/spec/schedulerName"), text(pod, "/spec/priorityClassName")), ("volcano", "high"));
}

#[test]
fn the_status_tells_phases_counts_and_durations_as_volcano_does() {
    let mut cluster = Cluster::new(1, "4");
    cluster.submit(volcano_job("j", 2, 2, "1", "sleep 65")).unwrap();
    cluster.run();
    let status = cluster.job("j")["status"].clone();
    assert_eq!(status["state"], json!({"phase": "Completed", "lastTransitionTime": "2026-01-01T00:01:05Z"}));
    let phases: Vec<&str> = list(&status, "/conditions").iter().map(|condition| text(condition, "/status")).collect();
    assert_eq!(phases, ["Pending", "Running", "Completed"]);
    assert_eq!(text(&status, "/runningDuration"), "1m5s");
    assert_eq!((number(&status, "/version"), number(&status, "/minAvailable")), (1, 2));
    // What became of its pods is forgotten (volcano#4616).
    for field in ["running", "succeeded", "terminating", "taskStatusCount"] {
        assert_eq!(status.get(field), None, "{field}");
    }
    // A finished job gives its PodGroup back; its finished pods stay.
    assert_eq!(cluster.world.of(Kind::PodGroup).count(), 0);
    assert_eq!(cluster.pods(), ["j-t-0", "j-t-1"]);
}

#[test]
fn a_failing_pod_fails_the_job_unless_a_policy_restarts_it() {
    let mut cluster = Cluster::new(1, "4");
    cluster.submit(volcano_job("plain", 1, 1, "1", "exit 1")).unwrap();
    let restarting = volcano_job("again", 1, 1, "1", "exit 1");
    cluster.submit(with_policies(restarting, json!([{"event": "PodFailed", "action": "RestartJob"}]))).unwrap();
    cluster.run();
    assert_eq!(cluster.phase("plain"), "Failed");
    assert_eq!(cluster.phase("again"), "Failed");
    assert_eq!(number(cluster.job("again"), "/status/retryCount"), 3);
    // The last try is kept to be looked at.
    assert_eq!(cluster.pods(), ["again-t-0", "plain-t-0"]);
}

#[test]
fn exit_codes_choose_the_action_and_the_task_s_policies_come_first() {
    let mut cluster = Cluster::new(1, "4");
    let policies = json!([{"exitCode": 3, "action": "TerminateJob"}, {"event": "PodFailed", "action": "AbortJob"}]);
    cluster.submit(with_policies(volcano_job("three", 1, 1, "1", "exit 3"), policies.clone())).unwrap();
    cluster.submit(with_policies(volcano_job("four", 1, 1, "1", "exit 4"), policies.clone())).unwrap();
    let mut own = with_policies(volcano_job("own", 1, 1, "1", "exit 3"), policies);
    own["spec"]["tasks"][0]["policies"] = json!([{"event": "PodFailed", "action": "CompleteJob"}]);
    cluster.submit(own).unwrap();
    cluster.run();
    assert_eq!(cluster.phase("three"), "Terminated");
    assert_eq!(cluster.phase("four"), "Aborted");
    assert_eq!(cluster.phase("own"), "Completed");
}

#[test]
fn restart_pod_and_restart_task_replace_only_what_they_name() {
    for (action, replaced) in [("RestartPod", ["a-0"].as_slice()), ("RestartTask", &["a-0", "a-1"])] {
        let mut cluster = Cluster::new(1, "9");
        let mut job = job_of("j", vec![task("a", 2, "1", "sleep 100"), task("b", 1, "1", "sleep 100")]);
        job["spec"]["policies"] = json!([{"event": "PodEvicted", "action": action}]);
        cluster.submit(job).unwrap();
        cluster.settle();
        let before: BTreeMap<String, String> =
            ["a-0", "a-1", "b-0"].map(|pod| (pod.to_owned(), uid(cluster.pod(&format!("j-{pod}"))).to_owned())).into();
        cluster.evict("j-a-0");
        cluster.settle();
        let changed: Vec<&str> = before
            .iter()
            .filter(|(pod, before)| uid(cluster.pod(&format!("j-{pod}"))) != before.as_str())
            .map(|(pod, _)| pod.as_str())
            .collect();
        assert_eq!(changed, replaced, "{action}");
        assert_eq!(cluster.phase("j"), "Running");
        assert_eq!(number(cluster.job("j"), "/status/retryCount"), 1, "{action} is one retry, once");
        assert_eq!(number(cluster.job("j"), "/status/version"), 0);
    }
}

#[test]
fn restart_partition_replaces_the_partition() {
    let mut cluster = Cluster::new(1, "9");
    let mut job = volcano_job("j", 4, 4, "1", "sleep 100");
    job["spec"]["tasks"][0]["partitionPolicy"] = json!({"totalPartitions": 2, "partitionSize": 2});
    cluster.submit(with_policies(job, json!([{"event": "PodEvicted", "action": "RestartPartition"}]))).unwrap();
    cluster.settle();
    let uids = |cluster: &Cluster| [0, 1, 2, 3].map(|i| uid(cluster.pod(&format!("j-t-{i}"))).to_owned());
    let before = uids(&cluster);
    cluster.evict("j-t-2");
    cluster.settle();
    let after = uids(&cluster);
    assert_eq!([0, 1, 2, 3].map(|i| before[i] == after[i]), [true, true, false, false]);
}

#[test]
fn an_evicted_pod_restarts_the_job_and_without_a_policy_is_only_replaced() {
    let mut cluster = Cluster::new(1, "9");
    let job = volcano_job("j", 2, 2, "1", "sleep 20");
    cluster.submit(with_policies(job, json!([{"event": "PodEvicted", "action": "RestartJob"}]))).unwrap();
    cluster.submit(volcano_job("calm", 2, 2, "1", "sleep 20")).unwrap();
    cluster.settle();
    let first = uid(cluster.group("j")).to_owned();
    cluster.evict("j-t-0");
    cluster.evict("calm-t-0");
    cluster.settle();
    assert_eq!((number(cluster.job("j"), "/status/version"), number(cluster.job("j"), "/status/retryCount")), (1, 1));
    assert_ne!(uid(cluster.group("j")), first, "a restarted job has a new PodGroup");
    assert_eq!(cluster.pod("j-t-1")["metadata"]["annotations"]["volcano.sh/job-version"], "1");
    assert_eq!(cluster.job("calm").pointer("/status/retryCount"), None);
    cluster.run();
    assert_eq!((cluster.phase("j"), cluster.phase("calm")), ("Completed", "Completed"));
}

#[test]
fn a_smaller_job_loses_its_last_pods_and_that_is_no_eviction() {
    let mut cluster = Cluster::new(1, "9");
    let job = volcano_job("j", 1, 3, "1", "sleep 20");
    cluster.submit(with_policies(job, json!([{"event": "PodEvicted", "action": "RestartJob"}]))).unwrap();
    cluster.settle();
    let mut job = cluster.job("j").clone();
    job["spec"]["tasks"][0]["replicas"] = 1.into();
    job["spec"]["tasks"][0]["minAvailable"] = 1.into();
    cluster.put(Kind::VolcanoJob, job);
    cluster.run();
    assert_eq!(cluster.pods(), ["j-t-0"]);
    assert_eq!(cluster.job("j").pointer("/status/retryCount"), None);
    assert_eq!(cluster.phase("j"), "Completed");
}

#[test]
fn a_policy_with_a_timeout_waits_and_pod_pending_needs_one() {
    let mut cluster = Cluster::new(1, "1");
    let pending = json!([{"event": "PodPending", "action": "AbortJob", "timeout": "30s"}]);
    // The minimum is met; the second pod never gets a node.
    cluster.submit(with_policies(volcano_job("j", 1, 2, "1", "sleep 300"), pending)).unwrap();
    cluster.run_until("2026-01-01T00:00:20Z");
    assert_eq!(cluster.phase("j"), "Running");
    cluster.run_until("2026-01-01T00:00:40Z");
    assert_eq!(cluster.phase("j"), "Aborted");
}

#[test]
fn task_completed_completes_the_job() {
    let mut cluster = Cluster::new(1, "8");
    let mut job = job_of("mpi", vec![task("master", 1, "1", "sleep 2"), task("worker", 1, "1", "sleep 1000")]);
    job["spec"]["tasks"][0]["policies"] = json!([{"event": "TaskCompleted", "action": "CompleteJob"}]);
    cluster.submit(job).unwrap();
    cluster.run();
    assert_eq!(cluster.phase("mpi"), "Completed");
    assert!(cluster.now < "2026-01-01T00:01:00Z".parse::<Timestamp>().unwrap());
    assert_eq!(cluster.pods(), ["mpi-master-0"]);
}

#[test]
fn containers_that_fail_again_and_again_fail_the_task() {
    let mut cluster = Cluster::new(1, "8");
    let mut job = volcano_job("j", 1, 1, "1", "sleep 1; exit 1");
    job["spec"]["tasks"][0]["template"]["spec"]["restartPolicy"] = "OnFailure".into();
    cluster.submit(with_policies(job, json!([{"event": "TaskFailed", "action": "TerminateJob"}]))).unwrap();
    cluster.run();
    assert_eq!(cluster.phase("j"), "Terminated");
    // Three restarts: at once, after ten seconds and after twenty.
    assert_eq!(cluster.now.to_string(), "2026-01-01T00:00:33Z");
}

#[test]
fn min_success_decides_early_and_late() {
    let mut cluster = Cluster::new(1, "8");
    let mut early = job_of("early", vec![task("a", 1, "1", "sleep 1"), task("b", 1, "1", "sleep 100")]);
    early["spec"]["minSuccess"] = 1.into();
    cluster.submit(early).unwrap();
    let mut late = job_of("late", vec![task("a", 1, "1", "sleep 1"), task("b", 1, "1", "exit 1")]);
    late["spec"]["minSuccess"] = 2.into();
    late["spec"]["minAvailable"] = 1.into();
    cluster.submit(late).unwrap();
    cluster.run();
    assert_eq!((cluster.phase("early"), cluster.phase("late")), ("Completed", "Failed"));
    assert!(cluster.now < "2026-01-01T00:00:10Z".parse::<Timestamp>().unwrap());
}

#[test]
fn a_job_with_enough_successes_completes_though_some_failed() {
    let mut cluster = Cluster::new(1, "8");
    let mut job = job_of("j", vec![task("good", 2, "1", "sleep 1"), task("bad", 1, "1", "exit 1")]);
    job["spec"]["minAvailable"] = 2.into();
    cluster.submit(job.clone()).unwrap();
    // The same with all minimums: the bad task has not enough.
    job["metadata"]["name"] = "strict".into();
    job["spec"]["minAvailable"] = 3.into();
    cluster.submit(job).unwrap();
    cluster.run();
    assert_eq!((cluster.phase("j"), cluster.phase("strict")), ("Completed", "Failed"));
}

#[test]
fn dependent_tasks_start_after_what_they_depend_on() {
    let mut cluster = Cluster::new(1, "8");
    let mut job = job_of("chain", vec![task("t", 1, "1", "sleep 2"), task("second", 1, "1", "sleep 2")]);
    job["spec"]["minAvailable"] = 1.into();
    job["spec"]["tasks"][0]["template"]["spec"]["nodeSelector"] = json!({"late": "yes"});
    job["spec"]["tasks"][1]["dependsOn"] = json!({"name": ["t"]});
    cluster.submit(job).unwrap();
    cluster.run();
    assert_eq!(cluster.pods(), ["chain-t-0"], "the first waits, so the second is not there");
    let mut node = cluster.world.named(Kind::Node, "node-0").unwrap().clone();
    node["metadata"]["labels"]["late"] = "yes".into();
    cluster.put(Kind::Node, node);
    cluster.run();
    assert_eq!(cluster.phase("chain"), "Completed");
}

#[test]
fn a_volume_gets_a_claim_and_its_name_is_written_into_the_job() {
    let mut cluster = Cluster::new(1, "8");
    let mut job = volcano_job("j", 1, 1, "1", "sleep 1");
    job["spec"]["volumes"] = json!([{"mountPath": "/data", "volumeClaim": {"accessModes": ["ReadWriteOnce"]}}]);
    cluster.submit(job).unwrap();
    let mut waiting = volcano_job("waiting", 1, 1, "1", "sleep 1");
    waiting["spec"]["volumes"] = json!([{"mountPath": "/data", "volumeClaimName": "mine"}]);
    cluster.submit(waiting).unwrap();
    cluster.run();
    let claim = text(cluster.job("j"), "/spec/volumes/0/volumeClaimName").to_owned();
    assert!(claim.starts_with("j-pvc-") && claim.len() == 18, "{claim}");
    let made = cluster.world.get(Kind::PersistentVolumeClaim, &("ns".into(), claim.clone())).expect("the claim");
    assert_eq!(made["spec"], json!({"accessModes": ["ReadWriteOnce"]}));
    assert_eq!(cluster.pod("j-t-0")["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], claim.as_str());
    assert_eq!(cluster.job("j")["status"]["controlledResources"][format!("volume-pvc-{claim}")], claim.as_str());
    assert_eq!(cluster.phase("j"), "Completed");
    // A claim of the user's own must be there.
    assert_eq!(cluster.phase("waiting"), "Pending");
    cluster.put(Kind::PersistentVolumeClaim, json!({"metadata": {"name": "mine", "namespace": "ns"}}));
    cluster.run();
    assert_eq!(cluster.phase("waiting"), "Completed");
}

#[test]
fn a_finished_job_goes_after_its_time_and_an_aborted_one_stays() {
    let mut cluster = Cluster::new(1, "8");
    let mut job = volcano_job("j", 1, 1, "1", "sleep 2");
    job["spec"]["ttlSecondsAfterFinished"] = 30.into();
    cluster.submit(job.clone()).unwrap();
    job["metadata"]["name"] = "aborted".into();
    job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["command"] = json!(["false"]);
    cluster.submit(with_policies(job, json!([{"event": "PodFailed", "action": "AbortJob"}]))).unwrap();
    cluster.run_until("2026-01-01T00:00:31Z");
    assert_eq!(cluster.phase("j"), "Completed");
    cluster.run();
    assert!(cluster.world.get(Kind::VolcanoJob, &("ns".into(), "j".into())).is_none());
    assert_eq!(cluster.phase("aborted"), "Aborted");
}

#[test]
fn a_job_whose_queue_goes_is_left_as_it_is() {
    let mut cluster = Cluster::new(1, "8");
    cluster.add_queue("q", json!({}));
    let mut job = volcano_job("j", 1, 1, "1", "sleep 1");
    job["spec"]["queue"] = "q".into();
    cluster.put(Kind::VolcanoJob, {
        caldera_crds::job_admission::fill_job_defaults(&mut job);
        job
    });
    cluster.world.forget(Kind::Queue, &(String::new(), "q".into()));
    cluster.run();
    assert_eq!(cluster.phase("j"), "");
    assert_eq!(cluster.world.of(Kind::PodGroup).count(), 0);
}

#[test]
fn of_a_job_that_is_forgotten_with_the_old_one_of_its_name_nobody_tells_the_end() {
    for (made_at, phase) in [("2026-01-01T00:00:04Z", "Running"), ("2026-01-01T00:00:06Z", "Completed")] {
        let mut cluster = Cluster::new(1, "4");
        cluster.submit(volcano_job("j", 1, 1, "1", "sleep 600")).unwrap();
        cluster.settle();
        let forget = |cluster: &mut Cluster, kind, name: &str| cluster.world.forget(kind, &("ns".into(), name.into()));
        forget(&mut cluster, Kind::VolcanoJob, "j");
        cluster.run_until("2026-01-01T00:00:03Z");
        forget(&mut cluster, Kind::Pod, "j-t-0");
        cluster.run_until(made_at);
        cluster.submit(volcano_job("j", 1, 1, "1", "sleep 10")).unwrap();
        cluster.run();
        assert_eq!(text(cluster.pod("j-t-0"), "/status/phase"), "Succeeded");
        assert_eq!(cluster.phase("j"), phase, "{made_at}");
    }
}
