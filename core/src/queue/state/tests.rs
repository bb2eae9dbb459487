//! Volcano's state machine, row by row, and what must hold whatever comes.

use proptest::prelude::*;

use crate::queue::{
    QueueState::{self, Closed, Closing, Open, Unknown},
    state::{CommandRefusal, ParentState, QueueCommand, ReportedState, StateStep, StateView, decide_state_step},
};

const CLOSE: Option<QueueCommand> = Some(QueueCommand::Close);
const OPEN: Option<QueueCommand> = Some(QueueCommand::Open);

fn view(state: &str) -> StateView {
    StateView { said: ReportedState::read(state), busy: false, marked: false, above: ParentState::Open }
}

fn busy(state: &str) -> StateView {
    StateView { busy: true, ..view(state) }
}

fn below_shut(state: &str) -> StateView {
    StateView { above: ParentState::Shut, ..view(state) }
}

fn marked(view: StateView) -> StateView {
    StateView { marked: true, ..view }
}

#[test]
fn no_state_becomes_open_and_open_stays() {
    for above in [ParentState::Open, ParentState::Unclear, ParentState::Nothing] {
        for busy in [false, true] {
            assert_eq!(decide_state_step(StateView { above, busy, ..view("") }, None), StateStep::Become(Open));
            assert_eq!(decide_state_step(StateView { above, busy, ..view("Open") }, None), StateStep::Settled);
        }
    }
}

#[test]
fn close_queue_is_closing_while_something_runs_and_closed_otherwise() {
    for state in ["", "Open", "Unknown", "rubbish"] {
        assert_eq!(decide_state_step(view(state), CLOSE), StateStep::Become(Closed), "{state}");
        assert_eq!(decide_state_step(busy(state), CLOSE), StateStep::Become(Closing), "{state}");
    }
    for (state, view) in [("Closed", view("Closed")), ("Closing", busy("Closing"))] {
        assert_eq!(decide_state_step(view, CLOSE), StateStep::Settled, "{state}");
    }
}

#[test]
fn closing_becomes_closed_when_nothing_runs_any_more() {
    assert_eq!(decide_state_step(busy("Closing"), None), StateStep::Settled);
    assert_eq!(decide_state_step(view("Closing"), None), StateStep::Become(Closed));
    assert_eq!(decide_state_step(view("Closing"), CLOSE), StateStep::Become(Closed));
}

#[test]
fn open_queue_opens_what_is_closed() {
    for state in ["", "Closed", "Closing", "Unknown", "rubbish"] {
        assert_eq!(decide_state_step(view(state), OPEN), StateStep::Become(Open), "{state}");
        assert_eq!(decide_state_step(busy(state), OPEN), StateStep::Become(Open), "{state}");
    }
    assert_eq!(decide_state_step(view("Open"), OPEN), StateStep::Settled);
}

#[test]
fn open_queue_below_a_closed_parent_is_refused() {
    for state in ["", "Open", "Closed", "Closing", "Unknown"] {
        assert_eq!(
            decide_state_step(below_shut(state), OPEN),
            StateStep::Refuse(CommandRefusal::ParentShut),
            "{state}"
        );
    }
}

#[test]
fn a_state_edited_to_closed_while_jobs_run_is_closing() {
    assert_eq!(decide_state_step(busy("Closed"), None), StateStep::Become(Closing));
    assert_eq!(decide_state_step(view("Closed"), None), StateStep::Settled);
}

#[test]
fn any_other_state_is_unknown_until_somebody_decides() {
    assert_eq!(decide_state_step(view("rubbish"), None), StateStep::Become(Unknown));
    assert_eq!(decide_state_step(view("Unknown"), None), StateStep::Settled);
    assert_eq!(ReportedState::read("rubbish").effective_state(), Unknown);
    assert_eq!(ReportedState::read("").effective_state(), Open);
}

#[test]
fn a_child_is_marked_and_closed_with_its_parent_also_when_it_is_new() {
    for state in ["", "Open", "Unknown", "rubbish"] {
        assert_eq!(decide_state_step(below_shut(state), None), StateStep::Mark(true), "{state}");
        assert_eq!(decide_state_step(marked(below_shut(state)), None), StateStep::Become(Closed), "{state}");
        assert_eq!(
            decide_state_step(StateView { busy: true, ..marked(below_shut(state)) }, None),
            StateStep::Become(Closing),
            "{state}"
        );
    }
    assert_eq!(decide_state_step(marked(below_shut("Closed")), None), StateStep::Settled);
}

#[test]
fn a_child_that_was_closed_before_is_not_marked_and_stays_closed_when_its_parent_opens() {
    assert_eq!(decide_state_step(below_shut("Closed"), None), StateStep::Settled);
    assert_eq!(decide_state_step(view("Closed"), None), StateStep::Settled);
}

