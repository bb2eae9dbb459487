//! A controller beside another scheduler, which writes nothing.

use caldera_core::admission::Admission;
use caldera_runtime::watch::Event;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::world::{World, job};
use crate::{
    decide::{Shadow, ShadowNote, decide_in_shadow},
    observe::Input,
    shadow::{ShadowJob, ShadowReport, ShadowVerdict},
};

/// A cluster of 8 cpus and queue `q` of as many, both seen by a shadow.
fn shadowed() -> World {
    let mut world = World::empty();
    world.shadow = Some(begin(&mut world, None));
    world.cluster("m1", "8");
    world.queue("q", &json!({"capability": {"cpu": "8"}}));
    decide(&mut world);
    world
}

fn begin(world: &mut World, earlier: Option<ShadowReport>) -> Shadow {
    world.controller.jobs.shadow = Some(std::collections::BTreeSet::new());
    let mut shadow = Shadow::new(earlier, world.now);
    shadow.observe_bindings(&mut world.controller, Event::Reset(Vec::new()), world.now);
    shadow
}

/// Decides until there is nothing more to be done now.
fn decide(world: &mut World) -> Vec<ShadowNote> {
    let mut said = Vec::new();
    for _ in 0..20 {
        let shadow = world.shadow.as_mut().unwrap();
        let (notes, next) = decide_in_shadow(&mut world.controller, shadow, world.now);
        said.extend(notes);
        if next.is_none_or(|next| next > world.now) {
            return said;
        }
    }
    panic!("it never comes to rest");
}

fn pass(world: &mut World, seconds: i64) -> Vec<ShadowNote> {
    let mut said = Vec::new();
    for _ in 0..seconds {
        world.now = world.now.saturating_add(SignedDuration::from_secs(1)).unwrap();
        said.extend(decide(world));
    }
    said
}

/// A job whose binding nobody gates, and that this queue counts.
fn submit(world: &mut World, name: &str, queue: &str, pods: u32) {
    let object = world.put(job(name, queue, pods));
    world.bind(&object, pods, false);
}

fn place(world: &mut World, name: &str, pods: u32) {
    world.place(&format!("{name}-job"), pods);
}

fn report(world: &mut World) -> ShadowReport {
    let World { shadow, controller, now, .. } = world;
    shadow.as_mut().unwrap().build_report(controller, *now)
}

fn line(world: &mut World, name: &str) -> ShadowJob {
    report(world).jobs.into_iter().find(|job| job.name == name).unwrap()
}

/// A shadow told in its first second that what was placed would wait, since it knew no node yet.
#[test]
fn what_is_placed_before_each_ready_cluster_was_heard_of_is_compared_with_nothing() {
    for is_heard_of in [true, false] {
        let mut world = World::empty();
        world.shadow = Some(begin(&mut world, None));
        world.cluster("m1", "8");
        world.queue("q", &json!({"capability": {"cpu": "8"}}));
        let mut silent = world.get("Cluster", "m1").clone();
        silent["metadata"]["name"] = "m2".into();
        world.put(silent);
        submit(&mut world, "early", "q", 4);
        place(&mut world, "early", 4);
        submit(&mut world, "seen", "q", 2);
        decide(&mut world);
        place(&mut world, "seen", 2);
        submit(&mut world, "waits", "q", 2);
        assert!(pass(&mut world, 20).is_empty());
        if is_heard_of {
            let down = caldera_core::fleet::Update::Down("not reached in this test".into());
            world.controller.observe(Input::Member("m2".to_owned(), down), world.now);
        }
        let said = pass(&mut world, if is_heard_of { 1 } else { 11 });
        assert!(matches!(&said[..], [ShadowNote::Released { .. }]), "{said:?}");
        assert_eq!(line(&mut world, "waits").verdict(), ShadowVerdict::Sooner);
        assert!(report(&mut world).jobs.iter().all(|job| job.name == "waits"));
    }
}

