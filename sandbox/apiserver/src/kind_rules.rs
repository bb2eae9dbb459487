//! Validation of built-in kinds of which networks are made: policies, ways in and their classes, and of budgets
//! (`pkg/apis/{networking,policy}/validation`).

use std::net::IpAddr;

use serde_json::Value;

use crate::meta::{label_problems, subdomain_problems};
use crate::schema::FieldError;

pub(crate) const NETWORK: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

pub(crate) fn text_of<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn items_of<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(crate) fn given<'v>(value: &'v Value, key: &str) -> Option<&'v Value> {
    value.get(key).filter(|v| !v.is_null())
}

pub(crate) fn spec_of(object: &Value) -> &Value {
    object.get("spec").unwrap_or(&Value::Null)
}

pub(crate) fn invalid_all(field: &str, value: &str, problems: &[String]) -> Vec<FieldError> {
    problems.iter().map(|why| FieldError::invalid_text(field, value, why)).collect()
}

/// A member that is set to something else than these.
pub(crate) fn unsupported(value: &Value, key: &str, field: &str, known: &[&str]) -> Option<FieldError> {
    let found = given(value, key).filter(|v| !v.as_str().is_some_and(|v| v.is_empty() || known.contains(&v)))?;
    Some(FieldError::not_supported(field, found, known))
}

/// The address and the bits of a network.
pub(crate) fn network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/')?;
    let (ip, bits) = (address.parse::<IpAddr>().ok()?, bits.parse::<u8>().ok()?);
    (bits <= if ip.is_ipv4() { 32 } else { 128 }).then_some((ip, bits))
}

/// `ValidateNetworkPolicySpec`.
pub fn network_policy_errors(policy: &Value) -> Vec<FieldError> {
    let spec = spec_of(policy);
    let mut errors = Vec::new();
    let selector = given(spec, "podSelector").into_iter();
    errors.extend(selector.flat_map(|s| crate::admission::selector_errors("spec.podSelector", s)));
    for (side, peers) in [("ingress", "from"), ("egress", "to")] {
        for (index, rule) in items_of(spec, side).iter().enumerate() {
            let at = format!("spec.{side}[{index}]");
            for (index, port) in items_of(rule, "ports").iter().enumerate() {
                errors.extend(policy_port_errors(&format!("{at}.ports[{index}]"), port));
            }
            for (index, peer) in items_of(rule, peers).iter().enumerate() {
                errors.extend(peer_errors(&format!("{at}.{peers}[{index}]"), peer));
            }
        }
    }
    let types = items_of(spec, "policyTypes");
    if types.len() > 2 {
        let shown = Value::from(types.to_vec());
        errors.push(FieldError::invalid("spec.policyTypes", &shown, "may not specify more than two policyTypes"));
        return errors;
    }
    let known = ["Ingress", "Egress"];
    for (index, kind) in types.iter().enumerate().filter(|(_, k)| !k.as_str().is_some_and(|k| known.contains(&k))) {
        errors.push(FieldError::not_supported(format!("spec.policyTypes[{index}]"), kind, &known));
    }
    errors
}

fn policy_port_errors(at: &str, port: &Value) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> =
        unsupported(port, "protocol", &format!("{at}.protocol"), &["TCP", "UDP", "SCTP"]).into_iter().collect();
    let number = port.get("port").and_then(Value::as_i64);
    if let Some(number) = number.filter(|n| !(1..=65535).contains(n)) {
        let why = "must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(format!("{at}.port"), &number.into(), why));
    }
    if let Some(name) = port.get("port").and_then(Value::as_str) {
        let problems = crate::container_rules::port_name_problems(name);
        errors.extend(problems.iter().map(|why| FieldError::invalid_text(format!("{at}.port"), name, why)));
        if let Some(last) = port.get("endPort").filter(|last| last.is_i64()) {
            let why = "may not be specified when `port` is non-numeric";
            errors.push(FieldError::invalid(format!("{at}.endPort"), last, why));
        }
    }
    let end = port.get("endPort").and_then(Value::as_i64);
    if let Some(last) = end.filter(|n| number.is_some() && !(1..=65535).contains(n)) {
        let why = "must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(format!("{at}.endPort"), &last.into(), why));
    }
    if let Some(last) = end.filter(|_| given(port, "port").is_none()) {
        let why = "may not be specified when `port` is not specified";
        errors.push(FieldError::invalid(format!("{at}.endPort"), &last.into(), why));
    }
    if let (Some(first), Some(last)) = (number, end)
        && last < first
    {
        // The real server shows the other number.
        let why = "must be greater than or equal to `port`";
        errors.push(FieldError::invalid(format!("{at}.endPort"), &first.into(), why));
    }
    errors
}

