//! Karmada's resource interpreter webhooks: which one answers, what is asked, and which answers count.
//!
//! Rule: Karmada `pkg/resourceinterpreter/customized/webhook`: configurations in order of `<configuration>/<hook>`,
//! first rule that matches; `ResourceInterpreterContext` over HTTPS; a wrong uid, a non-2xx answer, an unsuccessful one
//! or a missing field is an error, and an error is never passed over to the next interpreter.

use std::{collections::BTreeMap, fmt, sync::Mutex, time::Duration};

use axum::Router;
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::Operation;
use crate::karmada::{
    api::lock_state,
    object::{Gvk, ObjectExt, Shared},
};

/// A hook that was chosen for a kind and operation.
#[derive(Debug, Clone)]
pub struct Hook {
    /// `<configuration>/<hook>`, as errors name it.
    pub name: String,
    url: String,
    ca_bundle: String,
    timeout: Option<i64>,
}

/// The hook that answers for a kind and operation, if any configuration has one.
#[must_use]
pub fn choose_hook(configurations: &[Shared], gvk: &Gvk, operation: Operation) -> Option<Hook> {
    let mut hooks: Vec<(String, &Value)> = configurations
        .iter()
        .flat_map(|one| {
            one.items("/webhooks").iter().map(|hook| (format!("{}/{}", one.name(), hook.text("/name")), hook))
        })
        .collect();
    hooks.sort_by(|a, b| a.0.cmp(&b.0));
    let (name, hook) = hooks.into_iter().find(|(_, hook)| {
        hook.items("/rules").iter().any(|rule| {
            rule_names(rule, "/operations", operation.name())
                && rule_names(rule, "/apiGroups", &gvk.group)
                && rule_names(rule, "/apiVersions", &gvk.version)
                && rule_names(rule, "/kinds", &gvk.kind)
        })
    })?;
    let client = &hook["clientConfig"];
    let url = match client.text("/url") {
        "" => {
            let (service, namespace) = (client.text("/service/name"), client.text("/service/namespace"));
            let port = client.pointer("/service/port").and_then(Value::as_i64).unwrap_or(443);
            format!("https://{service}.{namespace}.svc:{port}{}", client.text("/service/path"))
        }
        url => url.to_owned(),
    };
    Some(Hook {
        name,
        url,
        ca_bundle: client.text("/caBundle").to_owned(),
        timeout: hook.pointer("/timeoutSeconds").and_then(Value::as_i64),
    })
}

fn rule_names(rule: &Value, list: &str, one: &str) -> bool {
    rule.items(list).iter().any(|item| item == one || item == "*")
}

/// What a hook is asked.
#[must_use]
pub fn build_question(
    uid: &str,
    operation: Operation,
    object: &Value,
    observed: Option<&Value>,
    replicas: i64,
    items: Option<&[Value]>,
) -> Value {
    let gvk = object.gvk();
    let mut request = json!({
        "uid": uid,
        "kind": {"group": gvk.group, "version": gvk.version, "kind": gvk.kind},
        "name": object.name(),
        "operation": operation.name(),
        "object": object,
        "replicas": replicas,
    });
    if !object.namespace().is_empty() {
        request.put(&["namespace"], json!(object.namespace()));
    }
    request.put_or_remove(&["observedObject"], observed.cloned());
    if let Some(items) = items.filter(|items| !items.is_empty()) {
        request.put(&["aggregatedStatus"], json!(items));
    }
    json!({"apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterContext", "request": request})
}

