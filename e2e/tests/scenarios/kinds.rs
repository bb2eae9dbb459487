//! Jobs of other projects: each kind waits, is placed whole, runs, and gives its quota back.
//!
//! No controller of these projects is there: the scenario installs the kinds and writes what their controllers would
//! write into the members' statuses.

use anyhow::{Context, ensure};
use caldera_crds::workload::{WorkloadKind, mark_pods};
use caldera_e2e::{Scenario, kinds::Kind, manifest::aggregated, run};
use kube::api::ApiResource;
use serde_json::{Value, json};

/// What Karmada is told of kinds for which it has no interpreter.
const INTERPRETERS: [&str; 3] = [
    include_str!("../../../manifests/interpreters/jobset-and-leaderworkerset.yaml"),
    include_str!("../../../manifests/interpreters/mpijob-v1.yaml"),
    include_str!("../../../manifests/interpreters/trainjob.yaml"),
];

struct Example {
    kind: WorkloadKind,
    spec: Value,
    /// What all its pods ask for.
    cpu: &'static str,
    running: Value,
    /// How it ends; nothing for one that does not.
    ended: Option<Value>,
}

pub(super) fn pods(cpu: &str) -> Value {
    json!({"spec": {"containers": [{
        "name": "main", "image": "busybox:1.36", "resources": {"requests": {"cpu": cpu, "memory": "16Mi"}},
    }]}})
}

fn conditions(names: &[&str]) -> Value {
    let stamp = "2026-01-01T00:00:00Z";
    let condition = |name: &&str| {
        json!({"type": name, "status": "True", "reason": name, "message": "", "lastTransitionTime": stamp,
            "lastUpdateTime": stamp})
    };
    names.iter().map(condition).collect()
}

fn kubeflow(kind: WorkloadKind, field: &str, first: &str) -> Example {
    let replicas = |replicas: u32| json!({"replicas": replicas, "restartPolicy": "Never", "template": pods("100m")});
    let specs = json!({first: replicas(1), "Worker": replicas(2)});
    let statuses = |field: &str| json!({first: {field: 1}, "Worker": {field: 2}});
    Example {
        kind,
        spec: json!({"runPolicy": {"cleanPodPolicy": "Running"}, field: specs}),
        cpu: "0.3",
        running: json!({"conditions": conditions(&["Created", "Running"]), "replicaStatuses": statuses("active")}),
        ended: Some(json!({
            "conditions": conditions(&["Created", "Succeeded"]), "replicaStatuses": statuses("succeeded"),
        })),
    }
}

fn spark_application() -> Example {
    let status = |state: &str| {
        json!({"applicationState": {"state": state}, "driverInfo": {"podName": "driver"},
            "executorState": {"pi-exec-1": state, "pi-exec-2": state}, "executionAttempts": 1})
    };
    Example {
        kind: WorkloadKind::SparkApplication,
        spec: json!({
            "type": "Scala", "mode": "cluster", "sparkVersion": "4.0.0", "image": "spark:4.0.0",
            "mainClass": "org.apache.spark.examples.SparkPi", "mainApplicationFile": "local:///x.jar",
            "driver": {"coreRequest": "100m", "memory": "64m", "memoryOverhead": "16m", "serviceAccount": "spark"},
            "executor": {"coreRequest": "100m", "instances": 2, "memory": "64m", "memoryOverhead": "16m"},
        }),
        cpu: "0.3",
        running: status("RUNNING"),
        ended: Some(status("COMPLETED")),
    }
}

