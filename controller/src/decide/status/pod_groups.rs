//! Which PodGroups are written now, the phase and the reason that users read, and which events go with them.
//!
//! Writes are coalesced:
//! - At once: when its job ends, and when it is made for a job whose user has to do something, or has more to read.
//! - A second late: one made for a job that just waits, by when many have started. Where writes are slow these are made
//!   in turn ([`FirstPodGroups`]), fewer the slower writes are, one in a second at least. A host at its end is then not
//!   given a write of each of a thousand jobs that it makes wait the longer for it.
//! - Three seconds after its job starts at the earliest, and up to thirty where writes are slow: one that ends by then
//!   has one write, which says so. Where the job waited, its start is written as late, counted from its release.
//! - Otherwise at most once a second, also when its clusters change.
//! - By budget: what a job waits for, as far as nobody has to do anything about it. That is ten in a second while
//!   writes are quick and phases do not take them, else fewer, one at least. So a long queue does not take the host's
//!   writes from releases. The front of each line is first ([`OutdatedTexts`]).
//! - Every four seconds at most, by the same budget: another place, or other numbers, under the same reason. What
//!   nobody acts on ([`StatusDifference::Numbers`]) is written every half minute at most.
//! - Never again: what says the same.
//!
//! A warning event is recorded where a reason is new that its user has to do something about, and where a PriorityClass
//! does not exist. That a job waits on for another reason is an event by budget. A PodGroup of another owner is left
//! alone, whatever its name; one of a binding that is out of scope is deleted, and so is a second of one workload.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use caldera_core::reason::Reason;
use caldera_crds::{names::caldera::PLACED_CLUSTERS, volcano::scheduling::PodGroupSpec};
use caldera_runtime::{clock::format_time, event::EventType};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{
    first_pod_groups::FirstPodGroups,
    outdated_texts::{OutdatedTexts, find_place},
    pod_group_status::{describe_details, find_stage_and_reason},
    refresh_budget::RefreshBudget,
    status_difference::StatusDifference,
};
use crate::{
    decide::{
        bindings::jobs::{JobPhase, Jobs},
        deadlines::{add_wait, compute_backoff},
        lifecycle::run_limits::describe_limit,
        preemption::attempt::Preemption,
    },
    observe::{Key, Objects, PodGroupStatus, Workload, fingerprint},
    write::{Decision, pod_group},
};

/// Between two writes of one PodGroup's status.
pub(crate) const COALESCE: SignedDuration = SignedDuration::from_secs(1);
/// From a release to the write that says so: most jobs run by then, and one write says both. Where writes are slow it
/// is longer, up to ten times.
const STARTING_COALESCE: SignedDuration = SignedDuration::from_secs(3);
/// Between two looks at texts for which there was no budget.
const BUDGET_INTERVAL: SignedDuration = SignedDuration::from_millis(100);
/// Between two writes of a text of which the place or numbers changed: with a sweep and a turn it is five seconds.
const MOVE_INTERVAL: SignedDuration = SignedDuration::from_secs(4);
/// The same where nobody acts on what changed.
const REFRESH_INTERVAL: SignedDuration = SignedDuration::from_secs(30);
/// The garbage collector takes the PodGroup of a workload that is gone by then, mostly.
const COLLECTED_WITHIN: SignedDuration = SignedDuration::from_secs(10);
/// PodGroups looked at in one pass, so that new events are never far behind.
pub(crate) const POD_GROUPS_PER_PASS: usize = 128;
/// PodGroups that are being written at most: what waits to be sent costs memory, and is out of date when it goes.
const IN_FLIGHT: usize = 256;
/// Event on a workload: it names a PriorityClass that does not exist, and counts as one that names none.
const PRIORITY_CLASS_NOT_FOUND: &str = "PriorityClassNotFound";

