//! What the status of a pod may say (`ValidatePodStatusUpdate` of `pkg/apis/core/validation`).

use std::net::IpAddr;

use serde_json::Value;

use crate::meta;
use crate::podspec::{items_of, text_of};
use crate::schema::FieldError;

/// What is wrong with a pod's new status.
pub fn status_errors(pod: &Value, old: &Value) -> Vec<FieldError> {
    let status = pod.get("status").unwrap_or(&Value::Null);
    let mut errors = address_errors(status);
    errors.extend(crate::pod::class_error(pod, old));
    let node = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
    let nominated = text_of(status, "nominatedNodeName");
    if !nominated.is_empty() {
        let problems = meta::subdomain_problems(nominated);
        errors.extend(problems.iter().map(|why| FieldError::invalid_text("status.nominatedNodeName", nominated, why)));
    }
    if !node.is_empty() && !nominated.is_empty() && nominated != node {
        let why = "may not be set on pods that are already bound to a node";
        errors.push(FieldError::forbidden("status.nominatedNodeName", why));
    }
    errors.extend(condition_errors(status));
    if let Some(seen) = status.get("observedGeneration").filter(|seen| seen.as_i64().is_some_and(|n| n < 0)) {
        errors.push(FieldError::invalid("status.observedGeneration", seen, "must be a non-negative integer"));
    }
    errors.extend(claim_errors(pod, status));
    errors
}

/// Addresses, of each family at most one, of which the first is the address that is told by itself.
fn address_errors(status: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (list, single) in [("podIPs", "podIP"), ("hostIPs", "hostIP")] {
        let found = items_of(status, list);
        let addresses: Vec<Option<IpAddr>> = found.iter().map(|entry| text_of(entry, "ip").parse().ok()).collect();
        for (index, (entry, address)) in found.iter().zip(&addresses).enumerate() {
            if address.is_none() {
                let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
                errors.push(FieldError::invalid_text(format!("status.{list}[{index}]"), text_of(entry, "ip"), why));
            }
        }
        let of_family = |wanted: bool| addresses.iter().flatten().filter(|ip| ip.is_ipv4() == wanted).count();
        if of_family(true) > 1 || of_family(false) > 1 {
            let shown: Vec<String> = found.iter().map(|e| format!("{{\"IP\":{}}}", e["ip"])).collect();
            let why = "may specify no more than one IP for each IP family";
            errors.push(FieldError::invalid_shown(format!("status.{list}"), &format!("[{}]", shown.join(",")), why));
        }
        let first = found.first().map(|entry| text_of(entry, "ip")).unwrap_or_default();
        if list == "hostIPs" && !first.is_empty() && first != text_of(status, single) {
            let why = format!("must be equal to `{single}`");
            errors.push(FieldError::invalid_text(format!("status.{list}[0].ip"), first, &why));
        }
    }
    errors
}

fn condition_errors(status: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, condition) in items_of(status, "conditions").iter().enumerate() {
        let kind = text_of(condition, "type");
        let problems = meta::qualified_name_problems(kind);
        let field = format!("status.conditions[{index}].Type");
        errors.extend(problems.iter().map(|why| FieldError::invalid_text(field.as_str(), kind, why)));
    }
    errors
}

fn claim_errors(pod: &Value, status: &Value) -> Vec<FieldError> {
    let claims = items_of(pod.get("spec").unwrap_or(&Value::Null), "resourceClaims");
    let known = |name: &str| claims.iter().any(|claim| text_of(claim, "name") == name);
    let told = items_of(status, "resourceClaimStatuses").iter().map(|claim| text_of(claim, "name")).enumerate();
    let why = "must match the name of an entry in `spec.resourceClaims`";
    let field = |index: usize| format!("status.resourceClaimStatuses[{index}].name");
    told.filter(|(_, name)| !known(name)).map(|(i, name)| FieldError::invalid_text(field(i), name, why)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(status: Value) -> Vec<String> {
        let errors = status_errors(&json!({"spec": {}, "status": status}), &Value::Null);
        errors.into_iter().map(|e| format!("{}: {}", e.field, e.message)).collect()
    }

    #[test]
    fn a_family_has_one_address() {
        let found = told(json!({"podIPs": [{"ip": "1.2.3.4"}, {"ip": "1.2.3.6"}]}));
        let why = "status.podIPs: Invalid value: [{\"IP\":\"1.2.3.4\"},{\"IP\":\"1.2.3.6\"}]: may specify no more than one \
                   IP for each IP family";
        assert_eq!(found, [why]);
        assert!(told(json!({"podIPs": [{"ip": "1.2.3.4"}, {"ip": "::1"}]})).is_empty());
    }

    #[test]
    fn the_first_address_of_the_host_is_the_one_told_by_itself() {
        let found = told(json!({"hostIP": "1.2.3.4", "hostIPs": [{"ip": "1.2.3.5"}]}));
        assert_eq!(found, ["status.hostIPs[0].ip: Invalid value: \"1.2.3.5\": must be equal to `hostIP`"]);
    }

    #[test]
    fn a_condition_has_a_name() {
        assert_eq!(told(json!({"conditions": [{"type": "a b", "status": "True"}]})).len(), 1);
        assert_eq!(told(json!({"observedGeneration": -1, "resourceClaimStatuses": [{"name": "q"}]})).len(), 2);
    }
}
