//! The first look at a request: its body within bounds, whose it is, and what it would cost, before anything is built
//! of it.
//!
//! Three reviews are decided by that alone: a new job with more tasks than a job may have is denied; an object that
//! would take too much memory is denied; but a job that is too large and whose spec does not change is let in, since
//! its labels and finalizers must change whatever its size. Long bodies are looked through on another thread.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::Request,
    response::{IntoResponse, Response},
};
use caldera_crds::job_admission::{MOST_TASKS, build_task_count_refusal};
use caldera_runtime::bounded::body::HeldBody;
use tokio::time::Instant;

use super::{
    FAILED, InspectedRequest, respond_late, respond_with, review_pool::LargeReviews, shared_cache::SharedCache,
};
use crate::{
    decide::verdict::{Denial, Verdict},
    observe::cost::{ReviewHead, are_specs_equal, estimate_memory},
    rules::{BINDINGS, DEVICE_CLAIMS, MUTATE_JOB, VALIDATE_JOB},
    write::review::encode_verdict,
};

/// How long a review may take in all, from its last byte: below the API server's patience of five seconds.
pub(super) const REVIEW_TIMEOUT: Duration = Duration::from_millis(4_500);
/// From here on a body is looked through on another thread.
const LONG_BODY_BYTES: usize = 64 << 10;

/// Looks through a body. What would cost more than `most`, or has more tasks than a job may have, is decided by that.
fn inspect_body(route: &'static str, body: HeldBody, most: usize, until: Instant) -> InspectedRequest {
    let cost = estimate_memory(&body);
    let glance = ReviewHead::of_body(&body);
    let (namespace, uid) = (glance.namespace().to_owned(), glance.uid().to_owned());
    let is_job = [MUTATE_JOB, VALIDATE_JOB, DEVICE_CLAIMS].contains(&route);
    let (line, most) = match route {
        // It is decided beside a large review of another line.
        BINDINGS => (LargeReviews::OfBindings, most / 4),
        // A queue is small, and is copied while it is reviewed.
        _ if route.ends_with("-queue") => (LargeReviews::OfOthers, most / 8),
        _ => (LargeReviews::OfOthers, most),
    };
    let verdict = if is_job && glance.created_tasks() > MOST_TASKS {
        Some(Verdict::deny_invalid(build_task_count_refusal(glance.created_tasks()).sentence()))
    } else if cost <= most {
        None
    } else if is_job && are_specs_equal(&body) {
        // Its finalizers and labels must change whatever its size is.
        Some(Verdict::UNCHANGED)
    } else {
        let (needed, most) = (cost >> 20, most >> 20);
        let message =
            format!("the object is too large to be reviewed: it takes about {needed} MiB, at most {most} may");
        Some(Verdict::Deny(Denial { code: 413, reason: "RequestEntityTooLarge", message }))
    };
    let early = verdict.map(|verdict| encode_verdict(&uid, verdict));
    InspectedRequest { body: Arc::new(body), uid, namespace, line, cost, until, early }
}

impl SharedCache {
    /// Reads a request's body and looks through it.
    pub(super) async fn read_request(
        &self,
        route: &'static str,
        request: Request,
    ) -> Result<InspectedRequest, Response> {
        let body = self.bodies.read_body(request.into_body()).await;
        let body = body.map_err(|error| {
            self.metrics.count_refused_body(error.status().as_u16());
            (error.status(), error.to_string()).into_response()
        })?;
        let (most, until) = (self.memory, Instant::now() + REVIEW_TIMEOUT);
        match &self.pool {
            Some(pool) if body.len() >= LONG_BODY_BYTES => {
                let looked = pool.run_inspection(move || inspect_body(route, body, most, until));
                match tokio::time::timeout_at(until, looked).await {
                    Ok(looked) => looked.ok_or_else(|| respond_with(500, FAILED.to_vec())),
                    Err(_) => Err(respond_late()),
                }
            }
            _ => Ok(inspect_body(route, body, most, until)),
        }
    }
}
