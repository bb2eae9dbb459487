//! Namespaces: one that is deleted with its jobs, one that asks for queueing, and our own, which stays on the host.

use anyhow::{Context, ensure};
use caldera_e2e::{
    Scenario,
    kinds::Kind,
    manifest::{aggregated, deployment, job, policy, task},
    run,
};
use serde_json::{Value, json};

use super::starting::charged;

/// Creates a job and its policy in a namespace that is not the scenario's own.
async fn submit_in(s: &Scenario, namespace: &str, job: Value) -> anyhow::Result<()> {
    s.create_in(Kind::Policy, namespace, policy(&job, &aggregated())).await?;
    s.create_in(Kind::Job, namespace, job).await
}

#[test]
fn a_namespace_that_is_deleted_takes_its_jobs_with_it_and_gives_their_charge_back() {
    run("namespace", async |s| {
        let queue = s.queue("q", json!({"cpu": "200m"})).await?;
        let gone = s.own("gone");
        s.create(Kind::Namespace, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": gone}})).await?;
        submit_in(&s, &gone, job("runs", &queue, &[task("a", 2, "100m", "sleep 600")])).await?;
        s.until(Kind::Queue, &queue, "is full", |queue| charged(queue, "0.2")).await?;
        submit_in(&s, &gone, job("waits", &queue, &[task("a", 2, "100m", "sleep 1")])).await?;
        s.submit(Kind::Job, job("next", &queue, &[task("a", 2, "100m", "sleep 1")]), &aggregated()).await?;
        s.delete(Kind::Namespace, &gone).await?;
        s.until_phase("next", "Completed").await?;
        s.until(Kind::Queue, &queue, "is empty", |queue| charged(queue, "0")).await?;
        s.until_gone(Kind::Namespace, &gone).await?;
        for member in s.members() {
            let left = s.list_in_member(member, Kind::Job, Some(&gone)).await;
            ensure!(left.is_empty(), "{member} has {left:?}");
        }
        for kind in [Kind::Binding, Kind::PodGroup] {
            for name in ["runs-job", "waits-job", "runs-vcjob", "waits-vcjob"] {
                ensure!(s.get_in(kind, &gone, name).await?.is_none(), "{kind:?} {name} is left");
            }
        }
        Ok(())
    });
}

#[test]
fn a_deployment_without_a_queue_is_queued_where_its_namespace_asks_for_that() {
    run("opted-in", async |s| {
        let asks = json!({"metadata": {"labels": {"caldera.dev/queueing": "enabled"}}});
        s.patch(Kind::Namespace, &s.namespace, &asks).await?;
        s.submit(Kind::Deployment, deployment("web", None, 2, "50m"), &aggregated()).await?;
        s.until_placed("web-deployment").await?;
        let binding = s.get(Kind::Binding, "web-deployment").await?.context("no binding")?;
        let annotations = &binding["metadata"]["annotations"];
        ensure!(annotations["caldera.dev/gate"] == "open", "{annotations}");
        let record = annotations["caldera.dev/admission"].as_str().unwrap_or_default();
        ensure!(record.contains(r#""queue":"default""#), "{record}");
        s.until(Kind::Deployment, "web", "is ready", |web| web["status"]["readyReplicas"] == 2).await?;
        Ok(())
    });
}

#[test]
fn nothing_of_ours_is_in_members_beside_the_copies() {
    run("unseen", async |s| {
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        s.submit(Kind::Job, job("brief", &queue, &[task("a", 1, "50m", "sleep 1")]), &aggregated()).await?;
        s.until_phase("brief", "Completed").await?;
        for member in s.members() {
            let namespaces = s.list_in_member(member, Kind::Namespace, None).await;
            let ours = namespaces.iter().find(|namespace| namespace["metadata"]["name"] == "caldera-system");
            ensure!(!namespaces.is_empty() && ours.is_none(), "{member} has {ours:?}");
            let copies = s.list_in_member(member, Kind::Job, Some(&s.namespace)).await;
            for copy in &copies {
                let marks = copy["metadata"]["annotations"].as_object().into_iter().flatten();
                let of_host = |name: &&String| {
                    ["caldera.dev/gate", "caldera.dev/admission", "caldera.dev/eviction"].contains(&name.as_str())
                };
                let found: Vec<&String> = marks.map(|(name, _)| name).filter(of_host).collect();
                ensure!(found.is_empty(), "{member}: {found:?}");
            }
        }
        Ok(())
    });
}
