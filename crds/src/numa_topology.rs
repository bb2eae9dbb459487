//! Reads a member's Numatopology: what a node reports of its NUMA nodes.
//!
//! Rule: as Volcano reads it (`pkg/scheduler/cache/event_handlers.go`, `getNumaInfo`, and
//! `plugins/numaaware/provider/cpumanager`). Free are the CPUs of `numares.cpu.allocatable` without those that are
//! reserved. These are the first by socket, core and number, as many as `resReserved.cpu` rounded up; where sockets are
//! not alike, or cores of several have the same number, Volcano may find others. A node whose CPU
//! manager is not static, or whose topology manager has no policy that it knows, aligns no pods. One that says what can
//! not be, or has more CPUs than [`MOST_CPUS`], reports nothing.

use std::collections::BTreeMap;

use caldera_core::{
    numa::{MOST_CPUS, NumaNode, NumaPolicy, NumaTopology},
    quantity::Quantity,
};
use serde::Deserialize;
use serde_json::Value;

/// What a node reports; `None` for what can not be.
#[must_use]
pub fn read_numa_topology(object: &Value) -> Option<NumaTopology> {
    let spec = &object["spec"];
    let policy = spec["policies"]["TopologyManagerPolicy"].as_str().and_then(NumaPolicy::parse);
    let Some(policy) = policy.filter(|_| spec["policies"]["CPUManagerPolicy"] == "static") else {
        return NumaTopology::new(None, Vec::new());
    };
    let free = parse_cpu_set(spec["numares"]["cpu"]["allocatable"].as_str().unwrap_or_default())?;
    let reserved = read_reserved_cpus(&spec["resReserved"]["cpu"]);
    let mut nodes: BTreeMap<u64, NumaNode> = BTreeMap::new();
    for (at, cpu) in read_cpus(&spec["cpuDetail"])?.into_iter().enumerate() {
        let node = nodes.entry(cpu.numa).or_default();
        node.cpus += 1;
        if at >= reserved {
            node.allocatable += 1;
            node.free += u16::from(free[cpu.number]);
        }
    }
    NumaTopology::new(Some(policy), nodes.into_values().collect())
}

/// In the order in which they are reserved.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Cpu {
    socket: u64,
    core: u64,
    number: usize,
    numa: u64,
}

/// The CPUs by socket, core and number; `None` for numbers that can not be.
fn read_cpus(detail: &Value) -> Option<Vec<Cpu>> {
    let detail = detail.as_object().filter(|detail| detail.len() <= MOST_CPUS)?;
    let read = |(number, cpu): (&String, &Value)| {
        let at = |key: &str| cpu.get(key).map_or(Some(0), Value::as_u64);
        let number = number.parse().ok().filter(|number| *number < MOST_CPUS)?;
        Some(Cpu { socket: at("socket")?, core: at("core")?, number, numa: at("numa")? })
    };
    let mut cpus: Vec<Cpu> = detail.iter().map(read).collect::<Option<_>>()?;
    cpus.sort_unstable();
    // `1` and `01` are one.
    let numbers: std::collections::BTreeSet<usize> = cpus.iter().map(|cpu| cpu.number).collect();
    (numbers.len() == cpus.len()).then_some(cpus)
}

/// Whole CPUs that are kept for the system.
fn read_reserved_cpus(amount: &Value) -> usize {
    let amount = Quantity::deserialize(amount).ok().filter(|amount| !amount.is_negative());
    amount.map_or(0, |amount| usize::try_from(amount.units_ceil()).unwrap_or(usize::MAX))
}