fn peer_errors(at: &str, peer: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let selectors = ["podSelector", "namespaceSelector"].into_iter().filter_map(|key| Some((key, given(peer, key)?)));
    let selectors: Vec<_> = selectors.collect();
    for (key, selector) in &selectors {
        errors.extend(crate::admission::selector_errors(&format!("{at}.{key}"), selector));
    }
    let block = given(peer, "ipBlock");
    if let Some(block) = block {
        errors.extend(block_errors(&format!("{at}.ipBlock"), block));
    }
    if selectors.is_empty() && block.is_none() {
        errors.push(FieldError::required(at, "must specify a peer"));
    } else if !selectors.is_empty() && block.is_some() {
        errors.push(FieldError::forbidden(at, "may not specify both ipBlock and another peer"));
    }
    errors
}

fn block_errors(at: &str, block: &Value) -> Vec<FieldError> {
    let range = text_of(block, "cidr");
    let Some((base, bits)) = network(range) else {
        return if range.is_empty() {
            vec![FieldError::required(format!("{at}.cidr"), "")]
        } else {
            vec![FieldError::invalid_text(format!("{at}.cidr"), range, NETWORK)]
        };
    };
    let mut errors = Vec::new();
    for (index, except) in items_of(block, "except").iter().enumerate() {
        let (field, text) = (format!("{at}.except[{index}]"), except.as_str().unwrap_or_default());
        match network(text) {
            None => errors.push(FieldError::invalid_text(field, text, NETWORK)),
            Some((inner, more)) if more <= bits || prefix_of(inner, bits) != prefix_of(base, bits) => {
                errors.push(FieldError::invalid_text(field, text, "must be a strict subset of `cidr`"));
            }
            Some(_) => {}
        }
    }
    errors
}

/// The family and the leading bits of an address.
fn prefix_of(ip: IpAddr, bits: u8) -> (bool, u128) {
    let (value, width) = match ip {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()), 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    };
    (ip.is_ipv4(), value.checked_shr(width - u32::from(bits).min(width)).unwrap_or(0))
}

/// The hosts, paths and backends of an Ingress (`validateIngressRules`).
pub fn ingress_details(ingress: &Value, created: bool) -> Vec<FieldError> {
    let spec = spec_of(ingress);
    let mut errors = Vec::new();
    for (index, entry) in items_of(spec, "tls").iter().enumerate() {
        for (inner, host) in items_of(entry, "hosts").iter().enumerate() {
            let host = host.as_str().unwrap_or_default();
            errors.extend(host_errors(&format!("spec.tls[{index}].hosts[{inner}]"), host));
        }
        let secret = text_of(entry, "secretName");
        if created && !secret.is_empty() {
            errors.extend(invalid_all(&format!("spec.tls[{index}].secretName"), secret, &subdomain_problems(secret)));
        }
    }
    for (index, rule) in items_of(spec, "rules").iter().enumerate() {
        let at = format!("spec.rules[{index}]");
        let host = text_of(rule, "host");
        if host.parse::<IpAddr>().is_ok() {
            let why = "must be a DNS name, not an IP address";
            errors.push(FieldError::invalid_text(format!("{at}.host"), host, why));
        } else if !host.is_empty() {
            errors.extend(host_errors(&format!("{at}.host"), host));
        }
        let Some(http) = given(rule, "http") else { continue };
        let paths = items_of(http, "paths");
        if paths.is_empty() {
            errors.push(FieldError::required(format!("{at}.http.paths"), ""));
        }
        for (index, path) in paths.iter().enumerate() {
            errors.extend(path_errors(&format!("{at}.http.paths[{index}]"), path));
        }
    }
    if let Some(backend) = given(spec, "defaultBackend") {
        errors.extend(backend_errors("spec.defaultBackend", backend));
    }
    if let Some(class) = given(spec, "ingressClassName").and_then(Value::as_str) {
        errors.extend(invalid_all("spec.ingressClassName", class, &subdomain_problems(class)));
        let annotation = ingress.pointer("/metadata/annotations/kubernetes.io~1ingress.class").and_then(Value::as_str);
        if let Some(other) = annotation.filter(|other| created && *other != class) {
            let why = "must match `ingressClassName` when both are specified";
            errors.push(FieldError::invalid_text("annotations.kubernetes.io/ingress.class", other, why));
        }
    }
    errors
}

