//! Records that follow what their workloads want.

use serde_json::{Value, json};

use super::world::{World, job};

fn deployment(replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "ns", "annotations": {"scheduling.volcano.sh/queue-name": "q"}},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
        }},
    })
}

/// Runs with three replicas of one cpu.
fn web(world: &mut World) {
    let web = world.put(deployment(3));
    world.bind(&web, 3, true);
    assert_eq!(world.settle(), ["web-deployment"]);
    world.place("web-deployment", 3);
    world.settle();
}

/// Its user, and Karmada's detector after them, want so many.
fn scale(world: &mut World, replicas: u32) {
    world.patch("Deployment", "web", &json!({"spec": {"replicas": replicas}}));
    world.patch("ResourceBinding", "web-deployment", &json!({"spec": {"replicas": replicas}}));
}

/// Its user changes what each pod asks for.
fn resize(world: &mut World, cpu: &str) {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
    world.patch("Deployment", "web", &json!({"spec": {"template": {"spec": {"containers": [container]}}}}));
}

/// Karmada's detector sends a changed template on by itself, and Kubernetes lets only Deployments and StatefulSets
/// change it. The webhook on Works keeps it on the host until the record covers it (docs/rules/queues.md, "Changed
/// requests").
#[test]
fn changed_requests_wait_in_line_for_the_difference() {
    let mut world = World::new(8);
    web(&mut world);
    world.job("a", "q", 3);
    assert_eq!(world.settle(), ["a-job"]);
    world.place("a-job", 3);
    resize(&mut world, "2");
    world.job("b", "q", 2);
    world.pass(3);
    // Two of eight are free, three more are asked for, and who came later comes later.
    assert_eq!((record(&world, "web-deployment")[1].clone(), world.used("q")), (json!("3"), "8".to_owned()));
    assert_eq!(world.says("web").0, "ScaledBeyondAdmission");
    world.phase("a", "Completed");
    world.pass(3);
    assert_eq!((record(&world, "web-deployment"), world.used("q")), (json!([{"pods": 3}, "6"]), "8".to_owned()));
    // What it asks for no more is free at once.
    resize(&mut world, "1");
    world.job("c", "q", 3);
    assert_eq!(world.pass(3), ["c-job"]);
    assert_eq!((record(&world, "web-deployment")[1].clone(), world.used("q")), (json!("3"), "8".to_owned()));
    assert_eq!(world.says("web").0, "Placed");
}

/// An edit of a template alone took the fleet: everybody waited for what its pods would have asked for.
#[test]
fn a_template_that_asks_for_the_world_takes_nothing_from_others() {
    let mut world = World::new(8);
    world.queue("other", &json!({}));
    web(&mut world);
    resize(&mut world, "1000000");
    world.job("a", "q", 5);
    world.job("b", "other", 5);
    let mut released = world.pass(3);
    released.sort();
    assert_eq!(released, ["a-job", "b-job"]);
    assert_eq!((world.used("q").as_str(), world.says("web").0.as_str()), ("8", "ExceedsCapability"));
}

fn record(world: &World, binding: &str) -> Value {
    let record = &world.get("ResourceBinding", binding)["metadata"]["annotations"]["caldera.dev/admission"];
    let record: Value = serde_json::from_str(record.as_str().unwrap()).unwrap();
    json!([record["tasks"], record["charged"]["cpu"]])
}

#[test]
fn who_is_scaled_up_waits_for_the_difference_and_runs_on() {
    let mut world = World::new(8);
    web(&mut world);
    world.job("a", "q", 4);
    assert_eq!(world.settle(), ["a-job"]);
    world.place("a-job", 4);
    scale(&mut world, 6);
    world.pass(3);
    let (reason, message) = world.says("web");
    assert_eq!(reason, "ScaledBeyondAdmission");
    assert!(message.contains("asks for cpu: 6") || message.contains("cpu 6"), "{message}");
    assert!(message.contains("waits: "), "{message}");
    assert_eq!(record(&world, "web-deployment")[1], "3");
    // Its place in line outlives the controller.
    world.restart();
    world.job("b", "q", 1);
    world.pass(2);
    world.phase("a", "Completed");
    world.pass(2);
    assert_eq!(record(&world, "web-deployment")[1], "6");
    assert_eq!(world.used("q"), "7");
    world.place("web-deployment", 6);
    world.pass(5);
    assert_eq!(world.says("web").0, "Placed");
    assert_eq!(world.get("ResourceBinding", "web-deployment")["spec"]["suspension"]["scheduling"], false);
}

