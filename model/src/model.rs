//! What can happen in a state, and what comes of it.

use crate::state::{
    Answer, Binding, Budget, CONTROLLERS, Controller, Epoch, GANG, Grant, JOBS, Job, LIMIT, Lease, Message, NOBODY,
    Process, Scheduler, State, Write,
};

/// A defect that is planted, to see that it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The scheduler does not read the Lease before it places.
    NoLeaseRead,
    /// Patches do not test the version of what they change.
    NoVersionTest,
    /// The scheduler places a gang in two patches.
    HalfAGang,
    /// Whoever takes the Lease begins with what its watches had shown before, not with new lists.
    NoNewList,
    /// A controller that finds its Lease released, or deleted, takes it again and goes on with its grants and its
    /// epoch.
    RenewsByTaking,
    /// A controller takes records of a later Lease away without giving itself the time to notice that it lost its own.
    OvertakenTakesAway,
    /// A controller grants a stale grant anew in the place of one that it has just decided to take back.
    FreesBeforeStored,
    /// A tenant writes the epoch of the Lease that is held into a record, and nothing keeps it from doing so.
    ForgedEpoch,
}

/// What is explored: how much goes wrong, and what is planted.
#[derive(Debug, Clone, Copy)]
pub struct Model {
    /// How many schedulers there are.
    pub schedulers: usize,
    /// Only the older job waits; the other one has run.
    pub one_job: bool,
    /// Watches of schedulers may lag. If not, only their patches do, which comes to the same: each tests the version
    /// that it was decided for.
    pub schedulers_lag: bool,
    /// What may go wrong, and how often.
    pub budget: Budget,
    /// The planted defect.
    pub fault: Option<Fault>,
}

/// What can happen. The table in [`crate`] says which function of the code each one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A controller takes a Lease that nobody holds any more.
    AcquireLease(usize),
    /// A controller takes the Lease from one that lives on and does not know.
    TakeLease(usize),
    /// A controller notices that it lost the Lease: its process begins anew.
    NoticeLoss(usize),
    /// A controller that stops gives its Lease up.
    ReleaseLease(usize),
    /// A controller is killed and begins anew. What it sent may land all the same.
    KillController(usize),
    /// A controller lists everything.
    ListBindings(usize),
    /// A controller's watch shows what is stored.
    WatchBinding(usize, Job),
    /// A controller's other watch shows whether the job has ended.
    WatchWorkload(usize, Job),
    /// A controller grants a pending job.
    ReleaseJob(usize, Job),
    /// A controller settles a grant of a later Lease, for it has waited long enough.
    SettleLaterGrants(usize),
    /// A controller takes back a grant that was not placed in time.
    RequeueUnplaced(usize, Job),
    /// The server carries a patch out, or refuses it.
    ExecuteWrite(Message),
    /// The answer to a patch arrives.
    FollowAnswer(Message),
    /// The answer to a patch, or the patch itself, does not arrive in time. It may land all the same.
    LoseAnswer(Message),
    /// A scheduler lists everything.
    ListForScheduler(usize),
    /// A scheduler's watch shows what is stored.
    WatchForScheduler(usize, Job),
    /// The server reads the Lease.
    ReadLease(usize),
    /// The Lease that was read arrives.
    ApplyRead(usize),
    /// A scheduler is killed and begins anew.
    KillScheduler(usize),
    /// A job that runs ends.
    EndJob(Job),
    /// A tenant writes a record, with the epoch that it says. There is a Lease: where none is, nothing is fenced.
    ForgeRecord(Job, Option<Epoch>),
    /// Somebody deletes the Lease.
    DeleteLease,
}

impl Action {
    /// Whether it is one of the things that go wrong, which a [`Budget`] counts. All others happen some time.
    pub const fn is_trouble(self) -> bool {
        matches!(
            self,
            Self::TakeLease(_)
                | Self::ReleaseLease(_)
                | Self::KillController(_)
                | Self::SettleLaterGrants(_)
                | Self::RequeueUnplaced(..)
                | Self::LoseAnswer(_)
                | Self::KillScheduler(_)
                | Self::ForgeRecord(..)
                | Self::DeleteLease
        )
    }
}

impl Model {
    /// One scheduler whose watches do not lag, and no defect.
    pub const fn new(budget: Budget) -> Self {
        Self { schedulers: 1, one_job: false, schedulers_lag: false, budget, fault: None }
    }

