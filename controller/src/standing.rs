//! Where a binding stands: out of scope, blocked for a reason of its own, in line, or holding.
//!
//! A function of API objects alone, so that a restart comes to the same answer. Whose suspension it is follows from the
//! gate annotation: `closed` is ours to lift; a suspension with the gate open, or without a gate, is somebody else's.

use std::sync::Arc;

use caldera_core::{
    gang::{ClusterName, Gang, QueueName},
    place::Group,
    pod_group,
    queue::{
        Ask, FitClass, Job, TaskAsk,
        ledger::{self, Charge, ChargeFacts, Stage},
    },
    reason::Reason,
};
use caldera_crds::{binding::Gate, names::caldera::HOLD, workload::WorkloadKind};

use crate::{
    facts::{Binding, Workload, fingerprint},
    regrant::{Regrant, Wanted, needs_more, regrant},
};

/// Where a binding stands.
#[derive(Debug, Clone, PartialEq)]
pub enum Standing {
    /// Not ours: no kind in scope, or nobody asked for a queue.
    OutOfScope,
    /// Not in line, for this reason.
    Blocked(Reason),
    /// Out of line for a while, for this reason, since then (seconds since 1970): it still ranks ([`Engine::back_off_job`]).
    ///
    /// [`Engine::back_off_job`]: caldera_core::queue::Engine::back_off_job
    Aside(Job, Reason, i64),
    /// In line.
    InLine(Job),
    /// Holds a charge.
    Holding {
        /// Of this queue.
        queue: QueueName,
        /// How much, and how.
        charge: Charge,
        /// What to say.
        reason: Reason,
        /// What should become of its record.
        regrant: Option<Regrant>,
    },
}

/// What a standing depends on, besides the binding and its workload.
#[derive(Debug, Clone, Copy)]
pub struct Around {
    /// The job's priority.
    pub priority: i32,
    /// Clusters that each run all of it.
    pub copies: u32,
    /// The namespace asks for queueing.
    pub opted_in: bool,
}

/// See the module. `priority_of` gives a PriorityClass's value, for the tasks.
#[must_use]
pub fn standing(
    binding: &Binding,
    workload: Option<&Workload>,
    around: Around,
    priority_of: impl Fn(&str) -> i32,
) -> Standing {
    if !in_scope(binding, workload, around.opted_in) {
        return Standing::OutOfScope;
    }
    let gang = workload.and_then(|workload| workload.gang.as_ref().ok());
    let facts = ChargeFacts {
        gang: gang.map(Arc::as_ref),
        replica_request: Some(&binding.replica_request),
        admission: binding.admission.as_deref(),
        clusters: &binding.clusters,
        plan: binding.plan.as_deref(),
        finished_pods: workload.map(|workload| workload.progress.finished.clone()).unwrap_or_default(),
        ended: workload.is_some_and(|workload| workload.progress.ended.is_some()),
    };
    let charge = ledger::compute_charge(&facts);
    let queue = match (&binding.admission, workload) {
        (Some(admission), _) => admission.queue.clone(),
        (None, Some(workload)) => workload.queue.clone(),
        (None, None) => QueueName::from(caldera_crds::names::volcano::DEFAULT_QUEUE),
    };
    if charge.stage != Stage::Waiting {
        let reason = told(binding, workload, &queue, &charge, gang.map(Arc::as_ref), around.copies);
        let regrant = regranted(binding, workload, &charge, around.copies, priority_of);
        return Standing::Holding { queue, charge, reason, regrant };
    }
    match (blocked(binding, workload), workload, gang) {
        (Some(reason), _, _) => Standing::Blocked(reason),
        (None, Some(workload), Some(gang)) => Standing::InLine(Job {
            id: binding.id.clone(),
            queue,
            priority: around.priority,
            created: binding.created,
            deadline: workload.sla_waiting_time.and_then(|waiting| binding.created.checked_add(waiting)),
            ask: Arc::new(ask(binding, workload, gang, around.copies, priority_of)),
        }),
        _ => Standing::Blocked(Reason::NoWorkload),
    }
}

/// A gate makes it ours. Without one it is ours to account for if it is of a kind in scope and asks for a queue: always
/// for Volcano Jobs, by its own words or its namespace's for the others. Dependencies' bindings have no placement.
fn in_scope(binding: &Binding, workload: Option<&Workload>, opted_in: bool) -> bool {
    let Some(kind) = WorkloadKind::find(&binding.workload.group, &binding.workload.kind) else { return false };
    binding.placement.is_some()
        && (matches!(binding.gate, Some(Gate::Closed | Gate::Open))
            || binding.admission.is_some()
            || kind == WorkloadKind::VolcanoJob
            || opted_in
            || workload.is_some_and(|workload| workload.names_queue))
}

