//! The bill of materials of the binary is of what is locked: every crate that it needs, with the checksum that cargo
//! verifies, and none of the tests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use caldera_architecture::{build_sbom, find_root};
use serde_json::Value;

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// By name and version, the checksum and the names of the dependencies of each package of the lock.
fn read_lock() -> BTreeMap<(String, String), (Option<String>, Vec<String>)> {
    let lock = fs::read_to_string(find_root().join("Cargo.lock")).unwrap();
    let mut all = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let value = |name: &str| {
            let line = package.lines().find(|line| line.starts_with(&format!("{name} = ")));
            line.map(|line| line.split('"').nth(1).unwrap().to_owned())
        };
        let (_, listed) = package.split_once("dependencies = [").unwrap_or_default();
        let names = listed.split('"').skip(1).step_by(2).map(|one| one.split(' ').next().unwrap().to_owned());
        all.insert((value("name").unwrap(), value("version").unwrap()), (value("checksum"), names.collect()));
    }
    all
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value}")).to_owned()
}

#[test]
fn the_bill_of_the_binary_has_what_the_lock_has_and_nothing_of_tests() {
    let (bill, lock) = (build_sbom(TARGET).unwrap(), read_lock());
    let components = bill["components"].as_array().unwrap();
    let mut names = BTreeSet::from(["caldera-cli".to_owned()]);
    for component in components {
        let (name, version) = (text(&component["name"]), text(&component["version"]));
        let (checksum, _) = &lock[&(name.clone(), version)];
        assert_eq!(component["hashes"][0]["content"].as_str(), checksum.as_deref(), "{component}");
        assert_ne!(text(&component["licenses"][0]["expression"]), "", "{component}");
        names.insert(name);
    }
    for linked in ["kube", "tokio", "ring", "rustls", "lua-src", "caldera-core", "caldera-controller"] {
        assert!(names.contains(linked), "{linked} is linked");
    }
    for of_tests in ["proptest", "vt100", "divan", "caldera-architecture", "caldera-fixtures"] {
        assert!(!names.contains(of_tests), "{of_tests} is of tests alone");
    }
    // The lock, which knows neither features nor targets, leads to each of them.
    let mut reached = BTreeSet::from(["caldera-cli".to_owned()]);
    let mut next = vec!["caldera-cli".to_owned()];
    while let Some(name) = next.pop() {
        for (_, uses) in lock.iter().filter(|((known, _), _)| *known == name).map(|(_, package)| package) {
            next.extend(uses.iter().filter(|used| reached.insert((*used).clone())).cloned());
        }
    }
    assert_eq!(names.difference(&reached).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn each_reference_of_the_bill_is_of_a_component_that_is_there_once() {
    let bill = build_sbom(TARGET).unwrap();
    let all = || bill["components"].as_array().unwrap().iter().chain([&bill["metadata"]["component"]]);
    let known: BTreeSet<String> = all().map(|component| text(&component["bom-ref"])).collect();
    assert_eq!(known.len(), all().count());
    let dependencies = bill["dependencies"].as_array().unwrap();
    let told: BTreeSet<String> = dependencies.iter().map(|one| text(&one["ref"])).collect();
    assert_eq!(told, known);
    let used = dependencies.iter().flat_map(|one| one["dependsOn"].as_array().unwrap()).map(text);
    let used: BTreeSet<String> = used.collect();
    let unused: Vec<&String> = known.difference(&used).collect();
    assert_eq!(unused, [&text(&bill["metadata"]["component"]["bom-ref"])], "all but the binary are used by another");
}

#[test]
fn the_same_lock_gives_the_same_bill_and_it_says_nothing_of_this_machine() {
    let bill = build_sbom(TARGET).unwrap().to_string();
    assert_eq!(bill, build_sbom(TARGET).unwrap().to_string());
    let root = fs::canonicalize(find_root()).unwrap();
    assert!(!bill.contains(root.to_str().unwrap()));
    assert!(bill.contains("\"bomFormat\":\"CycloneDX\"") && bill.contains("\"specVersion\":\"1.5\""));
}
