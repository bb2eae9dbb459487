//! `caldera job move`: says to which clusters a job may go, and takes it off those where it may not be.
//!
//! Rule: what its user chooses are two annotations of the job (`caldera.dev/clusters`, `caldera.dev/exclude-clusters`);
//! what was chosen before counts no more. They narrow what its policy selects and change nothing of the policy. A job
//! that could never start there stays as it is, and so does one that runs where there is no capacity now, unless it may
//! wait. What is in other clusters goes by the way of `caldera job requeue`: whole, and in line with its age.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
};

use anyhow::Context;
use caldera_controller::explain::{MoveAnswer, explain_move, explain_refusals, find_binding};
use caldera_core::{cluster_choice::ClusterChoice, gang::WorkloadRef, text::count_noun};
use caldera_crds::{
    names::caldera::{CLUSTERS, EXCLUDE_CLUSTERS},
    workload::WorkloadKind,
};
use caldera_runtime::write::Body;
use kube::Client;
use serde_json::{Value, json};

use super::requeue;
use crate::{
    args::JobMoveArgs,
    change::{build_tested_patch, build_write, print_outcome, to_exit_code, write_retrying_conflicts},
    components, live,
    objects::{self, annotation_of, annotation_path, get_job, get_object, list_clusters_of, list_objects, name_of},
    output,
    view::WorkloadFacts,
};

pub(super) async fn move_job(args: JobMoveArgs) -> anyhow::Result<ExitCode> {
    let (client, namespace) = components::connect_scope(&args.scope, "job").await?;
    let choice =
        ClusterChoice { only: args.to.iter().cloned().collect(), exclude: args.away_from.iter().cloned().collect() };
    let outcome = choose_and_requeue(&client, &namespace, &args, &choice).await;
    Ok(to_exit_code(print_outcome(&args.job.to_string(), outcome)))
}

async fn choose_and_requeue(
    client: &Client,
    namespace: &str,
    args: &JobMoveArgs,
    choice: &ClusterChoice,
) -> anyhow::Result<String> {
    let job = &args.job;
    let object = get_job(client, namespace, job.kind, &job.name).await?;
    let has_ended = WorkloadFacts::read(&object).is_some_and(|(_, facts)| facts.has_ended());
    anyhow::ensure!(!has_ended, "not moved: it has ended");
    check_names(client, choice).await?;

    let mut live = live::read_live(client, Some(namespace), args.lease_namespace.as_deref()).await?;
    let (group, kind) = (job.kind.group().to_owned(), job.kind.kind().to_owned());
    let workload = WorkloadRef { group, kind, namespace: namespace.to_owned(), name: job.name.clone() };
    let key = find_binding(&live.controller, &workload)
        .context("not moved: no ResourceBinding was made from it; `caldera why` says why")?;
    let binding = get_object(client, &objects::binding_resource(), Some(namespace), &key.name).await?;
    let binding = binding.map_err(anyhow::Error::msg)?.context("not moved: its ResourceBinding is gone")?;
    anyhow::ensure!(
        objects::is_managed_by_caldera(&binding),
        "not moved: it is in no queue, so that nobody looks at its clusters"
    );
    let leaves = list_clusters_to_leave(&binding, choice);
    let answer = explain_move(&mut live.controller, &key, choice.clone()).unwrap_or(MoveAnswer::Unknown);
    let refusals = explain_refusals(&live.controller, &key, &choice.only);
    let outlook = judge_move(job.kind, &answer, &refusals, &leaves, args.may_wait).map_err(anyhow::Error::msg)?;

    let is_changed = write_retrying_conflicts(client, async || {
        let object = get_job(client, namespace, job.kind, &job.name).await?;
        Ok(build_choice_patch(&object, choice).map(|body| build_write(&job.kind.api_resource(), &object, body)))
    });
    let chosen = if is_changed.await? { "may go" } else { "might go already" };
    let place = describe_choice(choice);
    if leaves.is_empty() {
        return Ok(format!("{chosen} {place}: {outlook}"));
    }
    let requeued = requeue::requeue_job(client, namespace, job).await;
    let reported = requeued.with_context(|| format!("{chosen} {place}, but stays in {} for now", leaves.join(", ")))?;
    Ok(format!("{chosen} {place}, and leaves {}: {reported}; {outlook}", leaves.join(", ")))
}

