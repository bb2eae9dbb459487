//! Which PodGroups are written now: the phase and the reason that users read.
//!
//! Writes are coalesced. A PodGroup is written at once when it is made and when its job ends, otherwise at most once a
//! second, also when its clusters change. A text of which only the numbers changed is written at most every half
//! minute, a few in a second, so that a long queue does not fill the host with writes. Nothing that says the same is
//! ever written again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use caldera_core::reason::Reason;
use caldera_runtime::{clock::format_time, event::EventType};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::{
    deadlines::{after, back_off},
    jobs::Jobs,
    pod_group_status::{describe_binding, describe_details, describe_unknown_class},
    preemption::Preemption,
};
use crate::{
    observe::{Key, Objects, PodGroupStatus, fingerprint},
    write::{Decision, pod_group},
};

/// Between two writes of one PodGroup's status.
pub(crate) const COALESCE: SignedDuration = SignedDuration::from_secs(1);
/// From a release to the write that says so: most jobs run by then, and one write says both. The event on the user's
/// own object is recorded at once.
const STARTING: SignedDuration = SignedDuration::from_secs(3);
/// Between two writes of a text of which only numbers changed.
const REFRESH: SignedDuration = SignedDuration::from_secs(30);
/// Texts refreshed in one second at most.
const REFRESHES: usize = 10;
/// PodGroups looked at in one pass, so that new events are never far behind.
pub(crate) const LOOKS: usize = 128;
/// PodGroups that are being written at most: what waits to be sent costs memory, and is out of date when it goes.
const IN_FLIGHT: usize = 256;

/// What is known of the writes to the PodGroup of one binding.
#[derive(Debug, Default)]
struct PodGroupWrite {
    in_flight: bool,
    last_write: Option<Timestamp>,
    changed_at: Option<Timestamp>,
    not_before: Option<Timestamp>,
    /// In a row.
    failures: u32,
    spec_written: u64,
}

/// How many texts of which only numbers changed were written in the second that began then.
#[derive(Debug, Default)]
struct RefreshBudget {
    since: Timestamp,
    written: usize,
}

