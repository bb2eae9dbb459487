//! `caldera job logs`: what the pods of a job say, in all clusters that it is in.
//!
//! Rule: Karmada's cluster proxy first (`clusters/NAME/proxy`), where the member sees the caller's own name and rights.
//! A host that serves no proxy, as the sandbox, is passed by: with the member's Secret, if the caller may read that. A
//! cluster that does not answer is told, and the others are shown. Pods are found as their controllers label them.

use std::{collections::BTreeMap, process::ExitCode};

use anyhow::Context;
use caldera_crds::{
    karmada::cluster::Cluster,
    names::volcano::{JOB_NAME, TASK_SPEC},
    workload::WorkloadKind,
};
use caldera_runtime::{client::WriteCounts, members, watch::api_resource};
use futures::{
    AsyncBufReadExt as _, StreamExt as _, TryStreamExt as _,
    future::join_all,
    stream::{self, BoxStream},
};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::LabelSelector};
use kube::{
    Api, Client,
    api::{ListParams, LogParams},
    core::Selector,
};
use serde_json::Value;

use super::clusters_of;
use crate::{
    args::{JobLogsArgs, JobName},
    change::to_exit_code,
    components,
    objects::{self, get_object, list_objects, read_text_at},
    output,
    view::JobKey,
};

/// Streams that are read at once.
const AT_ONCE: usize = 64;
/// Number of a pod in its task, in its cluster.
const INDEXES: [&str; 3] =
    ["volcano.sh/task-index", "batch.kubernetes.io/job-completion-index", "apps.kubernetes.io/pod-index"];

/// A pod whose log is wanted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Source {
    task: String,
    rank: Option<u32>,
    cluster: String,
    pod: String,
    /// The container that is asked for.
    container: String,
    phase: String,
}

pub(super) async fn show_logs(args: JobLogsArgs) -> anyhow::Result<ExitCode> {
    let (client, namespace) = components::connect_scope(&args.scope, "logs").await?;
    let workload = get_object(&client, &args.job.kind.api_resource(), Some(&namespace), &args.job.name).await?;
    let workload = workload.map_err(anyhow::Error::msg)?;
    let (kind, name) = (args.job.kind, &args.job.name);
    let workload = workload.with_context(|| format!("there is no {} {name} in namespace {namespace}", kind.title()))?;
    let clusters = find_clusters(&client, &namespace, &args.job).await?;
    anyhow::ensure!(!clusters.is_empty(), "{name} has no clusters: it has not started; `caldera why {name}` says why");

    let seen =
        join_all(clusters.iter().map(|cluster| connect_and_list_pods(&client, cluster, &namespace, &workload, kind)))
            .await;
    let (mut members, mut sources, mut failed) = (BTreeMap::new(), Vec::new(), false);
    for (cluster, seen) in clusters.iter().zip(seen) {
        match seen {
            Ok((member, pods)) => {
                members.insert(cluster.clone(), member);
                sources.extend(pods.iter().map(|pod| read_source(cluster, pod, args.container.as_deref())));
            }
            Err(error) => {
                failed = true;
                output::write_warning(&format!("cluster {cluster}: {error:#}"));
            }
        }
    }
    let sources = choose_sources(sources, args.task.as_deref(), args.rank);
    if sources.is_empty() && !failed {
        anyhow::bail!("{name} has no such pods in {}", clusters.join(", "));
    }
    failed |= !print_logs(&members, &namespace, &sources, &args).await;
    Ok(to_exit_code(!failed))
}

async fn find_clusters(client: &Client, namespace: &str, job: &JobName) -> anyhow::Result<Vec<String>> {
    let bindings =
        list_objects(client, &objects::binding_resource(), Some(namespace), None).await?.map_err(anyhow::Error::msg)?;
    let is_of =
        |binding: &&Value| JobKey::of_binding(binding).is_some_and(|of| of.kind == job.kind && of.name == job.name);
    Ok(bindings.iter().find(is_of).map(clusters_of).unwrap_or_default())
}

