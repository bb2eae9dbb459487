//! CertificateSigningRequests: who asked, what may be asked for, and which conditions a decision may set
//! (`pkg/registry/certificates/certificates/strategy.go`, `pkg/apis/certificates/validation`).

use std::collections::BTreeSet;

use base64::Engine;
use serde_json::{Value, json};

use crate::auth::User;
use crate::kind_rules::{items_of, spec_of, text_of};
use crate::meta::{label_problems, subdomain_problems};
use crate::schema::FieldError;
use crate::write::Part;

const SHORTEST_SECONDS: i64 = 600;
const LONGEST_DOMAIN: usize = 253;
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// A request is its writer's, whatever it says, and not decided.
pub fn prepare_create(request: &mut Value, user: &User) {
    if let Some(spec) = request.get_mut("spec").and_then(Value::as_object_mut) {
        for member in ["username", "uid", "groups", "extra"] {
            spec.remove(member);
        }
        if !user.name.is_empty() {
            spec.insert("username".into(), user.name.as_str().into());
        }
        if !user.uid.is_empty() {
            spec.insert("uid".into(), user.uid.as_str().into());
        }
        if !user.groups.is_empty() {
            spec.insert("groups".into(), user.groups.clone().into());
        }
        if !user.extra.is_empty() {
            spec.insert("extra".into(), json!(user.extra));
        }
    }
    request["status"] = json!({});
}

/// What was asked for stays; each path sets its own part of the status.
pub fn prepare_update(request: &mut Value, part: Part, old: &Value, now: &str) {
    request["spec"] = spec_of(old).clone();
    if part == Part::Whole {
        return;
    }
    if !request.get("status").is_some_and(Value::is_object) {
        request["status"] = json!({});
    }
    if part == Part::Named("approval") {
        match old.pointer("/status/certificate") {
            Some(certificate) => request["status"]["certificate"] = certificate.clone(),
            None => request["status"].as_object_mut().map_or((), |status| drop(status.remove("certificate"))),
        }
    } else {
        keep_condition(request, old, "Approved");
        keep_condition(request, old, "Denied");
    }
    let before = conditions_of(old).to_vec();
    for condition in request.pointer_mut("/status/conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        let unset = |condition: &Value, member: &str| condition.get(member).is_none_or(Value::is_null);
        if unset(condition, "lastUpdateTime") {
            condition["lastUpdateTime"] = now.into();
        }
        if unset(condition, "lastTransitionTime") {
            let same =
                before.iter().find(|old| old["type"] == condition["type"] && old["status"] == condition["status"]);
            let time = same.and_then(|old| old.get("lastTransitionTime")).filter(|time| !time.is_null()).cloned();
            condition["lastTransitionTime"] = time.unwrap_or_else(|| now.into());
        }
    }
}

fn conditions_of(request: &Value) -> &[Value] {
    request.get("status").map_or(&[], |status| items_of(status, "conditions"))
}

fn conditions_like<'v>(request: &'v Value, kind: &str) -> Vec<&'v Value> {
    conditions_of(request).iter().filter(|condition| text_of(condition, "type") == kind).collect()
}

/// `preserveConditionInstances`: decisions are put back where there are as many as before.
fn keep_condition(request: &mut Value, old: &Value, kind: &str) {
    let mut before = conditions_like(old, kind).into_iter();
    if before.len() != conditions_like(request, kind).len() {
        return;
    }
    let conditions = request.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter(|condition| text_of(condition, "type") == kind) {
        if let Some(old) = before.next() {
            *condition = old.clone();
        }
    }
}

