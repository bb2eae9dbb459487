//! Checks a new job as Volcano's `validateJobCreate` does, in its order, and says each fault twice: in Volcano's words
//! and in ours.
//!
//! Four faults are reported alone: more tasks than [`MOST_TASKS`] (a limit of ours), a name longer than any object may
//! have, no tasks, an MPI job without its master. Else all faults are, with two bounds: no task is looked at after one
//! whose name is a duplicate, and nothing more once [`MOST_REFUSALS`] are found before a task. Of the volumes only the
//! first fault is told.

use std::collections::{BTreeSet, HashMap};

use caldera_core::text::count_noun;
use serde_json::{Map, Value};

use super::{
    MOST_REFUSALS, MOST_TASKS, PLUGINS, Refusal, list_tasks, pods, policies::check_policies, read_integer_or_zero,
    read_partition, read_text,
};
use crate::dns::is_dns_subdomain;

/// What is wrong with a new job; empty if it may be created.
#[must_use]
pub fn list_creation_refusals(job: &Value) -> Vec<Refusal> {
    let empty = Map::new();
    let spec = job.get("spec").and_then(Value::as_object).unwrap_or(&empty);
    let name = job.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("");
    if let Some(refusal) = check_task_count(spec).or_else(|| check_object_name_length(name)) {
        return vec![refusal];
    }
    if list_tasks(spec).next().is_none() {
        return vec![Refusal::new("spec.tasks", "No task specified in job spec", "a job needs at least one task")];
    }
    if let Some(refusal) = check_mpi_master_task(spec) {
        return vec![refusal];
    }
    let mut refusals = check_numbers_not_negative(spec);
    refusals.extend(check_network_topology(spec.get("networkTopology"), "spec.networkTopology"));
    let mut names = BTreeSet::new();
    let mut replicas = 0i64;
    for (index, task) in list_tasks(spec).enumerate() {
        if refusals.len() >= MOST_REFUSALS {
            return refusals;
        }
        let task_name = read_text(task, "name");
        let texts = ["'replicas' < 0", "'minAvailable' < 0", "'minAvailable' is greater than 'replicas'"];
        let text = |at: usize| format!("{} in task: {task_name}, job: {name}", texts[at]);
        refusals.extend(check_replicas_and_minimum(index, task, text));
        replicas = replicas.saturating_add(read_integer_or_zero(task, "replicas"));
        refusals.extend(pods::check_task_name(task_name, || format!("spec.tasks[{index}].name")));
        if !names.insert(task_name) {
            refusals.push(Refusal::new(
                format!("spec.tasks[{index}].name"),
                format!("duplicated task name {task_name}"),
                format!("{task_name:?} is the name of an earlier task; names must be unique in a job"),
            ));
            break;
        }
        let field = || format!("spec.tasks[{index}].policies");
        refusals.extend(check_policies(task.get("policies"), "spec.tasks.policies", field));
        refusals.extend(pods::check_pod_name(name, task_name, index));
        refusals.extend(pods::check_pod_template(task, index));
        refusals.extend(check_partition_policy(name, index, task));
    }
    refusals.extend(pods::check_job_name(name));
    let minimum = read_integer_or_zero(spec, "minAvailable");
    if replicas < minimum {
        refusals.push(Refusal::new(
            "spec.minAvailable",
            "job 'minAvailable' should not be greater than total replicas in tasks",
            format!("{minimum} is more than the {} of all tasks", count_noun(replicas, "replica")),
        ));
    }
    refusals.extend(check_policies(spec.get("policies"), "spec.policies", || "spec.policies".to_owned()));
    refusals.extend(check_plugin_names(spec));
    refusals.extend(check_volumes(spec.get("volumes")));
    if !is_acyclic(spec) {
        refusals.push(Refusal::new(
            "spec.tasks[*].dependsOn",
            "job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG)",
            "the dependencies form a cycle, or name a task that the job does not have",
        ));
    }
    refusals
}

/// A limit of ours: nothing else is looked at.
fn check_task_count(spec: &Map<String, Value>) -> Option<Refusal> {
    let tasks = spec.get("tasks").and_then(Value::as_array).map_or(0, Vec::len);
    (tasks > MOST_TASKS).then(|| build_task_count_refusal(tasks))
}

/// The refusal of a job with more than [`MOST_TASKS`].
#[must_use]
pub fn build_task_count_refusal(tasks: usize) -> Refusal {
    let why = format!("{tasks} tasks are above {MOST_TASKS}; pods that are alike are replicas of one task");
    Refusal::new("spec.tasks", why.clone(), why)
}

/// A name that no object can have is not repeated for each task.
fn check_object_name_length(name: &str) -> Option<Refusal> {
    (name.len() > 253).then(|| pods::check_job_name(name)).flatten()
}

