//! Services: cluster IPs out of 10.0.0.0/24, and the members that follow from them (`pkg/registry/core/service`).

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use crate::error::Status;
use crate::meta;
use crate::schema::{CauseReason, FieldError};
use crate::server::ApiServer;

fn text_at<'a>(service: &'a Value, path: &str) -> &'a str {
    service.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

fn used_addresses(server: &ApiServer) -> BTreeSet<String> {
    let services = server.store().list("services", None);
    services.iter().map(|s| text_at(&s.value, "/spec/clusterIP").to_owned()).collect()
}

pub fn prepare_create(server: &ApiServer, service: &mut Value) -> Result<(), Status> {
    if !service.get("spec").is_some_and(Value::is_object) {
        service["spec"] = json!({});
    }
    let kind = text_at(service, "/spec/type").to_owned();
    if kind == "ExternalName" {
        return Ok(());
    }
    let asked = text_at(service, "/spec/clusterIP").to_owned();
    let address = match asked.as_str() {
        "None" => asked,
        "" => free_address(&used_addresses(server))
            .ok_or_else(|| Status::internal("failed to allocate a serviceIP: range is full"))?,
        given => {
            check_address(server, meta::object_name(service), given)?;
            asked
        }
    };
    let selectorless = address == "None" && service.pointer("/spec/selector").is_none();
    let spec = &mut service["spec"];
    spec["clusterIPs"] = json!([address]);
    spec["clusterIP"] = address.into();
    if selectorless {
        set_default(spec, "ipFamilies", json!(["IPv4", "IPv6"]));
        set_default(spec, "ipFamilyPolicy", "RequireDualStack".into());
    } else {
        set_default(spec, "ipFamilies", json!(["IPv4"]));
        set_default(spec, "ipFamilyPolicy", "SingleStack".into());
    }
    Ok(())
}

fn set_default(spec: &mut Value, member: &str, value: Value) {
    if spec.get(member).is_none() {
        spec[member] = value;
    }
}

fn free_address(used: &BTreeSet<String>) -> Option<String> {
    (2..255_u8).map(|last| Ipv4Addr::new(10, 0, 0, last).to_string()).find(|a| !used.contains(a))
}

fn check_address(server: &ApiServer, name: &str, address: &str) -> Result<(), Status> {
    if address.parse::<std::net::IpAddr>().is_err() {
        let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        let error = FieldError::invalid_text("spec.clusterIPs[0]", address, why);
        return Err(Status::invalid("", "Service", name, &[error]));
    }
    let in_range = address.parse::<Ipv4Addr>().is_ok_and(|a| a.octets().get(..3) == Some(&[10, 0, 0]));
    let why = if !in_range {
        "the provided network does not match the current range"
    } else if used_addresses(server).contains(address) {
        "provided IP is already allocated"
    } else {
        return Ok(());
    };
    let detail = format!("failed to allocate IP {address}: {why}");
    let error = FieldError::invalid("spec.clusterIPs", &json!([address]), &detail);
    Err(Status::invalid("", "Service", name, &[error]))
}

/// A PUT that leaves the addresses out keeps them.
pub fn prepare_update(service: &mut Value, old: &Value) {
    if text_at(service, "/spec/type") == "ExternalName" {
        return;
    }
    for member in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if service.pointer(&format!("/spec/{member}")).is_none()
            && let Some(value) = old.pointer(&format!("/spec/{member}"))
        {
            service["spec"][member] = value.clone();
        }
    }
}

