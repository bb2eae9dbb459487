//! `caldera events`: what was said of jobs, queues and bindings, the oldest first.
//!
//! Rule: events of the caller's namespace, all of them, as `kubectl events` lists them; those on ResourceBindings and
//! Works are told by the object that they are on.

use std::{collections::BTreeSet, process::ExitCode};

use caldera_crds::workload::WorkloadKind;
use jiff::Timestamp;
use kube::Client;
use serde::Serialize;
use serde_json::Value;

use crate::{
    args::{EventsArgs, JobName},
    components,
    json_path::sort_rows,
    objects::{self, list_objects, read_text_at},
    output::{self, format_duration, format_table},
    repeat::{self, PrintedPage},
    view::JobKey,
};

/// The JSON and YAML form.
#[derive(Debug, Serialize)]
struct Events {
    events: Vec<EventRow>,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventRow {
    namespace: String,
    /// When it last happened.
    time: String,
    age_seconds: i64,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    kind: String,
    reason: String,
    /// `kind/name`.
    object: String,
    /// Who said it.
    from: String,
    /// How often.
    count: i64,
    message: String,
}

pub async fn run_events(args: EventsArgs) -> anyhow::Result<ExitCode> {
    let (client, own) = components::connect_scope(&args.scope, "events").await?;
    repeat::print_page(args.watch, async || read_page(&client, &own, &args).await).await
}

async fn read_page(client: &Client, own: &str, args: &EventsArgs) -> anyhow::Result<PrintedPage> {
    let namespace = (!args.all_namespaces).then_some(own);
    let mut rows = list_rows(client, namespace).await?.map_err(anyhow::Error::msg)?;
    // Who watches waits for what is to come.
    if let (false, true, Some(namespace)) = (args.watch, rows.is_empty(), namespace) {
        objects::ensure_namespace(client, namespace).await?;
    }
    // What is said of one that is gone is still told, and who watches waits for one to come.
    if let (false, Some(job), Some(namespace)) = (args.watch, &args.job, namespace)
        && !rows.iter().any(|row| row.is_on(job))
    {
        objects::ensure_job(client, namespace, job.kind, &job.name).await?;
    }
    let selected = match &args.selector {
        Some(labels) => Some(list_selected(client, namespace, labels).await?),
        None => None,
    };
    rows.retain(|row| {
        args.since.is_none_or(|since| row.age_seconds <= since)
            && (!args.warnings || row.kind == "Warning")
            && args.job.as_ref().is_none_or(|job| row.is_on(job))
            && selected.as_ref().is_none_or(|all| all.contains(&(row.namespace.clone(), row.object.clone())))
    });
    args.sort_by.iter().try_for_each(|by| sort_rows(&mut rows, by))?;
    let names: String = rows.iter().map(|row| format!("{}\n", row.object)).collect();
    let events = Events { events: rows };
    let text = output::format_list(&args.output, &events, "TYPE", &names, |wide| {
        if events.events.is_empty() {
            return "no events\n".to_owned();
        }
        format_rows(&events.events, args.all_namespaces, wide)
    })?;
    PrintedPage::new(text, &events)
}

/// Workloads with these labels, by namespace and as events name them.
async fn list_selected(
    client: &Client,
    namespace: Option<&str>,
    labels: &str,
) -> anyhow::Result<BTreeSet<(String, String)>> {
    let mut selected = BTreeSet::new();
    for kind in WorkloadKind::list_all() {
        let listed = list_objects(client, &kind.api_resource(), namespace, Some(labels)).await?;
        match listed {
            // Who may not list what a host may do without has none of it.
            Err(_) if kind.is_optional() => {}
            Err(why) => anyhow::bail!(why),
            Ok(all) => selected.extend(all.iter().map(|object| {
                let name = format!("{}/{}", kind.kind().to_lowercase(), read_text_at(object, "/metadata/name"));
                (read_text_at(object, "/metadata/namespace").to_owned(), name)
            })),
        }
    }
    Ok(selected)
}

impl EventRow {
    fn is_on(&self, job: &JobName) -> bool {
        self.is_on_object(job.kind, &job.name)
    }

