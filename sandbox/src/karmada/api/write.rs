//! Writes to a server, under a name.

use std::sync::Arc;

use serde_json::{Value, json};
use tracing::warn;

use super::{ApiError, Resource, Server};
use crate::karmada::object::{Gvk, ObjectExt, ObjectKey};

/// The content of a server-side apply.
pub const APPLY: &str = "application/apply-patch+yaml";

/// How to delete.
#[derive(Debug, Clone, Default)]
pub struct Delete {
    /// `Background`, `Foreground` or `Orphan`.
    pub propagation: Option<&'static str>,
    /// Only this very object.
    pub uid: Option<String>,
    /// Only in this very state.
    pub resource_version: Option<String>,
}

/// Writes to a server under a name.
#[derive(Debug, Clone)]
pub struct Writer {
    pub(super) server: Arc<Server>,
    pub(super) name: &'static str,
}

impl Writer {
    /// The server written to.
    #[must_use]
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    async fn object_path(&self, gvk: &Gvk, namespace: &str, name: &str, subresource: &str) -> Result<String, ApiError> {
        let mut path = self.server.resource(gvk).await?.path(namespace, name);
        if !subresource.is_empty() {
            path += "/";
            path += subresource;
        }
        Ok(format!("{path}?fieldManager={}", self.name))
    }

    /// POST.
    pub async fn create(&self, object: &Value) -> Result<Value, ApiError> {
        let path = self.object_path(&object.gvk(), object.namespace(), "", "").await?;
        self.server.send_request("POST", &path, self.name, Some(("application/json", object))).await
    }

    /// PUT of the main resource.
    pub async fn update(&self, object: &Value) -> Result<Value, ApiError> {
        self.put(object, "").await
    }

    /// PUT of the status subresource.
    pub async fn update_status(&self, object: &Value) -> Result<Value, ApiError> {
        self.put(object, "status").await
    }

    /// PUT of a subresource.
    pub async fn put(&self, object: &Value, subresource: &str) -> Result<Value, ApiError> {
        let path = self.object_path(&object.gvk(), object.namespace(), object.name(), subresource).await?;
        self.server.send_request("PUT", &path, self.name, Some(("application/json", object))).await
    }

    /// Merge patch.
    pub async fn merge(&self, key: &ObjectKey, subresource: &str, patch: &Value) -> Result<Value, ApiError> {
        self.patch(key, subresource, "application/merge-patch+json", patch).await
    }

    /// JSON patch.
    pub async fn json_patch(&self, key: &ObjectKey, subresource: &str, patch: &Value) -> Result<Value, ApiError> {
        self.patch(key, subresource, "application/json-patch+json", patch).await
    }

    /// PATCH of any sort; what is applied takes over the fields of others.
    pub async fn patch(
        &self,
        key: &ObjectKey,
        subresource: &str,
        content: &str,
        patch: &Value,
    ) -> Result<Value, ApiError> {
        let mut path = self.object_path(&key.gvk, &key.namespace, &key.name, subresource).await?;
        if content == APPLY {
            path += "&force=true";
        }
        self.server.send_request("PATCH", &path, self.name, Some((content, patch))).await
    }

    /// DELETE; an object that is gone already is no error.
    pub async fn delete(&self, key: &ObjectKey, how: &Delete) -> Result<(), ApiError> {
        let path = self.server.resource(&key.gvk).await?.path(&key.namespace, &key.name);
        let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        options.put_or_remove(&["propagationPolicy"], how.propagation.map(Value::from));
        if let Some(uid) = &how.uid {
            options.put(&["preconditions", "uid"], json!(uid));
        }
        if let Some(version) = &how.resource_version {
            options.put(&["preconditions", "resourceVersion"], json!(version));
        }
        match self.server.send_request("DELETE", &path, self.name, Some(("application/json", &options))).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// DELETE of all objects of a kind in a namespace, in the background.
    pub async fn delete_all(&self, resource: &Resource, namespace: &str) -> Result<(), ApiError> {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
        let path = resource.path(namespace, "");
        self.server.send_request("DELETE", &path, self.name, Some(("application/json", &options))).await.map(drop)
    }

    /// Changes an object until nobody else wrote in between: from the copy given, then from live ones. The change is
    /// not sent when it leaves the object as it is. `None`: there is no such object any more.
    pub async fn modify(
        &self,
        start: &Value,
        subresource: &str,
        mut change: impl FnMut(&mut Value),
    ) -> Result<Option<Value>, ApiError> {
        let mut current = start.clone();
        for attempt in 0..=CONFLICT_RETRIES {
            let mut next = current.clone();
            change(&mut next);
            if next == current {
                return Ok(Some(current));
            }
            match self.put(&next, subresource).await {
                Ok(written) => return Ok(Some(written)),
                Err(error) if error.is_conflict() && attempt < CONFLICT_RETRIES => {
                    let key = ObjectKey::of(&current);
                    match self.server.get_live(&key.gvk, &key.namespace, &key.name).await? {
                        Some(live) if live.uid() == start.uid() => current = live,
                        _ => return Ok(None),
                    }
                }
                Err(error) if error.is_not_found() => return Ok(None),
                Err(error) => {
                    warn!(server = self.server.name, kind = %current.gvk(), name = current.name(), %error, "a write failed");
                    return Err(error);
                }
            }
        }
        Ok(Some(current))
    }
}

const CONFLICT_RETRIES: u32 = 5;
