//! Members on virtual time, against a host that is a router in this process. The member is behind its cluster proxy, so
//! that every request to it is seen.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use axum::{
    Json, Router,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use caldera_core::{
    fleet::Origin,
    image_locality::ClusterImages,
    inventory::{Change, Node},
};
use caldera_crds::published::{Contents, divide_contents};
use http::StatusCode;
use serde_json::{Value, json};

use super::*;
use crate::clock::{Clock, format_micro_time};

/// The wall clock, which goes with virtual time.
#[derive(Debug)]
struct Wall(Instant);

impl Clock for Wall {
    fn now(&self) -> Timestamp {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        start + jiff::SignedDuration::try_from(self.0.elapsed()).unwrap()
    }
}

#[derive(Default)]
struct Host {
    /// What is published, by list; watches tell nothing new.
    published: Mutex<Vec<Value>>,
    /// Requests to the member.
    asked: AtomicUsize,
}

async fn answer(State(host): State<Arc<Host>>, request: Request) -> Response {
    let path = request.uri().path();
    if path.contains("/proxy/") {
        host.asked.fetch_add(1, Ordering::Relaxed);
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
        return Body::from_stream(futures::stream::pending::<Result<bytes::Bytes, std::io::Error>>()).into_response();
    }
    let items = host.published.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Json(json!({
        "apiVersion": "federation.caldera.dev/v1alpha1", "kind": "ClusterInventoryList",
        "metadata": {"resourceVersion": "1"}, "items": items,
    }))
    .into_response()
}

fn objects(seen_at: Timestamp, part: Value) -> Vec<Value> {
    let heartbeat = json!({
        "seenAt": format_micro_time(seen_at), "everySeconds": 30, "reached": "Direct", "parts": 1, "nodes": 1,
    });
    let object = |name: &str, key: &str, value: Value| {
        json!({
            "apiVersion": "federation.caldera.dev/v1alpha1", "kind": "ClusterInventory",
            "metadata": {"name": name}, "spec": {"cluster": "m1", key: value},
        })
    };
    vec![object("m1", "heartbeat", heartbeat), object("m1.0", "part", part)]
}

fn one_node() -> Value {
    let node = Node { name: "n1".into(), ready: true, ..Node::default() };
    let contents = Contents { nodes: [("n1".to_owned(), node)].into(), ..Contents::default() };
    serde_json::to_value(divide_contents(&contents, 1).remove(0)).unwrap()
}

struct World {
    host: Arc<Host>,
    events: mpsc::Receiver<MemberEvent>,
    _members: Members,
    began: Instant,
}

/// One Pull member, of which this was published so many seconds ago.
fn world(age: i64, part: Option<Value>) -> World {
    world_with(age, part, Value::Null)
}

/// The same, with what its nodes use.
fn world_with(age: i64, part: Option<Value>, load: Value) -> World {
    let began = Instant::now();
    let clock = Arc::new(Wall(began));
    let mut published = part.map(|part| objects(clock.now() - jiff::SignedDuration::from_secs(age), part));
    if let Some(objects) = published.as_mut().filter(|_| !load.is_null()) {
        objects[0]["spec"]["heartbeat"]["load"] = load;
    }
    let host = Arc::new(Host { published: Mutex::new(published.unwrap_or_default()), ..Host::default() });
    let router = Router::new().fallback(answer).with_state(Arc::clone(&host));
    let client = Client::new(router, "default");
    let (events_in, events) = mpsc::channel(64);
    let stop = CancellationToken::new();
    let mut members = Members::new(client, "test", WriteCounts::default(), clock, events_in, stop);
    let cluster = json!({"metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"}});
    members.start_member_watch(&serde_json::from_value(cluster).unwrap());
    World { host, events, _members: members, began }
}

impl World {
    async fn next(&mut self) -> Update {
        self.events.recv().await.unwrap().update
    }

    fn asked(&self) -> usize {
        self.host.asked.load(Ordering::Relaxed)
    }

    fn seconds(&self) -> u64 {
        self.began.elapsed().as_secs()
    }
}

