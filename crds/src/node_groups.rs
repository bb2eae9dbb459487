//! A Queue's `spec.affinity` as placement reads it ([`caldera_core::node_groups`]), and what is wrong with one.
//!
//! Rule: groups are values of a node's label, so one that no label can have is no node's: it is left out. Volcano's
//! schema takes any text, and any number of groups; the host's webhook takes 64 in a list, for each release says them
//! again.

use std::collections::BTreeSet;

use caldera_core::node_groups::NodeGroupAffinity;
use serde::Deserialize as _;
use serde_json::Value;

use crate::{
    selector::is_label_value,
    volcano::scheduling::{NodeGroupAffinity as Groups, QueueAffinity},
};

/// Groups in one list at most.
const MOST_GROUPS: usize = 64;
/// Characters of a wrong name that are said again.
const SAID_AGAIN: usize = 40;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// The affinity that a queue says.
#[must_use]
pub fn read_affinity(affinity: &QueueAffinity) -> NodeGroupAffinity {
    let groups =
        |list: &[String]| -> BTreeSet<String> { list.iter().filter(|name| is_label_value(name)).cloned().collect() };
    let read = |one: &Option<Groups>| {
        one.as_ref().map_or_else(Default::default, |one| {
            let required = groups(&one.required_during_scheduling_ignored_during_execution);
            (required, groups(&one.preferred_during_scheduling_ignored_during_execution))
        })
    };
    let ((required, preferred), (avoided, avoided_if_possible)) =
        (read(&affinity.node_group_affinity), read(&affinity.node_group_anti_affinity));
    NodeGroupAffinity { required, preferred, avoided, avoided_if_possible }
}

/// What is wrong with a queue's affinity: each time the field, and why.
#[must_use]
pub fn list_affinity_problems(affinity: &QueueAffinity) -> Vec<(String, String)> {
    let mut problems = Vec::new();
    for (name, one) in [
        ("nodeGroupAffinity", &affinity.node_group_affinity),
        ("nodeGroupAntiAffinity", &affinity.node_group_anti_affinity),
    ] {
        let Some(one) = one else { continue };
        for (list, groups) in [
            (REQUIRED, &one.required_during_scheduling_ignored_during_execution),
            (PREFERRED, &one.preferred_during_scheduling_ignored_during_execution),
        ] {
            let field = format!("spec.affinity.{name}.{list}");
            if groups.len() > MOST_GROUPS {
                problems.push((field.clone(), format!("{} groups are more than {MOST_GROUPS}", groups.len())));
            }
            if let Some(wrong) = groups.iter().find(|group| !is_label_value(group)) {
                let said: String = wrong.chars().take(SAID_AGAIN).collect();
                problems.push((field, format!("{said:?} is no value that a label can have: no node is in that group")));
            }
        }
    }
    let read = read_affinity(affinity);
    if !read.is_empty() && read.score_admitted_groups().is_empty() {
        let why = "it names groups to avoid and none to use, so that no job of the queue would start: name those that \
                   it may use under nodeGroupAffinity";
        problems.push(("spec.affinity".to_owned(), why.to_owned()));
    }
    problems
}

/// The same of a Queue's JSON. What is of another shape the API server's schema refuses.
pub(crate) fn list_problems_of(queue: &Value) -> Vec<(String, String)> {
    let affinity = queue.pointer("/spec/affinity").and_then(|affinity| QueueAffinity::deserialize(affinity).ok());
    affinity.map(|affinity| list_affinity_problems(&affinity)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn affinity(affinity: &[&str], anti: &[&str]) -> Value {
        json!({"nodeGroupAffinity": {REQUIRED: affinity}, "nodeGroupAntiAffinity": {REQUIRED: anti}})
    }

    fn problems(affinity: Value) -> Vec<(String, String)> {
        list_problems_of(&json!({"metadata": {"name": "q"}, "spec": {"affinity": affinity}}))
    }

    #[test]
    fn placement_and_the_list_of_names_say_the_same_label() {
        assert_eq!(crate::names::volcano::NODE_GROUP, caldera_core::node_groups::NODE_GROUP);
    }

    #[test]
    fn the_four_lists_are_read_and_what_no_node_has_is_left_out() {
        let text = json!({
            "nodeGroupAffinity": {REQUIRED: ["a", "not a label", ""], PREFERRED: ["b"]},
            "nodeGroupAntiAffinity": {REQUIRED: ["c"], PREFERRED: ["d", "d"]},
        });
        let read = read_affinity(&QueueAffinity::deserialize(&text).unwrap());
        let set = |name: &str| BTreeSet::from([name.to_owned()]);
        let want = NodeGroupAffinity {
            required: set("a"),
            preferred: set("b"),
            avoided: set("c"),
            avoided_if_possible: set("d"),
        };
        assert_eq!(read, want);
        assert_eq!(read_affinity(&QueueAffinity::default()), NodeGroupAffinity::default());
    }

    #[test]
    fn each_fault_is_reported_with_its_field() {
        assert_eq!(problems(affinity(&["a"], &["b"])), []);
        assert_eq!(problems(json!(null)), []);
        assert_eq!(problems(json!({"nodeGroupAffinity": {}})), [], "it says nothing, and is allowed");
        let reported =
            |of: Value| problems(of).into_iter().map(|(field, why)| format!("{field}: {why}")).collect::<Vec<_>>();
        let wrong = reported(affinity(&["a b"], &[]));
        let field = format!("spec.affinity.nodeGroupAffinity.{REQUIRED}");
        assert_eq!(wrong, [format!("{field}: \"a b\" is no value that a label can have: no node is in that group")]);
        let many: Vec<String> = (0..65).map(|number| format!("g{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(reported(affinity(&many, &[])), [format!("{field}: 65 groups are more than 64")]);
        for none in [affinity(&[], &["a"]), affinity(&["a"], &["a"])] {
            let reported = reported(none);
            assert!(
                reported.len() == 1 && reported[0].starts_with("spec.affinity: it names groups to avoid"),
                "{reported:?}"
            );
        }
    }
}
