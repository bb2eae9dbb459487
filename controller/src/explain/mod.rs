//! Where a job stands and why, as a value to print.
//!
//! Rule: it is worked out when somebody asks, from the state that decides, never from a text that was stored. The same
//! [`Controller`] answers that releases jobs: who only looks fills one with lists, calls [`decide_without_writing`]
//! once and asks. Who looks so decides anew, as after a restart: reservations follow from what is on the objects. What
//! does not is which clusters are kept in turn, and until when: only the controller that runs knows that. So nobody is
//! told that a job may start where the controller last wrote that a reservation holds it back. One that may not see
//! everything says so: what depends on others' jobs is then what the controller wrote on the job's PodGroup
//! ([`Basis::PodGroup`]), and nothing is made up.

mod amount_form;
mod clusters;
mod explanation;
mod job_move;
mod queues;
mod tenant_turn;

use std::{collections::BTreeMap, sync::Arc};

use caldera_core::{
    gang::{ClusterName, WorkloadRef},
    queue::{UnknownStart, ledger::AdmissionStage},
    reason::Reason,
    text::count_noun,
    time::EpochSeconds,
};
use caldera_runtime::clock::format_time;
use jiff::Timestamp;

pub(crate) use self::queues::list_amounts;
pub use self::{
    clusters::ClusterView,
    explanation::{Asks, Basis, Eta, Explanation, Placed, PodGroupReason, Pods, Reserved, RunLimitView, Verdict},
    job_move::{MoveAnswer, explain_move, explain_refusals},
    queues::{
        Amounts, Counts, InLine, PathQueue, QueueView, RunningLimit, UsedLately, list_capacity_reservations,
        list_queues, list_waiting_jobs,
    },
    tenant_turn::TenantTurn,
};
use crate::{
    decide::{
        Controller,
        admission::{assess::ask_of, release::ask_whether_it_fits},
        bindings::{
            binding_state::find_run_time_exceeded,
            jobs::{JobPhase, JobState},
        },
        decide,
        lifecycle::run_limits::{get_current_run_limit, to_timestamp},
    },
    observe::{Binding, Key, ObjectKind, Workload},
    write::pod_group::phase_of,
};

/// Jobs ahead that are named.
const MOST_JOBS_AHEAD: usize = 10;

/// Decides as far as it can be decided, for a controller that was filled with lists and is only asked: what would be
/// written is dropped. Never call it on one whose decisions are written.
pub fn decide_without_writing(controller: &mut Controller, now: Timestamp) {
    controller.jobs.engine.set_now(EpochSeconds::from(now));
    if controller.is_complete() {
        while decide(controller, now).releases > 0 {}
        return;
    }
    let total = controller.capacity.sum_fleet();
    controller.jobs.engine.set_fleet(total);
    controller.jobs.engine.resolve_quota();
}

/// Which binding was made from a workload.
#[must_use]
pub fn find_binding(controller: &Controller, workload: &WorkloadRef) -> Option<Key> {
    let mut bindings = controller.objects.bindings.values();
    bindings.find(|binding| *binding.workload == *workload).map(|binding| binding.key.clone())
}

/// In one word, where a job stands, of every job: without what only one that is asked about needs.
#[must_use]
pub fn list_verdicts(controller: &Controller) -> BTreeMap<WorkloadRef, Verdict> {
    let verdict = |binding: &Binding| {
        let state = controller.jobs.states.get(&binding.key)?;
        let answer = build_answer(controller, binding, state, controller.objects.workload_of(binding));
        Some(((*binding.workload).clone(), answer.verdict))
    };
    controller.objects.bindings.values().filter_map(|binding| verdict(binding)).collect()
}

