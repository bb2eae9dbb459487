//! Commands to jobs and queues.

use super::*;

fn command(cluster: &mut Cluster, action: &str, kind: &str, target: &str) {
    let namespace = if kind == "Queue" { "default" } else { "ns" };
    let name = format!("{}-{target}", action.to_lowercase());
    cluster.put(
        Kind::Command,
        json!({"metadata": {"name": name, "namespace": namespace}, "action": action, "target": {"kind": kind, "name": target}}),
    );
    cluster.settle();
    assert_eq!(cluster.world.of(Kind::Command).count(), 0, "a command is deleted before it is carried out");
}

#[test]
fn abort_and_resume_cost_a_retry() {
    let mut cluster = Cluster::new(1, "4");
    cluster.submit(volcano_job("j", 2, 2, "1", "sleep 60")).unwrap();
    cluster.settle();
    command(&mut cluster, "AbortJob", "Job", "j");
    assert_eq!(cluster.phase("j"), "Aborted");
    assert_eq!((cluster.pods().len(), cluster.world.of(Kind::PodGroup).count()), (0, 0));
    command(&mut cluster, "ResumeJob", "Job", "j");
    assert_eq!(cluster.phase("j"), "Running");
    assert_eq!(number(cluster.job("j"), "/status/retryCount"), 1);
    // The third preemption of this kind fails a job with the usual three retries.
    for _ in 0..2 {
        command(&mut cluster, "AbortJob", "Job", "j");
        command(&mut cluster, "ResumeJob", "Job", "j");
    }
    assert_eq!(cluster.phase("j"), "Failed");
}

#[test]
fn a_command_whose_deletion_is_seen_before_it_is_answered_is_carried_out_once() {
    let mut cluster = Cluster::new(1, "4");
    cluster.submit(volcano_job("j", 2, 2, "1", "sleep 60")).unwrap();
    cluster.settle();
    let target = json!({"kind": "Job", "name": "j"});
    let metadata = json!({"name": "abort", "namespace": "ns"});
    cluster.put(Kind::Command, json!({"metadata": metadata, "action": "AbortJob", "target": target}));
    let wants = crate::member::queues::run_commands(&cluster.world);
    let [want] = wants.as_slice() else { panic!("one deletion") };
    assert!(cluster.world.take_off(want));
    let seen = cluster.world.of(Kind::Command).next().cloned().unwrap();
    cluster.world.observe(Kind::Command, caldera_runtime::watch::Event::Deleted(seen));
    cluster.world.land(&want.about, Landing::Deleted);
    cluster.settle();
    assert_eq!(cluster.phase("j"), "Aborted");
    assert_eq!(number(cluster.job("j"), "/status/retryCount"), 0);
}

#[test]
fn each_command_does_its_own_and_only_where_it_means_something() {
    for (action, phase) in [
        ("CompleteJob", "Completed"),
        ("TerminateJob", "Terminated"),
        ("AbortJob", "Aborted"),
        ("RestartJob", "Running"),
        ("ResumeJob", "Running"),
        ("Nonsense", "Running"),
    ] {
        let mut cluster = Cluster::new(1, "4");
        cluster.submit(volcano_job("j", 1, 1, "1", "sleep 60")).unwrap();
        cluster.settle();
        command(&mut cluster, action, "Job", "j");
        assert_eq!(cluster.phase("j"), phase, "{action}");
        let retries = number(cluster.job("j"), "/status/retryCount");
        assert_eq!(retries, i64::from(action == "RestartJob"), "{action}");
        // What meant nothing then means nothing later either.
        command(&mut cluster, "AbortJob", "Job", "j");
        assert_eq!(cluster.phase("j"), if phase == "Running" { "Aborted" } else { phase });
    }
}

#[test]
fn a_command_for_nobody_is_dropped() {
    let mut cluster = Cluster::new(1, "4");
    command(&mut cluster, "AbortJob", "Job", "nobody");
}

#[test]
fn a_queue_closes_when_it_is_empty_and_opens_again() {
    let mut cluster = Cluster::new(1, "4");
    cluster.add_queue("q", json!({}));
    let mut job = volcano_job("j", 1, 1, "1", "sleep 60");
    job["spec"]["queue"] = "q".into();
    cluster.submit(job).unwrap();
    cluster.settle();
    command(&mut cluster, "CloseQueue", "Queue", "q");
    assert_eq!(text(cluster.queue("q"), "/status/state"), "Closing");
    assert_eq!(cluster.phase("j"), "Running", "what runs goes on");
    cluster.run();
    assert_eq!(text(cluster.queue("q"), "/status/state"), "Closed");
    command(&mut cluster, "OpenQueue", "Queue", "q");
    assert_eq!(text(cluster.queue("q"), "/status/state"), "Open");
    command(&mut cluster, "CloseQueue", "Queue", "root");
    assert_eq!(text(cluster.queue("root"), "/status/state"), "Open", "the root can not be closed");
}

#[test]
fn children_close_and_open_with_their_parent() {
    let mut cluster = Cluster::new(1, "4");
    cluster.add_queue("p", json!({}));
    cluster.add_queue("c", json!({"parent": "p"}));
    command(&mut cluster, "CloseQueue", "Queue", "p");
    cluster.add_queue("late", json!({"parent": "p"}));
    for child in ["c", "late"] {
        assert_eq!(text(cluster.queue(child), "/status/state"), "Closed", "{child}");
        assert_eq!(cluster.queue(child)["metadata"]["annotations"]["volcano.sh/closed-by-parent"], "true");
    }
    command(&mut cluster, "OpenQueue", "Queue", "p");
    for child in ["c", "late"] {
        assert_eq!(text(cluster.queue(child), "/status/state"), "Open", "{child}");
        assert_eq!(cluster.queue(child)["metadata"]["annotations"]["volcano.sh/closed-by-parent"], "false");
    }
}
