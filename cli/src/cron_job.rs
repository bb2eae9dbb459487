//! When CronJobs make their next job: `caldera why cronjob/NAME`, and the lines below `caldera job list`.
//!
//! Rule: as the controller makes them (`caldera_core::cron_schedule`). The next run is the first time after now that
//! the schedule has in its time zone; one that is suspended, or whose schedule can not be read, has none. A CronJob of
//! Kubernetes that nobody queues is its members' own matter: they go by the same schedule.

use std::fmt::Write as _;

use caldera_core::text::name_some;
use caldera_crds::{
    cron_job::{find_kind, names_queue, read_schedule},
    workload::WorkloadKind,
};
use caldera_runtime::{clock::format_time, watch::api_resource};
use jiff::Timestamp;
use kube::{Client, core::ApiResource};
use serde::Serialize;
use serde_json::Value;

use crate::{
    args::WhyArgs,
    objects::{describe_others, get_object, list_objects, name_of, read_list_at, read_text_at},
    output::{self, format_duration},
};

/// Those of Volcano and of Kubernetes, as users name them.
const KINDS: [(&str, &str, &str); 2] =
    [("batch.volcano.sh", "v1alpha1", "Volcano CronJob"), ("batch", "v1", "CronJob")];

/// What is told of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CronJobView {
    /// `Volcano CronJob` or `CronJob`.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// As written.
    pub schedule: String,
    /// Of the schedule.
    pub time_zone: String,
    /// No further runs start.
    pub suspended: bool,
    /// When its next job is made; none if it makes none.
    pub next_run: Option<String>,
    /// Seconds until then, which pass while a list is watched.
    #[serde(skip)]
    pub next_run_in_seconds: Option<i64>,
    /// The next job is made only once those before it have ended.
    pub waits_for_last: bool,
    /// When a job was last made.
    pub last_run: Option<String>,
    /// Its jobs that have not ended.
    pub active: Vec<String>,
    /// What else keeps a job from being made, or where it is made.
    pub notes: Vec<String>,
}

/// The JSON and YAML form of `caldera why`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CronJobs {
    cron_jobs: Vec<CronJobView>,
}

/// Tells when those of a name make their next job.
///
/// # Errors
/// If there is none, it can not be seen, or the server does not answer.
pub async fn explain_cron_job(client: &Client, args: &WhyArgs, name: &str, namespace: &str) -> anyhow::Result<()> {
    let (mut cron_jobs, mut hidden, now) = (Vec::new(), Vec::new(), Timestamp::now());
    for (group, version, _) in KINDS {
        match get_object(client, &build_resource(group, version), Some(namespace), name).await? {
            Ok(found) => cron_jobs.extend(found.iter().filter_map(|object| view_cron_job(object, now))),
            Err(why) => hidden.push(why),
        }
    }
    if cron_jobs.is_empty() {
        anyhow::ensure!(hidden.is_empty(), "whether there is a CronJob {name} is not known: {}", hidden.join("; "));
        let mut others = String::new();
        for (group, version, _) in KINDS {
            others += &describe_others(client, &build_resource(group, version), Some(namespace), name).await;
        }
        anyhow::bail!("there is no CronJob {name} in namespace {namespace}{others}");
    }
    let answer = CronJobs { cron_jobs };
    output::print_answer(args.output, &answer, |_| {
        answer.cron_jobs.iter().map(format_cron_job).collect::<Vec<_>>().join("\n")
    })
}

/// Whether there is one of a name that the asker may see.
pub async fn is_there(client: &Client, name: &str, namespace: &str) -> bool {
    for (group, version, _) in KINDS {
        if let Ok(Ok(Some(_))) = get_object(client, &build_resource(group, version), Some(namespace), name).await {
            return true;
        }
    }
    false
}

/// Those of a namespace, or of all, by name. Who may not list them has none.
///
/// # Errors
/// If the server does not answer.
pub async fn list_cron_jobs(client: &Client, namespace: Option<&str>) -> anyhow::Result<Vec<CronJobView>> {
    let (mut found, now) = (Vec::new(), Timestamp::now());
    for (group, version, _) in KINDS {
        let listed = list_objects(client, &build_resource(group, version), namespace, None).await?;
        found.extend(listed.unwrap_or_default().iter().filter_map(|object| view_cron_job(object, now)));
    }
    found.sort_by(|a, b| (&a.namespace, &a.name, a.kind).cmp(&(&b.namespace, &b.name, b.kind)));
    Ok(found)
}

