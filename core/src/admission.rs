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
    quantity::Quantity,
    resources::{ResourceName, Resources},
    run_limit::RunLimit,
    time::EpochSeconds,
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
    /// The card model that pods are held to which leave it open, as `nvidia.com/gpu:NVIDIA-A100-SXM4-80GB`; not where
    /// the job had no choice ([`crate::card_choice`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<ResourceName>,
    /// Where one decision granted it beside other jobs that start together with it: when the last of them was made.
    /// Only such a record is taken away because one of those is missing. Not of a job that was granted by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub together: Option<EpochSeconds>,
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

/// What pods ask for beyond their record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uncharged {
    /// Of what.
    pub resource: ResourceName,
    /// All pods together.
    pub asked: Quantity,
    /// By the record.
    pub charged: Quantity,
    /// Both count all pods; else those alone that name no model of it.
    pub names_model: bool,
}

impl Admission {
    /// What all its pods are charged, in all copies, at the requests and models that the gang has now.
    #[must_use]
    pub fn sum_pod_requests(&self, gang: &Gang) -> Resources {
        let mut sum = Resources::new();
        for task in &gang.tasks {
            let pods = u64::from(self.pods_of(&task.name)).saturating_mul(u64::from(self.copies.max(1)));
            sum.add(&task.charge().times(pods));
        }
        sum
    }

    /// Of what pods as these ask for the first that was not charged, with what was. Pods that name no card model may
    /// take no more of a resource than was charged without one; what was charged without any may be of every model.
    #[must_use]
    pub fn find_uncharged(&self, gang: &Gang) -> Option<Uncharged> {
        let asked = self.sum_pod_requests(gang);
        let is_pooled = |name: &ResourceName| {
            let of = name.as_card().map(|(resource, _)| resource);
            of.is_some_and(|of| self.charged.amount_without_model(of) == self.charged.get(of))
        };
        let more = asked.iter().filter(|(name, _)| !is_pooled(name)).find_map(|(name, asked)| {
            let charged = self.charged.get(name.as_str());
            (asked > charged).then(|| Uncharged { resource: name.clone(), asked, charged, names_model: true })
        });
        more.or_else(|| {
            asked.iter().filter(|(name, _)| !name.is_card()).find_map(|(name, _)| {
                let of = |amounts: &Resources| amounts.amount_without_model(name.as_str());
                let (asked, charged) = (of(&asked), of(&self.charged));
                (asked > charged).then(|| Uncharged { resource: name.clone(), asked, charged, names_model: false })
            })
        })
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

    /// All pods that are granted, in all copies.
    #[must_use]
    pub fn count_pods(&self) -> u64 {
        let pods = self.tasks.values().fold(0_u64, |sum, pods| sum.saturating_add(u64::from(*pods)));
        pods.saturating_mul(u64::from(self.copies.max(1)))
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
    use crate::gang::{NodeClaim, Task};

    #[test]
    fn pods_that_name_no_model_any_more_ask_for_what_was_not_charged() {
        let gang = |model: Option<&str>| {
            let label = crate::card_model::label_of_model("x.io/gpu");
            let selector = model.map(|model| (label, model.to_owned())).into_iter().collect();
            let task = Task {
                name: "t".into(),
                replicas: 2,
                min_available: 2,
                request: [("x.io/gpu", Quantity::from_units(4))].into_iter().collect(),
                node: NodeClaim { selector, ..NodeClaim::default() },
                priority_class: String::new(),
                partition: None,
            };
            Gang::new(vec![task], 2)
        };
        let record = |charged: &str| {
            let text = format!(r#"{{"queue":"q","priority":0,"copies":1,"tasks":{{"t":2}},"charged":{charged}}}"#);
            Admission::parse(&text).unwrap()
        };
        let by_model = record(r#"{"x.io/gpu":"8","x.io/gpu:a":"8"}"#);
        assert_eq!(by_model.find_uncharged(&gang(Some("a"))), None);
        let found = |record: &Admission, model| {
            let Uncharged { resource, asked, charged, names_model } = record.find_uncharged(&gang(model)).unwrap();
            (resource.to_string(), asked.to_string(), charged.to_string(), names_model)
        };
        assert_eq!(found(&by_model, Some("b")), ("x.io/gpu:b".into(), "8".into(), "0".into(), true));
        assert_eq!(found(&by_model, None), ("x.io/gpu".into(), "8".into(), "0".into(), false));
        let pooled = record(r#"{"x.io/gpu":"8"}"#);
        assert_eq!([None, Some("a")].map(|model| pooled.find_uncharged(&gang(model))), [None, None]);
        // What is charged of a model that is not named any more stands for no other.
        let both = record(r#"{"x.io/gpu":"8","x.io/gpu:a":"8","x.io/gpu:b":"8"}"#);
        assert_eq!([Some("a"), Some("b")].map(|model| both.find_uncharged(&gang(model))), [None, None]);
        assert_eq!(found(&both, None), ("x.io/gpu".into(), "8".into(), "0".into(), false));
        let partly = record(r#"{"x.io/gpu":"8","x.io/gpu:a":"3"}"#);
        assert_eq!(found(&partly, None), ("x.io/gpu".into(), "8".into(), "5".into(), false));
    }

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
            card: None,
            together: None,
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
        let beside = Admission { together: Some(1_000.into()), ..record.clone() };
        assert!(beside.to_json().ends_with(r#","together":1000}"#), "{}", beside.to_json());
        assert_eq!(Admission::parse(&beside.to_json()).unwrap(), beside);
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
