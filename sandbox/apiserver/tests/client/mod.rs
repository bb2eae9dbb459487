//! A client of the tests: one request to a router.

use axum::{Router, body::Body};
use http::Request;
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

/// The status, the body and the warnings of the answer. A body of `null` sends none; a patch is a merge
/// patch if no header says what else it is.
pub async fn send_with(
    router: &Router,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Value,
) -> (u16, Value, Vec<String>) {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let given = headers.iter().find(|(name, _)| *name == "content-type");
    let kind = given.map_or(kind, |(_, kind)| *kind);
    let mut request = Request::builder().method(method).uri(path).header("content-type", kind);
    for (name, value) in headers.iter().filter(|(name, _)| *name != "content-type") {
        request = request.header(*name, *value);
    }
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = router.clone().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
    let status = answer.status().as_u16();
    let warnings = answer.headers().get_all("warning").iter().map(|w| w.to_str().unwrap().to_owned()).collect();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null), warnings)
}