/// What is known of the writes to the PodGroup of one binding.
#[derive(Debug, Default)]
struct PodGroupWrite {
    in_flight: bool,
    last_write: Option<Timestamp>,
    /// Since when it does not say what it should.
    changed_at: Option<Timestamp>,
    /// Since when what it should say is that its job may start. A text that waited for its budget makes no start more
    /// urgent.
    starts_at: Option<Timestamp>,
    not_before: Option<Timestamp>,
    /// Somebody has an object of the name that it should have.
    name_taken: bool,
    /// In a row.
    failures: u32,
    spec_written: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct PodGroupWrites {
    writes: BTreeMap<Key, PodGroupWrite>,
    /// Bindings whose PodGroup is to be looked at now.
    dirty: BTreeSet<Key>,
    /// Those to be looked at later.
    timers: BTreeSet<(Timestamp, Key)>,
    /// PodGroups whose text is out of date, for which there was no budget yet.
    outdated: OutdatedTexts,
    /// Those that got their turn, and are looked at next.
    turns: BTreeSet<Key>,
    refresh_due: Option<Timestamp>,
    pub(crate) budget: RefreshBudget,
    /// PodGroups that are made for jobs that just wait, where writes are slow.
    first: FirstPodGroups,
    in_flight: usize,
    /// How often one was compared with what it should be.
    #[cfg(test)]
    pub(crate) looks: usize,
}

/// What a write of a PodGroup is taken from, if it may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Budget {
    /// Texts that are brought up to date, the front of each line first.
    Texts { place: usize },
    /// First words on a job that just waits.
    First,
}

/// What to do about a PodGroup.
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
enum Action {
    /// It is as it should be.
    Keep,
    /// Not yet; and whether it is that the job may start.
    Later(Timestamp, bool),
    /// It is not needed any more.
    Delete(Key, Arc<str>),
    /// Write it, and record events; `on_change` is the event that says that a job waits on for another reason.
    Write { key: Key, body: Body, events: Vec<Decision>, on_change: Option<Decision>, budget: Option<Budget> },
}

/// What is written. An object is built once it is known that there is a budget for it.
enum Body {
    New(PodGroupStatus),
    Patch { patch: Value, spec: u64 },
}

impl PodGroupWrites {
    /// Has the PodGroup of a binding looked at.
    pub(crate) fn mark_dirty(&mut self, key: &Key) {
        self.dirty.insert(key.clone());
    }

    /// Forgets a binding that is gone.
    pub(crate) fn forget(&mut self, key: &Key) {
        self.writes.remove(key);
        self.dirty.remove(key);
        self.outdated.remove(key);
        self.turns.remove(key);
        self.first.forget(key);
    }

    /// Somebody has an object of the name that the PodGroup of a binding should have.
    pub(crate) fn observe_taken_name(&mut self, key: &Key) {
        if let Some(write) = self.writes.get_mut(key) {
            write.name_taken = true;
        }
    }

    /// Whether there is capacity for more writes.
    pub(crate) const fn may_write(&self) -> bool {
        self.in_flight < IN_FLIGHT
    }

    /// Whether there is more to look at now. An answer comes for each that is being written.
    pub(crate) fn has_more(&self) -> bool {
        self.may_write() && !self.dirty.is_empty()
    }