#[test]
fn what_would_be_released_is_charged_and_compared_with_where_the_other_scheduler_places_it() {
    let mut world = shadowed();
    submit(&mut world, "a", "q", 6);
    let said = decide(&mut world);
    assert!(matches!(&said[..], [ShadowNote::Released { queue, clusters, .. }] if queue == "q" && clusters == "m1"));
    assert_eq!(line(&mut world, "a").verdict(), ShadowVerdict::Sooner);
    assert_eq!(world.used("q"), "6");
    pass(&mut world, 7);
    place(&mut world, "a", 6);
    let said = decide(&mut world);
    assert!(matches!(&said[..], [ShadowNote::Placed { verdict: ShadowVerdict::Same, .. }]), "{said:?}");
    assert_eq!(world.used("q"), "6", "it is charged once");
    let report = report(&mut world);
    let totals = &report.totals;
    assert_eq!((totals.same, totals.waited, totals.would_have_waited), (1, 7, 0), "{totals:?}");
    assert!(world.writes.is_empty());
}

#[test]
fn what_the_other_scheduler_starts_beyond_a_quota_would_wait_and_holds_it_all_the_same() {
    let mut world = shadowed();
    submit(&mut world, "a", "q", 6);
    decide(&mut world);
    place(&mut world, "a", 6);
    submit(&mut world, "b", "q", 3);
    pass(&mut world, 1);
    assert_eq!(line(&mut world, "b").verdict(), ShadowVerdict::Waits);
    place(&mut world, "b", 3);
    let said = decide(&mut world);
    let [ShadowNote::Placed { verdict: ShadowVerdict::WouldWait, why, .. }] = &said[..] else { panic!("{said:?}") };
    assert!(why.contains("cpu"), "{why}");
    let line = line(&mut world, "b");
    assert!(line.reason.is_some() && line.message.is_some_and(|message| message == *why), "{:?}", line.reason);
    assert_eq!(world.used("q"), "9");
    assert_eq!(report(&mut world).totals.would_wait, 1);
}

#[test]
fn what_is_placed_when_it_is_first_seen_is_decided_on_as_if_it_were_not() {
    let mut world = shadowed();
    submit_placed(&mut world, "a", 6);
    let said = decide(&mut world);
    assert!(matches!(
        &said[..],
        [ShadowNote::Released { .. }, ShadowNote::Placed { verdict: ShadowVerdict::Same, .. }]
    ));
    submit_placed(&mut world, "b", 3);
    let said = decide(&mut world);
    assert!(matches!(&said[..], [ShadowNote::Placed { verdict: ShadowVerdict::WouldWait, .. }]), "{said:?}");
    assert_eq!(world.used("q"), "9");
}

/// Its binding has clusters before anybody sees it.
fn submit_placed(world: &mut World, name: &str, pods: u32) {
    let shadow = world.shadow.take();
    let object = world.put(job(name, "q", pods));
    let reported = std::mem::take(&mut world.controller);
    world.bind(&object, pods, false);
    world.controller = reported;
    world.shadow = shadow;
    place(world, name, pods);
}

#[test]
fn a_report_is_written_when_it_says_something_else_every_half_minute_at_most_and_each_minute() {
    let mut world = shadowed();
    let first = report(&mut world);
    let later = |world: &mut World, seconds: i64| {
        pass(world, seconds);
        report(world)
    };
    assert!(!later(&mut world, 30).is_due_after(&first), "it says the same");
    submit(&mut world, "a", "q", 6);
    let changed = later(&mut world, 1);
    assert!(changed.is_due_after(&first));
    place(&mut world, "a", 6);
    let placed = later(&mut world, 29);
    assert!(placed.totals != changed.totals && !placed.is_due_after(&changed), "it was written just now");
    assert!(later(&mut world, 1).is_due_after(&changed));
    let last = later(&mut world, 0);
    assert!(!later(&mut world, 59).is_due_after(&last));
    assert!(later(&mut world, 1).is_due_after(&last), "somebody looks");
}

#[test]
fn a_suspension_of_scheduling_is_the_other_schedulers_queue() {
    let mut world = shadowed();
    submit(&mut world, "a", "q", 2);
    world.patch("ResourceBinding", "a-job", &json!({"spec": {"suspension": {"scheduling": true}}}));
    decide(&mut world);
    assert_eq!(line(&mut world, "a").verdict(), ShadowVerdict::Sooner);
}

#[test]
fn records_that_somebody_wrote_count_for_nothing() {
    let mut world = shadowed();
    submit(&mut world, "a", "q", 20);
    let charged = json!({"cpu": "20", "pods": "20"});
    let record = json!({"queue": "q", "priority": 0, "copies": 1, "tasks": {"worker": 20}, "charged": charged});
    let record = record.to_string();
    assert!(Admission::parse(&record).is_ok(), "it would count");
    let forged = json!({"metadata": {"annotations": {"caldera.dev/admission": record, "caldera.dev/gate": "open"}}});
    world.patch("ResourceBinding", "a-job", &forged);
    decide(&mut world);
    assert_eq!(line(&mut world, "a").verdict(), ShadowVerdict::Waits);
    assert_eq!(world.used("q"), "0");
}

