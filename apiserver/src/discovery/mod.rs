//! Discovery, OpenAPI, version and health paths.

use axum::response::Response;
use http::HeaderMap;

use crate::server::ApiServer;

/// Answers GET on a path that is not an object's: `/`, `/api`, `/apis`, `/api/v1`, `/apis/<group>[/<version>]`, `/openapi/...`,
/// `/version`, `/healthz`, `/readyz`, `/livez`. `None`: no such path.
pub fn respond(_server: &ApiServer, _path: &str, _headers: &HeaderMap) -> Option<Response> {
    None
}
