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
    let found = starts(&state(vec![growing_member()], vec![waiting("now", workers(1)), waiting("soon", workers(4))]));
    assert_eq!((found["now"], found["soon"]), (Some(NOW), Some(NOW + 300)));
}

/// As the controller, which never releases it: the node would come after its run was ended.
#[test]
fn a_job_whose_run_is_ended_before_its_node_comes_does_not_start_on_it() {
    let with_limit = |limit: i64| LiveJob { limit: Some(limit), ..waiting("soon", workers(4)) };
    let start_of = |limit: i64| start(&state(vec![growing_member()], vec![with_limit(limit)]), "soon");
    assert_eq!((start_of(301), start_of(300)), (Some(NOW + 300), None));
    // Another of its shape that may run for longer is no reason to take it for one that starts.
    let long = LiveJob { limit: Some(301), ..waiting("long", workers(4)) };
    let found = starts(&state(vec![growing_member()], vec![with_limit(300), long]));
    assert_eq!((found["soon"], found["long"]), (Some(NOW + 300 + 301), Some(NOW + 300)), "once the node is there");
}

/// What a start is told with, and whether it is sure.
fn told(state: &State, job: &str) -> (String, bool) {
    let basis = expect_starts(state, ASSUME, || true).unwrap()[job].basis;
    (basis.describe(ASSUME), basis.is_sure())
}

#[test]
fn a_start_says_that_it_waits_for_a_node_or_for_the_end_of_a_window() {
    let growing =
        state(vec![growing_member()], vec![waiting_with_run("now", 1, Some(50)), waiting("soon", workers(4))]);
    assert_eq!(told(&growing, "now"), ("nothing runs or starts before it".to_owned(), true));
    assert_eq!(
        told(&growing, "soon"),
        ("if new nodes come within 5 min; if the job before it ends as it says".to_owned(), false)
    );
    let alone = vec![waiting_with_run("long", 1, Some(1_700))];
    let windowed = state(vec![with_window(member("m", &[8]), &[])], alone);
    assert_eq!(told(&windowed, "long"), ("once the maintenance window ends".to_owned(), true));
}

/// Two cores, and a group of which each node has eight and takes five minutes.
fn growing_member() -> Member {
    let mut there = member("m", &[2]);
    let group = r#"[{"name":"g","nodes":{"pool":"g"},"max":1,"resources":{"cpu":"8"},"delay":"5m"}]"#;
    there.cluster.autoscaling = group.parse().unwrap();
    there
}

#[test]
fn those_that_start_together_rest_on_the_nodes_of_each_of_them() {
    let of_unit = |job: LiveJob| LiveJob { starts_with: Some("a".into()), ..job };
    let jobs = vec![of_unit(waiting("a", workers(1))), of_unit(waiting("b", workers(4)))];
    let state = state(vec![growing_member()], jobs);
    assert_eq!(starts(&state), [("a".to_owned(), Some(NOW + 300)), ("b".to_owned(), Some(NOW + 300))].into());
    for job in ["a", "b"] {
        assert_eq!(told(&state, job), ("if new nodes come within 5 min".to_owned(), false), "{job}");
    }
}

#[test]
fn a_start_behind_a_job_that_waits_for_nodes_rests_on_them_too() {
    let jobs = vec![waiting_with_run("first", 4, Some(600)), waiting("second", workers(4))];
    let state = state(vec![growing_member()], jobs);
    let found = expect_starts(&state, ASSUME, || true).unwrap();
    let (first, second) = (instant(found["first"].at).unwrap(), instant(found["second"].at).unwrap());
    assert!(first == NOW + 300 && second >= first + 600, "{first} {second}");
    let text = "the job before it waits for nodes to come".to_owned();
    assert_eq!(told(&state, "second"), (text, false));
}

/// A job ends in the second in which a window ends elsewhere.
#[test]
fn a_start_at_the_end_of_a_window_that_kept_it_out_of_nothing_does_not_name_the_window() {
    let busy = Member { pods: pods_of("runs", 4, "m-n0"), ..member("m", &[8]) };
    let jobs = vec![running("runs", 4, Some(4_100)), waiting_with_run("waits", 4, Some(600))];
    let ends = ("if the job before it ends as it says".to_owned(), true);
    let elsewhere = state(vec![busy.clone(), with_window(member("z", &[2]), &[])], jobs.clone());
    assert_eq!((start(&elsewhere, "waits"), told(&elsewhere, "waits")), (Some(NOW + 4_000), ends.clone()));
    let kept_for_it = state(vec![with_window(busy, &["q"])], jobs);
    assert_eq!((start(&kept_for_it, "waits"), told(&kept_for_it, "waits")), (Some(NOW + 4_000), ends));
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
