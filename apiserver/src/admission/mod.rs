//! Admission webhooks: which are asked, in which order, and what becomes of their answers.

use std::sync::Arc;

use serde_json::Value;

use crate::auth::User;
use crate::error::Status;
use crate::resource::Resource;
use crate::server::ApiServer;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// One write on its way in. Objects are in the version of `resource`.
#[derive(Debug, Clone)]
pub struct Attributes<'a> {
    pub operation: Operation,
    pub resource: &'a Arc<Resource>,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// The kind of the body when a subresource has its own: (group, version, kind).
    pub subresource_kind: Option<(&'a str, &'a str, &'a str)>,
    /// Empty for cluster-scoped objects.
    pub namespace: &'a str,
    /// Empty on a create with generateName.
    pub name: &'a str,
    pub old_object: Option<&'a Value>,
    /// CreateOptions, UpdateOptions, PatchOptions or DeleteOptions, with kind and apiVersion.
    pub options: &'a Value,
    pub dry_run: bool,
    pub user: &'a User,
}

/// Whether any webhook is configured: lets the common case skip everything else.
pub fn any(_server: &ApiServer, _attributes: &Attributes<'_>) -> bool {
    false
}

/// Runs the mutating webhooks over `object` (`None` on a delete), collecting their warnings.
///
/// After each patch the caller's `tidy` must hold again: it prunes and defaults the object as storage would.
pub async fn mutate(
    _server: &ApiServer,
    _attributes: &Attributes<'_>,
    _object: Option<&mut Value>,
    _tidy: &(dyn Fn(&mut Value) + Send + Sync),
    _warnings: &mut Vec<String>,
) -> Result<(), Status> {
    Ok(())
}

/// Runs the validating webhooks.
pub async fn validate(
    _server: &ApiServer,
    _attributes: &Attributes<'_>,
    _object: Option<&Value>,
    _warnings: &mut Vec<String>,
) -> Result<(), Status> {
    Ok(())
}
