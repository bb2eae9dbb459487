//! Placement within what the queues of the members' own Volcano let start.
//!
//! Rule (Volcano `pkg/scheduler/plugins/capacity`): nothing new starts in a queue that is Closed or Closing (its
//! webhook refuses jobs for it), nor beyond its capability; a resource that the capability does not name is not
//! bounded. A queue that is not there bounds nothing: whoever brings the job may bring the queue, and the scheduler
//! waits for it (`queue_arrival` there).
//!
//! A cluster whose queue is closed takes nothing new: what is there stays. If a decision puts more into a cluster than
//! its queue has left, the decision is made again with no more than that free there. What is left is given to the nodes
//! in their fixed order, so a gang of several tasks may be refused there although another arrangement would do.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use super::{Decision, NotPlaced, Request, place_binding};
use crate::{
    gang::{ClusterName, Gang},
    inventory::{Capacity, NodeShape},
    plan::Plan,
    quantity::Quantity,
    resources::{Limits, Resources},
};

/// Queues by name.
pub type Queues = BTreeMap<String, MemberVolcanoQueue>;

/// A queue of a member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemberVolcanoQueue {
    /// As in its status, empty before its controller has seen it.
    pub state: String,
    /// The most that its pods may hold, of what is bounded.
    pub capability: Limits,
    /// What they hold of that.
    pub allocated: Resources,
}

impl MemberVolcanoQueue {
    /// Whether nothing new starts in it.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.state.as_str(), "Closed" | "Closing")
    }

    /// What more its pods may hold, of what is bounded.
    #[must_use]
    pub fn compute_quota_left(&self) -> Limits {
        let mut left = Limits::unlimited();
        for (name, most) in self.capability.iter() {
            left.set(name.clone(), most.saturating_sub(self.allocated.get(name.as_str())));
        }
        left
    }
}

