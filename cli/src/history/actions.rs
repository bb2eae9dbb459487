//! `caldera history --actions`: who held, released, moved, resized, suspended and evicted jobs, paused the fleet,
//! opened and closed queues, cordoned members, kept amounts of the fleet, and changed queues and settings.
//!
//! Rule: as the webhook stamped it and the controller recorded it, in the order in which it was done. The controller
//! writes what it recorded within 15 seconds.

use std::process::ExitCode;

use caldera_controller::history::{ADMIN_ACTIONS, JOB_ACTIONS, RecordedAction};
use jiff::Timestamp;
use kube::Client;
use serde::Serialize;

use super::{is_or_any, name_job, read_history, select_in_order};
use crate::{
    args::HistoryArgs,
    json_path::sort_rows,
    output::{self, format_table, quote_csv},
};

/// The JSON and YAML form.
#[derive(Debug, Serialize)]
struct ActionsReport<'a> {
    actions: Vec<&'a RecordedAction>,
}

pub(super) async fn print_actions(client: &Client, args: &HistoryArgs) -> anyhow::Result<ExitCode> {
    let mut all = Vec::new();
    for pages in [ADMIN_ACTIONS, JOB_ACTIONS] {
        let read = read_history::<RecordedAction>(client, args.records.lease_namespace.as_deref(), pages).await?;
        all.extend(read.list_lines());
    }
    let mut report = ActionsReport { actions: select_actions(&all, args, Timestamp::now()) };
    args.records.sort_by.iter().try_for_each(|by| sort_rows(&mut report.actions, by))?;
    let names: String =
        report.actions.iter().map(|action| format!("{}\n", name_job(&action.kind, &action.name))).collect();
    let csv = || format_csv(&report.actions);
    output::print_records(&args.output, &report, &names, csv, |_| format_actions(&report.actions))?;
    Ok(ExitCode::SUCCESS)
}

/// Those that are asked for, in the order in which they were done.
fn select_actions<'a>(all: &'a [RecordedAction], args: &HistoryArgs, now: Timestamp) -> Vec<&'a RecordedAction> {
    let is_asked_for = |action: &RecordedAction| {
        is_or_any(args.namespace.as_ref(), &action.namespace)
            && (args.queue.is_none() || action.kind == "Queue")
            && is_or_any(args.queue.as_ref(), &action.name)
            && is_or_any(args.user.as_ref(), &action.by)
    };
    select_in_order(
        all,
        |action| action.at,
        args.since.map(|since| now.as_second().saturating_sub(since)),
        is_asked_for,
    )
}

fn format_actions(actions: &[&RecordedAction]) -> String {
    if actions.is_empty() {
        return "no such action is recorded\n".to_owned();
    }
    let rows = actions.iter().map(|action| {
        let at = format!("{:.0}", action.at);
        vec![
            at,
            action.by.clone(),
            action.kind.clone(),
            action.namespace.clone(),
            action.name.clone(),
            action.did.clone(),
        ]
    });
    output::escape_controls(&format_table(&["AT", "BY", "KIND", "NAMESPACE", "NAME", "ACTION"], rows))
}

fn format_csv(actions: &[&RecordedAction]) -> String {
    let mut text = "at,by,kind,namespace,name,action\n".to_owned();
    for action in actions {
        let cells = [&action.by, &action.kind, &action.namespace, &action.name, &action.did].map(|it| quote_csv(it));
        text += &format!("{},{}\n", action.at, cells.join(","));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        args::RecordsArgs,
        output::{ListOutput, RecordsOutput},
    };

    fn action(at: &str, by: &str, did: &str, kind: &str, name: &str) -> RecordedAction {
        let namespace = if kind == "Job" { "ns" } else { "" };
        RecordedAction {
            at: at.parse().unwrap(),
            by: by.into(),
            did: did.into(),
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    fn args() -> HistoryArgs {
        HistoryArgs {
            queue: None,
            namespace: None,
            user: None,
            result: None,
            since: None,
            records: RecordsArgs::default(),
            actions: true,
            output: RecordsOutput::List(ListOutput::Table),
        }
    }

    #[test]
    fn actions_are_told_in_their_order_by_who_did_them_and_to_what() {
        let all = [
            action("2026-11-24T12:00:00Z", "ada", "held", "Job", "train"),
            action("2026-11-24T10:00:00Z", "root", "CloseQueue of Queue q", "Queue", "q"),
        ];
        let now = "2026-11-24T12:30:00Z".parse().unwrap();
        let names = |args: &HistoryArgs| -> Vec<String> {
            select_actions(&all, args, now).iter().map(|action| action.name.clone()).collect()
        };
        assert_eq!(names(&args()), ["q", "train"]);
        assert_eq!(names(&HistoryArgs { user: Some("ada".into()), ..args() }), ["train"]);
        assert_eq!(names(&HistoryArgs { queue: Some("q".into()), ..args() }), ["q"]);
        assert_eq!(names(&HistoryArgs { namespace: Some("ns".into()), ..args() }), ["train"]);
        assert_eq!(names(&HistoryArgs { since: Some(3600), ..args() }), ["train"]);
        let text = format_actions(&select_actions(&all, &args(), now));
        let cells: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(cells, ["2026-11-24T10:00:00Z", "root", "Queue", "-", "q", "CloseQueue", "of", "Queue", "q"]);
        let csv = format_csv(&[&all[0]]);
        assert!(csv.ends_with("\n2026-11-24T12:00:00Z,\"ada\",\"Job\",\"ns\",\"train\",\"held\"\n"), "{csv}");
    }
}
