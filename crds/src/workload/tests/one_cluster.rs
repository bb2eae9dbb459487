//! Which jobs stay in one cluster.

use super::*;

#[test]
fn rank_plugins_keep_a_job_whole_unless_it_declares_a_rendezvous() {
    let with = |plugins: Value| job(json!({ "plugins": plugins, "tasks": [{ "name": "master", "replicas": 1 }] }));
    for plugin in ["pytorch", "mpi", "tensorflow", "ray", "hcclrank"] {
        let mut object = with(json!({ plugin: [] }));
        let why = read(&object).one_cluster.expect("a reason");
        assert!(why.contains(plugin), "{why}");
        object["metadata"]["annotations"] = json!({ "caldera.dev/rendezvous": "torchrun" });
        assert_eq!(read(&object).one_cluster, None);
    }
    assert_eq!(read(&with(json!({ "env": [], "svc": [], "ssh": [] }))).one_cluster, None);
}

#[test]
fn a_job_whose_pods_are_numbered_is_split_only_where_each_container_can_add_to_its_index() {
    let with = |plugins: Value, minimum: u32, pod: Value| {
        let task = json!({ "name": "worker", "replicas": 4, "template": { "spec": pod } });
        read(&job(json!({ "plugins": plugins, "minAvailable": minimum, "tasks": [task] })))
    };
    let shell = |name: &str, words: &str| json!({ "name": name, "command": ["/bin/bash", "-c", words] });
    let pod = |container: Value| json!({ "containers": [container] });
    for plugin in ["env", "svc"] {
        let gang = with(json!({ plugin: [] }), 4, pod(shell("c", "./train $VC_TASK_INDEX")));
        assert_eq!((gang.one_cluster, gang.rigid), (None, true), "{plugin}");
    }
    let probe = json!({ "exec": { "command": ["sh", "-c", "test -f $VC_TASK_INDEX"] } });
    let label = json!({ "fieldRef": { "fieldPath": "metadata.labels['volcano.sh/task-index']" } });
    let mut probed = shell("c", "sleep 1");
    probed["livenessProbe"] = probe;
    let mut labelled = shell("c", "sleep 1");
    labelled["env"] = json!([{ "name": "INDEX", "valueFrom": label }]);
    for (minimum, pod, word) in [
        (3, pod(shell("c", "sleep 1")), "3 of 4 pods are enough"),
        (
            4,
            pod(json!({ "name": "c", "command": ["python", "train.py"] })),
            "container \"c\" of task worker runs no shell",
        ),
        (4, pod(json!({ "name": "c", "image": "nginx" })), "runs no shell"),
        (4, json!({ "containers": [shell("c", "a")], "initContainers": [{ "name": "i" }] }), "container \"i\""),
        (4, pod(shell("c", "./train $(VC_TASK_INDEX)")), "has its index from where no shell"),
        (4, pod(probed), "has its index from where no shell"),
        (4, pod(labelled), "has its index from where no shell"),
    ] {
        let gang = with(json!({ "env": [] }), minimum, pod.clone());
        let why = gang.one_cluster.unwrap_or_default();
        assert!(why.starts_with("plugin env numbers pods") && why.contains(word) && !gang.rigid, "{word}: {why}");
        assert_eq!(with(json!({ "ssh": [] }), minimum, pod).one_cluster, None, "nothing numbers its pods");
    }
}

#[test]
fn an_indexed_job_stays_in_one_cluster() {
    let job = |mode: Value| {
        let template = json!({ "spec": { "containers": [requests("1")] } });
        read(&json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "j" },
            "spec": { "parallelism": 3, "completions": 3, "completionMode": mode, "template": template },
        }))
    };
    assert!(job(json!("Indexed")).one_cluster.is_some_and(|why| why.contains("Indexed")));
    assert_eq!((job(json!("NonIndexed")).one_cluster, job(Value::Null).one_cluster), (None, None));
}

