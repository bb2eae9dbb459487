//! Access and identity reviews (`pkg/registry/authorization`, `pkg/registry/authentication`).

use serde_json::{Map, Value, json};

use super::{Decision, RequestInfo, User, decide_access, rbac};
use crate::error::{Status, go_struct};
use crate::resource::Resource;
use crate::schema::FieldError;
use crate::selector::LabelSelector;
use crate::server::ApiServer;

const ONE_OF: &str = "exactly one of nonResourceAttributes or resourceAttributes must be specified";

/// The body with `status` filled in.
pub fn answer_review(
    server: &ApiServer,
    user: &User,
    resource: &Resource,
    namespace: Option<&str>,
    mut body: Value,
) -> Result<Value, Status> {
    let spec = body.get("spec").cloned().unwrap_or_else(|| json!({}));
    let status = match resource.kind.as_str() {
        "SubjectAccessReview" => {
            refuse_invalid(resource, &with_metadata(access_errors(&spec, true), &body))?;
            review_subject_access(server, &read_subject(&spec), &spec)
        }
        "LocalSubjectAccessReview" => {
            let namespace = namespace.unwrap_or_default();
            let mut errors = local_errors(&spec, namespace);
            errors.extend(metadata_error(&body, "must be empty except for namespace"));
            refuse_invalid(resource, &errors)?;
            review_subject_access(server, &read_subject(&spec), &spec)
        }
        "SelfSubjectAccessReview" => {
            refuse_invalid(resource, &with_metadata(access_errors(&spec, false), &body))?;
            review_subject_access(server, user, &spec)
        }
        "SelfSubjectRulesReview" => {
            let status = review_rules(server, user, text_of(&spec, "namespace"))?;
            // The answer is an object of its own: it does not repeat the question.
            body["spec"] = json!({});
            body["metadata"] = json!({});
            status
        }
        "SelfSubjectReview" => {
            // An object of its own: nothing of the body is in it.
            body["metadata"] = json!({"creationTimestamp": crate::clock::write_seconds(server.now())});
            json!({"userInfo": user_info(user)})
        }
        "TokenReview" => review_token(server, &spec)?,
        _ => return Ok(body),
    };
    if let Some(members) = body.as_object_mut() {
        members.insert("status".into(), status);
    }
    Ok(body)
}