fn list_examples() -> Vec<Example> {
    let ray = json!({
        "headGroupSpec": {"rayStartParams": {}, "template": pods("100m")},
        "workerGroupSpecs": [{"groupName": "w", "replicas": 2, "rayStartParams": {}, "template": pods("100m")}],
    });
    vec![
        kubeflow(WorkloadKind::PyTorchJob, "pytorchReplicaSpecs", "Master"),
        kubeflow(WorkloadKind::TfJob, "tfReplicaSpecs", "Chief"),
        kubeflow(WorkloadKind::MpiJob, "mpiReplicaSpecs", "Launcher"),
        Example {
            kind: WorkloadKind::RayJob,
            spec: json!({
                "entrypoint": "python x.py", "submissionMode": "HTTPMode", "shutdownAfterJobFinishes": true,
                "rayClusterSpec": ray,
            }),
            cpu: "0.3",
            running: json!({"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}),
            ended: Some(json!({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"})),
        },
        Example {
            kind: WorkloadKind::RayCluster,
            spec: ray,
            cpu: "0.3",
            running: json!({
                "state": "ready", "availableWorkerReplicas": 2, "conditions": conditions(&["HeadPodReady"]),
            }),
            ended: None,
        },
        Example {
            kind: WorkloadKind::JobSet,
            spec: json!({"replicatedJobs": [
                {"name": "leader", "replicas": 1, "template": {"spec": {"template": pods("100m")}}},
                {"name": "worker", "template": {"spec": {
                    "parallelism": 2, "completions": 2, "template": pods("100m"),
                }}},
            ]}),
            cpu: "0.3",
            running: json!({"replicatedJobsStatus": [
                {"name": "leader", "ready": 1, "active": 1, "succeeded": 0, "failed": 0, "suspended": 0},
                {"name": "worker", "ready": 1, "active": 1, "succeeded": 0, "failed": 0, "suspended": 0},
            ]}),
            ended: Some(json!({"conditions": conditions(&["Completed"]), "terminalState": "Completed"})),
        },
        Example {
            kind: WorkloadKind::TrainJob,
            spec: json!({
                "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime",
                    "name": "torch-distributed"},
                "trainer": {"numNodes": 3, "image": "busybox:1.36", "command": ["torchrun", "x.py"],
                    "resourcesPerNode": {"requests": {"cpu": "100m", "memory": "16Mi"}}},
            }),
            cpu: "0.3",
            running: json!({"jobsStatus": [
                {"name": "node", "ready": 1, "active": 1, "succeeded": 0, "failed": 0, "suspended": 0},
            ]}),
            ended: Some(json!({"conditions": conditions(&["Complete"])})),
        },
        Example {
            kind: WorkloadKind::LeaderWorkerSet,
            spec: json!({"replicas": 1, "leaderWorkerTemplate": {"size": 3, "workerTemplate": pods("100m")}}),
            cpu: "0.3",
            running: json!({"replicas": 1, "readyReplicas": 1, "conditions": conditions(&["Available"])}),
            ended: None,
        },
        spark_application(),
    ]
}

fn define(resource: &ApiResource) -> Value {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let singular = resource.kind.to_lowercase();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        // Groups below k8s.io say where they were approved, as that of Spark's operator does.
        "metadata": {"name": format!("{}.{}", resource.plural, resource.group), "annotations": {
            "api-approved.kubernetes.io": "https://github.com/kubeflow/spark-operator/pull/1298",
        }},
        "spec": {
            "group": resource.group, "scope": "Namespaced",
            "names": {"plural": resource.plural, "singular": singular, "kind": resource.kind,
                "listKind": format!("{}List", resource.kind)},
            "versions": [{
                "name": resource.version, "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": any},
            }],
        },
    })
}

/// What a stock Karmada has for the kind, as far as one copy goes.
fn interpret(kind: WorkloadKind) -> Value {
    let script = "function AggregateStatus(desiredObj, statusItems)
                    if #statusItems == 1 then desiredObj.status = statusItems[1].status end
                    return desiredObj
                  end";
    json!({
        "apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterCustomization",
        "metadata": {"name": format!("caldera-e2e-{}", kind.kind().to_lowercase())},
        "spec": {
            "target": {"apiVersion": kind.api_version(), "kind": kind.kind()},
            "customizations": {"statusAggregation": {"luaScript": script}},
        },
    })
}

async fn install(s: &Scenario) -> anyhow::Result<()> {
    let told = INTERPRETERS.into_iter().map(caldera_cli::manifests::parse_documents);
    let told = told.collect::<Result<Vec<_>, _>>()?.concat();
    let is_told = |kind: WorkloadKind| {
        told.iter()
            .map(|one| &one["spec"]["target"])
            .any(|target| target["kind"] == kind.kind() && target["apiVersion"] == kind.api_version())
    };
    let kinds: Vec<WorkloadKind> = list_examples().into_iter().map(|example| example.kind).collect();
    let untold: Vec<Value> = kinds.iter().filter(|kind| !is_told(**kind)).map(|kind| interpret(*kind)).collect();
    for object in told.iter().chain(&untold) {
        s.create_shared(Kind::Customization, object.clone()).await?;
    }
    for kind in kinds {
        define_everywhere(s, &kind.api_resource()).await?;
    }
    Ok(())
}

pub(super) async fn define_everywhere(s: &Scenario, kind: &ApiResource) -> anyhow::Result<()> {
    let definition = define(kind);
    let name = definition["metadata"]["name"].as_str().context("no name")?;
    // A run that was killed may have left another operator's of the same name.
    let version = |of: &Value| of["spec"]["versions"][0]["name"].clone();
    if s.get(Kind::Definition, name).await?.is_some_and(|left| version(&left) != version(&definition)) {
        remove_everywhere(s, kind).await?;
    }
    s.create_shared_in_members(Kind::Definition, &definition).await?;
    s.create_shared(Kind::Definition, definition.clone()).await?;
    s.until(Kind::Definition, name, "is established", |definition| {
        definition["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
    })
    .await?;
    Ok(())
}

/// Takes a kind away from the host and all members.
pub(super) async fn remove_everywhere(s: &Scenario, kind: &ApiResource) -> anyhow::Result<()> {
    let definition = define(kind);
    let name = definition["metadata"]["name"].as_str().context("no name")?;
    s.delete(Kind::Definition, name).await?;
    s.until_gone(Kind::Definition, name).await?;
    for member in s.members() {
        s.delete_in_member(member, Kind::Definition, name).await?;
        s.until_gone_in_member(member, Kind::Definition, name).await?;
    }
    Ok(())
}

fn object(example: &Example, name: &str, queue: &str) -> Value {
    let labels = json!({"volcano.sh/queue-name": queue});
    json!({
        "apiVersion": example.kind.api_version(), "kind": example.kind.kind(),
        "metadata": {"name": name, "labels": labels}, "spec": example.spec,
    })
}

/// Taken off its cluster, it holds nothing; let go, it is placed again.
pub(super) async fn evict(
    s: &Scenario,
    kind: Kind,
    name: &str,
    (binding, cluster): (&str, &str),
) -> anyhow::Result<String> {
    let suspend = |value: Value| json!({"metadata": {"annotations": {"caldera.dev/suspended": value}}});
    s.patch(kind, name, &suspend("true".into())).await?;
    s.until_gone_in_member(cluster, kind, name).await?;
    s.patch(kind, name, &suspend(Value::Null)).await?;
    let placed = s.until_placed(binding).await?;
    let (cluster, _) = placed.into_iter().next().context("no cluster")?;
    s.until_in_member(&cluster, kind, name, "is there again", |_| true).await?;
    Ok(cluster)
}

/// Waits for quota, is placed whole, runs, is evicted, runs again, ends, and lets the next one in.
async fn play(s: &Scenario, example: &Example) -> anyhow::Result<()> {
    let (kind, suffix) = (Kind::Queued(example.kind), example.kind.kind().to_lowercase());
    let title = example.kind.aliases()[0].replace('.', "-");
    let queue = s.queue(&title, json!({"cpu": "500m"})).await?;
    let (first, second) = (format!("{title}-a"), format!("{title}-b"));
    let submitted = s.submit(kind, object(example, &first, &queue), &aggregated()).await?;
    let placed = s.until_placed(&format!("{first}-{suffix}")).await?;
    ensure!(placed.len() == 1, "{placed:?}");
    let mut cluster = placed[0].0.clone();
    let copy = s.until_in_member(&cluster, kind, &first, "is there", |_| true).await?;
    let mut written = object(example, &first, &queue);
    mark_pods(&mut written);
    ensure!(copy["spec"] == written["spec"], "the copy is not as it was written: {}", copy["spec"]);
    s.until(Kind::Queue, &queue, "is charged", |queue| queue["status"]["allocated"]["cpu"] == example.cpu).await?;
    s.write_status_in_member(&cluster, kind, &first, &example.running).await?;
    s.until_podgroup(&submitted, "runs", |group| group["status"]["phase"] == "Running").await?;
    cluster = evict(s, kind, &first, (&format!("{first}-{suffix}"), &cluster)).await?;
    s.write_status_in_member(&cluster, kind, &first, &example.running).await?;
    s.until_podgroup(&submitted, "runs again", |group| group["status"]["phase"] == "Running").await?;
    let waits = s.submit(kind, object(example, &second, &queue), &aggregated()).await?;
    s.until_podgroup(&waits, "waits for quota", |group| group["status"]["conditions"].to_string().contains("cpu"))
        .await?;
    match &example.ended {
        Some(ended) => s.write_status_in_member(&cluster, kind, &first, ended).await?,
        None => s.delete(kind, &first).await?,
    }
    s.until_placed(&format!("{second}-{suffix}")).await?;
    s.delete(kind, &second).await?;
    if let Some((path, text)) = example.kind.suspend_field() {
        let mut suspended = object(example, &format!("{title}-c"), &queue);
        let (last, owner) = path.split_last().context("no field")?;
        owner.iter().fold(&mut suspended, |value, field| &mut value[*field])[*last] = true.into();
        let suspended = s.submit(kind, suspended, &aggregated()).await?;
        s.until_podgroup(&suspended, "says by what it is suspended", |group| {
            group["status"]["conditions"].to_string().contains(text)
        })
        .await?;
    }
    Ok(())
}

#[test]
fn jobs_of_other_projects_are_queued_placed_whole_and_give_back_what_they_held() {
    run("kinds", async |s| {
        install(&s).await?;
        for example in list_examples() {
            play(&s, &example).await.with_context(|| example.kind.kind())?;
        }
        // A host has the MPIJob of one operator: the definitions share a name.
        remove_everywhere(&s, &WorkloadKind::MpiJob.api_resource()).await?;
        define_everywhere(&s, &WorkloadKind::MpiJobV1.api_resource()).await?;
        let example = kubeflow(WorkloadKind::MpiJobV1, "mpiReplicaSpecs", "Launcher");
        play(&s, &example).await.context("MPIJob v1")?;
        remove_everywhere(&s, &WorkloadKind::MpiJobV1.api_resource()).await
    });
}
