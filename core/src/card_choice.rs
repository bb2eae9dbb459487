//! A choice of card models: which models a job may use, in order of preference, and the one that it is held to.
//!
//! Rule: Kueue's flavors tried in order, in the words of Volcano's `capacity-card` plugin (annotation [`CARD_NAME`] of
//! a pod, `A100|H100`, `capacity_card_node.go`). In ten lines:
//! 1. The pod template names its models, the best first. [`read_card_models`] reads them into its node claim.
//! 2. What counts of them is what each pod of the job can run on that leaves the model open: its selector and required
//!    affinity allow it, and its own annotation, if it has one, names it ([`Gang::list_card_choices`]).
//! 3. All these pods are on one model. Pods that name a single one by selector or affinity stay on that. So no task
//!    mixes models, and the tasks of a job mix only what its user told apart.
//! 4. Models of which a queue on the path has no quota are left out ([`choose_cards`]).
//! 5. In the queue a job is an entry for each model, one behind the other (`CardChoice`). The first entry that has
//!    quota and capacity is released, in the order of the whole line, and the others are gone with it.
//! 6. The release charges that model, and the record says which (`card`).
//! 7. Placement asks for nodes of that model ([`Gang::keep_to_card`]).
//! 8. The webhook on Works adds it to the required affinity of the copy, and then holds the copy against the charge: a
//!    pod that was charged for one model can run on no other.
//! 9. It is fixed until the job is back in line; then all models are tried again. Increases stay on it.
//! 10. Of models on which the job can never start the rest says nothing. Of the others the job holds a reservation on
//!     one, the first that it would get it on, and jobs are evicted for the first.

use std::borrow::Cow;

use crate::{
    card_model::label_of_model,
    card_quota::read_card,
    gang::{Gang, NodeClaim, Operator, Requirement, Task},
    reason::Reason,
    resources::ResourceName,
};

/// The annotation.
pub const CARD_NAME: &str = "volcano.sh/card.name";
/// Between two models.
const SEPARATOR: char = '|';
/// Models of one job: each is an entry in its queue. More are not looked at.
pub const MOST_CHOICES: usize = 8;
/// Bytes of the annotation that are read.
const MOST_ANNOTATION_BYTES: usize = 1_024;

/// The models that a pod's annotation names, the best first; what is no name of a model is left out.
#[must_use]
pub fn read_card_models(text: &str) -> Vec<ResourceName> {
    let mut models = Vec::new();
    if text.len() <= MOST_ANNOTATION_BYTES {
        for card in text.split(SEPARATOR).filter_map(|name| read_card(name.trim())) {
            if !models.contains(&card) && models.len() < MOST_CHOICES {
                models.push(card);
            }
        }
    }
    models
}

/// The models to try for a job, each with what the job is on that; none where it has no choice. `refuse` says why its
/// queues do not take a job.
///
/// # Errors
/// If they take it on no model: why not on the first.
pub fn choose_cards(
    gang: &Gang,
    refuse: impl Fn(&Gang) -> Option<Reason>,
) -> Result<Vec<(ResourceName, Gang)>, Box<Reason>> {
    let choices = gang.list_card_choices();
    if choices.is_empty() {
        return refuse(gang).map_or(Ok(Vec::new()), |why| Err(Box::new(why)));
    }
    let (mut taken, mut first) = (Vec::new(), None);
    for card in choices {
        let kept = gang.keep_to_card(Some(&card)).into_owned();
        match refuse(&kept) {
            None => taken.push((card, kept)),
            Some(why) => first = first.or(Some(why)),
        }
    }
    match first {
        Some(why) if taken.is_empty() => Err(Box::new(why)),
        _ => Ok(taken),
    }
}

/// What nodes of a model have, as a node affinity says it.
#[must_use]
pub fn require_card(card: &ResourceName) -> Option<Requirement> {
    let (resource, model) = card.as_card()?;
    Some(Requirement { key: label_of_model(resource), operator: Operator::In, values: vec![model.to_owned()] })
}

impl NodeClaim {
    /// Whether a node with this value of a label could satisfy the claim.
    fn allows_value(&self, label: &str, value: &str) -> bool {
        let allows = |one: &Requirement| one.key != label || one.matches(Some(value));
        self.selector.get(label).is_none_or(|selected| selected == value)
            && (self.affinity.is_empty() || self.affinity.iter().any(|term| term.labels.iter().all(allows)))
    }
}

impl Task {
    /// Whether its pods ask for cards of this resource, and may use more than one model.
    fn leaves_model_open(&self, resource: &ResourceName) -> bool {
        self.request.iter().any(|(name, _)| name == resource) && self.model_of(resource).is_none()
    }

    fn allows_card(&self, card: &ResourceName) -> bool {
        let named = self.node.cards.is_empty() || self.node.cards.contains(card);
        let allows = |(resource, model): (&str, &str)| self.node.allows_value(&label_of_model(resource), model);
        named && card.as_card().is_some_and(allows)
    }
}

