//! `caldera usage`: what was used, by month, queue, namespace and user, as the controller accounted it.
//!
//! Rule: hours of what queues were charged, as Slurm's `sreport` tells them; memory in GiB-hours. The controller writes
//! its accounts every five minutes: what runs now is in them up to then.

use std::{collections::BTreeMap, fmt::Write as _, iter, process::ExitCode};

use anyhow::{Context as _, bail};
use caldera_controller::{
    settings::NAMESPACES,
    usage::{self, Account, Month, Usage, UsageHistory},
};
use caldera_core::resources::ResourceName;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde::Serialize;
use serde_json::json;

use crate::{
    args::{UsageArgs, UsageBy},
    components,
    json_path::sort_rows,
    output::{self, format_table, quote_csv},
};

/// The JSON and YAML form.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct UsageReport {
    /// Up to when it is accounted.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    usage: Vec<UsageRow>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct UsageRow {
    /// As `2026-11`.
    month: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    admissions: u64,
    /// Unit-hours by resource, with three decimals; bytes are GiB.
    hours: BTreeMap<ResourceName, String>,
}

impl UsageRow {
    /// What it is of, but for the month: `queue/namespace`.
    fn name(&self) -> String {
        let of = [&self.queue, &self.namespace, &self.user];
        of.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join("/")
    }
}

pub async fn run_usage(args: UsageArgs) -> anyhow::Result<ExitCode> {
    let client = components::connect_for_command(args.records.kubeconfig.as_deref(), "usage").await?;
    let history = read_history(&client, args.records.lease_namespace.as_deref()).await?;
    let mut report = make_report(&history, args.month, &args.by);
    args.records.sort_by.iter().try_for_each(|by| sort_rows(&mut report.usage, by))?;
    let names: String = report.usage.iter().map(|row| row.name() + "\n").collect();
    let csv = || format_csv(&report, &args.by);
    output::print_records(&args.output, &report, &names, csv, |_| format_report(&report, &args.by))?;
    Ok(ExitCode::SUCCESS)
}

async fn read_history(client: &Client, namespace: Option<&str>) -> anyhow::Result<UsageHistory> {
    let namespaces: Vec<&str> = namespace.map_or_else(|| NAMESPACES.to_vec(), |one| vec![one]);
    for namespace in &namespaces {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        let found = maps.get_opt(usage::NAME).await;
        let Some(map) = found.with_context(|| format!("failed to read ConfigMap {namespace}/{}", usage::NAME))? else {
            continue;
        };
        return UsageHistory::read_config_map(&json!(map))
            .map_err(|wrong| anyhow::anyhow!("ConfigMap {namespace}/{}: {wrong}", usage::NAME));
    }
    bail!(
        "there is no ConfigMap {} in {}: the controller writes it five minutes after it began, once a job was admitted",
        usage::NAME,
        namespaces.join(" or ")
    )
}

/// One row for each month and what it is told by.
fn make_report(history: &UsageHistory, month: Option<Month>, by: &[UsageBy]) -> UsageReport {
    let mut sums: BTreeMap<(Month, [Option<String>; 3]), Usage> = BTreeMap::new();
    for (of, rows) in history.months.iter().filter(|(of, _)| month.is_none_or(|month| month == **of)) {
        for (Account { queue, namespace, user }, usage) in rows {
            let queue = by.contains(&UsageBy::Queue).then(|| queue.to_string());
            let namespace = by.contains(&UsageBy::Namespace).then(|| namespace.clone());
            let user = by.contains(&UsageBy::User).then(|| user.clone());
            sums.entry((*of, [queue, namespace, user])).or_default().add(usage);
        }
    }
    let usage = sums.into_iter().map(|((month, [queue, namespace, user]), usage)| UsageRow {
        month: month.to_string(),
        queue,
        namespace,
        user,
        admissions: usage.admissions,
        hours: usage
            .seconds
            .iter()
            .map(|(name, amount)| (name.clone(), format_hours(name, amount.as_nano())))
            .collect(),
    });
    UsageReport { until: history.until, usage: usage.collect() }
}

/// Thousandths of an hour, rounded to the nearest, of so many billionths of a unit-second.
fn format_hours(resource: &ResourceName, nano_seconds: i128) -> String {
    let unit = if resource.counts_bytes() { 1 << 30 } else { 1 };
    let thousandth = 3_600_000_i128 * 1000 * unit;
    let hours = nano_seconds.saturating_add(thousandth / 2) / thousandth;
    format!("{}.{:03}", hours / 1000, hours % 1000)
}