/// `validateCertificateSigningRequest`, with what an older object may keep.
pub fn request_errors(request: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = spec_of(request);
    let mut errors = Vec::new();
    let body = text_of(spec, "request");
    if !begins_pem(body, "CERTIFICATE REQUEST") {
        let sent = spec.get("request").unwrap_or(&Value::Null);
        errors.push(FieldError::invalid("spec.request", sent, "PEM block type must be CERTIFICATE REQUEST"));
    }
    let usages = items_of(spec, "usages");
    if usages.is_empty() {
        errors.push(FieldError::required("spec.usages", ""));
    }
    let is_unknown = |usage: &Value| !usage.as_str().is_some_and(|usage| USAGES.contains(&usage));
    let mut seen = BTreeSet::new();
    for (index, usage) in usages.iter().enumerate() {
        if is_unknown(usage) && old.is_none() {
            errors.push(FieldError::not_supported(format!("spec.usages[{index}]"), usage, &USAGES));
        }
    }
    for (index, usage) in usages.iter().enumerate() {
        if !seen.insert(usage.as_str()) && old.is_none() {
            errors.push(FieldError::duplicate(format!("spec.usages[{index}]"), usage));
        }
    }
    errors.extend(signer_errors(text_of(spec, "signerName")));
    if let Some(seconds) = spec.get("expirationSeconds").and_then(Value::as_i64).filter(|s| *s < SHORTEST_SECONDS) {
        let why = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.push(FieldError::invalid("spec.expirationSeconds", &seconds.into(), why));
    }
    errors.extend(condition_errors(request));
    let certificate = request.get("status").map_or("", |status| text_of(status, "certificate"));
    if !certificate.is_empty() && !begins_pem(certificate, "CERTIFICATE") {
        let why = "must contain at least one CERTIFICATE PEM block";
        errors.push(FieldError::invalid_text("status.certificate", "<certificate data>", why));
    }
    errors
}

/// Whether the first PEM block of encoded bytes is of this type.
fn begins_pem(encoded: &str, kind: &str) -> bool {
    let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    text.split_once("-----BEGIN ").is_some_and(|(_, rest)| rest.starts_with(&format!("{kind}-----")))
}

