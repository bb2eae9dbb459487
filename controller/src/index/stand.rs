//! Where bindings stand, kept up to date one by one, and what of it the engine and the room must know.

use caldera_core::{admission::Admission, queue::ledger::Stage, reason::Reason};

use super::{Index, State};
use crate::{
    facts::{Binding, Key, Workload},
    standing::{self, Around, Standing},
};

/// Seconds that a job must have waited before its user is told that the wait is over.
const WORTH_TELLING: i64 = 30;

impl Index {
    /// The value of a PriorityClass; the default one's for no name; `None` if there is none of that name.
    pub(crate) fn class_value(&self, name: &str) -> Option<i32> {
        if name.is_empty() {
            let default = self.classes.values().filter(|class| class.default).map(|class| class.value).max();
            return Some(default.unwrap_or(0));
        }
        self.classes.get(name).map(|class| class.value)
    }

    /// What a job that names this PriorityClass counts as: as one that names none, if there is no such class.
    pub(crate) fn priority_of(&self, name: &str) -> i32 {
        self.class_value(name).or_else(|| self.class_value("")).unwrap_or(0)
    }

    /// Whether jobs of a PriorityClass never preempt; the default one's for no name, and for one that there is not.
    pub(crate) fn never_preempts(&self, name: &str) -> bool {
        if !self.classes.contains_key(name) {
            let default = self.classes.values().filter(|class| class.default).max_by_key(|class| class.value);
            return default.is_some_and(|class| class.never_preempts);
        }
        self.classes.get(name).is_some_and(|class| class.never_preempts)
    }

    /// The workload of a binding: the one it was made from, not another of the same name.
    pub(crate) fn workload_of(&self, binding: &Binding) -> Option<&Workload> {
        let workload = self.workloads.get(&binding.workload)?;
        (binding.workload_uid.is_empty() || binding.workload_uid == workload.uid).then_some(workload)
    }

    pub(crate) fn restand_all(&mut self, which: impl Fn(&Binding) -> bool) {
        let keys: Vec<Key> = self
            .entries
            .values()
            .filter(|entry| which(&entry.binding))
            .map(|entry| entry.binding.key.clone())
            .collect();
        keys.iter().for_each(|key| self.restand(key));
    }

