//! The schedulers: gangs, queues' limits, order, and what is said about those that wait.

use super::*;

#[test]
fn a_gang_runs_and_completes() {
    let mut cluster = Cluster::new(2, "4");
    cluster.submit(volcano_job("j", 4, 4, "2", "sleep 3")).unwrap();
    cluster.settle();
    assert_eq!(cluster.phase("j"), "Running");
    assert_eq!(number(cluster.job("j"), "/status/running"), 4);
    assert_eq!(text(cluster.group("j"), "/status/phase"), "Running");
    cluster.run();
    assert_eq!(cluster.phase("j"), "Completed");
}

#[test]
fn a_gang_that_does_not_fit_binds_nothing() {
    let mut cluster = Cluster::new(2, "3");
    // The sums fit; three pods of two cores on nodes of three do not.
    cluster.submit(volcano_job("j", 3, 3, "2", "sleep 3")).unwrap();
    cluster.run();
    assert_eq!(cluster.phase("j"), "Pending");
    assert_eq!(cluster.bound(), 0);
    let condition = &cluster.group("j")["status"]["conditions"][0];
    assert_eq!(text(condition, "/type"), "Unschedulable");
    assert_eq!(
        text(condition, "/message"),
        "1/3 tasks in gang unschedulable: pod group is not ready, 3 Pending, 3 minAvailable; Pending: 1 Unschedulable, \
         2 Schedulable. Origin reason is j-t-2: 0/2 nodes are unavailable: 2 Insufficient cpu."
    );
    let condition = &cluster.pod("j-t-2")["status"]["conditions"][0];
    assert_eq!((text(condition, "/type"), text(condition, "/reason")), ("PodScheduled", "Unschedulable"));
}

#[test]
fn a_gang_that_waits_is_not_written_about_again() {
    let mut cluster = Cluster::new(2, "3");
    cluster.submit(volcano_job("j", 3, 3, "2", "sleep 3")).unwrap();
    cluster.run();
    let writes = cluster.writes;
    for _ in 0..5 {
        cluster.now = cluster.now.checked_add(jiff::SignedDuration::from_secs(3)).unwrap();
        cluster.settle();
    }
    assert_eq!(cluster.writes, writes);
}

#[test]
fn no_pods_before_the_podgroup_is_enqueued() {
    let mut cluster = Cluster::new(1, "2");
    cluster.submit(volcano_job("j", 10, 10, "1", "sleep 1")).unwrap();
    cluster.run();
    assert_eq!(cluster.pods(), [""; 0]);
    assert_eq!(text(cluster.group("j"), "/status/phase"), "Pending");
    let events: Vec<&Value> =
        cluster.made.iter().filter(|((kind, _), _)| *kind == Kind::Event).map(|(_, e)| e).collect();
    assert_eq!(events.len(), 1);
    assert_eq!(text(events[0], "/message"), "queue resource quota insufficient: insufficient cpu");
}

#[test]
fn each_task_gets_its_minimum_before_any_gets_more() {
    let mut cluster = Cluster::new(1, "4");
    let mut job = job_of("j", vec![task("a", 4, "1", "sleep 9"), task("b", 2, "1", "sleep 9")]);
    job["spec"]["tasks"][0]["minAvailable"] = 1.into();
    job["spec"]["tasks"][1]["minAvailable"] = 2.into();
    job["spec"]["minAvailable"] = 3.into();
    cluster.submit(job).unwrap();
    cluster.settle();
    let bound = |task: &str| cluster.world.pods().filter(|(_, pod)| pod.holds() && pod.task == task).count();
    assert_eq!((bound("a"), bound("b")), (2, 2));
}

#[test]
fn task_minimums_above_the_job_s_do_not_count() {
    let mut cluster = Cluster::new(1, "1");
    let mut job = job_of("j", vec![task("a", 1, "1", "sleep 9"), task("b", 1, "1", "sleep 9")]);
    job["spec"]["minAvailable"] = 1.into();
    cluster.submit(job).unwrap();
    cluster.settle();
    assert_eq!(cluster.bound(), 1);
    assert_eq!(cluster.phase("j"), "Running");
}

#[test]
fn a_missing_task_minimum_holds_the_gang() {
    let mut cluster = Cluster::new(1, "8");
    let mut job = job_of("j", vec![task("small", 3, "1", "sleep 9"), task("big", 1, "2", "sleep 9")]);
    job["spec"]["tasks"][1]["template"]["spec"]["nodeSelector"] = json!({"disk": "ssd"});
    cluster.submit(job).unwrap();
    cluster.run();
    assert_eq!(cluster.bound(), 0);
    let message = text(&cluster.group("j")["status"]["conditions"][0], "/message").to_owned();
    assert!(message.contains("1 node(s) didn't match Pod's node affinity/selector"), "{message}");
}

