//! What the members' nodes offer, so that a scenario can ask for more than one of them has and less than all have.

use std::{collections::BTreeMap, time::Duration};

use caldera_core::quantity::Quantity;
use serde_json::Value;

use crate::{kinds::Kind, scenario::Scenario};

/// Free whole cores by member and node, largest node first, once nothing of them changes any more: pods of the scenario
/// before go slowly where kubelets and Karmada are real.
pub async fn free_cores(scenario: &Scenario) -> BTreeMap<String, Vec<u32>> {
    let mut cores = read_free_cores(scenario).await;
    let mut unchanged = 0;
    while unchanged < 3 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = read_free_cores(scenario).await;
        unchanged = if now == cores { unchanged + 1 } else { 0 };
        cores = now;
    }
    cores
}

async fn read_free_cores(scenario: &Scenario) -> BTreeMap<String, Vec<u32>> {
    let mut cores = BTreeMap::new();
    for member in scenario.members() {
        let mut free: BTreeMap<String, Quantity> = BTreeMap::new();
        for node in scenario.list_in_member(member, Kind::Node, None).await {
            free.insert(text(&node, "/metadata/name").to_owned(), cpu(node.pointer("/status/allocatable/cpu")));
        }
        for pod in scenario.list_in_member(member, Kind::Pod, None).await {
            let held = !matches!(text(&pod, "/status/phase"), "Succeeded" | "Failed");
            if let (true, Some(free)) = (held, free.get_mut(text(&pod, "/spec/nodeName"))) {
                for container in pod.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten() {
                    *free = free.saturating_sub(cpu(container.pointer("/resources/requests/cpu")));
                }
            }
        }
        let mut nodes: Vec<u32> =
            free.values().map(|free| u32::try_from(free.milli_ceil() / 1000).unwrap_or(u32::MAX)).collect();
        nodes.sort_unstable_by(|a, b| b.cmp(a));
        cores.insert(member.to_owned(), nodes);
    }
    cores
}

fn cpu(quantity: Option<&Value>) -> Quantity {
    quantity.and_then(|quantity| serde_json::from_value(quantity.clone()).ok()).unwrap_or_default()
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
