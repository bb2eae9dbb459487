//! `caldera cluster maintenance`: keeps a member, or some of its nodes, for nobody or for some queues for a time, or
//! takes that back.
//!
//! Rule: `scontrol create reservation flags=maint` and `scontrol delete reservation` of Slurm. A window is put beside
//! those that the Cluster's annotation has and that are not over. What can not be read is not written over.

use std::process::ExitCode;

use anyhow::{Context, ensure};
use caldera_core::{
    gang::QueueName,
    maintenance::{DEFAULT_NOTICE, Maintenance, MaintenanceWindow},
    time::EpochSeconds,
};
use caldera_crds::names::caldera::MAINTENANCE;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    args::MaintenanceArgs,
    change::{
        build_annotation_step, build_tested_patch, build_write, print_outcome, to_exit_code, write_retrying_conflicts,
    },
    objects::{self, annotation_of, annotation_path, get_cluster},
};

/// Windows of a Cluster that are not over, as people read them; or that they can not be read.
pub fn list_windows(cluster: &Value, now: Timestamp) -> Vec<String> {
    match annotation_of(cluster, MAINTENANCE).map(str::parse::<Maintenance>) {
        None => Vec::new(),
        Some(Ok(all)) => all.list_windows_ending_after(to_second(now)).map(ToString::to_string).collect(),
        Some(Err(why)) => vec![format!("can not be read: {why}")],
    }
}

/// Adds a window, or takes all away.
pub async fn change_windows(args: MaintenanceArgs) -> anyhow::Result<ExitCode> {
    let client = super::connect(args.kubeconfig.as_deref()).await?;
    let now = Timestamp::now();
    let outcome = async {
        let window = read_window(&args, now)?;
        let resource = objects::cluster_resource();
        let is_changed = write_retrying_conflicts(&client, async || {
            let cluster = get_cluster(&client, &args.name).await?;
            let step = build_step(&cluster, window.as_ref(), now)?;
            Ok(step.map(|step| build_write(&resource, &cluster, build_tested_patch(&cluster, [step]))))
        });
        Ok(match (is_changed.await?, window) {
            (_, Some(window)) => format!("is under maintenance {window}"),
            (true, None) => "has no maintenance window any more".to_owned(),
            (false, None) => "has no maintenance window".to_owned(),
        })
    };
    Ok(to_exit_code(print_outcome(&format!("cluster {}", args.name), outcome.await)))
}

/// The window that is asked for; `None` to have none.
fn read_window(args: &MaintenanceArgs, now: Timestamp) -> anyhow::Result<Option<MaintenanceWindow>> {
    let Some(seconds) = args.duration else { return Ok(None) };
    let start = to_second(args.start.unwrap_or(now));
    let end = start.saturating_add(seconds);
    ensure!(end > to_second(now), "that is over already");
    let notice = args.notice.unwrap_or(DEFAULT_NOTICE);
    let reason = args.reason.clone().unwrap_or_default();
    let queues = args.queues.iter().map(|queue| QueueName::from(queue.as_str())).collect();
    let node_groups = args.node_groups.clone();
    Ok(Some(MaintenanceWindow { start, end, notice, reason, node_groups, queues }))
}

/// What is changed of the annotation, if anything is.
fn build_step(cluster: &Value, window: Option<&MaintenanceWindow>, now: Timestamp) -> anyhow::Result<Option<Value>> {
    let said = annotation_of(cluster, MAINTENANCE);
    let Some(window) = window else {
        return Ok(said.map(|_| json!({"op": "remove", "path": annotation_path(MAINTENANCE)})));
    };
    let there: Maintenance = said
        .map_or_else(|| Ok(Maintenance::default()), str::parse)
        .context("its windows can not be read, and --cancel takes them away")?;
    let mut all: Vec<MaintenanceWindow> = there.list_windows_ending_after(to_second(now)).cloned().collect();
    all.push(window.clone());
    let text = Maintenance::new(all).to_string();
    let _: Maintenance = text.parse()?;
    Ok(Some(build_annotation_step(cluster, MAINTENANCE, &text)))
}

