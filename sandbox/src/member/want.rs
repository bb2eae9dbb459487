//! What a stand-in wants written, and what became of it.

use caldera_runtime::write::{Body, Write};
use serde_json::Value;

use super::{
    kinds::Kind,
    object::{key, uid},
    world::ObjectKey,
};

/// A write that a stand-in wants, with the object it is about.
#[derive(Debug, Clone, PartialEq)]
pub struct Want {
    /// The object.
    pub about: ObjectKey,
    /// The write.
    pub write: Write,
}

/// What became of a write.
#[derive(Debug, Clone, PartialEq)]
pub enum Landing {
    /// The object, or for some subresources a Status.
    Written(Value),
    /// It is deleted, or will be.
    Deleted,
    /// Its name is taken.
    Exists,
    /// It was not there.
    Gone,
    /// Nothing happened.
    Failed,
}

/// Creates `object`.
#[must_use]
pub fn want_create(kind: Kind, object: Value) -> Want {
    want_write(kind, &object.clone(), None, Body::Create(object))
}

/// Merges `patch` into `object` (or one of its subresources).
#[must_use]
pub fn want_merge(kind: Kind, object: &Value, subresource: Option<&'static str>, patch: Value) -> Want {
    want_write(kind, object, subresource, Body::MergePatch(patch))
}

impl Want {
    /// Whether the write deletes its object.
    #[must_use]
    pub const fn is_deletion(&self) -> bool {
        matches!(self.write.body, Body::Delete { .. } | Body::DeleteNow { .. })
    }
}

/// Deletes the object of this kind and name, whichever it is.
#[must_use]
pub fn delete_named(kind: Kind, namespace: &str, name: &str) -> Want {
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    let body = Body::Delete { uid: None };
    let write =
        Write { resource: kind.resource(), namespace: namespace.clone(), name: name.clone(), subresource: None, body };
    Want { about: (kind, (namespace, name)), write }
}

/// Deletes `object`, if it is still the same one.
#[must_use]
pub fn want_delete(kind: Kind, object: &Value) -> Want {
    want_write(kind, object, None, Body::Delete { uid: Some(uid(object).to_owned()) })
}

fn want_write(kind: Kind, object: &Value, subresource: Option<&'static str>, body: Body) -> Want {
    let (namespace, name) = key(object);
    let write =
        Write { resource: kind.resource(), namespace: namespace.clone(), name: name.clone(), subresource, body };
    Want { about: (kind, (namespace, name)), write }
}
