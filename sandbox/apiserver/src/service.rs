//! Services: cluster IPs out of 10.0.0.0/24, node ports, and the members that follow from them
//! (`pkg/registry/core/service`).

mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

use crate::error::Status;
use crate::meta;
use crate::schema::FieldError;
use crate::server::ApiServer;

use rules::address_problem;
pub use rules::{balancer_errors, entry_errors, is_exposed, service_warnings, validate_service};

const NODE_PORTS: std::ops::RangeInclusive<i64> = 30000..=32767;

fn text_at<'a>(service: &'a Value, path: &str) -> &'a str {
    service.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

fn spec_of(service: &Value) -> &Value {
    service.get("spec").unwrap_or(&Value::Null)
}

fn ips_of(service: &Value) -> Vec<String> {
    let list = spec_of(service).get("clusterIPs").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn is_headless(service: &Value) -> bool {
    ips_of(service).as_slice() == ["None"]
}

fn needs_address(service: &Value) -> bool {
    text_at(service, "/spec/type") != "ExternalName"
}

fn needs_node_ports(service: &Value) -> bool {
    match text_at(service, "/spec/type") {
        "NodePort" => true,
        "LoadBalancer" => spec_of(service).get("allocateLoadBalancerNodePorts") != Some(&Value::Bool(false)),
        _ => false,
    }
}

pub fn prepare_create(server: &ApiServer, service: &mut Value, dry_run: bool) -> Result<(), Status> {
    if !service.get("spec").is_some_and(Value::is_object) {
        service["spec"] = json!({});
    }
    follow_address(service, None);
    settle_families(service)?;
    allocate_address(server, service, dry_run)?;
    allocate_ports(server, service, None, dry_run)
}

/// A PUT that leaves out what was allocated keeps it; what a change of the type makes void goes.
pub fn prepare_update(server: &ApiServer, service: &mut Value, old: &Value, dry_run: bool) -> Result<(), Status> {
    if !service.get("spec").is_some_and(Value::is_object) {
        service["spec"] = json!({});
    }
    if needs_address(old) && needs_address(service) {
        for member in ["clusterIP", "clusterIPs"] {
            keep_member(service, old, member);
        }
    }
    keep_ports(service, old);
    follow_address(service, Some(old));
    drop_void_members(service, old);
    if needs_address(old) && needs_address(service) {
        for member in ["ipFamilies", "ipFamilyPolicy"] {
            keep_member(service, old, member);
        }
    }
    settle_families(service)?;
    if ips_of(old).is_empty() {
        allocate_address(server, service, dry_run)?;
    }
    allocate_ports(server, service, Some(old), dry_run)
}

/// The service of the API server itself.
pub fn create_initial(server: &ApiServer) {
    let registry = server.registry();
    let Some(resource) = registry.get("", "v1", "services") else { return };
    let now = crate::clock::write_seconds(server.now());
    let labels = json!({"component": "apiserver", "provider": "kubernetes"});
    let port = json!({"name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443});
    let owned = json!({
        "f:metadata": {"f:labels": {".": {}, "f:component": {}, "f:provider": {}}},
        "f:spec": {
            "f:clusterIP": {}, "f:internalTrafficPolicy": {}, "f:ipFamilyPolicy": {}, "f:sessionAffinity": {}, "f:type": {},
            "f:ports": {".": {}, "k:{\"port\":443,\"protocol\":\"TCP\"}": {
                ".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}, "f:targetPort": {},
            }},
        },
    });
    let object = json!({
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": {
            "name": "kubernetes", "namespace": "default", "uid": server.new_id().to_string(), "creationTimestamp": now,
            "labels": labels,
            "managedFields": [{
                "manager": "kube-apiserver", "operation": "Update", "apiVersion": "v1", "time": now,
                "fieldsType": "FieldsV1", "fieldsV1": owned,
            }],
        },
        "spec": {
            "ports": [port], "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "type": "ClusterIP",
            "sessionAffinity": "None", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster",
        },
        "status": {"loadBalancer": {}},
    });
    // The store is new: nobody can have raced us.
    let _ = server.store().commit(
        &resource.storage,
        &crate::store::Key::new("default", "kubernetes"),
        crate::store::Expect::Absent,
        crate::store::Change::Put(object, resource.form),
    );
}

fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(list)) => list.is_empty(),
        Some(_) => false,
    }
}

fn keep_member(service: &mut Value, old: &Value, member: &str) {
    if is_empty(spec_of(service).get(member))
        && let Some(value) = spec_of(old).get(member)
    {
        service["spec"][member] = value.clone();
    }
}

