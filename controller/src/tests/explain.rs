//! What is said of jobs and queues to those who ask.

use std::time::Duration;

use caldera_core::{
    gang::WorkloadRef,
    quantity::Quantity,
    queue::{FairHistory, OrderPolicy},
    time::EpochSeconds,
};
use caldera_crds::workload::WorkloadKind;
use caldera_runtime::{watch::Event, write::Failure};
use serde_json::{Value, json};

use super::world::{World, job};
use crate::{
    decide::Controller,
    explain::{
        Basis, Explanation, UsedLately, Verdict, decide_without_writing, explain_job, explain_without_binding,
        find_binding, list_queues, list_waiting_jobs,
    },
    observe::{Input, Key, ObjectKind, PodGroupFacts, read_object},
};

fn of(controller: &mut Controller, world: &World, name: &str) -> Explanation {
    explain_job(controller, &Key::new("ns", &format!("{name}-job")), world.now).unwrap()
}

/// An index that somebody who only looks would have: everything listed once.
fn listed(world: &World) -> Controller {
    let mut controller = Controller::default();
    for kind in ObjectKind::list_all() {
        list_into(&mut controller, world, kind);
    }
    controller.observe(Input::Member("m1".into(), caldera_core::fleet::Update::Down("not asked".into())), world.now);
    decide_without_writing(&mut controller, world.now);
    controller
}

fn list(world: &World, kind: ObjectKind) -> Vec<Input> {
    let resource = kind.api_resource();
    let of_kind = |object: &&Value| object["kind"] == resource.kind && object["apiVersion"] == resource.api_version;
    let objects = world.objects.values().filter(of_kind);
    objects.filter_map(|object| read_object(kind, object.clone()).unwrap()).collect()
}

/// All objects of a kind.
pub(super) fn list_into(controller: &mut Controller, world: &World, kind: ObjectKind) {
    list(world, kind).into_iter().for_each(|input| controller.observe(input, world.now));
    controller.observe(Input::Listed(kind), world.now);
}

fn json_of(explanation: &Explanation) -> Value {
    serde_json::to_value(explanation).unwrap()
}

fn reference(name: &str) -> WorkloadRef {
    WorkloadRef { group: "batch.volcano.sh".into(), kind: "Job".into(), namespace: "ns".into(), name: name.into() }
}

#[test]
fn a_waiting_job_is_explained_with_its_path_its_place_and_those_ahead() {
    let mut world = World::new(10);
    world.queue("team", &json!({"capability": {"cpu": "20"}}));
    world.queue("q", &json!({"parent": "team", "capability": {"cpu": "10"}, "deserved": {"cpu": "4"}}));
    for (name, pods) in [("a", 8), ("b", 4), ("c", 3)] {
        world.job(name, "q", pods);
        world.settle();
    }
    let mut controller = listed(&world);
    let c = of(&mut controller, &world, "c");
    assert_eq!((c.verdict, c.token.as_str(), c.basis), (Verdict::Waiting, "WaitingForQuota", Basis::Live));
    assert!(c.sentence.contains("needs cpu 3, used 8 of 10"), "{}", c.sentence);
    assert_eq!((c.position, c.of), (Some(2), Some(2)));
    let c = json_of(&c);
    assert_eq!(c["ahead"][0]["workload"]["name"], "b");
    assert_eq!(c["ahead"][0]["token"], "WaitingForQuota");
    let path: Vec<&str> = c["path"].as_array().unwrap().iter().map(|step| step["queue"].as_str().unwrap()).collect();
    assert_eq!(path, ["root", "team", "q"]);
    assert_eq!(
        c["path"][2]["amounts"][0],
        json!({
            "resource": "cpu", "used": "8", "deserved": "4", "guarantee": "0", "capability": "10",
            "realCapability": "10", "borrowed": "4",
        })
    );
    assert_eq!(c["path"][1]["amounts"][0]["realCapability"], "20");
    assert_eq!(c["path"][0]["amounts"][0]["realCapability"], "100");
    assert_eq!(c["asks"]["minimum"], json!({"cpu": "3", "pods": "3"}));
    assert_eq!(c["clusters"][0]["name"], "m1");
    assert_eq!(c["clusters"][0]["fit"], 3);
    assert!(c["eta"]["at"].is_null() && c["eta"]["basis"].is_string());
}

