//! `caldera topology discover`: what it reads, the HyperNodes that it prints, and how it refuses.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use serde_json::json;

use crate::outcome::{read_outcome, write_file};

/// A leaf with two nodes and a spine above it, with storage; and another leaf.
const FABRIC: &str = "#\n# Topology file: generated on Thu Nov 26 08:00:00 2026\n#\n\n\
    vendid=0x2c9\ndevid=0xd2f0\nsysimgguid=0x1\nswitchguid=0x1(1)\n\
    Switch\t36 \"S-0000000000000001\"\t\t# \"leaf-1\" enhanced port 0 lid 1 lmc 0\n\
    [1]\t\"H-00000000000000a1\"[1](a1) \t\t# \"gpu-1 mlx5_0\" lid 4 4xNDR\n\
    [36]\t\"S-0000000000000003\"[1]\t\t# \"spine\" lid 3 4xNDR\n\n\
    Switch\t36 \"S-0000000000000002\"\t\t# \"leaf-2\" enhanced port 0 lid 2 lmc 0\n\
    [1]\t\"H-00000000000000a2\"[1](a2) \t\t# \"gpu-2 mlx5_0\" lid 5 4xNDR\n\
    [36]\t\"S-0000000000000003\"[2]\t\t# \"spine\" lid 3 4xNDR\n\n\
    Switch\t36 \"S-0000000000000003\"\t\t# \"spine\" enhanced port 0 lid 3 lmc 0\n\
    [1]\t\"S-0000000000000001\"[36]\t\t# \"leaf-1\" lid 1 4xNDR\n\
    [2]\t\"S-0000000000000002\"[36]\t\t# \"leaf-2\" lid 2 4xNDR\n\
    [3]\t\"H-00000000000000a3\"[1](a3) \t\t# \"storage-1 mlx5_0\" lid 6 4xNDR\n\n\
    Ca\t1 \"H-00000000000000a1\"\t\t# \"gpu-1 mlx5_0\"\n\
    [1](a1) \t\"S-0000000000000001\"[1]\t\t# lid 4 lmc 0 \"leaf-1\" lid 1 4xNDR\n\n\
    Ca\t1 \"H-00000000000000a2\"\t\t# \"gpu-2 mlx5_0\"\n\
    [1](a2) \t\"S-0000000000000002\"[1]\t\t# lid 5 lmc 0 \"leaf-2\" lid 2 4xNDR\n\n\
    Ca\t1 \"H-00000000000000a3\"\t\t# \"storage-1 mlx5_0\"\n\
    [1](a3) \t\"S-0000000000000003\"[3]\t\t# lid 6 lmc 0 \"spine\" lid 3 4xNDR\n";

/// Two nodes, as `kubectl get nodes -o json` lists them.
fn nodes() -> String {
    let node = |name: &str, rack: &str| {
        let labels = json!({"kubernetes.io/hostname": name, "example.org/zone": "a", "example.org/rack": rack});
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("{name}.example"), "labels": labels}})
    };
    json!({"apiVersion": "v1", "kind": "List", "items": [node("gpu-1", "r1"), node("gpu-2", "r2")]}).to_string()
}

/// Exit code, standard output, standard error.
fn discover(args: &[&str], stdin: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_caldera"));
    command.args(["topology", "discover"]).args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().unwrap();
    // Who does not read it may have ended.
    let _ = running.stdin.take().unwrap().write_all(stdin.as_bytes());
    read_outcome(running.wait_with_output().unwrap())
}

/// Name, tier and members of each HyperNode.
fn shown(yaml: &str) -> Vec<String> {
    let documents = caldera_cli::manifests::parse_documents(yaml).unwrap();
    let line = |object: &serde_json::Value| {
        assert_eq!(object["kind"], "HyperNode");
        assert_eq!(object["metadata"]["labels"]["volcano.sh/network-topology-source"], "caldera");
        let members = object["spec"]["members"].as_array().unwrap().iter();
        let members: Vec<String> = members
            .map(|member| match member["selector"]["exactMatch"]["name"].as_str() {
                Some(name) => name.to_owned(),
                None => member["selector"]["labelMatch"]["matchExpressions"].to_string(),
            })
            .collect();
        let (name, tier) = (object["metadata"]["name"].as_str().unwrap(), &object["spec"]["tier"]);
        format!("{name} {tier} {}: {}", object["spec"]["tierName"].as_str().unwrap(), members.join(" "))
    };
    documents.iter().map(line).collect()
}

