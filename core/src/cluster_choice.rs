//! Which clusters the user of a workload lets it go to, within what its policy permits.
//!
//! Rule: as `clusterNames` and `exclude` of Karmada's `ClusterAffinity`: one of the first, if there are any, and none
//! of the second. It only narrows what the policy selects. It is asked when something is placed, and never of what
//! runs.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

use crate::text::name_some;

/// Names that one list may have. A longer one is not understood.
const MOST_NAMES: usize = 256;
/// Characters that one list may have: each job keeps its own.
const LONGEST_LIST: usize = 4096;

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClusterChoice {
    /// Only these, if there are any.
    pub only: BTreeSet<String>,
    /// Never these.
    pub exclude: BTreeSet<String>,
}

impl ClusterChoice {
    /// Whether it may go to a cluster.
    #[must_use]
    pub fn allows(&self, cluster: &str) -> bool {
        (self.only.is_empty() || self.only.contains(cluster)) && !self.exclude.contains(cluster)
    }

    /// Whether it may go anywhere.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.only.is_empty() && self.exclude.is_empty()
    }
}

/// Where it may go, for whoever found no place for it.
impl fmt::Display for ClusterChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [("its user lets it go only to", &self.only), ("its user keeps it out of", &self.exclude)];
        let mut before = "";
        for (words, names) in lists.iter().filter(|(_, names)| !names.is_empty()) {
            write!(f, "{before}{words} {}", name_some(*names))?;
            before = "; ";
        }
        Ok(())
    }
}

/// Reads `member1,member2`; `None` if it is no such list.
#[must_use]
pub fn parse_names(text: &str) -> Option<BTreeSet<String>> {
    if text.len() > LONGEST_LIST {
        return None;
    }
    let mut names = BTreeSet::new();
    for (at, name) in text.split(',').map(str::trim).enumerate() {
        let is_name = !name.is_empty() && name.len() <= 253 && name.bytes().all(is_of_a_name);
        if !is_name || at >= MOST_NAMES {
            return None;
        }
        names.insert(name.to_owned());
    }
    Some(names)
}

const fn is_of_a_name(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(only: &str, exclude: &str) -> ClusterChoice {
        let names = |text: &str| if text.is_empty() { BTreeSet::new() } else { parse_names(text).unwrap() };
        ClusterChoice { only: names(only), exclude: names(exclude) }
    }

    #[test]
    fn a_workload_goes_to_one_of_the_first_list_and_to_none_of_the_second() {
        let allows = |only: &str, exclude: &str| ["m1", "m2", "m3"].map(|name| choice(only, exclude).allows(name));
        assert_eq!(allows("", ""), [true, true, true]);
        assert_eq!(allows("m1,m2", ""), [true, true, false]);
        assert_eq!(allows("", "m2"), [true, false, true]);
        assert_eq!(allows("m1,m2", "m2"), [true, false, false]);
        assert!(choice("", "").is_empty() && !choice("", "m1").is_empty());
    }

    #[test]
    fn a_list_is_names_of_clusters_with_commas() {
        assert_eq!(parse_names("m2, m1,m2").map(Vec::from_iter), Some(vec!["m1".to_owned(), "m2".to_owned()]));
        let long = vec!["m"; MOST_NAMES + 1].join(",");
        for wrong in ["", "m1,", "M1", "m 1", "m1;m2", "!m1", &long, &"m".repeat(254)] {
            assert_eq!(parse_names(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_choice_is_told_in_one_sentence() {
        assert_eq!(choice("m1,m2", "").to_string(), "its user lets it go only to m1, m2");
        let reported = choice("m1", "a,b,c,d,e").to_string();
        assert_eq!(reported, "its user lets it go only to m1; its user keeps it out of a, b, c, d and 1 more");
    }
}
