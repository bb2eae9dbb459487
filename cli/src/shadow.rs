//! `caldera shadow`: what a controller with `--shadow` would have done beside another scheduler, as it reported it.
//!
//! Rule: totals of all jobs since it began, and a line for each of the newest jobs: when and where the other scheduler
//! placed it, when and where Caldera would have, and why it would have waited. The report is written within half a
//! minute after a change.

use std::process::ExitCode;

use anyhow::Context as _;
use caldera_controller::{
    settings::NAMESPACES,
    shadow::{NAME, ShadowJob, ShadowReport, Totals, join_names},
};
use caldera_core::text::count_noun;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde::Serialize;
use serde_json::json;

use crate::{
    args::ShadowArgs,
    components,
    history::name_job,
    json_path::sort_rows,
    output::{self, format_duration, format_table},
};

/// The JSON and YAML form.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ShadowAnswer<'a> {
    since: Timestamp,
    written: Timestamp,
    totals: &'a Totals,
    jobs: Vec<ShadowLine<'a>>,
}

#[derive(Debug, Serialize)]
struct ShadowLine<'a> {
    verdict: &'static str,
    #[serde(flatten)]
    job: &'a ShadowJob,
}

pub async fn run_shadow(args: ShadowArgs) -> anyhow::Result<ExitCode> {
    let client = components::connect_for_command(args.records.kubeconfig.as_deref(), "shadow").await?;
    let report = read_report(&client, args.records.lease_namespace.as_deref()).await?;
    let mut answer = build_answer(&report, &args, Timestamp::now());
    args.records.sort_by.iter().try_for_each(|by| sort_rows(&mut answer.jobs, by))?;
    let names: String =
        answer.jobs.iter().map(|line| format!("{}\n", name_job(&line.job.kind, &line.job.name))).collect();
    let text = output::format_list(&args.output, &answer, "VERDICT", &names, |wide| format_answer(&answer, wide))?;
    output::try_write(&text);
    Ok(ExitCode::SUCCESS)
}

async fn read_report(client: &Client, namespace: Option<&str>) -> anyhow::Result<ShadowReport> {
    let namespaces = namespace.map_or_else(|| NAMESPACES.to_vec(), |one| vec![one]);
    for namespace in &namespaces {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        let found = maps.get_opt(NAME).await.with_context(|| format!("failed to read ConfigMap {namespace}/{NAME}"))?;
        if let Some(map) = found {
            return ShadowReport::read_config_map(&json!(map))
                .map_err(|wrong| anyhow::anyhow!("ConfigMap {namespace}/{NAME}: {wrong}"));
        }
    }
    anyhow::bail!(
        "there is no ConfigMap {NAME} in {}: `caldera controller --shadow` writes it seconds after it began",
        namespaces.join(" or ")
    )
}

/// What is asked for, the last submitted last.
fn build_answer<'a>(report: &'a ShadowReport, args: &ShadowArgs, now: Timestamp) -> ShadowAnswer<'a> {
    let since = args.since.map(|since| now.as_second().saturating_sub(since));
    let is_or_any = |asked: &Option<String>, is: &str| asked.as_ref().is_none_or(|asked| asked == is);
    let is_asked_for = |job: &&ShadowJob| {
        is_or_any(&args.namespace, &job.namespace)
            && is_or_any(&args.queue, job.queue.as_str())
            && (args.verdict.is_empty() || args.verdict.iter().any(|verdict| verdict == job.verdict().as_str()))
            && since.is_none_or(|since| job.submitted.as_second() >= since)
    };
    let jobs = report.jobs.iter().rev().filter(is_asked_for);
    ShadowAnswer {
        since: report.since,
        written: report.written,
        totals: &report.totals,
        jobs: jobs.map(|job| ShadowLine { verdict: job.verdict().as_str(), job }).collect(),
    }
}

fn format_answer(answer: &ShadowAnswer<'_>, wide: bool) -> String {
    let mut text = format_totals(answer);
    if answer.jobs.is_empty() {
        return text + "no such job\n";
    }
    let why = if wide { "WHY" } else { "REASON" };
    let header = ["NAMESPACE", "KIND", "NAME", "QUEUE", "VERDICT", "OTHER", "AFTER", "CALDERA", "AFTER", why];
    let rows = answer.jobs.iter().map(|ShadowLine { verdict, job }| {
        let after = |at: Option<Timestamp>| {
            at.map(|at| format_duration(at.as_second() - job.submitted.as_second())).unwrap_or_default()
        };
        vec![
            job.namespace.clone(),
            job.kind.clone(),
            job.name.clone(),
            job.queue.to_string(),
            (*verdict).to_owned(),
            join_names(&job.placed_in),
            after(job.placed),
            join_names(&job.clusters),
            after(job.admitted),
            describe_why(job, wide),
        ]
    });
    text += &format_table(&header, rows);
    text
}