    /// Whether this defect is planted.
    pub fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// Before anything has happened.
    pub fn begin(&self) -> State {
        let mut state = State::begin(self.schedulers, self.budget);
        if self.one_job {
            let ended = Binding { record: Some(Grant { epoch: None }), placed: GANG, version: 0 };
            (state.bindings[1], state.ended[1], state.starts[1]) = (ended, true, 1);
            state.schedulers.iter_mut().for_each(|scheduler| scheduler.seen[1] = Some(ended));
        }
        state
    }

    /// Whether a controller still holds the Lease that it takes itself to hold.
    pub(crate) fn holds_lease(&self, state: &State, who: usize) -> bool {
        state.lease.map(Lease::epoch).is_some_and(|epoch| state.controllers[who].epoch == Some(epoch))
    }

    /// Sends a patch for the version that was seen.
    pub(crate) fn send(&self, state: &mut State, from: Process, job: Job, write: Write) {
        let seen = match from {
            Process::Controller(who) => state.controllers[who].jobs[job].seen,
            Process::Scheduler(who) => state.schedulers[who].seen[job],
        };
        let version = seen.map_or(0, |seen| seen.version);
        state.network.push(Message { from: Some(from), job, version, write, answer: None });
    }

    /// All that can happen.
    pub fn list_actions(&self, state: &State) -> Vec<Action> {
        let mut actions = Vec::new();
        (0..CONTROLLERS).for_each(|who| self.list_controller_actions(state, who, &mut actions));
        (0..state.schedulers.len()).for_each(|who| self.list_scheduler_actions(state, who, &mut actions));
        for (at, message) in state.network.iter().enumerate() {
            if at > 0 && state.network[at - 1] == *message {
                continue;
            }
            actions.push(match message.answer {
                None => Action::ExecuteWrite(*message),
                Some(_) => Action::FollowAnswer(*message),
            });
            if message.from.is_some() && state.left.lost > 0 {
                actions.push(Action::LoseAnswer(*message));
            }
        }
        for (job, binding) in state.bindings.iter().enumerate() {
            if binding.placed == GANG && !state.ended[job] {
                actions.push(Action::EndJob(job));
            }
            if state.left.forgeries > 0 && state.lease.is_some() && binding.placed == 0 {
                let held = state.lease.map(Lease::epoch).filter(|_| self.has(Fault::ForgedEpoch));
                let epochs = std::iter::once(None).chain(held.map(Some));
                let new = epochs.filter(|epoch| binding.record != Some(Grant { epoch: *epoch }));
                actions.extend(new.map(|epoch| Action::ForgeRecord(job, epoch)));
            }
        }
        if state.left.lease_deletions > 0 && state.lease.is_some() {
            actions.push(Action::DeleteLease);
        }
        actions
    }

    fn list_controller_actions(&self, state: &State, who: usize, actions: &mut Vec<Action>) {
        let controller = &state.controllers[who];
        let identities = state.controllers.map(|controller| controller.epoch.map(|epoch| epoch.identity));
        let lives = |identity: u8| identities.contains(&Some(identity));
        if controller.epoch.is_none() {
            match state.lease {
                Some(lease) if lives(lease.holder) && state.left.takeovers > 0 => actions.push(Action::TakeLease(who)),
                Some(lease) if lives(lease.holder) => {}
                // Of two that stand by it does not matter who is first.
                _ if state.controllers[..who].contains(controller) => {}
                _ => actions.push(Action::AcquireLease(who)),
            }
            if self.has(Fault::NoNewList) && controller.jobs.iter().all(|job| job.seen.is_none()) {
                actions.push(Action::ListBindings(who));
            }
            return;
        }
        let is_free = state.lease.is_none_or(|lease| lease.holder == NOBODY);
        if is_free && self.has(Fault::RenewsByTaking) {
            actions.push(Action::AcquireLease(who));
        } else if state.lease.is_none_or(|lease| Some(lease.holder) != identities[who]) {
            actions.push(Action::NoticeLoss(who));
        }
        if state.left.stops > 0 {
            actions.push(Action::KillController(who));
        }
        if state.left.releases > 0 && self.holds_lease(state, who) {
            actions.push(Action::ReleaseLease(who));
        }
        if controller.jobs.iter().any(|job| job.seen.is_none()) {
            return actions.push(Action::ListBindings(who));
        }
        for job in 0..JOBS {
            let watched = controller.jobs[job].seen.is_some_and(|seen| seen.version < state.bindings[job].version);
            let may = [
                (watched, Action::WatchBinding(who, job)),
                (controller.jobs[job].ended != state.ended[job], Action::WatchWorkload(who, job)),
                (self.may_release(state, who, job), Action::ReleaseJob(who, job)),
                (state.left.deadlines > 0 && self.may_requeue(state, who, job), Action::RequeueUnplaced(who, job)),
            ];
            actions.extend(may.into_iter().filter(|(may, _)| *may).map(|(_, action)| action));
        }
        if state.left.deadlines > 0 && !self.list_stale_grants(state, who, true).is_empty() {
            actions.push(Action::SettleLaterGrants(who));
        }
    }

