//! Reviews a second over TLS with keep-alive, and how long one takes at a fixed rate.
//!
//! `cargo run --release -p caldera-webhook --example bench -- [seconds]`. Server and clients share the machine; the
//! clients write prepared bytes and read no more than they must.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    error::Error,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::Arc,
    time::{Duration, Instant},
};

use axum::Router;
use caldera_runtime::tls::{Authority, install_provider};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        pki_types::{CertificateDer, ServerName, pem::PemObject},
    },
};
use tokio_util::sync::CancellationToken;

type Failure = Box<dyn Error + Send + Sync>;

const CONNECTIONS: usize = 64;

/// A review of a ResourceBinding of about `bytes` bytes, most of it what Karmada writes there.
fn review(bytes: usize) -> Vec<u8> {
    let mut binding = json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": "train-job", "namespace": "default", "uid": "0d9c5f2e-6f0c-4f5e-9d5b-0a4a8f6d1c22",
            "labels": {"resourcebinding.karmada.io/permanent-id": "7f3c"},
            "annotations": {"propagationpolicy.karmada.io/name": "train"}, "managedFields": []},
        "spec": {
            "resource": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train", "namespace": "default"},
            "replicas": 10, "replicaRequirements": {"resourceRequest": {"cpu": "2", "memory": "1Gi"}},
            "schedulerName": "default-scheduler",
            "placement": {"clusterAffinity": {"clusterNames": ["m1", "m2", "m3"]}},
        },
    });
    let mut fields = 0;
    let request = |binding: &serde_json::Value| {
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": "CREATE", "namespace": "default",
            "name": "train-job", "userInfo": {"username": "system:karmada"}, "object": binding, "oldObject": null,
            "dryRun": false,
        }})
        .to_string()
    };
    while request(&binding).len() < bytes {
        fields += 1;
        binding["metadata"]["managedFields"] = (0..fields)
            .map(|i| {
                json!({"apiVersion": "work.karmada.io/v1alpha2", "fieldsType": "FieldsV1", "manager": format!("m{i}"),
                    "operation": "Update", "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:karmada.io/managed": {}}}}})
            })
            .collect();
    }
    let body = request(&binding);
    let head = format!(
        "POST /mutate-resourcebinding?timeout=5s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body.into_bytes()].concat()
}

struct Connection {
    stream: TlsStream<TcpStream>,
    buffer: Vec<u8>,
}

impl Connection {
    async fn open(address: SocketAddr, tls: &TlsConnector) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let stream = tls.connect(ServerName::try_from("localhost")?, stream).await?;
        Ok(Self { stream, buffer: vec![0; 16 << 10] })
    }

    /// Sends one review and reads its whole answer.
    async fn ask(&mut self, request: &[u8]) -> Result<(), Failure> {
        self.stream.write_all(request).await?;
        let mut have = 0;
        loop {
            let read = self.stream.read(self.buffer.get_mut(have..).unwrap_or_default()).await?;
            if read == 0 {
                return Err("the webhook hung up".into());
            }
            have += read;
            let text = std::str::from_utf8(self.buffer.get(..have).unwrap_or_default())?;
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            if !head.starts_with("HTTP/1.1 200") {
                return Err(text.to_owned().into());
            }
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
            if body.len() >= length.parse()? {
                if !body.contains("\"allowed\":true") || !body.contains("JSONPatch") {
                    return Err(format!("not gated: {body}").into());
                }
                return Ok(());
            }
        }
    }
}

fn percentile(sorted: &[Duration], per_mille: usize) -> Duration {
    sorted.get((sorted.len() * per_mille / 1000).min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

fn report(what: &str, mut times: Vec<Duration>, within: Duration) {
    times.sort_unstable();
    println!(
        "{what}: {} reviews, {:.0}/s, p50 {:?}, p99 {:?}, p99.9 {:?}, max {:?}",
        times.len(),
        times.len() as f64 / within.as_secs_f64(),
        percentile(&times, 500),
        percentile(&times, 990),
        percentile(&times, 999),
        times.last().copied().unwrap_or_default(),
    );
}

/// Every connection asks again as soon as it was answered.
async fn as_fast_as_possible(
    connections: &mut Vec<Connection>,
    request: &Arc<[u8]>,
    time: Duration,
) -> Result<(), Failure> {
    let started = Instant::now();
    let tasks: Vec<_> = connections
        .drain(..)
        .map(|mut connection| {
            let request = Arc::clone(request);
            tokio::spawn(async move {
                let mut times = Vec::new();
                while started.elapsed() < time {
                    let asked = Instant::now();
                    connection.ask(&request).await?;
                    times.push(asked.elapsed());
                }
                Ok::<_, Failure>((connection, times))
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        let (connection, times) = task.await??;
        connections.push(connection);
        all.extend(times);
    }
    report(&format!("full speed, {} connections", connections.len()), all, started.elapsed());
    Ok(())
}

/// Requests begin on a timetable, whether or not earlier ones were answered; waiting for a connection counts.
async fn at_a_rate(
    connections: &mut Vec<Connection>,
    request: &Arc<[u8]>,
    rate: u32,
    time: Duration,
) -> Result<(), Failure> {
    let started = Instant::now() + Duration::from_millis(10);
    let number = u32::try_from(connections.len())?;
    let step = Duration::from_secs(1) / rate;
    let tasks: Vec<_> = connections
        .drain(..)
        .zip(0u32..)
        .map(|(mut connection, first)| {
            let request = Arc::clone(request);
            tokio::spawn(async move {
                let mut times = Vec::new();
                for turn in 0.. {
                    let due = started + step * (first + turn * number);
                    if due > started + time {
                        break;
                    }
                    tokio::time::sleep_until(due.into()).await;
                    // The timer's own grain (a millisecond) is not the webhook's.
                    let asked = Instant::now().min(due + Duration::from_millis(1));
                    connection.ask(&request).await?;
                    times.push(asked.elapsed());
                }
                Ok::<_, Failure>((connection, times))
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        let (connection, times) = task.await??;
        connections.push(connection);
        all.extend(times);
    }
    report(&format!("{rate}/s, {} connections", connections.len()), all, time);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let seconds: u64 = std::env::args().nth(1).map_or(Ok(5), |text| text.parse())?;
    let time = Duration::from_secs(seconds);
    install_provider();
    let authority = Authority::new("bench")?;
    let identity = authority.server("localhost", &["localhost"], &[Ipv4Addr::LOCALHOST.into()])?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let stop = CancellationToken::new();
    let client = kube::Client::new(Router::new(), "default");
    let server =
        tokio::spawn(caldera_webhook::run(caldera_webhook::Config::new(listener, identity), client, stop.clone()));

    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.cert_pem.as_bytes())?)?;
    let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let tls = TlsConnector::from(Arc::new(tls));
    for bytes in [8 << 10, 64 << 10] {
        let request: Arc<[u8]> = review(bytes).into();
        println!("review of {} bytes", request.len());
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(Connection::open(address, &tls).await?);
        }
        as_fast_as_possible(&mut connections, &request, time).await?;
        at_a_rate(&mut connections, &request, 1000, time).await?;
    }
    stop.cancel();
    server.await??;
    Ok(())
}
