//! Node groups of a cluster that its own cluster-autoscaler lets grow: nodes that are not there yet and may come.
//!
//! Rule: cluster-autoscaler's node groups (`cloudprovider/cloud_provider.go`, `NodeGroup`): each has a greatest size,
//! and all its nodes are as large as each other and have the same labels and taints. So many nodes may still come as
//! the group's greatest size is larger than the number of its nodes that are there, which are told by their labels:
//! what an admin writes down once stays true while the group grows and shrinks. A node takes its time to come; where
//! that is not said, as long as cluster-autoscaler waits for one (`--max-node-provision-time`).
//!
//! Annotation `caldera.dev/autoscaled-groups` of a Cluster: a JSON list of groups, each `{"name": "gpu", "nodes":
//! {"pool": "gpu"}, "max": 8, "resources": {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "8"}, "labels": {"zone":
//! "a"}, "taints": [{"key": "gpu", "effect": "NoSchedule"}], "delay": "5m"}`. Labels, taints and delay may be left out.
//! One fault and none of the groups counts.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

use serde::Deserialize;

use crate::{
    gang::Taint,
    quantity::Quantity,
    resources::{ResourceName, Resources},
    run_limit::RunTime,
    status::duration::parse_whole_seconds,
    text::count_noun,
};

/// So many groups may a cluster have.
pub const MOST_GROUPS: usize = 16;
/// So many nodes may a group have: as many as Kubernetes supports in a cluster.
pub const MOST_NODES: u32 = 5000;
/// Bytes of the annotation.
const MOST_ANNOTATION_BYTES: usize = 8192;
/// Characters of a group's name.
const LONGEST_NAME: usize = 63;
/// How long a node takes to come where its group does not say it, in seconds.
pub const DEFAULT_DELAY: i64 = 15 * 60;
/// What a node that does not say it has of `pods`: the kubelet's default.
const DEFAULT_PODS: i64 = 110;
/// What a taint does to pods that do not tolerate it.
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// The groups of a cluster, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Autoscaling(Vec<AutoscaledGroup>);

/// Nodes that are alike, of which there may be more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AutoscaledGroup {
    /// For people; unique in the cluster.
    pub name: String,
    /// The labels that tell its nodes from all others; a new node has them too.
    pub nodes: BTreeMap<String, String>,
    /// The most nodes that there may be, with those that are there.
    pub max: u32,
    /// What a new node has for pods.
    pub resources: Resources,
    /// More labels of a new node.
    pub labels: BTreeMap<String, String>,
    /// Taints of a new node.
    pub taints: Vec<Taint>,
    /// Seconds that a new node takes to come.
    pub delay: i64,
}

/// Why a text does not say which groups may grow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseAutoscalingError {
    /// Not such a list.
    #[error(
        "it is no JSON list of groups with name, nodes, max and resources, and with labels, taints and delay at most: \
         {0}"
    )]
    Malformed(String),
    /// A name that is none, or that two have.
    #[error("{0:?} is no name of one group: it has 1 to {LONGEST_NAME} characters, and no other group has it")]
    Name(String),
    /// Nobody could tell which nodes are there.
    #[error("group {0} does not say by which labels its nodes are known, or another group says the same")]
    Nodes(String),
    /// Not a number of nodes.
    #[error("group {0} has a max of {1}: it is 1 to {MOST_NODES}")]
    Max(String, u64),
    /// Not what a node has.
    #[error("group {0} has no resources of a node, or one that is no amount above zero: {1:?}")]
    Resources(String, String),
    /// Not a taint.
    #[error("group {0} has a taint without a key, or with an effect that there is not: {1:?}")]
    Taint(String, String),
    /// Not a duration.
    #[error("{0:?} is no delay: it is a second at least, as 90s, 5m or 1h")]
    Delay(String),
    /// Too much.
    #[error("more than {MOST_GROUPS} groups or {MOST_ANNOTATION_BYTES} bytes")]
    TooLong,
}

/// As it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupText {
    name: String,
    nodes: BTreeMap<String, String>,
    max: u64,
    resources: BTreeMap<String, String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    taints: Vec<TaintText>,
    delay: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaintText {
    key: String,
    #[serde(default)]
    value: String,
    effect: String,
}

impl Autoscaling {
    /// The groups, by name.
    pub fn iter(&self) -> impl Iterator<Item = &AutoscaledGroup> {
        self.0.iter()
    }

