//! Admission of CronJobs on the host: what is wrong with one is said when it is written.
//!
//! Rule: `caldera_crds::cron_job`. A run that its job's own rules refuse would fail at each time of the schedule, and
//! only an event would say so. Those of Kubernetes the API server judges itself: what it does not look at is warned of
//! where their jobs name a queue.

use caldera_crds::{
    cron_job::{find_kind, list_refusals, names_queue},
    object::read_list_at,
    workload::{WorkloadKind, annotations::list_ignored_annotations, qos_level::list_void_qos_levels_of_jobs},
};
use serde_json::{Value, json};

use super::verdict::Verdict;
use crate::observe::request::ReviewRequest;

/// Refuses what can not be a CronJob; warns of what its jobs would be warned of, for nobody reads the answer when they
/// are made.
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
    let warnings = if is_news { list_template_warnings(cron_job) } else { Vec::new() };
    Verdict::Allow { patch: Vec::new(), warnings }
}

/// The same warnings of a CronJob of Kubernetes whose jobs name a queue; none of anything else, and none of one that a
/// controller writes: nobody reads the answer.
#[must_use]
pub fn warn_of_batch_cron_job(request: &ReviewRequest<'_, Value>) -> Vec<String> {
    let is_reported = |cron_job: &&Value| {
        let is_made =
            read_list_at(cron_job, "/metadata/ownerReferences").iter().any(|owner| owner["controller"] == true);
        find_kind(cron_job) == Some(WorkloadKind::BatchJob)
            && !is_made
            && names_queue(cron_job)
            && request.before().is_none_or(|old| old["spec"] != cron_job["spec"])
    };
    request.object.as_ref().filter(is_reported).map(list_template_warnings).unwrap_or_default()
}

/// Annotations of its jobs that are not understood, and QoS levels that do not do what they seem to.
fn list_template_warnings(cron_job: &Value) -> Vec<String> {
    let template = &cron_job["spec"]["jobTemplate"];
    let job = find_kind(cron_job).map(|kind| {
        let resource = kind.api_resource();
        json!({
            "apiVersion": resource.api_version, "kind": resource.kind, "metadata": template["metadata"],
            "spec": template["spec"],
        })
    });
    let ignored = job.as_ref().map(list_ignored_annotations).unwrap_or_default();
    let ignored = ignored.into_iter().map(|warning| format!("spec.jobTemplate: {warning}"));
    let void = list_void_qos_levels_of_jobs(cron_job, job.map(|job| ("spec.jobTemplate".to_owned(), job)));
    ignored.chain(void).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decide::job::tests::{create, update};

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
    fn qos_levels_of_the_jobs_of_a_kubernetes_cron_job_are_warned_of_where_they_name_a_queue() {
        let cron_job = |queue: Option<&str>, api_version: &str| {
            let pod = json!({"metadata": {"annotations": {"volcano.sh/qos-level": "best"}}, "spec": {}});
            let mut job = json!({"spec": {"template": pod}});
            if let Some(queue) = queue {
                job["metadata"] = json!({"labels": {"volcano.sh/queue-name": queue}});
            }
            json!({
                "apiVersion": api_version, "kind": "CronJob", "metadata": {"namespace": "ns", "name": "c"},
                "spec": {"schedule": "0 3 * * *", "jobTemplate": job},
            })
        };
        let queued = cron_job(Some("q"), "batch/v1");
        let warnings = warn_of_batch_cron_job(&create(queued.clone()));
        let words = "spec.jobTemplate: annotation volcano.sh/qos-level: \"best\" counts as absent";
        assert!(warnings.len() == 1 && warnings[0].starts_with(words), "{warnings:?}");
        assert_eq!(warn_of_batch_cron_job(&create(cron_job(None, "batch/v1"))), [""; 0]);
        let of_volcano = cron_job(Some("q"), "batch.volcano.sh/v1alpha1");
        assert_eq!(warn_of_batch_cron_job(&create(of_volcano)), [""; 0], "it has rules of its own");
        assert_eq!(warn_of_batch_cron_job(&update(&queued, &queued)), [""; 0], "it was told");
        let mut other = queued.clone();
        other["spec"]["schedule"] = "0 4 * * *".into();
        assert_eq!(warn_of_batch_cron_job(&update(&queued, &other)).len(), 1);
        other["metadata"]["ownerReferences"] = json!([{"kind": "Stack", "name": "s", "controller": true}]);
        assert_eq!(warn_of_batch_cron_job(&create(other)), [""; 0]);
    }

    #[test]
    fn annotations_of_its_jobs_that_are_not_understood_are_warned_of_in_both_kinds() {
        let metadata = json!({
            "labels": {"volcano.sh/queue-name": "q"}, "annotations": {"caldera.dev/checkpoint-interval": "30"},
        });
        let of = |api_version: &str, kept: Value| {
            let template = json!({"metadata": metadata, "spec": kept});
            json!({
                "apiVersion": api_version, "kind": "CronJob", "metadata": {"namespace": "ns", "name": "c"},
                "spec": {"schedule": "0 3 * * *", "jobTemplate": template},
            })
        };
        let words = "spec.jobTemplate: annotation caldera.dev/checkpoint-interval: \"30\" is not understood";
        let warnings = warn_of_batch_cron_job(&create(of("batch/v1", json!({"template": {"spec": {}}}))));
        assert!(warnings.len() == 1 && warnings[0].starts_with(words), "{warnings:?}");
        let task =
            json!({"name": "t", "replicas": 1, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}});
        let of_volcano = of("batch.volcano.sh/v1alpha1", json!({"queue": "q", "minAvailable": 1, "tasks": [task]}));
        let Verdict::Allow { warnings, .. } = validate_cron_job(&create(of_volcano)) else { panic!() };
        assert!(warnings.len() == 1 && warnings[0].starts_with(words), "{warnings:?}");
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
