//! `caldera history`: how jobs ended, long after they are gone, as the controller recorded it; and who did what.
//!
//! Rule: a line for each job that was given quota, as Slurm's `sacct`, in the order of their ends. The controller
//! writes them every five minutes, and when it ends: what ended since is not in it yet.

mod actions;

use std::{collections::BTreeMap, fmt::Write as _, process::ExitCode};

use anyhow::Context as _;
use caldera_controller::{
    history::{ENDED_JOBS, EndedJob, History, HistoryLine, Pages},
    settings::NAMESPACES,
};
use caldera_core::resources::ResourceName;
use caldera_crds::workload::WorkloadKind;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde::Serialize;
use serde_json::json;

use crate::{
    args::HistoryArgs,
    components,
    json_path::sort_rows,
    objects,
    output::{self, format_duration, format_table, quote_csv},
    view::JobKey,
};

/// The JSON and YAML form.
#[derive(Debug, Serialize)]
struct HistoryReport<'a> {
    jobs: Vec<&'a EndedJob>,
}

pub async fn run_history(args: HistoryArgs) -> anyhow::Result<ExitCode> {
    let client = components::connect_for_command(args.records.kubeconfig.as_deref(), "history").await?;
    if args.actions {
        return actions::print_actions(&client, &args).await;
    }
    let jobs =
        read_history::<EndedJob>(&client, args.records.lease_namespace.as_deref(), ENDED_JOBS).await?.list_lines();
    let mut report = HistoryReport { jobs: select_jobs(&jobs, &args, Timestamp::now()) };
    args.records.sort_by.iter().try_for_each(|by| sort_rows(&mut report.jobs, by))?;
    // One that is gone may have a history all the same.
    if let Some(queue) = args.queue.as_deref().filter(|queue| jobs.iter().all(|job| job.queue.as_str() != *queue)) {
        objects::ensure_queue(&client, queue).await?;
    }
    let names: String = report.jobs.iter().map(|job| format!("{}\n", name_job(&job.kind, &job.name))).collect();
    output::print_records(&args.output, &report, &names, || format_csv(&report.jobs), |_| format_jobs(&report.jobs))?;
    Ok(ExitCode::SUCCESS)
}

/// What commands call a workload of a kind: the first that is named so, since what is recorded has no group.
pub(crate) fn name_job(kind: &str, name: &str) -> String {
    match WorkloadKind::list_all().find(|one| one.kind() == kind) {
        Some(kind) => JobKey { namespace: String::new(), name: name.to_owned(), kind }.command_name(),
        None => format!("{}/{name}", kind.to_lowercase()),
    }
}

/// Lines of one sort, from the first namespace that has some.
async fn read_history<L: HistoryLine>(
    client: &Client,
    namespace: Option<&str>,
    pages: Pages,
) -> anyhow::Result<History<L>> {
    let mut read = History::new(pages);
    for namespace in namespace.map_or_else(|| NAMESPACES.to_vec(), |one| vec![one]) {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        for (page, name) in pages.list_names().enumerate() {
            let found =
                maps.get_opt(&name).await.with_context(|| format!("failed to read ConfigMap {namespace}/{name}"))?;
            if let Some(map) = found {
                read.read_page(page, &json!(map))
                    .map_err(|wrong| anyhow::anyhow!("ConfigMap {namespace}/{name}: {wrong}"))?;
            }
        }
        if !read.is_empty() {
            break;
        }
    }
    Ok(read)
}

/// Those that are asked for, in the order of their ends.
fn select_jobs<'a>(jobs: &'a [EndedJob], args: &HistoryArgs, now: Timestamp) -> Vec<&'a EndedJob> {
    let is_asked_for = |job: &EndedJob| {
        is_or_any(args.namespace.as_ref(), &job.namespace)
            && is_or_any(args.queue.as_ref(), job.queue.as_str())
            && is_or_any(args.user.as_ref(), job.user.as_deref().unwrap_or_default())
            && is_or_any(args.result.as_ref(), &job.result)
    };
    select_in_order(jobs, |job| job.ended, args.since.map(|since| now.as_second().saturating_sub(since)), is_asked_for)
}

fn is_or_any(asked: Option<&String>, is: &str) -> bool {
    asked.is_none_or(|asked| asked == is)
}

/// Those that are asked for and not older than a second since 1970, in the order of their times.
fn select_in_order<T>(
    all: &[T],
    at: impl Fn(&T) -> Timestamp,
    since: Option<i64>,
    is_asked_for: impl Fn(&T) -> bool,
) -> Vec<&T> {
    let is_new_enough = |one: &T| since.is_none_or(|since| at(one).as_second() >= since);
    let mut asked: Vec<&T> = all.iter().filter(|one| is_new_enough(one) && is_asked_for(one)).collect();
    asked.sort_by_key(|one| at(one));
    asked
}

fn format_jobs(jobs: &[&EndedJob]) -> String {
    if jobs.is_empty() {
        return "no end of such a job is recorded\n".to_owned();
    }
    let header =
        ["NAMESPACE", "KIND", "NAME", "QUEUE", "USER", "RESULT", "WAITED", "RAN", "CHARGED", "CLUSTERS", "ENDED"];
    let rows = jobs.iter().map(|job| {
        let (waited, ran) = measure_wait_and_run(job);
        let reported = |seconds: Option<i64>| seconds.map(format_duration).unwrap_or_default();
        let charged: Vec<String> =
            job.charged.iter().map(|(name, amount)| format!("{name}={}", amount.decimal())).collect();
        vec![
            job.namespace.clone(),
            job.kind.clone(),
            job.name.clone(),
            job.queue.to_string(),
            job.user.clone().unwrap_or_default(),
            job.result.clone(),
            reported(waited),
            reported(ran),
            charged.join(","),
            job.clusters.join(","),
            format!("{:.0}", job.ended),
        ]
    });
    format_table(&header, rows)
}

