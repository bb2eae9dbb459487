//! `federation.caldera.dev/v1alpha1` FederationTopology: which clusters are well connected.
//!
//! Admins declare links with latency and bandwidth, and tiers that say how good a link must be. A gang's
//! `networkTopology` may name a tier (`caldera_core::split::FederationTopology`). Several objects add up: all their
//! links count, and their tiers in the order of the objects' names. An invalid tier or link is left out, alone, and the
//! condition [`ACCEPTED`] of its object says why. A cluster that does not exist yet counts as soon as it does.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use caldera_core::{
    gang::ClusterName,
    split::{self, LinkedGroups},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::wire::{api_types, object};

/// Condition type: everything in the object is valid and counts.
pub const ACCEPTED: &str = "Accepted";
/// Tiers that count at most, over all objects.
pub const MOST_TIERS: usize = 16;
/// Links of one object that count at most.
pub const MOST_LINKS: usize = 1024;
/// Clusters that one end of a link may have at most.
pub const MOST_CLUSTERS: usize = 1024;
/// The length of a condition's message, at most.
const MOST_MESSAGE_LENGTH: usize = 1000;
/// Names of the levels that exist without any declaration.
const TAKEN: [&str; 3] = ["cluster", "region", "provider"];

object! {
    /// Which clusters have a good link to which.
    FederationTopology, "federation.caldera.dev", "v1alpha1", "federationtopologies", ClusterResourceScope
    { spec: FederationTopologySpec } { status: FederationTopologyStatus }
}

api_types! {
    /// Links, and what makes clusters close.
    pub struct FederationTopologySpec {
        /// Tiers from near to far. All of them are nearer than a region.
        #[schemars(extend("maxItems" = 16))]
        pub tiers: Vec<Tier>,
        /// Links between clusters. Of several links between two clusters, one that is good enough is sufficient.
        #[schemars(extend("maxItems" = 1024))]
        pub links: Vec<Link>,
    }

    /// A tier above the cluster.
    pub struct Tier {
        /// The name for `networkTopology.highestTierName`. It must not be cluster, region or provider.
        #[schemars(extend("minLength" = 1, "maxLength" = 63))]
        pub name: String,
        /// The number for `networkTopology.highestTierAllowed`. It is above every tier inside members, and grows from
        /// tier to tier.
        #[schemars(extend("minimum" = 0, "maximum" = 2147483647, "format" = null))]
        pub tier: Option<i64>,
        /// The highest one-way latency of a link in this tier. Absent means any.
        #[schemars(extend("minimum" = 0, "format" = null))]
        pub max_latency_microseconds: Option<i64>,
        /// The lowest bandwidth of a link in this tier. Absent means any.
        #[schemars(extend("minimum" = 0, "format" = null))]
        pub min_bandwidth_megabits: Option<i64>,
    }

    /// A link between each cluster of `from` and each of `to`, both ways.
    pub struct Link {
        /// Clusters at one end.
        #[schemars(extend("minItems" = 1, "maxItems" = 1024))]
        pub from: Vec<String>,
        /// Clusters at the other end. If empty, the link is between any two clusters of `from`.
        #[schemars(extend("maxItems" = 1024))]
        pub to: Vec<String>,
        /// One-way latency. Without it the link meets no tier that limits latency.
        #[schemars(extend("minimum" = 0, "format" = null))]
        pub latency_microseconds: Option<i64>,
        /// Bandwidth. Without it the link meets no tier that requires one.
        #[schemars(extend("minimum" = 0, "format" = null))]
        pub bandwidth_megabits: Option<i64>,
    }

    /// What became of it.
    pub struct FederationTopologyStatus {
        /// The generation that the conditions are about.
        pub observed_generation: Option<i64>,
        /// `Accepted`.
        pub conditions: Vec<Condition>,
    }
}

/// All FederationTopology objects, and the topology that they make together.
#[derive(Debug, Clone, Default)]
pub struct FederationTopologies {
    objects: BTreeMap<String, FederationTopology>,
}

