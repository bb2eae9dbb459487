//! Opening and closing queues: Commands and parents in, states and marks out.
//!
//! The rule is `caldera_core::queue::state`, which follows Volcano's queue controller. Here is what it is asked about
//! and how its steps are written. Each step is one write that is refused if the queue has changed since, and the next
//! follows from what came back: a replica that stops in between goes on from the objects as they are. A Command is
//! deleted when it is carried out, not before: Volcano deletes it first and loses it in a crash. One that was carried
//! out and is still there after a crash finds its work done; only if somebody edited the state in that moment would it
//! be done again.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
};

use caldera_core::{
    gang::QueueName,
    queue::{
        Engine,
        state::{CommandRefusal, ParentState, QueueCommand, ReportedState, StateStep, StateView, decide_state_step},
    },
    reason::QueueProblem,
};
use caldera_crds::names::volcano::ROOT_QUEUE;
use caldera_runtime::{
    event::{EventType, Regarding},
    watch::Event,
};
use jiff::{SignedDuration, Timestamp};

use super::queue_numbers::build_first_numbers;
use crate::{
    decide::deadlines::{add_wait, compute_backoff},
    observe::{CommandFacts, Objects, QueueFacts},
    write::Decision,
};

/// A Command may come before the queue that it is for, as both are watched by themselves.
const WAIT_FOR_QUEUE: SignedDuration = SignedDuration::from_secs(60);
/// After a write that may have failed.
const RETRY_AFTER_WRITE: SignedDuration = SignedDuration::from_secs(1);
/// After a conflict that the watch does not explain.
const RETRY_AFTER_CONFLICT: SignedDuration = SignedDuration::from_secs(5);
/// After a write that the server refuses.
const RETRY_AFTER_REFUSAL: SignedDuration = SignedDuration::from_secs(60);
/// Event on a queue: a Command for it asks for something that is no action of a queue; nothing was done.
const UNKNOWN_COMMAND: &str = "UnknownCommand";

/// A Command and what we did about it.
#[derive(Debug)]
struct TrackedQueueCommand {
    facts: CommandFacts<QueueName>,
    /// Nothing more is to be done but to delete it.
    done: bool,
    /// Its deletion is to be sent, not before then.
    delete: Option<Timestamp>,
}

/// Why a write was not made.
pub(crate) enum WriteFailure {
    /// The object has changed, or is gone: the watch will say how, or has said so already.
    Changed,
    /// It may be made when it is tried again.
    Transient,
    /// The server will not have it.
    Refused,
}

/// What is under way.
#[derive(Debug, Default)]
pub(crate) struct QueueLifecycle {
    /// By queue, the oldest first. They stay until the watch says that they are gone, so that none is carried out
    /// again.
    commands: BTreeMap<QueueName, Vec<TrackedQueueCommand>>,
    /// Queues with a state or a mark being written.
    writing: BTreeSet<QueueName>,
    /// Queues to be looked at now.
    look: BTreeSet<QueueName>,
    look_at_all: bool,
    /// Those that are closed: jobs may have ended.
    look_at_closed: bool,
    /// Queues to be looked at later.
    later: BTreeMap<QueueName, Timestamp>,
    /// Queues of which a write failed: not before then, unless they are of another version than this.
    held_off: BTreeMap<QueueName, (Timestamp, Option<Arc<str>>)>,
    /// Of which writes failed, and how often in a row.
    failures: BTreeMap<QueueName, u32>,
}

/// Events and answers in.
impl QueueLifecycle {
    /// Takes in Commands.
    pub(crate) fn observe_commands(&mut self, event: Event<CommandFacts<QueueName>>) {
        match event {
            Event::Applied(command) => self.add_command(command, false),
            Event::Deleted(command) => self.forget_command(&command),
            Event::Reset(all) => {
                let old = mem::take(&mut self.commands).into_values().flatten();
                let done: BTreeSet<Arc<str>> =
                    old.filter(|command| command.done).map(|command| command.facts.uid).collect();
                for command in all {
                    let done = done.contains(&command.uid);
                    self.add_command(command, done);
                }
            }
        }
    }

