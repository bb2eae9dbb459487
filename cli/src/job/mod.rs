//! `caldera job`: jobs and services of queues, and what their owners may do about them.
//!
//! A list is made of what the system wrote on bindings and PodGroups of the caller's namespace, so it costs little and
//! needs few rights. `caldera why` works answers out. Rule: what is changed is one field of the user's own object, by a
//! JSON patch that fails where it has changed meanwhile.

mod change;
mod row;

use std::process::ExitCode;

use caldera_crds::{names::caldera::WORKLOAD_NAME, workload::WorkloadKind};
use caldera_runtime::{client::WriteCounts, watch::api_resource};
use jiff::Timestamp;
use kube::Client;
use serde::Serialize;
use serde_json::Value;

use self::row::{Row, list_rows};
use crate::{
    args::{JobAction, JobListArgs, JobOrder, WhyArgs},
    components,
    objects::{self, items, list_objects, text},
    output::{self, ListOutput, Output, format_duration, format_table},
    why,
};

pub async fn run_job(action: JobAction) -> anyhow::Result<ExitCode> {
    match action {
        JobAction::List(args) => list_jobs(args).await,
        JobAction::Why(args) => why::run_why(args).await,
        JobAction::Describe(args) => describe_job(args).await,
        JobAction::Hold(args) => change::change_jobs(args, change::Change::Hold).await,
        JobAction::Release(args) => change::change_jobs(args, change::Change::Release).await,
        JobAction::Delete(args) => change::change_jobs(args, change::Change::Delete).await,
    }
}

/// The JSON and YAML form.
#[derive(Debug, Serialize)]
struct Jobs {
    jobs: Vec<Row>,
}

async fn list_jobs(args: JobListArgs) -> anyhow::Result<ExitCode> {
    let client = components::connect_client(args.scope.kubeconfig.as_deref(), "job", &WriteCounts::default()).await?;
    let own = args.scope.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    let namespace = (!args.all_namespaces).then_some(own.as_str());
    let list = |resource, labels: Option<String>| {
        let client = client.clone();
        async move { list_objects(&client, &resource, namespace, labels.as_deref()).await?.map_err(anyhow::Error::msg) }
    };
    let mut workloads = Vec::new();
    for kind in WorkloadKind::ALL {
        workloads.extend(list(kind.api_resource(), args.selector.clone()).await?);
    }
    let bindings = list(objects::bindings(), None).await?;
    let groups = list(objects::pod_groups(), Some(WORKLOAD_NAME.to_owned())).await?;
    let mut rows = list_rows(&workloads, &bindings, &groups, Timestamp::now());
    rows.retain(|row| {
        args.queue.as_ref().is_none_or(|queue| *queue == row.queue)
            && args.state.as_ref().is_none_or(|state| state.eq_ignore_ascii_case(row.state))
    });
    sort_rows(&mut rows, args.sort_by);
    if rows.is_empty() && matches!(args.output, ListOutput::Table | ListOutput::Wide) {
        let place = if args.all_namespaces { "any namespace".to_owned() } else { format!("namespace {own}") };
        eprintln!("{}", output::escape_controls(&format!("no such jobs in {place}")));
        return Ok(ExitCode::SUCCESS);
    }
    let names = rows.iter().map(|row| format!("{}\n", row.job)).collect::<String>();
    let jobs = Jobs { jobs: rows };
    output::print_list(args.output, &jobs, "STATE", &names, |wide| format_rows(&jobs.jobs, args.all_namespaces, wide))?;
    Ok(ExitCode::SUCCESS)
}

fn sort_rows(rows: &mut [Row], order: JobOrder) {
    rows.sort_by(|a, b| a.namespace.cmp(&b.namespace).then_with(|| a.job.cmp(&b.job)));
    match order {
        JobOrder::Name => {}
        JobOrder::Queue => rows.sort_by(|a, b| a.queue.cmp(&b.queue)),
        JobOrder::State => rows.sort_by(|a, b| a.state.cmp(b.state)),
        JobOrder::Age => rows.sort_by_key(|row| std::cmp::Reverse(row.age_seconds)),
        JobOrder::Priority => rows.sort_by_key(|row| std::cmp::Reverse(row.priority)),
    }
}

fn format_rows(rows: &[Row], all_namespaces: bool, wide: bool) -> String {
    let mut header = vec!["JOB", "QUEUE", "STATE", "PODS", "AGE", "CLUSTERS", "REASON"];
    if all_namespaces {
        header.insert(0, "NAMESPACE");
    }
    if wide {
        header.extend(["PRIORITY", "MESSAGE"]);
    }
    let cells = rows.iter().map(|row| {
        let mut cells = vec![
            row.job.clone(),
            row.queue.clone(),
            row.state.to_owned(),
            row.minimum.map_or_else(|| row.running.to_string(), |minimum| format!("{}/{minimum}", row.running)),
            format_duration(row.age_seconds),
            row.clusters.join(","),
            row.reason.clone(),
        ];
        if all_namespaces {
            cells.insert(0, row.namespace.clone());
        }
        if wide {
            cells.extend([row.priority.to_string(), row.message.clone()]);
        }
        cells
    });
    format_table(&header, cells)
}

async fn describe_job(args: WhyArgs) -> anyhow::Result<ExitCode> {
    let client = components::connect_client(args.kubeconfig.as_deref(), "job", &WriteCounts::default()).await?;
    let namespace = args.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    let (job, output) = (args.job.clone(), args.output);
    let for_people = matches!(output, Output::Table | Output::Wide);
    let code = why::run_why(WhyArgs { output: if for_people { Output::Wide } else { output }, ..args }).await?;
    if for_people {
        let events = list_events(&client, &namespace, job.kind.kind(), &job.name).await?;
        output::write_stdout(&events);
    }
    Ok(code)
}

/// Events on a workload, the oldest first.
async fn list_events(client: &Client, namespace: &str, kind: &str, name: &str) -> anyhow::Result<String> {
    let resource = api_resource("", "v1", "Event", "events");
    let mut events = match list_objects(client, &resource, Some(namespace), None).await? {
        Ok(events) => events,
        Err(why) => return Ok(format!("\nNot seen:\n  events: {why}\n")),
    };
    events.retain(|event| text(event, "/involvedObject/kind") == kind && text(event, "/involvedObject/name") == name);
    if events.is_empty() {
        return Ok(String::new());
    }
    events.sort_by(|a, b| when(a).cmp(when(b)));
    let now = Timestamp::now();
    let row = |event: &Value| {
        let age = when(event).parse::<Timestamp>().map(|then| format_duration(now.as_second() - then.as_second()));
        let of = |pointer: &str| text(event, pointer).to_owned();
        vec![age.unwrap_or_default(), of("/type"), of("/reason"), event_source(event).to_owned(), of("/message")]
    };
    Ok(format!("\nEvents:\n{}", format_table(&["AGE", "TYPE", "REASON", "FROM", "MESSAGE"], events.iter().map(row))))
}

fn when(event: &Value) -> &str {
    let fields = ["/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
    fields.into_iter().map(|field| text(event, field)).find(|time| !time.is_empty()).unwrap_or_default()
}

fn event_source(event: &Value) -> &str {
    let fields = ["/source/component", "/reportingComponent"];
    fields.into_iter().map(|field| text(event, field)).find(|name| !name.is_empty()).unwrap_or_default()
}

/// Clusters that a binding names.
fn clusters_of(binding: &Value) -> Vec<String> {
    items(binding, "/spec/clusters").iter().map(|target| text(target, "/name").to_owned()).collect()
}
