//! Builds Volcano's HyperNodes of domains that were discovered, to be applied in their member.
//!
//! Rule: as Volcano's own discoverers write them (`pkg/controllers/hypernode/discovery`), with a source of our own in
//! their label: its controller takes away only what is of the same source and no longer found
//! (`hypernode_controller.go`, `reconcileTopology`). A domain that has others in it is those others.

use caldera_core::{
    gang::Requirement,
    inventory::{HyperNode as Domain, HyperNodeMember},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use crate::{
    names::volcano::NETWORK_TOPOLOGY_SOURCE,
    volcano::topology::{ExactMatch, HyperNode, HyperNodeSpec, MemberSelector, MemberSpec, MemberType, RegexMatch},
};

/// The source that HyperNodes of ours name.
pub const SOURCE: &str = "caldera";

/// The HyperNode of a domain.
#[must_use]
pub fn build_hyper_node(domain: &Domain) -> HyperNode {
    let is_above = domain.members.iter().any(|member| matches!(member, HyperNodeMember::HyperNode(_)));
    let shown = domain.members.iter().filter(|member| !is_above || matches!(member, HyperNodeMember::HyperNode(_)));
    let spec = HyperNodeSpec {
        members: shown.map(build_member).collect(),
        tier: domain.tier.into(),
        tier_name: (!domain.tier_name.is_empty()).then(|| domain.tier_name.clone()),
    };
    let mut hyper_node = HyperNode::new(&domain.name, spec);
    hyper_node.metadata.labels = Some([(NETWORK_TOPOLOGY_SOURCE.to_owned(), SOURCE.to_owned())].into());
    hyper_node
}

fn build_member(member: &HyperNodeMember) -> MemberSpec {
    let exact = |name: &String| MemberSelector {
        exact_match: Some(ExactMatch { name: name.clone() }),
        ..MemberSelector::default()
    };
    let (type_, selector) = match member {
        HyperNodeMember::Node(name) => (MemberType::Node, exact(name)),
        HyperNodeMember::HyperNode(name) => (MemberType::HyperNode, exact(name)),
        HyperNodeMember::Pattern(pattern) => {
            let regex_match = Some(RegexMatch { pattern: pattern.clone() });
            (MemberType::Node, MemberSelector { regex_match, ..MemberSelector::default() })
        }
        HyperNodeMember::Labels(all) => {
            let match_expressions = Some(all.iter().map(build_expression).collect());
            let label_match = Some(LabelSelector { match_expressions, match_labels: None });
            (MemberType::Node, MemberSelector { label_match, ..MemberSelector::default() })
        }
    };
    MemberSpec { selector: Some(selector), type_ }
}

fn build_expression(one: &Requirement) -> LabelSelectorRequirement {
    let values = (!one.values.is_empty()).then(|| one.values.clone());
    LabelSelectorRequirement { key: one.key.clone(), operator: one.operator.as_str().to_owned(), values }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use caldera_core::topology_discovery::{TopologyLabels, list_label_domains};
    use serde_json::{Value, json};

    use super::*;
    use crate::inventory::read_hyper_node;

    #[test]
    fn a_leaf_selects_its_nodes_and_what_is_above_names_its_leaves() {
        let labels: TopologyLabels = "zone,rack".parse().unwrap();
        let node = |rack: &str| -> BTreeMap<String, String> {
            [("zone", "a"), ("rack", rack)].map(|(key, value)| (key.to_owned(), value.to_owned())).into()
        };
        let domains = list_label_domains(&labels, &[node("1"), node("2")]).unwrap();
        let built: Vec<Value> =
            domains.iter().map(|domain| serde_json::to_value(build_hyper_node(domain)).unwrap()).collect();
        let expressions = json!([
            {"key": "rack", "operator": "In", "values": ["1"]}, {"key": "zone", "operator": "In", "values": ["a"]},
        ]);
        let leaf = json!({
            "apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode",
            "metadata": {"name": "rack-a-1", "labels": {"volcano.sh/network-topology-source": "caldera"}},
            "spec": {"tier": 1, "tierName": "rack", "members": [
                {"type": "Node", "selector": {"labelMatch": {"matchExpressions": expressions}}},
            ]},
        });
        assert_eq!(built[0], leaf);
        let inner = |name| json!({"type": "HyperNode", "selector": {"exactMatch": {"name": name}}});
        assert_eq!(built[2]["spec"]["members"], json!([inner("rack-a-1"), inner("rack-a-2")]));
    }

    #[test]
    fn what_is_read_of_a_hyper_node_is_the_domain_that_it_was_built_of() {
        let members = vec![HyperNodeMember::Node("n1".into()), HyperNodeMember::Pattern("^n[23]$".into())];
        let domain = Domain { name: "d".into(), tier: 3, tier_name: String::new(), members };
        let built = serde_json::to_value(build_hyper_node(&domain)).unwrap();
        assert_eq!(read_hyper_node(&built), Some(domain));
    }
}
