//! Quota by card model, by Volcano's annotation of Queues and the label of nodes that names the model.

use std::sync::Arc;

use anyhow::ensure;
use caldera_e2e::{
    Scenario,
    kinds::Kind,
    manifest::{aggregated, deployment, job, queue, task},
    run_alone, skip,
};
use serde_json::{Value, json};

const GPU: &str = "nvidia.com/gpu";
const PRODUCT: &str = "nvidia.com/gpu.product";
const QUOTA: &str = "volcano.sh/card.quota";
const NAME: &str = "volcano.sh/card.name";

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn cards(node: &Value) -> u32 {
    node["status"]["allocatable"][GPU].as_str().and_then(|cards| cards.parse().ok()).unwrap_or(0)
}

/// A member with two nodes of four cards or more that nobody has named the model of.
async fn with_cards(s: &Scenario) -> Option<(String, Vec<Value>)> {
    for member in s.members() {
        let mut nodes = s.list_in_member(member, Kind::Node, None).await;
        nodes.retain(|node| cards(node) >= 4 && node["metadata"]["labels"][PRODUCT].is_null());
        if nodes.len() >= 2 {
            return Some((member.to_owned(), nodes));
        }
    }
    None
}

async fn name_model(s: &Scenario, member: &str, node: &Value, model: Option<&str>) -> anyhow::Result<()> {
    let labels = json!({"metadata": {"labels": {PRODUCT: model}}});
    s.patch_in_member(member, Kind::Node, text(node, "/metadata/name"), &labels).await
}

fn ask_for(pod: &mut Value, cards: u32, model: Option<&str>) {
    let asked = json!({GPU: cards.to_string()});
    pod["containers"][0]["resources"]["limits"] = asked.clone();
    pod["containers"][0]["resources"]["requests"][GPU] = asked[GPU].clone();
    pod["nodeSelector"] = model.map_or(Value::Null, |model| json!({PRODUCT: model}));
}

fn reason(group: &Value) -> &str {
    text(group, "/status/conditions/0/reason")
}

async fn play(s: &Scenario, member: &str, nodes: &[Value]) -> anyhow::Result<()> {
    let (top, leaf) = (s.own("top"), s.own("leaf"));
    let models = ["A", "B"].map(|model| format!("{model}-{}", std::process::id()));
    for (node, model) in nodes.iter().zip(&models) {
        name_model(s, member, node, Some(model)).await?;
    }
    let mut object = queue(&top, &json!({}));
    object["metadata"]["annotations"] = json!({QUOTA: r#"{"A": "four"}"#});
    let refused = s.create(Kind::Queue, object.clone()).await.err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(refused.contains(QUOTA) && refused.contains("no whole number of cards"), "{refused}");
    let (first, second) = (models[0].as_str(), models[1].as_str());
    object["metadata"]["annotations"] = json!({QUOTA: json!({first: 3, second: 1}).to_string()});
    s.create(Kind::Queue, object).await?;
    let mut below = queue(&leaf, &json!({}));
    below["spec"]["parent"] = json!(top);
    s.create(Kind::Queue, below).await?;
    s.until(Kind::Queue, &leaf, "is open", |queue| queue["status"]["state"] == "Open").await?;
    let on = |name: &str, cards: u32, model: Option<&str>| {
        let mut task = task("a", 1, "100m", "sleep 600");
        ask_for(&mut task["template"]["spec"], cards, model);
        job(name, &leaf, &[task])
    };

    // As soon as the webhook has seen the queue.
    let refused = async {
        for number in 0.. {
            if let Err(error) = s.create(Kind::Job, on(&format!("unnamed{number}"), 1, None)).await {
                let error = error.to_string();
                ensure!(error.contains(PRODUCT) && error.contains(first) && error.contains(&top), "{error}");
                return Ok(());
            }
        }
        Ok(())
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), refused).await??;

    // Three of the first model are the most, of the four that are idle; the second model has a quota of its own.
    s.submit(Kind::Job, on("runs", 2, Some(first)), &aggregated()).await?;
    ensure!(s.until_placed("runs-job").await? == [(member.to_owned(), 1)]);
    let waits = s.submit(Kind::Job, on("waits", 2, Some(first)), &aggregated()).await?;
    let group = s.until_podgroup(&waits, "waits for quota", |group| reason(group) == "WaitingForQuota").await?;
    let says = text(&group, "/status/conditions/0/message");
    ensure!(says.contains(&format!("{GPU}:{first}")) && says.contains(&top), "{says}");
    s.submit(Kind::Job, on("other", 1, Some(second)), &aggregated()).await?;
    s.until_placed("other-job").await?;

    // Other kinds say why they wait, and start once they name a model.
    let mut web = deployment("web", Some(&leaf), 1, "100m");
    ask_for(&mut web["spec"]["template"]["spec"], 1, None);
    let web = s.submit(Kind::Deployment, web, &aggregated()).await?;
    s.until_podgroup(&web, "names no model", |group| reason(group) == "NoCardQuota").await?;
    let select = json!({"spec": {"template": {"spec": {"nodeSelector": {PRODUCT: first}}}}});
    s.patch(Kind::Deployment, "web", &select).await?;
    s.until_placed("web-deployment").await?;
    let copy = s.until_in_member(member, Kind::Deployment, "web", "is there", |_| true).await?;
    ensure!(copy["spec"]["template"]["spec"]["nodeSelector"][PRODUCT] == first, "{copy}");

    // What comes free of the model is for who waits for it.
    s.delete(Kind::Job, "runs").await?;
    s.until_placed("waits-job").await?;
    choose_model(s, member, &leaf, first, second).await
}

/// With the first model used up, and the second too: who may use both waits for either, and is held to what comes free.
async fn choose_model(s: &Scenario, member: &str, leaf: &str, first: &str, second: &str) -> anyhow::Result<()> {
    let mut task = task("a", 1, "100m", "sleep 600");
    ask_for(&mut task["template"]["spec"], 1, None);
    task["template"]["metadata"]["annotations"] = json!({NAME: format!("{first}|{second}")});
    let chooses = s.submit(Kind::Job, job("chooses", leaf, &[task]), &aggregated()).await?;
    let group = s.until_podgroup(&chooses, "waits for quota", |group| reason(group) == "WaitingForQuota").await?;
    let says = text(&group, "/status/conditions/0/message");
    ensure!(says.contains(&format!("{GPU}:{first}")) && says.contains(&format!("nor on {second}")), "{says}");
    s.delete(Kind::Job, "other").await?;
    s.until_placed("chooses-job").await?;
    let copy = s.until_in_member(member, Kind::Job, "chooses", "is there", |_| true).await?;
    let required = "/spec/tasks/0/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    let terms = copy.pointer(&format!("{required}/nodeSelectorTerms"));
    let want = json!([{"matchExpressions": [{"key": PRODUCT, "operator": "In", "values": [second]}]}]);
    ensure!(terms == Some(&want), "{copy}");
    Ok(())
}

#[test]
fn queues_have_a_quota_of_each_card_model_and_jobs_name_theirs() {
    run_alone("card-quota", async |s: Arc<Scenario>| {
        let Some((member, nodes)) = with_cards(&s).await else {
            return skip("no member has two nodes with cards of an unnamed model");
        };
        let result = play(&s, &member, &nodes).await;
        for node in &nodes[..2] {
            name_model(&s, &member, node, None).await?;
        }
        result
    });
}
