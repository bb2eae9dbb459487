//! What a member has by DeviceClass, and what of it pods claim, as its collector published it.
//!
//! Rule: Karmada's summary of a cluster has no devices that are claimed. They are in the parts of the inventory, which
//! are large, so that they are read of one member that is described, and not of all that are listed. What is no longer
//! trusted is not shown.

use std::collections::BTreeMap;

use caldera_core::{device::DEVICE_CLASS_PREFIX, quantity::Quantity, resources::Resources};
use caldera_crds::published::{ClusterInventory, Contents, MOST_PARTS, MemberObjects, decode_part};
use caldera_runtime::members::collector::inventory_resource;
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use kube::Client;

use crate::objects::get_object;

/// Parts that are read at once.
const AT_ONCE: usize = 16;

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
    let mut objects = MemberObjects::default();
    read(cluster.to_owned()).await?.into_iter().for_each(|object| objects.apply(object));
    let names = (0..objects.parts_wanted().min(MOST_PARTS)).map(|part| format!("{cluster}.{part}"));
    let parts: Vec<_> = stream::iter(names.map(read)).buffered(AT_ONCE).try_collect().await?;
    parts.into_iter().flatten().for_each(|object| objects.apply(object));
    let published = objects.assemble_if_complete().filter(|published| published.heartbeat.is_trusted_at(now));
    let decoded = published.iter().flat_map(|published| &published.parts).filter_map(|part| decode_part(part).ok());
    Ok(sum_devices(decoded))
}

fn sum_devices(parts: impl Iterator<Item = Contents>) -> BTreeMap<String, (String, String)> {
    let (mut claimed, mut all) = (Resources::new(), Resources::new());
    for part in parts {
        part.nodes.values().for_each(|node| all.add(&node.allocatable));
        part.pods.values().for_each(|pod| claimed.add(&pod.request));
    }
    let plain = |amount: Quantity| amount.plain().to_string();
    let classes = all.iter().filter_map(|(name, there)| {
        let class = name.as_str().strip_prefix(DEVICE_CLASS_PREFIX)?;
        Some((class.to_owned(), (plain(claimed.get(name.as_str())), plain(there))))
    });
    classes.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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

    #[tokio::test]
    async fn devices_are_those_of_all_parts_by_class_as_long_as_the_collector_is_trusted() {
        let parts = divide_contents(&contents(), 2);
        let heartbeat = json!({"metadata": {"name": "m1"}, "spec": {"cluster": "m1", "heartbeat": {
            "seenAt": "2026-01-01T00:00:00Z", "everySeconds": 30, "reached": "Direct", "parts": parts.len(), "nodes": 2,
        }}});
        let objects = parts.iter().map(|part| {
            let name = format!("m1.{}", part.index);
            (name.clone(), json!({"metadata": {"name": name}, "spec": {"cluster": "m1", "part": part}}))
        });
        let add = |api: Router, (name, object): (String, serde_json::Value)| {
            let (path, object) =
                (format!("/apis/federation.caldera.dev/v1alpha1/clusterinventories/{name}"), Arc::new(object));
            api.route(&path, get(async move || Json((*object).clone())))
        };
        let api = objects.chain([("m1".to_owned(), heartbeat)]).fold(Router::new(), add);
        let client = Client::new(api, "default");
        let read = async |now: &str| read_devices(&client, "m1", now.parse().unwrap()).await.unwrap();
        let fresh = read("2026-01-01T00:00:30Z").await;
        assert_eq!(fresh, [("gpu.io".to_owned(), ("1".to_owned(), "4".to_owned()))].into());
        assert!(read("2026-01-01T01:00:00Z").await.is_empty());
    }
}
