use std::process::Command;

use caldera_core::{
    gang::TaskName,
    plan::{ClusterShare, TaskShare},
};

use super::*;

fn plan(shares: &[(&str, u32, u32)]) -> Plan {
    let task = |replicas| TaskShare { replicas, min_available: replicas };
    let share = |(cluster, master, worker): &(&str, u32, u32)| {
        let tasks = [(TaskName::from("master"), task(*master)), (TaskName::from("worker"), task(*worker))].into();
        (ClusterName::from(*cluster), ClusterShare { tasks, min_available: master + worker, ..ClusterShare::default() })
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
    add_rendezvous(&mut copy, &plan(&[("a", 1, 2), ("b", 0, 3)]), &here.into());
    copy
}

fn env<'a>(copy: &'a Value, task: usize, name: &str) -> Option<&'a str> {
    let env = copy.pointer(&format!("/spec/tasks/{task}/template/spec/containers/0/env"))?.as_array()?;
    env.iter().find(|one| one["name"] == name)?["value"].as_str()
}

#[test]
fn a_split_pytorch_job_is_one_world_with_one_master() {
    for here in ["a", "b"] {
        let copy =
            made(json!({"pytorch": ["--port=29500"], "svc": ["--disable-network-policy=false"]}), "clusterset", here);
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
    // Else the first worker of each cluster is one host to Open MPI, and no rank runs in the other.
    assert_eq!(env(&copy, 0, "OMPI_MCA_orte_keep_fqdn_hostnames"), Some("1"));
    assert_eq!(env(&copy, 0, "PRTE_MCA_prte_keep_fqdn_hostnames"), Some("1"));
}

/// Addresses must be the whole job's; how its user's program treats them is the user's to say.
#[test]
fn what_a_container_tells_open_mpi_itself_stays() {
    let mut copy = job(json!({"mpi": []}), "clusterset");
    let own =
        json!([{"name": "OMPI_MCA_orte_keep_fqdn_hostnames", "value": "0"}, {"name": "MPI_HOST", "value": "own"}]);
    copy["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["env"] = own;
    add_rendezvous(&mut copy, &plan(&[("a", 1, 2), ("b", 0, 3)]), &"a".into());
    assert_eq!(env(&copy, 0, "OMPI_MCA_orte_keep_fqdn_hostnames"), Some("0"));
    assert_eq!(env(&copy, 0, "PRTE_MCA_prte_keep_fqdn_hostnames"), Some("1"));
    assert_ne!(env(&copy, 0, "MPI_HOST"), Some("own"));
}

#[test]
fn a_shell_really_gives_each_pod_its_rank_and_the_whole_jobs_lists() {
    let copy = made(json!({"pytorch": []}), "clusterset", "b");
    let container = &copy["spec"]["tasks"][1]["template"]["spec"]["containers"][0];
    let said = run(container, &[("VC_TASK_INDEX", "1"), ("VC_WORKER_NUM", "3")]);
    for line in ["RANK=4", "VC_TASK_INDEX=3", "VK_TASK_INDEX=3", "VC_WORKER_NUM=5", "VC_MASTER_NUM=1", "WORLD_SIZE=6"] {
        assert!(said.lines().any(|said| said == line), "{line} is not in {said}");
    }
}

/// What a container's command says of its variables, with what plugins `env` and `svc` say of this cluster.
fn run(container: &Value, of_the_cluster: &[(&str, &str)]) -> String {
    let words: Vec<&str> = container["command"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env_clear().env("PATH", "/usr/bin:/bin");
    for one in container["env"].as_array().unwrap() {
        command.env(one["name"].as_str().unwrap(), one["value"].as_str().unwrap());
    }
    command.envs(of_the_cluster.iter().copied());
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

/// The indices and counts that the pods of one task say, over clusters `a` and `b`, one line for each pod.
fn numbered(plugins: &Value, kind: &str) -> Vec<String> {
    let mut said = Vec::new();
    for (here, pods) in [("a", 2), ("b", 3)] {
        let mut copy = job(plugins.clone(), "");
        let words = "echo $VC_TASK_INDEX $VK_TASK_INDEX of ${VC_WORKER_NUM:-?} ${VC_WORKER_HOSTS:-}";
        copy["spec"]["tasks"][1]["template"]["spec"][kind] =
            json!([{"name": "c", "command": ["/bin/sh", "-c", words]}]);
        add_rendezvous(&mut copy, &plan(&[("a", 1, 2), ("b", 0, 3)]), &here.into());
        let once = copy.clone();
        add_rendezvous(&mut copy, &plan(&[("a", 1, 2), ("b", 0, 3)]), &here.into());
        assert_eq!(copy, once, "made twice");
        let container = &copy["spec"]["tasks"][1]["template"]["spec"][kind][0];
        for pod in 0..pods {
            let (pod, pods) = (pod.to_string(), pods.to_string());
            let cluster = [("VC_TASK_INDEX", &*pod), ("VK_TASK_INDEX", &*pod)];
            let svc = [("VC_WORKER_NUM", &*pods), ("VC_WORKER_HOSTS", "one-cluster")];
            let svc = if plugins.get("svc").is_some() { &svc[..] } else { &[] };
            said.push(run(container, &[&cluster[..], svc].concat()).trim().to_owned());
        }
    }
    said
}

#[test]
fn no_index_of_a_split_job_is_there_twice_and_counts_are_the_whole_jobs() {
    for kind in ["containers", "initContainers"] {
        let said = numbered(&json!({"env": []}), kind);
        assert_eq!(said, ["0 0 of ?", "1 1 of ?", "2 2 of ?", "3 3 of ?", "4 4 of ?"]);
        let said = numbered(&json!({"env": [], "svc": []}), kind);
        assert_eq!(said, ["0 0 of 5", "1 1 of 5", "2 2 of 5", "3 3 of 5", "4 4 of 5"]);
    }
    let mut copy = job(json!({"ssh": []}), "");
    assert_eq!(add_rendezvous(&mut copy, &plan(&[("a", 1, 2), ("b", 0, 3)]), &"b".into()), None);
    assert_eq!(copy, job(json!({"ssh": []}), ""), "nothing numbers its pods");
}

#[test]
fn a_tensorflow_pod_is_told_the_whole_cluster_and_its_index_in_it() {
    let copy = made(json!({"tensorflow": ["--ps=master", "--port", "3333"]}), "clusterset", "b");
    assert_eq!(copy["spec"]["plugins"]["tensorflow"], Value::Null);
    let said = run(&copy["spec"]["tasks"][1]["template"]["spec"]["containers"][0], &[("VC_TASK_INDEX", "2")]);
    let config = said.lines().find_map(|line| line.strip_prefix("TF_CONFIG=")).unwrap();
    let config: Value = serde_json::from_str(config).unwrap();
    assert_eq!(config["task"], json!({"type": "worker", "index": 4}));
    assert_eq!(config["cluster"]["ps"], json!(["j-master-0.a.j.ns.svc.clusterset.local:3333"]));
    assert_eq!(config["cluster"]["worker"][4], "j-worker-2.b.j.ns.svc.clusterset.local:3333");
    let copy = made(json!({"tensorflow": ["--ps=master"]}), "clusterset", "a");
    let said = run(&copy["spec"]["tasks"][0]["template"]["spec"]["containers"][0], &[("VC_TASK_INDEX", "0")]);
    assert!(said.contains(r#""task":{"type":"ps","index":0}"#), "{said}");
}

#[test]
fn rays_plugin_stays_where_the_head_is_and_workers_elsewhere_join_that_head() {
    let mut ray = job(json!({"ray": ["--head=master", "--workerContainer", "c", "--port=7000"]}), "clusterset");
    let shares = plan(&[("a", 1, 2), ("b", 0, 3)]);
    let mut with_head = ray.clone();
    add_rendezvous(&mut with_head, &shares, &"a".into());
    assert!(with_head["spec"]["plugins"]["ray"].is_array());
    add_rendezvous(&mut ray, &shares, &"b".into());
    assert_eq!(ray["spec"]["plugins"]["ray"], Value::Null, "a copy without a head gets no pods from the plugin");
    let command = &ray["spec"]["tasks"][1]["template"]["spec"]["containers"][0]["command"];
    let start = "ray start --block --address=j-master-0.a.j.ns.svc.clusterset.local:7000";
    assert_eq!(command.as_array().unwrap().last().unwrap(), start);
}

#[test]
fn a_template_that_names_its_pods_itself_is_called_so() {
    let mut copy = job(json!({"pytorch": []}), "clusterset");
    copy["spec"]["tasks"][0]["template"]["spec"]["hostname"] = "boss".into();
    copy["spec"]["tasks"][0]["template"]["spec"]["subdomain"] = "office".into();
    add_rendezvous(&mut copy, &plan(&[("a", 1, 2), ("b", 0, 3)]), &"b".into());
    assert_eq!(env(&copy, 1, "MASTER_ADDR"), Some("boss.a.office.ns.svc.clusterset.local"));
}

#[test]
fn another_ssh_port_is_told_to_mpi_and_lists_that_nobody_wants_are_left_out() {
    let plugins = json!({"mpi": [], "ssh": ["--ssh-port=2022"], "svc": ["--inject-hosts-env=false"]});
    let copy = made(plugins, "clusterset", "a");
    assert_eq!(env(&copy, 0, "OMPI_MCA_plm_rsh_args"), Some("-p 2022"));
    assert_eq!(env(&copy, 0, "CALDERA_WORKER_HOSTS"), None);
    assert_eq!(env(&copy, 0, "MPI_HOST").map(|hosts| hosts.split(',').count()), Some(5));
}

#[test]
fn made_twice_it_is_the_same() {
    for (mode, here) in [("clusterset", "a"), ("clusterset", "b"), ("torchrun", "b")] {
        let plugins =
            json!({"pytorch": [], "mpi": [], "tensorflow": [], "ray": ["--head=master", "--workerContainer=c"]});
        let once = made(plugins, mode, here);
        let mut twice = once.clone();
        add_rendezvous(&mut twice, &plan(&[("a", 1, 2), ("b", 0, 3)]), &here.into());
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
        assert_eq!(add_rendezvous(&mut copy, &plan(shares), &"a".into()), None);
        assert_eq!(copy, job(json!({"pytorch": []}), mode));
    }
}

#[test]
fn a_split_job_with_a_secret_mounts_it_where_the_plugin_would_and_no_copy_has_keys() {
    for (plugins, path, mode) in [
        (json!({"ssh": [], "svc": []}), "/root/.ssh", 0o600),
        (json!({"mpi": ["--master=master"]}), "/root/.ssh", 0o600),
        (json!({"ssh": ["--ssh-key-file-path=/home/u/.ssh", "--ssh-private-key=p"]}), "/home/u/.ssh", 0o644),
    ] {
        let mut copy = job(plugins, "clusterset");
        copy["metadata"]["annotations"]["caldera.dev/ssh-secret"] = "keys".into();
        copy["spec"]["tasks"][0]["template"]["spec"]["initContainers"] = json!([{"name": "i", "command": ["true"]}]);
        let split = plan(&[("a", 1, 2), ("b", 0, 3)]);
        let (whole, one) = (copy.clone(), plan(&[("a", 1, 5)]));
        add_rendezvous(&mut copy, &split, &"a".into());
        assert_eq!(copy["spec"]["plugins"].get("ssh"), None);
        assert!(!copy.to_string().contains("private-key"));
        for task in copy["spec"]["tasks"].as_array().unwrap() {
            let pod = &task["template"]["spec"];
            let secret = &pod["volumes"][0]["secret"];
            assert_eq!((&secret["secretName"], &secret["defaultMode"]), (&json!("keys"), &json!(mode)));
            assert_eq!(secret["items"][0], json!({"key": "id_rsa", "path": ".ssh/id_rsa"}));
            let mount = json!([{"name": pod["volumes"][0]["name"], "mountPath": path, "subPath": ".ssh"}]);
            assert_eq!(pod["containers"][0]["volumeMounts"], mount);
        }
        assert!(copy["spec"]["tasks"][0]["template"]["spec"]["initContainers"][0]["volumeMounts"].is_array());
        let once = copy.clone();
        add_rendezvous(&mut copy, &split, &"a".into());
        assert_eq!(copy, once, "made twice");
        // A job in one cluster keeps the plugin, which needs no others' keys.
        let mut alone = whole.clone();
        add_rendezvous(&mut alone, &one, &"a".into());
        assert_eq!(alone, whole);
    }
}
