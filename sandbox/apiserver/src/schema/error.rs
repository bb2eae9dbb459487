//! The field errors of the API server: a reason, a path and a message, as they stand in `details.causes`.

use std::collections::HashSet;

/// The reasons a cause can carry (`metav1.CauseType`, the error types of `field.Error`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CauseReason {
    Required,
    Invalid,
    Duplicate,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    TypeInvalid,
    NotFound,
}

impl CauseReason {
    /// The text in `details.causes[].reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotFound => "FieldValueNotFound",
        }
    }

    /// Whether an error of this kind keeps CEL rules from running (`hasBlockingErr`).
    pub(crate) fn blocks_rules(self) -> bool {
        matches!(self, Self::NotSupported | Self::Required | Self::TooLong | Self::TooMany | Self::TypeInvalid)
    }
}

/// One violation. `message` is the cause's message; the message of the Status lists `field: message`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldError {
    pub reason: CauseReason,
    pub field: String,
    pub message: String,
}

impl FieldError {
    pub fn new(reason: CauseReason, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason, field: field.into(), message: message.into() }
    }
}

/// The list in the message of an Invalid Status: the one error, or all of them in brackets.
/// Errors that repeat word for word are listed once (`utilerrors.Aggregate`).
pub fn aggregate_errors(errors: &[FieldError]) -> String {
    let mut seen = HashSet::new();
    let once = errors.iter().filter(|error| seen.insert((&error.field, &error.message)));
    let texts: Vec<String> = once.map(|error| format!("{}: {}", error.field, error.message)).collect();
    match texts.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}
