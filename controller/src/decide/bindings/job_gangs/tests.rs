//! Who of a gang of jobs is in line.

use caldera_core::{
    admission::Admission,
    quantity::Quantity,
    queue::{Ask, Counted, FitClass, TaskAsk},
    resources::Resources,
    tenant::Tenant,
    time::{EpochSeconds, SubmitTime},
};

use super::{
    queueing::{MOST_TASKS, decide_queueing},
    *,
};

fn cpu(units: i64) -> Resources {
    [("cpu", Quantity::from_units(units))].into_iter().collect()
}

/// Job `name` of so many pods of one cpu, at most one more; it came at that second.
fn job(name: &str, pods: u32, created: i64) -> Job {
    let task = TaskAsk { name: "w".into(), request: cpu(1), min: pods, most: pods + 1, step: 1 };
    let ask = Ask { tasks: vec![task], copies: 1, fit: FitClass(7), run_for: None, counted: Counted::Job, card: None };
    let created = SubmitTime::from(created);
    Job { id: name.into(), queue: "q".into(), priority: 0, created, deadline: None, ask: Arc::new(ask) }
}

fn spec(needed: usize) -> JobGangSpec {
    let names = ["a", "b", "c"].map(str::to_owned).to_vec();
    JobGangSpec { names, needed, ended: BTreeSet::new() }
}

fn key(name: &str) -> Key {
    Key::new("ns", name)
}

fn list_members(all: [(&str, GangJobState); 3]) -> BTreeMap<Key, GangJob> {
    all.map(|(name, state)| (key(name), GangJob { name: name.into(), needed: 0, state })).into()
}

fn in_line(name: &str) -> (&str, GangJobState) {
    (name, GangJobState::Pending(job(name, 1, 1)))
}

fn any_size(_: &QueueName, _: &Resources) -> Option<Reason> {
    None
}

fn names(keys: &[Key]) -> Vec<&str> {
    keys.iter().map(|key| &*key.name).collect()
}

#[test]
fn none_is_asked_for_before_all_that_are_needed_are_in_line() {
    let queueing = decide_queueing(
        Some(&spec(3)),
        &list_members([in_line("a"), in_line("b"), ("c", GangJobState::Gated)]),
        any_size,
    );
    assert_eq!((queueing.together.len(), queueing.alone.len(), queueing.held_back.len()), (0, 0, 2));
    let why = queueing.held_back[0].1.to_string();
    assert_eq!(why, "starts together with other jobs: of 3 that are still needed 2 are in line; not in line: c");
    let queueing = decide_queueing(Some(&spec(3)), &list_members([in_line("a"), in_line("b"), in_line("c")]), any_size);
    assert_eq!(names(&queueing.together), ["a", "b", "c"]);
}

#[test]
fn as_many_as_are_missing_are_asked_for_together_and_the_rest_follows() {
    let queueing = decide_queueing(Some(&spec(2)), &list_members([in_line("a"), in_line("b"), in_line("c")]), any_size);
    assert_eq!((names(&queueing.together), names(&queueing.alone)), (vec!["a", "b"], vec![]));
    assert_eq!(queueing.held_back[0].0, key("c"));
    let queueing = decide_queueing(
        Some(&spec(2)),
        &list_members([("a", GangJobState::Admitted), ("b", GangJobState::Admitted), in_line("c")]),
        any_size,
    );
    assert_eq!((names(&queueing.together), names(&queueing.alone)), (vec![], vec!["c"]));
    // One is missing: each of them makes it whole, with a choice of card models if it has one.
    let queueing = decide_queueing(
        Some(&spec(2)),
        &list_members([("a", GangJobState::Admitted), in_line("b"), in_line("c")]),
        any_size,
    );
    assert_eq!((names(&queueing.alone), queueing.held_back.len()), (vec!["b", "c"], 0));
}

#[test]
fn one_that_ended_is_not_missing() {
    let ended = JobGangSpec { ended: ["c".to_owned()].into(), ..spec(3) };
    let queueing = decide_queueing(
        Some(&ended),
        &list_members([in_line("a"), in_line("b"), ("c", GangJobState::Gated)]),
        any_size,
    );
    assert_eq!(names(&queueing.together), ["a", "b"]);
}

