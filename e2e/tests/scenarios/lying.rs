//! A member that says that it has more than it has: what goes there does not start, comes back, and goes elsewhere.

use anyhow::{Context, ensure};
use caldera_e2e::{
    capacity::free_cores,
    kinds::Kind,
    manifest::{aggregated, job, task},
    run_configured,
    scenario::Scenario,
    skip,
};
use jiff::SignedDuration;
use serde_json::{Value, json};

/// How long a part has to start here: long enough for those that can, on a busy machine too.
const WITHIN: SignedDuration = SignedDuration::from_secs(60);

/// Publishes for a member, as its collector would, one node of a thousand cores.
async fn lie(s: &Scenario, member: &str) -> anyhow::Result<()> {
    let allocatable = json!({"cpu": "1000", "memory": "4000Gi", "pods": "1000"});
    let part = json!({"index": 0, "of": 1, "shapes": [{"names": ["enormous"], "allocatable": allocatable}]});
    let heartbeat = json!({
        "seenAt": caldera_runtime::clock::format_micro_time(jiff::Timestamp::now()), "everySeconds": 100,
        "reached": "Direct", "parts": 1, "nodes": 1,
    });
    for (name, key, value) in [(format!("{member}.0"), "part", part), (member.to_owned(), "heartbeat", heartbeat)] {
        let object = json!({
            "apiVersion": "federation.caldera.dev/v1alpha1", "kind": "ClusterInventory",
            "metadata": {"name": name}, "spec": {"cluster": member, key: value},
        });
        s.create(Kind::Inventory, object).await?;
    }
    Ok(())
}

fn eviction(binding: &Value) -> Value {
    let record = binding["metadata"]["annotations"]["caldera.dev/eviction"].as_str().unwrap_or_default();
    serde_json::from_str(record).unwrap_or_default()
}

fn is_withdrawn(binding: &Value) -> bool {
    let nowhere = binding["spec"]["clusters"].as_array().is_none_or(Vec::is_empty);
    nowhere && eviction(binding)["reason"] == "PodsReadyTimeout"
}

#[test]
fn a_member_that_lies_about_its_capacity_keeps_no_gang_and_harms_nobody_else() {
    run_configured(
        "lying",
        |controller| controller.pods_ready_timeout = WITHIN,
        async |s| {
            let cores = free_cores(&s).await;
            let largest = |nodes: &Vec<u32>| nodes.first().copied().unwrap_or(0);
            let (liar, least) =
                cores.iter().map(|(m, n)| (m, largest(n))).min_by_key(|(_, n)| *n).context("no members")?;
            let (honest, most) =
                cores.iter().map(|(m, n)| (m, largest(n))).max_by_key(|(_, n)| *n).context("no members")?;
            if most <= least {
                return skip("no member has larger nodes than another");
            }
            // No node of the liar's takes such a pod.
            let asks = (least + 1).to_string();
            let queue = s.queue("q", json!({})).await?;
            lie(&s, liar).await?;
            let only = |cluster: &str| json!({"affinityName": cluster, "clusterNames": [cluster]});
            let mut placement = aggregated();
            placement["clusterAffinities"] = json!([only(liar), only(honest)]);
            let mut gang = job("gang", &queue, &[task("a", 1, &asks, "sleep 1"), task("b", 1, "1", "sleep 1")]);
            gang["spec"]["minAvailable"] = 2.into();
            // What is published is known soon, and not at once.
            let known = async {
                loop {
                    let probe = s.submit(Kind::Job, gang.clone(), &placement).await?;
                    let clusters = s.until_placed("gang-job").await?;
                    if clusters == [(liar.clone(), 2)] {
                        return anyhow::Ok(probe);
                    }
                    for kind in [Kind::Job, Kind::Policy] {
                        s.delete(kind, "gang").await?;
                        s.until_gone(kind, "gang").await?;
                    }
                    s.until_gone(Kind::Binding, "gang-job").await?;
                }
            };
            let gang = known.await?;

            // Others go on meanwhile.
            let mut elsewhere = aggregated();
            elsewhere["clusterAffinity"] = json!({"clusterNames": [honest]});
            s.submit(Kind::Job, job("other", &queue, &[task("a", 2, "1", "sleep 1")]), &elsewhere).await?;
            s.until_phase("other", "Completed").await?;

            let binding = s.until(Kind::Binding, "gang-job", "is withdrawn", is_withdrawn).await?;
            ensure!(eviction(&binding)["avoid"] == json!([liar]), "{}", eviction(&binding));
            let told = |group: &Value| group["status"]["conditions"][0]["reason"] == "Requeued";
            let group = s.until_podgroup(&gang, "says why", told).await?;
            let why = group["status"]["conditions"][0]["message"].as_str().unwrap_or_default();
            ensure!(why.contains(&format!("needed in {liar} are on nodes")), "{why:?}");
            s.until_gone_in_member(liar, Kind::Job, "gang").await?;
            // It is not believed twice.
            let clusters = s.until_placed("gang-job").await?;
            ensure!(clusters == [(honest.clone(), 2)], "{clusters:?}");
            s.until_phase("gang", "Completed").await?;
            Ok(())
        },
    );
}
