//! What an answer means, and in which order writes go out.

use kube::{
    client::{AuthError, Body as KubeBody},
    core::{Status, response::StatusSummary},
};
use serde_json::json;

use super::*;

#[test]
fn a_patch_that_can_not_be_applied_to_what_is_there_is_a_conflict() {
    let refusal = |code: u16, message: &str| {
        let status = Status {
            status: Some(StatusSummary::Failure),
            code,
            message: message.to_owned(),
            reason: "Invalid".to_owned(),
            ..Status::default()
        };
        kube::Error::Api(status.boxed())
    };
    let write = |body| Write {
        resource: crate::watch::api_resource("work.karmada.io", "v1alpha2", "ResourceBinding", "resourcebindings"),
        namespace: "ns".into(),
        name: "b".into(),
        subresource: None,
        body,
    };
    let patch = write(Body::JsonPatch(json!([])));
    assert!(matches!(classify_write_error(&patch, refusal(422, UNAPPLICABLE)), Failure::Conflict(_)));
    assert!(matches!(
        classify_write_error(&patch, refusal(422, "spec.replicas: must not be negative")),
        Failure::Refused { .. }
    ));
    let merge = write(Body::MergePatch(json!({})));
    assert!(matches!(classify_write_error(&merge, refusal(422, UNAPPLICABLE)), Failure::Refused { .. }));
}

#[tokio::test(start_paused = true)]
async fn who_stops_waits_for_what_was_sent_and_sends_nothing_more() {
    let (asked, mut seen) = mpsc::unbounded_channel();
    let service = tower::service_fn(move |request: http::Request<KubeBody>| {
        asked.send(request.uri().path().to_owned()).unwrap();
        async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            Ok::<_, std::convert::Infallible>(http::Response::new(KubeBody::from(b"{}".to_vec())))
        }
    });
    let stop = CancellationToken::new();
    let (writer, outcomes) = Writer::start_writer(Client::new(service, "default"), stop.clone());
    let write = |name: &str| config_map(name, Body::MergePatch(json!({})));
    (0..MAX_IN_FLIGHT).for_each(|at| writer.queue_write(at, write(&format!("c{at}"))));
    assert!(seen.recv().await.is_some());
    let began = tokio::time::Instant::now();
    stop.cancel();
    wait_for_outcomes(outcomes).await;
    assert_eq!(began.elapsed(), Duration::from_secs(2));
    let sent = 1 + std::iter::from_fn(|| seen.try_recv().ok()).count();
    assert_eq!(sent, InFlightWindow::default().size(), "what waits is not begun after the stop");
}

fn config_map(name: &str, body: Body) -> Write {
    Write {
        resource: crate::watch::api_resource("", "v1", "ConfigMap", "configmaps"),
        namespace: "ns".into(),
        name: name.into(),
        subresource: None,
        body,
    }
}

