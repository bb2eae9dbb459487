//! Expected starts for programs: `GET /api/v1/namespaces/NAMESPACE/starts`, with a bearer token in its header.
//!
//! Rules:
//! - Told are the jobs of the namespace that wait and that the token's user may list, as on pages ([`super::access`]).
//!   Who may list no kind of jobs there is refused, whether there are any or not.
//! - What a start rests on is told as far as it names no member, or to whoever may list members.
//! - A request works nothing out: as a page does, it has the next forecast made, and waits a while for it where the
//!   last one is old. One that is too old to plan by is not told.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use caldera_core::gang::WorkloadRef;
use caldera_runtime::clock::format_time;
use jiff::Timestamp;
use serde_json::json;
use tokio::time::Instant;

use super::{
    access::{Access, Refusal},
    routes::{Console, Shared, find_bearer},
};
use crate::{
    console_starts::{PublishedStart, StartsAnswer, is_namespace_name},
    expected_start::{ExpectedStart, Forecast},
    latest_forecast::TimedForecast,
    view::{JobKey, Seen},
};

/// Starts in one answer.
const MOST_STARTS: usize = 5_000;
/// A forecast of this age is told at once.
const FRESH_SECONDS: i64 = 60;
/// One that is older than this is not told.
const STALE_SECONDS: i64 = 600;
/// How long a request waits for a fresh one, and between two looks.
const FORECAST_WAIT: Duration = Duration::from_secs(4);
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Why there is no answer, in words.
type Denial = (StatusCode, String);

/// What programs may ask.
pub fn route_starts() -> Router<Shared> {
    Router::new().route("/api/v1/namespaces/{namespace}/starts", get(serve_starts))
}

async fn serve_starts(State(console): State<Shared>, Path(namespace): Path<String>, headers: HeaderMap) -> Response {
    match find_starts(&console, &namespace, &headers).await {
        Ok(answer) => Json(answer).into_response(),
        Err((status, words)) => {
            let mut answer = (status, Json(json!({"error": words}))).into_response();
            if status == StatusCode::UNAUTHORIZED {
                answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            answer
        }
    }
}

async fn find_starts(console: &Console, namespace: &str, headers: &HeaderMap) -> Result<StartsAnswer, Denial> {
    let Some(token) = find_bearer(headers) else {
        let words = "send your bearer token for the Karmada API in header Authorization";
        return Err((StatusCode::UNAUTHORIZED, words.to_owned()));
    };
    if !is_namespace_name(namespace) {
        return Err((StatusCode::BAD_REQUEST, "that is not the name of a namespace".to_owned()));
    }
    let found = console.gatekeeper.find_namespace_access(token, namespace).await;
    let guest = found.map_err(|refusal| deny_refusal(&refusal))?;
    if !guest.access.sees_namespace(namespace) {
        let words = format!("you may list no kind of jobs in namespace {namespace}");
        return Err((StatusCode::FORBIDDEN, words));
    }
    let Some(latest) = read_fresh_forecast(console).await else {
        let words = "expected starts are being worked out: ask again in some seconds";
        return Err((StatusCode::SERVICE_UNAVAILABLE, words.to_owned()));
    };
    let seen = console.read_seen();
    build_answer(&seen, &guest.access, &latest, namespace)
}

fn deny_refusal(refusal: &Refusal) -> Denial {
    match refusal {
        Refusal::Unknown => (StatusCode::UNAUTHORIZED, "the API server does not know this token".to_owned()),
        Refusal::Failed(error) => {
            tracing::warn!(error = format!("{error:#}"), "can not ask who somebody is");
            let words = "the API server could not be asked what you may see: try again";
            (StatusCode::SERVICE_UNAVAILABLE, words.to_owned())
        }
    }
}

/// The last forecast, or the next where that comes soon.
async fn read_fresh_forecast(console: &Console) -> Option<Arc<TimedForecast>> {
    let is_younger = |forecast: &Arc<TimedForecast>, seconds: i64| {
        Timestamp::now().as_second().saturating_sub(forecast.at.as_second()) <= seconds
    };
    let until = Instant::now() + FORECAST_WAIT;
    let mut latest = console.forecast.read_latest();
    while Instant::now() < until && !latest.as_ref().is_some_and(|latest| is_younger(latest, FRESH_SECONDS)) {
        tokio::time::sleep(LOOK_INTERVAL).await;
        latest = console.forecast.peek_latest();
    }
    latest.filter(|latest| is_younger(latest, STALE_SECONDS))
}

pub(super) fn build_answer(
    seen: &Seen,
    access: &Access,
    latest: &TimedForecast,
    namespace: &str,
) -> Result<StartsAnswer, Denial> {
    let forecast = latest.answer.as_ref().map_err(|why| {
        let why = if access.clusters { format!(": {why}") } else { String::new() };
        (StatusCode::SERVICE_UNAVAILABLE, format!("expected starts could not be worked out{why}"))
    })?;
    let members: BTreeSet<&str> =
        if access.clusters { BTreeSet::new() } else { latest.places.keys().map(String::as_str).collect() };
    let visible = list_visible_starts(seen, access, forecast, namespace);
    let more = visible.len().saturating_sub(MOST_STARTS);
    let reported = visible.into_iter().take(MOST_STARTS);
    let starts = reported.map(|(workload, start)| report_start(workload, start, &members)).collect();
    Ok(StartsAnswer { namespace: namespace.to_owned(), worked_out_at: format_time(latest.at), starts, more })
}

/// Of jobs that wait still and that he may see.
fn list_visible_starts<'a>(
    seen: &Seen,
    access: &Access,
    forecast: &'a Forecast,
    namespace: &str,
) -> Vec<(&'a WorkloadRef, &'a ExpectedStart)> {
    let is_visible = |workload: &WorkloadRef| {
        let job = JobKey::of_workload(workload).and_then(|key| seen.job(&key));
        job.is_some_and(|job| access.may_see(&job) && job.state.is_gate_closed())
    };
    let here = forecast.list_starts().filter(|(workload, _)| workload.namespace == namespace);
    here.filter(|(workload, _)| is_visible(workload)).collect()
}

