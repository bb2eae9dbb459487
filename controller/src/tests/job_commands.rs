//! Commands for Volcano Jobs: what each does, what is refused, and that none is carried out twice.

use caldera_runtime::write::{Body, Failure};
use serde_json::{Value, json};

use super::world::World;

pub fn send(world: &mut World, name: &str, action: &str, job: &str) {
    command_in(world, "ns", name, action, job, "");
}

fn command_in(world: &mut World, namespace: &str, name: &str, action: &str, job: &str, uid: &str) {
    world.put(json!({
        "apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command",
        "metadata": {"namespace": namespace, "name": name}, "action": action,
        "target": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": job, "uid": uid},
    }));
}

fn running() -> World {
    let mut world = World::new(4);
    world.job("a", "q", 4);
    world.settle();
    world.place("a-job", 4);
    world.phase("a", "Running");
    world.pass(2);
    world
}

fn lose_copies(world: &mut World) {
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": null}}));
    world.patch("Job", "a", &json!({"status": {"running": 0, "state": {"phase": "Pending"}}}));
}

fn clusters(world: &World) -> usize {
    world.get("ResourceBinding", "a-job")["spec"]["clusters"].as_array().map_or(0, Vec::len)
}

fn commands(world: &World) -> usize {
    world.objects.keys().filter(|key| key.0 == "Command").count()
}

/// Reason and message of events on this kind.
fn reported(world: &World, kind: &str) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let events = world.objects.values().filter(|object| object["kind"] == "Event");
    let of_kind = events.filter(|event| event["involvedObject"]["kind"] == kind);
    of_kind.map(|event| (text(&event["reason"]), text(&event["message"]))).collect()
}

fn was_reported(world: &World, kind: &str, reason: &str, part: &str) -> bool {
    reported(world, kind).iter().any(|(given, message)| given == reason && message.contains(part))
}

/// Evictions that were carried out.
fn evictions(world: &World) -> usize {
    let evicts =
        |body: &Body| matches!(body, Body::JsonPatch(patch) if patch.to_string().contains("caldera.dev~1eviction"));
    world.writes.iter().filter(|write| evicts(&write.body)).count()
}

#[test]
fn abort_suspends_a_job_and_resume_puts_it_in_line_with_its_age() {
    let mut world = running();
    world.job("later", "q", 4);
    send(&mut world, "stop", "AbortJob", "a");
    assert_eq!(world.pass(3), ["later-job"]);
    assert_eq!((clusters(&world), commands(&world)), (0, 0));
    assert_eq!(world.says("a").0, "SuspendedByUser");
    assert!(was_reported(
        &world,
        "Job",
        "CommandIssued",
        "Command stop (AbortJob): nothing to do: the job is suspended"
    ));
    lose_copies(&mut world);
    world.job("last", "q", 4);
    send(&mut world, "go", "ResumeJob", "a");
    world.pass(5);
    assert_eq!(commands(&world), 0);
    world.delete("ResourceBinding", "later-job");
    assert_eq!(world.pass(2), ["a-job"], "it keeps its age");
}

#[test]
fn commands_of_one_job_are_carried_out_in_their_order() {
    let mut world = running();
    send(&mut world, "one", "AbortJob", "a");
    send(&mut world, "two", "ResumeJob", "a");
    world.pass(10);
    assert_eq!((commands(&world), evictions(&world)), (0, 1));
    assert!(world.get("Job", "a")["metadata"]["annotations"]["caldera.dev/suspended"].is_null());
    lose_copies(&mut world);
    assert_eq!(world.pass(15), ["a-job"]);
}

#[test]
fn terminate_and_complete_end_a_job_for_good() {
    for (action, phase) in [("TerminateJob", "Terminated"), ("CompleteJob", "Completed")] {
        let mut world = running();
        send(&mut world, "end", action, "a");
        world.pass(2);
        assert_eq!((world.used("q").as_str(), clusters(&world), commands(&world)), ("0", 0, 0), "{action}");
        lose_copies(&mut world);
        assert!(world.pass(8).is_empty());
        assert_eq!(world.get("Job", "a")["status"]["state"]["phase"], phase);
    }
}