/// `normalizeClusterIPs`: the list follows the single address.
fn follow_address(service: &mut Value, old: Option<&Value>) {
    let address = text_at(service, "/spec/clusterIP").to_owned();
    let listed = ips_of(service);
    let untouched = old.is_none_or(|old| ips_of(old) == listed);
    let moved = old.is_none_or(|old| text_at(old, "/spec/clusterIP") != address);
    let follows = match old {
        None => !address.is_empty() && listed.is_empty(),
        Some(_) => untouched && moved,
    };
    if !follows {
        return;
    }
    if address.is_empty() {
        remove_member(service, "clusterIPs");
    } else {
        service["spec"]["clusterIPs"] = json!([address]);
    }
}

fn remove_member(service: &mut Value, member: &str) {
    if let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove(member);
    }
}

/// `dropTypeDependentFields`: what the new type has no use for goes, if nobody changed it.
fn drop_void_members(service: &mut Value, old: &Value) {
    let same = |service: &Value, member: &str| spec_of(service).get(member) == spec_of(old).get(member);
    let mut void: Vec<&str> = Vec::new();
    if needs_address(old) && !needs_address(service) {
        void.extend(["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"]);
    }
    if is_exposed(old) && !is_exposed(service) {
        void.push("externalTrafficPolicy");
    }
    let kind = text_at(service, "/spec/type").to_owned();
    if text_at(old, "/spec/type") == "LoadBalancer" && kind != "LoadBalancer" {
        void.extend(["allocateLoadBalancerNodePorts", "loadBalancerClass", "healthCheckNodePort"]);
    }
    for member in void {
        if same(service, member) {
            remove_member(service, member);
        }
    }
    let numbers =
        |service: &Value| -> BTreeSet<i64> { node_ports(service).into_iter().map(|(_, port)| port).collect() };
    let uses = |service: &Value| matches!(text_at(service, "/spec/type"), "NodePort" | "LoadBalancer");
    if uses(old) && !uses(service) && numbers(old) == numbers(service) {
        for port in ports_mut(service) {
            if let Some(port) = port.as_object_mut() {
                port.remove("nodePort");
            }
        }
    }
    if kind != "LoadBalancer"
        && let Some(status) = service.get_mut("status").and_then(Value::as_object_mut)
    {
        status.insert("loadBalancer".into(), json!({}));
    }
}

fn ports_mut(service: &mut Value) -> impl Iterator<Item = &mut Value> {
    service.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten()
}

/// The node ports that are set, by the index of their port.
fn node_ports(service: &Value) -> Vec<(usize, i64)> {
    let ports = spec_of(service).get("ports").and_then(Value::as_array);
    let number = |port: &Value| port.get("nodePort").and_then(Value::as_i64).filter(|n| *n != 0);
    ports.into_iter().flatten().enumerate().filter_map(|(index, port)| Some((index, number(port)?))).collect()
}

/// Ports that are sent without a node port keep that of their name.
fn keep_ports(service: &mut Value, old: &Value) {
    if !needs_node_ports(old) || !needs_node_ports(service) {
        return;
    }
    let sent: BTreeSet<i64> = node_ports(service).into_iter().map(|(_, port)| port).collect();
    let before = spec_of(old).get("ports").and_then(Value::as_array).cloned().unwrap_or_default();
    for port in ports_mut(service) {
        let known = before.iter().find(|b| text_at(b, "/name") == text_at(port, "/name"));
        let number = known.and_then(|known| known.get("nodePort")).and_then(Value::as_i64).unwrap_or(0);
        if number != 0 && !sent.contains(&number) && is_empty(port.get("nodePort")) {
            port["nodePort"] = number.into();
        }
    }
}

fn refuse(service: &Value, errors: &[FieldError]) -> Result<(), Status> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid("", "Service", meta::object_name(service), errors))
}

/// `initIPFamilyFields` of a cluster that knows IPv4 only.
fn settle_families(service: &mut Value) -> Result<(), Status> {
    if !needs_address(service) {
        return Ok(());
    }
    let address = text_at(service, "/spec/clusterIP").to_owned();
    let unselective = spec_of(service).get("selector").and_then(Value::as_object).is_none_or(serde_json::Map::is_empty);
    let selectorless = address == "None" && unselective;
    if is_empty(spec_of(service).get("ipFamilyPolicy")) {
        service["spec"]["ipFamilyPolicy"] = if selectorless { "RequireDualStack" } else { "SingleStack" }.into();
    }
    refuse(service, &address_errors(service))?;
    let families = spec_of(service).get("ipFamilies").and_then(Value::as_array).cloned().unwrap_or_default();
    let policy = text_at(service, "/spec/ipFamilyPolicy").to_owned();
    let mut errors = Vec::new();
    if policy == "SingleStack" && families.len() == 2 {
        let why = "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified";
        errors.push(FieldError::invalid_text("spec.ipFamilyPolicy", &policy, why));
    }
    refuse(service, &errors)?;
    if selectorless {
        let both = policy != "SingleStack" && families.len() < 2;
        if families.is_empty() || both {
            service["spec"]["ipFamilies"] = if both { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) };
        }
        return Ok(());
    }
    if policy == "RequireDualStack" {
        let why = "this cluster is not configured for dual-stack services";
        errors.push(FieldError::invalid_text("spec.ipFamilyPolicy", &policy, why));
    }
    for (index, family) in families.iter().enumerate().filter(|(_, family)| *family != "IPv4") {
        errors.push(FieldError::invalid(format!("spec.ipFamilies[{index}]"), family, "not configured on this cluster"));
    }
    refuse(service, &errors)?;
    if families.is_empty() {
        service["spec"]["ipFamilies"] = json!(["IPv4"]);
    }
    Ok(())
}

