//! Attacks of a tenant with the rights that stock Karmada aggregates into role `edit`: what is admitted and placed is
//! not theirs to write, and what is written all the same by somebody who may is worth nothing.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use caldera_e2e::{
    PATIENCE,
    kinds::Kind,
    manifest::{aggregated, deployment, job, task},
    run,
    scenario::Scenario,
};
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const WORK: &str = "/apis/work.karmada.io/v1alpha2";

/// Sends a request as somebody; the answer of the API server, an error if it refuses.
async fn send(s: &Scenario, user: Option<&str>, method: &str, path: &str, body: &Value) -> Result<Value, kube::Error> {
    let form = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let mut request = http::Request::builder().method(method).uri(path).header("content-type", form);
    for (name, value) in user.into_iter().flat_map(|user| [("user", user), ("group", "system:authenticated")]) {
        request = request.header(format!("impersonate-{name}"), value);
    }
    let request = request.body(body.to_string().into_bytes()).map_err(kube::Error::HttpError)?;
    s.host().request(request).await
}

/// Gives user `tenant` what `karmada-edit` gives in this namespace.
async fn become_editor(s: &Scenario, namespace: &str) -> anyhow::Result<()> {
    let rules = json!([{
        "apiGroups": ["work.karmada.io"], "verbs": ["get", "list", "watch", "create", "update", "patch"],
        "resources": ["resourcebindings", "resourcebindings/status", "works", "works/status"],
    }]);
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "editor"}, "rules": rules,
    });
    let bound = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "editor"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "editor"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant"}],
    });
    for (plural, object) in [("roles", role), ("rolebindings", bound)] {
        send(s, None, "POST", &format!("{RBAC}/namespaces/{namespace}/{plural}"), &object).await?;
    }
    // An API server learns of its own roles through a watch.
    let path = format!("{WORK}/namespaces/{namespace}/resourcebindings");
    let known = async {
        while send(s, Some("tenant"), "GET", &path, &json!({})).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, known).await.context("the role is not in force")
}

/// The record, the gate and the suspension in one patch: six cores would run in a queue that may have one.
fn forgery(queue: &str) -> Value {
    let record = json!({
        "queue": queue, "priority": 0, "copies": 1, "tasks": {"a": 3}, "charged": {"cpu": "1800m", "pods": "3"},
    });
    json!({
        "metadata": {"annotations": {"caldera.dev/gate": "open", "caldera.dev/admission": record.to_string()}},
        "spec": {"suspension": {"scheduling": false}},
    })
}

/// A job that its queue never admits, and where its binding is.
async fn greedy(s: &Scenario) -> anyhow::Result<(String, String)> {
    let queue = s.queue("q", json!({"cpu": "1"})).await?;
    let workload = job("greedy", &queue, &[task("a", 3, "600m", "sleep 60")]);
    let workload = s.submit(Kind::Job, workload, &aggregated()).await?;
    s.until_podgroup(&workload, "waits", |group| {
        group["status"]["conditions"].to_string().contains("ExceedsCapability")
    })
    .await?;
    let namespace = workload["metadata"]["namespace"].as_str().context("no namespace")?;
    Ok((queue, namespace.to_owned()))
}

#[test]
fn a_tenant_can_not_write_what_is_admitted_and_placed() {
    run("tenant", async |s| {
        let (queue, namespace) = greedy(&s).await?;
        become_editor(&s, &namespace).await?;
        let path = format!("{WORK}/namespaces/{namespace}/resourcebindings/greedy-job");
        let absurd = json!({"spec": {"clusters": [{"name": "nowhere", "replicas": 2_147_483_647}]}});
        let ended = json!({"status": {"aggregatedStatus": [{"clusterName": "m1", "status": {"state": {"phase": "Completed"}}}]}});
        let attacks = [
            (path.clone(), forgery(&queue), "caldera.dev/"),
            (path.clone(), absurd, "clusters"),
            (format!("{path}/status"), ended, "status"),
        ];
        for (path, attack, words) in attacks {
            match send(&s, Some("tenant"), "PATCH", &path, &attack).await {
                Ok(binding) => bail!("it was stored: {binding}"),
                Err(kube::Error::Api(status)) => {
                    ensure!(status.message.contains(words) && status.message.contains("alone"), "{}", status.message);
                }
                Err(error) => return Err(error.into()),
            }
        }
        // What is theirs stays theirs.
        let own = json!({"metadata": {"annotations": {"team": "own"}}});
        send(&s, Some("tenant"), "PATCH", &path, &own).await?;
        Ok(())
    });
}

