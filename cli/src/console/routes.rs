//! Requests in, pages out: who asks, what he may see, and updates as they happen.
//!
//! Rules:
//! - A token comes in a header or in a cookie that scripts can not read and other sites can not send. It is kept
//!   nowhere else. Each request asks again what it may see, within half a minute.
//! - A page changes nothing. The two forms that set or clear the cookie are refused where another site sends them.
//! - A stream of updates ends after a while and is asked for again, so that it is bounded like any other request.

use std::{
    convert::Infallible,
    sync::{Arc, RwLock, RwLockReadGuard},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{
        HeaderMap, HeaderValue, StatusCode, Uri,
        header::{self, HeaderName},
    },
    middleware::{self, Next},
    response::{
        IntoResponse, Redirect, Response,
        sse::{Event, Sse},
    },
    routing::{get, post},
};
use futures::stream;
use jiff::Timestamp;
use kube::{Api, Client, api::DynamicObject, api::ListParams};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::Instant,
};

use super::{
    access::{Access, AccessReviewer, Refusal, ReviewedUser, list_namespaces_and_kinds},
    answers::AnswerCache,
    html::{Html, find_value},
    page::Page,
    query::PageQuery,
    record::Record,
};
use crate::{
    events,
    latest_forecast::ForecastFollower,
    objects,
    view::{JobKey, Seen},
};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("live.js");
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'none'";
/// Of the form that logs in.
const FORM: usize = 16 * 1024;
/// A working day.
const COOKIE_SECONDS: u32 = 28_800;
const COOKIE: &str = "caldera-token";
/// Streams of updates at once.
const STREAMS: usize = 64;
/// Between two looks at what changed.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// Looks after which a page is made anew where nothing changed: ages go on.
const UNCHANGED_LOOKS_BEFORE_REDRAW: u32 = 10;
/// How long a stream lasts; the browser asks for the next one.
pub const STREAM: Duration = Duration::from_secs(50);
/// Events of a job that are shown.
const MOST_SHOWN_EVENTS: u32 = 500;
/// How long they count, for all who look at the job.
const EVENTS_FOR: Duration = Duration::from_secs(10);

/// Events, or why there are none to see.
type Said = Result<Arc<Vec<events::EventRow>>, String>;

/// What all requests share.
pub struct Console {
    pub client: Client,
    pub gatekeeper: AccessReviewer,
    pub seen: RwLock<Seen>,
    pub record: RwLock<Record>,
    pub forecast: ForecastFollower,
    /// Counts changes.
    pub changed: watch::Sender<u64>,
    pub streams: Arc<Semaphore>,
    /// Of jobs that are looked at.
    events: AnswerCache<JobKey, Arc<Vec<events::EventRow>>>,
    /// Whether cookies may be sent over TLS alone.
    pub is_tls: bool,
}

impl Console {
    #[must_use]
    pub fn new(client: Client, is_tls: bool, forecast: ForecastFollower) -> Self {
        let gatekeeper = AccessReviewer::new(client.clone());
        let (changed, streams) = (watch::Sender::new(0), Arc::new(Semaphore::new(STREAMS)));
        let events = AnswerCache::new(EVENTS_FOR, STREAMS, |_| true);
        let (seen, record) = (RwLock::default(), RwLock::default());
        Self { client, gatekeeper, seen, record, forecast, changed, streams, events, is_tls }
    }

    pub fn read_seen(&self) -> RwLockReadGuard<'_, Seen> {
        self.seen.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

pub type Shared = Arc<Console>;

/// The console's routes: pages, and those of programs.
pub fn router(console: Shared, programs: Router<Shared>) -> Router {
    let asset =
        |kind: &'static str, text: &'static str| get(move || async move { ([(header::CONTENT_TYPE, kind)], text) });
    Router::new()
        .route("/login", get(show_login).post(log_in))
        .route("/logout", post(log_out))
        .route("/live", get(stream_page))
        .merge(programs)
        .route("/style.css", asset("text/css; charset=utf-8", STYLE))
        .route("/live.js", asset("text/javascript; charset=utf-8", SCRIPT))
        .fallback(get(show_page))
        .layer(middleware::from_fn(add_security_headers))
        .layer(tower_http::catch_panic::CatchPanicLayer::new())
        .with_state(console)
}

/// What a browser must not do with an answer.
async fn add_security_headers(request: Request, next: Next) -> Response {
    let mut answer = next.run(request).await;
    let headers = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in headers {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// The bearer token of a request.
fn find_token(headers: &HeaderMap) -> Option<String> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let cookie = || {
        let mut pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(name, _)| *name == COOKIE).map(|(_, value)| value)
    };
    read_bearer(headers).or_else(cookie).filter(|token| is_token(token)).map(str::to_owned)
}

fn read_bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ").map(str::trim)
}

