//! `caldera cluster`: lists and describes members, cordons and uncordons them.
//!
//! Rule: a cordon is Karmada's taint `cluster.karmada.io/unschedulable:NoSchedule` (`karmadactl cordon`,
//! `pkg/karmadactl/cordon`), so that either may lift the other's. All other taints stay as they are.

use std::{collections::BTreeMap, fmt::Write as _, path::Path, process::ExitCode};

use anyhow::Context;
use caldera_crds::karmada::cluster::READY;
use caldera_runtime::{
    client::WriteCounts,
    write::{Body, Failure, Write, execute_write},
};
use kube::Client;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    args::{ClusterAction, ClusterNamesArgs},
    components,
    live::Gap,
    objects::{self, get_object, items, key_of, list_objects, name_of, text},
    output::{self, format_columns, format_table},
};

/// Karmada's own taint of a cordoned cluster.
const CORDON: &str = "cluster.karmada.io/unschedulable";
/// Times that a cluster may change while it is changed.
const TRIES: usize = 5;

pub async fn run_cluster(action: ClusterAction) -> anyhow::Result<ExitCode> {
    match action {
        ClusterAction::List { kubeconfig, output } => {
            let all = read_clusters(&connect(kubeconfig.as_deref()).await?).await?;
            let names: String = all.clusters.iter().map(|one| format!("{}\n", one.name)).collect();
            output::print_list(output, &all, "STATE", &names, |wide| {
                format_clusters(&all.clusters, wide) + &output::format_gaps(&all.missing)
            })?;
            Ok(ExitCode::SUCCESS)
        }
        ClusterAction::Describe { name, kubeconfig, output } => {
            let all = read_clusters(&connect(kubeconfig.as_deref()).await?).await?;
            let names: Vec<&str> = all.clusters.iter().map(|one| one.name.as_str()).collect();
            let one = all.clusters.iter().find(|one| one.name == name);
            let one = one.with_context(|| format!("there is no cluster {name}; there are {}", names.join(", ")))?;
            output::print_painted(output, one, "STATE", |_| {
                describe_cluster(one) + &output::format_gaps(&all.missing)
            })?;
            Ok(ExitCode::SUCCESS)
        }
        ClusterAction::Cordon(args) => cordon_clusters(args, true).await,
        ClusterAction::Uncordon(args) => cordon_clusters(args, false).await,
    }
}

async fn connect(kubeconfig: Option<&Path>) -> anyhow::Result<Client> {
    components::connect_client(kubeconfig, "cluster", &WriteCounts::default()).await
}

/// The JSON and YAML form.
#[derive(Debug, Serialize)]
struct Clusters {
    clusters: Vec<Member>,
    /// What could not be seen.
    missing: Vec<Gap>,
}

/// A member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Member {
    name: String,
    /// `Ready`, `NotReady` or `Cordoned`.
    state: &'static str,
    /// `Push` or `Pull`.
    mode: String,
    version: String,
    region: String,
    nodes: String,
    /// Allocated and allocatable, by resource, as Karmada last summed them up.
    amounts: BTreeMap<String, (String, String)>,
    /// `key=value:effect`.
    taints: Vec<String>,
    /// Type, status, and the words with it.
    conditions: Vec<(String, String, String)>,
    /// Bindings that name it; `None` if they can not be seen.
    jobs: Option<Vec<String>>,
}

async fn read_clusters(client: &Client) -> anyhow::Result<Clusters> {
    let (resource, bound) = (objects::clusters(), objects::bindings());
    let (clusters, bindings) =
        futures::try_join!(list_objects(client, &resource, None, None), list_objects(client, &bound, None, None))?;
    let mut jobs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for binding in bindings.iter().flatten().filter(|binding| objects::is_queued(binding)) {
        for target in items(binding, "/spec/clusters") {
            jobs.entry(text(target, "/name").to_owned()).or_default().push(key_of(binding));
        }
    }
    let gap = |what: &str, why: &String| Gap { what: what.to_owned(), why: why.clone() };
    let missing = bindings.as_ref().err().map(|why| gap("jobs of all namespaces", why)).into_iter().collect();
    let clusters = clusters.map_err(anyhow::Error::msg)?;
    let read = |cluster: &Value| Member {
        jobs: bindings.is_ok().then(|| jobs.get(name_of(cluster)).cloned().unwrap_or_default()),
        ..read_member(cluster)
    };
    Ok(Clusters { clusters: clusters.iter().map(read).collect(), missing })
}

