//! What the simulated kubelets do: a bound pod starts, runs for the time it declares, and ends as it declares.
//!
//! A real kubelet would run the container; so that one manifest behaves alike on both, the time and the exit code are
//! read from the container's own command (`sleep 5`, `exit 3`, `false`). Annotations under [`PREFIX`] overrule it, and
//! a container that says nothing runs for the configured time where its pod may end, for ever where it may not.

use std::{sync::OnceLock, time::Duration};

use caldera_runtime::clock::rfc3339;
use jiff::{SignedDuration, Timestamp};
use regex::Regex;
use serde_json::{Value, json};

use super::{
    object::{annotation, deleting, list, text},
    world::{Kind, Want, World, delete, merge},
};

/// Annotations that overrule a pod's command.
pub const PREFIX: &str = "sim.caldera.dev/";
/// How long the pod runs: seconds, or `forever`.
pub const RUN_FOR: &str = "sim.caldera.dev/run-for";
/// The exit code it ends with.
pub const EXIT_CODE: &str = "sim.caldera.dev/exit-code";

/// What a pod does once it is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behaviour {
    /// `None`: until it is deleted.
    pub run_for: Option<Duration>,
    /// Zero is success.
    pub exit_code: i32,
}

/// Reads what `pod` declares; `default` is how long a pod that may end runs if it says nothing.
#[must_use]
pub fn behaviour(pod: &Value, default: Duration) -> Behaviour {
    let command: Vec<&str> = list(pod, "/spec/containers")
        .iter()
        .flat_map(|container| list(container, "/command").iter().chain(list(container, "/args")))
        .filter_map(Value::as_str)
        .collect();
    let command = command.join(" ");
    let (declared, exit_code) = from_command(&command);
    let may_end = matches!(text(pod, "/spec/restartPolicy"), "Never" | "OnFailure");
    let run_for = match annotation(pod, RUN_FOR) {
        "forever" => None,
        seconds if !seconds.is_empty() => seconds.trim_end_matches('s').parse().ok().map(Duration::from_secs_f64),
        _ => declared.or(may_end.then_some(default)),
    };
    Behaviour { run_for, exit_code: annotation(pod, EXIT_CODE).parse().unwrap_or(exit_code) }
}

fn from_command(command: &str) -> (Option<Duration>, i32) {
    static SLEEP: OnceLock<Option<Regex>> = OnceLock::new();
    static EXIT: OnceLock<Option<Regex>> = OnceLock::new();
    let first = |cell: &'static OnceLock<Option<Regex>>, pattern: &str| -> Option<String> {
        let regex = cell.get_or_init(|| Regex::new(pattern).ok()).as_ref()?;
        Some(regex.captures(command)?.get(1)?.as_str().to_owned())
    };
    let sleep = first(&SLEEP, r"\bsleep (\d+(?:\.\d+)?)s?\b").and_then(|seconds| seconds.parse().ok());
    let exit = first(&EXIT, r"\bexit (\d+)\b").and_then(|code| code.parse().ok());
    let exit = exit.unwrap_or_else(|| i32::from(command.split([' ', ';', '&']).any(|word| word == "false")));
    // `exit` alone ends at once.
    let run_for = sleep.or((exit != 0).then_some(0.0)).map(Duration::from_secs_f64);
    (run_for, exit)
}

/// What to write for `pod` now, or when to look again.
#[derive(Debug, PartialEq)]
pub enum Next {
    /// Nothing will happen by itself.
    Settled,
    /// Look again then.
    At(Timestamp),
    /// Write this.
    Write(Box<Want>),
}

/// What the kubelet of the pod's node does.
#[must_use]
pub fn sync(world: &World, pod: &Value, default: Duration, now: Timestamp) -> Next {
    let node = text(pod, "/spec/nodeName");
    if node.is_empty() || world.get(Kind::Node, &(String::new(), node.to_owned())).is_none() {
        return Next::Settled;
    }
    if deleting(pod) {
        // The container has been stopped: confirm with a deletion without grace.
        let mut want = delete(Kind::Pod, pod);
        want.write.body = caldera_runtime::write::Body::Delete { uid: None };
        return Next::Write(Box::new(want));
    }
    match text(pod, "/status/phase") {
        "" | "Pending" => Next::Write(Box::new(started(pod, node, now))),
        "Running" => {
            let behaviour = behaviour(pod, default);
            let Some(run_for) = behaviour.run_for else { return Next::Settled };
            let since = text(pod, "/status/containerStatuses/0/state/running/startedAt");
            let since: Timestamp = annotation_time(pod).or_else(|| since.parse().ok()).unwrap_or(now);
            let end = since.checked_add(SignedDuration::try_from(run_for).unwrap_or(SignedDuration::MAX));
            let end = end.unwrap_or(Timestamp::MAX);
            if now < end {
                return Next::At(end);
            }
            let restarts = match text(pod, "/spec/restartPolicy") {
                "Never" => false,
                "OnFailure" => behaviour.exit_code != 0,
                _ => true,
            };
            if restarts { Next::Settled } else { Next::Write(Box::new(ended(pod, behaviour.exit_code, now))) }
        }
        _ => Next::Settled,
    }
}