/// [`place_binding`], where `queue` says of a cluster what its queue for this workload is.
///
/// # Errors
/// [`NotPlaced`], and for each cluster that a queue bounded a sentence that says so.
pub fn place_within_queues<'q>(
    request: &Request<'_>,
    queue: impl Fn(&str) -> Option<&'q MemberVolcanoQueue>,
) -> Result<Decision, (NotPlaced, Vec<String>)> {
    let mut bounded = Vec::new();
    let mut clusters: Vec<(&super::Cluster, Cow<'_, Capacity>)> = Vec::with_capacity(request.clusters.len());
    for (cluster, capacity) in &request.clusters {
        match queue(&cluster.name).filter(|queue| queue.is_closed()) {
            None => clusters.push((cluster, Cow::Borrowed(*capacity))),
            Some(closed) => {
                bounded.push(format!("{}: its own queue is {}", cluster.name, closed.state));
                if request.binding.is_target(&cluster.name) {
                    clusters.push((cluster, Cow::Owned(capacity.with_shapes(Vec::new()))));
                }
            }
        }
    }
    loop {
        let now = clusters.iter().map(|(cluster, capacity)| (*cluster, &**capacity)).collect();
        let decision = match place_binding(&Request { clusters: now, ..request.clone() }) {
            Ok(decision) => decision,
            Err(error) => return Err((error, bounded)),
        };
        // A cluster is bounded once, so that this ends.
        let mut exceeds = None;
        for (at, (cluster, capacity)) in clusters.iter().enumerate() {
            if matches!(capacity, Cow::Owned(_)) {
                continue;
            }
            let Some(left) = queue(&cluster.name).map(MemberVolcanoQueue::compute_quota_left) else { continue };
            let asked = compute_added_demand(&decision, request, &cluster.name);
            if left.iter().any(|(name, left)| asked.get(name.as_str()) > left) {
                let numbers: Vec<String> = left.iter().map(|(name, amount)| format!("{name} {amount}")).collect();
                bounded.push(format!("{}: its own queue has {} left", cluster.name, numbers.join(", ")));
                exceeds = Some((at, limit_capacity(capacity, request.gang, &left)));
                break;
            }
        }
        match exceeds {
            Some((at, less)) => clusters[at].1 = Cow::Owned(less),
            None => return Ok(decision),
        }
    }
}

/// What a decision adds in a cluster to what is there.
fn compute_added_demand(decision: &Decision, request: &Request<'_>, cluster: &str) -> Resources {
    let share = |plan: Option<&Plan>| plan.and_then(|plan| plan.clusters.get(&ClusterName::from(cluster))).cloned();
    let (now, before) = (share(decision.plan.as_ref()), share(request.previous));
    let mut asked = Resources::new();
    for task in &request.gang.tasks {
        let pods = |share: &Option<crate::plan::ClusterShare>| {
            share.as_ref().and_then(|share| share.tasks.get(&task.name)).map_or(0, |task| task.replicas)
        };
        asked.add(&task.request.times(u64::from(pods(&now).saturating_sub(pods(&before)))));
    }
    asked
}

/// The capacity with no more than `left` free in all. For a gang of one task as many of its pods fit as would in
/// `left`.
fn limit_capacity(capacity: &Capacity, gang: &Gang, left: &Limits) -> Capacity {
    let mut left: BTreeMap<_, Quantity> = left.iter().map(|(name, amount)| (name.clone(), amount)).collect();
    let sole = match gang.tasks.as_slice() {
        [task] => Some(&task.request),
        _ => None,
    };
    let mut shapes: Vec<NodeShape> = Vec::new();
    for shape in &capacity.shapes {
        for node in shape.nodes_with_domains() {
            let mut part = shape.of_nodes(std::iter::once(node));
            let most = sole.map(|request| count_pods_per_node(request, &part));
            let free = Arc::make_mut(&mut part.free);
            for (name, left) in &mut left {
                let Some(amount) = free.get_mut(name) else { continue };
                let useful = match (sole, most) {
                    (Some(request), Some(most)) => (*amount).min(request.times(most).get(name.as_str())),
                    _ => *amount,
                };
                *amount = useful.min(*left);
                *left = left.saturating_sub(*amount);
            }
            shapes.push(part);
        }
    }
    capacity.with_shapes(shapes)
}

/// Pods that fit a node by their requests.
fn count_pods_per_node(request: &Resources, node: &NodeShape) -> u64 {
    request.count_fits_in(&Resources::from(&*node.free)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        gang::{NodeClaim, Task},
        inventory::{NodeRef, Source},
        place::{Binding, Cluster, Division, Placement, Target},
    };

    fn amounts(cpu: i64, gpu: i64) -> Resources {
        [("cpu", cpu), ("gpu", gpu), ("pods", 1)].into_iter().map(|(n, a)| (n, Quantity::from_units(a))).collect()
    }

    fn gang(replicas: u32) -> Gang {
        let task = Task {
            name: "w".into(),
            replicas,
            min_available: replicas,
            request: amounts(1, 1),
            node: NodeClaim::default(),
            priority_class: String::new(),
            partition: None,
        };
        Gang::new(vec![task], replicas)
    }

    /// Four nodes of 16 cores and two cards.
    fn capacity() -> Capacity {
        let mut free = amounts(16, 2);
        free.set("pods", Quantity::from_units(10));
        let free: Arc<crate::inventory::Amounts> = Arc::new(free.iter().map(|(n, a)| (n.clone(), a)).collect());
        let nodes = ["a", "b", "c", "d"].map(NodeRef::from).into();
        let labels = Some(Arc::default());
        Capacity::new(
            vec![NodeShape { labels, allocatable: free.clone(), free, nodes, ..NodeShape::default() }],
            Source::Nodes,
        )
    }

    fn queue(state: &str, cpu: Option<(i64, i64)>) -> MemberVolcanoQueue {
        let mut queue = MemberVolcanoQueue { state: state.into(), ..MemberVolcanoQueue::default() };
        if let Some((most, has)) = cpu {
            queue.capability.set("cpu", Quantity::from_units(most));
            queue.allocated.set("cpu", Quantity::from_units(has));
        }
        queue
    }

    fn serves() -> crate::place::Apis {
        [(String::new(), String::new())].into()
    }

    /// Pods by cluster, or why not and who was bounded.
    type Placed = Result<Vec<(String, i64)>, (String, Vec<String>)>;

    /// Two equal members with these queues; where pods go, or why not.
    fn placed(replicas: u32, previous: Option<&Plan>, queues: &[MemberVolcanoQueue]) -> Placed {
        let clusters: Vec<Cluster> = ["m0", "m1"]
            .map(|name| Cluster { name: name.into(), ready: true, serves: serves(), ..Cluster::default() })
            .into();
        let (gang, capacity) = (gang(replicas), capacity());
        let held = previous.iter().flat_map(|plan| &plan.clusters).map(|(name, share)| Target {
            cluster: name.to_string(),
            replicas: share.tasks.values().map(|task| i64::from(task.replicas)).sum(),
        });
        let binding = Binding {
            replicas: replicas.into(),
            divisible: true,
            is_workload: true,
            previous: held.collect(),
            placement: Placement { division: Some(Division::Aggregated), ..Placement::default() },
            ..Binding::default()
        };
        let clusters = clusters.iter().map(|cluster| (cluster, &capacity)).collect();
        let request =
            Request { binding: &binding, gang: &gang, whole: true, previous, clusters, linked: &[], run: None };
        let queue = |name: &str| queues.get(usize::from(name == "m1"));
        let reported =
            |decision: Decision| decision.targets.into_iter().map(|one| (one.cluster, one.replicas)).collect();
        place_within_queues(&request, queue).map(reported).map_err(|(error, bounded)| (error.to_string(), bounded))
    }

    fn to(targets: &[(&str, i64)]) -> Vec<(String, i64)> {
        targets.iter().map(|(name, pods)| ((*name).to_owned(), *pods)).collect()
    }

    #[test]
    fn a_member_whose_queue_is_closed_takes_nothing_new() {
        assert_eq!(placed(4, None, &[queue("Closed", None), queue("Open", None)]), Ok(to(&[("m1", 4)])));
        assert_eq!(placed(4, None, &[queue("", None), queue("Closing", None)]), Ok(to(&[("m0", 4)])));
        let (_, bounded) = placed(4, None, &[queue("Closed", None), queue("Closing", None)]).unwrap_err();
        assert_eq!(bounded, ["m0: its own queue is Closed", "m1: its own queue is Closing"]);
        // Unknown is as good as open.
        assert_eq!(placed(4, None, &[]), Ok(to(&[("m0", 4)])));
    }

    #[test]
    fn what_is_in_a_closed_queue_stays_and_grows_elsewhere() {
        let part = crate::plan::TaskShare { replicas: 2, min_available: 2 };
        let share =
            crate::plan::ClusterShare { tasks: [("w".into(), part)].into(), min_available: 2, ..Default::default() };
        let plan = Plan { clusters: [("m0".into(), share)].into() };
        let queues = [queue("Closed", None), queue("Open", None)];
        assert_eq!(placed(4, Some(&plan), &queues), Ok(to(&[("m0", 2), ("m1", 2)])));
    }

    /// Eight pods of a core and a card fit each member: two to a node, though the queue's cores would fit one node.
    #[test]
    fn no_member_gets_more_than_its_queue_has_left() {
        let open = || queue("Open", None);
        assert_eq!(placed(8, None, &[queue("Open", Some((20, 12))), open()]), Ok(to(&[("m0", 8)])));
        assert_eq!(placed(8, None, &[queue("Open", Some((20, 13))), open()]), Ok(to(&[("m1", 8)])));
        assert_eq!(placed(13, None, &[queue("Open", Some((20, 13))), open()]), Ok(to(&[("m0", 5), ("m1", 8)])));
        let full = [queue("Open", Some((5, 1))), queue("Open", Some((5, 5)))];
        assert_eq!(placed(4, None, &full), Ok(to(&[("m0", 4)])));
        let (refusal, bounded) = placed(5, None, &full).unwrap_err();
        assert!(refusal.starts_with("needs 5 pods at once; 4 fit now"), "{refusal}");
        assert_eq!(bounded, ["m0: its own queue has cpu 4 left", "m1: its own queue has cpu 0 left"]);
    }
}
