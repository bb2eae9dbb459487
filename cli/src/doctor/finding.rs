//! What is wrong, and what mends it.

use serde::Serialize;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Could not be examined, or is worth knowing.
    Note,
    /// Works now, or harms few.
    Warning,
    /// Jobs are not gated, not placed, not told the truth about, or not run.
    Error,
}

impl Severity {
    /// In one word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// What was examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Check {
    /// CustomResourceDefinitions, and the versions of their schemas.
    Definitions,
    /// What the components' accounts may do.
    Rights,
    /// Webhook configurations and admission policies, and whether the webhook answers.
    Webhooks,
    /// Who explains Volcano Jobs to Karmada.
    Interpreter,
    /// Leases, and signs of life of the components.
    Components,
    /// Versions of the components, Kubernetes and Volcano.
    Versions,
    /// Clocks.
    Clocks,
    /// Members, and Volcano there.
    Members,
    /// Queues of the host.
    Queues,
    /// Bindings and what is recorded on them.
    Records,
    /// What is left of what is gone.
    Garbage,
}

impl Check {
    /// In the order in which they are told.
    pub const ALL: [Self; 11] = [
        Self::Definitions,
        Self::Rights,
        Self::Webhooks,
        Self::Interpreter,
        Self::Components,
        Self::Versions,
        Self::Clocks,
        Self::Members,
        Self::Queues,
        Self::Records,
        Self::Garbage,
    ];

    /// In one word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Definitions => "definitions",
            Self::Rights => "rights",
            Self::Webhooks => "webhooks",
            Self::Interpreter => "interpreter",
            Self::Components => "components",
            Self::Versions => "versions",
            Self::Clocks => "clocks",
            Self::Members => "members",
            Self::Queues => "queues",
            Self::Records => "records",
            Self::Garbage => "garbage",
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Found by.
    pub check: Check,
    /// How bad it is.
    pub severity: Severity,
    /// What, as a sentence.
    pub what: String,
    /// A command that mends it.
    pub fix: Option<String>,
}

impl Finding {
    /// With a command that mends it.
    pub fn fixed_by(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

impl Check {
    pub(crate) fn error(self, what: impl Into<String>) -> Finding {
        Finding { check: self, severity: Severity::Error, what: what.into(), fix: None }
    }

    pub(crate) fn warning(self, what: impl Into<String>) -> Finding {
        Finding { check: self, severity: Severity::Warning, what: what.into(), fix: None }
    }

    pub(crate) fn note(self, what: impl Into<String>) -> Finding {
        Finding { check: self, severity: Severity::Note, what: what.into(), fix: None }
    }

    /// What can not be seen, as a note.
    pub(crate) fn hidden(self, what: &str, why: &str) -> Finding {
        self.note(format!("not examined: {what}: {why}"))
    }
}

/// The first names of many.
pub fn join_first_names<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const MOST_SHOWN_NAMES: usize = 5;
    let all: Vec<&str> = names.into_iter().collect();
    let mut text = all[..all.len().min(MOST_SHOWN_NAMES)].join(", ");
    if all.len() > MOST_SHOWN_NAMES {
        text += &format!(" and {} more", all.len() - MOST_SHOWN_NAMES);
    }
    text
}
