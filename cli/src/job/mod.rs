//! `caldera job`: jobs and services of queues, and what their owners may do about them.
//!
//! A list is made of what the system wrote on bindings and PodGroups of the caller's namespace, so it costs little and
//! needs few rights. `caldera why` works answers out. Rule: what is changed is one field of the user's own object, by a
//! JSON patch that fails where it has changed meanwhile.

pub(crate) mod change;
mod exec;
mod job_move;
mod logs;
pub(crate) mod requeue;
mod row;

use std::{collections::BTreeSet, process::ExitCode};

use caldera_crds::{names::caldera::WORKLOAD_NAME, workload::WorkloadKind};
use jiff::Timestamp;
use kube::Client;
use serde::Serialize;
use serde_json::Value;

use self::{change::JobChange, row::JobRow};
use crate::{
    args::{JobAction, JobListArgs, JobOrder, WhyArgs, WhySubject},
    components,
    console_starts::{self, ConsoleSource, ViewGap},
    cron_job::{self, CronJobView},
    events,
    expected_start::{self, ExpectedStart, Forecast},
    json_path::sort_rows,
    live::{self, Gap},
    objects::{self, list_objects, name_resource},
    output::{self, ListOutput, Output, format_duration, format_table},
    repeat::{self, PrintedPage},
    view::{Change, JobView, Seen},
    why,
};

pub async fn run_job(action: JobAction) -> anyhow::Result<ExitCode> {
    match action {
        JobAction::List(args) => list_jobs(args).await,
        JobAction::Why(args) => why::run_why(args).await,
        JobAction::Describe(args) => describe_job(args).await,
        JobAction::Hold(args) => change::change_jobs(args, JobChange::Hold).await,
        JobAction::Release(args) => change::change_jobs(args, JobChange::Release).await,
        JobAction::Suspend(args) => change::change_jobs(args, JobChange::Suspend).await,
        JobAction::Resume(args) => change::change_jobs(args, JobChange::Resume).await,
        JobAction::Requeue(args) => requeue::requeue_jobs(args).await,
        JobAction::Move(args) => job_move::move_job(args).await,
        JobAction::Logs(args) => logs::show_logs(args).await,
        JobAction::Exec(args) => exec::run_in_pods(args).await,
        JobAction::Delete(args) => change::change_jobs(args, JobChange::Delete).await,
    }
}

/// The JSON and YAML form.
#[derive(Debug, Serialize)]
struct Jobs {
    jobs: Vec<JobRow>,
    /// What makes jobs when they are due.
    #[serde(rename = "cronJobs", skip_serializing_if = "Vec::is_empty")]
    cron_jobs: Vec<CronJobView>,
    /// Kinds that could not be seen.
    missing: Vec<Gap>,
}

async fn list_jobs(args: JobListArgs) -> anyhow::Result<ExitCode> {
    let (client, own) = components::connect_scope(&args.scope, "job").await?;
    let source = ConsoleSource::from_args(&args.source, args.scope.kubeconfig.as_deref());
    repeat::print_page(args.watch, async || read_page(&client, &own, &args, source.as_ref()).await).await
}

