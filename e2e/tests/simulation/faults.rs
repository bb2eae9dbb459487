//! A component's way to the API, which fails as a seed says.
//!
//! - Requests and answers get lost or are refused. A late request is carried out although nobody waits any more. A late
//!   list is old when it arrives.
//! - The component dies before or after any call.
//! - Watches expire, break off, repeat and lose events. Each lags by itself, so that kinds overtake each other.
//! - Members are out of reach.
//!
//! There is no socket: a request for a member's proxy goes to the member's router, every other to the host's.

mod watch;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{Router, body::Body};
use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response, StatusCode};
use serde_json::json;
use tokio::time::Instant;
use tower::{BoxError, Service, ServiceExt};

use crate::{prng::Prng, sieve::PlannedFault};

/// Requests of a thousand that go wrong in each way, while faults are on.
const LOST: u64 = 20;
const ANSWER_LOST: u64 = 25;
const REFUSED: u64 = 30;
const LATE: u64 = 60;
const ANSWER_LATE: u64 = 30;
const CRASH: u64 = 4;
/// Of a thousand writes: a component must not die at each second one of its reads.
const CRASH_AT_WRITE: u64 = 20;
/// Milliseconds that a request is under way at most when its sender has died.
const LANDS_WITHIN: u64 = 8_000;
/// Events of a thousand on a watch that are disturbed in each way.
const REPEATED: u64 = 30;
const LAGGING: u64 = 40;
const BROKEN_OFF: u64 = 15;
const EXPIRED: u64 = 10;
const EVENTS_LOST: u64 = 15;
/// Requests at one instant of virtual time. Whoever asks more often never lets time go on.
const MOST_AT_ONCE: u64 = 20_000;

#[derive(Debug)]
struct State {
    prng: Prng,
    on: bool,
    /// Instead of what the seed says.
    planned: Option<PlannedFault>,
    writes: u64,
    /// Who died of a fault and has not been buried.
    crashed: BTreeSet<&'static str>,
    unreachable: BTreeSet<String>,
    /// Karmada does not reach these either.
    cut: BTreeSet<String>,
    faults: BTreeMap<&'static str, u64>,
    /// Requests at this instant.
    at_once: (Option<Instant>, u64),
    /// Who asked without end, and for what.
    busy: Option<String>,
}

/// What every component's way shares.
#[derive(Debug, Clone)]
pub struct Faults {
    state: Arc<Mutex<State>>,
    /// Each is printed.
    pub is_traced: bool,
}

impl Faults {
    pub fn new(prng: Prng, planned: Option<PlannedFault>, is_traced: bool) -> Self {
        let state = State {
            prng,
            on: false,
            planned,
            writes: 0,
            crashed: BTreeSet::new(),
            unreachable: BTreeSet::new(),
            cut: BTreeSet::new(),
            faults: BTreeMap::new(),
            at_once: (None, 0),
            busy: None,
        };
        Self { state: Arc::new(Mutex::new(state)), is_traced }
    }

    pub fn switch(&self, on: bool) {
        self.state.lock().unwrap().on = on;
    }

    pub fn is_on(&self) -> bool {
        self.state.lock().unwrap().on
    }

    /// Whether there is one fault, at a chosen write, and no other.
    pub fn is_planned(&self) -> bool {
        self.state.lock().unwrap().planned.is_some()
    }

    /// Whether that write has come.
    pub fn has_struck(&self) -> bool {
        self.state.lock().unwrap().planned.is_some_and(|planned| planned.has_struck())
    }

    /// A number of the seed's.
    pub fn between(&self, least: u64, most: u64) -> u64 {
        self.state.lock().unwrap().prng.between(least, most)
    }

    /// Writes that components tried so far.
    pub fn writes(&self) -> u64 {
        self.state.lock().unwrap().writes
    }

