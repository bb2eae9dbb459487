//! The largest job that a queue takes, as its admin says.
//!
//! Rule: Slurm's `MaxTRESPerJob` of a QOS. A Queue's annotation [`MAX_JOB`] names amounts, `cpu=64,nvidia.com/gpu=8`: a
//! job that asks for more of one of them, with all its pods and copies, is taken neither by the queue nor by those
//! below it. What it does not name is not bounded. One that can not be read takes nothing: not knowing is no leave to
//! start.

use std::collections::BTreeMap;

use caldera_core::{
    gang::QueueName,
    quantity::Quantity,
    reason::Reason,
    resources::{ResourceName, Resources},
};
use serde_json::Value;

use crate::names::caldera::MAX_JOB;

/// Bytes of the annotation at most.
const MOST_ANNOTATION_BYTES: usize = 2_048;

/// A queue's word on the size of jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LargestJob(Result<BTreeMap<ResourceName, Quantity>, String>);

impl LargestJob {
    /// Of the annotation's text.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        if text.len() > MOST_ANNOTATION_BYTES {
            return Self(Err(format!("is {} bytes long, and {MOST_ANNOTATION_BYTES} are the most", text.len())));
        }
        let mut amounts = BTreeMap::new();
        for part in text.split(',') {
            let read = part.split_once('=').and_then(|(name, amount)| {
                let (name, amount) = (ResourceName::from(name.trim()), amount.trim().parse::<Quantity>().ok()?);
                (!name.as_str().is_empty() && !amount.is_negative()).then_some((name, amount))
            });
            let Some((name, amount)) = read else {
                let problem = format!("{part:?} is no amount of a resource: it is written as cpu=64,nvidia.com/gpu=8");
                return Self(Err(problem));
            };
            if !name.is_requestable() {
                return Self(Err(format!("{:?} is no resource that a pod can ask for", name.as_str())));
            }
            if amounts.insert(name, amount).is_some() {
                return Self(Err(format!("{part:?} is the second amount of its resource")));
            }
        }
        Self(Ok(amounts))
    }

    /// Of a Queue; `None` where it says nothing.
    #[must_use]
    pub fn of_queue(queue: &Value) -> Option<Self> {
        queue.pointer("/metadata/annotations")?.get(MAX_JOB)?.as_str().map(Self::parse)
    }

    /// Why it can not be read, if so.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        self.0.as_ref().err().map(String::as_str)
    }

    /// Why a job of `queue` that asks for this is not taken by `by`, which says so; `None` if it is.
    #[must_use]
    pub fn refuse(&self, queue: &QueueName, by: &QueueName, asked: &Resources) -> Option<Reason> {
        let limit = |name: &ResourceName| match &self.0 {
            Ok(amounts) => amounts.get(name).copied(),
            Err(_) => Some(Quantity::ZERO),
        };
        let over = |(name, asked): (&ResourceName, Quantity)| {
            let limit = limit(name).filter(|limit| asked > *limit)?;
            let (queue, by) = (queue.clone(), by.clone());
            Some(Reason::ExceedsLargestJob { queue, by, resource: name.clone(), asked, limit })
        };
        asked.iter().find_map(over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(cpu: i64, gpu: i64) -> Resources {
        [("cpu", cpu), ("nvidia.com/gpu", gpu)]
            .map(|(name, amount)| (name, Quantity::from_units(amount)))
            .into_iter()
            .collect()
    }

    fn says(text: &str, asked: &Resources) -> Option<String> {
        LargestJob::parse(text).refuse(&"q".into(), &"top".into(), asked).map(|reason| reason.to_string())
    }

    #[test]
    fn a_job_that_asks_for_more_of_one_resource_is_not_taken_and_both_numbers_are_said() {
        assert_eq!(says("cpu=64, nvidia.com/gpu=8", &asked(64, 8)), None);
        assert_eq!(says("cpu=64", &asked(1, 1000)), None);
        assert_eq!(
            says("cpu=64,nvidia.com/gpu=8", &asked(1, 9)).as_deref(),
            Some(
                "asks for nvidia.com/gpu 9, more than 8, which is the largest job that queue top, above queue q, takes"
            )
        );
    }

    #[test]
    fn what_can_not_be_read_takes_nothing_and_says_why() {
        for wrong in [
            "",
            "cpu",
            "cpu=",
            "cpu=many",
            "cpu=-1",
            "cpu=1,cpu=2",
            "=3",
            "cpus=4",
            "CPU=4",
            "gpu=1",
            "cpu=1,",
            &"a".repeat(4_000),
        ] {
            assert!(LargestJob::parse(wrong).problem().is_some(), "{wrong:?}");
            assert!(says(wrong, &asked(1, 0)).is_some(), "{wrong:?}");
        }
    }
}
