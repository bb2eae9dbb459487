//! `caldera cluster`: lists and describes members, cordons, drains and uncordons them, and plans maintenance.
//!
//! Rule: a cordon is Karmada's taint `cluster.karmada.io/unschedulable:NoSchedule` (`karmadactl cordon`,
//! `pkg/karmadactl/cordon`), so that either may lift the other's. All other taints stay as they are.

mod devices;
mod drain;
mod load;
mod maintenance;

use std::{collections::BTreeMap, fmt::Write as _, path::Path, process::ExitCode};

use anyhow::Context;
use caldera_core::{quantity::Quantity, resources::ResourceName};
use jiff::Timestamp;
use kube::Client;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    args::{ClusterAction, ClusterListArgs, ClusterNamesArgs},
    change::{build_tested_patch, build_write, print_outcome, to_exit_code, write_retrying_conflicts},
    components,
    json_path::sort_rows,
    live::Gap,
    objects::{self, get_cluster, list_objects, name_of, read_list_at, read_text_at},
    output::{self, ListOutput, format_columns, format_table},
    repeat::{self, PrintedPage},
    view::{CORDON, Member, PlacedJob, find_cordon, read_member, read_placed},
};

pub async fn run_cluster(action: ClusterAction) -> anyhow::Result<ExitCode> {
    match action {
        ClusterAction::List(args) => {
            let client = connect(args.kubeconfig.as_deref()).await?;
            repeat::print_page(args.watch, async || {
                let all = read_page(&client, &args).await?;
                let names: String = all.clusters.iter().map(|one| format!("{}\n", one.name)).collect();
                let text = output::format_list(&args.output, &all, "STATE", &names, |wide| {
                    format_clusters(&all.clusters, wide) + &output::format_gaps(&all.missing, wide)
                })?;
                PrintedPage::new(text, &all)
            })
            .await
        }
        ClusterAction::Describe { name, kubeconfig, output } => {
            let client = connect(kubeconfig.as_deref()).await?;
            let mut all = read_clusters(&client, None).await?;
            let names: Vec<String> = all.clusters.iter().map(|one| one.name.clone()).collect();
            let one = all.clusters.iter_mut().find(|one| one.name == name);
            let one = one.with_context(|| format!("there is no cluster {name}; there are {}", names.join(", ")))?;
            load::add_real_use(&client, std::slice::from_mut(one)).await?;
            one.devices = devices::read_devices(&client, &name, Timestamp::now()).await?;
            output::print_painted(output, one, "STATE", |_| {
                describe_cluster(one) + &output::format_gaps(&all.missing, true)
            })?;
            Ok(ExitCode::SUCCESS)
        }
        ClusterAction::Cordon(args) => cordon_clusters(args, true).await,
        ClusterAction::Drain(args) => drain::drain_clusters(args).await,
        ClusterAction::Uncordon(args) => cordon_clusters(args, false).await,
        ClusterAction::Maintenance(args) => maintenance::change_windows(args).await,
    }
}

async fn connect(kubeconfig: Option<&Path>) -> anyhow::Result<Client> {
    components::connect_for_command(kubeconfig, "cluster").await
}

/// The JSON and YAML form.
#[derive(Debug, Serialize)]
struct Clusters {
    clusters: Vec<Member>,
    /// What could not be seen.
    missing: Vec<Gap>,
}

/// What a list shows, in its order.
async fn read_page(client: &Client, args: &ClusterListArgs) -> anyhow::Result<Clusters> {
    let mut all = read_clusters(client, args.selector.as_deref()).await?;
    let shows_real_use = !matches!(args.output, ListOutput::Table | ListOutput::Name);
    if shows_real_use || args.sort_by.is_some() {
        load::add_real_use(client, &mut all.clusters).await?;
    }
    args.sort_by.iter().try_for_each(|by| sort_rows(&mut all.clusters, by))?;
    if !shows_real_use {
        // Who watches is not told each change of what he does not see.
        all.clusters.iter_mut().for_each(|one| (one.real_use, one.links) = (None, None));
    }
    Ok(all)
}

