//! Opening and closing queues: Commands and parents in, states and marks out.
//!
//! The rule is `caldera_core::queue::state`; here is what it is asked about and how its steps are written. Each step is
//! one write that is refused if the queue has changed since, and the next follows from what came back: whoever stops in
//! between goes on from the objects as they are. A Command is deleted when it is carried out, not before (Volcano deletes it
//! first and loses it in a crash). One that was carried out and is still there after a crash finds its work done; only
//! if somebody edited the state in that moment would it be done again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use caldera_core::{
    gang::QueueName,
    queue::state::{CommandRefusal, ParentState, QueueCommand, ReportedState, StateStep, StateView, decide_state_step},
    reason::QueueProblem,
};
use caldera_crds::{
    names::volcano::ROOT_QUEUE,
    volcano::{bus::Command, scheduling::Queue},
};
use caldera_runtime::{
    event::{EventType, Regarding},
    watch::Event,
    write::Failure,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{
    effect::Effect,
    facts::{Key, QueueFacts},
    index::{Index, Tag},
    plan::Plan,
};

/// A Command may come before the queue that it is for, as both are watched by themselves.
const WAIT_FOR_QUEUE: SignedDuration = SignedDuration::from_secs(60);
/// After a write that may have failed.
const AGAIN: SignedDuration = SignedDuration::from_secs(1);
/// After a conflict that the watch does not explain.
const UNEXPLAINED: SignedDuration = SignedDuration::from_secs(5);
/// After a write that the server refuses.
const REFUSED: SignedDuration = SignedDuration::from_secs(60);

/// A Command, as far as it is about a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandFacts {
    /// Which.
    pub key: Key,
    /// UID.
    pub uid: Arc<str>,
    /// Seconds since 1970.
    pub created: i64,
    /// As last seen.
    pub resource_version: Arc<str>,
    /// The queue's name.
    pub queue: QueueName,
    /// The queue's UID, empty for whichever has the name.
    pub queue_uid: Arc<str>,
    /// `OpenQueue` or `CloseQueue`, if it is one that there is.
    pub action: Arc<str>,
    /// Somebody deletes it already.
    pub deleting: bool,
}

impl CommandFacts {
    /// Reads one; `None` if it is about no queue.
    #[must_use]
    pub fn read(object: &Command) -> Option<Self> {
        let target = object.target.as_ref()?;
        let is_queue = target.kind == "Queue" && target.api_version == "scheduling.volcano.sh/v1beta1";
        let metadata = &object.metadata;
        is_queue.then(|| Self {
            key: Key::new(metadata.namespace.as_deref().unwrap_or(""), metadata.name.as_deref().unwrap_or("")),
            uid: metadata.uid.as_deref().unwrap_or("").into(),
            created: metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            resource_version: metadata.resource_version.as_deref().unwrap_or("").into(),
            queue: target.name.as_str().into(),
            queue_uid: target.uid.as_str().into(),
            action: object.action.as_deref().unwrap_or("").into(),
            deleting: metadata.deletion_timestamp.is_some(),
        })
    }

    fn order(&self) -> Option<QueueCommand> {
        match &*self.action {
            "OpenQueue" => Some(QueueCommand::Open),
            "CloseQueue" => Some(QueueCommand::Close),
            _ => None,
        }
    }

    /// Older first, to the last tie.
    fn age(&self) -> (i64, u64, &str) {
        (self.created, self.resource_version.parse().unwrap_or(u64::MAX), &self.uid)
    }
}

/// A Command and what we did about it.
#[derive(Debug)]
struct Held {
    facts: CommandFacts,
    /// Nothing more is to be done but to delete it.
    done: bool,
    /// Its deletion is to be sent, not before then.
    delete: Option<Timestamp>,
}

/// What is under way.
#[derive(Debug, Default)]
pub(crate) struct Lifecycle {
    /// By queue, the oldest first. They stay until the watch says that they are gone, so that none is carried out again.
    commands: BTreeMap<QueueName, Vec<Held>>,
    /// Queues with a state or a mark being written.
    writing: BTreeSet<QueueName>,
    /// Queues to be looked at now.
    look: BTreeSet<QueueName>,
    /// All of them.
    look_at_all: bool,
    /// Those that are closed: jobs may have ended.
    look_at_shut: bool,
    /// Queues to be looked at later.
    later: BTreeMap<QueueName, Timestamp>,
    /// Queues of which a write failed: not before then, unless they are of another version than this.
    held_off: BTreeMap<QueueName, (Timestamp, Option<Arc<str>>)>,
}