    /// How many are looked at now, and later; whose text is out of date; and how many are being written.
    pub(crate) fn count_left(&self) -> [(&'static str, usize); 4] {
        [
            ("due", self.dirty.len()),
            ("later", self.timers.len()),
            ("outdated", self.outdated.len()),
            ("inFlight", self.in_flight),
        ]
    }

    /// When to look again if nothing happens. A sweep that goes on waits for answers, and gives turns after that.
    pub(crate) fn next_due(&self, sweeps: bool) -> Option<Timestamp> {
        let timer = self.timers.first().map(|(at, _)| *at);
        let turn = self.first.next_due().filter(|_| !sweeps);
        [timer, self.refresh_due, turn].into_iter().flatten().min()
    }

    /// Whether there is none for a job that waits, and no turn: then there is another sweep, whatever happens.
    pub(crate) const fn lacks_first(&self) -> bool {
        self.first.lacks_turn()
    }

    /// A sweep over those that wait begins.
    pub(crate) fn begin_sweep(&mut self) {
        self.first.begin_sweep();
    }

    /// Jobs that wait whose PodGroup may be made now, after the last sweep found no budget for it.
    pub(crate) fn take_first_turns(&mut self, now: Timestamp) -> Vec<Key> {
        let most = POD_GROUPS_PER_PASS.min(IN_FLIGHT.saturating_sub(self.in_flight));
        self.first.take_turns(most, &self.budget, now)
    }

    /// From one sweep to the next: longer where writes are slow, since few of its texts would be written.
    pub(crate) fn wait_between_sweeps(&self) -> SignedDuration {
        self.budget.stretch_wait(COALESCE)
    }

    /// Counts texts against the budget that are written elsewhere.
    pub(crate) fn take_texts_from_budget(&mut self, texts: usize, now: Timestamp) {
        (0..texts).for_each(|_| self.budget.take_for_other_write(now));
    }

    /// Has those looked at whose time has come.
    pub(crate) fn mark_due_dirty(&mut self, now: Timestamp) {
        if self.refresh_due.is_some_and(|due| due <= now) {
            while self.outdated.len() > 0
                && self.budget.take_one(now).is_ok()
                && let Some(key) = self.outdated.take_next()
            {
                self.dirty.insert(key.clone());
                self.turns.insert(key);
            }
            self.refresh_due =
                (self.outdated.len() > 0).then(|| self.budget.next_at(now).max(add_wait(now, BUDGET_INTERVAL)));
        }
        for _ in 0..POD_GROUPS_PER_PASS {
            if self.timers.first().is_none_or(|(at, _)| *at > now) {
                return;
            }
            self.dirty.extend(self.timers.pop_first().map(|(_, key)| key));
        }
    }

    /// Writes those that changed, a limited number in one pass.
    pub(crate) fn write_changed(
        &mut self,
        objects: &mut Objects,
        jobs: &Jobs,
        preemption: &Preemption,
        now: Timestamp,
    ) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for _ in 0..POD_GROUPS_PER_PASS {
            let Some(key) = self.may_write().then(|| self.dirty.pop_first()).flatten() else { break };
            decisions.extend(self.write_pod_group_if_due(objects, jobs, preemption, &key, None, now));
        }
        decisions
    }

    /// Compares the PodGroup of a binding with what it should be, and writes the difference when it is due. `known` is
    /// the reason where the caller has it already.
    pub(crate) fn write_pod_group_if_due(
        &mut self,
        objects: &mut Objects,
        jobs: &Jobs,
        preemption: &Preemption,
        key: &Key,
        known: Option<Reason>,
        now: Timestamp,
    ) -> Vec<Decision> {
        let in_line = known.is_some();
        #[cfg(test)]
        {
            self.looks += 1;
        }
        let has_turn = self.turns.remove(key);
        let Some(action) = self.choose_action(objects, jobs, preemption, key, known, now) else { return Vec::new() };
        match action {
            Action::Write { budget: Some(Budget::Texts { place }), .. } if !has_turn => {
                // One further on in this sweep may be nearer to the front of its line.
                self.outdated.insert(key, place, now);
                self.refresh_due.get_or_insert(add_wait(now, BUDGET_INTERVAL));
                return Vec::new();
            }
            Action::Write { budget: Some(Budget::First), .. }
                if !self.first.take_one(key, in_line, &self.budget, now) =>
            {
                return Vec::new();
            }
            _ => drop(self.outdated.remove(key)),
        }
        match action {
            Action::Keep => {
                let write = self.writes.entry(key.clone()).or_default();
                (write.changed_at, write.starts_at) = (None, None);
                Vec::new()
            }
            Action::Later(at, is_start) => {
                let write = self.writes.entry(key.clone()).or_default();
                write.changed_at.get_or_insert(now);
                write.starts_at = is_start.then(|| write.starts_at.unwrap_or(now));
                self.timers.insert((at, key.clone()));
                Vec::new()
            }
            Action::Delete(group, uid) => {
                objects.pod_groups.remove(&group);
                vec![Decision::DeletePodGroup { key: group, uid }]
            }
            Action::Write { key: group, body, events, on_change, budget } => {
                if !matches!(budget, Some(Budget::Texts { .. })) {
                    self.budget.take_for_other_write(now);
                }
                let exists = matches!(body, Body::Patch { .. });
                let Some((body, spec)) = build_body(objects, key, &group, body) else { return Vec::new() };
                let write = Decision::WritePodGroup { key: group, binding: key.clone(), exists, body };
                let before = self.writes.remove(key).unwrap_or_default();
                let state = PodGroupWrite {
                    in_flight: true,
                    last_write: Some(now),
                    name_taken: before.name_taken,
                    failures: before.failures,
                    spec_written: spec,
                    ..PodGroupWrite::default()
                };
                self.writes.insert(key.clone(), state);
                self.in_flight += 1;
                // Of a long queue whose reasons all change few are recorded: the PodGroups say it too.
                let on_change = on_change.filter(|_| self.budget.take_one(now).is_ok());
                [write].into_iter().chain(events).chain(on_change).collect()
            }
        }
    }

