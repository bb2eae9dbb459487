//! Routing: from a path and a method to the operation, and from its result to an answer.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::accept::{self, Encoding, Forms, Transform};
use crate::auth::User;
use crate::call::{Call, Payload, Reply};
use crate::error::Status;
use crate::request::{self, Query};
use crate::resource::Resource;
use crate::server::ApiServer;
use crate::store::encode_json;
use crate::table::{IncludeObject, to_table};
use crate::{deadline, delete, read, subresource, watch, write};

/// The largest body, as etcd's request limit allows it.
const MAX_BODY: usize = 3 * 1024 * 1024;

/// Who a request without credentials is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Anonymous {
    IsAnonymous,
    Is(User),
}

pub fn build_router(server: ApiServer, anonymous: Anonymous) -> Router {
    Router::new().fallback(move |request: Request| {
        let (server, anonymous) = (server.clone(), anonymous.clone());
        async move { respond_request(server, anonymous, request).await }
    })
}

async fn respond_request(server: ApiServer, anonymous: Anonymous, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let accepted = text_header(&parts.headers, &ACCEPT);
    let encoding = accept::negotiate_output(accepted, Forms::None).map(|o| o.encoding).unwrap_or_default();
    let mut warnings = Vec::new();
    let query = Query::parse(parts.uri.query());
    let info = request::read_info(&parts.method, parts.uri.path(), &query);
    let limit = match deadline::time_limit(&info, &query) {
        Ok(limit) => limit,
        Err(status) => return refusal_response(status, encoding),
    };
    let answering = answer_request(&server, anonymous, &parts, body, &mut warnings);
    let answered = match limit {
        Some(limit) => match tokio::time::timeout(limit, answering).await {
            Ok(answered) => answered,
            Err(_) => return late_response(),
        },
        None => answering.await,
    };
    match answered {
        Ok(response) => with_warnings(response, &warnings),
        Err(status) => with_warnings(refusal_response(status, encoding), &warnings),
    }
}

fn late_response() -> Response {
    let mut response = Response::new(Body::from(deadline::late_answer().to_string()));
    *response.status_mut() = StatusCode::GATEWAY_TIMEOUT;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

fn text_header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    headers.get(name).and_then(|h| h.to_str().ok()).unwrap_or_default()
}

