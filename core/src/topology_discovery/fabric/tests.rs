use proptest::prelude::*;

use super::*;

fn fabric(hosts: &[(&str, &[&str])], links: &[(&str, &str)]) -> Fabric {
    let mut fabric = Fabric::default();
    for (one, other) in links {
        fabric.link_switches(one, other);
    }
    for (host, switches) in hosts {
        switches.iter().for_each(|switch| fabric.link_host(host, switch));
    }
    fabric
}

fn shown(fabric: &Fabric) -> Vec<String> {
    let member = |member: &HyperNodeMember| match member {
        HyperNodeMember::Node(name) | HyperNodeMember::HyperNode(name) => name.clone(),
        other => format!("{other:?}"),
    };
    let line = |members: &[HyperNodeMember]| members.iter().map(member).collect::<Vec<_>>().join(" ");
    let domains = list_fabric_domains(fabric);
    let shown =
        domains.iter().map(|one| format!("{} {} {}: {}", one.tier, one.tier_name, one.name, line(&one.members)));
    shown.collect()
}

#[test]
fn leaves_lie_in_their_spine_and_spines_in_their_core() {
    let hosts: [(&str, &[&str]); 4] = [("n1", &["l1"]), ("n2", &["l1"]), ("n3", &["l2"]), ("n4", &["l3"])];
    let pods = [("l1", "s1"), ("l1", "s2"), ("l2", "s1"), ("l2", "s2"), ("l3", "s3")];
    let two = [
        "1 leaf leaf-l1: n1 n2",
        "1 leaf leaf-l2: n3",
        "1 leaf leaf-l3: n4",
        "2 spine spine-s1: leaf-l1 leaf-l2",
        "2 spine spine-s3: leaf-l3",
    ];
    assert_eq!(shown(&fabric(&hosts, &pods)), two);
    let core = [&pods[..], &[("s1", "c1"), ("s3", "c1")]].concat();
    assert_eq!(shown(&fabric(&hosts, &core)), [&two[..], &["3 core core-c1: spine-s1 spine-s3"]].concat());
}

/// Volcano's `classifyLeafs`.
#[test]
fn leaves_that_share_a_node_are_one_domain() {
    let hosts: [(&str, &[&str]); 3] = [("n1", &["rail-0", "rail-1"]), ("n2", &["rail-1"]), ("n3", &["x"])];
    assert_eq!(shown(&fabric(&hosts, &[])), ["1 leaf leaf-rail-0: n1 n2", "1 leaf leaf-x: n3"]);
}

#[test]
fn a_switch_that_alone_joins_leaves_is_found() {
    let rail: [(&str, &[&str]); 3] = [("n1", &["r0", "r1"]), ("n2", &["r0", "r1"]), ("n3", &["r0"])];
    assert_eq!(find_joining_switch(&fabric(&rail, &[])), None, "each rail sees all nodes of a pod");
    let one: [(&str, &[&str]); 2] = [("n1", &["l1"]), ("n2", &["l1"])];
    assert_eq!(find_joining_switch(&fabric(&one, &[])), None);
    let managed: [(&str, &[&str]); 3] = [("n1", &["l1", "mgmt"]), ("n2", &["l2", "mgmt"]), ("n3", &["l2", "mgmt"])];
    assert_eq!(find_joining_switch(&fabric(&managed, &[])), Some(("mgmt", 2)));
    assert_eq!(find_joining_switch(&Fabric::default()), None);
}

#[test]
fn leaves_that_are_linked_with_each_other_are_apart_below_what_connects_them() {
    let hosts: [(&str, &[&str]); 2] = [("n1", &["l1"]), ("n2", &["l2"])];
    let want = ["1 leaf leaf-l1: n1", "1 leaf leaf-l2: n2", "2 spine spine-l1: leaf-l1 leaf-l2"];
    assert_eq!(shown(&fabric(&hosts, &[("l1", "l2"), ("l1", "l1")])), want);
}

#[test]
fn a_height_at_which_nothing_comes_together_makes_no_tier() {
    let hosts: [(&str, &[&str]); 2] = [("n1", &["l1"]), ("n2", &["l2"])];
    let links = [("l1", "s1"), ("l2", "s2"), ("s1", "c"), ("s2", "c"), ("c", "top"), ("far", "away")];
    let want = ["1 leaf leaf-l1: n1", "1 leaf leaf-l2: n2", "2 spine spine-c: leaf-l1 leaf-l2"];
    assert_eq!(shown(&fabric(&hosts, &links)), want);
    assert_eq!(shown(&Fabric::default()), [""; 0]);
}

#[test]
fn hosts_that_are_no_node_are_left_out_and_named() {
    let hosts: [(&str, &[&str]); 3] = [("n1", &["l1"]), ("n1-b", &["l2"]), ("storage", &["s1"])];
    let none = BTreeMap::new();
    let hostname = [("kubernetes.io/hostname".to_owned(), "n1-b".to_owned())].into();
    let nodes: NodeNames = [("n1", &none), ("n2", &hostname)].into_iter().collect();
    let (kept, others) = fabric(&hosts, &[("l1", "s1"), ("l2", "s1")]).keep_nodes(&nodes);
    assert_eq!(others, ["storage"]);
    let want = ["1 leaf leaf-l1: n1", "1 leaf leaf-l2: n2", "2 spine spine-s1: leaf-l1 leaf-l2"];
    assert_eq!(shown(&kept), want);
}