/// For how many seconds it waited and ran, as far as it said when it began to run.
fn measure_wait_and_run(job: &EndedJob) -> (Option<i64>, Option<i64>) {
    let began = job.started.map(Timestamp::as_second);
    (began.map(|began| began - job.submitted.as_second()), began.map(|began| job.ended.as_second() - began))
}

/// A line for each job, with a column for each resource that any was charged.
fn format_csv(jobs: &[&EndedJob]) -> String {
    let mut resources: Vec<&ResourceName> =
        jobs.iter().flat_map(|job| job.charged.iter().map(|(name, _)| name)).collect();
    resources.sort_unstable();
    resources.dedup();
    let mut text = "namespace,kind,name,uid,queue,result,submitted,started,ended,clusters,user".to_owned();
    resources.iter().for_each(|name| text += &format!(",{}", quote_csv(name.as_str())));
    text += "\n";
    for job in jobs {
        let started = job.started.map(|at| at.to_string()).unwrap_or_default();
        let names = [&job.namespace, &job.kind, &job.name, &job.uid, &job.queue.to_string(), &job.result]
            .map(|it| quote_csv(it));
        let _ = write!(
            text,
            "{},{},{started},{},{},{}",
            names.join(","),
            job.submitted,
            job.ended,
            quote_csv(&job.clusters.join(" ")),
            quote_csv(job.user.as_deref().unwrap_or_default())
        );
        let charged: BTreeMap<_, _> = job.charged.iter().collect();
        for name in &resources {
            let amount = charged.get(name).map(|amount| amount.decimal().to_string()).unwrap_or_default();
            let _ = write!(text, ",{amount}");
        }
        text += "\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        args::RecordsArgs,
        json_path::JsonPath,
        output::{ListOutput, RecordsOutput},
    };

    fn ended(name: &str, result: &str, ended: &str) -> EndedJob {
        let job = json!({
            "namespace": "ns", "kind": "Job", "name": name, "uid": "u", "user": "ada", "queue": "q", "result": result,
            "clusters": ["m1", "m2"], "charged": {"cpu": "4"}, "submitted": "2026-11-24T10:00:00Z",
            "started": "2026-11-24T10:01:00Z", "ended": ended,
        });
        serde_json::from_value(job).unwrap()
    }

    fn args() -> HistoryArgs {
        HistoryArgs {
            queue: None,
            namespace: None,
            user: None,
            result: None,
            since: None,
            records: RecordsArgs::default(),
            actions: false,
            output: RecordsOutput::List(ListOutput::Table),
        }
    }

    #[test]
    fn the_table_tells_how_long_a_job_waited_and_ran() {
        let job = ended("a", "Completed", "2026-11-24T10:06:00Z");
        let text = format_jobs(&[&job]);
        let cells: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        let reported =
            ["ns", "Job", "a", "q", "ada", "Completed", "1m", "5m", "cpu=4", "m1,m2", "2026-11-24T10:06:00Z"];
        assert_eq!(cells, reported);
        assert_eq!(format_jobs(&[]), "no end of such a job is recorded\n");
    }

    #[test]
    fn what_is_asked_for_is_told_in_the_order_of_the_ends() {
        let jobs = [
            ended("late", "Failed", "2026-11-24T12:00:00Z"),
            ended("a", "Completed", "2026-11-24T10:06:00Z"),
            ended("early", "Failed", "2026-11-24T10:00:00Z"),
        ];
        let now = "2026-11-24T12:30:00Z".parse().unwrap();
        let names = |args: &HistoryArgs| -> Vec<String> {
            select_jobs(&jobs, args, now).iter().map(|job| job.name.clone()).collect()
        };
        assert_eq!(names(&args()), ["early", "a", "late"]);
        assert_eq!(names(&HistoryArgs { result: Some("Failed".into()), ..args() }), ["early", "late"]);
        assert_eq!(names(&HistoryArgs { since: Some(3600), ..args() }), ["late"]);
        assert_eq!(names(&HistoryArgs { user: Some("ada".into()), ..args() }).len(), 3);
        assert_eq!(names(&HistoryArgs { user: Some("eve".into()), ..args() }), Vec::<String>::new());
        assert_eq!(names(&HistoryArgs { namespace: Some("other".into()), ..args() }), Vec::<String>::new());
    }

    #[test]
    fn rows_are_sorted_by_a_field_and_named_as_commands_take_them() {
        let jobs = [ended("b", "Failed", "2026-11-24T10:00:00Z"), ended("a", "Failed", "2026-11-24T12:00:00Z")];
        let mut rows: Vec<&EndedJob> = jobs.iter().collect();
        sort_rows(&mut rows, &JsonPath::parse("name").unwrap()).unwrap();
        assert_eq!(rows.iter().map(|job| job.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(name_job("Job", "a"), "a");
        assert_eq!(name_job("Deployment", "web"), "deployment/web");
        assert_eq!(name_job("NobodyKnows", "x"), "nobodyknows/x");
    }

    #[test]
    fn csv_has_a_column_for_each_resource_and_quotes_names() {
        let job = ended("a", "Completed", "2026-11-24T10:06:00Z");
        assert_eq!(
            format_csv(&[&job]),
            "namespace,kind,name,uid,queue,result,submitted,started,ended,clusters,user,\"cpu\"\n\
             \"ns\",\"Job\",\"a\",\"u\",\"q\",\"Completed\",2026-11-24T10:00:00Z,2026-11-24T10:01:00Z,\
             2026-11-24T10:06:00Z,\"m1 m2\",\"ada\",4\n"
        );
    }
}
