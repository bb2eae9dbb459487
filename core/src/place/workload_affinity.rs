//! Workload affinity: who is in a group with whom, and where the others are.
//!
//! Rule: karmada-scheduler's WorkloadAffinity and WorkloadAntiAffinity plugins: of an affinity group everybody goes
//! where all that are placed are, of an anti-affinity group nobody goes where another one is. Groups end at the
//! namespace.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fmt::{Display, Write as _},
};

use crate::text::{MOST_NAMED, count_noun, name_some};

/// A workload affinity group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AffinityGroup {
    /// Its members go where the others are.
    Together(String),
    /// Its members go where no other is.
    Apart(String),
}

/// Where the others of a binding's groups are placed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peers {
    /// Clusters that every placed one of its affinity group is in; `None` while none of them is placed.
    pub together: Option<BTreeSet<String>>,
    /// Clusters that any one of its anti-affinity group is in.
    pub apart: BTreeSet<String>,
    /// One of the first, and of the second by cluster: for telling.
    names: (Option<String>, BTreeMap<String, String>),
}

impl Peers {
    /// Takes in the clusters of another one of the affinity group; one that is not placed says nothing.
    pub fn add_affinity<'a>(&mut self, name: &impl Display, clusters: impl IntoIterator<Item = &'a str>) {
        let theirs: BTreeSet<String> = clusters.into_iter().map(ToOwned::to_owned).collect();
        if theirs.is_empty() {
            return;
        }
        self.names.0.get_or_insert_with(|| name.to_string());
        self.together = Some(match self.together.take() {
            Some(all) => &all & &theirs,
            None => theirs,
        });
    }

    /// Takes in the clusters of another one of the anti-affinity group.
    pub fn add_anti_affinity<'a>(&mut self, name: &impl Display, clusters: impl IntoIterator<Item = &'a str>) {
        for cluster in clusters {
            self.apart.insert(cluster.to_owned());
            self.names.1.entry(cluster.to_owned()).or_insert_with(|| name.to_string());
        }
    }

    /// Who of its anti-affinity group is in a cluster.
    #[must_use]
    pub fn anti_affinity_peer_in(&self, cluster: &str) -> Option<&str> {
        self.names.1.get(cluster).map(String::as_str)
    }

    /// True if they keep it out of no cluster.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.together.is_none() && self.apart.is_empty()
    }
}

/// `m1 has ns/a of its anti-affinity group`, for whoever found no place.
impl Display for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::new();
        if let (Some(name), Some(together)) = (&self.names.0, &self.together) {
            let clusters = if together.is_empty() { "no cluster".to_owned() } else { name_some(together) };
            let _ = write!(text, "of its affinity group {name} is placed, and all of the group are in {clusters}");
        }
        for (cluster, name) in self.names.1.iter().take(MOST_NAMED) {
            let separator = if text.is_empty() { "" } else { "; " };
            let _ = write!(text, "{separator}{cluster} has {name} of its anti-affinity group");
        }
        if let more @ 1.. = self.names.1.len().saturating_sub(MOST_NAMED) {
            let _ = write!(text, " and others are in {}", count_noun(more, "more cluster"));
        }
        f.write_str(&text)
    }
}

/// Who is in which group.
#[derive(Debug, Clone)]
pub struct Groups<K>(BTreeMap<(String, AffinityGroup), BTreeSet<K>>);

impl<K> Default for Groups<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone + Display> Groups<K> {
    /// A binding of a namespace is in these groups.
    pub fn insert(&mut self, namespace: &str, groups: &[AffinityGroup], key: &K) {
        for group in groups {
            self.0.entry((namespace.to_owned(), group.clone())).or_default().insert(key.clone());
        }
    }

    /// It is in these no longer.
    pub fn remove(&mut self, namespace: &str, groups: &[AffinityGroup], key: &K) {
        for group in groups {
            if let Entry::Occupied(mut keys) = self.0.entry((namespace.to_owned(), group.clone())) {
                keys.get_mut().remove(key);
                if keys.get().is_empty() {
                    keys.remove();
                }
            }
        }
    }

    /// The others of a binding's groups.
    pub fn list_others<'a>(
        &'a self,
        namespace: &str,
        groups: &'a [AffinityGroup],
        key: &'a K,
    ) -> impl Iterator<Item = (&'a AffinityGroup, &'a K)> {
        let of = move |group: &'a AffinityGroup, namespace: &str| {
            let members = self.0.get(&(namespace.to_owned(), group.clone()));
            members.into_iter().flatten().filter(move |other| *other != key).map(move |other| (group, other))
        };
        groups.iter().flat_map(|group| of(group, namespace)).collect::<Vec<_>>().into_iter()
    }

    /// Where the others of a binding's groups are, each being placed in the clusters that `of` says.
    pub fn find_peers(
        &self,
        namespace: &str,
        groups: &[AffinityGroup],
        key: &K,
        of: impl Fn(&K) -> Vec<String>,
    ) -> Peers {
        let mut peers = Peers::default();
        for (group, other) in self.list_others(namespace, groups, key) {
            let clusters = of(other);
            let clusters = clusters.iter().map(String::as_str);
            match group {
                AffinityGroup::Together(_) => peers.add_affinity(other, clusters),
                AffinityGroup::Apart(_) => peers.add_anti_affinity(other, clusters),
            }
        }
        peers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_where_all_that_are_placed_are_and_apart_from_any() {
        let mut groups: Groups<String> = Groups::default();
        let (with, apart) = (AffinityGroup::Together("g".into()), AffinityGroup::Apart("g".into()));
        for (name, group) in [("a", &with), ("b", &with), ("c", &with), ("d", &apart), ("e", &apart)] {
            groups.insert("ns", std::slice::from_ref(group), &name.to_owned());
        }
        let at = |name: &String| match name.as_str() {
            "a" => vec!["m1".to_owned(), "m2".into()],
            "b" => vec!["m2".into(), "m3".into()],
            "d" => vec!["m1".into()],
            _ => vec![],
        };
        let all = [with.clone(), apart.clone()];
        let peers = groups.find_peers("ns", &all, &"c".to_owned(), at);
        assert_eq!(peers.together, Some(["m2".to_owned()].into()));
        assert_eq!(peers.apart, ["m1".to_owned()].into());
        assert_eq!(
            peers.to_string(),
            "of its affinity group a is placed, and all of the group are in m2; m1 has d of its anti-affinity group"
        );
        assert!(groups.find_peers("other", &all, &"c".to_owned(), at).is_empty(), "groups end at the namespace");
        let one = std::slice::from_ref(&apart);
        let itself = groups.find_peers("ns", one, &"d".to_owned(), at);
        assert!(itself.is_empty(), "nobody is kept away by itself");
        groups.remove("ns", one, &"d".to_owned());
        assert!(groups.find_peers("ns", one, &"c".to_owned(), at).is_empty());
    }
}