/// The bearer token of a program, which has no cookie.
pub fn find_bearer(headers: &HeaderMap) -> Option<&str> {
    read_bearer(headers).filter(|token| is_token(token))
}

/// What a token may be made of (RFC 6750): nothing that ends a header or a cookie.
fn is_token(token: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~+/=".contains(c);
    !token.is_empty() && token.len() <= FORM && token.chars().all(is_plain)
}

/// Whether another site made the browser ask.
fn is_cross_site(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").and_then(|value| value.to_str().ok());
    if let Some(site) = site {
        return !["same-origin", "none"].contains(&site);
    }
    let Some(origin) = headers.get(header::ORIGIN).and_then(|value| value.to_str().ok()) else { return false };
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok());
    origin.split_once("://").map(|(_, host)| host) != host
}

async fn find_user_access(console: &Console, token: &str, query: &str) -> Result<Arc<ReviewedUser>, Refusal> {
    let named = find_value(query, "namespace").filter(|name| name.len() <= 63);
    console
        .gatekeeper
        .find_user_access(token, named.as_deref(), || list_namespaces_and_kinds(&console.read_seen()))
        .await
}

async fn show_page(State(console): State<Shared>, uri: Uri, headers: HeaderMap) -> Response {
    let Some(page) = Page::find(uri.path()) else {
        return respond_with_message(StatusCode::NOT_FOUND, "there is no such page");
    };
    let Some(token) = find_token(&headers) else { return Redirect::to("/login").into_response() };
    let query = uri.query().unwrap_or_default();
    let guest = match find_user_access(&console, &token, query).await {
        Ok(guest) => guest,
        Err(refusal) => return respond_to_refusal(&refusal),
    };
    let said = list_events(&console, &page, &guest).await;
    match render_page(&console, &page, &guest.access, query, &said) {
        Some(main) => frame_page(StatusCode::OK, &page.title(), Some(&guest.access.user), &main),
        None => respond_with_message(StatusCode::NOT_FOUND, "there is no such thing, or you may not see it"),
    }
}

fn render_page(console: &Console, page: &Page, access: &Access, query: &str, said: &Said) -> Option<Html> {
    let filter = find_value(query, "q").unwrap_or_default();
    let (seen, now) = (console.read_seen(), Timestamp::now());
    let events = said.as_ref().map(|events| events.as_slice()).map_err(String::as_str);
    let mut main = Html::new();
    main.raw("<h1>").text(page.title()).raw("</h1>\n");
    let forecast = page.wants_forecast().then(|| console.forecast.read_latest()).flatten();
    let record = console.record.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    let asked =
        PageQuery { seen: &seen, access, now, events, filter: &filter, forecast: forecast.as_deref(), record: &record };
    main.add(&page.render(asked)?);
    Some(main)
}

/// Events of the job of a page, where its reader may list events there.
async fn list_events(console: &Console, page: &Page, guest: &ReviewedUser) -> Said {
    let Page::Job(key) = page else { return Ok(Arc::default()) };
    let may_see = console.read_seen().job(key).is_some_and(|job| guest.access.may_see(&job));
    if !may_see {
        return Ok(Arc::default());
    }
    match console.gatekeeper.sees_events(guest, &key.namespace).await {
        Ok(true) => {
            let read = console.events.get_or_find(key, async |_| read_events(console, key).await.map(Arc::new)).await;
            read.map_err(|error| format!("they could not be read: {error}"))
        }
        Ok(false) => Err("you may not list events of this namespace".to_owned()),
        Err(error) => Err(format!("{error:#}")),
    }
}

async fn read_events(console: &Console, key: &JobKey) -> Result<Vec<events::EventRow>, kube::Error> {
    let api: Api<DynamicObject> =
        Api::namespaced_with(console.client.clone(), &key.namespace, &objects::event_resource());
    let params = ListParams::default().fields(&format!("involvedObject.name={}", key.name)).limit(MOST_SHOWN_EVENTS);
    let listed = api.list(&params).await?;
    let events: Vec<_> = listed.items.into_iter().filter_map(|event| serde_json::to_value(event).ok()).collect();
    Ok(events::make_rows(&events, Timestamp::now()))
}

