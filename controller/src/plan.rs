//! What is to be written now, from what is known now: releases first, then what users read.
//!
//! Releases are drained, in order, each against the room that the ones before it left. What users read is coalesced: a
//! PodGroup is written at once when it is made and when its job ends, otherwise at most once a second, and a text of
//! which only the numbers changed at most every half minute; nothing that says the same is ever written again.

use std::sync::Arc;

use caldera_core::{
    gang::ClusterName,
    queue::{JobId, ledger::Stage},
    reason::Reason,
};
use caldera_runtime::{
    clock::format_time,
    event::{EventType, Regarding},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::{
    doubt,
    effect::Effect,
    facts::{GroupFacts, GroupStatus, Key, Workload, fingerprint},
    give_back,
    index::{Assumed, Entry, GroupWriting, Index, Refreshes, State, Tag},
    lifecycle, podgroup, queue_note, queue_numbers, release,
    room::Grown,
    unplaced, unstarted, unused,
};

/// Between two writes of one PodGroup's status.
const COALESCE: SignedDuration = SignedDuration::from_secs(1);
/// From a release to the write that says so: most jobs run by then, and one write says both. The event on the user's
/// own object is sent at once.
const STARTING: SignedDuration = SignedDuration::from_secs(3);
/// Between two writes of a text of which only numbers changed.
const REFRESH: SignedDuration = SignedDuration::from_secs(30);
/// Texts refreshed in one second at most, so that a long line does not fill the host with writes.
const REFRESHES: usize = 10;
/// PodGroups looked at in one turn, so that new events are never far behind.
const LOOKS: usize = 128;
/// PodGroups that are being written at most: what waits to be sent costs memory, and is out of date when it goes.
const WRITING: usize = 256;

/// What is to be written, and when to ask again if nothing happens.
#[derive(Debug, Default)]
pub struct Plan {
    /// In this order.
    pub effects: Vec<(Tag, Effect)>,
    /// Ask again at this time; now, if there is more to do.
    pub next: Option<Timestamp>,
    /// How many of the effects are releases.
    pub releases: usize,
    /// How many of the effects make a job give way.
    pub evictions: usize,
}

/// See the module.
pub fn plan(index: &mut Index, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    index.now = now;
    if !index.is_complete() {
        return plan;
    }
    default_queue(index, &mut plan);
    timers(index, now, &mut plan);
    room(index);
    doubt::turn(index, now, &mut plan);
    release::turn(index, now, &mut plan);
    unused::turn(index, now);
    plan.effects.extend(index.cut());
    index.moved |= index.engine.take_reservations_changed();
    // Releases go out before anything is written about them; the next turn is for that, whatever else happens.
    if plan.releases > 0 && !std::mem::replace(&mut index.hurried, true) {
        plan.next = Some(now);
        return plan;
    }
    index.hurried = false;
    give_back::turn(index, now, &mut plan);
    if plan.evictions > 0 {
        // The claimant's place is kept before anything comes free.
        release::turn(index, now, &mut plan);
    }
    plan.effects.extend(index.tells.drain(..).map(|tell| (Tag::Tell, tell)));
    for (key, uid) in std::mem::take(&mut index.orphans) {
        plan.effects.push((Tag::OldGroup, Effect::DeleteGroup { key, uid: uid.to_string() }));
    }
    for _ in 0..LOOKS {
        let Some(key) = may_write(index).then(|| index.dirty.pop_first()).flatten() else { break };
        look(index, &key, None, now, &mut plan);
    }
    sweep(index, now, &mut plan);
    unplaced::turn(index, now, &mut plan);
    unstarted::turn(index, now, &mut plan);
    lifecycle::turn(index, now, &mut plan);
    queue_note::turn(index, now, &mut plan);
    // An answer comes for each that is being written.
    let more = may_write(index) && !(index.dirty.is_empty() && index.sweep.is_empty());
    let again = plan.releases == release::RELEASES || more;
    plan.next = if again {
        Some(now)
    } else {
        let timer = index.timers.first().map(|(at, _)| *at);
        let fence = index.engine.next_due().and_then(|due| Timestamp::from_second(due).ok());
        let queues = [index.lifecycle.due(), index.notes.due()];
        let unplaced = [index.unplaced.due(), index.unstarted.due(), index.unused.due(), index.doubts.due()]
            .into_iter()
            .flatten()
            .min();
        let all = [
            index.count_due,
            index.refresh_due,
            index.sweep_due,
            index.numbers_due,
            index.claims.due,
            timer,
            fence,
            unplaced,
        ];
        all.into_iter().chain(queues).flatten().min()
    };
    plan
}

fn may_write(index: &Index) -> bool {
    index.writing < WRITING
}

fn default_queue(index: &mut Index, plan: &mut Plan) {
    let name = caldera_crds::names::volcano::DEFAULT_QUEUE;
    if !std::mem::replace(&mut index.default_queue_asked, true) && !index.queues.contains_key(name) {
        plan.effects.push((Tag::DefaultQueue, Effect::DefaultQueue));
    }
}

fn timers(index: &mut Index, now: Timestamp, plan: &mut Plan) {
    if index.refresh_due.is_some_and(|due| due <= now) {
        index.refresh_due = None;
        for _ in 0..REFRESHES {
            index.dirty.extend(index.outdated.pop_first());
        }
        if !index.outdated.is_empty() {
            index.refresh_due = now.saturating_add(COALESCE).ok();
        }
    }
    for _ in 0..LOOKS {
        let Some((at, key)) = index.timers.first().filter(|(at, _)| *at <= now).cloned() else { return };
        index.timers.remove(&(at, key.clone()));
        index.dirty.insert(key.clone());
        let Some(entry) = index.entries.get_mut(&key) else { continue };
        let retry = entry.assumed.as_ref().and_then(|assumed| assumed.retry);
        match (retry, &mut entry.assumed) {
            (Some(at), Some(assumed)) if at <= now => {
                assumed.retry = None;
                let effect = assumed.effect(&key, &entry.binding.id);
                plan.effects.push((Tag::Release(key, Arc::clone(&assumed.resource_version)), effect));
            }
            (None, None) if entry.refused.as_ref().is_some_and(|(_, until)| *until <= now) => {
                entry.refused = None;
                index.restand(&key);
            }
            // Who was taken surplus from may ask for it again.
            (None, None) if entry.growth.is_none() && entry.binding.eviction.is_some() => index.restand(&key),
            _ => {}
        }
    }
}

fn room(index: &mut Index) {
    if index.room.take_changed() {
        index.room.take_others_moved();
        index.counted = Some(index.now);
        let total = index.room.total();
        index.notes.fleet_changed(&total, index.now);
        index.engine.set_fleet(total);
        // A duplicated job asks for as many copies as there are clusters for it, also while it runs.
        index.restand_all(|binding| {
            binding.placement.as_deref().is_some_and(|placement| {
                caldera_core::place::spread_constraints::is_duplicated(placement.placement.division.as_ref())
            })
        });
        index.moved = true;
    } else {
        count_others(index);
    }
    let regrouped = std::mem::take(&mut index.regrouped);
    if regrouped {
        // A duplicated job asks for as many copies as there are clusters without the others of its groups.
        index.restand_all(|binding| binding.admission.is_none() && !binding.groups.is_empty());
    }
    let grown = index.room.take_grown();
    if let Some(grown) = if regrouped { Some(Grown::Somewhere) } else { grown } {
        match grown {
            Grown::By(growth) => index.engine.requeue_after_growth(&growth),
            Grown::Somewhere => index.engine.requeue_after_capacity_change(),
        }
        index.moved = true;
    }
}

/// What others use in the members bounds the root of the queues. It is counted once a second at most, and nothing is
/// written for it alone: who waits is asked again by what is free on nodes.
fn count_others(index: &mut Index) {
    index.count_due = None;
    if !index.room.others_moved() {
        return;
    }
    let next = index.counted.and_then(|last| last.saturating_add(COALESCE).ok());
    if let Some(next) = next.filter(|next| *next > index.now) {
        index.count_due = Some(next);
        return;
    }
    index.counted = Some(index.now);
    index.room.take_others_moved();
    let total = index.room.total();
    index.engine.set_fleet(total);
    if index.room.forget_never() {
        index.engine.requeue_after_capacity_change();
        index.moved = true;
    }
}

/// What to do about a binding's PodGroup.
enum Verdict {
    /// It is as it should be.
    Same,
    /// Not yet.
    Later(Timestamp),
    /// It is not needed any more.
    TakeAway(Key, Arc<str>),
    /// Write it.
    Write { effect: Box<Effect>, tells: Vec<Effect>, turned: Option<Box<Effect>>, spec: u64, only_numbers: bool },
}

/// Compares the PodGroup of a binding with what it should be, and writes the difference when it is due. `known` is the
/// reason where the caller has it already.
fn look(index: &mut Index, key: &Key, known: Option<Reason>, now: Timestamp, plan: &mut Plan) {
    let Some(verdict) = verdict(index, key, known, now) else { return };
    if let Verdict::Write { only_numbers: true, .. } = verdict
        && let Err(later) = refresh(&mut index.refreshes, now)
    {
        index.outdated.insert(key.clone());
        index.refresh_due.get_or_insert(later);
        return;
    }
    let Some(entry) = index.entries.get_mut(key) else { return };
    match verdict {
        Verdict::Same => entry.group.changed_at = None,
        Verdict::Later(at) => {
            entry.group.changed_at.get_or_insert(now);
            index.timers.insert((at, key.clone()));
        }
        Verdict::TakeAway(group, uid) => {
            index.groups.remove(&group);
            plan.effects.push((Tag::OldGroup, Effect::DeleteGroup { key: group, uid: uid.to_string() }));
        }
        Verdict::Write { effect, tells, turned, spec, .. } => {
            let group =
                GroupWriting { in_flight: true, last_write: Some(now), spec_written: spec, ..GroupWriting::default() };
            entry.group = group;
            index.writing += 1;
            plan.effects.push((Tag::Group(key.clone()), *effect));
            // Of a long line whose reasons all change few are told: the PodGroups say it too.
            let turned = turned.filter(|_| refresh(&mut index.refreshes, now).is_ok());
            plan.effects.extend(tells.into_iter().chain(turned.map(|turned| *turned)).map(|tell| (Tag::Tell, tell)));
        }
    }
}

fn verdict(index: &Index, key: &Key, known: Option<Reason>, now: Timestamp) -> Option<Verdict> {
    let entry = index.entries.get(key)?;
    let workload = index.workload_of(&entry.binding).filter(|workload| !workload.deleting)?;
    if entry.group.in_flight {
        return None;
    }
    if let Some(not_before) = entry.group.not_before.filter(|at| *at > now) {
        return Some(Verdict::Later(not_before));
    }
    let group_key = podgroup::key(workload);
    let there = index.groups.get(&group_key);
    // A PodGroup of that name that is not this workload's is somebody else's.
    if there.is_some_and(|group| group.owner != workload.uid) {
        return None;
    }
    let swept = known.is_some();
    let Some((stage, reason)) = stands(index, key, known) else {
        // Out of scope: what we made before is taken away.
        return there.map(|group| Verdict::TakeAway(group_key, Arc::clone(&group.uid)));
    };
    let unknown_class = unknown_class(index, workload);
    let same_reason = there.filter(|group| group.status.reason == reason.token());
    let since = same_reason.map(|group| group.status.since.clone()).filter(|since| !since.is_empty());
    let since = since.unwrap_or_else(|| format_time(now));
    let status =
        podgroup::status(workload, stage, &reason, &note(index, entry, workload, unknown_class.as_deref()), since);
    // A sweep is about reasons alone: nothing that the spec depends on has changed.
    let only_reason = swept && there.is_some();
    let spec = (!only_reason).then(|| podgroup::spec(workload, |class| index.priority_of(class)));
    let print = spec.as_ref().map_or(entry.group.spec_written, fingerprint);
    let mut tells = Vec::new();
    if reason.needs_a_change() && same_reason.is_none() {
        tells.push(tell(workload, EventType::Warning, reason.token(), reason.to_string()));
    }
    // It waits on, for another reason than before.
    let turns = |group: &&GroupFacts| {
        let waited = group.status.phase == "Pending" && !group.status.reason.is_empty();
        stage.is_none() && waited && tells.is_empty() && same_reason.is_none()
    };
    let turned = there.map(|group| &**group).filter(turns);
    let turned = turned.map(|_| Box::new(tell(workload, EventType::Normal, reason.token(), status.message.clone())));
    let write = |effect, tells, only_numbers| {
        Some(Verdict::Write { effect: Box::new(effect), tells, turned: turned.clone(), spec: print, only_numbers })
    };
    // The PodGroup says whether it was told.
    if let Some(message) = unknown_class.filter(|said| there.is_none_or(|group| !group.status.message.contains(said))) {
        tells.push(tell(workload, EventType::Warning, "PriorityClassNotFound", message));
    }
    let Some(group) = there else {
        let object = podgroup::object(workload, &spec.unwrap_or_default(), &status);
        return write(Effect::CreateGroup { key: group_key, object }, tells, false);
    };
    let spec_differs = spec.is_some() && group.spec != print && entry.group.spec_written != print;
    let difference = Difference::between(&group.status, &status);
    match due(&entry.group, difference, spec_differs, now) {
        None => Some(Verdict::Same),
        Some(at) if at > now => Some(Verdict::Later(at)),
        Some(_) => {
            let mut patch = json!({"status": podgroup::status_json(workload, &status)});
            if spec_differs {
                patch["spec"] = json!(spec);
            }
            let only_numbers = difference == Difference::Numbers && !spec_differs;
            write(Effect::PatchGroup { key: group_key, patch }, tells, only_numbers)
        }
    }
}

/// How a status differs from what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Difference {
    None,
    Numbers,
    /// It may start; whether it does is seen soon.
    Starting,
    Word,
    End,
}

