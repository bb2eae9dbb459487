//! Gangs whose clusters are too far apart, by hand.

use super::*;
use crate::{
    queue::preemption::{RunningJob, tests::candidate},
    resources::Resources,
};

const NOW: i64 = 100_000;

fn at(seconds: i64) -> EpochSeconds {
    EpochSeconds::new(seconds)
}

/// It has run for so many seconds, and has so many left.
fn gang(name: &str, ran: i64, left: Option<i64>) -> DistantGang {
    let job = RunningJob { preemptable: Some(true), ..candidate(name, "q", NOW - ran, Resources::new()) };
    let asks = ["m1", "m2"].map(|name| (name.to_owned(), Resources::new())).into();
    let placed = PlacedJob { job, asks, moved_at: None, avoid: BTreeSet::new() };
    let broken = BrokenLink { from: "m1".into(), to: "m2".into(), why: "is slow".into() };
    DistantGang { placed, broken, ends: left.map(|left| at(NOW + left)) }
}

fn policy() -> LoadPolicy {
    LoadPolicy { links: true, samples: 2, moves: 2, ..LoadPolicy::default() }
}

/// Who leaves after so many rounds. There is a place for all in m3 but for those named `large`.
fn plan_after(rounds: u32, policy: &LoadPolicy, gangs: &[DistantGang]) -> Vec<JobMove> {
    let mut history = LinkHistory::default();
    (0..rounds).for_each(|_| history.observe_round(gangs));
    let open = ["m1", "m2", "m3"].map(String::from).into();
    let rules = (policy, &PreemptionPolicy::default());
    plan_link_moves(rules, &mut history, gangs, &open, at(NOW), |_, id, open| {
        (open.contains("m3") && id.as_str() != "large").then(|| [("m3".to_owned(), 4)].into())
    })
}

fn names(moves: &[JobMove]) -> Vec<&str> {
    moves.iter().map(|one| one.id.as_str()).collect()
}

#[test]
fn a_gang_leaves_once_its_clusters_were_too_far_apart_for_long_enough() {
    let gangs = [gang("a", 60, Some(3_600))];
    assert!(plan_after(1, &policy(), &gangs).is_empty());
    let moves = plan_after(2, &policy(), &gangs);
    assert_eq!(moves[0].why, "the link of clusters m1 and m2 is slow; there is room in m3");
    assert_eq!((moves[0].from.len(), moves[0].to.len(), moves[0].receivers.len()), (2, 1, 3));
}

#[test]
fn a_link_that_is_good_again_counts_anew() {
    let gangs = [gang("a", 60, Some(3_600))];
    let mut history = LinkHistory::default();
    for round in [&gangs[..], &[], &gangs[..]] {
        history.observe_round(round);
    }
    assert_eq!(history.0[&JobId::from("a")], 1);
}

#[test]
fn whoever_would_lose_more_than_is_left_stays_and_so_does_who_says_no_end() {
    let gangs = [gang("young", 599, Some(1_000)), gang("old", 1_000, Some(1_000)), gang("endless", 60, None)];
    assert_eq!(names(&plan_after(2, &policy(), &gangs)), ["young"]);
}

#[test]
fn who_gains_most_goes_first_and_no_more_than_the_budget() {
    let gangs = [
        gang("a", 600, Some(900)),
        gang("large", 600, Some(9_000)),
        gang("b", 600, Some(4_000)),
        gang("c", 600, Some(2_000)),
    ];
    assert_eq!(names(&plan_after(2, &policy(), &gangs)), ["b", "c"]);
}

/// Sixteen that fit nowhere would be all that is ever asked about.
#[test]
fn who_found_no_place_leaves_the_turn_to_others() {
    let mut gangs: Vec<DistantGang> = (0..MOST_CANDIDATES).map(|_| gang("large", 60, Some(90_000))).collect();
    for (i, gang) in gangs.iter_mut().enumerate() {
        gang.placed.job.id = format!("large{i}").as_str().into();
    }
    gangs.push(gang("honest", 60, Some(3_600)));
    let (mut history, policy) = (LinkHistory::default(), policy());
    let rules = (&policy, &PreemptionPolicy::default());
    let mut round = || {
        history.observe_round(&gangs);
        let find = |_: &[&JobId], id: &JobId, _: &BTreeSet<String>| {
            (id.as_str() == "honest").then(|| [("m3".to_owned(), 4)].into())
        };
        names(&plan_link_moves(rules, &mut history, &gangs, &BTreeSet::new(), at(NOW), find)).len()
    };
    assert_eq!([round(), round(), round()], [0, 0, 1]);
}

#[test]
fn who_may_not_be_evicted_or_was_moved_before_stays() {
    let change = |change: fn(&mut DistantGang)| {
        let mut one = gang("a", 60, Some(3_600));
        change(&mut one);
        plan_after(2, &policy(), &[one]).is_empty()
    };
    assert!(!change(|_| {}));
    assert!(change(|gang| gang.placed.job.preemptable = Some(false)));
    assert!(change(|gang| gang.placed.moved_at = Some(at(0))), "however long ago that was");
    assert!(change(|gang| gang.placed.job.ours = false));
}

#[test]
fn who_saves_its_work_leaves_late_in_its_run_too() {
    let mut late = gang("late", 7_200, Some(3_600));
    assert!(plan_after(2, &policy(), &[late.clone()]).is_empty(), "it would lose twice what is left");
    late.placed.job.checkpoint_interval = Some(1_800);
    assert_eq!(names(&plan_after(2, &policy(), &[late.clone()])), ["late"]);
    late.placed.job.checkpoint_interval = Some(3_600);
    assert!(plan_after(2, &policy(), &[late]).is_empty(), "as much as is left");
}
