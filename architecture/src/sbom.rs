//! A bill of materials of the `caldera` binary: each crate that is compiled for it, with its licence, the checksum that
//! `Cargo.lock` has of it, and what it uses.
//!
//! Rule (CycloneDX 1.5, <https://cyclonedx.org/docs/1.5/json/>): which crates these are is what `cargo tree` says of
//! package `caldera-cli` for a target, with the features that it is built with. Those of build scripts and macros are
//! among them, since some bring code (`lua-src`); those of tests are not. A crate without a licence is an error, and so
//! is one that `Cargo.lock` has no checksum of, unless it is of this workspace. Nothing is fetched, which `cargo fetch
//! --locked --target TARGET` does before. Nothing of the machine or the time is said: the same lock gives the same
//! text.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use serde_json::{Value, json};

/// The package whose binary it is.
const PACKAGE: &str = "caldera-cli";

/// A crate in one version.
type CrateId = (String, String);

/// What `cargo tree` says of a crate.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CrateFacts {
    license: String,
    repository: String,
    /// Of this workspace.
    is_ours: bool,
    uses: BTreeSet<CrateId>,
}

/// The bill for a target, such as `x86_64-unknown-linux-gnu`.
///
/// # Errors
/// If cargo does not know the crates without a network, or the lock is not of these crates.
pub fn build_sbom(target: &str) -> Result<Value, String> {
    let lock = crate::read(&crate::find_root().join("Cargo.lock"));
    write_bill(&read_tree(&ask_cargo(target)?), &read_checksums(&lock), target)
}

fn ask_cargo(target: &str) -> Result<String, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let shown = ["--prefix", "depth", "--format", "|{p}|{l}|{r}", "--charset", "ascii"];
    let output = Command::new(cargo)
        .args(["tree", "--locked", "--offline", "-p", PACKAGE, "-e", "normal,build", "--target", target])
        .args(shown)
        .current_dir(crate::find_root())
        .output()
        .map_err(|error| format!("cargo can not be run: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo tree failed; is it fetched (cargo fetch --locked --target {target})? {said}"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Reads lines such as `2|bytes v1.12.1|MIT|https://github.com/tokio-rs/bytes (*)`: at which depth, which crate, its
/// licence and its repository. What a crate uses is told once, where it is named first.
fn read_tree(text: &str) -> BTreeMap<CrateId, CrateFacts> {
    let mut all: BTreeMap<CrateId, CrateFacts> = BTreeMap::new();
    let mut above: Vec<CrateId> = Vec::new();
    for line in text.lines() {
        let mut fields = line.trim_end_matches(" (*)").splitn(4, '|');
        let mut field = || fields.next().unwrap_or_default();
        let (Ok(depth), package, license, repository) = (field().parse::<usize>(), field(), field(), field()) else {
            continue;
        };
        let mut words = package.split(' ');
        let (Some(name), Some(version)) = (words.next(), words.next().and_then(|word| word.strip_prefix('v'))) else {
            continue;
        };
        let id = (name.to_owned(), version.to_owned());
        above.truncate(depth);
        if let Some(user) = above.last().and_then(|user| all.get_mut(user)) {
            user.uses.insert(id.clone());
        }
        above.push(id.clone());
        all.entry(id).or_insert_with(|| CrateFacts {
            license: license.split('/').map(str::trim).collect::<Vec<_>>().join(" OR "),
            repository: repository.to_owned(),
            is_ours: words.any(|word| word.starts_with("(/")),
            uses: BTreeSet::new(),
        });
    }
    all
}

/// The checksums of `Cargo.lock`.
fn read_checksums(lock: &str) -> BTreeMap<CrateId, String> {
    let packages = lock.split("[[package]]").skip(1);
    let read = |package: &str| {
        let field = |name: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
            line.map(|value| value.trim_matches('"').to_owned())
        };
        Some(((field("name")?, field("version")?), field("checksum")?))
    };
    packages.filter_map(read).collect()
}

fn write_bill(
    all: &BTreeMap<CrateId, CrateFacts>,
    checksums: &BTreeMap<CrateId, String>,
    target: &str,
) -> Result<Value, String> {
    let (mut root, mut components, mut dependencies) = (Value::Null, Vec::new(), Vec::new());
    for (id, facts) in all {
        let uses: Vec<String> = facts.uses.iter().map(name_reference).collect();
        dependencies.push(json!({"ref": name_reference(id), "dependsOn": uses}));
        let component = describe_crate(id, facts, checksums)?;
        if id.0 == PACKAGE { root = component } else { components.push(component) }
    }
    if root.is_null() {
        return Err(format!("cargo tree names no {PACKAGE}"));
    }
    (root["type"], root["name"]) = ("application".into(), "caldera".into());
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": root, "properties": [{"name": "caldera:target", "value": target}]},
        "components": components,
        "dependencies": dependencies,
    }))
}

