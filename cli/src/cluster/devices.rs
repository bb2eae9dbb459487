//! What a member has by DeviceClass, and what of it pods claim, as its collector published it.
//!
//! Rule: Karmada's summary of a cluster has no devices that are claimed. They are in the parts of the inventory, which
//! are large, so that they are read of one member that is described, and not of all that are listed. The small object
//! with the heartbeat comes first: where it is no longer trusted, or announces more parts than there may be, nothing
//! else is read, and nothing is shown.

use std::collections::BTreeMap;

use caldera_core::{device::DEVICE_CLASS_PREFIX, quantity::Quantity, resources::Resources};
use caldera_crds::published::{ClusterInventory, Contents, MOST_PARTS, decode_part};
use caldera_runtime::members::collector::inventory_resource;
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use kube::Client;

use crate::objects::get_object;

/// Parts that are read at once.
const AT_ONCE: usize = 16;

/// What is claimed, and all that there is, by resource.
type Amounts = (Resources, Resources);

/// Claimed devices and all, by DeviceClass; none where nobody publishes the member.
pub(super) async fn read_devices(
    client: &Client,
    cluster: &str,
    now: Timestamp,
) -> anyhow::Result<BTreeMap<String, (String, String)>> {
    let resource = inventory_resource();
    let read = async |name: String| -> anyhow::Result<Option<ClusterInventory>> {
        let object = get_object(client, &resource, None, &name).await?.ok().flatten();
        Ok(object.and_then(|object| serde_json::from_value(object).ok()))
    };
    let first = read(cluster.to_owned()).await?;
    let Some(parts) = first.and_then(|first| count_trusted_parts(&first, now)) else { return Ok(BTreeMap::new()) };
    let read_part = async |index: u32| -> anyhow::Result<Option<Amounts>> {
        let part = read(format!("{cluster}.{index}")).await?.and_then(|object| object.spec.part);
        let part = part.filter(|part| part.index == index && part.of == parts);
        Ok(part.and_then(|part| decode_part(&part).ok()).as_ref().map(sum_part))
    };
    let mut sums = stream::iter((0..parts).map(read_part)).buffered(AT_ONCE);
    let (mut claimed, mut all) = Amounts::default();
    while let Some(sum) = sums.try_next().await? {
        let Some((claimed_there, there)) = sum else { return Ok(BTreeMap::new()) };
        claimed.add(&claimed_there);
        all.add(&there);
    }
    Ok(list_devices(&claimed, &all))
}

/// How many parts a member's first object announces, where its collector is trusted.
fn count_trusted_parts(first: &ClusterInventory, now: Timestamp) -> Option<u32> {
    let heartbeat = first.spec.heartbeat.as_ref()?;
    (heartbeat.is_trusted_at(now) && heartbeat.parts <= MOST_PARTS).then_some(heartbeat.parts)
}

fn sum_part(part: &Contents) -> Amounts {
    let (mut claimed, mut all) = Amounts::default();
    part.nodes.values().for_each(|node| all.add(&node.allocatable));
    part.pods.values().for_each(|pod| claimed.add(&pod.request));
    (claimed, all)
}

fn list_devices(claimed: &Resources, all: &Resources) -> BTreeMap<String, (String, String)> {
    let plain = |amount: Quantity| amount.plain().to_string();
    let classes = all.iter().filter_map(|(name, there)| {
        let class = name.as_str().strip_prefix(DEVICE_CLASS_PREFIX)?;
        Some((class.to_owned(), (plain(claimed.get(name.as_str())), plain(there))))
    });
    classes.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use axum::{Json, Router, routing::get};
    use caldera_core::inventory::{Node, Pod};
    use caldera_crds::published::divide_contents;
    use serde_json::json;

    use super::*;

    fn contents() -> Contents {
        let amounts = |gpus: i64| -> Resources {
            let (gpus, cores) = (Quantity::from_units(gpus), Quantity::from_units(8));
            [("deviceclass/gpu.io", gpus), ("cpu", cores)].into_iter().collect()
        };
        let node = |name: &str| Node { name: name.into(), allocatable: amounts(2), ready: true, ..Node::default() };
        let pod = Pod {
            namespace: "ns".to_owned(),
            name: "p".to_owned(),
            node: Some("n1".to_owned()),
            request: amounts(1),
            finished: false,
            owner: None,
        };
        Contents {
            nodes: ["n1", "n2"].map(|name| (name.to_owned(), node(name))).into(),
            pods: [(("ns".to_owned(), "p".to_owned()), pod)].into(),
            ..Contents::default()
        }
    }

    /// What a host answers that has these objects, by name, and how often it was asked.
    fn serve(objects: Vec<(String, serde_json::Value)>) -> (Client, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let add = |api: Router, (name, object): (String, serde_json::Value)| {
            let path = format!("/apis/federation.caldera.dev/v1alpha1/clusterinventories/{name}");
            let (object, asked) = (Arc::new(object), asked.clone());
            api.route(
                &path,
                get(async move || {
                    asked.fetch_add(1, Ordering::Relaxed);
                    Json((*object).clone())
                }),
            )
        };
        (Client::new(objects.into_iter().fold(Router::new(), add), "default"), asked)
    }

    fn inventory(parts: u32) -> Vec<(String, serde_json::Value)> {
        let heartbeat = json!({"metadata": {"name": "m1"}, "spec": {"cluster": "m1", "heartbeat": {
            "seenAt": "2026-01-01T00:00:00Z", "everySeconds": 30, "reached": "Direct", "parts": parts, "nodes": 2,
        }}});
        let divided = divide_contents(&contents(), 2).into_iter().map(|part| {
            let name = format!("m1.{}", part.index);
            (name.clone(), json!({"metadata": {"name": name}, "spec": {"cluster": "m1", "part": part}}))
        });
        divided.chain([("m1".to_owned(), heartbeat)]).collect()
    }

    async fn read(client: &Client, now: &str) -> BTreeMap<String, (String, String)> {
        read_devices(client, "m1", now.parse().unwrap()).await.unwrap()
    }

    const FRESH: &str = "2026-01-01T00:00:30Z";

    #[tokio::test]
    async fn devices_are_those_of_all_parts_by_class() {
        let parts = u32::try_from(divide_contents(&contents(), 2).len()).unwrap();
        let (client, _) = serve(inventory(parts));
        assert_eq!(read(&client, FRESH).await, [("gpu.io".to_owned(), ("1".to_owned(), "4".to_owned()))].into());
        let (client, _) = serve(inventory(parts + 1));
        assert!(read(&client, FRESH).await.is_empty(), "they belong to another division");
    }

    /// A part of somebody who is not trusted was read, and one that has a heartbeat spoke for the member.
    #[tokio::test]
    async fn no_part_is_read_before_the_collector_is_trusted() {
        let parts = u32::try_from(divide_contents(&contents(), 2).len()).unwrap();
        let mut objects = inventory(parts);
        for (name, object) in &mut objects {
            if name != "m1" {
                object["spec"]["heartbeat"] = json!({
                    "seenAt": "2026-01-01T01:00:00Z", "everySeconds": 30, "reached": "Direct", "parts": parts, "nodes": 2,
                });
            }
        }
        let (client, asked) = serve(objects);
        assert!(read(&client, "2026-01-01T01:00:00Z").await.is_empty());
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        let (client, asked) = serve(inventory(MOST_PARTS + 1));
        assert!(read(&client, FRESH).await.is_empty());
        assert_eq!(asked.load(Ordering::Relaxed), 1, "more parts than there may be");
    }
}
