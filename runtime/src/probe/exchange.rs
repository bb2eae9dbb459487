//! One connection to a peer: some round trips, and, where it is due, a load of bytes.
//!
//! The first load is small; the next is what a second carries at that rate, within what may be sent. So a slow way is
//! not blocked for long, and a fast one is measured beyond the first windows of TCP. The server says at what rate the
//! last three quarters arrived.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt, Empty, Limited, StreamBody, combinators::BoxBody};
use hyper::{
    Request, StatusCode,
    body::{Frame, Incoming},
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use prometheus_client::metrics::counter::Counter;
use rustls::pki_types::ServerName;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::Instant,
};

use tokio_util::task::AbortOnDropHandle;

use super::{LEAST_LOAD, SERVER_NAME};

/// Round trips of a round.
const ROUND_TRIPS: u32 = 5;
/// For the round trips of a round, with the connection.
const LATENCY_TIMEOUT: Duration = Duration::from_secs(5);
/// For a load: of a way so slow that it takes longer nothing is known.
const LOAD_TIMEOUT: Duration = Duration::from_secs(25);
/// Bytes of one frame of a load.
const CHUNK: usize = 64 << 10;
/// No way carries more; what a peer answers is its word.
const MOST_MEGABITS: u64 = 10_000_000;
/// Bytes of an answer that are read.
const MOST_ANSWER: usize = 4_096;
/// Bytes that a megabit a second carries in a second.
const BYTES_OF_MEGABIT: u64 = 125_000;

/// What a server says of a load.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct LoadAnswer {
    /// At which rate it arrived.
    pub(super) megabits: u64,
}

type RequestBody = BoxBody<Bytes, Infallible>;

type Tls = Option<Arc<rustls::ClientConfig>>;

/// Microseconds to a peer one way: half of the shortest of some round trips.
pub(super) async fn measure_latency(address: &str, tls: Tls) -> Result<u64, String> {
    with_peer(address, tls, LATENCY_TIMEOUT, async |sender| ask_round_trips(sender).await).await
}

/// Megabits a second to a peer, of `most` bytes at most; `None` where it takes no more today.
pub(super) async fn measure_bandwidth(
    address: &str,
    tls: Tls,
    most: u64,
    sent: &Counter,
) -> Result<Option<u64>, String> {
    with_peer(address, tls, LOAD_TIMEOUT, async |sender| send_loads(sender, most, sent).await).await
}

/// Whatever happens to the question, its connection ends with it.
async fn with_peer<T>(
    address: &str,
    tls: Tls,
    within: Duration,
    ask: impl AsyncFnOnce(&mut SendRequest<RequestBody>) -> Result<T, String>,
) -> Result<T, String> {
    let asked = async {
        let tcp = TcpStream::connect(address).await.map_err(|error| format!("failed to connect: {error}"))?;
        let _ = tcp.set_nodelay(true);
        let (mut sender, _connection) = match tls {
            None => open_connection(tcp).await?,
            Some(tls) => {
                let name = ServerName::try_from(SERVER_NAME).map_err(|error| error.to_string())?;
                let stream = tokio_rustls::TlsConnector::from(tls).connect(name, tcp).await;
                open_connection(stream.map_err(|error| format!("TLS failed: {error}"))?).await?
            }
        };
        ask(&mut sender).await
    };
    tokio::time::timeout(within, asked).await.unwrap_or_else(|_| Err("it took too long".to_owned()))
}

async fn open_connection<S>(stream: S) -> Result<(SendRequest<RequestBody>, AbortOnDropHandle<()>), String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let opened = http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = opened.map_err(|error| format!("HTTP failed: {error}"))?;
    let connection = tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok((sender, AbortOnDropHandle::new(connection)))
}

async fn ask_round_trips(sender: &mut SendRequest<RequestBody>) -> Result<u64, String> {
    let mut shortest = u64::MAX;
    for _ in 0..ROUND_TRIPS {
        let began = Instant::now();
        send_request(sender, "GET", Empty::new().boxed()).await?;
        shortest = shortest.min(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    Ok(shortest / 2)
}

async fn send_loads(sender: &mut SendRequest<RequestBody>, most: u64, sent: &Counter) -> Result<Option<u64>, String> {
    let Some(first) = send_load(sender, LEAST_LOAD.min(most), sent).await? else { return Ok(None) };
    let second = first.saturating_mul(BYTES_OF_MEGABIT).min(most.saturating_sub(LEAST_LOAD));
    if second < 2 * LEAST_LOAD {
        return Ok(Some(first));
    }
    Ok(Some(send_load(sender, second, sent).await?.unwrap_or(first)))
}

async fn send_load(sender: &mut SendRequest<RequestBody>, bytes: u64, sent: &Counter) -> Result<Option<u64>, String> {
    let (chunk, sent) = (Bytes::from(vec![0_u8; CHUNK]), sent.clone());
    let frames = (0..bytes.div_ceil(CHUNK as u64)).map(move |_| {
        sent.inc_by(CHUNK as u64);
        Ok(Frame::data(chunk.clone()))
    });
    let Some(answer) = send_request(sender, "POST", StreamBody::new(stream::iter(frames)).boxed()).await? else {
        return Ok(None);
    };
    let answer: LoadAnswer =
        serde_json::from_slice(&answer).map_err(|error| format!("it answered no rate: {error}"))?;
    Ok(Some(answer.megabits.min(MOST_MEGABITS)))
}

/// The answer's body; `None` where the peer takes no more today.
async fn send_request(
    sender: &mut SendRequest<RequestBody>,
    method: &str,
    body: RequestBody,
) -> Result<Option<Bytes>, String> {
    let request = Request::builder().method(method).uri("/probe").header("host", SERVER_NAME).body(body);
    let request = request.map_err(|error| error.to_string())?;
    let answer = sender.send_request(request).await.map_err(|error| format!("it did not answer: {error}"))?;
    match answer.status() {
        StatusCode::TOO_MANY_REQUESTS => return Ok(None),
        status if !status.is_success() => return Err(format!("it answered {status}")),
        _ => {}
    }
    let body: Incoming = answer.into_body();
    let body = Limited::new(body, MOST_ANSWER).collect().await.map_err(|error| format!("it broke off: {error}"))?;
    Ok(Some(body.to_bytes()))
}