/// The jobs of a HyperJob that have a binding, in the order in which they are asked for, each with where it stands.
#[must_use]
pub fn list_jobs_of_hyper_job(controller: &Controller, namespace: &str, name: &str) -> Vec<(Arc<str>, Verdict)> {
    let verdict = |binding: &Binding| {
        let workload = controller.objects.workload_of(binding)?;
        let child = workload.child.as_ref().filter(|child| *child.hyper_job == *name)?;
        let spec = controller.hyper_jobs.find_gang_spec(&Key::new(namespace, name), &child.owner)?;
        let at = spec.names.iter().position(|known| *known == workload.reference.name)?;
        let state = controller.jobs.states.get(&binding.key)?;
        let answer = build_answer(controller, binding, state, Some(workload));
        Some((at, workload.reference.name.as_str().into(), answer.verdict))
    };
    let here = controller.objects.bindings.values().filter(|binding| *binding.key.namespace == *namespace);
    let mut jobs: Vec<(usize, Arc<str>, Verdict)> = here.filter_map(|binding| verdict(binding)).collect();
    jobs.sort_by_key(|(at, ..)| *at);
    jobs.into_iter().map(|(_, name, verdict)| (name, verdict)).collect()
}

/// What is known of a workload from which no binding was made.
#[must_use]
pub fn explain_without_binding(controller: &Controller, workload: &WorkloadRef) -> Option<Explanation> {
    let known = controller.objects.workloads.get(workload)?;
    let sentence = "no ResourceBinding was made from it: no PropagationPolicy or ClusterPropagationPolicy of Karmada \
                    selects it, or Karmada has not looked at it yet";
    let mut explanation = start_explanation(controller, workload.clone(), Some(known));
    explanation.verdict = Verdict::NoBinding;
    explanation.token = "NoBinding".to_owned();
    explanation.sentence = sentence.to_owned();
    Some(explanation)
}

/// See the module; `None` if there is no such binding.
pub fn explain_job(controller: &mut Controller, key: &Key, now: Timestamp) -> Option<Explanation> {
    if controller.is_complete() {
        let Controller { jobs, objects, capacity, .. } = controller;
        let id = jobs.find_queued_job_id(key)?.clone();
        ask_whether_it_fits(jobs, objects, capacity, &id, now);
    }
    let binding = controller.objects.bindings.get(key)?;
    let ask = ask_of(&controller.objects, &controller.capacity, binding);
    let clusters = clusters::list_clusters(controller, key, ask.as_ref());
    let (binding, state) = (controller.objects.bindings.get(key)?, controller.jobs.states.get(key)?);
    let workload = controller.objects.workload_of(binding);
    let answer = build_answer(controller, binding, state, workload);
    let id = controller.jobs.find_queued_job_id(key)?.as_str();
    let mut explanation = start_explanation(controller, (*binding.workload).clone(), workload);
    explanation.verdict = answer.verdict;
    explanation.token = answer.token;
    explanation.sentence = answer.sentence;
    explanation.binding = Some(key.to_string());
    explanation.created = format_second(binding.created);
    explanation.age_seconds = EpochSeconds::from(now).seconds_since(binding.created).max(0);
    explanation.deadline = workload.and_then(|workload| workload.deadline_of(binding)).and_then(format_second);
    explanation.asks = ask.as_ref().map(Asks::from);
    explanation.admission = binding.admission.as_deref().cloned();
    explanation.placed = list_placed(controller, binding);
    let ready_by = || controller.deadlines.start.find_deadline(binding, &controller.capacity);
    explanation.ready_by = (answer.verdict == Verdict::Placed).then(ready_by).flatten().map(format_time);
    explanation.run_limit = find_run_limit(controller, binding, state, now);
    if let Some(queue) = controller.objects.queue_of(binding).filter(|_| answer.verdict != Verdict::NotQueued) {
        let asked = explanation.asks.as_ref().map(|asks| &asks.full);
        explanation.path = queues::list_path(controller, queue, asked);
        explanation.queue = Some(queue.clone());
    }
    if answer.verdict == Verdict::Waiting && controller.is_complete() {
        let (position, ahead) = queues::list_ahead(controller, id, MOST_JOBS_AHEAD);
        explanation.position = position.map(|position| position.place);
        explanation.of = position.map(|position| position.of);
        explanation.ahead = ahead;
        let engine = &controller.jobs.engine;
        explanation.turn = engine.tenant_turn(id).map(|turn| TenantTurn::new(turn, engine));
        explanation.priority_gained = controller.jobs.engine.priority_gained(id);
        explanation.reservation = find_reservation(controller, id);
        // One that was evicted is not in its queue yet.
        explanation.eta = position.map(|_| estimate_start(controller, id));
    }
    if explanation.placed.is_empty() && answer.verdict != Verdict::Finished {
        explanation.clusters = clusters;
        explanation.notes.extend(clusters::describe_data_costs(controller, key));
    }
    // Only the controller knows that the API server refused it.
    let refused = explanation.pod_group.as_ref().filter(|reported| reported.token == "NotReleased");
    if let (Verdict::MayStart, Some(reported)) = (answer.verdict, refused) {
        explanation.notes.push(format!("the controller last wrote: {}", reported.sentence));
    }
    explanation.notes.extend(controller.jobs.describe_increase(state));
    explanation.notes.extend(controller.capacity.describe_awaited_nodes(binding.id.as_str()));
    explanation.notes.extend(controller.jobs.gangs.describe_gang_of_job(key));
    if let Some(exceeded) = find_run_time_exceeded(binding).filter(|_| answer.verdict == Verdict::Finished) {
        explanation.token = Reason::RUN_TIME_EXCEEDED.to_owned();
        explanation.notes.push(exceeded.to_owned());
    }
    explanation.notes.extend(describe_evictions_for(controller, id, now));
    let others =
        controller.jobs.states.iter().filter(|(other, state)| *other != key && state.assumed.is_some()).count();
    if others > 0 {
        explanation.notes.push(format!("other jobs that may start now and are counted as if they had: {others}"));
    }
    Some(explanation)
}

