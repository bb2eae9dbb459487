//! Jobs that give way, on the host of a few lines.

use caldera_core::{
    fleet::Update,
    inventory::{Change, Node, Owner, Pod},
    quantity::Quantity,
    resources::Resources,
};
use caldera_runtime::write::Failure;
use serde_json::{Value, json};

use super::world::{World, job};
use crate::observe::Input;

/// A cluster of 8 cpus; queues `a` and `b` deserve 4 each.
fn two_queues() -> World {
    let mut world = World::empty();
    world.cluster("m1", "8");
    for name in ["a", "b"] {
        world.queue(name, &json!({"deserved": {"cpu": "4", "pods": "4"}}));
    }
    world.pass(10);
    world
}

/// A job that runs.
fn runs(world: &mut World, name: &str, queue: &str, pods: u32) {
    world.job(name, queue, pods);
    world.pass(1);
    placed(world, name, pods);
}

fn placed(world: &mut World, name: &str, pods: u32) {
    let binding = format!("{name}-job");
    world.place(&binding, pods);
    let time = caldera_runtime::clock::format_time(world.now);
    world.patch("ResourceBinding", &binding, &json!({"status": {"lastScheduledTime": time}}));
    world.phase(name, "Running");
    world.pass(1);
}

fn annotation(world: &World, job: &str, name: &str) -> Value {
    world.get("ResourceBinding", &format!("{job}-job"))["metadata"]["annotations"][name].clone()
}

fn is_evicted(world: &World, job: &str) -> bool {
    let binding = world.get("ResourceBinding", &format!("{job}-job"));
    binding["spec"]["clusters"] == json!([])
}

fn reported(world: &World, reason: &str) -> Vec<String> {
    let events = world.objects.values().filter(|object| object["kind"] == "Event" && object["reason"] == reason);
    let text = |event: &Value| {
        let (name, note) = (&event["involvedObject"]["name"], &event["message"]);
        format!("{}: {}", name.as_str().unwrap_or_default(), note.as_str().unwrap_or_default())
    };
    events.map(text).collect()
}

#[test]
fn lent_capacity_comes_back_and_who_gave_it_goes_back_in_line_with_its_age_defect_13() {
    let mut world = two_queues();
    runs(&mut world, "old", "b", 4);
    runs(&mut world, "young", "b", 4);
    world.job("mine", "a", 4);
    assert!(world.settle().is_empty());
    let created = world.get("ResourceBinding", "young-job")["metadata"]["creationTimestamp"].clone();
    assert_eq!(world.pass(5), ["mine-job"]);
    let binding = world.get("ResourceBinding", "young-job");
    assert_eq!(binding["spec"]["clusters"], json!([]));
    assert_eq!(binding["spec"]["suspension"], json!({"scheduling": true}));
    let annotations = &binding["metadata"]["annotations"];
    assert_eq!(annotations["caldera.dev/gate"], "closed");
    assert_eq!((&annotations["caldera.dev/admission"], &annotations["caldera.dev/plan"]), (&Value::Null, &Value::Null));
    let eviction: Value = serde_json::from_str(annotations["caldera.dev/eviction"].as_str().unwrap()).unwrap();
    assert_eq!((&eviction["count"], &eviction["reason"]), (&json!(1), &json!("Reclaimed")));
    assert_eq!(binding["metadata"]["creationTimestamp"], created);
    assert!(!is_evicted(&world, "old"), "what b deserves covers it");
    assert_eq!(
        reported(&world, "Reclaimed"),
        ["young: queue a reclaims what it deserves: queue b used cpu 8 and deserves 4; it waits again with its age"]
    );
    assert_eq!(reported(&world, "PreemptionSucceeded"), ["mine: 1 job evicted for it: cpu 4, pods 4 come free"]);
    // Its claimant has started, and its copies are gone: it waits like anybody, and starts when there is room.
    lose_copies(&mut world, "young");
    world.pass(10);
    assert_eq!(world.says("young").0, "WaitingForQuota");
    world.phase("old", "Completed");
    assert_eq!(world.pass(2), ["young-job"]);
    assert_eq!(evictions(&world), 1);
}

