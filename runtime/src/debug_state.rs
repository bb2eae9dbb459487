//! `/debug/state` of the admin port: what a process knows of itself, for who looks for a fault.
//!
//! Rules:
//! - It is shown to whoever may `get` this path of the API server that the component works on: the API server says
//!   whose the bearer token is, and whether he may. Nothing of that is kept. One is answered at a time, others are told
//!   to come again, and a refused token keeps its turn for a while, also if who sent it has gone.
//! - It says whether the process is ready, which leases it holds, which writes failed last, and what each part that
//!   runs here says of its state. A part is asked through its loop, so that one that is stuck shows.
//! - It is JSON of [`LARGEST_ANSWER`] bytes at most: of long lists the first entries, with how many there are. Reading
//!   it changes nothing.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    http::{
        HeaderMap, StatusCode,
        header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE},
    },
    response::{IntoResponse, Response},
    routing::get,
};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReviewSpec};
use kube::Client;
use serde_json::{Value, json};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::{Instant, timeout},
};

use crate::{access, metric::Leaders, serve::Ready, write_metrics::WriteMetrics};

/// Where it is, and what its reader must be allowed to `get`.
pub const DEBUG_STATE_PATH: &str = "/debug/state";
/// Bytes of an answer.
pub const LARGEST_ANSWER: usize = 256 * 1024;
/// Entries of a list that are shown.
const MOST_LISTED: usize = 50;
/// Characters of a text that are shown.
const LONGEST_TEXT: usize = 300;
/// Characters of a token.
const LONGEST_TOKEN: usize = 16 * 1024;
/// How long the API server has to say who asks, and whether he may.
const REVIEW_WITHIN: Duration = Duration::from_secs(10);
/// How long a part has to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How long a refused token keeps its turn.
const REFUSED_FOR: Duration = Duration::from_millis(250);

/// The parts of a process that say what state they are in. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct ComponentStates(Arc<Mutex<BTreeMap<&'static str, mpsc::Sender<StateQuestion>>>>);

/// Somebody wants to know the state of a component.
#[derive(Debug)]
pub struct StateQuestion(oneshot::Sender<Value>);

impl StateQuestion {
    /// Answers it.
    pub fn answer(self, state: Value) {
        // Who asked may have gone.
        self.0.send(state).unwrap_or_default();
    }
}

impl ComponentStates {
    /// The questions for a component that starts; those of one that ran before it under this name end.
    #[must_use]
    pub fn register(&self, component: &'static str) -> mpsc::Receiver<StateQuestion> {
        let (questions, asked) = mpsc::channel(1);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(component, questions);
        asked
    }

    async fn describe_components(&self) -> Value {
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let asked = parts.into_iter().map(|(name, questions)| async move {
            match ask_component(&questions).await {
                Ok(state) => json!({"name": name, "state": state}),
                Err(why) => json!({"name": name, "unknown": why}),
            }
        });
        futures::future::join_all(asked).await.into()
    }
}

async fn ask_component(questions: &mpsc::Sender<StateQuestion>) -> Result<Value, String> {
    let (question, answer) = oneshot::channel();
    let asked = async {
        questions.send(StateQuestion(question)).await.ok()?;
        answer.await.ok()
    };
    match timeout(ANSWER_WITHIN, asked).await {
        Ok(state) => state.ok_or_else(|| "it does not run any more".to_owned()),
        Err(_) => Err(format!("its loop did not answer within {} s", ANSWER_WITHIN.as_secs())),
    }
}

/// How many there are, and the first of them, which alone are described.
#[must_use]
pub fn list_first<T>(mut all: impl Iterator<Item = T>, describe: impl Fn(T) -> Value) -> Value {
    let first: Vec<Value> = all.by_ref().take(MOST_LISTED).map(describe).collect();
    json!({"count": first.len() + all.count(), "first": first})
}

/// What a process shows.
#[derive(Debug, Clone)]
pub struct ProcessState {
    /// Whether it is ready.
    pub ready: Ready,
    /// Its leases.
    pub leaders: Leaders,
    /// How its writes go.
    pub writes: WriteMetrics,
    /// Its parts.
    pub components: ComponentStates,
}