/// The condition [`ACCEPTED`] that an object should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedCondition {
    /// Its status: whether everything in the object counts.
    pub accepted: bool,
    /// Token.
    pub reason: &'static str,
    /// Sentence.
    pub message: String,
}

impl FederationTopologies {
    /// An object was created or changed.
    pub fn set(&mut self, object: FederationTopology) {
        self.objects.insert(object.metadata.name.clone().unwrap_or_default(), object);
    }

    /// An object is gone.
    pub fn remove(&mut self, name: &str) {
        self.objects.remove(name);
    }

    /// These are all there are.
    pub fn replace(&mut self, all: impl IntoIterator<Item = FederationTopology>) {
        self.objects.clear();
        all.into_iter().for_each(|object| self.set(object));
    }

    /// The objects, by name.
    pub fn objects(&self) -> impl Iterator<Item = (&str, &FederationTopology)> {
        self.objects.iter().map(|(name, object)| (name.as_str(), object))
    }

    /// The topology of all objects, without their invalid parts.
    #[must_use]
    pub fn merge_topology(&self) -> split::FederationTopology {
        self.merge_with_faults().0
    }

    /// The condition of each object, by name, for the existing clusters and the groups that the links make of them.
    #[must_use]
    pub fn accepted_conditions(
        &self,
        clusters: &BTreeSet<&str>,
        near: &[LinkedGroups],
    ) -> BTreeMap<String, AcceptedCondition> {
        let (_, wrong) = self.merge_with_faults();
        let said = |(name, object): (&String, &FederationTopology)| {
            let wrong = wrong.get(name.as_str()).map(Vec::as_slice).unwrap_or_default();
            (name.clone(), accepted_condition(object, wrong, clusters, near))
        };
        self.objects.iter().map(said).collect()
    }

    /// The topology of all objects, and the faults of each object by name.
    fn merge_with_faults(&self) -> (split::FederationTopology, BTreeMap<&str, Vec<String>>) {
        let mut all = split::FederationTopology::default();
        let mut wrong: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (name, object) in &self.objects {
            let mut faults = Vec::new();
            for (at, tier) in object.spec.tiers.iter().enumerate() {
                match read_tier(tier, &all.tiers) {
                    Ok(tier) => all.tiers.push(tier),
                    Err(why) => faults.push(format!("tiers[{at}]: {why}")),
                }
            }
            for (at, link) in object.spec.links.iter().enumerate() {
                match if at < MOST_LINKS { read_link(link) } else { Err(format!("more than {MOST_LINKS} links")) } {
                    Ok(link) => all.links.push(link),
                    Err(why) => faults.push(format!("links[{at}]: {why}")),
                }
            }
            wrong.insert(name, faults);
        }
        (all, wrong)
    }
}

/// A number that is not below zero.
fn read_amount(field: &str, number: Option<i64>) -> Result<Option<u64>, String> {
    number.map(|number| u64::try_from(number).map_err(|_| format!("{field} {number} is below 0"))).transpose()
}

fn read_tier(tier: &Tier, before: &[split::LinkTier]) -> Result<split::LinkTier, String> {
    let name = tier.name.trim();
    if name.is_empty() {
        return Err("a tier needs a name".to_owned());
    }
    if TAKEN.contains(&name) {
        return Err(format!("{name:?} is a level of its own"));
    }
    if before.iter().any(|known| known.name == name) {
        return Err(format!("{name:?} is the name of an earlier tier"));
    }
    if before.len() >= MOST_TIERS {
        return Err(format!("more than {MOST_TIERS} tiers"));
    }
    let number = read_amount("tier", tier.tier)?.map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    let highest = before.iter().filter_map(|known| known.tier).max();
    if let (Some(number), Some(highest)) = (number, highest)
        && number <= highest
    {
        return Err(format!("tier {number} is not above the {highest} of an earlier, nearer tier"));
    }
    Ok(split::LinkTier {
        name: name.to_owned(),
        tier: number,
        most_latency: read_amount("maxLatencyMicroseconds", tier.max_latency_microseconds)?,
        least_bandwidth: read_amount("minBandwidthMegabits", tier.min_bandwidth_megabits)?,
    })
}

