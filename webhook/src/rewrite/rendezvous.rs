//! How the pods of a gang that is split over clusters find each other, where its user declares how.
//!
//! A member's Volcano numbers and lists the pods of its own copy alone: each copy would be a world with its own master
//! and the same ranks (Volcano `pkg/controllers/job/plugins/{pytorch,mpi,svc,env}`). With annotation
//! `caldera.dev/rendezvous` the plugins that build ranks are taken out of the copies of a split job. With the value
//! `clusterset` what they would have said is put in for the whole job: world size, master, hosts, and each task's offset
//! in this cluster. Names are those of multi-cluster services (KEP-1645):
//! `<pod>.<cluster>.<job>.<namespace>.svc.clusterset.local`, so the members must be in one clusterset under their Karmada
//! names and export the job's headless Service. Ranks are sums that a manifest can not say: a container's command is run
//! by a shell that adds the offset. A job in one cluster stays as its user wrote it.

use caldera_core::{gang::ClusterName, plan::Plan};
use caldera_crds::{
    job_admission::default_task_name,
    names::caldera::{RENDEZVOUS, RENDEZVOUS_CLUSTERSET},
    workload::RANK_PLUGINS,
};
use serde_json::{Map, Value, json};

/// Pods of a task in this cluster, before it in order, and in all.
struct Part {
    before: u32,
    all: u32,
}

/// A job that is split: its name, its namespace, and where its pods are.
struct Split<'a> {
    job: String,
    namespace: String,
    plan: &'a Plan,
    here: &'a ClusterName,
}

/// Makes a cluster's copy part of the whole job; nothing where it is not split or declares nothing.
pub(super) fn meet(copy: &mut Value, plan: &Plan, here: &ClusterName) -> Option<()> {
    let text = |pointer: &str| copy.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mode = copy.pointer("/metadata/annotations")?.get(RENDEZVOUS)?.as_str()?.to_owned();
    let sites = plan.clusters.values().filter(|share| share.replicas() > 0).count();
    if mode.is_empty() || sites < 2 {
        return None;
    }
    let split = Split { job: text("/metadata/name"), namespace: text("/metadata/namespace"), plan, here };
    let spec = copy.get_mut("spec")?.as_object_mut()?;
    let plugins = plugins(spec);
    if let Some(Value::Object(kept)) = spec.get_mut("plugins") {
        kept.retain(|name, _| !RANK_PLUGINS.contains(&name.as_str()));
    }
    if mode == RENDEZVOUS_CLUSTERSET {
        open(spec, &plugins);
        split.tell(spec, &plugins)?;
    }
    Some(())
}

fn plugins(spec: &Map<String, Value>) -> Map<String, Value> {
    spec.get("plugins").and_then(Value::as_object).cloned().unwrap_or_default()
}

/// The value of a plugin's flag, as Go reads it: `--name=value` or `--name value`.
fn flag<'a>(plugins: &'a Map<String, Value>, plugin: &str, name: &str) -> Option<&'a str> {
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
fn open(spec: &mut Map<String, Value>, before: &Map<String, Value>) {
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

impl Split<'_> {
    fn part(&self, task: &str) -> Part {
        let mut part = Part { before: 0, all: 0 };
        for (cluster, share) in &self.plan.clusters {
            let pods = share.tasks.get(task).map_or(0, |task| task.replicas);
            if cluster < self.here {
                part.before += pods;
            }
            part.all += pods;
        }
        part
    }

    /// Every pod of a task, in the order of its global index.
    fn hosts(&self, task: &str) -> Vec<String> {
        let of = |(cluster, pods): (&ClusterName, u32)| {
            let (job, namespace) = (&self.job, &self.namespace);
            let host = move |pod| format!("{job}-{task}-{pod}.{cluster}.{job}.{namespace}.svc.clusterset.local");
            (0..pods).map(host).collect::<Vec<_>>()
        };
        let shares = self.plan.clusters.iter();
        shares
            .map(|(cluster, share)| (cluster, share.tasks.get(task).map_or(0, |part| part.replicas)))
            .flat_map(of)
            .collect()
    }

    fn tell(&self, spec: &mut Map<String, Value>, plugins: &Map<String, Value>) -> Option<()> {
        let tasks = spec.get_mut("tasks")?.as_array_mut()?;
        let name_of = |(index, task): (usize, &Value)| match task.get("name").and_then(Value::as_str) {
            None | Some("") => default_task_name(index),
            Some(name) => name.to_owned(),
        };
        let names: Vec<String> = tasks.iter().enumerate().map(name_of).collect();
        for (task, name) in tasks.iter_mut().zip(&names) {
            let mut said = self.hosts_of_all(&names);
            said.push(("CALDERA_TASK_OFFSET".to_owned(), self.part(name).before.to_string()));
            said.extend(self.pytorch(plugins, name));
            said.extend(self.mpi(plugins, name));
            let Some(pod) = task.pointer_mut("/template/spec") else { continue };
            for kind in ["initContainers", "containers"] {
                for container in pod.get_mut(kind).and_then(Value::as_array_mut).into_iter().flatten() {
                    say(container, &said)?;
                    if kind == "containers" {
                        number(container, &names);
                    }
                }
            }
        }
        Some(())
    }

    /// The lists that plugin `svc` makes of one cluster's pods.
    fn hosts_of_all(&self, names: &[String]) -> Vec<(String, String)> {
        let of = |name: &String| {
            let (upper, hosts) = (upper(name), self.hosts(name));
            [
                (format!("CALDERA_{upper}_NUM"), hosts.len().to_string()),
                (format!("CALDERA_{upper}_HOSTS"), hosts.join(",")),
            ]
        };
        names.iter().flat_map(of).collect()
    }

    /// `pytorch.go:91-171`: one master of rank 0, then the workers.
    fn pytorch(&self, plugins: &Map<String, Value>, task: &str) -> Vec<(String, String)> {
        if !plugins.contains_key("pytorch") {
            return Vec::new();
        }
        let master = flag(plugins, "pytorch", "master").unwrap_or("master");
        let worker = flag(plugins, "pytorch", "worker").unwrap_or("worker");
        let masters = self.part(master).all;
        let mut said = vec![
            ("MASTER_ADDR".to_owned(), self.hosts(master).into_iter().next().unwrap_or_default()),
            ("MASTER_PORT".to_owned(), flag(plugins, "pytorch", "port").unwrap_or("23456").to_owned()),
            ("WORLD_SIZE".to_owned(), masters.saturating_add(self.part(worker).all).to_string()),
        ];
        if task == master || task == worker {
            let first = if task == master { 0 } else { masters };
            said.push(("CALDERA_FIRST_RANK".to_owned(), first.to_string()));
        }
        said
    }

    /// `mpi.go:80-150`: the master knows every worker.
    fn mpi(&self, plugins: &Map<String, Value>, task: &str) -> Option<(String, String)> {
        let master = flag(plugins, "mpi", "master").unwrap_or("master");
        let worker = flag(plugins, "mpi", "worker").unwrap_or("worker");
        (plugins.contains_key("mpi") && task == master).then(|| ("MPI_HOST".to_owned(), self.hosts(worker).join(",")))
    }
}

