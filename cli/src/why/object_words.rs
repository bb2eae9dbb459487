//! What a job's own object and its pods in members say, beside what decides: of one that Karmada may not have looked
//! at, of one that does not run, and of one that did not end well.
//!
//! Rule: read where it is of use alone, with the caller's own rights. A member that does not answer, or not in time, is
//! told. Pods that say the same are one line.

use std::{collections::BTreeMap, time::Duration};

use caldera_controller::explain::{Explanation, Placed, Verdict};
use caldera_crds::workload::WorkloadKind;
use futures::future::join_all;
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;

use crate::{
    args::JobName,
    objects::{get_object, join_words, name_of, read_list_at, read_text_at},
    pods::connect_and_list_pods,
    view::{NOT_LOOKED_AT, State, YOUNG_SECONDS, compute_state_from_objects, list_container_ends, list_end_words},
};

/// How long a member may take to list the job's pods.
const MEMBER_DEADLINE: Duration = Duration::from_secs(5);
/// Different words of one member that are shown.
const MOST_WORDS: usize = 3;

/// Adds what is worth knowing to an explanation.
pub(super) async fn add_object_words(client: &Client, job: &JobName, namespace: &str, explanation: &mut Explanation) {
    let asks_for_pods = has_missing_pods(explanation);
    if !asks_for_pods && !matches!(explanation.verdict, Verdict::NoBinding | Verdict::Finished) {
        return;
    }
    let found = get_object(client, &job.kind.api_resource(), Some(namespace), &job.name).await;
    let Ok(Ok(Some(workload))) = found else { return };
    if explanation.verdict == Verdict::NoBinding {
        note_age(explanation, &workload, Timestamp::now());
        return;
    }
    let failed = [State::Failed, State::Terminated, State::Aborted];
    let has_failed = failed.contains(&compute_state_from_objects(&workload, None));
    if explanation.verdict == Verdict::Finished && !has_failed {
        return;
    }
    if has_failed {
        explanation.notes.extend(list_end_words(job.kind, &workload));
    }
    let list = |placed: &Placed| list_pod_words(client, placed.cluster.to_string(), namespace, &workload, job.kind);
    let words = join_all(explanation.placed.iter().map(list)).await;
    explanation.notes.extend(words.into_iter().flatten());
}

fn has_missing_pods(explanation: &Explanation) -> bool {
    let planned = |placed: &Placed| match placed.tasks.values().sum::<u32>() {
        0 => placed.replicas,
        pods => pods,
    };
    let lacks = |placed: &Placed| placed.on_nodes.is_some_and(|pods| pods < planned(placed));
    match explanation.verdict {
        Verdict::Placed => true,
        Verdict::Running => explanation.placed.iter().any(lacks),
        _ => false,
    }
}

/// When a job without a binding was made; one that is younger than Karmada needs is not called unselected.
fn note_age(explanation: &mut Explanation, workload: &Value, now: Timestamp) {
    let text = read_text_at(workload, "/metadata/creationTimestamp");
    let Ok(created) = text.parse::<Timestamp>() else { return };
    explanation.created = Some(text.to_owned());
    explanation.age_seconds = now.as_second().saturating_sub(created.as_second()).max(0);
    if explanation.age_seconds < YOUNG_SECONDS {
        let age = explanation.age_seconds;
        explanation.sentence = format!("{NOT_LOOKED_AT}: it was made {age} s ago; ask again in some seconds");
    }
}

/// Whether it is too young for an answer.
pub(super) fn is_not_looked_at(explanation: &Explanation) -> bool {
    explanation.verdict == Verdict::NoBinding
        && explanation.created.is_some()
        && explanation.age_seconds < YOUNG_SECONDS
}

async fn list_pod_words(
    client: &Client,
    cluster: String,
    namespace: &str,
    workload: &Value,
    kind: WorkloadKind,
) -> Vec<String> {
    let list = connect_and_list_pods(client, &cluster, namespace, workload, kind, "why");
    match tokio::time::timeout(MEMBER_DEADLINE, list).await {
        Ok(Ok((_, pods))) => describe_pods(&cluster, &pods),
        Ok(Err(error)) => vec![format!("{cluster}: its pods there are not seen: {error:#}")],
        Err(_) => vec![format!("{cluster}: its pods there are not seen: no answer in {} s", MEMBER_DEADLINE.as_secs())],
    }
}

