//! Who submitted a workload, HyperJob or CronJob and when, to the microsecond, as our webhook stamps it.
//!
//! Rule: Kubernetes' times are whole seconds (`metav1.Time`), within which many jobs are made. So the webhook writes
//! the time into an annotation when a job is created. A workload that is no Volcano Job, names no queue and is in a
//! namespace that did not opt in does not pass it, nor one of another kind while the webhook is away: it has no stamp.
//!
//! The stamp orders only jobs whose ResourceBindings were made in one second
//! ([`SubmitTime`](caldera_core::time::SubmitTime)): a job is as old as its binding. So it has no age of the time in
//! which no policy selected it, and neither a replica of the webhook whose clock is wrong, nor a tenant who writes the
//! stamp while the webhook is away, puts a job before one that was bound in an earlier second. A stamp that is further
//! than [`MOST_DIFFERENCE`] from the job's `creationTimestamp` counts for nothing.
//!
//! The jobs of a HyperJob or CronJob were submitted by who made that: the controller says so on each, and is believed
//! where the job names its maker as its controlling owner.

use jiff::Timestamp;
use serde_json::Value;

use super::WorkloadKind;
use crate::{
    names::caldera::{SUBMITTED, SUBMITTER},
    object::{annotation_of, read_text_at},
};

/// The annotations that the webhook writes.
pub const STAMPS: [&str; 2] = [SUBMITTED, SUBMITTER];

/// Seconds between a stamp and the time of creation at most: a review takes up to ten, and the two are of two machines'
/// clocks.
const MOST_DIFFERENCE: i64 = 15;

/// A stamp of this time.
#[must_use]
pub fn format_submit_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// When a workload was submitted, if it has a stamp that can be true.
#[must_use]
pub fn read_submit_time(object: &Value) -> Option<Timestamp> {
    WorkloadKind::of_object(object)?;
    read_true_stamp(object)
}

fn read_true_stamp(object: &Value) -> Option<Timestamp> {
    let stamp: Timestamp = annotation_of(object, SUBMITTED)?.parse().ok()?;
    let created: Timestamp = read_text_at(object, "/metadata/creationTimestamp").parse().ok()?;
    let agrees = stamp.as_second().abs_diff(created.as_second()) <= MOST_DIFFERENCE.unsigned_abs();
    agrees.then_some(stamp)
}

/// Characters of a submitter's name that are kept.
const MOST_OF_NAME: usize = 128;

/// Who submitted a workload, if it has stamps that can be true. Never empty.
#[must_use]
pub fn read_submitter(object: &Value) -> Option<String> {
    read_submit_time(object)?;
    read_name(object)
}

/// Who submitted what makes a job, for the job: the annotation with its value.
#[must_use]
pub fn inherit_submitter(maker: &Value) -> Option<(String, Value)> {
    read_true_stamp(maker)?;
    Some((SUBMITTER.to_owned(), read_name(maker)?.into()))
}

/// The submitter that a job names which another object of ours makes.
#[must_use]
pub fn read_inherited_submitter(job: &Value) -> Option<String> {
    let makes = |owner: &Value| {
        owner["controller"] == true
            && matches!(
                (owner["apiVersion"].as_str(), owner["kind"].as_str()),
                (Some("training.volcano.sh/v1alpha1"), Some("HyperJob"))
                    | (Some("batch.volcano.sh/v1alpha1" | "batch/v1"), Some("CronJob"))
            )
    };
    job["metadata"]["ownerReferences"].as_array().filter(|owners| owners.iter().any(makes))?;
    read_name(job)
}

fn read_name(object: &Value) -> Option<String> {
    let name = cut_submitter(annotation_of(object, SUBMITTER)?);
    (!name.is_empty()).then_some(name)
}

