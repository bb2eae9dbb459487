//! Gangs over clusters with a declared link: a hard one nowhere else, a soft one rather there.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, ensure};
use caldera_core::load_aware::LoadPolicy;
use caldera_e2e::{
    Scenario,
    capacity::free_cores,
    kinds::Kind,
    manifest::{aggregated, job, task},
    run, run_alone, run_configured, skip,
};
use serde_json::{Value, json};

/// Members by how many two-core pods they take.
type Sizes = BTreeMap<String, u32>;

async fn sizes(s: &Scenario) -> Sizes {
    let cores = free_cores(s).await;
    cores.into_iter().map(|(member, nodes)| (member, nodes.iter().map(|cores| cores / 2).sum())).collect()
}

/// The largest member, and another, of another region where there is one: without a link the others are as good.
async fn pair(s: &Scenario, sizes: &Sizes) -> anyhow::Result<Option<(String, String)>> {
    let mut regions = BTreeMap::new();
    for member in sizes.keys() {
        let cluster = s.get(Kind::Cluster, member).await?.context("a member without a Cluster")?;
        regions.insert(member.clone(), cluster["spec"]["region"].clone());
    }
    let Some((largest, _)) = sizes.iter().max_by_key(|(member, size)| (**size, *member)) else { return Ok(None) };
    let others = sizes.iter().filter(|(member, size)| *member != largest && **size > 0);
    let mut others: Vec<&String> = others.map(|(member, _)| member).collect();
    others.sort_by_key(|member| regions[*member] == regions[largest]);
    Ok(if sizes.len() < 3 { None } else { others.first().map(|other| (largest.clone(), (*other).clone())) })
}

fn links(s: &Scenario, members: &[&str]) -> Value {
    json!({
        "apiVersion": "federation.caldera.dev/v1alpha1", "kind": "FederationTopology", "metadata": {"name": s.own("links")},
        "spec": {
            "tiers": [{"name": s.own("near"), "maxLatencyMicroseconds": 500, "minBandwidthMegabits": 100_000}],
            "links": [{"from": members, "latencyMicroseconds": 200, "bandwidthMegabits": 400_000}],
        },
    })
}

fn gang(s: &Scenario, name: &str, queue: &str, pods: u32, mode: &str) -> Value {
    let mut workload = job(name, queue, &[task("worker", pods, "2", "sleep 1")]);
    workload["spec"]["minAvailable"] = pods.into();
    workload["spec"]["networkTopology"] = json!({"mode": mode, "highestTierName": s.own("near")});
    workload
}

fn says(parts: Vec<String>) -> impl Fn(&Value) -> bool {
    move |group| {
        let conditions = group["status"]["conditions"].as_array().into_iter().flatten();
        let mut messages = conditions.filter_map(|condition| condition["message"].as_str());
        messages.any(|message| parts.iter().all(|part| message.contains(part)))
    }
}

async fn goes_to(s: &Scenario, job: &str, mut members: Vec<&str>) -> anyhow::Result<()> {
    let clusters = s.until_placed(&format!("{job}-job")).await?;
    members.sort_unstable();
    ensure!(clusters.iter().map(|(member, _)| member.as_str()).collect::<Vec<_>>() == members, "{job}: {clusters:?}");
    s.until_phase(job, "Completed").await?;
    Ok(())
}

#[test]
fn a_gang_over_clusters_goes_where_a_link_is_declared() {
    run_alone("links", async |s: Arc<Scenario>| {
        let sizes = sizes(&s).await;
        let Some((large, other)) = pair(&s, &sizes).await? else {
            return skip("it needs three members");
        };
        let queue = s.queue("q", json!({})).await?;
        let two = sizes[&large] + sizes[&other];
        // Too large for any one; no link is declared yet.
        let pods = sizes[&large] + 1;
        let early = s.submit(Kind::Job, gang(&s, "early", &queue, pods, "hard"), &aggregated()).await?;
        let unknown = format!("no cluster has tier {} or lower", s.own("near"));
        s.until_podgroup(&early, "waits for a link", says(vec![unknown])).await?;
        s.create(Kind::Links, links(&s, &[&large, &other])).await?;
        goes_to(&s, "early", vec![&large, &other]).await?;
        s.submit(Kind::Job, gang(&s, "soft", &queue, pods, "soft"), &aggregated()).await?;
        goes_to(&s, "soft", vec![&large, &other]).await?;

        // All members together would hold it; no group of near ones does.
        let wide = s.submit(Kind::Job, gang(&s, "wide", &queue, two + 1, "hard"), &aggregated()).await?;
        let short = vec![format!("needs {} pods at once; {two} fit ", two + 1), format!("take {two}")];
        s.until_podgroup(&wide, "says what the best near clusters take", says(short)).await?;
        let binding = s.get(Kind::Binding, "wide-job").await?.context("it has a binding")?;
        ensure!(binding["spec"]["clusters"].as_array().is_none_or(Vec::is_empty), "{binding}");
        let all: Vec<&str> = s.members().collect();
        let spec = json!({"spec": links(&s, &all)["spec"]});
        s.patch(Kind::Links, &s.own("links"), &spec).await?;
        s.until_phase("wide", "Completed").await?;
        Ok(())
    });
}

