//! The admission rules of Volcano's own webhooks for `batch.volcano.sh/v1alpha1` Job: defaults on CREATE, checks on
//! CREATE and UPDATE, as plain functions of JSON.
//!
//! Rule: Volcano `pkg/webhooks/admission/jobs/mutate/mutate_job.go` (`createPatch`, in its order) and
//! `jobs/validate/{admit_job,util}.go`. Negative numbers, which newer versions of Volcano leave to the CRD's schema,
//! are refused here too. Whether the queue exists and is open is checked apart, by [`queue_refusals`]: a member refuses
//! such a job, the host only warns.
//!
//! Each refusal has two texts: Volcano's own, for the stand-in of Volcano, and a sentence with field, value and limit.

mod create;
mod pods;
mod policies;
mod update;

use std::{borrow::Cow, fmt};

use serde_json::{Map, Value, json};

use crate::names::volcano::{DEFAULT_QUEUE, ROOT_QUEUE, SCHEDULER_NAME};

pub use create::{build_task_count_refusal, list_creation_refusals};
pub use update::list_update_refusals;

/// `maxRetry` of jobs and tasks that give none.
pub const DEFAULT_MAX_RETRY: i64 = 3;
/// Tasks of a job at most. Volcano knows no such limit; what is stored is limited anyway, to about as many.
pub const MOST_TASKS: usize = 10_000;
/// After so many refusals the rest of a job is not looked at.
const MOST_REFUSALS: usize = 100;
/// Names of Volcano's job plugins.
pub const PLUGINS: [&str; 8] = ["env", "hcclrank", "mpi", "pytorch", "ray", "ssh", "svc", "tensorflow"];

/// One reason not to admit a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Where, as a path from the object's root: `spec.tasks[0].minAvailable`.
    pub field: String,
    /// Volcano's text.
    pub volcano: String,
    /// What is wrong, with the value and the limit.
    pub why: String,
}

impl Refusal {
    pub(crate) fn new(field: impl Into<String>, volcano: impl Into<String>, why: impl Into<String>) -> Self {
        Self { field: field.into(), volcano: volcano.into(), why: why.into() }
    }

    /// `field: why`, for people.
    #[must_use]
    pub fn sentence(&self) -> String {
        format!("{}: {}", self.field, self.why)
    }
}

/// Volcano's text.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.volcano)
    }
}

/// Volcano's texts for what is wrong with a new job; empty if it may be created (its queue is another question).
#[must_use]
pub fn validate_create(job: &Value) -> Vec<String> {
    list_creation_refusals(job).into_iter().map(|refusal| refusal.volcano).collect()
}

/// Volcano's text for what is wrong with a change; empty if it may be made.
#[must_use]
pub fn validate_update(old: &Value, new: &Value) -> Vec<String> {
    list_update_refusals(old, new).into_iter().map(|refusal| refusal.volcano).collect()
}

/// What a member's webhook sees of a job's queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueView<'a> {
    /// `status.state`, empty before the queue controller wrote it.
    pub state: &'a str,
    /// Queues whose `spec.parent` is this one.
    pub children: usize,
}

/// Why a member refuses a job for its queue; `None` is a queue that does not exist.
#[must_use]
pub fn queue_refusals(name: &str, queue: Option<&QueueView<'_>>) -> Vec<Refusal> {
    let refusal = |volcano: String, why: String| Refusal::new("spec.queue", volcano, why);
    let Some(queue) = queue else {
        return vec![refusal(
            format!("unable to find job queue: queue.scheduling.volcano.sh \"{name}\" not found"),
            format!("queue {name:?} does not exist"),
        )];
    };
    let mut refusals = Vec::new();
    if queue.state != "Open" {
        let state = queue.state;
        refusals.push(refusal(
            format!("can only submit job to queue with state `Open`, queue `{name}` status is `{state}`"),
            format!("queue {name:?} is {}, not Open", if state.is_empty() { "without a state" } else { state }),
        ));
    }
    if name == ROOT_QUEUE {
        refusals.push(refusal("can not submit job to root queue".into(), "no job may be in queue \"root\"".into()));
    } else if queue.children > 0 {
        let children = queue.children;
        refusals.push(refusal(
            format!("can only submit job to leaf queue, queue `{name}` has {children} child queues"),
            format!("queue {name:?} has {children} child queues; only a queue without children takes jobs"),
        ));
    }
    refusals
}

/// A field that a job lacked, and what Volcano fills in.
#[derive(Debug, Clone, PartialEq)]
pub struct Filled {
    /// From the object's root: `spec`, `tasks`, `0`, `name`.
    pub path: Vec<Cow<'static, str>>,
    /// Its value.
    pub value: Value,
}

/// Fills in what Volcano fills in when a job is created; changes nothing when done twice.
pub fn fill_job_defaults(job: &mut Value) {
    drop(fill_defaults(job));
}

/// The same, and says what was filled in.
pub fn fill_defaults(job: &mut Value) -> Vec<Filled> {
    fill_defaults_with_queue(job, None)
}

/// The same where jobs that name no queue are in this one.
pub fn fill_defaults_with_queue(job: &mut Value, queue: Option<String>) -> Vec<Filled> {
    let mut defaults = Defaults::with_queue(queue);
    let tasks = job.get_mut("spec").and_then(|spec| spec.get_mut("tasks")).and_then(Value::as_array_mut);
    for (index, task) in tasks.into_iter().flatten().enumerate() {
        defaults.fill_task(index, task);
    }
    defaults.fill_job(job);
    defaults.filled
}