/// The answer's `response`, if it counts for this operation.
///
/// # Errors
/// With Karmada's words for what is wrong.
pub fn accept_answer(hook: &Hook, uid: &str, operation: Operation, answer: &Value) -> Result<Value, String> {
    let failed = |what: String| format!("Internal error occurred: failed calling webhook \"{}\": {what}", hook.name);
    let invalid = |what: &str| failed(format!("received invalid webhook response: {what}"));
    let response = answer.present("/response").ok_or_else(|| invalid("webhook response was absent"))?;
    if response.text("/uid") != uid {
        return Err(invalid(&format!("expected response.uid {uid:?}, got {:?}", response.text("/uid"))));
    }
    if !response.flag("/successful") {
        let status = response
            .present("/status")
            .ok_or_else(|| invalid("webhook require response.status when response.successful is false"))?;
        let (code, message) = (status.number("/code"), status.text("/message"));
        return Err(failed(format!("webhook call failed, get status code: {code}, msg: {message}")));
    }
    let absent = |field: &str| response.present(field).is_none();
    let wrong = match operation {
        Operation::InterpretReplica if absent("/replicas") => "webhook returned nil response.replicas".to_owned(),
        Operation::InterpretHealth if absent("/healthy") => "webhook returned nil response.healthy".to_owned(),
        // Their word.
        Operation::InterpretStatus if absent("/rawStatus") => "webhook returned nill response.rawStatus".to_owned(),
        Operation::ReviseReplica | Operation::Retain | Operation::AggregateStatus => check_patch(response),
        Operation::InterpretDependency => check_dependencies(response),
        _ => String::new(),
    };
    if wrong.is_empty() { Ok(response.clone()) } else { Err(invalid(&wrong)) }
}

/// What is wrong with the patch of an answer, if anything is.
fn check_patch(response: &Value) -> String {
    let (patch, kind) = (response.text("/patch"), response.present("/patchType").and_then(Value::as_str));
    match (patch.is_empty(), kind) {
        (false, None) => "webhook returned nil response.patchType".to_owned(),
        (true, Some(_)) => "webhook returned empty response.patch".to_owned(),
        (false, Some(kind)) if kind != "JSONPatch" => {
            format!("webhook returned invalid response.patchType of {kind:?}")
        }
        _ => String::new(),
    }
}

/// What is wrong with the first dependency of an answer that has not what it needs.
fn check_dependencies(response: &Value) -> String {
    let wrong = response.items("/dependencies").iter().enumerate().find_map(|(index, one)| {
        let at = format!("dependencies[{index}]");
        if one.text("/apiVersion").is_empty() {
            return Some(format!("{at}.apiVersion: Invalid value: \"\": missing required apiVersion"));
        }
        if one.text("/kind").is_empty() {
            return Some(format!("{at}.kind: Invalid value: \"\": missing required kind"));
        }
        let named = !one.text("/name").is_empty() || one.present("/labelSelector").is_some();
        (!named)
            .then(|| format!("{at}: Invalid value: {one}: dependency can not leave name and labelSelector all empty"))
    });
    wrong.unwrap_or_default()
}

/// Refuses an answer of another kind, as decoding it does; one that names no kind is taken for what is expected.
fn check_kind(answer: Value) -> Result<Value, String> {
    let (version, kind) = (answer.text("/apiVersion"), answer.text("/kind"));
    let (wanted_version, wanted_kind) = ("config.karmada.io/v1alpha1", "ResourceInterpreterContext");
    let same = |one: &str, wanted: &str| one.is_empty() || one == wanted;
    if same(version, wanted_version) && same(kind, wanted_kind) {
        return Ok(answer);
    }
    let version = if version.is_empty() { wanted_version } else { version };
    let kind = if kind.is_empty() { wanted_kind } else { kind };
    let scheme = "k8s.io/apiserver/pkg/util/webhook/client.go:71";
    Err(format!("no kind {kind:?} is registered for version {version:?} in scheme {scheme:?}"))
}

type Https = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Webhook servers in this process, by the host and port of their URL: called without a socket.
pub type InProcess = BTreeMap<String, Router>;

/// Calls hooks: those of this process directly, all others over HTTPS with connections kept by authority.
#[derive(Default)]
pub struct Caller {
    in_process: InProcess,
    clients: Mutex<BTreeMap<String, Https>>,
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Caller")
    }
}

impl Caller {
    /// A caller that knows the hooks of this process.
    #[must_use]
    pub fn new(in_process: InProcess) -> Self {
        Self { in_process, clients: Mutex::default() }
    }

