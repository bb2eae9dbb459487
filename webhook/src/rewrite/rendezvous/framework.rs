//! What each framework's plugin would have said, for the whole job (Volcano
//! `pkg/controllers/job/plugins/distributed-framework`).

use serde_json::{Map, Value, json};

use super::{Split, flag};

/// A variable and its value.
pub(super) type Said = Vec<(String, String)>;

fn one(name: &str, value: impl Into<String>) -> (String, String) {
    (name.to_owned(), value.into())
}

/// Everything that the frameworks say to a task's containers.
pub(super) fn say(split: &Split<'_>, plugins: &Map<String, Value>, task: &str) -> Said {
    let has = |plugin: &str| plugins.contains_key(plugin);
    let mut said = Said::new();
    if has("pytorch") {
        said.extend(pytorch(split, plugins, task));
    }
    if has("mpi") {
        said.extend(mpi(split, plugins, task));
    }
    if has("tensorflow") {
        said.extend(tensorflow(split, plugins, task));
    }
    said
}

/// `pytorch.go:91-171`: one master of rank 0, then the workers.
fn pytorch(split: &Split<'_>, plugins: &Map<String, Value>, task: &str) -> Said {
    let master = flag(plugins, "pytorch", "master").unwrap_or("master");
    let worker = flag(plugins, "pytorch", "worker").unwrap_or("worker");
    let masters = split.part(master).all;
    let mut said = vec![
        one("MASTER_ADDR", split.hosts(master).into_iter().next().unwrap_or_default()),
        one("MASTER_PORT", flag(plugins, "pytorch", "port").unwrap_or("23456")),
        one("WORLD_SIZE", masters.saturating_add(split.part(worker).all).to_string()),
    ];
    if task == master || task == worker {
        let first = if task == master { 0 } else { masters };
        said.push(one("CALDERA_FIRST_RANK", first.to_string()));
    }
    said
}

/// `mpi.go:80-150`: the master knows every worker. What plugin `ssh` configures of another port names only hosts of its
/// own cluster, so Open MPI is told the port.
fn mpi(split: &Split<'_>, plugins: &Map<String, Value>, task: &str) -> Said {
    let master = flag(plugins, "mpi", "master").unwrap_or("master");
    let worker = flag(plugins, "mpi", "worker").unwrap_or("worker");
    if task != master {
        return Said::new();
    }
    let port = flag(plugins, "ssh", "ssh-port").filter(|port| *port != "22");
    let port = port.map(|port| one("OMPI_MCA_plm_rsh_args", format!("-p {port}")));
    [one("MPI_HOST", split.hosts(worker).join(","))].into_iter().chain(port).collect()
}

/// `tensorflow.go:75-154`: the cluster in `TF_CONFIG`; which of it a pod is, the shell adds.
fn tensorflow(split: &Split<'_>, plugins: &Map<String, Value>, task: &str) -> Said {
    let port = flag(plugins, "tensorflow", "port").unwrap_or("2222");
    let mut cluster = Map::new();
    let mut kind = task;
    for role in ["ps", "worker", "chief", "evaluator"] {
        let name = flag(plugins, "tensorflow", role).unwrap_or(role);
        let hosts: Vec<String> = split.hosts(name).into_iter().map(|host| format!("{host}:{port}")).collect();
        if !hosts.is_empty() {
            cluster.insert(role.to_owned(), hosts.into());
        }
        if name == task {
            kind = role;
        }
    }
    vec![one("CALDERA_TF_CLUSTER", Value::from(cluster).to_string()), one("CALDERA_TF_TYPE", kind)]
}

/// Whether the plugin itself is right in this copy: `ray.go` starts the head and lets workers join it, which holds where
/// the head is.
pub(super) fn keeps(split: &Split<'_>, plugins: &Map<String, Value>, plugin: &str) -> bool {
    plugin == "ray" && split.here(flag(plugins, "ray", "head").unwrap_or("head")) > 0
}

/// `ray.go:98-170`: where the head is not, the workers' containers are started by what the plugin would have written, with
/// the head's name in the clusterset.
pub(super) fn join(split: &Split<'_>, plugins: &Map<String, Value>, task: &str, container: &mut Value) {
    let worker = flag(plugins, "ray", "worker").unwrap_or("worker");
    let named = flag(plugins, "ray", "workerContainer").unwrap_or("worker");
    if !plugins.contains_key("ray") || keeps(split, plugins, "ray") || task != worker || container["name"] != named {
        return;
    }
    let head = split.hosts(flag(plugins, "ray", "head").unwrap_or("head")).into_iter().next().unwrap_or_default();
    let port = flag(plugins, "ray", "port").unwrap_or("6379");
    container["command"] = json!(["sh", "-c", format!("ray start --block --address={head}:{port}")]);
}
