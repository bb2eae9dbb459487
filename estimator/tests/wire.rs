//! Both ends over real sockets, against a sandbox's member of two nodes with 8 cores each.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{net::TcpListener, sync::Arc, time::Duration};

use bytes::Bytes;
use caldera_core::{
    gang::{NodeClaim, Task, Toleration},
    quantity::Quantity,
};
use caldera_estimator::{
    SERVICE,
    ask::{AskError, Estimator},
    grpc::Status,
    proto::{
        MaxAvailableReplicasResponse, ObjectReference, UnschedulableReplicasRequest, UnschedulableReplicasResponse,
    },
    read::{gang, write_set},
    serve::{Config, run},
    tls::{self, Trust},
};
use caldera_runtime::{
    client::WriteCounts,
    clock::SystemClock,
    serve::Ready,
    tls::{Authority, Identity, ServedTls, install_provider},
};
use caldera_sandbox::fleet::{Config as FleetConfig, Fleet};
use http_body_util::{BodyExt, Full};
use tokio_util::sync::CancellationToken;

struct World {
    address: String,
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
    let ready = Ready::default();
    let config = Config {
        listener,
        tls,
        cluster: "member1".into(),
        member: None,
        clock: Arc::new(SystemClock),
        ready: ready.clone(),
        counts: WriteCounts::default(),
    };
    tokio::spawn(run(config, host, stop.clone()));
    while !ready.is_ready() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    World { address, stop }
}

fn task(name: &str, replicas: u32, cpu: i64) -> Task {
    let request = [("cpu", Quantity::from_units(cpu)), ("pods", Quantity::from_units(1))].into_iter().collect();
    let (node, priority_class) = (NodeClaim::default(), String::new());
    Task { name: name.into(), replicas, min_available: replicas, request, node, priority_class, partition: None }
}

#[tokio::test]
async fn a_members_nodes_answer() {
    let world = world(None).await;
    let estimator = Estimator::new(&world.address, &Trust::default()).unwrap();
    let replicas = |task: Task| {
        let estimator = estimator.clone();
        async move { estimator.replicas("member1", "ns", &task, Vec::new()).await.unwrap() }
    };
    assert_eq!(replicas(task("a", 1, 5)).await, 2);
    assert_eq!(replicas(task("a", 1, 9)).await, 0);
    let mut elsewhere = task("a", 1, 1);
    elsewhere.node.selector.insert("node.caldera.dev/pool".into(), "gpu".into());
    elsewhere.node.tolerations.push(Toleration { exists: true, ..Toleration::default() });
    assert_eq!(replicas(elsewhere.clone()).await, 0);
    elsewhere.node.selector.insert("node.caldera.dev/pool".into(), "cpu".into());
    assert_eq!(replicas(elsewhere).await, 16);

    let set = gang(vec![task("master", 1, 2), task("worker", 2, 3)]);
    let sets = estimator.sets("member1", "ns", (&set, &[1, 2]), Vec::new()).await.unwrap();
    assert_eq!(sets, 2);
    let assumed = caldera_estimator::proto::AssumedWorkload {
        namespace: "ns".into(),
        components: write_set(&gang(vec![task("a", 1, 6)]), &[1]),
    };
    assert_eq!(estimator.replicas("member1", "ns", &task("a", 1, 5), vec![assumed]).await.unwrap(), 1);

    let wrong = estimator.replicas("other", "ns", &task("a", 1, 1), Vec::new()).await.unwrap_err();
    assert!(matches!(&wrong, AskError::Refused(_, Status { code: 3, .. })), "{wrong}");
    let none: Result<MaxAvailableReplicasResponse, _> =
        estimator.call("NoSuchMethod", &ObjectReference::default()).await;
    assert!(matches!(&none, Err(AskError::Refused(_, Status { code: 12, .. }))), "{none:?}");
    let request = UnschedulableReplicasRequest {
        cluster: "member1".into(),
        resource: Some(ObjectReference {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            namespace: "ns".into(),
            name: "web".into(),
        }),
        unschedulable_threshold: 0,
    };
    let stuck: UnschedulableReplicasResponse = estimator.call("GetUnschedulableReplicas", &request).await.unwrap();
    assert_eq!(stuck.unschedulable_replicas, 0);
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

#[tokio::test]
async fn only_who_shows_a_certificate_is_answered() {
    let authority = Authority::new("test").unwrap();
    let identity =
        |name: &str| authority.issue_server_identity(name, &["localhost"], &["127.0.0.1".parse().unwrap()]).unwrap();
    let client_authority = Authority::new("clients").unwrap();
    let client = client_authority.issue_client_identity("karmada-scheduler").unwrap();
    let served = tls::server(&identity("estimator"), Some(&client_authority.cert_pem)).unwrap();
    let world = world(Some(served.into())).await;
    let ask = |ca: Option<&str>, identity: Option<Identity>, insecure| {
        let trust = Trust { ca_pem: ca.map(ToOwned::to_owned), identity, insecure };
        let estimator = Estimator::new(&world.address, &trust).unwrap();
        async move { estimator.replicas("member1", "ns", &task("a", 1, 5), Vec::new()).await }
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
        tls::server(&Identity { cert_pem: pems[0].clone(), key_pem: pems[1].clone() }, None)
    });
    let world = world(Some(served.unwrap())).await;
    let ask = |ca: &str| {
        let trust = Trust { ca_pem: Some(ca.to_owned()), identity: None, insecure: false };
        let estimator = Estimator::new(&world.address, &trust).unwrap();
        async move { estimator.replicas("member1", "ns", &task("a", 1, 5), Vec::new()).await }
    };
    assert!(ask(&old_ca).await.is_ok() && ask(&new_ca).await.is_err());
    write(&new);
    while ask(&new_ca).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(ask(&old_ca).await.is_err());
}
