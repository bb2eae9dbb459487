//! What must travel from a live fleet into a simulation, each with the start that it decides; and what an expected
//! start says of itself.

mod growth;

use std::collections::BTreeMap;

use caldera_core::{
    capacity_reservation::CapacityReservation,
    gang::{Gang, Topology, WorkloadRef},
    inventory::{self, HyperNode, Node, Owner, Pod},
    live_job::LiveJob,
    maintenance::MaintenanceWindow,
    past_runs::PastRuns,
    place::MemberVolcanoQueue,
    quantity::Quantity,
    queue::{OrderPolicy, QueueSpec, RunningLimits, TenantOrder},
    resources::Resources,
    split::{FederationTopology, Link, LinkTier},
    time::EpochSeconds,
};

use super::*;
use crate::{
    live::Member,
    rules::Rules,
    world::{Shapes, gang, node, ready_cluster, task},
};

const NOW: i64 = 10_000;
const ASSUME: Millis = Millis::from_secs(3600);

fn cpu(units: i64) -> Resources {
    [("cpu", Quantity::from_units(units))].into_iter().collect()
}

/// Pods of two cores each.
fn workers(pods: u32) -> Gang {
    gang(vec![task("t", pods, pods, cpu(2))])
}

fn waiting(name: &str, gang: Gang) -> LiveJob {
    let shape = Shapes::default().gang(gang.clone());
    let (namespace, name) = ("ns".to_owned(), name.to_owned());
    LiveJob {
        name: name.as_str().into(),
        workload: WorkloadRef { group: "g".into(), kind: "Job".into(), namespace, name },
        queue: "q".into(),
        priority: 0,
        created: (NOW - 30).into(),
        began: None,
        placed: false,
        run_for: None,
        limit: None,
        gang: Arc::new(gang),
        binding: Arc::new(shape.binding.clone()),
        whole: true,
        submitter: None,
        checkpoint_interval: None,
        preemptable: None,
        best_effort: false,
        never_preempts: false,
        starts_with: None,
    }
}

/// It began a hundred seconds ago.
fn running(name: &str, pods: u32, run_for: Option<i64>) -> LiveJob {
    let (began, created) = (Some(EpochSeconds::new(NOW - 100)), (NOW - 200).into());
    LiveJob { began, created, placed: true, run_for, ..waiting(name, workers(pods)) }
}

fn pods_of(job: &str, count: u32, node: &str) -> Vec<Pod> {
    let pod = |i| Pod {
        namespace: "ns".into(),
        name: format!("{job}-{i}"),
        node: Some(node.into()),
        request: cpu(2),
        finished: false,
        owner: Some(Owner { group: "g".into(), kind: "Job".into(), name: job.into(), task: None }),
    };
    (0..count).map(pod).collect()
}

/// A member whose nodes have so many cores each.
fn member(name: &str, cores: &[i64]) -> Member {
    let nodes: Vec<Node> =
        cores.iter().enumerate().map(|(i, cores)| node(format!("{name}-n{i}"), cpu(*cores))).collect();
    Member { cluster: ready_cluster(name), nodes, ..Member::default() }
}

fn state(members: Vec<Member>, jobs: Vec<LiveJob>) -> State {
    State { now: EpochSeconds::new(NOW), members, queues: vec![QueueSpec::unlimited("q")], jobs, ..State::default() }
}

fn starts(state: &State) -> BTreeMap<String, Option<i64>> {
    let all = expect_starts(state, ASSUME, || true).unwrap();
    all.into_iter().map(|(name, start)| (name.to_string(), instant(start.at))).collect()
}

fn instant(start: StartTime) -> Option<i64> {
    match start {
        StartTime::At(at) => Some(at),
        StartTime::NotBefore(_) | StartTime::Unknown => None,
    }
}

fn start(state: &State, job: &str) -> Option<i64> {
    starts(state)[job]
}

