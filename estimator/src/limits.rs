//! What a question may ask: pure.
//!
//! Rules: the answer costs time in proportion to the question. What is alike is one task of more pods, so that
//! thousands of equal components cost what one does; of different ones there may be so many, and so many words about
//! nodes, because each is held against each kind of node.

use std::collections::HashMap;

use caldera_core::gang::{Gang, NodeClaim, Task};
use caldera_core::resources::Resources;
use caldera_crds::{
    dns::{is_dns_label, is_dns_subdomain},
    estimator::{convert::build_all_or_nothing_gang, messages::ObjectReferenceMessage},
};

/// Bytes of a message.
pub const LARGEST_MESSAGE: usize = 1 << 20;
/// Components of a set, or of all that was given to the cluster already.
pub const MOST_COMPONENTS: usize = 10_000;
/// Different ones among them.
pub const MOST_KINDS: usize = 256;
/// Resources, labels, expressions, values and tolerations of the different ones.
pub const MOST_WORDS: usize = 4_096;

/// What is above a limit, or no name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// Too many of something.
    #[error("{count} {what} are above {most}")]
    TooMany {
        /// What they are.
        what: &'static str,
        /// How many.
        count: usize,
        /// How many there may be.
        most: usize,
    },
    /// Not what an object can be called.
    #[error("{name:?} is no name of a {what}")]
    Name {
        /// Of what.
        what: &'static str,
        /// The name, cut where it is long.
        name: String,
    },
}

/// Checks a number against its limit.
///
/// # Errors
/// [`LimitError::TooMany`].
pub const fn check_count(what: &'static str, count: usize, most: usize) -> Result<(), LimitError> {
    if count > most { Err(LimitError::TooMany { what, count, most }) } else { Ok(()) }
}

/// The gang with one task for all that are alike, if it is within the limits.
///
/// # Errors
/// [`LimitError::TooMany`].
pub fn merge_tasks(gang: Gang) -> Result<Gang, LimitError> {
    let mut places: HashMap<(Resources, NodeClaim), usize> = HashMap::new();
    let mut merged: Vec<Task> = Vec::new();
    for task in gang.tasks {
        let kind = (task.request.clone(), task.node.clone());
        match places.get(&kind).and_then(|at| merged.get_mut(*at)) {
            Some(same) => {
                same.replicas = same.replicas.saturating_add(task.replicas);
                same.min_available = same.replicas;
            }
            None => {
                places.insert(kind, merged.len());
                merged.push(task);
            }
        }
    }
    check_count("different components", merged.len(), MOST_KINDS)?;
    check_count("words about them", merged.iter().map(count_words).sum(), MOST_WORDS)?;
    Ok(build_all_or_nothing_gang(merged))
}

/// What a task says that is held against nodes.
#[must_use]
pub fn count_words(task: &Task) -> usize {
    let requirement = |values: &Vec<String>| 1 + values.len();
    let terms = task.node.affinity.iter().flat_map(|term| term.labels.iter().chain(&term.fields));
    let said: usize = terms.map(|one| requirement(&one.values)).sum();
    task.request.iter().count()
        + task.node.selector.len()
        + task.node.affinity.len()
        + task.node.tolerations.len()
        + said
}

/// Checks that a reference is made of names: the namespace becomes part of a path in the member's API.
///
/// # Errors
/// [`LimitError::Name`].
pub fn check_reference(of: &ObjectReferenceMessage) -> Result<(), LimitError> {
    let wrong = |what, name: &str| Err(LimitError::Name { what, name: name.chars().take(80).collect() });
    if !is_dns_label(&of.namespace) {
        return wrong("namespace", &of.namespace);
    }
    if !is_dns_subdomain(&of.name) {
        return wrong("workload", &of.name);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use caldera_core::quantity::Quantity;

    use super::*;

    fn task(name: usize, replicas: u32, cpu: i64) -> Task {
        Task {
            name: name.to_string().as_str().into(),
            replicas,
            min_available: replicas,
            request: [("cpu", Quantity::from_units(cpu))].into_iter().collect(),
            node: NodeClaim::default(),
            priority_class: String::new(),
            partition: None,
        }
    }

    #[test]
    fn what_is_alike_is_one_task() {
        let gang = build_all_or_nothing_gang((0..10_000).map(|at| task(at, 2, 1 + at as i64 % 3)).collect());
        let merged = merge_tasks(gang).unwrap();
        let replicas: Vec<u32> = merged.tasks.iter().map(|task| task.replicas).collect();
        assert_eq!((replicas, merged.min_available), (vec![6_668, 6_666, 6_666], 20_000));
        let most = merge_tasks(build_all_or_nothing_gang(vec![task(0, u32::MAX, 1), task(1, u32::MAX, 1)])).unwrap();
        assert_eq!(most.tasks[0].replicas, u32::MAX);
    }

    #[test]
    fn too_many_that_differ_are_reported() {
        let gang = build_all_or_nothing_gang((0..300).map(|at| task(at, 1, 1 + at as i64)).collect());
        assert_eq!(merge_tasks(gang).unwrap_err().to_string(), "300 different components are above 256");
        let mut wordy = task(0, 1, 1);
        wordy.node.selector = (0..5_000).map(|at| (at.to_string(), String::new())).collect();
        assert_eq!(
            merge_tasks(build_all_or_nothing_gang(vec![wordy])).unwrap_err().to_string(),
            "5001 words about them are above 4096"
        );
    }

    #[test]
    fn a_reference_that_leads_elsewhere_is_refused() {
        let reference = |namespace: &str, name: &str| ObjectReferenceMessage {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            namespace: namespace.into(),
            name: name.into(),
        };
        assert_eq!(check_reference(&reference("ns", "web.1")), Ok(()));
        for (namespace, name) in [("default/secrets?x=", "a"), ("", "a"), ("..", "a"), ("ns", "a/b"), ("ns", "")] {
            assert!(check_reference(&reference(namespace, name)).is_err(), "{namespace:?} {name:?}");
        }
    }
}
