//! Data that jobs claim: they run where it is, wait for it in words, and are left alone once they run.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::LazyLock,
    thread,
    time::Duration,
};

use anyhow::{Context, ensure};
use caldera_controller::catalogue::Catalogue;
use caldera_e2e::{
    Component, Scenario,
    kinds::Kind,
    manifest::{aggregated, deployment, job, task},
    run, run_alone, run_configured, run_with_components,
};
use serde_json::{Value, json};

async fn submit(s: &Scenario, name: &str, queue: &str) -> anyhow::Result<Value> {
    s.submit(Kind::Job, job(name, queue, &[task("a", 1, "100m", "sleep 600")]), &aggregated()).await
}

/// A source of the scenario's own.
async fn create_source(s: &Scenario, name: &str, clusters: &[&str]) -> anyhow::Result<()> {
    let name = s.own(name);
    let source = json!({
        "apiVersion": "datadependency.volcano.sh/v1alpha1", "kind": "DataSource", "metadata": {"name": name},
        "spec": {"system": "hive", "type": "table", "name": name, "locality": {"clusterNames": clusters}},
    });
    s.create(Kind::DataSource, source).await.map(drop)
}

async fn move_source(s: &Scenario, name: &str, clusters: &[&str]) -> anyhow::Result<()> {
    let spec = json!({"spec": {"locality": {"clusterNames": clusters}}});
    s.patch(Kind::DataSource, &s.own(name), &spec).await.map(drop)
}

/// A claim of the data of such a source, named like it.
fn claim(s: &Scenario, data: &str, workload: &Value) -> Value {
    json!({
        "apiVersion": "datadependency.volcano.sh/v1alpha1", "kind": "DataSourceClaim",
        "metadata": {"name": format!("{}-{data}", workload["name"].as_str().unwrap_or_default())},
        "spec": {
            "system": "hive", "dataSourceType": "table", "dataSourceName": s.own(data), "workload": workload,
        },
    })
}

fn volcano_job(name: &str) -> Value {
    json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": name})
}

async fn create_claim(s: &Scenario, data: &str, job: &str) -> anyhow::Result<()> {
    s.create(Kind::DataClaim, claim(s, data, &volcano_job(job))).await.map(drop)
}

fn is_in(claim: &Value, phase: &str) -> bool {
    claim["status"]["phase"] == phase
}

#[test]
fn a_job_waits_for_the_data_that_it_claims_and_runs_only_where_all_of_it_is() {
    run("data", async |s| {
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        let members: Vec<String> = s.members().map(str::to_owned).collect();
        let (first, last) = (members[0].as_str(), members[members.len() - 1].as_str());
        let all: Vec<&str> = members.iter().map(String::as_str).collect();
        create_source(&s, "everywhere", &all).await?;
        for data in ["everywhere", "users"] {
            create_claim(&s, data, "train").await?;
        }
        let train = submit(&s, "train", &queue).await?;
        let lacks = format!("no DataSource has system hive, type table, name {}", s.own("users"));
        s.until_podgroup(&train, "says what it waits for", |group| {
            let said = &group["status"]["conditions"];
            said.to_string().contains(&lacks) && said.to_string().contains("WaitingForData")
        })
        .await?;
        let waits = s.until(Kind::DataClaim, "train-users", "is pending", |it| is_in(it, "Pending")).await?;
        ensure!(waits["status"]["conditions"][0]["reason"] == "NoDataSource", "{waits}");
        create_source(&s, "users", &[last, "not-joined-yet"]).await?;
        let clusters = s.until_placed("train-job").await?;
        ensure!(clusters == [(last.to_owned(), 1)], "{clusters:?}");
        s.until_phase("train", "Running").await?;
        let bound = s.until(Kind::DataClaim, "train-users", "is bound", |it| is_in(it, "Bound")).await?;
        ensure!(bound["status"]["boundDataSource"] == s.own("users"), "{bound}");
        let counted = |it: &Value| it["status"]["boundClaims"] == 1;
        s.until(Kind::DataSource, &s.own("users"), "has one claim", counted).await?;
        // Services, too.
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        create_source(&s, "pages", &[first]).await?;
        s.create(Kind::DataClaim, claim(&s, "pages", &target)).await?;
        s.submit(Kind::Deployment, deployment("web", Some(&queue), 1, "100m"), &aggregated()).await?;
        let clusters = s.until_placed("web-deployment").await?;
        ensure!(clusters == [(first.to_owned(), 1)], "{clusters:?}");
        // Nowhere is all that this one claims.
        create_source(&s, "elsewhere", &["not-joined-yet"]).await?;
        create_claim(&s, "elsewhere", "lost").await?;
        let lost = submit(&s, "lost", &queue).await?;
        s.until_podgroup(&lost, "says where its data is", |group| {
            group["status"]["conditions"].to_string().contains("; its data is in not-joined-yet")
        })
        .await?;
        Ok(())
    });
}