/// A client of the member and the workload's pods there.
async fn connect_and_list_pods(
    host: &Client,
    cluster: &str,
    namespace: &str,
    workload: &Value,
    kind: WorkloadKind,
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
        let client = members::connect_or_use_given(host, &object, None, "logs", &WriteCounts::default()).await;
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

fn read_source(cluster: &str, pod: &Value, container: Option<&str>) -> Source {
    let label = |name: &str| pod["metadata"]["labels"][name].as_str();
    let default = || read_text_at(pod, "/spec/containers/0/name");
    Source {
        task: label(TASK_SPEC).unwrap_or_default().to_owned(),
        rank: INDEXES.iter().find_map(|name| label(name)?.parse().ok()),
        cluster: cluster.to_owned(),
        pod: objects::name_of(pod).to_owned(),
        container: container.unwrap_or_else(default).to_owned(),
        phase: read_text_at(pod, "/status/phase").to_owned(),
    }
}

/// In the order of tasks, ranks and clusters.
fn choose_sources(mut sources: Vec<Source>, task: Option<&str>, rank: Option<u32>) -> Vec<Source> {
    sources.retain(|source| {
        task.is_none_or(|task| source.task == task) && rank.is_none_or(|rank| source.rank == Some(rank))
    });
    sources.sort();
    sources
}

/// A line, or why there are no more.
type Line<'a> = (&'a Source, Result<String, String>);

/// False if one could not be read.
async fn print_logs(
    members: &BTreeMap<String, Client>,
    namespace: &str,
    sources: &[Source],
    args: &JobLogsArgs,
) -> bool {
    let open = |source| open_log(members, namespace, source, args);
    let mut lines: BoxStream<'_, Line<'_>> = if args.follow {
        stream::iter(sources.iter().map(open)).flatten_unordered(None).boxed()
    } else {
        stream::iter(sources.iter().map(|source| open(source).collect::<Vec<_>>()))
            .buffered(AT_ONCE.min(8))
            .flat_map(stream::iter)
            .boxed()
    };
    let mut whole = true;
    while let Some((source, line)) = lines.next().await {
        match line {
            Ok(line) => {
                let line = format!("[{}/{}] {}\n", source.cluster, source.pod, line.trim_end_matches('\r'));
                if !output::try_write(&output::escape_controls(&line)) {
                    return whole;
                }
            }
            Err(why) => {
                whole = false;
                let why = format!("caldera: {}/{}: {why}", source.cluster, source.pod);
                eprintln!("{}", output::escape_controls(&why));
            }
        }
    }
    whole
}

fn open_log<'a>(
    members: &BTreeMap<String, Client>,
    namespace: &str,
    source: &'a Source,
    args: &JobLogsArgs,
) -> BoxStream<'a, Line<'a>> {
    let fail = |why: String| stream::once(async move { (source, Err(why)) }).boxed();
    if source.phase == "Pending" {
        return fail("it has not started, and has no log".to_owned());
    }
    let Some(member) = members.get(&source.cluster) else { return fail("its cluster does not answer".to_owned()) };
    let pods: Api<Pod> = Api::namespaced(member.clone(), namespace);
    let params = LogParams {
        container: (!source.container.is_empty()).then(|| source.container.clone()),
        follow: args.follow,
        tail_lines: args.tail,
        since_seconds: args.since,
        ..LogParams::default()
    };
    let opened = async move {
        match pods.log_stream(&source.pod, &params).await {
            Ok(reader) => {
                let lines = reader.lines().map_err(|error| format!("its log broke off: {error}"));
                lines.map(move |line| (source, line)).boxed()
            }
            Err(kube::Error::Api(status)) => stream::once(async move { (source, Err(status.message.clone())) }).boxed(),
            Err(error) => stream::once(async move { (source, Err(error.to_string())) }).boxed(),
        }
    };
    stream::once(opened).flatten().boxed()
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
        let sources: Vec<Source> =
            [("m2", "w-1", "w", "1"), ("m1", "w-1", "w", "1"), ("m1", "w-10", "w", "10"), ("m1", "ps-0", "ps", "0")]
                .map(|(cluster, name, task, index)| read_source(cluster, &pod(name, task, index), None))
                .into();
        let chosen = |task, rank| -> Vec<String> {
            let chosen = choose_sources(sources.clone(), task, rank);
            chosen.iter().map(|source| format!("{}/{}", source.cluster, source.pod)).collect()
        };
        assert_eq!(chosen(None, None), ["m1/ps-0", "m1/w-1", "m2/w-1", "m1/w-10"]);
        assert_eq!(chosen(Some("w"), Some(1)), ["m1/w-1", "m2/w-1"]);
        assert_eq!(chosen(Some("nobody"), None), [""; 0]);
        assert_eq!(read_source("m1", &pod("p", "w", "0"), None).container, "main");
        assert_eq!(read_source("m1", &pod("p", "w", "0"), Some("side")).container, "side");
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
