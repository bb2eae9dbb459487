//! What keeps the pods of a split job from being told their index in the whole job.
//!
//! Rule: plugins `env` and `svc` number, count and list the pods of one cluster (Volcano
//! `pkg/controllers/job/plugins/{env,svc}`), so each cluster would have a pod 0 of each task. A manifest can not add
//! numbers, but a container that runs a shell can: its copy adds the pods of the clusters before it. So a job with
//! these plugins is split only if each of its containers runs a shell, and if nothing reads the index beside the
//! container's command. An offset is part of a template, which no member lets anybody change: the number of pods in
//! each cluster must be settled, so the job starts whole or not at all.

use caldera_core::gang::Gang;
use serde_json::Value;

use super::{GangError, field::Field};

/// Plugins that number or list the pods of one cluster, and that many jobs carry by habit.
pub const INDEX_PLUGINS: [&str; 2] = ["env", "svc"];
const SHELLS: [&str; 4] = ["ash", "bash", "dash", "sh"];
/// The index, as Kubernetes puts it into a command before any shell runs.
pub(super) const EXPANSIONS: [&str; 2] = ["$(VC_TASK_INDEX)", "$(VK_TASK_INDEX)"];
/// The index in what is no command: exec probes and hooks, and the label of the pod.
const BESIDE_COMMANDS: [&str; 2] = ["_TASK_INDEX", "volcano.sh/task-index"];

/// The shell that a container runs, if it runs one.
#[must_use]
pub fn find_shell(container: &Value) -> Option<&str> {
    let program = container.get("command")?.as_array()?.first()?.as_str()?;
    SHELLS.contains(&program.rsplit('/').next()?).then_some(program)
}

/// Why the pods can not be told; `None` if they can.
pub(super) fn find_obstacle(gang: &Gang, tasks: &[Field<'_>]) -> Result<Option<String>, GangError> {
    if gang.min_available < gang.replicas() || gang.tasks.iter().any(|task| task.min_available < task.replicas) {
        return Ok(Some(format!(
            "{} of {} pods are enough for it, and no index would stay unique while it grows",
            gang.min_available,
            gang.replicas()
        )));
    }
    for (task, name) in tasks.iter().zip(gang.tasks.iter().map(|task| &task.name)) {
        let Some(pod) = task.at(&["template", "spec"]) else { continue };
        for container in pod.list("containers")?.into_iter().chain(pod.list("initContainers")?) {
            let which = || format!("container {:?} of task {name}", container.text_at("name").unwrap_or(""));
            if find_shell(container.value).is_none() {
                return Ok(Some(format!("{} runs no shell that could add the pods of other clusters", which())));
            }
            let mut words = container.list("command")?.into_iter().chain(container.list("args")?);
            let expands = words.any(|word| contains_any(word.value.as_str().unwrap_or(""), &EXPANSIONS));
            let beside = container.value.as_object().into_iter().flatten().any(|(field, value)| {
                !matches!(&**field, "command" | "args") && contains_any(&value.to_string(), &BESIDE_COMMANDS)
            });
            if expands || beside {
                return Ok(Some(format!("{} has its index from where no shell could add to it", which())));
            }
        }
        if pod.at(&["volumes"]).is_some_and(|volumes| contains_any(&volumes.value.to_string(), &BESIDE_COMMANDS)) {
            return Ok(Some(format!("a volume of task {name} tells the index")));
        }
    }
    Ok(None)
}

fn contains_any(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.contains(word))
}