    /// Whether no group may grow.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl AutoscaledGroup {
    /// Whether a node with such labels is one of the group's.
    #[must_use]
    pub fn has_node<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.nodes.iter().all(|(key, value)| label(key) == Some(value.as_str()))
    }

    /// All labels of a new node that are known before it comes.
    #[must_use]
    pub fn labels_of_new_node(&self) -> BTreeMap<String, String> {
        self.labels.iter().chain(&self.nodes).map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

impl From<AutoscaledGroup> for Autoscaling {
    fn from(group: AutoscaledGroup) -> Self {
        Self(vec![group])
    }
}

/// For people.
impl fmt::Display for AutoscaledGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node: Vec<String> = self.resources.iter().map(|(name, amount)| format!("{name} {amount}")).collect();
        write!(f, "{}: at most {} of {}", self.name, count_noun(self.max, "node"), node.join(", "))?;
        write!(f, "; a node takes about {} to come", RunTime(self.delay))
    }
}

impl FromStr for Autoscaling {
    type Err = ParseAutoscalingError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > MOST_ANNOTATION_BYTES {
            return Err(ParseAutoscalingError::TooLong);
        }
        let groups: Vec<GroupText> =
            serde_json::from_str(text).map_err(|error| ParseAutoscalingError::Malformed(error.to_string()))?;
        if groups.len() > MOST_GROUPS {
            return Err(ParseAutoscalingError::TooLong);
        }
        let mut groups: Vec<AutoscaledGroup> =
            groups.into_iter().map(AutoscaledGroup::try_from).collect::<Result<_, _>>()?;
        groups.sort_by(|one, other| one.name.cmp(&other.name));
        let (mut names, mut nodes) = (BTreeSet::new(), BTreeSet::new());
        for group in &groups {
            if !names.insert(&group.name) {
                return Err(ParseAutoscalingError::Name(group.name.clone()));
            }
            if !nodes.insert(&group.nodes) {
                return Err(ParseAutoscalingError::Nodes(group.name.clone()));
            }
        }
        Ok(Self(groups))
    }
}

impl TryFrom<GroupText> for AutoscaledGroup {
    type Error = ParseAutoscalingError;

    fn try_from(written: GroupText) -> Result<Self, Self::Error> {
        let GroupText { name, nodes, max, resources, labels, taints, delay } = written;
        if name.trim().is_empty() || name.chars().count() > LONGEST_NAME {
            return Err(ParseAutoscalingError::Name(name));
        }
        if nodes.is_empty() {
            return Err(ParseAutoscalingError::Nodes(name));
        }
        let most = u32::try_from(max).ok().filter(|max| (1..=MOST_NODES).contains(max));
        let Some(most) = most else { return Err(ParseAutoscalingError::Max(name, max)) };
        let delay = match delay {
            None => DEFAULT_DELAY,
            Some(delay) => parse_whole_seconds(&delay).ok_or(ParseAutoscalingError::Delay(delay))?,
        };
        let resources = read_resources(&name, &resources)?;
        let taints = taints.into_iter().map(|taint| read_taint(&name, taint)).collect::<Result<_, _>>()?;
        Ok(Self { name, nodes, max: most, resources, labels, taints, delay })
    }
}

fn read_resources(group: &str, written: &BTreeMap<String, String>) -> Result<Resources, ParseAutoscalingError> {
    let fault = |what: &str| ParseAutoscalingError::Resources(group.to_owned(), what.to_owned());
    if written.is_empty() {
        return Err(fault(""));
    }
    let mut resources = Resources::new();
    resources.set(ResourceName::from("pods"), Quantity::from_units(DEFAULT_PODS));
    for (name, amount) in written {
        let amount: Option<Quantity> = amount.parse().ok().filter(|amount: &Quantity| amount.as_nano() > 0);
        resources.set(name.as_str(), amount.ok_or_else(|| fault(name))?);
    }
    Ok(resources)
}