fn respond_to_refusal(refusal: &Refusal) -> Response {
    match refusal {
        Refusal::Unknown => {
            let mut answer =
                build_login_form(StatusCode::UNAUTHORIZED, "The API server does not know your token any more.");
            clear_cookie(&mut answer);
            answer
        }
        Refusal::Failed(error) => {
            tracing::warn!(error = format!("{error:#}"), "can not ask who somebody is");
            respond_with_message(
                StatusCode::SERVICE_UNAVAILABLE,
                "the API server could not be asked what you may see; try again",
            )
        }
    }
}

fn respond_with_message(status: StatusCode, words: &str) -> Response {
    let mut main = Html::new();
    main.raw("<h1>").text(status).raw("</h1>\n").paragraph(words);
    frame_page(status, words, None, &main)
}

/// A whole page: landmarks, the way around, and what it is about.
fn frame_page(status: StatusCode, title: &str, user: Option<&str>, main: &Html) -> Response {
    let mut html = Html::new();
    html.raw("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    html.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    html.raw("<meta name=\"color-scheme\" content=\"light dark\"><title>").text(title).raw(" - Caldera</title>");
    html.raw("<link rel=\"stylesheet\" href=\"/style.css\">");
    if user.is_some() {
        html.raw("<script src=\"/live.js\" defer></script>");
    }
    html.raw("</head><body>\n<a class=\"skip\" href=\"#main\">To the content</a>\n<header><span class=\"name\">Caldera</span>");
    if let Some(user) = user {
        html.raw("<nav aria-label=\"Pages\"><ul>");
        for (path, label) in [("/", "Fleet"), ("/map", "Map"), ("/jobs", "Jobs"), ("/changes", "Changes")] {
            html.raw("<li><a href=\"").raw(path).raw("\">").raw(label).raw("</a></li>");
        }
        html.raw("</ul></nav><form class=\"user\" method=\"post\" action=\"/logout\"><span>").text(user);
        html.raw("</span> <button>Log out</button></form>");
    }
    html.raw("</header>\n<main id=\"main\" tabindex=\"-1\">\n").add(main).raw("</main>\n");
    if user.is_some() {
        html.raw("<footer><button id=\"pause\" type=\"button\" aria-pressed=\"false\" hidden>Pause updates</button> ");
        html.raw("<span id=\"live\" role=\"status\"></span></footer>\n");
    }
    html.raw("</body></html>\n");
    let kind = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
    (status, kind, html.into_string()).into_response()
}

async fn show_login() -> Response {
    build_login_form(StatusCode::OK, "")
}

fn build_login_form(status: StatusCode, trouble: &str) -> Response {
    let mut main = Html::new();
    main.raw("<h1>Log in</h1>\n");
    if !trouble.is_empty() {
        main.raw("<p class=\"trouble\" role=\"alert\">").text(trouble).raw("</p>\n");
    }
    main.raw("<form class=\"login\" method=\"post\" action=\"/login\">");
    main.raw("<label for=\"token\">Your bearer token for the Karmada API</label>");
    main.raw("<input id=\"token\" name=\"token\" type=\"password\" autocomplete=\"off\" required autofocus ");
    main.raw("aria-describedby=\"how\"><button>Log in</button></form>\n");
    main.raw(
        "<p id=\"how\">It is the one of your kubeconfig, or <code>kubectl create token NAME</code> makes one. You ",
    );
    main.raw("see what it may list. It is kept in your browser alone, for eight hours at most.</p>\n");
    frame_page(status, "Log in", None, &main)
}

async fn log_in(State(console): State<Shared>, headers: HeaderMap, body: Body) -> Response {
    if is_cross_site(&headers) {
        return respond_with_message(StatusCode::FORBIDDEN, "another site sent this form");
    }
    let Ok(form) = axum::body::to_bytes(body, FORM).await else {
        return respond_with_message(StatusCode::PAYLOAD_TOO_LARGE, "the form is too large");
    };
    let token = find_value(&String::from_utf8_lossy(&form), "token").unwrap_or_default();
    let token = token.trim();
    if !is_token(token) {
        return build_login_form(StatusCode::UNAUTHORIZED, "That is no bearer token.");
    }
    match find_user_access(&console, token, "").await {
        Ok(_) => {
            let mut answer = Redirect::to("/").into_response();
            let add_security_headers = if console.is_tls { "; Secure" } else { "" };
            let cookie = format!(
                "{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/; Max-Age={COOKIE_SECONDS}{add_security_headers}"
            );
            // A token has nothing that a header must not have.
            if let Ok(cookie) = HeaderValue::from_str(&cookie) {
                answer.headers_mut().insert(header::SET_COOKIE, cookie);
            }
            answer
        }
        Err(Refusal::Unknown) => build_login_form(StatusCode::UNAUTHORIZED, "The API server does not know this token."),
        Err(failed) => respond_to_refusal(&failed),
    }
}

