//! What holds on every route: limits of bodies, deadlines, lines.

use std::sync::mpsc;

use axum::body::{Body, Bytes};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;
use crate::observe::cache::{CachedBinding, Known};

const AT_LAST: Duration = Duration::from_secs(60);

/// Those of admission, and the interpreter's.
fn list_routes() -> impl Iterator<Item = &'static str> {
    RULES.into_iter().map(|(route, _)| route).chain(["interpreter"])
}

fn webhook(limits: &Limits) -> (SharedCache, Router) {
    // A request that is never answered would look like a review that waits.
    let api = kube::Client::new(Router::new(), "default");
    let cache = SharedCache::new(api, &SharedRegistry::default()).with_threads(limits);
    (cache.clone(), router(cache, Ready::default()))
}

async fn ask(routes: &Router, route: &str, body: Body) -> (u16, String) {
    let request = Request::post(format!("/{route}")).body(body).unwrap();
    let answer = tokio::time::timeout(AT_LAST, routes.clone().oneshot(request)).await.expect("it waits for ever");
    let (head, body) = answer.unwrap().into_parts();
    let text = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    (head.status.as_u16(), String::from_utf8_lossy(&text).into_owned())
}

/// A review that takes about as much memory as so many objects.
fn review_of(objects: usize) -> String {
    let items = "{\"a\":1},".repeat(objects);
    format!("{{\"request\":{{\"uid\":\"u\",\"namespace\":\"ns\",\"object\":{{\"spec\":[{items}0]}}}}}}")
}

#[tokio::test]
async fn every_route_takes_bodies_up_to_the_same_length() {
    let (_, routes) = webhook(&Limits::for_objects_of(100_000));
    for route in list_routes() {
        let (status, text) = ask(&routes, route, vec![b' '; 200_000].into()).await;
        assert_eq!(status, 413, "{route}: {text}");
        assert!(text.starts_with("the body is larger than the 165536 bytes"), "{route}: {text}");
    }
}

#[tokio::test]
async fn every_route_gives_a_body_the_same_time() {
    let mut limits = Limits::default();
    limits.bodies.within = Duration::from_millis(100);
    let (_, routes) = webhook(&limits);
    for route in list_routes() {
        let pieces = futures::stream::once(async { Ok::<_, std::io::Error>(Bytes::from_static(b"{")) });
        let never = futures::StreamExt::chain(pieces, futures::stream::pending());
        let (status, text) = ask(&routes, route, Body::from_stream(never)).await;
        assert_eq!((status, text.as_str()), (408, "the body was not complete after 100ms"), "{route}");
    }
}

/// What is large waits in its line on every route, at most until the deadline of a review; what is small does not wait
/// behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_route_has_the_same_lines_and_the_same_deadline() {
    let (cache, routes) = webhook(&Limits::default());
    let mut held = Vec::new();
    for line in [LargeReviews::OfBindings, LargeReviews::OfOthers] {
        let (release, wait) = mpsc::channel::<()>();
        let (begun, has_begun) = mpsc::channel();
        let pool = cache.pool.clone().unwrap();
        let review = tokio::spawn(async move {
            let rule = move || {
                let _ = begun.send(());
                let _ = wait.recv();
            };
            pool.decide_review(line, "another", 2 << 20, rule).await
        });
        held.push((release, review));
        tokio::task::spawn_blocking(move || has_begun.recv_timeout(AT_LAST).expect("it never begins")).await.unwrap();
    }
    let large: Vec<_> = list_routes()
        .map(|route| {
            let routes = routes.clone();
            tokio::spawn(async move { ask(&routes, route, review_of(3_000).into()).await })
        })
        .collect();
    for route in list_routes() {
        for objects in [1, 600] {
            let (status, text) = ask(&routes, route, review_of(objects).into()).await;
            assert_ne!(status, 503, "{route} of {objects}: {text}");
        }
    }
    for (route, asked) in list_routes().zip(large) {
        let (status, text) = asked.await.unwrap();
        assert_eq!(status, 503, "{route}: {text}");
        assert!(text.starts_with("the review was not decided within 4.5s"), "{route}: {text}");
    }
    for (release, review) in held {
        drop(release);
        review.await.unwrap();
    }
    for route in list_routes() {
        let (status, text) = ask(&routes, route, review_of(3_000).into()).await;
        assert_ne!(status, 503, "{route}: {text}");
    }
}

/// In stock mode the plan is in our answer alone.
#[tokio::test]
async fn the_plan_that_an_answer_gives_is_announced_before_it_is_sent() {
    let task = json!({"name": "w", "replicas": 5, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}});
    let job = json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "j", "namespace": "ns"},
        "spec": {"queue": "q", "minAvailable": 5, "tasks": [task]},
    });
    let no_lease =
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404});
    let api = Router::new()
        .route("/apis/batch.volcano.sh/v1alpha1/namespaces/ns/jobs/j", get(move || async move { axum::Json(job) }))
        .fallback(move || async move { (StatusCode::NOT_FOUND, axum::Json(no_lease)) });
    let cache = SharedCache::new(kube::Client::new(api, "default"), &SharedRegistry::default());
    cache.update_cache(|cache| cache.placer = Placer::Stock { lease: ("system".to_owned(), "lease".to_owned()) });
    let routes = router(cache.clone(), Ready::default());
    let record = r#"{"queue":"q","priority":0,"copies":1,"tasks":{"w":5},"charged":{"pods":"5"}}"#;
    let binding = |clusters: Value| {
        json!({
            "metadata": {"name": "j-job", "namespace": "ns", "annotations":
                {"caldera.dev/gate": "open", "caldera.dev/admission": record}},
            "spec": {
                "resource": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": "ns", "name": "j"},
                "placement": {}, "clusters": clusters,
            },
        })
    };
    let clusters = json!([{"name": "m1", "replicas": 2}, {"name": "m2", "replicas": 3}]);
    let key = ("ns".to_owned(), "j-job".to_owned());
    cache.update_cache(|cache| cache.put_binding(key.clone(), CachedBinding::from_object(&binding(json!([])))));
    let scheduler = json!({"username": "karmada-scheduler", "groups": ["system:masters"]});
    let review = |dry_run: bool| {
        json!({"request": {
            "uid": "u", "operation": "UPDATE", "namespace": "ns", "dryRun": dry_run, "userInfo": scheduler,
            "object": binding(clusters.clone()), "oldObject": binding(json!([])),
        }})
    };
    for (dry_run, is_current) in [(true, true), (false, false)] {
        let (status, text) = ask(&routes, BINDINGS, review(dry_run).to_string().into()).await;
        assert!(status == 200 && text.contains("\"allowed\":true") && text.contains("JSONPatch"), "{text}");
        let known = cache.current();
        let found = Snapshot::of_cache(&known).find_binding(&key);
        assert_eq!(matches!(found, Known::Yes(_)), is_current, "dry run: {dry_run}: {found:?}");
    }
}