#[test]
fn the_more_important_job_goes_first_by_its_class_s_value() {
    let mut cluster = Cluster::new(1, "2");
    cluster.put(Kind::PriorityClass, json!({"metadata": {"name": "high"}, "value": 1000}));
    cluster.put(Kind::PriorityClass, json!({"metadata": {"name": "usual"}, "value": 10, "globalDefault": true}));
    for (name, class) in [("low", ""), ("unknown", "nobody-knows"), ("urgent", "high")] {
        let mut job = volcano_job(name, 1, 1, "2", "sleep 5");
        if !class.is_empty() {
            job["spec"]["priorityClassName"] = class.into();
        }
        cluster.submit(job).unwrap();
    }
    cluster.settle();
    assert_eq!(cluster.phase("urgent"), "Running");
    assert_eq!(schedule::priority_of(&cluster.world, "nobody-knows"), 10);
    cluster.run();
    for name in ["low", "unknown", "urgent"] {
        assert_eq!(cluster.phase(name), "Completed");
    }
}

#[test]
fn a_queue_s_capability_holds_for_enqueueing_and_for_what_comes_later() {
    let mut cluster = Cluster::new(4, "8");
    cluster.add_queue("small", json!({"capability": {"cpu": "3"}}));
    let mut big = volcano_job("big", 4, 4, "1", "sleep 5");
    big["spec"]["queue"] = "small".into();
    cluster.submit(big).unwrap();
    let mut elastic = volcano_job("elastic", 1, 6, "1", "sleep 5");
    elastic["spec"]["queue"] = "small".into();
    cluster.submit(elastic).unwrap();
    cluster.settle();
    assert_eq!(cluster.bound(), 3);
    assert_eq!(number(cluster.job("elastic"), "/status/running"), 3);
    assert_eq!(text(cluster.group("big"), "/status/phase"), "Pending");
    assert_eq!(cluster.queue("small")["status"]["allocated"], json!({"cpu": "3", "memory": "0", "pods": "3"}));
    assert_eq!(cluster.queue("root")["status"]["allocated"]["cpu"], "3");
    cluster.run();
    assert_eq!(cluster.phase("elastic"), "Completed");
    assert_eq!(cluster.phase("big"), "Pending");
    assert_eq!(cluster.queue("small")["status"]["allocated"], json!({"cpu": "0", "memory": "0"}));
}

#[test]
fn an_ancestor_s_capability_holds_too_and_a_guarantee_is_kept_from_others() {
    let mut cluster = Cluster::new(1, "8");
    cluster.add_queue("top", json!({"capability": {"cpu": "2"}}));
    cluster.add_queue("leaf", json!({"parent": "top"}));
    cluster.add_queue("reserved", json!({"guarantee": {"resource": {"cpu": "5"}}, "deserved": {"cpu": "5"}}));
    for (name, queue, cpu) in [("a", "leaf", "3"), ("b", "default", "4"), ("c", "reserved", "5")] {
        let mut job = volcano_job(name, 1, 1, cpu, "sleep 5");
        job["spec"]["queue"] = queue.into();
        cluster.submit(job).unwrap();
    }
    cluster.run();
    assert_eq!((cluster.phase("a"), cluster.phase("b"), cluster.phase("c")), ("Pending", "Pending", "Completed"));
}

#[test]
fn a_part_of_a_gang_that_runs_without_the_rest_is_unknown() {
    let mut cluster = Cluster::new(2, "2");
    let mut job = volcano_job("j", 2, 2, "2", "sleep 500");
    job["spec"]["policies"] = json!([{"event": "PodFailed", "action": "RestartPod"}]);
    cluster.submit(job).unwrap();
    cluster.settle();
    let mut node = cluster.world.named(Kind::Node, "node-1").unwrap().clone();
    node["spec"]["unschedulable"] = true.into();
    cluster.put(Kind::Node, node);
    cluster.evict("j-t-1");
    cluster.run_until("2026-01-01T00:00:10Z");
    assert_eq!(text(cluster.group("j"), "/status/phase"), "Unknown");
}

#[test]
fn volcano_pods_without_a_group_get_one_and_their_queue_counts() {
    let mut cluster = Cluster::new(1, "8");
    cluster.add_queue("closed", json!({}));
    let mut queue = cluster.queue("closed").clone();
    queue["status"]["state"] = "Closed".into();
    cluster.put(Kind::Queue, queue);
    let pod = |name: &str, queue: &str| {
        json!({
            "apiVersion": "v1", "metadata": {
                "name": name, "namespace": "ns", "annotations": {"scheduling.volcano.sh/queue-name": queue},
            },
            "spec": {"schedulerName": "volcano", "restartPolicy": "Never", "containers": [{
                "name": "c", "command": ["sleep", "1"], "resources": {"requests": {"cpu": "1"}},
            }]},
        })
    };
    cluster.put(Kind::Pod, pod("p", "default"));
    cluster.put(Kind::Pod, pod("q", "closed"));
    cluster.settle();
    let group = cluster.world.of(Kind::PodGroup).next().unwrap();
    assert_eq!(text(group, "/metadata/name"), format!("podgroup-{}", uid(cluster.pod("p"))));
    assert_eq!(text(cluster.pod("p"), "/status/phase"), "Running");
    assert_eq!(text(cluster.pod("q"), "/spec/nodeName"), "");
    assert_eq!(
        cluster.refused[0],
        "can only submit PodGroup to queue with state `Open`, queue `closed` status is `Closed`."
    );
}