#[test]
fn evictions_are_reported_once_for_each_job_and_what_ran_before_is_never_evicted() {
    let mut world = World::empty();
    world.cluster("m1", "8");
    for name in ["a", "b"] {
        world.queue(name, &json!({"deserved": {"cpu": "4", "pods": "4"}}));
    }
    world.shadow = Some(begin(&mut world, None));
    for number in 0..4 {
        let name = format!("a{number}");
        submit(&mut world, &name, "a", 2);
        decide(&mut world);
        place(&mut world, &name, 2);
        world.phase(&name, "Running");
        decide(&mut world);
    }
    submit(&mut world, "mine", "b", 4);
    let said = pass(&mut world, 120);
    let evicted: Vec<&ShadowNote> = said.iter().filter(|note| matches!(note, ShadowNote::Evicted { .. })).collect();
    let [ShadowNote::Evicted { by, reason, .. }, ShadowNote::Evicted { .. }] = &evicted[..] else {
        panic!("two jobs of two cpus, once: {said:?}")
    };
    assert_eq!((by.as_str(), reason.as_str()), ("ns/mine-job", "Reclaimed"));
    let line = line(&mut world, "mine");
    assert_eq!((line.verdict(), line.evicts.len()), (ShadowVerdict::Waits, 2));
    assert_eq!(report(&mut world).totals.evictions, 2);

    // As a shadow sees it that begins now.
    let bindings: Vec<Value> =
        world.objects.values().filter(|object| object["kind"] == "ResourceBinding").cloned().collect();
    let mut again = World::empty();
    again.cluster("m1", "8");
    for name in ["a", "b"] {
        again.queue(name, &json!({"deserved": {"cpu": "4", "pods": "4"}}));
    }
    again.controller.jobs.shadow = Some(std::collections::BTreeSet::new());
    let mut shadow = Shadow::new(None, again.now);
    let read = |object: &Value| match super::world::input(object, false) {
        Input::Bindings(Event::Applied(binding)) => binding,
        other => panic!("{other:?}"),
    };
    shadow.observe_bindings(&mut again.controller, Event::Reset(bindings.iter().map(read).collect()), again.now);
    again.shadow = Some(shadow);
    world.objects.values().filter(|object| object["kind"] == "Job").for_each(|object| again.report(object, false));
    let said = pass(&mut again, 120);
    assert!(said.is_empty(), "{said:?}");
    assert_eq!(report(&mut again).jobs.len(), 1, "of those that were placed before nothing is told");
}

#[test]
fn a_shadow_goes_on_where_an_earlier_one_was() {
    let mut world = shadowed();
    submit(&mut world, "a", "q", 6);
    submit(&mut world, "b", "q", 6);
    decide(&mut world);
    place(&mut world, "a", 6);
    pass(&mut world, 5);
    let earlier = report(&mut world);
    let since = world.now;
    let mut shadow = begin(&mut world, Some(earlier.clone()));
    let later = shadow.build_report(&world.controller, world.now);
    assert_eq!((later.since, &later.totals), (earlier.since, &earlier.totals));
    assert_eq!(later.jobs.iter().map(|job| &*job.name).collect::<Vec<_>>(), ["a"]);
    world.shadow = Some(shadow);
    let binding = world.get("ResourceBinding", "b-job").clone();
    world.report(&binding, false);
    world.now = world.now.saturating_add(SignedDuration::from_secs(5)).unwrap();
    decide(&mut world);
    let line = line(&mut world, "b");
    assert!(line.submitted < since, "{line:?}");
    assert_eq!(report(&mut world).jobs.len(), 2);
}

#[test]
fn a_job_that_is_gone_keeps_its_line_and_nothing_else() {
    let mut world = shadowed();
    submit(&mut world, "a", "q", 6);
    decide(&mut world);
    world.delete("ResourceBinding", "a-job");
    world.delete("Job", "a");
    decide(&mut world);
    assert_eq!(world.used("q"), "0");
    assert_eq!(line(&mut world, "a").verdict(), ShadowVerdict::Sooner);
}
