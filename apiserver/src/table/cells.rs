//! The cells of the built-in kinds, one function per kind (`print<Kind>` in `pkg/printers/internalversion/printers.go`).

use jiff::Timestamp;
use serde_json::Value;

use super::age::{human, since};

/// From an object and the present time to its cells, in the order of the kind's columns.
pub type Cells = fn(&Value, Timestamp) -> Vec<Value>;

const NONE: &str = "<none>";
const UNSET: &str = "<unset>";
const UNKNOWN: &str = "<unknown>";

fn at<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(object, |v, part| v.get(part)).filter(|v| !v.is_null())
}

fn text(object: &Value, path: &str) -> String {
    match at(object, path) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

fn text_or(object: &Value, path: &str, otherwise: &str) -> String {
    Some(text(object, path)).filter(|t| !t.is_empty()).unwrap_or_else(|| otherwise.to_owned())
}

fn number(object: &Value, path: &str) -> i64 {
    at(object, path).and_then(Value::as_i64).unwrap_or(0)
}

fn list<'v>(object: &'v Value, path: &str) -> &'v [Value] {
    at(object, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn count(object: &Value, path: &str) -> usize {
    match at(object, path) {
        Some(Value::Array(list)) => list.len(),
        Some(Value::Object(members)) => members.len(),
        _ => 0,
    }
}

fn name(object: &Value) -> String {
    text(object, "metadata.name")
}

fn age(object: &Value, now: Timestamp) -> String {
    since(at(object, "metadata.creationTimestamp"), now)
}

fn joined(parts: &[String], otherwise: &str) -> String {
    if parts.is_empty() { otherwise.to_owned() } else { parts.join(",") }
}

/// `a=1,b=2`; `<none>` when there are none.
fn labels(object: &Value, path: &str) -> String {
    let members = at(object, path).and_then(Value::as_object);
    let pairs = members.into_iter().flatten().map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default()));
    joined(&pairs.collect::<Vec<_>>(), NONE)
}

/// A `metav1.LabelSelector` as `kubectl` writes it.
fn selector(object: &Value, path: &str) -> String {
    let Some(value) = at(object, path) else { return NONE.into() };
    let members = value.get("matchLabels").and_then(Value::as_object);
    let mut parts: Vec<(String, String)> = members
        .into_iter()
        .flatten()
        .map(|(k, v)| (k.clone(), format!("{k}={}", v.as_str().unwrap_or_default())))
        .collect();
    for requirement in list(value, "matchExpressions") {
        let key = text(requirement, "key");
        let values: Vec<String> =
            list(requirement, "values").iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let shown = match text(requirement, "operator").as_str() {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.clone(),
            _ => format!("!{key}"),
        };
        parts.push((key, shown));
    }
    parts.sort();
    joined(&parts.into_iter().map(|(_, shown)| shown).collect::<Vec<_>>(), NONE)
}

/// Names and images of a template's containers.
fn containers(object: &Value, path: &str) -> (String, String) {
    let of = |key: &str| -> String { list(object, path).iter().map(|c| text(c, key)).collect::<Vec<_>>().join(",") };
    (of("name"), of("image"))
}

macro_rules! cells {
    ($($cell:expr),+ $(,)?) => { vec![$(Value::from($cell)),+] };
}

pub fn name_and_created(o: &Value, _now: Timestamp) -> Vec<Value> {
    cells![name(o), text(o, "metadata.creationTimestamp")]
}

pub fn component_status(o: &Value, _now: Timestamp) -> Vec<Value> {
    let healthy = list(o, "conditions").iter().find(|c| text(c, "type") == "Healthy").cloned().unwrap_or_default();
    let status = match text(&healthy, "status").as_str() {
        "True" => "Healthy",
        "False" => "Unhealthy",
        _ => "Unknown",
    };
    cells![name(o), status, text(&healthy, "message"), text(&healthy, "error")]
}

pub fn config_map(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![name(o), count(o, "data") + count(o, "binaryData"), age(o, now)]
}

pub fn endpoints(o: &Value, now: Timestamp) -> Vec<Value> {
    let mut all = Vec::new();
    for subset in list(o, "subsets") {
        let ports = list(subset, "ports");
        for address in list(subset, "addresses") {
            let ip = text(address, "ip");
            if ports.is_empty() {
                all.push(ip.clone());
            }
            all.extend(ports.iter().map(|p| format!("{ip}:{}", number(p, "port"))));
        }
    }
    cells![name(o), shortened(&all), age(o, now)]
}