/// `ValidateServiceClusterIPsRelatedFields`.
fn address_errors(service: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (address, listed) = (text_at(service, "/spec/clusterIP"), ips_of(service));
    let shown = Value::from(listed.clone());
    let why = match listed.first() {
        Some(_) if address.is_empty() => Some("must be empty when `clusterIP` is not specified"),
        Some(first) if first != address => Some("first value must match `clusterIP`"),
        _ => None,
    };
    errors.extend(why.map(|why| FieldError::invalid("spec.clusterIPs", &shown, why)));
    let families = spec_of(service).get("ipFamilies").and_then(Value::as_array);
    for (index, family) in families.into_iter().flatten().enumerate() {
        if family != "IPv4" && family != "IPv6" {
            errors.push(FieldError::not_supported(format!("spec.ipFamilies[{index}]"), family, &["IPv4", "IPv6"]));
        }
    }
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    let policy = text_at(service, "/spec/ipFamilyPolicy");
    if !policies.contains(&policy) {
        errors.push(FieldError::not_supported("spec.ipFamilyPolicy", &policy.into(), &policies));
    }
    for (index, ip) in listed.iter().enumerate().filter(|(index, ip)| *index > 0 || *ip != "None") {
        if ip.parse::<IpAddr>().is_err() {
            errors.push(FieldError::invalid_text(format!("spec.clusterIPs[{index}]"), ip, address_problem(ip)));
        }
    }
    let families = families.into_iter().flatten().enumerate();
    for ((index, family), ip) in families.zip(listed.iter().filter(|ip| *ip != "None")) {
        let actual = ip.parse::<IpAddr>().map(|ip| if ip.is_ipv4() { "IPv4" } else { "IPv6" });
        let family = family.as_str().unwrap_or_default();
        if matches!(family, "IPv4" | "IPv6") && actual.is_ok_and(|actual| actual != family) {
            let why = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            errors.push(FieldError::invalid_text(format!("spec.clusterIPs[{index}]"), ip, &why));
        }
    }
    errors
}

fn used_addresses(server: &ApiServer) -> BTreeSet<String> {
    let services = server.store().list("services", None);
    services.iter().map(|s| text_at(&s.value, "/spec/clusterIP").to_owned()).collect()
}

/// An address that nobody has. Those that are kept for asking, the first sixteen, and those that somebody is likely to
/// ask for come last: the real server draws lots, so that it seldom gives what a test asks for by name later on.
fn free_address(used: &BTreeSet<String>) -> Option<String> {
    let likely = |last: &u8| {
        *last <= 16 || last.is_multiple_of(10) || last.is_multiple_of(11) || last % 100 < 10 || *last == 123
    };
    let (asked_for, others): (Vec<u8>, Vec<u8>) = (2..255_u8).partition(likely);
    let all = others.into_iter().chain(asked_for);
    all.map(|last| Ipv4Addr::new(10, 0, 0, last).to_string()).find(|a| !used.contains(a))
}

/// A dry run looks for nothing (`ipallocator`): it shows the range's first address, or what was asked for.
fn allocate_address(server: &ApiServer, service: &mut Value, dry_run: bool) -> Result<(), Status> {
    let asked = text_at(service, "/spec/clusterIP").to_owned();
    if !needs_address(service) || asked == "None" {
        return Ok(());
    }
    let used = used_addresses(server);
    let address = if asked.is_empty() && dry_run {
        "10.0.0.0".to_owned()
    } else if asked.is_empty() {
        free_address(&used).ok_or_else(|| Status::internal("failed to allocate a serviceIP: range is full"))?
    } else {
        // Neither the network's own address nor the last one is anybody's.
        let in_range = asked.parse::<Ipv4Addr>().is_ok_and(|a| matches!(a.octets(), [10, 0, 0, 1..=254]));
        let why = match in_range {
            false => Some("the provided network does not match the current range"),
            true => (!dry_run && used.contains(&asked)).then_some("provided IP is already allocated"),
        };
        let failed = why.map(|why| {
            let detail = format!("failed to allocate IP {asked}: {why}");
            FieldError::invalid("spec.clusterIPs", &json!([asked]), &detail)
        });
        refuse(service, failed.as_slice())?;
        asked
    };
    service["spec"]["clusterIPs"] = json!([address]);
    service["spec"]["clusterIP"] = address.into();
    Ok(())
}