/// Two cores, for which another job waits that says nothing.
fn one_behind_another(said: Option<i64>, past: PastRuns) -> ExpectedStart {
    let member = Member { pods: pods_of("runs", 1, "m-n0"), ..member("m", &[2]) };
    let jobs = vec![running("runs", 1, said), waiting("waits", workers(1))];
    let state = State { past, ..state(vec![member], jobs) };
    expect_starts(&state, ASSUME, || true).unwrap()["waits"]
}

#[test]
fn a_job_ends_after_the_part_of_what_it_says_that_the_last_of_its_queue_took() {
    let mut past = PastRuns::default();
    // One ended sooner than this one that runs for 100 s already.
    [50, 300, 300, 400, 400].iter().for_each(|ran| past.record_run(&"q".into(), *ran, Some(1_000)));
    let found = one_behind_another(Some(1_000), past);
    assert_eq!(found.at, StartTime::At(NOW - 100 + 350));
    let basis = StartBasis { before: 1, corrected: 1, ..StartBasis::default() };
    assert_eq!(found.basis, basis);
    assert!(basis.is_sure());
    assert_eq!(basis.describe(ASSUME), "if the job before it keeps to what it says as the last of its queue did");
    assert_eq!(one_behind_another(Some(1_000), PastRuns::default()).at, StartTime::At(NOW - 100 + 1_000));
}

#[test]
fn a_job_that_says_nothing_is_expected_to_run_as_the_last_of_its_queue_did() {
    let mut past = PastRuns::default();
    [200, 200, 200, 200, 700].iter().for_each(|ran| past.record_run(&"q".into(), *ran, None));
    let found = one_behind_another(None, past);
    assert_eq!(found.at, StartTime::At(NOW - 100 + 300));
    assert_eq!(found.basis, StartBasis { before: 1, as_queue: 1, ..StartBasis::default() });
    assert!(!found.basis.is_sure());
    let said = "the job before it gives no estimate; assumed to run as the last of their queues did";
    assert_eq!(found.basis.describe(ASSUME), said);
    assert_eq!(one_behind_another(None, PastRuns::default()).at, StartTime::At(NOW - 100 + 3_600));
}

/// It runs for a hundred seconds.
#[test]
fn what_ran_for_longer_than_all_of_the_last_is_not_told_to_run_as_they_did() {
    let past = |said: Option<u64>| {
        let mut past = PastRuns::default();
        (0..5).for_each(|_| past.record_run(&"q".into(), 50, said));
        past
    };
    let silent = one_behind_another(None, past(None));
    assert_eq!(silent.at, StartTime::At(NOW + 60));
    assert_eq!(silent.basis, StartBasis { before: 1, overdue: 1, ..StartBasis::default() });
    assert_eq!(silent.basis.describe(ASSUME), "the job before it should have ended by now");
    let said = one_behind_another(Some(1_000), past(Some(1_000)));
    assert_eq!(said.at, StartTime::At(NOW + 900));
    assert_eq!(said.basis, StartBasis { before: 1, ..StartBasis::default() });
    assert_eq!(said.basis.describe(ASSUME), "if the job before it ends as it says");
}

/// In a queue whose jobs may run for a week, they run for five minutes.
#[test]
fn a_limit_is_no_estimate_and_bounds_what_is_expected() {
    let behind = |limit: i64, past: PastRuns| {
        let member = Member { pods: pods_of("runs", 1, "m-n0"), ..member("m", &[2]) };
        let runs = LiveJob { limit: Some(limit), ..running("runs", 1, None) };
        let state = State { past, ..state(vec![member], vec![runs, waiting("waits", workers(1))]) };
        expect_starts(&state, ASSUME, || true).unwrap()["waits"]
    };
    let week = 7 * 24 * 3_600;
    let unknown = behind(week, PastRuns::default());
    assert_eq!(unknown.at, StartTime::At(NOW - 100 + week));
    assert_eq!(unknown.basis, StartBasis { before: 1, to_limit: 1, ..StartBasis::default() });
    assert!(!unknown.basis.is_sure());
    let text = "the job before it gives no estimate; assumed to run for as long as they may";
    assert_eq!(unknown.basis.describe(ASSUME), text);
    let mut past = PastRuns::default();
    (0..5).for_each(|_| past.record_run(&"q".into(), 300, None));
    let known = behind(week, past.clone());
    assert_eq!(known.at, StartTime::At(NOW - 100 + 300));
    assert_eq!(known.basis, StartBasis { before: 1, as_queue: 1, ..StartBasis::default() });
    assert_eq!(behind(200, past).at, StartTime::At(NOW - 100 + 200));
}

