//! What Volcano's job controller does with one Job: its PodGroup, its pods and its status.
//!
//! Rule: `pkg/controllers/job` (`job_controller_actions.go`, `state/*.go`) as far as a federation can see it: no sync
//! without a queue; no pods while the PodGroup is Pending; `dependsOn` orders tasks; the phase machine; lifecycle
//! policies on PodFailed, PodEvicted, TaskCompleted, TaskFailed; pods kept as Volcano keeps them.

use std::collections::BTreeMap;

use caldera_runtime::clock::rfc3339;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    object::{annotation, deleting, label, list, name, namespace, number, owned_by, text, uid},
    world::{Kind, Want, World, create, delete, merge},
};

const TASK_SPEC: &str = "volcano.sh/task-spec";
const JOB_VERSION: &str = "volcano.sh/job-version";

/// What to write for `job` now.
#[must_use]
pub fn sync(world: &World, job: &Value, now: Timestamp) -> Vec<Want> {
    if deleting(job) || world.get(Kind::Queue, &(String::new(), queue_of(job).to_owned())).is_none() {
        return Vec::new();
    }
    let phase = match text(job, "/status/state/phase") {
        "" => "Pending",
        phase => phase,
    };
    let pods: Vec<&Value> = world.pods_of(uid(job)).collect();
    let counts = Counts::of(job, &pods);
    match phase {
        "Pending" | "Running" => {
            if let Some(action) = policy_action(job, &pods, &counts) {
                return leave(world, job, &pods, &counts, action, now);
            }
            live(world, job, phase, &pods, &counts, now)
        }
        "Restarting" => wind_down(job, &pods, &counts, |counts| restarting(job, counts), false, now),
        "Completing" => wind_down(job, &pods, &counts, |counts| counts.none_left().then_some("Completed"), true, now),
        "Terminating" => wind_down(job, &pods, &counts, |counts| counts.none_left().then_some("Terminated"), true, now),
        "Aborting" => wind_down(job, &pods, &counts, |counts| counts.none_left().then_some("Aborted"), true, now),
        // Finished: pods that still run are taken away, finished ones stay to be looked at.
        _ => unfinished(&pods).map(|pod| delete(Kind::Pod, pod)).collect(),
    }
}

/// The name of a job's PodGroup.
#[must_use]
pub fn podgroup_name(job: &Value) -> String {
    format!("{}-{}", name(job), uid(job))
}

fn queue_of(job: &Value) -> &str {
    match text(job, "/spec/queue") {
        "" => "default",
        queue => queue,
    }
}

/// Pods of a job by what became of them.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Counts {
    pending: i64,
    running: i64,
    succeeded: i64,
    failed: i64,
    terminating: i64,
    by_task: BTreeMap<String, BTreeMap<String, i64>>,
}

impl Counts {
    fn of(job: &Value, pods: &[&Value]) -> Self {
        let version = number(job, "/status/version").to_string();
        let mut counts = Self::default();
        for pod in pods {
            if annotation(pod, JOB_VERSION) != version && !deleting(pod) {
                continue;
            }
            if deleting(pod) {
                counts.terminating += 1;
                continue;
            }
            let phase = match text(pod, "/status/phase") {
                "" => "Pending",
                phase => phase,
            };
            match phase {
                "Running" => counts.running += 1,
                "Succeeded" => counts.succeeded += 1,
                "Failed" => counts.failed += 1,
                _ => counts.pending += 1,
            }
            *counts
                .by_task
                .entry(label(pod, TASK_SPEC).to_owned())
                .or_default()
                .entry(phase.to_owned())
                .or_default() += 1;
        }
        counts
    }

    fn none_left(&self) -> bool {
        self.pending + self.running + self.terminating == 0
    }

    fn in_task(&self, task: &str, phase: &str) -> i64 {
        self.by_task.get(task).and_then(|phases| phases.get(phase)).copied().unwrap_or_default()
    }
}

