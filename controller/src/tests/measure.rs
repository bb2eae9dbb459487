//! What is measured is the state, and what is shown is what is declared.

use caldera_core::{
    fleet::{Origin, Update},
    inventory::Change,
};
use caldera_runtime::{
    metric::{encode, find_undeclared},
    serve::SharedRegistry,
    watch::Event,
};
use serde_json::json;

use super::world::World;
use crate::{
    decide::decide,
    measure::Measures,
    metrics::{ALL, Metrics},
    observe::Input,
};

/// Decides once, carries out what was decided, and measures both.
fn step(world: &mut World, measures: &mut Measures, metrics: &Metrics) {
    let decisions = decide(&mut world.controller, world.now);
    measures.observe_decisions(&world.controller, &decisions.writes, metrics, world.now);
    for decision in decisions.writes {
        let result = world.carry_out(&decision.to_write(world.now));
        let done = caldera_runtime::write::WriteOutcome { tag: decision.tag(), result };
        world.controller.apply_write_answer(done, world.now);
    }
    measures.update_metrics_if_due(&mut world.controller, metrics, world.now);
}

fn pass(world: &mut World, seconds: u32, measures: &mut Measures, metrics: &Metrics) {
    for _ in 0..seconds {
        world.now = world.now.saturating_add(jiff::SignedDuration::from_secs(1)).unwrap();
        for _ in 0..4 {
            step(world, measures, metrics);
        }
    }
}

fn shows(registry: &SharedRegistry, wanted: &[&str]) {
    let text = encode(registry).unwrap();
    for line in wanted {
        assert!(text.lines().any(|it| it == *line), "no {line}: {text}");
    }
}

#[test]
fn queues_and_clusters_are_measured_as_they_are() {
    let (registry, mut world, mut measures) = (SharedRegistry::default(), World::new(2), Measures::default());
    let metrics = Metrics::register_in(&registry);
    world.job("runs", "q", 2);
    world.job("waits", "q", 2);
    world.job("never", "nowhere", 1);
    pass(&mut world, 1, &mut measures, &metrics);
    world.place("runs-job", 2);
    pass(&mut world, 5, &mut measures, &metrics);
    shows(
        &registry,
        &[
            "caldera_queue_jobs{queue=\"q\",state=\"waiting\"} 1.0",
            "caldera_queue_jobs{queue=\"q\",state=\"admitted\"} 1.0",
            "caldera_queue_used{queue=\"q\",resource=\"cpu\"} 2.0",
            "caldera_queue_capability{queue=\"q\",resource=\"cpu\"} 2.0",
            "caldera_cluster_capacity{cluster=\"m1\",resource=\"cpu\"} 100.0",
            "caldera_cluster_allocated{cluster=\"m1\",resource=\"cpu\"} 2.0",
            "caldera_cluster_ready{cluster=\"m1\"} 1.0",
            "caldera_stock_scheduler{} 0.0",
            "caldera_queue_wait_seconds_count{queue=\"q\"} 1",
        ],
    );
    world.phase("runs", "Running");
    pass(&mut world, 6, &mut measures, &metrics);
    shows(
        &registry,
        &[
            "caldera_queue_jobs{queue=\"q\",state=\"running\"} 1.0",
            "caldera_queue_start_seconds_count{queue=\"q\"} 1",
            "caldera_started_gangs_total{clusters=\"1\"} 1",
            // Six seconds passed from its release.
            "caldera_queue_start_seconds_bucket{le=\"5.0\",queue=\"q\"} 0",
            "caldera_queue_start_seconds_bucket{le=\"10.0\",queue=\"q\"} 1",
        ],
    );
    world.patch("Job", "runs", &json!({"metadata": {"annotations": {"caldera.dev/suspended": "true"}}}));
    pass(&mut world, 6, &mut measures, &metrics);
    shows(&registry, &["caldera_requeued_bindings_total{queue=\"q\",reason=\"Suspended\"} 1"]);

    // What is gone leaves nothing behind.
    for name in ["runs", "waits", "never"] {
        world.delete("ResourceBinding", &format!("{name}-job"));
        world.delete("Job", name);
    }
    world.delete("Queue", "q");
    pass(&mut world, 6, &mut measures, &metrics);
    let text = encode(&registry).unwrap();
    assert!(!text.contains("queue=\"q\""), "{text}");
    assert!(!text.contains("nowhere"), "{text}");
}

