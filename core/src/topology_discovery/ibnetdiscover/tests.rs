use std::{collections::BTreeSet, fmt::Write as _};

use proptest::prelude::*;

use super::*;
use crate::{
    inventory::{HyperNode, HyperNodeMember},
    topology_discovery::list_fabric_domains,
};

/// One end of each link: kind, number and description.
type End = (char, usize, String);

fn guid_of((kind, number, _): &End) -> String {
    let base = if *kind == 'S' { 0x0002_c902_0000_0000_u64 } else { 0x0002_c903_0000_0000 };
    format!("{:016x}", base + *number as u64)
}

/// What the tool prints of some ends and the links between them, as its source has it.
fn print_fabric(ends: &[End], links: &[(usize, usize)], is_grouped: bool) -> String {
    let mut text = "#\n# Topology file: generated on Thu Nov 26 08:00:00 2026\n#\n# Initiated from node \
                    0002c90300000000 port 0002c90300000001\n"
        .to_owned();
    if is_grouped {
        text += "\nNon-Chassis Nodes\n";
    }
    for kind in ['S', 'H', 'R'] {
        for (at, end) in ends.iter().enumerate().filter(|(_, end)| end.0 == kind) {
            let (guid, description) = (guid_of(end), &end.2);
            let ports: Vec<usize> = links
                .iter()
                .flat_map(|(a, b)| [(*a, *b), (*b, *a)])
                .filter(|(a, _)| *a == at)
                .map(|(_, b)| b)
                .collect();
            text += &format!("\nvendid=0x2c9\ndevid=0xd2f0\nsysimgguid=0x{guid}\n");
            let _ = match kind {
                'S' => writeln!(
                    text,
                    "switchguid=0x{guid}({guid})\nSwitch\t36 \"S-{guid}\"\t\t# \"{description}\" enhanced port 0 \
                     lid 1 lmc 0"
                ),
                'H' => writeln!(text, "caguid=0x{guid}\nCa\t{} \"H-{guid}\"\t\t# \"{description}\"", ports.len()),
                _ => writeln!(text, "rtguid=0x{guid}\nRt\t2 \"R-{guid}\"\t\t# \"{description}\""),
            };
            for (port, other) in ports.iter().enumerate() {
                let (far, name) = (&ends[*other], &ends[*other].2);
                let (own, there) = (format!("({guid}) "), format!("({}) ", guid_of(far)));
                let (own, there) = (if kind == 'S' { "" } else { &own }, if far.0 == 'S' { "" } else { &there });
                let comment =
                    if kind == 'S' { format!("\"{name}\" lid 3") } else { format!("lid 4 lmc 0 \"{name}\" lid 3") };
                let far = format!("\"{}-{}\"[{}]", far.0, guid_of(far), port + 1);
                let _ = writeln!(text, "[{}]{own}\t{far}{there}\t\t# {comment} 4xEDR", port + 1);
            }
        }
    }
    text
}

fn end(kind: char, number: usize, description: &str) -> End {
    (kind, number, description.to_owned())
}

fn shown(domains: &[HyperNode]) -> Vec<String> {
    let member = |member: &HyperNodeMember| match member {
        HyperNodeMember::Node(name) | HyperNodeMember::HyperNode(name) => name.clone(),
        other => format!("{other:?}"),
    };
    let line = |members: &[HyperNodeMember]| members.iter().map(member).collect::<Vec<_>>().join(" ");
    domains.iter().map(|domain| format!("{}: {}", domain.name, line(&domain.members))).collect()
}

