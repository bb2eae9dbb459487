//! An AdmissionReview: the question, read only as far as a rule needs it, and the answer.
//!
//! Rule: `admission.k8s.io/v1`. A body that is no review at all is an HTTP 400; an object inside that does not have the
//! shape its kind should have is a clear denial with the question's uid.

use std::borrow::Cow;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize, de::IgnoredAny};

use crate::{index::Lookup, patch::Op};

/// What is asked. `T` is as much of the object as the rule reads; borrowed from the body.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request<'a, T> {
    /// To be repeated in the answer.
    #[serde(borrow)]
    pub uid: Cow<'a, str>,
    /// `CREATE`, `UPDATE` or `DELETE`.
    #[serde(borrow, default)]
    pub operation: Cow<'a, str>,
    /// The object's namespace.
    #[serde(borrow, default)]
    pub namespace: Option<Cow<'a, str>>,
    /// The object's name; absent where the server generates it.
    #[serde(borrow, default)]
    pub name: Option<Cow<'a, str>>,
    /// True if nothing will be stored.
    #[serde(default)]
    pub dry_run: Option<bool>,
    /// The new object.
    pub object: Option<T>,
    /// The old object.
    pub old_object: Option<T>,
}

impl<T> Request<'_, T> {
    /// Whether this is a creation.
    #[must_use]
    pub fn is_create(&self) -> bool {
        self.operation == "CREATE"
    }
}

#[derive(Deserialize)]
struct Envelope<R> {
    request: R,
}

#[derive(Deserialize)]
struct Uid<'a> {
    #[serde(borrow)]
    uid: Cow<'a, str>,
}

/// Why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// Not an AdmissionReview with a request.
    #[error("failed to read the body as an AdmissionReview: {0}")]
    Review(serde_json::Error),
    /// A review, but its object does not have the shape of its kind.
    #[error("failed to read the object of the AdmissionReview: {error}")]
    Object {
        /// The question's uid.
        uid: String,
        /// What is wrong.
        error: serde_json::Error,
    },
}

/// Reads the question out of a body.
///
/// # Errors
/// If it is no review, or its object has another shape.
pub fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<Request<'a, T>, Malformed> {
    serde_json::from_slice::<Envelope<Request<'a, T>>>(body).map(|envelope| envelope.request).map_err(|error| {
        match serde_json::from_slice::<Envelope<Uid<'a>>>(body) {
            Ok(envelope) => Malformed::Object { uid: envelope.request.uid.into_owned(), error },
            Err(_) => Malformed::Review(error),
        }
    })
}

/// What to do with a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Let it in, changed by the patch.
    Allow {
        /// Empty: unchanged.
        patch: Vec<Op>,
        /// Shown to the user.
        warnings: Vec<String>,
    },
    /// Refuse it.
    Deny(Denial),
    /// Can not be told from memory: read this and ask again.
    Read(Lookup),
    /// Can not be told at all: answer with an HTTP error, so that the webhook's failure policy decides.
    Undecided(String),
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// HTTP status.
    pub code: u16,
    /// Kubernetes' word for it.
    pub reason: &'static str,
    /// A sentence for the user.
    pub message: String,
}

impl Verdict {
    /// Lets it in as it is.
    pub const UNCHANGED: Self = Self::Allow { patch: Vec::new(), warnings: Vec::new() };

    /// Lets it in with this patch.
    #[must_use]
    pub const fn patch(patch: Vec<Op>) -> Self {
        Self::Allow { patch, warnings: Vec::new() }
    }

    /// Refuses an object that is wrong.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Deny(Denial { code: 422, reason: "Invalid", message: message.into() })
    }

    /// Refuses for now: the caller should try again.
    pub fn retry(message: impl Into<String>) -> Self {
        Self::Deny(Denial { code: 503, reason: "ServiceUnavailable", message: message.into() })
    }

    /// Refuses what may not be done.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::Deny(Denial { code: 403, reason: "Forbidden", message: message.into() })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
}

#[derive(Serialize)]
struct Status<'a> {
    code: u16,
    reason: &'a str,
    message: &'a str,
}

/// An answer as HTTP carries it.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Status and body (JSON for 200, plain text otherwise).
    Reply(u16, Vec<u8>),
    /// Read this and ask again.
    Read(Lookup),
}

