//! What holds on every route: limits of bodies, deadlines, lines.

use std::sync::mpsc;

use axum::body::{Body, Bytes};
use tower::ServiceExt;

use super::*;

const ROUTES: [&str; 8] = [
    "mutate-resourcebinding",
    "mutate-work",
    "mutate-job",
    "validate-job",
    "mutate-queue",
    "validate-queue",
    "validate-hyperjob",
    "interpreter",
];
const AT_LAST: Duration = Duration::from_secs(60);

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
    for route in ROUTES {
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
    for route in ROUTES {
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
    let (release, wait) = mpsc::channel::<()>();
    let (begun, has_begun) = mpsc::channel();
    let pool = cache.pool.clone().unwrap();
    let held = tokio::spawn(async move {
        let rule = move || {
            let _ = begun.send(());
            let _ = wait.recv();
        };
        pool.decide_review("another", 2 << 20, rule).await
    });
    tokio::task::spawn_blocking(move || has_begun.recv_timeout(AT_LAST).expect("it never begins")).await.unwrap();
    let large = ROUTES.map(|route| {
        let routes = routes.clone();
        tokio::spawn(async move { ask(&routes, route, review_of(3_000).into()).await })
    });
    for route in ROUTES {
        for objects in [1, 600] {
            let (status, text) = ask(&routes, route, review_of(objects).into()).await;
            assert_ne!(status, 503, "{route} of {objects}: {text}");
        }
    }
    for (route, asked) in ROUTES.into_iter().zip(large) {
        let (status, text) = asked.await.unwrap();
        assert_eq!(status, 503, "{route}: {text}");
        assert!(text.starts_with("the review was not decided within 4.5s"), "{route}: {text}");
    }
    drop(release);
    held.await.unwrap();
    for route in ROUTES {
        let (status, text) = ask(&routes, route, review_of(3_000).into()).await;
        assert_ne!(status, 503, "{route}: {text}");
    }
}
