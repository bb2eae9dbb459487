//! Who asks, and whether they may: bearer tokens, impersonation, RBAC, access reviews.

mod escalation;
mod impersonate;
pub(crate) mod initial;
mod rbac;
mod review;
mod roles;
pub(crate) mod token;

pub(crate) use escalation::refuse_escalation;
pub(crate) use impersonate::{Impersonations, impersonate_user};
pub(crate) use roles::{binding_errors, role_errors};

use std::collections::BTreeMap;

use http::HeaderMap;
use serde_json::Value;

use crate::error::{Status, go_quote};
use crate::resource::Resource;
use crate::server::{ApiServer, GrantedRequest};

/// An authenticated client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct User {
    /// The user name, as RBAC subjects of kind User name it.
    pub name: String,
    /// Identifies the user beside its name; empty for a user without one. RBAC does not look at it.
    pub uid: String,
    /// All groups, as RBAC subjects of kind Group name them. None is added to these: `system:authenticated` must be
    /// among them where it is meant. A member of `system:masters` may do everything.
    pub groups: Vec<String>,
    /// More facts, as in `userInfo.extra`: the values of each key. RBAC does not look at them.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The administrator: bypasses authorization as a member of `system:masters`.
    pub fn admin() -> Self {
        Self {
            name: "admin".into(),
            uid: "admin".into(),
            groups: vec!["system:masters".into(), "system:authenticated".into()],
            ..Self::default()
        }
    }

    /// Who a request without credentials is over HTTPS: `system:anonymous`, in `system:unauthenticated`.
    pub fn anonymous() -> Self {
        let groups = vec!["system:unauthenticated".into()];
        Self { name: "system:anonymous".into(), groups, ..Self::default() }
    }

    /// A user with a certificate or a token: in `system:authenticated` besides the given groups.
    pub fn authenticated(name: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().copied().chain(["system:authenticated"]).map(str::to_owned).collect();
        Self { name: name.to_owned(), groups, ..Self::default() }
    }
}

/// The user that a service account is.
pub(crate) fn service_account(namespace: &str, name: &str) -> User {
    let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}")];
    User::authenticated(&format!("system:serviceaccount:{namespace}:{name}"), &groups)
}

/// What a request is about, as authorization sees it (`request.RequestInfo`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RequestInfo {
    pub path: String,
    /// get, list, watch, create, update, patch, delete, deletecollection; for other paths the lower-case HTTP method.
    pub verb: String,
    pub is_resource: bool,
    pub group: String,
    pub version: String,
    pub namespace: String,
    pub resource: String,
    pub subresource: String,
    pub name: String,
}

/// The user behind the request's bearer token (`authentication/request/bearertoken`); `None` when there is none.
/// Another kind of credential is nobody's.
pub(crate) fn authenticate_request(
    server: &ApiServer,
    headers: &HeaderMap,
    warnings: &mut Vec<String>,
) -> Result<Option<User>, Status> {
    let header = headers.get(http::header::AUTHORIZATION).and_then(|h| h.to_str().ok()).unwrap_or_default();
    let parts: Vec<&str> = header.trim().splitn(3, ' ').collect();
    let [scheme, token, rest @ ..] = parts.as_slice() else { return Ok(None) };
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Ok(None);
    }
    if token.is_empty() {
        if !rest.is_empty() {
            warnings.push(SPACE_WARNING.into());
        }
        return Ok(None);
    }
    find_user(server, token, &[token::AUDIENCE.into()]).map(|(user, _)| Some(user)).map_err(|_| Status::unauthorized())
}

const SPACE_WARNING: &str =
    "the provided Authorization header contains extra space before the bearer token, and is ignored";

/// Whose token this is for these audiences, and for which of them; else why it is nobody's, if that can be said.
fn find_user(server: &ApiServer, token: &str, audiences: &[String]) -> Result<(User, Vec<String>), Option<String>> {
    match server.state().users.get(token) {
        Some(user) => {
            let own: Vec<String> = audiences.iter().filter(|a| *a == token::AUDIENCE).cloned().collect();
            if own.is_empty() { Err(None) } else { Ok((user.clone(), own)) }
        }
        None => server.state().tokens.find_user(server, token, audiences),
    }
}

