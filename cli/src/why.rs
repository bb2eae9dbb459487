//! `caldera why JOB`: prints the state of a job in its queue, the reason for it, and when it is expected to start. The
//! same text, without the expected start, is shown by `caldera top`.

mod object_words;

use std::{collections::BTreeSet, fmt::Write as _, process::ExitCode};

use caldera_controller::explain::{
    Basis, ClusterView, Explanation, InLine, Placed, Pods, RunLimitView, TenantTurn, Verdict, explain_job,
    explain_without_binding, find_binding, list_jobs_of_hyper_job,
};
use caldera_core::{gang::WorkloadRef, reason::Reason, run_limit::RunTime, text::count_noun};
use caldera_crds::{karmada::work::ResourceBinding, workload::WorkloadKind};
use caldera_runtime::{client::describe_error, clock::format_time};
use caldera_simulate::time::Millis;
use jiff::Timestamp;
use kube::{Api, Client, api::DynamicObject};
use serde::Serialize;

use crate::{
    args::{JobName, WhyArgs, WhySubject},
    components,
    console_starts::{self, ConsoleSource, ViewGap},
    cron_job,
    expected_start::{self, ExpectedStart, Forecast},
    live::{self, Gap, Live},
    objects,
    output::{
        self, REAL_CAPABILITY, REAL_CAPABILITY_LEGEND, USED_LATELY, format_columns, format_duration,
        format_with_history,
    },
};

/// The JSON and YAML form.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    #[serde(flatten)]
    explanation: Explanation,
    /// When it is expected to start, if it waits and can start.
    #[serde(skip_serializing_if = "Option::is_none")]
    expected_start: Option<ExpectedStart>,
    /// What could not be seen.
    missing: Vec<Gap>,
    /// What of that hides its expected start.
    #[serde(skip)]
    view_gap: Option<ViewGap>,
}

pub async fn run_why(args: WhyArgs) -> anyhow::Result<ExitCode> {
    let client = components::connect_for_command(args.kubeconfig.as_deref(), "why").await?;
    let namespace = args.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    if let WhySubject::CronJob(name) = &args.job {
        cron_job::explain_cron_job(&client, &args, name, &namespace).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let lease_namespace = args.lease_namespace.as_deref();
    let mut answer =
        find_answer_with_start(&client, &args.job, &namespace, lease_namespace, args.assume_run_for).await?;
    if let Some(gap) = answer.view_gap {
        let source = ConsoleSource::from_args(&args.source, args.kubeconfig.as_deref());
        complete_start(&mut answer, source.as_ref(), gap).await;
    }
    output::print_answer(args.output, &answer, |wide| format_answer(&answer, wide))?;
    Ok(ExitCode::SUCCESS)
}

async fn find_answer_with_start(
    client: &Client,
    asked: &WhySubject,
    namespace: &str,
    controllers: Option<&str>,
    assume: Millis,
) -> anyhow::Result<Answer> {
    let mut live = live::read_undecided(client, Some(namespace), controllers).await?;
    let forecast = Forecast::of_live(&mut live, assume, expected_start::FOR_ONE).await?;
    let view_gap = console_starts::find_view_gap(&live);
    let mut answer = match asked {
        WhySubject::Workload(job) => find_answer(client, live, job, namespace).await?,
        WhySubject::HyperJob(name) => find_hyper_job_answer(client, live, name, namespace).await?,
        WhySubject::CronJob(name) => anyhow::bail!("a CronJob waits in no line: {name}"),
    };
    let may_start = answer.explanation.verdict != Verdict::CanNeverStart;
    answer.expected_start = forecast.find_start(&answer.explanation.workload).filter(|_| may_start).cloned();
    answer.view_gap = view_gap;
    Ok(answer)
}

/// Has a console tell the start that is not known.
async fn complete_start(answer: &mut Answer, source: Option<&ConsoleSource>, gap: ViewGap) {
    let job = &answer.explanation;
    let own = answer.expected_start.take();
    let is_hidden = own.is_some() || gap == ViewGap::Rights && is_without_quota(job.verdict);
    if !is_hidden || own.as_ref().is_some_and(|start| start.at.is_some()) {
        answer.expected_start = own;
        return;
    }
    let namespaces = BTreeSet::from([job.workload.namespace.clone()]);
    let taken = console_starts::take_starts(source, gap, namespaces, Timestamp::now()).await;
    answer.expected_start = taken.complete_start(&job.workload, own);
    answer.missing.extend(taken.gaps);
}

/// The same as a text, and the expected start in it.
///
/// # Errors
/// As [`explain_in_words`].
pub async fn explain_with_start(
    client: &Client,
    job: &JobName,
    namespace: &str,
    assume: Millis,
) -> anyhow::Result<(String, Option<ExpectedStart>)> {
    let asked = WhySubject::Workload(job.clone());
    let answer = find_answer_with_start(client, &asked, namespace, None, assume).await?;
    Ok((format_answer(&answer, false), answer.expected_start))
}

/// The same as a text, without the expected start.
///
/// # Errors
/// If there is no such job, or the server does not answer.
pub async fn explain_in_words(
    client: &Client,
    job: &JobName,
    namespace: &str,
    controllers: Option<&str>,
) -> anyhow::Result<String> {
    let live = live::read_live(client, Some(namespace), controllers).await?;
    Ok(format_answer(&find_answer(client, live, job, namespace).await?, true))
}

async fn find_answer(client: &Client, mut live: Live, job: &JobName, namespace: &str) -> anyhow::Result<Answer> {
    let Some(mut explanation) = find_explanation(&mut live, job, namespace) else {
        let (others, gaps) = (describe_other_kinds_of_name(&live, job, namespace), describe_gaps(&live));
        drop(live);
        anyhow::bail!(describe_missing(client, job, namespace, &others, &gaps).await);
    };
    object_words::add_object_words(client, job, namespace, &mut explanation).await;
    if !explanation.placed.is_empty() {
        explanation.placed_at = read_placed_time(client, explanation.binding.as_deref()).await;
    }
    Ok(Answer { explanation, expected_start: None, missing: live.gaps, view_gap: None })
}

/// That of the first of its jobs that holds no quota, or of the first of all, with how each of them stands.
async fn find_hyper_job_answer(client: &Client, live: Live, name: &str, namespace: &str) -> anyhow::Result<Answer> {
    let jobs = list_jobs_of_hyper_job(&live.controller, namespace, name);
    let waits = jobs.iter().find(|(_, verdict)| is_without_quota(*verdict));
    let Some((first, _)) = waits.or(jobs.first()) else {
        anyhow::bail!("there is no job of a HyperJob {name} in namespace {namespace}; {}", describe_gaps(&live));
    };
    let all: Vec<String> = jobs.iter().map(|(job, verdict)| format!("{job} {}", name_verdict(*verdict))).collect();
    let job = JobName { kind: WorkloadKind::VolcanoJob, name: first.to_string() };
    let mut answer = find_answer(client, live, &job, namespace).await?;
    answer.explanation.notes.push(format!("the jobs of HyperJob {name}: {}", all.join(", ")));
    Ok(answer)
}

const fn is_without_quota(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Waiting | Verdict::MayStart | Verdict::CanNeverStart | Verdict::Blocked)
}

