//! Validation of Endpoints and EndpointSlices (`ValidateEndpoints` of `pkg/apis/core/validation`,
//! `pkg/apis/discovery/validation`).

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;

use crate::kind_rules::{items_of, text_of, unsupported};
use crate::meta::{label_problems, qualified_name_problems, subdomain_problems};
use crate::schema::FieldError;

const ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

/// A slice of endpoints, which keeps its address type.
pub fn slice_errors(slice: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let kind = text_of(slice, "addressType");
    let mut errors = Vec::new();
    if kind.is_empty() {
        errors.push(FieldError::required("addressType", ""));
    }
    errors.extend(unsupported(slice, "addressType", "addressType", &["FQDN", "IPv4", "IPv6"]));
    if old.is_some_and(|old| text_of(old, "addressType") != kind) {
        errors.push(FieldError::invalid_text("addressType", kind, "field is immutable"));
    }
    // Endpoints that stay as they were are not looked at again.
    let same = old.is_some_and(|old| items_of(old, "endpoints") == items_of(slice, "endpoints"));
    let endpoints = if same { &[] } else { items_of(slice, "endpoints") };
    for (index, endpoint) in endpoints.iter().enumerate() {
        let at = format!("endpoints[{index}]");
        let addresses = items_of(endpoint, "addresses");
        if addresses.is_empty() {
            errors.push(FieldError::required(format!("{at}.addresses"), "must contain at least 1 address"));
        }
        let known = matches!(kind, "FQDN" | "IPv4" | "IPv6");
        for (place, address) in addresses.iter().enumerate().filter(|_| known) {
            errors.extend(address_errors(address.as_str().unwrap_or_default(), kind, &at, place));
        }
        errors.extend(host_errors(endpoint, &at));
    }
    let mut names = BTreeSet::new();
    for (index, port) in items_of(slice, "ports").iter().enumerate() {
        let (at, name) = (format!("ports[{index}]"), text_of(port, "name"));
        if !name.is_empty() {
            errors.extend(all_invalid(&format!("{at}.name"), name, &label_problems(name)));
        }
        if !names.insert(name) {
            errors.push(FieldError::duplicate(format!("{at}.name"), &name.into()));
        }
        errors.extend(unsupported(port, "protocol", &format!("{at}.protocol"), &PROTOCOLS));
        let protocol = text_of(port, "appProtocol");
        if !protocol.is_empty() {
            errors.extend(all_invalid(&format!("{at}.appProtocol"), protocol, &qualified_name_problems(protocol)));
        }
    }
    errors
}

/// What a client is told of a slice of names.
pub fn slice_warnings(slice: &Value) -> Vec<String> {
    let of_names = text_of(slice, "addressType") == "FQDN";
    of_names.then(|| "spec.addressType: FQDN endpoints are deprecated".to_owned()).into_iter().collect()
}

fn all_invalid(field: &str, value: &str, problems: &[String]) -> Vec<FieldError> {
    problems.iter().map(|why| FieldError::invalid_text(field, value, why)).collect()
}

fn address_errors(address: &str, kind: &str, at: &str, place: usize) -> Vec<FieldError> {
    let field = format!("{at}.addresses[{place}]");
    if kind == "FQDN" {
        return all_invalid(&field, address, &subdomain_problems(address));
    }
    let Ok(ip) = address.parse::<IpAddr>() else {
        return vec![FieldError::invalid_text(field, address, ADDRESS)];
    };
    let mut errors = Vec::new();
    if ip.is_ipv4() != (kind == "IPv4") {
        let why = format!("must be an {kind} address");
        errors.push(FieldError::invalid_text(format!("{at}.addresses"), address, &why));
    }
    errors.extend(range_problem(ip).map(|why| FieldError::invalid_text(field, address, &why)));
    errors
}

