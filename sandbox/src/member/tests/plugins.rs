//! What job plugins make and write, and how they fail on a part of a job.

use super::*;

fn started(plugins: Value, tasks: Vec<Value>) -> Cluster {
    let mut cluster = Cluster::new(1, "64");
    let mut job = job_of("j", tasks);
    job["spec"]["plugins"] = plugins;
    cluster.submit(job).unwrap();
    cluster.settle();
    cluster
}

fn env(pod: &Value) -> BTreeMap<String, String> {
    let variables = list(pod, "/spec/containers/0/env").iter();
    variables.map(|v| (text(v, "/name").to_owned(), text(v, "/value").to_owned())).collect()
}

fn made(cluster: &Cluster) -> Vec<(Kind, &str)> {
    let ours = cluster.made.keys().filter(|(kind, _)| *kind != Kind::Event);
    ours.map(|(kind, (_, name))| (*kind, name.as_str())).collect()
}

#[test]
fn svc_ssh_and_env_make_their_objects_and_take_them_away_at_the_end() {
    let mut cluster = started(
        json!({"env": [], "svc": [], "ssh": ["--ssh-key-file-path=/home/u/.ssh"]}),
        vec![task("big-task", 2, "1", "sleep 5")],
    );
    let all = [(Kind::Service, "j"), (Kind::ConfigMap, "j-svc"), (Kind::Secret, "j-ssh"), (Kind::NetworkPolicy, "j")];
    assert_eq!(made(&cluster), all);
    let lists = &cluster.made[&(Kind::ConfigMap, ("ns".into(), "j-svc".into()))]["data"];
    assert_eq!(
        *lists,
        json!({
            "big_task.host": "j-big-task-0.j\nj-big-task-1.j", "VC_BIG_TASK_HOSTS": "j-big-task-0.j,j-big-task-1.j",
            "VC_BIG_TASK_NUM": "2",
        })
    );
    let service = &cluster.made[&(Kind::Service, ("ns".into(), "j".into()))]["spec"];
    assert_eq!(service["clusterIP"], "None");
    let pod = cluster.pod("j-big-task-1");
    assert_eq!((text(pod, "/spec/hostname"), text(pod, "/spec/subdomain")), ("j-big-task-1", "j"));
    assert_eq!(env(pod)["VC_TASK_INDEX"], "1");
    assert_eq!(env(pod)["VK_TASK_INDEX"], "1");
    assert!(env(pod).contains_key("VC_BIG_TASK_HOSTS"));
    let mounts = &pod["spec"]["containers"][0]["volumeMounts"];
    assert_eq!(
        *mounts,
        json!([
            {"name": "j-ssh", "mountPath": "/home/u/.ssh", "subPath": ".ssh"}, {"name": "j-svc", "mountPath": "/etc/volcano"},
        ])
    );
    assert_eq!(pod["spec"]["volumes"][0]["secret"]["defaultMode"], 0o644);
    assert_eq!(
        cluster.job("j")["status"]["controlledResources"],
        json!({"plugin-env": "env", "plugin-ssh": "ssh", "plugin-svc": "svc"})
    );
    cluster.run();
    assert_eq!(cluster.phase("j"), "Completed");
    assert_eq!(made(&cluster), []);
    assert_eq!(cluster.job("j").pointer("/status/controlledResources"), None);
}

#[test]
fn a_scaled_job_has_new_host_lists() {
    let mut cluster = started(json!({"svc": []}), vec![task("t", 1, "1", "sleep 50")]);
    let mut job = cluster.job("j").clone();
    job["spec"]["tasks"][0]["replicas"] = 2.into();
    cluster.put(Kind::VolcanoJob, job);
    cluster.settle();
    let lists = &cluster.made[&(Kind::ConfigMap, ("ns".into(), "j-svc".into()))]["data"];
    assert_eq!(lists["VC_T_HOSTS"], "j-t-0.j,j-t-1.j");
    assert_eq!(number(cluster.job("j"), "/status/running"), 2);
}

#[test]
fn svc_does_as_its_arguments_say() {
    let cluster = started(
        json!({"svc": ["--disable-network-policy=true", "--publish-not-ready-addresses", "--inject-hosts-env=false"]}),
        vec![task("t", 1, "1", "sleep 5")],
    );
    assert_eq!(made(&cluster), [(Kind::Service, "j"), (Kind::ConfigMap, "j-svc")]);
    let service = &cluster.made[&(Kind::Service, ("ns".into(), "j".into()))]["spec"];
    assert_eq!(service["publishNotReadyAddresses"], true);
    assert!(env(cluster.pod("j-t-0")).is_empty());
}