/// Karmada goes on with a template that a finalizer keeps: deleted by its user, its pods run on.
#[test]
fn a_job_that_a_finalizer_keeps_gives_back_what_was_lent_and_does_not_start_again() {
    let mut world = two_queues();
    runs(&mut world, "old", "b", 4);
    runs(&mut world, "young", "b", 4);
    world.patch("Job", "young", &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    world.job("mine", "a", 4);
    assert!(world.settle().is_empty());
    assert_eq!(world.pass(5), ["mine-job"]);
    assert!(is_evicted(&world, "young") && !is_evicted(&world, "old"));
    lose_copies(&mut world, "young");
    world.phase("old", "Completed");
    assert!(world.pass(20).is_empty(), "it is being deleted");
}

/// The scheduler says when it placed a job some seconds after it did.
#[test]
fn a_job_of_which_nobody_has_said_yet_when_it_was_placed_has_just_started() {
    let mut world = two_queues();
    let early = caldera_runtime::clock::format_time(world.now);
    world.pass(60);
    runs(&mut world, "old", "b", 4);
    world.pass(60);
    world.job("young", "b", 4);
    world.pass(1);
    world.place("young-job", 4);
    world.patch("ResourceBinding", "young-job", &json!({"metadata": {"creationTimestamp": early}}));
    world.phase("young", "Running");
    world.job("mine", "a", 4);
    assert_eq!(world.pass(5), ["mine-job"]);
    assert!(is_evicted(&world, "young") && !is_evicted(&world, "old"));
}

/// The member is read node by node: one node of 8 cpus, with these jobs' pods.
fn member(world: &mut World, jobs: &[&str]) {
    member_with(world, &jobs.iter().map(|job| (*job, false)).collect::<Vec<_>>());
}

/// The same; `true` says that a job's pods have finished.
fn member_with(world: &mut World, jobs: &[(&str, bool)]) {
    let request = |cpu: i64| [("cpu", cpu), ("pods", 1)].map(|(name, n)| (name, Quantity::from_units(n))).into_iter();
    let mut allocatable: Resources = request(8).collect();
    allocatable.set("pods", Quantity::from_units(100));
    let node = Node { name: "n".into(), allocatable, ready: true, ..Node::default() };
    let pods = jobs.iter().flat_map(|job| (0..4).map(move |i| (*job, i)));
    let pod = |((job, finished), i): ((&str, bool), i32)| Pod {
        namespace: "ns".into(),
        name: format!("{job}-worker-{i}"),
        node: Some("n".into()),
        request: request(1).collect(),
        finished,
        owner: Some(Owner {
            group: "batch.volcano.sh".into(),
            kind: "Job".into(),
            name: job.into(),
            task: Some("worker".into()),
        }),
    };
    for update in
        [Update::Up, Update::Change(Change::Nodes(vec![node])), Update::Change(Change::Pods(pods.map(pod).collect()))]
    {
        world.controller.observe(Input::Member("m1".into(), update), world.now);
    }
}

/// Its status comes over Karmada, its pods are seen at once: evicted in between it would run a second time.
#[test]
fn who_has_finished_in_its_members_is_not_evicted_though_nobody_has_said_so() {
    let mut world = two_queues();
    runs(&mut world, "old", "b", 4);
    runs(&mut world, "young", "b", 4);
    member_with(&mut world, &[("old", false), ("young", true)]);
    world.job("mine", "a", 4);
    assert!(world.pass(5).is_empty());
    assert_eq!(evictions(&world), 0);
    world.phase("young", "Completed");
    assert_eq!(world.pass(2), ["mine-job"]);
}

/// Karmada lists the copies of its binding no more.
fn lose_copies(world: &mut World, name: &str) {
    world.patch("ResourceBinding", &format!("{name}-job"), &json!({"status": {"aggregatedStatus": null}}));
}

fn evictions(world: &World) -> usize {
    world.writes.iter().filter(|write| format!("{:?}", write.body).contains("eviction")).count()
}

#[test]
fn who_was_evicted_does_not_take_it_back_while_the_attempt_is_open_or_its_pods_are_there() {
    let mut world = two_queues();
    runs(&mut world, "old", "b", 4);
    runs(&mut world, "young", "b", 4);
    member(&mut world, &["old", "young"]);
    world.job("mine", "a", 4);
    assert!(world.pass(5).is_empty(), "the pods are still there");
    assert!(is_evicted(&world, "young"));
    assert_eq!((world.says("mine").0, world.says("young").0), ("InsufficientCapacity".into(), "Reclaimed".into()));
    // A restart forgets nothing: the claim is on the victim's binding.
    world.restart();
    member(&mut world, &["old", "young"]);
    assert!(world.pass(100).is_empty());
    assert_eq!(world.says("young").0, "Reclaimed");
    // The claim comes to nothing. Nobody else is taken for it.
    assert!(world.pass(300).is_empty());
    assert_eq!((evictions(&world), world.says("young").0), (1, "Reclaimed".into()));
    // The room is used by whom it was made for, though the other one has waited longer.
    member(&mut world, &["old"]);
    lose_copies(&mut world, "young");
    assert_eq!(world.pass(1), ["mine-job"]);
    world.pass(2);
    assert_eq!(world.says("young").0, "Reclaimed", "its member has not forgotten them");
    world.pass(180);
    assert_eq!(world.says("young").0, "WaitingForQuota");
}

#[test]
fn pods_that_never_go_do_not_keep_their_job_out_of_line_for_ever() {
    let mut world = two_queues();
    runs(&mut world, "old", "b", 4);
    runs(&mut world, "young", "b", 4);
    member(&mut world, &["old", "young"]);
    world.job("mine", "a", 4);
    world.pass(5);
    world.delete("ResourceBinding", "mine-job");
    world.pass(500);
    assert_eq!(world.says("young").0, "Reclaimed");
    world.pass(100);
    assert_eq!(world.says("young").0, "InsufficientCapacity");
}

#[test]
fn surplus_goes_before_gangs_and_the_scheduler_cuts_it() {
    let mut world = two_queues();
    runs(&mut world, "gang", "b", 2);
    let mut elastic = job("elastic", "b", 6);
    elastic["spec"]["minAvailable"] = 1.into();
    let elastic = world.put(elastic);
    world.bind(&elastic, 6, true);
    world.pass(1);
    placed(&mut world, "elastic", 6);
    world.job("mine", "a", 4);
    world.pass(4);
    assert!(!is_evicted(&world, "gang") && !is_evicted(&world, "elastic"));
    let record: Value =
        serde_json::from_str(annotation(&world, "elastic", "caldera.dev/admission").as_str().unwrap()).unwrap();
    assert_eq!((&record["tasks"], &record["charged"]), (&json!({"worker": 2}), &json!({"cpu": "2", "pods": "2"})));
    assert_eq!(world.get("ResourceBinding", "elastic-job")["spec"]["clusters"][0]["replicas"], 6, "not ours to write");
    assert!(reported(&world, "Reclaimed")[0].ends_with("; it goes on with its minimum or more"));
    // The scheduler does not place more than the record says.
    world.place("elastic-job", 2);
    assert_eq!(world.pass(1), ["mine-job"]);
    world.pass(10);
    assert_eq!(world.says("elastic").0, "Placed");
}

#[test]
fn a_higher_priority_preempts_in_its_queue_who_says_that_it_may() {
    let mut world = World::new(4);
    let class = |name: &str, policy: &str| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 100,
            "preemptionPolicy": policy,
        })
    };
    world.put(class("high", "PreemptLowerPriority"));
    world.put(class("polite", "Never"));
    runs(&mut world, "low", "q", 4);
    let submit = |world: &mut World, name: &str, class: &str| {
        let mut urgent = job(name, "q", 4);
        urgent["spec"]["priorityClassName"] = class.into();
        let urgent = world.put(urgent);
        world.bind(&urgent, 4, true);
    };
    submit(&mut world, "polite", "polite");
    world.pass(10);
    assert!(!is_evicted(&world, "low"));
    world.delete("ResourceBinding", "polite-job");
    submit(&mut world, "urgent", "high");
    world.pass(10);
    assert!(!is_evicted(&world, "low"), "it did not say that it may");
    world.patch("Job", "low", &json!({"metadata": {"annotations": {"volcano.sh/preemptable": "true"}}}));
    assert_eq!(world.pass(3), ["urgent-job"]);
    assert_eq!(reported(&world, "Preempted").len(), 1);
    lose_copies(&mut world, "low");
    world.pass(100);
    assert_eq!(world.says("low").0, "WaitingForQuota");
}