    /// Works out anew where a binding stands, and tells the engine.
    pub(crate) fn restand(&mut self, key: &Key) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let seen = entry.assumed.as_ref().is_some_and(|a| a.resource_version != entry.binding.resource_version);
        if entry.assumed.is_some() && !seen {
            return;
        }
        // By the answer or by the watch, whichever is first.
        let assumed = entry.assumed.take().filter(|assumed| !assumed.regrants);
        let admitted = assumed.and(entry.binding.admission.clone());
        if let Some(admission) = admitted {
            self.tell_admitted(key, &admission);
        }
        self.dirty.insert(key.clone());
        self.note_eviction(key);
        let Some(standing) = self.standing_of(key) else { return };
        self.take_stand(key, standing);
    }

    /// Where a binding stands, by what is known of it now.
    pub(crate) fn standing_of(&self, key: &Key) -> Option<Standing> {
        let entry = self.entries.get(key)?;
        let (binding, workload) = (&entry.binding, self.workload_of(&entry.binding));
        let around = Around {
            priority: workload.map_or(0, |workload| self.priority_of(&workload.class)),
            copies: self.placement_of(binding).map_or(1, |placement| self.room.copies(&placement)),
            opted_in: self.opted_in.contains(&*binding.key.namespace),
        };
        let standing = standing::standing(binding, workload, around, |name| self.priority_of(name));
        let Standing::InLine(job) = standing else { return Some(standing) };
        // Seconds at most, and each refusal another: what is always refused keeps nothing from others.
        if let Some((detail, _)) = entry.refused.as_ref().filter(|(_, until)| *until > self.now) {
            return Some(Standing::Blocked(Reason::NotReleased { detail: detail.to_string() }));
        }
        let since = binding.eviction.as_ref().map_or(0, |eviction| eviction.at);
        Some(match self.sits_out(binding) {
            None => Standing::InLine(job),
            Some(reason @ Reason::Requeued { .. }) => Standing::Aside(job, reason, since),
            // It gave way for another: what it gave is not to be kept for itself.
            Some(reason) => Standing::Blocked(reason),
        })
    }

    fn take_stand(&mut self, key: &Key, standing: Standing) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let id = entry.binding.id.clone();
        let workload = self.workloads.get(&entry.binding.workload);
        // One that was released and does not run yet is taken to begin now.
        let began = workload.and_then(|workload| workload.progress.started).unwrap_or(self.now.as_second());
        let end = workload.and_then(|workload| workload.run_for).map(|run_for| began.saturating_add(run_for));
        let held = self.engine.charge_of(id.as_str());
        self.moved = true;
        let mut follow = None;
        entry.state = match standing {
            Standing::OutOfScope => {
                self.engine.remove_job(id.as_str());
                State::OutOfScope
            }
            Standing::Blocked(reason) => {
                self.engine.remove_job(id.as_str());
                State::Blocked(Box::new(reason))
            }
            Standing::Aside(job, reason, since) => {
                self.engine.back_off_job(job, since);
                State::Blocked(Box::new(reason))
            }
            Standing::InLine(job) => {
                self.engine.enqueue_job(job);
                State::InLine
            }
            Standing::Holding { queue, charge, reason, regrant } => {
                // Those above it then; what it says now counts more.
                let record = entry.binding.admission.as_ref().filter(|record| record.queue == queue);
                let above = record.map_or(&[][..], |record| &record.above);
                self.engine.charge_job_below(&id, &queue, above, &charge.amount);
                self.engine.set_expected_end(id.as_str(), end);
                follow = Some((queue, regrant));
                State::Holding { stage: charge.stage, reason: Box::new(reason) }
            }
        };
        match follow {
            Some((queue, regrant)) => self.follow(key, &queue, regrant),
            None => self.stop_growing(key),
        }
        let Some(entry) = self.entries.get(key) else { return };
        let holds = match &entry.state {
            State::Holding { stage, .. } => Some(*stage),
            _ => None,
        };
        let counts = holds.is_some_and(|stage| stage != Stage::Finished) || entry.state == State::InLine;
        let tolerations = entry.binding.placement.as_deref().filter(|_| counts);
        self.room.tolerates(&id, tolerations.map(|binding| binding.placement.tolerations.as_slice()));
        let now_held = self.engine.charge_of(id.as_str()).unwrap_or_default();
        self.freed |= held.is_some_and(|held| !held.fits_in(&now_held));
        self.recount(key);
        self.unplaced.observe(key, self.entries.get(key).map(|entry| &entry.state), self.now);
        self.observe_start(key);
        self.observe_unused(key);
        self.observe_epoch(key);
        self.keep_place(key, holds);
    }

    /// Keeps the place of what was released and is not seen in members yet.
    fn keep_place(&mut self, key: &Key, stage: Option<Stage>) {
        let Some(entry) = self.entries.get(key) else { return };
        let gang = self.workload_of(&entry.binding).and_then(|workload| workload.gang.as_ref().ok()).cloned();
        let binding = &entry.binding;
        self.room.selects(binding.id.as_str(), gang.as_deref());
        // What is not queued is the scheduler's to place all the same: it holds what it promised, and so is it held here.
        let unqueued = entry.state == State::OutOfScope && binding.ours && !binding.clusters.is_empty();
        match (stage, gang) {
            (Some(Stage::Placed | Stage::Foreign), Some(gang)) => self.room.promise_placed(binding, &gang, true),
            (None, Some(gang)) if unqueued => self.room.promise_placed(binding, &gang, false),
            // The place that was found at the release.
            (Some(Stage::Admitted), _) => {}
            _ => self.room.withdraw(binding.id.as_str()),
        }
    }

    fn tell_admitted(&mut self, key: &Key, admission: &Admission) {
        let Some(entry) = self.entries.get(key) else { return };
        let Some(workload) = self.workload_of(&entry.binding) else { return };
        let waited = self.now.as_second().saturating_sub(entry.binding.created).max(0);
        // Who hardly waited needs no telling: the PodGroup says where it runs.
        if waited < WORTH_TELLING {
            return;
        }
        let message = format!("queue {} is charged {}; waited {waited} s", admission.queue, admission.charged);
        let tell = crate::plan::tell(workload, caldera_runtime::event::EventType::Normal, "Admitted", message);
        self.tells.push(tell);
    }
}
