//! Both ends over real sockets, against a sandbox's member of two nodes with 8 cores each.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{net::TcpListener, sync::Arc, time::Duration};

use bytes::Bytes;
use caldera_core::{
    gang::{NodeClaim, Task, Toleration},
    quantity::Quantity,
};
use caldera_crds::estimator::{
    SERVICE,
    convert::{build_all_or_nothing_gang, write_components},
    messages::{
        AssumedWorkload, ComponentMessage, MaxAvailableComponentSetsRequest, MaxAvailableComponentSetsResponse,
        MaxAvailableReplicasResponse, ObjectReferenceMessage, UnschedulableReplicasRequest,
        UnschedulableReplicasResponse,
    },
};
use caldera_estimator::serve::{Config, run};
use caldera_global_scheduler::estimators::client::{EstimatorClient, EstimatorError, Trust};
use caldera_runtime::{
    client::WriteCounts,
    clock::SystemClock,
    metric::encode,
    serve::{Ready, SharedRegistry},
    tls::{Authority, Identity, ServedTls, estimator_server_config, install_provider},
};
use caldera_sandbox::fleet::{Config as FleetConfig, Fleet};
use http_body_util::{BodyExt, Full};
use tokio_util::sync::CancellationToken;
use tonic::Code;

struct World {
    address: String,
    registry: SharedRegistry,
    stop: CancellationToken,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A member and its estimator.
async fn world(tls: Option<ServedTls>) -> World {
    install_provider();
    let stop = CancellationToken::new();
    let fleet = Fleet::start(FleetConfig::with_members(1), &stop).await.unwrap();
    let host = fleet.host.client("estimator", &WriteCounts::default()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (ready, registry) = (Ready::default(), SharedRegistry::default());
    let config = Config {
        listener,
        tls,
        cluster: "member1".into(),
        member: None,
        clock: Arc::new(SystemClock),
        ready: ready.clone(),
        counts: WriteCounts::default(),
        registry: registry.clone(),
    };
    tokio::spawn(run(config, host, stop.clone()));
    while !ready.is_ready() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    World { address, registry, stop }
}

fn task(name: &str, replicas: u32, cpu: i64) -> Task {
    let request = [("cpu", Quantity::from_units(cpu)), ("pods", Quantity::from_units(1))].into_iter().collect();
    let (node, priority_class) = (NodeClaim::default(), String::new());
    Task { name: name.into(), replicas, min_available: replicas, request, node, priority_class, partition: None }
}

#[tokio::test]
async fn a_members_nodes_answer() {
    let world = world(None).await;
    let estimator = EstimatorClient::new(&world.address, &Trust::default()).unwrap();
    let replicas = |task: Task| {
        let estimator = estimator.clone();
        async move { estimator.request_max_available_replicas("member1", "ns", &task, Vec::new()).await.unwrap() }
    };
    assert_eq!(replicas(task("a", 1, 5)).await, 2);
    assert_eq!(replicas(task("a", 1, 9)).await, 0);
    let mut elsewhere = task("a", 1, 1);
    elsewhere.node.selector.insert("node.caldera.dev/pool".into(), "gpu".into());
    elsewhere.node.tolerations.push(Toleration { exists: true, ..Toleration::default() });
    assert_eq!(replicas(elsewhere.clone()).await, 0);
    elsewhere.node.selector.insert("node.caldera.dev/pool".into(), "cpu".into());
    assert_eq!(replicas(elsewhere).await, 16);

    let set = build_all_or_nothing_gang(vec![task("master", 1, 2), task("worker", 2, 3)]);
    let sets = estimator.request_max_available_sets("member1", "ns", (&set, &[1, 2]), Vec::new()).await.unwrap();
    assert_eq!(sets, 2);
    let assumed = AssumedWorkload {
        namespace: "ns".into(),
        components: write_components(&build_all_or_nothing_gang(vec![task("a", 1, 6)]), &[1]),
    };
    assert_eq!(
        estimator.request_max_available_replicas("member1", "ns", &task("a", 1, 5), vec![assumed]).await.unwrap(),
        1
    );

    let wrong =
        estimator.request_max_available_replicas("other", "ns", &task("a", 1, 1), Vec::new()).await.unwrap_err();
    assert!(matches!(&wrong, EstimatorError::Refused(_, status) if status.code() == Code::InvalidArgument), "{wrong}");
    let none: Result<MaxAvailableReplicasResponse, _> =
        estimator.call_method("NoSuchMethod", ObjectReferenceMessage::default()).await;
    assert!(
        matches!(&none, Err(EstimatorError::Refused(_, status)) if status.code() == Code::Unimplemented),
        "{none:?}"
    );
    let request = UnschedulableReplicasRequest {
        cluster: "member1".into(),
        resource: Some(ObjectReferenceMessage {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            namespace: "ns".into(),
            name: "web".into(),
        }),
        unschedulable_threshold: 0,
    };
    let stuck: UnschedulableReplicasResponse =
        estimator.call_method("GetUnschedulableReplicas", request).await.unwrap();
    assert_eq!(stuck.unschedulable_replicas, 0);

    let text = encode(&world.registry).unwrap();
    for line in [
        "caldera_estimator_answer_duration_seconds_count{method=\"MaxAvailableReplicas\"} 6",
        "caldera_estimator_answer_duration_seconds_count{method=\"MaxAvailableComponentSets\"} 1",
        "caldera_estimator_answer_duration_seconds_count{method=\"GetUnschedulableReplicas\"} 1",
        "caldera_estimator_refused_questions_total{method=\"MaxAvailableReplicas\",status=\"InvalidArgument\"} 1",
    ] {
        assert!(text.lines().any(|it| it == line), "no {line}: {text}");
    }
    assert!(!text.contains("NoSuchMethod"), "{text}");
}

/// The request byte by byte as Karmada 1.19 marshals it, over HTTP/2 without any client of ours.
#[tokio::test]
async fn what_karmada_sends_byte_by_byte_is_answered() {
    let world = world(None).await;
    // A quantity, the entry of the map that it is in, the requirements that the map is field 5 of, the request.
    let quantity = [&[0x0a, 5][..], b"3500m"].concat();
    let entry = [&[0x0a, 3][..], b"cpu", &[0x12, 7], &quantity].concat();
    let requirements = [&[0x2a, 14][..], &entry].concat();
    let message = [&[0x0a, 7][..], b"member1", &[0x12, 16], &requirements].concat();
    let request = [&[0, 0, 0, 0, 27][..], &message].concat();
    assert_eq!((entry.len(), requirements.len(), message.len()), (14, 16, 27));
    let http = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
        .http2_only(true)
        .build_http::<Full<Bytes>>();
    let request = http::Request::post(format!("http://{}/{SERVICE}/MaxAvailableReplicas", world.address))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", "grpc-go/1.78.0")
        .body(Full::new(Bytes::from(request)))
        .unwrap();
    let response = http.request(request).await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/grpc");
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
    // Two of 3.5 cores on each node of 8.
    assert_eq!(&body.to_bytes()[..], [0, 0, 0, 0, 2, 8, 4]);
}

/// A message that is shorter or longer than it says, compressed, or not the message that is expected.
#[tokio::test]
async fn a_message_comes_back_and_a_cut_one_does_not() {
    let world = world(None).await;
    let http = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
        .http2_only(true)
        .build_http::<Full<Bytes>>();
    let send = async |message: &[u8]| {
        let request = http::Request::post(format!("http://{}/{SERVICE}/MaxAvailableReplicas", world.address))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::new(Bytes::copy_from_slice(message)))
            .unwrap();
        let response = http.request(request).await.unwrap();
        let in_front = response.headers().get("grpc-status").cloned();
        let body = response.into_body().collect().await.unwrap();
        let behind = body.trailers().and_then(|trailers| trailers.get("grpc-status").cloned());
        (in_front.or(behind).unwrap().to_str().unwrap().to_owned(), body.to_bytes())
    };
    let whole = [&[0, 0, 0, 0, 9, 0x0a, 7][..], b"member1"].concat();
    let (status, answer) = send(&whole).await;
    // A pod that asks for nothing fits 110 times on each of two nodes.
    assert_eq!((status.as_str(), &answer[..]), ("0", &[0, 0, 0, 0, 3, 8, 220, 1][..]));
    let compressed = [&[1][..], &whole[1..]].concat();
    for bad in [&whole[..3], &whole[..6], &compressed, &[0, 0, 0, 0, 2, 255, 255]] {
        let (status, answer) = send(bad).await;
        assert!(status != "0" && answer.is_empty(), "{bad:?}");
    }
}

#[tokio::test]
async fn messages_for_people_travel_in_headers() {
    let world = world(None).await;
    let estimator = EstimatorClient::new(&world.address, &Trust::default()).unwrap();
    for name in ["plain", "100 % of \u{e4}pfel\n"] {
        let refused =
            estimator.request_max_available_replicas(name, "ns", &task("a", 1, 1), Vec::new()).await.unwrap_err();
        let EstimatorError::Refused(_, status) = &refused else { panic!("{refused}") };
        assert!(status.message().contains(&format!("{name:?}")), "{refused}");
        assert!(refused.to_string().contains("(gRPC status 3)"), "{refused}");
    }
}

#[tokio::test]
async fn only_who_shows_a_certificate_is_answered() {
    let authority = Authority::new("test").unwrap();
    let identity =
        |name: &str| authority.issue_server_identity(name, &["localhost"], &["127.0.0.1".parse().unwrap()]).unwrap();
    let client_authority = Authority::new("clients").unwrap();
    let client = client_authority.issue_client_identity("karmada-scheduler").unwrap();
    let served = estimator_server_config(&identity("estimator"), Some(&client_authority.cert_pem)).unwrap();
    let world = world(Some(served.into())).await;
    let ask = |ca: Option<&str>, identity: Option<Identity>, insecure| {
        let trust = Trust { ca_pem: ca.map(ToOwned::to_owned), identity, insecure };
        let estimator = EstimatorClient::new(&world.address, &trust).unwrap();
        async move { estimator.request_max_available_replicas("member1", "ns", &task("a", 1, 5), Vec::new()).await }
    };
    let ca = authority.cert_pem.as_str();
    assert_eq!(ask(Some(ca), Some(client.clone()), false).await.unwrap(), 2);
    assert_eq!(ask(None, Some(client.clone()), true).await.unwrap(), 2);
    assert!(ask(Some(ca), None, false).await.is_err());
    assert!(ask(Some(&client_authority.cert_pem), Some(client), false).await.is_err());
    assert!(ask(None, None, false).await.is_err());
}

#[tokio::test]
async fn a_certificate_that_is_renewed_is_shown_to_who_asks_next() {
    let dir = tempfile::tempdir().unwrap();
    let files = ["tls.crt", "tls.key"].map(|name| dir.path().join(name));
    let signed = || {
        let authority = Authority::new("test").unwrap();
        let identity =
            authority.issue_server_identity("estimator", &["localhost"], &["127.0.0.1".parse().unwrap()]).unwrap();
        (authority.cert_pem, identity)
    };
    let write = |identity: &Identity| {
        std::fs::write(&files[0], &identity.cert_pem).unwrap();
        std::fs::write(&files[1], &identity.key_pem).unwrap();
    };
    let ((old_ca, old), (new_ca, new)) = (signed(), signed());
    write(&old);
    let served = ServedTls::from_files(files.to_vec(), Duration::from_millis(20), |pems| {
        estimator_server_config(&Identity { cert_pem: pems[0].clone(), key_pem: pems[1].clone() }, None)
    });
    let world = world(Some(served.unwrap())).await;
    let ask = |ca: &str| {
        let trust = Trust { ca_pem: Some(ca.to_owned()), identity: None, insecure: false };
        let estimator = EstimatorClient::new(&world.address, &trust).unwrap();
        async move { estimator.request_max_available_replicas("member1", "ns", &task("a", 1, 5), Vec::new()).await }
    };
    assert!(ask(&old_ca).await.is_ok() && ask(&new_ca).await.is_err());
    write(&new);
    while ask(&new_ca).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(ask(&old_ca).await.is_err());
}

/// Components that are all alike, or all different.
fn components(count: u32, cpu: impl Fn(u32) -> i64) -> Vec<ComponentMessage> {
    (0..count)
        .flat_map(|at| write_components(&build_all_or_nothing_gang(vec![task(&at.to_string(), 1, cpu(at))]), &[1]))
        .collect()
}

/// One such message stopped the server for minutes.
#[tokio::test]
async fn a_message_of_many_components_is_answered_or_refused_at_once_and_the_others_with_it() {
    let world = world(None).await;
    let estimator = EstimatorClient::new(&world.address, &Trust::default()).unwrap();
    let ask = |components: Vec<ComponentMessage>, assumed: Vec<AssumedWorkload>| {
        let request = MaxAvailableComponentSetsRequest {
            cluster: "member1".into(),
            components,
            namespace: "ns".into(),
            assumed_workloads: assumed,
        };
        let estimator = estimator.clone();
        async move {
            let asked = estimator.call_method("MaxAvailableComponentSets", request);
            let answer: Result<MaxAvailableComponentSetsResponse, _> =
                tokio::time::timeout(Duration::from_secs(60), asked).await.expect("no answer at all");
            answer.map(|answer| answer.max_sets).map_err(|error| match error {
                EstimatorError::Refused(_, status) => status.code(),
                other => panic!("{other}"),
            })
        }
    };
    assert_eq!(ask(components(8, |_| 1), Vec::new()).await, Ok(2));
    assert_eq!(ask(components(5_000, |_| 1), Vec::new()).await, Ok(0));
    assert_eq!(ask(components(50_000, |_| 1), Vec::new()).await, Err(Code::ResourceExhausted));
    assert_eq!(ask(components(11_000, |_| 1), Vec::new()).await, Err(Code::InvalidArgument));
    assert_eq!(ask(components(257, |at| i64::from(at) + 1), Vec::new()).await, Err(Code::InvalidArgument));
    let assumed = |count: u32, cpu: fn(u32) -> i64| {
        components(count, cpu).into_iter().map(|one| AssumedWorkload { namespace: "ns".into(), components: vec![one] })
    };
    let given = assumed(257, |_| 1).collect();
    assert_eq!(ask(components(1, |_| 1), given).await, Err(Code::InvalidArgument));
    let began = std::time::Instant::now();
    assert_eq!(
        ask(components(256, |at| i64::from(at) + 1), assumed(256, |at| i64::from(at) + 1).collect()).await,
        Ok(0)
    );
    println!("256 different components beside 256 others: {:?}", began.elapsed());
}

#[tokio::test]
async fn a_namespace_that_leads_to_other_resources_is_refused() {
    let world = world(None).await;
    let estimator = EstimatorClient::new(&world.address, &Trust::default()).unwrap();
    for namespace in ["default/secrets?x=", "..", ""] {
        let resource = ObjectReferenceMessage {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            namespace: namespace.into(),
            name: "web".into(),
        };
        let request = UnschedulableReplicasRequest {
            cluster: "member1".into(),
            resource: Some(resource),
            unschedulable_threshold: 0,
        };
        let refused: Result<UnschedulableReplicasResponse, _> =
            estimator.call_method("GetUnschedulableReplicas", request).await;
        let Err(EstimatorError::Refused(_, status)) = refused else { panic!("{namespace:?}: {refused:?}") };
        assert_eq!(status.code(), Code::InvalidArgument, "{namespace:?}");
    }
}
