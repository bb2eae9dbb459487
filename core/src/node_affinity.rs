//! Whether a pod may run on a node: selector, required node affinity, and taints against tolerations.
//!
//! Rule: Kubernetes' scheduler (`nodeaffinity.GetRequiredNodeAffinity`, `v1helper.FindMatchingUntoleratedTaint`):
//! every label of the selector, and at least one affinity term (an empty term matches nothing); `NotIn` and
//! `DoesNotExist` match a label that is absent; `Gt` and `Lt` compare integers. `PreferNoSchedule` never forbids.

use std::collections::BTreeMap;

use crate::gang::{NodeClaim, NodeTerm, Operator, Requirement, Taint, Toleration};

/// The label that holds a node's name.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// The only field of a node that an affinity can name.
pub const NODE_NAME_FIELD: &str = "metadata.name";

impl NodeClaim {
    /// True if a node with this name, these labels and taints satisfies the claim.
    #[must_use]
    pub fn admits(&self, name: &str, labels: &BTreeMap<String, String>, taints: &[Taint]) -> bool {
        self.admits_by(name, |key| labels.get(key).map(String::as_str), taints)
    }

    /// The same of a node whose labels can be asked for one by one.
    pub fn admits_by<'l>(&self, name: &str, label: impl Fn(&str) -> Option<&'l str>, taints: &[Taint]) -> bool {
        self.selector.iter().all(|(key, value)| label(key) == Some(value))
            && (self.affinity.is_empty() || self.affinity.iter().any(|term| term.matches(name, &label)))
            && taints.iter().filter(|taint| taint.forbids()).all(|taint| taint.tolerated_by(&self.tolerations))
    }

    /// How much it says of nodes: what one node may have to be asked.
    #[must_use]
    pub fn count_rules(&self) -> usize {
        let terms = self.affinity.iter().chain(self.preferred.iter().map(|preferred| &preferred.term));
        let terms = terms.map(|term| 1 + term.labels.len() + term.fields.len() + term.count_values()).sum::<usize>();
        let containers = self.numa.as_ref().map_or(0, |numa| numa.cpus.len());
        self.selector.len() + terms + self.tolerations.len() + self.cards.len() + containers
    }

    /// The weights of all preferred terms that a node does not match.
    pub(crate) fn sum_unmet_weights<'l>(&self, name: &str, label: impl Fn(&str) -> Option<&'l str>) -> u32 {
        let unmet = self.preferred.iter().filter(|preferred| !preferred.term.matches(name, &label));
        unmet.fold(0, |sum: u32, preferred| sum.saturating_add(preferred.weight))
    }

    /// Whether nodes that share these labels are alike to it as far as it prefers some.
    pub(crate) fn prefers_by_labels_of(&self, shared: impl Fn(&str) -> bool) -> bool {
        let by_name = self.preferred.iter().any(|preferred| !preferred.term.fields.is_empty());
        !by_name && self.preferred_label_keys().all(shared)
    }

    /// The labels of nodes that it prefers.
    pub fn preferred_label_keys(&self) -> impl Iterator<Item = &str> {
        self.preferred.iter().flat_map(|preferred| &preferred.term.labels).map(|label| label.key.as_str())
    }

    /// The labels that it selects on.
    pub fn selected_label_keys(&self) -> impl Iterator<Item = &str> {
        let terms = self.affinity.iter().flat_map(|term| &term.labels).map(|label| label.key.as_str());
        self.selector.keys().map(String::as_str).chain(terms)
    }

    /// True if the claim tells nodes apart by their names, so that equal nodes are not interchangeable for it.
    #[must_use]
    pub fn selects_by_node_name(&self) -> bool {
        self.affinity.iter().any(|term| !term.fields.is_empty())
            || self.selected_label_keys().any(|label| label == HOSTNAME)
    }

    /// The same on nodes that satisfy one of these alternatives, too; as it is where there are none.
    #[must_use]
    pub fn restrict_to(&self, nodes: &[Vec<Requirement>]) -> Self {
        if nodes.is_empty() {
            return self.clone();
        }
        let with = |term: &NodeTerm| -> Vec<NodeTerm> {
            let labels = |wanted: &Vec<Requirement>| term.labels.iter().chain(wanted).cloned().collect();
            nodes.iter().map(|wanted| NodeTerm { labels: labels(wanted), fields: term.fields.clone() }).collect()
        };
        let nothing = NodeTerm::default();
        let affinity = match self.affinity.as_slice() {
            [] => with(&nothing),
            // One that is empty matches no node, and with more it would.
            terms => terms
                .iter()
                .flat_map(|term| if *term == nothing { vec![nothing.clone()] } else { with(term) })
                .collect(),
        };
        Self { affinity, ..self.clone() }
    }
}

impl NodeTerm {
    /// How many values its requirements list.
    #[must_use]
    pub fn count_values(&self) -> usize {
        self.labels.iter().chain(&self.fields).map(|requirement| requirement.values.len()).sum()
    }

    fn matches<'l>(&self, name: &str, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        if self.labels.is_empty() && self.fields.is_empty() {
            return false;
        }
        self.labels.iter().all(|requirement| requirement.matches(label(&requirement.key)))
            && self.fields.iter().all(|field| field.key == NODE_NAME_FIELD && field.matches(Some(name)))
    }
}

impl Requirement {
    /// True if a label with this value (`None`: absent) satisfies the requirement.
    #[must_use]
    pub fn matches(&self, value: Option<&str>) -> bool {
        let listed = || value.is_some_and(|value| self.values.iter().any(|wanted| wanted == value));
        match self.operator {
            Operator::In => listed(),
            Operator::NotIn => !listed(),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => self.compare_integers(value, |value, wanted| value > wanted),
            Operator::Lt => self.compare_integers(value, |value, wanted| value < wanted),
        }
    }