/// Ranges in which nobody serves (`ValidateEndpointIP`).
fn range_problem(ip: IpAddr) -> Option<String> {
    let (local, local_group) = match ip {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets().starts_with(&[224, 0, 0])),
        IpAddr::V6(v6) => (v6.segments()[0] & 0xffc0 == 0xfe80, v6.segments()[0] & 0xff0f == 0xff02),
    };
    if ip.is_unspecified() {
        Some(format!("may not be unspecified ({ip})"))
    } else if ip.is_loopback() {
        Some("may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned())
    } else if local {
        Some("may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned())
    } else {
        local_group.then(|| "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned())
    }
}

fn host_errors(endpoint: &Value, at: &str) -> Vec<FieldError> {
    let (host, node) = (text_of(endpoint, "hostname"), text_of(endpoint, "nodeName"));
    let mut errors = Vec::new();
    if !host.is_empty() {
        errors.extend(all_invalid(&format!("{at}.hostname"), host, &label_problems(host)));
    }
    if !node.is_empty() {
        errors.extend(all_invalid(&format!("{at}.nodeName"), node, &subdomain_problems(node)));
    }
    errors
}

/// Endpoints in subsets, each with addresses.
pub fn subset_errors(endpoints: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, subset) in items_of(endpoints, "subsets").iter().enumerate() {
        let at = format!("subsets[{index}]");
        let lists = ["addresses", "notReadyAddresses"];
        if lists.iter().all(|list| items_of(subset, list).is_empty()) {
            errors.push(FieldError::required(at.as_str(), "must specify `addresses` or `notReadyAddresses`"));
        }
        for list in lists {
            for (place, address) in items_of(subset, list).iter().enumerate() {
                let (at, text) = (format!("{at}.{list}[{place}]"), text_of(address, "ip"));
                match text.parse::<IpAddr>() {
                    Ok(ip) => {
                        let problem = range_problem(ip);
                        errors.extend(problem.map(|why| FieldError::invalid_text(format!("{at}.ip"), text, &why)));
                    }
                    Err(_) => {
                        let both = [ADDRESS, "must be a valid IP address"];
                        errors.extend(both.map(|why| FieldError::invalid_text(format!("{at}.ip"), text, why)));
                    }
                }
                errors.extend(host_errors(address, &at));
            }
        }
        let ports = items_of(subset, "ports");
        for (place, port) in ports.iter().enumerate() {
            errors.extend(port_errors(port, ports.len() > 1, &format!("{at}.ports[{place}]")));
        }
    }
    errors
}

fn port_errors(port: &Value, named: bool, at: &str) -> Vec<FieldError> {
    let name = text_of(port, "name");
    let mut errors = match name {
        "" if named => vec![FieldError::required(format!("{at}.name"), "")],
        "" => Vec::new(),
        name => all_invalid(&format!("{at}.name"), name, &label_problems(name)),
    };
    let number = port.get("port").and_then(Value::as_i64).unwrap_or(0);
    if !(1..=65535).contains(&number) {
        let why = "must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(format!("{at}.port"), &number.into(), why));
    }
    errors.extend(unsupported(port, "protocol", &format!("{at}.protocol"), &PROTOCOLS));
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(errors: &[FieldError]) -> Vec<&str> {
        errors.iter().map(|e| e.field.as_str()).collect()
    }

    #[test]
    fn addresses_are_of_the_type_and_reachable() {
        let slice = |address: &str| json!({"addressType": "IPv4", "endpoints": [{"addresses": [address]}]});
        assert!(slice_errors(&slice("10.1.2.3"), None).is_empty());
        assert_eq!(fields(&slice_errors(&slice("::5"), None)), ["endpoints[0].addresses"]);
        assert_eq!(fields(&slice_errors(&slice("127.0.0.1"), None)), ["endpoints[0].addresses[0]"]);
        assert_eq!(fields(&slice_errors(&json!({}), None)), ["addressType"]);
    }

    #[test]
    fn several_ports_have_names() {
        let subset = json!({"addresses": [{"ip": "1.2.3.4"}], "ports": [{"port": 80, "name": "a"}, {"port": 81}]});
        assert_eq!(fields(&subset_errors(&json!({"subsets": [subset]}))), ["subsets[0].ports[1].name"]);
        assert_eq!(fields(&subset_errors(&json!({"subsets": [{}]}))), ["subsets[0]"]);
    }
}
