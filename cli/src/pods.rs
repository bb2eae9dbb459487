//! The pods of a job in all clusters that it is in, and the way to each cluster: for its logs, and for commands in
//! them.
//!
//! Rule: Karmada's cluster proxy first (`clusters/NAME/proxy`), where the member sees the caller's own name and rights.
//! A host that serves no proxy, as the sandbox, is passed by: with the member's Secret, if the caller may read that. A
//! cluster that does not answer is told, and the others are used. Pods are found as their controllers label them.

use std::collections::BTreeMap;

use anyhow::Context;
use caldera_crds::{
    karmada::cluster::Cluster,
    names::volcano::{JOB_NAME, TASK_SPEC},
    workload::WorkloadKind,
};
use caldera_runtime::{client::WriteCounts, members, watch::api_resource};
use futures::future::join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{Api, Client, api::ListParams, core::Selector};
use serde_json::Value;

use crate::{
    args::{JobName, PodsArgs},
    objects::{self, get_job, get_object, list_clusters_of, list_objects, read_text_at},
    output,
    view::JobKey,
};

/// Number of a pod in its task, in its cluster.
const INDEXES: [&str; 3] =
    ["volcano.sh/task-index", "batch.kubernetes.io/job-completion-index", "apps.kubernetes.io/pod-index"];

/// A pod of a job. In the order of tasks, ranks and clusters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobPod {
    pub(crate) task: String,
    pub(crate) rank: Option<u32>,
    pub(crate) cluster: String,
    pub(crate) pod: String,
    /// The container that is asked for.
    pub(crate) container: String,
    pub(crate) phase: String,
}

/// What was found of a job.
pub(crate) struct JobPods {
    /// The chosen ones, in their order.
    pub(crate) pods: Vec<JobPod>,
    /// Clients of the clusters that answer.
    pub(crate) members: BTreeMap<String, Client>,
    /// A cluster did not answer, which was told.
    pub(crate) has_gaps: bool,
}

/// Finds the pods of a job that are asked for.
///
/// # Errors
/// If there is no such job, it is nowhere, or it has no such pods.
pub(crate) async fn find_job_pods(
    client: &Client,
    namespace: &str,
    args: &PodsArgs,
    component: &str,
) -> anyhow::Result<JobPods> {
    let (kind, name) = (args.job.kind, &args.job.name);
    let workload = get_job(client, namespace, kind, name).await?;
    let mut clusters = find_clusters(client, namespace, &args.job).await?;
    anyhow::ensure!(!clusters.is_empty(), "{name} has no clusters: it has not started; `caldera why {name}` says why");
    if let Some(cluster) = &args.cluster {
        anyhow::ensure!(
            clusters.contains(cluster),
            "{name} has no part in {cluster}: it is in {}",
            clusters.join(", ")
        );
        clusters.retain(|other| other == cluster);
    }

    let list = |cluster| connect_and_list_pods(client, cluster, namespace, &workload, kind, component);
    let seen = join_all(clusters.iter().map(|cluster| list(cluster))).await;
    let mut found = JobPods { pods: Vec::new(), members: BTreeMap::new(), has_gaps: false };
    for (cluster, seen) in clusters.iter().zip(seen) {
        match seen {
            Ok((member, pods)) => {
                found.members.insert(cluster.clone(), member);
                found.pods.extend(pods.iter().map(|pod| read_pod(cluster, pod, args.container.as_deref())));
            }
            Err(error) => {
                found.has_gaps = true;
                output::write_warning(&format!("cluster {cluster}: {error:#}"));
            }
        }
    }
    found.pods = choose_pods(found.pods, args);
    if found.pods.is_empty() && !found.has_gaps {
        anyhow::bail!("{name} has no such pods in {}", clusters.join(", "));
    }
    Ok(found)
}

async fn find_clusters(client: &Client, namespace: &str, job: &JobName) -> anyhow::Result<Vec<String>> {
    let bindings =
        list_objects(client, &objects::binding_resource(), Some(namespace), None).await?.map_err(anyhow::Error::msg)?;
    let is_of =
        |binding: &&Value| JobKey::of_binding(binding).is_some_and(|of| of.kind == job.kind && of.name == job.name);
    Ok(bindings.iter().find(is_of).map(list_clusters_of).unwrap_or_default())
}