async fn read_clusters(client: &Client, labels: Option<&str>) -> anyhow::Result<Clusters> {
    let (resource, bound) = (objects::cluster_resource(), objects::binding_resource());
    let (clusters, bindings) =
        futures::try_join!(list_objects(client, &resource, None, labels), list_objects(client, &bound, None, None))?;
    let mut jobs: BTreeMap<String, Vec<PlacedJob>> = BTreeMap::new();
    for binding in bindings.iter().flatten().filter(|binding| objects::is_managed_by_caldera(binding)) {
        for target in read_list_at(binding, "/spec/clusters") {
            jobs.entry(read_text_at(target, "/name").to_owned()).or_default().extend(read_placed(binding, target));
        }
    }
    let gap = |what: &str, why: &String| Gap { what: what.to_owned(), why: why.clone() };
    let missing = bindings.as_ref().err().map(|why| gap("jobs of all namespaces", why)).into_iter().collect();
    let clusters = clusters.map_err(anyhow::Error::msg)?;
    let now = Timestamp::now();
    let read = |cluster: &Value| Member {
        maintenance: maintenance::list_windows(cluster, now),
        jobs: bindings.is_ok().then(|| jobs.get(name_of(cluster)).cloned().unwrap_or_default()),
        ..read_member(cluster)
    };
    Ok(Clusters { clusters: clusters.iter().map(read).collect(), missing })
}

fn format_clusters(clusters: &[Member], wide: bool) -> String {
    let mut header = vec!["CLUSTER", "STATE", "MODE", "VERSION", "NODES", "CPU", "MEMORY", "JOBS"];
    if wide {
        header.extend(["REGION", "OTHERS", "TAINTS"]);
    }
    let has_windows = clusters.iter().any(|one| !one.maintenance.is_empty());
    header.extend(has_windows.then_some("MAINTENANCE"));
    let has_use = clusters.iter().any(|one| one.real_use.is_some());
    if has_use {
        header.extend(["REAL CPU", "REAL MEMORY"]);
    }
    let rows = clusters.iter().map(|one| {
        let pair =
            |(used, all): &(String, String)| format!("{}/{}", format_plain_amount(used), format_plain_amount(all));
        let amount = |name: &str| one.amounts.get(name).map(pair).unwrap_or_default();
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
        cells.extend(has_windows.then(|| one.maintenance.join(", ")));
        if has_use {
            cells.extend(["cpu", "memory"].map(|resource| format_real_use(one, resource)));
        }
        cells
    });
    format_table(&header, rows)
}

/// What nodes really use of a resource, and the percent of what they have; nothing where nobody says so.
fn format_real_use(one: &Member, resource: &str) -> String {
    let Some(real) = &one.real_use else { return String::new() };
    let (Some((used, _)), Some(share)) = (real.amounts.get(resource), real.share_of(resource)) else {
        return String::new();
    };
    format!("{} ({share}%)", format_plain_amount(used))
}

/// As people write it. What is no amount is shown as it is.
fn format_plain_amount(text: &str) -> String {
    text.parse::<Quantity>().map_or_else(|_| text.to_owned(), |amount| amount.plain().to_string())
}

