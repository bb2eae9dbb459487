//! Volcano's state machine, row by row, and what must hold whatever comes.

use proptest::prelude::*;

use super::{Above, Order, Refusal, Said, Step, View, next};
use crate::queue::QueueState::{self, Closed, Closing, Open, Unknown};

const CLOSE: Option<Order> = Some(Order::Close);
const OPEN: Option<Order> = Some(Order::Open);

fn view(state: &str) -> View {
    View { said: Said::read(state), busy: false, marked: false, above: Above::Open }
}

fn busy(state: &str) -> View {
    View { busy: true, ..view(state) }
}

fn below_shut(state: &str) -> View {
    View { above: Above::Shut, ..view(state) }
}

fn marked(view: View) -> View {
    View { marked: true, ..view }
}

#[test]
fn no_state_becomes_open_and_open_stays() {
    for above in [Above::Open, Above::Unclear, Above::Nothing] {
        for busy in [false, true] {
            assert_eq!(next(View { above, busy, ..view("") }, None), Step::Become(Open));
            assert_eq!(next(View { above, busy, ..view("Open") }, None), Step::Settled);
        }
    }
}

#[test]
fn close_queue_is_closing_while_something_runs_and_closed_otherwise() {
    for state in ["", "Open", "Unknown", "rubbish"] {
        assert_eq!(next(view(state), CLOSE), Step::Become(Closed), "{state}");
        assert_eq!(next(busy(state), CLOSE), Step::Become(Closing), "{state}");
    }
    for (state, view) in [("Closed", view("Closed")), ("Closing", busy("Closing"))] {
        assert_eq!(next(view, CLOSE), Step::Settled, "{state}");
    }
}

#[test]
fn closing_becomes_closed_when_nothing_runs_any_more() {
    assert_eq!(next(busy("Closing"), None), Step::Settled);
    assert_eq!(next(view("Closing"), None), Step::Become(Closed));
    assert_eq!(next(view("Closing"), CLOSE), Step::Become(Closed));
}

#[test]
fn open_queue_opens_what_is_closed() {
    for state in ["", "Closed", "Closing", "Unknown", "rubbish"] {
        assert_eq!(next(view(state), OPEN), Step::Become(Open), "{state}");
        assert_eq!(next(busy(state), OPEN), Step::Become(Open), "{state}");
    }
    assert_eq!(next(view("Open"), OPEN), Step::Settled);
}

#[test]
fn open_queue_below_a_closed_parent_is_refused() {
    for state in ["", "Open", "Closed", "Closing", "Unknown"] {
        assert_eq!(next(below_shut(state), OPEN), Step::Refuse(Refusal::ParentShut), "{state}");
    }
}

#[test]
fn a_state_edited_to_closed_while_jobs_run_is_closing() {
    assert_eq!(next(busy("Closed"), None), Step::Become(Closing));
    assert_eq!(next(view("Closed"), None), Step::Settled);
}

#[test]
fn any_other_state_is_unknown_until_somebody_decides() {
    assert_eq!(next(view("rubbish"), None), Step::Become(Unknown));
    assert_eq!(next(view("Unknown"), None), Step::Settled);
    assert_eq!(Said::read("rubbish").state(), Unknown);
    assert_eq!(Said::read("").state(), Open);
}

#[test]
fn a_child_is_marked_and_closed_with_its_parent_also_when_it_is_new() {
    for state in ["", "Open", "Unknown", "rubbish"] {
        assert_eq!(next(below_shut(state), None), Step::Mark(true), "{state}");
        assert_eq!(next(marked(below_shut(state)), None), Step::Become(Closed), "{state}");
        assert_eq!(next(View { busy: true, ..marked(below_shut(state)) }, None), Step::Become(Closing), "{state}");
    }
    assert_eq!(next(marked(below_shut("Closed")), None), Step::Settled);
}

#[test]
fn a_child_that_was_closed_before_is_not_marked_and_stays_closed_when_its_parent_opens() {
    assert_eq!(next(below_shut("Closed"), None), Step::Settled);
    assert_eq!(next(view("Closed"), None), Step::Settled);
}

#[test]
fn a_marked_child_opens_with_its_parent_and_then_loses_the_mark() {
    assert_eq!(next(marked(view("Closed")), None), Step::Become(Open));
    assert_eq!(next(marked(busy("Closing")), None), Step::Become(Open));
    assert_eq!(next(marked(view("Open")), None), Step::Mark(false));
    // Not while nobody knows whether the parent is open.
    assert_eq!(next(View { above: Above::Unclear, ..marked(view("Closed")) }, None), Step::Settled);
}

#[test]
fn a_mark_that_was_left_behind_does_not_undo_an_order_to_close() {
    assert_eq!(next(marked(view("Open")), CLOSE), Step::Mark(false));
}

#[test]
fn the_root_can_not_be_closed() {
    let root = |state| View { above: Above::Nothing, ..view(state) };
    assert_eq!(next(root("Open"), CLOSE), Step::Refuse(Refusal::Root));
    for state in ["Closed", "Closing"] {
        assert_eq!(next(root(state), None), Step::Become(Open), "{state}");
    }
}

/// A tree of queues under [`next`]: what is written is done at once.
#[derive(Debug, Clone)]
struct Tree(Vec<(Option<usize>, View)>);

impl Tree {
    fn above(&self, i: usize) -> Above {
        match self.0[i].0 {
            None => Above::Open,
            Some(parent) => Above::by(self.0[parent].1.said),
        }
    }

    /// One step of one queue; whether there was any.
    fn step(&mut self, i: usize, order: Option<Order>) -> bool {
        let above = self.above(i);
        let view = &mut self.0[i].1;
        view.above = above;
        match next(*view, order) {
            Step::Settled | Step::Refuse(_) => return false,
            Step::Mark(mark) => view.marked = mark,
            Step::Become(state) => view.said = Said::State(state),
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
        let queues: Vec<(Option<usize>, View)> = queues
            .into_iter()
            .enumerate()
            .map(|(i, (parent, top, said, busy, marked))| {
                let parent = (!top && i > 0).then(|| parent.index(i));
                (parent, View { busy, marked, ..view(said) })
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
            let state = view.said.state();
            prop_assert!(view.said != Said::Nothing && view.said != Said::Nonsense);
            if tree.above(i) == Above::Shut {
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
        let states = |tree: &Tree| -> Vec<QueueState> { tree.0.iter().map(|(_, view)| view.said.state()).collect() };
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