async fn answer_request(
    server: &ApiServer,
    anonymous: Anonymous,
    parts: &http::request::Parts,
    body: Body,
    warnings: &mut Vec<String>,
) -> Result<Response, Status> {
    let user = match crate::auth::authenticate_request(server, &parts.headers, warnings)? {
        Some(user) => user,
        None => match anonymous {
            Anonymous::Is(user) => user,
            Anonymous::IsAnonymous => User::anonymous(),
        },
    };
    let path = parts.uri.path();
    let query = Query::parse(parts.uri.query());
    let mut info = request::read_info(&parts.method, path, &query);
    let user = crate::auth::impersonate_user(server, user, &parts.headers, &info)?;
    crate::auth::authorize_request(server, &user, &request::as_authorized(&info, &query))?;
    if !info.is_resource {
        return answer_document(server, parts, path, &query);
    }
    let resource = request::find_resource(&server.registry(), &mut info)?;
    if info.name.contains('/') {
        // A name cannot hold a slash: the path has one part more.
        return Err(if resource.is_custom() { Status::page_not_found() } else { Status::no_such_resource() });
    }
    // All namespaces are listed where none is named.
    let anywhere = info.verb == "list" && info.namespace.is_empty() && path.matches("//").count() == 1;
    let doubled = path.contains("//") && !(anywhere && path.contains("/namespaces//"));
    if !resource.is_custom() && (parts.method == Method::HEAD || doubled) {
        // The router of built-in kinds knows each path and method as it is written.
        let head = parts.method == Method::HEAD;
        return Err(if head { Status::verb_not_allowed() } else { Status::no_such_resource() });
    }
    if resource.group.is_empty() && resource.plural == "endpoints" && info.subresource.is_empty() {
        warnings.push("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".to_owned());
    }
    if resource.group.is_empty() && resource.plural == "componentstatuses" && resource.has_verb(&info.verb) {
        warnings.push("v1 ComponentStatus is deprecated in v1.19+".to_owned());
    }
    if let Some(warning) = resource.custom.as_ref().and_then(|c| c.deprecation_warning.clone()) {
        warnings.push(warning);
    }
    let accepted = text_header(&parts.headers, &ACCEPT);
    if !resource.is_custom() {
        accept::check_routed(accepted, &crate::body::FORMATS, matches!(info.verb.as_str(), "list" | "watch"))?;
    }
    let transforms = info.verb != "deletecollection" || resource.has_verb("deletecollection");
    let only_created =
        resource.verbs == ["create"] || matches!(info.subresource.as_str(), "binding" | "eviction" | "token");
    let forms = match (transforms, only_created) {
        (false, _) => Forms::None,
        (true, true) => Forms::Metadata,
        (true, false) => Forms::All,
    };
    let output = accept::negotiate_output(accepted, forms)?;
    if info.verb == "watch" && output.encoding == Encoding::Yaml {
        return Err(Status::not_acceptable(&accept::STREAMS));
    }
    let body = Limited::new(body, MAX_BODY).collect().await.map_err(|_| {
        Status::new(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {MAX_BODY}"))
    })?;
    let mut call = Call {
        server: server.clone(),
        user,
        info,
        resource,
        query,
        user_agent: text_header(&parts.headers, &USER_AGENT).to_owned(),
        content_type: text_header(&parts.headers, &CONTENT_TYPE).to_owned(),
        body: body.to_bytes(),
        output,
        warnings: Vec::new(),
    };
    let result = dispatch_call(&mut call).await;
    warnings.append(&mut call.warnings);
    render_reply(&call, result?)
}

/// What is no object. Some documents have a route of their own, which knows their one method and their forms; the
/// others are given to whoever asks, in whatever way.
fn answer_document(
    server: &ApiServer,
    parts: &http::request::Parts,
    path: &str,
    query: &Query,
) -> Result<Response, Status> {
    let accepted = text_header(&parts.headers, &ACCEPT);
    let document = || crate::discovery::respond_discovery(server, path, query, &parts.headers);
    let missing = |refusal: Status| routed_missing(server, path, refusal);
    if request::is_routed(path, &server.registry()) {
        if parts.method != Method::GET {
            return Err(Status::verb_not_allowed());
        }
        let forms: &[&str] =
            if path.starts_with("/version") { &crate::body::FORMATS[..1] } else { &crate::body::FORMATS };
        accept::check_routed(accepted, forms, false)?;
    }
    if let Some(refusal) = crate::discovery::refuse_document(path, &parts.method) {
        return Err(refusal);
    }
    if request::is_discovery(path) {
        accept::negotiate_output(accepted, Forms::None)?;
    }
    document().ok_or_else(|| missing(Status::no_such_resource()))
}

/// The refusal of whoever would serve the path: below a built-in group that is the router of its web service
/// (`apiserver/pkg/server/handler.go`), elsewhere nobody.
fn routed_missing(server: &ApiServer, path: &str, refusal: Status) -> Status {
    let mut parts = path.split('/').filter(|p| !p.is_empty());
    let group = match (parts.next(), parts.next()) {
        (Some("api"), Some(_)) => "",
        (Some("apis"), Some(group)) => group,
        _ => return Status::page_not_found(),
    };
    let built_in = server.registry().iter().any(|r| r.group == group && !r.is_custom());
    if built_in { refusal } else { Status::page_not_found() }
}

async fn dispatch_call(call: &mut Call) -> Result<Reply, Status> {
    let problems = crate::meta::path_segment_problems(&call.info.name, false);
    if !problems.is_empty() && matches!(call.info.verb.as_str(), "get" | "delete" | "update" | "patch") {
        let name = crate::error::go_quote(&call.info.name);
        return Err(Status::bad_request(format!("Name parameter invalid: {name}: {}", problems.join(";"))));
    }
    if !call.info.subresource.is_empty() {
        return subresource::dispatch_subresource(call).await;
    }
    if call.resource.verbs == ["create"] {
        return subresource::create_review(call).await;
    }
    let verb = call.info.verb.clone();
    let custom = call.resource.is_custom();
    if !custom {
        let on_item = !call.info.name.is_empty();
        let allowed = match verb.as_str() {
            "create" => !on_item,
            "update" | "patch" => on_item,
            _ => true,
        };
        if !allowed || !call.resource.has_verb(&verb) {
            return Err(Status::verb_not_allowed());
        }
    }
    match verb.as_str() {
        "get" => read::get_object(call),
        "list" => read::list_objects(call),
        "watch" => watch::watch_objects(call),
        "create" => write::create_object(call).await,
        "update" => write::update_object(call).await,
        "patch" => write::patch_object(call).await,
        "delete" => delete::delete_object(call).await,
        "deletecollection" => delete::delete_collection(call).await,
        other => Err(Status::method_not_allowed(&call.resource.group, &call.resource.plural, other)),
    }
}

/// The answer in the form the client asked for.
fn render_reply(call: &Call, reply: Reply) -> Result<Response, Status> {
    match reply {
        Reply::Raw(response) => Ok(response),
        Reply::Stream(body) => {
            let mut response = Response::new(body);
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            Ok(response)
        }
        Reply::Plain { code, value } => Ok(document_response(code, call.output.encoding, encode_json(&value), &value)),
        Reply::Object { code, payload } => render_object(call, code, &payload),
        Reply::List { metadata, items } => render_list(call, metadata, &items),
    }
}

fn go_type(call: &Call, list: bool) -> String {
    let suffix = if list { "List" } else { "" };
    if call.resource.is_custom() {
        return if list { "*unstructured.UnstructuredList".into() } else { "*unstructured.Unstructured".into() };
    }
    let package = match call.resource.group.as_str() {
        "" => "core",
        group => group.split('.').next().unwrap_or_default(),
    };
    format!("*{package}.{}{suffix}", call.resource.kind)
}

fn render_object(call: &Call, code: u16, payload: &Payload) -> Result<Response, Status> {
    match &call.output.transform {
        Transform::None => {
            let bytes = match payload {
                Payload::Stored(object) => object.encoded(),
                Payload::Value(value) => encode_json(value),
            };
            Ok(document_response(code, call.output.encoding, bytes, payload.value()))
        }
        Transform::PartialObject(version) => {
            let value = watch::partial_metadata(payload.value(), version);
            Ok(document_response(code, call.output.encoding, encode_json(&value), &value))
        }
        Transform::PartialList(_) if call.resource.is_custom() => Err(Status::unknown("content is not a list")),
        Transform::PartialList(_) => {
            let found = go_type(call, false);
            let why =
                format!("you requested PartialObjectMetadataList, but the requested object is not a list ({found})");
            Err(Status::new(406, "NotAcceptable", why))
        }
        Transform::Table(version) => {
            let mut table =
                to_table(&[payload.value()], &call.resource, include_object(call)?, true, call.server.now());
            name_table(&mut table, version);
            // What a dry run made has no version.
            let version = crate::meta::metadata_text(payload.value(), "resourceVersion");
            if !version.is_empty() {
                table["metadata"]["resourceVersion"] = version.into();
            }
            Ok(document_response(code, call.output.encoding, encode_json(&table), &table))
        }
    }
}

/// A table and the metadata in its rows are of the version that was asked for.
fn name_table(table: &mut Value, version: &str) {
    let name = format!("meta.k8s.io/{version}");
    for row in table["rows"].as_array_mut().into_iter().flatten() {
        if row.pointer("/object/kind").and_then(Value::as_str) == Some("PartialObjectMetadata") {
            row["object"]["apiVersion"] = name.as_str().into();
        }
    }
    table["apiVersion"] = name.into();
}

/// What a table's rows carry.
pub fn include_object(call: &Call) -> Result<IncludeObject, Status> {
    match call.query.get("includeObject").unwrap_or_default() {
        "" | "Metadata" => Ok(IncludeObject::Metadata),
        "None" => Ok(IncludeObject::None),
        "Object" => Ok(IncludeObject::Object),
        other => Err(Status::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', 'Object', 'None', or empty",
            crate::error::go_quote(other)
        ))),
    }
}