#[test]
fn a_record_that_is_forged_all_the_same_is_taken_away_and_its_queue_goes_on() {
    run("forged", async |s| {
        let (queue, _) = greedy(&s).await?;
        s.patch(Kind::Binding, "greedy-job", &forgery(&queue)).await?;
        s.until_told("greedy", "ForgedRecord").await?;
        s.until(Kind::Binding, "greedy-job", "is closed again", |binding| {
            let annotations = &binding["metadata"]["annotations"];
            annotations["caldera.dev/admission"].is_null()
                && annotations["caldera.dev/gate"] == "closed"
                && binding["spec"]["suspension"]["scheduling"] == true
                && binding["spec"]["clusters"].as_array().is_none_or(Vec::is_empty)
        })
        .await?;
        // The queue, and the fleet, go on.
        s.submit(Kind::Job, job("small", &queue, &[task("a", 1, "500m", "sleep 1")]), &aggregated()).await?;
        s.until_phase("small", "Completed").await?;
        Ok(())
    });
}

/// Its pods would hold a queue of others in the member, and nobody would be charged.
#[test]
fn an_override_brings_no_unqueued_workload_into_somebodys_queue() {
    run("override", async |s| {
        let victim = s.queue("victim", json!({"cpu": "1"})).await?;
        let member = s.members().next().context("no member")?.to_owned();
        let only = json!({"clusterAffinity": {"clusterNames": [member]}});
        s.submit(Kind::Deployment, deployment("web", None, 1, "50m"), &only).await?;
        s.until_in_member(&member, Kind::Deployment, "web", "is there", |_| true).await?;
        let annotations = json!({"scheduling.volcano.sh/queue-name": victim});
        let plaintext = json!([
            {"path": "/spec/template/metadata/annotations", "operator": "add", "value": annotations},
            {"path": "/spec/template/spec/schedulerName", "operator": "add", "value": "volcano"},
        ]);
        let steals = json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy", "metadata": {"name": "steals"},
            "spec": {
                "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}],
                "overrideRules": [{"overriders": {"plaintext": plaintext}}],
            },
        });
        s.create(Kind::OverridePolicy, steals).await?;
        let words = format!("its pods would be in queue {victim} of the member, and no queue was charged");
        s.until_told_that("web", "SyncWorkFailed", &words).await?;
        let copy = s.get_in_member(&member, Kind::Deployment, "web").await?.context("it is gone")?;
        ensure!(!copy["spec"]["template"].to_string().contains(&victim), "{copy}");
        // Without the name it goes on as any workload that nobody queues.
        s.delete(Kind::OverridePolicy, "steals").await?;
        s.patch(Kind::Deployment, "web", &json!({"spec": {"replicas": 2}})).await?;
        s.until_in_member(&member, Kind::Deployment, "web", "has two", |web| web["spec"]["replicas"] == 2).await?;
        Ok(())
    });
}

#[test]
fn a_queue_named_root_is_refused() {
    run("root", async |s| {
        match s.create(Kind::Queue, caldera_e2e::manifest::queue("root", &json!({"cpu": "1"}))).await {
            Ok(_) => bail!("queue root was accepted"),
            Err(error) => {
                ensure!(error.to_string().contains("is the whole fleet"), "{error}");
                Ok(())
            }
        }
    });
}