pub fn validate_service(service: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let ports = service.pointer("/spec/ports").and_then(Value::as_array).cloned().unwrap_or_default();
    if ports.len() > 1 {
        for (index, port) in ports.iter().enumerate() {
            if port.get("name").and_then(Value::as_str).unwrap_or_default().is_empty() {
                errors.push(FieldError::required(format!("spec.ports[{index}].name"), ""));
            }
        }
    }
    errors.extend(port_errors(&ports));
    let spec = service.get("spec").unwrap_or(&Value::Null);
    let supported: [(&str, &[&str]); 2] = [
        ("sessionAffinity", &["ClientIP", "None"]),
        ("type", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]),
    ];
    for (member, known) in supported {
        if let Some(value) = spec.get(member).filter(|v| !v.as_str().is_some_and(|v| known.contains(&v))) {
            errors.push(FieldError::not_supported(format!("spec.{member}"), value, known));
        }
    }
    if text_at(service, "/spec/type") == "ExternalName" && text_at(service, "/spec/externalName").is_empty() {
        errors.push(FieldError::required("spec.externalName", ""));
    }
    let Some(old) = old else {
        if ports.is_empty()
            && !matches!(text_at(service, "/spec/type"), "ExternalName")
            && text_at(service, "/spec/clusterIP") != "None"
        {
            errors.push(FieldError::required("spec.ports", ""));
        }
        return errors;
    };
    let before = text_at(old, "/spec/clusterIP");
    if !before.is_empty()
        && text_at(service, "/spec/type") != "ExternalName"
        && before != text_at(service, "/spec/clusterIP")
    {
        let value = service.pointer("/spec/clusterIPs").cloned().unwrap_or_default();
        errors.push(FieldError {
            reason: CauseReason::Invalid,
            field: "spec.clusterIPs[0]".into(),
            message: format!("Invalid value: {value}: may not change once set"),
        });
    }
    errors
}

/// `IsValidPortName` of a target that is a name.
fn target_errors(path: &str, name: Option<&str>) -> Vec<FieldError> {
    let Some(name) = name else { return Vec::new() };
    let field = format!("{path}.targetPort");
    let mut errors = Vec::new();
    let mut found = |why: &str| errors.push(FieldError::invalid_text(field.clone(), name, why));
    if name.len() > 15 {
        found("must be no more than 15 characters");
    }
    if !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        found("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !name.bytes().any(|b| b.is_ascii_lowercase()) {
        found("must contain at least one letter (a-z)");
    }
    if name.contains("--") {
        found("must not contain consecutive hyphens");
    }
    if name.starts_with('-') || name.ends_with('-') {
        found("must not begin or end with a hyphen");
    }
    errors
}

fn port_errors(ports: &[Value]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut names = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = format!("spec.ports[{index}]");
        let name = text_at(port, "/name");
        if !name.is_empty() && !names.insert(name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &name.into()));
        }
        let node_port = port.get("nodePort").and_then(Value::as_i64).unwrap_or(0);
        if node_port != 0 && !(30000..=32767).contains(&node_port) {
            let why = "provided port is not in the valid range. The range of valid ports is 30000-32767";
            errors.push(FieldError::invalid(format!("{path}.nodePort"), &node_port.into(), why));
        }
        errors.extend(target_errors(&path, port.get("targetPort").and_then(Value::as_str)));
        let number = port.get("port").and_then(Value::as_i64).unwrap_or(0);
        if !(1..=65535).contains(&number) {
            let why = "must be between 1 and 65535, inclusive";
            errors.push(FieldError::invalid(format!("{path}.port"), &number.into(), why));
        }
        let protocols = ["SCTP", "TCP", "UDP"];
        if let Some(protocol) = port.get("protocol").filter(|p| !p.as_str().is_some_and(|p| protocols.contains(&p))) {
            errors.push(FieldError::not_supported(format!("{path}.protocol"), protocol, &protocols));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_target_is_a_number_or_a_name_of_a_port() {
        assert!(target_errors("p", None).is_empty() && target_errors("p", Some("http-2")).is_empty());
        assert_eq!(target_errors("p", Some("BAD_NAME")).len(), 2);
    }

    #[test]
    fn a_node_port_is_in_the_range() {
        let fields = |port: i64| port_errors(&[json!({"port": 80, "nodePort": port})]).len();
        assert_eq!((fields(80), fields(30080)), (1, 0));
    }
}
