//! The task that sends spans to the collector, some hundred at a time.
//!
//! Rule (OTLP 1.5, OTLP/HTTP): a 2xx is success, whatever the body says; 429, 502, 503, 504 and no answer are worth
//! another try; anything else is not.

use std::time::Duration;

use http::{StatusCode, header};
use kube::{Client, client::Body};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout, timeout_at},
};

use super::{FinishedSpan, OtlpLayer, dropped::count_dropped, encode_request};
use crate::client::{ClientError, WriteCounts, from_config};

/// Spans that wait at most.
const MOST_WAITING: usize = 4096;
/// Spans in one request at most.
const MOST_IN_BATCH: usize = 512;
/// How long the first span of a batch waits for others.
const BATCH_WAIT: Duration = Duration::from_secs(2);
/// How long a collector may take.
const DEADLINE: Duration = Duration::from_secs(10);
/// Before the second try.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// Where a collector takes traces, where its address names no path.
pub(super) const PATH: &str = "/v1/traces";

/// Why nothing can be exported.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    /// The address is none.
    #[error("the collector's address {0:?} is not http://HOST:PORT or https://HOST:PORT")]
    Address(String),
    /// There is no client for it.
    #[error("no client for the collector")]
    Client(#[from] ClientError),
}

/// Starts the task, within a tokio runtime, and gives back what feeds it. `service` is the name of this process for the
/// collector.
///
/// # Errors
/// If the address is none, or no client can be made for it.
pub fn start_span_exporter(endpoint: &str, service: &str) -> Result<OtlpLayer, OtlpError> {
    let wrong = || OtlpError::Address(endpoint.to_owned());
    let url: http::Uri = endpoint.parse().map_err(|_| wrong())?;
    let (Some(scheme @ ("http" | "https")), Some(authority)) = (url.scheme_str(), url.authority()) else {
        return Err(wrong());
    };
    let path = match url.path() {
        "" | "/" => PATH.to_owned(),
        path => path.to_owned(),
    };
    let server = format!("{scheme}://{authority}").parse().map_err(|_| wrong())?;
    let client = from_config(kube::Config::new(server), "otlp", &WriteCounts::default())?;
    let (sender, spans) = mpsc::channel(MOST_WAITING);
    tokio::spawn(export_spans(client, path, service.to_owned(), spans));
    Ok(OtlpLayer::new(sender))
}

async fn export_spans(client: Client, path: String, service: String, mut spans: mpsc::Receiver<FinishedSpan>) {
    let mut reported = false;
    while let Some(first) = spans.recv().await {
        let mut batch = vec![first];
        let until = Instant::now() + BATCH_WAIT;
        while batch.len() < MOST_IN_BATCH
            && let Ok(Some(next)) = timeout_at(until, spans.recv()).await
        {
            batch.push(next);
        }
        let body = encode_request(&service, &batch).to_string().into_bytes();
        let mut result = send_batch(&client, &path, body.clone()).await;
        if let Err((_, true)) = result {
            tokio::time::sleep(TRY_AGAIN).await;
            result = send_batch(&client, &path, body).await;
        }
        match result {
            Ok(()) => reported = false,
            Err((why, _)) => {
                count_dropped(batch.len());
                // Once, until it takes some again.
                if !std::mem::replace(&mut reported, true) {
                    tracing::warn!(why, spans = batch.len(), "the collector does not take spans; they are dropped");
                }
            }
        }
    }
}

/// Why a batch was not taken, and whether it is worth another try.
async fn send_batch(client: &Client, path: &str, body: Vec<u8>) -> Result<(), (String, bool)> {
    let request = http::Request::post(path).header(header::CONTENT_TYPE, "application/json").body(Body::from(body));
    let request = request.map_err(|error| (error.to_string(), false))?;
    match timeout(DEADLINE, client.send(request)).await {
        Ok(Ok(answer)) if answer.status().is_success() => Ok(()),
        Ok(Ok(answer)) => {
            let status = answer.status();
            let again = [
                StatusCode::TOO_MANY_REQUESTS,
                StatusCode::BAD_GATEWAY,
                StatusCode::SERVICE_UNAVAILABLE,
                StatusCode::GATEWAY_TIMEOUT,
            ];
            Err((format!("it answers {status}"), again.contains(&status)))
        }
        Ok(Err(error)) => Err((error.to_string(), true)),
        Err(_) => Err((format!("no answer within {DEADLINE:?}"), true)),
    }
}