    fn is_on_object(&self, kind: WorkloadKind, name: &str) -> bool {
        self.object.split_once('/') == Some((&kind.kind().to_lowercase(), name))
    }

    /// Whether it is on this job.
    pub fn is_on_job(&self, key: &JobKey) -> bool {
        self.namespace == key.namespace && self.is_on_object(key.kind, &key.name)
    }

    /// When it last happened.
    pub fn at(&self) -> Option<Timestamp> {
        self.time.parse().ok()
    }

    /// What, in one word.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// What was said, and by whom.
    pub fn words(&self) -> String {
        format!("{} ({})", self.message, self.from)
    }
}

/// Events of a namespace or of all, the oldest first; or why they can not be seen.
pub(crate) async fn list_rows(
    client: &Client,
    namespace: Option<&str>,
) -> anyhow::Result<objects::Visible<Vec<EventRow>>> {
    let events = list_objects(client, &objects::event_resource(), namespace, None).await?;
    Ok(events.map(|events| make_rows(&events, Timestamp::now())))
}

/// Events on a workload, as the end of its description.
pub(crate) async fn describe_events(client: &Client, namespace: &str, job: &JobName) -> anyhow::Result<String> {
    let mut rows = match list_rows(client, Some(namespace)).await? {
        Ok(rows) => rows,
        Err(why) => return Ok(format!("\nNot seen:\n  events: {why}\n")),
    };
    rows.retain(|row| row.is_on(job));
    if rows.is_empty() {
        return Ok(String::new());
    }
    let cells =
        rows.into_iter().map(|row| vec![format_duration(row.age_seconds), row.kind, row.reason, row.from, row.message]);
    Ok(format!("\nEvents:\n{}", format_table(&["AGE", "TYPE", "REASON", "FROM", "MESSAGE"], cells)))
}

/// Events as rows, the oldest first.
pub fn make_rows(events: &[Value], now: Timestamp) -> Vec<EventRow> {
    let first = |event: &Value, fields: &[&str]| {
        fields.iter().map(|field| read_text_at(event, field)).find(|it| !it.is_empty()).unwrap_or_default().to_owned()
    };
    let mut timed: Vec<(Timestamp, EventRow)> = events
        .iter()
        .map(|event| {
            let time = first(
                event,
                &["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"],
            );
            let then = time.parse::<Timestamp>().unwrap_or(now);
            let count = event.pointer("/series/count").or(event.get("count")).and_then(Value::as_i64).unwrap_or(1);
            let row = EventRow {
                namespace: read_text_at(event, "/metadata/namespace").to_owned(),
                age_seconds: now.as_second() - then.as_second(),
                time,
                kind: read_text_at(event, "/type").to_owned(),
                reason: read_text_at(event, "/reason").to_owned(),
                object: format!(
                    "{}/{}",
                    read_text_at(event, "/involvedObject/kind").to_lowercase(),
                    read_text_at(event, "/involvedObject/name")
                ),
                from: first(event, &["/source/component", "/reportingComponent"]),
                count,
                message: read_text_at(event, "/message").to_owned(),
            };
            (then, row)
        })
        .collect();
    timed.sort_by(|(a, x), (b, y)| a.cmp(b).then_with(|| x.object.cmp(&y.object)));
    timed.into_iter().map(|(_, row)| row).collect()
}

fn format_rows(rows: &[EventRow], all_namespaces: bool, wide: bool) -> String {
    let mut header = vec!["AGE", "TYPE", "REASON", "OBJECT", "MESSAGE"];
    if all_namespaces {
        header.insert(0, "NAMESPACE");
    }
    if wide {
        header.extend(["FROM", "COUNT", "TIME"]);
    }
    let cells = rows.iter().cloned().map(|row| {
        let mut cells = vec![format_duration(row.age_seconds), row.kind, row.reason, row.object, row.message];
        if all_namespaces {
            cells.insert(0, row.namespace);
        }
        if wide {
            cells.extend([row.from, row.count.to_string(), row.time]);
        }
        cells
    });
    format_table(&header, cells)
}

#[cfg(test)]
mod tests {
    use axum::{Json, Router, http::StatusCode, routing::get};
    use serde_json::json;