#[tokio::test(start_paused = true)]
async fn writes_of_one_object_keep_their_order_and_decisions_pass_the_reports_of_others() {
    let (asked, mut seen) = mpsc::unbounded_channel();
    let service = tower::service_fn(move |request: http::Request<KubeBody>| {
        let asked = asked.clone();
        async move {
            let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            let body = request.into_body().collect_bytes().await.unwrap();
            asked.send((name, serde_json::from_slice::<Value>(&body).unwrap())).unwrap();
            tokio::time::sleep(Duration::from_secs(2)).await;
            Ok::<_, std::convert::Infallible>(http::Response::new(KubeBody::from(b"{}".to_vec())))
        }
    });
    let stop = CancellationToken::new();
    let (writer, mut outcomes) = Writer::start_writer(Client::new(service, "default"), stop.clone());
    let registry = SharedRegistry::default();
    let gauge_of = |name| Metric { name, kind: crate::metric::Kind::Gauge, labels: &[], help: "Of a test" };
    writer.register_gauges(&registry, [&gauge_of("pending"), &gauge_of("in_flight"), &gauge_of("most")]);
    let gauges = || {
        let text = crate::metric::encode(&registry).unwrap();
        let read = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
        ["pending ", "in_flight ", "most "].map(read)
    };
    let set = |n: u32| json!([{"op": "add", "path": "/n", "value": n}]);
    // The window is full of others, so that all of these wait.
    let others = InFlightWindow::default().size();
    (0..others).for_each(|at| writer.queue_write(at, config_map(&format!("c{at}"), Body::MergePatch(json!({})))));
    (0..50).for_each(|at| writer.queue_write(at, config_map(&format!("r{at}"), Body::MergePatch(json!({})))));
    writer.queue_write(1, config_map("x", Body::MergePatch(json!({"n": 1}))));
    writer.queue_write(2, config_map("x", Body::JsonPatch(set(2))));
    writer.queue_write(3, config_map("x", Body::MergePatch(json!({"n": 3}))));
    writer.queue_write(4, config_map("x", Body::JsonPatch(set(4))));
    assert_eq!(gauges()[0], (others + 50 + 4).to_string());
    tokio::time::sleep(Duration::from_secs(1)).await;
    // The last of the reports goes first, as a decision waits behind it.
    let waiting = json!({
        "inFlight": others, "mostInFlight": others, "decisions": 1, "reports": 50, "heldBack": 3,
    });
    assert_eq!(writer.describe_queue(), waiting);
    assert_eq!(gauges()[1..], [others.to_string(), others.to_string()]);
    for _ in 0..others + 50 + 4 {
        outcomes.recv().await.unwrap();
    }
    assert_eq!(gauges()[..1], ["0"]);
    let sent: Vec<(String, Value)> = std::iter::from_fn(|| seen.try_recv().ok()).collect();
    let of_x: Vec<&Value> = sent.iter().filter(|(name, _)| name == "x").map(|(_, body)| body).collect();
    assert_eq!(of_x, [&json!({"n": 1}), &set(2), &json!({"n": 3}), &set(4)]);
    let first = sent.iter().position(|(name, _)| name == "x").unwrap();
    assert_eq!(first, others, "a report with a decision behind it goes before the reports of others");
}

/// Statuses of placed bindings waited for seconds behind other placements, and were refused for their versions then.
#[test]
fn what_is_asked_for_as_next_passes_decisions_and_reports_of_others() {
    let mut queue = WriteQueue::new();
    let mut push = |tag, body, is_next| {
        queue.push_write(QueuedWrite { tag, write: config_map(tag, body), is_next, span: Span::none() });
    };
    push("report", Body::MergePatch(json!({})), false);
    push("decision", Body::JsonPatch(json!([])), false);
    push("first", Body::MergePatch(json!({})), true);
    push("second", Body::MergePatch(json!({})), true);
    let order: Vec<&str> = std::iter::from_fn(|| queue.pop_write()).map(|job| job.tag).collect();
    assert_eq!(order, ["first", "second", "decision", "report"]);
}

#[test]
fn what_can_not_succeed_is_final_and_trouble_on_the_way_is_not() {
    let not_json = serde_json::from_str::<Value>("<html>").unwrap_err();
    let no_uri = http::Uri::try_from("not a uri").unwrap_err();
    for broken in [
        kube::Error::SerdeError(not_json),
        kube::Error::HttpError(no_uri.into()),
        kube::Error::TlsRequired,
        kube::Error::Auth(AuthError::UnrefreshableTokenResponse),
        kube::Error::Service(Box::new(AuthError::UnrefreshableTokenResponse)),
    ] {
        let failure = classify_error(broken);
        assert!(matches!(&failure, Failure::Refused { reason, .. } if reason == UNUSABLE_CLIENT), "{failure}");
    }
    let status = |code: u16| kube::Error::Api(Status { code, ..Status::default() }.boxed());
    let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
    for passing in [kube::Error::Service(Box::new(refused)), status(429), status(500), status(503), status(504)] {
        assert!(matches!(classify_error(passing), Failure::Transient(_)));
    }
    for code in [400, 401, 403, 422] {
        assert!(matches!(classify_error(status(code)), Failure::Refused { code: refused, .. } if refused == code));
    }
}