fn check_numbers_not_negative(spec: &Map<String, Value>) -> Vec<Refusal> {
    [
        ("minAvailable", "job 'minAvailable' must be >= 0."),
        ("maxRetry", "'maxRetry' cannot be less than zero."),
        ("ttlSecondsAfterFinished", "'ttlSecondsAfterFinished' cannot be less than zero."),
    ]
    .into_iter()
    .filter(|(key, _)| read_integer_or_zero(spec, key) < 0)
    .map(|(key, volcano)| {
        Refusal::new(format!("spec.{key}"), volcano, format!("{} is below 0", read_integer_or_zero(spec, key)))
    })
    .collect()
}

/// Checks a task's replicas and minimum. `text` makes Volcano's for 0, negative replicas, 1, a negative minimum, and 2,
/// a minimum above the replicas: they differ between CREATE and UPDATE.
pub(super) fn check_replicas_and_minimum(
    index: usize,
    task: &Map<String, Value>,
    text: impl Fn(usize) -> String,
) -> Vec<Refusal> {
    let replicas = read_integer_or_zero(task, "replicas");
    let mut refusals = Vec::new();
    if replicas < 0 {
        let field = format!("spec.tasks[{index}].replicas");
        refusals.push(Refusal::new(field, text(0), format!("{replicas} is below 0")));
    }
    let field = || format!("spec.tasks[{index}].minAvailable");
    match task.get("minAvailable").and_then(Value::as_i64) {
        Some(minimum) if minimum < 0 => {
            refusals.push(Refusal::new(field(), text(1), format!("{minimum} is below 0")));
        }
        Some(minimum) if minimum > replicas => {
            let why = format!("{minimum} is more than the task's {}", count_noun(replicas, "replica"));
            refusals.push(Refusal::new(field(), text(2), why));
        }
        _ => {}
    }
    refusals
}

fn describe_partitions(number: i64, size: i64) -> String {
    format!("{} of {}", count_noun(number, "partition"), count_noun(size, "pod"))
}

/// A partitioned task's replicas are `totalPartitions * partitionSize` (`validatePartitionPolicy`).
pub(super) fn check_partition_policy(job: &str, index: usize, task: &Map<String, Value>) -> Vec<Refusal> {
    let Some(partition) = read_partition(task) else { return Vec::new() };
    let name = read_text(task, "name");
    let (replicas, minimum) =
        (read_integer_or_zero(task, "replicas"), task.get("minAvailable").and_then(Value::as_i64));
    let path = format!("spec.tasks[{index}].partitionPolicy");
    let place = format!("in task: {name}, job: {job}");
    let mut refusals = Vec::new();
    if partition.total <= 0 {
        refusals.push(Refusal::new(
            format!("{path}.totalPartitions"),
            format!("'TotalPartitions' must be greater than 0 {place}"),
            format!("{} is not above 0", partition.total),
        ));
    } else if partition.size <= 0 {
        refusals.push(Refusal::new(
            format!("{path}.partitionSize"),
            format!("'PartitionSize' must be greater than 0 {place}"),
            format!("{} is not above 0", partition.size),
        ));
    } else if replicas != partition.total.saturating_mul(partition.size) {
        refusals.push(Refusal::new(
            format!("spec.tasks[{index}].replicas"),
            format!("'Replicas' are not equal to TotalPartitions*PartitionSize {place}"),
            format!("{replicas} is not {}", describe_partitions(partition.total, partition.size)),
        ));
    } else if let Some(minimum) = minimum
        && partition.min > 0
        && partition.min.saturating_mul(partition.size) != minimum
    {
        refusals.push(Refusal::new(
            format!("spec.tasks[{index}].minAvailable"),
            format!("'MinAvailable' is not equal to MinPartitions*PartitionSize {place}"),
            format!("{minimum} is not {}", describe_partitions(partition.min, partition.size)),
        ));
    }
    let topology = task.get("partitionPolicy").and_then(|policy| policy.get("networkTopology"));
    refusals.extend(check_network_topology(topology, &format!("{path}.networkTopology")));
    refusals
}

/// At most one of `highestTierAllowed` and `highestTierName`.
pub(super) fn check_network_topology(topology: Option<&Value>, path: &str) -> Option<Refusal> {
    let topology = topology?.as_object()?;
    let by_number = topology.get("highestTierAllowed").is_some_and(|tier| !tier.is_null());
    (by_number && !read_text(topology, "highestTierName").is_empty()).then(|| {
        Refusal::new(
            path,
            "must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously",
            "give highestTierAllowed or highestTierName, not both",
        )
    })
}

fn check_mpi_master_task(spec: &Map<String, Value>) -> Option<Refusal> {
    let arguments = spec.get("plugins")?.get("mpi")?;
    let master = read_master_argument(arguments);
    let found = list_tasks(spec).any(|task| read_text(task, "name") == master);
    (!found).then(|| {
        Refusal::new(
            "spec.plugins.mpi",
            "The specified mpi master task was not found",
            format!("the job has no task named {master:?}, the master of the mpi plugin"),
        )
    })
}