fn origin_is_late(update: &Update) -> bool {
    match update {
        Update::From(Origin::Published { late, .. }) => late.is_some(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_published_member_is_not_watched_until_its_collector_is_late_and_not_trusted_beyond_three_heartbeats() {
    let mut world = world(0, Some(one_node()));
    assert!(!origin_is_late(&world.next().await));
    assert_eq!(world.next().await, Update::Images(ClusterImages::default()));
    assert_eq!(world.next().await, Update::Links(Vec::new()));
    assert!(matches!(world.next().await, Update::Change(Change::HyperNodes(all)) if all.is_empty()));
    assert!(matches!(world.next().await, Update::Change(Change::NumaTopologies(all)) if all.is_empty()));
    assert!(matches!(world.next().await, Update::Change(Change::AllDevices(all)) if all.is_empty()));
    assert!(matches!(world.next().await, Update::Change(Change::Nodes(all)) if all[0].name == "n1"));
    assert!(matches!(world.next().await, Update::Change(Change::Pods(_))));
    assert!(matches!(world.next().await, Update::Queues(queues) if queues.is_empty()));
    assert_eq!(world.next().await, Update::Up);
    assert_eq!((world.asked(), world.seconds()), (0, 0));
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert_eq!(world.asked(), 0);
    // Two heartbeats later it is looked for, and said to be late.
    assert!(origin_is_late(&world.next().await));
    assert_eq!(world.seconds(), 60);
    assert!(matches!(world.next().await, Update::Down(why) if why.contains("too old")));
    assert!(world.asked() > 0);
    assert_eq!(world.seconds(), 90);
    assert!(matches!(world.next().await, Update::Down(why) if why.contains("does not answer")));
}

#[tokio::test(start_paused = true)]
async fn what_nodes_use_is_told_as_it_is_published_and_what_is_no_load_is_none() {
    let amounts = |cpu: &str| json!({"cpu": cpu, "memory": "1"});
    let load = |cpu: &str| json!({"readAt": "2026-01-01T00:00:00Z", "used": amounts(cpu), "capacity": amounts("8")});
    let mut world = world_with(0, Some(one_node()), load("3"));
    assert!(!origin_is_late(&world.next().await));
    let Update::Load(Some(reported)) = world.next().await else { panic!("it was published") };
    assert_eq!(
        (reported.used.get("cpu").to_string(), reported.capacity.get("cpu").to_string()),
        ("3".into(), "8".into())
    );
    // The inventory counts all the same.
    let mut world = world_with(0, Some(one_node()), load("1e30"));
    assert!(!origin_is_late(&world.next().await));
    assert!(matches!(world.next().await, Update::Images(_)));
    assert_eq!(world.next().await, Update::Links(Vec::new()));
    assert!(matches!(world.next().await, Update::Change(Change::HyperNodes(_))));
}

#[tokio::test(start_paused = true)]
async fn a_late_starter_trusts_it_less_long_and_reaches_for_the_member_at_once() {
    let mut world = world(70, Some(one_node()));
    assert!(origin_is_late(&world.next().await));
    while world.next().await != Update::Up {}
    assert!(matches!(world.next().await, Update::Down(why) if why.contains("too old")));
    assert_eq!(world.seconds(), 20);
    assert!(world.asked() > 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_out_of_time_or_none_is_not_used_at_all() {
    for (age, part) in [(90, Some(one_node())), (3600, Some(one_node())), (0, None)] {
        let mut world = world(age, part);
        assert!(matches!(world.next().await, Update::Down(why) if why.contains("does not answer")), "{age}");
        assert_eq!(world.seconds(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_inventory_is_refused_whole_and_the_member_asked() {
    let mut part = one_node();
    part["held"] = json!([{"nodes": "7", "amounts": {"cpu": "1"}}]);
    let mut world = world(0, Some(part));
    assert!(!origin_is_late(&world.next().await));
    assert!(matches!(world.next().await, Update::Images(_)));
    assert_eq!(world.next().await, Update::Links(Vec::new()));
    let Update::Down(why) = world.next().await else { panic!("it was told") };
    assert!(why.contains("no inventory: there is no node 7"), "{why}");
}

/// Answers what a probe asks, and no list.
async fn lists_nothing(request: Request) -> Response {
    let query = request.uri().query().unwrap_or_default();
    if ["hypernodes", "numatopologies"].iter().any(|kind| request.uri().path().contains(kind)) {
        return StatusCode::NOT_FOUND.into_response();
    }
    if query.split('&').any(|part| part == "limit=1") {
        return Json(json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []})).into_response();
    }
    std::future::pending().await
}

#[tokio::test(start_paused = true)]
async fn a_member_that_answers_and_lists_nothing_is_down_and_not_waited_for() {
    let began = Instant::now();
    let host = Arc::new(Host::default());
    let client = |router: Router| Client::new(router, "default");
    let (events_in, mut events) = mpsc::channel(64);
    let router = Router::new().fallback(answer).with_state(Arc::clone(&host));
    let (clock, stop) = (Arc::new(Wall(began)), CancellationToken::new());
    let mut members = Members::new(client(router), "test", WriteCounts::default(), clock, events_in, stop);
    let cluster = serde_json::from_value(json!({"metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"}})).unwrap();
    members.start_member_watch_with(&cluster, Some(client(Router::new().fallback(lists_nothing))));
    loop {
        if let Update::Down(why) = events.recv().await.unwrap().update {
            assert!(why.contains("not listed"), "{why}");
            break;
        }
    }
    assert_eq!(began.elapsed().as_secs(), 30);
}

/// A member that answers every probe, and may refuse to be read beyond that.
struct Partial {
    hyper_nodes_fail: AtomicBool,
    /// There are Numatopologies, of which a list takes longer than a probe may.
    numa_is_slow: AtomicBool,
    pods_work: watch::Sender<bool>,
    /// Pods may be listed only.
    watch_refused: AtomicBool,
    queues: Value,
}

async fn answers_in_part(State(member): State<Arc<Partial>>, request: Request) -> Response {
    let (path, query) = (request.uri().path().to_owned(), request.uri().query().unwrap_or_default().to_owned());
    let has = |wanted: &str| query.split('&').any(|part| part == wanted);
    if path.contains("hypernodes") {
        let fails = member.hyper_nodes_fail.load(Ordering::Relaxed);
        return if fails { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::NOT_FOUND }.into_response();
    }
    let has_numa = member.numa_is_slow.load(Ordering::Relaxed);
    if path.contains("numatopologies") {
        if !has_numa {
            return StatusCode::FORBIDDEN.into_response();
        }
        if !has("limit=1") && !has("watch=true") {
            tokio::time::sleep(2 * PROBE_TIMEOUT).await;
        }
    }
    let is_broken = path.ends_with("/pods") && !*member.pods_work.borrow();
    match () {
        () if is_broken && !has("limit=1") => StatusCode::FORBIDDEN.into_response(),
        () if has("watch=true") && path.ends_with("/pods") && member.watch_refused.load(Ordering::Relaxed) => {
            StatusCode::FORBIDDEN.into_response()
        }
        () if has("watch=true") && path.ends_with("/pods") => {
            let works = member.pods_work.subscribe();
            let broken = futures::stream::unfold(works, |mut works| async move {
                works.wait_for(|works| !works).await.ok()?;
                Some((Err::<bytes::Bytes, _>(std::io::Error::other("cut")), works))
            });
            Body::from_stream(broken).into_response()
        }
        () if has("watch=true") => {
            Body::from_stream(futures::stream::pending::<Result<bytes::Bytes, std::io::Error>>()).into_response()
        }
        () => {
            let items = match path.rsplit('/').next() {
                Some("queues") => member.queues.clone(),
                Some("numatopologies") => json!([{"metadata": {"name": "n1"}}]),
                _ => json!([]),
            };
            Json(json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}))
                .into_response()
        }
    }
}

struct PartWorld {
    member: Arc<Partial>,
    events: mpsc::Receiver<MemberEvent>,
    answered: watch::Receiver<Option<Timestamp>>,
    _members: Members,
    began: Instant,
}

impl PartWorld {
    fn new(hyper_nodes_fail: bool) -> Self {
        Self::with(hyper_nodes_fail, json!([]))
    }

    fn with(hyper_nodes_fail: bool, queues: Value) -> Self {
        let (began, pods_work) = (Instant::now(), watch::channel(true).0);
        let (hyper_nodes_fail, watch_refused) = (AtomicBool::new(hyper_nodes_fail), AtomicBool::new(false));
        let numa_is_slow = AtomicBool::new(false);
        let member = Arc::new(Partial { hyper_nodes_fail, numa_is_slow, pods_work, watch_refused, queues });
        let client = |router: Router| Client::new(router, "default");
        let (events_in, events) = mpsc::channel(64);
        let (answered_in, answered) = watch::channel(None);
        let mut members = Members {
            host: client(Router::new()),
            component: "test".into(),
            counts: WriteCounts::default(),
            cache: None,
            clock: Arc::new(Wall(began)),
            answered: Some(answered_in),
            events: events_in,
            shutdown: CancellationToken::new(),
            watched: BTreeMap::new(),
            reads_load: false,
        };
        let cluster =
            serde_json::from_value(json!({"metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"}})).unwrap();
        let router = Router::new().fallback(answers_in_part).with_state(Arc::clone(&member));
        members.start_member_watch_with(&cluster, Some(client(router)));
        Self { member, events, answered, _members: members, began }
    }

    /// All that is told for so many seconds, in a word each, with the second.
    async fn reported(&mut self, seconds: u64) -> Vec<(u64, &'static str)> {
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut reported = Vec::new();
        while let Ok(Some(event)) = tokio::time::timeout_at(end, self.events.recv()).await {
            let word = match event.update {
                Update::Change(Change::HyperNodes(_)) => "domains",
                Update::Change(Change::NumaTopologies(all)) if all.is_empty() => continue,
                Update::Change(Change::NumaTopologies(_)) => "numa",
                Update::Change(Change::AllDevices(all)) if all.is_empty() => continue,
                Update::Change(Change::Nodes(_)) => "nodes",
                Update::Change(Change::Pods(_)) => "pods",
                Update::From(Origin::Member) => "from",
                Update::Up => "up",
                Update::Queues(queues) if queues.is_empty() => continue,
                Update::Queues(queues) => {
                    assert!(queues["q"].is_closed());
                    "queues"
                }
                Update::Down(why) if why.contains("HyperNode objects can not be read") => "no domains",
                Update::Down(why) if why.contains("Pod objects can not be followed") => "no pods",
                Update::Down(why) if why.contains("not listed within") => "not listed",
                other => panic!("{other:?}"),
            };
            reported.push((self.began.elapsed().as_secs(), word));
        }
        reported
    }
}

fn words<'a>(reported: &[(u64, &'a str)]) -> Vec<&'a str> {
    let mut words: Vec<&str> = reported.iter().map(|(_, word)| *word).collect();
    // Nodes and pods come as they may.
    if let Some([a, b]) = words.get_mut(1..3) {
        let (first, second) = ((*a).min(*b), (*a).max(*b));
        (*a, *b) = (first, second);
    }
    words
}