#[test]
fn restart_takes_a_job_off_its_clusters_once_and_it_starts_anew() {
    let mut world = running();
    send(&mut world, "again", "RestartJob", "a");
    world.pass(2);
    assert_eq!((world.used("q").as_str(), clusters(&world), evictions(&world), commands(&world)), ("0", 0, 1, 0));
    assert!(world.says("a").1.contains("was restarted by its user"), "{:?}", world.says("a"));
    lose_copies(&mut world);
    assert_eq!(world.pass(2), ["a-job"]);
    world.place("a-job", 4);
    world.pass(60);
    assert_eq!((clusters(&world), evictions(&world)), (1, 1));
}

/// Found by a simulation: Karmada tells the binding first, and the job ran again that its user had seen end.
#[test]
fn a_job_that_has_ended_in_its_clusters_is_not_restarted_although_it_does_not_say_so_yet() {
    let mut world = running();
    let reported = json!([{"clusterName": "m1", "applied": true, "status": {"state": {"phase": "Completed"}}}]);
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": reported}}));
    send(&mut world, "again", "RestartJob", "a");
    world.pass(5);
    assert_eq!((clusters(&world), evictions(&world), commands(&world)), (1, 0, 1), "it waits for what the job says");
    world.phase("a", "Completed");
    world.pass(5);
    assert_eq!((evictions(&world), commands(&world)), (0, 0));
    let said = "Command again (RestartJob): not carried out: the job has ended, or ends, as Completed";
    assert!(was_reported(&world, "Job", "CommandRefused", said));
}

#[test]
fn a_crash_between_a_command_and_its_deletion_carries_out_nothing_twice() {
    for action in ["AbortJob", "RestartJob", "TerminateJob"] {
        // So many writes arrive before the process is gone.
        for budget in 0..6 {
            let mut world = running();
            send(&mut world, "c", action, "a");
            world.budget = Some(budget);
            world.pass(1);
            world.budget = None;
            let commands_left: Vec<Value> =
                world.objects.values().filter(|object| object["kind"] == "Command").cloned().collect();
            world.begin_anew();
            commands_left.iter().for_each(|command| world.report(command, false));
            world.pass(8);
            assert_eq!((commands(&world), evictions(&world)), (0, 1), "{action}, {budget}");
            assert_eq!((world.used("q").as_str(), clusters(&world)), ("0", 0), "{action}, {budget}");
        }
    }
}

#[test]
fn a_restart_that_was_done_is_not_done_again_though_the_job_runs_again() {
    let mut world = running();
    send(&mut world, "again", "RestartJob", "a");
    world.fail = vec![("commands", Failure::Transient("not now".into())); 30];
    world.pass(2);
    lose_copies(&mut world);
    assert_eq!(world.pass(2), ["a-job"]);
    world.place("a-job", 4);
    world.phase("a", "Running");
    world.begin_anew();
    let command = world.get("Command", "again").clone();
    world.report(&command, false);
    world.pass(60);
    assert_eq!((clusters(&world), evictions(&world), commands(&world)), (1, 1, 0));
}

#[test]
fn what_is_for_a_part_of_a_job_or_is_no_action_is_refused_and_said() {
    for action in ["RestartTask", "RestartPod", "RestartPartition", "OpenQueue", "Dance", ""] {
        let mut world = running();
        send(&mut world, "c", action, "a");
        world.pass(5);
        assert_eq!((commands(&world), clusters(&world), evictions(&world)), (0, 1, 0), "{action}");
        assert!(was_reported(&world, "Job", "CommandRefused", "not carried out"), "{:?}", reported(&world, "Job"));
    }
}

