//! Plain Pods of one group: one gang on the host.

use anyhow::ensure;
use caldera_e2e::{
    kinds::Kind,
    manifest::{aggregated, job, task},
    run,
};
use serde_json::{Value, json};

fn pod(name: &str, queue: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "labels": {"volcano.sh/queue-name": queue},
            "annotations": {
                "scheduling.k8s.io/group-name": "ring", "scheduling.volcano.sh/group-min-member": "2",
            },
        },
        "spec": {
            "schedulerName": "volcano", "restartPolicy": "Never",
            "containers": [{
                "name": "main", "image": "busybox:1.36", "command": ["sh", "-c", "sleep 600"],
                "resources": {"requests": {"cpu": "100m", "memory": "16Mi"}},
            }],
        },
    })
}

#[test]
fn pods_of_one_group_start_together_and_their_copies_name_no_group() {
    run("group-pods", async |s| {
        let queue = s.queue("q", json!({"cpu": "250m"})).await?;
        let first = job("first", &queue, &[task("worker", 1, "100m", "sleep 600")]);
        s.submit(Kind::Job, first, &aggregated()).await?;
        s.until_phase("first", "Running").await?;
        let mut pods = Vec::new();
        for name in ["ring-0", "ring-1"] {
            pods.push(s.submit(Kind::Pod, pod(name, &queue), &aggregated()).await?);
        }
        // Each would fit alone.
        for pod in &pods {
            let waits = |group: &Value| {
                let told = group["status"]["conditions"][0]["message"].as_str().unwrap_or_default();
                told.contains("needs cpu 0.2, used 0.1 of 0.25") && told.contains("one of 2 Pods of group ring")
            };
            s.until_podgroup(pod, "says that it waits with the other", waits).await?;
        }
        s.delete(Kind::Job, "first").await?;
        for name in ["ring-0", "ring-1"] {
            let clusters = s.until_placed(&format!("{name}-pod")).await?;
            ensure!(clusters.len() == 1, "{name} is in {clusters:?}");
            let runs = |pod: &Value| pod["status"]["phase"] == "Running";
            let copy = s.until_in_member(&clusters[0].0, Kind::Pod, name, "runs", runs).await?;
            // Volcano's own, for this pod alone.
            let group = copy["metadata"]["annotations"]["scheduling.k8s.io/group-name"].as_str().unwrap_or_default();
            ensure!(group != "ring", "{name} is in group {group:?} in its member");
        }
        let used = |it: &Value| it["status"]["allocated"]["cpu"] == "0.2";
        s.until(Kind::Queue, &queue, "has both, once each", used).await?;
        Ok(())
    });
}
