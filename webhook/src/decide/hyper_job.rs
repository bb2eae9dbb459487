//! Admission of HyperJobs on the host: what is wrong with one is said when it is written, by field, value and limit.
//!
//! Rules: `caldera_crds::hyper_job`. volcano-global has no webhook for them: a job that Volcano refuses fails there
//! with every try, and nothing says so. Defaults need no review: the schema has that of `replicas`, and each job gets
//! Volcano's own when it is made.

use caldera_crds::hyper_job::{list_creation_refusals, list_ignored_fields, list_update_refusals};
use serde_json::Value;

use super::verdict::Verdict;
use crate::observe::request::ReviewRequest;

/// Refuses what can not be a HyperJob, or is no change of one; warns of what it says and nobody acts on.
#[must_use]
pub fn validate_hyper_job(request: &ReviewRequest<'_, Value>) -> Verdict {
    let Some(hyper_job) = &request.object else { return Verdict::UNCHANGED };
    let refusals = match &request.old_object {
        _ if hyper_job["metadata"]["deletionTimestamp"].is_string() => Vec::new(),
        Some(old) if !request.is_create() => list_update_refusals(old, hyper_job),
        _ => list_creation_refusals(hyper_job),
    };
    if refusals.is_empty() {
        return Verdict::Allow { patch: Vec::new(), warnings: list_ignored_fields(hyper_job) };
    }
    Verdict::deny_invalid(refusals.join("; "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hyper_job() -> Value {
        let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
        let template = json!({"minAvailable": 1, "tasks": [{"name": "t", "replicas": 1, "template": pod}]});
        json!({"metadata": {"name": "h"}, "spec": {"replicatedJobs": [{"name": "a", "templateSpec": template}]}})
    }

    fn review(operation: &'static str, old: Option<&Value>, new: Value) -> Verdict {
        validate_hyper_job(&ReviewRequest {
            uid: "u".into(),
            operation: operation.into(),
            namespace: Some("ns".into()),
            name: None,
            dry_run: None,
            user_info: None,
            object: Some(new),
            old_object: old.cloned(),
        })
    }

    #[test]
    fn a42_a_name_of_which_no_job_can_be_named_is_refused_when_it_is_written() {
        assert_eq!(review("CREATE", None, hyper_job()), Verdict::UNCHANGED);
        let mut dotted = hyper_job();
        dotted["metadata"]["name"] = "a.b".into();
        let Verdict::Deny(denial) = review("CREATE", None, dotted) else { panic!("it is taken") };
        assert_eq!(denial.code, 422);
        assert!(denial.message.starts_with("metadata.name: \"a.b\""), "{}", denial.message);
    }

    #[test]
    fn one_that_is_being_deleted_lets_go_of_its_finalizers_whatever_it_says() {
        let mut old = hyper_job();
        old["spec"]["replicatedJobs"][0]["replicas"] = (-1).into();
        let mut new = old.clone();
        new["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert_eq!(review("UPDATE", Some(&old), new), Verdict::UNCHANGED);
    }

    #[test]
    fn what_nobody_acts_on_is_a_warning() {
        let mut plugged = hyper_job();
        plugged["spec"]["plugins"] = json!({"svc": []});
        let Verdict::Allow { warnings, .. } = review("CREATE", None, plugged) else { panic!("it is refused") };
        assert!(warnings[0].starts_with("spec.plugins"), "{warnings:?}");
    }
}
