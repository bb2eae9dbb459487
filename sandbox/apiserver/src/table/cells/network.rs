//! What connects pods.

use jiff::Timestamp;
use serde_json::Value;

use super::*;

pub fn print_endpoints(o: &Value, now: Timestamp) -> Vec<Value> {
    let mut all = Vec::new();
    for subset in list_at(o, "subsets") {
        let ports = list_at(subset, "ports");
        for address in list_at(subset, "addresses") {
            let ip = text_at(address, "ip");
            if ports.is_empty() {
                all.push(ip.clone());
            }
            all.extend(ports.iter().map(|p| format!("{ip}:{}", number_at(p, "port"))));
        }
    }
    cells![name_cell(o), shorten_list(&all), age_cell(o, now)]
}

/// The first three, and how many more there are.
fn shorten_list(all: &[String]) -> String {
    match all.len() {
        0 => NONE.into(),
        1..=3 => all.join(","),
        many => format!("{} + {} more...", all.iter().take(3).cloned().collect::<Vec<_>>().join(","), many - 3),
    }
}

pub fn print_service(o: &Value, now: Timestamp) -> Vec<Value> {
    let ips: Vec<String> = list_at(o, "spec.externalIPs").iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let kind = text_at(o, "spec.type");
    let external = match kind.as_str() {
        "LoadBalancer" => {
            let ingress = list_at(o, "status.loadBalancer.ingress").iter();
            let mut all: Vec<String> = ingress.map(|i| text_or(i, "ip", &text_at(i, "hostname"))).collect();
            all.extend(ips);
            join_or(&all, "<pending>")
        }
        "ExternalName" => text_at(o, "spec.externalName"),
        _ => join_or(&ips, NONE),
    };
    let ports = list_at(o, "spec.ports").iter().map(|p| {
        let protocol = text_or(p, "protocol", "TCP");
        match number_at(p, "nodePort") {
            0 => format!("{}/{protocol}", number_at(p, "port")),
            node => format!("{}:{node}/{protocol}", number_at(p, "port")),
        }
    });
    cells![
        name_cell(o),
        kind,
        text_or(o, "spec.clusterIP", NONE),
        external,
        join_or(&ports.collect::<Vec<_>>(), NONE),
        age_cell(o, now),
        label_cell(o, "spec.selector")
    ]
}

pub fn endpoint_slice(o: &Value, now: Timestamp) -> Vec<Value> {
    let ports: Vec<String> = list_at(o, "ports").iter().map(|p| text_or(p, "port", "*")).collect();
    let addresses: Vec<String> = list_at(o, "endpoints")
        .iter()
        .flat_map(|e| list_at(e, "addresses"))
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let ports = if ports.is_empty() { UNSET.to_owned() } else { shorten_list(&ports) };
    let addresses = if addresses.is_empty() { UNSET.to_owned() } else { shorten_list(&addresses) };
    cells![name_cell(o), text_at(o, "addressType"), ports, addresses, age_cell(o, now)]
}

pub fn ingress_class(o: &Value, now: Timestamp) -> Vec<Value> {
    let parameters = match value_at(o, "spec.parameters") {
        Some(p) => {
            let group =
                Some(text_at(p, "apiGroup")).filter(|g| !g.is_empty()).map_or(String::new(), |g| format!(".{g}"));
            format!("{}{group}/{}", text_at(p, "kind"), text_at(p, "name"))
        }
        None => NONE.into(),
    };
    cells![name_cell(o), text_at(o, "spec.controller"), parameters, age_cell(o, now)]
}

pub fn print_ingress(o: &Value, now: Timestamp) -> Vec<Value> {
    let hosts: Vec<String> =
        list_at(o, "spec.rules").iter().map(|r| text_at(r, "host")).filter(|h| !h.is_empty()).collect();
    let hosts = match hosts.len() {
        0 => "*".to_owned(),
        1..=3 => hosts.join(","),
        _ => shorten_list(&hosts),
    };
    let address: Vec<String> =
        list_at(o, "status.loadBalancer.ingress").iter().map(|i| text_or(i, "ip", &text_at(i, "hostname"))).collect();
    let ports = if count_at(o, "spec.tls") > 0 { "80, 443" } else { "80" };
    cells![name_cell(o), text_or(o, "spec.ingressClassName", NONE), hosts, address.join(","), ports, age_cell(o, now)]
}

pub fn network_policy(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![name_cell(o), selector_cell(o, "spec.podSelector"), age_cell(o, now)]
}

pub fn ip_address(o: &Value, now: Timestamp) -> Vec<Value> {
    let parent = value_at(o, "spec.parentRef").map_or_else(
        || NONE.to_owned(),
        |parent| {
            let (group, resource) = (text_at(parent, "group"), text_at(parent, "resource"));
            let plural = if group.is_empty() { resource } else { format!("{resource}.{group}") };
            let parts = [plural, text_at(parent, "namespace"), text_at(parent, "name")];
            parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
        },
    );
    // There is an age in the row, and no column for it.
    cells![name_cell(o), parent, age_cell(o, now)]
}

pub fn service_ranges(o: &Value, now: Timestamp) -> Vec<Value> {
    let ranges: Vec<&str> = list_at(o, "spec.cidrs").iter().filter_map(Value::as_str).collect();
    cells![name_cell(o), ranges.join(","), age_cell(o, now)]
}
