//! What a Service may say (`ValidateService`, `ValidateServiceUpdate` of `pkg/apis/core/validation`), and what is
//! warned of.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;

use super::{ips_of, is_headless, spec_of, text_at};
use crate::error::go_quote;
use crate::meta::{label_errors, label_problems, qualified_name_problems, subdomain_problems};
use crate::schema::FieldError;

const ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const BALANCER_ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
const PORT_RANGE: &str = "must be between 1 and 65535, inclusive";

/// Whether clients outside the cluster reach it.
pub fn is_exposed(service: &Value) -> bool {
    let outside = spec_of(service).get("externalIPs").and_then(Value::as_array).is_some_and(|ips| !ips.is_empty());
    match text_at(service, "/spec/type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => outside,
        _ => false,
    }
}

pub fn validate_service(service: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = spec_of(service);
    let kind = text_at(service, "/spec/type");
    let list = |member: &str| spec.get(member).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let given = |member: &str| spec.get(member).filter(|v| !v.is_null());
    errors.extend(old.and_then(|old| changed_address(service, old)));
    errors.extend(old.and_then(|old| changed_check(service, old)));
    let ports = list("ports");
    if ports.is_empty() && !is_headless(service) && kind != "ExternalName" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    match kind {
        "LoadBalancer" | "NodePort" if is_headless(service) => {
            let why = format!("may not be set to 'None' for {kind} services");
            errors.push(FieldError::invalid_text("spec.clusterIPs[0]", "None", &why));
        }
        "ExternalName" => errors.extend(external_name_errors(service)),
        _ => {}
    }
    let mut names = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        errors.extend(port_errors(&format!("spec.ports[{index}]"), port, ports.len() > 1, &mut names));
    }
    errors.extend(label_errors(spec.get("selector"), "spec.selector"));
    errors.extend(affinity_errors(spec));
    for (index, address) in list("externalIPs").iter().enumerate() {
        let (field, address) = (format!("spec.externalIPs[{index}]"), address.as_str().unwrap_or_default());
        match address.parse::<IpAddr>() {
            Err(_) => errors.push(FieldError::invalid_text(field, address, address_problem(address))),
            Ok(ip) => errors.extend(special_address(&field, address, ip)),
        }
    }
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    errors.extend(unsupported(spec, "type", &kinds));
    errors.extend(shared_port_errors(ports, kind == "ClusterIP"));
    let ranges = list("loadBalancerSourceRanges");
    if !ranges.is_empty() && kind != "LoadBalancer" {
        errors.push(FieldError::forbidden("spec.LoadBalancerSourceRanges", BALANCER_ONLY));
    }
    for (index, range) in ranges.iter().enumerate() {
        let range = range.as_str().unwrap_or_default().trim();
        if !is_network(range) {
            let why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            errors.push(FieldError::invalid_text(format!("spec.LoadBalancerSourceRanges[{index}]"), range, why));
        }
    }
    for member in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
        if kind != "LoadBalancer" && given(member).is_some() {
            errors.push(FieldError::forbidden(format!("spec.{member}"), BALANCER_ONLY));
        }
    }
    if let Some(class) = given("loadBalancerClass").and_then(Value::as_str).filter(|_| kind == "LoadBalancer") {
        let problems = qualified_name_problems(class).into_iter();
        errors.extend(problems.map(|why| FieldError::invalid_text("spec.loadBalancerClass", class, &why)));
    }
    errors.extend(traffic_errors(service));
    errors.extend(unsupported(spec, "internalTrafficPolicy", &["Cluster", "Local"]));
    let near = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    errors.extend(unsupported(spec, "trafficDistribution", &near));
    errors
}

/// `ValidateLoadBalancerStatus`: where a service is reached that has a balancer.
pub fn balancer_errors(service: &Value) -> Vec<FieldError> {
    let entries =
        service.pointer("/status/loadBalancer/ingress").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let field = "status.loadBalancer.ingress";
    if text_at(service, "/spec/type") != "LoadBalancer" {
        let why = "may only be used when `spec.type` is 'LoadBalancer'";
        return (!entries.is_empty()).then(|| FieldError::forbidden(field, why)).into_iter().collect();
    }
    let at = |index: usize| format!("{field}[{index}]");
    entries
        .iter()
        .enumerate()
        .flat_map(|(i, entry)| mode_error(entry, &at(i)).into_iter().chain(entry_errors(entry, &at(i))))
        .collect()
}