async fn read_page(
    client: &Client,
    own: &str,
    args: &JobListArgs,
    source: Option<&ConsoleSource>,
) -> anyhow::Result<PrintedPage> {
    let namespace = (!args.all_namespaces).then_some(own);
    let list = |resource, labels: Option<String>| async move {
        list_objects(client, &resource, namespace, labels.as_deref()).await?.map_err(anyhow::Error::msg)
    };
    let (workloads, missing) = list_workloads(client, namespace, args.selector.as_deref()).await?;
    // Without these nothing that is said of a job would be true.
    let bindings = list(objects::binding_resource(), None).await?;
    let groups = list(objects::pod_group_resource(), Some(WORKLOAD_NAME.to_owned())).await?;
    let (mut seen, now) = (Seen::default(), Timestamp::now());
    Change::of_lists(&workloads, &bindings, &groups).into_iter().for_each(|change| seen.observe(change));
    // Without its workload it is not one of those with the labels that are asked for.
    let listed = seen.jobs().filter(JobView::has_workload);
    let (forecast, gap) = forecast_starts(client, args, own).await?.unzip();
    let mut rows: Vec<JobRow> = listed.map(|job| JobRow::of(job, forecast.as_ref(), now)).collect();
    rows.retain(|row| {
        args.queue.as_ref().is_none_or(|queue| *queue == row.queue)
            && args.state.is_none_or(|state| state.word() == row.state)
            && args.since.is_none_or(|since| row.age_seconds <= since)
    });
    if let (true, Some(queue)) = (rows.is_empty(), &args.queue) {
        objects::ensure_queue(client, queue).await?;
    }
    let notes = match gap.flatten() {
        Some(gap) => complete_starts(&mut rows, source, gap, now).await,
        None => String::new(),
    };
    sort_jobs(&mut rows, &args.sort_by)?;
    let is_all = args.queue.is_none() && args.state.is_none() && args.since.is_none() && args.selector.is_none();
    let cron_jobs = if is_all { cron_job::list_cron_jobs(client, namespace).await? } else { Vec::new() };
    let jobs = Jobs { jobs: rows, cron_jobs, missing };
    if jobs.jobs.is_empty() && jobs.cron_jobs.is_empty() && matches!(args.output, ListOutput::Table | ListOutput::Wide)
    {
        if let Some(namespace) = namespace {
            objects::ensure_namespace(client, namespace).await?;
        }
        let place = if args.all_namespaces { "any namespace".to_owned() } else { format!("namespace {own}") };
        let gaps = output::format_gaps(&jobs.missing, args.output == ListOutput::Wide);
        eprint!("{}", output::escape_controls(&format!("no such jobs in {place}\n{gaps}")));
        return PrintedPage::new(String::new(), &jobs);
    }
    let names = jobs.jobs.iter().map(|row| format!("{}\n", row.job)).collect::<String>();
    let text = output::format_list(&args.output, &jobs, "STATE", &names, |wide| {
        let is_empty = jobs.jobs.is_empty();
        let rows = if is_empty { String::new() } else { format_rows(&jobs.jobs, args, forecast.as_ref(), wide) };
        rows + &notes + &format_cron_jobs(&jobs.cron_jobs) + &output::format_gaps(&jobs.missing, wide)
    })?;
    PrintedPage::new(text, &jobs)
}

/// Workloads of all kinds, and the kinds that the caller may not list.
async fn list_workloads(
    client: &Client,
    namespace: Option<&str>,
    labels: Option<&str>,
) -> anyhow::Result<(Vec<Value>, Vec<Gap>)> {
    let (mut workloads, mut missing) = (Vec::new(), Vec::new());
    for kind in WorkloadKind::list_all() {
        let resource = kind.api_resource();
        match list_objects(client, &resource, namespace, labels).await {
            Ok(Ok(listed)) => workloads.extend(listed),
            // Who may not list what a host may do without has none of it.
            _ if kind.is_optional() => {}
            Ok(Err(why)) => missing.push(Gap { what: name_resource(&resource), why }),
            Err(error) => return Err(error),
        }
    }
    Ok((workloads, missing))
}

/// Expected starts where they are asked for, and what hides them.
async fn forecast_starts(
    client: &Client,
    args: &JobListArgs,
    namespace: &str,
) -> anyhow::Result<Option<(Forecast, Option<ViewGap>)>> {
    if !args.start {
        return Ok(None);
    }
    let mut live = live::read_undecided(client, Some(namespace), None).await?;
    let forecast = Forecast::of_live(&mut live, args.assume_run_for, expected_start::FOR_A_LIST).await?;
    Ok(Some((forecast, console_starts::find_view_gap(&live))))
}

/// Has a console tell the starts that are not known; what is said of that below the table.
async fn complete_starts(rows: &mut [JobRow], source: Option<&ConsoleSource>, gap: ViewGap, now: Timestamp) -> String {
    let is_unknown = |row: &JobRow| row.waits && row.expected_start.as_ref().is_none_or(|start| start.at.is_none());
    let unknown = || rows.iter().filter(|row| is_unknown(row));
    if unknown().all(|row| row.expected_start.is_none()) && gap != ViewGap::Rights {
        return String::new();
    }
    let namespaces: BTreeSet<String> = unknown().map(|row| row.namespace.clone()).collect();
    if namespaces.is_empty() {
        return String::new();
    }
    let taken = console_starts::take_starts(source, gap, namespaces, now).await;
    for row in rows.iter_mut().filter(|row| row.waits) {
        row.expected_start = taken.complete_start(&row.workload, row.expected_start.take());
    }
    taken.describe(gap)
}

fn sort_jobs(rows: &mut Vec<JobRow>, order: &JobOrder) -> anyhow::Result<()> {
    rows.sort_by(|a, b| a.namespace.cmp(&b.namespace).then_with(|| a.job.cmp(&b.job)));
    match order {
        JobOrder::Name => {}
        JobOrder::Age => rows.sort_by_key(|row| std::cmp::Reverse(row.age_seconds)),
        JobOrder::Priority => rows.sort_by_key(|row| std::cmp::Reverse(row.priority)),
        JobOrder::Field(field) => sort_rows(rows, field)?,
    }
    Ok(())
}

