//! A preemption rule as an administrator writes it: `by.queue=research,by.least=1000,of.most=0,scope=any-queue`.
//!
//! `by` is the preemptor and `of` the victim; `queue` is the queue of either, `least` and `most` bound its priority,
//! both included. `scope` is `same-queue` (if absent), `same-parent` or `any-queue`. What is left out is not asked.
//!
//! Rule (KEP-83 of Kueue, `withinClusterQueue` and `reclaimWithinCohort`, for any two jobs): one rule that holds is
//! enough, and the preemptor's priority is higher in any case.

use std::{fmt, str::FromStr};

use crate::queue::preemption::policy::{JobSelector, PreemptionRule, RuleScope};

/// What is no rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRule {
    /// Not a key, an equals sign and a value.
    #[error("{0:?} is not KEY=VALUE")]
    Shape(String),
    /// Not a key of a rule.
    #[error("{0:?} is none of by.queue, by.least, by.most, of.queue, of.least, of.most, scope")]
    Key(String),
    /// Not a value of its key.
    #[error("{key}={value:?} is not {expected}")]
    Value {
        /// The key.
        key: String,
        /// What it was given.
        value: String,
        /// What it takes.
        expected: &'static str,
    },
}

const SCOPES: [(&str, RuleScope); 3] =
    [("same-queue", RuleScope::SameQueue), ("same-parent", RuleScope::SameParent), ("any-queue", RuleScope::AnyQueue)];

impl FromStr for PreemptionRule {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        let mut rule = Self { by: JobSelector::ANY, of: JobSelector::ANY, scope: RuleScope::SameQueue };
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').ok_or_else(|| InvalidRule::Shape(part.to_owned()))?;
            let wrong = |expected| InvalidRule::Value { key: key.to_owned(), value: value.to_owned(), expected };
            if key == "scope" {
                let scope = SCOPES.iter().find(|(name, _)| *name == value);
                rule.scope = scope.ok_or_else(|| wrong("same-queue, same-parent or any-queue"))?.1;
                continue;
            }
            let (which, field) = match key.split_once('.') {
                Some(("by", field)) => (&mut rule.by, field),
                Some(("of", field)) => (&mut rule.of, field),
                _ => return Err(InvalidRule::Key(key.to_owned())),
            };
            let priority = || value.parse().map_err(|_| wrong("a priority"));
            match field {
                "queue" if value.is_empty() => return Err(wrong("a queue's name")),
                "queue" => which.queue = Some(value.into()),
                "least" => which.least = priority()?,
                "most" => which.most = priority()?,
                _ => return Err(InvalidRule::Key(key.to_owned())),
            }
        }
        Ok(rule)
    }
}

impl fmt::Display for PreemptionRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, which) in [("by", &self.by), ("of", &self.of)] {
            if let Some(queue) = &which.queue {
                write!(f, "{name}.queue={queue},")?;
            }
            if which.least != i32::MIN {
                write!(f, "{name}.least={},", which.least)?;
            }
            if which.most != i32::MAX {
                write!(f, "{name}.most={},", which.most)?;
            }
        }
        let scope = SCOPES.iter().find(|(_, scope)| *scope == self.scope).map_or("", |(name, _)| name);
        write!(f, "scope={scope}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_reads_back_as_it_is_written() {
        for text in [
            "scope=same-queue",
            "by.queue=research,by.least=1000,of.queue=batch,of.most=-5,scope=any-queue",
            "of.least=3,scope=same-parent",
        ] {
            assert_eq!(text.parse::<PreemptionRule>().unwrap().to_string(), text);
        }
        let rule: PreemptionRule = " by.least=10, of.most=0 ".parse().unwrap();
        assert_eq!((rule.by.least, rule.of.most, rule.scope), (10, 0, RuleScope::SameQueue));
    }

    #[test]
    fn what_is_no_rule_is_said_with_what_it_should_be() {
        for (text, words) in [
            ("by.least", "is not KEY=VALUE"),
            ("by.least=high", "is not a priority"),
            ("with.least=1", "none of by.queue"),
            ("by.color=red", "none of by.queue"),
            ("scope=here", "same-parent"),
            ("of.queue=", "a queue's name"),
        ] {
            let error = text.parse::<PreemptionRule>().unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
