//! Load on an HTTPS server over kept connections: as fast as it answers, or at a rate whatever it answers.

use std::{
    net::SocketAddr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{net::TcpStream, sync::mpsc};

use super::reviews::Review;
use crate::figures::Sample;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}

/// Whom to ask.
#[derive(Debug, Clone)]
pub struct Target {
    pub address: SocketAddr,
    pub ca_pem: String,
}

/// One kept connection.
enum Connection {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    async fn open_connection(target: &Target, protocol: Protocol) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(target.ca_pem.as_bytes()).context("the CA is no PEM")?)?;
        let mut tls = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let offered: &[u8] = if protocol == Protocol::Http2 { b"h2" } else { b"http/1.1" };
        tls.alpn_protocols = vec![offered.to_vec()];
        let tcp = TcpStream::connect(target.address).await?;
        tcp.set_nodelay(true)?;
        let name = ServerName::IpAddress(target.address.ip().into());
        let stream = tokio_rustls::TlsConnector::from(Arc::new(tls)).connect(name, tcp).await?;
        anyhow::ensure!(stream.get_ref().1.alpn_protocol() == Some(offered), "the server speaks another protocol");
        let io = TokioIo::new(stream);
        Ok(match protocol {
            Protocol::Http1 => {
                let (sender, connection) = http1::handshake(io).await?;
                tokio::spawn(connection);
                Self::Http1(sender)
            }
            Protocol::Http2 => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
                tokio::spawn(connection);
                Self::Http2(sender)
            }
        })
    }

    async fn ask_webhook(&mut self, review: &Review) -> anyhow::Result<Bytes> {
        let request = http::Request::post(match self {
            Self::Http1(_) => review.path.to_owned(),
            Self::Http2(_) => format!("https://localhost{}", review.path),
        });
        let request = request.header("host", "localhost").header("content-type", "application/json");
        let request = request.body(Full::new(review.body.clone()))?;
        let response = match self {
            Self::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Self::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
        };
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        anyhow::ensure!(status == 200, "{status}: {}", String::from_utf8_lossy(&body));
        Ok(body)
    }
}

async fn open_connections(target: &Target, protocol: Protocol, count: usize) -> anyhow::Result<Vec<Connection>> {
    let mut connections = Vec::with_capacity(count);
    for _ in 0..count {
        connections.push(Connection::open_connection(target, protocol).await?);
    }
    Ok(connections)
}

/// Every question is answered with a patch; asked once each before anything is measured.
pub async fn check_answers(target: &Target, reviews: &[Review]) -> anyhow::Result<()> {
    let mut connection = Connection::open_connection(target, Protocol::Http1).await?;
    for review in reviews {
        let answer = connection.ask_webhook(review).await?;
        let answer: serde_json::Value = serde_json::from_slice(&answer)?;
        let response = &answer["response"];
        anyhow::ensure!(response["allowed"] == true && response["patch"].is_string(), "{}: {answer}", review.path);
    }
    Ok(())
}

/// Each connection asks again as soon as it is answered. Returns answers a second, and how long each took.
pub async fn load_closed_loop(
    target: &Target,
    protocol: Protocol,
    connections: usize,
    reviews: &[Review],
    lasts: Duration,
) -> anyhow::Result<(f64, Sample)> {
    let open = open_connections(target, protocol, connections).await?;
    let began = Instant::now();
    let asking = open.into_iter().enumerate().map(|(i, mut connection)| {
        // Cheap copies: the bodies are shared.
        let mut reviews = reviews.to_vec();
        let length = reviews.len().max(1);
        reviews.rotate_left(i % length);
        tokio::spawn(async move {
            let mut taken = Vec::new();
            for review in reviews.iter().cycle() {
                let sent = Instant::now();
                if sent.duration_since(began) >= lasts {
                    break;
                }
                connection.ask_webhook(review).await?;
                taken.push(sent.elapsed());
            }
            anyhow::Ok(taken)
        })
    });
    let mut all = Vec::new();
    for asked in asking.collect::<Vec<_>>() {
        all.extend(asked.await??);
    }
    let elapsed = began.elapsed();
    Ok((all.len() as f64 / elapsed.as_secs_f64(), Sample::new(all)))
}

/// What a fixed rate showed.
pub struct AtRate {
    /// From when a question was given out to its answer, waiting for a free connection included.
    pub taken: Sample,
    /// How late questions were given out: the machine's fault, not the webhook's.
    pub late: Sample,
}

/// Questions at a fixed rate, round robin over the connections, whatever becomes of the ones before.
pub async fn load_open_loop(
    target: &Target,
    protocol: Protocol,
    connections: usize,
    reviews: &[Review],
    rate: u32,
    lasts: Duration,
) -> anyhow::Result<AtRate> {
    let mut lanes = Vec::new();
    let mut asking = Vec::new();
    for mut connection in open_connections(target, protocol, connections).await? {
        let (lane, mut due) = mpsc::unbounded_channel::<(Instant, Review)>();
        lanes.push(lane);
        asking.push(tokio::spawn(async move {
            let mut taken = Vec::new();
            while let Some((since, review)) = due.recv().await {
                connection.ask_webhook(&review).await?;
                taken.push(since.elapsed());
            }
            anyhow::Ok(taken)
        }));
    }
    let reviews = reviews.to_vec();
    // The runtime's timers count whole milliseconds; a thread's sleep does not.
    let clock = thread::spawn(move || {
        let (began, step) = (Instant::now(), Duration::from_secs(1) / rate);
        let mut late = Vec::new();
        let times = (0..).map(|i| began + step * i).take_while(|due| due.duration_since(began) < lasts);
        for ((due, lane), review) in times.zip(lanes.iter().cycle()).zip(reviews.iter().cycle()) {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let now = Instant::now();
            late.push(now.duration_since(due));
            if lane.send((now, review.clone())).is_err() {
                break;
            }
        }
        late
    });
    let mut all = Vec::new();
    for asked in asking {
        all.extend(asked.await??);
    }
    let late = clock.join().map_err(|_| anyhow::anyhow!("the clock stopped"))?;
    Ok(AtRate { taken: Sample::new(all), late: Sample::new(late) })
}