/// As package URLs have it: a `+` of a version is escaped.
fn name_reference((name, version): &CrateId) -> String {
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}

fn describe_crate(id: &CrateId, facts: &CrateFacts, checksums: &BTreeMap<CrateId, String>) -> Result<Value, String> {
    let (name, version) = id;
    if facts.license.is_empty() {
        return Err(format!("{name} {version} names no licence"));
    }
    let mut component = json!({
        "type": "library",
        "bom-ref": name_reference(id),
        "name": name,
        "version": version,
        "licenses": [{"expression": facts.license}],
    });
    if !facts.repository.is_empty() {
        component["externalReferences"] = json!([{"type": "vcs", "url": facts.repository}]);
    }
    // Crates of this workspace are published nowhere.
    if !facts.is_ours {
        let checksum = checksums.get(id).ok_or_else(|| format!("Cargo.lock has no checksum of {name} {version}"))?;
        component["purl"] = name_reference(id).into();
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    Ok(component)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "0|caldera-cli v0.1.0 (/there/cli)|Apache-2.0|
1|caldera-core v0.1.0 (/there/core)|Apache-2.0|
1|tokio v1.2.3|MIT|https://example.com/tokio
2|bytes v1.0.0+x|MIT/Apache-2.0|https://example.com/bytes
2|macros v0.1.0 (proc-macro)|Apache-2.0 / MIT|
1|other v1.0.0|MIT|
2|tokio v1.2.3|MIT|https://example.com/tokio (*)
";
    const LOCK: &str = "version = 4

[[package]]
name = \"bytes\"
version = \"1.0.0+x\"
source = \"registry\"
checksum = \"b\"

[[package]]
name = \"caldera-core\"
version = \"0.1.0\"
dependencies = [
 \"tokio\",
]

[[package]]
name = \"macros\"
version = \"0.1.0\"
checksum = \"m\"

[[package]]
name = \"other\"
version = \"1.0.0\"
checksum = \"o\"

[[package]]
name = \"tokio\"
version = \"1.2.3\"
checksum = \"t\"
";

    fn bill(lock: &str) -> Result<Value, String> {
        write_bill(&read_tree(TREE), &read_checksums(lock), "x")
    }

    #[test]
    fn a_crate_without_a_licence_is_an_error() {
        let tree = TREE.replace("1|other v1.0.0|MIT|", "1|other v1.0.0||");
        let why = write_bill(&read_tree(&tree), &read_checksums(LOCK), "x").unwrap_err();
        assert_eq!(why, "other 1.0.0 names no licence");
    }

    #[test]
    fn a_crate_has_its_licence_its_checksum_and_what_it_uses_wherever_that_is_told() {
        let bill = bill(LOCK).unwrap();
        let names: Vec<&str> =
            bill["components"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["bytes", "caldera-core", "macros", "other", "tokio"]);
        let bytes = &bill["components"][0];
        assert_eq!(bytes["purl"], "pkg:cargo/bytes@1.0.0%2Bx");
        assert_eq!(bytes["licenses"], json!([{"expression": "MIT OR Apache-2.0"}]));
        assert_eq!(bytes["hashes"], json!([{"alg": "SHA-256", "content": "b"}]));
        assert_eq!(bill["components"][2]["licenses"], json!([{"expression": "Apache-2.0 OR MIT"}]));
        let uses = |at: usize| bill["dependencies"][at]["dependsOn"].to_string();
        assert_eq!(uses(1), r#"["pkg:cargo/caldera-core@0.1.0","pkg:cargo/other@1.0.0","pkg:cargo/tokio@1.2.3"]"#);
        assert_eq!(uses(4), r#"["pkg:cargo/tokio@1.2.3"]"#);
        assert_eq!(uses(5), r#"["pkg:cargo/bytes@1.0.0%2Bx","pkg:cargo/macros@0.1.0"]"#);
    }

    #[test]
    fn a_crate_of_this_workspace_is_published_nowhere_and_its_place_is_not_told() {
        let bill = bill(LOCK).unwrap();
        assert!(bill["components"][1]["purl"].is_null() && bill["components"][1]["hashes"].is_null());
        assert_eq!(bill["metadata"]["component"]["name"], "caldera");
        assert!(!bill.to_string().contains("there"), "{bill}");
    }

    #[test]
    fn a_lock_of_other_crates_is_an_error() {
        let why = bill(&LOCK.replace("1.2.3", "1.2.4")).unwrap_err();
        assert_eq!(why, "Cargo.lock has no checksum of tokio 1.2.3");
    }
}