/// A client of the member and the workload's pods there.
///
/// # Errors
/// If the member can not be reached, or refuses.
pub(crate) async fn connect_and_list_pods(
    host: &Client,
    cluster: &str,
    namespace: &str,
    workload: &Value,
    kind: WorkloadKind,
    component: &str,
) -> anyhow::Result<(Client, Vec<Value>)> {
    let labels = build_pod_selector(workload, kind)?;
    let proxied = members::proxy_client(host, cluster);
    let no_proxy = match list_pods(&proxied, namespace, &labels).await {
        Ok(pods) => return Ok((proxied, keep_workload_pods(pods, workload, kind))),
        Err(kube::Error::Api(status)) if status.code == 404 => status.message.clone(),
        Err(error) => return Err(error).context("Karmada's cluster proxy"),
    };
    let direct = async {
        let resource = objects::cluster_resource();
        let found = get_object(host, &resource, None, cluster).await?.map_err(anyhow::Error::msg)?;
        let object: Cluster = serde_json::from_value(found.context("there is no such cluster")?)?;
        let client = members::connect_or_use_given(host, &object, None, component, &WriteCounts::default()).await;
        let client = client.map_err(anyhow::Error::msg)?;
        let pods = list_pods(&client, namespace, &labels).await?;
        anyhow::Ok((client, keep_workload_pods(pods, workload, kind)))
    };
    direct.await.with_context(|| format!("the host serves no cluster proxy ({no_proxy}), and without it"))
}

async fn list_pods(client: &Client, namespace: &str, labels: &str) -> Result<Vec<Value>, kube::Error> {
    let pods: Api<kube::api::DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &api_resource("", "v1", "Pod", "pods"));
    let listed = pods.list(&ListParams::default().labels(labels)).await?;
    Ok(listed.items.into_iter().filter_map(|pod| serde_json::to_value(pod).ok()).collect())
}

/// Labels that the workload's controller gives its pods; none for a Pod itself.
fn build_pod_selector(workload: &Value, kind: WorkloadKind) -> anyhow::Result<String> {
    let name = objects::name_of(workload);
    Ok(match kind {
        WorkloadKind::VolcanoJob => format!("{JOB_NAME}={name}"),
        WorkloadKind::BatchJob => format!("batch.kubernetes.io/job-name={name}"),
        WorkloadKind::Pod => String::new(),
        _ if let Some(label) = kind.pod_label() => format!("{label}={name}"),
        _ => {
            let selector: LabelSelector =
                serde_json::from_value(workload["spec"]["selector"].clone()).context("its selector can not be read")?;
            let selector = Selector::try_from(selector).context("its selector can not be read")?.to_string();
            anyhow::ensure!(!selector.is_empty(), "it selects no pods of its own");
            selector
        }
    })
}

fn keep_workload_pods(mut pods: Vec<Value>, workload: &Value, kind: WorkloadKind) -> Vec<Value> {
    pods.retain(|pod| kind != WorkloadKind::Pod || objects::name_of(pod) == objects::name_of(workload));
    pods
}

fn read_pod(cluster: &str, pod: &Value, container: Option<&str>) -> JobPod {
    let label = |name: &str| pod["metadata"]["labels"][name].as_str();
    let default = || read_text_at(pod, "/spec/containers/0/name");
    JobPod {
        task: label(TASK_SPEC).unwrap_or_default().to_owned(),
        rank: INDEXES.iter().find_map(|name| label(name)?.parse().ok()),
        cluster: cluster.to_owned(),
        pod: objects::name_of(pod).to_owned(),
        container: container.unwrap_or_else(default).to_owned(),
        phase: read_text_at(pod, "/status/phase").to_owned(),
    }
}