/// Which CPUs are of a set such as `0-3,8`; `None` if it is none, or lists more than a node has.
fn parse_cpu_set(text: &str) -> Option<Vec<bool>> {
    let (mut set, mut listed) = (vec![false; MOST_CPUS], 0);
    for range in text.split(',').filter(|_| !text.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        let cpus = set.get_mut(first..=last)?;
        listed += cpus.len();
        if cpus.is_empty() || listed > MOST_CPUS {
            return None;
        }
        cpus.fill(true);
    }
    Some(set)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Two sockets with two cores of two threads each, and a NUMA node for each.
    fn node(allocatable: &str, reserved: &str) -> Value {
        let cpu = |number: u64| {
            (number.to_string(), json!({"numa": number / 2 % 2, "socket": number / 2 % 2, "core": number % 4}))
        };
        json!({"metadata": {"name": "n"}, "spec": {
            "policies": {"CPUManagerPolicy": "static", "TopologyManagerPolicy": "single-numa-node"},
            "numares": {"cpu": {"allocatable": allocatable, "capacity": 8}},
            "resReserved": {"cpu": reserved},
            "cpuDetail": (0..8).map(cpu).collect::<serde_json::Map<_, _>>(),
        }})
    }

    fn read(object: &Value) -> Option<Vec<(u16, u16, u16)>> {
        let topology = read_numa_topology(object)?;
        Some(topology.nodes().iter().map(|node| (node.cpus, node.allocatable, node.free)).collect())
    }

    #[test]
    fn free_cpus_of_a_numa_node_are_those_that_are_neither_taken_nor_reserved() {
        assert_eq!(read(&node("0-7", "0")).unwrap(), [(4, 4, 4), (4, 4, 4)]);
        // The first core is CPUs 0 and 4.
        assert_eq!(read(&node("0-7", "1200m")).unwrap(), [(4, 2, 2), (4, 4, 4)]);
        assert_eq!(read(&node("0,4-5,7", "1")).unwrap(), [(4, 3, 2), (4, 4, 1)]);
        assert_eq!(read(&node("", "0")).unwrap(), [(4, 4, 0), (4, 4, 0)]);
        assert_eq!(read(&node("0-7", "99")).unwrap(), [(4, 0, 0), (4, 0, 0)]);
        assert_eq!(read(&node("0-7", "-3")).unwrap(), [(4, 4, 4), (4, 4, 4)]);
    }

    #[test]
    fn a_node_without_a_static_cpu_manager_or_a_policy_aligns_no_pods() {
        let with = |manager: &str, policy: &str| {
            let mut object = node("0-7", "0");
            object["spec"]["policies"] = json!({"CPUManagerPolicy": manager, "TopologyManagerPolicy": policy});
            read_numa_topology(&object).unwrap()
        };
        assert_eq!(with("static", "restricted").policy(), Some(NumaPolicy::Restricted));
        assert_eq!(with("static", "best-effort").policy(), Some(NumaPolicy::BestEffort));
        for (manager, policy) in [("none", "restricted"), ("static", "none"), ("static", ""), ("static", "other")] {
            assert_eq!((with(manager, policy).policy(), with(manager, policy).nodes()), (None, &[][..]));
        }
        assert_eq!(read_numa_topology(&json!({"metadata": {"name": "n"}})).unwrap().policy(), None);
    }

    #[test]
    fn what_can_not_be_reports_nothing() {
        for set in ["7-0", "a", "0-", "-1", "0,,1", " 0", "0-4294967295", "2048", "18446744073709551615"] {
            assert_eq!(read(&node(set, "0")), None, "{set}");
        }
        let often = vec!["0-2047"; 100_000].join(",");
        assert_eq!(read(&node(&often, "0")), None);
        let with = |detail: Value| {
            let mut object = node("0-7", "0");
            object["spec"]["cpuDetail"] = detail;
            read(&object)
        };
        let many = |count: usize| Value::Object((0..count).map(|at| (at.to_string(), json!({}))).collect());
        assert_eq!(with(many(MOST_CPUS)).unwrap(), [(2048, 2048, 8)]);
        for detail in [json!({}), json!(7), json!({"x": {}}), json!({"2048": {}}), many(MOST_CPUS + 1)] {
            assert_eq!(with(detail), None);
        }
        assert_eq!(with(json!({"1": {}, "01": {}})), None);
        assert_eq!(with(json!({"1": {"numa": -1}})), None);
        let nodes = |count: usize| (0..count).map(|at| (at.to_string(), json!({"numa": 8 * at})));
        assert_eq!(with(Value::Object(nodes(16).collect())).unwrap().len(), 16);
        assert_eq!(with(Value::Object(nodes(17).collect())), None);
    }
}
