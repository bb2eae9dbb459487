//! Statuses of the kinds that are no workloads: addresses, volumes, claims, disruption budgets, autoscalers.
//!
//! Rule: Karmada `default/native/{reflectstatus,aggregatestatus}.go`, `pkg/util/helper/{service,ingress}.go`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::status::reported_statuses;
use crate::karmada::object::{Gvk, ObjectExt};

const BUDGET: [&str; 4] = ["currentHealthy", "desiredHealthy", "expectedPods", "disruptionsAllowed"];

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Ingress,
    Volume,
    Claim,
    Budget,
    Autoscaler,
}

fn kind_of(gvk: &Gvk) -> Option<Kind> {
    match (gvk.group.as_str(), gvk.version.as_str(), gvk.kind.as_str()) {
        ("networking.k8s.io", "v1", "Ingress") => Some(Kind::Ingress),
        ("", "v1", "PersistentVolume") => Some(Kind::Volume),
        ("", "v1", "PersistentVolumeClaim") => Some(Kind::Claim),
        ("policy", "v1", "PodDisruptionBudget") => Some(Kind::Budget),
        ("autoscaling", "v2", "HorizontalPodAutoscaler") => Some(Kind::Autoscaler),
        _ => None,
    }
}

/// Whether Karmada itself can aggregate this kind.
pub fn is_aggregated(gvk: &Gvk) -> bool {
    kind_of(gvk).is_some()
}

/// The part of a member's status that travels, where that is not the whole of it.
pub fn reflect_status(gvk: &Gvk, status: &Value) -> Option<Value> {
    match kind_of(gvk)? {
        Kind::Budget => {
            let mut told: Map<String, Value> = BUDGET
                .map(|field| (field.to_owned(), json!(status.number(&format!("/{field}")))))
                .into_iter()
                .collect();
            let disrupted =
                status.get("disruptedPods").filter(|pods| pods.as_object().is_some_and(|all| !all.is_empty()));
            told.extend(disrupted.map(|pods| ("disruptedPods".to_owned(), pods.clone())));
            Some(Value::Object(told))
        }
        Kind::Autoscaler => {
            let mut told = json!({"desiredReplicas": status.number("/desiredReplicas"), "currentMetrics": null});
            let current = status.number("/currentReplicas");
            told.put_or_remove(&["currentReplicas"], (current != 0).then(|| json!(current)));
            Some(told)
        }
        Kind::Ingress | Kind::Volume | Kind::Claim => None,
    }
}

/// The template's status from those of its members.
pub fn aggregate_status(gvk: &Gvk, items: &[Value]) -> Option<Value> {
    let sum = |field: &str| -> i64 { reported_statuses(items).map(|(_, one)| one.number(&format!("/{field}"))).sum() };
    Some(match kind_of(gvk)? {
        Kind::Ingress => aggregate_balancers(items, false),
        Kind::Volume => aggregate_volumes(items),
        Kind::Claim => aggregate_claims(items),
        Kind::Budget => {
            let mut status: Map<String, Value> =
                BUDGET.map(|field| (field.to_owned(), json!(sum(field)))).into_iter().collect();
            let mut disrupted = Map::new();
            for (cluster, one) in reported_statuses(items) {
                for (pod, time) in one.get("disruptedPods").and_then(Value::as_object).into_iter().flatten() {
                    disrupted.insert(format!("{cluster}/{pod}"), time.clone());
                }
            }
            if !disrupted.is_empty() {
                status.insert("disruptedPods".to_owned(), Value::Object(disrupted));
            }
            Value::Object(status)
        }
        Kind::Autoscaler => {
            let mut status = json!({"desiredReplicas": sum("desiredReplicas"), "currentMetrics": null});
            let current = sum("currentReplicas");
            status.put_or_remove(&["currentReplicas"], (current != 0).then(|| json!(current)));
            status
        }
    })
}

/// The phase that the worst of them has; one that did not report is pending.
fn aggregate_volumes(items: &[Value]) -> Value {
    let phases: Vec<&str> =
        items.iter().map(|one| one.present("/status").map_or("Pending", |status| status.text("/phase"))).collect();
    let order = ["Failed", "Pending", "Available", "Bound", "Released"];
    match order.into_iter().find(|phase| phases.contains(phase)) {
        Some(phase) => json!({"phase": phase}),
        None => json!({}),
    }
}

/// Bound, unless one is lost or not bound yet.
fn aggregate_claims(items: &[Value]) -> Value {
    let phases: Vec<&str> = reported_statuses(items).map(|(_, status)| status.text("/phase")).collect();
    let phase = if phases.contains(&"Lost") {
        "Lost"
    } else {
        phases.iter().rev().find(|phase| **phase != "Bound").copied().unwrap_or("Bound")
    };
    json!({"phase": phase})
}

