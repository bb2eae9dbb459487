//! Reads a Volcano Job as a gang: with the defaults that Volcano fills in, and within the limits that Volcano checks.
//!
//! Rule: Volcano `pkg/webhooks/admission/jobs/{mutate/mutate_job,validate/admit_job}.go`; what keeps a job in one
//! cluster follows from its plugins (`pkg/controllers/job/plugins`).

use std::{collections::BTreeSet, sync::Arc};

use caldera_core::{
    gang::{Gang, NodeClaim, Partition, Task, TaskName, Topology},
    text::count_noun,
};

use super::{GangError, field::Field, numa_claim, pod_template, task_index, task_topology};
use crate::{
    job_admission::{MOST_TASKS, default_task_name},
    names::caldera::{RENDEZVOUS, RENDEZVOUS_CLUSTERSET, SSH_SECRET},
};

/// Plugins that number or list the pods of one cluster. With them, each cluster's part of a split job would be a job of
/// its own, with its own master and the same ranks. Volcano: `pkg/controllers/job/plugins`.
pub const RANK_PLUGINS: [&str; 5] = ["hcclrank", "mpi", "pytorch", "ray", "tensorflow"];
/// Where plugin `svc` puts its lists of hosts, and how the variables with such a list end.
const HOST_LISTS: [&str; 2] = ["/etc/volcano/", "_HOSTS"];

pub(super) fn read_gang(root: &Field<'_>) -> Result<Gang, GangError> {
    let spec = root.at(&["spec"]).unwrap_or_else(|| root.absent_field(&["spec"]));
    if let Some(tasks) = spec.at(&["tasks"])
        && let Some(count) = tasks.value.as_array().map(Vec::len)
        && count > MOST_TASKS
    {
        // Where the webhook was not asked: half a million empty tasks would take 400 MB.
        return Err(tasks.wrong(format!("{count} tasks are above {MOST_TASKS}")));
    }
    let templates = spec.list("tasks")?;
    if templates.is_empty() {
        return Err(spec.absent_field(&["tasks"]).wrong("a job needs at least one task"));
    }
    let mut names = BTreeSet::new();
    let mut tasks = Vec::with_capacity(templates.len());
    for (index, template) in templates.iter().enumerate() {
        let task = read_task(index, template)?;
        if !names.insert(task.name.clone()) {
            let name = template.at(&["name"]).unwrap_or_else(|| template.absent_field(&["name"]));
            return Err(name.wrong(format!("{:?} is the name of an earlier task", task.name.as_str())));
        }
        tasks.push(task);
    }
    let mut gang = Gang {
        min_available: 0,
        min_success: min_success(&spec)?,
        topology: read_topology(&spec)?,
        one_cluster: find_one_cluster_reason(root, &spec, &templates)?,
        rigid: false,
        data: super::read_data_location(root.value).and_then(Result::ok).map(Arc::new),
        task_topology: task_topology::read_task_topology(root.value).unwrap_or_default(),
        clusters: None,
        tasks,
    };
    gang.min_available = job_minimum(&spec, &gang)?;
    if gang.one_cluster.is_none() && read_rendezvous_mode(root) == RENDEZVOUS_CLUSTERSET {
        // The size of the job is written into every cluster's copy, so it can not change while the job runs.
        gang.rigid = true;
        gang.tasks.iter_mut().for_each(|task| task.min_available = task.replicas);
        gang.min_available = gang.replicas();
    } else if gang.one_cluster.is_none()
        && read_rendezvous_mode(root).is_empty()
        && let Some((plugin, _)) =
            spec.entries(&["plugins"])?.into_iter().find(|(name, _)| task_index::INDEX_PLUGINS.contains(name))
    {
        let say = |why| {
            format!(
                "plugin {plugin} numbers pods within one cluster, and {why}; annotation {RENDEZVOUS} would allow a split"
            )
        };
        gang.one_cluster = task_index::find_obstacle(&gang, &templates)?.map(say);
        gang.rigid = gang.one_cluster.is_none();
    }
    Ok(gang)
}