impl Difference {
    fn between(there: &GroupStatus, wanted: &GroupStatus) -> Self {
        if there == wanted {
            Self::None
        } else if there.phase != wanted.phase && wanted.phase == "Completed" {
            Self::End
        } else if (&there.phase, &there.condition, &there.reason) != (&wanted.phase, &wanted.condition, &wanted.reason)
        {
            match wanted.reason.as_str() {
                "Admitted" | "Placed" if wanted.phase == "Inqueue" => Self::Starting,
                _ => Self::Word,
            }
        } else {
            Self::Numbers
        }
    }
}

/// When a difference is to be written.
fn due(writing: &GroupWriting, difference: Difference, spec_differs: bool, now: Timestamp) -> Option<Timestamp> {
    let after = |from: Option<Timestamp>, wait: SignedDuration| {
        from.map_or(now, |from| from.saturating_add(wait).unwrap_or(now))
    };
    match difference {
        Difference::None => spec_differs.then_some(now),
        Difference::End => Some(now),
        Difference::Starting => Some(after(Some(writing.changed_at.unwrap_or(now)), STARTING)),
        Difference::Word => {
            let changed = Some(writing.changed_at.unwrap_or(now));
            Some(after(changed, COALESCE).max(after(writing.last_write, COALESCE)))
        }
        Difference::Numbers if spec_differs => Some(now),
        Difference::Numbers => Some(after(Some(writing.last_write.or(writing.changed_at).unwrap_or(now)), REFRESH)),
    }
}

