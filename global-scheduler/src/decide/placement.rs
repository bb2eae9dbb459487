//! The decision about one binding: place it, confirm that it is placed, refuse it with a reason, or do nothing.
//!
//! Rule: karmada-scheduler's `doScheduleBinding` (`pkg/scheduler/scheduler.go`) schedules a binding again when its
//! placement changed, its replicas changed, a reschedule was triggered, it is duplicated, or a target is going away. In
//! addition: never more than the controller granted; a gang never below its minimum; a gang that was placed smaller
//! than it wants grows when there is capacity; what fits nowhere goes where nodes may come for it; a gang with a
//! rendezvous moves as a whole (`rendezvous_gang`); a job that has ended as a whole leaves the clusters where it still
//! runs (`ended_job`). A binding that is not queued is placed just as karmada-scheduler would.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use caldera_core::{
    admission::Admission,
    fleet::Fleet,
    gang::Gang,
    inventory::Capacity,
    place::{self, Cluster, Decision, NotPlaced, Peers, Request, spread_constraints::is_duplicated},
    plan::{ClusterShare, Plan, TaskShare},
    text::count_noun,
};
use caldera_crds::workload::WorkloadKind;

pub use super::verdict::*;
use super::{applied_placement::has_placement_changed, ended_job, rendezvous_gang};
pub use crate::observe::cache::SchedulingContext;
use crate::observe::{binding::Binding, cache::WorkloadRequest};

/// What is to be placed of a binding.
struct PlacementRequest<'a> {
    gang: Cow<'a, Gang>,
    /// As a gang, not divided as Karmada divides.
    whole: bool,
    /// Clusters that it may be duplicated to; `None` for any number.
    copies: Option<usize>,
    /// The plan of what it has.
    previous: Option<Plan>,
}

/// What is to be placed of a binding, if it is to be placed and is not settled; else what to do about it.
fn build_unsettled_request<'a>(
    binding: &'a Binding,
    request: Option<&'a WorkloadRequest>,
    fleet: &Fleet,
) -> Result<PlacementRequest<'a>, Verdict> {
    let job = build_placement_request(binding, request)?;
    let kept = request.filter(|_| job.whole).and_then(|known| ended_job::decide_kept_clusters(binding, known));
    if let Some(decision) = kept {
        return Err(Verdict { step: Step::Place(decision), awaits_capacity: false });
    }
    if is_settled(binding, &job.gang, job.previous.as_ref(), job.whole, fleet) {
        return Err(Verdict { step: status_step(binding, false), awaits_capacity: false });
    }
    Ok(job)
}

/// The gang of a binding, if it is to be placed.
#[must_use]
pub fn find_gang_to_place(binding: &Binding, request: Option<&WorkloadRequest>, fleet: &Fleet) -> Option<Arc<Gang>> {
    build_unsettled_request(binding, request, fleet).ok().map(|job| Arc::new(job.gang.into_owned()))
}