fn read_link(link: &Link) -> Result<split::Link, String> {
    if link.from.len().max(link.to.len()) > MOST_CLUSTERS {
        return Err(format!("more than {MOST_CLUSTERS} clusters at one end"));
    }
    let names = |of: &[String]| -> Vec<ClusterName> {
        of.iter().filter(|name| !name.is_empty()).map(|name| name.as_str().into()).collect()
    };
    let from = names(&link.from);
    let to = if link.to.is_empty() { from.clone() } else { names(&link.to) };
    let ends: BTreeSet<&ClusterName> = from.iter().chain(&to).collect();
    match ends.first() {
        _ if from.is_empty() || to.is_empty() => return Err("no cluster at one end".to_owned()),
        Some(only) if ends.len() == 1 => return Err(format!("a link from {only} to itself")),
        _ => {}
    }
    let latency = read_amount("latencyMicroseconds", link.latency_microseconds)?.unwrap_or(u64::MAX);
    let bandwidth = read_amount("bandwidthMegabits", link.bandwidth_megabits)?.unwrap_or(0);
    Ok(split::Link { from, to, latency, bandwidth })
}

fn accepted_condition(
    object: &FederationTopology,
    wrong: &[String],
    clusters: &BTreeSet<&str>,
    near: &[LinkedGroups],
) -> AcceptedCondition {
    let named = object.spec.links.iter().flat_map(|link| link.from.iter().chain(&link.to));
    let unknown: BTreeSet<&str> = named.map(String::as_str).filter(|name| !clusters.contains(name)).collect();
    let mut parts = wrong.to_vec();
    if !unknown.is_empty() {
        let names: Vec<&str> = unknown.iter().copied().collect();
        parts.push(format!("there is no cluster {}", names.join(", ")));
    }
    if parts.is_empty() {
        return AcceptedCondition {
            accepted: true,
            reason: ACCEPTED,
            message: join_bounded(&describe_groups(object, near)),
        };
    }
    let reason = if wrong.is_empty() { "UnknownCluster" } else { "Malformed" };
    let message = format!("{}; the rest counts", join_bounded(&parts));
    AcceptedCondition { accepted: false, reason, message }
}

/// `campus: m1 m2, m3 m4`, for each of the object's tiers.
fn describe_groups(object: &FederationTopology, near: &[LinkedGroups]) -> Vec<String> {
    let own = |near: &&LinkedGroups| object.spec.tiers.iter().any(|tier| tier.name.trim() == near.name);
    let group = |group: &Vec<ClusterName>| group.iter().map(ClusterName::as_str).collect::<Vec<_>>().join(" ");
    let tier = |near: &LinkedGroups| match near.groups.as_slice() {
        [] => format!("{}: no clusters are that close", near.name),
        groups => format!("{}: {}", near.name, groups.iter().map(group).collect::<Vec<_>>().join(", ")),
    };
    let tiers: Vec<String> = near.iter().filter(own).map(tier).collect();
    if tiers.is_empty() { vec!["its links count".to_owned()] } else { tiers }
}

