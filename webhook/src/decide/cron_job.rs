//! Admission of CronJobs of Volcano on the host: what is wrong with one is said when it is written.
//!
//! Rule: `caldera_crds::cron_job`. A run that its job's own rules refuse would fail at each time of the schedule, and
//! only an event would say so.

use caldera_crds::cron_job::list_refusals;
use serde_json::Value;

use super::verdict::Verdict;
use crate::observe::request::ReviewRequest;

/// Refuses what can not be a CronJob.
#[must_use]
pub fn validate_cron_job(request: &ReviewRequest<'_, Value>) -> Verdict {
    let Some(cron_job) = &request.object else { return Verdict::UNCHANGED };
    if cron_job["metadata"]["deletionTimestamp"].is_string() {
        return Verdict::UNCHANGED;
    }
    let refusals = list_refusals(cron_job);
    if refusals.is_empty() { Verdict::UNCHANGED } else { Verdict::deny_invalid(refusals.join("; ")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schedule_that_nobody_reads_is_refused_unless_it_is_being_deleted() {
        let review = |metadata: Value| {
            validate_cron_job(&ReviewRequest {
                uid: "u".into(),
                operation: "UPDATE".into(),
                namespace: Some("ns".into()),
                name: None,
                dry_run: None,
                user_info: None,
                object: Some(json!({"metadata": metadata, "spec": {"schedule": "at noon"}})),
                old_object: None,
            })
        };
        let Verdict::Deny(denial) = review(json!({"name": "c"})) else { panic!("it is taken") };
        assert!(denial.message.starts_with("spec.schedule: \"at noon\""), "{}", denial.message);
        let deleting = json!({"name": "c", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(review(deleting), Verdict::UNCHANGED);
    }
}