fn read_member(cluster: &Value) -> Member {
    let of = |pointer: &str| text(cluster, pointer).to_owned();
    let conditions: Vec<(String, String, String)> = items(cluster, "/status/conditions")
        .iter()
        .map(|one| {
            let words = format!("{}: {}", text(one, "/reason"), text(one, "/message"));
            (text(one, "/type").to_owned(), text(one, "/status").to_owned(), words)
        })
        .collect();
    let is_ready = conditions.iter().any(|(kind, status, _)| kind == READY && status == "True");
    let count = |name: &str| cluster["status"]["nodeSummary"][name].as_i64().unwrap_or(0);
    let amount =
        |kind: &str, name: &str| cluster["status"]["resourceSummary"][kind][name].as_str().unwrap_or("0").to_owned();
    let there = cluster.pointer("/status/resourceSummary/allocatable").and_then(Value::as_object);
    let taints = items(cluster, "/spec/taints").iter().map(|taint| {
        let value = text(taint, "/value");
        let value = if value.is_empty() { String::new() } else { format!("={value}") };
        format!("{}{value}:{}", text(taint, "/key"), text(taint, "/effect"))
    });
    Member {
        name: name_of(cluster).to_owned(),
        state: match (is_ready, find_cordon(cluster)) {
            (false, _) => "NotReady",
            (true, Some(_)) => "Cordoned",
            (true, None) => "Ready",
        },
        mode: of("/spec/syncMode"),
        version: of("/status/kubernetesVersion"),
        region: of("/spec/region"),
        nodes: format!("{}/{}", count("readyNum"), count("totalNum")),
        amounts: there
            .into_iter()
            .flatten()
            .map(|(name, _)| (name.clone(), (amount("allocated", name), amount("allocatable", name))))
            .collect(),
        taints: taints.collect(),
        conditions,
        jobs: None,
    }
}

/// Where the cordon is among the taints.
fn find_cordon(cluster: &Value) -> Option<usize> {
    let is_cordon = |taint: &Value| text(taint, "/key") == CORDON && text(taint, "/effect") == "NoSchedule";
    items(cluster, "/spec/taints").iter().position(is_cordon)
}

fn format_clusters(clusters: &[Member], wide: bool) -> String {
    let mut header = vec!["CLUSTER", "STATE", "MODE", "VERSION", "NODES", "CPU", "MEMORY", "JOBS"];
    if wide {
        header.extend(["REGION", "OTHERS", "TAINTS"]);
    }
    let rows = clusters.iter().map(|one| {
        let amount = |name: &str| one.amounts.get(name).map(|(used, all)| format!("{used}/{all}")).unwrap_or_default();
        let mut cells = vec![
            one.name.clone(),
            one.state.to_owned(),
            one.mode.clone(),
            one.version.clone(),
            one.nodes.clone(),
            amount("cpu"),
            amount("memory"),
            one.jobs.as_ref().map(|jobs| jobs.len().to_string()).unwrap_or_default(),
        ];
        if wide {
            let others = one.amounts.keys().filter(|name| !["cpu", "memory", "pods"].contains(&name.as_str()));
            let others: Vec<String> = others.map(|name| format!("{name} {}", amount(name))).collect();
            cells.extend([one.region.clone(), others.join(", "), one.taints.join(", ")]);
        }
        cells
    });
    format_table(&header, rows)
}

fn describe_cluster(one: &Member) -> String {
    let mut text = format_clusters(std::slice::from_ref(one), true);
    let conditions = one.conditions.iter().map(|(kind, status, words)| [kind.clone(), status.clone(), words.clone()]);
    let _ = write!(text, "\n{}", format_columns(["CONDITION", "STATUS", "WHY"], conditions));
    let amounts = one.amounts.iter().map(|(name, (used, all))| [name.clone(), used.clone(), all.clone()]);
    let _ = write!(text, "\n{}", format_columns(["RESOURCE", "ALLOCATED", "ALLOCATABLE"], amounts));
    for taint in &one.taints {
        let _ = writeln!(text, "\nTaint {taint}");
    }
    if let Some(jobs) = one.jobs.as_ref().filter(|jobs| !jobs.is_empty()) {
        let _ = writeln!(text, "\nJobs:\n  {}", jobs.join("\n  "));
    }
    text
}