/// What can be said of a workload without its binding.
fn start_explanation(controller: &Controller, reference: WorkloadRef, workload: Option<&Workload>) -> Explanation {
    let group = workload.and_then(|workload| controller.objects.pod_groups.find(workload));
    let progress = workload.map(|workload| workload.progress.clone()).unwrap_or_default();
    Explanation {
        workload: reference,
        verdict: Verdict::NotQueued,
        token: String::new(),
        sentence: String::new(),
        basis: if controller.is_complete() { Basis::Live } else { Basis::PodGroup },
        created: None,
        age_seconds: 0,
        binding: None,
        queue: workload.map(|workload| workload.queue.clone()),
        priority: workload.map_or(0, |workload| controller.objects.priority_of_class(&workload.class)),
        priority_gained: 0,
        turn: None,
        deadline: None,
        path: Vec::new(),
        asks: None,
        position: None,
        of: None,
        ahead: Vec::new(),
        reservation: None,
        eta: None,
        clusters: Vec::new(),
        admission: None,
        placed: Vec::new(),
        placed_at: None,
        ready_by: None,
        run_limit: None,
        pods: Pods {
            running: workload.map_or(0, Workload::count_running_pods),
            succeeded: progress.succeeded,
            failed: progress.failed.max(group.map_or(0, |group| group.status.failed.max(0).unsigned_abs())),
        },
        pod_group: group.map(|group| PodGroupReason {
            phase: group.status.phase.clone(),
            token: group.status.reason.clone(),
            sentence: group.status.message.clone(),
            since: group.status.since.clone(),
        }),
        notes: workload.map(|workload| list_notes(controller, workload)).unwrap_or_default(),
    }
}

fn list_notes(controller: &Controller, workload: &Workload) -> Vec<String> {
    let mut notes = Vec::new();
    let classes_known = !controller.list_unlisted_kinds().contains(&ObjectKind::Classes);
    notes.extend(controller.objects.describe_unknown_class(workload).filter(|_| classes_known));
    if workload.deleting {
        notes.push("it is being deleted".to_owned());
    }
    let choice = workload.gang.as_ref().ok().and_then(|gang| gang.clusters.as_ref());
    notes.extend(choice.map(ToString::to_string));
    notes
}

/// A verdict with its words.
struct Answer {
    verdict: Verdict,
    token: String,
    sentence: String,
}

impl Answer {
    fn new(verdict: Verdict, reason: &Reason) -> Self {
        Self { verdict, token: reason.token().to_owned(), sentence: reason.to_string() }
    }