#[test]
fn who_only_looks_says_what_the_controller_says() {
    let mut world = World::new(10);
    for (name, pods) in [("a", 8), ("b", 4), ("c", 30)] {
        world.job(name, "q", pods);
    }
    world.pass(4);
    let mut controller = listed(&world);
    for name in ["a", "b", "c"] {
        let seen = of(&mut controller, &world, name);
        assert_eq!((seen.token, seen.sentence), world.says(name), "{name}");
    }
}

#[test]
fn what_can_never_start_is_another_verdict_than_waiting() {
    let mut world = World::new(10);
    world.job("big", "q", 11);
    world.queue("wide", &json!({}));
    world.job("huge", "wide", 101);
    world.job("lost", "nowhere", 1);
    world.job("runs", "q", 8);
    world.settle();
    world.job("next", "q", 4);
    world.settle();
    let mut controller = listed(&world);
    for (name, verdict, token) in [
        ("big", Verdict::CanNeverStart, "ExceedsCapability"),
        ("huge", Verdict::CanNeverStart, "ExceedsFleet"),
        ("lost", Verdict::Blocked, "QueueNotFound"),
    ] {
        let seen = of(&mut controller, &world, name);
        assert_eq!((seen.verdict, seen.token.as_str()), (verdict, token));
        assert_eq!((seen.eta, seen.position), (None, None), "{name}");
    }
    let lost = of(&mut controller, &world, "lost");
    assert_eq!(lost.path.last().map(|step| step.state), Some("Missing"));
    let next = of(&mut controller, &world, "next");
    assert_eq!((next.position, next.of, next.ahead.len()), (Some(1), Some(1), 0), "it is behind nobody");
    let line = list_waiting_jobs(&controller, &"q".into(), 5);
    assert_eq!(line.iter().map(|job| job.position).collect::<Vec<_>>(), [Some(1), None]);
}

#[test]
fn a_blocked_job_that_waited_long_has_its_place_kept_and_says_since_when() {
    let mut world = World::new(10);
    world.job("a", "q", 8);
    world.settle();
    world.job("b", "q", 4);
    world.pass(100);
    let mut controller = listed(&world);
    let b = of(&mut controller, &world, "b");
    let kept = b.reservation.unwrap();
    assert_eq!(kept.resource.unwrap().as_str(), "cpu");
    assert_eq!(kept.bound.as_deref(), Some("the capability of queue q"));
    assert!(kept.since.is_some());
    assert!(b.eta.unwrap().basis.starts_with("it has a reservation"));
}

#[test]
fn a_job_whose_gate_is_about_to_open_is_not_told_that_it_waits_for_quota() {
    let mut world = World::new(10);
    world.job("a", "q", 8);
    let mut controller = listed(&world);
    let a = of(&mut controller, &world, "a");
    assert_eq!((a.verdict, a.token.as_str()), (Verdict::MayStart, "Waiting"));
    world.job("b", "q", 4);
    let mut controller = listed(&world);
    let b = of(&mut controller, &world, "b");
    assert_eq!(b.verdict, Verdict::Waiting);
    assert_eq!(b.notes, ["other jobs that may start now and are counted as if they had: 1"]);
}

/// Who may write PodGroups may write any sentence.
#[test]
fn only_the_reason_on_a_podgroup_says_that_a_reservation_holds_its_job_back() {
    let mut world = World::new(10);
    world.job("a", "q", 8);
    let uid = world.get("Job", "a")["metadata"]["uid"].clone();
    let mut seen = |reason: &str, message: &str| {
        let reported = json!({"type": "Unschedulable", "status": "True", "reason": reason, "message": message});
        world.put(json!({
            "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
            "metadata": {
                "name": "a-vcjob", "namespace": "ns",
                "labels": {"caldera.dev/workload-kind": "Job"},
                "ownerReferences": [{
                    "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "a", "uid": uid, "controller": true,
                }],
            },
            "spec": {}, "status": {"phase": "Pending", "conditions": [reported]},
        }));
        let a = of(&mut listed(&world), &world, "a");
        (a.verdict, a.token)
    };
    let may_start = (Verdict::MayStart, "Waiting".to_owned());
    assert_eq!(seen("InsufficientCapacity", "1 cluster reserved for a job that ranks before it"), may_start);
    for reason in ["ClustersReserved", "BlockedByReservation"] {
        assert_eq!(seen(reason, "held back"), (Verdict::Waiting, reason.to_owned()));
    }
}

