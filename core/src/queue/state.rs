//! Whether a queue is open, closing or closed: how its state follows commands, its jobs and the queue above.
//!
//! Rule: Volcano's queue controller (`pkg/controllers/queue/state/*.go`, `queue_controller_action.go:58-310`). No
//! state becomes Open. A queue that is closed is Closing while something of it runs, then Closed. A queue below a
//! closed one is closed too, with a mark, and a marked one opens with its parent; a closed queue without the mark was
//! closed by somebody and stays closed. Below a closed queue nothing is opened, and the root is never closed.
//!
//! Differences on purpose. Only what holds quota keeps a queue Closing, not every PodGroup: Volcano refuses new jobs
//! of a closed queue, here they are pending, and a queue whose jobs are all pending is closed. The same goes for a
//! finished job, whose PodGroup Volcano removes and we keep. A state edited to Closed while jobs run is Closing
//! (Volcano means that, `open.go:52-57`, but reads such a queue by `closed.go`). And a queue in a cycle of parents
//! follows nobody: two that follow each other would open and close without end.

use crate::queue::spec::QueueState;

/// `status.state`, as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportedState {
    /// Nothing yet.
    Nothing,
    /// A state.
    State(QueueState),
    /// No state that there is.
    Nonsense,
}

impl ReportedState {
    /// Reads `status.state`.
    #[must_use]
    pub fn read(state: &str) -> Self {
        use QueueState::{Closed, Closing, Open, Unknown};
        if state.is_empty() {
            return Self::Nothing;
        }
        [Open, Closing, Closed, Unknown].into_iter().find(|s| s.as_str() == state).map_or(Self::Nonsense, Self::State)
    }

    /// The state that counts: a new queue is open; one whose state is nonsense starts nothing until somebody decides.
    #[must_use]
    pub const fn effective_state(self) -> QueueState {
        match self {
            Self::Nothing => QueueState::Open,
            Self::State(state) => state,
            Self::Nonsense => QueueState::Unknown,
        }
    }

    /// Closing or Closed.
    #[must_use]
    pub const fn is_shut(self) -> bool {
        matches!(self, Self::State(QueueState::Closing | QueueState::Closed))
    }
}

/// What is above a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParentState {
    /// Nothing: it is the root.
    Nothing,
    /// A queue that starts jobs, as the root always does.
    Open,
    /// A queue that is Closing or Closed.
    Shut,
    /// A queue that is not there, that has no state yet or an unknown one, or that is below this one.
    Unclear,
}

impl ParentState {
    /// By the parent's state.
    #[must_use]
    pub const fn from_parent(parent: ReportedState) -> Self {
        match parent {
            ReportedState::State(QueueState::Open) => Self::Open,
            ReportedState::State(QueueState::Closing | QueueState::Closed) => Self::Shut,
            _ => Self::Unclear,
        }
    }
}

/// A queue, as far as its state depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateView {
    /// `status.state`.
    pub said: ReportedState,
    /// Something of its own jobs is charged.
    pub busy: bool,
    /// It bears the mark: it was closed because its parent was.
    pub marked: bool,
    /// The queue above.
    pub above: ParentState,
}

/// What somebody wants of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueCommand {
    /// `OpenQueue`.
    Open,
    /// `CloseQueue`.
    Close,
}

/// Why an order is not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandRefusal {
    /// The queue above is closed.
    ParentShut,
    /// The root is never closed.
    Root,
}

/// The one thing to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateStep {
    /// Nothing: all is as it should be, and the order, if any, is carried out.
    Settled,
    /// Set the mark, or take it away.
    Mark(bool),
    /// Write the state.
    Become(QueueState),
    /// The order can not be carried out; without it nothing is wrong.
    Refuse(CommandRefusal),
}

/// What to do next about a queue, and about the oldest order that it was given. To be asked again after each step: the
/// mark comes before the state that it explains, so that whoever stops between both goes on in the right direction.
#[must_use]
pub fn decide_state_step(view: StateView, order: Option<QueueCommand>) -> StateStep {
    use QueueState::{Closed, Closing, Open, Unknown};

    let shut = if view.busy { Closing } else { Closed };
    match (view.above, order) {
        (ParentState::Nothing, Some(QueueCommand::Close)) => return StateStep::Refuse(CommandRefusal::Root),
        (ParentState::Nothing, _) if view.said.is_shut() => return StateStep::Become(Open),
        (ParentState::Shut, Some(QueueCommand::Open)) => return StateStep::Refuse(CommandRefusal::ParentShut),
        (ParentState::Shut, _) if !view.said.is_shut() => {
            return if view.marked { StateStep::Become(shut) } else { StateStep::Mark(true) };
        }
        _ => {}
    }
    match (view.said, order) {
        (ReportedState::State(Open), None | Some(QueueCommand::Open)) => unmark_first_or(view, StateStep::Settled),
        (_, Some(QueueCommand::Open)) | (ReportedState::Nothing, None) => StateStep::Become(Open),
        (ReportedState::State(Closing | Closed), _)
            if view.marked && view.above == ParentState::Open && order.is_none() =>
        {
            StateStep::Become(Open)
        }
        (ReportedState::State(state @ (Closing | Closed)), _) if state == shut => StateStep::Settled,
        (ReportedState::State(Closing | Closed), _) => StateStep::Become(shut),
        // Closed by an order, not by its parent.
        (_, Some(QueueCommand::Close)) => unmark_first_or(view, StateStep::Become(shut)),
        (ReportedState::State(Unknown), None) => StateStep::Settled,
        (ReportedState::Nonsense, None) => StateStep::Become(Unknown),
    }
}

fn unmark_first_or(view: StateView, step: StateStep) -> StateStep {
    if view.marked { StateStep::Mark(false) } else { step }
}

#[cfg(test)]
mod tests;
