//! What a member's collector publishes: any set of objects is decoded within bounds or refused, and what was decoded is
//! the same after it was published again.

use crate::{
    cost::{Bound, within},
    expand::expand,
};
use caldera_core::inventory::{Change, Inventory};
use caldera_crds::published::{ClusterInventory, Contents, MemberObjects, Published, decode_part, divide_contents};
use serde_json::Value;

/// A short text may stand for many nodes and pods, up to what is kept of a member.
const BOUND: Bound = Bound { ms: 4_000, ns_per_byte: 5_000, kib: 512 << 10, bytes_per_byte: 200 };

/// Panics where an input does what must not be.
pub fn check_input(bytes: &[u8]) {
    let Ok(short) = serde_json::from_slice::<Value>(bytes) else { return };
    let input = expand(&short);
    let Ok(objects) = serde_json::from_value::<Vec<ClusterInventory>>(input.clone()) else { return };
    within("an inventory", BOUND, input.to_string().len(), || follow(&objects));
}

fn follow(objects: &[ClusterInventory]) {
    let mut set = MemberObjects::default();
    let mut known: Option<Published> = None;
    let mut inventory = Inventory::default();
    for object in objects {
        if object.cluster().is_none() {
            continue;
        }
        set.apply(object.clone());
        let Some(published) = set.assemble_if_complete() else { continue };
        let _ = published.decode_queues();
        let _ = published.heartbeat.decode_images();
        let Ok(changes) = published.changes_since(known.as_ref()) else { continue };
        for change in changes {
            inventory.apply_change(change);
        }
        let _ = inventory.capacity();
        if let [part] = published.parts.as_slice()
            && part.shapes.len() + part.held.len() + part.workloads.len() < 8
            && let Ok(contents) = decode_part(part)
            && contents.nodes.len() + contents.pods.len() < 1_000
        {
            publish_again(&contents);
        }
        known = Some(published);
    }
}

fn publish_again(contents: &Contents) {
    let parts = divide_contents(contents, 1);
    assert_eq!(parts.len(), 1);
    let again = decode_part(&parts[0]).expect("what we publish can be read");
    assert_eq!(again.nodes, contents.nodes);
    assert_eq!(capacity(&again), capacity(contents));
}

fn capacity(contents: &Contents) -> caldera_core::inventory::Capacity {
    let mut inventory = Inventory::default();
    inventory.apply_change(Change::NumaTopologies(contents.numa.clone().into_iter().collect()));
    inventory.apply_change(Change::Nodes(contents.nodes.values().cloned().collect()));
    inventory.apply_change(Change::Pods(contents.pods.values().cloned().collect()));
    inventory.capacity()
}