/// Where other scenarios fill the cluster with the data it goes elsewhere, as it should.
#[test]
fn a_job_that_prefers_its_data_goes_there_and_waits_for_nothing() {
    run_alone("softdata", async |s| {
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        let members: Vec<String> = s.members().map(str::to_owned).collect();
        let soft = |data: &str, job: &str| {
            let mut claim = claim(&s, data, &volcano_job(job));
            claim["metadata"]["annotations"] = json!({"caldera.dev/data-locality": "preferred"});
            claim
        };
        s.create(Kind::DataClaim, soft("nowhere", "unknown")).await?;
        submit(&s, "unknown", &queue).await?;
        s.until_phase("unknown", "Running").await?;
        for (at, member) in members.iter().enumerate() {
            let name = format!("near-{at}");
            create_source(&s, &name, &[member]).await?;
            s.create(Kind::DataClaim, soft(&name, &name)).await?;
            s.until(Kind::DataClaim, &format!("{name}-{name}"), "is bound", |it| is_in(it, "Bound")).await?;
            submit(&s, &name, &queue).await?;
            let clusters = s.until_placed(&format!("{name}-job")).await?;
            ensure!(clusters == [(member.clone(), 1)], "{clusters:?}");
        }
        Ok(())
    });
}

#[test]
fn a2_46_a_job_that_runs_is_left_alone_whatever_becomes_of_its_data() {
    run_with_components("moved", async |s| {
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        let members: Vec<String> = s.members().map(str::to_owned).collect();
        let (here, there) = (members[0].as_str(), members[1].as_str());
        create_source(&s, "users", &[here]).await?;
        create_claim(&s, "users", "train").await?;
        submit(&s, "train", &queue).await?;
        s.until_phase("train", "Running").await?;
        let spec = async || {
            Ok::<_, anyhow::Error>(s.get(Kind::Binding, "train-job").await?.context("it is gone")?["spec"].clone())
        };
        let before = spec().await?;
        ensure!(before["clusters"][0]["name"] == here, "{before}");
        // The next one shows that the change was seen.
        move_source(&s, "users", &[there]).await?;
        create_claim(&s, "users", "next").await?;
        submit(&s, "next", &queue).await?;
        let clusters = s.until_placed("next-job").await?;
        ensure!(clusters == [(there.to_owned(), 1)], "{clusters:?}");
        for component in [Component::Controller, Component::Scheduler] {
            s.kill(component).await;
            s.resume(component).await?;
        }
        s.delete(Kind::DataSource, &s.own("users")).await?;
        s.until(Kind::DataClaim, "train-users", "is pending", |it| is_in(it, "Pending")).await?;
        // A claim that comes after the start, and one that goes.
        create_claim(&s, "nowhere", "train").await?;
        s.until(Kind::DataClaim, "train-nowhere", "is pending", |it| is_in(it, "Pending")).await?;
        s.delete(Kind::DataClaim, "train-users").await?;
        submit(&s, "last", &queue).await?;
        s.until_phase("last", "Running").await?;
        s.until_phase("train", "Running").await?;
        let after = spec().await?;
        ensure!(after == before, "before {before}\nafter {after}");
        Ok(())
    });
}

