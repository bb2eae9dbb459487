//! The tables of an answer: the queues above a job, the jobs ahead of it, and the clusters that it may go to or is in.

use std::fmt::Write as _;

use caldera_controller::explain::{ClusterView, Explanation, InLine, Placed};
use caldera_core::reason::Reason;

use crate::output::{
    self, REAL_CAPABILITY, REAL_CAPABILITY_LEGEND, USED_LATELY, format_columns, format_duration, format_with_history,
};

pub(super) fn append_queue_path(text: &mut String, job: &Explanation, wide: bool) {
    let asked =
        |name: &str| job.asks.as_ref().map(|asks| asks.minimum.get(name).plain().to_string()).unwrap_or_default();
    let some =
        |amount: Option<caldera_core::quantity::Quantity>| amount.map(|a| a.plain().to_string()).unwrap_or_default();
    let mut rows = Vec::new();
    for (depth, step) in job.path.iter().enumerate() {
        let name = format!("{}{}", "  ".repeat(depth), step.queue);
        let mut first = true;
        for amounts in &step.amounts {
            // The resource `pods` is shown only where a queue limits it.
            if !wide && amounts.resource.as_str() == "pods" && amounts.capability.is_none() {
                continue;
            }
            let once = |text: &str| if first { text.to_owned() } else { " ".to_owned() };
            rows.push([
                once(&name),
                once(describe_state(step.state)),
                amounts.resource.to_string(),
                asked(amounts.resource.as_str()),
                output::format_seen(amounts.used, amounts.is_use_seen),
                some(amounts.used_lately.map(|lately| lately.amount)),
                output::format_seen(amounts.deserved, amounts.is_share_seen),
                output::format_seen(amounts.guarantee, amounts.is_share_seen),
                some(amounts.capability),
                some(amounts.real_capability),
            ]);
            first = false;
        }
        if first {
            let nothing = || String::new();
            let (asked, used, lately, deserved) = (nothing(), nothing(), nothing(), nothing());
            let state = describe_state(step.state).to_owned();
            rows.push([name, state, nothing(), asked, used, lately, deserved, nothing(), nothing(), nothing()]);
        }
    }
    text.push('\n');
    let header = [
        "QUEUE",
        "STATE",
        "RESOURCE",
        "NEEDED",
        "USED",
        USED_LATELY,
        "DESERVED",
        "GUARANTEE",
        "CAPABILITY",
        REAL_CAPABILITY,
    ];
    let if_usual: &[&str] = if wide { &[] } else { &["STATE", "GUARANTEE"] };
    let half_life = job.path.iter().flat_map(|step| &step.amounts).find_map(|of| Some(of.used_lately?.half_life));
    *text += &format_with_history(&header, rows, half_life, if_usual);
    let _ = write!(text, "\n{REAL_CAPABILITY_LEGEND}");
    for step in &job.path {
        for fault in &step.faults {
            let _ = writeln!(text, "queue {}: {fault}", step.queue);
        }
    }
}

fn describe_state(state: &'static str) -> &'static str {
    if state == "NotVisible" { "not visible with your rights" } else { state }
}

/// A table of pending jobs in their order.
pub fn format_pending_jobs(jobs: &[InLine], now: i64) -> String {
    let row = |job: &InLine| {
        let age =
            parse_epoch_seconds(job.created.as_deref()).map(|created| format_duration(now.saturating_sub(created)));
        [
            match job.position {
                Some(position) => position.to_string(),
                None if Reason::is_never_token(&job.token) => "never".to_owned(),
                None => String::new(),
            },
            job.workload.to_string(),
            if job.priority_gained == 0 {
                job.priority.to_string()
            } else {
                format!("{}+{}", job.priority, job.priority_gained)
            },
            age.unwrap_or_default(),
            job.minimum.to_string(),
            job.token.clone(),
        ]
    };
    format_columns(["POSITION", "JOB", "PRIORITY", "AGE", "NEEDS", "REASON"], jobs.iter().map(row))
}

pub(super) fn write_clusters(text: &mut String, job: &Explanation, wide: bool) {
    let row = |cluster: &ClusterView| {
        let published = || cluster.published.as_ref().map(|at| format!("as published at {at}"));
        [
            cluster.name.to_string(),
            format!("{} of {}", cluster.fit, cluster.needs),
            describe_free(job, cluster, wide),
            cluster.refusal.clone().or_else(|| cluster.doubt.clone()).or_else(published).unwrap_or_default(),
        ]
    };
    let shown = if wide { job.clusters.len() } else { job.clusters.len().min(5) };
    text.push('\n');
    let rows = job.clusters[..shown].iter().map(row).collect();
    *text += &format_with_history(&["CLUSTER", "PODS THAT FIT", "FREE", "BUT"], rows, None, &["BUT"]);
    if shown < job.clusters.len() {
        let _ = writeln!(text, "... and {} more (-o wide)", job.clusters.len() - shown);
    }
}

/// What is free, and what it needs of which nothing is.
fn describe_free(job: &Explanation, cluster: &ClusterView, wide: bool) -> String {
    let free = cluster.free.iter().map(|(name, amount)| (name, amount.plain().to_string()));
    let needed = job.asks.iter().flat_map(|asks| asks.minimum.iter()).map(|(name, _)| name);
    let lacking = needed.filter(|name| cluster.free.get(name.as_str()).is_zero()).map(|name| (name, "0".to_owned()));
    let all = free.chain(lacking).filter(|(name, _)| wide || name.as_str() != "pods");
    all.map(|(name, amount)| format!("{name} {amount}")).collect::<Vec<_>>().join(", ")
}

pub(super) fn build_placed_row(placed: &Placed) -> [String; 4] {
    let tasks: Vec<String> = placed.tasks.iter().map(|(task, pods)| format!("{task}:{pods}")).collect();
    let pods = if placed.replicas > 0 { placed.replicas.to_string() } else { String::new() };
    let on_nodes = placed.on_nodes.map_or_else(|| "?".to_owned(), |pods| pods.to_string());
    [placed.cluster.to_string(), pods, on_nodes, tasks.join(", ")]
}

pub(super) fn parse_epoch_seconds(time: Option<&str>) -> Option<i64> {
    time?.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second)
}
