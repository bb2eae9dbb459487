//! Card models: which model of an accelerator a pod names, and what it is charged for that.
//!
//! Rule: the quota by card name of Volcano's `capacity-card` plugin (volcano#4706, `capacity_card_node.go`): the model
//! of a node's cards is the value of its label `<resource>.product`, as NVIDIA's GPU feature discovery sets it, and a
//! queue has a quota of each model beside that of the resource. Here `nvidia.com/gpu` of model `A100` is a resource of
//! its own, written `nvidia.com/gpu:A100`: a name that no pod can ask for. A pod that can run only on nodes of one
//! model is charged as much of it as of the resource itself, in exact integers, so that limits, records and requeueing
//! are those of any resource.
//!
//! Differences on purpose. A pod names its model by its own `nodeSelector` or required node affinity, not by an
//! annotation alone: what is charged is then what members keep it to, and nobody can say one model and use another. Of
//! several that an annotation names it is held to one ([`crate::card_choice`]). And no
//! cluster is summed up by model: a quota by model is a ceiling of queues, which nobody deserves a part of, and whether
//! there are such nodes is asked when the job is placed.

use std::borrow::Cow;

use crate::{
    gang::{Gang, NodeClaim, NodeTerm, Operator, Task},
    quantity::Quantity,
    resources::{ResourceName, Resources},
};

/// Between a resource and a model of it.
const SEPARATOR: char = ':';
/// What a device plugin puts behind the name of a resource that pods share; its nodes have the label of the whole card.
const SHARED: &str = ".shared";
/// The longest value of a label.
const MOST_LABEL_BYTES: usize = 63;

impl ResourceName {
    /// A resource of one model.
    #[must_use]
    pub fn from_card(resource: &str, model: &str) -> Self {
        format!("{resource}{SEPARATOR}{model}").into()
    }

    /// The resource and the model, where this is a resource of one model.
    #[must_use]
    pub fn as_card(&self) -> Option<(&str, &str)> {
        self.as_str().split_once(SEPARATOR)
    }

    /// Whether it is a resource of one model: clusters have none by this name.
    #[must_use]
    pub fn is_card(&self) -> bool {
        self.as_card().is_some()
    }

    /// Whether a Queue's own amounts of it count. Of one model there is a ceiling alone, by
    /// [`crate::card_quota::CARD_QUOTA`].
    #[must_use]
    pub fn counts_in_queues(&self) -> bool {
        self.is_counted() && !self.is_card()
    }
}

/// The label of nodes whose value is the model of a resource there.
#[must_use]
pub fn label_of_model(resource: &str) -> String {
    format!("{}.product", resource.strip_suffix(SHARED).unwrap_or(resource))
}

/// Whether a node can have a label of this value, and says something by it.
#[must_use]
pub fn is_model(text: &str) -> bool {
    let ends = [text.bytes().next(), text.bytes().next_back()];
    text.len() <= MOST_LABEL_BYTES
        && ends.iter().all(|end| end.is_some_and(|end| end.is_ascii_alphanumeric()))
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

impl NodeClaim {
    /// The value that a label has on each node that satisfies the claim, if the claim says so.
    #[must_use]
    pub fn find_only_value(&self, label: &str) -> Option<&str> {
        if let Some(value) = self.selector.get(label) {
            return Some(value);
        }
        // A term that no value satisfies matches no node.
        let mut values =
            self.affinity.iter().map(|term| term.list_values(label)).filter(|values| *values != Some(vec![]));
        let first = values.next()??;
        let [only] = first.as_slice() else { return None };
        values.all(|values| values.as_deref() == Some(&[*only])).then_some(*only)
    }
}

impl NodeTerm {
    /// The values of a label that satisfy the term, each once; `None` where it does not name them.
    fn list_values(&self, label: &str) -> Option<Vec<&str>> {
        let mut wanted = self.labels.iter().filter(|wanted| wanted.key == label && wanted.operator == Operator::In);
        let mut values: Vec<&str> = wanted.next()?.values.iter().map(String::as_str).collect();
        values.retain(|value| self.labels.iter().all(|one| one.key != label || one.matches(Some(value))));
        values.sort_unstable();
        values.dedup();
        Some(values)
    }
}

impl Task {
    /// The model of a resource that its pods name, if they name one.
    #[must_use]
    pub fn model_of(&self, resource: &ResourceName) -> Option<&str> {
        self.node.find_only_value(&label_of_model(resource.as_str())).filter(|model| is_model(model))
    }

    /// What one of its pods is charged: what it asks for, and the same of the models that it names.
    #[must_use]
    pub fn charge(&self) -> Cow<'_, Resources> {
        if self.node.selector.is_empty() && self.node.affinity.is_empty() {
            return Cow::Borrowed(&self.request);
        }
        let devices = self.request.iter().filter(|(name, _)| name.as_str().contains('/') && !name.is_card());
        let cards: Vec<(ResourceName, Quantity)> = devices
            .filter_map(|(name, amount)| Some((ResourceName::from_card(name.as_str(), self.model_of(name)?), amount)))
            .collect();
        if cards.is_empty() {
            return Cow::Borrowed(&self.request);
        }
        let mut charge = self.request.clone();
        cards.into_iter().for_each(|(name, amount)| charge.set(name, amount));
        Cow::Owned(charge)
    }
}