fn unfinished<'a>(pods: &'a [&'a Value]) -> impl Iterator<Item = &'a Value> {
    pods.iter().copied().filter(|pod| !deleting(pod) && !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed"))
}

fn replicas(job: &Value) -> i64 {
    list(job, "/spec/tasks").iter().map(|task| number(task, "/replicas")).sum()
}

fn task_minimum(task: &Value) -> i64 {
    task.pointer("/minAvailable").and_then(Value::as_i64).unwrap_or_else(|| number(task, "/replicas"))
}

/// A job that is not being ended: PodGroup, then pods, then the phase that follows from them.
fn live(world: &World, job: &Value, phase: &str, pods: &[&Value], counts: &Counts, now: Timestamp) -> Vec<Want> {
    let group_key = (namespace(job).to_owned(), podgroup_name(job));
    let Some(group) = world.get(Kind::PodGroup, &group_key) else {
        let mut wants = vec![create(Kind::PodGroup, podgroup(world, job))];
        wants.extend(status(job, "Pending", counts, now));
        return wants;
    };
    let mut wants: Vec<Want> = podgroup_change(world, job, group).into_iter().collect();
    if matches!(text(group, "/status/phase"), "" | "Pending") && pods.is_empty() {
        wants.extend(status(job, "Pending", counts, now));
        return wants;
    }
    wants.extend(pod_changes(job, pods, counts));
    wants.extend(status(job, next_phase(job, phase, counts), counts, now));
    wants
}

/// `state/pending.go` and `state/running.go`.
fn next_phase(job: &Value, phase: &str, counts: &Counts) -> &'static str {
    let minimum = number(job, "/spec/minAvailable");
    let total = replicas(job);
    if phase == "Pending" {
        let started = counts.running + counts.succeeded + counts.failed;
        return if total > 0 && started >= minimum { "Running" } else { "Pending" };
    }
    if total == 0 {
        return "Running";
    }
    let min_success = job.pointer("/spec/minSuccess").and_then(Value::as_i64);
    if min_success.is_some_and(|wanted| counts.succeeded >= wanted) {
        return "Completed";
    }
    if counts.succeeded + counts.failed == total {
        let tasks = list(job, "/spec/tasks");
        let minimums: i64 = tasks.iter().map(task_minimum).sum();
        let short = |task: &Value| counts.in_task(text(task, "/name"), "Succeeded") < task_minimum(task);
        if (minimum >= minimums && tasks.iter().any(short)) || min_success.is_some() || counts.succeeded < minimum {
            return "Failed";
        }
        return "Completed";
    }
    if counts.pending > total - minimum { "Pending" } else { "Running" }
}

fn restarting(job: &Value, counts: &Counts) -> Option<&'static str> {
    let most = match number(job, "/spec/maxRetry") {
        0 => 3,
        most => most,
    };
    if number(job, "/status/retryCount") >= most {
        return Some("Failed");
    }
    (replicas(job) - counts.terminating >= number(job, "/spec/minAvailable") && counts.none_left()).then_some("Pending")
}

/// Takes the pods away; once `done` says so, the phase that follows.
fn wind_down(
    job: &Value,
    pods: &[&Value],
    counts: &Counts,
    done: impl Fn(&Counts) -> Option<&'static str>,
    keep_finished: bool,
    now: Timestamp,
) -> Vec<Want> {
    let mut wants: Vec<Want> = pods
        .iter()
        .filter(|pod| !deleting(pod))
        .filter(|pod| !(keep_finished && matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")))
        .map(|pod| delete(Kind::Pod, pod))
        .collect();
    if let Some(phase) = done(counts) {
        wants.extend(status(job, phase, counts, now));
    } else if wants.is_empty() {
        wants.extend(status(job, text(job, "/status/state/phase"), counts, now));
    }
    wants
}

/// What the lifecycle policies (the task's before the job's) ask for, given what the pods did.
fn policy_action(job: &Value, pods: &[&Value], counts: &Counts) -> Option<&'static str> {
    let version = number(job, "/status/version").to_string();
    for pod in pods.iter().filter(|pod| annotation(pod, JOB_VERSION) == version) {
        let task = task_named(job, label(pod, TASK_SPEC));
        if text(pod, "/status/phase") == "Failed" && !deleting(pod) {
            let code = number(pod, "/status/containerStatuses/0/state/terminated/exitCode");
            if let Some(action) = matching(job, task, "PodFailed", Some(code)) {
                return Some(action);
            }
        }
        if deleting(pod)
            && !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
            && let Some(action) = matching(job, task, "PodEvicted", None)
        {
            return Some(action);
        }
    }
    for task in list(job, "/spec/tasks") {
        let wanted = number(task, "/replicas");
        if wanted > 0
            && counts.in_task(text(task, "/name"), "Succeeded") == wanted
            && let Some(action) = matching(job, Some(task), "TaskCompleted", None)
        {
            return Some(action);
        }
    }
    None
}

fn task_named<'a>(job: &'a Value, name: &str) -> Option<&'a Value> {
    list(job, "/spec/tasks").iter().find(|task| text(task, "/name") == name)
}