fn format_rows(rows: &[JobRow], args: &JobListArgs, forecast: Option<&Forecast>, wide: bool) -> String {
    let (all_namespaces, start) = (args.all_namespaces, forecast.is_some());
    let mut header = Vec::from_iter(all_namespaces.then_some("NAMESPACE"));
    header.extend(["JOB", "QUEUE", "STATE", "PODS", "AGE"]);
    // A terminal that is too narrow cuts the end: what is asked for is before long texts.
    header.extend(start.then_some("START"));
    header.extend(["CLUSTERS", "REASON"]);
    header.extend((start && wide).then_some("START RESTS ON"));
    if wide {
        header.extend(["PRIORITY", "MESSAGE"]);
    }
    let cells = rows.iter().map(|row| {
        let of_start =
            |report: fn(&ExpectedStart) -> String| row.expected_start.as_ref().map(report).unwrap_or_default();
        let mut cells = Vec::from_iter(all_namespaces.then(|| row.namespace.clone()));
        let age = format_duration(row.age_seconds);
        cells.extend([row.job.clone(), row.queue.clone(), row.state.to_owned(), row.pods.clone(), age]);
        cells.extend(start.then(|| of_start(ExpectedStart::describe_briefly)));
        cells.extend([row.clusters.join(","), row.reason.clone()]);
        cells.extend((start && wide).then(|| of_start(|start| start.basis.clone())));
        if wide {
            cells.extend([row.priority.to_string(), row.message.clone()]);
        }
        cells
    });
    let table = format_table(&header, cells);
    let doubtful = |row: &JobRow| row.expected_start.as_ref().is_some_and(|start| start.at.is_some() && !start.sure);
    match forecast.filter(|_| !wide && rows.iter().any(doubtful)) {
        Some(forecast) => format!("{table}{}\n", forecast.describe_uncertainty()),
        None => table,
    }
}

/// A line for each.
fn format_cron_jobs(cron_jobs: &[CronJobView]) -> String {
    let line = |one: &CronJobView| format!("{} {}/{} {}\n", one.kind, one.namespace, one.name, one.describe_next_run());
    let lines: String = cron_jobs.iter().map(line).collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

async fn describe_job(args: WhyArgs) -> anyhow::Result<ExitCode> {
    let client = components::connect_for_command(args.kubeconfig.as_deref(), "job").await?;
    let namespace = args.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    let (job, output) = (args.job.clone(), args.output);
    let for_people = matches!(output, Output::Table | Output::Wide);
    let code = why::run_why(WhyArgs { output: if for_people { Output::Wide } else { output }, ..args }).await?;
    if let (true, WhySubject::Workload(job)) = (for_people, job) {
        let events = events::describe_events(&client, &namespace, &job).await?;
        output::write_stdout(&events);
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use axum::{Json, Router, http::StatusCode, routing::get};
    use serde_json::json;

    use super::*;
    use crate::objects::name_of;

    /// Found by a reader: who may not list StatefulSets saw no job at all.
    #[tokio::test]
    async fn a_kind_that_one_may_not_list_is_named_and_the_others_are_listed() {
        let why = "statefulsets.apps is forbidden: User \"u\" cannot list resource \"statefulsets\"";
        let refuse = |code: u16, why: &str| json!({"kind": "Status", "code": code, "message": why, "reason": "R"});
        let (forbidden, unknown) = (refuse(403, why), refuse(404, "the server could not find it"));
        let jobs = json!({"metadata": {}, "items": [{"metadata": {"name": "j", "namespace": "ns"}}]});
        let api = Router::new()
            .route("/apis/batch.volcano.sh/v1alpha1/namespaces/ns/jobs", get(async move || Json(jobs)))
            .route(
                "/apis/apps/v1/namespaces/ns/statefulsets",
                get(async move || (StatusCode::FORBIDDEN, Json(forbidden))),
            )
            .fallback(async move || (StatusCode::NOT_FOUND, Json(unknown)));
        let client = Client::new(api, "default");
        let (workloads, missing) = list_workloads(&client, Some("ns"), None).await.unwrap();
        assert_eq!(workloads.iter().map(name_of).collect::<Vec<_>>(), ["j"]);
        assert_eq!(missing, [Gap { what: "statefulsets.apps".to_owned(), why: why.to_owned() }]);
    }
}
