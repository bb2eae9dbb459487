//! A declared kind, an admin's own: its jobs wait, are placed whole, run, are evicted, end, and give their quota
//! back, as those of kinds told in code do. What tells it is the file that the docs name.

use anyhow::{Context, ensure};
use caldera_e2e::{Scenario, kinds::Kind, manifest::aggregated, run};
use serde_json::{Value, json};

use super::kinds::{define_everywhere, evict, pods, remove_everywhere};

const TRAIN_RUN: &str = include_str!("../../../manifests/kinds/trainrun.yaml");
const KIND: Kind = Kind::TrainRun;

fn train_run(name: &str, queue: &str) -> Value {
    json!({
        "apiVersion": "training.example.com/v1", "kind": "TrainRun", "metadata": {"name": name},
        "spec": {"queue": queue, "workers": [
            {"name": "leader", "replicas": 1, "template": pods("100m")},
            {"name": "worker", "replicas": 2, "template": pods("100m")},
        ]},
    })
}

/// Which kind of object each document of the file is.
fn kind_of(object: &Value) -> anyhow::Result<Kind> {
    Ok(match object["kind"].as_str().unwrap_or_default() {
        "WorkloadKind" => Kind::KindDeclaration,
        "ClusterRole" => Kind::ClusterRole,
        "ClusterRoleBinding" => Kind::ClusterRoleBinding,
        "ResourceInterpreterCustomization" => Kind::Customization,
        other => anyhow::bail!("no kind of the file: {other}"),
    })
}

/// Jobs that come before the kind is known are nobody's: one after the other is tried.
async fn wait_until_known(s: &Scenario, queue: &str) -> anyhow::Result<()> {
    for number in 0..100 {
        let name = format!("probe-{number}");
        s.submit(KIND, train_run(&name, queue), &aggregated()).await?;
        let binding = format!("{name}-trainrun");
        let found = s.until(Kind::Binding, &binding, "is there", |_| true).await?;
        s.delete(KIND, &name).await?;
        s.until_gone(KIND, &name).await?;
        if found["metadata"]["annotations"]["caldera.dev/gate"].is_string() {
            return Ok(());
        }
    }
    anyhow::bail!("the webhook knows no TrainRun")
}

async fn refuse_kinds_that_are_known(s: &Scenario, declaration: &Value) -> anyhow::Result<()> {
    for (group, kind, plural, why) in [
        ("work.karmada.io", "ResourceBinding", "resourcebindings", "a group of your own"),
        ("other.example.com", "RayJob", "things", "is a word for a kind that is known already"),
    ] {
        let mut wrong = declaration.clone();
        wrong["metadata"]["name"] = s.own(plural).into();
        for (field, value) in [("group", group), ("kind", kind), ("plural", plural)] {
            wrong["spec"][field] = value.into();
        }
        let told = s.create(Kind::KindDeclaration, wrong).await.err().context("it is taken")?.to_string();
        ensure!(told.contains(why), "{told}");
    }
    Ok(())
}

#[test]
fn a_kind_told_by_data_is_queued_placed_whole_evicted_and_completed() {
    run("own-kind", async |s| {
        define_everywhere(&s, &KIND.resource()).await?;
        let told = caldera_cli::manifests::parse_documents(TRAIN_RUN)?;
        let declaration = told.iter().find(|object| object["kind"] == "WorkloadKind").context("no WorkloadKind")?;
        refuse_kinds_that_are_known(&s, declaration).await?;
        for object in told {
            s.create_shared(kind_of(&object)?, object).await?;
        }
        let queue = s.queue("own-kind", json!({"cpu": "500m"})).await?;
        wait_until_known(&s, &queue).await?;

        let submitted = s.submit(KIND, train_run("a", &queue), &aggregated()).await?;
        let placed = s.until_placed("a-trainrun").await?;
        ensure!(placed.len() == 1, "{placed:?}");
        let mut cluster = placed[0].0.clone();
        let copy = s.until_in_member(&cluster, KIND, "a", "is there", |_| true).await?;
        ensure!(copy["spec"] == submitted["spec"], "the copy is not as it was written: {}", copy["spec"]);
        s.until(Kind::Queue, &queue, "is charged", |queue| queue["status"]["allocated"]["cpu"] == "0.3").await?;
        let running = json!({"phase": "Running", "ready": 3});
        s.write_status_in_member(&cluster, KIND, "a", &running).await?;
        let runs = |group: &Value| group["status"]["phase"] == "Running";
        s.until_podgroup(&submitted, "runs", runs).await?;
        cluster = evict(&s, KIND, "a", ("a-trainrun", &cluster)).await?;
        s.write_status_in_member(&cluster, KIND, "a", &running).await?;
        s.until_podgroup(&submitted, "runs again", runs).await?;

        let waits = s.submit(KIND, train_run("b", &queue), &aggregated()).await?;
        let told_of_quota = |group: &Value| group["status"]["conditions"].to_string().contains("cpu");
        s.until_podgroup(&waits, "waits for quota", told_of_quota).await?;
        s.write_status_in_member(&cluster, KIND, "a", &json!({"phase": "Succeeded"})).await?;
        s.until_placed("b-trainrun").await?;
        s.delete(KIND, "b").await?;

        let mut scaled = train_run("c", &queue);
        scaled["spec"]["autoscale"] = json!({"max": 9});
        let scaled = s.submit(KIND, scaled, &aggregated()).await?;
        let told = |group: &Value| group["status"]["conditions"].to_string().contains("spec.autoscale");
        s.until_podgroup(&scaled, "says what its kind refuses", told).await?;
        let mut suspended = train_run("d", &queue);
        suspended["spec"]["suspend"] = true.into();
        let suspended = s.submit(KIND, suspended, &aggregated()).await?;
        let told = |group: &Value| group["status"]["conditions"].to_string().contains("spec.suspend");
        s.until_podgroup(&suspended, "says by what it is suspended", told).await?;
        s.delete(KIND, "c").await?;
        s.delete(KIND, "d").await?;
        remove_everywhere(&s, &KIND.resource()).await
    });
}
