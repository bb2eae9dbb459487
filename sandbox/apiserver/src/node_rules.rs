//! Validation of nodes: taints, networks, amounts, addresses and the name that a provider gave
//! (`pkg/apis/core/validation`, `ValidateNode` and `ValidateNodeUpdate`).

use serde_json::Value;

use crate::kind_rules::{NETWORK, invalid_all, items_of, network, spec_of, text_of, unsupported};
use crate::limits::Amount;
use crate::meta::{label_value_problems, qualified_name_problems};
use crate::schema::FieldError;

/// Of a whole node. An update is asked what a creation is asked, and then what an update is: most of it is told twice.
pub fn node_errors(node: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = taint_errors(node);
    errors.extend(amount_errors(node));
    for (index, range) in items_of(spec_of(node), "podCIDRs").iter().enumerate() {
        let range = range.as_str().unwrap_or_default();
        if network(range).is_none() {
            errors.push(FieldError::invalid_text(format!("spec.podCIDRs[{index}]"), range, NETWORK));
        }
    }
    let mut families: Vec<bool> =
        items_of(spec_of(node), "podCIDRs").iter().map(|r| r.as_str().unwrap_or_default().contains(':')).collect();
    let count = families.len();
    families.dedup();
    if count > 2 || families.len() < count {
        let why = "may specify no more than one CIDR for each IP family";
        errors.push(FieldError::invalid("spec.podCIDRs", &spec_of(node)["podCIDRs"], why));
    }
    errors.extend(old.into_iter().flat_map(|old| node_update_errors(node, old)));
    errors
}

/// Of an update, be it of the status alone.
pub fn node_update_errors(node: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = amount_errors(node);
    errors.extend(address_errors(node));
    let (networks, before) = (items_of(spec_of(node), "podCIDRs"), items_of(spec_of(old), "podCIDRs"));
    let changed = match networks.len() == before.len() {
        true => networks.iter().zip(before).filter(|(new, old)| new != old).count(),
        false => usize::from(!before.is_empty()),
    };
    let once_set = |field: &str, name: &str| {
        FieldError::forbidden(field, &format!("node updates may not change {name} except from \"\" to valid"))
    };
    errors.extend((0..changed).map(|_| once_set("spec.podCIDRs", "podCIDR")));
    let provider = text_of(spec_of(old), "providerID");
    if !provider.is_empty() && provider != text_of(spec_of(node), "providerID") {
        errors.push(once_set("spec.providerID", "providerID"));
    }
    errors.extend(taint_errors(node));
    errors
}

fn taint_errors(node: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let taints = items_of(spec_of(node), "taints");
    for (index, taint) in taints.iter().enumerate() {
        let at = format!("metadata.taints[{index}]");
        let (key, value, effect) = (text_of(taint, "key"), text_of(taint, "value"), text_of(taint, "effect"));
        errors.extend(invalid_all(&format!("{at}.key"), key, &qualified_name_problems(key)));
        errors.extend(invalid_all(&format!("{at}.value"), value, &label_value_problems(value)));
        let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        if effect.is_empty() {
            errors.push(FieldError::required(format!("{at}.effect"), ""));
        } else {
            errors.extend(unsupported(taint, "effect", &format!("{at}.effect"), &known));
        }
        let same = |other: &Value| text_of(other, "key") == key && text_of(other, "effect") == effect;
        if taints.iter().take(index).any(same) {
            let quote = crate::error::go_quote;
            let shown = format!(
                "{{\"Key\":{},\"Value\":{},\"Effect\":{},\"TimeAdded\":null}}: taints must be unique by key and effect \
                 pair",
                quote(key),
                quote(value),
                quote(effect)
            );
            errors.push(FieldError::duplicate_shown(at, &shown));
        }
    }
    errors
}

/// What a node has, and what of it is given to pods.
fn amount_errors(node: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for list in ["capacity", "allocatable"] {
        for (resource, amount) in node["status"][list].as_object().into_iter().flatten() {
            if Amount::parse(amount).is_some_and(Amount::is_negative) {
                let field = format!("status.{list}.{resource}");
                errors.push(FieldError::invalid(field, amount, "must be greater than or equal to 0"));
            }
        }
    }
    errors
}

fn address_errors(node: &Value) -> Vec<FieldError> {
    let addresses = node.pointer("/status/addresses").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let repeated = |(index, address): (usize, &Value)| {
        let quote = |key: &str| crate::error::go_quote(text_of(address, key));
        addresses.iter().take(index).any(|other| other == address).then(|| {
            let shown = format!("{{\"Type\":{},\"Address\":{}}}", quote("type"), quote("address"));
            FieldError::duplicate_shown(format!("status.addresses[{index}]"), &shown)
        })
    };
    addresses.iter().enumerate().filter_map(repeated).collect()
}

/// A node's list of networks follows the single one.
pub fn follow_network(node: &mut Value, old: Option<&Value>) {
    let range = text_of(spec_of(node), "podCIDR").to_owned();
    let before = old.map(|old| text_of(spec_of(old), "podCIDR")).unwrap_or_default();
    let listed = items_of(spec_of(node), "podCIDRs");
    if !range.is_empty() && (listed.is_empty() || before != range) && listed.first() != Some(&range.as_str().into()) {
        node["spec"]["podCIDRs"] = serde_json::json!([range]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(errors: &[FieldError]) -> Vec<&str> {
        errors.iter().map(|e| e.field.as_str()).collect()
    }

    #[test]
    fn a_taint_has_an_effect_and_comes_once() {
        let taint = json!({"key": "a", "effect": "NoSchedule"});
        let node = |taints: Value| json!({"spec": {"taints": taints}});
        assert!(node_errors(&node(json!([taint])), None).is_empty());
        assert_eq!(fields(&node_errors(&node(json!([taint, taint])), None)), ["metadata.taints[1]"]);
        assert_eq!(fields(&node_errors(&node(json!([{"key": "a"}])), None)), ["metadata.taints[0].effect"]);
    }

    #[test]
    fn the_networks_of_a_node_follow_the_first() {
        let mut node = json!({"spec": {"podCIDR": "10.2.0.0/24", "podCIDRs": ["10.1.0.0/24"]}});
        follow_network(&mut node, Some(&json!({"spec": {"podCIDR": "10.1.0.0/24"}})));
        assert_eq!(node["spec"]["podCIDRs"], json!(["10.2.0.0/24"]));
    }

    #[test]
    fn the_networks_of_a_node_are_set_once() {
        let node = |network: &str| json!({"spec": {"podCIDR": network, "podCIDRs": [network]}});
        assert!(node_update_errors(&node("10.0.0.0/24"), &json!({"spec": {}})).is_empty());
        assert_eq!(fields(&node_update_errors(&node("10.0.1.0/24"), &node("10.0.0.0/24"))), ["spec.podCIDRs"]);
    }

    #[test]
    fn an_update_tells_of_a_taint_twice() {
        let node = json!({"spec": {"taints": [{"key": "a"}]}});
        let told = ["metadata.taints[0].effect", "metadata.taints[0].effect"];
        assert_eq!(fields(&node_errors(&node, Some(&json!({"spec": {}})))), told);
    }

    #[test]
    fn amounts_are_not_negative_and_addresses_come_once() {
        let address = json!({"type": "InternalIP", "address": "10.1.1.1"});
        let node = json!({"status": {"capacity": {"cpu": "-4"}, "addresses": [address, address]}});
        assert_eq!(fields(&node_update_errors(&node, &json!({}))), ["status.capacity.cpu", "status.addresses[1]"]);
    }
}
