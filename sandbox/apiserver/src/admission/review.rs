//! The AdmissionReview as it goes out, and what an answer is worth
//! (`apiserver/pkg/admission/plugin/webhook/request/admissionreview.go`, `errors/statuserror.go`).

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use super::{Attributes, Operation, answer};
use crate::error::{Cause, Details, Status, go_quote};

#[derive(Serialize)]
struct Kind<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

#[derive(Serialize)]
struct Resource<'a> {
    group: &'a str,
    version: &'a str,
    resource: &'a str,
}

#[derive(Serialize)]
struct UserInfo<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: &'a BTreeMap<String, Vec<String>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    uid: &'a str,
    kind: Kind<'a>,
    resource: Resource<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    sub_resource: &'a str,
    request_kind: Kind<'a>,
    request_resource: Resource<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    request_sub_resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    operation: &'static str,
    user_info: UserInfo<'a>,
    object: Option<&'a Value>,
    old_object: Option<&'a Value>,
    dry_run: bool,
    options: Option<Cow<'a, Value>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    kind: &'static str,
    api_version: &'static str,
    request: Request<'a>,
}

/// The kind and version in which a webhook gets the object: the request's, or an equivalent one its rules name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub plural: &'a str,
    pub kind: &'a str,
}

impl Form<'_> {
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }
}

/// The form of the request itself.
pub fn requested_form<'a>(attributes: &Attributes<'a>) -> Form<'a> {
    let r: &'a crate::resource::Resource = attributes.resource;
    Form { group: &r.group, version: &r.version, plural: &r.plural, kind: &r.kind }
}

/// The kind of the body: that of the subresource when it has its own.
fn body_kind<'a>(attributes: &Attributes<'a>, form: &Form<'a>) -> Kind<'a> {
    match attributes.subresource_kind {
        Some((group, version, kind)) => Kind { group, version, kind },
        None => Kind { group: form.group, version: form.version, kind: form.kind },
    }
}

/// A Namespace is in itself, as request information has it.
pub fn namespace_of<'a>(attributes: &Attributes<'a>) -> &'a str {
    let r = attributes.resource;
    if r.group.is_empty() && r.plural == "namespaces" { attributes.name } else { attributes.namespace }
}

fn review_request<'a>(
    attributes: &Attributes<'a>,
    form: &Form<'a>,
    uid: &'a str,
    object: Option<&'a Value>,
    old_object: Option<&'a Value>,
) -> Request<'a> {
    let asked = requested_form(attributes);
    Request {
        uid,
        kind: body_kind(attributes, form),
        resource: Resource { group: form.group, version: form.version, resource: form.plural },
        sub_resource: attributes.subresource,
        request_kind: body_kind(attributes, &asked),
        request_resource: Resource { group: asked.group, version: asked.version, resource: asked.plural },
        request_sub_resource: attributes.subresource,
        name: attributes.name,
        namespace: namespace_of(attributes),
        operation: attributes.operation.as_str(),
        user_info: UserInfo {
            username: &attributes.user.name,
            uid: &attributes.user.uid,
            groups: &attributes.user.groups,
            extra: &attributes.user.extra,
        },
        object,
        old_object,
        dry_run: attributes.dry_run,
        options: review_options(attributes),
    }
}

/// The options of the operation: those of a patch are told as the update or the creation that it amounts to.
fn review_options<'a>(attributes: &Attributes<'a>) -> Option<Cow<'a, Value>> {
    let given = attributes.options.as_object()?;
    let kind = match attributes.operation {
        Operation::Create => "CreateOptions",
        Operation::Update => "UpdateOptions",
        Operation::Delete => "DeleteOptions",
        Operation::Connect => return Some(Cow::Borrowed(attributes.options)),
    };
    if given.get("kind").and_then(Value::as_str) == Some(kind) {
        return Some(Cow::Borrowed(attributes.options));
    }
    let mut told = given.clone();
    told.insert("kind".into(), kind.into());
    told.remove("force");
    Some(Cow::Owned(Value::Object(told)))
}

/// The form of a review: the first known one of those that the webhook lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReviewVersion {
    #[default]
    V1,
    V1beta1,
}

impl ReviewVersion {
    pub fn read(listed: &[Value]) -> Self {
        let known = |v: &Value| match v.as_str() {
            Some("v1") => Some(Self::V1),
            Some("v1beta1") => Some(Self::V1beta1),
            _ => None,
        };
        listed.iter().find_map(known).unwrap_or_default()
    }

    fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1beta1 => "v1beta1",
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

/// The body to send.
pub fn encode_review(
    attributes: &Attributes<'_>,
    form: &Form<'_>,
    uid: &str,
    (object, old_object): (Option<&Value>, Option<&Value>),
    version: ReviewVersion,
) -> Vec<u8> {
    let request = review_request(attributes, form, uid, object, old_object);
    let review = Review { kind: "AdmissionReview", api_version: version.api_version(), request };
    // All keys are strings: writing cannot fail.
    serde_json::to_vec(&review).unwrap_or_default()
}

/// `request` as expressions see it: without the objects; texts that are empty are absent.
pub fn condition_request(attributes: &Attributes<'_>, form: &Form<'_>) -> Value {
    let mut value = serde_json::to_value(review_request(attributes, form, "", None, None)).unwrap_or_default();
    if let Some(members) = value.as_object_mut() {
        for key in ["object", "oldObject", "uid"] {
            members.remove(key);
        }
    }
    value
}

/// An answer that allows the write, or not.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub allowed: bool,
    pub patch: Option<Patch>,
    pub warnings: Vec<String>,
    pub status: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Patch {
    Json(Vec<u8>),
    /// Of a type that nobody knows, which matters only when it has operations.
    Other {
        kind: String,
        bytes: Vec<u8>,
    },
}

/// Reads an answer and checks that it is one to this request. `Err` completes `failed calling webhook "x": ...`.
pub fn read_review(body: &[u8], uid: &str, mutating: bool, asked: ReviewVersion) -> Result<Answer, String> {
    let review = answer::decode_answer(body).map_err(|why| format!("failed to call webhook: {why}"))?;
    let text = |key: &str| review.get(key).and_then(Value::as_str).unwrap_or_default();
    let api_version = Some(text("apiVersion")).filter(|v| !v.is_empty()).unwrap_or(asked.api_version());
    let kind = Some(text("kind")).filter(|k| !k.is_empty()).unwrap_or("AdmissionReview");
    match (api_version, kind) {
        (version, "AdmissionReview") if version == asked.api_version() => {}
        ("admission.k8s.io/v1" | "admission.k8s.io/v1beta1", "AdmissionReview") => {
            let (found, asked) = (api_version.trim_start_matches("admission.k8s.io/"), asked.name());
            return Err(format!(
                "failed to call webhook: converting ({found}.AdmissionReview) to ({asked}.AdmissionReview): unknown conversion"
            ));
        }
        ("v1", "Status") => {
            let asked = asked.name();
            return Err(format!(
                "failed to call webhook: converting (v1.Status) to ({asked}.AdmissionReview): unknown conversion"
            ));
        }
        _ => {
            return Err(format!(
                "failed to call webhook: no kind {} is registered for version {} in scheme \"k8s.io/apiserver/pkg/util/webhook/client.go:71\"",
                go_quote(kind),
                go_quote(api_version)
            ));
        }
    }
    if let Some(why) = answer::find_wrong_type(&review, asked.name()) {
        return Err(format!("failed to call webhook: {why}"));
    }
    if asked == ReviewVersion::V1beta1 {
        return verify_old_review(&review).map_err(|why| format!("received invalid webhook response: {why}"));
    }
    verify_review(&review, uid, mutating).map_err(|why| format!("received invalid webhook response: {why}"))
}

/// The rules of v1beta1: neither the uid nor the type of the patch is looked at.
fn verify_old_review(review: &Value) -> Result<Answer, String> {
    let response =
        review.get("response").filter(|r| r.is_object()).ok_or_else(|| "webhook response was absent".to_owned())?;
    let patch = answer::patch_bytes(response.get("patch")).unwrap_or_default();
    Ok(read_answer(response, (!patch.is_empty()).then_some(Patch::Json(patch))))
}

fn read_answer(response: &Value, patch: Option<Patch>) -> Answer {
    let warnings = response.get("warnings").and_then(Value::as_array);
    Answer {
        allowed: response.get("allowed").and_then(Value::as_bool).unwrap_or(false),
        patch,
        warnings: warnings.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect(),
        status: response.get("status").cloned().unwrap_or(Value::Null),
    }
}

fn verify_review(review: &Value, uid: &str, mutating: bool) -> Result<Answer, String> {
    let response =
        review.get("response").filter(|r| r.is_object()).ok_or_else(|| "webhook response was absent".to_owned())?;
    let answered = response.get("uid").and_then(Value::as_str).unwrap_or_default();
    if answered != uid {
        return Err(format!("expected response.uid={}, got {}", go_quote(uid), go_quote(answered)));
    }
    let named = |key: &str| review.get(key).and_then(Value::as_str).unwrap_or_default();
    if named("apiVersion").is_empty() || named("kind").is_empty() {
        let version = Some(named("apiVersion")).filter(|v| !v.is_empty()).unwrap_or("/");
        return Err(format!(
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {version}, Kind={}",
            named("kind")
        ));
    }
    let patch = answer::patch_bytes(response.get("patch")).unwrap_or_default();
    let patch_type = response.get("patchType").and_then(Value::as_str);
    let patch = match (mutating, patch.is_empty(), patch_type) {
        (false, false, _) => return Err("validating webhook may not return response.patch".into()),
        (false, true, Some(_)) => return Err("validating webhook may not return response.patchType".into()),
        (true, false, None) => return Err("webhook returned response.patch but not response.patchType".into()),
        (true, true, Some(_)) => return Err("webhook returned response.patchType but not response.patch".into()),
        (true, false, Some("")) => return Err("webhook returned invalid response.patchType of \"\"".into()),
        (true, false, Some("JSONPatch")) => Some(Patch::Json(patch)),
        (true, false, Some(other)) => Some(Patch::Other { kind: other.to_owned(), bytes: patch }),
        (_, true, None) => None,
    };
    Ok(read_answer(response, patch))
}

/// The refusal a client sees when a webhook denies (`ToStatusErr`).
pub fn denial_status(webhook: &str, result: &Value) -> Status {
    let text = |key: &str| result.get(key).and_then(Value::as_str).unwrap_or_default();
    let denied = format!("admission webhook {} denied the request", go_quote(webhook));
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    let code = result.get("code").and_then(Value::as_u64).and_then(|c| u16::try_from(c).ok()).unwrap_or(0).max(400);
    let mut status = Status::new(code, text("reason"), message);
    status.details = result.get("details").filter(|d| d.is_object()).map(|d| Box::new(read_details(d)));
    status.metadata = result.get("metadata").map(list_metadata).filter(|m| !m.is_empty()).map(Box::new);
    status
}

/// What the metadata of a Status may have (`ListMeta`).
fn list_metadata(given: &Value) -> Map<String, Value> {
    const MEMBERS: [&str; 4] = ["selfLink", "resourceVersion", "continue", "remainingItemCount"];
    let empty = |value: &Value| value.is_null() || value.as_str() == Some("");
    let members = MEMBERS.iter().filter_map(|name| Some(((*name).to_owned(), given.get(*name)?.clone())));
    members.filter(|(_, value)| !empty(value)).collect()
}

fn read_details(value: &Value) -> Details {
    let text = |v: &Value, key: &str| v.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let causes = value.get("causes").and_then(Value::as_array);
    Details {
        name: text(value, "name"),
        group: text(value, "group"),
        kind: text(value, "kind"),
        uid: text(value, "uid"),
        causes: causes
            .into_iter()
            .flatten()
            .map(|c| Cause { reason: text(c, "reason"), message: text(c, "message"), field: text(c, "field") })
            .collect(),
        retry_after_seconds: value
            .get("retryAfterSeconds")
            .and_then(Value::as_u64)
            .and_then(|s| u32::try_from(s).ok())
            .unwrap_or_default(),
    }
}

/// What client-go makes of an answer that is not 2xx (`NewGenericServerResponse` without a resource).
pub fn http_failure(code: u16, content_type: &str, body: &[u8]) -> String {
    // An answer that says what else it is than JSON is not read.
    let is_json = content_type.is_empty() || content_type.starts_with("application/json");
    if is_json
        && let Ok(Value::Object(status)) = serde_json::from_slice::<Value>(body)
        && status.get("kind").and_then(Value::as_str) == Some("Status")
        && status.get("status").and_then(Value::as_str) != Some("Success")
    {
        return message_of(&status);
    }
    let body = String::from_utf8_lossy(body.get(..2048).unwrap_or(body));
    let is_text = content_type.is_empty() || content_type.starts_with("text/");
    let message = if is_text { body.trim().to_owned() } else { "unknown".to_owned() };
    match code {
        409 => "the server reported a conflict".into(),
        404 => "the server could not find the requested resource".into(),
        400 => "the server rejected our request for an unknown reason".into(),
        401 => "the server has asked for the client to provide credentials".into(),
        403 | 406 | 415 => message,
        405 => "the server does not allow this method on the requested resource".into(),
        422 => "the server rejected our request due to an error in our request".into(),
        429 => "the server has received too many requests and has asked us to try again later".into(),
        503 => "the server is currently unable to handle the request".into(),
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .into()
        }
        500.. => {
            format!("an error on the server ({}) has prevented the request from succeeding", go_quote(&message))
        }
        _ => format!("the server responded with the status code {code} but did not return more information"),
    }
}