/// What is told of one now; `None` of what is no CronJob.
#[must_use]
pub fn view_cron_job(object: &Value, now: Timestamp) -> Option<CronJobView> {
    let of = find_kind(object)?;
    let kind = KINDS[usize::from(of != WorkloadKind::VolcanoJob)].2;
    let text = |pointer: &str| read_text_at(object, pointer).to_owned();
    let suspended = object["spec"]["suspend"] == true;
    let schedule = read_schedule(object);
    let next = schedule.as_ref().ok().filter(|_| !suspended).and_then(|schedule| schedule.next_after(now));
    let active = read_list_at(object, "/status/active").iter().map(|job| name_of_reference(job).to_owned());
    let active: Vec<String> = active.collect();
    let is_never = schedule.is_ok() && !suspended && next.is_none();
    let mut notes: Vec<String> = schedule.err().map(|why| format!("it makes no job: {why}")).into_iter().collect();
    notes.extend(is_never.then(|| "it makes no job: no day is as its schedule says".to_owned()));
    let waits_for_last = object["spec"]["concurrencyPolicy"] == "Forbid" && !active.is_empty();
    if waits_for_last {
        notes.push("a run waits until the job before it has ended (concurrencyPolicy: Forbid)".to_owned());
    }
    if of == WorkloadKind::BatchJob && !names_queue(object) {
        notes.push("its jobs name no queue: unless its namespace opted in, members run it by themselves".to_owned());
    }
    let zone = read_text_at(object, "/spec/timeZone");
    Some(CronJobView {
        kind,
        namespace: text("/metadata/namespace"),
        name: name_of(object).to_owned(),
        schedule: text("/spec/schedule"),
        time_zone: if zone.is_empty() { "UTC" } else { zone }.to_owned(),
        suspended,
        next_run: next.map(format_time),
        next_run_in_seconds: next.map(|next| next.as_second() - now.as_second()),
        waits_for_last,
        last_run: Some(text("/status/lastScheduleTime")).filter(|last| !last.is_empty()),
        active,
        notes,
    })
}

impl CronJobView {
    /// When its next job is made, after its name.
    #[must_use]
    pub fn describe_next_run(&self) -> String {
        match (&self.next_run, self.next_run_in_seconds) {
            (Some(at), Some(left)) => {
                let active = name_some(&self.active);
                let if_ended = if self.waits_for_last { format!(", if {active} ended by then") } else { String::new() };
                format!("makes its next job at {at}, in {}{if_ended}", format_duration(left))
            }
            _ if self.suspended => "is suspended: it makes no job".to_owned(),
            _ => "makes no job".to_owned(),
        }
    }
}

fn build_resource(group: &str, version: &str) -> ApiResource {
    api_resource(group, version, "CronJob", "cronjobs")
}

fn name_of_reference(reference: &Value) -> &str {
    read_text_at(reference, "/name")
}

fn format_cron_job(view: &CronJobView) -> String {
    let CronJobView { kind, namespace, name, schedule, time_zone, .. } = view;
    let mut text = format!("{kind} {namespace}/{name} {}\n\n", view.describe_next_run());
    let mut fact = |name: &str, value: &str| {
        // Writing to a text never fails.
        let _ = writeln!(text, "{name:<10} {value}");
    };
    fact("Schedule", &format!("{schedule}  ({time_zone})"));
    fact("Last run", view.last_run.as_deref().unwrap_or("none yet"));
    if !view.active.is_empty() {
        fact("Jobs", &format!("{}: each has a `caldera why` of its own", view.active.join(", ")));
    }
    for note in &view.notes {
        let _ = writeln!(text, "\nNote: {note}");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view(api_version: &str, spec: &Value) -> CronJobView {
        let object = json!({
            "apiVersion": api_version, "kind": "CronJob", "metadata": {"namespace": "ns", "name": "nightly"},
            "spec": spec, "status": {"lastScheduleTime": "2026-01-01T02:00:00Z", "active": [{"name": "nightly-1"}]},
        });
        view_cron_job(&object, "2026-01-01T12:00:00Z".parse().unwrap()).unwrap()
    }

    #[test]
    fn the_next_run_is_told_in_utc_by_the_schedule_in_its_zone() {
        let utc = view("batch.volcano.sh/v1alpha1", &json!({"schedule": "0 2 * * *"}));
        assert_eq!(utc.describe_next_run(), "makes its next job at 2026-01-02T02:00:00Z, in 14h");
        assert_eq!((utc.kind, utc.time_zone.as_str(), utc.notes.len()), ("Volcano CronJob", "UTC", 0));
        let text = format_cron_job(&utc);
        assert!(text.contains("\nSchedule   0 2 * * *  (UTC)\n") && text.contains("nightly-1: each"), "{text}");
        let there = view("batch.volcano.sh/v1alpha1", &json!({"schedule": "@daily", "timeZone": "Asia/Shanghai"}));
        assert_eq!(there.next_run.as_deref(), Some("2026-01-01T16:00:00Z"));
        let alone = view("batch/v1", &json!({"schedule": "0 2 * * *", "concurrencyPolicy": "Forbid"}));
        let only_then = "makes its next job at 2026-01-02T02:00:00Z, in 14h, if nightly-1 ended by then";
        assert_eq!(alone.describe_next_run(), only_then);
    }

    #[test]
    fn one_that_makes_no_job_says_why() {
        let stopped = view("batch/v1", &json!({"schedule": "0 2 * * *", "suspend": true}));
        assert_eq!(stopped.describe_next_run(), "is suspended: it makes no job");
        assert!(stopped.notes[0].contains("members run it by themselves"), "{:?}", stopped.notes);
        let wrong = view("batch.volcano.sh/v1alpha1", &json!({"schedule": "@every 5m", "concurrencyPolicy": "Forbid"}));
        assert_eq!((wrong.describe_next_run().as_str(), &wrong.next_run), ("makes no job", &None));
        assert!(
            wrong.notes[0].contains("@every is not read") && wrong.notes[1].contains("Forbid"),
            "{:?}",
            wrong.notes
        );
        let never = view("batch.volcano.sh/v1alpha1", &json!({"schedule": "0 0 30 2 *"}));
        assert_eq!(never.notes, ["it makes no job: no day is as its schedule says"]);
        assert_eq!(view_cron_job(&json!({"kind": "CronJob", "apiVersion": "v1"}), Timestamp::UNIX_EPOCH), None);
    }
}
