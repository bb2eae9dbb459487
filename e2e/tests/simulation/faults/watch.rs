//! Watches whose events are disturbed, one by one.

use std::collections::VecDeque;

use axum::body::{Body, BodyDataStream, Bytes};
use futures::StreamExt;
use http::Response;
use serde_json::json;

use super::{EventFault, Way, status};
use crate::prng::Prng;

struct Watch {
    path: String,
    events: Option<BodyDataStream>,
    ready: VecDeque<Result<Bytes, axum::Error>>,
    prng: Prng,
    way: Way,
    member: Option<String>,
}

impl Watch {
    async fn next(&mut self) -> Option<Result<Bytes, axum::Error>> {
        if let Some(event) = self.ready.pop_front() {
            return Some(event);
        }
        let event = self.events.as_mut()?.next().await?;
        if self.way.life.is_over() {
            return std::future::pending().await;
        }
        if self.way.faults.is_down(self.member.as_deref()) {
            return None;
        }
        let fault = self.way.faults.draw_event(self.way.who, &mut self.prng);
        if self.way.faults.is_traced && !matches!(fault, EventFault::None) {
            println!("{}: {fault:?} of {}", self.way.who, self.path);
        }
        match fault {
            EventFault::None => {}
            EventFault::Repeated => self.ready.extend(event.as_ref().ok().cloned().map(Ok)),
            EventFault::Lagging(by) => tokio::time::sleep(by).await,
            EventFault::BrokenOff => return None,
            EventFault::Expired => return Some(self.expire()),
            EventFault::Lost(within) => {
                tokio::time::sleep(within).await;
                return Some(self.expire());
            }
        }
        Some(event)
    }

    fn expire(&mut self) -> Result<Bytes, axum::Error> {
        self.events = None;
        Ok(format!("{}\n", json!({"type": "ERROR", "object": status(410, "Expired")})).into())
    }
}

/// A watch whose events are disturbed one by one, in their order.
pub(super) fn disturbed(
    answer: Response<Body>,
    path: String,
    way: Way,
    member: Option<String>,
    prng: Prng,
) -> Response<Body> {
    let (parts, body) = answer.into_parts();
    let watch = Watch { path, events: Some(body.into_data_stream()), ready: VecDeque::new(), prng, way, member };
    let stream = futures::stream::unfold(watch, |mut watch| async move {
        let event = watch.next().await?;
        Some((event, watch))
    });
    Response::from_parts(parts, Body::from_stream(stream))
}