impl Lifecycle {
    /// Takes in Commands.
    pub(crate) fn commands(&mut self, event: Event<CommandFacts>) {
        match event {
            Event::Applied(command) => self.command(command, false),
            Event::Deleted(command) => self.forget(&command),
            Event::Reset(all) => {
                let old = std::mem::take(&mut self.commands);
                let done: BTreeSet<Arc<str>> =
                    old.into_values().flatten().filter(|held| held.done).map(|held| held.facts.uid).collect();
                all.into_iter().for_each(|command| {
                    let done = done.contains(&command.uid);
                    self.command(command, done);
                });
            }
        }
    }

    fn command(&mut self, facts: CommandFacts, done: bool) {
        let of_queue = self.commands.entry(facts.queue.clone()).or_default();
        self.look.insert(facts.queue.clone());
        if let Some(held) = of_queue.iter_mut().find(|held| held.facts.uid == facts.uid) {
            held.facts.deleting |= facts.deleting;
            return;
        }
        let at = of_queue.partition_point(|held| held.facts.age() < facts.age());
        // One that was done and is listed again has not been deleted.
        of_queue.insert(at, Held { facts, done, delete: done.then_some(Timestamp::UNIX_EPOCH) });
    }

    fn forget(&mut self, command: &CommandFacts) {
        let Some(all) = self.commands.get_mut(&command.queue) else { return };
        all.retain(|held| held.facts.uid != command.uid);
        if all.is_empty() {
            self.commands.remove(&command.queue);
        }
        // Another may have waited for this one.
        self.look_at_all = true;
    }

    /// A queue came or changed: in nothing that this is about (`same`), or so that those below it may have to follow.
    pub(crate) fn queue_seen(&mut self, name: &QueueName, same: bool) {
        self.look.insert(name.clone());
        self.look_at_all |= !same;
    }

    /// A queue is gone.
    pub(crate) fn queue_gone(&mut self, name: &QueueName) {
        self.look_at_all = true;
        self.writing.remove(name);
        self.held_off.remove(name);
    }

    /// Jobs ended, perhaps.
    pub(crate) fn jobs_moved(&mut self) {
        self.look_at_shut = true;
    }

    /// Whether a write of its state or mark is under way, so that another would be in its way.
    pub(crate) fn is_writing(&self, name: &QueueName) -> bool {
        self.writing.contains(name)
    }

    /// When to ask again if nothing happens.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        self.later.values().min().copied()
    }

    fn look_later(&mut self, name: &QueueName, at: Timestamp) {
        self.later.entry(name.clone()).and_modify(|known| *known = at.min(*known)).or_insert(at);
    }

    /// The oldest Command for a queue that is still to be carried out.
    fn pending(&self, name: &QueueName) -> Option<&CommandFacts> {
        let all = self.commands.get(name)?;
        all.iter().find(|held| !held.done && !held.facts.deleting).map(|held| &held.facts)
    }

    fn finish(&mut self, command: &CommandFacts) {
        let all = self.commands.get_mut(&command.queue);
        if let Some(held) = all.and_then(|all| all.iter_mut().find(|held| held.facts.uid == command.uid)) {
            (held.done, held.delete) = (true, Some(Timestamp::UNIX_EPOCH));
        }
    }
}

/// Looks at every queue of which something changed, and writes the next step of each.
pub(crate) fn turn(index: &mut Index, now: Timestamp, plan: &mut Plan) {
    let state = &mut index.lifecycle;
    let mut names = std::mem::take(&mut state.look);
    state.later.retain(|name, at| {
        let due = *at <= now;
        if due {
            names.insert(name.clone());
        }
        !due
    });
    if std::mem::take(&mut state.look_at_all) {
        names.extend(index.queues.keys().cloned());
        names.extend(state.commands.keys().cloned());
    } else if std::mem::take(&mut state.look_at_shut) {
        let shut = index.queues.iter().filter(|(_, queue)| said(queue).is_shut());
        names.extend(shut.map(|(name, _)| name.clone()));
    }
    while let Some(name) = names.pop_first() {
        look(index, &name, now, plan);
        names.append(&mut index.lifecycle.look);
        delete_done(&mut index.lifecycle, &name, now, plan);
    }
}