#[test]
fn what_jobs_that_wait_say_is_rounded_up_by_an_eighth_at_most() {
    for value in (0..5_000).chain([u64::MAX - 1, u64::MAX, 1 << 63]) {
        let rounded = round_up(value);
        assert!(rounded >= value && rounded - value <= value / 8, "{value}: {rounded}");
    }
    let distinct: std::collections::BTreeSet<u64> = (1_000_000..2_000_000).map(round_up).collect();
    assert!(distinct.len() <= 10, "{distinct:?}");
}

fn hard(gang: Gang, tier: u32) -> Gang {
    Gang { topology: Some(Topology { hard: true, highest_tier: Some(tier), highest_tier_name: None }), ..gang }
}

fn rack(name: &str, node: &str) -> HyperNode {
    let members = vec![inventory::HyperNodeMember::Node(node.to_owned())];
    HyperNode { name: name.to_owned(), tier: 1, tier_name: String::new(), members }
}

#[test]
fn a_start_is_reported_with_how_many_give_no_estimate() {
    let mut member = member("m", &[8]);
    member.pods = [pods_of("said", 2, "m-n0"), pods_of("silent", 2, "m-n0")].concat();
    let jobs = vec![
        running("said", 2, Some(400)),
        running("silent", 2, None),
        waiting("small", workers(2)),
        waiting("zlarge", workers(4)),
    ];
    let state = state(vec![member], jobs);
    let all = expect_starts(&state, ASSUME, || true).unwrap();
    let small = all["small"];
    assert_eq!(small.at, StartTime::At(NOW + 300));
    assert_eq!(small.basis, StartBasis { before: 2, unestimated: 1, ..StartBasis::default() });
    assert_eq!(small.basis.describe(ASSUME), "1 of the 2 jobs before it gives no estimate; assumed 1 h");
    let large = all["zlarge"];
    assert_eq!(large.at, StartTime::At(NOW + 300 + 3600));
    assert_eq!(large.basis, StartBasis { before: 3, unestimated: 2, ..StartBasis::default() });
    assert!(!large.basis.is_sure());
}

#[test]
fn a_start_that_rests_on_estimates_alone_says_so_and_one_that_outran_its_own_is_counted() {
    let of = |run_for| {
        let member = Member { pods: pods_of("runs", 4, "m-n0"), ..member("m", &[8]) };
        let state = state(vec![member], vec![running("runs", 4, Some(run_for)), waiting("waits", workers(4))]);
        expect_starts(&state, ASSUME, || true).unwrap()["waits"]
    };
    let sure = of(150);
    assert_eq!((sure.at, sure.basis.is_sure()), (StartTime::At(NOW + 50), true));
    assert_eq!(sure.basis.describe(ASSUME), "if the job before it ends as it says");
    let late = of(90);
    assert_eq!((late.at, late.basis.overdue), (StartTime::At(NOW + 60), 1));
    assert_eq!(late.basis.describe(ASSUME), "the job before it should have ended by now");
}

