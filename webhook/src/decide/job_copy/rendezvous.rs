//! The rendezvous: how the pods of a gang that is split over clusters find each other, where its user declares it.
//!
//! Rule: a member's Volcano numbers and lists only the pods of its own copy, so that each copy would be a world with
//! its own master and the same ranks (Volcano `pkg/controllers/job/plugins/{pytorch,mpi,svc,env}`). With annotation
//! `caldera.dev/rendezvous` the plugins that build ranks are taken out of the copies of a split job. With the value
//! `clusterset` their variables are set for the whole job: world size, master, hosts, and the offset of each task in
//! this cluster. Names are those of multi-cluster services (KEP-1645):
//! `<pod>.<cluster>.<job>.<namespace>.svc.clusterset.local`, so the members must be in one clusterset under their
//! Karmada names and export the job's headless Service. Ranks are sums that a manifest can not say: a container's
//! command is run by a shell that adds the offset (`container`). A job in one cluster stays as its user wrote it.
//!
//! Without the annotation a job with rank plugins is not split. One with plugin `env` or `svc` is if its containers run
//! shells: these add the offset, so that an index is there once in the whole job, and no host list is told.

mod container;
mod framework;
mod ssh_secret;

use std::collections::BTreeMap;

use caldera_core::{
    gang::ClusterName,
    plan::{ClusterShare, Plan},
};
use caldera_crds::{
    job_admission::default_task_name,
    names::caldera::{RENDEZVOUS, RENDEZVOUS_CLUSTERSET},
    workload::{INDEX_PLUGINS, RANK_PLUGINS},
};
use serde_json::{Map, Value, json};

use crate::decide::ssh_keys::read_secret_name;

/// Pods of a task in the clusters before this one, and in all.
struct TaskPods {
    before: u32,
    all: u32,
}

/// A job that is split: its name, its namespace, what its pods are called, and where they are.
struct SplitJob<'a> {
    job: String,
    namespace: String,
    /// Hostname and subdomain that a task's template gives its pods itself.
    pod_names: BTreeMap<String, (Option<String>, Option<String>)>,
    plan: &'a Plan,
    here: &'a ClusterName,
}

/// Makes a cluster's copy part of the whole job; nothing where it is not split or declares nothing.
pub(super) fn add_rendezvous(copy: &mut Value, plan: &Plan, here: &ClusterName) -> Option<()> {
    let text = |pointer: &str| copy.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mode = copy.pointer("/metadata/annotations").and_then(|all| all.get(RENDEZVOUS)?.as_str()).unwrap_or_default();
    let mode = mode.to_owned();
    let sites = plan.clusters.values().filter(|share| share.replicas() > 0).count();
    if sites < 2 {
        return None;
    }
    let (job, namespace) = (text("/metadata/name"), text("/metadata/namespace"));
    let secret = read_secret_name(copy).map(str::to_owned);
    let spec = copy.get_mut("spec")?.as_object_mut()?;
    let split = SplitJob { job, namespace, pod_names: read_pod_names(spec), plan, here };
    let plugins = plugins_of(spec);
    if mode.is_empty() {
        return INDEX_PLUGINS.iter().any(|name| plugins.contains_key(*name)).then(|| split.add_indices(spec))?;
    }
    let is_clusterset = mode == RENDEZVOUS_CLUSTERSET;
    if let Some(Value::Object(kept)) = spec.get_mut("plugins") {
        let stays = |name: &str| is_clusterset && framework::keeps_plugin(&split, &plugins, name);
        kept.retain(|name, _| !RANK_PLUGINS.contains(&name.as_str()) || stays(name));
    }
    if is_clusterset {
        add_plugins(spec, &plugins);
        split.set_variables(spec, &plugins)?;
    }
    if let Some(secret) = secret {
        ssh_secret::mount_secret(spec, &plugins, &secret);
    }
    Some(())
}

fn read_task_name(index: usize, task: &Value) -> String {
    match task.get("name").and_then(Value::as_str) {
        None | Some("") => default_task_name(index),
        Some(name) => name.to_owned(),
    }
}

fn read_pod_names(spec: &Map<String, Value>) -> BTreeMap<String, (Option<String>, Option<String>)> {
    let tasks = spec.get("tasks").and_then(Value::as_array).into_iter().flatten();
    let called = tasks.enumerate().map(|(index, task)| {
        let text = |field: &str| {
            let text = task.pointer(&format!("/template/spec/{field}"))?.as_str()?;
            (!text.is_empty()).then(|| text.to_owned())
        };
        (read_task_name(index, task), (text("hostname"), text("subdomain")))
    });
    called.collect()
}

fn plugins_of(spec: &Map<String, Value>) -> Map<String, Value> {
    spec.get("plugins").and_then(Value::as_object).cloned().unwrap_or_default()
}

/// The value of a plugin's flag, as Go reads it: `--name=value` or `--name value`.
fn plugin_flag<'a>(plugins: &'a Map<String, Value>, plugin: &str, name: &str) -> Option<&'a str> {
    let words: Vec<&str> = plugins.get(plugin)?.as_array()?.iter().filter_map(Value::as_str).collect();
    words.iter().enumerate().find_map(|(at, word)| {
        let rest = word.trim_start_matches('-').strip_prefix(name)?;
        match rest.strip_prefix('=') {
            Some(value) => Some(value),
            None if rest.is_empty() => words.get(at + 1).copied(),
            None => None,
        }
    })
}

