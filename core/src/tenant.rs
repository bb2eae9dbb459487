//! Whose a job is, where a queue counts or shares by that.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

/// One of those who have jobs in a queue.
///
/// As a text it is `namespace NAME` or `user NAME`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
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

impl From<Tenant> for String {
    fn from(tenant: Tenant) -> Self {
        tenant.to_string()
    }
}

impl TryFrom<String> for Tenant {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Tenant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(' ') {
            Some(("namespace", name)) => Ok(Self::Namespace(name.into())),
            Some(("user", name)) => Ok(Self::User(name.into())),
            _ => Err(format!("{text:?} is neither `namespace NAME` nor `user NAME`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenants_text_is_read_back_whatever_its_name_is() {
        for tenant in [Tenant::Namespace("a".into()), Tenant::User("user b c".into()), Tenant::User("".into())] {
            assert_eq!(tenant.to_string().parse(), Ok(tenant.clone()));
            let json = serde_json::to_string(&tenant).unwrap();
            assert_eq!(serde_json::from_str::<Tenant>(&json).unwrap(), tenant);
        }
        assert!("group x".parse::<Tenant>().unwrap_err().contains("neither"));
    }
}
