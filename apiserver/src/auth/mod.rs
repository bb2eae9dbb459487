//! Who asks, and whether they may: bearer tokens, RBAC, access reviews.

use http::HeaderMap;
use serde_json::Value;

use crate::error::Status;
use crate::resource::Resource;
use crate::server::ApiServer;

/// An authenticated client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
}

impl User {
    /// The administrator: bypasses authorization as a member of `system:masters`.
    pub fn admin() -> Self {
        Self {
            name: "admin".into(),
            uid: "admin".into(),
            groups: vec!["system:masters".into(), "system:authenticated".into()],
        }
    }

    pub fn anonymous() -> Self {
        Self { name: "system:anonymous".into(), uid: String::new(), groups: vec!["system:unauthenticated".into()] }
    }
}

/// What a request is about, as authorization sees it (`request.RequestInfo`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestInfo {
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

/// The user behind the request's `Authorization` header; `None` when there is no credential.
pub fn authenticate(server: &ApiServer, headers: &HeaderMap) -> Result<Option<User>, Status> {
    let Some(header) = headers.get(http::header::AUTHORIZATION) else { return Ok(None) };
    let token = header.to_str().ok().and_then(|h| h.strip_prefix("Bearer ")).unwrap_or_default();
    server.state().users.get(token).cloned().map(Some).ok_or_else(Status::unauthorized)
}

/// Refuses what the user may not do.
pub fn authorize(_server: &ApiServer, _user: &User, _request: &RequestInfo) -> Result<(), Status> {
    Ok(())
}

/// Answers a review (`SubjectAccessReview`, `SelfSubjectAccessReview`, `LocalSubjectAccessReview`, `SelfSubjectRulesReview`,
/// `TokenReview`, `SelfSubjectReview`): the body with `status` filled in.
pub fn review(
    _server: &ApiServer,
    _user: &User,
    _resource: &Resource,
    _namespace: Option<&str>,
    body: Value,
) -> Result<Value, Status> {
    Ok(body)
}