/// Sets variables of a container, in place where they are there.
fn say(container: &mut Value, said: &[(String, String)]) -> Option<()> {
    let container = container.as_object_mut()?;
    let env = container.entry("env").or_insert_with(|| json!([])).as_array_mut()?;
    for (name, value) in said {
        let one = json!({"name": name, "value": value});
        match env.iter_mut().find(|one| one["name"] == name.as_str()) {
            Some(there) => *there = one,
            None => env.push(one),
        }
    }
    Some(())
}

/// Adds this cluster's offset to the index that plugin `env` gives a pod, and names the rank.
const NUMBER: &str = "VC_TASK_INDEX=$((${VC_TASK_INDEX:-0}+${CALDERA_TASK_OFFSET:-0})); VK_TASK_INDEX=$VC_TASK_INDEX; \
                      export VC_TASK_INDEX VK_TASK_INDEX; if [ -n \"${CALDERA_FIRST_RANK:-}\" ]; then \
                      RANK=$((VC_TASK_INDEX+CALDERA_FIRST_RANK)); export RANK; fi; ";

/// Has a shell put the whole job's numbers in place of the cluster's before the command runs.
fn number(container: &mut Value, tasks: &[String]) {
    let Some(command) = container.get("command").and_then(Value::as_array).filter(|command| !command.is_empty()) else {
        return;
    };
    if command.get(2).and_then(Value::as_str).is_some_and(|script| script.starts_with(NUMBER)) {
        return;
    }
    let lists = tasks.iter().flat_map(|task| [format!("{}_HOSTS", upper(task)), format!("{}_NUM", upper(task))]);
    let lists: String = lists.map(|list| format!("export VC_{list}=\"$CALDERA_{list}\"; ")).collect();
    let script = format!("{NUMBER}{lists}exec \"$0\" \"$@\"");
    let shell = ["/bin/sh", "-c", &script].map(Value::from);
    container["command"] = shell.into_iter().chain(command.iter().cloned()).collect();
}

