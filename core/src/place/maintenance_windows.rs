//! Which maintenance windows of a cluster are in a binding's way, and which nodes there are out of them.
//!
//! Rule: [`crate::maintenance`]. A window that names node groups is in the way of what may use their nodes, and of
//! nothing else: what its queue keeps on other nodes starts as if there were none. A gang whose copies are made by a
//! plan is kept off the groups, for as long as the copy is there: the plan says on which nodes it may run, as it does
//! of a network domain. What can not be kept off them in that way takes such a window for one of the whole cluster:
//! other kinds, a gang that must be close, a copy that is there already, and a cluster whose nodes nobody can read.

use std::borrow::Cow;

use super::{Cluster, filter::Filter};
use crate::{
    gang::{Gang, Operator, Requirement},
    inventory::{Capacity, Source},
    maintenance::{ExpectedRun, MaintenanceWindow},
    node_groups::{NODE_GROUP, have_common_nodes},
    plan::PlannedDomain,
};

impl<'a> Filter<'a> {
    /// The same, for a run of this gang at this time. `is_planned`: a plan makes its copies.
    #[must_use]
    pub fn with_run(mut self, run: Option<ExpectedRun>, gang: &'a Gang, is_planned: bool) -> Self {
        let is_close = gang.topology.is_some() || gang.has_close_partitions();
        (self.run, self.groups, self.keeps_off_nodes) = (run, gang.node_groups(), is_planned && !is_close);
        self
    }

    fn list_windows(&self, cluster: &'a Cluster) -> impl Iterator<Item = &'a MaintenanceWindow> {
        let path = self.binding.queue.as_ref().map(|queue| queue.path.as_slice()).unwrap_or_default();
        let own = self.groups;
        let meets = move |window: &&MaintenanceWindow| match (window.nodes(), own) {
            (Some(theirs), Some(own)) => have_common_nodes(own, &theirs),
            _ => true,
        };
        self.run.into_iter().flat_map(|run| cluster.maintenance.list_conflicts(run, path)).filter(meets)
    }

    /// The first maintenance window of the cluster that is in the way of the run, whichever of its nodes that uses.
    fn find_blocking_window<'b>(&'b self, cluster: &'b Cluster) -> Option<&'b MaintenanceWindow> {
        let is_kept_off = self.keeps_off_nodes && !self.is_held_in(cluster);
        self.list_windows(cluster).find(|window| window.node_groups.is_empty() || !is_kept_off)
    }

    /// Whether there is such a window.
    #[must_use]
    pub fn has_maintenance_conflict(&self, cluster: &Cluster) -> bool {
        self.find_blocking_window(cluster).is_some()
    }

    /// Which nodes of the cluster are in no window that is in the way; `None` where all are.
    #[must_use]
    pub fn find_nodes_outside_windows(&self, cluster: &Cluster) -> Option<Requirement> {
        let mut values: Vec<String> =
            self.list_windows(cluster).flat_map(|window| &window.node_groups).cloned().collect();
        values.sort();
        values.dedup();
        (!values.is_empty()).then(|| Requirement { key: NODE_GROUP.to_owned(), operator: Operator::NotIn, values })
    }

    /// What the cluster has on these nodes; nothing where nobody knows which they are.
    #[must_use]
    pub fn keep_outside_windows<'c>(&self, cluster: &Cluster, capacity: &'c Capacity) -> Cow<'c, Capacity> {
        match self.find_nodes_outside_windows(cluster) {
            None => Cow::Borrowed(capacity),
            Some(outside) if capacity.source == Source::Nodes => Cow::Owned(capacity.keep_nodes(&outside)),
            Some(_) => Cow::Owned(Capacity::default()),
        }
    }

    /// Why the run can not start in the cluster, or on some of its nodes: for the first window that keeps it out, or
    /// else off some.
    #[must_use]
    pub fn describe_window(&self, cluster: &Cluster) -> Option<String> {
        let window = self.find_blocking_window(cluster).or_else(|| self.list_windows(cluster).next())?;
        Some(window.describe_conflict(&cluster.name, self.run?))
    }
}