impl Gang {
    /// The models that it may use, the best first; none where it has no choice. All are of one resource.
    #[must_use]
    pub fn list_card_choices(&self) -> Vec<ResourceName> {
        let open_card = |task: &Task, card: &ResourceName| {
            card.as_card().is_some_and(|(resource, _)| task.leaves_model_open(&resource.into()))
        };
        let chooses = |task: &&Task| task.replicas > 0 && task.node.cards.iter().any(|card| open_card(task, card));
        let Some(task) = self.tasks.iter().find(chooses) else { return Vec::new() };
        let mut cards = task.node.cards.iter().filter(|card| open_card(task, card)).peekable();
        let resource = cards.peek().and_then(|card| card.as_card()).map(|(resource, _)| resource);
        let is_allowed = |card: &ResourceName| {
            let open = self.tasks.iter().filter(|task| task.replicas > 0 && open_card(task, card));
            card.as_card().map(|(of, _)| of) == resource && open.into_iter().all(|task| task.allows_card(card))
        };
        cards.filter(|card| is_allowed(card)).cloned().collect()
    }

    /// The same with all pods that leave the model of its resource open on this one; twice is as once.
    #[must_use]
    pub fn keep_to_card(&self, card: Option<&ResourceName>) -> Cow<'_, Self> {
        let Some((card, (resource, _))) = card.and_then(|card| Some((card, card.as_card()?))) else {
            return Cow::Borrowed(self);
        };
        let resource = ResourceName::from(resource);
        let (Some(wanted), true) =
            (require_card(card), self.tasks.iter().any(|task| task.leaves_model_open(&resource)))
        else {
            return Cow::Borrowed(self);
        };
        let within = [vec![wanted]];
        let mut kept = self.clone();
        for task in kept.tasks.iter_mut().filter(|task| task.leaves_model_open(&resource)) {
            task.node = task.node.restrict_to(&within);
        }
        Cow::Owned(kept)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::{gang::NodeTerm, quantity::Quantity};

    const GPU: &str = "nvidia.com/gpu";
    const LABEL: &str = "nvidia.com/gpu.product";

    fn wants(operator: Operator, models: &[&str]) -> NodeTerm {
        let values = models.iter().map(|model| (*model).to_owned()).collect();
        NodeTerm { labels: vec![Requirement { key: LABEL.to_owned(), operator, values }], fields: Vec::new() }
    }

    fn task(cards: &str, affinity: Vec<NodeTerm>, resource: &str) -> Task {
        Task {
            name: "worker".into(),
            replicas: 2,
            min_available: 2,
            request: [(resource, Quantity::from_units(4))].into_iter().collect(),
            node: NodeClaim { cards: read_card_models(cards), affinity, ..NodeClaim::default() },
            priority_class: String::new(),
            partition: None,
        }
    }

    fn choices(tasks: Vec<Task>) -> Vec<String> {
        Gang::new(tasks, 2).list_card_choices().iter().map(|card| card.as_card().unwrap().1.to_owned()).collect()
    }

    #[test]
    fn an_annotation_names_models_as_a_quota_does_and_the_best_first() {
        let read = |text: &str| read_card_models(text).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(read("H100| A100|H100"), ["nvidia.com/gpu:H100", "nvidia.com/gpu:A100"]);
        assert_eq!(read("huawei.com/Ascend910:Ascend910B3"), ["huawei.com/Ascend910:Ascend910B3"]);
        assert_eq!(read("NVIDIA-A100/mps-80g*1/8||a b|A100"), ["nvidia.com/gpu:A100"]);
        assert_eq!(read(&"A|".repeat(600)), [""; 0]);
        assert_eq!(read("1|2|3|4|5|6|7|8|9").len(), MOST_CHOICES);
    }

    #[test]
    fn a_choice_holds_only_what_selector_and_affinity_allow() {
        assert_eq!(choices(vec![task("A|H", vec![], GPU)]), ["A", "H"]);
        assert_eq!(choices(vec![task("A|H|V", vec![wants(Operator::In, &["H", "A"])], GPU)]), ["A", "H"]);
        assert_eq!(choices(vec![task("A|H", vec![wants(Operator::NotIn, &["A"])], GPU)]), ["H"]);
        let terms = || vec![wants(Operator::In, &["H"]), wants(Operator::In, &["V"])];
        assert_eq!(choices(vec![task("A|V|H", terms(), GPU)]), ["V", "H"]);
        assert_eq!(choices(vec![task("A|H", vec![wants(Operator::In, &["H"])], GPU)]), [""; 0], "it names its model");
        assert_eq!(choices(vec![task("A|H", vec![], "cpu")]), [""; 0], "it asks for no card");
        assert_eq!(choices(vec![task("", vec![wants(Operator::In, &["A", "H"])], GPU)]), [""; 0], "in no order");
    }

