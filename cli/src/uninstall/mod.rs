//! `caldera uninstall`: takes Caldera off a Karmada API and leaves no gate closed.
//!
//! [`installed`] reads what there is, [`plan`] says what is done about it and is pure, and here it is done: the first
//! stage that has something to do, then it is looked again. So it can be stopped and started at any time, and what
//! changes meanwhile is decided anew.

pub mod installed;
pub mod plan;

use std::{collections::BTreeSet, fmt::Write as _, process::ExitCode, time::Duration};

use anyhow::Context;
use caldera_controller::settings;
use caldera_core::text::count_noun;
use caldera_runtime::write::{Body, Failure, Write, execute_write};
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use serde_json::Value;

use self::{
    installed::{Installed, read_installed},
    plan::{Allowed, Plan, plan_removal},
};
use crate::{
    args::UninstallArgs,
    components,
    doctor::{finding::join_first_names, gather::read_server_clock},
    objects::{name_of, name_resource, read_text_at},
    output,
};

/// Writes in flight.
const AT_ONCE: usize = 16;
/// Times that one stage may be gone through: objects change meanwhile, and an API server calls a webhook for a moment
/// after its configuration is gone.
const MOST_ROUNDS: usize = 20;
/// Between two of them, and between two looks at what still runs.
const ROUND_INTERVAL: Duration = Duration::from_millis(500);
/// A Lease is over by then, if nobody renews it.
const LEASE_OVER_AFTER: Duration = Duration::from_secs(45);
/// A namespace that was deleted is gone by then, unless something holds it.
const NAMESPACE_GONE_AFTER: Duration = Duration::from_secs(90);

pub async fn run_uninstall(args: UninstallArgs) -> anyhow::Result<ExitCode> {
    let client = components::connect_for_command(args.kubeconfig.as_deref(), "uninstall").await?;
    let namespaces = match &args.lease_namespace {
        Some(namespace) => vec![namespace.clone()],
        None => settings::NAMESPACES.map(str::to_owned).to_vec(),
    };
    let allowed = Allowed { open_gates: args.open_gates, crds: args.crds };
    let installed = read_installed(&client, &namespaces).await?;
    let plan = plan_removal(&installed, allowed);
    output::write_stdout(&describe_plan(&plan, &installed));
    if plan.is_refused {
        anyhow::bail!(
            "closed gates hold {} back: with --open-gates all start at once; else wait until all have run, or delete them",
            count_noun(plan.waiting.len(), "job")
        );
    }
    if args.dry_run || plan.stages.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    if !args.yes {
        output::confirm_all()?;
    }
    let left = remove_installation(&client, &namespaces, allowed).await?;
    output::write_stdout(&describe_end(&left));
    Ok(ExitCode::SUCCESS)
}

/// Removes what may go; what is left to do, once jobs that need a part have ended.
///
/// # Errors
/// If gates may not be opened, a Lease is still renewed, or the API server refuses.
pub async fn remove_installation(client: &Client, namespaces: &[String], allowed: Allowed) -> anyhow::Result<Plan> {
    remove_in_stages(client, namespaces, allowed).await?;
    Ok(plan_removal(&read_installed(client, namespaces).await?, allowed))
}

/// What is going to be done.
fn describe_plan(plan: &Plan, installed: &Installed) -> String {
    let mut text = String::new();
    for stage in plan.stages.iter().filter(|_| !plan.is_refused) {
        let _ = writeln!(text, "{}:", stage.title);
        for write in &stage.writes {
            let verb = if matches!(write.body, Body::Delete { .. }) { "delete" } else { "patch" };
            let place = if write.namespace.is_empty() { String::new() } else { format!("{}/", write.namespace) };
            let _ = writeln!(text, "  {verb} {} {place}{}", name_resource(&write.resource), write.name);
        }
    }
    if text.is_empty() && !plan.is_refused {
        text += "there is nothing of Caldera on this API server that could go now\n";
    }
    if !plan.waiting.is_empty() {
        let _ = writeln!(text, "\njobs that wait: {}", join_first_names(plan.waiting.iter().map(String::as_str)));
    }
    if !plan.kept.is_empty() {
        let _ = writeln!(
            text,
            "\njobs that run on with copies that Caldera's webhook makes: {}\nUntil they end its process must run; the hook \
             on Works, the interpreter, the policies and its roles stay for them.",
            join_first_names(plan.kept.iter().map(String::as_str))
        );
    }
    for policy in &installed.naming_us {
        let _ = writeln!(
            text,
            "\n{policy} names scheduler caldera: what it selects is scheduled by nobody until it names another"
        );
    }
    text
}

fn describe_end(left: &Plan) -> String {
    let mut text = String::from("\nno gate is closed\n");
    if left.kept.is_empty() {
        text += "nothing of Caldera is left on this API server but what is listed above as staying\nWhat runs the \
                 components:  caldera manifests --deployments --image IMAGE | kubectl delete -f -\nIn members:  caldera \
                 manifests --member | kubectl delete -f -\n";
    } else {
        let jobs = count_noun(left.kept.len(), "job");
        let _ = writeln!(text, "still running: {jobs}; leave the webhook running, and uninstall again after the end");
    }
    text
}