async fn log_out(headers: HeaderMap) -> Response {
    if is_cross_site(&headers) {
        return respond_with_message(StatusCode::FORBIDDEN, "another site sent this form");
    }
    let mut answer = Redirect::to("/login").into_response();
    clear_cookie(&mut answer);
    answer
}

fn clear_cookie(answer: &mut Response) {
    let cookie = "caldera-token=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0";
    answer.headers_mut().insert(header::SET_COOKIE, HeaderValue::from_static(cookie));
}

/// What a stream goes on with.
struct Stream {
    console: Shared,
    page: Page,
    query: String,
    token: String,
    changed: watch::Receiver<u64>,
    /// The page as it was last sent.
    sent: String,
    until: Instant,
    _place: OwnedSemaphorePermit,
}

async fn stream_page(State(console): State<Shared>, uri: Uri, headers: HeaderMap) -> Response {
    let wanted = find_value(uri.query().unwrap_or_default(), "page").unwrap_or_default();
    let (path, query) = wanted.split_once('?').unwrap_or((wanted.as_str(), ""));
    let Some(page) = Page::find(path) else {
        return respond_with_message(StatusCode::NOT_FOUND, "there is no such page");
    };
    let Some(token) = find_token(&headers) else {
        return respond_with_message(StatusCode::UNAUTHORIZED, "log in first");
    };
    if let Err(refusal) = find_user_access(&console, &token, query).await {
        return respond_to_refusal(&refusal);
    }
    let Ok(place) = Arc::clone(&console.streams).try_acquire_owned() else {
        return respond_with_message(StatusCode::SERVICE_UNAVAILABLE, "too many pages are followed; try again");
    };
    let changed = console.changed.subscribe();
    let until = Instant::now() + STREAM;
    let (query, sent) = (query.to_owned(), String::new());
    let stream = Stream { console, page, query, token, changed, sent, until, _place: place };
    Sse::new(stream::unfold(stream, |mut stream| async move {
        let event = stream.next_event().await?;
        Some((Ok::<_, Infallible>(event), stream))
    }))
    .into_response()
}

impl Stream {
    /// Waits for a page that differs from the last one; none when it is time to ask again.
    async fn next_event(&mut self) -> Option<Event> {
        let mut looks = if self.sent.is_empty() { UNCHANGED_LOOKS_BEFORE_REDRAW } else { 0 };
        loop {
            if Instant::now() >= self.until {
                return None;
            }
            let has_changed = self.changed.has_changed().ok()?;
            if has_changed || looks >= UNCHANGED_LOOKS_BEFORE_REDRAW {
                looks = 0;
                self.changed.mark_unchanged();
                // Who may not see it any more is told by the answer to his next request.
                let guest = find_user_access(&self.console, &self.token, &self.query).await.ok()?;
                let said = list_events(&self.console, &self.page, &guest).await;
                let main = render_page(&self.console, &self.page, &guest.access, &self.query, &said);
                let text = main.map(Html::into_string)?;
                if text != self.sent {
                    self.sent.clone_from(&text);
                    return Some(Event::default().event("page").data(text));
                }
            }
            looks += 1;
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_token_comes_in_a_header_or_in_the_cookie() {
        let of = |pairs: &[(&'static str, &str)]| find_token(&headers(pairs));
        assert_eq!(of(&[("authorization", "Bearer a.b-c")]).as_deref(), Some("a.b-c"));
        assert_eq!(of(&[("cookie", "x=1; caldera-token=t; y=2")]).as_deref(), Some("t"));
        for wrong in ["Basic a", "Bearer ", "Bearer a b", "Bearer \"a\""] {
            assert_eq!(of(&[("authorization", wrong)]), None, "{wrong}");
        }
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn a_form_of_another_site_is_foreign() {
        let of = |pairs: &[(&'static str, &str)]| is_cross_site(&headers(pairs));
        assert!(of(&[("sec-fetch-site", "cross-site")]) && of(&[("sec-fetch-site", "same-site")]));
        assert!(of(&[("origin", "https://evil"), ("host", "console")]) && of(&[("origin", "null"), ("host", "h")]));
        assert!(!of(&[("sec-fetch-site", "same-origin")]) && !of(&[("origin", "https://h:1"), ("host", "h:1")]));
        assert!(!of(&[]));
    }
}