#[test]
fn without_its_hyper_job_nothing_is_asked_for_and_what_it_does_not_name_waits_for_itself() {
    let queueing = decide_queueing(None, &list_members([in_line("a"), in_line("b"), in_line("c")]), any_size);
    assert_eq!((queueing.held_back.len(), queueing.alone.len()), (3, 0));
    let queueing = decide_queueing(Some(&spec(3)), &list_members([in_line("a"), in_line("b"), in_line("z")]), any_size);
    assert_eq!((names(&queueing.alone), queueing.held_back.len()), (vec!["z"], 2));
}

#[test]
fn those_that_start_together_are_in_one_queue() {
    let mut other = job("b", 1, 1);
    other.queue = "other".into();
    let members = list_members([in_line("a"), ("b", GangJobState::Pending(other)), ("c", GangJobState::Admitted)]);
    let queueing = decide_queueing(Some(&spec(3)), &members, any_size);
    assert_eq!(queueing.held_back.len(), 2);
    assert_eq!(queueing.held_back[0].1, Reason::JobsInSeveralQueues { queues: "other, q".to_owned() });
    assert!(queueing.is_refused, "nobody is given up for it");
}

/// `b` asks for something else.
fn queue_with(change: impl FnOnce(&mut Ask)) -> GangQueueing {
    let mut other = job("b", 1, 1);
    change(Arc::make_mut(&mut other.ask));
    let pending = ("b", GangJobState::Pending(other));
    decide_queueing(Some(&spec(3)), &list_members([in_line("a"), pending, ("c", GangJobState::Admitted)]), any_size)
}

#[test]
fn a_queue_takes_no_more_of_them_together_than_of_one_job() {
    let largest = |queue: &QueueName, asked: &Resources| {
        (queue.as_str() == "q" && !asked.fits_in(&cpu(5))).then(|| Reason::Invalid { problem: asked.to_string() })
    };
    let all = [in_line("a"), in_line("b"), in_line("c")];
    let queueing = decide_queueing(Some(&spec(3)), &list_members(all.clone()), largest);
    assert!(queueing.is_refused && queueing.together.is_empty(), "{queueing:?}");
    assert_eq!(queueing.held_back[0].1, Reason::Invalid { problem: "cpu 6".to_owned() }, "with all their pods");
    assert_eq!(decide_queueing(Some(&spec(2)), &list_members(all), largest).together.len(), 2);
}

#[test]
fn those_that_start_together_count_for_the_same_tenants() {
    let queueing = queue_with(|ask| ask.counted = Counted::JobOf([Tenant::User("eve".into())].into()));
    assert_eq!((queueing.together.len(), queueing.held_back.len(), queueing.is_refused), (0, 2, true));
    let why = queueing.held_back[0].1.to_string();
    assert!(why.contains("count for several users"), "{why}");
}

#[test]
fn what_starts_together_has_no_more_tasks_than_can_be_asked_for() {
    let with_tasks =
        |tasks: usize, most: u32| queue_with(|ask| ask.tasks = vec![TaskAsk { most, ..ask.tasks[0].clone() }; tasks]);
    let queueing = with_tasks(MOST_TASKS, 1);
    assert!(queueing.is_refused);
    let why = Reason::Invalid { problem: "jobs that start together have 10001 tasks in all, 10000 at most".to_owned() };
    assert_eq!(queueing.held_back[0].1, why);
    assert_eq!(with_tasks(MOST_TASKS - 1, 1).together.len(), 2);
    assert_eq!(with_tasks(MOST_TASKS, 0).together.len(), 2, "nothing is asked for these");
}

fn parts() -> Vec<Part> {
    let mut second = job("b", 2, 3);
    second.priority = -1;
    second.deadline = Some(EpochSeconds::new(50));
    let part = |job: Job| Part { key: key(job.id.as_str()), job };
    vec![part(job("a", 1, 5)), part(second)]
}

#[test]
fn they_are_asked_for_as_one_with_the_lowest_priority_and_the_age_of_the_youngest() {
    let all = combine_jobs(&parts()).unwrap();
    assert_eq!(
        (all.id.as_str(), all.priority, all.created.as_time(), all.deadline),
        ("a", -1, EpochSeconds::new(5), Some(EpochSeconds::new(50)))
    );
    assert_eq!((all.ask.minimum(), all.ask.demand_of_all_pods()), (cpu(3), cpu(5)));
    assert_eq!(all.ask.counted, Counted::Jobs(2, [].into()));
    assert_eq!(combine_jobs(&parts()[..1]), None);
}

