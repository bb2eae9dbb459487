//! A plain HTTPS client: sends recorded requests, reads answers and watch streams.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use crate::target::Target;

pub type Pool = Client<hyper_rustls::HttpsConnector<HttpConnector>, Full<Bytes>>;

/// One request as it goes out.
#[derive(Clone, Debug)]
pub struct Outgoing {
    pub method: String,
    pub path: String,
    pub query: Vec<(String, String)>,
    pub headers: Vec<(String, String)>,
    pub token: Option<String>,
    pub body: Option<Bytes>,
}

pub struct Answer {
    pub status: u16,
    pub headers: http::HeaderMap,
    pub body: hyper::body::Incoming,
}

pub struct Text {
    pub status: u16,
    pub headers: http::HeaderMap,
    pub text: String,
}

impl Text {
    pub fn json(&self) -> Option<Value> {
        serde_json::from_str(&self.text).ok()
    }
}

#[derive(Clone)]
pub struct Http {
    pool: Pool,
    base: String,
}

impl Http {
    pub fn new(target: &Target) -> Self {
        Http { pool: pool(), base: target.url.trim_end_matches('/').to_owned() }
    }

    pub async fn open(&self, out: &Outgoing) -> Result<Answer, String> {
        let mut url = format!("{}{}", self.base, encode_path(&out.path));
        for (i, (key, value)) in out.query.iter().enumerate() {
            url.push(if i == 0 { '?' } else { '&' });
            url.push_str(&format!("{}={}", encode(key), encode(value)));
        }
        let mut builder = http::Request::builder().method(out.method.as_str()).uri(&url);
        for (key, value) in &out.headers {
            builder = builder.header(key, value);
        }
        if let Some(token) = &out.token {
            builder = builder.header("Authorization", format!("Bearer {token}"));
        }
        let request = builder
            .body(Full::new(out.body.clone().unwrap_or_default()))
            .map_err(|e| format!("build request {url}: {e}"))?;
        let response = tokio::time::timeout(Duration::from_secs(120), self.pool.request(request))
            .await
            .map_err(|_| "no answer within 120 s".to_owned())?
            .map_err(|e| format!("{e} {:?}", std::error::Error::source(&e).map(ToString::to_string)))?;
        let (parts, body) = response.into_parts();
        Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body })
    }

    pub async fn send(&self, out: &Outgoing) -> Result<Text, String> {
        let answer = self.open(out).await?;
        let bytes = tokio::time::timeout(Duration::from_secs(120), answer.body.collect())
            .await
            .map_err(|_| "the body did not end within 120 s".to_owned())?
            .map_err(|e| format!("read body: {e}"))?
            .to_bytes();
        Ok(Text { status: answer.status, headers: answer.headers, text: String::from_utf8_lossy(&bytes).into_owned() })
    }
}

/// Accepts any server certificate: the runner talks to a server that it started or was pointed at.
pub fn pool() -> Pool {
    let config = rustls::ClientConfig::builder()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate))
        .with_no_client_auth();
    let connector =
        hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1().build();
    Client::builder(TokioExecutor::new()).pool_max_idle_per_host(32).build(connector)
}

fn encode_path(path: &str) -> String {
    path.bytes()
        .map(|b| match b {
            b' ' | b'"' | b'<' | b'>' | b'{' | b'}' | b'|' | b'\\' | b'^' | b'`' | 0x80.. => format!("%{b:02X}"),
            _ => char::from(b).to_string(),
        })
        .collect()
}

pub fn encode(text: &str) -> String {
    text.bytes()
        .map(|b| match b {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(b).to_string(),
            _ => format!("%{b:02X}"),
        })
        .collect()
}

pub fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let hex =
            (bytes[i] == b'%').then(|| text.get(i + 1..i + 3)).flatten().and_then(|h| u8::from_str_radix(h, 16).ok());
        match (hex, bytes[i]) {
            (Some(byte), _) => {
                out.push(byte);
                i += 2;
            }
            (None, b'+') => out.push(b' '),
            (None, byte) => out.push(byte),
        }
        i += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

pub fn decode_query(query: &str) -> Vec<(String, String)> {
    query
        .split('&')
        .filter(|p| !p.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(k, v)| (decode(k), decode(v)))
        .collect()
}

#[derive(Debug)]
struct AnyCertificate;

impl rustls::client::danger::ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &rustls::pki_types::CertificateDer<'_>,
        _intermediates: &[rustls::pki_types::CertificateDer<'_>],
        _server_name: &rustls::pki_types::ServerName<'_>,
        _ocsp_response: &[u8],
        _now: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &rustls::pki_types::CertificateDer<'_>,
        _dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &rustls::pki_types::CertificateDer<'_>,
        _dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
