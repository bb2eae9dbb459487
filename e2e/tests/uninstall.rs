//! `caldera uninstall` where jobs wait and run: in a sandbox of its own, or on a given Karmada, where Caldera is
//! installed anew by whatever runs next.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use anyhow::ensure;
use caldera_cli::{
    roles,
    uninstall::{
        plan::{Allowed, Plan},
        remove_installation,
    },
};
use caldera_e2e::{
    Scenario,
    kinds::Kind,
    manifest::{aggregated, job, task},
    run_configured,
    world::api,
};
use caldera_runtime::watch::api_resource;
use kube::api::ListParams;
use serde_json::{Value, json};

/// Where names of ours must not be found any more.
const KINDS: [(&str, &str, &str); 10] = [
    ("rbac.authorization.k8s.io", "v1", "clusterroles"),
    ("rbac.authorization.k8s.io", "v1", "clusterrolebindings"),
    ("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings"),
    ("config.karmada.io", "v1alpha1", "resourceinterpreterwebhookconfigurations"),
    ("config.karmada.io", "v1alpha1", "resourceinterpretercustomizations"),
    ("policy.karmada.io", "v1alpha1", "clusterpropagationpolicies"),
    ("", "v1", "namespaces"),
];

/// Half of the pods in each of two members.
fn halves(s: &Scenario) -> Value {
    let members: Vec<&str> = s.members().take(2).collect();
    let weight = |member: &&str| json!({"targetCluster": {"clusterNames": [member]}, "weight": 1});
    json!({
        "replicaScheduling": {
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            "weightPreference": {"staticWeightList": members.iter().map(weight).collect::<Vec<_>>()},
        },
        "clusterAffinity": {"clusterNames": members},
    })
}

/// UIDs of the scenario's pods that run, in all members.
async fn running_pods(s: &Scenario) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for member in s.members() {
        for pod in s.list_in_member(member, Kind::Pod, Some(&s.namespace)).await {
            if pod["status"]["phase"] == "Running" {
                all.extend(pod["metadata"]["uid"].as_str().map(str::to_owned));
            }
        }
    }
    all
}

async fn remove(s: &Scenario, open_gates: bool) -> anyhow::Result<Plan> {
    remove_installation(&s.host(), &[roles::NAMESPACE.to_owned()], Allowed { open_gates, crds: false }).await
}

async fn is_nothing_left(s: &Scenario) -> anyhow::Result<()> {
    for (group, version, plural) in KINDS {
        let all = api(&s.host(), &api_resource(group, version, "", plural), None);
        let mut left = vec![String::new()];
        for _ in 0..600 {
            let names = all.list(&ListParams::default()).await?.items.into_iter().filter_map(|one| one.metadata.name);
            left = names.filter(|name| name.contains("caldera")).collect();
            if left.is_empty() {
                break;
            }
            // A namespace goes with all that is in it.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        ensure!(left.is_empty(), "{plural}: {left:?}");
    }
    Ok(())
}

#[test]
fn uninstall_opens_gates_leaves_what_runs_alone_and_leaves_nothing_of_ours() {
    run_configured(
        "uninstall",
        |_| {},
        async |s| {
            let queue = s.queue("q", json!({"cpu": "1"})).await?;
            let pair = |name: &str| job(name, &queue, &[task("a", 2, "250m", "sleep 600")]);
            s.create_shared(Kind::Customization, caldera_webhook::build_member_customization()).await?;
            s.submit(Kind::Job, pair("runs"), &aggregated()).await?;
            s.submit(Kind::Job, pair("split"), &halves(&s)).await?;
            s.until_phase("runs", "Running").await?;
            s.until_phase("split", "Running").await?;
            let waits = s.submit(Kind::Job, pair("waits"), &aggregated()).await?;
            s.until_podgroup(&waits, "waits for quota", |group| {
                group["status"]["conditions"].to_string().contains("cpu")
            })
            .await?;
            let (pods, clusters) = (running_pods(&s).await, s.until_placed("runs-job").await?);
            ensure!(pods.len() == 4, "{pods:?}");

            let refused = remove(&s, false).await;
            ensure!(refused.is_err(), "a job waits, and its gate may not be opened");
            let left = remove(&s, true).await?;
            ensure!(left.kept == [format!("{}/split-job", s.namespace)] && left.stages.is_empty(), "{left:?}");
            for name in ["runs-job", "waits-job"] {
                let free = |binding: &Value| {
                    let annotations = binding["metadata"]["annotations"].to_string();
                    binding["spec"]["schedulerName"] == "default-scheduler"
                        && !annotations.contains("caldera.dev")
                        && binding["spec"]["suspension"]["scheduling"] != true
                };
                s.until(Kind::Binding, name, "is handed to karmada-scheduler", free).await?;
            }
            ensure!(s.until_placed("runs-job").await? == clusters, "it stays where it runs");
            let placed = s.until_placed("waits-job").await?;
            let runs = |job: &Value| job["status"]["state"]["phase"] == "Running";
            s.until_in_member(&placed[0].0, Kind::Job, "waits", "runs", runs).await?;
            let now = running_pods(&s).await;
            ensure!(pods.is_subset(&now), "no pod that ran was touched: {pods:?} {now:?}");

            s.delete(Kind::Job, "split").await?;
            s.until_gone(Kind::Binding, "split-job").await?;
            let left = remove(&s, true).await?;
            ensure!(left.kept.is_empty() && left.stages.is_empty(), "{left:?}");
            is_nothing_left(&s).await
        },
    );
}