    /// Who died since this was last asked.
    pub fn take_crashed(&self) -> BTreeSet<&'static str> {
        std::mem::take(&mut self.state.lock().unwrap().crashed)
    }

    /// Whether a member answers from now on.
    pub fn reach(&self, member: &str, yes: bool) {
        let mut state = self.state.lock().unwrap();
        if yes {
            state.unreachable.remove(member);
        } else {
            state.unreachable.insert(member.to_owned());
            *state.faults.entry("member down").or_default() += 1;
        }
    }

    /// Whether a member is cut off from now on: from us and from Karmada.
    pub fn cut(&self, member: &str, yes: bool) {
        self.reach(member, !yes);
        let mut state = self.state.lock().unwrap();
        if yes {
            state.cut.insert(member.to_owned());
        } else {
            state.cut.remove(member);
        }
    }

    /// The members that are cut off.
    pub fn list_cut(&self) -> BTreeSet<String> {
        self.state.lock().unwrap().cut.clone()
    }

    /// Another fault came.
    pub fn count(&self, fault: &'static str) {
        *self.state.lock().unwrap().faults.entry(fault).or_default() += 1;
    }

    /// Counts a request. Once there are too many at one instant, nobody is answered until time has gone on.
    fn is_too_busy(&self, what: impl FnOnce() -> String) -> bool {
        let mut state = self.state.lock().unwrap();
        let now = Some(Instant::now());
        let (at, count) = state.at_once;
        state.at_once = (now, if at == now { count + 1 } else { 1 });
        if state.at_once.1 == MOST_AT_ONCE {
            state.busy = Some(what());
        }
        state.at_once.1 >= MOST_AT_ONCE
    }

    /// Who asked without end at one instant, and for what.
    pub fn busy(&self) -> Option<String> {
        self.state.lock().unwrap().busy.clone()
    }

    fn is_down(&self, member: Option<&str>) -> bool {
        member.is_some_and(|member| self.state.lock().unwrap().unreachable.contains(member))
    }

    fn crash(&self, way: &Way) {
        way.life.end();
        self.state.lock().unwrap().crashed.insert(way.who);
    }

    /// How often each fault was injected.
    pub fn injected(&self) -> BTreeMap<&'static str, u64> {
        self.state.lock().unwrap().faults.clone()
    }

    fn draw(&self, who: &'static str, write: bool, watch: bool) -> (Fault, Prng) {
        let mut state = self.state.lock().unwrap();
        state.writes += u64::from(write);
        let (prng, writes) = (state.prng.fork(), state.writes);
        if let Some(planned) = &mut state.planned {
            let fault = if write { planned.strike(who, writes) } else { None };
            return (fault.unwrap_or(Fault::None), prng);
        }
        if !state.on {
            return (Fault::None, prng);
        }
        let crash = CRASH + if write { CRASH_AT_WRITE } else { 0 };
        let at = state.prng.below(1000);
        let fault = if state.prng.below(1000) < crash {
            let lands = match state.prng.below(3) {
                0 => None,
                1 => Some(Duration::ZERO),
                _ => Some(Duration::from_millis(state.prng.between(1, LANDS_WITHIN))),
            };
            Fault::Crash { lands }
        } else if at < LOST {
            Fault::Lost
        } else if at < LOST + ANSWER_LOST {
            Fault::AnswerLost
        } else if at < LOST + ANSWER_LOST + REFUSED {
            match state.prng.below(3) {
                0 => Fault::Refused(429, "TooManyRequests"),
                1 => Fault::Refused(500, "InternalError"),
                _ if write => Fault::Refused(409, "Conflict"),
                _ if watch => Fault::Refused(410, "Expired"),
                _ => Fault::Refused(503, "ServiceUnavailable"),
            }
        } else if at < LOST + ANSWER_LOST + REFUSED + LATE {
            // One in eight comes after every deadline.
            let longest = if state.prng.below(8) == 0 { 20_000 } else { 1_500 };
            Fault::Late(Duration::from_millis(state.prng.between(1, longest)))
        } else if at < LOST + ANSWER_LOST + REFUSED + LATE + ANSWER_LATE {
            let longest = if state.prng.below(8) == 0 { 20_000 } else { 2_500 };
            Fault::AnswerLate(Duration::from_millis(state.prng.between(1, longest)))
        } else {
            Fault::None
        };
        let name = match fault {
            Fault::None => return (fault, prng),
            Fault::Lost => "lost",
            Fault::AnswerLost => "answer lost",
            Fault::Refused(..) => "refused",
            Fault::Late(_) => "late",
            Fault::AnswerLate(_) => "answer late",
            Fault::Crash { lands: None } => "crash before a call",
            Fault::Crash { lands: Some(Duration::ZERO) } => "crash after a call",
            Fault::Crash { lands: Some(_) } => "crash during a call",
        };
        *state.faults.entry(name).or_default() += 1;
        (fault, prng)
    }

    fn draw_event(&self, who: &'static str, prng: &mut Prng) -> EventFault {
        let mut state = self.state.lock().unwrap();
        if let Some(planned) = &state.planned {
            return planned.disturb(who);
        }
        let at = prng.below(1000);
        let fault = if at < REPEATED {
            EventFault::Repeated
        } else if at < REPEATED + LAGGING {
            // One in eight is later than any answer.
            let longest = if prng.below(8) == 0 { 30_000 } else { 3_000 };
            EventFault::Lagging(Duration::from_millis(prng.between(1, longest)))
        } else if at < REPEATED + LAGGING + BROKEN_OFF {
            EventFault::BrokenOff
        } else if at < REPEATED + LAGGING + BROKEN_OFF + EXPIRED {
            EventFault::Expired
        } else if at < REPEATED + LAGGING + BROKEN_OFF + EXPIRED + EVENTS_LOST {
            EventFault::Lost(Duration::from_millis(prng.between(1, 5_000)))
        } else {
            EventFault::None
        };
        let name = match fault {
            _ if !state.on => return EventFault::None,
            EventFault::None => return fault,
            EventFault::Repeated => "event repeated",
            EventFault::Lagging(_) => "events lag",
            EventFault::BrokenOff => "watch broken off",
            EventFault::Expired => "watch expired",
            EventFault::Lost(_) => "events lost",
        };
        *state.faults.entry(name).or_default() += 1;
        fault
    }
}

