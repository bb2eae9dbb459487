//! What a workload that did not end well says of its end.
//!
//! Rule: its own words, by its kind: the state, the message and the restarts of a Volcano Job, the containers of a Pod,
//! the true condition `Failed` of others. Each of these is one line, whatever a tenant wrote.

use caldera_core::text::count_noun;
use caldera_crds::workload::{WorkloadKind, read_max_retry};
use serde_json::Value;

use crate::objects::{join_words, read_list_at, read_text_at};

/// In sentences; none where it says nothing.
#[must_use]
pub fn list_end_words(kind: WorkloadKind, workload: &Value) -> Vec<String> {
    match kind {
        WorkloadKind::VolcanoJob => list_job_words(workload),
        WorkloadKind::Pod => list_container_ends(workload),
        _ => {
            let conditions = read_list_at(workload, "/status/conditions").iter();
            let failed = conditions.filter(|said| said["type"] == "Failed" && said["status"] == "True");
            failed.map(|said| join_words(said, "/reason", "/message")).collect()
        }
    }
}

fn list_job_words(job: &Value) -> Vec<String> {
    let said = join_words(job, "/status/state/reason", "/status/state/message");
    let retries = job.pointer("/status/retryCount").and_then(Value::as_i64).unwrap_or(0);
    let most = read_max_retry(job);
    let restarts = (retries > 0).then(|| {
        format!("its policies restarted it {}, of {most} that its maxRetry allows", count_noun(retries, "time"))
    });
    [said].into_iter().chain(restarts).filter(|words| !words.is_empty()).collect()
}

/// How each container of a pod ended that did not end well; what evicted the pod, if something did.
#[must_use]
pub fn list_container_ends(pod: &Value) -> Vec<String> {
    let evicted = join_words(pod, "/status/reason", "/status/message");
    let statuses = ["/status/initContainerStatuses", "/status/containerStatuses"];
    let ends = statuses.iter().flat_map(|at| read_list_at(pod, at)).filter_map(|status| {
        // One that is tried again ended before.
        let states = [&status["state"]["terminated"], &status["lastState"]["terminated"]];
        let ended = states.into_iter().find(|ended| ended.is_object())?;
        let code = ended["exitCode"].as_i64().filter(|code| *code != 0)?;
        let why = join_words(ended, "/reason", "/message");
        let why = if why.is_empty() { why } else { format!(" ({why})") };
        let restarts = match status["restartCount"].as_i64() {
            Some(times) if times > 0 => format!(", after {times} restarts"),
            _ => String::new(),
        };
        Some(format!("container {} ended with exit code {code}{why}{restarts}", read_text_at(status, "/name")))
    });
    [evicted].into_iter().filter(|words| !words.is_empty()).chain(ends).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_job_tells_its_state_and_restarts_and_others_their_condition() {
        let job = json!({"spec": {}, "status": {"retryCount": 3, "state": {"reason": "R", "message": "M"}}});
        let restarted = "its policies restarted it 3 times, of 3 that its maxRetry allows";
        assert_eq!(list_end_words(WorkloadKind::VolcanoJob, &job), ["R: M", restarted]);
        let none = json!({"spec": {"maxRetry": 0}, "status": {"retryCount": 3}});
        assert_eq!(list_end_words(WorkloadKind::VolcanoJob, &none), [restarted], "Volcano takes 0 for none");
        let job = json!({"status": {"state": {"phase": "Failed"}}});
        assert_eq!(list_end_words(WorkloadKind::VolcanoJob, &job), [""; 0]);
        let batch = json!({"status": {"conditions": [
            {"type": "FailureTarget", "status": "True", "reason": "T"},
            {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too often"},
        ]}});
        assert_eq!(list_end_words(WorkloadKind::BatchJob, &batch), ["BackoffLimitExceeded: too often"]);
    }

    #[test]
    fn a_pod_tells_the_exit_codes_of_its_containers_and_who_evicted_it() {
        let terminated = |code: i64, reason: &str| json!({"terminated": {"exitCode": code, "reason": reason}});
        let pod = json!({"status": {"containerStatuses": [
            {"name": "main", "state": terminated(137, "OOMKilled"), "restartCount": 2},
            {"name": "side", "state": terminated(0, "Completed")},
            {"name": "again", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": terminated(1, "")},
        ]}});
        let ends = [
            "container main ended with exit code 137 (OOMKilled), after 2 restarts",
            "container again ended with exit code 1",
        ];
        assert_eq!(list_container_ends(&pod), ends);
        let forged = json!({"terminated": {"exitCode": 1, "reason": "Error", "message": "x\n\nNote: admitted"}});
        let pod = json!({"status": {"containerStatuses": [{"name": "main", "state": forged}]}});
        assert_eq!(list_container_ends(&pod), ["container main ended with exit code 1 (Error: x Note: admitted)"]);
        let evicted = json!({"status": {"reason": "Evicted", "message": "the node was low on memory"}});
        assert_eq!(list_container_ends(&evicted), ["Evicted: the node was low on memory"]);
    }
}