/// Volcano's defaults of a job whose tasks come one by one, in their order: a large job is never there as a whole.
#[derive(Debug, Default)]
pub struct Defaults {
    /// What was filled in so far.
    pub filled: Vec<Filled>,
    /// The sum of the tasks' minimums.
    minimum: i64,
    /// The queue of a job that names none, if it is not Volcano's.
    queue: Option<String>,
}

impl Defaults {
    /// Those of jobs that are in this queue where they name none.
    #[must_use]
    pub fn with_queue(queue: Option<String>) -> Self {
        Self { queue, ..Self::default() }
    }

    /// Fills in a task.
    pub fn fill_task(&mut self, index: usize, task: &mut Value) {
        if let Some(task) = task.as_object_mut() {
            fill_task_defaults(task, index, &mut self.filled);
            self.minimum = self.minimum.saturating_add(task_minimum(task));
        }
    }

    /// Fills in the job of these tasks. Tasks that it has itself are not looked at.
    pub fn fill_job(&mut self, job: &mut Value) {
        let Some(spec) = job.get_mut("spec").and_then(Value::as_object_mut) else { return };
        let path = ["spec".into()];
        if is_empty_text(spec.get("queue")) {
            fill_field(spec, &path, "queue", json!(self.queue.as_deref().unwrap_or(DEFAULT_QUEUE)), &mut self.filled);
        }
        if is_empty_text(spec.get("schedulerName")) {
            fill_field(spec, &path, "schedulerName", json!(SCHEDULER_NAME), &mut self.filled);
        }
        if read_integer_or_zero(spec, "maxRetry") == 0 {
            fill_field(spec, &path, "maxRetry", json!(DEFAULT_MAX_RETRY), &mut self.filled);
        }
        if read_integer_or_zero(spec, "minAvailable") == 0 {
            fill_field(spec, &path, "minAvailable", json!(self.minimum), &mut self.filled);
        }
        if let Some(plugins) = spec.get_mut("plugins").and_then(Value::as_object_mut) {
            fill_plugin_defaults(plugins, &mut self.filled);
        }
    }
}

/// Sets a field that is told if that changes it.
fn fill_field(
    object: &mut Map<String, Value>,
    path: &[Cow<'static, str>],
    key: &'static str,
    value: Value,
    filled: &mut Vec<Filled>,
) {
    if object.get(key) == Some(&value) {
        return;
    }
    let path = path.iter().cloned().chain([key.into()]).collect();
    object.insert(key.to_owned(), value.clone());
    filled.push(Filled { path, value });
}

fn fill_task_defaults(task: &mut Map<String, Value>, index: usize, filled: &mut Vec<Filled>) {
    let path = ["spec".into(), "tasks".into(), index.to_string().into()];
    if is_empty_text(task.get("name")) {
        fill_field(task, &path, "name", json!(default_task_name(index)), filled);
    }
    if let Some(pod) = task.get_mut("template").and_then(|t| t.get_mut("spec")).and_then(Value::as_object_mut)
        && pod.get("hostNetwork") == Some(&json!(true))
        && is_empty_text(pod.get("dnsPolicy"))
    {
        let path = [&path[..], &["template".into(), "spec".into()]].concat();
        fill_field(pod, &path, "dnsPolicy", json!("ClusterFirstWithHostNet"), filled);
    }
    if task.get("minAvailable").is_none_or(Value::is_null) {
        let minimum = read_partition(task).filter(|partition| partition.min > 0).map_or_else(
            || read_integer_or_zero(task, "replicas"),
            |partition| partition.min.saturating_mul(partition.size),
        );
        fill_field(task, &path, "minAvailable", json!(minimum), filled);
    }
    if read_integer_or_zero(task, "maxRetry") == 0 {
        fill_field(task, &path, "maxRetry", json!(DEFAULT_MAX_RETRY), filled);
    }
}

fn fill_plugin_defaults(plugins: &mut Map<String, Value>, filled: &mut Vec<Filled>) {
    let path = ["spec".into(), "plugins".into()];
    let has = |plugins: &Map<String, Value>, name: &str| plugins.contains_key(name);
    if ["tensorflow", "mpi", "pytorch", "ray"].iter().any(|name| has(plugins, name)) && !has(plugins, "svc") {
        fill_field(plugins, &path, "svc", json!([]), filled);
    }
    if has(plugins, "mpi") && !has(plugins, "ssh") {
        fill_field(plugins, &path, "ssh", json!([]), filled);
    }
}

/// The name Volcano gives to the task at `index` if it has none.
#[must_use]
pub fn default_task_name(index: usize) -> String {
    format!("default{index}")
}

/// A task's minimum where the job's is computed: its own, or all its replicas.
fn task_minimum(task: &Map<String, Value>) -> i64 {
    task.get("minAvailable").and_then(Value::as_i64).unwrap_or_else(|| read_integer_or_zero(task, "replicas"))
}

struct Partition {
    total: i64,
    size: i64,
    min: i64,
}

fn read_partition(task: &Map<String, Value>) -> Option<Partition> {
    let policy = task.get("partitionPolicy")?.as_object()?;
    Some(Partition {
        total: read_integer_or_zero(policy, "totalPartitions"),
        size: read_integer_or_zero(policy, "partitionSize"),
        min: read_integer_or_zero(policy, "minPartitions"),
    })
}

fn read_integer_or_zero(object: &Map<String, Value>, key: &str) -> i64 {
    object.get(key).and_then(Value::as_i64).unwrap_or(0)
}

fn read_text<'a>(object: &'a Map<String, Value>, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or("")
}

fn is_empty_text(value: Option<&Value>) -> bool {
    value.and_then(Value::as_str).unwrap_or("").is_empty()
}

fn list_tasks(spec: &Map<String, Value>) -> impl Iterator<Item = &Map<String, Value>> {
    spec.get("tasks").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object)
}

#[cfg(test)]
mod tests;