/// Goes through the stages until none is left.
async fn remove_in_stages(client: &Client, namespaces: &[String], allowed: Allowed) -> anyhow::Result<()> {
    let (mut current, mut rounds, mut last) = ("", 0, None);
    let mut silent = false;
    loop {
        let installed = read_installed(client, namespaces).await?;
        let plan = plan_removal(&installed, allowed);
        anyhow::ensure!(
            !plan.is_refused,
            "a job was submitted meanwhile and waits: uninstall again, with --open-gates"
        );
        let Some(stage) = plan.stages.first() else { return wait_for_namespaces_to_end(client, &installed).await };
        if stage.title == current {
            rounds += 1;
            let why = || last.as_ref().map_or_else(String::new, |(what, failure)| format!(": {what}: {failure}"));
            anyhow::ensure!(rounds < MOST_ROUNDS, "could not {}{}", stage.title, why());
            tokio::time::sleep(ROUND_INTERVAL).await;
        } else {
            output::write_stdout(&format!("\n{} ({})\n", stage.title, stage.writes.len()));
            (current, rounds) = (stage.title, 0);
        }
        // The first stage takes the rights away by which a Lease is renewed.
        if !silent && plan.stages.iter().all(|stage| !takes_rights_away(stage.title)) {
            wait_for_leases_to_end(client, namespaces).await?;
            silent = true;
            continue;
        }
        last = execute_stage(client, &stage.writes).await?.or(last);
    }
}

fn takes_rights_away(title: &str) -> bool {
    title.starts_with("take ")
}

/// Waits until the namespaces that were deleted are gone: before that nothing can be installed into them anew.
async fn wait_for_namespaces_to_end(client: &Client, installed: &Installed) -> anyhow::Result<()> {
    let api: Api<Namespace> = Api::all(client.clone());
    let until = tokio::time::Instant::now() + NAMESPACE_GONE_AFTER;
    for name in installed.namespaces.iter().filter(|one| is_being_deleted(&one.object)).map(|one| name_of(&one.object))
    {
        output::write_stdout(&format!("\nwaiting until namespace {name} is gone\n"));
        while api.get_metadata_opt(name).await.with_context(|| format!("failed to read Namespace {name}"))?.is_some() {
            if tokio::time::Instant::now() > until {
                output::write_warning(&format!(
                    "namespace {name} is not gone yet: kubectl get namespace {name} -o yaml says what it waits for"
                ));
                return Ok(());
            }
            tokio::time::sleep(ROUND_INTERVAL).await;
        }
    }
    Ok(())
}

fn is_being_deleted(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// Carries out all writes; what was not done because something changed is told.
async fn execute_stage(client: &Client, writes: &[Write]) -> anyhow::Result<Option<(String, Failure)>> {
    let mut answers = stream::iter(writes)
        .map(|write| async move { (write, execute_write(client, write).await) })
        .buffer_unordered(AT_ONCE);
    let mut failed = None;
    while let Some((write, answer)) = answers.next().await {
        let what = || format!("{} {}", name_resource(&write.resource), write.name);
        match answer {
            Ok(_) | Err(Failure::Gone(_)) => {}
            Err(failure @ Failure::Refused { .. }) => {
                return Err(failure).with_context(|| format!("failed to change {}", what()));
            }
            Err(failure) => failed = Some((what(), failure)),
        }
    }
    Ok(failed)
}

/// Waits until no Lease of a controller or scheduler holds: whoever holds one runs with rights of its own.
async fn wait_for_leases_to_end(client: &Client, namespaces: &[String]) -> anyhow::Result<()> {
    let until = tokio::time::Instant::now() + LEASE_OVER_AFTER;
    let mut reported = BTreeSet::new();
    loop {
        let now = read_server_clock(client).await.unwrap_or_else(Timestamp::now);
        let installed = read_installed(client, namespaces).await?;
        let held: Vec<String> =
            installed.state.iter().filter(|one| is_lease_held(&one.object, now)).map(describe_lease).collect();
        if held.is_empty() {
            return Ok(());
        }
        anyhow::ensure!(
            tokio::time::Instant::now() < until,
            "{} is renewed still: what holds it does not run as the account of `caldera manifests`. Stop it, then \
             uninstall again",
            join_first_names(held.iter().map(String::as_str))
        );
        if reported.is_empty() {
            output::write_stdout(&format!(
                "waiting until nobody holds {}\n",
                join_first_names(held.iter().map(String::as_str))
            ));
            reported.extend(held);
        }
        tokio::time::sleep(ROUND_INTERVAL).await;
    }
}

fn describe_lease(found: &installed::InstalledObject) -> String {
    format!("Lease {}/{}", read_text_at(&found.object, "/metadata/namespace"), name_of(&found.object))
}

fn is_lease_held(object: &Value, now: Timestamp) -> bool {
    let renewed: Option<Timestamp> = read_text_at(object, "/spec/renewTime").parse().ok();
    let seconds = object["spec"]["leaseDurationSeconds"].as_i64().unwrap_or(0);
    !read_text_at(object, "/spec/holderIdentity").is_empty()
        && renewed.is_some_and(|renewed| now.as_second() - renewed.as_second() <= seconds)
}