/// The start with its fraction of a second, which `startedAt` does not hold.
fn annotation_time(pod: &Value) -> Option<Timestamp> {
    annotation(pod, "sim.caldera.dev/started").parse().ok()
}

fn started(pod: &Value, node: &str, now: Timestamp) -> Want {
    let time = rfc3339(now);
    let statuses: Vec<Value> = list(pod, "/spec/containers")
        .iter()
        .map(|container| {
            json!({
                "name": text(container, "/name"), "image": text(container, "/image"), "imageID": "", "ready": true,
                "started": true, "restartCount": 0, "state": {"running": {"startedAt": time}},
            })
        })
        .collect();
    let status = json!({
        "phase": "Running", "startTime": time, "hostIP": "10.0.0.1", "podIP": "10.1.0.1",
        "conditions": conditions(&["PodScheduled", "Initialized", "ContainersReady", "Ready"], &[], &time),
        "containerStatuses": statuses,
    });
    let _ = node;
    merge(
        Kind::Pod,
        pod,
        Some("status"),
        json!({"status": status, "metadata": {"annotations": {"sim.caldera.dev/started": now.to_string()}}}),
    )
}

fn ended(pod: &Value, exit_code: i32, now: Timestamp) -> Want {
    let time = rfc3339(now);
    let (phase, reason) = if exit_code == 0 { ("Succeeded", "Completed") } else { ("Failed", "Error") };
    let statuses: Vec<Value> = list(pod, "/status/containerStatuses")
        .iter()
        .map(|container| {
            let started = container.pointer("/state/running/startedAt").cloned().unwrap_or_else(|| json!(time));
            json!({
                "name": text(container, "/name"), "image": text(container, "/image"), "imageID": "", "ready": false,
                "started": false, "restartCount": 0,
                "state": {"terminated": {
                    "exitCode": exit_code, "reason": reason, "startedAt": started, "finishedAt": time,
                }},
            })
        })
        .collect();
    let status = json!({
        "phase": phase,
        "conditions": conditions(&["PodScheduled", "Initialized"], &["ContainersReady", "Ready"], &time),
        "containerStatuses": statuses,
    });
    merge(Kind::Pod, pod, Some("status"), json!({"status": status}))
}

fn conditions(met: &[&str], unmet: &[&str], time: &str) -> Vec<Value> {
    let condition = |name: &str, status: &str| json!({"type": name, "status": status, "lastTransitionTime": time});
    met.iter().map(|name| condition(name, "True")).chain(unmet.iter().map(|name| condition(name, "False"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(policy: &str, command: &[&str]) -> Value {
        json!({"spec": {"restartPolicy": policy, "containers": [{"name": "c", "command": command}]}})
    }

    #[test]
    fn a_command_says_how_long_and_how_it_ends() {
        let default = Duration::from_secs(3);
        let says = |pod: &Value| {
            let b = behaviour(pod, default);
            (b.run_for.map(|d| d.as_millis()), b.exit_code)
        };
        assert_eq!(says(&pod("Never", &["sleep", "5"])), (Some(5000), 0));
        assert_eq!(says(&pod("Never", &["sh", "-c", "sleep 1.5; exit 3"])), (Some(1500), 3));
        assert_eq!(says(&pod("Never", &["false"])), (Some(0), 1));
        assert_eq!(says(&pod("OnFailure", &["python", "train.py"])), (Some(3000), 0));
        assert_eq!(says(&pod("Always", &["nginx"])), (None, 0));
    }

    #[test]
    fn annotations_overrule_the_command() {
        let mut pod = pod("Never", &["sleep", "5"]);
        pod["metadata"]["annotations"] = json!({RUN_FOR: "2s", EXIT_CODE: "7"});
        assert_eq!(behaviour(&pod, Duration::ZERO), Behaviour { run_for: Some(Duration::from_secs(2)), exit_code: 7 });
        pod["metadata"]["annotations"][RUN_FOR] = "forever".into();
        assert_eq!(behaviour(&pod, Duration::ZERO).run_for, None);
    }
}