#[test]
fn pods_of_other_schedulers_are_left_alone_and_kubernetes_own_are_told_why_they_wait() {
    let mut cluster = Cluster::new(1, "1");
    let pod = |name: &str, scheduler: &str, cpu: &str| {
        json!({
            "apiVersion": "v1", "metadata": {"name": name, "namespace": "ns"},
            "spec": {"schedulerName": scheduler, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        })
    };
    cluster.put(Kind::Pod, pod("foreign", "other", "1"));
    cluster.put(Kind::Pod, pod("big", "default-scheduler", "2"));
    cluster.put(Kind::Pod, pod("broken", "", "lots"));
    cluster.run();
    assert_eq!(cluster.bound(), 0);
    assert_eq!(cluster.pod("foreign").pointer("/status"), None);
    let message = text(&cluster.pod("big")["status"]["conditions"][0], "/message");
    assert_eq!(message, "0/1 nodes are available: 1 Insufficient cpu.");
    assert!(cluster.pod("broken")["status"]["conditions"][0].to_string().contains("lots"));
}

#[test]
fn nodes_with_a_kubelet_of_their_own_are_never_touched() {
    let mut cluster = Cluster::new(0, "1");
    let real = json!({
        "metadata": {"name": "real"},
        "status": {
            "allocatable": {"cpu": "4", "pods": "9"}, "nodeInfo": {"bootID": "b", "machineID": "m"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    cluster.put(Kind::Node, real);
    cluster.submit(volcano_job("j", 1, 1, "1", "sleep 1")).unwrap();
    cluster.run();
    // It is scheduled there, and then it is that kubelet's.
    assert_eq!(text(cluster.pod("j-t-0"), "/spec/nodeName"), "real");
    assert_eq!(text(cluster.pod("j-t-0"), "/status/phase"), "");
    // A node that somebody made by hand is simulated.
    let mut cluster = Cluster::new(0, "1");
    let by_hand = json!({"metadata": {"name": "hand"}, "status": {"capacity": {"cpu": "4", "pods": "9"}}});
    cluster.put(Kind::Node, by_hand);
    cluster.submit(volcano_job("j", 1, 1, "1", "sleep 1")).unwrap();
    cluster.run();
    assert_eq!(cluster.phase("j"), "Completed");
    let pod = cluster.pod("j-t-0");
    assert!(text(pod, "/status/podIP").starts_with("100.") && text(pod, "/status/hostIP").starts_with("10."));
}

/// What the schedulers would bind now.
fn list_bindings(cluster: &Cluster) -> Vec<Want> {
    let mut wants = schedule::run_cycle(&cluster.world, cluster.now).wants;
    wants.retain(|want| want.write.subresource == Some("binding"));
    wants
}

/// A node of four cores, a pod of three whose binding is sent, and another one like it.
fn bound_and_not_seen() -> (Cluster, Want) {
    let mut cluster = Cluster::new(1, "4");
    let pod = |name: &str| {
        let requests = json!({"resources": {"requests": {"cpu": "3"}}});
        let metadata = json!({"name": name, "namespace": "ns"});
        json!({"apiVersion": "v1", "metadata": metadata, "spec": {"containers": [requests]}})
    };
    cluster.put(Kind::Pod, pod("first"));
    let binding = list_bindings(&cluster).remove(0);
    assert!(cluster.world.take_off(&binding));
    cluster.put(Kind::Pod, pod("second"));
    assert!(list_bindings(&cluster).is_empty(), "the first is on its way to the node");
    (cluster, binding)
}

#[test]
fn a_pod_that_is_bound_and_not_seen_on_its_node_yet_holds_its_room() {
    let (mut cluster, binding) = bound_and_not_seen();
    let before = cluster.pod("first").clone();
    cluster.world.land(&binding.about, Landing::Written(json!({"kind": "Status"})));
    assert!(list_bindings(&cluster).is_empty(), "it is there");
    cluster.put(Kind::Pod, before.clone());
    assert!(list_bindings(&cluster).is_empty(), "older news says nothing of it");
    let mut seen = before;
    seen["spec"]["nodeName"] = cluster.world.nodes().next().unwrap().0.as_str().into();
    cluster.put(Kind::Pod, seen);
    assert!(list_bindings(&cluster).is_empty());
    cluster.world.forget(Kind::Pod, &binding.about.1);
    let next: Vec<_> = list_bindings(&cluster).into_iter().map(|want| want.about.1.1).collect();
    assert_eq!(next, ["second"]);
}

#[test]
fn a_pod_whose_binding_failed_holds_nothing() {
    for landing in [Landing::Failed, Landing::Exists] {
        let (mut cluster, binding) = bound_and_not_seen();
        cluster.world.land(&binding.about, landing);
        assert_eq!(list_bindings(&cluster), [binding]);
    }
    let (mut cluster, binding) = bound_and_not_seen();
    cluster.world.land(&binding.about, Landing::Gone);
    let next: Vec<_> = list_bindings(&cluster).into_iter().map(|want| want.about.1.1).collect();
    assert_eq!(next, ["second"]);
}
