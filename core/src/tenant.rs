//! Whose a job is, where a queue counts or shares by that.

use std::{fmt, sync::Arc};

/// One of those who have jobs in a queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tenant {
    /// Jobs of a namespace.
    Namespace(Arc<str>),
    /// Jobs that a user submitted, as the webhook stamped them.
    User(Arc<str>),
}

impl Tenant {
    /// Its namespace, if it is one.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Namespace(name) => Some(name),
            Self::User(_) => None,
        }
    }

    /// The user, if it is one.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        match self {
            Self::User(name) => Some(name),
            Self::Namespace(_) => None,
        }
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(name) => write!(f, "namespace {name}"),
            Self::User(name) => write!(f, "user {name}"),
        }
    }
}