/// How a plan says that pods are kept on these nodes.
pub(super) fn build_planned_domain(outside: &Requirement) -> PlannedDomain {
    let name = format!("not in {}", outside.values.join(", "));
    PlannedDomain { name, nodes: vec![vec![outside.clone()]], ..PlannedDomain::default() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        gang::{NodeClaim, NodeTerm, QueueName, Task, Topology},
        inventory::{Amounts, NodeShape},
        place::{self, Binding, Decision, Division, NotPlaced, Placement, QueueClusters, Request, Target},
        plan::Plan,
        quantity::Quantity,
        time::EpochSeconds,
    };

    /// Four cores in group a100, and four in no group.
    fn capacity() -> Capacity {
        let shape = |(name, group): (&str, Option<&str>)| {
            let free: Amounts = [("cpu".into(), Quantity::from_units(4))].into();
            let labels = group.into_iter().map(|group| (NODE_GROUP.to_owned(), group.to_owned())).collect();
            let (allocatable, free) = (Arc::new(free.clone()), Arc::new(free));
            NodeShape {
                labels: Some(Arc::new(labels)),
                allocatable,
                free,
                nodes: vec![name.into()],
                ..NodeShape::default()
            }
        };
        Capacity::new([("n0", Some("a100")), ("n1", None)].map(shape).into(), Source::Nodes)
    }

    fn gang(pods: u32) -> Gang {
        let task = Task {
            name: "w".into(),
            replicas: pods,
            min_available: pods,
            request: [("cpu", Quantity::from_units(1))].into_iter().collect(),
            node: NodeClaim::default(),
            priority_class: String::new(),
            partition: None,
        };
        Gang::new(vec![task], pods)
    }

    fn binding(pods: i64) -> Binding {
        Binding {
            api_version: "v1".into(),
            kind: "Job".into(),
            replicas: pods,
            divisible: true,
            is_workload: true,
            placement: Placement { division: Some(Division::Aggregated), ..Placement::default() },
            ..Binding::default()
        }
    }

    /// Where it would go during a window, with its plan, or the refusal with all reasons.
    struct Asked {
        binding: Binding,
        gang: Gang,
        whole: bool,
        previous: Option<Plan>,
        capacity: Capacity,
    }

    impl Asked {
        fn of(pods: u32) -> Self {
            let (binding, gang) = (binding(pods.into()), gang(pods));
            Self { binding, gang, whole: true, previous: None, capacity: capacity() }
        }

        fn place(&self, more: &str) -> Result<Decision, String> {
            let text = format!(r#"[{{"start":"1970-01-01T08:00:00Z","end":"1970-01-01T09:00:00Z"{more}}}]"#);
            let cluster = Cluster {
                name: "m1".into(),
                ready: true,
                serves: [("v1".to_owned(), "Job".to_owned())].into(),
                maintenance: text.parse().unwrap(),
                ..Cluster::default()
            };
            let run = Some(ExpectedRun { from: EpochSeconds::new(8 * 3600), ends: None, limit: None, delay: 0 });
            let Self { binding, gang, whole, previous, capacity } = self;
            let clusters = vec![(&cluster, capacity)];
            let previous = previous.as_ref();
            let request = Request { binding, gang, whole: *whole, previous, clusters, linked: &[], run };
            place::place_binding(&request)
                .map_err(|refusal: NotPlaced| place::append_reasons(refusal.to_string(), &request, std::iter::empty()))
        }
    }

    const GROUP: &str = r#","nodeGroups":["a100"]"#;
    const WINDOW: &str = "in cluster m1 maintenance is from 1970-01-01T08:00:00Z to 1970-01-01T09:00:00Z of the node \
                          groups a100: nothing starts there until then";

    #[test]
    fn of_a_window_of_node_groups_only_their_nodes_count_as_taken_and_the_plan_keeps_pods_off_them() {
        let decision = Asked::of(4).place(GROUP).unwrap();
        let domain = decision.plan.unwrap().clusters.remove("m1").unwrap().domain.unwrap();
        let outside = Requirement { key: NODE_GROUP.into(), operator: Operator::NotIn, values: vec!["a100".into()] };
        assert_eq!(domain.nodes, [[outside]]);
        let refused = Asked::of(5).place(GROUP).unwrap_err();
        assert!(refused.starts_with("needs 5 pods at once; 4 fit now") && refused.ends_with(WINDOW), "{refused}");
        assert!(Asked::of(4).place("").is_err(), "all nodes are taken where it names no group");
        let other = Asked::of(8).place(r#","nodeGroups":["t4"]"#).unwrap().plan.unwrap();
        assert_eq!(other.replicas(), 8, "no node is in it");
    }

    #[test]
    fn what_its_queue_keeps_on_other_nodes_starts_as_if_there_were_no_window() {
        let mut asked = Asked::of(4);
        let own = |operator, values: &[&str]| {
            let values = values.iter().map(|value| (*value).to_owned()).collect();
            vec![NodeTerm { labels: vec![Requirement { key: NODE_GROUP.into(), operator, values }], fields: vec![] }]
        };
        asked.gang.tasks[0].node.affinity = own(Operator::DoesNotExist, &[]);
        let plan = asked.place(GROUP).unwrap().plan.unwrap();
        assert_eq!(plan.clusters["m1"].domain, None);
        asked.whole = false;
        assert!(asked.place(GROUP).is_ok(), "and of whatever kind");
        asked.gang.tasks[0].node.affinity = own(Operator::In, &["a100"]);
        asked.whole = true;
        assert!(asked.place(GROUP).unwrap_err().ends_with(WINDOW));
    }

    #[test]
    fn what_can_not_be_kept_off_nodes_takes_the_window_for_one_of_the_whole_cluster() {
        let refused = |asked: &Asked| asked.place(GROUP).unwrap_err();
        let other_kind = Asked { whole: false, ..Asked::of(1) };
        assert!(refused(&other_kind).ends_with(WINDOW), "{}", refused(&other_kind));
        let mut close = Asked::of(1);
        close.gang.topology = Some(Topology { hard: true, highest_tier: Some(1), highest_tier_name: None });
        assert!(refused(&close).ends_with(WINDOW));
        let mut unread = Asked::of(1);
        unread.capacity.source = Source::Summary;
        assert!(refused(&unread).ends_with(WINDOW));
        // A copy that is there keeps its template: it gets no more pods, and what is there stays.
        let mut grows = Asked::of(2);
        grows.binding.previous = vec![Target { cluster: "m1".into(), replicas: 1 }];
        let previous = Asked::of(1).place(r#","queues":["q"],"nodeGroups":["t4"]"#).unwrap().plan;
        grows.previous = previous;
        assert!(refused(&grows).ends_with(WINDOW), "{}", refused(&grows));
    }

    #[test]
    fn jobs_of_the_queues_that_a_window_is_kept_for_start_in_it() {
        let mut asked = Asked::of(8);
        let path: Vec<QueueName> = vec!["kernels".into(), "ops".into()];
        asked.binding.queue = Some(QueueClusters { path, selector: vec![] }.into());
        let plan = asked.place(r#","queues":["ops"]"#).unwrap().plan.unwrap();
        assert_eq!((plan.replicas(), &plan.clusters["m1"].domain), (8, &None));
        let refused = asked.place(r#","queues":["ml"]"#).unwrap_err();
        assert!(refused.contains("for all but jobs of queue ml: nothing else starts there until then"), "{refused}");
    }
}