/// `ValidateSignerName`.
fn signer_errors(name: &str) -> Vec<FieldError> {
    let invalid = |value: &str, why: &str| FieldError::invalid_text("spec.signerName", value, why);
    if name.is_empty() {
        return vec![FieldError::required("spec.signerName", "")];
    }
    if name == "kubernetes.io/legacy-unknown" {
        return vec![invalid(name, "the legacy signerName is not allowed via this API version")];
    }
    let Some((domain, path)) = name.split_once('/').filter(|(_, path)| !path.contains('/')) else {
        return vec![invalid(name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")];
    };
    let mut errors = Vec::new();
    if domain.len() > LONGEST_DOMAIN {
        errors.push(FieldError::too_long("spec.signerName", LONGEST_DOMAIN));
    }
    let told = |label: &str, why: String| format!("validating label {}: {why}", crate::error::go_quote(label));
    for label in domain.split('.') {
        errors.extend(label_problems(label).into_iter().map(|why| invalid(domain, &told(label, why))));
    }
    if !domain.contains('.') {
        errors.push(invalid(domain, "should be a domain with at least two segments separated by dots"));
    }
    for label in path.split('.') {
        errors.extend(subdomain_problems(label).into_iter().map(|why| invalid(path, &told(label, why))));
    }
    errors
}

fn condition_errors(request: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, condition) in conditions_of(request).iter().enumerate() {
        let at = format!("status.conditions[{index}]");
        let (kind, status) = (text_of(condition, "type"), text_of(condition, "status"));
        if kind.is_empty() {
            errors.push(FieldError::required(format!("{at}.type"), ""));
        }
        let known: &[&str] = match kind {
            "Approved" | "Denied" | "Failed" => &["True"],
            _ => &["False", "True", "Unknown"],
        };
        if status.is_empty() {
            errors.push(FieldError::required(format!("{at}.status"), ""));
        } else if !known.contains(&status) {
            errors.push(FieldError::not_supported(format!("{at}.status"), &status.into(), known));
        }
        let other = match kind {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if !other.is_empty() && seen.contains(other) {
            let why = "Approved and Denied conditions are mutually exclusive";
            errors.push(FieldError::invalid_text(format!("{at}.type"), kind, why));
        }
        if !seen.insert(kind) {
            errors.push(FieldError::duplicate(format!("{at}.type"), &kind.into()));
        }
    }
    errors
}

/// `validateCertificateSigningRequestUpdate`: who may decide, and who may issue.
pub fn update_errors(request: &Value, old: &Value, part: Part) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for kind in ["Approved", "Denied", "Failed"] {
        let (now, before) = (conditions_like(request, kind), conditions_like(old, kind));
        let decides = kind != "Failed" && part != Part::Named("approval");
        let verb = match now.len().cmp(&before.len()) {
            std::cmp::Ordering::Less => "remove",
            std::cmp::Ordering::Greater if decides => "add",
            std::cmp::Ordering::Equal if decides && now != before => "modify",
            _ => continue,
        };
        let why = format!("updates may not {verb} a condition of type {}", crate::error::go_quote(kind));
        errors.push(FieldError::forbidden("status.conditions", &why));
    }
    let certificate = |request: &Value| request.pointer("/status/certificate").cloned().unwrap_or_default();
    if certificate(request) != certificate(old) {
        if part != Part::Status {
            errors.push(FieldError::forbidden("status.certificate", "updates may not set certificate content"));
        } else if !certificate(old).is_null() {
            let why = "updates may not modify existing certificate content";
            errors.push(FieldError::forbidden("status.certificate", why));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request_of(signer: &str, usages: &[&str]) -> Value {
        let engine = base64::engine::general_purpose::STANDARD;
        let body = engine.encode("-----BEGIN CERTIFICATE REQUEST-----\nMII=\n-----END CERTIFICATE REQUEST-----\n");
        json!({"metadata": {"name": "r"}, "spec": {"request": body, "signerName": signer, "usages": usages}})
    }

    fn fields(errors: &[FieldError]) -> Vec<&str> {
        errors.iter().map(|error| error.field.as_str()).collect()
    }

    #[test]
    fn a_request_is_its_writers() {
        let mut request = request_of("a.io/b", &["client auth"]);
        request["spec"]["username"] = "somebody else".into();
        prepare_create(&mut request, &User::authenticated("alice", &["devs"]));
        assert_eq!(request["spec"]["username"], "alice");
        assert_eq!(request["spec"]["groups"], json!(["devs", "system:authenticated"]));
        assert_eq!(request["spec"].get("extra"), None);
        assert!(request_errors(&request, None).is_empty());
    }

    #[test]
    fn a_request_says_what_for_and_whom() {
        assert_eq!(fields(&request_errors(&request_of("", &[]), None)), ["spec.usages", "spec.signerName"]);
        assert_eq!(fields(&request_errors(&request_of("a/b", &["x"]), None)), ["spec.usages[0]", "spec.signerName"]);
        let mut request = request_of("a.io/b", &["any", "any"]);
        request["spec"]["request"] = "YWJj".into();
        request["spec"]["expirationSeconds"] = 5.into();
        assert_eq!(
            fields(&request_errors(&request, None)),
            ["spec.request", "spec.usages[1]", "spec.expirationSeconds"]
        );
    }

    #[test]
    fn a_decision_is_made_once_and_by_approval_alone() {
        let old = request_of("a.io/b", &["any"]);
        let mut approved = old.clone();
        approved["status"] = json!({"conditions": [{"type": "Approved", "status": "True"}]});
        prepare_update(&mut approved, Part::Named("approval"), &old, "T");
        assert_eq!(approved["status"]["conditions"][0]["lastTransitionTime"], "T");
        assert!(update_errors(&approved, &old, Part::Named("approval")).is_empty());
        assert_eq!(update_errors(&approved, &old, Part::Status).len(), 1);
        assert_eq!(update_errors(&old, &approved, Part::Named("approval")).len(), 1);
        let mut failed = old.clone();
        failed["status"] = json!({"conditions": [{"type": "Failed", "status": "False"}, {"type": "X", "status": ""}]});
        assert_eq!(fields(&condition_errors(&failed)), ["status.conditions[0].status", "status.conditions[1].status"]);
    }
}