#[test]
fn who_would_take_an_amount_that_is_kept_starts_once_its_time_is_over() {
    let with_notice = |notice: i64| {
        let window = MaintenanceWindow {
            start: EpochSeconds::new(NOW + 100),
            end: EpochSeconds::new(NOW + 500),
            notice,
            reason: String::new(),
            node_groups: vec![],
            queues: vec![],
        };
        let kept = CapacityReservation { name: "kept".to_owned(), amounts: cpu(7), window };
        let mut state = state(vec![member("m", &[8])], vec![waiting("waits", workers(1))]);
        state.rules.reservations = vec![kept];
        start(&state, "waits")
    };
    assert_eq!(with_notice(100), Some(NOW + 500));
    assert_eq!(with_notice(50), Some(NOW), "it does not say for how long it runs");
}

#[test]
fn a_gang_of_one_hard_domain_has_no_start_where_no_domain_can_hold_it() {
    let mut there = member("m", &[4, 4]);
    there.hyper_nodes = vec![rack("r0", "m-n0"), rack("r1", "m-n1")];
    let of = |pods| state(vec![there.clone()], vec![waiting("j", hard(workers(pods), 1))]);
    assert_eq!(start(&of(2), "j"), Some(NOW), "a rack holds two pods");
    assert_eq!(start(&of(3), "j"), None, "no rack holds three");
}

#[test]
fn a_gang_of_one_hard_domain_is_bound_within_it() {
    // Tightest first would put a pod on the second rack, and leave none for the next gang.
    let mut there = member("m", &[4, 6]);
    there.hyper_nodes = vec![rack("r0", "m-n0"), rack("r1", "m-n1")];
    let jobs = vec![waiting("a", hard(workers(3), 1)), waiting("b", hard(workers(2), 1))];
    assert!(starts(&state(vec![there], jobs)).values().all(|at| *at == Some(NOW)));
}

#[test]
fn a_gang_that_wants_linked_clusters_follows_the_links() {
    let link = |from: &str, to: &str| FederationTopology {
        tiers: vec![LinkTier { name: "metro".into(), tier: Some(5), ..LinkTier::default() }],
        links: vec![Link { from: vec![from.into()], to: vec![to.into()], latency: 1, bandwidth: 1 }],
    };
    let members = || vec![member("m0", &[4]), member("m1", &[4])];
    let jobs = || vec![waiting("j", hard(workers(4), 5))];
    assert_eq!(start(&state(members(), jobs()), "j"), None, "nothing says that they are close");
    let linked = State { links: link("m0", "m1"), ..state(members(), jobs()) };
    assert_eq!(start(&linked, "j"), Some(NOW));
}

#[test]
fn a_closed_queue_of_a_member_takes_nothing_and_one_with_a_capability_what_is_left() {
    let with = |queue: MemberVolcanoQueue| {
        let mut there = member("m", &[8]);
        there.pods = pods_of("runs", 2, "m-n0");
        there.queues = [("q".to_owned(), queue)].into();
        state(vec![there], vec![running("runs", 2, Some(400)), waiting("waits", workers(2))])
    };
    assert_eq!(start(&with(MemberVolcanoQueue::default()), "waits"), Some(NOW));
    assert_eq!(
        start(&with(MemberVolcanoQueue { state: "Closed".into(), ..MemberVolcanoQueue::default() }), "waits"),
        None
    );
    let mut tight = MemberVolcanoQueue { allocated: cpu(4), ..MemberVolcanoQueue::default() };
    tight.capability.set("cpu", Quantity::from_units(6));
    assert_eq!(start(&with(tight), "waits"), Some(NOW + 300), "when what runs there has ended");
}

#[test]
fn what_the_admin_chose_decides_who_is_first() {
    let mut there = member("m", &[4]);
    there.pods = pods_of("runs", 2, "m-n0");
    let old = LiveJob { created: (NOW - 60).into(), ..waiting("old", workers(2)) };
    let urgent = LiveJob { priority: 10, ..waiting("urgent", workers(2)) };
    let by = |order| {
        let rules = Rules { order, ..Rules::default() };
        let jobs = vec![running("runs", 2, Some(400)), old.clone(), urgent.clone()];
        let all = starts(&State { rules, ..state(vec![there.clone()], jobs) });
        all["old"] < all["urgent"]
    };
    assert!(by(OrderPolicy::Fifo));
    assert!(!by(OrderPolicy::default()));
}