    fn list_scheduler_actions(&self, state: &State, who: usize, actions: &mut Vec<Action>) {
        let scheduler = &state.schedulers[who];
        if state.left.scheduler_stops > 0 && *scheduler != Scheduler::default() {
            actions.push(Action::KillScheduler(who));
        }
        if scheduler.seen.iter().any(Option::is_none) {
            return actions.push(Action::ListForScheduler(who));
        }
        for job in 0..JOBS {
            if scheduler.seen[job].is_some_and(|seen| seen.version < state.bindings[job].version) {
                actions.push(Action::WatchForScheduler(who, job));
            }
        }
        match scheduler.reading {
            None => {}
            Some(read) if read.found.is_none() => actions.push(Action::ReadLease(who)),
            Some(_) => actions.push(Action::ApplyRead(who)),
        }
    }

    /// What comes of it.
    pub fn apply(&self, state: &State, action: Action) -> State {
        let mut next = state.clone();
        self.apply_to(&mut next, action);
        next.reduce(!self.has(Fault::NoVersionTest));
        // What needs no choice is decided at once: to decide later comes to the same as to see later.
        while self.follow_at_once(&mut next) {
            next.reduce(!self.has(Fault::NoVersionTest));
        }
        next
    }

    /// Whatever happens without a choice; false if that is nothing.
    fn follow_at_once(&self, state: &mut State) -> bool {
        let mut happened = false;
        for who in 0..CONTROLLERS {
            happened |= self.decide(state, who);
        }
        if !self.schedulers_lag {
            for (who, job) in (0..state.schedulers.len()).flat_map(|who| (0..JOBS).map(move |job| (who, job))) {
                let (seen, new) = (state.schedulers[who].seen[job], state.bindings[job]);
                if seen.is_none_or(|seen| seen.version < new.version) {
                    self.update_binding(state, who, job, new);
                    happened = true;
                }
            }
        }
        happened
    }

    fn apply_to(&self, state: &mut State, action: Action) {
        match action {
            Action::AcquireLease(who) => self.take_lease(state, who),
            Action::TakeLease(who) => {
                state.left.takeovers -= 1;
                self.take_lease(state, who);
            }
            Action::NoticeLoss(who) => restart_controller(state, who),
            Action::ReleaseLease(who) => {
                state.left.releases -= 1;
                state.lease.iter_mut().for_each(|lease| lease.holder = NOBODY);
                restart_controller(state, who);
            }
            Action::KillController(who) => {
                state.left.stops -= 1;
                restart_controller(state, who);
            }
            Action::ListBindings(who) => {
                for (job, binding) in state.bindings.into_iter().enumerate() {
                    state.controllers[who].observe_binding(job, binding, true);
                    state.controllers[who].jobs[job].ended = state.ended[job];
                }
            }
            Action::WatchBinding(who, job) => {
                state.controllers[who].observe_binding(job, state.bindings[job], false);
            }
            Action::WatchWorkload(who, job) => state.controllers[who].jobs[job].ended = state.ended[job],
            Action::ReleaseJob(who, job) => self.release_job(state, who, job),
            Action::SettleLaterGrants(who) => {
                state.left.deadlines -= 1;
                self.regrant_or_take_back(state, who, true);
            }
            Action::RequeueUnplaced(who, job) => {
                state.left.deadlines -= 1;
                self.requeue(state, who, job);
            }
            Action::ExecuteWrite(message) => self.execute_write(state, message),
            Action::FollowAnswer(message) => {
                take_message(state, message);
                self.follow_answer(state, message, message.answer);
            }
            Action::LoseAnswer(message) => {
                state.left.lost -= 1;
                take_message(state, message);
                if message.answer.is_none() {
                    state.network.push(Message { from: None, ..message });
                }
                self.follow_answer(state, message, None);
            }
            Action::ListForScheduler(who) => {
                for (job, binding) in state.bindings.into_iter().enumerate() {
                    self.update_binding(state, who, job, binding);
                }
            }
            Action::WatchForScheduler(who, job) => {
                self.update_binding(state, who, job, state.bindings[job]);
            }
            Action::ReadLease(who) => {
                let found = state.lease.map(Lease::epoch);
                state.schedulers[who].reading.iter_mut().for_each(|read| read.found = Some(found));
            }
            Action::ApplyRead(who) => self.apply_read(state, who),
            Action::KillScheduler(who) => {
                state.left.scheduler_stops -= 1;
                state.schedulers[who] = Scheduler::default();
                forget_sender(state, Process::Scheduler(who));
            }
            Action::EndJob(job) => state.ended[job] = true,
            Action::ForgeRecord(job, epoch) => {
                state.left.forgeries -= 1;
                store(state, job, |binding| binding.record = Some(Grant { epoch }));
            }
            Action::DeleteLease => {
                state.left.lease_deletions -= 1;
                state.lease = None;
            }
        }
    }

