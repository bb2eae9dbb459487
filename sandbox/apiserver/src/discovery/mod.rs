//! Discovery, OpenAPI, version and health paths.

mod aggregated;
mod groups;
mod health;
mod openapi;

pub use openapi::Cache;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{ACCEPT, CONTENT_TYPE, ETAG, HOST, IF_NONE_MATCH, VARY};
use http::{HeaderMap, Method, StatusCode};
use serde_json::{Value, json};

use crate::accept::{Encoding, Forms, negotiate_output};
use crate::error::Status;
use crate::request::Query;
use crate::resource::Registry;
use crate::server::ApiServer;

/// The release whose behaviour this server follows.
const VERSION: &str = "v1.36.2";

/// What the health paths look at: all of it is this process.
const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const OPENAPI_V2: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The refusal of a document that knows one method only, or of a path that only looks like one.
pub fn refuse_document(path: &str, method: &Method) -> Option<Status> {
    match path {
        "/.well-known/openid-configuration" | "/openid/v1/jwks" if method != Method::GET => {
            Some(Status::verb_not_allowed())
        }
        "/healthz/" | "/readyz/" | "/livez/" => Some(Status::page_not_found()),
        _ => None,
    }
}

/// Answers GET on a path that is not an object's: `/`, `/api`, `/apis`, `/api/v1`, `/apis/<group>[/<version>]`,
/// `/openapi/...`, `/version`, `/healthz`, `/readyz`, `/livez`. `None`: no such path.
pub fn respond_discovery(server: &ApiServer, path: &str, query: &Query, headers: &HeaderMap) -> Option<Response> {
    let registry = server.registry();
    let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty()).collect();
    Some(match parts.as_slice() {
        [] => json_answer(headers, &root_paths(&registry)),
        ["api"] => answer_negotiated(
            headers,
            || aggregated::core_groups(&registry),
            || groups::api_versions(&server_address(headers)),
        ),
        ["apis"] => {
            answer_negotiated(headers, || aggregated::named_groups(&registry), || groups::group_list(&registry))
        }
        ["api", version] => json_answer(headers, &groups::resource_list(&registry, "", version)?),
        ["apis", group] => json_answer(headers, &groups::group_document(&registry, group)?),
        ["apis", group, version] => json_answer(headers, &groups::resource_list(&registry, group, version)?),
        ["openapi", "v3"] if !path.ends_with('/') => {
            answer_tagged(headers, TEXT, server.state().openapi.index(&registry).to_string().into_bytes())
        }
        ["openapi", "v3", "api", version] => openapi_document(server, headers, "", version),
        ["openapi", "v3", "apis", group, version] => openapi_document(server, headers, group, version),
        ["openapi", "v3", ..] => StatusCode::NOT_FOUND.into_response(),
        ["openapi", "v2"] => openapi_v2(headers),
        ["version"] => json_answer(headers, &version_info()),
        [which @ ("healthz" | "readyz" | "livez"), check @ ..] => health::respond_health(which, check, query)?,
        ["metrics"] => {
            ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8; escaping=underscores")], write_metrics(server))
                .into_response()
        }
        [".well-known", "openid-configuration"] => json_answer(
            headers,
            &json!({
                "issuer": "https://kubernetes.default.svc",
                "jwks_uri": format!("https://{}/openid/v1/jwks", server_address(headers)),
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
            }),
        ),
        ["openid", "v1", "jwks"] => {
            ([(CONTENT_TYPE, "application/jwk-set+json")], json!({"keys": []}).to_string()).into_response()
        }
        _ => return None,
    })
}

fn server_address(headers: &HeaderMap) -> String {
    headers.get(HOST).and_then(|h| h.to_str().ok()).unwrap_or("127.0.0.1:443").to_owned()
}

fn json_answer(headers: &HeaderMap, value: &Value) -> Response {
    let accepted = headers.get(ACCEPT).and_then(|h| h.to_str().ok()).unwrap_or_default();
    let encoding = negotiate_output(accepted, Forms::None).map(|output| output.encoding).unwrap_or_default();
    let text = match encoding {
        Encoding::Json => value.to_string(),
        Encoding::Yaml => crate::yaml::write_yaml(value),
    };
    ([(CONTENT_TYPE, encoding.content_type())], text).into_response()
}

