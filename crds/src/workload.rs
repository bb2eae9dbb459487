//! Reads a workload of any kind that can be queued: its gang, its queue, its PriorityClass and its annotations.
//!
//! Rules: a Volcano Job after its defaults (`pkg/webhooks/admission/jobs/mutate/mutate_job.go`) and within its limits
//! (`jobs/validate/admit_job.go`); a pod's request as Kubernetes counts it (`component-helpers/resource/helpers.go`);
//! the queue of other kinds as Volcano's pod-group controller reads it
//! (`pkg/controllers/podgroup/pg_controller_handler.go`). Kinds of other projects are read by their table
//! ([`layouts`]).
//!
//! Pods of a Deployment, StatefulSet or batch Job are useful one by one. Such a gang asks for all its replicas but
//! needs only one, unless the annotation `scheduling.volcano.sh/group-min-member` asks for more.

pub mod annotations;
mod anti_affinity;
mod completion;
pub mod declared;
mod declared_kind;
pub mod device_claims;
mod field;
mod group_pods;
mod kind;
pub mod kind_declaration;
pub mod kind_names;
mod layout;
mod layout_reader;
mod layouts;
mod left_to_member;
mod member_queue;
mod mpi_job;
mod numa_claim;
mod pod_owner;
mod pod_specs;
mod pod_template;
mod policies;
pub mod progress;
pub mod qos_level;
mod sent_queue;
mod spark_pod;
pub mod submission;
mod task_index;
mod task_topology;
#[cfg(test)]
mod tests;
mod train_job;
mod train_node;
mod volcano_job;

use std::{collections::BTreeSet, sync::Arc};

use caldera_core::{
    declared_data::{Data, ParseDataError},
    gang::{Gang, QueueName, Task, TaskName, WorkloadRef},
    image_locality::PodImages,
    resources::Resources,
    status::duration,
    text::count_noun,
};
use serde_json::Value;

pub use caldera_core::gang::SOLE_TASK;

pub use self::{
    completion::list_completing_tasks,
    declared_kind::DeclaredKind,
    group_pods::{GroupOfPod, read_group_of_pod, remove_host_group},
    kind::WorkloadKind,
    left_to_member::list_wishes_left_to_member,
    member_queue::POD_GROUPS,
    pod_owner::find_job as find_job_of_pod,
    pod_specs::edit_pod_specs,
    pod_template::leaves_model_open,
    policies::{read_max_retry, restarts_when_a_pod_fails},
    sent_queue::{OTHER_POD_MAKERS, find_sent_queue},
    task_index::{INDEX_PLUGINS, find_shell},
    train_job::mark_pods,
    volcano_job::RANK_PLUGINS,
};
use crate::names::{
    caldera::DATA,
    volcano::{DEFAULT_QUEUE, GROUP_MIN_MEMBER, PREEMPTABLE, QUEUE, QUEUE_OLD, SLA_WAITING_TIME},
};
use field::Field;

/// Why an object can not be read as a gang.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GangError {
    /// Its kind is not one of [`WorkloadKind`].
    #[error("{api_version} {kind} is not a workload that can be queued")]
    Unsupported {
        /// As in the object.
        api_version: String,
        /// As in the object.
        kind: String,
    },
    /// A field has a value that it must not have.
    #[error("{field}: {why}")]
    Field {
        /// From the object's root: `spec.tasks[0].replicas`.
        field: String,
        /// With the value and the limit.
        why: String,
    },
}

/// The reference to a workload; `None` if its kind is not in scope.
#[must_use]
pub fn reference_of(object: &Value) -> Option<WorkloadRef> {
    let kind = WorkloadKind::of_object(object)?;
    let metadata = |key: &str| object.get("metadata").and_then(|metadata| metadata.get(key)).and_then(Value::as_str);
    Some(WorkloadRef {
        group: kind.group().to_owned(),
        kind: kind.kind().to_owned(),
        namespace: metadata("namespace").unwrap_or("").to_owned(),
        name: metadata("name")?.to_owned(),
    })
}

/// Reads a workload as a gang: its tasks, their requests and how many pods must start together.
pub fn read_gang(object: &Value) -> Result<Gang, GangError> {
    let gang = read_gang_of_copy(object)?;
    check_node_rules(&gang)?;
    Ok(gang)
}

/// The same of a member's copy, whose pods may be kept to more nodes by name than a user may list.
pub fn read_gang_of_copy(object: &Value) -> Result<Gang, GangError> {
    // The paths of all fields take longer than all else: they are made once there is an error that names one.
    let gang = gang_of(&Field::unnamed(object)).or_else(|_| gang_of(&Field::root(object)))?;
    check_resource_count(&gang)?;
    Ok(Gang { clusters: annotations::read_cluster_choice(object).map(Arc::new), ..gang })
}

