//! Which clusters the jobs of a queue may use, by what its admin says of clusters and theirs of queues.
//!
//! Rule (ours; for clusters what Volcano's nodegroup plugin is for nodes): a queue and each queue above it may say by
//! labels which clusters its jobs use, and all of that must hold. A cluster may say of which queues it is: then only
//! jobs of these, and of queues below them, use it. What is there stays. Workloads of no queue are not looked at.

use std::fmt::Write as _;

use super::{Binding, Cluster};
use crate::gang::{Operator, QueueName, Requirement};

/// What the queues of a job say of clusters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueClusters {
    /// Its queue and those above it, the nearest first.
    pub path: Vec<QueueName>,
    /// What must hold of a cluster's labels.
    pub selector: Vec<Requirement>,
}

impl QueueClusters {
    /// Whether the labels are such as the queues say.
    #[must_use]
    pub fn selects(&self, cluster: &Cluster) -> bool {
        self.selector.iter().all(|label| label.matches(cluster.labels.get(&label.key).map(String::as_str)))
    }

    /// Whether jobs of the queue may use the cluster.
    #[must_use]
    pub fn allows(&self, cluster: &Cluster) -> bool {
        let is_theirs = |queues: &Vec<QueueName>| self.path.iter().any(|queue| queues.contains(queue));
        self.selects(cluster) && cluster.queues.as_ref().is_none_or(is_theirs)
    }

    fn describe_selector(&self) -> String {
        let mut text = String::new();
        for one in &self.selector {
            let (key, values) = (&one.key, one.values.join(","));
            let comma = if text.is_empty() { "" } else { "," };
            // Writing to a text never fails.
            let _ = match one.operator {
                Operator::In => write!(text, "{comma}{key} in ({values})"),
                Operator::NotIn => write!(text, "{comma}{key} notin ({values})"),
                Operator::Exists => write!(text, "{comma}{key}"),
                Operator::DoesNotExist => write!(text, "{comma}!{key}"),
                Operator::Gt => write!(text, "{comma}{key}>{values}"),
                Operator::Lt => write!(text, "{comma}{key}<{values}"),
            };
        }
        text
    }
}

impl Binding {
    /// Whether its queue may use the cluster.
    #[must_use]
    pub fn queue_allows(&self, cluster: &Cluster) -> bool {
        self.queue.as_ref().is_none_or(|queue| queue.allows(cluster))
    }

    /// Why its queue may not use the cluster, if so.
    pub(super) fn describe_queue_refusal(&self, cluster: &Cluster) -> Option<String> {
        let queue = self.queue.as_ref().filter(|queue| !queue.allows(cluster))?;
        let own = queue.path.first()?;
        match &cluster.queues {
            Some(queues) if queue.selects(cluster) => {
                let names: Vec<&str> = queues.iter().map(QueueName::as_str).collect();
                let name = &cluster.name;
                Some(format!(
                    "cluster {name} is for jobs of queue {} alone, and not for those of {own}",
                    names.join(", ")
                ))
            }
            _ => Some(format!("queue {own} uses only clusters whose labels match {:?}", queue.describe_selector())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(labels: &[(&str, &str)], queues: Option<&[&str]>) -> Cluster {
        Cluster {
            name: "m1".into(),
            labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            queues: queues.map(|queues| queues.iter().map(|queue| QueueName::from(*queue)).collect()),
            ..Cluster::default()
        }
    }

    fn binding(path: &[&str], selector: Vec<Requirement>) -> Binding {
        let path = path.iter().map(|queue| QueueName::from(*queue)).collect();
        Binding { queue: Some(QueueClusters { path, selector }.into()), ..Binding::default() }
    }

    fn gold() -> Vec<Requirement> {
        vec![Requirement { key: "tier".into(), operator: Operator::In, values: vec!["gold".into()] }]
    }

    #[test]
    fn a_queue_uses_the_clusters_whose_labels_its_selectors_all_match() {
        let job = binding(&["ml", "all"], gold());
        assert!(job.queue_allows(&cluster(&[("tier", "gold")], None)));
        let refused = cluster(&[("tier", "iron")], None);
        let reported = "queue ml uses only clusters whose labels match \"tier in (gold)\"";
        assert!(!job.queue_allows(&refused));
        assert_eq!(job.describe_queue_refusal(&refused).as_deref(), Some(reported));
        assert!(binding(&["ml"], vec![]).queue_allows(&refused));
    }

    #[test]
    fn a_cluster_of_some_queues_takes_jobs_of_these_and_of_those_below_them() {
        let theirs = cluster(&[], Some(&["ml", "bio"]));
        assert!(binding(&["vision", "ml"], vec![]).queue_allows(&theirs));
        let other = binding(&["web", "all"], vec![]);
        let reported = "cluster m1 is for jobs of queue ml, bio alone, and not for those of web";
        assert_eq!(other.describe_queue_refusal(&theirs).as_deref(), Some(reported));
        assert!(!binding(&["ml"], gold()).queue_allows(&theirs), "both must hold");
        assert!(Binding::default().queue_allows(&theirs), "it is of no queue");
    }
}
