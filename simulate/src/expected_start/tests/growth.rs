//! Starts that rest on nodes that have to come, or on the end of a maintenance window.

use caldera_core::{
    maintenance::{Maintenance, MaintenanceWindow},
    place::Cluster,
};

use super::*;

/// A member that is kept for nobody, or for these queues, from a thousand to four thousand seconds from now.
fn with_window(member: Member, queues: &[&str]) -> Member {
    let window = MaintenanceWindow {
        start: (NOW + 1_000).into(),
        end: (NOW + 4_000).into(),
        notice: 600,
        reason: String::new(),
        node_groups: Vec::new(),
        queues: queues.iter().map(|queue| (*queue).into()).collect(),
    };
    let cluster = Cluster { maintenance: Maintenance::new(vec![window]), ..member.cluster };
    Member { cluster, ..member }
}

#[test]
fn a_job_that_waits_for_a_new_node_is_expected_when_that_comes() {
    let mut there = member("m", &[2]);
    let group = r#"[{"name":"g","nodes":{"pool":"g"},"max":2,"resources":{"cpu":"8"},"delay":"5m"}]"#;
    there.cluster.autoscaling = group.parse().unwrap();
    let found = starts(&state(vec![there], vec![waiting("now", workers(1)), waiting("soon", workers(4))]));
    assert_eq!((found["now"], found["soon"]), (Some(NOW), Some(NOW + 300)));
}

/// What a start is told with, and whether it is sure.
fn told(state: &State, job: &str) -> (String, bool) {
    let basis = expect_starts(state, ASSUME, || true).unwrap()[job].basis;
    (basis.describe(ASSUME), basis.is_sure())
}

#[test]
fn a_start_says_that_it_waits_for_a_node_or_for_the_end_of_a_window() {
    let mut there = member("m", &[2]);
    let group = r#"[{"name":"g","nodes":{"pool":"g"},"max":2,"resources":{"cpu":"8"},"delay":"5m"}]"#;
    there.cluster.autoscaling = group.parse().unwrap();
    let growing = state(vec![there], vec![waiting_with_run("now", 1, Some(50)), waiting("soon", workers(4))]);
    assert_eq!(told(&growing, "now"), ("nothing runs or starts before it".to_owned(), true));
    assert_eq!(
        told(&growing, "soon"),
        ("if its nodes come within 5 min; if the job before it ends as it says".to_owned(), false)
    );
    let alone = vec![waiting_with_run("long", 1, Some(1_700))];
    let windowed = state(vec![with_window(member("m", &[8]), &[])], alone);
    assert_eq!(told(&windowed, "long"), ("once the maintenance window ends".to_owned(), true));
}

fn waiting_with_run(name: &str, pods: u32, run_for: Option<i64>) -> LiveJob {
    LiveJob { run_for, ..waiting(name, workers(pods)) }
}

#[test]
fn a_job_that_would_run_into_a_maintenance_window_is_expected_after_it() {
    let jobs = vec![waiting_with_run("fits", 1, Some(700)), waiting_with_run("long", 1, Some(1_700))];
    let found = starts(&state(vec![with_window(member("m", &[8]), &[])], jobs.clone()));
    assert_eq!((found["fits"], found["long"]), (Some(NOW), Some(NOW + 4_000)));
    // Where another member has no window it goes there.
    let two = vec![with_window(member("m", &[8]), &[]), member("z", &[4])];
    assert_eq!(starts(&state(two, jobs))["long"], Some(NOW));
}

#[test]
fn a_job_that_says_nothing_starts_before_the_notice_of_a_window_or_after_the_window() {
    let free_from = |seconds: i64| {
        let member = Member { pods: pods_of("runs", 1, "m-n0"), ..with_window(member("m", &[2]), &[]) };
        let jobs = vec![running("runs", 1, Some(100 + seconds)), waiting("waits", workers(1))];
        start(&state(vec![member], jobs), "waits")
    };
    assert_eq!(free_from(300), Some(NOW + 300));
    assert_eq!(free_from(500), Some(NOW + 4_000), "the notice begins 400 s from now");
}

#[test]
fn a_window_that_is_kept_for_a_queue_keeps_none_of_its_jobs_out() {
    let mut state = state(vec![with_window(member("m", &[8]), &["ops"])], Vec::new());
    state.queues.push(QueueSpec::unlimited("ops"));
    let of = |name: &str, queue: &str| LiveJob { queue: queue.into(), ..waiting_with_run(name, 1, Some(2_000)) };
    state.jobs = vec![of("own", "ops"), of("other", "q")];
    let found = starts(&state);
    assert_eq!((found["own"], found["other"]), (Some(NOW), Some(NOW + 4_000)));
}