/// Decides about a binding by what its workload requests, by what other objects say about it, and by the fleet. Where
/// the nodes of a cluster can not be read, `estimated` may know better than its summary.
#[must_use]
pub fn decide_binding(
    binding: &Binding,
    request: Option<&WorkloadRequest>,
    context: SchedulingContext,
    fleet: &Fleet,
    estimated: &BTreeMap<String, Capacity>,
) -> Verdict {
    let job = match build_unsettled_request(binding, request, fleet) {
        Ok(job) => job,
        Err(verdict) => return verdict,
    };
    let (gang, whole, previous) = (&*job.gang, job.whole, job.previous.as_ref());
    let has_rendezvous = gang.rigid && whole && !is_duplicated(binding.place.placement.division.as_ref());
    if has_rendezvous && let Some(verdict) = rendezvous_gang::withdraw_or_wait(binding, fleet) {
        return verdict;
    }
    let SchedulingContext { peers, data, queue, ranking, empty_workloads, run } = context;
    let (choice, images) = (gang.clusters.clone(), request.and_then(|known| known.images.clone()));
    let mut capped =
        place::Binding { peers, data, choice, images, queue, ranking, empty_workloads, ..binding.place.clone() };
    if !whole {
        capped.replicas = capped.replicas.min(i64::from(gang.replicas()));
    }
    let mut own =
        if capped.fresh { fleet.compute_capacities_without_binding(&binding.key.to_string()) } else { BTreeMap::new() };
    own.extend(estimated.iter().map(|(name, capacity)| (name.clone(), capacity.clone())));
    let clusters: Vec<(&Cluster, &Capacity)> =
        fleet.clusters().map(|(cluster, capacity)| (cluster, own.get(&cluster.name).unwrap_or(capacity))).collect();
    let request = Request { binding: &capped, gang, whole, previous, clusters, linked: fleet.linked_groups(), run };
    let (placed, bounded) = place_within_queues(binding, &request, fleet);
    let placed = placed.or_else(|refusal| match refusal {
        NotPlaced::Gang(_) | NotPlaced::Unschedulable(_) => {
            place_where_nodes_may_come(binding, &request, fleet, &own).ok_or(refusal)
        }
        _ => Err(refusal),
    });
    let nodes = binding.admission.as_ref().and_then(|record| record.nodes.describe(&record.queue));
    let with_reasons = |message: String| {
        let message = place::append_reasons(message, &request, fleet.list_soonest_nodes());
        nodes.iter().fold(message, |message, nodes| format!("{message}; {nodes}"))
    };
    match placed {
        Ok(decision) if has_rendezvous && rendezvous_gang::changes_rendezvous(binding, &decision) => {
            rendezvous_gang::withdraw_gang()
        }
        Ok(decision) => place_or_confirm(binding, gang, limit_copies(binding, job.copies, decision)),
        // Clusters pass the filters, but their own queues are full: what it has stays.
        Err(NotPlaced::NoClusterFits(message)) if !bounded.is_empty() => {
            let message = bounded.iter().fold(message, |message, why| format!("{message}; {why}"));
            let message = with_reasons(message);
            Verdict { step: Step::Refuse { reason: UNSCHEDULABLE, message, clear: false }, awaits_capacity: true }
        }
        Err(NotPlaced::NoClusterFits(message)) => Verdict {
            step: Step::Refuse {
                reason: NO_CLUSTER_FIT,
                message: with_reasons(append_peers(message, whole, &capped.peers)),
                clear: !binding.place.previous.is_empty(),
            },
            awaits_capacity: true,
        },
        // A member that has not reported yet may have the capacity: it reports soon, or is found to be down.
        Err(NotPlaced::Gang(_) | NotPlaced::Unschedulable(_))
            if fleet.list_clusters_not_reported_yet().next().is_some() =>
        {
            Verdict { step: Step::Rest, awaits_capacity: true }
        }
        Err(error @ (NotPlaced::Gang(_) | NotPlaced::Unschedulable(_))) => {
            let message =
                explain_unread_clusters(append_peers(error.to_string(), whole, &capped.peers), fleet, estimated);
            let message = bounded.iter().fold(message, |message, why| format!("{message}; {why}"));
            let message = with_reasons(message);
            Verdict { step: Step::Refuse { reason: UNSCHEDULABLE, message, clear: false }, awaits_capacity: true }
        }
        Err(NotPlaced::Unsupported(message)) => Verdict::refuse_with(SCHEDULER_ERROR, message),
    }
}

/// A place within what the members' own queues let start, or why there is none and what the queues bounded. Clusters
/// where the gang did not start before are avoided if that is possible. What is placed stays where it is.
fn place_within_queues(
    binding: &Binding,
    request: &Request<'_>,
    fleet: &Fleet,
) -> (Result<Decision, NotPlaced>, Vec<String>) {
    // Other kinds are not scheduled by Volcano, or in a queue that the member's controller finds.
    let queue = binding.admission.as_ref().filter(|_| request.whole).map(|admission| admission.queue.as_str());
    let of = |cluster: &str| fleet.member_queue(cluster, queue?);
    if !binding.avoid.is_empty() && binding.place.previous.is_empty() {
        let others = request.clusters.iter().filter(|(cluster, _)| !binding.avoid.contains(&cluster.name));
        let request = Request { clusters: others.copied().collect(), ..request.clone() };
        if let Ok(decision) = place::place_within_queues(&request, of) {
            return (Ok(decision), Vec::new());
        }
    }
    match place::place_within_queues(request, of) {
        Ok(decision) => (Ok(decision), Vec::new()),
        Err((error, bounded)) => (Err(error), bounded),
    }
}

/// A place for what finds none now, if it would once nodes have come that may. Its pods are then pending in the member,
/// whose own autoscaler makes the nodes. What is not queued goes where it fits, as karmada-scheduler would have it.
fn place_where_nodes_may_come(
    binding: &Binding,
    request: &Request<'_>,
    fleet: &Fleet,
    own: &BTreeMap<String, Capacity>,
) -> Option<Decision> {
    if binding.is_unqueued() {
        return None;
    }
    fleet.find_with_upcoming_nodes_on(own, |clusters, delay| {
        let run = request.run.map(|run| run.with_delay(delay));
        place_within_queues(binding, &Request { clusters, run, ..request.clone() }, fleet).0.ok()
    })
}