/// Resources and card models that a workload is charged at most, by name: a limit of ours, for queues keep each name.
const MOST_RESOURCES: usize = 64;

fn check_resource_count(gang: &Gang) -> Result<(), GangError> {
    let mut names = BTreeSet::new();
    for task in &gang.tasks {
        names.extend(task.charge().iter().map(|(name, _)| name.clone()));
    }
    if names.len() <= MOST_RESOURCES {
        return Ok(());
    }
    let why = format!("its pods ask for {} resources and card models, and {MOST_RESOURCES} are the most", names.len());
    Err(GangError::Field { field: "spec".to_owned(), why })
}

/// What a workload's pods may say of nodes, and as much more for each of its tasks: labels of a selector, expressions
/// and values of an affinity, tolerations, card models and containers that want whole CPUs of NUMA nodes. A limit of
/// ours, for each is asked of each node, again and again while it waits.
const MOST_NODE_RULES: usize = 1_024;
const MOST_NODE_RULES_OF_TASK: usize = 16;

fn check_node_rules(gang: &Gang) -> Result<(), GangError> {
    let rules = gang.tasks.iter().map(|task| task.node.count_rules()).sum::<usize>();
    let most = MOST_NODE_RULES.saturating_add(MOST_NODE_RULES_OF_TASK.saturating_mul(gang.tasks.len()));
    if rules <= most {
        return Ok(());
    }
    let why = format!(
        "its pods say {rules} things of nodes, in selectors, affinities with their values, tolerations and containers \
         with a topologyPolicy, and {most} are the most"
    );
    Err(GangError::Field { field: "spec".to_owned(), why })
}

/// Why an Indexed Job is not split (`JOB_COMPLETION_INDEX`).
const INDEXED: &str = "completionMode Indexed numbers its pods within one cluster";

fn gang_of(root: &Field<'_>) -> Result<Gang, GangError> {
    let object = root.value;
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
    let kind = WorkloadKind::of_object(object)
        .ok_or_else(|| GangError::Unsupported { api_version: text("apiVersion"), kind: text("kind") })?;
    let mut gang = match kind {
        WorkloadKind::VolcanoJob => volcano_job::read_gang(root)?,
        WorkloadKind::Deployment | WorkloadKind::StatefulSet => {
            let replicas = root.at(&["spec", "replicas"]).map_or(Ok(1), |place| place.parse_count())?;
            read_one_task_gang(root, replicas)?
        }
        WorkloadKind::BatchJob => {
            let gang = read_one_task_gang(root, batch_job_replicas(root)?)?;
            let is_indexed = root.at(&["spec", "completionMode"]).is_some_and(|mode| mode.value == "Indexed");
            let one_cluster = gang.one_cluster.or_else(|| is_indexed.then(|| INDEXED.to_owned()));
            Gang { min_success: read_completions(root)?, one_cluster, ..gang }
        }
        WorkloadKind::Pod => read_one_task_gang(root, 1)?,
        _ => {
            return kind.layout().map_or_else(
                || Err(GangError::Unsupported { api_version: text("apiVersion"), kind: text("kind") }),
                |layout| {
                    device_claims::check_kind(root, kind)?;
                    layout_reader::check_demands(root, layout)?;
                    member_queue::check_job(root, kind, layout)?;
                    layout_reader::read_gang(root, kind, layout)
                },
            );
        }
    };
    for (index, task) in gang.tasks.iter_mut().enumerate() {
        let template = match kind {
            WorkloadKind::VolcanoJob => &object["spec"]["tasks"][index]["template"],
            WorkloadKind::Pod => object,
            _ => &object["spec"]["template"],
        };
        task.node.most_per_node = anti_affinity::most_per_node(object, kind, template, task);
    }
    Ok(gang)
}

/// The location of a Volcano Job's data, from its annotation. The webhook refuses an annotation that can not be parsed;
/// one that is there all the same counts as absent, so that it never keeps a job from running.
#[must_use]
pub fn read_data_location(object: &Value) -> Option<Result<Data, ParseDataError>> {
    Some(object.get("metadata")?.get("annotations")?.get(DATA)?.as_str()?.parse())
}