#[test]
fn a_release_that_the_server_refused_is_in_the_controllers_words() {
    let mut world = World::new(10);
    world.refuse.push(Failure::Refused { code: 422, reason: "Invalid".into(), message: "no".into() });
    world.job("a", "q", 8);
    world.pass(2);
    let mut controller = listed(&world);
    let a = of(&mut controller, &world, "a");
    assert_eq!(a.verdict, Verdict::MayStart);
    assert!(a.notes[0].contains("could not be released: ") && a.notes[0].contains("no"), "{:?}", a.notes);
}

#[test]
fn who_was_evicted_and_for_whom_is_told_on_both_sides() {
    let mut world = World::new(10);
    for (name, pods) in [("a", 8), ("victim", 4), ("claimant", 5)] {
        world.job(name, "q", pods);
        world.settle();
    }
    let claimant = world.get("ResourceBinding", "claimant-job")["metadata"]["uid"].clone();
    let now = world.now.as_second();
    let eviction = json!({
        "count": 1, "at": now, "until": now + 60, "preemptor": claimant, "reason": "Preempted", "message": "by right",
    });
    let annotations = json!({"caldera.dev/eviction": eviction.to_string()});
    world.patch("ResourceBinding", "victim-job", &json!({"metadata": {"annotations": annotations}}));
    let mut controller = listed(&world);
    let claimant = of(&mut controller, &world, "claimant");
    assert_eq!(claimant.verdict, Verdict::Waiting);
    assert!(claimant.notes[0].starts_with("1 job evicted for it; "), "{:?}", claimant.notes);
    let victim = of(&mut controller, &world, "victim");
    assert_eq!((victim.verdict, victim.token.as_str()), (Verdict::Waiting, "Preempted"));
    assert!(victim.sentence.contains("by right") && victim.position.is_none() && victim.eta.is_none());
    let views = list_queues(&controller);
    let jobs = views.iter().find(|view| view.name.as_str() == "q").unwrap().jobs.unwrap();
    assert_eq!((jobs.waiting, jobs.blocked), (2, 0));
}

#[test]
fn a_running_job_says_what_was_admitted_and_where_it_is() {
    let mut world = World::new(10);
    world.job("a", "q", 4);
    world.settle();
    let mut controller = listed(&world);
    assert_eq!(of(&mut controller, &world, "a").verdict, Verdict::Admitted);
    world.place("a-job", 4);
    let mut controller = listed(&world);
    assert_eq!(of(&mut controller, &world, "a").verdict, Verdict::Placed);
    world.phase("a", "Running");
    let mut controller = listed(&world);
    let a = of(&mut controller, &world, "a");
    assert_eq!((a.verdict, a.token.as_str()), (Verdict::Running, "Placed"));
    let a = json_of(&a);
    assert_eq!(a["placed"], json!([{"cluster": "m1", "replicas": 4, "tasks": {}, "onNodes": null}]));
    assert_eq!(a["admission"]["charged"]["cpu"], "4");
    assert_eq!(a["clusters"], json!([]));
    world.phase("a", "Completed");
    let mut controller = listed(&world);
    assert_eq!(of(&mut controller, &world, "a").verdict, Verdict::Finished);
}

#[test]
fn a_workload_without_a_binding_says_so_and_a_missing_one_is_nothing() {
    let mut world = World::new(10);
    world.put(job("a", "q", 4));
    let controller = listed(&world);
    assert_eq!(find_binding(&controller, &reference("a")), None);
    let a = explain_without_binding(&controller, &reference("a")).unwrap();
    assert_eq!((a.verdict, a.token.as_str()), (Verdict::NoBinding, "NoBinding"));
    assert!(a.sentence.contains("PropagationPolicy"));
    assert_eq!(explain_without_binding(&controller, &reference("b")), None);
}