/// What is to be placed of a binding that is due, or what to do instead.
fn build_placement_request<'a>(
    binding: &'a Binding,
    request: Option<&'a WorkloadRequest>,
) -> Result<PlacementRequest<'a>, Verdict> {
    if binding.is_unqueued() {
        return build_unqueued_request(binding, request);
    }
    let (true, Some(admission)) = (binding.is_released(), &binding.admission) else { return Err(Verdict::REST) };
    // Its template's event will come, or the garbage collector takes the binding.
    let gang = request.ok_or(Verdict::REST)?.gang.as_ref();
    let gang =
        gang.map_err(|why| Verdict::refuse_with(SCHEDULER_ERROR, format!("its workload can not be read: {why}")))?;
    let gang = cap_gang(gang, admission).map_err(|why| Verdict::refuse_with(UNSCHEDULABLE, why))?;
    let whole = WorkloadKind::parse(&binding.api_version, &binding.workload.kind).is_some_and(WorkloadKind::has_tasks);
    let previous = previous_plan(binding, &gang, whole).map_err(|()| {
        let message = "it has clusters but no readable plan; clear spec.clusters to place it anew";
        Verdict::refuse_with(SCHEDULER_ERROR, message)
    })?;
    Ok(PlacementRequest { gang: Cow::Owned(gang), whole, copies: Some(admission.copies.max(1) as usize), previous })
}

/// What is to be placed of a binding that is not queued, by its own spec. A workload that names a queue and has no gate
/// has passed the webhook while it was down: it waits for its gate.
fn build_unqueued_request<'a>(
    binding: &'a Binding,
    request: Option<&'a WorkloadRequest>,
) -> Result<PlacementRequest<'a>, Verdict> {
    let may_be_queued = WorkloadKind::parse(&binding.api_version, &binding.workload.kind).is_some();
    match request {
        None if may_be_queued => return Err(Verdict::REST),
        Some(request) if request.queued => {
            let message = "its workload names a queue and it was not gated; its next update gates it";
            return Err(Verdict::refuse_with(SCHEDULER_ERROR, message));
        }
        _ => {}
    }
    let gang = binding.replica.as_deref().ok_or(Verdict::REST)?;
    Ok(PlacementRequest { gang: Cow::Borrowed(gang), whole: false, copies: None, previous: None })
}

/// The gang reduced to what was admitted, on the nodes and the card model that it was admitted to; of a partitioned
/// task to whole partitions.
fn cap_gang(gang: &Gang, admission: &Admission) -> Result<Gang, String> {
    let mut gang = gang.keep_to_card(admission.card.as_ref()).restrict_to_nodes(&admission.nodes);
    let binds = gang.enforces_task_minimums();
    for task in &mut gang.tasks {
        let admitted = admission.pods_of(&task.name);
        let needs = task.min_available.next_multiple_of(task.partition_size());
        if admitted < needs && (binds || task.partition.is_some()) {
            return Err(format!(
                "task {} needs {} and has quota for {admitted}; waiting for the rest to be admitted",
                task.name,
                count_noun(needs, "pod")
            ));
        }
        task.replicas = task.replicas.min(admitted) / task.partition_size() * task.partition_size();
        task.min_available = task.min_available.min(task.replicas);
    }
    if gang.replicas() < gang.min_available {
        let (needs, has) = (gang.min_available, gang.replicas());
        return Err(format!(
            "it needs {} at once and has quota for {has}; waiting for the rest to be admitted",
            count_noun(needs, "pod")
        ));
    }
    Ok(gang)
}

/// The plan of what a binding has; an error where it has clusters and no readable plan.
fn previous_plan(binding: &Binding, gang: &Gang, whole: bool) -> Result<Option<Plan>, ()> {
    if binding.place.previous.is_empty() || !whole {
        return Ok(None);
    }
    match (&binding.plan, gang.tasks.as_slice()) {
        (Some(plan), _) => {
            // A cluster that was taken away (by an eviction, say) is not held any more.
            let mut plan = plan.clone();
            plan.clusters.retain(|cluster, _| binding.place.is_target(cluster.as_str()));
            Ok(Some(plan))
        }
        (None, [task]) => {
            let share = |replicas: i64| {
                let replicas = u32::try_from(replicas).unwrap_or(0);
                let tasks = [(task.name.clone(), TaskShare { replicas, min_available: 0 })].into();
                ClusterShare { tasks, ..ClusterShare::default() }
            };
            let targets = binding.place.previous.iter();
            let clusters = targets.map(|target| (target.cluster.as_str().into(), share(target.replicas))).collect();
            Ok(Some(Plan { clusters }))
        }
        (None, _) => Err(()),
    }
}

