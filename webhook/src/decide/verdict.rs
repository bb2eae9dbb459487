//! What a rule decides about a request: let it in, refuse it, or look something up first.

use json_patch::PatchOperation;

use crate::observe::cache::Lookup;

/// What to do with a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Let it in, changed by the patch.
    Allow {
        /// Empty: unchanged.
        patch: Vec<PatchOperation>,
        /// Shown to the user.
        warnings: Vec<String>,
    },
    /// Let it in, changed by a patch that is JSON already.
    AllowText {
        /// The list of its operations.
        patch: String,
    },
    /// Refuse it.
    Deny(Denial),
    /// The cache does not tell: read this from the API and decide again.
    Read(Lookup),
    /// Nothing tells: answer with an HTTP error, so that the failure policy of the webhook decides.
    Undecided(String),
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// HTTP status.
    pub code: u16,
    /// Kubernetes' word for it.
    pub reason: &'static str,
    /// A sentence for the user.
    pub message: String,
}

impl Verdict {
    /// Lets it in as it is.
    pub const UNCHANGED: Self = Self::Allow { patch: Vec::new(), warnings: Vec::new() };

    /// Lets it in with this patch.
    #[must_use]
    pub const fn allow_with(patch: Vec<PatchOperation>) -> Self {
        Self::Allow { patch, warnings: Vec::new() }
    }

    /// The same with more operations, where it lets the object in.
    #[must_use]
    pub fn with_operations(mut self, operations: impl IntoIterator<Item = PatchOperation>) -> Self {
        if let Self::Allow { patch, .. } = &mut self {
            patch.extend(operations);
        }
        self
    }

    /// Refuses an object that is wrong.
    pub fn deny_invalid(message: impl Into<String>) -> Self {
        Self::Deny(Denial { code: 422, reason: "Invalid", message: message.into() })
    }

    /// Refuses for now: the caller should try again.
    pub fn deny_for_now(message: impl Into<String>) -> Self {
        Self::Deny(Denial { code: 503, reason: "ServiceUnavailable", message: message.into() })
    }
}
