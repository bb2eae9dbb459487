//! What jobs hold in members that nobody can see into: those that are not ready.
//!
//! Rule: nothing starts there, and what was placed there goes on holding its quota until it ends, as the controller has
//! it until the member is given up (`--member-lost-after`). Nobody sees its pods: it holds what it asks for, less what
//! is seen of it in other members.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use caldera_core::{inventory::Node, live_job::LiveJob};

use super::Member;
use crate::world::Hold;

/// The node that stands for all nodes of such a member. It takes nothing new.
const UNSEEN: &str = "unseen";

/// Adds what placed jobs hold in members that are not ready to what they hold elsewhere: by job, and by member and
/// node.
pub(super) fn hold_in_lost_members(
    members: &mut [Member],
    jobs: &[LiveJob],
    holds: &mut HashMap<usize, BTreeMap<(usize, Arc<str>), Hold>>,
) {
    let is_lost = |member: &Member| !member.cluster.ready && member.nodes.is_empty();
    let lost = members.iter().enumerate().filter(|(_, member)| is_lost(member));
    let lost: HashMap<String, usize> = lost.map(|(index, member)| (member.cluster.name.clone(), index)).collect();
    for (index, job) in jobs.iter().enumerate().filter(|(_, job)| job.placed && !lost.is_empty()) {
        let Some(cluster) = job.binding.previous.iter().find_map(|target| lost.get(&target.cluster)) else { continue };
        let held = holds.entry(index).or_default();
        let mut amount = job.gang.sum_full_demand();
        held.values().for_each(|hold| amount.saturating_sub(&hold.amount));
        let node: Arc<str> = UNSEEN.into();
        held.insert((*cluster, Arc::clone(&node)), Hold { cluster: *cluster, node, amount: amount.clone() });
        let nodes = &mut members[*cluster].nodes;
        if nodes.is_empty() {
            nodes.push(Node { name: UNSEEN.to_owned(), ..Node::default() });
        }
        nodes[0].allocatable.add(&amount);
    }
}

#[cfg(test)]
mod tests {
    use caldera_core::{
        place::{self, Target},
        queue::QueueSpec,
        time::EpochSeconds,
    };

    use super::*;
    use crate::{
        live::{
            State,
            tests::{cpu, job},
        },
        policy::PolicyName,
        run::{Options, simulate},
        time::Millis,
        world::{node, ready_cluster},
    };

    /// `runs` holds four of the queue's six cores in a member that is not ready, for 40 s more. `waits` needs four, for
    /// which the other member has capacity: it starts when `runs` has ended, and not before.
    #[test]
    fn what_runs_in_a_member_that_is_not_ready_holds_its_quota_and_nothing_starts_there() {
        let mut lost = Member { cluster: ready_cluster("lost"), ..Member::default() };
        lost.cluster.ready = false;
        let there =
            Member { cluster: ready_cluster("there"), nodes: vec![node("n".to_owned(), cpu(8))], ..Member::default() };
        let mut runs = job("runs", 1_000, 2, true, Some(150));
        let previous = vec![Target { cluster: "lost".to_owned(), replicas: 2 }];
        runs.binding = Arc::new(place::Binding { previous, ..place::Binding::clone(&runs.binding) });
        let jobs = vec![runs, job("waits", 1_070, 2, false, Some(60)), job("too-large", 1_080, 5, false, None)];
        let mut queue = QueueSpec::unlimited("q");
        queue.capability.set("cpu", cpu(6).get("cpu"));
        let other = QueueSpec::unlimited("other");
        let mut state = State {
            now: EpochSeconds::new(1_120),
            members: vec![lost, there],
            queues: vec![queue, other],
            jobs,
            ..State::default()
        };
        state.jobs[2].queue = "other".into();
        let (world, _) = crate::live::world(&state, Millis::from_secs(600)).unwrap();
        let outcome = simulate(&world, PolicyName::Caldera.start(&world).as_mut(), &Options::default());
        let [runs, waits, too_large] = outcome.jobs.as_slice() else { panic!("{outcome:?}") };
        assert_eq!((runs.resumed, runs.ended), (true, Some(Millis::from_secs(160))));
        assert_eq!(waits.started, Some(Millis::from_secs(160)));
        assert_eq!(too_large.started, None, "ten cores are nowhere");
    }

    #[test]
    fn who_is_in_members_that_are_ready_holds_what_is_seen() {
        let there = Member { cluster: ready_cluster("there"), ..Member::default() };
        let mut runs = job("runs", 1_000, 2, true, None);
        let previous = vec![Target { cluster: "there".to_owned(), replicas: 2 }];
        runs.binding = Arc::new(place::Binding { previous, ..place::Binding::clone(&runs.binding) });
        let (mut members, mut holds) = ([there], HashMap::new());
        hold_in_lost_members(&mut members, &[runs], &mut holds);
        assert!(holds.is_empty() && members[0].nodes.is_empty());
    }
}
