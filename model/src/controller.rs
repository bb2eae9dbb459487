//! A controller: what it counts, what it grants, and what it takes back. Each function is one of the code's, by name;
//! see the table in [`crate`].

use crate::{
    model::{Fault, Model},
    state::{
        Answer, Assumed, Binding, Controller, Epoch, GANG, Grant, JOBS, Job, JobState, LIMIT, Message, Process,
        RecordFault, State, Write,
    },
};

impl Controller {
    /// Whether it decides: it takes itself to hold the Lease, and has listed everything.
    pub fn decides(&self) -> bool {
        self.epoch.is_some() && self.jobs.iter().all(|job| job.seen.is_some())
    }

    /// Pods that its ledger charges for a job.
    pub fn compute_charge(&self, job: Job) -> u8 {
        let JobState { seen, assumed, ended, .. } = self.jobs[job];
        match seen {
            Some(Binding { record: Some(_), placed: 0, .. }) => GANG,
            Some(Binding { placed: 1.., .. }) if ended => 0,
            Some(Binding { record: Some(_), .. }) => GANG,
            Some(Binding { placed: placed @ 1.., .. }) => placed,
            _ => assumed.map_or(0, |_| GANG),
        }
    }

    /// Pods that its ledger charges.
    pub fn sum_charges(&self) -> u8 {
        (0..JOBS).map(|job| self.compute_charge(job)).sum()
    }

    fn is_pending(&self, job: Job) -> bool {
        let JobState { seen, assumed, .. } = self.jobs[job];
        assumed.is_none() && seen.is_some_and(|seen| seen.record.is_none() && seen.placed == 0)
    }

    /// A grant of another Lease of which nothing is placed.
    fn is_stale_grant(&self, job: Job) -> bool {
        let JobState { seen, fault, .. } = self.jobs[job];
        let granted = seen.filter(|seen| seen.placed == 0).and_then(|seen| seen.record);
        fault.is_none() && granted.is_some_and(|grant| grant.epoch != self.epoch)
    }

    /// Its epoch says that this controller lost the Lease and has not noticed yet.
    fn is_later_grant(&self, job: Job) -> bool {
        let record = self.jobs[job].seen.and_then(|seen| seen.record);
        record.and_then(|grant| grant.epoch).map(count_takeovers) >= self.epoch.map(count_takeovers)
    }

    /// Whether an answer tells it anything: not if the watch has shown more, and not that an eviction was refused.
    pub fn heeds_answer(&self, message: &Message, answer: Answer) -> bool {
        let JobState { seen, assumed, .. } = self.jobs[message.job];
        let Some(seen) = seen else { return false };
        match answer {
            _ if message.write != Write::Evict => assumed.is_some() && seen.version == message.version,
            Answer::Stored(stored) => seen.version < stored.version,
            Answer::Conflict => false,
        }
    }

    /// Takes in a binding: from a list, a watch or an answer.
    pub fn observe_binding(&mut self, job: Job, new: Binding, in_first_list: bool) {
        let epoch = self.epoch;
        let state = &mut self.jobs[job];
        if state.seen.is_some_and(|seen| new.version < seen.version) {
            return;
        }
        let before = state.seen.replace(new);
        if before.map(|seen| seen.version) != Some(new.version) {
            state.assumed = None;
        }
        state.judge_record(before, new, epoch, in_first_list);
    }
}

impl JobState {
    /// `GrantHistory::judge_grant`: what is wrong with a record, where all records grant the same pods.
    fn judge_record(&mut self, before: Option<Binding>, new: Binding, epoch: Option<Epoch>, in_first_list: bool) {
        let had = before.and_then(|before| before.record);
        let Some(now) = new.record else {
            self.sent &= had.is_none();
            self.fault = (new.placed > 0).then_some(RecordFault::PlacedWithoutRecord);
            return;
        };
        if had == Some(now) {
            return;
        }
        let is_ours = self.sent && now.epoch == epoch;
        // It grants no more than the one before.
        let is_less = had.is_some();
        self.sent &= !is_less || is_ours;
        let waits = new.placed == 0 || had.is_some();
        let is_first = in_first_list && before.is_none();
        let is_sound = is_first || is_ours || (self.fault.is_none() && is_less) || (now.epoch != epoch && waits);
        self.fault = if is_sound {
            None
        } else if now.epoch.map(count_takeovers) > epoch.map(count_takeovers) {
            Some(RecordFault::NotGrantedByUs)
        } else {
            Some(RecordFault::NotGranted)
        };
    }
}

fn count_takeovers(epoch: Epoch) -> u8 {
    epoch.term
}

/// What controllers do.
impl Model {
    /// What a controller decides without a choice: false if that is nothing.
    pub(crate) fn decide(&self, state: &mut State, who: usize) -> bool {
        let sent = state.network.len();
        for job in 0..JOBS {
            if self.may_take_away(state, who, job) {
                self.requeue(state, who, job);
            } else if self.may_resend(state, who, job) {
                self.assume_record(state, who, job);
            }
        }
        self.regrant_or_take_back(state, who, false);
        state.network.len() > sent
    }