fn list_resources(report: &UsageReport) -> Vec<&ResourceName> {
    let mut all: Vec<_> = report.usage.iter().flat_map(|row| row.hours.keys()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The cells of a row before its amounts, or their names.
fn list_cells<T>(by: &[UsageBy], month: T, of: [Option<T>; 3], admissions: T) -> Vec<T> {
    let all = [UsageBy::Queue, UsageBy::Namespace, UsageBy::User];
    let asked = all.into_iter().zip(of).filter_map(|(by_it, cell)| cell.filter(|_| by.contains(&by_it)));
    iter::once(month).chain(asked).chain([admissions]).collect()
}

fn format_report(report: &UsageReport, by: &[UsageBy]) -> String {
    if report.usage.is_empty() {
        return "nothing was used\n".to_owned();
    }
    let resources = list_resources(report);
    let titles: Vec<String> = resources
        .iter()
        .map(|name| match name.counts_bytes() {
            true => format!("{} GIB-HOURS", name.as_str().to_uppercase()),
            false => format!("{} HOURS", name.as_str().to_uppercase()),
        })
        .collect();
    let mut header = list_cells(by, "MONTH", [Some("QUEUE"), Some("NAMESPACE"), Some("USER")], "ADMISSIONS");
    header.extend(titles.iter().map(String::as_str));
    let rows = report.usage.iter().map(|row| {
        let admissions = row.admissions.to_string();
        let of = [row.queue.clone(), row.namespace.clone(), row.user.clone()];
        let mut cells = list_cells(by, row.month.clone(), of, admissions);
        cells.extend(resources.iter().map(|name| row.hours.get(*name).cloned().unwrap_or_default()));
        cells
    });
    let mut text = format_table(&header, rows);
    if let Some(until) = report.until {
        let _ = writeln!(text, "\nAccounted up to {until:.0}.");
    }
    text
}

/// A line for each resource of each row. What anybody could have named is quoted.
fn format_csv(report: &UsageReport, by: &[UsageBy]) -> String {
    let mut text = list_cells(by, "month", [Some("queue"), Some("namespace"), Some("user")], "admissions").join(",");
    text += ",resource,hours\n";
    for row in &report.usage {
        let quoted = |name: &Option<String>| name.as_deref().map(quote_csv);
        let of = [&row.queue, &row.namespace, &row.user].map(quoted);
        let start = list_cells(by, row.month.clone(), of, row.admissions.to_string()).join(",");
        for (name, hours) in &row.hours {
            let _ = writeln!(text, "{start},{},{hours}", quote_csv(name.as_str()));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json_path::JsonPath;

    fn history() -> UsageHistory {
        let page = |rows: serde_json::Value| json!({"until": "2026-11-23T20:00:00Z", "rows": rows}).to_string();
        let row = |queue: &str, namespace: &str, cpu: &str, memory: &str| {
            let seconds = json!({"cpu": cpu, "memory": memory});
            json!({"queue": queue, "namespace": namespace, "admissions": 2, "seconds": seconds})
        };
        let data = json!({
            "2026-10.json": page(json!([row("q", "a", "3600", "3600Gi")])),
            "2026-11.json": page(json!([
                row("q", "a", "1800", "0"), row("q", "b", "36", "0"), row("r", "a", "7200", "0"),
            ])),
        });
        UsageHistory::read_config_map(&json!({"data": data})).unwrap()
    }

    #[test]
    fn hours_are_added_up_by_what_is_asked_for() {
        let report = make_report(&history(), Some("2026-11".parse().unwrap()), &[UsageBy::Queue]);
        let text = format_report(&report, &[UsageBy::Queue]);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["MONTH", "QUEUE", "ADMISSIONS", "CPU", "HOURS"]);
        assert_eq!(lines[1], ["2026-11", "q", "4", "0.510"]);
        assert_eq!(lines[2], ["2026-11", "r", "2", "2.000"]);
        assert!(text.ends_with("\nAccounted up to 2026-11-23T20:00:00Z.\n"), "{text}");
    }

    #[test]
    fn rows_are_sorted_by_a_field_by_size_and_named_by_what_they_are_of() {
        let by = [UsageBy::Queue, UsageBy::Namespace];
        let mut report = make_report(&history(), Some("2026-11".parse().unwrap()), &by);
        sort_rows(&mut report.usage, &JsonPath::parse("hours.cpu").unwrap()).unwrap();
        let names: Vec<String> = report.usage.iter().map(UsageRow::name).collect();
        assert_eq!(names, ["q/b", "q/a", "r/a"]);
    }

    #[test]
    fn csv_has_a_line_for_each_resource_and_quotes_names() {
        let by = [UsageBy::Queue, UsageBy::Namespace];
        let report = make_report(&history(), Some("2026-10".parse().unwrap()), &by);
        assert_eq!(
            format_csv(&report, &by),
            "month,queue,namespace,admissions,resource,hours\n\
             2026-10,\"q\",\"a\",2,\"cpu\",1.000\n\
             2026-10,\"q\",\"a\",2,\"memory\",1.000\n"
        );
    }

    #[test]
    fn users_are_reported_where_they_are_asked_for_and_blank_where_nobody_knows_them() {
        let row = |user: &str| json!({"queue": "q", "namespace": "a", "user": user, "admissions": 1, "seconds": {"cpu": "36"}});
        let page = json!({"until": "2026-11-23T20:00:00Z", "rows": [row("ada"), row(""), row("bob, the builder")]});
        let history = UsageHistory::read_config_map(&json!({"data": {"2026-11.json": page.to_string()}})).unwrap();
        let by = [UsageBy::User];
        assert_eq!(
            format_csv(&make_report(&history, None, &by), &by),
            "month,user,admissions,resource,hours\n\
             2026-11,\"\",1,\"cpu\",0.010\n\
             2026-11,\"ada\",1,\"cpu\",0.010\n\
             2026-11,\"bob, the builder\",1,\"cpu\",0.010\n"
        );
        let queue = format_csv(&make_report(&history, None, &[UsageBy::Queue]), &[UsageBy::Queue]);
        assert_eq!(queue.lines().nth(1), Some("2026-11,\"q\",3,\"cpu\",0.030"));
    }

    #[test]
    fn who_used_nothing_is_told_so() {
        let none = make_report(&UsageHistory::default(), None, &[UsageBy::Queue]);
        assert_eq!(format_report(&none, &[UsageBy::Queue]), "nothing was used\n");
    }
}