/// A misspelt name would keep the job waiting for ever.
async fn check_names(client: &Client, choice: &ClusterChoice) -> anyhow::Result<()> {
    let there = match list_objects(client, &objects::cluster_resource(), None, None).await? {
        Ok(there) => there,
        Err(why) => {
            output::write_warning(&format!("whether there are such clusters is not known: {why}"));
            return Ok(());
        }
    };
    let there: BTreeSet<&str> = there.iter().map(name_of).collect();
    let all: Vec<&str> = there.iter().copied().collect();
    for name in choice.only.iter().chain(&choice.exclude) {
        anyhow::ensure!(there.contains(name.as_str()), "there is no cluster {name}; there are {}", all.join(", "));
    }
    Ok(())
}

/// Clusters that it is in, if it may not be in one of them: a gang leaves whole.
fn list_clusters_to_leave(binding: &Value, choice: &ClusterChoice) -> Vec<String> {
    let there = list_clusters_of(binding);
    if there.iter().all(|cluster| choice.allows(cluster)) { Vec::new() } else { there }
}

/// What becomes of it there; or why it is not moved.
fn judge_move(
    kind: WorkloadKind,
    answer: &MoveAnswer,
    refusals: &[String],
    leaves: &[String],
    may_wait: bool,
) -> Result<String, String> {
    let refused = refusals.iter().fold(String::new(), |reported, refusal| format!("{reported}; {refusal}"));
    let runs = !leaves.is_empty();
    if runs && kind != WorkloadKind::VolcanoJob {
        return Err(format!(
            "not moved: it is in {}, and only Volcano Jobs are requeued; suspend it, move it, and resume it",
            leaves.join(", ")
        ));
    }
    match answer {
        MoveAnswer::Never(why) => Err(format!("not moved: it could never start there: {why}{refused}")),
        MoveAnswer::Waits(why) if runs && !may_wait => {
            Err(format!("not moved: it runs, and would wait there: {why}{refused}; --may-wait moves it all the same"))
        }
        MoveAnswer::Unknown if runs && !may_wait => {
            Err("not moved: it runs, and whether there is room is not known, since you may not see all that decides; \
             --may-wait moves it all the same"
                .to_owned())
        }
        MoveAnswer::Fits(pods) => Ok(format!("there is room now for {}{refused}", describe_pods(pods))),
        MoveAnswer::Waits(why) => Ok(format!("there is no room now: {why}{refused}")),
        MoveAnswer::Unknown => Ok(format!("whether there is room is not known{refused}")),
    }
}

fn describe_pods(pods: &BTreeMap<String, u64>) -> String {
    let in_cluster = |(cluster, pods): (&String, &u64)| format!("{} in {cluster}", count_noun(*pods, "pod"));
    let parts: Vec<String> = pods.iter().map(in_cluster).collect();
    parts.join(", ")
}

fn describe_choice(choice: &ClusterChoice) -> String {
    let list = |names: &BTreeSet<String>| names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    match (choice.only.is_empty(), choice.exclude.is_empty()) {
        (true, true) => "wherever its policy lets it".to_owned(),
        (false, true) => format!("to {} alone", list(&choice.only)),
        (true, false) => format!("anywhere but to {}", list(&choice.exclude)),
        (false, false) => format!("to {} alone, and not to {}", list(&choice.only), list(&choice.exclude)),
    }
}