    /// Whether its queue has room for a job that waits.
    pub(crate) fn may_release(&self, state: &State, who: usize, job: Job) -> bool {
        let controller = &state.controllers[who];
        controller.decides()
            && controller.is_pending(job)
            && !state.awaits_answer(Process::Controller(who), job)
            && controller.sum_charges() + GANG <= LIMIT
    }

    /// `release_admissible_jobs`. Which of the pending jobs is the first is left open.
    pub(crate) fn release_job(&self, state: &mut State, who: usize, job: Job) {
        self.assume_record(state, who, job);
    }

    /// `Jobs::assume_record`: a record under its own epoch, until the watch shows it.
    fn assume_record(&self, state: &mut State, who: usize, job: Job) {
        let epoch = state.controllers[who].epoch;
        let known = &mut state.controllers[who].jobs[job];
        (known.sent, known.assumed) = (true, Some(Assumed::Sent));
        self.send(state, Process::Controller(who), job, Write::Grant(Grant { epoch }));
    }

    /// Stale grants that it may settle now. One of a later Lease is left alone for a while (`STOPPED`).
    pub(crate) fn list_stale_grants(&self, state: &State, who: usize, later: bool) -> Vec<Job> {
        let controller = &state.controllers[who];
        if !controller.decides() {
            return Vec::new();
        }
        let is_due = |job: &Job| {
            controller.is_stale_grant(*job)
                && controller.is_later_grant(*job) == later
                && controller.jobs[*job].assumed.is_none()
                && !state.awaits_answer(Process::Controller(who), *job)
        };
        // The newest first.
        (0..JOBS).rev().filter(is_due).collect()
    }

    /// `regrant_or_take_back`: grants anew where the queue is within its limit, and takes back otherwise. What is being
    /// taken back may be placed yet: nothing is granted anew in its stead before that is stored.
    pub(crate) fn regrant_or_take_back(&self, state: &mut State, who: usize, later: bool) {
        let charged = state.controllers[who].sum_charges();
        let is_evicted =
            |message: &&Message| message.from == Some(Process::Controller(who)) && message.write == Write::Evict;
        let mut taken = state.network.iter().filter(is_evicted).fold(0, |sum, _| sum + GANG).min(charged);
        for job in self.list_stale_grants(state, who, later) {
            if charged <= LIMIT || (self.has(Fault::FreesBeforeStored) && charged - taken <= LIMIT) {
                self.assume_record(state, who, job);
            } else if charged - taken > LIMIT {
                taken += GANG;
                self.send(state, Process::Controller(who), job, Write::Evict);
            }
        }
    }

    /// Whether it may take a record or clusters away now. That a later Lease is not another's is sure only after a
    /// minute (`LOST_LEASE_NOTICED_AFTER`): by then a controller that was overtaken has stopped.
    pub(crate) fn may_take_away(&self, state: &State, who: usize, job: Job) -> bool {
        let controller = &state.controllers[who];
        let knows_better = self.has(Fault::OvertakenTakesAway) || self.holds_lease(state, who);
        let is_due = match controller.jobs[job].fault {
            None => false,
            Some(RecordFault::NotGrantedByUs) => knows_better,
            Some(RecordFault::NotGranted | RecordFault::PlacedWithoutRecord) => true,
        };
        is_due
            && controller.decides()
            && controller.jobs[job].assumed.is_none()
            && !state.awaits_answer(Process::Controller(who), job)
    }

    /// `requeue`: for `evict_faulty_records` and `requeue_unplaced`.
    pub(crate) fn requeue(&self, state: &mut State, who: usize, job: Job) {
        self.send(state, Process::Controller(who), job, Write::Evict);
    }

    /// Whether an admitted job may be found not to be placed in time.
    pub(crate) fn may_requeue(&self, state: &State, who: usize, job: Job) -> bool {
        let controller = &state.controllers[who];
        let is_admitted = |seen: Binding| seen.record.is_some() && seen.placed == 0;
        controller.decides()
            && controller.jobs[job].seen.is_some_and(is_admitted)
            && controller.jobs[job].assumed.is_none()
            && !state.awaits_answer(Process::Controller(who), job)
    }

    /// `take_retry`: a release of which nobody knows what became is sent again.
    pub(crate) fn may_resend(&self, state: &State, who: usize, job: Job) -> bool {
        state.controllers[who].jobs[job].assumed == Some(Assumed::Unknown)
            && !state.awaits_answer(Process::Controller(who), job)
    }

    /// `apply_release_answer` and `apply_eviction_answer`. `None`: nobody knows what became of it.
    pub(crate) fn follow_write(&self, state: &mut State, who: usize, message: Message, answer: Option<Answer>) {
        let controller = &mut state.controllers[who];
        let known = &mut controller.jobs[message.job];
        let is_release = message.write != Write::Evict;
        let is_assumed = known.assumed.is_some() && known.seen.is_some_and(|seen| seen.version == message.version);
        if is_release && !is_assumed {
            return;
        }
        match answer {
            Some(Answer::Stored(stored)) => controller.observe_binding(message.job, stored, false),
            Some(Answer::Conflict) if is_release => known.assumed = Some(Assumed::Conflict),
            None if is_release => known.assumed = Some(Assumed::Unknown),
            Some(Answer::Conflict) | None => {}
        }
    }
}