/// A long line of switches with a node at each end, and many nodes on their own beside it: what a naive walk takes a
/// square of time for.
#[test]
fn a_network_of_no_sense_takes_time_in_proportion_to_its_size() {
    let mut fabric = Fabric::default();
    for at in 0..20_000 {
        fabric.link_switches(&format!("s{at}"), &format!("s{}", at + 1));
        fabric.link_host(&format!("n{at}"), &format!("alone-{at}"));
    }
    fabric.link_host("first", "s0");
    assert_eq!(list_fabric_domains(&fabric).len(), 20_001);
}

/// A small network: each host's switches, and links between switches.
fn any_network() -> impl Strategy<Value = (Vec<Vec<usize>>, Vec<(usize, usize)>)> {
    let hosts = prop::collection::vec(prop::collection::vec(0..7usize, 1..3), 1..7);
    (hosts, prop::collection::vec((0..9usize, 0..9usize), 0..14))
}

/// Which hosts are together when switches that are connected by these links are one, as a table of pairs.
fn together(hosts: &[Vec<usize>], links: &[(usize, usize)]) -> Vec<Vec<bool>> {
    let mut reach: Vec<Vec<bool>> = (0..9).map(|a| (0..9).map(|b| a == b).collect()).collect();
    let shared = hosts.iter().flat_map(|all| all.iter().flat_map(|a| all.iter().map(|b| (*a, *b))));
    for (a, b) in shared.chain(links.iter().copied()) {
        (reach[a][b], reach[b][a]) = (true, true);
    }
    for via in 0..9 {
        for a in 0..9 {
            for b in 0..9 {
                reach[a][b] |= reach[a][via] && reach[via][b];
            }
        }
    }
    hosts.iter().map(|a| hosts.iter().map(|b| reach[a[0]][b[0]]).collect()).collect()
}

/// How high each switch is, by relaxing all links again and again.
fn naive_heights(hosts: &[Vec<usize>], links: &[(usize, usize)]) -> Vec<usize> {
    let mut heights = vec![usize::MAX; 9];
    hosts.iter().flatten().for_each(|leaf| heights[*leaf] = 1);
    for _ in 0..9 {
        for (a, b) in links {
            heights[*a] = heights[*a].min(heights[*b].saturating_add(1));
            heights[*b] = heights[*b].min(heights[*a].saturating_add(1));
        }
    }
    heights
}

/// The same table by domains of one tier.
fn by_domains(count: usize, domains: &[HyperNode], tier: u32) -> Vec<Vec<bool>> {
    fn hosts_in(domain: &HyperNode, domains: &[HyperNode], into: &mut BTreeSet<String>) {
        for member in &domain.members {
            match member {
                HyperNodeMember::Node(name) => drop(into.insert(name.clone())),
                HyperNodeMember::HyperNode(name) => {
                    hosts_in(domains.iter().find(|one| one.name == *name).unwrap(), domains, into);
                }
                other => panic!("{other:?}"),
            }
        }
    }
    let mut table = vec![vec![false; count]; count];
    for domain in domains.iter().filter(|domain| domain.tier == tier) {
        let mut inside = BTreeSet::new();
        hosts_in(domain, domains, &mut inside);
        let inside: Vec<usize> = inside.iter().map(|host| host[1..].parse().unwrap()).collect();
        inside.iter().for_each(|a| inside.iter().for_each(|b| table[*a][*b] = true));
    }
    table
}

proptest! {
    #[test]
    fn tiers_are_what_switches_up_to_each_height_connect((hosts, links) in any_network(), turn in 0..14usize) {
        let heights = naive_heights(&hosts, &links);
        let mut want = vec![together(&hosts, &[])];
        for height in 2..=10 {
            let below: Vec<(usize, usize)> = links.iter().copied().filter(|(a, b)| {
                let highest = heights[*a].max(heights[*b]);
                highest != usize::MAX && highest + usize::from(heights[*a] == heights[*b]) <= height
            }).collect();
            let table = together(&hosts, &below);
            if Some(&table) != want.last() {
                want.push(table);
            }
        }
        let build = |turn: usize| {
            let mut fabric = Fabric::default();
            let (first, last) = links.split_at(turn.min(links.len()));
            for (a, b) in last.iter().chain(first) {
                fabric.link_switches(&format!("s{a}"), &format!("s{b}"));
            }
            let mut all: Vec<(usize, &Vec<usize>)> = hosts.iter().enumerate().collect();
            all.rotate_left(turn % hosts.len());
            for (host, switches) in all {
                switches.iter().for_each(|switch| fabric.link_host(&format!("h{host}"), &format!("s{switch}")));
            }
            list_fabric_domains(&fabric)
        };
        let domains = build(0);
        let tiers = domains.last().map_or(0, |domain| domain.tier);
        let found: Vec<_> = (1..=tiers).map(|tier| by_domains(hosts.len(), &domains, tier)).collect();
        prop_assert_eq!(found, want);
        prop_assert_eq!(build(turn), domains);
    }
}