#[test]
fn who_can_never_have_the_difference_is_told_so_with_numbers() {
    let mut world = World::new(8);
    web(&mut world);
    scale(&mut world, 12);
    world.pass(3);
    let (reason, message) = world.says("web");
    assert_eq!(reason, "ExceedsCapability");
    assert_eq!(
        message,
        "can never be more in queue q: needs cpu 9 on top of 3 that it holds, more than 8, which is the capability of queue q"
    );
    assert_eq!(world.group("web")["status"]["conditions"][0]["type"], "Scheduled");
    assert!(world.events().contains(&("Warning".into(), "ExceedsCapability".into())), "{:?}", world.events());
    world.queue("q", &json!({"capability": {"cpu": "12"}}));
    world.pass(2);
    assert_eq!(record(&world, "web-deployment")[1], "12");
}

#[test]
fn where_there_is_quota_nothing_waits_and_nothing_is_reported() {
    let mut world = World::new(8);
    web(&mut world);
    world.pass(5);
    let reported = world.writes.len();
    scale(&mut world, 5);
    world.settle();
    assert_eq!(record(&world, "web-deployment")[1], "5");
    assert_eq!(world.writes.len(), reported + 1);
}

#[test]
fn who_is_scaled_down_gives_back_once_its_pods_are_going() {
    let mut world = World::new(4);
    web(&mut world);
    world.job("a", "q", 3);
    world.settle();
    scale(&mut world, 1);
    world.settle();
    assert_eq!(record(&world, "web-deployment")[1], "1");
    // Three are still placed.
    assert_eq!(world.used("q"), "3");
    world.place("web-deployment", 1);
    assert_eq!(world.settle(), ["a-job"]);
    assert_eq!(world.used("q"), "4");
}

#[test]
fn scaled_up_and_down_again_nobody_is_left_in_line() {
    let mut world = World::new(3);
    web(&mut world);
    scale(&mut world, 6);
    world.pass(2);
    assert_eq!(world.controller.jobs.engine.usage_of(&"q".into()).waiting, 1);
    scale(&mut world, 3);
    world.pass(5);
    assert_eq!(world.controller.jobs.engine.usage_of(&"q".into()).waiting, 0);
    assert_eq!(world.says("web").0, "Placed");
    scale(&mut world, 6);
    world.delete("ResourceBinding", "web-deployment");
    world.pass(2);
    assert_eq!(world.controller.jobs.engine.usage_of(&"q".into()).waiting, 0);
}

fn elastic(name: &str, min: u32, pods: u32) -> Value {
    let mut job = job(name, "q", pods);
    job["spec"]["minAvailable"] = min.into();
    job
}

fn plan(pods: u32) -> Value {
    let share = json!({"tasks": {"worker": {"replicas": pods, "minAvailable": 2}}, "minAvailable": 2});
    json!({
        "metadata": {"annotations": {"caldera.dev/plan": json!({"clusters": {"m1": share}}).to_string()}},
        "spec": {"clusters": [{"name": "m1", "replicas": pods}]},
    })
}

#[test]
fn a_gang_that_was_granted_less_grows_after_everybody_in_its_line() {
    let mut world = World::new(8);
    world.job("a", "q", 5);
    world.settle();
    world.place("a-job", 5);
    let e = world.put(elastic("e", 2, 8));
    world.bind(&e, 8, true);
    assert_eq!(world.settle(), ["e-job"]);
    assert_eq!(record(&world, "e-job")[1], "3");
    world.patch("ResourceBinding", "e-job", &plan(3));
    world.job("b", "q", 3);
    world.pass(2);
    world.phase("a", "Completed");
    assert_eq!(world.pass(1), ["b-job"]);
    assert_eq!(record(&world, "e-job"), json!([{"worker": 5}, "5"]));
    assert_eq!(world.used("q"), "8");
    // No more before what it has is placed.
    world.place("b-job", 3);
    world.phase("b", "Completed");
    world.pass(2);
    world.patch("ResourceBinding", "e-job", &plan(5));
    world.pass(2);
    assert_eq!(record(&world, "e-job"), json!([{"worker": 8}, "8"]));
}