    fn from_waiting(reason: &Reason) -> Self {
        let verdict = match reason {
            reason if Reason::is_never_token(reason.token()) => Verdict::CanNeverStart,
            Reason::Deleting => Verdict::Blocked,
            reason if reason.needs_user_action() => Verdict::Blocked,
            _ => Verdict::Waiting,
        };
        Self::new(verdict, reason)
    }
}

fn build_answer(controller: &Controller, binding: &Binding, state: &JobState, workload: Option<&Workload>) -> Answer {
    if state.assumed.is_some() {
        if let Some(written) = find_written_wait(controller, workload) {
            return written;
        }
        let sentence = "may start now: its queue has quota for it and the members have capacity, or nodes for it may \
                        come there; it is released with the controller's next decision";
        return Answer { verdict: Verdict::MayStart, token: "Waiting".to_owned(), sentence: sentence.to_owned() };
    }
    match &state.phase {
        JobPhase::OutOfScope => Answer {
            verdict: Verdict::NotQueued,
            token: "NotQueued".to_owned(),
            sentence: "waits in no queue: workloads other than Volcano Jobs do where they name one, or where their \
                       namespace asks for queueing"
                .to_owned(),
        },
        JobPhase::Blocked(reason) if reason.is_about_other_jobs() && !controller.is_complete() => {
            read_pod_group_reason(controller, workload)
        }
        JobPhase::Blocked(reason) => Answer::from_waiting(reason),
        JobPhase::Pending => match controller.jobs.explain_pending(&binding.key).filter(|_| controller.is_complete()) {
            Some(reason) => Answer::from_waiting(&reason),
            None => read_pod_group_reason(controller, workload),
        },
        JobPhase::Holding { stage, reason } => {
            let phase = workload.map_or("", |workload| phase_of(workload, Some(*stage)));
            let verdict = match stage {
                AdmissionStage::Finished => Verdict::Finished,
                AdmissionStage::Waiting | AdmissionStage::Admitted => Verdict::Admitted,
                AdmissionStage::Placed | AdmissionStage::Foreign if phase == "Running" => Verdict::Running,
                AdmissionStage::Placed | AdmissionStage::Foreign => Verdict::Placed,
            };
            Answer::new(verdict, &controller.jobs.holding_reason(state, reason))
        }
    }
}

/// What the controller last wrote of a job that seems to have nothing before it, if that was a reservation, or that its
/// old copies are to be gone and forgotten.
fn find_written_wait(controller: &Controller, workload: Option<&Workload>) -> Option<Answer> {
    let status = &controller.objects.pod_groups.find(workload?)?.status;
    let only_it_knows = match status.reason.as_str() {
        Reason::BLOCKED_BY_RESERVATION | Reason::CLUSTERS_RESERVED => {
            "which clusters it keeps for whom, and until when"
        }
        Reason::CAPACITY_RESERVED => "what is kept for a time, and you may not see that",
        "Requeued" | "Preempted" | "Reclaimed" => "how long old pods took to go",
        _ => return None,
    };
    Some(Answer {
        verdict: Verdict::Waiting,
        token: status.reason.clone(),
        sentence: format!("{} (as the controller last wrote: only it knows {only_it_knows})", status.message),
    })
}

/// For a job in a line that can not be seen: the controller's own last words.
fn read_pod_group_reason(controller: &Controller, workload: Option<&Workload>) -> Answer {
    let group = workload.and_then(|workload| controller.objects.pod_groups.find(workload));
    let Some(status) = group.map(|group| &group.status).filter(|status| !status.reason.is_empty()) else {
        let sentence = "waits in its queue; its PodGroup does not say why (does the controller run?)";
        return Answer { verdict: Verdict::Waiting, token: "Waiting".to_owned(), sentence: sentence.to_owned() };
    };
    let verdict = match status.reason.as_str() {
        token if Reason::is_never_token(token) => Verdict::CanNeverStart,
        "QueueNotFound"
        | "QueueNotOpen"
        | "QueueMisconfigured"
        | "QueueNotLeaf"
        | "NotReleased"
        | Reason::NAMESPACE_NOT_SELECTED => Verdict::Blocked,
        _ => Verdict::Waiting,
    };
    Answer { verdict, token: status.reason.clone(), sentence: status.message.clone() }
}