/// Names of jobs, and of queues that there are not, are words of tenants, as many as they like.
#[test]
fn no_series_has_a_value_that_tenants_choose() {
    let (registry, mut world, mut measures) = (SharedRegistry::default(), World::new(20), Measures::default());
    let metrics = Metrics::register_in(&registry);
    let count = |registry: &SharedRegistry| {
        let text = encode(registry).unwrap();
        assert!(!text.contains("tenants-"), "{text}");
        text.lines().filter(|line| !line.starts_with('#')).count()
    };
    world.job("tenants-first", "q", 1);
    world.job("tenants-first-lost", "tenants-queue", 1);
    pass(&mut world, 6, &mut measures, &metrics);
    let before = count(&registry);
    for number in 0..8 {
        world.job(&format!("tenants-job-{number}"), "q", 1);
        world.job(&format!("tenants-lost-{number}"), &format!("tenants-queue-{number}"), 1);
    }
    pass(&mut world, 6, &mut measures, &metrics);
    assert_eq!(count(&registry), before, "the number of series depends on how many jobs there are");
}

/// Found by a reader: what its user held raised the alert for what can never start.
#[test]
fn what_its_user_holds_is_not_inadmissible() {
    let (registry, mut world, mut measures) = (SharedRegistry::default(), World::new(2), Measures::default());
    let metrics = Metrics::register_in(&registry);
    world.job("held", "q", 1);
    world.patch("Job", "held", &json!({"metadata": {"annotations": {"caldera.dev/hold": "true"}}}));
    world.job("large", "q", 3);
    pass(&mut world, 5, &mut measures, &metrics);
    shows(
        &registry,
        &[
            "caldera_queue_jobs{queue=\"q\",state=\"held\"} 1.0",
            "caldera_queue_jobs{queue=\"q\",state=\"inadmissible\"} 1.0",
            "caldera_queue_jobs{queue=\"q\",state=\"waiting\"} 0.0",
        ],
    );
}

#[test]
fn a_pause_on_the_default_queue_stops_all_releases_and_survives_a_restart() {
    let (registry, mut world, mut measures) = (SharedRegistry::default(), World::new(4), Measures::default());
    let metrics = Metrics::register_in(&registry);
    let pause = |why: serde_json::Value| json!({"metadata": {"annotations": {"caldera.dev/paused": why}}});
    world.queue("default", &json!({}));
    // Of another queue it is nobody's word.
    world.patch("Queue", "q", &pause("mine".into()));
    world.patch("Queue", "default", &pause("upgrade at noon".into()));
    world.job("waits", "q", 2);
    pass(&mut world, 2, &mut measures, &metrics);
    world.restart();
    pass(&mut world, 20, &mut measures, &metrics);
    assert_eq!(world.used("q"), "0");
    let (token, text) = world.says("waits");
    assert!(token == "Paused" && text.ends_with("an admin paused all releases (upgrade at noon)"), "{token} {text}");
    shows(&registry, &["caldera_paused{} 1.0"]);
    world.patch("Queue", "default", &pause(serde_json::Value::Null));
    pass(&mut world, 6, &mut measures, &metrics);
    assert_eq!(world.used("q"), "2");
    shows(&registry, &["caldera_paused{} 0.0"]);
}

#[test]
fn a_waiting_job_that_has_a_reservation_is_counted_so_and_one_without_a_queue_is_of_none() {
    let (registry, mut world, mut measures) = (SharedRegistry::default(), World::new(4), Measures::default());
    world.controller.jobs.engine.set_reservation_after(Some(5));
    let metrics = Metrics::register_in(&registry);
    world.job("runs", "q", 3);
    pass(&mut world, 1, &mut measures, &metrics);
    world.place("runs-job", 3);
    world.job("large", "q", 4);
    pass(&mut world, 20, &mut measures, &metrics);
    shows(&registry, &["caldera_queue_reservations{queue=\"q\"} 1.0"]);
}