/// An elastic gang of eight that stays in m1, and is placed with three.
fn placed_in_part(world: &mut World) {
    let e = world.put(elastic("e", 2, 8));
    world.bind(&e, 8, true);
    let only = json!({"spec": {"placement": {"clusterAffinity": {"clusterNames": ["m1"]}}}});
    world.patch("ResourceBinding", "e-job", &only);
    assert_eq!(world.settle(), ["e-job"]);
    assert_eq!(record(world, "e-job")[1], "8");
    world.patch("ResourceBinding", "e-job", &plan(3));
    world.phase("e", "Running");
}

#[test]
fn what_finds_no_place_for_five_minutes_goes_back_and_waits_as_growth() {
    let mut world = World::new(8);
    world.cluster("m2", "100");
    placed_in_part(&mut world);
    world.cluster("m1", "3");
    world.job("b", "q", 5);
    assert!(world.pass(290).is_empty());
    assert_eq!(world.used("q"), "8");
    assert_eq!(world.pass(20), ["b-job"]);
    assert_eq!(record(&world, "e-job"), json!([{"worker": 3}, "3"]));
    assert_eq!(world.used("q"), "8");
    // There is room again, and quota: it grows, after everybody else.
    world.cluster("m1", "100");
    world.place("b-job", 5);
    world.phase("b", "Completed");
    world.pass(3);
    assert_eq!(record(&world, "e-job"), json!([{"worker": 8}, "8"]));
    world.patch("ResourceBinding", "e-job", &plan(8));
    world.pass(2000);
    assert_eq!(record(&world, "e-job"), json!([{"worker": 8}, "8"]));
}

#[test]
fn what_is_granted_again_and_again_and_never_placed_is_written_seldom() {
    let mut world = World::new(8);
    placed_in_part(&mut world);
    world.pass(10);
    let records = |world: &World| world.writes.iter().filter(|w| w.resource.plural == "resourcebindings").count();
    let before = records(&world);
    world.pass(3 * 3600);
    let written = records(&world) - before;
    assert!((2..=12).contains(&written), "{written} writes");
}

#[test]
fn a_larger_record_without_an_answer_is_sent_again_and_one_that_is_refused_lets_others_pass() {
    use caldera_runtime::write::Failure;
    let mut world = World::new(6);
    web(&mut world);
    world.fail = vec![("resourcebindings", Failure::Transient("lost".into()))];
    scale(&mut world, 5);
    world.settle();
    assert_eq!(record(&world, "web-deployment")[1], "3");
    world.job("b", "q", 2);
    assert!(world.settle().is_empty());
    world.pass(1);
    assert_eq!(record(&world, "web-deployment")[1], "5");
    let refused = Failure::Refused { code: 403, reason: "Forbidden".into(), message: "no".into() };
    world.fail = vec![("resourcebindings", refused)];
    world.phase("b", "Pending");
    scale(&mut world, 6);
    world.settle();
    assert_eq!(record(&world, "web-deployment")[1], "5");
    world.job("c", "q", 1);
    assert_eq!(world.settle(), ["c-job"]);
}

/// Karmada sends nothing to members then: pods that were scaled down run on.
#[test]
fn what_is_not_dispatched_gives_no_charge_back() {
    for suspension in [json!({"dispatching": true}), json!({"dispatchingOnClusters": {"clusterNames": ["m1"]}})] {
        let mut world = World::new(3);
        web(&mut world);
        world.patch("ResourceBinding", "web-deployment", &json!({"spec": {"suspension": suspension}}));
        scale(&mut world, 1);
        world.job("a", "q", 1);
        assert!(world.pass(5).is_empty());
        assert_eq!(world.used("q"), "3");
        world.patch("ResourceBinding", "web-deployment", &json!({"spec": {"suspension": null}}));
        world.pass(3);
        assert_eq!(record(&world, "web-deployment"), json!([{"pods": 1}, "1"]));
    }
}
