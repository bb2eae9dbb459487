//! Plugins of training frameworks: each tells the pods of this copy of the job where the others are.
//!
//! They fail as Volcano's do when a copy lacks a role: pytorch without its master writes nothing, mpi without workers
//! neither, ray without its head lets no pod be created.

use serde_json::{Map, Value, json};

use super::{Broken, Plugin, add_env, each_container, first_host, hosts_of_task, push_item};
use crate::member::{
    job::task_named,
    object::{annotation, list, name, namespace, number, owned_by, text},
    world::Kind,
};

pub(super) fn apply_pytorch(job: &Value, plugin: &Plugin<'_>, task: &Value, index: i64, pod: &mut Value) {
    let (master, worker) = (plugin.flag("master", "master"), plugin.flag("worker", "worker"));
    let Some(master_task) = task_named(job, master) else { return };
    let (address, port) = (first_host(job, master_task), plugin.port("port", 23456));
    let own = text(task, "/name");
    if own == worker && plugin.is_on("wait-master-enabled", false) {
        wait_for_master(plugin, &address, port, pod);
    }
    let roles = list(job, "/spec/tasks").iter().filter(|task| [master, worker].contains(&text(task, "/name")));
    let world: i64 = roles.map(|task| number(task, "/replicas")).sum();
    open_port(pod, "pytorchjob-port", port, false);
    let (port, world) = (port.to_string(), world.to_string());
    let mut env = vec![("MASTER_ADDR", address.as_str()), ("MASTER_PORT", &port), ("WORLD_SIZE", &world)];
    // Every pod of a master task with several is rank 0.
    let rank = if own == worker { (index + 1).to_string() } else { "0".to_owned() };
    if own == worker || own == master {
        env.push(("RANK", &rank));
    }
    add_env(pod, &env, false);
}

fn wait_for_master(plugin: &Plugin<'_>, address: &str, port: u16, pod: &mut Value) {
    let known = list(pod, "/spec/initContainers").iter().any(|container| text(container, "/name") == "wait-for-master");
    if known {
        return;
    }
    let script = format!(
        "TIMEOUT={}\nELAPSED=0\nuntil nc -z {address} {port}; do sleep 2; ELAPSED=$((ELAPSED + 2)); \
         [ $ELAPSED -ge $TIMEOUT ] && exit 1; done",
        plugin.flag("wait-master-timeout", "300")
    );
    let image = plugin.flag("wait-master-image", "busybox:1.36.1");
    let container = json!({"name": "wait-for-master", "image": image, "command": ["sh", "-c", script]});
    push_item(&mut pod["spec"], "initContainers", container);
}

pub(super) fn apply_mpi(job: &Value, plugin: &Plugin<'_>, task: &Value, pod: &mut Value) {
    let is_master = text(task, "/name") == plugin.flag("master", "master");
    let workers = task_named(job, plugin.flag("worker", "worker")).map(|workers| hosts_of_task(job, workers).join(","));
    if is_master && workers.is_none() {
        return;
    }
    open_port(pod, "mpijob-port", plugin.port("port", 22), true);
    if let Some(workers) = workers.filter(|_| is_master) {
        add_env(pod, &[("MPI_HOST", &workers)], true);
    }
}

pub(super) fn apply_tensorflow(job: &Value, plugin: &Plugin<'_>, task: &Value, index: i64, pod: &mut Value) {
    let tasks = list(job, "/spec/tasks");
    if tasks.len() == 1 && number(task, "/replicas") == 1 {
        return;
    }
    let port = plugin.port("port", 2222);
    let mut cluster = Map::new();
    let mut own = text(task, "/name");
    for role in ["ps", "worker", "chief", "evaluator"] {
        let role_task = plugin.flag(role, role);
        if own == role_task {
            own = role;
        }
        let Some(task) = task_named(job, role_task) else { continue };
        let hosts: Vec<String> = hosts_of_task(job, task).into_iter().map(|host| format!("{host}:{port}")).collect();
        if !hosts.is_empty() {
            cluster.insert(role.to_owned(), hosts.into());
        }
    }
    let config = json!({"cluster": cluster, "task": {"type": own, "index": index}}).to_string();
    add_env(pod, &[("TF_CONFIG", &config)], false);
}