#[test]
fn a_job_that_ended_obeys_nobody() {
    for action in ["AbortJob", "ResumeJob", "RestartJob", "TerminateJob", "CompleteJob"] {
        let mut world = running();
        world.phase("a", "Failed");
        world.pass(1);
        send(&mut world, "c", action, "a");
        world.pass(5);
        assert_eq!((commands(&world), evictions(&world)), (0, 0), "{action}");
        assert!(
            was_reported(&world, "Job", "CommandRefused", "has ended, or ends, as Failed"),
            "{:?}",
            reported(&world, "Job")
        );
    }
}

#[test]
fn a_suspended_job_obeys_resume_alone() {
    for action in ["RestartJob", "TerminateJob", "CompleteJob"] {
        let mut world = running();
        world.patch("Job", "a", &json!({"metadata": {"annotations": {"caldera.dev/suspended": "true"}}}));
        world.pass(1);
        send(&mut world, "c", action, "a");
        world.pass(5);
        assert!(
            was_reported(&world, "Job", "CommandRefused", "only ResumeJob"),
            "{action} {:?}",
            reported(&world, "Job")
        );
        assert_eq!(world.says("a").0, "SuspendedByUser");
    }
}

#[test]
fn a_job_that_its_own_policies_aborted_is_resumed_with_new_copies() {
    let mut world = running();
    world.phase("a", "Aborted");
    world.pass(1);
    send(&mut world, "go", "ResumeJob", "a");
    world.pass(2);
    assert_eq!((clusters(&world), evictions(&world)), (0, 1));
    lose_copies(&mut world);
    assert_eq!(world.pass(3), ["a-job"]);
    world.pass(5);
    assert_eq!(commands(&world), 0);
}

#[test]
fn a_command_of_another_namespace_or_for_another_uid_reaches_nothing() {
    let mut world = running();
    command_in(&mut world, "other", "far", "AbortJob", "a", "");
    command_in(&mut world, "ns", "old", "AbortJob", "a", "the-one-before");
    world.pass(30);
    assert_eq!(commands(&world), 2, "their jobs may yet be seen");
    world.pass(40);
    assert_eq!((commands(&world), clusters(&world), evictions(&world)), (0, 1, 0));
    assert!(was_reported(&world, "Command", "JobNotFound", "nothing was done"));
}

#[test]
fn a_flood_of_commands_delays_its_own_job_and_nobody_else() {
    let mut world = running();
    for number in 0..300 {
        send(&mut world, &format!("flood-{number}"), "RestartJob", "a");
    }
    world.job("b", "q", 4);
    let mut released = world.settle();
    released.extend(world.pass(2));
    assert_eq!(released, ["b-job"], "the first of the flood freed the quota");
    let events = reported(&world, "Job").iter().filter(|(reason, _)| reason.starts_with("Command")).count();
    assert!(events <= 8, "{events} events in three seconds");
    assert_eq!(evictions(&world), 1, "what has no clusters is not restarted");
}

#[test]
fn a_write_of_a_command_that_fails_is_decided_anew() {
    let mut world = running();
    world.fail = vec![
        ("jobs", Failure::Transient("not now".into())),
        ("jobs", Failure::Conflict("changed".into())),
        ("commands", Failure::Transient("not now".into())),
    ];
    send(&mut world, "stop", "AbortJob", "a");
    world.pass(6);
    assert!(world.fail.is_empty());
    assert_eq!((commands(&world), clusters(&world)), (0, 0));
}

#[test]
fn a_user_who_changes_a_suspension_by_hand_is_not_overruled_by_a_command_that_was_done() {
    let mut world = running();
    world.fail = vec![("commands", Failure::Transient("not now".into())); 20];
    send(&mut world, "stop", "AbortJob", "a");
    world.settle();
    world.patch("Job", "a", &json!({"metadata": {"annotations": {"caldera.dev/suspended": null}}}));
    world.pass(40);
    assert_eq!(commands(&world), 0);
    assert!(world.get("Job", "a")["metadata"]["annotations"]["caldera.dev/suspended"].is_null());
}