/// Takes one from the budget of refreshes, or says when to ask again.
fn refresh(budget: &mut Refreshes, now: Timestamp) -> Result<(), Timestamp> {
    let next = budget.since.saturating_add(COALESCE).unwrap_or(now);
    if now >= next {
        *budget = Refreshes { since: now, written: 0 };
    } else if budget.written >= REFRESHES {
        return Err(next);
    }
    budget.written += 1;
    Ok(())
}

/// Stage (while it holds) and reason of a binding; `None` out of scope.
fn stands(index: &Index, key: &Key, known: Option<Reason>) -> Option<(Option<Stage>, Reason)> {
    let entry = index.entries.get(key)?;
    if let Some(Assumed { admission, regrants: false, .. }) = entry.assumed.as_deref() {
        let reason = Reason::Admitted { queue: admission.queue.clone(), charged: admission.charged.clone() };
        return Some((Some(Stage::Admitted), reason));
    }
    match &entry.state {
        State::OutOfScope => None,
        State::Blocked(reason) => Some((None, (**reason).clone())),
        State::InLine => Some((None, known.or_else(|| index.engine.explain_pending(entry.binding.id.as_str()))?)),
        State::Holding { stage, reason } => {
            let never = index.never_more(entry).filter(|_| matches!(**reason, Reason::ScaledUp { .. }));
            Some((Some(*stage), never.unwrap_or_else(|| (**reason).clone())))
        }
    }
}