fn build_workload_ref(kind: WorkloadKind, namespace: &str, name: &str) -> WorkloadRef {
    let (group, kind) = (kind.group().to_owned(), kind.kind().to_owned());
    WorkloadRef { group, kind, namespace: namespace.to_owned(), name: name.to_owned() }
}

fn find_explanation(live: &mut Live, job: &JobName, namespace: &str) -> Option<Explanation> {
    let wanted = build_workload_ref(job.kind, namespace, &job.name);
    match find_binding(&live.controller, &wanted) {
        Some(key) => explain_job(&mut live.controller, &key, live.now),
        None => explain_without_binding(&live.controller, &wanted),
    }
}

/// Why a job is not found: it is not there, its kind is not, or nobody says so to who asks.
async fn describe_missing(client: &Client, job: &JobName, namespace: &str, others: &str, gaps: &str) -> String {
    let resource = job.kind.api_resource();
    let named = format!("{} {} in namespace {namespace}", job.kind.title(), job.name);
    let jobs: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    match jobs.get(&job.name).await {
        Ok(_) => format!("{named} is there, and you may not see what decides about it: {gaps}"),
        // Of a kind that the server does not know, it names no object.
        Err(kube::Error::Api(status))
            if status.code == 404 && status.details.as_ref().is_none_or(|details| details.name.is_empty()) =>
        {
            let crd = format!("{}.{}", resource.plural, resource.group);
            format!("there is no {named}: this host has no CRD {crd}")
        }
        Err(kube::Error::Api(status)) if status.code == 404 && others.is_empty() => {
            if cron_job::is_there(client, &job.name, namespace).await {
                return format!("there is no {named}, but a CronJob: ask for cronjob/{}", job.name);
            }
            let others = objects::describe_others(client, &resource, Some(namespace), &job.name).await;
            format!("there is no {named}{others}")
        }
        Err(kube::Error::Api(status)) if status.code == 404 => format!("there is no {named}{others}"),
        Err(error) => format!("whether there is a {named} is not known: {}", describe_error(&error)),
    }
}