#[test]
fn an_eviction_that_is_refused_is_decided_on_anew() {
    let mut world = two_queues();
    runs(&mut world, "old", "b", 4);
    runs(&mut world, "young", "b", 4);
    world.job("mine", "a", 4);
    world.refuse_evictions = vec![Failure::Conflict("changed".into()), Failure::Transient("no answer".into())];
    assert_eq!(world.pass(9), ["mine-job"]);
    assert!(is_evicted(&world, "young") && !is_evicted(&world, "old"));
    assert_eq!(reported(&world, "Reclaimed").len(), 1);
}

#[test]
fn a_job_that_only_waits_for_its_own_queue_s_limit_takes_from_nobody() {
    let mut world = two_queues();
    world.queue("a", &json!({"deserved": {"cpu": "4"}, "capability": {"cpu": "2"}}));
    runs(&mut world, "lent", "b", 4);
    runs(&mut world, "mine", "a", 2);
    world.job("more", "a", 2);
    let writes = world.writes.len();
    world.pass(65);
    assert!(!is_evicted(&world, "lent"));
    // An idle system does no writes.
    let later = world.writes.len();
    assert!(later - writes < 10, "{} writes", later - writes);
    world.pass(60);
    assert_eq!(world.writes.len(), later);
}

#[test]
fn who_may_not_take_back_what_it_lacks_is_told_why() {
    let mut world = two_queues();
    runs(&mut world, "firm", "b", 4);
    runs(&mut world, "stubborn", "b", 4);
    world.patch("Job", "stubborn", &json!({"metadata": {"annotations": {"volcano.sh/preemptable": "false"}}}));
    world.job("mine", "a", 4);
    world.pass(60);
    let (reason, message) = world.says("mine");
    assert_eq!(reason, "WaitingForQuota");
    assert!(
        message.ends_with(
            "; preemption for cpu 4, pods 4: no job may be evicted for it; left alone: 1 within what its queue deserves, 1 with \
             volcano.sh/preemptable: false"
        ),
        "{message}"
    );
    assert_eq!(evictions(&world), 0);
}

