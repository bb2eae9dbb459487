//! The search: breadth first through all states, each kept whole, so that a trace is the shortest one and nothing is
//! taken for known because its hash is. Then backwards from the good ends, to find states from which none can be
//! reached.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt::Write,
    hash::{BuildHasherDefault, Hasher},
    time::{Duration, Instant},
};

use crate::{
    model::{Action, Model, count_granted, find_violation, is_good_end},
    state::{LIMIT, State},
};

/// A hash that is quick and good enough: states are compared whole.
#[derive(Default)]
struct QuickHasher(u64);

impl Hasher for QuickHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value.cast_unsigned() as u64);
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

/// A way from the beginning to a state, with what is wrong there.
#[derive(Debug)]
pub struct Trace {
    /// What is wrong.
    pub wrong: &'static str,
    /// What happened, and what it came to.
    pub steps: Vec<(Action, State)>,
}

/// What was found.
#[derive(Debug)]
pub struct Explored {
    /// States that can be reached.
    pub states: usize,
    /// Steps between them.
    pub steps: usize,
    /// Steps to the farthest of them.
    pub depth: u32,
    /// States where records grant more than the limit, which the contract allows.
    pub over_granted: usize,
    /// States that are good ends.
    pub good_ends: usize,
    /// How long it took.
    pub took: Duration,
    /// The shortest way to something that must never be.
    pub violation: Option<Trace>,
    /// The shortest way to a state from which no good end can be reached, unless more goes wrong.
    pub stuck: Option<Trace>,
    /// The same, for records that stay beyond the limit for as long as jobs run.
    pub unsettled: Option<Trace>,
}

/// What is kept of a state.
struct Node {
    parent: u32,
    depth: u32,
    by: Option<Action>,
    is_end: bool,
    is_within: bool,
}

/// A step that happens some time if nothing more goes wrong.
struct Step {
    from: u32,
    to: u32,
    ends_job: bool,
}

/// Goes through all states. Stops at the first thing that must never be.
pub fn explore(model: &Model) -> Explored {
    let began = Instant::now();
    let mut known: HashMap<State, u32, BuildHasherDefault<QuickHasher>> = HashMap::default();
    let (mut nodes, mut quiet, mut steps): (Vec<Node>, Vec<Step>, usize) = (Vec::new(), Vec::new(), 0);
    let mut layer = vec![model.begin()];
    let add = |nodes: &mut Vec<Node>, state: &State, parent: u32, depth: u32, by: Option<Action>| {
        let (is_end, is_within) = (is_good_end(state), count_granted(state) <= LIMIT);
        nodes.push(Node { parent, depth, by, is_end, is_within });
    };
    add(&mut nodes, &layer[0], 0, 0, None);
    known.insert(layer[0].clone(), 0);
    let mut violation = None;
    let mut depth = 0;
    'search: while !layer.is_empty() {
        let mut next_layer = Vec::new();
        for state in &layer {
            let from = known[state];
            // What comes after the end is of no interest.
            if nodes[from as usize].is_end {
                continue;
            }
            for action in model.list_actions(state) {
                steps += 1;
                let next = model.apply(state, action);
                let fresh = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
                let to = match known.entry(next) {
                    Entry::Occupied(entry) => *entry.get(),
                    Entry::Vacant(entry) => {
                        add(&mut nodes, entry.key(), from, depth + 1, Some(action));
                        next_layer.push(entry.key().clone());
                        violation = find_violation(entry.key()).map(|wrong| (wrong, fresh));
                        *entry.insert(fresh)
                    }
                };
                if violation.is_some() {
                    break 'search;
                }
                if !action.is_trouble() && from != to {
                    quiet.push(Step { from, to, ends_job: matches!(action, Action::EndJob(_)) });
                }
            }
        }
        layer = next_layer;
        depth += 1;
    }
    let trace_to = |wrong, at| Trace { wrong, steps: replay(model, &nodes, at) };
    let (mut stuck, mut unsettled) = (None, None);
    if violation.is_none() {
        let lost = find_lost(&nodes, &quiet, |node| node.is_end, |_| true);
        stuck = lost.map(|at| trace_to("the good end can not be reached any more", at));
        let lost = find_lost(&nodes, &quiet, |node| node.is_within, |step| !step.ends_job);
        unsettled = lost.map(|at| trace_to("records stay beyond the limit", at));
    }
    Explored {
        states: nodes.len(),
        steps,
        depth: nodes.iter().map(|node| node.depth).max().unwrap_or(0),
        over_granted: nodes.iter().filter(|node| !node.is_within).count(),
        good_ends: nodes.iter().filter(|node| node.is_end).count(),
        violation: violation.map(|(wrong, at)| trace_to(wrong, at)),
        stuck,
        unsettled,
        took: began.elapsed(),
    }
}