/// Two pods of a leaf and a spine, a core above them, and all that is no node.
fn two_pods() -> (Vec<End>, Vec<(usize, usize)>) {
    let ends = vec![
        end('S', 1, "MF0;leaf-1:MQM8700/U1"),
        end('S', 2, "MF0;leaf-2:MQM8700/U1"),
        end('S', 3, "MF0;leaf \"3\":MQM8700/U1"),
        end('S', 4, "Quantum Mellanox Technologies"),
        end('S', 5, "Quantum Mellanox Technologies"),
        end('S', 6, "MF0;core"),
        end('H', 1, "node-1 mlx5_0"),
        end('H', 2, "node-1 mlx5_1"),
        end('H', 3, "NODE-2 HCA-1"),
        end('H', 4, "node-3 mlx5_0"),
        end('H', 5, "Mellanox Technologies Aggregation Node"),
        end('H', 6, "_odd_"),
        end('R', 1, "a router"),
    ];
    let links = vec![
        (0, 3),
        (1, 3),
        (2, 4),
        (3, 5),
        (4, 5),
        (6, 0),
        (7, 1),
        (8, 1),
        (9, 2),
        (10, 5),
        (11, 4),
        (12, 5),
        (12, 0),
    ];
    (ends, links)
}

#[test]
fn a_fabric_becomes_leaves_spines_and_a_core_of_the_nodes_at_it() {
    let (ends, links) = two_pods();
    let want = [
        "leaf-0002c90200000001: node-1 node-2",
        "leaf-0002c90200000003: node-3",
        "spine-0002c90200000006: leaf-0002c90200000001 leaf-0002c90200000003",
    ];
    for is_grouped in [false, true] {
        let text = print_fabric(&ends, &links, is_grouped);
        assert_eq!(shown(&list_fabric_domains(&read_ibnetdiscover(text.as_bytes()).unwrap())), want, "{text}");
    }
}

/// As the tool prints switches of a chassis with `-g`, and links with `-f`.
#[test]
fn what_is_said_of_chassis_ports_and_speeds_changes_nothing() {
    let text = "\nChassis 1 (guid 0x2c90200000001)\n\n# Spine Nodes\n# Line Nodes\nvendid=0x2c9\n\
        sysimgguid=0x2c90200000001\t\t# Chassis 1\nswitchguid=0x2c90200000001(2c90200000001)\t# ISR2012 Line 1\n\
        Switch\t24 \"S-0002c90200000001\"\t\t# \"line 1\" base port 0 lid 6 lmc 0\n\
        [1][ext 7]\t\"H-0002c90300000001\"[1][ext 2](2c90300000001) \t\t# \"n1 HCA-1\" lid 4 4xQDR s=4 w=2 v=4\n\n\
        # Chassis CAs\nCa\t2 \"H-0002c90300000001\"\t\t# \"n1 HCA-1\" (scp)\n\
        [1](2c90300000001) \t\"S-0002c90200000001\"[1][ext 7]\t\t# lid 4 lmc 0 \"line 1\" lid 6 4xQDR\n";
    let fabric = read_ibnetdiscover(text.as_bytes()).unwrap();
    assert_eq!(shown(&list_fabric_domains(&fabric)), ["leaf-0002c90200000001: n1"]);
    let windows = text.replace('\n', "\r\n");
    assert_eq!(read_ibnetdiscover(windows.as_bytes()), Ok(fabric));
}

