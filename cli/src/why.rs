//! `caldera why JOB`: prints the state of a job in its queue, the reason for it, and when it is expected to start. The
//! same text, without the expected start, is shown by `caldera top`.

mod answer;
mod object_words;
mod tables;

use std::{collections::BTreeSet, fmt::Write as _, process::ExitCode};

use caldera_controller::explain::{
    Explanation, Verdict, explain_job, explain_without_binding, find_binding, list_jobs_of_hyper_job,
};
use caldera_core::{gang::WorkloadRef, text::name_some};
use caldera_crds::{karmada::work::ResourceBinding, object::api_resource, workload::WorkloadKind};
use caldera_runtime::{client::describe_error, clock::format_time};
use caldera_simulate::time::Millis;
use jiff::Timestamp;
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams},
    core::PartialObjectMeta,
};

use self::answer::{Answer, format_answer, name_verdict};
pub use self::tables::format_pending_jobs;
use crate::{
    args::{JobName, WhyArgs, WhySubject},
    components,
    console_starts::{self, ConsoleSource, ViewGap},
    cron_job,
    expected_start::{self, ExpectedStart, Forecast},
    live::{self, Gap, Live},
    objects, output,
};

/// Jobs of one name in other namespaces that are asked for.
const MOST_NAMESAKES: u32 = 20;

pub async fn run_why(args: WhyArgs) -> anyhow::Result<ExitCode> {
    let client = components::connect_for_command(args.kubeconfig.as_deref(), "why").await?;
    let namespace = args.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    if let WhySubject::CronJob(name) = &args.job {
        let explained = cron_job::explain_cron_job(&client, &args, name, &namespace).await;
        blame_namespace(explained, &client, &args.job, &namespace).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let lease_namespace = args.lease_namespace.as_deref();
    let found = find_answer_with_start(&client, &args.job, &namespace, lease_namespace, args.assume_run_for).await;
    let mut answer = blame_namespace(found, &client, &args.job, &namespace).await?;
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

/// What was found; where nothing was, and there is no such namespace, that, with the namespaces where one of the name
/// is.
async fn blame_namespace<T>(
    found: anyhow::Result<T>,
    client: &Client,
    asked: &WhySubject,
    namespace: &str,
) -> anyhow::Result<T> {
    let Err(error) = found else { return found };
    let resource = api_resource("", "v1", "Namespace", "namespaces");
    let is_there = objects::get_object(client, &resource, None, namespace).await;
    if !matches!(is_there, Ok(Ok(None))) {
        return Err(error);
    }
    let missing = format!("there is no namespace {namespace}");
    if let WhySubject::Workload(job) = asked
        && let Some(elsewhere) = find_elsewhere(client, job).await
    {
        anyhow::bail!("{missing}; {} {} is in {elsewhere}", job.kind.title(), job.name);
    }
    anyhow::bail!("{missing}{}", objects::describe_others(client, &resource, None, namespace).await)
}

/// The namespaces where a job of this name is, by one request; `None` if there is none that is seen.
async fn find_elsewhere(client: &Client, job: &JobName) -> Option<String> {
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &job.kind.api_resource());
    let of_name = ListParams::default().fields(&format!("metadata.name={}", job.name)).limit(MOST_NAMESAKES);
    let found = all.list_metadata(&of_name).await.ok()?;
    let is_it = |one: &&PartialObjectMeta<DynamicObject>| one.metadata.name.as_deref() == Some(&*job.name);
    let mut all: Vec<String> = found.iter().filter(is_it).filter_map(|one| one.metadata.namespace.clone()).collect();
    all.sort_unstable();
    (!all.is_empty()).then(|| name_some(&all))
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