/// Three of eight cores are free; six in another cluster, which is not reserved, do not count.
#[test]
fn what_is_free_in_a_cluster_that_is_reserved_is_what_the_reservation_costs() {
    let (registry, mut world, mut measures) = (SharedRegistry::default(), World::empty(), Measures::default());
    world.controller.jobs.engine.set_reservation_after(Some(5));
    let metrics = Metrics::register_in(&registry);
    world.cluster("m1", "8");
    world.cluster("m2", "6");
    world.queue("q", &json!({"deserved": {"cpu": "14", "pods": "100"}}));
    world.job("runs", "q", 5);
    pass(&mut world, 2, &mut measures, &metrics);
    world.place("runs-job", 5);
    pass(&mut world, 6, &mut measures, &metrics);
    shows(&registry, &["caldera_cluster_reserved_idle{cluster=\"m1\",resource=\"cpu\"} 0.0"]);
    let mut large = super::world::job("large", "q", 1);
    large["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "8".into();
    let large = world.put(large);
    world.bind(&large, 1, true);
    pass(&mut world, 30, &mut measures, &metrics);
    shows(
        &registry,
        &[
            "caldera_cluster_reserved_idle{cluster=\"m1\",resource=\"cpu\"} 3.0",
            "caldera_cluster_reserved_idle{cluster=\"m2\",resource=\"cpu\"} 0.0",
            "caldera_queue_reserved_idle{queue=\"q\",resource=\"cpu\"} 3.0",
        ],
    );
}

#[test]
fn how_old_a_published_inventory_is_and_whether_a_members_nodes_are_known_is_shown() {
    let (registry, mut world, mut measures) = (SharedRegistry::default(), World::new(2), Measures::default());
    let metrics = Metrics::register_in(&registry);
    let report = |world: &mut World, update| world.controller.observe(Input::Member("m1".into(), update), world.now);
    let (seen_at, late) = ("2026-01-01T00:00:00Z".to_owned(), None);
    let lists = [Change::HyperNodes(Vec::new()), Change::Nodes(Vec::new()), Change::Pods(Vec::new())];
    for update in lists.map(Update::Change).into_iter().chain([Update::Up]) {
        report(&mut world, update);
    }
    report(&mut world, Update::From(Origin::Published { seen_at, late }));
    pass(&mut world, 6, &mut measures, &metrics);
    shows(
        &registry,
        &[
            "caldera_cluster_inventory_known{cluster=\"m1\"} 1.0",
            "caldera_cluster_inventory_timestamp_seconds{cluster=\"m1\"} 1767225600.0",
        ],
    );
    report(&mut world, Update::Down("too old".into()));
    pass(&mut world, 6, &mut measures, &metrics);
    shows(&registry, &["caldera_cluster_inventory_known{cluster=\"m1\"} 0.0"]);
    assert!(!encode(&registry).unwrap().contains("caldera_cluster_inventory_timestamp_seconds{"));
}

/// What is left of it is a name that a tenant may have chosen.
#[test]
fn who_goes_back_to_a_line_of_a_queue_that_is_gone_is_counted_of_no_queue() {
    let (registry, mut world, mut measures) = (SharedRegistry::default(), World::new(2), Measures::default());
    let metrics = Metrics::register_in(&registry);
    world.job("runs", "q", 2);
    pass(&mut world, 1, &mut measures, &metrics);
    world.place("runs-job", 2);
    world.phase("runs", "Running");
    world.delete("Queue", "q");
    world.patch("Job", "runs", &json!({"metadata": {"annotations": {"caldera.dev/suspended": "true"}}}));
    pass(&mut world, 6, &mut measures, &metrics);
    shows(&registry, &["caldera_requeued_bindings_total{queue=\"\",reason=\"Suspended\"} 1"]);
}

#[test]
fn when_something_of_a_kind_was_last_told_is_shown_by_kind() {
    let (registry, mut world, mut measures) = (SharedRegistry::default(), World::new(2), Measures::default());
    let metrics = Metrics::register_in(&registry);
    measures.observe_input(&Input::Queues(Event::Reset(Vec::new())), world.now);
    let reported = world.now.as_second();
    pass(&mut world, 20, &mut measures, &metrics);
    shows(&registry, &[&format!("caldera_watch_last_event_timestamp_seconds{{kind=\"Queue\"}} {reported}.0")]);
    let text = encode(&registry).unwrap();
    assert!(!text.contains("caldera_watch_last_event_timestamp_seconds{kind=\"Work\"}"), "{text}");
}

#[test]
fn what_is_shown_is_what_is_declared() {
    let (registry, mut world, mut measures) = (SharedRegistry::default(), World::new(2), Measures::default());
    let metrics = Metrics::register_in(&registry);
    measures.observe_input(&Input::Queues(Event::Reset(Vec::new())), world.now);
    world.job("runs", "q", 2);
    pass(&mut world, 6, &mut measures, &metrics);
    let mut text = encode(&registry).unwrap();
    let start = metrics.start.get_or_create(&crate::metrics::START.build_labels(["q"])).clone();
    start.observe(1.0);
    for (counters, metric) in
        [(&metrics.evicted, crate::metrics::EVICTED), (&metrics.requeued, crate::metrics::REQUEUED)]
    {
        counters.get_or_create(&metric.build_labels(["q", "Reclaimed"])).inc();
    }
    metrics.started_gangs.get_or_create(&crate::metrics::STARTED_GANGS.build_labels(["1"])).inc();
    text = encode(&registry).unwrap_or(text);
    // Of clusters whose nodes are known, or whose inventory is published, and shown by the writer.
    let elsewhere = [
        crate::metrics::CLUSTER_FRAGMENTATION,
        crate::metrics::CLUSTER_USED,
        crate::metrics::CLUSTER_USED_READ,
        crate::metrics::INVENTORY_SEEN,
        crate::metrics::PENDING_WRITES,
        crate::metrics::WRITES_IN_FLIGHT,
        crate::metrics::MOST_WRITES_IN_FLIGHT,
    ];
    let declared: Vec<_> = ALL.into_iter().filter(|metric| !elsewhere.contains(metric)).collect();
    assert_eq!(find_undeclared(&text, &declared), [""; 0], "{text}");
}
