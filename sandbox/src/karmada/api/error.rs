//! Requests that did not succeed.

use caldera_runtime::client::describe_error;

/// A request that did not succeed.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {}", describe_error(.source))]
pub struct ApiError {
    what: String,
    source: Box<kube::Error>,
}

impl ApiError {
    pub(super) fn new(what: impl Into<String>, source: kube::Error) -> Self {
        Self { what: what.into(), source: Box::new(source) }
    }

    /// The server's own words, as client-go's `err.Error()` gives them.
    #[must_use]
    pub fn message(&self) -> String {
        match &*self.source {
            kube::Error::Api(status) => status.message.clone(),
            other => other.to_string(),
        }
    }

    /// HTTP status of the answer, 0 when there was none.
    #[must_use]
    pub fn code(&self) -> u16 {
        match &*self.source {
            kube::Error::Api(status) => status.code,
            _ => 0,
        }
    }

    /// The machine-readable reason, `""` when there is none.
    #[must_use]
    pub fn reason(&self) -> &str {
        match &*self.source {
            kube::Error::Api(status) => &status.reason,
            _ => "",
        }
    }

    /// No such object or resource.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.code() == 404
    }

    /// Somebody else wrote first.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.code() == 409 && self.reason() != "AlreadyExists"
    }

    /// A create met an object of that name.
    #[must_use]
    pub fn already_exists(&self) -> bool {
        self.code() == 409 && self.reason() == "AlreadyExists"
    }
}