#[test]
fn a_claim_for_another_namespace_is_refused_in_words_and_one_that_makes_no_sense_by_the_server() {
    run("foreign", async |s| {
        let mut foreign = volcano_job("train");
        foreign["namespace"] = "kube-system".into();
        s.create(Kind::DataClaim, claim(&s, "users", &foreign)).await?;
        let told = |it: &Value| it["status"]["conditions"][0]["reason"] == "OtherNamespace";
        let claim = s.until(Kind::DataClaim, "train-users", "is refused", told).await?;
        ensure!(is_in(&claim, "Pending"), "{claim}");
        let source = json!({
            "apiVersion": "datadependency.volcano.sh/v1alpha1", "kind": "DataSource",
            "metadata": {"name": s.own("bad")},
            "spec": {
                "system": "", "type": "table", "name": "n", "reclaimPolicy": "Recycle",
                "locality": {"clusterNames": []},
            },
        });
        let error = format!("{:#}", s.create(Kind::DataSource, source).await.err().context("it is taken")?);
        ensure!(error.contains("spec.system") && error.contains("spec.reclaimPolicy"), "{error}");
        Ok(())
    });
}

/// A catalogue that finds data named `...at.CLUSTER` in that cluster, and no other.
static CATALOGUE: LazyLock<SocketAddr> = LazyLock::new(|| {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || listener.incoming().flatten().for_each(answer_question));
    address
});

fn answer_question(mut stream: TcpStream) {
    let mut asked = [0; 4096];
    let read = stream.read(&mut asked).unwrap_or(0);
    let asked = String::from_utf8_lossy(&asked[..read]).into_owned();
    let known = asked.split(' ').nth(1).and_then(|path| path.split_once("at."));
    let (status, body) = match known {
        Some((_, cluster)) => ("200 OK", json!({"clusterNames": [cluster]}).to_string()),
        None => ("404 Not Found", String::new()),
    };
    let length = body.len();
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
    drop(stream.write_all(answer.as_bytes()));
}

#[test]
fn a_catalogue_says_where_claimed_data_is_and_its_source_goes_with_its_claim() {
    let ask = |config: &mut caldera_controller::Config| {
        let url = format!("http://{}/v1/{{system}}/{{type}}/{{name}}", *CATALOGUE);
        let timeout = Duration::from_secs(10);
        config.catalogue = url.parse().ok().map(|url| Catalogue { url, timeout });
    };
    run_configured("catalogue", ask, async |s| {
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        let member = s.members().last().context("there is no member")?.to_owned();
        create_claim(&s, "unknown", "lost").await?;
        let lost = submit(&s, "lost", &queue).await?;
        let data = format!("at.{member}");
        create_claim(&s, &data, "train").await?;
        submit(&s, "train", &queue).await?;
        let clusters = s.until_placed("train-job").await?;
        ensure!(clusters == [(member, 1)], "{clusters:?}");
        let name = format!("train-{data}");
        let claim = s.until(Kind::DataClaim, &name, "is bound", |it| is_in(it, "Bound")).await?;
        let source = claim["status"]["boundDataSource"].as_str().unwrap_or_default().to_owned();
        ensure!(source.starts_with("catalogue-"), "{claim}");
        let counted = |it: &Value| it["status"]["boundClaims"] == 1;
        s.until(Kind::DataSource, &source, "has one claim", counted).await?;
        s.until_podgroup(&lost, "waits", |it| it["status"]["conditions"].to_string().contains("WaitingForData"))
            .await?;
        s.delete(Kind::DataClaim, &name).await?;
        s.until_gone(Kind::DataSource, &source).await?;
        s.until_phase("train", "Running").await?;
        Ok(())
    });
}