fn look(index: &mut Index, name: &QueueName, now: Timestamp, plan: &mut Plan) {
    // One Command after the other, until one needs a write.
    loop {
        let command = index.lifecycle.pending(name).cloned();
        let queue = index.queues.get(name);
        if let Some(command) = &command
            && queue.is_none_or(|queue| !command.queue_uid.is_empty() && command.queue_uid != queue.uid)
        {
            let since = Timestamp::from_second(command.created).unwrap_or(now);
            let until = since.saturating_add(WAIT_FOR_QUEUE).unwrap_or(now);
            if until > now {
                index.lifecycle.look_later(name, until);
                break;
            }
            let message = format!("queue {name} does not exist, or is another one by now: nothing was done");
            plan.effects.push((Tag::Tell, tell_on_command(command, message)));
            index.lifecycle.finish(command);
            continue;
        }
        let Some(queue) = queue else { return };
        if let Some(command) = command.as_ref().filter(|command| command.order().is_none()) {
            let message = format!("Command {}: {:?} is no action of a queue", command.key, command.action);
            plan.effects.push((Tag::Tell, tell_on_queue(queue, EventType::Warning, "UnknownCommand", message)));
            index.lifecycle.finish(command);
            continue;
        }
        let command = command.filter(|command| !waits_for_parent(index, queue, command));
        let step = decide_state_step(view(index, queue), command.as_ref().and_then(CommandFacts::order));
        let Some(command) = carry_out(index, name, step, command, now, plan) else { break };
        index.lifecycle.finish(&command);
        // Whoever is below may have waited for that.
        let parent = |queue: &QueueFacts| queue.spec.parent.as_ref() == Some(name);
        let children = index.queues.iter().filter(|(_, queue)| parent(queue)).map(|(child, _)| child.clone());
        index.lifecycle.look.extend(children);
    }
}

/// Does one step; gives back the Command if that is done with.
fn carry_out(
    index: &mut Index,
    name: &QueueName,
    step: StateStep,
    command: Option<CommandFacts>,
    now: Timestamp,
    plan: &mut Plan,
) -> Option<CommandFacts> {
    let queue = index.queues.get(name)?;
    let (name, resource_version) = (name.clone(), queue.resource_version.to_string());
    let effect = match step {
        StateStep::Settled => {
            let command = command?;
            let message = format!("Command {}: the queue is {}", command.key, said(queue).state().as_str());
            plan.effects.push((Tag::Tell, tell_on_queue(queue, EventType::Normal, &command.action, message)));
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
            plan.effects.push((Tag::Tell, tell_on_queue(queue, EventType::Warning, &command.action, message)));
            return Some(command);
        }
        StateStep::Mark(closed_by_parent) => {
            Effect::QueueMark { name: name.clone(), resource_version, closed_by_parent }
        }
        StateStep::Become(state) => Effect::QueueState { name: name.clone(), resource_version, state },
    };
    let version = Arc::clone(&queue.resource_version);
    let numbers_in_flight = index.queue_writes.get(&name).is_some_and(|writing| writing.in_flight);
    let state = &mut index.lifecycle;
    // Its answer is looked at; this would be refused because of it.
    if numbers_in_flight || state.writing.contains(&name) {
        return None;
    }
    let held_off =
        state.held_off.get(&name).filter(|(at, of)| *at > now && of.as_ref().is_none_or(|of| *of == version));
    if let Some((at, _)) = held_off.cloned() {
        state.look_later(&name, at);
        return None;
    }
    state.held_off.remove(&name);
    state.writing.insert(name.clone());
    plan.effects.push((Tag::QueueState(name, version), effect));
    None
}

fn said(queue: &QueueFacts) -> ReportedState {
    ReportedState::read(queue.state.as_deref().unwrap_or(""))
}

