//! Clusters that the jobs of a queue use, by labels, and clusters of some queues alone.

use anyhow::ensure;
use caldera_crds::names::caldera::{CLUSTER_QUEUES, CLUSTER_SELECTOR};
use caldera_e2e::{
    Scenario,
    kinds::Kind,
    manifest::{aggregated, job, queue, task},
    run_alone,
};
use serde_json::{Value, json};

fn small(name: &str, queue: &str) -> Value {
    job(name, queue, &[task("a", 2, "100m", "sleep 600")])
}

async fn label(s: &Scenario, cluster: &str, value: Option<&str>) -> anyhow::Result<()> {
    s.patch(Kind::Cluster, cluster, &json!({"metadata": {"labels": {"team": value}}})).await.map(drop)
}

async fn keep_for(s: &Scenario, cluster: &str, queues: Option<&str>) -> anyhow::Result<()> {
    s.patch(Kind::Cluster, cluster, &json!({"metadata": {"annotations": {CLUSTER_QUEUES: queues}}})).await.map(drop)
}

async fn play(s: &Scenario, mine: &str, rest: &[String]) -> anyhow::Result<()> {
    let (name, other) = (s.own("mine"), s.queue("other", json!({})).await?);
    let mut object = queue(&name, &json!({}));
    object["metadata"]["annotations"] = json!({CLUSTER_SELECTOR: "team in ml"});
    let refused = s.create(Kind::Queue, object.clone()).await.err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(refused.contains(CLUSTER_SELECTOR) && refused.contains("key in (a,b)"), "{refused}");
    object["metadata"]["annotations"] = json!({CLUSTER_SELECTOR: format!("team={}", s.namespace)});
    s.create(Kind::Queue, object).await?;
    s.until(Kind::Queue, &name, "is open", |queue| queue["status"]["state"] == "Open").await?;

    // No cluster has the label yet.
    let waits = s.submit(Kind::Job, small("labelled", &name), &aggregated()).await?;
    let words = format!("queue {name} uses only clusters whose labels match");
    s.until_podgroup(&waits, "says which clusters its queue uses", |group| {
        group["status"]["conditions"].to_string().contains(&words)
    })
    .await?;
    label(s, mine, Some(&s.namespace)).await?;
    ensure!(s.until_placed("labelled-job").await? == [(mine.to_owned(), 2)]);

    // And now it is of that queue alone: others go elsewhere, or wait.
    keep_for(s, mine, Some(&name)).await?;
    let mut only = aggregated();
    only["clusterAffinity"] = json!({"clusterNames": [mine]});
    let kept_out = s.submit(Kind::Job, small("kept-out", &other), &only).await?;
    let words = format!("cluster {mine} is for jobs of queue {name} alone, and not for those of {other}");
    s.until_podgroup(&kept_out, "says whose the cluster is", |group| {
        group["status"]["conditions"].to_string().contains(&words)
    })
    .await?;
    s.submit(Kind::Job, small("elsewhere", &other), &aggregated()).await?;
    let placed = s.until_placed("elsewhere-job").await?;
    ensure!(placed.iter().all(|(cluster, _)| rest.contains(cluster)), "{placed:?}");
    s.submit(Kind::Job, small("another", &name), &aggregated()).await?;
    ensure!(s.until_placed("another-job").await? == [(mine.to_owned(), 2)]);
    keep_for(s, mine, None).await?;
    ensure!(s.until_placed("kept-out-job").await? == [(mine.to_owned(), 2)]);
    Ok(())
}

#[test]
fn jobs_go_to_the_clusters_of_their_queue_and_a_cluster_of_some_queues_takes_no_others() {
    run_alone("queue-clusters", async |s| {
        let mut members: Vec<String> = s.members().map(str::to_owned).collect();
        let mine = members.remove(0);
        let result = play(&s, &mine, &members).await;
        label(&s, &mine, None).await?;
        keep_for(&s, &mine, None).await?;
        result
    });
}