fn describe_why(job: &ShadowJob, wide: bool) -> String {
    let said = if wide { &job.message } else { &job.reason };
    let evicts = match (job.evicts.len(), wide) {
        (0, _) => None,
        (count, false) => Some(format!("would evict {count}")),
        (_, true) => Some(format!("would evict {}", join_names(&job.evicts))),
    };
    said.iter().cloned().chain(evicts).collect::<Vec<_>>().join("; ")
}

/// What all jobs come to.
fn format_totals(answer: &ShadowAnswer<'_>) -> String {
    let ShadowAnswer { since, written, totals, .. } = answer;
    let both = totals.same + totals.elsewhere;
    let mean = |sum: u64| sum.checked_div(both).and_then(|mean| i64::try_from(mean).ok()).map(format_duration);
    let waits = match (mean(totals.waited), mean(totals.would_have_waited)) {
        (Some(waited), Some(would)) => format!(" They waited {waited} on average; Caldera: {would}."),
        _ => String::new(),
    };
    format!(
        "Since {since:.0}, as of {written:.0}: both schedulers placed {}, {} in other clusters.{waits}\n\
         Caldera would have had {} wait that the other placed. It would have evicted {}.\n\n",
        count_noun(both, "job"),
        totals.elsewhere,
        count_noun(totals.would_wait, "job"),
        count_noun(totals.evictions, "job")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::RecordsArgs;
    use crate::output::ListOutput;

    fn report() -> ShadowReport {
        let job = |name: &str, more: serde_json::Value| {
            let mut job = json!({
                "namespace": "ns", "kind": "Job", "name": name, "uid": name, "queue": "q",
                "submitted": "2026-11-24T10:00:00Z",
            });
            job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            job
        };
        let jobs = [
            job(
                "held",
                json!({
                    "placed": "2026-11-24T10:01:00Z", "placedIn": ["m1"], "reason": "NoQuota", "message": "no cpu",
                    "evicts": ["ns/a-job", "ns/b-job"],
                }),
            ),
            job(
                "moved",
                json!({
                    "placed": "2026-11-24T10:01:00Z", "placedIn": ["m1"], "admitted": "2026-11-24T10:00:02Z",
                    "clusters": ["m2", "m3"],
                }),
            ),
        ];
        let totals = json!({"elsewhere": 1, "wouldWait": 1, "evictions": 2, "waited": 60, "wouldHaveWaited": 2});
        let all = json!({
            "since": "2026-11-24T09:00:00Z", "written": "2026-11-24T11:00:00Z", "totals": totals, "jobs": jobs,
        });
        serde_json::from_value(all).unwrap()
    }

    fn args() -> ShadowArgs {
        ShadowArgs {
            namespace: None,
            queue: None,
            verdict: Vec::new(),
            since: None,
            records: RecordsArgs::default(),
            output: ListOutput::Table,
        }
    }

    #[test]
    fn a_line_tells_both_schedulers_clusters_and_times_and_why_it_would_wait() {
        let (report, now) = (report(), Timestamp::now());
        let text = format_answer(&build_answer(&report, &args(), now), false);
        let line = |name: &str| -> Vec<String> {
            let line = text.lines().find(|line| line.contains(name)).unwrap();
            line.split_whitespace().map(ToOwned::to_owned).collect()
        };
        assert_eq!(line("moved"), ["ns", "Job", "moved", "q", "elsewhere", "m1", "1m", "m2,m3", "2s", "-"]);
        let held = ["ns", "Job", "held", "q", "would-wait", "m1", "1m", "-", "-", "NoQuota;", "would", "evict", "2"];
        assert_eq!(line("held"), held);
        assert!(text.contains("They waited 1m on average; Caldera: 2s."), "{text}");
        assert!(
            text.contains("Caldera would have had 1 job wait that the other placed. It would have evicted 2 jobs."),
            "{text}"
        );
        let wide = format_answer(&build_answer(&report, &args(), now), true);
        assert!(wide.contains("no cpu; would evict ns/a-job,ns/b-job"), "{wide}");
    }

    #[test]
    fn lines_are_chosen_by_verdict_queue_and_time() {
        let report = report();
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        let names = |args: &ShadowArgs| -> Vec<String> {
            build_answer(&report, args, now).jobs.iter().map(|line| line.job.name.clone()).collect()
        };
        assert_eq!(names(&args()), ["moved", "held"]);
        assert_eq!(names(&ShadowArgs { verdict: vec!["would-wait".into()], ..args() }), ["held"]);
        assert!(names(&ShadowArgs { queue: Some("other".into()), ..args() }).is_empty());
        assert!(names(&ShadowArgs { since: Some(3600), ..args() }).is_empty());
    }
}
