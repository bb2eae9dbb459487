//! Looks into members: by the way that the components reach them, else through Karmada's cluster proxy.

use std::{collections::BTreeSet, time::Duration};

use caldera_crds::{
    karmada::cluster::{Cluster, READY, SyncMode},
    placement::{read_autoscaling, read_maintenance},
};
use caldera_runtime::{client::WriteCounts, members, watch::api_resource};
use futures::future::join_all;
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;

use super::{read_queue, read_server_clock};
use crate::{
    doctor::facts::{MemberFacts, MemberInside},
    objects::{self, Visible, list_objects, name_of, read_list_at, read_text_at},
};

/// How long a member may take to show itself.
const DEADLINE: Duration = Duration::from_secs(10);
/// API groups of Volcano, with the version that is used.
const GROUPS: [&str; 3] = ["batch.volcano.sh/v1alpha1", "scheduling.volcano.sh/v1beta1", "bus.volcano.sh/v1alpha1"];

pub(super) fn read_version(cluster: &Cluster) -> (String, String) {
    let version = cluster.status.as_ref().and_then(|status| status.kubernetes_version.clone());
    (cluster.metadata.name.clone().unwrap_or_default(), version.unwrap_or_default())
}

/// `ahead`: seconds that our clock is ahead of the host's.
pub(super) async fn inspect_members(host: &Client, clusters: &[Cluster], ahead: i64) -> Vec<MemberFacts> {
    join_all(clusters.iter().map(|cluster| inspect_member(host, cluster, ahead))).await
}

async fn inspect_member(host: &Client, cluster: &Cluster, ahead: i64) -> MemberFacts {
    let ready = read_readiness(cluster);
    let inside = match &ready {
        Err(why) => Err(why.clone()),
        Ok(()) => match tokio::time::timeout(DEADLINE, read_inside(host, cluster, ahead)).await {
            Ok(inside) => inside,
            Err(_) => Err(format!("it did not answer within {} s", DEADLINE.as_secs())),
        },
    };
    let unread_maintenance = read_maintenance(cluster).err().map(|error| error.to_string());
    let unread_groups = read_autoscaling(cluster).err().map(|error| error.to_string());
    let name = cluster.metadata.name.clone().unwrap_or_default();
    let is_pull = cluster.spec.sync_mode == Some(SyncMode::Pull);
    MemberFacts { name, is_pull, ready, unread_maintenance, unread_groups, inside }
}

fn read_readiness(cluster: &Cluster) -> Visible<()> {
    let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
    match conditions.into_iter().find(|condition| condition.type_ == READY) {
        Some(condition) if condition.status == "True" => Ok(()),
        Some(condition) => Err(format!("{}: {}", condition.reason, condition.message)),
        None => Err("Karmada has not looked at it yet".to_owned()),
    }
}

/// `docker.io/volcanosh/vc-scheduler:v1.12.0` -> `v1.12.0`.
fn read_image_tag(pod: &Value) -> Option<String> {
    let image = read_text_at(pod, "/spec/containers/0/image");
    let name = image.split('@').next().unwrap_or_default().rsplit('/').next()?;
    let (part, tag) = name.split_once(':')?;
    part.starts_with("vc-").then(|| tag.to_owned())
}

async fn read_inside(host: &Client, cluster: &Cluster, ahead: i64) -> Visible<MemberInside> {
    let client = members::connect_or_use_given(host, cluster, None, "doctor", &WriteCounts::default()).await?;
    let reported = read_server_clock(&client).await;
    let clock = reported.map(|reported| reported.as_second() - (Timestamp::now().as_second() - ahead));
    let mut kinds = BTreeSet::new();
    for group in GROUPS {
        let Ok(request) = http::Request::get(format!("/apis/{group}")).body(Vec::new()) else { continue };
        match client.request::<Value>(request).await {
            Ok(served) => {
                let group = group.split_once('/').map_or(group, |(group, _)| group);
                kinds.extend(
                    read_list_at(&served, "/resources")
                        .iter()
                        .map(|one| format!("{}.{group}", read_text_at(one, "/name"))),
                );
            }
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    let list = |seen: anyhow::Result<Visible<Vec<Value>>>| seen.unwrap_or_else(|error| Err(format!("{error:#}")));
    let queues = list(list_objects(&client, &objects::queue_resource(), None, None).await);
    let pods = list(list_objects(&client, &api_resource("", "v1", "Pod", "pods"), Some("volcano-system"), None).await);
    let is_ready = |pod: &Value| {
        read_list_at(pod, "/status/conditions").iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    Ok(MemberInside {
        clock,
        kinds,
        queues: queues.map(|all| all.iter().map(read_queue).collect()),
        volcano_version: pods.iter().flatten().find_map(read_image_tag),
        volcano: pods.map(|all| all.iter().map(|pod| (name_of(pod).to_owned(), is_ready(pod))).collect()),
    })
}
