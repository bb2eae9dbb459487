//! What the nodes of members really use, and how far it is to other members, as their collectors published it.
//!
//! Rule: it is in the small object with the heartbeat alone, so only that one is read of each member. Of a member
//! without a collector nobody but the controller knows it: its metrics say it.

use std::collections::BTreeMap;

use caldera_core::inventory::MEASURED;
use caldera_crds::published::{ClusterInventory, Heartbeat, Load};
use caldera_runtime::members::collector::inventory_resource;
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;

use crate::{
    objects::get_object,
    view::{Member, RealUse},
};

/// Members that are asked about at once.
const AT_ONCE: usize = 16;

/// Adds it to the members of which it is published.
pub(super) async fn add_real_use(client: &Client, members: &mut [Member]) -> anyhow::Result<()> {
    let resource = inventory_resource();
    let names: Vec<String> = members.iter().map(|one| one.name.clone()).collect();
    let reads = names.iter().map(|name| get_object(client, &resource, None, name));
    let found: Vec<_> = stream::iter(reads).buffered(AT_ONCE).try_collect().await?;
    for (member, object) in members.iter_mut().zip(found) {
        let Some(heartbeat) = object.ok().flatten().and_then(read_heartbeat) else { continue };
        member.real_use = read_real_use(&heartbeat, Timestamp::now());
        member.links = heartbeat.links;
    }
    Ok(())
}

fn read_heartbeat(object: Value) -> Option<Heartbeat> {
    serde_json::from_value::<ClusterInventory>(object).ok()?.spec.heartbeat
}

/// What a heartbeat says of it; `None` where that is no load.
fn read_real_use(heartbeat: &Heartbeat, now: Timestamp) -> Option<RealUse> {
    let load = heartbeat.load.as_ref().and_then(Load::to_member_load)?;
    let of = |name: &&str| {
        let (used, capacity) = (load.used.get(name), load.capacity.get(name));
        ((*name).to_owned(), (used.in_few_digits().to_string(), capacity.to_string()))
    };
    let amounts: BTreeMap<String, (String, String)> = MEASURED.iter().map(of).collect();
    let age_seconds = now.as_second().saturating_sub(load.read_at.as_seconds()).max(0);
    Some(RealUse { amounts, age_seconds })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn real_use_is_what_the_heartbeat_says_with_its_age() {
        let object = |load: Value| {
            json!({"metadata": {"name": "m1"}, "spec": {"cluster": "m1", "heartbeat": {
                "seenAt": "2026-01-01T00:00:00Z", "everySeconds": 30, "reached": "Direct", "parts": 1, "nodes": 1,
                "load": load,
            }}})
        };
        let amounts = |cpu: &str| json!({"cpu": cpu, "memory": "2Gi"});
        let load = json!({"readAt": "2026-01-01T00:00:00Z", "used": amounts("1500m"), "capacity": amounts("4")});
        let now = "2026-01-01T00:00:12Z".parse().unwrap();
        let read_real_use = |object: Value| super::read_real_use(&read_heartbeat(object)?, now);
        let read = read_real_use(object(load)).unwrap();
        assert_eq!((read.age_seconds, read.share_of("cpu")), (12, Some(37)));
        assert_eq!(read.amounts["memory"], ("2Gi".to_owned(), "2Gi".to_owned()));
        assert_eq!(read_real_use(object(Value::Null)), None);
        assert_eq!(read_real_use(json!({})), None);
    }
}
