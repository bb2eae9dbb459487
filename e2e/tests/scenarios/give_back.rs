//! Lent capacity comes back, and higher priorities go first: who gives way, and what becomes of them.

use anyhow::{Context, ensure};
use caldera_e2e::{
    kinds::Kind,
    manifest::{aggregated, job, task},
    run,
    scenario::Scenario,
};
use serde_json::{Value, json};

/// A queue of at most one cpu, and two below it that deserve half each.
async fn halves(s: &Scenario) -> anyhow::Result<[String; 2]> {
    let queue = |name: &str, spec: Value| {
        let mut object = caldera_e2e::manifest::queue(name, &json!({}));
        object["spec"] = spec;
        object
    };
    let whole = s.own("whole");
    let one = json!({"cpu": "1"});
    s.create(Kind::Queue, queue(&whole, json!({"reclaimable": true, "capability": one, "deserved": one}))).await?;
    let halves = ["lender", "borrower"].map(|name| s.own(name));
    for name in &halves {
        let spec = json!({"reclaimable": true, "parent": whole, "deserved": {"cpu": "500m"}});
        s.create(Kind::Queue, queue(name, spec)).await?;
    }
    Ok(halves)
}

fn clusters(binding: &Value) -> usize {
    binding["spec"]["clusters"].as_array().map_or(0, Vec::len)
}

#[test]
fn a2_13_lent_capacity_comes_back_and_who_gave_it_starts_again_later() {
    run("reclaim", async |s| {
        let [lender, borrower] = halves(&s).await?;
        for name in ["kept", "lent"] {
            s.submit(Kind::Job, job(name, &borrower, &[task("a", 1, "500m", "sleep 600")]), &aggregated()).await?;
            // Where both begin in the same second the older counts first, and then the names: as they are here.
            s.until_placed(&format!("{name}-job")).await?;
            s.until_phase(name, "Running").await?;
        }
        let mine = job("mine", &lender, &[task("a", 1, "500m", "sleep 3")]);
        s.submit(Kind::Job, mine, &aggregated()).await?;
        s.until_placed("mine-job").await?;
        let kept = s.get(Kind::Binding, "kept-job").await?.context("no binding")?;
        ensure!(clusters(&kept) == 1, "what the borrower deserves was taken: {kept}");
        s.until_told("lent", "Reclaimed").await?;
        // Its room is free again once the other one is done.
        s.until_phase("mine", "Completed").await?;
        s.until_placed("lent-job").await?;
        s.until_phase("lent", "Running").await?;
        Ok(())
    });
}

#[test]
fn surplus_pods_go_and_their_gang_goes_on() {
    run("surplus", async |s| {
        let [lender, borrower] = halves(&s).await?;
        let mut elastic = job("elastic", &borrower, &[task("a", 10, "100m", "sleep 600")]);
        elastic["spec"]["minAvailable"] = 2.into();
        s.submit(Kind::Job, elastic, &aggregated()).await?;
        s.until_phase("elastic", "Running").await?;
        let pods = |binding: &Value| -> u64 {
            let clusters = binding["spec"]["clusters"].as_array().into_iter().flatten();
            clusters.filter_map(|cluster| cluster["replicas"].as_u64()).sum()
        };
        let before = s.get(Kind::Binding, "elastic-job").await?.context("no binding")?;
        ensure!(pods(&before) == 10, "{before}");
        s.submit(Kind::Job, job("mine", &lender, &[task("a", 1, "300m", "sleep 1")]), &aggregated()).await?;
        s.until(Kind::Binding, "elastic-job", "has given up three pods", |binding| pods(binding) == 7).await?;
        s.until_phase("mine", "Completed").await?;
        let after = s.get(Kind::Job, "elastic").await?.context("no job")?;
        ensure!(after["status"]["state"]["phase"] == "Running", "{after}");
        Ok(())
    });
}

#[test]
fn a_higher_priority_preempts_who_says_that_it_may() {
    run("preempt", async |s| {
        let queue = s.queue("q", json!({"cpu": "500m"})).await?;
        let class = s.own("urgent");
        let object = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": class}, "value": 1000,
        });
        s.create(Kind::PriorityClass, object).await?;
        let mut low = job("low", &queue, &[task("a", 1, "500m", "sleep 600")]);
        low["metadata"]["annotations"] = json!({"volcano.sh/preemptable": "true"});
        s.submit(Kind::Job, low, &aggregated()).await?;
        s.until_placed("low-job").await?;
        let mut high = job("high", &queue, &[task("a", 1, "500m", "sleep 1")]);
        high["spec"]["priorityClassName"] = class.as_str().into();
        s.submit(Kind::Job, high, &aggregated()).await?;
        s.until_phase("high", "Completed").await?;
        s.until_placed("low-job").await?;
        Ok(())
    });
}
