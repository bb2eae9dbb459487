//! What connects pods.

use jiff::Timestamp;
use serde_json::Value;

use super::*;

pub fn endpoints(o: &Value, now: Timestamp) -> Vec<Value> {
    let mut all = Vec::new();
    for subset in list(o, "subsets") {
        let ports = list(subset, "ports");
        for address in list(subset, "addresses") {
            let ip = text(address, "ip");
            if ports.is_empty() {
                all.push(ip.clone());
            }
            all.extend(ports.iter().map(|p| format!("{ip}:{}", number(p, "port"))));
        }
    }
    cells![name(o), shortened(&all), age(o, now)]
}

/// The first three, and how many more there are.
fn shortened(all: &[String]) -> String {
    match all.len() {
        0 => NONE.into(),
        1..=3 => all.join(","),
        many => format!("{} + {} more...", all.iter().take(3).cloned().collect::<Vec<_>>().join(","), many - 3),
    }
}

pub fn service(o: &Value, now: Timestamp) -> Vec<Value> {
    let ips: Vec<String> = list(o, "spec.externalIPs").iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let kind = text(o, "spec.type");
    let external = match kind.as_str() {
        "LoadBalancer" => {
            let ingress = list(o, "status.loadBalancer.ingress").iter();
            let mut all: Vec<String> = ingress.map(|i| text_or(i, "ip", &text(i, "hostname"))).collect();
            all.extend(ips);
            joined(&all, "<pending>")
        }
        "ExternalName" => text(o, "spec.externalName"),
        _ => joined(&ips, NONE),
    };
    let ports = list(o, "spec.ports").iter().map(|p| {
        let protocol = text_or(p, "protocol", "TCP");
        match number(p, "nodePort") {
            0 => format!("{}/{protocol}", number(p, "port")),
            node => format!("{}:{node}/{protocol}", number(p, "port")),
        }
    });
    cells![
        name(o),
        kind,
        text_or(o, "spec.clusterIP", NONE),
        external,
        joined(&ports.collect::<Vec<_>>(), NONE),
        age(o, now),
        labels(o, "spec.selector")
    ]
}

pub fn endpoint_slice(o: &Value, now: Timestamp) -> Vec<Value> {
    let ports: Vec<String> = list(o, "ports").iter().map(|p| text_or(p, "port", "*")).collect();
    let addresses: Vec<String> = list(o, "endpoints")
        .iter()
        .flat_map(|e| list(e, "addresses"))
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let ports = if ports.is_empty() { UNSET.to_owned() } else { shortened(&ports) };
    let addresses = if addresses.is_empty() { UNSET.to_owned() } else { shortened(&addresses) };
    cells![name(o), text(o, "addressType"), ports, addresses, age(o, now)]
}

pub fn ingress_class(o: &Value, now: Timestamp) -> Vec<Value> {
    let parameters = match at(o, "spec.parameters") {
        Some(p) => {
            let group = Some(text(p, "apiGroup")).filter(|g| !g.is_empty()).map_or(String::new(), |g| format!(".{g}"));
            format!("{}{group}/{}", text(p, "kind"), text(p, "name"))
        }
        None => NONE.into(),
    };
    cells![name(o), text(o, "spec.controller"), parameters, age(o, now)]
}

pub fn ingress(o: &Value, now: Timestamp) -> Vec<Value> {
    let hosts: Vec<String> = list(o, "spec.rules").iter().map(|r| text(r, "host")).filter(|h| !h.is_empty()).collect();
    let hosts = match hosts.len() {
        0 => "*".to_owned(),
        1..=3 => hosts.join(","),
        _ => shortened(&hosts),
    };
    let address: Vec<String> =
        list(o, "status.loadBalancer.ingress").iter().map(|i| text_or(i, "ip", &text(i, "hostname"))).collect();
    let ports = if count(o, "spec.tls") > 0 { "80, 443" } else { "80" };
    cells![name(o), text_or(o, "spec.ingressClassName", NONE), hosts, address.join(","), ports, age(o, now)]
}

pub fn network_policy(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![name(o), selector(o, "spec.podSelector"), age(o, now)]
}
