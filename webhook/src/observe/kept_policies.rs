//! What is kept of the policies of a namespace, or of those of the whole host.
//!
//! Rule: any tenant writes policies, as many as he likes, and they are there only for a warning of jobs that none
//! selects. Those that select nothing that can be queued are not kept. Of the others there are at most
//! [`MOST_POLICIES`], with at most [`MOST_BYTES`] of selectors. A policy beyond the bytes is taken to select all. One
//! beyond the number is left out, and that is known from then on until policies are listed anew: which of those that
//! are left out go away is not counted.

use std::{collections::BTreeMap, sync::Arc};

use caldera_crds::policy_selection::PolicySelection;

/// Policies that are kept.
const MOST_POLICIES: usize = 1_000;
/// About what their selectors may take of memory, all together.
const MOST_BYTES: usize = 256 << 10;

/// The policies. A copy shares what they select.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeptPolicies {
    by_name: BTreeMap<Arc<str>, PolicySelection>,
    bytes: usize,
    has_left_out: bool,
}

impl KeptPolicies {
    /// What each selects.
    pub fn selections(&self) -> impl Iterator<Item = &PolicySelection> {
        self.by_name.values()
    }

    /// Whether there are, or were, more than are kept.
    #[must_use]
    pub const fn has_left_out(&self) -> bool {
        self.has_left_out
    }

    /// Whether nothing is known of any policy.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty() && !self.has_left_out
    }

    /// Whether [`Self::put_policy`] would change anything.
    #[must_use]
    pub fn changes_with(&self, name: &str, selection: &PolicySelection) -> bool {
        match self.by_name.get(name) {
            Some(kept) => *kept != self.fit_selection(name, selection),
            None if selection.is_empty() => false,
            None => self.has_capacity() || !self.has_left_out,
        }
    }

    /// Stores what a policy selects. One that selects nothing, or is gone, is not kept.
    pub fn put_policy(&mut self, name: &str, selection: &PolicySelection) {
        let selection = self.fit_selection(name, selection);
        if let Some(kept) = self.by_name.remove(name) {
            self.bytes = self.bytes.saturating_sub(kept.count_bytes());
        }
        if selection.is_empty() {
            return;
        }
        if self.has_capacity() {
            self.bytes += selection.count_bytes();
            self.by_name.insert(name.into(), selection);
        } else {
            self.has_left_out = true;
        }
    }

    fn has_capacity(&self) -> bool {
        self.by_name.len() < MOST_POLICIES
    }

    /// As much of it as there is capacity for.
    fn fit_selection(&self, name: &str, selection: &PolicySelection) -> PolicySelection {
        let kept = self.by_name.get(name).map_or(0, PolicySelection::count_bytes);
        let bytes = self.bytes.saturating_sub(kept) + selection.count_bytes();
        if bytes > MOST_BYTES { PolicySelection::ALL } else { selection.clone() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn named(names: &[String]) -> PolicySelection {
        let selector = |name: &String| json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": name});
        let selectors: Vec<_> = names.iter().map(selector).collect();
        PolicySelection::of_policy(&json!({"spec": {"resourceSelectors": selectors}}))
    }

    #[test]
    fn a_policy_beyond_the_memory_of_its_namespace_selects_all_until_others_go() {
        let (mut kept, large) = (KeptPolicies::default(), named(&vec!["n".repeat(253); 80]));
        assert!(large.count_bytes() > 20_000);
        let names: Vec<String> = (0..40).map(|at| format!("p{at}")).collect();
        names.iter().for_each(|name| kept.put_policy(name, &large));
        assert!(kept.bytes <= MOST_BYTES && kept.selections().count() == 40);
        assert_eq!((kept.by_name["p0"] == large, &kept.by_name["p39"]), (true, &PolicySelection::ALL));
        assert!(!kept.changes_with("p39", &large), "there is no room for it yet");
        names[..30].iter().for_each(|name| kept.put_policy(name, &PolicySelection::default()));
        assert!(kept.changes_with("p39", &large));
        kept.put_policy("p39", &large);
        assert_eq!(kept.by_name["p39"], large);
        names.iter().for_each(|name| kept.put_policy(name, &PolicySelection::default()));
        assert_eq!(kept, KeptPolicies::default());
    }

    #[test]
    fn more_policies_than_are_kept_are_left_out_and_that_stays_known() {
        let (mut kept, one) = (KeptPolicies::default(), named(&["j".to_owned()]));
        (0..=MOST_POLICIES).for_each(|at| kept.put_policy(&at.to_string(), &one));
        assert!(kept.selections().count() == MOST_POLICIES && kept.has_left_out());
        assert!(!kept.changes_with("another", &one) && kept.changes_with("0", &PolicySelection::default()));
        (0..=MOST_POLICIES).for_each(|at| kept.put_policy(&at.to_string(), &PolicySelection::default()));
        assert!(kept.selections().next().is_none() && kept.has_left_out() && !kept.is_empty());
    }

    #[test]
    fn what_is_known_of_a_policy_and_one_that_selects_nothing_change_nothing() {
        let (mut kept, one) = (KeptPolicies::default(), named(&["j".to_owned()]));
        assert!(kept.changes_with("p", &one) && !kept.changes_with("p", &PolicySelection::default()));
        kept.put_policy("p", &one);
        assert!(!kept.changes_with("p", &one) && kept.changes_with("p", &PolicySelection::default()));
        kept.put_policy("q", &PolicySelection::default());
        assert_eq!(kept.selections().count(), 1);
    }
}