/// As much of a user's name as counts.
#[must_use]
pub fn cut_submitter(name: &str) -> String {
    name.chars().take(MOST_OF_NAME).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(stamp: &str, created: &str) -> Value {
        json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
            "metadata": {"name": "j", "annotations": {SUBMITTED: stamp}, "creationTimestamp": created},
        })
    }

    #[test]
    fn a_job_inherits_the_submitter_of_what_makes_it_where_that_says_it_truly() {
        let mut maker = job("2026-11-27T08:00:30Z", "2026-11-27T08:00:30Z");
        (maker["apiVersion"], maker["kind"]) = ("training.volcano.sh/v1alpha1".into(), "HyperJob".into());
        assert_eq!(inherit_submitter(&maker), None);
        maker["metadata"]["annotations"][SUBMITTER] = "ada".into();
        assert_eq!(inherit_submitter(&maker), Some((SUBMITTER.to_owned(), "ada".into())));
        maker["metadata"]["creationTimestamp"] = "2026-11-27T09:00:30Z".into();
        assert_eq!(inherit_submitter(&maker), None, "somebody copied the stamp");
        let mut child = json!({"metadata": {"annotations": {SUBMITTER: "ada"}}});
        assert_eq!(read_inherited_submitter(&child), None);
        for (api_version, kind, controls, inherited) in [
            ("training.volcano.sh/v1alpha1", "HyperJob", true, true),
            ("batch.volcano.sh/v1alpha1", "CronJob", true, true),
            ("batch/v1", "CronJob", true, true),
            ("batch.volcano.sh/v1alpha1", "CronJob", false, false),
            ("example.com/v1", "HyperJob", true, false),
        ] {
            child["metadata"]["ownerReferences"] =
                json!([{"apiVersion": api_version, "kind": kind, "controller": controls}]);
            assert_eq!(read_inherited_submitter(&child).is_some(), inherited, "{child}");
        }
    }

    #[test]
    fn a_stamp_counts_to_the_microsecond_where_it_agrees_with_the_creation() {
        let read = |stamp: &str| read_submit_time(&job(stamp, "2026-11-27T08:00:30Z"));
        assert_eq!(read("2026-11-27T08:00:30.000002Z"), "2026-11-27T08:00:30.000002Z".parse().ok());
        assert_eq!(read("2026-11-27T08:00:29.999999Z"), "2026-11-27T08:00:29.999999Z".parse().ok());
        let written: Timestamp = "2026-11-27T08:00:30.25Z".parse().unwrap();
        assert_eq!(format_submit_time(written), "2026-11-27T08:00:30.250000Z");
        assert_eq!(read(&format_submit_time(written)), Some(written));
        for forged in ["2026-11-27T08:00:14.9Z", "2026-11-27T08:00:46Z", "2025-11-27T08:00:30Z", "now", "", "-1"] {
            assert_eq!(read(forged), None, "{forged}");
        }
        assert_eq!(read_submit_time(&job("2026-11-27T08:00:30Z", "")), None);
        let mut other = job("2026-11-27T08:00:30Z", "2026-11-27T08:00:30Z");
        (other["apiVersion"], other["kind"]) = ("apps/v1".into(), "Deployment".into());
        assert!(read_submit_time(&other).is_some(), "each kind that can be queued");
        (other["apiVersion"], other["kind"]) = ("v1".into(), "ConfigMap".into());
        assert_eq!(read_submit_time(&other), None);
    }

    #[test]
    fn a_submitter_counts_where_the_stamp_beside_it_does_and_is_bounded() {
        let mut job = job("2026-11-27T08:00:30Z", "2026-11-27T08:00:30Z");
        assert_eq!(read_submitter(&job), None);
        job["metadata"]["annotations"][SUBMITTER] = "ada".into();
        assert_eq!(read_submitter(&job).as_deref(), Some("ada"));
        job["metadata"]["annotations"][SUBMITTER] = "é".repeat(100_000).into();
        assert_eq!(read_submitter(&job), Some("é".repeat(128)));
        job["metadata"]["creationTimestamp"] = "2026-11-27T09:00:30Z".into();
        assert_eq!(read_submitter(&job), None, "its stamp is forged");
    }
}