    fn client_for(&self, ca_bundle: &str) -> Result<Https, String> {
        if let Some(client) = lock_state(&self.clients).get(ca_bundle) {
            return Ok(client.clone());
        }
        let mut roots = rustls::RootCertStore::empty();
        let pem = STANDARD.decode(ca_bundle).map_err(|error| format!("caBundle is not base64: {error}"))?;
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|error| format!("caBundle is not PEM: {error}"))?;
            roots.add(certificate).map_err(|error| format!("caBundle holds no usable certificate: {error}"))?;
        }
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_only()
            .enable_http1()
            .enable_http2()
            .build();
        let client = Client::builder(TokioExecutor::new()).build(connector);
        lock_state(&self.clients).insert(ca_bundle.to_owned(), client.clone());
        Ok(client)
    }

    /// Asks a hook and gives back its whole answer.
    ///
    /// # Errors
    /// With Karmada's words for what went wrong.
    pub async fn call_hook(&self, hook: &Hook, question: &Value) -> Result<Value, String> {
        let failed = |what: String| {
            format!("Internal error occurred: failed calling webhook \"{}\": failed to call webhook: {what}", hook.name)
        };
        let url = match hook.timeout {
            Some(seconds) => format!("{}?timeout={seconds}s", hook.url),
            None => hook.url.clone(),
        };
        let body = serde_json::to_vec(question).map_err(|error| failed(error.to_string()))?;
        let request = Request::post(&url)
            .header("content-type", "application/json")
            .header("accept", "application/json, */*")
            .header("user-agent", "kube-apiserver-admission")
            .body(Full::from(body))
            .map_err(|error| failed(error.to_string()))?;
        let exchange = async {
            let (status, is_text, bytes) = self.send_request(hook, request).await?;
            if !status.is_success() {
                let text = String::from_utf8_lossy(&bytes);
                let text = if is_text && !text.trim().is_empty() { text } else { "unknown".into() };
                return Err(format!(
                    "an error on the server ({:?}) has prevented the request from succeeding",
                    text.trim()
                ));
            }
            check_kind(serde_json::from_slice(&bytes).map_err(|error| error.to_string())?)
        };
        // Without a limit of its own a hook has client-go's.
        let limit = Duration::from_secs(hook.timeout.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(30));
        match tokio::time::timeout(limit, exchange).await {
            Ok(outcome) => outcome.map_err(failed),
            Err(_) => Err(failed(format!("Post {url:?}: context deadline exceeded"))),
        }
    }

    /// Status, whether the body is text, and the body.
    async fn send_request(
        &self,
        hook: &Hook,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, bool, Bytes), String> {
        let url = request.uri().to_string();
        let failed = |what: String| format!("Post {url:?}: {what}");
        let authority = request.uri().authority().map(http::uri::Authority::as_str);
        if let Some(router) = authority.and_then(|authority| self.in_process.get(authority)) {
            let Ok(answer) = router.clone().oneshot(request.map(axum::body::Body::new)).await;
            let (status, text) = (answer.status(), is_text(answer.headers()));
            let bytes = answer.into_body().collect().await.map_err(|error| failed(error.to_string()))?;
            return Ok((status, text, bytes.to_bytes()));
        }
        let client = self.client_for(&hook.ca_bundle)?;
        let answer = client.request(request).await.map_err(|error| failed(root_cause(&error)))?;
        let (status, text) = (answer.status(), is_text(answer.headers()));
        let bytes = answer.into_body().collect().await.map_err(|error| failed(error.to_string()))?;
        Ok((status, text, bytes.to_bytes()))
    }
}

/// Whether client-go repeats the body of a failure: `isTextResponse`.
fn is_text(headers: &http::HeaderMap) -> bool {
    headers.get(http::header::CONTENT_TYPE).is_none_or(|kind| kind.as_bytes().starts_with(b"text/"))
}