/// Joins the parts that fit into a message.
fn join_bounded(parts: &[String]) -> String {
    let mut text = String::new();
    for (at, part) in parts.iter().enumerate() {
        if !text.is_empty() {
            text.push_str("; ");
        }
        if text.len() + part.len() > MOST_MESSAGE_LENGTH {
            let end = (0..=MOST_MESSAGE_LENGTH.saturating_sub(text.len()))
                .rev()
                .find(|end| part.is_char_boundary(*end))
                .unwrap_or(0);
            let _ = write!(text, "{}... ({} more)", &part[..end.min(part.len())], parts.len() - at);
            break;
        }
        text.push_str(part);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn links(objects: &[(&str, Value)]) -> FederationTopologies {
        let mut links = FederationTopologies::default();
        links.replace(
            objects
                .iter()
                .map(|(name, spec)| serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()),
        );
        links
    }

    fn say(links: &FederationTopologies, clusters: &[&str]) -> BTreeMap<String, AcceptedCondition> {
        let names: Vec<ClusterName> = clusters.iter().map(|name| ClusterName::from(*name)).collect();
        let near = links.merge_topology().group_by_links(&names.iter().collect::<Vec<_>>());
        links.accepted_conditions(&clusters.iter().copied().collect(), &near)
    }

    #[test]
    fn declared_links_make_groups_and_the_object_says_which() {
        let links = links(&[(
            "campus",
            json!({
                "tiers": [
                    {"name": "campus", "tier": 10, "maxLatencyMicroseconds": 500, "minBandwidthMegabits": 100_000},
                    {"name": "metro", "tier": 20, "maxLatencyMicroseconds": 5000},
                ],
                "links": [
                    {"from": ["a", "b"], "latencyMicroseconds": 200, "bandwidthMegabits": 400_000},
                    {"from": ["a", "b"], "to": ["c"], "latencyMicroseconds": 3000},
                    {"from": ["d"], "to": ["a"]},
                ],
            }),
        )]);
        let said = &say(&links, &["a", "b", "c", "d"])["campus"];
        assert_eq!((said.accepted, said.message.as_str()), (true, "campus: a b; metro: a b c"));
        assert_eq!(links.merge_topology().tiers[1].tier, Some(20));
    }

    #[test]
    fn what_is_wrong_is_left_out_alone_and_told() {
        let links = links(&[
            (
                "x",
                json!({
                    "tiers": [
                        {"name": "metro", "tier": 5}, {"name": "metro"}, {"name": "region"}, {"name": ""},
                        {"name": "wide", "tier": 5}, {"name": "odd", "maxLatencyMicroseconds": -1},
                    ],
                    "links": [
                        {"from": ["a"], "to": ["a"]}, {"from": []}, {"from": ["a"], "to": ["b"], "latencyMicroseconds": -3},
                        {"from": ["a", "b"], "bandwidthMegabits": 1}, {"from": ["b"], "to": ["gone"]},
                    ],
                }),
            ),
            ("y", json!({"tiers": [{"name": "metro"}]})),
            ("z", json!({})),
        ]);
        let all = links.merge_topology();
        assert_eq!((all.tiers.len(), all.links.len()), (1, 2));
        let said = say(&links, &["a", "b"]);
        assert_eq!((said["x"].accepted, said["x"].reason), (false, "Malformed"));
        assert_eq!(
            said["x"].message,
            "tiers[1]: \"metro\" is the name of an earlier tier; tiers[2]: \"region\" is a level of its own; \
             tiers[3]: a tier needs a name; tiers[4]: tier 5 is not above the 5 of an earlier, nearer tier; \
             tiers[5]: maxLatencyMicroseconds -1 is below 0; links[0]: a link from a to itself; \
             links[1]: no cluster at one end; links[2]: latencyMicroseconds -3 is below 0; \
             there is no cluster gone; the rest counts"
        );
        assert!(said["y"].message.contains("earlier tier") && said["z"].accepted);
    }

    #[test]
    fn a_cluster_that_is_not_there_counts_from_when_it_is() {
        let links = links(&[("x", json!({"tiers": [{"name": "metro"}], "links": [{"from": ["a", "b"]}]}))]);
        let before = &say(&links, &["a"])["x"];
        assert_eq!((before.accepted, before.reason), (false, "UnknownCluster"));
        assert_eq!(before.message, "there is no cluster b; the rest counts");
        assert_eq!(say(&links, &["a", "b"])["x"].message, "metro: a b");
    }

    #[test]
    fn a_message_is_bounded_whatever_the_object_says() {
        let many: Vec<String> = (0..1000).map(|at| format!("größer-{at}")).collect();
        let links = links(&[("x", json!({"links": [{"from": many}, {"from": ["ä"], "to": ["ä"]}]}))]);
        let said = &say(&links, &[])["x"];
        assert!(
            said.message.len() < MOST_MESSAGE_LENGTH + 100 && said.message.contains("to itself"),
            "{}",
            said.message
        );
    }
}