/// Carries a verdict back.
#[must_use]
pub fn outcome(uid: &str, verdict: Verdict) -> Outcome {
    let response = |allowed| Response { uid, allowed, status: None, patch_type: None, patch: None, warnings: &[] };
    match verdict {
        Verdict::Allow { patch, warnings } => {
            let patched = !patch.is_empty();
            encode(Response {
                patch_type: patched.then_some("JSONPatch"),
                patch: patched.then(|| base64_json(&patch)),
                warnings: &warnings,
                ..response(true)
            })
        }
        Verdict::Deny(Denial { code, reason, message }) => {
            encode(Response { status: Some(Status { code, reason, message: &message }), ..response(false) })
        }
        Verdict::Read(lookup) => Outcome::Read(lookup),
        Verdict::Undecided(message) => Outcome::Reply(500, message.into_bytes()),
    }
}

/// Reads a body, asks `rule`, carries the verdict back.
pub fn answer<'a, T: Deserialize<'a>>(body: &'a [u8], rule: impl FnOnce(&Request<'a, T>) -> Verdict) -> Outcome {
    match parse::<T>(body) {
        Ok(request) => outcome(&request.uid, rule(&request)),
        Err(Malformed::Review(error)) => Outcome::Reply(400, Malformed::Review(error).to_string().into_bytes()),
        Err(Malformed::Object { uid, error }) => {
            let text = Malformed::Object { uid: uid.clone(), error }.to_string();
            outcome(&uid, Verdict::Deny(Denial { code: 400, reason: "BadRequest", message: text }))
        }
    }
}

fn encode(response: Response<'_>) -> Outcome {
    let answer = Answer { api_version: "admission.k8s.io/v1", kind: "AdmissionReview", response };
    match serde_json::to_vec(&answer) {
        Ok(body) => Outcome::Reply(200, body),
        Err(error) => Outcome::Reply(500, format!("failed to write the answer: {error}").into_bytes()),
    }
}

/// Base64 of a patch's JSON. A patch is made of plain values, which always have a JSON form.
pub(crate) fn base64_json(patch: &[Op]) -> String {
    STANDARD.encode(serde_json::to_vec(patch).unwrap_or_default())
}

/// The old and the new object of a change are of no interest.
pub type Nothing = IgnoredAny;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn reply(outcome: Outcome) -> (u16, Value) {
        match outcome {
            Outcome::Reply(code, body) => {
                (code, serde_json::from_slice(&body).unwrap_or_else(|_| json!(String::from_utf8_lossy(&body))))
            }
            Outcome::Read(lookup) => panic!("{lookup:?}"),
        }
    }

    #[test]
    fn a_body_that_is_no_review_is_a_400_with_a_sentence() {
        for body in ["", "[]", "{}", "{\"request\": 5}", "\u{0}\u{1}", "{\"request\":{\"operation\":\"CREATE\"}}"] {
            let (code, text) = reply(answer::<Nothing>(body.as_bytes(), |_| Verdict::UNCHANGED));
            assert_eq!(code, 400, "{body}");
            assert!(text.as_str().unwrap().starts_with("failed to read the body as an AdmissionReview"), "{text}");
        }
    }

    #[test]
    fn an_object_of_another_shape_is_denied_with_the_uid() {
        #[derive(Deserialize)]
        struct Shape {
            #[expect(dead_code, reason = "only its type matters")]
            spec: u32,
        }
        let body = br#"{"request": {"uid": "u1", "operation": "CREATE", "object": {"spec": "text"}}}"#;
        let (code, answer) = reply(answer::<Shape>(body, |_| Verdict::UNCHANGED));
        assert_eq!((code, &answer["response"]["uid"]), (200, &json!("u1")));
        assert_eq!(answer["response"]["allowed"], false);
        assert_eq!(answer["response"]["status"]["code"], 400);
    }

    #[test]
    fn a_patch_is_base64_of_its_json_and_a_denial_has_code_and_reason() {
        let (_, allowed) = reply(outcome("u", Verdict::patch(vec![Op::set("/a", 1)])));
        let patch = STANDARD.decode(allowed["response"]["patch"].as_str().unwrap()).unwrap();
        assert_eq!(patch, br#"[{"op":"add","path":"/a","value":1}]"#);
        assert_eq!(allowed["response"]["patchType"], "JSONPatch");
        let (_, unchanged) = reply(outcome("u", Verdict::UNCHANGED));
        assert_eq!(unchanged["response"], json!({"uid": "u", "allowed": true}));
        let (_, denied) = reply(outcome("u", Verdict::invalid("no")));
        assert_eq!(denied["response"]["status"], json!({"code": 422, "reason": "Invalid", "message": "no"}));
        assert_eq!(reply(outcome("u", Verdict::Undecided("later".into()))), (500, json!("later")));
    }
}