impl ProcessState {
    async fn describe_process(&self) -> Value {
        let leases = self.leaders.list_leases();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "unready": self.ready.find_unready_reason(),
            "leases": leases.into_iter().map(|(name, held)| json!({"name": name, "held": held})).collect::<Vec<_>>(),
            "failedWrites": self.writes.list_last_failures(Instant::now()),
            "components": self.components.describe_components().await,
        })
    }
}

/// Who may not see it, and why.
#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    Busy,
    NoToken,
    Unknown,
    Forbidden(String),
    Unanswered,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let bearer = [(WWW_AUTHENTICATE, "Bearer")];
        match self {
            Self::Busy => (StatusCode::TOO_MANY_REQUESTS, "somebody else is being answered").into_response(),
            Self::NoToken => (StatusCode::UNAUTHORIZED, bearer, "a bearer token is needed").into_response(),
            Self::Unknown => (StatusCode::UNAUTHORIZED, bearer, "the token was refused").into_response(),
            Self::Forbidden(user) => {
                (StatusCode::FORBIDDEN, format!("{user} may not get {DEBUG_STATE_PATH} of the API server"))
                    .into_response()
            }
            Self::Unanswered => {
                (StatusCode::SERVICE_UNAVAILABLE, "the API server could not be asked who asks").into_response()
            }
        }
    }
}

/// The route. `client` asks who somebody is.
pub fn debug_route(client: Client, process: ProcessState) -> Router {
    let turns = Arc::new(Semaphore::new(1));
    Router::new().route(
        DEBUG_STATE_PATH,
        get(move |headers: HeaderMap| async move {
            let Ok(turn) = turns.try_acquire_owned() else { return Refusal::Busy.into_response() };
            // A task of its own: who hangs up does not end his turn, and its wait, by that.
            let answer = tokio::spawn(answer_reader(client, process, headers, turn)).await;
            answer.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
        }),
    )
}

async fn answer_reader(
    client: Client,
    process: ProcessState,
    headers: HeaderMap,
    _turn: OwnedSemaphorePermit,
) -> Response {
    if let Err(refusal) = admit_reader(&client, &headers).await {
        // Whatever the API server was asked about, and did not admit.
        if refusal != Refusal::NoToken {
            tokio::time::sleep(REFUSED_FOR).await;
        }
        return refusal.into_response();
    }
    let state = process.describe_process().await;
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], write_bounded(&state)).into_response()
}

async fn admit_reader(client: &Client, headers: &HeaderMap) -> Result<(), Refusal> {
    let token = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let token = token.map(str::trim).filter(|token| !token.is_empty() && token.len() <= LONGEST_TOKEN);
    let token = token.ok_or(Refusal::NoToken)?;
    let path = NonResourceAttributes { path: Some(DEBUG_STATE_PATH.to_owned()), verb: Some("get".to_owned()) };
    let asked = SubjectAccessReviewSpec { non_resource_attributes: Some(path), ..SubjectAccessReviewSpec::default() };
    let review = async {
        let Some(user) = access::review_token(client, token).await? else { return Ok(Err(Refusal::Unknown)) };
        let may = access::review_access(client, &user, asked).await?;
        Ok::<_, kube::Error>(if may { Ok(()) } else { Err(Refusal::Forbidden(user.username.unwrap_or_default())) })
    };
    match timeout(REVIEW_WITHIN, review).await {
        Ok(Ok(result)) => result,
        Ok(Err(error)) => {
            tracing::warn!(%error, "failed to ask who wants to see the state");
            Err(Refusal::Unanswered)
        }
        Err(_) => Err(Refusal::Unanswered),
    }
}

/// With the longest lists that fit.
fn write_bounded(state: &Value) -> String {
    for most in [MOST_LISTED, MOST_LISTED / 5, 0] {
        let text = cut_lists(state, most).to_string();
        if text.len() <= LARGEST_ANSWER {
            return text;
        }
    }
    json!({"unknown": "the state does not fit"}).to_string()
}

/// What [`list_first`] wrote has so many entries at most. Other lists are whole: a part without its name, or a process
/// without its leases, would read like one that has none.
fn cut_lists(value: &Value, most: usize) -> Value {
    match value {
        Value::String(text) => cut_text(text).into(),
        Value::Array(all) => all.iter().map(|one| cut_lists(one, most)).collect(),
        Value::Object(fields) => {
            let cut = |(name, value): (&String, &Value)| {
                let shown: Value = match value {
                    Value::Array(all) if name == "first" => {
                        all.iter().take(most).map(|one| cut_lists(one, most)).collect()
                    }
                    other => cut_lists(other, most),
                };
                (name.clone(), shown)
            };
            Value::Object(fields.iter().map(cut).collect())
        }
        other => other.clone(),
    }
}