/// `--master=x`, `-master x`, ...: what Go's flag package takes; the last one wins.
fn read_master_argument(arguments: &Value) -> String {
    let mut master = "master".to_owned();
    let mut words = arguments.as_array().into_iter().flatten().filter_map(Value::as_str);
    while let Some(word) = words.next() {
        let Some(flag) = word.strip_prefix('-') else { break };
        let flag = flag.strip_prefix('-').unwrap_or(flag);
        match flag.split_once('=') {
            Some(("master", value)) => value.clone_into(&mut master),
            Some(_) => {}
            None => {
                let value = words.next().unwrap_or("");
                if flag == "master" {
                    value.clone_into(&mut master);
                }
            }
        }
    }
    master
}

fn check_plugin_names(spec: &Map<String, Value>) -> Vec<Refusal> {
    let plugins = spec.get("plugins").and_then(Value::as_object).into_iter().flatten();
    plugins
        .filter(|(name, _)| !PLUGINS.contains(&name.as_str()))
        .map(|(name, _)| {
            Refusal::new(
                format!("spec.plugins.{name}"),
                format!("unable to find job plugin: {name}"),
                format!("{name:?} is not a job plugin; there are {}", PLUGINS.join(", ")),
            )
        })
        .collect()
}

/// The first thing wrong with the volumes (`validateIO`).
fn check_volumes(volumes: Option<&Value>) -> Option<Refusal> {
    let mut paths = BTreeSet::new();
    let volumes = volumes.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object);
    for (index, volume) in volumes.enumerate() {
        let field = format!("spec.volumes[{index}]");
        let (path, claim_name) = (read_text(volume, "mountPath"), read_text(volume, "volumeClaimName"));
        let has_claim = volume.get("volumeClaim").is_some_and(|claim| !claim.is_null());
        if path.is_empty() {
            return Some(Refusal::new(field, "mountPath is required;", "mountPath is required"));
        }
        if !paths.insert(path) {
            return Some(Refusal::new(
                field,
                format!("duplicated mountPath: {path};"),
                format!("mountPath {path:?} is that of an earlier volume"),
            ));
        }
        if !has_claim && claim_name.is_empty() {
            let text = "either VolumeClaim or VolumeClaimName must be specified";
            return Some(Refusal::new(field, format!("{text};"), "give volumeClaim or volumeClaimName"));
        }
        if has_claim && !claim_name.is_empty() {
            return Some(Refusal::new(
                field,
                "conflict: If you want to use an existing PVC, just specify VolumeClaimName.If you want to create a \
                 new PVC, you do not need to specify VolumeClaimName",
                "give volumeClaim for a new claim or volumeClaimName for an existing one, not both",
            ));
        }
        if !claim_name.is_empty() && !is_dns_subdomain(claim_name) {
            return Some(Refusal::new(
                format!("{field}.volumeClaimName"),
                format!("invalid VolumeClaimName {claim_name} : [{}]", pods::SUBDOMAIN_RULE),
                format!("{claim_name:?} is not a name: {}", pods::SUBDOMAIN_RULE),
            ));
        }
    }
    None
}

/// Whether `dependsOn` orders all tasks (`topoSort`): a dependency on a task that is not there counts as a cycle.
/// Tasks are taken away in the order in which they become free (Kahn), so that each dependency is looked at once.
fn is_acyclic(spec: &Map<String, Value>) -> bool {
    let mut waits: HashMap<&str, Vec<&str>> = HashMap::new();
    for task in list_tasks(spec) {
        let on = task.get("dependsOn").and_then(|on| on.get("name")).and_then(Value::as_array);
        let mut on: Vec<&str> = on.into_iter().flatten().filter_map(Value::as_str).collect();
        on.sort_unstable();
        on.dedup();
        waits.insert(read_text(task, "name"), on);
    }
    // Most jobs order nothing.
    if waits.values().all(Vec::is_empty) {
        return true;
    }
    let mut waiting: HashMap<&str, Vec<&str>> = HashMap::new();
    for (task, on) in &waits {
        on.iter().for_each(|on| waiting.entry(on).or_default().push(task));
    }
    let mut free: Vec<&str> = waits.iter().filter(|(_, on)| on.is_empty()).map(|(task, _)| *task).collect();
    let mut left: HashMap<&str, usize> = waits.iter().map(|(task, on)| (*task, on.len())).collect();
    let mut ordered = 0;
    while let Some(task) = free.pop() {
        ordered += 1;
        for next in waiting.remove(task).into_iter().flatten() {
            if let Some(on) = left.get_mut(next) {
                *on -= 1;
                if *on == 0 {
                    free.push(next);
                }
            }
        }
    }
    ordered == waits.len()
}
