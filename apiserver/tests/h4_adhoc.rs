#![allow(clippy::all)]
use axum::body::Body;
use caldera_apiserver::{ApiServer, Options};
use http_body_util::BodyExt;
use tower::ServiceExt;
#[tokio::test]
async fn adhoc() {
    let Ok(file) = std::env::var("ADHOC") else { return };
    let server = ApiServer::new(Options::default());
    let router = server.router();
    if let Ok(text) = std::fs::read_to_string("/work/shared/conformance/fixtures/crds.jsonl") {
        for line in text.lines() {
            let v: serde_json::Value = serde_json::from_str(line).unwrap();
            if v["set"] != "conf" { continue; }
            let r = http::Request::post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").header("content-type","application/json").body(Body::from(v["body"].to_string())).unwrap();
            router.clone().oneshot(r).await.unwrap();
        }
    }
    for line in std::fs::read_to_string(file).unwrap().lines() {
        if line.trim().is_empty() { continue; }
        let mut parts = line.splitn(4, '|');
        let (method, path, ctype, body) = (parts.next().unwrap().trim(), parts.next().unwrap().trim(), parts.next().unwrap_or("").trim(), parts.next().unwrap_or("").trim());
        let mut b = http::Request::builder().method(method).uri(path).header("user-agent", "t/1");
        if !ctype.is_empty() { b = b.header("content-type", ctype); }
        let resp = router.clone().oneshot(b.body(Body::from(body.to_owned())).unwrap()).await.unwrap();
        let status = resp.status();
        let warn: Vec<_> = resp.headers().get_all("warning").iter().map(|v| v.to_str().unwrap().to_owned()).collect();
        let ct = resp.headers().get("content-type").map(|v| v.to_str().unwrap().to_owned()).unwrap_or_default();
        let bytes = tokio::time::timeout(std::time::Duration::from_secs(2), resp.into_body().collect()).await.map(|b| b.unwrap().to_bytes()).unwrap_or_default();
        let mut text = String::from_utf8_lossy(&bytes).into_owned();
        if let Ok(mut v) = serde_json::from_str::<serde_json::Value>(&text) { if let Some(m) = v.get_mut("metadata").and_then(|m| m.as_object_mut()) { m.remove("managedFields"); } text = v.to_string(); }
        println!("{method} {path} {}\n   -> {status} {ct} {warn:?} {}", &body.chars().take(150).collect::<String>(), text.chars().take(600).collect::<String>());
    }
}