#[test]
fn a_namespace_that_is_being_deleted_is_told_from_a_right_that_is_missing() {
    let refused = |message: &str| {
        let status = Status { code: 403, reason: "Forbidden".into(), message: message.into(), ..Status::default() };
        classify_error(kube::Error::Api(status.boxed()))
    };
    let ending = "podgroups.scheduling.volcano.sh \"j\" is forbidden: unable to create new content in namespace n \
                  because it is being terminated";
    assert!(refused(ending).is_of_ending_namespace());
    assert!(
        !refused("podgroups.scheduling.volcano.sh is forbidden: User \"u\" cannot create").is_of_ending_namespace()
    );
}

const QUICK: Duration = Duration::from_millis(5);

#[test]
fn the_window_shrinks_while_answers_are_slow_and_keeps_a_few() {
    let (mut window, slow) = (InFlightWindow::default(), Duration::from_secs(1));
    (0..4000).for_each(|_| window.observe_result(true, QUICK));
    assert_eq!(window.size(), MAX_IN_FLIGHT);
    (0..MAX_IN_FLIGHT).for_each(|_| window.observe_result(true, slow));
    assert!((55..MAX_IN_FLIGHT).contains(&window.size()), "two fewer for a round: {}", window.size());
    (0..4000).for_each(|_| window.observe_result(true, slow));
    assert_eq!(window.size(), SLOW_IN_FLIGHT);
    (0..9).for_each(|_| window.observe_result(false, slow));
    assert_eq!(window.size(), 1);
    (0..100).for_each(|_| window.observe_result(true, slow));
    assert_eq!(window.size(), SLOW_IN_FLIGHT);
}

#[test]
fn the_window_halves_on_trouble_and_grows_back() {
    let mut window = InFlightWindow::default();
    assert_eq!(window.size(), 16);
    window.observe_result(false, QUICK);
    assert_eq!(window.size(), 8);
    for _ in 0..200 {
        window.observe_result(true, QUICK);
    }
    assert!(window.size() > 16, "{}", window.size());
    for _ in 0..20 {
        window.observe_result(false, QUICK);
    }
    assert_eq!(window.size(), 1);
}

/// Tenants write some of the names: in a path another one would mean another object.
#[tokio::test]
async fn a_name_that_no_object_can_have_is_not_asked_for() {
    let service = tower::service_fn(|request: http::Request<KubeBody>| async move {
        assert_eq!(request.uri().path(), "/api/v1/namespaces/ns/configmaps/system:a.b-1");
        Ok::<_, std::convert::Infallible>(http::Response::new(KubeBody::from(b"{}".to_vec())))
    });
    let client = Client::new(service, "default");
    let of = |namespace: &str, name: &str| Write {
        namespace: namespace.into(),
        ..config_map(name, Body::MergePatch(json!({})))
    };
    assert!(execute_write(&client, &of("ns", "system:a.b-1")).await.is_ok());
    let wrong = [("ns", ".."), ("ns", "a/b"), ("ns", "a%2fb"), ("ns", "a?b"), ("ns", "a#b"), ("ns", ""), ("ns", "a b")];
    let others = [("..", "a"), ("karmada-es-../../ns", "a"), ("ns/x", "a"), ("ns?x", "a")];
    for (namespace, name) in wrong.into_iter().chain(others) {
        let failed = execute_write(&client, &of(namespace, name)).await;
        assert!(matches!(failed, Err(Failure::Refused { code: 0, .. })), "{namespace} {name}: {failed:?}");
    }
}