fn describe_cluster(one: &Member) -> String {
    let mut text = format_clusters(std::slice::from_ref(one), true);
    let conditions = one.conditions.iter().map(|(kind, status, words)| [kind.clone(), status.clone(), words.clone()]);
    let _ = write!(text, "\n{}", format_columns(["CONDITION", "STATUS", "WHY"], conditions));
    let amounts = one
        .amounts
        .iter()
        .map(|(name, (used, all))| [name.clone(), format_plain_amount(used), format_plain_amount(all)]);
    let _ = write!(text, "\n{}", format_columns(["RESOURCE", "ALLOCATED", "ALLOCATABLE"], amounts));
    for (name, (used, all)) in &one.amounts {
        text += &format_oversold(name, used, all).unwrap_or_default();
    }
    if !one.devices.is_empty() {
        let cells = one.devices.iter().map(|(class, (claimed, all))| [class.clone(), claimed.clone(), all.clone()]);
        let _ = write!(text, "\n{}", format_columns(["DEVICE CLASS", "CLAIMED", "THERE"], cells));
    }
    if let Some(real) = &one.real_use {
        let _ = writeln!(text, "\nReal use was read {} s ago", real.age_seconds);
    }
    text += &one.links.as_ref().map(load::format_links).unwrap_or_default();
    for taint in &one.taints {
        let _ = writeln!(text, "\nTaint {taint}");
    }
    for group in &one.autoscaled_groups {
        let _ = writeln!(text, "\nAutoscaled group {group}");
    }
    if let Some(jobs) = one.jobs.as_ref().filter(|jobs| !jobs.is_empty()) {
        let cells = jobs.iter().map(|job| {
            let cpu = job.cpu.clone().unwrap_or_default();
            [job.namespace.clone(), job.job.clone(), job.queue.clone(), job.pods.to_string(), cpu]
        });
        let _ = write!(text, "\n{}", format_columns(["NAMESPACE", "JOB", "QUEUE", "PODS HERE", "CPU HERE"], cells));
    }
    text
}

/// That a member sells what its services do not use, and how much: thousandths of cores as cores.
fn format_oversold(name: &str, used: &str, all: &str) -> Option<String> {
    let resource = ResourceName::from(name);
    let amount = |text: &str| {
        let nano = text.parse::<Quantity>().ok()?.as_nano();
        let (nano, unit) = if resource.counts_bytes() { (nano, "") } else { (nano / 1_000, " cores") };
        Some((resource.quantity_from_nano(nano).plain().to_string() + unit, nano))
    };
    let ((used, _), (all, sold)) = (amount(used)?, amount(all)?);
    (resource.is_oversold() && sold > 0)
        .then(|| format!("\nOversubscribed: sells {all} as {name}, {used} is allocated\n"))
}

async fn cordon_clusters(args: ClusterNamesArgs, cordon: bool) -> anyhow::Result<ExitCode> {
    let client = connect(args.kubeconfig.as_deref()).await?;
    let mut all_done = true;
    for name in &args.names {
        all_done &= print_outcome(&format!("cluster {name}"), cordon_cluster(&client, name, cordon).await);
    }
    Ok(to_exit_code(all_done))
}

pub(crate) async fn cordon_cluster(client: &Client, name: &str, cordon: bool) -> anyhow::Result<&'static str> {
    let resource = objects::cluster_resource();
    let is_changed = write_retrying_conflicts(client, async || {
        let cluster = get_cluster(client, name).await?;
        let step = build_cordon(&cluster, cordon);
        Ok(step.map(|step| build_write(&resource, &cluster, build_tested_patch(&cluster, [step]))))
    });
    Ok(match (is_changed.await?, cordon) {
        (true, true) => "cordoned",
        (true, false) => "uncordoned",
        (false, true) => "is cordoned already",
        (false, false) => "is not cordoned",
    })
}

/// Adds or removes the one taint; nothing where it is so already.
fn build_cordon(cluster: &Value, cordon: bool) -> Option<Value> {
    let taint = json!({"key": CORDON, "effect": "NoSchedule"});
    match (cordon, find_cordon(cluster)) {
        (true, Some(_)) | (false, None) => None,
        (true, None) if cluster["spec"]["taints"].is_array() => {
            Some(json!({"op": "add", "path": "/spec/taints/-", "value": taint}))
        }
        (true, None) => Some(json!({"op": "add", "path": "/spec/taints", "value": [taint]})),
        (false, Some(at)) => Some(json!({"op": "remove", "path": format!("/spec/taints/{at}")})),
    }
}

