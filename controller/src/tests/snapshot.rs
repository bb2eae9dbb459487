//! What a simulation starts from.

use caldera_core::live_job::LiveJob;
use serde_json::json;

use super::world::World;
use crate::snapshot::take_snapshot;

#[test]
fn a_snapshot_has_who_waits_and_who_is_placed_and_not_who_ended() {
    let mut world = World::new(8);
    for name in ["ended", "placed", "waits"] {
        world.job(name, "q", 4);
        world.settle();
    }
    world.place("ended-job", 4);
    world.place("placed-job", 4);
    world.phase("ended", "Completed");
    // Not decided on: who could start now still waits.
    let snapshot = take_snapshot(&world.controller);
    let jobs: Vec<(&str, bool, &str)> =
        snapshot.jobs.iter().map(|job| (&*job.name, job.placed, job.queue.as_str())).collect();
    assert_eq!(jobs, [("ns/placed-job", true, "q"), ("ns/waits-job", false, "q")]);
    assert_eq!(snapshot.jobs[0].gang.replicas(), 4);
    assert!(snapshot.jobs.iter().all(|job| job.whole && job.run_for.is_none()));
    assert_eq!(snapshot.clusters.iter().map(|cluster| cluster.name.as_str()).collect::<Vec<_>>(), ["m1"]);
    assert!(snapshot.queues.iter().any(|queue| queue.name.as_str() == "q"));
}

#[test]
fn what_a_limit_ends_is_expected_to_end_then_and_what_says_less_earlier() {
    let mut world = World::new(4);
    world.patch("Queue", "q", &json!({"metadata": {"annotations": {"caldera.dev/max-run-time": "100s"}}}));
    for (name, said) in [("placed", json!(null)), ("waits", json!(null)), ("short", json!("30s"))] {
        world.job(name, "q", 4);
        world.patch("Job", name, &json!({"metadata": {"annotations": {"caldera.dev/running-estimate": said}}}));
        world.settle();
    }
    world.pass(10);
    world.place("placed-job", 4);
    let time = caldera_runtime::clock::format_time(world.now);
    world.patch("ResourceBinding", "placed-job", &json!({"status": {"lastScheduledTime": time}}));
    let snapshot = take_snapshot(&world.controller);
    let reported: Vec<_> = snapshot.jobs.iter().map(|job| (&*job.name, job.run_for, job.limit)).collect();
    let since_release = world.now.as_second() - 1_000_001;
    assert_eq!(
        reported,
        [
            ("ns/placed-job", None, Some(100 - since_release)),
            ("ns/short-job", Some(30), Some(100)),
            ("ns/waits-job", None, Some(100)),
        ]
    );
    let estimates: Vec<_> = snapshot.jobs.iter().map(LiveJob::estimate).collect();
    assert_eq!(estimates, [Some(100 - since_release), Some(30), Some(100)]);
}

#[test]
fn jobs_that_start_together_are_in_a_snapshot_each_for_itself() {
    let mut world = World::new(4);
    super::job_gangs::gang_of(&mut world, 2, 3);
    let waiting = |world: &World| {
        let jobs = take_snapshot(&world.controller).jobs;
        jobs.into_iter().map(|job| (job.name.to_string(), job.gang.replicas(), job.placed)).collect::<Vec<_>>()
    };
    let all = [("ns/h-a-0-job".to_owned(), 3, false), ("ns/h-a-1-job".to_owned(), 3, false)];
    // Not decided on, and after that.
    assert_eq!(waiting(&world), all);
    world.pass(2);
    assert_eq!(waiting(&world), all);
    world.patch("Job", "h-a-1", &json!({"metadata": {"annotations": {"caldera.dev/suspended": "true"}}}));
    world.pass(1);
    assert_eq!(waiting(&world), [], "one that is needed is not in line");
}
