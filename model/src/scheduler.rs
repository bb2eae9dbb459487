//! A scheduler: which grants it places, and after which read of the Lease. Each function is one of the code's, by name;
//! see the table in [`crate`].

use crate::{
    model::{Fault, Model},
    state::{Answer, Binding, GANG, Job, Message, Process, Read, Scheduler, SeenGrant, State, Write},
};

impl Scheduler {
    /// Whether an answer tells it anything: not if the watch has shown it.
    pub fn heeds_answer(&self, message: &Message, answer: Answer) -> bool {
        match answer {
            Answer::Stored(stored) => self.seen[message.job].is_some_and(|seen| seen.version < stored.version),
            Answer::Conflict => true,
        }
    }
}

/// What schedulers do. Each turn of the loop takes something in, decides what is due by it, and asks for the Lease.
impl Model {
    /// `Cache::update_binding`: an older state that arrives later is ignored.
    pub(crate) fn update_binding(&self, state: &mut State, who: usize, job: Job, new: Binding) {
        let seen = &mut state.schedulers[who].seen[job];
        if seen.is_none_or(|seen| new.version > seen.version) {
            *seen = Some(new);
            self.decide_about(state, who, job);
        }
    }

    /// `decide_and_write_binding`: an admitted job is placed as a whole, in one patch, if `may_place` lets it.
    fn decide_about(&self, state: &mut State, who: usize, job: Job) {
        let in_flight = state.awaits_answer(Process::Scheduler(who), job);
        let scheduler = &mut state.schedulers[who];
        let Some(binding) = scheduler.seen[job] else { return };
        // Half a gang is only there if that is planted.
        if in_flight || binding.record.is_none() || binding.placed == GANG {
            return;
        }
        if self.has(Fault::NoLeaseRead) || may_place(scheduler, job, binding) {
            let pods = if self.has(Fault::HalfAGang) { GANG / 2 } else { GANG };
            self.send(state, Process::Scheduler(who), job, Write::Place(pods));
        } else {
            begin_read(scheduler);
        }
    }

    /// `apply_read`: grants of the epoch that was read may be placed, and are due again.
    pub(crate) fn apply_read(&self, state: &mut State, who: usize) {
        let scheduler = &mut state.schedulers[who];
        let Some(Read { grants, found: Some(current) }) = scheduler.reading.take() else { return };
        for (job, grant) in grants.into_iter().enumerate() {
            if let Some(grant) = grant.filter(|grant| grant.epoch == current) {
                state.schedulers[who].valid[job] = Some(grant.version);
                self.decide_about(state, who, job);
            }
        }
        begin_read(&mut state.schedulers[who]);
    }

    /// `apply_outcome`. `None`: nobody knows what became of it. What failed is decided again, but for a conflict of
    /// which the watch has not shown the reason yet.
    pub(crate) fn follow_placement(&self, state: &mut State, who: usize, message: Message, answer: Option<Answer>) {
        let job = message.job;
        match answer {
            Some(Answer::Stored(stored)) => self.update_binding(state, who, job, stored),
            Some(Answer::Conflict)
                if state.schedulers[who].seen[job].is_some_and(|seen| seen.version == message.version) => {}
            Some(Answer::Conflict) | None => self.decide_about(state, who, job),
        }
    }
}

/// `LeaseFence::may_place`: if not yet, it waits for a read of the Lease.
fn may_place(scheduler: &mut Scheduler, job: Job, binding: Binding) -> bool {
    if scheduler.valid[job] == Some(binding.version) {
        return true;
    }
    scheduler.valid[job] = None;
    let grant = SeenGrant { version: binding.version, epoch: binding.record.and_then(|grant| grant.epoch) };
    let is_read = scheduler.reading.is_some_and(|read| read.grants[job] == Some(grant));
    if !is_read {
        scheduler.waiting[job] = Some(grant);
    }
    false
}

/// `LeaseFence::begin_read`: all that wait are waiting for this one.
fn begin_read(scheduler: &mut Scheduler) {
    if scheduler.reading.is_none() && scheduler.waiting.iter().any(Option::is_some) {
        scheduler.reading = Some(Read { grants: std::mem::take(&mut scheduler.waiting), found: None });
    }
}
