//! Admission of CronJobs of Volcano on the host: what is wrong with one is said when it is written.
//!
//! Rule: `caldera_crds::cron_job`. A run that its job's own rules refuse would fail at each time of the schedule, and
//! only an event would say so.

use caldera_crds::{
    cron_job::{find_kind, list_refusals},
    workload::qos_level::list_void_qos_levels_of_jobs,
};
use serde_json::{Value, json};

use super::verdict::Verdict;
use crate::observe::request::ReviewRequest;

/// Refuses what can not be a CronJob; warns of QoS levels that do not do what they seem to, for nobody reads the answer
/// when its jobs are made.
#[must_use]
pub fn validate_cron_job(request: &ReviewRequest<'_, Value>) -> Verdict {
    let Some(cron_job) = &request.object else { return Verdict::UNCHANGED };
    if cron_job["metadata"]["deletionTimestamp"].is_string() {
        return Verdict::UNCHANGED;
    }
    let refusals = list_refusals(cron_job);
    if !refusals.is_empty() {
        return Verdict::deny_invalid(refusals.join("; "));
    }
    let is_news = request.before().is_none_or(|old| old["spec"] != cron_job["spec"]);
    let warnings = if is_news { list_void_levels(cron_job) } else { Vec::new() };
    Verdict::Allow { patch: Vec::new(), warnings }
}

fn list_void_levels(cron_job: &Value) -> Vec<String> {
    let template = &cron_job["spec"]["jobTemplate"];
    let job = find_kind(cron_job).map(|kind| {
        let resource = kind.api_resource();
        json!({
            "apiVersion": resource.api_version, "kind": resource.kind, "metadata": template["metadata"],
            "spec": template["spec"],
        })
    });
    list_void_qos_levels_of_jobs(cron_job, job.map(|job| ("spec.jobTemplate".to_owned(), job)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn qos_levels_of_its_jobs_are_warned_of_when_it_is_written() {
        let pod = json!({
            "metadata": {"annotations": {"volcano.sh/qos-level": "best"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
        });
        let job = json!({"minAvailable": 1, "tasks": [{"name": "t", "replicas": 1, "template": pod}]});
        let cron_job = json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "CronJob", "metadata": {"namespace": "ns", "name": "c"},
            "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": job}},
        });
        let review = |operation: &str, old_object| {
            let (name, dry_run, user_info, object) = (None, None, None, Some(cron_job.clone()));
            let (uid, operation, namespace) = ("u".into(), operation.to_owned().into(), Some("ns".into()));
            let request = ReviewRequest { uid, operation, namespace, name, dry_run, user_info, object, old_object };
            let Verdict::Allow { warnings, .. } = validate_cron_job(&request) else { panic!("it is refused") };
            warnings
        };
        let warnings = review("CREATE", None);
        assert!(warnings.len() == 1 && warnings[0].starts_with("spec.jobTemplate: annotation"), "{warnings:?}");
        assert_eq!(review("UPDATE", Some(cron_job.clone())), [""; 0], "it was told");
    }

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
