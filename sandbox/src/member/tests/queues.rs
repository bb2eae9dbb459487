//! Queues without commands.

use super::*;

#[test]
fn volcano_s_own_queues_are_there_and_open() {
    let cluster = Cluster::new(1, "1");
    for queue in ["root", "default"] {
        assert_eq!(text(cluster.queue(queue), "/status/state"), "Open");
    }
    assert_eq!(text(cluster.queue("default"), "/spec/parent"), "root");
}

#[test]
fn a_queue_without_a_parent_gets_root() {
    let mut cluster = Cluster::new(1, "1");
    cluster.add_queue("q", json!({"weight": 1}));
    assert_eq!(text(cluster.queue("q"), "/spec/parent"), "root");
    assert_eq!(text(cluster.queue("q"), "/status/state"), "Open");
}

#[test]
fn a_closed_queue_enqueues_nothing() {
    let mut cluster = Cluster::new(1, "8");
    cluster.submit(volcano_job("j", 1, 1, "1", "sleep 1")).unwrap();
    let mut queue = cluster.queue("default").clone();
    queue["status"]["state"] = "Closed".into();
    cluster.put(Kind::Queue, queue);
    cluster.run();
    assert_eq!(cluster.phase("j"), "Pending");
    assert_eq!(cluster.bound(), 0);
    assert!(!cluster.refused.is_empty(), "its PodGroup is refused");
}

#[test]
fn a_mark_that_comes_from_the_host_is_left_alone() {
    let mut cluster = Cluster::new(1, "1");
    let annotations = json!({
        "volcano.sh/closed-by-parent": "true",
        "resourcetemplate.karmada.io/managed-annotations": "a,volcano.sh/closed-by-parent,b",
    });
    cluster
        .put(Kind::Queue, json!({"metadata": {"name": "q", "annotations": annotations}, "spec": {"parent": "root"}}));
    cluster.settle();
    assert_eq!(text(cluster.queue("q"), "/status/state"), "Open");
    assert_eq!(cluster.queue("q")["metadata"]["annotations"]["volcano.sh/closed-by-parent"], "true");
}
