//! Opens, closes, drains and sets queues, and pauses or unpauses all releases.
//!
//! Rule: a queue's state is the controller's, so it is asked by a Command, as `vcctl queue operate` does (Volcano
//! `pkg/cli/queue/operate.go`), and waited for ten seconds. To drain is to close, and to requeue each Volcano Job that
//! was admitted in the queue and has clusters; other kinds stay, and that is said. Amounts are the admin's: each is
//! changed by itself, in a JSON patch that fails where the queue has changed since it was read; a resource that no
//! member has is warned of. A pause is an annotation on the default queue.

use std::{collections::BTreeSet, process::ExitCode, time::Duration};

use anyhow::Context;
use caldera_core::{admission::Admission, device::DEVICE_CLASS_PREFIX, quantity::Quantity, resources::ResourceName};
use caldera_crds::{
    names::{
        caldera::{ADMISSION, PAUSED},
        volcano::DEFAULT_QUEUE,
    },
    object::escape_pointer,
};
use kube::Client;
use serde_json::{Value, json};

use crate::{
    args::{JobName, QueueSetArgs},
    change::{
        build_annotation_step, build_tested_patch, build_version_test, build_write, create_command, print_outcome,
        to_exit_code, write_retrying_conflicts,
    },
    job::requeue::requeue_all,
    objects::{self, get_queue, list_objects, read_list_at, read_text_at},
    output,
    view::JobKey,
};

/// Where Commands to queues are made, as Volcano's own command line does.
const NAMESPACE: &str = "default";
/// How long a controller that runs may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Sends each queue a Command, and waits until it is carried out.
pub(super) async fn send_queue_commands(client: &Client, names: &[String], action: &str) -> anyhow::Result<ExitCode> {
    let mut all_done = true;
    for name in names {
        all_done &= print_outcome(&format!("queue {name}"), send_queue_command(client, name, action).await);
    }
    Ok(to_exit_code(all_done))
}

