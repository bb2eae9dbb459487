//! What a queue, and each queue above it, says of its jobs in annotations: they all count for it.
//!
//! Rule: as the controller reads them, below the root, which says nothing (`caldera_crds::tenancy`). What Caldera
//! itself writes there is not shown.

use caldera_crds::names::{
    caldera::{ACTED_BY, ACTION, PREFIX, QUEUE_STATUS},
    volcano::{CARD_QUOTA, ROOT_QUEUE},
};
use serde::Serialize;
use serde_json::Value;

use crate::objects::{name_of, read_text_at};

/// What Caldera writes of a queue.
const WRITTEN: [&str; 3] = [QUEUE_STATUS, ACTED_BY, ACTION];
/// Queues above one at most: a circle of parents ends.
const MOST_LEVELS_ABOVE: usize = 64;

/// An annotation that counts for a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct QueueSetting {
    /// The annotation's name.
    setting: String,
    /// As it is written.
    value: String,
    /// The queue that says it: this one, or one above it.
    queue: String,
}

impl QueueSetting {
    pub(super) fn cells(&self) -> [String; 3] {
        // Said, and empty, is another thing than not said: of priority classes, that none may be named.
        let value = if self.value.is_empty() { "\"\"" } else { &self.value };
        [self.setting.clone(), value.to_owned(), self.queue.clone()]
    }
}

/// The queue's own first, then those of its parent, up to the root.
pub(super) fn list_settings(queues: &[Value], name: &str) -> Vec<QueueSetting> {
    let find = |name: &str| queues.iter().find(|queue| name_of(queue) == name && name != ROOT_QUEUE);
    let parent = |queue: &&Value| find(read_text_at(queue, "/spec/parent"));
    let path = std::iter::successors(find(name), parent).take(MOST_LEVELS_ABOVE);
    path.flat_map(|queue| {
        let annotations = queue.pointer("/metadata/annotations").and_then(Value::as_object).into_iter().flatten();
        let counts = |name: &str| (name.starts_with(PREFIX) && !WRITTEN.contains(&name)) || name == CARD_QUOTA;
        let said = annotations.filter(move |(name, _)| counts(name));
        said.filter_map(|(setting, value)| {
            let (setting, value) = (setting.clone(), value.as_str()?.to_owned());
            Some(QueueSetting { setting, value, queue: name_of(queue).to_owned() })
        })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn queue(name: &str, parent: &str, annotations: Value) -> Value {
        json!({"metadata": {"name": name, "annotations": annotations}, "spec": {"parent": parent}})
    }

    #[test]
    fn what_the_queues_above_say_counts_and_what_caldera_wrote_is_not_shown() {
        let queues = [
            queue("root", "", json!({"caldera.dev/max-job": "cpu=99"})),
            queue("research", "", json!({"caldera.dev/max-job": "cpu=20", QUEUE_STATUS: "{}", "mine": "x"})),
            queue(
                "vision",
                "research",
                json!({"caldera.dev/max-running-jobs": "3", "volcano.sh/card.quota": "{}",
                "caldera.dev/priority-classes": "", ACTED_BY: "{}", ACTION: "{}"}),
            ),
            queue("other", "", json!({"caldera.dev/max-job": "cpu=1"})),
        ];
        let said = list_settings(&queues, "vision");
        let cells: Vec<String> = said.iter().map(|setting| setting.cells().join(" ")).collect();
        let expected = [
            "caldera.dev/max-running-jobs 3 vision",
            "caldera.dev/priority-classes \"\" vision",
            "volcano.sh/card.quota {} vision",
            "caldera.dev/max-job cpu=20 research",
        ];
        assert_eq!(cells, expected);
        assert_eq!(list_settings(&queues, "gone"), []);
    }

    #[test]
    fn a_circle_of_parents_ends() {
        let queues = [queue("a", "b", json!({"caldera.dev/max-job": "cpu=1"})), queue("b", "a", json!({}))];
        assert_eq!(list_settings(&queues, "a").len(), MOST_LEVELS_ABOVE / 2);
    }
}