/// How packets arrive at an address.
fn mode_error(entry: &Value, at: &str) -> Option<FieldError> {
    let (ip, field) = (text_at(entry, "/ip"), format!("{at}.ipMode"));
    match entry.get("ipMode").and_then(Value::as_str) {
        None if !ip.is_empty() => Some(FieldError::required(field, "must be specified when `ip` is set")),
        Some(_) if ip.is_empty() => Some(FieldError::forbidden(field, "may not be specified when `ip` is not set")),
        Some(mode) if !["Proxy", "VIP"].contains(&mode) => {
            Some(FieldError::not_supported(field, &mode.into(), &["Proxy", "VIP"]))
        }
        _ => None,
    }
}

/// An address or a name of a balancer.
pub fn entry_errors(entry: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (ip, host) = (text_at(entry, "/ip"), text_at(entry, "/hostname"));
    if !ip.is_empty() && ip.parse::<IpAddr>().is_err() {
        errors.push(FieldError::invalid_text(format!("{at}.ip"), ip, ADDRESS));
    }
    if !host.is_empty() {
        let field = format!("{at}.hostname");
        let problems = crate::meta::subdomain_problems(host);
        errors.extend(problems.iter().map(|why| FieldError::invalid_text(field.as_str(), host, why)));
        if host.parse::<IpAddr>().is_ok() {
            errors.push(FieldError::invalid_text(field, host, "must be a DNS name, not an IP address"));
        }
    }
    errors
}

fn unsupported(spec: &Value, member: &str, known: &[&str]) -> Option<FieldError> {
    let value = spec.get(member).filter(|v| !v.is_null() && !v.as_str().is_some_and(|v| known.contains(&v)))?;
    Some(FieldError::not_supported(format!("spec.{member}"), value, known))
}

/// The first address stays, unless the service is or was a mere name.
fn changed_address(service: &Value, old: &Value) -> Option<FieldError> {
    let named = |s: &Value| text_at(s, "/spec/type") == "ExternalName";
    let (before, after) = (ips_of(old), ips_of(service));
    if named(service) || named(old) || (is_headless(old) && is_headless(service)) || before.is_empty() {
        return None;
    }
    let shown = Value::from(after.clone());
    match after.first() {
        None => Some(FieldError::invalid("spec.clusterIPs[0]", &shown, "primary clusterIP can not be unset")),
        first if first != before.first() => {
            Some(FieldError::invalid("spec.clusterIPs[0]", &shown, "may not change once set"))
        }
        _ => None,
    }
}

fn external_name_errors(service: &Value) -> Vec<FieldError> {
    let why = "may not be set for ExternalName services";
    let spec = spec_of(service);
    let set = |member: &str| match spec.get(member) {
        Some(Value::Array(list)) => !list.is_empty(),
        Some(Value::Null) | None => false,
        Some(_) => true,
    };
    let members = ["clusterIPs", "ipFamilies", "ipFamilyPolicy"].into_iter().filter(|member| set(member));
    let mut errors: Vec<_> = members.map(|member| FieldError::forbidden(format!("spec.{member}"), why)).collect();
    let name = text_at(service, "/spec/externalName");
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() {
        errors.push(FieldError::required("spec.externalName", ""));
    } else {
        let problems = subdomain_problems(name);
        errors.extend(problems.iter().map(|why| FieldError::invalid_text("spec.externalName", name, why)));
    }
    errors
}

fn port_errors(path: &str, port: &Value, named: bool, names: &mut BTreeSet<String>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = text_at(port, "/name");
    if name.is_empty() {
        if named {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        }
    } else {
        let field = format!("{path}.name");
        errors.extend(label_problems(name).iter().map(|why| FieldError::invalid_text(field.clone(), name, why)));
        if !names.insert(name.to_owned()) {
            errors.push(FieldError::duplicate(field, &name.into()));
        }
    }
    let number = port.get("port").and_then(Value::as_i64).unwrap_or(0);
    if !(1..=65535).contains(&number) {
        errors.push(FieldError::invalid(format!("{path}.port"), &number.into(), PORT_RANGE));
    }
    let protocols = ["SCTP", "TCP", "UDP"];
    if let Some(protocol) = port.get("protocol").filter(|p| !p.as_str().is_some_and(|p| protocols.contains(&p))) {
        errors.push(FieldError::not_supported(format!("{path}.protocol"), protocol, &protocols));
    }
    errors.extend(target_errors(path, port.get("targetPort").unwrap_or(&Value::Null)));
    if let Some(protocol) = port.get("appProtocol").and_then(Value::as_str) {
        let field = format!("{path}.appProtocol");
        let problems = qualified_name_problems(protocol);
        errors.extend(problems.iter().map(|why| FieldError::invalid_text(field.clone(), protocol, why)));
    }
    errors
}

