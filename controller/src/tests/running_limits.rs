//! Limits of running jobs, as a Queue's annotations say them.

use serde_json::{Value, json};

use super::world::World;

const ALL: &str = "caldera.dev/max-running-jobs";
const OF_NAMESPACE: &str = "caldera.dev/max-running-jobs-per-namespace";

fn limit(world: &mut World, queue: &str, annotations: &Value) {
    world.patch("Queue", queue, &json!({"metadata": {"annotations": annotations}}));
}

#[test]
fn as_many_jobs_run_as_the_queue_allows_also_after_a_restart() {
    let mut world = World::new(10);
    limit(&mut world, "q", &json!({ALL: "1"}));
    world.job("a", "q", 1);
    world.job("b", "q", 1);
    assert_eq!(world.pass(5), ["a-job"]);
    assert_eq!(
        world.says("b"),
        (
            "WaitingForRunningJobs".into(),
            "waits in queue q, position 1 of 1: 1 job running in queue q and those below it, 1 at most".into()
        )
    );
    world.restart();
    assert!(world.pass(60).is_empty());
    world.place("a-job", 1);
    world.restart();
    assert!(world.pass(60).is_empty());
    limit(&mut world, "q", &json!({ALL: "2"}));
    assert_eq!(world.pass(5), ["b-job"]);
}

#[test]
fn a_limit_of_a_namespace_s_jobs_counts_those_that_run_when_it_is_set() {
    let mut world = World::new(10);
    world.queue("top", &json!({}));
    world.queue("leaf", &json!({"parent": "top"}));
    world.job("a", "leaf", 1);
    assert_eq!(world.pass(5), ["a-job"]);
    limit(&mut world, "top", &json!({OF_NAMESPACE: "1"}));
    world.job("b", "leaf", 1);
    assert!(world.pass(5).is_empty());
    let (_, message) = world.says("b");
    assert!(message.contains("1 job of namespace ns running in queue top and those below it"), "{message}");
    // Under another queue nobody counts them.
    world.patch("Queue", "leaf", &json!({"spec": {"parent": "root"}}));
    assert_eq!(world.pass(5), ["b-job"]);
}

#[test]
fn a_limit_that_is_no_number_lets_none_run_and_is_said_on_the_queue() {
    let mut world = World::new(10);
    limit(&mut world, "q", &json!({ALL: "many"}));
    world.job("a", "q", 1);
    assert!(world.pass(60).is_empty());
    let note = world.get("Queue", "q")["metadata"]["annotations"]["caldera.dev/queue-status"].to_string();
    assert!(note.contains("is no whole number of jobs: it counts as 0"), "{note}");
    limit(&mut world, "q", &json!({ALL: null}));
    assert_eq!(world.pass(5), ["a-job"]);
}

#[test]
fn what_two_replicas_granted_beyond_a_running_limit_is_taken_back() {
    let mut world = World::new(10);
    world.controller.jobs.epoch = Some("4.me".into());
    for annotations in [json!({ALL: "1"}), json!({ALL: null, OF_NAMESPACE: "1"})] {
        limit(&mut world, "q", &annotations);
        for name in ["old", "young"] {
            world.job(name, "q", 1);
        }
        world.settle();
        let record = json!({
            "queue": "q", "priority": 0, "copies": 1, "tasks": {"worker": 1}, "charged": {"cpu": "1", "pods": "1"},
        });
        let annotations = json!({
            "caldera.dev/gate": "open", "caldera.dev/admission": record.to_string(), "caldera.dev/epoch": "3.other",
        });
        let patch = json!({"metadata": {"annotations": annotations}, "spec": {"suspension": {"scheduling": false}}});
        world.patch("ResourceBinding", "young-job", &patch);
        world.settle();
        let granted = |name: &str| {
            let annotations = &world.get("ResourceBinding", &format!("{name}-job"))["metadata"]["annotations"];
            annotations["caldera.dev/admission"].is_string()
        };
        assert_eq!(["old", "young"].map(granted), [true, false]);
        for name in ["old", "young"] {
            world.delete("ResourceBinding", &format!("{name}-job"));
            world.delete("Job", name);
        }
        world.pass(5);
    }
}
