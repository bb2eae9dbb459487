//! Encodes and decodes what nodes report of their NUMA nodes.
//!
//! Rule: nodes that report the same are one entry, and nodes that report nothing are in none: a member without such
//! nodes publishes nothing of it.

use std::collections::{BTreeMap, BTreeSet};

use caldera_core::numa::{MOST_NUMA_NODES, NumaNode, NumaPolicy, NumaTopology};

use super::{Malformed, NumaReport, ranges};

/// What nodes report, of those that have these numbers in the part.
pub(super) fn encode_numa_reports(
    topologies: &BTreeMap<&str, &NumaTopology>,
    numbers: &BTreeMap<String, u32>,
) -> Vec<NumaReport> {
    let mut alike: BTreeMap<&NumaTopology, BTreeSet<u32>> = BTreeMap::new();
    for (name, topology) in topologies {
        alike.entry(topology).or_default().extend(numbers.get(*name));
    }
    alike.retain(|_, nodes| !nodes.is_empty());
    let report = |(topology, nodes): (&NumaTopology, BTreeSet<u32>)| NumaReport {
        nodes: ranges::format_ranges(nodes),
        policy: topology.policy().map(|policy| policy.as_str().to_owned()),
        cpus: topology.nodes().iter().map(encode_cpus).collect::<Vec<_>>().join(" "),
    };
    alike.into_iter().map(report).collect()
}

fn encode_cpus(NumaNode { cpus, allocatable, free }: &NumaNode) -> String {
    format!("{free}/{allocatable}/{cpus}")
}

/// What nodes with these names report.
pub(super) fn decode_numa_reports(
    reports: &[NumaReport],
    names: &[String],
) -> Result<BTreeMap<String, NumaTopology>, Malformed> {
    let mut all = BTreeMap::new();
    for report in reports {
        let topology = decode_topology(report).ok_or_else(|| Malformed::Numa(report.cpus.clone()))?;
        for number in ranges::parse_ranges(&report.nodes)? {
            let name = ranges::node_name(names, number)?;
            if all.insert(name.to_owned(), topology.clone()).is_some() {
                return Err(Malformed::Twice(name.to_owned()));
            }
        }
    }
    Ok(all)
}

fn decode_topology(report: &NumaReport) -> Option<NumaTopology> {
    let policy = report.policy.as_deref().map(|word| NumaPolicy::parse(word).ok_or(())).transpose().ok()?;
    let texts = report.cpus.split(' ').filter(|text| !text.is_empty()).take(MOST_NUMA_NODES + 1);
    NumaTopology::new(policy, texts.map(decode_cpus).collect::<Option<_>>()?)
}

fn decode_cpus(text: &str) -> Option<NumaNode> {
    let mut numbers = text.split('/').map(|number| number.parse().ok());
    let (free, allocatable, cpus) = (numbers.next()??, numbers.next()??, numbers.next()??);
    numbers.next().is_none().then_some(NumaNode { cpus, allocatable, free })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(nodes: &str, policy: Option<&str>, cpus: &str) -> NumaReport {
        NumaReport { nodes: nodes.to_owned(), policy: policy.map(ToOwned::to_owned), cpus: cpus.to_owned() }
    }

    #[test]
    fn nodes_that_report_the_same_are_one_entry_and_come_back() {
        let names = ["a", "b", "c", "d"].map(ToOwned::to_owned);
        let numbers = names.iter().cloned().zip(0..).collect();
        let full = NumaNode { cpus: 16, allocatable: 14, free: 3 };
        let aligned = NumaTopology::new(Some(NumaPolicy::SingleNumaNode), vec![full, full]).unwrap();
        let none = NumaTopology::new(None, vec![]).unwrap();
        let all = [("a", &aligned), ("b", &aligned), ("d", &none), ("gone", &none)].into();
        let written = encode_numa_reports(&all, &numbers);
        let text = "3/14/16 3/14/16";
        assert_eq!(written, [report("3", None, ""), report("0-1", Some("single-numa-node"), text)]);
        let read = decode_numa_reports(&written, &names).unwrap();
        let read: Vec<_> = read.iter().map(|(name, topology)| (name.as_str(), topology)).collect();
        assert_eq!(read, [("a", &aligned), ("b", &aligned), ("d", &none)]);
        assert_eq!(encode_numa_reports(&BTreeMap::new(), &numbers), []);
    }

    #[test]
    fn what_can_not_be_is_refused() {
        let names = ["a".to_owned()];
        let one = Some("restricted");
        for wrong in [
            report("0", one, ""),
            report("0", None, "1/1/1"),
            report("0", Some("none"), "1/1/1"),
            report("0", one, "2/1/1"),
            report("0", one, "1/1"),
            report("0", one, "1/1/1/1"),
            report("0", one, "-1/1/1"),
            report("0", one, "1/1/65536"),
            report("0", one, &["0/1/1"; 17].join(" ")),
            report("1", one, "1/1/1"),
            report("", one, "1/1/1"),
        ] {
            assert!(decode_numa_reports(std::slice::from_ref(&wrong), &names).is_err(), "{wrong:?}");
        }
        let right = report("0", one, "1/1/1");
        assert!(decode_numa_reports(std::slice::from_ref(&right), &names).is_ok());
        assert_eq!(decode_numa_reports(&[right.clone(), right], &names), Err(Malformed::Twice("a".to_owned())));
    }
}