    fn compare_integers(&self, value: Option<&str>, holds: fn(i64, i64) -> bool) -> bool {
        let (Some(value), [wanted]) = (value, self.values.as_slice()) else { return false };
        matches!((value.parse(), wanted.parse()), (Ok(value), Ok(wanted)) if holds(value, wanted))
    }
}

impl Taint {
    /// True for the effects that keep a new pod (or binding) away.
    #[must_use]
    pub fn forbids(&self) -> bool {
        self.effect == "NoSchedule" || self.effect == "NoExecute"
    }

    /// True for the effect by which new pods go elsewhere if they can.
    #[must_use]
    pub fn discourages(&self) -> bool {
        self.effect == "PreferNoSchedule"
    }

    /// True if one of the tolerations tolerates this taint.
    #[must_use]
    pub fn tolerated_by(&self, tolerations: &[Toleration]) -> bool {
        tolerations.iter().any(|toleration| toleration.tolerates_taint(self))
    }
}

impl Toleration {
    fn tolerates_taint(&self, taint: &Taint) -> bool {
        (self.effect.is_empty() || self.effect == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
            && (self.exists || self.value == taint.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_within_nodes_admits_what_it_admitted_of_them() {
        let one = |key: &str, value: &str| Requirement {
            key: key.into(),
            operator: Operator::In,
            values: vec![value.into()],
        };
        let rack = [vec![one("rack", "1")], vec![one("rack", "2")]];
        let term = |labels| NodeTerm { labels, fields: vec![] };
        let admits = |affinity: Vec<NodeTerm>, pairs: &[(&str, &str)]| {
            NodeClaim { affinity, ..NodeClaim::default() }.restrict_to(&rack).admits("n", &labels(pairs), &[])
        };
        assert!(admits(vec![], &[("rack", "2")]) && !admits(vec![], &[("rack", "3")]));
        let gpu = vec![term(vec![one("gpu", "a")]), term(vec![])];
        assert!(admits(gpu.clone(), &[("rack", "1"), ("gpu", "a")]) && !admits(gpu.clone(), &[("gpu", "a")]));
        assert!(!admits(gpu, &[("rack", "1")]), "an empty term still matches nothing");
        assert_eq!(NodeClaim::default().restrict_to(&[]), NodeClaim::default());
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn requirement(key: &str, operator: Operator, values: &[&str]) -> Requirement {
        Requirement { key: key.into(), operator, values: values.iter().map(|value| (*value).to_owned()).collect() }
    }

    #[test]
    fn affinity_terms_are_alternatives_and_an_empty_term_matches_nothing() {
        let on = |key: &str| NodeTerm { labels: vec![requirement(key, Operator::Exists, &[])], fields: vec![] };
        let mut claim = NodeClaim { affinity: vec![on("a"), on("b")], ..NodeClaim::default() };
        assert!(claim.admits("n", &labels(&[("b", "")]), &[]));
        assert!(!claim.admits("n", &labels(&[("c", "")]), &[]));
        claim.affinity = vec![NodeTerm::default()];
        assert!(!claim.admits("n", &labels(&[("b", "")]), &[]));
    }

    #[test]
    fn operators_follow_kubernetes() {
        let cases = [
            (Operator::In, vec!["x"], Some("x"), true),
            (Operator::In, vec!["x"], None, false),
            (Operator::NotIn, vec!["x"], None, true),
            (Operator::NotIn, vec!["x"], Some("x"), false),
            (Operator::DoesNotExist, vec![], None, true),
            (Operator::Gt, vec!["5"], Some("6"), true),
            (Operator::Gt, vec!["5"], Some("5"), false),
            (Operator::Gt, vec!["5"], Some("garbage"), false),
            (Operator::Lt, vec!["5"], Some("-1"), true),
            (Operator::Lt, vec!["5", "6"], Some("1"), false),
        ];
        for (operator, values, value, want) in cases {
            assert_eq!(requirement("k", operator, &values).matches(value), want, "{operator:?} {values:?} {value:?}");
        }
    }

    #[test]
    fn only_untolerated_no_schedule_and_no_execute_keep_a_pod_away() {
        let taint = |effect: &str| Taint { key: "gpu".into(), value: "a".into(), effect: effect.into() };
        let mut claim = NodeClaim::default();
        assert!(claim.admits("n", &BTreeMap::new(), &[taint("PreferNoSchedule")]));
        assert!(!claim.admits("n", &BTreeMap::new(), &[taint("NoSchedule")]));
        claim.tolerations = vec![Toleration { key: "gpu".into(), value: "a".into(), ..Toleration::default() }];
        assert!(claim.admits("n", &BTreeMap::new(), &[taint("NoSchedule"), taint("NoExecute")]));
        claim.tolerations[0].effect = "NoExecute".into();
        assert!(!claim.admits("n", &BTreeMap::new(), &[taint("NoSchedule")]));
        claim.tolerations = vec![Toleration { exists: true, ..Toleration::default() }];
        assert!(claim.admits("n", &BTreeMap::new(), &[taint("NoSchedule"), taint("NoExecute")]));
    }

    #[test]
    fn a_field_matches_the_nodes_name() {
        let term = NodeTerm { labels: vec![], fields: vec![requirement(NODE_NAME_FIELD, Operator::In, &["n1"])] };
        let claim = NodeClaim { affinity: vec![term], ..NodeClaim::default() };
        assert!(claim.admits("n1", &BTreeMap::new(), &[]));
        assert!(!claim.admits("n2", &BTreeMap::new(), &[]));
        assert!(claim.selects_by_node_name());
    }
}
