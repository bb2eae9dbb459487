//! One request on its way through the server, and what comes back.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use serde_json::Value;

use crate::accept::Output;
use crate::auth::{RequestInfo, User};
use crate::error::Status;
use crate::registry_form::view_object;
use crate::request::Query;
use crate::resource::Resource;
use crate::server::ApiServer;
use crate::store::{Key, Object};

/// An authenticated, authorized request about a known resource.
pub struct Call {
    pub server: ApiServer,
    pub user: User,
    pub info: RequestInfo,
    pub resource: Arc<Resource>,
    pub query: Query,
    pub user_agent: String,
    pub content_type: String,
    pub body: Bytes,
    pub output: Output,
    /// Texts of the `Warning` headers, in order.
    pub warnings: Vec<String>,
}

impl Call {
    /// Where the addressed object is; `name` for creations and items of a collection.
    pub fn key(&self, name: &str) -> Key {
        Key::new(self.namespace(), name)
    }

    /// Empty for cluster-scoped kinds.
    pub fn namespace(&self) -> &str {
        if self.resource.namespaced { &self.info.namespace } else { "" }
    }

    pub fn get(&self, name: &str) -> Option<Arc<Object>> {
        self.server.store().get(&self.resource.storage, &self.key(name))
    }

    pub fn not_found(&self, name: &str) -> Status {
        Status::not_found(&self.resource.group, &self.resource.plural, name)
    }

    pub fn warn(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.warnings.contains(&text) {
            self.warnings.push(text);
        }
    }

    /// The object as this request's version shows it.
    pub fn stored(&self, code: u16, object: &Arc<Object>) -> Reply {
        Reply::Object { code, payload: view_object(&self.resource, object) }
    }

    /// The manager that a write without `fieldManager` has: the first word of the user agent.
    pub fn manager(&self, given: Option<&str>) -> String {
        match given {
            Some(manager) => manager.to_owned(),
            None => {
                let prefix = self.user_agent.split('/').next().unwrap_or_default();
                prefix.chars().filter(|c| !c.is_control()).take(128).collect()
            }
        }
    }
}

/// An object on its way out: shared with the store when it needs no change.
#[derive(Debug, Clone)]
pub enum Payload {
    Stored(Arc<Object>),
    Value(Value),
}

impl Payload {
    pub fn value(&self) -> &Value {
        match self {
            Self::Stored(object) => &object.value,
            Self::Value(value) => value,
        }
    }

    pub fn into_value(self) -> Value {
        match self {
            Self::Stored(object) => object.value.clone(),
            Self::Value(value) => value,
        }
    }
}

/// An answer.
pub enum Reply {
    Object {
        code: u16,
        payload: Payload,
    },
    List {
        metadata: Value,
        items: Vec<Payload>,
    },
    /// A `Status` of success or another small document that no table is made of.
    Plain {
        code: u16,
        value: Value,
    },
    Stream(Body),
    Raw(Response),
}
