//! Test of `manifests/krew/caldera.yaml`, the plugin manifest that a release fills in.

use std::{fs, path::PathBuf};

use serde_json::Value;

use crate::objects::{read_list_at, read_text_at};

const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

fn read_repository_file(path: &str) -> String {
    fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap()
}

#[test]
fn the_krew_manifest_is_of_this_version_and_has_what_the_release_checklist_fills_in() {
    let text = read_repository_file("manifests/krew/caldera.yaml");
    let plugin: Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!((read_text_at(&plugin, "/kind"), read_text_at(&plugin, "/metadata/name")), ("Plugin", "caldera"));
    assert_eq!(read_text_at(&plugin, "/spec/version"), VERSION);
    assert_eq!(read_text_at(&plugin, "/spec/homepage"), "RELEASE_URL");
    // krew shows it in a column.
    assert!((1..=60).contains(&read_text_at(&plugin, "/spec/shortDescription").len()));
    let platforms = read_list_at(&plugin, "/spec/platforms");
    let mut archives = Vec::new();
    for platform in platforms {
        let label = |name: &str| read_text_at(platform, &format!("/selector/matchLabels/{name}"));
        let target = match (label("os"), label("arch")) {
            ("linux", "amd64") => "x86_64-unknown-linux-gnu",
            ("linux", "arm64") => "aarch64-unknown-linux-gnu",
            other => panic!("{other:?}"),
        };
        assert_eq!(read_text_at(platform, "/uri"), format!("RELEASE_URL/caldera-{VERSION}-{target}.tar.gz"));
        assert_eq!(read_text_at(platform, "/sha256"), format!("SHA256_OF_{target}"));
        // krew links it as kubectl-caldera.
        assert_eq!(read_text_at(platform, "/bin"), "caldera");
        archives.push(format!("\"{target}\""));
    }
    let built = format!("targets = [{}]", archives.join(", "));
    assert!(read_repository_file("deny.toml").contains(&built), "the targets of a release are not {built}");
    let checklist = read_repository_file("docs/release-checklist.md");
    for word in ["manifests/krew/caldera.yaml", "RELEASE_URL", "SHA256_OF_"] {
        assert!(checklist.contains(word), "{word}");
    }
}
