//! karmada-scheduler places what Caldera admits.

use anyhow::{Context, ensure};
use caldera_e2e::{
    Scenario,
    kinds::Kind,
    manifest::{aggregated, job, task},
    run_with_stock_scheduler,
};
use serde_json::{Value, json};

use crate::services::{count_placed, scale_beyond_the_quota_and_back};

/// So many pods in each of two members.
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

#[test]
fn karmada_scheduler_places_gangs_in_the_order_of_the_queue_and_their_copies_are_made_for_where_they_went() {
    run_with_stock_scheduler("stock", async |s| {
        let queue = s.queue("q", json!({"cpu": "2"})).await?;
        let gang = |name: &str, command: &str| {
            job(name, &queue, &[task("ps", 1, "500m", command), task("worker", 3, "500m", command)])
        };
        s.submit(Kind::Job, gang("first", "sleep 600"), &halves(&s)).await?;
        let clusters = s.until_placed("first-job").await?;
        ensure!(clusters.iter().map(|(_, pods)| *pods).collect::<Vec<_>>() == [2, 2], "{clusters:?}");
        let binding = s.get(Kind::Binding, "first-job").await?.context("no binding")?;
        ensure!(binding["spec"]["schedulerName"] == "default-scheduler", "{}", binding["spec"]["schedulerName"]);
        let second = s.submit(Kind::Job, gang("second", "sleep 1"), &halves(&s)).await?;
        s.until_podgroup(&second, "waits for quota", |group| group["status"]["conditions"].to_string().contains("cpu"))
            .await?;
        let binding = s.get(Kind::Binding, "second-job").await?.context("no binding")?;
        ensure!(count_placed(&binding) == 0, "{binding}");
        let mut tasks = [0, 0];
        for (member, _) in &clusters {
            let all = |copy: &Value| copy["spec"]["tasks"].as_array().is_some_and(|tasks| tasks.len() == 2);
            let copy = s.until_in_member(member, Kind::Job, "first", "is there", all).await?;
            for (index, pods) in tasks.iter_mut().enumerate() {
                *pods += copy["spec"]["tasks"][index]["replicas"].as_u64().unwrap_or(0);
            }
        }
        ensure!(tasks == [1, 3], "all pods of each task, and none twice: {tasks:?}");
        s.complete_job_in_members("first", &clusters).await?;
        s.until_phase("first", "Completed").await?;
        s.until_phase("second", "Completed").await?;
        Ok(())
    });
}

#[test]
fn what_karmada_scheduler_places_beyond_the_record_is_not_stored_until_the_rest_is_admitted() {
    run_with_stock_scheduler("stockscale", async |s| {
        scale_beyond_the_quota_and_back(&s, Some("and has quota for 2")).await
    });
}

#[test]
fn what_must_be_in_one_cluster_and_was_divided_by_its_policy_says_so_and_is_not_placed() {
    run_with_stock_scheduler("stockranks", async |s| {
        let queue = s.queue("q", json!({"cpu": "2"})).await?;
        let ranks = |name: &str| {
            let mut ranks =
                job(name, &queue, &[task("master", 1, "100m", "sleep 1"), task("worker", 3, "100m", "sleep 1")]);
            ranks["spec"]["plugins"] = json!({"pytorch": ["--master=master", "--worker=worker", "--port=23456"]});
            ranks
        };
        s.submit(Kind::Job, ranks("cut"), &halves(&s)).await?;
        s.until(Kind::Binding, "cut-job", "says that it was refused", |binding| {
            binding["status"]["conditions"].to_string().contains("must be in one")
        })
        .await?;
        let mut one = aggregated();
        one["spreadConstraints"] = json!([{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]);
        s.submit(Kind::Job, ranks("whole"), &one).await?;
        let clusters = s.until_placed("whole-job").await?;
        ensure!(clusters.len() == 1 && clusters[0].1 == 4, "{clusters:?}");
        s.until_phase("whole", "Completed").await?;
        let binding = s.get(Kind::Binding, "cut-job").await?.context("no binding")?;
        ensure!(count_placed(&binding) == 0, "{binding}");
        Ok(())
    });
}

/// As Karmada's taint manager does: the write is the same.
#[test]
fn a_cluster_is_taken_away_from_a_job_that_runs_and_the_rest_is_placed_anew() {
    run_with_stock_scheduler("stocktaken", async |s| {
        let queue = s.queue("q", json!({"cpu": "2"})).await?;
        s.submit(Kind::Job, job("cut", &queue, &[task("a", 4, "100m", "sleep 600")]), &halves(&s)).await?;
        let clusters = s.until_placed("cut-job").await?;
        ensure!(clusters.len() == 2, "{clusters:?}");
        s.until_phase("cut", "Running").await?;
        let left = json!([{"name": clusters[0].0, "replicas": clusters[0].1}]);
        s.patch(Kind::Binding, "cut-job", &json!({"spec": {"clusters": left}})).await?;
        s.until(Kind::Binding, "cut-job", "has all its pods again", |binding| count_placed(binding) == 4).await?;
        s.until_phase("cut", "Running").await?;
        Ok(())
    });
}