/// Both annotations, as they are to be; nothing where they are so already.
fn build_choice_patch(object: &Value, choice: &ClusterChoice) -> Option<Body> {
    let wanted = [(CLUSTERS, &choice.only), (EXCLUDE_CLUSTERS, &choice.exclude)];
    let has_annotations = object["metadata"]["annotations"].is_object();
    let mut steps = Vec::new();
    for (name, names) in wanted {
        let value = names.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        match annotation_of(object, name) {
            Some(there) if there == value => {}
            Some(_) if value.is_empty() => steps.push(json!({"op": "remove", "path": annotation_path(name)})),
            None if value.is_empty() => {}
            _ => steps.push(json!({"op": "add", "path": annotation_path(name), "value": value})),
        }
    }
    if !steps.is_empty() && !has_annotations {
        steps.insert(0, json!({"op": "add", "path": "/metadata/annotations", "value": {}}));
    }
    (!steps.is_empty()).then(|| build_tested_patch(object, steps))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(only: &[&str], exclude: &[&str]) -> ClusterChoice {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        ClusterChoice { only: names(only), exclude: names(exclude) }
    }

    fn patch(annotations: Value, choice: &ClusterChoice) -> Option<Value> {
        let object = json!({"metadata": {"resourceVersion": "7", "annotations": annotations}});
        build_choice_patch(&object, choice).map(|body| match body {
            Body::JsonPatch(patch) => patch,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn a_choice_replaces_the_one_before_and_touches_no_other_annotation() {
        let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"});
        let (only, exclude) =
            ("/metadata/annotations/caldera.dev~1clusters", "/metadata/annotations/caldera.dev~1exclude-clusters");
        let to = choice(&["m2", "m1"], &[]);
        let add = json!({"op": "add", "path": only, "value": "m1,m2"});
        assert_eq!(patch(json!({"a": "b"}), &to), Some(json!([test, add])));
        let first = json!({"op": "add", "path": "/metadata/annotations", "value": {}});
        assert_eq!(patch(Value::Null, &to), Some(json!([test, first, add])));
        let remove = json!({"op": "remove", "path": exclude});
        assert_eq!(patch(json!({"caldera.dev/exclude-clusters": "m3"}), &to), Some(json!([test, add, remove])));
        assert_eq!(patch(json!({"caldera.dev/clusters": "m1,m2"}), &to), None);
        let anywhere = choice(&[], &[]);
        let remove = json!({"op": "remove", "path": only});
        assert_eq!(patch(json!({"caldera.dev/clusters": "m1"}), &anywhere), Some(json!([test, remove])));
        assert_eq!(patch(Value::Null, &anywhere), None);
    }

    #[test]
    fn a_gang_leaves_whole_where_one_part_may_not_stay() {
        let binding = json!({"spec": {"clusters": [{"name": "m1"}, {"name": "m2"}]}});
        assert_eq!(list_clusters_to_leave(&binding, &choice(&[], &["m2"])), ["m1", "m2"]);
        assert_eq!(list_clusters_to_leave(&binding, &choice(&["m1", "m2", "m3"], &[])), [""; 0]);
        assert_eq!(list_clusters_to_leave(&json!({}), &choice(&["m1"], &[])), [""; 0]);
    }

    #[test]
    fn what_runs_is_moved_only_to_where_it_can_start() {
        let runs = ["m1".to_owned()];
        let judge = |answer: &MoveAnswer, leaves: &[String], may_wait: bool| {
            judge_move(WorkloadKind::VolcanoJob, answer, &["m3: cordoned".to_owned()], leaves, may_wait)
        };
        let never = judge(&MoveAnswer::Never("too large".to_owned()), &[], true);
        assert_eq!(never.unwrap_err(), "not moved: it could never start there: too large; m3: cordoned");
        let full = MoveAnswer::Waits("full".to_owned());
        assert!(judge(&full, &runs, false).unwrap_err().contains("would wait there: full"));
        assert_eq!(judge(&full, &runs, true).unwrap(), "there is no room now: full; m3: cordoned");
        assert_eq!(judge(&full, &[], false).unwrap(), "there is no room now: full; m3: cordoned");
        assert!(judge(&MoveAnswer::Unknown, &runs, false).unwrap_err().contains("you may not see"));
        let fits = MoveAnswer::Fits([("m2".to_owned(), 4)].into());
        assert_eq!(judge(&fits, &runs, false).unwrap(), "there is room now for 4 pods in m2; m3: cordoned");
        let service = judge_move(WorkloadKind::Deployment, &fits, &[], &runs, true);
        assert!(service.unwrap_err().contains("only Volcano Jobs are requeued"));
    }
}