/// The first three, and how many more there are.
fn shortened(all: &[String]) -> String {
    match all.len() {
        0 => NONE.into(),
        1..=3 => all.join(","),
        many => format!("{} + {} more...", all.iter().take(3).cloned().collect::<Vec<_>>().join(","), many - 3),
    }
}

pub fn event(o: &Value, now: Timestamp) -> Vec<Value> {
    let regarding = if at(o, "regarding").is_some() { "regarding" } else { "involvedObject" };
    let first_of = |paths: &[&str]| paths.iter().find_map(|p| at(o, p)).cloned();
    let first = first_of(&["firstTimestamp", "deprecatedFirstTimestamp", "eventTime"]);
    let last = first_of(&["series.lastObservedTime", "lastTimestamp", "deprecatedLastTimestamp"]).or(first.clone());
    let times = first_of(&["series.count", "count", "deprecatedCount"]).and_then(|c| c.as_i64()).unwrap_or(1);
    let target = [text(o, &format!("{regarding}.kind")).to_lowercase(), text(o, &format!("{regarding}.name"))];
    let target = target.iter().filter(|t| !t.is_empty()).cloned().collect::<Vec<_>>().join("/");
    let source = match (text(o, "source.component"), text(o, "source.host")) {
        (component, _) if component.is_empty() => {
            let instance = [text(o, "reportingComponent"), text(o, "reportingController")].concat();
            let host = text(o, "reportingInstance");
            if instance.is_empty() || host.is_empty() { instance } else { format!("{instance}, {host}") }
        }
        (component, host) if host.is_empty() => component,
        (component, host) => format!("{component}, {host}"),
    };
    let message = [text(o, "message"), text(o, "note")].concat();
    cells![
        since(last.as_ref(), now),
        text(o, "type"),
        text(o, "reason"),
        target,
        text(o, &format!("{regarding}.fieldPath")),
        source,
        message.trim(),
        since(first.as_ref(), now),
        times,
        name(o)
    ]
}

pub fn namespace(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![name(o), text(o, "status.phase"), age(o, now)]
}

pub fn node(o: &Value, now: Timestamp) -> Vec<Value> {
    let ready = list(o, "status.conditions").iter().find(|c| text(c, "type") == "Ready");
    let mut status = match ready {
        Some(c) if text(c, "status") == "True" => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if at(o, "spec.unschedulable").and_then(Value::as_bool) == Some(true) {
        status.push_str(",SchedulingDisabled");
    }
    let members = at(o, "metadata.labels").and_then(Value::as_object);
    let mut roles: Vec<String> = members
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role.to_owned()),
            None => value.as_str().filter(|_| key == "kubernetes.io/role").map(str::to_owned),
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort();
    let address = |kind: &str| {
        let found = list(o, "status.addresses").iter().find(|a| text(a, "type") == kind);
        found.map_or_else(|| NONE.to_owned(), |a| text(a, "address"))
    };
    cells![
        name(o),
        status,
        joined(&roles, NONE),
        age(o, now),
        text(o, "status.nodeInfo.kubeletVersion"),
        address("InternalIP"),
        address("ExternalIP"),
        text_or(o, "status.nodeInfo.osImage", UNKNOWN),
        text_or(o, "status.nodeInfo.kernelVersion", UNKNOWN),
        text_or(o, "status.nodeInfo.containerRuntimeVersion", UNKNOWN)
    ]
}

fn access_modes(o: &Value, path: &str) -> String {
    let short = |mode: &Value| match mode.as_str() {
        Some("ReadWriteOnce") => Some("RWO"),
        Some("ReadOnlyMany") => Some("ROX"),
        Some("ReadWriteMany") => Some("RWX"),
        Some("ReadWriteOncePod") => Some("RWOP"),
        _ => None,
    };
    list(o, path).iter().filter_map(short).collect::<Vec<_>>().join(",")
}

fn phase(o: &Value) -> String {
    if at(o, "metadata.deletionTimestamp").is_some() { "Terminating".into() } else { text(o, "status.phase") }
}