/// How the user says that the pods of a split job find each other; empty if the user says nothing.
fn read_rendezvous_mode<'a>(root: &Field<'a>) -> &'a str {
    let mode = root.value.get("metadata").and_then(|metadata| metadata.get("annotations")?.get(RENDEZVOUS));
    mode.and_then(serde_json::Value::as_str).unwrap_or_default()
}

/// The job's `minAvailable`. Absent or 0 it is the sum of the tasks' minimums.
fn job_minimum(spec: &Field<'_>, gang: &Gang) -> Result<u32, GangError> {
    let total: u64 = gang.tasks.iter().map(|task| u64::from(task.replicas)).sum();
    if total > i32::MAX.unsigned_abs().into() {
        return Err(spec.absent_field(&["tasks"]).wrong(format!("{total} replicas in all are above {}", i32::MAX)));
    }
    let Some(place) = spec.at(&["minAvailable"]) else { return Ok(gang.sum_task_minimums()) };
    match place.parse_count()? {
        0 => Ok(gang.sum_task_minimums()),
        minimum if u64::from(minimum) > total => {
            Err(place.wrong(format!("{minimum} is more than the {} of all tasks", count_noun(total, "replica"))))
        }
        minimum => Ok(minimum),
    }
}

fn min_success(spec: &Field<'_>) -> Result<Option<u32>, GangError> {
    let Some(place) = spec.at(&["minSuccess"]) else { return Ok(None) };
    match place.parse_count()? {
        0 => Err(place.wrong("0 is below 1")),
        minimum => Ok(Some(minimum)),
    }
}

fn read_task(index: usize, template: &Field<'_>) -> Result<Task, GangError> {
    let name = match template.text_at("name")? {
        "" => TaskName::from(default_task_name(index)),
        name => TaskName::from(name),
    };
    let replicas = template.at(&["replicas"]).map_or(Ok(0), |place| place.parse_count())?;
    let partition = read_partition(template, replicas)?;
    let pods = template.at(&["template"]).unwrap_or_else(|| template.absent_field(&["template"]));
    let numa = numa_claim::read_numa_claim(template.value).map(Arc::new);
    Ok(Task {
        name,
        replicas,
        min_available: task_minimum(template, replicas, partition.as_ref())?,
        request: pod_template::read_request(&pods)?,
        node: NodeClaim { numa, ..pod_template::node_claim(&pods)? },
        priority_class: pod_template::priority_class(&pods).to_owned(),
        partition,
    })
}

/// The task's `minAvailable`. Absent it is the pods of its minimum partitions, or all its replicas.
fn task_minimum(template: &Field<'_>, replicas: u32, partition: Option<&Partition>) -> Result<u32, GangError> {
    let of_partitions =
        partition.filter(|partition| partition.min > 0).map(|partition| partition.min.saturating_mul(partition.size));
    let Some(place) = template.at(&["minAvailable"]) else { return Ok(of_partitions.unwrap_or(replicas)) };
    let minimum = place.parse_count()?;
    if minimum > replicas {
        return Err(place.wrong(format!("{minimum} is more than the task's {}", count_noun(replicas, "replica"))));
    }
    match of_partitions {
        Some(wanted) if wanted != minimum => Err(place.wrong(format!(
            "{minimum} is not the {} of the partitions that partitionPolicy needs",
            count_noun(wanted, "pod")
        ))),
        _ => Ok(minimum),
    }
}