/// The plugins that a copy needs: hostnames and a Service that is reachable, before its pods are ready, from elsewhere;
/// indices; for MPI the keys that Volcano's admission would have asked for.
fn add_plugins(spec: &mut Map<String, Value>, before: &Map<String, Value>) {
    let plugins = spec.entry("plugins").or_insert_with(|| json!({}));
    let Some(plugins) = plugins.as_object_mut() else { return };
    plugins.entry("env").or_insert_with(|| json!([]));
    if before.contains_key("mpi") {
        plugins.entry("ssh").or_insert_with(|| json!([]));
    }
    let svc = plugins.entry("svc").or_insert_with(|| json!([]));
    let Some(flags) = svc.as_array_mut() else { return };
    for name in ["disable-network-policy", "publish-not-ready-addresses"] {
        flags.retain(|flag| !flag.as_str().is_some_and(|flag| flag.trim_start_matches('-').starts_with(name)));
        flags.push(format!("--{name}=true").into());
    }
}

impl SplitJob<'_> {
    fn count_pods_before_and_all(&self, task: &str) -> TaskPods {
        let mut part = TaskPods { before: 0, all: 0 };
        for (cluster, share) in &self.plan.clusters {
            let pods = share.tasks.get(task).map_or(0, |task| task.replicas);
            if cluster < self.here {
                part.before += pods;
            }
            part.all += pods;
        }
        part
    }

    /// Pods of a task in this cluster.
    fn pods_here(&self, task: &str) -> u32 {
        let share = self.plan.clusters.get(self.here);
        share.and_then(|share| share.tasks.get(task)).map_or(0, |part| part.replicas)
    }

    /// Every pod of a task, in the order of its global index.
    fn hosts_of(&self, task: &str) -> Vec<String> {
        let (job, namespace) = (&self.job, &self.namespace);
        let (hostname, subdomain) = self.pod_names.get(task).cloned().unwrap_or_default();
        let service = subdomain.unwrap_or_else(|| job.clone());
        let of = |(cluster, share): (&ClusterName, &ClusterShare)| {
            let pods = share.tasks.get(task).map_or(0, |part| part.replicas);
            let host = |pod| {
                let name = hostname.clone().unwrap_or_else(|| format!("{job}-{task}-{pod}"));
                format!("{name}.{cluster}.{service}.{namespace}.svc.clusterset.local")
            };
            (0..pods).map(host).collect::<Vec<_>>()
        };
        self.plan.clusters.iter().flat_map(of).collect()
    }

    fn set_variables(&self, spec: &mut Map<String, Value>, plugins: &Map<String, Value>) -> Option<()> {
        let tasks = spec.get_mut("tasks")?.as_array_mut()?;
        let names: Vec<String> = tasks.iter().enumerate().map(|(index, task)| read_task_name(index, task)).collect();
        // Lists of many pods are long; who does without them says so to plugin `svc`.
        let lists = if plugin_flag(plugins, "svc", "inject-hosts-env") == Some("false") { &[][..] } else { &names[..] };
        for (task, name) in tasks.iter_mut().zip(&names) {
            let mut variables = self.build_host_variables(lists);
            variables.push(("CALDERA_TASK_OFFSET".to_owned(), self.count_pods_before_and_all(name).before.to_string()));
            variables.extend(framework::build_framework_variables(self, plugins, name));
            let defaults = framework::build_framework_defaults(plugins, name);
            let Some(pod) = task.pointer_mut("/template/spec") else { continue };
            for kind in ["initContainers", "containers"] {
                for container in pod.get_mut(kind).and_then(Value::as_array_mut).into_iter().flatten() {
                    container::set_variables(container, &variables)?;
                    container::set_missing_variables(container, &defaults)?;
                    if kind == "containers" {
                        framework::rewrite_ray_worker(self, plugins, name, container);
                    }
                    container::prepend_offset_shell(container, lists);
                }
            }
        }
        Some(())
    }

    /// Has the shells of all containers add what a job without a rendezvous may know: its index, and how many pods a
    /// task has.
    fn add_indices(&self, spec: &mut Map<String, Value>) -> Option<()> {
        let has_svc = plugins_of(spec).contains_key("svc");
        let tasks = spec.get_mut("tasks")?.as_array_mut()?;
        let names: Vec<String> = tasks.iter().enumerate().map(|(index, task)| read_task_name(index, task)).collect();
        let counted = if has_svc { &names[..] } else { &[] };
        let count = |name: &String| {
            (format!("CALDERA_{}_NUM", container::upper_name(name)), self.count_pods_before_and_all(name).all)
        };
        for (task, name) in tasks.iter_mut().zip(&names) {
            let offset = ("CALDERA_TASK_OFFSET".to_owned(), self.count_pods_before_and_all(name).before);
            let variables: Vec<(String, String)> =
                counted.iter().map(count).chain([offset]).map(|(name, pods)| (name, pods.to_string())).collect();
            let Some(pod) = task.pointer_mut("/template/spec") else { continue };
            for kind in ["initContainers", "containers"] {
                for container in pod.get_mut(kind).and_then(Value::as_array_mut).into_iter().flatten() {
                    if container::prepend_offset_to_own_shell(container, counted).is_some() {
                        container::set_variables(container, &variables)?;
                    }
                }
            }
        }
        Some(())
    }

    /// The lists that plugin `svc` makes of one cluster's pods.
    fn build_host_variables(&self, names: &[String]) -> Vec<(String, String)> {
        let of = |name: &String| {
            let (upper, hosts) = (container::upper_name(name), self.hosts_of(name));
            [
                (format!("CALDERA_{upper}_NUM"), hosts.len().to_string()),
                (format!("CALDERA_{upper}_HOSTS"), hosts.join(",")),
            ]
        };
        names.iter().flat_map(of).collect()
    }
}

#[cfg(test)]
mod tests;
