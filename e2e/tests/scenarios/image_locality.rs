//! A job goes to the cluster whose nodes have its image.

use std::time::Duration;

use anyhow::bail;
use caldera_e2e::{
    Scenario,
    kinds::Kind,
    manifest::{aggregated, job, task},
    run_alone, skip,
};
use serde_json::{Value, json};
use tokio::time::Instant;

/// Says which images the nodes of a member have.
async fn tell_images(
    s: &Scenario,
    member: &str,
    nodes: &[Value],
    images: impl Fn(&Value) -> Value,
) -> anyhow::Result<()> {
    for node in nodes {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        s.write_status_in_member(member, Kind::Node, name, &json!({"images": images(node)})).await?;
    }
    Ok(())
}

/// A job in one of these clusters; where it went.
async fn place(s: &Scenario, name: &str, queue: &str, image: &str, among: &[&str]) -> anyhow::Result<String> {
    let mut task = task("a", 2, "100m", "sleep 600");
    task["template"]["spec"]["containers"][0]["image"] = image.into();
    let mut policy = aggregated();
    policy["clusterAffinity"] = json!({"clusterNames": among});
    s.submit(Kind::Job, job(name, queue, &[task]), &policy).await?;
    Ok(s.until_placed(&format!("{name}-job")).await?[0].0.clone())
}

#[test]
fn of_two_clusters_a_job_goes_to_the_one_whose_nodes_have_its_image() {
    run_alone("images", async |s| {
        let members: Vec<String> = s.members().map(str::to_owned).collect();
        let [one, two, ..] = &members[..] else {
            return skip("there is one member");
        };
        let among = [one.as_str(), two.as_str()];
        let queue = s.queue("q", json!({})).await?;
        // What it has no tag for is the latest.
        let image = format!("registry.example:5000/{}/train", s.namespace);
        // Where its pods are it is tighter from then on: the next ones go there too, if nothing else tells them apart.
        let tight = place(&s, "first", &queue, &image, &among).await?;
        let again = place(&s, "second", &queue, &image, &among).await?;
        anyhow::ensure!(tight == again, "first in {tight}, then in {again}");
        let other = if tight == *one { two } else { one };
        let nodes = s.list_in_member(other, Kind::Node, None).await;
        let pulled = json!([{"names": [format!("{image}:latest")], "sizeBytes": 4_u64 << 30}]);
        tell_images(&s, other, &nodes, |_| pulled.clone()).await?;
        let look = async {
            // It is known once its event has come, or with a collector's next heartbeat.
            let deadline = Instant::now() + Duration::from_secs(120);
            for attempt in 0.. {
                let name = format!("job-{attempt}");
                if place(&s, &name, &queue, &image, &among).await? == *other {
                    return Ok(());
                }
                // Else there would be no place left but in the other.
                s.delete(Kind::Job, &name).await?;
                if Instant::now() > deadline {
                    bail!("{attempt} jobs went to {tight}, though the image is in {other}");
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            Ok(())
        };
        let found = look.await;
        tell_images(&s, other, &nodes, |node| node["status"]["images"].clone()).await?;
        found
    });
}
