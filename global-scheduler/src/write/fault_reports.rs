//! Weights that can not be read and were told of as Events, so that each is told once.
//!
//! Rule: once on each object, and again when the fault changes. What is mended or gone is forgotten, also where only a
//! list shows that.

use std::{collections::BTreeMap, mem, slice};

use caldera_runtime::watch::Event;

use crate::observe::{
    binding::Binding,
    ranking::{PolicyKey, StatedWeights, WeightsFault},
};

/// What may state weights.
pub trait StatesWeights {
    /// Tells it apart from others of its namespace and name.
    const KIND: &'static str;

    /// Namespace, empty for one that is cluster-scoped, and name.
    fn name(&self) -> (&str, &str);

    /// The weights that it states.
    fn weights(&self) -> Option<&StatedWeights>;
}

impl StatesWeights for Binding {
    const KIND: &'static str = "binding";

    fn name(&self) -> (&str, &str) {
        (&self.key.namespace, &self.key.name)
    }

    fn weights(&self) -> Option<&StatedWeights> {
        self.weights.as_ref()
    }
}

impl StatesWeights for (PolicyKey, Option<StatedWeights>) {
    const KIND: &'static str = "policy";

    fn name(&self) -> (&str, &str) {
        (&self.0.0, &self.0.1)
    }

    fn weights(&self) -> Option<&StatedWeights> {
        self.1.as_ref()
    }
}

/// Kind, namespace and name.
type Key = (&'static str, String, String);

/// See the module.
#[derive(Debug, Default)]
pub struct FaultReports(BTreeMap<Key, WeightsFault>);

impl FaultReports {
    /// The faults to tell now. `global`: of what is cluster-scoped, which is listed by itself.
    pub fn take_new_faults<T: StatesWeights>(&mut self, global: bool, event: &Event<T>) -> Vec<WeightsFault> {
        let (objects, known) = match event {
            Event::Reset(all) => (all.as_slice(), self.take_list(T::KIND, global)),
            Event::Applied(one) => (slice::from_ref(one), self.0.remove_entry(&key_of(one)).into_iter().collect()),
            Event::Deleted(one) => {
                self.0.remove(&key_of(one));
                return Vec::new();
            }
        };
        let mut new = Vec::new();
        for object in objects {
            let Some(Err(fault)) = object.weights() else { continue };
            let key = key_of(object);
            if known.get(&key) != Some(&**fault) {
                new.push(WeightsFault::clone(fault));
            }
            self.0.insert(key, WeightsFault::clone(fault));
        }
        new
    }

    /// Takes out what was told of one list.
    fn take_list(&mut self, kind: &'static str, global: bool) -> BTreeMap<Key, WeightsFault> {
        let is_of_list = |(of, namespace, _): &Key| *of == kind && namespace.is_empty() == global;
        let (of_list, others) = mem::take(&mut self.0).into_iter().partition(|(key, _)| is_of_list(key));
        self.0 = others;
        of_list
    }
}

fn key_of<T: StatesWeights>(object: &T) -> Key {
    let (namespace, name) = object.name();
    (T::KIND, namespace.to_owned(), name.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::observe::ranking::read_policy_weights;

    type Policy = (PolicyKey, Option<StatedWeights>);

    fn policy(namespace: &str, weights: &str) -> Policy {
        let annotations = json!({"caldera.dev/score-weights": weights});
        let metadata = json!({"name": "p", "namespace": namespace, "uid": "u", "annotations": annotations});
        read_policy_weights(&json!({"kind": "PropagationPolicy", "metadata": metadata})).unwrap()
    }

    fn count_reported(reports: &mut FaultReports, global: bool, event: Event<Policy>) -> usize {
        reports.take_new_faults(global, &event).len()
    }

    #[test]
    fn weights_that_were_mended_are_forgotten_and_told_again_when_they_are_spoilt_again() {
        let mut reports = FaultReports::default();
        let spoilt = || Event::Applied(policy("ns", "cheapest=lots"));
        assert_eq!([spoilt(), spoilt()].map(|event| count_reported(&mut reports, false, event)), [1, 0]);
        assert_eq!(count_reported(&mut reports, false, Event::Applied(policy("ns", "cheapest=1"))), 0);
        assert!(reports.0.is_empty());
        assert_eq!([spoilt(), spoilt()].map(|event| count_reported(&mut reports, false, event)), [1, 0]);
        assert_eq!(count_reported(&mut reports, false, Event::Applied(policy("ns", "cheapest=many"))), 1);
        assert_eq!(count_reported(&mut reports, false, Event::Deleted(policy("ns", "cheapest=1"))), 0);
        assert!(reports.0.is_empty());
    }

    #[test]
    fn of_faults_a_list_keeps_those_that_it_shows_and_those_of_other_lists() {
        let mut reports = FaultReports::default();
        let spoilt = |namespace: &str| policy(namespace, "cheapest=lots");
        assert_eq!(count_reported(&mut reports, false, Event::Reset(vec![spoilt("a"), spoilt("b"), spoilt("c")])), 3);
        assert_eq!(count_reported(&mut reports, true, Event::Reset(vec![spoilt("")])), 1);
        let listed = Event::Reset(vec![spoilt("a"), policy("b", "cheapest=1")]);
        assert_eq!(count_reported(&mut reports, false, listed), 0, "what was told is not told again");
        assert_eq!(reports.0.keys().map(|(_, namespace, _)| namespace.as_str()).collect::<Vec<_>>(), ["", "a"]);
        assert_eq!(reports.take_new_faults::<Binding>(false, &Event::Reset(vec![])), []);
        assert_eq!(reports.0.len(), 2);
    }
}
