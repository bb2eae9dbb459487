//! Encodes and decodes network domains (Volcano's HyperNodes).

use caldera_core::{
    gang::{Operator, Requirement},
    inventory::{HyperNode, HyperNodeMember},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;

use super::{Malformed, NetworkDomain, ranges};

pub(super) fn encode_domain(hyper_node: &HyperNode) -> NetworkDomain {
    let mut domain = NetworkDomain {
        name: hyper_node.name.clone(),
        tier: hyper_node.tier,
        tier_name: hyper_node.tier_name.clone(),
        ..NetworkDomain::default()
    };
    let requirement = |one: &Requirement| LabelSelectorRequirement {
        key: one.key.clone(),
        operator: one.operator.as_str().to_owned(),
        values: Some(one.values.clone()),
    };
    let mut names = Vec::new();
    for member in &hyper_node.members {
        match member {
            HyperNodeMember::Node(name) => names.push(name.as_str()),
            HyperNodeMember::Pattern(pattern) => domain.patterns.push(pattern.clone()),
            HyperNodeMember::Labels(all) => domain.labels.push(all.iter().map(requirement).collect()),
            HyperNodeMember::HyperNode(name) => domain.hyper_nodes.push(name.clone()),
        }
    }
    names.sort_unstable();
    names.dedup();
    domain.nodes = ranges::fold_names(&names);
    domain
}

pub(super) fn decode_domain(domain: &NetworkDomain) -> Result<HyperNode, Malformed> {
    let requirement = |one: &LabelSelectorRequirement| {
        let operator = Operator::parse(&one.operator);
        let operator = operator.ok_or_else(|| Malformed::Operator(one.operator.clone()))?;
        Ok(Requirement { key: one.key.clone(), operator, values: one.values.clone().unwrap_or_default() })
    };
    let labels = |all: &Vec<LabelSelectorRequirement>| {
        all.iter().map(requirement).collect::<Result<_, _>>().map(HyperNodeMember::Labels)
    };
    let mut members: Vec<HyperNodeMember> =
        ranges::unfold_names(&domain.nodes)?.into_iter().map(HyperNodeMember::Node).collect();
    members.extend(domain.patterns.iter().cloned().map(HyperNodeMember::Pattern));
    members.extend(domain.labels.iter().map(labels).collect::<Result<Vec<_>, _>>()?);
    members.extend(domain.hyper_nodes.iter().cloned().map(HyperNodeMember::HyperNode));
    let (name, tier, tier_name) = (domain.name.clone(), domain.tier, domain.tier_name.clone());
    Ok(HyperNode { name, tier, tier_name, members })
}