/// `ValidatePortNumOrName` of a target.
fn target_errors(path: &str, target: &Value) -> Vec<FieldError> {
    let field = format!("{path}.targetPort");
    let Some(name) = target.as_str() else {
        let fits = target.as_i64().is_none_or(|number| (1..=65535).contains(&number));
        return if fits { Vec::new() } else { vec![FieldError::invalid(field, target, PORT_RANGE)] };
    };
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

/// Node ports where there are none, and ports that two entries claim.
fn shared_port_errors(ports: &[Value], inside_only: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let number = |port: &Value, member: &str| port.get(member).and_then(Value::as_i64).unwrap_or(0);
    let paths = || ports.iter().enumerate().map(|(index, port)| (format!("spec.ports[{index}]"), port));
    for (path, _) in paths().filter(|(_, port)| inside_only && number(port, "nodePort") != 0) {
        let why = "may not be used when `type` is 'ClusterIP'";
        errors.push(FieldError::forbidden(format!("{path}.nodePort"), why));
    }
    let mut seen = BTreeSet::new();
    for (path, port) in paths().filter(|(_, port)| number(port, "nodePort") != 0) {
        if !seen.insert((text_at(port, "/protocol"), number(port, "nodePort"))) {
            errors.push(FieldError::duplicate(format!("{path}.nodePort"), &number(port, "nodePort").into()));
        }
    }
    let mut seen = BTreeSet::new();
    for (path, port) in paths() {
        let (protocol, number) = (text_at(port, "/protocol"), number(port, "port"));
        if !seen.insert((protocol, number)) {
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":{},\"AppProtocol\":null,\"Port\":{number},\"TargetPort\":0,\"NodePort\":0}}",
                go_quote(protocol)
            );
            errors.push(FieldError::duplicate_shown(path, &shown));
        }
    }
    errors
}

fn affinity_errors(spec: &Value) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> = unsupported(spec, "sessionAffinity", &["ClientIP", "None"]).into_iter().collect();
    if text_at(spec, "/sessionAffinity") == "ClientIP" {
        let field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
        let seconds = spec.pointer("/sessionAffinityConfig/clientIP/timeoutSeconds").unwrap_or(&Value::Null);
        if seconds.as_i64().is_some_and(|s| !(1..=86400).contains(&s)) {
            errors.push(FieldError::invalid(field, seconds, "must be greater than 0 and less than 86400"));
        }
    }
    errors
}

/// `ValidateEndpointIP`.
fn special_address(field: &str, shown: &str, ip: IpAddr) -> Option<FieldError> {
    let why = match ip {
        _ if ip.is_unspecified() => format!("may not be unspecified ({shown})"),
        _ if ip.is_loopback() => "may not be in the loopback range (127.0.0.0/8, ::1/128)".into(),
        IpAddr::V4(v4) if v4.is_link_local() => "may not be in the link-local range (169.254.0.0/16, fe80::/10)".into(),
        IpAddr::V4(v4) if v4.octets().starts_with(&[224, 0, 0]) => {
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".into()
        }
        _ => return None,
    };
    Some(FieldError::invalid_text(field, shown, &why))
}

fn is_network(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let Ok(ip) = address.parse::<IpAddr>() else { return false };
    bits.parse::<u8>().is_ok_and(|bits| bits <= if ip.is_ipv4() { 32 } else { 128 })
}

/// What is wrong with a text that is no address (`validation.IsValidIP`).
pub fn address_problem(text: &str) -> &'static str {
    let parts: Vec<&str> = text.split('.').collect();
    let byte = |part: &&str| part.bytes().all(|b| b.is_ascii_digit()) && part.parse::<u8>().is_ok();
    if parts.len() == 4 && parts.iter().all(byte) { "must not have leading 0s" } else { ADDRESS }
}

/// The port that tells a balancer where its pods are stays while there is one.
fn changed_check(service: &Value, old: &Value) -> Option<FieldError> {
    let checked =
        |s: &Value| text_at(s, "/spec/type") == "LoadBalancer" && text_at(s, "/spec/externalTrafficPolicy") == "Local";
    let port = |s: &Value| spec_of(s).get("healthCheckNodePort").and_then(Value::as_i64).unwrap_or(0);
    (checked(service) && checked(old) && port(service) != port(old))
        .then(|| FieldError::forbidden("spec.healthCheckNodePort", "field is immutable"))
}