fn matching(job: &Value, task: Option<&Value>, event: &str, exit_code: Option<i64>) -> Option<&'static str> {
    let task_policies = task.map(|task| list(task, "/policies")).unwrap_or_default();
    let matches = |policy: &&Value| {
        let named = text(policy, "/event") == event
            || text(policy, "/event") == "*"
            || list(policy, "/events").iter().any(|named| matches!(named.as_str(), Some(e) if e == event || e == "*"));
        let by_code = exit_code.is_some_and(|code| code != 0 && number(policy, "/exitCode") == code);
        // The `*` of Volcano means every event but the completion of a task.
        (named && !(event == "TaskCompleted" && text(policy, "/event") == "*")) || by_code
    };
    let policy = task_policies.iter().find(matches).or_else(|| list(job, "/spec/policies").iter().find(matches))?;
    match text(policy, "/action") {
        "RestartJob" | "RestartTask" | "RestartPod" | "RestartPartition" => Some("Restarting"),
        "CompleteJob" => Some("Completing"),
        "TerminateJob" => Some("Terminating"),
        "AbortJob" => Some("Aborting"),
        _ => None,
    }
}

/// Leaves the live phases for `phase`. A restarted job starts with a PodGroup of its own.
fn leave(
    world: &World,
    job: &Value,
    pods: &[&Value],
    counts: &Counts,
    phase: &'static str,
    now: Timestamp,
) -> Vec<Want> {
    let keep_finished = phase != "Restarting";
    let mut wants: Vec<Want> = pods
        .iter()
        .filter(|pod| !deleting(pod))
        .filter(|pod| !(keep_finished && matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")))
        .map(|pod| delete(Kind::Pod, pod))
        .collect();
    if phase == "Restarting" {
        let group = world.get(Kind::PodGroup, &(namespace(job).to_owned(), podgroup_name(job)));
        wants.extend(group.map(|group| delete(Kind::PodGroup, group)));
    }
    wants.extend(status(job, phase, counts, now));
    wants
}

/// The status that follows, if it differs from what is there.
fn status(job: &Value, phase: &str, counts: &Counts, now: Timestamp) -> Option<Want> {
    let old = job.get("status").cloned().unwrap_or_else(|| json!({}));
    let time = rfc3339(now);
    let phase_changed = text(job, "/status/state/phase") != phase;
    let mut new = old.clone();
    let fields = new.as_object_mut()?;
    for (name, value) in [
        ("pending", counts.pending),
        ("running", counts.running),
        ("succeeded", counts.succeeded),
        ("failed", counts.failed),
        ("terminating", counts.terminating),
        ("minAvailable", number(job, "/spec/minAvailable")),
    ] {
        if value == 0 {
            fields.remove(name);
        } else {
            fields.insert(name.to_owned(), value.into());
        }
    }
    let by_task: serde_json::Map<String, Value> =
        counts.by_task.iter().map(|(task, phases)| (task.clone(), json!({"phase": phases}))).collect();
    if by_task.is_empty() {
        fields.remove("taskStatusCount");
    } else {
        fields.insert("taskStatusCount".to_owned(), by_task.into());
    }
    if let Some(plugins) = job.pointer("/spec/plugins").and_then(Value::as_object).filter(|all| !all.is_empty()) {
        let names = plugins.keys().map(|plugin| (format!("plugin-{plugin}"), Value::from(plugin.clone())));
        fields.insert("controlledResources".to_owned(), Value::Object(names.collect()));
    }
    if phase_changed {
        fields.insert("state".to_owned(), json!({"phase": phase, "lastTransitionTime": time}));
        let mut conditions = list(job, "/status/conditions").to_vec();
        conditions.retain(|condition| text(condition, "/status") != phase);
        conditions.push(json!({"status": phase, "lastTransitionTime": time}));
        fields.insert("conditions".to_owned(), conditions.into());
        if phase == "Restarting" {
            fields.insert("retryCount".to_owned(), (number(job, "/status/retryCount") + 1).into());
            fields.insert("version".to_owned(), (number(job, "/status/version") + 1).into());
        }
        if matches!(phase, "Completed" | "Failed" | "Terminated" | "Aborted") {
            let started: Option<Timestamp> = text(job, "/metadata/creationTimestamp").parse().ok();
            let seconds = started.map_or(0, |started| (now.as_second() - started.as_second()).max(0));
            fields.insert("runningDuration".to_owned(), format!("{seconds}s").into());
        }
    }
    if new == old {
        return None;
    }
    // A merge patch removes what is null.
    let mut patch = new.clone();
    for field in old.as_object()?.keys().filter(|field| new.get(field.as_str()).is_none()) {
        patch[field.as_str()] = Value::Null;
    }
    replace_maps(&mut patch, &old, &["taskStatusCount", "controlledResources"]);
    Some(merge(Kind::VolcanoJob, job, Some("status"), json!({"status": patch})))
}

/// Merge patches only add to maps: name the keys that must go.
fn replace_maps(patch: &mut Value, old: &Value, fields: &[&str]) {
    for field in fields {
        let Some(Value::Object(before)) = old.get(field) else { continue };
        let Some(Value::Object(after)) = patch.get_mut(*field) else { continue };
        for (key, value) in before {
            match (after.get_mut(key), value) {
                (None, _) => drop(after.insert(key.clone(), Value::Null)),
                (Some(Value::Object(_)), Value::Object(_)) if *field == "taskStatusCount" => {
                    let gone: Vec<String> = value
                        .pointer("/phase")
                        .and_then(Value::as_object)
                        .into_iter()
                        .flat_map(serde_json::Map::keys)
                        .filter(|phase| after[key].pointer(&format!("/phase/{phase}")).is_none())
                        .cloned()
                        .collect();
                    for phase in gone {
                        after[key]["phase"][phase] = Value::Null;
                    }
                }
                _ => {}
            }
        }
    }
}

/// The PodGroup of a job: `createOrUpdatePodGroup`.
fn podgroup(world: &World, job: &Value) -> Value {
    let mut group = json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": {
            "name": podgroup_name(job), "namespace": namespace(job), "ownerReferences": owned_by(job),
            "annotations": job.pointer("/metadata/annotations").cloned().unwrap_or_else(|| json!({})),
            "labels": job.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({})),
        },
        "spec": podgroup_spec(world, job),
        "status": {"phase": "Pending"},
    });
    if let Some(annotations) = group.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    group
}

