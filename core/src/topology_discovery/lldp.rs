//! Reads the neighbours that `lldpcli show neighbors -f json` or `-f json0` lists, one text for each host.
//!
//! Format (lldpd, `src/client/display.c` and `src/client/json_writer.c`): `lldp`, in it `interface`, and for each
//! interface `name`, `via`, and `chassis`: the neighbour with `id`, `name` and `capability`. `json0` has a list of
//! objects for everything, and `{"value": TEXT}` for a text. `json` leaves out a list around one thing and the object
//! around a `value`, and puts what has a `name` into an object with that name as its key (`json_element_cleanup`). So
//! one thing has several forms, and all are read. What is said by another protocol (`via`) counts as much as LLDP.
//!
//! A neighbour is a switch if its capability Bridge or Router is on, or if it says none. It is told from others by its
//! chassis ID, and by its name where there is no ID. A host never says its own name there: the caller does. Who knows
//! which names are those of nodes may give what switches list too, where they run lldpd: so spines are found. A host
//! that is no node is such a switch only if others list it as one, as storage at two leaves would else be a spine of
//! both. Nodes often say that they are bridges, so without that knowledge every host counts as a node. A name that two
//! switches have is neither's.
//!
//! Nearly every node has an interface for management too, and the switch there sees all nodes of a row: it would make
//! one leaf of its racks. Which interfaces are the network's only the caller can say.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{
    DiscoveryError,
    fabric::Fabric,
    node_names::{NodeNames, read_host_name},
    read_text,
};

/// Bytes of what one host lists, at most: a thousand neighbours with all their details.
const MOST_NEIGHBOR_BYTES: usize = 4 << 20;

/// Capabilities of what passes frames or packets on.
const SWITCHING: [&str; 2] = ["Bridge", "Router"];

/// What a host sees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostNeighbors {
    /// By ID.
    neighbors: BTreeMap<String, Neighbor>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Neighbor {
    name: Option<String>,
    is_switch: bool,
    /// Of the host, at which it is seen.
    interfaces: BTreeSet<String>,
}

/// Which hosts and interfaces belong to the network.
#[derive(Debug, Clone, Copy, Default)]
pub struct LldpScope<'a> {
    /// The nodes, where they are known: a host that is none of them is a switch or nothing.
    pub nodes: Option<&'a NodeNames>,
    /// Interfaces of nodes that count; all where there are none.
    pub interfaces: &'a [String],
}

/// Reads what one host sees.
///
/// # Errors
/// [`DiscoveryError`] if it is too large, or no such JSON. That a host sees nobody is no error.
pub fn read_neighbors(bytes: &[u8]) -> Result<HostNeighbors, DiscoveryError> {
    let text = read_text(bytes, MOST_NEIGHBOR_BYTES)?;
    let value: Value = serde_json::from_str(text).map_err(|error| DiscoveryError::Json(error.to_string()))?;
    let lldp = value.get("lldp").ok_or(DiscoveryError::Lldp("there is no lldp in it"))?;
    let mut host = HostNeighbors::default();
    let interfaces = list_objects_with(lldp, "interface").filter_map(|(_, one)| one.get("interface"));
    for (at, interface) in interfaces.flat_map(|all| list_objects_with(all, "chassis")) {
        let at = at.or_else(|| interface.get("name").and_then(read_value));
        for (name, chassis) in interface.get("chassis").into_iter().flat_map(|all| list_objects_with(all, "id")) {
            let name = name.or_else(|| chassis.get("name").and_then(read_value));
            let id = chassis.get("id").and_then(read_value).or(name);
            let Some(id) = id else { continue };
            let (name, is_switch) = (name.and_then(read_host_name), is_switch(chassis));
            let known = host.neighbors.entry(id.to_owned()).or_default();
            (known.name, known.is_switch) = (name, is_switch);
            known.interfaces.extend(at.map(ToOwned::to_owned));
        }
    }
    Ok(host)
}