fn render_list(call: &Call, mut metadata: Value, items: &[Payload]) -> Result<Response, Status> {
    let resource = &call.resource;
    let transform = &call.output.transform;
    let value = match transform {
        Transform::None if call.output.encoding == Encoding::Json => {
            return Ok(bytes_response(200, Encoding::Json, list_bytes(resource, &metadata, items)));
        }
        Transform::None => json!({
            "kind": resource.list_kind,
            "apiVersion": resource.api_version(),
            "metadata": metadata,
            "items": items.iter().map(|p| bare_object(resource, p)).collect::<Vec<_>>(),
        }),
        Transform::PartialObject(_) => {
            let found = go_type(call, true);
            let why = format!("you requested PartialObjectMetadata, but the requested object is a list ({found})");
            return Err(Status::new(406, "NotAcceptable", why));
        }
        Transform::PartialList(version) => {
            drop_empty_continue(&mut metadata);
            let shown: Vec<Value> = items.iter().map(|p| watch::partial_metadata(p.value(), version)).collect();
            // A list that nothing was added to is null in Go (`asPartialObjectMetadataList`).
            let none = shown.is_empty();
            json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": format!("meta.k8s.io/{version}"),
                "metadata": metadata,
                "items": if none { Value::Null } else { shown.into() },
            })
        }
        Transform::Table(version) => {
            drop_empty_continue(&mut metadata);
            let objects: Vec<&Value> = items.iter().map(Payload::value).collect();
            let mut table = to_table(&objects, resource, include_object(call)?, true, call.server.now());
            name_table(&mut table, version);
            table["metadata"] = metadata;
            table
        }
    };
    Ok(document_response(200, call.output.encoding, encode_json(&value), &value))
}

