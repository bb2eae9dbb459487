//! What the simulated kubelets do: a bound pod starts, runs for the time it declares, and ends as it declares.
//!
//! A real kubelet would run the container; so that one manifest behaves alike on both, the time and the exit code are
//! read from the container's own command (`sleep 5`, `exit 3`, `false`). Annotations under [`PREFIX`] overrule it, and
//! a container that says nothing runs for the configured time where its pod may end, for ever where it may not.

use std::{sync::OnceLock, time::Duration};

use caldera_runtime::{clock::format_time, write::Body};
use jiff::{SignedDuration, Timestamp};
use regex::Regex;
use serde_json::{Value, json};

use super::{
    devices,
    facts::Phase,
    nodes,
    object::{annotation, deleting, list, number, text, uid},
    world::{Kind, Want, World, want_delete, want_merge},
};

/// Annotations that overrule a pod's command.
pub const PREFIX: &str = "sim.caldera.dev/";
/// On a pod: how long it runs, in seconds, or `forever`.
pub const RUN_FOR: &str = "sim.caldera.dev/run-for";
/// On a pod: the exit code it ends with.
pub const EXIT_CODE: &str = "sim.caldera.dev/exit-code";
/// On a pod: how many seconds its containers take to stop once it is deleted; none if it says nothing.
pub const STOPS_IN: &str = "sim.caldera.dev/stops-in";

/// On a pod: when its containers last started, with the fraction of a second. The sandbox writes it.
const STARTED: &str = "sim.caldera.dev/started";

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
pub fn read_behaviour(pod: &Value, default: Duration) -> Behaviour {
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

/// What the kubelet of the pod's node does, if it is simulated.
#[must_use]
pub fn sync_pod(world: &World, pod: &Value, default: Duration, now: Timestamp) -> Next {
    let node = text(pod, "/spec/nodeName");
    if node.is_empty() {
        return Next::Settled;
    }
    let Some(node) = world.named(Kind::Node, node).filter(|node| nodes::is_simulated(node)) else {
        return Next::Settled;
    };
    if deleting(pod) {
        let stopped = stop_time(pod).unwrap_or(now);
        return if now < stopped { Next::At(stopped) } else { Next::Write(Box::new(stop_pod(pod))) };
    }
    match Phase::of(pod) {
        // A change of its claims is looked at again.
        Phase::Pending if !devices::has_its_devices(world, pod) => Next::Settled,
        Phase::Pending => Next::Write(Box::new(start_pod(pod, node, now))),
        Phase::Running => run_pod(pod, default, now),
        _ => Next::Settled,
    }
}

/// When its containers have stopped, if that takes time: at the end of its grace period at the latest.
fn stop_time(pod: &Value) -> Option<Timestamp> {
    let takes = SignedDuration::from_secs(annotation(pod, STOPS_IN).parse().ok()?);
    let killed: Timestamp = text(pod, "/metadata/deletionTimestamp").parse().ok()?;
    let grace = SignedDuration::from_secs(number(pod, "/metadata/deletionGracePeriodSeconds"));
    let stopped = killed.checked_sub(grace).and_then(|asked| asked.checked_add(takes)).ok()?;
    Some(stopped.min(killed))
}

/// Its containers have stopped: confirms the deletion.
fn stop_pod(pod: &Value) -> Want {
    let mut want = want_delete(Kind::Pod, pod);
    want.write.body = Body::DeleteNow { uid: uid(pod).to_owned() };
    want
}

const FIRST: &str = "/status/containerStatuses/0";

fn run_pod(pod: &Value, default: Duration, now: Timestamp) -> Next {
    if pod.pointer(&format!("{FIRST}/state/waiting")).is_some() {
        let ended = text(pod, &format!("{FIRST}/lastState/terminated/finishedAt")).parse().unwrap_or(now);
        let again = time_after(ended, back_off(number(pod, &format!("{FIRST}/restartCount"))));
        return if now < again { Next::At(again) } else { Next::Write(Box::new(restart_pod(pod, None, now))) };
    }
    let behaviour = read_behaviour(pod, default);
    let Some(run_for) = behaviour.run_for else { return Next::Settled };
    let since = text(pod, &format!("{FIRST}/state/running/startedAt"));
    let since: Timestamp = annotation_time(pod).or_else(|| since.parse().ok()).unwrap_or(now);
    let end = time_after(since, run_for);
    if now < end {
        return Next::At(end);
    }
    let restarts = match text(pod, "/spec/restartPolicy") {
        "Never" => false,
        "OnFailure" => behaviour.exit_code != 0,
        _ => true,
    };
    Next::Write(Box::new(if !restarts {
        end_pod(pod, behaviour.exit_code, now)
    } else if back_off(number(pod, &format!("{FIRST}/restartCount"))).is_zero() {
        restart_pod(pod, Some(behaviour.exit_code), now)
    } else {
        backing_off(pod, behaviour.exit_code, now)
    }))
}

fn time_after(since: Timestamp, wait: Duration) -> Timestamp {
    since.checked_add(SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX)).unwrap_or(Timestamp::MAX)
}

/// How long a container that has been restarted so often waits: not at first, then 10 s, 20 s, up to five minutes.
fn back_off(restarts: i64) -> Duration {
    match u32::try_from(restarts).unwrap_or(u32::MAX) {
        0 => Duration::ZERO,
        restarts => Duration::from_secs((10 << (restarts - 1).min(5)).min(300)),
    }
}

/// The start with its fraction of a second, which `startedAt` does not hold.
fn annotation_time(pod: &Value) -> Option<Timestamp> {
    annotation(pod, STARTED).parse().ok()
}