impl RefreshBudget {
    /// Takes one, or says when to ask again.
    fn take_one(&mut self, now: Timestamp) -> Result<(), Timestamp> {
        let next = after(self.since, COALESCE);
        if now >= next {
            *self = Self { since: now, written: 0 };
        } else if self.written >= REFRESHES {
            return Err(next);
        }
        self.written += 1;
        Ok(())
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct PodGroupWrites {
    writes: BTreeMap<Key, PodGroupWrite>,
    /// Bindings whose PodGroup is to be looked at now.
    dirty: BTreeSet<Key>,
    /// Those to be looked at later.
    timers: BTreeSet<(Timestamp, Key)>,
    /// PodGroups of whose text only numbers are out of date, for which there was no budget yet.
    outdated: BTreeSet<Key>,
    refresh_due: Option<Timestamp>,
    budget: RefreshBudget,
    in_flight: usize,
}

/// What to do about a PodGroup.
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
enum Action {
    /// It is as it should be.
    Keep,
    /// Not yet.
    Later(Timestamp),
    /// It is not needed any more.
    Delete(Key, Arc<str>),
    /// Write it, and record events; `on_change` is the event that says that a job waits on for another reason.
    Write { write: Decision, events: Vec<Decision>, on_change: Option<Decision>, spec: u64, only_numbers: bool },
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
    }

    /// Whether there is room for more writes.
    pub(crate) const fn may_write(&self) -> bool {
        self.in_flight < IN_FLIGHT
    }

    /// Whether there is more to look at now. An answer comes for each that is being written.
    pub(crate) fn has_more(&self) -> bool {
        self.may_write() && !self.dirty.is_empty()
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        let timer = self.timers.first().map(|(at, _)| *at);
        [timer, self.refresh_due].into_iter().flatten().min()
    }

    /// Has those looked at whose time has come.
    pub(crate) fn take_due(&mut self, now: Timestamp) {
        if self.refresh_due.is_some_and(|due| due <= now) {
            for _ in 0..REFRESHES {
                self.dirty.extend(self.outdated.pop_first());
            }
            self.refresh_due = (!self.outdated.is_empty()).then(|| after(now, COALESCE));
        }
        for _ in 0..LOOKS {
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
        for _ in 0..LOOKS {
            let Some(key) = self.may_write().then(|| self.dirty.pop_first()).flatten() else { break };
            decisions.extend(self.write_one(objects, jobs, preemption, &key, None, now));
        }
        decisions
    }

    /// Compares the PodGroup of a binding with what it should be, and writes the difference when it is due. `known` is
    /// the reason where the caller has it already.
    pub(crate) fn write_one(
        &mut self,
        objects: &mut Objects,
        jobs: &Jobs,
        preemption: &Preemption,
        key: &Key,
        known: Option<Reason>,
        now: Timestamp,
    ) -> Vec<Decision> {
        let Some(action) = self.choose_action(objects, jobs, preemption, key, known, now) else { return Vec::new() };
        if let Action::Write { only_numbers: true, .. } = action
            && let Err(later) = self.budget.take_one(now)
        {
            self.outdated.insert(key.clone());
            self.refresh_due.get_or_insert(later);
            return Vec::new();
        }
        match action {
            Action::Keep => {
                self.writes.entry(key.clone()).or_default().changed_at = None;
                Vec::new()
            }
            Action::Later(at) => {
                self.writes.entry(key.clone()).or_default().changed_at.get_or_insert(now);
                self.timers.insert((at, key.clone()));
                Vec::new()
            }
            Action::Delete(group, uid) => {
                objects.pod_groups.remove(&group);
                vec![Decision::DeletePodGroup { key: group, uid }]
            }
            Action::Write { write, events, on_change, spec, .. } => {
                let state = PodGroupWrite {
                    in_flight: true,
                    last_write: Some(now),
                    spec_written: spec,
                    failures: self.writes.get(key).map_or(0, |before| before.failures),
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
            return Some(Action::Later(not_before));
        }
        let group_key = pod_group::pod_group_key(workload);
        let there = objects.pod_groups.get(&group_key);
        // A PodGroup of that name that is not this workload's is somebody else's.
        if there.is_some_and(|group| group.owner != workload.uid) {
            return None;
        }
        // A sweep is about reasons alone: nothing that the spec depends on has changed.
        let only_reason = known.is_some() && there.is_some();
        let Some((stage, reason)) = describe_binding(jobs, key, known) else {
            // Out of scope: what we made before is deleted.
            return there.map(|group| Action::Delete(group_key, Arc::clone(&group.uid)));
        };
        let same_reason = there.filter(|group| group.status.reason == reason.token());
        let since = same_reason.map(|group| group.status.since.clone()).filter(|since| !since.is_empty());
        let details = describe_details(objects, jobs, preemption, binding, state, workload);
        let status =
            pod_group::build_status(workload, stage, &reason, &details, since.unwrap_or_else(|| format_time(now)));
        let spec = (!only_reason).then(|| pod_group::build_spec(workload, |class| objects.priority_of(class)));
        let print = spec.as_ref().map_or(written.spec_written, fingerprint);
        let event = |kind, reason: &str, message| Decision::event_on_workload(workload, kind, reason, message);
        let mut events = Vec::new();
        if reason.needs_a_change() && same_reason.is_none() {
            events.push(event(EventType::Warning, reason.token(), reason.to_string()));
        }
        // It waits on, for another reason than before.
        let waited = there.is_some_and(|group| group.status.phase == "Pending" && !group.status.reason.is_empty());
        let waits_on = stage.is_none() && waited && events.is_empty() && same_reason.is_none();
        let on_change = waits_on.then(|| event(EventType::Normal, reason.token(), status.message.clone()));
        // The PodGroup says whether it was recorded.
        let said = |text: &String| there.is_some_and(|group| group.status.message.contains(text));
        if let Some(message) = describe_unknown_class(objects, workload).filter(|text| !said(text)) {
            events.push(event(EventType::Warning, "PriorityClassNotFound", message));
        }
        let (exists, mut only_numbers) = (there.is_some(), false);
        let body = match there {
            None => pod_group::build_object(workload, &spec.unwrap_or_default(), &status),
            Some(group) => {
                let spec_differs = spec.is_some() && group.spec != print && written.spec_written != print;
                let difference = Difference::between(&group.status, &status);
                match difference.due_at(written, spec_differs, now) {
                    None => return Some(Action::Keep),
                    Some(at) if at > now => return Some(Action::Later(at)),
                    Some(_) => {}
                }
                only_numbers = difference == Difference::Numbers && !spec_differs;
                let mut patch = json!({"status": pod_group::status_to_json(workload, &status)});
                if spec_differs {
                    patch["spec"] = json!(spec);
                }
                patch
            }
        };
        let write = Decision::WritePodGroup { key: group_key, binding: key.clone(), exists, body };
        Some(Action::Write { write, events, on_change, spec: print, only_numbers })
    }

    /// Takes in that the write of a binding's PodGroup was answered; after a failure it is not written again for `wait`
    /// seconds, and for longer after several.
    pub(crate) fn follow_answer(&mut self, key: &Key, wait: Option<i64>, now: Timestamp) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let Some(write) = self.writes.get_mut(key) else { return };
        write.in_flight = false;
        write.failures = if wait.is_some() { write.failures.saturating_add(1) } else { 0 };
        let failures = write.failures;
        write.not_before = wait.map(|wait| after(now, back_off(SignedDuration::from_secs(wait), failures)));
        self.dirty.insert(key.clone());
    }
}

/// What the sentence of a job that holds something begins with: its clusters. Amounts follow.
fn where_it_is(message: &str) -> &str {
    message.split_once(';').map_or(message, |(clusters, _)| clusters)
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
    fn between(there: &PodGroupStatus, wanted: &PodGroupStatus) -> Self {
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
        } else if wanted.phase != "Pending" && where_it_is(&there.message) != where_it_is(&wanted.message) {
            Self::Word
        } else {
            Self::Numbers
        }
    }

    /// When it is to be written.
    fn due_at(self, writing: &PodGroupWrite, spec_differs: bool, now: Timestamp) -> Option<Timestamp> {
        let changed = writing.changed_at.unwrap_or(now);
        match self {
            Self::None => spec_differs.then_some(now),
            Self::End => Some(now),
            Self::Starting => Some(after(changed, STARTING)),
            Self::Word => {
                let written = writing.last_write.map_or(now, |last| after(last, COALESCE));
                Some(after(changed, COALESCE).max(written))
            }
            Self::Numbers if spec_differs => Some(now),
            Self::Numbers => Some(after(writing.last_write.unwrap_or(changed), REFRESH)),
        }
    }
}