fn drop_empty_continue(metadata: &mut Value) {
    if metadata.get("continue").and_then(Value::as_str) == Some("")
        && let Some(map) = metadata.as_object_mut()
    {
        map.remove("continue");
    }
}

/// An item of a list: built-in kinds leave kind and apiVersion out.
fn bare_object(resource: &Resource, payload: &Payload) -> Value {
    let mut value = payload.value().clone();
    if !resource.is_custom()
        && let Some(map) = value.as_object_mut()
    {
        map.remove("kind");
        map.remove("apiVersion");
    }
    value
}

/// The list's JSON, from texts that the store's objects already have.
fn list_bytes(resource: &Resource, metadata: &Value, items: &[Payload]) -> Bytes {
    let head = json!({"kind": resource.list_kind, "apiVersion": resource.api_version(), "metadata": metadata});
    let mut out = encode_json(&head).to_vec();
    out.pop();
    out.extend_from_slice(b",\"items\":[");
    for (index, payload) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        match payload {
            Payload::Stored(object) if resource.is_custom() => out.extend_from_slice(&object.encoded()),
            Payload::Stored(object) => out.extend_from_slice(&object.encoded_bare()),
            Payload::Value(_) => out.extend_from_slice(&encode_json(&bare_object(resource, payload))),
        }
    }
    out.extend_from_slice(b"]}");
    out.into()
}

fn document_response(code: u16, encoding: Encoding, json: Bytes, value: &Value) -> Response {
    match encoding {
        Encoding::Json => bytes_response(code, encoding, json),
        Encoding::Yaml => bytes_response(code, encoding, crate::yaml::write_yaml(value).into()),
    }
}

fn bytes_response(code: u16, encoding: Encoding, bytes: Bytes) -> Response {
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::OK);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(encoding.content_type()));
    response
}

fn refusal_response(status: Status, encoding: Encoding) -> Response {
    if status.plain {
        let mut response = Response::new(Body::from(status.message.clone()));
        *response.status_mut() = status.status_code();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        return response;
    }
    let code = status.code;
    let retry = status.details.as_ref().map_or(0, |d| d.retry_after_seconds);
    let value = status.into_value();
    let mut response = document_response(code, encoding, encode_json(&value), &value);
    if retry > 0 {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(retry));
    }
    response
}

fn with_warnings(mut response: Response, warnings: &[String]) -> Response {
    for header in crate::warning::warning_headers(warnings) {
        if let Ok(value) = HeaderValue::from_str(&header) {
            response.headers_mut().append(HeaderName::from_static("warning"), value);
        }
    }
    response
}

/// Serves HTTPS in the background until `shutdown`.
pub async fn serve_https(
    server: ApiServer,
    listen: SocketAddr,
    tls: Arc<rustls::ServerConfig>,
    shutdown: CancellationToken,
) -> io::Result<SocketAddr> {
    let mut tls = (*tls).clone();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let listener = std::net::TcpListener::bind(listen)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let name = server.state().options.name.clone();
    let handle = axum_server::Handle::new();
    let app = build_router(server, Anonymous::IsAnonymous).into_make_service();
    let config = axum_server::tls_rustls::RustlsConfig::from_config(Arc::new(tls));
    // As Go's servers do: an event of a watch must not wait for the acknowledgement of the one before.
    let serving = axum_server::from_tcp_rustls(listener, config)?
        .map(|tls| tls.acceptor(axum_server::accept::NoDelayAcceptor::new()))
        .handle(handle.clone())
        .serve(app);
    tokio::spawn(async move {
        if let Err(error) = serving.await {
            tracing::error!(%error, server = name, "the API server's listener ended");
        }
    });
    tokio::spawn(async move {
        shutdown.cancelled().await;
        // Watches never end by themselves.
        handle.graceful_shutdown(Some(std::time::Duration::from_millis(200)));
    });
    Ok(address)
}
