//! When a binding says for the first time that it is scheduled.

use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::{
    decide::first_status::{StatusTiming, decide_status_timing},
    write::first_statuses::FirstStatuses,
};

/// A placed job whose status nobody has written yet.
fn unsaid() -> (Cache, Value) {
    let mut world = index(&[9], &[job(2, 2), binding(2)]);
    let mut object = placed(binding(2), &mut world);
    object["status"] = json!({});
    world.update_binding(Binding::parse_binding(&object).unwrap());
    (world, object)
}

fn turn(world: &mut Cache, object: &Value) -> StatusTiming {
    let mut newer = object.clone();
    newer["metadata"]["resourceVersion"] = "9".into();
    world.update_binding(Binding::parse_binding(&newer).unwrap());
    let binding = &world.bindings[&key()];
    decide_status_timing(binding, world.request_of(binding))
}

fn end_job(world: &mut Cache) {
    let mut ended = job(2, 2);
    ended["status"] = json!({"state": {"phase": "Completed"}});
    world.apply_workloads(WorkloadKind::VolcanoJob, Event::Applied(read_workload(&ended).unwrap()));
}

#[test]
fn a_job_that_was_just_placed_says_so_later() {
    let (mut world, object) = unsaid();
    assert_eq!(turn(&mut world, &object), StatusTiming::Later);
}

#[test]
fn a_job_says_nothing_of_its_placement_once_it_has_ended_and_says_so_itself() {
    let (mut world, mut object) = unsaid();
    object["status"]["aggregatedStatus"] = json!([{"clusterName": "m0", "status": {"state": {"phase": "Completed"}}}]);
    assert_eq!(turn(&mut world, &object), StatusTiming::Later, "Karmada may have to tell the job yet");
    end_job(&mut world);
    assert_eq!(turn(&mut world, &object), StatusTiming::Never);
    // A job that its clusters still run is not over, whatever is written on it.
    let (mut world, object) = unsaid();
    end_job(&mut world);
    assert_eq!(turn(&mut world, &object), StatusTiming::Later);
}

#[test]
fn a_status_that_somebody_waits_for_is_written_at_once() {
    let at_once = |change: &dyn Fn(&mut Value)| {
        let (mut world, mut object) = unsaid();
        end_job(&mut world);
        change(&mut object);
        assert_eq!(turn(&mut world, &object), StatusTiming::Now, "{object:#}");
    };
    // Graceful eviction waits for the observed generation.
    at_once(&|object| {
        object["spec"]["gracefulEvictionTasks"] = json!([{"fromCluster": "m1", "reason": "r", "producer": "p"}]);
    });
    // It was scheduled before, or could not be.
    at_once(&|object| object["status"]["lastScheduledTime"] = "2026-01-01T00:00:00Z".into());
    at_once(&|object| {
        let since = "2026-01-01T00:00:00Z";
        object["status"]["conditions"] = json!([{
            "type": "Scheduled", "status": "False", "reason": "r", "message": "", "lastTransitionTime": since,
        }]);
    });
    // Which of its affinity terms is in use is kept in the status.
    at_once(&|object| object["spec"]["placement"]["clusterAffinities"] = json!([{"affinityName": "near"}]));
    // It does not end by itself.
    at_once(&|object| {
        object["spec"]["resource"]["apiVersion"] = "apps/v1".into();
        object["spec"]["resource"]["kind"] = "Deployment".into();
    });
}

#[test]
fn a_first_status_is_due_in_three_seconds_and_says_when_the_job_was_placed() {
    let (mut statuses, began) = (FirstStatuses::default(), Instant::now());
    let binding = Binding::parse_binding(&binding(2)).unwrap();
    let later = |seconds: u64| began + Duration::from_secs(seconds);
    statuses.observe_placement(&binding, now(), began);
    assert_eq!(statuses.next_due(), Some(later(3)));
    assert!(!statuses.is_wait_over(&binding, now(), later(2)) && statuses.take_due(later(2)).is_empty());
    // Placed again, for it grew: when it is due stays.
    let again = now() + jiff::SignedDuration::from_secs(2);
    statuses.observe_placement(&binding, again, later(2));
    assert_eq!(statuses.take_due(later(3)), [key()]);
    assert!(statuses.is_wait_over(&binding, now(), later(3)));
    assert_eq!((statuses.get_placement_time(&binding), statuses.next_due()), (Some(again), None));
    // Made anew under its name, it waits anew.
    let anew = Binding { uid: "anew".into(), ..binding.clone() };
    assert_eq!(statuses.get_placement_time(&anew), None);
    assert!(!statuses.is_wait_over(&anew, now(), later(4)));
    assert_eq!(statuses.next_due(), Some(later(7)));
    statuses.forget(&key());
    assert_eq!(statuses.next_due(), None);
}