/// The other kinds that have one of this name.
fn describe_other_kinds_of_name(live: &Live, job: &JobName, namespace: &str) -> String {
    let mut text = String::new();
    for kind in WorkloadKind::list_all().filter(|kind| *kind != job.kind) {
        let other = build_workload_ref(kind, namespace, &job.name);
        if find_binding(&live.controller, &other).is_some()
            || explain_without_binding(&live.controller, &other).is_some()
        {
            let _ = write!(text, ", but a {}: ask for {}/{}", kind.title(), kind.aliases()[0], job.name);
        }
    }
    text
}

/// What of the host can not be seen, in one sentence.
fn describe_gaps(live: &Live) -> String {
    let of_host = |gap: &&Gap| !gap.what.starts_with("member ") && !gap.what.starts_with("configmap ");
    live.gaps.iter().filter(of_host).map(|gap| gap.why.as_str()).collect::<Vec<_>>().join("; ")
}

/// When the scheduler last placed it.
async fn read_placed_time(client: &Client, binding: Option<&str>) -> Option<String> {
    let (namespace, name) = binding?.split_once('/')?;
    let bindings: Api<ResourceBinding> = Api::namespaced(client.clone(), namespace);
    let status = bindings.get_opt(name).await.ok()??.status?;
    Some(format_time(status.last_scheduled_time?.0))
}

fn name_standing(job: &Explanation) -> &'static str {
    if object_words::is_not_looked_at(job) { "IS NOT LOOKED AT YET" } else { name_verdict(job.verdict) }
}

fn name_verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Waiting => "WAITS",
        Verdict::MayStart => "MAY START NOW",
        Verdict::CanNeverStart => "CAN NEVER START as it is",
        Verdict::Blocked => "DOES NOT START until somebody changes something",
        Verdict::Admitted => "IS ADMITTED, not placed yet",
        Verdict::Placed => "IS PLACED, does not run yet",
        Verdict::Running => "RUNS",
        Verdict::Finished => "HAS ENDED",
        Verdict::NotQueued => "IS IN NO QUEUE",
        Verdict::NoBinding => "IS NOT PROPAGATED",
    }
}

fn format_answer(answer: &Answer, wide: bool) -> String {
    let job = &answer.explanation;
    let mut text = format!("{} {}  [{}]\n", job.workload, name_standing(job), job.token);
    let _ = writeln!(text, "  {}\n", job.sentence);
    write_facts(&mut text, answer);
    if !job.path.is_empty() && !matches!(job.verdict, Verdict::Finished) {
        append_queue_path(&mut text, job, wide);
    }
    if !job.ahead.is_empty() {
        let more = job.position.unwrap_or(1).saturating_sub(1).saturating_sub(job.ahead.len());
        let shown = if wide { job.ahead.len() } else { job.ahead.len().min(3) };
        let more = more + job.ahead.len() - shown;
        let _ = writeln!(text, "\nAhead of it in queue {}:", job.queue.as_ref().map_or("", |queue| queue.as_str()));
        text += &format_pending_jobs(&job.ahead[..shown], compute_answer_time(job));
        if more > 0 {
            let _ = writeln!(text, "... and {more} more");
        }
    }
    if !job.clusters.is_empty() {
        write_clusters(&mut text, job, wide);
    }
    if !job.placed.is_empty() {
        text.push('\n');
        text += &format_columns(["CLUSTER", "PODS", "ON NODES", "TASKS"], job.placed.iter().map(build_placed_row));
    }
    for note in &job.notes {
        let _ = writeln!(text, "\nNote: {note}");
    }
    if job.basis == Basis::PodGroup {
        text += "\nYour credentials do not show everything that decides: what it says of the queue is what the controller \
                 last wrote.\n";
    }
    text + &output::format_gaps(&answer.missing, wide)
}

/// Seconds since 1970, from when the job was made and how old it is.
fn compute_answer_time(job: &Explanation) -> i64 {
    parse_epoch_seconds(job.created.as_deref()).unwrap_or(0).saturating_add(job.age_seconds)
}

fn parse_epoch_seconds(time: Option<&str>) -> Option<i64> {
    time?.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second)
}

