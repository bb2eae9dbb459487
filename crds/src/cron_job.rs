//! What a CronJob says: its schedule, the jobs that are made of it, and what is wrong with one of Volcano.
//!
//! Rule: Volcano `pkg/controllers/cronjob`, `pkg/webhooks/admission/cronjobs/validate/admit_cronjob.go`; Kubernetes
//! `pkg/controller/cronjob`, whose API server refuses what is wrong itself. A job is named
//! `{cronjob}-{minutes since 1970}`, so that two controllers make the same one of a run; it has the labels and
//! annotations of the template, by which a policy selects it. Everything is read from the object as it is written.

use caldera_core::cron_schedule::{CronSchedule, ParseScheduleError, minute_of};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::{
    action::ACTION_STAMPS,
    dns::is_dns_label,
    job_admission::{self, fill_defaults},
    names::{kubernetes::BATCH_CRON_SCHEDULED, volcano::CRON_SCHEDULED},
    object::{name_of, read_text_at},
    workload::{
        self, WorkloadKind,
        device_claims::remove_claims,
        read_gang,
        submission::{STAMPS, inherit_submitter},
    },
};

/// The longest name: a dash and ten digits go behind it in that of a job.
const LONGEST_NAME: usize = 63 - 11;

/// The kind of its jobs: that of its group; `None` if it is no CronJob.
#[must_use]
pub fn find_kind(cron_job: &Value) -> Option<WorkloadKind> {
    let kind = WorkloadKind::parse(read_text_at(cron_job, "/apiVersion"), "Job")?;
    (cron_job["kind"] == "CronJob").then_some(kind)
}

/// Whether its jobs name a queue. Those of Volcano always do.
#[must_use]
pub fn names_queue(cron_job: &Value) -> bool {
    workload::names_queue(&cron_job["spec"]["jobTemplate"])
}

/// Its schedule in its time zone.
///
/// # Errors
///
/// If either is wrong.
pub fn read_schedule(cron_job: &Value) -> Result<CronSchedule, ParseScheduleError> {
    let spec = &cron_job["spec"];
    CronSchedule::parse(spec["schedule"].as_str().unwrap_or_default(), spec["timeZone"].as_str())
}

/// The name of the job of the run that is due at this time.
#[must_use]
pub fn name_run(cron_job: &str, due: Timestamp) -> String {
    format!("{cron_job}-{}", minute_of(due))
}

/// When the run was due that a job of this name is of, if a CronJob of this name has made it.
#[must_use]
pub fn due_time_of(cron_job: &str, job: &str) -> Option<Timestamp> {
    let minutes: i64 = job.strip_prefix(cron_job)?.strip_prefix('-')?.parse().ok()?;
    Timestamp::from_second(minutes.checked_mul(60)?).ok()
}

/// The job of the run that is due at this time; its time is told in the schedule's zone.
#[must_use]
pub fn build_run(cron_job: &Value, schedule: &CronSchedule, due: Timestamp) -> Value {
    let template = &cron_job["spec"]["jobTemplate"];
    let copy = |field: &str| template["metadata"][field].as_object().cloned().unwrap_or_default();
    let (name, namespace) = (name_of(cron_job), read_text_at(cron_job, "/metadata/namespace"));
    let mut annotations: Map<String, Value> = copy("annotations");
    let shown = due.to_zoned(schedule.zone().clone()).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string();
    let is_batch = find_kind(cron_job) == Some(WorkloadKind::BatchJob);
    annotations.insert((if is_batch { BATCH_CRON_SCHEDULED } else { CRON_SCHEDULED }).to_owned(), shown.into());
    // Whatever the template says.
    annotations.retain(|name, _| !STAMPS.iter().chain(&ACTION_STAMPS).any(|stamp| name == stamp));
    annotations.extend(inherit_submitter(cron_job));
    let api_version = read_text_at(cron_job, "/apiVersion");
    json!({
        "apiVersion": api_version, "kind": "Job", "spec": template["spec"],
        "metadata": {
            "name": name_run(name, due), "namespace": namespace, "labels": copy("labels"), "annotations": annotations,
            "ownerReferences": [{
                "apiVersion": api_version, "kind": "CronJob", "name": name,
                "uid": read_text_at(cron_job, "/metadata/uid"), "controller": true, "blockOwnerDeletion": true,
            }],
        },
    })
}