fn podgroup_spec(world: &World, job: &Value) -> Value {
    let mut spec = json!({
        "minMember": number(job, "/spec/minAvailable"),
        "queue": queue_of(job),
        "minTaskMember": list(job, "/spec/tasks")
            .iter()
            .map(|task| (text(task, "/name").to_owned(), task_minimum(task).into()))
            .collect::<serde_json::Map<_, _>>(),
    });
    if let Ok(gang) = caldera_crds::workload::gang(job) {
        let priority = |class: &str| {
            let class = world.get(Kind::PriorityClass, &(String::new(), class.to_owned()));
            class.map_or(0, |class| i32::try_from(number(class, "/value")).unwrap_or_default())
        };
        spec["minResources"] = json!(caldera_core::podgroup::minimum(&gang, priority).min_resources);
    }
    for (field, pointer) in
        [("priorityClassName", "/spec/priorityClassName"), ("networkTopology", "/spec/networkTopology")]
    {
        if let Some(value) = job.pointer(pointer).filter(|value| value.as_str() != Some("")) {
            spec[field] = value.clone();
        }
    }
    spec
}

fn podgroup_change(world: &World, job: &Value, group: &Value) -> Option<Want> {
    let wanted = podgroup_spec(world, job);
    let differs = ["minMember", "minTaskMember", "priorityClassName", "minResources"]
        .iter()
        .any(|field| wanted.get(field).is_some() && wanted.get(field) != group.pointer(&format!("/spec/{field}")));
    differs.then(|| merge(Kind::PodGroup, group, None, json!({"spec": wanted})))
}