fn view(index: &Index, queue: &QueueFacts) -> StateView {
    let name = &queue.spec.name;
    let above = match queue.spec.parent.as_ref().map(QueueName::as_str) {
        _ if name.as_str() == ROOT_QUEUE => ParentState::Nothing,
        None | Some(ROOT_QUEUE) => ParentState::Open,
        _ if index.engine.queue_problem(name) == Some(QueueProblem::Cycle) => ParentState::Unclear,
        Some(parent) => index.queues.get(parent).map_or(ParentState::Unclear, |parent| ParentState::by(said(parent))),
    };
    StateView { said: said(queue), busy: index.engine.is_busy(name), marked: queue.closed_by_parent, above }
}

/// An older Command for the queue above comes first: to open a tree from the top down may be asked for in one go.
fn waits_for_parent(index: &Index, queue: &QueueFacts, command: &CommandFacts) -> bool {
    let above = queue.spec.parent.as_ref().filter(|parent| index.queues.contains_key(*parent));
    let pending = above.and_then(|parent| index.lifecycle.pending(parent));
    pending.is_some_and(|pending| pending.age() < command.age())
}

fn delete_done(state: &mut Lifecycle, name: &QueueName, now: Timestamp, plan: &mut Plan) {
    let mut later = None;
    for held in state.commands.get_mut(name).into_iter().flatten() {
        match held.delete {
            Some(at) if at <= now => {
                held.delete = None;
                let (key, uid) = (held.facts.key.clone(), held.facts.uid.to_string());
                let tag = Tag::Command(name.clone(), Arc::clone(&held.facts.uid));
                plan.effects.push((tag, Effect::DeleteCommand { key, uid }));
            }
            Some(at) => later = Some(later.map_or(at, |other: Timestamp| other.min(at))),
            None => {}
        }
    }
    if let Some(at) = later {
        state.look_later(name, at);
    }
}

fn tell_on_queue(queue: &QueueFacts, event_type: EventType, reason: &str, message: String) -> Effect {
    Effect::Tell { regarding: queue.regarding(), event_type, reason: reason.to_owned(), message }
}

fn tell_on_command(command: &CommandFacts, message: String) -> Effect {
    Effect::Tell {
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

/// Answers.
impl Index {
    /// A state or a mark was written, or not.
    pub(crate) fn queue_state_written(&mut self, name: &QueueName, version: &Arc<str>, result: Result<Value, Failure>) {
        self.lifecycle.writing.remove(name);
        self.lifecycle.look.insert(name.clone());
        // Its numbers may have waited for this.
        self.moved = true;
        let (wait, of) = match result {
            Ok(object) => {
                match serde_json::from_value::<Queue>(object) {
                    Ok(object) => self.queue(QueueFacts::read(&object)),
                    Err(error) => tracing::warn!(queue = %name, %error, "a queue that we wrote does not parse"),
                }
                return;
            }
            // The watch will say how it has changed, or has said so already.
            Err(Failure::Gone(_) | Failure::Conflict(_)) => (UNEXPLAINED, Some(Arc::clone(version))),
            Err(Failure::Transient(_) | Failure::Exists(_)) => (AGAIN, None),
            Err(Failure::Refused { message, .. }) => {
                tracing::warn!(queue = %name, error = message, "failed to open or close a queue");
                (REFUSED, None)
            }
        };
        let at = self.now.saturating_add(wait).unwrap_or(self.now);
        self.lifecycle.held_off.insert(name.clone(), (at, of));
    }

    /// A Command was deleted, or not. What is gone the watch will say.
    pub(crate) fn command_deleted(&mut self, name: &QueueName, uid: &str, result: Result<Value, Failure>) {
        let wait = match result {
            Ok(_) | Err(Failure::Gone(_) | Failure::Conflict(_)) => return,
            Err(Failure::Transient(_) | Failure::Exists(_)) => AGAIN,
            Err(Failure::Refused { message, .. }) => {
                tracing::warn!(queue = %name, error = message, "failed to delete a Command that is carried out");
                REFUSED
            }
        };
        let at = self.now.saturating_add(wait).unwrap_or(self.now);
        let all = self.lifecycle.commands.get_mut(name).into_iter().flatten();
        all.filter(|held| *held.facts.uid == *uid).for_each(|held| held.delete = Some(at));
        self.lifecycle.look_later(name, at);
    }
}