/// S10: who may see one namespace gets the controller's words for their own job, and nobody else's name.
#[test]
fn who_sees_only_a_part_is_told_what_the_controller_wrote_and_no_names() {
    let mut world = World::new(10);
    for (name, pods) in [("secret", 8), ("b", 4)] {
        world.job(name, "q", pods);
        world.pass(2);
    }
    let mut controller = Controller::default();
    for source in ObjectKind::list_all() {
        match source {
            ObjectKind::Bindings | ObjectKind::Workloads(_) | ObjectKind::PodGroups | ObjectKind::Clusters => {
                let own = |input: &Input| !format!("{input:?}").contains("secret") && source != ObjectKind::Clusters;
                list(&world, source).into_iter().filter(own).for_each(|input| controller.observe(input, world.now));
            }
            _ => list_into(&mut controller, &world, source),
        }
    }
    decide_without_writing(&mut controller, world.now);
    let b = of(&mut controller, &world, "b");
    assert_eq!((b.verdict, b.basis), (Verdict::Waiting, Basis::PodGroup));
    assert_eq!((b.token.clone(), b.sentence.clone()), world.says("b"));
    assert_eq!((b.position, b.ahead.len(), b.clusters.len()), (None, 0, 0));
    let text = json_of(&b).to_string();
    assert!(!text.contains("secret"), "{text}");
    // What the queue's own object says is there for whoever may read queues.
    world.pass(5);
    list_into(&mut controller, &world, ObjectKind::Queues);
    let b = json_of(&of(&mut controller, &world, "b"));
    assert_eq!(b["path"][1]["amounts"][0]["used"], "8");
    assert_eq!(b["path"][1]["amounts"][0]["realCapability"], Value::Null);
    let views = list_queues(&controller);
    assert!(views.iter().all(|view| view.jobs.is_none()));
    assert!(list_waiting_jobs(&controller, &"q".into(), 10).is_empty());
}

#[test]
fn no_words_of_the_controller_are_not_made_up() {
    let mut world = World::new(10);
    world.job("a", "q", 4);
    let mut controller = Controller::default();
    for source in [ObjectKind::Queues, ObjectKind::Bindings, ObjectKind::Workloads(WorkloadKind::VolcanoJob)] {
        list(&world, source).into_iter().for_each(|input| controller.observe(input, world.now));
    }
    controller.observe(Input::PodGroups(Event::Reset(Vec::<PodGroupFacts>::new())), world.now);
    decide_without_writing(&mut controller, world.now);
    let a = of(&mut controller, &world, "a");
    assert!(a.sentence.contains("does not say why"), "{}", a.sentence);
}

#[test]
fn the_tree_of_queues_has_sums_states_and_faults() {
    let mut world = World::new(10);
    world.queue("team", &json!({"capability": {"cpu": "20"}, "deserved": {"cpu": "6"}}));
    world.queue("a", &json!({"parent": "team", "capability": {"cpu": "10"}, "deserved": {"cpu": "2"}}));
    world.queue("b", &json!({"parent": "team", "capability": {"cpu": "30"}, "dequeueStrategy": "fifo"}));
    world.queue("lost", &json!({"parent": "nowhere"}));
    world.job("one", "a", 8);
    world.job("two", "a", 8);
    world.job("held", "a", 1);
    world.patch("Job", "held", &json!({"metadata": {"annotations": {"caldera.dev/hold": "true"}}}));
    world.settle();
    let controller = listed(&world);
    let views = list_queues(&controller);
    let names: Vec<(&str, usize)> = views.iter().map(|view| (view.name.as_str(), view.depth)).collect();
    assert_eq!(names, [("root", 0), ("default", 1), ("q", 1), ("team", 1), ("a", 2), ("b", 2), ("lost", 1)]);
    let of = |name: &str| views.iter().find(|view| view.name.as_str() == name).unwrap();
    let jobs = of("root").jobs.unwrap();
    assert_eq!((jobs.waiting, jobs.starting, jobs.blocked, jobs.running), (1, 1, 1, 0));
    assert_eq!(of("team").jobs, of("root").jobs);
    assert_eq!(of("b").jobs.unwrap().waiting, 0);
    let cpu = |name: &str| {
        let amounts = of(name).amounts.iter().find(|amounts| amounts.resource.as_str() == "cpu").unwrap();
        (amounts.used.to_string(), amounts.deserved.to_string(), amounts.borrowed.to_string())
    };
    assert_eq!(cpu("team"), ("8".into(), "6".into(), "2".into()));
    assert_eq!(cpu("a"), ("8".into(), "2".into(), "6".into()));
    assert!(of("b").faults.iter().any(|fault| fault.contains("20")), "{:?}", of("b").faults);
    assert!(of("lost").problem.as_ref().unwrap().contains("nowhere"));
    assert_eq!((of("team").problem.clone(), of("b").dequeue), (None, "fifo"));
    let line = list_waiting_jobs(&controller, &"a".into(), 5);
    let seen: Vec<(Option<usize>, &str, &str)> =
        line.iter().map(|job| (job.position, job.workload.name.as_str(), job.token.as_str())).collect();
    assert_eq!(seen, [(Some(1), "two", "WaitingForQuota"), (None, "held", "OnHold")]);
}

