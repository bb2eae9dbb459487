//! What a collector is told, against a stub of one.

use std::{net::TcpListener as StdListener, sync::Arc, time::Duration};

use axum::{Router, extract::State, http::StatusCode, routing::post};
use prometheus_client::encoding::text::encode;
use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc};
use tracing_subscriber::layer::SubscriberExt;

use super::*;
use crate::serve::SharedRegistry;

const UID: &str = "5b8efff7-9803-8103-d269-b633813fc60c";

/// The form of opentelemetry-proto's `examples/trace.json`, with 64-bit numbers as texts, as the JSON mapping of
/// Protocol Buffers writes them.
#[test]
fn a_request_has_the_form_of_the_specifications_example() {
    let span = FinishedSpan {
        trace: parse_trace_id(UID).unwrap(),
        id: 0xeee1_9b7e_c3c1_b174,
        parent: Some(0xeee1_9b7e_c3c1_b173),
        name: "write",
        scope: "caldera_runtime::write",
        began: 1_544_712_660_000_000_000,
        ended: 1_544_712_661_000_000_000,
        attributes: vec![("queue", AttributeValue::from_text("q")), ("try", AttributeValue::Integer(2))],
        error: Some("conflict".into()),
    };
    let other = FinishedSpan { parent: None, error: None, scope: "caldera_webhook::run", ..span.clone() };
    let reported = encode_request("caldera-controller", &[span, other]);
    let resource = &reported["resourceSpans"][0]["resource"]["attributes"][0];
    assert_eq!(*resource, json!({"key": "service.name", "value": {"stringValue": "caldera-controller"}}));
    let scopes = reported["resourceSpans"][0]["scopeSpans"].as_array().unwrap();
    assert_eq!(
        scopes.iter().map(|it| &it["scope"]["name"]).collect::<Vec<_>>(),
        ["caldera_runtime::write", "caldera_webhook::run"]
    );
    let span = json!({
        "traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174", "parentSpanId": "eee19b7ec3c1b173",
        "name": "write", "kind": 1,
        "startTimeUnixNano": "1544712660000000000", "endTimeUnixNano": "1544712661000000000",
        "attributes": [
            {"key": "queue", "value": {"stringValue": "q"}}, {"key": "try", "value": {"intValue": "2"}},
        ],
        "status": {"code": 2, "message": "conflict"},
    });
    assert_eq!(scopes[0]["spans"], json!([span]));
    assert!(scopes[1]["spans"][0]["parentSpanId"].is_null() && scopes[1]["spans"][0]["status"].is_null());
}

#[test]
fn the_id_of_a_trace_is_a_workloads_uid() {
    assert_eq!(parse_trace_id(UID), Some(0x5b8e_fff7_9803_8103_d269_b633_813f_c60c));
    for wrong in ["", "uid-7", "00000000-0000-0000-0000-000000000000", "5b8efff7-9803-8103-d269-b633813fc60c0"] {
        assert_eq!(parse_trace_id(wrong), None, "{wrong}");
    }
}

/// What spans become, in the order of their ends.
fn record(spans: impl FnOnce()) -> Vec<FinishedSpan> {
    let (sender, mut reported) = mpsc::channel(64);
    let subscriber = tracing_subscriber::registry().with(OtlpLayer::new(sender));
    tracing::subscriber::with_default(subscriber, spans);
    std::iter::from_fn(|| reported.try_recv().ok()).collect()
}

#[test]
fn a_span_and_what_is_within_it_are_of_the_trace_of_its_workload_and_others_are_not_told() {
    let reported = record(|| {
        let _pass = tracing::debug_span!("pass").entered();
        let decision =
            tracing::debug_span!("decision", workload_uid = UID, queue = "q", cluster = tracing::field::Empty);
        decision.record("cluster", "m1");
        decision.in_scope(|| drop(tracing::debug_span!("write", tries = 2_u64).entered()));
        drop(decision);
    });
    let [write, decision] = &reported[..] else { panic!("{reported:?}") };
    assert_eq!((write.name, decision.name), ("write", "decision"));
    assert_eq!((write.trace, Some(write.trace)), (decision.trace, parse_trace_id(UID)));
    assert_eq!((write.parent, decision.parent), (Some(decision.id), None), "the pass is of no trace");
    let said = |name: &str| decision.attributes.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone());
    assert_eq!(said("cluster"), Some(AttributeValue::from_text("m1")));
    assert_eq!(said("queue"), Some(AttributeValue::from_text("q")));
    assert!(decision.began <= write.began && write.ended <= decision.ended);
}