fn root_cause(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn configuration(name: &str, operation: &str) -> Shared {
        Arc::new(json!({"metadata": {"name": name}, "webhooks": [{
            "name": "h",
            "rules": [{"operations": [operation], "apiGroups": ["*"], "apiVersions": ["v1"], "kinds": ["Job"]}],
            "clientConfig": {"url": format!("https://{name}/x")}, "timeoutSeconds": 3,
        }]}))
    }

    #[test]
    fn the_first_hook_by_name_that_declares_the_operation_answers() {
        let all = [configuration("b", "*"), configuration("a", "Retain")];
        let job = Gvk::new("batch/v1", "Job");
        assert_eq!(choose_hook(&all, &job, Operation::Retain).map(|hook| hook.name), Some("a/h".to_owned()));
        assert_eq!(choose_hook(&all, &job, Operation::InterpretReplica).map(|hook| hook.name), Some("b/h".to_owned()));
        assert!(choose_hook(&all, &Gvk::new("batch/v2", "Job"), Operation::Retain).is_none());
    }

    #[test]
    fn an_answer_to_another_question_is_refused() {
        let all = [configuration("a", "*")];
        let hook = choose_hook(&all, &Gvk::new("batch/v1", "Job"), Operation::InterpretReplica).unwrap();
        let answer = json!({"response": {"uid": "2", "successful": true, "replicas": 1}});
        let error = accept_answer(&hook, "1", Operation::InterpretReplica, &answer).unwrap_err();
        assert_eq!(
            error,
            "Internal error occurred: failed calling webhook \"a/h\": received invalid webhook response: expected response.uid \"1\", got \"2\""
        );
        let no = json!({"response": {"uid": "1", "successful": false, "status": {"code": 422, "message": "no"}}});
        let error = accept_answer(&hook, "1", Operation::Retain, &no).unwrap_err();
        assert!(error.ends_with("webhook call failed, get status code: 422, msg: no"));
    }

    #[test]
    fn only_what_an_operation_needs_is_asked_of_an_answer() {
        let all = [configuration("a", "*")];
        let hook = choose_hook(&all, &Gvk::new("batch/v1", "Job"), Operation::Retain).unwrap();
        let told = |operation, response: Value| {
            let mut response = response;
            response["uid"] = json!("1");
            accept_answer(&hook, "1", operation, &json!({"response": response})).map(drop).map_err(|error| {
                error
                    .rsplit_once("received invalid webhook response: ")
                    .map_or(error.clone(), |(_, told)| told.to_owned())
            })
        };
        let fine = json!({"successful": true, "patch": "e30="});
        assert_eq!(told(Operation::InterpretComponent, fine.clone()), Ok(()));
        assert_eq!(told(Operation::InterpretDependency, fine.clone()), Ok(()));
        assert_eq!(told(Operation::Retain, fine), Err("webhook returned nil response.patchType".to_owned()));
        let typed = json!({"successful": true, "patchType": "JSONPatch"});
        assert_eq!(told(Operation::Retain, typed), Err("webhook returned empty response.patch".to_owned()));
        let unsaid = told(Operation::InterpretHealth, json!({"successful": false})).unwrap_err();
        assert_eq!(unsaid, "webhook require response.status when response.successful is false");
    }

    #[test]
    fn only_text_of_a_failure_is_repeated() {
        let of = |kind: &'static str| http::HeaderMap::from_iter([(http::header::CONTENT_TYPE, kind.parse().unwrap())]);
        assert!(is_text(&http::HeaderMap::new()) && is_text(&of("text/plain; charset=utf-8")));
        assert!(!is_text(&of("application/json")));
    }

    #[test]
    fn an_answer_of_another_kind_is_refused() {
        let version = "config.karmada.io/v1alpha1";
        assert!(check_kind(json!({"response": {}})).is_ok());
        assert!(check_kind(json!({"apiVersion": version, "kind": "ResourceInterpreterContext"})).is_ok());
        let told = check_kind(json!({"apiVersion": version, "kind": "Other"})).unwrap_err();
        assert!(
            told.starts_with("no kind \"Other\" is registered for version \"config.karmada.io/v1alpha1\""),
            "{told}"
        );
    }

    #[test]
    fn replicas_are_always_sent() {
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "n"}});
        let question = build_question("1", Operation::Retain, &object, Some(&object), 0, None);
        assert_eq!(question["request"]["replicas"], 0);
        assert_eq!(question["request"]["observedObject"]["kind"], "Pod");
        assert!(question["request"].get("aggregatedStatus").is_none());
    }
}