const RAY_PORTS: [(&str, &str, u16); 3] =
    [("gcs", "port", 6379), ("dashboard", "dashboardPort", 8265), ("client-server", "clientPort", 10001)];

pub(super) fn apply_ray(job: &Value, plugin: &Plugin<'_>, task: &Value, pod: &mut Value) -> Result<(), Broken> {
    let head = plugin.flag("head", "head");
    let Some(head_task) = task_named(job, head) else {
        return Err(Broken(format!("job {} doesn't have head task {head}", name(job))));
    };
    let [gcs, dashboard, client] = RAY_PORTS.map(|(_, flag, default)| plugin.port(flag, default));
    let (own, address) = (text(task, "/name"), first_host(job, head_task));
    let (head_container, worker_container) =
        (plugin.flag("headContainer", "head"), plugin.flag("workerContainer", "worker"));
    each_container(pod, false, |container| {
        let container_name = text(container, "/name").to_owned();
        if own == head && container_name == head_container {
            for (port_name, port) in RAY_PORTS.iter().map(|(name, ..)| *name).zip([gcs, dashboard, client]) {
                add_port(container, port_name, port);
            }
            let start = format!(
                "ray start --head --block --dashboard-host=0.0.0.0 --port={gcs} --dashboard-port={dashboard} \
                 --ray-client-server-port={client}"
            );
            container["command"] = json!(["sh", "-c", start]);
        }
        if own == plugin.flag("worker", "worker") && container_name == worker_container {
            container["command"] = json!(["sh", "-c", format!("ray start --block --address={address}:{gcs}")]);
        }
    });
    Ok(())
}

/// Service `{job}-head-svc`.
pub(super) fn ray_objects(job: &Value, plugin: &Plugin<'_>) -> Vec<(Kind, Value)> {
    let ports: Vec<Value> = RAY_PORTS
        .iter()
        .map(|(name, flag, default)| {
            json!({"name": name, "port": plugin.port(flag, *default), "targetPort": name, "protocol": "TCP"})
        })
        .collect();
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": format!("{}-head-svc", name(job)), "namespace": namespace(job), "ownerReferences": owned_by(job),
        },
        "spec": {
            "selector": {
                "volcano.sh/job-name": name(job), "volcano.sh/job-namespace": namespace(job),
                "volcano.sh/task-spec": plugin.flag("head", "head"),
            },
            "ports": ports,
        },
    });
    vec![(Kind::Service, service)]
}

pub(super) fn apply_hcclrank(job: &Value, plugin: &Plugin<'_>, task: &Value, index: i64, pod: &mut Value) {
    const RANK_INDEX: &str = "hccl/rankIndex";
    if !annotation(pod, RANK_INDEX).is_empty() {
        return;
    }
    let env = list(pod, "/spec/containers").iter().flat_map(|container| list(container, "/env"));
    let declared = env.filter(|variable| text(variable, "/name") == "RANK").map(|variable| text(variable, "/value"));
    let rank = match declared.into_iter().next() {
        Some(rank) if !rank.is_empty() => rank.to_owned(),
        _ if text(task, "/name") == plugin.flag("master", "master") => index.to_string(),
        _ if text(task, "/name") == plugin.flag("worker", "worker") => {
            let masters = task_named(job, plugin.flag("master", "master")).map_or(0, |task| number(task, "/replicas"));
            (masters + index).to_string()
        }
        _ => return,
    };
    pod["metadata"]["annotations"][RANK_INDEX] = rank.into();
}

fn open_port(pod: &mut Value, port_name: &str, port: u16, init: bool) {
    each_container(pod, init, |container| add_port(container, port_name, port));
}

fn add_port(container: &mut Value, port_name: &str, port: u16) {
    if !list(container, "/ports").iter().any(|known| number(known, "/containerPort") == i64::from(port)) {
        push_item(container, "ports", json!({"name": port_name, "containerPort": port}));
    }
}
