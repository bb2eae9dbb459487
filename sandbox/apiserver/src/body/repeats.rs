//! Keys that a YAML mapping has more than once, in the words of Go's strict reader (`sigs.k8s.io/yaml`,
//! `go.yaml.in/yaml/v2` `setMapIndex`): each is told with the line of its value, once that value was read.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use crate::error::go_quote;

const BEGINNING: &str = "yaml: unmarshal errors:";

/// Of several documents only the first is read.
pub fn first_document(text: &str) -> &str {
    let mut at = 0;
    let mut begun = false;
    for line in text.split_inclusive('\n') {
        if begun && line.trim_end() == "---" {
            return text.get(..at).unwrap_or(text);
        }
        begun |= !line.trim().is_empty() && !line.starts_with('#');
        at += line.len();
    }
    text
}

/// `yaml: unmarshal errors:` and a line for each repeated key, if there is one. A JSON document is YAML, too.
pub fn find_repeats(bytes: &[u8]) -> Option<String> {
    let text = first_document(std::str::from_utf8(bytes).ok()?);
    let options = serde_saphyr::options! { duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins };
    let tree: Tree = serde_saphyr::from_str_with_options(text, options).ok()?;
    let mut found = Vec::new();
    tree.list_repeats(&mut found);
    (!found.is_empty()).then(|| format!("{BEGINNING}\n  {}", found.join("\n  ")))
}

/// An error of strict decoding as warnings: those of YAML are one for each line (`parseYAMLWarnings`).
pub fn split_repeats(error: &str) -> Vec<String> {
    match error.strip_prefix(BEGINNING) {
        Some(lines) => lines.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect(),
        None => vec![error.to_owned()],
    }
}

/// What of a document repeated keys are seen by.
enum Tree {
    Mapping(Vec<(String, Spanned<Tree>)>),
    Sequence(Vec<Tree>),
    Scalar,
}

impl Tree {
    fn list_repeats(&self, found: &mut Vec<String>) {
        match self {
            Self::Mapping(entries) => {
                let mut seen = BTreeSet::new();
                for (key, value) in entries {
                    value.value.list_repeats(found);
                    if !seen.insert(key) {
                        let line = value.referenced.line();
                        found.push(format!("line {line}: key {} already set in map", go_quote(key)));
                    }
                }
            }
            Self::Sequence(items) => items.iter().for_each(|item| item.list_repeats(found)),
            Self::Scalar => {}
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }

    fn visit_str<E>(self, _: &str) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        Tree::deserialize(deserializer)
    }

    fn visit_bytes<E>(self, _: &[u8]) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Tree::Scalar)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Tree::Sequence(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Tree::Mapping(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_keys_are_told_by_the_line_of_their_value() {
        let text = "metadata:\n  name: a\n  name: b\ndata: {x: 1, x: 2}\ndata:\n  y: 1\nlist:\n- z: 1\n  z: 2\n";
        let told = "yaml: unmarshal errors:\n  line 3: key \"name\" already set in map\n  line 4: key \"x\" already \
                    set in map\n  line 6: key \"data\" already set in map\n  line 9: key \"z\" already set in map";
        assert_eq!(find_repeats(text.as_bytes()).as_deref(), Some(told));
        assert_eq!(split_repeats(told).len(), 4);
        assert_eq!(find_repeats(b"a: 1\nb: {a: 2}\n"), None);
    }

    /// The time grew with the square of the number: this would take minutes.
    #[test]
    fn a_mapping_of_many_keys_is_looked_through_in_time() {
        let unknown = serde_saphyr::Location::UNKNOWN;
        let entry = |i: u32| (format!("k{i:06}"), Spanned::new(Tree::Scalar, unknown, unknown));
        let tree = Tree::Mapping((0..250_000).chain([7]).map(entry).collect());
        let (mut found, begun) = (Vec::new(), std::time::Instant::now());
        tree.list_repeats(&mut found);
        assert_eq!(found, [format!("line {}: key \"k000007\" already set in map", unknown.line())]);
        assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
    }

    #[test]
    fn json_is_yaml() {
        let told = "yaml: unmarshal errors:\n  line 1: key \"a\" already set in map";
        assert_eq!(find_repeats(br#"{"b":{"a":1,"a":2}}"#).as_deref(), Some(told));
        assert_eq!(split_repeats("unknown field \"x\""), ["unknown field \"x\""]);
    }
}