fn text_of<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn texts_of(value: &Value, key: &str) -> Vec<String> {
    let list = value.get(key).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn refuse_invalid(resource: &Resource, errors: &[FieldError]) -> Result<(), Status> {
    if errors.is_empty() {
        return Ok(());
    }
    // The real server validates before the kind is known to the error.
    Err(Status::invalid(&resource.group, "", "", errors))
}

fn with_metadata(mut errors: Vec<FieldError>, body: &Value) -> Vec<FieldError> {
    errors.extend(metadata_error(body, "must be empty"));
    errors
}

fn read_subject(spec: &Value) -> User {
    User {
        name: text_of(spec, "user").to_owned(),
        uid: text_of(spec, "uid").to_owned(),
        groups: texts_of(spec, "groups"),
        ..User::default()
    }
}

fn access_errors(spec: &Value, about_subject: bool) -> Vec<FieldError> {
    let given = |key: &str| spec.get(key).filter(|v| !v.is_null());
    let (resource, other) = (given("resourceAttributes"), given("nonResourceAttributes"));
    let mut errors = Vec::new();
    match (resource, other) {
        (Some(_), Some(other)) => errors.push(FieldError::invalid_shown(
            "spec.nonResourceAttributes",
            &show_path(other),
            "cannot be specified in combination with resourceAttributes",
        )),
        (None, None) => errors.push(FieldError::invalid("spec.resourceAttributes", &Value::Null, ONE_OF)),
        (Some(resource), None) => {
            for key in ["fieldSelector", "labelSelector"] {
                errors.extend(
                    resource.get(key).filter(|s| !s.is_null()).into_iter().flat_map(|s| selector_errors(key, s)),
                );
            }
        }
        (None, Some(_)) => {}
    }
    if about_subject && text_of(spec, "user").is_empty() && texts_of(spec, "groups").is_empty() {
        errors.push(FieldError::invalid_text("spec.user", "", "at least one of user or group must be specified"));
    }
    errors
}

fn show_path(attributes: &Value) -> String {
    go_struct(attributes, &[("Path", "path", "\"\""), ("Verb", "verb", "\"\"")])
}

/// `ValidateFieldSelectorAttributes` and its sister: a selector is given either raw or in parts.
fn selector_errors(key: &str, selector: &Value) -> Vec<FieldError> {
    let field = format!("spec.resourceAttributes.{key}");
    let (raw, parts) = (text_of(selector, "rawSelector"), parts_of(selector));
    let mut errors = Vec::new();
    if !raw.is_empty() && !parts.is_empty() {
        let why = "may not specified at the same time as requirements";
        errors.push(FieldError::invalid_text(format!("{field}.rawSelector"), raw, why));
    } else if raw.is_empty() && parts.is_empty() {
        let why = format!("when {field} is specified, requirements or rawSelector is required");
        errors.push(FieldError::required(format!("{field}.requirements"), &why));
    }
    for (index, part) in parts.iter().enumerate() {
        let at = format!("{field}.requirements[{index}]");
        if key == "fieldSelector" && text_of(part, "key").is_empty() {
            errors.push(FieldError::required(format!("{at}.key"), "must be specified"));
        }
        let labels = key == "labelSelector";
        // An operator that is not known is left to the answer.
        let told = |e: &FieldError| !e.field.ends_with(".operator") && (labels || e.field.ends_with(".values"));
        errors.extend(crate::admission::requirement_errors(&at, part).into_iter().filter(told));
    }
    errors
}

fn parts_of(selector: &Value) -> &[Value] {
    selector.get("requirements").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// What of the selectors is ignored: what cannot be read, or has an operator that fields do not have.
fn ignored_selectors(attributes: &Value) -> Vec<String> {
    let mut ignored = Vec::new();
    for key in ["fieldSelector", "labelSelector"] {
        let Some(selector) = attributes.get(key).filter(|s| !s.is_null()) else { continue };
        let (raw, parts) = (text_of(selector, "rawSelector"), parts_of(selector));
        let (bad_text, usable) = if key == "labelSelector" {
            let known = |part: &&Value| matches!(text_of(part, "operator"), "In" | "NotIn" | "Exists" | "DoesNotExist");
            (LabelSelector::parse(raw).is_err(), parts.iter().filter(known).count())
        } else {
            let single = |part: &&Value| {
                matches!(text_of(part, "operator"), "In" | "NotIn") && texts_of(part, "values").len() == 1
            };
            let bad_text = raw.split(',').any(|term| !term.is_empty() && !term.contains('='));
            (bad_text, parts.iter().filter(single).count())
        };
        if bad_text || usable < parts.len() {
            let how = if usable > 0 { "partially ignored" } else { "ignored" };
            ignored.push(format!("spec.resourceAttributes.{key} {how} due to parse error"));
        }
    }
    ignored
}

/// A review has no name and no other metadata of its own (`ValidateSubjectAccessReview`). A uid that is sent was
/// replaced before, as that of any new object.
fn metadata_error(body: &Value, why: &str) -> Option<FieldError> {
    let metadata = body.get("metadata")?;
    let own = |(key, value): (&String, &Value)| {
        !matches!(key.as_str(), "managedFields" | "namespace" | "uid") && !value.is_null()
    };
    let shown = || crate::meta::go_text(metadata, false);
    metadata.as_object()?.iter().any(own).then(|| FieldError::invalid_shown("metadata", &shown(), why))
}

fn local_errors(spec: &Value, namespace: &str) -> Vec<FieldError> {
    let mut errors = access_errors(spec, true);
    if let Some(attributes) = spec.get("resourceAttributes").filter(|v| !v.is_null())
        && text_of(attributes, "namespace") != namespace
    {
        let field = "spec.resourceAttributes.namespace";
        errors.push(FieldError::invalid_text(field, text_of(attributes, "namespace"), "must match metadata.namespace"));
    }
    if let Some(attributes) = spec.get("nonResourceAttributes").filter(|v| !v.is_null()) {
        let shown = show_path(attributes);
        errors.push(FieldError::invalid_shown(
            "spec.nonResourceAttributes",
            &shown,
            "disallowed on this kind of request",
        ));
    }
    errors
}

/// What the review asks about, in the form of a request.
fn read_attributes(spec: &Value) -> RequestInfo {
    if let Some(attributes) = spec.get("resourceAttributes").filter(|v| !v.is_null()) {
        let of = |key: &str| text_of(attributes, key).to_owned();
        return RequestInfo {
            path: String::new(),
            verb: of("verb"),
            is_resource: true,
            group: of("group"),
            version: of("version"),
            namespace: of("namespace"),
            resource: of("resource"),
            subresource: of("subresource"),
            name: of("name"),
        };
    }
    let attributes = spec.get("nonResourceAttributes").unwrap_or(&Value::Null);
    RequestInfo {
        path: text_of(attributes, "path").to_owned(),
        verb: text_of(attributes, "verb").to_owned(),
        ..RequestInfo::default()
    }
}

fn review_subject_access(server: &ApiServer, user: &User, spec: &Value) -> Value {
    let Decision { allowed, reason, problems } = decide_access(server, user, &read_attributes(spec));
    let mut status = Map::new();
    status.insert("allowed".into(), allowed.into());
    if !reason.is_empty() {
        status.insert("reason".into(), reason.into());
    }
    let mut problems = if problems.is_empty() { Vec::new() } else { vec![problems] };
    problems.extend(spec.get("resourceAttributes").into_iter().flat_map(ignored_selectors));
    if !problems.is_empty() {
        status.insert("evaluationError".into(), problems.join("; ").into());
    }
    Value::Object(status)
}

fn review_rules(server: &ApiServer, user: &User, namespace: &str) -> Result<Value, Status> {
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let grants = rbac::collect_grants(server, user, namespace);
    let of = |urls: bool| -> Vec<Value> {
        grants.granted.iter().filter(|g| g.rule.urls.is_empty() != urls).map(|g| g.rule.to_value()).collect()
    };
    // RBAC knows all its rules, even when roles are gone.
    let mut status = json!({"resourceRules": of(false), "nonResourceRules": of(true), "incomplete": false});
    if !grants.problems.is_empty() {
        // Several errors are shown as Go's aggregate.
        let told = grants.problems.join(", ");
        let told = if grants.problems.len() > 1 { format!("[{told}]") } else { told };
        status["evaluationError"] = told.into();
    }
    Ok(status)
}

fn user_info(user: &User) -> Value {
    let mut info = Map::new();
    for (key, value) in [("username", &user.name), ("uid", &user.uid)] {
        if !value.is_empty() {
            info.insert(key.into(), value.as_str().into());
        }
    }
    if !user.groups.is_empty() {
        info.insert("groups".into(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        info.insert("extra".into(), json!(user.extra));
    }
    Value::Object(info)
}

fn review_token(server: &ApiServer, spec: &Value) -> Result<Value, Status> {
    let token = text_of(spec, "token");
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let given = texts_of(spec, "audiences");
    let audiences = if given.is_empty() { vec![super::token::AUDIENCE.to_owned()] } else { given };
    Ok(match super::find_user(server, token, &audiences) {
        Ok((user, audiences)) => json!({"authenticated": true, "user": user_info(&user), "audiences": audiences}),
        // The other authenticators do not know the token either.
        Err(Some(why)) => json!({"user": {}, "error": format!("[invalid bearer token, {why}]")}),
        Err(None) => json!({"user": {}, "error": "invalid bearer token"}),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_of_a_review_is_given_in_one_way() {
        let field = |selector: Value| selector_errors("labelSelector", &selector).pop().map(|e| e.field);
        let parts = json!([{"key": "a", "operator": "Exists"}]);
        assert!(field(json!({})).is_some_and(|f| f.ends_with("labelSelector.requirements")));
        assert!(field(json!({"rawSelector": "a", "requirements": parts})).is_some_and(|f| f.ends_with("rawSelector")));
        assert_eq!(field(json!({"requirements": parts})), None);
    }

    #[test]
    fn a_requirement_of_a_review_has_the_values_of_its_operator() {
        let fields = |key: &str, part: Value| -> Vec<String> {
            selector_errors(key, &json!({ "requirements": [part] })).into_iter().map(|e| e.field).collect()
        };
        let at = |key: &str, member: &str| [format!("spec.resourceAttributes.{key}.requirements[0].{member}")];
        assert_eq!(fields("labelSelector", json!({"key": "a", "operator": "In"})), at("labelSelector", "values"));
        assert_eq!(
            fields("fieldSelector", json!({"key": "a", "operator": "Exists", "values": ["x"]})),
            at("fieldSelector", "values")
        );
        assert_eq!(fields("fieldSelector", json!({"operator": "Exists"})), at("fieldSelector", "key"));
        assert!(fields("labelSelector", json!({"key": "a", "operator": "Near"})).is_empty());
    }

    #[test]
    fn a_selector_that_cannot_be_read_is_ignored_and_said_so() {
        let said = |key: &str, selector: Value| ignored_selectors(&json!({ key: selector })).concat();
        let near = json!({"key": "a", "operator": "Near", "values": ["x"]});
        let text = "spec.resourceAttributes.labelSelector ignored due to parse error";
        assert_eq!(said("labelSelector", json!({"requirements": [near]})), text);
        let one = json!({"key": "a", "operator": "In", "values": ["x"]});
        let text = "spec.resourceAttributes.labelSelector partially ignored due to parse error";
        assert_eq!(said("labelSelector", json!({"requirements": [near, one]})), text);
        let two = json!({"key": "a", "operator": "NotIn", "values": ["x", "y"]});
        let text = "spec.resourceAttributes.fieldSelector ignored due to parse error";
        assert_eq!(said("fieldSelector", json!({"requirements": [two]})), text);
        assert_eq!(said("fieldSelector", json!({"rawSelector": "!!"})), text);
        assert_eq!(said("fieldSelector", json!({"rawSelector": "a=b,c!=d"})), "");
    }

    #[test]
    fn a_review_has_no_metadata_of_its_own() {
        assert!(metadata_error(&json!({"metadata": {"namespace": "n", "managedFields": []}}), "").is_none());
        assert!(metadata_error(&json!({"metadata": {"uid": "u"}}), "").is_none());
        assert!(metadata_error(&json!({"metadata": {"name": "x"}}), "").is_some());
    }
}
