//! The variables that the plugin of each framework would set, for the whole job (Volcano
//! `pkg/controllers/job/plugins/distributed-framework`).

use serde_json::{Map, Value, json};

use super::{SplitJob, plugin_flag};

/// Variables and their values.
pub(super) type Variables = Vec<(String, String)>;

fn env_variable(name: &str, value: impl Into<String>) -> (String, String) {
    (name.to_owned(), value.into())
}

/// All variables of the frameworks for a task's containers.
pub(super) fn build_framework_variables(split: &SplitJob<'_>, plugins: &Map<String, Value>, task: &str) -> Variables {
    let has = |plugin: &str| plugins.contains_key(plugin);
    let mut variables = Variables::new();
    if has("pytorch") {
        variables.extend(pytorch_variables(split, plugins, task));
    }
    if has("mpi") {
        variables.extend(mpi_variables(split, plugins, task));
    }
    if has("tensorflow") {
        variables.extend(tensorflow_variables(split, plugins, task));
    }
    variables
}

/// `pytorch.go:91-171`: one master of rank 0, then the workers.
fn pytorch_variables(split: &SplitJob<'_>, plugins: &Map<String, Value>, task: &str) -> Variables {
    let master = plugin_flag(plugins, "pytorch", "master").unwrap_or("master");
    let worker = plugin_flag(plugins, "pytorch", "worker").unwrap_or("worker");
    let masters = split.count_pods_before_and_all(master).all;
    let mut variables = vec![
        env_variable("MASTER_ADDR", split.hosts_of(master).into_iter().next().unwrap_or_default()),
        env_variable("MASTER_PORT", plugin_flag(plugins, "pytorch", "port").unwrap_or("23456")),
        env_variable("WORLD_SIZE", masters.saturating_add(split.count_pods_before_and_all(worker).all).to_string()),
    ];
    if task == master || task == worker {
        let first = if task == master { 0 } else { masters };
        variables.push(env_variable("CALDERA_FIRST_RANK", first.to_string()));
    }
    variables
}

/// What the framework's program is told where its user says nothing of it. Open MPI knows hosts by the first part of
/// their names, which pods of two clusters share, and would start the ranks of both in one; so the master of plugin
/// `mpi` is told to keep the whole name, PRRTE of Open MPI 5 too.
pub(super) fn build_framework_defaults(plugins: &Map<String, Value>, task: &str) -> Variables {
    if !plugins.contains_key("mpi") || task != plugin_flag(plugins, "mpi", "master").unwrap_or("master") {
        return Variables::new();
    }
    let keep_names = ["OMPI_MCA_orte_keep_fqdn_hostnames", "PRTE_MCA_prte_keep_fqdn_hostnames"];
    keep_names.map(|name| env_variable(name, "1")).into()
}

/// `mpi.go:80-150`: the master knows every worker. What plugin `ssh` configures of another port names only hosts of its
/// own cluster, so Open MPI is told the port.
fn mpi_variables(split: &SplitJob<'_>, plugins: &Map<String, Value>, task: &str) -> Variables {
    let master = plugin_flag(plugins, "mpi", "master").unwrap_or("master");
    let worker = plugin_flag(plugins, "mpi", "worker").unwrap_or("worker");
    if task != master {
        return Variables::new();
    }
    let port = plugin_flag(plugins, "ssh", "ssh-port").filter(|port| *port != "22");
    let port = port.map(|port| env_variable("OMPI_MCA_plm_rsh_args", format!("-p {port}")));
    let hosts = env_variable("MPI_HOST", split.hosts_of(worker).join(","));
    [hosts].into_iter().chain(port).collect()
}

/// `tensorflow.go:75-154`: the cluster in `TF_CONFIG`; which of it a pod is, the shell adds.
fn tensorflow_variables(split: &SplitJob<'_>, plugins: &Map<String, Value>, task: &str) -> Variables {
    let port = plugin_flag(plugins, "tensorflow", "port").unwrap_or("2222");
    let mut cluster = Map::new();
    let mut kind = task;
    for role in ["ps", "worker", "chief", "evaluator"] {
        let name = plugin_flag(plugins, "tensorflow", role).unwrap_or(role);
        let hosts: Vec<String> = split.hosts_of(name).into_iter().map(|host| format!("{host}:{port}")).collect();
        if !hosts.is_empty() {
            cluster.insert(role.to_owned(), hosts.into());
        }
        if name == task {
            kind = role;
        }
    }
    vec![env_variable("CALDERA_TF_CLUSTER", Value::from(cluster).to_string()), env_variable("CALDERA_TF_TYPE", kind)]
}

/// Whether the plugin itself is right in this copy: `ray.go` starts the head and lets workers join it, which holds
/// where the head is.
pub(super) fn keeps_plugin(split: &SplitJob<'_>, plugins: &Map<String, Value>, plugin: &str) -> bool {
    plugin == "ray" && split.pods_here(plugin_flag(plugins, "ray", "head").unwrap_or("head")) > 0
}

/// `ray.go:98-170`: where the head is not, the workers' containers are started by what the plugin would have written,
/// with the head's name in the clusterset.
pub(super) fn rewrite_ray_worker(
    split: &SplitJob<'_>,
    plugins: &Map<String, Value>,
    task: &str,
    container: &mut Value,
) {
    let worker = plugin_flag(plugins, "ray", "worker").unwrap_or("worker");
    let named = plugin_flag(plugins, "ray", "workerContainer").unwrap_or("worker");
    if !plugins.contains_key("ray")
        || keeps_plugin(split, plugins, "ray")
        || task != worker
        || container["name"] != named
    {
        return;
    }
    let head =
        split.hosts_of(plugin_flag(plugins, "ray", "head").unwrap_or("head")).into_iter().next().unwrap_or_default();
    let port = plugin_flag(plugins, "ray", "port").unwrap_or("6379");
    container["command"] = json!(["sh", "-c", format!("ray start --block --address={head}:{port}")]);
}
