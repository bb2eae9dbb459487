//! Watches on virtual time, of a server that is a function.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use kube::client::Body;
use serde_json::json;

use super::*;

#[test]
fn what_a_watch_failed_at_is_told_in_the_servers_sentence_alone() {
    let status = kube::core::Status::failure("jobs is forbidden", "Forbidden").with_code(403).boxed();
    let reported = describe_watch_error(&watcher::Error::InitialListFailed(kube::Error::Api(status.clone())));
    assert_eq!(reported, "can not list: jobs is forbidden");
    assert_eq!(describe_watch_error(&watcher::Error::WatchError(status)), "jobs is forbidden");
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_may_be_absent_counts_as_listed_and_is_followed_once_the_server_has_it() {
    static IS_THERE: AtomicBool = AtomicBool::new(false);
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let service = tower::service_fn(|request: http::Request<Body>| async move {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        if is_watch {
            std::future::pending::<()>().await;
        }
        ASKED.fetch_add(1, Ordering::Relaxed);
        let (code, body) = if IS_THERE.load(Ordering::Relaxed) {
            let item = json!({"metadata": {"name": "a", "namespace": "ns"}});
            let metadata = json!({"resourceVersion": "1"});
            (200, json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": [item]}))
        } else {
            let message = "the server could not find the requested resource";
            let reason = "NotFound";
            (404, json!({"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": 404}))
        };
        http::Response::builder().status(code).body(Body::from(body.to_string().into_bytes()))
    });
    let (events, mut received) = mpsc::channel(8);
    let follower = Follower::new(Client::new(service, "ns"), events, CancellationToken::new());
    let options = WatchOptions::from(watcher::Config::default()).allow_absent_kind(true);
    let resource = api_resource("ray.io", "v1", "RayJob", "rayjobs");
    follower.follow_json(resource, options, |object| object["metadata"]["name"].as_str().map(str::to_owned), Some);
    assert!(matches!(received.recv().await, Some(Event::Reset(all)) if all.is_empty()));
    tokio::time::sleep(ABSENT_RETRY * 10).await;
    assert!(received.try_recv().is_err(), "it is said once");
    assert!(ASKED.load(Ordering::Relaxed) <= 12, "it is asked for now and then: {ASKED:?}");
    IS_THERE.store(true, Ordering::Relaxed);
    assert!(matches!(received.recv().await, Some(Event::Reset(all)) if all == ["a"]));
}

/// A server that lists one object, and of which these say how it goes.
#[derive(Default)]
struct Server {
    lists: AtomicUsize,
    fails_lists: AtomicBool,
    /// What each watch is told at once; nothing in time where there is none.
    watch_answer: Mutex<Option<(u16, Value)>>,
}

impl Server {
    fn count_lists(&self) -> usize {
        self.lists.load(Ordering::Relaxed)
    }

    fn client(self: &Arc<Self>) -> Client {
        let server = Arc::clone(self);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let server = Arc::clone(&server);
            async move { server.answer(request).await }
        });
        Client::new(service, "ns")
    }

    async fn answer(&self, request: http::Request<Body>) -> Result<http::Response<Body>, http::Error> {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let (code, body) = if is_watch {
            let answer = self.watch_answer.lock().unwrap().clone();
            match answer {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        } else if self.fails_lists.load(Ordering::Relaxed) {
            (503, status(503, "ServiceUnavailable"))
        } else {
            self.lists.fetch_add(1, Ordering::Relaxed);
            let metadata = json!({"resourceVersion": "1"});
            let items = json!([{"metadata": {"name": "a", "namespace": "ns"}}]);
            (200, json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items}))
        };
        http::Response::builder().status(code).body(Body::from(body.to_string().into_bytes()))
    }

    fn follow(self: &Arc<Self>, options: impl Into<WatchOptions>) -> mpsc::Receiver<Event<String>> {
        let (events, received) = mpsc::channel(1024);
        let follower = Follower::new(self.client(), events, CancellationToken::new());
        let read = |object: Value| object["metadata"]["name"].as_str().map(str::to_owned);
        follower.follow_json(api_resource("", "v1", "Node", "nodes"), options, read, Some);
        received
    }
}