#[test]
fn of_a_grant_to_all_each_is_charged_its_own() {
    let all = Admission {
        queue: "q".into(),
        above: vec!["top".into()],
        priority: -1,
        copies: 1,
        tasks: [("0/w".into(), 1), ("1/w".into(), 3)].into(),
        charged: cpu(4),
        run: None,
        data: None,
        nodes: caldera_core::node_groups::NodeRestriction::default(),
        clusters: Vec::new(),
        card: None,
        together: None,
    };
    let own = split_admission(&parts(), all.clone());
    let reported: Vec<_> =
        own.iter().map(|own| (own.priority, own.pods_of(&"w".into()), own.charged.clone())).collect();
    assert_eq!(reported, [(0, 1, cpu(1)), (-1, 3, cpu(3))]);
    assert_eq!((&own[1].above, own[1].together), (&all.above, Some(5.into())));
}

#[test]
fn a_gang_is_incomplete_while_some_hold_and_a_missing_one_waits() {
    let waits = |third| list_members([("a", GangJobState::Admitted), in_line("b"), third]);
    assert!(is_incomplete(Some(&spec(3)), &waits(("c", GangJobState::Admitted))));
    assert!(!is_incomplete(Some(&spec(1)), &waits(("c", GangJobState::Gated))), "one is enough");
    let held = list_members([("a", GangJobState::Admitted), ("b", GangJobState::Admitted), ("c", GangJobState::Gated)]);
    assert!(!is_incomplete(Some(&spec(3)), &held), "its user holds it back");
    assert!(!is_incomplete(Some(&spec(3)), &list_members([in_line("a"), in_line("b"), in_line("c")])));
}

/// A gang of three of which one was evicted, and its name.
fn gang_after_eviction(second: (&str, GangJobState)) -> (JobGangs, GangKey) {
    let (mut gangs, name) = (JobGangs::default(), GangKey::HyperJob(key("h"), "uid".into()));
    let members = list_members([("a", GangJobState::Admitted), second, ("c", GangJobState::Admitted)]);
    gangs.gangs.insert(name.clone(), Gang { members, was_evicted: true, ..Gang::default() });
    (gangs, name)
}

#[test]
fn that_one_was_evicted_counts_once_it_is_known_that_the_gang_is_not_whole() {
    let (mut gangs, name) = gang_after_eviction(("b", GangJobState::Evicted));
    let now = Timestamp::UNIX_EPOCH;
    gangs.update_gang_queueing(&name, None, any_size, now);
    assert_eq!(gangs.gangs[&name].incomplete_since, None, "its HyperJob is not seen");
    gangs.update_gang_queueing(&name, Some(&spec(3)), any_size, now);
    assert_eq!(gangs.gangs[&name].incomplete_since, Some(Timestamp::MIN));
    // Of one that is whole again nothing is left of that.
    let (mut gangs, name) = gang_after_eviction(("b", GangJobState::Admitted));
    gangs.update_gang_queueing(&name, Some(&spec(3)), any_size, now);
    assert!(!gangs.gangs[&name].was_evicted && gangs.gangs[&name].incomplete_since.is_none());
}

#[test]
fn a_gang_of_which_one_could_not_be_given_up_is_due_again_when_it_is_said() {
    let (mut gangs, name) = gang_after_eviction(("b", GangJobState::Evicted));
    let (now, timeout) = (Timestamp::UNIX_EPOCH, SignedDuration::from_secs(300));
    gangs.update_gang_queueing(&name, Some(&spec(3)), any_size, now);
    let taken = gangs.take_incomplete_gangs(now, now);
    assert_eq!((taken[0].holding.len(), taken[0].missing.len(), &taken[0].gang), (2, 1, &name));
    assert_eq!(gangs.next_due(timeout), Some(add_wait(now, timeout)), "as long again");
    gangs.set_incomplete_since(&name, now - timeout);
    assert_eq!(gangs.next_due(timeout), Some(now));
}
