//! How policies rank clusters: weights on a binding or on the policy that made it, and scores from outside.
//!
//! Karmada copies none of a policy's annotations to its bindings, so policies are watched too. What can not be read ranks
//! nothing, and whoever wrote it is told on the object; scores that are too old count as if they were not there.

use std::collections::BTreeMap;

use caldera_core::place::score::{PLUGINS, ParseWeightsError, Ranking, Weights};
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

/// So many objects with scores are kept; of more those whose names come first.
const MOST_SCORES: usize = 256;

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
pub type Stated = Result<Weights, Box<Fault>>;

/// Weights that can not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Who states them.
    pub on: Regarding,
    /// What is wrong.
    pub why: String,
}

/// The weights that an object states; `None` where it states none.
#[must_use]
pub fn weights_of(object: &Value) -> Option<Stated> {
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
        Box::new(Fault { on, why: format!("annotation {SCORE_WEIGHTS} ranks nothing: {error}") })
    }))
}

/// Reads a policy: which it is, and its weights.
#[must_use]
pub fn read_policy(object: &Value) -> Option<(PolicyKey, Option<Stated>)> {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
    Some(((text("namespace"), text("name")), weights_of(object)))
}

/// All that is known of how clusters rank.
#[derive(Debug, Default)]
pub struct Rankings {
    /// Of the policies that state weights.
    policies: BTreeMap<PolicyKey, Weights>,
    scores: BTreeMap<String, Scores>,
}

impl Rankings {
    /// Takes in what happened to policies. `global`: to ClusterPropagationPolicies, which are listed by themselves.
    pub fn policies(&mut self, global: bool, event: Event<(PolicyKey, Option<Stated>)>) {
        match event {
            Event::Reset(all) => {
                self.policies.retain(|(namespace, _), _| namespace.is_empty() != global);
                self.policies.extend(all.into_iter().filter_map(|(key, stated)| Some((key, stated?.ok()?))));
            }
            Event::Applied((key, Some(Ok(weights)))) => drop(self.policies.insert(key, weights)),
            Event::Applied((key, _)) | Event::Deleted((key, _)) => drop(self.policies.remove(&key)),
        }
    }

    /// Takes in what happened to scores from outside.
    pub fn scores(&mut self, event: Event<Scores>) {
        match event {
            Event::Reset(all) => self.scores = all.into_iter().map(|scores| (scores.name.clone(), scores)).collect(),
            Event::Applied(scores) => drop(self.scores.insert(scores.name.clone(), scores)),
            Event::Deleted(scores) => drop(self.scores.remove(&scores.name)),
        }
        while self.scores.len() > MOST_SCORES {
            self.scores.pop_last();
        }
    }

    /// How clusters rank for a binding with these weights of its own, made by this policy.
    #[must_use]
    pub fn of(&self, own: Option<&Weights>, policy: Option<&PolicyKey>, now: Timestamp) -> Ranking {
        let Some(weights) = own.or_else(|| self.policies.get(policy?)) else { return Ranking::default() };
        let outside = weights.names().filter(|name| !PLUGINS.iter().any(|plugin| plugin.name() == *name));
        let fresh = |name| self.scores.get(name).filter(|scores: &&Scores| scores.are_fresh(now));
        let external = outside.filter_map(|name| Some((name.to_owned(), fresh(name)?.by_cluster.clone()))).collect();
        Ranking { weights: weights.clone(), external }
    }
}