/// Whether a user may do something, and why (as in the status of an access review).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    pub allowed: bool,
    pub reason: String,
    pub problems: String,
}

/// `system:masters` may do everything; for the others RBAC decides.
pub(crate) fn decide_access(server: &ApiServer, user: &User, request: &RequestInfo) -> Decision {
    if user.groups.iter().any(|g| g == "system:masters") {
        return Decision { allowed: true, ..Decision::default() };
    }
    let grants = rbac::collect_grants(server, user, &request.namespace);
    if let Some(granted) = grants.granted.iter().find(|g| g.rule.allows(request)) {
        let reason = format!("RBAC: allowed by {}", granted.through);
        return Decision { allowed: true, reason, problems: String::new() };
    }
    let problems = match grants.problems.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    let reason = if problems.is_empty() { String::new() } else { format!("RBAC: {problems}") };
    Decision { allowed: false, reason, problems: String::new() }
}

/// Refuses what the user may not do.
pub(crate) fn authorize_request(server: &ApiServer, user: &User, request: &RequestInfo) -> Result<(), Status> {
    let decision = decide_access(server, user, request);
    if decision.allowed {
        // Of the administrator's none has a reason.
        if let Some(observe) = server.grant_observer().filter(|_| !decision.reason.is_empty()) {
            let RequestInfo { verb, group, resource, subresource, .. } = request;
            observe(&GrantedRequest { user: &user.name, verb, group, resource, subresource });
        }
        return Ok(());
    }
    Err(forbid_request(user, request, &decision.reason))
}

/// The 403 for a request, with the reason if there is one.
fn forbid_request(user: &User, request: &RequestInfo, reason: &str) -> Status {
    // Nothing in it may look like HTML.
    let mut why = refusal_text(user, request).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    if !reason.is_empty() {
        why = format!("{why}: {reason}");
    }
    let resource = if request.is_resource { request.resource.as_str() } else { "" };
    Status::forbidden(&request.group, resource, &request.name, &why)
}

/// `User "x" cannot list resource "pods" in API group "" at the cluster scope` (`responsewriters.forbiddenMessage`).
fn refusal_text(user: &User, request: &RequestInfo) -> String {
    let who = format!("User {} cannot {}", go_quote(&user.name), request.verb);
    if !request.is_resource {
        return format!("{who} path {}", go_quote(&request.path));
    }
    let resource = match request.subresource.as_str() {
        "" => request.resource.clone(),
        sub => format!("{}/{sub}", request.resource),
    };
    let place = match request.namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {}", go_quote(namespace)),
    };
    format!("{who} resource {} in API group {} {place}", go_quote(&resource), go_quote(&request.group))
}

/// Answers a review (`SubjectAccessReview`, `SelfSubjectAccessReview`, `LocalSubjectAccessReview`,
/// `SelfSubjectRulesReview`, `TokenReview`, `SelfSubjectReview`): the body with `status` filled in.
pub(crate) fn review_access(
    server: &ApiServer,
    user: &User,
    resource: &Resource,
    namespace: Option<&str>,
    body: Value,
) -> Result<Value, Status> {
    review::answer_review(server, user, resource, namespace, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_verb_the_resource_and_the_place() {
        let alice = User { name: "alice".into(), ..User::default() };
        let mut request = RequestInfo {
            verb: "patch".into(),
            is_resource: true,
            resource: "pods".into(),
            subresource: "status".into(),
            namespace: "n".into(),
            ..RequestInfo::default()
        };
        assert_eq!(
            refusal_text(&alice, &request),
            "User \"alice\" cannot patch resource \"pods/status\" in API group \"\" in the namespace \"n\""
        );
        request.namespace.clear();
        assert!(refusal_text(&alice, &request).ends_with("at the cluster scope"));
        let path = RequestInfo { path: "/metrics".into(), verb: "get".into(), ..RequestInfo::default() };
        assert_eq!(refusal_text(&alice, &path), "User \"alice\" cannot get path \"/metrics\"");
    }
}