/// What is wrong with one, each as a sentence; empty if it may be written.
#[must_use]
pub fn list_refusals(cron_job: &Value) -> Vec<String> {
    let (spec, name) = (&cron_job["spec"], name_of(cron_job));
    let mut refusals = Vec::new();
    // The server names one by `generateName` later.
    if !name.is_empty() && (name.len() > LONGEST_NAME || !is_dns_label(name)) {
        refusals.push(format!(
            "metadata.name: {name:?} is no DNS label of at most {LONGEST_NAME} characters; its jobs are named after it"
        ));
    }
    match read_schedule(cron_job) {
        Ok(_) => {}
        Err(error @ ParseScheduleError::UnknownZone(_)) => refusals.push(format!("spec.timeZone: {error}")),
        Err(error) => refusals.push(format!("spec.schedule: {error}")),
    }
    if !["", "Allow", "Forbid", "Replace"].contains(&read_text_at(cron_job, "/spec/concurrencyPolicy")) {
        let written = &spec["concurrencyPolicy"];
        refusals.push(format!("spec.concurrencyPolicy: {written} is none of Allow, Forbid and Replace"));
    }
    for field in ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        if spec[field].as_i64().is_some_and(|number| number < 0) {
            refusals.push(format!("spec.{field}: {} is below 0", spec[field]));
        }
    }
    // What is wrong with its own name is told already.
    let base = if refusals.is_empty() { name } else { "x" };
    let mut job = json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name_run(base, Timestamp::MAX)},
        "spec": spec["jobTemplate"]["spec"],
    });
    drop(fill_defaults(&mut job));
    let found = job_admission::list_creation_refusals(&job);
    refusals.extend(found.iter().map(|refusal| format!("spec.jobTemplate.{}: {}", refusal.field, refusal.why)));
    if found.is_empty()
        && let Err(error) = read_gang(&remove_claims(job))
    {
        refusals.push(format!("spec.jobTemplate.{error}"));
    }
    refusals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::caldera::{ACTED_BY, ACTION, SUBMITTED, SUBMITTER};

    fn cron_job() -> Value {
        let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
        let template = json!({"minAvailable": 1, "tasks": [{"name": "t", "replicas": 1, "template": pod}]});
        json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "CronJob",
            "metadata": {"name": "nightly", "namespace": "ns", "uid": "u"},
            "spec": {"schedule": "30 2 * * *", "timeZone": "Europe/Berlin", "jobTemplate": {
                "metadata": {"labels": {"app": "report"}, "annotations": {"a": "b"}}, "spec": template,
            }},
        })
    }

    #[test]
    fn a_run_is_of_who_submitted_its_cron_job_whatever_the_template_says() {
        let mut cron_job = cron_job();
        let (schedule, due) = (read_schedule(&cron_job).unwrap(), "2026-06-01T00:30:00Z".parse().unwrap());
        let submitter =
            |cron_job: &Value| build_run(cron_job, &schedule, due)["metadata"]["annotations"].get(SUBMITTER).cloned();
        cron_job["spec"]["jobTemplate"]["metadata"]["annotations"][SUBMITTER] = "eve".into();
        assert_eq!(submitter(&cron_job), None);
        let created = "2026-05-01T00:30:00Z";
        cron_job["metadata"]["creationTimestamp"] = created.into();
        cron_job["metadata"]["annotations"] = json!({SUBMITTED: created, SUBMITTER: "ada"});
        assert_eq!(submitter(&cron_job), Some("ada".into()));
        cron_job["apiVersion"] = "batch/v1".into();
        assert_eq!(submitter(&cron_job), Some("ada".into()), "those of Kubernetes too");
    }

    #[test]
    fn nothing_was_done_to_a_new_run_whatever_the_template_says() {
        let mut cron_job = cron_job();
        let (schedule, due) = (read_schedule(&cron_job).unwrap(), "2026-06-01T00:30:00Z".parse().unwrap());
        let before = build_run(&cron_job, &schedule, due);
        for stamp in [ACTED_BY, ACTION, SUBMITTED] {
            cron_job["spec"]["jobTemplate"]["metadata"]["annotations"][stamp] = "eve".into();
        }
        assert_eq!(build_run(&cron_job, &schedule, due), before);
    }

    #[test]
    fn a_run_is_named_by_its_minute_and_has_what_the_template_says() {
        let (cron_job, due) = (cron_job(), "2026-06-01T00:30:00Z".parse().unwrap());
        let job = build_run(&cron_job, &read_schedule(&cron_job).unwrap(), due);
        assert_eq!(job["metadata"]["name"], "nightly-29671230");
        assert_eq!(due_time_of("nightly", "nightly-29671230"), Some(due));
        assert_eq!(job["metadata"]["labels"], json!({"app": "report"}));
        let annotations = json!({"a": "b", CRON_SCHEDULED: "2026-06-01T02:30:00+02:00"});
        assert_eq!(job["metadata"]["annotations"], annotations);
        assert_eq!(job["metadata"]["ownerReferences"][0]["uid"], "u");
        assert_eq!(job["spec"], cron_job["spec"]["jobTemplate"]["spec"]);
        let mut of_batch = cron_job.clone();
        of_batch["apiVersion"] = "batch/v1".into();
        let job = build_run(&of_batch, &read_schedule(&cron_job).unwrap(), due);
        assert_eq!(
            (&job["apiVersion"], &job["metadata"]["annotations"][CRON_SCHEDULED]),
            (&json!("batch/v1"), &Value::Null)
        );
        assert!(job["metadata"]["annotations"][BATCH_CRON_SCHEDULED].is_string());
        for other in ["nightly", "nightly-", "nightly-x", "night-29671230", "nightly-9223372036854775807"] {
            assert_eq!(due_time_of("nightly", other), None, "{other}");
        }
    }

    #[test]
    fn a_cron_job_of_kubernetes_names_a_queue_where_its_jobs_would() {
        let of =
            |template: Value| json!({"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"jobTemplate": template}});
        let labels = json!({"labels": {"volcano.sh/queue-name": "q"}});
        assert!(names_queue(&of(json!({"metadata": labels}))));
        assert!(names_queue(&of(json!({"spec": {"template": {"metadata": labels}}}))));
        assert!(!names_queue(&of(json!({"spec": {"template": {}}}))));
        assert_eq!(find_kind(&of(json!({}))), Some(WorkloadKind::BatchJob));
    }

    #[test]
    fn what_is_wrong_is_reported_by_its_field() {
        assert_eq!(list_refusals(&cron_job()), Vec::<String>::new());
        for (pointer, field, value) in [
            ("/metadata", "name", json!("n".repeat(53))),
            ("/metadata", "name", json!("a.b")),
            ("/spec", "schedule", json!("@every 5m")),
            ("/spec", "schedule", json!(null)),
            ("/spec", "timeZone", json!("Local")),
            ("/spec", "concurrencyPolicy", json!("Never")),
            ("/spec", "startingDeadlineSeconds", json!(-1)),
            ("/spec", "failedJobsHistoryLimit", json!(-1)),
        ] {
            let mut wrong = cron_job();
            wrong.pointer_mut(pointer).unwrap()[field] = value;
            let reported = list_refusals(&wrong);
            assert!(
                reported.len() == 1 && reported[0].starts_with(&format!("{}.{field}", &pointer[1..])),
                "{reported:?}"
            );
        }
        let mut wrong = cron_job();
        wrong["spec"]["jobTemplate"]["spec"]["minAvailable"] = 5.into();
        let reported = list_refusals(&wrong);
        assert!(reported[0].starts_with("spec.jobTemplate.spec.minAvailable"), "{reported:?}");
        for garbage in [json!(null), json!({"spec": 1}), json!({"spec": {"jobTemplate": []}})] {
            assert!(!list_refusals(&garbage).is_empty());
        }
    }
}