#[test]
fn those_that_start_together_are_told_the_start_of_the_last_of_them() {
    let mut there = member("m", &[6]);
    there.pods = pods_of("runs", 2, "m-n0");
    let with = |starts_with: Option<&str>| {
        let job =
            |name: &str, pods| LiveJob { starts_with: starts_with.map(Into::into), ..waiting(name, workers(pods)) };
        let all = starts(&state(vec![there.clone()], vec![running("runs", 2, Some(400)), job("a", 1), job("b", 2)]));
        ["a", "b"].map(|name| all[name])
    };
    let [first, last] = with(None);
    assert!(first < last, "{first:?} {last:?}");
    assert_eq!(with(Some("a")), [last, last]);
}

#[test]
fn nobody_is_evicted_where_the_admin_said_so() {
    let with = |reclaim: bool| {
        let mut there = member("m", &[8]);
        there.pods = pods_of("borrows", 4, "m-n0");
        let mut lender = QueueSpec::unlimited("lender");
        lender.deserved.set("cpu", Quantity::from_units(4));
        let jobs = vec![
            running("borrows", 4, Some(4000)),
            LiveJob { queue: "lender".into(), created: (NOW - 90).into(), ..waiting("waits", workers(2)) },
        ];
        let mut state = state(vec![there], jobs);
        state.queues.push(lender);
        state.rules.preemption.reclaim = reclaim;
        start(&state, "waits").unwrap()
    };
    assert!(with(true) < NOW + 600, "its queue reclaims what it deserves");
    assert_eq!(with(false), NOW + 3900);
}

#[test]
fn a_job_that_ends_in_time_passes_one_that_waits_for_what_has_said_when_it_ends() {
    let mut there = member("m", &[16]);
    there.pods = pods_of("runs", 3, "m-n0");
    let large = LiveJob { created: (NOW - 600).into(), ..waiting("large", workers(4)) };
    let short = LiveJob { run_for: Some(100), ..waiting("short", workers(1)) };
    let mut state = state(vec![there], vec![running("runs", 3, Some(400)), large, short]);
    state.queues[0].capability.set("cpu", Quantity::from_units(8));
    let all = starts(&state);
    assert_eq!((all["short"], all["large"]), (Some(NOW), Some(NOW + 300)));
}

#[test]
fn a_job_of_a_queue_that_is_not_there_has_no_start_and_spoils_no_other() {
    let lost = LiveJob { queue: "gone".into(), ..waiting("lost", workers(1)) };
    let state = state(vec![member("m", &[8])], vec![lost, waiting("waits", workers(1))]);
    assert_eq!(starts(&state), [("waits".to_owned(), Some(NOW))].into());
}

#[test]
fn a_job_waits_for_those_of_its_namespace_where_a_queue_limits_them() {
    let mut member = member("m", &[8]);
    member.pods = pods_of("runs", 1, "m-n0");
    let mut other = waiting("other", workers(1));
    other.workload.namespace = "elsewhere".to_owned();
    let jobs = vec![running("runs", 1, Some(400)), waiting("waits", workers(1)), other];
    let mut state = state(vec![member], jobs);
    state.queues[0].running = RunningLimits { of_namespace: Some(1), ..RunningLimits::default() };
    assert_eq!((start(&state, "waits"), start(&state, "other")), (Some(NOW + 300), Some(NOW)));
}

