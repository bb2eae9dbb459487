//! Job plugins, as far as they show outside: the objects they make for a job and what they write into its pods
//! (`pkg/controllers/job/plugins`). Volcano runs them in no particular order; here it is that of their names.

mod frameworks;
mod network;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::key_of;
use crate::member::{
    object::{list, name, text},
    world::{Kind, Want, World, delete_named, want_create, want_merge},
};

/// Why a plugin lets no pod of the job be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Broken(pub(super) String);

/// The objects that a job's plugins make and that are not known to be there.
pub(super) fn missing_objects(world: &World, job: &Value) -> Vec<Want> {
    let told = job.pointer("/status/controlledResources");
    let mut wants = Vec::new();
    for plugin in read_plugins(job) {
        // Volcano looks no further once the status names the plugin.
        if told.is_some_and(|told| told.get(format!("plugin-{}", plugin.name)).is_some()) {
            continue;
        }
        for (kind, object) in plugin.objects(job) {
            if world.is_there(&(kind, key_of(job, name(&object)))) != Some(true) {
                wants.push(want_create(kind, object));
            }
        }
    }
    wants
}

/// Changes the host lists of a job that was scaled (`OnJobUpdate`); unknown lists are written again.
pub(super) fn outdated_objects(world: &World, job: &Value) -> Vec<Want> {
    let told = job.pointer("/status/controlledResources/plugin-svc").is_some();
    let lists = read_plugins(job).filter(|plugin| told && plugin.name == "svc").flat_map(|plugin| plugin.objects(job));
    lists
        .filter(|(kind, _)| *kind == Kind::ConfigMap)
        .filter(|(kind, object)| !world.has_written(&(*kind, key_of(job, name(object))), object))
        .map(|(kind, object)| match world.is_there(&(kind, key_of(job, name(&object)))) {
            Some(false) => want_create(kind, object),
            _ => want_merge(kind, &object, None, json!({"data": object["data"]})),
        })
        .collect()
}

/// Deletes the objects of the plugins that the job's status names: they go as soon as a job is killed.
pub(super) fn unwanted_objects(job: &Value) -> Vec<Want> {
    let told = job.pointer("/status/controlledResources");
    let named = |plugin: &Plugin<'_>| told.is_some_and(|told| told.get(format!("plugin-{}", plugin.name)).is_some());
    read_plugins(job)
        .filter(named)
        .flat_map(|plugin| plugin.object_names(job))
        .map(|(kind, name)| delete_named(kind, text(job, "/metadata/namespace"), &name))
        .collect()
}

/// `status.controlledResources`: what is told already, the plugins whose objects are there, and the volumes' claims.
pub(super) fn controlled_metadata(world: &World, job: &Value) -> Map<String, Value> {
    let told = job.pointer("/status/controlledResources").and_then(Value::as_object);
    let mut controlled = told.cloned().unwrap_or_default();
    for plugin in read_plugins(job).filter(|plugin| plugin.name != "hcclrank") {
        let there = |(kind, name): (Kind, String)| world.is_there(&(kind, key_of(job, name))) == Some(true);
        if plugin.object_names(job).into_iter().all(there) {
            controlled.insert(format!("plugin-{}", plugin.name), plugin.name.into());
        }
    }
    for claim in list(job, "/spec/volumes").iter().map(|volume| text(volume, "/volumeClaimName")) {
        if world.get(Kind::PersistentVolumeClaim, &key_of(job, claim)).is_some() {
            controlled.insert(format!("volume-pvc-{claim}"), claim.into());
        }
    }
    controlled
}

/// What the plugins do to a pod that is about to be created.
pub(super) fn on_pod(job: &Value, task: &Value, index: i64, pod: &mut Value) -> Result<(), Broken> {
    for plugin in read_plugins(job) {
        match plugin.name {
            "env" => {
                let index = index.to_string();
                add_env(pod, &[("VK_TASK_INDEX", &index), ("VC_TASK_INDEX", &index)], true);
            }
            "svc" => network::svc_on_pod(job, &plugin, pod),
            "ssh" => network::ssh_on_pod(job, &plugin, pod),
            "pytorch" => frameworks::apply_pytorch(job, &plugin, task, index, pod),
            "mpi" => frameworks::apply_mpi(job, &plugin, task, pod),
            "tensorflow" => frameworks::apply_tensorflow(job, &plugin, task, index, pod),
            "ray" => frameworks::apply_ray(job, &plugin, task, pod)?,
            "hcclrank" => frameworks::apply_hcclrank(job, &plugin, task, index, pod),
            other => return Err(Broken(format!("failed to get plugin {other}"))),
        }
    }
    Ok(())
}