    fn choose_action(
        &self,
        objects: &Objects,
        jobs: &Jobs,
        preemption: &Preemption,
        key: &Key,
        known: Option<Reason>,
        now: Timestamp,
    ) -> Option<Action> {
        let (binding, state) = (objects.bindings.get(key)?, jobs.states.get(key)?);
        let workload = objects.workload_of(binding).filter(|workload| !workload.deleting)?;
        let nothing = PodGroupWrite::default();
        let written = self.writes.get(key).unwrap_or(&nothing);
        if written.in_flight {
            return None;
        }
        if let Some(not_before) = written.not_before.filter(|at| *at > now) {
            return Some(Action::Later(not_before, written.starts_at.is_some()));
        }
        let there = objects.pod_groups.find(workload);
        if let Some(surplus) = objects.pod_groups.find_surplus(workload) {
            return Some(Action::Delete(surplus.key.clone(), Arc::clone(&surplus.uid)));
        }
        let group_key = match there {
            Some(group) => group.key.clone(),
            // The one of an earlier workload of its name goes soon: people type that name.
            None if add_wait(written.changed_at.unwrap_or(now), COLLECTED_WITHIN) > now
                && objects.has_pod_group_of_earlier(workload) =>
            {
                return Some(Action::Later(add_wait(now, COALESCE), false));
            }
            None => objects.pod_groups.find_free_name(workload, written.name_taken)?,
        };
        // A sweep is about reasons alone: nothing that the spec depends on has changed.
        let only_reason = known.is_some();
        let Some((stage, reason)) = find_stage_and_reason(jobs, key, known) else {
            // Out of scope: what we made before is deleted.
            return there.map(|group| Action::Delete(group_key, Arc::clone(&group.uid)));
        };
        let same_reason = there.filter(|group| group.status.reason == reason.token());
        let since = same_reason.map(|group| group.status.since.clone()).filter(|since| !since.is_empty());
        let details = describe_details(objects, jobs, preemption, binding, state, workload);
        // That it has a limit is no news to be told at once.
        let limit = describe_limit(binding, stage).map_or(String::new(), |limit| format!("; {limit}"));
        let reported = format!("{details}{limit}");
        let since = since.unwrap_or_else(|| format_time(now));
        let mut status = pod_group::build_status(workload, stage, &reason, &reported, &binding.clusters, since);
        // Its Volcano forgets them when the job restarts or a copy ends.
        status.failed = status.failed.max(there.map_or(0, |group| group.status.failed));
        let event = |kind, reason: &str, message| Decision::build_workload_event(workload, kind, reason, message);
        let mut events = Vec::new();
        // Who was ended by a limit was told so then.
        let was_reported = matches!(reason, Reason::RunTimeExceeded { .. });
        if reason.needs_user_action() && same_reason.is_none() && !was_reported {
            events.push(event(EventType::Warning, reason.token(), reason.to_string()));
        }
        // It waits on, for another reason than before.
        let waited = there.is_some_and(|group| group.status.phase == "Pending" && !group.status.reason.is_empty());
        let waits_on = stage.is_none() && waited && events.is_empty() && same_reason.is_none();
        let on_change = waits_on.then(|| event(EventType::Normal, reason.token(), status.message.clone()));
        // The PodGroup says whether it was recorded.
        let said = |text: &String| there.is_some_and(|group| group.status.message.contains(text));
        if let Some(message) = objects.describe_unknown_class(workload).filter(|text| !said(text)) {
            events.push(event(EventType::Warning, PRIORITY_CLASS_NOT_FOUND, message));
        }
        let starting = add_wait(written.starts_at.unwrap_or(now), self.budget.stretch_wait(STARTING_COALESCE));
        let patience = add_wait(written.changed_at.unwrap_or(now), COALESCE);
        let (body, budget) = match there {
            // It may have ended before anybody could read more of it. What its user should know is told at once.
            None if details.is_empty()
                && (StatusDifference::is_awaiting_start(&status) || status.phase == "Running")
                && starting > now =>
            {
                return Some(Action::Later(starting, true));
            }
            None if details.is_empty() && events.is_empty() && stage.is_none() && patience > now => {
                return Some(Action::Later(patience, false));
            }
            None => {
                let just_waits = details.is_empty() && events.is_empty() && state.phase == JobPhase::Pending;
                (Body::New(status), just_waits.then_some(Budget::First))
            }
            Some(group) => {
                let spec = (!only_reason).then(|| build_pod_group_spec(objects, workload));
                let print = spec.as_ref().map_or(written.spec_written, fingerprint);
                let spec_differs = spec.is_some() && group.spec != print && written.spec_written != print;
                let difference = StatusDifference::compare_statuses(&group.status, &status);
                match written.due_at(difference, spec_differs, starting, now) {
                    None => return Some(Action::Keep),
                    Some(at) if at > now => return Some(Action::Later(at, difference == StatusDifference::Starting)),
                    Some(_) => {}
                }
                let is_reported = reason.needs_user_action() && same_reason.is_none();
                let may_wait = difference.is_by_budget() && !spec_differs && !is_reported;
                let place = find_place(&status.message);
                let mut patch = json!({"status": pod_group::status_to_json(workload, &status)});
                if group.status.clusters != status.clusters {
                    let clusters = Some(&status.clusters).filter(|clusters| !clusters.is_empty());
                    patch["metadata"] = json!({"annotations": {PLACED_CLUSTERS: clusters}});
                }
                if spec_differs {
                    patch["spec"] = json!(spec);
                }
                (Body::Patch { patch, spec: print }, may_wait.then_some(Budget::Texts { place }))
            }
        };
        Some(Action::Write { key: group_key, body, events, on_change, budget })
    }