    #[test]
    fn all_tasks_that_leave_it_open_are_on_one_model_and_others_stay_on_theirs() {
        let named = task("A|H", vec![wants(Operator::In, &["V"])], GPU);
        let open = task("", vec![wants(Operator::NotIn, &["A"])], GPU);
        let gang = Gang::new(vec![task("", vec![], "cpu"), named.clone(), task("A|H|B", vec![], GPU), open], 8);
        let card = |model: &str| ResourceName::from_card(GPU, model);
        assert_eq!(gang.list_card_choices(), [card("H"), card("B")]);
        assert_eq!(choices(vec![task("A|H", vec![], GPU), task("H|A", vec![], GPU)]), ["A", "H"], "the first's order");
        assert_eq!(choices(vec![task("A|H", vec![], GPU), task("V", vec![], GPU)]), [""; 0]);
        let kept = gang.keep_to_card(Some(&card("H"))).into_owned();
        let models: Vec<Option<&str>> = kept.tasks.iter().map(|task| task.model_of(&GPU.into())).collect();
        assert_eq!(models, [None, Some("V"), Some("H"), Some("H")]);
        assert_eq!((&kept.tasks[0], &kept.tasks[1]), (&gang.tasks[0], &named));
        assert_eq!(*kept.keep_to_card(Some(&card("B"))), kept, "who is kept to one is asked for no other");
        assert_eq!(*gang.keep_to_card(None), gang);
        assert_eq!(
            kept.sum_full_charge().to_string(),
            "cpu 8, nvidia.com/gpu 24, nvidia.com/gpu:H 16, nvidia.com/gpu:V 8"
        );
    }

    #[test]
    fn models_that_the_queues_do_not_take_are_left_out() {
        let gang = Gang::new(vec![task("A|H|V", vec![], GPU)], 2);
        let refuse = |takes: &'static [&'static str]| {
            move |gang: &Gang| {
                let model = gang.tasks[0].model_of(&GPU.into()).unwrap_or_default().to_owned();
                let is_taken = takes.contains(&model.as_str());
                (!is_taken).then_some(Reason::Invalid { problem: model })
            }
        };
        let of = |takes| choose_cards(&gang, refuse(takes)).map(|all| all.len());
        assert_eq!(of(&["A", "V"]), Ok(2));
        assert_eq!(of(&[]), Err(Box::new(Reason::Invalid { problem: "A".to_owned() })));
        let alone = Gang::new(vec![task("", vec![], GPU)], 2);
        assert_eq!(choose_cards(&alone, refuse(&[""])), Ok(Vec::new()));
        assert_eq!(choose_cards(&alone, refuse(&[])), Err(Box::new(Reason::Invalid { problem: String::new() })));
    }

    fn any_task() -> impl Strategy<Value = Task> {
        let models = || prop::collection::vec(prop::sample::select(vec!["A", "B", "C"]), 0..3);
        let operator = prop::sample::select(vec![Operator::In, Operator::In, Operator::NotIn, Operator::Exists]);
        let term = (operator, models()).prop_map(|(operator, models)| wants(operator, &models));
        let resource = prop::sample::select(vec![GPU, GPU, "cpu"]);
        (models(), prop::collection::vec(term, 0..3), resource)
            .prop_map(|(cards, affinity, resource)| task(&cards.join("|"), affinity, resource))
    }

    proptest! {
        /// Nobody is charged for one model and uses another.
        #[test]
        fn pods_that_are_kept_to_a_model_can_run_on_it_and_on_no_other(
            tasks in prop::collection::vec(any_task(), 1..4),
        ) {
            let gang = Gang::new(tasks, 1);
            for card in gang.list_card_choices() {
                let (_, chosen) = card.as_card().unwrap();
                let kept = gang.keep_to_card(Some(&card)).into_owned();
                let twice = kept.keep_to_card(Some(&card)).into_owned();
                prop_assert_eq!(&twice, &kept);
                for (task, before) in kept.tasks.iter().zip(&gang.tasks).filter(|(task, _)| !task.request.get(GPU).is_zero()) {
                    let charged = task.model_of(&GPU.into()).map(ToOwned::to_owned);
                    prop_assert!(charged.is_some());
                    prop_assert!(before.model_of(&GPU.into()).is_some() || charged.as_deref() == Some(chosen));
                    for model in ["A", "B", "C"] {
                        let labels: BTreeMap<String, String> = [(LABEL.to_owned(), model.to_owned())].into();
                        let (now, then) = (task.node.admits("n", &labels, &[]), before.node.admits("n", &labels, &[]));
                        prop_assert_eq!(now, then && charged.as_deref() == Some(model));
                    }
                }
            }
        }
    }
}