    /// `try_acquire_or_renew`: creates the Lease, or takes it.
    fn take_lease(&self, state: &mut State, who: usize) {
        let controller = state.controllers[who];
        let holder = controller.epoch.map_or_else(|| state.choose_identity(), |epoch| epoch.identity);
        let lease = Lease { term: state.lease.map_or(0, |lease| lease.term + 1), holder };
        state.lease = Some(lease);
        // Who takes it again goes on with the epoch that its grants had.
        state.controllers[who].epoch = controller.epoch.or(Some(lease.epoch()));
    }

    fn execute_write(&self, state: &mut State, message: Message) {
        take_message(state, message);
        let matches = state.bindings[message.job].version == message.version;
        let answer = if matches || self.has(Fault::NoVersionTest) {
            let was_placed = state.bindings[message.job].placed > 0;
            store(state, message.job, |binding| match message.write {
                Write::Grant(grant) => binding.record = Some(grant),
                Write::Evict => (binding.record, binding.placed) = (None, 0),
                Write::Place(pods) => binding.placed = (binding.placed + pods).min(GANG),
            });
            let binding = state.bindings[message.job];
            if !was_placed && binding.placed > 0 {
                state.ended[message.job] = false;
                state.starts[message.job] += 1;
            }
            Answer::Stored(binding)
        } else {
            Answer::Conflict
        };
        if message.from.is_some() {
            state.network.push(Message { answer: Some(answer), ..message });
        }
    }

    fn follow_answer(&self, state: &mut State, message: Message, answer: Option<Answer>) {
        match message.from {
            Some(Process::Controller(who)) => self.follow_write(state, who, message, answer),
            Some(Process::Scheduler(who)) => self.follow_placement(state, who, message, answer),
            None => {}
        }
    }
}

/// Pods that are placed, of jobs that have not ended.
pub fn count_placed(state: &State) -> u8 {
    (0..JOBS).filter(|job| !state.ended[*job]).map(|job| state.bindings[job].placed).sum()
}

/// Pods that records grant, or that are placed without one, of jobs that have not ended.
pub fn count_granted(state: &State) -> u8 {
    let pods = |binding: Binding| if binding.record.is_some() { GANG } else { binding.placed };
    (0..JOBS).filter(|job| !state.ended[*job]).map(|job| pods(state.bindings[job])).sum()
}

/// What must never be, if it is.
pub fn find_violation(state: &State) -> Option<&'static str> {
    let is_half = |binding: &Binding| binding.placed != 0 && binding.placed != GANG;
    if count_placed(state) > LIMIT {
        Some("more is placed than the limit")
    } else if state.bindings.iter().any(is_half) {
        Some("half a gang is placed")
    } else if state.bindings.iter().any(|binding| binding.placed > 0 && binding.record.is_none()) {
        Some("a job is placed without a record")
    } else if state.starts.iter().any(|starts| *starts > 1) {
        Some("a job was started twice")
    } else {
        None
    }
}

/// Both jobs have run to their end.
pub fn is_good_end(state: &State) -> bool {
    (0..JOBS).all(|job| state.ended[job] && state.bindings[job].placed == GANG)
}

fn store(state: &mut State, job: Job, change: impl FnOnce(&mut Binding)) {
    change(&mut state.bindings[job]);
    state.bindings[job].version += 1;
}

fn take_message(state: &mut State, message: Message) {
    if let Some(at) = state.network.iter().position(|known| *known == message) {
        state.network.remove(at);
    }
}

/// Nobody waits for what a process had sent: it may land, and its answers are gone.
fn forget_sender(state: &mut State, process: Process) {
    state.network.retain(|message| message.from != Some(process) || message.answer.is_none());
    let sent = state.network.iter_mut().filter(|message| message.from == Some(process));
    sent.for_each(|message| message.from = None);
}

fn restart_controller(state: &mut State, who: usize) {
    state.controllers[who] = Controller::default();
    forget_sender(state, Process::Controller(who));
}