#[test]
fn a_workload_that_is_known_later_counts_and_a_failure_is_reported() {
    let reported = record(|| {
        let review =
            tracing::debug_span!("review", workload_uid = tracing::field::Empty, error = tracing::field::Empty);
        review.record("workload_uid", UID);
        review.record("error", "x".repeat(10_000));
    });
    let [review] = &reported[..] else { panic!("{reported:?}") };
    assert_eq!(Some(review.trace), parse_trace_id(UID));
    assert_eq!(review.error.as_ref().map(String::len), Some(MOST_OF_VALUE));
}

/// Answers of a stub, and what it was told.
type Stub = Arc<Mutex<(Vec<StatusCode>, Vec<Value>)>>;

async fn serve_stub(answers: &[StatusCode]) -> (String, Stub) {
    crate::tls::install_provider();
    let stub: Stub = Arc::new(Mutex::new((answers.to_vec(), Vec::new())));
    let take = async |State(stub): State<Stub>, body: String| {
        let mut stub = stub.lock().await;
        stub.1.push(serde_json::from_str(&body).unwrap());
        if stub.0.is_empty() { StatusCode::OK } else { stub.0.remove(0) }
    };
    let routes = Router::new().route("/v1/traces", post(take)).with_state(Arc::clone(&stub));
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    (url, stub)
}

async fn until_reported(stub: &Stub, requests: usize) -> Vec<Value> {
    for _ in 0..600 {
        let reported = stub.lock().await.1.clone();
        if reported.len() >= requests {
            return reported;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{requests} requests did not come within half a minute");
}

fn span_ids(request: &Value) -> Vec<String> {
    let scopes = request["resourceSpans"][0]["scopeSpans"].as_array().unwrap();
    let spans = scopes.iter().flat_map(|scope| scope["spans"].as_array().unwrap());
    spans.map(|span| span["traceId"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn spans_reach_a_collector_and_a_batch_that_it_is_too_busy_for_is_sent_again() {
    let (url, stub) = serve_stub(&[StatusCode::SERVICE_UNAVAILABLE]).await;
    let layer = start_span_exporter(&url, "caldera-test").unwrap();
    let subscriber = tracing_subscriber::registry().with(layer);
    tracing::subscriber::with_default(subscriber, || {
        for _ in 0..3 {
            drop(tracing::debug_span!("decision", workload_uid = UID));
        }
    });
    let reported = until_reported(&stub, 2).await;
    assert_eq!(reported[0], reported[1], "the same batch, again");
    assert_eq!(span_ids(&reported[1]), [UID.replace('-', ""), UID.replace('-', ""), UID.replace('-', "")]);
}

#[tokio::test]
async fn what_finds_the_queue_full_is_dropped_and_counted_and_nothing_waits() {
    let registry = SharedRegistry::default();
    register_dropped(&registry);
    let (sender, _kept) = mpsc::channel(2);
    let subscriber = tracing_subscriber::registry().with(OtlpLayer::new(sender));
    tracing::subscriber::with_default(subscriber, || {
        for _ in 0..5 {
            drop(tracing::debug_span!("decision", workload_uid = UID));
        }
    });
    let mut text = String::new();
    encode(&mut text, &registry.lock().unwrap()).unwrap();
    let line = text.lines().find(|line| line.starts_with("caldera_otlp_dropped_spans_total")).unwrap();
    let dropped: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(dropped >= 3, "{line}");
}

#[tokio::test]
async fn an_address_that_is_none_is_refused_at_start() {
    crate::tls::install_provider();
    for wrong in ["collector:4318", "grpc://collector:4317", "", "/v1/traces"] {
        assert!(start_span_exporter(wrong, "caldera").is_err(), "{wrong}");
    }
}

#[test]
fn a_flag_goes_before_the_variable_for_traces_and_that_before_the_one_for_all_signals_whose_path_is_longer() {
    const TRACES: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
    const ALL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
    let choose = |flag: Option<&str>, reported: &[(&str, &str)]| {
        let read = |name: &str| reported.iter().find(|(known, _)| *known == name).map(|(_, url)| (*url).to_owned());
        choose_endpoint(flag, read).map(|chosen| (chosen.url, chosen.variable))
    };
    let both = [(TRACES, "http://t:4318/own"), (ALL, "http://a:4318")];
    assert_eq!(choose(Some("http://f:1"), &both), Some(("http://f:1".into(), None)));
    assert_eq!(choose(None, &both), Some(("http://t:4318/own".into(), Some(TRACES))));
    for (url, chosen) in [
        ("http://a:4318", "http://a:4318/v1/traces"),
        ("http://a:4318/", "http://a:4318/v1/traces"),
        ("http://a/otlp", "http://a/otlp/v1/traces"),
    ] {
        assert_eq!(choose(None, &[(TRACES, ""), (ALL, url)]), Some((chosen.into(), Some(ALL))));
    }
    assert_eq!([choose(None, &[]), choose(None, &[(TRACES, ""), (ALL, " ")])], [None, None]);
}
