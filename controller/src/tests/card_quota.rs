//! Quota by card model: what queues may have of each, in the whole fleet, and what jobs and edits are charged.

use caldera_core::{
    fleet::Update,
    inventory::{Change, Node},
    quantity::Quantity,
};
use caldera_crds::names::volcano::{CARD_NAME, CARD_QUOTA};
use serde_json::{Value, json};

use super::world::{World, job};

const GPU: &str = "nvidia.com/gpu";
const PRODUCT: &str = "nvidia.com/gpu.product";

/// Two members, each with a node of eight cards of each of two models; queues `a` and `b` below `top`.
fn fleet() -> World {
    let mut world = World::empty();
    ["m1", "m2"].iter().for_each(|member| world.cluster(member, "100"));
    list_nodes(&mut world);
    world.queue("top", &json!({}));
    ["a", "b"].iter().for_each(|name| world.queue(name, &json!({"parent": "top"})));
    world.pass(5);
    world
}

/// What the members tell, also to a controller that was started anew.
fn list_nodes(world: &mut World) {
    for member in ["m1", "m2"] {
        for update in [Update::Up, Update::Change(Change::Nodes(vec![])), Update::Change(Change::Pods(vec![]))] {
            world.controller.observe(crate::observe::Input::Member(member.into(), update), world.now);
        }
        ["A100", "H100"].iter().for_each(|model| node(world, member, model));
    }
}

fn node(world: &mut World, member: &str, model: &str) {
    let node = Node {
        name: format!("{member}-{model}").as_str().into(),
        labels: [(PRODUCT.to_owned(), model.to_owned())].into(),
        allocatable: [("cpu", 64), ("pods", 100), (GPU, 8)]
            .map(|(name, units)| (name, Quantity::from_units(units)))
            .into_iter()
            .collect(),
        ready: true,
        ..Node::default()
    };
    let change = Update::Change(Change::Node(node));
    world.controller.observe(crate::observe::Input::Member(member.into(), change), world.now);
}

fn limit(world: &mut World, queue: &str, quota: Option<&str>) {
    world.patch("Queue", queue, &json!({"metadata": {"annotations": {CARD_QUOTA: quota}}}));
}

fn pod(cards: u32, model: Option<&str>) -> Value {
    let requests = json!({"cpu": "1", GPU: cards.to_string()});
    let selector = model.map(|model| json!({PRODUCT: model}));
    json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}], "nodeSelector": selector})
}

/// A job of one pod.
fn submit(world: &mut World, name: &str, queue: &str, cards: u32, model: Option<&str>) {
    let mut job = job(name, queue, 1);
    job["spec"]["tasks"][0]["template"]["spec"] = pod(cards, model);
    let job = world.put(job);
    world.bind(&job, 1, true);
}

fn charged(world: &World, binding: &str) -> Value {
    let text = world.get("ResourceBinding", binding)["metadata"]["annotations"]["caldera.dev/admission"].clone();
    serde_json::from_str::<Value>(text.as_str().unwrap()).unwrap()["charged"].clone()
}

fn used(world: &World, queue: &str, model: &str) -> String {
    let used = world.controller.jobs.engine.usage_of(&queue.into()).used;
    used.get(&format!("{GPU}:{model}")).to_string()
}

