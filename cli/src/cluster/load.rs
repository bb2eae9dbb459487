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
    output::{format_columns, format_duration},
    view::{MeasuredLinks, Member, RealUse},
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
        let now = Timestamp::now();
        member.real_use = read_real_use(&heartbeat, now);
        member.links = read_links(heartbeat, now);
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

/// A table of them with their age, or that they are no longer so.
pub(super) fn format_links(links: &MeasuredLinks) -> String {
    let age = links.age_seconds.map_or_else(|| "at no known time".to_owned(), |age| format_duration(age) + " ago");
    if !links.are_trusted {
        let to: Vec<&str> = links.to.iter().map(|link| link.to.as_str()).collect();
        let to = to.join(", ");
        return format!("\nMeasured ways to {to} do not count any more: the collector last reported {age}\n");
    }
    let cells = links.to.iter().map(|link| {
        let latency = link.latency_microseconds.map(|micros| format!("{micros} us")).unwrap_or_default();
        let bandwidth = link.bandwidth_megabits.map(|megabits| format!("{megabits} Mbit/s")).unwrap_or_default();
        [link.to.clone(), latency, bandwidth, link.since.clone()]
    });
    let table = format_columns(["MEASURED TO", "LATENCY", "BANDWIDTH", "SINCE"], cells);
    format!("\n{table}\nThe collector last reported {age}\n")
}

/// The links of a heartbeat, with how old they are; `None` where its collector measures none.
fn read_links(heartbeat: Heartbeat, now: Timestamp) -> Option<MeasuredLinks> {
    let age_seconds = heartbeat.age_at(now).and_then(|age| i64::try_from(age.as_secs()).ok());
    let are_trusted = heartbeat.is_trusted_at(now);
    (!heartbeat.links.is_empty()).then_some(MeasuredLinks { to: heartbeat.links, age_seconds, are_trusted })
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
    #[test]
    fn links_have_the_age_of_their_heartbeat_and_count_as_long_as_it_is_trusted() {
        let links = json!([{"to": "m2", "latencyMicroseconds": 250, "since": "2025-12-31T00:00:00Z"}]);
        let read = |links: Value, now: &str| {
            let heartbeat = json!({
                "seenAt": "2026-01-01T00:00:00Z", "everySeconds": 30, "reached": "Direct", "parts": 1, "nodes": 1,
                "links": links,
            });
            read_links(serde_json::from_value(heartbeat).unwrap(), now.parse().unwrap())
        };
        let age = |now: &str| read(links.clone(), now).map(|it| (it.age_seconds, it.are_trusted));
        assert_eq!(age("2026-01-01T00:00:12Z"), Some((Some(12), true)));
        assert_eq!(age("2026-01-01T01:00:00Z"), Some((Some(3_600), false)));
        assert_eq!(read(json!([]), "2026-01-01T00:00:12Z"), None);
        let format = |now: &str| format_links(&read(links.clone(), now).unwrap());
        let fresh = format("2026-01-01T00:00:12Z");
        assert!(fresh.contains("250 us") && fresh.contains("reported 12s ago"), "{fresh}");
        let dead = format("2026-01-01T01:00:00Z");
        assert!(!dead.contains("250 us") && dead.contains("ways to m2 do not count any more"), "{dead}");
    }
}