#[test]
fn who_was_scaled_up_is_told_what_the_rest_waits_for() {
    let mut world = World::new(8);
    world.job("other", "q", 2);
    world.job("a", "q", 4);
    world.settle();
    world.place("a-job", 4);
    world.settle();
    world.patch("Job", "a", &job("a", "q", 8));
    let seen = of(&mut listed(&world), &world, "a");
    assert!(seen.notes.iter().any(|note| note.contains("waits: ") && note.contains("cpu 4")), "{:?}", seen.notes);
    world.patch("Job", "a", &job("a", "q", 9));
    let seen = of(&mut listed(&world), &world, "a");
    assert_eq!((seen.verdict, seen.token.as_str()), (Verdict::Placed, "ExceedsCapability"));
    assert!(seen.sentence.contains("needs cpu 5 on top of 4 that it holds, more than 8"), "{}", seen.sentence);
}

/// A job of so many tasks; each asks for as much as the others, or for something of its own.
fn wide_job(name: &str, tasks: usize, kinds: usize) -> Value {
    let task = |at: usize| {
        let request = json!({"cpu": "1", "memory": format!("{}Mi", 1 + at % kinds)});
        json!({
            "name": format!("t{at}"), "replicas": 1,
            "template": {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": request}}]}},
        })
    };
    let mut job = job(name, "q", 1);
    job["spec"]["minAvailable"] = tasks.into();
    job["spec"]["tasks"] = (0..tasks).map(task).collect();
    job
}

/// It took minutes. The bound is for a build that is not optimised, on a busy machine.
#[test]
fn a_job_of_four_thousand_tasks_is_explained_at_once() {
    for (kinds, cpus) in [(1, "5000"), (1, "3000"), (20, "5000"), (20, "3000")] {
        let mut world = World::empty();
        for member in ["m1", "m2", "m3"] {
            world.cluster(member, cpus);
        }
        world.queue("q", &json!({"capability": {"cpu": "3000"}}));
        let job = world.put(wide_job("wide", 4_000, kinds));
        world.bind(&job, 4_000, true);
        let began = read_cpu_time();
        let mut controller = listed(&world);
        let said = of(&mut controller, &world, "wide");
        let took = read_cpu_time().saturating_sub(began);
        println!("{kinds} kinds of tasks, members of {cpus} cores: {took:?}");
        assert_eq!(said.asks.as_ref().map(|asks| asks.min_pods), Some(4_000));
        assert!(took < Duration::from_secs(30), "{took:?}");
    }
}

/// What this thread computed for: on a busy machine it waits far longer than it works. The time of day where the
/// system does not say it.
fn read_cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let said = text.split(' ').next().and_then(|nanos| nanos.parse().ok()).map(Duration::from_nanos);
    said.unwrap_or_else(|| std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap())
}

#[test]
fn of_a_job_with_a_time_limit_it_is_said_how_long_it_may_run_and_what_is_left() {
    let mut world = World::new(4);
    world.patch("Queue", "q", &json!({"metadata": {"annotations": {"caldera.dev/max-run-time": "2m"}}}));
    for name in ["runs", "waits"] {
        world.job(name, "q", 4);
        world.settle();
    }
    world.place("runs-job", 4);
    world.phase("runs", "Running");
    world.pass(40);
    let limit = |world: &World, name: &str| json_of(&of(&mut listed(world), world, name))["runLimit"].clone();
    let runs = limit(&world, "runs");
    assert_eq!((&runs["seconds"], &runs["leftSeconds"]), (&json!(120), &json!(79)), "{runs}");
    assert_eq!(limit(&world, "waits"), json!({"seconds": 120, "ends": null, "leftSeconds": null}));
    world.pass(80);
    let ended = of(&mut listed(&world), &world, "runs");
    assert_eq!((ended.verdict, ended.token.as_str()), (Verdict::Blocked, "RunTimeExceeded"));
    assert_eq!(ended.run_limit, None);
    world.patch("ResourceBinding", "runs-job", &json!({"status": {"aggregatedStatus": null}}));
    world.pass(7);
    let ended = of(&mut listed(&world), &world, "runs");
    assert_eq!((ended.verdict, ended.notes), (Verdict::Finished, vec!["it ran for 2m, as long as it may".to_owned()]));
    assert_eq!(ended.token, "RunTimeExceeded");
    // Who does not see queues.
    let mut controller = Controller::default();
    for kind in ObjectKind::list_all().into_iter().filter(|kind| *kind != ObjectKind::Queues) {
        list_into(&mut controller, &world, kind);
    }
    assert!(of(&mut controller, &world, "waits").run_limit.is_some(), "its own record says it");
    assert_eq!(of(&mut controller, &world, "runs").run_limit, None);
}