fn write_facts(text: &mut String, answer: &Answer) {
    let job = &answer.explanation;
    let mut fact = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<10} {value}");
    };
    if let Some(created) = &job.created {
        fact("Created", format!("{created}, {} ago", format_duration(job.age_seconds)));
    }
    if let Some(asks) = &job.asks {
        let copies = if asks.copies > 1 { format!(", {} copies", asks.copies) } else { String::new() };
        fact("Needs", format!("at least {} ({}{copies})", asks.minimum, count_noun(asks.min_pods, "pod")));
        if asks.full != asks.minimum {
            fact("Wants", format!("{} ({}{copies})", asks.full, count_noun(asks.pods, "pod")));
        }
    }
    if let Some(queue) = &job.queue {
        let gained = match job.priority_gained {
            0 => String::new(),
            gained => format!(" and {gained} more for its time in line"),
        };
        let place = job.position.zip(job.of).map(|(place, of)| format!(", position {place} of {of}"));
        fact("Queue", format!("{queue}{}, priority {}{gained}", place.unwrap_or_default(), job.priority));
    }
    if let Some(turn) = &job.turn {
        let lately = match turn {
            TenantTurn { with_history: true, .. } => " with what it used lately",
            TenantTurn { lacks_history: true, .. } => "; what was used lately is not known, and places may be others",
            _ => "",
        };
        fact("Turn", format!("{} has {} % of the queue{lately}: who has less goes first", turn.tenant, turn.percent));
    }
    if let Some(deadline) = &job.deadline {
        fact("Deadline", format!("should have started by {deadline}"));
    }
    if let Some(kept) = &job.reservation {
        let what = match (&kept.resource, &kept.bound) {
            (Some(resource), Some(bound)) => format!("{resource} within {bound}"),
            _ => "capacity".to_owned(),
        };
        let names: Vec<&str> = kept.clusters.iter().map(|name| name.as_str()).collect();
        let on = if names.is_empty() { String::new() } else { format!(" on {}", names.join(", ")) };
        let since = kept.since.as_deref().unwrap_or("now");
        fact("Reserved", format!("{what}{on} is reserved for it since {since}"));
    }
    if let Some(expected) = &answer.expected_start {
        fact("Expected", format!("to start {}", expected.describe()));
    }
    // What is known for certain; that nothing is certain is of no use beside what is expected.
    if let Some(eta) = job.eta.as_ref().filter(|eta| eta.at.is_some() || answer.expected_start.is_none()) {
        fact("Starts", format!("{}: {}", eta.at.as_deref().unwrap_or("nobody can say when"), eta.basis));
    }
    if let Some(admission) = &job.admission {
        fact("Admitted", format!("queue {} for {}", admission.queue, admission.charged));
    }
    if let Some(limit) = &job.run_limit {
        fact("May run", describe_run_limit(limit));
    }
    if let Some(at) = &job.placed_at {
        fact("Placed", format!("last at {at}"));
    }
    if let Some(until) = &job.ready_by {
        fact("Ready by", format!("{until}, or it is taken off all clusters and put in line again"));
    }
    if job.pods != Default::default() {
        let pods = &job.pods;
        let so_far = if pods.failed > 0 && job.verdict != Verdict::Finished { " so far" } else { "" };
        let Pods { running, succeeded, failed } = pods;
        fact("Pods", format!("{running} running, {succeeded} succeeded, {failed} failed{so_far}"));
    }
    if let Some(reported) =
        job.pod_group.as_ref().filter(|reported| reported.token == job.token && !reported.since.is_empty())
    {
        fact("Since", format!("{}, as its PodGroup says ({})", reported.since, reported.phase));
    }
}

fn describe_run_limit(limit: &RunLimitView) -> String {
    let whole = RunTime(limit.seconds);
    match (&limit.ends, limit.left_seconds) {
        (Some(ends), Some(left)) => format!("{whole}, is ended at {ends}, in {}", format_duration(left)),
        _ => format!("{whole} from its release on, then it is ended"),
    }
}

fn append_queue_path(text: &mut String, job: &Explanation, wide: bool) {
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

fn write_clusters(text: &mut String, job: &Explanation, wide: bool) {
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

fn build_placed_row(placed: &Placed) -> [String; 4] {
    let tasks: Vec<String> = placed.tasks.iter().map(|(task, pods)| format!("{task}:{pods}")).collect();
    let pods = if placed.replicas > 0 { placed.replicas.to_string() } else { String::new() };
    let on_nodes = placed.on_nodes.map_or_else(|| "?".to_owned(), |pods| pods.to_string());
    [placed.cluster.to_string(), pods, on_nodes, tasks.join(", ")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_job_that_runs_it_is_said_when_it_is_ended_and_of_one_that_waits_how_long_it_may_run() {
        let waits = RunLimitView { seconds: 14_400, ends: None, left_seconds: None };
        assert_eq!(describe_run_limit(&waits), "4h from its release on, then it is ended");
        let runs = RunLimitView { ends: Some("2026-01-01T04:00:00Z".to_owned()), left_seconds: Some(5_400), ..waits };
        assert_eq!(describe_run_limit(&runs), "4h, is ended at 2026-01-01T04:00:00Z, in 1h30m");
    }
}