/// Why a binding that waits is not in line.
fn blocked(binding: &Binding, workload: Option<&Workload>) -> Option<Reason> {
    let Some(workload) = workload else { return Some(Reason::NoWorkload) };
    if binding.deleting || workload.deleting {
        return Some(Reason::Deleting);
    }
    match (binding.gate, binding.suspended) {
        (Some(Gate::Closed), _) => {}
        (_, true) => return Some(Reason::Suspended),
        (_, false) => return Some(Reason::NotGated),
    }
    if workload.held {
        return Some(Reason::OnHold { annotation: HOLD });
    }
    let error = workload.gang.as_ref().err()?;
    Some(Reason::Invalid { problem: error.to_string() })
}

/// What a waiting gang asks for. Only Volcano's kinds may be granted in part: members know what to do with a job of
/// fewer replicas and the same minimum, but a Deployment's replicas are what its user counts on.
pub(crate) fn ask(
    binding: &Binding,
    workload: &Workload,
    gang: &Arc<Gang>,
    copies: u32,
    priority_of: impl Fn(&str) -> i32,
) -> Ask {
    let kind = workload.kind;
    let elastic = kind == WorkloadKind::VolcanoJob;
    let minimum = pod_group::pod_group_minimum(gang, priority_of);
    let tasks = gang
        .tasks
        .iter()
        .zip(minimum.pods)
        .map(|(task, min)| {
            // A partition is placed whole.
            let min = min.next_multiple_of(task.unit());
            TaskAsk {
                name: task.name.clone(),
                request: task.request.clone(),
                min: if elastic { min.min(task.replicas) } else { task.replicas },
                most: task.replicas,
                step: task.unit(),
            }
        })
        .collect();
    let placement = binding.placement.as_deref();
    let rules = placement.map(|placement| (&placement.placement, &placement.evicting, placement.replicas));
    let fit =
        FitClass(fingerprint(&(kind, gang, rules, placement.map(|placement| placement.components), grouped(binding))));
    Ask { tasks, copies, fit, run_for: workload.run_for }
}

/// In whose company it is: groups end at the namespace.
fn grouped(binding: &Binding) -> Option<(&str, &[Group])> {
    (!binding.groups.is_empty()).then_some((&*binding.key.namespace, binding.groups.as_slice()))
}

/// What should become of the record of a binding that holds. More is asked for only where all is well with what it has.
fn regranted(
    binding: &Binding,
    workload: Option<&Workload>,
    charge: &Charge,
    copies: u32,
    priority_of: impl Fn(&str) -> i32,
) -> Option<Regrant> {
    let (record, workload) = (binding.admission.as_deref()?, workload?);
    let gang = workload.gang.as_ref().ok()?;
    if binding.deleting || workload.deleting || binding.suspended || workload.progress.ended.is_some() {
        return None;
    }
    let minimum = pod_group::pod_group_minimum(gang, priority_of).pods;
    let elastic = workload.kind == WorkloadKind::VolcanoJob;
    let mut regrant = regrant(Wanted { gang, elastic, minimum: &minimum, copies }, record)?;
    if let Regrant::More(more) = &mut regrant {
        if charge.stage != Stage::Placed || charge.over_record || workload.held {
            return None;
        }
        let class = (workload.kind, gang, &binding.placement, &binding.plan, &binding.clusters, &record.tasks);
        more.ask.fit = FitClass(fingerprint(&("more", class, grouped(binding))));
    }
    Some(regrant)
}

/// What to say about a binding that holds.
fn told(
    binding: &Binding,
    workload: Option<&Workload>,
    queue: &QueueName,
    charge: &Charge,
    gang: Option<&Gang>,
    copies: u32,
) -> Reason {
    let queue = queue.clone();
    let charged = charge.amount.clone();
    if let Some(phase) = workload.and_then(|workload| workload.progress.ended.clone()) {
        return Reason::Finished { phase, queue };
    }
    if binding.suspended {
        return Reason::Suspended;
    }
    match (charge.stage, &binding.admission) {
        (Stage::Placed, Some(admission)) if charge.over_record => {
            Reason::OverRecord { queue, held: charged, admitted: admission.charged.clone() }
        }
        (Stage::Placed | Stage::Admitted, Some(admission)) => {
            let asked = gang.map(|gang| gang.full_demand().times(u64::from(copies))).unwrap_or_default();
            let elastic = workload.is_some_and(|workload| workload.kind == WorkloadKind::VolcanoJob);
            let wants_more = gang.is_some_and(|gang| needs_more(gang, elastic, admission));
            match &binding.refused {
                _ if wants_more => Reason::ScaledUp { asked, admitted: admission.charged.clone() },
                Some(detail) if charge.stage == Stage::Admitted => Reason::NotPlaced { detail: detail.to_string() },
                _ if charge.stage == Stage::Admitted => Reason::Admitted { queue, charged },
                _ => Reason::Placed { clusters: clusters(binding), queue, charged },
            }
        }
        _ => Reason::Foreign { clusters: clusters(binding), queue, charged },
    }
}

fn clusters(binding: &Binding) -> String {
    let one = |(cluster, replicas): &(ClusterName, u32)| match replicas {
        0 => cluster.to_string(),
        replicas => format!("{cluster}:{replicas}"),
    };
    let all: Vec<String> = binding.clusters.iter().map(one).collect();
    all.join(", ")
}
