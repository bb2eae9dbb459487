//! The admission record: what the controller granted to a job when it opened the gate of its binding. Kueue's
//! `status.admission`, kept as annotation `caldera.dev/admission` (JSON).
//!
//! Rule: it is written in the patch that opens the gate, and made smaller or larger by later ones. The scheduler never
//! places more, and a restarted controller computes every charge from it. `charged` is for all copies together, `tasks`
//! is the most pods in each copy. A text that charges less than nothing, or whose run takes no time, is no record.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::Error as _};

use crate::{
    gang::{Gang, QueueName, Requirement, SOLE_TASK, TaskName},
    node_groups::NodeRestriction,
    resources::Resources,
    run_limit::RunLimit,
};

/// An admission. `charged` is for all copies together, `tasks` is for each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Admission {
    /// The queue that is charged.
    pub queue: QueueName,
    /// Those above it at that time, the nearest first and without the root: charged too while the queue itself, or what
    /// it says about them, is gone. Not in records of before there was this, and not where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub above: Vec<QueueName>,
    /// The job's priority at that time.
    pub priority: i32,
    /// Clusters that each run the whole job (Duplicated placement); 1 where the job is divided.
    pub copies: u32,
    /// Most pods of each task, in each copy.
    pub tasks: BTreeMap<TaskName, u32>,
    /// What the queue is charged until the job is placed: all copies.
    pub charged: Resources,
    /// How long this run may take. Not where nothing limits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunLimit>,
    /// How far the data that its claims name was known. Not of a workload without claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<KnownData>,
    /// Which nodes its pods may use. As long as it is placed, since members let nobody change a template.
    #[serde(default, skip_serializing_if = "NodeRestriction::is_empty")]
    pub nodes: NodeRestriction,
    /// What must hold of the labels of clusters that it goes to, by its queues.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<Requirement>,
}

/// The versions of what a decision about a workload with DataSourceClaims rests on. Nobody places it who knows less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KnownData {
    /// The highest resourceVersion of its claims.
    pub claims: u64,
    /// The highest resourceVersion of the sources that they are bound to.
    pub sources: u64,
}

impl KnownData {
    /// Whether who has followed claims and sources as far as `seen` knows all of this.
    #[must_use]
    pub const fn is_within(self, seen: Self) -> bool {
        self.claims <= seen.claims && self.sources <= seen.sources
    }
}

impl Admission {
    /// What all its pods ask for, in all copies, at the requests that the gang has now.
    #[must_use]
    pub fn sum_pod_requests(&self, gang: &Gang) -> Resources {
        let mut sum = Resources::new();
        for task in &gang.tasks {
            let pods = u64::from(self.pods_of(&task.name)).saturating_mul(u64::from(self.copies.max(1)));
            sum.add(&task.request.times(pods));
        }
        sum
    }

    /// Reads the annotation.
    ///
    /// # Errors
    /// If the text is not an admission: then there is none. One of less than nothing is none: it would give the quota
    /// away that others hold. Nor is one for no time.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        let record: Self = serde_json::from_str(text)?;
        if record.charged.iter().any(|(_, amount)| amount.is_negative()) {
            return Err(serde_json::Error::custom("it charges less than nothing"));
        }
        if record.run.is_some_and(|run| run.seconds < 1) {
            return Err(serde_json::Error::custom("its run may take no time"));
        }
        Ok(record)
    }

    /// Most pods of a task, in each copy. A workload without tasks may be recorded under any name.
    #[must_use]
    pub fn pods_of(&self, task: &TaskName) -> u32 {
        match self.tasks.get(task) {
            Some(pods) => *pods,
            None if self.tasks.len() == 1 && task.as_str() == SOLE_TASK => self.tasks.values().copied().sum(),
            None => 0,
        }
    }

    /// The annotation's text.
    #[must_use]
    pub fn to_json(&self) -> String {
        // A map with string keys always serializes.
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::Quantity;

    #[test]
    fn a_record_reads_back_and_a_broken_one_is_no_record() {
        let record = Admission {
            queue: "ml".into(),
            above: Vec::new(),
            priority: 7,
            copies: 2,
            tasks: [("worker".into(), 3)].into(),
            charged: [("cpu", Quantity::from_milli(1500))].into_iter().collect(),
            run: None,
            data: None,
            nodes: NodeRestriction::default(),
            clusters: Vec::new(),
        };
        let text = record.to_json();
        assert_eq!(text, r#"{"queue":"ml","priority":7,"copies":2,"tasks":{"worker":3},"charged":{"cpu":"1500m"}}"#);
        assert_eq!(Admission::parse(&text).unwrap(), record);
        assert!(Admission::parse("{}").is_err());
        assert!(Admission::parse(&text.replace("1500m", "-1")).is_err(), "less than nothing");
        let nested = Admission { above: vec!["research".into(), "company".into()], ..record.clone() };
        assert!(nested.to_json().starts_with(r#"{"queue":"ml","above":["research","company"],"priority":7,"#));
        assert_eq!(Admission::parse(&nested.to_json()).unwrap(), nested);
        let limited = Admission { run: Some(RunLimit { from: 1_000.into(), seconds: 60 }), ..record.clone() };
        assert!(limited.to_json().ends_with(r#","run":{"from":1000,"seconds":60}}"#), "{}", limited.to_json());
        assert_eq!(Admission::parse(&limited.to_json()).unwrap(), limited);
        for wrong in ["0", "-1", "1.5", "\"60\"", "9223372036854775808", "null"] {
            assert!(Admission::parse(&limited.to_json().replace("60", wrong)).is_err(), "a run of {wrong} s");
        }
        let claims = Admission { data: Some(KnownData { claims: 12, sources: 7 }), ..record.clone() };
        assert!(claims.to_json().ends_with(r#","data":{"claims":12,"sources":7}}"#), "{}", claims.to_json());
        assert_eq!(Admission::parse(&claims.to_json()).unwrap(), claims);
        let nodes = crate::node_groups::restrict_nodes(None, true);
        let kept = Admission { nodes, ..record.clone() };
        let nodes =
            r#","nodes":{"required":[{"key":"volcano.sh/nodegroup-name","operator":"DoesNotExist","values":[]}]}}"#;
        assert!(kept.to_json().ends_with(nodes), "{}", kept.to_json());
        assert_eq!(Admission::parse(&kept.to_json()).unwrap(), kept);
        assert!(Admission::parse(&kept.to_json().replace("DoesNotExist", "Like")).is_err());
        assert_eq!(["worker", SOLE_TASK, "other"].map(|task| record.pods_of(&task.into())), [3, 3, 0]);
    }
}