    use super::*;
    use crate::{args::ScopeArgs, output::ListOutput};

    #[test]
    fn events_are_in_the_order_of_what_happened_last() {
        let event = |name: &str, field: &str, at: &str| {
            json!({
                "involvedObject": {"kind": "Job", "name": name}, "type": "Normal", "reason": "R", "count": 2,
                "metadata": {"namespace": "ns", "creationTimestamp": "2026-01-01T00:00:00Z"}, field: at,
                "source": {"component": "c"},
            })
        };
        let late = event("late", "lastTimestamp", "2026-01-01T00:00:30Z");
        let early = event("early", "eventTime", "2026-01-01T00:00:10.000001Z");
        let rows = make_rows(&[late, early], "2026-01-01T00:01:00Z".parse().unwrap());
        let seen: Vec<(&str, i64)> = rows.iter().map(|row| (row.object.as_str(), row.age_seconds)).collect();
        assert_eq!(seen, [("job/early", 50), ("job/late", 30)]);
        assert!(rows[0].is_on(&JobName { kind: WorkloadKind::VolcanoJob, name: "early".to_owned() }));
        assert_eq!((rows[0].count, rows[0].from.as_str()), (2, "c"));
    }

    /// Without a job, of the last minute.
    fn ask(watch: bool) -> EventsArgs {
        EventsArgs {
            scope: ScopeArgs { namespace: None, kubeconfig: None },
            all_namespaces: false,
            selector: None,
            job: None,
            since: Some(60),
            warnings: false,
            sort_by: None,
            watch,
            output: ListOutput::Table,
        }
    }

    /// It had no events, and ended well.
    #[tokio::test]
    async fn a_namespace_that_there_is_not_is_a_fault_unless_one_waits_for_it() {
        let absent =
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404});
        let list = |items: Value| async move || Json(json!({"metadata": {}, "items": items}));
        let research = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "research"}});
        let one = research.clone();
        let api = Router::new()
            .route("/api/v1/namespaces/{name}/events", get(list(json!([]))))
            .route("/api/v1/namespaces/research", get(async move || Json(one)))
            .route("/api/v1/namespaces", get(list(json!([research]))))
            .fallback(async move || (StatusCode::NOT_FOUND, Json(absent)));
        let client = Client::new(api, "default");
        let refused = read_page(&client, "reserch", &ask(false)).await.unwrap_err().to_string();
        assert_eq!(refused, "there is no namespace reserch; there is research");
        for (namespace, watch) in [("reserch", true), ("research", false)] {
            read_page(&client, namespace, &ask(watch)).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_job_that_nothing_was_said_of_must_be_there_unless_one_waits_for_it() {
        let event = json!({
            "involvedObject": {"kind": "Job", "name": "gone"}, "type": "Normal", "reason": "R",
            "metadata": {"namespace": "ns", "name": "e"}, "lastTimestamp": "2026-01-01T00:00:00Z",
        });
        let absent =
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404});
        let page = json!({"metadata": {}, "items": [event]});
        let api = Router::new()
            .route("/api/v1/namespaces/ns/events", get(async move || Json(page)))
            .fallback(async move || (StatusCode::NOT_FOUND, Json(absent)));
        let client = Client::new(api, "default");
        let read = async |name: &str, watch: bool| {
            let job = Some(JobName { kind: WorkloadKind::VolcanoJob, name: name.to_owned() });
            read_page(&client, "ns", &EventsArgs { job, ..ask(watch) }).await
        };
        let none = PrintedPage::new("no events\n".to_owned(), &json!({"events": []})).unwrap();
        assert_eq!(read("gone", false).await.unwrap(), none, "its events are older");
        assert_eq!(read("nobody", true).await.unwrap(), none, "it may yet come");
        let reported = read("nobody", false).await.unwrap_err().to_string();
        assert_eq!(reported, "there is no Volcano Job nobody in namespace ns");
    }
}