#[test]
fn a_marked_child_opens_with_its_parent_and_then_loses_the_mark() {
    assert_eq!(decide_state_step(marked(view("Closed")), None), StateStep::Become(Open));
    assert_eq!(decide_state_step(marked(busy("Closing")), None), StateStep::Become(Open));
    assert_eq!(decide_state_step(marked(view("Open")), None), StateStep::Mark(false));
    // Not while nobody knows whether the parent is open.
    assert_eq!(
        decide_state_step(StateView { above: ParentState::Unclear, ..marked(view("Closed")) }, None),
        StateStep::Settled
    );
}

#[test]
fn a_mark_that_was_left_behind_does_not_undo_an_order_to_close() {
    assert_eq!(decide_state_step(marked(view("Open")), CLOSE), StateStep::Mark(false));
}

#[test]
fn the_root_can_not_be_closed() {
    let root = |state| StateView { above: ParentState::Nothing, ..view(state) };
    assert_eq!(decide_state_step(root("Open"), CLOSE), StateStep::Refuse(CommandRefusal::Root));
    for state in ["Closed", "Closing"] {
        assert_eq!(decide_state_step(root(state), None), StateStep::Become(Open), "{state}");
    }
}

/// A tree of queues under [`next`]: what is written is done at once.
#[derive(Debug, Clone)]
struct Tree(Vec<(Option<usize>, StateView)>);

impl Tree {
    fn above(&self, i: usize) -> ParentState {
        match self.0[i].0 {
            None => ParentState::Open,
            Some(parent) => ParentState::from_parent(self.0[parent].1.said),
        }
    }

    /// One step of one queue; whether there was any.
    fn step(&mut self, i: usize, order: Option<QueueCommand>) -> bool {
        let above = self.above(i);
        let view = &mut self.0[i].1;
        view.above = above;
        match decide_state_step(*view, order) {
            StateStep::Settled | StateStep::Refuse(_) => return false,
            StateStep::Mark(mark) => view.marked = mark,
            StateStep::Become(state) => view.said = ReportedState::State(state),
        }
        true
    }

    /// In the order of `turns`, round and round; how many steps it took.
    fn settle(&mut self, turns: &[usize]) -> usize {
        let mut steps = 0;
        loop {
            let before = steps;
            for i in turns {
                steps += usize::from(self.step(*i, None));
            }
            if steps == before {
                return steps;
            }
            assert!(steps < 1000, "without end: {self:?}");
        }
    }
}

fn tree() -> impl Strategy<Value = (Tree, Vec<usize>)> {
    let said = prop::sample::select(vec!["", "Open", "Closing", "Closed", "Unknown", "rubbish"]);
    let queue = (any::<prop::sample::Index>(), any::<bool>(), said, any::<bool>(), any::<bool>());
    prop::collection::vec(queue, 1..8).prop_flat_map(|queues| {
        let queues: Vec<(Option<usize>, StateView)> = queues
            .into_iter()
            .enumerate()
            .map(|(i, (parent, top, said, busy, marked))| {
                let parent = (!top && i > 0).then(|| parent.index(i));
                (parent, StateView { busy, marked, ..view(said) })
            })
            .collect();
        let turns: Vec<usize> = (0..queues.len()).collect();
        (Just(Tree(queues)), Just(turns).prop_shuffle())
    })
}

proptest! {
    /// Whatever there is, in whatever order the queues are looked at: it comes to rest, nothing open is left below
    /// something closed, only what is busy is Closing, and only what was closed by its parent bears the mark.
    #[test]
    fn a_tree_comes_to_rest((mut tree, turns) in tree()) {
        let steps = tree.settle(&turns);
        prop_assert!(steps <= 12 * turns.len(), "{} steps", steps);
        for i in 0..turns.len() {
            let view = tree.0[i].1;
            let state = view.said.effective_state();
            prop_assert!(view.said != ReportedState::Nothing && view.said != ReportedState::Nonsense);
            if tree.above(i) == ParentState::Shut {
                prop_assert!(view.said.is_shut());
            }
            prop_assert_eq!(state == Closing, view.said.is_shut() && view.busy);
            prop_assert!(!(view.marked && state == Open));
        }
    }

    /// Closing a queue and opening it again leaves everything as it was, whatever is below; whoever is asked twice says
    /// the same.
    #[test]
    fn opening_undoes_closing((mut tree, turns) in tree()) {
        tree.settle(&turns);
        let states = |tree: &Tree| -> Vec<QueueState> { tree.0.iter().map(|(_, view)| view.said.effective_state()).collect() };
        let before = states(&tree);
        if before[0] != Open || before.contains(&Unknown) {
            return Ok(());
        }
        for order in [CLOSE, OPEN] {
            while tree.step(0, order) {}
            tree.settle(&turns);
            prop_assert_eq!(tree.0[0].1.said.is_shut(), order == CLOSE);
            prop_assert!(!tree.step(0, order), "carried out twice");
        }
        prop_assert_eq!(states(&tree), before);
    }
}