#[test]
fn a_queue_that_is_gone_is_listed_as_long_as_something_is_charged_to_it() {
    let mut world = World::new(4);
    world.job("a", "q", 2);
    world.settle();
    world.place("a-job", 2);
    world.phase("a", "Running");
    world.job("waits", "q", 4);
    world.pass(2);
    world.delete("Queue", "q");
    world.pass(2);
    let view = |world: &World| list_queues(&world.controller).into_iter().find(|view| view.name.as_str() == "q");
    let gone = view(&world).expect("it is charged for a job that runs");
    assert_eq!((gone.state, gone.depth), ("Missing", 1));
    let cpu = gone.amounts.iter().find(|amounts| amounts.resource.as_str() == "cpu").map(|amounts| amounts.used);
    assert_eq!(cpu, Some(caldera_core::quantity::Quantity::from_units(2)));
    world.phase("a", "Completed");
    world.pass(2);
    assert!(view(&world).is_none(), "who only waits holds nothing");
}

#[test]
fn a_binding_that_changes_its_workload_is_found_by_the_new_one_alone() {
    let mut world = World::new(4);
    world.job("a", "q", 1);
    world.settle();
    let owner = |world: &World, name: &str| world.controller.objects.key_of_workload(&reference(name)).cloned();
    assert!(owner(&world, "a").is_some());
    world.patch("ResourceBinding", "a-job", &json!({"spec": {"resource": {"name": "b", "uid": "of-b"}}}));
    assert_eq!(
        (owner(&world, "a"), owner(&world, "b").map(|key| key.to_string())),
        (None, Some("ns/a-job".to_owned()))
    );
}

#[test]
fn what_queues_used_lately_is_shown_where_it_counts() {
    let mut world = World::new(10);
    world.queue("q", &json!({"capability": {"cpu": "10"}, "deserved": {"cpu": "4"}}));
    world.job("a", "q", 8);
    world.settle();
    let mut controller = listed(&world);
    let lately = |controller: &mut Controller| {
        let amounts = of(controller, &world, "a").path.last().unwrap().amounts[0].clone();
        let amount = |lately: UsedLately| (lately.amount.to_string(), lately.half_life);
        (amounts.used.to_string(), amounts.used_lately.map(amount))
    };
    assert_eq!(lately(&mut controller), ("8".to_owned(), None), "by share alone");
    controller.jobs.engine.set_history_half_life(3_600);
    controller.jobs.engine.set_order_policy(OrderPolicy::FairHistory);
    let mean = [("cpu", Quantity::from_units(3))].into_iter().collect();
    let queues = [("q".into(), mean)].into();
    let at = EpochSeconds::from(world.now);
    controller.jobs.engine.add_fair_history(&FairHistory { at, queues, ..FairHistory::default() });
    assert_eq!(lately(&mut controller), ("8".to_owned(), Some(("3".to_owned(), 3_600))));
    let tree = list_queues(&controller);
    let of_root = tree.iter().find(|queue| queue.parent.is_none()).unwrap();
    assert!(of_root.amounts.iter().all(|of| of.used_lately.is_none()), "nobody takes turns with the root");
}

#[test]
fn a_queue_that_says_in_vain_that_tenants_take_turns_is_not_said_to_go_by_them() {
    let mut world = World::new(10);
    let order = |world: &World| list_queues(&world.controller).into_iter().find_map(|view| view.tenant_order);
    let says = json!({"metadata": {"annotations": {"caldera.dev/order": "drf-by-user"}}});
    world.patch("Queue", "q", &says);
    world.settle();
    assert_eq!(order(&world), Some("drf-by-user"));
    world.patch("Queue", "q", &json!({"spec": {"dequeueStrategy": "fifo"}}));
    world.settle();
    assert_eq!(order(&world), None);
}
