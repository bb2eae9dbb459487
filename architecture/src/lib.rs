//! Reads the source of the workspace and says who imports whom and which types a crate declares. The tests beside it
//! hold `docs/design.md` to what is there.
//!
//! Only the text is read: manifests by line, sources by a scanner that drops comments, strings and test modules and
//! then looks for paths that begin with `crate::` or `super::`, and for declarations of types. That is enough for both
//! and needs no compiler. It also says what the binary is made of (`sbom`).
#![allow(clippy::panic, reason = "only tests use this crate, and they fail by panicking")]

mod graph;
mod sbom;
mod source;
mod types;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

pub use graph::{Graph, link_modules_below, list_cycles};
pub use sbom::build_sbom;
pub use source::{Source, read_sources};
pub use types::list_shared_names;

/// The folder of the workspace.
#[must_use]
pub fn find_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The workspace's crates by folder, with the folders of the workspace's crates that each depends on. Dependencies of
/// tests alone do not count.
#[must_use]
pub fn read_crates() -> Graph {
    let root = find_root();
    let manifest = read(&root.join("Cargo.toml"));
    let members = manifest.split_once("members = [").and_then(|(_, rest)| rest.split_once(']'));
    let Some((members, _)) = members else { panic!("Cargo.toml names no members") };
    let folders: Vec<&str> = members.split('"').skip(1).step_by(2).collect();
    let manifests: BTreeMap<&str, String> =
        folders.iter().map(|folder| (*folder, read(&root.join(folder).join("Cargo.toml")))).collect();
    let by_name: BTreeMap<&str, &str> = manifests.iter().map(|(folder, text)| (read_name(text), *folder)).collect();
    let needs = |text: &str| -> BTreeSet<String> {
        let section = text.split("\n[").find(|section| section.starts_with("dependencies]")).unwrap_or_default();
        let keys = section.lines().map(|line| line.split(['.', ' ', '=']).next().unwrap_or_default());
        keys.filter_map(|key| by_name.get(key)).map(|folder| (*folder).to_owned()).collect()
    };
    manifests.iter().map(|(folder, text)| ((*folder).to_owned(), needs(text))).collect()
}

fn read_name(manifest: &str) -> &str {
    let line = manifest.lines().find_map(|line| line.strip_prefix("name = "));
    line.map_or("", |name| name.trim_matches('"'))
}

/// A crate's modules directly below its root, with those that each imports. `lib` is what `lib.rs` itself defines.
#[must_use]
pub fn read_modules(folder: &str) -> Graph {
    graph::link_modules(&read_sources(&find_root().join(folder).join("src")))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