#[test]
fn a_job_over_a_clusterset_is_split_whole_where_its_ranks_can_be_said_and_says_why_not_elsewhere() {
    let with = |plugins: Value, command: Value| {
        let template = json!({ "spec": { "containers": [{ "command": command }] } });
        let task = json!({ "name": "worker", "replicas": 4, "minAvailable": 1, "template": template });
        let mut object = job(json!({ "plugins": plugins, "minAvailable": 1, "tasks": [task] }));
        object["metadata"]["annotations"] = json!({ "caldera.dev/rendezvous": "clusterset" });
        read(&object)
    };
    let gang = with(json!({ "pytorch": [], "svc": [] }), json!(["python"]));
    assert!(gang.rigid);
    assert_eq!((gang.one_cluster, gang.min_available, gang.tasks[0].min_available), (None, 4, 4));
    for plugin in ["ray", "tensorflow"] {
        assert_eq!(with(json!({ plugin: [] }), json!(["python"])).one_cluster, None);
    }
    let keys = json!({ "mpi": [], "ssh": ["--ssh-private-key=a", "--ssh-public-key=b"] });
    assert_eq!(with(keys, json!(["mpirun"])).one_cluster, None);
    let mut with_secret = job(json!({"plugins": {"ssh": []}, "tasks": [{"name": "worker", "replicas": 4}]}));
    with_secret["metadata"]["annotations"] =
        json!({"caldera.dev/rendezvous": "clusterset", "caldera.dev/ssh-secret": "keys"});
    assert_eq!(read(&with_secret).one_cluster, None);
    for (plugins, command, word) in [
        (json!({ "hcclrank": [] }), json!(["python"]), "plugin hcclrank"),
        (json!({ "svc": [] }), json!(["sh", "-c", "cat /etc/volcano/worker.host"]), "VC_<TASK>_HOSTS"),
        (json!({ "mpi": [], "ssh": [] }), json!(["mpirun"]), "--ssh-private-key"),
        (json!({ "pytorch": [] }), json!([]), "command"),
        (json!({ "env": [] }), json!(["train", "$(VC_TASK_INDEX)"]), "before a shell"),
    ] {
        let gang = with(plugins, command);
        assert!(!gang.rigid && gang.one_cluster.is_some_and(|why| why.contains(word)), "{word}");
        assert_eq!(gang.min_available, 1);
    }
}

#[test]
fn tasks_that_start_after_each_other_stay_in_one_cluster() {
    let depends = json!({ "name": ["a"] });
    let tasks = json!([{ "name": "a", "replicas": 1 }, { "name": "b", "replicas": 1, "dependsOn": depends }]);
    assert!(read(&job(json!({ "tasks": tasks }))).one_cluster.is_some_and(|why| why.contains("\"b\"")));
}

#[test]
fn a_list_of_hosts_that_is_too_long_keeps_a_job_whole_where_it_is_needed() {
    let with = |plugins: Value| {
        let template = json!({ "spec": { "containers": [{ "command": ["c"] }] } });
        let task = json!({ "name": "worker", "replicas": 2000, "template": template });
        let mut object = job(json!({ "plugins": plugins, "tasks": [task] }));
        object["metadata"]["annotations"] = json!({ "caldera.dev/rendezvous": "clusterset" });
        read(&object).one_cluster
    };
    assert!(with(json!({ "pytorch": [] })).is_some_and(|why| why.contains("2000")));
    assert_eq!(with(json!({ "pytorch": [], "svc": ["--inject-hosts-env=false"] })), None);
    assert!(with(json!({ "tensorflow": [], "svc": ["--inject-hosts-env=false"] })).is_some());
}

#[test]
fn containers_that_read_host_lists_keep_a_job_whole() {
    let command = json!(["sh", "-c", "mpiexec --host $(cat /etc/volcano/worker.host)"]);
    let task = json!({ "replicas": 1, "template": { "spec": { "containers": [{ "command": command }] } } });
    assert!(read(&job(json!({ "plugins": { "svc": [] }, "tasks": [task] }))).one_cluster.is_some());
    assert_eq!(read(&job(json!({ "tasks": [task] }))).one_cluster, None, "without the plugin there are no lists");
}
