//! Pods: their state is worked out from their containers.

use jiff::Timestamp;
use serde_json::Value;

use super::*;

pub fn print_pod(o: &Value, now: Timestamp) -> Vec<Value> {
    let state = PodState::of(o);
    let restarts = match state.last_restart.filter(|_| state.restarts > 0) {
        Some(last) => format!("{} ({} ago)", state.restarts, human_duration(now.duration_since(last).as_secs())),
        None => state.restarts.to_string(),
    };
    let gates = list_at(o, "spec.readinessGates");
    let passed = gates.iter().filter(|g| {
        let holds = |c: &&Value| text_at(c, "type") == text_at(g, "conditionType") && text_at(c, "status") == "True";
        list_at(o, "status.conditions").iter().any(|c| holds(&c))
    });
    cells![
        name_cell(o),
        format!("{}/{}", state.ready, state.containers),
        state.reason,
        restarts,
        age_cell(o, now),
        text_or(o, "status.podIP", NONE),
        text_or(o, "spec.nodeName", NONE),
        text_or(o, "status.nominatedNodeName", NONE),
        if gates.is_empty() { NONE.to_owned() } else { format!("{}/{}", passed.count(), gates.len()) }
    ]
}

/// What the containers' states add up to.
struct PodState {
    ready: usize,
    containers: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
    /// Those of init containers that go on beside the main ones.
    beside: (i64, Option<Timestamp>),
    reason: String,
}

impl PodState {
    fn of(o: &Value) -> PodState {
        let mut state = PodState {
            ready: 0,
            containers: count_at(o, "spec.containers"),
            restarts: 0,
            last_restart: None,
            beside: (0, None),
            reason: text_or(o, "status.reason", &text_at(o, "status.phase")),
        };
        let gated = |c: &&Value| text_at(c, "type") == "PodScheduled" && text_at(c, "reason") == "SchedulingGated";
        if list_at(o, "status.conditions").iter().any(|c| gated(&c)) {
            state.reason = "SchedulingGated".into();
        }
        if !state.initializing(o) {
            state.running(o);
        }
        if value_at(o, "metadata.deletionTimestamp").is_some() {
            let lost = text_at(o, "status.reason") == "NodeLost";
            if lost {
                state.reason = "Unknown".into();
            } else if !matches!(text_at(o, "status.phase").as_str(), "Succeeded" | "Failed") {
                state.reason = "Terminating".into();
            }
        }
        state
    }

    fn note_restarts(&mut self, container: &Value) {
        self.restarts += number_at(container, "restartCount");
        let finished = text_at(container, "lastState.terminated.finishedAt").parse().ok();
        self.last_restart = self.last_restart.max(finished);
    }

    /// Looks at the init containers; true while they are not done.
    fn initializing(&mut self, o: &Value) -> bool {
        let specs = list_at(o, "spec.initContainers");
        let sidecar = |c: &Value| {
            let spec = specs.iter().find(|s| text_at(s, "name") == text_at(c, "name"));
            spec.is_some_and(|s| text_at(s, "restartPolicy") == "Always")
        };
        self.containers += specs.iter().filter(|s| text_at(s, "restartPolicy") == "Always").count();
        for (i, container) in list_at(o, "status.initContainerStatuses").iter().enumerate() {
            self.note_restarts(container);
            if sidecar(container) {
                let finished = text_at(container, "lastState.terminated.finishedAt").parse().ok();
                self.beside = (self.beside.0 + number_at(container, "restartCount"), self.beside.1.max(finished));
            }
            let ended = value_at(container, "state.terminated");
            if ended.is_some_and(|t| number_at(t, "exitCode") == 0) {
                continue;
            }
            if sidecar(container) && value_at(container, "started").and_then(Value::as_bool) == Some(true) {
                self.ready += usize::from(value_at(container, "ready").and_then(Value::as_bool) == Some(true));
                continue;
            }
            let waiting = text_at(container, "state.waiting.reason");
            self.reason = match ended {
                Some(ended) => format!("Init:{}", ending_reason(ended)),
                None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
                None => format!("Init:{i}/{}", specs.len()),
            };
            return true;
        }
        false
    }

    fn running(&mut self, o: &Value) {
        (self.restarts, self.last_restart) = self.beside;
        let mut has_running = false;
        for container in list_at(o, "status.containerStatuses").iter().rev() {
            self.note_restarts(container);
            let waiting = text_at(container, "state.waiting.reason");
            if !waiting.is_empty() {
                self.reason = waiting;
            } else if let Some(ended) = value_at(container, "state.terminated") {
                self.reason = ending_reason(ended);
            } else if value_at(container, "ready").and_then(Value::as_bool) == Some(true)
                && value_at(container, "state.running").is_some()
            {
                has_running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" && has_running {
            let is_ready = |c: &Value| text_at(c, "type") == "Ready" && text_at(c, "status") == "True";
            self.reason =
                if list_at(o, "status.conditions").iter().any(is_ready) { "Running" } else { "NotReady" }.into();
        }
    }
}

fn ending_reason(ended: &Value) -> String {
    match (text_at(ended, "reason"), number_at(ended, "signal")) {
        (reason, _) if !reason.is_empty() => reason,
        (_, 0) => format!("ExitCode:{}", number_at(ended, "exitCode")),
        (_, signal) => format!("Signal:{signal}"),
    }
}

pub fn pod_template(o: &Value, _now: Timestamp) -> Vec<Value> {
    let (names, images) = container_cells(o, "template.spec.containers");
    cells![name_cell(o), names, images, label_cell(o, "template.metadata.labels")]
}