/// What is kept for a job, and when it starts at the latest.
fn kept(index: &Index, id: &JobId) -> String {
    let Some(kept) = index.engine.reservation_of(id.as_str()) else { return String::new() };
    let time = |second| Timestamp::from_second(second).map_or_else(|_| String::new(), format_time);
    let mut note = format!("; since {} what it lacks is kept for it", time(kept.since));
    if !kept.clusters.is_empty() {
        let clusters: Vec<&str> = kept.clusters.iter().map(ClusterName::as_str).collect();
        note += &format!(" in {}", clusters.join(", "));
    }
    if let Ok(start) = kept.start {
        note += &format!("; by what running jobs say of themselves it starts at {} at the latest", time(start));
    }
    note
}

/// What is said where a workload names a PriorityClass that there is not.
pub(crate) fn unknown_class(index: &Index, workload: &Workload) -> Option<String> {
    let priority = index.priority_of(&workload.class);
    let unknown = index.class_value(&workload.class).is_none();
    unknown.then(|| format!("PriorityClass {} does not exist: priority {priority} is assumed", workload.class))
}

/// What else a user should know: it follows the sentence.
fn note(index: &Index, entry: &Entry, workload: &Workload, unknown_class: Option<&str>) -> String {
    let id = &entry.binding.id;
    let mut note = kept(index, id);
    // Where it can never be had, that is the sentence itself.
    if let Some(rest) = index.rest_of(entry).filter(|_| index.never_more(entry).is_none()) {
        note += &format!("; {rest}");
    }
    if let Some(why) = index.claims.notes.get(id).filter(|_| index.engine.is_pending(id.as_str())) {
        note += &format!("; {why}");
    }
    if let Some(unknown_class) = unknown_class {
        note += &format!("; {unknown_class}");
    }
    for wrong in index.queues.get(&workload.queue).into_iter().flat_map(|queue| &queue.wrong) {
        note += &format!("; queue {}: {wrong}: taken for 0", workload.queue);
    }
    note
}

