//! The answer to an AdmissionReview, as HTTP carries it.
//!
//! Rule (`admission.k8s.io/v1`): a decision is a 200 with the uid of the question and a JSON patch in base64; a body
//! that is no review is a 400, and what could not be decided is a 500, so that the failure policy of the webhook
//! applies.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::json;

use crate::{
    decide::{
        patch::append_patch,
        verdict::{Denial, Verdict},
    },
    observe::{
        cache::{BindingKey, Lookup},
        request::{MalformedReview, ReviewRequest, parse_review},
    },
};

/// An answer as HTTP carries it.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An answer.
    Reply {
        /// HTTP status.
        status: u16,
        /// JSON for 200, plain text otherwise.
        body: Vec<u8>,
        /// The plan that the answer gives a binding, by its fingerprint: announced before the answer is sent.
        plan: Option<(BindingKey, u64)>,
    },
    /// Read this and ask again.
    Read(Lookup),
}

impl Outcome {
    const fn reply(status: u16, body: Vec<u8>) -> Self {
        Self::Reply { status, body, plan: None }
    }

    /// The same, where it is an answer that gives a binding this plan.
    #[must_use]
    pub fn with_plan(mut self, made: Option<(BindingKey, u64)>) -> Self {
        if let Self::Reply { plan, .. } = &mut self {
            *plan = made;
        }
        self
    }
}

/// Carries a verdict back.
#[must_use]
pub fn encode_verdict(uid: &str, verdict: Verdict) -> Outcome {
    match verdict {
        Verdict::Allow { patch, warnings } => {
            let mut response = begin_response(uid, true);
            if !patch.is_empty() {
                response.push_str(PATCH);
                // Base64 needs no escaping, and is as large as the object may be: it is written once.
                append_patch(&patch, &mut response);
                response.push('"');
            }
            if !warnings.is_empty() {
                response.push_str(",\"warnings\":");
                response.push_str(&json!(warnings).to_string());
            }
            end_response(response)
        }
        Verdict::AllowText { patch } => {
            let mut response = begin_response(uid, true);
            response.reserve_exact(patch.len() / 3 * 4 + ENVELOPE);
            response.push_str(PATCH);
            STANDARD.encode_string(patch, &mut response);
            response.push('"');
            end_response(response)
        }
        Verdict::Deny(Denial { code, reason, message }) => {
            let mut response = begin_response(uid, false);
            response.push_str(",\"status\":");
            response.push_str(&json!({"code": code, "reason": reason, "message": message}).to_string());
            end_response(response)
        }
        Verdict::Read(lookup) => Outcome::Read(lookup),
        Verdict::Undecided(message) => Outcome::reply(500, message.into_bytes()),
    }
}

const PATCH: &str = ",\"patchType\":\"JSONPatch\",\"patch\":\"";
/// Bytes of an answer around its patch.
const ENVELOPE: usize = 256;

fn begin_response(uid: &str, is_allowed: bool) -> String {
    let uid = json!(uid);
    format!(
        "{{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\"response\":{{\"uid\":{uid},\
         \"allowed\":{is_allowed}"
    )
}

fn end_response(mut response: String) -> Outcome {
    response.push_str("}}");
    Outcome::reply(200, response.into_bytes())
}

/// Reads a body, asks `rule`, carries the verdict back.
pub fn answer_review<'a, T: Deserialize<'a>>(
    body: &'a [u8],
    rule: impl FnOnce(&ReviewRequest<'a, T>) -> Verdict,
) -> Outcome {
    answer_review_by_value(body, |request| rule(&request))
}

/// The same for a rule that takes the objects apart.
pub fn answer_review_by_value<'a, T: Deserialize<'a>>(
    body: &'a [u8],
    rule: impl FnOnce(ReviewRequest<'a, T>) -> Verdict,
) -> Outcome {
    match parse_review::<T>(body) {
        Ok(request) => {
            let uid = request.uid.clone();
            encode_verdict(&uid, rule(request))
        }
        Err(MalformedReview::Review(error)) => {
            Outcome::reply(400, MalformedReview::Review(error).to_string().into_bytes())
        }
        Err(MalformedReview::Object { uid, error }) => {
            let text = MalformedReview::Object { uid: uid.clone(), error }.to_string();
            encode_verdict(&uid, Verdict::Deny(Denial { code: 400, reason: "BadRequest", message: text }))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::de::IgnoredAny;
    use serde_json::Value;

    use super::*;
    use crate::decide::patch::set_field;

    fn reply(outcome: Outcome) -> (u16, Value) {
        match outcome {
            Outcome::Reply { status, body, .. } => {
                (status, serde_json::from_slice(&body).unwrap_or_else(|_| json!(String::from_utf8_lossy(&body))))
            }
            Outcome::Read(lookup) => panic!("{lookup:?}"),
        }
    }

    #[test]
    fn a_body_that_is_no_review_is_a_400_with_a_sentence() {
        for body in ["", "[]", "{}", "{\"request\": 5}", "\u{0}\u{1}", "{\"request\":{\"operation\":\"CREATE\"}}"] {
            let (code, text) = reply(answer_review::<IgnoredAny>(body.as_bytes(), |_| Verdict::UNCHANGED));
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
        let (code, answer) = reply(answer_review::<Shape>(body, |_| Verdict::UNCHANGED));
        assert_eq!((code, &answer["response"]["uid"]), (200, &json!("u1")));
        assert_eq!(answer["response"]["allowed"], false);
        assert_eq!(answer["response"]["status"]["code"], 400);
    }

    #[test]
    fn a_patch_is_base64_of_its_json_and_a_denial_has_code_and_reason() {
        let (_, allowed) = reply(encode_verdict("u", Verdict::allow_with(vec![set_field(&["a"], 1)])));
        let patch = STANDARD.decode(allowed["response"]["patch"].as_str().unwrap()).unwrap();
        assert_eq!(patch, br#"[{"op":"add","path":"/a","value":1}]"#);
        assert_eq!(allowed["response"]["patchType"], "JSONPatch");
        let text = Verdict::AllowText { patch: String::from_utf8(patch).unwrap() };
        assert_eq!(reply(encode_verdict("u", text)).1, allowed);
        let (_, unchanged) = reply(encode_verdict("u", Verdict::UNCHANGED));
        assert_eq!(unchanged["response"], json!({"uid": "u", "allowed": true}));
        let (_, denied) = reply(encode_verdict("u", Verdict::deny_invalid("no")));
        assert_eq!(denied["response"]["status"], json!({"code": 422, "reason": "Invalid", "message": "no"}));
        let warned = Verdict::Allow { patch: Vec::new(), warnings: vec!["a \"b\"".to_owned()] };
        let (_, warned) = reply(encode_verdict("u\"", warned));
        assert_eq!(warned["response"], json!({"uid": "u\"", "allowed": true, "warnings": ["a \"b\""]}));
        assert_eq!(reply(encode_verdict("u", Verdict::Undecided("later".into()))), (500, json!("later")));
    }
}
