//! Variables of a container, and a shell before its command that adds what a manifest can not add.
//!
//! Kubernetes expands variables but does not add numbers. The index of a pod in the whole job is its index in this
//! cluster, which plugin `env` sets, plus the pods in the clusters before it. `/bin/sh` adds them and then becomes the
//! command.

use caldera_crds::workload::find_shell;
use serde_json::{Value, json};

/// Sets variables of a container, in place where they are there.
pub(super) fn set_variables(container: &mut Value, variables: &[(String, String)]) -> Option<()> {
    let container = container.as_object_mut()?;
    let env = container.entry("env").or_insert_with(|| json!([])).as_array_mut()?;
    for (name, value) in variables {
        let one = json!({"name": name, "value": value});
        match env.iter_mut().find(|one| one["name"] == name.as_str()) {
            Some(there) => *there = one,
            None => env.push(one),
        }
    }
    Some(())
}

/// Sets those variables that the container does not name.
pub(super) fn set_missing_variables(container: &mut Value, variables: &[(String, String)]) -> Option<()> {
    let is_named = |name: &String| {
        let env = container.get("env").and_then(Value::as_array);
        env.into_iter().flatten().any(|one| one["name"] == name.as_str())
    };
    let missing: Vec<_> = variables.iter().filter(|(name, _)| !is_named(name)).cloned().collect();
    set_variables(container, &missing)
}

/// Adds this cluster's offset to the index that plugin `env` gives a pod, and names the rank and TensorFlow's task.
const ADD_OFFSETS: &str = "VC_TASK_INDEX=$((${VC_TASK_INDEX:-0}+${CALDERA_TASK_OFFSET:-0})); VK_TASK_INDEX=$VC_TASK_INDEX; \
                      export VC_TASK_INDEX VK_TASK_INDEX; if [ -n \"${CALDERA_FIRST_RANK:-}\" ]; then \
                      RANK=$((VC_TASK_INDEX+CALDERA_FIRST_RANK)); export RANK; fi; \
                      if [ -n \"${CALDERA_TF_CLUSTER:-}\" ]; then \
                      TF_CONFIG=\"{\\\"cluster\\\":$CALDERA_TF_CLUSTER,\\\"task\\\":{\\\"type\\\":\\\"$CALDERA_TF_TYPE\\\",\\\"index\\\":$VC_TASK_INDEX}}\"; \
                      export TF_CONFIG; fi; ";

/// Has a shell put the whole job's numbers, and its lists of hosts, in place of the cluster's before the command runs.
pub(super) fn prepend_offset_shell(container: &mut Value, tasks: &[String]) {
    let lists =
        tasks.iter().flat_map(|task| [format!("{}_HOSTS", upper_name(task)), format!("{}_NUM", upper_name(task))]);
    let lists: String = lists.map(|list| format!("export VC_{list}=\"$CALDERA_{list}\"; ")).collect();
    prepend_script(container, "/bin/sh", &lists);
}

/// The same by the container's own shell, if it runs one. Hosts of other clusters can not be reached: no list is told.
pub(super) fn prepend_offset_to_own_shell(container: &mut Value, tasks: &[String]) -> Option<()> {
    let shell = find_shell(container)?.to_owned();
    let of = |task: &String| {
        let task = upper_name(task);
        format!("export VC_{task}_NUM=\"$CALDERA_{task}_NUM\"; unset VC_{task}_HOSTS; ")
    };
    prepend_script(container, &shell, &tasks.iter().map(of).collect::<String>());
    Some(())
}

fn prepend_script(container: &mut Value, shell: &str, lists: &str) {
    let Some(command) = container.get("command").and_then(Value::as_array).filter(|command| !command.is_empty()) else {
        return;
    };
    if command.get(2).and_then(Value::as_str).is_some_and(|script| script.starts_with(ADD_OFFSETS)) {
        return;
    }
    let script = format!("{ADD_OFFSETS}{lists}exec \"$0\" \"$@\"");
    let words = [shell, "-c", &script].map(Value::from);
    container["command"] = words.into_iter().chain(command.iter().cloned()).collect();
}

/// A task's name as part of a variable's.
pub(super) fn upper_name(task: &str) -> String {
    task.to_uppercase().replace('-', "_")
}