const ALL: [&str; 5] = ["domains", "nodes", "pods", "from", "up"];

#[tokio::test(start_paused = true)]
async fn a_member_is_up_when_all_was_listed_and_not_before() {
    let mut world = PartWorld::new(false);
    assert_eq!(words(&world.reported(100).await), ALL);
}

#[tokio::test(start_paused = true)]
async fn queues_of_its_own_are_reported_where_it_has_some() {
    let mut world = PartWorld::with(false, json!([{"metadata": {"name": "q"}, "status": {"state": "Closed"}}]));
    let mut reported: Vec<&str> = world.reported(100).await.into_iter().map(|(_, word)| word).collect();
    reported.sort_unstable();
    assert_eq!(reported, ["domains", "from", "nodes", "pods", "queues", "up"]);
}

#[tokio::test(start_paused = true)]
async fn without_its_hyper_nodes_it_is_never_up() {
    let mut world = PartWorld::new(true);
    let reported = world.reported(60).await;
    assert!(reported.len() > 2 && reported.iter().all(|(_, word)| *word == "no domains"), "{reported:?}");
    world.member.hyper_nodes_fail.store(false, Ordering::Relaxed);
    assert_eq!(words(&world.reported(20).await), ALL);
}

#[tokio::test(start_paused = true)]
async fn numa_nodes_that_take_long_to_list_are_waited_for_and_told_before_nodes() {
    let mut world = PartWorld::new(false);
    world.member.numa_is_slow.store(true, Ordering::Relaxed);
    let reported = world.reported(100).await;
    assert!(reported.iter().all(|(second, _)| (10..15).contains(second)), "{reported:?}");
    let mut words: Vec<&str> = reported.iter().map(|(_, word)| *word).collect();
    words[..2].sort_unstable();
    words[2..4].sort_unstable();
    assert_eq!(words, ["domains", "numa", "nodes", "pods", "from", "up"]);
}

