//! Why a request to an API server failed, by what its caller should do about it: decide again, try again, or give up.

use kube::client::AuthError;

/// Reason of a [`Failure::Refused`] that comes from our own side: a bad URL, TLS or credential configuration, or an
/// answer that is not the API's. Trying again changes nothing until the configuration changes.
pub const UNUSABLE_CLIENT: &str = "UnusableClient";

/// Why a write failed, by what the caller should do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The object changed since it was read (409, or a failed `test` of a JSON patch): decide again.
    #[error("conflict: {0}")]
    Conflict(String),
    /// It is there already (409 AlreadyExists).
    #[error("already exists: {0}")]
    Exists(String),
    /// It is gone (404).
    #[error("not found: {0}")]
    Gone(String),
    /// It can not succeed as it is: the server refuses it (400, 401, 403, 422 and the like), or our client can not send
    /// it or read the answer (see [`UNUSABLE_CLIENT`]).
    #[error("refused ({reason}): {message}")]
    Refused {
        /// HTTP code; 0 where the server was not asked or not understood.
        code: u16,
        /// `Status.reason`, for instance `QuotaExceeded`.
        reason: String,
        /// `Status.message`.
        message: String,
    },
    /// The server is busy, failing or out of reach (429, 5xx, network, timeout): try again later.
    #[error("not now: {0}")]
    Transient(String),
}

impl Failure {
    /// Whether nothing is made in that namespace any more, since it is being deleted (`NamespaceLifecycle` of
    /// Kubernetes, `plugin/pkg/admission/namespace/lifecycle/admission.go`). All that is in it goes.
    #[must_use]
    pub fn is_of_ending_namespace(&self) -> bool {
        matches!(self, Self::Refused { code: 403, message, .. } if message.ends_with("because it is being terminated"))
    }
}

/// What the caller of a request should do about its error: final, or worth another try.
#[must_use]
pub fn classify_error(error: kube::Error) -> Failure {
    let is_final = match &error {
        kube::Error::Api(_) => false,
        // The connection was refused, cut or timed out; but credentials that can not be had come the same way.
        kube::Error::HyperError(_) | kube::Error::ReadEvents(_) => false,
        kube::Error::Service(source) => source.downcast_ref::<AuthError>().is_some(),
        // Bad URL, TLS, proxy or credential configuration, or an answer that is not JSON of the API.
        _ => true,
    };
    match error {
        kube::Error::Api(status) => {
            let (code, reason, message) = (status.code, status.reason, status.message);
            match code {
                409 if reason == "AlreadyExists" => Failure::Exists(message),
                409 => Failure::Conflict(message),
                404 => Failure::Gone(message),
                429 | 500.. => Failure::Transient(format!("{message} ({code})")),
                _ => Failure::Refused { code, reason, message },
            }
        }
        error if is_final => {
            Failure::Refused { code: 0, reason: UNUSABLE_CLIENT.to_owned(), message: error.to_string() }
        }
        error => Failure::Transient(error.to_string()),
    }
}
