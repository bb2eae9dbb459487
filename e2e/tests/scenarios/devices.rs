//! Pods claim devices: a gang is charged for them, split by where they are, and takes its claims along.

use anyhow::{Context, ensure};
use caldera_e2e::{
    Scenario,
    kinds::Kind,
    manifest::{aggregated, job, task},
    run_alone, skip,
};
use serde_json::{Value, json};

fn named(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn class_of(s: &Scenario) -> String {
    format!("{}.example.com", s.own("gpu"))
}

/// The class, as drivers' installations have it, and two devices of one node.
async fn publish(s: &Scenario, member: &str, node: &str) -> anyhow::Result<()> {
    let driver = class_of(s);
    let class = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": driver},
        "spec": {"selectors": [{"cel": {
            "expression": format!("device.driver == '{driver}' && device.attributes['{driver}'].healthy"),
        }}]},
    });
    s.create_in_member(member, Kind::DeviceClass, class).await?;
    let device = |name: &str, healthy: bool| json!({"name": name, "attributes": {"healthy": {"bool": healthy}}});
    let slice = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": s.own("slice")},
        "spec": {
            "driver": driver, "nodeName": node, "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [device("gpu-0", true), device("gpu-1", true), device("gpu-2", false)],
        },
    });
    s.create_in_member(member, Kind::ResourceSlice, slice).await
}

async fn retract(s: &Scenario, member: &str) -> anyhow::Result<()> {
    s.delete_in_member(member, Kind::ResourceSlice, &s.own("slice")).await?;
    s.delete_in_member(member, Kind::DeviceClass, &class_of(s)).await
}

fn claiming(name: &str, queue: &str, pods: u32, template: &str) -> Value {
    let mut worker = task("worker", pods, "100m", "sleep 600");
    worker["template"]["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimTemplateName": template}]);
    worker["template"]["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": "gpu"}]);
    job(name, queue, &[worker])
}

fn waits_with(words: String) -> impl Fn(&Value) -> bool {
    move |group| {
        let conditions = group["status"]["conditions"].as_array().into_iter().flatten();
        conditions.filter_map(|condition| condition["message"].as_str()).any(|message| message.contains(&words))
    }
}

async fn play(s: &Scenario, members: [&str; 2]) -> anyhow::Result<()> {
    let resource = format!("deviceclass/{}", class_of(s));
    let queue = s.queue("q", json!({&resource: "3"})).await?;
    let mut policy = aggregated();
    policy["clusterAffinity"] = json!({"clusterNames": members});

    let early = s.submit(Kind::Job, claiming("early", &queue, 1, "one"), &policy).await;
    let refused = early.err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(refused.contains("which there is not: create that first"), "{refused}");

    let request = json!({"name": "r", "exactly": {"deviceClassName": class_of(s)}});
    let template = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "one"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    });
    s.create(Kind::ResourceClaimTemplate, template).await?;
    // No member has three that are healthy.
    s.submit(Kind::Job, claiming("split", &queue, 3, "one"), &policy).await?;
    let clusters = s.until_placed("split-job").await?;
    ensure!(clusters.iter().map(|(_, pods)| pods).sum::<u64>() == 3 && clusters.len() == 2, "{clusters:?}");
    let next = s.submit(Kind::Job, claiming("next", &queue, 1, "one"), &policy).await?;
    s.until_podgroup(&next, "waits for a device", waits_with(format!("needs {resource} 1, used 3 of 3"))).await?;
    s.until_phase("split", "Running").await?;
    for (member, pods) in &clusters {
        let claims = s.list_in_member(member, Kind::ResourceClaim, None).await;
        let given = |claim: &&Value| {
            let results = claim["status"]["allocation"]["devices"]["results"].as_array().into_iter().flatten();
            results.filter(|result| result["driver"] == class_of(s)).count() == 1
        };
        let count = claims.iter().filter(given).count();
        ensure!(u64::try_from(count)? == *pods, "{member} gave {count} devices to {pods} pods: {claims:?}");
    }

    // What the template says by now changes nothing of what is charged, or sent.
    s.delete(Kind::ResourceClaimTemplate, "one").await?;
    s.delete(Kind::Job, "split").await?;
    s.until_phase("next", "Running").await?;
    let (member, _) = s.until_placed("next-job").await?.pop().context("it is placed")?;
    let copy = s.until_in_member(&member, Kind::Job, "next", "is there", |_| true).await?;
    let name = copy["spec"]["tasks"][0]["template"]["spec"]["resourceClaims"][0]["resourceClaimTemplateName"].as_str();
    ensure!(name.is_some_and(|name| name.starts_with("next-devices-")), "{copy}");
    Ok(())
}

#[test]
fn pods_that_claim_devices_are_charged_for_them_and_go_where_they_are() {
    run_alone("devices", async |s| {
        let mut members = Vec::new();
        for member in s.members() {
            if let Some(node) = s.list_in_member(member, Kind::Node, None).await.first() {
                members.push((member.to_owned(), named(node).to_owned()));
            }
        }
        let [(one, node), (other, other_node), ..] = &members[..] else {
            return skip("no two members have nodes");
        };
        let mut result = publish(&s, one, node).await;
        if result.is_ok() {
            result = publish(&s, other, other_node).await;
        }
        if result.is_ok() {
            result = play(&s, [one, other]).await;
        }
        for member in [one, other] {
            result = result.and(retract(&s, member).await);
        }
        result
    });
}