/// `/api` and `/apis` in the legacy or the aggregated form. A clause that asks for the aggregated one wins over a plain
/// one.
fn answer_negotiated(headers: &HeaderMap, aggregated: impl Fn() -> Value, legacy: impl Fn() -> Value) -> Response {
    let accept: String = headers.get_all(ACCEPT).iter().filter_map(|h| h.to_str().ok()).collect::<Vec<_>>().join(",");
    match wanted_form(&accept) {
        Some(Form::Aggregated) => {
            let mut answer = answer_tagged(headers, AGGREGATED, aggregated().to_string().into_bytes());
            answer.headers_mut().insert(VARY, http::HeaderValue::from_static("Accept"));
            answer
        }
        Some(Form::Legacy) => json_answer(headers, &legacy()),
        None => {
            let accepted = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
            let status = Status::not_acceptable(&accepted);
            (status.status_code(), axum::Json(status.into_value())).into_response()
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Aggregated,
    Legacy,
}

fn wanted_form(accept: &str) -> Option<Form> {
    let mut plain = accept.trim().is_empty();
    for clause in accept.split(',') {
        let mut parts = clause.split(';').map(str::trim);
        let essence = parts.next().unwrap_or_default();
        let parameters: Vec<&str> = parts.filter(|p| !p.starts_with("q=")).collect();
        let named = |text: &str| parameters.contains(&text);
        if named("as=APIGroupDiscoveryList") && named("g=apidiscovery.k8s.io") && named("v=v2") {
            return Some(Form::Aggregated);
        }
        let form = parameters.iter().any(|p| p.starts_with("as="));
        plain |= !form && matches!(essence, "application/json" | "application/yaml" | "*/*" | "application/*");
        plain |= !form && essence == "application/vnd.kubernetes.protobuf";
    }
    plain.then_some(Form::Legacy)
}

/// With an entity tag, so that a client's cache can be told that nothing changed.
fn answer_tagged(headers: &HeaderMap, content_type: &'static str, body: Vec<u8>) -> Response {
    let tag = format!("\"{}\"", openapi::hash_document(&body));
    let known = headers.get_all(IF_NONE_MATCH).iter().filter_map(|h| h.to_str().ok());
    if known.into_iter().flat_map(|h| h.split(',')).any(|t| t.trim() == tag) {
        return (StatusCode::NOT_MODIFIED, [(ETAG, tag)]).into_response();
    }
    ([(CONTENT_TYPE, content_type.to_owned()), (ETAG, tag)], Body::from(body)).into_response()
}

/// What is not there is told by the code alone (`kube-openapi/pkg/handler3`).
fn openapi_document(server: &ApiServer, headers: &HeaderMap, group: &str, version: &str) -> Response {
    match server.state().openapi.document(&server.registry(), group, version) {
        Some(document) => answer_tagged(headers, JSON, document.text.clone().into_bytes()),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// The older document. Clients of this age fetch it only as a hint for patches and take an empty one.
fn openapi_v2(headers: &HeaderMap) -> Response {
    let accept = headers.get(ACCEPT).and_then(|h| h.to_str().ok()).unwrap_or_default();
    if accept.contains("protobuf") {
        return answer_tagged(headers, OPENAPI_V2, Vec::new());
    }
    let info = json!({"title": "Kubernetes", "version": VERSION});
    let document = json!({"swagger": "2.0", "info": info, "paths": {}, "definitions": {}});
    answer_tagged(headers, JSON, document.to_string().into_bytes())
}

fn version_info() -> Value {
    json!({
        "major": "1",
        "minor": "36",
        "emulationMajor": "1",
        "emulationMinor": "36",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "35",
        "gitVersion": VERSION,
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": "linux/amd64",
    })
}

fn write_metrics(server: &ApiServer) -> String {
    let revision = server.store().revision();
    format!(
        "# HELP apiserver_storage_revision The revision of the last write.\n# TYPE apiserver_storage_revision counter\n\
         apiserver_storage_revision {revision}\n"
    )
}

fn root_paths(registry: &Registry) -> Value {
    let mut paths: Vec<String> = [
        "/.well-known/openid-configuration",
        "/api",
        "/api/v1",
        "/apis",
        "/apis/",
        "/healthz",
        "/healthz/etcd",
        "/healthz/log",
        "/healthz/ping",
        "/livez",
        "/livez/etcd",
        "/livez/log",
        "/livez/ping",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/openapi/v3/",
        "/openid/v1/jwks",
        "/readyz",
        "/readyz/etcd",
        "/readyz/log",
        "/readyz/ping",
        "/version",
    ]
    .into_iter()
    .map(str::to_owned)
    .collect();
    for group in groups::list_groups(registry) {
        paths.extend(group.versions.iter().map(|v| format!("/apis/{}/{v}", group.name)));
        paths.push(format!("/apis/{}", group.name));
    }
    paths.sort();
    json!({ "paths": paths })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_aggregated_form_wins_wherever_it_is_asked_for() {
        let v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let old = v2.replace("v=v2", "v=v2beta1");
        assert_eq!(wanted_form(v2), Some(Form::Aggregated));
        assert_eq!(wanted_form(&format!("application/json,{v2}")), Some(Form::Aggregated));
        assert_eq!(wanted_form(&format!("{old},application/json")), Some(Form::Legacy));
        assert_eq!(wanted_form(&old), None);
        assert_eq!(wanted_form("*/*"), Some(Form::Legacy));
        assert_eq!(wanted_form(""), Some(Form::Legacy));
    }
}
