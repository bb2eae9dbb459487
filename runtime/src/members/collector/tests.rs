//! A collector on virtual time, between a host and a member that are routers in this process.

use std::sync::{Mutex, PoisonError};

use axum::{
    Json, Router,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use http::{Method, StatusCode};
use http_body_util::BodyExt;

use super::*;
use crate::clock::Clock;

#[test]
fn large_parts_are_written_less_often() {
    let pace = Pace::default();
    assert_eq!(pace.pause_after(0), Duration::from_secs(5));
    assert_eq!(pace.pause_after(64 * 1024), Duration::from_secs(5));
    assert_eq!(pace.pause_after(512 * 1024), Duration::from_secs(32));
}

/// The wall clock, which goes with virtual time.
#[derive(Debug)]
struct Wall(Instant);

impl Clock for Wall {
    fn now(&self) -> Timestamp {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        start + jiff::SignedDuration::try_from(self.0.elapsed()).unwrap()
    }
}

/// Both API servers.
struct Servers {
    began: Instant,
    /// Second, method, name and spec of each write.
    writes: Mutex<Vec<(u64, Method, String, Value)>>,
    /// Heartbeat that was there before.
    there: Value,
    /// Pods of the member.
    pods: watch::Sender<u32>,
    member_is_up: watch::Sender<bool>,
    /// Cores that the member's node says it uses, where the member serves that.
    cpu_used: Mutex<Option<&'static str>>,
    /// CPUs that the member's node reports as free, where the member serves that.
    free_cpus: watch::Sender<Option<&'static str>>,
    /// What the collector measures.
    registry: SharedRegistry,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn list(items: Value) -> Response {
    Json(json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": items}))
        .into_response()
}

fn silence() -> Response {
    Body::from_stream(futures::stream::pending::<Result<bytes::Bytes, std::io::Error>>()).into_response()
}

async fn host(State(servers): State<Arc<Servers>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let name = path.rsplit('/').next().unwrap_or_default().to_owned();
    if head.method != Method::GET {
        let body = body.collect().await.unwrap().to_bytes();
        let object: Value = serde_json::from_slice(&body).unwrap_or_default();
        let write = (servers.began.elapsed().as_secs(), head.method, name, object["spec"].clone());
        lock(&servers.writes).push(write);
        return Json(object).into_response();
    }
    let is_watch = head.uri.query().is_some_and(|query| query.contains("watch=true"));
    match () {
        () if is_watch => silence(),
        () if path.ends_with("/clusters") => list(json!([{
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": "m1", "uid": "u1"}, "spec": {"syncMode": "Pull"},
        }])),
        () if path.ends_with("/workloadkinds") => list(json!([])),
        () if servers.there.is_object() => Json(servers.there.clone()).into_response(),
        () => {
            let status =
                json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": ""});
            (StatusCode::NOT_FOUND, Json(status)).into_response()
        }
    }
}

async fn member(State(servers): State<Arc<Servers>>, request: Request) -> Response {
    if !*servers.member_is_up.borrow() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let (path, query) = (request.uri().path().to_owned(), request.uri().query().unwrap_or_default().to_owned());
    let used = lock(&servers.cpu_used).filter(|_| path.contains("metrics.k8s.io"));
    if let Some(cpu) = used {
        let timestamp = Wall(servers.began).now().to_string();
        let usage = json!({"cpu": cpu, "memory": "1Gi"});
        return list(json!([{"metadata": {"name": "n1"}, "timestamp": timestamp, "usage": usage}]));
    }
    if path.contains("numatopologies") && servers.free_cpus.borrow().is_some() {
        return numa_topologies(&servers, query.contains("watch=true"));
    }
    let absent = ["hypernodes", "numatopologies", "queues", "metrics.k8s.io", "resource.k8s.io"];
    if absent.iter().any(|kind| path.contains(kind)) {
        let status = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": ""});
        return (StatusCode::NOT_FOUND, Json(status)).into_response();
    }
    if !query.contains("watch=true") {
        let node = json!({
            "metadata": {"name": "n1", "labels": {"example.org/rack": "7"}},
            "status": {
                "allocatable": {"cpu": "1000", "pods": "1000"}, "conditions": [{"type": "Ready", "status": "True"}],
                "images": [{"names": ["a:1", "a@sha256:00"], "sizeBytes": 1_000_000_000}],
            },
        });
        return list(if path.ends_with("/nodes") { json!([node]) } else { json!([]) });
    }
    if path.ends_with("/nodes") {
        return silence();
    }
    // Each number is a pod that is bound.
    let pods = servers.pods.subscribe();
    let lines = futures::stream::unfold(pods, |mut pods| async move {
        pods.changed().await.ok()?;
        let number = *pods.borrow_and_update();
        let pod = json!({"type": "ADDED", "object": {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("p-{number}"), "namespace": "ns", "resourceVersion": (number + 1).to_string()},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        }});
        Some((Ok::<_, std::io::Error>(bytes::Bytes::from(format!("{pod}\n"))), pods))
    });
    Body::from_stream(lines).into_response()
}

/// Two NUMA nodes of four CPUs, as a list or as what changes.
fn numa_topologies(servers: &Servers, is_watch: bool) -> Response {
    let object = |free: Option<&str>, version: u32| {
        let cpu = |number: u32| (number.to_string(), json!({"numa": number / 4, "socket": number / 4, "core": number}));
        json!({
            "apiVersion": "nodeinfo.volcano.sh/v1alpha1", "kind": "Numatopology",
            "metadata": {"name": "n1", "resourceVersion": version.to_string()},
            "spec": {
                "policies": {"CPUManagerPolicy": "static", "TopologyManagerPolicy": "restricted"},
                "numares": {"cpu": {"allocatable": free}}, "resReserved": {"cpu": "500m"},
                "cpuDetail": (0..8).map(cpu).collect::<serde_json::Map<_, _>>(),
            },
        })
    };
    let mut free = servers.free_cpus.subscribe();
    if !is_watch {
        return list(json!([object(*free.borrow_and_update(), 1)]));
    }
    let lines = futures::stream::unfold((free, 2), move |(mut free, version)| async move {
        free.changed().await.ok()?;
        let event = json!({"type": "MODIFIED", "object": object(*free.borrow_and_update(), version)});
        Some((Ok::<_, std::io::Error>(bytes::Bytes::from(format!("{event}\n"))), (free, version + 1)))
    });
    Body::from_stream(lines).into_response()
}

/// A running collector, and what it talks to.
fn collector(there: Value) -> (Arc<Servers>, CancellationToken) {
    collector_with(there, None)
}

/// The same with labels that make domains.
fn collector_with(there: Value, topology_labels: Option<TopologyLabels>) -> (Arc<Servers>, CancellationToken) {
    let began = Instant::now();
    let (pods, member_is_up) = (watch::channel(0).0, watch::channel(true).0);
    let (writes, cpu_used, free_cpus) = (Mutex::default(), Mutex::default(), watch::channel(None).0);
    let registry = SharedRegistry::default();
    let servers = Arc::new(Servers { began, writes, there, pods, member_is_up, cpu_used, free_cpus, registry });
    let client = |router: Router| Client::new(router, "default");
    let host = client(Router::new().fallback(host).with_state(Arc::clone(&servers)));
    let inside = client(Router::new().fallback(member).with_state(Arc::clone(&servers)));
    let registry = Arc::clone(&servers.registry);
    let config =
        Config { member: Some(inside), clock: Arc::new(Wall(began)), registry, topology_labels, ..Config::new("m1") };
    let stop = CancellationToken::new();
    tokio::spawn(run_collector(config, host, stop.clone()));
    (servers, stop)
}

impl Servers {
    /// Seconds of the writes to an object.
    fn seconds(&self, of: &str) -> Vec<u64> {
        lock(&self.writes).iter().filter(|(_, _, name, _)| name == of).map(|(second, ..)| *second).collect()
    }

    fn last(&self, of: &str) -> Value {
        lock(&self.writes).iter().rev().find(|(_, _, name, _)| name == of).map(|(.., spec)| spec.clone()).unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn writes_do_not_depend_on_how_many_pods_come_and_go() {
    let (servers, stop) = collector(Value::Null);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!((servers.seconds("m1.0"), servers.seconds("m1")), (vec![0], vec![0]));
    // A hundred a second for a minute.
    for number in 0..6000 {
        servers.pods.send_replace(number);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (parts, beats) = (servers.seconds("m1.0"), servers.seconds("m1"));
    // The more there is to say the less often.
    assert!((5..=13).contains(&parts.len()), "{parts:?}");
    assert!(parts.windows(2).all(|pair| pair[1] - pair[0] >= 5), "{parts:?}");
    assert!((2..=3).contains(&beats.len()), "{beats:?}");
    // An idle member costs heartbeats only.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let parts = servers.seconds("m1.0").len();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(servers.seconds("m1.0").len(), parts);
    assert!((13..=15).contains(&servers.seconds("m1").len()), "{:?}", servers.seconds("m1"));
    // Now and then all is written again, for the case that somebody took a part away.
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(servers.seconds("m1.0").len(), parts + 1);
    let held = &servers.last("m1.0")["part"]["workloads"];
    assert_eq!(held.as_array().map(Vec::len), Some(6000));
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn what_nodes_use_is_reported_by_heartbeats_and_costs_no_write_of_its_own() {
    let (servers, stop) = collector(Value::Null);
    tokio::time::sleep(Duration::from_secs(130)).await;
    assert!(servers.last("m1")["heartbeat"]["load"].is_null(), "the member serves none");
    // Who was told that it is not served asks again after ten minutes.
    *lock(&servers.cpu_used) = Some("250");
    tokio::time::sleep(Duration::from_secs(540)).await;
    let load = servers.last("m1")["heartbeat"]["load"].clone();
    assert_eq!((&load["used"]["cpu"], &load["capacity"]["cpu"]), (&json!("250"), &json!("1k")), "{load}");
    let age = |load: &Value| {
        let read_at: Timestamp = load["readAt"].as_str().unwrap().parse().unwrap();
        Wall(servers.began).now().duration_since(read_at).as_secs()
    };
    assert!(age(&load) <= 60, "{load}");
    assert_eq!(servers.seconds("m1.0").len(), 2, "a part is written when it changes, and each ten minutes");
    assert!((22..=24).contains(&servers.seconds("m1").len()), "{:?}", servers.seconds("m1"));
    // What it served no more stays with the time of then.
    *lock(&servers.cpu_used) = None;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(age(&servers.last("m1")["heartbeat"]["load"]) > 200);
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn images_of_nodes_are_reported_by_heartbeats_and_by_no_part() {
    let (servers, stop) = collector(Value::Null);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let images = json!({"a:1": 1_000_000_000, "a@sha256:00": 1_000_000_000});
    assert_eq!(servers.last("m1")["heartbeat"]["images"], images);
    assert!(!servers.last("m1.0").to_string().contains("sha256"));
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn numa_nodes_are_published_where_the_member_serves_them_and_cost_nothing_where_it_does_not() {
    let (servers, stop) = collector(Value::Null);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(servers.last("m1.0")["part"]["numa"].is_null());
    assert_eq!(servers.seconds("m1.0").len(), 1);
    // It is looked for again now and then.
    servers.free_cpus.send_replace(Some("0-7"));
    tokio::time::sleep(Duration::from_secs(330)).await;
    let published = |cpus: &str| json!([{"nodes": "0", "policy": "restricted", "cpus": cpus}]);
    assert_eq!(servers.last("m1.0")["part"]["numa"], published("3/3/4 4/4/4"));
    servers.free_cpus.send_replace(Some("0-4"));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(servers.last("m1.0")["part"]["numa"], published("3/3/4 1/4/4"));
    servers.free_cpus.send_replace(Some("no set"));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(servers.last("m1.0")["part"]["numa"].is_null(), "what can not be reports nothing");
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_member_that_does_not_answer_is_said_once_and_its_clock_stands_still() {
    let (servers, stop) = collector(Value::Null);
    tokio::time::sleep(Duration::from_secs(20)).await;
    servers.member_is_up.send_replace(false);
    tokio::time::sleep(Duration::from_secs(120)).await;
    let beats = servers.seconds("m1").len();
    let seen: Timestamp = servers.last("m1")["heartbeat"]["seenAt"].as_str().unwrap().parse().unwrap();
    let text = crate::metric::encode(&servers.registry).unwrap();
    for line in [
        format!("caldera_inventory_seen_timestamp_seconds{{cluster=\"m1\"}} {}", seen.as_second()),
        "caldera_inventory_failures_total{cluster=\"m1\",kind=\"member\"} 1".to_owned(),
        "caldera_inventory_failures_total{cluster=\"m1\",kind=\"refused\"} 0".to_owned(),
    ] {
        assert!(text.lines().any(|it| it == line), "no {line}: {text}");
    }
    assert!(seen <= "2026-01-01T00:00:20Z".parse().unwrap(), "{seen}");
    assert!(servers.last("m1")["heartbeat"]["fault"].as_str().unwrap().contains("does not answer"));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(servers.seconds("m1").len(), beats);
    servers.member_is_up.send_replace(true);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(servers.last("m1")["heartbeat"]["fault"].is_null());
    assert_eq!(servers.seconds("m1").len(), beats + 1);
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn one_that_starts_takes_away_parts_that_are_too_many_after_it_has_said_so() {
    let heartbeat = json!({"seenAt": "", "everySeconds": 30, "reached": "Direct", "parts": 3, "nodes": 9});
    let there = json!({
        "apiVersion": "federation.caldera.dev/v1alpha1", "kind": "ClusterInventory",
        "metadata": {"name": "m1"}, "spec": {"cluster": "m1", "heartbeat": heartbeat},
    });
    let (servers, stop) = collector(there);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let writes: Vec<(Method, String)> =
        lock(&servers.writes).iter().map(|(_, method, name, _)| (method.clone(), name.clone())).collect();
    let (applied, deleted) = (Method::PATCH, Method::DELETE);
    let want = [(&applied, "m1.0"), (&applied, "m1"), (&deleted, "m1.1"), (&deleted, "m1.2")];
    assert_eq!(writes.iter().map(|(method, name)| (method, name.as_str())).collect::<Vec<_>>(), want);
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn what_a_collector_shows_is_what_is_declared_and_counts_what_it_wrote() {
    let (servers, stop) = collector(Value::Null);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let text = crate::metric::encode(&servers.registry).unwrap();
    assert_eq!(crate::metric::find_undeclared(&text, &metrics::ALL), [""; 0], "{text}");
    let series = "caldera_inventory_published_bytes_total{cluster=\"m1\"} ";
    let bytes: usize = text.lines().find_map(|line| line.strip_prefix(series)).unwrap().parse().unwrap();
    assert!(text.contains("caldera_inventory_parts{cluster=\"m1\"} 1\n"), "{text}");
    assert!(text.contains("caldera_inventory_published_parts_total{cluster=\"m1\"} 1\n"), "{text}");
    assert!(bytes > 100, "{text}");
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn domains_that_labels_make_are_published_and_each_selects_its_nodes_by_label() {
    for (labels, want) in [(None, Value::Null), (Some("example.org/rack"), json!("rack-7"))] {
        let (servers, stop) = collector_with(Value::Null, labels.map(|labels| labels.parse().unwrap()));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let part = servers.last("m1.0")["part"].clone();
        assert_eq!(part["domains"][0]["name"], want, "{part}");
        if labels.is_some() {
            let rack = json!([[{"key": "example.org/rack", "operator": "In", "values": ["7"]}]]);
            let domain = &part["domains"][0];
            assert_eq!((&domain["tierName"], &domain["labels"]), (&json!("example.org/rack"), &rack), "{part}");
        }
        stop.cancel();
    }
}