pub fn claim(o: &Value, now: Timestamp) -> Vec<Value> {
    let bound = !text(o, "spec.volumeName").is_empty();
    cells![
        name(o),
        phase(o),
        text(o, "spec.volumeName"),
        if bound { text(o, "status.capacity.storage") } else { String::new() },
        if bound { access_modes(o, "status.accessModes") } else { String::new() },
        text(o, "spec.storageClassName"),
        text_or(o, "spec.volumeAttributesClassName", UNSET),
        age(o, now),
        text_or(o, "spec.volumeMode", UNSET)
    ]
}

pub fn volume(o: &Value, now: Timestamp) -> Vec<Value> {
    let claim = [text(o, "spec.claimRef.namespace"), text(o, "spec.claimRef.name")];
    cells![
        name(o),
        text(o, "spec.capacity.storage"),
        access_modes(o, "spec.accessModes"),
        text(o, "spec.persistentVolumeReclaimPolicy"),
        phase(o),
        if at(o, "spec.claimRef").is_some() { claim.join("/") } else { String::new() },
        text(o, "spec.storageClassName"),
        text_or(o, "spec.volumeAttributesClassName", UNSET),
        text(o, "status.reason"),
        age(o, now),
        text_or(o, "spec.volumeMode", UNSET)
    ]
}