#[test]
fn a_quota_by_model_holds_for_all_queues_below_in_the_whole_fleet() {
    let mut world = fleet();
    limit(&mut world, "top", Some(r#"{"A100": 8, "H100": 4}"#));
    submit(&mut world, "first", "a", 6, Some("A100"));
    assert_eq!(world.pass(5), ["first-job"]);
    assert_eq!(charged(&world, "first-job"), json!({"cpu": "1", GPU: "6", "nvidia.com/gpu:A100": "6", "pods": "1"}));
    // There are ten idle A100, and two of the quota.
    submit(&mut world, "waits", "b", 4, Some("A100"));
    submit(&mut world, "small", "b", 2, Some("A100"));
    submit(&mut world, "other", "b", 4, Some("H100"));
    let mut released = world.pass(5);
    released.sort();
    assert_eq!(released, ["other-job", "small-job"]);
    let (reason, message) = world.says("waits");
    assert_eq!(reason, "WaitingForQuota");
    assert!(message.contains("nvidia.com/gpu:A100") && message.contains("queue top"), "{message}");
    assert_eq!([used(&world, "top", "A100"), used(&world, "b", "H100")], ["8", "4"]);
    world.restart();
    list_nodes(&mut world);
    assert!(world.pass(5).is_empty());
    assert_eq!(used(&world, "top", "A100"), "8");
    world.delete("ResourceBinding", "first-job");
    world.delete("Job", "first");
    assert_eq!(world.pass(5), ["waits-job"]);
}

#[test]
fn more_than_the_whole_quota_of_a_model_is_never_admitted_and_told_with_numbers() {
    let mut world = fleet();
    limit(&mut world, "a", Some(r#"{"A100": 2}"#));
    submit(&mut world, "large", "a", 3, Some("A100"));
    assert!(world.pass(5).is_empty());
    let (reason, message) = world.says("large");
    assert_eq!(reason, "ExceedsCapability");
    assert!(message.contains("nvidia.com/gpu:A100 3") && message.contains('2'), "{message}");
    // The pool alone bounds a queue that says nothing of models.
    submit(&mut world, "free", "b", 8, Some("A100"));
    assert_eq!(world.pass(5), ["free-job"]);
    assert_eq!(used(&world, "top", "A100"), "8");
}

#[test]
fn a_model_that_no_cluster_has_is_reported_by_placement_and_charged_to_nobody() {
    let mut world = fleet();
    submit(&mut world, "a", "a", 1, Some("V100"));
    assert!(world.pass(5).is_empty());
    assert_eq!(world.says("a").0, "NeverFits", "{:?}", world.says("a"));
    node(&mut world, "m1", "V100");
    assert_eq!(world.pass(5), ["a-job"]);
}

#[test]
fn a_job_that_waits_for_room_on_its_model_starts_when_others_end() {
    let mut world = fleet();
    for name in ["first", "second"] {
        submit(&mut world, name, "a", 8, Some("A100"));
    }
    assert_eq!(world.pass(5).len(), 2);
    submit(&mut world, "third", "a", 8, Some("A100"));
    assert!(world.pass(5).is_empty());
    assert_eq!(world.says("third").0, "InsufficientCapacity", "{:?}", world.says("third"));
    world.delete("ResourceBinding", "first-job");
    world.delete("Job", "first");
    assert_eq!(world.pass(5), ["third-job"]);
}

#[test]
fn a_job_that_names_no_model_or_another_one_is_inadmissible_and_holds_nobody_up() {
    let mut world = fleet();
    world.queue("a", &json!({"parent": "top", "dequeueStrategy": "fifo"}));
    limit(&mut world, "top", Some(r#"{"A100": 8}"#));
    submit(&mut world, "unnamed", "a", 1, None);
    submit(&mut world, "other", "a", 1, Some("H100"));
    submit(&mut world, "cpu", "a", 0, None);
    assert_eq!(world.pass(5), ["cpu-job"]);
    let (reason, message) = world.says("unnamed");
    assert_eq!(reason, "NoCardQuota");
    let reported = "queue top, above queue a, has its quota of nvidia.com/gpu by card model";
    assert!(message.starts_with(reported), "{message}");
    let (reason, message) = world.says("other");
    assert_eq!(reason, "NoCardQuota");
    assert!(message.contains("no quota of the H100 that task worker names"), "{message}");
    limit(&mut world, "top", None);
    let mut released = world.pass(5);
    released.sort();
    assert_eq!(released, ["other-job", "unnamed-job"]);
}

#[test]
fn a_card_quota_that_can_not_be_read_takes_no_job_and_is_said_on_the_queue() {
    let mut world = fleet();
    limit(&mut world, "a", Some("eight"));
    submit(&mut world, "x", "a", 0, None);
    assert!(world.pass(60).is_empty());
    assert_eq!(world.says("x").0, "NoCardQuota");
    let note = world.get("Queue", "a")["metadata"]["annotations"]["caldera.dev/queue-status"].to_string();
    assert!(note.contains(CARD_QUOTA) && note.contains("it takes no job"), "{note}");
}

/// Runs with two pods of two A100 each.
fn web(world: &mut World) {
    let web = world.put(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "ns", "annotations": {"scheduling.volcano.sh/queue-name": "a"}},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": pod(2, Some("A100")),
        }},
    }));
    world.bind(&web, 2, true);
    assert_eq!(world.pass(2), ["web-deployment"]);
    world.place("web-deployment", 2);
    world.pass(2);
}

fn edit(world: &mut World, pod: Value) {
    let mut web = world.get("Deployment", "web").clone();
    web["spec"]["template"]["spec"] = pod;
    world.put(web);
    world.pass(5);
}

#[test]
fn a_template_that_names_another_model_waits_for_its_quota_and_is_charged_the_old_one_until_then() {
    let mut world = fleet();
    limit(&mut world, "a", Some(r#"{"A100": 4, "H100": 4}"#));
    web(&mut world);
    submit(&mut world, "holds", "a", 2, Some("H100"));
    assert_eq!(world.pass(2), ["holds-job"]);
    edit(&mut world, pod(2, Some("H100")));
    // What it asks for now stays on the host (the webhook on Works), so the old pods run on and are charged.
    assert_eq!([used(&world, "a", "A100"), used(&world, "a", "H100")], ["4", "2"]);
    assert_eq!(world.says("web").0, "ScaledBeyondAdmission", "{:?}", world.says("web"));
    submit(&mut world, "late", "a", 1, Some("A100"));
    assert!(world.pass(5).is_empty());
    world.delete("ResourceBinding", "holds-job");
    world.delete("Job", "holds");
    assert_eq!(world.pass(5), ["late-job"]);
    assert_eq!([used(&world, "a", "A100"), used(&world, "a", "H100")], ["1", "4"]);
    assert_eq!(charged(&world, "web-deployment")["nvidia.com/gpu:A100"], Value::Null);
}

#[test]
fn a_template_that_names_no_model_any_more_stays_charged_by_model() {
    let mut world = fleet();
    limit(&mut world, "top", Some(r#"{"A100": 4}"#));
    web(&mut world);
    for pods in [pod(2, None), pod(1, None), pod(2, Some("V100"))] {
        edit(&mut world, pods);
        world.pass(60);
        assert_eq!(used(&world, "a", "A100"), "4");
        let (_, message) = world.says("web");
        assert!(message.contains("it gets no more"), "{message}");
    }
    submit(&mut world, "late", "b", 1, Some("A100"));
    world.restart();
    list_nodes(&mut world);
    assert!(world.pass(5).is_empty());
    // Once its queue does not ask for a model its pods go out, and it is charged what they ask for.
    limit(&mut world, "top", None);
    edit(&mut world, pod(2, None));
    assert_eq!(used(&world, "a", "A100"), "0");
}

#[test]
fn a_scale_down_after_the_model_is_gone_from_the_quota_gives_its_charge_back() {
    let mut world = fleet();
    limit(&mut world, "a", Some(r#"{"A100": 4}"#));
    web(&mut world);
    limit(&mut world, "a", Some(r#"{"H100": 4}"#));
    world.pass(5);
    assert_eq!(used(&world, "a", "A100"), "4");
    // The pods are those that were charged, only fewer.
    let mut web = world.get("Deployment", "web").clone();
    web["spec"]["replicas"] = 1.into();
    world.put(web);
    world.pass(5);
    assert_eq!(charged(&world, "web-deployment")["nvidia.com/gpu:A100"], json!("2"));
    world.place("web-deployment", 1);
    world.pass(5);
    assert_eq!(used(&world, "a", "A100"), "2");
}

#[test]
fn amounts_by_card_model_in_a_queues_spec_count_for_nothing_and_are_reported() {
    let mut world = fleet();
    let card = json!({"nvidia.com/gpu:A100": "1"});
    world.queue("a", &json!({"parent": "top", "capability": card, "deserved": card, "guarantee": {"resource": card}}));
    submit(&mut world, "x", "a", 2, Some("A100"));
    assert_eq!(world.pass(5), ["x-job"]);
    world.pass(60);
    let note = world.get("Queue", "a")["metadata"]["annotations"]["caldera.dev/queue-status"].to_string();
    let reported = "spec.capability.nvidia.com/gpu:A100: counts for nothing: the quota of a card model is annotation";
    assert!(note.contains(&format!("{reported} {CARD_QUOTA}")), "{note}");
    for field in ["spec.deserved", "spec.guarantee.resource"] {
        assert!(note.contains(&format!("{field}.nvidia.com/gpu:A100 counts for nothing")), "{note}");
    }
}

#[test]
fn who_lacks_the_quota_of_a_model_preempts_who_holds_that_model_in_its_queue() {
    let mut world = fleet();
    limit(&mut world, "a", Some(r#"{"A100": 4, "H100": 4}"#));
    world.put(json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 100,
    }));
    for (name, model) in [("other", "H100"), ("holds", "A100")] {
        submit(&mut world, name, "a", 4, Some(model));
        world.patch("Job", name, &json!({"metadata": {"annotations": {"volcano.sh/preemptable": "true"}}}));
        assert_eq!(world.pass(1), [format!("{name}-job")]);
        world.place(&format!("{name}-job"), 1);
        let time = caldera_runtime::clock::format_time(world.now);
        let status = json!({"status": {"lastScheduledTime": time}});
        world.patch("ResourceBinding", &format!("{name}-job"), &status);
        world.phase(name, "Running");
        world.pass(1);
    }
    let mut urgent = job("urgent", "a", 1);
    urgent["spec"]["tasks"][0]["template"]["spec"] = pod(4, Some("A100"));
    urgent["spec"]["priorityClassName"] = "high".into();
    let urgent = world.put(urgent);
    world.bind(&urgent, 1, true);
    world.pass(10);
    let clusters = |name: &str| world.get("ResourceBinding", name)["spec"]["clusters"].clone();
    assert_eq!(clusters("holds-job"), json!([]), "{:?}", world.says("urgent"));
    assert_ne!(clusters("other-job"), json!([]), "it holds nothing that is lacking");
}

/// A job of one pod that may use any of these models.
fn submit_choosing(world: &mut World, name: &str, cards: u32, models: &str) {
    let mut job = job(name, "a", 1);
    let template = &mut job["spec"]["tasks"][0]["template"];
    template["spec"] = pod(cards, None);
    template["metadata"]["annotations"] = json!({CARD_NAME: models});
    let job = world.put(job);
    world.bind(&job, 1, true);
}

fn record(world: &World, binding: &str) -> Value {
    let text = &world.get("ResourceBinding", binding)["metadata"]["annotations"]["caldera.dev/admission"];
    serde_json::from_str(text.as_str().unwrap()).unwrap()
}

#[test]
fn a_job_that_may_use_several_models_is_charged_the_first_that_has_quota_and_keeps_it() {
    let mut world = fleet();
    limit(&mut world, "top", Some(r#"{"A100": 4, "H100": 4}"#));
    for name in ["first", "second", "third"] {
        submit_choosing(&mut world, name, 3, "V100|A100|H100");
    }
    let mut released = world.pass(5);
    released.sort();
    assert_eq!(released, ["first-job", "second-job"]);
    let on = |world: &World, binding: &str| record(world, binding)["card"].clone();
    assert_eq!(
        (on(&world, "first-job"), on(&world, "second-job")),
        (json!("nvidia.com/gpu:A100"), json!("nvidia.com/gpu:H100"))
    );
    assert_eq!(charged(&world, "second-job"), json!({"cpu": "1", GPU: "3", "nvidia.com/gpu:H100": "3", "pods": "1"}));
    assert_eq!([used(&world, "top", "A100"), used(&world, "top", "H100")], ["3", "3"]);
    // Of V100 there is no quota: that is not tried.
    let (reason, message) = world.says("third");
    assert_eq!(reason, "WaitingForQuota");
    assert!(
        message.contains("nvidia.com/gpu:A100 3, used 3 of 4") && message.contains("nor on H100: needs"),
        "{message}"
    );
    assert!(message.contains("position 1 of 1") && !message.contains("V100"), "{message}");
    // It stays on its model, also for a controller that was started anew.
    world.restart();
    list_nodes(&mut world);
    assert!(world.pass(5).is_empty());
    assert_eq!([used(&world, "top", "A100"), used(&world, "top", "H100")], ["3", "3"]);
    world.delete("ResourceBinding", "second-job");
    world.delete("Job", "second");
    assert_eq!(world.pass(5), ["third-job"]);
    assert_eq!(on(&world, "third-job"), json!("nvidia.com/gpu:H100"));
}

#[test]
fn a_job_falls_back_to_another_model_for_want_of_room_without_any_quota() {
    let mut world = fleet();
    for (name, model) in [("one", "A100"), ("two", "A100"), ("three", "H100"), ("four", "H100"), ("five", "A100")] {
        submit_choosing(&mut world, name, 8, "A100|H100");
        let released = world.pass(5);
        let want: &[String] = if name == "five" { &[] } else { &[format!("{name}-job")] };
        assert_eq!(released, want);
        if name != "five" {
            assert_eq!(record(&world, &format!("{name}-job"))["card"], json!(format!("nvidia.com/gpu:{model}")));
        }
    }
    // All cards of the fleet are taken.
    let (reason, message) = world.says("five");
    assert!(reason == "WaitingForQuota" && message.contains("nor on H100: "), "{reason}: {message}");
}

#[test]
fn a_job_none_of_whose_models_has_a_quota_is_inadmissible() {
    let mut world = fleet();
    limit(&mut world, "top", Some(r#"{"T4": 4}"#));
    submit_choosing(&mut world, "x", 1, "A100|H100");
    assert!(world.pass(5).is_empty());
    let (reason, message) = world.says("x");
    assert!(reason == "NoCardQuota" && message.contains("no quota of the A100"), "{reason}: {message}");
}
