//! Gangs over clusters: sums, minimums, and what each member really gets.

use std::process::Command;

use anyhow::{Context, ensure};
use caldera_e2e::{
    Scenario,
    capacity::free_cores,
    kinds::Kind,
    manifest::{aggregated, duplicated, job, task},
    run, run_alone, skip,
};
use serde_json::{Value, json};

/// The largest member's free one-core pods, and all members'.
async fn room(s: &Scenario) -> anyhow::Result<(u32, u32)> {
    let cores = free_cores(s).await;
    let by_member: Vec<u32> = cores.values().map(|nodes| nodes.iter().sum()).collect();
    let largest = by_member.iter().max().copied().context("no members")?;
    Ok((largest, by_member.iter().sum()))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

#[test]
fn a_gang_larger_than_any_member_is_split_and_completes() {
    run_alone("split", async |s| {
        let queue = s.queue("q", json!({})).await?;
        let cores = free_cores(&s).await;
        // Two-core pods on the two smallest members: more than one of them holds, at most what both hold.
        let mut sizes: Vec<(u32, String)> =
            cores.iter().map(|(m, nodes)| (nodes.iter().map(|n| n / 2).sum(), m.clone())).collect();
        sizes.sort();
        ensure!(sizes.len() >= 2, "splitting needs two members");
        let pods = sizes[1].0 + 1;
        ensure!(pods <= sizes[0].0 + sizes[1].0, "the members are too unequal: {sizes:?}");
        let mut workload = job("wide", &queue, &[task("worker", pods, "2", "sleep 1")]);
        workload["spec"]["minAvailable"] = pods.into();
        let mut placement = aggregated();
        placement["clusterAffinity"] = json!({"clusterNames": [sizes[0].1, sizes[1].1]});
        s.submit(Kind::Job, workload, &placement).await?;

        let clusters = s.until_placed("wide-job").await?;
        ensure!(clusters.len() == 2, "split over {clusters:?}");
        ensure!(clusters.iter().map(|(_, replicas)| replicas).sum::<u64>() == u64::from(pods), "{clusters:?}");
        for (member, replicas) in &clusters {
            let copy = s.until_in_member(member, Kind::Job, "wide", "is there", |_| true).await?;
            ensure!(number(&copy["spec"]["tasks"][0]["replicas"]) == *replicas, "{copy}");
            // A2.30: the copy's minimums are the copy's own.
            ensure!(number(&copy["spec"]["minAvailable"]) == *replicas, "{copy}");
            ensure!(number(&copy["spec"]["tasks"][0]["minAvailable"]) == *replicas, "{copy}");
        }
        let done = s.until_phase("wide", "Completed").await?;
        ensure!(number(&done["status"]["succeeded"]) == u64::from(pods), "{}", done["status"]);
        Ok(())
    });
}

#[test]
fn a_gang_of_three_tasks_goes_over_three_members_when_no_two_hold_it() {
    run_alone("three", async |s| {
        let queue = s.queue("q", json!({})).await?;
        let cores = free_cores(&s).await;
        let mut sizes: Vec<(u32, String)> =
            cores.iter().map(|(m, nodes)| (nodes.iter().map(|n| n / 2).sum(), m.clone())).collect();
        sizes.sort();
        let [smallest, second, third, ..] = sizes.as_slice() else {
            return skip("it needs three members");
        };
        // More than the two largest of them take; the rest is in the smallest.
        let pods = second.0 + third.0 + 1 + smallest.0 / 2;
        ensure!(smallest.0 > 0 && pods >= 8, "the members are too small: {sizes:?}");
        let tasks =
            [task("ps", 2, "2", "sleep 1"), task("eval", 3, "2", "sleep 1"), task("worker", pods - 5, "2", "sleep 1")];
        let mut workload = job("three", &queue, &tasks);
        workload["spec"]["minAvailable"] = pods.into();
        let names = [&smallest.1, &second.1, &third.1];
        let mut placement = aggregated();
        placement["clusterAffinity"] = json!({"clusterNames": names});
        s.submit(Kind::Job, workload, &placement).await?;
        let clusters = s.until_placed("three-job").await?;
        ensure!(clusters.len() == 3, "split over {clusters:?}");
        let mut sums = [0; 3];
        for (member, replicas) in &clusters {
            let copy = s.until_in_member(member, Kind::Job, "three", "is there", |_| true).await?;
            ensure!(number(&copy["spec"]["minAvailable"]) == *replicas, "{copy}");
            for (sum, task) in sums.iter_mut().zip(copy["spec"]["tasks"].as_array().context("tasks")?) {
                ensure!(task["minAvailable"] == task["replicas"], "{copy}");
                *sum += number(&task["replicas"]);
            }
        }
        ensure!(sums == [2, 3, u64::from(pods) - 5], "{sums:?}");
        let done = s.until_phase("three", "Completed").await?;
        for (task, sum) in ["ps", "eval", "worker"].into_iter().zip(sums) {
            let succeeded = &done["status"]["taskStatusCount"][task]["phase"]["Succeeded"];
            ensure!(number(succeeded) == sum, "{}", done["status"]);
        }
        Ok(())
    });
}

#[test]
fn a2_02_every_task_is_placed_not_only_the_first() {
    run("tasks", async |s| {
        let queue = s.queue("q", json!({"cpu": "4"})).await?;
        let tasks = [
            task("master", 1, "500m", "sleep 8"),
            task("worker", 3, "500m", "sleep 8"),
            task("ps", 2, "250m", "sleep 8"),
        ];
        s.submit(Kind::Job, job("many", &queue, &tasks), &aggregated()).await?;
        let clusters = s.until_placed("many-job").await?;
        ensure!(clusters.iter().map(|(_, replicas)| replicas).sum::<u64>() == 6, "{clusters:?}");
        let queue = s
            .until(Kind::Queue, &queue, "is charged for all tasks", |queue| {
                queue["status"]["allocated"]["cpu"] == "2.5"
            })
            .await?;
        ensure!(queue["status"]["state"] == "Open");
        let done = s.until_phase("many", "Completed").await?;
        for (task, pods) in [("master", 1), ("worker", 3), ("ps", 2)] {
            ensure!(
                number(&done["status"]["taskStatusCount"][task]["phase"]["Succeeded"]) == pods,
                "{}",
                done["status"]
            );
        }
        Ok(())
    });
}

#[test]
fn a_gang_that_no_set_of_members_holds_is_never_partly_released() {
    run("toolarge", async |s| {
        let queue = s.queue("q", json!({})).await?;
        let (_, all) = room(&s).await?;
        let mut workload = job("vast", &queue, &[task("worker", all * 4 + 50, "1", "sleep 1")]);
        workload["spec"]["minAvailable"] = (all * 4 + 50).into();
        let workload = s.submit(Kind::Job, workload, &aggregated()).await?;
        let group = s
            .until_podgroup(&workload, "says that it does not fit", |group| {
                group["status"]["conditions"][0]["type"] == "Unschedulable"
            })
            .await?;
        let message = group["status"]["conditions"][0]["message"].as_str().unwrap_or_default().to_owned();
        ensure!(message.contains("cpu"), "no dimension in {message:?}");
        let binding = s.get(Kind::Binding, "vast-job").await?.context("no binding")?;
        ensure!(binding["spec"]["suspension"]["scheduling"] == true, "{binding}");
        ensure!(binding["spec"]["clusters"].as_array().is_none_or(Vec::is_empty), "{binding}");
        Ok(())
    });
}

#[test]
fn rank_building_jobs_stay_in_one_cluster() {
    run("ranks", async |s| {
        let queue = s.queue("q", json!({})).await?;
        let mut workload =
            job("ranks", &queue, &[task("master", 1, "250m", "sleep 1"), task("worker", 3, "250m", "sleep 1")]);
        workload["spec"]["plugins"] = json!({"pytorch": ["--master=master", "--worker=worker"]});
        let mut placement = aggregated();
        placement["replicaScheduling"] = json!({
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            "weightPreference": {"dynamicWeight": "AvailableReplicas"},
        });
        s.submit(Kind::Job, workload, &placement).await?;
        let clusters = s.until_placed("ranks-job").await?;
        ensure!(clusters.len() == 1 && clusters[0].1 == 4, "{clusters:?}");
        s.until_phase("ranks", "Completed").await?;
        Ok(())
    });
}

/// The same number of pods in each of two members.
pub(super) fn halves(members: &[String]) -> Value {
    let weight = |member: &String| json!({"targetCluster": {"clusterNames": [member]}, "weight": 1});
    json!({
        "replicaScheduling": {
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            "weightPreference": {"staticWeightList": members.iter().take(2).map(weight).collect::<Vec<_>>()},
        },
        "clusterAffinity": {"clusterNames": members.iter().take(2).collect::<Vec<_>>()},
    })
}

/// What a pod's command says, run with the variables that the pod was given.
fn run_command(pod: &Value) -> anyhow::Result<String> {
    let container = &pod["spec"]["containers"][0];
    let words: Vec<&str> = container["command"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let (program, arguments) = words.split_first().context("a pod without a command")?;
    let variables = container["env"].as_array().into_iter().flatten();
    let variables = variables.filter_map(|one| Some((one["name"].as_str()?, one["value"].as_str()?)));
    let mut command = Command::new(program);
    let output = command.args(arguments).env_clear().env("PATH", "/usr/bin:/bin").envs(variables).output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

#[test]
fn no_index_of_a_split_jobs_pods_is_there_twice_in_the_fleet() {
    run("indices", async |s| {
        let queue = s.queue("q", json!({})).await?;
        let members: Vec<String> = s.members().map(str::to_owned).collect();
        ensure!(members.len() >= 2, "splitting needs two members");
        let mut workload =
            job("shards", &queue, &[task("worker", 6, "100m", "echo $VC_TASK_INDEX of $VC_WORKER_NUM; sleep 20")]);
        workload["spec"]["plugins"] = json!({"env": [], "svc": []});
        s.submit(Kind::Job, workload, &halves(&members)).await?;
        let clusters = s.until_placed("shards-job").await?;
        ensure!(clusters.iter().map(|(_, pods)| *pods).collect::<Vec<_>>() == [3, 3], "{clusters:?}");
        s.until_phase("shards", "Running").await?;
        let mut said = Vec::new();
        for (member, _) in &clusters {
            for pod in s.list_in_member(member, Kind::Pod, Some(&s.namespace)).await {
                said.push(run_command(&pod)?);
            }
        }
        said.sort();
        ensure!(said == (0..6).map(|index| format!("{index} of 6")).collect::<Vec<_>>(), "{said:?}");
        s.until_phase("shards", "Completed").await?;

        // One whose containers can not add is not split.
        let mut opaque = task("worker", 6, "100m", "");
        opaque["template"]["spec"]["containers"][0]["command"] = json!(["sleep", "1"]);
        let mut workload = job("opaque", &queue, &[opaque]);
        workload["spec"]["plugins"] = json!({"env": []});
        s.submit(Kind::Job, workload, &halves(&members)).await?;
        let clusters = s.until_placed("opaque-job").await?;
        ensure!(clusters.len() == 1 && clusters[0].1 == 6, "{clusters:?}");
        s.until_phase("opaque", "Completed").await?;
        Ok(())
    });
}

#[test]
fn a2_10_a_duplicated_job_is_charged_once_for_each_cluster() {
    run("duplicated", async |s| {
        let members = s.members().count();
        let queue = s.queue("q", json!({"cpu": "10"})).await?;
        let workload = job("copies", &queue, &[task("worker", 2, "500m", "sleep 3")]);
        s.submit(Kind::Job, workload, &duplicated()).await?;
        let clusters = s.until_placed("copies-job").await?;
        ensure!(clusters.len() == members, "{clusters:?}");
        let charged = caldera_core::quantity::Quantity::from_units(i64::try_from(members)?).to_string();
        s.until(Kind::Queue, &queue, "is charged for each copy", |queue| {
            queue["status"]["allocated"]["cpu"] == charged.as_str()
        })
        .await?;
        let done = s.until_phase("copies", "Completed").await?;
        ensure!(number(&done["status"]["succeeded"]) == 2 * u64::try_from(members)?, "{}", done["status"]);
        Ok(())
    });
}

#[test]
fn a_split_job_whose_master_is_done_is_done_in_every_member() {
    run("master", async |s| {
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        let members: Vec<String> = s.members().map(str::to_owned).collect();
        ensure!(members.len() >= 2, "splitting needs two members");
        let mut master = task("master", 1, "100m", "sleep 2");
        master["policies"] = json!([{"event": "TaskCompleted", "action": "CompleteJob"}]);
        let workload = job("led", &queue, &[master, task("worker", 3, "100m", "sleep 3600")]);
        let weight = |member: &str| json!({"targetCluster": {"clusterNames": [member]}, "weight": 1});
        let placement = json!({
            "replicaScheduling": {
                "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
                "weightPreference": {"staticWeightList": [weight(&members[0]), weight(&members[1])]},
            },
            "clusterAffinity": {"clusterNames": [members[0], members[1]]},
        });
        s.submit(Kind::Job, workload, &placement).await?;
        let clusters = s.until_placed("led-job").await?;
        ensure!(clusters.len() == 2, "{clusters:?}");
        s.until_phase("led", "Running").await?;
        let done = s.until_phase("led", "Completed").await?;
        ensure!(number(&done["status"]["running"]) == 0, "{}", done["status"]);
        s.until(Kind::Queue, &queue, "holds nothing", |queue| {
            queue["status"]["allocated"]["cpu"].as_str().is_none_or(|cpu| cpu == "0")
        })
        .await?;
        let left = s.until_placed("led-job").await?;
        ensure!(left.len() == 1, "workers that serve nobody are still placed: {left:?}");
        Ok(())
    });
}

#[test]
fn a2_29_a_split_job_is_not_completed_while_a_member_runs() {
    run("status", async |s| {
        let queue = s.queue("q", json!({})).await?;
        let members: Vec<String> = s.members().map(str::to_owned).collect();
        ensure!(members.len() >= 2, "splitting needs two members");
        let workload = job("uneven", &queue, &[task("a", 2, "100m", "sleep 3600"), task("b", 2, "100m", "sleep 3600")]);
        let mut placement = json!({"replicaScheduling": {
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            "weightPreference": {"staticWeightList": [
                {"targetCluster": {"clusterNames": [members[0]]}, "weight": 1},
                {"targetCluster": {"clusterNames": [members[1]]}, "weight": 1},
            ]},
        }});
        placement["clusterAffinity"] = json!({"clusterNames": [members[0], members[1]]});
        s.submit(Kind::Job, workload, &placement).await?;
        let clusters = s.until_placed("uneven-job").await?;
        ensure!(clusters.len() == 2, "{clusters:?}");
        s.until(Kind::Job, "uneven", "runs in both", |job| job["status"]["running"] == 4).await?;
        s.complete_job_in_members("uneven", &clusters[..1]).await?;
        let half = s.until(Kind::Job, "uneven", "is half done", |job| job["status"]["succeeded"] == 2).await?;
        ensure!(half["status"]["state"]["phase"] == "Running", "{}", half["status"]);
        s.complete_job_in_members("uneven", &clusters[1..]).await?;
        let done = s.until_phase("uneven", "Completed").await?;
        ensure!(number(&done["status"]["succeeded"]) == 4, "{}", done["status"]);
        ensure!(number(&done["status"]["running"]) == 0, "{}", done["status"]);
        Ok(())
    });
}

/// A real Volcano forgets the pods of a part that has completed (volcano#4616).
#[test]
fn a_part_that_completes_first_holds_nothing_any_more_and_the_gang_goes_on() {
    run("part", async |s| {
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        let members: Vec<String> = s.members().map(str::to_owned).collect();
        ensure!(members.len() >= 2, "splitting needs two members");
        let mut tasks = [task("quick", 2, "100m", "sleep 2"), task("slow", 2, "100m", "sleep 600")];
        for (task, member) in tasks.iter_mut().zip(&members) {
            let nodes = s.list_in_member(member, Kind::Node, None).await;
            let node = nodes.first().context("a member without nodes")?["metadata"]["name"].clone();
            task["template"]["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
        }
        let workload = s.submit(Kind::Job, job("parts", &queue, &tasks), &aggregated()).await?;
        let clusters = s.until_placed("parts-job").await?;
        ensure!(clusters == [(members[0].clone(), 2), (members[1].clone(), 2)], "{clusters:?}");
        s.until_in_member(&members[0], Kind::Job, "parts", "has completed", |copy| {
            copy["status"]["state"]["phase"] == "Completed"
        })
        .await?;
        s.until(Kind::Queue, &queue, "is charged what still runs", |queue| {
            queue["status"]["allocated"]["cpu"] == "0.2"
        })
        .await?;
        s.until(Kind::Job, "parts", "runs on with both parts counted", |whole| {
            let status = &whole["status"];
            status["state"]["phase"] == "Running"
                && (number(&status["running"]), number(&status["succeeded"])) == (2, 2)
        })
        .await?;
        s.until_podgroup(&workload, "says that it runs", |group| {
            group["status"]["phase"] == "Running" && group["status"]["succeeded"] == 2
        })
        .await?;
        Ok(())
    });
}