    fn add_command(&mut self, facts: CommandFacts<QueueName>, done: bool) {
        let of_queue = self.commands.entry(facts.target.clone()).or_default();
        self.look.insert(facts.target.clone());
        if let Some(known) = of_queue.iter_mut().find(|known| known.facts.uid == facts.uid) {
            known.facts.deleting |= facts.deleting;
            return;
        }
        let at = of_queue.partition_point(|known| known.facts.rank_by_age() < facts.rank_by_age());
        // One that was done and is listed again has not been deleted.
        of_queue.insert(at, TrackedQueueCommand { facts, done, delete: done.then_some(Timestamp::UNIX_EPOCH) });
    }

    fn forget_command(&mut self, command: &CommandFacts<QueueName>) {
        let Some(all) = self.commands.get_mut(&command.target) else { return };
        all.retain(|known| known.facts.uid != command.uid);
        if all.is_empty() {
            self.commands.remove(&command.target);
        }
        // Another may have waited for this one.
        self.look_at_all = true;
    }

    /// Takes in that a queue came or changed; `matters` says that those below it may have to follow.
    pub(crate) fn observe_queue(&mut self, name: &QueueName, matters: bool) {
        self.look.insert(name.clone());
        self.look_at_all |= matters;
    }

    /// Forgets a queue that is gone.
    pub(crate) fn forget_queue(&mut self, name: &QueueName) {
        self.look_at_all = true;
        self.writing.remove(name);
        self.held_off.remove(name);
        self.failures.remove(name);
    }

    /// Takes in that jobs may have ended.
    pub(crate) const fn observe_jobs(&mut self) {
        self.look_at_closed = true;
    }

    /// Whether a write of a queue's state or mark is under way, so that another would be in its way.
    pub(crate) fn is_writing(&self, name: &QueueName) -> bool {
        self.writing.contains(name)
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.later.values().min().copied()
    }

    /// Takes in the answer to a write of a state or a mark, for this version of the queue.
    pub(crate) fn apply_state_answer(
        &mut self,
        name: &QueueName,
        version: &Arc<str>,
        failure: Option<&WriteFailure>,
        now: Timestamp,
    ) {
        self.writing.remove(name);
        self.look.insert(name.clone());
        let (wait, of) = match failure {
            None => {
                self.failures.remove(name);
                return;
            }
            Some(WriteFailure::Changed) => (RETRY_AFTER_CONFLICT, Some(Arc::clone(version))),
            Some(WriteFailure::Transient) => (self.count_failure(name, RETRY_AFTER_WRITE), None),
            Some(WriteFailure::Refused) => (self.count_failure(name, RETRY_AFTER_REFUSAL), None),
        };
        self.held_off.insert(name.clone(), (add_wait(now, wait), of));
    }

    fn count_failure(&mut self, name: &QueueName, first: SignedDuration) -> SignedDuration {
        let failures = self.failures.entry(name.clone()).or_default();
        *failures = failures.saturating_add(1);
        compute_backoff(first, *failures)
    }

    /// Takes in the answer to the deletion of a Command. If it is gone the watch will say so.
    pub(crate) fn apply_deletion_answer(
        &mut self,
        name: &QueueName,
        uid: &str,
        failure: Option<&WriteFailure>,
        now: Timestamp,
    ) {
        let at = match failure {
            None => {
                self.failures.remove(name);
                return;
            }
            Some(WriteFailure::Changed) => return,
            Some(WriteFailure::Transient) => add_wait(now, self.count_failure(name, RETRY_AFTER_WRITE)),
            Some(WriteFailure::Refused) => add_wait(now, self.count_failure(name, RETRY_AFTER_REFUSAL)),
        };
        let all = self.commands.get_mut(name).into_iter().flatten();
        all.filter(|command| *command.facts.uid == *uid).for_each(|command| command.delete = Some(at));
        self.schedule_check(name, at);
    }
}