/// Node ports that were asked for are checked, those that are wanted are chosen.
fn allocate_ports(server: &ApiServer, service: &mut Value, old: Option<&Value>, dry_run: bool) -> Result<(), Status> {
    if !matches!(text_at(service, "/spec/type"), "NodePort" | "LoadBalancer") {
        return Ok(());
    }
    let own: BTreeSet<i64> = old.into_iter().flat_map(node_ports).map(|(_, port)| port).collect();
    let services = server.store().list("services", None);
    let mut used: BTreeSet<i64> =
        services.iter().flat_map(|s| node_ports(&s.value)).map(|(_, port)| port).filter(|p| !own.contains(p)).collect();
    let mut asked_before = BTreeMap::new();
    for (index, port) in node_ports(service) {
        // Ports of one number share a node port, whatever their protocols.
        let number = service.pointer(&format!("/spec/ports/{index}/port")).and_then(Value::as_i64);
        let taken = old.is_none() && *asked_before.entry(port).or_insert(number) != number;
        let why = if !dry_run && !NODE_PORTS.contains(&port) {
            "provided port is not in the valid range. The range of valid ports is 30000-32767"
        } else if used.contains(&port) || taken {
            "provided port is already allocated"
        } else {
            continue;
        };
        refuse(service, &[FieldError::invalid(format!("spec.ports[{index}].nodePort"), &port.into(), why)])?;
    }
    if !needs_node_ports(service) {
        return Ok(());
    }
    let asked: Vec<i64> = node_ports(service).into_iter().map(|(_, port)| port).collect();
    // A dry run takes no port (`portallocator`): it shows what follows those that were asked for.
    let mut shown = asked.iter().copied().filter(|port| !own.contains(port)).max().unwrap_or(NODE_PORTS.end() + 1);
    used.extend(asked);
    for port in ports_mut(service).filter(|port| port.get("nodePort").and_then(Value::as_i64).unwrap_or(0) == 0) {
        if dry_run {
            shown += 1;
            port["nodePort"] = shown.into();
            continue;
        }
        let free = NODE_PORTS.clone().find(|number| !used.contains(number));
        let number = free.ok_or_else(|| Status::internal("failed to allocate a nodePort: range is full"))?;
        used.insert(number);
        port["nodePort"] = number.into();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_may_ask_for_is_given_out_last() {
        let mut used = BTreeSet::new();
        while let Some(address) = free_address(&used) {
            used.insert(address);
            if used.len() == 150 {
                assert!(["10.0.0.10", "10.0.0.50", "10.0.0.77"].iter().all(|kept| !used.contains(*kept)));
            }
        }
        assert_eq!(used.len(), 253);
    }

    #[test]
    fn a_dry_run_allocates_nothing_and_shows_what_stands_for_it() {
        let server = ApiServer::new(crate::Options::default());
        let mut service = json!({"spec": {"type": "NodePort", "ports": [{"port": 1}, {"port": 2}]}});
        prepare_create(&server, &mut service, true).unwrap();
        assert_eq!(text_at(&service, "/spec/clusterIP"), "10.0.0.0");
        assert_eq!(node_ports(&service), [(0, 32769), (1, 32770)]);
    }

    #[test]
    fn the_list_of_addresses_follows_the_address() {
        let mut service = json!({"spec": {"clusterIP": "10.0.0.9"}});
        follow_address(&mut service, None);
        assert_eq!(ips_of(&service), ["10.0.0.9"]);
        let old = service.clone();
        service["spec"]["clusterIP"] = "10.0.0.8".into();
        follow_address(&mut service, Some(&old));
        assert_eq!(ips_of(&service), ["10.0.0.8"]);
    }

    #[test]
    fn a_service_that_becomes_a_name_loses_what_was_allocated() {
        let old = json!({"spec": {"type": "NodePort", "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"],
            "externalTrafficPolicy": "Cluster", "ports": [{"port": 80, "nodePort": 30001}]}});
        let mut service = old.clone();
        service["spec"]["type"] = "ExternalName".into();
        drop_void_members(&mut service, &old);
        assert_eq!(service, json!({"spec": {"type": "ExternalName", "ports": [{"port": 80}]}}));
    }
}