fn to_second(time: Timestamp) -> EpochSeconds {
    EpochSeconds::from(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OVER: &str = r#"{"start":"2026-11-26T00:00:00Z","end":"2026-11-26T01:00:00Z"}"#;
    const LATER: &str = r#"{"start":"2026-11-28T00:00:00Z","end":"2026-11-28T01:00:00Z","reason":"disks"}"#;

    fn now() -> Timestamp {
        "2026-11-26T07:00:00Z".parse().unwrap()
    }

    fn cluster(annotations: Value) -> Value {
        json!({"metadata": {"name": "m1", "resourceVersion": "7", "annotations": annotations}})
    }

    fn asked(start: Option<&str>, seconds: i64) -> anyhow::Result<Option<MaintenanceWindow>> {
        let start = start.map(|start| start.parse().unwrap());
        let (reason, notice) = (Some("kernels".to_owned()), Some(7_200));
        let (name, duration) = ("m1".to_owned(), Some(seconds));
        let (node_groups, queues) = (Vec::new(), Vec::new());
        let args = MaintenanceArgs {
            name,
            start,
            duration,
            reason,
            notice,
            node_groups,
            queues,
            cancel: false,
            kubeconfig: None,
        };
        read_window(&args, now())
    }

    #[test]
    fn a_window_is_added_to_those_that_are_not_over() {
        let window = asked(Some("2026-11-26T08:00:00Z"), 3_600).unwrap();
        let new = r#"{"start":"2026-11-26T08:00:00Z","end":"2026-11-26T09:00:00Z","reason":"kernels","notice":"2h"}"#;
        let step = build_step(&cluster(json!({MAINTENANCE: format!("[{OVER},{LATER}]")})), window.as_ref(), now());
        let path = "/metadata/annotations/caldera.dev~1maintenance";
        assert_eq!(step.unwrap(), Some(json!({"op": "add", "path": path, "value": format!("[{new},{LATER}]")})));
        let step = build_step(&cluster(Value::Null), window.as_ref(), now()).unwrap().unwrap();
        assert_eq!(step["value"], json!({MAINTENANCE: format!("[{new}]")}));
        let from_now = asked(None, 60).unwrap().unwrap();
        assert_eq!(from_now.to_string(), "from 2026-11-26T07:00:00Z to 2026-11-26T07:01:00Z (kernels)");
        assert!(asked(Some("2026-11-26T06:00:00Z"), 3_600).is_err(), "it is over");
    }

    #[test]
    fn a_window_may_be_of_some_nodes_and_for_some_queues() {
        let args = MaintenanceArgs {
            name: "m1".into(),
            start: None,
            duration: Some(60),
            reason: None,
            notice: None,
            node_groups: vec!["a100".into()],
            queues: vec!["ops".into()],
            cancel: false,
            kubeconfig: None,
        };
        let window = read_window(&args, now()).unwrap();
        let step = build_step(&cluster(Value::Null), window.as_ref(), now()).unwrap().unwrap();
        let start = r#"{"start":"2026-11-26T07:00:00Z","end":"2026-11-26T07:01:00Z""#;
        let new = format!(r#"[{start},"nodeGroups":["a100"],"queues":["ops"]}}]"#);
        assert_eq!(step["value"], json!({MAINTENANCE: new}));
        let unnamed = MaintenanceArgs { node_groups: vec![String::new()], ..args };
        let window = read_window(&unnamed, now()).unwrap();
        assert!(build_step(&cluster(Value::Null), window.as_ref(), now()).is_err());
    }

    #[test]
    fn what_can_not_be_read_is_taken_away_and_not_written_over() {
        let wrong = cluster(json!({MAINTENANCE: "tomorrow"}));
        let window = asked(None, 60).unwrap();
        let error = build_step(&wrong, window.as_ref(), now()).unwrap_err();
        assert!(format!("{error:#}").contains("--cancel"), "{error:#}");
        let remove = json!({"op": "remove", "path": "/metadata/annotations/caldera.dev~1maintenance"});
        assert_eq!(build_step(&wrong, None, now()).unwrap(), Some(remove));
        assert_eq!(build_step(&cluster(Value::Null), None, now()).unwrap(), None);
        let full = vec![LATER; 16].join(",");
        let error = build_step(&cluster(json!({MAINTENANCE: format!("[{full}]")})), window.as_ref(), now());
        assert!(error.unwrap_err().to_string().contains("more than 16 windows"));
    }

    #[test]
    fn people_read_the_windows_that_are_not_over() {
        let listed = |text: String| list_windows(&cluster(json!({MAINTENANCE: text})), now());
        assert_eq!(listed(format!("[{LATER},{OVER}]")), ["from 2026-11-28T00:00:00Z to 2026-11-28T01:00:00Z (disks)"]);
        assert!(listed("tomorrow".to_owned())[0].starts_with("can not be read: "));
    }
}