fn message_of(status: &Map<String, Value>) -> String {
    status.get("message").and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::json;

    fn answer(response: &Value, mutating: bool) -> Result<Answer, String> {
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
        read_review(review.to_string().as_bytes(), "u", mutating, ReviewVersion::V1)
    }

    #[test]
    fn a_patch_comes_as_base64_or_as_bytes() {
        let text = r#"[{"op":"add","path":"/x","value":1}]"#;
        let base64 = answer(
            &json!({"uid": "u", "allowed": true, "patch": STANDARD.encode(text), "patchType": "JSONPatch"}),
            true,
        );
        let bytes =
            answer(&json!({"uid": "u", "allowed": true, "patch": text.as_bytes(), "patchType": "JSONPatch"}), true);
        assert_eq!(base64, bytes);
        assert_eq!(base64.unwrap().patch, Some(Patch::Json(text.as_bytes().to_vec())));
    }

    #[test]
    fn an_answer_to_another_question_is_refused() {
        assert_eq!(
            answer(&json!({"uid": "other", "allowed": true}), false).unwrap_err(),
            "received invalid webhook response: expected response.uid=\"u\", got \"other\""
        );
    }

    #[test]
    fn a_status_is_no_review_and_a_success_is_no_failure() {
        let status = br#"{"kind": "Status", "apiVersion": "v1", "status": "Success"}"#;
        let why = read_review(status, "u", false, ReviewVersion::V1).unwrap_err();
        let text = "failed to call webhook: converting (v1.Status) to (v1.AdmissionReview): unknown conversion";
        assert_eq!(why, text);
        let told = http_failure(500, "application/json", status);
        assert_eq!(told, "an error on the server (\"unknown\") has prevented the request from succeeding");
    }

    #[test]
    fn a_validating_webhook_may_not_patch() {
        let with_patch = json!({"uid": "u", "allowed": true, "patch": "W10=", "patchType": "JSONPatch"});
        assert_eq!(
            answer(&with_patch, false).unwrap_err(),
            "received invalid webhook response: validating webhook may not return response.patch"
        );
    }

    #[test]
    fn a_denial_is_400_without_a_reason_unless_the_webhook_says_more() {
        let bare = denial_status("w.x.io", &Value::Null);
        assert_eq!((bare.code, bare.reason.as_str()), (400, ""));
        assert_eq!(bare.message, "admission webhook \"w.x.io\" denied the request without explanation");
        let full = denial_status("w.x.io", &json!({"code": 403, "reason": "Forbidden", "message": "no"}));
        assert_eq!((full.code, full.reason.as_str()), (403, "Forbidden"));
        assert_eq!(full.message, "admission webhook \"w.x.io\" denied the request: no");
        assert_eq!(denial_status("w.x.io", &json!({"code": 200})).code, 400);
        let told = denial_status("w.x.io", &json!({"metadata": {"resourceVersion": "7", "name": "x"}}));
        assert_eq!(told.into_value()["metadata"], json!({"resourceVersion": "7"}));
    }

    #[test]
    fn an_old_review_is_held_to_the_old_rules() {
        assert_eq!(ReviewVersion::read(&[json!("v1beta1"), json!("v1")]), ReviewVersion::V1beta1);
        let answer = br#"{"response": {"allowed": true}}"#;
        assert!(read_review(answer, "u", false, ReviewVersion::V1beta1).is_ok_and(|a| a.allowed));
        assert!(read_review(answer, "u", false, ReviewVersion::V1).is_err());
    }
}