#[derive(Debug, Clone, Copy)]
pub enum Fault {
    None,
    /// The server never saw the request.
    Lost,
    /// The server did it; nobody learns of that.
    AnswerLost,
    Refused(u16, &'static str),
    /// It is done later, even if nobody waits for the answer by then.
    Late(Duration),
    /// It is done now; the answer comes later, and is old by then.
    AnswerLate(Duration),
    /// The component dies here; the server does it never, at once, or so much later.
    Crash {
        lands: Option<Duration>,
    },
}

#[derive(Debug, Clone, Copy)]
pub enum EventFault {
    None,
    Repeated,
    Lagging(Duration),
    BrokenOff,
    Expired,
    /// This and what comes within that time is never delivered; then the watch has expired.
    Lost(Duration),
}

/// One life of a component: nothing that it began goes on when it is over.
#[derive(Debug, Clone, Default)]
pub struct Life(Arc<AtomicBool>);

impl Life {
    pub fn end(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a router says.
type Answer = Result<Response<Body>, std::convert::Infallible>;

/// A service for `kube::Client`.
#[derive(Debug, Clone)]
pub struct Way {
    pub host: Router,
    pub members: BTreeMap<String, Router>,
    pub faults: Faults,
    /// Who goes it, and in which life.
    pub who: &'static str,
    pub life: Life,
    /// A Lease fences what a controller that died has on its way. Without one nothing does, and it does not land (ADR 4
    /// says for how long one waits then).
    pub fenced: bool,
}

impl Way {
    /// A client of one component in one life.
    pub fn client(&self, who: &'static str, life: Life) -> kube::Client {
        kube::Client::new(Self { who, life, ..self.clone() }, "default")
    }

    /// Carries a request out so much later, whether or not its sender lives.
    async fn land(self, router: Router, request: Request<kube::client::Body>, by: Duration) -> Answer {
        tokio::time::sleep(by).await;
        if self.life.is_over() && !self.fenced && self.who == "controller" {
            return std::future::pending().await;
        }
        router.oneshot(request).await
    }

    /// The member (if not the host) and the router that a request is for, and the request as that one knows it.
    fn route(&self, mut request: Request<kube::client::Body>) -> (Option<String>, Router, Request<kube::client::Body>) {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let proxied = path
            .strip_prefix("/apis/cluster.karmada.io/v1alpha1/clusters/")
            .and_then(|rest| rest.split_once("/proxy"))
            .and_then(|(cluster, path)| {
                Some((cluster.to_owned(), self.members.get(cluster)?.clone(), path.to_owned()))
            });
        match proxied {
            None => (None, self.host.clone(), request),
            Some((member, router, path)) => {
                *request.uri_mut() = path.parse().unwrap();
                (Some(member), router, request)
            }
        }
    }
}

impl Service<Request<kube::client::Body>> for Way {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        // Leases are renewed for ever, and decide nothing but who may write.
        let write = request.method() != http::Method::GET && !request.uri().path().contains("/leases");
        let watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let (fault, prng) = self.faults.draw(self.who, write, watch);
        if self.faults.is_traced && (write || !matches!(fault, Fault::None)) {
            println!("{}: {fault:?} at {} {}", self.who, request.method(), request.uri().path());
        }
        let path = request.uri().path().to_owned();
        let is_too_busy = self.faults.is_too_busy(|| format!("{}: {} {path}", self.who, request.method()));
        let (member, router, request) = self.route(request);
        let way = self.clone();
        async move {
            if is_too_busy || way.life.is_over() {
                return std::future::pending().await;
            }
            if way.faults.is_down(member.as_deref()) {
                return Ok(refusal(503, "ServiceUnavailable"));
            }
            let answer = match fault {
                Fault::None => router.oneshot(request).await?,
                Fault::Lost => return Err("connection refused (simulated)".into()),
                Fault::AnswerLost => {
                    let _ = router.oneshot(request).await?;
                    return Err("connection reset (simulated)".into());
                }
                Fault::Refused(code, reason) => refusal(code, reason),
                Fault::Late(by) => tokio::spawn(way.clone().land(router, request, by)).await??,
                Fault::AnswerLate(by) => {
                    let landing = tokio::spawn(router.oneshot(request));
                    tokio::time::sleep(by).await;
                    landing.await??
                }
                Fault::Crash { lands } => {
                    if let Some(by) = lands {
                        let landing = tokio::spawn(way.clone().land(router, request, by));
                        if by.is_zero() {
                            let _ = landing.await?;
                        }
                    }
                    way.faults.crash(&way);
                    return std::future::pending().await;
                }
            };
            if way.life.is_over() {
                return std::future::pending().await;
            }
            let disturb = watch && answer.status() == StatusCode::OK;
            Ok(if disturb { watch::disturbed(answer, path, way, member, prng) } else { answer })
        }
        .boxed()
    }
}

fn status(code: u16, reason: &str) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "message": format!("{reason} (simulated)"), "reason": reason, "code": code,
    })
}

fn refusal(code: u16, reason: &str) -> Response<Body> {
    let body = Body::from(status(code, reason).to_string());
    Response::builder().status(code).header("content-type", "application/json").body(body).unwrap()
}