fn move_for_links(config: &mut caldera_controller::Config) {
    config.load = LoadPolicy { links: true, interval: 5, samples: 2, moves: 1, ..LoadPolicy::default() };
}

#[test]
fn a_gang_leaves_clusters_whose_link_has_become_worse() {
    run_configured("worse", move_for_links, async |s: Arc<Scenario>| {
        let sizes = sizes(&s).await;
        let Some((large, other)) = pair(&s, &sizes).await? else {
            return skip("it needs three members");
        };
        let third = s.members().find(|member| *member != large && *member != other && sizes[*member] > 0);
        let Some(third) = third.map(str::to_owned) else {
            return skip("it needs three members with free cores");
        };
        let queue = s.queue("q", json!({})).await?;
        s.create(Kind::Links, links(&s, &[&large, &other])).await?;
        // One pod more than the largest takes, and it says that it runs for long.
        let mut gang = gang(&s, "moves", &queue, sizes[&large] + 1, "hard");
        gang["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["command"] = json!(["sh", "-c", "sleep 600"]);
        gang["metadata"]["annotations"] =
            json!({"volcano.sh/preemptable": "true", "caldera.dev/running-estimate": "10h"});
        s.submit(Kind::Job, gang, &aggregated()).await?;
        s.until_phase("moves", "Running").await?;
        let places = async || {
            let binding = s.get(Kind::Binding, "moves-job").await?.context("it has a binding")?;
            let clusters = binding["spec"]["clusters"].as_array().cloned().unwrap_or_default();
            anyhow::Ok(
                clusters.iter().filter_map(|one| Some(one["name"].as_str()?.to_owned())).collect::<BTreeSet<_>>(),
            )
        };
        ensure!(places().await? == [large.clone(), other.clone()].into(), "{:?}", places().await?);

        let declare = async |bad: &str, good: &str| {
            let link = |to: &str, latency: u32| json!({"from": [large], "to": [to], "latencyMicroseconds": latency, "bandwidthMegabits": 400_000});
            let spec = json!({"spec": {"links": [link(bad, 80_000), link(good, 200)]}});
            s.patch(Kind::Links, &s.own("links"), &spec).await
        };
        declare(&other, &third).await?;
        let moved = |binding: &Value| {
            let clusters = binding["spec"]["clusters"].to_string();
            clusters.contains(&format!("\"{third}\"")) && !clusters.contains(&format!("\"{other}\""))
        };
        s.until(Kind::Binding, "moves-job", "is where links are good", moved).await?;
        s.until_told_that("moves", "Rescheduled", "has a latency of 80000 us").await?;
        // A member's Volcano may lose a job that is made anew a moment after it was deleted: it starts once it is sent
        // again.
        s.until_phase("moves", "Running").await?;

        // Once in its life: that this link becomes bad as well moves it nowhere.
        declare(&third, &other).await?;
        let before = places().await?;
        tokio::time::sleep(Duration::from_secs(20)).await;
        ensure!(places().await? == before, "it was moved again");
        Ok(())
    });
}

#[test]
fn what_is_wrong_with_declared_links_is_said_on_them_and_breaks_nothing() {
    run("badlinks", async |s: Arc<Scenario>| {
        let member = s.members().next().context("no members")?.to_owned();
        let mut wrong = links(&s, &[&member, "nowhere"]);
        wrong["spec"]["links"].as_array_mut().context("links")?.push(json!({"from": [member], "to": [member]}));
        wrong["spec"]["tiers"].as_array_mut().context("tiers")?.push(json!({"name": "region"}));
        s.create(Kind::Links, wrong).await?;
        let accepted = |object: &Value, word: &str| {
            let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
            conditions.filter(|condition| condition["type"] == "Accepted").any(|condition| condition["status"] == word)
        };
        let told =
            s.until(Kind::Links, &s.own("links"), "says what is wrong", |object| accepted(object, "False")).await?;
        let message = told["status"]["conditions"][0]["message"].as_str().unwrap_or_default();
        for part in ["tiers[1]", "to itself", "nowhere", "the rest counts"] {
            ensure!(message.contains(part), "{part} is not in {message:?}");
        }
        let mut negative = links(&s, &[&member]);
        negative["metadata"]["name"] = s.own("negative").into();
        negative["spec"]["links"][0]["latencyMicroseconds"] = (-1).into();
        let refused = s.create(Kind::Links, negative).await.err().context("a negative latency is taken")?;
        ensure!(refused.to_string().contains("latencyMicroseconds"), "{refused}");
        let queue = s.queue("q", json!({})).await?;
        s.submit(Kind::Job, job("other", &queue, &[task("worker", 2, "1", "sleep 1")]), &aggregated()).await?;
        s.until_phase("other", "Completed").await?;
        Ok(())
    });
}
