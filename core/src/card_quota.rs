//! What a queue may have of each card model, as its admin says.
//!
//! Rule: annotation [`CARD_QUOTA`] of Volcano's `capacity-card` plugin (volcano#4706,
//! `capacity_card_queue.go`), a JSON object `{"NVIDIA-A100-SXM4-80GB": 8}`: the most cards of each model that jobs of
//! the queue and of those below it hold, in the whole fleet. A model that is not named has no quota there, and a job
//! that asks for cards has to name one that is ([`crate::card_model`] says how). A model alone is one of
//! `nvidia.com/gpu`; of any other resource it is written `huawei.com/Ascend910:Ascend910B3`. What is said of one
//! resource concerns no other. One that can not be read takes no job: not knowing is no leave to start.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::{
    card_model::{is_model, label_of_model},
    gang::{Gang, QueueName},
    quantity::Quantity,
    reason::{CardRefusal, Reason},
    resources::ResourceName,
};

/// The annotation.
pub const CARD_QUOTA: &str = "volcano.sh/card.quota";
/// The resource of a model that is named alone.
const USUAL_RESOURCE: &str = "nvidia.com/gpu";
/// Bytes of the annotation at most.
const MOST_ANNOTATION_BYTES: usize = 4_096;

/// A queue's quota by card model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardQuota(Result<BTreeMap<ResourceName, Quantity>, String>);

impl CardQuota {
    /// Of the annotation's text.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        if text.len() > MOST_ANNOTATION_BYTES {
            return Self(Err(format!("is {} bytes long, and {MOST_ANNOTATION_BYTES} are the most", text.len())));
        }
        let Ok(models) = serde_json::from_str::<Map<String, Value>>(text) else {
            return Self(Err(r#"is no JSON object of numbers, as {"NVIDIA-A100-SXM4-80GB": 8}"#.to_owned()));
        };
        let mut quota = BTreeMap::new();
        for (key, amount) in &models {
            let Some(name) = read_card(key) else {
                return Self(Err(format!(
                    "{key:?} is no card model: it is written as the value of the nodes' label \
                     {USUAL_RESOURCE}.product, or with its resource, as huawei.com/Ascend910:Ascend910B3"
                )));
            };
            let Some(amount) = amount.as_u64().and_then(|amount| i64::try_from(amount).ok()) else {
                return Self(Err(format!("{amount} of {key:?} is no whole number of cards")));
            };
            if quota.insert(name, Quantity::from_units(amount)).is_some() {
                return Self(Err(format!("{key:?} is the second quota of its model")));
            }
        }
        Self(Ok(quota))
    }

    /// Why it can not be read, if so.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        self.0.as_ref().err().map(String::as_str)
    }

    /// The most of each model.
    pub fn limits(&self) -> impl Iterator<Item = (&ResourceName, Quantity)> {
        self.0.iter().flatten().map(|(name, amount)| (name, *amount))
    }

    /// Why a job of `queue` is not taken by `by`, which has this quota: it asks for cards and names no model, or one
    /// without a quota. `None` where it is.
    #[must_use]
    pub fn refuse(&self, queue: &QueueName, by: &QueueName, gang: &Gang) -> Option<Reason> {
        let refuse = |cause| Reason::NoCardQuota { queue: queue.clone(), by: by.clone(), cause };
        let Ok(quota) = &self.0 else { return Some(refuse(CardRefusal::Unreadable)) };
        let models_of = |resource: &str| -> Vec<String> {
            let cards = quota.keys().filter_map(ResourceName::as_card).filter(|(of, _)| *of == resource);
            cards.map(|(_, model)| model.to_owned()).collect()
        };
        let tasks = gang.tasks.iter().filter(|task| task.replicas > 0);
        let mut asked = tasks.flat_map(|task| task.request.iter().map(move |(name, _)| (task, name)));
        asked.find_map(|(task, resource)| {
            let models = models_of(resource.as_str());
            let resource = (!models.is_empty()).then(|| resource.clone())?;
            let label = label_of_model(resource.as_str());
            match task.model_of(&resource) {
                None => Some(refuse(CardRefusal::Unnamed { task: task.name.clone(), resource, label, models })),
                Some(model) if !models.iter().any(|one| one == model) => {
                    let (task, model) = (task.name.clone(), model.to_owned());
                    Some(refuse(CardRefusal::OtherModel { task, resource, model, models }))
                }
                Some(_) => None,
            }
        })
    }
}