fn list_placed(controller: &Controller, binding: &Binding) -> Vec<Placed> {
    let plan = binding.plan.as_ref();
    let tasks = |cluster: &ClusterName| {
        let share = plan.and_then(|plan| plan.clusters.get(cluster));
        share.map(|share| share.tasks.iter().map(|(task, share)| (task.clone(), share.replicas)).collect())
    };
    let one = |(cluster, replicas): &(ClusterName, u32)| Placed {
        cluster: cluster.clone(),
        replicas: *replicas,
        tasks: tasks(cluster).unwrap_or_default(),
        on_nodes: controller.capacity.count_pods_on_nodes(cluster.as_str(), &binding.workload),
    };
    binding.clusters.iter().map(one).collect()
}

/// How long a job may run: as was granted, or as its queues say now. Who does not see them is told nothing.
fn find_run_limit(
    controller: &Controller,
    binding: &Binding,
    state: &JobState,
    now: Timestamp,
) -> Option<RunLimitView> {
    if let Some(run) = get_current_run_limit(binding, state.stage()) {
        let left = run.ends_at().seconds_since(now.into()).max(0);
        let ends = Some(format_time(to_timestamp(run.ends_at())));
        return Some(RunLimitView { seconds: run.seconds, ends, left_seconds: Some(left) });
    }
    let workload = controller.objects.workload_of(binding)?;
    let waits = state.stage().is_none() && find_run_time_exceeded(binding).is_none() && controller.is_complete();
    let seconds = controller.objects.find_max_run_time(workload).filter(|_| waits)?;
    Some(RunLimitView { seconds, ends: None, left_seconds: None })
}

fn find_reservation(controller: &Controller, id: &str) -> Option<Reserved> {
    let kept = controller.jobs.engine.reservation_of(id)?;
    let (bound, resource) = kept.short.map(|(bound, resource)| (bound.to_string(), resource)).unzip();
    Some(Reserved { since: format_second(kept.since), resource, bound, clusters: kept.clusters })
}

fn estimate_start(controller: &Controller, id: &str) -> Eta {
    let nobody = |basis: &str| Eta { at: None, basis: basis.to_owned() };
    match controller.jobs.engine.reservation_of(id) {
        Some(kept) => match kept.start {
            Ok(start) => Eta {
                at: format_second(start),
                basis: "it has a reservation, and enough of what has to end before it has said how long it runs"
                    .to_owned(),
            },
            Err(UnknownStart::EndUnknown) => nobody(
                "it has a reservation: it starts as soon as enough has ended, but what has to end has not said when, or \
                 should have by now",
            ),
            Err(UnknownStart::SharedQuota) => nobody(
                "it has a reservation in its own queue; above it, beyond what that deserves, others may take what comes \
                 free",
            ),
            Err(UnknownStart::Capacity) => {
                nobody("it has a reservation in clusters: when enough of what runs there has ended is not known")
            }
        },
        None => nobody("it has no reservation yet: others rank before it, or it has not waited long enough"),
    }
}

/// Which jobs were evicted for a job, as long as the capacity is held for it: their bindings say so.
fn describe_evictions_for(controller: &Controller, id: &str, now: Timestamp) -> Option<String> {
    let evictions = controller.objects.bindings.values().filter_map(|binding| binding.eviction.as_ref());
    let ours: Vec<EpochSeconds> = evictions
        .filter(|eviction| eviction.preemptor == id && eviction.until > EpochSeconds::from(now))
        .map(|eviction| eviction.until)
        .collect();
    let until = format_second(*ours.iter().max()?)?;
    let jobs = count_noun(ours.len(), "job");
    Some(format!("{jobs} evicted for it; the capacity is held for it until {until}"))
}

/// A time as Kubernetes writes it.
fn format_second(time: EpochSeconds) -> Option<String> {
    time.to_timestamp().map(format_time)
}