/// An event on a workload.
pub(crate) fn tell(workload: &Workload, event_type: EventType, reason: &str, message: String) -> Effect {
    Effect::Tell {
        regarding: Regarding {
            api_version: workload.api_version.to_string(),
            kind: workload.reference.kind.clone(),
            namespace: workload.reference.namespace.clone(),
            name: workload.reference.name.clone(),
            uid: workload.uid.to_string(),
        },
        event_type,
        reason: reason.to_owned(),
        message,
    }
}

/// At most once a second, after something moved: every waiting job's reason, and every queue's numbers that are due.
fn sweep(index: &mut Index, now: Timestamp, plan: &mut Plan) {
    if index.moved && index.sweep_due.is_none() && index.sweep.is_empty() {
        let next = index.last_sweep.and_then(|last| last.saturating_add(COALESCE).ok()).unwrap_or(now);
        index.sweep_due = Some(next.max(now));
    }
    if index.sweep_due.is_some_and(|due| due <= now) {
        index.sweep_due = None;
        index.last_sweep = Some(now);
        index.moved = false;
        index.lifecycle.jobs_moved();
        index.sweep = index.engine.pending_positions().map(|(id, position)| (id.clone(), position)).collect();
        index.numbers_due = Some(now);
    }
    queue_numbers::turn(index, now, plan);
    for _ in 0..LOOKS {
        let Some((id, position)) = may_write(index).then(|| index.sweep.pop_front()).flatten() else { break };
        let Some(key) = index.ids.get(&id).cloned() else { continue };
        let Some(reason) = index.engine.explain_pending_at(id.as_str(), position) else { continue };
        look(index, &key, Some(reason), now, plan);
    }
}