pub fn pod(o: &Value, now: Timestamp) -> Vec<Value> {
    let state = PodState::of(o);
    let restarts = match state.last_restart.filter(|_| state.restarts > 0) {
        Some(last) => format!("{} ({} ago)", state.restarts, human(now.duration_since(last).as_secs())),
        None => state.restarts.to_string(),
    };
    let gates = list(o, "spec.readinessGates");
    let passed = gates.iter().filter(|g| {
        let holds = |c: &&Value| text(c, "type") == text(g, "conditionType") && text(c, "status") == "True";
        list(o, "status.conditions").iter().any(|c| holds(&c))
    });
    cells![
        name(o),
        format!("{}/{}", state.ready, state.containers),
        state.reason,
        restarts,
        age(o, now),
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
    reason: String,
}

impl PodState {
    fn of(o: &Value) -> PodState {
        let mut state = PodState {
            ready: 0,
            containers: count(o, "spec.containers"),
            restarts: 0,
            last_restart: None,
            reason: text_or(o, "status.reason", &text(o, "status.phase")),
        };
        let gated = |c: &&Value| text(c, "type") == "PodScheduled" && text(c, "reason") == "SchedulingGated";
        if list(o, "status.conditions").iter().any(|c| gated(&c)) {
            state.reason = "SchedulingGated".into();
        }
        if !state.initializing(o) {
            state.running(o);
        }
        if at(o, "metadata.deletionTimestamp").is_some() {
            let lost = text(o, "status.reason") == "NodeLost";
            if lost {
                state.reason = "Unknown".into();
            } else if !matches!(text(o, "status.phase").as_str(), "Succeeded" | "Failed") {
                state.reason = "Terminating".into();
            }
        }
        state
    }

    fn note_restarts(&mut self, container: &Value) {
        self.restarts += number(container, "restartCount");
        let finished = text(container, "lastState.terminated.finishedAt").parse().ok();
        self.last_restart = self.last_restart.max(finished);
    }

    /// Looks at the init containers; true while they are not done.
    fn initializing(&mut self, o: &Value) -> bool {
        let specs = list(o, "spec.initContainers");
        let sidecar = |c: &Value| {
            let spec = specs.iter().find(|s| text(s, "name") == text(c, "name"));
            spec.is_some_and(|s| text(s, "restartPolicy") == "Always")
        };
        self.containers += specs.iter().filter(|s| text(s, "restartPolicy") == "Always").count();
        for (i, container) in list(o, "status.initContainerStatuses").iter().enumerate() {
            self.note_restarts(container);
            let ended = at(container, "state.terminated");
            if ended.is_some_and(|t| number(t, "exitCode") == 0) {
                continue;
            }
            if sidecar(container) && at(container, "started").and_then(Value::as_bool) == Some(true) {
                self.ready += usize::from(at(container, "ready").and_then(Value::as_bool) == Some(true));
                continue;
            }
            let waiting = text(container, "state.waiting.reason");
            self.reason = match ended {
                Some(ended) => format!("Init:{}", ending(ended)),
                None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
                None => format!("Init:{i}/{}", specs.len()),
            };
            return true;
        }
        false
    }

    fn running(&mut self, o: &Value) {
        self.restarts = 0;
        self.last_restart = None;
        let mut has_running = false;
        for container in list(o, "status.containerStatuses").iter().rev() {
            self.note_restarts(container);
            let waiting = text(container, "state.waiting.reason");
            if !waiting.is_empty() {
                self.reason = waiting;
            } else if let Some(ended) = at(container, "state.terminated") {
                self.reason = ending(ended);
            } else if at(container, "ready").and_then(Value::as_bool) == Some(true)
                && at(container, "state.running").is_some()
            {
                has_running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" && has_running {
            let is_ready = |c: &Value| text(c, "type") == "Ready" && text(c, "status") == "True";
            self.reason = if list(o, "status.conditions").iter().any(is_ready) { "Running" } else { "NotReady" }.into();
        }
    }
}

fn ending(ended: &Value) -> String {
    match (text(ended, "reason"), number(ended, "signal")) {
        (reason, _) if !reason.is_empty() => reason,
        (_, 0) => format!("ExitCode:{}", number(ended, "exitCode")),
        (_, signal) => format!("Signal:{signal}"),
    }
}

pub fn pod_template(o: &Value, _now: Timestamp) -> Vec<Value> {
    let (names, images) = containers(o, "template.spec.containers");
    cells![name(o), names, images, labels(o, "template.metadata.labels")]
}

pub fn replica_set(o: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = containers(o, "spec.template.spec.containers");
    let plain = text(o, "kind") == "ReplicationController";
    let chosen = if plain { labels(o, "spec.selector") } else { selector(o, "spec.selector") };
    cells![
        name(o),
        number(o, "spec.replicas"),
        number(o, "status.replicas"),
        number(o, "status.readyReplicas"),
        age(o, now),
        names,
        images,
        chosen
    ]
}

pub fn quota(o: &Value, now: Timestamp) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for resource in at(o, "status.hard").and_then(Value::as_object).into_iter().flatten().map(|(k, _)| k) {
        let value = |of: &str| {
            let found = at(o, &format!("status.{of}")).and_then(|m| m.get(resource)).and_then(Value::as_str);
            found.unwrap_or("0").to_owned()
        };
        let shown = format!("{resource}: {}/{}", value("used"), value("hard"));
        if resource.starts_with("limits") { limits.push(shown) } else { requests.push(shown) }
    }
    cells![name(o), requests.join(", "), limits.join(", "), age(o, now)]
}

pub fn secret(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![name(o), text(o, "type"), count(o, "data"), age(o, now)]
}

pub fn service_account(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![name(o), count(o, "secrets"), age(o, now)]
}

pub fn service(o: &Value, now: Timestamp) -> Vec<Value> {
    let ips: Vec<String> = list(o, "spec.externalIPs").iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let kind = text(o, "spec.type");
    let external = match kind.as_str() {
        "LoadBalancer" => {
            let ingress = list(o, "status.loadBalancer.ingress").iter();
            let mut all: Vec<String> = ingress.map(|i| text_or(i, "ip", &text(i, "hostname"))).collect();
            all.extend(ips);
            joined(&all, "<pending>")
        }
        "ExternalName" => text(o, "spec.externalName"),
        _ => joined(&ips, NONE),
    };
    let ports = list(o, "spec.ports").iter().map(|p| {
        let protocol = text_or(p, "protocol", "TCP");
        match number(p, "nodePort") {
            0 => format!("{}/{protocol}", number(p, "port")),
            node => format!("{}:{node}/{protocol}", number(p, "port")),
        }
    });
    cells![
        name(o),
        kind,
        text_or(o, "spec.clusterIP", NONE),
        external,
        joined(&ports.collect::<Vec<_>>(), NONE),
        age(o, now),
        labels(o, "spec.selector")
    ]
}

pub fn webhooks(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![name(o), count(o, "webhooks"), age(o, now)]
}

pub fn admission_policy(o: &Value, now: Timestamp) -> Vec<Value> {
    let kind = match at(o, "spec.paramKind") {
        Some(kind) => format!("{}/{}", text(kind, "apiVersion"), text(kind, "kind")),
        None => UNSET.into(),
    };
    cells![name(o), count(o, "spec.validations"), kind, age(o, now)]
}

pub fn admission_policy_binding(o: &Value, now: Timestamp) -> Vec<Value> {
    let reference = match (text(o, "spec.paramRef.namespace"), text(o, "spec.paramRef.name")) {
        (_, name) if name.is_empty() => UNSET.into(),
        (namespace, name) if namespace.is_empty() => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    cells![name(o), text(o, "spec.policyName"), reference, age(o, now)]
}

pub fn api_service(o: &Value, now: Timestamp) -> Vec<Value> {
    let service = match at(o, "spec.service") {
        Some(s) => format!("{}/{}", text(s, "namespace"), text(s, "name")),
        None => "Local".into(),
    };
    let available = list(o, "status.conditions").iter().find(|c| text(c, "type") == "Available");
    let shown = match available.map(|c| (text(c, "status"), text(c, "reason"))) {
        Some((status, reason)) if status != "True" => format!("{status} ({reason})"),
        Some((status, _)) => status,
        None => UNKNOWN.into(),
    };
    cells![name(o), service, shown, age(o, now)]
}

pub fn controller_revision(o: &Value, now: Timestamp) -> Vec<Value> {
    let is_controller = |r: &&Value| at(r, "controller").and_then(Value::as_bool) == Some(true);
    let owner = list(o, "metadata.ownerReferences").iter().find(is_controller);
    let owner = owner.map_or_else(
        || NONE.to_owned(),
        |r| {
            let group = text(r, "apiVersion").split_once('/').map_or(String::new(), |(g, _)| format!(".{g}"));
            format!("{}{group}/{}", text(r, "kind").to_lowercase(), text(r, "name"))
        },
    );
    cells![name(o), owner, number(o, "revision"), age(o, now)]
}

pub fn daemon_set(o: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = containers(o, "spec.template.spec.containers");
    cells![
        name(o),
        number(o, "status.desiredNumberScheduled"),
        number(o, "status.currentNumberScheduled"),
        number(o, "status.numberReady"),
        number(o, "status.updatedNumberScheduled"),
        number(o, "status.numberAvailable"),
        labels(o, "spec.template.spec.nodeSelector"),
        age(o, now),
        names,
        images,
        selector(o, "spec.selector")
    ]
}

pub fn deployment(o: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = containers(o, "spec.template.spec.containers");
    cells![
        name(o),
        format!("{}/{}", number(o, "status.readyReplicas"), number(o, "spec.replicas")),
        number(o, "status.updatedReplicas"),
        number(o, "status.availableReplicas"),
        age(o, now),
        names,
        images,
        selector(o, "spec.selector")
    ]
}

pub fn stateful_set(o: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = containers(o, "spec.template.spec.containers");
    let ready = format!("{}/{}", number(o, "status.readyReplicas"), number(o, "spec.replicas"));
    cells![name(o), ready, age(o, now), names, images]
}

pub fn autoscaler(o: &Value, now: Timestamp) -> Vec<Value> {
    let targets = list(o, "spec.metrics").iter().zip(0..).map(|(metric, i)| {
        let target = at(metric, "resource.target");
        let wanted = target.map_or(String::new(), |t| match at(t, "averageUtilization") {
            Some(percent) => format!("{percent}%"),
            None => text(t, "averageValue"),
        });
        let current =
            list(o, "status.currentMetrics").get(i).and_then(|m| at(m, "resource.current.averageUtilization"));
        let current = current.map_or_else(|| UNKNOWN.to_owned(), |c| format!("{c}%"));
        format!("{}: {current}/{wanted}", text_or(metric, "resource.name", "metric"))
    });
    let least = at(o, "spec.minReplicas").map_or_else(|| UNSET.to_owned(), ToString::to_string);
    cells![
        name(o),
        format!("{}/{}", text(o, "spec.scaleTargetRef.kind"), text(o, "spec.scaleTargetRef.name")),
        Some(targets.collect::<Vec<_>>().join(", ")).filter(|t| !t.is_empty()).unwrap_or_else(|| NONE.to_owned()),
        least,
        number(o, "spec.maxReplicas"),
        number(o, "status.currentReplicas"),
        age(o, now)
    ]
}

pub fn cron_job(o: &Value, now: Timestamp) -> Vec<Value> {
    let template = "spec.jobTemplate.spec.template.spec.containers";
    let (names, images) = containers(o, template);
    let last = at(o, "status.lastScheduleTime").map_or_else(|| NONE.to_owned(), |t| since(Some(t), now));
    let suspended = at(o, "spec.suspend").and_then(Value::as_bool).unwrap_or(false);
    cells![
        name(o),
        text(o, "spec.schedule"),
        text_or(o, "spec.timeZone", NONE),
        if suspended { "True" } else { "False" },
        count(o, "status.active"),
        last,
        age(o, now),
        names,
        images,
        selector(o, "spec.jobTemplate.spec.selector")
    ]
}

pub fn job(o: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = containers(o, "spec.template.spec.containers");
    let succeeded = number(o, "status.succeeded");
    let parallelism = number(o, "spec.parallelism");
    let completions = match at(o, "spec.completions").and_then(Value::as_i64) {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    };
    let moment = |path: &str| text(o, path).parse::<Timestamp>().ok();
    let duration = match (moment("status.startTime"), moment("status.completionTime")) {
        (None, _) => String::new(),
        (Some(start), end) => human(end.unwrap_or(now).duration_since(start).as_secs()),
    };
    let has = |kind: &str| {
        list(o, "status.conditions").iter().any(|c| text(c, "type") == kind && text(c, "status") == "True")
    };
    let status = if has("Complete") {
        "Complete"
    } else if has("Failed") {
        "Failed"
    } else if at(o, "metadata.deletionTimestamp").is_some() {
        "Terminating"
    } else if has("Suspended") {
        "Suspended"
    } else if has("FailureTarget") {
        "FailureTarget"
    } else if has("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    };
    cells![name(o), status, completions, duration, age(o, now), names, images, selector(o, "spec.selector")]
}

pub fn signing_request(o: &Value, now: Timestamp) -> Vec<Value> {
    let types: Vec<String> = list(o, "status.conditions").iter().map(|c| text(c, "type")).collect();
    let mut condition = match types.iter().find(|t| *t == "Denied" || *t == "Approved") {
        Some(decision) => decision.clone(),
        None => "Pending".to_owned(),
    };
    if types.iter().any(|t| t == "Failed") {
        condition.push_str(",Failed");
    }
    if !text(o, "status.certificate").is_empty() {
        condition.push_str(",Issued");
    }
    let requested = at(o, "spec.expirationSeconds").and_then(Value::as_i64);
    cells![
        name(o),
        age(o, now),
        text_or(o, "spec.signerName", NONE),
        text(o, "spec.username"),
        requested.map_or_else(|| NONE.to_owned(), human),
        condition
    ]
}

pub fn lease(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![name(o), text(o, "spec.holderIdentity"), age(o, now)]
}

pub fn endpoint_slice(o: &Value, now: Timestamp) -> Vec<Value> {
    let ports: Vec<String> = list(o, "ports").iter().map(|p| text_or(p, "port", "*")).collect();
    let addresses: Vec<String> = list(o, "endpoints")
        .iter()
        .flat_map(|e| list(e, "addresses"))
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let ports = if ports.is_empty() { UNSET.to_owned() } else { shortened(&ports) };
    let addresses = if addresses.is_empty() { UNSET.to_owned() } else { shortened(&addresses) };
    cells![name(o), text(o, "addressType"), ports, addresses, age(o, now)]
}

pub fn ingress_class(o: &Value, now: Timestamp) -> Vec<Value> {
    let parameters = match at(o, "spec.parameters") {
        Some(p) => {
            let group = Some(text(p, "apiGroup")).filter(|g| !g.is_empty()).map_or(String::new(), |g| format!(".{g}"));
            format!("{}{group}/{}", text(p, "kind"), text(p, "name"))
        }
        None => NONE.into(),
    };
    cells![name(o), text(o, "spec.controller"), parameters, age(o, now)]
}

pub fn ingress(o: &Value, now: Timestamp) -> Vec<Value> {
    let hosts: Vec<String> = list(o, "spec.rules").iter().map(|r| text(r, "host")).filter(|h| !h.is_empty()).collect();
    let hosts = match hosts.len() {
        0 => "*".to_owned(),
        1..=3 => hosts.join(","),
        _ => shortened(&hosts),
    };
    let address: Vec<String> =
        list(o, "status.loadBalancer.ingress").iter().map(|i| text_or(i, "ip", &text(i, "hostname"))).collect();
    let ports = if count(o, "spec.tls") > 0 { "80, 443" } else { "80" };
    cells![name(o), text_or(o, "spec.ingressClassName", NONE), hosts, address.join(","), ports, age(o, now)]
}

pub fn network_policy(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![name(o), selector(o, "spec.podSelector"), age(o, now)]
}

pub fn runtime_class(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![name(o), text(o, "handler"), age(o, now)]
}

pub fn disruption_budget(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![
        name(o),
        text_or(o, "spec.minAvailable", "N/A"),
        text_or(o, "spec.maxUnavailable", "N/A"),
        number(o, "status.disruptionsAllowed"),
        age(o, now)
    ]
}

pub fn role_binding(o: &Value, now: Timestamp) -> Vec<Value> {
    let of = |kind: &str| -> String {
        let subjects = list(o, "subjects").iter().filter(|s| text(s, "kind") == kind);
        let shown = subjects.map(|s| match text(s, "namespace") {
            namespace if kind == "ServiceAccount" => format!("{namespace}/{}", text(s, "name")),
            _ => text(s, "name"),
        });
        shown.collect::<Vec<_>>().join(", ")
    };
    let role = format!("{}/{}", text(o, "roleRef.kind"), text(o, "roleRef.name"));
    cells![name(o), role, age(o, now), of("User"), of("Group"), of("ServiceAccount")]
}

pub fn priority_class(o: &Value, now: Timestamp) -> Vec<Value> {
    let is_default = at(o, "globalDefault").and_then(Value::as_bool).unwrap_or(false);
    let policy = text_or(o, "preemptionPolicy", "PreemptLowerPriority");
    cells![name(o), number(o, "value"), is_default, policy, age(o, now)]
}

pub fn csi_node(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![name(o), count(o, "spec.drivers"), age(o, now)]
}

pub fn storage_class(o: &Value, now: Timestamp) -> Vec<Value> {
    let annotations = at(o, "metadata.annotations").and_then(Value::as_object);
    let is_default = annotations.is_some_and(|a| {
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"]
            .iter()
            .any(|key| a.get(*key).and_then(Value::as_str) == Some("true"))
    });
    let shown = if is_default { format!("{} (default)", name(o)) } else { name(o) };
    cells![
        shown,
        text(o, "provisioner"),
        text_or(o, "reclaimPolicy", "Delete"),
        text_or(o, "volumeBindingMode", UNSET),
        at(o, "allowVolumeExpansion").and_then(Value::as_bool).unwrap_or(false),
        age(o, now)
    ]
}

pub fn volume_attachment(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![
        name(o),
        text(o, "spec.attacher"),
        text(o, "spec.source.persistentVolumeName"),
        text(o, "spec.nodeName"),
        at(o, "status.attached").and_then(Value::as_bool).unwrap_or(false),
        age(o, now)
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(cells: Cells, object: &Value) -> Vec<Value> {
        cells(object, "2024-01-01T00:01:00Z".parse().unwrap())
    }

    #[test]
    fn a_pod_shows_the_state_of_its_containers() {
        let running = json!({
            "metadata": {"name": "b", "creationTimestamp": "2024-01-01T00:00:00Z"},
            "spec": {"containers": [{"name": "main"}], "nodeName": "n1"},
            "status": {"phase": "Running", "podIP": "10.1.1.1", "containerStatuses": [
                {"name": "main", "ready": true, "restartCount": 2, "state": {"running": {}}}]},
        });
        let shown = json!(["b", "1/1", "Running", "2", "60s", "10.1.1.1", "n1", "<none>", "<none>"]);
        assert_eq!(Value::from(row(pod, &running)), shown);
        let mut failing = running;
        failing["status"]["containerStatuses"][0] =
            json!({"name": "main", "ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": 3}}});
        let cells = row(pod, &failing);
        assert_eq!((&cells[1], &cells[2]), (&json!("0/1"), &json!("ExitCode:3")));
    }

    #[test]
    fn an_init_container_holds_the_pod_up() {
        let starting = json!({
            "spec": {"containers": [{"name": "main"}], "initContainers": [{"name": "i"}, {"name": "j"}]},
            "status": {"phase": "Pending", "initContainerStatuses": [
                {"name": "i", "state": {"terminated": {"exitCode": 0}}}, {"name": "j", "state": {"running": {}}}]},
        });
        assert_eq!(row(pod, &starting)[2], json!("Init:1/2"));
    }
}