/// A model as its name is written: alone where it is one of the usual resource.
pub(crate) fn read_card(key: &str) -> Option<ResourceName> {
    let (resource, model) = key.split_once(':').unwrap_or((USUAL_RESOURCE, key));
    let is_device = resource.contains('/') && ResourceName::from(resource).is_requestable();
    (is_device && is_model(model)).then(|| ResourceName::from_card(resource, model))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gang::{NodeClaim, Task};

    fn gang(request: &[(&str, i64)], model: Option<&str>) -> Gang {
        let selector = model.map(|model| ("nvidia.com/gpu.product".to_owned(), model.to_owned()));
        let task = Task {
            name: "worker".into(),
            replicas: 1,
            min_available: 1,
            request: request.iter().map(|(name, amount)| (*name, Quantity::from_units(*amount))).collect(),
            node: NodeClaim { selector: selector.into_iter().collect(), ..NodeClaim::default() },
            priority_class: String::new(),
            partition: None,
        };
        Gang::new(vec![task], 1)
    }

    fn says(quota: &str, gang: &Gang) -> Option<String> {
        CardQuota::parse(quota).refuse(&"q".into(), &"top".into(), gang).map(|reason| reason.to_string())
    }

    #[test]
    fn a_quota_is_read_as_volcano_writes_it_and_of_other_resources_with_their_names() {
        let quota = CardQuota::parse(r#"{"NVIDIA-A100": 10, "huawei.com/Ascend910:Ascend910B3": 0}"#);
        let limits: Vec<String> = quota.limits().map(|(name, most)| format!("{name} {most}")).collect();
        assert_eq!(limits, ["huawei.com/Ascend910:Ascend910B3 0", "nvidia.com/gpu:NVIDIA-A100 10"]);
        assert_eq!((quota.problem(), CardQuota::parse("{}").problem()), (None, None));
    }

    #[test]
    fn a_job_names_a_model_of_which_the_queue_has_a_quota() {
        let quota = r#"{"A100": 8, "H100": 0}"#;
        assert_eq!(says(quota, &gang(&[("nvidia.com/gpu", 9)], Some("A100"))), None, "how many is asked elsewhere");
        assert_eq!(says(quota, &gang(&[("cpu", 9)], None)), None);
        assert_eq!(says(quota, &gang(&[("amd.com/gpu", 9)], None)), None, "it says nothing of that");
        assert_eq!(
            says(quota, &gang(&[("nvidia.com/gpu", 1)], None)).as_deref(),
            Some(
                "queue top, above queue q, has its quota of nvidia.com/gpu by card model, A100, H100: task worker has \
                 to name one, by a nodeSelector or a required node affinity for nvidia.com/gpu.product with one value, or \
                 several by annotation volcano.sh/card.name of its pods"
            )
        );
        assert_eq!(
            says(quota, &gang(&[("nvidia.com/gpu", 1)], Some("V100"))).as_deref(),
            Some(
                "queue top, above queue q, has no quota of the V100 that task worker names: of nvidia.com/gpu it has A100, \
                 H100"
            )
        );
    }

    #[test]
    fn what_can_not_be_read_takes_nothing_and_says_why() {
        for wrong in [
            "",
            "8",
            "[]",
            r#"{"A100": -1}"#,
            r#"{"A100": 1.5}"#,
            r#"{"A100": "8"}"#,
            r#"{"": 1}"#,
            r#"{"a b": 1}"#,
            r#"{"NVIDIA-A100/mps-80g*1/8": 16}"#,
            r#"{"gpu:A100": 1}"#,
            r#"{"cpu:A100": 1}"#,
            r#"{"A100": 1, "nvidia.com/gpu:A100": 1}"#,
            &"a".repeat(5_000),
        ] {
            assert!(CardQuota::parse(wrong).problem().is_some(), "{wrong:?}");
            assert_eq!(
                says(wrong, &gang(&[("cpu", 1)], None)).as_deref(),
                Some("queue top, above queue q, takes no job: its quota by card model can not be read"),
                "{wrong:?}"
            );
        }
    }
}