/// Decisions.
impl QueueLifecycle {
    /// Looks at every queue of which something changed, and writes the next step of each. `numbers_in_flight` says that
    /// the numbers of a queue are being written: another write would be refused because of that.
    pub(crate) fn advance_queues(
        &mut self,
        objects: &Objects,
        engine: &Engine,
        numbers_in_flight: impl Fn(&QueueName) -> bool,
        now: Timestamp,
    ) -> Vec<Decision> {
        let mut names = mem::take(&mut self.look);
        self.later.retain(|name, at| {
            let due = *at <= now;
            names.extend(due.then(|| name.clone()));
            !due
        });
        let look_at_closed = mem::take(&mut self.look_at_closed);
        if mem::take(&mut self.look_at_all) {
            names.extend(objects.queues.keys().cloned());
            names.extend(self.commands.keys().cloned());
        } else if look_at_closed {
            let closed = objects.queues.iter().filter(|(_, queue)| read_state(queue).is_shut());
            names.extend(closed.map(|(name, _)| name.clone()));
        }
        let mut decisions = Vec::new();
        while let Some(name) = names.pop_first() {
            let is_busy = numbers_in_flight(&name);
            self.advance_queue(objects, engine, &name, is_busy, now, &mut decisions);
            names.append(&mut self.look);
            self.delete_done_commands(&name, now, &mut decisions);
        }
        decisions
    }

    /// One Command after the other, until one needs a write.
    fn advance_queue(
        &mut self,
        objects: &Objects,
        engine: &Engine,
        name: &QueueName,
        is_busy: bool,
        now: Timestamp,
        decisions: &mut Vec<Decision>,
    ) {
        loop {
            let command = self.next_command(name).cloned();
            let queue = objects.queues.get(name);
            if let Some(command) = &command
                && queue.is_none_or(|queue| !command.target_uid.is_empty() && command.target_uid != queue.uid)
            {
                let since = command.created.to_timestamp().unwrap_or(now);
                let until = add_wait(since, WAIT_FOR_QUEUE);
                if until > now {
                    self.schedule_check(name, until);
                    return;
                }
                let message = format!("queue {name} does not exist, or is another one by now: nothing was done");
                decisions.push(build_queue_not_found_event(command, message));
                self.finish_command(command);
                continue;
            }
            let Some(queue) = queue else { return };
            if let Some(command) = command.as_ref().filter(|command| parse_queue_command(command).is_none()) {
                let message = format!("Command {}: {:?} is no action of a queue", command.key, command.action);
                decisions.push(Decision::build_queue_event(queue, EventType::Warning, UNKNOWN_COMMAND, message));
                self.finish_command(command);
                continue;
            }
            let command = command.filter(|command| !self.waits_for_parent(objects, queue, command));
            let step =
                decide_state_step(view_queue(objects, engine, queue), command.as_ref().and_then(parse_queue_command));
            let Some(command) = self.take_step(queue, step, command, is_busy, now, decisions) else { return };
            self.finish_command(&command);
            // A queue below may have waited for that.
            let below = |queue: &&QueueFacts| queue.spec.parent.as_ref() == Some(name);
            self.look.extend(objects.queues.values().filter(below).map(|queue| queue.spec.name.clone()));
        }
    }

    /// Takes one step; gives back the Command if that is done with.
    fn take_step(
        &mut self,
        queue: &QueueFacts,
        step: StateStep,
        command: Option<CommandFacts<QueueName>>,
        is_busy: bool,
        now: Timestamp,
        decisions: &mut Vec<Decision>,
    ) -> Option<CommandFacts<QueueName>> {
        let (name, resource_version) = (queue.spec.name.clone(), Arc::clone(&queue.resource_version));
        let decision = match step {
            StateStep::Settled => {
                let command = command?;
                let message =
                    format!("Command {}: the queue is {}", command.key, read_state(queue).effective_state().as_str());
                decisions.push(Decision::build_queue_event(queue, EventType::Normal, &command.action, message));
                return Some(command);
            }
            StateStep::Refuse(refusal) => {
                let command = command?;
                let parent = queue.spec.parent.as_ref().map_or(ROOT_QUEUE, QueueName::as_str);
                let why = match refusal {
                    CommandRefusal::ParentShut => format!("its parent {parent} is not open; open that first"),
                    CommandRefusal::Root => "the root can not be closed".to_owned(),
                };
                let message = format!("Command {} was not carried out: {why}", command.key);
                decisions.push(Decision::build_queue_event(queue, EventType::Warning, &command.action, message));
                return Some(command);
            }
            StateStep::Mark(closed_by_parent) => {
                Decision::QueueMark { name: name.clone(), resource_version, closed_by_parent }
            }
            StateStep::Become(state) => {
                let numbers = queue.state.is_none().then(|| build_first_numbers(queue));
                Decision::QueueState { name: name.clone(), resource_version, state, numbers }
            }
        };
        // Its answer is looked at; this would be refused because of it.
        if is_busy || self.writing.contains(&name) {
            return None;
        }
        let same_version = |of: &Option<Arc<str>>| of.as_ref().is_none_or(|of| *of == queue.resource_version);
        let held_off = self.held_off.get(&name).filter(|(at, of)| *at > now && same_version(of)).map(|(at, _)| *at);
        if let Some(at) = held_off {
            self.schedule_check(&name, at);
            return None;
        }
        self.held_off.remove(&name);
        self.writing.insert(name);
        decisions.push(decision);
        None
    }