fn choose_pods(mut pods: Vec<JobPod>, args: &PodsArgs) -> Vec<JobPod> {
    let is_or_any = |asked: &Option<String>, is: &str| asked.as_ref().is_none_or(|asked| asked == is);
    pods.retain(|pod| {
        is_or_any(&args.task, &pod.task)
            && is_or_any(&args.cluster, &pod.cluster)
            && args.rank.is_none_or(|rank| pod.rank == Some(rank))
    });
    pods.sort();
    pods
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, task: &str, index: &str) -> Value {
        json!({
            "metadata": {"name": name, "labels": {"volcano.sh/task-spec": task, "volcano.sh/task-index": index}},
            "spec": {"containers": [{"name": "main"}, {"name": "side"}]}, "status": {"phase": "Running"},
        })
    }

    #[test]
    fn pods_are_chosen_by_task_and_rank_in_every_cluster() {
        let sources: Vec<JobPod> =
            [("m2", "w-1", "w", "1"), ("m1", "w-1", "w", "1"), ("m1", "w-10", "w", "10"), ("m1", "ps-0", "ps", "0")]
                .map(|(cluster, name, task, index)| read_pod(cluster, &pod(name, task, index), None))
                .into();
        let chosen = |task: Option<&str>, rank, cluster: Option<&str>| -> Vec<String> {
            let job = JobName { kind: WorkloadKind::VolcanoJob, name: "j".to_owned() };
            let (task, cluster) = (task.map(str::to_owned), cluster.map(str::to_owned));
            let chosen = choose_pods(sources.clone(), &PodsArgs { job, task, rank, cluster, container: None });
            chosen.iter().map(|source| format!("{}/{}", source.cluster, source.pod)).collect()
        };
        assert_eq!(chosen(None, None, None), ["m1/ps-0", "m1/w-1", "m2/w-1", "m1/w-10"]);
        assert_eq!(chosen(Some("w"), Some(1), None), ["m1/w-1", "m2/w-1"]);
        assert_eq!(chosen(Some("w"), Some(1), Some("m2")), ["m2/w-1"]);
        assert_eq!(chosen(Some("nobody"), None, None), [""; 0]);
        assert_eq!(read_pod("m1", &pod("p", "w", "0"), None).container, "main");
        assert_eq!(read_pod("m1", &pod("p", "w", "0"), Some("side")).container, "side");
    }

    #[test]
    fn pods_are_found_as_their_controllers_label_them() {
        let service = |selector: Value| json!({"metadata": {"name": "web"}, "spec": {"selector": selector}});
        let of = |selector: Value| {
            build_pod_selector(&service(selector), WorkloadKind::Deployment).map_err(|why| why.to_string())
        };
        assert_eq!(of(json!({"matchLabels": {"app": "web", "tier": "a"}})).as_deref(), Ok("app=web,tier=a"));
        let service = service(json!({}));
        assert_eq!(build_pod_selector(&service, WorkloadKind::VolcanoJob).unwrap(), "volcano.sh/job-name=web");
        assert_eq!(build_pod_selector(&service, WorkloadKind::BatchJob).unwrap(), "batch.kubernetes.io/job-name=web");
        let pods = vec![pod("web", "", ""), pod("other", "", "")];
        assert_eq!(keep_workload_pods(pods, &service, WorkloadKind::Pod).len(), 1);
    }

    /// Found by a reader: a selector made of expressions alone showed all pods of the namespace.
    #[test]
    fn expressions_of_a_selector_count_and_none_at_all_selects_nothing() {
        let of = |selector: Value| {
            let service = json!({"metadata": {"name": "web"}, "spec": {"selector": selector}});
            build_pod_selector(&service, WorkloadKind::Deployment).map_err(|why| why.to_string())
        };
        let expressions = json!({"matchLabels": {"app": "web"}, "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["a", "b"]},
            {"key": "track", "operator": "NotIn", "values": ["old"]},
            {"key": "live", "operator": "Exists"}, {"key": "gone", "operator": "DoesNotExist"},
        ]});
        assert_eq!(of(expressions).as_deref(), Ok("app=web,tier in (a,b),track notin (old),live,!gone"));
        let alone = json!({"matchExpressions": [{"key": "tier", "operator": "Exists"}]});
        assert_eq!(of(alone).as_deref(), Ok("tier"));
        for none in [json!({}), Value::Null, json!({"matchExpressions": [{"key": "tier", "operator": "Odd"}]})] {
            assert!(of(none.clone()).is_err(), "{none}");
        }
    }
}
