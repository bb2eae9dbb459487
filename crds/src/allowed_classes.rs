//! Which priority classes the jobs of a queue may name, as its admin says.
//!
//! Rule: as Slurm's `AllowQos` of a partition, since in one queue a priority class decides who goes first and who may
//! be preempted. A Queue's annotation [`PRIORITY_CLASSES`], `batch,urgent`, names the classes that jobs in the queue
//! and in those below it may name; an empty one lets them name none. A job that names none has the cluster's default
//! and is always taken. One that can not be read takes jobs that name none alone: not knowing is no leave to go first.

use std::collections::BTreeSet;

use caldera_core::{gang::QueueName, reason::Reason, text::shorten_text};
use serde_json::Value;

use crate::{names::caldera::PRIORITY_CLASSES, object::annotation_of};

/// Bytes of the annotation at most.
const MOST_ANNOTATION_BYTES: usize = 2_048;
/// Characters of a wrong name that are said again.
const SAID_AGAIN: usize = 40;

/// A queue's word on priority classes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedClasses(Result<BTreeSet<String>, String>);

impl AllowedClasses {
    /// Of the annotation's text.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        if text.len() > MOST_ANNOTATION_BYTES {
            return Self(Err(format!("is {} bytes long, and {MOST_ANNOTATION_BYTES} are the most", text.len())));
        }
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        Self(names.map(|name| read_class_name(name).map(str::to_owned)).collect())
    }

    /// Of a Queue; `None` where it says nothing.
    #[must_use]
    pub fn of_queue(queue: &Value) -> Option<Self> {
        annotation_of(queue, PRIORITY_CLASSES).map(Self::parse)
    }

    /// Why it can not be read, if so.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        self.0.as_ref().err().map(String::as_str)
    }

    /// Why a job of `queue` that names this class is not taken by `by`, which says so; `None` if it is.
    #[must_use]
    pub fn refuse(&self, queue: &QueueName, by: &QueueName, class: &str) -> Option<Reason> {
        let is_taken = class.is_empty() || self.0.as_ref().is_ok_and(|allowed| allowed.contains(class));
        let allowed = self.0.as_ref().ok();
        (!is_taken).then(|| Reason::PriorityClassNotAllowed {
            queue: queue.clone(),
            by: by.clone(),
            class: shorten_text(class),
            allowed: allowed.map(|allowed| allowed.iter().map(String::as_str).collect::<Vec<_>>().join(", ")),
        })
    }
}

/// A name as Kubernetes takes it for a PriorityClass.
fn read_class_name(name: &str) -> Result<&str, String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    name.chars().all(is_plain).then_some(name).ok_or_else(|| {
        let said: String = name.chars().take(SAID_AGAIN).collect();
        format!("{said:?} is no name of a priority class: they are written as batch,urgent")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(text: &str, class: &str) -> Option<String> {
        AllowedClasses::parse(text).refuse(&"q".into(), &"top".into(), class).map(|reason| reason.to_string())
    }

    #[test]
    fn a_job_may_name_the_classes_that_are_allowed_and_always_none() {
        for (allowed, class) in [("batch,urgent", "urgent"), (" batch , urgent,", "batch"), ("batch", ""), ("", "")] {
            assert_eq!(says(allowed, class), None, "{allowed:?} {class:?}");
        }
        assert_eq!(
            says("urgent,batch", "critical").as_deref(),
            Some("queue top, above queue q, takes no jobs of priority class critical: of batch, urgent alone")
        );
        assert_eq!(
            says("", "batch").as_deref(),
            Some("queue top, above queue q, takes no jobs of priority class batch: of none but the default")
        );
    }

    /// It is in conditions and events of each job that waits.
    #[test]
    fn a_class_of_any_length_is_said_again_in_part() {
        let reported = says("batch", &"c".repeat(500_000)).unwrap();
        assert!(reported.len() < 300 && reported.ends_with("ccc…: of batch alone"), "{reported}");
    }

    #[test]
    fn what_can_not_be_read_takes_no_job_that_names_a_class_and_says_why() {
        let long = "a,".repeat(2_000);
        for wrong in ["batch urgent", "Batch", "batch;urgent", long.as_str()] {
            let classes = AllowedClasses::parse(wrong);
            assert!(classes.problem().is_some_and(|problem| problem.len() < 120), "{classes:?}");
            assert_eq!(says(wrong, ""), None);
            let reported =
                "queue top, above queue q, takes no jobs of priority class batch: which it takes can not be read";
            assert_eq!(says(wrong, "batch").as_deref(), Some(reported));
        }
        let of_queue = |annotations: &Value| {
            AllowedClasses::of_queue(&serde_json::json!({"metadata": {"annotations": annotations}}))
        };
        assert_eq!(of_queue(&Value::Null), None);
        let said = serde_json::json!({PRIORITY_CLASSES: "batch"});
        assert_eq!(of_queue(&said), Some(AllowedClasses::parse("batch")));
    }
}