fn cut_text(text: &str) -> String {
    match text.char_indices().nth(LONGEST_TEXT) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use tower::ServiceExt as _;

    use super::*;
    use crate::metric::SharedRegistry;

    /// An API server that knows tokens that begin with `good`, and lets only `good-sre` see the state. What it was
    /// asked.
    fn api() -> (Client, Arc<Mutex<Vec<Value>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let log = Arc::clone(&log);
            async move {
                let body = request.into_body().collect_bytes().await.map_err(tower::BoxError::from)?;
                let mut review: Value = serde_json::from_slice(&body)?;
                log.lock().unwrap().push(review.clone());
                let code = if review["spec"]["token"] == "away" { 503 } else { 201 };
                review["status"] = match review["spec"]["token"].as_str() {
                    Some(token) => {
                        let user = json!({"username": token, "uid": "u", "groups": ["g"]});
                        json!({"authenticated": token.starts_with("good"), "user": user})
                    }
                    None => json!({"allowed": review["spec"]["user"] == "good-sre"}),
                };
                let body = kube::client::Body::from(review.to_string().into_bytes());
                http::Response::builder().status(code).body(body).map_err(tower::BoxError::from)
            }
        });
        (Client::new(service, "ns"), asked)
    }

    struct Served {
        router: Router,
        asked: Arc<Mutex<Vec<Value>>>,
        components: ComponentStates,
        leaders: Leaders,
    }

    impl Served {
        fn start() -> Self {
            let (client, asked) = api();
            let process = ProcessState {
                ready: Ready::default(),
                leaders: Leaders::register(&SharedRegistry::default()),
                writes: WriteMetrics::default(),
                components: ComponentStates::default(),
            };
            let (components, leaders) = (process.components.clone(), process.leaders.clone());
            Self { router: debug_route(client, process), asked, components, leaders }
        }

        async fn ask(&self, authorization: Option<&str>) -> (u16, String) {
            let mut request = http::Request::get(DEBUG_STATE_PATH);
            if let Some(value) = authorization {
                request = request.header(AUTHORIZATION, value);
            }
            let answer = self.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
            let status = answer.status().as_u16();
            let body = axum::body::to_bytes(answer.into_body(), 2 * LARGEST_ANSWER).await.unwrap();
            (status, String::from_utf8(body.to_vec()).unwrap())
        }

        async fn read(&self) -> Value {
            let (status, text) = self.ask(Some("Bearer good-sre")).await;
            assert_eq!(status, 200, "{text}");
            serde_json::from_str(&text).unwrap()
        }
    }

    /// A part that answers each question with this.
    fn run_part(components: &ComponentStates, name: &'static str, state: Value) {
        let mut questions = components.register(name);
        tokio::spawn(async move {
            while let Some(question) = questions.recv().await {
                question.answer(state.clone());
            }
        });
    }

    #[tokio::test(start_paused = true)]
    async fn who_may_not_get_the_path_is_told_nothing() {
        let served = Served::start();
        run_part(&served.components, "controller", json!({"secret": "state"}));
        let long = format!("Bearer {}", "x".repeat(LONGEST_TOKEN + 1));
        for (authorization, status) in [
            (None, 401),
            (Some("Basic good-sre"), 401),
            (Some("Bearer "), 401),
            (Some(long.as_str()), 401),
            (Some("Bearer wrong"), 401),
            (Some("Bearer good-tenant"), 403),
            (Some("Bearer away"), 503),
        ] {
            let (reported, text) = served.ask(authorization).await;
            assert_eq!(reported, status, "{authorization:?}: {text}");
            assert!(!text.contains("secret"), "{text}");
        }
        // What is no token is nobody's question.
        assert_eq!(served.asked.lock().unwrap().len(), 4);
    }

    #[tokio::test]
    async fn the_api_server_is_asked_for_this_path_and_this_user() {
        let served = Served::start();
        served.read().await;
        let asked = served.asked.lock().unwrap();
        assert_eq!(asked[1]["spec"]["nonResourceAttributes"], json!({"path": "/debug/state", "verb": "get"}));
        let spec = &asked[1]["spec"];
        assert_eq!((&spec["user"], &spec["groups"], &spec["uid"]), (&json!("good-sre"), &json!(["g"]), &json!("u")));
        assert!(spec["resourceAttributes"].is_null());
    }

    #[tokio::test]
    async fn it_says_what_the_process_and_its_parts_know() {
        let served = Served::start();
        run_part(&served.components, "scheduler", json!({"due": 3}));
        served.leaders.add_lease("caldera-scheduler").set(1);
        let _not_held = served.leaders.add_lease("caldera-controller");
        let state = served.read().await;
        assert_eq!(state["unready"], "not yet");
        let leases =
            json!([{"name": "caldera-controller", "held": false}, {"name": "caldera-scheduler", "held": true}]);
        assert_eq!(state["leases"], leases);
        assert_eq!(state["components"], json!([{"name": "scheduler", "state": {"due": 3}}]));
        assert_eq!(state["failedWrites"], json!([]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_whose_loop_is_stuck_or_over_is_told_apart_from_one_that_answers() {
        let served = Served::start();
        run_part(&served.components, "scheduler", json!({}));
        let _stuck = served.components.register("controller");
        drop(served.components.register("webhook"));
        let state = served.read().await;
        assert_eq!(state["components"][0]["unknown"], "its loop did not answer within 5 s");
        assert_eq!(state["components"][1]["state"], json!({}));
        assert_eq!(state["components"][2]["unknown"], "it does not run any more");
    }

    #[tokio::test]
    async fn an_answer_has_an_upper_limit_whatever_the_state_is() {
        let served = Served::start();
        let long = json!({"name": "n".repeat(10_000)});
        let list = || list_first(0..100_000, |_| long.clone());
        let lists: serde_json::Map<String, Value> = (0..40).map(|at| (format!("list{at}"), list())).collect();
        run_part(&served.components, "controller", lists.into());
        let (status, text) = served.ask(Some("Bearer good-sre")).await;
        assert!(status == 200 && text.len() <= LARGEST_ANSWER, "{status} {}", text.len());
        let state: Value = serde_json::from_str(&text).unwrap();
        let list = &state["components"][0]["state"]["list7"];
        assert_eq!(list["count"], 100_000);
        assert_eq!(list["first"].as_array().unwrap().len(), 10);
        assert_eq!(list["first"][0]["name"].as_str().unwrap().len(), LONGEST_TEXT + 3);
    }

    #[tokio::test]
    async fn what_does_not_fit_loses_entries_of_lists_and_no_part_of_the_process() {
        let served = Served::start();
        let _held = served.leaders.add_lease("caldera-controller");
        let long = json!({"name": "n".repeat(LONGEST_TEXT)});
        let list = || list_first(0..50, |_| long.clone());
        let lists: serde_json::Map<String, Value> = (0..200).map(|at| (format!("list{at}"), list())).collect();
        run_part(&served.components, "controller", lists.into());
        let state = served.read().await;
        assert_eq!(state["leases"][0]["name"], "caldera-controller");
        assert_eq!(state["components"][0]["name"], "controller");
        assert_eq!(state["components"][0]["state"]["list7"], json!({"count": 50, "first": []}));
    }

    #[test]
    fn a_text_is_cut_by_characters_and_says_so_only_then() {
        let fits = "ä".repeat(LONGEST_TEXT);
        assert_eq!(cut_text(&fits), fits);
        assert_eq!(cut_text(&format!("{fits}ä")), format!("{fits}..."));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_token_keeps_its_turn_also_if_who_sent_it_goes_away() {
        for token in ["wrong", "good-tenant", "away"] {
            let served = Served::start();
            let refused = format!("Bearer {token}");
            let hung_up = timeout(REFUSED_FOR / 2, served.ask(Some(refused.as_str()))).await;
            assert!(hung_up.is_err(), "{token} was answered at once");
            assert_eq!(served.ask(Some("Bearer good-sre")).await.0, 429, "{token}");
            tokio::time::sleep(REFUSED_FOR).await;
            assert_eq!(served.ask(Some("Bearer good-sre")).await.0, 200, "{token}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_is_answered_at_a_time() {
        let served = Served::start();
        let _stuck = served.components.register("controller");
        let (first, second) = tokio::join!(served.ask(Some("Bearer good-sre")), served.ask(Some("Bearer good-sre")));
        assert_eq!((first.0, second.0), (200, 429));
    }
}