/// The fabric that the neighbours of all hosts make, by the hosts' names; and the hosts that are neither nodes nor
/// switches that others list, and count for nothing.
///
/// # Errors
/// [`DiscoveryError::NoNodes`] if no node is at a switch.
pub fn join_neighbors<'a>(
    hosts: &'a BTreeMap<String, HostNeighbors>,
    scope: LldpScope<'_>,
) -> Result<(Fabric, Vec<&'a str>), DiscoveryError> {
    let is_node = |name: &str| scope.nodes.is_some_and(|nodes| nodes.find_node(name).is_some());
    let switches = list_named_switches(hosts);
    let (mut fabric, mut others) = (Fabric::default(), Vec::new());
    for (host, HostNeighbors { neighbors }) in hosts {
        let Some(name) = read_host_name(host) else { continue };
        let switch = match switches.get(name.as_str()) {
            _ if scope.nodes.is_none() || is_node(&name) => None,
            Some(Some(id)) => Some(*id),
            Some(None) | None => {
                others.push(host.as_str());
                continue;
            }
        };
        for (id, neighbor) in neighbors {
            let node = neighbor.name.as_deref().filter(|name| is_node(name));
            match (switch, node) {
                (Some(switch), Some(node)) => fabric.link_host(node, switch),
                (Some(switch), None) if neighbor.is_switch => fabric.link_switches(switch, id),
                (None, None) if neighbor.is_switch && neighbor.is_seen_at(scope.interfaces) => {
                    fabric.link_host(&name, id);
                }
                _ => {}
            }
        }
    }
    if fabric.hosts().next().is_none() {
        return Err(DiscoveryError::NoNodes);
    }
    Ok((fabric, others))
}

/// The IDs of the switches that some host lists, by name; none where two have it.
fn list_named_switches(hosts: &BTreeMap<String, HostNeighbors>) -> BTreeMap<&str, Option<&str>> {
    let mut ids: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    let listed = hosts.values().flat_map(|host| &host.neighbors);
    for (id, neighbor) in listed.filter(|(_, neighbor)| neighbor.is_switch) {
        let Some(name) = neighbor.name.as_deref() else { continue };
        let known = ids.entry(name).or_insert(Some(id.as_str()));
        if *known != Some(id.as_str()) {
            *known = None;
        }
    }
    ids
}

impl Neighbor {
    /// Whether one of these interfaces sees it, or any where none is named.
    fn is_seen_at(&self, interfaces: &[String]) -> bool {
        interfaces.is_empty() || interfaces.iter().any(|interface| self.interfaces.contains(interface))
    }
}

/// The objects with this field that a value stands for, each with the name that is its key: those of a list, itself, or
/// what is in it under names.
fn list_objects_with<'a>(
    value: &'a Value,
    field: &'a str,
) -> impl Iterator<Item = (Option<&'a str>, &'a Map<String, Value>)> {
    let all = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    let objects = all.iter().filter_map(Value::as_object);
    objects.flat_map(move |object| {
        let own = object.contains_key(field).then_some((None, object));
        let is_named = own.is_none();
        let named = object.iter().filter_map(|(name, inner)| Some((Some(name.as_str()), inner.as_object()?)));
        own.into_iter().chain(named.filter(move |(_, inner)| is_named && inner.contains_key(field)))
    })
}

/// A text: itself, a `value` beside other fields, or the first of a list.
fn read_value(value: &Value) -> Option<&str> {
    let value = value.get(0).unwrap_or(value);
    value.as_str().or_else(|| value.get("value")?.as_str()).filter(|text| !text.is_empty())
}

fn is_switch(chassis: &Map<String, Value>) -> bool {
    let Some(capabilities) = chassis.get("capability") else { return true };
    list_objects_with(capabilities, "type").any(|(_, one)| {
        let kind = one.get("type").and_then(read_value).unwrap_or_default();
        SWITCHING.contains(&kind) && one.get("enabled") == Some(&Value::Bool(true))
    })
}

#[cfg(test)]
mod tests;