/// What pods say that do not run, or ended badly; that there are none.
fn describe_pods(cluster: &str, pods: &[Value]) -> Vec<String> {
    if pods.is_empty() {
        return vec![format!("{cluster}: there are no pods of it")];
    }
    let mut said: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for pod in pods {
        if let Some(words) = describe_pod(pod) {
            said.entry(words).or_default().push(name_of(pod));
        }
    }
    let more = said.len().saturating_sub(MOST_WORDS);
    let line = |(words, pods): (String, Vec<&str>)| match &pods[..] {
        [pod] => format!("{cluster}: pod {pod}: {words}"),
        all => format!("{cluster}: {} pods, the first {}: {words}", all.len(), all[0]),
    };
    let mut lines: Vec<String> = said.into_iter().take(MOST_WORDS).map(line).collect();
    if more > 0 {
        lines.push(format!("{cluster}: and {more} more that pods say"));
    }
    lines
}

fn describe_pod(pod: &Value) -> Option<String> {
    let ends = list_container_ends(pod).join("; ");
    match read_text_at(pod, "/status/phase") {
        "Succeeded" => None,
        "Failed" if ends.is_empty() => Some("Failed".to_owned()),
        "Failed" => Some(ends),
        phase => {
            let conditions = read_list_at(pod, "/status/conditions").iter();
            let mut unmet = conditions.filter(|said| said["type"] == "PodScheduled" && said["status"] == "False");
            let unmet = unmet.next().map(|said| join_words(said, "/reason", "/message"));
            let waits = || {
                let statuses = ["/status/initContainerStatuses", "/status/containerStatuses"];
                let mut all = statuses.iter().flat_map(|at| read_list_at(pod, at));
                all.find_map(|status| {
                    Some(status.pointer("/state/waiting")?).map(|waits| join_words(waits, "/reason", "/message"))
                })
            };
            let words = [unmet.or_else(waits).unwrap_or_default(), ends];
            let words = words.into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>().join("; ");
            match phase {
                "Running" => Some(words).filter(|words| !words.is_empty()),
                _ if words.is_empty() && read_text_at(pod, "/spec/nodeName").is_empty() => {
                    Some("Pending, and no scheduler has said why".to_owned())
                }
                _ if words.is_empty() => Some("Pending on its node".to_owned()),
                _ => Some(format!("Pending: {words}")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, status: Value) -> Value {
        json!({"metadata": {"name": name}, "spec": {}, "status": status})
    }

    /// Found by a reader: of a gang that hung half started nobody said where, and what its member's scheduler said.
    #[test]
    fn pods_that_wait_for_the_same_are_one_line_and_those_that_run_none() {
        let unschedulable = |text: &str| {
            json!({"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": text}]})
        };
        let pulls = json!({"phase": "Pending", "containerStatuses": [
            {"name": "c", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]});
        let pods = [
            pod("w-0", json!({"phase": "Running"})),
            pod("w-1", unschedulable("2 Insufficient cpu")),
            pod("w-2", unschedulable("2 Insufficient cpu")),
            pod("w-3", pulls),
            pod("w-4", json!({"phase": "Pending"})),
            pod("w-5", json!({"phase": "Succeeded"})),
        ];
        let said = [
            "m1: pod w-4: Pending, and no scheduler has said why",
            "m1: pod w-3: Pending: ImagePullBackOff",
            "m1: 2 pods, the first w-1: Pending: Unschedulable: 2 Insufficient cpu",
        ];
        assert_eq!(describe_pods("m1", &pods), said);
        assert_eq!(describe_pods("m1", &[]), ["m1: there are no pods of it"]);
    }

    /// Found by a reader: of a job that failed no exit code was told.
    #[test]
    fn pods_that_failed_say_how_and_many_different_words_are_counted() {
        let ended = |code: u64| {
            let ended = json!({"terminated": {"exitCode": code, "reason": "Error"}});
            json!({"phase": "Failed", "containerStatuses": [{"name": "main", "state": ended}]})
        };
        let words = describe_pods("m1", &[pod("w-0", ended(1)), pod("w-1", ended(1))]);
        assert_eq!(words, ["m1: 2 pods, the first w-0: container main ended with exit code 1 (Error)"]);
        let many: Vec<Value> = (1..6).map(|code| pod("w", ended(code))).collect();
        assert_eq!(describe_pods("m1", &many).last().unwrap(), "m1: and 2 more that pods say");
    }
}