struct Plugin<'a> {
    name: &'a str,
    flags: BTreeMap<String, String>,
}

impl Plugin<'_> {
    fn flag<'b>(&'b self, name: &str, default: &'b str) -> &'b str {
        self.flags.get(name).map_or(default, String::as_str)
    }

    fn port(&self, name: &str, default: u16) -> u16 {
        self.flags.get(name).and_then(|port| port.parse().ok()).unwrap_or(default)
    }

    fn is_on(&self, name: &str, default: bool) -> bool {
        self.flags
            .get(name)
            .map_or(default, |value| matches!(value.as_str(), "true" | "1" | "t" | "T" | "TRUE" | "True"))
    }

    fn objects(&self, job: &Value) -> Vec<(Kind, Value)> {
        match self.name {
            "svc" => network::svc_objects(job, self),
            "ssh" => network::ssh_objects(job, self),
            "ray" => frameworks::ray_objects(job, self),
            _ => Vec::new(),
        }
    }

    fn object_names(&self, job: &Value) -> Vec<(Kind, String)> {
        self.objects(job).into_iter().map(|(kind, object)| (kind, name(&object).to_owned())).collect()
    }
}

fn read_plugins(job: &Value) -> impl Iterator<Item = Plugin<'_>> {
    let all = job.pointer("/spec/plugins").and_then(Value::as_object).into_iter().flatten();
    all.map(|(name, arguments)| Plugin { name, flags: read_flags(arguments) })
}

/// What Go's flag package takes: `--x=1`, `-x 1`, and `--x` alone for a switch; it stops at what is no flag.
fn read_flags(arguments: &Value) -> BTreeMap<String, String> {
    const SWITCHES: [&str; 4] =
        ["publish-not-ready-addresses", "disable-network-policy", "inject-hosts-env", "wait-master-enabled"];
    let mut flags = BTreeMap::new();
    let mut words = arguments.as_array().into_iter().flatten().filter_map(Value::as_str);
    while let Some(word) = words.next() {
        let Some(flag) = word.strip_prefix('-') else { break };
        let flag = flag.strip_prefix('-').unwrap_or(flag);
        match flag.split_once('=') {
            Some((name, value)) => flags.insert(name.to_owned(), value.to_owned()),
            None if SWITCHES.contains(&flag) => flags.insert(flag.to_owned(), "true".to_owned()),
            None => flags.insert(flag.to_owned(), words.next().unwrap_or_default().to_owned()),
        };
    }
    flags
}

/// Appends to a list field, making it if need be.
pub(super) fn push_item(object: &mut Value, field: &str, item: Value) {
    match object.get_mut(field).and_then(Value::as_array_mut) {
        Some(items) => items.push(item),
        None => object[field] = json!([item]),
    }
}

fn each_container(pod: &mut Value, init: bool, mut change: impl FnMut(&mut Value)) {
    let kinds: &[&str] = if init { &["containers", "initContainers"] } else { &["containers"] };
    for kind in kinds {
        pod["spec"].get_mut(*kind).and_then(Value::as_array_mut).into_iter().flatten().for_each(&mut change);
    }
}

fn add_env(pod: &mut Value, variables: &[(&str, &str)], init: bool) {
    each_container(pod, init, |container| {
        for (name, value) in variables {
            // Go leaves an empty value out.
            let variable = if value.is_empty() { json!({"name": name}) } else { json!({"name": name, "value": value}) };
            push_item(container, "env", variable);
        }
    });
}

/// The host names of a task's pods within the job's service.
fn hosts_of_task(job: &Value, task: &Value) -> Vec<String> {
    let fixed = text(task, "/template/spec/hostname");
    let domain = match text(task, "/template/spec/subdomain") {
        "" => name(job),
        domain => domain,
    };
    let replicas = super::number(task, "/replicas");
    // A template with a hostname of its own has one host, however many pods.
    let count = if fixed.is_empty() { replicas } else { replicas.min(1) };
    (0..count)
        .map(|index| {
            let pod = super::pod_name(job, task, index);
            format!("{}.{domain}", if fixed.is_empty() { &pod } else { fixed })
        })
        .collect()
}

fn first_host(job: &Value, task: &Value) -> String {
    let fixed = text(task, "/template/spec/hostname");
    let pod = super::pod_name(job, task, 0);
    let domain = match text(task, "/template/spec/subdomain") {
        "" => name(job),
        domain => domain,
    };
    format!("{}.{domain}", if fixed.is_empty() { &pod } else { fixed })
}