fn report_start(workload: &WorkloadRef, start: &ExpectedStart, hidden_members: &BTreeSet<&str>) -> PublishedStart {
    PublishedStart {
        group: workload.group.clone(),
        kind: workload.kind.clone(),
        name: workload.name.clone(),
        at: start.at.clone(),
        in_seconds: start.ahead,
        sure: start.sure,
        basis: describe_basis(start, hidden_members),
    }
}

/// What a start rests on: all that is said before the first part that names a member which the reader may not know. The
/// rest may be of that member, so it is left out, too.
fn describe_basis(start: &ExpectedStart, hidden_members: &BTreeSet<&str>) -> String {
    if start.basis.starts_with("your credentials") {
        return "the console's own account does not see everything that decides".to_owned();
    }
    let parts: Vec<&str> = start.basis.split("; ").collect();
    let reported: Vec<&str> = parts.iter().copied().take_while(|part| !names_any(part, hidden_members)).collect();
    match (reported.len() == parts.len(), reported.is_empty()) {
        (true, _) => start.basis.clone(),
        (false, true) => "who may list members is told why".to_owned(),
        (false, false) => format!("{}; who may list members is told what else", reported.join("; ")),
    }
}

/// Whether one of these names is a word of a text.
fn names_any(text: &str, names: &BTreeSet<&str>) -> bool {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let mut words = text.split(|c| !is_of_name(c)).map(|word| word.trim_matches(['.', '-']));
    words.any(|word| names.contains(word))
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use kube::Client;
    use serde_json::Value;
    use tokio_util::sync::CancellationToken;
    use tower::ServiceExt;

    use super::*;
    use crate::{console::routes::router, latest_forecast::ForecastFollower};

    fn start(basis: &str) -> ExpectedStart {
        ExpectedStart {
            at: Some("2026-01-01T00:05Z".to_owned()),
            ahead: Some(240),
            sure: true,
            basis: basis.to_owned(),
        }
    }

    #[test]
    fn what_a_start_rests_on_is_told_up_to_the_first_name_of_a_member() {
        let reported =
            |basis: &str, members: &[&str]| describe_basis(&start(basis), &members.iter().copied().collect());
        let counts = "12 of the 30 jobs before it give no estimate; assumed 1 h";
        assert_eq!(reported(counts, &["m1"]), counts);
        let caveat = format!("{counts}; nothing is taken to start in m1, m2, not ready");
        assert_eq!(reported(&caveat, &["m2"]), format!("{counts}; who may list members is told what else"));
        assert_eq!(reported(&caveat, &[]), caveat);
        let away = "member m1 can not be read: no route to 10.1.2.3; tried twice";
        assert_eq!(reported(away, &["m1"]), "who may list members is told why");
        let own = reported("your credentials do not show everything that decides", &[]);
        assert!(own.starts_with("the console's own account"), "{own}");
        for (text, is_named) in [("in m1.", true), ("in \"m1\":", true), ("m10", false), ("m1-b", false), ("", false)] {
            assert_eq!(names_any(text, &["m1"].into()), is_named, "{text}");
        }
    }

    /// A console before an API server that knows tokens `admin` and `tenant`; the latter may list Volcano Jobs of
    /// namespace `own`. Nothing else is answered: no start is ever worked out.
    fn console() -> Shared {
        let service = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
            let body = request.into_body().collect_bytes().await.map_err(tower::BoxError::from)?;
            let mut review: Value = serde_json::from_slice(&body).unwrap_or_default();
            let status = match review["kind"].as_str() {
                Some("TokenReview") => {
                    let token = review["spec"]["token"].as_str().unwrap_or_default().to_owned();
                    let is_known = ["admin", "tenant"].contains(&token.as_str());
                    review["status"] = json!({"authenticated": is_known, "user": {"username": token}});
                    201
                }
                Some("SubjectAccessReview") => {
                    let asked = &review["spec"]["resourceAttributes"];
                    let is_own = asked["namespace"] == "own" && asked["group"] == "batch.volcano.sh";
                    review["status"] = json!({"allowed": review["spec"]["user"] == "admin" || is_own});
                    201
                }
                _ => 500,
            };
            let body = kube::client::Body::from(review.to_string().into_bytes());
            http::Response::builder().status(status).body(body).map_err(tower::BoxError::from)
        });
        let client = Client::new(service, "ns");
        let forecast = ForecastFollower::start(client.clone(), None, None, CancellationToken::new());
        Arc::new(Console::new(client, false, forecast))
    }

    async fn ask(console: &Shared, namespace: &str, headers: &[(&str, &str)]) -> (u16, String, bool) {
        let mut request = http::Request::get(format!("/api/v1/namespaces/{namespace}/starts"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer =
            router(Arc::clone(console), route_starts()).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let (status, names_way) = (
            answer.status().as_u16(),
            answer.headers().get(header::WWW_AUTHENTICATE).is_some_and(|way| way == "Bearer"),
        );
        let body: Value = serde_json::from_slice(&to_bytes(answer.into_body(), 4096).await.unwrap()).unwrap();
        (status, body["error"].as_str().unwrap().to_owned(), names_way)
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_refused_is_told_why_in_json() {
        let console = console();
        for headers in [&[][..], &[("authorization", "Basic admin")], &[("cookie", "caldera-token=admin")]] {
            let (status, words, names_way) = ask(&console, "own", headers).await;
            assert!(status == 401 && names_way && words.contains("bearer token"), "{status} {words}");
        }
        let (status, words, _) = ask(&console, "own", &[("authorization", "Bearer wrong")]).await;
        assert!(status == 401 && words == "the API server does not know this token", "{status} {words}");
        let tenant = [("authorization", "Bearer tenant")];
        // Neither has jobs: that one is refused says nothing of it.
        for namespace in ["theirs", "none"] {
            let (status, words, _) = ask(&console, namespace, &tenant).await;
            assert_eq!((status, words), (403, format!("you may list no kind of jobs in namespace {namespace}")));
        }
        for wrong in ["Own", "a%2Fb", "-a", "a.b"] {
            assert_eq!(ask(&console, wrong, &tenant).await.0, 400, "{wrong}");
        }
        // Why nothing can be worked out may name members.
        let (status, words, _) = ask(&console, "own", &tenant).await;
        assert_eq!((status, words.as_str()), (503, "expected starts could not be worked out"));
        let (status, words, _) = ask(&console, "own", &[("authorization", "Bearer admin")]).await;
        assert!(status == 503 && words.starts_with("expected starts could not be worked out: "), "{words}");
    }
}