async fn send_queue_command(client: &Client, name: &str, action: &str) -> anyhow::Result<String> {
    let queue = get_queue(client, name).await?;
    if is_done(state_of(&queue), action) {
        return Ok(format!("is {} already", state_of(&queue)));
    }
    create_command(client, NAMESPACE, &objects::queue_resource(), &queue, action).await?;
    let until = tokio::time::Instant::now() + COMMAND_TIMEOUT;
    loop {
        let queue = get_queue(client, name).await?;
        if is_done(state_of(&queue), action) {
            return Ok(format!("is {}", state_of(&queue)));
        }
        anyhow::ensure!(
            tokio::time::Instant::now() < until,
            "it is {} still: the Command is there, and no controller has carried it out within {} s",
            state_of(&queue),
            COMMAND_TIMEOUT.as_secs()
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn state_of(queue: &Value) -> &str {
    match read_text_at(queue, "/status/state") {
        "" => "Open",
        state => state,
    }
}

fn is_done(state: &str, action: &str) -> bool {
    match action {
        "OpenQueue" => state == "Open",
        _ => ["Closed", "Closing"].contains(&state),
    }
}

/// Closes queues, and has the Volcano Jobs that run in them wait in line until the queue is opened.
pub(super) async fn drain_queues(client: &Client, names: &[String]) -> anyhow::Result<ExitCode> {
    let mut all_done = send_queue_commands(client, names, "CloseQueue").await? == ExitCode::SUCCESS;
    let bindings = list_objects(client, &objects::binding_resource(), None, None).await?.map_err(anyhow::Error::msg)?;
    for name in names {
        let jobs = bindings.iter().filter_map(|binding| find_job_of(binding, name));
        all_done &= requeue_all(client, jobs, &format!("queue {name}")).await;
    }
    Ok(to_exit_code(all_done))
}

/// The workload in clusters that a binding has admitted in this queue, and its namespace.
fn find_job_of(binding: &Value, queue: &str) -> Option<(String, JobName)> {
    let record = objects::annotation_of(binding, ADMISSION).and_then(|text| Admission::parse(text).ok())?;
    let key = JobKey::of_binding(binding)?;
    let runs = record.queue.as_str() == queue && !read_list_at(binding, "/spec/clusters").is_empty();
    runs.then_some((key.namespace, JobName { kind: key.kind, name: key.name }))
}

/// Writes on the default queue that nothing is to be released, and why; or takes that away.
pub(super) async fn pause_or_unpause(client: &Client, why: Option<&str>) -> anyhow::Result<ExitCode> {
    let before = get_queue(client, DEFAULT_QUEUE).await?;
    change_queue(client, DEFAULT_QUEUE, |queue| build_pause_steps(queue, why)).await?;
    output::write_stdout(&output::escape_controls(&describe_pause(objects::annotation_of(&before, PAUSED), why)));
    Ok(ExitCode::SUCCESS)
}

fn describe_pause(before: Option<&str>, why: Option<&str>) -> String {
    match (before, why) {
        (None, Some(_)) => "all releases are paused until `caldera unpause`; what is released runs on\n".to_owned(),
        (Some(before), Some(_)) => {
            format!("all releases were paused already, for: {before}\nthe new reason is shown\n")
        }
        (Some(before), None) => format!("jobs are released; they were paused for: {before}\n"),
        (None, None) => "releases were not paused\n".to_owned(),
    }
}

/// Nothing where it is so already.
fn build_pause_steps(queue: &Value, why: Option<&str>) -> Option<Vec<Value>> {
    let step = match why {
        Some(why) => build_annotation_step(queue, PAUSED, why),
        None => json!({"op": "remove", "path": objects::annotation_path(PAUSED)}),
    };
    (objects::annotation_of(queue, PAUSED) != why).then(|| vec![step])
}

/// Patches a queue by what it is now, until nobody else changed it meanwhile.
async fn change_queue(client: &Client, name: &str, build: impl Fn(&Value) -> Option<Vec<Value>>) -> anyhow::Result<()> {
    let is_changed = write_retrying_conflicts(client, async || {
        let queue = get_queue(client, name).await?;
        Ok(build(&queue)
            .map(|steps| build_write(&objects::queue_resource(), &queue, build_tested_patch(&queue, steps))))
    });
    is_changed.await.with_context(|| format!("failed to set queue {name}"))?;
    Ok(())
}

pub(super) async fn set_queue(client: &Client, args: &QueueSetArgs) -> anyhow::Result<ExitCode> {
    // Who may set queues and not see members is told nothing of them.
    let members = list_objects(client, &objects::cluster_resource(), None, None).await?.unwrap_or_default();
    for warning in find_unknown(args, &members) {
        output::write_warning(&format!("queue {}: {warning}", args.name));
    }
    if args.dry_run {
        let queue = get_queue(client, &args.name).await?;
        let patch: Value = [build_version_test(&queue)].into_iter().chain(build_patch(&queue, args)).collect();
        output::write_stdout(&format!("{patch:#}\n"));
        return Ok(ExitCode::SUCCESS);
    }
    change_queue(client, &args.name, |queue| Some(build_patch(queue, args))).await?;
    output::write_stdout(&format!("queue {} is set\n", args.name));
    Ok(ExitCode::SUCCESS)
}

/// Amounts of what no member has: most are misspelt, and limit nothing.
fn find_unknown(args: &QueueSetArgs, members: &[Value]) -> Vec<String> {
    let there: BTreeSet<&str> = members
        .iter()
        .filter_map(|member| member.pointer("/status/resourceSummary/allocatable")?.as_object())
        .flat_map(|amounts| amounts.keys().map(String::as_str))
        .collect();
    let flags = [("capability", &args.capability), ("deserved", &args.deserved), ("guarantee", &args.guarantee)];
    let is_set = |amounts: &[(String, Option<Quantity>)], name: &str| {
        amounts.iter().any(|(set, amount)| set == name && amount.is_some())
    };
    let set: BTreeSet<&str> = flags
        .iter()
        .flat_map(|(_, amounts)| amounts.iter())
        .filter(|(_, amount)| amount.is_some())
        .map(|(name, _)| name.as_str())
        .collect();
    let take_away = |name: &str| {
        let removed = flags.iter().filter(|(_, amounts)| is_set(amounts, name));
        let removed: String = removed.map(|(flag, _)| format!(" --{flag} {name}=none")).collect();
        format!("to take it away: caldera queue set {}{removed}", args.name)
    };
    let has: Vec<&str> = there.iter().copied().filter(|name| *name != ResourceName::PODS).collect();
    let warn = |name: &&str| {
        if !ResourceName::from(*name).is_counted() {
            let why = "counts nothing here: name the resource itself, as pods ask for it";
            return Some(format!("{name} {why}; {}", take_away(name)));
        }
        // Karmada's summary of a cluster tells of no devices that are claimed.
        let is_unknown = !there.is_empty() && !there.contains(name) && !name.starts_with(DEVICE_CLASS_PREFIX);
        let has = || has.join(", ");
        is_unknown.then(|| {
            format!("no cluster has {name}, so that it limits nothing; they have {}; {}", has(), take_away(name))
        })
    };
    set.iter().filter_map(warn).collect()
}

fn build_patch(queue: &Value, args: &QueueSetArgs) -> Vec<Value> {
    let mut steps = Vec::new();
    let set = |path: &str, value: Value| json!({"op": "add", "path": path, "value": value});
    if !queue["spec"].is_object() {
        steps.push(set("/spec", json!({})));
    }
    steps.extend(build_amount_steps(queue, "/spec/capability", &args.capability));
    steps.extend(build_amount_steps(queue, "/spec/deserved", &args.deserved));
    if !args.guarantee.is_empty() && !queue["spec"]["guarantee"].is_object() {
        steps.push(set("/spec/guarantee", json!({})));
    }
    steps.extend(build_amount_steps(queue, "/spec/guarantee/resource", &args.guarantee));
    steps.extend(args.weight.map(|weight| set("/spec/weight", json!(weight))));
    steps.extend(args.priority.map(|priority| set("/spec/priority", json!(priority))));
    steps.extend(args.reclaimable.map(|reclaimable| set("/spec/reclaimable", json!(reclaimable))));
    steps
}

/// One step for each resource that is named; what is not there is not removed.
fn build_amount_steps(queue: &Value, path: &str, amounts: &[(String, Option<Quantity>)]) -> Vec<Value> {
    let there = queue.pointer(path).and_then(Value::as_object);
    let mut steps = Vec::new();
    if there.is_none() && amounts.iter().any(|(_, amount)| amount.is_some()) {
        steps.push(json!({"op": "add", "path": path, "value": {}}));
    }
    for (name, amount) in amounts {
        let path = format!("{path}/{}", escape_pointer(name));
        match amount {
            Some(amount) => steps.push(json!({"op": "add", "path": path, "value": amount.to_string()})),
            None if there.is_some_and(|there| there.contains_key(name)) => {
                steps.push(json!({"op": "remove", "path": path}));
            }
            None => {}
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command, QueueAction};

    fn parse(flags: &[&str]) -> QueueSetArgs {
        let words = ["caldera", "queue", "set", "q"].iter().chain(flags);
        let Command::Queue(args) = Args::try_parse_from(words).unwrap().command else { panic!() };
        let Some(QueueAction::Set(set)) = args.action else { panic!() };
        set
    }

    fn patch(queue: &Value, flags: &[&str]) -> Value {
        build_patch(queue, &parse(flags)).into()
    }

    #[test]
    fn a_queue_is_set_resource_by_resource_and_keeps_the_others() {
        let queue = json!({"spec": {"capability": {"cpu": "1", "memory": "1Gi"}}});
        let add = |path: &str, value: Value| json!({"op": "add", "path": path, "value": value});
        let remove = |path: &str| json!({"op": "remove", "path": path});
        let path = "/spec/capability";
        assert_eq!(
            patch(&queue, &["--capability", "nvidia.com/gpu=8,cpu=none,absent=none"]),
            json!([add(&format!("{path}/nvidia.com~1gpu"), json!("8")), remove(&format!("{path}/cpu"))])
        );
        let bare = json!({"metadata": {}});
        assert_eq!(
            patch(&bare, &["--guarantee", "cpu=2", "--weight", "3", "--reclaimable", "false"]),
            json!([
                add("/spec", json!({})),
                add("/spec/guarantee", json!({})),
                add("/spec/guarantee/resource", json!({})),
                add("/spec/guarantee/resource/cpu", json!("2")),
                add("/spec/weight", json!(3)),
                add("/spec/reclaimable", json!(false)),
            ])
        );
    }

    /// Found by a reader: a misspelt resource was set, and limited nothing.
    #[test]
    fn an_amount_of_what_no_cluster_has_is_warned_of() {
        let member =
            json!({"status": {"resourceSummary": {"allocatable": {"cpu": "8", "memory": "1Gi", "pods": "9"}}}});
        let warn = |flags: &[&str]| find_unknown(&parse(flags), std::slice::from_ref(&member));
        assert_eq!(warn(&["--capability", "cpu=8,pods=5", "--deserved", "memory=1Gi"]), [""; 0]);
        assert_eq!(
            warn(&["--capability", "mem=8Gi", "--guarantee", "mem=1Gi,gone=none"]),
            [
                "no cluster has mem, so that it limits nothing; they have cpu, memory; to take it away: caldera queue set q \
                 --capability mem=none --guarantee mem=none"
            ]
        );
        assert!(warn(&["--capability", "requests.cpu=8"])[0].starts_with("requests.cpu counts nothing here"));
        assert_eq!(warn(&["--capability", "deviceclass/gpu.io=8"]), [""; 0]);
        // Where no member tells what it has, nothing is known to be missing.
        assert_eq!(find_unknown(&parse(&["--capability", "gpu=8"]), &[]), [""; 0]);
    }

    #[test]
    fn a_pause_is_one_annotation_and_touches_no_other() {
        let bare = json!({"metadata": {}});
        let other = json!({"metadata": {"annotations": {"mine": "x"}}});
        let paused = json!({"metadata": {"annotations": {PAUSED: "why"}}});
        let step = |queue: &Value, why| build_pause_steps(queue, why).map(|patch| patch[0].clone());
        let path = "/metadata/annotations/caldera.dev~1paused";
        let add = |path: &str, value: Value| Some(json!({"op": "add", "path": path, "value": value}));
        assert_eq!(step(&bare, Some("why")), add("/metadata/annotations", json!({PAUSED: "why"})));
        assert_eq!(step(&other, Some("why")), add(path, json!("why")));
        assert_eq!(step(&paused, None), Some(json!({"op": "remove", "path": path})));
        assert_eq!((step(&paused, Some("why")), step(&bare, None)), (None, None));
    }

    #[test]
    fn a_command_is_carried_out_once_the_queue_is_in_its_state() {
        assert!(is_done("Closing", "CloseQueue") && is_done("Open", "OpenQueue") && !is_done("Open", "CloseQueue"));
    }

    #[test]
    fn a_pause_over_another_says_what_it_replaced() {
        let said = |before, why| describe_pause(before, why);
        assert!(
            said(Some("upgrade"), Some("incident")).starts_with("all releases were paused already, for: upgrade\n")
        );
        assert_eq!(said(Some("upgrade"), None), "jobs are released; they were paused for: upgrade\n");
        assert_eq!(said(None, None), "releases were not paused\n");
    }

    #[test]
    fn a_drain_takes_what_was_admitted_in_the_queue_and_runs() {
        let binding = |queue: &str, clusters: Value| {
            let record = format!(r#"{{"queue":"{queue}","priority":0,"copies":1,"tasks":{{}},"charged":{{}}}}"#);
            json!({"metadata": {"namespace": "ns", "annotations": {ADMISSION: record}}, "spec": {
                "clusters": clusters, "resource": {
                    "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": "ns", "name": "j"}}})
        };
        let there = || json!([{"name": "m1"}]);
        assert_eq!(find_job_of(&binding("q", there()), "q").unwrap().1.name, "j");
        assert!(find_job_of(&binding("other", there()), "q").is_none());
        assert!(find_job_of(&binding("q", json!([])), "q").is_none(), "it waits already");
    }
}