#[cfg(test)]
mod tests {
    use axum::{Json, Router, routing::get};
    use caldera_crds::names::caldera::ADMISSION;
    use clap::Parser as _;

    use super::*;
    use crate::{
        args::{Args, Command},
        view::RealUse,
    };

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
        let taint = json!({"key": CORDON, "effect": "NoSchedule"});
        let other = json!({"key": "mine", "effect": "NoSchedule"});
        let add = |path: &str, value: Value| Some(json!({"op": "add", "path": path, "value": value}));
        assert_eq!(build_cordon(&cluster(Value::Null), true), add("/spec/taints", json!([taint])));
        assert_eq!(build_cordon(&cluster(json!([other])), true), add("/spec/taints/-", taint.clone()));
        assert_eq!(build_cordon(&cluster(json!([taint])), true), None);
        let remove = json!({"op": "remove", "path": "/spec/taints/1"});
        assert_eq!(build_cordon(&cluster(json!([other, taint])), false), Some(remove));
        assert_eq!(build_cordon(&cluster(json!([other])), false), None);
    }

    #[test]
    fn a_member_lists_gangs_by_their_own_names_with_what_they_have_there() {
        let record = r#"{"queue":"q","priority":0,"copies":1,"tasks":{"w":5},"charged":{"cpu":"12500m"}}"#;
        let binding = |clusters: Value| {
            json!({
                "metadata": {"namespace": "ns", "name": "j-job", "annotations": {ADMISSION: record}},
                "spec": {
                    "clusters": clusters, "replicaRequirements": {"resourceRequest": {"cpu": "2500m"}},
                    "resource": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": "ns", "name": "j"},
                },
            })
        };
        let part = |binding: &Value, at: usize| read_placed(binding, &binding["spec"]["clusters"][at]).unwrap();
        let whole = part(&binding(json!([{"name": "m1", "replicas": 5}])), 0);
        assert_eq!((whole.namespace.as_str(), whole.job.as_str(), whole.queue.as_str()), ("ns", "vcjob/j", "q"));
        assert_eq!((whole.pods, whole.cpu.as_deref()), (5, Some("12.5")));
        let split = part(&binding(json!([{"name": "m1", "replicas": 2}, {"name": "m2", "replicas": 3}])), 1);
        assert_eq!((split.pods, split.cpu.as_deref()), (3, Some("7.5")));
        let mut one = Member { jobs: Some(vec![split]), ..read_member(&cluster(Value::Null)) };
        assert!(describe_cluster(&one).contains("vcjob/j"), "{}", describe_cluster(&one));
        assert!(!describe_cluster(&one).contains("REAL CPU"));
        let amounts = [("cpu".to_owned(), ("6500m".to_owned(), "8".to_owned()))].into();
        one.real_use = Some(RealUse { amounts, age_seconds: 7 });
        let reported = describe_cluster(&one);
        assert!(reported.contains("6.5 (81%)") && reported.contains("Real use was read 7 s ago"), "{reported}");
        assert_eq!(["12500m", "2571428571n", "odd"].map(format_plain_amount), ["12.5", "2.571", "odd"]);
        let mut ended = binding(json!([{"name": "m1", "replicas": 5}]));
        ended["status"] = json!({"aggregatedStatus": [
            {"clusterName": "m1", "status": {"state": {"phase": "Completed"}}}]});
        assert_eq!(read_placed(&ended, &ended["spec"]["clusters"][0]), None, "it holds nothing any more");
    }

    #[test]
    fn a_member_that_is_oversubscribed_says_how_much_it_sells() {
        let mut member = cluster(Value::Null);
        let summary = &mut member["status"]["resourceSummary"];
        summary["allocatable"]["kubernetes.io/batch-cpu"] = "4000".into();
        summary["allocated"]["kubernetes.io/batch-cpu"] = "1500".into();
        summary["allocatable"]["kubernetes.io/batch-memory"] = "8589934592".into();
        let text = describe_cluster(&read_member(&member));
        assert!(text.contains("sells 4 cores as kubernetes.io/batch-cpu, 1.5 cores is allocated"), "{text}");
        assert!(text.contains("sells 8Gi as kubernetes.io/batch-memory, 0 is allocated"), "{text}");
        member["status"]["resourceSummary"]["allocatable"] = json!({"kubernetes.io/batch-cpu": "0"});
        assert!(!describe_cluster(&read_member(&member)).contains("Oversubscribed"));
    }

    /// A list that was watched off a terminal came anew each second, for the age of what was read.
    #[test]
    fn the_age_of_real_use_is_no_change() {
        let page = |cpu: &str, age_seconds| {
            let amounts = [("cpu".to_owned(), (cpu.to_owned(), "8".to_owned()))].into();
            let real_use = Some(RealUse { amounts, age_seconds });
            PrintedPage::new(String::new(), &Member { real_use, ..read_member(&cluster(Value::Null)) }).unwrap()
        };
        assert_eq!(page("2", 7), page("2", 8));
        assert_ne!(page("2", 7), page("3", 7));
    }

    /// It was not read for tables and names, so that no row had the field.
    #[tokio::test]
    async fn members_are_sorted_by_what_they_really_use_where_that_is_not_shown() {
        let list = |items: Value| json!({"metadata": {}, "items": items});
        let inventory = |name: &str, cpu: &str| {
            let amounts = |cpu: &str| json!({"cpu": cpu, "memory": "1Gi"});
            let load = json!({"readAt": "2026-01-01T00:00:00Z", "used": amounts(cpu), "capacity": amounts("8")});
            json!({"metadata": {"name": name}, "spec": {"cluster": name, "heartbeat": {
                "seenAt": "2026-01-01T00:00:00Z", "everySeconds": 30, "reached": "Direct", "parts": 1, "nodes": 1,
                "load": load,
            }}})
        };
        let members = ["m1", "m2"].map(|name| json!({"metadata": {"name": name}}));
        let answers = [
            ("/apis/cluster.karmada.io/v1alpha1/clusters", list(json!(members))),
            ("/apis/work.karmada.io/v1alpha2/resourcebindings", list(json!([]))),
            ("/apis/federation.caldera.dev/v1alpha1/clusterinventories/m1", inventory("m1", "6")),
            ("/apis/federation.caldera.dev/v1alpha1/clusterinventories/m2", inventory("m2", "1500m")),
        ];
        let add = |api: Router, (path, answer): (&str, Value)| api.route(path, get(async move || Json(answer)));
        let client = Client::new(answers.into_iter().fold(Router::new(), add), "default");
        let words = ["caldera", "cluster", "list", "--sort-by", "realUse.amounts.cpu[0]"];
        let Command::Cluster(ClusterAction::List(args)) = Args::try_parse_from(words).unwrap().command else {
            panic!("another command")
        };
        let read = read_page(&client, &args).await.unwrap();
        let reported: Vec<(&str, bool)> =
            read.clusters.iter().map(|one| (one.name.as_str(), one.real_use.is_some())).collect();
        assert_eq!(reported, [("m2", false), ("m1", false)]);
    }

    /// Found by a reader: a tenant's binding, written to be of another namespace, had an admin's drain restart that
    /// job.
    #[test]
    fn a_binding_that_names_another_namespace_is_neither_listed_nor_drained() {
        let mut binding = json!({"metadata": {"namespace": "evil"}, "spec": {"clusters": [{"name": "m1"}], "resource": {
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": "ns", "name": "victim",
        }}});
        assert_eq!(drain::find_job_in(&binding, "m1"), None);
        assert_eq!(read_placed(&binding, &binding["spec"]["clusters"][0]), None);
        binding["metadata"]["namespace"] = json!("ns");
        assert!(drain::find_job_in(&binding, "m1").is_some());
    }
}