async fn cordon_clusters(args: ClusterNamesArgs, cordon: bool) -> anyhow::Result<ExitCode> {
    let client = connect(args.kubeconfig.as_deref()).await?;
    let mut failed = false;
    for name in &args.names {
        match cordon_cluster(&client, name, cordon).await {
            Ok(done) => output::write_stdout(&format!("cluster {name} {done}\n")),
            Err(error) => {
                failed = true;
                eprintln!("{}", output::escape_controls(&format!("caldera: cluster {name}: {error:#}")));
            }
        }
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn cordon_cluster(client: &Client, name: &str, cordon: bool) -> anyhow::Result<&'static str> {
    for _ in 0..TRIES {
        let found = get_object(client, &objects::clusters(), None, name).await?.map_err(anyhow::Error::msg)?;
        let cluster = found.context("there is no such cluster")?;
        let Some(patch) = build_cordon(&cluster, cordon) else {
            return Ok(if cordon { "is cordoned already" } else { "is not cordoned" });
        };
        let write = Write {
            resource: objects::clusters(),
            namespace: String::new(),
            name: name.to_owned(),
            subresource: None,
            body: Body::JsonPatch(patch),
        };
        match execute_write(client, &write).await {
            Ok(_) => return Ok(if cordon { "cordoned" } else { "uncordoned" }),
            Err(Failure::Conflict(_)) => {}
            Err(failure) => return Err(failure.into()),
        }
    }
    anyhow::bail!("it changes all the time; try again")
}

/// Adds or removes the one taint; nothing where it is so already.
fn build_cordon(cluster: &Value, cordon: bool) -> Option<Value> {
    let version =
        json!({"op": "test", "path": "/metadata/resourceVersion", "value": cluster["metadata"]["resourceVersion"]});
    let taint = json!({"key": CORDON, "effect": "NoSchedule"});
    let step = match (cordon, find_cordon(cluster)) {
        (true, Some(_)) | (false, None) => return None,
        (true, None) if cluster["spec"]["taints"].is_array() => {
            json!({"op": "add", "path": "/spec/taints/-", "value": taint})
        }
        (true, None) => json!({"op": "add", "path": "/spec/taints", "value": [taint]}),
        (false, Some(at)) => json!({"op": "remove", "path": format!("/spec/taints/{at}")}),
    };
    Some(json!([version, step]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(taints: Value) -> Value {
        json!({
            "metadata": {"name": "m1", "resourceVersion": "7"}, "spec": {"taints": taints},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}], "nodeSummary": {"readyNum": 1, "totalNum": 2},
                "resourceSummary": {"allocatable": {"cpu": "8"}, "allocated": {"cpu": "3"}},
            },
        })
    }

    #[test]
    fn a_cordon_is_karmadas_taint_and_touches_no_other() {
        let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"});
        let taint = json!({"key": CORDON, "effect": "NoSchedule"});
        let other = json!({"key": "mine", "effect": "NoSchedule"});
        let add = |path: &str, value: Value| Some(json!([test, {"op": "add", "path": path, "value": value}]));
        assert_eq!(build_cordon(&cluster(Value::Null), true), add("/spec/taints", json!([taint])));
        assert_eq!(build_cordon(&cluster(json!([other])), true), add("/spec/taints/-", taint.clone()));
        assert_eq!(build_cordon(&cluster(json!([taint])), true), None);
        let remove = json!([test, {"op": "remove", "path": "/spec/taints/1"}]);
        assert_eq!(build_cordon(&cluster(json!([other, taint])), false), Some(remove));
        assert_eq!(build_cordon(&cluster(json!([other])), false), None);
    }

    #[test]
    fn a_members_state_says_whether_it_takes_jobs() {
        let one = read_member(&cluster(json!([{"key": CORDON, "effect": "NoSchedule"}])));
        assert_eq!((one.state, one.nodes.as_str(), one.taints.len()), ("Cordoned", "1/2", 1));
        assert_eq!(one.amounts["cpu"], ("3".to_owned(), "8".to_owned()));
        assert_eq!(read_member(&cluster(Value::Null)).state, "Ready");
        assert_eq!(read_member(&json!({})).state, "NotReady");
    }
}