fn start_pod(pod: &Value, node: &Value, now: Timestamp) -> Want {
    let time = format_time(now);
    let status = |container: &Value, state: Value, ready: bool| {
        json!({
            "name": text(container, "/name"), "image": text(container, "/image"), "imageID": "", "ready": ready,
            "started": ready, "restartCount": 0, "state": state,
        })
    };
    let statuses: Vec<Value> = list(pod, "/spec/containers")
        .iter()
        .map(|container| status(container, json!({"running": {"startedAt": time}}), true))
        .collect();
    let init: Vec<Value> = list(pod, "/spec/initContainers")
        .iter()
        .map(|container| match text(container, "/restartPolicy") {
            "Always" => status(container, json!({"running": {"startedAt": time}}), true),
            _ => {
                let done = json!({"exitCode": 0, "reason": "Completed", "startedAt": time, "finishedAt": time});
                let mut status = status(container, json!({"terminated": done}), true);
                status["started"] = false.into();
                status
            }
        })
        .collect();
    let addresses = list(node, "/status/addresses").iter();
    let host =
        addresses.filter(|address| text(address, "/type") == "InternalIP").map(|address| text(address, "/address"));
    let host =
        host.into_iter().next().map_or_else(|| nodes::address_of(10, text(node, "/metadata/name")), str::to_owned);
    let is_on_host = pod.pointer("/spec/hostNetwork").and_then(Value::as_bool) == Some(true);
    let own = if is_on_host { host.clone() } else { nodes::address_of(100, uid(pod)) };
    let mut status = json!({
        "phase": "Running", "startTime": time, "hostIP": host, "hostIPs": [{"ip": host}], "podIP": own,
        "podIPs": [{"ip": own}],
        "conditions": pod_conditions(&["PodScheduled", "Initialized", "ContainersReady", "Ready"], &[], &time),
        "containerStatuses": statuses,
    });
    if !init.is_empty() {
        status["initContainerStatuses"] = init.into();
    }
    want_merge(
        Kind::Pod,
        pod,
        Some("status"),
        json!({"status": status, "metadata": {"annotations": {STARTED: now.to_string()}}}),
    )
}

fn end_pod(pod: &Value, exit_code: i32, now: Timestamp) -> Want {
    let time = format_time(now);
    let statuses = each_status(pod, |status| {
        let done = terminated_state(status, exit_code, &time);
        status["state"] = json!({"terminated": done});
        status["ready"] = false.into();
        status["started"] = false.into();
    });
    let phase = if exit_code == 0 { "Succeeded" } else { "Failed" };
    let status = json!({
        "phase": phase,
        "conditions": pod_conditions(&["PodScheduled", "Initialized"], &["ContainersReady", "Ready"], &time),
        "containerStatuses": statuses,
    });
    want_merge(Kind::Pod, pod, Some("status"), json!({"status": status}))
}

/// The containers run again: after an end now (`exit_code`), or after their wait.
fn restart_pod(pod: &Value, exit_code: Option<i32>, now: Timestamp) -> Want {
    let time = format_time(now);
    let statuses = each_status(pod, |status| {
        if let Some(exit_code) = exit_code {
            let done = terminated_state(status, exit_code, &time);
            status["lastState"] = json!({"terminated": done});
        }
        status["restartCount"] = (number(status, "/restartCount") + 1).into();
        status["state"] = json!({"running": {"startedAt": time}});
        status["ready"] = true.into();
        status["started"] = true.into();
    });
    let met = ["PodScheduled", "Initialized", "ContainersReady", "Ready"];
    let status = json!({"conditions": pod_conditions(&met, &[], &time), "containerStatuses": statuses});
    let annotations = json!({"annotations": {STARTED: now.to_string()}});
    want_merge(Kind::Pod, pod, Some("status"), json!({"status": status, "metadata": annotations}))
}

fn backing_off(pod: &Value, exit_code: i32, now: Timestamp) -> Want {
    let time = format_time(now);
    let statuses = each_status(pod, |status| {
        let done = terminated_state(status, exit_code, &time);
        status["lastState"] = json!({"terminated": done});
        let message = format!("back-off restarting failed container={}", text(status, "/name"));
        status["state"] = json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}});
        status["ready"] = false.into();
        status["started"] = false.into();
    });
    let (met, unmet) = (["PodScheduled", "Initialized"], ["ContainersReady", "Ready"]);
    let status = json!({"conditions": pod_conditions(&met, &unmet, &time), "containerStatuses": statuses});
    want_merge(Kind::Pod, pod, Some("status"), json!({"status": status}))
}

fn each_status(pod: &Value, change: impl Fn(&mut Value)) -> Vec<Value> {
    let mut statuses = list(pod, "/status/containerStatuses").to_vec();
    statuses.iter_mut().for_each(change);
    statuses
}

fn terminated_state(status: &Value, exit_code: i32, time: &str) -> Value {
    let started = status.pointer("/state/running/startedAt").cloned().unwrap_or_else(|| json!(time));
    let reason = if exit_code == 0 { "Completed" } else { "Error" };
    json!({"exitCode": exit_code, "reason": reason, "startedAt": started, "finishedAt": time})
}

fn pod_conditions(met: &[&str], unmet: &[&str], time: &str) -> Vec<Value> {
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
            let b = read_behaviour(pod, default);
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
        assert_eq!(
            read_behaviour(&pod, Duration::ZERO),
            Behaviour { run_for: Some(Duration::from_secs(2)), exit_code: 7 }
        );
        pod["metadata"]["annotations"][RUN_FOR] = "forever".into();
        assert_eq!(read_behaviour(&pod, Duration::ZERO).run_for, None);
    }
}