fn traffic_errors(service: &Value) -> Vec<FieldError> {
    let spec = spec_of(service);
    let policy = text_at(service, "/spec/externalTrafficPolicy");
    let mut errors = Vec::new();
    if is_exposed(service) {
        errors.extend(unsupported(spec, "externalTrafficPolicy", &["Cluster", "Local"]));
    } else if !policy.is_empty() {
        let why = "may only be set for externally-accessible services";
        errors.push(FieldError::invalid_text("spec.externalTrafficPolicy", policy, why));
    }
    let check = spec.get("healthCheckNodePort").filter(|port| port.as_i64().is_some_and(|port| port != 0));
    if let Some(port) = check.filter(|_| text_at(service, "/spec/type") != "LoadBalancer" || policy != "Local") {
        let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.push(FieldError::invalid("spec.healthCheckNodePort", port, why));
    }
    errors
}

/// `GetWarningsForService`.
pub fn service_warnings(service: &Value) -> Vec<String> {
    let spec = spec_of(service);
    let kind = text_at(service, "/spec/type");
    let outside = spec.get("externalIPs").and_then(Value::as_array).is_some_and(|ips| !ips.is_empty());
    let mut warnings = Vec::new();
    if is_headless(service) {
        if !text_at(service, "/spec/loadBalancerIP").is_empty() {
            warnings.push("spec.loadBalancerIP is ignored for headless services");
        }
        if outside {
            warnings.push("spec.externalIPs is ignored for headless services");
        }
        if text_at(service, "/spec/sessionAffinity") != "None" {
            warnings.push("spec.SessionAffinity is ignored for headless services");
        }
    } else if outside && kind != "ExternalName" {
        warnings.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters");
    }
    if outside && kind == "ExternalName" {
        warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"");
    }
    if kind != "ExternalName" && !text_at(service, "/spec/externalName").is_empty() {
        warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"");
    }
    if text_at(service, "/spec/trafficDistribution") == "PreferClose" {
        warnings.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"");
    }
    warnings.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_target_is_a_number_or_a_name_of_a_port() {
        assert!(target_errors("p", &Value::Null).is_empty() && target_errors("p", &json!("http-2")).is_empty());
        assert_eq!(target_errors("p", &json!("BAD_NAME")).len(), 2);
        assert_eq!(target_errors("p", &json!(70000)).len(), 1);
    }

    #[test]
    fn only_a_balancer_has_addresses() {
        let service = |kind: &str, entry: Value| json!({"spec": {"type": kind}, "status": {"loadBalancer": {"ingress": [entry]}}});
        assert_eq!(balancer_errors(&service("ClusterIP", json!({"ip": "1.2.3.4"}))).len(), 1);
        assert!(balancer_errors(&service("LoadBalancer", json!({"ip": "1.2.3.4", "ipMode": "VIP"}))).is_empty());
        let named = balancer_errors(&service("LoadBalancer", json!({"hostname": "1.2.3.4"})));
        assert_eq!(named[0].message, "Invalid value: \"1.2.3.4\": must be a DNS name, not an IP address");
    }

    #[test]
    fn a_node_port_is_for_services_that_are_reached_from_outside() {
        let of = |kind: &str| {
            json!({"spec": {"type": kind, "sessionAffinity": "None", "externalTrafficPolicy": "Cluster",
                "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}]}})
        };
        assert!(validate_service(&of("NodePort"), None).is_empty());
        let fields: Vec<String> = validate_service(&of("ClusterIP"), None).into_iter().map(|e| e.field).collect();
        assert_eq!(fields, ["spec.ports[0].nodePort", "spec.externalTrafficPolicy"]);
    }

    #[test]
    fn the_address_of_a_service_stays_until_it_is_a_name() {
        let of = |kind: &str, ip: &str| json!({"spec": {"type": kind, "clusterIP": ip, "clusterIPs": [ip]}});
        assert!(changed_address(&of("ClusterIP", "10.0.0.2"), &of("ClusterIP", "10.0.0.1")).is_some());
        assert!(changed_address(&of("ClusterIP", "10.0.0.2"), &json!({"spec": {"type": "ExternalName"}})).is_none());
    }
}