#[test]
fn a_job_waits_for_those_of_its_user_where_a_queue_limits_them() {
    let mut member = member("m", &[8]);
    member.pods = pods_of("runs", 1, "m-n0");
    let by = |user: &str, job: LiveJob| LiveJob { submitter: Some(user.into()), ..job };
    let jobs = vec![
        by("ada", running("runs", 1, Some(400))),
        by("ada", waiting("waits", workers(1))),
        by("bob", waiting("other", workers(1))),
        waiting("unknown", workers(1)),
    ];
    let mut state = state(vec![member], jobs);
    state.queues[0].running = RunningLimits { of_user: Some(1), ..RunningLimits::default() };
    let starts = ["waits", "other", "unknown"].map(|name| start(&state, name));
    assert_eq!(starts, [Some(NOW + 300), Some(NOW), Some(NOW)]);
}

#[test]
fn the_user_who_has_less_of_a_queue_is_expected_to_start_first_where_users_take_turns() {
    let mut member = member("m", &[8]);
    member.pods = [pods_of("runs", 2, "m-n0"), pods_of("other", 2, "m-n0")].concat();
    let by = |user: &str, job: LiveJob| LiveJob { submitter: Some(user.into()), ..job };
    let jobs = vec![
        by("ada", running("runs", 2, Some(1_000))),
        by("eve", running("other", 2, Some(400))),
        by("ada", LiveJob { created: (NOW - 50).into(), ..waiting("ada", workers(2)) }),
        by("bob", waiting("bob", workers(2))),
    ];
    let mut state = state(vec![member], jobs);
    state.queues[0].tenant_order = Some(TenantOrder::Users);
    assert_eq!(start(&state, "bob"), Some(NOW + 300));
    state.queues[0].tenant_order = None;
    assert_eq!(start(&state, "ada"), Some(NOW + 300));
}

#[test]
fn what_starts_later_than_was_looked_is_told_so() {
    let there = Member { pods: pods_of("runs", 4, "m-n0"), ..member("m", &[8]) };
    let jobs = vec![running("runs", 4, Some(400)), waiting("first", workers(4)), waiting("second", workers(4))];
    let all = expect_starts(&state(vec![there], jobs), ASSUME, || false).unwrap();
    assert!(all.values().all(|start| start.at == StartTime::NotBefore(NOW)), "{all:?}");
}

#[test]
fn there_may_be_no_more_time_in_the_middle_of_an_instant() {
    let jobs = ["a", "b", "c", "d"].map(|name| waiting(name, workers(2)));
    let asked = std::cell::Cell::new(0);
    let look_on = || asked.replace(asked.get() + 1) < 2;
    let all = expect_starts(&state(vec![member("m", &[8])], jobs.into()), ASSUME, look_on).unwrap();
    let at_once = all.values().filter(|start| start.at == StartTime::At(NOW)).count();
    let not_yet = all.values().filter(|start| start.at == StartTime::NotBefore(NOW)).count();
    assert_eq!((at_once, not_yet, asked.get()), (2, 2, 3), "{all:?}");
}

/// It would place each job that waits once, whatever time there is.
#[test]
fn who_can_never_start_is_not_looked_for_where_starts_alone_are_asked_for() {
    let state = state(vec![member("m", &[2])], vec![waiting("vast", workers(9))]);
    let (world, ..) = build_world(&state, ASSUME).unwrap();
    let never = |until_started: bool, look_on: LookOn<'_>| {
        let (options, mut policy) =
            (Options { until_started, ..Options::default() }, PolicyName::Caldera.start(&world));
        simulate_while_there_is_time(&world, policy.as_mut(), &options, look_on, |_| true).never
    };
    assert_eq!(never(false, LookOn::default()), [0]);
    assert!(never(true, LookOn::default()).is_empty());
    assert!(never(false, LookOn::while_true(|| false)).is_empty());
}

#[test]
fn more_jobs_than_can_be_told_of_are_refused_in_words() {
    let all = (0..=MOST_WAITING).map(|i| LiveJob { name: format!("j{i}").into(), ..waiting("j", workers(1)) });
    let refused = expect_starts(&state(vec![member("m", &[8])], all.collect()), ASSUME, || true).unwrap_err();
    assert_eq!(refused.to_string(), "20001 jobs wait: starts are worked out for 20000 at most");
}