#[test]
fn what_is_cut_short_anywhere_is_an_error_or_has_all() {
    let (ends, links) = two_pods();
    let text = print_fabric(&ends, &links, false);
    let whole = read_ibnetdiscover(text.as_bytes()).unwrap();
    let (mut errors, mut complete) = (0, 0);
    for end in 0..text.len() {
        match read_ibnetdiscover(&text.as_bytes()[..end]) {
            Ok(fabric) => {
                assert_eq!(fabric, whole, "{}", &text[..end]);
                complete += 1;
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                errors += 1;
            }
        }
    }
    // Only the last router's lines are said elsewhere too.
    assert!(errors > 10 * complete, "{errors} {complete}");
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let of = |text: &str| read_ibnetdiscover(text.as_bytes()).map(drop).unwrap_err().to_string();
    let switch = "Switch\t36 \"S-0002c90200000001\"\t\t# \"leaf\" base port 0 lid 1 lmc 0\n";
    let port = "[1]\t\"H-0002c90300000001\"[1](1) \t\t# \"n1\" lid 3 4xEDR\n";
    assert_eq!(of(""), "no node is at any switch in it");
    assert_eq!(of("what\never"), "no node is at any switch in it");
    assert_eq!(of("Switch\t36 S-1"), "line 1: a section without a GUID");
    assert_eq!(of("\nSwitch\t36 \"S-0002c9020000000\"\n"), "line 2: a section without a GUID");
    assert_eq!(of("Ca\t1 \"H-0002c90300000001\"\t# \"n1"), "line 1: an adapter without a description");
    assert_eq!(of(port), "line 1: a port before any switch or adapter");
    assert_eq!(of(&format!("{switch}[1]\t\"H-")), "line 2: a port without the GUID of its other end");
    assert_eq!(of(&format!("{switch}[1]\t\"H-0002c90300000001\"")), "line 2: a port without the port of its other end");
    let cut = "S-0002c90200000001 is linked with H-0002c90300000001, and H-0002c90300000001 is not listed: the text is \
               cut short";
    assert_eq!(of(&format!("{switch}{port}")), cut);
    assert_eq!(read_ibnetdiscover(b"Switch\xff").unwrap_err(), DiscoveryError::Utf8(6));
    assert_eq!(read_ibnetdiscover(&vec![b'\n'; MOST_BYTES + 1]).unwrap_err().to_string(), "it has more than 64 MiB");
}

fn any_line() -> impl Strategy<Value = String> {
    let id = prop::sample::select(vec![
        "\"S-0000000000000001\"",
        "\"S-0000000000000002\"",
        "\"H-0000000000000003\"",
        "\"H-4\"",
        "\"R-0000000000000005\"",
    ]);
    prop_oneof![
        (prop::sample::select(vec!["Switch", "Ca", "Rt", "???", "Chassis"]), id.clone(), "[a-z \"]{0,6}")
            .prop_map(|(word, id, text)| format!("{word}\t2 {id}\t# \"{text}\"")),
        (id, "[a-z \"\\[\\]()]{0,6}").prop_map(|(id, text)| format!("[1]\t{id}[2]{text}")),
        "\\PC{0,20}",
    ]
}

proptest! {
    /// The naive count: nodes that share a switch are together, and so are those of nodes that are together.
    #[test]
    fn leaves_are_what_nodes_share(at in prop::collection::vec((0..5usize, 0..4usize), 1..12), is_grouped: bool) {
        let mut ends: Vec<End> = (0..4).map(|number| end('S', number, "a switch")).collect();
        let mut links = Vec::new();
        for (number, (node, switch)) in at.iter().enumerate() {
            ends.push(end('H', number, &format!("n{node} mlx5_{number}")));
            links.push((4 + number, *switch));
        }
        let text = print_fabric(&ends, &links, is_grouped);
        let domains = list_fabric_domains(&read_ibnetdiscover(text.as_bytes()).unwrap());
        let member = |node: usize| HyperNodeMember::Node(format!("n{node}"));
        for (node, _) in &at {
            let mut inside = BTreeSet::from([*node]);
            for _ in 0..at.len() {
                let reached = at.iter().filter(|one| inside.contains(&one.0)).map(|one| one.1);
                let switches: BTreeSet<usize> = reached.collect();
                inside.extend(at.iter().filter(|one| switches.contains(&one.1)).map(|one| one.0));
            }
            let want: Vec<HyperNodeMember> = inside.iter().map(|node| member(*node)).collect();
            let holding = domains.iter().filter(|domain| domain.members.contains(&member(*node)));
            prop_assert_eq!(holding.map(|domain| domain.members.clone()).collect::<Vec<_>>(), [want]);
        }
    }

    #[test]
    fn whatever_lines_there_are_nothing_panics(lines in prop::collection::vec(any_line(), 0..12), cut in 0..400usize) {
        let text = lines.join("\n");
        let bytes = &text.as_bytes()[..cut.min(text.len())];
        if let Ok(fabric) = read_ibnetdiscover(bytes) {
            prop_assert!(!list_fabric_domains(&fabric).is_empty());
        }
    }
}