fn status(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "reason": reason, "code": code})
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_may_be_listed_and_not_watched_is_listed_ever_more_rarely_and_said_to_fail() {
    let server = Arc::new(Server::default());
    *server.watch_answer.lock().unwrap() = Some((403, status(403, "Forbidden")));
    let health = WatchHealth::default();
    let mut received = server.follow(health.clone());
    assert!(matches!(received.recv().await, Some(Event::Reset(all)) if all == ["a"]));
    tokio::time::sleep(MAX_BACKOFF * 20).await;
    assert!((20..=32).contains(&server.count_lists()), "in 200 s: {}", server.count_lists());
    assert!(health.failing_since().is_some_and(|since| since.elapsed() > MAX_BACKOFF * 19));
    // Allowed, it works again although nothing happens.
    *server.watch_answer.lock().unwrap() = None;
    tokio::time::sleep(MAX_BACKOFF + HELD_WATCH * 2).await;
    assert_eq!(health.failing_since(), None);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_forgotten_every_version_is_asked_for_lists_ever_more_rarely() {
    let server = Arc::new(Server::default());
    let event = json!({"type": "ERROR", "object": status(410, "Expired")});
    *server.watch_answer.lock().unwrap() = Some((200, event));
    let mut received = server.follow(watcher::Config::default());
    assert!(matches!(received.recv().await, Some(Event::Reset(all)) if all == ["a"]));
    tokio::time::sleep(MAX_BACKOFF * 20).await;
    assert!((20..=32).contains(&server.count_lists()), "in 200 s: {}", server.count_lists());
}

#[tokio::test(start_paused = true)]
async fn what_is_listed_after_an_outage_is_told_at_once_and_the_watch_is_well_once_it_has_held() {
    let server = Arc::new(Server::default());
    server.fails_lists.store(true, Ordering::Relaxed);
    let health = WatchHealth::default();
    let mut received = server.follow(health.clone());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(health.failing_since().is_some() && received.try_recv().is_err());
    server.fails_lists.store(false, Ordering::Relaxed);
    let began = Instant::now();
    assert!(matches!(received.recv().await, Some(Event::Reset(all)) if all == ["a"]));
    assert!(began.elapsed() <= Duration::from_secs(2) && health.failing_since().is_some());
    tokio::time::sleep(HELD_WATCH * 2).await;
    assert_eq!((health.failing_since(), server.count_lists()), (None, 1));
}

#[tokio::test(start_paused = true)]
async fn a_change_that_a_watch_tells_says_that_it_works_again() {
    let server = Arc::new(Server::default());
    server.fails_lists.store(true, Ordering::Relaxed);
    let health = WatchHealth::default();
    let mut received = server.follow(health.clone());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let object = json!({"metadata": {"name": "b", "namespace": "ns", "resourceVersion": "2"}});
    *server.watch_answer.lock().unwrap() = Some((200, json!({"type": "ADDED", "object": object})));
    server.fails_lists.store(false, Ordering::Relaxed);
    assert!(matches!(received.recv().await, Some(Event::Reset(_))));
    assert!(matches!(received.recv().await, Some(Event::Applied(name)) if name == "b"));
    assert_eq!(health.failing_since(), None);
}

/// A server with one declared kind, of which nothing may be listed before it is granted.
async fn answer_declared(request: http::Request<Body>, is_granted: bool) -> http::Response<Body> {
    let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
    if is_watch {
        std::future::pending::<()>().await;
    }
    let list = |item: Value| json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [item]});
    let (code, body) = if request.uri().path().ends_with("/workloadkinds") {
        let spec = json!({
            "group": "runtime.example.com", "version": "v1", "kind": "FollowedRun", "plural": "followedruns",
            "podSets": [{"path": "spec", "template": "template"}], "status": {}, "pods": {"jobLabel": "run"},
        });
        (200, list(json!({"metadata": {"name": "followedruns.runtime.example.com"}, "spec": spec})))
    } else if is_granted {
        (200, list(json!({"metadata": {"name": "a", "namespace": "ns"}})))
    } else {
        (403, status(403, "Forbidden"))
    };
    let answer = http::Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
    answer.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_objects_of_a_kind_told_by_data_are_followed_and_nothing_waits_until_that_is_granted() {
    static IS_GRANTED: AtomicBool = AtomicBool::new(false);
    let service = tower::service_fn(|request: http::Request<Body>| async move {
        Ok::<_, http::Error>(answer_declared(request, IS_GRANTED.load(Ordering::Relaxed)).await)
    });
    let (events, mut received) = mpsc::channel(8);
    let (client, stop) = (Client::new(service, "ns"), CancellationToken::new());
    declare_kinds(&client, &stop).await;
    let known = caldera_crds::workload::WorkloadKind::parse("runtime.example.com/v1", "FollowedRun").unwrap();
    Follower::new(client, events, stop).follow_declared_kinds(move |follower, kind, options| {
        if kind != known {
            return;
        }
        let read = |object: Value| object["metadata"]["name"].as_str().map(str::to_owned);
        follower.follow_json(kind.api_resource(), options, read, Some);
    });
    assert!(matches!(received.recv().await, Some(Event::Reset(all)) if all.is_empty()));
    IS_GRANTED.store(true, Ordering::Relaxed);
    assert!(matches!(received.recv().await, Some(Event::Reset(all)) if all == ["a"]));
}

#[tokio::test(start_paused = true)]
async fn what_was_listed_of_a_kind_stays_while_a_right_to_list_it_lacks_and_goes_with_the_kind() {
    static CODE: AtomicUsize = AtomicUsize::new(200);
    let service = tower::service_fn(|request: http::Request<Body>| async move {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let code = CODE.load(Ordering::Relaxed);
        let item = json!({"metadata": {"name": "a", "namespace": "ns"}});
        let body = match (is_watch, code) {
            (true, _) => json!({"type": "ERROR", "object": status(410, "Expired")}),
            (false, 200) => {
                json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [item]})
            }
            (false, code) => status(u16::try_from(code).unwrap(), "Refused"),
        };
        let code = if is_watch { 200 } else { u16::try_from(code).unwrap() };
        if !is_watch && code == 200 {
            CODE.store(403, Ordering::Relaxed);
        }
        let answer = http::Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
        Ok::<_, http::Error>(answer.unwrap())
    });
    let (events, mut received) = mpsc::channel(8);
    let follower = Follower::new(Client::new(service, "ns"), events, CancellationToken::new());
    let read = |object: Value| object["metadata"]["name"].as_str().map(str::to_owned);
    let options = WatchOptions::default().allow_unlisted_kind(ListedBefore::default());
    follower.follow_json(api_resource("example.com", "v1", "Run", "runs"), options, read, Some);
    assert!(matches!(received.recv().await, Some(Event::Reset(all)) if all == ["a"]));
    tokio::time::sleep(ABSENT_RETRY * 3).await;
    assert!(received.try_recv().is_err(), "a refusal takes nothing away");
    CODE.store(404, Ordering::Relaxed);
    let gone = tokio::time::timeout(ABSENT_RETRY * 10, received.recv()).await.unwrap();
    assert!(matches!(gone, Some(Event::Reset(all)) if all.is_empty()));
}