/// The first state from which no goal can be reached by these steps: all others are found backwards from the goals.
fn find_lost(
    nodes: &[Node],
    steps: &[Step],
    is_goal: impl Fn(&Node) -> bool,
    counts: impl Fn(&Step) -> bool,
) -> Option<u32> {
    // The steps into a state stand together: those of state `at` begin at `begins[at]`.
    let mut begins = vec![0_u32; nodes.len() + 1];
    steps.iter().filter(|step| counts(step)).for_each(|step| begins[step.to as usize + 1] += 1);
    (0..nodes.len()).for_each(|at| begins[at + 1] += begins[at]);
    let mut free = begins.clone();
    let mut sources = vec![0_u32; begins[nodes.len()] as usize];
    for step in steps.iter().filter(|step| counts(step)) {
        sources[free[step.to as usize] as usize] = step.from;
        free[step.to as usize] += 1;
    }
    let mut reaches: Vec<bool> = nodes.iter().map(is_goal).collect();
    let mut open: Vec<usize> = (0..nodes.len()).filter(|at| reaches[*at]).collect();
    while let Some(at) = open.pop() {
        for from in &sources[begins[at] as usize..begins[at + 1] as usize] {
            if !std::mem::replace(&mut reaches[*from as usize], true) {
                open.push(*from as usize);
            }
        }
    }
    reaches.iter().position(|reaches| !reaches).and_then(|at| u32::try_from(at).ok())
}

fn replay(model: &Model, nodes: &[Node], at: u32) -> Vec<(Action, State)> {
    let way = std::iter::successors(Some(at), |at| Some(nodes[*at as usize].parent).filter(|_| *at != 0));
    let mut actions: Vec<Action> = way.filter_map(|at| nodes[at as usize].by).collect();
    actions.reverse();
    let mut state = model.begin();
    let mut steps = Vec::new();
    for action in actions {
        state = model.apply(&state, action);
        steps.push((action, state.clone()));
    }
    steps
}

impl Trace {
    /// One line for each step: what happened, and what is stored then.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (at, (action, state)) in self.steps.iter().enumerate() {
            let _ = writeln!(text, "{:>3} {:<70} {}", at + 1, describe_action(*action), describe_stored(state));
        }
        let _ = writeln!(text, "    {}", self.wrong);
        text
    }
}

fn describe_action(action: Action) -> String {
    match action {
        Action::ExecuteWrite(message) => format!("ExecuteWrite({})", describe_message(message)),
        Action::FollowAnswer(message) => format!("FollowAnswer({})", describe_message(message)),
        Action::LoseAnswer(message) => format!("LoseAnswer({})", describe_message(message)),
        other => format!("{other:?}"),
    }
}

fn describe_message(message: crate::state::Message) -> String {
    use crate::state::{Answer, Process, Write};
    let from = match message.from {
        None => "of a process that is gone".to_owned(),
        Some(Process::Controller(who)) => format!("controller {who}"),
        Some(Process::Scheduler(who)) => format!("scheduler {who}"),
    };
    let write = match message.write {
        Write::Grant(grant) => format!("grant {}", describe_epoch(grant.epoch)),
        Write::Evict => "evict".to_owned(),
        Write::Place(pods) => format!("place {pods}"),
    };
    let answer = match message.answer {
        None => "",
        Some(Answer::Stored(_)) => ": stored",
        Some(Answer::Conflict) => ": conflict",
    };
    format!("{from}, {write}, job {}, tests v{}{answer}", message.job, message.version)
}

fn describe_epoch(epoch: Option<crate::state::Epoch>) -> String {
    epoch.map_or("without an epoch".to_owned(), |epoch| format!("{}.{}", epoch.term, epoch.identity))
}

fn describe_stored(state: &State) -> String {
    let lease = match state.lease {
        None => "no lease".to_owned(),
        Some(lease) if lease.holder == crate::state::NOBODY => format!("lease {}.", lease.term),
        Some(lease) => format!("lease {}", describe_epoch(Some(lease.epoch()))),
    };
    let bindings = state.bindings.iter().enumerate().map(|(job, binding)| {
        let record = binding.record.map_or("waits".to_owned(), |it| format!("granted {}", describe_epoch(it.epoch)));
        let placed = if binding.placed > 0 { format!(", {} placed", binding.placed) } else { String::new() };
        let ended = if state.ended[job] { ", ended" } else { "" };
        format!("job {job} v{} {record}{placed}{ended}", binding.version)
    });
    std::iter::once(lease).chain(bindings).collect::<Vec<_>>().join(" | ")
}