fn read_taint(group: &str, written: TaintText) -> Result<Taint, ParseAutoscalingError> {
    let TaintText { key, value, effect } = written;
    if key.is_empty() || !EFFECTS.contains(&effect.as_str()) {
        return Err(ParseAutoscalingError::Taint(group.to_owned(), effect));
    }
    Ok(Taint { key, value, effect })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: &str = r#""name":"gpu","nodes":{"pool":"gpu"},"max":8,"resources":{"cpu":"16","nvidia.com/gpu":"8"}"#;

    #[test]
    fn a_group_says_how_large_it_may_be_and_what_a_new_node_is_like() {
        let taint = r#"{"key":"gpu","effect":"NoSchedule"}"#;
        let text = format!(
            r#"[{{{GPU},"labels":{{"zone":"a","pool":"cpu"}},"taints":[{taint}],"delay":"5m"}},
                {{"name":"cpu","nodes":{{"pool":"cpu"}},"max":1,"resources":{{"cpu":"4","pods":"30"}}}}]"#
        );
        let all: Autoscaling = text.parse().unwrap();
        let groups: Vec<&AutoscaledGroup> = all.iter().collect();
        assert_eq!(groups.iter().map(|group| group.name.as_str()).collect::<Vec<_>>(), ["cpu", "gpu"], "by name");
        assert_eq!((groups[0].max, groups[0].delay), (1, DEFAULT_DELAY));
        assert_eq!(groups[0].resources.get("pods"), Quantity::from_units(30));
        let gpu = groups[1];
        assert_eq!((gpu.max, gpu.delay), (8, 300));
        assert_eq!(gpu.resources.get("pods"), Quantity::from_units(110), "what a kubelet takes");
        let labels: Vec<(String, String)> = gpu.labels_of_new_node().into_iter().collect();
        assert_eq!(labels, [("pool".into(), "gpu".into()), ("zone".into(), "a".into())], "it is one of its group");
        let of = |pool: Option<&'static str>| gpu.has_node(|key| pool.filter(|_| key == "pool"));
        assert!(of(Some("gpu")) && !of(Some("cpu")) && !of(None));
        let said = "gpu: at most 8 nodes of cpu 16, nvidia.com/gpu 8, pods 110; a node takes about 5m to come";
        assert_eq!(gpu.to_string(), said);
        assert!(all != Autoscaling::default() && "[]".parse() == Ok(Autoscaling::default()));
    }

    #[test]
    fn what_makes_no_sense_of_groups_is_refused_in_words() {
        let with = |more: &str| format!("[{{{GPU}{more}}}]");
        let other = |from: &str, to: &str| format!("[{{{}}}]", GPU.replace(from, to));
        let many: Vec<String> =
            (0..=MOST_GROUPS).map(|at| format!("{{{}}}", GPU.replace("gpu", &at.to_string()))).collect();
        for (text, said) in [
            (String::new(), "no JSON list"),
            ("{}".to_owned(), "no JSON list"),
            (with(r#","min":1"#), "unknown field `min`"),
            (other(r#""max":8,"#, ""), "missing field `max`"),
            (other(r#""max":8"#, r#""max":-1"#), "no JSON list"),
            (other(r#""max":8"#, r#""max":0"#), "group gpu has a max of 0: it is 1 to 5000"),
            (other(r#""max":8"#, r#""max":5001"#), "max of 5001"),
            (other(r#""name":"gpu""#, r#""name":" ""#), "\" \" is no name"),
            (other(r#""name":"gpu""#, &format!(r#""name":"{}""#, "x".repeat(64))), "is no name"),
            (other(r#"{"pool":"gpu"}"#, "{}"), "group gpu does not say by which labels"),
            (format!("[{{{GPU}}},{{{GPU}}}]"), "\"gpu\" is no name of one group"),
            (
                format!("[{{{GPU}}},{{{}}}]", GPU.replace(r#""name":"gpu""#, r#""name":"x""#)),
                "another group says the same",
            ),
            (other(r#"{"cpu":"16","nvidia.com/gpu":"8"}"#, "{}"), "group gpu has no resources"),
            (other(r#""16""#, r#""many""#), "no amount above zero: \"cpu\""),
            (other(r#""16""#, r#""-1""#), "no amount above zero: \"cpu\""),
            (with(r#","taints":[{"key":"a","effect":"Never"}]"#), "an effect that there is not: \"Never\""),
            (with(r#","taints":[{"key":"","effect":"NoSchedule"}]"#), "without a key"),
            (with(r#","delay":"soon""#), "\"soon\" is no delay"),
            (with(r#","delay":"0s""#), "\"0s\" is no delay"),
            (format!("[{}]", many.join(",")), "more than 16 groups"),
            (" ".repeat(MOST_ANNOTATION_BYTES + 1), "more than"),
        ] {
            let error = text.parse::<Autoscaling>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
