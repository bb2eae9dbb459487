//! `/healthz`, `/livez` and `/readyz`, with and without their checks.
//!
//! Rule: `apiserver/pkg/server/healthz/healthz.go`. All checks pass at once here: there is nothing that starts later.

use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;

use crate::error::go_quote;
use crate::request::Query;

const TEXT: &str = "text/plain; charset=utf-8";
/// What is checked first of a server that lives.
const OF_LIFE: [&str; 4] = ["ping", "log", "loopback-serving-certificate", "etcd"];
/// What is checked first of a server that is ready, and last.
const OF_READINESS: [&str; 5] = ["ping", "log", "etcd", "etcd-readiness", "informer-sync"];
const LAST_OF_READINESS: &str = "shutdown";
/// What starts with the server.
const STARTED: [&str; 27] = [
    "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/generic-apiserver-start-informers",
    "poststarthook/priority-and-fairness-config-consumer",
    "poststarthook/priority-and-fairness-filter",
    "poststarthook/storage-object-count-tracker-hook",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/storage-readiness",
    "poststarthook/start-legacy-token-tracking-controller",
    "poststarthook/start-service-ip-repair-controllers",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/priority-and-fairness-config-producer",
    "poststarthook/bootstrap-controller",
    "poststarthook/start-kubernetes-service-cidr-controller",
    "poststarthook/start-kube-aggregator-informers",
    "poststarthook/apiservice-status-local-available-controller",
    "poststarthook/apiservice-status-remote-available-controller",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-discovery-controller",
    "poststarthook/kube-apiserver-autoregistration",
    "autoregister-completion",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/apiservice-openapiv3-controller",
];

/// The answer below one of the three paths; `None` where there is no such check.
pub fn respond_health(which: &str, check: &[&str], query: &Query) -> Option<Response> {
    let checks = list_checks(which);
    if !check.is_empty() {
        let check = check.join("/");
        return checks.contains(&check.as_str()).then(|| ([(CONTENT_TYPE, TEXT)], "ok").into_response());
    }
    if query.get("verbose").is_none() {
        return Some(([(CONTENT_TYPE, TEXT)], "ok").into_response());
    }
    let excluded = query.all("exclude");
    let line = |check: &&str| match excluded.contains(check) {
        true => format!("[+]{check} excluded: ok\n"),
        false => format!("[+]{check} ok\n"),
    };
    let mut text: String = checks.iter().map(line).collect();
    let mut unknown: Vec<String> =
        excluded.iter().filter(|name| !checks.contains(name)).map(|name| go_quote(name)).collect();
    unknown.sort_unstable();
    if !unknown.is_empty() {
        text += &format!("warn: some health checks cannot be excluded: no matches for {}\n", unknown.join(","));
    }
    Some(([(CONTENT_TYPE, TEXT)], format!("{text}{which} check passed\n")).into_response())
}

fn list_checks(which: &str) -> Vec<&'static str> {
    let (first, last): (&[&str], &[&str]) =
        if which == "readyz" { (&OF_READINESS, &[LAST_OF_READINESS]) } else { (&OF_LIFE, &[]) };
    [first, &STARTED, last].concat()
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    async fn ask(which: &str, check: &[&str], query: &str) -> Option<String> {
        let answer = respond_health(which, check, &Query::parse(Some(query)))?;
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        Some(String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn checks_are_listed_excluded_and_asked_for_one_by_one() {
        assert_eq!(ask("readyz", &[], "").await.as_deref(), Some("ok"));
        let ready = ask("readyz", &[], "verbose").await.unwrap();
        assert!(ready.starts_with("[+]ping ok\n[+]log ok\n[+]etcd ok\n[+]etcd-readiness ok\n"), "{ready}");
        assert!(ready.ends_with("[+]shutdown ok\nreadyz check passed\n"), "{ready}");
        let live = ask("livez", &[], "verbose&exclude=etcd&exclude=nope").await.unwrap();
        assert!(live.contains("[+]etcd excluded: ok\n") && !live.contains("shutdown"), "{live}");
        let end = "warn: some health checks cannot be excluded: no matches for \"nope\"\nlivez check passed\n";
        assert!(live.ends_with(end), "{live}");
        assert_eq!(ask("livez", &["poststarthook", "rbac", "bootstrap-roles"], "").await.as_deref(), Some("ok"));
        assert_eq!(ask("livez", &["shutdown"], "").await, None);
        assert!(ask("readyz", &["informer-sync"], "").await.is_some());
    }
}