#[test]
fn an_infiniband_fabric_is_printed_as_leaves_in_their_spine() {
    let dir = tempfile::tempdir().unwrap();
    let (fabric, nodes) =
        (write_file(dir.path(), "fabric.txt", FABRIC), write_file(dir.path(), "nodes.json", &nodes()));
    let want = [
        "leaf-0000000000000001 1 leaf: gpu-1.example",
        "leaf-0000000000000002 1 leaf: gpu-2.example",
        "spine-0000000000000003 2 spine: leaf-0000000000000001 leaf-0000000000000002",
    ];
    let (code, yaml, error) = discover(&["--ibnetdiscover", &fabric, "--nodes", &nodes], "");
    assert_eq!((code, error.as_str()), (Some(0), "caldera: hosts that are no nodes are left out: storage-1\n"));
    assert_eq!(shown(&yaml), want);
    assert_eq!(discover(&["--ibnetdiscover", "-", "--nodes", &nodes], FABRIC), (code, yaml, error));
    // Adapters that nobody called after their hosts would all be one host.
    let (code, _, error) = discover(&["--ibnetdiscover", &fabric], "");
    assert_eq!((code, error.contains("--nodes <FILE>")), (Some(2), true), "{error}");
}

#[test]
fn labels_are_printed_as_hyper_nodes_that_select_by_label() {
    let args = ["--labels", "example.org/zone,example.org/rack,kubernetes.io/hostname", "--nodes", "-"];
    let (code, yaml, error) = discover(&args, &nodes());
    assert_eq!((code, error.as_str()), (Some(0), ""));
    let rack = |rack: &str| {
        json!([
            {"key": "example.org/rack", "operator": "In", "values": [rack]},
            {"key": "example.org/zone", "operator": "In", "values": ["a"]},
        ])
    };
    let want = [
        format!("rack-a-r1 1 example.org/rack: {}", rack("r1")),
        format!("rack-a-r2 1 example.org/rack: {}", rack("r2")),
        "zone-a 2 example.org/zone: rack-a-r1 rack-a-r2".to_owned(),
    ];
    assert_eq!(shown(&yaml), want);
}

#[test]
fn neighbours_of_hosts_and_of_switches_are_printed_as_leaves_in_their_spine() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = write_file(dir.path(), "nodes.json", &nodes());
    let files = [("gpu-1", "tor-1"), ("gpu-2", "tor-2"), ("tor-1", "s1"), ("tor-2", "s1")];
    let files = files.map(|(host, switch)| write_file(dir.path(), &format!("{host}.json"), &sees(&[switch])));
    let of_all: Vec<&str> = ["--nodes", &nodes, "--lldp"].into_iter().chain(files.iter().map(String::as_str)).collect();
    let (code, yaml, error) = discover(&of_all, "");
    assert_eq!((code, error.as_str()), (Some(0), ""));
    let want = [
        "leaf-00-tor-1 1 leaf: gpu-1.example",
        "leaf-00-tor-2 1 leaf: gpu-2.example",
        "spine-00-s1 2 spine: leaf-00-tor-1 leaf-00-tor-2",
    ];
    assert_eq!(shown(&yaml), want);
    let (code, yaml, _) = discover(&["--lldp", &files[0], &files[1]], "");
    assert_eq!((code, shown(&yaml).len()), (Some(0), 2));
    // Storage at both leaves is no spine of them.
    let storage = write_file(dir.path(), "storage-1", &sees(&["tor-1", "tor-2"]));
    let (code, yaml, error) = discover(&[&of_all[..], &[&storage]].concat(), "");
    assert_eq!((code, error.as_str()), (Some(0), "caldera: hosts that are no nodes are left out: storage-1\n"));
    assert_eq!(shown(&yaml), want);
}

/// What lldpcli prints on a host that sees a switch at each of its interfaces.
fn sees(switches: &[&str]) -> String {
    let interface = |(at, switch): (usize, &&str)| {
        let capability = json!([{"type": "Bridge", "enabled": true}]);
        let id = json!({"type": "mac", "value": format!("00:{switch}")});
        json!({format!("eth{at}"): {"via": "LLDP", "chassis": {*switch: {"id": id, "capability": capability}}}})
    };
    json!({"lldp": {"interface": switches.iter().enumerate().map(interface).collect::<Vec<_>>()}}).to_string()
}