/// Every address once, in order, with all ports that were told of it. Services tell the mode of an address too.
pub fn aggregate_balancers(items: &[Value], with_modes: bool) -> Value {
    let mut addresses: BTreeMap<_, BTreeMap<_, Value>> = BTreeMap::new();
    for one in reported_statuses(items).flat_map(|(_, status)| status.items("/loadBalancer/ingress")) {
        let (host, ip) = (one.text("/hostname").to_owned(), one.text("/ip").to_owned());
        let mode = if with_modes { one.text("/ipMode").to_owned() } else { String::new() };
        // Those without a name, and those without a mode, come last.
        let ports = addresses.entry((host.is_empty(), host, ip, mode.is_empty(), mode)).or_default();
        for port in one.items("/ports") {
            let key = (port.number("/port"), port.text("/protocol").to_owned(), port.text("/error").to_owned());
            ports.insert(key, port.clone());
        }
    }
    let mut ingress = Vec::new();
    for ((_, host, ip, _, mode), ports) in addresses {
        let mut one = json!({});
        for (field, text) in [("hostname", host), ("ip", ip), ("ipMode", mode)] {
            one.put_or_remove(&[field], (!text.is_empty()).then(|| json!(text)));
        }
        one.put_or_remove(&["ports"], (!ports.is_empty()).then(|| ports.into_values().collect()));
        ingress.push(one);
    }
    if ingress.is_empty() { json!({"loadBalancer": {}}) } else { json!({"loadBalancer": {"ingress": ingress}}) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(statuses: &[Value]) -> Vec<Value> {
        let item =
            |(index, status): (usize, &Value)| json!({"clusterName": format!("m{}", index + 1), "status": status});
        statuses.iter().enumerate().map(item).collect()
    }

    #[test]
    fn addresses_are_told_once_in_order_with_all_their_ports() {
        let told = items(&[
            json!({"loadBalancer": {"ingress": [{"ip": "10.0.0.2", "ipMode": "VIP"}, {"ip": "10.0.0.1"}]}}),
            json!({"loadBalancer": {"ingress": [
                {"ip": "10.0.0.2", "ipMode": "VIP", "ports": [{"port": 80, "protocol": "TCP"}]}, {"hostname": "a"}]}}),
        ]);
        assert_eq!(
            aggregate_balancers(&told, true),
            json!({"loadBalancer": {"ingress": [
                {"hostname": "a"},
                {"ip": "10.0.0.1"},
                {"ip": "10.0.0.2", "ipMode": "VIP", "ports": [{"port": 80, "protocol": "TCP"}]},
            ]}})
        );
        assert_eq!(aggregate_balancers(&[], true), json!({"loadBalancer": {}}));
    }

    #[test]
    fn a_volume_is_as_far_as_the_last_of_them_and_failed_if_one_is() {
        assert_eq!(
            aggregate_volumes(&items(&[json!({"phase": "Bound"}), json!({"phase": "Available"})]))["phase"],
            "Available"
        );
        assert_eq!(
            aggregate_volumes(&items(&[json!({"phase": "Bound"}), json!({"phase": "Failed"})]))["phase"],
            "Failed"
        );
        assert_eq!(aggregate_volumes(&[json!({"clusterName": "m1"})])["phase"], "Pending");
    }

    #[test]
    fn a_claim_is_bound_when_all_are() {
        assert_eq!(
            aggregate_claims(&items(&[json!({"phase": "Bound"}), json!({"phase": "Pending"})]))["phase"],
            "Pending"
        );
        assert_eq!(aggregate_claims(&items(&[json!({"phase": "Lost"}), json!({"phase": "Pending"})]))["phase"], "Lost");
        assert_eq!(aggregate_claims(&[])["phase"], "Bound");
    }

    #[test]
    fn budgets_and_autoscalers_are_summed_and_disrupted_pods_named_with_their_cluster() {
        let budget = Gvk::new("policy/v1", "PodDisruptionBudget");
        let status = json!({"currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2, "disruptionsAllowed": 1,
            "disruptedPods": {"p": "t"}, "observedGeneration": 1});
        let told = reflect_status(&budget, &status).unwrap();
        assert!(told.get("observedGeneration").is_none());
        assert_eq!(
            aggregate_status(&budget, &items(&[told.clone(), told])),
            Some(json!({"currentHealthy": 4, "desiredHealthy": 2, "expectedPods": 4, "disruptionsAllowed": 2,
                "disruptedPods": {"m1/p": "t", "m2/p": "t"}}))
        );
        let scaler = Gvk::new("autoscaling/v2", "HorizontalPodAutoscaler");
        let told =
            reflect_status(&scaler, &json!({"currentReplicas": 2, "desiredReplicas": 3, "conditions": []})).unwrap();
        let both = aggregate_status(&scaler, &items(&[told.clone(), told])).unwrap();
        assert_eq!((&both["currentReplicas"], &both["desiredReplicas"]), (&json!(4), &json!(6)));
    }
}
