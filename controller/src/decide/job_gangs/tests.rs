//! Who of a gang of jobs is in line.

use caldera_core::{quantity::Quantity, time::SubmitTime};

use super::*;

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

fn roster(needed: usize) -> Roster {
    let names = ["a", "b", "c"].map(str::to_owned).to_vec();
    Roster { names, needed, ended: BTreeSet::new() }
}

fn key(name: &str) -> Key {
    Key::new("ns", name)
}

fn stand(all: [(&str, Standing); 3]) -> BTreeMap<Key, Member> {
    all.map(|(name, standing)| (key(name), Member { name: name.into(), needed: 0, standing })).into()
}

fn in_line(name: &str) -> (&str, Standing) {
    (name, Standing::InLine(job(name, 1, 1)))
}

fn names(keys: &[Key]) -> Vec<&str> {
    keys.iter().map(|key| &*key.name).collect()
}

#[test]
fn none_is_asked_for_before_all_that_are_needed_are_in_line() {
    let turns = decide_turns(Some(&roster(3)), &stand([in_line("a"), in_line("b"), ("c", Standing::Away)]));
    assert_eq!((turns.together.len(), turns.alone.len(), turns.held_back.len()), (0, 0, 2));
    let why = turns.held_back[0].1.to_string();
    assert_eq!(why, "starts together with other jobs: of 3 that are still needed 2 are in line; not in line: c");
    let turns = decide_turns(Some(&roster(3)), &stand([in_line("a"), in_line("b"), in_line("c")]));
    assert_eq!(names(&turns.together), ["a", "b", "c"]);
}

#[test]
fn as_many_as_are_missing_are_asked_for_together_and_the_rest_follows() {
    let turns = decide_turns(Some(&roster(2)), &stand([in_line("a"), in_line("b"), in_line("c")]));
    assert_eq!((names(&turns.together), names(&turns.alone)), (vec!["a", "b"], vec![]));
    assert_eq!(turns.held_back[0].0, key("c"));
    let turns = decide_turns(Some(&roster(2)), &stand([("a", Standing::Holds), ("b", Standing::Holds), in_line("c")]));
    assert_eq!((names(&turns.together), names(&turns.alone)), (vec![], vec!["c"]));
    // One is missing: it waits for itself, with a choice of card models if it has one.
    let turns = decide_turns(Some(&roster(2)), &stand([("a", Standing::Holds), in_line("b"), in_line("c")]));
    assert_eq!((names(&turns.alone), turns.held_back.len()), (vec!["b"], 1));
}

#[test]
fn one_that_ended_is_not_missing() {
    let ended = Roster { ended: ["c".to_owned()].into(), ..roster(3) };
    let turns = decide_turns(Some(&ended), &stand([in_line("a"), in_line("b"), ("c", Standing::Away)]));
    assert_eq!(names(&turns.together), ["a", "b"]);
}

#[test]
fn without_its_hyper_job_nothing_is_asked_for_and_what_it_does_not_name_waits_for_itself() {
    let turns = decide_turns(None, &stand([in_line("a"), in_line("b"), in_line("c")]));
    assert_eq!((turns.held_back.len(), turns.alone.len()), (3, 0));
    let turns = decide_turns(Some(&roster(3)), &stand([in_line("a"), in_line("b"), in_line("z")]));
    assert_eq!((names(&turns.alone), turns.held_back.len()), (vec!["z"], 2));
}

#[test]
fn those_that_start_together_are_in_one_queue() {
    let mut other = job("b", 1, 1);
    other.queue = "other".into();
    let members = stand([in_line("a"), ("b", Standing::InLine(other)), ("c", Standing::Holds)]);
    let turns = decide_turns(Some(&roster(3)), &members);
    assert_eq!(turns.held_back.len(), 2);
    assert_eq!(turns.held_back[0].1, Reason::JobsInSeveralQueues { queues: "other, q".to_owned() });
}

fn parts() -> Vec<Part> {
    let mut second = job("b", 2, 3);
    second.priority = -1;
    second.deadline = Some(50);
    let part = |job: Job| Part { key: key(job.id.as_str()), job };
    vec![part(job("a", 1, 5)), part(second)]
}

#[test]
fn they_are_asked_for_as_one_with_the_lowest_priority_and_the_oldest_age() {
    let all = combine_jobs(&parts()).unwrap();
    assert_eq!((all.id.as_str(), all.priority, all.created.as_second(), all.deadline), ("a", -1, 3, Some(50)));
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
    };
    let own = split_admission(&parts(), &all);
    let told: Vec<_> = own.iter().map(|own| (own.priority, own.pods_of(&"w".into()), own.charged.clone())).collect();
    assert_eq!(told, [(0, 1, cpu(1)), (-1, 3, cpu(3))]);
    assert_eq!(own[1].above, all.above);
}

#[test]
fn a_gang_is_half_while_some_hold_and_a_missing_one_waits() {
    let waits = |third| stand([("a", Standing::Holds), in_line("b"), third]);
    assert!(is_half(Some(&roster(3)), &waits(("c", Standing::Holds))));
    assert!(!is_half(Some(&roster(1)), &waits(("c", Standing::Away))), "one is enough");
    let held = stand([("a", Standing::Holds), ("b", Standing::Holds), ("c", Standing::Away)]);
    assert!(!is_half(Some(&roster(3)), &held), "its user holds it back");
    assert!(!is_half(Some(&roster(3)), &stand([in_line("a"), in_line("b"), in_line("c")])));
}