#[test]
fn a_switch_for_management_is_told_and_can_be_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let files = [("gpu-1.dc.example", "tor-1"), ("gpu-2.dc.example.json", "tor-2")];
    let files = files.map(|(file, switch)| write_file(dir.path(), file, &sees(&["mgmt", switch])));
    let (code, yaml, error) = discover(&["--lldp", &files[0], &files[1]], "");
    let told = "caldera: switch 00:mgmt alone makes one leaf of 2; if it is for management, leave its interfaces out\n";
    assert_eq!((code, error.as_str()), (Some(0), told));
    assert_eq!(shown(&yaml), ["leaf-00-mgmt 1 leaf: gpu-1.dc.example gpu-2.dc.example"]);
    let (code, yaml, error) = discover(&["--interfaces", "eth1,eth2", "--lldp", &files[0], &files[1]], "");
    assert_eq!((code, error.as_str()), (Some(0), ""));
    let want = ["leaf-00-tor-1 1 leaf: gpu-1.dc.example", "leaf-00-tor-2 1 leaf: gpu-2.dc.example"];
    assert_eq!(shown(&yaml), want);
}

#[test]
fn a_file_that_is_cut_short_or_something_else_is_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = write_file(dir.path(), "nodes.json", &nodes());
    let refuse = |args: &[&str], stdin: &str| {
        let (code, out, error) = discover(args, stdin);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{error}");
        error
    };
    let cut = &FABRIC[..FABRIC.find("\n\nCa\t").unwrap()];
    let error = refuse(&["--ibnetdiscover", "-", "--nodes", &nodes], cut);
    assert!(error.starts_with("caldera: -: S-0000000000000001 is linked with H-00000000000000a1, and "), "{error}");
    assert!(error.ends_with(" is not listed: the text is cut short\n"), "{error}");
    assert!(
        refuse(&["--ibnetdiscover", "/nowhere", "--nodes", &nodes], "")
            .starts_with("caldera: failed to read /nowhere: ")
    );
    let error = refuse(&["--labels", "example.org/rack", "--nodes", "-"], "{\"items\": [{");
    assert!(error.starts_with("caldera: -: it is not what kubectl get nodes -o json prints: "), "{error}");
    let error = refuse(&["--labels", "example.org/row", "--nodes", &nodes], "");
    assert_eq!(error, "caldera: --labels: of 2 nodes none has label example.org/row\n");
    let bare = write_file(dir.path(), "gpu-1.json", "{\"lldp\": {}}");
    assert_eq!(refuse(&["--lldp", &bare], ""), "caldera: --lldp: no node is at any switch in it\n");
    assert_eq!(refuse(&["--lldp", "-"], "{}"), "caldera: -: want a file with the name of its host\n");
    let odd = write_file(dir.path(), "gpu_1.json", &sees(&["tor-1"]));
    assert_eq!(refuse(&["--lldp", &odd], ""), format!("caldera: {odd}: want a file with the name of its host\n"));
    let twice = refuse(&["--ibnetdiscover", "-", "--nodes", "-"], "{}");
    assert_eq!(twice, "caldera: only one file can be standard input\n");
    let others = FABRIC.replace("gpu-", "cpu-");
    let error = refuse(&["--ibnetdiscover", "-", "--nodes", &nodes], &others);
    assert!(error.starts_with("caldera: none of the hosts is a node of --nodes: cpu-1, cpu-2"), "{error}");
    for (args, words) in [
        (&["--labels", "a b", "--nodes", "-"][..], "\"a b\" is no key of a label"),
        (&["--labels", "a,a", "--nodes", "-"], "it names label a twice"),
        (&["--labels", "a"], "--nodes <FILE>"),
        (&[], "--ibnetdiscover <FILE>"),
        (&["--labels", "a", "--nodes", "-", "--ibnetdiscover", "-"], "cannot be used with"),
    ] {
        let error = refuse(args, "");
        assert!(error.contains(words), "{args:?}: {error}");
    }
}
