//! Questions to the estimator: any bytes are answered or refused within bounds, about three kinds of nodes.
//!
//! The first byte says which question, the second how often its first component is repeated, each time a little
//! different.

use std::sync::LazyLock;

use crate::cost::{Bound, within};
use caldera_core::{
    inventory::{Capacity, Change, Inventory, Node},
    quantity::Quantity,
};
use caldera_crds::estimator::messages::{
    ComponentMessage, MaxAvailableComponentSetsRequest, MaxAvailableReplicasRequest,
};
use caldera_estimator::{
    limits::LARGEST_MESSAGE,
    question::{answer_max_replicas, answer_max_sets},
};
use prost::Message;

/// An answer may take three seconds; this machine is not the slowest.
const BOUND: Bound = Bound { ms: 1_000, ns_per_byte: 1_000, kib: 16 << 10, bytes_per_byte: 64 };

static CAPACITY: LazyLock<Capacity> = LazyLock::new(|| {
    let node = |at: usize| {
        let amounts =
            [("cpu", 4 + 60 * (at % 2)), ("nvidia.com/gpu", 8 * (at % 3 / 2)), ("pods", 110), ("memory", 1 << 36)];
        let units = |amount: usize| Quantity::from_units(i64::try_from(amount).expect("small"));
        let labels = [("zone", ["a", "b"][at % 2]), ("rack", ["1", "2", "3"][at % 3])];
        Node {
            name: format!("n{at}"),
            labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            allocatable: amounts.into_iter().map(|(name, amount)| (name, units(amount))).collect(),
            ready: true,
            ..Node::default()
        }
    };
    let mut inventory = Inventory::default();
    inventory.apply_change(Change::Nodes((0..24).map(node).collect()));
    inventory.apply_change(Change::Pods(vec![]));
    inventory.capacity()
});

/// Panics where an input does what must not be.
pub fn check_input(bytes: &[u8]) {
    let [which, times, message @ ..] = bytes else { return };
    let capacity = &*CAPACITY;
    match which % 2 {
        0 => {
            let Ok(question) = MaxAvailableReplicasRequest::decode(message) else { return };
            within("replicas", BOUND, message.len(), || {
                let answer = answer_max_replicas(&question, Some(capacity));
                assert!(answer.as_ref().is_ok_and(|fit| *fit >= 0) || answer.is_err(), "{answer:?}");
            });
        }
        _ => {
            let Ok(mut question) = MaxAvailableComponentSetsRequest::decode(message) else { return };
            repeat(&mut question.components, *times);
            for workload in &mut question.assumed_workloads {
                repeat(&mut workload.components, times.rotate_left(4));
            }
            let length = question.encoded_len();
            // Who sends more is refused before anything is decoded.
            if length > LARGEST_MESSAGE {
                return;
            }
            within("sets", BOUND, length, || {
                let answer = answer_max_sets(&question, Some(capacity));
                assert!(answer.as_ref().is_ok_and(|fit| *fit >= 0) || answer.is_err(), "{answer:?}");
            });
        }
    }
}

/// Up to 65,536 components for a byte; every second one asks for something else where its lowest bit is set.
fn repeat(components: &mut Vec<ComponentMessage>, times: u8) {
    let Some(first) = components.first().cloned() else { return };
    for at in 1..(1_usize << (times / 16)) {
        let mut more = first.clone();
        if times % 2 == 1 {
            let requirements = more.replica_requirements.get_or_insert_default();
            let amount = caldera_crds::estimator::messages::Quantity { string: Some(format!("{at}m")) };
            requirements.resource_request_bytes.insert("cpu".to_owned(), amount.encode_to_vec());
        }
        components.push(more);
    }
}