impl Gang {
    /// What all pods are charged.
    #[must_use]
    pub fn sum_full_charge(&self) -> Resources {
        let mut charge = Resources::new();
        for task in &self.tasks {
            charge.add(&task.charge().times(u64::from(task.replicas)));
        }
        charge
    }
}

impl Resources {
    /// What of this clusters can have: no amount by model.
    #[must_use]
    pub fn without_cards(&self) -> Self {
        self.iter().filter(|(name, _)| !name.is_card()).map(|(name, amount)| (name.clone(), amount)).collect()
    }

    /// As much of a resource as is of no model that is named here.
    #[must_use]
    pub fn amount_without_model(&self, resource: &str) -> Quantity {
        let of_models = self.iter().filter(|(name, _)| name.as_card().is_some_and(|(of, _)| of == resource));
        of_models.fold(self.get(resource), |left, (_, amount)| left.signed_sub(amount)).max(Quantity::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::gang::Requirement;

    const LABEL: &str = "nvidia.com/gpu.product";

    fn wants(operator: Operator, values: &[&str]) -> Requirement {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        Requirement { key: LABEL.to_owned(), operator, values }
    }

    fn claim(selector: Option<&str>, terms: Vec<Vec<Requirement>>) -> NodeClaim {
        NodeClaim {
            selector: selector.map(|value| (LABEL.to_owned(), value.to_owned())).into_iter().collect(),
            affinity: terms.into_iter().map(|labels| NodeTerm { labels, fields: Vec::new() }).collect(),
            ..NodeClaim::default()
        }
    }

    fn task(node: NodeClaim, request: &[(&str, i64)]) -> Task {
        Task {
            name: "worker".into(),
            replicas: 2,
            min_available: 2,
            request: request.iter().map(|(name, amount)| (*name, Quantity::from_units(*amount))).collect(),
            node,
            priority_class: String::new(),
            partition: None,
        }
    }

    #[test]
    fn a_pod_is_charged_by_the_model_that_its_selector_or_its_affinity_names() {
        let one = || vec![vec![wants(Operator::In, &["A100", "A100"])]];
        for node in [claim(Some("A100"), vec![]), claim(None, one()), claim(Some("A100"), one())] {
            let charge = task(node, &[("cpu", 4), ("nvidia.com/gpu", 8), ("rdma/hca", 1)]).charge().into_owned();
            assert_eq!(charge.to_string(), "cpu 4, nvidia.com/gpu 8, nvidia.com/gpu:A100 8, rdma/hca 1");
            assert_eq!(charge.without_cards().to_string(), "cpu 4, nvidia.com/gpu 8, rdma/hca 1");
            assert_eq!(charge.amount_without_model("nvidia.com/gpu"), Quantity::ZERO);
        }
        let gang = Gang::new(vec![task(claim(Some("A100"), vec![]), &[("nvidia.com/gpu", 8)])], 2);
        assert_eq!(gang.sum_full_charge().to_string(), "nvidia.com/gpu 16, nvidia.com/gpu:A100 16");
    }

    #[test]
    fn a_pod_that_can_run_on_several_models_names_none() {
        let several = [
            claim(None, vec![]),
            claim(None, vec![vec![wants(Operator::In, &["A100", "H100"])]]),
            claim(None, vec![vec![wants(Operator::In, &["A100"])], vec![wants(Operator::In, &["H100"])]]),
            claim(None, vec![vec![wants(Operator::In, &["A100"])], vec![]]),
            claim(None, vec![vec![wants(Operator::NotIn, &["H100"])]]),
            claim(None, vec![vec![wants(Operator::Exists, &[])]]),
            claim(Some("no label can say this"), vec![]),
        ];
        for node in several {
            let pods = task(node, &[("nvidia.com/gpu", 8)]);
            assert_eq!(*pods.charge(), pods.request);
            assert_eq!(pods.charge().amount_without_model("nvidia.com/gpu"), Quantity::from_units(8));
        }
    }

    #[test]
    fn the_label_is_that_of_the_resource_and_a_shared_card_has_that_of_the_whole_one() {
        assert_eq!(label_of_model("nvidia.com/mig-1g.10gb"), "nvidia.com/mig-1g.10gb.product");
        assert_eq!([label_of_model("nvidia.com/gpu"), label_of_model("nvidia.com/gpu.shared")], [LABEL, LABEL]);
        let shared = task(claim(Some("T4"), vec![]), &[("nvidia.com/gpu.shared", 1)]);
        assert_eq!(shared.charge().to_string(), "nvidia.com/gpu.shared 1, nvidia.com/gpu.shared:T4 1");
    }

    #[test]
    fn no_pod_can_ask_for_a_resource_of_one_model_by_its_name() {
        let card = ResourceName::from_card("nvidia.com/gpu", "A100");
        assert_eq!(card.as_card(), Some(("nvidia.com/gpu", "A100")));
        assert!(card.is_card() && card.is_counted() && !card.is_requestable() && !card.counts_in_queues());
        assert!(!ResourceName::from("nvidia.com/gpu").is_card());
        // One that names it all the same is charged that, and no model of it.
        let forged = task(claim(Some("A100"), vec![]), &[("nvidia.com/gpu:A100", 1)]);
        assert_eq!(forged.charge().to_string(), "nvidia.com/gpu:A100 1");
    }

    fn any_requirement() -> impl Strategy<Value = Requirement> {
        let value = prop::sample::select(vec!["a", "b", "c"]);
        let operator = prop::sample::select(vec![Operator::In, Operator::In, Operator::NotIn, Operator::Exists]);
        let key = prop::sample::select(vec![LABEL, LABEL, "zone"]);
        (key, operator, prop::collection::vec(value, 0..3))
            .prop_map(|(key, operator, values)| Requirement { key: key.to_owned(), ..wants(operator, &values) })
    }

    proptest! {
        #[test]
        fn a_named_model_is_that_of_every_node_that_the_pod_can_run_on(
            selector in prop::option::weighted(0.2, prop::sample::select(vec!["a", "b", "c"])),
            terms in prop::collection::vec(prop::collection::vec(any_requirement(), 0..3), 0..3),
        ) {
            let claim = claim(selector, terms);
            let Some(named) = claim.find_only_value(LABEL) else { return Ok(()) };
            for model in [None, Some("a"), Some("b"), Some("c"), Some("d")] {
                for zone in [None, Some("a"), Some("b"), Some("c")] {
                    let labels: BTreeMap<String, String> = [(LABEL, model), ("zone", zone)]
                        .into_iter()
                        .filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())))
                        .collect();
                    prop_assert!(!claim.admits("n", &labels, &[]) || model == Some(named), "{:?} {:?}", claim, labels);
                }
            }
        }
    }
}