fn host_errors(field: &str, host: &str) -> Vec<FieldError> {
    if !host.contains('*') {
        return invalid_all(field, host, &subdomain_problems(host));
    }
    let rest = host.strip_prefix("*.");
    let fits = rest.is_some_and(|rest| !rest.contains('*') && subdomain_problems(rest).is_empty());
    let why = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of \
               lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. \
               '*.example.com', regex used for validation is \
               '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    if fits { Vec::new() } else { vec![FieldError::invalid_text(field, host, why)] }
}

fn path_errors(at: &str, path: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (kind, text) = (text_of(path, "pathType"), text_of(path, "path"));
    let field = format!("{at}.path");
    match kind {
        "" => return vec![FieldError::required(format!("{at}.pathType"), "pathType must be specified")],
        "ImplementationSpecific" => {
            if !text.is_empty() && !text.starts_with('/') {
                errors.push(FieldError::invalid_text(field, text, "must be an absolute path"));
            }
        }
        "Exact" | "Prefix" => {
            if !text.starts_with('/') {
                errors.push(FieldError::invalid_text(field.as_str(), text, "must be an absolute path"));
            }
            for part in ["//", "/./", "/../", "%2f", "%2F"].into_iter().filter(|part| text.contains(part)) {
                errors.push(FieldError::invalid_text(field.as_str(), text, &format!("must not contain '{part}'")));
            }
        }
        _ => {
            let known = ["Exact", "ImplementationSpecific", "Prefix"];
            errors.extend(unsupported(path, "pathType", &format!("{at}.pathType"), &known));
        }
    }
    errors.extend(backend_errors(&format!("{at}.backend"), path.get("backend").unwrap_or(&Value::Null)));
    errors
}

fn backend_errors(at: &str, backend: &Value) -> Vec<FieldError> {
    let (service, resource) = (given(backend, "service"), given(backend, "resource"));
    let Some(service) = service else {
        let why = "resource or service backend is required";
        return match resource {
            Some(resource) => reference_errors(&format!("{at}.resource"), resource),
            None => vec![FieldError::invalid_text(at, "", why)],
        };
    };
    if resource.is_some() {
        return vec![FieldError::invalid_text(at, "", "cannot set both resource and service backends")];
    }
    let mut errors = Vec::new();
    let name = text_of(service, "name");
    let field = format!("{at}.service.name");
    if name.is_empty() {
        errors.push(FieldError::required(field, ""));
    } else {
        errors.extend(invalid_all(&field, name, &label_problems(name)));
    }
    let port = service.get("port").unwrap_or(&Value::Null);
    let number = port.get("number").and_then(Value::as_i64).unwrap_or(0);
    match (number, text_of(port, "name")) {
        (0, "") => errors.push(FieldError::required(at, "port name or number is required")),
        (number, name) if number != 0 && !name.is_empty() => {
            errors.push(FieldError::invalid_text(at, "", "cannot set both port name & port number"));
        }
        (number, "") if !(1..=65535).contains(&number) => {
            let why = "must be between 1 and 65535, inclusive";
            errors.push(FieldError::invalid(format!("{at}.service.port.number"), &number.into(), why));
        }
        (0, name) => {
            let problems = crate::container_rules::port_name_problems(name);
            let field = format!("{at}.service.port.name");
            errors.extend(problems.iter().map(|why| FieldError::invalid_text(field.as_str(), name, why)));
        }
        _ => {}
    }
    errors
}