fn read_partition(template: &Field<'_>, replicas: u32) -> Result<Option<Partition>, GangError> {
    let Some(policy) = template.at(&["partitionPolicy"]) else { return Ok(None) };
    let at_least_one = |field: &str| {
        let place = policy.at(&[field]).unwrap_or_else(|| policy.absent_field(&[field]));
        match policy.at(&[field]).map_or(Ok(0), |place| place.parse_count())? {
            0 => Err(place.wrong("0 is below 1")),
            count => Ok(count),
        }
    };
    let (total, size) = (at_least_one("totalPartitions")?, at_least_one("partitionSize")?);
    if u64::from(total) * u64::from(size) != u64::from(replicas) {
        let place = template.at(&["replicas"]).unwrap_or_else(|| template.absent_field(&["replicas"]));
        return Err(place.wrong(format!(
            "{replicas} is not {} of {}",
            count_noun(total, "partition"),
            count_noun(size, "pod")
        )));
    }
    let min = policy.at(&["minPartitions"]).map_or(Ok(0), |place| place.parse_count())?;
    if min > total {
        return Err(policy
            .absent_field(&["minPartitions"])
            .wrong(format!("{min} is more than the {total} partitions")));
    }
    Ok(Some(Partition { total, size, min, topology: read_topology(&policy)? }))
}

/// Reads `networkTopology`. Mode `hard` binds only if a tier is given (`pkg/scheduler/api/job_info.go`).
fn read_topology(spec: &Field<'_>) -> Result<Option<Topology>, GangError> {
    let Some(place) = spec.at(&["networkTopology"]) else { return Ok(None) };
    let highest_tier = place.at(&["highestTierAllowed"]).map(|tier| tier.parse_count()).transpose()?;
    let highest_tier_name = Some(place.text_at("highestTierName")?.to_owned()).filter(|name| !name.is_empty());
    if highest_tier.is_some() && highest_tier_name.is_some() {
        return Err(place.wrong("give highestTierAllowed or highestTierName, not both"));
    }
    let mode = place.text_at("mode")?;
    if !["", "hard", "soft"].contains(&mode) {
        return Err(place.absent_field(&["mode"]).wrong(format!("{mode:?} is neither hard nor soft")));
    }
    let hard = mode != "soft" && (highest_tier.is_some() || highest_tier_name.is_some());
    Ok(Some(Topology { hard, highest_tier, highest_tier_name }))
}