/// The images of a Volcano Job's pods, init containers among them; `None` for other kinds. Nor are they asked of a job
/// that a HyperJob made: its jobs are placed one after the other and all or none, so a cluster that one of them likes
/// for its images could leave no cluster for the next.
#[must_use]
pub fn read_pod_images(object: &Value) -> Option<PodImages> {
    if WorkloadKind::of_object(object) != Some(WorkloadKind::VolcanoJob) || find_hyper_job(object).is_some() {
        return None;
    }
    let images = |spec: &'_ Value| -> Vec<String> {
        let containers = ["initContainers", "containers"].into_iter().filter_map(|key| spec[key].as_array()).flatten();
        containers.map(|container| container["image"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let tasks = object["spec"]["tasks"].as_array()?.iter().map(|task| {
        let pods = task["replicas"].as_u64().and_then(|pods| u32::try_from(pods).ok()).unwrap_or(0);
        (pods, images(&task["template"]["spec"]))
    });
    PodImages::from_kinds(tasks)
}

/// Name and UID of the HyperJob that controls an object.
#[must_use]
pub fn find_hyper_job(object: &Value) -> Option<(&str, &str)> {
    let mut owners = object["metadata"]["ownerReferences"].as_array()?.iter();
    let owner = owners.find(|owner| {
        let group = owner["apiVersion"].as_str().unwrap_or_default();
        owner["controller"] == true && owner["kind"] == "HyperJob" && group.starts_with("training.volcano.sh/")
    })?;
    Some((owner["name"].as_str()?, owner["uid"].as_str()?))
}

/// What an existing pod takes from its node. The rules of gangs do not apply to it, and an amount that can not be
/// parsed counts as zero.
#[must_use]
pub fn read_existing_pod_request(pod: &Value) -> Resources {
    pod_template::read_existing_pod_request(&Field::unnamed(pod))
}

/// Pods that a batch Job runs at once: `parallelism`, but never more than `completions`.
fn batch_job_replicas(root: &Field<'_>) -> Result<u32, GangError> {
    let parallelism = root.at(&["spec", "parallelism"]).map_or(Ok(1), |place| place.parse_count())?;
    Ok(read_completions(root)?.map_or(parallelism, |completions| parallelism.min(completions)))
}

/// Pods of a batch Job that must succeed.
fn read_completions(root: &Field<'_>) -> Result<Option<u32>, GangError> {
    root.at(&["spec", "completions"]).map(|place| place.parse_count()).transpose()
}

fn read_one_task_gang(root: &Field<'_>, replicas: u32) -> Result<Gang, GangError> {
    let pod = find_pod_template(root).unwrap_or_else(|| root.absent_field(&["spec", "template"]));
    let is_of_group = read_group_of_pod(root.value).is_some();
    if !is_of_group {
        member_queue::check_group(&pod)?;
    }
    let min_available = match group_min_member(root)?.filter(|_| !is_of_group) {
        Some((place, minimum)) if minimum > replicas => {
            return Err(place.wrong(format!("{minimum} is more than the {}", count_noun(replicas, "replica"))));
        }
        Some((_, minimum)) => minimum,
        None => replicas.min(1),
    };
    let task = Task {
        name: TaskName::from(SOLE_TASK),
        replicas,
        min_available,
        request: pod_template::read_request(&pod)?,
        node: pod_template::node_claim(&pod)?,
        priority_class: pod_template::priority_class(&pod).to_owned(),
        partition: None,
    };
    let one_cluster = (min_available > 1).then(|| {
        format!("{GROUP_MIN_MEMBER} says that {min_available} pods start together, which each member counts for itself")
    });
    Ok(Gang { one_cluster, ..Gang::new(vec![task], min_available) })
}

/// The annotation on the workload or its pods.
fn group_min_member<'a>(root: &Field<'a>) -> Result<Option<(Field<'a>, u32)>, GangError> {
    let annotations = [Some(root.clone()), find_pod_template(root)];
    let found = annotations.into_iter().flatten().find_map(|at| at.at(&["metadata", "annotations", GROUP_MIN_MEMBER]));
    let Some(place) = found else { return Ok(None) };
    let text = place.text()?;
    match text.parse::<u32>() {
        Ok(minimum) => Ok(Some((place, minimum))),
        Err(_) => Err(place.wrong(format!("{text:?} is not a number of pods"))),
    }
}

/// The waiting time, in seconds, after which a workload should have started: the annotation of Volcano's sla plugin on
/// its pods or on itself. `None` if there is none, or none that the plugin would accept.
#[must_use]
pub fn sla_waiting_time(object: &Value) -> Option<i64> {
    let root = Field::unnamed(object);
    let places = [find_pod_template(&root), Some(root)];
    let reported = places.iter().flatten().find_map(|at| at.at(&["metadata", "annotations", SLA_WAITING_TIME]))?;
    duration::parse_whole_seconds(reported.value.as_str()?)
}

/// The estimated running time of a workload, in seconds: our annotation, else Volcano's `spec.runningEstimate` (a
/// `metav1.Duration`), else `activeDeadlineSeconds`. A value that is not a duration counts as absent.
#[must_use]
pub fn running_estimate(object: &Value) -> Option<i64> {
    let deadline: layout::Path = match WorkloadKind::of_object(object).and_then(WorkloadKind::layout) {
        Some(layout) => layout.deadline,
        None => &["spec", "activeDeadlineSeconds"],
    };
    annotations::running_estimate(object)
        .or_else(|| object["spec"]["runningEstimate"].as_str().and_then(duration::parse_whole_seconds))
        .or_else(|| layout::follow_path(object, deadline).as_i64())
        .filter(|seconds| *seconds > 0)
}

/// Whether a workload is marked as preemptable: on itself, as Volcano reads it from the PodGroup (annotation before
/// label, `pkg/scheduler/api/job_info.go`), else on its pods, where one "no" is enough. A value that is not a boolean
/// counts as "no". One that says nothing is preemptable where all of its pods are best effort ([`qos_level`]).
#[must_use]
pub fn read_preemptable(object: &Value) -> Option<bool> {
    let root = Field::unnamed(object);
    let own = says_preemptable(&root);
    if own.is_some() {
        return own;
    }
    let said: Vec<bool> = list_pod_templates(&root).iter().filter_map(says_preemptable).collect();
    match said.is_empty() {
        true => qos_level::is_best_effort(object).then_some(true),
        false => Some(said.into_iter().all(|says| says)),
    }
}

/// The templates of a workload's pods: of a Volcano Job one for each task.
fn list_pod_templates<'a>(root: &Field<'a>) -> Vec<Field<'a>> {
    match WorkloadKind::of_object(root.value) {
        Some(WorkloadKind::VolcanoJob) => {
            let tasks = root.at(&["spec"]).and_then(|spec| spec.list("tasks").ok()).unwrap_or_default();
            tasks.iter().filter_map(|task| task.at(&["template"])).collect()
        }
        Some(kind) if let Some(layout) = kind.layout() => layout_reader::list_templates(layout, root),
        _ => Vec::from_iter(find_pod_template(root)),
    }
}