    /// Takes in that the write of a binding's PodGroup was answered; after a failure it is not written again for `wait`
    /// seconds, and for longer after several.
    pub(crate) fn apply_write_answer(&mut self, key: &Key, wait: Option<i64>, now: Timestamp) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let Some(write) = self.writes.get_mut(key) else { return };
        write.in_flight = false;
        if let Some(sent) = write.last_write {
            self.budget.observe_write(now.duration_since(sent));
        }
        write.failures = if wait.is_some() { write.failures.saturating_add(1) } else { 0 };
        let failures = write.failures;
        write.not_before = wait.map(|wait| add_wait(now, compute_backoff(SignedDuration::from_secs(wait), failures)));
        self.dirty.insert(key.clone());
    }
}

fn build_pod_group_spec(objects: &Objects, workload: &Workload) -> PodGroupSpec {
    pod_group::build_spec(workload, |class| objects.priority_of_class(class))
}

/// What is sent, and the fingerprint of its spec.
fn build_body(objects: &Objects, key: &Key, group: &Key, body: Body) -> Option<(Value, u64)> {
    match body {
        Body::Patch { patch, spec } => Some((patch, spec)),
        Body::New(status) => {
            let workload = objects.bindings.get(key).and_then(|binding| objects.workload_of(binding))?;
            let spec = build_pod_group_spec(objects, workload);
            Some((pod_group::build_object(group, workload, &spec, &status), fingerprint(&spec)))
        }
    }
}

impl PodGroupWrite {
    /// When it is to be written.
    fn due_at(
        &self,
        difference: StatusDifference,
        spec_differs: bool,
        starting: Timestamp,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let changed = self.changed_at.unwrap_or(now);
        match difference {
            StatusDifference::None => spec_differs.then_some(now),
            StatusDifference::End => Some(now),
            StatusDifference::Starting => Some(starting),
            StatusDifference::Word | StatusDifference::Waiting => {
                let written = self.last_write.map_or(now, |last| add_wait(last, COALESCE));
                Some(add_wait(changed, COALESCE).max(written))
            }
            StatusDifference::Moved | StatusDifference::Numbers if spec_differs => Some(now),
            StatusDifference::Moved => Some(add_wait(self.last_write.unwrap_or(changed), MOVE_INTERVAL)),
            StatusDifference::Numbers => Some(add_wait(self.last_write.unwrap_or(changed), REFRESH_INTERVAL)),
        }
    }
}