#[tokio::test(start_paused = true)]
async fn one_watch_that_fails_for_long_takes_the_member_down_though_it_answers_probes() {
    let mut world = PartWorld::new(false);
    assert_eq!(words(&world.reported(60).await), ALL);
    world.member.pods_work.send_replace(false);
    let reported = world.reported(90).await;
    let [(second, "no pods"), (_, "not listed")] = reported[..] else { panic!("{reported:?}") };
    assert!((80..=110).contains(&second), "{second}");
    let seen = world.answered.borrow().unwrap();
    assert!(seen <= "2026-01-01T00:01:10Z".parse().unwrap(), "{seen}");
    // Nothing of before counts then: all is told anew.
    world.member.pods_work.send_replace(true);
    assert_eq!(words(&world.reported(60).await), ALL);
    assert!(*world.answered.borrow() > Some(seen));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_fails_for_seconds_changes_nothing_but_is_listed_anew() {
    let mut world = PartWorld::new(false);
    assert_eq!(words(&world.reported(60).await), ALL);
    world.member.pods_work.send_replace(false);
    assert_eq!(words(&world.reported(5).await), Vec::<&str>::new());
    world.member.pods_work.send_replace(true);
    assert_eq!(words(&world.reported(100).await), ["pods"]);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_may_be_listed_and_not_watched_is_down_once_and_up_when_its_watches_hold() {
    let mut world = PartWorld::new(false);
    world.member.watch_refused.store(true, Ordering::Relaxed);
    let reported: Vec<&str> = world.reported(70).await.into_iter().map(|(_, word)| word).collect();
    assert_eq!(
        (reported.iter().filter(|word| **word == "up").count(), reported.last()),
        (1, Some(&"no pods")),
        "{reported:?}"
    );
    assert_eq!(world.reported(1200).await, [], "it is as it was told");
    world.member.watch_refused.store(false, Ordering::Relaxed);
    assert_eq!(words(&world.reported(60).await), ALL);
    assert_eq!(world.reported(600).await, []);
}
