//! Tasks that want to be together.

use anyhow::{Context, ensure};
use caldera_e2e::{
    capacity::free_cores,
    kinds::Kind,
    manifest::{aggregated, job, task},
    run_alone,
};
use serde_json::json;

#[test]
fn a_split_job_of_ps_and_workers_has_no_ps_where_there_are_no_workers() {
    run_alone("together", async |s| {
        let queue = s.queue("q", json!({})).await?;
        let cores = free_cores(&s).await;
        // Two-core pods on the two smallest members: the workers fill the larger of them, all pods need both.
        let mut sizes: Vec<(u32, String)> =
            cores.iter().map(|(m, nodes)| (nodes.iter().map(|n| n / 2).sum(), m.clone())).collect();
        sizes.sort();
        let [smaller, larger, ..] = sizes.as_slice() else { anyhow::bail!("splitting needs two members") };
        ensure!(smaller.0 >= 2 && larger.0 >= 3, "the members are too small: {sizes:?}");
        let tasks = [task("worker", larger.0, "2", "sleep 1"), task("ps", 2, "2", "sleep 1")];
        let mut workload = job("trains", &queue, &tasks);
        workload["spec"]["minAvailable"] = (larger.0 + 2).into();
        workload["metadata"]["annotations"] = json!({
            "volcano.sh/task-topology-affinity": "ps,worker", "volcano.sh/task-topology-task-order": "ps,worker",
        });
        let mut placement = aggregated();
        placement["clusterAffinity"] = json!({"clusterNames": [smaller.1, larger.1]});
        s.submit(Kind::Job, workload, &placement).await?;
        let clusters = s.until_placed("trains-job").await?;
        ensure!(clusters.len() == 2, "split over {clusters:?}");
        for (member, _) in &clusters {
            let copy = s.until_in_member(member, Kind::Job, "trains", "is there", |_| true).await?;
            let pods = |name: &str| {
                let tasks = copy["spec"]["tasks"].as_array().into_iter().flatten();
                tasks.filter(|task| task["name"] == name).filter_map(|task| task["replicas"].as_u64()).sum::<u64>()
            };
            ensure!(pods("ps") == 0 || pods("worker") > 0, "{member} has ps alone: {copy}");
            let kept = copy["metadata"]["annotations"]["volcano.sh/task-topology-affinity"].as_str();
            ensure!(kept.context("the member is not told")? == "ps,worker", "{copy}");
        }
        s.until_phase("trains", "Completed").await?;
        Ok(())
    });
}