/// Why all pods must run in one cluster; `None` if the job may be split. Plugins `env`, `svc` and `ssh` alone are no
/// reason yet: many jobs carry them by habit ([`task_index`]). Containers that read the host lists of `svc` are one.
fn find_one_cluster_reason(
    root: &Field<'_>,
    spec: &Field<'_>,
    tasks: &[Field<'_>],
) -> Result<Option<String>, GangError> {
    if let Some(task) = tasks.iter().find(|task| task.at(&["dependsOn"]).is_some()) {
        return Ok(Some(format!(
            "task {:?} starts after another (dependsOn), which each cluster knows of its own pods only",
            task.text_at("name")?
        )));
    }
    let plugins: Vec<&str> = spec.entries(&["plugins"])?.into_iter().map(|(name, _)| name).collect();
    match read_rendezvous_mode(root) {
        "" => {}
        RENDEZVOUS_CLUSTERSET => return find_clusterset_obstacle(root, spec, &plugins, tasks),
        _ => return Ok(None),
    }
    if let Some(plugin) = plugins.iter().find(|plugin| RANK_PLUGINS.contains(plugin)) {
        return Ok(Some(format!(
            "plugin {plugin} numbers the job's pods within one cluster; annotation {RENDEZVOUS} would allow a split"
        )));
    }
    if plugins.contains(&"svc") {
        for task in tasks {
            if mentions_any(task, &HOST_LISTS)? {
                return Ok(Some(format!(
                    "its containers read the host lists of plugin svc, which name one cluster's pods; annotation \
                     {RENDEZVOUS} would allow a split"
                )));
            }
        }
    }
    Ok(None)
}

/// Why the ranks and hosts of the whole job can not be written into each cluster's copy; `None` if they can.
fn find_clusterset_obstacle(
    root: &Field<'_>,
    spec: &Field<'_>,
    plugins: &[&str],
    tasks: &[Field<'_>],
) -> Result<Option<String>, GangError> {
    let has = |plugin: &str| plugins.contains(&plugin);
    if has("hcclrank") {
        return Ok(Some("plugin hcclrank puts ranks on pods, which can not be said for several clusters".to_owned()));
    }
    let secret = root.at(&["metadata", "annotations", SSH_SECRET]);
    let has_secret = secret.and_then(|place| place.value.as_str()).is_some_and(|name| !name.is_empty());
    if (has("mpi") || has("ssh")) && !has_secret {
        let words = spec.at(&["plugins", "ssh"]).map_or_else(String::new, |words| words.value.to_string());
        if !(words.contains("--ssh-private-key") && words.contains("--ssh-public-key")) {
            return Ok(Some(
                "plugin ssh makes keys of its own in each cluster: give it --ssh-private-key and --ssh-public-key"
                    .to_owned(),
            ));
        }
    }
    if let Some(pods) = find_oversized_host_list(spec, tasks, has("mpi") || has("tensorflow"))? {
        return Ok(Some(format!(
            "a list of {pods} hosts does not fit into a variable; --inject-hosts-env=false of plugin svc does without"
        )));
    }
    for task in tasks {
        if has("svc") && mentions_any(task, &HOST_LISTS[..1])? {
            return Ok(Some(
                "its containers read the files of plugin svc, which name one cluster's pods; VC_<TASK>_HOSTS name all"
                    .to_owned(),
            ));
        }
        if ["env", "pytorch", "svc", "tensorflow"].into_iter().any(has)
            && let Some(name) = find_task_without_command(task, has("ray"))?
        {
            return Ok(Some(format!(
                "task {name:?} has a container without a command, which can not be told its rank"
            )));
        }
        if mentions_any(task, &task_index::EXPANSIONS)? {
            return Ok(Some(format!(
                "task {:?} has its index put into a command before a shell could add to it: write ${{VC_TASK_INDEX}} in a script",
                task.text_at("name")?
            )));
        }
    }
    Ok(None)
}

/// The pods of a task whose host list does not fit into an environment variable (128 KiB on Linux), with the longest
/// cluster names.
fn find_oversized_host_list(spec: &Field<'_>, tasks: &[Field<'_>], needed: bool) -> Result<Option<u32>, GangError> {
    const MOST_HOST_LIST_BYTES: usize = 120 * 1024;
    const BYTES_PER_HOST: usize = 180;
    let flags = spec.at(&["plugins", "svc"]).map_or_else(String::new, |flags| flags.value.to_string());
    if !needed && flags.contains("inject-hosts-env=false") {
        return Ok(None);
    }
    for task in tasks {
        let pods = task.at(&["replicas"]).map_or(Ok(0), |place| place.parse_count())?;
        if pods as usize > MOST_HOST_LIST_BYTES / BYTES_PER_HOST {
            return Ok(Some(pods));
        }
    }
    Ok(None)
}

/// The task's name if one of its containers has no command to wrap. Ray's own containers need no rank: its plugin
/// starts them.
fn find_task_without_command(task: &Field<'_>, is_ray: bool) -> Result<Option<String>, GangError> {
    let Some(pod) = task.at(&["template", "spec"]) else { return Ok(None) };
    for container in pod.list("containers")?.into_iter().chain(pod.list("initContainers")?) {
        let started = is_ray && ["head", "worker"].contains(&container.text_at("name")?);
        if !started && container.list("command")?.is_empty() {
            return Ok(Some(task.text_at("name")?.to_owned()));
        }
    }
    Ok(None)
}

fn mentions_any(task: &Field<'_>, lists: &[&str]) -> Result<bool, GangError> {
    let Some(pod) = task.at(&["template", "spec"]) else { return Ok(false) };
    for container in pod.list("containers")?.into_iter().chain(pod.list("initContainers")?) {
        for field in ["command", "args"] {
            for word in container.list(field)? {
                let word = word.value.as_str().unwrap_or("");
                if lists.iter().any(|list| word.contains(list)) {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}