#[test]
fn keys_differ_by_cluster_unless_they_are_given() {
    let secret =
        |cluster: &Cluster| cluster.made[&(Kind::Secret, ("ns".into(), "j-ssh".into()))]["data"]["id_rsa"].clone();
    let one = started(json!({"ssh": []}), vec![task("t", 1, "1", "sleep 5")]);
    let mut other = Cluster::new(2, "64");
    other.add_queue("more", json!({}));
    let mut job = job_of("j", vec![task("t", 1, "1", "sleep 5")]);
    job["spec"]["plugins"] = json!({"ssh": []});
    other.submit(job).unwrap();
    other.settle();
    assert_ne!(secret(&one), secret(&other));
    let given = json!({"ssh": ["--ssh-private-key=secret", "--ssh-public-key=public"]});
    let given = started(given, vec![task("t", 1, "1", "sleep 5")]);
    assert_eq!(secret(&given), "c2VjcmV0");
}

#[test]
fn pytorch_numbers_this_copy_s_pods_and_writes_nothing_without_a_master() {
    let cluster =
        started(json!({"pytorch": []}), vec![task("master", 1, "1", "sleep 5"), task("worker", 2, "1", "sleep 5")]);
    let worker = env(cluster.pod("j-worker-1"));
    assert_eq!((worker["RANK"].as_str(), worker["WORLD_SIZE"].as_str()), ("2", "3"));
    assert_eq!((worker["MASTER_ADDR"].as_str(), worker["MASTER_PORT"].as_str()), ("j-master-0.j", "23456"));
    assert_eq!(env(cluster.pod("j-master-0"))["RANK"], "0");
    let cluster = started(json!({"pytorch": []}), vec![task("worker", 2, "1", "sleep 5")]);
    assert!(!env(cluster.pod("j-worker-1")).contains_key("MASTER_ADDR"));
    assert_eq!(cluster.phase("j"), "Running");
}

#[test]
fn mpi_tells_the_master_this_copy_s_workers() {
    let cluster =
        started(json!({"mpi": []}), vec![task("master", 1, "1", "sleep 5"), task("worker", 2, "1", "sleep 5")]);
    assert_eq!(env(cluster.pod("j-master-0"))["MPI_HOST"], "j-worker-0.j,j-worker-1.j");
    assert!(!env(cluster.pod("j-worker-0")).contains_key("MPI_HOST"));
    assert_eq!(cluster.pod("j-worker-0")["spec"]["containers"][0]["ports"][0]["containerPort"], 22);
    // svc and ssh come with it.
    assert!(made(&cluster).contains(&(Kind::Secret, "j-ssh")));
}

#[test]
fn tensorflow_describes_this_copy_s_cluster() {
    let cluster =
        started(json!({"tensorflow": []}), vec![task("ps", 1, "1", "sleep 5"), task("worker", 2, "1", "sleep 5")]);
    let config: Value = serde_json::from_str(&env(cluster.pod("j-worker-1"))["TF_CONFIG"]).unwrap();
    assert_eq!(
        config,
        json!({
            "cluster": {"ps": ["j-ps-0.j:2222"], "worker": ["j-worker-0.j:2222", "j-worker-1.j:2222"]},
            "task": {"type": "worker", "index": 1},
        })
    );
    let alone = started(json!({"tensorflow": []}), vec![task("worker", 1, "1", "sleep 5")]);
    assert!(!env(alone.pod("j-worker-0")).contains_key("TF_CONFIG"));
}

#[test]
fn ray_without_its_head_gets_no_pods_at_all() {
    let mut worker = task("worker", 1, "1", "sleep 5");
    worker["template"]["spec"]["containers"][0]["name"] = "worker".into();
    let mut head = task("head", 1, "1", "sleep 5");
    head["template"]["spec"]["containers"][0]["name"] = "head".into();
    let cluster = started(json!({"ray": []}), vec![head, worker.clone()]);
    assert!(made(&cluster).contains(&(Kind::Service, "j-head-svc")));
    assert_eq!(
        cluster.pod("j-worker-0")["spec"]["containers"][0]["command"],
        json!(["sh", "-c", "ray start --block --address=j-head-0.j:6379"])
    );
    let mut cluster = started(json!({"ray": []}), vec![worker]);
    cluster.run();
    assert_eq!(text(cluster.group("j"), "/status/phase"), "Inqueue");
    assert_eq!(cluster.pods(), [""; 0]);
    assert_eq!(cluster.phase("j"), "Pending");
}

#[test]
fn hcclrank_counts_masters_before_workers_and_respects_a_rank() {
    let mut ranked = task("other", 1, "1", "sleep 5");
    ranked["template"]["spec"]["containers"][0]["env"] = json!([{"name": "RANK", "value": "7"}]);
    let tasks = vec![task("master", 2, "1", "sleep 5"), task("worker", 2, "1", "sleep 5"), ranked];
    let cluster = started(json!({"hcclrank": []}), tasks);
    let rank = |pod: &str| cluster.pod(pod)["metadata"]["annotations"]["hccl/rankIndex"].clone();
    assert_eq!((rank("j-master-1"), rank("j-worker-1"), rank("j-other-0")), (json!("1"), json!("3"), json!("7")));
}
