//! Calling a webhook: in this process when a router is registered for its address, else over TLS with one pooled client
//! per authority.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;
use tower::ServiceExt;

use super::review;
use super::webhook::{Address, Webhook};
use crate::server::ApiServer;
use crate::store::Key;

type Https = Client<hyper_rustls::HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Answers larger than this are not read (client-go's limit is the same order).
const LARGEST_ANSWER: usize = 16 * 1024 * 1024;

/// Whom a client trusts: the authority, and the server name when it is not the URL's.
type Trust = (Arc<[u8]>, Option<String>);

/// One client for each authority (and server name, for services).
#[derive(Default)]
pub struct Callers {
    clients: Mutex<BTreeMap<Trust, Https>>,
}

/// Where a call goes.
struct Destination {
    /// As it stands in error texts.
    shown: String,
    /// `scheme://host:port` actually connected to.
    connect: String,
    path: String,
    server_name: Option<String>,
    in_process: Option<Router>,
}

/// Sends the review; the body of the answer, or the text that completes `failed calling webhook "x": `.
pub async fn call_webhook(
    server: &ApiServer,
    callers: &Callers,
    webhook: &Webhook,
    body: Vec<u8>,
) -> Result<Bytes, String> {
    let seconds = webhook.timeout.as_secs();
    if !webhook.client.ca.is_empty() && CertificateDer::pem_slice_iter(&webhook.client.ca).next().is_none() {
        let why = "unable to load root certificates: unable to parse bytes as PEM block";
        return Err(format!("could not get REST client: {why}"));
    }
    let destination = find_destination(server, webhook).map_err(|(url, why)| failed_call(&url, seconds, &why))?;
    let target = format!("{}{}?timeout={seconds}s", destination.connect, destination.path);
    let request = http::Request::post(&target)
        .header(http::header::CONTENT_TYPE, "application/json")
        .header(http::header::ACCEPT, "application/json, */*")
        .header(http::header::USER_AGENT, "kube-apiserver-admission");
    let sending = async {
        let (status, kind, bytes) = match destination.in_process {
            Some(router) => {
                let request = request.body(Body::from(body)).map_err(|e| e.to_string())?;
                // A router's own error type is uninhabited.
                let answer = router.oneshot(request).await.map_err(|e| e.to_string())?;
                read_answer(answer).await?
            }
            None => {
                let client = callers.client(webhook, destination.server_name.as_deref())?;
                let request = request.body(Full::from(body)).map_err(|e| e.to_string())?;
                let answer = client.request(request).await.map_err(|e| transport_text(&e, &destination.connect))?;
                read_answer(answer).await?
            }
        };
        Ok::<_, String>((status, kind, bytes))
    };
    let (status, kind, bytes) = tokio::time::timeout(webhook.timeout, sending)
        .await
        .map_err(|_| failed_call(&destination.shown, seconds, "context deadline exceeded"))?
        .map_err(|why| failed_call(&destination.shown, seconds, &why))?;
    if (200..300).contains(&status) {
        if bytes.is_empty() {
            let why = format!("0-length response with status code: {status} and content type: {kind}");
            return Err(format!("failed to call webhook: {why}"));
        }
        return Ok(bytes);
    }
    Err(format!("failed to call webhook: {}", review::http_failure(status, &kind, &bytes)))
}

fn failed_call(url: &str, seconds: u64, why: &str) -> String {
    // A URL without a path is called with that of the root.
    let slash = if url.matches('/').count() == 2 { "/" } else { "" };
    let shown = crate::error::go_quote(&format!("{url}{slash}?timeout={seconds}s"));
    format!("failed to call webhook: Post {shown}: {why}")
}

async fn read_answer<B>(answer: http::Response<B>) -> Result<(u16, String, Bytes), String>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let status = answer.status().as_u16();
    let kind = answer.headers().get(http::header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let kind = kind.to_owned();
    match Limited::new(answer.into_body(), LARGEST_ANSWER).collect().await {
        Ok(body) => Ok((status, kind, body.to_bytes())),
        Err(error) if error.is::<LengthLimitError>() => Err("the answer is too large".into()),
        Err(error) => Err(format!("unexpected EOF ({error})")),
    }
}

fn find_destination(server: &ApiServer, webhook: &Webhook) -> Result<Destination, (String, String)> {
    let routers = &server.state().options.webhooks;
    match &webhook.client.address {
        Address::Url(url) => {
            let uri: http::Uri = url.parse().map_err(|e| (url.clone(), format!("invalid URL: {e}")))?;
            let host = uri.host().unwrap_or_default();
            let port = uri.port_u16().unwrap_or(443);
            Ok(Destination {
                shown: url.clone(),
                connect: format!("https://{host}:{port}"),
                path: uri.path().to_owned(),
                server_name: None,
                in_process: routers.get(&format!("{host}:{port}")).cloned(),
            })
        }
        Address::Service { namespace, name, port, path } => {
            let path = if path.is_empty() { "/".to_owned() } else { path.clone() };
            let shown = format!("https://{name}.{namespace}.svc:{port}{path}");
            let server_name = format!("{name}.{namespace}.svc");
            if let Some(router) = routers.get(&format!("{namespace}/{name}")) {
                let connect = format!("https://{server_name}:{port}");
                return Ok(Destination { shown, connect, path, server_name: None, in_process: Some(router.clone()) });
            }
            let connect = service_address(server, namespace, name, *port).map_err(|why| (shown.clone(), why))?;
            Ok(Destination { shown, connect, path, server_name: Some(server_name), in_process: None })
        }
    }
}

/// Where a Service is reached (`aggregator/pkg/apiserver` `ResolveCluster`).
fn service_address(server: &ApiServer, namespace: &str, name: &str, port: u16) -> Result<String, String> {
    let object = server
        .store()
        .get("services", &Key::new(namespace, name))
        .ok_or_else(|| format!("service {} not found", crate::error::go_quote(name)))?;
    let spec = object.value.get("spec").unwrap_or(&Value::Null);
    let text = |key: &str| spec.get(key).and_then(Value::as_str).unwrap_or_default();
    if text("type") == "ExternalName" {
        return Ok(format!("https://{}:{port}", text("externalName")));
    }
    let ports = spec.get("ports").and_then(Value::as_array);
    let listed = |p: &Value| p.get("port").and_then(Value::as_u64) == Some(u64::from(port));
    if !ports.is_some_and(|list| list.iter().any(listed)) {
        return Err(format!("no service port {port} found for service {}", crate::error::go_quote(name)));
    }
    match text("clusterIP") {
        "" | "None" => Err(format!("no endpoints available for service {}", crate::error::go_quote(name))),
        address => Ok(format!("https://{address}:{port}")),
    }
}

impl Callers {
    fn client(&self, webhook: &Webhook, server_name: Option<&str>) -> Result<Https, String> {
        let key = (webhook.client.ca.clone(), server_name.map(str::to_owned));
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&key) {
            return Ok(client.clone());
        }
        let client = build_client(&key.0, server_name)?;
        clients.insert(key, client.clone());
        Ok(client)
    }
}

