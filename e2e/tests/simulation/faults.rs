//! A component's way to the API, which goes wrong as a seed says: requests and answers get lost, are late (and then
//! land although nobody waits any more), or are refused; watches expire, break off, lag and repeat themselves.
//!
//! There is no socket: a request for a member's proxy goes to the member's router, every other to the host's.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use axum::{Router, body::Body};
use futures::{FutureExt, StreamExt, future::BoxFuture};
use http::{Request, Response, StatusCode};
use serde_json::json;
use tower::{BoxError, Service, ServiceExt};

use crate::prng::Prng;

/// Requests of a thousand that go wrong in each way, while faults are on.
const LOST: u64 = 20;
const ANSWER_LOST: u64 = 25;
const REFUSED: u64 = 30;
const LATE: u64 = 60;
/// Events of a thousand on a watch that are disturbed in each way.
const REPEATED: u64 = 30;
const LAGGING: u64 = 40;
const BROKEN_OFF: u64 = 15;
const EXPIRED: u64 = 10;

#[derive(Debug)]
struct State {
    prng: Prng,
    on: bool,
    writes: u64,
    faults: BTreeMap<&'static str, u64>,
}

/// What every component's way shares.
#[derive(Debug, Clone)]
pub struct Faults(Arc<Mutex<State>>);

impl Faults {
    pub fn new(prng: Prng) -> Self {
        Self(Arc::new(Mutex::new(State { prng, on: false, writes: 0, faults: BTreeMap::new() })))
    }

    pub fn switch(&self, on: bool) {
        self.0.lock().unwrap().on = on;
    }

    /// Writes that components tried so far.
    pub fn writes(&self) -> u64 {
        self.0.lock().unwrap().writes
    }

    /// How often each fault was injected.
    pub fn injected(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().unwrap().faults.clone()
    }

    fn draw(&self, write: bool, watch: bool) -> (Fault, Prng) {
        let mut state = self.0.lock().unwrap();
        state.writes += u64::from(write);
        let prng = state.prng.fork();
        if !state.on {
            return (Fault::None, prng);
        }
        let at = state.prng.below(1000);
        let fault = if at < LOST {
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
        } else {
            Fault::None
        };
        let name = match fault {
            Fault::None => return (fault, prng),
            Fault::Lost => "lost",
            Fault::AnswerLost => "answer lost",
            Fault::Refused(..) => "refused",
            Fault::Late(_) => "late",
        };
        *state.faults.entry(name).or_default() += 1;
        (fault, prng)
    }

    fn draw_event(&self, prng: &mut Prng) -> EventFault {
        let mut state = self.0.lock().unwrap();
        let at = prng.below(1000);
        let fault = if at < REPEATED {
            EventFault::Repeated
        } else if at < REPEATED + LAGGING {
            EventFault::Lagging(Duration::from_millis(prng.between(1, 3_000)))
        } else if at < REPEATED + LAGGING + BROKEN_OFF {
            EventFault::BrokenOff
        } else if at < REPEATED + LAGGING + BROKEN_OFF + EXPIRED {
            EventFault::Expired
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
        };
        *state.faults.entry(name).or_default() += 1;
        fault
    }
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    None,
    /// The server never saw the request.
    Lost,
    /// The server did it; nobody learns of that.
    AnswerLost,
    Refused(u16, &'static str),
    /// It is done later, even if nobody waits for the answer by then.
    Late(Duration),
}

#[derive(Debug, Clone, Copy)]
enum EventFault {
    None,
    Repeated,
    Lagging(Duration),
    BrokenOff,
    Expired,
}

/// A service for `kube::Client`.
#[derive(Debug, Clone)]
pub struct Way {
    pub host: Router,
    pub members: BTreeMap<String, Router>,
    pub faults: Faults,
}

impl Way {
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "default")
    }

    /// The router that a request is for, and the request as that one knows it.
    fn route(&self, mut request: Request<kube::client::Body>) -> (Router, Request<kube::client::Body>) {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let proxied = path
            .strip_prefix("/apis/cluster.karmada.io/v1alpha1/clusters/")
            .and_then(|rest| rest.split_once("/proxy"))
            .and_then(|(cluster, path)| Some((self.members.get(cluster)?.clone(), path.to_owned())));
        match proxied {
            None => (self.host.clone(), request),
            Some((router, path)) => {
                *request.uri_mut() = path.parse().unwrap();
                (router, request)
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
        let write = request.method() != http::Method::GET;
        let watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let (fault, prng) = self.faults.draw(write, watch);
        let (router, request) = self.route(request);
        let faults = self.faults.clone();
        async move {
            let answer = match fault {
                Fault::None => router.oneshot(request).await?,
                Fault::Lost => return Err("connection refused (simulated)".into()),
                Fault::AnswerLost => {
                    let _ = router.oneshot(request).await?;
                    return Err("connection reset (simulated)".into());
                }
                Fault::Refused(code, reason) => refusal(code, reason),
                Fault::Late(by) => {
                    let landing = tokio::spawn(async move {
                        tokio::time::sleep(by).await;
                        router.oneshot(request).await
                    });
                    landing.await??
                }
            };
            Ok(if watch && answer.status() == StatusCode::OK { disturbed(answer, faults, prng) } else { answer })
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

/// A watch whose events are disturbed one by one, in their order.
fn disturbed(answer: Response<Body>, faults: Faults, prng: Prng) -> Response<Body> {
    let (parts, body) = answer.into_parts();
    let start = (Some(body.into_data_stream()), VecDeque::new(), prng, faults);
    let stream = futures::stream::unfold(start, |(mut stream, mut ready, mut prng, faults)| async move {
        if let Some(event) = ready.pop_front() {
            return Some((event, (stream, ready, prng, faults)));
        }
        let event = stream.as_mut()?.next().await?;
        match faults.draw_event(&mut prng) {
            EventFault::None => {}
            EventFault::Repeated => ready.extend(event.as_ref().ok().cloned().map(Ok)),
            EventFault::Lagging(by) => tokio::time::sleep(by).await,
            EventFault::BrokenOff => return None,
            EventFault::Expired => {
                let event = format!("{}\n", json!({"type": "ERROR", "object": status(410, "Expired")}));
                return Some((Ok(event.into()), (None, ready, prng, faults)));
            }
        }
        Some((event, (stream, ready, prng, faults)))
    });
    Response::from_parts(parts, Body::from_stream(stream))
}