/// Whether nothing is the case that makes Karmada, or us, schedule a binding again.
fn is_settled(binding: &Binding, gang: &Gang, previous: Option<&Plan>, whole: bool, fleet: &Fleet) -> bool {
    let targets = &binding.place.previous;
    if targets.is_empty() || binding.place.fresh || has_placement_changed(binding) {
        return false;
    }
    let stays = |name: &str| fleet.cluster(name).is_some_and(|cluster| !cluster.deleting);
    if !targets.iter().all(|target| stays(&target.cluster) && !binding.place.evicting.contains(&target.cluster)) {
        return false;
    }
    if is_duplicated(binding.place.placement.division.as_ref()) {
        return false;
    }
    if whole {
        // What has ended in some cluster does not grow: its members would begin anew what is done.
        if !binding.ended.is_empty() {
            return binding.plan.is_some();
        }
        let held = |task: &caldera_core::gang::Task| -> u32 {
            let shares = previous.into_iter().flat_map(|plan| plan.clusters.values());
            let parts = shares.filter_map(|share| share.tasks.get(&task.name));
            parts.fold(0, |sum, part| sum.saturating_add(part.replicas))
        };
        return binding.plan.is_some() && gang.tasks.iter().all(|task| held(task) == task.replicas);
    }
    let wanted = binding.place.replicas.min(i64::from(gang.replicas()));
    binding.place.divisible && targets.iter().map(|target| target.replicas).sum::<i64>() == wanted
}

/// A duplicated job never runs in more clusters than it was admitted for; those it is in come first.
fn limit_copies(binding: &Binding, copies: Option<usize>, mut decision: Decision) -> Decision {
    let Some(copies) = copies.filter(|copies| decision.targets.len() > *copies) else { return decision };
    if !is_duplicated(binding.place.placement.division.as_ref()) {
        return decision;
    }
    decision.targets.sort_by_key(|target| !binding.place.is_target(&target.cluster));
    decision.targets.truncate(copies);
    decision.targets.sort();
    if let Some(plan) = &mut decision.plan {
        plan.clusters.retain(|cluster, _| decision.targets.iter().any(|target| target.cluster == cluster.as_str()));
    }
    decision
}

fn place_or_confirm(binding: &Binding, gang: &Gang, decision: Decision) -> Verdict {
    let pods: i64 = decision.targets.iter().map(|target| target.replicas).sum();
    let whole = i64::from(gang.replicas());
    let awaits_capacity = decision.plan.is_some() && pods < whole;
    let mut targets = binding.place.previous.clone();
    targets.sort();
    let moved_term = decision.affinity.as_ref().is_some_and(|term| *term != binding.place.observed_affinity);
    let same = targets == decision.targets && (decision.plan.is_none() || decision.plan == binding.plan);
    if same && !moved_term && !has_placement_changed(binding) {
        return Verdict { step: status_step(binding, binding.place.fresh), awaits_capacity };
    }
    if decision.targets.is_empty() && targets.is_empty() {
        // A workload scaled to nothing goes nowhere, and that is fine.
        return Verdict { step: status_step(binding, false), awaits_capacity: false };
    }
    Verdict { step: Step::Place(decision), awaits_capacity }
}

fn status_step(binding: &Binding, anew: bool) -> Step {
    let status = &binding.status;
    let success = status.scheduled_condition().is_some_and(|(status, reason, _)| (status, reason) == ("True", SUCCESS));
    if success && !anew && status.last_scheduled.is_some() && status.observed_generation == Some(binding.generation) {
        return Step::Rest;
    }
    Step::Confirm { anew: anew || !success || status.last_scheduled.is_none() }
}

/// Adds which peers of its groups keep a gang out of clusters. For all else the message is Karmada's to the letter.
fn append_peers(message: String, whole: bool, peers: &Peers) -> String {
    if whole && !peers.is_empty() { format!("{message}; {peers}") } else { message }
}

/// Adds which members' numbers are not those of their nodes.
fn explain_unread_clusters(message: String, fleet: &Fleet, estimated: &BTreeMap<String, Capacity>) -> String {
    let caveat = |name: &String| {
        let caveat = fleet.describe_capacity_caveat(name)?;
        let is_estimated = estimated.contains_key(name);
        Some(if is_estimated { "its estimator was asked, for its nodes can not be read".to_owned() } else { caveat })
    };
    let caveats = fleet.clusters().filter_map(|(cluster, _)| Some((&cluster.name, caveat(&cluster.name)?)));
    caveats.fold(message, |message, (name, caveat)| format!("{message}; {name}: {caveat}"))
}