fn build_client(ca: &[u8], server_name: Option<&str>) -> Result<Https, String> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca) {
        let certificate = certificate.map_err(|e| format!("unable to load root certificates: {e:?}"))?;
        roots.add(certificate).map_err(|e| format!("unable to load root certificates: {e}"))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    let builder = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(config).https_only();
    let builder = match server_name {
        Some(name) => {
            let name = rustls::pki_types::ServerName::try_from(name.to_owned()).map_err(|e| e.to_string())?;
            builder.with_server_name_resolver(hyper_rustls::FixedServerNameResolver::new(name))
        }
        None => builder,
    };
    let connector = builder.enable_all_versions().wrap_connector(http);
    Ok(Client::builder(TokioExecutor::new()).pool_max_idle_per_host(64).build(connector))
}

/// Go's words for the failures that happen in practice.
fn transport_text(error: &hyper_util::client::legacy::Error, connect: &str) -> String {
    let mut chain = vec![error.to_string()];
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<std::io::Error>() {
            if io.kind() == std::io::ErrorKind::ConnectionRefused {
                let address = connect.trim_start_matches("https://");
                return format!("dial tcp {address}: connect: connection refused");
            }
            if let Some(text) = tls_error(io).and_then(certificate_text) {
                return text;
            }
        }
        if let Some(text) = cause.downcast_ref().and_then(certificate_text) {
            return text;
        }
        chain.push(cause.to_string());
        source = cause.source();
    }
    chain.join(": ")
}

/// The error of TLS that errors of input and output are wrapped around.
fn tls_error(error: &std::io::Error) -> Option<&rustls::Error> {
    let inner = error.get_ref()?;
    match inner.downcast_ref::<std::io::Error>() {
        Some(next) => tls_error(next),
        None => inner.downcast_ref(),
    }
}

/// What Go says of a certificate that it does not trust.
fn certificate_text(error: &rustls::Error) -> Option<String> {
    use rustls::CertificateError as C;
    let why = match error {
        rustls::Error::InvalidCertificate(C::Expired | C::ExpiredContext { .. }) => {
            "certificate has expired or is not yet valid"
        }
        rustls::Error::InvalidCertificate(C::NotValidForName | C::NotValidForNameContext { .. }) => {
            "certificate is not valid for the requested name"
        }
        rustls::Error::InvalidCertificate(_) => "certificate signed by unknown authority",
        _ => return None,
    };
    Some(format!("tls: failed to verify certificate: x509: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_of_an_unknown_authority_is_told_in_words_of_go() {
        let refused = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let wrapped = std::io::Error::other(std::io::Error::other(refused));
        let text = tls_error(&wrapped).and_then(certificate_text);
        let wanted = "tls: failed to verify certificate: x509: certificate signed by unknown authority";
        assert_eq!(text.as_deref(), Some(wanted));
    }
}
