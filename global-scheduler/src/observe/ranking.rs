//! How clusters are ranked for a binding: by weights on the binding or on the policy that made it, and by external
//! scores.
//!
//! Rule: Karmada copies no annotation of a policy to its bindings, so policies are watched too. Weights that can not be
//! read rank nothing and become an Event on the object that states them. Scores that are too old do not count.

use std::collections::BTreeMap;

use caldera_core::place::score::{ParseWeightsError, Ranking, ScorePlugin, ScoreWeights};
use caldera_crds::{
    names::{
        caldera::SCORE_WEIGHTS,
        karmada::{CLUSTER_POLICY_NAME, POLICY_NAME, POLICY_NAMESPACE},
    },
    score::Scores,
};
use caldera_runtime::{event::Regarding, watch::Event};
use jiff::Timestamp;
use serde_json::Value;

/// Objects with scores that are kept; of more than that, those whose names come first.
const MAX_SCORES: usize = 256;

/// A policy: its namespace (empty for a ClusterPropagationPolicy) and name.
pub type PolicyKey = (String, String);

/// The policy that made a binding, as Karmada notes it there.
#[must_use]
pub fn policy_of(binding: &Value) -> Option<PolicyKey> {
    let annotation = |key: &str| binding["metadata"]["annotations"][key].as_str().map(ToOwned::to_owned);
    match (annotation(POLICY_NAMESPACE), annotation(POLICY_NAME)) {
        (Some(namespace), Some(name)) => Some((namespace, name)),
        _ => Some((String::new(), annotation(CLUSTER_POLICY_NAME)?)),
    }
}

/// The weights that an object states, or what is wrong with them.
pub type StatedWeights = Result<ScoreWeights, Box<WeightsFault>>;

/// Weights that can not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightsFault {
    /// The object that states them.
    pub on: Regarding,
    /// What is wrong.
    pub why: String,
}

/// The weights that an object states; `None` where it states none.
#[must_use]
pub fn read_score_weights(object: &Value) -> Option<StatedWeights> {
    let stated = object["metadata"]["annotations"][SCORE_WEIGHTS].as_str()?;
    Some(stated.parse().map_err(|error: ParseWeightsError| {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let on = Regarding {
            api_version: text("/apiVersion"),
            kind: text("/kind"),
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
            uid: text("/metadata/uid"),
        };
        Box::new(WeightsFault { on, why: format!("annotation {SCORE_WEIGHTS} ranks nothing: {error}") })
    }))
}

/// Reads a policy: which it is, and its weights.
#[must_use]
pub fn read_policy_weights(object: &Value) -> Option<(PolicyKey, Option<StatedWeights>)> {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
    Some(((text("namespace"), text("name")), read_score_weights(object)))
}

/// The weights of policies and the external scores.
#[derive(Debug, Default)]
pub struct Rankings {
    /// Of the policies that state weights.
    policies: BTreeMap<PolicyKey, ScoreWeights>,
    scores: BTreeMap<String, Scores>,
}

impl Rankings {
    /// Applies an event of policies. `global`: of ClusterPropagationPolicies, which are listed by themselves.
    pub fn apply_policies(&mut self, global: bool, event: Event<(PolicyKey, Option<StatedWeights>)>) {
        match event {
            Event::Reset(all) => {
                self.policies.retain(|(namespace, _), _| namespace.is_empty() != global);
                self.policies.extend(all.into_iter().filter_map(|(key, stated)| Some((key, stated?.ok()?))));
            }
            Event::Applied((key, Some(Ok(weights)))) => drop(self.policies.insert(key, weights)),
            Event::Applied((key, _)) | Event::Deleted((key, _)) => drop(self.policies.remove(&key)),
        }
    }

    /// Applies an event of external scores.
    pub fn apply_scores(&mut self, event: Event<Scores>) {
        let keyed = event.filter_map(|scores| Some((scores.name.clone(), scores)));
        keyed.into_iter().for_each(|event| event.apply_to(&mut self.scores));
        while self.scores.len() > MAX_SCORES {
            self.scores.pop_last();
        }
    }

    /// How clusters rank for a binding with these weights of its own, made by this policy.
    #[must_use]
    pub fn ranking_for(&self, own: Option<&ScoreWeights>, policy: Option<&PolicyKey>, now: Timestamp) -> Ranking {
        let Some(weights) = own.or_else(|| self.policies.get(policy?)) else { return Ranking::default() };
        let outside = weights.names().filter(|name| !ScorePlugin::ALL.iter().any(|plugin| plugin.name() == *name));
        let fresh = |name| self.scores.get(name).filter(|scores: &&Scores| scores.are_fresh(now));
        let external = outside.filter_map(|name| Some((name.to_owned(), fresh(name)?.by_cluster.clone()))).collect();
        Ranking { weights: weights.clone(), external }
    }
}