/// Pods to create (where `dependsOn` lets them) and, after a scale-down, to delete.
fn pod_changes(job: &Value, pods: &[&Value], counts: &Counts) -> Vec<Want> {
    let version = number(job, "/status/version").to_string();
    let mut wants = Vec::new();
    let mut wanted = std::collections::BTreeSet::new();
    for task in list(job, "/spec/tasks") {
        let blocked = !dependencies_met(job, task, counts);
        for index in 0..number(task, "/replicas") {
            let pod_name = format!("{}-{}-{index}", name(job), text(task, "/name"));
            let exists = pods.iter().any(|pod| name(pod) == pod_name);
            if !exists && !blocked {
                wants.push(create(Kind::Pod, pod(job, task, index, &pod_name, &version)));
            }
            wanted.insert(pod_name);
        }
    }
    wants.extend(
        pods.iter().filter(|pod| !deleting(pod) && !wanted.contains(name(pod))).map(|pod| delete(Kind::Pod, pod)),
    );
    wants
}

fn dependencies_met(job: &Value, task: &Value, counts: &Counts) -> bool {
    let names = list(task, "/dependsOn/name");
    if names.is_empty() {
        return true;
    }
    let met = |name: &Value| {
        let name = name.as_str().unwrap_or_default();
        let Some(task) = task_named(job, name) else { return true };
        let up = counts.in_task(name, "Running") + counts.in_task(name, "Succeeded");
        up >= task_minimum(task)
    };
    if text(task, "/dependsOn/iteration") == "any" { names.iter().any(met) } else { names.iter().all(met) }
}

fn pod(job: &Value, task: &Value, index: i64, pod_name: &str, version: &str) -> Value {
    let mut metadata = task.pointer("/template/metadata").cloned().unwrap_or_else(|| json!({}));
    if !metadata.is_object() {
        metadata = json!({});
    }
    metadata["name"] = pod_name.into();
    metadata["namespace"] = namespace(job).into();
    metadata["ownerReferences"] = owned_by(job);
    for field in ["creationTimestamp", "generateName"] {
        metadata.as_object_mut().map(|fields| fields.remove(field));
    }
    for kind in ["labels", "annotations"] {
        if !metadata.get(kind).is_some_and(Value::is_object) {
            metadata[kind] = json!({});
        }
    }
    let task_name = text(task, "/name");
    for (key, value) in [
        ("volcano.sh/job-name", name(job)),
        ("volcano.sh/job-namespace", namespace(job)),
        ("volcano.sh/queue-name", queue_of(job)),
        (TASK_SPEC, task_name),
        ("volcano.sh/task-index", index.to_string().as_str()),
    ] {
        metadata["labels"][key] = value.into();
        metadata["annotations"][key] = value.into();
    }
    metadata["annotations"][JOB_VERSION] = version.into();
    metadata["annotations"]["scheduling.k8s.io/group-name"] = podgroup_name(job).into();
    metadata["annotations"]["volcano.sh/template-uid"] = format!("{}-{task_name}", name(job)).into();
    for (key, value) in job.pointer("/metadata/annotations").and_then(Value::as_object).into_iter().flatten() {
        if key.starts_with(super::kubelet::PREFIX) && metadata["annotations"].get(key).is_none() {
            metadata["annotations"][key.as_str()] = value.clone();
        }
    }
    let mut spec = task.pointer("/template/spec").cloned().unwrap_or_else(|| json!({}));
    spec["schedulerName"] = match text(job, "/spec/schedulerName") {
        "" => "volcano".into(),
        scheduler => scheduler.into(),
    };
    if text(&spec, "/priorityClassName").is_empty() && !text(job, "/spec/priorityClassName").is_empty() {
        spec["priorityClassName"] = text(job, "/spec/priorityClassName").into();
    }
    if spec.pointer("/hostname").is_none() && job.pointer("/spec/plugins/svc").is_some() {
        spec["hostname"] = pod_name.into();
        spec["subdomain"] = name(job).into();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}