#[test]
fn what_was_given_goes_to_nobody_else() {
    let mut world = two_queues();
    runs(&mut world, "old", "b", 4);
    runs(&mut world, "young", "b", 4);
    member(&mut world, &["old", "young"]);
    world.job("mine", "a", 4);
    world.pass(5);
    assert!(is_evicted(&world, "young"));
    // As pods go one by one, a smaller job of a queue with a smaller share would fit first.
    world.queue("c", &json!({"deserved": {"cpu": "4", "pods": "4"}}));
    world.job("thief", "c", 1);
    member(&mut world, &["old"]);
    assert_eq!(world.pass(1), ["mine-job"]);
    assert!(world.pass(3).iter().all(|released| released != "thief-job"));
}

#[test]
fn what_was_given_goes_to_nobody_else_in_the_same_moment() {
    let mut world = two_queues();
    world.queue("c", &json!({"deserved": {"cpu": "4", "pods": "4"}}));
    world.put(json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "polite"}, "value": 0,
        "preemptionPolicy": "Never",
    }));
    runs(&mut world, "old", "b", 4);
    runs(&mut world, "young", "b", 4);
    // Older than the claimant, and of a queue with as small a share; it takes from nobody.
    let mut thief = job("thief", "c", 4);
    thief["spec"]["priorityClassName"] = "polite".into();
    let thief = world.put(thief);
    world.bind(&thief, 4, true);
    world.pass(5);
    world.job("mine", "a", 4);
    assert_eq!(world.pass(5), ["mine-job"]);
    assert!(is_evicted(&world, "young"));
}