/// A reference to an object of any kind in the same namespace.
fn reference_errors(at: &str, reference: &Value) -> Vec<FieldError> {
    let missing = ["kind", "name"].into_iter().filter(|key| text_of(reference, key).is_empty());
    let mut errors: Vec<FieldError> = missing.map(|key| FieldError::required(format!("{at}.{key}"), "")).collect();
    let group = text_of(reference, "apiGroup");
    if !group.is_empty() {
        errors.extend(invalid_all(&format!("{at}.apiGroup"), group, &subdomain_problems(group)));
    }
    errors
}

/// The parameters of an IngressClass (`validateIngressClassParametersReference`).
pub fn parameter_errors(class: &Value) -> Vec<FieldError> {
    let at = "spec.parameters";
    let Some(parameters) = given(spec_of(class), "parameters") else { return Vec::new() };
    let mut errors = reference_errors(at, parameters);
    for key in ["kind", "name"] {
        let text = text_of(parameters, key);
        let problems = crate::autoscaler_rules::path_name_errors(&format!("{at}.{key}"), text, "");
        errors.extend(problems.into_iter().filter(|_| !text.is_empty()));
    }
    let (scope, namespace) = (text_of(parameters, "scope"), given(parameters, "namespace"));
    let field = format!("{at}.namespace");
    match scope {
        "Namespace" => match namespace.and_then(Value::as_str) {
            None => errors.push(FieldError::required(field, "`parameters.scope` is set to 'Namespace'")),
            Some(name) => errors.extend(invalid_all(&field, name, &label_problems(name))),
        },
        "Cluster" => {
            let why = "`parameters.scope` is set to 'Cluster'";
            errors.extend(namespace.map(|_| FieldError::forbidden(field, why)));
        }
        other => {
            let known = ["Cluster", "Namespace"];
            errors.push(FieldError::not_supported(format!("{at}.scope"), &other.into(), &known));
        }
    }
    errors
}

/// A budget's selector and its policy for pods that are not healthy.
pub fn budget_details(budget: &Value) -> Vec<FieldError> {
    let spec = spec_of(budget);
    let selector = given(spec, "selector").into_iter();
    let mut errors: Vec<FieldError> =
        selector.flat_map(|s| crate::admission::selector_errors("spec.selector", s)).collect();
    let known = ["AlwaysAllow", "IfHealthyBudget"];
    errors.extend(unsupported(spec, "unhealthyPodEvictionPolicy", "spec.unhealthyPodEvictionPolicy", &known));
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_exception_lies_within_its_block() {
        let block = |except: &str| block_errors("b", &json!({"cidr": "10.0.0.0/8", "except": [except]})).len();
        assert_eq!((block("10.1.0.0/16"), block("11.0.0.0/16"), block("10.0.0.0/8")), (0, 1, 1));
    }

    #[test]
    fn a_path_is_absolute_and_leads_to_one_backend() {
        let service = json!({"name": "s", "port": {"number": 80}});
        let path = |text: &str, backend: Value| {
            path_errors("p", &json!({"path": text, "pathType": "Prefix", "backend": backend})).len()
        };
        assert_eq!(path("/a", json!({"service": service})), 0);
        assert_eq!(path("a//b", json!({"service": service})), 2);
        assert_eq!(path("/", json!({"service": service, "resource": {"kind": "k", "name": "n"}})), 1);
    }

    #[test]
    fn the_parameters_of_a_class_are_where_it_says() {
        let class = |parameters: Value| json!({"spec": {"parameters": parameters}});
        let told = |parameters: Value| parameter_errors(&class(parameters)).len();
        assert_eq!(told(json!({"kind": "K", "name": "n", "scope": "Cluster"})), 0);
        assert_eq!(told(json!({"kind": "", "name": "a/b", "scope": "Namespace"})), 3);
        assert_eq!(told(json!({"kind": "K", "name": "n", "scope": "Foo", "apiGroup": "A_"})), 2);
    }
}