    /// The oldest Command for a queue that is still to be carried out.
    fn next_command(&self, name: &QueueName) -> Option<&CommandFacts<QueueName>> {
        let all = self.commands.get(name)?;
        all.iter().find(|command| !command.done && !command.facts.deleting).map(|command| &command.facts)
    }

    fn finish_command(&mut self, command: &CommandFacts<QueueName>) {
        let all = self.commands.get_mut(&command.target);
        if let Some(known) = all.and_then(|all| all.iter_mut().find(|known| known.facts.uid == command.uid)) {
            (known.done, known.delete) = (true, Some(Timestamp::UNIX_EPOCH));
        }
    }

    /// An older Command for the queue above comes first: to open a tree from the top down may be asked for in one go.
    fn waits_for_parent(&self, objects: &Objects, queue: &QueueFacts, command: &CommandFacts<QueueName>) -> bool {
        let above = queue.spec.parent.as_ref().filter(|parent| objects.queues.contains_key(*parent));
        let older = above.and_then(|parent| self.next_command(parent));
        older.is_some_and(|older| older.rank_by_age() < command.rank_by_age())
    }

    fn delete_done_commands(&mut self, name: &QueueName, now: Timestamp, decisions: &mut Vec<Decision>) {
        let mut later: Option<Timestamp> = None;
        for command in self.commands.get_mut(name).into_iter().flatten() {
            match command.delete {
                Some(at) if at <= now => {
                    command.delete = None;
                    let (key, uid) = (command.facts.key.clone(), Arc::clone(&command.facts.uid));
                    decisions.push(Decision::DeleteCommand { key, queue: name.clone(), uid });
                }
                Some(at) => later = Some(later.map_or(at, |other| other.min(at))),
                None => {}
            }
        }
        later.into_iter().for_each(|at| self.schedule_check(name, at));
    }

    fn schedule_check(&mut self, name: &QueueName, at: Timestamp) {
        self.later.entry(name.clone()).and_modify(|known| *known = at.min(*known)).or_insert(at);
    }
}

fn parse_queue_command(command: &CommandFacts<QueueName>) -> Option<QueueCommand> {
    match &*command.action {
        "OpenQueue" => Some(QueueCommand::Open),
        "CloseQueue" => Some(QueueCommand::Close),
        _ => None,
    }
}

fn read_state(queue: &QueueFacts) -> ReportedState {
    ReportedState::read(queue.state.as_deref().unwrap_or(""))
}

fn view_queue(objects: &Objects, engine: &Engine, queue: &QueueFacts) -> StateView {
    let name = &queue.spec.name;
    let above = match queue.spec.parent.as_ref().map(QueueName::as_str) {
        _ if name.as_str() == ROOT_QUEUE => ParentState::Nothing,
        None | Some(ROOT_QUEUE) => ParentState::Open,
        _ if engine.queue_problem(name) == Some(QueueProblem::Cycle) => ParentState::Unclear,
        Some(parent) => objects
            .queues
            .get(parent)
            .map_or(ParentState::Unclear, |parent| ParentState::from_parent(read_state(parent))),
    };
    StateView { said: read_state(queue), busy: engine.holds_own_charge(name), marked: queue.closed_by_parent, above }
}

fn build_queue_not_found_event(command: &CommandFacts<QueueName>, message: String) -> Decision {
    Decision::RecordEvent {
        regarding: Regarding {
            api_version: "bus.volcano.sh/v1alpha1".to_owned(),
            kind: "Command".to_owned(),
            namespace: command.key.namespace.to_string(),
            name: command.key.name.to_string(),
            uid: command.uid.to_string(),
        },
        event_type: EventType::Warning,
        reason: "QueueNotFound".to_owned(),
        message,
    }
}