/// A task's name as part of a variable's.
fn upper(task: &str) -> String {
    task.to_uppercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use caldera_core::{
        gang::TaskName,
        plan::{Share, TaskShare},
    };

    use super::*;

    fn plan(shares: &[(&str, u32, u32)]) -> Plan {
        let task = |replicas| TaskShare { replicas, min_available: replicas };
        let share = |(cluster, master, worker): &(&str, u32, u32)| {
            let tasks = [(TaskName::from("master"), task(*master)), (TaskName::from("worker"), task(*worker))].into();
            (ClusterName::from(*cluster), Share { tasks, min_available: master + worker, ..Share::default() })
        };
        Plan { clusters: shares.iter().map(share).collect() }
    }

    fn job(plugins: Value, mode: &str) -> Value {
        let task = |name: &str| json!({"name": name, "template": {"spec": {"containers": [{"name": "c", "command": ["sh", "-c", "env"]}]}}});
        json!({
            "metadata": {"name": "j", "namespace": "ns", "annotations": {"caldera.dev/rendezvous": mode}},
            "spec": {"plugins": plugins, "tasks": [task("master"), task("worker")]},
        })
    }

    fn made(plugins: Value, mode: &str, here: &str) -> Value {
        let mut copy = job(plugins, mode);
        meet(&mut copy, &plan(&[("a", 1, 2), ("b", 0, 3)]), &here.into());
        copy
    }

    fn env<'a>(copy: &'a Value, task: usize, name: &str) -> Option<&'a str> {
        let env = copy.pointer(&format!("/spec/tasks/{task}/template/spec/containers/0/env"))?.as_array()?;
        env.iter().find(|one| one["name"] == name)?["value"].as_str()
    }

    #[test]
    fn a_split_pytorch_job_is_one_world_with_one_master() {
        for here in ["a", "b"] {
            let copy = made(
                json!({"pytorch": ["--port=29500"], "svc": ["--disable-network-policy=false"]}),
                "clusterset",
                here,
            );
            assert_eq!(copy["spec"]["plugins"]["pytorch"], Value::Null);
            let svc = json!(["--disable-network-policy=true", "--publish-not-ready-addresses=true"]);
            assert_eq!(copy["spec"]["plugins"]["svc"], svc);
            assert_eq!(env(&copy, 1, "WORLD_SIZE"), Some("6"));
            assert_eq!(env(&copy, 1, "MASTER_ADDR"), Some("j-master-0.a.j.ns.svc.clusterset.local"));
            assert_eq!(env(&copy, 1, "MASTER_PORT"), Some("29500"));
            assert_eq!(env(&copy, 1, "CALDERA_WORKER_NUM"), Some("5"));
        }
        let copy = made(json!({"pytorch": []}), "clusterset", "b");
        assert_eq!((env(&copy, 0, "CALDERA_FIRST_RANK"), env(&copy, 1, "CALDERA_FIRST_RANK")), (Some("0"), Some("1")));
        assert_eq!(env(&copy, 1, "CALDERA_TASK_OFFSET"), Some("2"));
        let last = "j-worker-2.b.j.ns.svc.clusterset.local";
        assert!(env(&copy, 0, "CALDERA_WORKER_HOSTS").is_some_and(|hosts| hosts.ends_with(last)));
    }

    #[test]
    fn an_mpi_master_knows_every_worker_and_no_copy_asks_for_a_master() {
        let copy = made(json!({"mpi": ["--master", "master"]}), "clusterset", "a");
        assert_eq!(copy["spec"]["plugins"]["mpi"], Value::Null);
        assert!(copy["spec"]["plugins"]["ssh"].is_array() && copy["spec"]["plugins"]["svc"].is_array());
        assert_eq!(env(&copy, 0, "MPI_HOST").map(|hosts| hosts.split(',').count()), Some(5));
        assert_eq!(env(&copy, 1, "MPI_HOST"), None);
    }

    #[test]
    fn a_shell_really_gives_each_pod_its_rank_and_the_whole_jobs_lists() {
        let copy = made(json!({"pytorch": []}), "clusterset", "b");
        let container = &copy["spec"]["tasks"][1]["template"]["spec"]["containers"][0];
        let words: Vec<&str> =
            container["command"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env_clear().env("PATH", "/usr/bin:/bin");
        for one in container["env"].as_array().unwrap() {
            command.env(one["name"].as_str().unwrap(), one["value"].as_str().unwrap());
        }
        // What plugins env and svc say of this cluster.
        command.env("VC_TASK_INDEX", "1").env("VC_WORKER_NUM", "3");
        let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
        for line in
            ["RANK=4", "VC_TASK_INDEX=3", "VK_TASK_INDEX=3", "VC_WORKER_NUM=5", "VC_MASTER_NUM=1", "WORLD_SIZE=6"]
        {
            assert!(said.lines().any(|said| said == line), "{line} is not in {said}");
        }
    }

    #[test]
    fn made_twice_it_is_the_same() {
        for mode in ["clusterset", "torchrun"] {
            let once = made(json!({"pytorch": [], "mpi": []}), mode, "b");
            let mut twice = once.clone();
            meet(&mut twice, &plan(&[("a", 1, 2), ("b", 0, 3)]), &"b".into());
            assert_eq!(once, twice);
        }
    }

    #[test]
    fn a_mode_of_the_users_own_only_loses_the_plugins_that_would_lie() {
        let copy = made(json!({"pytorch": [], "svc": []}), "torchrun", "b");
        assert_eq!(copy["spec"]["plugins"], json!({"svc": []}));
        assert_eq!(copy["spec"]["tasks"], job(json!({}), "")["spec"]["tasks"]);
    }

    #[test]
    fn a_job_in_one_cluster_or_without_a_mode_stays_as_it_is() {
        for (mode, shares) in [("clusterset", &[("a", 1, 2), ("b", 0, 0)]), ("", &[("a", 1, 2), ("b", 0, 3)])] {
            let mut copy = job(json!({"pytorch": []}), mode);
            assert_eq!(meet(&mut copy, &plan(shares), &"a".into()), None);
            assert_eq!(copy, job(json!({"pytorch": []}), mode));
        }
    }
}