fn says_preemptable(place: &Field<'_>) -> Option<bool> {
    let reported = ["annotations", "labels"].into_iter().find_map(|at| place.at(&["metadata", at, PREEMPTABLE]))?;
    Some(reported.value.as_str().is_some_and(annotations::is_true))
}

/// The template of a workload's pods, where there is one; a Pod is its own.
fn find_pod_template<'a>(root: &Field<'a>) -> Option<Field<'a>> {
    match WorkloadKind::of_object(root.value) {
        Some(WorkloadKind::Pod) => Some(root.clone()),
        Some(kind) if kind.layout().is_some() => None,
        _ => root.at(&["spec", "template"]),
    }
}

/// The queue that is charged for a workload.
#[must_use]
pub fn queue_of(object: &Value) -> QueueName {
    QueueName::from(named_queue(object).unwrap_or(DEFAULT_QUEUE))
}

/// Whether a workload names a queue. Kinds other than Volcano's Job are queued only then, or by their namespace.
#[must_use]
pub fn names_queue(object: &Value) -> bool {
    named_queue(object).is_some()
}

/// Rule: Volcano's pod-group controller, which prefers its older annotation, and the pods' before the workload's; then
/// the key that newer clients write. Then the field of its own kind that its operator puts into a PodGroup.
fn named_queue(object: &Value) -> Option<&str> {
    let root = Field::unnamed(object);
    if WorkloadKind::of_object(object) == Some(WorkloadKind::VolcanoJob) {
        return root.at(&["spec", "queue"]).and_then(|place| place.value.as_str()).filter(|name| !name.is_empty());
    }
    let places = [find_pod_template(&root), Some(root)];
    let named = [("annotations", QUEUE_OLD), ("labels", QUEUE), ("annotations", QUEUE)].into_iter().find_map(
        |(where_, key)| {
            places.iter().flatten().find_map(|place| {
                place
                    .at(&["metadata", where_, key])
                    .and_then(|place| place.value.as_str())
                    .filter(|name| !name.is_empty())
            })
        },
    );
    let mut fields = WorkloadKind::of_object(object).into_iter().flat_map(WorkloadKind::list_queue_fields);
    named.or_else(|| {
        fields.find_map(|field| layout::follow_path(object, field).as_str().filter(|name| !name.is_empty()))
    })
}

/// The PriorityClass of a workload, empty for none: a Volcano Job's own, otherwise its pods'.
#[must_use]
pub fn priority_class_of(object: &Value) -> &str {
    let root = Field::unnamed(object);
    let kind = WorkloadKind::of_object(object);
    if kind == Some(WorkloadKind::VolcanoJob) {
        return root.at(&["spec", "priorityClassName"]).and_then(|place| place.value.as_str()).unwrap_or("");
    }
    if let Some(layout) = kind.and_then(WorkloadKind::layout) {
        return layout_reader::priority_class(layout, &root);
    }
    find_pod_template(&root).map_or("", |pod| pod_template::priority_class(&pod))
}
